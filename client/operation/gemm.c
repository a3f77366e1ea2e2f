/* gemm.c - products of matrices in any layout, one or a batch of them, with what is done to the sums. */
#include "client/operation/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a step of an epilogue combines the sums with. */
typedef enum { OPERAND_NONE, OPERAND_COLUMN, OPERAND_MATRIX, OPERAND_SCALAR } operand_kind;
typedef struct {
    const char *name;
    sx_op op;
    operand_kind operand;
    const char *input; /* name of the parameter; NULL: none */
} epilogue_row;

static const epilogue_row epilogues[] = {
    {"bias", SX_OP_ADD, OPERAND_COLUMN, "bias"},
    {"relu", SX_OP_RELU, OPERAND_NONE, NULL},
    {"gelu", SX_OP_GELU, OPERAND_NONE, NULL},
    {"gelu-tanh", SX_OP_GELU_TANH, OPERAND_NONE, NULL},
    {"silu", SX_OP_SILU, OPERAND_NONE, NULL},
    {"sigmoid", SX_OP_LOGISTIC, OPERAND_NONE, NULL},
    {"tanh", SX_OP_TANH, OPERAND_NONE, NULL},
    {"residual", SX_OP_ADD, OPERAND_MATRIX, "residual"},
    {"multiply", SX_OP_MULTIPLY, OPERAND_MATRIX, "factor"},
    {"scale", SX_OP_MULTIPLY, OPERAND_SCALAR, "scale"},
};

typedef struct {
    sx_type batch; /* extents of the batch alone */
    sx_dim m, n, k;
    bool left_transposed, right_transposed;
    /* The right matrix and what the epilogue reads do not change from run to run. */
    bool weights;
} gemm;

/* ---- words ---- */

static sx_code read_gemm(sxc_build *b, gemm *g)
{
    sx_span rest = sx_span_of(b->asked->shape), word;
    sx_type shape;
    *g = (gemm){.batch = {.dtype = b->input}};
    (void)sxc_word_next(&rest, &word);
    SX_TRY(sxc_build_extents(b, word, 3, 3, "MxNxK", &shape));
    g->m = shape.dim[0];
    g->n = shape.dim[1];
    g->k = shape.dim[2];
    while (sxc_word_next(&rest, &word)) {
        if (!sx_span_is(word, "weights")) {
            return SXC_BUILD_FAIL(b, "'%.*s' behind the extents; it may be: weights",
                                  (int)sx_min_i64((int64_t)word.len, 40), (const char *)word.ptr);
        }
        g->weights = true;
    }
    if (b->asked->batch != NULL) {
        SX_TRY(sxc_build_extents(b, sx_span_of(b->asked->batch), 1, SX_RANK_MAX - 2,
                                 "B or BxH in --batch", &g->batch));
    }
    const char *layout = b->asked->layout != NULL ? b->asked->layout : "nn";
    bool known =
        strlen(layout) == 2 && strchr("nt", layout[0]) != NULL && strchr("nt", layout[1]) != NULL;
    if (!known) {
        return SX_FAIL(b->cx, SX_USAGE, "--layout %.20s: nn, nt, tn or tt wanted", layout);
    }
    g->left_transposed = layout[0] == 't';
    g->right_transposed = layout[1] == 't';
    return SX_OK;
}

/* ---- the product ---- */

static sx_type matrix(const gemm *g, sx_dim rows, sx_dim columns, bool transposed)
{
    sx_type type = g->batch;
    type.dim[type.rank++] = transposed ? columns : rows;
    type.dim[type.rank++] = transposed ? rows : columns;
    return type;
}

static sx_code multiply(sxc_build *b, const gemm *g, sx_node_id *sums)
{
    sx_type left = matrix(g, g->m, g->k, g->left_transposed);
    sx_type right = matrix(g, g->k, g->n, g->right_transposed);
    sx_node_id input[2];
    SX_TRY(sxc_build_input(b, "a", false, b->input, &left, &input[0]));
    SX_TRY(sxc_build_input(b, "b", g->weights, b->input, &right, &input[1]));
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    uint32_t batch = g->batch.rank;
    SX_ASSERT(batch + 2 <= SX_RANK_MAX);
    attr.lhs_batch.count = attr.rhs_batch.count = batch;
    for (uint32_t d = 0; d < batch; d++) {
        attr.lhs_batch.v[d] = attr.rhs_batch.v[d] = d;
    }
    attr.lhs_contract = (sx_ints){1, {g->left_transposed ? batch : batch + 1}};
    attr.rhs_contract = (sx_ints){1, {g->right_transposed ? batch + 1 : batch}};
    return sx_graph_add(b->cx, b->graph, SX_OP_DOT_GENERAL, &attr, input, 2, sums);
}

/* ---- the epilogue ---- */

