/* Several contractions as one: found where it pays, in linear space, never through a cycle, and equal to what
 * was there before. */
#include "tests/core/optimize/optimized.h"

/* ---- where it pays ---- */

/* Queries, keys and values of one input that others read too. */
static const char qkv[] =
    "sx 1\n"
    "graph \"qkv\" (batch in [1, 64]) {\n"
    "  %x = parameter {name = \"x\", weight = 0} : f32[batch, 32, 64]\n"
    "  %wq = parameter {name = \"wq\", weight = 1} : f32[64, 64]\n"
    "  %bq = parameter {name = \"bq\", weight = 1} : f32[64]\n"
    "  %wk = parameter {name = \"wk\", weight = 1} : f32[64, 64]\n"
    "  %bk = parameter {name = \"bk\", weight = 1} : f32[64]\n"
    "  %wv = parameter {name = \"wv\", weight = 1} : f32[64, 64]\n"
    "  %bv = parameter {name = \"bv\", weight = 1} : f32[64]\n"
    "  %q0 = dot_general(%x, %wq) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 32, 64]\n"
    "  %k0 = dot_general(%x, %wk) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 32, 64]\n"
    "  %v0 = dot_general(%x, %wv) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 32, 64]\n"
    "  %rq = broadcast_in_dim(%bq) {dims = [2]} : f32[batch, 32, 64]\n"
    "  %rk = broadcast_in_dim(%bk) {dims = [2]} : f32[batch, 32, 64]\n"
    "  %rv = broadcast_in_dim(%bv) {dims = [2]} : f32[batch, 32, 64]\n"
    "  %q1 = add(%q0, %rq) : f32[batch, 32, 64]\n"
    "  %k1 = add(%k0, %rk) : f32[batch, 32, 64]\n"
    "  %v1 = add(%v0, %rv) : f32[batch, 32, 64]\n"
    "  %q2 = reshape(%q1) : f32[batch, 32, 4, 16]\n"
    "  %k2 = reshape(%k1) : f32[batch, 32, 4, 16]\n"
    "  %v2 = reshape(%v1) : f32[batch, 32, 4, 16]\n"
    "  %q = transpose(%q2) {perm = [0, 2, 1, 3]} : f32[batch, 4, 32, 16]\n"
    "  %k = transpose(%k2) {perm = [0, 2, 3, 1]} : f32[batch, 4, 16, 32]\n"
    "  %v = transpose(%v2) {perm = [0, 2, 1, 3]} : f32[batch, 4, 32, 16]\n"
    "  %s = dot_general(%q, %k) {lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [3], "
    "rhs_contract = [2]} : f32[batch, 4, 32, 32]\n"
    "  %p = softmax(%s) {axis = 3} : f32[batch, 4, 32, 32]\n"
    "  %o = dot_general(%p, %v) {lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [3], "
    "rhs_contract = [2]} : f32[batch, 4, 32, 16]\n"
    "  %o1 = transpose(%o) {perm = [0, 2, 1, 3]} : f32[batch, 32, 4, 16]\n"
    "  %o2 = reshape(%o1) : f32[batch, 32, 64]\n"
    "  %y = add(%x, %o2) : f32[batch, 32, 64]\n"
    "  return %y as \"y\"\n"
    "}\n";

START_TEST(test_queries_keys_values)
{
    const sx_graph *in = parse(qkv);
    const sx_graph *without = optimize_without(in, "dot-merge-right");
    double separate_ns = report.cost_after_ns;
    ck_assert_uint_eq(count_contractions(without), 3); /* attention is an online sum */
    const sx_graph *out = optimize(in);
    ck_assert_uint_eq(count_contractions(out), 1);
    ck_assert_uint_gt(report.union_count[SX_RULE_DOT_MERGE_RIGHT], 2);
    ck_assert_uint_gt(report.union_count[SX_RULE_PARTS_REPEATED], 2);
    /* two launches and two readings of x are saved, and nothing is copied */
    ck_assert_double_le(report.cost_after_ns, separate_ns - 2 * device->launch_ns);
    ck_assert_double_le(differ(in, out, SX_EVAL_F64, sx_test_seed()), 2e-6);
    sx_buf text;
    sx_buf_init(&text, 1 << 22);
    sx_proof_print(report.proof, &text);
    sx_buf_put_u8(&text, 0);
    ck_assert_ptr_nonnull(strstr((const char *)text.ptr, "dot-merge-right (exact)"));
    sx_buf_fini(&text);
}
END_TEST

