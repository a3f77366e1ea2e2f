/* lower_pad.c - pad and reverse: the result cut in boxes, each of them one copy or one fill with strides of
 * its own, written by the lowering of elementwise kernels.
 *
 * An element of a padded tensor belongs to the outermost dimension along which it is padding: before the
 * operand, behind it or between its elements; outer dimensions walk the operand's places, inner ones
 * everything. What is left are the operand's own. */
#include "core/loop/lower.h"

#include <string.h>

typedef struct {
    uint32_t rank;
    int64_t extent[SX_RANK_MAX + 1];
    int64_t from[SX_RANK_MAX + 1]; /* strides in the argument, elements */
    int64_t to[SX_RANK_MAX + 1];   /* strides in the result, elements */
    int64_t from_offset, to_offset;
} box;

static sx_code begin(sx_ctx *cx, const char *name, const sx_type *input, uint32_t input_count,
                     const sx_type *result, const sx_schedule *schedule, sx_lower **lower)
{
    sx_lower *l = SX_NEW(cx, sx_lower);
    if (l == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_lower_match_map(cx, schedule, name));
    *l = (sx_lower){.cx = cx,
                    .schedule = schedule,
                    .lanes = sx_schedule_lanes(schedule),
                    .lane_step = 1,
                    .moves = true,
                    .out_dtype = result->dtype};
    SX_TRY(sx_kernel_make(cx, name, l->lanes, sx_move_lane_bytes(result->dtype), &l->kernel));
    for (uint32_t k = 0; k <= input_count; k++) {
        const sx_type *type = k < input_count ? &input[k] : result;
        if (!sx_type_is_static(type) || type->dtype != result->dtype) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "kernel %s: shape is symbolic or element types differ", name);
        }
        int64_t size = sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
        bool is_result = k == input_count;
        uint32_t buffer =
            sx_kernel_add_buffer(l->kernel, is_result ? SX_BUFFER_OUT : SX_BUFFER_IN, size);
        if (is_result) {
            l->out_buffer = buffer;
        } else {
            l->arg_dtype[k] = type->dtype;
            l->arg_buffer[k] = buffer;
        }
        l->kernel->bytes += (double)size;
    }
    *lower = l;
    return SX_OK;
}

/* Argument `a` copied over a box. */
static sx_code copy_box(sx_lower *l, uint32_t a, const box *b)
{
    sx_body *body = SX_NEW(l->cx, sx_body);
    sx_analysis *analysis = SX_NEW(l->cx, sx_analysis);
    if (body == NULL || analysis == NULL) {
        return l->cx->error.code;
    }
    sx_view *view = &analysis->view;
    body->arg_count = a + 1;
    body->instr_count = 1;
    body->instr[0] = (sx_instr){.kind = SX_BODY_ARG, .x = a, .dtype = l->arg_dtype[a]};
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        view->view_dim[d] = SX_NO_DIM;
    }
    view->offset[a] = b->from_offset;
    view->out_offset = b->to_offset;
    for (uint32_t d = 0; d < b->rank; d++) {
        if (b->extent[d] == 0) {
            return SX_OK;
        }
        if (b->extent[d] == 1) {
            continue;
        }
        if (view->rank == SX_RANK_MAX) {
            return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "kernel %s: more than %d dimensions",
                           l->kernel->name, SX_RANK_MAX);
        }
        view->extent[view->rank] = b->extent[d];
        view->stride[a][view->rank] = b->from[d];
        view->out_stride[view->rank++] = b->to[d];
    }
    sx_analysis_of_box(body, analysis);
    l->body = body;
    l->analysis = analysis;
    l->view = analysis->view;
    l->vector_dim = analysis->lane;
    return sx_lower_map(l);
}

static sx_code finish(sx_lower *l, sx_kernel **kernel)
{
    l->kernel->numerics = sx_hash64(SX_SPAN_LITERAL("move"), 0); // rounds nothing
    SX_TRY(sx_kernel_check(l->cx, l->kernel));
    *kernel = l->kernel;
    return SX_OK;
}

