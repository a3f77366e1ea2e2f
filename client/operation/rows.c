/* rows.c - softmax, norms and attention. */
#include "client/operation/build.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPS_DEFAULT 1e-5

static sx_code unknown_word(sxc_build *b, sx_span word, const char *known)
{
    return SXC_BUILD_FAIL(b, "'%.*s' behind the extents; it may be: %s",
                          (int)sx_min_i64((int64_t)word.len, 40), (const char *)word.ptr, known);
}

static sx_code read_positive(sxc_build *b, const char *what, sx_span text, double *value)
{
    char copy[40];
    char *end = copy;
    if (text.len > 0 && text.len < sizeof(copy)) {
        memcpy(copy, text.ptr, text.len);
        copy[text.len] = '\0';
        errno = 0;
        *value = strtod(copy, &end);
    }
    if (end == copy || *end != '\0' || errno != 0 || !(*value > 0 && *value < 1e30)) {
        return SXC_BUILD_FAIL(b, "%s=%.*s is no number above 0", what,
                              (int)sx_min_i64((int64_t)text.len, 40), (const char *)text.ptr);
    }
    return SX_OK;
}

/* ---- softmax, norms ---- */

sx_code sxc_build_softmax(sxc_build *b, sx_node_id *result)
{
    sx_span rest = sx_span_of(b->asked->shape), word;
    sx_type shape;
    sx_op op = SX_OP_SOFTMAX;
    sx_node_id x;
    (void)sxc_word_next(&rest, &word);
    SX_TRY(sxc_build_extents(b, word, 1, SX_RANK_MAX, "RxC, or more extents,", &shape));
    while (sxc_word_next(&rest, &word)) {
        if (!sx_span_is(word, "log")) {
            return unknown_word(b, word, "log");
        }
        op = SX_OP_LOG_SOFTMAX;
    }
    SX_TRY(sxc_build_input(b, "x", false, b->input, &shape, &x));
    sx_attr attr = {.present = SX_A(axis), .axis = shape.rank - 1};
    return sx_graph_add(b->cx, b->graph, op, &attr, &x, 1, result);
}

sx_code sxc_build_norm(sxc_build *b, sx_node_id *result)
{
    sx_span rest = sx_span_of(b->asked->shape), word, value;
    const uint8_t *colon = memchr(rest.ptr, ':', rest.len);
    sx_span kind = {rest.ptr, colon != NULL ? (size_t)(colon - rest.ptr) : 0};
    bool layer = sx_span_is(kind, "layer");
    if (!layer && !sx_span_is(kind, "rms")) {
        return SXC_BUILD_FAIL(b, "%s", "layer:RxC or rms:RxC wanted");
    }
    rest = (sx_span){rest.ptr + kind.len + 1, rest.len - kind.len - 1};
    sx_type shape;
    double eps = EPS_DEFAULT;
    bool weights = false;
    (void)sxc_word_next(&rest, &word);
    SX_TRY(sxc_build_extents(b, word, 1, SX_RANK_MAX, "layer:RxC or rms:RxC", &shape));
    while (sxc_word_next(&rest, &word)) {
        if (sxc_word_value(word, "eps", &value)) {
            SX_TRY(read_positive(b, "eps", value, &eps));
        } else if (sx_span_is(word, "weights")) {
            weights = true;
        } else {
            return unknown_word(b, word, "eps=NUMBER, weights");
        }
    }
    sx_type row = {.rank = 1, .dim = {shape.dim[shape.rank - 1]}};
    sx_node_id input[3];
    SX_TRY(sxc_build_input(b, "x", false, b->input, &shape, &input[0]));
    SX_TRY(sxc_build_input(b, "scale", weights, b->input, &row, &input[1]));
    if (layer) {
        SX_TRY(sxc_build_input(b, "bias", weights, b->input, &row, &input[2]));
    }
    sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = shape.rank - 1, .eps = eps};
    return sx_graph_add(b->cx, b->graph, layer ? SX_OP_LAYER_NORM : SX_OP_RMS_NORM, &attr, input,
                        layer ? 3 : 2, result);
}

/* ---- attention ---- */

