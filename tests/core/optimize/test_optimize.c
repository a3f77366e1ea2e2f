/* Level 1 from end to end: programs as exporters write them, one kernel for what is one kernel, every step of
 * every proof replayed, random programs compared with themselves. tests/golden/egraph/NAME.sx is a program,
 * NAME.out what must come of it (SX_GOLDEN=update rewrites it). */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/search/search.h"
#include "core/optimize/optimize.h"
#include "tests/core/rules/values.h"

static sx_ctx cx;
static const sx_device *device;
static sx_optimize_report report;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_graph *read_golden(const char *name)
{
    char path[512];
    sx_buf text;
    sx_graph *graph;
    (void)snprintf(path, sizeof(path), "%s/tests/golden/egraph/%s.sx", SX_SOURCE_DIR, name);
    sx_buf_init(&text, 1 << 20);
    sx_test_read_file(path, &text);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph));
    sx_buf_fini(&text);
    return graph;
}

static uint32_t count_op(const sx_graph *graph, sx_op op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        count += graph->node[i].op == op ? 1 : 0;
    }
    return count;
}

static sx_graph *optimize_with(const sx_graph *in, const sx_optimize_options *options)
{
    sx_graph *out;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, options, &out, &report));
    ck_sx_ok(&cx, sx_graph_check(&cx, out));
    /* attention has no kernel: what must be taken instead may cost more than its estimate */
    if (count_op(in, SX_OP_ATTENTION) == 0) {
        ck_assert_double_le(report.cost_after_ns, report.cost_before_ns * (1 + 1e-9));
    }
    return out;
}

static sx_graph *optimize(const sx_graph *in)
{
    sx_optimize_options options = sx_optimize_defaults();
    return optimize_with(in, &options);
}

static sx_graph *bound_to(const sx_graph *graph, int64_t extent)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_graph *bound;
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        binding[i] = (sx_binding){graph->symbol[i].name, extent};
    }
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, binding, graph->symbol_count, &bound));
    return bound;
}

/* Greatest deviation of two programs of one interface on random arguments. */
static double differ(const sx_graph *a, const sx_graph *b, sx_eval_mode mode, fill_kind fill,
                     uint64_t seed)
{
    ck_assert_uint_eq(a->output_count, b->output_count);
    sx_tensor *argument[2];
    sx_tensor *result[2];
    const sx_graph *graph[2] = {bound_to(a, 3), bound_to(b, 3)};
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t count;
        sx_rng rng = {seed};
        ck_sx_ok(&cx, random_arguments(&cx, &rng, graph[i], mode, fill, &argument[i], &count));
        result[i] = SX_NEW_ARRAY(&cx, sx_tensor, a->output_count);
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph[i], mode, argument[i], count, result[i],
                                    a->output_count));
    }
    double worst = 0;
    for (uint32_t k = 0; k < a->output_count; k++) {
        ck_assert(sx_span_equal(a->output[k].name, b->output[k].name));
        double gap = deviation(&result[0][k], &result[1][k], mode);
        worst = gap > worst ? gap : worst;
    }
    return worst;
}

static void check_interface(const sx_graph *in, const sx_graph *out)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < in->node_count; i++) {
        if (in->node[i].op == SX_OP_PARAMETER) {
            while (at < out->node_count && out->node[at].op != SX_OP_PARAMETER) {
                at++;
            }
            ck_assert_uint_lt(at, out->node_count);
            ck_assert(sx_span_equal(sx_graph_attr(in, &in->node[i])->name,
                                    sx_graph_attr(out, &out->node[at])->name));
            at++;
        }
    }
    ck_assert_uint_eq(count_op(in, SX_OP_PARAMETER), count_op(out, SX_OP_PARAMETER));
}

/* ---- golden programs ---- */

static const struct {
    const char *name;
    uint32_t kernels;
    sx_rule_id recognised; /* must have united something; SX_RULE_LIFT: no composite expected */
} golden[] = {
    {"relu_matmul_bias", 1, SX_RULE_RELU},
    {"softmax", 1, SX_RULE_SOFTMAX},
    {"layer_norm_1", 1, SX_RULE_LAYER_NORM},
    {"layer_norm_2", 1, SX_RULE_LAYER_NORM},
    {"layer_norm_3", 1, SX_RULE_LAYER_NORM},
    {"rms_norm", 1, SX_RULE_RMS_NORM},
    {"gelu_1", 1, SX_RULE_GELU_HALF_LAST},
    {"gelu_2", 1, SX_RULE_GELU_HALF_FIRST},
    {"gelu_tanh", 1, SX_RULE_GELU_HALF_FIRST},
    {"factor_matmul", 2, SX_RULE_DOT_FACTOR_LEFT},
    {"identities", 1, SX_RULE_MULTIPLY_ONE},
    {"encoder_block", 7, SX_RULE_LAYER_NORM},
    {"conv_norm_relu", 7, SX_RULE_CONV_BATCH_NORM},
    {"fire_module", 2, SX_RULE_CONV_ENLARGE_JOINED},
    {"rep_block", 2, SX_RULE_CONV_ENLARGE_ADDED},
    {"norm_conv", 9, SX_RULE_INPUT_SHIFT_FROM_CONV},
    {"one_hot", 1, SX_RULE_ONE_HOT_DOT},
};

