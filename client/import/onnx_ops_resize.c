/* Resize and Upsample, one axis after the other: nearest is a gather, linear the weighted sum of two. Indices and
 * weights follow from the formulas of the standard, computed here in f64; the weights are rounded to the type of the
 * computation. A scale that was given as sizes is the exact ratio of the two extents. */
#include <math.h>
#include <string.h>

#include "client/import/onnx_import.h"

typedef enum { NEAREST, LINEAR, CUBIC } resize_mode;
typedef enum {
    HALF_PIXEL,
    PYTORCH_HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    HALF_PIXEL_FOR_NEAREST, /* of opset 11 and 12 */
    ASYMMETRIC,
    ALIGN_CORNERS,
    CROP
} coordinates;
typedef enum { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL } rounding;

typedef struct {
    resize_mode mode;
    coordinates coordinates;
    rounding rounding;
    bool old; /* opset 7 to 10: nearest rounds up where an axis gets shorter */
} rule;

typedef struct {
    uint32_t axis;
    sx_dim from, to;
    double scale, divisor; /* the result is scale / divisor times as long */
    double length;         /* of the result before it was rounded down, if `from` is constant */
} stretch;

/* ---- where elements come from ---- */

/* i / scale. A scale of the file is an f32, 1/3 among them: the nearest f32 of the quotient is whole where the ratio
 * that was meant gives a whole number, and no rounding sees the error of the scale. */
static double unscaled(const rule *r, const stretch *s, double i)
{
    double quotient = i * s->divisor / s->scale;
    return r->mode == NEAREST && s->divisor == 1.0 ? (double)(float)quotient : quotient;
}

static double source_of(const rule *r, const stretch *s, double i)
{
    double n = (double)s->from.scale;
    double half = unscaled(r, s, i + 0.5) - 0.5;
    switch (r->coordinates) {
    case PYTORCH_HALF_PIXEL: return s->length > 1.0 ? half : 0.0;
    case HALF_PIXEL_SYMMETRIC: return n / 2 * (1.0 - (double)s->to.scale / s->length) + half;
    case HALF_PIXEL_FOR_NEAREST: return unscaled(r, s, i + 0.5);
    case ASYMMETRIC: return unscaled(r, s, i);
    case ALIGN_CORNERS: return s->length == 1.0 ? 0.0 : i * (n - 1.0) / (s->length - 1.0);
    case HALF_PIXEL:
    case CROP: break;
    }
    return half;
}

static double rounded(const rule *r, const stretch *s, double x)
{
    rounding by = r->old && s->scale < s->divisor ? CEIL : r->rounding;
    switch (by) {
    case PREFER_FLOOR: return ceil(x - 0.5);
    case PREFER_CEIL: return floor(x + 0.5);
    case CEIL: return ceil(x);
    case FLOOR: break;
    }
    return floor(x);
}

static int64_t inside(const stretch *s, double index)
{
    return (int64_t)fmax(0.0, fmin(index, (double)(s->from.scale - 1)));
}

/* How often each element comes in a row if element i is element i / factor of the input, whatever its extent; or 0. */
static int64_t repeats(const rule *r, const stretch *s)
{
    bool centred = r->coordinates <= HALF_PIXEL_SYMMETRIC &&
                   (r->rounding == PREFER_FLOOR || r->rounding == PREFER_CEIL);
    bool cut = (r->coordinates == ASYMMETRIC || r->coordinates == HALF_PIXEL_FOR_NEAREST) &&
               r->rounding == FLOOR;
    bool whole = s->scale > s->divisor && fmod(s->scale, s->divisor) == 0.0;
    return r->mode == NEAREST && whole && (centred || cut) ? (int64_t)(s->scale / s->divisor) : 0;
}

/* ---- expressions ---- */

