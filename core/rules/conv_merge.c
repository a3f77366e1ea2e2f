/* Convolutions as contractions and scales, joined with one another, enlarged so that they can be. Conditions
 * on groups: Jia 2019 states several of these without them, and they are false for unequal groups. */
#include "core/egraph/multi.h"
#include "core/rules/conv.h"

#include <string.h>

static bool is_one(sx_dim dim)
{
    return sx_dim_equal(dim, sx_dim_of(1));
}

static bool same_ints(const sx_ints *a, const sx_ints *b)
{
    return a->count == b->count && memcmp(a->v, b->v, a->count * sizeof(a->v[0])) == 0;
}

/* Windows of one element. */
static bool is_point(const sx_type *w)
{
    bool point = true;
    for (uint32_t d = 2; d < w->rank; d++) {
        point = point && is_one(w->dim[d]);
    }
    return point;
}

static bool same_window(const sx_type *w, const sx_type *v)
{
    bool same = w->rank == v->rank;
    for (uint32_t d = 2; same && d < w->rank; d++) {
        same = sx_dim_equal(w->dim[d], v->dim[d]);
    }
    return same;
}

static sx_code join(sx_rewrite *rw, uint32_t a, uint32_t b, int64_t axis, uint32_t *node)
{
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    uint32_t child[2] = {a, b};
    return sx_rewrite_add(rw, SX_OP_CONCATENATE, &attr, child, 2, node);
}

static sx_code convolve(sx_rewrite *rw, const sx_attr *attr, uint32_t x, uint32_t w, uint32_t *node)
{
    uint32_t child[2] = {x, w};
    return sx_rewrite_add(rw, SX_OP_CONVOLUTION, attr, child, 2, node);
}

/* ---- windows of one element ---- */

/* x at the places of the window's steps. */
static sx_code strided(sx_rewrite *rw, const sx_attr *conv, uint32_t x, uint32_t *node)
{
    sx_attr slice = sx_slice_whole(sx_rewrite_type(rw, x));
    for (uint32_t d = 2; d < slice.stride.count; d++) {
        slice.stride.v[d] = conv->stride.v[d - 2];
    }
    *node = x;
    return sx_ints_are(&conv->stride, 1) ? SX_OK
                                         : sx_rewrite_add(rw, SX_OP_SLICE, &slice, &x, 1, node);
}

