#include <math.h>
#include <string.h>

#include "client/import/onnx_import.h"

/* Element by element. Formulas follow the operator specification; where it leaves the order of roundings open,
 * the one with the smaller error is taken. */

static sx_node_id mul(sx_ox *im, sx_node_id a, sx_node_id b)
{
    return sx_ox_bin(im, SX_OP_MULTIPLY, a, b);
}

static sx_node_id zero_like(sx_ox *im, sx_node_id a)
{
    return sx_ox_splat(im, sx_ox_type(im, a), 0.0);
}

/* max(low, min(high, x)); NaN stays NaN because maximum and minimum give their second operand then. */
static sx_node_id clamp(sx_ox *im, sx_node_id x, double low, double high)
{
    return sx_ox_from(im, SX_OP_MAXIMUM, low, sx_ox_from(im, SX_OP_MINIMUM, high, x));
}

/* Neg and Abs of known integers. */
static sx_code fold_unary(sx_ox *im, sx_op op, bool *done)
{
    const sx_ox_value *value = sx_ox_input(im, 0);
    *done = false;
    if ((op != SX_OP_NEGATE && op != SX_OP_ABS) || !sx_ox_is_known(value) ||
        value->type.dtype != SX_I64) {
        return SX_OK;
    }
    sx_dim element[SX_OX_KNOWN_MAX];
    for (uint32_t k = 0; k < value->known_count; k++) {
        element[k] = value->known[k];
        bool flips = op == SX_OP_NEGATE || element[k].scale < 0;
        if (flips && (!sx_dim_is_constant(element[k]) || element[k].scale == INT64_MIN)) {
            return SX_OK;
        }
        element[k].scale = flips ? -element[k].scale : element[k].scale;
    }
    *done = true;
    return sx_ox_set_known(im, 0, &value->type, element, value->known_count);
}

sx_code sx_ox_unary(sx_ox *im)
{
    bool done;
    SX_TRY(fold_unary(im, (sx_op)im->entry->arg, &done));
    if (done) {
        return SX_OK;
    }
    return sx_ox_set(im, 0, sx_ox_un(im, (sx_op)im->entry->arg, sx_ox_in(im, 0)));
}

sx_code sx_ox_binary(sx_ox *im)
{
    bool done;
    SX_TRY(sx_ox_fold_binary(im, (sx_op)im->entry->arg, &done));
    if (done) {
        return SX_OK;
    }
    sx_node_id a = sx_ox_in(im, 0);
    return sx_ox_set(im, 0, sx_ox_bin(im, (sx_op)im->entry->arg, a, sx_ox_in(im, 1)));
}

/* Of numbers without a sign; by more places than they have bits: all bits are gone. */
sx_code sx_ox_bit_shift(sx_ox *im)
{
    sx_span direction;
    SX_TRY(sx_ox_attr_text(im, "direction", "", &direction));
    bool left = sx_span_is(direction, "LEFT");
    if (!left && !sx_span_is(direction, "RIGHT")) {
        return SX_OX_FAIL(im, SX_INPUT, "direction is neither LEFT nor RIGHT");
    }
    sx_node_id a = sx_ox_in(im, 0);
    SX_TRY(im->code);
    if (sx_ox_type(im, a)->dtype != SX_U8) {
        return SX_OX_FAIL(im, SX_INPUT, "input 0 is %s, not u8",
                          sx_dtype_name(sx_ox_type(im, a)->dtype));
    }
    sx_op op = left ? SX_OP_SHIFT_LEFT : SX_OP_SHIFT_RIGHT_LOGICAL;
    return sx_ox_set(im, 0, sx_ox_bin(im, op, a, sx_ox_in(im, 1)));
}

sx_code sx_ox_variadic(sx_ox *im)
{
    bool done = false;
    if (im->input_count == 2) {
        SX_TRY(sx_ox_fold_binary(im, (sx_op)im->entry->arg, &done));
    }
    if (done) {
        return SX_OK;
    }
    sx_node_id out = sx_ox_in(im, 0);
    for (uint32_t k = 1; k < im->input_count; k++) {
        if (im->input[k] == NULL) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u is left out", k);
        }
        out = sx_ox_bin(im, (sx_op)im->entry->arg, out, sx_ox_in(im, k));
    }
    return sx_ox_set(im, 0, out);
}

