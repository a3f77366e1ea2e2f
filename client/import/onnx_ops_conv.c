#include <string.h>

#include "client/import/onnx_import.h"

/* Convolutions, pools, batch normalisation: x [n, c, spatial ..] with one to three spatial dimensions. */

#define SPATIAL_MAX 3

/* ---- what slides ---- */

typedef struct {
    uint32_t rank; /* spatial dimensions */
    sx_ints kernel, stride, dilation, low, high;
    sx_ints beyond; /* of `high`, what only ceil_mode adds: no padding that is counted */
} window;

/* Attribute `name`, one number for each spatial dimension from 1 on; all 1 if it is absent. */
static sx_code read_list(sx_ox *im, const char *name, uint32_t rank, sx_ints *list)
{
    uint32_t count;
    SX_TRY(sx_ox_attr_ints(im, name, list->v, SPATIAL_MAX, &count));
    bool absent = count == UINT32_MAX;
    if (!absent && count != rank) {
        return SX_OX_FAIL(im, SX_INPUT, "%s: %u numbers for %u dimensions", name, count, rank);
    }
    list->count = rank;
    for (uint32_t d = 0; d < rank; d++) {
        list->v[d] = absent ? 1 : list->v[d];
        if (list->v[d] < 1 || list->v[d] > SX_EXTENT_MAX) {
            return SX_OX_FAIL(im, SX_INPUT, "%s[%u] is %lld, from 1 to %lld", name, d,
                              (long long)list->v[d], (long long)SX_EXTENT_MAX);
        }
    }
    return SX_OK;
}

static sx_code read_pads(sx_ox *im, window *w)
{
    int64_t pad[2 * SPATIAL_MAX];
    uint32_t count;
    SX_TRY(sx_ox_attr_ints(im, "pads", pad, 2 * SPATIAL_MAX, &count));
    w->low = w->high = w->beyond = (sx_ints){.count = w->rank};
    if (count == UINT32_MAX) {
        return SX_OK;
    }
    if (count != 2 * w->rank) {
        return SX_OX_FAIL(im, SX_INPUT, "pads: %u numbers for %u dimensions, two each wanted",
                          count, w->rank);
    }
    for (uint32_t d = 0; d < 2 * w->rank; d++) {
        if (pad[d] < 0 || pad[d] > SX_EXTENT_MAX) {
            return SX_OX_FAIL(im, SX_INPUT, "pads[%u] is %lld, from 0 to %lld", d,
                              (long long)pad[d], (long long)SX_EXTENT_MAX);
        }
        *(d < w->rank ? &w->low.v[d] : &w->high.v[d - w->rank]) = pad[d];
    }
    return SX_OK;
}

/* Elements that the window covers along d. */
static sx_code covered(sx_ox *im, const window *w, uint32_t d, int64_t *elements)
{
    if (!sx_mul_i64(w->kernel.v[d] - 1, w->dilation.v[d], elements) || *elements > SX_EXTENT_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT,
                          "spatial dimension %u: a kernel of %lld by %lld is too long", d,
                          (long long)w->kernel.v[d], (long long)w->dilation.v[d]);
    }
    *elements += 1;
    return SX_OK;
}

static sx_code want_extent(sx_ox *im, sx_dim extent, uint32_t d, const char *why)
{
    char text[SX_OX_DIM_TEXT];
    if (sx_dim_is_constant(extent)) {
        return SX_OK;
    }
    return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "spatial dimension %u of extent %s: %s wants a number",
                      d, sx_ox_dim_text(im, extent, text), why);
}

typedef enum { PAD_NOTSET, PAD_VALID, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_COUNT } auto_pad;

