/* slope.h - is a gradient right? Judged by values of the program alone, which the interpreter computes; nothing is
 * shared with core/grad.
 *
 * With L(t) the sum of c y(x + t v) over the elements of the output y, for random x, v and c, the derivative of L at 0
 * is the sum of v times the gradients.
 *   exact   residues modulo 2^31 - 1. L is a polynomial in t of a degree that the program tells (products add
 *           degrees), so its values at 0 .. degree give the derivative without any error.
 *   real    doubles. Central differences D(h), D(h/2), D(h/4): the error of the last is a third of its distance from
 *           the one before, as D(h) = L' + h^2 L'''/6 + ..., and rounding, which shows in the same distances, is
 *           bounded by the sum of |c y| times the number of nodes and of elements, in units of 2^-53, over h. At a kink
 *           nearer than h / 4 all three are the mean of both sides: there the slopes of the two sides are apart by the
 *           same amount for every h, where a smooth function has them apart by h L'', and that amount is allowed.
 */
#ifndef SX_TESTS_LIB_SLOPE_H
#define SX_TESTS_LIB_SLOPE_H
#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/ir/ir.h"

typedef enum {
    SX_SLOPE_SAME,
    SX_SLOPE_DIFFERENT,
    SX_SLOPE_UNDECIDED /* a kink is near, a value is not finite, or the degree is too large */
} sx_slope;
/* Static programs. `gradient` is made from `program` for output number `output` and all parameters of floats, in
 * order. */
typedef struct {
    const sx_graph *program, *gradient;
    uint32_t output;
    /* real: the direction is this element of all floats, counted from 1; 0: a random direction */
    int64_t element;
    double step;    /* real: the largest h; 0: 2^-12 */
    bool positive;  /* real: parameters in [0.5, 2) instead of [-2, 2) */
    char text[256]; /* what differs */
} sx_slope_case;

sx_slope sx_slope_exact(sx_rng *rng, sx_slope_case *at);
sx_slope sx_slope_real(sx_rng *rng, sx_slope_case *at);
/* The gradient of output number `output` with respect to all parameters of floats, checked and printed and read
 * again; the test fails if there is none. */
const sx_graph *sx_slope_gradient(sx_ctx *cx, const sx_graph *program, uint32_t output);
#endif
