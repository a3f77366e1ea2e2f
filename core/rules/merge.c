/* Several contractions as one, and what reads all parts of a value as one operation on the whole. */
#include "core/egraph/multi.h"
#include "core/rules/rules.h"

#include <stdlib.h>
#include <string.h>

/* A bucket of very unlike members is looked at no more than so often. */
#define GROUPS_MAX 8u
/* Neighbours are merged as well, two and two: the best merge need not be that of all. */
#define PAIRS_MAX 8u
/* Members of one merged value: longer runs are cut. A concatenation takes no more than 64 operands. */
#define RUN_MAX 60u

typedef struct {
    uint32_t member; /* of the bucket */
    uint32_t whole;  /* class to be joined with those of the others */
    uint32_t root;   /* class of the member */
    bool taken;
} part;

static bool is_listed(const sx_ints *list, int64_t value)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->v[i] == value) {
            return true;
        }
    }
    return false;
}

static bool has_op(const sx_tensors *t, uint32_t class_, sx_op op)
{
    return sx_eg_has_op(&t->eg, sx_eg_find(&t->eg, class_), op);
}

static bool is_weight(const sx_tensors *t, uint32_t class_)
{
    return sx_tensors_fact(t, class_)->is_weight != 0;
}

/* Equal types but for one extent, which is a constant in both. */
static bool alike(const sx_type *a, const sx_type *b, uint32_t axis)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (uint32_t d = 0; d < a->rank && same; d++) {
        same = d == axis ? sx_dim_is_constant(a->dim[d]) && sx_dim_is_constant(b->dim[d])
                         : sx_dim_equal(a->dim[d], b->dim[d]);
    }
    return same;
}

/* Classes one after the other along `axis`. */
static sx_code join(sx_rewrite *rw, uint32_t axis, const uint32_t *class_, uint32_t count,
                    uint32_t *node)
{
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    SX_ASSERT(count <= RUN_MAX);
    return sx_rewrite_add(rw, SX_OP_CONCATENATE, &attr, class_, count, node);
}

/* ---- contractions or convolutions that share an operand ---- */

typedef struct {
    sx_rewrite *rw;
    sx_op op; /* dot_general or convolution */
    sx_attr attr;
    bool left_shared;
    uint32_t shared;
    uint32_t axis;        /* of the operands that are joined */
    uint32_t result_axis; /* where it is in the result */
} merger;

static const sx_ints *batch_of(const merger *g)
{
    return g->left_shared ? &g->attr.rhs_batch : &g->attr.lhs_batch;
}

static const sx_ints *contract_of(const merger *g)
{
    return g->left_shared ? &g->attr.rhs_contract : &g->attr.lhs_contract;
}

/* An operand without a free dimension gets one, behind the others. */
static sx_code with_free_dim(sx_rewrite *rw, const sx_ints *batch, const sx_ints *contract,
                             uint32_t x, uint32_t *node)
{
    sx_type type = *sx_rewrite_type(rw, x);
    *node = x;
    if (type.rank > batch->count + contract->count) {
        return SX_OK;
    }
    *node = SX_EG_NONE;
    if (type.rank >= SX_RANK_MAX) {
        return SX_OK;
    }
    type.dim[type.rank++] = sx_dim_of(1);
    return sx_rewrite_reshape(rw, x, &type, node);
}

/* What need not be joined, though the equality would hold: what is a concatenation already (its parts are
 * members themselves); a contraction that runs once at load; one with the weight on the left whose twin with
 * the weight on the right stands beside it. */
static bool is_useless(const merger *g, uint32_t x)
{
    const sx_rewrite *rw = g->rw;
    const sx_tensors *t = sx_rewrite_tensors(rw);
    bool left = is_weight(t, g->left_shared ? g->shared : x);
    bool right = is_weight(t, g->left_shared ? x : g->shared);
    bool has_twin = has_op(t, rw->node[0], SX_OP_TRANSPOSE);
    return has_op(t, x, SX_OP_CONCATENATE) || (left && right) || (left && has_twin);
}

/* In the order in which the results came up, whatever later found a node that fits: parts that stand side by
 * side stay so. The list is nearly so already. */
static void sort_parts(part *list, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        part moved = list[i];
        uint32_t k = i;
        for (; k > 0 && list[k - 1].root > moved.root; k--) {
            list[k] = list[k - 1];
        }
        list[k] = moved;
    }
}

