/* rounded.h - contractions of f32 whose factors are rounded to tf32, for devices that allow it ("h100+tf32").
 *
 * Such a kernel rounds what it multiplies to 11 bits of significand, to nearest, ties away from 0, and adds up in f32.
 * The references in double precision know nothing of it; those that round do as the kernels do, so that what lies
 * between the two is what tf32 does to this program.
 */
#ifndef SX_CLIENT_VERIFY_ROUNDED_H
#define SX_CLIENT_VERIFY_ROUNDED_H
#include "client/runtime/runtime.h"

/* Half a unit in the last place of 1: the most that a factor of 1 moves. */
#define SXV_TF32_UNIT 0x1p-11

/* In place. Infinities and NaN stay. */
void sxv_round_tf32(float *x, int64_t count);
/* Does the kernel of a launch round what it multiplies? Its schedule says so: a matrix instruction takes f32 in no
 * other way. `factor`: the two arguments of the launch, by number. */
bool sxv_rounds_factors(sx_ctx *cx, const sx_module *module, const sx_module_launch *launch,
                        uint32_t factor[2]);
/* Does any kernel of the module? */
bool sxv_module_rounds(sx_ctx *cx, const sx_module *module);
#endif