/* Branches of one image: biases and activations move to the merged convolution, and the concatenation is what
 * comes out of it. */
static const char branches[] =
    "sx 1\n"
    "graph \"branches\" (batch in [1, 64]) {\n"
    "  %x = parameter {name = \"x\", weight = 0} : f32[batch, 6, 7, 7]\n"
    "  %w1 = parameter {name = \"w1\", weight = 1} : f32[8, 6, 3, 3]\n"
    "  %b1 = parameter {name = \"b1\", weight = 1} : f32[8]\n"
    "  %w2 = parameter {name = \"w2\", weight = 1} : f32[4, 6, 3, 3]\n"
    "  %b2 = parameter {name = \"b2\", weight = 1} : f32[4]\n"
    "  %c1 = convolution(%x, %w1) {stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, "
    "1], groups = 1} : f32[batch, 8, 7, 7]\n"
    "  %c2 = convolution(%x, %w2) {stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, "
    "1], groups = 1} : f32[batch, 4, 7, 7]\n"
    "  %r1 = broadcast_in_dim(%b1) {dims = [1]} : f32[batch, 8, 7, 7]\n"
    "  %r2 = broadcast_in_dim(%b2) {dims = [1]} : f32[batch, 4, 7, 7]\n"
    "  %a1 = add(%c1, %r1) : f32[batch, 8, 7, 7]\n"
    "  %a2 = add(%c2, %r2) : f32[batch, 4, 7, 7]\n"
    "  %y1 = relu(%a1) : f32[batch, 8, 7, 7]\n"
    "  %y2 = relu(%a2) : f32[batch, 4, 7, 7]\n"
    "  %y = concatenate(%y1, %y2) {axis = 1} : f32[batch, 12, 7, 7]\n"
    "  return %y as \"y\"\n"
    "}\n";

START_TEST(test_branches_of_an_image)
{
    const sx_graph *in = parse(branches);
    const sx_graph *out = optimize(in);
    uint32_t kernels = 0;
    for (uint32_t i = 0; i < out->node_count; i++) {
        kernels += out->node[i].op == SX_OP_FUSED ? 1 : 0;
    }
    ck_assert_uint_eq(kernels, 1);
    ck_assert_uint_eq(count_contractions(out), 1);
    ck_assert_double_le(differ(in, out, SX_EVAL_F64, 13), 1e-9);
    ck_assert_double_eq(differ(in, out, SX_EVAL_MODP, 14), 0);
    const sx_graph *without = optimize_without(in, "conv-merge-right");
    ck_assert_uint_eq(count_contractions(without), 2);
}
END_TEST

/* What squeezes through 1x1 and 3x3 kernels of one image (the fire module of SqueezeNet): side by side, or
 * each read by something of its own. */
static sx_graph *make_fire(int64_t extent, bool joined)
{
    char text[4096];
    char type[64];
    int length = 0;
    (void)snprintf(type, sizeof(type), "f32[2, 8, %lld, %lld]", (long long)extent,
                   (long long)extent);
    length += snprintf(text, sizeof(text),
                       "sx 1\ngraph \"fire\" {\n"
                       "  %%x = parameter {name = \"x\", weight = 0} : f32[2, 4, %lld, %lld]\n",
                       (long long)extent, (long long)extent);
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t window = k == 0 ? 1 : 3;
        length += snprintf(
            text + length, sizeof(text) - (size_t)length,
            "  %%w%u = parameter {name = \"w%u\", weight = 1} : f32[8, 4, %u, %u]\n"
            "  %%b%u = parameter {name = \"b%u\", weight = 1} : f32[8]\n"
            "  %%c%u = convolution(%%x, %%w%u) {stride = [1, 1], low = [%u, %u], high = [%u, %u], "
            "dilation = [1, 1], groups = 1} : %s\n"
            "  %%r%u = broadcast_in_dim(%%b%u) {dims = [1]} : %s\n"
            "  %%a%u = add(%%c%u, %%r%u) : %s\n  %%y%u = relu(%%a%u) : %s\n"
            "  %%m%u = reduce(%%y%u) {dims = [2, 3], reducer = add} : f32[2, 8]\n",
            k, k, window, window, k, k, k, k, k, k, k, k, type, k, k, type, k, k, k, type, k, k,
            type, k, k);
    }
    (void)snprintf(text + length, sizeof(text) - (size_t)length,
                   joined ? "  %%y = concatenate(%%y0, %%y1) {axis = 1} : f32[2, 16, %lld, %lld]\n"
                            "  return %%y as \"y\"\n}\n"
                          : "  return %%m0 as \"first\", %%m1 as \"second\"\n}\n",
                   (long long)extent, (long long)extent);
    return parse(text);
}

