/* Hashes of id lists; the lists are fed to the hash piecewise, so nothing is allocated for them. */
#include "base/sha256.h"

#include <openssl/evp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void lw_sha256(const void *bytes, size_t count, uint8_t digest[LW_SHA256_BYTES])
{
    unsigned digest_bytes = LW_SHA256_BYTES;
    const int done = EVP_Digest(bytes, count, digest, &digest_bytes, EVP_sha256(), NULL);
    LW_ASSERT(done == 1 && digest_bytes == LW_SHA256_BYTES);
}

static EVP_MD_CTX *hash_open(void)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    LW_ASSERT(hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1);
    return hash;
}

static void hash_ids(EVP_MD_CTX *hash, const int32_t *ids, size_t count)
{
    char text[16];
    for (size_t i = 0; i < count; i++) {
        const int chars = snprintf(text, sizeof text, i == 0 ? "%" PRId32 : ",%" PRId32, ids[i]);
        LW_ASSERT(EVP_DigestUpdate(hash, text, (size_t)chars) == 1);
    }
}

static void hash_close(EVP_MD_CTX *hash, uint8_t digest[LW_SHA256_BYTES])
{
    LW_ASSERT(EVP_DigestFinal_ex(hash, digest, NULL) == 1);
    EVP_MD_CTX_free(hash);
}

void lw_token_sha(const int32_t *ids, size_t count, char text[LW_TOKEN_SHA_CHARS + 1])
{
    uint8_t digest[LW_SHA256_BYTES];
    EVP_MD_CTX *hash = hash_open();
    hash_ids(hash, ids, count);
    hash_close(hash, digest);
    for (int i = 0; i < LW_TOKEN_SHA_CHARS / 2; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

uint64_t lw_prompt_seed(const int32_t *ids, size_t count, int64_t salt)
{
    uint8_t digest[LW_SHA256_BYTES];
    char text[32];
    EVP_MD_CTX *hash = hash_open();
    hash_ids(hash, ids, count);
    const int chars = snprintf(text, sizeof text, "|%" PRId64, salt);
    LW_ASSERT(EVP_DigestUpdate(hash, text, (size_t)chars) == 1);
    hash_close(hash, digest);
    uint64_t seed = 0;
    for (int i = 7; i >= 0; i--) seed = seed << 8 | digest[i];
    return seed & INT64_MAX;
}
