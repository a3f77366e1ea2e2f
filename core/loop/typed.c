/* typed.c - elementwise operations of the program on lanes, for every element type.
 *
 * A kernel has lanes of 4 bytes, or of 8 bytes where one of its values is f64 or i64. In a lane a float of any
 * type is an f32 (f64), rounded to its type by every operation of that type, and an integer is sign-extended
 * (u8: zero-extended), wrapped by every operation; a bool is a lane mask. So each operation gives the
 * interpreter's value, but for functions, whose error math.c and math_wide.c state.
 *
 * Rounding to a type with m mantissa bits adds and takes away 1.5 * 2^(e + M - m), M being the mantissa bits of
 * a lane and e the exponent of the value: the sum has no places below 2^(e - m), and the processor rounds it to
 * nearest even. Exponents below the type's least one count as that: its subnormals. */
#include <math.h>
#include <string.h>

#include "core/ir/num.h"
#include "core/loop/loop.h"

typedef struct {
    uint32_t exponent_bits, mantissa_bits;
    bool saturates; /* arithmetic gives the largest number instead of infinity */
    double largest;
} format;

static bool format_of(sx_dtype dtype, format *f)
{
    switch ((int)dtype) {
    case SX_F32: *f = (format){8, 23, false, 0x1.fffffep127}; return true;
    case SX_BF16: *f = (format){8, 7, false, 0x1.fep127}; return true;
    case SX_F16: *f = (format){5, 10, false, 65504}; return true;
    case SX_F8E4M3: *f = (format){4, 3, true, 448}; return true;
    case SX_F8E5M2: *f = (format){5, 2, true, 57344}; return true;
    default: return false;
    }
}

static bool is_wide(const sx_loop_builder *b)
{
    return b->kernel->lane_bytes == 8;
}

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

static uint32_t blend(sx_loop_builder *b, uint32_t mask, uint32_t x, uint32_t y)
{
    return sx_loop_op(b, SX_LOP_BLEND, SX_NO_REG, NULL, mask, x, y, 0, 0);
}

static uint32_t compare_with(sx_loop_builder *b, sx_lop op, uint32_t x, uint32_t y,
                             sx_direction direction)
{
    return sx_loop_op(b, op, SX_NO_REG, NULL, x, y, SX_NO_REG, (uint32_t)direction, 0);
}

static uint32_t real(sx_loop_builder *b, double value)
{
    return is_wide(b) ? sx_loop_set_wide(b, value) : sx_loop_set(b, (float)value);
}

static uint32_t whole(sx_loop_builder *b, int64_t value)
{
    return sx_loop_bits(b, is_wide(b) ? (uint64_t)value : (uint32_t)(uint64_t)value);
}

static uint32_t refuse(sx_loop_builder *b, const char *what, sx_dtype dtype)
{
    if (b->code == SX_OK) {
        b->code = SX_FAIL(b->cx, SX_UNIMPLEMENTED, "kernel %s: %s on %s has no vector form",
                          b->kernel->name, what, sx_dtype_name(dtype));
    }
    return 0;
}

/* ---- bits of lanes ---- */
static uint32_t lane_mantissa(const sx_loop_builder *b)
{
    return is_wide(b) ? 52 : 23;
}

static uint32_t lane_bias(const sx_loop_builder *b)
{
    return is_wide(b) ? 1023 : 127;
}

static uint32_t sign_bit(sx_loop_builder *b)
{
    return sx_loop_bits(b, is_wide(b) ? UINT64_C(1) << 63 : UINT64_C(1) << 31);
}

static uint32_t infinity_bits(sx_loop_builder *b)
{
    return sx_loop_bits(b, is_wide(b) ? UINT64_C(0x7FF) << 52 : UINT64_C(0xFF) << 23);
}

static uint32_t magnitude(sx_loop_builder *b, uint32_t x)
{
    return bin(b, SX_LOP_AND, x, sx_loop_bits(b, is_wide(b) ? UINT64_MAX >> 1 : INT32_MAX));
}

/* x limited to [low, high]; NaN stays: max and min give their second operand when unordered. */
static uint32_t clamp(sx_loop_builder *b, uint32_t x, double low, double high)
{
    x = bin(b, SX_LOP_MAX, real(b, low), x);
    return bin(b, SX_LOP_MIN, real(b, high), x);
}

/* ---- rounding to a float type ---- */
/* The upper half of an f32, nearest even, by integers: near the largest numbers the sum would overflow. */
static uint32_t round_bf16(sx_loop_builder *b, uint32_t x)
{
    uint32_t one = whole(b, 1);
    uint32_t odd = bin(b, SX_LOP_AND, un_imm(b, SX_LOP_SHR, x, 16), one);
    uint32_t sum = bin(b, SX_LOP_IADD, x, bin(b, SX_LOP_IADD, odd, whole(b, 0x7FFF)));
    uint32_t high = bin(b, SX_LOP_AND, sum, sx_loop_bits(b, 0xFFFF0000u));
    return blend(b, compare_with(b, SX_LOP_CMP, x, x, SX_EQ), high, x);
}

