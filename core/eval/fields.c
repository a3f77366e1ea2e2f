#include <math.h>

#include "core/base/rng.h"
#include "core/eval/cell.h"
#include "core/ir/num.h"

/* p = 2 q + 1, both prime; 4 has order q mod p, so e^x = 4^(x mod q) mod p makes e^(a + b) = e^a e^b (Wu 2025,
 * Mirage). */
#define P SX_FIELD_P
#define Q SX_FIELD_Q
#define GENERATOR 4u
#define UNDEFINED (UINT64_C(1) << 62)

static uint64_t of_p(uint64_t x)
{
    return x & 0x7FFFFFFF;
}

static uint64_t of_q(uint64_t x)
{
    return x >> 32 & 0x3FFFFFFF;
}

static uint64_t pair(uint64_t p, uint64_t q)
{
    SX_ASSERT(p < P && q < Q);
    return p | q << 32;
}

bool sx_pair_check(uint64_t x)
{
    return of_p(x) < P && of_q(x) < Q && x >> 62 == 0 && (x >> 31 & 1) == 0;
}

bool sx_pair_equal(uint64_t x, uint64_t y)
{
    bool whole = ((x | y) & UNDEFINED) == 0;
    return of_p(x) == of_p(y) && (!whole || of_q(x) == of_q(y));
}

static uint64_t power(uint64_t x, uint64_t exponent, uint64_t modulus)
{
    uint64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        result = (exponent & 1) != 0 ? result * x % modulus : result;
        x = x * x % modulus;
    }
    return result;
}

static uint64_t rest_of(int64_t value, uint64_t modulus)
{
    int64_t rest = value % (int64_t)modulus;
    return (uint64_t)(rest < 0 ? rest + (int64_t)modulus : rest);
}

uint64_t sx_pair_of_int(int64_t value)
{
    return pair(rest_of(value, P), rest_of(value, Q));
}

/* A pseudo-random pair that depends on nothing but the first half of its arguments, which is always there. */
static uint64_t scatter(uint32_t tag, uint64_t x, uint64_t y)
{
    sx_rng rng = {.state = (uint64_t)tag << 32};
    rng.state = sx_rng_next(&rng) ^ of_p(x);
    rng.state = sx_rng_next(&rng) ^ of_p(y);
    uint64_t p = sx_rng_next(&rng) % P;
    return pair(p, sx_rng_next(&rng) % Q);
}

static uint64_t negate(uint64_t x)
{
    uint64_t p = of_p(x) == 0 ? 0 : P - of_p(x);
    return pair(p, of_q(x) == 0 ? 0 : Q - of_q(x)) | (x & UNDEFINED);
}

static uint64_t scaled(int64_t significand, int exponent, uint64_t modulus)
{
    uint64_t base = exponent < 0 ? (modulus + 1) / 2 : 2; /* of -1: the inverse of 2 */
    return rest_of(significand, modulus) *
           power(base, (uint64_t)(exponent < 0 ? -exponent : exponent), modulus) % modulus;
}

uint64_t sx_pair_of(double value)
{
    if (isnan(value)) {
        return scatter(UINT32_MAX, 0, 0);
    }
    if (isinf(value)) {
        uint64_t infinity = scatter(UINT32_MAX, 1, 0);
        return value > 0 ? infinity : negate(infinity);
    }
    int exponent;
    double fraction = frexp(value, &exponent);
    int64_t significand =
        (int64_t)ldexp(fraction, 53); /* value = significand * 2^(exponent - 53) */
    return pair(scaled(significand, exponent - 53, P), scaled(significand, exponent - 53, Q));
}

int64_t sx_pair_balanced(uint64_t x)
{
    return of_p(x) <= P / 2 ? (int64_t)of_p(x) : (int64_t)of_p(x) - (int64_t)P;
}

/* An exponent that is not there: pseudo-random, for there is no algebra in e^(e^x). */
static uint64_t exponential(uint64_t x)
{
    uint64_t p =
        (x & UNDEFINED) != 0 ? of_p(scatter(SX_OP_EXP, x, 0)) : power(GENERATOR, of_q(x), P);
    return p | UNDEFINED;
}

static uint64_t add(uint64_t x, uint64_t y)
{
    return pair((of_p(x) + of_p(y)) % P, (of_q(x) + of_q(y)) % Q) | ((x | y) & UNDEFINED);
}

