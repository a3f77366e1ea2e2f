#include <string.h>

#include "client/import/onnx_import.h"

/* ---- which dimensions ---- */

/* Distinct axes in ascending order. */
static sx_code sort_axes(sx_ox *im, const int64_t *axis, uint32_t count, uint32_t rank,
                         sx_ints *dims)
{
    bool used[SX_RANK_MAX] = {false};
    for (uint32_t k = 0; k < count; k++) {
        uint32_t index;
        SX_TRY(sx_ox_axis(im, axis[k], rank, &index));
        if (used[index]) {
            return SX_OX_FAIL(im, SX_INPUT, "axis %u is listed twice", index);
        }
        used[index] = true;
    }
    *dims = (sx_ints){0};
    for (uint32_t k = 0; k < rank; k++) {
        if (used[k]) {
            dims->v[dims->count++] = k;
        }
    }
    return SX_OK;
}

/* ---- reductions ---- */

/* log sum e^(x - max) + max. */
static sx_node_id log_sum_exp(sx_ox *im, sx_node_id x, const sx_ints *dims, bool keep)
{
    sx_node_id top = sx_ox_reduce(im, SX_MAX, x, dims, true);
    sx_node_id e = sx_ox_un(im, SX_OP_EXP, sx_ox_bin(im, SX_OP_SUBTRACT, x, top));
    sx_node_id sum = sx_ox_un(im, SX_OP_LOG, sx_ox_reduce(im, SX_SUM, e, dims, true));
    sx_node_id out = sx_ox_bin(im, SX_OP_ADD, sum, top);
    if (keep || dims->count == 0) {
        return out;
    }
    sx_type type = {.dtype = sx_ox_type(im, out)->dtype};
    for (uint32_t k = 0, d = 0; k < sx_ox_type(im, out)->rank; k++) {
        if (d < dims->count && dims->v[d] == k) {
            d++;
        } else {
            type.dim[type.rank++] = sx_ox_type(im, out)->dim[k];
        }
    }
    return sx_ox_reshape(im, out, &type);
}

static sx_node_id reduce_as(sx_ox *im, sx_ox_kind kind, sx_node_id x, const sx_ints *dims,
                            bool keep)
{
    bool is_bool = sx_ox_type(im, x)->dtype == SX_BOOL;
    switch (kind) {
    case SX_OX_SUM: return sx_ox_reduce(im, SX_SUM, x, dims, keep);
    case SX_OX_PROD: return sx_ox_reduce(im, SX_PRODUCT, x, dims, keep);
    case SX_OX_MAX: return sx_ox_reduce(im, is_bool ? SX_SUM : SX_MAX, x, dims, keep);     // or
    case SX_OX_MIN: return sx_ox_reduce(im, is_bool ? SX_PRODUCT : SX_MIN, x, dims, keep); // and
    case SX_OX_MEAN: return sx_ox_mean(im, x, dims, keep);
    case SX_OX_L1: return sx_ox_reduce(im, SX_SUM, sx_ox_un(im, SX_OP_ABS, x), dims, keep);
    case SX_OX_L2:
    case SX_OX_SUM_SQUARE:
        x = sx_ox_bin(im, SX_OP_MULTIPLY, x, x);
        x = sx_ox_reduce(im, SX_SUM, x, dims, keep);
        return kind == SX_OX_L2 ? sx_ox_un(im, SX_OP_SQRT, x) : x;
    case SX_OX_LOG_SUM: return sx_ox_un(im, SX_OP_LOG, sx_ox_reduce(im, SX_SUM, x, dims, keep));
    case SX_OX_LOG_SUM_EXP: return log_sum_exp(im, x, dims, keep);
    }
    SX_UNREACHABLE();
}

