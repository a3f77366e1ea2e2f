/* Contractions that share no operand, of equal types: one contraction of their stacks, with a batch dimension
 * more, or a longer one. Convolutions: one of more groups. */
#include "core/egraph/multi.h"
#include "core/rules/conv.h"

#include <string.h>

/* A bucket of very unlike members is looked at no more than so often. */
#define GROUPS_MAX 8u
/* Members of one stack. A concatenation takes no more than 64 operands. */
#define RUN_MAX 60u
/* Stacks of one group that are tried for a member that depends on some of the others, and steps of asking so. */
#define OPEN_RUNS_MAX 4u
#define ASKING_STEPS_MAX 100000u
/* Parts of a value that are looked up; each costs two picks. */
#define STRIPS_MAX (SX_REWRITE_PICKS_MAX / 2)

typedef struct {
    uint32_t member; /* of the bucket */
    uint32_t operand[2];
    bool taken;
} candidate;

typedef struct {
    uint32_t member[RUN_MAX];
    uint32_t operand[2 * RUN_MAX];
    uint32_t count;
} batch_run;

/* How stacks are made for contractions of one attribute. */
typedef struct {
    sx_rewrite *rw;
    sx_attr attr;         /* of the stacked contraction */
    bool fresh;           /* the stacked dimension is new, and the first of everything */
    sx_op op;             /* dot_general or convolution */
    uint32_t result_axis; /* where the stacked dimension is in the result */
    int64_t axis[2];      /* in the operands */
    int64_t extent;       /* of one member along it */
    sx_type operand[2];   /* as they are stacked */
} stacking;

static bool is_weight(const sx_tensors *t, uint32_t class_)
{
    return sx_tensors_fact(t, class_)->is_weight != 0;
}

/* The class is also the transposition of one that is older: what swapped operands made of a contraction. */
static bool is_twin(const sx_rewrite *rw)
{
    const sx_eg *eg = &sx_rewrite_tensors(rw)->eg;
    uint32_t root = sx_eg_find(eg, rw->node[0]);
    uint32_t turned = sx_rewrite_member(rw, root, SX_OP_TRANSPOSE);
    return turned != SX_EG_NONE && sx_eg_child(eg, turned, 0) < root;
}

/* What need not be stacked, though the equality would hold: what runs once at load; what was merged or is read
 * in parts; a twin. */
static bool is_useless(const sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    bool joined = false;
    for (uint32_t k = 0; k < 2; k++) {
        joined = joined || sx_eg_has_op(&t->eg, rw->var[k], SX_OP_CONCATENATE);
    }
    return joined || (is_weight(t, rw->var[0]) && is_weight(t, rw->var[1])) || is_twin(rw);
}

/* A dimension of one more in front of all. */
static bool add_dimension(sx_type *type)
{
    if (type->rank >= SX_RANK_MAX) {
        return false;
    }
    memmove(&type->dim[1], &type->dim[0], type->rank * sizeof(type->dim[0]));
    type->dim[0] = sx_dim_of(1);
    type->rank++;
    return true;
}

/* Places of dimensions when one more stands in front of all. */
static void move_places(sx_ints *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        list->v[i]++;
    }
}

static void put_batch(sx_ints *batch)
{
    move_places(batch);
    memmove(&batch->v[1], &batch->v[0], batch->count * sizeof(batch->v[0]));
    batch->v[0] = 0;
    batch->count++;
}

/* The groups of all, one behind the other: their channels of the images, their outputs of the weights. */
static bool set_groups(stacking *s, const sx_type *result)
{
    s->fresh = false;
    s->axis[0] = s->result_axis = 1;
    s->axis[1] = 0;
    s->extent = sx_dim_is_constant(result->dim[1]) ? result->dim[1].scale : SX_EXTENT_MAX;
    return s->extent <= SX_EXTENT_MAX / RUN_MAX && sx_dim_is_constant(s->operand[0].dim[1]);
}

/* Along the first batch dimension where there is one of known extent, else along a new one; false: there is no
 * room for it. */
