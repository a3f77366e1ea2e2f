/* rule_makers.h - random programs for rules whose left side does not say enough of them (any arity, attributes
 * that must agree). */
#ifndef SX_TESTS_CORE_RULES_RULE_MAKERS_H
#define SX_TESTS_CORE_RULES_RULE_MAKERS_H
#include "tests/core/rules/instances.h"
#include "tests/core/rules/makers_conv.h"

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

/* f (a + b) with a number for f and a contraction for a, or with parameters. */
static inline sx_code make_distributed(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 4);
    sx_type input[PARTS_MAX];
    sx_attr attr = {0};
    sx_node_id node[4];
    if (draw(g, 2) == 0) {
        return generate(g, g->pattern->root, &type, id);
    }
    type.dtype = draw(g, 3) == 0 ? SX_F64 : SX_F32;
    SX_TRY(before_dot(g, &type, &attr, input));
    SX_TRY(fresh_parameter(g, &input[0], &node[0]));
    SX_TRY(fresh_parameter(g, &input[1], &node[1]));
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &attr, node, 2, &node[2]));
    SX_TRY(fresh_parameter(g, &type, &node[3]));
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_ADD, node[2], node[3], id));
    SX_TRY(sx_build_scalar(g->cx, g->graph, &type, (double)draw(g, 9) / 2 - 2, &node[0]));
    return sx_build_binary(g->cx, g->graph, SX_OP_MULTIPLY, node[0], *id, id);
}

/* a + a b with a number for b, or with parameters. */
static inline sx_code make_factored(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 4);
    sx_node_id node[2];
    if (draw(g, 2) == 0) {
        return generate(g, g->pattern->root, &type, id);
    }
    type.dtype = draw(g, 3) == 0 ? SX_F64 : SX_F32;
    SX_TRY(fresh_parameter(g, &type, &node[0]));
    SX_TRY(scaled_by(g, SX_OP_MULTIPLY, node[0], (double)draw(g, 9) / 2 - 2, &node[1]));
    return sx_build_binary(g->cx, g->graph, SX_OP_ADD, node[0], node[1], id);
}

/* `scaled`: the operand that is multiplied by a number, or 4. */
static inline sx_code make_attention_of(generator *g, uint32_t scaled, sx_node_id *id)
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
        if (k == scaled) {
            double near = (double)draw(g, 9) / 4 + 0.25;
            SX_TRY(scaled_by(g, SX_OP_MULTIPLY, input[k], g->far ? draw_far(g, SX_F32) : near,
                             &input[k]));
        }
    }
    sx_attr attr = {.present = SX_A(scale), .scale = 0.5};
    return sx_graph_add(g->cx, g->graph, SX_OP_ATTENTION, &attr, input, arity, id);
}

static inline sx_code make_attention(generator *g, sx_node_id *id)
{
    return make_attention_of(g, 4, id);
}

static inline sx_code make_scaled_query(generator *g, sx_node_id *id)
{
    return make_attention_of(g, 0, id);
}

static inline sx_code make_scaled_key(generator *g, sx_node_id *id)
{
    return make_attention_of(g, 1, id);
}

/* The larger or smaller of two by a choice, the first of them a number where NaN would be another matter. */
static inline sx_code make_choice(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 3);
    bool real = sx_dtype_class_of(type.dtype) == SX_CLASS_FLOAT;
    sx_attr attr = {.present = SX_A(direction)};
    sx_node_id x[3], test;
    attr.direction = (sx_direction)draw(g, SX_DIRECTION_COUNT);
    SX_TRY(real ? sx_build_scalar(g->cx, g->graph, &type, draw_known(g, type.dtype), &x[0])
                : fresh_parameter(g, &type, &x[0]));
    SX_TRY(fresh_parameter(g, &type, &x[1]));
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_COMPARE, &attr, x, 2, &test));
    x[2] = x[1];
    x[1] = x[0];
    x[0] = test;
    attr = (sx_attr){0};
    return sx_graph_add(g->cx, g->graph, SX_OP_SELECT, &attr, x, 3, id);
}

/* op(op(a, b), d), or op(a, op(b, d)), one of the three a number near 1, or two of them numbers far from it
 * whose product is not. */
