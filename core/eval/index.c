/* index.c - operations whose places are operands: scatter, dynamic_slice, dynamic_update_slice. */
#include "core/eval/cell.h"

#include <string.h>

/* Element `k` of a tensor of integers. */
static int64_t integer_of(sx_eval_mode mode, const sx_tensor *tensor, int64_t k)
{
    const sx_cell *cell = tensor->data;
    return sx_mode_is_exact(mode) ? sx_exact_balanced(mode, cell[k].u) : cell[k].i;
}

sx_code sx_eval_scatter(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                        sx_tensor *result)
{
    const sx_type *type = &result->type;
    const sx_cell *update = input[2].data;
    sx_cell *to = result->data;
    sx_reducer reducer = attr->reducer;
    int64_t count = sx_tensor_elements(type);
    int64_t picks = sx_tensor_elements(&input[1].type);
    int64_t updates = sx_tensor_elements(&input[2].type);
    int64_t extent = type->dim[attr->axis].scale;
    int64_t inner = 1;
    SX_ASSERT(attr->axis >= 0 && (uint32_t)attr->axis < type->rank);
    for (uint32_t d = (uint32_t)attr->axis + 1; d < type->rank; d++) {
        inner *= type->dim[d].scale;
    }
    SX_TRY(sx_spend(cx, (uint64_t)(count + updates)));
    memcpy(to, input[0].data, (size_t)count * sizeof(sx_cell));
    if (updates == 0) {
        return SX_OK; /* nothing is rounded */
    }
    for (int64_t k = 0; k < updates; k++) { /* row-major: ascending in the indices for each place */
        int64_t at = integer_of(mode, &input[1], k / inner % picks);
        if (at < -extent || at >= extent) {
            continue;
        }
        at = at < 0 ? at + extent : at;
        int64_t outer = k / inner / picks;
        sx_cell *place = &to[(outer * extent + at) * inner + k % inner];
        *place = reducer == SX_REPLACE
                     ? update[k]
                     : sx_reduce_step(mode, reducer, type->dtype, *place, update[k]);
    }
    for (int64_t k = 0; k < count && reducer != SX_REPLACE; k++) {
        to[k] = sx_reduce_close(mode, type->dtype, to[k]);
    }
    return SX_OK;
}

/* The box of shape `box` inside of `whole`: for each of its elements, in row-major order, a number in `whole`. */
typedef struct {
    const sx_type *box;
    int64_t stride[SX_RANK_MAX];
    int64_t index[SX_RANK_MAX];
    int64_t at;
} walk;

/* `start`: the starts of attr->dims, clamped here. */
static void begin(walk *w, sx_eval_mode mode, const sx_attr *attr, const sx_type *whole,
                  const sx_type *box, const sx_tensor *start)
{
    int64_t step = 1;
    *w = (walk){.box = box};
    for (uint32_t d = whole->rank; d-- > 0;) {
        w->stride[d] = step;
        step *= whole->dim[d].scale;
    }
    for (uint32_t k = 0; k < attr->dims.count; k++) {
        int64_t d = attr->dims.v[k];
        int64_t last = whole->dim[d].scale - box->dim[d].scale;
        SX_ASSERT(last >= 0);
        int64_t at = sx_max_i64(0, sx_min_i64(integer_of(mode, &start[k], 0), last));
        w->at += at * w->stride[d];
    }
}

static void advance(walk *w)
{
    for (uint32_t d = w->box->rank; d-- > 0;) {
        w->at += w->stride[d];
        if (++w->index[d] < w->box->dim[d].scale) {
            return;
        }
        w->at -= w->index[d] * w->stride[d];
        w->index[d] = 0;
    }
}

sx_code sx_eval_dynamic_slice(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode,
                              const sx_tensor *input, sx_tensor *result)
{
    const sx_cell *from = input[0].data;
    sx_cell *to = result->data;
    int64_t count = sx_tensor_elements(&result->type);
    walk w;
    SX_ASSERT(result->type.rank == input[0].type.rank);
    SX_TRY(sx_spend(cx, (uint64_t)count));
    begin(&w, mode, attr, &input[0].type, &result->type, &input[1]);
    for (int64_t k = 0; k < count; k++) {
        to[k] = from[w.at];
        advance(&w);
    }
    return SX_OK;
}

sx_code sx_eval_dynamic_update(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode,
                               const sx_tensor *input, sx_tensor *result)
{
    const sx_cell *update = input[1].data;
    sx_cell *to = result->data;
    int64_t count = sx_tensor_elements(&input[1].type);
    int64_t all = sx_tensor_elements(&result->type);
    walk w;
    SX_ASSERT(result->type.rank == input[1].type.rank);
    SX_TRY(sx_spend(cx, (uint64_t)(count + all)));
    memcpy(to, input[0].data, (size_t)all * sizeof(sx_cell));
    begin(&w, mode, attr, &result->type, &input[1].type, &input[2]);
    for (int64_t k = 0; k < count; k++) {
        to[w.at] = update[k];
        advance(&w);
    }
    return SX_OK;
}