START_TEST(test_fire_module)
{
    for (uint32_t joined = 0; joined < 2; joined++) {
        const sx_graph *in = make_fire(4, joined != 0);
        const sx_graph *without = optimize_without(in, "conv-enlarge-shared");
        double apart_ns = report.cost_after_ns;
        ck_assert_uint_eq(count_contractions(without), 2);
        const sx_graph *out = optimize(in);
        ck_assert_uint_eq(count_contractions(out), 1);
        ck_assert_double_lt(report.cost_after_ns, apart_ns - device->launch_ns / 2);
        ck_assert_double_eq(differ(in, out, SX_EVAL_MODP, 15), 0);
        ck_assert_double_le(differ(in, out, SX_EVAL_F64, 16), 1e-9);
    }
    /* large images: the products with zeros cost more than a launch */
    (void)optimize(make_fire(128, false));
    double merged_ns = report.cost_after_ns;
    (void)optimize_without(make_fire(128, false), "conv-enlarge-shared");
    ck_assert_double_le(merged_ns, report.cost_after_ns);
}
END_TEST

/* conv(conv(x, w1), w3) + conv(conv(y, w2), w4): one of two groups and one over the channels of both. */
START_TEST(test_separable_branches)
{
#define WINDOW "{stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], groups = 1}"
    static const char text[] = "sx 1\n"
                               "graph \"separable\" {\n"
                               "  %x = parameter {name = \"x\", weight = 0} : f32[1, 2, 5, 5]\n"
                               "  %y = parameter {name = \"y\", weight = 0} : f32[1, 2, 5, 5]\n"
                               "  %w1 = parameter {name = \"w1\", weight = 1} : f32[3, 2, 3, 3]\n"
                               "  %w2 = parameter {name = \"w2\", weight = 1} : f32[3, 2, 3, 3]\n"
                               "  %w3 = parameter {name = \"w3\", weight = 1} : f32[4, 3, 3, 3]\n"
                               "  %w4 = parameter {name = \"w4\", weight = 1} : f32[4, 3, 3, 3]\n"
                               "  %a = convolution(%x, %w1) " WINDOW " : f32[1, 3, 5, 5]\n"
                               "  %b = convolution(%y, %w2) " WINDOW " : f32[1, 3, 5, 5]\n"
                               "  %c = convolution(%a, %w3) " WINDOW " : f32[1, 4, 5, 5]\n"
                               "  %d = convolution(%b, %w4) " WINDOW " : f32[1, 4, 5, 5]\n"
                               "  %s = add(%c, %d) : f32[1, 4, 5, 5]\n"
                               "  return %s as \"s\"\n}\n";
#undef WINDOW
    const sx_graph *in = parse(text);
    const sx_graph *out = optimize(in);
    ck_assert_uint_eq(count_contractions(out), 2);
    ck_assert_double_eq(differ(in, out, SX_EVAL_MODP, 19), 0);
}
END_TEST

/* A gated unit: x W1 goes through silu, x W2 does not. Merged, x is read once, but the halves are written and
 * read again where the second contraction had the product as its epilogue: it pays where x is wider than both. */
