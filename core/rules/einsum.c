/* Contractions by index names: every dimension has a label, equal labels run together, labels not in the
 * result are summed. Rules that are laborious with dimension numbers (association with batches, sums of
 * contractions, repeated operands) are short here. */
#include <string.h>

#include "core/rules/rules.h"

#define LABELS_MAX 32u
#define NO_LABEL UINT8_MAX

typedef struct {
    uint32_t count;
    uint8_t v[LABELS_MAX];
} labels;

static uint32_t set_of(const labels *l)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        set |= 1u << l->v[i];
    }
    return set;
}

static void put(labels *l, uint32_t label)
{
    SX_ASSERT(l->count < LABELS_MAX && label < LABELS_MAX);
    l->v[l->count++] = (uint8_t)label;
}

static uint32_t place_of(const labels *l, uint32_t label)
{
    uint32_t i = 0;
    while (i < l->count && l->v[i] != label) {
        i++;
    }
    return i;
}

/* Labels of the operands and of the result of a contraction, new ones from *next on. `a` may be given (count > 0). */
static void label_dot(const sx_attr *dot, uint32_t a_rank, uint32_t b_rank, uint32_t *next,
                      labels *a, labels *b, labels *out)
{
    if (a->count == 0) {
        for (uint32_t d = 0; d < a_rank; d++) {
            put(a, (*next)++);
        }
    }
    *b = (labels){.count = b_rank};
    *out = (labels){0};
    memset(b->v, NO_LABEL, sizeof(b->v));
    uint32_t bound = 0;
    for (uint32_t i = 0; i < dot->lhs_batch.count; i++) {
        b->v[dot->rhs_batch.v[i]] = a->v[dot->lhs_batch.v[i]];
        bound |= 1u << dot->lhs_batch.v[i];
        put(out, a->v[dot->lhs_batch.v[i]]);
    }
    for (uint32_t i = 0; i < dot->lhs_contract.count; i++) {
        b->v[dot->rhs_contract.v[i]] = a->v[dot->lhs_contract.v[i]];
        bound |= 1u << dot->lhs_contract.v[i];
    }
    for (uint32_t d = 0; d < a_rank; d++) {
        if ((bound & 1u << d) == 0) {
            put(out, a->v[d]);
        }
    }
    for (uint32_t d = 0; d < b_rank; d++) {
        if (b->v[d] == NO_LABEL) {
            b->v[d] = (uint8_t)(*next)++;
            put(out, b->v[d]);
        }
    }
}

/* x summed along the labels that are not in `keep`. */
static sx_code sum_away(sx_rewrite *rw, uint32_t keep, labels *l, uint32_t *x)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .reducer = SX_SUM};
    labels kept = {0};
    for (uint32_t d = 0; d < l->count; d++) {
        if ((keep & 1u << l->v[d]) == 0) {
            attr.dims.v[attr.dims.count++] = d;
        } else {
            put(&kept, l->v[d]);
        }
    }
    *l = kept;
    return attr.dims.count == 0 ? SX_OK : sx_rewrite_add(rw, SX_OP_REDUCE, &attr, x, 1, x);
}

/* x, labelled `from`, with its dimensions in the order `to`; the same labels. */
static sx_code in_order(sx_rewrite *rw, const labels *from, const labels *to, uint32_t *x)
{
    sx_attr attr = {.present = SX_A(perm)};
    bool identity = true;
    SX_ASSERT(from->count == to->count);
    attr.perm.count = to->count;
    for (uint32_t d = 0; d < to->count; d++) {
        attr.perm.v[d] = place_of(from, to->v[d]);
        SX_ASSERT(attr.perm.v[d] < from->count);
        identity = identity && attr.perm.v[d] == d;
    }
    return identity ? SX_OK : sx_rewrite_add(rw, SX_OP_TRANSPOSE, &attr, x, 1, x);
}

typedef struct {
    uint32_t node;
    labels l;
} operand;

