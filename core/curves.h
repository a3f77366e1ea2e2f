/* curves.h - numbers that follow one symbol or two, as cases of a module. Internal to core/. */
#ifndef SX_CORE_CURVES_H
#define SX_CORE_CURVES_H
#include "core/pipeline.h"

/* What a number may follow: the value of a symbol, of the other one, or their product. An axis has the values that
 * there are, ascending, and the place among them of each point. */
#define SX_CURVES_AXES 3u
typedef struct {
    int64_t *key;
    uint32_t *place; /* [points] */
    uint32_t count;
} sx_curves_axis;
/* All combinations of values that a variant serves are its points, the highest first. One symbol has one axis. */
#define SX_POINTS_MAX (1u << 15)
typedef struct {
    const sx_pipe_steady *steady;
    uint32_t count;
    sx_curves_axis axis[SX_CURVES_AXES];
    uint32_t axis_count;
} sx_points;
/* errors  SX_LIMIT more than SX_POINTS_MAX */
sx_code sx_points_make(sx_ctx *cx, const sx_pipe_steady *steady, sx_points *points);
sx_pipe_point sx_points_at(const sx_points *points, uint32_t index);

/* The points, ascending, that have a part, and its numbers there: its grid, and what comes at run time. */
#define SX_CURVES_GRID 3u
#define SX_CURVES_NUMBERS (SX_CURVES_GRID + SX_COMES_SLOTS_MAX)
typedef struct {
    const uint32_t *point;
    uint32_t count;
    const int64_t *number[SX_CURVES_NUMBERS]; /* [count], the grid first */
    uint32_t number_count;
} sx_curves;

/* Appends the cases of part `part`, which give it these numbers at its points, and which no other point is in. Each
 * number follows an axis; place[k] is the place of number k among those of the cases.
 *   errors   SX_UNIMPLEMENTED a number follows the symbols in another way; SX_LIMIT too many cases */
sx_code sx_curves_put(sx_ctx *cx, const sx_points *points, const sx_curves *curves, uint32_t part,
                      sx_pipe_cases *cases, uint32_t *place);
/* Do the cases of the part, from row `first` on, say this at every point that there is? What a loader makes of them is
 * worked out for each, and compared.
 *   errors   SX_INTERNAL the point where they do not */
sx_code sx_curves_check(sx_ctx *cx, const sx_points *points, const sx_curves *curves,
                        const sx_pipe_cases *cases, uint32_t first, const uint32_t *place);
#endif
