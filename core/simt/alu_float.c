/* alu_float.c - arithmetic, smallest and largest, comparisons of floating-point numbers.
 *
 * f32 to nearest is computed by the machine, whose operations are those of IEEE 754; everything else by exact.h.
 */
#include <math.h>

#include "core/base/fast.h"
#include "core/simt/alu_inside.h"

const sx_ptx_format *sx_ptx_format_of(sx_ptx_modifier type)
{
    switch ((int)type) {
    case SX_PTX_TYPE_F64: return &sx_ptx_f64_format;
    case SX_PTX_TYPE_F32: return &sx_ptx_f32_format;
    case SX_PTX_TYPE_TF32: return &sx_ptx_tf32_format;
    case SX_PTX_TYPE_F16:
    case SX_PTX_TYPE_F16X2: return &sx_ptx_f16_format;
    case SX_PTX_TYPE_BF16:
    case SX_PTX_TYPE_BF16X2: return &sx_ptx_bf16_format;
    case SX_PTX_TYPE_E4M3:
    case SX_PTX_TYPE_E4M3X2: return &sx_ptx_e4m3_format;
    case SX_PTX_TYPE_E5M2:
    case SX_PTX_TYPE_E5M2X2: return &sx_ptx_e5m2_format;
    default: return NULL;
    }
}

sx_ptx_rounding sx_ptx_rounding_of(sx_ptx_modifier round)
{
    switch ((int)round) {
    case SX_PTX_ROUND_RZ:
    case SX_PTX_ROUND_RZI: return SX_PTX_TO_ZERO;
    case SX_PTX_ROUND_RM:
    case SX_PTX_ROUND_RMI: return SX_PTX_DOWN;
    case SX_PTX_ROUND_RP:
    case SX_PTX_ROUND_RPI: return SX_PTX_UP;
    case SX_PTX_ROUND_RNA: return SX_PTX_TO_NEAREST_AWAY;
    default: return SX_PTX_TO_NEAREST;
    }
}

/* ---- f32 to nearest ---- */
static inline float flush(const sx_ptx_alu *alu, float x)
{
    float size = x < 0.0F ? -x : x;
    return alu->ftz && size < 0x1p-126F ? x * 0.0F : x; /* which keeps the sign */
}

static inline uint64_t finish(const sx_ptx_alu *alu, float x)
{
    if (alu->saturate) {
        x = x > 1.0F ? 1.0F : x > 0.0F ? x : 0.0F; /* NaN and -0 give +0 */
    }
    x = flush(alu, x);
    return x != x ? sx_ptx_f32_format.nan : sx_ptx_f32_bits(x);
}

#define NEAREST(name, value)                                                                 \
    SX_LEVELS static void name(const sx_ptx_alu *alu, sx_ptx_word *const *result,            \
                               const sx_ptx_word *const *operand, uint32_t active)           \
    {                                                                                        \
        sx_ptx_word out;                                                                     \
        SX_PTX_EACH_LANE(i)                                                                  \
        {                                                                                    \
            float x = sx_ptx_f32(operand[0]->lane[i]);                                       \
            float y = sx_ptx_f32(operand[1]->lane[i]);                                       \
            float d = (value);                                                               \
            out.lane[i] = d != d ? sx_ptx_f32_format.nan : sx_ptx_f32_bits(d);               \
        }                                                                                    \
        (void)alu;                                                                           \
        sx_ptx_put_lanes(result[0], &out, active);                                           \
    }                                                                                        \
    SX_LEVELS static void name##_flushed(const sx_ptx_alu *alu, sx_ptx_word *const *result,  \
                                         const sx_ptx_word *const *operand, uint32_t active) \
    {                                                                                        \
        sx_ptx_word out;                                                                     \
        SX_PTX_EACH_LANE(i)                                                                  \
        {                                                                                    \
            float x = flush(alu, sx_ptx_f32(operand[0]->lane[i]));                           \
            float y = flush(alu, sx_ptx_f32(operand[1]->lane[i]));                           \
            out.lane[i] = finish(alu, (value));                                              \
        }                                                                                    \
        sx_ptx_put_lanes(result[0], &out, active);                                           \
    }
