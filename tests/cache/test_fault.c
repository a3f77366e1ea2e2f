/* Failing disks and lost power, point by point. */
#include "tests/cache/fixture.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cache/shim_vfs.h"

static uint8_t *payload(uint32_t i, size_t *size)
{
    static const size_t sizes[] = {10, 700, 5000, 17000, 40000};
    sx_rng rng = {i + 1};
    *size = sizes[i % SX_COUNT(sizes)];
    return make_bytes(&rng, *size, i % 2 == 0);
}

static void put_number(bench *b, uint32_t i)
{
    size_t size;
    uint8_t *bytes = payload(i, &size);
    put_ok(b, 0, key_of(i, 0), bytes, size, 1000);
    free(bytes);
}

/* Present with the right bytes; asserts that it is not present with wrong ones. */
static bool has_number(bench *b, uint32_t i)
{
    sx_blob *blob = NULL;
    sx_key key = key_of(i, 0);
    if (sx_cache_get(b->cache, 0, &key, &blob, NULL) != SX_OK) {
        return false;
    }
    size_t size;
    uint8_t *bytes = payload(i, &size);
    ck_assert(sx_span_equal(sx_blob_span(blob), (sx_span){bytes, size}));
    free(bytes);
    sx_blob_free(blob);
    return true;
}

static bench open_shim(const sx_cache_options *options)
{
    shim_install();
    sx_cache_options o = options != NULL ? *options : (sx_cache_options){0};
    o.vfs = "shim";
    return bench_open(&o);
}

static bool is_idle(void *self)
{
    bench *b = self;
    sx_cache_stats stats;
    (void)sx_cache_tick(b->cache);
    sx_cache_stats_of(b->cache, &stats);
    return stats.queue_rows == 0 && stats.store == SX_STORE_OK;
}

static const struct {
    int code;
    const char *text;
} failing[] = {{SQLITE_FULL, "full"},
               {SQLITE_IOERR_WRITE, "I/O"},
               {SQLITE_READONLY, "readonly"},
               {SQLITE_NOMEM, "memory"}};

START_TEST(test_failing_disk_is_survived)
{
    bench b = open_shim(&(sx_cache_options){.ram_limit = 20000});
    for (uint32_t i = 0; i < 20; i++) {
        put_number(&b, i);
    }
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    shim_fail(1, true, failing[_i].code);
    for (uint32_t i = 20; i < 30; i++) {
        put_number(&b, i); /* accepted */
    }
    ck_sx_fails(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED), SX_SYSTEM,
                failing[_i].text);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_int_eq(stats.store, SX_STORE_FAILING);
    ck_assert_uint_ge(stats.errors, 1);
    ck_assert_uint_ge(stats.queue_rows, 10);
    for (uint32_t i = 0; i < 30; i++) {
        ck_assert_msg(has_number(&b, i), "entry %u", i); /* old ones from disk, new ones from RAM */
    }
    uint64_t count = 99;
    ck_assert_int_eq(sx_cache_evict(&b.cx, b.cache, &(sx_cache_filter){0}, &count), SX_SYSTEM);
    sx_ctx_reset_error(&b.cx);
    sx_cache_stats_of(b.cache, &stats);
    uint64_t errors = stats.errors;
    uint64_t left = sx_cache_tick(b.cache); /* not before the pause is over */
    ck_assert(left > 0 && left <= 30000000);
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.errors, errors);
    *b.now_us += left - 1;
    ck_assert_uint_eq(sx_cache_tick(b.cache), 1);
    shim_fail(0, false, 0);
    *b.now_us += 31000000;
    ck_assert(sx_test_wait(is_idle, &b, 5000)); /* tried again by itself */
    bench_restart(&b);
    for (uint32_t i = 0; i < 30; i++) {
        ck_assert_msg(has_number(&b, i), "entry %u", i);
    }
    bench_close(&b);
}
END_TEST

/* The kernel's own refusal instead of the shim's: files may not grow past 2 MiB (EFBIG, and SIGXFSZ for who
 * does not block it). */
