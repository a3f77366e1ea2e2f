/* math_wide.c - elementwise operations on f64 as instruction sequences: math.c for lanes of 8 bytes.
 *
 * Largest error against the exact value, in units of the last place of the result (held by
 * tests/core/loop/test_math_wide.c): exp 1.5 (subnormal results too), log 1.5, logistic 3 where the result is
 * normal, silu 4 for arguments above -709.7 (below them it is -0, off by less than 2^-1014), tanh 4, sqrt 0.5,
 * rsqrt 1.5, erf 1.5, power 1.5; sine and cosine 1.5 or 2^-75 absolute for |x| <= 2^24, and NaN beyond; gelu 4 or
 * |x| 2^-53, gelu_tanh 4 or 2.75 |x| 2^-53: both are the sequences of their decompositions. NaN arguments give NaN, but
 * for the powers that C11 F.10.4.4 makes 1. The reduction of exp, log and angles follows Cody and Waite 1980; the
 * series are Taylor's, but for erf beyond 1. */
#include <math.h>

#include "core/loop/loop.h"

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

static uint32_t set(sx_loop_builder *b, double value)
{
    return sx_loop_set_wide(b, value);
}

static uint32_t compare(sx_loop_builder *b, uint32_t x, uint32_t y, sx_direction direction)
{
    return sx_loop_op(b, SX_LOP_CMP, SX_NO_REG, NULL, x, y, SX_NO_REG, (uint32_t)direction, 0);
}

static uint32_t clamp(sx_loop_builder *b, uint32_t x, double low, double high)
{
    x = bin(b, SX_LOP_MAX, set(b, low), x);
    return bin(b, SX_LOP_MIN, set(b, high), x);
}

#define MAGIC 0x1.8p52 /* the sum with a whole number has it in its low bits */
#define LN2_HIGH 0x1.62e42fefa0000p-1
#define LN2_LOW 0x1.cf79abc9e3b3ap-40

/* 2^i for integers in [-1022, 1023], and 0 of -1023. */
static uint32_t power_of_two(sx_loop_builder *b, uint32_t i)
{
    uint32_t one = set(b, 1);
    return bin(b, SX_LOP_IADD, un_imm(b, SX_LOP_SHL, i, 52), one);
}

/* Halves a small integer, toward minus infinity: there is no arithmetic shift of 8 bytes. */
static uint32_t half_of(sx_loop_builder *b, uint32_t i)
{
    uint32_t up = bin(b, SX_LOP_IADD, i, sx_loop_bits(b, 4096));
    uint32_t down = sx_loop_bits(b, 2048);
    return bin(b, SX_LOP_ISUB, un_imm(b, SX_LOP_SHR, up, 1), down);
}

/* (e^r - 1) / r of |r| <= ln 2 / 2: 1 + r/2! + r^2/3! + ... */
static uint32_t series(sx_loop_builder *b, uint32_t r)
{
    double factor = 1;
    for (uint32_t n = 2; n <= 14; n++) {
        factor *= n;
    }
    uint32_t p = set(b, 1 / factor);
    for (uint32_t n = 14; n >= 2; n--) {
        factor /= n;
        p = tri(b, SX_LOP_FMA, p, r, set(b, 1 / factor));
    }
    return p;
}

/* e^(x + low) = 2^n e^r of x in [-1418, 720]; the factor is applied in two halves, so that one rounding makes
 * subnormal results and overflow gives infinity. Without `low` it is SX_NO_REG. */
static uint32_t exp_of(sx_loop_builder *b, uint32_t x, uint32_t low)
{
    uint32_t shifted = set(b, MAGIC);
    uint32_t t = tri(b, SX_LOP_FMA, x, set(b, 0x1.71547652b82fep+0), shifted);
    uint32_t n = bin(b, SX_LOP_SUB, t, set(b, MAGIC));
    uint32_t r = tri(b, SX_LOP_FNMA, n, set(b, LN2_HIGH), x);
    r = tri(b, SX_LOP_FNMA, n, set(b, LN2_LOW), r);
    r = low == SX_NO_REG ? r : bin(b, SX_LOP_ADD, r, low);
    uint32_t i = bin(b, SX_LOP_ISUB, t, set(b, MAGIC));
    uint32_t half = half_of(b, i);
    uint32_t rest = bin(b, SX_LOP_ISUB, i, half);
    uint32_t one = set(b, 1);
    uint32_t p = tri(b, SX_LOP_FMA, series(b, r), r, one);
    p = bin(b, SX_LOP_MUL, p, power_of_two(b, half));
    return bin(b, SX_LOP_MUL, p, power_of_two(b, rest));
}

