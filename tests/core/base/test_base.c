#include "tests/lib/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/idmap.h"
#include "core/base/rewind.h"
#include "core/base/rng.h"

START_TEST(test_arena_limit)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1024);
    uint8_t *first = sx_alloc(&cx, 100);
    ck_assert_ptr_nonnull(first);
    ck_assert_uint_eq((uintptr_t)first % 16, 0);
    for (uint32_t i = 0; i < 100; i++) {
        ck_assert_uint_eq(first[i], 0);
    }
    ck_assert_ptr_null(sx_alloc(&cx, 1000));
    ck_assert_int_eq(cx.error.code, SX_NOMEM);
    ck_assert_ptr_nonnull(strstr(cx.error.text, "1024"));
    sx_ctx_reset_error(&cx);
    ck_assert_ptr_null(sx_alloc_array(&cx, SIZE_MAX / 2, 4));
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_common_divisors)
{
    for (int64_t a = -40; a <= 40; a++) {
        for (int64_t b = -40; b <= 40; b++) {
            int64_t most = 0;
            for (int64_t d = 1; d <= 40; d++) {
                most = a % d == 0 && b % d == 0 && (a != 0 || b != 0) ? d : most;
            }
            ck_assert_int_eq(sx_gcd_i64(a, b), most);
        }
    }
    ck_assert_int_eq(sx_gcd_i64(INT64_MIN, 48), 16);
    ck_assert_uint_eq(sx_gcd_u64(UINT64_MAX, UINT64_MAX - 2), 1);
}
END_TEST

START_TEST(test_first_error_wins)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1024);
    ck_assert_int_eq(SX_FAIL(&cx, SX_INPUT, "first %d", 1), SX_INPUT);
    ck_assert_int_eq(SX_FAIL(&cx, SX_LIMIT, "second"), SX_INPUT);
    ck_assert_str_eq(cx.error.text, "first 1");
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_error_context)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1024);
    ck_assert_int_eq(SX_FAIL(&cx, SX_LIMIT, "rank 9"), SX_LIMIT);
    ck_assert_int_eq(sx_fail_in(&cx, "node %d", 4), SX_LIMIT);
    ck_assert_str_eq(cx.error.text, "node 4: rank 9");
    for (uint32_t i = 0; i < 200; i++) { /* truncated, never past the end */
        (void)sx_fail_in(&cx, "node %u", i);
    }
    ck_assert_uint_lt(strlen(cx.error.text), SX_ERROR_TEXT_MAX);
    ck_assert_ptr_nonnull(strstr(cx.error.text, "node 199: node 198: "));
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_fuel)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1024);
    cx.fuel = 10;
    ck_sx_ok(&cx, sx_spend(&cx, 10));
    ck_sx_fails(&cx, sx_spend(&cx, 1), SX_QUOTA, "fuel");
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_codes)
{
    for (uint32_t i = 0; i < SX_CODE_COUNT; i++) {
        ck_assert_int_eq(sx_code_from_wire(sx_code_wire((sx_code)i)), (int)i);
        ck_assert_int_ge(sx_code_exit((sx_code)i), 0);
    }
    ck_assert_int_eq(sx_code_from_wire(9999), SX_INTERNAL);
}
END_TEST

START_TEST(test_buf_limit)
{
    sx_buf buf;
    sx_buf_init(&buf, 8);
    sx_buf_put_u32(&buf, 0x01020304);
    ck_assert_uint_eq(buf.ptr[0], 4);
    sx_buf_print(&buf, "%s", "too long");
    ck_assert_int_eq(buf.code, SX_LIMIT);
    ck_assert_uint_eq(buf.len, 4);
    sx_buf_fini(&buf);
}
END_TEST

START_TEST(test_buf_text)
{
    static const int64_t number[] = {0, 7, -1, 10, -905, INT64_MAX, INT64_MIN};
    char wide[600];
    sx_buf buf;
    for (size_t i = 0; i < SX_COUNT(number); i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "%lld", (long long)number[i]);
        sx_buf_init(&buf, 32);
        sx_buf_put_number(&buf, number[i]);
        ck_assert(sx_span_is(sx_buf_span(&buf), text));
        sx_buf_fini(&buf);
    }
    for (size_t len = 250; len < sizeof(wide);
         len += 1 + len / 100) { /* around what is made once */
        memset(wide, 'x', len);
        wide[len] = '\0';
        sx_buf_init(&buf, 1000);
        sx_buf_print(&buf, "%s", wide);
        ck_assert_int_eq(buf.code, SX_OK);
        ck_assert(sx_span_is(sx_buf_span(&buf), wide));
        sx_buf_fini(&buf);
    }
}
END_TEST

