/* Equal layers are worked on once: as many e-nodes for 32 layers as for one, the same cost as without rolling,
 * the same values as the input, and every part with its proof. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/grad/grad.h"
#include "core/optimize/optimize.h"
#include "tests/core/rules/values.h"
#include "tests/lib/gen_stack.h"
#include "tests/lib/gen_transformer.h"

static sx_ctx cx;
static const sx_device *device;
static sx_optimize_report report;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Kinds of layers, small enough to be interpreted. */
#define KINDS 8
static sx_transformer kind_of(int kind, uint32_t layers)
{
    sx_transformer t = sx_transformer_default(layers);
    t.hidden = 16;
    t.heads = 2;
    t.ffn = 24;
    t.seq = 5;
    t.vocab = 11;
    t.layer_norm = kind == 1 || kind == 4;
    t.glu = kind != 1 && kind != 5;
    t.causal = kind != 2;
    t.post_norm = kind == 3 || kind == 4;
    t.alternate = kind == 5;
    t.encoder_layers = kind == 6 ? layers : 0;
    t.caches = kind == 7;
    t.tapped = kind == 7 ? 1 : SX_TRANSFORMER_NONE;
    return t;
}

static sx_graph *make(const sx_transformer *options)
{
    sx_graph *graph;
    ck_sx_ok(&cx, sx_transformer_make(&cx, options, &graph));
    return graph;
}

static sx_graph *optimize(const sx_graph *in, bool whole)
{
    sx_optimize_options options = sx_optimize_defaults();
    sx_graph *out;
    options.whole = whole;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_sx_ok(&cx, sx_graph_check(&cx, out));
    ck_assert_double_le(report.cost_after_ns, report.cost_before_ns * (1 + 1e-9));
    return out;
}

static void evaluate(const sx_graph *graph, sx_eval_mode mode, uint64_t seed, sx_tensor *result)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_graph *bound;
    sx_tensor *argument;
    uint32_t count;
    sx_rng rng = {seed};
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        binding[i] = (sx_binding){graph->symbol[i].name, 2};
    }
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, binding, graph->symbol_count, &bound));
    ck_sx_ok(&cx, random_arguments(&cx, &rng, bound, mode, FILL_PLAIN, &argument, &count));
    ck_sx_ok(&cx, sx_graph_eval(&cx, bound, mode, argument, count, result, graph->output_count));
}

/* Both programs have one interface and compute the same. */
static void check_close(const sx_graph *a, const sx_graph *b, sx_eval_mode mode, uint64_t seed,
                        double allowed)
{
    static sx_tensor result[2][SX_OUTPUTS_MAX];
    ck_assert_uint_eq(a->output_count, b->output_count);
    evaluate(a, mode, seed, result[0]);
    evaluate(b, mode, seed, result[1]);
    for (uint32_t k = 0; k < a->output_count; k++) {
        ck_assert(sx_span_equal(a->output[k].name, b->output[k].name));
        double gap = deviation(&result[0][k], &result[1][k], mode);
        ck_assert_msg(gap <= allowed, "output %u deviates by %g", k, gap);
    }
}

static void check_equal(const sx_graph *a, const sx_graph *b, uint64_t seed)
{
    check_close(a, b, SX_EVAL_F64, seed, 1e-4);
}

static void check_parameters(const sx_graph *in, const sx_graph *out)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < in->node_count; i++) {
        if (in->node[i].op != SX_OP_PARAMETER) {
            continue;
        }
        while (at < out->node_count && out->node[at].op != SX_OP_PARAMETER) {
            at++;
        }
        ck_assert_uint_lt(at, out->node_count);
        ck_assert(sx_span_equal(sx_graph_attr(in, &in->node[i])->name,
                                sx_graph_attr(out, &out->node[at++])->name));
    }
}

/* Layers with the gradients for all their weights: many values with several readers. */
static const sx_graph *make_gradients(uint32_t layers)
{
    sx_transformer shape = sx_transformer_default(layers);
    shape.front = SX_TRANSFORMER_VALUES;
    shape.hidden = 256;
    shape.ffn = 1024;
    shape.seq = 128;
    shape.layer_norm = true;
    shape.glu = false;
    sx_gradient made;
    ck_sx_ok(&cx, sx_grad_make(&cx, make(&shape), &(sx_grad_request){.weights = true}, &made));
    return made.graph;
}