static int by_class(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The values of which members of the bucket are pieces, ascending: merging them again would double what they hold. */
static sx_code find_wholes(merger *g, uint32_t **whole, uint32_t *count)
{
    sx_rewrite *rw = g->rw;
    const sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t room = 0;
    *count = 0;
    *whole = NULL;
    for (uint32_t i = 0; i < rw->bucket->count; i++) {
        sx_rewrite_turn(rw, i);
        uint32_t first = sx_eg_find(&t->eg, rw->node[0]);
        if (!has_op(t, first, SX_OP_SLICE)) {
            continue;
        }
        uint32_t n = first;
        do {
            if (t->eg.node[n].dead == 0 && sx_tensors_op(t, n) == SX_OP_SLICE) {
                SX_TRY(sx_region_grow(rw->cx, (void **)whole, &room, *count + 1, sizeof(**whole)));
                (*whole)[(*count)++] = sx_eg_child(&t->eg, n, 0);
            }
            n = sx_eg_member_next(&t->eg, n);
        } while (n != first);
    }
    if (*count > 0) {
        qsort(*whole, *count, sizeof(**whole), by_class);
    }
    return SX_OK;
}

static sx_code find_parts(merger *g, part *list, uint32_t *count)
{
    sx_rewrite *rw = g->rw;
    uint32_t *whole;
    uint32_t whole_count;
    SX_TRY(find_wholes(g, &whole, &whole_count));
    *count = 0;
    for (uint32_t i = 0; i < rw->bucket->count; i++) {
        sx_rewrite_turn(rw, i);
        uint32_t x = rw->var[g->left_shared ? 1 : 0];
        uint32_t result = sx_eg_find(rw->eg, rw->node[0]);
        bool is_whole = whole_count > 0 &&
                        bsearch(&result, whole, whole_count, sizeof(*whole), by_class) != NULL;
        if (!rw->unguarded && (is_whole || is_useless(g, x))) {
            continue;
        }
        part *p = &list[*count];
        p->member = i;
        p->taken = false;
        p->whole = x;
        p->root = sx_eg_find(rw->eg, rw->node[0]);
        if (g->op == SX_OP_DOT_GENERAL) {
            SX_TRY(with_free_dim(rw, batch_of(g), contract_of(g), x, &p->whole));
        }
        *count += p->whole != SX_EG_NONE ? 1 : 0;
    }
    if (!rw->unguarded) { /* a step that is checked names its members in order */
        sort_parts(list, *count);
    }
    return SX_OK;
}

/* Joins along dimension `axis`, if the joined operands leave it free: of a convolution the images, or the
 * output channels where they all read the same input channels. */
static bool set_axis(merger *g, const sx_type *type, uint32_t axis)
{
    uint32_t before = 0;
    if (g->op == SX_OP_CONVOLUTION) {
        g->axis = 0;
        g->result_axis = g->left_shared ? 1 : 0;
        return axis == 0 && (!g->left_shared || g->attr.groups == 1);
    }
    if (is_listed(batch_of(g), axis) || is_listed(contract_of(g), axis)) {
        return false;
    }
    for (uint32_t d = 0; d < axis; d++) {
        before += is_listed(batch_of(g), d) || is_listed(contract_of(g), d) ? 0 : 1;
    }
    SX_ASSERT(axis < type->rank);
    g->axis = axis;
    g->result_axis = batch_of(g)->count + before;
    if (g->left_shared) {
        g->result_axis +=
            sx_rewrite_type(g->rw, g->shared)->rank - batch_of(g)->count - contract_of(g)->count;
    }
    return true;
}

/* The dimension along which most of the parts can be joined to the first that is left; false: no part is left. */
static bool choose_axis(merger *g, const part *list, uint32_t count, uint32_t *first)
{
    for (*first = 0; *first < count && list[*first].taken;) {
        (*first)++;
    }
    if (*first == count) {
        return false;
    }
    const sx_type *type = sx_rewrite_type(g->rw, list[*first].whole);
    uint32_t best = 0;
    uint32_t axis = 0;
    for (uint32_t d = 0; d < type->rank; d++) {
        uint32_t fitting = 0;
        for (uint32_t i = 0; i < count && set_axis(g, type, d); i++) {
            bool fits = alike(type, sx_rewrite_type(g->rw, list[i].whole), d);
            fitting += !list[i].taken && fits ? 1 : 0;
        }
        axis = fitting > best ? d : axis;
        best = fitting > best ? fitting : best;
    }
    return set_axis(g, type, axis);
}

/* The parts as one contraction; every member is a slice of it. */
static sx_code merge_run(merger *g, const part *const *run, uint32_t count)
{
    sx_rewrite *rw = g->rw;
    uint32_t class_[RUN_MAX];
    uint32_t member[RUN_MAX];
    for (uint32_t i = 0; i < count; i++) {
        class_[i] = run[i]->whole;
        member[i] = run[i]->member;
    }
    uint32_t joined;
    uint32_t merged;
    SX_TRY(sx_rewrite_run(rw, member, count));
    SX_TRY(join(rw, g->axis, class_, count, &joined));
    uint32_t child[2] = {g->left_shared ? g->shared : joined, g->left_shared ? joined : g->shared};
    SX_TRY(sx_rewrite_add(rw, g->op, &g->attr, child, 2, &merged));
    int64_t start = 0;
    for (uint32_t i = 0; i < count && merged != SX_EG_NONE; i++) {
        int64_t extent = sx_rewrite_type(rw, class_[i])->dim[g->axis].scale;
        uint32_t node;
        SX_TRY(sx_rewrite_cut(rw, merged, g->result_axis, start, extent, &node));
        sx_rewrite_turn(rw, run[i]->member);
        sx_type type = *sx_rewrite_type(rw, rw->node[0]);
        SX_TRY(sx_rewrite_reshape(rw, node, &type, &node));
        SX_TRY(sx_rewrite_emit(rw, node));
        start += extent;
    }
    return SX_OK;
}

/* One group of parts that fit: all together, and neighbours. Parts that do not follow from weights must not
 * depend on a member. */
static sx_code merge_group(merger *g, part *list, uint32_t count, uint32_t first)
{
    sx_rewrite *rw = g->rw;
    const sx_tensors *t = sx_rewrite_tensors(rw);
    sx_type type = *sx_rewrite_type(rw, list[first].whole);
    const part **run = (const part **)sx_alloc_array(rw->cx, count, sizeof(*run));
    uint32_t *open = SX_NEW_ARRAY(rw->cx, uint32_t, count);
    if (run == NULL || open == NULL) {
        return rw->cx->error.code;
    }
    uint32_t open_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!list[i].taken && !is_weight(t, list[i].whole)) {
            open[open_count++] = list[i].whole;
        }
    }
    bool independent = true;
    if (open_count > 0) {
        SX_TRY(sx_rewrite_independent(rw, open, open_count, &independent));
    }
    uint32_t length = 0;
    list[first].taken = true;
    for (uint32_t i = first; i < count; i++) {
        bool fits = alike(&type, sx_rewrite_type(rw, list[i].whole), g->axis);
        if ((i == first || !list[i].taken) && fits) {
            list[i].taken = true;
            if (independent || is_weight(t, list[i].whole)) {
                run[length++] = &list[i];
            }
        }
    }
    for (uint32_t i = 0; i + 1 < length; i += RUN_MAX) {
        SX_TRY(merge_run(g, &run[i], length - i < RUN_MAX ? length - i : RUN_MAX));
    }
    for (uint32_t i = 0; length > 3 && i + 1 < length && i < PAIRS_MAX; i++) {
        SX_TRY(merge_run(g, &run[i], 2));
    }
    return SX_OK;
}