/* [.., n, ..] -> [.., n, factor, ..] -> [.., n factor, ..]. */
static sx_node_id repeat_each(sx_ox *im, sx_node_id x, const stretch *s, int64_t factor)
{
    sx_type type = *sx_ox_type(im, x);
    if (type.rank == SX_RANK_MAX) {
        SX_OX_FAIL(im, SX_LIMIT, "input of rank %u, at most %d", type.rank, SX_RANK_MAX - 1);
        return SX_OX_NONE;
    }
    sx_type wide = {.dtype = type.dtype, .rank = type.rank + 1};
    sx_ints dims = {.count = type.rank};
    for (uint32_t k = 0; k < type.rank; k++) {
        dims.v[k] = k <= s->axis ? k : k + 1;
        wide.dim[dims.v[k]] = type.dim[k];
    }
    wide.dim[s->axis + 1] = sx_dim_of(factor);
    type.dim[s->axis] = s->to;
    return sx_ox_reshape(im, sx_ox_broadcast_in(im, x, &dims, &wide), &type);
}

/* Elements of one axis: a slice where they follow each other at equal steps, else a gather. */
static sx_node_id pick(sx_ox *im, sx_node_id x, uint32_t axis, const int64_t *index, int64_t count)
{
    int64_t step = count > 1 ? index[1] - index[0] : 1;
    bool regular = step > 0;
    for (int64_t k = 1; regular && k < count; k++) {
        regular = index[k] - index[k - 1] == step;
    }
    if (regular) {
        return sx_ox_slice_axis(im, x, axis, index[0], index[count - 1] + 1, step);
    }
    sx_type type = {.dtype = SX_I64, .rank = 1, .dim = {sx_dim_of(count)}};
    sx_span data = {(const uint8_t *)index, (size_t)count * sizeof(int64_t)};
    return sx_ox_gather(im, x, sx_ox_add_constant(im, &type, data), axis);
}

/* x times weight[i] along the axis. */
static sx_node_id weighted(sx_ox *im, sx_node_id x, uint32_t axis, const double *weight,
                           int64_t count)
{
    const sx_type type = *sx_ox_type(im, x);
    float *narrow = SX_NEW_ARRAY(im->cx, float, (size_t)count);
    if (im->code != SX_OK || narrow == NULL) {
        im->code = im->code == SX_OK ? im->cx->error.code : im->code;
        return SX_OX_NONE;
    }
    for (int64_t k = 0; k < count; k++) {
        narrow[k] = (float)weight[k];
    }
    bool wide = type.dtype == SX_F64;
    sx_type row = {.dtype = type.dtype, .rank = 1, .dim = {sx_dim_of(count)}};
    sx_span data = {wide ? (const uint8_t *)weight : (const uint8_t *)narrow,
                    (size_t)count * (wide ? sizeof(double) : sizeof(float))};
    sx_ints dims = {.count = 1, .v = {axis}};
    sx_node_id factor = sx_ox_broadcast_in(im, sx_ox_add_constant(im, &row, data), &dims, &type);
    return sx_ox_bin(im, SX_OP_MULTIPLY, x, factor);
}

static sx_node_id interpolate(sx_ox *im, sx_node_id x, const rule *r, const stretch *s)
{
    int64_t count = s->to.scale;
    int64_t *low = SX_NEW_ARRAY(im->cx, int64_t, (size_t)count);
    int64_t *high = SX_NEW_ARRAY(im->cx, int64_t, (size_t)count);
    double *below = SX_NEW_ARRAY(im->cx, double, (size_t)count);
    double *above = SX_NEW_ARRAY(im->cx, double, (size_t)count);
    if (low == NULL || high == NULL || below == NULL || above == NULL) {
        im->code = im->cx->error.code;
        return SX_OX_NONE;
    }
    for (int64_t i = 0; i < count; i++) {
        double at = source_of(r, s, (double)i);
        low[i] = inside(s, r->mode == NEAREST ? rounded(r, s, at) : floor(at));
        high[i] = inside(s, ceil(at));
        /* Halves of one element are that element again, also where it is infinite. */
        above[i] = low[i] == high[i] ? 0.5 : at - floor(at);
        below[i] = 1.0 - above[i];
    }
    sx_node_id a = pick(im, x, s->axis, low, count);
    if (r->mode == NEAREST) {
        return a;
    }
    a = weighted(im, a, s->axis, below, count);
    sx_node_id b = weighted(im, pick(im, x, s->axis, high, count), s->axis, above, count);
    return sx_ox_bin(im, SX_OP_ADD, a, b);
}

