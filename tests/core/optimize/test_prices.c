/* Prices that the parts of a program share: level 2 is asked once for equal kernels, and what comes out is what comes
 * out without them. */
#include "tests/lib/test.h"

#include "core/optimize/optimizer.h"
#include "tests/lib/gen_stack.h"
#include "tests/lib/gen_transformer.h"

#define STACKS 24u

static sx_ctx cx;
static const sx_device *device;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static struct sx_prices *make_prices(const sx_graph *of)
{
    struct sx_prices *prices;
    const sx_device *row = sx_device_class(device);
    ck_sx_ok(&cx, sx_prices_make(&cx, row, of->symbol, of->symbol_count, &prices));
    return prices;
}

/* The program that is found, as text, with its cost; `prices` NULL: none are known. */
static sx_span optimize(const sx_graph *in, struct sx_prices *prices, double *cost)
{
    sx_optimize_options options = sx_optimize_defaults();
    sx_optimize_report report;
    sx_graph *out;
    sx_buf text;
    options.with_proof = false;
    options.extract_fuel = 100000;
    options.prices = prices;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    sx_buf_init(&text, 1 << 24);
    ck_sx_ok(&cx, sx_graph_print(&cx, out, &text));
    const char *kept = sx_alloc_text(&cx, sx_buf_span(&text));
    sx_buf_fini(&text);
    *cost = report.cost_before_ns - report.cost_after_ns;
    return sx_span_of(kept);
}

/* A layer whose rows are a symbol of this interval; is its matrix a weight? */
static sx_graph *make_layer(const char *interval, uint32_t width, bool weight)
{
    sx_buf text;
    sx_graph *graph;
    sx_buf_init(&text, 1 << 14);
    sx_buf_print(&text,
                 "sx 1\ngraph \"layer\" (rows in %s) {\n"
                 "%%0 = parameter {name = \"x\", weight = 0} : f32[rows, %u]\n"
                 "%%1 = parameter {name = \"w\", weight = %u} : f32[%u, 64]\n"
                 "%%2 = dot_general(%%0, %%1) {lhs_contract = [1], rhs_contract = [0]}"
                 " : f32[rows, 64]\n"
                 "%%3 = tanh(%%2) : f32[rows, 64]\n"
                 "return %%3 as \"y\"\n}\n",
                 interval, width, weight ? 1 : 0, width);
    sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &graph);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    sx_buf_fini(&text);
    return graph;
}

static sx_graph *make_transformer(void)
{
    sx_graph *graph;
    sx_transformer shape = sx_transformer_default(4);
    ck_sx_ok(&cx, sx_transformer_make(&cx, &shape, &graph));
    return graph;
}

/* A program of parts puts its prices into the table; the same program again finds them all there. */
START_TEST(test_parts_share_prices)
{
    const sx_graph *in = make_transformer();
    struct sx_prices *prices = make_prices(in);
    double cost[3];
    sx_span alone = optimize(in, NULL, &cost[0]);
    sx_span first = optimize(in, prices, &cost[1]);
    uint32_t count = sx_prices_count(prices);
    sx_span second = optimize(in, prices, &cost[2]);
    ck_assert_uint_gt(count, 50);
    ck_assert_uint_eq(sx_prices_count(prices), count);
    ck_assert(sx_span_equal(alone, first) && sx_span_equal(alone, second));
    ck_assert_double_eq(cost[0], cost[1]);
    ck_assert_double_eq(cost[0], cost[2]);
}
END_TEST

/* What is found by the prices in the table is found by fresh ones. */
static void check_same(const sx_graph *in, struct sx_prices *prices, const char *what, uint32_t i)
{
    double cost[2];
    sx_span with = optimize(in, prices, &cost[0]);
    sx_span without = optimize(in, NULL, &cost[1]);
    ck_assert_msg(sx_span_equal(with, without), "%s %u", what, i);
    ck_assert_msg(!(cost[0] < cost[1]) && !(cost[0] > cost[1]), "%s %u: saves %f ns, not %f", what,
                  i, cost[0], cost[1]);
}

/* Prices of other programs in the table change nothing: a price is found by all that it follows from. */
START_TEST(test_prices_of_others)
{
    uint64_t seed = sx_test_seed();
    struct sx_prices *prices = NULL;
    for (uint32_t i = 0; i < STACKS; i++) {
        sx_rng rng = {seed + i};
        const sx_graph *in = sx_gen_stack(&cx, &rng);
        prices = prices != NULL ? prices : make_prices(in);
        check_same(in, prices, "stack", i);
    }
    ck_assert_uint_gt(sx_prices_count(prices), 100);
    prices = NULL;
    for (uint32_t i = 0; i < 8; i++) {
        const sx_graph *in = make_layer("[1, 4096]", i < 4 ? 64 : 1000, i % 2 == 0);
        prices = prices != NULL ? prices : make_prices(in);
        check_same(in, prices, "layer", i);
    }
    ck_assert_uint_gt(sx_prices_count(prices), 0);
}
END_TEST

/* Where a symbol counts as another extent, or the device is another, the table is left aside. */
START_TEST(test_other_extents)
{
    const sx_graph *few = make_layer("[1, 8]", 64, true);
    const sx_graph *many = make_layer("[1, 4096]", 64, true);
    struct sx_prices *prices = make_prices(few);
    check_same(few, prices, "rows", 8);
    uint32_t count = sx_prices_count(prices);
    ck_assert_uint_gt(count, 0);
    check_same(many, prices, "rows", 4096);
    ck_assert_uint_eq(sx_prices_count(prices), count);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("h100"), &device));
    check_same(few, prices, "rows on another device", 8);
    ck_assert_uint_eq(sx_prices_count(prices), count);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.optimize.prices");
    TCase *cases = tcase_create("prices");
    tcase_set_timeout(cases, 400);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_parts_share_prices);
    tcase_add_test(cases, test_prices_of_others);
    tcase_add_test(cases, test_other_extents);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
