/* instances_merge.h - random programs for the rules over several matches (multi.h): members that share an operand. */
#ifndef SX_TESTS_CORE_RULES_INSTANCES_MERGE_H
#define SX_TESTS_CORE_RULES_INSTANCES_MERGE_H
#include "tests/core/rules/instances.h"

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

/* Contractions of one attribute and of equal types that share nothing; now and then one of other extents, or
 * one that shares. */
static inline sx_code make_dots_apart(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 4);
    sx_attr attr = {0};
    sx_type input[2];
    sx_node_id child[2];
    if (type.dtype == SX_BOOL) {
        return GIVE_UP;
    }
    SX_TRY(before_dot(g, &type, &attr, input));
    for (uint32_t count = 2 + draw(g, 3); count > 0; count--) {
        for (uint32_t k = 0; k < 2; k++) {
            bool shares = count == 1 && draw(g, 8) == 0;
            if (!shares) {
                SX_TRY(fresh_parameter(g, &input[k], &child[k]));
            }
        }
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &attr, child, 2, id));
    }
    return SX_OK;
}

/* Equal strips of one value along one axis, seen with a dimension more or without the one that was cut, one
 * behind the other. */
static inline sx_code generate_strips(generator *g, bool stacked, sx_node_id *id)
{
    sx_type type = draw_type(g, 3);
    sx_node_id whole;
    sx_node_id part[6];
    uint32_t axis = type.rank > 0 ? draw(g, type.rank) : 0;
    uint32_t count = 2 + draw(g, 4);
    int64_t extent = stacked ? 1 + (int64_t)draw(g, 3) : 1;
    uint32_t rank = stacked ? type.rank + 1 : type.rank - 1;
    if (type.rank == 0 || (!stacked && type.rank < 2)) {
        return GIVE_UP;
    }
    uint32_t place = draw(g, rank);
    sx_attr join = {.present = SX_A(axis), .axis = place};
    type.dim[axis] = sx_dim_of(count * extent);
    SX_TRY(fresh_parameter(g, &type, &whole));
    for (uint32_t k = 0; k < count; k++) {
        sx_attr slice = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
        slice.start.count = slice.limit.count = slice.stride.count = type.rank;
        for (uint32_t d = 0; d < type.rank; d++) {
            slice.limit.v[d] = type.dim[d].scale;
            slice.stride.v[d] = 1;
        }
        slice.start.v[axis] = k * extent;
        slice.limit.v[axis] = (k + 1) * extent;
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_SLICE, &slice, &whole, 1, &part[k]));
        sx_attr view = {.present = SX_A(type), .type = sx_graph_node(g->graph, part[k])->type};
        uint32_t from = stacked ? place : axis;
        memmove(&view.type.dim[stacked ? from + 1 : from],
                &view.type.dim[stacked ? from : from + 1],
                (type.rank - from - (stacked ? 0 : 1)) * sizeof(sx_dim));
        view.type.dim[place] = stacked ? sx_dim_of(1) : view.type.dim[place];
        view.type.rank = rank;
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_RESHAPE, &view, &part[k], 1, &part[k]));
    }
    return sx_graph_add(g->cx, g->graph, SX_OP_CONCATENATE, &join, part, count, id);
}

