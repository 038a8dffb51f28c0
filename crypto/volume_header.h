/* The detached LUKS2 header of a volume, as the controller may keep it (docs/protocol.md section 3).
 *
 * LUKS2 authenticates none of its metadata (CVE-2021-4122, CVE-2025-59054): whoever keeps a header could have a node write in
 * clear, or with another cipher. So its bytes are bound to the volume's id, size and version by a MAC whose key is derived from
 * the volume key. That key is keyd's, and a node has it only with a grant; the controller never has it.
 *
 *   u8 format 1 | u32 version | str volume | u64 size | u32 metadata length | parts | mac[32]
 *   part: u32 offset | bytes; what no part covers is zero. mac: HMAC-SHA-256 of all before it, under
 *   HKDF-SHA-256 (volume key, info "enclave volume header v1"). */
#ifndef ENC_CRYPTO_VOLUME_HEADER_H
#define ENC_CRYPTO_VOLUME_HEADER_H

#include "base/buf.h"

enum {
	ENC_VOLUME_HEADER_META = 65536, /* most bytes of LUKS2 metadata */
	ENC_VOLUME_HEADER_MAX = 65536,  /* most bytes of a sealed header; the usual ones have under 4 KiB */
};

/* What a header is bound to. */
struct enc_volume_header_id {
	const char *volume;  /* id */
	uint64_t size_bytes;
	uint32_t version;    /* rising each time it is made anew; the one that is wanted */
};

struct enc_volume_key {
	const uint8_t *data; /* locked memory, borrowed */
	size_t len;          /* 64: two AES-256 keys */
};

/* Append the sealed form of the `len` bytes at `meta` to `out`. ENC_EINVAL for metadata or a key out of bounds. */
ENC_MUST_USE int enc_volume_header_seal (const struct enc_volume_header_id *id, const struct enc_volume_key *key, const void *meta, size_t len,
	struct enc_buf *out, struct enc_error *err);

/* Append the metadata to `out`. ENC_EINTEGRITY, with what is wrong, for a header that is cut short, of another volume, size or
 * version, edited, or not made under this key; `out` is then as it was. */
ENC_MUST_USE int enc_volume_header_open (const struct enc_volume_header_id *id, const struct enc_volume_key *key, const void *sealed, size_t len,
	struct enc_buf *out, struct enc_error *err);

#endif
