/* alu_approx.c - sines, logarithms, exponentials and their like: the exact value rounded to nearest even.
 *
 * The C library gives a value with a small error. Where all that lies within the error rounds to one number, that is
 * it; else the value is computed anew with twice the digits, from sums, products and quotients of IEEE 754 alone.
 * So the result does not depend on the library.
 */
#include <math.h>

#include "core/simt/alu_inside.h"

/* ---- numbers as sums of two f64 (Dekker 1971): about 104 digits ---- */
typedef struct {
    double high, low; /* low is at most half of the last digit of high */
} twofold;

static twofold sum_of(double a, double b)
{
    double sum = a + b;
    double part = sum - a;
    return (twofold){sum, (a - (sum - part)) + (b - part)};
}

static twofold plus(twofold a, twofold b)
{
    twofold high = sum_of(a.high, b.high);
    twofold low = sum_of(a.low, b.low);
    twofold out = sum_of(high.high, high.low + low.high);
    return sum_of(out.high, out.low + low.low);
}

static twofold times(twofold a, twofold b)
{
    double product = a.high * b.high;
    double error = fma(a.high, b.high, -product);
    return sum_of(product, error + (a.high * b.low + a.low * b.high));
}

static twofold negative(twofold a)
{
    return (twofold){-a.high, -a.low};
}

static twofold over(twofold a, twofold b)
{
    twofold q = {a.high / b.high, 0.0};
    for (uint32_t i = 0; i < 2; i++) {
        twofold rest = plus(a, negative(times(q, b)));
        q = plus(q, (twofold){rest.high / b.high, 0.0});
    }
    return q;
}

static twofold number(double value)
{
    return (twofold){value, 0.0};
}

static const twofold ln_2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
static const twofold half_pi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

/* 1 + x/first (1 + x/(first+1) ...) with strides: the series that all functions below have. */
static twofold series(twofold x, uint32_t terms, double (*divisor)(uint32_t))
{
    twofold out = number(1.0);
    for (uint32_t n = terms; n > 0; n--) {
        out = plus(number(1.0), times(over(x, number(divisor(n))), out));
    }
    return out;
}

static double exponential_divisor(uint32_t n)
{
    return (double)n;
}
static double sine_divisor(uint32_t n)
{
    return (double)(2 * n) * (double)(2 * n + 1);
}
static double cosine_divisor(uint32_t n)
{
    return (double)(2 * n - 1) * (double)(2 * n);
}

/* e^x for |x| up to 0.4. */
static twofold exponential(twofold x)
{
    twofold small = {x.high * 0x1p-4, x.low * 0x1p-4};
    twofold out = series(small, 18, exponential_divisor);
    for (uint32_t i = 0; i < 4; i++) {
        out = times(out, out);
    }
    return out;
}

static twofold power_of_2(double x)
{
    double whole = floor(x + 0.5);
    double scale = ldexp(1.0, (int)whole);
    twofold out = exponential(times(number(x - whole), ln_2));
    return (twofold){out.high * scale, out.low * scale};
}

/* One step of Newton from the library's value, whose error is squared. */
static twofold logarithm(double x)
{
    double near = log2(x);
    twofold one = times(power_of_2(-near), number(x));
    twofold rest = plus(one, number(-1.0));
    rest = plus(rest, negative(times(rest, (twofold){rest.high * 0.5, rest.low * 0.5})));
    return plus(number(near), over(rest, ln_2));
}

static twofold hyperbolic(double x)
{
    double size = fabs(x);
    twofold out = number(1.0);
    if (size < 0x1p-12) {
        twofold square = times(number(x), number(x));
        twofold term = over(times(square, number(-17.0)), number(315.0));
        term = plus(over(number(2.0), number(15.0)), term);
        term = plus(over(number(-1.0), number(3.0)), times(square, term));
        term = plus(number(1.0), times(square, term));
        return times(number(x), term);
    }
    if (size < 24.0) {
        double whole = floor(2.0 * size / ln_2.high + 0.5);
        twofold rest = plus(number(2.0 * size), negative(times(number(whole), ln_2)));
        twofold power = exponential(rest);
        double scale = ldexp(1.0, (int)whole);
        power = (twofold){power.high * scale, power.low * scale};
        out = over(plus(power, number(-1.0)), plus(power, number(1.0)));
    } else {
        out = (twofold){1.0, -0x1p-60};
    }
    return x < 0.0 ? negative(out) : out;
}

/* x - k pi/2 of least size, and k modulo 4. The digits of 2/pi that do not make the product with x a multiple of 4
 * begin at one that x tells; 192 of them leave an error of 2^-166. */