/* A vector of known integers to one: products of extents. */
static sx_code fold_vector(sx_ox *im, sx_ox_kind kind, bool keep, bool *done)
{
    const sx_ox_value *value = sx_ox_input(im, 0);
    *done = false;
    if (!sx_ox_is_known(value) || value->type.rank != 1 || value->known_count == 0 ||
        (kind != SX_OX_PROD && kind != SX_OX_SUM)) {
        return SX_OK;
    }
    sx_dim total = value->known[0];
    for (uint32_t k = 0; k < value->known_count; k++) {
        if (value->known[k].scale < 0) {
            return SX_OK;
        }
        if (k > 0 && !(kind == SX_OX_PROD ? sx_ox_times(im, total, value->known[k], &total)
                                          : sx_dim_add(total, value->known[k], &total))) {
            return SX_OK;
        }
    }
    if (value->type.dtype != SX_I64) {
        return SX_OK;
    }
    sx_type type = {.dtype = SX_I64, .rank = keep ? 1 : 0};
    type.dim[0] = sx_dim_of(keep ? 1 : 0);
    *done = true;
    return sx_ox_set_known(im, 0, &type, &total, 1);
}

static sx_code reduce_axes(sx_ox *im, const int64_t *axis, uint32_t count)
{
    int64_t keep;
    int64_t noop;
    SX_TRY(sx_ox_attr_int(im, "keepdims", 1, &keep));
    SX_TRY(sx_ox_attr_int(im, "noop_with_empty_axes", 0, &noop));
    sx_ox_kind kind = (sx_ox_kind)im->entry->arg;
    uint32_t rank = sx_ox_input(im, 0)->type.rank;
    bool done = false;
    if (noop == 0 || count > 0) {
        SX_TRY(fold_vector(im, kind, keep != 0, &done));
    }
    if (done) {
        return SX_OK;
    }
    sx_node_id x = sx_ox_in(im, 0);
    sx_ints dims = sx_ox_dims_from(0, rank);
    if (count > 0) {
        SX_TRY(sort_axes(im, axis, count, rank, &dims));
    } else if (noop != 0) {
        return sx_ox_set(im, 0, x);
    }
    return sx_ox_set(im, 0, reduce_as(im, kind, x, &dims, keep != 0));
}

sx_code sx_ox_reduce_attr(sx_ox *im)
{
    int64_t axis[SX_RANK_MAX];
    uint32_t count;
    SX_TRY(sx_ox_attr_ints(im, "axes", axis, SX_RANK_MAX, &count));
    return reduce_axes(im, axis, count == UINT32_MAX ? 0 : count);
}

sx_code sx_ox_reduce_input(sx_ox *im)
{
    int64_t axis[SX_RANK_MAX];
    uint32_t count = 0;
    if (sx_ox_input(im, 1) != NULL) {
        SX_TRY(sx_ox_known_ints(im, 1, "axes", axis, SX_RANK_MAX, &count));
    }
    return reduce_axes(im, axis, count);
}

/* Dimensions 2 and later, kept as 1. */
sx_code sx_ox_global_pool(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    sx_ints dims = sx_ox_dims_from(2, sx_ox_type(im, x)->rank);
    return sx_ox_set(im, 0, reduce_as(im, (sx_ox_kind)im->entry->arg, x, &dims, true));
}

/* ---- index of an extreme ---- */

/* First (or last) index along `axis` where x is extreme, i64, the dimension kept. A NaN is the extreme of its row, as
 * NumPy and PyTorch have it; ONNX leaves that open. */
static sx_node_id extreme_index(sx_ox *im, sx_node_id x, uint32_t axis, bool largest, bool last)
{
    sx_ints dims = {.count = 1, .v = {axis}};
    sx_node_id top = sx_ox_reduce(im, largest ? SX_MAX : SX_MIN, x, &dims, true);
    sx_node_id hit = sx_ox_cmp(im, SX_EQ, x, top);
    if (im->code == SX_OK && sx_dtype_class_of(sx_ox_type(im, x)->dtype) == SX_CLASS_FLOAT) {
        /* the extreme of such a row is NaN, which nothing equals */
        hit = sx_ox_bin(im, SX_OP_OR, hit, sx_ox_cmp(im, SX_NE, x, x));
    }
    sx_node_id index = sx_ox_iota(im, sx_ox_type(im, x), SX_I64, axis);
    sx_node_id miss = sx_ox_splat(im, sx_ox_type(im, index), last ? -1.0 : (double)SX_EXTENT_MAX);
    sx_node_id chosen = sx_ox_select(im, hit, index, miss);
    return sx_ox_reduce(im, last ? SX_MAX : SX_MIN, chosen, &dims, true);
}

