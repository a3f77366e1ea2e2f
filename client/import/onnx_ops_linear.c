#include <string.h>

#include "client/import/onnx_import.h"
#include "core/ir/num.h"

/* Products of matrices, and what is built from them. */

/* ---- MatMul ---- */

static sx_ints one_dim(int64_t k)
{
    return (sx_ints){.count = 1, .v = {k}};
}

/* Batch dimensions (all but the last two) repeated to those of `shape`. */
static sx_node_id broadcast_batch(sx_ox *im, sx_node_id a, const sx_type *batch)
{
    const sx_type *type = sx_ox_type(im, a);
    sx_type shape = *batch;
    shape.rank = batch->rank + 2;
    if (shape.rank > SX_RANK_MAX) {
        SX_OX_FAIL(im, SX_LIMIT, "rank %u, at most %d", shape.rank, SX_RANK_MAX);
        return SX_OX_NONE;
    }
    memcpy(shape.dim + batch->rank, type->dim + (type->rank - 2), 2 * sizeof(sx_dim));
    return sx_ox_broadcast(im, a, &shape);
}

/* a [.., m, k] times b [.., k, n], both of rank 2 or more. */
static sx_node_id matmul(sx_ox *im, sx_node_id a, sx_node_id b)
{
    sx_type left = *sx_ox_type(im, a);
    sx_type right = *sx_ox_type(im, b);
    sx_attr dims = {0};
    if (right.rank == 2) { /* dimensions of the left in front stay where they are */
        dims.lhs_contract = one_dim(left.rank - 1);
        dims.rhs_contract = one_dim(0);
        return sx_ox_dot(im, a, b, &dims);
    }
    sx_type batch;
    left.rank -= 2;
    right.rank -= 2;
    if (!sx_ox_common_shape(im, &left, &right, &batch)) {
        return SX_OX_NONE;
    }
    a = broadcast_batch(im, a, &batch);
    b = broadcast_batch(im, b, &batch);
    dims.lhs_batch = dims.rhs_batch = sx_ox_dims_from(0, batch.rank);
    dims.lhs_contract = one_dim(batch.rank + 1);
    dims.rhs_contract = one_dim(batch.rank);
    return sx_ox_dot(im, a, b, &dims);
}

/* The rules for vectors: a 1 is put before the left or after the right, and taken away from the result. */
static sx_node_id matmul_any(sx_ox *im, sx_node_id a, sx_node_id b)
{
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    sx_type left = *sx_ox_type(im, a);
    sx_type right = *sx_ox_type(im, b);
    bool row = left.rank == 1;
    bool column = right.rank == 1;
    if (left.rank == 0 || right.rank == 0) {
        SX_OX_FAIL(im, SX_INPUT, "operands of rank %u and %u, at least 1", left.rank, right.rank);
        return SX_OX_NONE;
    }
    if (row) {
        left = (sx_type){left.dtype, 2, {sx_dim_of(1), left.dim[0]}};
        a = sx_ox_reshape(im, a, &left);
    }
    if (column) {
        right = (sx_type){right.dtype, 2, {right.dim[0], sx_dim_of(1)}};
        b = sx_ox_reshape(im, b, &right);
    }
    sx_node_id out = matmul(im, a, b);
    if (im->code != SX_OK || (!row && !column)) {
        return out;
    }
    sx_type shape = *sx_ox_type(im, out);
    if (column) {
        shape.rank--;
    }
    if (row) {
        uint32_t at = shape.rank - (column ? 1 : 2);
        shape.rank--;
        memmove(shape.dim + at, shape.dim + at + 1, (shape.rank - at) * sizeof(sx_dim));
    }
    return sx_ox_reshape(im, out, &shape);
}

sx_code sx_ox_matmul(sx_ox *im)
{
    sx_node_id a = sx_ox_in(im, 0);
    return sx_ox_set(im, 0, matmul_any(im, a, sx_ox_in(im, 1)));
}

