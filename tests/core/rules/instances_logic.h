/* instances_logic.h - random programs for the rules of logic.def: numbers that are not negative, unit
 * matrices, lookups. */
#ifndef SX_TESTS_CORE_RULES_INSTANCES_LOGIC_H
#define SX_TESTS_CORE_RULES_INSTANCES_LOGIC_H
#include "tests/core/rules/instances.h"

/* A whole number by a power of two: unsigned, an index, or of a narrower type without sign; now and then with
 * a sign. */
static inline sx_code make_remainder(generator *g, sx_node_id *id)
{
    static const sx_dtype from[] = {SX_U8, SX_BOOL, SX_I8};
    sx_type type = draw_type(g, 3);
    sx_node_id x;
    sx_node_id by;
    uint32_t kind = draw(g, 4);
    type.dtype = kind == 0 ? SX_U8 : draw(g, 2) == 0 ? SX_I32 : SX_I64;
    sx_attr view = {.present = SX_A(type), .type = type};
    if (kind == 1 && type.rank > 0) {
        view.present |= SX_A(axis);
        view.axis = draw(g, type.rank);
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_IOTA, &view, NULL, 0, &x));
    } else if (kind == 2) {
        sx_type narrow = type;
        narrow.dtype = from[draw(g, 3)];
        SX_TRY(fresh_parameter(g, &narrow, &x));
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_CONVERT, &view, &x, 1, &x));
    } else {
        SX_TRY(fresh_parameter(g, &type, &x));
    }
    SX_TRY(sx_build_scalar(g->cx, g->graph, &type, (double)(1u << draw(g, 7)), &by));
    return sx_build_binary(g->cx, g->graph, SX_OP_REMAINDER, x, by, id);
}

static inline sx_code repeated(generator *g, sx_node_id x, const sx_type *wide, int64_t but,
                               sx_node_id *id)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(type), .type = *wide};
    attr.type.dtype = sx_graph_node(g->graph, x)->type.dtype;
    for (uint32_t d = 0; d < wide->rank; d++) {
        if (d != but) {
            attr.dims.v[attr.dims.count++] = d;
        }
    }
    return sx_graph_add(g->cx, g->graph, SX_OP_BROADCAST, &attr, &x, 1, id);
}

/* Rows of a unit matrix, spelled by comparing indices with places, times a matrix. */
static inline sx_code make_one_hot(generator *g, sx_node_id *id)
{
    sx_type index = {.dtype = draw(g, 2) == 0 ? SX_I32 : SX_I64, .rank = draw(g, 3)};
    for (uint32_t d = 0; d < index.rank; d++) {
        index.dim[d] = sx_dim_of(draw_extent(g));
    }
    sx_type table = draw_type(g, 3);
    if (table.rank == 0 || table.dtype == SX_BOOL) {
        return GIVE_UP;
    }
    sx_type wide = index;
    uint32_t axis = draw(g, index.rank + 1);
    uint32_t row = draw(g, table.rank);
    memmove(&wide.dim[axis + 1], &wide.dim[axis], (wide.rank - axis) * sizeof(sx_dim));
    wide.dim[axis] = table.dim[row];
    wide.rank++;
    sx_node_id side[2];
    sx_node_id e;
    sx_attr count = {.present = SX_A(axis) | SX_A(type), .axis = axis, .type = wide};
    if (draw(g, 2) == 0) { /* the places for themselves, then repeated */
        sx_attr repeat = {.present = SX_A(dims) | SX_A(type), .type = wide, .dims = {1, {axis}}};
        count.axis = 0;
        count.type.rank = 1;
        count.type.dim[0] = wide.dim[axis];
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_IOTA, &count, NULL, 0, &side[0]));
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_BROADCAST, &repeat, side, 1, &side[0]));
    } else {
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_IOTA, &count, NULL, 0, &side[0]));
    }
    SX_TRY(fresh_parameter(g, &index, &side[1]));
    SX_TRY(repeated(g, side[1], &wide, axis, &side[1]));
    SX_TRY(fresh_parameter(g, &table, &e));
    sx_attr equal = {.present = SX_A(direction), .direction = SX_EQ};
    sx_attr type = {.present = SX_A(type), .type = wide};
    type.type.dtype = table.dtype;
    sx_node_id swapped[2] = {side[1], side[0]};
    sx_node_id hot[2] = {{0}, e};
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_COMPARE, &equal, draw(g, 2) == 0 ? side : swapped, 2,
                        &hot[0]));
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_CONVERT, &type, hot, 1, &hot[0]));
    sx_attr dot = {.present =
                       SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract),
                   .lhs_contract = {1, {axis}},
                   .rhs_contract = {1, {row}}};
    return sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &dot, hot, 2, id);
}

/* A lookup by a list, looked up again along the same axis. */
static inline sx_code make_lookup_twice(generator *g, sx_node_id *id)
{
    sx_type x = draw_type(g, 3);
    sx_type index[2] = {{.dtype = draw(g, 2) == 0 ? SX_I32 : SX_I64, .rank = 1},
                        {.dtype = SX_I32, .rank = draw(g, 3)}};
    sx_node_id input[2];
    if (x.rank == 0) {
        return GIVE_UP;
    }
    sx_attr attr = {.present = SX_A(axis), .axis = draw(g, x.rank)};
    SX_TRY(fresh_parameter(g, &x, &input[0]));
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t d = 0; d < index[k].rank; d++) {
            index[k].dim[d] = sx_dim_of(draw_extent(g));
        }
        SX_TRY(fresh_parameter(g, &index[k], &input[1]));
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_GATHER, &attr, input, 2, &input[0]));
    }
    *id = input[0];
    return SX_OK;
}

/* Two lookups in one table, side by side. */
static inline sx_code make_lookups_joined(generator *g, sx_node_id *id)
{
    sx_type x = draw_type(g, 3);
    sx_type index = {.dtype = SX_I32, .rank = 1 + draw(g, 2)};
    sx_node_id input[2];
    sx_node_id part[2];
    if (x.rank == 0) {
        return GIVE_UP;
    }
    sx_attr attr = {.present = SX_A(axis), .axis = draw(g, x.rank)};
    sx_attr join = {.present = SX_A(axis)};
    uint32_t along = draw(g, index.rank);
    join.axis = attr.axis + along;
    for (uint32_t d = 0; d < index.rank; d++) {
        index.dim[d] = sx_dim_of(draw_extent(g));
    }
    SX_TRY(fresh_parameter(g, &x, &input[0]));
    for (uint32_t k = 0; k < 2; k++) {
        index.dim[along] = sx_dim_of(draw_extent(g));
        SX_TRY(fresh_parameter(g, &index, &input[1]));
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_GATHER, &attr, input, 2, &part[k]));
    }
    return sx_graph_add(g->cx, g->graph, SX_OP_CONCATENATE, &join, part, 2, id);
}
#endif