uint32_t sx_loop_round(sx_loop_builder *b, sx_dtype dtype, uint32_t x)
{
    format f;
    if (!format_of(dtype, &f) || (dtype == SX_F32 && !is_wide(b))) {
        return x;
    }
    if (dtype == (is_wide(b) ? SX_F32 : SX_F16)) {
        return un(b, SX_LOP_HALVE, x);
    }
    if (dtype == SX_BF16 && !is_wide(b)) {
        return round_bf16(b, x);
    }
    int bias = (1 << (f.exponent_bits - 1)) - 1;
    double beyond = ldexp(1, bias + 1);
    double limit = f.saturates ? f.largest : beyond;
    uint32_t inside = clamp(b, x, -limit, limit);
    uint32_t unit = bin(b, SX_LOP_AND, inside, infinity_bits(b));
    unit = bin(b, SX_LOP_MAX, real(b, ldexp(1, 1 - bias)), unit);
    unit = bin(b, SX_LOP_MUL, unit, real(b, ldexp(1.5, (int)(lane_mantissa(b) - f.mantissa_bits))));
    uint32_t r = bin(b, SX_LOP_SUB, bin(b, SX_LOP_ADD, inside, unit), unit);
    uint32_t sign = bin(b, SX_LOP_AND, x, sign_bit(b));
    r = bin(b, SX_LOP_OR, r, sign);
    if (f.saturates) {
        return r;
    }
    uint32_t largest = real(b, beyond);
    uint32_t large = compare_with(b, SX_LOP_CMP, magnitude(b, r), largest, SX_GE);
    return blend(b, large, bin(b, SX_LOP_OR, sign, infinity_bits(b)), r);
}

