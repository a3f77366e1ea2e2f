#include <math.h>

#include "core/eval/cell.h"
#include "core/ir/num.h"

static int64_t wrap(sx_dtype dtype, uint64_t value)
{
    switch ((int)dtype) {
    case SX_I64: return (int64_t)value;
    case SX_I32: return (int32_t)(uint32_t)value;
    case SX_I16: return (int16_t)(uint16_t)value;
    case SX_I8: return (int8_t)(uint8_t)value;
    case SX_U8: return (uint8_t)value;
    }
    return value != 0;
}

/* An integer rounded once to a float type, also beyond 2^53: the lost bits stick to the last one kept. */
static double round_int(sx_dtype dtype, int64_t value)
{
    int64_t exact = INT64_C(1) << 53;
    if (dtype == SX_F64 || (value >= -exact && value <= exact)) {
        return sx_round(dtype, (double)value);
    }
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint64_t kept = magnitude >> 11 | ((magnitude & 2047) != 0);
    double rounded = sx_round(dtype, (double)kept * 2048);
    return value < 0 ? -rounded : rounded;
}

sx_cell sx_cell_of_int(sx_eval_mode mode, sx_dtype dtype, int64_t value)
{
    switch (sx_dtype_class_of(dtype)) {
    case SX_CLASS_FLOAT:
        if (!sx_mode_is_exact(mode)) {
            return (sx_cell){.f = mode == SX_EVAL_TYPED ? round_int(dtype, value) : (double)value};
        }
        break;
    case SX_CLASS_INT:
        if (!sx_mode_is_exact(mode)) {
            return (sx_cell){.i = wrap(dtype, (uint64_t)value)};
        }
        break;
    case SX_CLASS_BOOL: return (sx_cell){.i = value != 0};
    }
    return (sx_cell){.u = mode == SX_EVAL_MODP ? sx_residue_of_int(value) : sx_pair_of_int(value)};
}

sx_cell sx_cell_of(sx_eval_mode mode, sx_dtype dtype, double value)
{
    if (sx_dtype_class_of(dtype) != SX_CLASS_FLOAT) {
        SX_ASSERT(value >= -0x1p53 && value <= 0x1p53);
        return sx_cell_of_int(mode, dtype, (int64_t)value);
    }
    double rounded = sx_num_round(dtype, value);
    return sx_mode_is_exact(mode) ? (sx_cell){.u = sx_exact_of(mode, rounded)}
                                  : (sx_cell){.f = rounded};
}

/* ---- one operation on doubles, integers, bools ---- */
static double sign_of(double x)
{
    return isnan(x) || x == 0 ? x : copysign(1, x);
}

static double apply_float(sx_op op, sx_dtype step, double x, double y)
{
    switch ((int)op) {
    case SX_OP_NEGATE: return -x;
    case SX_OP_ABS: return fabs(x);
    case SX_OP_EXP: return exp(x);
    case SX_OP_LOG: return log(x);
    case SX_OP_SQRT: return sqrt(x);
    case SX_OP_RSQRT: return 1 / sx_round(step, sqrt(x));
    case SX_OP_TANH: return tanh(x);
    case SX_OP_ERF: return erf(x);
    case SX_OP_LOGISTIC: return 1 / (1 + exp(-x));
    case SX_OP_SIN: return sin(x);
    case SX_OP_COS: return cos(x);
    case SX_OP_FLOOR: return floor(x);
    case SX_OP_CEIL: return ceil(x);
    case SX_OP_ROUND: return nearbyint(x);
    case SX_OP_SIGN: return sign_of(x);
    case SX_OP_ADD: return x + y;
    case SX_OP_SUBTRACT: return x - y;
    case SX_OP_MULTIPLY: return x * y;
    case SX_OP_DIVIDE: return x / y;
    case SX_OP_POWER: return pow(x, y);
    case SX_OP_REMAINDER: return fmod(x, y);
    case SX_OP_MAXIMUM: return isnan(x) || x > y ? x : y; /* NaN in either place stays */
    case SX_OP_MINIMUM: return isnan(x) || x < y ? x : y;
    }
    SX_UNREACHABLE();
}

