/* lanes.c - the formulas of lanes.def as functions, and the places of permutations. Portable C: the same bits
 * on every machine whose float and double are IEEE 754 and whose rounding mode is the default one; fma and
 * fmaf round once (C11 7.12.13.1). */
#include <math.h>
#include <string.h>

#include "core/x64/uop.h"

_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "IEEE 754");

/* ---- bits and NaNs ---- */

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

#define QUIET_F32 UINT32_C(0x00400000)
#define QUIET_F64 UINT64_C(0x0008000000000000)
#define DEFAULT_NAN_F32 UINT32_C(0xFFC00000)
#define DEFAULT_NAN_F64 UINT64_C(0xFFF8000000000000)

/* The NaN that comes out where C leaves it open: the first operand that is NaN, made quiet, else the default one. */
static float nan_f32(float a, float b, float c)
{
    float first = isnan(a) ? a : isnan(b) ? b : c;
    return float_of(isnan(first) ? bits_of_float(first) | QUIET_F32 : DEFAULT_NAN_F32);
}

static double nan_f64(double a, double b, double c)
{
    double first = isnan(a) ? a : isnan(b) ? b : c;
    return double_of(isnan(first) ? bits_of_double(first) | QUIET_F64 : DEFAULT_NAN_F64);
}

static float nan3_f32(float r, float a, float b, float c)
{
    return isnan(r) ? nan_f32(a, b, c) : r;
}

static double nan3_f64(double r, double a, double b, double c)
{
    return isnan(r) ? nan_f64(a, b, c) : r;
}

static float nan2_f32(float r, float a, float b)
{
    return nan3_f32(r, a, b, 0);
}

static double nan2_f64(double r, double a, double b)
{
    return nan3_f64(r, a, b, 0);
}

static float nan1_f32(float r, float a)
{
    return nan3_f32(r, a, 0, 0);
}

static double nan1_f64(double r, double a)
{
    return nan3_f64(r, a, 0, 0);
}

/* ---- comparing, rounding, converting ---- */

static uint32_t all_u32(bool set)
{
    return set ? UINT32_MAX : 0;
}

static uint64_t all_u64(bool set)
{
    return set ? UINT64_MAX : 0;
}

/* Predicates 0 to 31 of VCMPPS: for each of 16 whether it holds for less, equal, greater, unordered;
 * signalling ones repeat. */
static bool predicate(double a, double b, uint32_t imm)
{
    enum { LESS = 1, SAME = 2, MORE = 4, NONE = 8 };
    static const uint8_t holds[16] = {
        SAME,
        LESS,
        LESS | SAME,
        NONE,
        LESS | MORE | NONE,
        SAME | MORE | NONE,
        MORE | NONE,
        LESS | SAME | MORE,
        SAME | NONE,
        LESS | NONE,
        LESS | SAME | NONE,
        0,
        LESS | MORE,
        SAME | MORE,
        MORE,
        LESS | SAME | MORE | NONE,
    };
    uint32_t is = a < b ? LESS : a > b ? MORE : a == b ? SAME : NONE;
    return (holds[imm & 15] & is) != 0;
}

/* To an integral value by the low bits of the immediate (4 to 7: the current mode, nearest even); SCALED: to a
 * multiple of 2^-(imm >> 4). A value of `digits` bits or more in front of the point is integral. Exact:
 * scaling is by powers of two. */
static double rounded(double a, int digits, uint32_t variant, uint32_t imm)
{
    int scale = variant == SX_VARIANT_SCALED ? (int)(imm >> 4) : 0;
    if (!isfinite(a) || fabs(a) >= ldexp(1, digits)) {
        return a;
    }
    double x = ldexp(a, scale);
    switch ((imm & 4) != 0 ? 0 : imm & 3) {
    case 0: x = rint(x); break;
    case 1: x = floor(x); break;
    case 2: x = ceil(x); break;
    default: x = trunc(x); break;
    }
    return copysign(ldexp(x, -scale), a);
}

static int32_t int_of(double a, uint32_t variant)
{
    double x = variant == SX_VARIANT_TOWARD_ZERO ? trunc(a) : rint(a);
    return x >= -2147483648.0 && x <= 2147483647.0 ? (int32_t)x : INT32_MIN;
}