/* ---- elements in memory ---- */
sx_mem sx_loop_mem(sx_dtype dtype, uint32_t lane_bytes)
{
    bool wide = lane_bytes == 8;
    switch (dtype) {
    case SX_F64:
    case SX_I64: return SX_MEM_LANE;
    case SX_F32: return wide ? SX_MEM_HALF : SX_MEM_LANE;
    case SX_I32: return wide ? SX_MEM_I32 : SX_MEM_LANE;
    case SX_F16: return wide ? SX_MEM_U16 : SX_MEM_HALF;
    case SX_BF16: return SX_MEM_U16;
    case SX_I16: return SX_MEM_I16;
    case SX_I8: return SX_MEM_I8;
    case SX_F8E4M3:
    case SX_F8E5M2:
    case SX_U8:
    case SX_BOOL: return SX_MEM_U8;
    case SX_DTYPE_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* Does a float of this type come as bits of its own, and leave so? */
static bool is_coded(const sx_loop_builder *b, sx_dtype dtype, format *f)
{
    sx_mem mem = sx_loop_mem(dtype, b->kernel->lane_bytes);
    return format_of(dtype, f) && mem != SX_MEM_LANE && mem != SX_MEM_HALF;
}

/* The bits of the type moved to those of a lane have an exponent that is too small by the difference of the
 * biases: a multiplication, exact for subnormals too. What was infinite or no number gets all exponent bits. */
uint32_t sx_loop_decode(sx_loop_builder *b, sx_dtype dtype, uint32_t raw)
{
    format f;
    if (dtype == SX_BOOL) {
        return un(b, SX_LOP_MNOT, compare_with(b, SX_LOP_ICMP, raw, whole(b, 0), SX_EQ));
    }
    if (!is_coded(b, dtype, &f)) {
        return raw;
    }
    if (dtype == SX_BF16 && !is_wide(b)) {
        return un_imm(b, SX_LOP_SHL, raw, 16);
    }
    uint32_t bits = f.exponent_bits + f.mantissa_bits;
    uint32_t up = lane_mantissa(b) - f.mantissa_bits;
    uint32_t bias = (1u << (f.exponent_bits - 1)) - 1;
    uint32_t finite_max = (((1u << f.exponent_bits) - 1) << f.mantissa_bits) - 1;
    finite_max = dtype == SX_F8E4M3 ? 0x7E : finite_max;
    uint32_t size = bin(b, SX_LOP_AND, raw, whole(b, (INT64_C(1) << bits) - 1));
    uint32_t moved = un_imm(b, SX_LOP_SHL, size, up);
    uint32_t value = bin(b, SX_LOP_MUL, moved, real(b, ldexp(1, (int)(lane_bias(b) - bias))));
    uint32_t odd = compare_with(b, SX_LOP_ICMP, size, whole(b, finite_max), SX_GT);
    value = blend(b, odd, bin(b, SX_LOP_OR, moved, infinity_bits(b)), value);
    uint32_t sign =
        un_imm(b, SX_LOP_SHL, un_imm(b, SX_LOP_SHR, raw, bits), 8 * b->kernel->lane_bytes - 1);
    return bin(b, SX_LOP_OR, value, sign);
}

/* The way back, for a value that the type has. */
uint32_t sx_loop_encode(sx_loop_builder *b, sx_dtype dtype, uint32_t value)
{
    format f;
    if (dtype == SX_BOOL) {
        uint32_t no = whole(b, 0);
        return blend(b, value, whole(b, 1), no);
    }
    if (!is_coded(b, dtype, &f)) {
        return value;
    }
    uint32_t bits = f.exponent_bits + f.mantissa_bits;
    int64_t mask = (INT64_C(1) << bits) - 1;
    int64_t quiet = dtype == SX_F8E4M3
                        ? mask
                        : mask - (INT64_C(1) << (f.mantissa_bits - 1)) + 1; /* the first bit */
    uint32_t moved;
    if (dtype == SX_BF16 && !is_wide(b)) {
        moved = un_imm(b, SX_LOP_SHR, value, 16);
    } else {
        uint32_t bias = (1u << (f.exponent_bits - 1)) - 1;
        uint32_t factor = real(b, ldexp(1, (int)bias - (int)lane_bias(b)));
        moved = bin(b, SX_LOP_MUL, magnitude(b, value), factor);
        moved = un_imm(b, SX_LOP_SHR, moved, lane_mantissa(b) - f.mantissa_bits);
    }
    moved = bin(b, SX_LOP_AND, moved, whole(b, mask));
    uint32_t number = compare_with(b, SX_LOP_CMP, value, value, SX_EQ);
    moved = blend(b, number, moved, whole(b, quiet));
    uint32_t sign = un_imm(b, SX_LOP_SHR, value, 8 * b->kernel->lane_bytes - 1);
    return bin(b, SX_LOP_OR, moved, un_imm(b, SX_LOP_SHL, sign, bits));
}

uint32_t sx_loop_constant(sx_loop_builder *b, sx_dtype dtype, double value)
{
    switch (sx_dtype_class_of(dtype)) {
    case SX_CLASS_FLOAT: return real(b, sx_num_round(dtype, value));
    case SX_CLASS_INT: return whole(b, (int64_t)value);
    case SX_CLASS_BOOL: break;
    }
    uint32_t zero = whole(b, 0);
    return compare_with(b, SX_LOP_ICMP, whole(b, value != 0), zero, SX_GT);
}

/* ---- integers ---- */
static uint32_t wrap(sx_loop_builder *b, sx_dtype dtype, uint32_t x)
{
    uint32_t bits = 8 * sx_dtype_bytes(dtype);
    if (bits == 8 * b->kernel->lane_bytes) {
        return x;
    }
    x = bin(b, SX_LOP_AND, x, whole(b, (INT64_C(1) << bits) - 1));
    if (sx_num_int_min(dtype) == 0) {
        return x;
    }
    uint32_t top = whole(b, INT64_C(1) << (bits - 1));
    return bin(b, SX_LOP_ISUB, bin(b, SX_LOP_XOR, x, top), top);
}

static uint32_t is_negative(sx_loop_builder *b, uint32_t x)
{
    return compare_with(b, SX_LOP_ICMP, whole(b, 0), x, SX_GT);
}

/* Integers of less than 52 bits as doubles: the low bits of 1.5 * 2^52. */
#define MAGIC UINT64_C(0x4338000000000000)
static uint32_t small_to_real(sx_loop_builder *b, uint32_t x)
{
    if (!is_wide(b)) {
        return un(b, SX_LOP_I2F, x);
    }
    x = bin(b, SX_LOP_IADD, x, sx_loop_bits(b, MAGIC));
    return bin(b, SX_LOP_SUB, x, sx_loop_bits(b, MAGIC));
}

/* And back, for a whole number. */
static uint32_t small_to_int(sx_loop_builder *b, uint32_t x)
{
    if (!is_wide(b)) {
        return un(b, SX_LOP_F2I, x);
    }
    x = bin(b, SX_LOP_ADD, x, sx_loop_bits(b, MAGIC));
    return bin(b, SX_LOP_ISUB, x, sx_loop_bits(b, MAGIC));
}

static uint32_t multiply_int(sx_loop_builder *b, sx_dtype dtype, uint32_t x, uint32_t y)
{
    uint32_t low = bin(b, SX_LOP_IMUL, x, y);
    if (sx_dtype_bytes(dtype) < 8) {
        return low;
    }
    uint32_t of_y = bin(b, SX_LOP_IMUL, x, un_imm(b, SX_LOP_SHR, y, 32));
    uint32_t of_x = bin(b, SX_LOP_IMUL, un_imm(b, SX_LOP_SHR, x, 32), y);
    uint32_t cross = bin(b, SX_LOP_IADD, of_x, of_y);
    return bin(b, SX_LOP_IADD, low, un_imm(b, SX_LOP_SHL, cross, 32));
}

/* A whole double of less than 2^63 in size as an i64: its multiple of 2^32 and the rest. */
static uint32_t real_to_long(sx_loop_builder *b, uint32_t x)
{
    uint32_t high = bin(b, SX_LOP_MUL, x, sx_loop_set_wide(b, 0x1p-32));
    high = un_imm(b, SX_LOP_ROUND, high, 1);
    uint32_t low =
        sx_loop_op(b, SX_LOP_FNMA, SX_NO_REG, NULL, high, sx_loop_set_wide(b, 0x1p32), x, 0, 0);
    high = un_imm(b, SX_LOP_SHL, small_to_int(b, high), 32);
    return bin(b, SX_LOP_IADD, high, small_to_int(b, low));
}

/* A u64 as a double with one rounding: its halves as the low bits of 2^52 and of 2^84. */
static uint32_t unsigned_to_real(sx_loop_builder *b, uint32_t x)
{
    uint32_t low = bin(b, SX_LOP_AND, x, sx_loop_bits(b, UINT32_MAX));
    low = bin(b, SX_LOP_OR, low, sx_loop_bits(b, UINT64_C(0x4330000000000000)));
    uint32_t high = un_imm(b, SX_LOP_SHR, x, 32);
    high = bin(b, SX_LOP_OR, high, sx_loop_bits(b, UINT64_C(0x4530000000000000)));
    high = bin(b, SX_LOP_SUB, high, sx_loop_set_wide(b, 0x1p84 + 0x1p52));
    return bin(b, SX_LOP_ADD, high, low);
}

/* The quotient of the magnitudes in two estimates by doubles, of which the four roundings and a factor make none too
 * large. The first leaves less than y and 2^14, the second less than 2 y: one more at most is missing. */
static uint32_t divide_long(sx_loop_builder *b, uint32_t x, uint32_t y)
{
    uint32_t none = whole(b, 0);
    uint32_t x_below = is_negative(b, x);
    uint32_t y_below = is_negative(b, y);
    uint32_t rest = blend(b, x_below, bin(b, SX_LOP_ISUB, none, x), x);
    uint32_t by = blend(b, y_below, bin(b, SX_LOP_ISUB, none, y), y);
    uint32_t divisor = unsigned_to_real(b, by);
    uint32_t q = none;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t less = real(b, 1 - 0x1p-50);
        uint32_t part = bin(b, SX_LOP_MUL, unsigned_to_real(b, rest), less);
        part = un_imm(b, SX_LOP_ROUND, bin(b, SX_LOP_DIV, part, divisor), 1);
        part = real_to_long(b, part);
        q = bin(b, SX_LOP_IADD, q, part);
        rest = bin(b, SX_LOP_ISUB, rest, multiply_int(b, SX_I64, part, by));
    }
    uint32_t enough = un(b, SX_LOP_MNOT, is_negative(b, bin(b, SX_LOP_ISUB, rest, by)));
    q = blend(b, enough, bin(b, SX_LOP_IADD, q, whole(b, 1)), q);
    uint32_t negated = bin(b, SX_LOP_ISUB, none, q);
    q = blend(b, bin(b, SX_LOP_MXOR, x_below, y_below), negated, q);
    uint32_t minus = whole(b, -1);
    return blend(b, compare_with(b, SX_LOP_ICMP, y, none, SX_EQ), minus, q);
}

/* Toward zero; by 0 it is -1. The float quotient of integers of so few bits is never rounded to a whole number
 * that it is not: it lies at least 1 / |y| beside it. */
static uint32_t divide_int(sx_loop_builder *b, sx_dtype dtype, uint32_t x, uint32_t y)
{
    if (dtype == SX_I64) {
        return divide_long(b, x, y);
    }
    SX_ASSERT(8 * sx_dtype_bytes(dtype) <= (is_wide(b) ? 32 : 16));
    uint32_t divisor = small_to_real(b, y);
    uint32_t q = bin(b, SX_LOP_DIV, small_to_real(b, x), divisor);
    uint32_t zero = compare_with(b, SX_LOP_ICMP, y, whole(b, 0), SX_EQ);
    q = un_imm(b, SX_LOP_ROUND, q, 3);
    q = blend(b, zero, real(b, -1), q);
    return small_to_int(b, q);
}

/* By squaring: a bit of the exponent takes its power of the base or leaves it. Wrapping goes through products, so
 * that it is done in the end. A negative exponent gives the truncated quotient: 1, -1 or 0. */
static uint32_t power_int(sx_loop_builder *b, sx_dtype dtype, uint32_t x, uint32_t y)
{
    bool has_sign = sx_num_int_min(dtype) < 0;
    uint32_t bits = 8 * sx_dtype_bytes(dtype) - (has_sign ? 1 : 0);
    uint32_t one = whole(b, 1);
    uint32_t odd = one;
    uint32_t power = x;
    uint32_t result = one;
    for (uint32_t k = 0; k < bits; k++) {
        uint32_t bit = whole(b, INT64_C(1) << k);
        uint32_t taken = compare_with(b, SX_LOP_ICMP, bin(b, SX_LOP_AND, y, bit), bit, SX_EQ);
        odd = k == 0 ? taken : odd;
        result = blend(b, taken, multiply_int(b, dtype, result, power), result);
        power = k + 1 < bits ? multiply_int(b, dtype, power, power) : power;
    }
    result = wrap(b, dtype, result);
    if (!has_sign) {
        return result;
    }
    uint32_t minus = whole(b, -1);
    uint32_t none = whole(b, 0);
    uint32_t below = blend(b, compare_with(b, SX_LOP_ICMP, x, one, SX_EQ), one, none);
    uint32_t turns = compare_with(b, SX_LOP_ICMP, x, minus, SX_EQ);
    below = blend(b, turns, blend(b, odd, minus, one), below);
    return blend(b, is_negative(b, y), below, result);
}

static uint32_t sign_int(sx_loop_builder *b, uint32_t x)
{
    uint32_t above = compare_with(b, SX_LOP_ICMP, x, whole(b, 0), SX_GT);
    uint32_t zero = whole(b, 0);
    uint32_t minus = whole(b, -1);
    uint32_t rest = blend(b, is_negative(b, x), minus, zero);
    return blend(b, above, whole(b, 1), rest);
}

/* Philox4x32-10. A word is the low half of a lane, and the high half is whatever is left there: products read the low
 * halves alone, and the rest works bit by bit or carries upwards. */
static uint32_t random_bits(sx_loop_builder *b, uint32_t counter, uint32_t key)
{
    SX_ASSERT(is_wide(b));
    uint32_t none = whole(b, 0);
    uint32_t c[4] = {counter, un_imm(b, SX_LOP_SHR, counter, 32), none, none};
    uint32_t k[2] = {key, un_imm(b, SX_LOP_SHR, key, 32)};
    for (uint32_t round = 0; round < 10; round++) {
        uint32_t even = bin(b, SX_LOP_IMUL, c[0], whole(b, 0xD2511F53));
        uint32_t odd = bin(b, SX_LOP_IMUL, c[2], whole(b, 0xCD9E8D57));
        uint32_t from_odd = bin(b, SX_LOP_XOR, un_imm(b, SX_LOP_SHR, odd, 32), c[1]);
        uint32_t from_even = bin(b, SX_LOP_XOR, un_imm(b, SX_LOP_SHR, even, 32), c[3]);
        c[0] = bin(b, SX_LOP_XOR, from_odd, k[0]);
        c[1] = odd;
        c[2] = bin(b, SX_LOP_XOR, from_even, k[1]);
        c[3] = even;
        k[0] = bin(b, SX_LOP_IADD, k[0], whole(b, 0x9E3779B9));
        k[1] = bin(b, SX_LOP_IADD, k[1], whole(b, 0xBB67AE85));
    }
    uint32_t low = bin(b, SX_LOP_AND, c[0], whole(b, UINT32_MAX));
    return bin(b, SX_LOP_OR, low, un_imm(b, SX_LOP_SHL, c[1], 32));
}

/* Bits above those of a narrow type are zero where zeros come in from there, and its sign where the sign does; what is
 * moved into them is wrapped away. Numbers of places count as unsigned ones of a lane, so that a negative one is large.
 * Lanes of 8 bytes have no arithmetic shift: bits that a negative number has not are moved instead. */
static uint32_t shift(sx_loop_builder *b, sx_op op, sx_dtype dtype, uint32_t x, uint32_t places)
{
    bool is_narrow = sx_dtype_bytes(dtype) < b->kernel->lane_bytes;
    uint32_t bits = 8 * sx_dtype_bytes(dtype);
    if (op == SX_OP_SHIFT_LEFT) {
        return wrap(b, dtype, bin(b, SX_LOP_SHLV, x, places));
    }
    if (op == SX_OP_SHIFT_RIGHT_LOGICAL) {
        x = is_narrow ? bin(b, SX_LOP_AND, x, whole(b, (INT64_C(1) << bits) - 1)) : x;
        return wrap(b, dtype, bin(b, SX_LOP_SHRV, x, places));
    }
    if (sx_num_int_min(dtype) == 0) {
        uint32_t top = whole(b, INT64_C(1) << (bits - 1));
        x = bin(b, SX_LOP_ISUB, bin(b, SX_LOP_XOR, x, top), top);
    }
    if (!is_wide(b)) {
        return wrap(b, dtype, bin(b, SX_LOP_SARV, x, places));
    }
    uint32_t none = whole(b, 0);
    uint32_t minus = whole(b, -1);
    uint32_t sign = blend(b, is_negative(b, x), minus, none);
    uint32_t moved = bin(b, SX_LOP_SHRV, bin(b, SX_LOP_XOR, x, sign), places);
    return wrap(b, dtype, bin(b, SX_LOP_XOR, moved, sign));
}

static uint32_t apply_int(sx_loop_builder *b, sx_op op, sx_dtype dtype, uint32_t x, uint32_t y)
{
    uint32_t zero, quotient;
    switch ((int)op) {
    case SX_OP_ADD: return wrap(b, dtype, bin(b, SX_LOP_IADD, x, y));
    case SX_OP_SUBTRACT: return wrap(b, dtype, bin(b, SX_LOP_ISUB, x, y));
    case SX_OP_MULTIPLY: return wrap(b, dtype, multiply_int(b, dtype, x, y));
    case SX_OP_NEGATE: return wrap(b, dtype, bin(b, SX_LOP_ISUB, whole(b, 0), x));
    case SX_OP_ABS:
        zero = bin(b, SX_LOP_ISUB, whole(b, 0), x);
        return wrap(b, dtype, blend(b, is_negative(b, x), zero, x));
    case SX_OP_SIGN: return sign_int(b, x);
    case SX_OP_FLOOR:
    case SX_OP_CEIL:
    case SX_OP_ROUND: return x;
    case SX_OP_AND: return bin(b, SX_LOP_AND, x, y);
    case SX_OP_OR: return bin(b, SX_LOP_OR, x, y);
    case SX_OP_XOR: return bin(b, SX_LOP_XOR, x, y);
    case SX_OP_NOT: return wrap(b, dtype, bin(b, SX_LOP_XOR, x, whole(b, -1)));
    case SX_OP_MAXIMUM: return blend(b, compare_with(b, SX_LOP_ICMP, x, y, SX_GT), x, y);
    case SX_OP_MINIMUM: return blend(b, compare_with(b, SX_LOP_ICMP, y, x, SX_GT), x, y);
    case SX_OP_DIVIDE: return wrap(b, dtype, divide_int(b, dtype, x, y));
    case SX_OP_POWER: return power_int(b, dtype, x, y);
    case SX_OP_SHIFT_LEFT:
    case SX_OP_SHIFT_RIGHT_ARITHMETIC:
    case SX_OP_SHIFT_RIGHT_LOGICAL: return shift(b, op, dtype, x, y);
    case SX_OP_RANDOM_BITS: return random_bits(b, x, y);
    case SX_OP_REMAINDER:
        quotient = divide_int(b, dtype, x, y);
        return wrap(b, dtype, bin(b, SX_LOP_ISUB, x, multiply_int(b, dtype, y, quotient)));
    default: return refuse(b, sx_op_info_of(op)->name, dtype);
    }
}

static uint32_t apply_bool(sx_loop_builder *b, sx_op op, uint32_t x, uint32_t y)
{
    switch ((int)op) {
    case SX_OP_ADD:
    case SX_OP_MAXIMUM:
    case SX_OP_OR: return bin(b, SX_LOP_MOR, x, y);
    case SX_OP_MULTIPLY:
    case SX_OP_MINIMUM:
    case SX_OP_AND: return bin(b, SX_LOP_MAND, x, y);
    case SX_OP_XOR: return bin(b, SX_LOP_MXOR, x, y);
    case SX_OP_NOT: return un(b, SX_LOP_MNOT, x);
    default: return refuse(b, sx_op_info_of(op)->name, SX_BOOL);
    }
}

/* ---- comparing, choosing ---- */
static uint32_t compare_int(sx_loop_builder *b, sx_direction direction, uint32_t x, uint32_t y)
{
    bool turned = direction == SX_LT || direction == SX_GE;
    bool negated = direction == SX_NE || direction == SX_LE || direction == SX_GE;
    bool equal = direction == SX_EQ || direction == SX_NE;
    uint32_t m =
        compare_with(b, SX_LOP_ICMP, turned ? y : x, turned ? x : y, equal ? SX_EQ : SX_GT);
    return negated ? un(b, SX_LOP_MNOT, m) : m;
}

static uint32_t compare(sx_loop_builder *b, const sx_loop_step *step, uint32_t x, uint32_t y)
{
    switch (sx_dtype_class_of(step->from)) {
    case SX_CLASS_FLOAT: return compare_with(b, SX_LOP_CMP, x, y, step->direction);
    case SX_CLASS_INT: return compare_int(b, step->direction, x, y);
    case SX_CLASS_BOOL: break;
    }
    uint32_t not_x = un(b, SX_LOP_MNOT, x);
    uint32_t not_y = un(b, SX_LOP_MNOT, y);
    switch (step->direction) {
    case SX_EQ: return un(b, SX_LOP_MNOT, bin(b, SX_LOP_MXOR, x, y));
    case SX_NE: return bin(b, SX_LOP_MXOR, x, y);
    case SX_LT: return bin(b, SX_LOP_MAND, not_x, y);
    case SX_LE: return bin(b, SX_LOP_MOR, not_x, y);
    case SX_GT: return bin(b, SX_LOP_MAND, x, not_y);
    case SX_GE: return bin(b, SX_LOP_MOR, x, not_y);
    case SX_DIRECTION_COUNT: break;
    }
    SX_UNREACHABLE();
}

static uint32_t select_value(sx_loop_builder *b, sx_dtype dtype, uint32_t p, uint32_t x, uint32_t y)
{
    if (dtype != SX_BOOL) {
        return blend(b, p, x, y);
    }
    uint32_t taken = bin(b, SX_LOP_MAND, p, x);
    return bin(b, SX_LOP_MOR, taken, bin(b, SX_LOP_MAND, un(b, SX_LOP_MNOT, p), y));
}

/* ---- conversions ---- */
/* An i64 as a double with one rounding: its halves as the low bits of 2^52 and of 2^84 + 2^63. */
static uint32_t long_to_real(sx_loop_builder *b, uint32_t x)
{
    uint32_t low = bin(b, SX_LOP_AND, x, sx_loop_bits(b, UINT32_MAX));
    low = bin(b, SX_LOP_OR, low, sx_loop_bits(b, UINT64_C(0x4330000000000000)));
    uint32_t high = un_imm(b, SX_LOP_SHR, x, 32);
    high = bin(b, SX_LOP_XOR, high, sx_loop_bits(b, UINT64_C(0x4530000080000000)));
    high = bin(b, SX_LOP_SUB, high, sx_loop_set_wide(b, 0x1p84 + 0x1p63 + 0x1p52));
    return bin(b, SX_LOP_ADD, high, low);
}

/* Low bits that a lane's float cannot hold stick to the last one that it can, so that the rounding to the
 * narrower type behind it is the only one: of numbers beyond `limit`, the lowest `bits`. */
static uint32_t stick(sx_loop_builder *b, uint32_t x, int64_t limit, uint32_t bits)
{
    int64_t rest = (INT64_C(1) << bits) - 1;
    uint32_t low = bin(b, SX_LOP_AND, x, whole(b, rest));
    uint32_t none = compare_with(b, SX_LOP_ICMP, low, whole(b, 0), SX_EQ);
    uint32_t kept = bin(b, SX_LOP_AND, x, whole(b, ~rest));
    kept = blend(b, none, kept, bin(b, SX_LOP_OR, kept, whole(b, rest + 1)));
    uint32_t below = compare_with(b, SX_LOP_ICMP, whole(b, -limit), x, SX_GT);
    uint32_t above = compare_with(b, SX_LOP_ICMP, x, whole(b, limit), SX_GT);
    return blend(b, bin(b, SX_LOP_MOR, above, below), kept, x);
}

static uint32_t int_to_float(sx_loop_builder *b, sx_dtype from, sx_dtype to, uint32_t x)
{
    if (from == SX_I64) {
        x = to == SX_F64 ? x : stick(b, x, INT64_C(1) << 53, 11);
        x = long_to_real(b, x);
    } else {
        bool narrow = from == SX_I32 && !is_wide(b) && to != SX_F32;
        x = narrow ? stick(b, x, INT64_C(1) << 24, 8) : x;
        x = small_to_real(b, x);
    }
    return sx_loop_round(b, to, x);
}

/* Toward zero, saturated, NaN to 0. */
static uint32_t float_to_int(sx_loop_builder *b, sx_dtype to, uint32_t x)
{
    double low = (double)sx_num_int_min(to);
    double high = (double)sx_num_int_max(to); /* of i64, and of i32 with lanes of 4 bytes, 1 more */
    uint32_t r;
    if (8 * b->kernel->lane_bytes == 8 * sx_dtype_bytes(to)) {
        double beyond = is_wide(b) ? 0x1p63 : 0x1p31;
        r = is_wide(b) ? real_to_long(b, un_imm(b, SX_LOP_ROUND, clamp(b, x, low, beyond), 3))
                       : un(b, SX_LOP_F2I, x);
        uint32_t above = compare_with(b, SX_LOP_CMP, x, real(b, beyond), SX_GE);
        r = blend(b, above, whole(b, sx_num_int_max(to)), r);
    } else {
        r = small_to_int(b, un_imm(b, SX_LOP_ROUND, clamp(b, x, low, high), 3));
    }
    uint32_t zero = whole(b, 0);
    return blend(b, compare_with(b, SX_LOP_CMP, x, x, SX_EQ), r, zero);
}

static uint32_t convert(sx_loop_builder *b, sx_dtype from, sx_dtype to, uint32_t x)
{
    if (from == to && to != SX_F8E5M2) { /* which makes infinity its largest number */
        return x;
    }
    if (from == SX_BOOL) {
        uint32_t zero = sx_loop_constant(b, to, 0);
        return blend(b, x, sx_loop_constant(b, to, 1), zero);
    }
    bool from_float = sx_dtype_class_of(from) == SX_CLASS_FLOAT;
    switch (sx_dtype_class_of(to)) {
    case SX_CLASS_BOOL:
        return from_float ? compare_with(b, SX_LOP_CMP, x, real(b, 0), SX_NE)
                          : un(b, SX_LOP_MNOT, compare_with(b, SX_LOP_ICMP, x, whole(b, 0), SX_EQ));
    case SX_CLASS_FLOAT: return from_float ? sx_loop_round(b, to, x) : int_to_float(b, from, to, x);
    case SX_CLASS_INT: break;
    }
    return from_float ? float_to_int(b, to, x) : wrap(b, to, x);
}

/* ---- ---- */
/* Is the result of numbers of a type one of the type? Of f8e5m2 it is not: infinity becomes the largest number. */
static bool is_exact(sx_op op, sx_dtype dtype)
{
    switch ((int)op) {
    case SX_OP_NEGATE:
    case SX_OP_ABS:
    case SX_OP_SIGN:
    case SX_OP_FLOOR:
    case SX_OP_CEIL:
    case SX_OP_ROUND:
    case SX_OP_RELU:
    case SX_OP_MAXIMUM:
    case SX_OP_MINIMUM:
    case SX_OP_REMAINDER: return dtype != SX_F8E5M2;
    default: return false;
    }
}

/* c times 2^exponent, in steps that a lane's float can hold: infinite only where the product is too large. */
static uint32_t scale_up(sx_loop_builder *b, uint32_t c, uint32_t exponent)
{
    while (exponent > 0) {
        uint32_t part = exponent < lane_bias(b) ? exponent : lane_bias(b);
        c = bin(b, SX_LOP_MUL, c, real(b, ldexp(1, (int)part)));
        exponent -= part;
    }
    return c;
}

/* x - y trunc(x / y) without rounding, with the sign of x: long division with digits of as many bits as a lane's
 * significand has (p), from the most significant. A step takes trunc(r / d) d from r < 2^p d, d = 2^(k p) |y|.
 * The rounded quotient is at most one too large and the difference is a multiple of the last place of d that is
 * smaller than d: exact, and d is added where it is negative. Where d is beyond the range there is nothing to
 * take. x infinite, y zero and NaN give NaN by themselves, but for x and y infinite. */
static uint32_t remainder_float(sx_loop_builder *b, sx_dtype dtype, uint32_t x, uint32_t y)
{
    format f = {11, 52, false, 0};
    (void)format_of(dtype, &f);
    uint32_t bias = (1u << (f.exponent_bits - 1)) - 1;
    uint32_t places = lane_mantissa(b) + 1;
    uint32_t range = 2 * bias + f.mantissa_bits + 1; /* |x / y| < 2^range; f8e4m3 needs the 1 */
    uint32_t infinity = infinity_bits(b);
    uint32_t size = magnitude(b, x);
    uint32_t divisor = magnitude(b, y);
    uint32_t r = size;
    for (uint32_t k = (range + places - 1) / places; k-- > 0;) {
        uint32_t d = scale_up(b, divisor, k * places);
        uint32_t digit = un_imm(b, SX_LOP_ROUND, bin(b, SX_LOP_DIV, r, d), 3);
        uint32_t rest = sx_loop_op(b, SX_LOP_FNMA, SX_NO_REG, NULL, digit, d, r, 0, 0);
        uint32_t below = compare_with(b, SX_LOP_CMP, rest, real(b, 0), SX_LT);
        rest = blend(b, below, bin(b, SX_LOP_ADD, rest, d), rest);
        r = blend(b, compare_with(b, SX_LOP_CMP, d, infinity, SX_EQ), r, rest);
    }
    uint32_t infinite = compare_with(b, SX_LOP_CMP, size, infinity, SX_EQ);
    r = blend(b, infinite, real(b, (double)NAN), r);
    return bin(b, SX_LOP_OR, r, bin(b, SX_LOP_AND, x, sign_bit(b)));
}

static uint32_t apply_float(sx_loop_builder *b, const sx_loop_step *step, uint32_t x, uint32_t y,
                            uint32_t z)
{
    if (step->op == SX_OP_RSQRT && step->to != SX_F64) { /* the root is rounded, too */
        uint32_t root = sx_loop_round(b, step->to, un(b, SX_LOP_SQRT, x));
        return bin(b, SX_LOP_DIV, real(b, 1), root);
    }
    if (step->op == SX_OP_REMAINDER) {
        return remainder_float(b, step->to, x, y);
    }
    return is_wide(b) ? sx_loop_apply_wide(b, step->op, x, y)
                      : sx_loop_apply(b, step->op, step->direction, x, y, z);
}

uint32_t sx_loop_typed(sx_loop_builder *b, const sx_loop_step *step, uint32_t x, uint32_t y,
                       uint32_t z)
{
    if (b->code != SX_OK) {
        return 0;
    }
    switch ((int)step->op) {
    case SX_OP_COMPARE: return compare(b, step, x, y);
    case SX_OP_SELECT: return select_value(b, step->to, x, y, z);
    case SX_OP_CONVERT: return convert(b, step->from, step->to, x);
    default: break;
    }
    switch (sx_dtype_class_of(step->to)) {
    case SX_CLASS_FLOAT:
        x = apply_float(b, step, x, y, z);
        return is_exact(step->op, step->to) ? x : sx_loop_round(b, step->to, x);
    case SX_CLASS_INT: return apply_int(b, step->op, step->to, x, y);
    case SX_CLASS_BOOL: break;
    }
    return apply_bool(b, step->op, x, y);
}

uint32_t sx_loop_combine(sx_loop_builder *b, sx_reducer reducer, sx_dtype dtype, uint32_t dst,
                         uint32_t x, uint32_t y)
{
    static const sx_lop floats[SX_REDUCER_COUNT] = {[SX_SUM] = SX_LOP_ADD,
                                                    [SX_PRODUCT] = SX_LOP_MUL,
                                                    [SX_MAX] = SX_LOP_MAX,
                                                    [SX_MIN] = SX_LOP_MIN};
    uint32_t none = SX_NO_REG;
    SX_ASSERT(reducer < SX_REDUCER_COUNT);
    bool order = reducer == SX_MAX || reducer == SX_MIN;
    if (sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
        return order ? sx_loop_order(b, floats[reducer], dst, y, x)
                     : sx_loop_op(b, floats[reducer], dst, NULL, x, y, none, 0, 0);
    }
    if (reducer == SX_PRODUCT && dtype == SX_I64) {
        sx_loop_step step = {.op = SX_OP_MULTIPLY, .from = dtype, .to = dtype};
        uint32_t product = sx_loop_typed(b, &step, x, y, none);
        return sx_loop_op(b, SX_LOP_MOV, dst, NULL, product, none, none, 0, 0);
    }
    if (!order && dtype != SX_BOOL) {
        sx_lop op = reducer == SX_SUM ? SX_LOP_IADD : SX_LOP_IMUL;
        return sx_loop_op(b, op, dst, NULL, x, y, none, 0, 0);
    }
    uint32_t greater = sx_loop_op(b, SX_LOP_ICMP, none, NULL, x, y, none, SX_GT, 0);
    bool max = reducer == SX_MAX || reducer == SX_SUM; /* of 0 and 1: or */
    return sx_loop_op(b, SX_LOP_BLEND, dst, NULL, greater, max ? x : y, max ? y : x, 0, 0);
}