/* A step is being checked: all the parts as one, along each dimension where that is possible. */
static sx_code merge_all(merger *g, const part *list, uint32_t count)
{
    const part *run[RUN_MAX];
    if (count != g->rw->bucket->count || count > RUN_MAX) {
        return SX_OK;
    }
    sx_type type = *sx_rewrite_type(g->rw, list[0].whole);
    for (uint32_t d = 0; d < type.rank; d++) {
        bool fits = set_axis(g, &type, d);
        for (uint32_t i = 0; i < count; i++) {
            run[i] = &list[i];
            fits = fits && alike(&type, sx_rewrite_type(g->rw, list[i].whole), d);
        }
        if (fits) {
            SX_TRY(merge_run(g, run, count));
        }
    }
    return SX_OK;
}

static sx_code merge_members(sx_rewrite *rw, bool left_shared)
{
    part *list = SX_NEW_ARRAY(rw->cx, part, rw->bucket->count);
    if (list == NULL) {
        return rw->cx->error.code;
    }
    merger g = {.rw = rw, .attr = sx_rewrite_attr(rw, 0), .left_shared = left_shared};
    g.op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    g.shared = rw->var[left_shared ? 0 : 1];
    uint32_t count;
    uint32_t first;
    SX_TRY(find_parts(&g, list, &count));
    if (rw->unguarded) {
        return merge_all(&g, list, count);
    }
    for (uint32_t i = 0; i < GROUPS_MAX && choose_axis(&g, list, count, &first); i++) {
        SX_TRY(merge_group(&g, list, count, first));
    }
    return SX_OK;
}

