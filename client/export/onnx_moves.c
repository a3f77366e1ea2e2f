/* onnx_moves.c - leaves and views: elements that are known, repeated, moved or left out. */
#include "client/export/onnx_writer.h"

#include <stdlib.h>

#define IOTA_KNOWN_MAX 65536 /* elements written out; more are made by Range */

/* The result broadcast from its thin form: extents that are there already stay. */
static sx_code expand(sx_ow *w, const sx_dim *thin, uint32_t thin_rank)
{
    const sx_type *type = &sx_ow_node(w)->type;
    sx_dim shape[SX_RANK_MAX];
    bool same = thin_rank == type->rank;
    if ((w->needs[w->at] & SX_OW_FULL) == 0) {
        return SX_OK;
    }
    for (uint32_t d = 0; d < type->rank; d++) {
        uint32_t lead = type->rank - thin_rank;
        bool there = d >= lead && sx_dim_equal(thin[d - lead], type->dim[d]);
        shape[d] = there ? sx_dim_of(1) : type->dim[d];
        same = same && sx_dim_equal(shape[d], sx_dim_of(1));
    }
    w->name[w->at] = w->thin[w->at];
    if (!same) {
        sx_span to;
        SX_TRY(sx_ow_shape(w, shape, type->rank, &to));
        w->name[w->at] = sx_ow_result(w);
        sx_ow_begin(w);
        sx_ow_input(w, w->thin[w->at]);
        sx_ow_input(w, to);
        sx_ow_end(w, "Expand", w->name[w->at]);
    }
    return SX_OK;
}

sx_code sx_ow_constant(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_CONSTANT);
    const sx_type *type = &sx_ow_node(w)->type;
    sx_span data = sx_ow_attr(w)->data;
    if (!sx_ow_has_thin(w->graph, w->at)) {
        w->name[w->at] = sx_ow_tensor(w, type, data);
        return SX_OK;
    }
    if (sx_dtype_bytes(type->dtype) == 1 && sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT) {
        return SX_OW_FAIL(w, "no operator of opset %d repeats %s", SX_ONNX_WRITE_OPSET,
                          sx_dtype_name(type->dtype));
    }
    sx_type scalar = {.dtype = type->dtype};
    w->thin[w->at] = sx_ow_tensor(w, &scalar, data);
    return expand(w, NULL, 0);
}

/* 0, 1, .. as i64[count]. */
static sx_code count_up(sx_ow *w, sx_dim count, sx_span *name)
{
    static const uint8_t zero[8] = {0};
    static const uint8_t one[8] = {1};
    sx_type type = {.dtype = SX_I64, .rank = 1, .dim = {count}};
    if (sx_dim_is_constant(count) && count.scale <= IOTA_KNOWN_MAX) {
        uint8_t *bytes = SX_NEW_ARRAY(w->cx, uint8_t, (size_t)count.scale * 8);
        if (bytes == NULL) {
            return w->cx->error.code;
        }
        for (int64_t i = 0; i < count.scale * 8; i++) {
            bytes[i] = (uint8_t)(i / 8 >> i % 8 * 8);
        }
        *name = sx_ow_tensor(w, &type, (sx_span){bytes, (size_t)count.scale * 8});
        return SX_OK;
    }
    sx_span limit;
    SX_TRY(sx_ow_shape(w, &count, 1, &limit));
    limit = sx_ow_apply(w, "Squeeze", limit, (sx_span){0});
    type.rank = 0;
    sx_span from = sx_ow_tensor(w, &type, (sx_span){zero, 8});
    sx_span step = sx_ow_tensor(w, &type, (sx_span){one, 8});
    *name = sx_ow_fresh(w);
    sx_ow_begin(w);
    sx_ow_input(w, from);
    sx_ow_input(w, limit);
    sx_ow_input(w, step);
    sx_ow_end(w, "Range", *name);
    return SX_OK;
}

sx_code sx_ow_iota(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_IOTA);
    const sx_type *type = &sx_ow_node(w)->type;
    uint32_t axis = (uint32_t)sx_ow_attr(w)->axis;
    int64_t to[SX_RANK_MAX];
    sx_dim thin[SX_RANK_MAX];
    sx_span value;
    uint32_t rank = type->rank - axis;
    SX_TRY(count_up(w, type->dim[axis], &value));
    if (type->dtype != SX_I64) {
        sx_span cast = sx_ow_fresh(w);
        sx_ow_begin(w);
        sx_ow_input(w, value);
        sx_pb_attr_int(&w->part, "to", sx_pb_dtype(type->dtype));
        sx_ow_end(w, "Cast", cast);
        value = cast;
    }
    for (uint32_t d = 0; d < rank; d++) {
        thin[d] = d == 0 ? type->dim[axis] : sx_dim_of(1);
        to[d] = d == 0 ? -1 : 1;
    }
    w->thin[w->at] = rank > 1 ? sx_ow_apply(w, "Reshape", value, sx_ow_ints(w, to, rank)) : value;
    return expand(w, thin, rank);
}

sx_code sx_ow_broadcast(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_BROADCAST);
    const sx_type *type = &sx_ow_node(w)->type;
    const sx_type *from = sx_ow_type(w, 0);
    const sx_ints *dims = &sx_ow_attr(w)->dims;
    uint32_t lead = dims->count > 0 ? (uint32_t)dims->v[0] : type->rank;
    int64_t axes[SX_RANK_MAX];
    uint32_t axis_count = 0;
    sx_dim thin[SX_RANK_MAX];
    uint32_t at = 0;
    for (uint32_t d = lead; d < type->rank; d++) {
        bool there = at < dims->count && dims->v[at] == d;
        if (!there) {
            axes[axis_count++] = d - lead;
        }
        thin[d - lead] = there ? from->dim[at] : sx_dim_of(1);
        at += there ? 1 : 0;
    }
    w->thin[w->at] = sx_ow_value(w, 0);
    if (axis_count > 0) {
        w->thin[w->at] =
            sx_ow_apply(w, "Unsqueeze", sx_ow_value(w, 0), sx_ow_ints(w, axes, axis_count));
    }
    return expand(w, thin, type->rank - lead);
}

