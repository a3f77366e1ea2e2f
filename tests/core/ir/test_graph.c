#include "tests/lib/test.h"

#include <string.h>

#include "core/ir/ir.h"
#include "core/ir/num.h"

static const sx_span graph_name = {(const uint8_t *)"g", 1};

static sx_type f32(uint32_t rank, sx_dim a, sx_dim b)
{
    return (sx_type){SX_F32, rank, {a, b}};
}

/* relu(x @ w) with a symbolic batch. */
static sx_graph *mlp(sx_ctx *cx)
{
    sx_graph *g;
    uint32_t batch;
    ck_sx_ok(cx, sx_graph_make(cx, graph_name, NULL, &g));
    ck_sx_ok(cx, sx_graph_add_symbol(cx, g, sx_span_of("batch"), 1, 4096, &batch));
    sx_type x = f32(2, (sx_dim){1, batch}, sx_dim_of(784));
    sx_type w = f32(2, sx_dim_of(784), sx_dim_of(512));
    sx_node_id id[4];
    ck_sx_ok(cx, sx_build_parameter(cx, g, "x", false, &x, &id[0]));
    ck_sx_ok(cx, sx_build_parameter(cx, g, "w", true, &w, &id[1]));
    sx_attr dot = {.present = SX_A(lhs_contract) | SX_A(rhs_contract),
                   .lhs_contract = {1, {1}},
                   .rhs_contract = {1, {0}}};
    ck_sx_ok(cx, sx_graph_add(cx, g, SX_OP_DOT_GENERAL, &dot, id, 2, &id[2]));
    ck_sx_ok(cx, sx_build_unary(cx, g, SX_OP_RELU, id[2], &id[3]));
    ck_sx_ok(cx, sx_graph_add_output(cx, g, sx_span_of("y"), id[3]));
    return g;
}

START_TEST(test_build)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_graph *g = mlp(&cx);
    ck_sx_ok(&cx, sx_graph_check(&cx, g));
    ck_assert_uint_eq(g->node_count, 4);
    const sx_node *dot = sx_graph_node(g, (sx_node_id){2});
    ck_assert_uint_eq(sx_graph_input(g, dot, 1).i, 1);
    sx_type expected = f32(2, (sx_dim){1, 0}, sx_dim_of(512));
    ck_assert(sx_type_equal(&dot->type, &expected));
    /* lists that were left out are there, empty */
    ck_assert_uint_eq(sx_graph_attr(g, dot)->present, sx_op_info_of(SX_OP_DOT_GENERAL)->attrs);
    sx_node_id id;
    ck_sx_fails(&cx, sx_build_binary(&cx, g, SX_OP_ADD, (sx_node_id){0}, (sx_node_id){3}, &id),
                SX_INPUT,
                "node 4 (%0 \"x\", %3): add: axis 1: operand 1 has extent 512, operand 0 has 784");
    ck_sx_fails(&cx, sx_build_unary(&cx, g, SX_OP_ABS, (sx_node_id){4}, &id), SX_INPUT,
                "operand 0 is node 4, not an earlier one");
    ck_assert_uint_eq(g->node_count, 4);
    sx_ctx_fini(&cx);
}
END_TEST

/* A graph of one batch up to `high`, and parameters [batch, inner] and [inner, columns]. */
static sx_graph *factors(sx_ctx *cx, sx_attr_table *attrs, int64_t high, int64_t inner,
                         int64_t columns, sx_node_id id[2])
{
    sx_graph *g;
    uint32_t batch;
    ck_sx_ok(cx, sx_graph_make(cx, graph_name, attrs, &g));
    ck_sx_ok(cx, sx_graph_add_symbol(cx, g, sx_span_of("n"), 1, high, &batch));
    sx_type x = f32(2, (sx_dim){1, batch}, sx_dim_of(inner));
    sx_type w = f32(2, sx_dim_of(inner), sx_dim_of(columns));
    ck_sx_ok(cx, sx_build_parameter(cx, g, "a", false, &x, &id[0]));
    ck_sx_ok(cx, sx_build_parameter(cx, g, "b", true, &w, &id[1]));
    return g;
}

