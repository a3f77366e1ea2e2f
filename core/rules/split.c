/* Contractions of concatenations taken apart, concatenations and sums of contractions joined. */
#include "core/rules/rules.h"

#include <string.h>

/* Concatenations of more parts are left alone. */
#define PARTS_MAX 8u
/* Of convolutions; their sum can be taken in any order, which is many. */
#define CHANNEL_PARTS_MAX 4u

/* Joining costs nothing at run time for what follows from weights: taken apart it is never the better program,
 * and the rules that join would be undone for nothing. */
static bool is_weight(const sx_rewrite *rw, uint32_t class_)
{
    return sx_tensors_fact(sx_rewrite_tensors(rw), class_)->is_weight != 0;
}

static bool is_listed(const sx_ints *list, int64_t value, uint32_t *at)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->v[i] == value) {
            *at = i;
            return true;
        }
    }
    return false;
}

/* The operand `k` of a contraction: its batch and contracted dimensions, and where its first free one is in
 * the result. */
typedef struct {
    const sx_ints *batch, *contract;
    uint32_t rank;
    uint32_t first_free;
} operand;

static operand operand_of(const sx_rewrite *rw, const sx_attr *dot, uint32_t k, uint32_t left,
                          uint32_t right)
{
    uint32_t rank[2] = {sx_rewrite_type(rw, left)->rank, sx_rewrite_type(rw, right)->rank};
    operand o = {.batch = k == 0 ? &dot->lhs_batch : &dot->rhs_batch,
                 .contract = k == 0 ? &dot->lhs_contract : &dot->rhs_contract,
                 .rank = rank[k],
                 .first_free = dot->lhs_batch.count};
    o.first_free += k == 0 ? 0 : rank[0] - dot->lhs_batch.count - dot->lhs_contract.count;
    return o;
}

/* Dimension `axis` of the operand in the result, if it is free. */
static bool result_axis(const operand *o, int64_t axis, uint32_t *in_result)
{
    uint32_t at;
    *in_result = o->first_free;
    for (int64_t d = 0; d < axis; d++) {
        *in_result += is_listed(o->batch, d, &at) || is_listed(o->contract, d, &at) ? 0 : 1;
    }
    return !is_listed(o->batch, axis, &at) && !is_listed(o->contract, axis, &at);
}

static sx_code add_dot(sx_rewrite *rw, const sx_attr *dot, uint32_t left, uint32_t right,
                       uint32_t *node)
{
    uint32_t child[2] = {left, right};
    return sx_rewrite_add(rw, SX_OP_DOT_GENERAL, dot, child, 2, node);
}

/* ---- a [B1 B2 ..] = [a B1, a B2, ..] ---- */

static sx_code split_free(sx_rewrite *rw, uint32_t k)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr dot = sx_rewrite_attr(rw, 0);
    sx_attr join = sx_rewrite_attr(rw, 1);
    uint32_t other = rw->var[0];
    uint32_t whole = rw->node[1];
    uint32_t count = t->eg.node[whole].arity;
    operand o = operand_of(rw, &dot, k, k == 0 ? whole : other, k == 0 ? other : whole);
    uint32_t axis;
    uint32_t part[PARTS_MAX];
    if (count > PARTS_MAX || !result_axis(&o, join.axis, &axis) ||
        (is_weight(rw, whole) && !rw->unguarded)) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        part[i] = sx_eg_child(&t->eg, whole, i);
        SX_TRY(add_dot(rw, &dot, k == 0 ? part[i] : other, k == 0 ? other : part[i], &part[i]));
    }
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONCATENATE, &attr, part, count, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_concatenate_right(sx_rewrite *rw)
{
    return split_free(rw, 1);
}

sx_code sx_rule_dot_concatenate_left(sx_rewrite *rw)
{
    return split_free(rw, 0);
}

/* ---- [A1 A2 ..] B = A1 B1 + A2 B2 + .., where Bi is a slice of B: nothing has to be copied to stand side by
 * side ---- */

