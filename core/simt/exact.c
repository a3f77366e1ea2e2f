/* exact.c - floating-point numbers as exact values. */
#include "core/simt/exact.h"

#include "core/base/base.h"

const sx_ptx_format sx_ptx_f64_format = {64, 52, false, UINT64_C(0xFFF8000000000000)};
const sx_ptx_format sx_ptx_f32_format = {32, 23, false, 0x7FFFFFFF};
const sx_ptx_format sx_ptx_tf32_format = {19, 10, false, 0x3FFFF};
const sx_ptx_format sx_ptx_f16_format = {16, 10, false, 0x7FFF};
const sx_ptx_format sx_ptx_bf16_format = {16, 7, false, 0x7FFF};
const sx_ptx_format sx_ptx_e5m2_format = {8, 2, false, 0x7F};
const sx_ptx_format sx_ptx_e4m3_format = {8, 3, true, 0x7F};

static uint64_t ones(uint32_t count)
{
    return (UINT64_C(1) << count) - 1;
}

/* Bits up to the highest that is set. */
static int32_t length(sx_u128 x)
{
    uint64_t upper = (uint64_t)(x >> 64);
    uint64_t lower = (uint64_t)x;
    return upper != 0 ? 128 - __builtin_clzll(upper) : lower != 0 ? 64 - __builtin_clzll(lower) : 0;
}

static sx_ptx_exact special(sx_ptx_kind kind, bool negative)
{
    return (sx_ptx_exact){.kind = (uint8_t)kind, .negative = negative};
}

static int32_t bias_of(const sx_ptx_format *format)
{
    return (1 << (format->bits - format->fraction_bits - 2)) - 1;
}

sx_ptx_exact sx_ptx_exact_of(const sx_ptx_format *format, uint64_t bits)
{
    uint32_t exponent_bits = (uint32_t)format->bits - format->fraction_bits - 1;
    bool negative = (bits >> (format->bits - 1) & 1) != 0;
    uint64_t fraction = bits & ones(format->fraction_bits);
    uint64_t exponent = bits >> format->fraction_bits & ones(exponent_bits);
    if (exponent == ones(exponent_bits)) {
        bool code = fraction == ones(format->fraction_bits);
        if (format->finite_only ? code : fraction != 0) {
            return special(SX_PTX_NOT_A_NUMBER, false);
        }
        if (!format->finite_only) {
            return special(SX_PTX_INFINITE, negative);
        }
    }
    if (exponent == 0 && fraction == 0) {
        return special(SX_PTX_ZERO, negative);
    }
    uint64_t digits = exponent == 0 ? fraction : fraction | UINT64_C(1) << format->fraction_bits;
    int32_t scale = exponent == 0 ? 1 : (int32_t)exponent;
    return (sx_ptx_exact){.kind = SX_PTX_FINITE,
                          .negative = negative,
                          .exponent = scale - bias_of(format) - format->fraction_bits,
                          .digits = digits};
}

sx_ptx_exact sx_ptx_exact_integer(uint64_t magnitude, bool negative)
{
    return (sx_ptx_exact){.kind = magnitude == 0 ? SX_PTX_ZERO : SX_PTX_FINITE,
                          .negative = negative && magnitude != 0,
                          .digits = magnitude};
}

/* The same number with its highest digit at bit 125. */
static sx_ptx_exact aligned(sx_ptx_exact a)
{
    int32_t by = 126 - length(a.digits);
    SX_ASSERT(a.kind == SX_PTX_FINITE && by >= 0);
    a.digits <<= by;
    a.exponent -= by;
    return a;
}

sx_ptx_exact sx_ptx_exact_add(sx_ptx_exact a, sx_ptx_exact b, sx_ptx_rounding rounding)
{
    bool differ = a.negative != b.negative;
    if (a.kind == SX_PTX_NOT_A_NUMBER || b.kind == SX_PTX_NOT_A_NUMBER ||
        (a.kind == SX_PTX_INFINITE && b.kind == SX_PTX_INFINITE && differ)) {
        return special(SX_PTX_NOT_A_NUMBER, false);
    }
    if (a.kind == SX_PTX_ZERO && b.kind == SX_PTX_ZERO) {
        return special(SX_PTX_ZERO, differ ? rounding == SX_PTX_DOWN : a.negative);
    }
    if (a.kind == SX_PTX_INFINITE || b.kind == SX_PTX_ZERO) {
        return a;
    }
    if (b.kind == SX_PTX_INFINITE || a.kind == SX_PTX_ZERO) {
        return b;
    }
    a = aligned(a);
    b = aligned(b);
    if (a.exponent < b.exponent || (a.exponent == b.exponent && a.digits < b.digits)) {
        sx_ptx_exact swap = a;
        a = b;
        b = swap;
    }
    int32_t by = a.exponent - b.exponent;
    sx_u128 moved = by < 128 ? b.digits >> by : 0;
    bool lost = by >= 128 || (by > 0 && (moved << by) != b.digits);
    a.sticky = lost;
    a.digits = differ ? a.digits - moved - (lost ? 1 : 0) : a.digits + moved;
    return a.digits == 0 ? special(SX_PTX_ZERO, rounding == SX_PTX_DOWN) : a;
}

