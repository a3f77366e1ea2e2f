/* fixture.h - a cache in a folder of its own, with a clock the test moves, and payloads that carry their own proof. */
#ifndef SX_TESTS_CACHE_FIXTURE_H
#define SX_TESTS_CACHE_FIXTURE_H
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "core/base/rng.h"

typedef struct {
    sx_ctx cx;
    char dir[256];
    sx_cache_options options;
    sx_cache *cache;
    uint64_t *now_us; /* the clock; on the heap so that the struct may be copied */
} bench;

static inline uint64_t bench_now(void *self)
{
    return *(uint64_t *)self;
}

static inline void bench_reopen(bench *b)
{
    ck_sx_ok(&b->cx, sx_cache_open(&b->cx, &b->options, &b->cache));
}

static inline bench bench_open(const sx_cache_options *options)
{
    bench b = {0};
    sx_ctx_init(&b.cx, (size_t)64 << 20);
    sx_test_mkdtemp(b.dir);
    b.now_us = calloc(1, sizeof(*b.now_us));
    ck_assert_ptr_nonnull(b.now_us);
    *b.now_us = UINT64_C(1700000000000000);
    if (options != NULL) {
        b.options = *options;
    }
    b.options.now_us = bench_now;
    b.options.now_self = b.now_us;
    char *dir = calloc(1, sizeof(b.dir));
    ck_assert_ptr_nonnull(dir);
    memcpy(dir, b.dir, sizeof(b.dir));
    b.options.dir = dir;
    bench_reopen(&b);
    return b;
}

static inline void bench_restart(bench *b)
{
    sx_cache_close(b->cache);
    b->cache = NULL;
    bench_reopen(b);
}

static inline void bench_close(bench *b)
{
    sx_cache_close(b->cache);
    sx_test_rmtree(b->dir);
    free((void *)(uintptr_t)b->options.dir);
    free(b->now_us);
    sx_ctx_fini(&b->cx);
}

static inline sx_key key_of(uint32_t a, uint32_t b)
{
    uint32_t number[2] = {a, b};
    sx_span part = {(const uint8_t *)number, sizeof(number)};
    return sx_key_of("test", &part, 1);
}

/* Bytes whose last eight are the hash of the rest (from 9 bytes on); to be freed. */
static inline uint8_t *make_bytes(sx_rng *rng, size_t size, bool compressible)
{
    uint8_t *bytes = malloc(size + 1);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < size; i++) {
        uint64_t word = sx_rng_next(rng);
        bytes[i] = (uint8_t)(compressible && i % 16 != 0 ? i / 64 : word);
    }
    if (size > 8) {
        uint64_t hash = sx_hash64((sx_span){bytes, size - 8}, 1);
        memcpy(bytes + size - 8, &hash, 8);
    }
    return bytes;
}

static inline bool check_bytes(sx_span bytes)
{
    if (bytes.len <= 8) {
        return true;
    }
    uint64_t hash = sx_hash64((sx_span){bytes.ptr, bytes.len - 8}, 1);
    return memcmp(bytes.ptr + bytes.len - 8, &hash, 8) == 0;
}

static inline void put_ok(bench *b, uint32_t ns, sx_key key, const uint8_t *bytes, size_t size,
                          uint64_t cost_us)
{
    sx_cache_item item = {
        .key = key, .ns = ns, .kind = 1, .cost_us = cost_us, .bytes = {bytes, size}};
    ck_sx_ok(&b->cx, sx_cache_put(&b->cx, b->cache, &item));
}

static inline bool has(bench *b, uint32_t ns, sx_key key)
{
    sx_blob *blob = NULL;
    sx_code code = sx_cache_get(b->cache, ns, &key, &blob, NULL);
    if (code == SX_OK) {
        ck_assert(check_bytes(sx_blob_span(blob)));
        sx_blob_free(blob);
    }
    return code == SX_OK;
}
#endif
