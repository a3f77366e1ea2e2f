#include <math.h>
#include <string.h>

#include "core/ir/compose.h"
#include "core/fuse/fuse.h"
#include "core/ir/fused_body.h"
#include "core/ir/num.h"

/* A body being made: its iteration space and what it reads. */
typedef struct {
    sx_ctx *cx;
    sx_type space;
    sx_body *body;
} lift;

static sx_code put(lift *l, const sx_instr *instr, uint32_t *index)
{
    if (!sx_body_put(l->body, instr, index)) {
        return SX_FAIL(l->cx, SX_LIMIT, "fused: more than %d instructions", SX_FUSED_INSTRS_MAX);
    }
    return SX_OK;
}

static sx_code put_arg(lift *l, uint32_t a, const sx_access *access, sx_dtype dtype,
                       uint32_t *index)
{
    SX_ASSERT(a == l->body->arg_count && a < SX_FUSED_ARGS_MAX);
    l->body->access[l->body->arg_count++] = *access;
    sx_instr instr = {.kind = SX_BODY_ARG, .x = a, .dtype = dtype};
    return put(l, &instr, index);
}

static sx_access empty_access(void)
{
    sx_access access = {.offset = sx_dim_of(0)};
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        access.stride[d] = sx_dim_of(0);
    }
    return access;
}

static sx_code strides_of(sx_ctx *cx, const sx_type *type, sx_dim stride[SX_RANK_MAX])
{
    if (!sx_type_strides(type, stride)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "fused: a stride has three symbols or exceeds %lld",
                       (long long)SX_ELEMENTS_MAX);
    }
    return SX_OK;
}

/* The access that reads dimension k of `type` at space dimension at[k]. */
static sx_code access_at(sx_ctx *cx, const sx_type *type, const uint32_t at[SX_RANK_MAX],
                         sx_access *access)
{
    sx_dim stride[SX_RANK_MAX];
    SX_TRY(strides_of(cx, type, stride));
    *access = empty_access();
    for (uint32_t k = 0; k < type->rank; k++) {
        SX_ASSERT(at[k] < SX_RANK_MAX);
        access->stride[at[k]] = stride[k];
    }
    return SX_OK;
}

/* The access of an operand whose dimensions are the last ones of the space. */
static sx_code put_operand(lift *l, uint32_t a, const sx_type *type, uint32_t *index)
{
    SX_ASSERT(type->rank <= l->space.rank);
    uint32_t at[SX_RANK_MAX] = {0};
    for (uint32_t k = 0; k < type->rank; k++) {
        at[k] = l->space.rank - type->rank + k;
    }
    sx_access access;
    SX_TRY(access_at(l->cx, type, at, &access));
    return put_arg(l, a, &access, type->dtype, index);
}

/* ---- elementwise, leaves, views ---- */
static sx_code lift_elementwise(lift *l, sx_op op, const sx_attr *attr, const sx_type *input,
                                uint32_t input_count)
{
    uint32_t x[3] = {0, 0, 0};
    SX_ASSERT(input_count <= 3);
    for (uint32_t k = 0; k < input_count; k++) {
        SX_TRY(put_operand(l, k, &input[k], &x[k]));
    }
    sx_instr apply = {.kind = SX_BODY_APPLY, .op = op, .dtype = l->space.dtype};
    apply.direction = op == SX_OP_COMPARE ? attr->direction : SX_EQ;
    apply.x = x[0];
    apply.y = x[1];
    apply.z = x[2];
    uint32_t index;
    return put(l, &apply, &index);
}

static sx_code lift_iota(lift *l, const sx_attr *attr)
{
    sx_instr instr = {.kind = SX_BODY_INDEX, .dtype = l->space.dtype, .x = (uint32_t)attr->axis};
    uint32_t index;
    return put(l, &instr, &index);
}