static inline sx_code make_three(generator *g, sx_op op, bool left, sx_node_id *id)
{
    sx_type type = draw_type(g, 3);
    sx_node_id x[3], inner;
    type.dtype = draw(g, 2) == 0 ? SX_F32 : SX_F64;
    uint32_t known = draw(g, 4);
    double far = draw_far(g, type.dtype);
    for (uint32_t k = 0; k < 3; k++) {
        double near = ldexp(1 + draw(g, 4) / 4.0, (int)draw(g, 7) - 4);
        bool pair = known == 3 && (k == 1 || k == (left ? 2 : 0));
        if (pair) { /* the factors of the product made anew */
            near = k == 1 ? far : 1 / far;
        }
        SX_TRY(k == known || pair ? sx_build_scalar(g->cx, g->graph, &type, near, &x[k])
                                  : fresh_parameter(g, &type, &x[k]));
    }
    SX_TRY(sx_build_binary(g->cx, g->graph, op, x[left ? 0 : 1], x[left ? 1 : 2], &inner));
    return sx_build_binary(g->cx, g->graph, op, left ? inner : x[0], left ? x[2] : inner, id);
}

static inline sx_code make_product_first(generator *g, sx_node_id *id)
{
    return make_three(g, SX_OP_MULTIPLY, true, id);
}

static inline sx_code make_product_last(generator *g, sx_node_id *id)
{
    return make_three(g, SX_OP_MULTIPLY, false, id);
}

static inline sx_code make_quotients(generator *g, sx_node_id *id)
{
    return make_three(g, SX_OP_DIVIDE, true, id);
}

/* The dividends and divisors of a softmax along `axis`, in steps. */
static inline sx_code make_weights(generator *g, const sx_type *type, int64_t axis, sx_node_id *e,
                                   sx_node_id *sum)
{
    sx_ints along = {1, {axis}};
    sx_ints rest = {0};
    for (uint32_t d = 0; d < type->rank; d++) {
        if (d != axis) {
            rest.v[rest.count++] = d;
        }
    }
    SX_TRY(fresh_parameter(g, type, e));
    SX_TRY(sx_build_reduce(g->cx, g->graph, SX_MAX, *e, &along, sum));
    SX_TRY(sx_build_broadcast(g->cx, g->graph, *sum, &rest, type, sum));
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_SUBTRACT, *e, *sum, e));
    SX_TRY(sx_build_unary(g->cx, g->graph, SX_OP_EXP, *e, e));
    SX_TRY(sx_build_reduce(g->cx, g->graph, SX_SUM, *e, &along, sum));
    return sx_build_broadcast(g->cx, g->graph, *sum, &rest, type, sum);
}

/* What the gradient of a softmax has of g / s, with the sum s of its dividends e: sum(g / s e / s) along the axis of
 * the softmax, or along another one; g / s e */
static inline sx_code make_softmax_gradient(generator *g, bool sum, sx_node_id *id)
{
    sx_type type = draw_type(g, 3);
    while (type.rank == 0) {
        type = draw_type(g, 3);
    }
    sx_node_id e, s, y;
    int64_t axis = draw(g, type.rank);
    SX_TRY(make_weights(g, &type, axis, &e, &s));
    SX_TRY(fresh_parameter(g, &type, id));
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_DIVIDE, *id, s, id));
    if (!sum) {
        return sx_build_binary(g->cx, g->graph, SX_OP_MULTIPLY, *id, e, id);
    }
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_DIVIDE, e, s, &y));
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_MULTIPLY, *id, y, id));
    sx_ints along = {1, {draw(g, 4) == 0 ? draw(g, type.rank) : axis}};
    return sx_build_reduce(g->cx, g->graph, SX_SUM, *id, &along, id);
}

/* Attention and its gradients: p, the weights of a softmax in steps, contracted along its rows; or the sum over keys of
 * p and the gradient of it, beside the sums of the output over its columns, which has the same shape. */
static inline sx_code make_attention_gradient(generator *g, bool sum, sx_node_id *id)
{
    uint32_t batch = draw(g, 3);
    sx_type type[3] = {{.rank = batch + 2}}; /* of the scores, of the values, of the output */
    type[0].dtype = draw(g, 2) == 0 ? SX_F64 : SX_F32;
    for (uint32_t d = 0; d < batch + 2; d++) {
        type[0].dim[d] = sx_dim_of(draw_extent(g));
    }
    type[1] = type[2] = type[0];
    type[1].dim[batch] = type[0].dim[batch + 1];
    type[1].dim[batch + 1] = type[2].dim[batch + 1] = sx_dim_of(draw_extent(g));
    sx_node_id e, s, p, v, o, dp[2];
    SX_TRY(make_weights(g, &type[0], batch + 1, &e, &s));
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_DIVIDE, e, s, &p));
    SX_TRY(fresh_parameter(g, &type[1], &v));
    SX_TRY(fresh_parameter(g, &type[2], &o));
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    dot.lhs_batch = dot.rhs_batch = (sx_ints){batch, {0, 1}};
    dot.lhs_contract = dot.rhs_contract = (sx_ints){1, {batch}};
    sx_node_id of_values[2] = {p, o};
    if (!sum) {
        return sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &dot, of_values, 2, id);
    }
    dp[0] = o;
    dp[1] = v;
    dot.lhs_contract = dot.rhs_contract = (sx_ints){1, {batch + 1}};
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &dot, dp, 2, &dp[0]));
    of_values[1] = v;
    dot.rhs_contract = (sx_ints){1, {batch}};
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &dot, of_values, 2, &o));
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_MULTIPLY, p, dp[0], &p));
    const sx_ints last = {1, {batch + 1}};
    SX_TRY(sx_build_reduce(g->cx, g->graph, SX_SUM, p, &last, &p));
    SX_TRY(sx_build_reduce(g->cx, g->graph, SX_SUM, o, &last, &o));
    return sx_build_binary(g->cx, g->graph, SX_OP_ADD, p, o, id);
}