static bool set_stacking(stacking *s, sx_rewrite *rw, const candidate *c)
{
    const sx_type *result = sx_rewrite_type(rw, rw->node[0]);
    s->rw = rw;
    s->op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    s->result_axis = 0;
    s->attr = sx_rewrite_attr(rw, 0);
    s->operand[0] = *sx_rewrite_type(rw, c->operand[0]);
    s->operand[1] = *sx_rewrite_type(rw, c->operand[1]);
    if (s->op == SX_OP_CONVOLUTION) {
        return set_groups(s, result);
    }
    s->fresh = s->attr.lhs_batch.count == 0 || !sx_dim_is_constant(result->dim[0]);
    if (!s->fresh) {
        s->axis[0] = s->attr.lhs_batch.v[0];
        s->axis[1] = s->attr.rhs_batch.v[0];
        s->extent = result->dim[0].scale;
        return s->extent <= SX_EXTENT_MAX / RUN_MAX;
    }
    s->axis[0] = s->axis[1] = 0;
    s->extent = 1;
    move_places(&s->attr.lhs_contract);
    move_places(&s->attr.rhs_contract);
    if (result->rank >= SX_RANK_MAX || !add_dimension(&s->operand[0]) ||
        !add_dimension(&s->operand[1])) {
        return false;
    }
    put_batch(&s->attr.lhs_batch);
    put_batch(&s->attr.rhs_batch);
    return true;
}

/* Operand k of every member, one behind the other. */
static sx_code stack_operands(const stacking *s, const batch_run *run, uint32_t k, uint32_t *node)
{
    uint32_t part[RUN_MAX];
    sx_attr attr = {.present = SX_A(axis), .axis = s->axis[k]};
    for (uint32_t i = 0; i < run->count; i++) {
        SX_TRY(sx_rewrite_reshape(s->rw, run->operand[2 * i + k], &s->operand[k], &part[i]));
    }
    return sx_rewrite_add(s->rw, SX_OP_CONCATENATE, &attr, part, run->count, node);
}

static sx_code stack_run(const stacking *s, const batch_run *run)
{
    sx_rewrite *rw = s->rw;
    sx_attr attr = s->attr;
    uint32_t child[2];
    uint32_t whole;
    attr.groups *= s->op == SX_OP_CONVOLUTION ? run->count : 1;
    SX_ASSERT(run->count >= 2 && run->count <= RUN_MAX);
    SX_TRY(sx_rewrite_run(rw, run->member, run->count));
    SX_TRY(stack_operands(s, run, 0, &child[0]));
    SX_TRY(stack_operands(s, run, 1, &child[1]));
    SX_TRY(sx_rewrite_add(rw, s->op, &attr, child, 2, &whole));
    for (uint32_t i = 0; i < run->count && whole != SX_EG_NONE; i++) {
        uint32_t node;
        sx_rewrite_turn(rw, run->member[i]);
        sx_type type = *sx_rewrite_type(rw, rw->node[0]);
        SX_TRY(sx_rewrite_cut(rw, whole, s->result_axis, i * s->extent, s->extent, &node));
        SX_TRY(sx_rewrite_reshape(rw, node, &type, &node));
        SX_TRY(sx_rewrite_emit(rw, node));
    }
    return SX_OK;
}

/* ---- which ones ---- */

/* Does the member share no operand with the run, and does none of them depend on another? */
static sx_code fits_run(sx_rewrite *rw, batch_run *run, const candidate *c, bool *fits)
{
    *fits = run->count < RUN_MAX && run->count < sx_rewrite_run_max(rw);
    for (uint32_t i = 0; i < run->count && *fits; i++) {
        *fits = run->operand[2 * i] != c->operand[0] && run->operand[2 * i + 1] != c->operand[1];
    }
    if (!*fits) {
        return SX_OK;
    }
    run->member[run->count] = c->member;
    memcpy(&run->operand[2 * run->count], c->operand, sizeof(c->operand));
    run->count++;
    if (run->count > 1) {
        SX_TRY(sx_rewrite_independent_of(rw, run->operand, 2 * run->count, run->member, run->count,
                                         fits));
    }
    run->count -= *fits ? 0 : 1;
    return SX_OK;
}

