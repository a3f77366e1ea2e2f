/* exact.h - floating-point numbers of any format as exact values, and their rounding, with integers alone.
 *
 * An operation computes its exact result, or one that rounds like it, and the result is rounded once. Nothing
 * depends on the machine's own floating point.
 */
#ifndef SX_CORE_SIMT_EXACT_H
#define SX_CORE_SIMT_EXACT_H
#include <stdbool.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 sx_u128;
__extension__ typedef __int128 sx_s128;

typedef struct {
    uint8_t bits, fraction_bits; /* the exponent has the rest without the sign */
    bool finite_only;            /* e4m3: no infinities, the highest code alone is NaN */
    uint64_t nan;                /* the one that operations give */
} sx_ptx_format;
extern const sx_ptx_format sx_ptx_f64_format, sx_ptx_f32_format, sx_ptx_tf32_format,
    sx_ptx_f16_format, sx_ptx_bf16_format, sx_ptx_e5m2_format, sx_ptx_e4m3_format;

typedef enum { SX_PTX_ZERO, SX_PTX_FINITE, SX_PTX_INFINITE, SX_PTX_NOT_A_NUMBER } sx_ptx_kind;
typedef struct {
    uint8_t kind; /* sx_ptx_kind */
    bool negative;
    bool sticky; /* the magnitude is above digits * 2^exponent, by less than 2^exponent */
    int32_t exponent;
    sx_u128 digits;
} sx_ptx_exact;

typedef enum {
    SX_PTX_TO_NEAREST, /* ties to even */
    SX_PTX_TO_ZERO,
    SX_PTX_DOWN,
    SX_PTX_UP,
    SX_PTX_TO_NEAREST_AWAY, /* ties away from zero */
} sx_ptx_rounding;

sx_ptx_exact sx_ptx_exact_of(const sx_ptx_format *format, uint64_t bits);
sx_ptx_exact sx_ptx_exact_integer(uint64_t magnitude, bool negative);
/* The rounding tells the sign of x - x. */
sx_ptx_exact sx_ptx_exact_add(sx_ptx_exact a, sx_ptx_exact b, sx_ptx_rounding rounding);
/* Of numbers without `sticky` and with up to 53 digits. */
sx_ptx_exact sx_ptx_exact_mul(sx_ptx_exact a, sx_ptx_exact b);
sx_ptx_exact sx_ptx_exact_div(sx_ptx_exact a, sx_ptx_exact b);
sx_ptx_exact sx_ptx_exact_sqrt(sx_ptx_exact a);
/* 1 / sqrt(a). */
sx_ptx_exact sx_ptx_exact_rsqrt(sx_ptx_exact a);

/* The number of the format; too large: infinity or the largest, as the rounding has it, and the largest always
 * with `satfinite`. */
uint64_t sx_ptx_exact_round(sx_ptx_exact a, const sx_ptx_format *format, sx_ptx_rounding rounding,
                            bool satfinite);
/* The integer near a, itself an exact value; zeros, infinities and NaN stay. */
sx_ptx_exact sx_ptx_exact_integral(sx_ptx_exact a, sx_ptx_rounding rounding);
#endif