static void compare_golden(const char *name, const sx_graph *out)
{
    char path[512];
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    ck_sx_ok(&cx, sx_graph_print(&cx, out, &text));
    (void)snprintf(path, sizeof(path), "%s/tests/golden/egraph/%s.out", SX_SOURCE_DIR, name);
    const char *update = getenv("SX_GOLDEN");
    if (update != NULL && strcmp(update, "update") == 0) {
        FILE *file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(text.ptr, 1, text.len, file), text.len);
        (void)fclose(file);
    }
    sx_buf expected;
    sx_buf_init(&expected, 1 << 20);
    sx_test_read_file(path, &expected);
    ck_assert_msg(sx_span_equal(sx_buf_span(&expected), sx_buf_span(&text)),
                  "%s: the program is another:\n%.*s", name, (int)text.len, (char *)text.ptr);
    sx_buf_fini(&expected);
    sx_buf_fini(&text);
}

START_TEST(test_golden)
{
    const sx_graph *in = read_golden(golden[_i].name);
    const sx_graph *out = optimize(in);
    ck_assert_uint_eq(count_op(out, SX_OP_FUSED), golden[_i].kernels);
    ck_assert_uint_gt(report.match_count[golden[_i].recognised], 0);
    ck_assert_uint_gt(report.union_count[golden[_i].recognised], 0);
    check_interface(in, out);
    uint64_t seed = sx_test_seed();
    ck_assert_double_le(differ(in, out, SX_EVAL_F64, FILL_PLAIN, seed), 2e-6);
    compare_golden(golden[_i].name, out);
}
END_TEST

/* Every program of the proof equals the one before; the first is the input, the last what came out. */
START_TEST(test_proofs_replay)
{
    const sx_graph *in = read_golden(golden[_i].name);
    const sx_graph *out = optimize(in);
    const sx_proof *proof = report.proof;
    uint64_t seed = sx_test_seed();
    ck_assert_ptr_nonnull(proof);
    ck_assert_uint_gt(proof->step_count, 0);
    sx_graph *before;
    ck_sx_ok(&cx, sx_proof_program(&cx, proof, 0, &before));
    ck_assert_double_eq(differ(in, before, SX_EVAL_MODP, FILL_PLAIN, seed), 0);
    for (uint32_t k = 1; k <= proof->step_count; k++) {
        sx_graph *after;
        ck_sx_ok(&cx, sx_proof_program(&cx, proof, k, &after));
        ck_sx_ok(&cx, sx_graph_check(&cx, after));
        double gap = differ(before, after, SX_EVAL_F64, FILL_PLAIN, seed);
        ck_assert_msg(gap <= 2e-6, "step %u deviates by %g: %.*s", k, gap,
                      (int)proof->step[k - 1].after.len,
                      (const char *)proof->step[k - 1].after.ptr);
        before = after;
    }
    ck_assert_double_eq(differ(before, out, SX_EVAL_MODP, FILL_PLAIN, seed), 0);
    sx_buf text;
    sx_buf_init(&text, 1 << 22);
    sx_proof_print(proof, &text);
    sx_buf_put_u8(&text, 0);
    ck_assert_int_eq(text.code, SX_OK);
    ck_assert_ptr_nonnull(strstr((const char *)text.ptr, "lift (exact)"));
    sx_buf_fini(&text);
}
END_TEST

/* The chain names every rule without which the result would not be: each of those, switched off, changes the
 * program. */
START_TEST(test_proof_names_premises)
{
    static const char *const needed[] = {"layer-norm", "power-two", "divide-root-broadcast"};
    const sx_graph *out = optimize(read_golden("layer_norm_1"));
    sx_buf text;
    sx_buf_init(&text, 1 << 22);
    sx_proof_print(report.proof, &text);
    sx_buf_put_u8(&text, 0);
    ck_assert_uint_eq(count_op(out, SX_OP_FUSED), 1);
    for (uint32_t i = 0; i < SX_COUNT(needed); i++) {
        ck_assert_msg(strstr((const char *)text.ptr, needed[i]) != NULL, "%s is missing in\n%s",
                      needed[i], (const char *)text.ptr);
    }
    ck_assert_ptr_null(strstr((const char *)text.ptr, "softmax"));
    sx_buf_fini(&text);
}
END_TEST

static uint32_t kernels_without(const char *name, const char *rule)
{
    sx_optimize_options options = sx_optimize_defaults();
    sx_span disabled[] = {sx_span_of(rule)};
    options.disabled = disabled;
    options.disabled_count = 1;
    const sx_graph *in = read_golden(name);
    const sx_graph *out = optimize_with(in, &options);
    ck_assert_double_le(differ(in, out, SX_EVAL_F64, FILL_PLAIN, 1), 2e-6);
    return count_op(out, SX_OP_FUSED);
}

