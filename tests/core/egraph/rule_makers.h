/* rule_makers.h - random programs for rules whose left side does not say enough of them (any arity, attributes that must agree). */
#ifndef SX_TESTS_CORE_EGRAPH_RULE_MAKERS_H
#define SX_TESTS_CORE_EGRAPH_RULE_MAKERS_H
#include "tests/core/egraph/instances.h"

static inline sx_code make_constants(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 3);
    type.dtype = draw(g, 2) == 0 ? SX_F32 : SX_F64;
    sx_node_id node[2];
    for (uint32_t k = 0; k < 2; k++) {
        SX_TRY(sx_build_scalar(g->cx, g->graph, &type, (double)draw(g, 9) - 2, &node[k]));
    }
    static const sx_op binary[] = {SX_OP_ADD, SX_OP_SUBTRACT, SX_OP_MULTIPLY, SX_OP_DIVIDE};
    if (draw(g, 2) == 0) {
        return sx_build_binary(g->cx, g->graph, binary[draw(g, 4)], node[0], node[1], id);
    }
    sx_attr attr = {0};
    sx_type input;
    SX_TRY(before_transpose(g, &type, &attr, &input));
    return sx_build_transpose(g->cx, g->graph, node[0], &attr.perm, id);
}

/* A convolution without padding. */
static inline sx_code make_bare(generator *g, uint32_t rank, bool grouped, sx_node_id *id)
{
    sx_type y = draw_type(g, 0);
    sx_type input[PARTS_MAX];
    sx_attr attr = {0};
    y.rank = rank;
    for (uint32_t d = 0; d < rank; d++) {
        y.dim[d] = sx_dim_of(1 + draw(g, d == 1 ? 6 : 3));
    }
    SX_TRY(before_convolution(g, &y, &attr, input));
    if (grouped && (attr.groups == 1 || attr.groups == y.dim[1].scale)) {
        return GIVE_UP;
    }
    for (uint32_t d = 2; d < rank; d++) {
        input[0].dim[d].scale += attr.low.v[d - 2] + attr.high.v[d - 2];
        attr.low.v[d - 2] = attr.high.v[d - 2] = 0;
    }
    sx_node_id operand[2];
    SX_TRY(fresh_parameter(g, &input[0], &operand[0]));
    SX_TRY(fresh_parameter(g, &input[1], &operand[1]));
    return sx_graph_add(g->cx, g->graph, SX_OP_CONVOLUTION, &attr, operand, 2, id);
}

static inline sx_code make_deep(generator *g, sx_node_id *id)
{
    return make_bare(g, 5, false, id);
}

static inline sx_code make_groups(generator *g, sx_node_id *id)
{
    return make_bare(g, 3 + draw(g, 2), true, id);
}

static inline sx_code make_attention(generator *g, sx_node_id *id)
{
    uint32_t batch = draw(g, 3);
    sx_dim extent[4]; /* s, t, d, e */
    for (uint32_t i = 0; i < 4; i++) {
        extent[i] = sx_dim_of(draw_extent(g));
    }
    static const uint32_t last[4][2] = {{0, 2}, {1, 2}, {1, 3}, {0, 1}}; /* q k v mask */
    sx_type type[4];
    sx_node_id input[4];
    uint32_t arity = 3 + draw(g, 2);
    for (uint32_t k = 0; k < arity; k++) {
        type[k] = (sx_type){.dtype = SX_F32, .rank = batch + 2};
        for (uint32_t d = 0; d < batch; d++) {
            type[k].dim[d] = k == 0 ? sx_dim_of(draw_extent(g)) : type[0].dim[d];
        }
        type[k].dim[batch] = extent[last[k][0]];
        type[k].dim[batch + 1] = extent[last[k][1]];
        SX_TRY(fresh_parameter(g, &type[k], &input[k]));
    }
    sx_attr attr = {.present = SX_A(scale), .scale = 0.5};
    return sx_graph_add(g->cx, g->graph, SX_OP_ATTENTION, &attr, input, arity, id);
}
#endif