sx_code sx_ox_arg_extreme(sx_ox *im)
{
    int64_t keep;
    int64_t last;
    uint32_t axis;
    uint32_t rank = sx_ox_input(im, 0)->type.rank;
    SX_TRY(sx_ox_attr_int(im, "keepdims", 1, &keep));
    SX_TRY(sx_ox_attr_int(im, "select_last_index", 0, &last));
    SX_TRY(sx_ox_attr_axis(im, "axis", 0, rank, &axis));
    bool largest = im->entry->arg == SX_OX_MAX;
    if (sx_dim_equal(sx_ox_input(im, 0)->type.dim[axis], sx_dim_of(0))) {
        return SX_OX_FAIL(im, SX_INPUT, "axis %u has no elements: none is the %s", axis,
                          largest ? "largest" : "smallest");
    }
    sx_node_id out = extreme_index(im, sx_ox_in(im, 0), axis, largest, last != 0);
    if (keep == 0 && im->code == SX_OK) {
        sx_type type = *sx_ox_type(im, out);
        type.rank--;
        for (uint32_t k = axis; k < type.rank; k++) {
            type.dim[k] = type.dim[k + 1];
        }
        out = sx_ox_reshape(im, out, &type);
    }
    return sx_ox_set(im, 0, out);
}

/* ---- the largest or smallest ---- */

static sx_code top_k(sx_ox *im, sx_dim count, bool largest)
{
    uint32_t axis;
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    SX_TRY(sx_ox_attr_axis(im, "axis", -1, sx_ox_type(im, x)->rank, &axis));
    bool whole = sx_dim_equal(count, sx_ox_type(im, x)->dim[axis]);
    if (!whole && !sx_dim_is_constant(count)) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "K is symbolic, and not the extent of axis %u",
                          axis);
    }
    if (count.scale < 0) {
        return SX_OX_FAIL(im, SX_INPUT, "K is %lld, at least 0", (long long)count.scale);
    }
    sx_attr attr = {.present = sx_op_info_of(SX_OP_SORT)->attrs,
                    .axis = axis,
                    .count = sx_dim_is_constant(count) ? count.scale : -1,
                    .direction = largest ? SX_GT : SX_LT};
    for (uint32_t k = 0; k < 2; k++) {
        attr.result = k;
        if (sx_ox_wants(im, k)) {
            SX_TRY(sx_ox_set(im, k, sx_ox_add(im, SX_OP_SORT, &attr, &x, 1)));
        }
    }
    return im->code;
}

/* Before opset 10: the number is an attribute. */
sx_code sx_ox_top_k_attr(sx_ox *im)
{
    int64_t count;
    SX_TRY(sx_ox_attr_int(im, "k", -1, &count));
    return top_k(im, sx_dim_of(count), true);
}

/* What is not to be sorted may be. */
sx_code sx_ox_top_k(sx_ox *im)
{
    int64_t largest, sorted;
    const sx_dim *count;
    uint32_t counts;
    SX_TRY(sx_ox_attr_int(im, "largest", 1, &largest));
    SX_TRY(sx_ox_attr_int(im, "sorted", 1, &sorted));
    SX_TRY(sx_ox_known(im, 1, "K", &count, &counts));
    if (counts != 1) {
        return SX_OX_FAIL(im, SX_INPUT, "K has %u elements, expected 1", counts);
    }
    return top_k(im, count[0], largest != 0);
}

/* ---- softmax family ---- */