sx_ptx_exact sx_ptx_exact_mul(sx_ptx_exact a, sx_ptx_exact b)
{
    bool negative = a.negative != b.negative;
    bool nan = a.kind == SX_PTX_NOT_A_NUMBER || b.kind == SX_PTX_NOT_A_NUMBER;
    bool zero = a.kind == SX_PTX_ZERO || b.kind == SX_PTX_ZERO;
    bool infinite = a.kind == SX_PTX_INFINITE || b.kind == SX_PTX_INFINITE;
    if (nan || (zero && infinite)) {
        return special(SX_PTX_NOT_A_NUMBER, false);
    }
    if (zero || infinite) {
        return special(zero ? SX_PTX_ZERO : SX_PTX_INFINITE, negative);
    }
    SX_ASSERT(!a.sticky && !b.sticky && length(a.digits) + length(b.digits) <= 126);
    return (sx_ptx_exact){.kind = SX_PTX_FINITE,
                          .negative = negative,
                          .exponent = a.exponent + b.exponent,
                          .digits = a.digits * b.digits};
}

sx_ptx_exact sx_ptx_exact_div(sx_ptx_exact a, sx_ptx_exact b)
{
    bool negative = a.negative != b.negative;
    bool nan = a.kind == SX_PTX_NOT_A_NUMBER || b.kind == SX_PTX_NOT_A_NUMBER;
    if (nan || (a.kind == b.kind && a.kind != SX_PTX_FINITE)) {
        return special(SX_PTX_NOT_A_NUMBER, false);
    }
    if (a.kind == SX_PTX_INFINITE || b.kind == SX_PTX_ZERO) {
        return special(SX_PTX_INFINITE, negative);
    }
    if (a.kind == SX_PTX_ZERO || b.kind == SX_PTX_INFINITE) {
        return special(SX_PTX_ZERO, negative);
    }
    a = aligned(a); /* 126 digits over at most 53: a quotient of 73 or more */
    return (sx_ptx_exact){.kind = SX_PTX_FINITE,
                          .negative = negative,
                          .sticky = a.digits % b.digits != 0,
                          .exponent = a.exponent - b.exponent,
                          .digits = a.digits / b.digits};
}

/* The largest integer whose square is at most x; x < 2^126. */
static uint64_t root(sx_u128 x)
{
    uint64_t r = 0;
    for (uint64_t bit = UINT64_C(1) << 62; bit != 0; bit >>= 1) {
        uint64_t next = r | bit;
        r = (sx_u128)next * next <= x ? next : r;
    }
    return r;
}

sx_ptx_exact sx_ptx_exact_sqrt(sx_ptx_exact a)
{
    if (a.kind == SX_PTX_NOT_A_NUMBER || (a.negative && a.kind != SX_PTX_ZERO)) {
        return special(SX_PTX_NOT_A_NUMBER, false);
    }
    if (a.kind != SX_PTX_FINITE) {
        return a;
    }
    a = aligned(a);
    if (a.exponent % 2 != 0) {
        a.sticky = (a.digits & 1) != 0;
        a.digits >>= 1; /* of numbers with up to 53 digits it was 0 */
        a.exponent++;
    }
    uint64_t r = root(a.digits);
    return (sx_ptx_exact){.kind = SX_PTX_FINITE,
                          .sticky = a.sticky || (sx_u128)r * r != a.digits,
                          .exponent = a.exponent / 2,
                          .digits = r};
}

