/* The operations for cosignd, and what the witnesses said for whoever asks. Formats: docs/protocol.md, section 2. */
#include "controller/auditd/auditd.h"

#include "base/log.h"

#include <string.h>

#include "base/enc.h"

#define SIZE_MAX_JSON ((uint64_t)1 << 53)

static void finish (struct enc_ipc_req *req, int rc, struct enc_json *out, const struct enc_error *err)
{
	if (rc < 0) {
		enc_json_free (out);
		enc_ipc_reply_error (req, err);
	} else {
		enc_ipc_reply (req, out);
	}
}

/* ---- consistency ---- */

struct grown {
	char *op;
	uint64_t from, to;
};
static const struct enc_field grown_fields[] = { ENC_FIELD (struct grown, op, "op", ENC_T_STR),
	ENC_FIELD (struct grown, from, "from", ENC_T_U64, .flags = ENC_REQUIRED, .min = 1, .max = SIZE_MAX_JSON),
	ENC_FIELD (struct grown, to, "to", ENC_T_U64, .max = SIZE_MAX_JSON), ENC_FIELD_END };

static int put_grown (struct auditd *a, const struct grown *in, struct enc_json *out, struct enc_error *err)
{
	const struct enc_trail_signed *last = enc_trail_signed (a->log);
	uint64_t to = in->to ? in->to : last->head.size;
	struct enc_json *proof;
	struct enc_path path;
	char b64[ENC_HASH_B64_SIZE];
	int rc = enc_trail_prove_grown (a->log, in->from, to, &path, err);

	if (rc < 0)
		return rc;
	enc_json_set_u64 (out, "from", in->from);
	enc_json_set_u64 (out, "to", to);
	proof = enc_json_set_array (out, "proof");
	for (size_t i = 0; i < path.n; i++) {
		enc_hash_b64 (&path.hash[i], b64);
		enc_json_add_str (proof, b64);
	}
	if (to == last->head.size)
		enc_json_set_str (out, "checkpoint", last->text);
	else
		enc_json_set_null (out, "checkpoint");
	return 0;
}

void auditd_op_grown (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds ENC_UNUSED, void *arg)
{
	struct auditd *a = arg;
	struct grown in = { 0 };
	struct enc_error err = { 0 };
	struct enc_json *out;
	int rc;

	if (!auditd_allowed (a, req, AUDITD_READ | AUDITD_COSIGN))
		return;
	out = enc_json_object ();
	rc = enc_json_decode (grown_fields, body, &in, &err);
	if (rc == 0)
		rc = put_grown (a, &in, out, &err);
	finish (req, rc, out, &err);
	enc_fields_done (grown_fields, &in);
}

/* ---- what cosignd brings ---- */

struct cosign {
	char *op, *witness, *note, *text;
	int state;
	uint64_t size;
};
static const struct enc_field cosign_fields[] = { ENC_FIELD (struct cosign, op, "op", ENC_T_STR),
	ENC_FIELD (struct cosign, witness, "witness", ENC_T_STR, .flags = ENC_REQUIRED, .max = ENC_POLICY_NAME),
	ENC_FIELD (struct cosign, note, "note", ENC_T_STR, .max = ENC_NOTE_MAX),
	ENC_FIELD (struct cosign, state, "state", ENC_T_ENUM, .names = enc_cosign_state_names),
	ENC_FIELD (struct cosign, text, "text", ENC_T_TEXT, .max = 150),
	ENC_FIELD (struct cosign, size, "size", ENC_T_U64, .max = SIZE_MAX_JSON), ENC_FIELD_END };

/* A witness that says the log was forked or cut back is an event of the log itself. One that is away is not: its age says it. */
static void note_change (struct auditd *a, const struct cosign *in, enum enc_cosign_state state)
{
	struct enc_json *data = enc_json_object ();

	enc_json_set_str (data, "name", in->witness);
	enc_json_set_str (data, "state", enc_cosign_state_names[state]);
	enc_json_set_u64 (data, "size", in->size);
	enc_log_error ("witness %s: %s: %s", in->witness, enc_cosign_state_names[state], in->text ? in->text : "");
	auditd_own (a, "witness", "failed", data);
}

static int take_word (struct auditd *a, const struct cosign *in, struct enc_error *err)
{
	int rc;

	if (in->note)
		return enc_cosigned_add (a->cosigned, in->witness, in->note, strlen (in->note), err);
	rc = enc_cosigned_tell (a->cosigned, in->witness, (enum enc_cosign_state)in->state, in->text, in->size, err);
	if (rc > 0 && (in->state == ENC_COSIGN_CONFLICT || in->state == ENC_COSIGN_REFUSED))
		note_change (a, in, (enum enc_cosign_state)in->state);
	return rc < 0 ? rc : 0;
}

void auditd_op_cosign (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds ENC_UNUSED, void *arg)
{
	struct auditd *a = arg;
	struct cosign in = { 0 };
	struct enc_error err = { 0 };
	struct enc_json *out;
	int rc;

	if (!auditd_allowed (a, req, AUDITD_COSIGN))
		return;
	out = enc_json_object ();
	rc = enc_json_decode (cosign_fields, body, &in, &err);
	if (rc == 0)
		rc = take_word (a, &in, &err);
	if (rc == 0)
		enc_cosigned_put (a->cosigned, out);
	finish (req, rc, out, &err);
	enc_fields_done (cosign_fields, &in);
}

/* ---- what is shown ---- */

void auditd_op_witness (struct enc_ipc_req *req, const struct enc_json *body ENC_UNUSED, struct enc_fds *fds ENC_UNUSED, void *arg)
{
	struct auditd *a = arg;
	const struct enc_cosigned_head *last;
	struct enc_json *out;

	if (!auditd_allowed (a, req, AUDITD_READ))
		return;
	out = enc_json_object ();
	enc_json_set_str (out, "origin", enc_trail_origin (a->log));
	enc_json_set_u64 (out, "size", enc_trail_signed (a->log)->head.size);
	enc_cosigned_list (a->cosigned, out);
	last = enc_cosigned_last (a->cosigned);
	enc_json_set_str (out, "checkpoint", last ? last->text : NULL);
	enc_ipc_reply (req, out);
}
