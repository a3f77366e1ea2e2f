#include <math.h>

#include "core/base/rng.h"
#include "core/eval/cell.h"
#include "core/ir/num.h"

#define P SX_MODULUS

uint64_t sx_residue_of_int(int64_t value)
{
    int64_t rest = value % (int64_t)P;
    return (uint64_t)(rest < 0 ? rest + (int64_t)P : rest);
}

static uint64_t negate(uint64_t x)
{
    return x == 0 ? 0 : P - x;
}

/* A pseudo-random residue that depends on nothing but its arguments. */
static uint64_t scatter(uint32_t tag, uint64_t x, uint64_t y)
{
    sx_rng rng = {.state = (uint64_t)tag << 32};
    rng.state = sx_rng_next(&rng) ^ x;
    rng.state = sx_rng_next(&rng) ^ y;
    return sx_rng_next(&rng) % P;
}

uint64_t sx_residue_of(double value)
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
    int64_t significand = (int64_t)ldexp(fraction, 53); // value = significand * 2^(exponent - 53)
    int turns = (exponent - 53) % 31;                   // 2^31 == 1 mod p
    turns = turns < 0 ? turns + 31 : turns;
    return sx_residue_fold(sx_residue_of_int(significand) << turns);
}

int64_t sx_residue_balanced(uint64_t x)
{
    return x <= P / 2 ? (int64_t)x : (int64_t)x - (int64_t)P;
}

/* Fermat: x^(p - 2); 0 for 0. */
static uint64_t inverse(uint64_t x)
{
    uint64_t result = 1;
    for (uint64_t exponent = P - 2; exponent > 0; exponent >>= 1) {
        result = (exponent & 1) != 0 ? sx_residue_fold(result * x) : result;
        x = sx_residue_fold(x * x);
    }
    return x == 0 ? 0 : result;
}

static uint64_t even(sx_op op, uint64_t x)
{
    return scatter(op, x <= P / 2 ? x : P - x, 0);
}

static uint64_t odd(sx_op op, uint64_t x)
{
    if (x == 0) {
        return 0;
    }
    return x <= P / 2 ? scatter(op, x, 0) : negate(scatter(op, P - x, 0));
}

static uint64_t commuting(sx_op op, uint64_t x, uint64_t y)
{
    return x <= y ? scatter(op, x, y) : scatter(op, y, x);
}

uint64_t sx_residue_apply(sx_op op, bool is_float, uint64_t x, uint64_t y)
{
    switch ((int)op) {
    case SX_OP_NEGATE: return negate(x);
    case SX_OP_ABS: return x <= P / 2 ? x : P - x;
    case SX_OP_SIGN: return x == 0 ? 0 : x <= P / 2 ? 1 : P - 1;
    case SX_OP_NOT: return negate(sx_residue_fold(x + 1)); // two's complement: -x - 1
    case SX_OP_EXP:
    case SX_OP_LOG:
    case SX_OP_SQRT:
    case SX_OP_FLOOR: return scatter(op, x, 0);
    case SX_OP_RSQRT: return inverse(scatter(SX_OP_SQRT, x, 0));
    case SX_OP_LOGISTIC: return inverse(sx_residue_fold(1 + scatter(SX_OP_EXP, negate(x), 0)));
    case SX_OP_TANH:
    case SX_OP_ERF:
    case SX_OP_SIN:
    case SX_OP_ROUND: return odd(op, x);
    case SX_OP_COS: return even(op, x);
    case SX_OP_CEIL: return negate(scatter(SX_OP_FLOOR, negate(x), 0));
    case SX_OP_ADD: return sx_residue_fold(x + y);
    case SX_OP_SUBTRACT: return sx_residue_fold(x + negate(y));
    case SX_OP_MULTIPLY: return sx_residue_fold(x * y);
    case SX_OP_DIVIDE: return is_float ? sx_residue_fold(x * inverse(y)) : scatter(op, x, y);
    case SX_OP_MAXIMUM: return sx_residue_balanced(x) > sx_residue_balanced(y) ? x : y;
    case SX_OP_MINIMUM: return sx_residue_balanced(x) < sx_residue_balanced(y) ? x : y;
    case SX_OP_AND:
    case SX_OP_OR:
    case SX_OP_XOR: return commuting(op, x, y);
    }
    return scatter(op, x, y); // power, remainder, shifts, random_bits
}

uint64_t sx_residue_convert(sx_dtype from, sx_dtype to, uint64_t x)
{
    bool from_float = sx_dtype_class_of(from) == SX_CLASS_FLOAT;
    bool to_float = sx_dtype_class_of(to) == SX_CLASS_FLOAT;
    if (to_float) {
        return x; // rounding is no matter of exact arithmetic
    }
    if (!from_float && sx_num_int_min(from) >= sx_num_int_min(to) &&
        sx_num_int_max(from) <= sx_num_int_max(to)) {
        return x;
    }
    return scatter(SX_OP_CONVERT, x, (uint64_t)to); // truncation or wrapping
}