static sx_code read_auto_pad(sx_ox *im, auto_pad *mode)
{
    static const char *const name[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    sx_span text;
    uint32_t k = 0;
    SX_TRY(sx_ox_attr_text(im, "auto_pad", "NOTSET", &text));
    while (k < PAD_COUNT && !sx_span_is(text, name[k])) {
        k++;
    }
    *mode = (auto_pad)k;
    return k < PAD_COUNT
               ? SX_OK
               : SX_OX_FAIL(im, SX_INPUT, "auto_pad '%.*s'", (int)sx_min_i64((int64_t)text.len, 40),
                            (const char *)text.ptr);
}

/* Padding so that there is one place for each `stride` elements begun. */
static sx_code pad_same(sx_ox *im, const sx_type *x, bool upper, window *w)
{
    for (uint32_t d = 0; d < w->rank; d++) {
        int64_t reach;
        sx_dim extent = x->dim[2 + d];
        SX_TRY(covered(im, w, d, &reach));
        SX_TRY(want_extent(im, extent, d, "auto_pad"));
        int64_t places = sx_ceil_div_i64(extent.scale, w->stride.v[d]);
        int64_t total = (places - 1) * w->stride.v[d] + reach - extent.scale;
        total = sx_max_i64(0, total);
        w->low.v[d] = upper ? total / 2 : total - total / 2;
        w->high.v[d] = total - w->low.v[d];
    }
    return SX_OK;
}

/* ceil_mode: a last place that the elements fill in part, unless it would begin behind them. */
static sx_code pad_beyond(sx_ox *im, const sx_type *x, window *w)
{
    for (uint32_t d = 0; d < w->rank; d++) {
        int64_t reach;
        sx_dim extent = x->dim[2 + d];
        int64_t stride = w->stride.v[d];
        SX_TRY(covered(im, w, d, &reach));
        SX_TRY(want_extent(im, extent, d, "ceil_mode"));
        int64_t room = extent.scale + w->low.v[d] + w->high.v[d];
        if (room < reach) {
            continue; /* the type says so */
        }
        int64_t places = sx_ceil_div_i64(room - reach, stride) + 1;
        if ((places - 1) * stride >= extent.scale + w->low.v[d]) {
            places--;
        }
        w->beyond.v[d] = sx_max_i64(0, (places - 1) * stride + reach - room);
        w->high.v[d] += w->beyond.v[d];
    }
    return SX_OK;
}

/* `kernel` NULL: attribute kernel_shape; else what it has to be if it is there. */
static sx_code read_window(sx_ox *im, const sx_type *x, const int64_t *kernel, window *w)
{
    auto_pad mode;
    bool given = sx_ox_attr(im, "kernel_shape") != NULL;
    if (x->rank < 3 || x->rank > 2 + SPATIAL_MAX) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "input of rank %u, from 3 to %d", x->rank,
                          2 + SPATIAL_MAX);
    }
    w->rank = x->rank - 2;
    if (!given && kernel == NULL) {
        return SX_OX_FAIL(im, SX_INPUT, "attribute kernel_shape is missing");
    }
    SX_TRY(read_list(im, "kernel_shape", w->rank, &w->kernel));
    for (uint32_t d = 0; d < w->rank && kernel != NULL; d++) {
        if (given && w->kernel.v[d] != kernel[d]) {
            return SX_OX_FAIL(im, SX_INPUT, "kernel_shape[%u] is %lld, the weights have %lld", d,
                              (long long)w->kernel.v[d], (long long)kernel[d]);
        }
        w->kernel.v[d] = kernel[d];
    }
    SX_TRY(read_list(im, "strides", w->rank, &w->stride));
    SX_TRY(read_list(im, "dilations", w->rank, &w->dilation));
    SX_TRY(read_pads(im, w));
    SX_TRY(read_auto_pad(im, &mode));
    if (mode == PAD_VALID) {
        w->low = w->high = (sx_ints){.count = w->rank};
    }
    bool same = mode == PAD_SAME_UPPER || mode == PAD_SAME_LOWER;
    return same ? pad_same(im, x, mode == PAD_SAME_UPPER, w) : SX_OK;
}

/* ---- Conv, ConvInteger, ConvTranspose ---- */