/* What is found is due to the rules: without one of them there are more kernels. */
START_TEST(test_rules_make_the_difference)
{
    ck_assert_uint_eq(kernels_without("relu_matmul_bias", "add-commute"), 1);
    ck_assert_uint_gt(kernels_without("relu_matmul_bias", "fuse-epilogue"), 1);
    ck_assert_uint_gt(kernels_without("layer_norm_1", "divide-root-broadcast"), 1);
    ck_assert_uint_gt(kernels_without("softmax", "softmax"), 1);
    ck_assert_uint_gt(kernels_without("encoder_block", "fuse-epilogue"), 7);
    ck_assert_uint_gt(kernels_without("encoder_block", "lift"), 7);
}
END_TEST

/* Without rules that change rounding the result has the bits of the input. */
START_TEST(test_exact_only)
{
    static const char *const names[] = {"relu_matmul_bias", "softmax", "encoder_block",
                                        "factor_matmul"};
    sx_optimize_options options = sx_optimize_defaults();
    options.allow_reassociating = false;
    for (uint32_t i = 0; i < SX_COUNT(names); i++) {
        const sx_graph *in = read_golden(names[i]);
        const sx_graph *out = optimize_with(in, &options);
        ck_assert_double_eq(differ(in, out, SX_EVAL_TYPED, FILL_PLAIN, 7), 0);
        for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
            ck_assert(report.union_count[r] == 0 || sx_rule_class_of(r) == SX_RULE_EXACT);
        }
    }
}
END_TEST

/* A program of operations: no kernel in it, the same values. */
START_TEST(test_unfused)
{
    sx_optimize_options options = sx_optimize_defaults();
    options.unfused = true;
    const sx_graph *in = read_golden(golden[_i].name);
    sx_graph *out;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_sx_ok(&cx, sx_graph_check(&cx, out));
    ck_assert_uint_eq(count_op(out, SX_OP_FUSED), 0);
    if (strcmp(golden[_i].name, "factor_matmul") == 0) {
        ck_assert_uint_lt(count_op(out, SX_OP_DOT_GENERAL), count_op(in, SX_OP_DOT_GENERAL));
    }
    check_interface(in, out);
    ck_assert_double_le(differ(in, out, SX_EVAL_F64, FILL_PLAIN, sx_test_seed()), 2e-6);
    const sx_graph *kernels = optimize(in);
    sx_graph *none;
    ck_sx_fails(&cx, sx_optimize(&cx, kernels, device, &options, &none, &report), SX_UNIMPLEMENTED,
                "is a fused kernel");
}
END_TEST

/* A kernel that only copies: one argument read, nothing computed. */
static uint32_t count_copies(const sx_graph *graph)
{
    uint32_t copies = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->node[i].op == SX_OP_FUSED) {
            copies += sx_graph_attr(graph, &graph->node[i])->body->instr_count == 1 ? 1 : 0;
        }
    }
    return copies;
}

START_TEST(test_transposes_vanish)
{
    const sx_graph *in = read_golden("encoder_block");
    ck_assert_uint_ge(count_op(in, SX_OP_TRANSPOSE), 5);
    const sx_graph *out = optimize(in);
    ck_assert_uint_eq(count_op(out, SX_OP_TRANSPOSE), 0);
    ck_assert_uint_eq(count_copies(out), 0);
}
END_TEST

/* A product of matrices; extent[i] x extent[i + 1] each, multiplied from the left. */
static sx_graph *make_chain(const int64_t *extent, uint32_t count)
{
    sx_graph *graph;
    sx_node_id product;
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("chain"), NULL, &graph));
    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        sx_node_id matrix;
        sx_type type = {.dtype = SX_F32, .rank = 2};
        type.dim[0] = sx_dim_of(extent[i]);
        type.dim[1] = sx_dim_of(extent[i + 1]);
        (void)snprintf(name, sizeof(name), "m%u", i);
        ck_sx_ok(&cx, sx_build_parameter(&cx, graph, name, false, &type, &matrix));
        sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                                   SX_A(rhs_contract),
                        .lhs_contract = {1, {1}},
                        .rhs_contract = {1, {0}}};
        sx_node_id input[2] = {product, matrix};
        if (i == 0) {
            product = matrix;
        } else {
            ck_sx_ok(&cx, sx_graph_add(&cx, graph, SX_OP_DOT_GENERAL, &attr, input, 2, &product));
        }
    }
    ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, SX_SPAN_LITERAL("y"), product));
    return graph;
}

/* What one product of the chain costs as a kernel of its own. */
static double product_ns(int64_t m, int64_t inner, int64_t n)
{
    int64_t extent[] = {m, inner, n};
    sx_cost cost;
    ck_sx_ok(&cx, sx_price_program(&cx, sx_device_class(device), make_chain(extent, 2), &cost));
    return cost.cost_ns;
}