/* Zero point k subtracted from operand x of i32: one number, or one per row of the left, per column of the right. */
static sx_node_id less_zero_point(sx_ox *im, sx_node_id x, uint32_t k, bool rows)
{
    x = sx_ox_cast(im, x, SX_I32);
    if (sx_ox_input(im, k) == NULL || im->code != SX_OK) {
        return x;
    }
    sx_node_id zero = sx_ox_cast(im, sx_ox_in(im, k), SX_I32);
    sx_type type = *sx_ox_type(im, zero);
    if (rows && type.rank == 1) {
        type = (sx_type){type.dtype, 2, {type.dim[0], sx_dim_of(1)}};
        zero = sx_ox_reshape(im, zero, &type);
    }
    return sx_ox_bin(im, SX_OP_SUBTRACT, x, zero);
}

sx_code sx_ox_matmul_integer(sx_ox *im)
{
    sx_node_id a = less_zero_point(im, sx_ox_in(im, 0), 2, true);
    sx_node_id b = less_zero_point(im, sx_ox_in(im, 1), 3, false);
    return sx_ox_set(im, 0, matmul_any(im, a, b));
}

/* ---- Gemm ---- */

sx_code sx_ox_gemm(sx_ox *im)
{
    int64_t trans_a;
    int64_t trans_b;
    double alpha;
    double beta;
    SX_TRY(sx_ox_attr_int(im, "transA", 0, &trans_a));
    SX_TRY(sx_ox_attr_int(im, "transB", 0, &trans_b));
    SX_TRY(sx_ox_attr_float(im, "alpha", 1.0, &alpha));
    SX_TRY(sx_ox_attr_float(im, "beta", 1.0, &beta));
    sx_node_id a = sx_ox_in(im, 0);
    sx_node_id b = sx_ox_in(im, 1);
    SX_TRY(im->code);
    if (sx_ox_type(im, a)->rank != 2 || sx_ox_type(im, b)->rank != 2) {
        return SX_OX_FAIL(im, SX_INPUT, "operands of rank %u and %u, 2 wanted",
                          sx_ox_type(im, a)->rank, sx_ox_type(im, b)->rank);
    }
    sx_attr dims = {.lhs_contract = one_dim(trans_a != 0 ? 0 : 1),
                    .rhs_contract = one_dim(trans_b != 0 ? 1 : 0)};
    sx_node_id out = sx_ox_dot(im, a, b, &dims);
    out = alpha == 1.0 ? out : sx_ox_with(im, SX_OP_MULTIPLY, out, alpha);
    if (sx_ox_input(im, 2) != NULL && beta != 0.0) {
        sx_node_id c = sx_ox_in(im, 2);
        c = beta == 1.0 ? c : sx_ox_with(im, SX_OP_MULTIPLY, c, beta);
        out = sx_ox_bin(im, SX_OP_ADD, out, sx_ox_broadcast(im, c, sx_ox_type(im, out)));
    }
    return sx_ox_set(im, 0, out);
}

/* ---- Einsum of one or two operands ---- */

#define LABELS_MAX 52
#define ELLIPSIS_FIRST \
    LABELS_MAX /* dimensions under "...": labels from here, the last dimension highest */
#define LABEL_COUNT (LABELS_MAX + SX_RANK_MAX)
typedef struct {
    uint32_t count;
    uint32_t label[SX_RANK_MAX];
} term;

static bool label_of(uint8_t c, uint32_t *label)
{
    if (c >= 'A' && c <= 'Z') {
        *label = (uint32_t)(c - 'A');
        return true;
    }
    *label = 26u + (uint32_t)(c - 'a');
    return c >= 'a' && c <= 'z';
}

/* One term, `rank` dimensions; "..." stands for what the letters leave. rank UINT32_MAX: the output, `dots`
 * under "...". */
