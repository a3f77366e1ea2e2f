#include "core/ir/num.h"

#include <endian.h>
#include <math.h>
#include <string.h>

typedef struct {
    int exponent_bits;
    int mantissa_bits;
    bool has_infinity;
} format;

static format format_of(sx_dtype dtype)
{
    switch (dtype) {
    case SX_F64: return (format){11, 52, true};
    case SX_F32: return (format){8, 23, true};
    case SX_BF16: return (format){8, 7, true};
    case SX_F16: return (format){5, 10, true};
    case SX_F8E4M3: return (format){4, 3, false};
    case SX_F8E5M2: return (format){5, 2, true};
    case SX_I64:
    case SX_I32:
    case SX_I16:
    case SX_I8:
    case SX_U8:
    case SX_BOOL:
    case SX_DTYPE_COUNT: break;
    }
    SX_UNREACHABLE();
}

#define F64_MANTISSA_BITS 52
#define F64_BIAS 1023

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

double sx_num_decode(sx_dtype dtype, uint64_t bits)
{
    if (dtype == SX_F64) {
        return double_of(bits);
    }
    if (dtype == SX_F32 &&
        (bits & 0x7fffffff) <= 0x7f800000) { /* a number: as the machine has it */
        uint32_t narrow = (uint32_t)bits;
        float value;
        memcpy(&value, &narrow, sizeof(value));
        return (double)value;
    }
    format f = format_of(dtype);
    uint64_t mantissa = bits & ((UINT64_C(1) << f.mantissa_bits) - 1);
    uint64_t exponent_max = (UINT64_C(1) << f.exponent_bits) - 1;
    uint64_t exponent = (bits >> f.mantissa_bits) & exponent_max;
    if (exponent != 0 && exponent != exponent_max) { /* a normal number: the fields of a double */
        uint64_t negative = bits >> (f.mantissa_bits + f.exponent_bits) & 1;
        return double_of(negative << 63 |
                         (exponent + F64_BIAS - (exponent_max >> 1)) << F64_MANTISSA_BITS |
                         mantissa << (F64_MANTISSA_BITS - f.mantissa_bits));
    }
    double sign = ((bits >> (f.mantissa_bits + f.exponent_bits)) & 1) != 0 ? -1.0 : 1.0;
    int bias = (int)(exponent_max >> 1);
    if (exponent == exponent_max && f.has_infinity) {
        return mantissa == 0 ? copysign(HUGE_VAL, sign) : copysign((double)NAN, sign);
    }
    if (!f.has_infinity && exponent == exponent_max &&
        mantissa == (UINT64_C(1) << f.mantissa_bits) - 1) {
        return copysign((double)NAN, sign);
    }
    if (exponent == 0) {
        return sign * ldexp((double)mantissa, 1 - bias - f.mantissa_bits);
    }
    mantissa |= UINT64_C(1) << f.mantissa_bits;
    return sign * ldexp((double)mantissa, (int)exponent - bias - f.mantissa_bits);
}

/* The nearest number of the format, ties to even, where `value` and that are both normal numbers of it; false: it has
 * to be looked at otherwise. A carry of the mantissa goes into the exponent. */
static bool encode_normal(format f, double value, uint64_t *bits)
{
    uint64_t exponent_max = (UINT64_C(1) << f.exponent_bits) - 1;
    int less = F64_MANTISSA_BITS - f.mantissa_bits;
    uint64_t wide, sign;
    memcpy(&wide, &value, sizeof(wide));
    sign = wide >> 63;
    wide &= UINT64_MAX >> 1;
    uint64_t least = (F64_BIAS - (exponent_max >> 1) + 1) << f.mantissa_bits; /* 2^(1 - bias) */
    if (less == 0 || wide >> less < least) {
        return false;
    }
    uint64_t half = (UINT64_C(1) << (less - 1)) - 1 + (wide >> less & 1);
    uint64_t narrow =
        ((wide + half) >> less) - ((F64_BIAS - (exponent_max >> 1)) << f.mantissa_bits);
    *bits = sign << (f.exponent_bits + f.mantissa_bits) | narrow;
    return narrow >> f.mantissa_bits < exponent_max;
}