/* The members of the types of the first, each put to the first stack it fits to. */
static sx_code batch_group(sx_rewrite *rw, candidate *list, uint32_t count, uint32_t first)
{
    batch_run *run = SX_NEW_ARRAY(rw->cx, batch_run, OPEN_RUNS_MAX);
    sx_type type[2] = {*sx_rewrite_type(rw, list[first].operand[0]),
                       *sx_rewrite_type(rw, list[first].operand[1])};
    uint32_t run_count = 0;
    uint64_t most = rw->bucket->work + ASKING_STEPS_MAX;
    stacking s;
    if (run == NULL) {
        return rw->cx->error.code;
    }
    for (uint32_t i = first; i < count; i++) {
        candidate *c = &list[i];
        bool fits = false;
        if (c->taken || !sx_type_equal(sx_rewrite_type(rw, c->operand[0]), &type[0]) ||
            !sx_type_equal(sx_rewrite_type(rw, c->operand[1]), &type[1])) {
            continue;
        }
        c->taken = true;
        for (uint32_t r = 0; r < OPEN_RUNS_MAX && !fits && rw->bucket->work < most; r++) {
            run_count = r == run_count ? r + 1 : run_count;
            SX_TRY(fits_run(rw, &run[r], c, &fits));
        }
    }
    sx_rewrite_turn(rw, list[first].member);
    if (!set_stacking(&s, rw, &list[first])) {
        return SX_OK;
    }
    for (uint32_t r = 0; r < run_count; r++) {
        if (run[r].count > 1) {
            SX_TRY(stack_run(&s, &run[r]));
        }
    }
    return SX_OK;
}

/* A step is being checked: all members as one stack. */
static sx_code batch_all(sx_rewrite *rw, const candidate *list, uint32_t count)
{
    batch_run *run = SX_NEW(rw->cx, batch_run);
    stacking s;
    if (run == NULL) {
        return rw->cx->error.code;
    }
    sx_rewrite_turn(rw, 0);
    if (count > RUN_MAX || !set_stacking(&s, rw, &list[0])) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            run->operand[2 * i + k] = list[i].operand[k];
            if (!sx_type_equal(sx_rewrite_type(rw, list[i].operand[k]),
                               sx_rewrite_type(rw, list[0].operand[k]))) {
                return SX_OK;
            }
        }
        run->member[run->count++] = list[i].member;
    }
    return stack_run(&s, run);
}

/* A1 B1, A2 B2, .. of equal types are the parts of [A1; A2; ..] [B1; B2; ..], contracted for each index of the
 * new dimension. The sums are what they were. */
sx_code sx_rule_batch(sx_rewrite *rw)
{
    candidate *list = SX_NEW_ARRAY(rw->cx, candidate, rw->bucket->count);
    uint32_t count = 0;
    uint32_t groups = 0;
    if (list == NULL) {
        return rw->cx->error.code;
    }
    for (uint32_t i = 0; i < rw->bucket->count; i++) {
        sx_rewrite_turn(rw, i);
        if (rw->unguarded || !is_useless(rw)) {
            list[count++] = (candidate){i, {rw->var[0], rw->var[1]}, false};
        }
    }
    if (rw->unguarded) {
        return batch_all(rw, list, count);
    }
    for (uint32_t first = 0; first < count && groups < GROUPS_MAX; first++) {
        if (!list[first].taken) {
            groups++;
            SX_TRY(batch_group(rw, list, count, first));
        }
    }
    return SX_OK;
}

/* ---- stacks of the parts of one value ---- */

/* Parts that lie one behind the other along `axis` of `source`, `extent` wide, all of it; each seen as another type. */
typedef struct {
    uint32_t source;
    uint32_t axis;
    int64_t extent;
    uint32_t count;
} strips;

static bool is_strip(const sx_rewrite *rw, const strips *s, uint32_t slice, uint32_t k)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_attr *attr = sx_tensors_attr(t, slice);
    uint32_t axis;
    return sx_eg_child(&t->eg, slice, 0) == s->source &&
           sx_slice_axis(attr, sx_tensors_type(t, s->source), &axis) && axis == s->axis &&
           attr->start.v[axis] == k * s->extent && attr->limit.v[axis] == (k + 1) * s->extent;
}