static sx_graph *make_gated(int64_t width, int64_t inner)
{
    char text[2048];
    long long w = width, f = inner;
    (void)snprintf(text, sizeof(text),
                   "sx 1\ngraph \"glu\" (batch in [1, 64]) {\n"
                   "  %%x = parameter {name = \"x\", weight = 0} : f32[batch, 8, %lld]\n"
                   "  %%w1 = parameter {name = \"w1\", weight = 1} : f32[%lld, %lld]\n"
                   "  %%w2 = parameter {name = \"w2\", weight = 1} : f32[%lld, %lld]\n"
                   "  %%g = dot_general(%%x, %%w1) {lhs_contract = [2], rhs_contract = [0]} : "
                   "f32[batch, 8, %lld]\n"
                   "  %%u = dot_general(%%x, %%w2) {lhs_contract = [2], rhs_contract = [0]} : "
                   "f32[batch, 8, %lld]\n"
                   "  %%s = silu(%%g) : f32[batch, 8, %lld]\n"
                   "  %%h = multiply(%%s, %%u) : f32[batch, 8, %lld]\n"
                   "  return %%h as \"y\"\n}\n",
                   w, w, f, w, f, f, f, f, f);
    return parse(text);
}

START_TEST(test_gate_and_up)
{
    const sx_graph *wide = make_gated(128, 24);
    const sx_graph *out = optimize(wide);
    ck_assert_uint_eq(count_contractions(out), 1);
    ck_assert_double_le(differ(wide, out, SX_EVAL_F64, 17), 2e-6);
    double merged_ns = report.cost_after_ns;
    (void)optimize_without(wide,
                           "dot-merge-right,dot-merge-left"); /* left, of operands exchanged */
    ck_assert_double_lt(merged_ns, report.cost_after_ns);
    const sx_graph *narrow = make_gated(24, 128);
    out = optimize(narrow);
    ck_assert_uint_eq(count_contractions(out), 2);
    ck_assert_double_le(differ(narrow, out, SX_EVAL_F64, 18), 2e-6);
}
END_TEST

/* Every program of the proof equals the one before. */
START_TEST(test_proof_of_a_merge_replays)
{
    const sx_graph *in = parse(qkv);
    (void)optimize(in);
    const sx_graph *before = in;
    for (uint32_t k = 0; k <= report.proof->step_count; k++) {
        sx_graph *after;
        ck_sx_ok(&cx, sx_proof_program(&cx, report.proof, k, &after));
        ck_assert_double_le(differ(before, after, SX_EVAL_F64, 11), 2e-6);
        before = after;
    }
}
END_TEST

/* The checker, which knows the rules and nothing of the e-graph, finds every merge again from the members named. */
START_TEST(test_certificate_of_a_merge)
{
    const sx_graph *in = parse(qkv);
    sx_graph *out;
    sx_buf text;
    sx_certificate found;
    sx_optimize_options options = sx_optimize_defaults();
    sx_buf_init(&text, 1 << 24);
    options.with_certificate = true;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_assert_uint_eq(count_contractions(out), 1);
    ck_sx_ok(&cx, sx_optimize_certificate(&cx, &report, &text));
    ck_sx_ok(&cx, sx_certificate_check(&cx, sx_buf_span(&text), &found));
    ck_assert_uint_ge(found.rule_count[SX_RULE_DOT_MERGE_RIGHT], 3);
    ck_assert_uint_ge(found.rule_count[SX_RULE_PARTS_REPEATED], 3);
    /* with one member exchanged for another the step no longer holds */
    char *line = strstr((char *)text.ptr, "\ndot-merge-right ");
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

/* ---- dependence ---- */

/* What the first contraction makes is an operand of the second: one merged contraction would have to be ready
 * before itself. */
START_TEST(test_dependent_members_stay_apart)
{
    static const char text[] =
        "sx 1\n"
        "graph \"chain\" () {\n"
        "  %x = parameter {name = \"x\", weight = 0} : f32[8, 8]\n"
        "  %w = parameter {name = \"w\", weight = 1} : f32[8, 8]\n"
        "  %a = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[8, 8]\n"
        "  %r = relu(%a) : f32[8, 8]\n"
        "  %b = dot_general(%x, %r) {lhs_contract = [1], rhs_contract = [0]} : f32[8, 8]\n"
        "  return %b as \"y\"\n"
        "}\n";
    const sx_graph *in = parse(text);
    const sx_graph *out = optimize(in);
    ck_assert_uint_eq(report.union_count[SX_RULE_DOT_MERGE_RIGHT], 0);
    ck_assert_uint_eq(count_contractions(out), 2);
    ck_assert_double_eq(differ(in, out, SX_EVAL_MODP, 3), 0);
}
END_TEST

/* ---- growth ---- */

/* `count` contractions of one input with weights of their own, each under tanh, summed eight by eight. */
static sx_graph *make_many(uint32_t count)
{
    sx_graph *graph;
    sx_node_id x;
    sx_node_id sum;
    sx_node_id last = {0};
    sx_type type = {.dtype = SX_F32, .rank = 2, .dim = {sx_dim_of(4), sx_dim_of(4)}};
    sx_attr attr = {.present =
                        SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract),
                    .lhs_contract = {1, {1}},
                    .rhs_contract = {1, {0}}};
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("many"), NULL, &graph));
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "x", false, &type, &x));
    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        sx_node_id input[2] = {x};
        sx_node_id dot;
        (void)snprintf(name, sizeof(name), "w%u", i);
        ck_sx_ok(&cx, sx_build_parameter(&cx, graph, name, true, &type, &input[1]));
        ck_sx_ok(&cx, sx_graph_add(&cx, graph, SX_OP_DOT_GENERAL, &attr, input, 2, &dot));
        ck_sx_ok(&cx, sx_build_unary(&cx, graph, SX_OP_TANH, dot, &dot));
        sum = dot;
        if (i % 8 != 0) {
            ck_sx_ok(&cx, sx_build_binary(&cx, graph, SX_OP_ADD, last, dot, &sum));
        }
        last = sum;
        if (i % 8 == 7) {
            (void)snprintf(name, sizeof(name), "y%u", i);
            ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, sx_span_of(name), sum));
        }
    }
    return graph;
}