static uint64_t double_of_float(uint32_t a)
{
    if (isnan(float_of(a))) {
        uint64_t payload = (uint64_t)(a & 0x007FFFFF) << 29;
        return (uint64_t)(a >> 31) << 63 | UINT64_C(0x7FF) << 52 | payload | QUIET_F64;
    }
    return bits_of_double((double)float_of(a));
}

static uint32_t float_of_double(uint64_t a)
{
    if (isnan(double_of(a))) {
        uint32_t payload = (uint32_t)(a >> 29) & 0x007FFFFF;
        return (uint32_t)(a >> 63) << 31 | UINT32_C(0x7F800000) | payload | QUIET_F32;
    }
    return bits_of_float((float)double_of(a));
}

static uint32_t float_of_half(uint16_t a)
{
    uint32_t sign = (uint32_t)(a >> 15) << 31;
    uint32_t exponent = a >> 10 & 31;
    uint32_t fraction = a & 0x3FF;
    if (exponent == 31) {
        return sign | 0x7F800000 | fraction << 13 | (fraction != 0 ? QUIET_F32 : 0);
    }
    float value = exponent == 0 ? ldexpf((float)fraction, -24)
                                : ldexpf((float)(fraction | 0x400), (int)exponent - 25);
    return sign | bits_of_float(value);
}

/* Rounds by the low bits of the immediate: 0 and 4 to 7 nearest even, 1 down, 2 up, 3 toward zero. */
static uint16_t half_of_float(uint32_t a, uint32_t imm)
{
    float value = float_of(a);
    uint16_t sign = (uint16_t)(a >> 31 << 15);
    if (isnan(value)) {
        return (uint16_t)(sign | 0x7E00 | (a >> 13 & 0x3FF));
    }
    double size = fabs((double)value);
    int exponent = 0;
    (void)frexp(size, &exponent);
    int unit = exponent - 11 > -24 ? exponent - 11 : -24; /* the last place is 2^unit */
    uint32_t mode = (imm & 4) != 0 ? 0 : imm & 3;
    bool away = (mode == 1 && sign != 0) || (mode == 2 && sign == 0);
    if (isinf(value)) {
        return (uint16_t)(sign | 0x7C00);
    }
    double steps = ldexp(size, -unit);
    steps = mode == 0 ? rint(steps) : away ? ceil(steps) : floor(steps);
    double result = ldexp(steps, unit);
    if (result >=
        65536) { /* beyond the largest half, 65504: to infinity or not, as the mode says */
        return (uint16_t)(sign | (mode == 0 || away ? 0x7C00 : 0x7BFF));
    }
    if (result < ldexp(1, -14)) {
        return (uint16_t)(sign | (uint16_t)ldexp(result, 24));
    }
    (void)frexp(result, &exponent);
    uint32_t fraction = (uint32_t)ldexp(result, 11 - exponent) & 0x3FF;
    return (uint16_t)(sign | (uint32_t)(exponent + 14) << 10 | fraction);
}

/* ---- integers ---- */

static uint64_t shift(uint64_t b, uint32_t imm, uint32_t variant)
{
    return variant == SX_VARIANT_BY_IMMEDIATE ? imm : b;
}

static uint64_t left(uint64_t a, uint64_t count, uint32_t bits)
{
    return count < bits ? a << count : 0;
}

static uint64_t right(uint64_t a, uint64_t count, uint32_t bits)
{
    return count < bits ? a >> count : 0;
}

static uint32_t arithmetic_right(uint32_t a, uint64_t count)
{
    uint32_t sign = all_u32((a >> 31) != 0);
    return count >= 32 ? sign : count == 0 ? a : a >> count | sign << (32 - count);
}

static uint32_t ternary(uint32_t a, uint32_t b, uint32_t c, uint32_t imm)
{
    uint32_t r = 0;
    for (uint32_t k = 0; k < 8; k++) {
        uint32_t here = ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
        r |= (imm >> k & 1) != 0 ? here : 0;
    }
    return r;
}

/* ---- lanes.def ---- */

