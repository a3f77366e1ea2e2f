#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache.h"
#include "core/base/rng.h"
#include "tests/cache/fixture.h"

START_TEST(test_round_trip_and_restart)
{
    bench b = bench_open(NULL);
    sx_rng rng = {sx_test_seed()};
    uint32_t size[] = {0, 1, 4095, 4096, 4097, 16384, 70000, 1 << 20, 3 << 20};
    for (uint32_t i = 0; i < SX_COUNT(size); i++) {
        for (uint32_t kind = 0; kind < 2; kind++) { /* compressible and not */
            uint8_t *bytes = make_bytes(&rng, size[i], kind == 0);
            put_ok(&b, 7, key_of(i, kind), bytes, size[i], 1000 + i);
            free(bytes);
        }
    }
    sx_cache_stats stats;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < SX_COUNT(size); i++) {
            for (uint32_t kind = 0; kind < 2; kind++) {
                sx_blob *blob = NULL;
                sx_cache_info info;
                sx_key key = key_of(i, kind);
                ck_assert_int_eq(sx_cache_get(b.cache, 7, &key, &blob, &info), SX_OK);
                ck_assert_uint_eq(sx_blob_span(blob).len, size[i]);
                ck_assert(check_bytes(sx_blob_span(blob)));
                ck_assert_uint_eq(info.size, size[i]);
                ck_assert_uint_eq(info.cost_us, 1000 + i);
                sx_blob_free(blob);
                ck_assert_int_eq(sx_cache_get(b.cache, 8, &key, &blob, NULL), SX_ABSENT);
            }
        }
        sx_cache_stats_of(b.cache, &stats);
        ck_assert_uint_eq(round == 0 ? stats.hits_ram : stats.hits_disk, 2 * SX_COUNT(size));
        ck_assert_uint_eq(stats.saved_us, 2 * (SX_COUNT(size) * 1000 + 36));
        ck_assert_uint_eq(stats.misses, 2 * SX_COUNT(size));
        bench_restart(&b);
    }
    ck_assert_uint_eq(stats.entries, 0); /* counted by the first batch only */
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_SYNCED));
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_eq(stats.entries, 2 * SX_COUNT(size));
    ck_assert_int_eq(stats.store, SX_STORE_OK);
    ck_assert_uint_gt(stats.file_bytes, 4 << 20);
    bench_close(&b);
}
END_TEST

START_TEST(test_compressed_on_disk)
{
    bench b = bench_open(NULL);
    sx_rng rng = {sx_test_seed()};
    uint8_t *bytes = make_bytes(&rng, 1 << 20, true);
    put_ok(&b, 1, key_of(1, 1), bytes, 1 << 20, 5);
    put_ok(&b, 1, key_of(2, 2), bytes, 4096, 5);
    free(bytes);
    ck_sx_ok(&b.cx, sx_cache_flush(&b.cx, b.cache, SX_CACHE_COMMITTED));
    sx_blob *blob;
    sx_cache_info info;
    sx_key key = key_of(1, 1);
    ck_assert_int_eq(sx_cache_get(b.cache, 1, &key, &blob, &info), SX_OK);
    ck_assert(info.stored);
    ck_assert_uint_gt(info.stored_size, 0);
    ck_assert_uint_lt(info.stored_size, info.size / 2);
    ck_assert_uint_eq(sx_blob_span(blob).len, 1 << 20); /* not compressed in RAM */
    sx_blob_free(blob);
    key = key_of(2, 2);
    ck_assert_int_eq(sx_cache_get(b.cache, 1, &key, &blob, &info), SX_OK);
    ck_assert_uint_eq(info.stored_size, 4096);
    sx_blob_free(blob);
    bench_close(&b);
}
END_TEST

