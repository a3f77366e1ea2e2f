/* Contractions: transposes and reshapes absorbed, association, scales. Result dimensions: batch, left free,
 * right free. */
#include "core/rules/rules.h"

#include <string.h>

static bool contains(const sx_ints *list, int64_t value)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->v[i] == value) {
            return true;
        }
    }
    return false;
}

/* The dimensions of an operand that are neither batch nor contracted, ascending. */
static sx_ints free_dims(uint32_t rank, const sx_ints *batch, const sx_ints *contract)
{
    sx_ints list = {0};
    for (uint32_t d = 0; d < rank; d++) {
        if (!contains(batch, d) && !contains(contract, d)) {
            list.v[list.count++] = d;
        }
    }
    return list;
}

typedef struct {
    sx_ints *batch;
    sx_ints *contract;
} side;

static side side_of(sx_attr *attr, bool left)
{
    return left ? (side){&attr->lhs_batch, &attr->lhs_contract}
                : (side){&attr->rhs_batch, &attr->rhs_contract};
}

/* ---- transposes into an operand: exact where the free dimensions keep their order ---- */

static sx_code absorb_transpose(sx_rewrite *rw, bool left)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_ints perm = sx_rewrite_attr(rw, 1).perm;
    side s = side_of(&attr, left);
    sx_ints free = free_dims(perm.count, s.batch, s.contract);
    for (uint32_t i = 1; i < free.count; i++) {
        if (perm.v[free.v[i - 1]] > perm.v[free.v[i]]) {
            return SX_OK;
        }
    }
    for (uint32_t i = 0; i < s.batch->count; i++) {
        s.batch->v[i] = perm.v[s.batch->v[i]];
    }
    for (uint32_t i = 0; i < s.contract->count; i++) {
        s.contract->v[i] = perm.v[s.contract->v[i]];
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &attr, rw->var, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_transpose_left(sx_rewrite *rw)
{
    return absorb_transpose(rw, true);
}

sx_code sx_rule_dot_transpose_right(sx_rewrite *rw)
{
    return absorb_transpose(rw, false);
}

/* A B = transposed (B A): the same products summed in the same order; reassociating because the plan of a
 * contraction is keyed by N, which becomes M. */
sx_code sx_rule_dot_swap(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_attr swapped = {.present = attr.present,
                       .lhs_batch = attr.rhs_batch,
                       .rhs_batch = attr.lhs_batch,
                       .lhs_contract = attr.rhs_contract,
                       .rhs_contract = attr.lhs_contract};
    uint32_t batch = attr.lhs_batch.count;
    uint32_t contracted = attr.lhs_contract.count;
    uint32_t left = sx_rewrite_type(rw, rw->var[0])->rank - batch - contracted;
    uint32_t right = sx_rewrite_type(rw, rw->var[1])->rank - batch - contracted;
    uint32_t child[2] = {rw->var[1], rw->var[0]};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &swapped, child, 2, &node));
    sx_attr back = {.present = SX_A(perm)};
    back.perm.count = batch + left + right;
    for (uint32_t d = 0; d < back.perm.count; d++) {
        uint32_t from = d;
        if (d >= batch) {
            from = d < batch + left ? d + right : d - left;
        }
        back.perm.v[d] = from;
    }
    if (left > 0 && right > 0) {
        SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &back, &node, 1, &node));
    }
    return sx_rewrite_emit(rw, node);
}

/* ---- reshapes that merge whole dimensions: contracted over the parts ---- */

/* first[j] .. first[j + 1] are the dimensions of `source` whose product is dimension j of `merged`. */
static bool find_groups(const sx_type *source, const sx_type *merged, uint32_t first[])
{
    uint32_t at = 0;
    for (uint32_t j = 0; j < merged->rank; j++) {
        first[j] = at;
        if (at >= source->rank) {
            return false;
        }
        sx_dim product = source->dim[at++];
        while (!sx_dim_equal(product, merged->dim[j])) {
            if (at >= source->rank || !sx_dim_multiply(product, source->dim[at++], &product)) {
                return false;
            }
        }
    }
    first[merged->rank] = at;
    return at == source->rank && source->rank > merged->rank;
}