static uint32_t make_exp(sx_loop_builder *b, uint32_t x)
{
    return exp_of(b, clamp(b, x, -1418, 720), SX_NO_REG);
}

/* A positive number is 2^exponent times a fraction in [sqrt 1/2, sqrt 2); subnormals are scaled first. */
typedef struct {
    uint32_t exponent, fraction; /* both as floats */
} split_number;

static split_number split_of(sx_loop_builder *b, uint32_t x)
{
    const uint64_t root = UINT64_C(0x3FE6A09E667F3BCD); /* sqrt 1/2 */
    uint32_t tiny = compare(b, x, set(b, 0x1p-1022), SX_LT);
    uint32_t v = tri(b, SX_LOP_BLEND, tiny, bin(b, SX_LOP_MUL, x, set(b, 0x1p54)), x);
    uint32_t unshifted = set(b, -2048);
    uint32_t shift = tri(b, SX_LOP_BLEND, tiny, set(b, -54 - 2048), unshifted);
    /* the exponent, 2048 more so that it is positive under a logical shift */
    uint32_t e = bin(b, SX_LOP_ISUB, v, sx_loop_bits(b, root));
    e = bin(b, SX_LOP_XOR, e, sx_loop_bits(b, UINT64_C(1) << 63));
    e = un_imm(b, SX_LOP_SHR, e, 52);
    uint32_t scale = un_imm(b, SX_LOP_SHL, bin(b, SX_LOP_ISUB, e, sx_loop_bits(b, 2048)), 52);
    uint32_t n = bin(b, SX_LOP_OR, e, set(b, 0x1p52));
    n = bin(b, SX_LOP_ADD, bin(b, SX_LOP_SUB, n, set(b, 0x1p52)), shift);
    return (split_number){n, bin(b, SX_LOP_ISUB, v, scale)};
}

/* log x = n ln 2 + 2 artanh s, s = (m - 1) / (m + 1). 2 artanh s = f - s (f - 2 s^2/3 (1 + ...)), f = m - 1. */
static uint32_t make_log(sx_loop_builder *b, uint32_t x)
{
    split_number split = split_of(b, x);
    uint32_t n = split.exponent;
    uint32_t m = split.fraction;
    uint32_t f = bin(b, SX_LOP_SUB, m, set(b, 1));
    uint32_t s = bin(b, SX_LOP_DIV, f, bin(b, SX_LOP_ADD, m, set(b, 1)));
    uint32_t z = bin(b, SX_LOP_MUL, s, s);
    uint32_t p = set(b, 2.0 / 23);
    for (uint32_t k = 21; k >= 3; k -= 2) {
        p = tri(b, SX_LOP_FMA, p, z, set(b, 2.0 / k));
    }
    uint32_t half = set(b, 0.5);
    half = bin(b, SX_LOP_MUL, bin(b, SX_LOP_MUL, f, f), half);
    uint32_t tail =
        tri(b, SX_LOP_FMA, p, z, half); /* p z is R, log(1 + f) = f - (half - s (half + R)) */
    uint32_t low = tri(b, SX_LOP_FMA, s, tail, bin(b, SX_LOP_MUL, n, set(b, LN2_LOW)));
    uint32_t y = bin(b, SX_LOP_SUB, f, bin(b, SX_LOP_SUB, half, low));
    y = tri(b, SX_LOP_FMA, n, set(b, LN2_HIGH), y);
    uint32_t zero = compare(b, x, set(b, 0), SX_EQ);
    uint32_t nan = set(b, (double)NAN);
    uint32_t odd = tri(b, SX_LOP_BLEND, zero, set(b, -HUGE_VAL), nan);
    y = tri(b, SX_LOP_BLEND, compare(b, x, set(b, 0), SX_GT), y, odd);
    return tri(b, SX_LOP_BLEND, compare(b, x, set(b, HUGE_VAL), SX_EQ), x, y);
}

