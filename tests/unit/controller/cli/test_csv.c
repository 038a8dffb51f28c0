/* What strangers typed is text in a spreadsheet, never a formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "controller/cli/csv.h"

static void cell_is (const char *text, const char *want)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (4096);

	enc_csv_cell (&out, text);
	assert_int_equal (out.len, strlen (want));
	assert_memory_equal (out.data, want, out.len);
}

static void a_cell_is_never_a_formula (void **state)
{
	(void) state;
	cell_is (NULL, "\"\"");
	cell_is ("res1", "\"res1\"");
	cell_is ("=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\"");
	cell_is ("+1", "\"'+1\"");
	cell_is ("-1", "\"'-1\"");
	cell_is ("@SUM(A1)", "\"'@SUM(A1)\"");
	cell_is ("a\",\"=1", "\"a\"\",\"\"=1\"");
}

static void a_cell_stays_in_its_line (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (4096);

	(void) state;
	enc_csv_cell (&out, "a\nb\r\tc");
	assert_null (memchr (out.data, '\n', out.len));
	assert_null (memchr (out.data, '\r', out.len));
}

static void a_record_has_as_many_cells_as_the_header (void **state)
{
	static const char text[] = "{\"index\":7,\"user\":\"a,b\",\"mfa\":true,\"job\":null}";
	enc_auto_done (enc_buf_done) struct enc_buf head = ENC_BUF_INIT (4096), row = ENC_BUF_INIT (4096);
	enc_auto (enc_json) struct enc_json *record = enc_json_parse (text, strlen (text), 4096, NULL);
	size_t in_head = 0, in_row = 0;

	(void) state;
	enc_csv_header (&head);
	enc_csv_record (&row, record);
	for (size_t i = 0; i + 1 < head.len; i++)
		in_head += memcmp (head.data + i, "\",", 2) == 0;
	for (size_t i = 0; i + 1 < row.len; i++)
		in_row += memcmp (row.data + i, "\",", 2) == 0;
	assert_int_equal (in_head, in_row);
	assert_memory_equal (row.data, "\"7\",", 4);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_cell_is_never_a_formula),
		cmocka_unit_test (a_cell_stays_in_its_line),
		cmocka_unit_test (a_record_has_as_many_cells_as_the_header),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
