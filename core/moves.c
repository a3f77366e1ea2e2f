/* moves.c - schedules of operations that move elements: copies, pieces put together, gathers, scatters, sorts. There is
 * nothing to choose: each has one form. */
#include "core/kernels.h"

#define COPY_PIECE_BYTES \
    65536              /* per grid point, about: two of them fit the first two cache levels */
#define COPY_VECTORS 4 /* in straight line */

/* Where lanes are threads: a warp's share, so that there are many; words of a thread that lie side by side. */
#define COPY_WARP_BYTES 8192
#define COPY_WIDTH 4

/* A place of a scatter and an index: a load, a comparison, an operation, a choice. */
#define SCATTER_STEP_FLOPS 4
#define SCATTER_BYTES (INT64_C(1) << 26) /* of a thread's workspace, for more than one vector */

/* The schedule of a scatter, and what its lanes have to do. */
static void schedule_scatter(const sx_pipe *pipe, const sx_pipe_subject *s, const sx_attr *attr,
                             uint32_t lanes, sx_schedule *schedule, double *flops)
{
    const sx_type *x = &s->type[0];
    const double all = (double)sx_tensor_elements(x);
    int64_t picks = sx_tensor_elements(&s->type[1]);
    int64_t rows = x->dim[attr->axis].scale;
    int64_t row = 1;
    for (uint32_t d = (uint32_t)attr->axis + 1; d < x->rank; d++) {
        row *= x->dim[d].scale;
    }
    if (sx_scatter_is_linear(rows, row, picks, pipe->target->vectors.threads)) {
        bool large = (rows + 2) * SX_ROW_BYTES > SCATTER_BYTES / COPY_VECTORS;
        uint32_t vectors = large ? 1 : COPY_VECTORS;
        sx_schedule_map(lanes, 1, (int64_t)lanes * vectors, vectors, schedule);
        double steps = (all + (double)sx_tensor_elements(&s->type[2])) * (row == 1 ? lanes : 1);
        *flops = SCATTER_STEP_FLOPS * steps;
        return;
    }
    int64_t step = (int64_t)lanes * COPY_VECTORS; /* a row meets every index */
    int64_t bytes = row * sx_dtype_bytes(x->dtype) * (picks + 1);
    int64_t columns = COPY_PIECE_BYTES / 4 / (picks + 1) / step * step;
    sx_schedule_map(lanes, sx_max_i64(1, COPY_PIECE_BYTES / bytes), sx_max_i64(columns, step),
                    COPY_VECTORS, schedule);
    *flops = SCATTER_STEP_FLOPS * all * (double)picks;
}

/* Are all rows made of vectors of 16 bytes of each lane, so that every one begins at a multiple of 16? */
static bool copies_wide(const sx_pipe_subject *s, sx_op op, const sx_attr *attr, int64_t row,
                        uint32_t lanes)
{
    int64_t vector = COPY_WIDTH * (int64_t)sizeof(uint32_t);
    int64_t all = 0, longest = 0;
    if (op != SX_OP_CONCATENATE && op != SX_OP_GATHER) {
        return false;
    }
    for (uint32_t k = 0; k < (op == SX_OP_CONCATENATE ? s->count : 1); k++) {
        int64_t own = row * (op == SX_OP_CONCATENATE ? s->type[k].dim[attr->axis].scale : 1);
        all |= own;
        longest = sx_max_i64(longest, own);
    }
    return all % vector == 0 && longest >= vector * lanes;
}

/* The bytes that one row of a grid point has. Boxes of pad and reverse are walked in rows of their last dimension by
 * processors, where a grid point is a call; warps, of which many are wanted, have one of the first dimension each. */
static int64_t bytes_of_row(const sx_pipe *pipe, const sx_pipe_subject *s, sx_op op,
                            const sx_attr *attr, const sx_type *type)
{
    bool lines = (op == SX_OP_PAD || op == SX_OP_REVERSE) && !pipe->target->vectors.threads;
    int64_t row = sx_dtype_bytes(type->dtype);
    if (lines) {
        return row * (type->rank > 0 ? type->dim[type->rank - 1].scale : 1);
    }
    for (uint32_t d = (uint32_t)attr->axis + 1; d < s->type[0].rank; d++) {
        row *= s->type[0].dim[d].scale;
    }
    return row;
}

void sx_pipe_schedule_move(const sx_pipe *pipe, const sx_pipe_subject *s, sx_op op,
                           const sx_attr *attr, const sx_type *type, sx_schedule *schedule,
                           double *flops)
{
    int64_t row = bytes_of_row(pipe, s, op, attr, type);
    uint32_t lane_bytes = sx_move_lane_bytes_of(op, s->type[0].dtype, type->dtype);
    uint32_t lanes = sx_vector_unit_lanes(&pipe->target->vectors, lane_bytes);
    *flops = 0;
    if (op == SX_OP_SCATTER) {
        schedule_scatter(pipe, s, attr, lanes, schedule, flops);
    } else if (op == SX_OP_SORT) {
        int64_t extent = s->type[0].dim[attr->axis].scale;
        sx_schedule_map(lanes, 1, lanes, 1, schedule);
        double rows = (double)sx_tensor_elements(&s->type[0]) / (double)extent;
        *flops = rows * SX_SORT_PAIR_FLOPS *
                 sx_sort_comparisons(extent, type->dim[attr->axis].scale, lanes);
    } else if (pipe->target->vectors.threads && copies_wide(s, op, attr, row, lanes)) {
        sx_schedule_map_wide(lanes, COPY_WIDTH, sx_max_i64(1, COPY_WARP_BYTES / row),
                             COPY_WARP_BYTES / 4, COPY_VECTORS, schedule);
    } else {
        sx_schedule_map(lanes, sx_max_i64(1, COPY_PIECE_BYTES / row), COPY_PIECE_BYTES / 4,
                        COPY_VECTORS, schedule);
    }
}