/* What is found with so many times the fuel of extraction. */
static double cost_with_fuel(const sx_graph *in, uint32_t times)
{
    sx_optimize_options options = sx_optimize_defaults();
    sx_graph *out;
    options.with_proof = false;
    options.extract_fuel *= times;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    return report.cost_after_ns;
}

/* The default fuel finds about what ten times as much does, so that no time is won by repeating a product. */
START_TEST(test_fuel_for_gradients)
{
    const sx_graph *in = make_gradients(1);
    ck_assert_double_le(cost_with_fuel(in, 1), 1.01 * cost_with_fuel(in, 10));
    ck_assert_uint_lt(report.nodes, 20 * in->node_count + 6000);
}
END_TEST

/* Of 24 layers with their gradients, the layer at the turn and the first one are used once each: what is found
 * there hardly counts, so it may not take the time that the layers used 22 times get. */
START_TEST(test_rare_parts_are_cheap)
{
    const sx_graph *in = make_gradients(24);
    double much = cost_with_fuel(in, 10);
    double found = cost_with_fuel(in, 1);
    uint32_t common = 0, rare = 0;
    for (uint32_t i = 0; i < report.part_count; i++) {
        const sx_optimize_part *part = &report.part[i];
        if (part->roll == NULL) {
            ck_assert(part->use_count == 1 || part->use_count >= 22);
            common += part->use_count > 1 ? part->nodes : 0;
            rare += part->use_count == 1 ? part->nodes : 0;
        }
    }
    ck_assert_uint_gt(common, 1000);
    ck_assert_uint_lt(rare, common);
    ck_assert_uint_lt(report.extract_fuel, 6000000);
    ck_assert_double_le(found, 1.01 * much);
}
END_TEST

START_TEST(test_depth_costs_nothing)
{
    sx_transformer options = kind_of(_i, 32);
    options.tapped = SX_TRANSFORMER_NONE;
    uint32_t unit = _i == 5 ? 2 : 1; /* a pair of layers repeats */
    sx_graph *deep = make(&options);
    options.layers = unit;
    options.encoder_layers = options.encoder_layers > 0 ? unit : 0;
    sx_graph *flat = make(&options);
    optimize(flat, false);
    ck_assert_uint_eq(report.part_count, 1);
    uint32_t nodes = report.nodes;
    uint32_t classes = report.classes;
    uint64_t fuel = report.fuel;
    optimize(deep, false);
    ck_assert_uint_gt(report.part_count, 1);
    ck_assert_uint_lt(10 * report.nodes, 13 * nodes);
    ck_assert_uint_lt(10 * report.classes, 14 * classes);
    ck_assert_uint_lt(10 * report.fuel, 13 * fuel);
}
END_TEST

/* The program that comes out costs what it costs without rolling, and computes what went in. */
START_TEST(test_same_as_flat)
{
    for (uint32_t layers = 2; layers <= 4; layers++) {
        sx_transformer options = kind_of(_i, layers);
        sx_graph *in = make(&options);
        sx_graph *flat = optimize(in, true);
        double cost = report.cost_after_ns;
        ck_assert_int_eq(report.stop, SX_STOP_SATURATED);
        ck_assert_uint_eq(report.part_count, 1);
        sx_graph *out = optimize(in, false);
        ck_assert_int_eq(report.stop, SX_STOP_SATURATED);
        ck_assert(report.part_count > 1 || options.alternate || options.tapped < layers);
        check_parameters(in, out);
        check_equal(in, out, 77 + layers);
        check_equal(flat, out, 78 + layers);
        /* Projections of one encoder output in several layers merge only where one part holds them all; where
         * parts of a merged value are outputs as well, local search ends at different places. */
        bool near = options.encoder_layers > 0 || options.caches;
        double allowed = cost * (near ? 1.05 : 1.001);
        ck_assert_msg(report.cost_after_ns <= allowed,
                      "%u layers of kind %d: %.3f ns rolled, %.3f flat", layers, _i,
                      report.cost_after_ns, cost);
    }
}
END_TEST

