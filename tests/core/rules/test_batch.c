/* Contractions that share nothing as one over their stacks: taken where many small ones cost more to start
 * than to do, left where they do not; heads of an attention written one by one become one kernel. */
#include "tests/core/optimize/optimized.h"

enum { SUMMED, JOINED, SHARED, CHAINED };

typedef struct {
    sx_graph *graph;
    uint32_t parameters;
} maker;

static sx_node_id parameter(maker *m, bool weight, int64_t rows, int64_t columns)
{
    char name[16];
    sx_node_id id;
    sx_type type = {.dtype = SX_F32, .rank = 2, .dim = {sx_dim_of(rows), sx_dim_of(columns)}};
    (void)snprintf(name, sizeof(name), "p%u", m->parameters++);
    ck_sx_ok(&cx, sx_build_parameter(&cx, m->graph, name, weight, &type, &id));
    return id;
}

static sx_node_id product(maker *m, sx_node_id a, sx_node_id b, int64_t right)
{
    sx_attr attr = {.present =
                        SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract),
                    .lhs_contract = {1, {1}},
                    .rhs_contract = {1, {right}}};
    sx_node_id input[2] = {a, b};
    sx_node_id id;
    ck_sx_ok(&cx, sx_graph_add(&cx, m->graph, SX_OP_DOT_GENERAL, &attr, input, 2, &id));
    return id;
}

/* relu(x_i w_i) for `count` pairs; their sum, or all of them side by side; SHARED: one x; CHAINED: each x is
 * the result before. */
static sx_graph *make_experts(uint32_t count, int64_t rows, int64_t width, uint32_t form)
{
    maker m = {0};
    sx_node_id part[64];
    sx_node_id y = {0};
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("experts"), NULL, &m.graph));
    sx_node_id x = parameter(&m, false, rows, width);
    for (uint32_t i = 0; i < count; i++) {
        x = i == 0 || form == SHARED ? x : form == CHAINED ? y : parameter(&m, false, rows, width);
        y = product(&m, x, parameter(&m, true, width, width), 0);
        ck_sx_ok(&cx, sx_build_unary(&cx, m.graph, SX_OP_RELU, y, &y));
        part[i] = y;
        if (form == SUMMED && i > 0) {
            ck_sx_ok(&cx, sx_build_binary(&cx, m.graph, SX_OP_ADD, part[i - 1], y, &part[i]));
        }
    }
    sx_attr join = {.present = SX_A(axis), .axis = 1};
    y = part[count - 1];
    if (form == JOINED || form == SHARED) {
        ck_sx_ok(&cx, sx_graph_add(&cx, m.graph, SX_OP_CONCATENATE, &join, part, count, &y));
    }
    ck_sx_ok(&cx, sx_graph_add_output(&cx, m.graph, SX_SPAN_LITERAL("y"), y));
    return m.graph;
}

static sx_node_id head_of(maker *m, sx_node_id x, uint32_t head, int64_t rows, int64_t width)
{
    sx_attr slice = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    sx_node_id id;
    slice.start = (sx_ints){2, {0, head * width}};
    slice.limit = (sx_ints){2, {rows, (head + 1) * width}};
    slice.stride = (sx_ints){2, {1, 1}};
    ck_sx_ok(&cx, sx_graph_add(&cx, m->graph, SX_OP_SLICE, &slice, &x, 1, &id));
    return id;
}

/* softmax(q k^T) v for each head by itself, results side by side */
static sx_graph *make_heads(uint32_t count, int64_t rows, int64_t width)
{
    maker m = {0};
    sx_node_id whole[3];
    sx_node_id part[64];
    sx_node_id y;
    sx_attr row = {.present = SX_A(axis), .axis = 1};
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("heads"), NULL, &m.graph));
    for (uint32_t k = 0; k < 3; k++) {
        whole[k] = parameter(&m, false, rows, count * width);
    }
    for (uint32_t i = 0; i < count; i++) {
        sx_node_id head[3];
        for (uint32_t k = 0; k < 3; k++) {
            head[k] = head_of(&m, whole[k], i, rows, width);
        }
        sx_node_id scores = product(&m, head[0], head[1], 1);
        ck_sx_ok(&cx, sx_graph_add(&cx, m.graph, SX_OP_SOFTMAX, &row, &scores, 1, &scores));
        part[i] = product(&m, scores, head[2], 0);
    }
    ck_sx_ok(&cx, sx_graph_add(&cx, m.graph, SX_OP_CONCATENATE, &row, part, count, &y));
    ck_sx_ok(&cx, sx_graph_add_output(&cx, m.graph, SX_SPAN_LITERAL("y"), y));
    return m.graph;
}

