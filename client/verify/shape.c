/* shape.c - views, gathers, reductions and windows of the reference: each is a walk over offsets. */
#include <stdlib.h>
#include <string.h>

#include "client/verify/fast.h"
#include "client/verify/step.h"

static void strides_of(const sx_type *type, int64_t stride[SX_RANK_MAX])
{
    int64_t step = 1;
    for (uint32_t d = type->rank; d-- > 0;) {
        stride[d] = step;
        step *= type->dim[d].scale;
    }
}

/* ---- views: element i of the result is read at offset + index(i) . step ---- */
typedef struct {
    const sxv_step *s;
    int64_t offset, step[SX_RANK_MAX];
} view;

static bool view_of(const sxv_step *s, view *v)
{
    int64_t stride[SX_RANK_MAX] = {0};
    const sx_type *source = s->input[0].type;
    *v = (view){.s = s};
    strides_of(source, stride);
    for (uint32_t d = 0; d < source->rank; d++) {
        switch ((int)s->op) {
        case SX_OP_TRANSPOSE: v->step[d] = stride[s->attr->perm.v[d]]; break;
        case SX_OP_BROADCAST:
            v->step[s->attr->dims.v[d]] = source->dim[d].scale == 1 ? 0 : stride[d];
            break;
        case SX_OP_SLICE:
            v->step[d] = stride[d] * s->attr->stride.v[d];
            v->offset += stride[d] * s->attr->start.v[d];
            break;
        }
    }
    if (s->op == SX_OP_RESHAPE) {
        strides_of(s->type, v->step);
    }
    return s->op == SX_OP_TRANSPOSE || s->op == SX_OP_BROADCAST || s->op == SX_OP_SLICE ||
           s->op == SX_OP_RESHAPE;
}

/* Rows [first, last) of the result: everything but its last dimension. */
SXV_LEVELS static void run_view(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const view *v = self;
    const sx_type *type = v->s->type;
    const sxv_operand *x = &v->s->input[0];
    int64_t length = type->rank > 0 ? type->dim[type->rank - 1].scale : 1;
    int64_t step = type->rank > 0 ? v->step[type->rank - 1] : 1;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        int64_t at = v->offset;
        int64_t rest = row;
        for (uint32_t d = type->rank > 0 ? type->rank - 1 : 0; d-- > 0;) {
            at += rest % type->dim[d].scale * v->step[d];
            rest /= type->dim[d].scale;
        }
        sx_cell *to = v->s->result + row * length;
        for (int64_t i = 0; i < length && x->cell != NULL; i++) {
            to[i] = x->cell[at + i * step];
        }
        for (int64_t i = 0; i < length && x->cell == NULL; i++) {
            to[i].f = (double)x->raw[at + i * step];
        }
    }
}

/* ---- gather along one axis ---- */
static void run_gather(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const sxv_step *s = self;
    const sx_type *source = s->input[0].type;
    uint32_t axis = (uint32_t)s->attr->axis;
    int64_t extent = source->dim[axis].scale;
    int64_t picks = sx_tensor_elements(s->input[1].type);
    int64_t inner = 1;
    (void)thread;
    for (uint32_t d = axis + 1; d < source->rank; d++) {
        inner *= source->dim[d].scale;
    }
    for (int64_t k = first; k < last; k++) {
        int64_t at = s->input[1].cell[k / inner % picks].i;
        at = at < 0 ? at + extent : at;
        at = sx_max_i64(0, sx_min_i64(at, extent - 1));
        int64_t from = (k / inner / picks * extent + at) * inner + k % inner;
        if (s->input[0].cell != NULL) {
            s->result[k] = s->input[0].cell[from];
        } else {
            s->result[k].f = (double)s->input[0].raw[from];
        }
    }
}

/* ---- reductions: the elements of one result lie at base(i) + offset[0 .. count) ---- */
typedef struct {
    const sxv_step *s;
    int64_t *offset;
    int64_t count;
    int64_t step[SX_RANK_MAX]; /* in the operand, for each dimension of the result */
} reduction;

static sx_cell reduce_one(const sxv_step *s, const sx_cell *from, const int64_t *offset,
                          int64_t count)
{
    sx_dtype dtype = s->type->dtype;
    sx_reducer reducer = s->attr->reducer;
    sx_cell sum = sx_reduce_open(s->mode, reducer, dtype);
    if (sx_dtype_class_of(dtype) != SX_CLASS_FLOAT || reducer == SX_PRODUCT) {
        for (int64_t k = 0; k < count; k++) {
            sum = sx_reduce_step(s->mode, reducer, dtype, sum, from[offset[k]]);
        }
        return sx_reduce_close(s->mode, dtype, sum);
    }
    bool narrow = s->mode == SX_EVAL_TYPED && dtype != SX_F64;
    for (int64_t k = 0; k < count; k++) {
        double x = from[offset[k]].f;
        if (reducer == SX_SUM) {
            sum.f = narrow ? (double)((float)sum.f + (float)x) : sum.f + x;
        } else if (x != x || sum.f != sum.f) {
            sum = sx_reduce_step(s->mode, reducer, dtype, sum, from[offset[k]]);
        } else {
            bool better = reducer == SX_MAX ? x > sum.f : x < sum.f;
            sum.f = better ? x : sum.f;
        }
    }
    return sx_reduce_close(s->mode, dtype, sum);
}

