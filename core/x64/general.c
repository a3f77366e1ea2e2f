/* general.c - general registers and flags: what the micro-operations GENERAL compute, and conditions. */
#include "core/x64/uop.h"

static uint64_t low(uint64_t value, uint32_t bits)
{
    return bits == 64 ? value : value & UINT32_MAX;
}

static bool top(uint64_t value, uint32_t bits)
{
    return (value >> (bits - 1) & 1) != 0;
}

/* Zero and sign of the result; carry and overflow as given, in the low two bits of `more`. */
static uint64_t flagged(sx_x64_flags *flags, uint64_t result, uint32_t bits, bool carry,
                        bool overflow)
{
    result = low(result, bits);
    flags->defined = SX_FLAGS_ALL;
    flags->set = (carry ? SX_CARRY : 0U) | (overflow ? SX_OVERFLOW : 0U) |
                 (result == 0 ? SX_ZERO : 0U) | (top(result, bits) ? SX_SIGN : 0U);
    return result;
}

#define GENERAL(name)                                                                    \
    static uint64_t general_##name(const sx_x64_uop *u, sx_x64_flags *flags, uint64_t a, \
                                   uint64_t b, uint32_t bits)

GENERAL(GMOV)
{
    (void)u;
    (void)flags;
    (void)a;
    return low(b, bits);
}

GENERAL(GEXTEND)
{
    (void)flags;
    (void)a;
    switch (u->element) {
    case SX_ELEMENT_I8: return low((uint64_t)(int64_t)(int8_t)(uint8_t)b, bits);
    case SX_ELEMENT_I16: return low((uint64_t)(int64_t)(int16_t)(uint16_t)b, bits);
    case SX_ELEMENT_I32: return low((uint64_t)(int64_t)(int32_t)(uint32_t)b, bits);
    case SX_ELEMENT_U8: return b & UINT8_MAX;
    default: return b & UINT16_MAX;
    }
}

GENERAL(GADD)
{
    (void)u;
    uint64_t r = low(a + b, bits);
    return flagged(flags, r, bits, r < a, top((a ^ r) & (b ^ r), bits));
}

GENERAL(GSUB)
{
    (void)u;
    uint64_t r = low(a - b, bits);
    return flagged(flags, r, bits, a < b, top((a ^ b) & (a ^ r), bits));
}

GENERAL(GOR)
{
    (void)u;
    return flagged(flags, a | b, bits, false, false);
}

GENERAL(GAND)
{
    (void)u;
    return flagged(flags, a & b, bits, false, false);
}

GENERAL(GXOR)
{
    (void)u;
    return flagged(flags, a ^ b, bits, false, false);
}

GENERAL(GMUL)
{
    (void)u;
    int64_t product;
    bool over = __builtin_mul_overflow((int64_t)a, (int64_t)b, &product);
    uint64_t r = flagged(flags, (uint64_t)a * (uint64_t)b, bits, over, over);
    flags->defined = SX_CARRY | SX_OVERFLOW;
    return r;
}

/* Shifts: the count is taken modulo the width; by zero nothing changes, flags neither. `last` is the bit
 * shifted out last. */
static uint64_t shifted(sx_x64_flags *flags, uint64_t r, uint32_t bits, uint32_t count, bool last,
                        bool overflow)
{
    r = flagged(flags, r, bits, last, overflow);
    flags->defined = count == 1 ? SX_FLAGS_ALL : SX_FLAGS_ALL & ~(uint32_t)SX_OVERFLOW;
    return r;
}

GENERAL(GSHL)
{
    (void)u;
    uint32_t count = (uint32_t)b & (bits - 1);
    if (count == 0) {
        return a;
    }
    uint64_t r = low(a << count, bits);
    bool last = (a >> (bits - count) & 1) != 0;
    return shifted(flags, r, bits, count, last, top(r, bits) != last);
}

GENERAL(GSHR)
{
    (void)u;
    uint32_t count = (uint32_t)b & (bits - 1);
    return count == 0
               ? a
               : shifted(flags, a >> count, bits, count, (a >> (count - 1) & 1) != 0, top(a, bits));
}

