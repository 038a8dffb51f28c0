/* Slurm starts a job without a word when its plugstack.conf or a plugin is missing. So nobody here believes that the plugin runs
 * because it was configured to: files are compared with what privd measured at the start of the stay. */
#include "plugins/client/client.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "crypto/hash.h"

#include "base/enc.h"

enum { PLUGIN_MAX = 16 * 1024 * 1024, PLUGSTACK_MAX = 4096 };

static int same_hash (const struct enc_buf *file, const uint8_t want[32], const char *what, struct enc_error *err)
{
	static const uint8_t none[32];
	struct enc_hash hash;

	enc_sha256 (file->data, file->len, &hash);
	if (memcmp (want, none, sizeof none) == 0)
		return enc_fail (err, ENC_EINTEGRITY, "%s was not measured on this node", what);
	if (memcmp (hash.b, want, sizeof hash.b) != 0)
		return enc_fail (err, ENC_EINTEGRITY, "%s is not the one that was measured on this node", what);
	return 0;
}

/* The next line that counts, its blanks taken away; NULL at the end. Writes into `text`. */
static char *next_line (char **text)
{
	char *line;

	while ((line = strsep (text, "\n"))) {
		line += strspn (line, " \t\r");
		if (*line == '\0' || *line == '#')
			continue;
		line[strcspn (line, "#\r")] = '\0';
		return line;
	}
	return NULL;
}

int enc_client_stack_text (const char *text, const char *plugin, struct enc_error *err)
{
	enc_auto_free char *copy = enc_strdup (text);
	char *rest = copy, *line, *word, *path;

	if (!copy)
		return enc_fail (err, ENC_ENOMEM, "plugstack: no memory");
	if (!(line = next_line (&rest)))
		return enc_fail (err, ENC_EINTEGRITY, "the plugstack lists no plugin");
	word = strsep (&line, " \t");
	if (strcmp (word, "required") != 0)
		return enc_fail (err, ENC_EINTEGRITY, "the plugstack does not require its plugin");
	do
		path = strsep (&line, " \t");
	while (path && *path == '\0');
	if (!path || strcmp (path, plugin) != 0 || (line && line[strspn (line, " \t")] != '\0'))
		return enc_fail (err, ENC_EINTEGRITY, "the plugstack does not list the enclave's plugin");
	if (next_line (&rest))
		return enc_fail (err, ENC_EINTEGRITY, "the plugstack lists more than the enclave's plugin");
	return 0;
}

static int read_plugstack (const struct enc_client_conf *conf, struct enc_buf *out, struct enc_error *err)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (conf->plugstacks); i++)
		if (conf->plugstacks[i] && access (conf->plugstacks[i], F_OK) == 0)
			return enc_file_read_trusted (conf->plugstacks[i], PLUGSTACK_MAX, out, err);
	return enc_fail (err, ENC_EINTEGRITY, "there is no plugstack on this node");
}

int enc_client_stack (const struct enc_client_conf *conf, const struct enc_facts *facts, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf plugin = ENC_BUF_INIT (PLUGIN_MAX), stack = ENC_BUF_INIT (PLUGSTACK_MAX + 1);
	enc_auto_free char *text = NULL;
	int rc;

	if ((rc = enc_file_read_trusted (conf->plugin, PLUGIN_MAX, &plugin, err)) < 0)
		return enc_wrap (err, rc, "the enclave's plugin");
	if ((rc = same_hash (&plugin, facts->plugin_hash, "the enclave's plugin", err)) < 0)
		return rc;
	if ((rc = read_plugstack (conf, &stack, err)) < 0 || (rc = same_hash (&stack, facts->plugstack_hash, "the plugstack", err)) < 0)
		return rc;
	if ((stack.len > 0 && memchr (stack.data, 0, stack.len)) || !(text = enc_buf_take_str (&stack)))
		return enc_fail (err, ENC_EINTEGRITY, "the plugstack cannot be read");
	return enc_client_stack_text (text, conf->plugin, err);
}
