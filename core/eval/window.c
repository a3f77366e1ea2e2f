/* window.c - reverse, pad, sliding windows: plain index loops. */
#include <math.h>

#include "core/eval/cell.h"

static void strides_of(const sx_type *type, int64_t stride[SX_RANK_MAX])
{
    int64_t step = 1;
    for (uint32_t d = type->rank; d-- > 0;) {
        stride[d] = step;
        step *= type->dim[d].scale;
    }
}

/* The next index in row-major order. */
static void advance(uint32_t rank, const int64_t *extent, int64_t *index)
{
    for (uint32_t d = rank; d-- > 0;) {
        if (++index[d] < extent[d]) {
            return;
        }
        index[d] = 0;
    }
}

static void extents_of(const sx_type *type, int64_t extent[SX_RANK_MAX])
{
    for (uint32_t d = 0; d < type->rank; d++) {
        extent[d] = type->dim[d].scale;
    }
}

sx_code sx_eval_reverse(sx_ctx *cx, const sx_attr *attr, const sx_tensor *input, sx_tensor *result)
{
    const sx_type *type = &result->type;
    const sx_cell *from = input->data;
    sx_cell *to = result->data;
    int64_t stride[SX_RANK_MAX] = {0};
    int64_t extent[SX_RANK_MAX] = {0};
    int64_t index[SX_RANK_MAX] = {0};
    uint32_t reversed = 0;
    int64_t count = sx_tensor_elements(type);
    SX_TRY(sx_spend(cx, (uint64_t)count));
    strides_of(type, stride);
    extents_of(type, extent);
    for (uint32_t k = 0; k < attr->dims.count; k++) {
        reversed |= 1u << attr->dims.v[k];
    }
    for (int64_t k = 0; k < count; k++) {
        int64_t at = 0;
        for (uint32_t d = 0; d < type->rank; d++) {
            at += stride[d] * ((reversed & 1u << d) != 0 ? extent[d] - 1 - index[d] : index[d]);
        }
        to[k] = from[at];
        advance(type->rank, extent, index);
    }
    return SX_OK;
}

sx_code sx_eval_pad(sx_ctx *cx, const sx_attr *attr, const sx_tensor *input, sx_tensor *result)
{
    const sx_type *source = &input[0].type;
    const sx_cell *from = input[0].data;
    const sx_cell *value = input[1].data;
    sx_cell *to = result->data;
    int64_t stride[SX_RANK_MAX] = {0};
    int64_t extent[SX_RANK_MAX] = {0};
    int64_t index[SX_RANK_MAX] = {0};
    int64_t count = sx_tensor_elements(source);
    int64_t padded = sx_tensor_elements(&result->type);
    SX_TRY(sx_spend(cx, (uint64_t)sx_max_i64(padded, count)));
    strides_of(&result->type, stride);
    extents_of(source, extent);
    for (int64_t k = 0; k < padded; k++) {
        to[k] = value[0];
    }
    for (int64_t k = 0; k < count; k++) {
        int64_t at = 0;
        bool inside = true; /* negative padding takes elements away */
        for (uint32_t d = 0; d < source->rank; d++) {
            int64_t i = attr->low.v[d] + index[d] * (attr->interior.v[d] + 1);
            inside = inside && i >= 0 && i < result->type.dim[d].scale;
            at += stride[d] * i;
        }
        if (inside) {
            to[at] = from[k];
        }
        advance(source->rank, extent, index);
    }
    return SX_OK;
}

/* Elements of the window in row-major order, those in the padding passed over. */
static sx_cell reduce_place(const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                            const int64_t *stride, const int64_t *place, int64_t window_elements)
{
    const sx_type *type = &input->type;
    const sx_cell *from = input->data;
    int64_t index[SX_RANK_MAX] = {0};
    sx_cell sum = sx_reduce_open(mode, attr->reducer, type->dtype);
    for (int64_t k = 0; k < window_elements; k++) {
        int64_t at = 0;
        bool inside = true;
        for (uint32_t d = 0; d < type->rank; d++) {
            int64_t i =
                place[d] * attr->stride.v[d] + index[d] * attr->dilation.v[d] - attr->low.v[d];
            inside = inside && i >= 0 && i < type->dim[d].scale;
            at += stride[d] * i;
        }
        if (inside) {
            sum = sx_reduce_step(mode, attr->reducer, type->dtype, sum, from[at]);
        }
        advance(type->rank, attr->window.v, index);
    }
    return sx_reduce_close(mode, type->dtype, sum);
}

sx_code sx_eval_window(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                       sx_tensor *result)
{
    const sx_type *type = &result->type;
    int64_t stride[SX_RANK_MAX] = {0};
    int64_t extent[SX_RANK_MAX] = {0};
    int64_t place[SX_RANK_MAX] = {0};
    int64_t window_elements = 1;
    for (uint32_t d = 0; d < type->rank; d++) {
        if (!sx_mul_i64(window_elements, attr->window.v[d], &window_elements)) {
            return SX_FAIL(cx, SX_LIMIT, "reduce_window: a window of more than 2^63 elements");
        }
    }
    strides_of(&input->type, stride);
    extents_of(type, extent);
    sx_cell *to = result->data;
    int64_t count = sx_tensor_elements(type);
    for (int64_t k = 0; k < count; k++) {
        SX_TRY(sx_spend(cx, (uint64_t)window_elements));
        to[k] = reduce_place(attr, mode, input, stride, place, window_elements);
        advance(type->rank, extent, place);
    }
    return SX_OK;
}