GENERAL(GSAR)
{
    (void)u;
    uint32_t count = (uint32_t)b & (bits - 1);
    if (count == 0) {
        return a;
    }
    uint64_t sign = top(a, bits) ? UINT64_MAX << (bits - count) : 0;
    return shifted(flags, a >> count | sign, bits, count, (a >> (count - 1) & 1) != 0, false);
}

GENERAL(GINC)
{
    sx_x64_flags before = *flags;
    uint64_t r = general_GADD(u, flags, a, 1, bits);
    flags->set = (flags->set & ~(uint32_t)SX_CARRY) | (before.set & SX_CARRY);
    flags->defined = (SX_FLAGS_ALL & ~(uint32_t)SX_CARRY) | (before.defined & SX_CARRY);
    (void)b;
    return r;
}

GENERAL(GDEC)
{
    sx_x64_flags before = *flags;
    uint64_t r = general_GSUB(u, flags, a, 1, bits);
    flags->set = (flags->set & ~(uint32_t)SX_CARRY) | (before.set & SX_CARRY);
    flags->defined = (SX_FLAGS_ALL & ~(uint32_t)SX_CARRY) | (before.defined & SX_CARRY);
    (void)b;
    return r;
}

GENERAL(GNEG)
{
    (void)b;
    return general_GSUB(u, flags, 0, a, bits);
}

sx_x64_general_run *sx_x64_general_of(sx_x64_micro micro)
{
    static sx_x64_general_run *const table[SX_MICRO_COUNT] = {
        [SX_MICRO_GMOV] = general_GMOV,     [SX_MICRO_GEXTEND] = general_GEXTEND,
        [SX_MICRO_GADDRESS] = general_GMOV, [SX_MICRO_GADD] = general_GADD,
        [SX_MICRO_GOR] = general_GOR,       [SX_MICRO_GAND] = general_GAND,
        [SX_MICRO_GSUB] = general_GSUB,     [SX_MICRO_GXOR] = general_GXOR,
        [SX_MICRO_GCMP] = general_GSUB,     [SX_MICRO_GTEST] = general_GAND,
        [SX_MICRO_GMUL] = general_GMUL,     [SX_MICRO_GSHL] = general_GSHL,
        [SX_MICRO_GSHR] = general_GSHR,     [SX_MICRO_GSAR] = general_GSAR,
        [SX_MICRO_GINC] = general_GINC,     [SX_MICRO_GDEC] = general_GDEC,
        [SX_MICRO_GNEG] = general_GNEG,     [SX_MICRO_GSELECT] = general_GMOV,
    };
    SX_ASSERT(micro < SX_MICRO_COUNT);
    return table[micro];
}

bool sx_x64_condition(const sx_x64_flags *flags, sx_x64_variant condition, bool *defined)
{
    bool carry = (flags->set & SX_CARRY) != 0;
    bool zero = (flags->set & SX_ZERO) != 0;
    bool sign = (flags->set & SX_SIGN) != 0;
    bool less = sign != ((flags->set & SX_OVERFLOW) != 0);
    uint32_t reads = 0;
    bool holds = true;
    switch (condition) {
    case SX_VARIANT_B: reads = SX_CARRY, holds = carry; break;
    case SX_VARIANT_AE: reads = SX_CARRY, holds = !carry; break;
    case SX_VARIANT_E: reads = SX_ZERO, holds = zero; break;
    case SX_VARIANT_NE: reads = SX_ZERO, holds = !zero; break;
    case SX_VARIANT_BE: reads = SX_CARRY | SX_ZERO, holds = carry || zero; break;
    case SX_VARIANT_A: reads = SX_CARRY | SX_ZERO, holds = !carry && !zero; break;
    case SX_VARIANT_S: reads = SX_SIGN, holds = sign; break;
    case SX_VARIANT_NS: reads = SX_SIGN, holds = !sign; break;
    case SX_VARIANT_L: reads = SX_SIGN | SX_OVERFLOW, holds = less; break;
    case SX_VARIANT_GE: reads = SX_SIGN | SX_OVERFLOW, holds = !less; break;
    case SX_VARIANT_LE: reads = SX_SIGN | SX_OVERFLOW | SX_ZERO, holds = less || zero; break;
    case SX_VARIANT_G: reads = SX_SIGN | SX_OVERFLOW | SX_ZERO, holds = !less && !zero; break;
    default: break; /* always */
    }
    *defined = (flags->defined & reads) == reads;
    return holds;
}
