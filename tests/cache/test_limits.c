#include "tests/cache/fixture.h"

/* ---- the store against a model of GreedyDual-Size ---- */

#define KEYS 60
typedef struct {
    bool present;
    double score;
    uint64_t size;
    uint64_t cost_us;
    uint64_t used_us;
} model_row;

typedef struct {
    model_row row[KEYS];
    double clock;
    uint64_t limit;
    uint64_t evicted;
} model;

static uint64_t model_bytes(const model *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        bytes += m->row[i].present ? m->row[i].size + 256 : 0;
    }
    return bytes;
}

static void model_evict(model *m)
{
    while (model_bytes(m) > m->limit) {
        uint32_t lowest = UINT32_MAX;
        for (uint32_t i = 0; i < KEYS; i++) {
            if (!m->row[i].present) {
                continue;
            }
            if (lowest == UINT32_MAX || m->row[i].score < m->row[lowest].score ||
                (m->row[i].score <= m->row[lowest].score &&
                 m->row[i].used_us < m->row[lowest].used_us)) {
                lowest = i;
            }
        }
        ck_assert_uint_ne(lowest, UINT32_MAX);
        m->clock = m->row[lowest].score > m->clock ? m->row[lowest].score : m->clock;
        m->row[lowest].present = false;
        m->evicted++;
    }
}

static void model_use(model *m, uint32_t i, uint64_t now_us)
{
    m->row[i].used_us = now_us;
    m->row[i].score = m->clock + (double)m->row[i].cost_us / (double)(m->row[i].size + 256);
}

typedef struct {
    bool present[KEYS];
    uint32_t count;
} seen;

static bool see(void *self, const sx_cache_info *info)
{
    seen *all = self;
    for (uint32_t i = 0; i < KEYS; i++) {
        sx_key key = key_of(i, 0);
        if (info->stored && sx_key_equal(&key, &info->key)) {
            all->present[i] = true;
            all->count++;
        }
    }
    return true;
}

static void compare_with_model(bench *b, const model *m)
{
    seen all = {0};
    ck_sx_ok(&b->cx, sx_cache_list(&b->cx, b->cache, 1000, see, &all));
    for (uint32_t i = 0; i < KEYS; i++) {
        ck_assert_msg(all.present[i] == m->row[i].present, "key %u: stored %d, model %d", i,
                      all.present[i], m->row[i].present);
    }
    sx_cache_stats stats;
    sx_cache_stats_of(b->cache, &stats);
    ck_assert_uint_eq(stats.entries, all.count);
    ck_assert_uint_eq(stats.bytes, model_bytes(m));
    ck_assert_uint_le(stats.bytes, m->limit);
}

START_TEST(test_eviction_equals_model)
{
    model m = {.limit = 40000};
    /* a RAM tier that keeps nothing: each hit is a read of the store */
    bench b = bench_open(&(sx_cache_options){.size_limit = m.limit, .ram_limit = 4});
    sx_rng rng = {sx_test_seed()};
    uint32_t hits = 0;
    for (uint32_t step = 0; step < 400; step++) {
        uint32_t i = (uint32_t)sx_rng_below(&rng, KEYS);
        *b.now_us += 1000;
        if (sx_rng_below(&rng, 3) == 0 && has(&b, 5, key_of(i, 0))) {
            ck_assert(m.row[i].present);
            hits++;
            model_use(&m, i, *b.now_us);
        } else if (!m.row[i].present) {
            uint64_t size = 256 * sx_rng_below(&rng, 15); /* stored as they are */
            uint64_t cost = UINT64_C(1) << sx_rng_below(&rng, 12);
            uint8_t *bytes = make_bytes(&rng, size, false);
            put_ok(&b, 5, key_of(i, 0), bytes, size, cost);
            free(bytes);
            m.row[i] = (model_row){.present = true, .size = size, .cost_us = cost};
            model_use(&m, i, *b.now_us);
            model_evict(&m);
        }
        ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
        if (step % 40 == 39) {
            compare_with_model(&b, &m);
        }
        if (step % 100 == 99) {
            bench_restart(&b); /* the clock is kept */
        }
    }
    ck_assert_uint_gt(m.evicted, 50);
    ck_assert_uint_gt(hits, 20);
    bench_close(&b);
}
END_TEST