static uint32_t sign_bits(sx_loop_builder *b, uint32_t x)
{
    return bin(b, SX_LOP_AND, x, set(b, -0.0));
}

static uint32_t size_of(sx_loop_builder *b, uint32_t x)
{
    return bin(b, SX_LOP_AND, x, sx_loop_bits(b, UINT64_MAX >> 1));
}

/* tanh |x| = t / (t + 2), t = e^(2 |x|) - 1, which is 2^n (r S(r) + 1) - 1 with one rounding more. */
static uint32_t make_tanh(sx_loop_builder *b, uint32_t x)
{
    uint32_t a = clamp(b, size_of(b, x), 0, 22);
    a = bin(b, SX_LOP_ADD, a, a);
    uint32_t shifted = set(b, MAGIC);
    uint32_t t = tri(b, SX_LOP_FMA, a, set(b, 0x1.71547652b82fep+0), shifted);
    uint32_t n = bin(b, SX_LOP_SUB, t, set(b, MAGIC));
    uint32_t r = tri(b, SX_LOP_FNMA, n, set(b, LN2_HIGH), a);
    r = tri(b, SX_LOP_FNMA, n, set(b, LN2_LOW), r);
    uint32_t power = power_of_two(b, bin(b, SX_LOP_ISUB, t, set(b, MAGIC)));
    uint32_t less = bin(b, SX_LOP_MUL, series(b, r), r); /* e^r - 1 */
    uint32_t one_less = bin(b, SX_LOP_SUB, power, set(b, 1));
    uint32_t e = tri(b, SX_LOP_FMA, less, power, one_less);
    uint32_t y = bin(b, SX_LOP_DIV, e, bin(b, SX_LOP_ADD, e, set(b, 2)));
    return bin(b, SX_LOP_OR, y, sign_bits(b, x));
}

static uint32_t make_logistic(sx_loop_builder *b, uint32_t x)
{
    uint32_t e = make_exp(b, bin(b, SX_LOP_XOR, x, set(b, -0.0)));
    uint32_t below = bin(b, SX_LOP_ADD, e, set(b, 1));
    return bin(b, SX_LOP_DIV, set(b, 1), below);
}

/* ---- erf ---- */
/* coefficient[n - 1] t^(n - 1) + ... + coefficient[0] by Horner's rule. */
static uint32_t horner(sx_loop_builder *b, uint32_t t, const double *coefficient, uint32_t n)
{
    uint32_t p = set(b, coefficient[n - 1]);
    for (uint32_t i = n - 1; i-- > 0;) {
        p = tri(b, SX_LOP_FMA, p, t, set(b, coefficient[i]));
    }
    return p;
}

/* erf x of |x| <= 1: Taylor's series 2/sqrt pi (x - x^3/3 + x^5/10 - ...) to x^37; the next term is below 2^-61 of
 * the sum. The leading factor has two parts, so that the last addition is the one rounding that counts. */
static uint32_t erf_near(sx_loop_builder *b, uint32_t x)
{
    const double leading = 0x1.20dd750429b6dp+0;
    double c[19];
    double factorial = 1;
    c[0] = 0x1.1ae3a914fed80p-56; /* what 2/sqrt pi is beside the leading part */
    for (uint32_t n = 1; n < SX_COUNT(c); n++) {
        factorial *= n;
        c[n] = (n % 2 == 0 ? leading : -leading) / (factorial * (2 * n + 1));
    }
    uint32_t rest = horner(b, bin(b, SX_LOP_MUL, x, x), c, SX_COUNT(c));
    rest = bin(b, SX_LOP_MUL, x, rest);
    return tri(b, SX_LOP_FMA, x, set(b, leading), rest);
}

/* 1 - erf a of 1 <= a <= 6: e^(-a^2) G, G = e^(a^2) (1 - erf a) as a polynomial in s = A / (a + 2) + B, which is
 * in [-1, 1]. It interpolates G in 18 Chebyshev points, and its largest error is 2.4e-19. */
