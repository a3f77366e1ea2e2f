/* hash.h - XXH3 for tables and for checks against rot, BLAKE2b-256 for cache keys (compared in full). */
#ifndef SX_CORE_BASE_HASH_H
#define SX_CORE_BASE_HASH_H
#include "core/base/base.h"

#define SX_KEY_BYTES 32
typedef struct {
    uint8_t byte[SX_KEY_BYTES];
} sx_key;
#define SX_KEY_TEXT_SIZE (2 * SX_KEY_BYTES + 1) /* lower-case hex and NUL */

typedef struct {
    uint64_t low;
    uint64_t high;
} sx_hash128;

uint64_t sx_hash64(sx_span bytes, uint64_t seed);
sx_hash128 sx_hash128_of(sx_span bytes);

/* BLAKE2b-256 over length-prefixed parts: {a,bc} and {ab,c} differ. `domain` is a short constant such as "program". */
sx_key sx_key_of(const char *domain, const sx_span *parts, uint32_t part_count);
bool sx_key_equal(const sx_key *a, const sx_key *b);
void sx_key_print(const sx_key *key, char text[SX_KEY_TEXT_SIZE]);
bool sx_key_parse(sx_span text, sx_key *key); /* exactly 64 hex digits */
#endif
