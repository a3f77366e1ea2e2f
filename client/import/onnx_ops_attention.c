#include <math.h>
#include <string.h>

#include "client/import/onnx_import.h"

/* Attention (opset 23 and later) and RotaryEmbedding (opset 23), as the text of the ONNX standard has them. */

/* A constant extent; a failure that names it `what` where it is symbolic. */
static sx_code constant_extent(sx_ox *im, sx_dim dim, const char *what, int64_t *extent)
{
    char text[SX_OX_DIM_TEXT];
    if (!sx_dim_is_constant(dim)) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "%s is %s, a constant is wanted", what,
                          sx_ox_dim_text(im, dim, text));
    }
    *extent = dim.scale;
    return SX_OK;
}

/* x [batch, length, heads * size] as [batch, length, heads, size]; `attribute` says how many heads. */
static sx_code cut_heads(sx_ox *im, sx_node_id *x, const char *attribute)
{
    int64_t heads = 0;
    int64_t width = 0;
    SX_TRY(sx_ox_attr_int(im, attribute, 0, &heads));
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, *x);
    SX_TRY(constant_extent(im, type.dim[2], "the last extent", &width));
    if (heads < 1 || width % heads != 0) {
        return SX_OX_FAIL(im, SX_INPUT, "%s is %lld, and the last extent %lld", attribute,
                          (long long)heads, (long long)width);
    }
    type.rank = 4;
    type.dim[2] = sx_dim_of(heads);
    type.dim[3] = sx_dim_of(width / heads);
    *x = sx_ox_reshape(im, *x, &type);
    return im->code;
}

static sx_node_id exchange_heads(sx_ox *im, sx_node_id x)
{
    sx_ints perm = {.count = 4, .v = {0, 2, 1, 3}};
    return sx_ox_transpose(im, x, &perm);
}

/* x [batch, length, heads, size] as [batch, length, heads * size]. */
static sx_code join_heads(sx_ox *im, sx_node_id *x)
{
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, *x);
    type.rank = 3;
    type.dim[2] = sx_dim_of(type.dim[2].scale * type.dim[3].scale);
    *x = sx_ox_reshape(im, *x, &type);
    return im->code;
}

/* ---- Attention ---- */

typedef struct {
    sx_node_id q, k, v; /* [batch, heads, length, size], of as many heads */
    /* [batch, heads, rows, keys], or none: what is added to scores, minus infinity for never. */
    sx_node_id bias;
    /* How many keys come before the first row, i64, a scalar or [batch, 1, 1, 1]; none: 0. */
    sx_node_id offset;
    sx_type scores; /* of the scores */
    double scale, softcap;
    bool may_be_empty; /* a row may have no key: its result is 0 */
} attention;

static bool is_none(sx_node_id node)
{
    return node.i == UINT32_MAX;
}

/* Each head of keys or values serves several of the queries. */
static sx_code repeat_heads(sx_ox *im, sx_node_id *x, int64_t heads)
{
    const sx_type type = *sx_ox_type(im, *x);
    int64_t own = 0;
    SX_TRY(constant_extent(im, type.dim[1], "the number of heads", &own));
    if (own < 1 || heads % own != 0) {
        return SX_OX_FAIL(im, SX_INPUT, "%lld heads of queries for %lld of keys", (long long)heads,
                          (long long)own);
    }
    if (own == heads) {
        return SX_OK;
    }
    sx_ints dims = {.count = 4, .v = {0, 1, 3, 4}};
    sx_type wide = {type.dtype,
                    5,
                    {type.dim[0], type.dim[1], sx_dim_of(heads / own), type.dim[2], type.dim[3]}};
    sx_type whole = type;
    whole.dim[1] = sx_dim_of(heads);
    *x = sx_ox_reshape(im, sx_ox_broadcast_in(im, *x, &dims, &wide), &whole);
    return im->code;
}