sx_code sx_ow_reshape(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_RESHAPE);
    const sx_type *type = &sx_ow_node(w)->type;
    int64_t to[SX_RANK_MAX];
    uint32_t symbolic = 0;
    sx_span shape;
    for (uint32_t d = 0; d < type->rank; d++) {
        bool constant = sx_dim_is_constant(type->dim[d]);
        to[d] = constant ? type->dim[d].scale : -1;
        symbolic += constant ? 0 : 1;
    }
    if (type->rank > 0 && symbolic > 1) {
        SX_TRY(sx_ow_shape(w, type->dim, type->rank, &shape));
    } else if (type->rank > 0) {
        shape = sx_ow_ints(w, to, type->rank);
    }
    w->name[w->at] = sx_ow_result(w);
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    if (type->rank > 0) {
        sx_ow_input(w, shape);
    }
    sx_ow_end(w, type->rank > 0 ? "Reshape" : "Squeeze", w->name[w->at]);
    return SX_OK;
}

sx_code sx_ow_transpose(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_TRANSPOSE);
    const sx_ints *perm = &sx_ow_attr(w)->perm;
    if (perm->count == 0) {
        w->name[w->at] = sx_ow_value(w, 0);
        return SX_OK;
    }
    w->name[w->at] = sx_ow_result(w);
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    sx_pb_attr_ints(&w->part, "perm", perm->v, perm->count);
    sx_ow_end(w, "Transpose", w->name[w->at]);
    return SX_OK;
}

/* Slice along `count` axes. */
static void put_slice(sx_ow *w, const int64_t *start, const int64_t *end, const int64_t *axis,
                      const int64_t *step, uint32_t count)
{
    sx_span starts = sx_ow_ints(w, start, count);
    sx_span ends = sx_ow_ints(w, end, count);
    sx_span axes = sx_ow_ints(w, axis, count);
    sx_span steps = sx_ow_ints(w, step, count);
    w->name[w->at] = sx_ow_result(w);
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    sx_ow_input(w, starts);
    sx_ow_input(w, ends);
    sx_ow_input(w, axes);
    sx_ow_input(w, steps);
    sx_ow_end(w, "Slice", w->name[w->at]);
}

sx_code sx_ow_slice(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_SLICE);
    const sx_attr *attr = sx_ow_attr(w);
    const sx_type *from = sx_ow_type(w, 0);
    int64_t start[SX_RANK_MAX], end[SX_RANK_MAX], axis[SX_RANK_MAX], step[SX_RANK_MAX];
    uint32_t count = 0;
    for (uint32_t d = 0; d < from->rank; d++) {
        bool to_end = attr->limit.v[d] == -1 ||
                      (sx_dim_is_constant(from->dim[d]) && attr->limit.v[d] == from->dim[d].scale);
        if (attr->start.v[d] == 0 && to_end && attr->stride.v[d] == 1) {
            continue;
        }
        start[count] = attr->start.v[d];
        end[count] = attr->limit.v[d] == -1 ? INT64_MAX : attr->limit.v[d];
        step[count] = attr->stride.v[d];
        axis[count++] = d;
    }
    if (count == 0) {
        w->name[w->at] = sx_ow_value(w, 0);
        return SX_OK;
    }
    put_slice(w, start, end, axis, step, count);
    return SX_OK;
}

sx_code sx_ow_reverse(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_REVERSE);
    const sx_ints *dims = &sx_ow_attr(w)->dims;
    int64_t start[SX_RANK_MAX], end[SX_RANK_MAX], step[SX_RANK_MAX];
    if (dims->count == 0) {
        w->name[w->at] = sx_ow_value(w, 0);
        return SX_OK;
    }
    for (uint32_t i = 0; i < dims->count; i++) {
        start[i] = step[i] = -1;
        end[i] = INT64_MIN;
    }
    put_slice(w, start, end, dims->v, step, dims->count);
    return SX_OK;
}

sx_code sx_ow_pad(sx_ow *w)
{
    SX_ASSERT(sx_ow_node(w)->op == SX_OP_PAD);
    const sx_attr *attr = sx_ow_attr(w);
    uint32_t rank = sx_ow_node(w)->type.rank;
    int64_t pads[2 * SX_RANK_MAX];
    for (uint32_t d = 0; d < rank; d++) {
        if (attr->interior.v[d] != 0) {
            return SX_OW_FAIL(w, "axis %u has %lld elements between neighbours", d,
                              (long long)attr->interior.v[d]);
        }
        pads[d] = attr->low.v[d];
        pads[rank + d] = attr->high.v[d];
    }
    if (rank == 0) {
        w->name[w->at] = sx_ow_value(w, 0);
        return SX_OK;
    }
    sx_span list = sx_ow_ints(w, pads, 2 * rank);
    w->name[w->at] = sx_ow_result(w);
    sx_ow_begin(w);
    sx_ow_input(w, sx_ow_value(w, 0));
    sx_ow_input(w, list);
    sx_ow_input(w, sx_ow_value(w, 1));
    sx_ow_end(w, "Pad", w->name[w->at]);
    return SX_OK;
}