/* A chain of five matrices is multiplied in the order of least cost, by dynamic programming over the same prices. */
START_TEST(test_matrix_chain_is_optimal)
{
    static const int64_t extent[] = {30, 350, 150, 5, 100, 200};
    double best[5][5];
    for (uint32_t span = 0; span < 5; span++) {
        for (uint32_t i = 0; i + span < 5; i++) {
            best[i][i + span] = span == 0 ? 0 : HUGE_VAL;
            for (uint32_t k = i; k < i + span; k++) {
                double total = best[i][k] + best[k + 1][i + span] +
                               product_ns(extent[i], extent[k + 1], extent[i + span + 1]);
                best[i][i + span] = total < best[i][i + span] ? total : best[i][i + span];
            }
        }
    }
    sx_optimize_options options = sx_optimize_defaults();
    options.range_any = true; /* products of other pairs of matrices */
    (void)optimize_with(make_chain(extent, 5), &options);
    ck_assert_double_eq_tol(report.cost_after_ns, best[0][4], 1e-3 * best[0][4]);
    ck_assert_double_lt(report.cost_after_ns, report.cost_before_ns);
}
END_TEST

/* A program made to explode: a long chain of matrices. Stops at its limit, says which, and keeps the best so far. */
START_TEST(test_exploding_program)
{
    int64_t extent[31];
    for (uint32_t i = 0; i < SX_COUNT(extent); i++) {
        extent[i] = 1 + (i * 7) % 5;
    }
    const sx_graph *graph = make_chain(extent, 30);
    static const sx_eg_stop stop[] = {SX_STOP_NODES, SX_STOP_FUEL, SX_STOP_ROUNDS, SX_STOP_BYTES};
    for (uint32_t i = 0; i < SX_COUNT(stop); i++) {
        sx_optimize_options options = sx_optimize_defaults();
        options.range_any = true;
        options.limits.nodes = i == 0 ? 2000 : options.limits.nodes;
        options.limits.fuel = i == 1 ? 20000 : options.limits.fuel;
        options.limits.rounds = i == 2 ? 3 : options.limits.rounds;
        options.limits.bytes = i == 3 ? 400000 : options.limits.bytes;
        options.extract_fuel = 50000;
        const sx_graph *out = optimize_with(graph, &options);
        ck_assert_int_eq(report.stop, stop[i]);
        ck_assert_uint_lt(report.nodes, 8000);
        ck_assert_double_eq(differ(graph, out, SX_EVAL_MODP, FILL_PLAIN, 3), 0);
    }
}
END_TEST

/* A very long program: larger than the limits from the start. It is answered all the same, by a whole program,
 * with a whole proof. */
START_TEST(test_deep_program)
{
    static const sx_op ops[] = {SX_OP_ADD, SX_OP_MULTIPLY, SX_OP_SUBTRACT};
    sx_graph *graph;
    sx_node_id value;
    sx_node_id other;
    sx_type type = {.dtype = SX_F32, .rank = 1};
    type.dim[0] = sx_dim_of(4);
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("deep"), NULL, &graph));
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "a", false, &type, &value));
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "b", false, &type, &other));
    for (uint32_t i = 0; i < 20000; i++) {
        ck_sx_ok(&cx, sx_build_binary(&cx, graph, ops[i % 3], value, other, &value));
    }
    ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, SX_SPAN_LITERAL("y"), value));
    sx_optimize_options options = sx_optimize_defaults();
    options.limits.nodes = 10000;
    options.limits.fuel = 500000;
    const sx_graph *out = optimize_with(graph, &options);
    ck_assert_int_eq(report.stop, SX_STOP_NODES);
    ck_assert_uint_lt(count_op(out, SX_OP_FUSED), 20000);
    ck_assert_double_eq(differ(graph, out, SX_EVAL_MODP, FILL_PLAIN, 5), 0);
}
END_TEST

START_TEST(test_unknown_rule_is_refused)
{
    sx_optimize_options options = sx_optimize_defaults();
    sx_span disabled[] = {SX_SPAN_LITERAL("no-such-rule")};
    options.disabled = disabled;
    options.disabled_count = 1;
    sx_graph *out;
    ck_sx_fails(&cx, sx_optimize(&cx, read_golden("softmax"), device, &options, &out, &report),
                SX_INPUT, "no-such-rule");
}
END_TEST

START_TEST(test_same_bytes_every_time)
{
    sx_buf text[2];
    for (uint32_t i = 0; i < 2; i++) {
        sx_buf_init(&text[i], 1 << 22);
        (void)sx_alloc(&cx, 4000 * i);
        const sx_graph *out = optimize(read_golden("encoder_block"));
        ck_sx_ok(&cx, sx_graph_print(&cx, out, &text[i]));
        sx_proof_print(report.proof, &text[i]);
    }
    ck_assert(sx_span_equal(sx_buf_span(&text[0]), sx_buf_span(&text[1])));
    sx_buf_fini(&text[0]);
    sx_buf_fini(&text[1]);
}
END_TEST

/* ---- random programs ---- */