static uint32_t erfc_far(sx_loop_builder *b, uint32_t a)
{
    static const double c[] = {
        0x1.c57cd9cd3f3abp-3,   0x1.4b8edae15a042p-3,   0x1.3be3609c853a9p-5,
        0x1.6e44c72762edep-8,   0x1.9d6e4a467b08ap-13,  -0x1.52ddf8014afffp-14,
        -0x1.ec9d23526a7fep-18, 0x1.09b139e01e50cp-19,  0x1.5f1cbcf432508p-23,
        -0x1.2ce04abf72b0bp-24, -0x1.439a8a043b7c7p-31, 0x1.68a3e08dfcbb3p-29,
        -0x1.2767247ad4a64p-32, -0x1.43b96367207b5p-34, 0x1.851410b153c21p-36,
        -0x1.396f93c3195c6p-43, -0x1.065ff0aa057ecp-40, 0x1.4669b17eea8e2p-43};
    uint32_t s = bin(b, SX_LOP_ADD, a, set(b, 2));
    s = bin(b, SX_LOP_DIV, set(b, 1), s);
    uint32_t shift = set(b, -0x1.199999999999ap+1);
    s = tri(b, SX_LOP_FMA, s, set(b, 0x1.3333333333333p+3), shift);
    uint32_t square = bin(b, SX_LOP_MUL, a, a);
    uint32_t e = make_exp(b, bin(b, SX_LOP_XOR, square, set(b, -0.0)));
    return bin(b, SX_LOP_MUL, e, horner(b, s, c, SX_COUNT(c)));
}

static uint32_t make_erf(sx_loop_builder *b, uint32_t x)
{
    uint32_t size = size_of(b, x);
    uint32_t far = erfc_far(b, clamp(b, size, 1, 6));
    far = bin(b, SX_LOP_SUB, set(b, 1), far);
    far = bin(b, SX_LOP_OR, far, sign_bits(b, x));
    uint32_t near = erf_near(b, x);
    return tri(b, SX_LOP_BLEND, compare(b, size, set(b, 1), SX_LT), near, far);
}

static uint32_t make_gelu(sx_loop_builder *b, uint32_t x, bool by_tanh)
{
    uint32_t inner;
    if (by_tanh) {
        uint32_t cube = bin(b, SX_LOP_MUL, bin(b, SX_LOP_MUL, x, x), x);
        inner = bin(b, SX_LOP_ADD, x, bin(b, SX_LOP_MUL, set(b, 0.044715), cube));
        inner = make_tanh(b, bin(b, SX_LOP_MUL, set(b, 0.7978845608028654), inner));
    } else {
        inner = make_erf(b, bin(b, SX_LOP_MUL, x, set(b, 0.7071067811865476)));
    }
    inner = bin(b, SX_LOP_ADD, set(b, 1), inner);
    return bin(b, SX_LOP_MUL, bin(b, SX_LOP_MUL, x, set(b, 0.5)), inner);
}

/* ---- sine and cosine ---- */
/* An unevaluated sum; |low| is at most a unit in the last place of high. */
typedef struct {
    uint32_t high, low;
} pair;

/* x - n pi/2 with |n| < 2^24: pi/2 in parts of 29, 29 and 53 bits, so that n times one of the first two is exact, as
 * is the first difference; the rounding error of the second is found and goes into the low part. */
static pair reduce_angle(sx_loop_builder *b, uint32_t x, uint32_t n)
{
    uint32_t part = set(b, 0x1.10b4611p-30);
    uint32_t first = tri(b, SX_LOP_FNMA, n, set(b, 0x1.921fb54p+0), x);
    uint32_t second = tri(b, SX_LOP_FNMA, n, part, first);
    uint32_t lost = tri(b, SX_LOP_FNMA, n, part, bin(b, SX_LOP_SUB, first, second));
    uint32_t tail = tri(b, SX_LOP_FNMA, n, set(b, 0x1.4c4c6628b80dcp-59), lost);
    uint32_t y = bin(b, SX_LOP_ADD, second, tail);
    return (pair){y, bin(b, SX_LOP_SUB, tail, bin(b, SX_LOP_SUB, y, second))};
}

/* 1/first! - z/(first + 2)! + ..., `terms` of them. */
static uint32_t alternating(sx_loop_builder *b, uint32_t z, uint32_t first, uint32_t terms)
{
    double c[16];
    double factorial = 1;
    SX_ASSERT(terms <= SX_COUNT(c));
    for (uint32_t n = 2; n <= first; n++) {
        factorial *= n;
    }
    for (uint32_t k = 0; k < terms; k++) {
        c[k] = (k % 2 == 0 ? 1 : -1) / factorial;
        factorial *= (double)(first + 2 * k + 1) * (double)(first + 2 * k + 2);
    }
    return horner(b, z, c, terms);
}