NEAREST(add, x + y)
NEAREST(sub, x - y)
NEAREST(mul, x *y)

SX_LEVELS static void fma_nearest(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                                  const sx_ptx_word *const *operand, uint32_t active)
{
    sx_ptx_word out;
    SX_PTX_EACH_LANE(i)
    {
        float x = flush(alu, sx_ptx_f32(operand[0]->lane[i]));
        float y = flush(alu, sx_ptx_f32(operand[1]->lane[i]));
        float z = flush(alu, sx_ptx_f32(operand[2]->lane[i]));
        out.lane[i] = finish(alu, fmaf(x, y, z));
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

static void divide_nearest(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                           const sx_ptx_word *const *operand, uint32_t active)
{
    sx_ptx_word out;
    SX_PTX_EACH_LANE(i)
    {
        float x = flush(alu, sx_ptx_f32(operand[0]->lane[i]));
        float y = flush(alu, sx_ptx_f32(operand[1]->lane[i]));
        out.lane[i] = finish(alu, x / y);
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

static void reciprocal_nearest(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                               const sx_ptx_word *const *operand, uint32_t active)
{
    sx_ptx_word out;
    SX_PTX_EACH_LANE(i)
    {
        out.lane[i] = finish(alu, 1.0F / flush(alu, sx_ptx_f32(operand[0]->lane[i])));
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

/* Of 24 digits, rounding a root to 53 and then to 24 digits is rounding once. */
static void root_nearest(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                         const sx_ptx_word *const *operand, uint32_t active)
{
    sx_ptx_word out;
    SX_PTX_EACH_LANE(i)
    {
        double x = (double)flush(alu, sx_ptx_f32(operand[0]->lane[i]));
        out.lane[i] = finish(alu, (float)sqrt(x));
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

/* ---- any type and rounding ---- */
static sx_ptx_exact flushed(const sx_ptx_format *format, uint64_t bits)
{
    uint64_t sign = bits >> (format->bits - 1) & 1;
    uint64_t exponent =
        (bits >> format->fraction_bits) ^ sign << (format->bits - 1 - format->fraction_bits);
    return exponent == 0 ? (sx_ptx_exact){.kind = SX_PTX_ZERO, .negative = sign != 0}
                         : sx_ptx_exact_of(format, bits);
}

sx_ptx_exact sx_ptx_read_float(const sx_ptx_format *format, uint64_t bits, bool ftz)
{
    uint64_t low = format->bits == 64 ? UINT64_MAX : (UINT64_C(1) << format->bits) - 1;
    return ftz ? flushed(format, bits & low) : sx_ptx_exact_of(format, bits & low);
}

uint64_t sx_ptx_write_float(const sx_ptx_alu *alu, const sx_ptx_format *format, sx_ptx_exact value,
                            bool ftz)
{
    uint64_t nan = format->nan;
    uint64_t sign = UINT64_C(1) << (format->bits - 1);
    uint64_t bits = sx_ptx_exact_round(value, format, sx_ptx_rounding_of(alu->round), false);
    if (ftz && bits != nan) {
        bits = (bits & ~sign) >> format->fraction_bits == 0 ? bits & sign : bits;
    }
    if (alu->relu && bits != nan && (bits & sign) != 0) {
        return 0;
    }
    if (alu->saturate) {
        uint64_t bias = ((sign >> format->fraction_bits) >> 1) - 1;
        uint64_t one = bias << format->fraction_bits;
        return bits == nan || (bits & sign) != 0 ? 0 : bits > one ? one : bits;
    }
    return bits;
}

/* x / y of .approx: the reciprocal of a very large y is zero. */
static sx_ptx_exact divide_fast(const sx_ptx_alu *alu, sx_ptx_exact x, sx_ptx_exact y,
                                uint64_t bits)
{
    if (alu->round == SX_PTX_ROUND_APPROX && y.kind == SX_PTX_FINITE &&
        (bits & 0x7FFFFFFF) > 0x7E800000) {
        y = (sx_ptx_exact){.kind = SX_PTX_ZERO, .negative = y.negative};
        return sx_ptx_exact_mul(x, y);
    }
    return sx_ptx_exact_div(x, y);
}

static uint64_t compute(const sx_ptx_alu *alu, const sx_ptx_format *format, const uint64_t in[3])
{
    sx_ptx_exact x = sx_ptx_read_float(format, in[0], alu->ftz);
    sx_ptx_exact y = sx_ptx_read_float(format, in[1], alu->ftz);
    sx_ptx_rounding rounding = sx_ptx_rounding_of(alu->round);
    switch ((int)alu->handler) {
    case SX_PTX_RUN_SUB_F:
        y.negative = !y.negative;
        x = sx_ptx_exact_add(x, y, rounding);
        break;
    case SX_PTX_RUN_ADD_F: x = sx_ptx_exact_add(x, y, rounding); break;
    case SX_PTX_RUN_MUL_F: x = sx_ptx_exact_mul(x, y); break;
    case SX_PTX_RUN_DIV_F: x = divide_fast(alu, x, y, in[1]); break;
    case SX_PTX_RUN_RCP: x = sx_ptx_exact_div(sx_ptx_exact_integer(1, false), x); break;
    case SX_PTX_RUN_SQRT: x = sx_ptx_exact_sqrt(x); break;
    case SX_PTX_RUN_RSQRT: x = sx_ptx_exact_rsqrt(x); break;
    default:
        x = sx_ptx_exact_add(sx_ptx_exact_mul(x, y), sx_ptx_read_float(format, in[2], alu->ftz),
                             rounding);
        break;
    }
    return sx_ptx_write_float(alu, format, x, alu->ftz);
}

/* The smaller or larger; -0 is below +0. */
static uint64_t choose(const sx_ptx_alu *alu, const sx_ptx_format *format, const uint64_t in[3])
{
    uint64_t sign = UINT64_C(1) << (format->bits - 1);
    uint64_t key[2], value[2];
    bool nan[2];
    for (uint32_t k = 0; k < 2; k++) {
        sx_ptx_exact x = sx_ptx_read_float(format, in[k], alu->ftz);
        nan[k] = x.kind == SX_PTX_NOT_A_NUMBER;
        value[k] = x.kind == SX_PTX_ZERO ? (x.negative ? sign : 0) : in[k];
        key[k] = (value[k] & sign) != 0 ? ~value[k] & (sign | (sign - 1)) : value[k] | sign;
    }
    if (nan[0] || nan[1]) {
        return alu->nan || (nan[0] && nan[1]) ? format->nan : value[nan[0] ? 1 : 0];
    }
    bool first = alu->handler == SX_PTX_RUN_MIN_F ? key[0] < key[1] : key[0] > key[1];
    return value[first ? 0 : 1];
}

/* Of the sign bit alone, and .ftz. */
static uint64_t change_sign(const sx_ptx_alu *alu, const sx_ptx_format *format,
                            const uint64_t in[3])
{
    uint64_t sign = UINT64_C(1) << (format->bits - 1);
    if (alu->handler == SX_PTX_RUN_COPYSIGN) {
        return (in[0] & sign) | (in[1] & ~sign); /* the sign of the first, the rest of the second */
    }
    uint64_t bits = alu->handler == SX_PTX_RUN_ABS_F ? in[0] & ~sign : in[0] ^ sign;
    bool zero = alu->ftz && sx_ptx_read_float(format, in[0], true).kind == SX_PTX_ZERO;
    return zero ? bits & sign : bits;
}

/* Each half of packed types by itself. */
static void run_halves(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                       const sx_ptx_word *const *operand, uint32_t active,
                       uint64_t (*function)(const sx_ptx_alu *, const sx_ptx_format *,
                                            const uint64_t[3]))
{
    const sx_ptx_format *format = sx_ptx_format_of(alu->type);
    SX_ASSERT(format != NULL);
    uint64_t low = format->bits == 64 ? UINT64_MAX : (UINT64_C(1) << format->bits) - 1;
    sx_ptx_word out = {{0}};
    SX_PTX_EACH_LANE(i)
    {
        for (uint32_t shift = 0; shift < alu->bits && (active >> i & 1) != 0;
             shift += format->bits) {
            uint64_t in[3] = {0};
            for (uint32_t k = 0; k < alu->operand_count; k++) {
                in[k] = operand[k]->lane[i] >> shift & low;
            }
            out.lane[i] |= function(alu, format, in) << shift;
        }
    }
    sx_ptx_put_lanes(result[0], &out, active);
}

static void run_compute(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                        const sx_ptx_word *const *operand, uint32_t active)
{
    run_halves(alu, result, operand, active, compute);
}
static void run_choose(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                       const sx_ptx_word *const *operand, uint32_t active)
{
    run_halves(alu, result, operand, active, choose);
}
static void run_sign(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                     const sx_ptx_word *const *operand, uint32_t active)
{
    run_halves(alu, result, operand, active, change_sign);
}

/* ---- comparisons ---- */
static inline uint64_t compare_f64(const sx_ptx_alu *alu, double x, double y)
{
    uint32_t order = x < y    ? SX_PTX_LESS
                     : x == y ? SX_PTX_EQUAL
                     : x > y  ? SX_PTX_GREATER
                              : SX_PTX_UNORDERED;
    return (alu->relation & order) != 0;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void setp(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                 const sx_ptx_word *const *operand, uint32_t active)
{
    sx_ptx_word truth;
    const sx_ptx_format *format = sx_ptx_format_of(alu->type);
    SX_PTX_EACH_LANE(i)
    {
        uint64_t a = operand[0]->lane[i], b = operand[1]->lane[i];
        double x, y;
        if (alu->type == SX_PTX_TYPE_F32) {
            x = (double)flush(alu, sx_ptx_f32(a));
            y = (double)flush(alu, sx_ptx_f32(b));
        } else if (alu->type == SX_PTX_TYPE_F64) {
            x = double_of(a);
            y = double_of(b);
        } else {
            sx_ptx_exact u = sx_ptx_read_float(format, a, alu->ftz);
            sx_ptx_exact v = sx_ptx_read_float(format, b, alu->ftz);
            x = double_of(sx_ptx_exact_round(u, &sx_ptx_f64_format, SX_PTX_TO_NEAREST, false));
            y = double_of(sx_ptx_exact_round(v, &sx_ptx_f64_format, SX_PTX_TO_NEAREST, false));
        }
        truth.lane[i] = compare_f64(alu, x, y);
    }
    sx_ptx_put_predicates(alu, result, operand, &truth, active);
}

sx_ptx_run sx_ptx_float_of(const sx_ptx_alu *alu)
{
    bool near = alu->type == SX_PTX_TYPE_F32 && sx_ptx_rounding_of(alu->round) == SX_PTX_TO_NEAREST;
    bool fast = alu->round == SX_PTX_ROUND_APPROX;
    bool plain = !alu->ftz && !alu->saturate;
    switch ((int)alu->handler) {
    case SX_PTX_RUN_ADD_F: return !near ? run_compute : plain ? add : add_flushed;
    case SX_PTX_RUN_SUB_F: return !near ? run_compute : plain ? sub : sub_flushed;
    case SX_PTX_RUN_MUL_F: return !near ? run_compute : plain ? mul : mul_flushed;
    case SX_PTX_RUN_FMA: return near ? fma_nearest : run_compute;
    case SX_PTX_RUN_DIV_F: return near && !fast ? divide_nearest : run_compute;
    case SX_PTX_RUN_RCP: return near ? reciprocal_nearest : run_compute;
    case SX_PTX_RUN_SQRT: return near ? root_nearest : run_compute;
    case SX_PTX_RUN_RSQRT: return run_compute;
    case SX_PTX_RUN_MIN_F:
    case SX_PTX_RUN_MAX_F: return run_choose;
    case SX_PTX_RUN_ABS_F:
    case SX_PTX_RUN_NEG_F:
    case SX_PTX_RUN_COPYSIGN: return run_sign;
    case SX_PTX_RUN_SETP: return setp;
    default: return NULL;
    }
}