static void row_major(const sx_type *type, int64_t stride[SX_RANK_MAX])
{
    int64_t step = 1;
    for (uint32_t d = type->rank; d-- > 0;) {
        stride[d] = step;
        step *= type->dim[d].scale;
    }
}

sx_code sx_lower_reverse(sx_ctx *cx, const char *name, const sx_attr *attr, const sx_type *input,
                         const sx_type *result, const sx_schedule *schedule, sx_kernel **kernel)
{
    sx_lower *l;
    box b = {.rank = result->rank};
    int64_t stride[SX_RANK_MAX] = {0};
    SX_TRY(begin(cx, name, input, 1, result, schedule, &l));
    row_major(result, stride);
    for (uint32_t d = 0; d < result->rank; d++) {
        b.extent[d] = result->dim[d].scale;
        b.from[d] = b.to[d] = stride[d];
    }
    for (uint32_t k = 0; k < attr->dims.count; k++) {
        int64_t d = attr->dims.v[k];
        SX_ASSERT(d >= 0 && d < result->rank);
        b.from_offset += (b.extent[d] - 1) * stride[d];
        b.from[d] = -stride[d];
    }
    SX_TRY(copy_box(l, 0, &b));
    return finish(l, kernel);
}

/* The fills along dimension `d`, of which `places` holds the walk over the operand. */
static sx_code fill_dimension(sx_lower *l, const sx_attr *attr, const sx_type *result,
                              const box *places, const int64_t stride[SX_RANK_MAX], uint32_t d)
{
    int64_t low = attr->low.v[d];
    int64_t high = attr->high.v[d];
    box b = {.rank = result->rank};
    for (uint32_t e = 0; e < result->rank; e++) {
        b.extent[e] = e < d ? places->extent[e] : result->dim[e].scale;
        b.to[e] = e < d ? places->to[e] : stride[e];
        b.to_offset += e < d ? attr->low.v[e] * stride[e] : 0;
    }
    box before = b;
    before.extent[d] = low;
    SX_TRY(copy_box(l, 1, &before));
    box behind = b;
    behind.extent[d] = high;
    behind.to_offset += (result->dim[d].scale - high) * stride[d];
    SX_TRY(copy_box(l, 1, &behind));
    box between = b;
    between.rank++;
    between.to_offset += (low + 1) * stride[d];
    for (uint32_t e = result->rank; e > d; e--) {
        between.extent[e] = between.extent[e - 1];
        between.to[e] = between.to[e - 1];
    }
    between.extent[d] = places->extent[d] - 1;
    between.to[d] = places->to[d];
    between.extent[d + 1] = attr->interior.v[d];
    between.to[d + 1] = stride[d];
    return copy_box(l, 1, &between);
}

sx_code sx_lower_pad(sx_ctx *cx, const char *name, const sx_attr *attr, const sx_type *input,
                     const sx_type *result, const sx_schedule *schedule, sx_kernel **kernel)
{
    sx_lower *l;
    box places = {.rank = result->rank};
    int64_t from[SX_RANK_MAX] = {0};
    int64_t to[SX_RANK_MAX] = {0};
    sx_schedule whole_rows; /* at most two parts for each of at most 25 boxes */
    uint32_t lanes = sx_schedule_lanes(schedule);
    SX_TRY(sx_lower_match_map(cx, schedule, name));
    sx_schedule_map(lanes, sx_schedule_step(schedule, SX_ROLE_ROW, SX_BIND_GRID, 0), SX_EXTENT_MAX,
                    (uint32_t)(sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0) / lanes),
                    &whole_rows);
    SX_TRY(begin(cx, name, input, 2, result, &whole_rows, &l));
    row_major(&input[0], from);
    row_major(result, to);
    for (uint32_t d = 0; d < result->rank; d++) {
        places.extent[d] = input[0].dim[d].scale;
        places.from[d] = from[d];
        places.to[d] = to[d] * (attr->interior.v[d] + 1);
        places.to_offset += attr->low.v[d] * to[d];
    }
    SX_TRY(copy_box(l, 0, &places));
    for (uint32_t d = 0; d < result->rank; d++) {
        SX_TRY(fill_dimension(l, attr, result, &places, to, d));
    }
    return finish(l, kernel);
}