static inline sx_code make_weights_turned(generator *g, sx_node_id *id)
{
    return make_attention_gradient(g, false, id);
}

static inline sx_code make_weighted_sum(generator *g, sx_node_id *id)
{
    return make_attention_gradient(g, true, id);
}

static inline sx_code make_softmax_sum(generator *g, sx_node_id *id)
{
    return make_softmax_gradient(g, true, id);
}

static inline sx_code make_softmax_product(generator *g, sx_node_id *id)
{
    return make_softmax_gradient(g, false, id);
}

/* The rows of a softmax, in steps, contracted with a value. `left`: they are the first operand */
static inline sx_code make_softmax_dot(generator *g, bool left, sx_node_id *id)
{
    uint32_t batch = draw(g, 2);
    sx_type type[2]; /* of the scores, of the value */
    for (uint32_t k = 0; k < 2; k++) {
        type[k] = (sx_type){.dtype = draw_dtype(g), .rank = batch + 2};
        for (uint32_t d = 0; d < type[k].rank; d++) {
            type[k].dim[d] = sx_dim_of(draw_extent(g));
        }
    }
    type[1].dtype = type[0].dtype;
    type[1].dim[0] = batch > 0 ? type[0].dim[0] : type[1].dim[0];
    type[1].dim[batch + 1] = type[0].dim[batch + 1]; /* both contract their last */
    sx_ints last = {1, {batch + 1}};
    sx_node_id x, row, weight, value;
    SX_TRY(make_weights(g, &type[0], last.v[0], &x, &row));
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_DIVIDE, x, row, &weight));
    SX_TRY(fresh_parameter(g, &type[1], &value));
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    dot.lhs_contract = dot.rhs_contract = last;
    dot.lhs_batch = dot.rhs_batch = (sx_ints){batch, {0}};
    sx_node_id input[2] = {left ? weight : value, left ? value : weight};
    return sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &dot, input, 2, id);
}

static inline sx_code make_softmax_dot_left(generator *g, sx_node_id *id)
{
    return make_softmax_dot(g, true, id);
}

static inline sx_code make_softmax_dot_right(generator *g, sx_node_id *id)
{
    return make_softmax_dot(g, false, id);
}

/* A composite of one operand in f32, between conversions from a narrow type and back. */
static inline sx_code make_narrow_unary(generator *g, sx_node_id *id)
{
    static const sx_op op[] = {SX_OP_GELU, SX_OP_GELU_TANH, SX_OP_SILU};
    sx_type type = draw_type(g, 4);
    type.dtype = draw(g, 2) == 0 ? SX_BF16 : SX_F16;
    sx_attr attr = {.present = SX_A(type), .type = type};
    SX_TRY(fresh_parameter(g, &type, id));
    attr.type.dtype = SX_F32;
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_CONVERT, &attr, id, 1, id));
    SX_TRY(sx_build_unary(g->cx, g->graph, op[draw(g, 3)], *id, id));
    attr.type.dtype = type.dtype;
    return sx_graph_add(g->cx, g->graph, SX_OP_CONVERT, &attr, id, 1, id);
}

/* A parameter of `type` but for the extent of `axis`. */
static inline sx_code make_part(generator *g, sx_type type, uint32_t axis, int64_t extent,
                                sx_node_id *id)
{
    type.dim[axis] = sx_dim_of(extent);
    return fresh_parameter(g, &type, id);
}

