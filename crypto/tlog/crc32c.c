#include "crypto/tlog/crc32c.h"

#include <string.h>

#include "base/enc.h"

#define POLY 0x82f63b78u /* reversed */

/* Bitwise with a table of 16 rows: slow and small, for processors without the
 * instruction. */
static uint32_t crc_portable (uint32_t crc, const uint8_t *p, size_t len)
{
	uint32_t row[16];

	for (uint32_t i = 0; i < 16; i++) {
		uint32_t v = i;

		for (int k = 0; k < 4; k++)
			v = v >> 1 ^ (v & 1 ? POLY : 0);
		row[i] = v;
	}
	for (; len > 0; len--, p++) {
		crc ^= *p;
		crc = crc >> 4 ^ row[crc & 15];
		crc = crc >> 4 ^ row[crc & 15];
	}
	return crc;
}

#if defined(__x86_64__)
__attribute__ ((target ("sse4.2"))) static uint32_t crc_fast (uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t wide = crc;

	for (; len >= 8; len -= 8, p += 8) {
		uint64_t v;

		memcpy (&v, p, 8);
		wide = __builtin_ia32_crc32di (wide, v);
	}
	crc = (uint32_t)wide;
	for (; len > 0; len--, p++)
		crc = __builtin_ia32_crc32qi (crc, *p);
	return crc;
}
#endif

uint32_t enc_crc32c (uint32_t crc, const void *data, size_t len)
{
	crc = ~crc;
#if defined(__x86_64__)
	if (__builtin_cpu_supports ("sse4.2"))
		return ~crc_fast (crc, data, len);
#endif
	return ~crc_portable (crc, data, len);
}