static int64_t divide_int(int64_t x, int64_t y)
{
    if (y == 0) {
        return -1;
    }
    return y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

/* Powers wrap; a negative exponent gives the truncated quotient: 1, -1 or 0. */
static uint64_t power_int(int64_t x, int64_t y)
{
    if (y < 0) {
        int64_t parity = (y & 1) != 0 ? -1 : 1;
        return x == 1 ? 1 : x == -1 ? (uint64_t)parity : 0;
    }
    uint64_t result = 1;
    uint64_t base = (uint64_t)x;
    for (uint64_t exponent = (uint64_t)y; exponent > 0; exponent >>= 1) {
        result *= (exponent & 1) != 0 ? base : 1;
        base *= base;
    }
    return result;
}

/* Philox4x32-10 of Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011), section 4.3: words 0 and 1. */
static uint64_t random_bits(uint64_t counter, uint64_t key)
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    for (uint32_t round = 0; round < 10; round++) {
        uint64_t even = UINT64_C(0xD2511F53) * c[0];
        uint64_t odd = UINT64_C(0xCD9E8D57) * c[2];
        c[0] = (uint32_t)(odd >> 32) ^ c[1] ^ k[0];
        c[1] = (uint32_t)odd;
        c[2] = (uint32_t)(even >> 32) ^ c[3] ^ k[1];
        c[3] = (uint32_t)even;
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return c[0] | (uint64_t)c[1] << 32;
}

/* A number as 64 bits with what stands for the bits above its own: copies of the highest one, or zeros. */
static uint64_t widened(sx_dtype dtype, uint64_t x, bool with_sign)
{
    uint32_t above = 64 - 8 * sx_dtype_bytes(dtype);
    uint64_t low = x << above >> above;
    bool is_negative = (low << above) >> 63 != 0;
    return with_sign && is_negative && above > 0 ? low | UINT64_MAX << (64 - above) : low;
}

/* By the number of places that y has as an unsigned number. */
static uint64_t shift(sx_op op, sx_dtype dtype, uint64_t x, uint64_t y)
{
    bool with_sign = op == SX_OP_SHIFT_RIGHT_ARITHMETIC;
    uint64_t places = widened(dtype, y, false);
    x = widened(dtype, x, with_sign);
    uint64_t fill = with_sign && x >> 63 != 0 ? UINT64_MAX : 0;
    if (places >= 8 * sx_dtype_bytes(dtype)) {
        return fill;
    }
    if (op == SX_OP_SHIFT_LEFT) {
        return x << places;
    }
    return places == 0 ? x : x >> places | fill << (64 - places);
}

static uint64_t apply_int(sx_op op, sx_dtype dtype, int64_t x, int64_t y)
{
    uint64_t a = (uint64_t)x;
    uint64_t b = (uint64_t)y;
    switch ((int)op) {
    case SX_OP_NEGATE: return 0 - a;
    case SX_OP_ABS: return x < 0 ? 0 - a : a;
    case SX_OP_FLOOR:
    case SX_OP_CEIL:
    case SX_OP_ROUND: return a;
    case SX_OP_SIGN: return (uint64_t)((x > 0) - (x < 0));
    case SX_OP_NOT: return ~a;
    case SX_OP_ADD: return a + b;
    case SX_OP_SUBTRACT: return a - b;
    case SX_OP_MULTIPLY: return a * b;
    case SX_OP_DIVIDE: return (uint64_t)divide_int(x, y);
    case SX_OP_POWER: return power_int(x, y);
    case SX_OP_REMAINDER: return a - b * (uint64_t)divide_int(x, y);
    case SX_OP_MAXIMUM: return x > y ? a : b;
    case SX_OP_MINIMUM: return x < y ? a : b;
    case SX_OP_AND: return a & b;
    case SX_OP_OR: return a | b;
    case SX_OP_XOR: return a ^ b;
    case SX_OP_SHIFT_LEFT:
    case SX_OP_SHIFT_RIGHT_ARITHMETIC:
    case SX_OP_SHIFT_RIGHT_LOGICAL: return shift(op, dtype, a, b);
    case SX_OP_RANDOM_BITS: return random_bits(a, b);
    }
    SX_UNREACHABLE();
}

static int64_t apply_bool(sx_op op, int64_t x, int64_t y)
{
    switch ((int)op) {
    case SX_OP_NOT: return x == 0;
    case SX_OP_ADD:
    case SX_OP_OR:
    case SX_OP_MAXIMUM: return x | y;
    case SX_OP_MULTIPLY:
    case SX_OP_AND:
    case SX_OP_MINIMUM: return x & y;
    case SX_OP_XOR: return x ^ y;
    }
    SX_UNREACHABLE();
}

static bool compare_floats(sx_direction direction, double x, double y)
{
    switch (direction) {
    case SX_EQ: return x == y;
    case SX_NE: return x != y;
    case SX_LT: return x < y;
    case SX_LE: return x <= y;
    case SX_GT: return x > y;
    case SX_GE: return x >= y;
    case SX_DIRECTION_COUNT: break;
    }
    SX_UNREACHABLE();
}

static bool compare_ints(sx_direction direction, int64_t x, int64_t y)
{
    switch (direction) {
    case SX_EQ: return x == y;
    case SX_NE: return x != y;
    case SX_LT: return x < y;
    case SX_LE: return x <= y;
    case SX_GT: return x > y;
    case SX_GE: return x >= y;
    case SX_DIRECTION_COUNT: break;
    }
    SX_UNREACHABLE();
}

static bool compare_cells(sx_eval_mode mode, const sx_scalar_op *op, sx_cell x, sx_cell y)
{
    sx_dtype_class of = sx_dtype_class_of(op->from);
    if (of == SX_CLASS_BOOL) {
        return compare_ints(op->direction, x.i, y.i);
    }
    if (sx_mode_is_exact(mode)) {
        return compare_ints(op->direction, sx_exact_balanced(mode, x.u),
                            sx_exact_balanced(mode, y.u));
    }
    return of == SX_CLASS_FLOAT ? compare_floats(op->direction, x.f, y.f)
                                : compare_ints(op->direction, x.i, y.i);
}

static int64_t truncate_float(sx_dtype to, double x)
{
    if (isnan(x)) {
        return 0;
    }
    double whole = trunc(x);
    if (whole <= (double)sx_num_int_min(to)) {
        return sx_num_int_min(to);
    }
    if (whole >= (double)sx_num_int_max(to)) { // for i64 the double is 2^63
        return sx_num_int_max(to);
    }
    return (int64_t)whole;
}

/* Is a residue another number than zero? */
static bool is_set(sx_eval_mode mode, uint64_t x)
{
    return mode == SX_EVAL_FIELDS ? !sx_pair_equal(x, 0) : x != 0;
}

static sx_cell convert_cell(sx_eval_mode mode, sx_dtype from, sx_dtype to, sx_cell x)
{
    if (sx_dtype_class_of(from) == SX_CLASS_BOOL) {
        return sx_cell_of_int(mode, to, x.i);
    }
    bool from_float = sx_dtype_class_of(from) == SX_CLASS_FLOAT;
    if (sx_dtype_class_of(to) == SX_CLASS_BOOL) {
        return (sx_cell){.i = from_float && !sx_mode_is_exact(mode) ? x.f != 0 : is_set(mode, x.u)};
    }
    if (sx_mode_is_exact(mode)) {
        return (sx_cell){.u = mode == SX_EVAL_MODP ? sx_residue_convert(from, to, x.u)
                                                   : sx_pair_convert(from, to, x.u)};
    }
    if (!from_float) {
        return sx_cell_of_int(mode, to, x.i);
    }
    if (sx_dtype_class_of(to) == SX_CLASS_INT) {
        return (sx_cell){.i = truncate_float(to, x.f)};
    }
    return (sx_cell){.f = mode == SX_EVAL_TYPED ? sx_round(to, x.f) : x.f};
}

sx_cell sx_cell_apply(sx_eval_mode mode, const sx_scalar_op *op, sx_cell x, sx_cell y, sx_cell z)
{
    if (op->op == SX_OP_SELECT) {
        return x.i != 0 ? y : z;
    }
    if (op->op == SX_OP_CONVERT) {
        return convert_cell(mode, op->from, op->to, x);
    }
    if (op->op == SX_OP_COMPARE) {
        return (sx_cell){.i = compare_cells(mode, op, x, y)};
    }
    sx_dtype_class of = sx_dtype_class_of(op->from);
    if (of == SX_CLASS_BOOL) {
        return (sx_cell){.i = apply_bool(op->op, x.i, y.i)};
    }
    if (sx_mode_is_exact(mode)) {
        bool real = of == SX_CLASS_FLOAT;
        return (sx_cell){.u = mode == SX_EVAL_MODP ? sx_residue_apply(op->op, real, x.u, y.u)
                                                   : sx_pair_apply(op->op, real, x.u, y.u)};
    }
    if (of == SX_CLASS_INT) {
        return (sx_cell){.i = wrap(op->to, apply_int(op->op, op->to, x.i, y.i))};
    }
    sx_dtype step = mode == SX_EVAL_TYPED ? op->to : SX_F64;
    return (sx_cell){.f = sx_round(step, apply_float(op->op, step, x.f, y.f))};
}

/* ---- reductions ---- */
sx_dtype sx_accumulator(sx_dtype dtype)
{
    bool is_narrow = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT && sx_dtype_bytes(dtype) < 4;
    return is_narrow ? SX_F32 : dtype;
}

sx_cell sx_reduce_open(sx_eval_mode mode, sx_reducer reducer, sx_dtype dtype)
{
    bool is_float = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
    bool is_bool = sx_dtype_class_of(dtype) == SX_CLASS_BOOL;
    bool is_residue = sx_mode_is_exact(mode) && !is_bool;
    uint64_t half = (mode == SX_EVAL_MODP ? SX_MODULUS : SX_FIELD_P) / 2;
    switch (reducer) {
    case SX_SUM: return sx_cell_of_int(mode, dtype, 0);
    case SX_PRODUCT: return sx_cell_of_int(mode, dtype, 1);
    case SX_MAX:
        if (is_residue) {
            return (sx_cell){.u = half + 1};
        }
        return is_float ? (sx_cell){.f = -HUGE_VAL} : (sx_cell){.i = sx_num_int_min(dtype)};
    case SX_MIN:
        if (is_residue) {
            return (sx_cell){.u = half};
        }
        return is_float ? (sx_cell){.f = HUGE_VAL} : (sx_cell){.i = sx_num_int_max(dtype)};
    case SX_REDUCER_COUNT: break;
    }
    SX_UNREACHABLE();
}

sx_cell sx_reduce_step(sx_eval_mode mode, sx_reducer reducer, sx_dtype dtype, sx_cell sum,
                       sx_cell x)
{
    static const sx_op combine[SX_REDUCER_COUNT] = {[SX_SUM] = SX_OP_ADD,
                                                    [SX_PRODUCT] = SX_OP_MULTIPLY,
                                                    [SX_MAX] = SX_OP_MAXIMUM,
                                                    [SX_MIN] = SX_OP_MINIMUM};
    sx_dtype wide = sx_accumulator(dtype);
    sx_scalar_op op = {.op = combine[reducer], .from = wide, .to = wide};
    bool order = reducer == SX_MAX || reducer == SX_MIN; /* the first of equals stays */
    return order ? sx_cell_apply(mode, &op, x, sum, sum) : sx_cell_apply(mode, &op, sum, x, x);
}

sx_cell sx_reduce_close(sx_eval_mode mode, sx_dtype dtype, sx_cell sum)
{
    bool rounds = mode == SX_EVAL_TYPED && sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
    return rounds ? (sx_cell){.f = sx_round(dtype, sum.f)} : sum;
}

sx_cell sx_dot_step(sx_eval_mode mode, sx_dtype dtype, sx_cell sum, sx_cell x, sx_cell y)
{
    if (sx_dtype_class_of(dtype) == SX_CLASS_BOOL) {
        return (sx_cell){.i = sum.i | (x.i & y.i)};
    }
    if (mode == SX_EVAL_MODP) {
        return (sx_cell){.u = sx_residue_fold(sum.u + x.u * y.u)};
    }
    if (mode == SX_EVAL_FIELDS) {
        return (sx_cell){.u = sx_pair_apply(SX_OP_ADD, true, sum.u, sx_pair_multiply(x.u, y.u))};
    }
    if (sx_dtype_class_of(dtype) == SX_CLASS_INT) {
        return (sx_cell){.i = wrap(dtype, sum.u + x.u * y.u)};
    }
    if (mode != SX_EVAL_TYPED) {
        return (sx_cell){.f = sum.f + x.f * y.f};
    }
    if (dtype == SX_F64) {
        return (sx_cell){.f = fma(x.f, y.f, sum.f)};
    }
    return (sx_cell){.f = (double)fmaf((float)x.f, (float)y.f, (float)sum.f)};
}