#define POOL 24
typedef struct {
    sx_graph *graph;
    sx_rng rng;
    sx_node_id value[POOL + 80];
    uint32_t count;
    /* So much higher are the values that comparisons and conversions to integers read. */
    double nudge;
} maker;

static uint32_t draw(maker *m, uint32_t bound)
{
    return (uint32_t)sx_rng_below(&m->rng, bound);
}

static sx_type type_of(const maker *m, sx_node_id id)
{
    return sx_graph_node(m->graph, id)->type;
}

/* A value of exactly this type, if there is one. */
static bool find_like(maker *m, const sx_type *type, sx_node_id *id)
{
    uint32_t first = draw(m, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        *id = m->value[(first + i) % m->count];
        sx_type other = type_of(m, *id);
        if (sx_type_equal(type, &other)) {
            return true;
        }
    }
    return false;
}

static bool make_view(maker *m, sx_node_id x, sx_node_id *id)
{
    sx_type type = type_of(m, x);
    if (type.rank == 0) {
        return false;
    }
    if (draw(m, 3) == 0) { /* merge or split */
        sx_type flat = type;
        if (type.rank >= 2) {
            flat.dim[0] = sx_dim_of(type.dim[0].scale * type.dim[1].scale);
            memmove(&flat.dim[1], &flat.dim[2], (type.rank - 2) * sizeof(sx_dim));
            flat.rank--;
        } else {
            flat.rank = 2;
            flat.dim[1] = flat.dim[0];
            flat.dim[0] = sx_dim_of(1);
        }
        sx_attr attr = {.present = SX_A(type), .type = flat};
        return sx_graph_add(&cx, m->graph, SX_OP_RESHAPE, &attr, &x, 1, id) == SX_OK;
    }
    if (draw(m, 2) == 0) {
        sx_ints perm = {.count = type.rank};
        for (uint32_t d = 0; d < type.rank; d++) {
            uint32_t k = draw(m, d + 1);
            perm.v[d] = perm.v[k];
            perm.v[k] = d;
        }
        return sx_build_transpose(&cx, m->graph, x, &perm, id) == SX_OK;
    }
    if (type.rank >= 4) {
        return false;
    }
    sx_type wide = type;
    sx_ints dims = {.count = type.rank};
    uint32_t at = draw(m, type.rank + 1);
    memmove(&wide.dim[at + 1], &wide.dim[at], (type.rank - at) * sizeof(sx_dim));
    wide.dim[at] = sx_dim_of(3);
    wide.rank++;
    for (uint32_t d = 0; d < type.rank; d++) {
        dims.v[d] = d < at ? d : d + 1;
    }
    return sx_build_broadcast(&cx, m->graph, x, &dims, &wide, id) == SX_OK;
}

static bool make_dot(maker *m, sx_node_id x, sx_node_id *id)
{
    sx_type left = type_of(m, x);
    if (left.rank == 0 || left.rank > 3) {
        return false;
    }
    for (uint32_t attempt = 0; attempt < 10; attempt++) {
        sx_node_id y = m->value[draw(m, m->count)];
        sx_type right = type_of(m, y);
        if (right.rank == 0 || right.rank > 2) {
            continue;
        }
        uint32_t k = draw(m, left.rank);
        uint32_t j = draw(m, right.rank);
        if (sx_dim_equal(left.dim[k], right.dim[j])) {
            sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                                       SX_A(rhs_contract),
                            .lhs_contract = {1, {k}},
                            .rhs_contract = {1, {j}}};
            sx_node_id input[2] = {x, y};
            return sx_graph_add(&cx, m->graph, SX_OP_DOT_GENERAL, &attr, input, 2, id) == SX_OK;
        }
    }
    return false;
}

static bool make_row(maker *m, sx_node_id x, sx_node_id *id)
{
    sx_type type = type_of(m, x);
    if (type.rank == 0) {
        return false;
    }
    if (draw(m, 2) == 0) {
        sx_attr attr = {.present = SX_A(axis), .axis = draw(m, type.rank)};
        return sx_graph_add(&cx, m->graph, SX_OP_SOFTMAX, &attr, &x, 1, id) == SX_OK;
    }
    sx_ints dims = {1, {draw(m, type.rank)}};
    return sx_build_reduce(&cx, m->graph, draw(m, 2) == 0 ? SX_SUM : SX_MAX, x, &dims, id) == SX_OK;
}

/* The value, higher by `nudge` of its size; the value itself where that is 0. */
static sx_node_id nudged(maker *m, sx_node_id x)
{
    sx_type type = type_of(m, x);
    sx_node_id size, one, share;
    if (m->nudge > 0 || m->nudge < 0) {
        ck_sx_ok(&cx, sx_build_scalar(&cx, m->graph, &type, 1, &one));
        ck_sx_ok(&cx, sx_build_scalar(&cx, m->graph, &type, m->nudge, &share));
        ck_sx_ok(&cx, sx_build_unary(&cx, m->graph, SX_OP_ABS, x, &size));
        ck_sx_ok(&cx, sx_build_binary(&cx, m->graph, SX_OP_ADD, size, one, &size));
        ck_sx_ok(&cx, sx_build_binary(&cx, m->graph, SX_OP_MULTIPLY, size, share, &size));
        ck_sx_ok(&cx, sx_build_binary(&cx, m->graph, SX_OP_ADD, x, size, &x));
    }
    return x;
}