static sx_node_id stretch_axis(sx_ox *im, sx_node_id x, const rule *r, const stretch *s)
{
    char text[SX_OX_DIM_TEXT];
    if (im->code != SX_OK ||
        (sx_dim_equal(s->from, s->to) && (s->scale == s->divisor || s->from.scale == 0))) {
        return x;
    }
    if (s->to.scale < 1 || s->from.scale < 1) {
        SX_OX_FAIL(im, SX_INPUT, "axis %u: extent %lld becomes %lld", s->axis,
                   (long long)s->from.scale, (long long)s->to.scale);
        return SX_OX_NONE;
    }
    int64_t factor = repeats(r, s);
    if (factor != 0) {
        return repeat_each(im, x, s, factor);
    }
    if (!sx_dim_is_constant(s->from) || s->to.scale > SX_OX_KNOWN_MAX) {
        SX_OX_FAIL(im, SX_UNIMPLEMENTED,
                   "axis %u becomes %s, a constant extent of at most %d is wanted", s->axis,
                   sx_ox_dim_text(im, s->to, text), SX_OX_KNOWN_MAX);
        return SX_OX_NONE;
    }
    return interpolate(im, x, r, s);
}

/* Types shorter than f32 are interpolated in f32, and rounded once. */
static sx_code resize_all(sx_ox *im, const rule *r, const stretch *list, uint32_t count)
{
    sx_node_id x = sx_ox_in(im, 0);
    sx_dtype dtype = sx_ox_type(im, x)->dtype;
    if (r->mode == LINEAR && sx_dtype_class_of(dtype) != SX_CLASS_FLOAT) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "mode linear of elements that are no floats");
    }
    if (r->mode == LINEAR) {
        x = sx_ox_cast(im, x, dtype == SX_F64 ? SX_F64 : SX_F32);
    }
    for (uint32_t k = 0; k < count; k++) {
        x = stretch_axis(im, x, r, &list[k]);
    }
    return sx_ox_set(im, 0, sx_ox_cast(im, x, dtype));
}

/* ---- what the node says ---- */

static sx_code choose(sx_ox *im, const char *name, const char *const *option, uint32_t count,
                      uint32_t *which)
{
    sx_span text;
    SX_TRY(sx_ox_attr_text(im, name, option[0], &text));
    for (*which = 0; *which < count; ++*which) {
        if (sx_span_is(text, option[*which])) {
            return SX_OK;
        }
    }
    return SX_OX_FAIL(im, SX_INPUT, "%s '%.*s'", name, (int)sx_min_i64((int64_t)text.len, 40),
                      (const char *)text.ptr);
}

static sx_code read_mode(sx_ox *im, resize_mode *mode)
{
    static const char *const name[] = {"nearest", "linear", "cubic"};
    uint32_t which;
    SX_TRY(choose(im, "mode", name, SX_COUNT(name), &which));
    *mode = (resize_mode)which;
    return *mode == CUBIC ? SX_OX_FAIL(im, SX_UNIMPLEMENTED, "mode cubic") : SX_OK;
}

static sx_code want_zero(sx_ox *im, const char *name)
{
    int64_t value;
    SX_TRY(sx_ox_attr_int(im, name, 0, &value));
    return value == 0 ? SX_OK : SX_OX_FAIL(im, SX_UNIMPLEMENTED, "%s %lld", name, (long long)value);
}

