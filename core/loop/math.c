/* math.c - elementwise operations on f32 as instruction sequences, written once and used by every kernel.
 *
 * Largest error against the exact value, in units of the last place of the result (measured over dense, random
 * and special arguments by tests/core/loop/test_math.c, which holds these bounds):
 *   exp 1.1 (subnormal results too; +inf above 88.7228, exact 0 below -103.98), log 1.1, tanh 6, erf 6,
 *   logistic 2.5 where the result is normal, sqrt, divide 0.5, rsqrt 1.5, power 4, sine and cosine 2e-7
 *   absolute for |x| <= 2^20 and NaN beyond.
 * gelu, gelu_tanh and silu are the sequences of their decompositions: gelu x/2 (1 + erf(x / sqrt 2)), and so on.
 * NaN arguments give NaN. Polynomials and rational functions are minimax fits made for this file (Lawson's
 * reweighted least squares); the reduction of exp and log follows Cody and Waite 1980. */
#include "core/loop/loop.h"

#include <math.h>
#include <string.h>

static uint32_t un(sx_loop_builder *b, sx_lop op, uint32_t x)
{
    return sx_loop_op(b, op, SX_NO_REG, NULL, x, SX_NO_REG, SX_NO_REG, 0, 0);
}

static uint32_t un_imm(sx_loop_builder *b, sx_lop op, uint32_t x, uint32_t imm)
{
    return sx_loop_op(b, op, SX_NO_REG, NULL, x, SX_NO_REG, SX_NO_REG, imm, 0);
}

static uint32_t bin(sx_loop_builder *b, sx_lop op, uint32_t x, uint32_t y)
{
    return sx_loop_op(b, op, SX_NO_REG, NULL, x, y, SX_NO_REG, 0, 0);
}

static uint32_t tri(sx_loop_builder *b, sx_lop op, uint32_t x, uint32_t y, uint32_t z)
{
    return sx_loop_op(b, op, SX_NO_REG, NULL, x, y, z, 0, 0);
}

static uint32_t bits(sx_loop_builder *b, uint32_t value)
{
    return sx_loop_op(b, SX_LOP_SET, SX_NO_REG, NULL, SX_NO_REG, SX_NO_REG, SX_NO_REG, value, 0);
}

static uint32_t compare(sx_loop_builder *b, uint32_t x, uint32_t y, sx_direction direction)
{
    return sx_loop_op(b, SX_LOP_CMP, SX_NO_REG, NULL, x, y, SX_NO_REG, (uint32_t)direction, 0);
}

/* coefficient[n - 1] * t^(n - 1) + ... + coefficient[0] by Horner's rule. */
static uint32_t horner(sx_loop_builder *b, uint32_t t, const float *coefficient, uint32_t n)
{
    uint32_t p = sx_loop_set(b, coefficient[n - 1]);
    for (uint32_t i = n - 1; i-- > 0;) {
        p = tri(b, SX_LOP_FMA, p, t, sx_loop_set(b, coefficient[i]));
    }
    return p;
}

/* x limited to [low, high]; NaN stays: max and min return their second operand when unordered. */
static uint32_t clamp(sx_loop_builder *b, uint32_t x, float low, float high)
{
    x = bin(b, SX_LOP_MAX, sx_loop_set(b, low), x);
    return bin(b, SX_LOP_MIN, sx_loop_set(b, high), x);
}

/* 2^i for the int32 lanes of i in [-126, 127], and 0 of -127. */
static uint32_t power_of_two(sx_loop_builder *b, uint32_t i)
{
    uint32_t one = bits(b, 0x3f800000u); // 1.0f
    return bin(b, SX_LOP_IADD, un_imm(b, SX_LOP_SHL, i, 23), one);
}

/* e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2. The factor 2^n is applied in two halves, so that one
 * rounding makes subnormal results and overflow gives infinity. Below -175.7, as where a mask stands, both halves are
 * 0: a product that underflows would cost the processor ten times the rest of the sequence. */