/* The contraction of a and b whose result is labelled `out`; SX_EG_NONE where no label is contracted, or `out`
 * has one of neither. */
static sx_code contract(sx_rewrite *rw, operand a, operand b, const labels *out, uint32_t *node)
{
    uint32_t in_a = set_of(&a.l);
    uint32_t in_b = set_of(&b.l);
    uint32_t in_out = set_of(out);
    *node = SX_EG_NONE;
    if (a.node == SX_EG_NONE || b.node == SX_EG_NONE || (in_a & in_b & ~in_out) == 0 ||
        (in_out & ~(in_a | in_b)) != 0 || out->count > SX_RANK_MAX) {
        return SX_OK;
    }
    SX_TRY(sum_away(rw, in_b | in_out, &a.l, &a.node));
    SX_TRY(sum_away(rw, in_a | in_out, &b.l, &b.node));
    sx_attr dot = {.present =
                       SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract)};
    labels made = {0};
    for (uint32_t i = 0; i < out->count; i++) {
        if ((in_a & in_b & 1u << out->v[i]) != 0) {
            dot.lhs_batch.v[dot.lhs_batch.count++] = place_of(&a.l, out->v[i]);
            dot.rhs_batch.v[dot.rhs_batch.count++] = place_of(&b.l, out->v[i]);
            put(&made, out->v[i]);
        }
    }
    for (uint32_t d = 0; d < a.l.count; d++) {
        uint32_t bit = 1u << a.l.v[d];
        if ((in_b & ~in_out & bit) != 0) {
            dot.lhs_contract.v[dot.lhs_contract.count++] = d;
            dot.rhs_contract.v[dot.rhs_contract.count++] = place_of(&b.l, a.l.v[d]);
        } else if ((in_b & bit) == 0) {
            put(&made, a.l.v[d]);
        }
    }
    for (uint32_t d = 0; d < b.l.count; d++) {
        if ((in_a & 1u << b.l.v[d]) == 0) {
            put(&made, b.l.v[d]);
        }
    }
    uint32_t child[2] = {a.node, b.node};
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, node));
    return *node == SX_EG_NONE ? SX_OK : in_order(rw, &made, out, node);
}

/* x, labelled `l`, repeated to `type`, labelled `out`; *node SX_EG_NONE if some label of x is not in `out`. */
static sx_code repeat_to(sx_rewrite *rw, uint32_t x, const labels *l, const sx_type *type,
                         const labels *out, uint32_t *node)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(type), .type = *type};
    labels ordered = {0};
    for (uint32_t d = 0; d < out->count; d++) {
        if (place_of(l, out->v[d]) < l->count) {
            attr.dims.v[attr.dims.count++] = d;
            put(&ordered, out->v[d]);
        }
    }
    *node = SX_EG_NONE;
    if (ordered.count != l->count || x == SX_EG_NONE) {
        return SX_OK;
    }
    attr.type.dtype = sx_rewrite_type(rw, x)->dtype;
    SX_TRY(in_order(rw, l, &ordered, &x));
    *node = x;
    return x == SX_EG_NONE || ordered.count == out->count
               ? SX_OK
               : sx_rewrite_add(rw, SX_OP_BROADCAST, &attr, &x, 1, node);
}

/* What a broadcast repeats, labelled as the wide tensor is; extents of 1 that are repeated are left out. */
static sx_code unrepeated(sx_rewrite *rw, uint32_t broadcast, const labels *wide, operand *x)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_ints dims = sx_tensors_attr(t, broadcast)->dims;
    sx_type to = *sx_tensors_type(t, broadcast);
    uint32_t source = sx_eg_child(&t->eg, broadcast, 0);
    sx_type from = *sx_tensors_type(t, source);
    sx_type squeezed = {.dtype = from.dtype};
    x->l = (labels){0};
    for (uint32_t i = 0; i < dims.count; i++) {
        if (sx_dim_equal(from.dim[i], to.dim[dims.v[i]])) {
            squeezed.dim[squeezed.rank++] = from.dim[i];
            put(&x->l, wide->v[dims.v[i]]);
        }
    }
    return sx_rewrite_reshape(rw, source, &squeezed, &x->node);
}

