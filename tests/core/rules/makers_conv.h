/* makers_conv.h - random programs for the rules of conv.def that want weights, channels and windows that
 * agree. */
#ifndef SX_TESTS_CORE_RULES_MAKERS_CONV_H
#define SX_TESTS_CORE_RULES_MAKERS_CONV_H
#include "tests/core/rules/instances.h"

/* A convolution drawn for a result of `rank` dimensions. */
typedef struct {
    sx_attr attr;
    sx_type x, w, y;
} drawn_conv;

/* Padding taken away: the operand grows by it. */
static inline void bare(drawn_conv *c)
{
    for (uint32_t d = 2; d < c->x.rank; d++) {
        c->x.dim[d].scale += c->attr.low.v[d - 2] + c->attr.high.v[d - 2];
        c->attr.low.v[d - 2] = c->attr.high.v[d - 2] = 0;
    }
}

static inline sx_code draw_conv(generator *g, uint32_t rank, bool real, drawn_conv *c)
{
    sx_type input[PARTS_MAX];
    *c = (drawn_conv){.y = draw_type(g, 0)};
    c->y.dtype = real ? (draw(g, 3) == 0 ? SX_F64 : SX_F32) : c->y.dtype;
    c->y.rank = rank;
    for (uint32_t d = 0; d < rank; d++) {
        c->y.dim[d] = d == 1 ? sx_dim_of(1 + draw(g, 6)) : draw_image(g);
    }
    SX_TRY(before_convolution(g, &c->y, &c->attr, input));
    c->x = input[0];
    c->w = input[1];
    return SX_OK;
}

static inline sx_code draw_ungrouped(generator *g, uint32_t rank, drawn_conv *c)
{
    SX_TRY(draw_conv(g, rank, false, c));
    return c->attr.groups == 1 ? SX_OK : GIVE_UP;
}

static inline sx_code convolve(generator *g, const drawn_conv *c, sx_node_id x, sx_node_id w,
                               sx_node_id *id)
{
    sx_node_id operand[2] = {x, w};
    return sx_graph_add(g->cx, g->graph, SX_OP_CONVOLUTION, &c->attr, operand, 2, id);
}

static inline sx_code weight(generator *g, const sx_type *type, sx_node_id *id)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "p%u", g->parameters++);
    return sx_build_parameter(g->cx, g->graph, name, true, type, id);
}

/* A weight for each index along dimension `dim`, repeated to `type`. */
static inline sx_code repeated_weight(generator *g, const sx_type *type, uint32_t dim,
                                      sx_node_id *id)
{
    sx_type vector = {type->dtype, 1, {type->dim[dim]}};
    sx_ints dims = {1, {dim}};
    SX_TRY(weight(g, &vector, id));
    return sx_build_broadcast(g->cx, g->graph, *id, &dims, type, id);
}

static inline sx_code make_deep(generator *g, sx_node_id *id)
{
    drawn_conv c;
    sx_node_id x;
    sx_node_id w;
    SX_TRY(draw_conv(g, 5, false, &c));
    bare(&c);
    SX_TRY(fresh_parameter(g, &c.x, &x));
    SX_TRY(fresh_parameter(g, &c.w, &w));
    return convolve(g, &c, x, w, id);
}

static inline sx_code make_groups(generator *g, sx_node_id *id)
{
    drawn_conv c;
    sx_node_id x;
    sx_node_id w;
    SX_TRY(draw_conv(g, 3 + draw(g, 2), false, &c));
    bare(&c);
    if (c.attr.groups == 1 || c.attr.groups == c.y.dim[1].scale) {
        return GIVE_UP;
    }
    SX_TRY(fresh_parameter(g, &c.x, &x));
    SX_TRY(fresh_parameter(g, &c.w, &w));
    return convolve(g, &c, x, w, id);
}

/* By channel, windows of one element. */
static inline sx_code make_depth(generator *g, sx_node_id *id)
{
    drawn_conv c;
    sx_node_id x;
    sx_node_id w;
    SX_TRY(draw_conv(g, 3 + draw(g, 3), false, &c));
    bare(&c);
    c.attr.groups = c.y.dim[1].scale;
    c.x.dim[1] = c.y.dim[1];
    c.w.dim[1] = sx_dim_of(1);
    for (uint32_t d = 2; d < c.w.rank; d++) {
        c.w.dim[d] = sx_dim_of(1);
    }
    SX_TRY(fresh_parameter(g, &c.x, &x));
    SX_TRY(fresh_parameter(g, &c.w, &w));
    return convolve(g, &c, x, w, id);
}