/* The spatial extents of the weights: numbers. */
static sx_code kernel_of(sx_ox *im, const sx_type *w, uint32_t rank, int64_t kernel[SPATIAL_MAX])
{
    if (w->rank != rank || rank < 3 || rank > 2 + SPATIAL_MAX) {
        return SX_OX_FAIL(im, w->rank == rank ? SX_UNIMPLEMENTED : SX_INPUT,
                          "weights of rank %u for an input of rank %u, from 3 to %d", w->rank, rank,
                          2 + SPATIAL_MAX);
    }
    for (uint32_t d = 0; d + 2 < rank; d++) {
        SX_TRY(want_extent(im, w->dim[2 + d], d, "a kernel"));
        kernel[d] = w->dim[2 + d].scale;
    }
    return SX_OK;
}

static sx_node_id convolve(sx_ox *im, sx_node_id x, sx_node_id weights, const window *w,
                           int64_t groups)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_CONVOLUTION)->attrs,
                    .stride = w->stride,
                    .low = w->low,
                    .high = w->high,
                    .dilation = w->dilation,
                    .groups = groups};
    sx_node_id input[2] = {x, weights};
    return sx_ox_add(im, SX_OP_CONVOLUTION, &attr, input, 2);
}

/* Plus input 2, one number for each channel, if it is there. */
static sx_node_id plus_bias(sx_ox *im, sx_node_id y)
{
    if (sx_ox_input(im, 2) == NULL || im->code != SX_OK) {
        return y;
    }
    sx_node_id bias = sx_ox_in(im, 2);
    sx_ints dims = {.count = 1, .v = {1}};
    if (im->code == SX_OK && sx_ox_type(im, bias)->rank != 1) {
        SX_OX_FAIL(im, SX_INPUT, "bias of rank %u, 1 wanted", sx_ox_type(im, bias)->rank);
        return SX_OX_NONE;
    }
    return sx_ox_bin(im, SX_OP_ADD, y, sx_ox_broadcast_in(im, bias, &dims, sx_ox_type(im, y)));
}

sx_code sx_ox_conv(sx_ox *im)
{
    window w = {0};
    int64_t kernel[SPATIAL_MAX];
    int64_t groups;
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id weights = sx_ox_in(im, 1);
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(kernel_of(im, sx_ox_type(im, weights), type.rank, kernel));
    SX_TRY(read_window(im, &type, kernel, &w));
    SX_TRY(sx_ox_attr_int(im, "group", 1, &groups));
    return sx_ox_set(im, 0, plus_bias(im, convolve(im, x, weights, &w, groups)));
}

/* x less its zero point, as i32. */
static sx_node_id centred(sx_ox *im, uint32_t k, uint32_t zero_point)
{
    sx_node_id x = sx_ox_cast(im, sx_ox_in(im, k), SX_I32);
    if (sx_ox_input(im, zero_point) == NULL || im->code != SX_OK) {
        return x;
    }
    sx_node_id zero = sx_ox_cast(im, sx_ox_in(im, zero_point), SX_I32);
    if (im->code == SX_OK && sx_ox_type(im, zero)->rank == 1 && k == 1 &&
        !sx_dim_equal(sx_ox_type(im, zero)->dim[0], sx_dim_of(1))) {
        sx_ints dims = {.count = 1, .v = {0}};
        zero = sx_ox_broadcast_in(im, zero, &dims, sx_ox_type(im, x));
    }
    return sx_ox_bin(im, SX_OP_SUBTRACT, x, zero);
}

sx_code sx_ox_conv_integer(sx_ox *im)
{
    window w = {0};
    int64_t kernel[SPATIAL_MAX];
    int64_t groups;
    sx_node_id x = centred(im, 0, 2);
    sx_node_id weights = centred(im, 1, 3);
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(kernel_of(im, sx_ox_type(im, weights), type.rank, kernel));
    SX_TRY(read_window(im, &type, kernel, &w));
    SX_TRY(sx_ox_attr_int(im, "group", 1, &groups));
    return sx_ox_set(im, 0, convolve(im, x, weights, &w, groups));
}

