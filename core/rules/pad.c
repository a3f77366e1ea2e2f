/* Padding and reversal: their algebra, and operations that pass them. */
#include <string.h>

#include "core/rules/conv.h"

static uint32_t reversed_set(const sx_attr *attr)
{
    uint32_t set = 0;
    for (uint32_t k = 0; k < attr->dims.count; k++) {
        set |= 1u << attr->dims.v[k];
    }
    return set;
}

/* x reversed along the dimensions of `set`, those of extent 1 left out; x itself if none is left. */
static sx_code reversed(sx_rewrite *rw, uint32_t x, uint32_t set, uint32_t *node)
{
    *node = x;
    if (x == SX_EG_NONE) {
        return SX_OK;
    }
    sx_type type = *sx_rewrite_type(rw, x);
    sx_attr attr = {.present = SX_A(dims)};
    for (uint32_t d = 0; d < type.rank; d++) {
        if ((set & 1u << d) != 0 && !sx_dim_equal(type.dim[d], sx_dim_of(1))) {
            attr.dims.v[attr.dims.count++] = d;
        }
    }
    return attr.dims.count == 0 ? SX_OK : sx_rewrite_add(rw, SX_OP_REVERSE, &attr, &x, 1, node);
}

/* ---- reverse ---- */

sx_code sx_rule_reverse_nothing(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    uint32_t node;
    SX_TRY(reversed(rw, rw->var[0], reversed_set(&attr), &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reverse_reverse(sx_rewrite *rw)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    uint32_t node;
    SX_TRY(reversed(rw, rw->var[0], reversed_set(&outer) ^ reversed_set(&inner), &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reverse_unary(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 1);
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]), NULL, rw->var, 1,
                          &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REVERSE, &attr, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reverse_binary(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 1);
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]), NULL, rw->var, 2,
                          &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REVERSE, &attr, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reverse_transpose(sx_rewrite *rw)
{
    sx_attr transpose = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    uint32_t set = reversed_set(&inner);
    uint32_t moved = 0;
    for (uint32_t d = 0; d < transpose.perm.count; d++) {
        moved |= (set >> transpose.perm.v[d] & 1) << d;
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &transpose, rw->var, 1, &node));
    SX_TRY(reversed(rw, node, moved, &node));
    return sx_rewrite_emit(rw, node);
}

/* The parts reversed, the last one first where the axis is. */
sx_code sx_rule_reverse_concatenate(sx_rewrite *rw)
{
    const sx_eg *eg = &sx_rewrite_tensors(rw)->eg;
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_attr join = sx_rewrite_attr(rw, 1);
    uint32_t set = reversed_set(&attr);
    uint32_t arity = eg->node[rw->node[1]].arity;
    bool turned = (set >> join.axis & 1) != 0;
    uint32_t part[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < arity; k++) {
        uint32_t child = sx_eg_child(eg, rw->node[1], turned ? arity - 1 - k : k);
        SX_TRY(reversed(rw, child, set, &part[k]));
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONCATENATE, &join, part, arity, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reverse_pad(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_attr pad = sx_rewrite_attr(rw, 1);
    uint32_t child[2] = {SX_EG_NONE, rw->var[1]};
    uint32_t node;
    for (uint32_t k = 0; k < attr.dims.count; k++) {
        int64_t d = attr.dims.v[k];
        int64_t low = pad.low.v[d];
        pad.low.v[d] = pad.high.v[d];
        pad.high.v[d] = low;
    }
    SX_TRY(reversed(rw, rw->var[0], reversed_set(&attr), &child[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_PAD, &pad, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- pad ---- */

sx_code sx_rule_pad_nothing(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    bool any = sx_has_padding(&attr) || !sx_ints_are(&attr.interior, 0);
    return any ? SX_OK : sx_rewrite_emit(rw, rw->var[0]);
}

/* Padding of what is padded with the same value. An outer interior makes the result longer than both together:
 * another type. */
sx_code sx_rule_pad_pad(sx_rewrite *rw)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr both = sx_rewrite_attr(rw, 1);
    for (uint32_t d = 0; d < both.low.count; d++) {
        both.low.v[d] += outer.low.v[d];
        both.high.v[d] += outer.high.v[d];
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_PAD, &both, rw->var, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_pad_unary(sx_rewrite *rw)
{
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    sx_attr pad = sx_rewrite_attr(rw, 1);
    uint32_t child[2];
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, NULL, &rw->var[0], 1, &child[0]));
    SX_TRY(sx_rewrite_add(rw, op, NULL, &rw->var[1], 1, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_PAD, &pad, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_pad_transpose(sx_rewrite *rw)
{
    sx_attr transpose = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    sx_attr pad = inner;
    for (uint32_t d = 0; d < transpose.perm.count; d++) {
        pad.low.v[d] = inner.low.v[transpose.perm.v[d]];
        pad.high.v[d] = inner.high.v[transpose.perm.v[d]];
        pad.interior.v[d] = inner.interior.v[transpose.perm.v[d]];
    }
    uint32_t child[2] = {SX_EG_NONE, rw->var[1]};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &transpose, rw->var, 1, &child[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_PAD, &pad, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* Elements and padding are one known number. */
sx_code sx_rule_pad_value(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_fact *x = sx_tensors_fact(t, rw->var[0]);
    const sx_fact *value = sx_tensors_fact(t, rw->var[1]);
    if (x->has_value == 0 || value->has_value == 0 ||
        memcmp(&x->value, &value->value, sizeof(x->value)) != 0) {
        return SX_OK;
    }
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    sx_attr attr = {.present = SX_A(dims) | SX_A(type), .type = type};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &attr, &rw->var[1], 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* A slice without steps of what is padded without interior: a slice of the operand with what is left of the
 * padding, or padding alone. */
sx_code sx_rule_slice_pad(sx_rewrite *rw)
{
    sx_attr slice = sx_rewrite_attr(rw, 0);
    sx_attr pad = sx_rewrite_attr(rw, 1);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    bool outside = false;
    if (!sx_ints_are(&slice.stride, 1) || !sx_ints_are(&pad.interior, 0)) {
        return SX_OK;
    }
    for (uint32_t d = 0; d < x.rank; d++) {
        if (!sx_dim_is_constant(x.dim[d])) {
            if (slice.limit.v[d] >= 0) {
                return SX_OK;
            }
            continue;
        }
        int64_t start = slice.start.v[d] - pad.low.v[d]; /* in the operand */
        int64_t limit = slice.limit.v[d] - pad.low.v[d];
        int64_t extent = x.dim[d].scale;
        outside = outside || start >= extent || limit <= 0;
        slice.start.v[d] = sx_max_i64(0, start);
        slice.limit.v[d] = sx_min_i64(extent, limit);
        pad.low.v[d] = sx_max_i64(0, -start);
        pad.high.v[d] = sx_max_i64(0, limit - extent);
    }
    uint32_t node;
    if (outside) {
        sx_attr attr = {.present = SX_A(dims) | SX_A(type), .type = y};
        SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &attr, &rw->var[1], 1, &node));
        return sx_rewrite_emit(rw, node);
    }
    uint32_t child[2] = {SX_EG_NONE, rw->var[1]};
    SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &slice, rw->var, 1, &child[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_PAD, &pad, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}