/* Through another element type and back: the rounding must survive. */
static bool make_convert(maker *m, sx_node_id x, sx_node_id *id)
{
    static const sx_dtype dtypes[] = {SX_BF16, SX_F16, SX_F64, SX_I32};
    sx_attr attr = {.present = SX_A(type), .type = type_of(m, x)};
    sx_dtype back = attr.type.dtype;
    attr.type.dtype = dtypes[draw(m, SX_COUNT(dtypes))];
    x = attr.type.dtype == SX_I32 ? nudged(m, x) : x;
    if (sx_graph_add(&cx, m->graph, SX_OP_CONVERT, &attr, &x, 1, id) != SX_OK) {
        return false;
    }
    if (draw(m, 2) == 0 && sx_dtype_class_of(attr.type.dtype) == SX_CLASS_FLOAT &&
        sx_build_unary(&cx, m->graph, SX_OP_NEGATE, *id, id) != SX_OK) {
        return false;
    }
    attr.type.dtype = back;
    return sx_graph_add(&cx, m->graph, SX_OP_CONVERT, &attr, id, 1, id) == SX_OK;
}

static bool make_select(maker *m, sx_node_id x, sx_node_id *id)
{
    sx_type type = type_of(m, x);
    sx_node_id input[3];
    if (!find_like(m, &type, &input[1]) || !find_like(m, &type, &input[2])) {
        return false;
    }
    sx_attr attr = {.present = SX_A(direction), .direction = draw(m, SX_DIRECTION_COUNT)};
    sx_node_id pair[2] = {input[1].i != x.i ? nudged(m, x) : x, input[1]};
    return sx_graph_add(&cx, m->graph, SX_OP_COMPARE, &attr, pair, 2, &input[0]) == SX_OK &&
           sx_graph_add(&cx, m->graph, SX_OP_SELECT, &(sx_attr){0}, input, 3, id) == SX_OK;
}

/* A part of a tensor, or two joined. */
static bool make_part(maker *m, sx_node_id x, sx_node_id *id)
{
    sx_type type = type_of(m, x);
    if (type.rank == 0) {
        return false;
    }
    uint32_t axis = draw(m, type.rank);
    if (draw(m, 2) == 0) {
        sx_attr attr = {.present = SX_A(axis), .axis = axis};
        sx_node_id pair[2] = {x, x};
        return find_like(m, &type, &pair[1]) && type.dim[axis].scale < 8 &&
               sx_graph_add(&cx, m->graph, SX_OP_CONCATENATE, &attr, pair, 2, id) == SX_OK;
    }
    sx_attr attr = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    attr.start.count = attr.limit.count = attr.stride.count = type.rank;
    for (uint32_t d = 0; d < type.rank; d++) {
        attr.limit.v[d] = type.dim[d].scale;
        attr.stride.v[d] = 1;
    }
    attr.start.v[axis] = draw(m, (uint32_t)type.dim[axis].scale);
    attr.stride.v[axis] = 1 + draw(m, 2);
    return sx_graph_add(&cx, m->graph, SX_OP_SLICE, &attr, &x, 1, id) == SX_OK;
}

static bool make_norm(maker *m, sx_node_id x, sx_node_id *id)
{
    sx_type type = type_of(m, x);
    if (type.rank == 0) {
        return false;
    }
    sx_type row = {.dtype = type.dtype, .rank = 1};
    row.dim[0] = type.dim[type.rank - 1];
    sx_node_id input[3] = {x, x, x};
    for (uint32_t k = 1; k < 3; k++) {
        if (!find_like(m, &row, &input[k])) {
            ck_sx_ok(&cx, sx_build_scalar(&cx, m->graph, &row, 0.5 * k, &input[k]));
        }
    }
    sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = type.rank - 1, .eps = 0.125};
    return draw(m, 2) == 0
               ? sx_graph_add(&cx, m->graph, SX_OP_LAYER_NORM, &attr, input, 3, id) == SX_OK
               : sx_graph_add(&cx, m->graph, SX_OP_RMS_NORM, &attr, input, 2, id) == SX_OK;
}

static bool make_attention(maker *m, sx_node_id x, sx_node_id *id)
{
    sx_type type = type_of(m, x);
    sx_node_id input[3] = {x, x, x};
    if (type.rank < 2 || !find_like(m, &type, &input[1]) || !find_like(m, &type, &input[2])) {
        return false;
    }
    sx_attr attr = {.present = SX_A(scale), .scale = 0.5};
    return sx_graph_add(&cx, m->graph, SX_OP_ATTENTION, &attr, input, 3, id) == SX_OK;
}