sx_code sx_ox_mean_of_inputs(sx_ox *im)
{
    sx_node_id out = sx_ox_in(im, 0);
    for (uint32_t k = 1; k < im->input_count; k++) {
        if (im->input[k] == NULL) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u is left out", k);
        }
        out = sx_ox_bin(im, SX_OP_ADD, out, sx_ox_in(im, k));
    }
    return sx_ox_set(im, 0, sx_ox_with(im, SX_OP_DIVIDE, out, im->input_count));
}

sx_code sx_ox_compare(sx_ox *im)
{
    bool done;
    sx_direction direction = (sx_direction)im->entry->arg;
    SX_TRY(sx_ox_fold_compare(im, direction, &done));
    if (done) {
        return SX_OK;
    }
    sx_node_id a = sx_ox_in(im, 0);
    sx_node_id b = sx_ox_in(im, 1);
    if (direction == SX_EQ && sx_ox_type(im, a)->dtype == SX_BOOL) {
        return sx_ox_set(im, 0, sx_ox_un(im, SX_OP_NOT, sx_ox_bin(im, SX_OP_XOR, a, b)));
    }
    return sx_ox_set(im, 0, sx_ox_cmp(im, direction, a, b));
}

sx_code sx_ox_where(sx_ox *im)
{
    bool done;
    SX_TRY(sx_ox_fold_select(im, &done));
    if (done) {
        return SX_OK;
    }
    sx_node_id p = sx_ox_in(im, 0);
    sx_node_id a = sx_ox_in(im, 1);
    return sx_ox_set(im, 0, sx_ox_select(im, p, a, sx_ox_in(im, 2)));
}

/* ---- casts ---- */

static bool known_fits(const sx_ox_value *value, sx_dtype dtype)
{
    for (uint32_t k = 0; k < value->known_count; k++) {
        sx_dim e = value->known[k];
        bool narrow = sx_dim_is_constant(e) && (e.scale < INT32_MIN || e.scale > INT32_MAX);
        if (narrow && dtype == SX_I32) {
            return false;
        }
    }
    return dtype == SX_I64 || dtype == SX_I32;
}

#define EXACT_MAX (INT64_C(1) << 24) /* whole numbers up to this are floats */

/* Are all elements whole numbers that f32 and f64 hold as they are? */
static bool converts_exactly(const sx_ox_value *value, sx_dtype dtype)
{
    bool exact = dtype == SX_F32 || dtype == SX_F64;
    for (uint32_t k = 0; exact && k < value->known_count; k++) {
        sx_dim e = value->known[k];
        exact = sx_dim_is_constant(e) && e.scale >= -EXACT_MAX && e.scale <= EXACT_MAX;
    }
    return exact && value->known_count > 0;
}

/* Known integers as a constant of f32 or f64. */
static sx_node_id float_constant(sx_ox *im, const sx_ox_value *value, sx_dtype dtype)
{
    SX_ASSERT(dtype == SX_F32 || dtype == SX_F64);
    uint32_t size = sx_dtype_bytes(dtype);
    sx_type type = sx_ox_type_with(&value->type, dtype);
    uint8_t *bytes = sx_alloc_array(im->cx, value->known_count, size);
    if (bytes == NULL) {
        im->code = im->cx->error.code;
        return SX_OX_NONE;
    }
    for (uint32_t k = 0; k < value->known_count; k++) {
        double wide = (double)value->known[k].scale;
        float narrow = (float)wide;
        memcpy(bytes + (size_t)k * size, dtype == SX_F64 ? (void *)&wide : (void *)&narrow, size);
    }
    return sx_ox_add_constant(im, &type, (sx_span){bytes, (size_t)value->known_count * size});
}

static sx_code cast_to(sx_ox *im, sx_dtype dtype)
{
    const sx_ox_value *value = sx_ox_input(im, 0);
    (void)sx_ox_attr(im, "saturate"); /* of float8 results, which are refused */
    (void)sx_ox_attr(im, "round_mode");
    if (dtype == SX_F8E4M3 || dtype == SX_F8E5M2) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "conversion to %s", sx_dtype_name(dtype));
    }
    if (sx_ox_is_known(value) && known_fits(value, dtype)) {
        sx_type type = sx_ox_type_with(&value->type, dtype);
        return sx_ox_set_known(im, 0, &type, value->known, value->known_count);
    }
    if (sx_ox_is_known(value) && converts_exactly(value, dtype)) {
        return sx_ox_set(im, 0, float_constant(im, value, dtype));
    }
    return sx_ox_set(im, 0, sx_ox_cast(im, sx_ox_in(im, 0), dtype));
}