typedef struct {
    sx_dim batch, heads, rows, size; /* of q */
    sx_dim kv_heads, keys, values;   /* of k and v: heads, rows; elements of a row of v */
    double scale;                    /* 0: 1 / sqrt(size) */
    bool causal, mask;
} attention;

static sx_code read_words(sxc_build *b, sx_span rest, attention *a)
{
    sx_span word, value;
    while (sxc_word_next(&rest, &word)) {
        if (sx_span_is(word, "causal")) {
            a->causal = true;
        } else if (sx_span_is(word, "mask")) {
            a->mask = true;
        } else if (sxc_word_value(word, "kv-heads", &value)) {
            SX_TRY(sxc_build_extent(b, value, &a->kv_heads));
        } else if (sxc_word_value(word, "keys", &value)) {
            SX_TRY(sxc_build_extent(b, value, &a->keys));
        } else if (sxc_word_value(word, "values", &value)) {
            SX_TRY(sxc_build_extent(b, value, &a->values));
        } else if (sxc_word_value(word, "scale", &value)) {
            SX_TRY(read_positive(b, "scale", value, &a->scale));
        } else {
            return unknown_word(b, word,
                                "causal, mask, kv-heads=G, keys=T, values=E, scale=NUMBER");
        }
    }
    return SX_OK;
}

static sx_code read_attention(sxc_build *b, attention *a)
{
    sx_span rest = sx_span_of(b->asked->shape), word;
    sx_type shape;
    (void)sxc_word_next(&rest, &word);
    SX_TRY(sxc_build_extents(b, word, 4, 4, "BxHxSxD", &shape));
    *a = (attention){.batch = shape.dim[0],
                     .heads = shape.dim[1],
                     .rows = shape.dim[2],
                     .size = shape.dim[3],
                     .kv_heads = shape.dim[1],
                     .keys = shape.dim[2],
                     .values = shape.dim[3]};
    SX_TRY(read_words(b, rest, a));
    bool grouped = !sx_dim_equal(a->heads, a->kv_heads);
    bool counts = sx_dim_is_constant(a->heads) && sx_dim_is_constant(a->kv_heads);
    if (grouped && (!counts || a->heads.scale % a->kv_heads.scale != 0)) {
        return SXC_BUILD_FAIL(b, "%s", "kv-heads divides the number of heads H; both are numbers");
    }
    bool square = sx_dim_equal(a->rows, a->keys);
    bool rows = sx_dim_is_constant(a->rows) && sx_dim_is_constant(a->keys);
    if (a->causal && !square && (!rows || a->keys.scale < a->rows.scale)) {
        return SXC_BUILD_FAIL(b, "%s", "causal needs as many keys as rows S, or a larger number");
    }
    if (a->scale == 0 && !sx_dim_is_constant(a->size)) {
        return SXC_BUILD_FAIL(b, "%s", "scale=NUMBER is needed where D is a name");
    }
    a->scale = a->scale != 0 ? a->scale : 1 / sqrt((double)a->size.scale);
    return SX_OK;
}

/* k or v, each of its heads repeated for those of q that share it. */
static sx_code shared_heads(sxc_build *b, const attention *a, const char *name, sx_dim size,
                            sx_node_id *id)
{
    sx_type own = {.rank = 4, .dim = {a->batch, a->kv_heads, a->keys, size}};
    SX_TRY(sxc_build_input(b, name, false, b->input, &own, id));
    if (sx_dim_equal(a->heads, a->kv_heads)) {
        return SX_OK;
    }
    sx_dim times = sx_dim_of(a->heads.scale / a->kv_heads.scale);
    sx_type repeated = {
        .dtype = b->compute, .rank = 5, .dim = {a->batch, a->kv_heads, times, a->keys, size}};
    sx_ints dims = {4, {0, 1, 3, 4}};
    SX_TRY(sx_build_broadcast(b->cx, b->graph, *id, &dims, &repeated, id));
    sx_attr attr = {
        .present = SX_A(type),
        .type = {.dtype = b->compute, .rank = 4, .dim = {a->batch, a->heads, a->keys, size}}};
    sx_node_id from = *id;
    return sx_graph_add(b->cx, b->graph, SX_OP_RESHAPE, &attr, &from, 1, id);
}