static uint32_t make_exp(sx_loop_builder *b, uint32_t x)
{
    static const float q[] = {0.49999994f, 0.1666652f, 0.041668408f, 0.008368899f, 0.0013814219f};
    const uint32_t magic = 0x4b400000u; // 1.5 * 2^23: the sum has n in its low bits
    x = clamp(b, x, -176.0f, 89.0f);
    uint32_t shifted = bits(b, magic);
    uint32_t t = tri(b, SX_LOP_FMA, x, sx_loop_set(b, 0x1.715476p+0f), shifted);
    uint32_t n = bin(b, SX_LOP_SUB, t, bits(b, magic));
    uint32_t r = tri(b, SX_LOP_FNMA, n, sx_loop_set(b, 0x1.62e430p-1f), x);
    r = tri(b, SX_LOP_FNMA, n, sx_loop_set(b, -0x1.05c610p-29f), r);
    uint32_t i = bin(b, SX_LOP_ISUB, t, bits(b, magic));
    uint32_t half = un_imm(b, SX_LOP_SAR, i, 1);
    uint32_t rest = bin(b, SX_LOP_ISUB, i, half);
    uint32_t p = horner(b, r, q, SX_COUNT(q));
    p = tri(b, SX_LOP_FMA, p, r, sx_loop_set(b, 1.0f));
    p = tri(b, SX_LOP_FMA, p, r, sx_loop_set(b, 1.0f));
    p = bin(b, SX_LOP_MUL, p, power_of_two(b, half));
    return bin(b, SX_LOP_MUL, p, power_of_two(b, rest));
}

/* log x = e ln 2 + log m, m in [sqrt 1/2, sqrt 2); subnormals are scaled by 2^25 first. */
static uint32_t make_log(sx_loop_builder *b, uint32_t x)
{
    static const float c[] = {0.3333333134651184f,   -0.25000837445259094f, 0.2000129222869873f,
                              -0.16622763872146606f, 0.14199699461460114f,  -0.13164198398590088f,
                              0.1277908831834793f,   -0.07646037638187408f};
    uint32_t tiny = compare(b, x, sx_loop_set(b, 0x1p-126f), SX_LT);
    uint32_t scaled = bin(b, SX_LOP_MUL, x, sx_loop_set(b, 0x1p25f));
    uint32_t v = tri(b, SX_LOP_BLEND, tiny, scaled, x);
    uint32_t unshifted = sx_loop_set(b, 0.0f);
    uint32_t shift = tri(b, SX_LOP_BLEND, tiny, sx_loop_set(b, -25.0f), unshifted);
    uint32_t e = bin(b, SX_LOP_ISUB, v, bits(b, 0x3f3504f3u)); // sqrt 1/2
    e = un_imm(b, SX_LOP_SAR, e, 23);
    uint32_t m = bin(b, SX_LOP_ISUB, v, un_imm(b, SX_LOP_SHL, e, 23));
    uint32_t f = bin(b, SX_LOP_SUB, m, sx_loop_set(b, 1.0f));
    uint32_t n = bin(b, SX_LOP_ADD, un(b, SX_LOP_I2F, e), shift);
    uint32_t z = bin(b, SX_LOP_MUL, f, f);
    uint32_t y = horner(b, f, c, SX_COUNT(c));
    y = bin(b, SX_LOP_MUL, bin(b, SX_LOP_MUL, y, z), f);
    y = tri(b, SX_LOP_FMA, n, sx_loop_set(b, -0x1.05c610p-29f), y);
    y = tri(b, SX_LOP_FNMA, z, sx_loop_set(b, 0.5f), y);
    y = bin(b, SX_LOP_ADD, f, y);
    y = tri(b, SX_LOP_FMA, n, sx_loop_set(b, 0x1.62e430p-1f), y);
    uint32_t zero = compare(b, x, sx_loop_set(b, 0.0f), SX_EQ);
    uint32_t nan = bits(b, 0x7fc00000u);
    uint32_t odd = tri(b, SX_LOP_BLEND, zero, sx_loop_set(b, -INFINITY), nan);
    y = tri(b, SX_LOP_BLEND, compare(b, x, sx_loop_set(b, 0.0f), SX_GT), y, odd);
    uint32_t infinite = compare(b, x, sx_loop_set(b, INFINITY), SX_EQ);
    return tri(b, SX_LOP_BLEND, infinite, x, y);
}