static sx_node_id hardmax(sx_ox *im, sx_node_id x, uint32_t axis)
{
    sx_node_id first = extreme_index(im, x, axis, true, false);
    sx_node_id index = sx_ox_iota(im, sx_ox_type(im, x), SX_I64, axis);
    return sx_ox_cast(im, sx_ox_cmp(im, SX_EQ, index, first), sx_ox_type(im, x)->dtype);
}

static sx_node_id softmax_like(sx_ox *im, sx_node_id x, uint32_t axis)
{
    if (im->entry->arg == SX_OP_COUNT) {
        return hardmax(im, x, axis);
    }
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    return sx_ox_add(im, (sx_op)im->entry->arg, &attr, &x, 1);
}

sx_code sx_ox_softmax(sx_ox *im)
{
    uint32_t axis;
    SX_TRY(sx_ox_attr_axis(im, "axis", -1, sx_ox_input(im, 0)->type.rank, &axis));
    return sx_ox_set(im, 0, softmax_like(im, sx_ox_in(im, 0), axis));
}

/* Before opset 13: over all dimensions from `axis` on, taken as one. */
sx_code sx_ox_softmax_flat(sx_ox *im)
{
    uint32_t axis;
    sx_node_id x = sx_ox_in(im, 0);
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(im->code);
    SX_TRY(sx_ox_attr_axis(im, "axis", 1, type.rank, &axis));
    if (axis + 1 == type.rank) {
        return sx_ox_set(im, 0, softmax_like(im, x, axis));
    }
    sx_type flat = type;
    flat.rank = axis + 1;
    for (uint32_t k = axis + 1; k < type.rank; k++) {
        if (!sx_ox_times(im, flat.dim[axis], type.dim[k], &flat.dim[axis])) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "product of symbolic extents");
        }
    }
    sx_node_id out = softmax_like(im, sx_ox_reshape(im, x, &flat), axis);
    return sx_ox_set(im, 0, sx_ox_reshape(im, out, &type));
}

/* ---- normalisation ---- */

typedef struct {
    sx_node_id mean;    /* dimensions kept */
    sx_node_id inverse; /* 1 / sqrt(variance + epsilon) */
    sx_node_id normal;  /* (x - mean) * inverse */
} moments;

static moments normalise(sx_ox *im, sx_node_id x, const sx_ints *dims, double epsilon)
{
    moments out;
    out.mean = sx_ox_mean(im, x, dims, true);
    sx_node_id centred = sx_ox_bin(im, SX_OP_SUBTRACT, x, out.mean);
    sx_node_id square = sx_ox_bin(im, SX_OP_MULTIPLY, centred, centred);
    sx_node_id variance = sx_ox_mean(im, square, dims, true);
    out.inverse = sx_ox_un(im, SX_OP_RSQRT, sx_ox_with(im, SX_OP_ADD, variance, epsilon));
    out.normal = sx_ox_bin(im, SX_OP_MULTIPLY, centred, out.inverse);
    return out;
}

static sx_type trailing(const sx_type *type, uint32_t axis)
{
    sx_type out = {.dtype = type->dtype, .rank = type->rank - axis};
    memcpy(out.dim, type->dim + axis, out.rank * sizeof(sx_dim));
    return out;
}

/* The composite; where a normalised extent is symbolic, or mean and deviation are asked for, primitives in f32
 * or wider. */