/* ---- sums and contractions ---- */

/* Does no operand have labels of its own that are summed away, but one that follows from weights? It would be
 * summed first, and be as many times larger as it has terms; of weights that is known at load. Numbers that
 * wrap have no range. */
static bool sums_weights_alone(const sx_rewrite *rw, const operand *a, const operand *b,
                               const labels *out)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t gone = (set_of(&a->l) ^ set_of(&b->l)) & ~set_of(out);
    bool free[2] = {(gone & set_of(&a->l)) == 0, (gone & set_of(&b->l)) == 0};
    return (free[0] || sx_tensors_fact(t, a->node)->is_weight != 0) &&
           (free[1] || sx_tensors_fact(t, b->node)->is_weight != 0);
}

/* sum_m (A B) = (sum_m A) B; a batch that is summed is contracted. names: a b */
static sx_code reduce_dot(sx_rewrite *rw, bool far)
{
    sx_attr reduce = sx_rewrite_attr(rw, 0);
    sx_attr dot = sx_rewrite_attr(rw, 1);
    labels out;
    uint32_t next = 0;
    operand a = {.node = rw->var[0]};
    operand b = {.node = rw->var[1]};
    if (reduce.reducer != SX_SUM || !sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    label_dot(&dot, sx_rewrite_type(rw, a.node)->rank, sx_rewrite_type(rw, b.node)->rank, &next,
              &a.l, &b.l, &out);
    labels kept = {0};
    for (uint32_t d = 0, i = 0; d < out.count; d++) {
        if (i < reduce.dims.count && reduce.dims.v[i] == d) {
            i++;
        } else {
            put(&kept, out.v[d]);
        }
    }
    if (!sx_rewrite_may(rw, far, sums_weights_alone(rw, &a, &b, &kept))) {
        return SX_OK;
    }
    uint32_t node;
    SX_TRY(contract(rw, a, b, &kept, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_reduce_dot(sx_rewrite *rw)
{
    return reduce_dot(rw, false);
}

sx_code sx_rule_reduce_dot_far(sx_rewrite *rw)
{
    return reduce_dot(rw, true);
}

/* sum_k (bc A * bc B) = A B. The matched broadcasts of the factors; SX_EG_NONE: the first is none. */
static sx_code products_summed(sx_rewrite *rw, uint32_t a_broadcast, uint32_t b_broadcast, bool far)
{
    sx_attr reduce = sx_rewrite_attr(rw, 0);
    uint32_t rank = sx_rewrite_type(rw, rw->node[1])->rank;
    labels all = {0};
    labels kept = {0};
    operand a;
    operand b;
    if (reduce.reducer != SX_SUM) {
        return SX_OK;
    }
    for (uint32_t d = 0, i = 0; d < rank; d++) {
        put(&all, d);
        if (i < reduce.dims.count && reduce.dims.v[i] == d) {
            i++;
        } else {
            put(&kept, d);
        }
    }
    if (a_broadcast == SX_EG_NONE) {
        a = (operand){rw->var[0], all};
    } else {
        SX_TRY(unrepeated(rw, a_broadcast, &all, &a));
    }
    SX_TRY(unrepeated(rw, b_broadcast, &all, &b));
    bool repeats = (set_of(&a.l) & set_of(&b.l)) != set_of(&all);
    bool covers = (set_of(&a.l) | set_of(&b.l)) == set_of(&all);
    bool may = sx_rewrite_may(rw, far, sums_weights_alone(rw, &a, &b, &kept));
    if (!repeats || !covers || !may) { /* not a contraction, or each term more than once */
        return SX_OK;
    }
    uint32_t node;
    SX_TRY(contract(rw, a, b, &kept, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_products_summed(sx_rewrite *rw)
{
    return products_summed(rw, rw->node[2], rw->node[3], false);
}

sx_code sx_rule_products_summed_far(sx_rewrite *rw)
{
    return products_summed(rw, rw->node[2], rw->node[3], true);
}

sx_code sx_rule_rows_summed(sx_rewrite *rw)
{
    return products_summed(rw, SX_EG_NONE, rw->node[2], false);
}

sx_code sx_rule_rows_summed_far(sx_rewrite *rw)
{
    return products_summed(rw, SX_EG_NONE, rw->node[2], true);
}

/* Nothing but batches: products, summed. names: a b */
sx_code sx_rule_dot_rows(sx_rewrite *rw)
{
    sx_attr dot = sx_rewrite_attr(rw, 0);
    uint32_t rank = sx_rewrite_type(rw, rw->var[0])->rank;
    labels a = {0};
    labels b;
    labels out;
    uint32_t next = 0;
    label_dot(&dot, rank, sx_rewrite_type(rw, rw->var[1])->rank, &next, &a, &b, &out);
    if (a.count != b.count || memcmp(a.v, b.v, a.count) != 0 || a.count > SX_RANK_MAX) {
        return SX_OK;
    }
    for (uint32_t i = 1; i < out.count; i++) {
        if (out.v[i] < out.v[i - 1]) {
            return SX_OK;
        }
    }
    sx_attr sum = {.present = SX_A(dims) | SX_A(reducer), .reducer = SX_SUM};
    for (uint32_t d = 0; d < rank; d++) {
        if (place_of(&out, a.v[d]) == out.count) {
            sum.dims.v[sum.dims.count++] = d;
        }
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, rw->var, 2, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &sum, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* One operand is repeated: contracted before it is repeated. `side`: which */
static sx_code dot_broadcast(sx_rewrite *rw, uint32_t side, bool far)
{
    sx_attr dot = sx_rewrite_attr(rw, 0);
    operand x[2] = {{.node = rw->var[0]}, {.node = rw->var[1]}};
    uint32_t rank[2];
    labels out;
    uint32_t next = 0;
    for (uint32_t k = 0; k < 2; k++) {
        rank[k] = sx_rewrite_type(rw, k == side ? rw->node[1] : x[k].node)->rank;
    }
    label_dot(&dot, rank[0], rank[1], &next, &x[0].l, &x[1].l, &out);
    labels wide = x[side].l;
    SX_TRY(unrepeated(rw, rw->node[1], &wide, &x[side]));
    uint32_t covered = set_of(&x[0].l) | set_of(&x[1].l);
    labels kept = {0};
    for (uint32_t i = 0; i < out.count; i++) {
        if ((covered & 1u << out.v[i]) != 0) {
            put(&kept, out.v[i]);
        }
    }
    if (x[side].l.count == wide.count ||
        !sx_rewrite_may(rw, far, sums_weights_alone(rw, &x[0], &x[1], &kept))) {
        return SX_OK;
    }
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    SX_TRY(contract(rw, x[0], x[1], &kept, &node));
    SX_TRY(repeat_to(rw, node, &kept, &type, &out, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_broadcast_left(sx_rewrite *rw)
{
    return dot_broadcast(rw, 0, false);
}

sx_code sx_rule_dot_broadcast_far_left(sx_rewrite *rw)
{
    return dot_broadcast(rw, 0, true);
}

sx_code sx_rule_dot_broadcast_right(sx_rewrite *rw)
{
    return dot_broadcast(rw, 1, false);
}

sx_code sx_rule_dot_broadcast_far_right(sx_rewrite *rw)
{
    return dot_broadcast(rw, 1, true);
}

/* Only the batch dimensions change places: in the lists. names: a b */
sx_code sx_rule_transpose_dot(sx_rewrite *rw)
{
    sx_ints perm = sx_rewrite_attr(rw, 0).perm;
    sx_attr dot = sx_rewrite_attr(rw, 1);
    sx_attr moved = dot;
    for (uint32_t d = 0; d < perm.count; d++) {
        if (d >= dot.lhs_batch.count ? perm.v[d] != d : perm.v[d] >= dot.lhs_batch.count) {
            return SX_OK;
        }
        if (d < dot.lhs_batch.count) {
            moved.lhs_batch.v[d] = dot.lhs_batch.v[perm.v[d]];
            moved.rhs_batch.v[d] = dot.rhs_batch.v[perm.v[d]];
        }
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &moved, rw->var, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- association, where it saves work ---- */

/* Product of the extents of the labels of `set`; symbols count as 64. */
static double work_of(const double *extent, uint32_t set)
{
    double product = 1;
    for (; set != 0; set &= set - 1) {
        product *= extent[__builtin_ctz(set)];
    }
    return product;
}

static void note_extents(const sx_rewrite *rw, const operand *x, double *extent)
{
    const sx_type *type = sx_rewrite_type(rw, x->node);
    for (uint32_t d = 0; d < x->l.count; d++) {
        double symbol = sx_dim_is_constant(type->dim[d]) ? 1 : 64;
        extent[x->l.v[d]] = (double)type->dim[d].scale * symbol;
    }
}

/* (x0 x1) x2 = x_k (x_j x2), j the factor that x2 meets. `order`: labels of the result */
static sx_code reassociate(sx_rewrite *rw, const operand *x, const labels *out, bool far)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    double extent[LABELS_MAX];
    uint32_t set[3];
    for (uint32_t i = 0; i < 3; i++) {
        note_extents(rw, &x[i], extent);
        set[i] = set_of(&x[i].l);
    }
    uint32_t in_out = set_of(out);
    uint32_t pair = (set[0] | set[1]) & (set[2] | in_out);
    double before = work_of(extent, set[0] | set[1]) + work_of(extent, pair | set[2]);
    for (uint32_t j = 0; j < 2; j++) {
        const operand *other = &x[1 - j];
        labels middle = {0};
        for (uint32_t side = 0; side < 2; side++) {
            const operand *from = side == 0 ? &x[j] : &x[2];
            for (uint32_t d = 0; d < from->l.count; d++) {
                uint32_t bit = 1u << from->l.v[d];
                bool known = place_of(&middle, from->l.v[d]) < middle.count;
                if (((set[1 - j] | in_out) & bit) != 0 && !known) {
                    put(&middle, from->l.v[d]);
                }
            }
        }
        double after =
            work_of(extent, set[j] | set[2]) + work_of(extent, set_of(&middle) | set[1 - j]);
        operand inner = {.l = middle};
        uint32_t node;
        bool folds = sx_tensors_fact(t, x[j].node)->is_weight != 0 &&
                     sx_tensors_fact(t, x[2].node)->is_weight != 0;
        if (after >= before || middle.count > SX_RANK_MAX || !sx_rewrite_may(rw, far, folds)) {
            continue;
        }
        SX_TRY(contract(rw, x[j], x[2], &middle, &inner.node));
        SX_TRY(contract(rw, *other, inner, out, &node));
        SX_TRY(sx_rewrite_emit(rw, node));
    }
    return SX_OK;
}

/* Plain matrices are reassociated without a condition (dot.c). */
static bool is_plain(const sx_rewrite *rw, const sx_attr *dot)
{
    return dot->lhs_batch.count == 0 && sx_rewrite_type(rw, rw->var[1])->rank == 2 &&
           sx_rewrite_type(rw, rw->var[2])->rank == 2;
}

/* Labels of the matched inner contraction of x[0] and x[1]; false where it is not to be opened. */
static bool label_inner(const sx_rewrite *rw, operand *x, uint32_t *next, labels *ab)
{
    sx_attr inner = sx_rewrite_attr(rw, 1);
    if (!sx_rewrite_is_private(rw, 1) || is_plain(rw, &inner)) {
        return false;
    }
    label_dot(&inner, sx_rewrite_type(rw, x[0].node)->rank, sx_rewrite_type(rw, x[1].node)->rank,
              next, &x[0].l, &x[1].l, ab);
    return ab->count > 0;
}

/* (a b) c; names: a b c */
static sx_code work_left(sx_rewrite *rw, bool far)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    operand x[3] = {{.node = rw->var[0]}, {.node = rw->var[1]}, {.node = rw->var[2]}};
    labels ab;
    labels out;
    uint32_t next = 0;
    if (!label_inner(rw, x, &next, &ab)) {
        return SX_OK;
    }
    label_dot(&outer, ab.count, sx_rewrite_type(rw, x[2].node)->rank, &next, &ab, &x[2].l, &out);
    return reassociate(rw, x, &out, far);
}

sx_code sx_rule_dot_associate_work_left(sx_rewrite *rw)
{
    return work_left(rw, false);
}

sx_code sx_rule_dot_associate_work_far_left(sx_rewrite *rw)
{
    return work_left(rw, true);
}

/* c (a b); names: c a b */
static sx_code work_right(sx_rewrite *rw, bool far)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    operand x[3] = {{.node = rw->var[1]}, {.node = rw->var[2]}, {.node = rw->var[0]}};
    labels ab;
    labels out;
    uint32_t next = 0;
    if (!label_inner(rw, x, &next, &ab)) {
        return SX_OK;
    }
    sx_attr swapped = {.lhs_batch = outer.rhs_batch,
                       .rhs_batch = outer.lhs_batch,
                       .lhs_contract = outer.rhs_contract,
                       .rhs_contract = outer.lhs_contract};
    label_dot(&swapped, ab.count, sx_rewrite_type(rw, x[2].node)->rank, &next, &ab, &x[2].l, &out);
    /* the result has the free dimensions of c before those of a b */
    labels order = {0};
    uint32_t batch = outer.lhs_batch.count;
    uint32_t of_ab = ab.count - batch - outer.lhs_contract.count;
    for (uint32_t i = 0; i < out.count; i++) {
        uint32_t of_c = out.count - batch - of_ab;
        uint32_t from = i < batch ? i : i < batch + of_c ? i + of_ab : i - of_c;
        put(&order, out.v[from]);
    }
    return reassociate(rw, x, &order, far);
}

sx_code sx_rule_dot_associate_work_right(sx_rewrite *rw)
{
    return work_right(rw, false);
}

sx_code sx_rule_dot_associate_work_far_right(sx_rewrite *rw)
{
    return work_right(rw, true);
}

/* ---- factors along rows, columns, and what is contracted ---- */

/* dot(x r, y) with r along kept dimensions of x: dot(x, y) r. names: x r y, or y x r. `side`: of the product */
static sx_code factor_out(sx_rewrite *rw, uint32_t side, bool inner)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr dot = sx_rewrite_attr(rw, 0);
    uint32_t factor = rw->var[side == 0 ? 1 : 2];
    uint32_t node_y = rw->var[side == 0 ? 2 : 0];
    operand x[2] = {{.node = rw->var[0]}, {.node = rw->var[side == 0 ? 2 : 1]}};
    labels out;
    uint32_t next = 0;
    label_dot(&dot, sx_rewrite_type(rw, x[0].node)->rank, sx_rewrite_type(rw, x[1].node)->rank,
              &next, &x[0].l, &x[1].l, &out);
    operand r;
    SX_TRY(unrepeated(rw, rw->node[2], &x[side].l, &r));
    sx_type type = *sx_rewrite_type(rw, inner ? node_y : rw->node[0]);
    bool weights =
        sx_tensors_fact(t, node_y)->is_weight != 0 && sx_tensors_fact(t, factor)->is_weight != 0;
    if (inner ? !weights || (set_of(&r.l) & ~set_of(&out)) == 0 : !sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    uint32_t child[2] = {x[0].node, x[1].node};
    uint32_t product[2] = {node_y, SX_EG_NONE};
    SX_TRY(repeat_to(rw, r.node, &r.l, &type, inner ? &x[1 - side].l : &out, &product[1]));
    uint32_t node;
    if (!inner) {
        SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, &product[0]));
        SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, product, 2, &node));
        return sx_rewrite_emit(rw, node);
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, product, 2, &child[1 - side]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_rows_scale_left(sx_rewrite *rw)
{
    return factor_out(rw, 0, false);
}

sx_code sx_rule_dot_rows_scale_right(sx_rewrite *rw)
{
    return factor_out(rw, 1, false);
}

sx_code sx_rule_dot_inner_scale_left(sx_rewrite *rw)
{
    return factor_out(rw, 0, true);
}

sx_code sx_rule_dot_inner_scale_right(sx_rewrite *rw)
{
    return factor_out(rw, 1, true);
}

/* rms_norm(x; g) W = rsqrt(mean(x^2) + eps) (x (g W)): the statistics stand beside the contraction, the gain
 * goes into the weight. Where one contraction reads the norm: several would each scale their result. names: x g w */
sx_code sx_rule_rms_norm_dot(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr dot = sx_rewrite_attr(rw, 0);
    sx_attr norm = sx_rewrite_attr(rw, 1);
    sx_type type = *sx_rewrite_type(rw, rw->var[0]);
    operand x = {.node = rw->var[0]};
    operand w = {.node = rw->var[2]};
    labels out;
    uint32_t next = 0;
    double count = 1;
    bool same = dot.lhs_contract.count == type.rank - (uint32_t)norm.axis;
    for (uint32_t i = 0; i < dot.lhs_contract.count; i++) {
        same = same && dot.lhs_contract.v[i] >= norm.axis;
    }
    for (uint32_t d = (uint32_t)norm.axis; d < type.rank; d++) {
        same = same && sx_dim_is_constant(type.dim[d]);
        count *= (double)type.dim[d].scale;
    }
    if (!same || !sx_rewrite_is_private(rw, 1) || !sx_type_is_real(&type) ||
        sx_tensors_fact(t, rw->var[1])->is_weight == 0 ||
        sx_tensors_fact(t, rw->var[2])->is_weight == 0) {
        return SX_OK;
    }
    label_dot(&dot, type.rank, sx_rewrite_type(rw, w.node)->rank, &next, &x.l, &w.l, &out);
    labels gain = {0};
    labels rest = {0};
    sx_attr sum = {.present = SX_A(dims) | SX_A(reducer), .reducer = SX_SUM};
    for (uint32_t d = 0; d < type.rank; d++) {
        put(d < (uint32_t)norm.axis ? &rest : &gain, x.l.v[d]);
        if (d >= (uint32_t)norm.axis) {
            sum.dims.v[sum.dims.count++] = d;
        }
    }
    sx_type w_type = *sx_rewrite_type(rw, w.node);
    sx_type out_type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t pair[2] = {w.node, SX_EG_NONE};
    uint32_t node[2] = {x.node, SX_EG_NONE};
    SX_TRY(repeat_to(rw, rw->var[1], &gain, &w_type, &w.l, &pair[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, pair, 2, &node[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, node, 2, &node[0]));
    uint32_t square[2] = {x.node, x.node};
    uint32_t step[2];
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, square, 2, &step[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &sum, &step[0], 1, &step[0]));
    static const sx_op op[2] = {SX_OP_DIVIDE, SX_OP_ADD};
    for (uint32_t k = 0; k < 2 && step[0] != SX_EG_NONE; k++) {
        sx_type row = *sx_rewrite_type(rw, step[0]);
        double value = k == 0 ? count : sx_rewrite_rounded(&row, norm.eps);
        SX_TRY(sx_tensors_add_value(rw->cx, t, &row, value, &step[1]));
        SX_TRY(sx_rewrite_add(rw, op[k], NULL, step, 2, &step[0]));
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_RSQRT, NULL, &step[0], 1, &step[0]));
    SX_TRY(repeat_to(rw, step[0], &rest, &out_type, &out, &node[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, node, 2, &node[0]));
    return sx_rewrite_emit(rw, node[0]);
}