static inline sx_code join(generator *g, int64_t axis, const sx_node_id *part, uint32_t count,
                           sx_node_id *id)
{
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    sx_code code = sx_graph_add(g->cx, g->graph, SX_OP_CONCATENATE, &attr, part, count, id);
    if (code == SX_INPUT) {
        sx_ctx_reset_error(g->cx);
        return GIVE_UP;
    }
    return code;
}

/* A tensor of rank 1 or more, to be made of parts, and an axis. */
static inline sx_type draw_whole(generator *g, uint32_t *axis)
{
    sx_type type = draw_type(g, 4);
    while (type.rank == 0) {
        type = draw_type(g, 4);
    }
    *axis = draw(g, type.rank);
    return type;
}

static inline sx_code make_nested(generator *g, sx_node_id *id)
{
    uint32_t axis;
    sx_type type = draw_whole(g, &axis);
    sx_node_id part[3];
    uint32_t count = 1 + draw(g, 3);
    for (uint32_t k = 0; k < count; k++) {
        sx_node_id inner[2];
        SX_TRY(make_part(g, type, axis, draw_extent(g), &inner[0]));
        SX_TRY(make_part(g, type, axis, draw_extent(g), &inner[1]));
        part[k] = inner[0];
        if (draw(g, 2) == 0) {
            SX_TRY(join(g, draw(g, 4) == 0 ? draw(g, type.rank) : axis, inner, 2, &part[k]));
        }
    }
    return join(g, axis, part, count, id);
}

/* Slices of one or two tensors, many of them neighbours. */
static inline sx_code make_slices(generator *g, sx_node_id *id)
{
    uint32_t axis;
    sx_type type = draw_whole(g, &axis);
    type.dim[axis] = sx_dim_of(9);
    sx_node_id source[2];
    SX_TRY(fresh_parameter(g, &type, &source[0]));
    SX_TRY(fresh_parameter(g, &type, &source[1]));
    sx_attr attr = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    attr.start.count = attr.limit.count = attr.stride.count = type.rank;
    for (uint32_t d = 0; d < type.rank; d++) {
        attr.start.v[d] = d != axis && draw(g, 3) == 0 ? draw(g, (uint32_t)type.dim[d].scale) : 0;
        attr.limit.v[d] = type.dim[d].scale;
        attr.stride.v[d] = 1;
    }
    sx_node_id part[4];
    uint32_t count = 2 + draw(g, 3);
    int64_t at = draw(g, 3);
    for (uint32_t k = 0; k < count; k++) {
        sx_node_id from = source[draw(g, 5) == 0 ? 1 : 0];
        attr.start.v[axis] = at;
        attr.limit.v[axis] = at + 1 + draw(g, 2);
        attr.stride.v[axis] = draw(g, 6) == 0 ? 2 : 1;
        at = draw(g, 6) == 0 ? (int64_t)draw(g, 6) : attr.limit.v[axis];
        at = at > 6 ? 0 : at;
        SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_SLICE, &attr, &from, 1, &part[k]));
    }
    return join(g, axis, part, count, id);
}

/* Rows of parts, parts equal pairwise or not. */
static inline sx_code make_grid(generator *g, sx_node_id *id)
{
    uint32_t outer;
    sx_type type = draw_whole(g, &outer);
    uint32_t inner = draw(g, type.rank);
    int64_t width[2] = {draw_extent(g), draw_extent(g)};
    sx_node_id row[3];
    uint32_t count = 2 + draw(g, 2);
    for (uint32_t r = 0; r < count; r++) {
        sx_node_id part[2];
        bool turned = draw(g, 6) == 0; /* equal in sum, not pairwise */
        type.dim[outer] = sx_dim_of(draw_extent(g));
        for (uint32_t k = 0; k < 2; k++) {
            SX_TRY(make_part(g, type, inner, width[turned ? 1 - k : k], &part[k]));
        }
        SX_TRY(join(g, inner, part, 2, &row[r]));
    }
    return join(g, outer, row, count, id);
}

/* The same function, or the same view, of parts that differ along an axis. */
static inline sx_code make_mapped_parts(generator *g, sx_node_id *id)
{
    static const sx_op op[] = {SX_OP_NEGATE, SX_OP_RELU, SX_OP_ABS, SX_OP_SIGN};
    uint32_t axis;
    sx_type type = draw_whole(g, &axis);
    sx_node_id part[3];
    uint32_t count = 2 + draw(g, 2);
    sx_op chosen = op[draw(g, 4)];
    for (uint32_t k = 0; k < count; k++) {
        SX_TRY(make_part(g, type, axis, draw_extent(g), &part[k]));
        SX_TRY(sx_build_unary(g->cx, g->graph, draw(g, 8) == 0 ? op[draw(g, 4)] : chosen, part[k],
                              &part[k]));
    }
    return join(g, axis, part, count, id);
}