START_TEST(test_expensive_entry_survives_cheap_ones)
{
    bench b = bench_open(&(sx_cache_options){.size_limit = 200000});
    sx_rng rng = {sx_test_seed()};
    uint8_t *bytes = make_bytes(&rng, 10000, false);
    put_ok(&b, 1, key_of(999, 0), bytes, 2000, UINT64_C(24) * 60 * 1000000);
    for (uint32_t i = 0; i < 100; i++) {
        *b.now_us += 1;
        put_ok(&b, 1, key_of(i, 0), bytes, 10000, 2000);
        ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    }
    free(bytes);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_le(stats.bytes, 200000);
    ck_assert_uint_eq(stats.evicted_size, 101 - stats.entries);
    bench_restart(&b); /* RAM forgets */
    sx_blob *blob = NULL;
    sx_key key = key_of(999, 0);
    ck_assert_int_eq(sx_cache_get(b.cache, 1, &key, &blob, NULL), SX_OK);
    sx_blob_free(blob);
    uint32_t cheap = 0;
    for (uint32_t i = 0; i < 100; i++) {
        bool there = has(&b, 1, key_of(i, 0));
        cheap += there ? 1 : 0;
        ck_assert_msg(there == (i >= 81), "the oldest of equals leaves first: %u", i);
    }
    ck_assert_uint_eq(cheap, 19);
    bench_close(&b);
}
END_TEST

START_TEST(test_smaller_limit_after_restart)
{
    bench b = bench_open(NULL);
    sx_rng rng = {sx_test_seed()};
    uint8_t *bytes = make_bytes(&rng, 3000, false);
    for (uint32_t i = 0; i < 100; i++) {
        put_ok(&b, i % 4, key_of(i, 0), bytes, 3000, 1000 + i);
    }
    free(bytes);
    b.options.size_limit = 100000;
    bench_restart(&b);
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_le(stats.bytes, 100000);
    ck_assert_uint_eq(stats.entries, 30);
    ck_assert(has(&b, 3, key_of(99, 0)));
    ck_assert(!has(&b, 0, key_of(0, 0)));
    bench_close(&b);
}
END_TEST

START_TEST(test_namespace_quota_and_pins)
{
    const sx_cache_quota quota[] = {{.ns = 2, .bytes = 0}};
    bench b = bench_open(
        &(sx_cache_options){.ns_quota = 50000, .quota = quota, .quota_count = SX_COUNT(quota)});
    sx_rng rng = {sx_test_seed()};
    uint8_t *bytes = make_bytes(&rng, 4000, false);
    sx_key pinned = key_of(777, 0);
    sx_cache_item item = {.key = pinned, .ns = 1, .bytes = {bytes, 4000}, .pinned = true};
    ck_sx_ok(&b.cx, sx_cache_put(&b.cx, b.cache, &item)); /* cost 0: first to go otherwise */
    for (uint32_t i = 0; i < 50; i++) {
        for (uint32_t ns = 1; ns <= 3; ns++) {
            put_ok(&b, ns, key_of(i, ns), bytes, 4000, 1000);
        }
    }
    free(bytes);
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    bench_restart(&b);
    uint32_t count[4] = {0};
    for (uint32_t i = 0; i < 50; i++) {
        for (uint32_t ns = 1; ns <= 3; ns++) {
            count[ns] += has(&b, ns, key_of(i, ns)) ? 1 : 0;
        }
    }
    ck_assert_uint_eq(count[1], 50000 / 4256 - 1);
    ck_assert_uint_eq(count[2], 50);
    ck_assert_uint_eq(count[3], 50000 / 4256);
    ck_assert(has(&b, 1, pinned));
    bench_close(&b);
}
END_TEST

/* ---- metadata ---- */