/* x P(x^2) / Q(x^2) for |x| <= limit; the limits are the largest arguments up to which the quotient never
 * exceeds 1 in f32, and give exactly 1 there and beyond. */
static uint32_t odd_rational(sx_loop_builder *b, uint32_t x, float limit, const float *p,
                             const float *q, uint32_t n)
{
    x = clamp(b, x, -limit, limit);
    uint32_t t = bin(b, SX_LOP_MUL, x, x);
    uint32_t above = bin(b, SX_LOP_MUL, horner(b, t, p, n), x);
    return bin(b, SX_LOP_DIV, above, horner(b, t, q, n));
}

static uint32_t make_tanh(sx_loop_builder *b, uint32_t x)
{
    static const float p[] = {0x1.0p+0f, 0x1.1292a6p-3f, 0x1.ce368p-9f, 0x1.626024p-16f,
                              0x1.e3df4ap-27f};
    static const float q[] = {0x1.0p+0f, 0x1.de9eap-2f, 0x1.a9e25ep-6f, 0x1.5dd572p-12f,
                              0x1.b14a5ap-21f};
    return odd_rational(b, x, 8.18073463f, p, q, SX_COUNT(p));
}

static uint32_t make_erf(sx_loop_builder *b, uint32_t x)
{
    static const float p[] = {0x1.20dd74p+0f, 0x1.7d6fb2p-3f,  0x1.ac8736p-5f,
                              0x1.d9d40ep-9f, 0x1.2c6d3ep-12f, 0x1.20b5fap-19f};
    static const float q[] = {0x1.0p+0f,      0x1.fe5a3ep-2f,  0x1.ccc3cap-4f,
                              0x1.e09d12p-7f, 0x1.298eacp-10f, 0x1.48f304p-15f};
    return odd_rational(b, x, 3.66391349f, p, q, SX_COUNT(p));
}

static uint32_t make_logistic(sx_loop_builder *b, uint32_t x)
{
    uint32_t e = make_exp(b, bin(b, SX_LOP_XOR, x, bits(b, 0x80000000u)));
    uint32_t below = bin(b, SX_LOP_ADD, e, sx_loop_set(b, 1.0f));
    return bin(b, SX_LOP_DIV, sx_loop_set(b, 1.0f), below);
}