/* A formula uses some of a, b, c, imm and variant, and shifts change b. */
#define SX_X64_LANE(micro, element, out, in, formula)                                    \
    static void lane_##micro##_##element(const sx_x64_uop *u, sx_x64_vector *d,          \
                                         const sx_x64_vector *x, const sx_x64_vector *y, \
                                         const sx_x64_vector *z)                         \
    {                                                                                    \
        const uint32_t imm = u->imm;                                                     \
        const uint32_t variant = u->variant;                                             \
        (void)imm;                                                                       \
        (void)variant;                                                                   \
        for (uint32_t i = 0; i < u->lanes; i++) {                                        \
            __typeof__(x->in[0]) a = x->in[i];                                           \
            __typeof__(x->in[0]) b = y->in[i];                                           \
            __typeof__(x->in[0]) c = z->in[i];                                           \
            (void)b;                                                                     \
            (void)c;                                                                     \
            d->out[i] = formula;                                                         \
        }                                                                                \
    }
#include "core/x64/lanes.def"
#undef SX_X64_LANE

static void lane_SIGNS_I32(const sx_x64_uop *u, sx_x64_vector *d, const sx_x64_vector *x,
                           const sx_x64_vector *y, const sx_x64_vector *z)
{
    (void)y;
    (void)z;
    for (uint32_t i = 0; i < u->lanes; i++) {
        d->u32[0] |= x->u32[i] >> 31 << i;
    }
}

/* ---- permutations ---- */

/* Elements of 4 bytes are most of all; places never lie outside a vector, whatever the table says. */
static void lane_PICK(const sx_x64_uop *u, sx_x64_vector *d, const sx_x64_vector *x,
                      const sx_x64_vector *y, const sx_x64_vector *z)
{
    (void)z;
    const sx_x64_vector *from[2] = {x, y};
    uint32_t size = u->size;
    for (uint32_t i = 0; i < u->lanes; i++) {
        uint32_t place = u->pick[i];
        const sx_x64_vector *v = from[place >> 7];
        if (place == SX_X64_PICK_ZERO) {
            continue; /* the result was zero */
        }
        if (size == 4) {
            d->u32[i] = v->u32[place & 15];
        } else if (size == 8) {
            d->u64[i] = v->u64[place & 7];
        } else {
            d->u8[i] = v->u8[place & 63];
        }
    }
}

static void lane_LOOK_F32(const sx_x64_uop *u, sx_x64_vector *d, const sx_x64_vector *x,
                          const sx_x64_vector *y, const sx_x64_vector *z)
{
    uint32_t n = u->lanes;
    for (uint32_t i = 0; i < n; i++) {
        switch (u->variant) {
        case SX_VARIANT_WITHIN: d->u32[i] = x->u32[(i & ~3U) | (y->u32[i] & 3)]; break;
        case SX_VARIANT_ACROSS: d->u32[i] = y->u32[x->u32[i] & (n - 1)]; break;
        default: { /* two tables */
            uint32_t place = y->u32[i] & (2 * n - 1);
            d->u32[i] = place < n ? x->u32[place] : z->u32[place - n];
            break;
        }
        }
    }
}

static void lane_LOOK_U8(const sx_x64_uop *u, sx_x64_vector *d, const sx_x64_vector *x,
                         const sx_x64_vector *y, const sx_x64_vector *z)
{
    (void)z;
    for (uint32_t i = 0; i < u->lanes; i++) {
        uint8_t place = y->u8[i];
        d->u8[i] = (place & 0x80) != 0 ? 0 : x->u8[(i & ~15U) | (place & 15U)];
    }
}

/* Place of element i of `count` in the first source, or 128 more in the second. `part` is the number of
 * elements in 16 bytes. */