/* Weights [c, o / groups, ..] as [o, c / groups, ..], reversed along the window. */
static sx_node_id turned(sx_ox *im, sx_node_id weights, int64_t groups)
{
    sx_type type = *sx_ox_type(im, weights);
    if (groups < 1 || !sx_dim_is_constant(type.dim[0]) || !sx_dim_is_constant(type.dim[1]) ||
        type.dim[0].scale % groups != 0 || type.dim[1].scale > SX_EXTENT_MAX / groups) {
        SX_OX_FAIL(im, SX_INPUT, "group is %lld for %lld channels", (long long)groups,
                   (long long)type.dim[0].scale);
        return SX_OX_NONE;
    }
    int64_t inputs = type.dim[0].scale / groups;
    int64_t outputs = type.dim[1].scale;
    sx_type split = {.dtype = type.dtype, .rank = type.rank + 1};
    sx_ints perm = {.count = split.rank, .v = {0, 2, 1}};
    split.dim[0] = sx_dim_of(groups);
    split.dim[1] = sx_dim_of(inputs);
    split.dim[2] = sx_dim_of(outputs);
    for (uint32_t d = 2; d < type.rank; d++) {
        split.dim[d + 1] = type.dim[d];
        perm.v[d + 1] = d + 1;
    }
    weights = sx_ox_transpose(im, sx_ox_reshape(im, weights, &split), &perm);
    type.dim[0] = sx_dim_of(groups * outputs);
    type.dim[1] = sx_dim_of(inputs);
    weights = sx_ox_reshape(im, weights, &type);
    sx_attr attr = {.present = SX_A(dims), .dims = sx_ox_dims_from(2, type.rank)};
    return sx_ox_add(im, SX_OP_REVERSE, &attr, &weights, 1);
}

/* How far the result reaches over the elements it keeps: low and high become what is cut off. */
static sx_code cut_transpose(sx_ox *im, const sx_type *x, auto_pad mode, window *w, sx_ints *added)
{
    int64_t shape[SPATIAL_MAX];
    uint32_t count;
    SX_TRY(sx_ox_attr_ints(im, "output_padding", added->v, SPATIAL_MAX, &count));
    if (count != UINT32_MAX && count != w->rank) {
        return SX_OX_FAIL(im, SX_INPUT, "output_padding: %u numbers for %u dimensions", count,
                          w->rank);
    }
    for (uint32_t d = 0; d < w->rank; d++) {
        added->v[d] = count == UINT32_MAX ? 0 : added->v[d];
        if (added->v[d] < 0 || added->v[d] > SX_EXTENT_MAX) {
            return SX_OX_FAIL(im, SX_INPUT, "output_padding[%u] is %lld, at least 0", d,
                              (long long)added->v[d]);
        }
    }
    SX_TRY(sx_ox_attr_ints(im, "output_shape", shape, SPATIAL_MAX, &count));
    bool same = mode == PAD_SAME_UPPER || mode == PAD_SAME_LOWER;
    if (count == UINT32_MAX && !same) {
        return SX_OK;
    }
    for (uint32_t d = 0; d < w->rank; d++) {
        int64_t reach;
        SX_TRY(covered(im, w, d, &reach));
        int64_t extent = x->dim[2 + d].scale;
        int64_t whole = (extent - 1) * w->stride.v[d] + reach + added->v[d];
        int64_t wanted = count != UINT32_MAX && d < count ? shape[d] : extent * w->stride.v[d];
        int64_t total = sx_max_i64(0, whole - wanted);
        if (wanted < 1 || wanted > whole) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "output_shape[%u] is %lld, from 1 to %lld", d,
                              (long long)wanted, (long long)whole);
        }
        w->low.v[d] = mode == PAD_SAME_UPPER ? total / 2 : total - total / 2;
        w->high.v[d] = total - w->low.v[d];
    }
    return SX_OK;
}