static bool make_rare(maker *m, sx_node_id x, sx_node_id *id)
{
    switch (draw(m, 5)) {
    case 0: return make_convert(m, x, id);
    case 1: return make_select(m, x, id);
    case 2: return make_part(m, x, id);
    case 3: return make_norm(m, x, id);
    default: return make_attention(m, x, id);
    }
}

static bool make_node(maker *m, sx_node_id *id)
{
    static const sx_op unary[] = {SX_OP_NEGATE, SX_OP_ABS, SX_OP_TANH, SX_OP_RELU, SX_OP_GELU};
    static const sx_op binary[] = {SX_OP_ADD, SX_OP_SUBTRACT, SX_OP_MULTIPLY, SX_OP_MAXIMUM};
    sx_node_id x = m->value[m->count - 1 - draw(m, m->count < 6 ? m->count : 6)];
    sx_node_id y;
    sx_type type = type_of(m, x);
    switch (draw(m, 10)) {
    case 0: return sx_build_unary(&cx, m->graph, unary[draw(m, 5)], x, id) == SX_OK;
    case 1:
    case 2:
        return find_like(m, &type, &y) &&
               sx_build_binary(&cx, m->graph, binary[draw(m, 4)], x, y, id) == SX_OK;
    case 3: {
        static const double value[] = {0, 1, -1, 0.5, 2};
        ck_sx_ok(&cx, sx_build_scalar(&cx, m->graph, &type, value[draw(m, 5)], &y));
        bool first = draw(m, 2) == 0;
        return sx_build_binary(&cx, m->graph, binary[draw(m, 4)], first ? y : x, first ? x : y,
                               id) == SX_OK;
    }
    case 4:
    case 5: return make_view(m, x, id);
    case 6: return make_dot(m, x, id);
    case 7: return make_row(m, x, id);
    default: return make_rare(m, x, id);
    }
}

static sx_graph *make_program(uint64_t seed, uint32_t size, double nudge)
{
    maker m = {.rng = {seed}, .nudge = nudge};
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("random"), NULL, &m.graph));
    for (uint32_t i = 0; i < 5; i++) {
        char name[16];
        sx_type type = {.dtype = SX_F32, .rank = 1 + draw(&m, 3)};
        for (uint32_t d = 0; d < type.rank; d++) {
            static const int64_t extents[] = {1, 2, 3, 4};
            type.dim[d] = sx_dim_of(extents[draw(&m, 4)]);
        }
        (void)snprintf(name, sizeof(name), "p%u", i);
        ck_sx_ok(&cx, sx_build_parameter(&cx, m.graph, name, draw(&m, 2) == 0, &type,
                                         &m.value[m.count++]));
    }
    for (uint32_t made = 0, tries = 0; made < size && tries < 1000; tries++) {
        sx_node_id id;
        if (make_node(&m, &id)) {
            m.value[m.count++] = id;
            made++;
        } else {
            sx_ctx_reset_error(&cx);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "y%u", i);
        ck_sx_ok(&cx,
                 sx_graph_add_output(&cx, m.graph, sx_span_of(name), m.value[m.count - 1 - 3 * i]));
    }
    return m.graph;
}

/* ---- what rounding decides: a comparison of two values that are equal over the reals, such as a mean of equal
 * rows beside such a row ---- */

#define UNDECIDED_SHARE 10u
#define NUDGE \
    1e-9 /* far above what rounding changes in f64, far below what distinct values differ by */

typedef struct {
    const sx_graph *in, *higher, *lower; /* the program, and what it is with both nudges */
    uint64_t elements, undecided;
} undecided;

static sx_tensor *results_of(const sx_graph *graph, uint64_t seed)
{
    sx_tensor *argument;
    uint32_t count;
    sx_rng rng = {seed};
    sx_tensor *result = SX_NEW_ARRAY(&cx, sx_tensor, graph->output_count);
    ck_sx_ok(&cx, random_arguments(&cx, &rng, graph, SX_EVAL_F64, FILL_PLAIN, &argument, &count));
    ck_sx_ok(&cx,
             sx_graph_eval(&cx, graph, SX_EVAL_F64, argument, count, result, graph->output_count));
    return result;
}

/* Greatest deviation of `out`, elements aside that a nudge changes: nudges reach nothing but comparisons and
 * conversions to integers, so an element they change stands at a step of the function. */
static double differ_decided(undecided *u, const sx_graph *out, uint64_t seed)
{
    const sx_tensor *is = results_of(u->in, seed), *now = results_of(out, seed);
    const sx_tensor *high = results_of(u->higher, seed), *low = results_of(u->lower, seed);
    double worst = 0;
    for (uint32_t k = 0; k < u->in->output_count; k++) {
        uint64_t *plain = is[k].data, *up = high[k].data, *down = low[k].data, *got = now[k].data;
        int64_t count = 1;
        for (uint32_t d = 0; d < is[k].type.rank; d++) {
            count *= is[k].type.dim[d].scale;
        }
        for (int64_t e = 0; e < count; e++) {
            bool steps = plain[e] != up[e] || plain[e] != down[e];
            got[e] = steps ? plain[e] : got[e];
            u->undecided += steps ? 1 : 0;
        }
        u->elements += (uint64_t)count;
        double gap = deviation(&is[k], &now[k], SX_EVAL_F64);
        worst = gap > worst ? gap : worst;
    }
    return worst;
}