static sx_code split_sum(sx_rewrite *rw, uint32_t k)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr dot = sx_rewrite_attr(rw, 0);
    int64_t axis = sx_rewrite_attr(rw, 1).axis;
    uint32_t other = rw->var[0];
    uint32_t whole = rw->node[1];
    uint32_t count = t->eg.node[whole].arity;
    operand o = operand_of(rw, &dot, k, k == 0 ? whole : other, k == 0 ? other : whole);
    uint32_t at;
    if (count > PARTS_MAX || !is_listed(o.contract, axis, &at) ||
        (is_weight(rw, whole) && !rw->unguarded)) {
        return SX_OK;
    }
    uint32_t other_axis = (uint32_t)(k == 0 ? dot.rhs_contract : dot.lhs_contract).v[at];
    sx_attr slice = sx_slice_whole(sx_rewrite_type(rw, other));
    uint32_t sum = SX_EG_NONE;
    int64_t start = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t part = sx_eg_child(&t->eg, whole, i);
        sx_dim extent = sx_rewrite_type(rw, part)->dim[axis];
        if (!sx_dim_is_constant(extent)) {
            return SX_OK;
        }
        uint32_t node;
        slice.start.v[other_axis] = start;
        slice.limit.v[other_axis] = start += extent.scale;
        SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &slice, &other, 1, &node));
        SX_TRY(add_dot(rw, &dot, k == 0 ? part : node, k == 0 ? node : part, &node));
        if (i > 0) {
            uint32_t child[2] = {sum, node};
            SX_TRY(sx_rewrite_add(rw, SX_OP_ADD, NULL, child, 2, &node));
        }
        sum = node;
    }
    return sx_rewrite_emit(rw, sum);
}

sx_code sx_rule_dot_sum_parts_right(sx_rewrite *rw)
{
    return split_sum(rw, 1);
}

sx_code sx_rule_dot_sum_parts_left(sx_rewrite *rw)
{
    return split_sum(rw, 0);
}

/* conv([x1 x2 ..], w) = conv(x1, w1) + conv(x2, w2) + .., where wi are the weights of the channels of xi. */
sx_code sx_rule_conv_sum_parts(sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr conv = sx_rewrite_attr(rw, 0);
    uint32_t whole = rw->node[1];
    uint32_t count = t->eg.node[whole].arity;
    sx_attr slice = sx_slice_whole(sx_rewrite_type(rw, rw->var[0]));
    if (count > CHANNEL_PARTS_MAX || sx_rewrite_attr(rw, 1).axis != 1 || conv.groups != 1 ||
        (is_weight(rw, whole) && !rw->unguarded)) {
        return SX_OK;
    }
    uint32_t sum = SX_EG_NONE;
    int64_t start = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t child[2] = {sx_eg_child(&t->eg, whole, i), SX_EG_NONE};
        sx_dim extent = sx_rewrite_type(rw, child[0])->dim[1];
        if (!sx_dim_is_constant(extent)) {
            return SX_OK;
        }
        slice.start.v[1] = start;
        slice.limit.v[1] = start += extent.scale;
        SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &slice, &rw->var[0], 1, &child[1]));
        SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &conv, child, 2, &child[1]));
        child[0] = sum;
        sum = child[1];
        if (i > 0) {
            SX_TRY(sx_rewrite_add(rw, SX_OP_ADD, NULL, child, 2, &sum));
        }
    }
    return sx_rewrite_emit(rw, sum);
}

/* ---- [a B1, a B2, ..] = a [B1 B2 ..], along any dimension of the result ---- */

/* A contraction of this attribute in the class of `part` that has `shared` as operand `k` (any, if that is
 * SX_EG_NONE). */
static uint32_t find_dot(const sx_rewrite *rw, uint32_t part, uint32_t attr, uint32_t k,
                         uint32_t shared)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t first = sx_eg_find(&t->eg, part);
    uint32_t n = first;
    do {
        const sx_eg_node *node = &t->eg.node[n];
        if ((node->dead == 0 || rw->unguarded) && sx_tensors_op(t, n) == SX_OP_DOT_GENERAL &&
            node->attr == attr && (shared == SX_EG_NONE || sx_eg_child(&t->eg, n, k) == shared) &&
            sx_rewrite_pick(rw, n)) {
            return n;
        }
        n = sx_eg_member_next(&t->eg, n);
    } while (n != first);
    return SX_EG_NONE;
}

