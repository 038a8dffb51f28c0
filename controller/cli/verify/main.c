/* enclave-verify: the offline sister of `enclavectl audit`. It trusts one thing,
 * the log's public key, and needs no network, service or package of ours.
 *
 *   enclave-verify DIR --vkey FILE [--policy FILE] [--seen CHECKPOINT]... [--tail-age S] [--witness-age S] [--json]
 *   enclave-verify proof FILE --record FILE --vkey FILE [--json]
 *
 * Exit: 0 complete, 7 altered, incomplete or unsigned, 8 unreadable, 2 usage. */
#include "base/enctime.h"
#include "crypto/receipt.h"
#include "crypto/tlog/policy.h"
#include "crypto/tlog/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/enc.h"

#define SEEN_MAX 16
#define FILE_MAX 131072

struct options {
	const char *proof;
	const char *folder;
	const char *record;
	const char *vkey;
	struct enc_verify_seen seen[SEEN_MAX];
	size_t n_seen;
	const char *policy_file;
	struct enc_tlog_policy *policy;
	uint64_t tail_age_s;
	uint64_t witness_age_s;
	int json;
	char why[300]; /* an input that could not be had */
};

static const char usage_text[] =
	"usage: enclave-verify DIR --vkey FILE [--policy FILE] [--seen CHECKPOINT]... [--tail-age S] [--witness-age S] [--json]\n"
	"       enclave-verify proof FILE --record FILE --vkey FILE [--policy FILE] [--json]\n"
	"\n"
	"Checks a copy of an audit log, or one receipt, with nothing but the log's public key.\n"
	"  --vkey FILE       the log's verifier key, got by a way of your own\n"
	"  --policy FILE     witnesses and the quorum that must have cosigned (C2SP tlog-policy); may stand for --vkey\n"
	"                    when it names one log\n"
	"  --witness-age S   how long ago a quorum may have vouched last (3600)\n"
	"  --seen FILE       a checkpoint that you kept: the log must still contain it\n"
	"  --tail-age S      how old records without a checkpoint may be (10)\n"
	"  --record FILE     the record's bytes that a proof is about\n"
	"exit: 0 complete, 7 altered, incomplete or unsigned, 8 cannot tell, 2 wrong usage\n";

static int usage (const char *why)
{
	(void)fprintf (stderr, "enclave-verify: %s\n%s", why, usage_text);
	return 2;
}

/* A small file as a whole; the caller frees. NULL with opt->why when it cannot
 * be had. */
