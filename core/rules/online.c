/* Softmax and the sums weighted by it: the division behind the contraction, and one pass with a running maximum.
 *
 * online_dot is the reduction of the monoid on triples (m, l, o) with (m, l, o) + (n, k, p) =
 * (M, l e^(m - M) + k e^(n - M), o e^(m - M) + p e^(n - M)), M = max(m, n), neutral (-inf, 0, 0), e^(-inf -
 * -inf) = 0: associative and commutative, so that it may be cut in blocks of keys.
 * Papers: Milakov, Gimelshein 2018 (online softmax); Dao 2022. */
#include "core/rules/rules.h"

#include <string.h>

#define ONLINE_ATTRS \
    (SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract) | SX_A(form))

static bool contains(const sx_ints *list, int64_t value)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->v[i] == value) {
            return true;
        }
    }
    return false;
}

/* Do `dims` and `others` name each of the dimensions below `rank` once? */
static bool share_dims(const sx_ints *dims, const sx_ints *others, uint32_t rank)
{
    for (uint32_t d = 0; d < rank; d++) {
        if (contains(dims, d) == contains(others, d)) {
            return false;
        }
    }
    return dims->count + others->count == rank;
}

/* softmax(x + b) = softmax(x) where b is one number for each row. */
sx_code sx_rule_softmax_shift(sx_rewrite *rw)
{
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[1]);
    sx_attr attr = sx_rewrite_attr(rw, 0);
    sx_attr repeat = sx_rewrite_attr(rw, 2);
    if ((op != SX_OP_ADD && op != SX_OP_SUBTRACT) ||
        !sx_type_is_real(sx_rewrite_type(rw, rw->var[0])) || contains(&repeat.dims, attr.axis)) {
        return SX_OK;
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_SOFTMAX, &attr, &rw->var[0], 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- division past a contraction ---- */

/* Dimensions of one operand as the result of the contraction has them, in its order: batch, then free
 * ascending; `at` is where the free ones begin in the result. */
static void result_dims(const sx_ints *batch, const sx_ints *contract, uint32_t rank, uint32_t at,
                        int64_t place[SX_RANK_MAX])
{
    for (uint32_t d = 0; d < rank; d++) {
        place[d] = -1;
        if (!contains(batch, d) && !contains(contract, d)) {
            place[d] = at++;
        }
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        place[batch->v[i]] = i;
    }
}

/* (a / b) x = (a x) / b for a divisor along kept dimensions of a, which matched node `repeat` repeats. */
static sx_code divide_after(sx_rewrite *rw, bool left, uint32_t a, uint32_t x, uint32_t repeat)
{
    uint32_t b = sx_eg_child(&sx_rewrite_tensors(rw)->eg, rw->node[repeat], 0);
    sx_attr dot = sx_rewrite_attr(rw, 0);
    sx_attr along = sx_rewrite_attr(rw, repeat);
    sx_type a_type = *sx_rewrite_type(rw, a);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    const sx_ints *batch = left ? &dot.lhs_batch : &dot.rhs_batch;
    const sx_ints *contract = left ? &dot.lhs_contract : &dot.rhs_contract;
    if (!sx_type_is_real(&type)) {
        return SX_OK;
    }
    uint32_t free_count = a_type.rank - batch->count - contract->count;
    int64_t place[SX_RANK_MAX];
    result_dims(batch, contract, a_type.rank, left ? batch->count : type.rank - free_count, place);
    sx_attr moved = {.present = along.present, .type = type};
    moved.dims.count = along.dims.count;
    for (uint32_t i = 0; i < along.dims.count; i++) {
        moved.dims.v[i] = place[along.dims.v[i]];
        if (moved.dims.v[i] < 0 || (i > 0 && moved.dims.v[i] <= moved.dims.v[i - 1])) {
            return SX_OK;
        }
    }
    uint32_t child[2] = {left ? a : x, left ? x : a};
    uint32_t node[2];
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, &node[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &moved, &b, 1, &node[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_DIVIDE, NULL, node, 2, &node[0]));
    return sx_rewrite_emit(rw, node[0]);
}

/* Weights of a softmax in steps: matched nodes of the exponential and of the broadcast and reduce of its maximum
 * and of its sum. */
typedef struct {
    uint32_t exponential, max_repeat, max, sum_repeat, sum;
} weights;

/* Is the dividend the exponential of what is at most 0, the difference from its maximum, and the divisor the sum
 * of one row of it? Then the weights are at most 1, and the sum of a row is at least 1. */
static bool is_softmax(const sx_rewrite *rw, const weights *w)
{
    uint32_t rank = sx_rewrite_type(rw, rw->node[w->exponential])->rank;
    sx_attr max_repeat = sx_rewrite_attr(rw, w->max_repeat);
    sx_attr max = sx_rewrite_attr(rw, w->max);
    sx_attr sum_repeat = sx_rewrite_attr(rw, w->sum_repeat);
    sx_attr sum = sx_rewrite_attr(rw, w->sum);
    SX_ASSERT(max.dims.count <= rank && sum.dims.count <= rank);
    return max.reducer == SX_MAX && sum.reducer == SX_SUM &&
           share_dims(&max.dims, &max_repeat.dims, rank) &&
           share_dims(&sum.dims, &sum_repeat.dims, rank) && sum.dims.count == max.dims.count &&
           memcmp(sum.dims.v, max.dims.v, sum.dims.count * sizeof(sum.dims.v[0])) == 0;
}

static const weights divided = {
    .exponential = 2, .max_repeat = 4, .max = 5, .sum_repeat = 6, .sum = 7};

/* names: e x v */
sx_code sx_rule_dot_divide_left(sx_rewrite *rw)
{
    return is_softmax(rw, &divided) ? divide_after(rw, true, rw->var[0], rw->var[2], 6) : SX_OK;
}

/* names: v e x */
sx_code sx_rule_dot_divide_right(sx_rewrite *rw)
{
    return is_softmax(rw, &divided) ? divide_after(rw, false, rw->var[1], rw->var[0], 6) : SX_OK;
}

sx_code sx_rule_dot_divide_far_left(sx_rewrite *rw)
{
    return divide_after(rw, true, rw->var[0], rw->var[2], 2);
}

sx_code sx_rule_dot_divide_far_right(sx_rewrite *rw)
{
    return divide_after(rw, false, rw->var[1], rw->var[0], 2);
}

/* ---- the gradient of a softmax: (g / s - sum(g / s y)) e = (g - sum(g y)) y, where y = e / s ---- */

/* sum(g / s y) = sum(g y) / s: what is summed is at most as large as g, and s at most as large as there are terms.
 * names: g b e x; matched: reduce, multiply, divide, broadcast, reduce, exponential, subtract, broadcast, reduce,
 * divide, broadcast */
sx_code sx_rule_softmax_sum_divide(sx_rewrite *rw)
{
    static const weights w = {
        .exponential = 5, .max_repeat = 7, .max = 8, .sum_repeat = 3, .sum = 4};
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr sum = sx_rewrite_attr(rw, w.sum);
    if (!sx_type_is_real(sx_rewrite_type(rw, rw->node[0])) || !is_softmax(rw, &w) ||
        outer.reducer != SX_SUM || outer.dims.count != sum.dims.count ||
        memcmp(sum.dims.v, outer.dims.v, sum.dims.count * sizeof(sum.dims.v[0])) != 0) {
        return SX_OK;
    }
    uint32_t child[2] = {rw->var[0], rw->node[9]};
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, child, 2, &child[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &outer, child, 1, &child[0]));
    return child[0] == SX_EG_NONE
               ? SX_OK
               : sx_rewrite_emit_binary(rw, SX_OP_DIVIDE, child[0], rw->node[w.sum]);
}

