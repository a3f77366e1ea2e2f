/* Views: transposes, reshapes, broadcasts, slices, and elementwise operations moved before them. */
#include "core/rules/rules.h"

static bool is_one(sx_dim dim)
{
    return sx_dim_is_constant(dim) && dim.scale == 1;
}

sx_code sx_rule_same_type(sx_rewrite *rw)
{
    return sx_rewrite_emit(rw, rw->var[0]);
}

sx_code sx_rule_transpose_transpose(sx_rewrite *rw)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    sx_attr both = {.present = SX_A(perm)};
    both.perm.count = outer.perm.count;
    bool identity = true;
    for (uint32_t d = 0; d < outer.perm.count; d++) {
        both.perm.v[d] = inner.perm.v[outer.perm.v[d]];
        identity = identity && both.perm.v[d] == d;
    }
    uint32_t node = rw->var[0];
    if (!identity) {
        SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &both, &rw->var[0], 1, &node));
    }
    return sx_rewrite_emit(rw, node);
}

/* A transposition that keeps the order of all dimensions but those of extent 1 moves no element. */
sx_code sx_rule_transpose_plain(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    const sx_type *x = sx_rewrite_type(rw, rw->var[0]);
    int64_t last = -1;
    for (uint32_t d = 0; d < attr.perm.count; d++) {
        if (is_one(x->dim[attr.perm.v[d]])) {
            continue;
        }
        if (attr.perm.v[d] < last) {
            return SX_OK;
        }
        last = attr.perm.v[d];
    }
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    SX_TRY(sx_rewrite_reshape(rw, rw->var[0], &type, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reshape_reshape(sx_rewrite *rw)
{
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    SX_TRY(sx_rewrite_reshape(rw, rw->var[0], &type, &node));
    return sx_rewrite_emit(rw, node);
}

/* Both slices with known limits: indices start + stride * i compose. */
sx_code sx_rule_slice_slice(sx_rewrite *rw)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    sx_attr both = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    both.start.count = both.limit.count = both.stride.count = outer.start.count;
    for (uint32_t d = 0; d < outer.start.count; d++) {
        int64_t taken = outer.limit.v[d] - outer.start.v[d];
        if (outer.limit.v[d] < 0 || inner.limit.v[d] < 0 || taken <= 0) {
            return SX_OK;
        }
        int64_t first;
        int64_t step;
        int64_t span;
        int64_t last = (taken - 1) / outer.stride.v[d];
        if (!sx_mul_i64(outer.start.v[d], inner.stride.v[d], &first) ||
            !sx_add_i64(first, inner.start.v[d], &first) ||
            !sx_mul_i64(outer.stride.v[d], inner.stride.v[d], &step) ||
            !sx_mul_i64(step, last, &span) || !sx_add_i64(span, first + 1, &span)) {
            return SX_OK;
        }
        both.start.v[d] = first;
        both.stride.v[d] = step;
        both.limit.v[d] = span;
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &both, &rw->var[0], 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* Nothing is repeated: a reshape. */
sx_code sx_rule_broadcast_plain(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    const sx_type *x = sx_rewrite_type(rw, rw->var[0]);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t mapped = 0;
    for (uint32_t i = 0; i < attr.dims.count; i++) {
        if (!sx_dim_equal(x->dim[i], type.dim[attr.dims.v[i]])) {
            return SX_OK;
        }
        mapped |= 1u << attr.dims.v[i];
    }
    for (uint32_t d = 0; d < type.rank; d++) {
        if ((mapped & 1u << d) == 0 && !is_one(type.dim[d])) {
            return SX_OK;
        }
    }
    uint32_t node;
    SX_TRY(sx_rewrite_reshape(rw, rw->var[0], &type, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_broadcast_broadcast(sx_rewrite *rw)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr both = sx_rewrite_attr(rw, 1);
    for (uint32_t i = 0; i < both.dims.count; i++) {
        both.dims.v[i] = outer.dims.v[both.dims.v[i]];
    }
    both.type = outer.type;
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &both, &rw->var[0], 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* A reshape that only puts in or leaves out extents of 1, then repeated: the source without those, repeated. */
sx_code sx_rule_broadcast_reshape(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    const sx_type *middle = sx_rewrite_type(rw, rw->node[1]);
    const sx_type *x = sx_rewrite_type(rw, rw->var[0]);
    sx_type squeezed = {.dtype = x->dtype};
    sx_attr direct = {.present = SX_A(dims) | SX_A(type), .type = attr.type};
    for (uint32_t d = 0; d < x->rank; d++) {
        if (!is_one(x->dim[d])) {
            squeezed.dim[squeezed.rank++] = x->dim[d];
        }
    }
    for (uint32_t d = 0; d < middle->rank; d++) {
        if (is_one(middle->dim[d])) {
            continue;
        }
        uint32_t k = direct.dims.count++;
        if (k >= squeezed.rank || !sx_dim_equal(squeezed.dim[k], middle->dim[d])) {
            return SX_OK;
        }
        direct.dims.v[k] = attr.dims.v[d];
    }
    if (direct.dims.count != squeezed.rank) {
        return SX_OK;
    }
    uint32_t source;
    uint32_t node;
    SX_TRY(sx_rewrite_reshape(rw, rw->var[0], &squeezed, &source));
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &direct, &source, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* A slice that lies inside one part of a concatenation. */
sx_code sx_rule_slice_concatenate(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr slice = sx_rewrite_attr(rw, 0);
    int64_t axis = sx_rewrite_attr(rw, 1).axis;
    uint32_t parts = t->eg.node[rw->node[1]].arity;
    int64_t offset = 0;
    for (uint32_t k = 0; k < parts; k++) {
        uint32_t part = sx_eg_child(&t->eg, rw->node[1], k);
        sx_dim size = sx_tensors_type(t, part)->dim[axis];
        if (!sx_dim_is_constant(size) || slice.limit.v[axis] < 0) {
            return SX_OK;
        }
        if (slice.start.v[axis] >= offset && slice.limit.v[axis] <= offset + size.scale &&
            slice.start.v[axis] < slice.limit.v[axis]) {
            slice.start.v[axis] -= offset;
            slice.limit.v[axis] -= offset;
            uint32_t node;
            SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &slice, &part, 1, &node));
            return sx_rewrite_emit(rw, node);
        }
        offset += size.scale;
    }
    return SX_OK;
}

/* ---- elementwise operations before views that lose no element ---- */

static bool may_pull(const sx_rewrite *rw, uint32_t view_node)
{
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), view_node);
    return op == SX_OP_RESHAPE || op == SX_OP_TRANSPOSE || op == SX_OP_BROADCAST;
}

/* The view of matched node `view_node` again, over `x`, whose element type may differ from before. */
static sx_code view_again(sx_rewrite *rw, uint32_t view_node, uint32_t x, uint32_t *node)
{
    *node = SX_EG_NONE;
    if (x == SX_EG_NONE) {
        return SX_OK;
    }
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr attr = *sx_tensors_attr(t, view_node);
    if ((attr.present & SX_A(type)) != 0) {
        attr.type.dtype = sx_tensors_type(t, x)->dtype;
    }
    return sx_rewrite_add(rw, sx_tensors_op(t, view_node), &attr, &x, 1, node);
}

/* Do two views move elements in the same way, whatever their type? */
static bool same_movement(const sx_rewrite *rw, uint32_t a, uint32_t b)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr x = *sx_tensors_attr(t, a);
    sx_attr y = *sx_tensors_attr(t, b);
    x.type.dtype = y.type.dtype;
    return sx_tensors_op(t, a) == sx_tensors_op(t, b) && sx_attr_equal(&x, &y);
}

sx_code sx_rule_pull_unary(sx_rewrite *rw)
{
    if (!may_pull(rw, rw->node[1])) {
        return SX_OK;
    }
    uint32_t node;
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    SX_TRY(sx_rewrite_add(rw, op, NULL, &rw->var[0], 1, &node));
    SX_TRY(view_again(rw, rw->node[1], node, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_pull_convert(sx_rewrite *rw)
{
    if (!may_pull(rw, rw->node[1])) {
        return SX_OK;
    }
    sx_attr attr = {.present = SX_A(type), .type = *sx_rewrite_type(rw, rw->var[0])};
    attr.type.dtype = sx_rewrite_type(rw, rw->node[0])->dtype;
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVERT, &attr, &rw->var[0], 1, &node));
    SX_TRY(view_again(rw, rw->node[1], node, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_pull_binary(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    bool same_view = t->eg.node[rw->node[1]].attr == t->eg.node[rw->node[2]].attr &&
                     t->eg.node[rw->node[1]].op == t->eg.node[rw->node[2]].op;
    if (!may_pull(rw, rw->node[1]) || !same_view ||
        !sx_type_equal(sx_rewrite_type(rw, rw->var[0]), sx_rewrite_type(rw, rw->var[1]))) {
        return SX_OK;
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, sx_tensors_op(t, rw->node[0]), NULL, rw->var, 2, &node));
    SX_TRY(view_again(rw, rw->node[1], node, &node));
    return sx_rewrite_emit(rw, node);
}

/* The same view of every operand. */
static sx_code pull_same(sx_rewrite *rw, uint32_t count)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr attr = sx_rewrite_attr(rw, 0);
    for (uint32_t k = 1; k <= count; k++) {
        if (!may_pull(rw, rw->node[k]) || !same_movement(rw, rw->node[1], rw->node[k]) ||
            !sx_type_same_shape(sx_rewrite_type(rw, rw->var[0]),
                                sx_rewrite_type(rw, rw->var[k - 1]))) {
            return SX_OK;
        }
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, sx_tensors_op(t, rw->node[0]), &attr, rw->var, count, &node));
    SX_TRY(view_again(rw, rw->node[1], node, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_pull_compare(sx_rewrite *rw)
{
    return pull_same(rw, 2);
}

sx_code sx_rule_pull_select(sx_rewrite *rw)
{
    return pull_same(rw, 3);
}

static sx_code pull_value(sx_rewrite *rw, uint32_t x, uint32_t c, bool value_first)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_fact *fact = sx_tensors_fact(t, c);
    if (!may_pull(rw, rw->node[1]) || fact->has_value == 0) {
        return SX_OK;
    }
    sx_type type = *sx_rewrite_type(rw, x);
    uint32_t value;
    uint32_t node;
    SX_TRY(sx_tensors_add_value(rw->cx, t, &type, fact->value, &value));
    uint32_t child[2] = {value_first ? value : x, value_first ? x : value};
    SX_TRY(sx_rewrite_add(rw, sx_tensors_op(t, rw->node[0]), NULL, child, 2, &node));
    SX_TRY(view_again(rw, rw->node[1], node, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_pull_value_right(sx_rewrite *rw)
{
    return pull_value(rw, rw->var[0], rw->var[1], false);
}

sx_code sx_rule_pull_value_left(sx_rewrite *rw)
{
    return pull_value(rw, rw->var[1], rw->var[0], true);
}