/* sin or cos: x = n pi/2 + r, three-part pi/2; the first step is exact for n < 2^23. */
static uint32_t make_sine(sx_loop_builder *b, uint32_t x, bool cosine)
{
    static const float s[] = {-0.1666666716337204f, 0.008333329111337662f, -0.00019839151354972273f,
                              2.716604512897902e-06f};
    static const float c[] = {0.0416666679084301f, -0.001388888224028051f, 2.479928298271261e-05f,
                              -2.719142173646105e-07f};
    const uint32_t magic = 0x4b400000u;
    uint32_t shifted = bits(b, magic);
    uint32_t t = tri(b, SX_LOP_FMA, x, sx_loop_set(b, 0.6366197466850281f), shifted);
    uint32_t n = bin(b, SX_LOP_SUB, t, bits(b, magic));
    uint32_t r = tri(b, SX_LOP_FNMA, n, sx_loop_set(b, 0x1.921fb6p+0f), x);
    r = tri(b, SX_LOP_FNMA, n, sx_loop_set(b, -0x1.777a5cp-25f), r);
    r = tri(b, SX_LOP_FNMA, n, sx_loop_set(b, -0x1.ee59dap-50f), r);
    uint32_t z = bin(b, SX_LOP_MUL, r, r);
    uint32_t sine = bin(b, SX_LOP_MUL, horner(b, z, s, SX_COUNT(s)), z);
    sine = tri(b, SX_LOP_FMA, sine, r, r);
    uint32_t at_zero = sx_loop_set(b, 1.0f);
    uint32_t cosine_r = tri(b, SX_LOP_FNMA, z, sx_loop_set(b, 0.5f), at_zero);
    uint32_t z2 = bin(b, SX_LOP_MUL, z, z);
    cosine_r = tri(b, SX_LOP_FMA, horner(b, z, c, SX_COUNT(c)), z2, cosine_r);
    uint32_t quadrant = cosine ? bin(b, SX_LOP_IADD, t, bits(b, 1)) : t;
    uint32_t one = bits(b, 1);
    uint32_t odd = sx_loop_op(b, SX_LOP_ICMP, SX_NO_REG, NULL, bin(b, SX_LOP_AND, quadrant, one),
                              one, SX_NO_REG, SX_EQ, 0);
    uint32_t v = tri(b, SX_LOP_BLEND, odd, cosine_r, sine);
    uint32_t sign = un_imm(b, SX_LOP_SHL, bin(b, SX_LOP_AND, quadrant, bits(b, 2)), 30);
    v = bin(b, SX_LOP_XOR, v, sign);
    uint32_t size = bin(b, SX_LOP_AND, x, bits(b, 0x7fffffffu));
    uint32_t inside = compare(b, size, sx_loop_set(b, 0x1p20f), SX_LE);
    return tri(b, SX_LOP_BLEND, inside, v, bits(b, 0x7fc00000u));
}

static uint32_t make_gelu(sx_loop_builder *b, uint32_t x, bool by_tanh)
{
    uint32_t inner;
    if (by_tanh) {
        uint32_t cube = bin(b, SX_LOP_MUL, bin(b, SX_LOP_MUL, x, x), x);
        inner = bin(b, SX_LOP_MUL, sx_loop_set(b, 0.044715f), cube);
        inner = bin(b, SX_LOP_ADD, x, inner);
        inner = make_tanh(b, bin(b, SX_LOP_MUL, sx_loop_set(b, 0.7978845608f), inner));
    } else {
        inner = make_erf(b, bin(b, SX_LOP_MUL, x, sx_loop_set(b, 0.70710678118f)));
    }
    inner = bin(b, SX_LOP_ADD, sx_loop_set(b, 1.0f), inner);
    return bin(b, SX_LOP_MUL, bin(b, SX_LOP_MUL, x, sx_loop_set(b, 0.5f)), inner);
}

/* ---- x^y = 2^(y log2 |x|), the logarithm and the product as unevaluated sums of two floats ---- */
typedef struct {
    uint32_t high, low;
} pair;

/* log2 of a positive finite `a`: e + log2 m, log m = 2 s + s^3 C(s^2), s = (m - 1) / (m + 1) with its rounding
 * error. */