static uint32_t count_kernels(const sx_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        count += graph->node[i].op == SX_OP_FUSED ? 1 : 0;
    }
    return count;
}

/* ---- where it pays ---- */

START_TEST(test_many_small_ones)
{
    for (uint32_t form = SUMMED; form <= JOINED; form++) {
        const sx_graph *in = make_experts(8, 8, 16, form);
        const sx_graph *apart = optimize_without(in, "dot-batch");
        double apart_ns = report.cost_after_ns;
        ck_assert_uint_eq(count_contractions(apart), 8);
        const sx_graph *out = optimize(in);
        ck_assert_uint_eq(count_contractions(out), 1);
        ck_assert_int_eq(report.stop, SX_STOP_SATURATED);
        /* eight launches become those of the stack, of the contraction and of what reads it */
        ck_assert_double_le(report.cost_after_ns, apart_ns - 4 * device->launch_ns);
        ck_assert_double_eq(differ(in, out, SX_EVAL_MODP, 21), 0);
        ck_assert_double_le(differ(in, out, SX_EVAL_F64, 22), 1e-9);
    }
}
END_TEST

/* Copying the operands costs more than the launches; but where the results are joined anyway, the stack saves that. */
START_TEST(test_few_large_ones)
{
    for (uint32_t form = SUMMED; form <= JOINED; form++) {
        const sx_graph *in = make_experts(8, 256, 256, form);
        const sx_graph *out = optimize(in);
        ck_assert_uint_gt(report.union_count[SX_RULE_DOT_BATCH], 7); /* looked at, not taken */
        double cost_ns = report.cost_after_ns;
        ck_assert_uint_eq(count_contractions(out), form == SUMMED ? 8 : 1);
        (void)optimize_without(in, "dot-batch");
        ck_assert(form == SUMMED ? cost_ns == report.cost_after_ns
                                 : cost_ns < 0.99 * report.cost_after_ns);
    }
}
END_TEST

START_TEST(test_heads_one_by_one)
{
    const sx_graph *in = make_heads(8, 16, 8);
    const sx_graph *apart = optimize_without(in, "dot-batch");
    ck_assert_uint_eq(count_kernels(apart), 8);
    const sx_graph *out = optimize(in);
    ck_assert_uint_eq(count_kernels(out), 1); /* no copies, no scores in memory */
    for (uint32_t i = 0; i < out->node_count; i++) {
        ck_assert_int_ne(out->node[i].op, SX_OP_CONCATENATE);
    }
    ck_assert_double_le(differ(in, out, SX_EVAL_F64, 23), 1e-9);
}
END_TEST

/* ---- where it is not looked for ---- */

START_TEST(test_shared_operands_are_merged_instead)
{
    const sx_graph *in = make_experts(8, 8, 16, SHARED);
    const sx_graph *out = optimize(in);
    ck_assert_uint_eq(report.union_count[SX_RULE_DOT_BATCH], 0);
    ck_assert_uint_eq(count_contractions(out), 1);
}
END_TEST

/* Each reads the one before: one stack would have to be ready before itself. */
START_TEST(test_chain_stays_apart)
{
    const sx_graph *in = make_experts(3, 8, 16, CHAINED);
    const sx_graph *out = optimize(in);
    ck_assert_uint_eq(report.union_count[SX_RULE_DOT_BATCH], 0);
    ck_assert_uint_eq(count_contractions(out), 3);
    ck_assert_double_eq(differ(in, out, SX_EVAL_MODP, 3), 0);
}
END_TEST