sx_ptx_exact sx_ptx_exact_rsqrt(sx_ptx_exact a)
{
    if (a.kind == SX_PTX_ZERO) {
        return special(SX_PTX_INFINITE, a.negative);
    }
    if (a.kind == SX_PTX_NOT_A_NUMBER || a.negative) {
        return special(SX_PTX_NOT_A_NUMBER, false);
    }
    if (a.kind == SX_PTX_INFINITE) {
        return special(SX_PTX_ZERO, false);
    }
    if (a.exponent % 2 != 0) {
        a.digits <<= 1;
        a.exponent--;
    }
    /* floor(sqrt(2^124 / x)) is the root of floor(2^124 / x), whose digits are those of 2^62 / sqrt(x). */
    sx_u128 one = (sx_u128)1 << 124;
    uint64_t r = root(one / a.digits);
    return (sx_ptx_exact){.kind = SX_PTX_FINITE,
                          .sticky = one % a.digits != 0 || (sx_u128)r * r != one / a.digits,
                          .exponent = -62 - a.exponent / 2,
                          .digits = r};
}

/* digits / 2^by rounded to an integer. */
static sx_u128 rounded(const sx_ptx_exact *a, int32_t by, sx_ptx_rounding rounding)
{
    if (by <= 0) {
        return a->digits << -by;
    }
    sx_u128 kept = by < 128 ? a->digits >> by : 0;
    sx_u128 half = by <= 128 ? (sx_u128)1 << (by - 1) : 0; /* 0: more than all digits */
    sx_u128 rest = by < 128 ? a->digits - (kept << by) : a->digits;
    bool inexact = rest != 0 || a->sticky;
    bool above = half != 0 && (rest > half || (rest == half && a->sticky));
    bool tie = half != 0 && rest == half && !a->sticky;
    bool up = false;
    switch (rounding) {
    case SX_PTX_TO_NEAREST: up = above || (tie && (kept & 1) != 0); break;
    case SX_PTX_TO_NEAREST_AWAY: up = above || tie; break;
    case SX_PTX_TO_ZERO: break;
    case SX_PTX_DOWN: up = inexact && a->negative; break;
    case SX_PTX_UP: up = inexact && !a->negative; break;
    }
    return kept + (up ? 1 : 0);
}

uint64_t sx_ptx_exact_round(sx_ptx_exact a, const sx_ptx_format *format, sx_ptx_rounding rounding,
                            bool satfinite)
{
    uint32_t fraction_bits = format->fraction_bits;
    uint64_t sign = (uint64_t)a.negative << (format->bits - 1);
    uint64_t infinity = ones((uint32_t)format->bits - fraction_bits - 1) << fraction_bits;
    uint64_t largest = format->finite_only ? format->nan - 1 : infinity - 1;
    uint64_t overflow = format->finite_only ? format->nan : infinity;
    bool inward = rounding == SX_PTX_TO_ZERO || (rounding == SX_PTX_DOWN && !a.negative) ||
                  (rounding == SX_PTX_UP && a.negative);
    if (a.kind == SX_PTX_NOT_A_NUMBER) {
        return format->nan;
    }
    if (a.kind == SX_PTX_ZERO || a.kind == SX_PTX_INFINITE) {
        return sign | (a.kind == SX_PTX_ZERO ? 0 : satfinite ? largest : overflow);
    }
    int32_t least = 1 - bias_of(format) - (int32_t)fraction_bits; /* exponent of the last digit */
    int32_t last = a.exponent + length(a.digits) - 1 - (int32_t)fraction_bits;
    last = last < least ? least : last;
    int32_t exponent_max = (1 << (format->bits - fraction_bits - 1));
    if (last - least >= exponent_max) {
        return sign | (satfinite || inward ? largest : overflow);
    }
    /* A carry out of the digits raises the exponent by itself; the hidden digit is the exponent's 1. */
    uint64_t digits = (uint64_t)rounded(&a, last - a.exponent, rounding);
    uint64_t code = digits + ((uint64_t)(last - least) << fraction_bits);
    if (code > largest) {
        return sign | (satfinite || inward ? largest : overflow);
    }
    return sign | code;
}

sx_ptx_exact sx_ptx_exact_integral(sx_ptx_exact a, sx_ptx_rounding rounding)
{
    if (a.kind != SX_PTX_FINITE || a.exponent >= 0) {
        return a;
    }
    sx_u128 value = rounded(&a, -a.exponent, rounding);
    return value == 0
               ? special(SX_PTX_ZERO, a.negative)
               : (sx_ptx_exact){.kind = SX_PTX_FINITE, .negative = a.negative, .digits = value};
}