/* The member of `class_` that is strip k of the source, or SX_EG_NONE. */
static uint32_t find_strip(const sx_rewrite *rw, const strips *s, uint32_t class_, uint32_t k,
                           bool picks)
{
    const sx_eg *eg = &sx_rewrite_tensors(rw)->eg;
    uint32_t first = sx_eg_find(eg, class_);
    uint32_t n = first;
    do {
        if (eg->node[n].op == SX_OP_SLICE && (eg->node[n].dead == 0 || rw->unguarded) &&
            is_strip(rw, s, n, k) && (!picks || sx_rewrite_pick(rw, n))) {
            return n;
        }
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    return SX_EG_NONE;
}

static bool is_reshaped_strip(const sx_rewrite *rw, const strips *s, uint32_t class_, uint32_t k)
{
    const sx_eg *eg = &sx_rewrite_tensors(rw)->eg;
    uint32_t first = sx_eg_find(eg, class_);
    uint32_t n = first;
    do {
        if (eg->node[n].op == SX_OP_RESHAPE && (eg->node[n].dead == 0 || rw->unguarded) &&
            find_strip(rw, s, sx_eg_child(eg, n, 0), k, false) != SX_EG_NONE &&
            sx_rewrite_pick(rw, n)) {
            return find_strip(rw, s, sx_eg_child(eg, n, 0), k, true) != SX_EG_NONE;
        }
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    return false;
}

/* (concatenate (reshape (slice ?x)) ...): are all its parts strips of x, all equal and all there are? */
static bool find_strips(const sx_rewrite *rw, strips *s)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_type *whole = sx_rewrite_type(rw, rw->var[0]);
    const sx_attr *slice = sx_tensors_attr(t, rw->node[2]);
    s->source = sx_eg_find(&t->eg, rw->var[0]);
    s->count = t->eg.node[rw->node[0]].arity;
    if (s->count < 2 || s->count > STRIPS_MAX || !sx_slice_axis(slice, whole, &s->axis)) {
        return false;
    }
    s->extent = slice->limit.v[s->axis];
    bool all = slice->start.v[s->axis] == 0 && sx_dim_is_constant(whole->dim[s->axis]) &&
               whole->dim[s->axis].scale == s->count * s->extent;
    for (uint32_t k = 1; k < s->count && all; k++) {
        uint32_t part = sx_eg_child(&t->eg, rw->node[0], k);
        all = sx_type_equal(sx_rewrite_type(rw, part), sx_rewrite_type(rw, rw->node[1])) &&
              is_reshaped_strip(rw, s, part, k);
    }
    return all;
}

/* Dimension `from` comes to stand at `to`, the others keep their order. */
static sx_attr moved_dimension(uint32_t rank, uint32_t from, uint32_t to)
{
    sx_attr attr = {.present = SX_A(perm)};
    uint32_t next = 0;
    attr.perm.count = rank;
    for (uint32_t d = 0; d < rank; d++) {
        next += next == from ? 1 : 0;
        attr.perm.v[d] = d == to ? from : next++;
    }
    return attr;
}

/* Strips with a new dimension, along which they are stacked: x with the axis split in two and the first half moved. */
sx_code sx_rule_stack_strips(sx_rewrite *rw)
{
    strips s;
    uint32_t place = (uint32_t)sx_rewrite_attr(rw, 0).axis;
    sx_type split = *sx_rewrite_type(rw, rw->var[0]);
    uint32_t node;
    if (!sx_type_is_wider(sx_rewrite_type(rw, rw->node[1]), sx_rewrite_type(rw, rw->node[2]),
                          place) ||
        split.rank >= SX_RANK_MAX || !find_strips(rw, &s)) {
        return SX_OK;
    }
    memmove(&split.dim[s.axis + 1], &split.dim[s.axis],
            (split.rank - s.axis) * sizeof(split.dim[0]));
    split.dim[s.axis] = sx_dim_of(s.count);
    split.dim[s.axis + 1] = sx_dim_of(s.extent);
    split.rank++;
    sx_attr move = moved_dimension(split.rank, s.axis, place);
    SX_TRY(sx_rewrite_reshape(rw, rw->var[0], &split, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &move, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* Strips of extent 1 without their axis, one behind the other: x with that axis moved in front of the one they
 * are joined along. */
sx_code sx_rule_strips_unstacked(sx_rewrite *rw)
{
    strips s;
    uint32_t place = (uint32_t)sx_rewrite_attr(rw, 0).axis;
    sx_type whole = *sx_rewrite_type(rw, rw->var[0]);
    sx_type joined = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    if (!find_strips(rw, &s) || s.extent != 1 ||
        !sx_type_is_wider(sx_rewrite_type(rw, rw->node[2]), sx_rewrite_type(rw, rw->node[1]),
                          s.axis)) {
        return SX_OK;
    }
    sx_attr move = moved_dimension(whole.rank, s.axis, place);
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &move, &rw->var[0], 1, &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &joined, &node));
    return sx_rewrite_emit(rw, node);
}