sx_code sx_ox_layer_norm(sx_ox *im)
{
    uint32_t axis;
    double epsilon;
    (void)sx_ox_attr(im, "stash_type"); /* computing in f32 at least is what we do */
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(sx_ox_attr_axis(im, "axis", -1, type.rank, &axis));
    SX_TRY(sx_ox_attr_float(im, "epsilon", 1e-5, &epsilon));
    sx_type tail = trailing(&type, axis);
    sx_node_id scale = sx_ox_broadcast(im, sx_ox_in(im, 1), &tail);
    sx_node_id bias = sx_ox_input(im, 2) == NULL ? sx_ox_splat(im, &tail, 0.0)
                                                 : sx_ox_broadcast(im, sx_ox_in(im, 2), &tail);
    bool composite = sx_type_is_static(&tail);
    if (composite) {
        sx_node_id input[3] = {x, scale, bias};
        sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = axis, .eps = epsilon};
        SX_TRY(sx_ox_set(im, 0, sx_ox_add(im, SX_OP_LAYER_NORM, &attr, input, 3)));
        if (!sx_ox_wants(im, 1) && !sx_ox_wants(im, 2)) {
            return SX_OK;
        }
    }
    sx_ints dims = sx_ox_dims_from(axis, type.rank);
    x = sx_dtype_bytes(type.dtype) < 4 ? sx_ox_cast(im, x, SX_F32) : x;
    moments m = normalise(im, x, &dims, epsilon);
    if (!composite) {
        sx_node_id out = sx_ox_cast(im, m.normal, type.dtype);
        out = sx_ox_bin(im, SX_OP_MULTIPLY, out, scale);
        SX_TRY(sx_ox_set(im, 0, sx_ox_bin(im, SX_OP_ADD, out, bias)));
    }
    SX_TRY(sx_ox_set(im, 1, m.mean));
    return sx_ox_set(im, 2, m.inverse);
}

sx_code sx_ox_rms_norm(sx_ox *im)
{
    uint32_t axis;
    double epsilon;
    (void)sx_ox_attr(im, "stash_type"); /* computing in f32 at least is what we do */
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(sx_ox_attr_axis(im, "axis", -1, type.rank, &axis));
    SX_TRY(sx_ox_attr_float(im, "epsilon", 1e-5, &epsilon));
    sx_type tail = trailing(&type, axis);
    sx_node_id input[2] = {x, sx_ox_broadcast(im, sx_ox_in(im, 1), &tail)};
    sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = axis, .eps = epsilon};
    return sx_ox_set(im, 0, sx_ox_add(im, SX_OP_RMS_NORM, &attr, input, 2));
}

/* One number per channel, along dimension 1 of x. */
static sx_node_id per_channel(sx_ox *im, sx_node_id vector, sx_node_id x)
{
    sx_ints dims = {.count = 1, .v = {1}};
    return sx_ox_broadcast_in(im, vector, &dims, sx_ox_type(im, x));
}

static sx_code want_channels(sx_ox *im, sx_node_id x, uint32_t first, uint32_t last)
{
    SX_TRY(im->code);
    if (sx_ox_type(im, x)->rank < 2) {
        return SX_OX_FAIL(im, SX_INPUT, "input of rank %u, at least 2", sx_ox_type(im, x)->rank);
    }
    for (uint32_t k = first; k <= last; k++) {
        if (sx_ox_input(im, k)->type.rank != 1) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u has rank %u, 1 wanted", k,
                              sx_ox_input(im, k)->type.rank);
        }
    }
    return SX_OK;
}

/* y = normal * scale + bias, scale and bias (inputs 1 and 2) along dimension 1. */
static sx_node_id scale_channels(sx_ox *im, sx_node_id normal)
{
    sx_node_id scale = per_channel(im, sx_ox_in(im, 1), normal);
    sx_node_id bias = per_channel(im, sx_ox_in(im, 2), normal);
    return sx_ox_bin(im, SX_OP_ADD, sx_ox_bin(im, SX_OP_MULTIPLY, normal, scale), bias);
}

sx_code sx_ox_instance_norm(sx_ox *im)
{
    double epsilon;
    SX_TRY(sx_ox_attr_float(im, "epsilon", 1e-5, &epsilon));
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(want_channels(im, x, 1, 2));
    sx_ints dims = sx_ox_dims_from(2, sx_ox_type(im, x)->rank);
    return sx_ox_set(im, 0, scale_channels(im, normalise(im, x, &dims, epsilon).normal));
}