static sx_code lift_constant(lift *l, const sx_attr *attr)
{
    sx_dtype dtype = l->space.dtype;
    if (attr->data.len != sx_dtype_bytes(dtype)) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "constant: %zu bytes are no single element",
                       attr->data.len);
    }
    double value;
    if (!sx_element_value(dtype, attr->data.ptr, &value)) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "constant: the integer has more than 53 bits");
    }
    sx_instr instr = {.kind = SX_BODY_IMM, .dtype = dtype, .imm = value};
    uint32_t index;
    return put(l, &instr, &index);
}

static sx_code lift_view(lift *l, sx_op op, const sx_attr *attr, const sx_type *input)
{
    sx_access access;
    if (!sx_view_access(op, attr, input, &l->space, &access) ||
        !sx_access_is_inside(&l->space, &access, input)) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED,
                       "%s: no access with a constant offset that is shown to stay inside",
                       sx_op_info_of(op)->name);
    }
    uint32_t index;
    return put_arg(l, 0, &access, input->dtype, &index);
}

/* ---- reductions and contractions ---- */
/* A dimension of extent 1 at the end of the space that is reduced over: a reduction over nothing else. */
static sx_code add_unit_axis(lift *l)
{
    if (l->space.rank == SX_RANK_MAX) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "fused: no room for a reduced axis at rank %d",
                       SX_RANK_MAX);
    }
    l->body->axes |= 1u << l->space.rank;
    l->space.dim[l->space.rank++] = sx_dim_of(1);
    return SX_OK;
}

static sx_code lift_reduce(lift *l, const sx_attr *attr, const sx_type *input)
{
    l->space = *input;
    sx_dim stride[SX_RANK_MAX];
    SX_TRY(strides_of(l->cx, input, stride));
    sx_access access = empty_access();
    memcpy(access.stride, stride, input->rank * sizeof(stride[0]));
    for (uint32_t k = 0; k < attr->dims.count; k++) {
        SX_ASSERT(attr->dims.v[k] >= 0 && attr->dims.v[k] < input->rank);
        l->body->axes |= 1u << attr->dims.v[k];
    }
    if (l->body->axes == 0) {
        SX_TRY(add_unit_axis(l));
    }
    sx_instr reduce = {.kind = SX_BODY_REDUCE, .reducer = attr->reducer, .dtype = input->dtype};
    uint32_t index;
    SX_TRY(put_arg(l, 0, &access, input->dtype, &reduce.x));
    return put(l, &reduce, &index);
}

/* Places of the operand's dimensions in the space [batch, left free, right free, contracted]; new ones are appended. */
static sx_code place_free(lift *l, const sx_type *type, const sx_ints *batch,
                          const sx_ints *contract, uint32_t at[SX_RANK_MAX])
{
    bool taken[SX_RANK_MAX] = {false};
    for (uint32_t k = 0; k < batch->count; k++) {
        taken[batch->v[k]] = true;
        at[batch->v[k]] = k;
    }
    for (uint32_t k = 0; k < contract->count; k++) {
        taken[contract->v[k]] = true;
    }
    for (uint32_t d = 0; d < type->rank; d++) {
        if (taken[d]) {
            continue;
        }
        if (l->space.rank == SX_RANK_MAX) {
            return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "dot_general: space of more than %d dimensions",
                           SX_RANK_MAX);
        }
        at[d] = l->space.rank;
        l->space.dim[l->space.rank++] = type->dim[d];
    }
    return SX_OK;
}