/* A value cut along one axis, the rows of each part through `op`; strips: parts of one, without that axis. */
static inline sx_code generate_rows(generator *g, sx_op op, bool strips, sx_node_id *id)
{
    static const sx_dtype dtypes[] = {SX_F32, SX_F64, SX_BF16, SX_F16};
    sx_type type = draw_type(g, 3);
    sx_node_id whole;
    uint32_t axis = type.rank > 0 ? draw(g, type.rank) : 0;
    if (type.rank < 2) {
        return GIVE_UP;
    }
    type.dtype = dtypes[draw(g, 4)];
    type.dim[axis] = sx_dim_of(2 + (int64_t)draw(g, 4));
    sx_attr row = {.present = SX_A(axis), .axis = draw(g, strips ? type.rank - 1 : type.rank)};
    SX_TRY(fresh_parameter(g, &type, &whole));
    for (int64_t at = 0; at < type.dim[axis].scale;) {
        int64_t left = type.dim[axis].scale - at;
        int64_t extent = strips ? 1 : 1 + (int64_t)draw(g, (uint32_t)(left > 1 ? left - 1 : 1));
        sx_attr slice = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
        slice.start.count = slice.limit.count = slice.stride.count = type.rank;
        for (uint32_t d = 0; d < type.rank; d++) {
            slice.limit.v[d] = type.dim[d].scale;
            slice.stride.v[d] = 1;
        }
        slice.start.v[axis] = at;
        slice.limit.v[axis] = at + extent;
        at += extent;
        sx_node_id part;
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_SLICE, &slice, &whole, 1, &part));
        sx_attr view = {.present = SX_A(type), .type = type};
        memmove(&view.type.dim[axis], &view.type.dim[axis + 1],
                (type.rank - axis - 1) * sizeof(sx_dim));
        view.type.rank--;
        if (strips) {
            SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_RESHAPE, &view, &part, 1, &part));
        }
        SX_TRY(sx_graph_add(g->cx, g->graph, op, &row, &part, 1, id));
    }
    return SX_OK;
}

static inline sx_code make_parts_softmax(generator *g, sx_node_id *id)
{
    return generate_rows(g, SX_OP_SOFTMAX, false, id);
}

static inline sx_code make_parts_log_softmax(generator *g, sx_node_id *id)
{
    return generate_rows(g, SX_OP_LOG_SOFTMAX, false, id);
}

static inline sx_code make_strips_softmax(generator *g, sx_node_id *id)
{
    return generate_rows(g, SX_OP_SOFTMAX, true, id);
}

static inline sx_code make_strips_log_softmax(generator *g, sx_node_id *id)
{
    return generate_rows(g, SX_OP_LOG_SOFTMAX, true, id);
}

static inline sx_code make_stacked_strips(generator *g, sx_node_id *id)
{
    return generate_strips(g, true, id);
}

static inline sx_code make_strips_apart(generator *g, sx_node_id *id)
{
    return generate_strips(g, false, id);
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

/* Convolutions of one attribute: with the input shared and outputs of their own, or the kernels shared and
 * images of their own. */
static inline sx_code generate_shared_convolutions(generator *g, bool left_shared, sx_node_id *id)
{
    sx_type type = draw_type(g, 0);
    sx_attr attr = {0};
    sx_type input[2];
    sx_node_id child[2];
    type.rank = 3 + draw(g, 2);
    for (uint32_t d = 0; d < type.rank; d++) {
        type.dim[d] = draw_image(g);
    }
    SX_TRY(before_convolution(g, &type, &attr, input));
    uint32_t own = left_shared ? 1 : 0;
    if (left_shared && attr.groups != 1) {
        return GIVE_UP;
    }
    SX_TRY(fresh_parameter(g, &input[1 - own], &child[1 - own]));
    for (uint32_t count = 2 + draw(g, 2); count > 0; count--) {
        sx_type member = input[own];
        member.dim[0] = sx_dim_of(draw_extent(g));
        SX_TRY(fresh_parameter(g, &member, &child[own]));
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_CONVOLUTION, &attr, child, 2, id));
    }
    return SX_OK;
}

/* Convolutions of one attribute and of equal types that share nothing. */
static inline sx_code make_convolutions_apart(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 0);
    sx_attr attr = {0};
    sx_type input[2];
    sx_node_id child[2];
    type.rank = 3 + draw(g, 2);
    for (uint32_t d = 0; d < type.rank; d++) {
        type.dim[d] = draw_image(g);
    }
    SX_TRY(before_convolution(g, &type, &attr, input));
    for (uint32_t count = 2 + draw(g, 2); count > 0; count--) {
        SX_TRY(fresh_parameter(g, &input[0], &child[0]));
        SX_TRY(fresh_parameter(g, &input[1], &child[1]));
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_CONVOLUTION, &attr, child, 2, id));
    }
    return SX_OK;
}