START_TEST(test_hits_and_use_reach_the_disk)
{
    bench b = bench_open(NULL);
    sx_key key = key_of(1, 0);
    uint64_t start = *b.now_us;
    sx_cache_part part[2] = {{SX_SPAN_LITERAL("program"), SX_SPAN_LITERAL("abc")},
                             {SX_SPAN_LITERAL("target"), SX_SPAN_LITERAL("")}};
    sx_cache_item item = {.key = key,
                          .ns = 9,
                          .kind = 4,
                          .cost_us = 12,
                          .bytes = SX_SPAN_LITERAL("first"),
                          .part = part,
                          .part_count = 2};
    ck_sx_ok(&b.cx, sx_cache_put(&b.cx, b.cache, &item));
    for (uint32_t i = 0; i < 10; i++) {
        *b.now_us += 1000000;
        ck_assert(has(&b, 9, key));
    }
    bench_restart(&b);
    *b.now_us += 1000000;
    ck_assert(has(&b, 9, key)); /* from disk */
    sx_cache_info info;
    sx_cache_part *found;
    uint32_t count;
    ck_sx_ok(&b.cx, sx_cache_show(&b.cx, b.cache, 9, &key, &info, &found, &count));
    ck_assert_uint_eq(info.hits, 11);
    ck_assert_uint_eq(info.last_used_us, start + 11000000);
    ck_assert_uint_eq(info.created_us, start);
    ck_assert_uint_eq(info.kind, 4);
    ck_assert_uint_eq(info.generation, 1);
    ck_assert_uint_eq(count, 2);
    ck_assert(sx_span_is(found[0].name, "program") && sx_span_is(found[0].value, "abc"));
    ck_assert(sx_span_is(found[1].name, "target") && sx_span_is(found[1].value, ""));
    item.bytes = SX_SPAN_LITERAL("second");
    item.part_count = 1;
    ck_sx_ok(&b.cx, sx_cache_put(&b.cx, b.cache, &item));
    bench_restart(&b);
    ck_sx_ok(&b.cx, sx_cache_show(&b.cx, b.cache, 9, &key, &info, &found, &count));
    ck_assert_uint_eq(info.generation, 2);
    ck_assert_uint_eq(info.hits, 0);
    ck_assert_uint_eq(info.size, 6);
    ck_assert_uint_eq(count, 1);
    ck_sx_fails(&b.cx, sx_cache_show(&b.cx, b.cache, 8, &key, &info, &found, &count), SX_ABSENT,
                "namespace 8");
    bench_close(&b);
}
END_TEST

typedef struct {
    uint64_t last;
    sx_key last_key;
    uint32_t count;
    uint32_t stop_after;
} order;

static bool in_order(void *self, const sx_cache_info *info)
{
    order *o = self;
    ck_assert_uint_le(info->last_used_us, o->last);
    ck_assert(info->last_used_us < o->last || /* of one moment: by key */
              memcmp(o->last_key.byte, info->key.byte, SX_KEY_BYTES) < 0);
    o->last = info->last_used_us;
    o->last_key = info->key;
    o->count++;
    return o->count != o->stop_after;
}

START_TEST(test_list_orders_by_use)
{
    bench b = bench_open(NULL);
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < 30; i++) {
        *b.now_us += 1 + sx_rng_below(&rng, 1000);
        put_ok(&b, i % 2, key_of(i, 0), (const uint8_t *)"x", 1, 1);
    }
    for (uint32_t i = 0; i < 30; i++) {
        *b.now_us += 1 + sx_rng_below(&rng, 1000);
        uint32_t k = (uint32_t)sx_rng_below(&rng, 30);
        ck_assert(has(&b, k % 2, key_of(k, 0)));
    }
    for (uint32_t i = 30; i < 36; i++) {
        put_ok(&b, 0, key_of(i, 0), (const uint8_t *)"x", 1, 1);
    }
    order all = {.last = UINT64_MAX};
    ck_sx_ok(&b.cx, sx_cache_list(&b.cx, b.cache, 100, in_order, &all));
    ck_assert_uint_eq(all.count, 36);
    order seven = {.last = UINT64_MAX};
    ck_sx_ok(&b.cx, sx_cache_list(&b.cx, b.cache, 7, in_order, &seven));
    ck_assert_uint_eq(seven.count, 7);
    order three = {.last = UINT64_MAX, .stop_after = 3};
    ck_sx_ok(&b.cx, sx_cache_list(&b.cx, b.cache, 7, in_order, &three));
    ck_assert_uint_eq(three.count, 3);
    bench_close(&b);
}
END_TEST

