/* A node as plugins see it, in a folder: keyd's key, member document, privd's socket, plugin, plugstack, slurm.conf. */
#ifndef ENC_TEST_STAGE_H
#define ENC_TEST_STAGE_H

#include "crypto/sign.h"
#include "node-agent/proto/told.h"
#include "plugins/client/client.h"

enum stage_mood { STAGE_ANSWERS, STAGE_SILENT, STAGE_HANGS_UP, STAGE_NONSENSE, STAGE_LONG };
/* What the agent says when it is asked for the receipt of a session. */
enum stage_log { STAGE_LOG_ANSWERS, STAGE_LOG_SILENT, STAGE_LOG_AWAY, STAGE_LOG_FORGED, STAGE_LOG_OTHER, STAGE_LOG_ENCLAVE, STAGE_LOG_NONSENSE };

struct stage {
	char dir[256];
	char path[10][320];
	struct enc_client_conf conf;
	struct enc_sign_key *key, *log_key;
	enum stage_log log;         /* change, then stage_facts() */
	struct enc_members members; /* change, then stage_members() */
	struct enc_member member[2];
	struct enc_facts facts;     /* change, then stage_facts() */
	pid_t privd;
};

#define STAGE_ENCLAVE_ID "abcdefghijklmnopqrstuvwxyz"
#define STAGE_PLUGIN_TEXT "\177ELF, more or less"

/* Fill `s` for a folder that is there: the paths, a fresh key, an enclave "cxr" with members res1 (10008) and res2 (10009), facts
 * of a healthy node. Writes nothing but keyd's key. 0 or -1. */
int stage_make (struct stage *s, const char *dir);
/* The same at the places where a real node has them, with a key from this seed. */
int stage_make_system (struct stage *s, const uint8_t seed[32]);
/* Write the member document; sign it with `key`, NULL: the stage's. */
int stage_members (struct stage *s, const struct enc_sign_key *key);
/* Write plugin and plugstack, and put their hashes into the facts. */
int stage_stack (struct stage *s);
int stage_write (const char *path, const char *text);
/* SHA-256 of a file; zero when it cannot be read. */
void stage_hash (const char *path, uint8_t ret[32]);
/* Start (again) a process that answers on the socket with the facts as they are now. */
int stage_facts (struct stage *s, enum stage_mood mood);
/* What was told last of that kind, from the file that the answering process writes; -1 when nothing was. */
int stage_told (const struct stage *s, uint8_t kind, struct enc_told *ret);
void stage_quiet (struct stage *s);
void stage_done (struct stage *s);

#endif
