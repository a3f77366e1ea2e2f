/* narrow.h - inside client/verify: operations element by element on f32, without a detour over doubles, and with the
 * bits that the detour gives: the operation in double precision, rounded once.
 *
 * Of sums, differences, products, quotients and roots of f32 these are the bits of the operation in f32, because
 * doubles have more than twice the digits and two (Figueroa 1995). The others are computed to 2^-40 of themselves;
 * where this does not say how the result is rounded, which is so once in 30,000 times, the C library is asked.
 *
 * exp is a polynomial about 0 after the range was reduced; erf and tanh are polynomials about the nearest multiple of
 * 1/32, whose coefficients follow from the differential equations erf'' = -2 x erf' and tanh' = 1 - tanh^2.
 */
#ifndef SX_CLIENT_VERIFY_NARROW_H
#define SX_CLIENT_VERIFY_NARROW_H
#include "core/ir/ir.h"

#define SXV_NARROW_TERMS 8
#define SXV_NARROW_CENTRES 292
typedef struct {
    sx_op op;
    /* Of erf and tanh: what they are from `end` on is 1 in f32; and the coefficients about each centre. */
    double end;
    double term[SXV_NARROW_TERMS][SXV_NARROW_CENTRES];
} sxv_narrow;

/* False: not one of these operations. */
bool sxv_narrow_make(sx_op op, sxv_narrow *narrow);
/* `y` is the second operand, for operations that have one. `to` may be an operand. */
void sxv_narrow_run(const sxv_narrow *narrow, const float *x, const float *y, int64_t count,
                    float *to);
#endif