/* Inputs 4 and 5 come before k and v, and outputs 1 and 2 are both together. */
static sx_code add_past(sx_ox *im, attention *at)
{
    sx_node_id key[2] = {sx_ox_in(im, 4), at->k};
    sx_node_id value[2] = {sx_ox_in(im, 5), at->v};
    SX_TRY(im->code);
    if (is_none(key[0]) != is_none(value[0])) {
        return SX_OX_FAIL(im, SX_INPUT, "one of past_key and past_value alone");
    }
    if (!is_none(key[0])) {
        if (sx_ox_type(im, key[0])->rank != 4) {
            return SX_OX_FAIL(im, SX_INPUT, "past_key has rank %u, 4 wanted",
                              sx_ox_type(im, key[0])->rank);
        }
        sx_type ones = {SX_I64, 1, {sx_ox_type(im, key[0])->dim[2]}};
        sx_ints all = {.count = 1, .v = {0}};
        at->offset = sx_ox_reduce(im, SX_SUM, sx_ox_splat(im, &ones, 1.0), &all, false);
        at->k = sx_ox_concat(im, key, 2, 2);
        at->v = sx_ox_concat(im, value, 2, 2);
        SX_TRY(im->code);
    }
    if (sx_ox_wants(im, 1)) {
        SX_TRY(sx_ox_set(im, 1, at->k));
    }
    return sx_ox_wants(im, 2) ? sx_ox_set(im, 2, at->v) : SX_OK;
}

/* Minus infinity where `keep`, which is broadcast, does not hold. */
static void add_condition(sx_ox *im, attention *at, sx_node_id keep)
{
    sx_node_id none = sx_ox_splat(im, &at->scores, -(double)INFINITY);
    sx_node_id bias = is_none(at->bias) ? sx_ox_splat(im, &at->scores, 0.0) : at->bias;
    at->bias = sx_ox_select(im, keep, bias, none);
}

/* Input 3; it may end before the last key, and then has none behind it. */
static sx_code add_mask(sx_ox *im, attention *at)
{
    sx_node_id mask = sx_ox_in(im, 3);
    SX_TRY(im->code);
    if (is_none(mask)) {
        return SX_OK;
    }
    at->may_be_empty = true;
    sx_type type = *sx_ox_type(im, mask);
    if (type.dtype != SX_BOOL && type.dtype != sx_ox_input(im, 0)->type.dtype) {
        return SX_OX_FAIL(im, SX_INPUT, "attn_mask is %s, bool or that of Q wanted",
                          sx_dtype_name(type.dtype));
    }
    if (type.dtype == SX_BOOL) {
        sx_type wide = sx_ox_type_with(&type, at->scores.dtype);
        sx_node_id kept = sx_ox_splat(im, &wide, 0.0);
        mask = sx_ox_select(im, mask, kept, sx_ox_splat(im, &wide, -(double)INFINITY));
    }
    mask = sx_ox_cast(im, mask, at->scores.dtype);
    sx_dim keys = at->scores.dim[3];
    if (type.rank > 0 && sx_dim_is_constant(keys) && sx_dim_is_constant(type.dim[type.rank - 1]) &&
        type.dim[type.rank - 1].scale < keys.scale) {
        sx_type rest = sx_ox_type_with(&type, at->scores.dtype);
        rest.dim[type.rank - 1] = sx_dim_of(keys.scale - type.dim[type.rank - 1].scale);
        sx_node_id part[2] = {mask, sx_ox_splat(im, &rest, -(double)INFINITY)};
        mask = sx_ox_concat(im, part, 2, type.rank - 1);
    }
    at->bias = sx_ox_broadcast(im, mask, &at->scores);
    return im->code;
}

/* Input 6: how many keys of each sample are there. */
static sx_code add_lengths(sx_ox *im, attention *at)
{
    sx_node_id count = sx_ox_in(im, 6);
    SX_TRY(im->code);
    if (is_none(count)) {
        return SX_OK;
    }
    sx_type one = {SX_I64, 4, {at->scores.dim[0], sx_dim_of(1), sx_dim_of(1), sx_dim_of(1)}};
    sx_type rows = {SX_I64, 1, {at->scores.dim[2]}};
    sx_ints all = {.count = 1, .v = {0}};
    if (!is_none(at->offset)) {
        return SX_OX_FAIL(im, SX_INPUT, "nonpad_kv_seqlen together with past_key");
    }
    count = sx_ox_reshape(im, sx_ox_cast(im, count, SX_I64), &one);
    sx_node_id key = sx_ox_iota(im, &at->scores, SX_I64, 3);
    add_condition(im, at, sx_ox_cmp(im, SX_LT, key, count));
    sx_node_id height = sx_ox_reduce(im, SX_SUM, sx_ox_splat(im, &rows, 1.0), &all, false);
    at->offset = sx_ox_bin(im, SX_OP_SUBTRACT, count, height);
    at->may_be_empty = true;
    return im->code;
}