START_TEST(test_key_parts_are_separated)
{
    sx_span ab_c[2] = {SX_SPAN_LITERAL("ab"), SX_SPAN_LITERAL("c")};
    sx_span a_bc[2] = {SX_SPAN_LITERAL("a"), SX_SPAN_LITERAL("bc")};
    sx_key first = sx_key_of("test", ab_c, 2);
    sx_key second = sx_key_of("test", a_bc, 2);
    ck_assert(!sx_key_equal(&first, &second));
    char text[SX_KEY_TEXT_SIZE];
    sx_key_print(&first, text);
    sx_key parsed;
    ck_assert(sx_key_parse(sx_span_of(text), &parsed));
    ck_assert(sx_key_equal(&first, &parsed));
    text[5] = 'G';
    ck_assert(!sx_key_parse(sx_span_of(text), &parsed));
}
END_TEST

static bool equal_value(const void *self, uint32_t id, const void *probe)
{
    const uint64_t *value = self;
    return value[id] == *(const uint64_t *)probe;
}

START_TEST(test_idmap_against_scan)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    static uint64_t value[5000];
    uint32_t count = 0;
    sx_idmap map = {0};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t step = 0; step < 5000; step++) {
        uint64_t probe = sx_rng_below(&rng, 2000);
        uint32_t expected = SX_IDMAP_NONE;
        for (uint32_t i = 0; i < count; i++) {
            if (value[i] == probe) {
                expected = i;
            }
        }
        /* a poor hash on purpose: many collisions */
        uint32_t found = sx_idmap_find(&map, probe % 64, equal_value, value, &probe);
        ck_assert_uint_eq(found, expected);
        if (found == SX_IDMAP_NONE) {
            value[count] = probe;
            ck_sx_ok(&cx, sx_idmap_put(&cx, &map, probe % 64, count++));
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Regions grow in place, keep their items, count once against the limit and give back what they shrink by. */
START_TEST(test_regions_hold_the_limit)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 100000);
    uint32_t *array[3] = {NULL, NULL, NULL};
    uint32_t capacity[3] = {0, 0, 0};
    uint32_t count = 0;
    sx_code code = SX_OK;
    while (code == SX_OK) {
        for (uint32_t i = 0; code == SX_OK && i < 3; i++) {
            code = sx_region_grow(&cx, (void **)&array[i], &capacity[i], count + 1, 4);
            if (code == SX_OK) {
                array[i][count] = count * 3 + i;
            }
            ck_assert_uint_le(cx.arena.used_bytes, 100000);
        }
        count += code == SX_OK ? 1 : 0;
    }
    ck_assert_int_eq(code, SX_NOMEM);
    sx_ctx_reset_error(&cx);
    ck_assert_uint_gt(count, 100000 / 12 * 9 / 10); /* of what the limit allows, nearly all */
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < count; k++) {
            ck_assert_uint_eq(array[i][k], k * 3 + i);
        }
    }
    ck_sx_ok(&cx, sx_region_resize(&cx, (void **)&array[1], &capacity[1], 0, 4));
    ck_sx_ok(&cx, sx_region_grow(&cx, (void **)&array[0], &capacity[0], count + 1000, 4));
    void *fresh = NULL;
    uint32_t none = 0;
    ck_sx_fails(&cx, sx_region_resize(&cx, &fresh, &none, UINT32_MAX, SIZE_MAX), SX_NOMEM,
                "overflows");
    sx_ctx_fini(&cx);
}
END_TEST

/* What becomes of a branch that only a bug reaches, in this build. */
#ifdef SX_DEBUG
static const bool debug = true;
#else
static const bool debug = false;
#endif
#ifdef SX_COVERAGE
static const bool coverage = true;
#else
static const bool coverage = false;
#endif

static int asked;
static int seven(void)
{
    asked++;
    return 7;
}

/* The condition holds: the way out in Release, no branch where coverage is measured; in Debug a panic. */
START_TEST(test_never_holds)
{
    bool taken = false;
    if (SX_NEVER(seven() == 7)) {
        taken = true;
    }
    ck_assert(!debug || coverage);
    ck_assert_int_eq(taken, !coverage);
    ck_assert_int_eq(asked, coverage ? 0 : 1);
}
END_TEST

/* The condition does not hold: nothing happens, in any build. */
START_TEST(test_never_fails)
{
    ck_assert(!SX_NEVER(seven() != 7));
    ck_assert_int_eq(asked, coverage ? 0 : 1);
}
END_TEST

/* ---- calls that the header forbids ---- */

START_TEST(test_array_of_nothing)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1024);
    (void)sx_alloc_array(&cx, 4, 0);
}
END_TEST

START_TEST(test_limit_below_what_is_used)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1024);
    (void)sx_alloc(&cx, 512);
    cx.arena.limit_bytes = 256; /* the difference would wrap around */
    (void)sx_alloc(&cx, 16);
}
END_TEST