START_TEST(test_copies)
{
    sx_ctx cx;
    sx_node_id in[2], id;
    sx_ctx_init(&cx, 1 << 24);
    sx_graph *from = factors(&cx, NULL, 4096, 1, 512, in);
    sx_attr attr = {.present = SX_A(lhs_contract) | SX_A(rhs_contract),
                    .lhs_contract = {1, {1}},
                    .rhs_contract = {1, {0}}};
    ck_sx_ok(&cx, sx_graph_add(&cx, from, SX_OP_DOT_GENERAL, &attr, in, 2, &id));
    const sx_node *dot = &from->node[id.i];
    for (uint32_t i = 0; i < 4; i++) { /* checked: each type is the one that is inferred */
        sx_graph *g = factors(&cx, i == 1 ? from->attrs : NULL, i == 2 ? 16 : 4096, 1,
                              i == 3 ? 640 : 512, in);
        ck_sx_ok(&cx, sx_graph_add_copy(&cx, g, from, dot, in, &id));
        ck_sx_ok(&cx, sx_graph_add_output(&cx, g, sx_span_of("y"), id));
        ck_sx_ok(&cx, sx_graph_check(&cx, g));
        ck_assert_int_eq(g->node[id.i].type.dim[1].scale, i == 3 ? 640 : 512);
    }
    sx_graph *g = factors(&cx, NULL, 4096, 1, 512, in);
    const sx_node_id turned[2] = {in[1], in[0]}, far[2] = {in[0], {9}};
    ck_sx_fails(&cx, sx_graph_add_copy(&cx, g, from, dot, turned, &id), SX_INPUT, "dot_general");
    ck_sx_fails(&cx, sx_graph_add_copy(&cx, g, from, dot, far, &id), SX_INPUT,
                "operand 1 is node 9, not an earlier one");
    /* of the same types, but of so large a batch that the result is refused */
    g = factors(&cx, NULL, SX_EXTENT_MAX, 1, 512, in);
    ck_sx_fails(&cx, sx_graph_add_copy(&cx, g, from, dot, in, &id), SX_LIMIT, "elements");
    ck_assert_uint_eq(g->node_count, 2);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_shorthands)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_graph *g = mlp(&cx);
    sx_node_id y = {3};
    sx_node_id id;
    ck_sx_ok(&cx, sx_build_transpose(&cx, g, y, &(sx_ints){2, {1, 0}}, &id));
    ck_assert_int_eq(g->node[id.i].type.dim[0].scale, 512);
    ck_sx_ok(&cx, sx_build_reduce(&cx, g, SX_MAX, y, &(sx_ints){1, {1}}, &id));
    ck_assert_uint_eq(g->node[id.i].type.rank, 1);
    sx_type y_type = g->node[y.i].type;
    ck_sx_ok(&cx, sx_build_broadcast(&cx, g, id, &(sx_ints){1, {0}}, &y_type, &id));
    ck_sx_ok(&cx, sx_build_binary(&cx, g, SX_OP_SUBTRACT, y, id, &id));
    ck_sx_ok(&cx, sx_graph_check(&cx, g));
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_scalars)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_graph *g = mlp(&cx);
    sx_node_id id;
    sx_type type = {SX_BF16, 1, {{1, 0}}};
    ck_sx_ok(&cx, sx_build_scalar(&cx, g, &type, 1.5, &id));
    sx_span data = sx_graph_attr(g, &g->node[id.i])->data;
    ck_assert_uint_eq(data.len, 2);
    ck_assert(sx_num_decode(SX_BF16, sx_num_load(SX_BF16, data.ptr, 0)) == 1.5);
    type.dtype = SX_U8;
    ck_sx_ok(&cx, sx_build_scalar(&cx, g, &type, 255, &id));
    ck_sx_fails(&cx, sx_build_scalar(&cx, g, &type, 256, &id), SX_INPUT, "256 is no value of u8");
    ck_sx_fails(&cx, sx_build_scalar(&cx, g, &type, 0.5, &id), SX_INPUT, "0.5 is no value of u8");
    type.dtype = SX_I64;
    ck_sx_ok(&cx, sx_build_scalar(&cx, g, &type, -0x1p63, &id));
    ck_sx_fails(&cx, sx_build_scalar(&cx, g, &type, 0x1p63, &id), SX_INPUT, "no value of i64");
    type.dtype = SX_BOOL;
    ck_sx_fails(&cx, sx_build_scalar(&cx, g, &type, 2, &id), SX_INPUT, "2 is no value of bool");
    sx_ctx_fini(&cx);
}
END_TEST