/* The row of number i stands at p = i + offset, and sees keys from p - left to p + right; -1 is all of that side. */
static sx_code add_window(sx_ox *im, attention *at)
{
    int64_t causal;
    int64_t left;
    int64_t right;
    SX_TRY(sx_ox_attr_int(im, "is_causal", 0, &causal));
    SX_TRY(sx_ox_attr_int(im, "left_window_size", -1, &left));
    SX_TRY(sx_ox_attr_int(im, "right_window_size", -1, &right));
    at->may_be_empty |= left >= 0 || right >= 0;
    if (causal != 0) {
        right = 0;
    }
    if (left < 0 && right < 0) {
        return SX_OK;
    }
    sx_node_id place = sx_ox_iota(im, &at->scores, SX_I64, 2);
    sx_node_id key = sx_ox_iota(im, &at->scores, SX_I64, 3);
    if (!is_none(at->offset)) {
        place = sx_ox_bin(im, SX_OP_ADD, place, at->offset);
    }
    if (right >= 0) {
        sx_node_id last = sx_ox_with(im, SX_OP_ADD, place, (double)right);
        add_condition(im, at, sx_ox_cmp(im, SX_LE, key, last));
    }
    if (left >= 0) {
        sx_node_id first = sx_ox_with(im, SX_OP_SUBTRACT, place, (double)left);
        add_condition(im, at, sx_ox_cmp(im, SX_GE, key, first));
    }
    return im->code;
}

/* 0 in the rows of x that have no key. */
static sx_node_id without_empty(sx_ox *im, const attention *at, sx_node_id x)
{
    if (!at->may_be_empty || is_none(at->bias)) {
        return x;
    }
    sx_ints last = {.count = 1, .v = {3}};
    sx_node_id most = sx_ox_reduce(im, SX_MAX, at->bias, &last, true);
    sx_node_id empty = sx_ox_cmp_with(im, SX_EQ, most, -(double)INFINITY);
    return sx_ox_select(im, empty, sx_ox_splat(im, sx_ox_type(im, x), 0.0), x);
}

/* With the scores written out, for a soft cap, or as output 3; `dtype` is the type of the result. */
static sx_node_id written_out(sx_ox *im, const attention *at, sx_dtype dtype)
{
    int64_t mode;
    if (sx_ox_attr_int(im, "qk_matmul_output_mode", 0, &mode) != SX_OK) {
        return SX_OX_NONE;
    }
    if (mode < 0 || mode > 3) {
        SX_OX_FAIL(im, SX_INPUT, "qk_matmul_output_mode is %lld, 0 to 3", (long long)mode);
        return SX_OX_NONE;
    }
    sx_ints batch = {.count = 2, .v = {0, 1}};
    sx_ints third = {.count = 1, .v = {2}};
    sx_ints last = {.count = 1, .v = {3}};
    sx_attr of_keys = {
        .lhs_batch = batch, .rhs_batch = batch, .lhs_contract = last, .rhs_contract = last};
    sx_attr of_values = of_keys;
    of_values.rhs_contract = third;
    sx_node_id stage[4];
    stage[0] = sx_ox_with(im, SX_OP_MULTIPLY, sx_ox_dot(im, at->q, at->k, &of_keys), at->scale);
    stage[1] = stage[0];
    if (at->softcap > 0.0) {
        sx_node_id part = sx_ox_with(im, SX_OP_DIVIDE, stage[0], at->softcap);
        stage[1] = sx_ox_with(im, SX_OP_MULTIPLY, sx_ox_un(im, SX_OP_TANH, part), at->softcap);
    }
    stage[2] = is_none(at->bias) ? stage[1] : sx_ox_bin(im, SX_OP_ADD, stage[1], at->bias);
    sx_attr along = {.present = SX_A(axis), .axis = 3};
    stage[3] = without_empty(im, at, sx_ox_add(im, SX_OP_SOFTMAX, &along, &stage[2], 1));
    if (im->code == SX_OK && sx_ox_wants(im, 3)) {
        (void)sx_ox_set(im, 3, sx_ox_cast(im, stage[mode], dtype));
    }
    return sx_ox_dot(im, stage[3], at->v, &of_values);
}