static twofold reduce(double x, uint32_t *quadrant)
{
    static const uint64_t digits[7] = {0,
                                       /* 2/pi */ UINT64_C(0xA2F9836E4E441529),
                                       UINT64_C(0xFC2757D1F534DDC0),
                                       UINT64_C(0xDB6295993C439041),
                                       UINT64_C(0xFE5163ABDEBBC561),
                                       UINT64_C(0xB7246E3A424DD2E0),
                                       0};
    *quadrant = 0;
    if (fabs(x) < 0.5) {
        return number(x);
    }
    int exponent;
    double fraction = frexp(fabs(x), &exponent);
    uint64_t m = (uint64_t)(fraction * 0x1p24);
    uint32_t from = (uint32_t)(exponent - 24 - 2 + 64); /* of x = m 2^(exponent - 24) */
    SX_ASSERT(from / 64 + 3 < SX_COUNT(digits));
    uint64_t limb[3]; /* m times the digits, times 2^-190, modulo 4; the first is the highest */
    sx_u128 carry = 0;
    for (uint32_t k = 3; k-- > 0;) {
        uint32_t word = from / 64 + k, shift = from % 64;
        uint64_t low = shift == 0 ? 0 : digits[word + 1] >> (64 - shift);
        sx_u128 product = (sx_u128)m * (digits[word] << shift | low) + carry;
        limb[k] = (uint64_t)product;
        carry = product >> 64;
    }
    uint32_t k = (uint32_t)(limb[0] >> 62);
    bool upper = (limb[0] >> 61 & 1) != 0; /* above a half: the next quadrant, from above */
    twofold rest = number(0.0);
    limb[0] &= UINT64_MAX >> 2;
    for (uint32_t i = 6; i-- > 0;) {
        uint32_t part = (uint32_t)(limb[i / 2] >> (i % 2 == 0 ? 32 : 0));
        rest = plus(rest, number(ldexp((double)part, 2 - 32 * (int)(i + 1))));
    }
    rest = upper ? plus(rest, number(-1.0)) : rest;
    rest = times(rest, half_pi);
    k += upper ? 1 : 0;
    *quadrant = (x < 0.0 ? 0 - k : k) & 3;
    return x < 0.0 ? negative(rest) : rest;
}

/* sin(x + quarters pi/2). */
static twofold sine(double x, uint32_t quarters)
{
    uint32_t quadrant;
    twofold rest = reduce(x, &quadrant);
    twofold square = negative(times(rest, rest));
    quadrant += quarters;
    twofold out = quadrant % 2 == 0 ? times(rest, series(square, 15, sine_divisor))
                                    : series(square, 15, cosine_divisor);
    return (quadrant & 2) != 0 ? negative(out) : out;
}

float sx_ptx_approx_slowly(sx_ptx_handler handler, float operand)
{
    double x = (double)operand;
    twofold out;
    switch ((int)handler) {
    case SX_PTX_RUN_SIN: out = sine(x, 0); break;
    case SX_PTX_RUN_COS: out = sine(x, 1); break;
    case SX_PTX_RUN_LG2: out = logarithm(x); break;
    case SX_PTX_RUN_EX2: out = power_of_2(x); break;
    default: out = hyperbolic(x); break;
    }
    /* The odd neighbour of what is between two numbers rounds like what is between them. */
    int64_t bits;
    memcpy(&bits, &out.high, sizeof(bits));
    if (out.low != 0.0 && (bits & 1) == 0) {
        bits += (out.low > 0.0) == (out.high > 0.0) ? 1 : -1;
        memcpy(&out.high, &bits, sizeof(out.high));
    }
    return (float)out.high;
}

static float approximate(sx_ptx_handler handler, float operand)
{
    double x = (double)operand;
    double y;
    switch ((int)handler) {
    case SX_PTX_RUN_SIN: y = sin(x); break;
    case SX_PTX_RUN_COS: y = cos(x); break;
    case SX_PTX_RUN_LG2: y = log2(x); break;
    case SX_PTX_RUN_EX2: y = exp2(x); break;
    default: y = tanh(x); break;
    }
    if (y - y != 0.0 || y == 0.0) {
        return (float)y;
    }
    double margin = fabs(y) * 0x1p-46;
    float low = (float)(y - margin);
    return low == (float)(y + margin) ? low : sx_ptx_approx_slowly(handler, operand);
}

static void run(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                const sx_ptx_word *const *operand, uint32_t active)
{
    sx_ptx_word out = {{0}};
    SX_PTX_EACH_LANE(i)
    {
        uint64_t bits = operand[0]->lane[i] & UINT32_MAX;
        if ((active >> i & 1) == 0) {
            continue;
        }
        if (alu->ftz && (bits & 0x7F800000) == 0) {
            bits &= 0x80000000;
        }
        float y = approximate((sx_ptx_handler)alu->handler, sx_ptx_f32(bits));
        bits = y != y ? sx_ptx_f32_format.nan : sx_ptx_f32_bits(y);
        out.lane[i] = alu->ftz && (bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits;
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

sx_ptx_run sx_ptx_approx_of(const sx_ptx_alu *alu)
{
    switch ((int)alu->handler) {
    case SX_PTX_RUN_SIN:
    case SX_PTX_RUN_COS:
    case SX_PTX_RUN_LG2:
    case SX_PTX_RUN_EX2:
    case SX_PTX_RUN_TANH: return run;
    default: return NULL;
    }
}