/* Of an image with zeros between its elements and around them. */
static inline sx_code make_spread(generator *g, sx_node_id *id)
{
    drawn_conv c;
    sx_node_id x;
    sx_node_id w;
    sx_type zero;
    SX_TRY(draw_conv(g, 3 + draw(g, 3), false, &c));
    sx_attr pad = {.present = sx_op_info_of(SX_OP_PAD)->attrs};
    pad.low.count = pad.high.count = pad.interior.count = c.x.rank;
    for (uint32_t d = 2; d < c.x.rank; d++) {
        int64_t extent = 1 + draw(g, 3);
        int64_t step = 1 + draw(g, 3);
        int64_t window = 1 + draw(g, 4);
        pad.interior.v[d] = step - 1;
        pad.low.v[d] = draw(g, 3);
        pad.high.v[d] = draw(g, 3);
        int64_t whole = (extent - 1) * step + 1 + pad.low.v[d] + pad.high.v[d];
        c.x.dim[d] = sx_dim_of(extent);
        c.w.dim[d] = sx_dim_of(window);
        c.attr.stride.v[d - 2] = c.attr.dilation.v[d - 2] = 1;
        whole += c.attr.low.v[d - 2] + c.attr.high.v[d - 2];
        if (whole < window) {
            return GIVE_UP;
        }
    }
    SX_TRY(fresh_parameter(g, &c.x, &x));
    SX_TRY(fresh_parameter(g, &c.w, &w));
    zero = (sx_type){.dtype = c.x.dtype};
    sx_node_id operand[2] = {x, x};
    SX_TRY(sx_build_scalar(g->cx, g->graph, &zero, 0, &operand[1]));
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_PAD, &pad, operand, 2, &x));
    return convolve(g, &c, x, w, id);
}

static inline sx_code make_channel_scale(generator *g, sx_node_id *id)
{
    drawn_conv c;
    sx_node_id x;
    sx_node_id w;
    sx_node_id v;
    SX_TRY(draw_conv(g, 3 + draw(g, 2), false, &c));
    SX_TRY(fresh_parameter(g, &c.x, &x));
    SX_TRY(weight(g, &c.w, &w));
    SX_TRY(repeated_weight(g, &c.y, 1, &v));
    SX_TRY(convolve(g, &c, x, w, id));
    return sx_build_binary(g->cx, g->graph, SX_OP_MULTIPLY, *id, v, id);
}

static inline sx_code before_conv(generator *g, sx_op op, const drawn_conv *c, sx_node_id *id)
{
    sx_node_id x;
    sx_node_id w;
    sx_node_id v;
    SX_TRY(fresh_parameter(g, &c->x, &x));
    SX_TRY(weight(g, &c->w, &w));
    SX_TRY(repeated_weight(g, &c->x, 1, &v));
    SX_TRY(sx_build_binary(g->cx, g->graph, op, x, v, &x));
    return convolve(g, c, x, w, id);
}

static inline sx_code make_input_scale(generator *g, sx_node_id *id)
{
    drawn_conv c;
    SX_TRY(draw_conv(g, 3 + draw(g, 2), false, &c));
    if (draw(g, 3) == 0) { /* by channel */
        c.attr.groups = c.y.dim[1].scale;
        c.x.dim[1] = c.y.dim[1];
        c.w.dim[1] = sx_dim_of(1);
    }
    return before_conv(g, SX_OP_MULTIPLY, &c, id);
}

static inline sx_code make_input_shift(generator *g, sx_node_id *id)
{
    drawn_conv c;
    SX_TRY(draw_ungrouped(g, 3 + draw(g, 2), &c));
    if (draw(g, 4) != 0) {
        bare(&c);
    }
    return before_conv(g, draw(g, 2) == 0 ? SX_OP_ADD : SX_OP_SUBTRACT, &c, id);
}