/* Q, K and V of four dimensions; of `rank` 3 heads lie side by side. */
static sx_code read_operands(sx_ox *im, attention *at, uint32_t *rank)
{
    sx_node_id *operand[3] = {&at->q, &at->k, &at->v};
    static const char *const heads[3] = {"q_num_heads", "kv_num_heads", "kv_num_heads"};
    for (uint32_t k = 0; k < 3; k++) {
        sx_node_id x = sx_ox_in(im, k);
        SX_TRY(im->code);
        uint32_t own = sx_ox_type(im, x)->rank;
        *rank = k == 0 ? own : *rank;
        if (own != *rank || own < 3 || own > 4) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u has rank %u; all have 3, or 4", k, own);
        }
        (void)sx_ox_attr(im, heads[k]); /* the extents say it where there are four */
        if (own == 3) {
            SX_TRY(cut_heads(im, &x, heads[k]));
            x = exchange_heads(im, x);
        }
        *operand[k] = x;
    }
    return im->code;
}

sx_code sx_ox_attention(sx_ox *im)
{
    attention at = {.bias = SX_OX_NONE, .offset = SX_OX_NONE};
    uint32_t rank = 0;
    int64_t heads = 0;
    int64_t width = 0;
    SX_TRY(read_operands(im, &at, &rank));
    SX_TRY(add_past(im, &at));
    const sx_dtype dtype = sx_ox_type(im, at.q)->dtype;
    /* f32 at least, whatever softmax_precision says; more than that is refused */
    int64_t precision;
    sx_dtype wanted = SX_F32;
    SX_TRY(sx_ox_attr_int(im, "softmax_precision", 1, &precision));
    SX_TRY(sx_ox_dtype(im, precision, &wanted));
    if (sx_dtype_bytes(wanted) > 4 && dtype != wanted) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "softmax_precision %s of %s", sx_dtype_name(wanted),
                          sx_dtype_name(dtype));
    }
    const sx_dtype inner = sx_dtype_bytes(dtype) < 4 ? SX_F32 : dtype;
    const sx_type q = *sx_ox_type(im, at.q);
    SX_TRY(constant_extent(im, q.dim[1], "the number of heads", &heads));
    SX_TRY(constant_extent(im, q.dim[3], "the size of a head", &width));
    SX_TRY(repeat_heads(im, &at.k, heads));
    SX_TRY(repeat_heads(im, &at.v, heads));
    at.q = sx_ox_cast(im, at.q, inner);
    at.k = sx_ox_cast(im, at.k, inner);
    at.v = sx_ox_cast(im, at.v, inner);
    SX_TRY(im->code);
    at.scores = (sx_type){inner, 4, {q.dim[0], q.dim[1], q.dim[2], sx_ox_type(im, at.k)->dim[2]}};
    SX_TRY(sx_ox_attr_float(im, "scale", 1.0 / sqrt((double)width), &at.scale));
    SX_TRY(sx_ox_attr_float(im, "softcap", 0.0, &at.softcap));
    (void)sx_ox_attr(im, "qk_matmul_output_mode"); /* read where output 3 is wanted */
    SX_TRY(add_mask(im, &at));
    SX_TRY(add_lengths(im, &at));
    SX_TRY(add_window(im, &at));
    sx_node_id y;
    if (at.softcap > 0.0 || sx_ox_wants(im, 3)) {
        y = written_out(im, &at, dtype);
    } else {
        sx_node_id input[4] = {at.q, at.k, at.v, at.bias};
        sx_attr attr = {.present = SX_A(scale), .scale = at.scale};
        y = sx_ox_add(im, SX_OP_ATTENTION, &attr, input, is_none(at.bias) ? 3 : 4);
        y = without_empty(im, &at, y);
    }
    y = sx_ox_cast(im, y, dtype);
    if (rank == 3) {
        y = exchange_heads(im, y);
        SX_TRY(join_heads(im, &y));
    }
    return sx_ox_set(im, 0, y);
}

/* ---- RotaryEmbedding ---- */

/* Input k, of positions where input 3 is there, as [batch, 1, length, half], or [batch, length, 1, half] where
 * `heads_last`. */
