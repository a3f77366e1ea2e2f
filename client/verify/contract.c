/* contract.c - contractions and convolutions of floats as products of matrices (multiply.h). */
#include <stdlib.h>
#include <string.h>

#include "core/base/fast.h"
#include "client/verify/step.h"

static bool is_narrow(const sxv_step *s)
{
    return s->mode == SX_EVAL_TYPED && s->type->dtype != SX_F64;
}

static bool rounds_factors(const sxv_step *s)
{
    return s->tf32 && is_narrow(s) && s->input[0].type->dtype == SX_F32 &&
           s->input[1].type->dtype == SX_F32;
}

/* Sums of types narrower than f32 are rounded once at the end. */
static void round_result(const sxv_step *s)
{
    if (s->mode != SX_EVAL_TYPED || s->type->dtype == SX_F32 || s->type->dtype == SX_F64) {
        return;
    }
    for (int64_t i = 0; i < sx_tensor_elements(s->type); i++) {
        s->result[i] = sx_reduce_close(s->mode, s->type->dtype, s->result[i]);
    }
}

static void strides_of(const sx_type *type, int64_t stride[SX_RANK_MAX])
{
    int64_t step = 1;
    for (uint32_t d = type->rank; d-- > 0;) {
        stride[d] = step;
        step *= type->dim[d].scale;
    }
}

/* ---- dot_general: element (batch, free, k) of an operand lies at batch[b] + free[i] + step[k] ---- */
typedef struct {
    const sxv_operand *x;
    int64_t *batch, *free, *step;
    bool ascending; /* `step` is; `free` always is */
    int64_t batch_count, free_count, step_count;
} side;

/* Offsets of all indices of the listed dimensions, row-major; NULL: no memory. */
static int64_t *offsets_of(const sx_type *type, const sx_ints *dims, int64_t *count)
{
    int64_t stride[SX_RANK_MAX] = {0};
    strides_of(type, stride);
    *count = 1;
    for (uint32_t k = 0; k < dims->count; k++) {
        *count *= type->dim[dims->v[k]].scale;
    }
    int64_t *offset = malloc((size_t)*count * sizeof(*offset));
    for (int64_t i = 0; offset != NULL && i < *count; i++) {
        int64_t rest = i;
        offset[i] = 0;
        for (uint32_t k = dims->count; k-- > 0;) {
            int64_t extent = type->dim[dims->v[k]].scale;
            offset[i] += rest % extent * stride[dims->v[k]];
            rest /= extent;
        }
    }
    return offset;
}

static sx_code side_make(sx_ctx *cx, const sxv_operand *x, const sx_ints *batch,
                         const sx_ints *contract, side *out)
{
    uint32_t taken = 0;
    sx_ints rest = {0};
    for (uint32_t k = 0; k < batch->count; k++) {
        taken |= 1u << batch->v[k];
    }
    for (uint32_t k = 0; k < contract->count; k++) {
        taken |= 1u << contract->v[k];
    }
    for (uint32_t d = 0; d < x->type->rank; d++) {
        if ((taken & 1u << d) == 0) {
            rest.v[rest.count++] = d;
        }
    }
    out->ascending = true;
    for (uint32_t k = 1; k < contract->count; k++) {
        out->ascending = out->ascending && contract->v[k - 1] < contract->v[k];
    }
    out->x = x;
    out->batch = offsets_of(x->type, batch, &out->batch_count);
    out->free = offsets_of(x->type, &rest, &out->free_count);
    out->step = offsets_of(x->type, contract, &out->step_count);
    if (out->batch == NULL || out->free == NULL || out->step == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "reference: no memory for the offsets of a contraction");
    }
    return SX_OK;
}

static void side_fini(side *s)
{
    free(s->batch);
    free(s->free);
    free(s->step);
}

/* `count` elements into floats or doubles; `place` is said of element i. */
#define LOAD(operand, place)                      \
    do {                                          \
        const sx_cell *cell = (operand)->cell;    \
        const float *raw = (operand)->raw;        \
        float *f32 = out;                         \
        double *f64 = out;                        \
        if (cell == NULL && narrow) {             \
            for (int64_t i = 0; i < count; i++) { \
                f32[i] = raw[place];              \
            }                                     \
        } else if (cell == NULL) {                \
            for (int64_t i = 0; i < count; i++) { \
                f64[i] = (double)raw[place];      \
            }                                     \
        } else if (narrow) {                      \
            for (int64_t i = 0; i < count; i++) { \
                f32[i] = (float)cell[place].f;    \
            }                                     \
        } else {                                  \
            for (int64_t i = 0; i < count; i++) { \
                f64[i] = cell[place].f;           \
            }                                     \
        }                                         \
    } while (0)

