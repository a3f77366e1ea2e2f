#include "tests/cache/fixture.h"

#include <stdatomic.h>

typedef struct {
    uint32_t calls;
    sx_code code;
} completion;

static void complete(void *self, sx_code code)
{
    completion *c = self;
    c->calls++;
    c->code = code;
}

static bool is_committed(void *self)
{
    bench *b = self;
    (void)sx_cache_tick(b->cache);
    sx_cache_stats stats;
    sx_cache_stats_of(b->cache, &stats);
    return stats.queue_rows == 0;
}

START_TEST(test_batch_waits_for_time)
{
    bench b = bench_open(&(sx_cache_options){.batch_us = 5000});
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    uint64_t commits = stats.commits;
    completion done[3] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        sx_cache_item item = {.key = key_of(i, 0),
                              .bytes = SX_SPAN_LITERAL("bytes"),
                              .done = complete,
                              .done_self = &done[i]};
        ck_sx_ok(&b.cx, sx_cache_put(&b.cx, b.cache, &item));
        ck_assert(has(&b, 0, item.key)); /* visible at once */
        ck_assert_uint_eq(sx_cache_tick(b.cache), 5000 - i * 1000);
        *b.now_us += 1000;
    }
    *b.now_us += 1999;
    ck_assert_uint_eq(sx_cache_tick(b.cache), 1);
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.queue_rows, 3);
    ck_assert_uint_eq(done[0].calls, 0);
    *b.now_us += 1;
    ck_assert(sx_test_wait(is_committed, &b, 5000));
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.commits, commits + 1); /* one transaction for the three */
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(done[i].calls, 1);
        ck_assert_int_eq(done[i].code, SX_OK);
    }
    bench_close(&b);
}
END_TEST

START_TEST(test_batch_goes_when_full)
{
    bench b = bench_open(&(sx_cache_options){.batch_rows = 10});
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    for (uint32_t i = 0; i < 9; i++) {
        put_ok(&b, 0, key_of(i, 0), (const uint8_t *)"b", 1, 1);
        ck_assert_uint_ne(sx_cache_tick(b.cache), UINT64_MAX);
    }
    put_ok(&b, 0, key_of(9, 0), (const uint8_t *)"b", 1, 1);
    ck_assert(sx_test_wait(is_committed, &b, 5000)); /* the clock stands still */
    bench_close(&b);
}
END_TEST

START_TEST(test_hits_alone_are_written_rarely)
{
    bench b = bench_open(&(sx_cache_options){.touch_us = 1000000});
    put_ok(&b, 0, key_of(1, 0), (const uint8_t *)"b", 1, 1);
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    for (uint32_t i = 0; i < 100; i++) {
        ck_assert(has(&b, 0, key_of(1, 0)));
        ck_assert_uint_eq(sx_cache_tick(b.cache), 1000000 - i * 100);
        *b.now_us += 100;
    }
    sx_cache_stats before;
    sx_cache_stats_of(b.cache, &before);
    *b.now_us += 1000000;
    ck_assert_uint_eq(sx_cache_tick(b.cache), 20000); /* staged, waits for company */
    *b.now_us += 20000;
    (void)sx_cache_tick(b.cache);
    ck_assert(sx_test_wait(is_committed, &b, 5000));
    sx_cache_stats after;
    sx_cache_stats_of(b.cache, &after);
    ck_assert_uint_eq(after.commits, before.commits + 1);
    bench_close(&b);
}
END_TEST

START_TEST(test_queue_is_bounded)
{
    bench b = bench_open(&(sx_cache_options){.queue_limit = 100000});
    sx_rng rng = {sx_test_seed()};
    uint8_t *bytes = make_bytes(&rng, 20000, false);
    completion done = {0};
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < 10; i++) {
        sx_cache_item item = {
            .key = key_of(i, 0), .bytes = {bytes, 20000}, .done = complete, .done_self = &done};
        sx_code code = sx_cache_put(&b.cx, b.cache, &item);
        ck_assert_int_eq(code, i < 4 ? SX_OK : SX_BUSY);
        accepted += code == SX_OK ? 1 : 0;
        if (code != SX_OK) {
            ck_assert_ptr_nonnull(strstr(b.cx.error.text, "100000"));
            sx_ctx_reset_error(&b.cx);
        }
        ck_assert(has(&b, 0, item.key)); /* RAM has it in any case */
    }
    free(bytes);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.put_dropped, 10 - accepted);
    ck_assert_uint_le(stats.queue_bytes, 100000);
    bench_restart(&b);
    ck_assert_uint_eq(done.calls, accepted);
    for (uint32_t i = 0; i < 10; i++) {
        ck_assert(has(&b, 0, key_of(i, 0)) == (i < accepted));
    }
    bench_close(&b);
}
END_TEST