/* Taylor's series on [-pi/4, pi/4], of which the first terms left out are x^19/19! and x^18/18!; the derivative takes
 * the low part of the angle in. */
static uint32_t make_sine(sx_loop_builder *b, uint32_t x, bool cosine)
{
    uint32_t shifted = set(b, MAGIC);
    uint32_t t = tri(b, SX_LOP_FMA, x, set(b, 0x1.45f306dc9c883p-1), shifted);
    pair r = reduce_angle(b, x, bin(b, SX_LOP_SUB, t, set(b, MAGIC)));
    uint32_t z = bin(b, SX_LOP_MUL, r.high, r.high);
    uint32_t half = bin(b, SX_LOP_MUL, z, set(b, 0.5));
    uint32_t less = bin(b, SX_LOP_SUB, set(b, 1), half);
    uint32_t minus = set(b, -0.0);
    uint32_t cube = bin(b, SX_LOP_XOR, bin(b, SX_LOP_MUL, z, r.high), minus);
    uint32_t sine = bin(b, SX_LOP_MUL, r.low, less);
    sine = tri(b, SX_LOP_FMA, cube, alternating(b, z, 3, 8), sine);
    sine = bin(b, SX_LOP_ADD, r.high, sine);
    uint32_t rest = bin(b, SX_LOP_SUB, bin(b, SX_LOP_SUB, set(b, 1), less), half);
    rest = tri(b, SX_LOP_FNMA, r.high, r.low, rest);
    uint32_t terms = alternating(b, z, 4, 7);
    rest = tri(b, SX_LOP_FMA, bin(b, SX_LOP_MUL, z, z), terms, rest);
    uint32_t other = bin(b, SX_LOP_ADD, less, rest);
    uint32_t one = sx_loop_bits(b, 1);
    uint32_t quadrant = cosine ? bin(b, SX_LOP_IADD, t, one) : t;
    uint32_t odd = sx_loop_op(b, SX_LOP_ICMP, SX_NO_REG, NULL, bin(b, SX_LOP_AND, quadrant, one),
                              one, SX_NO_REG, SX_EQ, 0);
    uint32_t v = tri(b, SX_LOP_BLEND, odd, other, sine);
    uint32_t sign = bin(b, SX_LOP_AND, quadrant, sx_loop_bits(b, 2));
    v = bin(b, SX_LOP_XOR, v, un_imm(b, SX_LOP_SHL, sign, 62));
    if (!cosine) { /* the sign of zero */
        v = tri(b, SX_LOP_BLEND, compare(b, x, set(b, 0), SX_EQ), x, v);
    }
    uint32_t limit = set(b, 0x1p24);
    uint32_t inside = compare(b, size_of(b, x), limit, SX_LE);
    return tri(b, SX_LOP_BLEND, inside, v, set(b, (double)NAN));
}

/* ---- x^y = e^(y log |x|), the logarithm and the product as pairs ---- */
static pair sum_of(sx_loop_builder *b, uint32_t large, uint32_t small)
{
    uint32_t sum = bin(b, SX_LOP_ADD, large, small);
    return (pair){sum, bin(b, SX_LOP_ADD, bin(b, SX_LOP_SUB, large, sum), small)};
}

static pair product_of(sx_loop_builder *b, uint32_t x, uint32_t y)
{
    uint32_t product = bin(b, SX_LOP_MUL, x, y);
    uint32_t error = bin(b, SX_LOP_XOR, product, set(b, -0.0));
    return (pair){product, tri(b, SX_LOP_FMA, x, y, error)};
}

/* log m of m in [sqrt 1/2, sqrt 2): 2 s (1 + u), s = (m - 1) / (m + 1) with its rounding error, u = z/3 + z^2/5 +
 * ... of z = s^2. u is a pair up to z/3; what follows is less than 2^-12 of the logarithm and needs no second part. */
