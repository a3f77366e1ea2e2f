#include "core/ir/ir.h"
#include "core/ir/num.h"

#include <math.h>

sx_code sx_build_parameter(sx_ctx *cx, sx_graph *g, const char *name, bool weight,
                           const sx_type *type, sx_node_id *id)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX);
    sx_attr attr = {.present = SX_A(name) | SX_A(weight) | SX_A(type),
                    .name = sx_span_of(name),
                    .weight = weight ? 1 : 0,
                    .type = *type};
    return sx_graph_add(cx, g, SX_OP_PARAMETER, &attr, NULL, 0, id);
}

sx_code sx_build_scalar(sx_ctx *cx, sx_graph *g, const sx_type *type, double value, sx_node_id *id)
{
    SX_ASSERT(type->dtype < SX_DTYPE_COUNT);
    uint64_t bits;
    if (sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT) {
        bits = sx_num_encode(type->dtype, value);
    } else {
        double low = (double)sx_num_int_min(type->dtype);
        double beyond = (double)sx_num_int_max(type->dtype) + 1.0;
        if (!(value >= low && value < beyond && value == floor(value))) {
            return SX_FAIL(cx, SX_INPUT, "constant: %.17g is no value of %s", value,
                           sx_dtype_name(type->dtype));
        }
        bits = sx_num_int_encode(type->dtype, (int64_t)value);
    }
    uint8_t bytes[8];
    sx_num_store(type->dtype, bytes, 0, bits);
    sx_attr attr = {.present = SX_A(data) | SX_A(type),
                    .data = {bytes, sx_dtype_bytes(type->dtype)},
                    .type = *type};
    return sx_graph_add(cx, g, SX_OP_CONSTANT, &attr, NULL, 0, id);
}

sx_code sx_build_unary(sx_ctx *cx, sx_graph *g, sx_op op, sx_node_id a, sx_node_id *id)
{
    SX_ASSERT(op < SX_OP_COUNT);
    return sx_graph_add(cx, g, op, &(sx_attr){0}, &a, 1, id);
}

sx_code sx_build_binary(sx_ctx *cx, sx_graph *g, sx_op op, sx_node_id a, sx_node_id b,
                        sx_node_id *id)
{
    SX_ASSERT(op < SX_OP_COUNT);
    sx_node_id input[2] = {a, b};
    return sx_graph_add(cx, g, op, &(sx_attr){0}, input, 2, id);
}

sx_code sx_build_transpose(sx_ctx *cx, sx_graph *g, sx_node_id a, const sx_ints *perm,
                           sx_node_id *id)
{
    SX_ASSERT(perm->count <= SX_RANK_MAX);
    sx_attr attr = {.present = SX_A(perm), .perm = *perm};
    return sx_graph_add(cx, g, SX_OP_TRANSPOSE, &attr, &a, 1, id);
}

sx_code sx_build_broadcast(sx_ctx *cx, sx_graph *g, sx_node_id a, const sx_ints *dims,
                           const sx_type *type, sx_node_id *id)
{
    SX_ASSERT(dims->count <= SX_RANK_MAX && type->rank <= SX_RANK_MAX);
    sx_attr attr = {.present = SX_A(dims) | SX_A(type), .dims = *dims, .type = *type};
    return sx_graph_add(cx, g, SX_OP_BROADCAST, &attr, &a, 1, id);
}

sx_code sx_build_reduce(sx_ctx *cx, sx_graph *g, sx_reducer reducer, sx_node_id a,
                        const sx_ints *dims, sx_node_id *id)
{
    SX_ASSERT(dims->count <= SX_RANK_MAX && reducer < SX_REDUCER_COUNT);
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = *dims, .reducer = reducer};
    return sx_graph_add(cx, g, SX_OP_REDUCE, &attr, &a, 1, id);
}