/* Items grew from 4 to 8 bytes between two calls: the old ones would be read past their end. */
/* What one arena held another one frees, and arrays go on growing there. */
START_TEST(test_arena_adopts)
{
    sx_ctx cx, task;
    void *array[3] = {NULL};
    uint32_t capacity[3] = {0};
    sx_ctx_init(&cx, (size_t)16 << 20);
    sx_ctx_init_task(&task, &cx);
    ck_assert_uint_eq(task.arena.limit_bytes, cx.arena.limit_bytes - cx.arena.used_bytes);
    uint8_t *before = sx_alloc(&cx, 100);
    uint8_t *made = sx_alloc(&task, 200000);
    ck_assert(before != NULL && made != NULL);
    ck_sx_ok(&cx, sx_region_grow(&cx, &array[0], &capacity[0], 100, 4));
    ck_sx_ok(&task, sx_region_grow(&task, &array[1], &capacity[1], 100000, 4));
    ck_sx_ok(&task, sx_region_grow(&task, &array[2], &capacity[2], 100, 4));
    size_t most = task.arena.used_bytes;
    ck_sx_ok(&task, sx_region_resize(&task, &array[1], &capacity[1], 10, 4));
    ck_assert_uint_eq(sx_arena_peak(&task.arena), most);
    sx_arena_needed(&task.arena, most);
    ck_assert_uint_eq(sx_arena_peak(&task.arena), task.arena.used_bytes + most);
    made[199999] = 7;
    size_t sum = cx.arena.used_bytes + task.arena.used_bytes;
    sx_arena_adopt(&cx.arena, &task.arena);
    ck_assert_uint_eq(cx.arena.used_bytes, sum);
    ck_assert_uint_eq(task.arena.used_bytes, 0);
    sx_ctx_fini(&task);
    ck_assert_uint_eq(made[199999], 7);
    for (uint32_t i = 0; i < 3; i++) {
        ck_sx_ok(&cx, sx_region_grow(&cx, &array[i], &capacity[i], 200000, 4));
    }
    ck_assert_ptr_nonnull(sx_alloc(&cx, 100));
    sx_ctx_fini(&cx);
}
END_TEST

/* An emptied arena gives the same memory again, zeroed. */
START_TEST(test_arena_rewinds)
{
    sx_ctx cx;
    uint8_t *last = NULL;
    sx_ctx_init(&cx, (size_t)16 << 20);
    for (uint32_t i = 0; i < 100; i++) { /* several blocks */
        last = sx_alloc(&cx, 4000);
        ck_assert_ptr_nonnull(last);
        memset(last, 0xAA, 4000);
    }
    sx_arena_rewind(&cx.arena);
    ck_assert_uint_eq(cx.arena.used_bytes, 0);
    uint8_t *first = sx_alloc(&cx, 4000);
    ck_assert_ptr_nonnull(first);
    ck_assert(first[0] == 0 && first[3999] == 0);
    sx_arena_rewind(&cx.arena);
    ck_assert_ptr_eq(sx_alloc(&cx, 4000), first);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_region_of_other_items)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    void *array = NULL;
    uint32_t capacity = 0;
    ck_sx_ok(&cx, sx_region_grow(&cx, &array, &capacity, 100, 4));
    (void)sx_region_grow(&cx, &array, &capacity, 1000, 8);
}
END_TEST

START_TEST(test_failure_without_code)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1024);
    (void)SX_FAIL(&cx, SX_OK, "nothing failed");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.base");
    TCase *cases = tcase_create("base");
    tcase_add_test(cases, test_regions_hold_the_limit);
    tcase_add_test(cases, test_arena_limit);
    tcase_add_test(cases, test_arena_adopts);
    tcase_add_test(cases, test_arena_rewinds);
    tcase_add_test(cases, test_common_divisors);
    tcase_add_test(cases, test_first_error_wins);
    tcase_add_test(cases, test_error_context);
    tcase_add_test(cases, test_fuel);
    tcase_add_test(cases, test_codes);
    tcase_add_test(cases, test_buf_limit);
    tcase_add_test(cases, test_buf_text);
    tcase_add_test(cases, test_key_parts_are_separated);
    tcase_add_test(cases, test_idmap_against_scan);
    tcase_add_test(cases, test_never_fails);
    if (debug && !coverage) {
        tcase_add_test_raise_signal(cases, test_never_holds, SIGABRT);
    } else {
        tcase_add_test(cases, test_never_holds);
    }
    tcase_add_test_raise_signal(cases, test_array_of_nothing, SIGABRT);
    tcase_add_test_raise_signal(cases, test_limit_below_what_is_used, SIGABRT);
    tcase_add_test_raise_signal(cases, test_region_of_other_items, SIGABRT);
    tcase_add_test_raise_signal(cases, test_failure_without_code, SIGABRT);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
