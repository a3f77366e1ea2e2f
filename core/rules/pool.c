/* Windows: pools past elementwise operations and concatenation, pools as reductions, as two pools, as convolutions. */
#include "core/rules/conv.h"

/* Does every place of the window meet an element of the operand? Windows without gaps that are no shorter than
 * the padding do. */
static bool meets_elements(const sx_attr *attr)
{
    bool all = sx_ints_are(&attr->dilation, 1);
    for (uint32_t d = 0; d < attr->window.count; d++) {
        all = all && attr->low.v[d] < attr->window.v[d] && attr->high.v[d] < attr->window.v[d];
    }
    return all;
}

/* max(relu(x)) = relu(max(x)); reassociating: zeros have two signs. */
sx_code sx_rule_pool_relu(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    uint32_t node;
    if (attr.reducer != SX_MAX || !meets_elements(&attr)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE_WINDOW, &attr, rw->var, 1, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_RELU, NULL, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_relu_pool(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 1);
    uint32_t node;
    if (attr.reducer != SX_MAX || !meets_elements(&attr)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_RELU, NULL, rw->var, 1, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE_WINDOW, &attr, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* max(x s) = s max(x) for a known s > 0, min likewise. */
sx_code sx_rule_pool_scale(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    sx_fact fact = *sx_tensors_fact(t, rw->var[1]);
    bool order = attr.reducer == SX_MAX || attr.reducer == SX_MIN;
    if (!order || !meets_elements(&attr) || fact.has_value == 0 || !(fact.value > 0) ||
        !sx_type_is_real(&type)) {
        return SX_OK;
    }
    uint32_t value;
    uint32_t node;
    SX_TRY(sx_tensors_add_value(rw->cx, t, &type, fact.value, &value));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE_WINDOW, &attr, rw->var, 1, &node));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, node, value, &node));
    return sx_rewrite_emit(rw, node);
}

/* Is dimension d passed through element by element? */
static bool passes(const sx_attr *attr, int64_t d)
{
    return attr->window.v[d] == 1 && attr->stride.v[d] == 1 && attr->low.v[d] == 0 &&
           attr->high.v[d] == 0;
}

sx_code sx_rule_pool_of_concatenate(sx_rewrite *rw)
{
    const sx_eg *eg = &sx_rewrite_tensors(rw)->eg;
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_attr join = sx_rewrite_attr(rw, 1);
    uint32_t arity = eg->node[rw->node[1]].arity;
    uint32_t part[SX_INPUTS_MAX];
    if (!passes(&attr, join.axis)) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < arity; k++) {
        uint32_t child = sx_eg_child(eg, rw->node[1], k);
        SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE_WINDOW, &attr, &child, 1, &part[k]));
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONCATENATE, &join, part, arity, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_concatenate_of_pools(sx_rewrite *rw)
{
    sx_attr join = sx_rewrite_attr(rw, 0);
    sx_attr attr = sx_rewrite_attr(rw, 1);
    uint32_t node;
    if (!passes(&attr, join.axis)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONCATENATE, &join, rw->var, 2, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE_WINDOW, &attr, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* Windows of one element: a slice. Reassociating: a sum of one -0 is 0. */
sx_code sx_rule_pool_of_one(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    if (!sx_ints_are(&attr.window, 1) || sx_has_padding(&attr)) {
        return SX_OK;
    }
    sx_attr slice = sx_slice_whole(sx_rewrite_type(rw, rw->var[0]));
    slice.stride = attr.stride;
    uint32_t node = rw->var[0];
    if (!sx_ints_are(&attr.stride, 1)) {
        SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &slice, rw->var, 1, &node));
    }
    return sx_rewrite_emit(rw, node);
}

/* Windows that cover whole dimensions: a reduction. */
sx_code sx_rule_pool_of_all(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    sx_attr reduce = {.present = SX_A(dims) | SX_A(reducer), .reducer = attr.reducer};
    if (sx_has_padding(&attr)) {
        return SX_OK;
    }
    for (uint32_t d = 0; d < x.rank; d++) {
        bool whole = sx_dim_equal(x.dim[d], sx_dim_of(attr.window.v[d])) &&
                     (attr.dilation.v[d] == 1 || attr.window.v[d] == 1);
        if (whole) {
            reduce.dims.v[reduce.dims.count++] = d;
        } else if (attr.window.v[d] != 1 || attr.stride.v[d] != 1) {
            return SX_OK;
        }
    }
    uint32_t node;
    if (reduce.dims.count == 0) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &reduce, rw->var, 1, &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &y, &node));
    return sx_rewrite_emit(rw, node);
}

/* The largest (smallest) of a window: first along its last dimension, then along the others; the first of
 * equals stays the first. */
sx_code sx_rule_pool_apart(sx_rewrite *rw)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    uint32_t walked = 0;
    uint32_t last = 0;
    for (uint32_t d = 0; d < outer.window.count; d++) {
        walked += outer.window.v[d] > 1 ? 1 : 0;
        last = outer.window.v[d] > 1 ? d : last;
    }
    if (walked < 2 || sx_has_padding(&outer) ||
        (outer.reducer != SX_MAX && outer.reducer != SX_MIN)) {
        return SX_OK;
    }
    sx_attr inner = outer;
    inner.window = inner.stride = inner.dilation = sx_ints_of(outer.window.count, 1);
    inner.window.v[last] = outer.window.v[last];
    inner.stride.v[last] = outer.stride.v[last];
    inner.dilation.v[last] = outer.dilation.v[last];
    outer.window.v[last] = outer.stride.v[last] = outer.dilation.v[last] = 1;
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE_WINDOW, &inner, rw->var, 1, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE_WINDOW, &outer, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* A sum over windows of each channel: a convolution with ones by channel. */
sx_code sx_rule_pool_convolution(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    if (attr.reducer != SX_SUM || x.rank < 3 || x.rank > 5 || !passes(&attr, 0) ||
        !passes(&attr, 1) || !sx_dim_is_constant(x.dim[1]) || x.dtype == SX_BOOL) {
        return SX_OK;
    }
    sx_attr conv = {.present = sx_op_info_of(SX_OP_CONVOLUTION)->attrs};
    sx_type ones = {x.dtype, x.rank, {x.dim[1], sx_dim_of(1)}};
    uint32_t spatial = x.rank - 2;
    conv.groups = x.dim[1].scale;
    conv.stride.count = conv.low.count = conv.high.count = conv.dilation.count = spatial;
    for (uint32_t d = 0; d < spatial; d++) {
        conv.stride.v[d] = attr.stride.v[2 + d];
        conv.low.v[d] = attr.low.v[2 + d];
        conv.high.v[d] = attr.high.v[2 + d];
        conv.dilation.v[d] = attr.dilation.v[2 + d];
        ones.dim[2 + d] = sx_dim_of(attr.window.v[2 + d]);
    }
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &ones, 1, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &conv, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}