START_TEST(test_each_key_field_alone_misses)
{
    sx_cache_key_fields fields = {0};
    sx_cache_part part[SX_KEY_FIELD_COUNT];
#define SX_KEY_FIELD(field, meaning) fields.field = SX_SPAN_LITERAL("value of " #field);
#include "cache/key.def"
#undef SX_KEY_FIELD
    bench b = bench_open(NULL);
    sx_key key = sx_cache_key_make(&fields, part);
    ck_sx_ok(&b.cx, sx_cache_put(&b.cx, b.cache,
                                 &(sx_cache_item){.key = key,
                                                  .ns = 3,
                                                  .bytes = SX_SPAN_LITERAL("module"),
                                                  .part = part,
                                                  .part_count = SX_KEY_FIELD_COUNT}));
    uint32_t tried = 0;
    sx_key seen[SX_KEY_FIELD_COUNT];
    for (uint32_t field = 0; field < SX_KEY_FIELD_COUNT; field++) {
        sx_cache_key_fields other = fields;
        uint32_t n = 0;
#define SX_KEY_FIELD(name, meaning)                          \
    if (n++ == field) {                                      \
        other.name = SX_SPAN_LITERAL("value of " #name "!"); \
    }
#include "cache/key.def"
#undef SX_KEY_FIELD
        sx_blob *blob = NULL;
        sx_cache_part changed[SX_KEY_FIELD_COUNT];
        seen[field] = sx_cache_key_make(&other, changed);
        ck_assert_int_eq(sx_cache_get(b.cache, 3, &seen[field], &blob, NULL), SX_ABSENT);
        for (uint32_t i = 0; i < field; i++) {
            ck_assert(!sx_key_equal(&seen[i], &seen[field]));
        }
        tried++;
    }
    ck_assert_uint_eq(tried, SX_KEY_FIELD_COUNT);
    sx_blob *blob = NULL;
    ck_assert_int_eq(sx_cache_get(b.cache, 4, &key, &blob, NULL), SX_ABSENT); /* namespace */
    ck_assert_int_eq(sx_cache_get(b.cache, 3, &key, &blob, NULL), SX_OK);
    sx_blob_free(blob);
    bench_close(&b);
}
END_TEST

START_TEST(test_parts_in_two_fields_do_not_run_together)
{
    sx_cache_part part[SX_KEY_FIELD_COUNT];
    sx_cache_key_fields a = {.options = SX_SPAN_LITERAL("x"), .dims = SX_SPAN_LITERAL("y")};
    sx_cache_key_fields c = {.options = SX_SPAN_LITERAL("xy")};
    sx_cache_key_fields d = {.options = SX_SPAN_LITERAL("y"), .dims = SX_SPAN_LITERAL("x")};
    sx_key ka = sx_cache_key_make(&a, part);
    sx_key kc = sx_cache_key_make(&c, part);
    sx_key kd = sx_cache_key_make(&d, part);
    ck_assert(!sx_key_equal(&ka, &kc) && !sx_key_equal(&ka, &kd) && !sx_key_equal(&kc, &kd));
}
END_TEST

START_TEST(test_blob_outlives_eviction_and_close)
{
    bench b = bench_open(&(sx_cache_options){.ram_limit = 64 << 10});
    sx_rng rng = {sx_test_seed()};
    sx_key key = key_of(0, 0);
    uint8_t *bytes = make_bytes(&rng, 9000, false);
    put_ok(&b, 1, key, bytes, 9000, 1);
    sx_blob *blob = NULL;
    ck_assert_int_eq(sx_cache_get(b.cache, 1, &key, &blob, NULL), SX_OK);
    for (uint32_t i = 1; i < 40; i++) {
        put_ok(&b, 1, key_of(i, 0), bytes, 9000, 1);
        sx_cache_stats stats;
        sx_cache_stats_of(b.cache, &stats);
        ck_assert_uint_le(stats.ram_bytes, 64 << 10);
    }
    sx_cache_stats stats;
    sx_cache_stats_of(b.cache, &stats);
    ck_assert_uint_ge(stats.ram_evicted, 30);
    uint64_t count = 0;
    sx_key other = key_of(77, 0);
    ck_sx_ok(&b.cx, sx_cache_put(&b.cx, b.cache,
                                 &(sx_cache_item){.key = other,
                                                  .ns = 1,
                                                  .kind = 9,
                                                  .bytes = SX_SPAN_LITERAL("of another kind")}));
    sx_cache_filter nine = {.by_kind = true, .kind = 9};
    ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &nine, &count));
    ck_assert_uint_eq(count, 1);
    ck_sx_ok(&b.cx, sx_cache_evict(&b.cx, b.cache, &(sx_cache_filter){0}, &count));
    ck_assert_uint_eq(count, 40);
    bench_close(&b);
    ck_assert_uint_eq(sx_blob_span(blob).len, 9000);
    ck_assert_int_eq(memcmp(sx_blob_span(blob).ptr, bytes, 9000), 0);
    sx_blob_free(blob);
    free(bytes);
}
END_TEST

START_TEST(test_second_opener_is_refused)
{
    bench b = bench_open(NULL);
    sx_cache *second = NULL;
    char text[64];
    (void)snprintf(text, sizeof(text), "in use by process %ld", (long)getpid());
    ck_sx_fails(&b.cx, sx_cache_open(&b.cx, &(sx_cache_options){.dir = b.dir}, &second), SX_BUSY,
                text);
    ck_assert_ptr_null(second);
    bench_restart(&b);
    bench_close(&b);
}
END_TEST

START_TEST(test_ram_only)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    sx_cache *cache = NULL;
    ck_sx_ok(&cx, sx_cache_open(&cx, &(sx_cache_options){0}, &cache));
    sx_key key = key_of(1, 2);
    ck_sx_ok(&cx, sx_cache_put(&cx, cache,
                               &(sx_cache_item){.key = key, .bytes = SX_SPAN_LITERAL("bytes")}));
    sx_blob *blob = NULL;
    ck_assert_int_eq(sx_cache_get(cache, 0, &key, &blob, NULL), SX_OK);
    ck_assert(sx_span_is(sx_blob_span(blob), "bytes"));
    sx_blob_free(blob);
    ck_sx_ok(&cx, sx_cache_flush(&cx, cache, SX_CACHE_SYNCED));
    ck_assert_uint_eq(sx_cache_tick(cache), UINT64_MAX);
    sx_cache_stats stats;
    sx_cache_stats_of(cache, &stats);
    ck_assert_str_eq(sx_cache_store_name(stats.store), "none");
    uint64_t count = 0;
    ck_sx_ok(&cx,
             sx_cache_evict(&cx, cache, &(sx_cache_filter){.by_key = true, .key = key}, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(sx_cache_get(cache, 0, &key, &blob, NULL), SX_ABSENT);
    sx_cache_close(cache);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache");
    TCase *cases = tcase_create("cache");
    tcase_add_test(cases, test_round_trip_and_restart);
    tcase_add_test(cases, test_compressed_on_disk);
    tcase_add_test(cases, test_each_key_field_alone_misses);
    tcase_add_test(cases, test_parts_in_two_fields_do_not_run_together);
    tcase_add_test(cases, test_blob_outlives_eviction_and_close);
    tcase_add_test(cases, test_second_opener_is_refused);
    tcase_add_test(cases, test_ram_only);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