static sx_code read_term(sx_ox *im, sx_span text, uint32_t rank, uint32_t dots, term *out)
{
    uint32_t letters = 0;
    bool ellipsis = false;
    out->count = 0;
    for (size_t k = 0; k < text.len; k++) {
        letters += text.ptr[k] != ' ' && text.ptr[k] != '.';
        ellipsis |= text.ptr[k] == '.';
    }
    if (letters > SX_RANK_MAX ||
        (rank != UINT32_MAX && (letters > rank || (!ellipsis && letters != rank)))) {
        return SX_OX_FAIL(im, SX_INPUT, "equation: %u letters for an operand of rank %u", letters,
                          rank);
    }
    dots = rank == UINT32_MAX ? dots : rank - letters;
    for (size_t k = 0; k < text.len; k++) {
        uint32_t label;
        uint32_t count = 1;
        if (text.ptr[k] == ' ') {
            continue;
        }
        if (text.ptr[k] == '.') {
            if (!ellipsis || k + 2 >= text.len || text.ptr[k + 1] != '.' ||
                text.ptr[k + 2] != '.') {
                return SX_OX_FAIL(im, SX_INPUT, "equation: '.' at %zu of a term", k);
            }
            ellipsis = false;
            k += 2;
            count = dots;
            label = ELLIPSIS_FIRST + SX_RANK_MAX - dots;
        } else if (!label_of(text.ptr[k], &label)) {
            return SX_OX_FAIL(im, SX_INPUT, "equation: character %u in a term", text.ptr[k]);
        }
        for (uint32_t i = 0; i < count; i++) {
            if (out->count == SX_RANK_MAX) {
                return SX_OX_FAIL(im, SX_LIMIT, "equation: rank over %d", SX_RANK_MAX);
            }
            out->label[out->count++] = label + i;
        }
    }
    return SX_OK;
}

static uint32_t position(const term *t, uint32_t label)
{
    uint32_t k = 0;
    while (k < t->count && t->label[k] != label) {
        k++;
    }
    return k;
}

static bool has(const term *t, uint32_t label)
{
    return position(t, label) < t->count;
}

static bool repeats(const term *t)
{
    for (uint32_t k = 0; k < t->count; k++) {
        if (position(t, t->label[k]) != k) {
            return true;
        }
    }
    return false;
}

/* Without "->": dimensions under "..." first, then letters that occur once, in order of the alphabet. */
static sx_code implied_output(sx_ox *im, const term *operand, uint32_t count, term *out)
{
    out->count = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        uint32_t from = pass == 0 ? ELLIPSIS_FIRST : 0;
        uint32_t to = pass == 0 ? LABEL_COUNT : LABELS_MAX;
        for (uint32_t label = from; label < to; label++) {
            uint32_t times = 0;
            for (uint32_t k = 0; k < count; k++) {
                times += has(&operand[k], label);
            }
            if (times == 1 || (pass == 0 && times > 1)) {
                if (out->count == SX_RANK_MAX) {
                    return SX_OX_FAIL(im, SX_LIMIT, "equation: rank over %d", SX_RANK_MAX);
                }
                out->label[out->count++] = label;
            }
        }
    }
    return SX_OK;
}

static sx_code read_equation(sx_ox *im, sx_span text, term *operand, uint32_t count, term *out)
{
    size_t arrow = 0;
    while (arrow + 1 < text.len && !(text.ptr[arrow] == '-' && text.ptr[arrow + 1] == '>')) {
        arrow++;
    }
    bool explicit_output = arrow + 1 < text.len;
    size_t left = explicit_output ? arrow : text.len;
    uint32_t dots = 0;
    uint32_t terms = 0;
    for (size_t at = 0; at <= left; terms++) {
        size_t end = at;
        while (end < left && text.ptr[end] != ',') {
            end++;
        }
        if (terms == count) {
            return SX_OX_FAIL(im, SX_INPUT, "equation: more than %u terms", count);
        }
        term *t = &operand[terms];
        uint32_t rank = sx_ox_input(im, terms)->type.rank;
        SX_TRY(read_term(im, (sx_span){text.ptr + at, end - at}, rank, 0, t));
        uint32_t own = 0;
        for (uint32_t k = 0; k < t->count; k++) {
            own += t->label[k] >= ELLIPSIS_FIRST;
        }
        dots = own > dots ? own : dots;
        at = end + 1;
    }
    if (terms != count) {
        return SX_OX_FAIL(im, SX_INPUT, "equation: %u terms for %u operands", terms, count);
    }
    if (!explicit_output) {
        return implied_output(im, operand, count, out);
    }
    sx_span right = {text.ptr + arrow + 2, text.len - arrow - 2};
    return read_term(im, right, UINT32_MAX, dots, out);
}