static sx_node_id angles(sx_ox *im, uint32_t k, int64_t half, bool heads_last)
{
    sx_node_id table = sx_ox_in(im, k);
    sx_node_id place = sx_ox_in(im, 3);
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    if (!is_none(place)) {
        table = sx_ox_gather(im, table, sx_ox_cast(im, place, SX_I64), 0);
    }
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    sx_type type = *sx_ox_type(im, table);
    if (type.rank != 3 || !sx_dim_is_constant(type.dim[2]) || type.dim[2].scale != half) {
        SX_OX_FAIL(im, SX_INPUT, "input %u: rank 3 and a last extent of %lld wanted", k,
                   (long long)half);
        return SX_OX_NONE;
    }
    type.rank = 4;
    type.dim[3] = type.dim[2];
    type.dim[2] = heads_last ? sx_dim_of(1) : type.dim[1];
    type.dim[1] = heads_last ? type.dim[1] : sx_dim_of(1);
    return sx_ox_reshape(im, table, &type);
}

sx_code sx_ox_rotary_embedding(sx_ox *im)
{
    int64_t interleaved;
    int64_t turned;
    int64_t width = 0;
    SX_TRY(sx_ox_attr_int(im, "interleaved", 0, &interleaved));
    SX_TRY(sx_ox_attr_int(im, "rotary_embedding_dim", 0, &turned));
    (void)sx_ox_attr(im, "num_heads"); /* the extents say it where there are four */
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    const uint32_t rank = sx_ox_type(im, x)->rank;
    if (rank != 3 && rank != 4) {
        return SX_OX_FAIL(im, SX_INPUT, "input of rank %u, 3 or 4 wanted", rank);
    }
    if (rank == 3) {
        SX_TRY(cut_heads(im, &x, "num_heads"));
    }
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(constant_extent(im, type.dim[3], "the size of a head", &width));
    turned = turned == 0 ? width : turned;
    if (turned < 2 || turned % 2 != 0 || turned > width) {
        return SX_OX_FAIL(im, SX_INPUT, "%lld elements of a head of %lld are turned",
                          (long long)turned, (long long)width);
    }
    const int64_t half = turned / 2;
    const int64_t stride = interleaved != 0 ? 2 : 1;
    const int64_t second = interleaved != 0 ? 1 : half;
    sx_node_id a = sx_ox_slice_axis(im, x, 3, 0, interleaved != 0 ? turned : half, stride);
    sx_node_id b = sx_ox_slice_axis(im, x, 3, second, turned, stride);
    sx_node_id cosine = angles(im, 1, half, rank == 3);
    sx_node_id sine = angles(im, 2, half, rank == 3);
    sx_node_id part[3];
    sx_node_id kept = sx_ox_bin(im, SX_OP_MULTIPLY, a, cosine);
    part[0] = sx_ox_bin(im, SX_OP_SUBTRACT, kept, sx_ox_bin(im, SX_OP_MULTIPLY, b, sine));
    kept = sx_ox_bin(im, SX_OP_MULTIPLY, a, sine);
    part[1] = sx_ox_bin(im, SX_OP_ADD, kept, sx_ox_bin(im, SX_OP_MULTIPLY, b, cosine));
    SX_TRY(im->code);
    if (interleaved != 0) { /* [.., half, 1] twice, side by side */
        sx_type pair = *sx_ox_type(im, part[0]);
        pair.rank = 5;
        pair.dim[4] = sx_dim_of(1);
        part[0] = sx_ox_reshape(im, part[0], &pair);
        part[1] = sx_ox_reshape(im, part[1], &pair);
        sx_type flat = type;
        flat.dim[3] = sx_dim_of(turned);
        part[0] = sx_ox_reshape(im, sx_ox_concat(im, part, 2, 4), &flat);
    }
    uint32_t count = interleaved != 0 ? 1 : 2;
    if (turned < width) {
        part[count++] = sx_ox_slice_axis(im, x, 3, turned, width, 1);
    }
    sx_node_id y = count == 1 ? part[0] : sx_ox_concat(im, part, count, 3);
    if (rank == 3) {
        SX_TRY(join_heads(im, &y));
    }
    return sx_ox_set(im, 0, y);
}