static pair log2_pair(sx_loop_builder *b, uint32_t a)
{
    static const float c[] = {0.6666667f, 0.40000126f, 0.28550342f, 0.23343362f};
    uint32_t tiny = compare(b, a, sx_loop_set(b, 0x1p-126f), SX_LT);
    uint32_t v = tri(b, SX_LOP_BLEND, tiny, bin(b, SX_LOP_MUL, a, sx_loop_set(b, 0x1p25f)), a);
    uint32_t unshifted = sx_loop_set(b, 0.0f);
    uint32_t shift = tri(b, SX_LOP_BLEND, tiny, sx_loop_set(b, -25.0f), unshifted);
    uint32_t i = un_imm(b, SX_LOP_SAR, bin(b, SX_LOP_ISUB, v, bits(b, 0x3f3504f3u)), 23);
    uint32_t m = bin(b, SX_LOP_ISUB, v, un_imm(b, SX_LOP_SHL, i, 23));
    uint32_t e = bin(b, SX_LOP_ADD, un(b, SX_LOP_I2F, i), shift);
    uint32_t one = sx_loop_set(b, 1.0f);
    uint32_t f = bin(b, SX_LOP_SUB, m, one);
    uint32_t d = bin(b, SX_LOP_ADD, m, one);
    uint32_t d_low = bin(b, SX_LOP_SUB, m, bin(b, SX_LOP_SUB, d, one));
    uint32_t s = bin(b, SX_LOP_DIV, f, d);
    uint32_t rest = tri(b, SX_LOP_FNMA, s, d_low, tri(b, SX_LOP_FNMA, s, d, f));
    uint32_t s_low = bin(b, SX_LOP_DIV, rest, d);
    uint32_t z = bin(b, SX_LOP_MUL, s, s);
    uint32_t tail = bin(b, SX_LOP_MUL, horner(b, z, c, SX_COUNT(c)), z);
    tail = tri(b, SX_LOP_FMA, tail, s, bin(b, SX_LOP_ADD, s_low, s_low));
    uint32_t twice = bin(b, SX_LOP_ADD, s, s);
    uint32_t high = bin(b, SX_LOP_ADD, twice, tail);
    uint32_t low = bin(b, SX_LOP_SUB, tail, bin(b, SX_LOP_SUB, high, twice));
    /* times log2 e, plus the exponent */
    uint32_t product = bin(b, SX_LOP_MUL, high, sx_loop_set(b, 0x1.715476p+0f));
    uint32_t error = bin(b, SX_LOP_XOR, product, bits(b, 0x80000000u));
    error = tri(b, SX_LOP_FMA, high, sx_loop_set(b, 0x1.715476p+0f), error);
    error = tri(b, SX_LOP_FMA, high, sx_loop_set(b, 0x1.4ae0c0p-26f), error);
    error = tri(b, SX_LOP_FMA, low, sx_loop_set(b, 0x1.715476p+0f), error);
    uint32_t sum = bin(b, SX_LOP_ADD, e, product);
    uint32_t lost = bin(b, SX_LOP_SUB, product, bin(b, SX_LOP_SUB, sum, e));
    return (pair){sum, bin(b, SX_LOP_ADD, lost, error)};
}

/* 2^(y * log), the product with its rounding error; 0 and infinity beyond the range. */
static uint32_t exp2_product(sx_loop_builder *b, uint32_t y, pair log)
{
    static const float c[] = {0x1.62e430p-1f, 0x1.ebfbdcp-3f,  0x1.c6aed8p-5f,
                              0x1.3b2d68p-7f, 0x1.5f4706p-10f, 0x1.41f61ep-13f};
    const uint32_t magic = 0x4b400000u;
    uint32_t q = bin(b, SX_LOP_MUL, y, log.high);
    uint32_t low = bin(b, SX_LOP_XOR, q, bits(b, 0x80000000u));
    low = tri(b, SX_LOP_FMA, y, log.low, tri(b, SX_LOP_FMA, y, log.high, low));
    uint32_t size = bin(b, SX_LOP_AND, q, bits(b, 0x7fffffffu));
    uint32_t inside = compare(b, size, sx_loop_set(b, 160.0f), SX_LT);
    low = tri(b, SX_LOP_BLEND, inside, low, sx_loop_set(b, 0.0f));
    q = clamp(b, q, -254.0f, 130.0f);
    uint32_t t = bin(b, SX_LOP_ADD, q, bits(b, magic));
    uint32_t f = bin(b, SX_LOP_SUB, q, bin(b, SX_LOP_SUB, t, bits(b, magic)));
    f = bin(b, SX_LOP_ADD, f, low);
    uint32_t i = bin(b, SX_LOP_ISUB, t, bits(b, magic));
    uint32_t half = un_imm(b, SX_LOP_SAR, i, 1);
    uint32_t rest = bin(b, SX_LOP_ISUB, i, half);
    uint32_t one = sx_loop_set(b, 1.0f);
    uint32_t p = tri(b, SX_LOP_FMA, horner(b, f, c, SX_COUNT(c)), f, one);
    p = bin(b, SX_LOP_MUL, p, power_of_two(b, half));
    return bin(b, SX_LOP_MUL, p, power_of_two(b, rest));
}

