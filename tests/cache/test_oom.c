/* Every allocation may fail, ours, SQLite's and zstd's: calls answer with a code, nothing accepted is lost,
 * nothing served is wrong. */
#include "tests/cache/fixture.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "tests/cache/shim_vfs.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

static _Atomic int64_t left;          /* allocations until the failing one; below zero after it */
static _Atomic bool armed;            /* failing is on */
static _Atomic bool failing_for_ever; /* all from that one on */
static _Atomic uint64_t counted;

#ifndef SANITIZED
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

/* Seen by the shared libraries, too. */
#define EXPORTED __attribute__((visibility("default")))

static bool fails(void)
{
    (void)atomic_fetch_add(&counted, 1);
    if (!atomic_load(&armed)) {
        return false;
    }
    int64_t before = atomic_fetch_sub(&left, 1);
    bool now = atomic_load(&failing_for_ever) ? before <= 1 : before == 1;
    if (now) {
        errno = ENOMEM;
    }
    return now;
}

EXPORTED void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

EXPORTED void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

EXPORTED void *realloc(void *memory, size_t size)
{
    return fails() ? NULL : __libc_realloc(memory, size);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __libc_memalign(alignment, size);
}
#endif

#define NUMBERS 10

static void put_number(bench *b, uint32_t i, bool accepted[NUMBERS])
{
    static uint8_t bytes[20000];
    sx_rng rng = {i + 1};
    size_t size = 100 + (size_t)i * 1900;
    for (size_t k = 0; k < size; k++) {
        bytes[k] = i % 2 == 0 ? (uint8_t)(k / 100) : (uint8_t)sx_rng_next(&rng);
    }
    uint64_t hash = sx_hash64((sx_span){bytes, size - 8}, 1);
    memcpy(bytes + size - 8, &hash, 8);
    sx_cache_part part[2] = {{SX_SPAN_LITERAL("program"), SX_SPAN_LITERAL("abc")},
                             {SX_SPAN_LITERAL("target"), {bytes, 30}}};
    sx_cache_item item = {
        .key = key_of(i, 0), .bytes = {bytes, size}, .part = part, .part_count = 2};
    accepted[i] = sx_cache_put(&b->cx, b->cache, &item) == SX_OK;
    sx_ctx_reset_error(&b->cx);
}

/* Check allocates in its asserts: while allocations fail, faults are only noted. */
static bool wrong;

static void get_number(bench *b, uint32_t i)
{
    sx_blob *blob = NULL;
    sx_key key = key_of(i, 0);
    if (sx_cache_get(b->cache, 0, &key, &blob, NULL) == SX_OK) {
        wrong = wrong || !check_bytes(sx_blob_span(blob));
        sx_blob_free(blob);
    }
}

static bool ignore(void *self, const sx_cache_info *info)
{
    (void)self;
    (void)info;
    return true;
}

/* Each call once; what they return does not matter here. */
static void look_around(bench *b)
{
    sx_cache_info info;
    sx_cache_part *part;
    uint32_t count;
    sx_cache_verification check = {.deep = true};
    sx_key key = key_of(3, 0);
    sx_key other = key_of(77, 0);
    (void)sx_cache_list(&b->cx, b->cache, 100, ignore, NULL);
    (void)sx_cache_show(&b->cx, b->cache, 0, &key, &info, &part, &count);
    (void)sx_cache_pin(&b->cx, b->cache, 0, &key, true);
    (void)sx_cache_strike(&b->cx, b->cache, &other, SX_SPAN_LITERAL("x"), NULL);
    (void)sx_cache_verify(&b->cx, b->cache, 0, &check);
    wrong = wrong || check.corrupt > 0;
    sx_cache_filter none = {.by_ns = true, .ns = 99};
    (void)sx_cache_evict(&b->cx, b->cache, &none, NULL);
    sx_ctx_reset_error(&b->cx);
}

