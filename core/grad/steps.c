#include "core/grad/sweep.h"

#include <string.h>

sx_type sx_step_type(const sx_sweep *s, sx_node_id a)
{
    return sx_graph_node(s->graph, a)->type;
}

sx_node_id sx_step(sx_sweep *s, sx_op op, const sx_attr *attr, const sx_node_id *input,
                   uint32_t input_count)
{
    sx_node_id made = {0};
    if (s->code == SX_OK) {
        s->code = sx_graph_add(s->cx, s->graph, op, attr, input, input_count, &made);
    }
    return made;
}

sx_node_id sx_step_unary(sx_sweep *s, sx_op op, sx_node_id a)
{
    return sx_step(s, op, &(sx_attr){0}, &a, 1);
}

sx_node_id sx_step_binary(sx_sweep *s, sx_op op, sx_node_id a, sx_node_id b)
{
    sx_node_id input[2] = {a, b};
    return sx_step(s, op, &(sx_attr){0}, input, 2);
}

sx_node_id sx_step_constant(sx_sweep *s, const sx_type *like, double value)
{
    SX_ASSERT(like->rank <= SX_RANK_MAX);
    sx_node_id made = {0};
    if (s->code == SX_OK) {
        s->code = sx_build_scalar(s->cx, s->graph, like, value, &made);
    }
    return made;
}

sx_node_id sx_step_times(sx_sweep *s, sx_node_id a, double factor)
{
    sx_type type = sx_step_type(s, a);
    sx_node_id constant = sx_step_constant(s, &type, factor);
    return sx_step_binary(s, SX_OP_MULTIPLY, a, constant);
}

sx_node_id sx_step_compare(sx_sweep *s, sx_direction direction, sx_node_id a, sx_node_id b)
{
    sx_attr attr = {.present = SX_A(direction), .direction = direction};
    sx_node_id input[2] = {a, b};
    return sx_step(s, SX_OP_COMPARE, &attr, input, 2);
}

sx_node_id sx_step_select(sx_sweep *s, sx_node_id p, sx_node_id a, sx_node_id b)
{
    sx_node_id input[3] = {p, a, b};
    return sx_step(s, SX_OP_SELECT, &(sx_attr){0}, input, 3);
}

sx_node_id sx_step_keep(sx_sweep *s, sx_node_id p, bool inside, sx_node_id a)
{
    sx_type type = sx_step_type(s, a);
    sx_node_id zero = sx_step_constant(s, &type, 0);
    return inside ? sx_step_select(s, p, a, zero) : sx_step_select(s, p, zero, a);
}

sx_node_id sx_step_convert(sx_sweep *s, sx_node_id a, sx_dtype dtype)
{
    sx_attr attr = {.present = SX_A(type), .type = sx_step_type(s, a)};
    if (attr.type.dtype == dtype) {
        return a;
    }
    attr.type.dtype = dtype;
    return sx_step(s, SX_OP_CONVERT, &attr, &a, 1);
}

/* ---- views ---- */

sx_node_id sx_step_reshape(sx_sweep *s, sx_node_id a, const sx_type *type)
{
    sx_attr attr = {.present = SX_A(type), .type = *type};
    attr.type.dtype = sx_step_type(s, a).dtype;
    sx_type from = sx_step_type(s, a);
    return sx_type_equal(&from, &attr.type) ? a : sx_step(s, SX_OP_RESHAPE, &attr, &a, 1);
}

sx_node_id sx_step_transpose(sx_sweep *s, sx_node_id a, const sx_ints *perm)
{
    bool same = true;
    for (uint32_t i = 0; i < perm->count; i++) {
        same = same && perm->v[i] == (int64_t)i;
    }
    sx_attr attr = {.present = SX_A(perm), .perm = *perm};
    return same ? a : sx_step(s, SX_OP_TRANSPOSE, &attr, &a, 1);
}

sx_node_id sx_step_repeat(sx_sweep *s, sx_node_id a, const sx_ints *dims, const sx_type *type)
{
    sx_type from = sx_step_type(s, a);
    sx_attr attr = {.present = SX_A(dims) | SX_A(type), .dims = *dims, .type = *type};
    attr.type.dtype = from.dtype;
    if (sx_type_equal(&from, &attr.type)) {
        return a;
    }
    const sx_node *node = sx_graph_node(s->graph, a);
    sx_attr filled = *sx_graph_attr(s->graph, node);
    if (node->op == SX_OP_CONSTANT && filled.data.len == sx_dtype_bytes(from.dtype)) {
        filled.type = attr.type;
        return sx_step(s, SX_OP_CONSTANT, &filled, NULL, 0);
    }
    return sx_step(s, SX_OP_BROADCAST, &attr, &a, 1);
}

sx_node_id sx_step_reduce(sx_sweep *s, sx_reducer reducer, sx_node_id a, const sx_ints *dims)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = *dims, .reducer = reducer};
    return dims->count == 0 ? a : sx_step(s, SX_OP_REDUCE, &attr, &a, 1);
}

sx_attr sx_whole_slice(const sx_type *type)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX);
    sx_attr slice = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    slice.start.count = slice.limit.count = slice.stride.count = type->rank;
    for (uint32_t d = 0; d < type->rank; d++) {
        slice.limit.v[d] = sx_dim_is_constant(type->dim[d]) ? type->dim[d].scale : -1;
        slice.stride.v[d] = 1;
    }
    return slice;
}

sx_node_id sx_step_slice(sx_sweep *s, sx_node_id a, const sx_attr *slice)
{
    sx_type type = sx_step_type(s, a);
    sx_attr whole = sx_whole_slice(&type);
    return sx_attr_equal(&whole, slice) ? a : sx_step(s, SX_OP_SLICE, slice, &a, 1);
}

sx_attr sx_no_padding(uint32_t rank)
{
    SX_ASSERT(rank <= SX_RANK_MAX);
    sx_attr pad = {.present = SX_A(low) | SX_A(high) | SX_A(interior)};
    pad.low.count = pad.high.count = pad.interior.count = rank;
    return pad;
}

sx_node_id sx_step_pad(sx_sweep *s, sx_node_id a, const sx_attr *pad, double value)
{
    sx_attr none = sx_no_padding(pad->low.count);
    if (sx_attr_equal(&none, pad)) {
        return a;
    }
    sx_type scalar = {.dtype = sx_step_type(s, a).dtype};
    sx_node_id input[2] = {a, sx_step_constant(s, &scalar, value)};
    return sx_step(s, SX_OP_PAD, pad, input, 2);
}

sx_ints sx_other_dims(uint32_t rank, const sx_ints *dims)
{
    SX_ASSERT(rank <= SX_RANK_MAX && dims->count <= rank);
    sx_ints others = {0};
    uint32_t next = 0;
    for (uint32_t d = 0; d < rank; d++) {
        if (next < dims->count && dims->v[next] == (int64_t)d) {
            next++;
        } else {
            others.v[others.count++] = d;
        }
    }
    return others;
}

sx_type sx_type_with(const sx_type *type, uint32_t d, sx_dim extent)
{
    SX_ASSERT(type->rank < SX_RANK_MAX && d <= type->rank);
    sx_type made = *type;
    memmove(&made.dim[d + 1], &made.dim[d], (type->rank - d) * sizeof(made.dim[0]));
    made.dim[d] = extent;
    made.rank++;
    return made;
}
