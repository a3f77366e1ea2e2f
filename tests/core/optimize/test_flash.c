/* Flash attention is found from attention in steps, by rules that know no attention: each of them is needed,
 * and the kernel means what the steps mean. The same rules find the logarithm of a sum of exponentials. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/optimize/optimize.h"
#include "tests/core/rules/values.h"
#include "tests/lib/attention_text.h"

static sx_ctx cx;
static sx_optimize_report report;
static const char *const targets[] = {"x86-64-v3", "x86-64-v4", "h100"};

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_graph *parse(const char *text)
{
    sx_graph *graph;
    sx_code code = sx_graph_parse(&cx, sx_span_of(text), &graph);
    ck_assert_msg(code == SX_OK, "%s\n%s", cx.error.text, text);
    return graph;
}

static sx_graph *attention(sx_attention_kind kind, int64_t s, int64_t t, int64_t d)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 16);
    sx_attention_text(kind, s, t, d, &text);
    sx_graph *graph = parse((const char *)text.ptr);
    sx_buf_fini(&text);
    return graph;
}

static const sx_device *device_of(const char *target)
{
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        if (strcmp(sx_device_at(i)->name, target) == 0) {
            return sx_device_at(i);
        }
    }
    ck_abort_msg("no device %s", target);
}

static sx_graph *optimize(const sx_graph *in, const char *target, const char *disabled)
{
    sx_graph *out;
    sx_optimize_options options = sx_optimize_defaults();
    sx_span name = sx_span_of(disabled);
    options.disabled = &name;
    options.disabled_count = disabled == NULL ? 0 : 1;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device_of(target), &options, &out, &report));
    return out;
}

/* Kernels that depend on a parameter (others run once, at load), and those that are online sums with their
 * scores computed inside. */
static void count_kernels(const sx_graph *graph, uint32_t *kernels, uint32_t *online)
{
    bool *depends = SX_NEW_ARRAY(&cx, bool, graph->node_count);
    ck_assert_ptr_nonnull(depends);
    *kernels = *online = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        depends[i] = node->op == SX_OP_PARAMETER;
        for (uint32_t k = 0; k < node->input_count; k++) {
            depends[i] = depends[i] || depends[sx_graph_input(graph, node, k).i];
        }
        if (node->op != SX_OP_FUSED || !depends[i]) {
            continue;
        }
        const sx_body *body = sx_graph_attr(graph, node)->body;
        ++*kernels;
        *online += sx_body_kernel_kind(body) == SX_KERNEL_ONLINE && body->inner != 0;
    }
}

static double differ(const sx_graph *a, const sx_graph *b)
{
    const sx_graph *graph[2] = {a, b};
    sx_tensor result[2];
    uint64_t seed = sx_test_seed();
    for (uint32_t i = 0; i < 2; i++) {
        sx_graph *bound;
        sx_tensor *argument;
        uint32_t count;
        sx_rng rng = {seed};
        sx_binding binding = {SX_SPAN_LITERAL("batch"), 2};
        ck_sx_ok(&cx, sx_graph_bind(&cx, graph[i], &binding, graph[i]->symbol_count, &bound));
        ck_sx_ok(&cx,
                 random_arguments(&cx, &rng, bound, SX_EVAL_F64, FILL_PLAIN, &argument, &count));
        ck_sx_ok(&cx, sx_graph_eval(&cx, bound, SX_EVAL_F64, argument, count, &result[i], 1));
    }
    return deviation(&result[0], &result[1], SX_EVAL_F64);
}

/* The kernels survive being stored: as bytes (snapshots) and as text. */
static void check_stored(const sx_graph *graph)
{
    sx_buf bytes, text;
    sx_graph *again;
    sx_key key[2];
    sx_buf_init(&bytes, 1 << 20);
    sx_buf_init(&text, 1 << 20);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_attr *attr = sx_graph_attr(graph, &graph->node[i]);
        sx_attr back;
        bytes.len = 0;
        sx_attr_encode(attr, &bytes);
        sx_span rest = sx_buf_span(&bytes);
        ck_sx_ok(&cx, sx_attr_decode(&cx, &rest, graph->symbol_count, &back));
        ck_assert(sx_attr_equal(attr, &back) && rest.len == 0);
    }
    ck_sx_ok(&cx, sx_graph_print(&cx, graph, &text));
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &again));
    ck_sx_ok(&cx, sx_graph_key(&cx, graph, &key[0]));
    ck_sx_ok(&cx, sx_graph_key(&cx, again, &key[1]));
    ck_assert_int_eq(memcmp(&key[0], &key[1], sizeof(key[0])), 0);
    sx_buf_fini(&bytes);
    sx_buf_fini(&text);
}