/* Live nodes after the rounds with the rules that merge alone. */
static uint32_t nodes_of_many(uint32_t count)
{
    sx_graph *graph = make_many(count);
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
    ck_assert_uint_ge(set.rule[SX_RULE_DOT_MERGE_RIGHT].union_count, count);
    return t.eg.live_count - graph->node_count;
}

START_TEST(test_growth_is_linear)
{
    uint32_t small = nodes_of_many(64);
    uint32_t large = nodes_of_many(1024);
    ck_assert_uint_le(small, 3 * 64 + 64);
    ck_assert_uint_le(large, 3 * 1024 + 64);
    const sx_graph *in = make_many(64);
    const sx_graph *out = optimize(in);
    ck_assert_uint_le(count_contractions(out), 8);
    ck_assert_double_le(differ(in, out, SX_EVAL_F64, 5), 1e-9);
}
END_TEST

/* A member that appears after a run extends its bucket: the next run merges old and new. */
START_TEST(test_later_member_extends)
{
    sx_graph *graph = make_many(8);
    sx_tensors t;
    sx_eg_ruleset set;
    sx_eg_run run;
    uint32_t *node = SX_NEW_ARRAY(&cx, uint32_t, graph->node_count);
    ck_sx_ok(&cx, sx_tensors_init(&cx, &t, graph));
    ck_sx_ok(&cx, sx_tensors_import(&cx, &t, graph, node));
    sx_eg_language language = sx_tensors_language(&t);
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &language, &sx_rules[SX_RULE_DOT_MERGE_RIGHT], 1));
    sx_eg_limits limits = {
        .rounds = 24, .nodes = 200000, .matches = 2000, .fuel = 20000000, .bytes = SIZE_MAX};
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
    ck_assert_uint_ge(set.rule[0].union_count, 8);
    sx_attr attr = {.present = SX_A(name) | SX_A(weight) | SX_A(type),
                    .name = SX_SPAN_LITERAL("late"),
                    .weight = 1,
                    .type = *sx_tensors_type(&t, node[1])};
    uint32_t child[2] = {node[0]};
    uint32_t late;
    ck_sx_ok(&cx, sx_tensors_add(&cx, &t, SX_OP_PARAMETER, &attr, NULL, 0, &child[1]));
    ck_assert_int_eq(sx_tensors_op(&t, node[2]), SX_OP_DOT_GENERAL);
    attr = *sx_tensors_attr(&t, node[2]);
    ck_sx_ok(&cx, sx_tensors_add(&cx, &t, SX_OP_DOT_GENERAL, &attr, child, 2, &late));
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
    bool widest = false;
    for (uint32_t n = 0; n < t.eg.node_count; n++) {
        widest = widest || (sx_tensors_op(&t, n) == SX_OP_CONCATENATE && t.eg.node[n].arity == 9);
    }
    ck_assert(widest);
    ck_assert(sx_eg_has_op(&t.eg, sx_eg_find(&t.eg, late), SX_OP_SLICE));
}
END_TEST

