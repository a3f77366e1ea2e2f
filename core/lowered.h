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
    /* An earlier point whose kernel is this one, as the analyses of both have the same words (core/kernel/kernel.h);
     * SX_LOWERED_ANEW: there is none. */
    uint32_t like;
    /* NULL: it has the sizes of the earlier one, too. Else it is there until the next one is told of, and has passed
     * its check. Where `like` is a point, parts differ in grid[0] alone, which is the same for all of them. */
    const sx_kernel *kernel;
    /* As long as it, where code says what is alike (sx_target.shape): that of each part; else NULL. `like` is then no
     * point, as extents that a lowering cannot tell apart may stand in the code. */
    const sx_target_shape *shape;
} sx_lowered;
/* Calls `take` for each point, one after the other; cx's team lowers them.
 *   errors   of the first point that has one, and those of `take` */
sx_code sx_lowered_each(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                        const sx_schedule *schedule, const sx_points *points,
                        sx_code (*take)(void *self, const sx_lowered *lowered), void *self);
#endif
