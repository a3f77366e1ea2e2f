/* Reductions: nested, past views, past what does not vary along them, of monotone functions. */
#include <math.h>

#include "core/rules/rules.h"

static uint32_t set_of(const sx_ints *dims)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < dims->count; i++) {
        set |= 1u << dims->v[i];
    }
    return set;
}

static sx_ints list_of(uint32_t set)
{
    sx_ints list = {0};
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        if ((set & 1u << d) != 0) {
            list.v[list.count++] = d;
        }
    }
    return list;
}

static uint32_t count_below(uint32_t set, uint32_t d)
{
    return (uint32_t)__builtin_popcount(set & ((1u << d) - 1));
}

static bool is_order(sx_reducer reducer)
{
    return reducer == SX_MAX || reducer == SX_MIN;
}

static bool is_one(sx_dim dim)
{
    return sx_dim_is_constant(dim) && dim.scale == 1;
}

static sx_code add_reduce(sx_rewrite *rw, sx_reducer reducer, uint32_t set, uint32_t x,
                          uint32_t *node)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .reducer = reducer};
    attr.dims = list_of(set);
    *node = x;
    return set == 0 ? SX_OK : sx_rewrite_add(rw, SX_OP_REDUCE, &attr, &x, 1, node);
}

/* Nested reductions are one. */
sx_code sx_rule_reduce_reduce(sx_rewrite *rw)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    uint32_t set = set_of(&inner.dims);
    uint32_t rank = sx_rewrite_type(rw, rw->var[0])->rank;
    uint32_t k = 0;
    if (outer.reducer != inner.reducer ||
        outer.reducer == SX_PRODUCT) { /* products: another order is another range */
        return SX_OK;
    }
    uint32_t both = set;
    for (uint32_t d = 0; d < rank; d++) {
        if ((set & 1u << d) == 0) {
            both |= (set_of(&outer.dims) & 1u << k) != 0 ? 1u << d : 0;
            k++;
        }
    }
    uint32_t node;
    SX_TRY(add_reduce(rw, outer.reducer, both, rw->var[0], &node));
    return sx_rewrite_emit(rw, node);
}

/* reduce(T x) = T' reduce(x): exact where elements are met in the same order. */
static sx_code reduce_transpose(sx_rewrite *rw, bool same_order)
{
    sx_attr reduce = sx_rewrite_attr(rw, 0);
    sx_ints perm = sx_rewrite_attr(rw, 1).perm;
    uint32_t reduced = set_of(&reduce.dims);
    uint32_t set = 0;
    int64_t last = -1;
    bool ordered = true;
    for (uint32_t i = 0; i < reduce.dims.count; i++) {
        int64_t d = perm.v[reduce.dims.v[i]];
        ordered = ordered && d > last;
        last = d;
        set |= 1u << d;
    }
    if (ordered != same_order || (!ordered && reduce.reducer == SX_PRODUCT)) {
        return SX_OK;
    }
    /* place of each kept dimension among the kept ones of x */
    sx_attr turn = {.present = SX_A(perm)};
    bool identity = true;
    for (uint32_t d = 0; d < perm.count; d++) {
        if ((reduced & 1u << d) == 0) {
            uint32_t below = (1u << perm.v[d]) - 1;
            uint32_t place = (uint32_t)__builtin_popcount(below & ~set);
            identity = identity && place == turn.perm.count;
            turn.perm.v[turn.perm.count++] = place;
        }
    }
    uint32_t node;
    SX_TRY(add_reduce(rw, reduce.reducer, set, rw->var[0], &node));
    if (!identity) {
        SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &turn, &node, 1, &node));
    }
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reduce_transpose(sx_rewrite *rw)
{
    return reduce_transpose(rw, true);
}

sx_code sx_rule_reduce_transpose_turned(sx_rewrite *rw)
{
    return reduce_transpose(rw, false);
}