/* [n, c, ..] by [o, c] gives [n, .., o]. */
sx_code sx_rule_conv_dot(sx_rewrite *rw)
{
    sx_attr conv = sx_rewrite_attr(rw, 0);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    if (conv.groups != 1 || sx_has_padding(&conv) || !is_point(&w)) {
        return SX_OK;
    }
    sx_type matrix = {w.dtype, 2, {w.dim[0], w.dim[1]}};
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    dot.lhs_contract = dot.rhs_contract = (sx_ints){1, {1}};
    sx_attr back = {.present = SX_A(perm), .perm = {w.rank, {0, w.rank - 1}}};
    for (uint32_t d = 2; d < w.rank; d++) {
        back.perm.v[d] = d - 1;
    }
    uint32_t child[2];
    uint32_t node;
    SX_TRY(strided(rw, &conv, rw->var[0], &child[0]));
    SX_TRY(sx_rewrite_reshape(rw, rw->var[1], &matrix, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &back, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* One weight for each channel. */
sx_code sx_rule_conv_depth_scale(sx_rewrite *rw)
{
    sx_attr conv = sx_rewrite_attr(rw, 0);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    if (sx_has_padding(&conv) || !is_point(&w) || !is_one(w.dim[1]) ||
        !sx_dim_equal(w.dim[0], sx_dim_of(conv.groups))) {
        return SX_OK;
    }
    sx_type vector = {w.dtype, 1, {w.dim[0]}};
    uint32_t x;
    uint32_t factor;
    uint32_t node;
    SX_TRY(strided(rw, &conv, rw->var[0], &x));
    SX_TRY(sx_rewrite_reshape(rw, rw->var[1], &vector, &factor));
    SX_TRY(sx_rewrite_repeat(rw, factor, 1, &y, &factor));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, x, factor, &node));
    return sx_rewrite_emit(rw, node);
}

/* A pointwise convolution of a convolution, both with constant weights: the product of the weights. */
sx_code sx_rule_conv_point_conv(sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    sx_type v = *sx_rewrite_type(rw, rw->var[2]);
    if (outer.groups != 1 || inner.groups != 1 || sx_has_padding(&outer) || !is_point(&v) ||
        !sx_ints_are(&outer.stride, 1) || sx_tensors_fact(t, rw->var[1])->is_weight == 0 ||
        sx_tensors_fact(t, rw->var[2])->is_weight == 0) {
        return SX_OK;
    }
    sx_type matrix = {v.dtype, 2, {v.dim[0], v.dim[1]}};
    sx_attr dot = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    dot.lhs_contract = (sx_ints){1, {1}};
    dot.rhs_contract = (sx_ints){1, {0}};
    uint32_t child[2] = {SX_EG_NONE, rw->var[1]};
    uint32_t node;
    SX_ASSERT(w.rank == v.rank);
    SX_TRY(sx_rewrite_reshape(rw, rw->var[2], &matrix, &child[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, &node));
    SX_TRY(convolve(rw, &inner, rw->var[0], node, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- padding ---- */

/* conv(pad(x, 0), w): zeros before and behind the spatial dimensions are the convolution's own. */
sx_code sx_rule_pad_into_conv(sx_rewrite *rw)
{
    sx_attr conv = sx_rewrite_attr(rw, 0);
    sx_attr pad = sx_rewrite_attr(rw, 1);
    if (!sx_ints_are(&pad.interior, 0) || pad.low.v[0] + pad.high.v[0] != 0 ||
        pad.low.v[1] + pad.high.v[1] != 0) {
        return SX_OK;
    }
    for (uint32_t d = 0; d < conv.low.count; d++) {
        conv.low.v[d] += pad.low.v[2 + d];
        conv.high.v[d] += pad.high.v[2 + d];
    }
    uint32_t node;
    SX_TRY(convolve(rw, &conv, rw->var[0], rw->var[1], &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- two that become one ---- */

/* Both images over the channels of both, both weights along `axis`; names: x w y v */
static sx_code convolve_both(sx_rewrite *rw, const sx_attr *conv, int64_t axis)
{
    uint32_t x;
    uint32_t weights;
    uint32_t node;
    SX_TRY(join(rw, rw->var[0], rw->var[2], 1, &x));
    SX_TRY(join(rw, rw->var[1], rw->var[3], axis, &weights));
    SX_TRY(convolve(rw, conv, x, weights, &node));
    return sx_rewrite_emit(rw, node);
}

/* conv(x, w) + conv(y, v): over the channels of both. */
sx_code sx_rule_conv_add(sx_rewrite *rw)
{
    sx_attr conv = sx_rewrite_attr(rw, 1);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    sx_type v = *sx_rewrite_type(rw, rw->var[3]);
    bool fits = conv.groups == 1 && same_window(&w, &v);
    return fits ? convolve_both(rw, &conv, 1) : SX_OK;
}

/* Two convolutions of two operands side by side: groups of one. */
sx_code sx_rule_conv_groups_joined(sx_rewrite *rw)
{
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    sx_attr conv = sx_rewrite_attr(rw, 1);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    sx_type v = *sx_rewrite_type(rw, rw->var[3]);
    if (axis != 1 || !sx_type_equal(&w, &v) || conv.groups > SX_EXTENT_MAX / 2) {
        return SX_OK;
    }
    conv.groups *= 2; /* equal input and output channels of each group on both sides */
    return convolve_both(rw, &conv, 0);
}

/* Two convolutions of one operand side by side: more output channels. */
sx_code sx_rule_conv_outputs_joined(sx_rewrite *rw)
{
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    sx_attr conv = sx_rewrite_attr(rw, 1);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    sx_type v = *sx_rewrite_type(rw, rw->var[2]);
    uint32_t weights;
    uint32_t node;
    if (axis != 1 || conv.groups != 1 || !same_window(&w, &v)) {
        return SX_OK;
    }
    SX_TRY(join(rw, rw->var[1], rw->var[2], 0, &weights));
    SX_TRY(convolve(rw, &conv, rw->var[0], weights, &node));
    return sx_rewrite_emit(rw, node);
}

/* The same weights for two batches. */
sx_code sx_rule_conv_batches_joined(sx_rewrite *rw)
{
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    sx_attr conv = sx_rewrite_attr(rw, 1);
    uint32_t x;
    uint32_t node;
    if (axis != 0) {
        return SX_OK;
    }
    SX_TRY(join(rw, rw->var[0], rw->var[2], 0, &x));
    SX_TRY(convolve(rw, &conv, x, rw->var[1], &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- kernels enlarged by zeros ---- */

/* The zeros that make the window of conv `a` that of conv `b` at the same places; false where there are none. */
static bool zeros_between(const sx_attr *a, const sx_type *w, const sx_attr *b, const sx_type *v,
                          sx_ints *low, sx_ints *high)
{
    int64_t sum = 0;
    bool ok = a->groups == 1 && b->groups == 1 && sx_type_is_static(w) && sx_type_is_static(v) &&
              w->rank == v->rank && same_ints(&a->stride, &b->stride) &&
              sx_ints_are(&a->dilation, 1) && sx_ints_are(&b->dilation, 1);
    *low = *high = sx_ints_of(w->rank, 0);
    for (uint32_t d = 2; ok && d < w->rank; d++) {
        low->v[d] = b->low.v[d - 2] - a->low.v[d - 2];
        high->v[d] = b->high.v[d - 2] - a->high.v[d - 2];
        ok = low->v[d] >= 0 && high->v[d] >= 0 &&
             w->dim[d].scale + low->v[d] + high->v[d] == v->dim[d].scale;
        sum += low->v[d] + high->v[d];
    }
    return ok && sum > 0;
}

/* op(conv(x, w), conv(y, v)) with the window of the one that is smaller enlarged to the other's: matched nodes
 * 1 and 2, classes x, w, y, v. */
static sx_code enlarge(sx_rewrite *rw, sx_op op, const sx_attr *attr, const uint32_t operand[4])
{
    sx_attr conv[2] = {sx_rewrite_attr(rw, 1), sx_rewrite_attr(rw, 2)};
    sx_type weights[2] = {*sx_rewrite_type(rw, operand[1]), *sx_rewrite_type(rw, operand[3])};
    for (uint32_t small = 0; small < 2; small++) {
        uint32_t big = 1 - small;
        sx_ints low;
        sx_ints high;
        if (!zeros_between(&conv[small], &weights[small], &conv[big], &weights[big], &low, &high)) {
            continue;
        }
        uint32_t child[2];
        uint32_t enlarged;
        uint32_t node;
        SX_TRY(sx_rewrite_pad(rw, operand[2 * small + 1], 0, &low, &high, &enlarged));
        SX_TRY(convolve(rw, &conv[big], operand[2 * small], enlarged, &child[small]));
        SX_TRY(convolve(rw, &conv[big], operand[2 * big], operand[2 * big + 1], &child[big]));
        SX_TRY(sx_rewrite_add(rw, op, attr, child, 2, &node));
        return sx_rewrite_emit(rw, node);
    }
    return SX_OK;
}

sx_code sx_rule_conv_enlarge_joined(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    uint32_t operand[4] = {rw->var[0], rw->var[1], rw->var[0], rw->var[2]};
    return attr.axis == 1 ? enlarge(rw, SX_OP_CONCATENATE, &attr, operand) : SX_OK;
}

sx_code sx_rule_conv_enlarge_added(sx_rewrite *rw)
{
    return enlarge(rw, SX_OP_ADD, NULL, rw->var);
}

/* Members of a bucket whose windows are compared pair by pair. */
#define SHARED_MAX 64u

static int64_t count_window(const sx_type *w)
{
    int64_t count = 1;
    for (uint32_t d = 2; d < w->rank; d++) {
        count *= w->dim[d].scale;
    }
    return count;
}

/* Member `small` of the bucket with its window enlarged to that of member `big`; nothing where that cannot be. */
static sx_code enlarge_member(sx_rewrite *rw, uint32_t small, uint32_t big)
{
    uint32_t pair[2] = {small, big};
    sx_ints low;
    sx_ints high;
    uint32_t node;
    sx_rewrite_turn(rw, big);
    sx_attr to = sx_rewrite_attr(rw, 0);
    sx_type v = *sx_rewrite_type(rw, rw->var[1]);
    sx_rewrite_turn(rw, small);
    sx_attr from = sx_rewrite_attr(rw, 0);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    if (!zeros_between(&from, &w, &to, &v, &low, &high)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_run(rw, pair, 2));
    SX_TRY(sx_rewrite_pad(rw, rw->var[1], 0, &low, &high, &node));
    SX_TRY(convolve(rw, &to, rw->var[0], node, &node));
    return sx_rewrite_emit(rw, node);
}

/* Which member has the largest window that member `small` can be enlarged to? `small` if none. */
static uint32_t largest_window(sx_rewrite *rw, uint32_t small)
{
    uint32_t best = small;
    int64_t best_count = 0;
    sx_rewrite_turn(rw, small);
    sx_attr from = sx_rewrite_attr(rw, 0);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    for (uint32_t i = 0; i < rw->bucket->count; i++) {
        sx_ints low;
        sx_ints high;
        sx_rewrite_turn(rw, i);
        const sx_type *v = sx_rewrite_type(rw, rw->var[1]);
        sx_attr to = sx_rewrite_attr(rw, 0);
        rw->bucket->work++;
        if (i != small && zeros_between(&from, &w, &to, v, &low, &high) &&
            count_window(v) > best_count) {
            best = i;
            best_count = count_window(v);
        }
    }
    return best;
}

/* Convolutions of one operand, whoever reads them: each with the largest window of all, where its weights can
 * be filled with zeros, so that they can be merged. The weights are constant: the zeros cost nothing but their
 * products. */
sx_code sx_rule_conv_enlarge_shared(sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t count = rw->bucket->count < SHARED_MAX ? rw->bucket->count : SHARED_MAX;
    for (uint32_t i = 0; i < count; i++) {
        sx_rewrite_turn(rw, i);
        uint32_t w = rw->var[1];
        bool wanted = rw->unguarded || (sx_tensors_fact(t, w)->is_weight != 0 &&
                                        sx_rewrite_member(rw, w, SX_OP_PAD) == SX_EG_NONE);
        uint32_t big = wanted ? largest_window(rw, i) : i;
        if (big != i) {
            SX_TRY(enlarge_member(rw, i, big));
        }
    }
    return SX_OK;
}

/* ---- neighbouring groups with zeros between ---- */

#define MERGED_CHANNELS_MAX 8 /* of a group: beyond a vector the zeros cost more than tiles gain */

/* Weights [g / 2, 2, o, c, ..] of which each half gets zeros for the channels of the other. */
static sx_code with_zeros(sx_rewrite *rw, uint32_t w, const sx_type *pairs, uint32_t half,
                          uint32_t *node)
{
    sx_attr slice = {.present = sx_op_info_of(SX_OP_SLICE)->attrs};
    sx_ints zeros[2] = {sx_ints_of(pairs->rank, 0), sx_ints_of(pairs->rank, 0)};
    slice.start = sx_ints_of(pairs->rank, 0);
    slice.stride = sx_ints_of(pairs->rank, 1);
    slice.limit.count = pairs->rank;
    for (uint32_t d = 0; d < pairs->rank; d++) {
        slice.limit.v[d] = pairs->dim[d].scale;
    }
    slice.start.v[1] = half;
    slice.limit.v[1] = half + 1;
    zeros[half == 0 ? 1 : 0].v[3] = pairs->dim[3].scale; /* behind the first, before the second */
    SX_TRY(sx_rewrite_reshape(rw, w, pairs, node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &slice, node, 1, node));
    return *node == SX_EG_NONE ? SX_OK : sx_rewrite_pad(rw, *node, 0, &zeros[0], &zeros[1], node);
}

sx_code sx_rule_conv_merge_groups(sx_rewrite *rw)
{
    sx_attr conv = sx_rewrite_attr(rw, 0);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    if (conv.groups % 2 != 0 || !sx_type_is_static(&w) ||
        w.dim[1].scale > MERGED_CHANNELS_MAX / 2 ||
        sx_tensors_fact(sx_rewrite_tensors(rw), rw->var[1])->is_weight == 0) {
        return SX_OK;
    }
    sx_type pairs = {w.dtype, w.rank + 2, {sx_dim_of(conv.groups / 2), sx_dim_of(2)}};
    sx_type merged = w;
    pairs.dim[2] = sx_dim_of(w.dim[0].scale / conv.groups);
    for (uint32_t d = 1; d < w.rank; d++) {
        pairs.dim[d + 2] = w.dim[d];
    }
    merged.dim[1].scale *= 2;
    conv.groups /= 2;
    uint32_t half[2];
    uint32_t node;
    SX_TRY(with_zeros(rw, rw->var[1], &pairs, 0, &half[0]));
    SX_TRY(with_zeros(rw, rw->var[1], &pairs, 1, &half[1]));
    SX_TRY(join(rw, half[0], half[1], 1, &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &merged, &node));
    SX_TRY(convolve(rw, &conv, rw->var[0], node, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- layouts ---- */

/* Spatial dimensions in another order, in the operand and in the weights. */
sx_code sx_rule_conv_transpose_spatial(sx_rewrite *rw)
{
    sx_attr conv = sx_rewrite_attr(rw, 0);
    sx_attr transpose = sx_rewrite_attr(rw, 1);
    sx_attr moved = conv;
    sx_attr inverse = {.present = SX_A(perm), .perm = transpose.perm};
    if (transpose.perm.v[0] != 0 || transpose.perm.v[1] != 1) {
        return SX_OK;
    }
    for (uint32_t d = 2; d < transpose.perm.count; d++) {
        int64_t to = transpose.perm.v[d];
        inverse.perm.v[to] = d;
        moved.stride.v[to - 2] = conv.stride.v[d - 2];
        moved.low.v[to - 2] = conv.low.v[d - 2];
        moved.high.v[to - 2] = conv.high.v[d - 2];
        moved.dilation.v[to - 2] = conv.dilation.v[d - 2];
    }
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &inverse, &rw->var[1], 1, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &moved, child, 2, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &transpose, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}
