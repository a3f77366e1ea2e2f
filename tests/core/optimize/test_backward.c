/* The cheap forms of backward passes are found, by rules that know no gradients: prices and kernels of what level 1
 * extracts, each of the rules needed, and the same values. */
#include "tests/lib/test.h"

#include <stdio.h>
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

/* The program of `text` with the gradient for one parameter. */
static const sx_graph *gradient(const char *text, const char *parameter)
{
    sx_graph *graph;
    sx_gradient made;
    sx_span wrt = sx_span_of(parameter);
    sx_grad_request request = {.wrt = &wrt, .wrt_count = 1};
    sx_code code = sx_graph_parse(&cx, sx_span_of(text), &graph);
    code = code == SX_OK ? sx_grad_make(&cx, graph, &request, &made) : code;
    ck_assert_msg(code == SX_OK, "%s\n%s", cx.error.text, text);
    return made.graph;
}

static sx_graph *optimize(const sx_graph *in, const char *disabled)
{
    sx_graph *out;
    sx_optimize_options options = sx_optimize_defaults();
    sx_span name = sx_span_of(disabled);
    options.disabled = &name;
    options.disabled_count = disabled[0] == 0 ? 0 : 1;
    const sx_device *device = sx_device_at(0);
    ck_assert_str_eq(device->name, "x86-64-v3");
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    return out;
}

/* Instructions of an operation in all kernels. */
static uint32_t count_inside(const sx_graph *graph, sx_op op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        ck_assert(node->op == SX_OP_FUSED || node->op == SX_OP_PARAMETER);
        const sx_body *body =
            node->op == SX_OP_FUSED ? sx_graph_attr(graph, node)->body : &(sx_body){0};
        for (uint32_t k = 0; k < body->instr_count; k++) {
            count += body->instr[k].kind == SX_BODY_APPLY && body->instr[k].op == op ? 1 : 0;
        }
    }
    return count;
}

/* Largest deviation of the results of two programs on the same arguments, in doubles. */
static double differ(const sx_graph *a, const sx_graph *b)
{
    const sx_graph *graph[2] = {a, b};
    sx_tensor result[2][4];
    double worst = 0;
    uint64_t seed = sx_test_seed();
    ck_assert_uint_le(a->output_count, 4);
    ck_assert_uint_eq(a->output_count, b->output_count);
    for (uint32_t i = 0; i < 2; i++) {
        sx_graph *bound;
        sx_tensor *argument;
        uint32_t count;
        sx_rng rng = {seed};
        sx_binding binding = {SX_SPAN_LITERAL("batch"), 3};
        ck_sx_ok(&cx, sx_graph_bind(&cx, graph[i], &binding, graph[i]->symbol_count, &bound));
        ck_sx_ok(&cx,
                 random_arguments(&cx, &rng, bound, SX_EVAL_F64, FILL_PLAIN, &argument, &count));
        ck_sx_ok(&cx, sx_graph_eval(&cx, bound, SX_EVAL_F64, argument, count, result[i],
                                    bound->output_count));
    }
    for (uint32_t k = 0; k < a->output_count; k++) {
        double gap = deviation(&result[0][k], &result[1][k], SX_EVAL_F64);
        worst = gap > worst ? gap : worst;
    }
    return worst;
}

/* ---- softmax: y (g - sum(g y)) ---- */

static const char softmax[] = "sx 1 graph \"softmax\" {\n"
                              "%x = parameter {name = \"x\", weight = 0} : f32[R, C]\n"
                              "%y = softmax(%x) {axis = 1} : f32[R, C]\n"
                              "return %y as \"y\" }\n";

/* The same with its gradient in steps, without the word. */
static const char steps[] = "sx 1 graph \"steps\" {\n"
                            "%x = parameter {name = \"x\", weight = 0} : f32[R, C]\n"
                            "%m = reduce(%x) {dims = [1], reducer = maximum} : f32[R]\n"
                            "%c = broadcast_in_dim(%m) {dims = [0]} : f32[R, C]\n"
                            "%d = subtract(%x, %c) : f32[R, C]\n"
                            "%e = exponential(%d) : f32[R, C]\n"
                            "%s = reduce(%e) {dims = [1], reducer = add} : f32[R]\n"
                            "%t = broadcast_in_dim(%s) {dims = [0]} : f32[R, C]\n"
                            "%y = divide(%e, %t) : f32[R, C]\n"
                            "%g = parameter {name = \"g\", weight = 0} : f32[R, C]\n"
                            "%q = divide(%g, %t) : f32[R, C]\n"
                            "%p = multiply(%q, %y) : f32[R, C]\n"
                            "%r = reduce(%p) {dims = [1], reducer = add} : f32[R]\n"
                            "%n = negate(%r) : f32[R]\n"
                            "%k = broadcast_in_dim(%n) {dims = [0]} : f32[R, C]\n"
                            "%a = add(%q, %k) : f32[R, C]\n"
                            "%z = multiply(%a, %e) : f32[R, C]\n"
                            "return %y as \"y\", %z as \"z\" }\n";

