/* The node document: what one node shall be, for one generation (docs/protocol.md section 5).
 * enclaved writes it, agentd orders its areas, privd obeys it: the same bytes for all three, bound to a grant by their SHA-256. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum {
	ENC_DOC_NODES_MAX = 256,   /* peers of one enclave */
	ENC_DOC_VOLUMES_MAX = 32,
	ENC_DOC_SIZE_MAX = 60000,
};

enum enc_pool { ENC_POOL_GENERAL = 0, ENC_POOL_SERVICE = 1, ENC_POOL_AIRLOCK = 2, ENC_POOL_ENCLAVE = 3, ENC_POOL_QUARANTINE = 4 };
enum enc_fence_mode { ENC_FENCE_NONE = 0, ENC_FENCE_AIRLOCK = 1, ENC_FENCE_ENCLAVE = 2 };
enum enc_units_state { ENC_UNITS_SITE = 0, ENC_UNITS_DOWN = 1 };
enum enc_clean_level { ENC_CLEAN_NONE = 0, ENC_CLEAN_LIVE = 1, ENC_CLEAN_REBOOT = 2 };
enum enc_role { ENC_ROLE_COMPUTE = 1, ENC_ROLE_SCHEDULER = 2, ENC_ROLE_LOGIN = 4 };
enum enc_volume_kind { ENC_VOLUME_SCRATCH = 1, ENC_VOLUME_PROJECT = 2, ENC_VOLUME_DATASET = 3 };

/* One node of the enclave as its peers see it. Addresses are text; "" where there is none. */
struct enc_doc_peer {
	char node[65];
	uint8_t role;              /* enum enc_role, one bit */
	char address4[16];         /* underlay */
	char address6[46];
	char overlay[16];          /* IPv4 inside the overlay */
	uint8_t overlay_key[32];   /* WireGuard public key; all zero: not known yet */
	uint32_t cpus;
	uint64_t memory_mb;
};

struct enc_doc_volume {
	char name[32];
	char key[27];              /* keyd's key id; "" for scratch, whose key privd makes and forgets */
	uint8_t kind;              /* enum enc_volume_kind */
	char driver[16];           /* "fscrypt", or for scratch "luks" */
	char id[27];
	uint64_t size_bytes;
	uint32_t owner_gid;        /* group that may write a project volume */
};

struct enc_doc {
	char node[65];
	uint64_t generation;
	uint8_t pool;              /* enum enc_pool */
	char enclave_id[27];       /* "" outside an enclave */
	char enclave_name[32];
	uint64_t not_after;        /* Unix seconds: end of the lease; 0 outside an enclave */
	uint8_t units;             /* enum enc_units_state */
	uint8_t fence;             /* enum enc_fence_mode */
	char controller4[16];      /* the only host a node in the airlock may talk to */
	char controller6[46];
	uint32_t controller_port;
	uint8_t overlay;           /* 0 down, 1 up */
	uint32_t overlay_port;     /* UDP, the same on all nodes of the enclave */
	char overlay_net[20];      /* "10.77.4.0/24" */
	uint8_t clean;             /* enum enc_clean_level */
	char clean_id[27];         /* a clean runs once for each id */
	char challenge[33];        /* keyd nonce to be answered by an attestation; "" none */
	char probe_id[27];         /* a probe runs once for each id; "" none */
	uint8_t roles;             /* set of enum enc_role that shall be up */
	char slurm_cluster[33];    /* cluster name of the enclave's slurmctld, opaque */
	uint32_t slurmctld_port, slurmd_port, srun_port_first, srun_port_last;
	char munge_key[27];        /* key id of the enclave's munge key */
	uint8_t door;              /* 0 shut, 1 open */
	uint32_t login_port;
	size_t peers_n;
	struct enc_doc_peer peers[ENC_DOC_NODES_MAX];
	size_t volumes_n;
	struct enc_doc_volume volumes[ENC_DOC_VOLUMES_MAX];
	size_t outsiders_n;        /* addresses that a probe must find unreachable (general head and login) */
	char outsiders[8][46];
};

/* Append the wire form of `doc` to `buf`. Fields are checked first: names, addresses, enums. -ENC_EINVAL names the field. */
int enc_doc_encode (const struct enc_doc *doc, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;

/* Read exactly one document from `data`. The same checks as on writing; left-over bytes are an error. `ret` is untouched on failure. */
int enc_doc_decode (const void *data, size_t len, struct enc_doc *ret, struct enc_error *err) ENC_MUST_USE;

/* SHA-256 of the wire form, as a grant carries it. */
void enc_doc_digest (const void *data, size_t len, uint8_t ret[32]);

/* Names for people and JSON ("general", "airlock" …); "?" for an unknown value. */
const char *enc_pool_name (uint8_t pool);
const char *enc_fence_mode_name (uint8_t mode);
const char *enc_role_name (uint8_t role);
