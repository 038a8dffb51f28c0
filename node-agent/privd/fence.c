/* Family fence: the rules, the routes, the connections, and the overlay beside them. */
#include <errno.h>
#include <linux/capability.h>
#include <net/if.h>
#include <nftables/libnftables.h>
#include <string.h>

#include "base/harden.h"
#include "base/str.h"
#include "node-agent/privd/connections.h"
#include "node-agent/privd/family.h"
#include "node-agent/privd/fence_rules.h"
#include "node-agent/privd/overlay.h"
#include "node-agent/privd/routes.h"

#include "base/enc.h"

enum { RULES_MAX = 1024 * 1024 };

/* What this process applied last, to see whether it still stands. */
static struct {
	struct enc_doc *doc;    /* NULL: no fence */
	bool door;
	char *listing;          /* what the kernel said of the rules right after */
	struct enc_strs devices;
	size_t routes;          /* our own */
	bool overlay;           /* its interface is there */
} applied;

ENC_DEFINE_AUTO (nft, struct nft_ctx, nft_ctx_free);

/* Run one text; with `ret_listing` its output is given, for the caller to free. */
static int run_nft (const char *text, char **ret_listing, struct enc_error *err)
{
	enc_auto (nft) struct nft_ctx *nft = nft_ctx_new (NFT_CTX_DEFAULT);

	if (!nft || nft_ctx_buffer_output (nft) || nft_ctx_buffer_error (nft))
		return enc_fail (err, ENC_ENOMEM, "fence: no memory");
	nft_ctx_output_set_flags (nft, NFT_CTX_OUTPUT_STATELESS | NFT_CTX_OUTPUT_NUMERIC_ALL);
	if (nft_run_cmd_from_buffer (nft, text) != 0)
		return enc_fail (err, ENC_EFAILED, "fence: %.180s", nft_ctx_get_error_buffer (nft));
	if (ret_listing && !(*ret_listing = enc_strdup (nft_ctx_get_output_buffer (nft))))
		return enc_fail (err, ENC_ENOMEM, "fence: no memory");
	return 0;
}

/* One by one: a listing of two families finds only one of them. */
static int list_tables (bool frames, char **ret, struct enc_error *err)
{
	enc_auto_free char *packets = NULL, *of_frames = NULL;
	int rc = run_nft ("list table inet " ENC_FENCE_TABLE, &packets, err);

	if (rc == 0 && frames)
		rc = run_nft ("list table netdev " ENC_FENCE_TABLE, &of_frames, err);
	if (rc < 0)
		return rc;
	*ret = enc_strf ("%s%s", packets, of_frames ? of_frames : "");
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "fence: no memory");
}

/* Kernels before 5.16 have no place to look at frames that leave. */
static bool no_egress;

/* Interfaces that frames can leave by; the overlay's own frames are packets in its tunnel. */
static int list_devices (struct enc_strs *ret, struct enc_error *err)
{
	struct if_nameindex *all = no_egress ? NULL : if_nameindex ();
	int rc = all || no_egress ? 0 : enc_fail_sys (err, "fence: interfaces");

	for (const struct if_nameindex *i = all; rc == 0 && i && i->if_index; i++)
		if (strcmp (i->if_name, "lo") != 0 && strcmp (i->if_name, ENC_OVERLAY_IFACE) != 0)
			rc = enc_strs_add (ret, i->if_name, err);
	if (all)
		if_freenameindex (all);
	enc_strs_sort (ret);
	return rc;
}

static int save_path (const struct enc_privd_conf *conf, char **ret, struct enc_error *err)
{
	*ret = enc_strf ("%s/routes", conf->run_dir);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "fence: no memory");
}

static bool is_login_open (const struct enc_fence *f)
{
	return f->mode == ENC_FENCE_ENCLAVE && f->door && (f->doc->roles & ENC_ROLE_LOGIN);
}

/* A node whose login port is open needs its way back to any client; the rules alone then hold. */
static int apply_routes (const struct enc_privd_conf *conf, const struct enc_fence *f, struct enc_error *err)
{
	enc_auto_free char *save = NULL;
	int rc = save_path (conf, &save, err);

	if (rc < 0)
		return rc;
	return f->mode == ENC_FENCE_NONE || is_login_open (f) ? enc_routes_open (save, err) : enc_routes_close (f, save, err);
}

static void forget (void)
{
	free (applied.doc);
	free (applied.listing);
	enc_strs_done (&applied.devices);
	memset (&applied, 0, sizeof applied);
}

/* The fence's document outlives its task. */
static int remember (const struct enc_fence *f, struct enc_error *err)
{
	bool overlay = applied.overlay || if_nametoindex (ENC_OVERLAY_IFACE) != 0;
	struct enc_doc *doc = malloc (sizeof *doc);

	if (!doc)
		return enc_fail (err, ENC_ENOMEM, "fence: no memory");
	*doc = *f->doc;
	forget ();
	applied.doc = doc;
	applied.door = f->door;
	applied.overlay = overlay && doc->overlay;
	return 0;
}

static int run_rules (const struct enc_fence *f, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (RULES_MAX);
	enc_auto_free char *rules = NULL;
	int rc = enc_fence_text (f, &text, err);

	if (rc < 0)
		return rc;
	return (rules = enc_buf_take_str (&text)) ? run_nft (rules, NULL, err) : enc_fail (err, ENC_ENOMEM, "fence: no memory");
}

