/* alu_convert.c - conversions between types. */
#include "core/simt/alu_inside.h"

static bool is_signed(sx_ptx_modifier type)
{
    return type >= SX_PTX_TYPE_S8 && type <= SX_PTX_TYPE_S64;
}

static uint32_t bits_of(sx_ptx_modifier type)
{
    return 8U * sx_ptx_modifier_of(type)->value;
}

/* The integer of a register, which may be wider than its type. */
static sx_ptx_exact read_integer(sx_ptx_modifier type, uint64_t bits)
{
    uint32_t unused = 64 - bits_of(type);
    uint64_t value = bits << unused >> unused;
    bool negative = is_signed(type) && (value >> (bits_of(type) - 1) & 1) != 0;
    return sx_ptx_exact_integer(negative ? (0 - value) << unused >> unused : value, negative);
}

/* The nearest integer of the type. */
static uint64_t clamped(sx_ptx_modifier type, sx_ptx_exact x)
{
    uint64_t top = UINT64_C(1) << (bits_of(type) - 1);
    uint64_t most = is_signed(type) ? top - 1 : top | (top - 1);
    uint64_t least = is_signed(type) ? top : 0; /* its magnitude */
    uint64_t limit = x.negative ? least : most;
    bool beyond = x.kind == SX_PTX_INFINITE ||
                  (x.kind == SX_PTX_FINITE &&
                   (x.exponent > 64 || x.digits > limit || (x.digits << x.exponent) > limit));
    uint64_t size = x.kind == SX_PTX_ZERO ? 0 : beyond ? limit : (uint64_t)x.digits << x.exponent;
    return x.negative ? 0 - size : size;
}

/* To an integer: floats are clamped always, integers with .sat and cut without. */
static uint64_t to_integer(const sx_ptx_alu *alu, uint64_t bits)
{
    const sx_ptx_format *from = sx_ptx_format_of(alu->type2);
    if (from == NULL) {
        sx_ptx_exact x = read_integer(alu->type2, bits);
        uint64_t size = (uint64_t)x.digits;
        return alu->saturate ? clamped(alu->type, x) : x.negative ? 0 - size : size;
    }
    bool ftz = alu->ftz && alu->type2 == SX_PTX_TYPE_F32;
    sx_ptx_exact x = sx_ptx_read_float(from, bits, ftz);
    if (x.kind == SX_PTX_NOT_A_NUMBER) {
        bool wide = alu->type2 == SX_PTX_TYPE_F64 || bits_of(alu->type) == 64;
        return wide ? UINT64_C(1) << (bits_of(alu->type) - 1) : 0;
    }
    return clamped(alu->type, sx_ptx_exact_integral(x, sx_ptx_rounding_of(alu->round)));
}

static uint64_t to_float(const sx_ptx_alu *alu, uint64_t bits)
{
    const sx_ptx_format *from = sx_ptx_format_of(alu->type2);
    const sx_ptx_format *to = sx_ptx_format_of(alu->type);
    bool integral = alu->round >= SX_PTX_ROUND_RNI && alu->round <= SX_PTX_ROUND_RPI;
    sx_ptx_exact x = from == NULL
                         ? read_integer(alu->type2, bits)
                         : sx_ptx_read_float(from, bits, alu->ftz && alu->type2 == SX_PTX_TYPE_F32);
    if (integral) {
        x = sx_ptx_exact_integral(x, sx_ptx_rounding_of(alu->round));
    }
    uint64_t out = sx_ptx_write_float(alu, to, x, alu->ftz && alu->type == SX_PTX_TYPE_F32);
    return alu->type == SX_PTX_TYPE_TF32 ? out << 13 : out;
}

/* f32 to tf32; NaN is that of f32. */
static uint64_t to_tf32(const sx_ptx_alu *alu, uint64_t bits)
{
    bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    return nan ? sx_ptx_f32_format.nan : to_float(alu, bits);
}

/* The result fills its register: the sign of a signed type, else zeros. */
static void cvt(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                const sx_ptx_word *const *operand, uint32_t active)
{
    bool integer = sx_ptx_format_of(alu->type) == NULL;
    bool tf32 = alu->type == SX_PTX_TYPE_TF32;
    sx_ptx_word out = {{0}};
    SX_PTX_EACH_LANE(i)
    {
        uint64_t x = operand[0]->lane[i];
        if ((active >> i & 1) == 0) {
            continue;
        }
        if (integer) {
            uint64_t value = to_integer(alu, x) & alu->mask;
            out.lane[i] = ((value ^ alu->sign) - alu->sign) & alu->wide_mask;
        } else {
            out.lane[i] = tf32 ? to_tf32(alu, x) : to_float(alu, x);
        }
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

/* The first operand becomes the upper half. */
static void cvt_pair(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                     const sx_ptx_word *const *operand, uint32_t active)
{
    const sx_ptx_format *to = sx_ptx_format_of(alu->type);
    sx_ptx_rounding rounding = sx_ptx_rounding_of(alu->round);
    uint64_t sign = UINT64_C(1) << (to->bits - 1);
    sx_ptx_word out = {{0}};
    SX_PTX_EACH_LANE(i)
    {
        for (uint32_t k = 0; k < 2 && (active >> i & 1) != 0; k++) {
            sx_ptx_exact x = sx_ptx_exact_of(&sx_ptx_f32_format, operand[k]->lane[i] & UINT32_MAX);
            uint64_t half = sx_ptx_exact_round(x, to, rounding, alu->saturate);
            half = alu->relu && half != to->nan && (half & sign) != 0 ? 0 : half;
            out.lane[i] |= half << (k == 0 ? to->bits : 0);
        }
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

static void cvt_from_f8(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                        const sx_ptx_word *const *operand, uint32_t active)
{
    const sx_ptx_format *from = sx_ptx_format_of(alu->type2);
    sx_ptx_word out = {{0}};
    SX_PTX_EACH_LANE(i)
    {
        for (uint32_t k = 0; k < 2 && (active >> i & 1) != 0; k++) {
            sx_ptx_exact x = sx_ptx_exact_of(from, operand[0]->lane[i] >> (8 * k) & 0xFF);
            out.lane[i] |= sx_ptx_write_float(alu, &sx_ptx_f16_format, x, false) << (16 * k);
        }
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

sx_ptx_run sx_ptx_convert_of(const sx_ptx_alu *alu)
{
    switch ((int)alu->handler) {
    case SX_PTX_RUN_CVT: return cvt;
    case SX_PTX_RUN_CVT_PAIR: return cvt_pair;
    case SX_PTX_RUN_CVT_FROM_F8: return cvt_from_f8;
    default: return NULL;
    }
}