/* x W1, x W2, .. are the column blocks of x [W1 W2 ..]; convolutions: the output channels of one input */
sx_code sx_rule_merge_right(sx_rewrite *rw)
{
    return merge_members(rw, true);
}

/* A1 x, A2 x, .. are the row blocks of [A1; A2; ..] x; convolutions: the images under one set of kernels */
sx_code sx_rule_merge_left(sx_rewrite *rw)
{
    return merge_members(rw, false);
}

/* ---- all parts of a value, each under the same elementwise operation: the operation on the whole ---- */

typedef struct {
    uint32_t axis;
    uint32_t count;
    uint32_t *member;
    int64_t *start, *limit;
} parts;

/* Members whose slices lie one behind the other and cover all of the shared value; count 0 if some part is
 * missing. Greedy: at each end of a part the first member that begins there. The slices are the matched nodes
 * `slice_place`. */
static sx_code find_cover(sx_rewrite *rw, uint32_t shared, uint32_t slice_place, parts *p)
{
    const sx_type *whole = sx_rewrite_type(rw, shared);
    uint32_t n = rw->bucket->count;
    p->count = 0;
    p->member = SX_NEW_ARRAY(rw->cx, uint32_t, n);
    p->start = SX_NEW_ARRAY(rw->cx, int64_t, n);
    p->limit = SX_NEW_ARRAY(rw->cx, int64_t, n);
    if (p->member == NULL || p->start == NULL || p->limit == NULL) {
        return rw->cx->error.code;
    }
    bool first = true;
    int64_t at = 0;
    uint32_t next = 0; /* parts come in order as a rule */
    for (bool found = true; found;) {
        found = false;
        for (uint32_t k = 0; k < n && !found && p->count < n; k++) {
            uint32_t i = (next + k) % n;
            sx_rewrite_turn(rw, i);
            const sx_attr *slice = sx_tensors_attr(sx_rewrite_tensors(rw), rw->node[slice_place]);
            uint32_t axis;
            rw->bucket->work++;
            found = sx_slice_axis(slice, whole, &axis) && (first || axis == p->axis) &&
                    slice->start.v[axis] == at;
            if (found) {
                first = false;
                next = i + 1;
                p->axis = axis;
                p->member[p->count] = i;
                p->start[p->count] = at;
                at = slice->limit.v[axis];
                p->limit[p->count++] = at;
            }
        }
    }
    if (p->count < 2 || p->count > RUN_MAX || p->count > sx_rewrite_run_max(rw) ||
        at != whole->dim[p->axis].scale) {
        p->count = 0;
        return SX_OK;
    }
    return sx_rewrite_run(rw, p->member, p->count);
}

/* Each member is its part of `whole`, seen as the member's type. */
static sx_code emit_parts(sx_rewrite *rw, const parts *p, uint32_t whole)
{
    for (uint32_t i = 0; i < p->count && whole != SX_EG_NONE; i++) {
        uint32_t node;
        SX_TRY(sx_rewrite_cut(rw, whole, p->axis, p->start[i], p->limit[i] - p->start[i], &node));
        sx_rewrite_turn(rw, p->member[i]);
        sx_type type = *sx_rewrite_type(rw, rw->node[0]);
        SX_TRY(sx_rewrite_reshape(rw, node, &type, &node));
        SX_TRY(sx_rewrite_emit(rw, node));
    }
    return SX_OK;
}

sx_code sx_rule_parts_unary(sx_rewrite *rw)
{
    parts p;
    uint32_t node;
    uint32_t shared = rw->var[0];
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    SX_TRY(find_cover(rw, shared, 1, &p));
    if (p.count == 0) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, op, NULL, &shared, 1, &node));
    return emit_parts(rw, &p, node);
}