static sx_code lift_dot(lift *l, const sx_attr *attr, const sx_type *input)
{
    uint32_t left[SX_RANK_MAX] = {0};
    uint32_t right[SX_RANK_MAX] = {0};
    l->space.rank = 0;
    for (uint32_t k = 0; k < attr->lhs_batch.count; k++) {
        l->space.dim[l->space.rank++] = input[0].dim[attr->lhs_batch.v[k]];
    }
    SX_TRY(place_free(l, &input[0], &attr->lhs_batch, &attr->lhs_contract, left));
    SX_TRY(place_free(l, &input[1], &attr->rhs_batch, &attr->rhs_contract, right));
    for (uint32_t k = 0; k < attr->lhs_contract.count; k++) {
        if (l->space.rank == SX_RANK_MAX) {
            return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "dot_general: space of more than %d dimensions",
                           SX_RANK_MAX);
        }
        left[attr->lhs_contract.v[k]] = l->space.rank;
        right[attr->rhs_contract.v[k]] = l->space.rank;
        l->body->axes |= 1u << l->space.rank;
        l->space.dim[l->space.rank++] = input[0].dim[attr->lhs_contract.v[k]];
    }
    if (l->body->axes == 0) {
        SX_TRY(add_unit_axis(l));
    }
    sx_access access[2];
    SX_TRY(access_at(l->cx, &input[0], left, &access[0]));
    SX_TRY(access_at(l->cx, &input[1], right, &access[1]));
    sx_instr dot = {.kind = SX_BODY_DOT, .dtype = l->space.dtype};
    uint32_t index;
    SX_TRY(put_arg(l, 0, &access[0], input[0].dtype, &dot.x));
    SX_TRY(put_arg(l, 1, &access[1], input[1].dtype, &dot.y));
    return put(l, &dot, &index);
}

/* ---- windows ---- */
static bool is_zero(const sx_ints *list)
{
    bool zero = true;
    for (uint32_t k = 0; k < list->count; k++) {
        zero = zero && list->v[k] == 0;
    }
    return zero;
}

/* A reduced dimension of the space, unless there is nothing to walk; `at` is SX_RANK_MAX then. */
static sx_code add_axis(lift *l, sx_dim extent, uint32_t *at)
{
    *at = SX_RANK_MAX;
    if (sx_dim_equal(extent, sx_dim_of(1))) {
        return SX_OK;
    }
    if (l->space.rank == SX_RANK_MAX) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "fused: space of more than %d dimensions",
                       SX_RANK_MAX);
    }
    *at = l->space.rank;
    l->body->axes |= 1u << l->space.rank;
    l->space.dim[l->space.rank++] = extent;
    return SX_OK;
}

static sx_code set_stride(lift *l, sx_access *access, uint32_t at, sx_dim stride, int64_t factor)
{
    if (at < SX_RANK_MAX && !sx_dim_multiply(stride, sx_dim_of(factor), &access->stride[at])) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "fused: a stride exceeds %lld",
                       (long long)SX_ELEMENTS_MAX);
    }
    return SX_OK;
}

/* The window's dimensions stand before the last one of the result, so that vectors run along the latter. */
static sx_code lift_window(lift *l, const sx_attr *attr, const sx_type *input)
{
    sx_dim stride[SX_RANK_MAX];
    sx_access access = empty_access();
    uint32_t rank = input->rank;
    if (!is_zero(&attr->low) || !is_zero(&attr->high)) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED,
                       "reduce_window: with padding it is not one loop nest");
    }
    SX_TRY(strides_of(l->cx, input, stride));
    sx_dim last = l->space.dim[rank - 1];
    l->space.rank = rank - 1;
    for (uint32_t d = 0; d < rank; d++) {
        uint32_t at;
        SX_TRY(add_axis(l, sx_dim_of(attr->window.v[d]), &at));
        SX_TRY(set_stride(l, &access, at, stride[d], attr->dilation.v[d]));
    }
    if (l->body->axes == 0) {
        SX_TRY(add_unit_axis(l));
    }
    if (l->space.rank == SX_RANK_MAX) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "reduce_window: space of more than %d dimensions",
                       SX_RANK_MAX);
    }
    l->space.dim[l->space.rank++] = last;
    for (uint32_t d = 0; d < rank; d++) {
        uint32_t at = d + 1 < rank ? d : l->space.rank - 1;
        SX_TRY(set_stride(l, &access, at, stride[d], attr->stride.v[d]));
    }
    sx_instr reduce = {.kind = SX_BODY_REDUCE, .reducer = attr->reducer, .dtype = input->dtype};
    uint32_t index;
    SX_TRY(put_arg(l, 0, &access, input->dtype, &reduce.x));
    return put(l, &reduce, &index);
}