static pair log_near_one(sx_loop_builder *b, uint32_t m)
{
    const double third = 1.0 / 3;
    double c[11];
    for (uint32_t k = 0; k < SX_COUNT(c); k++) {
        c[k] = 1.0 / (2 * k + 5);
    }
    uint32_t one = set(b, 1);
    uint32_t f = bin(b, SX_LOP_SUB, m, one);
    uint32_t d = bin(b, SX_LOP_ADD, m, one);
    uint32_t d_low = bin(b, SX_LOP_SUB, m, bin(b, SX_LOP_SUB, d, one));
    uint32_t s = bin(b, SX_LOP_DIV, f, d);
    uint32_t rest = tri(b, SX_LOP_FNMA, s, d_low, tri(b, SX_LOP_FNMA, s, d, f));
    uint32_t twice = bin(b, SX_LOP_ADD, s, s);
    uint32_t twice_low = bin(b, SX_LOP_DIV, bin(b, SX_LOP_ADD, rest, rest), d);
    pair z = product_of(b, s, s);
    z.low = tri(b, SX_LOP_FMA, s, twice_low, z.low);
    pair u = product_of(b, z.high, set(b, third));
    u.low = tri(b, SX_LOP_FMA, z.low, set(b, third), u.low);
    u.low = tri(b, SX_LOP_FMA, z.high, set(b, 0x1.5555555555555p-56), u.low); /* 1/3 - third */
    uint32_t tail = bin(b, SX_LOP_MUL, z.high, z.high);
    tail = bin(b, SX_LOP_MUL, tail, horner(b, z.high, c, SX_COUNT(c)));
    pair all = sum_of(b, u.high, tail);
    all.low = bin(b, SX_LOP_ADD, all.low, u.low);
    pair w = product_of(b, twice, all.high);
    w.low = tri(b, SX_LOP_FMA, twice, all.low, w.low);
    w.low = bin(b, SX_LOP_ADD, w.low, tri(b, SX_LOP_FMA, twice_low, all.high, twice_low));
    pair log = sum_of(b, twice, w.high);
    log.low = bin(b, SX_LOP_ADD, log.low, w.low);
    return log;
}

static pair log_pair(sx_loop_builder *b, uint32_t a)
{
    split_number split = split_of(b, a);
    pair near = log_near_one(b, split.fraction);
    pair log = sum_of(b, bin(b, SX_LOP_MUL, split.exponent, set(b, LN2_HIGH)), near.high);
    uint32_t low = tri(b, SX_LOP_FMA, split.exponent, set(b, LN2_LOW), near.low);
    log.low = bin(b, SX_LOP_ADD, log.low, low);
    return log;
}

/* e^(y log): 0 and infinity beyond the range. No logarithm but 0 is below 2^-53 in size, so that beyond 2^64 the size
 * of y makes no difference. */
static uint32_t exp_product(sx_loop_builder *b, uint32_t y, pair log)
{
    y = clamp(b, y, -0x1p64, 0x1p64);
    pair q = product_of(b, y, log.high);
    q.low = clamp(b, tri(b, SX_LOP_FMA, y, log.low, q.low), -1, 1);
    return exp_of(b, clamp(b, q.high, -1418, 720), q.low);
}

/* The cases of C11 F.10.4.4 as math.c has them, from the rarest up. */
static uint32_t make_power(sx_loop_builder *b, uint32_t x, uint32_t y)
{
    uint32_t a = size_of(b, x);
    uint32_t v = exp_product(b, y, log_pair(b, a));
    uint32_t zero = set(b, 0);
    uint32_t one = set(b, 1);
    uint32_t infinity = set(b, HUGE_VAL);
    uint32_t up = compare(b, y, zero, SX_GT);
    uint32_t at_zero = tri(b, SX_LOP_BLEND, up, zero, infinity);
    uint32_t at_infinity = tri(b, SX_LOP_BLEND, up, infinity, zero);
    v = tri(b, SX_LOP_BLEND, compare(b, a, zero, SX_EQ), at_zero, v);
    v = tri(b, SX_LOP_BLEND, compare(b, a, infinity, SX_EQ), at_infinity, v);
    v = tri(b, SX_LOP_BLEND, compare(b, a, one, SX_EQ), one, v);
    /* y odd: an integer whose half is none */
    uint32_t half = bin(b, SX_LOP_MUL, y, set(b, 0.5));
    uint32_t whole = compare(b, un_imm(b, SX_LOP_ROUND, y, 3), y, SX_EQ);
    uint32_t odd = compare(b, un_imm(b, SX_LOP_ROUND, half, 3), half, SX_NE);
    odd = bin(b, SX_LOP_MAND, whole, odd);
    v = bin(b, SX_LOP_XOR, v, tri(b, SX_LOP_BLEND, odd, sign_bits(b, x), zero));
    uint32_t finite = compare(b, x, set(b, -HUGE_VAL), SX_GT);
    uint32_t undefined = bin(b, SX_LOP_MAND, compare(b, x, zero, SX_LT), finite);
    undefined = bin(b, SX_LOP_MAND, undefined, un(b, SX_LOP_MNOT, whole));
    undefined = bin(b, SX_LOP_MOR, undefined, compare(b, x, x, SX_NE));
    undefined = bin(b, SX_LOP_MOR, undefined, compare(b, y, y, SX_NE));
    v = tri(b, SX_LOP_BLEND, undefined, set(b, (double)NAN), v);
    uint32_t of_one = compare(b, x, one, SX_EQ);
    uint32_t unit = bin(b, SX_LOP_MOR, compare(b, y, zero, SX_EQ), of_one);
    return tri(b, SX_LOP_BLEND, unit, one, v);
}