/* Two chains side by side: their first steps are one stack, their second steps another. */
START_TEST(test_chains_side_by_side)
{
    maker m = {0};
    sx_node_id y[2];
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("chains"), NULL, &m.graph));
    for (uint32_t i = 0; i < 2; i++) {
        y[i] = parameter(&m, false, 8, 16);
        for (uint32_t k = 0; k < 2; k++) {
            y[i] = product(&m, y[i], parameter(&m, true, 16, 16), 0);
            ck_sx_ok(&cx, sx_build_unary(&cx, m.graph, SX_OP_TANH, y[i], &y[i]));
        }
        ck_sx_ok(&cx, sx_graph_add_output(
                          &cx, m.graph,
                          i == 0 ? SX_SPAN_LITERAL("first") : SX_SPAN_LITERAL("second"), y[i]));
    }
    const sx_graph *out = optimize(m.graph);
    ck_assert_uint_ge(report.union_count[SX_RULE_DOT_BATCH], 4);
    ck_assert_double_le(differ(m.graph, out, SX_EVAL_F64, 4), 1e-9);
}
END_TEST

/* ---- growth ---- */

/* Nodes added by the rules over several matches alone. */
static uint32_t nodes_of_experts(uint32_t count)
{
    sx_graph *graph = make_experts(count, 4, 4, SUMMED);
    sx_tensors t;
    sx_eg_ruleset set;
    sx_eg_run run;
    uint32_t *node = SX_NEW_ARRAY(&cx, uint32_t, graph->node_count);
    ck_sx_ok(&cx, sx_tensors_init(&cx, &t, graph));
    ck_sx_ok(&cx, sx_tensors_import(&cx, &t, graph, node));
    sx_eg_language language = sx_tensors_language(&t);
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &language, sx_rules, SX_RULE_ROUNDS_COUNT));
    for (uint32_t r = 0; r < SX_RULE_ROUNDS_COUNT; r++) {
        set.rule[r].enabled = sx_multi_is(set.rule[r].left);
    }
    sx_eg_limits limits = {
        .rounds = 24, .nodes = 200000, .matches = 2000, .fuel = 20000000, .bytes = SIZE_MAX};
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
    ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
    ck_assert_uint_ge(set.rule[SX_RULE_DOT_BATCH].union_count, count);
    return t.eg.live_count - graph->node_count;
}

START_TEST(test_growth_is_linear)
{
    for (uint32_t count = 4; count <= 60; count += 14) {
        ck_assert_uint_le(nodes_of_experts(count), 6 * count + 16);
    }
}
END_TEST

START_TEST(test_certificate_of_a_stack)
{
    const sx_graph *in = make_heads(4, 8, 4);
    sx_graph *out;
    sx_buf text;
    sx_certificate found;
    sx_optimize_options options = sx_optimize_defaults();
    sx_buf_init(&text, 1 << 24);
    options.with_certificate = true;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_assert_uint_eq(count_kernels(out), 1);
    ck_sx_ok(&cx, sx_optimize_certificate(&cx, &report, &text));
    ck_sx_ok(&cx, sx_certificate_check(&cx, sx_buf_span(&text), &found));
    ck_assert_uint_ge(found.rule_count[SX_RULE_DOT_BATCH], 1);
    ck_assert_uint_ge(found.rule_count[SX_RULE_STACK_STRIPS], 1);
    ck_assert_uint_ge(found.rule_count[SX_RULE_STRIPS_UNSTACKED], 1);
    /* with one member exchanged for another the step no longer holds */
    char *line = strstr((char *)text.ptr, "\ndot-batch ");
    ck_assert_ptr_nonnull(line);
    char *end = strchr(line + 1, '\n');
    char *last = end;
    while (*last != ' ') {
        last--;
    }
    for (char *c = last + 1; c < end; c++) {
        *c = '0';
    }
    ck_assert_int_ne(sx_certificate_check(&cx, sx_buf_span(&text), &found), SX_OK);
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.rules.batch");
    TCase *cases = tcase_create("batch");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_many_small_ones);
    tcase_add_test(cases, test_few_large_ones);
    tcase_add_test(cases, test_heads_one_by_one);
    tcase_add_test(cases, test_shared_operands_are_merged_instead);
    tcase_add_test(cases, test_chain_stays_apart);
    tcase_add_test(cases, test_chains_side_by_side);
    tcase_add_test(cases, test_growth_is_linear);
    tcase_add_test(cases, test_certificate_of_a_stack);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
