/* Whole graphs: memory that is used again, arguments that do not fit, budgets, composites inside. */
#include <math.h>
#include <string.h>

#include "core/eval/eval.h"
#include "core/fuse/fuse.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

#define DIM(extent) ((sx_dim){extent, SX_NO_SYMBOL})

static sx_ctx cx;
static sx_graph *graph;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("g"), NULL, &graph));
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_node_id parameter(const char *name, sx_type type)
{
    sx_node_id id;
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, name, false, &type, &id));
    return id;
}

static sx_node_id node(sx_op op, const sx_attr *attr, sx_node_id a, sx_node_id b)
{
    sx_node_id input[2] = {a, b};
    sx_node_id id;
    ck_sx_ok(&cx, sx_graph_add(&cx, graph, op, attr, input, sx_op_info_of(op)->input_max, &id));
    return id;
}

static void output(const char *name, sx_node_id id)
{
    ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, sx_span_of(name), id));
}

/* relu([1 2; 3 4] . [1 -1; 0 1] + [0 0.5]) by hand: [1 -1; 3 -3] + [0 2; 0 4] + .. = [1 1.5; 3 1.5] */
START_TEST(small_network)
{
    sx_type square = {SX_F32, 2, {DIM(2), DIM(2)}};
    sx_type row = {SX_F32, 1, {DIM(2)}};
    sx_node_id x = parameter("x", square);
    sx_node_id w = parameter("w", square);
    sx_node_id b = parameter("b", row);
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    dot.lhs_contract = (sx_ints){1, {1}};
    dot.rhs_contract = (sx_ints){1, {0}};
    sx_node_id product = node(SX_OP_DOT_GENERAL, &dot, x, w);
    sx_node_id bias;
    ck_sx_ok(&cx, sx_build_broadcast(&cx, graph, b, &(sx_ints){1, {1}}, &square, &bias));
    sx_node_id sum = node(SX_OP_ADD, &(sx_attr){0}, product, bias);
    output("y", node(SX_OP_RELU, &(sx_attr){0}, sum, sum));
    output("x", x);
    double values[3][4] = {{1, 2, 3, 4}, {1, -1, 0, 1}, {0, 0.5}};
    sx_tensor argument[3] = {{square, values[0]}, {square, values[1]}, {row, values[2]}};
    sx_tensor result[2];
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, argument, 3, result, 2));
    static const double expected[] = {1, 1.5, 3, 1.5};
    ck_assert_mem_eq(result[0].data, expected, sizeof(expected));
    ck_assert_mem_eq(result[1].data, values[0], sizeof(values[0]));
}
END_TEST

/* A long chain needs the memory of a few tensors, and outputs in its middle keep their values. */
START_TEST(memory_is_used_again)
{
    sx_type type = {SX_F64, 1, {DIM(100000)}}; // 0.8 MB a tensor, 240 nodes
    sx_node_id one;
    sx_node_id x = parameter("x", type);
    sx_node_id at = x;
    ck_sx_ok(&cx, sx_build_scalar(&cx, graph, &type, 1, &one));
    for (uint32_t k = 0; k < 240; k++) {
        at = node(SX_OP_ADD, &(sx_attr){0}, at, one);
        if (k == 99) {
            output("middle", at);
        }
    }
    output("end", at);
    sx_tensor argument;
    sx_tensor result[2];
    sx_rng rng = {5};
    size_t before = cx.arena.used_bytes;
    sx_test_tensor(&cx, &rng, SX_EVAL_F64, &type, &argument);
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, &argument, 1, result, 2));
    ck_assert_uint_lt(cx.arena.used_bytes - before, (size_t)8 << 20);
    for (uint32_t k = 0; k < 100000; k++) {
        double v = ((double *)argument.data)[k];
        ck_assert(fabs(((double *)result[0].data)[k] - v - 100) < 1e-9);
        ck_assert(fabs(((double *)result[1].data)[k] - v - 240) < 1e-9);
    }
}
END_TEST

/* A composite in a graph is what it is alone; F64 rounds parameters to their type and nothing else. */
START_TEST(composites_and_rounding)
{
    sx_type type = {SX_F32, 2, {DIM(3), DIM(5)}};
    sx_attr along = {.present = SX_A(axis), .axis = 1};
    sx_node_id x = parameter("x", type);
    sx_node_id power = node(SX_OP_EXP, &(sx_attr){0}, x, x);
    output("y", node(SX_OP_SOFTMAX, &along, power, power));
    output("power", power);
    double values[15];
    double rounded[15];
    for (uint32_t k = 0; k < 15; k++) {
        values[k] = 0.1 * k;
        rounded[k] = exp((double)(float)values[k]);
    }
    sx_tensor argument = {type, values};
    sx_tensor result[2];
    sx_tensor inner = {type, rounded};
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, &argument, 1, result, 2));
    ck_assert_mem_eq(result[1].data, rounded, sizeof(rounded));
    sx_tensor expected = sx_test_eval(&cx, SX_OP_SOFTMAX, &along, SX_EVAL_F64, &inner, 1);
    sx_test_tensor_equal(&expected, &result[0], "softmax");
    ck_assert(values[1] == 0.1);
}
END_TEST