static sx_code add_iota(sxc_build *b, uint32_t axis, const sx_type *type, sx_node_id *id)
{
    sx_attr attr = {.present = SX_A(axis) | SX_A(type), .axis = axis, .type = *type};
    attr.type.dtype = SX_I32;
    return sx_graph_add(b->cx, b->graph, SX_OP_IOTA, &attr, NULL, 0, id);
}

/* 0 where a key is not behind the row, minus infinity elsewhere; the last row sees all keys. */
static sx_code causal_mask(sxc_build *b, const attention *a, const sx_type *type, sx_node_id *mask)
{
    sx_node_id row, key, choice[3];
    sx_type whole = *type;
    whole.dtype = SX_I32;
    SX_TRY(add_iota(b, 2, type, &row));
    SX_TRY(add_iota(b, 3, type, &key));
    int64_t ahead = sx_dim_equal(a->rows, a->keys) ? 0 : a->keys.scale - a->rows.scale;
    if (ahead > 0) {
        sx_node_id offset;
        SX_TRY(sx_build_scalar(b->cx, b->graph, &whole, (double)ahead, &offset));
        SX_TRY(sx_build_binary(b->cx, b->graph, SX_OP_ADD, row, offset, &row));
    }
    sx_attr attr = {.present = SX_A(direction), .direction = SX_GE};
    sx_node_id pair[2] = {row, key};
    SX_TRY(sx_graph_add(b->cx, b->graph, SX_OP_COMPARE, &attr, pair, 2, &choice[0]));
    whole.dtype = type->dtype;
    SX_TRY(sx_build_scalar(b->cx, b->graph, &whole, 0, &choice[1]));
    SX_TRY(sx_build_scalar(b->cx, b->graph, &whole, -(double)INFINITY, &choice[2]));
    return sx_graph_add(b->cx, b->graph, SX_OP_SELECT, &(sx_attr){0}, choice, 3, mask);
}

/* What is added to the scores, [batch, heads, rows, keys]; *any false: nothing is. */
static sx_code make_mask(sxc_build *b, const attention *a, sx_node_id *mask, bool *any)
{
    sx_type one = {
        .dtype = b->compute, .rank = 4, .dim = {sx_dim_of(1), sx_dim_of(1), a->rows, a->keys}};
    sx_type whole = one;
    whole.dim[0] = a->batch;
    whole.dim[1] = a->heads;
    sx_ints dims = {4, {0, 1, 2, 3}};
    *any = a->causal || a->mask;
    if (!*any) {
        return SX_OK;
    }
    if (a->causal) {
        SX_TRY(causal_mask(b, a, &one, mask));
    }
    if (a->mask) {
        sx_node_id given;
        SX_TRY(sxc_build_input(b, "mask", false, b->input, &one, &given));
        if (a->causal) {
            SX_TRY(sx_build_binary(b->cx, b->graph, SX_OP_ADD, *mask, given, mask));
        } else {
            *mask = given;
        }
    }
    return sx_build_broadcast(b->cx, b->graph, *mask, &dims, &whole, mask);
}

/* Narrow floats are widened before, not inside the operation, so that the mask is never a wide tensor in memory; this
 * is what the operation means, and the bits are the same. */
sx_code sxc_build_attention(sxc_build *b, sx_node_id *result)
{
    attention a;
    sx_node_id input[4];
    bool masked;
    SX_TRY(read_attention(b, &a));
    b->compute = sx_dtype_bytes(b->compute) < 4 ? SX_F32 : b->compute;
    sx_type own = {.rank = 4, .dim = {a.batch, a.heads, a.rows, a.size}};
    SX_TRY(sxc_build_input(b, "q", false, b->input, &own, &input[0]));
    SX_TRY(shared_heads(b, &a, "k", a.size, &input[1]));
    SX_TRY(shared_heads(b, &a, "v", a.values, &input[2]));
    SX_TRY(make_mask(b, &a, &input[3], &masked));
    sx_attr attr = {.present = SX_A(scale), .scale = a.scale};
    return sx_graph_add(b->cx, b->graph, SX_OP_ATTENTION, &attr, input, masked ? 4 : 3, result);
}
