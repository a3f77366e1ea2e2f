/* lowered.h - the kernel of a subject at each point of an interval, in their order. Internal to core/. */
#ifndef SX_CORE_LOWERED_H
#define SX_CORE_LOWERED_H
#include "core/curves.h"
#include "core/kernels.h"

/* The kernel of the subject for one value, or pair of values, in memory of cx. */
sx_code sx_lowered_at(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                      const sx_schedule *schedule, const sx_pipe_point *value,
                      sx_pipe_subject *there, sx_kernel **kernel);

#define SX_LOWERED_ANEW UINT32_MAX
/* The kernel at a point. */
typedef struct {
    uint32_t point;
    /* Two earlier points between which all its numbers lie, `at` of `of` on the way from `like` to `other`, and whose
     * parts it has; of == 0: they are one point, which has the same numbers. SX_LOWERED_ANEW: there are none. */
    uint32_t like, other;
    int64_t at, of;
    /* Not 0: grid[0] of each part, whatever it is at the other points. */
    int64_t own;
    /* Of a kernel that was lowered anew: it is there until the next one is told of, and has passed its check. The sizes
     * of its buffers are no larger at points that follow from others than at some that are lowered. */
    const sx_kernel *kernel;
    /* As long as it, where code says what is alike (sx_target.shape): that of each part; else NULL. All points are
     * then lowered, as extents that a lowering cannot tell apart may stand in the code. */
    const sx_target_shape *shape;
} sx_lowered;
/* Calls `take` for each point, one after the other; cx's team lowers them.
 *   errors   of the first point that has one, and those of `take` */
sx_code sx_lowered_each(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                        const sx_schedule *schedule, const sx_points *points,
                        sx_code (*take)(void *self, const sx_lowered *lowered), void *self);
#endif
