#include "plugins/job_submit/text.h"

#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "base/enc.h"

enum { DIGITS_MAX = 5 };

static bool climbs (const char *path)
{
	for (const char *at = path; (at = strstr (at, "..")); at += 2)
		if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
			return true;
	return false;
}

bool enc_path_inside (const char *path)
{
	if (climbs (path) || strpbrk (path, "\n\r"))
		return false;
	if (path[0] != '/')
		return true;
	return strcmp (path, "/dev/null") == 0 || strcmp (path, "/enclave") == 0 || enc_starts (path, "/enclave/");
}

static size_t digits (const char *s)
{
	size_t n = 0;

	while (isdigit ((unsigned char)s[n]))
		n++;
	return n;
}

/* "2024-01-31", "31.1.24", "1/31/2024" and the like: three numbers with the same separator between them. */
static bool is_date (const char *s)
{
	size_t a = digits (s), b, c;
	char sep = s[a];

	if (a == 0 || a > 4 || a == 3 || !sep || !strchr ("-./_", sep))
		return false;
	b = digits (s + a + 1);
	if (b == 0 || b > 2 || s[a + 1 + b] != sep)
		return false;
	c = digits (s + a + b + 2);
	return c > 0 && c <= 4 && c != 3 && (a == 4 || c == 4 || (a == 2 && b == 2 && c == 2));
}

static bool is_labelled (const char *s)
{
	static const char *const labels[] = { "mrn", "pid", "patient", "dob", "ssn", "accession" };

	for (size_t i = 0; i < ENC_ARRAY_LEN (labels); i++) {
		size_t n = strlen (labels[i]);
		if (strncasecmp (s, labels[i], n) != 0)
			continue;
		n += strspn (s + n, " :#=_.-");
		if (isdigit ((unsigned char)s[n]))
			return true;
	}
	return false;
}

bool enc_text_identifies (const char *text)
{
	bool word = true; /* at the begin of a word */

	for (const char *s = text; *s; s++) {
		bool digit = isdigit ((unsigned char)*s), first = digit && (s == text || !isdigit ((unsigned char)s[-1]));
		if (first && (digits (s) > DIGITS_MAX || is_date (s)))
			return true;
		if (word && is_labelled (s))
			return true;
		word = !isalnum ((unsigned char)*s);
	}
	return false;
}
