/* instances_merge.h - random programs for the rules over several matches (multi.h): members that share an operand. */
#ifndef SX_TESTS_CORE_EGRAPH_INSTANCES_MERGE_H
#define SX_TESTS_CORE_EGRAPH_INSTANCES_MERGE_H
#include "tests/core/egraph/instances.h"

/* Contractions of one attribute that share an operand; the others differ in one free extent, now and then in two. */
static inline sx_code generate_shared_dots(generator *g, bool left_shared, sx_node_id *id)
{
    sx_type type = draw_type(g, 4);
    sx_attr attr = {0};
    sx_type input[2];
    sx_node_id child[2];
    if (type.dtype == SX_BOOL) {
        return GIVE_UP;
    }
    SX_TRY(before_dot(g, &type, &attr, input));
    uint32_t own = left_shared ? 1 : 0;
    const sx_ints *batch = left_shared ? &attr.rhs_batch : &attr.lhs_batch;
    const sx_ints *contract = left_shared ? &attr.rhs_contract : &attr.lhs_contract;
    SX_TRY(fresh_parameter(g, &input[1 - own], &child[1 - own]));
    uint32_t count = 2 + draw(g, 3);
    for (uint32_t i = 0; i < count; i++) {
        sx_type member = input[own];
        uint32_t changes = draw(g, 4) == 0 ? 2 : 1;
        for (uint32_t d = 0; d < member.rank; d++) {
            bool free = true;
            for (uint32_t k = 0; k < batch->count; k++) {
                free = free && batch->v[k] != d;
            }
            for (uint32_t k = 0; k < contract->count; k++) {
                free = free && contract->v[k] != d;
            }
            if (free && changes > 0 && draw(g, 2) == 0) {
                member.dim[d] = sx_dim_of(draw_extent(g));
                changes--;
            }
        }
        SX_TRY(fresh_parameter(g, &member, &child[own]));
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &attr, child, 2, id));
    }
    return SX_OK;
}

/* The second operand for a part: a known value, or a weight repeated along some dimensions. */
static inline sx_code generate_operand(generator *g, const sx_type *type, uint32_t added,
                                       double value, sx_node_id *id)
{
    if (added == 0) {
        return sx_build_scalar(g->cx, g->graph, type, value, id);
    }
    sx_attr attr = {.present = SX_A(dims) | SX_A(type), .type = *type};
    sx_type source = {.dtype = type->dtype};
    char name[16];
    sx_node_id weight;
    for (uint32_t d = 0; d < type->rank; d++) {
        if ((added >> d & 1) == 0) {
            attr.dims.v[attr.dims.count++] = d;
            source.dim[source.rank++] = type->dim[d];
        }
    }
    (void)snprintf(name, sizeof(name), "p%u", g->parameters++);
    SX_TRY(sx_build_parameter(g->cx, g->graph, name, true, &source, &weight));
    return sx_graph_add(g->cx, g->graph, SX_OP_BROADCAST, &attr, &weight, 1, id);
}

/* A value cut into runs along one axis, each under the same operation. */
static inline sx_code generate_parts(generator *g, bool binary, bool constants, sx_node_id *id)
{
    static const sx_op unary_ops[] = {SX_OP_NEGATE, SX_OP_ABS, SX_OP_RELU, SX_OP_SIGN};
    static const sx_op binary_ops[] = {SX_OP_ADD, SX_OP_SUBTRACT, SX_OP_MULTIPLY, SX_OP_MAXIMUM};
    sx_type type = draw_type(g, 3);
    uint32_t axis = type.rank > 0 ? draw(g, type.rank) : 0;
    if (type.rank == 0 || type.dtype == SX_BOOL || type.dim[axis].scale < 2) {
        return GIVE_UP;
    }
    sx_op op = binary ? binary_ops[draw(g, 4)] : unary_ops[draw(g, 4)];
    uint32_t added = constants ? 0 : draw(g, 1u << type.rank) & ~(1u << axis);
    double value = 2 * (double)draw(g, 4) - 3;
    if (binary && !constants && added == 0) {
        added = type.rank > 1 ? 1u << (axis == 0 ? 1 : 0) : 0;
    }
    sx_node_id whole;
    SX_TRY(fresh_parameter(g, &type, &whole));
    for (int64_t at = 0; at < type.dim[axis].scale;) {
        int64_t left = type.dim[axis].scale - at;
        int64_t extent = 1 + (int64_t)draw(g, (uint32_t)(left > 1 ? left - 1 : 1));
        sx_attr slice = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
        slice.start.count = slice.limit.count = slice.stride.count = type.rank;
        for (uint32_t d = 0; d < type.rank; d++) {
            slice.limit.v[d] = type.dim[d].scale;
            slice.stride.v[d] = 1;
        }
        slice.start.v[axis] = at;
        slice.limit.v[axis] = at + extent;
        sx_type part = type;
        part.dim[axis] = sx_dim_of(extent);
        sx_node_id child[2];
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_SLICE, &slice, &whole, 1, &child[0]));
        if (binary) {
            SX_TRY(generate_operand(g, &part, added, value, &child[1]));
        }
        SX_TRY(sx_graph_add(g->cx, g->graph, op, &(sx_attr){0}, child, binary ? 2 : 1, id));
        at += extent;
    }
    return SX_OK;
}

static inline sx_code make_dots_left(generator *g, sx_node_id *id)
{
    return generate_shared_dots(g, true, id);
}

static inline sx_code make_dots_right(generator *g, sx_node_id *id)
{
    return generate_shared_dots(g, false, id);
}

static inline sx_code make_parts_unary(generator *g, sx_node_id *id)
{
    return generate_parts(g, false, false, id);
}

static inline sx_code make_parts_value(generator *g, sx_node_id *id)
{
    return generate_parts(g, true, true, id);
}

static inline sx_code make_parts_repeated(generator *g, sx_node_id *id)
{
    return generate_parts(g, true, false, id);
}
#endif
