/* check_window.c - types of what slides a window, pads or reverses. */
#include "core/ir/check.h"

/* One number for each of `count` dimensions, each at least `least` and at most SX_EXTENT_MAX. */
static sx_code check_list(const sx_infer *in, const sx_ints *list, sx_attr_field field,
                          uint32_t count, int64_t least)
{
    const char *name = sx_attr_info_of(field)->name;
    if (list->count != count) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %s has %u numbers for %u dimensions", in->name, name,
                       list->count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (list->v[i] < least || list->v[i] > SX_EXTENT_MAX) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: %s[%u] is %lld, from %lld to %lld", in->name,
                           name, i, (long long)list->v[i], (long long)least,
                           (long long)SX_EXTENT_MAX);
        }
    }
    return SX_OK;
}

/* ---- reverse, pad ---- */

sx_code sx_infer_reverse(const sx_infer *in)
{
    SX_TRY(sx_check_dims(in, &in->attr->dims, SX_ATTR_dims, in->input[0].rank, true));
    *in->result = in->input[0];
    return SX_OK;
}

static sx_code padded_extent(const sx_infer *in, uint32_t axis, sx_dim *extent)
{
    int64_t low = in->attr->low.v[axis];
    int64_t high = in->attr->high.v[axis];
    int64_t interior = in->attr->interior.v[axis];
    if (low == 0 && high == 0 && interior == 0) {
        return SX_OK;
    }
    if (!sx_dim_is_constant(*extent)) {
        return SX_FAIL(in->cx, SX_UNIMPLEMENTED,
                       "%s: axis %u: extent %s and padding add to no multiple of a symbol",
                       in->name, axis, SX_DIM_TEXT(in, *extent));
    }
    int64_t padded;
    bool empty = extent->scale == 0;
    if (!sx_mul_i64(sx_max_i64(extent->scale - 1, 0), interior + 1, &padded) ||
        !sx_add_i64(padded, low + high + (empty ? 0 : 1), &padded) || padded > SX_EXTENT_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: axis %u: extent beyond %lld", in->name, axis,
                       (long long)SX_EXTENT_MAX);
    }
    if (padded < 0) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: axis %u: padding %lld and %lld leaves %lld of extent %lld, at least 0",
                       in->name, axis, (long long)low, (long long)high, (long long)padded,
                       (long long)(padded - low - high));
    }
    *extent = sx_dim_of(padded);
    return SX_OK;
}

sx_code sx_infer_pad(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    const sx_attr *attr = in->attr;
    if (in->input[1].dtype != x->dtype || in->input[1].rank != 0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 1 is %s of rank %u, not %s of rank 0",
                       in->name, sx_dtype_name(in->input[1].dtype), in->input[1].rank,
                       sx_dtype_name(x->dtype));
    }
    SX_TRY(check_list(in, &attr->low, SX_ATTR_low, x->rank, -SX_EXTENT_MAX));
    SX_TRY(check_list(in, &attr->high, SX_ATTR_high, x->rank, -SX_EXTENT_MAX));
    SX_TRY(check_list(in, &attr->interior, SX_ATTR_interior, x->rank, 0));
    *in->result = *x;
    for (uint32_t i = 0; i < x->rank; i++) {
        SX_TRY(padded_extent(in, i, &in->result->dim[i]));
    }
    return SX_OK;
}

/* ---- windows ---- */

/* How often a window of `window` elements fits one dimension; `k` is its place in the lists. A symbolic
 * dimension has no padding and is cut in steps that contain the window. */
