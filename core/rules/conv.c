/* Convolutions, windows and batch normalisation brought to what has a kernel (core/ir/fused.h): padding apart,
 * three spatial dimensions as two, groups as a dimension of their own. */
#include "core/rules/conv.h"

#include <math.h>
#include <string.h>

#include "core/ir/num.h"

bool sx_ints_are(const sx_ints *list, int64_t value)
{
    bool all = true;
    for (uint32_t k = 0; k < list->count; k++) {
        all = all && list->v[k] == value;
    }
    return all;
}

sx_ints sx_ints_of(uint32_t count, int64_t value)
{
    sx_ints list = {.count = count};
    for (uint32_t k = 0; k < count; k++) {
        list.v[k] = value;
    }
    return list;
}

bool sx_has_padding(const sx_attr *attr)
{
    return !sx_ints_are(&attr->low, 0) || !sx_ints_are(&attr->high, 0);
}

sx_code sx_rewrite_pad(sx_rewrite *rw, uint32_t x, double value, const sx_ints *low,
                       const sx_ints *high, uint32_t *node)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_PAD)->attrs, .low = *low, .high = *high};
    sx_type scalar = {.dtype = sx_rewrite_type(rw, x)->dtype};
    uint32_t child[2] = {x, SX_EG_NONE};
    attr.interior = sx_ints_of(low->count, 0);
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &scalar, value, &child[1]));
    return sx_rewrite_add(rw, SX_OP_PAD, &attr, child, 2, node);
}