/* There is one way to write an attribute, so that equal operations have equal ids. */
START_TEST(test_normal_attributes)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_graph *g = mlp(&cx);
    sx_node_id x = {0};
    sx_node_id a;
    sx_node_id b;
    sx_attr shapeless = {.present = SX_A(type), .type = {.dtype = SX_F16}};
    sx_attr shaped = {.present = SX_A(type), .type = g->node[0].type};
    shaped.type.dtype = SX_F16;
    ck_sx_ok(&cx, sx_graph_add(&cx, g, SX_OP_CONVERT, &shapeless, &x, 1, &a));
    ck_sx_ok(&cx, sx_graph_add(&cx, g, SX_OP_CONVERT, &shaped, &x, 1, &b));
    ck_assert_uint_eq(g->node[a.i].attr.i, g->node[b.i].attr.i);
    ck_assert_uint_eq(g->node[b.i].type.rank, 2);
    static const uint8_t bytes[8] = {1, 2, 1, 2, 1, 2, 1, 2};
    sx_attr all = {.present = SX_A(type) | SX_A(data),
                   .type = {SX_F16, 1, {sx_dim_of(4)}},
                   .data = {bytes, 8}};
    sx_attr one = all;
    one.data.len = 2;
    ck_sx_ok(&cx, sx_graph_add(&cx, g, SX_OP_CONSTANT, &all, NULL, 0, &a));
    ck_sx_ok(&cx, sx_graph_add(&cx, g, SX_OP_CONSTANT, &one, NULL, 0, &b));
    ck_assert_uint_eq(g->node[a.i].attr.i, g->node[b.i].attr.i);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_names_and_limits)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_graph *g = mlp(&cx);
    uint32_t symbol;
    ck_sx_fails(&cx, sx_graph_add_symbol(&cx, g, sx_span_of("batch"), 1, 2, &symbol), SX_INPUT,
                "\"batch\" is declared twice");
    ck_sx_fails(&cx, sx_graph_add_symbol(&cx, g, sx_span_of("n"), 0, 2, &symbol), SX_INPUT,
                "interval [0, 2], within [1, 1099511627776]");
    ck_sx_fails(&cx, sx_graph_add_symbol(&cx, g, sx_span_of("n"), 3, 2, &symbol), SX_INPUT,
                "interval [3, 2]");
    ck_sx_fails(&cx, sx_graph_add_symbol(&cx, g, sx_span_of("n"), 3, INT64_MAX, &symbol), SX_INPUT,
                "interval [3, ");
    ck_sx_fails(&cx, sx_graph_add_symbol(&cx, g, sx_span_of(""), 1, 2, &symbol), SX_INPUT,
                "symbol name of 0 bytes");
    ck_sx_fails(&cx, sx_graph_add_output(&cx, g, sx_span_of("y"), (sx_node_id){0}), SX_INPUT,
                "output \"y\" is named twice");
    ck_sx_fails(&cx, sx_graph_add_output(&cx, g, sx_span_of("z"), (sx_node_id){4}), SX_INPUT,
                "output \"z\" is node 4, the graph has 4");
    char name[SX_NAME_MAX + 2];
    memset(name, '\n', sizeof(name));
    ck_sx_fails(
        &cx,
        sx_graph_add_output(&cx, g, (sx_span){(uint8_t *)name, sizeof(name) - 1}, (sx_node_id){0}),
        SX_INPUT, "output name of 256 bytes, 1 to 255");
    ck_sx_fails(
        &cx, sx_graph_add_output(&cx, g, (sx_span){(uint8_t *)name, SX_NAME_MAX}, (sx_node_id){9}),
        SX_INPUT, "\\x0a");
    for (uint32_t i = 1; i < SX_SYMBOLS_MAX; i++) {
        char text[3] = {'s', (char)('0' + i % 64), '\0'};
        ck_sx_ok(&cx, sx_graph_add_symbol(&cx, g, sx_span_of(text), 1, 2, &symbol));
    }
    ck_sx_fails(&cx, sx_graph_add_symbol(&cx, g, sx_span_of("n"), 1, 2, &symbol), SX_LIMIT,
                "more than 64 symbols");
    ck_sx_fails(&cx, sx_graph_make(&cx, (sx_span){(uint8_t *)name, 256}, NULL, &g), SX_INPUT,
                "graph name of 256 bytes");
    sx_ctx_fini(&cx);
}
END_TEST

