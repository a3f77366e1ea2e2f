/* Nested contractions as values: what is valid and what is refused, text both ways, and what they mean: by the
 * interpreter, bit for bit against sums written here. */
#include <math.h>
#include <string.h>

#include "core/ir/num.h"
#include "tests/lib/ir.h"
#include "tests/lib/nested_text.h"
#include "tests/lib/test.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_graph *parse(sx_span text)
{
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_parse(&cx, text, &graph));
    return graph;
}

static const sx_node *nested_node(const sx_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->node[i].op == SX_OP_FUSED) {
            return &graph->node[i];
        }
    }
    ck_abort_msg("no fused node");
    return NULL;
}

START_TEST(text_both_ways)
{
    for (uint32_t k = 0; k < SX_NESTED_COUNT; k++) {
        const sx_nested_shape shape = {.kind = (sx_nested_kind)k,
                                       .batch = 2,
                                       .rows = 5,
                                       .keys = 7,
                                       .width = 3,
                                       .scale = 0.5,
                                       .causal = k == 1,
                                       .dtype = "bf16",
                                       .rounded = k == 2 ? NULL : "bf16"};
        sx_buf text, again;
        sx_buf_init(&text, 1 << 16);
        sx_buf_init(&again, 1 << 16);
        sx_nested_text(&shape, &text);
        const sx_graph *graph = parse(sx_buf_span(&text));
        const sx_body *body = sx_graph_attr(graph, nested_node(graph))->body;
        ck_assert_int_eq(sx_body_kernel_kind(body), SX_KERNEL_NESTED);
        ck_sx_ok(&cx, sx_graph_print(&cx, graph, &again));
        const sx_graph *other = parse(sx_buf_span(&again));
        ck_assert(sx_body_equal(body, sx_graph_attr(other, nested_node(other))->body));
        sx_buf_fini(&text);
        sx_buf_fini(&again);
    }
}
END_TEST

/* The kernel of dv with one thing changed. */
static sx_body body;
static sx_attr attr;
static sx_type input[4];

static void make(void)
{
    const sx_nested_shape shape = {.kind = SX_NESTED_DV,
                                   .batch = 1,
                                   .rows = 5,
                                   .keys = 7,
                                   .width = 3,
                                   .scale = 0.5,
                                   .dtype = "f32"};
    sx_buf text;
    sx_buf_init(&text, 1 << 16);
    sx_nested_text(&shape, &text);
    const sx_graph *graph = parse(sx_buf_span(&text));
    const sx_node *node = nested_node(graph);
    attr = *sx_graph_attr(graph, node);
    memset(&body, 0, sizeof(body));
    sx_body_copy(&body, attr.body);
    attr.body = &body;
    for (uint32_t k = 0; k < 4; k++) {
        input[k] = sx_graph_node(graph, sx_graph_input(graph, node, k))->type;
    }
    sx_buf_fini(&text);
}

static void refused(const char *text)
{
    sx_type result;
    ck_sx_fails(&cx, sx_fused_infer(&cx, &attr, input, 4, &result), SX_INPUT, text);
    make();
}