START_TEST(test_evict_filters)
{
    bench b = bench_open(NULL);
    uint64_t start = *b.now_us;
    for (uint32_t i = 0; i < 20; i++) {
        *b.now_us = start + i;
        put_ok(&b, i % 2, key_of(i, 0), (const uint8_t *)"bytes", 5, 1);
    }
    sx_cache_item item = {.key = key_of(50, 0), .bytes = SX_SPAN_LITERAL("kept"), .pinned = true};
    ck_sx_ok(&b.cx, sx_cache_put(&b.cx, b.cache, &item));
    uint64_t count;
    sx_cache_filter old = {.unused_since_us = start + 6};
    ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &old, &count));
    ck_assert_uint_eq(count, 6);
    ck_assert(!has(&b, 1, key_of(5, 0)) && has(&b, 0, key_of(6, 0)));
    sx_cache_filter one = {.by_key = true, .key = key_of(6, 0), .by_ns = true, .ns = 1};
    ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &one, &count));
    ck_assert_uint_eq(count, 0);
    one.ns = 0;
    ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &one, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert(!has(&b, 0, key_of(6, 0)));
    sx_cache_filter ns = {.by_ns = true, .ns = 1};
    ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &ns, &count));
    ck_assert_uint_eq(count, 7);
    ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &(sx_cache_filter){0}, &count));
    ck_assert_uint_eq(count, 6);
    bench_restart(&b);
    ck_assert(has(&b, 0, key_of(50, 0)));
    ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &(sx_cache_filter){.pinned_too = true}, &count));
    ck_assert_uint_eq(count, 1);
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.entries, 0);
    ck_assert_uint_eq(stats.bytes, 0);
    sx_cache_verification check = {.deep = true};
    ck_sx_ok(&b.cx, sx_cache_verify(&b.cx, b.cache, 0, &check));
    ck_assert_uint_eq(check.orphans, 0);
    ck_assert_uint_eq(check.ok, 0);
    bench_close(&b);
}
END_TEST

START_TEST(test_pin_later)
{
    bench b = bench_open(&(sx_cache_options){.size_limit = 20000});
    sx_rng rng = {sx_test_seed()};
    uint8_t *bytes = make_bytes(&rng, 3000, false);
    sx_key kept = key_of(1000, 0);
    put_ok(&b, 0, kept, bytes, 3000, 0);
    ck_sx_ok(&b.cx, sx_cache_pin(&b.cx, b.cache, 0, &kept, true));
    ck_sx_fails(&b.cx, sx_cache_pin(&b.cx, b.cache, 1, &kept, true), SX_ABSENT, "namespace 1");
    for (uint32_t i = 0; i < 20; i++) {
        put_ok(&b, 0, key_of(i, 0), bytes, 3000, 1000);
    }
    bench_restart(&b);
    ck_assert(has(&b, 0, kept));
    ck_sx_ok(&b.cx, sx_cache_pin(&b.cx, b.cache, 0, &kept, false));
    for (uint32_t i = 20; i < 30; i++) {
        put_ok(&b, 0, key_of(i, 0), bytes, 3000, 1000);
    }
    bench_restart(&b);
    ck_assert(!has(&b, 0, kept));
    free(bytes);
    bench_close(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("limits");
    TCase *cases = tcase_create("limits");
    tcase_add_test(cases, test_eviction_equals_model);
    tcase_add_test(cases, test_expensive_entry_survives_cheap_ones);
    tcase_add_test(cases, test_smaller_limit_after_restart);
    tcase_add_test(cases, test_namespace_quota_and_pins);
    tcase_add_test(cases, test_hits_and_use_reach_the_disk);
    tcase_add_test(cases, test_list_orders_by_use);
    tcase_add_test(cases, test_evict_filters);
    tcase_add_test(cases, test_pin_later);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
