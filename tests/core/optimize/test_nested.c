/* Gradients of attention without scores in memory: prices decide whether they are made again where they are read, by
 * rules and steps that know no gradients; each of them is needed, and the values are the same. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/grad/grad.h"
#include "core/optimize/optimize.h"
#include "tests/core/rules/values.h"

static sx_ctx cx;
static sx_optimize_report report;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

typedef enum { PLAIN, CAUSAL, MASKED, BF16, GROUPED, KINDS } kind;

/* Attention with gradients for queries, keys and values: n queries, m keys, 3 heads of width d. */
static const sx_graph *gradients(kind which, int64_t n, int64_t m, int64_t d)
{
    static const char *const parameter[3] = {"q", "k", "v"};
    const char *dtype = which == BF16 ? "bf16" : "f32";
    sx_buf text;
    sx_buf_init(&text, 1 << 16);
    sx_buf_print(&text, "sx 1\ngraph \"attention\" {\n");
    for (uint32_t k = 0; k < 3; k++) { /* a group of three heads has the same keys and values */
        sx_buf_print(&text,
                     "%%%s = parameter {name = \"%s\", weight = 0} : %s[2, %d, %lld, %lld]\n",
                     parameter[k], parameter[k], dtype, which == GROUPED && k > 0 ? 1 : 3,
                     (long long)(k == 0 ? n : m), (long long)d);
    }
    if (which == MASKED) {
        sx_buf_print(&text, "%%m = parameter {name = \"mask\", weight = 0} : f32[%lld, %lld]\n",
                     (long long)n, (long long)m);
    } else if (which == CAUSAL) {
        const long long a = n, b = m;
        sx_buf_print(&text,
                     "%%i = iota {axis = 0} : i32[%lld, %lld]\n"
                     "%%j = iota {axis = 1} : i32[%lld, %lld]\n"
                     "%%s = compare(%%i, %%j) {direction = ge} : bool[%lld, %lld]\n"
                     "%%z = constant {data = 0} : f32[%lld, %lld]\n"
                     "%%l = constant {data = -inf} : f32[%lld, %lld]\n"
                     "%%m = select(%%s, %%z, %%l) : f32[%lld, %lld]\n",
                     a, b, a, b, a, b, a, b, a, b, a, b);
    }
    const bool mask = which == MASKED || which == CAUSAL;
    if (mask) {
        sx_buf_print(&text, "%%w = broadcast_in_dim(%%m) {dims = [2, 3]} : f32[2, 3, %lld, %lld]\n",
                     (long long)n, (long long)m);
    }
    if (which == BF16) {
        for (uint32_t k = 0; k < 3; k++) {
            sx_buf_print(&text, "%%%s32 = convert(%%%s) : f32[2, 3, %lld, %lld]\n", parameter[k],
                         parameter[k], (long long)(k == 0 ? n : m), (long long)d);
        }
    }
    for (uint32_t k = 1; k < 3 && which == GROUPED; k++) {
        sx_buf_print(
            &text,
            "%%%sg = broadcast_in_dim(%%%s) {dims = [0, 1, 3, 4]} : f32[2, 1, 3, %lld, %lld]\n"
            "%%%s32 = reshape(%%%sg) : f32[2, 3, %lld, %lld]\n",
            parameter[k], parameter[k], (long long)m, (long long)d, parameter[k], parameter[k],
            (long long)m, (long long)d);
    }
    const char *wide = which == BF16 || which == GROUPED ? "32" : "";
    sx_buf_print(
        &text, "%%y = attention(%%q%s, %%k%s, %%v%s%s) {scale = 0.25} : f32[2, 3, %lld, %lld]\n",
        which == BF16 ? "32" : "", wide, wide, mask ? ", %w" : "", (long long)n, (long long)d);
    if (which == BF16) {
        sx_buf_print(&text, "%%o = convert(%%y) : bf16[2, 3, %lld, %lld]\n", (long long)n,
                     (long long)d);
    }
    sx_buf_print(&text, "return %%%s as \"y\"\n}\n", which == BF16 ? "o" : "y");
    sx_graph *graph;
    sx_gradient made;
    sx_span wrt[3] = {sx_span_of("q"), sx_span_of("k"), sx_span_of("v")};
    sx_grad_request request = {.wrt = wrt, .wrt_count = 3};
    sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &graph);
    code = code == SX_OK ? sx_grad_make(&cx, graph, &request, &made) : code;
    ck_assert_msg(code == SX_OK, "%s\n%.*s", cx.error.text, (int)text.len, (const char *)text.ptr);
    sx_buf_fini(&text);
    return made.graph;
}

static const sx_device *device_of(const char *name)
{
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        if (strcmp(sx_device_at(i)->name, name) == 0) {
            return sx_device_at(i);
        }
    }
    ck_abort_msg("no device %s", name);
}

static sx_graph *optimize(const sx_graph *in, const char *device, const char *objective,
                          const char *disabled)
{
    sx_graph *out;
    sx_optimize_options options = sx_optimize_defaults();
    sx_span name = sx_span_of(disabled == NULL ? "" : disabled);
    options.disabled = &name;
    options.disabled_count = disabled == NULL ? 0 : 1;
    ck_sx_ok(&cx, sx_objective_find(&cx, sx_span_of(objective), &options.objective));
    ck_sx_ok(&cx, sx_optimize(&cx, in, device_of(device), &options, &out, &report));
    return out;
}