static sx_code read_rule(sx_ox *im, rule *r)
{
    static const char *const transform[] = {
        "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "tf_half_pixel_for_nn",
        "asymmetric", "align_corners",      "tf_crop_and_resize"};
    static const char *const nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                          "ceil"};
    static const char *const policy[] = {"stretch", "not_larger", "not_smaller"};
    uint32_t which;
    double unused;
    SX_TRY(read_mode(im, &r->mode));
    SX_TRY(choose(im, "coordinate_transformation_mode", transform, SX_COUNT(transform), &which));
    r->coordinates = (coordinates)which;
    if (r->coordinates == CROP) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "coordinate_transformation_mode %s",
                          transform[which]);
    }
    SX_TRY(choose(im, "nearest_mode", nearest, SX_COUNT(nearest), &which));
    r->rounding = (rounding)which;
    SX_TRY(choose(im, "keep_aspect_ratio_policy", policy, SX_COUNT(policy), &which));
    if (which != 0) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "keep_aspect_ratio_policy %s", policy[which]);
    }
    SX_TRY(want_zero(im, "antialias"));
    SX_TRY(want_zero(im, "exclude_outside"));
    /* Of the modes that are refused. */
    SX_TRY(sx_ox_attr_float(im, "cubic_coeff_a", -0.75, &unused));
    return sx_ox_attr_float(im, "extrapolation_value", 0.0, &unused);
}

/* The axes that scales and sizes are of. */
static sx_code read_axes(sx_ox *im, stretch list[SX_RANK_MAX], uint32_t *count)
{
    const sx_type *type = &sx_ox_input(im, 0)->type;
    int64_t axis[SX_RANK_MAX];
    uint32_t seen = 0;
    SX_TRY(sx_ox_attr_ints(im, "axes", axis, SX_RANK_MAX, count));
    bool all = *count == UINT32_MAX;
    *count = all ? type->rank : *count;
    for (uint32_t k = 0; k < *count; k++) {
        SX_TRY(sx_ox_axis(im, all ? k : axis[k], type->rank, &list[k].axis));
        if ((seen & 1u << list[k].axis) != 0) {
            return SX_OX_FAIL(im, SX_INPUT, "axis %u is listed twice", list[k].axis);
        }
        seen |= 1u << list[k].axis;
        list[k].from = type->dim[list[k].axis];
    }
    return SX_OK;
}

static sx_code want_count(sx_ox *im, const char *what, uint32_t got, uint32_t count)
{
    return got == count ? SX_OK : SX_OX_FAIL(im, SX_INPUT, "%u %s for %u axes", got, what, count);
}

/* The product of extent and scale is rounded to f32 before it is rounded down: 0.7 of 10 is 7. */
static sx_code scale_axis(sx_ox *im, stretch *s, float scale)
{
    char text[SX_OX_DIM_TEXT];
    s->scale = (double)scale;
    s->divisor = 1.0;
    s->length = (double)((float)s->from.scale * scale);
    if (!(s->scale > 0.0) || !(s->length <= (double)SX_EXTENT_MAX)) {
        return SX_OX_FAIL(im, SX_INPUT, "axis %u: scale %g of extent %s", s->axis, s->scale,
                          sx_ox_dim_text(im, s->from, text));
    }
    s->to = s->from;
    if (s->scale == floor(s->scale)) {
        s->length = (double)s->from.scale * s->scale;
        if (sx_ox_times(im, s->from, sx_dim_of((int64_t)s->scale), &s->to)) {
            return SX_OK;
        }
    } else if (sx_dim_is_constant(s->from)) {
        s->to = sx_dim_of((int64_t)s->length);
        return SX_OK;
    }
    return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "axis %u: scale %g of extent %s", s->axis, s->scale,
                      sx_ox_dim_text(im, s->from, text));
}

static sx_code scale_all(sx_ox *im, sx_span data, stretch *list, uint32_t count)
{
    SX_TRY(want_count(im, "scales", (uint32_t)(data.len / sizeof(float)), count));
    for (uint32_t k = 0; k < count; k++) {
        float scale;
        memcpy(&scale, data.ptr + k * sizeof(float), sizeof(float));
        SX_TRY(scale_axis(im, &list[k], scale));
    }
    return SX_OK;
}