/* The reshape keeps what is reduced apart from what is kept: reduced as x has it. */
sx_code sx_rule_reduce_reshape(sx_rewrite *rw)
{
    sx_attr reduce = sx_rewrite_attr(rw, 0);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type y = *sx_rewrite_type(rw, rw->node[1]);
    uint32_t reduced = set_of(&reduce.dims);
    uint32_t set = 0;
    uint32_t a = 0;
    uint32_t b = 0;
    while (a < x.rank || b < y.rank) {
        sx_dim left = sx_dim_of(1);
        sx_dim right = sx_dim_of(1);
        uint32_t a_first = a;
        uint32_t b_first = b;
        if (a < x.rank && !(b < y.rank && is_one(y.dim[b]))) {
            left = x.dim[a++];
        }
        if (b < y.rank && !(a > a_first && is_one(left))) {
            right = y.dim[b++];
        }
        while (!sx_dim_equal(left, right)) {
            bool grow = a < x.rank && sx_dim_is_constant(left) &&
                        (!sx_dim_is_constant(right) || left.scale < right.scale);
            if (grow ? !sx_dim_multiply(left, x.dim[a++], &left)
                     : b >= y.rank || !sx_dim_multiply(right, y.dim[b++], &right)) {
                return SX_OK;
            }
        }
        bool reduces = false;
        for (uint32_t k = b; k-- > b_first;) {
            reduces = is_one(y.dim[k]) ? reduces : (reduced & 1u << k) != 0;
        }
        for (uint32_t k = b_first; k < b; k++) {
            if (!is_one(y.dim[k]) && ((reduced & 1u << k) != 0) != reduces) {
                return SX_OK;
            }
        }
        for (uint32_t k = a_first; k < a; k++) {
            set |= reduces ? 1u << k : 0;
        }
    }
    if (set == 0) {
        return SX_OK;
    }
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    SX_TRY(add_reduce(rw, reduce.reducer, set, rw->var[0], &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &type, &node));
    return sx_rewrite_emit(rw, node);
}

/* Along the axis: the reductions of the parts, combined. */
static const sx_op combine_op[SX_REDUCER_COUNT] = {[SX_SUM] = SX_OP_ADD,
                                                   [SX_PRODUCT] = SX_OP_MULTIPLY,
                                                   [SX_MAX] = SX_OP_MAXIMUM,
                                                   [SX_MIN] = SX_OP_MINIMUM};

static sx_code reduce_concatenate(sx_rewrite *rw, bool along)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr reduce = sx_rewrite_attr(rw, 0);
    sx_attr concatenate = sx_rewrite_attr(rw, 1);
    uint32_t set = set_of(&reduce.dims);
    uint32_t count = t->eg.node[rw->node[1]].arity;
    uint32_t part[SX_EG_ARITY_MAX];
    bool hits = (set & 1u << concatenate.axis) != 0;
    if (hits != along || (along && reduce.reducer == SX_PRODUCT) || !sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t x = sx_eg_child(&t->eg, rw->node[1], k);
        SX_TRY(add_reduce(rw, reduce.reducer, set, x, &part[k]));
        if (part[k] == SX_EG_NONE) {
            return SX_OK;
        }
    }
    uint32_t node = part[0];
    for (uint32_t k = 1; along && k < count; k++) {
        uint32_t child[2] = {node, part[k]};
        SX_TRY(sx_rewrite_add(rw, combine_op[reduce.reducer], NULL, child, 2, &node));
    }
    if (!along) {
        uint32_t below = set & ((1u << concatenate.axis) - 1);
        concatenate.axis -= __builtin_popcount(below);
        SX_TRY(sx_rewrite_add(rw, SX_OP_CONCATENATE, &concatenate, part, count, &node));
    }
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reduce_concatenate(sx_rewrite *rw)
{
    return reduce_concatenate(rw, true);
}

sx_code sx_rule_reduce_concatenate_apart(sx_rewrite *rw)
{
    return reduce_concatenate(rw, false);
}

/* Number of elements along the dimensions of `set`, if known. */
static bool count_along(const sx_type *type, uint32_t set, double *count)
{
    *count = 1;
    for (uint32_t d = 0; d < type->rank; d++) {
        if ((set & 1u << d) != 0) {
            if (!sx_dim_is_constant(type->dim[d])) {
                return false;
            }
            *count *= (double)type->dim[d].scale;
        }
    }
    return true;
}

/* node times a number, in its own shape */
static sx_code times(sx_rewrite *rw, uint32_t x, double factor, uint32_t *node)
{
    *node = x;
    if (x == SX_EG_NONE || factor == 1) {
        return SX_OK;
    }
    sx_type type = *sx_rewrite_type(rw, x);
    uint32_t child[2] = {x, SX_EG_NONE};
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &type, factor, &child[1]));
    return sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, child, 2, node);
}

/* Dimensions of a broadcast along which it repeats. */
static uint32_t repeated_dims(const sx_attr *repeat, const sx_type *x, const sx_type *wide)
{
    uint32_t set = (1u << wide->rank) - 1;
    for (uint32_t i = 0; i < repeat->dims.count; i++) {
        if (sx_dim_equal(x->dim[i], wide->dim[repeat->dims.v[i]])) {
            set &= ~(1u << repeat->dims.v[i]);
        }
    }
    return set;
}