/* arg 0: scale and bias per group (opset 18); 1: per channel (opset 21). */
sx_code sx_ox_group_norm(sx_ox *im)
{
    double epsilon;
    int64_t groups;
    (void)sx_ox_attr(im, "stash_type"); /* the type computed in */
    SX_TRY(sx_ox_attr_float(im, "epsilon", 1e-5, &epsilon));
    SX_TRY(sx_ox_attr_int(im, "num_groups", 0, &groups));
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(want_channels(im, x, 1, 2));
    sx_type type = *sx_ox_type(im, x);
    sx_type split = type;
    if (groups < 1 || !sx_dim_is_constant(type.dim[1]) || type.dim[1].scale % groups != 0) {
        return SX_OX_FAIL(im, SX_INPUT, "%lld groups of %lld channels", (long long)groups,
                          (long long)type.dim[1].scale);
    }
    if (type.rank == SX_RANK_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "input of rank %u, at most %d", type.rank, SX_RANK_MAX - 1);
    }
    split.rank = type.rank + 1;
    split.dim[1] = sx_dim_of(groups);
    split.dim[2] = sx_dim_of(type.dim[1].scale / groups);
    memcpy(split.dim + 3, type.dim + 2, (type.rank - 2) * sizeof(sx_dim));
    sx_ints dims = sx_ox_dims_from(2, split.rank);
    sx_node_id normal = normalise(im, sx_ox_reshape(im, x, &split), &dims, epsilon).normal;
    if (im->entry->arg == 0) {
        return sx_ox_set(im, 0, sx_ox_reshape(im, scale_channels(im, normal), &type));
    }
    return sx_ox_set(im, 0, scale_channels(im, sx_ox_reshape(im, normal, &type)));
}

sx_code sx_ox_lp_norm(sx_ox *im)
{
    int64_t p;
    uint32_t axis;
    SX_TRY(sx_ox_attr_int(im, "p", 2, &p));
    SX_TRY(sx_ox_attr_axis(im, "axis", -1, sx_ox_input(im, 0)->type.rank, &axis));
    if (p != 1 && p != 2) {
        return SX_OX_FAIL(im, SX_INPUT, "p is %lld, 1 or 2 wanted", (long long)p);
    }
    sx_node_id x = sx_ox_in(im, 0);
    sx_ints dims = {.count = 1, .v = {axis}};
    sx_node_id norm = reduce_as(im, p == 1 ? SX_OX_L1 : SX_OX_L2, x, &dims, true);
    /* a vector of zeros stays one */
    sx_node_id none = sx_ox_cmp_with(im, SX_EQ, norm, 0.0);
    norm = sx_ox_select(im, none, sx_ox_splat(im, sx_ox_type(im, norm), 1.0), norm);
    return sx_ox_set(im, 0, sx_ox_bin(im, SX_OP_DIVIDE, x, norm));
}

sx_code sx_ox_mean_variance(sx_ox *im)
{
    int64_t axis[SX_RANK_MAX] = {0, 2, 3};
    uint32_t count;
    SX_TRY(sx_ox_attr_ints(im, "axes", axis, SX_RANK_MAX, &count));
    sx_node_id x = sx_ox_in(im, 0);
    sx_ints dims;
    SX_TRY(sort_axes(im, axis, count == UINT32_MAX ? 3 : count, sx_ox_type(im, x)->rank, &dims));
    sx_node_id mean = sx_ox_mean(im, x, &dims, true);
    sx_node_id centred = sx_ox_bin(im, SX_OP_SUBTRACT, x, mean);
    sx_node_id square = sx_ox_bin(im, SX_OP_MULTIPLY, centred, centred);
    sx_node_id root = sx_ox_un(im, SX_OP_SQRT, sx_ox_mean(im, square, &dims, true));
    root = sx_ox_with(im, SX_OP_ADD, root, 1e-9);
    return sx_ox_set(im, 0, sx_ox_bin(im, SX_OP_DIVIDE, centred, root));
}
