/* alu_integer.c - integers, bits, comparisons of integers, choices and moves.
 *
 * A register of n bits is held as a number modulo 2^n, so that sums and products of all types are those of 64 bits
 * cut to n. (x ^ sign) - sign extends the sign of a signed type, x ^ sign maps its order to that of unsigned
 * numbers; of unsigned types `sign` is 0 and both are x.
 */
#include "core/simt/alu_inside.h"

/* A function of the lanes of up to four operands x, y, z, w. */
#define UNARY(name, value)                                               \
    static void name(const sx_ptx_alu *alu, sx_ptx_word *const *result,  \
                     const sx_ptx_word *const *operand, uint32_t active) \
    {                                                                    \
        const uint64_t mask = alu->mask;                                 \
        sx_ptx_word out;                                                 \
        SX_PTX_EACH_LANE(i)                                              \
        {                                                                \
            uint64_t x = operand[0]->lane[i] & mask;                     \
            out.lane[i] = (value);                                       \
        }                                                                \
        sx_ptx_put_lanes(result[0], &out, active);                       \
    }
#define BINARY(name, value)                                              \
    static void name(const sx_ptx_alu *alu, sx_ptx_word *const *result,  \
                     const sx_ptx_word *const *operand, uint32_t active) \
    {                                                                    \
        const uint64_t mask = alu->mask;                                 \
        sx_ptx_word out;                                                 \
        SX_PTX_EACH_LANE(i)                                              \
        {                                                                \
            uint64_t x = operand[0]->lane[i];                            \
            uint64_t y = operand[1]->lane[i];                            \
            out.lane[i] = (value)&mask;                                  \
        }                                                                \
        sx_ptx_put_lanes(result[0], &out, active);                       \
    }
#define TERNARY(name, result_mask, value)                                \
    static void name(const sx_ptx_alu *alu, sx_ptx_word *const *result,  \
                     const sx_ptx_word *const *operand, uint32_t active) \
    {                                                                    \
        const uint64_t mask = (result_mask);                             \
        sx_ptx_word out;                                                 \
        SX_PTX_EACH_LANE(i)                                              \
        {                                                                \
            uint64_t x = operand[0]->lane[i];                            \
            uint64_t y = operand[1]->lane[i];                            \
            uint64_t z = operand[2]->lane[i];                            \
            out.lane[i] = (value)&mask;                                  \
        }                                                                \
        sx_ptx_put_lanes(result[0], &out, active);                       \
    }

/* The number of 64 bits that has the value of x. */
static inline uint64_t widen(const sx_ptx_alu *alu, uint64_t x)
{
    return (x ^ alu->sign) - alu->sign;
}

/* ---- sums and products ---- */
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul_low, x *y)
TERNARY(mad_low, alu->mask, x *y + z)

static int64_t clamp_s32(int64_t value)
{
    return value < INT32_MIN ? INT32_MIN : value > INT32_MAX ? INT32_MAX : value;
}
BINARY(add_sat, (uint64_t)clamp_s32((int64_t)(int32_t)x + (int32_t)y))
BINARY(sub_sat, (uint64_t)clamp_s32((int64_t)(int32_t)x - (int32_t)y))

/* The upper half of the product. */
static inline uint64_t high(const sx_ptx_alu *alu, uint64_t x, uint64_t y)
{
    uint64_t a = widen(alu, x);
    uint64_t b = widen(alu, y);
    if (alu->bits < 64) {
        return a * b >> alu->bits; /* 32 bits times 32 bits fit in 64, signed or not */
    }
    return (uint64_t)(alu->is_signed ? (sx_u128)((sx_s128)(int64_t)a * (int64_t)b) >> 64
                                     : (sx_u128)a * b >> 64);
}
BINARY(mul_high, high(alu, x, y))
TERNARY(mad_high, alu->mask, high(alu, x, y) + z)
TERNARY(mad_wide, alu->wide_mask, widen(alu, x) * widen(alu, y) + z)