/* The cases of C11 F.10.4.4, from the rarest up: |x| = 0 or infinity, |x| = 1, the sign of odd powers, NaN, y
 * = 0 and x = 1. */
static uint32_t make_power(sx_loop_builder *b, uint32_t x, uint32_t y)
{
    uint32_t a = bin(b, SX_LOP_AND, x, bits(b, 0x7fffffffu));
    uint32_t v = exp2_product(b, y, log2_pair(b, a));
    uint32_t zero = sx_loop_set(b, 0.0f);
    uint32_t one = sx_loop_set(b, 1.0f);
    uint32_t infinity = sx_loop_set(b, INFINITY);
    uint32_t up = compare(b, y, zero, SX_GT);
    uint32_t at_zero = tri(b, SX_LOP_BLEND, up, zero, infinity);
    uint32_t at_infinity = tri(b, SX_LOP_BLEND, up, infinity, zero);
    v = tri(b, SX_LOP_BLEND, compare(b, a, zero, SX_EQ), at_zero, v);
    v = tri(b, SX_LOP_BLEND, compare(b, a, infinity, SX_EQ), at_infinity, v);
    v = tri(b, SX_LOP_BLEND, compare(b, a, one, SX_EQ), one, v);
    /* y odd: an integer whose half is none */
    uint32_t half = bin(b, SX_LOP_MUL, y, sx_loop_set(b, 0.5f));
    uint32_t whole = compare(b, un_imm(b, SX_LOP_ROUND, y, 3), y, SX_EQ);
    uint32_t odd = compare(b, un_imm(b, SX_LOP_ROUND, half, 3), half, SX_NE);
    uint32_t sign = bin(b, SX_LOP_AND, x, bits(b, 0x80000000u));
    sign = tri(b, SX_LOP_BLEND, bin(b, SX_LOP_MAND, whole, odd), sign, zero);
    v = bin(b, SX_LOP_XOR, v, sign);
    uint32_t finite = compare(b, x, sx_loop_set(b, -INFINITY), SX_GT);
    uint32_t undefined = bin(b, SX_LOP_MAND, compare(b, x, zero, SX_LT), finite);
    undefined = bin(b, SX_LOP_MAND, undefined, un(b, SX_LOP_MNOT, whole));
    undefined = bin(b, SX_LOP_MOR, undefined, compare(b, x, x, SX_NE));
    undefined = bin(b, SX_LOP_MOR, undefined, compare(b, y, y, SX_NE));
    v = tri(b, SX_LOP_BLEND, undefined, bits(b, 0x7fc00000u), v);
    uint32_t of_one = compare(b, x, one, SX_EQ);
    uint32_t unit = bin(b, SX_LOP_MOR, compare(b, y, zero, SX_EQ), of_one);
    return tri(b, SX_LOP_BLEND, unit, one, v);
}

static uint32_t make_rsqrt(sx_loop_builder *b, uint32_t x)
{
    uint32_t root = un(b, SX_LOP_SQRT, x);
    return bin(b, SX_LOP_DIV, sx_loop_set(b, 1.0f), root);
}

static uint32_t make_sign(sx_loop_builder *b, uint32_t x)
{
    uint32_t zero = sx_loop_set(b, 0.0f);
    uint32_t one = sx_loop_set(b, 1.0f);
    uint32_t v = tri(b, SX_LOP_BLEND, compare(b, x, zero, SX_GT), one, x);
    uint32_t minus_one = sx_loop_set(b, -1.0f);
    return tri(b, SX_LOP_BLEND, compare(b, x, zero, SX_LT), minus_one, v);
}