START_TEST(test_entry_larger_than_queue_and_ram)
{
    bench b = bench_open(&(sx_cache_options){.queue_limit = 100000, .ram_limit = 100000});
    sx_rng rng = {sx_test_seed()};
    uint8_t *bytes = make_bytes(&rng, 3 << 20, true);
    for (uint32_t i = 0; i < 3; i++) {
        put_ok(&b, 0, key_of(i, 0), bytes, 3 << 20, 7);
        ck_assert(has(&b, 0, key_of(i, 0))); /* on its way */
        sx_cache_info info;
        sx_cache_part *part;
        uint32_t part_count;
        sx_key key = key_of(i, 0);
        ck_sx_ok(&b.cx, sx_cache_show(&b.cx, b.cache, 0, &key, &info, &part, &part_count));
        ck_assert(info.stored);
        ck_assert(has(&b, 0, key));
    }
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.ram_entries, 0);
    ck_assert_uint_eq(stats.hits_disk, 3);
    ck_assert_uint_eq(stats.hits_ram, 3);
    bench_restart(&b);
    sx_cache_part *part;
    sx_cache_info info;
    uint32_t part_count;
    sx_key key = key_of(2, 0);
    ck_sx_ok(&b.cx, sx_cache_show(&b.cx, b.cache, 0, &key, &info, &part, &part_count));
    ck_assert_uint_eq(info.hits, 1); /* the hit from disk; one on its way is not counted */
    free(bytes);
    bench_close(&b);
}
END_TEST

START_TEST(test_limits_of_an_entry)
{
    bench b = bench_open(NULL);
    sx_cache_part part[SX_CACHE_PART_MAX + 1] = {0};
    uint8_t big[SX_CACHE_PART_VALUE_MAX + 1] = {0};
    sx_cache_item item = {.bytes = {(const uint8_t *)"", SX_CACHE_BLOB_MAX + 1}};
    ck_sx_fails(&b.cx, sx_cache_put(&b.cx, b.cache, &item), SX_LIMIT, "268435457 bytes");
    item = (sx_cache_item){.part = part, .part_count = SX_CACHE_PART_MAX + 1};
    ck_sx_fails(&b.cx, sx_cache_put(&b.cx, b.cache, &item), SX_LIMIT, "17 key parts");
    item.part_count = 2;
    part[1].value = (sx_span){big, sizeof(big)};
    ck_sx_fails(&b.cx, sx_cache_put(&b.cx, b.cache, &item), SX_LIMIT, "value of 257 bytes");
    part[1] = (sx_cache_part){.name = {big, SX_CACHE_PART_NAME_MAX + 1}};
    ck_sx_fails(&b.cx, sx_cache_put(&b.cx, b.cache, &item), SX_LIMIT, "name of 33 bytes");
    part[1] = (sx_cache_part){.name = {big, SX_CACHE_PART_NAME_MAX},
                              .value = {big, SX_CACHE_PART_VALUE_MAX}};
    item.cost_us = UINT64_MAX;
    ck_sx_ok(&b.cx, sx_cache_put(&b.cx, b.cache, &item));
    bench_restart(&b);
    sx_cache_info info;
    sx_cache_part *found;
    uint32_t count;
    ck_sx_ok(&b.cx, sx_cache_show(&b.cx, b.cache, 0, &item.key, &info, &found, &count));
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(info.cost_us, INT64_MAX);
    ck_assert(has(&b, 0, item.key));
    bench_close(&b);
}
END_TEST

static void count_wake(void *self)
{
    (void)atomic_fetch_add((_Atomic uint32_t *)self, 1);
}

START_TEST(test_wake_and_random_use)
{
    _Atomic uint32_t woken = 0;
    bench b = bench_open(&(sx_cache_options){.wake = count_wake,
                                             .wake_self = &woken,
                                             .ram_limit = 100000,
                                             .size_limit = 300000,
                                             .batch_us = 1000});
    sx_rng rng = {sx_test_seed()};
    for (uint32_t step = 0; step < 3000; step++) {
        uint32_t i = (uint32_t)sx_rng_below(&rng, 200);
        uint64_t choice = sx_rng_below(&rng, 100);
        *b.now_us += sx_rng_below(&rng, 200);
        if (choice < 70) {
            (void)has(&b, 0, key_of(i, 0));
        } else if (choice < 95) {
            size_t size = sx_rng_below(&rng, choice < 90 ? 3000 : 30000);
            uint8_t *bytes = make_bytes(&rng, size, choice % 2 == 0);
            put_ok(&b, 0, key_of(i, 0), bytes, size, sx_rng_below(&rng, 100000));
            free(bytes);
            ck_assert(has(&b, 0, key_of(i, 0)));
        } else if (choice == 99) {
            sx_cache_filter one = {.by_key = true, .key = key_of(i, 0)};
            ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &one, NULL));
            ck_assert(!has(&b, 0, key_of(i, 0)));
        }
        (void)sx_cache_tick(b.cache);
    }
    sx_cache_verification check = {.deep = true};
    ck_sx_ok(&b.cx, sx_cache_verify(&b.cx, b.cache, 0, &check));
    ck_assert(check.finished);
    ck_assert_uint_eq(check.corrupt, 0);
    ck_assert_uint_eq(check.orphans, 0);
    ck_assert_uint_eq(check.damaged_pages, 0);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(check.ok, stats.entries);
    ck_assert_uint_le(stats.bytes, 300000);
    ck_assert_uint_eq(stats.errors, 0);
    sx_cache_verification slices = {0};
    uint32_t rounds = 0;
    for (; !slices.finished; rounds++) {
        ck_sx_ok(&b.cx, sx_cache_verify(&b.cx, b.cache, 7, &slices));
    }
    ck_assert_uint_eq(slices.ok, check.ok);
    ck_assert_uint_ge(rounds, check.ok / 7);
    sx_cache_close(b.cache);
    b.cache = NULL;
    ck_assert_uint_gt(atomic_load(&woken), 0);
    bench_close(&b);
}
END_TEST