/* The text with numbers for R and C. */
static const char *sized(const char *program, uint32_t rows, uint32_t columns)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 16);
    for (const char *at = program; *at != 0; at++) {
        if (at[0] == '[' && at[1] == 'R') {
            sx_buf_print(&text, "[%u", rows);
            at++;
        } else if (at[0] == 'C' && at[1] == ']') {
            sx_buf_print(&text, "%u", columns);
        } else {
            sx_buf_put_u8(&text, (uint8_t)*at);
        }
    }
    sx_buf_put_u8(&text, 0);
    char *copy = sx_alloc(&cx, text.len);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text.ptr, text.len);
    sx_buf_fini(&text);
    return copy;
}

/* The program of softmax and its gradient: made, or in steps. */
static const sx_graph *both(bool in_steps, uint32_t rows, uint32_t columns)
{
    sx_graph *graph;
    if (!in_steps) {
        return gradient(sized(softmax, rows, columns), "x");
    }
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(sized(steps, rows, columns)), &graph));
    return graph;
}

/* _i: in steps. Three passes: x to y; g and y to the sum; g, y and the sum to the result. They read and write seven
 * tensors of 512 x 1024 numbers, and the sums. */
START_TEST(test_softmax)
{
    static const char *const needed[] = {"add-negate-row", "factor-divide-row",
                                         "softmax-sum-divide", "softmax-product-divide"};
    const sx_graph *in = both(_i != 0, 512, 1024);
    const sx_graph *out = optimize(in, "");
    double cheap = report.cost_after_ns;
    double floor_ns = 7.0 * 512 * 1024 * 4 / sx_device_at(0)->memory_bytes_per_ns;
    ck_assert_uint_eq(count_inside(out, SX_OP_EXP), 1);
    ck_assert_msg(cheap < 1.03 * floor_ns, "%g us, floor %g us", cheap / 1e3, floor_ns / 1e3);
    for (uint32_t k = 0; k < SX_COUNT(needed); k++) {
        optimize(in, needed[k]);
        ck_assert_msg(report.cost_after_ns > 1.05 * cheap, "%s is not needed", needed[k]);
    }
    in = both(_i != 0, 5, 19);
    ck_assert_double_lt(differ(in, optimize(in, "")), 1e-12);
    ck_assert_uint_gt(report.union_count[SX_RULE_SOFTMAX_SUM_DIVIDE], 0);
}
END_TEST

/* Sums of exponentials that are not those of the weights: their divisor may be far below 1, and stays. */
START_TEST(test_other_divisors_stay)
{
    char text[sizeof(steps)];
    sx_graph *graph;
    memcpy(text, steps, sizeof(steps));
    char *max = strstr(text, "maximum");
    ck_assert_ptr_nonnull(max);
    memcpy(max, "minimum", 7);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(sized(text, 5, 19)), &graph));
    const sx_graph *out = optimize(graph, "");
    ck_assert_uint_eq(report.union_count[SX_RULE_SOFTMAX_SUM_DIVIDE], 0);
    ck_assert_uint_eq(report.union_count[SX_RULE_SOFTMAX_PRODUCT_DIVIDE], 0);
    ck_assert_double_lt(differ(graph, out), 1e-12);
}
END_TEST

/* ---- the gradient for the weights of a convolution: a window as large as the image ---- */

START_TEST(test_weights)
{
    const sx_graph *in = gradient("sx 1 graph \"convolution\" {\n"
                                  "%x = parameter {name = \"x\", weight = 0} : f32[8, 64, 28, 28]\n"
                                  "%w = parameter {name = \"w\", weight = 0} : f32[64, 64, 3, 3]\n"
                                  "%y = convolution(%x, %w) {stride = [1, 1], low = [1, 1], high = "
                                  "[1, 1], dilation = [1, 1], groups = 1} "
                                  ": f32[8, 64, 28, 28]\n"
                                  "return %y as \"y\" }\n",
                                  "w");
    const sx_device *device = sx_device_at(0);
    optimize(in, "conv-outputs-last");
    double without = report.cost_after_ns;
    const sx_graph *out = optimize(in, "");
    double flops = 2 * 2.0 * 8 * 64 * 28 * 28 * 64 * 3 * 3; /* forward, and as many backward */
    double floor_ns = sx_device_compute_ns(device, SX_F32, true, flops);
    ck_assert_msg(report.cost_after_ns < 1.6 * floor_ns, "%g us, floor %g us",
                  report.cost_after_ns / 1e3, floor_ns / 1e3);
    ck_assert_double_gt(without, 1.5 * report.cost_after_ns);
    for (uint32_t i = 0; i < out->node_count; i++) { /* no contraction has the taps last */
        const sx_node *node = &out->node[i];
        const sx_attr *attr = sx_graph_attr(out, node);
        ck_assert(node->op != SX_OP_FUSED || sx_body_kernel_kind(attr->body) != SX_KERNEL_DOT ||
                  node->type.dim[node->type.rank - 1].scale > 3);
    }
}
END_TEST

