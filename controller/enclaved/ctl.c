#include "controller/enclaved/ctl.h"

#include "base/file.h"
#include "base/log.h"
#include "controller/enclaved/polls.h"
#include "base/enc.h"

#define C(member, key, type, ...) ENC_FIELD (struct enc_conf, member, key, type, ##__VA_ARGS__)

const struct enc_field enc_conf_fields[] = {
	C (store, "store", ENC_T_PATH, .dflt = "\"/var/lib/enclave/store.db\"", .help = "the controller's memory"),
	C (socket, "socket", ENC_T_PATH, .dflt = "\"/run/enclave/enclaved.sock\"", .help = "the API for local callers"),
	C (auditd, "auditd", ENC_T_PATH, .dflt = "\"/run/enclave-vault/auditd.sock\"", .help = "the log service"),
	C (keyd, "keyd", ENC_T_PATH, .dflt = "\"/run/enclave-vault/keyd.sock\"", .help = "the key service"),
	C (schedd, "schedd", ENC_T_PATH, .dflt = "\"/run/enclave/schedd.sock\"", .help = "the scheduler helper"),
	C (listen, "listen", ENC_T_STR, .dflt = "\"0.0.0.0\"", .max = 45, .help = "address for agents"),
	C (port, "port", ENC_T_U32, .min = 1, .max = 65535, .dflt = "7443", .help = "port for agents"),
	C (address4, "address4", ENC_T_STR, .max = 15, .help = "IPv4 address of this host as nodes reach it"),
	C (address6, "address6", ENC_T_STR, .max = 45, .help = "IPv6 address of this host as nodes reach it"),
	C (certificate, "certificate", ENC_T_PATH, .dflt = "\"/var/lib/enclave/tls.crt\"", .help = "made by the key service when absent"),
	C (key, "key", ENC_T_PATH, .dflt = "\"/var/lib/enclave/tls.key\""),
	C (ca, "ca", ENC_T_PATH, .dflt = "\"/var/lib/enclave/ca.crt\""),
	C (users, "users", ENC_T_PATH, .dflt = "\"/etc/enclave/users.json\"", .help = "who is who at this site"),
	C (policies, "policies", ENC_T_PATH, .dflt = "\"/etc/enclave/policy\"", .help = "folder of policies"),
	C (policy, "policy", ENC_T_NAME, .dflt = "\"hipaa\"", .help = "the one taken when none is named"),
	C (outsiders, "outsiders", ENC_T_STRS, .max = 8, .dflt = "[]", .help = "addresses that probes must find unreachable"),
	C (service_nodes, "service_nodes", ENC_T_NODES, .max = 1000, .dflt = "[]", .help = "hosts that carry enclaves' services"),
	C (observers, "observers", ENC_T_NODES, .max = 8, .dflt = "[]", .help = "hosts that look at enclaves from outside"),
	C (token_ttl_s, "token_ttl", ENC_T_DURATION, .min = 10, .max = 86400 * 7, .dflt = "\"1h\"", .help = "how long an enrolment token is good"),
	C (measure_every_s, "measure_every", ENC_T_DURATION, .min = 5, .dflt = "\"20m\"",
	   .help = "nodes of open enclaves are measured again; well below the key service's attest_max_age"),
	C (node_lost_s, "node_lost", ENC_T_DURATION, .min = 5, .dflt = "\"30m\"",
	   .help = "a node of an open enclave that is silent or cannot be put right for so long goes to quarantine"),
	C (slurmctld_port, "slurmctld_port", ENC_T_U32, .min = 1024, .max = 65535, .dflt = "6917"),
	C (slurmd_port, "slurmd_port", ENC_T_U32, .min = 1024, .max = 65535, .dflt = "6918"),
	C (srun_port_first, "srun_port_first", ENC_T_U32, .min = 1024, .max = 65535, .dflt = "60001"),
	C (srun_port_last, "srun_port_last", ENC_T_U32, .min = 1024, .max = 65535, .dflt = "60100"),
	C (login_port_base, "login_port_base", ENC_T_U32, .min = 1024, .max = 65000, .dflt = "22000", .help = "plus the enclave's number"),
	C (overlay_port_base, "overlay_port_base", ENC_T_U32, .min = 1024, .max = 65000, .dflt = "51820", .help = "plus the enclave's number"),
	C (overlay_prefix, "overlay_prefix", ENC_T_STR, .min = 3, .max = 7, .dflt = "\"10.77\"", .help = "first half of the overlay's networks"),
	C (metrics_file, "metrics_file", ENC_T_PATH, .help = "figures for monitoring are written here, for node-exporter's textfile collector; absent: none"),
	C (metrics_every_s, "metrics_every", ENC_T_DURATION, .min = 1, .max = 3600, .dflt = "\"15s\"", .help = "how often"),
	ENC_FIELD_END
};