/* Space [n, o, places .., c, window ..]. */
static sx_code lift_convolution(lift *l, const sx_attr *attr, const sx_type *input)
{
    sx_dim x[SX_RANK_MAX];
    sx_dim w[SX_RANK_MAX];
    sx_access access[2] = {empty_access(), empty_access()};
    const sx_type *weight = &input[1];
    bool by_channel = sx_dim_equal(weight->dim[0], sx_dim_of(attr->groups));
    if (!is_zero(&attr->low) || !is_zero(&attr->high) || (attr->groups > 1 && !by_channel)) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED,
                       "convolution: with %s it is not one loop nest of this shape",
                       attr->groups > 1 && !by_channel ? "groups of several outputs" : "padding");
    }
    SX_TRY(strides_of(l->cx, &input[0], x));
    SX_TRY(strides_of(l->cx, weight, w));
    access[0].stride[0] = x[0];
    access[1].stride[1] = w[0];
    if (attr->groups > 1 && !sx_dim_multiply(x[1], weight->dim[1], &access[0].stride[1])) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "convolution: a stride has two symbols");
    }
    for (uint32_t d = 2; d < weight->rank; d++) {
        SX_TRY(set_stride(l, &access[0], d, x[d], attr->stride.v[d - 2]));
    }
    for (uint32_t d = 1; d < weight->rank; d++) {
        uint32_t at;
        SX_TRY(add_axis(l, weight->dim[d], &at));
        SX_TRY(set_stride(l, &access[0], at, x[d], d > 1 ? attr->dilation.v[d - 2] : 1));
        SX_TRY(set_stride(l, &access[1], at, w[d], 1));
    }
    if (l->body->axes == 0) {
        SX_TRY(add_unit_axis(l));
    }
    sx_instr dot = {.kind = SX_BODY_DOT, .dtype = l->space.dtype};
    uint32_t index;
    SX_TRY(put_arg(l, 0, &access[0], input[0].dtype, &dot.x));
    SX_TRY(put_arg(l, 1, &access[1], weight->dtype, &dot.y));
    return put(l, &dot, &index);
}

/* ---- online_dot ---- */
static sx_code lift_online(lift *l, const sx_attr *attr, const sx_type *input, uint32_t input_count)
{
    uint32_t left[SX_RANK_MAX] = {0};
    uint32_t right[SX_RANK_MAX] = {0};
    sx_dtype dtype = l->space.dtype;
    l->space.rank = 0;
    for (uint32_t k = 0; k < attr->lhs_batch.count; k++) {
        l->space.dim[l->space.rank++] = input[0].dim[attr->lhs_batch.v[k]];
    }
    SX_TRY(place_free(l, &input[0], &attr->lhs_batch, &attr->lhs_contract, left));
    if (input_count == 2) {
        SX_TRY(place_free(l, &input[1], &attr->rhs_batch, &attr->rhs_contract, right));
    }
    for (uint32_t k = 0; k < attr->lhs_contract.count; k++) {
        if (k > 0 && attr->lhs_contract.v[k] < attr->lhs_contract.v[k - 1]) {
            return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "online_dot: lhs_contract is not ascending");
        }
        if (l->space.rank == SX_RANK_MAX) {
            return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "online_dot: space of more than %d dimensions",
                           SX_RANK_MAX);
        }
        left[attr->lhs_contract.v[k]] = l->space.rank;
        right[attr->rhs_contract.v[k]] = l->space.rank;
        l->body->axes |= 1u << l->space.rank;
        l->space.dim[l->space.rank++] = input[0].dim[attr->lhs_contract.v[k]];
    }
    sx_access access;
    SX_TRY(access_at(l->cx, &input[0], left, &access));
    sx_instr weighted = {.kind = SX_BODY_ONLINE, .dtype = dtype};
    sx_instr one = {.kind = SX_BODY_IMM, .dtype = dtype, .imm = 1};
    SX_TRY(put_arg(l, 0, &access, input[0].dtype, &weighted.x));
    sx_instr max = {.kind = SX_BODY_REDUCE, .reducer = SX_MAX, .dtype = dtype, .x = weighted.x};
    sx_instr total = weighted;
    uint32_t result, sum = 0;
    if (input_count == 1 || attr->form == 1) {
        SX_TRY(put(l, &one, &total.y));
        SX_TRY(put(l, &total, &sum));
        result = sum;
    }
    if (input_count == 2) {
        SX_TRY(access_at(l->cx, &input[1], right, &access));
        SX_TRY(put_arg(l, 1, &access, input[1].dtype, &weighted.y));
        SX_TRY(put(l, &weighted, &result));
    }
    if (attr->form == 1) {
        sx_instr divide = {.kind = SX_BODY_APPLY, .op = SX_OP_DIVIDE, .dtype = dtype};
        divide.x = result;
        divide.y = sum;
        SX_TRY(put(l, &divide, &result));
    }
    if (attr->form == 2) {
        sx_instr log = {.kind = SX_BODY_APPLY, .op = SX_OP_LOG, .dtype = dtype, .x = sum};
        sx_instr add = {.kind = SX_BODY_APPLY, .op = SX_OP_ADD, .dtype = dtype};
        SX_TRY(put(l, &log, &add.x));
        SX_TRY(put(l, &max, &add.y));
        SX_TRY(put(l, &add, &result));
    }
    return SX_OK;
}