static uint32_t make_rsqrt(sx_loop_builder *b, uint32_t x)
{
    uint32_t root = un(b, SX_LOP_SQRT, x);
    return bin(b, SX_LOP_DIV, set(b, 1), root);
}

static uint32_t make_sign(sx_loop_builder *b, uint32_t x)
{
    uint32_t one = set(b, 1);
    uint32_t v = tri(b, SX_LOP_BLEND, compare(b, x, set(b, 0), SX_GT), one, x);
    uint32_t minus_one = set(b, -1);
    return tri(b, SX_LOP_BLEND, compare(b, x, set(b, 0), SX_LT), minus_one, v);
}

uint32_t sx_loop_apply_wide(sx_loop_builder *b, sx_op op, uint32_t x, uint32_t y)
{
    switch ((int)op) {
    case SX_OP_ADD: return bin(b, SX_LOP_ADD, x, y);
    case SX_OP_SUBTRACT: return bin(b, SX_LOP_SUB, x, y);
    case SX_OP_MULTIPLY: return bin(b, SX_LOP_MUL, x, y);
    case SX_OP_DIVIDE: return bin(b, SX_LOP_DIV, x, y);
    case SX_OP_MAXIMUM:
    case SX_OP_MINIMUM:
        return sx_loop_order(b, op == SX_OP_MAXIMUM ? SX_LOP_MAX : SX_LOP_MIN, SX_NO_REG, x, y);
    case SX_OP_NEGATE: return bin(b, SX_LOP_XOR, x, set(b, -0.0));
    case SX_OP_ABS: return size_of(b, x);
    case SX_OP_SQRT: return un(b, SX_LOP_SQRT, x);
    case SX_OP_RSQRT: return make_rsqrt(b, x);
    case SX_OP_EXP: return make_exp(b, x);
    case SX_OP_LOG: return make_log(b, x);
    case SX_OP_TANH: return make_tanh(b, x);
    case SX_OP_LOGISTIC: return make_logistic(b, x);
    case SX_OP_ERF: return make_erf(b, x);
    case SX_OP_SIN: return make_sine(b, x, false);
    case SX_OP_COS: return make_sine(b, x, true);
    case SX_OP_POWER: return make_power(b, x, y);
    case SX_OP_GELU: return make_gelu(b, x, false);
    case SX_OP_GELU_TANH: return make_gelu(b, x, true);
    case SX_OP_SILU: return bin(b, SX_LOP_MUL, x, make_logistic(b, x));
    case SX_OP_RELU: return bin(b, SX_LOP_MAX, set(b, 0), x);
    case SX_OP_FLOOR: return un_imm(b, SX_LOP_ROUND, x, 1);
    case SX_OP_CEIL: return un_imm(b, SX_LOP_ROUND, x, 2);
    case SX_OP_ROUND: return un_imm(b, SX_LOP_ROUND, x, 0);
    case SX_OP_SIGN: return make_sign(b, x);
    default: break;
    }
    if (b->code == SX_OK) {
        b->code = SX_FAIL(b->cx, SX_UNIMPLEMENTED, "kernel %s: %s on f64 has no vector form",
                          b->kernel->name, sx_op_info_of(op)->name);
    }
    return 0;
}