static sx_code places(const sx_infer *in, uint32_t axis, uint32_t k, int64_t window, sx_dim extent,
                      sx_dim *count)
{
    const sx_attr *attr = in->attr;
    int64_t stride = attr->stride.v[k];
    int64_t room = attr->low.v[k] + attr->high.v[k];
    int64_t reach;
    if (!sx_mul_i64(window - 1, attr->dilation.v[k], &reach)) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: axis %u: a window of %lld elements is too long",
                       in->name, axis, (long long)window);
    }
    if (!sx_dim_is_constant(extent)) {
        bool padded = attr->low.v[k] != 0 || attr->high.v[k] != 0;
        if (padded || reach >= stride || extent.scale % stride != 0) {
            return SX_FAIL(in->cx, SX_UNIMPLEMENTED,
                           "%s: axis %u: windows of %lld by %lld on extent %s with padding %lld "
                           "are no multiple of a symbol",
                           in->name, axis, (long long)window, (long long)stride,
                           SX_DIM_TEXT(in, extent), (long long)room);
        }
        *count = (sx_dim){extent.scale / stride, extent.symbol};
        return SX_OK;
    }
    room += extent.scale; /* at most three times SX_EXTENT_MAX */
    if (room == 0) {
        *count = sx_dim_of(0);
        return SX_OK;
    }
    if (reach >= room) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: axis %u: the window covers %lld elements, the padded extent is %lld",
                       in->name, axis, (long long)(reach < INT64_MAX ? reach + 1 : reach),
                       (long long)room);
    }
    *count = sx_dim_of((room - 1 - reach) / stride + 1);
    return SX_OK;
}

/* The lists that a sliding window has, one number for each of `count` dimensions. */
static sx_code check_sliding(const sx_infer *in, uint32_t count)
{
    SX_TRY(check_list(in, &in->attr->stride, SX_ATTR_stride, count, 1));
    SX_TRY(check_list(in, &in->attr->low, SX_ATTR_low, count, -SX_EXTENT_MAX));
    SX_TRY(check_list(in, &in->attr->high, SX_ATTR_high, count, -SX_EXTENT_MAX));
    return check_list(in, &in->attr->dilation, SX_ATTR_dilation, count, 1);
}

sx_code sx_infer_reduce_window(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    if (x->rank == 0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 has rank 0, at least 1", in->name);
    }
    SX_TRY(sx_check_reducer(in, x->dtype, false));
    SX_TRY(check_sliding(in, x->rank));
    SX_TRY(check_list(in, &in->attr->window, SX_ATTR_window, x->rank, 1));
    *in->result = *x;
    for (uint32_t i = 0; i < x->rank; i++) {
        SX_TRY(places(in, i, i, in->attr->window.v[i], x->dim[i], &in->result->dim[i]));
    }
    return SX_OK;
}

/* x [n, c, spatial ..] and w [o, c / groups, window ..] */
static sx_code check_operands(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    const sx_type *w = &in->input[1];
    if (w->dtype != x->dtype || x->dtype == SX_BOOL) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: operand 0 is %s, operand 1 is %s; takes two equal, not bool", in->name,
                       sx_dtype_name(x->dtype), sx_dtype_name(w->dtype));
    }
    if (x->rank < 3 || x->rank > 5 || w->rank != x->rank) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: operands of rank %u and %u, takes two equal from 3 to 5", in->name,
                       x->rank, w->rank);
    }
    int64_t groups = in->attr->groups;
    sx_dim channels;
    if (groups < 1 || groups > SX_EXTENT_MAX) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: groups is %lld, from 1 to %lld", in->name,
                       (long long)groups, (long long)SX_EXTENT_MAX);
    }
    if (!sx_dim_multiply(w->dim[1], sx_dim_of(groups), &channels) ||
        !sx_dim_equal(channels, x->dim[1])) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: %lld groups of %s channels in operand 1, operand 0 has %s channels",
                       in->name, (long long)groups, SX_DIM_TEXT(in, w->dim[1]),
                       SX_DIM_TEXT(in, x->dim[1]));
    }
    if (w->dim[0].scale % groups != 0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %s output channels in %lld groups", in->name,
                       SX_DIM_TEXT(in, w->dim[0]), (long long)groups);
    }
    return SX_OK;
}

sx_code sx_infer_convolution(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    const sx_type *w = &in->input[1];
    SX_TRY(check_operands(in));
    SX_TRY(check_sliding(in, x->rank - 2));
    *in->result = *x;
    in->result->dim[1] = w->dim[0];
    for (uint32_t i = 2; i < x->rank; i++) {
        if (!sx_dim_is_constant(w->dim[i])) {
            return SX_FAIL(in->cx, SX_UNIMPLEMENTED, "%s: axis %u: a window of symbolic extent %s",
                           in->name, i, SX_DIM_TEXT(in, w->dim[i]));
        }
        SX_TRY(places(in, i, i - 2, w->dim[i].scale, x->dim[i], &in->result->dim[i]));
    }
    return SX_OK;
}
