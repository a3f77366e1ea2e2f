/* Steps of fusion that are remembered: kernels are those that come out where every step is computed anew. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/optimize/fuse.h"
#include "core/optimize/optimize.h"
#include "tests/lib/gen_stack.h"
#include "tests/lib/gen_transformer.h"

#define STACKS 40u
#define TIMES 3u

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Fuses a program so many times in one e-graph; with `steps` NULL every step is computed. Result: how many there were
 * in the end; the first time has found them all. */
static uint32_t fuse(const sx_graph *in, sx_fuse_steps *steps, sx_fuse_pairs *pairs, sx_tensors *t)
{
    sx_walker walker;
    uint64_t total, count[SX_RULE_COUNT] = {0};
    bool enabled[SX_RULE_COUNT];
    const sx_optimize_options options = sx_optimize_defaults();
    uint32_t *node = SX_NEW_ARRAY(&cx, uint32_t, in->node_count + 1);
    uint32_t *root = SX_NEW_ARRAY(&cx, uint32_t, in->output_count + 1);
    ck_sx_ok(&cx, sx_optimize_rules(&cx, &options, enabled));
    ck_sx_ok(&cx, sx_tensors_init(&cx, t, in));
    ck_sx_ok(&cx, sx_tensors_import(&cx, t, in, node));
    ck_sx_ok(&cx, sx_eg_rebuild(&cx, &t->eg));
    uint32_t *choice = SX_NEW_ARRAY(&cx, uint32_t, t->eg.node_count + 1);
    for (uint32_t c = 0; c < t->eg.node_count; c++) {
        choice[c] = c;
    }
    for (uint32_t i = 0; i < in->output_count; i++) {
        root[i] = node[in->output[i].node.i];
    }
    ck_sx_ok(&cx, sx_walker_init(&cx, &t->eg, &walker));
    ck_assert(sx_walker_run(&walker, &t->eg, NULL, root, in->output_count, choice, &total));
    uint32_t known = 0;
    for (uint32_t i = 0; i < TIMES; i++) {
        uint64_t fuel = options.limits.fuel;
        ck_sx_ok(&cx,
                 sx_fuse(&cx, t, choice, walker.order, walker.order_count, root, in->output_count,
                         enabled, &options.limits, &fuel, steps, pairs, count));
        ck_assert(i == 0 || steps == NULL || known == steps->count);
        known = steps != NULL ? steps->count : 0;
    }
    return known;
}

static void check_same(const sx_graph *in, const char *what, uint32_t i)
{
    sx_fuse_steps steps = {0};
    sx_fuse_pairs kept = {0}, anew = {0};
    sx_tensors with, without;
    ck_assert_uint_gt(fuse(in, &steps, &kept, &with), 0);
    ck_assert_uint_eq(fuse(in, NULL, &anew, &without), 0);
    ck_assert_uint_eq(with.eg.node_count, without.eg.node_count);
    for (uint32_t n = 0; n < with.eg.node_count; n++) { /* by numbers in the table of the graph */
        ck_assert_msg(with.eg.node[n].attr == without.eg.node[n].attr, "%s %u: node %u", what, i,
                      n);
    }
    ck_assert_uint_eq(kept.count, anew.count);
    ck_assert_msg(memcmp(kept.word, anew.word, kept.count * sizeof(*kept.word)) == 0, "%s %u", what,
                  i);
}

START_TEST(test_stacks)
{
    uint64_t seed = sx_test_seed();
    for (uint32_t i = 0; i < STACKS; i++) {
        sx_rng rng = {seed + i};
        check_same(sx_gen_stack(&cx, &rng), "stack", i);
    }
}
END_TEST

/* Layers of one program have steps in common whose types differ. */
START_TEST(test_layers)
{
    for (uint32_t i = 0; i < 4; i++) {
        sx_graph *graph;
        sx_transformer shape = sx_transformer_default(2);
        shape.layer_norm = i % 2 == 1;
        shape.causal = i < 2;
        ck_sx_ok(&cx, sx_transformer_make(&cx, &shape, &graph));
        check_same(graph, "transformer", i);
    }
}
END_TEST

/* Equal kernels before equal broadcasts of unlike tensors, and unlike ones of equal tensors. */
START_TEST(test_unlike)
{
    static const char text[] =
        "sx 1\n"
        "graph \"unlike\" {\n"
        "%0 = parameter {name = \"a\", weight = 0} : f32[8]\n"
        "%1 = parameter {name = \"b\", weight = 0} : f32[8, 8]\n"
        "%2 = parameter {name = \"c\", weight = 0} : f32[8, 8]\n"
        "%3 = broadcast_in_dim(%0) {dims = [0]} : f32[8, 8]\n"
        "%4 = broadcast_in_dim(%0) {dims = [1]} : f32[8, 8]\n"
        "%5 = multiply(%1, %3) : f32[8, 8]\n"
        "%6 = multiply(%1, %4) : f32[8, 8]\n"
        "%7 = multiply(%3, %1) : f32[8, 8]\n"
        "%8 = transpose(%2) {perm = [1, 0]} : f32[8, 8]\n"
        "%9 = multiply(%8, %1) : f32[8, 8]\n"
        "%10 = constant {data = 2} : f32[8, 8]\n"
        "%11 = constant {data = 3} : f32[8, 8]\n"
        "%12 = multiply(%10, %5) : f32[8, 8]\n"
        "%13 = multiply(%11, %6) : f32[8, 8]\n"
        "%14 = multiply(%7, %7) : f32[8, 8]\n"
        "%15 = divide(%10, %1) : f32[8, 8]\n"
        "%16 = divide(%1, %10) : f32[8, 8]\n"
        "%17 = divide(%1, %11) : f32[8, 8]\n"
        "%18 = add(%12, %13) : f32[8, 8]\n"
        "%19 = add(%14, %9) : f32[8, 8]\n"
        "return %15 as \"u\", %16 as \"v\", %17 as \"w\", %18 as \"x\", %19 as \"y\"\n}\n";
    sx_graph *graph;
    sx_code code = sx_graph_parse(&cx, sx_span_of(text), &graph);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    check_same(graph, "unlike", 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.optimize.steps");
    TCase *cases = tcase_create("steps");
    tcase_set_timeout(cases, 100);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_stacks);
    tcase_add_test(cases, test_layers);
    tcase_add_test(cases, test_unlike);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
