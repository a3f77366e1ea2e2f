/* curves.h - numbers that follow one symbol or two, as cases of a module. Internal to core/. */
#ifndef SX_CORE_CURVES_H
#define SX_CORE_CURVES_H
#include "core/pipeline.h"

/* Values of the symbols that a variant serves several of, for which kernels were lowered. */
typedef struct {
    sx_pipe_point *at;
    uint32_t count, capacity;
} sx_points;
/* Numbers of a part: its grid, which is 0 where a point has no such part, and what comes at run time. */
#define SX_CURVES_GRID 3u
typedef struct {
    int64_t (*grid)[SX_CURVES_GRID]; /* [points] */
    int64_t *const *number;          /* [count][points] */
    uint32_t count;
} sx_curves;

/* Appends the cases of part `part` that give these numbers at every point, and the affine ones in between. Each number
 * follows the value of a symbol, or the product of both; place[k] is its place behind the grid.
 *   wanted   values between points of which nothing is known, and that decide where a case ends: make those points, and
 *            ask again; the cases are of no use before
 *   errors   SX_UNIMPLEMENTED a number follows the symbols in another way; SX_LIMIT too many cases */
sx_code sx_curves_put(sx_ctx *cx, const sx_pipe_steady *steady, const sx_points *points,
                      const sx_curves *curves, uint32_t part, sx_pipe_cases *cases, uint32_t *place,
                      sx_points *wanted);
#endif