typedef void (*damage)(sx_graph *g);
static void damage_type(sx_graph *g)
{
    g->node[3].type.dim[1].scale = 511;
}
static void damage_dtype(sx_graph *g)
{
    g->node[3].type.dtype = SX_F64;
}
static void damage_rank(sx_graph *g)
{
    g->node[3].type.rank = 900;
}
static void damage_order(sx_graph *g)
{
    g->input[2].i = 3;
}
static void damage_input(sx_graph *g)
{
    g->node[2].input_first = 2;
}
static void damage_input_far(sx_graph *g)
{
    g->node[2].input_first = UINT32_MAX;
}
static void damage_op(sx_graph *g)
{
    g->node[2].op = SX_OP_COUNT;
}
static void damage_attr(sx_graph *g)
{
    g->node[2].attr.i = 1000;
}
static void damage_attr_other(sx_graph *g)
{
    g->node[2].attr = g->node[0].attr;
}
static void damage_twice(sx_graph *g)
{
    g->node[1] = g->node[0];
}
static void damage_symbol(sx_graph *g)
{
    g->symbol_count = 0;
}
static void damage_interval(sx_graph *g)
{
    g->symbol[0].low = 0;
}
static void damage_output(sx_graph *g)
{
    g->output[0].node.i = 4;
}
static void damage_no_output(sx_graph *g)
{
    g->output_count = 0;
}

START_TEST(test_check_finds_damage)
{
    static const struct {
        damage make;
        const char *text;
    } cases[] = {
        {damage_type, "node 3 (relu): stored type"},
        {damage_dtype, "node 3 (relu): stored type"},
        {damage_rank, "node 3 (relu): stored type"},
        {damage_order, "node 3: operand 0 is node 3"},
        {damage_input, "node 2: operation"},
        {damage_input_far, "node 2: operation"},
        {damage_op, "node 2: operation"},
        {damage_attr, "attribute 1000 of"},
        {damage_attr_other, "dot_general: attribute"},
        {damage_twice, "nodes 0 and 1: both are parameter \"x\""},
        {damage_symbol, "axis 0 has symbol 0, the graph has 0"},
        {damage_interval, "interval [0, 4096]"},
        {damage_output, "output 0 \"y\" is node 4"},
        {damage_no_output, "has no output"},
    };
    for (uint32_t i = 0; i < SX_COUNT(cases); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 24);
        sx_graph *g = mlp(&cx);
        cases[i].make(g);
        ck_sx_fails(&cx, sx_graph_check(&cx, g), SX_INPUT, cases[i].text);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Every allocation failing once: an error each time, never a crash. */
START_TEST(test_out_of_memory)
{
    for (size_t limit = 64; limit < 40000; limit += 512) {
        sx_ctx cx;
        sx_ctx_init(&cx, limit);
        sx_graph *g;
        sx_node_id id = {0};
        sx_type type = f32(1, sx_dim_of(4), sx_dim_of(1));
        sx_code code = sx_graph_make(&cx, graph_name, NULL, &g);
        if (code == SX_OK) {
            code = sx_build_parameter(&cx, g, "x", false, &type, &id);
        }
        for (uint32_t i = 0; code == SX_OK && i < 100; i++) {
            code = sx_build_binary(&cx, g, SX_OP_ADD, id, id, &id);
        }
        ck_assert(code == SX_OK || code == SX_NOMEM);
        ck_assert_int_eq(code, cx.error.code);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/graph");
    TCase *tcase = tcase_create("graph");
    tcase_add_test(tcase, test_build);
    tcase_add_test(tcase, test_copies);
    tcase_add_test(tcase, test_shorthands);
    tcase_add_test(tcase, test_scalars);
    tcase_add_test(tcase, test_normal_attributes);
    tcase_add_test(tcase, test_names_and_limits);
    tcase_add_test(tcase, test_check_finds_damage);
    tcase_add_test(tcase, test_out_of_memory);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