/* ---- random programs of several outputs ---- */

/* Values that a contraction may read: the parameters, results, functions of both. */
typedef struct {
    generator g;
    sx_node_id value[64];
    uint32_t count;
} builder;

static sx_node_id pick(builder *b)
{
    return b->value[draw(&b->g, b->count)];
}

/* A contraction of two values as drawn, over the first pair of extents that agree; batched over an extent in
 * front now and then. */
static bool add_dot(builder *b, sx_node_id left, sx_node_id right)
{
    const sx_type *x = &sx_graph_node(b->g.graph, left)->type;
    const sx_type *y = &sx_graph_node(b->g.graph, right)->type;
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    bool batched = x->rank == 3 && y->rank == 3 && sx_dim_equal(x->dim[0], y->dim[0]);
    if (batched) {
        attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    }
    uint32_t first = draw(&b->g, 2);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t k = x->rank - 1 - (i + first) % 2;
        uint32_t j = y->rank - 1 - i / 2;
        if (sx_dim_equal(x->dim[k], y->dim[j])) {
            attr.lhs_contract = (sx_ints){1, {k}};
            attr.rhs_contract = (sx_ints){1, {j}};
            sx_node_id child[2] = {left, right};
            sx_node_id id;
            if (sx_graph_add(&cx, b->g.graph, SX_OP_DOT_GENERAL, &attr, child, 2, &id) != SX_OK ||
                sx_graph_node(b->g.graph, id)->type.rank > 3) {
                sx_ctx_reset_error(&cx);
                return false;
            }
            b->value[b->count++] = id;
            return true;
        }
    }
    return false;
}

static void add_elementwise(builder *b)
{
    sx_node_id x = pick(b);
    sx_node_id y = pick(b);
    const sx_type *type = &sx_graph_node(b->g.graph, x)->type;
    bool alike = sx_type_equal(type, &sx_graph_node(b->g.graph, y)->type);
    if (alike && draw(&b->g, 2) == 0) {
        ck_sx_ok(&cx, sx_build_binary(&cx, b->g.graph, SX_OP_ADD, x, y, &b->value[b->count++]));
    } else {
        ck_sx_ok(&cx, sx_build_unary(&cx, b->g.graph, SX_OP_RELU, x, &b->value[b->count++]));
    }
}

static sx_graph *make_outputs(sx_rng *rng)
{
    builder b = {.g = {.cx = &cx, .rng = rng}};
    static const sx_dtype dtypes[] = {SX_F32, SX_F32, SX_F64, SX_I32};
    sx_dtype dtype = dtypes[sx_rng_below(rng, 4)];
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("random"), NULL, &b.g.graph));
    uint32_t parameters = 4 + draw(&b.g, 4);
    for (uint32_t i = 0; i < parameters; i++) {
        sx_type type = {.dtype = dtype, .rank = 2 + draw(&b.g, 2)};
        for (uint32_t d = 0; d < type.rank; d++) {
            type.dim[d] = sx_dim_of(2 + (int64_t)draw(&b.g, 2));
        }
        ck_sx_ok(&cx, fresh_parameter(&b.g, &type, &b.value[b.count++]));
    }
    sx_node_id shared = pick(&b);
    for (uint32_t i = 0; i < 14; i++) {
        sx_node_id other = pick(&b);
        if (draw(&b.g, 4) == 0) {
            add_elementwise(&b);
        } else {
            (void)add_dot(&b, draw(&b.g, 3) > 0 ? shared : other,
                          draw(&b.g, 3) > 0 ? other : shared);
        }
    }
    for (uint32_t i = parameters; i < b.count; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "y%u", i);
        ck_sx_ok(&cx, sx_graph_add_output(&cx, b.g.graph, sx_span_of(name), b.value[i]));
    }
    return b.g.graph;
}

/* Every value of the program computed by the last node of its class that stands on earlier ones alone: the
 * merged form wherever there is one. All of them must be what the program says, and what refers to itself is
 * no program. */
