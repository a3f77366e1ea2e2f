/* reduced.h - inside client/verify: a program that is too large to be compared whole, at smaller extents.
 *
 * The optimised program of a module is a text with the symbols of the program that was sent. For other values of the
 * symbols it is compiled to another module, which is small enough to be compared whole with the program as sent for
 * the same values: a rewrite that is wrong is wrong there, too. That the kernels of the large module compute what
 * the nodes of the optimised program say is for their sampled elements to show.
 */
#ifndef SX_CLIENT_VERIFY_REDUCED_H
#define SX_CLIENT_VERIFY_REDUCED_H
#include "client/runtime/runtime.h"
#include "core/core.h"

#define SXV_REDUCED_TEXT 96
typedef struct {
    bool found;
    /* The extents, "batch=3"; or why there are none. */
    char text[SXV_REDUCED_TEXT];
} sxv_reduced;

/* The module at smaller extents, at which the program does not take more than `flops_max` operations. Symbols get 3,
 * or 2, or the least value that they may have: as few as show whether elements along them are told apart.
 *   sent    the text of the program as it was sent
 *   errors  those of the compiler */
sx_code sxv_reduced_compile(sx_ctx *cx, const sxr_program *program, sx_span sent, double flops_max,
                            const sx_targets *targets, sx_buf *module, sxv_reduced *reduced);
#endif