/* Every part: its chain of rewrites leads from its program to what it became, and the parts make up the program. */
START_TEST(test_parts_are_proven)
{
    sx_transformer options = kind_of(_i, 5);
    const sx_graph *in = make(&options);
    const sx_graph *out = optimize(in, false);
    ck_assert_uint_gt(report.part_count, 1);
    ck_assert_ptr_null(report.proof);
    const sx_optimize_part *last = &report.part[report.part_count - 1];
    ck_assert_ptr_eq(last->program, in);
    ck_assert_ptr_eq(last->better, out);
    uint64_t bodies = 0;
    for (uint32_t i = 0; i < report.part_count; i++) {
        const sx_optimize_part *part = &report.part[i];
        sx_graph *end;
        check_equal(part->program, part->better, 5 + i);
        if (part->roll == NULL) {
            bodies = part->use_count > bodies ? part->use_count : bodies;
            ck_assert_ptr_nonnull(part->proof);
            ck_sx_ok(&cx, sx_proof_program(&cx, part->proof, part->proof->step_count, &end));
            check_equal(part->better, end, 6 + i);
            continue;
        }
        const sx_graph *program[64];
        sx_key key[2];
        ck_assert_uint_le(part->roll->part_count, 64);
        for (uint32_t p = 0; p < part->roll->part_count; p++) {
            ck_assert_uint_lt(part->piece[p], i);
            program[p] = report.part[part->piece[p]].program;
        }
        ck_sx_ok(&cx, sx_roll_expand(&cx, part->roll, program, &end));
        ck_sx_ok(&cx, sx_graph_key(&cx, end, &key[0]));
        ck_sx_ok(&cx, sx_graph_key(&cx, part->program, &key[1]));
        ck_assert(sx_key_equal(&key[0], &key[1]));
        check_equal(part->program, part->stitched, 7 + i);
        if (part->proof != NULL) {
            ck_sx_ok(&cx, sx_proof_program(&cx, part->proof, 0, &end));
            ck_sx_ok(&cx, sx_graph_key(&cx, end, &key[0]));
            ck_sx_ok(&cx, sx_graph_key(&cx, part->stitched, &key[1]));
            ck_assert(sx_key_equal(&key[0], &key[1]));
            ck_sx_ok(&cx, sx_proof_program(&cx, part->proof, part->proof->step_count, &end));
            check_equal(part->better, end, 8 + i);
        } else {
            ck_assert_ptr_eq(part->better, part->stitched);
        }
    }
    ck_assert_uint_ge(bodies, _i == 5 ? 2 : 4);
}
END_TEST

/* Random layers, some of them changed or tapped: not a bit changes under exact rules. */
START_TEST(test_random_stacks)
{
    uint64_t seed = sx_test_seed();
    uint32_t rolled = 0;
    for (uint32_t i = 0; i < 40; i++) {
        sx_rng rng = {seed + i};
        sx_graph *in = sx_gen_stack(&cx, &rng);
        sx_graph *out;
        sx_optimize_options options = sx_optimize_defaults();
        options.allow_reassociating = false;
        options.limits.nodes = 3000;
        options.extract_fuel = 20000;
        ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
        ck_assert_double_le(report.cost_after_ns, report.cost_before_ns * (1 + 1e-9));
        check_parameters(in, out);
        check_close(in, out, SX_EVAL_TYPED, seed + i, 0);
        rolled += report.part_count > 1 ? 1 : 0;
        teardown();
        setup();
    }
    ck_assert_uint_gt(rolled, 2);
}
END_TEST

/* Limits bind the sum of the parts; whatever is reached is a right program. */
START_TEST(test_limits)
{
    sx_transformer shape = kind_of(0, 6);
    sx_graph *in = make(&shape);
    sx_graph *out;
    sx_optimize_options options = sx_optimize_defaults();
    options.limits.fuel = 4000;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_assert_int_eq(report.stop, SX_STOP_FUEL);
    ck_assert_uint_gt(report.part_count, 1);
    check_equal(in, out, 9);
    options = sx_optimize_defaults();
    options.limits.nodes = 250;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_assert_int_eq(report.stop, SX_STOP_NODES);
    check_equal(in, out, 10);
}
END_TEST