/* Dimensions of a list spelled out as the dimensions of their groups. */
static bool expand(const sx_ints *list, const uint32_t first[], sx_ints *expanded)
{
    *expanded = (sx_ints){0};
    for (uint32_t i = 0; i < list->count; i++) {
        for (uint32_t d = first[list->v[i]]; d < first[list->v[i] + 1]; d++) {
            if (expanded->count >= SX_RANK_MAX) {
                return false;
            }
            expanded->v[expanded->count++] = d;
        }
    }
    return true;
}

/* The type of the other operand with the dimensions paired with groups split likewise, and where each old
 * dimension begins. */
static bool split_partner(const sx_type *partner, const side *own, const side *other,
                          const sx_type *source, const uint32_t own_first[], sx_type *split,
                          uint32_t first[])
{
    *split = (sx_type){.dtype = partner->dtype};
    for (uint32_t d = 0; d < partner->rank; d++) {
        first[d] = split->rank;
        int64_t pair = -1;
        for (uint32_t i = 0; i < other->batch->count; i++) {
            pair = other->batch->v[i] == d ? own->batch->v[i] : pair;
        }
        for (uint32_t i = 0; i < other->contract->count; i++) {
            pair = other->contract->v[i] == d ? own->contract->v[i] : pair;
        }
        uint32_t from = pair < 0 ? 0 : own_first[pair];
        uint32_t to = pair < 0 ? 1 : own_first[pair + 1];
        for (uint32_t k = from; k < to; k++) {
            if (split->rank >= SX_RANK_MAX) {
                return false;
            }
            split->dim[split->rank++] = pair < 0 ? partner->dim[d] : source->dim[k];
        }
    }
    first[partner->rank] = split->rank;
    return true;
}