SX_LEVELS static void load_run(const sxv_operand *x, bool narrow, int64_t first, int64_t count,
                               void *out)
{
    LOAD(x, first + i);
}

SX_LEVELS static void load_listed(const sxv_operand *x, bool narrow, int64_t base,
                                  const int64_t *at, int64_t count, void *out)
{
    LOAD(x, base + at[i]);
}

static void load_offsets(const sxv_operand *x, bool narrow, bool ascending, int64_t base,
                         const int64_t *at, int64_t count, void *out)
{
    if (ascending && at[count - 1] - at[0] == count - 1) { /* all lie side by side */
        load_run(x, narrow, base + at[0], count, out);
    } else {
        load_listed(x, narrow, base, at, count, out);
    }
}

static void load_left(const void *self, bool narrow, int64_t batch, int64_t k, int64_t row,
                      int64_t count, void *out)
{
    const side *s = self;
    load_offsets(s->x, narrow, s->ascending, s->batch[batch] + s->free[row], s->step + k, count,
                 out);
}

static void load_right(const void *self, bool narrow, int64_t batch, int64_t k, int64_t column,
                       int64_t count, void *out)
{
    const side *s = self;
    load_offsets(s->x, narrow, true, s->batch[batch] + s->step[k], s->free + column, count, out);
}

static sx_code dot(const sxv_step *s)
{
    side left = {0}, right = {0};
    const sx_attr *attr = s->attr;
    sx_code code = side_make(s->cx, &s->input[0], &attr->lhs_batch, &attr->lhs_contract, &left);
    if (code == SX_OK) {
        code = side_make(s->cx, &s->input[1], &attr->rhs_batch, &attr->rhs_contract, &right);
    }
    if (code == SX_OK) {
        sxv_product product = {.batch = left.batch_count,
                               .rows = left.free_count,
                               .columns = right.free_count,
                               .length = left.step_count,
                               .load_left = load_left,
                               .load_right = load_right,
                               .left = &left,
                               .right = &right,
                               .narrow = is_narrow(s),
                               .tf32 = rounds_factors(s),
                               .result = (double *)s->result,
                               .result_f32 = s->narrow,
                               .scratch = s->scratch};
        code = sxv_multiply(s->cx, s->pool, &product);
    }
    side_fini(&left);
    side_fini(&right);
    round_result(s);
    return code;
}

/* ---- convolution: rows are the outputs of a group, columns the places, k runs over channel and window ---- */
#define SPATIAL 3 /* those that are missing have extent 1 */
typedef struct {
    const sxv_operand *x, *w;
    int64_t groups, channels, outputs; /* the last two of one group */
    int64_t in[SPATIAL], window[SPATIAL], out[SPATIAL];
    int64_t stride[SPATIAL], low[SPATIAL], dilation[SPATIAL];
    int64_t length;
    /* A window of one element, no padding and no stride: places of result and input are the same. */
    bool plain;
} convolution;

static convolution convolution_of(const sxv_step *s)
{
    const sx_attr *attr = s->attr;
    convolution c = {.x = &s->input[0], .w = &s->input[1], .groups = attr->groups};
    uint32_t missing = SPATIAL + 2 - s->type->rank;
    c.channels = c.w->type->dim[1].scale;
    c.outputs = c.w->type->dim[0].scale / c.groups;
    c.length = c.channels;
    c.plain = true;
    for (uint32_t d = 0; d < SPATIAL; d++) {
        bool there = d >= missing;
        uint32_t k = there ? d - missing : 0;
        c.in[d] = there ? c.x->type->dim[2 + k].scale : 1;
        c.window[d] = there ? c.w->type->dim[2 + k].scale : 1;
        c.out[d] = there ? s->type->dim[2 + k].scale : 1;
        c.stride[d] = there ? attr->stride.v[k] : 1;
        c.low[d] = there ? attr->low.v[k] : 0;
        c.dilation[d] = there ? attr->dilation.v[k] : 1;
        c.length *= c.window[d];
        c.plain =
            c.plain && c.window[d] == 1 && c.stride[d] == 1 && c.low[d] == 0 && c.in[d] == c.out[d];
    }
    return c;
}

