/* enclave-test-node: makes a lab host look to the plugins as one of an enclave, without privd and keyd.
 *   enclave-test-node files VERSION USER:UID...      keyd's key (of a fixed seed) and the member document
 *   enclave-test-node facts [NAME=VALUE]...          answers on privd's socket; plugin and plugstack are measured at the start
 * NAME: pool door agent generation ends (seconds from now) volumes version */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/enctime.h"
#include "base/file.h"
#include "base/str.h"
#include "crypto/note.h"
#include "tests/unit/plugins/stage.h"

static void take (struct enc_facts *f, const char *word)
{
	static const struct { const char *name; size_t offset; size_t size; } rows[] = { { "pool=", offsetof (struct enc_facts, pool), 1 },
		{ "door=", offsetof (struct enc_facts, door), 1 }, { "agent=", offsetof (struct enc_facts, agent_alive), 1 },
		{ "generation=", offsetof (struct enc_facts, generation), 8 }, { "volumes=", offsetof (struct enc_facts, volumes_open), 1 },
		{ "version=", offsetof (struct enc_facts, member_version), 8 }, { "ends=", offsetof (struct enc_facts, not_after), 8 } };

	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++)
		if (enc_starts (word, rows[i].name)) {
			uint64_t value = strtoull (word + strlen (rows[i].name), NULL, 10);
			if (rows[i].offset == offsetof (struct enc_facts, not_after))
				value += (uint64_t)enc_now_s ();
			memcpy ((char *)f + rows[i].offset, &value, rows[i].size); /* little endian, as the lab is */
			return;
		}
	(void)fprintf (stderr, "unknown fact %s\n", word);
	exit (2);
}

static int files (struct stage *s, int argc, char **argv)
{
	static struct enc_member many[8];

	s->members.version = strtoull (argv[2], NULL, 10);
	s->members.members = many;
	s->members.members_n = 0;
	for (int i = 3; i < argc && i < 11; i++) {
		struct enc_member *m = &many[s->members.members_n++];
		size_t n = strcspn (argv[i], ":");
		(void)snprintf (m->user, sizeof m->user, "%.*s", (int)n, argv[i]);
		(void)snprintf (m->role, sizeof m->role, "researcher");
		m->uid = m->gid = (uint32_t)strtoul (argv[i] + n + 1, NULL, 10);
	}
	return stage_members (s, NULL);
}

int main (int argc, char **argv)
{
	static const uint8_t seed[ENC_SIGN_SEED_SIZE] = { 7 };
	static struct stage s;

	if (argc < 2 || stage_make_system (&s, seed) < 0)
		return 2;
	if (strcmp (argv[1], "files") == 0 && argc > 3)
		return files (&s, argc, argv) < 0 ? 1 : 0;
	stage_hash (s.conf.plugin, s.facts.plugin_hash);
	stage_hash (s.conf.plugstacks[0], s.facts.plugstack_hash);
	for (int i = 2; i < argc; i++)
		take (&s.facts, argv[i]);
	if (stage_facts (&s, STAGE_ANSWERS) < 0)
		return 1;
	return pause ();
}
