/* The same for GPUs: one module serves an interval, and gives the bits of the module for each value. Its code, which
 * the interpreter runs, takes numbers that follow the extents as parameters, and so do maps of the copy engine. */
#include "tests/lib/test.h"

#include <stdio.h>

#include "tests/lib/intervals.h"

/* Contractions of f32, a row kernel, and one that goes over all elements; the rows of 12 of each batch end inside of
 * blocks of rows. */
static const char layer[] =
    "sx 1\ngraph \"layer\" (batch in [1, 64]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, 12, 48]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[48, 32]\n"
    "%v = parameter {name = \"v\", weight = 1} : f32[32, 48]\n"
    "%0 = dot_general(%x, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 12, 32]\n"
    "%1 = tanh(%0) : f32[batch, 12, 32]\n"
    "%2 = dot_general(%1, %v) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 12, 48]\n"
    "%3 = add(%2, %x) : f32[batch, 12, 48]\n"
    "%4 = softmax(%3) {axis = 2} : f32[batch, 12, 48]\n"
    "%5 = exponential(%x) : f32[batch, 12, 48]\n"
    "return %4 as \"y\", %5 as \"e\"\n}\n";

/* Matrix instructions, on the H100 behind the copy engine: each value of the symbol is one row. */
static const char rows[] =
    "sx 1\ngraph \"rows\" (m in [1, 4096]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : bf16[m, 64]\n"
    "%w = parameter {name = \"w\", weight = 1} : bf16[64, 96]\n"
    "%b = parameter {name = \"b\", weight = 1} : bf16[96]\n"
    "%0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : bf16[m, 96]\n"
    "%1 = broadcast_in_dim(%b) {dims = [1]} : bf16[m, 96]\n"
    "%2 = add(%0, %1) : bf16[m, 96]\n"
    "return %2 as \"y\"\n}\n";

/* Attention by matrix instructions. */
static const char attention[] =
    "sx 1\ngraph \"attention\" (batch in [1, 64]) {\n"
    "%q = parameter {name = \"q\", weight = 0} : bf16[batch, 2, 40, 32]\n"
    "%k = parameter {name = \"k\", weight = 0} : bf16[batch, 2, 40, 32]\n"
    "%v = parameter {name = \"v\", weight = 0} : bf16[batch, 2, 40, 32]\n"
    "%0 = dot_general(%q, %k) {lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [3], "
    "rhs_contract = [3]} : bf16[batch, 2, 40, 40]\n"
    "%1 = softmax(%0) {axis = 3} : bf16[batch, 2, 40, 40]\n"
    "%2 = dot_general(%1, %v) {lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [3], "
    "rhs_contract = [2]} : bf16[batch, 2, 40, 32]\n"
    "return %2 as \"y\"\n}\n";

static sx_ctx cx;
static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
}
static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const struct {
    const char *text, *target, *symbol;
    int64_t high;
    uint32_t points, variants;
} row[] = {
    {layer, "h100", "batch", 20, 4, 4},    {layer, "a100", "batch", 20, 4, 4},
    {rows, "h100", "m", 300, 5, 4},        {rows, "a100", "m", 300, 5, 4},
    {attention, "a100", "batch", 9, 4, 4},
};

START_TEST(test_one_module_for_an_interval)
{
    const sx_interval interval = {sx_span_of(row[_i].symbol), 1, row[_i].high};
    const sx_core_request request = {.ir = sx_span_of(row[_i].text),
                                     .target = sx_span_of(row[_i].target),
                                     .interval = &interval,
                                     .interval_count = 1};
    sx_test_intervals t = {.points = row[_i].points, .variants = row[_i].variants};
    sx_test_compare_intervals(&cx, &request, &t);
    ck_assert_uint_gt(t.cases, 0);
    ck_assert_msg(t.bytes <= 3 * t.alone, "%zu and %zu bytes", t.bytes, t.alone);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.intervals_gpu");
    TCase *cases = tcase_create("intervals");
    tcase_set_timeout(cases, 400);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_one_module_for_an_interval, 0, SX_COUNT(row));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