static inline sx_code make_convolutions_left(generator *g, sx_node_id *id)
{
    return generate_shared_convolutions(g, true, id);
}

static inline sx_code make_convolutions_right(generator *g, sx_node_id *id)
{
    return generate_shared_convolutions(g, false, id);
}

/* Parameters one behind the other along dimension `axis`, together of this type. */
static inline sx_code generate_joined(generator *g, const sx_type *type, int64_t axis,
                                      sx_node_id *id)
{
    sx_node_id part[8];
    uint32_t count = 0;
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    for (int64_t at = 0; at < type->dim[axis].scale;) {
        int64_t left = type->dim[axis].scale - at;
        sx_type piece = *type;
        piece.dim[axis] = sx_dim_of(1 + (int64_t)draw(g, (uint32_t)(left > 1 ? left - 1 : 1)));
        SX_TRY(fresh_parameter(g, &piece, &part[count++]));
        at += piece.dim[axis].scale;
    }
    return sx_graph_add(g->cx, g->graph, SX_OP_CONCATENATE, &attr, part, count, id);
}

/* A contraction whose operand `k` is a concatenation, along a summed dimension or a free one. */
static inline sx_code generate_joined_dot(generator *g, uint32_t k, bool summed, sx_node_id *id)
{
    sx_type type = draw_type(g, 4);
    sx_attr attr = {0};
    sx_type input[2];
    sx_node_id child[2];
    if (type.dtype == SX_BOOL) {
        return GIVE_UP;
    }
    SX_TRY(before_dot(g, &type, &attr, input));
    const sx_ints *contract = k == 0 ? &attr.lhs_contract : &attr.rhs_contract;
    const sx_ints *batch = k == 0 ? &attr.lhs_batch : &attr.rhs_batch;
    int64_t axis = draw(g, input[k].rank);
    bool is_summed = false;
    for (uint32_t i = 0; i < contract->count; i++) {
        is_summed = is_summed || contract->v[i] == axis;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->v[i] == axis) {
            return GIVE_UP;
        }
    }
    if (is_summed != summed) {
        return GIVE_UP;
    }
    SX_TRY(generate_joined(g, &input[k], axis, &child[k]));
    SX_TRY(fresh_parameter(g, &input[1 - k], &child[1 - k]));
    return sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &attr, child, 2, id);
}

/* A convolution of an image whose channels are a concatenation. */
static inline sx_code make_joined_channels(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 0);
    sx_attr attr = {0};
    sx_type input[2];
    sx_node_id child[2];
    type.rank = 3 + draw(g, 2);
    for (uint32_t d = 0; d < type.rank; d++) {
        type.dim[d] = draw_image(g);
    }
    SX_TRY(before_convolution(g, &type, &attr, input));
    if (attr.groups != 1) {
        return GIVE_UP;
    }
    input[0].dim[1] = input[1].dim[1] = sx_dim_of(2 + draw(g, 3));
    SX_TRY(generate_joined(g, &input[0], 1, &child[0]));
    SX_TRY(fresh_parameter(g, &input[1], &child[1]));
    return sx_graph_add(g->cx, g->graph, SX_OP_CONVOLUTION, &attr, child, 2, id);
}

static inline sx_code make_dot_joined_right(generator *g, sx_node_id *id)
{
    return generate_joined_dot(g, 1, false, id);
}

static inline sx_code make_dot_joined_left(generator *g, sx_node_id *id)
{
    return generate_joined_dot(g, 0, false, id);
}

static inline sx_code make_dot_summed_right(generator *g, sx_node_id *id)
{
    return generate_joined_dot(g, 1, true, id);
}

static inline sx_code make_dot_summed_left(generator *g, sx_node_id *id)
{
    return generate_joined_dot(g, 0, true, id);
}