static void run_reduce(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const reduction *r = self;
    const sx_type *type = r->s->type;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t at = 0;
        int64_t rest = i;
        for (uint32_t d = type->rank; d-- > 0;) {
            at += rest % type->dim[d].scale * r->step[d];
            rest /= type->dim[d].scale;
        }
        r->s->result[i] = reduce_one(r->s, r->s->input[0].cell + at, r->offset, r->count);
    }
}

static sx_code reduce(const sxv_step *s)
{
    const sx_type *source = s->input[0].type;
    int64_t stride[SX_RANK_MAX] = {0};
    uint32_t reduced = 0;
    uint32_t kept = 0;
    reduction r = {.s = s, .count = 1};
    strides_of(source, stride);
    for (uint32_t k = 0; k < s->attr->dims.count; k++) {
        reduced |= 1u << s->attr->dims.v[k];
        r.count *= source->dim[s->attr->dims.v[k]].scale;
    }
    for (uint32_t d = 0; d < source->rank; d++) {
        if ((reduced & 1u << d) == 0) {
            r.step[kept++] = stride[d];
        }
    }
    r.offset = malloc((size_t)r.count * sizeof(*r.offset));
    if (r.offset == NULL) {
        return SX_FAIL(s->cx, SX_NOMEM, "reference: no memory for %lld offsets",
                       (long long)r.count);
    }
    for (int64_t k = 0; k < r.count; k++) { /* row-major over the reduced dimensions */
        int64_t rest = k;
        r.offset[k] = 0;
        for (uint32_t d = source->rank; d-- > 0;) {
            if ((reduced & 1u << d) != 0) {
                r.offset[k] += rest % source->dim[d].scale * stride[d];
                rest /= source->dim[d].scale;
            }
        }
    }
    sxr_pool_run(s->pool, run_reduce, &r, sx_tensor_elements(s->type));
    free(r.offset);
    return SX_OK;
}

/* ---- windows: as reductions, elements in the padding passed over ---- */
typedef struct {
    const sxv_step *s;
    int64_t window_elements;
    int64_t stride[SX_RANK_MAX];
} window;
#define WINDOW_MAX 1024

static void run_window(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const window *w = self;
    const sx_attr *attr = w->s->attr;
    const sx_type *source = w->s->input[0].type;
    const sx_type *type = w->s->type;
    int64_t offset[WINDOW_MAX];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t place[SX_RANK_MAX];
        int64_t index[SX_RANK_MAX] = {0};
        int64_t rest = i;
        int64_t count = 0;
        for (uint32_t d = type->rank; d-- > 0;) {
            place[d] = rest % type->dim[d].scale * attr->stride.v[d] - attr->low.v[d];
            rest /= type->dim[d].scale;
        }
        for (int64_t k = 0; k < w->window_elements; k++) {
            int64_t at = 0;
            bool inside = true;
            for (uint32_t d = 0; d < type->rank; d++) {
                int64_t x = place[d] + index[d] * attr->dilation.v[d];
                inside = inside && x >= 0 && x < source->dim[d].scale;
                at += w->stride[d] * x;
            }
            if (inside) {
                offset[count++] = at;
            }
            for (uint32_t d = type->rank; d-- > 0 && ++index[d] == attr->window.v[d];) {
                index[d] = 0;
            }
        }
        w->s->result[i] = reduce_one(w->s, w->s->input[0].cell, offset, count);
    }
}

sx_code sxv_step_shape(const sxv_step *step, bool *done)
{
    sxv_step s = *step;
    view v;
    *done = true;
    if (s.op == SX_OP_GATHER) {
        sxr_pool_run(s.pool, run_gather, &s, sx_tensor_elements(s.type));
        return SX_OK;
    }
    if (s.op == SX_OP_REDUCE) {
        return reduce(&s);
    }
    if (s.op == SX_OP_REDUCE_WINDOW) {
        window w = {.s = &s, .window_elements = 1};
        for (uint32_t d = 0; d < s.type->rank && w.window_elements <= WINDOW_MAX; d++) {
            w.window_elements *= sx_min_i64(s.attr->window.v[d], WINDOW_MAX + 1);
        }
        *done = w.window_elements <= WINDOW_MAX;
        strides_of(s.input[0].type, w.stride);
        if (*done) {
            sxr_pool_run(s.pool, run_window, &w, sx_tensor_elements(s.type));
        }
        return SX_OK;
    }
    *done = view_of(&s, &v);
    if (*done) {
        int64_t length = s.type->rank > 0 ? s.type->dim[s.type->rank - 1].scale : 1;
        sxr_pool_run(s.pool, run_view, &v, sx_tensor_elements(s.type) / length);
    }
    return SX_OK;
}