sx_code sx_ox_cast_op(sx_ox *im)
{
    int64_t to;
    sx_dtype dtype;
    SX_TRY(sx_ox_attr_int(im, "to", 0, &to));
    SX_TRY(sx_ox_dtype(im, to, &dtype));
    return cast_to(im, dtype);
}

sx_code sx_ox_cast_like(sx_ox *im)
{
    return cast_to(im, sx_ox_input(im, 1)->type.dtype);
}

/* ---- arithmetic with cases ---- */

/* Constant value of input k where it is one number for all elements. */
static bool constant_input(sx_ox *im, uint32_t k, double *number)
{
    const sx_ox_value *value = sx_ox_input(im, k);
    if (sx_ox_is_known(value) && value->known_count == 1 && sx_dim_is_constant(value->known[0])) {
        *number = (double)value->known[0].scale;
        return true;
    }
    if (!value->has_data || value->is_weight || value->data.len != sizeof(float) ||
        value->type.dtype != SX_F32) {
        return false;
    }
    float f;
    memcpy(&f, value->data.ptr, sizeof(f));
    *number = (double)f;
    return true;
}

sx_code sx_ox_pow(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    double exponent;
    bool constant = constant_input(im, 1, &exponent) &&
                    sx_ox_input(im, 1)->type.rank <= sx_ox_type(im, x)->rank;
    if (constant && exponent == 2.0) { /* the same bits: x * x is the rounded square */
        return sx_ox_set(im, 0, mul(im, x, x));
    }
    sx_node_id y = sx_ox_in(im, 1);
    sx_dtype base = sx_ox_type(im, x)->dtype;
    sx_dtype power = sx_ox_type(im, y)->dtype;
    bool widen =
        sx_dtype_class_of(base) == SX_CLASS_INT && sx_dtype_class_of(power) == SX_CLASS_FLOAT;
    sx_dtype dtype = widen ? SX_F64 : base;
    y = sx_ox_cast(im, y, dtype);
    x = sx_ox_cast(im, x, dtype);
    sx_node_id out = sx_ox_bin(im, SX_OP_POWER, x, y);
    return sx_ox_set(im, 0, sx_ox_cast(im, out, base));
}

/* arg 0: floats take the sign of the dividend only; 1: also that of the divisor (opset 28). */
sx_code sx_ox_mod(sx_ox *im)
{
    int64_t fmod_flag;
    bool done;
    SX_TRY(sx_ox_attr_int(im, "fmod", 0, &fmod_flag));
    SX_TRY(sx_ox_fold_binary(im, SX_OP_REMAINDER, &done));
    if (done) {
        return SX_OK;
    }
    sx_node_id a = sx_ox_in(im, 0);
    sx_node_id b = sx_ox_in(im, 1);
    bool is_float = sx_dtype_class_of(sx_ox_type(im, a)->dtype) == SX_CLASS_FLOAT;
    if (is_float && fmod_flag == 0 && im->entry->arg == 0) {
        return SX_OX_FAIL(im, SX_INPUT, "fmod is 0, 1 is wanted for floats at this opset");
    }
    sx_node_id rest = sx_ox_bin(im, SX_OP_REMAINDER, a, b);
    if (fmod_flag != 0 || im->code != SX_OK) {
        return sx_ox_set(im, 0, rest);
    }
    /* the sign of the divisor */
    b = sx_ox_broadcast(im, b, sx_ox_type(im, rest));
    sx_node_id by_negative = sx_ox_cmp_with(im, SX_LT, b, 0.0);
    sx_node_id rest_negative = sx_ox_cmp_with(im, SX_LT, rest, 0.0);
    sx_node_id unlike = sx_ox_bin(im, SX_OP_XOR, rest_negative, by_negative);
    sx_node_id wrong = sx_ox_bin(im, SX_OP_AND, sx_ox_cmp_with(im, SX_NE, rest, 0.0), unlike);
    return sx_ox_set(im, 0, sx_ox_select(im, wrong, sx_ox_bin(im, SX_OP_ADD, rest, b), rest));
}

