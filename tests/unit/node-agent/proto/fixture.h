/* A full, valid node document for tests: every field is set, so that a lost field shows. */
#pragma once

#include <string.h>

#include "node-agent/proto/document.h"

#define FIX_ID "abcdefghijklmnopqrstuvwxyz"

static inline void fixture_text (char *to, size_t size, const char *from)
{
	memset (to, 0, size);
	memcpy (to, from, strlen (from));
}

#define SET(member, text) fixture_text (doc->member, sizeof doc->member, text)

static inline void fixture_peer (struct enc_doc *doc, size_t i, const char *node, uint8_t role, const char *overlay)
{
	SET (peers[i].node, node);
	SET (peers[i].address4, "10.0.0.11");
	SET (peers[i].address6, "fd00::11");
	SET (peers[i].overlay, overlay);
	doc->peers[i].role = role;
	memset (doc->peers[i].overlay_key, (int) i + 1, 32);
	doc->peers[i].cpus = 8;
	doc->peers[i].memory_mb = 16000;
}

static inline void fixture_doc (struct enc_doc *doc)
{
	memset (doc, 0, sizeof *doc);
	SET (node, "n1");
	doc->generation = 7;
	doc->pool = ENC_POOL_ENCLAVE;
	SET (enclave_id, FIX_ID);
	SET (enclave_name, "cxr");
	doc->not_after = 4102444800;
	doc->units = ENC_UNITS_DOWN;
	doc->fence = ENC_FENCE_ENCLAVE;
	SET (controller4, "10.0.0.1");
	SET (controller6, "fd00::1");
	doc->controller_port = 8443;
	doc->overlay = 1;
	doc->overlay_port = 51820;
	SET (overlay_net, "10.77.4.0/24");
	doc->clean = ENC_CLEAN_LIVE;
	SET (clean_id, "bbcdefghijklmnopqrstuvwxyz");
	SET (challenge, "000102030405060708090a0b0c0d0e0f");
	SET (probe_id, "cbcdefghijklmnopqrstuvwxyz");
	doc->roles = ENC_ROLE_COMPUTE;
	SET (slurm_cluster, "e7f");
	doc->slurmctld_port = 6817;
	doc->slurmd_port = 6818;
	doc->srun_port_first = 60001;
	doc->srun_port_last = 60100;
	SET (munge_key, "dbcdefghijklmnopqrstuvwxyz");
	doc->login_port = 22;
	doc->peers_n = 3;
	fixture_peer (doc, 0, "s1", ENC_ROLE_SCHEDULER, "10.77.4.1");
	fixture_peer (doc, 1, "s2", ENC_ROLE_LOGIN, "10.77.4.2");
	fixture_peer (doc, 2, "n1", ENC_ROLE_COMPUTE, "10.77.4.3");
	doc->volumes_n = 2;
	SET (volumes[0].name, "scratch");
	SET (volumes[0].driver, "fscrypt");
	SET (volumes[0].id, "ebcdefghijklmnopqrstuvwxyz");
	doc->volumes[0].kind = ENC_VOLUME_SCRATCH;
	doc->volumes[0].size_bytes = 1 << 20;
	SET (volumes[1].name, "cxr-data");
	SET (volumes[1].key, "fbcdefghijklmnopqrstuvwxyz");
	SET (volumes[1].driver, "fscrypt");
	SET (volumes[1].id, "gbcdefghijklmnopqrstuvwxyz");
	doc->volumes[1].kind = ENC_VOLUME_PROJECT;
	doc->volumes[1].owner_gid = 1001;
	doc->outsiders_n = 2;
	SET (outsiders[0], "10.0.0.2");
	SET (outsiders[1], "fd00::2");
}

#undef SET