/* 0 arg q, 1 arg k, 2 dot 0 1, 3 imm, 4 multiply 2 3, 5 arg lse, 6 subtract 4 5, 7 exp 6, 8 arg do, 9 dot 7 8 */
START_TEST(refusals)
{
    sx_type result;
    make();
    ck_assert_uint_eq(body.instr_count, 10);
    ck_sx_ok(&cx, sx_fused_infer(&cx, &attr, input, 4, &result));
    const sx_type expected = {SX_F32, 3, {{1, SX_NO_SYMBOL}, {7, SX_NO_SYMBOL}, {3, SX_NO_SYMBOL}}};
    ck_assert(sx_type_equal(&result, &expected));
    body.inner = 0;
    refused("operands of a dot are arguments");
    body.inner = 1u << 3 | 1u << 4;
    refused("only dots of two arguments read what varies");
    body.instr[9].y = 7;
    body.instr[9].x = 8;
    refused("operands of a dot are arguments");
    body.instr[3] = body.instr[1]; /* an operand of the inner dot beside it */
    refused("only dots of two arguments read what varies along the inner axes 0x10");
    body.access[3].stride[4] = sx_dim_of(1);
    body.access[3].stride[2] = sx_dim_of(0);
    refused("instruction 9: only dots of two arguments read what varies");
    body.instr[5] = (sx_instr){.kind = SX_BODY_INDEX, .x = 4, .dtype = SX_F32};
    refused("instruction 6: only dots of two arguments read what varies");
    body.instr[3] = (sx_instr){.kind = SX_BODY_REDUCE, .reducer = SX_SUM, .x = 2, .dtype = SX_F32};
    refused("instruction 3: beside nested dots stand only");
    body.instr[7].x = 5; /* what no inner dot made is summed, and the inner dot used elsewhere */
    body.instr[6].y = 5;
    body.instr[10] =
        (sx_instr){.kind = SX_BODY_APPLY, .op = SX_OP_ADD, .dtype = SX_F32, .x = 9, .y = 6};
    body.instr_count = 11;
    refused("beside nested dots stand only");
    body.instr[10] =
        (sx_instr){.kind = SX_BODY_APPLY, .op = SX_OP_ADD, .dtype = SX_F32, .x = 9, .y = 4};
    body.instr_count = 11;
    refused("the result depends on an inner dot");
    body.instr[10] =
        (sx_instr){.kind = SX_BODY_APPLY, .op = SX_OP_ADD, .dtype = SX_F32, .x = 9, .y = 5};
    body.instr_count = 11;
    refused("the result depends on an inner dot or a reduced axis");
    body.instr[10] = (sx_instr){.kind = SX_BODY_DOT, .dtype = SX_F32, .x = 9, .y = 8};
    body.instr_count = 11;
    refused("beside nested dots stand only");
    body.instr[10] = (sx_instr){.kind = SX_BODY_DOT, .dtype = SX_F32, .x = 7, .y = 8};
    body.instr[10].x = 6;
    body.instr[11] =
        (sx_instr){.kind = SX_BODY_APPLY, .op = SX_OP_ADD, .dtype = SX_F32, .x = 9, .y = 10};
    body.instr_count = 12;
    refused("1 dots over inner axes 0x10 of 0x18 and 2 over the others, 1 to 2 and one");
}
END_TEST

/* ---- meaning ---- */

typedef struct {
    const sx_nested_shape *shape;
    const double *q, *k, *v, *g, *lse, *sums;
} operands;

static float narrow(const sx_nested_shape *s, double value)
{
    return strcmp(s->dtype, "bf16") == 0 ? (float)sx_round(SX_BF16, value) : (float)value;
}

static float chain(const double *left, const double *right, int64_t count)
{
    float sum = 0;
    for (int64_t t = 0; t < count; t++) {
        sum = fmaf((float)left[t], (float)right[t], sum);
    }
    return sum;
}

/* What multiplies the outer argument for a query and a key, every operation rounded to f32. */
static float factor(const operands *o, int64_t b, int64_t i, int64_t j)
{
    const sx_nested_shape *s = o->shape;
    const int64_t d = s->width, query = (b * s->rows + i) * d, key = (b * s->keys + j) * d;
    float score = chain(&o->q[query], &o->k[key], d) * (float)s->scale;
    float p = (float)exp((double)(score - (float)o->lse[b * s->rows + i]));
    p = s->causal && i < j ? 0 : p;
    if (s->kind != SX_NESTED_DV) {
        p *= chain(&o->g[query], &o->v[key], d) - (float)o->sums[b * s->rows + i];
    }
    return s->rounded != NULL ? (float)sx_round(SX_BF16, (double)p) : p;
}

static float expected_at(const operands *o, int64_t b, int64_t row, int64_t column)
{
    const sx_nested_shape *s = o->shape;
    const bool dq = s->kind == SX_NESTED_DQ;
    const double *y = dq ? o->k : s->kind == SX_NESTED_DK ? o->q : o->g;
    float sum = 0;
    for (int64_t t = 0; t < (dq ? s->keys : s->rows); t++) {
        float x = dq ? factor(o, b, row, t) : factor(o, b, t, row);
        sum = fmaf(x, (float)y[(b * (dq ? s->keys : s->rows) + t) * s->width + column], sum);
    }
    return narrow(s, (double)(s->kind == SX_NESTED_DV ? sum : sum * (float)s->scale));
}