sx_code sx_ox_clip_inputs(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    if (sx_ox_input(im, 1) != NULL) {
        x = sx_ox_bin(im, SX_OP_MAXIMUM, sx_ox_in(im, 1), x);
    }
    if (sx_ox_input(im, 2) != NULL) {
        x = sx_ox_bin(im, SX_OP_MINIMUM, sx_ox_in(im, 2), x);
    }
    return sx_ox_set(im, 0, x);
}

sx_code sx_ox_clip_attrs(sx_ox *im)
{
    double low;
    double high;
    SX_TRY(sx_ox_attr_float(im, "min", -(double)INFINITY, &low));
    SX_TRY(sx_ox_attr_float(im, "max", (double)INFINITY, &high));
    sx_node_id x = sx_ox_in(im, 0);
    x = low == -(double)INFINITY ? x : sx_ox_from(im, SX_OP_MAXIMUM, low, x);
    x = high == (double)INFINITY ? x : sx_ox_from(im, SX_OP_MINIMUM, high, x);
    return sx_ox_set(im, 0, x);
}

sx_code sx_ox_is_nan(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    return sx_ox_set(im, 0, sx_ox_cmp(im, SX_NE, x, x));
}

sx_code sx_ox_is_inf(sx_ox *im)
{
    int64_t negative;
    int64_t positive;
    SX_TRY(sx_ox_attr_int(im, "detect_negative", 1, &negative));
    SX_TRY(sx_ox_attr_int(im, "detect_positive", 1, &positive));
    sx_node_id x = sx_ox_in(im, 0);
    if (negative == 0 && positive == 0) {
        sx_type type = sx_ox_type_with(sx_ox_type(im, x), SX_BOOL);
        return sx_ox_set(im, 0, sx_ox_splat(im, &type, 0.0));
    }
    if (negative != 0 && positive != 0) {
        x = sx_ox_un(im, SX_OP_ABS, x);
    }
    double wanted = positive != 0 ? (double)INFINITY : -(double)INFINITY;
    return sx_ox_set(im, 0, sx_ox_cmp_with(im, SX_EQ, x, wanted));
}

sx_code sx_ox_reciprocal(sx_ox *im)
{
    return sx_ox_set(im, 0, sx_ox_from(im, SX_OP_DIVIDE, 1.0, sx_ox_in(im, 0)));
}

/* ---- hyperbolic and their inverses ---- */

static sx_node_id cosh_of(sx_ox *im, sx_node_id x)
{
    sx_node_id e = sx_ox_un(im, SX_OP_EXP, x);
    sx_node_id f = sx_ox_un(im, SX_OP_EXP, sx_ox_un(im, SX_OP_NEGATE, x));
    return sx_ox_with(im, SX_OP_MULTIPLY, sx_ox_bin(im, SX_OP_ADD, e, f), 0.5);
}

sx_code sx_ox_cosh(sx_ox *im)
{
    return sx_ox_set(im, 0, cosh_of(im, sx_ox_in(im, 0)));
}

sx_code sx_ox_sinh(sx_ox *im)
{
    /* tanh(x) cosh(x): no cancellation near 0 */
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id cosh_x = cosh_of(im, x);
    return sx_ox_set(im, 0, mul(im, sx_ox_un(im, SX_OP_TANH, x), cosh_x));
}

sx_code sx_ox_tan(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id cosine = sx_ox_un(im, SX_OP_COS, x);
    sx_node_id sine = sx_ox_un(im, SX_OP_SIN, x);
    return sx_ox_set(im, 0, sx_ox_bin(im, SX_OP_DIVIDE, sine, cosine));
}

sx_code sx_ox_asinh(sx_ox *im)
{
    /* sign(x) log1p(|x| + x^2 / (1 + sqrt(1 + x^2))) */
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id square = mul(im, x, x);
    sx_node_id root = sx_ox_un(im, SX_OP_SQRT, sx_ox_with(im, SX_OP_ADD, square, 1.0));
    sx_node_id part = sx_ox_bin(im, SX_OP_DIVIDE, square, sx_ox_with(im, SX_OP_ADD, root, 1.0));
    sx_node_id sum = sx_ox_bin(im, SX_OP_ADD, sx_ox_un(im, SX_OP_ABS, x), part);
    sx_node_id size = sx_ox_log1p(im, sum);
    return sx_ox_set(im, 0, mul(im, sx_ox_un(im, SX_OP_SIGN, x), size));
}