START_TEST(test_file_size_limit)
{
    bench b = bench_open(&(sx_cache_options){.ram_limit = 200000});
    sx_rng rng = {sx_test_seed()};
    uint8_t *bytes = make_bytes(&rng, 100000, false);
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit small = {.rlim_cur = 2 << 20, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 40; i++) {
        put_ok(&b, 0, key_of(i, 0), bytes, 100000, 1);
        if (i % 4 == 3) {
            refused += sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED) == SX_SYSTEM ? 1 : 0;
            sx_ctx_reset_error(&b.cx);
        }
    }
    ck_assert_uint_gt(refused, 2);
    for (uint32_t i = 0; i < 40; i++) {
        ck_assert_msg(has(&b, 0, key_of(i, 0)), "entry %u", i);
    }
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    *b.now_us += 31000000;
    ck_assert(sx_test_wait(is_idle, &b, 5000));
    bench_restart(&b);
    for (uint32_t i = 0; i < 40; i++) {
        ck_assert_msg(has(&b, 0, key_of(i, 0)), "entry %u", i);
    }
    free(bytes);
    bench_close(&b);
}
END_TEST

START_TEST(test_disk_that_fails_at_the_start)
{
    shim_install();
    shim_fail(1, true, SQLITE_FULL);
    bench b = open_shim(NULL);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_int_eq(stats.store, SX_STORE_FAILING);
    put_number(&b, 1);
    ck_assert(has_number(&b, 1));
    sx_key key = key_of(1, 0);
    ck_sx_ok(&b.cx, sx_cache_strike(&b.cx, b.cache, &key, SX_SPAN_LITERAL("x"), NULL));
    shim_fail(0, false, 0);
    *b.now_us += 31000000;
    ck_assert(sx_test_wait(is_idle, &b, 5000));
    bench_restart(&b);
    ck_assert(has_number(&b, 1));
    bench_close(&b);
}
END_TEST

START_TEST(test_failing_reads_are_misses)
{
    bench b = open_shim(&(sx_cache_options){.ram_limit = 4});
    for (uint32_t i = 0; i < 10; i++) {
        put_number(&b, i);
    }
    bench_restart(&b); /* nothing in the page cache of the connection */
    shim_fail_reads(SQLITE_IOERR_READ);
    uint32_t served = 0;
    for (uint32_t i = 0; i < 10; i++) {
        served += has_number(&b, i) ? 1 : 0;
    }
    ck_assert_uint_lt(served, 10);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_ge(stats.errors, 1);
    ck_assert_uint_eq(stats.corrupt, 0); /* a read error is no proof of damage */
    ck_assert_ptr_nonnull(strstr(stats.error_text, "load"));
    shim_fail_reads(SQLITE_OK);
    for (uint32_t i = 0; i < 10; i++) {
        ck_assert(has_number(&b, i));
    }
    bench_close(&b);
}
END_TEST

/* Puts, replacements, hits, strikes, evictions, a quarantine; every few steps a flush. `synced` are those a
 * power loss must spare. */
#define NUMBERS 24
static void work(bench *b, bool synced[NUMBERS])
{
    bool committed[NUMBERS] = {false};
    for (uint32_t i = 0; i < NUMBERS; i++) {
        put_number(b, i);
        committed[i] = true;
        if (i % 3 == 2) {
            *b->now_us += 2000000; /* hits become due */
            (void)has_number(b, i / 2);
            sx_key key = key_of(i, 0);
            (void)sx_cache_strike(&b->cx, b->cache, &key, SX_SPAN_LITERAL("x"), NULL);
            put_number(b, i - 1);
        }
        bool sync = i % 8 == 7;
        if (i % 2 == 1 &&
            sx_cache_flush(&b->cx, b->cache, sync ? SX_CACHE_SYNCED : SX_CACHE_COMMITTED) ==
                SX_OK &&
            sync) {
            memcpy(synced, committed, sizeof(committed));
        }
        sx_ctx_reset_error(&b->cx);
    }
}

static void check_whole(bench *b)
{
    sx_cache_verification check = {.deep = true};
    ck_sx_ok(&b->cx, sx_cache_verify(&b->cx, b->cache, 0, &check));
    ck_assert_uint_eq(check.corrupt + check.orphans + check.damaged_pages, 0);
    sx_cache_stats stats;
    sx_cache_stats_of(b->cache, &stats);
    ck_assert_int_eq(stats.store, SX_STORE_OK);
}

static uint64_t count_changes(void)
{
    shim_watch(false);
    bench b = open_shim(NULL);
    bool synced[NUMBERS] = {false};
    work(&b, synced);
    sx_cache_close(b.cache);
    b.cache = NULL;
    uint64_t changes = shim_changes();
    for (uint32_t i = 0; i < NUMBERS; i++) {
        ck_assert(synced[i]);
    }
    bench_close(&b);
    shim.keeps = false;
    return changes;
}