/* The second operands of all members are one known value. */
sx_code sx_rule_parts_value(sx_rewrite *rw)
{
    parts p;
    sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    sx_op op = sx_tensors_op(t, rw->node[0]);
    sx_fact value = *sx_tensors_fact(t, rw->var[1]);
    SX_TRY(find_cover(rw, child[0], 1, &p));
    for (uint32_t i = 0; i < p.count; i++) {
        sx_rewrite_turn(rw, p.member[i]);
        const sx_fact *fact = sx_tensors_fact(t, rw->var[1]);
        if (fact->has_value == 0 || memcmp(&fact->value, &value.value, sizeof(double)) != 0) {
            return SX_OK;
        }
    }
    if (p.count == 0) {
        return SX_OK;
    }
    sx_type type = *sx_rewrite_type(rw, child[0]);
    SX_TRY(sx_tensors_add_value(rw->cx, t, &type, value.value, &child[1]));
    SX_TRY(sx_rewrite_add(rw, op, NULL, child, 2, &node));
    return emit_parts(rw, &p, node);
}

/* Which dimension of its operand does a broadcast take along `axis`, as it is? */
static bool kept_axis(const sx_attr *repeat, const sx_type *source, const sx_type *result,
                      uint32_t axis, uint32_t *source_axis)
{
    for (uint32_t d = 0; d < repeat->dims.count; d++) {
        if (repeat->dims.v[d] == axis) {
            *source_axis = d;
            return sx_dim_equal(source->dim[d], result->dim[axis]);
        }
    }
    return false;
}

/* The second operands are repeated along other dimensions than the one that is cut: what they repeat, one
 * behind the other. Weights only, for it costs nothing at run time then. */
sx_code sx_rule_parts_repeated(sx_rewrite *rw)
{
    parts p;
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    uint32_t source[RUN_MAX];
    uint32_t axis = 0;
    sx_attr repeat = {0};
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    SX_TRY(find_cover(rw, child[0], 1, &p));
    for (uint32_t i = 0; i < p.count; i++) {
        uint32_t kept;
        sx_rewrite_turn(rw, p.member[i]);
        sx_attr attr = sx_rewrite_attr(rw, 2);
        repeat = i == 0 ? attr : repeat;
        source[i] = rw->var[1];
        if (!kept_axis(&attr, sx_rewrite_type(rw, source[i]), sx_rewrite_type(rw, rw->node[2]),
                       p.axis, &kept) ||
            memcmp(&attr.dims, &repeat.dims, sizeof(attr.dims)) != 0 ||
            (!rw->unguarded && !is_weight(sx_rewrite_tensors(rw), source[i]))) {
            return SX_OK;
        }
        axis = kept;
    }
    if (p.count == 0) {
        return SX_OK;
    }
    repeat.type = *sx_rewrite_type(rw, child[0]);
    SX_TRY(join(rw, axis, source, p.count, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &node, 1, &child[1]));
    SX_TRY(sx_rewrite_add(rw, op, NULL, child, 2, &node));
    return emit_parts(rw, &p, node);
}

/* softmax or log_softmax of the whole along `axis`; every member is its part */
static sx_code emit_rows(sx_rewrite *rw, const parts *p, uint32_t shared, int64_t axis)
{
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    uint32_t node;
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    SX_TRY(sx_rewrite_add(rw, op, &attr, &shared, 1, &node));
    return emit_parts(rw, p, node);
}

/* Rows that are not cut. */
sx_code sx_rule_parts_rows(sx_rewrite *rw)
{
    parts p;
    uint32_t shared = rw->var[0];
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    SX_TRY(find_cover(rw, shared, 1, &p));
    return p.count == 0 || axis == p.axis ? SX_OK : emit_rows(rw, &p, shared, axis);
}

/* The parts are one wide and seen without the axis along which they are cut. */
sx_code sx_rule_strips_rows(sx_rewrite *rw)
{
    parts p;
    uint32_t shared = rw->var[0];
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    SX_TRY(find_cover(rw, shared, 2, &p));
    for (uint32_t i = 0; i < p.count; i++) {
        sx_rewrite_turn(rw, p.member[i]);
        if (!sx_type_is_wider(sx_rewrite_type(rw, rw->node[2]), sx_rewrite_type(rw, rw->node[1]),
                              p.axis)) {
            return SX_OK;
        }
    }
    return p.count == 0 ? SX_OK : emit_rows(rw, &p, shared, axis < p.axis ? axis : axis + 1);
}