sx_code sx_ox_acosh(sx_ox *im)
{
    /* with t = x - 1: log1p(t + sqrt(t (t + 2))) */
    sx_node_id t = sx_ox_with(im, SX_OP_SUBTRACT, sx_ox_in(im, 0), 1.0);
    sx_node_id product = mul(im, t, sx_ox_with(im, SX_OP_ADD, t, 2.0));
    sx_node_id sum = sx_ox_bin(im, SX_OP_ADD, t, sx_ox_un(im, SX_OP_SQRT, product));
    return sx_ox_set(im, 0, sx_ox_log1p(im, sum));
}

sx_code sx_ox_atanh(sx_ox *im)
{
    /* log1p(2x / (1 - x)) / 2 */
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id twice = sx_ox_with(im, SX_OP_MULTIPLY, x, 2.0);
    sx_node_id ratio = sx_ox_bin(im, SX_OP_DIVIDE, twice, sx_ox_from(im, SX_OP_SUBTRACT, 1.0, x));
    return sx_ox_set(im, 0, sx_ox_with(im, SX_OP_MULTIPLY, sx_ox_log1p(im, ratio), 0.5));
}

/* ---- activations ---- */

sx_code sx_ox_gelu(sx_ox *im)
{
    sx_span approximate;
    SX_TRY(sx_ox_attr_text(im, "approximate", "none", &approximate));
    bool with_tanh = sx_span_is(approximate, "tanh");
    if (!with_tanh && !sx_span_is(approximate, "none")) {
        return SX_OX_FAIL(im, SX_INPUT, "approximate is '%.*s', none or tanh wanted",
                          (int)sx_min_i64((int64_t)approximate.len, 40),
                          (const char *)approximate.ptr);
    }
    return sx_ox_set(im, 0,
                     sx_ox_un(im, with_tanh ? SX_OP_GELU_TANH : SX_OP_GELU, sx_ox_in(im, 0)));
}

sx_code sx_ox_leaky_relu(sx_ox *im)
{
    double alpha;
    SX_TRY(sx_ox_attr_float(im, "alpha", 0.01, &alpha));
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id scaled = sx_ox_with(im, SX_OP_MULTIPLY, x, alpha);
    return sx_ox_set(im, 0, sx_ox_select(im, sx_ox_cmp_with(im, SX_LT, x, 0.0), scaled, x));
}

sx_code sx_ox_prelu(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id slope = sx_ox_broadcast(im, sx_ox_in(im, 1), sx_ox_type(im, x));
    sx_node_id scaled = mul(im, x, slope);
    return sx_ox_set(im, 0, sx_ox_select(im, sx_ox_cmp_with(im, SX_LT, x, 0.0), scaled, x));
}

/* alpha (e^(x / beta) - 1) for x < 0 without cancellation: e^u - 1 = 2t / (1 - t) with t = tanh(u / 2). */
static sx_node_id negative_branch(sx_ox *im, sx_node_id x, double alpha, double beta)
{
    sx_node_id below = sx_ox_from(im, SX_OP_MINIMUM, 0.0, x);
    sx_node_id t = sx_ox_un(im, SX_OP_TANH, sx_ox_with(im, SX_OP_DIVIDE, below, 2.0 * beta));
    sx_node_id top = sx_ox_with(im, SX_OP_MULTIPLY, t, 2.0 * alpha);
    return sx_ox_bin(im, SX_OP_DIVIDE, top, sx_ox_from(im, SX_OP_SUBTRACT, 1.0, t));
}

sx_code sx_ox_elu(sx_ox *im)
{
    double alpha;
    SX_TRY(sx_ox_attr_float(im, "alpha", 1.0, &alpha));
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id below = negative_branch(im, x, alpha, 1.0);
    sx_node_id negative = sx_ox_cmp_with(im, SX_LT, x, 0.0);
    return sx_ox_set(im, 0, sx_ox_select(im, negative, below, x));
}