/* ---- composites: the emitter of instructions ---- */
static sx_code emit_constant(void *self, sx_dtype dtype, double value, uint32_t *handle)
{
    sx_instr instr = {.kind = SX_BODY_IMM, .dtype = dtype};
    instr.imm = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT ? sx_num_round(dtype, value) : value;
    return put(self, &instr, handle);
}

static sx_code emit_apply(void *self, sx_op op, sx_dtype dtype, const uint32_t *operand,
                          uint32_t count, uint32_t *handle)
{
    sx_instr instr = {.kind = SX_BODY_APPLY, .op = op, .dtype = dtype, .x = operand[0]};
    instr.y = count > 1 ? operand[1] : 0;
    instr.z = count > 2 ? operand[2] : 0;
    return put(self, &instr, handle);
}

static sx_code emit_reduce(void *self, sx_reducer reducer, sx_dtype dtype, uint32_t operand,
                           uint32_t *handle)
{
    sx_instr instr = {.kind = SX_BODY_REDUCE, .reducer = reducer, .dtype = dtype, .x = operand};
    return put(self, &instr, handle);
}

static sx_code lift_composite(lift *l, sx_op op, const sx_attr *attr, const sx_type *input,
                              uint32_t input_count)
{
    uint32_t handle[SX_COMPOSE_INPUTS_MAX] = {0};
    uint32_t result;
    SX_ASSERT(input_count <= SX_COMPOSE_INPUTS_MAX);
    for (uint32_t k = 0; k < input_count; k++) {
        if (op == SX_OP_BATCH_NORM && k > 0) {
            uint32_t at[SX_RANK_MAX] = {(uint32_t)attr->axis};
            sx_access access;
            SX_TRY(access_at(l->cx, &input[k], at, &access));
            SX_TRY(put_arg(l, k, &access, input[k].dtype, &handle[k]));
        } else {
            SX_TRY(put_operand(l, k, &input[k], &handle[k]));
        }
    }
    l->body->axes = sx_compose_axes(op, attr, input);
    sx_emitter emitter = {l, emit_constant, emit_apply, emit_reduce};
    SX_TRY(sx_compose(l->cx, op, attr, input, input_count, handle, &emitter, &result));
    sx_body_trim(l->body, result);
    return SX_OK;
}