static char *slurp (struct options *opt, const char *path, size_t *ret_len)
{
	enc_auto_free char *data = malloc (FILE_MAX + 1);
	enc_auto_close int fd = open (path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t len = 0;
	ssize_t n = -1;

	while (data && fd >= 0 && (n = read (fd, data + len, FILE_MAX + 1 - len)) > 0)
		len += (size_t)n;
	if (!data || fd < 0 || n < 0 || len > FILE_MAX) {
		(void)snprintf (opt->why, sizeof (opt->why), "%.200s: %s", path,
			len > FILE_MAX ? "too long" : strerror (errno));
		return NULL;
	}
	*ret_len = len;
	return ENC_TAKE (data);
}

static int load_vkey (struct options *opt, const char *path, struct enc_vkey *ret)
{
	struct enc_error err = { 0 };
	size_t len = 0;
	enc_auto_free char *text = slurp (opt, path, &len);

	if (!text)
		return -1;
	if (enc_vkey_parse (text, len, ret, &err) < 0) {
		(void)snprintf (opt->why, sizeof (opt->why), "%.120s: %.160s", path, err.text);
		return -1;
	}
	return 0;
}

/* The policy, and the log's key from it where none was given apart. */
static int load_policy (struct options *opt, struct enc_vkey *vkey)
{
	struct enc_error err = { 0 };
	size_t len = 0;
	enc_auto_free char *text = slurp (opt, opt->policy_file, &len);

	if (!text)
		return -1;
	opt->policy = enc_tlog_policy_parse (text, len, &err);
	if (opt->policy && !opt->vkey && (!enc_tlog_policy_log (opt->policy, 0) || enc_tlog_policy_log (opt->policy, 1)))
		(void)enc_fail (&err, ENC_EINVAL, "it does not name exactly one log, and there is no --vkey");
	if (err.code) {
		(void)snprintf (opt->why, sizeof (opt->why), "%.120s: %.160s", opt->policy_file, err.text);
		return -1;
	}
	if (!opt->vkey)
		*vkey = *enc_tlog_policy_log (opt->policy, 0);
	return 0;
}

/* The verdict when an input cannot be had at all. */
static int unreadable (const struct options *opt)
{
	char why[sizeof (opt->why)];

	if (!opt->json) {
		(void)fprintf (stderr, "enclave-verify: %s\n", opt->why);
		return enc_verify_result_exit (ENC_VERIFY_UNREADABLE);
	}
	for (size_t i = 0; i < sizeof (why); i++)
		why[i] = (unsigned char)opt->why[i] > 0x7e || strchr ("\"\\\n\t\r", opt->why[i]) ? '?' : opt->why[i];
	why[strlen (opt->why)] = '\0';
	(void)printf ("{\"result\":\"unreadable\",\"size\":0,\"root\":null,\"checkpoints\":0,"
		      "\"witnesses\":{\"required\":0,\"cosigned\":0,\"age_s\":null},\"newest_s\":null,"
		      "\"first_bad\":{\"index\":null,\"file\":null,\"offset\":null,\"why\":\"%s\"}}\n",
		why);
	return enc_verify_result_exit (ENC_VERIFY_UNREADABLE);
}

/* ---- one receipt ---- */

/* ENC_EUNAVAIL: the witnesses that the policy asks for are not below the proof's checkpoint. */
static int check_quorum (const struct options *opt, const char *proof, size_t len, struct enc_error *err)
{
	struct enc_tlog_quorum quorum;
	struct enc_proof parsed;
	struct enc_note note;
	int rc = enc_proof_parse (proof, len, &parsed, err);

	if (rc < 0 || (rc = enc_note_parse (parsed.checkpoint, parsed.checkpoint_len, &note, err)) < 0 ||
		(rc = enc_tlog_policy_judge (opt->policy, &note, &quorum, err)) < 0)
		return rc;
	return quorum.met ? 0 : enc_fail (err, ENC_EUNAVAIL, "%u witnesses cosigned, and that is no quorum", quorum.cosigned);
}

static int say_unsigned (const struct options *opt, const struct enc_vkey *vkey, const struct enc_error *err)
{
	if (opt->json)
		(void)printf ("{\"result\":\"unsigned\",\"origin\":\"%s\",\"index\":null,\"size\":null,\"root\":null}\n", vkey->name);
	else
		(void)printf ("unsigned: %s\n", err->text);
	return enc_verify_result_exit (ENC_VERIFY_UNSIGNED);
}

static int verify_proof (struct options *opt, const struct enc_vkey *vkey)
{
	size_t proof_len = 0, record_len = 0;
	enc_auto_free char *proof = slurp (opt, opt->proof, &proof_len);
	enc_auto_free char *record = slurp (opt, opt->record, &record_len);
	struct enc_error err = { 0 };
	struct enc_receipt receipt = { 0 };
	char root[ENC_HASH_B64_SIZE];
	int rc;

	if (!proof || !record)
		return unreadable (opt);
	rc = enc_receipt_check (proof, proof_len, record, record_len, vkey, &receipt, &err);
	/* An editor's final newline is no part of the record. */
	if (rc < 0 && record_len > 1 && record[record_len - 1] == '\n')
		rc = enc_receipt_check (proof, proof_len, record, record_len - 1, vkey, &receipt, &err);
	if (rc == 0 && opt->policy && (rc = check_quorum (opt, proof, proof_len, &err)) == -ENC_EUNAVAIL)
		return say_unsigned (opt, vkey, &err);
	enc_hash_b64 (&receipt.head.root, root);
	if (opt->json && rc == 0)
		(void)printf (
			"{\"result\":\"complete\",\"origin\":\"%s\",\"index\":%llu,\"size\":%llu,\"root\":\"%s\"}\n",
			vkey->name, (unsigned long long)receipt.index, (unsigned long long)receipt.head.size, root);
	else if (opt->json)
		(void)printf ("{\"result\":\"altered\",\"origin\":\"%s\",\"index\":null,\"size\":null,\"root\":null}\n",
			vkey->name);
	else if (rc == 0)
		(void)printf ("complete: the record is number %llu of %s, signed in a tree of %llu\n",
			(unsigned long long)receipt.index, vkey->name, (unsigned long long)receipt.head.size);
	else
		(void)printf ("altered: %s\n", err.text);
	return enc_verify_result_exit (rc == 0 ? ENC_VERIFY_COMPLETE : ENC_VERIFY_ALTERED);
}

/* ---- a whole log ---- */

static void print_report (const struct enc_verify_conf *conf, const struct enc_verify_report *report)
{
	char root[ENC_HASH_B64_SIZE], when[ENC_TIME_SIZE];

	enc_hash_b64 (&report->head.root, root);
	(void)printf ("%s: %s\n", enc_verify_result_name (report->result), conf->vkey->name);
	(void)printf ("  signed   %llu records, root %s, %llu checkpoints\n", (unsigned long long)report->head.size,
		root, (unsigned long long)report->checkpoints);
	if (report->newest != 0)
		(void)printf ("  newest   %s\n", enc_time_format (report->newest, false, when));
	if (report->unsigned_records > 0)
		(void)printf ("  unsigned %llu records, the oldest %llu s old\n",
			(unsigned long long)report->unsigned_records, (unsigned long long)report->unsigned_age_s);
	if (conf->policy && report->quorum.time != 0)
		(void)printf ("  cosigned %llu records by %u witnesses (%u asked for), %llu s ago\n", (unsigned long long)report->cosigned.size,
			report->quorum.cosigned, enc_tlog_policy_required (conf->policy), (unsigned long long)report->witness_age_s);
	if (report->torn)
		(void)printf ("  torn     the last write was not finished\n");
	if (report->has_bad)
		(void)printf ("  first    record %llu, %s at byte %llu: %s\n", (unsigned long long)report->bad.index,
			report->bad.file, (unsigned long long)report->bad.offset, report->bad.why);
}

static int verify_log (const struct options *opt, const struct enc_vkey *vkey)
{
	struct enc_verify_conf conf = { .folder = opt->folder,
		.vkey = vkey,
		.policy = opt->policy,
		.witness_max_s = opt->witness_age_s,
		.seen = opt->seen,
		.n_seen = opt->n_seen,
		.tail_max_s = opt->tail_age_s,
		.now = enc_now () };
	struct enc_verify_report report;
	char json[ENC_VERIFY_JSON_MAX];

	enc_logverify (&conf, &report);
	if (opt->json) {
		enc_verify_json (&conf, &report, json);
		(void)printf ("%s\n", json);
	} else {
		print_report (&conf, &report);
	}
	return enc_verify_result_exit (report.result);
}

static int add_seen (struct options *opt, const char *path)
{
	struct enc_verify_seen *seen = &opt->seen[opt->n_seen];

	if (opt->n_seen == SEEN_MAX)
		return -1;
	seen->text = slurp (opt, path, &seen->len);
	opt->n_seen++;
	return seen->text ? 0 : -1;
}

static int parse_number (const char *text, uint64_t *ret)
{
	char *end = NULL;

	errno = 0;
	*ret = strtoull (text, &end, 10);
	return errno == 0 && *text >= '0' && *text <= '9' && *end == '\0' ? 0 : -1;
}

/* Returns -1, or an exit status. */
static int parse (int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = { { "vkey", required_argument, NULL, 'k' },
		{ "seen", required_argument, NULL, 's' }, { "tail-age", required_argument, NULL, 't' },
		{ "record", required_argument, NULL, 'r' }, { "policy", required_argument, NULL, 'p' },
		{ "witness-age", required_argument, NULL, 'w' }, { "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 } };
	int c;

	while ((c = getopt_long (argc, argv, "", longs, NULL)) != -1) {
		if (c == 'k')
			opt->vkey = optarg;
		else if (c == 'r')
			opt->record = optarg;
		else if (c == 'p')
			opt->policy_file = optarg;
		else if (c == 'j')
			opt->json = 1;
		else if (c == 'h')
			return printf ("%s", usage_text) < 0;
		else if (c == 's' && add_seen (opt, optarg) < 0)
			return opt->why[0] ? -1 : usage ("too many checkpoints");
		else if (c == '?' || (c == 't' && parse_number (optarg, &opt->tail_age_s) < 0) ||
			 (c == 'w' && parse_number (optarg, &opt->witness_age_s) < 0))
			return usage ("wrong option");
	}
	if (optind < argc && strcmp (argv[optind], "proof") == 0) {
		opt->proof = argv[optind + 1];
		return argc - optind == 2 && opt->record && (opt->vkey || opt->policy_file) ? -1
								      : usage ("proof needs FILE, --record and --vkey");
	}
	opt->folder = argv[optind];
	return argc - optind == 1 && (opt->vkey || opt->policy_file) && !opt->record ? -1 : usage ("DIR and --vkey are needed");
}

int main (int argc, char **argv)
{
	static struct options opt = { .tail_age_s = 10, .witness_age_s = 3600 };
	struct enc_vkey vkey;
	int rc = parse (argc, argv, &opt);

	if (rc >= 0)
		return rc;
	if (opt.why[0] || (opt.vkey && load_vkey (&opt, opt.vkey, &vkey) < 0) || (opt.policy_file && load_policy (&opt, &vkey) < 0))
		return unreadable (&opt);
	rc = opt.proof ? verify_proof (&opt, &vkey) : verify_log (&opt, &vkey);
	if (fflush (stdout) != 0)
		return enc_verify_result_exit (ENC_VERIFY_UNREADABLE);
	return rc;
}