static sx_code split_dims(sx_rewrite *rw, bool left)
{
    uint32_t x = rw->var[left ? 0 : 1];
    uint32_t partner = rw->var[left ? 1 : 0];
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]); /* or online_dot */
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type source = *sx_rewrite_type(rw, x);
    sx_type merged = *sx_rewrite_type(rw, rw->node[1]);
    uint32_t own_first[SX_RANK_MAX + 1];
    uint32_t other_first[SX_RANK_MAX + 1];
    if (!find_groups(&source, &merged, own_first)) {
        return SX_OK;
    }
    side own = side_of(&attr, left);
    side other = side_of(&attr, !left);
    sx_type split;
    sx_ints lists[4];
    if (!split_partner(sx_rewrite_type(rw, partner), &own, &other, &source, own_first, &split,
                       other_first) ||
        !expand(own.batch, own_first, &lists[0]) || !expand(own.contract, own_first, &lists[1]) ||
        !expand(other.batch, other_first, &lists[2]) ||
        !expand(other.contract, other_first, &lists[3])) {
        return SX_OK;
    }
    *own.batch = lists[0];
    *own.contract = lists[1];
    *other.batch = lists[2];
    *other.contract = lists[3];
    uint32_t result_rank = source.rank + split.rank - 2 * lists[1].count - lists[0].count;
    if (result_rank > SX_RANK_MAX) {
        return SX_OK;
    }
    uint32_t reshaped;
    SX_TRY(sx_rewrite_reshape(rw, partner, &split, &reshaped));
    uint32_t child[2] = {left ? x : reshaped, left ? reshaped : x};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, &attr, child, 2, &node));
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    SX_TRY(sx_rewrite_reshape(rw, node, &type, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_split_left(sx_rewrite *rw)
{
    return split_dims(rw, true);
}

sx_code sx_rule_dot_split_right(sx_rewrite *rw)
{
    return split_dims(rw, false);
}

/* ---- reshapes that split or merge free dimensions only: of the result ---- */

static bool is_bound(const side *s, uint32_t d)
{
    return contains(s->batch, d) || contains(s->contract, d);
}

/* Dimensions of `x` and of its reshape `y` walked in segments of equal size: bound dimensions of y must be
 * dimensions of x, whose numbers go to `place`; free ones may be cut in any way. *cut: some are. */
static bool walk_free(const sx_type *x, const sx_type *y, const side *s, int64_t place[], bool *cut)
{
    uint32_t a = 0;
    uint32_t b = 0;
    *cut = false;
    while (b < y->rank) {
        if (is_bound(s, b)) {
            if (a >= x->rank || !sx_dim_equal(x->dim[a], y->dim[b])) {
                return false;
            }
            place[b++] = a++;
            continue;
        }
        sx_dim left = sx_dim_of(1);
        sx_dim right = sx_dim_of(1);
        uint32_t a_first = a;
        uint32_t b_first = b;
        while (b < y->rank && !is_bound(s, b)) {
            if (!sx_dim_multiply(right, y->dim[b++], &right)) {
                return false;
            }
        }
        while (!sx_dim_equal(left, right)) {
            if (a >= x->rank || !sx_dim_multiply(left, x->dim[a++], &left)) {
                return false;
            }
        }
        *cut = *cut || b - b_first != a - a_first;
    }
    return a == x->rank;
}

/* Only where the source has fewer dimensions; the other way round is dot-split. */
static sx_code unmerge(sx_rewrite *rw, bool left)
{
    uint32_t x = rw->var[left ? 0 : 1];
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_type source = *sx_rewrite_type(rw, x);
    sx_type cut = *sx_rewrite_type(rw, rw->node[1]);
    side own = side_of(&attr, left);
    int64_t place[SX_RANK_MAX];
    bool differs;
    if (!walk_free(&source, &cut, &own, place, &differs) || !differs || source.rank > cut.rank) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < own.batch->count; i++) {
        own.batch->v[i] = place[own.batch->v[i]];
    }
    for (uint32_t i = 0; i < own.contract->count; i++) {
        own.contract->v[i] = place[own.contract->v[i]];
    }
    uint32_t child[2] = {left ? x : rw->var[0], left ? rw->var[1] : x};
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &attr, child, 2, &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &type, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_unmerged_left(sx_rewrite *rw)
{
    return unmerge(rw, true);
}

sx_code sx_rule_dot_unmerged_right(sx_rewrite *rw)
{
    return unmerge(rw, false);
}

/* ---- association: plain matrix chains, the left factor of any rank ---- */

static bool is_plain(const sx_attr *attr)
{
    return attr->lhs_batch.count == 0 && attr->lhs_contract.count == 1;
}

static sx_attr plain_dot(int64_t left, int64_t right)
{
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {left}};
    attr.rhs_contract = (sx_ints){1, {right}};
    return attr;
}

/* Is the product of two operands one of weights, or of numbers that have no range? */
static bool are_weights(const sx_rewrite *rw, uint32_t a, uint32_t b)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    return sx_dtype_class_of(sx_rewrite_type(rw, a)->dtype) != SX_CLASS_FLOAT ||
           (sx_tensors_fact(t, a)->is_weight != 0 && sx_tensors_fact(t, b)->is_weight != 0);
}

/* (A B) C = A (B C), B and C matrices. */
static sx_code associate_right(sx_rewrite *rw, bool far)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    const sx_type *ab = sx_rewrite_type(rw, rw->node[1]);
    uint32_t a = rw->var[0];
    uint32_t b = rw->var[1];
    uint32_t c = rw->var[2];
    if (!is_plain(&outer) || !is_plain(&inner) || sx_rewrite_type(rw, b)->rank != 2 ||
        sx_rewrite_type(rw, c)->rank != 2 || outer.lhs_contract.v[0] != ab->rank - 1 ||
        !sx_rewrite_may(rw, far, are_weights(rw, b, c))) {
        return SX_OK;
    }
    sx_attr attr = plain_dot(1 - inner.rhs_contract.v[0], outer.rhs_contract.v[0]);
    uint32_t bc_child[2] = {b, c};
    uint32_t bc;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &attr, bc_child, 2, &bc));
    attr = plain_dot(inner.lhs_contract.v[0], 0);
    uint32_t child[2] = {a, bc};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &attr, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_associate_right(sx_rewrite *rw)
{
    return associate_right(rw, false);
}