/* A pointwise convolution of a convolution. */
static inline sx_code make_point_conv(generator *g, sx_node_id *id)
{
    drawn_conv c;
    sx_node_id x;
    sx_node_id w;
    sx_node_id v;
    SX_TRY(draw_ungrouped(g, 3 + draw(g, 2), &c));
    sx_type point = {c.y.dtype, c.y.rank, {sx_dim_of(1 + draw(g, 4)), c.y.dim[1]}};
    drawn_conv outer = {.attr = c.attr};
    for (uint32_t d = 2; d < c.y.rank; d++) {
        point.dim[d] = sx_dim_of(1);
        outer.attr.stride.v[d - 2] = 1;
        outer.attr.low.v[d - 2] = outer.attr.high.v[d - 2] = 0;
    }
    SX_TRY(fresh_parameter(g, &c.x, &x));
    SX_TRY(weight(g, &c.w, &w));
    SX_TRY(weight(g, &point, &v));
    SX_TRY(convolve(g, &c, x, w, id));
    return convolve(g, &outer, *id, v, id);
}

/* Two convolutions of one attribute side by side or added, the extents that may differ drawn apart. */
static inline sx_code make_pair(generator *g, bool added, bool shared, sx_node_id *id)
{
    drawn_conv a;
    sx_node_id x[2];
    sx_node_id w[2];
    sx_node_id y[2];
    SX_TRY(draw_conv(g, 3 + draw(g, 2), false, &a));
    drawn_conv b = a;
    bool even = draw(g, 2) == 0;
    int64_t channels = even ? a.w.dim[1].scale : 1 + draw(g, 3);
    if (added) {
        b.w.dim[1] = sx_dim_of(channels);
        b.x.dim[1] = sx_dim_of(channels * b.attr.groups);
    } else if (!even) {
        b.w.dim[0] = sx_dim_of(b.attr.groups * (1 + draw(g, 3)));
    }
    SX_TRY(fresh_parameter(g, &a.x, &x[0]));
    x[1] = x[0];
    if (!shared) {
        SX_TRY(fresh_parameter(g, &b.x, &x[1]));
    }
    SX_TRY(fresh_parameter(g, &a.w, &w[0]));
    SX_TRY(fresh_parameter(g, &b.w, &w[1]));
    SX_TRY(convolve(g, &a, x[0], w[0], &y[0]));
    SX_TRY(convolve(g, &b, x[1], w[1], &y[1]));
    sx_attr join = {.present = SX_A(axis), .axis = 1};
    return added ? sx_build_binary(g->cx, g->graph, SX_OP_ADD, y[0], y[1], id)
                 : sx_graph_add(g->cx, g->graph, SX_OP_CONCATENATE, &join, y, 2, id);
}

static inline sx_code make_added(generator *g, sx_node_id *id)
{
    return make_pair(g, true, false, id);
}

static inline sx_code make_joined(generator *g, sx_node_id *id)
{
    return make_pair(g, false, false, id);
}

static inline sx_code make_joined_outputs(generator *g, sx_node_id *id)
{
    return make_pair(g, false, true, id);
}