sx_code sx_ox_celu(sx_ox *im)
{
    double alpha;
    SX_TRY(sx_ox_attr_float(im, "alpha", 1.0, &alpha));
    if (alpha == 0.0) {
        return SX_OX_FAIL(im, SX_INPUT, "alpha is 0");
    }
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id below = negative_branch(im, x, alpha, alpha);
    sx_node_id negative = sx_ox_cmp_with(im, SX_LT, x, 0.0);
    return sx_ox_set(im, 0, sx_ox_select(im, negative, below, x));
}

sx_code sx_ox_selu(sx_ox *im)
{
    double alpha;
    double gamma;
    SX_TRY(sx_ox_attr_float(im, "alpha", 1.67326319217681884765625, &alpha));
    SX_TRY(sx_ox_attr_float(im, "gamma", 1.05070102214813232421875, &gamma));
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id low = negative_branch(im, x, alpha, 1.0);
    sx_node_id out = sx_ox_select(im, sx_ox_cmp_with(im, SX_LT, x, 0.0), low, x);
    return sx_ox_set(im, 0, sx_ox_with(im, SX_OP_MULTIPLY, out, gamma));
}

sx_code sx_ox_thresholded_relu(sx_ox *im)
{
    double alpha;
    SX_TRY(sx_ox_attr_float(im, "alpha", 1.0, &alpha));
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id zero = zero_like(im, x);
    return sx_ox_set(im, 0, sx_ox_select(im, sx_ox_cmp_with(im, SX_GT, x, alpha), x, zero));
}

sx_code sx_ox_hard_sigmoid(sx_ox *im)
{
    double alpha;
    double beta;
    SX_TRY(sx_ox_attr_float(im, "alpha", 0.2, &alpha));
    SX_TRY(sx_ox_attr_float(im, "beta", 0.5, &beta));
    sx_node_id x = sx_ox_with(im, SX_OP_MULTIPLY, sx_ox_in(im, 0), alpha);
    return sx_ox_set(im, 0, clamp(im, sx_ox_with(im, SX_OP_ADD, x, beta), 0.0, 1.0));
}

sx_code sx_ox_hard_swish(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    /* the standard's body is HardSigmoid with alpha = 1/6, an attribute and so f32 */
    sx_node_id gate = sx_ox_with(im, SX_OP_MULTIPLY, x, (double)(float)(1.0 / 6.0));
    gate = clamp(im, sx_ox_with(im, SX_OP_ADD, gate, 0.5), 0.0, 1.0);
    return sx_ox_set(im, 0, mul(im, x, gate));
}

/* max(x, 0) + log1p(e^-|x|) */
static sx_node_id softplus(sx_ox *im, sx_node_id x)
{
    sx_node_id size = sx_ox_un(im, SX_OP_ABS, x);
    sx_node_id tail = sx_ox_un(im, SX_OP_EXP, sx_ox_un(im, SX_OP_NEGATE, size));
    tail = sx_ox_log1p(im, tail);
    return sx_ox_bin(im, SX_OP_ADD, sx_ox_un(im, SX_OP_RELU, x), tail);
}

sx_code sx_ox_softplus(sx_ox *im)
{
    return sx_ox_set(im, 0, softplus(im, sx_ox_in(im, 0)));
}

sx_code sx_ox_mish(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    return sx_ox_set(im, 0, mul(im, x, sx_ox_un(im, SX_OP_TANH, softplus(im, x))));
}

sx_code sx_ox_softsign(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id below = sx_ox_with(im, SX_OP_ADD, sx_ox_un(im, SX_OP_ABS, x), 1.0);
    return sx_ox_set(im, 0, sx_ox_bin(im, SX_OP_DIVIDE, x, below));
}

sx_code sx_ox_shrink(sx_ox *im)
{
    double lambda;
    double bias;
    SX_TRY(sx_ox_attr_float(im, "lambd", 0.5, &lambda));
    SX_TRY(sx_ox_attr_float(im, "bias", 0.0, &bias));
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id zero = zero_like(im, x);
    sx_node_id less = sx_ox_with(im, SX_OP_SUBTRACT, x, bias);
    sx_node_id high = sx_ox_select(im, sx_ox_cmp_with(im, SX_GT, x, lambda), less, zero);
    sx_node_id low = sx_ox_with(im, SX_OP_ADD, x, bias);
    return sx_ox_set(im, 0, sx_ox_select(im, sx_ox_cmp_with(im, SX_LT, x, -lambda), low, high));
}