/* Layers that all read one matrix turned around. A layer by itself reads it as it lies, which costs less than
 * to turn it first; but it has to be turned only once. */
static sx_graph *make_turned(uint32_t layers)
{
    static const char dot[] =
        "{lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]}";
    sx_graph *graph;
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    sx_buf_put_text(&text, "sx 1\ngraph \"turned\" {\n");
    for (uint32_t i = 0; i < layers + 2; i++) {
        sx_buf_print(&text, "  %%%u = parameter {name = \"p%u\", weight = %d} : f32[256, 256]\n", i,
                     i, i > 1);
    }
    sx_buf_print(&text, "  %%%u = transpose(%%1) {perm = [1, 0]} : f32[256, 256]\n", layers + 2);
    uint32_t turned = layers + 2;
    uint32_t last = 0;
    uint32_t n = turned + 1;
    for (uint32_t i = 0; i < 14 * layers; i++, n++) {
        sx_buf_print(&text, "  %%%u = dot_general(%%%u, %%%u) %s : f32[256, 256]\n", n, last,
                     i % 14 == 0 ? turned : 2 + i / 14, dot);
        last = n;
    }
    sx_buf_print(&text, "  return %%%u as \"y\"\n}\n", last);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph));
    sx_buf_fini(&text);
    return graph;
}

/* What the parts have used of the limits is gone when the program has to be searched again as a whole: limits
 * that either search by itself stays below are reached by both. Kernels count in report.nodes, but not against
 * the limit of the rounds. */
START_TEST(test_limits_of_a_second_search)
{
    sx_graph *in = make_turned(5);
    sx_graph *out;
    sx_optimize_options options = sx_optimize_defaults();
    options.allow_reassociating = false;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_assert(report.searched_again);
    ck_assert_int_eq(report.stop, SX_STOP_SATURATED);
    ck_assert_double_le(report.cost_after_ns, report.cost_before_ns);
    uint32_t nodes[2] = {report.nodes, report.part[0].nodes};
    uint64_t fuel[2] = {report.fuel, report.part[0].fuel};
    ck_assert_uint_gt(nodes[0], nodes[1]);
    ck_assert_uint_gt(fuel[0], fuel[1]);
    options.limits.nodes = in->node_count + nodes[0] - nodes[1];
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_assert(report.searched_again);
    ck_assert_int_eq(report.stop, SX_STOP_NODES);
    check_parameters(in, out);
    options = sx_optimize_defaults();
    options.allow_reassociating = false;
    options.limits.fuel = fuel[0] / 10 * 7;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_assert(report.searched_again);
    ck_assert_int_eq(report.stop, SX_STOP_FUEL);
    check_parameters(in, out);
}
END_TEST

START_TEST(test_same_bytes_every_time)
{
    sx_buf text[2];
    for (uint32_t i = 0; i < 2; i++) {
        sx_transformer shape = kind_of(6, 4);
        sx_buf_init(&text[i], 1 << 24);
        ck_sx_ok(&cx, sx_graph_print(&cx, optimize(make(&shape), false), &text[i]));
    }
    ck_assert(sx_span_equal(sx_buf_span(&text[0]), sx_buf_span(&text[1])));
    sx_buf_fini(&text[0]);
    sx_buf_fini(&text[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.optimize.parts");
    TCase *cases = tcase_create("parts");
    tcase_set_timeout(cases, 400);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_depth_costs_nothing, 0, KINDS);
    tcase_add_loop_test(cases, test_same_as_flat, 0, KINDS);
    tcase_add_loop_test(cases, test_parts_are_proven, 0, KINDS);
    tcase_add_test(cases, test_fuel_for_gradients);
    tcase_add_test(cases, test_rare_parts_are_cheap);
    tcase_add_test(cases, test_random_stacks);
    tcase_add_test(cases, test_limits);
    tcase_add_test(cases, test_limits_of_a_second_search);
    tcase_add_test(cases, test_same_bytes_every_time);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
