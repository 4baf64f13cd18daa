/* SHA-256 of token ids and bytes, over libcrypto. */
#ifndef LW_BASE_SHA256_H
#define LW_BASE_SHA256_H

#include "base/status.h"

enum { LW_SHA256_BYTES = 32, LW_TOKEN_SHA_CHARS = 12 };

/* digest = SHA-256 of bytes[0, count). */
void lw_sha256(const void *bytes, size_t count, uint8_t digest[LW_SHA256_BYTES]);

/* The first 12 hex digits of the SHA-256 of the decimal ids joined by commas; text holds 13 bytes. */
void lw_token_sha(const int32_t *ids, size_t count, char text[LW_TOKEN_SHA_CHARS + 1]);

/* The seed of a request that names none: SHA-256 of the decimal prompt ids joined by "," then "|" and the
 * decimal salt; its first 8 bytes little-endian, masked to 63 bits. */
uint64_t lw_prompt_seed(const int32_t *ids, size_t count, int64_t salt);

#endif