/* About `points` random points of all; $SX_CACHE_POINTS asks for more or for fewer. */
static uint64_t next_point(sx_rng *rng, uint64_t at, uint64_t changes, uint64_t points)
{
    const char *asked = getenv("SX_CACHE_POINTS");
    uint64_t wanted = asked != NULL ? strtoull(asked, NULL, 10) : points;
    uint64_t step = wanted > 0 && wanted < changes ? changes / wanted : 1;
    return at + 1 + sx_rng_below(rng, 2 * step - 1);
}

/* One failure at each change, once: nothing is lost when the disk works again. */
START_TEST(test_every_failure_once)
{
    uint64_t changes = count_changes();
    sx_rng rng = {sx_test_seed()};
    uint64_t points = 0;
    for (uint64_t at = 1; at <= changes; at = next_point(&rng, at, changes, 50)) {
        shim.changes = 0;
        shim_fail(at, false, failing[sx_rng_below(&rng, SX_COUNT(failing))].code);
        bench b = open_shim(NULL);
        bool synced[NUMBERS];
        work(&b, synced);
        *b.now_us += 31000000;
        ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
        shim_fail(0, false, 0);
        bench_restart(&b);
        for (uint32_t i = 0; i < NUMBERS; i++) {
            ck_assert_msg(has_number(&b, i), "change %llu: entry %u", (unsigned long long)at, i);
        }
        check_whole(&b);
        bench_close(&b);
        points++;
    }
    printf("failures: %llu of %llu points, %llu hit\n", (unsigned long long)points,
           (unsigned long long)changes, (unsigned long long)shim.failures);
    ck_assert_uint_ge(shim.failures * 10, points * 8);
}
END_TEST

/* Power goes at change `at`; returns how many committed entries are missing, UINT32_MAX when a synced one is. */
static uint32_t lose_power_at(uint64_t at, bool lies, sx_rng *rng)
{
    shim_watch(lies);
    shim_fail(at, true, SQLITE_IOERR_WRITE);
    bench b = open_shim(NULL);
    bool synced[NUMBERS] = {false};
    work(&b, synced);
    sx_cache_close(b.cache);
    b.cache = NULL;
    shim_lose_power(rng);
    b.options.vfs = NULL;
    bench_reopen(&b);
    uint32_t missing = 0;
    bool broken = false;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        bool there = has_number(&b, i);
        missing += there ? 0 : 1;
        broken = broken || (synced[i] && !there);
    }
    char aside[512];
    (void)snprintf(aside, sizeof(aside), "%s/cache.db.unreadable.1", b.dir);
    broken = broken || access(aside, F_OK) == 0;
    if (!lies) {
        check_whole(&b);
    }
    bench_close(&b);
    return broken ? UINT32_MAX : missing;
}

START_TEST(test_power_loss)
{
    uint64_t changes = count_changes();
    sx_rng rng = {sx_test_seed()};
    uint64_t points = 0;
    uint64_t lossy = 0;
    for (uint64_t at = 1; at <= changes; at = next_point(&rng, at, changes, 50)) {
        uint32_t missing = lose_power_at(at, false, &rng);
        ck_assert_msg(missing != UINT32_MAX, "change %llu of %llu: a synced entry is gone",
                      (unsigned long long)at, (unsigned long long)changes);
        lossy += missing > 0 ? 1 : 0;
        points++;
    }
    printf("power: %llu of %llu points, %llu with entries lost\n", (unsigned long long)points,
           (unsigned long long)changes, (unsigned long long)lossy);
    ck_assert_uint_gt(lossy, points / 4); /* the shim does lose what was not synced */
}
END_TEST

/* The check has teeth: on a disk that ignores syncs it does find losses. */
START_TEST(test_power_loss_on_a_lying_disk_is_seen)
{
    uint64_t changes = count_changes();
    sx_rng rng = {sx_test_seed()};
    uint32_t broken = 0;
    for (uint32_t i = 0; i < 40; i++) {
        uint64_t at = changes / 2 + sx_rng_below(&rng, changes / 2);
        broken += lose_power_at(at, true, &rng) == UINT32_MAX ? 1 : 0;
    }
    printf("lying disk: %u of 40 points broken\n", broken);
    ck_assert_uint_gt(broken, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fault");
    TCase *cases = tcase_create("fault");
    tcase_add_loop_test(cases, test_failing_disk_is_survived, 0, (int)SX_COUNT(failing));
    tcase_add_test(cases, test_file_size_limit);
    tcase_add_test(cases, test_disk_that_fails_at_the_start);
    tcase_add_test(cases, test_failing_reads_are_misses);
    tcase_add_test(cases, test_every_failure_once);
    tcase_add_test(cases, test_power_loss);
    tcase_add_test(cases, test_power_loss_on_a_lying_disk_is_seen);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