/* Sums away the labels of t that are in neither `other` nor `out`. */
static sx_node_id sum_private(sx_ox *im, sx_node_id x, term *t, const term *other, const term *out)
{
    sx_ints dims = {0};
    term left = {0};
    for (uint32_t k = 0; k < t->count; k++) {
        if (has(out, t->label[k]) || (other != NULL && has(other, t->label[k]))) {
            left.label[left.count++] = t->label[k];
        } else {
            dims.v[dims.count++] = k;
        }
    }
    *t = left;
    return sx_ox_reduce(im, SX_SUM, x, &dims, false);
}

/* Dimensions of `from` in the order of `to`, which has the same labels. */
static sx_node_id permute(sx_ox *im, sx_node_id x, const term *from, const term *to)
{
    sx_ints perm = {.count = to->count};
    if (from->count != to->count) {
        SX_OX_FAIL(im, SX_INPUT, "equation: an output letter is in no operand");
        return SX_OX_NONE;
    }
    for (uint32_t k = 0; k < to->count; k++) {
        perm.v[k] = position(from, to->label[k]);
        if (perm.v[k] == from->count) {
            SX_OX_FAIL(im, SX_INPUT, "equation: an output letter is in no operand");
            return SX_OX_NONE;
        }
    }
    return sx_ox_transpose(im, x, &perm);
}

static sx_node_id contract(sx_ox *im, sx_node_id a, sx_node_id b, term *ta, term *tb,
                           const term *out)
{
    a = sum_private(im, a, ta, tb, out);
    b = sum_private(im, b, tb, ta, out);
    sx_attr dims = {0};
    term made = {0};
    for (uint32_t pass = 0; pass < 2; pass++) { /* batch, then free dimensions of the left */
        for (uint32_t k = 0; k < ta->count; k++) {
            uint32_t label = ta->label[k];
            bool shared = has(tb, label);
            if (pass == 0 && shared && has(out, label)) {
                dims.lhs_batch.v[dims.lhs_batch.count++] = k;
                dims.rhs_batch.v[dims.rhs_batch.count++] = position(tb, label);
                made.label[made.count++] = label;
            } else if (pass == 0 && shared) {
                dims.lhs_contract.v[dims.lhs_contract.count++] = k;
                dims.rhs_contract.v[dims.rhs_contract.count++] = position(tb, label);
            } else if (pass == 1 && !shared) {
                made.label[made.count++] = label;
            }
        }
    }
    for (uint32_t k = 0; k < tb->count; k++) {
        if (!has(ta, tb->label[k])) {
            if (made.count == SX_RANK_MAX) {
                SX_OX_FAIL(im, SX_LIMIT, "equation: rank over %d", SX_RANK_MAX);
                return SX_OX_NONE;
            }
            made.label[made.count++] = tb->label[k];
        }
    }
    return permute(im, sx_ox_dot(im, a, b, &dims), &made, out);
}

sx_code sx_ox_einsum(sx_ox *im)
{
    sx_span equation;
    term operand[2];
    term out = {0};
    SX_TRY(sx_ox_attr_text(im, "equation", "", &equation));
    if (im->input_count > 2) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "%u operands, at most 2", im->input_count);
    }
    SX_TRY(read_equation(im, equation, operand, im->input_count, &out));
    for (uint32_t k = 0; k < im->input_count; k++) {
        if (repeats(&operand[k])) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "equation: a letter twice in operand %u", k);
        }
    }
    if (repeats(&out)) {
        return SX_OX_FAIL(im, SX_INPUT, "equation: a letter twice in the output");
    }
    sx_node_id a = sx_ox_in(im, 0);
    if (im->input_count == 1) {
        a = sum_private(im, a, &operand[0], NULL, &out);
        return sx_ox_set(im, 0, permute(im, a, &operand[0], &out));
    }
    sx_node_id b = sx_ox_in(im, 1);
    return sx_ox_set(im, 0, contract(im, a, b, &operand[0], &operand[1], &out));
}