/* Without v: e^(x - max), summed, as a row kernel. */
static sx_code lift_row_sum(lift *l, const sx_attr *attr, const sx_type *input)
{
    l->space = *input;
    uint32_t x;
    SX_TRY(put_operand(l, 0, input, &x));
    for (uint32_t k = 0; k < attr->lhs_contract.count; k++) {
        l->body->axes |= 1u << attr->lhs_contract.v[k];
    }
    uint32_t max, sum, result;
    SX_TRY(emit_reduce(l, SX_MAX, input->dtype, x, &max));
    SX_TRY(emit_apply(l, SX_OP_SUBTRACT, input->dtype, (uint32_t[2]){x, max}, 2, &result));
    SX_TRY(emit_apply(l, SX_OP_EXP, input->dtype, &result, 1, &result));
    SX_TRY(emit_reduce(l, SX_SUM, input->dtype, result, &sum));
    if (attr->form == 2) {
        SX_TRY(emit_apply(l, SX_OP_LOG, input->dtype, &sum, 1, &result));
        SX_TRY(emit_apply(l, SX_OP_ADD, input->dtype, (uint32_t[2]){result, max}, 2, &result));
    }
    return SX_OK;
}

static sx_code lift_op(lift *l, sx_op op, const sx_attr *attr, const sx_type *input,
                       uint32_t input_count)
{
    if (op == SX_OP_IOTA) {
        return lift_iota(l, attr);
    }
    if (op == SX_OP_CONSTANT) {
        return lift_constant(l, attr);
    }
    if (op == SX_OP_TRANSPOSE || op == SX_OP_BROADCAST || op == SX_OP_SLICE) {
        return lift_view(l, op, attr, input);
    }
    if (op == SX_OP_REDUCE) {
        return lift_reduce(l, attr, input);
    }
    if (op == SX_OP_DOT_GENERAL) {
        return lift_dot(l, attr, input);
    }
    if (op == SX_OP_REDUCE_WINDOW) {
        return lift_window(l, attr, input);
    }
    if (op == SX_OP_CONVOLUTION) {
        return lift_convolution(l, attr, input);
    }
    if (op == SX_OP_ONLINE_DOT) {
        return input_count == 1 ? lift_row_sum(l, attr, input)
                                : lift_online(l, attr, input, input_count);
    }
    if (sx_op_is_composite(op) && op != SX_OP_ATTENTION) {
        return lift_composite(l, op, attr, input, input_count);
    }
    if (sx_op_is_elementwise(op)) {
        return lift_elementwise(l, op, attr, input, input_count);
    }
    return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "%s: not one loop nest", sx_op_info_of(op)->name);
}

sx_code sx_fused_lift_online(sx_ctx *cx, const sx_attr *attr, const sx_type *input,
                             uint32_t input_count, const sx_type *result, sx_attr *fused)
{
    lift l = {.cx = cx, .space = *result, .body = sx_body_make(cx)};
    if (l.body == NULL) {
        return cx->error.code;
    }
    SX_TRY(lift_online(&l, attr, input, input_count));
    sx_body_wrap(&l.space, l.body, fused);
    return SX_OK;
}

sx_code sx_fused_lift(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *input,
                      uint32_t input_count, const sx_type *result, sx_attr *fused)
{
    SX_ASSERT(input_count <= SX_INPUTS_MAX && result->rank <= SX_RANK_MAX);
    if (op == SX_OP_FUSED) {
        *fused = *attr;
        return SX_OK;
    }
    lift l = {.cx = cx, .space = *result, .body = sx_body_make(cx)};
    if (l.body == NULL) {
        return cx->error.code;
    }
    SX_TRY(lift_op(&l, op, attr, input, input_count));
    sx_type shape;
    sx_body_shape(&l.space, l.body, &shape);
    if (!sx_type_equal(&shape, result)) { /* strides along extents of 0 are those of a repetition */
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "%s: no elements, so not one loop nest",
                       sx_op_info_of(op)->name);
    }
    sx_body_wrap(&l.space, l.body, fused);
    return SX_OK;
}