/* Reduced over copies: max(bc x) = x, sum(bc x) = n x; what else is reduced is reduced before it is repeated. */
sx_code sx_rule_reduce_broadcast(sx_rewrite *rw)
{
    sx_attr reduce = sx_rewrite_attr(rw, 0);
    sx_attr repeat = sx_rewrite_attr(rw, 1);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type wide = *sx_rewrite_type(rw, rw->node[1]);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t set = set_of(&reduce.dims);
    uint32_t copies = set & repeated_dims(&repeat, &x, &wide);
    double count;
    if (reduce.reducer == SX_PRODUCT || copies == 0 || !count_along(&wide, copies, &count)) {
        return SX_OK;
    }
    sx_attr again = {.present = repeat.present, .type = type};
    uint32_t inner = 0;
    for (uint32_t i = 0; i < repeat.dims.count; i++) {
        uint32_t d = (uint32_t)repeat.dims.v[i];
        if ((set & 1u << d) != 0) {
            inner |= 1u << i;
        } else {
            again.dims.v[again.dims.count++] = d - count_below(set, d);
        }
    }
    uint32_t node;
    SX_TRY(add_reduce(rw, reduce.reducer, inner, rw->var[0], &node));
    SX_TRY(times(rw, node, reduce.reducer == SX_SUM ? count : 1, &node));
    if (node != SX_EG_NONE && !sx_type_equal(sx_rewrite_type(rw, node), &type)) {
        SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &again, &node, 1, &node));
    }
    return sx_rewrite_emit(rw, node);
}