/* ---- keys that kill workers ---- */

START_TEST(test_two_strikes)
{
    bench b = bench_open(&(sx_cache_options){.strike_ttl_us = 1000000});
    sx_key key = key_of(1, 1);
    sx_key other = key_of(2, 1);
    sx_cache_strikes strikes = {0};
    ck_assert(!sx_cache_is_quarantined(b.cache, &key, NULL));
    ck_sx_ok(&b.cx,
             sx_cache_strike(&b.cx, b.cache, &key, SX_SPAN_LITERAL("SIGSEGV\nat 0x0"), &strikes));
    ck_assert_uint_eq(strikes.count, 1);
    ck_assert(!sx_cache_is_quarantined(b.cache, &key, &strikes));
    ck_assert_str_eq(strikes.signature, "SIGSEGV?at 0x0");
    bench_restart(&b); /* the first strike is remembered */
    *b.now_us += 999999;
    ck_sx_ok(&b.cx, sx_cache_strike(&b.cx, b.cache, &key, SX_SPAN_LITERAL("SIGSYS"), NULL));
    ck_assert(sx_cache_is_quarantined(b.cache, &key, &strikes));
    ck_assert_uint_eq(strikes.count, 2);
    ck_assert_str_eq(strikes.signature, "SIGSYS");
    ck_assert(!sx_cache_is_quarantined(b.cache, &other, NULL));
    bench_restart(&b);
    ck_assert(sx_cache_is_quarantined(b.cache, &key, NULL));
    *b.now_us += 1000000;
    ck_assert(sx_cache_is_quarantined(b.cache, &key, NULL));
    *b.now_us += 1;
    ck_assert(!sx_cache_is_quarantined(b.cache, &key, NULL)); /* the TTL is over */
    *b.now_us -= 1000001;
    ck_assert(!sx_cache_is_quarantined(b.cache, &key, NULL)); /* forgotten for good */
    bench_restart(&b);
    ck_assert(!sx_cache_is_quarantined(b.cache, &key, NULL));
    for (uint32_t i = 0; i < 2; i++) {
        ck_sx_ok(&b.cx, sx_cache_strike(&b.cx, b.cache, &other, SX_SPAN_LITERAL("x"), NULL));
    }
    ck_assert(sx_cache_is_quarantined(b.cache, &other, NULL));
    ck_assert(sx_cache_pardon(b.cache, &other));
    ck_assert(!sx_cache_pardon(b.cache, &other));
    bench_restart(&b);
    ck_assert(!sx_cache_is_quarantined(b.cache, &other, NULL));
    bench_close(&b);
}
END_TEST

START_TEST(test_strikes_are_bounded)
{
    bench b = bench_open(NULL);
    char text[1000];
    memset(text, 'a', sizeof(text));
    for (uint32_t i = 0; i < 5000; i++) {
        sx_key key = key_of(i, 3);
        ck_sx_ok(&b.cx, sx_cache_strike(&b.cx, b.cache, &key,
                                        (sx_span){(const uint8_t *)text, sizeof(text)}, NULL));
    }
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.struck, 4096);
    bench_restart(&b);
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.struck, 4096);
    sx_cache_strikes strikes = {0};
    sx_key key = key_of(4999, 3);
    ck_assert(!sx_cache_is_quarantined(b.cache, &key, &strikes));
    ck_assert_uint_eq(strikes.count, 1);
    ck_assert_uint_eq(strlen(strikes.signature), SX_CACHE_SIGNATURE_MAX - 1);
    key = key_of(0, 3);
    strikes.count = 0;
    ck_assert(!sx_cache_is_quarantined(b.cache, &key, &strikes));
    ck_assert_uint_eq(strikes.count, 0);
    bench_close(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("writer");
    TCase *cases = tcase_create("writer");
    tcase_add_test(cases, test_batch_waits_for_time);
    tcase_add_test(cases, test_batch_goes_when_full);
    tcase_add_test(cases, test_hits_alone_are_written_rarely);
    tcase_add_test(cases, test_queue_is_bounded);
    tcase_add_test(cases, test_entry_larger_than_queue_and_ram);
    tcase_add_test(cases, test_limits_of_an_entry);
    tcase_add_test(cases, test_wake_and_random_use);
    tcase_add_test(cases, test_two_strikes);
    tcase_add_test(cases, test_strikes_are_bounded);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