static void check_merged_forms(const sx_graph *in, uint64_t seed, uint32_t *merged)
{
    sx_tensors t;
    sx_eg_ruleset set;
    sx_eg_run run;
    sx_graph *out;
    uint32_t *node = SX_NEW_ARRAY(&cx, uint32_t, in->node_count + 1);
    uint32_t *root = SX_NEW_ARRAY(&cx, uint32_t, in->output_count + 1);
    ck_sx_ok(&cx, sx_tensors_init(&cx, &t, in));
    ck_sx_ok(&cx, sx_tensors_import(&cx, &t, in, node));
    sx_eg_language language = sx_tensors_language(&t);
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &language, sx_rules, SX_RULE_ROUNDS_COUNT));
    for (uint32_t r = 0; r < SX_RULE_ROUNDS_COUNT; r++) {
        set.rule[r].enabled = r >= SX_RULE_DOT_MERGE_RIGHT && r <= SX_RULE_CONCATENATE_DOTS &&
                              sx_rules[r].rule_class == SX_RULE_EXACT;
    }
    sx_eg_limits limits = {.rounds = 3,
                           .nodes = 3000,
                           .matches = 2000,
                           .fuel = 1000000,
                           .bytes = SIZE_MAX,
                           .check = true};
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
    *merged += set.rule[SX_RULE_DOT_MERGE_RIGHT].union_count > 0 ||
                       set.rule[SX_RULE_DOT_MERGE_LEFT].union_count > 0
                   ? 1
                   : 0;
    /* what a merged form costs is nothing: extraction takes it wherever it stands without a cycle */
    uint64_t *cost = SX_NEW_ARRAY(&cx, uint64_t, t.eg.node_count);
    for (uint32_t n = 0; n < t.eg.node_count; n++) {
        sx_op op = sx_tensors_op(&t, n);
        cost[n] = t.eg.node[n].dead != 0                           ? SX_COST_NEVER
                  : op == SX_OP_SLICE || op == SX_OP_CONCATENATE   ? 1
                  : op == SX_OP_DOT_GENERAL && n >= in->node_count ? 2
                  : op == SX_OP_DOT_GENERAL || op == SX_OP_ADD     ? 1000
                                                                   : 3;
    }
    for (uint32_t i = 0; i < in->output_count; i++) {
        root[i] = node[in->output[i].node.i];
    }
    sx_extraction wanted = {
        .cost = cost, .root = root, .root_count = in->output_count, .fuel = 20000};
    sx_extracted best;
    ck_sx_ok(&cx, sx_eg_extract(&cx, &t.eg, &wanted, &best));
    ck_sx_ok(&cx, sx_choice_graph(&cx, &t, in, root, best.choice, false, &out, NULL));
    double gap = differ(in, out, SX_EVAL_TYPED, seed);
    ck_assert_msg(gap == 0, "SX_SEED=%llu: bits change by %g", (unsigned long long)seed, gap);
}

#define RANDOM_SLICES 5
static uint64_t random_seed;
START_TEST(test_random_outputs)
{
    uint32_t merged = 0;
    uint32_t programs = 0;
    for (uint32_t i = 0; i < 260; i++) {
        uint64_t seed = random_seed + (uint64_t)_i * 1000 + i;
        sx_rng rng = {seed};
        const sx_graph *in = make_outputs(&rng);
        if (in->output_count > 0) {
            check_merged_forms(in, seed, &merged);
            programs++;
        }
        sx_ctx_fini(&cx);
        setup();
    }
    ck_assert_uint_ge(programs, 200);
    ck_assert_uint_ge(merged, 60); /* the drawing is not in vain: about 115 */
}
END_TEST

int main(void)
{
    random_seed = sx_test_seed();
    Suite *suite = suite_create("core.rules.merge");
    TCase *cases = tcase_create("merge");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_queries_keys_values);
    tcase_add_test(cases, test_branches_of_an_image);
    tcase_add_test(cases, test_fire_module);
    tcase_add_test(cases, test_separable_branches);
    tcase_add_test(cases, test_gate_and_up);
    tcase_add_test(cases, test_proof_of_a_merge_replays);
    tcase_add_test(cases, test_certificate_of_a_merge);
    tcase_add_test(cases, test_dependent_members_stay_apart);
    tcase_add_test(cases, test_growth_is_linear);
    tcase_add_test(cases, test_later_member_extends);
    tcase_add_loop_test(cases, test_random_outputs, 0, RANDOM_SLICES);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