/* ---- convolution: three spatial dimensions, those that are missing have extent 1 ---- */
#define SPATIAL 3
typedef struct {
    sx_eval_mode mode;
    sx_dtype dtype;
    const sx_cell *x;
    int64_t channels; /* of a group */
    int64_t channel_elements;
    int64_t in[SPATIAL], window[SPATIAL], out[SPATIAL];
    int64_t stride[SPATIAL], low[SPATIAL], dilation[SPATIAL];
} convolution;

/* sum + x * w along the last window dimension; `column` is where its first element meets the row, `valid`
 * whether the row lies inside. */
static sx_cell multiply_row(const convolution *c, sx_cell sum, const sx_cell *row, bool valid,
                            int64_t column, const sx_cell *w)
{
    bool is_float = sx_dtype_class_of(c->dtype) == SX_CLASS_FLOAT;
    bool doubles = is_float && (c->mode == SX_EVAL_F64 || c->mode == SX_EVAL_POW2);
    const sx_cell zero = sx_cell_of_int(c->mode, c->dtype, 0);
    for (int64_t k = 0; k < c->window[2]; k++) {
        int64_t at = column + k * c->dilation[2];
        sx_cell x = valid && at >= 0 && at < c->in[2] ? row[at] : zero;
        if (doubles) {
            sum.f += x.f * w[k].f;
        } else {
            sum = sx_dot_step(c->mode, c->dtype, sum, x, w[k]);
        }
    }
    return sum;
}

/* One element of the result: `x` are the channels of its group, `w` its weights. */
static sx_cell multiply_place(const convolution *c, const sx_cell *x, const sx_cell *w,
                              const int64_t *place)
{
    sx_cell sum = sx_reduce_open(c->mode, SX_SUM, c->dtype);
    int64_t first[SPATIAL];
    for (uint32_t d = 0; d < SPATIAL; d++) {
        first[d] = place[d] * c->stride[d] - c->low[d];
    }
    for (int64_t channel = 0; channel < c->channels; channel++, x += c->channel_elements) {
        for (int64_t i = 0; i < c->window[0]; i++) {
            for (int64_t j = 0; j < c->window[1]; j++, w += c->window[2]) {
                int64_t a = first[0] + i * c->dilation[0];
                int64_t b = first[1] + j * c->dilation[1];
                bool valid = a >= 0 && a < c->in[0] && b >= 0 && b < c->in[1];
                const sx_cell *row = valid ? x + (a * c->in[1] + b) * c->in[2] : NULL;
                sum = multiply_row(c, sum, row, valid, first[2], w);
            }
        }
    }
    return sx_reduce_close(c->mode, c->dtype, sum);
}

static convolution convolution_of(const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                                  const sx_type *type)
{
    convolution c = {.mode = mode, .dtype = type->dtype, .x = input[0].data};
    uint32_t missing = SPATIAL + 2 - type->rank;
    c.channels = input[1].type.dim[1].scale;
    c.channel_elements = 1;
    for (uint32_t d = 0; d < SPATIAL; d++) {
        bool there = d >= missing;
        uint32_t k = there ? d - missing : 0;
        c.in[d] = there ? input[0].type.dim[2 + k].scale : 1;
        c.window[d] = there ? input[1].type.dim[2 + k].scale : 1;
        c.out[d] = there ? type->dim[2 + k].scale : 1;
        c.stride[d] = there ? attr->stride.v[k] : 1;
        c.low[d] = there ? attr->low.v[k] : 0;
        c.dilation[d] = there ? attr->dilation.v[k] : 1;
        c.channel_elements *= c.in[d];
    }
    return c;
}

sx_code sx_eval_convolution(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode,
                            const sx_tensor *input, sx_tensor *result)
{
    const sx_type *type = &result->type;
    convolution c = convolution_of(attr, mode, input, type);
    int64_t outputs = type->dim[1].scale;
    int64_t row = sx_tensor_elements(&input[1].type) / outputs; /* weights of one output channel */
    int64_t extent[2 + SPATIAL] = {type->dim[0].scale, outputs, c.out[0], c.out[1], c.out[2]};
    int64_t index[2 + SPATIAL] = {0};
    const sx_cell *w = input[1].data;
    sx_cell *to = result->data;
    int64_t count = sx_tensor_elements(type);
    for (int64_t k = 0; k < count; k++) {
        int64_t group = index[1] / (outputs / attr->groups);
        int64_t channel = (index[0] * attr->groups + group) * c.channels;
        SX_TRY(sx_spend(cx, (uint64_t)row));
        to[k] =
            multiply_place(&c, c.x + channel * c.channel_elements, w + index[1] * row, &index[2]);
        advance(2 + SPATIAL, extent, index);
    }
    return SX_OK;
}