/* (a / s) e = a (e / s): at most as many times smaller as there are terms.
 * names: a e x; matched: multiply, divide, broadcast, reduce, exponential, subtract, broadcast, reduce */
sx_code sx_rule_softmax_product_divide(sx_rewrite *rw)
{
    static const weights w = {
        .exponential = 4, .max_repeat = 6, .max = 7, .sum_repeat = 2, .sum = 3};
    uint32_t child[2] = {rw->node[w.exponential], rw->node[w.sum_repeat]};
    if (!sx_type_is_real(sx_rewrite_type(rw, rw->node[0])) || !is_softmax(rw, &w)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_DIVIDE, NULL, child, 2, &child[0]));
    return child[0] == SX_EG_NONE
               ? SX_OK
               : sx_rewrite_emit_binary(rw, SX_OP_MULTIPLY, rw->var[0], child[0]);
}

/* ---- gradients of attention: weights that are made again where they are read ---- */

/* Is the class of matched node `k` an operand of a contraction that keeps dimension `axis` of it? Of the weights of
 * attention that is the gradient of the values. Asked to keep the graph small. */
static bool is_contracted_without(const sx_rewrite *rw, uint32_t k, int64_t axis)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_eg *eg = &t->eg;
    uint32_t class_ = sx_eg_find(eg, rw->node[k]);
    for (uint32_t e = sx_eg_parent_first(eg, class_); e != SX_EG_LINK_END;
         e = sx_eg_parent_next(eg, e)) {
        uint32_t n = sx_eg_parent_node(eg, e);
        const sx_attr *dot = sx_tensors_attr(t, n);
        bool contracts = eg->node[n].dead == 0 && eg->node[n].op == SX_OP_DOT_GENERAL;
        bool left = sx_eg_parent_slot(eg, e) == 0;
        if (contracts && !contains(left ? &dot->lhs_contract : &dot->rhs_contract, axis)) {
            return true;
        }
    }
    return rw->unguarded || rw->open;
}