static sx_code unknown_step(sxc_build *b, sx_span word)
{
    char known[160];
    size_t used = 0;
    known[0] = '\0';
    for (uint32_t i = 0; i < SX_COUNT(epilogues); i++) {
        size_t length = strlen(epilogues[i].name);
        SX_ASSERT(used + length + 2 < sizeof(known));
        known[used++] = ' ';
        memcpy(known + used, epilogues[i].name, length + 1);
        used += length;
    }
    return SX_FAIL(b->cx, SX_USAGE, "--epilogue: '%.*s' is none of%s scale=NUMBER",
                   (int)sx_min_i64((int64_t)word.len, 40), (const char *)word.ptr, known);
}

static const epilogue_row *find_step(sx_span word)
{
    for (uint32_t i = 0; i < SX_COUNT(epilogues); i++) {
        if (sx_span_is(word, epilogues[i].name)) {
            return &epilogues[i];
        }
    }
    return NULL;
}

/* The parameter of a step, in the shape of the sums. */
static sx_code operand_of(sxc_build *b, const gemm *g, const epilogue_row *step, sx_node_id sums,
                          sx_node_id *operand)
{
    const sx_type whole = sx_graph_node(b->graph, sums)->type;
    sx_type own = {.dtype = b->result};
    sx_ints dims = {0};
    if (step->operand == OPERAND_MATRIX) {
        own = whole;
    } else if (step->operand == OPERAND_COLUMN) {
        own.rank = 1;
        own.dim[0] = g->n;
        dims = (sx_ints){1, {whole.rank - 1}};
    }
    SX_TRY(sxc_build_input(b, step->input, g->weights && step->operand == OPERAND_COLUMN,
                           step->operand == OPERAND_SCALAR ? b->compute : b->result, &own,
                           operand));
    return step->operand == OPERAND_MATRIX
               ? SX_OK
               : sx_build_broadcast(b->cx, b->graph, *operand, &dims, &whole, operand);
}

/* scale=NUMBER */
static sx_code times_number(sxc_build *b, sx_span text, sx_node_id *sums)
{
    char copy[40];
    char *end = copy;
    double value = 0;
    if (text.len > 0 && text.len < sizeof(copy)) {
        memcpy(copy, text.ptr, text.len);
        copy[text.len] = '\0';
        errno = 0;
        value = strtod(copy, &end);
    }
    if (end == copy || *end != '\0' || errno != 0 || !(value - value == 0)) {
        return SX_FAIL(b->cx, SX_USAGE, "--epilogue: scale=%.*s is no finite number",
                       (int)sx_min_i64((int64_t)text.len, 40), (const char *)text.ptr);
    }
    sx_node_id factor;
    const sx_type whole = sx_graph_node(b->graph, *sums)->type;
    if (sx_build_scalar(b->cx, b->graph, &whole, value, &factor) != SX_OK) {
        return sx_fail_in(b->cx, "--epilogue scale");
    }
    return sx_build_binary(b->cx, b->graph, SX_OP_MULTIPLY, *sums, factor, sums);
}

static sx_code add_step(sxc_build *b, const gemm *g, sx_span word, uint32_t *used, sx_node_id *sums)
{
    sx_span number;
    if (sxc_word_value(word, "scale", &number)) {
        return times_number(b, number, sums);
    }
    const epilogue_row *step = find_step(word);
    if (step == NULL) {
        return unknown_step(b, word);
    }
    uint32_t bit = 1u << (step - epilogues);
    uint32_t classes = step->op == SX_OP_RELU ? UINT32_MAX : sx_op_classes(step->op);
    if ((classes >> sx_dtype_class_of(b->compute) & 1) == 0) {
        return SX_FAIL(b->cx, SX_USAGE,
                       "--epilogue: %s needs floating-point numbers, the sums are %s; --dtype "
                       "INPUT,COMPUTE says otherwise",
                       step->name, sx_dtype_name(b->compute));
    }
    if (step->operand == OPERAND_NONE) {
        return sx_build_unary(b->cx, b->graph, step->op, *sums, sums);
    }
    if ((*used & bit) != 0) {
        return SX_FAIL(b->cx, SX_USAGE, "--epilogue: %s stands twice", step->name);
    }
    *used |= bit;
    sx_node_id operand;
    SX_TRY(operand_of(b, g, step, *sums, &operand));
    return sx_build_binary(b->cx, b->graph, step->op, *sums, operand, sums);
}

sx_code sxc_build_gemm(sxc_build *b, sx_node_id *result)
{
    gemm g;
    SX_TRY(read_gemm(b, &g));
    SX_TRY(multiply(b, &g, result));
    if (sx_dtype_class_of(b->compute) == SX_CLASS_INT &&
        sx_dtype_class_of(b->result) == SX_CLASS_FLOAT) {
        b->compute = b->result; /* integer sums that are scaled to floats */
        SX_TRY(sxc_build_convert(b, b->compute, result));
    }
    sx_span rest = sx_span_of(b->asked->epilogue), word;
    uint32_t used = 0;
    while (sxc_word_next(&rest, &word)) {
        SX_TRY(add_step(b, &g, word, &used, result));
    }
    return SX_OK;
}
