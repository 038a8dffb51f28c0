#include "node-agent/privd/state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

#include "base/enc.h"

enum { STATE_MAX = 256 * 1024 };

#define F(member, type, ...) ENC_FIELD (struct enc_node_state, member, #member, type, ##__VA_ARGS__)

const struct enc_field enc_node_state_fields[] = {
	F (pool, ENC_T_U32, .max = ENC_POOL_QUARANTINE),
	F (generation, ENC_T_U64),
	F (document, ENC_T_STR, .max = 131072),
	F (digest, ENC_T_HEX),
	F (grant_until, ENC_T_U64),
	F (record, ENC_T_U64),
	F (door, ENC_T_BOOL),
	F (overlay, ENC_T_BOOL),
	F (expired_door, ENC_T_BOOL),
	F (expired_volumes, ENC_T_BOOL),
	F (roles, ENC_T_U32, .max = 7),
	F (volumes, ENC_T_NAMES, .max = ENC_DOC_VOLUMES_MAX),
	F (units, ENC_T_U32, .max = ENC_UNITS_DOWN),
	F (fence, ENC_T_U32, .max = ENC_FENCE_ENCLAVE),
	F (clean_ok, ENC_T_BOOL),
	F (clean, ENC_T_ID),
	F (measure, ENC_T_STR, .max = 32),
	F (probe, ENC_T_ID),
	F (overlay_key, ENC_T_STR, .max = 44),
	F (member_version, ENC_T_U64),
	F (unsure, ENC_T_U32),
	F (counter, ENC_T_U64),
	F (controller4, ENC_T_STR, .max = 15),
	F (controller6, ENC_T_STR, .max = 45),
	F (controller_port, ENC_T_U32, .max = 65535),
	F (enclave_id, ENC_T_ID),
	F (enclave_name, ENC_T_NAME),
	ENC_FIELD_END,
};

/* The part of it that outlives a boot. */
static const struct enc_field held_fields[] = {
	F (pool, ENC_T_U32, .max = ENC_POOL_QUARANTINE),
	F (generation, ENC_T_U64),
	F (counter, ENC_T_U64),
	F (controller4, ENC_T_STR, .max = 15),
	F (controller6, ENC_T_STR, .max = 45),
	F (controller_port, ENC_T_U32, .max = 65535),
	F (enclave_id, ENC_T_ID),
	F (enclave_name, ENC_T_NAME),
	ENC_FIELD_END,
};

void enc_node_state_done (struct enc_node_state *s)
{
	enc_fields_done (enc_node_state_fields, s);
}

bool enc_node_state_held (const struct enc_node_state *s)
{
	bool home = s->pool == ENC_POOL_GENERAL || s->pool == ENC_POOL_SERVICE;

	return !home || s->fence != ENC_FENCE_NONE || s->units != ENC_UNITS_SITE;
}

static int path_of (const char *folder, const char *name, char **ret, struct enc_error *err)
{
	*ret = enc_strf ("%s/%s", folder, name);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "state: no memory");
}

static int load (const char *path, const struct enc_field *fields, struct enc_node_state *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (STATE_MAX);
	int rc;

	if (access (path, F_OK) < 0 && errno == ENOENT)
		return enc_fail (err, ENC_ENOTFOUND, "%s is not there", path);
	if ((rc = enc_file_read (path, STATE_MAX, &text, err)) < 0)
		return rc;
	if (enc_json_decode_text (fields, (const char *)text.data, text.len, STATE_MAX, ret, err) < 0)
		return enc_fail (err, ENC_EINTEGRITY, "%s is damaged", path);
	return 0;
}