/* _i: kind of attention and target */
START_TEST(test_found)
{
    sx_attention_kind kind = (sx_attention_kind)(_i / 3);
    const sx_graph *in = attention(kind, 24, 30, 8);
    const sx_graph *out = optimize(in, targets[_i % 3], NULL);
    uint32_t kernels, online;
    count_kernels(out, &kernels, &online);
    ck_assert_msg(kernels == 1 && online == 1, "%s: %u kernels, %u online", sx_attention_name(kind),
                  kernels, online);
    ck_assert_double_lt(differ(in, out), 1e-12);
    check_stored(out);
    static const uint32_t steps[] = {SX_RULE_DOT_DIVIDE_LEFT, SX_RULE_ONLINE, SX_RULE_ONLINE_MEAN,
                                     SX_RULE_FUSE_SCORES};
    for (uint32_t k = 0; k < SX_COUNT(steps); k++) {
        ck_assert_msg(report.union_count[steps[k]] > 0, "%s: %s", sx_attention_name(kind),
                      sx_rule_name(steps[k]));
    }
    ck_assert_double_lt(report.cost_after_ns, report.cost_before_ns);
}
END_TEST

START_TEST(test_composite)
{
    const sx_graph *in = parse("sx 1\ngraph \"composite\" {\n"
                               "%q = parameter {name = \"q\", weight = 0} : f32[3, 40, 8]\n"
                               "%k = parameter {name = \"k\", weight = 0} : f32[3, 30, 8]\n"
                               "%v = parameter {name = \"v\", weight = 0} : f32[3, 30, 5]\n"
                               "%y = attention(%q, %k, %v) {scale = 0.35} : f32[3, 40, 5]\n"
                               "return %y as \"y\"\n}\n");
    const sx_graph *out = optimize(in, targets[0], NULL);
    uint32_t kernels, online;
    count_kernels(out, &kernels, &online);
    ck_assert_uint_eq(kernels, 1);
    ck_assert_uint_eq(online, 1);
    ck_assert_double_lt(differ(in, out), 1e-6); /* 0.35 is rounded to f32 */
}
END_TEST

/* Several heads of queries share keys and values, and the length has no number: rows and heads of a group are digits of
 * one position, whose stride is the product of the length and itself. */
START_TEST(test_groups_of_a_symbol)
{
    const sx_graph *in =
        parse("sx 1\ngraph \"groups\" (batch in [1, 64], seq in [1, 512]) {\n"
              "%q = parameter {name = \"q\", weight = 0} : f32[batch, 4, seq, 8]\n"
              "%k = parameter {name = \"k\", weight = 0} : f32[batch, 2, seq, 8]\n"
              "%v = parameter {name = \"v\", weight = 0} : f32[batch, 2, seq, 8]\n"
              "%0 = broadcast_in_dim(%k) {dims = [0, 1, 3, 4]} : f32[batch, 2, 2, seq, 8]\n"
              "%1 = reshape(%0) : f32[batch, 4, seq, 8]\n"
              "%2 = broadcast_in_dim(%v) {dims = [0, 1, 3, 4]} : f32[batch, 2, 2, seq, 8]\n"
              "%3 = reshape(%2) : f32[batch, 4, seq, 8]\n"
              "%y = attention(%q, %1, %3) {scale = 0.35} : f32[batch, 4, seq, 8]\n"
              "return %y as \"y\"\n}\n");
    const sx_graph *out = optimize(in, targets[_i], NULL);
    uint32_t kernels, online;
    count_kernels(out, &kernels, &online);
    ck_assert_msg(kernels == 1 && online == 1, "%u kernels, %u online", kernels, online);
    const sx_binding binding[] = {{SX_SPAN_LITERAL("batch"), 2}, {SX_SPAN_LITERAL("seq"), 13}};
    sx_graph *bound[2];
    ck_sx_ok(&cx, sx_graph_bind(&cx, in, binding, 2, &bound[0]));
    ck_sx_ok(&cx, sx_graph_bind(&cx, out, binding, 2, &bound[1]));
    ck_assert_double_lt(differ(bound[0], bound[1]), 1e-6); /* 0.35 is rounded to f32 */
}
END_TEST

/* Without any one of the steps there is no such kernel. */
START_TEST(test_every_step_is_needed)
{
    static const char *const steps[] = {"dot-divide-left", "online", "online-mean", "fuse-scores"};
    const sx_graph *in = attention(SX_ATTENTION_SCALED, 24, 30, 8);
    for (uint32_t k = 0; k < SX_COUNT(steps); k++) {
        const sx_graph *out = optimize(in, targets[1], steps[k]);
        uint32_t kernels, online;
        count_kernels(out, &kernels, &online);
        ck_assert_msg(kernels > 1, "%s is not needed", steps[k]);
        ck_assert_double_lt(differ(in, out), 1e-12);
    }
    sx_optimize_options options = sx_optimize_defaults();
    sx_graph *out;
    uint32_t kernels, online;
    options.allow_reassociating = false;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device_of(targets[1]), &options, &out, &report));
    count_kernels(out, &kernels, &online);
    ck_assert_uint_eq(online, 0);
}
END_TEST