sx_code sx_rule_dot_associate_far_right(sx_rewrite *rw)
{
    return associate_right(rw, true);
}

/* A (B C) = (A B) C, B and C matrices, A contracted with the rows of B C. */
static sx_code associate_left(sx_rewrite *rw, bool far)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    uint32_t a = rw->var[0];
    uint32_t b = rw->var[1];
    uint32_t c = rw->var[2];
    if (!is_plain(&outer) || !is_plain(&inner) || sx_rewrite_type(rw, b)->rank != 2 ||
        sx_rewrite_type(rw, c)->rank != 2 || outer.rhs_contract.v[0] != 0 ||
        !sx_rewrite_may(rw, far, are_weights(rw, a, b))) {
        return SX_OK;
    }
    sx_attr attr = plain_dot(outer.lhs_contract.v[0], 1 - inner.lhs_contract.v[0]);
    uint32_t ab_child[2] = {a, b};
    uint32_t ab;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &attr, ab_child, 2, &ab));
    if (ab == SX_EG_NONE) {
        return SX_OK;
    }
    attr = plain_dot(sx_rewrite_type(rw, ab)->rank - 1, inner.rhs_contract.v[0]);
    uint32_t child[2] = {ab, c};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &attr, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_associate_left(sx_rewrite *rw)
{
    return associate_left(rw, false);
}

sx_code sx_rule_dot_associate_far_left(sx_rewrite *rw)
{
    return associate_left(rw, true);
}

/* ---- scales ---- */

/* x times the value of class `scale`, in the shape of x. */
static sx_code scaled(sx_rewrite *rw, uint32_t x, uint32_t scale, uint32_t *node)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_type type = *sx_tensors_type(t, x);
    uint32_t value;
    SX_TRY(sx_tensors_add_value(rw->cx, t, &type, sx_tensors_fact(t, scale)->value, &value));
    uint32_t child[2] = {x, value};
    return sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, child, 2, node);
}

/* (a s) b = a (b s) = (a b) s for a known value s. */
static sx_code pull_scale(sx_rewrite *rw, uint32_t a, uint32_t b, uint32_t s, bool far)
{
    bool wraps = sx_dtype_class_of(sx_rewrite_type(rw, a)->dtype) != SX_CLASS_FLOAT;
    if (sx_tensors_fact(sx_rewrite_tensors(rw), s)->has_value == 0 ||
        !sx_rewrite_may(rw, far, wraps || sx_rewrite_is_factor_near_one(rw, s))) {
        return SX_OK;
    }
    sx_attr attr = sx_rewrite_attr(rw, 0);
    uint32_t child[2] = {a, b};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &attr, child, 2, &node));
    if (node != SX_EG_NONE) {
        SX_TRY(scaled(rw, node, s, &node));
    }
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_scale_left(sx_rewrite *rw)
{
    return pull_scale(rw, rw->var[0], rw->var[2], rw->var[1], false);
}

sx_code sx_rule_dot_scale_far_left(sx_rewrite *rw)
{
    return pull_scale(rw, rw->var[0], rw->var[2], rw->var[1], true);
}

sx_code sx_rule_dot_scale_right(sx_rewrite *rw)
{
    return pull_scale(rw, rw->var[0], rw->var[1], rw->var[2], false);
}

sx_code sx_rule_dot_scale_far_right(sx_rewrite *rw)
{
    return pull_scale(rw, rw->var[0], rw->var[1], rw->var[2], true);
}

/* A factor of the result moves into an operand that follows from weights: computed once at load. */
sx_code sx_rule_scale_into_weight(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    if (sx_tensors_fact(t, rw->var[2])->has_value == 0) {
        return SX_OK;
    }
    sx_attr attr = sx_rewrite_attr(rw, 1);
    for (uint32_t k = 0; k < 2; k++) {
        if (sx_tensors_fact(t, rw->var[k])->is_weight == 0) {
            continue;
        }
        uint32_t child[2] = {rw->var[0], rw->var[1]};
        uint32_t node;
        SX_TRY(scaled(rw, child[k], rw->var[2], &child[k]));
        SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &attr, child, 2, &node));
        SX_TRY(sx_rewrite_emit(rw, node));
    }
    return SX_OK;
}