/* ---- losses ---- */

typedef struct {
    int64_t ignore;
    bool has_ignore;
    sx_span reduction;
} loss_options;

/* -w[target] log_prob[.., target, ..] with classes along dimension 1; input 2 of the node holds w. */
static sx_node_id pick_loss(sx_ox *im, sx_node_id log_prob, const loss_options *options)
{
    sx_type type = *sx_ox_type(im, log_prob);
    sx_ints beside = sx_ox_dims_from(1, type.rank); /* where dimensions of the target go */
    beside.v[0] = 0;
    sx_ints classes = one_dim(1);
    sx_node_id target = sx_ox_cast(im, sx_ox_in(im, 1), SX_I64);
    if (im->code != SX_OK || sx_ox_type(im, target)->rank + 1 != type.rank) {
        SX_OX_FAIL(im, SX_INPUT, "target of rank %u for scores of rank %u",
                   sx_ox_type(im, target)->rank, type.rank);
        return SX_OX_NONE;
    }
    sx_node_id every = sx_ox_broadcast_in(im, target, &beside, &type);
    sx_node_id hit = sx_ox_cmp(im, SX_EQ, every, sx_ox_iota(im, &type, SX_I64, 1));
    sx_node_id none = sx_ox_splat(im, &type, 0.0);
    sx_node_id weight = sx_ox_splat(im, &type, 1.0);
    if (sx_ox_input(im, 2) != NULL) {
        weight = sx_ox_broadcast_in(im, sx_ox_in(im, 2), &classes, &type);
    }
    if (options->has_ignore) {
        weight = sx_ox_select(im, sx_ox_cmp_with(im, SX_EQ, every, (double)options->ignore), none,
                              weight);
    }
    weight = sx_ox_reduce(im, SX_SUM, sx_ox_select(im, hit, weight, none), &classes, false);
    sx_node_id loss = sx_ox_select(im, hit, sx_ox_un(im, SX_OP_NEGATE, log_prob), none);
    loss = sx_ox_reduce(im, SX_SUM, loss, &classes, false);
    loss = sx_ox_bin(im, SX_OP_MULTIPLY, loss, weight);
    if (sx_span_is(options->reduction, "none") || im->code != SX_OK) {
        return loss;
    }
    sx_ints all = sx_ox_dims_from(0, type.rank - 1);
    sx_node_id sum = sx_ox_reduce(im, SX_SUM, loss, &all, false);
    if (sx_span_is(options->reduction, "sum")) {
        return sum;
    }
    return sx_ox_bin(im, SX_OP_DIVIDE, sum, sx_ox_reduce(im, SX_SUM, weight, &all, false));
}

/* arg 0: input 0 holds logarithms of probabilities; 1: scores. */
sx_code sx_ox_loss(sx_ox *im)
{
    loss_options options = {.has_ignore = sx_ox_attr(im, "ignore_index") != NULL};
    SX_TRY(sx_ox_attr_int(im, "ignore_index", 0, &options.ignore));
    SX_TRY(sx_ox_attr_text(im, "reduction", "mean", &options.reduction));
    bool named = sx_span_is(options.reduction, "none") || sx_span_is(options.reduction, "sum") ||
                 sx_span_is(options.reduction, "mean");
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    if (!named || sx_ox_type(im, x)->rank < 2) {
        return SX_OX_FAIL(im, SX_INPUT, "input of rank %u (at least 2) or an unknown reduction",
                          sx_ox_type(im, x)->rank);
    }
    if (im->entry->arg == 1) {
        sx_attr attr = {.present = SX_A(axis), .axis = 1};
        x = sx_ox_add(im, SX_OP_LOG_SOFTMAX, &attr, &x, 1);
        SX_TRY(sx_ox_wants(im, 1) ? sx_ox_set(im, 1, x) : SX_OK);
    }
    return sx_ox_set(im, 0, pick_loss(im, x, &options));
}