/* Weights that are a result themselves are stored anyway: summing from them is cheaper than a second pass over
 * the scores. */
START_TEST(test_weights_wanted)
{
    sx_graph *in = attention(SX_ATTENTION_SCALED, 256, 256, 32);
    for (uint32_t i = 0; i < in->node_count; i++) {
        if (in->node[i].op == SX_OP_DIVIDE) {
            ck_sx_ok(&cx,
                     sx_graph_add_output(&cx, in, SX_SPAN_LITERAL("weights"), (sx_node_id){i}));
        }
    }
    ck_assert_uint_eq(in->output_count, 2);
    const sx_graph *out = optimize(in, targets[0], NULL);
    uint32_t kernels, online;
    count_kernels(out, &kernels, &online);
    ck_assert_uint_eq(online, 0);
    ck_assert_uint_eq(kernels, 3);
}
END_TEST

/* Keys that both operands of the scores have: no contraction goes inside, whatever the order of the dimensions. */
START_TEST(test_keys_in_both)
{
    const sx_graph *in = parse("sx 1\ngraph \"both\" {\n"
                               "%q = parameter {name = \"q\", weight = 0} : f32[90, 70, 16]\n"
                               "%k = parameter {name = \"k\", weight = 0} : f32[90, 16]\n"
                               "%v = parameter {name = \"v\", weight = 0} : f32[90, 24]\n"
                               "%s = dot_general(%q, %k) {lhs_batch = [0], rhs_batch = [0], "
                               "lhs_contract = [2], rhs_contract = [1]} : f32[90, 70]\n"
                               "%p = softmax(%s) {axis = 0} : f32[90, 70]\n"
                               "%y = dot_general(%p, %v) {lhs_contract = [0], rhs_contract = [0]} "
                               ": f32[70, 24]\n"
                               "return %y as \"y\"\n}\n");
    const sx_graph *out = optimize(in, targets[0], NULL);
    uint32_t kernels, online;
    count_kernels(out, &kernels, &online);
    ck_assert_uint_eq(online, 0);
    ck_assert_uint_eq(kernels, 2);
    ck_assert_double_lt(differ(in, out), 1e-12);
}
END_TEST

/* log sum exp of the logits, as a loss over a large vocabulary has it: the logits are never stored. */
START_TEST(test_log_sum_exp)
{
    const sx_graph *in =
        parse("sx 1\ngraph \"loss\" (batch in [1, 64]) {\n"
              "%h = parameter {name = \"h\", weight = 0} : f32[batch, 40, 16]\n"
              "%w = parameter {name = \"w\", weight = 1} : f32[500, 16]\n"
              "%x = dot_general(%h, %w) {lhs_contract = [2], rhs_contract = [1]} : "
              "f32[batch, 40, 500]\n"
              "%m = reduce(%x) {dims = [2], reducer = maximum} : f32[batch, 40]\n"
              "%mb = broadcast_in_dim(%m) {dims = [0, 1]} : f32[batch, 40, 500]\n"
              "%d = subtract(%x, %mb) : f32[batch, 40, 500]\n"
              "%e = exponential(%d) : f32[batch, 40, 500]\n"
              "%l = reduce(%e) {dims = [2], reducer = add} : f32[batch, 40]\n"
              "%g = log(%l) : f32[batch, 40]\n"
              "%y = add(%g, %m) : f32[batch, 40]\n"
              "return %y as \"y\"\n}\n");
    const sx_graph *out = optimize(in, targets[0], NULL);
    uint32_t kernels, online;
    count_kernels(out, &kernels, &online);
    ck_assert_uint_eq(kernels, 1);
    ck_assert_uint_eq(online, 1);
    ck_assert_uint_gt(report.union_count[SX_RULE_ONLINE_LOG], 0);
    ck_assert_double_lt(differ(in, out), 1e-12);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.optimize.flash");
    TCase *cases = tcase_create("flash");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_found, 0, 3 * SX_ATTENTION_COUNT);
    tcase_add_test(cases, test_composite);
    tcase_add_loop_test(cases, test_groups_of_a_symbol, 0, 3);
    tcase_add_test(cases, test_every_step_is_needed);
    tcase_add_test(cases, test_weights_wanted);
    tcase_add_test(cases, test_keys_in_both);
    tcase_add_test(cases, test_log_sum_exp);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