uint64_t sx_pair_multiply(uint64_t x, uint64_t y)
{
    return pair(of_p(x) * of_p(y) % P, of_q(x) * of_q(y) % Q) | ((x | y) & UNDEFINED);
}

/* Fermat: x^(p - 2); 0 for 0. */
static uint64_t inverse(uint64_t x)
{
    return pair(power(of_p(x), P - 2, P), power(of_q(x), Q - 2, Q)) | (x & UNDEFINED);
}

static uint64_t odd(sx_op op, uint64_t x)
{
    if (of_p(x) == 0) {
        return sx_pair_of_int(0);
    }
    return sx_pair_balanced(x) > 0 ? scatter(op, x, 0) : negate(scatter(op, negate(x), 0));
}

/* (e^x - e^-x) / (e^x + e^-x) */
static uint64_t tangent(uint64_t x)
{
    uint64_t up = exponential(x);
    uint64_t down = exponential(negate(x));
    return (x & UNDEFINED) != 0 ? odd(SX_OP_TANH, x)
                                : sx_pair_multiply(add(up, negate(down)), inverse(add(up, down)));
}

static uint64_t apply_unary(sx_op op, uint64_t x)
{
    uint64_t one = sx_pair_of_int(1);
    int64_t order = sx_pair_balanced(x);
    switch ((int)op) {
    case SX_OP_NEGATE: return negate(x);
    case SX_OP_ABS: return order >= 0 ? x : negate(x);
    case SX_OP_SIGN: return sx_pair_of_int(order > 0 ? 1 : order < 0 ? -1 : 0);
    case SX_OP_NOT: return negate(add(x, one)); /* two's complement: -x - 1 */
    case SX_OP_EXP: return exponential(x);
    case SX_OP_RSQRT: return inverse(scatter(SX_OP_SQRT, x, 0));
    case SX_OP_LOGISTIC: return inverse(add(one, exponential(negate(x))));
    case SX_OP_TANH: return tangent(x);
    case SX_OP_ERF:
    case SX_OP_SIN:
    case SX_OP_ROUND: return odd(op, x);
    case SX_OP_COS: return scatter(op, order >= 0 ? x : negate(x), 0);
    case SX_OP_CEIL: return negate(scatter(SX_OP_FLOOR, negate(x), 0));
    default: return scatter(op, x, 0); /* log, sqrt, floor */
    }
}

uint64_t sx_pair_apply(sx_op op, bool is_float, uint64_t x, uint64_t y)
{
    switch ((int)op) {
    case SX_OP_ADD: return add(x, y);
    case SX_OP_SUBTRACT: return add(x, negate(y));
    case SX_OP_MULTIPLY: return sx_pair_multiply(x, y);
    case SX_OP_DIVIDE: return is_float ? sx_pair_multiply(x, inverse(y)) : scatter(op, x, y);
    case SX_OP_MAXIMUM: return sx_pair_balanced(x) > sx_pair_balanced(y) ? x : y;
    case SX_OP_MINIMUM: return sx_pair_balanced(x) < sx_pair_balanced(y) ? x : y;
    case SX_OP_AND:
    case SX_OP_OR:
    case SX_OP_XOR: return of_p(x) <= of_p(y) ? scatter(op, x, y) : scatter(op, y, x);
    case SX_OP_POWER:
    case SX_OP_SHIFT_LEFT:
    case SX_OP_SHIFT_RIGHT_ARITHMETIC:
    case SX_OP_SHIFT_RIGHT_LOGICAL:
    case SX_OP_RANDOM_BITS:
    case SX_OP_REMAINDER: return scatter(op, x, y);
    default: return apply_unary(op, x);
    }
}

uint64_t sx_pair_convert(sx_dtype from, sx_dtype to, uint64_t x)
{
    if (sx_dtype_class_of(to) == SX_CLASS_FLOAT) {
        return x; /* rounding is no matter of exact arithmetic */
    }
    if (sx_dtype_class_of(from) != SX_CLASS_FLOAT && sx_num_int_min(from) >= sx_num_int_min(to) &&
        sx_num_int_max(from) <= sx_num_int_max(to)) {
        return x;
    }
    return scatter(SX_OP_CONVERT, x, sx_pair_of_int((int64_t)to)); /* truncation or wrapping */
}