/* (A B) c = A (B c) for a factor c along free dimensions of B, both from weights. */
sx_code sx_rule_column_scale_into_weight(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t b = rw->var[1];
    uint32_t v = rw->var[2];
    if (sx_tensors_fact(t, b)->is_weight == 0 || sx_tensors_fact(t, v)->is_weight == 0) {
        return SX_OK;
    }
    sx_attr dot = sx_rewrite_attr(rw, 1);
    sx_attr repeat = sx_rewrite_attr(rw, 2);
    sx_type b_type = *sx_tensors_type(t, b);
    sx_ints free = free_dims(b_type.rank, &dot.rhs_batch, &dot.rhs_contract);
    uint32_t before = sx_rewrite_type(rw, rw->node[0])->rank - free.count;
    for (uint32_t i = 0; i < repeat.dims.count; i++) {
        if (repeat.dims.v[i] < before) {
            return SX_OK;
        }
        repeat.dims.v[i] = free.v[repeat.dims.v[i] - before];
    }
    repeat.type = b_type;
    uint32_t factor;
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &v, 1, &factor));
    uint32_t product_child[2] = {b, factor};
    uint32_t product;
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, product_child, 2, &product));
    uint32_t child[2] = {rw->var[0], product};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- a sum, contracted ---- */

/* Do contractions alone read the class, perhaps through views? Where anything else needs the sum, two
 * contractions instead of one are only ever more work, and in a chain of residual blocks they would be made
 * for every sum of earlier blocks. */
static bool only_contracted(const sx_tensors *t, uint32_t class_, uint32_t depth)
{
    const sx_eg *eg = &t->eg;
    bool only = true;
    for (uint32_t l = sx_eg_parent_first(eg, sx_eg_find(eg, class_)); only && l != SX_EG_LINK_END;
         l = sx_eg_parent_next(eg, l)) {
        uint32_t n = sx_eg_parent_node(eg, l);
        sx_op op = sx_tensors_op(t, n);
        bool is_view = op == SX_OP_TRANSPOSE || op == SX_OP_RESHAPE;
        only = eg->node[n].dead != 0 || op == SX_OP_DOT_GENERAL || op == SX_OP_CONVOLUTION ||
               (is_view && depth > 0 && only_contracted(t, n, depth - 1));
    }
    return only;
}

/* `sum_side`: the operand of the contraction that is the sum of two. Not where it is both. */
static sx_code distribute(sx_rewrite *rw, uint32_t sum_side)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    const uint32_t *addend = &rw->var[sum_side == 0 ? 0 : 1];
    uint32_t other = rw->var[sum_side == 0 ? 2 : 0];
    bool known = sx_tensors_fact(t, addend[0])->is_weight != 0 ||
                 sx_tensors_fact(t, addend[1])->is_weight != 0;
    bool both = sx_eg_find(&t->eg, rw->node[1]) == sx_eg_find(&t->eg, other);
    if (!rw->unguarded && (both || (!known && !only_contracted(t, rw->node[1], 2)))) {
        return SX_OK;
    }
    sx_attr attr = sx_rewrite_attr(rw, 0);
    uint32_t part[2];
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t child[2] = {sum_side == 0 ? addend[k] : other, sum_side == 0 ? other : addend[k]};
        SX_TRY(sx_rewrite_add(rw, sx_tensors_op(t, rw->node[0]), &attr, child, 2, &part[k]));
    }
    uint32_t sum = SX_EG_NONE;
    if (part[0] != SX_EG_NONE && part[1] != SX_EG_NONE) {
        SX_TRY(sx_rewrite_add(rw, SX_OP_ADD, NULL, part, 2, &sum));
    }
    return sx_rewrite_emit(rw, sum);
}

/* a (b + d) = a b + a d */
sx_code sx_rule_distribute_left(sx_rewrite *rw)
{
    return distribute(rw, 1);
}

/* (b + d) a = b a + d a */
sx_code sx_rule_distribute_right(sx_rewrite *rw)
{
    return distribute(rw, 0);
}