uint64_t sx_num_encode(sx_dtype dtype, double value)
{
    uint64_t normal;
    if (dtype == SX_F64 && !isnan(value)) {
        uint64_t bits;
        memcpy(&bits, &value, sizeof(bits));
        return bits;
    }
    if (dtype == SX_F32 && !isnan(value)) {
        float rounded = (float)value; /* to nearest, ties to even; beyond the range to infinity */
        uint32_t bits;
        memcpy(&bits, &rounded, sizeof(bits));
        return bits;
    }
    format f = format_of(dtype);
    if (encode_normal(f, value, &normal)) {
        return normal;
    }
    uint64_t exponent_max = (UINT64_C(1) << f.exponent_bits) - 1;
    uint64_t sign = (signbit(value) != 0 ? UINT64_C(1) : 0) << (f.exponent_bits + f.mantissa_bits);
    uint64_t infinity = exponent_max << f.mantissa_bits;
    uint64_t nan =
        f.has_infinity ? infinity | (UINT64_C(1) << (f.mantissa_bits - 1)) : infinity | 7;
    uint64_t overflow = f.has_infinity ? infinity : nan;
    if (isnan(value)) {
        return sign | nan;
    }
    if (isinf(value)) {
        return sign | overflow;
    }
    int bias = (int)(exponent_max >> 1);
    int exponent;
    double fraction =
        frexp(fabs(value), &exponent); /* value = fraction * 2^exponent, in [1/2, 1) */
    int scale = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1; /* of the leading bit */
    if (fraction == 0.0) {
        return sign;
    }
    /* Multiples of the last place; at most 2^(mantissa_bits + 1). Exact in double, so that nearbyint is the
     * only rounding. The sum carries into the exponent by itself. */
    double places = nearbyint(ldexp(fraction, exponent - scale + f.mantissa_bits));
    uint64_t whole = (uint64_t)places;
    uint64_t bits = whole < (UINT64_C(1) << f.mantissa_bits)
                        ? whole
                        : whole + ((uint64_t)(scale + bias - 1) << f.mantissa_bits);
    uint64_t largest = f.has_infinity ? infinity - 1 : nan - 1;
    return sign | (bits > largest ? overflow : bits);
}

double sx_num_round(sx_dtype dtype, double value)
{
    if (dtype == SX_F32 && !isnan(value)) {
        return (double)(float)value;
    }
    return dtype == SX_F64 ? value : sx_num_decode(dtype, sx_num_encode(dtype, value));
}

int64_t sx_num_int_min(sx_dtype dtype)
{
    SX_ASSERT(sx_dtype_class_of(dtype) != SX_CLASS_FLOAT);
    if (dtype == SX_U8 || dtype == SX_BOOL) {
        return 0;
    }
    return -sx_num_int_max(dtype) - 1;
}

int64_t sx_num_int_max(sx_dtype dtype)
{
    SX_ASSERT(sx_dtype_class_of(dtype) != SX_CLASS_FLOAT);
    if (dtype == SX_U8 || dtype == SX_BOOL) {
        return dtype == SX_U8 ? UINT8_MAX : 1;
    }
    return INT64_MAX >> (64 - 8 * sx_dtype_bytes(dtype));
}

int64_t sx_num_int_decode(sx_dtype dtype, uint64_t bits)
{
    uint64_t width = (uint64_t)sx_dtype_bytes(dtype) * 8;
    if (width == 64 || sx_num_int_min(dtype) == 0) {
        return (int64_t)bits;
    }
    uint64_t top = UINT64_C(1) << (width - 1);
    return (int64_t)((bits ^ top) - top);
}

uint64_t sx_num_int_encode(sx_dtype dtype, int64_t value)
{
    uint64_t width = (uint64_t)sx_dtype_bytes(dtype) * 8;
    return width == 64 ? (uint64_t)value : (uint64_t)value & ((UINT64_C(1) << width) - 1);
}

uint64_t sx_num_load(sx_dtype dtype, const uint8_t *bytes, size_t index)
{
    size_t size = sx_dtype_bytes(dtype);
    uint64_t bits = 0;
    if (size == sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, bytes + index * sizeof(word), sizeof(word));
        return le32toh(word);
    }
    for (size_t i = size; i-- > 0;) {
        bits = bits << 8 | bytes[index * size + i];
    }
    return bits;
}

void sx_num_store(sx_dtype dtype, uint8_t *bytes, size_t index, uint64_t bits)
{
    size_t size = sx_dtype_bytes(dtype);
    for (size_t i = 0; i < size; i++) {
        bytes[index * size + i] = (uint8_t)(bits >> (8 * i));
    }
}

bool sx_element_value(sx_dtype dtype, const uint8_t *raw, double *value)
{
    uint64_t bits = sx_num_load(dtype, raw, 0);
    if (sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
        *value = sx_num_decode(dtype, bits);
        return true;
    }
    int64_t number = sx_num_int_decode(dtype, bits);
    *value = (double)number;
    return number >= -(INT64_C(1) << 53) && number <= INT64_C(1) << 53;
}

static double largest(sx_dtype dtype)
{
    return dtype == SX_F8E4M3 ? 448 : 57344;
}

double sx_round(sx_dtype dtype, double value)
{
    if (dtype == SX_F64) {
        return value;
    }
    if (dtype == SX_F32) {
        return (double)(float)value;
    }
    double rounded = sx_num_round(dtype, value);
    bool saturates = dtype == SX_F8E4M3 || dtype == SX_F8E5M2;
    if (saturates && !isnan(value) && !isfinite(rounded)) {
        return copysign(largest(dtype), value);
    }
    return rounded;
}