START_TEST(bad_arguments)
{
    sx_type ints = {SX_I8, 1, {DIM(2)}};
    sx_type bools = {SX_BOOL, 1, {DIM(2)}};
    sx_node_id x = parameter("x", ints);
    sx_node_id p = parameter("p", bools);
    sx_attr convert = {.present = SX_A(type), .type = {.dtype = SX_I8}};
    output("y", node(SX_OP_ADD, &(sx_attr){0}, x, node(SX_OP_CONVERT, &convert, p, p)));
    int64_t values[2][2] = {{3, 4}, {0, 1}};
    sx_tensor argument[3] = {{ints, values[0]}, {bools, values[1]}, {ints, values[0]}};
    sx_tensor result;
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, argument, 2, &result, 1));
    ck_assert_int_eq(((int64_t *)result.data)[1], 5);
    ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, argument, 1, &result, 1), SX_INPUT,
                "parameter 1: no argument");
    ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, argument, 3, &result, 1), SX_INPUT,
                "3 arguments for 2 parameters");
    ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, argument, 2, &result, 0), SX_INPUT,
                "0 results");
    ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, argument + 1, 2, &result, 1), SX_INPUT,
                "type differs");
    values[0][1] = 128;
    ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, argument, 2, &result, 1), SX_INPUT,
                "parameter 0: element 1");
    values[0][1] = 1;
    values[1][0] = 2;
    ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, argument, 2, &result, 1), SX_INPUT,
                "parameter 1: element 0");
    values[1][0] = 1;
    values[0][0] = INT64_C(1) << 31;
    ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_MODP, argument, 2, &result, 1), SX_INPUT,
                "parameter 0: element 0");
}
END_TEST

START_TEST(budgets)
{
    sx_type type = {SX_F32, 2, {DIM(300), DIM(300)}};
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    dot.lhs_contract = (sx_ints){1, {1}};
    dot.rhs_contract = (sx_ints){1, {0}};
    sx_node_id x = parameter("x", type);
    output("y", node(SX_OP_DOT_GENERAL, &dot, x, x));
    sx_tensor argument;
    sx_tensor result;
    sx_rng rng = {5};
    sx_test_tensor(&cx, &rng, SX_EVAL_F64, &type, &argument);
    cx.fuel = 1000000;
    ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, &argument, 1, &result, 1), SX_QUOTA,
                "");
    cx.fuel = 30000000;
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, &argument, 1, &result, 1));
    sx_type huge = {SX_F32, 1, {DIM(INT64_C(1) << 39)}};
    sx_attr iota = {.present = SX_A(axis) | SX_A(type), .type = huge};
    cx.fuel = UINT64_MAX;
    ck_sx_fails(&cx, sx_node_eval(&cx, SX_OP_IOTA, &iota, SX_EVAL_F64, NULL, 0, &huge, &result),
                SX_NOMEM, "");
}
END_TEST

/* Every limit of memory from nothing to enough: refused cleanly until it is granted. */
START_TEST(memory_sweep)
{
    sx_type type = {SX_BF16, 2, {DIM(4), DIM(6)}};
    sx_attr along = {.present = SX_A(axis), .axis = 1};
    sx_node_id x = parameter("x", type);
    sx_node_id soft = node(SX_OP_SOFTMAX, &along, x, x);
    sx_attr fused;
    sx_node_id made;
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_GELU, &(sx_attr){0}, &type, 1, &type, &fused));
    ck_sx_ok(&cx, sx_graph_add(&cx, graph, SX_OP_FUSED, &fused, &soft, 1, &made));
    output("y", made);
    sx_tensor argument;
    sx_tensor result;
    sx_rng rng = {5};
    sx_test_tensor(&cx, &rng, SX_EVAL_F64, &type, &argument);
    uint32_t refused = 0;
    sx_code code = SX_NOMEM;
    for (size_t limit = 512; code != SX_OK; limit += 512) {
        sx_ctx small;
        sx_ctx_init(&small, limit);
        code = sx_graph_eval(&small, graph, SX_EVAL_F64, &argument, 1, &result, 1);
        ck_assert_msg(code == SX_OK || code == SX_NOMEM, "%zu bytes: %s", limit, small.error.text);
        refused += code == SX_NOMEM;
        ck_assert_uint_lt(limit, (size_t)64 << 20);
        sx_ctx_fini(&small);
    }
    ck_assert_uint_gt(refused, 5);
    refused = 0;
    for (size_t limit = 0; limit < 65536; limit += 1024) {
        sx_ctx small;
        sx_attr out;
        bool ok;
        sx_ctx_init(&small, limit);
        code = sx_fused_lift(&small, SX_OP_GELU, &(sx_attr){0}, &type, 1, &type, &out);
        ck_assert(code == SX_OK || (code == SX_NOMEM && limit < 32768));
        sx_ctx_reset_error(&small);
        code = sx_fused_inline(&small, &fused, 0, &fused, &type, &out, &ok);
        ck_assert(code == SX_NOMEM || (code == SX_OK && ok));
        refused += code == SX_NOMEM;
        sx_ctx_fini(&small);
    }
    ck_assert(refused > 5 && refused < 60);
}
END_TEST

START_TEST(symbols_need_values)
{
    uint32_t symbol;
    ck_sx_ok(&cx, sx_graph_add_symbol(&cx, graph, SX_SPAN_LITERAL("n"), 1, 9, &symbol));
    sx_node_id x = parameter("x", (sx_type){SX_F32, 1, {{1, symbol}}});
    output("y", node(SX_OP_ABS, &(sx_attr){0}, x, x));
    sx_tensor tensor;
    ck_sx_fails(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, &tensor, 0, &tensor, 1), SX_INPUT,
                "node 0: a symbolic dimension");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph");
    TCase *tcase = tcase_create("graph");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, small_network);
    tcase_add_test(tcase, memory_is_used_again);
    tcase_add_test(tcase, composites_and_rounding);
    tcase_add_test(tcase, bad_arguments);
    tcase_add_test(tcase, budgets);
    tcase_add_test(tcase, memory_sweep);
    tcase_add_test(tcase, symbols_need_values);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