/* conv(x, w) with padding = conv(pad(x, 0), w) without. */
sx_code sx_rule_conv_padding(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    if (!sx_has_padding(&attr)) {
        return SX_OK;
    }
    uint32_t spatial = attr.stride.count;
    SX_ASSERT(spatial <= SX_RANK_MAX - 2);
    sx_ints low = sx_ints_of(spatial + 2, 0);
    sx_ints high = low;
    memcpy(&low.v[2], attr.low.v, spatial * sizeof(int64_t));
    memcpy(&high.v[2], attr.high.v, spatial * sizeof(int64_t));
    attr.low = attr.high = sx_ints_of(spatial, 0);
    uint32_t child[2] = {SX_EG_NONE, rw->var[1]};
    uint32_t node;
    SX_TRY(sx_rewrite_pad(rw, rw->var[0], 0, &low, &high, &child[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &attr, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* What a reduction starts from; false where a double does not hold it. */
static bool neutral_of(sx_reducer reducer, sx_dtype dtype, double *value)
{
    bool is_float = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
    switch (reducer) {
    case SX_SUM: *value = 0; return true;
    case SX_PRODUCT: *value = 1; return true;
    case SX_MAX: *value = is_float ? -HUGE_VAL : (double)sx_num_int_min(dtype); return true;
    case SX_MIN:
        *value = is_float ? HUGE_VAL : (double)sx_num_int_max(dtype);
        return dtype != SX_I64;
    case SX_REDUCER_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* The padding of a window is passed over: as good as the element the reduction starts from. */
sx_code sx_rule_window_padding(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    double value;
    if (!sx_has_padding(&attr) ||
        !neutral_of(attr.reducer, sx_rewrite_type(rw, rw->node[0])->dtype, &value)) {
        return SX_OK;
    }
    uint32_t node;
    SX_TRY(sx_rewrite_pad(rw, rw->var[0], value, &attr.low, &attr.high, &node));
    attr.low = attr.high = sx_ints_of(attr.low.count, 0);
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE_WINDOW, &attr, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- three spatial dimensions ---- */

/* Groups of several output channels: the output channel is not one dimension of an affine access to x. */
static bool splits_outputs(const sx_attr *attr, const sx_type *w)
{
    return attr->groups > 1 && !sx_dim_equal(w->dim[0], sx_dim_of(attr->groups));
}

static bool has_room(const sx_attr *attr, const sx_type *w)
{
    uint32_t rank = w->rank + (splits_outputs(attr, w) ? 1 : 0);
    for (uint32_t d = 1; d < w->rank; d++) {
        rank += sx_dim_equal(w->dim[d], sx_dim_of(1)) ? 0 : 1;
    }
    return rank <= SX_RANK_MAX;
}

/* x [n, c, D, H, W]: the slices of D that meet each element of the window, as [n, c, k, d, H, W]. */
static sx_code stack_slices(sx_rewrite *rw, const sx_attr *attr, int64_t window, int64_t places,
                            uint32_t *node)
{
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    uint32_t part[SX_INPUTS_MAX];
    sx_attr slice = sx_slice_whole(&x);
    slice.stride.v[2] = attr->stride.v[0];
    sx_type one = {x.dtype, 6, {x.dim[0], x.dim[1], sx_dim_of(1), sx_dim_of(places)}};
    one.dim[4] = x.dim[3];
    one.dim[5] = x.dim[4];
    for (int64_t k = 0; k < window; k++) {
        slice.start.v[2] = k * attr->dilation.v[0];
        slice.limit.v[2] = slice.start.v[2] + (places - 1) * attr->stride.v[0] + 1;
        SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &slice, rw->var, 1, &part[k]));
        SX_TRY(sx_rewrite_reshape(rw, part[k], &one, &part[k]));
    }
    *node = part[0];
    sx_attr joined = {.present = SX_A(axis), .axis = 2};
    return window == 1
               ? SX_OK
               : sx_rewrite_add(rw, SX_OP_CONCATENATE, &joined, part, (uint32_t)window, node);
}

/* The first spatial dimension becomes a part of the batch (its places) and of the channels (its window): sums
 * keep their order. */
sx_code sx_rule_conv_deep(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    if (x.rank != 5 || sx_has_padding(&attr) || has_room(&attr, &w) ||
        !sx_dim_is_constant(x.dim[2]) || w.dim[2].scale > SX_INPUTS_MAX) {
        return SX_OK;
    }
    int64_t window = w.dim[2].scale;
    sx_dim rows;
    sx_type flat = {x.dtype, 4, {{0}, {0}, x.dim[3], x.dim[4]}};
    sx_type flat_w = {w.dtype, 4, {w.dim[0], {0}, w.dim[3], w.dim[4]}};
    if (!sx_dim_multiply(x.dim[0], y.dim[2], &rows) ||
        !sx_dim_multiply(x.dim[1], sx_dim_of(window), &flat.dim[1]) ||
        !sx_dim_multiply(w.dim[1], sx_dim_of(window), &flat_w.dim[1])) {
        return SX_OK;
    }
    flat.dim[0] = rows;
    uint32_t child[2];
    sx_attr order = {.present = SX_A(perm), .perm = {6, {0, 3, 1, 2, 4, 5}}};
    SX_TRY(stack_slices(rw, &attr, window, y.dim[2].scale, &child[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &order, child, 1, &child[0]));
    SX_TRY(sx_rewrite_reshape(rw, child[0], &flat, &child[0]));
    SX_TRY(sx_rewrite_reshape(rw, rw->var[1], &flat_w, &child[1]));
    sx_attr plane = {.present = attr.present, .groups = attr.groups};
    plane.stride = (sx_ints){2, {attr.stride.v[1], attr.stride.v[2]}};
    plane.dilation = (sx_ints){2, {attr.dilation.v[1], attr.dilation.v[2]}};
    plane.low = plane.high = sx_ints_of(2, 0);
    sx_type apart = {y.dtype, 5, {y.dim[0], y.dim[2], y.dim[1], y.dim[3], y.dim[4]}};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &plane, child, 2, &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &apart, &node));
    sx_attr back = {.present = SX_A(perm), .perm = {5, {0, 2, 1, 3, 4}}};
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &back, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- groups ---- */

static bool times(sx_dim a, int64_t b, sx_dim *product)
{
    return sx_dim_multiply(a, sx_dim_of(b), product);
}

/* Appends a dimension that is kept, with its strides in x and w. */
static void keep_dim(sx_type *space, sx_body *body, sx_dim extent, sx_dim of_x, sx_dim of_w)
{
    SX_ASSERT(space->rank < SX_RANK_MAX && body->axes == 0);
    body->access[0].stride[space->rank] = of_x;
    body->access[1].stride[space->rank] = of_w;
    space->dim[space->rank++] = extent;
}

/* The places of a convolution. False where a stride cannot be written. */
static bool keep_places(const sx_attr *attr, const sx_type *y, const sx_dim *from, sx_type *space,
                        sx_body *body)
{
    for (uint32_t d = 2; d < y->rank; d++) {
        sx_dim step;
        if (!times(from[d], attr->stride.v[d - 2], &step)) {
            return false;
        }
        keep_dim(space, body, y->dim[d], step, sx_dim_of(0));
    }
    return true;
}

/* Space [n, group, o of it, places .., c of it, window ..], or [n, places .., group, o of it, c of it, window ..]; one
 * group is no dimension, nor is one output channel of each of several. False where a stride cannot be written. */
static bool conv_body(const sx_attr *attr, const sx_type *x, const sx_type *w, const sx_type *y,
                      bool places_first, sx_type *space, sx_body *body)
{
    sx_dim from[SX_RANK_MAX], weight[SX_RANK_MAX], of_x, of_w;
    sx_access *a = body->access;
    sx_dim outputs = {w->dim[0].scale / attr->groups, w->dim[0].symbol};
    *space = (sx_type){.dtype = y->dtype};
    for (uint32_t k = 0; k < 2 * SX_RANK_MAX; k++) {
        a[k / SX_RANK_MAX].stride[k % SX_RANK_MAX] = sx_dim_of(0);
    }
    a[0].offset = a[1].offset = sx_dim_of(0);
    if (!sx_type_strides(x, from) || !sx_type_strides(w, weight) ||
        !sx_dim_multiply(from[1], w->dim[1], &of_x) ||
        !sx_dim_multiply(weight[0], outputs, &of_w)) {
        return false;
    }
    keep_dim(space, body, y->dim[0], from[0], sx_dim_of(0));
    if (places_first && !keep_places(attr, y, from, space, body)) {
        return false;
    }
    if (attr->groups > 1) {
        keep_dim(space, body, sx_dim_of(attr->groups), of_x, of_w);
    }
    if (attr->groups == 1 || splits_outputs(attr, w)) {
        keep_dim(space, body, outputs, sx_dim_of(0), weight[0]);
    }
    bool ok = places_first || keep_places(attr, y, from, space, body);
    for (uint32_t d = 1; d < w->rank && ok; d++) {
        bool all_one = d + 1 == w->rank && body->axes == 0; /* something has to be summed over */
        if (sx_dim_equal(w->dim[d], sx_dim_of(1)) && !all_one) {
            continue;
        }
        SX_ASSERT(space->rank < SX_RANK_MAX);
        ok = times(from[d], d > 1 ? attr->dilation.v[d - 2] : 1, &a[0].stride[space->rank]);
        a[1].stride[space->rank] = weight[d];
        body->axes |= 1u << space->rank;
        space->dim[space->rank++] = w->dim[d];
    }
    return ok;
}

/* The convolution as one contraction over that space. SX_EG_NONE where it cannot be written. */
static sx_code contract(sx_rewrite *rw, bool places_first, uint32_t *node)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    sx_body body = {.arg_count = 2, .instr_count = 3};
    body.instr[0] = (sx_instr){.kind = SX_BODY_ARG, .x = 0, .dtype = x.dtype};
    body.instr[1] = (sx_instr){.kind = SX_BODY_ARG, .x = 1, .dtype = w.dtype};
    body.instr[2] = (sx_instr){.kind = SX_BODY_DOT, .x = 0, .y = 1, .dtype = y.dtype};
    sx_attr fused = {.present = SX_A(type) | SX_A(body), .body = &body};
    *node = SX_EG_NONE;
    return conv_body(&attr, &x, &w, &y, places_first, &fused.type, &body)
               ? sx_rewrite_add(rw, SX_OP_FUSED, &fused, rw->var, 2, node)
               : SX_OK;
}

sx_code sx_rule_conv_groups(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    if (sx_has_padding(&attr) || !splits_outputs(&attr, &w) || !has_room(&attr, &w)) {
        return SX_OK;
    }
    SX_TRY(contract(rw, false, &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &y, &node));
    return sx_rewrite_emit(rw, node);
}

#define LANES_MOST 16 /* of f32 in the widest vectors of a processor */

/* Do vectors along the last dimension of the places have lanes without work, or elements that lie apart? */
static bool leaves_lanes(const sx_attr *attr, const sx_type *y)
{
    sx_dim last = y->dim[y->rank - 1];
    bool constant = true;
    for (uint32_t d = 2; d < y->rank; d++) {
        constant = constant && sx_dim_is_constant(y->dim[d]);
    }
    return constant && (last.scale % LANES_MOST != 0 || attr->stride.v[y->rank - 3] != 1);
}

/* The lanes of a kernel run along the last dimension of its result. Where places do not fill them, the output channels,
 * of which there often are a multiple of the lanes, are last in the result, and a transpose brings it to order; so it
 * is with the gradient of weights, whose window is about as large as the image. Which costs less, prices say. */
sx_code sx_rule_conv_outputs_last(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    if (sx_has_padding(&attr) || !has_room(&attr, &w) ||
        !(leaves_lanes(&attr, &y) || rw->unguarded)) {
        return SX_OK;
    }
    uint32_t node;
    sx_type turned = {.dtype = y.dtype};
    sx_attr back = {.present = SX_A(perm), .perm = {2, {0, y.rank - 1}}};
    turned.dim[turned.rank++] = y.dim[0];
    for (uint32_t d = 2; d < y.rank; d++) {
        turned.dim[turned.rank++] = y.dim[d];
        back.perm.v[back.perm.count++] = d - 1;
    }
    turned.dim[turned.rank++] = y.dim[1];
    SX_TRY(contract(rw, true, &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &turned, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &back, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- batch_norm by its definition (core/ir/compose.c) ---- */

sx_code sx_rewrite_repeat(sx_rewrite *rw, uint32_t vector, uint32_t dim, const sx_type *type,
                          uint32_t *node)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(type), .dims = {1, {dim}}, .type = *type};
    return sx_rewrite_add(rw, SX_OP_BROADCAST, &attr, &vector, 1, node);
}

sx_code sx_rewrite_binary(sx_rewrite *rw, sx_op op, uint32_t a, uint32_t b, uint32_t *node)
{
    uint32_t child[2] = {a, b};
    return sx_rewrite_add(rw, op, NULL, child, 2, node);
}

sx_code sx_rewrite_norm_factor(sx_rewrite *rw, uint32_t scale, uint32_t variance, double eps,
                               uint32_t *node)
{
    sx_type type = *sx_rewrite_type(rw, variance);
    uint32_t small;
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &type,
                                sx_num_round(type.dtype, eps), &small));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_ADD, variance, small, node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_RSQRT, NULL, node, 1, node));
    return sx_rewrite_binary(rw, SX_OP_MULTIPLY, scale, *node, node);
}

/* f32 and f64 only: narrower types compute composites in f32. */
sx_code sx_rule_batch_norm_definition(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t axis = (uint32_t)attr.axis;
    if (!sx_type_is_real(&type)) {
        return SX_OK;
    }
    uint32_t factor;
    uint32_t mean;
    uint32_t bias;
    uint32_t node;
    SX_TRY(sx_rewrite_norm_factor(rw, rw->var[1], rw->var[4], attr.eps, &factor));
    SX_TRY(sx_rewrite_repeat(rw, factor, axis, &type, &factor));
    SX_TRY(sx_rewrite_repeat(rw, rw->var[3], axis, &type, &mean));
    SX_TRY(sx_rewrite_repeat(rw, rw->var[2], axis, &type, &bias));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_SUBTRACT, rw->var[0], mean, &node));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, node, factor, &node));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_ADD, node, bias, &node));
    return sx_rewrite_emit(rw, node);
}
