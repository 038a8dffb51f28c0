#include "tests/unit/base/test.h"
#include "base/fields.h"
#include "base/enc.h"

static struct enc_error err;

struct disk { char *name; uint64_t bytes; };
struct thing {
	char *node; char *text; char *path; uint64_t ttl; uint64_t n; uint32_t port; int level; int64_t delta; bool on; double ratio;
	int64_t when; int colour; uint8_t hash[4]; struct enc_strs peers; struct disk one; struct enc_list disks; struct enc_json *any;
};
static const char *const colours[] = { "red", "green", NULL };
static const struct enc_field disk_fields[] = {
	ENC_FIELD (struct disk, name, "name", ENC_T_NAME, .flags = ENC_REQUIRED),
	ENC_FIELD (struct disk, bytes, "bytes", ENC_T_SIZE, .dflt = "\"1K\""), ENC_FIELD_END };
static const struct enc_field fields[] = {
	ENC_FIELD (struct thing, node, "node", ENC_T_NODE, .flags = ENC_REQUIRED),
	ENC_FIELD (struct thing, text, "text", ENC_T_TEXT, .max = 10, .dflt = "\"hello\""),
	ENC_FIELD (struct thing, path, "path", ENC_T_PATH),
	ENC_FIELD (struct thing, ttl, "ttl_s", ENC_T_DURATION, .max = 86400, .min = 1, .dflt = "\"2h\""),
	ENC_FIELD (struct thing, n, "n", ENC_T_U64), ENC_FIELD (struct thing, port, "port", ENC_T_U32, .max = 65535),
	ENC_FIELD (struct thing, level, "level", ENC_T_INT, .min = -5, .max = 5), ENC_FIELD (struct thing, delta, "delta", ENC_T_I64),
	ENC_FIELD (struct thing, on, "on", ENC_T_BOOL, .dflt = "true"), ENC_FIELD (struct thing, ratio, "ratio", ENC_T_DOUBLE),
	ENC_FIELD (struct thing, when, "when", ENC_T_TIME), ENC_FIELD (struct thing, colour, "colour", ENC_T_ENUM, .names = colours),
	ENC_FIELD (struct thing, hash, "hash", ENC_T_HEX), ENC_FIELD (struct thing, peers, "peers", ENC_T_NODES, .max = 3),
	ENC_FIELD (struct thing, one, "one", ENC_T_OBJ, .sub = disk_fields),
	ENC_FIELD (struct thing, disks, "disks", ENC_T_OBJS, .sub = disk_fields, .sub_size = sizeof (struct disk), .max = 2),
	ENC_FIELD (struct thing, any, "any", ENC_T_JSON, .flags = ENC_OMIT), ENC_FIELD_END };

static void refused (const char *text, const char *pointer)
{
	struct thing t;
	fails (enc_json_decode_text (fields, text, strlen (text), 4096, &t, &err), ENC_EINVAL);
	if (strcmp (err.pointer, pointer) != 0)
		fail_msg ("%s: pointer %s, text %s", text, err.pointer, err.text);
	assert_null (t.node);
	assert_null (t.disks.v);
}

T (what_is_encoded_decodes_to_the_same)
{
	const char *text = "{\"node\":\"n1\",\"text\":\"hi\",\"path\":\"/etc/x\",\"ttl_s\":60,\"n\":18446744073709551615,\"port\":22,\"level\":-5,\"delta\":-9,"
		"\"on\":false,\"ratio\":0.5,\"when\":\"2026-12-01T04:50:00Z\",\"colour\":\"green\",\"hash\":\"0102ff00\",\"peers\":[\"n2\",\"n3\"],"
		"\"one\":{\"name\":\"a\",\"bytes\":5},\"disks\":[{\"name\":\"b\",\"bytes\":1},{\"name\":\"c\",\"bytes\":1024}],\"any\":[1,null]}";
	struct thing t;
	ok (enc_json_decode_text (fields, text, strlen (text), 4096, &t, &err));
	assert_int_equal (t.ttl, 60);
	assert_int_equal (t.colour, 1);
	assert_int_equal (t.hash[2], 0xff);
	assert_int_equal (((struct disk *) t.disks.v)[1].bytes, 1024);
	struct enc_json *j = enc_json_encode (fields, &t);
	char *s = enc_json_write (j, NULL, &err);
	assert_string_equal (s, text);
	free (s);
	enc_json_free (j);
	enc_fields_done (fields, &t);
	assert_null (t.node);
}