static uint32_t refuse(sx_loop_builder *b, sx_op op)
{
    if (b->code == SX_OK) {
        b->code = SX_FAIL(b->cx, SX_UNIMPLEMENTED, "kernel %s: %s on f32 has no vector form",
                          b->kernel->name, sx_op_info_of(op)->name);
    }
    return 0;
}

/* max and min give the second operand where either is NaN: the first has to be looked at. */
uint32_t sx_loop_order(sx_loop_builder *b, sx_lop lop, uint32_t dst, uint32_t x, uint32_t y)
{
    uint32_t nan = compare(b, x, x, SX_NE);
    uint32_t either = bin(b, lop, x, y);
    return sx_loop_op(b, SX_LOP_BLEND, dst, NULL, nan, x, either, 0, 0);
}

static uint32_t apply_binary(sx_loop_builder *b, sx_op op, uint32_t x, uint32_t y)
{
    switch (op) {
    case SX_OP_ADD: return bin(b, SX_LOP_ADD, x, y);
    case SX_OP_SUBTRACT: return bin(b, SX_LOP_SUB, x, y);
    case SX_OP_MULTIPLY: return bin(b, SX_LOP_MUL, x, y);
    case SX_OP_DIVIDE: return bin(b, SX_LOP_DIV, x, y);
    case SX_OP_MAXIMUM:
    case SX_OP_MINIMUM:
        return sx_loop_order(b, op == SX_OP_MAXIMUM ? SX_LOP_MAX : SX_LOP_MIN, SX_NO_REG, x, y);
    case SX_OP_POWER: return make_power(b, x, y);
    case SX_OP_AND: return bin(b, SX_LOP_MAND, x, y);
    case SX_OP_OR: return bin(b, SX_LOP_MOR, x, y);
    case SX_OP_XOR: return bin(b, SX_LOP_MXOR, x, y);
    default: return refuse(b, op);
    }
}

uint32_t sx_loop_apply(sx_loop_builder *b, sx_op op, sx_direction direction, uint32_t x, uint32_t y,
                       uint32_t z)
{
    if (b->code != SX_OK) {
        return 0;
    }
    switch (op) {
    case SX_OP_NEGATE: return bin(b, SX_LOP_XOR, x, bits(b, 0x80000000u));
    case SX_OP_ABS: return bin(b, SX_LOP_AND, x, bits(b, 0x7fffffffu));
    case SX_OP_EXP: return make_exp(b, x);
    case SX_OP_LOG: return make_log(b, x);
    case SX_OP_SQRT: return un(b, SX_LOP_SQRT, x);
    case SX_OP_RSQRT: return make_rsqrt(b, x);
    case SX_OP_TANH: return make_tanh(b, x);
    case SX_OP_ERF: return make_erf(b, x);
    case SX_OP_LOGISTIC: return make_logistic(b, x);
    case SX_OP_SIN: return make_sine(b, x, false);
    case SX_OP_COS: return make_sine(b, x, true);
    case SX_OP_FLOOR: return un_imm(b, SX_LOP_ROUND, x, 1);
    case SX_OP_CEIL: return un_imm(b, SX_LOP_ROUND, x, 2);
    case SX_OP_ROUND: return un_imm(b, SX_LOP_ROUND, x, 0);
    case SX_OP_SIGN: return make_sign(b, x);
    case SX_OP_NOT: return un(b, SX_LOP_MNOT, x);
    case SX_OP_RELU: return bin(b, SX_LOP_MAX, sx_loop_set(b, 0.0f), x);
    case SX_OP_GELU: return make_gelu(b, x, false);
    case SX_OP_GELU_TANH: return make_gelu(b, x, true);
    case SX_OP_SILU: return bin(b, SX_LOP_MUL, x, make_logistic(b, x));
    case SX_OP_COMPARE: return compare(b, x, y, direction);
    case SX_OP_SELECT: return tri(b, SX_LOP_BLEND, x, y, z);
    default: return apply_binary(b, op, x, y);
    }
}