/* Along extents of 1 there is nothing to combine. */
sx_code sx_rule_reduce_ones(sx_rewrite *rw)
{
    sx_ints dims = sx_rewrite_attr(rw, 0).dims;
    const sx_type *x = sx_rewrite_type(rw, rw->var[0]);
    for (uint32_t i = 0; i < dims.count; i++) {
        if (!is_one(x->dim[dims.v[i]])) {
            return SX_OK;
        }
    }
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    SX_TRY(sx_rewrite_reshape(rw, rw->var[0], &type, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- what does not vary along the reduction comes out of it ---- */

/* The part of class `c` that the result sees: a known value, or a broadcast that repeats along all reduced
 * dimensions. `bc` is the matched broadcast or SX_EG_NONE. */
static sx_code kept_part(sx_rewrite *rw, uint32_t c, uint32_t bc, uint32_t set, uint32_t *node)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    *node = SX_EG_NONE;
    if (bc == SX_EG_NONE) {
        const sx_fact *fact = sx_tensors_fact(t, c);
        double value = fact->value;
        return fact->has_value == 0 ? SX_OK : sx_tensors_add_value(rw->cx, t, &type, value, node);
    }
    sx_attr repeat = *sx_tensors_attr(t, bc);
    sx_type wide = *sx_tensors_type(t, bc);
    uint32_t x = sx_eg_child(&t->eg, bc, 0);
    if ((repeated_dims(&repeat, sx_tensors_type(t, x), &wide) & set) != set) {
        return SX_OK;
    }
    sx_attr again = {.present = repeat.present, .type = type};
    uint32_t reduced_one = 0; /* extents of 1 that were repeated along reduced dimensions */
    for (uint32_t i = 0; i < repeat.dims.count; i++) {
        uint32_t d = (uint32_t)repeat.dims.v[i];
        if ((set & 1u << d) != 0) {
            reduced_one |= 1u << i;
        } else {
            again.dims.v[again.dims.count++] = d - count_below(set, d);
        }
    }
    sx_type squeezed = {.dtype = type.dtype};
    sx_type own = *sx_tensors_type(t, x);
    for (uint32_t i = 0; i < own.rank; i++) {
        if ((reduced_one & 1u << i) == 0) {
            squeezed.dim[squeezed.rank++] = own.dim[i];
        }
    }
    uint32_t inner;
    SX_TRY(sx_rewrite_reshape(rw, x, &squeezed, &inner));
    return sx_rewrite_add(rw, SX_OP_BROADCAST, &again, &inner, 1, node);
}

/* reduce(op(x, c)) = op(reduce(x), c): sums of products and quotients, maxima of sums and differences.
 * `first`: c is the first operand. A sum without its factor is larger where the factor made its terms smaller;
 * a maximum is what it was. */
static sx_code reduce_apart(sx_rewrite *rw, uint32_t x, uint32_t c, uint32_t bc, bool far)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr reduce = sx_rewrite_attr(rw, 0);
    sx_op op = sx_tensors_op(t, rw->node[1]);
    uint32_t set = set_of(&reduce.dims);
    sx_reducer reducer = reduce.reducer;
    bool scales = op == SX_OP_MULTIPLY || op == SX_OP_DIVIDE;
    bool shifts = op == SX_OP_ADD || op == SX_OP_SUBTRACT;
    bool is_float = sx_type_is_real(sx_rewrite_type(rw, rw->node[0]));
    const sx_fact *fact = sx_tensors_fact(t, c);
    if (is_order(reducer) && scales && is_float && fact->has_value != 0 && fact->value != 0) {
        bool turns = fact->value < 0; /* a negative factor reverses the order */
        reducer = turns ? (reducer == SX_MAX ? SX_MIN : SX_MAX) : reducer;
    } else if (!(reducer == SX_SUM && scales && (op == SX_OP_MULTIPLY || is_float)) &&
               !(is_order(reducer) && shifts && is_float)) {
        return SX_OK;
    }
    bool grows = fact->has_value != 0 &&
                 (op == SX_OP_MULTIPLY ? fabs(fact->value) >= 1 : fabs(fact->value) <= 1);
    if ((op == SX_OP_DIVIDE && fact->has_value != 0 && fact->value == 0) ||
        !sx_rewrite_may(rw, far, reducer != SX_SUM || !is_float || grows)) {
        return SX_OK;
    }
    uint32_t child[2];
    uint32_t node;
    SX_TRY(kept_part(rw, c, bc, set, &child[1]));
    if (child[1] == SX_EG_NONE) {
        return SX_OK;
    }
    SX_TRY(add_reduce(rw, reducer, set, x, &child[0]));
    SX_TRY(sx_rewrite_add(rw, op, NULL, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reduce_value(sx_rewrite *rw)
{
    return reduce_apart(rw, rw->var[0], rw->var[1], SX_EG_NONE, false);
}

sx_code sx_rule_reduce_value_far(sx_rewrite *rw)
{
    return reduce_apart(rw, rw->var[0], rw->var[1], SX_EG_NONE, true);
}

sx_code sx_rule_reduce_row(sx_rewrite *rw)
{
    return reduce_apart(rw, rw->var[0], rw->node[2], rw->node[2], false);
}

sx_code sx_rule_reduce_row_far(sx_rewrite *rw)
{
    return reduce_apart(rw, rw->var[0], rw->node[2], rw->node[2], true);
}

/* sum(x + c) = sum(x) + sum(c) where c is repeated or known: its sum is cheap. */
sx_code sx_rule_reduce_sum_apart(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr reduce = sx_rewrite_attr(rw, 0);
    sx_op op = sx_tensors_op(t, rw->node[1]);
    uint32_t part[2];
    uint32_t node;
    if (reduce.reducer != SX_SUM || (op != SX_OP_ADD && op != SX_OP_SUBTRACT) ||
        sx_type_is_real(sx_rewrite_type(rw, rw->node[0])) == false ||
        !sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t x = sx_eg_child(&t->eg, rw->node[1], k);
        SX_TRY(add_reduce(rw, SX_SUM, set_of(&reduce.dims), x, &part[k]));
    }
    SX_TRY(sx_rewrite_add(rw, op, NULL, part, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* sum(x) + sum(y) = sum(x + y): one pass. */
sx_code sx_rule_reduce_sum_joint(sx_rewrite *rw)
{
    sx_attr reduce = sx_rewrite_attr(rw, 1);
    uint32_t node;
    if (reduce.reducer != SX_SUM ||
        !sx_type_equal(sx_rewrite_type(rw, rw->var[0]), sx_rewrite_type(rw, rw->var[1])) ||
        !sx_rewrite_is_private(rw, 1) || !sx_rewrite_is_private(rw, 2)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]), NULL, rw->var, 2,
                          &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &reduce, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- monotone functions ---- */

/* max f(x) = f(max x) for f that never falls; max(-x) = -min x, sum(-x) = -sum x. */
sx_code sx_rule_reduce_monotone(sx_rewrite *rw)
{
    sx_attr reduce = sx_rewrite_attr(rw, 0);
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[1]);
    sx_reducer reducer = reduce.reducer;
    uint32_t node;
    bool turns = op == SX_OP_NEGATE;
    bool rises = op == SX_OP_RELU || op == SX_OP_FLOOR || op == SX_OP_CEIL || op == SX_OP_ROUND ||
                 op == SX_OP_SIGN || op == SX_OP_TANH || op == SX_OP_ERF || op == SX_OP_LOGISTIC ||
                 op == SX_OP_EXP;
    bool ordered = is_order(reducer) && (rises || turns);
    if (!sx_type_is_real(sx_rewrite_type(rw, rw->node[0])) ||
        !(ordered || (reducer == SX_SUM && turns))) {
        return SX_OK;
    }
    if (turns && is_order(reducer)) {
        reducer = reducer == SX_MAX ? SX_MIN : SX_MAX;
    }
    SX_TRY(add_reduce(rw, reducer, set_of(&reduce.dims), rw->var[0], &node));
    SX_TRY(sx_rewrite_add(rw, op, NULL, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}