T (defaults_fill_what_is_absent)
{
	struct thing t;
	const char *text = "{\"node\":\"n1\",\"disks\":[{\"name\":\"b\"}],\"text\":null}";
	ok (enc_json_decode_text (fields, text, strlen (text), 4096, &t, &err));
	assert_int_equal (t.ttl, 7200);
	assert_true (t.on);
	assert_string_equal (t.text, "hello");
	assert_int_equal (((struct disk *) t.disks.v)[0].bytes, 1024);
	enc_fields_done (fields, &t);
	ok (enc_fields_defaults (fields, &t, &err));
	assert_int_equal (t.ttl, 7200);
	assert_null (t.node);
	enc_fields_done (fields, &t);
}

T (bad_input_is_named_and_leaves_nothing)
{
	refused ("{}", "/node");
	refused ("[]", "");
	refused ("{\"node\":null}", "/node");
	refused ("{\"node\":\"n1\",\"nodes\":1}", "/nodes");
	assert_non_null (strstr (err.text, "unknown key"));
	refused ("{\"node\":\"../n\"}", "/node");
	refused ("{\"node\":7}", "/node");
	refused ("{\"node\":\"n\",\"text\":\"01234567890\"}", "/text");
	refused ("{\"node\":\"n\",\"text\":\"a\\nb\"}", "/text");
	refused ("{\"node\":\"n\",\"path\":\"/a/../b\"}", "/path");
	refused ("{\"node\":\"n\",\"path\":\"a\"}", "/path");
	refused ("{\"node\":\"n\",\"ttl_s\":\"2d\"}", "/ttl_s");
	refused ("{\"node\":\"n\",\"ttl_s\":0}", "/ttl_s");
	refused ("{\"node\":\"n\",\"n\":-1}", "/n");
	refused ("{\"node\":\"n\",\"n\":1.5}", "/n");
	refused ("{\"node\":\"n\",\"n\":\"1\"}", "/n");
	refused ("{\"node\":\"n\",\"port\":65536}", "/port");
	refused ("{\"node\":\"n\",\"level\":6}", "/level");
	refused ("{\"node\":\"n\",\"delta\":18446744073709551615}", "/delta");
	refused ("{\"node\":\"n\",\"on\":1}", "/on");
	refused ("{\"node\":\"n\",\"colour\":\"blue\"}", "/colour");
	refused ("{\"node\":\"n\",\"hash\":\"0102\"}", "/hash");
	refused ("{\"node\":\"n\",\"peers\":[\"a\",\"b/\"]}", "/peers/1");
	refused ("{\"node\":\"n\",\"peers\":[\"a\",\"b\",\"c\",\"d\"]}", "/peers");
	refused ("{\"node\":\"n\",\"peers\":\"a\"}", "/peers");
	refused ("{\"node\":\"n\",\"disks\":[{\"name\":\"a\"},{\"name\":\"b\",\"x/y\":1}]}", "/disks/1/x~1y");
	refused ("{\"node\":\"n\",\n\"disks\":[{\"name\":\"a\"},\n{\"bytes\":1}]}", "/disks/1/name");
	assert_non_null (strstr (err.text, "line 3"));
}

T (a_schema_comes_from_the_table)
{
	struct enc_json *j = enc_fields_schema (fields);
	assert_string_equal (enc_json_str (enc_json_find (j, "/properties/disks/items/required/0")), "name");
	assert_int_equal (enc_json_i64 (enc_json_find (j, "/properties/port/maximum"), 0), 65535);
	enc_json_free (j);
}

int main (void)
{
	const struct CMUnitTest tests[] = { RUN (what_is_encoded_decodes_to_the_same), RUN (defaults_fill_what_is_absent),
		RUN (bad_input_is_named_and_leaves_nothing), RUN (a_schema_comes_from_the_table) };
	return cmocka_run_group_tests (tests, NULL, NULL);
}