static void mul_wide(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                     const sx_ptx_word *const *operand, uint32_t active)
{
    const uint64_t mask = alu->wide_mask;
    sx_ptx_word out;
    SX_PTX_EACH_LANE(i)
    {
        out.lane[i] = widen(alu, operand[0]->lane[i]) * widen(alu, operand[1]->lane[i]) & mask;
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

static uint64_t quotient(const sx_ptx_alu *alu, uint64_t x, uint64_t y)
{
    uint64_t b = widen(alu, y);
    if (b == 0) {
        return UINT64_MAX;
    }
    if (!alu->is_signed) {
        return x / b;
    }
    return b == UINT64_MAX ? 0 - x : (uint64_t)((int64_t)widen(alu, x) / (int64_t)b);
}
static uint64_t remainder_of(const sx_ptx_alu *alu, uint64_t x, uint64_t y)
{
    uint64_t b = widen(alu, y);
    if (b == 0) {
        return UINT64_MAX;
    }
    if (!alu->is_signed) {
        return x % b;
    }
    return b == UINT64_MAX ? 0 : (uint64_t)((int64_t)widen(alu, x) % (int64_t)b);
}
BINARY(divide, quotient(alu, x, y))
BINARY(modulo, remainder_of(alu, x, y))
UNARY(absolute, ((x & alu->sign) != 0 ? 0 - x : x) & mask)
UNARY(negate, (0 - x) & mask)
BINARY(minimum, (x ^ alu->sign) < (y ^ alu->sign) ? x : y)
BINARY(maximum, (x ^ alu->sign) > (y ^ alu->sign) ? x : y)

/* Four products of bytes, each signed if its type is. */
static uint64_t dot_bytes(const sx_ptx_alu *alu, uint64_t x, uint64_t y, uint64_t z)
{
    uint64_t sign_x = alu->type == SX_PTX_TYPE_S32 ? 0x80 : 0;
    uint64_t sign_y = alu->type2 == SX_PTX_TYPE_S32 ? 0x80 : 0;
    for (uint32_t shift = 0; shift < 32; shift += 8) {
        uint64_t a = ((x >> shift & 0xFF) ^ sign_x) - sign_x;
        uint64_t b = ((y >> shift & 0xFF) ^ sign_y) - sign_y;
        z += a * b;
    }
    return z;
}
TERNARY(dp4a, UINT32_MAX, dot_bytes(alu, x, y, z))

/* ---- bits ---- */
BINARY(and, x &y)
BINARY(or, x | y)
BINARY(xor, x ^ y)
UNARY(not, ~x &mask)

static uint64_t count_ones(uint64_t x)
{
    return (uint64_t)__builtin_popcountll(x);
}
/* The number of the highest bit that is set; x is not 0. */
static uint64_t highest(uint64_t x)
{
    return 63 - (uint64_t)__builtin_clzll(x);
}
static uint64_t leading_zeros(const sx_ptx_alu *alu, uint64_t x)
{
    uint64_t bits = alu->bits;
    return x == 0 ? bits : bits - 1 - highest(x);
}
UNARY(popc, count_ones(x))
UNARY(clz, leading_zeros(alu, x))

static uint64_t find_bit(const sx_ptx_alu *alu, uint64_t x)
{
    uint64_t seen = (x & alu->sign) != 0 ? ~x & alu->mask : x;
    if (seen == 0) {
        return UINT32_MAX;
    }
    uint64_t last = alu->bits - 1U;
    return alu->shift_amount ? last - highest(seen) : highest(seen);
}
UNARY(bfind, find_bit(alu, x))

static uint64_t reverse(const sx_ptx_alu *alu, uint64_t x)
{
    uint64_t out = 0;
    for (uint32_t k = 0; k < alu->bits; k++) {
        out |= (x >> k & 1) << (alu->bits - 1 - k);
    }
    return out;
}
UNARY(brev, reverse(alu, x))

/* `length` bits of x from `place` on; what lies beyond the register is the sign. */
static uint64_t extract(const sx_ptx_alu *alu, uint64_t x, uint64_t place, uint64_t length)
{
    uint64_t bits = alu->bits;
    uint64_t last = place + length > bits ? bits - 1 : place + length - 1;
    bool sign = alu->is_signed && length > 0 && (x >> last & 1) != 0;
    uint64_t shifted = place < 64 ? x >> place : 0;
    uint64_t kept = place >= bits ? 0 : place + length > bits ? bits - place : length;
    uint64_t low = kept >= 64 ? UINT64_MAX : (UINT64_C(1) << kept) - 1;
    return sign ? shifted | ~low : shifted & low;
}
TERNARY(bfe, alu->mask, extract(alu, x &mask, y & 0xFF, z & 0xFF))

static uint64_t insert(uint64_t x, uint64_t into, uint64_t place, uint64_t length)
{
    uint64_t low = length >= 64 ? UINT64_MAX : (UINT64_C(1) << length) - 1;
    return place >= 64 ? into : (into & ~(low << place)) | (x & low) << place;
}
static void bfi(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                const sx_ptx_word *const *operand, uint32_t active)
{
    sx_ptx_word out;
    SX_PTX_EACH_LANE(i)
    {
        uint64_t place = operand[2]->lane[i] & 0xFF;
        uint64_t length = operand[3]->lane[i] & 0xFF;
        out.lane[i] = insert(operand[0]->lane[i], operand[1]->lane[i], place, length) & alu->mask;
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

/* Shifts by the width or more give what shifting one by one would. */
BINARY(shl, y < 64 ? x << y : 0)

static uint64_t shift_right(const sx_ptx_alu *alu, uint64_t x, uint64_t by)
{
    uint64_t fill = (x & alu->sign) != 0 ? UINT64_MAX : 0;
    return by >= alu->bits ? fill : (x >> by) | (by == 0 ? 0 : fill << (alu->bits - by));
}
BINARY(shr, shift_right(alu, x &mask, y &UINT32_MAX))

/* y:x as 64 bits, shifted; the upper half of a left shift, the lower half of a right one. */
static uint64_t funnel(const sx_ptx_alu *alu, uint64_t x, uint64_t y, uint64_t z)
{
    uint64_t both = (y & UINT32_MAX) << 32 | (x & UINT32_MAX);
    uint64_t by = alu->clamp ? (z < 32 ? z : 32) : z & 31;
    return alu->left ? both << by >> 32 : both >> by;
}
TERNARY(shf, UINT32_MAX, funnel(alu, x, y, z))

/* Bit k of the result is the bit of the table at the three bits k. */
static void lop3(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                 const sx_ptx_word *const *operand, uint32_t active)
{
    sx_ptx_word out;
    uint64_t table = operand[3]->lane[0];
    SX_PTX_EACH_LANE(i)
    {
        uint64_t x = operand[0]->lane[i], y = operand[1]->lane[i], z = operand[2]->lane[i];
        uint64_t value = 0;
        for (uint32_t row = 0; row < 8; row++) {
            uint64_t term =
                ((row & 4) != 0 ? x : ~x) & ((row & 2) != 0 ? y : ~y) & ((row & 1) != 0 ? z : ~z);
            value |= (table >> row & 1) != 0 ? term : 0;
        }
        out.lane[i] = value & alu->mask;
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

/* Each byte is one of the eight of y:x, or its sign eight times. */
static uint64_t permute(uint64_t x, uint64_t y, uint64_t select)
{
    uint64_t both = (y & UINT32_MAX) << 32 | (x & UINT32_MAX);
    uint64_t out = 0;
    for (uint32_t k = 0; k < 4; k++) {
        uint64_t nibble = select >> (4 * k) & 0xF;
        uint64_t byte = both >> (8 * (nibble & 7)) & 0xFF;
        byte = (nibble & 8) == 0 ? byte : (byte & 0x80) != 0 ? 0xFF : 0;
        out |= byte << (8 * k);
    }
    return out;
}
TERNARY(prmt, alu->mask, permute(x, y, z))

/* ---- comparisons and choices ---- */
/* p = t join c and q = !t join c. */
static void setp(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                 const sx_ptx_word *const *operand, uint32_t active)
{
    const uint64_t mask = alu->mask, sign = alu->sign;
    const uint64_t less = (alu->relation & SX_PTX_LESS) != 0;
    const uint64_t equal = (alu->relation & SX_PTX_EQUAL) != 0;
    const uint64_t greater = (alu->relation & SX_PTX_GREATER) != 0;
    sx_ptx_word out;
    SX_PTX_EACH_LANE(i)
    {
        uint64_t x = (operand[0]->lane[i] & mask) ^ sign;
        uint64_t y = (operand[1]->lane[i] & mask) ^ sign;
        out.lane[i] = ((x < y) & less) | ((x == y) & equal) | ((x > y) & greater);
    }
    sx_ptx_put_predicates(alu, result, operand, &out, active);
}

void sx_ptx_put_predicates(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                           const sx_ptx_word *const *operand, const sx_ptx_word *truth,
                           uint32_t active)
{
    sx_ptx_word p = *truth, q;
    SX_PTX_EACH_LANE(i)
    {
        uint64_t t = truth->lane[i];
        uint64_t c = alu->join == 0 ? 0 : (operand[2]->lane[i] & 1) ^ (alu->negated ? 1 : 0);
        bool both = alu->join == SX_PTX_JOIN_AND;
        bool other = alu->join == SX_PTX_JOIN_XOR;
        p.lane[i] = both ? t & c : other ? t ^ c : t | c;
        q.lane[i] = both ? (t ^ 1) & c : other ? (t ^ 1) ^ c : (t ^ 1) | c;
    }
    sx_ptx_put_lanes(result[0], &p, active);
    if (alu->pair) {
        sx_ptx_put_lanes(result[1], &q, active);
    }
}
TERNARY(selp, alu->mask, (z & 1) != 0 ? x : y)

/* ---- moves ---- */
UNARY(mov, x)

/* The first element is the lowest. */
static void pack(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                 const sx_ptx_word *const *operand, uint32_t active)
{
    uint32_t bits = alu->bits / alu->operand_count;
    uint64_t low = (UINT64_C(1) << bits) - 1;
    sx_ptx_word out = {{0}};
    for (uint32_t k = 0; k < alu->operand_count; k++) {
        SX_PTX_EACH_LANE(i)
        {
            out.lane[i] |= (operand[k]->lane[i] & low) << (bits * k);
        }
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

static void unpack(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                   const sx_ptx_word *const *operand, uint32_t active)
{
    uint32_t bits = alu->bits / alu->result_count;
    uint64_t low = (UINT64_C(1) << bits) - 1;
    const sx_ptx_word in = *operand[0]; /* which may be one of the results */
    for (uint32_t k = 0; k < alu->result_count; k++) {
        sx_ptx_word out;
        SX_PTX_EACH_LANE(i)
        {
            out.lane[i] = in.lane[i] >> (bits * k) & low;
        }
        sx_ptx_put_lanes(result[k], &out, active);
    }
}

static const sx_ptx_run by_handler[SX_PTX_RUN_COUNT] = {
    [SX_PTX_RUN_MUL_WIDE] = mul_wide, [SX_PTX_RUN_MAD_WIDE] = mad_wide,
    [SX_PTX_RUN_DIV] = divide,        [SX_PTX_RUN_REM] = modulo,
    [SX_PTX_RUN_ABS] = absolute,      [SX_PTX_RUN_NEG] = negate,
    [SX_PTX_RUN_MIN] = minimum,       [SX_PTX_RUN_MAX] = maximum,
    [SX_PTX_RUN_POPC] = popc,         [SX_PTX_RUN_CLZ] = clz,
    [SX_PTX_RUN_BFIND] = bfind,       [SX_PTX_RUN_BREV] = brev,
    [SX_PTX_RUN_BFE] = bfe,           [SX_PTX_RUN_BFI] = bfi,
    [SX_PTX_RUN_AND] = and,           [SX_PTX_RUN_OR] = or,
    [SX_PTX_RUN_XOR] = xor,           [SX_PTX_RUN_NOT] = not,
    [SX_PTX_RUN_SHL] = shl,           [SX_PTX_RUN_SHR] = shr,
    [SX_PTX_RUN_SHF] = shf,           [SX_PTX_RUN_LOP3] = lop3,
    [SX_PTX_RUN_PRMT] = prmt,         [SX_PTX_RUN_DP4A] = dp4a,
    [SX_PTX_RUN_SELP] = selp,         [SX_PTX_RUN_MOV] = mov,
    [SX_PTX_RUN_PACK] = pack,         [SX_PTX_RUN_UNPACK] = unpack,
};

sx_ptx_run sx_ptx_integer_of(const sx_ptx_alu *alu)
{
    bool is_float = alu->type >= SX_PTX_TYPE_F16 && alu->type <= SX_PTX_TYPE_F64;
    bool upper = alu->half == SX_PTX_HALF_HI;
    SX_ASSERT(alu->handler < SX_PTX_RUN_COUNT);
    SX_ASSERT(alu->run == NULL);
    switch ((int)alu->handler) {
    case SX_PTX_RUN_ADD: return alu->saturate ? add_sat : add;
    case SX_PTX_RUN_SUB: return alu->saturate ? sub_sat : sub;
    case SX_PTX_RUN_MUL: return upper ? mul_high : mul_low;
    case SX_PTX_RUN_MAD: return upper ? mad_high : mad_low;
    case SX_PTX_RUN_SETP: return is_float ? NULL : setp;
    default: return by_handler[alu->handler];
    }
}