/* A convolution of x with stride - 1 zeros between its elements by the reversed weights. */
sx_code sx_ox_conv_transpose(sx_ox *im)
{
    window w = {0};
    int64_t kernel[SPATIAL_MAX];
    int64_t groups;
    auto_pad mode;
    sx_ints added = {0};
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id weights = sx_ox_in(im, 1);
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(kernel_of(im, sx_ox_type(im, weights), type.rank, kernel));
    for (uint32_t d = 2; d < type.rank; d++) {
        SX_TRY(want_extent(im, type.dim[d], d - 2, "a transposed convolution"));
    }
    SX_TRY(read_auto_pad(im, &mode));
    SX_TRY(read_window(im, &type, kernel, &w));
    SX_TRY(cut_transpose(im, &type, mode, &w, &added));
    SX_TRY(sx_ox_attr_int(im, "group", 1, &groups));
    sx_attr pad = {.present = sx_op_info_of(SX_OP_PAD)->attrs};
    pad.low.count = pad.high.count = pad.interior.count = type.rank;
    for (uint32_t d = 0; d < w.rank; d++) {
        int64_t reach;
        SX_TRY(covered(im, &w, d, &reach));
        pad.low.v[2 + d] = reach - 1 - w.low.v[d]; /* negative: it cuts more than the kernel */
        pad.high.v[2 + d] = reach - 1 - w.high.v[d] + added.v[d];
        pad.interior.v[2 + d] = w.stride.v[d] - 1;
        w.stride.v[d] = 1;
        w.low.v[d] = w.high.v[d] = 0;
    }
    sx_type scalar = {.dtype = type.dtype};
    sx_node_id input[2] = {x, sx_ox_splat(im, &scalar, 0.0)};
    x = sx_ox_add(im, SX_OP_PAD, &pad, input, 2);
    return sx_ox_set(im, 0,
                     plus_bias(im, convolve(im, x, turned(im, weights, groups), &w, groups)));
}

/* ---- pools ---- */

/* Spatial lists with a 1 or 0 for batch and channels in front. */
static sx_ints whole_list(const sx_ints *spatial, int64_t front)
{
    sx_ints list = {.count = 2 + spatial->count, .v = {front, front}};
    memcpy(&list.v[2], spatial->v, spatial->count * sizeof(int64_t));
    return list;
}

static sx_node_id slide(sx_ox *im, sx_node_id x, sx_reducer reducer, const window *w, bool spatial)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_REDUCE_WINDOW)->attrs, .reducer = reducer};
    attr.window = spatial ? w->kernel : whole_list(&w->kernel, 1);
    attr.stride = spatial ? w->stride : whole_list(&w->stride, 1);
    attr.dilation = spatial ? w->dilation : whole_list(&w->dilation, 1);
    attr.low = spatial ? w->low : whole_list(&w->low, 0);
    attr.high = spatial ? w->high : whole_list(&w->high, 0);
    return sx_ox_add(im, SX_OP_REDUCE_WINDOW, &attr, &x, 1);
}

static sx_code read_pool(sx_ox *im, const sx_type *x, window *w)
{
    int64_t ceil_mode;
    SX_TRY(sx_ox_attr_int(im, "ceil_mode", 0, &ceil_mode));
    SX_TRY(read_window(im, x, NULL, w));
    return ceil_mode != 0 ? pad_beyond(im, x, w) : SX_OK;
}

sx_code sx_ox_max_pool(sx_ox *im)
{
    window w = {0};
    (void)sx_ox_attr(im, "storage_order"); /* of the indices */
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    if (sx_ox_wants(im, 1)) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "output 1, the indices of the maxima");
    }
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(read_pool(im, &type, &w));
    return sx_ox_set(im, 0, slide(im, x, SX_MAX, &w, false));
}