/* False: the cache could not be opened at all. */
static bool work(bench *b, bool accepted[NUMBERS])
{
    b->cache = NULL;
    if (sx_cache_open(&b->cx, &b->options, &b->cache) != SX_OK) {
        wrong = wrong || b->cache != NULL;
        sx_ctx_reset_error(&b->cx);
        return false;
    }
    for (uint32_t i = 0; i < NUMBERS; i++) {
        put_number(b, i, accepted);
        if (i % 4 == 3) {
            (void)sx_cache_flush(&b->cx, b->cache, i == 7 ? SX_CACHE_SYNCED : SX_CACHE_COMMITTED);
            sx_ctx_reset_error(&b->cx);
        }
        get_number(b, i / 2);
        (void)sx_cache_tick(b->cache);
    }
    look_around(b);
    return true;
}

static void check_after(bench *b, const bool accepted[NUMBERS], uint64_t at)
{
    *b->now_us += 31000000;
    ck_sx_ok(&b->cx, sx_cache_flush(&b->cx, b->cache, SX_CACHE_COMMITTED));
    bench_restart(b);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        ck_assert_msg(has(b, 0, key_of(i, 0)) || !accepted[i], "allocation %llu: entry %u is lost",
                      (unsigned long long)at, i);
    }
    sx_cache_verification check = {.deep = true};
    ck_sx_ok(&b->cx, sx_cache_verify(&b->cx, b->cache, 0, &check));
    ck_assert_uint_eq(check.corrupt + check.orphans + check.damaged_pages, 0);
    sx_cache_stats stats;
    sx_cache_stats_of(b->cache, &stats);
    ck_assert_uint_eq(stats.quarantined, 0); /* no memory is no damage */
    ck_assert_int_eq(stats.store, SX_STORE_OK);
}

/* On the shim, which does not wait for the disk. */
static bench open_quick(void)
{
    shim_install();
    return bench_open(&(sx_cache_options){.ram_limit = 20000, .vfs = "shim"});
}

static void run_point(uint64_t at, bool for_ever)
{
    bench b = open_quick();
    bool accepted[NUMBERS] = {false};
    sx_cache_close(b.cache);
    wrong = false;
    atomic_store(&left, (int64_t)at);
    atomic_store(&failing_for_ever, for_ever);
    atomic_store(&armed, true);
    bool opened = work(&b, accepted);
    atomic_store(&armed, false);
    ck_assert_msg(!wrong, "allocation %llu: wrong bytes, a false alarm or a cache half open",
                  (unsigned long long)at);
    if (!opened) {
        bench_reopen(&b);
    }
    check_after(&b, accepted, at);
    bench_close(&b);
}

static void sweep(bool for_ever, uint64_t points)
{
    sx_rng rng = {sx_test_seed()};
    bench b = open_quick();
    bool accepted[NUMBERS];
    sx_cache_close(b.cache);
    uint64_t before = atomic_load(&counted);
    ck_assert(work(&b, accepted));
    uint64_t total = atomic_load(&counted) - before;
    bench_close(&b);
    const char *asked = getenv("SX_CACHE_POINTS");
    uint64_t wanted = asked != NULL ? strtoull(asked, NULL, 10) : points;
    uint64_t step = wanted > 0 && wanted < total ? total / wanted : 1;
    uint64_t tried = 0;
    for (uint64_t at = 1; at <= total; at += 1 + sx_rng_below(&rng, 2 * step - 1)) {
        run_point(at, for_ever);
        tried++;
    }
    printf("memory: %llu of %llu allocations failed, %s\n", (unsigned long long)tried,
           (unsigned long long)total, for_ever ? "and all after them" : "each alone");
#ifndef SANITIZED
    ck_assert_uint_gt(tried, 20);
#endif
}

START_TEST(test_one_allocation_fails)
{
    sweep(false, 120);
}
END_TEST

START_TEST(test_all_later_allocations_fail)
{
    sweep(true, 80);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oom");
    TCase *cases = tcase_create("oom");
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_one_allocation_fails);
    tcase_add_test(cases, test_all_later_allocations_fail);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