static sx_code read_scales(sx_ox *im, uint32_t k, stretch *list, uint32_t count)
{
    const sx_ox_value *value = sx_ox_input(im, k);
    if (value == NULL) {
        return SX_OX_FAIL(im, SX_INPUT, "scales (input %u) is missing", k);
    }
    if (value->type.dtype != SX_F32 || value->type.rank != 1) {
        return SX_OX_FAIL(im, SX_INPUT, "scales are no vector of f32");
    }
    if (!value->has_data) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "scales '%.*s' is not known before the run",
                          (int)value->name.len, (const char *)value->name.ptr);
    }
    return scale_all(im, value->data, list, count);
}

static sx_code read_sizes(sx_ox *im, uint32_t k, stretch *list, uint32_t count)
{
    const sx_dim *size;
    uint32_t got;
    SX_TRY(sx_ox_known(im, k, "sizes", &size, &got));
    SX_TRY(want_count(im, "sizes", got, count));
    for (uint32_t i = 0; i < count; i++) {
        stretch *s = &list[i];
        char from[SX_OX_DIM_TEXT];
        char to[SX_OX_DIM_TEXT];
        if (size[i].scale < 0 || size[i].scale > SX_EXTENT_MAX) {
            return SX_OX_FAIL(im, SX_INPUT, "axis %u: size %lld", s->axis,
                              (long long)size[i].scale);
        }
        if (size[i].symbol != s->from.symbol) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "axis %u: extent %s becomes %s", s->axis,
                              sx_ox_dim_text(im, s->from, from), sx_ox_dim_text(im, size[i], to));
        }
        s->to = size[i];
        s->scale = s->length = (double)size[i].scale;
        s->divisor = (double)s->from.scale;
    }
    return SX_OK;
}

static bool is_given(const sx_ox *im, uint32_t k)
{
    const sx_ox_value *value = sx_ox_input(im, k);
    return value != NULL && !(value->type.rank == 1 && value->type.dim[0].scale == 0);
}

sx_code sx_ox_resize(sx_ox *im)
{
    enum { SCALES = 2, SIZES = 3 }; /* input 1 is the region of the mode that crops */
    rule r = {.old = false};
    stretch list[SX_RANK_MAX];
    uint32_t count;
    SX_TRY(read_rule(im, &r));
    SX_TRY(read_axes(im, list, &count));
    if (is_given(im, SCALES) == is_given(im, SIZES)) {
        return SX_OX_FAIL(im, SX_INPUT, "one of scales and sizes is wanted");
    }
    SX_TRY(is_given(im, SIZES) ? read_sizes(im, SIZES, list, count)
                               : read_scales(im, SCALES, list, count));
    return resize_all(im, &r, list, count);
}

/* Upsample, and Resize of opset 10. arg 0: scales are an attribute; 1: they are input 1. */
sx_code sx_ox_upsample(sx_ox *im)
{
    rule r = {.coordinates = ASYMMETRIC, .rounding = FLOOR, .old = true};
    stretch list[SX_RANK_MAX];
    uint32_t count;
    SX_TRY(read_mode(im, &r.mode));
    SX_TRY(read_axes(im, list, &count));
    if (im->entry->arg == 1) {
        SX_TRY(read_scales(im, 1, list, count));
        return resize_all(im, &r, list, count);
    }
    const sx_onnx_attr *attr = sx_ox_attr(im, "scales");
    if (attr == NULL || attr->type != SX_ONNX_ATTR_FLOATS) {
        return SX_OX_FAIL(im, SX_INPUT, "attribute 'scales' is missing");
    }
    sx_span data = {(const uint8_t *)attr->floats, attr->count * sizeof(float)};
    SX_TRY(scale_all(im, data, list, count));
    return resize_all(im, &r, list, count);
}
