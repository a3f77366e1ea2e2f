/* shape.c - views, gathers, reductions and windows of the reference: each is a walk over offsets. */
#include <stdlib.h>
#include <string.h>

#include "core/base/fast.h"
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
        case SX_OP_SLICE:
            v->step[d] = stride[d] * s->attr->stride.v[d];
            v->offset += stride[d] * s->attr->start.v[d];
            break;
        }
    }
    return s->op == SX_OP_TRANSPOSE || s->op == SX_OP_SLICE;
}

/* A run of elements, and one element repeated, are what most rows are. */
#define COPY(value)                           \
    do {                                      \
        if (step == 1) {                      \
            for (int64_t i = 0; i < n; i++) { \
                int64_t at = i;               \
                to[i] = value;                \
            }                                 \
        } else {                              \
            for (int64_t i = 0; i < n; i++) { \
                int64_t at = i * step;        \
                to[i] = value;                \
            }                                 \
        }                                     \
    } while (0)
SX_LEVELS static void copy_floats(float *to, const float *from, int64_t n, int64_t step)
{
    COPY(from[at]);
}

SX_LEVELS static void copy_cells(sx_cell *to, const sx_cell *from, int64_t n, int64_t step)
{
    COPY(from[at]);
}

SX_LEVELS static void copy_widened(sx_cell *to, const float *from, int64_t n, int64_t step)
{
    COPY((sx_cell){.f = (double)from[at]});
}

/* Rows [first, last) of the result: everything but its last dimension. */
static void run_view(void *self, uint32_t thread, int64_t first, int64_t last)
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
        if (v->s->narrow != NULL) {
            copy_floats(v->s->narrow + row * length, x->raw + at, length, step);
        } else if (x->cell != NULL) {
            copy_cells(v->s->result + row * length, x->cell + at, length, step);
        } else {
            copy_widened(v->s->result + row * length, x->raw + at, length, step);
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
        sxv_put(s, k, sxv_cell_at(&s->input[0], from));
    }
}

/* ---- reductions: the elements of one result lie at base(i) + offset[0 .. count) ---- */
typedef struct {
    const sxv_step *s;
    int64_t *offset;
    int64_t count;
    int64_t step[SX_RANK_MAX]; /* in the operand, for each dimension of the result */
} reduction;

/* One step of a sum, maximum or minimum of floats. */
static inline double combined(sx_reducer reducer, bool narrow, double sum, double x)
{
    if (reducer == SX_SUM) {
        return narrow ? (double)((float)sum + (float)x) : sum + x;
    }
    if (x != x || sum != sum) {
        return sum != sum ? sum : x; /* NaN stays */
    }
    return (reducer == SX_MAX ? x > sum : x < sum) ? x : sum;
}

#define TOGETHER \
    8 /* results that are reduced side by side: each is a chain of operations that wait for another */
#define REDUCE(reducer, element)                                 \
    for (int64_t k = 0; k < count; k++) {                        \
        for (int64_t i = 0; i < TOGETHER; i++) {                 \
            sum[i] = combined(reducer, narrow, sum[i], element); \
        }                                                        \
    }
#define REDUCE_ALL(element)                  \
    if (s->attr->reducer == SX_SUM) {        \
        REDUCE(SX_SUM, element)              \
    } else if (s->attr->reducer == SX_MAX) { \
        REDUCE(SX_MAX, element)              \
    } else {                                 \
        REDUCE(SX_MIN, element)              \
    }
/* TOGETHER results, whose first elements are numbers `at`. */
static void reduce_floats(const sxv_step *s, const int64_t at[TOGETHER], const int64_t *offset,
                          int64_t count, double sum[TOGETHER])
{
    const sxv_operand *x = &s->input[0];
    bool narrow = s->mode == SX_EVAL_TYPED && s->type->dtype != SX_F64;
    if (x->cell != NULL) {
        REDUCE_ALL(x->cell[at[i] + offset[k]].f)
    } else {
        REDUCE_ALL((double)x->raw[at[i] + offset[k]])
    }
}