/* Different slices of one stream of seeds, so that one case stays short. */
#define SLICES 4
static uint64_t random_seed;
START_TEST(test_random_programs)
{
    undecided u = {0};
    for (uint32_t i = 0; i < 60; i++) {
        uint64_t seed = random_seed + (uint64_t)_i * 1000 + i;
        uint32_t size = 6 + i % 20;
        const sx_graph *in = u.in = make_program(seed, size, 0);
        sx_optimize_options options = sx_optimize_defaults();
        options.limits.nodes = 1500;
        options.extract_fuel = 20000;
        const sx_graph *out = optimize_with(in, &options);
        check_interface(in, out);
        u.higher = make_program(seed, size, NUDGE);
        u.lower = make_program(seed, size, -NUDGE);
        double gap = differ_decided(&u, out, seed);
        ck_assert_msg(gap < 1e-4, "program %llu deviates by %g", (unsigned long long)seed, gap);
        options.allow_reassociating = false;
        out = optimize_with(in, &options);
        gap = differ(in, out, SX_EVAL_TYPED, FILL_EXTREME, seed);
        ck_assert_msg(gap == 0, "program %llu changes bits by %g", (unsigned long long)seed, gap);
        if (i % 8 == 0) {
            sx_graph *replayed;
            ck_sx_ok(&cx, sx_proof_program(&cx, report.proof, report.proof->step_count, &replayed));
            ck_assert_double_eq(differ(in, replayed, SX_EVAL_TYPED, FILL_EXTREME, seed), 0);
        }
        sx_ctx_fini(&cx);
        setup();
    }
    ck_assert_uint_gt(u.elements, 100);
    ck_assert_uint_lt(u.undecided, u.elements / UNDECIDED_SHARE);
}
END_TEST

/* Equal over the reals: which side of the comparison is taken is for the rounding of the mean to say. Two
 * values that differ are still told apart. */
START_TEST(test_ties_are_undecided)
{
    static const char text[] = "sx 1\ngraph \"g\" {\n"
                               "  %%0 = parameter {name = \"x\", weight = 0} : f32[3, 1]\n"
                               "  %%1 = constant {data = %s} : f32[3, 1]\n"
                               "  %%2 = add(%%0, %%1) : f32[3, 1]\n"
                               "  %%3 = compare(%%2, %%0) {direction = %s} : bool[3, 1]\n"
                               "  %%4 = constant {data = 7} : f32[3, 1]\n"
                               "  %%5 = select(%%3, %%0, %%4) : f32[3, 1]\n"
                               "  return %%5 as \"y\"\n}\n";
    static const struct {
        const char *nudge, *direction;
    } by[] = {{"0", "le"}, {"1e-9", "le"}, {"-1e-9", "le"}, {"0", "gt"}, {"0.5", "le"}};
    const sx_graph *graph[SX_COUNT(by)];
    for (size_t i = 0; i < SX_COUNT(by); i++) {
        char program[600];
        (void)snprintf(program, sizeof(program), text, by[i].nudge, by[i].direction);
        sx_graph *parsed;
        ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(program), &parsed));
        graph[i] = parsed;
    }
    undecided tie = {.in = graph[0], .higher = graph[1], .lower = graph[2]};
    ck_assert_double_eq(differ_decided(&tie, graph[3], 1), 0);
    ck_assert_uint_eq(tie.undecided, 3);
    undecided plain = {.in = graph[0], .higher = graph[0], .lower = graph[0]};
    ck_assert_double_gt(differ_decided(&plain, graph[4], 1), 0);
    ck_assert_uint_eq(plain.undecided, 0);
}
END_TEST

int main(void)
{
    random_seed = sx_test_seed();
    Suite *suite = suite_create("core.optimize.optimize");
    TCase *cases = tcase_create("optimize");
    tcase_set_timeout(cases, 400);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_golden, 0, (int)SX_COUNT(golden));
    tcase_add_loop_test(cases, test_unfused, 0, SX_COUNT(golden));
    tcase_add_loop_test(cases, test_proofs_replay, 0, (int)SX_COUNT(golden));
    tcase_add_test(cases, test_proof_names_premises);
    tcase_add_test(cases, test_rules_make_the_difference);
    tcase_add_test(cases, test_exact_only);
    tcase_add_test(cases, test_transposes_vanish);
    tcase_add_test(cases, test_matrix_chain_is_optimal);
    tcase_add_test(cases, test_exploding_program);
    tcase_add_test(cases, test_deep_program);
    tcase_add_test(cases, test_unknown_rule_is_refused);
    tcase_add_test(cases, test_same_bytes_every_time);
    tcase_add_test(cases, test_ties_are_undecided);
    tcase_add_loop_test(cases, test_random_programs, 0, SLICES);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