/* Contractions one behind the other: along a batch dimension, or along a free one with the other operand shared. */
static inline sx_code make_joined_dots(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 4);
    sx_attr attr = {0};
    sx_attr join = {.present = SX_A(axis)};
    sx_type input[2];
    sx_node_id child[2];
    sx_node_id part[3];
    if (type.dtype == SX_BOOL || type.rank == 0) {
        return GIVE_UP;
    }
    SX_TRY(before_dot(g, &type, &attr, input));
    uint32_t own = draw(g, 3); /* 2: both */
    uint32_t left_free = input[0].rank - attr.lhs_batch.count - attr.lhs_contract.count;
    uint32_t first[4] = {0, attr.lhs_batch.count, attr.lhs_batch.count + left_free, type.rank};
    uint32_t range = own == 2 ? 0 : own + 1;
    if (first[range + 1] == first[range]) {
        return GIVE_UP;
    }
    join.axis = first[range] + draw(g, first[range + 1] - first[range]);
    SX_TRY(fresh_parameter(g, &input[0], &child[0]));
    SX_TRY(fresh_parameter(g, &input[1], &child[1]));
    uint32_t count = 1 + draw(g, 3);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            if (own == k || own == 2) {
                SX_TRY(fresh_parameter(g, &input[k], &child[k]));
            }
        }
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &attr, child, 2, &part[i]));
    }
    return sx_graph_add(g->cx, g->graph, SX_OP_CONCATENATE, &join, part, count, id);
}

/* The sum of two operations `op` whose operands differ in one summed extent: parts of one value, times weights. */
static inline sx_code generate_sum(generator *g, sx_op op, const sx_attr *attr, sx_type input[2],
                                   const int64_t axis[2], sx_node_id *id)
{
    sx_node_id result[2];
    sx_node_id whole;
    int64_t extents[2] = {draw_extent(g), draw_extent(g)};
    int64_t start = draw(g, 2);
    input[0].dim[axis[0]] = sx_dim_of(start + extents[0] + extents[1]);
    SX_TRY(fresh_parameter(g, &input[0], &whole));
    for (uint32_t i = 0; i < 2; i++) {
        sx_node_id child[2];
        char name[16];
        int64_t extent = extents[i];
        sx_attr slice = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
        slice.start.count = slice.limit.count = slice.stride.count = input[0].rank;
        for (uint32_t d = 0; d < input[0].rank; d++) {
            slice.limit.v[d] = input[0].dim[d].scale;
            slice.stride.v[d] = 1;
        }
        slice.start.v[axis[0]] = start;
        slice.limit.v[axis[0]] = start += extent;
        input[1].dim[axis[1]] = sx_dim_of(extent);
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_SLICE, &slice, &whole, 1, &child[0]));
        (void)snprintf(name, sizeof(name), "p%u", g->parameters++);
        SX_TRY(sx_build_parameter(g->cx, g->graph, name, true, &input[1], &child[1]));
        SX_TRY(sx_graph_add(g->cx, g->graph, op, attr, child, 2, &result[i]));
    }
    return sx_build_binary(g->cx, g->graph, SX_OP_ADD, result[0], result[1], id);
}

static inline sx_code make_dot_sum(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 4);
    sx_attr attr = {0};
    sx_type input[2];
    if (type.dtype == SX_BOOL) {
        return GIVE_UP;
    }
    SX_TRY(before_dot(g, &type, &attr, input));
    uint32_t i = draw(g, attr.lhs_contract.count);
    int64_t axis[2] = {attr.lhs_contract.v[i], attr.rhs_contract.v[i]};
    return generate_sum(g, SX_OP_DOT_GENERAL, &attr, input, axis, id);
}

static inline sx_code make_convolution_sum(generator *g, sx_node_id *id)
{
    static const int64_t axis[2] = {1, 1};
    sx_type type = draw_type(g, 0);
    sx_attr attr = {0};
    sx_type input[2];
    type.rank = 3 + draw(g, 2);
    for (uint32_t d = 0; d < type.rank; d++) {
        type.dim[d] = draw_image(g);
    }
    SX_TRY(before_convolution(g, &type, &attr, input));
    return attr.groups == 1 ? generate_sum(g, SX_OP_CONVOLUTION, &attr, input, axis, id) : GIVE_UP;
}
#endif
