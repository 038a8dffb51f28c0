/* Runs a fuzz target over given files, or over all files of given folders, where there is no libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 20 };

static int one_file (const char *path)
{
	static uint8_t data[INPUT_MAX];
	FILE *file = fopen (path, "rb");
	size_t len;

	if (!file)
		return 1;
	len = fread (data, 1, sizeof data, file);
	(void)fclose (file);
	(void)LLVMFuzzerTestOneInput (data, len);
	return 0;
}

static int one_folder (DIR *dir, const char *path)
{
	const struct dirent *entry;
	char name[4096];
	int bad = 0;

	while ((entry = readdir (dir))) {
		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf (name, sizeof name, "%s/%s", path, entry->d_name);
		bad |= one_file (name);
	}
	(void)closedir (dir);
	return bad;
}

int main (int argc, char **argv)
{
	int bad = 0;

	for (int i = 1; i < argc; i++) {
		DIR *dir = opendir (argv[i]);
		bad |= dir ? one_folder (dir, argv[i]) : one_file (argv[i]);
	}
	return bad;
}