/* Is there a contraction with `channels` last in its result? */
static bool has_channels_last(const sx_graph *graph, int64_t channels)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        const sx_attr *attr = sx_graph_attr(graph, node);
        if (node->op == SX_OP_FUSED && sx_body_kernel_kind(attr->body) == SX_KERNEL_DOT &&
            node->type.dim[node->type.rank - 1].scale == channels) {
            return true;
        }
    }
    return false;
}

/* Places that lie apart, or do not fill vectors, are no lanes; those that fill them are. */
START_TEST(test_lanes)
{
    static const struct {
        int stride, places;
        bool last; /* the output channels */
    } cases[] = {{2, 28, true}, {1, 9, true}, {1, 32, false}};
    for (uint32_t i = 0; i < SX_COUNT(cases); i++) {
        int stride = cases[i].stride, places = cases[i].places;
        char text[512];
        int length = snprintf(
            text, sizeof(text),
            "sx 1 graph \"g\" {\n"
            "%%x = parameter {name = \"x\", weight = 0} : f32[4, 64, %d, %d]\n"
            "%%w = parameter {name = \"w\", weight = 1} : f32[128, 64, 3, 3]\n"
            "%%y = convolution(%%x, %%w) {stride = [%d, %d], low = [1, 1], high = [1, 1], dilation "
            "= [1, 1], groups = 1} : f32[4, 128, %d, %d]\nreturn %%y as \"y\" }\n",
            places * stride, places * stride, stride, stride, places, places);
        sx_graph *in;
        ck_sx_ok(&cx, sx_graph_parse(&cx, (sx_span){(const uint8_t *)text, (size_t)length}, &in));
        const sx_graph *out = optimize(in, "");
        double cost = report.cost_after_ns;
        ck_assert_msg(has_channels_last(out, 128) == cases[i].last, "case %u", i);
        ck_assert(!has_channels_last(optimize(in, "conv-outputs-last"), 128));
        ck_assert(!cases[i].last || report.cost_after_ns > 1.1 * cost);
    }
}
END_TEST

/* x, w and the attributes of a convolution. */
typedef struct {
    const char *x, *w, *attributes, *y;
} convolution;
static const convolution convolutions[] = {
    {"[3, 4, 9, 8]", "[6, 4, 3, 3]",
     "stride = [1, 1], low = [0, 0], high = [0, 0], dilation = [1, 1], groups = 1", "[3, 6, 7, 6]"},
    {"[3, 4, 9, 9]", "[6, 4, 3, 3]",
     "stride = [2, 2], low = [1, 1], high = [1, 1], dilation = [1, 1], groups = 1", "[3, 6, 5, 5]"},
    {"[3, 4, 9, 9]", "[6, 4, 3, 2]",
     "stride = [1, 2], low = [2, 0], high = [1, 3], dilation = [2, 3], groups = 1", "[3, 6, 8, 5]"},
    {"[3, 4, 8, 8]", "[6, 2, 3, 3]",
     "stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], groups = 2", "[3, 6, 8, 8]"},
    {"[3, 4, 8, 8]", "[4, 1, 3, 3]",
     "stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], groups = 4", "[3, 4, 8, 8]"},
    {"[3, 4, 19]", "[6, 4, 5]", "stride = [1], low = [2], high = [2], dilation = [1], groups = 1",
     "[3, 6, 19]"},
    {"[3, 4, 5, 6, 7]", "[6, 4, 2, 3, 3]",
     "stride = [1, 1, 1], low = [0, 1, 1], high = [0, 1, 1], dilation = [1, 1, 1], groups = 1",
     "[3, 6, 4, 6, 7]"},
    {"[batch, 4, 8, 8]", "[6, 4, 3, 3]",
     "stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], groups = 1",
     "[batch, 6, 8, 8]"},
};

START_TEST(test_weights_of_all_kinds)
{
    const convolution *c = &convolutions[_i];
    sx_buf text;
    sx_buf_init(&text, 1 << 16);
    sx_buf_print(&text,
                 "sx 1 graph \"c\" %s {\n%%x = parameter {name = \"x\", weight = 0} : f32%s\n"
                 "%%w = parameter {name = \"w\", weight = 0} : f32%s\n"
                 "%%y = convolution(%%x, %%w) {%s} : f32%s\nreturn %%y as \"y\" }\n",
                 strstr(c->x, "batch") != NULL ? "(batch in [1, 8])" : "", c->x, c->w,
                 c->attributes, c->y);
    sx_buf_put_u8(&text, 0);
    const sx_graph *in = gradient((const char *)text.ptr, "w");
    const sx_graph *out = optimize(in, "");
    ck_assert_uint_gt(report.union_count[SX_RULE_CONV_OUTPUTS_LAST], 0);
    ck_assert_double_lt(differ(in, out), 1e-12);
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.optimize.backward");
    TCase *cases = tcase_create("backward");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_softmax, 0, 2);
    tcase_add_test(cases, test_other_divisors_stay);
    tcase_add_test(cases, test_weights);
    tcase_add_test(cases, test_lanes);
    tcase_add_loop_test(cases, test_weights_of_all_kinds, 0, SX_COUNT(convolutions));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
