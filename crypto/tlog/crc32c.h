#ifndef ENC_CRYPTO_TLOG_CRC32C_H
#define ENC_CRYPTO_TLOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli) as in iSCSI: continue from `crc`, 0 at the start. It
 * finds torn writes and bad disks; it is no defence against anyone. */
uint32_t enc_crc32c (uint32_t crc, const void *data, size_t len);

#endif