/* Two convolutions at the same places, the window of one inside that of the other. */
enum { ENLARGED_ADDED, ENLARGED_JOINED, ENLARGED_SHARED };
static inline sx_code make_enlarged(generator *g, uint32_t form, sx_node_id *id)
{
    drawn_conv big;
    SX_TRY(draw_ungrouped(g, 3 + draw(g, 2), &big));
    drawn_conv small = big;
    for (uint32_t d = 2; d < big.w.rank; d++) {
        sx_attr *b = &big.attr;
        sx_attr *s = &small.attr;
        b->dilation.v[d - 2] = s->dilation.v[d - 2] = 1;
        b->low.v[d - 2] = draw(g, 3);
        b->high.v[d - 2] = draw(g, 3);
        int64_t before = draw(g, (uint32_t)b->low.v[d - 2] + 1);
        int64_t behind = draw(g, (uint32_t)b->high.v[d - 2] + 1);
        s->low.v[d - 2] = b->low.v[d - 2] - before;
        s->high.v[d - 2] = b->high.v[d - 2] - behind;
        big.w.dim[d].scale = small.w.dim[d].scale + before + behind;
        big.x.dim[d] = small.x.dim[d] = sx_dim_of(3 + draw(g, 5));
    }
    if (form != ENLARGED_ADDED) {
        small.w.dim[0] = sx_dim_of(1 + draw(g, 4));
    } else {
        int64_t channels = 1 + draw(g, 3);
        small.x.dim[1] = small.w.dim[1] = sx_dim_of(channels);
    }
    sx_node_id x[2];
    sx_node_id w[2];
    sx_node_id y[2];
    uint32_t first = draw(g, 2);
    SX_TRY(fresh_parameter(g, &big.x, &x[0]));
    x[1] = x[0];
    if (form == ENLARGED_ADDED) {
        SX_TRY(fresh_parameter(g, &small.x, &x[1]));
    }
    bool constant = form == ENLARGED_SHARED;
    SX_TRY(constant ? weight(g, &big.w, &w[0]) : fresh_parameter(g, &big.w, &w[0]));
    SX_TRY(constant ? weight(g, &small.w, &w[1]) : fresh_parameter(g, &small.w, &w[1]));
    sx_code code = convolve(g, &big, x[0], w[0], &y[first]);
    code = code == SX_OK ? convolve(g, &small, x[1], w[1], &y[1 - first]) : code;
    if (code != SX_OK) { /* a window longer than the padded operand */
        return code;
    }
    sx_attr join = {.present = SX_A(axis), .axis = 1};
    if (form == ENLARGED_SHARED) {
        *id = y[1]; /* nobody reads both */
        return SX_OK;
    }
    return form == ENLARGED_JOINED
               ? sx_graph_add(g->cx, g->graph, SX_OP_CONCATENATE, &join, y, 2, id)
               : sx_build_binary(g->cx, g->graph, SX_OP_ADD, y[0], y[1], id);
}

static inline sx_code make_enlarged_shared(generator *g, sx_node_id *id)
{
    return make_enlarged(g, ENLARGED_SHARED, id);
}

static inline sx_code make_enlarged_joined(generator *g, sx_node_id *id)
{
    return make_enlarged(g, ENLARGED_JOINED, id);
}

static inline sx_code make_enlarged_added(generator *g, sx_node_id *id)
{
    return make_enlarged(g, ENLARGED_ADDED, id);
}

/* batch_norm of `x` along `axis`, with weights. */
static inline sx_code normalised(generator *g, sx_node_id x, uint32_t axis, sx_node_id *id)
{
    sx_type type = sx_graph_node(g->graph, x)->type;
    sx_type vector = {type.dtype, 1, {type.dim[axis]}};
    sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = axis, .eps = 0.125};
    sx_node_id input[5] = {x};
    for (uint32_t k = 1; k < 5; k++) {
        SX_TRY(weight(g, &vector, &input[k]));
    }
    return sx_graph_add(g->cx, g->graph, SX_OP_BATCH_NORM, &attr, input, 5, id);
}

static inline sx_code make_conv_norm(generator *g, sx_node_id *id)
{
    drawn_conv c;
    sx_node_id x;
    sx_node_id w;
    SX_TRY(draw_conv(g, 3 + draw(g, 2), true, &c));
    SX_TRY(fresh_parameter(g, &c.x, &x));
    SX_TRY(weight(g, &c.w, &w));
    SX_TRY(convolve(g, &c, x, w, id));
    return normalised(g, *id, 1, id);
}

static inline sx_code make_dot_norm(generator *g, sx_node_id *id)
{
    sx_type y = draw_type(g, 4);
    sx_type input[PARTS_MAX];
    sx_attr attr = {0};
    sx_node_id operand[2];
    y.dtype = draw(g, 3) == 0 ? SX_F64 : SX_F32;
    if (y.rank == 0) {
        return GIVE_UP;
    }
    SX_TRY(before_dot(g, &y, &attr, input));
    SX_TRY(fresh_parameter(g, &input[0], &operand[0]));
    SX_TRY(weight(g, &input[1], &operand[1]));
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_DOT_GENERAL, &attr, operand, 2, id));
    return normalised(g, *id, draw(g, y.rank), id);
}
#endif
