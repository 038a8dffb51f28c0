/* What a job may say of itself. */
#include "tests/unit/base/test.h"

#include "base/cleanup.h"
#include "plugins/job_submit/rules.h"
#include "plugins/job_submit/text.h"

static struct enc_error err;

T (places_outside_the_enclave_are_told_from_those_inside)
{
	static const char *const in[] = { "/enclave/home/res1/x-%j.out", "/enclave", "out-%j.txt", "a/b", "/dev/null", "/enclave/home/res1/..x", "x..y" };
	static const char *const out[] = { "/tmp/x", "/home/res1/x", "/enclaves/x", "/enclave/../etc/x", "../x", "/enclave/home/..", "a/../../x", "/", "/dev/shm/x",
		"/enclave/x\n/tmp/y" };

	for (size_t i = 0; i < ENC_ARRAY_LEN (in); i++)
		if (!enc_path_inside (in[i]))
			fail_msg ("%s is inside", in[i]);
	for (size_t i = 0; i < ENC_ARRAY_LEN (out); i++)
		if (enc_path_inside (out[i]))
			fail_msg ("%s is outside", out[i]);
}

T (names_that_look_like_record_numbers_or_dates_are_found)
{
	static const char *const bad[] = { "1234567", "train-004417", "mrn 12", "MRN:7", "patient_3", "scan-2024-01-31", "31.1.2024", "1/31/2024", "20240131", "x_01.02.24", "PID=9" };
	static const char *const good[] = { "", "cxr-train-3", "smoke", "v1.2.3", "lr-0.0001", "epoch10-of-50", "vit-b-16-384", "2024-sweep", "rapid7", "patients", "run12345" };

	for (size_t i = 0; i < ENC_ARRAY_LEN (bad); i++)
		if (!enc_text_identifies (bad[i]))
			fail_msg ("%s is not found", bad[i]);
	for (size_t i = 0; i < ENC_ARRAY_LEN (good); i++)
		if (enc_text_identifies (good[i]))
			fail_msg ("%s is refused", good[i]);
}

T (a_plain_job_passes)
{
	struct enc_job_text job = { .partition = "protected", .std_out = "/enclave/home/res1/%x-%j.out", .work_dir = "/enclave/home/res1", .name = "cxr-mllm" }, nothing = { 0 };

	ok (enc_job_rules (&job, &err));
	ok (enc_job_rules (&nothing, &err)); /* a change of, say, the time limit */
}

T (each_thing_that_leads_out_is_refused_with_advice)
{
	const struct enc_job_text rows[] = { { .partition = "general" }, { .partition = "protected,general" }, { .partition = "" }, { .std_out = "/tmp/x" },
		{ .std_err = "/home/res1/x" }, { .std_in = "/etc/passwd" }, { .work_dir = "/tmp" }, { .name = "mrn-12" }, { .comment = "born 1961-04-02" },
		{ .wckey = "123456" }, { .account = "patient 4" }, { .admin_comment = "0000001" }, { .mail_user = "res1@example.org" }, { .mail = true }, { .reboot = true }, { .x11 = true },
		{ .burst_buffer = "x" }, { .container = "/x" }, { .clusters = "site" }, { .x11_cookie = "c" } };

	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		fails (enc_job_rules (&rows[i], &err), ENC_EDENIED);
		assert_true (err.next[0] != '\0');
		if (rows[i].comment)
			assert_null (strstr (err.text, "1961")); /* what was refused is not repeated */
	}
}

T (a_change_gives_a_job_to_nobody_else_and_keeps_its_proof)
{
	ok (enc_job_same_owner (10008, (uid_t)-1, false, &err));
	ok (enc_job_same_owner (10008, 10008, false, &err));
	fails (enc_job_same_owner (10008, 10009, false, &err), ENC_EDENIED);
	fails (enc_job_same_owner (10008, 0, false, &err), ENC_EDENIED);
	fails (enc_job_same_owner (10008, (uid_t)-1, true, &err), ENC_EDENIED);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		RUN (places_outside_the_enclave_are_told_from_those_inside),
		RUN (names_that_look_like_record_numbers_or_dates_are_found),
		RUN (a_plain_job_passes),
		RUN (each_thing_that_leads_out_is_refused_with_advice),
		RUN (a_change_gives_a_job_to_nobody_else_and_keeps_its_proof),
	};

	return cmocka_run_group_tests_name ("rules", tests, NULL, NULL);
}