/* How many elements each place counts, repeated to the shape of the sums: the window slid over ones. */
static sx_node_id counts(sx_ox *im, const sx_type *x, const sx_type *sums, const window *w,
                         bool with_padding)
{
    sx_type ones = {.dtype = x->dtype, .rank = w->rank};
    window over = *w;
    for (uint32_t d = 0; d < w->rank; d++) {
        ones.dim[d] = x->dim[2 + d];
        if (with_padding) {
            ones.dim[d].scale += w->low.v[d] + w->high.v[d] - w->beyond.v[d];
            over.low.v[d] = 0;
            over.high.v[d] = w->beyond.v[d];
        }
    }
    sx_node_id count = slide(im, sx_ox_splat(im, &ones, 1.0), SX_SUM, &over, true);
    sx_ints dims = sx_ox_dims_from(2, sums->rank);
    return sx_ox_broadcast_in(im, count, &dims, sums);
}

sx_code sx_ox_average_pool(sx_ox *im)
{
    window w = {0};
    int64_t include;
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(sx_ox_attr_int(im, "count_include_pad", 0, &include));
    SX_TRY(read_pool(im, &type, &w));
    sx_node_id sum = slide(im, x, SX_SUM, &w, false);
    SX_TRY(im->code);
    bool uneven = false;
    double elements = 1;
    for (uint32_t d = 0; d < w.rank; d++) {
        bool padded = w.low.v[d] + w.high.v[d] > 0;
        uneven = uneven || (include != 0 ? w.beyond.v[d] > 0 : padded);
        elements *= (double)w.kernel.v[d];
    }
    if (!uneven) {
        return sx_ox_set(im, 0, sx_ox_with(im, SX_OP_DIVIDE, sum, elements));
    }
    sx_type shape = *sx_ox_type(im, sum);
    return sx_ox_set(im, 0,
                     sx_ox_bin(im, SX_OP_DIVIDE, sum, counts(im, &type, &shape, &w, include != 0)));
}

/* ---- BatchNormalization ---- */

/* arg 1: attribute spatial (opset 7); 2: also is_test (opset 6). */
sx_code sx_ox_batch_norm(sx_ox *im)
{
    double epsilon;
    int64_t training;
    int64_t spatial = 1;
    int64_t is_test = 1;
    if (im->entry->arg > 0) {
        SX_TRY(sx_ox_attr_int(im, "spatial", 1, &spatial));
    }
    if (im->entry->arg > 1) {
        SX_TRY(sx_ox_attr_int(im, "is_test", 0, &is_test));
    }
    SX_TRY(sx_ox_attr_float(im, "epsilon", 1e-5, &epsilon));
    SX_TRY(sx_ox_attr_int(im, "training_mode", 0, &training));
    (void)sx_ox_attr(im, "momentum"); /* of training */
    if (training != 0 || is_test == 0 || spatial == 0) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, spatial == 0 ? "spatial is 0" : "training mode");
    }
    sx_node_id input[5];
    for (uint32_t k = 0; k < 5; k++) {
        input[k] = sx_ox_in(im, k);
    }
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, input[0]);
    if (type.rank < 2) {
        return SX_OX_FAIL(im, SX_INPUT, "input of rank %u, at least 2", type.rank);
    }
    /* computed in the widest of the element types */
    sx_dtype wide = type.dtype;
    for (uint32_t k = 1; k < 5; k++) {
        sx_dtype dtype = sx_ox_type(im, input[k])->dtype;
        wide = sx_dtype_bytes(dtype) > sx_dtype_bytes(wide) ? dtype : wide;
    }
    for (uint32_t k = 0; k < 5; k++) {
        input[k] = sx_ox_cast(im, input[k], wide);
    }
    sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = 1, .eps = epsilon};
    sx_node_id out = sx_ox_add(im, SX_OP_BATCH_NORM, &attr, input, 5);
    return sx_ox_set(im, 0, sx_ox_cast(im, out, type.dtype));
}