int enc_node_state_load (const struct enc_privd_conf *conf, struct enc_node_state *ret, bool *ret_rebooted, struct enc_error *err)
{
	enc_auto_free char *state = NULL, *held = NULL;
	struct enc_node_state s = { 0 };
	int rc;

	*ret_rebooted = false;
	if ((rc = path_of (conf->run_dir, "state", &state, err)) < 0 || (rc = path_of (conf->state_dir, "held", &held, err)) < 0)
		return rc;
	rc = load (state, enc_node_state_fields, &s, err);
	if (rc == -ENC_ENOTFOUND && (rc = load (held, held_fields, &s, err)) == 0) {
		*ret_rebooted = true;
		s.pool = s.pool == ENC_POOL_QUARANTINE ? ENC_POOL_QUARANTINE : ENC_POOL_AIRLOCK;
		s.fence = ENC_FENCE_AIRLOCK;
		s.units = ENC_UNITS_DOWN;
	}
	if (rc == -ENC_ENOTFOUND) {
		memset (&s, 0, sizeof s);
		rc = 0;
	}
	if (rc == 0)
		*ret = s;
	return rc;
}

static int store (const char *path, const struct enc_field *fields, const struct enc_node_state *s, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *json = enc_json_encode (fields, s);
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	enc_auto_free char *text = NULL;
	size_t len;

	if (!(text = enc_json_write (json, &len, err)))
		return enc_fail (err, ENC_ENOMEM, "state: cannot be written");
	return enc_file_write (path, text, len, &attr, err);
}

int enc_node_state_store (const struct enc_privd_conf *conf, const struct enc_node_state *s, struct enc_error *err)
{
	enc_auto_free char *state = NULL, *held = NULL;
	bool keep = enc_node_state_held (s);
	int rc;

	if ((rc = path_of (conf->run_dir, "state", &state, err)) < 0 || (rc = path_of (conf->state_dir, "held", &held, err)) < 0)
		return rc;
	if (keep && (rc = store (held, held_fields, s, err)) < 0)
		return rc;
	if ((rc = store (state, enc_node_state_fields, s, err)) < 0)
		return rc;
	if (!keep && unlink (held) < 0 && errno != ENOENT)
		return enc_fail_sys (err, "%s", held);
	return 0;
}

int enc_node_state_document (const struct enc_node_state *s, struct enc_doc *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf bytes = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	int rc;

	if (!s->document)
		return enc_fail (err, ENC_ENOTFOUND, "there was no document yet");
	if ((rc = enc_get_base64 (s->document, strlen (s->document), &bytes, err)) < 0)
		return rc;
	return enc_doc_decode (bytes.data, bytes.len, ret, err);
}

static const char *either (const char *a, const char *b)
{
	return a && a[0] ? a : b && b[0] ? b : "";
}

int enc_node_state_tight (const struct enc_privd_conf *conf, const struct enc_node_state *s, uint8_t pool, struct enc_doc *ret, struct enc_error *err)
{
	int rc;

	memset (ret, 0, sizeof *ret);
	ret->generation = s->generation ? s->generation : 1;
	ret->pool = pool;
	ret->units = ENC_UNITS_DOWN;
	ret->fence = ENC_FENCE_AIRLOCK;
	ret->controller_port = s->controller_port ? s->controller_port : conf->controller_port;
	if ((rc = enc_str_copy (ret->node, sizeof ret->node, conf->node, err)) < 0 ||
		(rc = enc_str_copy (ret->controller4, sizeof ret->controller4, either (s->controller4, conf->controller4), err)) < 0 ||
		(rc = enc_str_copy (ret->controller6, sizeof ret->controller6, either (s->controller6, conf->controller6), err)) < 0)
		return rc;
	if ((!ret->controller4[0] && !ret->controller6[0]) || ret->controller_port == 0)
		return enc_fail (err, ENC_ENOTFOUND, "no controller is known on this node");
	return 0;
}

int enc_state_set (char **member, const char *text, struct enc_error *err)
{
	char *copy = text && text[0] ? enc_strdup (text) : NULL;

	if (text && text[0] && !copy)
		return enc_fail (err, ENC_ENOMEM, "state: no memory");
	free (*member);
	*member = copy;
	return 0;
}
