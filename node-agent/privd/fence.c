/* Family fence: the rules, the routes, the connections, and the overlay beside them. */
#include <errno.h>
#include <linux/capability.h>
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
	char *rules;    /* the transaction */
	char *listing;  /* what the kernel said right after it */
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

static int list_table (char **ret, struct enc_error *err)
{
	return run_nft ("list table inet " ENC_FENCE_TABLE, ret, err);
}

static int save_path (const struct enc_privd_conf *conf, char **ret, struct enc_error *err)
{
	*ret = enc_strf ("%s/routes", conf->run_dir);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "fence: no memory");
}

/* A node whose login port is open needs its way back to any client; the rules alone then hold. */
static int apply_routes (const struct enc_privd_conf *conf, const struct enc_fence *f, struct enc_error *err)
{
	bool login = f->mode == ENC_FENCE_ENCLAVE && f->door && (f->doc->roles & ENC_ROLE_LOGIN);
	enc_auto_free char *save = NULL;
	int rc = save_path (conf, &save, err);

	if (rc < 0)
		return rc;
	return f->mode == ENC_FENCE_NONE || login ? enc_routes_open (save, err) : enc_routes_close (f, save, err);
}

static void remember (char *rules, char *listing)
{
	free (applied.rules);
	free (applied.listing);
	applied.rules = rules;
	applied.listing = listing;
}

static int apply_rules (const struct enc_fence *f, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (RULES_MAX);
	enc_auto_free char *rules = NULL, *listing = NULL;
	int rc = enc_fence_text (f, &text, err);

	if (rc < 0)
		return rc;
	if (!(rules = enc_buf_take_str (&text)))
		return enc_fail (err, ENC_ENOMEM, "fence: no memory");
	if ((rc = run_nft (rules, NULL, err)) < 0)
		return rc;
	if (f->mode == ENC_FENCE_NONE) {
		remember (NULL, NULL);
		return 0;
	}
	if ((rc = list_table (&listing, err)) < 0)
		return rc;
	remember (ENC_TAKE (rules), ENC_TAKE (listing));
	return 0;
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
	if ((rc = enc_routes_foreign (&foreign, err)) < 0)
		return rc;
	enc_json_set_str (evidence, "fence", enc_fence_mode_name (f.mode));
	enc_json_set_u64 (evidence, "connections_cut", cut);
	enc_json_set_u64 (evidence, "routes_left", foreign);
	return 0;
}

static int task_check (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	enc_auto_free char *now = NULL, *listing = NULL;
	bool intact;
	int rc;

	(void)conf, (void)task;
	if (!applied.rules)
		return 0;
	intact = list_table (&now, NULL) == 0 && strcmp (now, applied.listing) == 0;
	enc_json_set_bool (evidence, "intact", intact);
	if (intact)
		return 0;
	if ((rc = run_nft (applied.rules, NULL, err)) < 0 || (rc = list_table (&listing, err)) < 0)
		return enc_wrap (err, rc, "put the fence back");
	free (applied.listing);
	applied.listing = ENC_TAKE (listing);
	return 0;
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
		[ENC_JOB_OVERLAY] = enc_overlay_apply,
		[ENC_JOB_OVERLAY_KEY] = enc_overlay_key,
	},
};