typedef struct {
    uint32_t nested; /* kernels that are nested contractions */
    uint32_t stored; /* results with as many elements as there are scores */
} counts;

static counts count(const sx_graph *graph, int64_t scores)
{
    counts c = {0};
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        bool fused = node->op == SX_OP_FUSED;
        c.nested +=
            fused && sx_body_kernel_kind(sx_graph_attr(graph, node)->body) == SX_KERNEL_NESTED;
        c.stored += node->op != SX_OP_PARAMETER && sx_tensor_elements(&node->type) >= scores;
    }
    return c;
}

/* Largest deviation of the results of two programs on the same arguments, in doubles. */
static double differ(const sx_graph *a, const sx_graph *b)
{
    const sx_graph *graph[2] = {a, b};
    sx_tensor result[2][4];
    double worst = 0;
    uint64_t seed = sx_test_seed();
    ck_assert_uint_eq(a->output_count, 4);
    ck_assert_uint_eq(b->output_count, 4);
    for (uint32_t i = 0; i < 2; i++) {
        sx_tensor *argument;
        uint32_t inputs;
        sx_rng rng = {seed};
        ck_sx_ok(&cx, random_arguments(&cx, &rng, graph[i], SX_EVAL_F64, FILL_PLAIN, &argument,
                                       &inputs));
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph[i], SX_EVAL_F64, argument, inputs, result[i], 4));
    }
    for (uint32_t k = 0; k < 4; k++) {
        double far = deviation(&result[0][k], &result[1][k], SX_EVAL_F64);
        worst = far > worst ? far : worst;
    }
    return worst;
}

/* _i: kind. Where memory counts nothing of the size of the scores is stored. */
START_TEST(nothing_is_stored)
{
    const sx_graph *in = gradients((kind)_i, 40, 56, 8);
    const sx_graph *out = optimize(in, "x86-64-v3", "memory", NULL);
    counts c = count(out, 2 * 3 * 40 * 56);
    ck_assert_msg(c.nested >= 3 && c.stored == 0, "kind %d: %u nested, %u stored", _i, c.nested,
                  c.stored);
    /* bf16 stands for a rounding of the results; doubles know none */
    ck_assert_double_lt(differ(in, out), 1e-12);
}
END_TEST

/* Without any one of the steps scores are stored. */
START_TEST(every_step_is_needed)
{
    static const char *const steps[] = {"softmax-logarithm", "softmax-dot-sum", "fuse-nested"};
    const sx_graph *in = gradients(PLAIN, 40, 56, 8);
    for (uint32_t k = 0; k < SX_COUNT(steps); k++) {
        const sx_graph *out = optimize(in, "x86-64-v3", "memory", steps[k]);
        ck_assert_msg(count(out, 2 * 3 * 40 * 56).stored > 0, "%s is not needed", steps[k]);
        ck_assert_double_lt(differ(in, out), 1e-12);
    }
}
END_TEST

/* Where time counts, it is a matter of prices: a GPU that multiplies matrices of bf16 makes scores again. */
START_TEST(prices_decide)
{
    const sx_graph *in = gradients(BF16, 1024, 1024, 64);
    const sx_graph *out = optimize(in, "h100", "time", NULL);
    const double with = report.cost_after_ns;
    ck_assert_uint_ge(count(out, INT64_MAX).nested, 3);
    out = optimize(in, "h100", "time", "fuse-nested");
    ck_assert_uint_eq(count(out, INT64_MAX).nested, 0);
    ck_assert_double_lt(with, report.cost_after_ns);
}
END_TEST

/* Attention alone reads its weights once: nothing is looked for. */
START_TEST(forward_is_as_before)
{
    sx_graph *in;
    ck_sx_ok(&cx,
             sx_graph_parse(&cx,
                            sx_span_of("sx 1\ngraph \"forward\" {\n"
                                       "%q = parameter {name = \"q\", weight = 0} : f32[3, 40, 8]\n"
                                       "%k = parameter {name = \"k\", weight = 0} : f32[3, 30, 8]\n"
                                       "%v = parameter {name = \"v\", weight = 0} : f32[3, 30, 8]\n"
                                       "%y = attention(%q, %k, %v) {scale = 0.25} : f32[3, 40, 8]\n"
                                       "return %y as \"y\"\n}\n"),
                            &in));
    (void)optimize(in, "x86-64-v3", "time", NULL);
    ck_assert_uint_eq(report.union_count[SX_RULE_SOFTMAX_LOGARITHM], 0);
    ck_assert_uint_eq(report.union_count[SX_RULE_SOFTMAX_DOT_SUM], 0);
    ck_assert_uint_eq(report.union_count[SX_RULE_FUSE_NESTED], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nested");
    TCase *tcase = tcase_create("nested");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, nothing_is_stored, 0, KINDS);
    tcase_add_test(tcase, every_step_is_needed);
    tcase_add_test(tcase, prices_decide);
    tcase_add_test(tcase, forward_is_as_before);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