static void load_weights(const void *self, bool narrow, int64_t batch, int64_t k, int64_t row,
                         int64_t count, void *out)
{
    const convolution *c = self;
    load_run(c->w, narrow, (batch % c->groups * c->outputs + row) * c->length + k, count, out);
}

SX_LEVELS static void load_strided(const sxv_operand *x, bool narrow, int64_t from, int64_t stride,
                                   int64_t count, void *out)
{
    if (stride == 1) {
        LOAD(x, from + i);
    } else {
        LOAD(x, from + i * stride);
    }
}

/* Places column .. column + count of one line of the result, read from line `at` of the input (negative: padding). */
static void load_line(const convolution *c, bool narrow, int64_t at, int64_t column, int64_t count,
                      int64_t shift, void *out)
{
    int64_t stride = c->stride[2];
    size_t each = narrow ? sizeof(float) : sizeof(double);
    uint8_t *to = out;
    /* the places whose column in the input lies in [0, in) */
    int64_t low = shift < 0 ? sx_ceil_div_i64(-shift, stride) : 0;
    int64_t high = c->in[2] > shift ? sx_ceil_div_i64(c->in[2] - shift, stride) : 0;
    low = at < 0 ? count : sx_min_i64(sx_max_i64(low - column, 0), count);
    high = at < 0 ? count : sx_min_i64(sx_max_i64(high - column, low), count);
    memset(to, 0, (size_t)low * each);
    memset(to + (size_t)high * each, 0, (size_t)(count - high) * each);
    if (high > low) {
        load_strided(c->x, narrow, at + shift + (column + low) * stride, stride, high - low,
                     to + (size_t)low * each);
    }
}

static void load_places(const void *self, bool narrow, int64_t batch, int64_t k, int64_t first,
                        int64_t count, void *out)
{
    const convolution *c = self;
    int64_t shift[SPATIAL];
    int64_t rest = k;
    size_t each = narrow ? sizeof(float) : sizeof(double);
    for (uint32_t d = SPATIAL; d-- > 0;) {
        shift[d] = rest % c->window[d] * c->dilation[d] - c->low[d];
        rest /= c->window[d];
    }
    int64_t plane = c->in[0] * c->in[1] * c->in[2];
    int64_t base = (batch * c->channels + rest) * plane; /* batch: image and group */
    if (c->plain) {
        load_run(c->x, narrow, base + first, count, out);
        return;
    }
    int64_t column = first % c->out[2];
    int64_t row = first / c->out[2] % c->out[1];
    int64_t slab = first / c->out[2] / c->out[1];
    for (int64_t i = 0; i < count;) {
        int64_t z = slab * c->stride[0] + shift[0];
        int64_t y = row * c->stride[1] + shift[1];
        int64_t some = sx_min_i64(count - i, c->out[2] - column);
        bool inside = z >= 0 && z < c->in[0] && y >= 0 && y < c->in[1];
        load_line(c, narrow, inside ? base + (z * c->in[1] + y) * c->in[2] : -1, column, some,
                  shift[2], (uint8_t *)out + (size_t)i * each);
        i += some;
        column = 0;
        if (++row == c->out[1]) {
            row = 0;
            slab++;
        }
    }
}

static sx_code convolve(const sxv_step *s)
{
    convolution c = convolution_of(s);
    sxv_product product = {.batch = s->type->dim[0].scale * c.groups,
                           .rows = c.outputs,
                           .columns = c.out[0] * c.out[1] * c.out[2],
                           .length = c.length,
                           .load_left = load_weights,
                           .load_right = load_places,
                           .left = &c,
                           .right = &c,
                           .narrow = is_narrow(s),
                           .tf32 = rounds_factors(s),
                           .result = (double *)s->result,
                           .result_f32 = s->narrow,
                           .scratch = s->scratch};
    SX_TRY(sxv_multiply(s->cx, s->pool, &product));
    round_result(s);
    return SX_OK;
}

sx_code sxv_step_contract(const sxv_step *s, bool *done)
{
    *done = sx_dtype_class_of(s->type->dtype) == SX_CLASS_FLOAT;
    if (!*done) {
        return SX_OK;
    }
    return s->op == SX_OP_CONVOLUTION ? convolve(s) : dot(s);
}
