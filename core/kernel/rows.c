/* rows.c - contractions of a factor whose rows lie side by side, as in x^T dy: how far its steps lie apart, and the
 * same contraction of a copy in which they lie at multiples of some elements. */
#include "core/kernel/kernel.h"

/* The stride of the left argument along a dimension; -1: it is not known. */
static int64_t stride_of(const sx_analysis *a, uint32_t argument, uint32_t d)
{
    sx_dim stride = a->body->access[argument].stride[d];
    return sx_dim_is_constant(stride) ? stride.scale : -1;
}

/* How far the steps of a factor lie apart whose kept dimension, the only one that the other factor does not have, lies
 * side by side and is not the last one: those are the columns, also where there is a single one. 0: it is none. */
static int64_t beside(const sx_analysis *a, uint32_t factor, uint32_t other)
{
    uint32_t rows = 0, row = 0, last = 0;
    int64_t least = 0;
    for (uint32_t d = 0; d < a->fused->type.rank; d++) {
        bool kept = (a->body->axes >> d & 1) == 0;
        last = kept ? d : last;
        if (kept && stride_of(a, factor, d) != 0 && stride_of(a, other, d) == 0) {
            rows++;
            row = d;
        }
    }
    bool known = rows == 1 && row != last && stride_of(a, factor, row) == 1;
    for (uint32_t d = 0; known && d < a->fused->type.rank; d++) {
        int64_t stride = stride_of(a, factor, d);
        known = stride >= 0;
        least = d == row || stride == 0 ? least : least == 0 ? stride : sx_min_i64(least, stride);
    }
    for (uint32_t d = 0; known && d < a->fused->type.rank; d++) {
        known = d == row || (least > 0 && stride_of(a, factor, d) % least == 0);
    }
    return known ? least : 0;
}

int64_t sx_rows_beside(const sx_analysis *a, uint32_t *argument)
{
    bool factors = a->kind == SX_KERNEL_DOT && a->lhs != a->rhs;
    int64_t left = factors ? beside(a, a->lhs, a->rhs) : 0;
    int64_t right = factors ? beside(a, a->rhs, a->lhs) : 0;
    *argument = left != 0 ? a->lhs : a->rhs;
    return left != 0 ? left : right;
}

/* Elements of the argument up to the last one that is read. */
static int64_t reach_of(const sx_analysis *a, uint32_t argument)
{
    int64_t reach = a->body->access[argument].offset.scale + 1;
    for (uint32_t d = 0; d < a->fused->type.rank; d++) {
        reach += stride_of(a, argument, d) * (a->fused->type.dim[d].scale - 1);
    }
    return reach;
}

/* The rows of the argument as they are, and once more, as often as they fill the distance. */
static void view_rows(sx_dtype dtype, int64_t steps, int64_t length, int64_t all,
                      sx_rows_copy *copy)
{
    for (int64_t at = 0; at < all; at += length) {
        int64_t width = sx_min_i64(length, all - at);
        SX_ASSERT(copy->count < SX_COUNT(copy->input));
        copy->input[copy->count++] =
            (sx_type){.dtype = dtype, .rank = 2, .dim = {sx_dim_of(steps), sx_dim_of(width)}};
    }
    copy->result = copy->input[0];
    copy->result.dim[1] = sx_dim_of(all);
}

sx_code sx_rows_apart(sx_ctx *cx, const sx_analysis *a, int64_t unit, sx_rows_copy *copy)
{
    uint32_t argument;
    int64_t length = sx_rows_beside(a, &argument), all = sx_ceil_div_i64(length, unit) * unit;
    const sx_dim offset = a->body->access[argument].offset;
    SX_ASSERT(length > 0 && unit >= 1 && unit <= SX_ROWS_UNIT_MAX);
    int64_t first = sx_dim_is_constant(offset) ? offset.scale % length : -1;
    int64_t steps = first < 0 ? 0 : sx_ceil_div_i64(reach_of(a, argument), length);
    int64_t rows = 1;
    *copy = (sx_rows_copy){.argument = argument};
    copy->fused = *a->fused;
    sx_body_copy(&copy->body, a->body);
    copy->fused.body = &copy->body;
    sx_access *access = &copy->body.access[argument];
    uint32_t other = argument == a->lhs ? a->rhs : a->lhs;
    for (uint32_t d = 0; d < a->fused->type.rank; d++) {
        int64_t stride = stride_of(a, argument, d);
        if (stride_of(a, other, d) == 0 && (a->body->axes >> d & 1) == 0 && stride == 1) {
            rows = a->fused->type.dim[d].scale;
        } else {
            access->stride[d].scale = stride / length * all;
        }
    }
    if (first < 0 || first + rows > length ||
        steps > sx_tensor_elements(&a->input[argument]) / length) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "rows side by side that are not those of a matrix with %lld of them",
                       (long long)length);
    }
    access->offset.scale = offset.scale / length * all + first;
    view_rows(a->input[argument].dtype, steps, length, all, copy);
    return SX_OK;
}