/* ---- quantisation ---- */

/* Input k (scale or zero point): one number, or one per element along `axis` of x. */
static sx_node_id along_axis(sx_ox *im, sx_node_id vector, sx_node_id x, int64_t axis)
{
    uint32_t at;
    uint32_t rank = sx_ox_type(im, vector)->rank;
    const sx_type *type = sx_ox_type(im, x);
    if (im->code != SX_OK || rank == 0) {
        return sx_ox_broadcast(im, vector, type);
    }
    if (rank > 1) {
        SX_OX_FAIL(im, SX_UNIMPLEMENTED, "scales of rank %u (blocks)", rank);
        return SX_OX_NONE;
    }
    if (sx_dim_equal(sx_ox_type(im, vector)->dim[0], sx_dim_of(1)) && type->rank == 0) {
        sx_type scalar = *type;
        return sx_ox_reshape(im, vector, &scalar);
    }
    if (sx_ox_axis(im, axis, type->rank, &at) != SX_OK) {
        return SX_OX_NONE;
    }
    sx_ints dims = one_dim(at);
    return sx_ox_broadcast_in(im, vector, &dims, type);
}

sx_code sx_ox_dequantize(sx_ox *im)
{
    int64_t axis;
    SX_TRY(sx_ox_attr_int(im, "axis", 1, &axis));
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id scale = sx_ox_in(im, 1);
    SX_TRY(im->code);
    sx_dtype dtype = sx_ox_type(im, scale)->dtype;
    if (sx_ox_input(im, 2) != NULL) {
        bool is_float = sx_dtype_class_of(sx_ox_type(im, x)->dtype) == SX_CLASS_FLOAT;
        sx_dtype middle = is_float ? dtype : SX_I32;
        sx_node_id zero = along_axis(im, sx_ox_cast(im, sx_ox_in(im, 2), middle), x, axis);
        x = sx_ox_bin(im, SX_OP_SUBTRACT, sx_ox_cast(im, x, middle), zero);
    }
    x = sx_ox_cast(im, x, dtype);
    return sx_ox_set(im, 0, sx_ox_bin(im, SX_OP_MULTIPLY, x, along_axis(im, scale, x, axis)));
}

/* round(x / scale) + zero, saturated to the type of the zero point (u8 without one). */
sx_code sx_ox_quantize(sx_ox *im)
{
    int64_t axis;
    SX_TRY(sx_ox_attr_int(im, "axis", 1, &axis));
    sx_dtype dtype = sx_ox_input(im, 2) == NULL ? SX_U8 : sx_ox_input(im, 2)->type.dtype;
    if (sx_dtype_class_of(dtype) != SX_CLASS_INT || sx_dtype_bytes(dtype) > 2) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "quantisation to %s", sx_dtype_name(dtype));
    }
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    x = sx_ox_bin(im, SX_OP_DIVIDE, x, along_axis(im, sx_ox_in(im, 1), x, axis));
    x = sx_ox_un(im, SX_OP_ROUND, x);
    if (sx_ox_input(im, 2) != NULL) {
        sx_node_id zero = sx_ox_cast(im, sx_ox_in(im, 2), sx_ox_type(im, x)->dtype);
        x = sx_ox_bin(im, SX_OP_ADD, x, along_axis(im, zero, x, axis));
    }
    x = sx_ox_from(im, SX_OP_MAXIMUM, (double)sx_num_int_min(dtype), x);
    x = sx_ox_from(im, SX_OP_MINIMUM, (double)sx_num_int_max(dtype), x);
    return sx_ox_set(im, 0, sx_ox_cast(im, x, dtype));
}
