#include "core/base/hash.h"

#include <stdio.h>
#include <string.h>

#include <sodium/crypto_generichash_blake2b.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t sx_hash64(sx_span bytes, uint64_t seed)
{
    SX_ASSERT(bytes.ptr != NULL || bytes.len == 0);
    return XXH3_64bits_withSeed(bytes.ptr, bytes.len, seed);
}

sx_hash128 sx_hash128_of(sx_span bytes)
{
    SX_ASSERT(bytes.ptr != NULL || bytes.len == 0);
    XXH128_hash_t hash = XXH3_128bits(bytes.ptr, bytes.len);
    return (sx_hash128){.low = hash.low64, .high = hash.high64};
}

static void update_sized(crypto_generichash_blake2b_state *state, sx_span part)
{
    uint8_t size[8];
    for (uint32_t i = 0; i < 8; i++) {
        size[i] = (uint8_t)((uint64_t)part.len >> (8 * i));
    }
    (void)crypto_generichash_blake2b_update(state, size, sizeof(size));
    (void)crypto_generichash_blake2b_update(state, part.ptr, part.len);
}

sx_key sx_key_of(const char *domain, const sx_span *parts, uint32_t part_count)
{
    SX_ASSERT(domain != NULL && (parts != NULL || part_count == 0));
    crypto_generichash_blake2b_state state;
    (void)crypto_generichash_blake2b_init(&state, NULL, 0, SX_KEY_BYTES);
    update_sized(&state, sx_span_of(domain));
    for (uint32_t i = 0; i < part_count; i++) {
        update_sized(&state, parts[i]);
    }
    sx_key key;
    (void)crypto_generichash_blake2b_final(&state, key.byte, SX_KEY_BYTES);
    return key;
}

bool sx_key_equal(const sx_key *a, const sx_key *b)
{
    return memcmp(a->byte, b->byte, SX_KEY_BYTES) == 0;
}

void sx_key_print(const sx_key *key, char text[SX_KEY_TEXT_SIZE])
{
    static const char digit[] = "0123456789abcdef";
    for (uint32_t i = 0; i < SX_KEY_BYTES; i++) {
        text[2 * i] = digit[key->byte[i] >> 4];
        text[2 * i + 1] = digit[key->byte[i] & 15];
    }
    text[2 * SX_KEY_BYTES] = '\0';
}

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return -1;
}

bool sx_key_parse(sx_span text, sx_key *key)
{
    SX_ASSERT(text.ptr != NULL || text.len == 0);
    if (text.len != (size_t)2 * SX_KEY_BYTES) {
        return false;
    }
    for (uint32_t i = 0; i < SX_KEY_BYTES; i++) {
        int high = hex_value(text.ptr[2 * i]);
        int low = hex_value(text.ptr[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        key->byte[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}