static uint32_t pick_place(const sx_x64_uop *u, uint32_t i, uint32_t count, bool in_memory)
{
    const uint32_t second = 128;
    uint32_t imm = u->imm;
    uint32_t part = 16 / u->size;
    uint32_t base = i / part * part; /* of the 16 bytes that hold element i */
    uint32_t within = i % part;
    uint32_t half =
        u->variant == SX_VARIANT_EXTRACT_Y || u->variant == SX_VARIANT_INSERT_Y ? 32 : 16;
    uint32_t block = half / u->size;
    switch ((sx_x64_variant)u->variant) {
    case SX_VARIANT_FIRST: return 0;
    case SX_VARIANT_SHUFFLE:
        return (within < 2 ? 0 : second) + base + (imm >> 2 * (within & 3) & 3);
    case SX_VARIANT_LOW_PAIRS: return (within % 2 == 0 ? 0 : second) + base + within / 2;
    case SX_VARIANT_HIGH_PAIRS:
        return (within % 2 == 0 ? 0 : second) + base + part / 2 + within / 2;
    case SX_VARIANT_WITHIN: return base + (imm >> 2 * (within & 3) & 3);
    case SX_VARIANT_QUARTERS: return (i & ~3U) + (imm >> 2 * (i & 3) & 3);
    case SX_VARIANT_HALVES: {
        uint32_t control = imm >> (i < count / 2 ? 0 : 4);
        uint32_t from = (control & 2) != 0 ? second : 0;
        return (control & 8) != 0 ? SX_X64_PICK_ZERO
                                  : from + (control & 1) * (count / 2) + i % (count / 2);
    }
    case SX_VARIANT_BLOCKS: {
        uint32_t blocks = count / part;
        uint32_t bits = blocks == 4 ? 2 : 1;
        uint32_t chosen = imm >> i / part * bits & (blocks - 1);
        return (i < count / 2 ? 0 : second) + chosen * part + within;
    }
    case SX_VARIANT_HIGH_TO_LOW: return i < 2 ? second + 2 + i : i;
    case SX_VARIANT_ODD_TWICE: return i | 1;
    case SX_VARIANT_CHOOSE: return ((imm >> (i & 7) & 1) != 0 ? second : 0) + i;
    case SX_VARIANT_EXTRACT_1: return imm & (part - 1);
    case SX_VARIANT_INSERT_1: return i == (imm & (part - 1)) ? second : i;
    case SX_VARIANT_INSERT_ZERO: {
        uint32_t from = in_memory ? 0 : imm >> 6 & 3;
        return (imm >> (i & 7) & 1) != 0 ? SX_X64_PICK_ZERO
               : i == (imm >> 4 & 3)     ? second + from
                                         : i;
    }
    case SX_VARIANT_EXTRACT_X:
    case SX_VARIANT_EXTRACT_Y: return (imm & (u->from_size / half - 1)) * block + i;
    case SX_VARIANT_INSERT_X:
    case SX_VARIANT_INSERT_Y:
        return i / block == (imm & (count / block - 1)) ? second + i % block : i;
    default: return i;
    }
}

void sx_x64_pick_places(sx_x64_uop *u, uint32_t count, bool in_memory)
{
    SX_ASSERT(count <= sizeof(u->pick));
    for (uint32_t i = 0; i < count; i++) {
        u->pick[i] = (uint8_t)pick_place(u, i, count, in_memory);
    }
}

/* ---- tables ---- */

uint32_t sx_x64_element_bytes(sx_x64_element element)
{
    static const uint8_t bytes[SX_ELEMENT_COUNT] = {
#define X(type, size) size,
        SX_X64_ELEMENTS(X)
#undef X
    };
    SX_ASSERT(element < SX_ELEMENT_COUNT);
    return bytes[element];
}

sx_x64_lane_run *sx_x64_lane_of(sx_x64_micro micro, sx_x64_element element)
{
    static sx_x64_lane_run *const lanes[SX_MICRO_COUNT][SX_ELEMENT_COUNT] = {
#define SX_X64_LANE(micro, element, ...) \
    [SX_MICRO_##micro][SX_ELEMENT_##element] = lane_##micro##_##element,
#include "core/x64/lanes.def"
#undef SX_X64_LANE
        [SX_MICRO_SIGNS][SX_ELEMENT_I32] = lane_SIGNS_I32,
        [SX_MICRO_LOOK][SX_ELEMENT_F32] = lane_LOOK_F32,
        [SX_MICRO_LOOK][SX_ELEMENT_U8] = lane_LOOK_U8,
    };
    SX_ASSERT(micro < SX_MICRO_COUNT && element < SX_ELEMENT_COUNT);
    return micro == SX_MICRO_PICK ? lane_PICK : lanes[micro][element];
}