/* e^(x - m) / sum = e^(x - (m + log sum)).
 * matched: divide, exponential, subtract, broadcast, reduce, broadcast, reduce */
sx_code sx_rule_softmax_logarithm(sx_rewrite *rw)
{
    static const weights w = {
        .exponential = 1, .max_repeat = 3, .max = 4, .sum_repeat = 5, .sum = 6};
    sx_attr repeat = sx_rewrite_attr(rw, w.max_repeat);
    sx_attr max = sx_rewrite_attr(rw, w.max);
    sx_attr attr = {.present = ONLINE_ATTRS, .lhs_contract = max.dims, .form = 2};
    uint32_t node;
    if (!sx_type_is_real(sx_rewrite_type(rw, rw->node[0])) || !is_softmax(rw, &w) ||
        max.dims.count != 1 || !is_contracted_without(rw, 0, max.dims.v[0])) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_ONLINE_DOT, &attr, &rw->var[1], 1, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &node, 1, &node));
    uint32_t child[2] = {rw->var[1], node};
    SX_TRY(sx_rewrite_add(rw, SX_OP_SUBTRACT, NULL, child, 2, &node));
    return node == SX_EG_NONE ? SX_OK : sx_rewrite_emit_unary(rw, SX_OP_EXP, node);
}

/* Dimensions [first, first + count)? */
static bool counts_up(const sx_ints *dims, uint32_t first, uint32_t count)
{
    bool same = dims->count == count;
    for (uint32_t i = 0; i < dims->count; i++) {
        same = same && dims->v[i] == (int64_t)(first + i);
    }
    return same;
}

/* Is there a contraction of p and v with this attribute? */
static bool is_there(const sx_rewrite *rw, uint32_t p, uint32_t v, const sx_attr *attr)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_eg *eg = &t->eg;
    for (uint32_t e = sx_eg_parent_first(eg, sx_eg_find(eg, p)); e != SX_EG_LINK_END;
         e = sx_eg_parent_next(eg, e)) {
        uint32_t n = sx_eg_parent_node(eg, e);
        if (eg->node[n].op == SX_OP_DOT_GENERAL && sx_eg_parent_slot(eg, e) == 0 &&
            sx_eg_child(eg, n, 1) == sx_eg_find(eg, v) &&
            sx_attr_equal(sx_tensors_attr(t, n), attr)) {
            return true;
        }
    }
    return rw->unguarded || rw->open;
}

/* sum over j of p_ij (sum over d of g_id v_jd) = sum over d of g_id (sum over j of p_ij v_jd): with the output of
 * attention, which is there, no sum over scores.
 * names: e x g v; matched: reduce, multiply, divide, exponential, subtract, broadcast, reduce, broadcast, reduce,
 * dot_general */
sx_code sx_rule_softmax_dot_sum(sx_rewrite *rw)
{
    static const weights w = {
        .exponential = 3, .max_repeat = 5, .max = 6, .sum_repeat = 7, .sum = 8};
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr dot = sx_rewrite_attr(rw, 9);
    uint32_t p = rw->node[2], g = rw->var[2], v = rw->var[3];
    sx_type g_type = *sx_rewrite_type(rw, g);
    uint32_t p_rank = sx_rewrite_type(rw, p)->rank, v_rank = sx_rewrite_type(rw, v)->rank;
    uint32_t batch = dot.lhs_batch.count, columns = dot.lhs_contract.count;
    uint32_t rows = g_type.rank - batch - columns, keys = p_rank - batch - rows;
    /* g has [batch, rows, columns], and v what is left of its dimensions in this order for the keys */
    if (!sx_type_is_real(&g_type) || !is_softmax(rw, &w) || outer.reducer != SX_SUM || keys == 0 ||
        !counts_up(&outer.dims, batch + rows, keys) || !counts_up(&dot.lhs_batch, 0, batch) ||
        !counts_up(&dot.lhs_contract, batch + rows, columns) || v_rank != batch + keys + columns) {
        return SX_OK;
    }
    sx_attr of = {.present = dot.present, .lhs_batch = dot.lhs_batch, .rhs_batch = dot.rhs_batch};
    for (uint32_t i = 1; i < columns; i++) { /* columns of the output are in ascending order */
        if (dot.rhs_contract.v[i] <= dot.rhs_contract.v[i - 1]) {
            return SX_OK;
        }
    }
    for (uint32_t d = 0; d < v_rank; d++) {
        if (!contains(&dot.rhs_batch, d) && !contains(&dot.rhs_contract, d)) {
            of.lhs_contract.v[of.lhs_contract.count] = batch + rows + of.lhs_contract.count;
            of.lhs_contract.count++;
            of.rhs_contract.v[of.rhs_contract.count++] = d;
        }
    }
    SX_ASSERT(of.rhs_contract.count == keys);
    if (!is_there(rw, p, v, &of)) {
        return SX_OK;
    }
    uint32_t child[2] = {p, v}, node;
    sx_attr sum = {.present = outer.present, .reducer = SX_SUM, .dims = dot.lhs_contract};
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &of, child, 2, &node));
    child[0] = g;
    child[1] = node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, child, 2, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &sum, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- one pass ---- */