static sx_cell reduce_one(const sxv_step *s, int64_t at, const int64_t *offset, int64_t count)
{
    sx_dtype dtype = s->type->dtype;
    sx_reducer reducer = s->attr->reducer;
    bool narrow = s->mode == SX_EVAL_TYPED && dtype != SX_F64;
    sx_cell sum = sx_reduce_open(s->mode, reducer, dtype);
    for (int64_t k = 0; k < count; k++) {
        sx_cell x = sxv_cell_at(&s->input[0], at + offset[k]);
        if (sx_dtype_class_of(dtype) != SX_CLASS_FLOAT || reducer == SX_PRODUCT) {
            sum = sx_reduce_step(s->mode, reducer, dtype, sum, x);
        } else {
            sum.f = combined(reducer, narrow, sum.f, x.f);
        }
    }
    return sx_reduce_close(s->mode, dtype, sum);
}

static int64_t first_element(const reduction *r, int64_t i)
{
    const sx_type *type = r->s->type;
    int64_t at = 0;
    for (uint32_t d = type->rank; d-- > 0;) {
        at += i % type->dim[d].scale * r->step[d];
        i /= type->dim[d].scale;
    }
    return at;
}

static void run_reduce(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const reduction *r = self;
    const sxv_step *s = r->s;
    sx_dtype dtype = s->type->dtype;
    bool floats = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT && s->attr->reducer != SX_PRODUCT;
    int64_t i = first;
    (void)thread;
    for (; floats && i + TOGETHER <= last; i += TOGETHER) {
        int64_t at[TOGETHER];
        double sum[TOGETHER];
        for (int64_t k = 0; k < TOGETHER; k++) {
            at[k] = first_element(r, i + k);
            sum[k] = sx_reduce_open(s->mode, s->attr->reducer, dtype).f;
        }
        reduce_floats(s, at, r->offset, r->count, sum);
        for (int64_t k = 0; k < TOGETHER; k++) {
            sxv_put(s, i + k, sx_reduce_close(s->mode, dtype, (sx_cell){.f = sum[k]}));
        }
    }
    for (; i < last; i++) {
        sxv_put(s, i, reduce_one(s, first_element(r, i), r->offset, r->count));
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
        sxv_put(w->s, i, reduce_one(w->s, 0, offset, count));
    }
}

/* ---- operands one after the other ---- */
typedef struct {
    const sxv_step *s;
    int64_t row,
        offset; /* elements of one row of the result, and where those of this operand begin */
    const sxv_operand *x;
    int64_t length; /* of a row of the operand */
} joining;

static void run_join(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const joining *j = self;
    size_t length = (size_t)j->length;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t to = i * j->row + j->offset;
        if (j->s->narrow != NULL) {
            memcpy(j->s->narrow + to, j->x->raw + i * j->length, length * sizeof(float));
        } else if (j->x->cell != NULL) {
            memcpy(j->s->result + to, j->x->cell + i * j->length, length * sizeof(sx_cell));
        } else {
            copy_widened(j->s->result + to, j->x->raw + i * j->length, j->length, 1);
        }
    }
}

static void join(const sxv_step *s)
{
    int64_t inner = 1;
    joining j = {.s = s};
    for (uint32_t d = (uint32_t)s->attr->axis + 1; d < s->type->rank; d++) {
        inner *= s->type->dim[d].scale;
    }
    j.row = s->type->dim[s->attr->axis].scale * inner;
    for (uint32_t k = 0; k < s->input_count; k++) {
        j.x = &s->input[k];
        j.length = j.x->type->dim[s->attr->axis].scale * inner;
        sxr_pool_run(s->pool, run_join, &j, sx_tensor_elements(s->type) / j.row);
        j.offset += j.length;
    }
    SX_ASSERT(j.offset == j.row);
}

static void run_rows(view *v)
{
    const sx_type *type = v->s->type;
    int64_t length = type->rank > 0 ? type->dim[type->rank - 1].scale : 1;
    sxr_pool_run(v->s->pool, run_view, v, sx_tensor_elements(type) / length);
}

void sxv_step_spread(const sxv_step *s)
{
    view v = {.s = s};
    SX_ASSERT(s->input[0].step != NULL);
    memcpy(v.step, s->input[0].step, s->type->rank * sizeof(v.step[0]));
    run_rows(&v);
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
    if (s.op == SX_OP_CONCATENATE) {
        join(&s);
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
        run_rows(&v);
    }
    return SX_OK;
}
