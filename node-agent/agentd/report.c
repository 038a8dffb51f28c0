#include "node-agent/agentd/report.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/enctime.h"
#include "base/enc.h"

static void add_addresses (struct enc_json *list)
{
	struct ifaddrs *all = NULL;
	if (getifaddrs (&all) < 0)
		return;
	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		char text[INET6_ADDRSTRLEN];
		const void *from;
		if (!a->ifa_addr || (a->ifa_flags & IFF_LOOPBACK))
			continue;
		if (a->ifa_addr->sa_family == AF_INET)
			from = &((const struct sockaddr_in *) (const void *) a->ifa_addr)->sin_addr;
		else if (a->ifa_addr->sa_family == AF_INET6)
			from = &((const struct sockaddr_in6 *) (const void *) a->ifa_addr)->sin6_addr;
		else
			continue;
		if (inet_ntop (a->ifa_addr->sa_family, from, text, sizeof text))
			enc_json_add_str (list, text);
	}
	freeifaddrs (all);
}

static struct enc_json *facts (void)
{
	struct enc_json *f = enc_json_object ();
	struct sysinfo si = { 0 };
	long cpus = sysconf (_SC_NPROCESSORS_ONLN);
	(void) sysinfo (&si);
	enc_json_set_u64 (f, "cpus", cpus > 0 ? (uint64_t) cpus : 1);
	enc_json_set_u64 (f, "memory_mb", (uint64_t) si.totalram * si.mem_unit / (1024 * 1024));
	add_addresses (enc_json_set_array (f, "addresses"));
	return f;
}

static struct enc_json *failure (const struct enc_error *e)
{
	if (!e)
		return enc_json_new_null ();
	struct enc_json *f = enc_json_object ();
	enc_json_set_str (f, "area", e->step[0] ? e->step : NULL);
	enc_json_set_str (f, "code", enc_code_name (e->code));
	enc_json_set_str (f, "text", e->text);
	enc_json_set_str (f, "next", e->next[0] ? e->next : NULL);
	return f;
}

/* Evidence by area, the agent's own beside privd's; the attestation is taken out, it has a member of its own. */
static struct enc_json *evidence (const struct enc_report_in *in)
{
	const struct enc_json *from = in->converge ? enc_converge_evidence (in->converge) : NULL;
	struct enc_json *out = from ? enc_json_copy (from) : enc_json_object ();
	struct enc_json *measure = enc_json_get (out, "measure");
	if (measure)
		enc_json_del (measure, "attestation");
	struct enc_json_iter it = { 0 };
	while (in->extra && enc_json_next (in->extra, &it))
		enc_json_set (out, it.key, enc_json_copy (it.value));
	return out;
}

static void set_from (struct enc_json *to, const struct enc_json *state, const char *key)
{
	const struct enc_json *v = enc_json_get (state, key);
	enc_json_set (to, key, v ? enc_json_copy (v) : enc_json_new_null ());
}

/* A fresh answer to a challenge goes out until the controller has had it once. */
static const char *attestation (const struct enc_report_in *in, const struct enc_json *state)
{
	const char *challenge = enc_json_get_str (enc_json_get (state, "areas"), "measure", NULL);
	if (!challenge || (in->attestation_for && strcmp (challenge, in->attestation_for) == 0))
		return NULL;
	return enc_json_get_str (enc_json_get (enc_converge_evidence (in->converge), "measure"), "attestation", NULL);
}

struct enc_json *enc_report_build (const struct enc_report_in *in)
{
	const struct enc_json *state = in->converge ? enc_converge_state (in->converge) : NULL;
	struct enc_json *r = enc_json_object ();
	char boot_id[ENC_BOOT_ID_SIZE] = "";
	if (!r)
		return NULL;
	if (enc_boot_id (boot_id, NULL) < 0)
		boot_id[0] = 0;
	enc_json_set_str (r, "node", in->node);
	enc_json_set_u64 (r, "version", 1);
	set_from (r, state, "boot");
	set_from (r, state, "identity");
	enc_json_set_str (r, "boot_id", boot_id);
	enc_json_set_u64 (r, "generation", in->converge ? enc_converge_generation (in->converge) : in->generation);
	enc_json_set_str (r, "document", in->converge && enc_converge_digest (in->converge)[0] ? enc_converge_digest (in->converge) : NULL);
	set_from (r, state, "pool");
	set_from (r, state, "member_version");
	set_from (r, state, "areas");
	set_from (r, state, "overlay_key");
	enc_json_set (r, "failed", failure (in->converge ? enc_converge_failed (in->converge) : NULL));
	enc_json_set_str (r, "attestation", in->converge ? attestation (in, state) : NULL);
	enc_json_set (r, "evidence", evidence (in));
	const struct enc_json *events = enc_json_get (state, "events");
	enc_json_set (r, "events", events ? enc_json_copy (events) : enc_json_array ());
	if (in->receipts)
		enc_json_set (r, "receipts", in->receipts);
	enc_json_set (r, "facts", facts ());
	return r;
}

uint64_t enc_report_last_event (const struct enc_json *state)
{
	const struct enc_json *events = enc_json_get (state, "events");
	size_t n = enc_json_len (events);
	return n ? enc_json_get_u64 (enc_json_at (events, n - 1), "counter", 0) : 0;
}