/* matched: the sum (a contraction or reduce), exponential, subtract, broadcast, reduce */
sx_code sx_rule_online(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t sum = rw->node[0];
    uint32_t x = rw->var[0];
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr repeat = sx_rewrite_attr(rw, 3);
    sx_attr max = sx_rewrite_attr(rw, 4);
    sx_type type = *sx_rewrite_type(rw, x);
    sx_attr attr = {.present = ONLINE_ATTRS};
    uint32_t child[2] = {x, SX_EG_NONE};
    uint32_t arity = t->eg.node[sum].arity;
    if (sx_tensors_op(t, sum) == SX_OP_DOT_GENERAL) {
        attr.lhs_batch = outer.lhs_batch;
        attr.rhs_batch = outer.rhs_batch;
        attr.lhs_contract = outer.lhs_contract;
        attr.rhs_contract = outer.rhs_contract;
        child[1] = sx_eg_child(&t->eg, sum, 1);
    } else if (outer.reducer == SX_SUM) {
        attr.lhs_contract = outer.dims;
    }
    if (!sx_type_is_real(&type) || max.reducer != SX_MAX ||
        attr.lhs_contract.count != max.dims.count ||
        !share_dims(&max.dims, &repeat.dims, type.rank)) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < max.dims.count; i++) {
        if (!contains(&attr.lhs_contract, max.dims.v[i])) {
            return SX_OK;
        }
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_ONLINE_DOT, &attr, child, arity, &node));
    return sx_rewrite_emit(rw, node);
}

/* Is the attribute of matched node `k`, which has x alone, that of the plain sum along the contracted
 * dimensions of `attr`? */
static bool sums_weights(const sx_rewrite *rw, uint32_t k, const sx_attr *attr)
{
    sx_attr sum = sx_rewrite_attr(rw, k);
    bool same = sum.form == 0 && sum.lhs_contract.count == attr->lhs_contract.count;
    for (uint32_t i = 0; i < sum.lhs_contract.count; i++) {
        same = same && contains(&attr->lhs_contract, sum.lhs_contract.v[i]);
    }
    return same;
}

/* matched: divide, online_dot of x and v, broadcast, online_dot of x */
sx_code sx_rule_online_mean(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 1);
    sx_attr repeat = sx_rewrite_attr(rw, 2);
    uint32_t rank = sx_rewrite_type(rw, rw->var[0])->rank;
    int64_t place[SX_RANK_MAX];
    if (attr.form != 0 || !sums_weights(rw, 3, &attr)) {
        return SX_OK;
    }
    result_dims(&attr.lhs_batch, &attr.lhs_contract, rank, attr.lhs_batch.count, place);
    for (uint32_t d = 0, k = 0; d < rank; d++) {
        if (place[d] >= 0 && (k >= repeat.dims.count || repeat.dims.v[k++] != place[d])) {
            return SX_OK;
        }
    }
    attr.form = 1;
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_ONLINE_DOT, &attr, rw->var, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* matched: add, log, online_dot of x, reduce */
sx_code sx_rule_online_log(sx_rewrite *rw)
{
    sx_attr attr = sx_rewrite_attr(rw, 2);
    sx_attr max = sx_rewrite_attr(rw, 3);
    sx_attr whole = {.lhs_contract = max.dims};
    if (max.reducer != SX_MAX || !sums_weights(rw, 2, &whole)) {
        return SX_OK;
    }
    attr.form = 2;
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_ONLINE_DOT, &attr, rw->var, 1, &node));
    return sx_rewrite_emit(rw, node);
}