void enc_ctl_changed (struct enc_ctl *c)
{
	enc_cond_signal (&c->changed);
	if (c->look)
		c->look (c);
}

/* ---- policies ---- */

static int add_file (struct enc_policies *ps, const char *folder, const char *name, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (256 * 1024);
	enc_auto_free char *path = enc_strf ("%s/%s", folder, name);
	int rc;

	if (!path)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if ((rc = enc_file_read_trusted (path, 256 * 1024, &text, err)) < 0)
		return rc;
	return enc_wrap (err, enc_policies_add (ps, (const char *) text.data, text.len, err), "%s", path);
}

int enc_ctl_policies (struct enc_ctl *c, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	enc_auto_close int dir = enc_open_dir (c->conf->policies, err);
	struct enc_policies fresh = { 0 };
	int rc;

	if (dir < 0)
		return dir;
	if ((rc = enc_dir_list (dir, 64, &names, err)) < 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < names.n; i++)
		if (enc_ends (names.v[i], ".json"))
			rc = add_file (&fresh, c->conf->policies, names.v[i], err);
	if (rc == 0 && !enc_policies_find (&fresh, c->conf->policy))
		rc = enc_fail (err, ENC_ENOTFOUND, "%s: there is no policy %s, which the configuration names", c->conf->policies, c->conf->policy);
	if (rc < 0) {
		enc_policies_done (&fresh);
		return rc;
	}
	enc_policies_done (&c->policies);
	c->policies = fresh;
	return 0;
}

/* ---- users ---- */

struct users {
	struct enc_list list;
};

static const struct enc_field user_fields[] = {
	ENC_FIELD (struct enc_site_user, user, "user", ENC_T_USER, .flags = ENC_REQUIRED),
	ENC_FIELD (struct enc_site_user, uid, "uid", ENC_T_U32, .flags = ENC_REQUIRED, .min = 1),
	ENC_FIELD (struct enc_site_user, gid, "gid", ENC_T_U32, .flags = ENC_REQUIRED, .min = 1),
	ENC_FIELD (struct enc_site_user, ssh_keys, "ssh_keys", ENC_T_STRS, .max = 16),
	ENC_FIELD_END
};

static int found (const struct enc_site_user *u, uint32_t *ret_uid, uint32_t *ret_gid, char **ret_keys, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *keys = enc_json_array ();

	for (size_t i = 0; i < u->ssh_keys.n; i++)
		enc_json_add_str (keys, u->ssh_keys.v[i]);
	*ret_uid = u->uid;
	*ret_gid = u->gid;
	*ret_keys = enc_json_write (keys, NULL, err);
	return *ret_keys ? 0 : -ENC_ENOMEM;
}

int enc_site_user_find (const char *path, const char *user, uint32_t *ret_uid, uint32_t *ret_gid, char **ret_keys, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (4 << 20);
	enc_auto (enc_json) struct enc_json *list = NULL;
	int rc = enc_file_read_trusted (path, 4 << 20, &text, err);

	if (rc < 0)
		return rc;
	if (!(list = enc_json_parse ((const char *) text.data, text.len, 4 << 20, err)))
		return -ENC_EFAILED;
	for (size_t i = 0; i < enc_json_len (list); i++) {
		const struct enc_json *item = enc_json_at (list, i);
		struct enc_site_user u = { 0 };

		if (!enc_streq (enc_json_get_str (item, "user", NULL), user))
			continue;
		if ((rc = enc_json_decode (user_fields, item, &u, err)) < 0)
			return enc_wrap (err, enc_fail (err, ENC_EFAILED, "entry of %s: %s", user, err ? err->text : ""), "%s", path);
		rc = found (&u, ret_uid, ret_gid, ret_keys, err);
		enc_fields_done (user_fields, &u);
		return rc;
	}
	return enc_error_object (err, enc_fail (err, ENC_ENOTFOUND, "there is no user %s", user), "%s", user);
}
