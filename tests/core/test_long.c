/* Long searches: a lane in steps, its state as bytes, the better of two modules. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/core.h"

/* A chain of ten matrices: its parenthesisations saturate within the usual limits, but extraction is not proven at once. */
static const uint32_t extent[] = {64, 8, 256, 16, 128, 32, 512, 8, 64, 256, 16};

static sx_ctx cx;
static sx_buf text, state[2], module[2];

static void print_chain(const uint32_t *dim, uint32_t count)
{
    sx_buf_put_text(&text, "sx 1\ngraph \"chain\" {\n");
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_print(&text, "  %%a%u = parameter {name = \"a%u\", weight = 0} : f32[%u, %u]\n", i,
                     i, dim[i], dim[i + 1]);
    }
    for (uint32_t i = 1; i < count; i++) {
        sx_buf_print(&text, "  %%m%u = dot_general(%%%s%u, %%a%u) ", i, i == 1 ? "a" : "m", i - 1,
                     i);
        sx_buf_print(&text, "{lhs_contract = [1], rhs_contract = [0]} : f32[%u, %u]\n", dim[0],
                     dim[i + 1]);
    }
    sx_buf_print(&text, "  return %%m%u as \"r\"\n}\n", count - 1);
}

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_buf_init(&text, (size_t)1 << 20);
    for (uint32_t i = 0; i < 2; i++) {
        sx_buf_init(&state[i], (size_t)256 << 20);
        sx_buf_init(&module[i], (size_t)64 << 20);
    }
    print_chain(extent, SX_COUNT(extent) - 1);
}

static void teardown(void)
{
    sx_buf_fini(&text);
    for (uint32_t i = 0; i < 2; i++) {
        sx_buf_fini(&state[i]);
        sx_buf_fini(&module[i]);
    }
    sx_ctx_fini(&cx);
}

static sx_core_request request_of(const char *objective)
{
    return (sx_core_request){.ir = sx_buf_span(&text),
                             .target = SX_SPAN_LITERAL("x86-64-v3"),
                             .objective = sx_span_of(objective)};
}

static sx_span aligned(sx_span bytes)
{
    uint8_t *copy = sx_alloc(&cx, bytes.len + 64);
    ck_assert_ptr_nonnull(copy);
    copy += (64 - (uintptr_t)copy % 64) % 64;
    if (bytes.len > 0) {
        memcpy(copy, bytes.ptr, bytes.len);
    }
    return (sx_span){copy, bytes.len};
}

#define FUEL UINT64_C(120000000)

/* One step of lane 0 into state[to], module[to]. */
static sx_code step_to(uint32_t to, sx_span from, sx_core_step_result *result)
{
    static sx_core_request request;
    request = request_of("");
    sx_core_step step = {.request = &request, .fuel = FUEL, .state = from};
    sx_buf_clear(&state[to]);
    sx_buf_clear(&module[to]);
    *result = (sx_core_step_result){.state = &state[to], .module = &module[to]};
    return sx_core_long_step(&cx, &step, result);
}

START_TEST(test_first_step_is_the_usual_search)
{
    sx_core_request request = request_of("");
    sx_core_step_result result;
    ck_sx_ok(&cx, step_to(0, (sx_span){NULL, 0}, &result));
    ck_assert_uint_eq(result.step, 1);
    ck_assert(result.objective > 0 && result.bound > 0 && result.bound <= result.objective);
    ck_assert_uint_gt(result.peak_bytes, 0);
    ck_sx_ok(&cx, sx_core_optimize_module(&cx, &request, &module[1]));
    sx_module a, b;
    ck_sx_ok(&cx, sx_module_decode(&cx, aligned(sx_buf_span(&module[0])), true, &a));
    ck_sx_ok(&cx, sx_module_decode(&cx, aligned(sx_buf_span(&module[1])), true, &b));
    ck_assert_uint_eq(a.optimized_count, b.optimized_count);
    ck_assert_mem_eq(a.optimized, b.optimized, a.optimized_count);
    ck_assert_mem_eq(a.proof, b.proof, a.proof_count);
    ck_assert_double_eq(a.info->cost_ns, result.objective);
}
END_TEST

START_TEST(test_same_bytes_again)
{
    sx_core_step_result result;
    ck_sx_ok(&cx, step_to(0, (sx_span){NULL, 0}, &result));
    sx_span first = aligned(sx_buf_span(&state[0]));
    ck_assert(!result.done);
    ck_sx_ok(&cx, step_to(0, first, &result));
    sx_span second = aligned(sx_buf_span(&state[0]));
    ck_assert_uint_eq(result.step, 2);
    ck_sx_ok(&cx, step_to(1, (sx_span){NULL, 0}, &result));
    ck_assert(sx_span_equal(first, sx_buf_span(&state[1])));
    ck_sx_ok(&cx, step_to(1, first, &result));
    ck_assert(sx_span_equal(second, sx_buf_span(&state[1])));
}
END_TEST

START_TEST(test_foreign_and_damaged_states)
{
    sx_core_step_result result;
    ck_sx_ok(&cx, step_to(0, (sx_span){NULL, 0}, &result));
    sx_span good = aligned(sx_buf_span(&state[0]));
    uint8_t *byte = (uint8_t *)(uintptr_t)good.ptr;
    byte[good.len / 2] ^= 1;
    ck_assert_int_eq(step_to(0, good, &result), SX_CORRUPT);
    sx_ctx_reset_error(&cx);
    byte[good.len / 2] ^= 1;
    ck_assert_int_eq(step_to(0, (sx_span){good.ptr, good.len - 64}, &result), SX_CORRUPT);
    sx_ctx_reset_error(&cx);
    ck_assert_int_eq(step_to(0, (sx_span){good.ptr, 7}, &result), SX_CORRUPT);
    sx_ctx_reset_error(&cx);
    sx_core_request other = request_of("energy");
    sx_core_step step = {.request = &other, .fuel = FUEL, .state = good};
    ck_assert_int_eq(sx_core_long_step(&cx, &step, &result), SX_ABSENT);
    sx_ctx_reset_error(&cx);
    other = request_of("");
    step.lane = 1;
    ck_assert_int_eq(sx_core_long_step(&cx, &step, &result), SX_ABSENT);
    sx_ctx_reset_error(&cx);
    step.lane = SX_CORE_LANES_MAX;
    ck_assert_int_eq(sx_core_long_step(&cx, &step, &result), SX_INPUT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.long");
    TCase *steps = tcase_create("steps");
    tcase_add_checked_fixture(steps, setup, teardown);
    tcase_add_test(steps, test_first_step_is_the_usual_search);
    tcase_add_test(steps, test_same_bytes_again);
    tcase_add_test(steps, test_foreign_and_damaged_states);
    suite_add_tcase(suite, steps);
    return sx_test_main(suite);
}