/* Every element of random shapes, as rounding says, by the whole and by single elements. */
START_TEST(means_sums)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 60; round++) {
        const bool bf16 = sx_rng_below(&rng, 2) != 0;
        const sx_nested_shape shape = {.kind = (sx_nested_kind)(round % SX_NESTED_COUNT),
                                       .batch = 1 + (int64_t)sx_rng_below(&rng, 3),
                                       .rows = 1 + (int64_t)sx_rng_below(&rng, 9),
                                       .keys = 1 + (int64_t)sx_rng_below(&rng, 9),
                                       .width = 1 + (int64_t)sx_rng_below(&rng, 6),
                                       .scale = 0.125 * (double)(1 + sx_rng_below(&rng, 9)),
                                       .causal = sx_rng_below(&rng, 2) != 0,
                                       .dtype = bf16 ? "bf16" : "f32",
                                       .rounded = bf16 && sx_rng_below(&rng, 2) ? "bf16" : NULL};
        sx_buf text;
        sx_buf_init(&text, 1 << 16);
        sx_nested_text(&shape, &text);
        const sx_graph *graph = parse(sx_buf_span(&text));
        const sx_node *node = nested_node(graph);
        sx_tensor argument[6], result;
        for (uint32_t k = 0; k < 6; k++) {
            sx_test_tensor(&cx, &rng, SX_EVAL_TYPED, &graph->node[k].type, &argument[k]);
        }
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, argument, 6, &result, 1));
        const operands o = {&shape,           argument[0].data, argument[1].data, argument[2].data,
                            argument[3].data, argument[4].data, argument[5].data};
        const int64_t result_rows = shape.kind == SX_NESTED_DQ ? shape.rows : shape.keys;
        sx_buf raw[SX_FUSED_ARGS_MAX];
        sx_span bytes[SX_FUSED_ARGS_MAX];
        sx_type type[SX_FUSED_ARGS_MAX];
        for (uint32_t a = 0; a < node->input_count; a++) {
            const uint32_t from = sx_graph_input(graph, node, a).i;
            sx_buf_init(&raw[a], 1 << 16);
            ck_sx_ok(&cx, sx_tensor_pack(&cx, &argument[from], &raw[a]));
            bytes[a] = sx_buf_span(&raw[a]);
            type[a] = graph->node[from].type;
        }
        for (int64_t at = 0; at < shape.batch * result_rows * shape.width; at++) {
            const int64_t column = at % shape.width, row = at / shape.width % result_rows;
            const double expected =
                (double)expected_at(&o, at / shape.width / result_rows, row, column);
            const double got = ((const double *)result.data)[at];
            double single;
            ck_assert_msg(got == expected, "%s at %lld: %.9g, expected %.9g\n%.*s",
                          sx_nested_name(shape.kind), (long long)at, got, expected, (int)text.len,
                          (const char *)text.ptr);
            ck_sx_ok(&cx, sx_fused_eval_at(&cx, sx_graph_attr(graph, node), SX_EVAL_TYPED, type,
                                           bytes, node->input_count, &at, 1, &single));
            ck_assert(single == expected);
        }
        for (uint32_t a = 0; a < node->input_count; a++) {
            sx_buf_fini(&raw[a]);
        }
        sx_buf_fini(&text);
    }
}
END_TEST

/* A long row costs fuel as it grows. */
START_TEST(costs_fuel)
{
    sx_type result;
    make();
    attr.type.dim[3] = sx_dim_of((int64_t)1 << 40);
    for (uint32_t a = 0; a < 4; a++) {
        body.access[a].stride[3] = sx_dim_of(0);
    }
    ck_sx_ok(&cx, sx_fused_infer(&cx, &attr, input, 4, &result));
    uint8_t bytes[4 * 21] = {0};
    sx_span raw[4];
    for (uint32_t a = 0; a < 4; a++) {
        raw[a] = (sx_span){bytes, (size_t)sx_tensor_elements(&input[a]) * 4};
    }
    int64_t position = 0;
    double value;
    sx_code code = sx_fused_eval_at(&cx, &attr, SX_EVAL_F64, input, raw, 4, &position, 1, &value);
    ck_assert(code == SX_QUOTA || code == SX_NOMEM || code == SX_LIMIT);
    sx_ctx_reset_error(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nested");
    TCase *tcase = tcase_create("nested");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, text_both_ways);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, means_sums);
    tcase_add_test(tcase, costs_fuel);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