sx_code sx_rule_concatenate_dots(sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t count = t->eg.node[rw->node[0]].arity;
    uint32_t dot_attr = t->eg.node[rw->node[1]].attr;
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    sx_attr dot = sx_rewrite_attr(rw, 1);
    int64_t batch_count = dot.lhs_batch.count;
    operand right = operand_of(rw, &dot, 1, rw->var[0], rw->var[1]);
    bool batched = axis < batch_count; /* both operands are joined, else one is shared */
    uint32_t k = axis < right.first_free ? 1 : 0;
    uint32_t shared = batched ? SX_EG_NONE : sx_eg_find(&t->eg, rw->var[k]);
    uint32_t part[2][SX_EG_ARITY_MAX];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = i == 0
                         ? rw->node[1]
                         : find_dot(rw, sx_eg_child(&t->eg, rw->node[0], i), dot_attr, k, shared);
        if (n == SX_EG_NONE) {
            return SX_OK;
        }
        part[0][i] = sx_eg_child(&t->eg, n, 0);
        part[1][i] = sx_eg_child(&t->eg, n, 1);
        if (!batched && !rw->unguarded && !is_weight(rw, part[1 - k][i])) {
            return SX_OK; /* then the operands would have to be copied instead of the results */
        }
    }
    uint32_t child[2] = {rw->var[0], rw->var[1]};
    for (uint32_t j = 0; j < 2; j++) {
        operand o = operand_of(rw, &dot, j, rw->var[0], rw->var[1]);
        sx_attr join = {.present = SX_A(axis)};
        if (!batched && j == k) {
            continue;
        }
        uint32_t in_result = 0;
        bool found = batched;
        join.axis = batched ? o.batch->v[axis] : 0;
        for (uint32_t d = 0; d < o.rank && !found; d++) {
            join.axis = d;
            found = result_axis(&o, d, &in_result) && in_result == axis;
        }
        SX_ASSERT(found);
        SX_TRY(sx_rewrite_add(rw, SX_OP_CONCATENATE, &join, part[j], count, &child[j]));
    }
    uint32_t node;
    SX_TRY(add_dot(rw, &dot, child[0], child[1], &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- A B + P Q = [A P] [B; Q] ---- */

/* Equal but for one dimension, and that a constant in both. */
static bool fit(const sx_type *x, const sx_type *y, int64_t axis)
{
    bool same = x->dtype == y->dtype && x->rank == y->rank;
    for (uint32_t d = 0; d < x->rank && same; d++) {
        same = d == axis ? sx_dim_is_constant(x->dim[d]) && sx_dim_is_constant(y->dim[d])
                         : sx_dim_equal(x->dim[d], y->dim[d]);
    }
    return same;
}

/* Joined at no cost at run time: both follow from weights, or both are parts of a value (which may stand side
 * by side already). */
static bool joins_free(const sx_rewrite *rw, uint32_t x, uint32_t y)
{
    const sx_eg *eg = rw->eg;
    bool slices = sx_eg_has_op(eg, sx_eg_find(eg, x), SX_OP_SLICE) &&
                  sx_eg_has_op(eg, sx_eg_find(eg, y), SX_OP_SLICE);
    return x != y && ((is_weight(rw, x) && is_weight(rw, y)) || slices);
}

/* With a shared operand the sum of the others is the better program. */
static bool is_useful(const sx_rewrite *rw)
{
    return rw->unguarded || rw->open ||
           (joins_free(rw, rw->var[0], rw->var[2]) && joins_free(rw, rw->var[1], rw->var[3]));
}

/* The operands 0 and 2 joined along axis[0], 1 and 3 along axis[1], under operation `op`. */
static sx_code join_both(sx_rewrite *rw, sx_op op, const sx_attr *attr, const int64_t axis[2])
{
    uint32_t joined[2];
    uint32_t node;
    for (uint32_t k = 0; k < 2; k++) {
        sx_attr join = {.present = SX_A(axis), .axis = axis[k]};
        uint32_t pair[2] = {rw->var[k], rw->var[k + 2]};
        SX_TRY(sx_rewrite_add(rw, SX_OP_CONCATENATE, &join, pair, 2, &joined[k]));
    }
    SX_TRY(sx_rewrite_add(rw, op, attr, joined, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_sum_merge(sx_rewrite *rw)
{
    sx_attr dot = sx_rewrite_attr(rw, 1);
    bool done = false;
    if (!is_useful(rw)) {
        return SX_OK;
    }
    for (uint32_t i = dot.lhs_contract.count; i-- > 0 && (!done || rw->unguarded);) {
        int64_t axis[2] = {dot.lhs_contract.v[i], dot.rhs_contract.v[i]};
        if (fit(sx_rewrite_type(rw, rw->var[0]), sx_rewrite_type(rw, rw->var[2]), axis[0]) &&
            fit(sx_rewrite_type(rw, rw->var[1]), sx_rewrite_type(rw, rw->var[3]), axis[1])) {
            SX_TRY(join_both(rw, SX_OP_DOT_GENERAL, &dot, axis));
            done = true;
        }
    }
    return SX_OK;
}

/* Of convolutions the input channels, where every output reads all of them. */
sx_code sx_rule_conv_sum_merge(sx_rewrite *rw)
{
    static const int64_t axis[2] = {1, 1};
    sx_attr conv = sx_rewrite_attr(rw, 1);
    if (conv.groups != 1 || !is_useful(rw) ||
        !fit(sx_rewrite_type(rw, rw->var[0]), sx_rewrite_type(rw, rw->var[2]), 1) ||
        !fit(sx_rewrite_type(rw, rw->var[1]), sx_rewrite_type(rw, rw->var[3]), 1)) {
        return SX_OK;
    }
    return join_both(rw, SX_OP_CONVOLUTION, &conv, axis);
}
