/* math_wide.c - elementwise operations on f64 as instruction sequences: math.c for lanes of 8 bytes.
 *
 * Largest error against the exact value, in units of the last place of the result (held by
 * tests/core/loop/test_math_wide.c): exp 1.5 (subnormal results too), log 1.5, logistic 3 where the result is
 * normal, silu 4 for arguments above -709.7 (below them it is -0, off by less than 2^-1014), tanh 4, sqrt 0.5,
 * rsqrt 1.5. NaN arguments give NaN. The reduction of exp and log follows Cody and Waite 1980; the series are
 * Taylor's. */
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

/* 2^i for integers in [-1022, 1023]. */
static uint32_t power_of_two(sx_loop_builder *b, uint32_t i)
{
    return bin(b, SX_LOP_IADD, un_imm(b, SX_LOP_SHL, i, 52), set(b, 1));
}

/* Halves a small integer, toward minus infinity: there is no arithmetic shift of 8 bytes. */
static uint32_t half_of(sx_loop_builder *b, uint32_t i)
{
    uint32_t up = bin(b, SX_LOP_IADD, i, sx_loop_bits(b, 4096));
    return bin(b, SX_LOP_ISUB, un_imm(b, SX_LOP_SHR, up, 1), sx_loop_bits(b, 2048));
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

/* e^x = 2^n e^r; the factor is applied in two halves, so that one rounding makes subnormal results and
 * overflow gives infinity. */
static uint32_t make_exp(sx_loop_builder *b, uint32_t x)
{
    x = clamp(b, x, -750, 720);
    uint32_t t = tri(b, SX_LOP_FMA, x, set(b, 0x1.71547652b82fep+0), set(b, MAGIC));
    uint32_t n = bin(b, SX_LOP_SUB, t, set(b, MAGIC));
    uint32_t r = tri(b, SX_LOP_FNMA, n, set(b, LN2_HIGH), x);
    r = tri(b, SX_LOP_FNMA, n, set(b, LN2_LOW), r);
    uint32_t i = bin(b, SX_LOP_ISUB, t, set(b, MAGIC));
    uint32_t half = half_of(b, i);
    uint32_t rest = bin(b, SX_LOP_ISUB, i, half);
    uint32_t p = tri(b, SX_LOP_FMA, series(b, r), r, set(b, 1));
    p = bin(b, SX_LOP_MUL, p, power_of_two(b, half));
    return bin(b, SX_LOP_MUL, p, power_of_two(b, rest));
}

/* log x = e ln 2 + 2 artanh s, s = (m - 1) / (m + 1), m in [sqrt 1/2, sqrt 2); subnormals are scaled first.
 * 2 artanh s = f - s (f - 2 s^2/3 (1 + ...)), f = m - 1. */
static uint32_t make_log(sx_loop_builder *b, uint32_t x)
{
    const uint64_t root = UINT64_C(0x3FE6A09E667F3BCD); /* sqrt 1/2 */
    uint32_t tiny = compare(b, x, set(b, 0x1p-1022), SX_LT);
    uint32_t v = tri(b, SX_LOP_BLEND, tiny, bin(b, SX_LOP_MUL, x, set(b, 0x1p54)), x);
    uint32_t shift = tri(b, SX_LOP_BLEND, tiny, set(b, -54 - 2048), set(b, -2048));
    /* the exponent, 2048 more so that it is positive under a logical shift */
    uint32_t e = bin(b, SX_LOP_ISUB, v, sx_loop_bits(b, root));
    e = bin(b, SX_LOP_XOR, e, sx_loop_bits(b, UINT64_C(1) << 63));
    e = un_imm(b, SX_LOP_SHR, e, 52);
    uint32_t scale = un_imm(b, SX_LOP_SHL, bin(b, SX_LOP_ISUB, e, sx_loop_bits(b, 2048)), 52);
    uint32_t m = bin(b, SX_LOP_ISUB, v, scale);
    uint32_t n = bin(b, SX_LOP_OR, e, set(b, 0x1p52));
    n = bin(b, SX_LOP_ADD, bin(b, SX_LOP_SUB, n, set(b, 0x1p52)), shift);
    uint32_t f = bin(b, SX_LOP_SUB, m, set(b, 1));
    uint32_t s = bin(b, SX_LOP_DIV, f, bin(b, SX_LOP_ADD, m, set(b, 1)));
    uint32_t z = bin(b, SX_LOP_MUL, s, s);
    uint32_t p = set(b, 2.0 / 23);
    for (uint32_t k = 21; k >= 3; k -= 2) {
        p = tri(b, SX_LOP_FMA, p, z, set(b, 2.0 / k));
    }
    uint32_t half = bin(b, SX_LOP_MUL, bin(b, SX_LOP_MUL, f, f), set(b, 0.5));
    uint32_t tail =
        tri(b, SX_LOP_FMA, p, z, half); /* p z is R, log(1 + f) = f - (half - s (half + R)) */
    uint32_t low = tri(b, SX_LOP_FMA, s, tail, bin(b, SX_LOP_MUL, n, set(b, LN2_LOW)));
    uint32_t y = bin(b, SX_LOP_SUB, f, bin(b, SX_LOP_SUB, half, low));
    y = tri(b, SX_LOP_FMA, n, set(b, LN2_HIGH), y);
    uint32_t zero = compare(b, x, set(b, 0), SX_EQ);
    uint32_t odd = tri(b, SX_LOP_BLEND, zero, set(b, -HUGE_VAL), set(b, (double)NAN));
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
    uint32_t t = tri(b, SX_LOP_FMA, a, set(b, 0x1.71547652b82fep+0), set(b, MAGIC));
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
    return bin(b, SX_LOP_DIV, set(b, 1), bin(b, SX_LOP_ADD, e, set(b, 1)));
}

static uint32_t make_sign(sx_loop_builder *b, uint32_t x)
{
    uint32_t v = tri(b, SX_LOP_BLEND, compare(b, x, set(b, 0), SX_GT), set(b, 1), x);
    return tri(b, SX_LOP_BLEND, compare(b, x, set(b, 0), SX_LT), set(b, -1), v);
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
    case SX_OP_RSQRT: return bin(b, SX_LOP_DIV, set(b, 1), un(b, SX_LOP_SQRT, x));
    case SX_OP_EXP: return make_exp(b, x);
    case SX_OP_LOG: return make_log(b, x);
    case SX_OP_TANH: return make_tanh(b, x);
    case SX_OP_LOGISTIC: return make_logistic(b, x);
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