static int apply_rules (const struct enc_fence *f, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs devices = { 0 };
	struct enc_fence with = *f;
	int rc = list_devices (&devices, err);

	if (rc < 0)
		return rc;
	with.devices = &devices;
	if ((rc = run_rules (&with, err)) < 0 && devices.n > 0 && f->mode != ENC_FENCE_NONE) {
		/* Packets are held in any case; the evidence says that frames are not. */
		enc_strs_done (&devices);
		no_egress = (rc = run_rules (&with, err)) == 0;
	}
	if (rc < 0)
		return rc;
	if (f->mode == ENC_FENCE_NONE) {
		forget ();
		return 0;
	}
	if (f->doc != applied.doc && (rc = remember (f, err)) < 0)
		return rc;
	free (applied.listing);
	applied.listing = NULL;
	enc_strs_done (&applied.devices);
	applied.devices = devices;
	devices = (struct enc_strs){ 0 };
	return list_tables (applied.devices.n > 0, &applied.listing, err);
}

/* On the way to a looser fence the rules come last, on the way to a tighter one they come first. */
static int task_fence (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	struct enc_fence f = { .mode = task->doc->fence, .doc = task->doc, .door = task->flags & ENC_TASK_DOOR };
	size_t cut = 0, foreign = 0;
	int rc;

	if (f.mode == ENC_FENCE_NONE) {
		if ((rc = apply_routes (conf, &f, err)) < 0 || (rc = apply_rules (&f, err)) < 0)
			return rc;
	} else {
		if ((rc = apply_rules (&f, err)) < 0 || (rc = enc_connections_cut (&f, &cut, err)) < 0 || (rc = apply_routes (conf, &f, err)) < 0)
			return rc;
	}
	if ((rc = enc_routes_count (&applied.routes, &foreign, err)) < 0)
		return rc;
	enc_json_set_str (evidence, "fence", enc_fence_mode_name (f.mode));
	enc_json_set_u64 (evidence, "connections_cut", cut);
	enc_json_set_u64 (evidence, "routes_left", foreign);
	enc_json_set_bool (evidence, "frames_held", !no_egress && f.mode != ENC_FENCE_NONE);
	return 0;
}

/* ---- does it still stand? Each look says whether its part does, and each repair makes it stand. ---- */

static bool rules_stand (void)
{
	enc_auto_done (enc_strs_done) struct enc_strs devices = { 0 };
	enc_auto_free char *now = NULL;

	if (!applied.listing || list_devices (&devices, NULL) < 0 || devices.n != applied.devices.n)
		return false;
	for (size_t i = 0; i < devices.n; i++)
		if (strcmp (devices.v[i], applied.devices.v[i]) != 0)
			return false;
	return list_tables (applied.devices.n > 0, &now, NULL) == 0 && strcmp (now, applied.listing) == 0;
}

static bool routes_stand (const struct enc_fence *f)
{
	size_t ours, foreign;

	return is_login_open (f) || (enc_routes_count (&ours, &foreign, NULL) == 0 && foreign == 0 && ours == applied.routes);
}

static bool overlay_stands (void)
{
	return !applied.overlay || if_nametoindex (ENC_OVERLAY_IFACE) != 0;
}

static int task_check (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	struct enc_fence f = { .doc = applied.doc, .door = applied.door };
	struct enc_task again = { .job = ENC_JOB_OVERLAY, .doc = applied.doc, .fd = -1 };
	const char *what = NULL;
	size_t foreign;
	int rc = 0;

	(void)task;
	if (!applied.doc)
		return 0;
	f.mode = applied.doc->fence;
	if (!rules_stand ()) {
		what = "rules";
		rc = apply_rules (&f, err);
	}
	if (rc == 0 && !routes_stand (&f)) {
		what = what ? what : "routes";
		if ((rc = apply_routes (conf, &f, err)) == 0)
			rc = enc_routes_count (&applied.routes, &foreign, err);
	}
	if (rc == 0 && !overlay_stands ()) {
		what = what ? what : "overlay";
		rc = enc_overlay_apply (conf, &again, evidence, err);
	}
	enc_json_set_bool (evidence, "intact", !what);
	if (what)
		enc_json_set_str (evidence, "what", what);
	return enc_wrap (err, rc, "put the fence back");
}

static int task_overlay (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	bool want = task->doc->overlay && !(task->flags & ENC_TASK_CLOSE);
	int rc;

	applied.overlay = false;
	rc = enc_overlay_apply (conf, task, evidence, err);
	applied.overlay = rc == 0 && want && applied.doc;
	return rc;
}

static const int caps[] = { CAP_NET_ADMIN, -1 };

const struct enc_family enc_family_fence = {
	.name = "fence",
	.caps = caps,
	.seccomp = ENC_SC_CHILDREN | ENC_SC_NETWORK,
	.secmem = 65536,
	.tasks = {
		[ENC_JOB_FENCE] = task_fence,
		[ENC_JOB_FENCE_CHECK] = task_check,
		[ENC_JOB_OVERLAY] = task_overlay,
		[ENC_JOB_OVERLAY_KEY] = enc_overlay_key,
	},
};