static inline sx_code make_turned_parts(generator *g, sx_node_id *id)
{
    uint32_t axis;
    sx_type type = draw_whole(g, &axis);
    sx_attr attr = {0};
    sx_node_id part[3];
    uint32_t count = 2 + draw(g, 2);
    for (uint32_t k = 0; k < count; k++) {
        sx_type input;
        type.dim[axis] = sx_dim_of(draw_extent(g));
        if (k == 0 || draw(g, 8) == 0) {
            SX_TRY(before_transpose(g, &type, &attr, &input));
        }
        for (uint32_t d = 0; d < type.rank; d++) {
            input.dim[attr.perm.v[d]] = type.dim[d];
        }
        input.dtype = type.dtype;
        input.rank = type.rank;
        SX_TRY(fresh_parameter(g, &input, &part[k]));
        SX_TRY(sx_build_transpose(g->cx, g->graph, part[k], &attr.perm, &part[k]));
    }
    return join(g, axis, part, count, id);
}

static inline sx_code make_repeated_parts(generator *g, sx_node_id *id)
{
    uint32_t axis;
    sx_type type = draw_whole(g, &axis);
    uint32_t added = draw(g, 1u << type.rank);
    sx_node_id part[3];
    uint32_t count = 2 + draw(g, 2);
    for (uint32_t k = 0; k < count; k++) {
        sx_ints dims = {0};
        type.dim[axis] = sx_dim_of(draw_extent(g));
        sx_type input = {.dtype = type.dtype};
        for (uint32_t d = 0; d < type.rank; d++) {
            if ((added & 1u << d) == 0) {
                dims.v[dims.count++] = d;
                input.dim[input.rank++] = draw(g, 6) == 0 ? sx_dim_of(1) : type.dim[d];
            }
        }
        SX_TRY(fresh_parameter(g, &input, &part[k]));
        SX_TRY(sx_build_broadcast(g->cx, g->graph, part[k], &dims, &type, &part[k]));
    }
    return join(g, axis, part, count, id);
}

/* op over two concatenations, or the other way round; parts equal pairwise or not. */
static inline sx_code make_paired(generator *g, bool outside, sx_node_id *id)
{
    static const sx_op op[] = {SX_OP_ADD, SX_OP_MULTIPLY, SX_OP_MAXIMUM, SX_OP_SUBTRACT};
    uint32_t axis;
    sx_type type = draw_whole(g, &axis);
    int64_t width[2] = {draw_extent(g), draw_extent(g)};
    sx_op chosen = op[draw(g, 4)];
    sx_node_id part[2][2];
    for (uint32_t i = 0; i < 2; i++) {
        bool turned = outside && draw(g, 6) == 0;
        for (uint32_t k = 0; k < 2; k++) {
            SX_TRY(make_part(g, type, axis, width[turned ? 1 - k : k], &part[i][k]));
        }
    }
    sx_node_id both[2];
    for (uint32_t i = 0; i < 2; i++) {
        if (outside) {
            SX_TRY(join(g, axis, part[i], 2, &both[i]));
        } else {
            sx_op own = draw(g, 8) == 0 ? op[draw(g, 4)] : chosen;
            if (sx_build_binary(g->cx, g->graph, own, part[0][i], part[1][i], &both[i]) != SX_OK) {
                sx_ctx_reset_error(g->cx);
                return GIVE_UP;
            }
        }
    }
    if (!outside) {
        return join(g, axis, both, 2, id);
    }
    if (sx_build_binary(g->cx, g->graph, chosen, both[0], both[1], id) != SX_OK) {
        sx_ctx_reset_error(g->cx);
        return GIVE_UP;
    }
    return SX_OK;
}

static inline sx_code make_binary_of_parts(generator *g, sx_node_id *id)
{
    return make_paired(g, true, id);
}

static inline sx_code make_parts_of_binary(generator *g, sx_node_id *id)
{
    return make_paired(g, false, id);
}

static inline sx_code make_known_choice(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 4);
    sx_type mask = type;
    mask.dtype = SX_BOOL;
    sx_node_id input[3];
    SX_TRY(sx_build_scalar(g->cx, g->graph, &mask, (double)draw(g, 2), &input[0]));
    SX_TRY(fresh_parameter(g, &type, &input[1]));
    SX_TRY(fresh_parameter(g, &type, &input[2]));
    return sx_graph_add(g->cx, g->graph, SX_OP_SELECT, &(sx_attr){0}, input, 3, id);
}
#endif
