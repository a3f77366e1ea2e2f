#include <string.h>

#include "core/fuse/fuse.h"
#include "core/ir/fused_body.h"
#include "core/ir/num.h"

#define NONE UINT32_MAX

/* An index of the old space as an affine form of the new one: offset + sum over d of step[d] * i[d], below `extent`. */
typedef struct {
    sx_dim extent;
    sx_dim offset;
    sx_dim step[SX_RANK_MAX];
} form;

/* A program to be copied into a new body. */
typedef struct {
    const sx_body *from;
    uint32_t arg[SX_FUSED_ARGS_MAX]; /* new number of each argument */
    uint32_t replaced; /* the argument that becomes instruction `value` of the new body, or NONE */
    uint32_t value;
    bool nests;              /* its DOT becomes the outer one of nested ones */
    form index[SX_RANK_MAX]; /* of each dimension of the old space */
} part;

/* ---- copying programs ---- */
static bool put_apply(sx_body *to, sx_op op, sx_dtype dtype, uint32_t x, uint32_t y,
                      uint32_t *index)
{
    sx_instr instr = {.kind = SX_BODY_APPLY, .op = op, .dtype = dtype, .x = x, .y = y};
    return sx_body_put(to, &instr, index);
}

static bool put_imm(sx_body *to, sx_dtype dtype, int64_t value, uint32_t *index)
{
    bool is_int = sx_dtype_class_of(dtype) == SX_CLASS_INT;
    if (is_int && (value > sx_num_int_max(dtype) || value > INT64_C(1) << 53)) {
        return false;
    }
    sx_instr instr = {.kind = SX_BODY_IMM, .dtype = dtype, .imm = (double)value};
    return sx_body_put(to, &instr, index);
}

/* Integers that the type holds exactly; arithmetic of integer types wraps, and so does the index. */
static bool holds_indices(sx_dtype dtype, sx_dim extent)
{
    if (sx_dtype_class_of(dtype) == SX_CLASS_INT) {
        return true;
    }
    static const int bits[SX_DTYPE_COUNT] = {[SX_F64] = 53, [SX_F32] = 24,   [SX_BF16] = 8,
                                             [SX_F16] = 11, [SX_F8E4M3] = 4, [SX_F8E5M2] = 3};
    return sx_dim_is_constant(extent) && extent.scale <= INT64_C(1) << bits[dtype];
}

/* The value of an index of the old space as instructions over the new one. */
static bool put_form(sx_body *to, sx_dtype dtype, const form *f, uint32_t *index)
{
    bool started = false;
    bool plain = f->offset.scale == 0; // so far one dimension with step 1
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        if (f->step[d].scale == 0) {
            continue;
        }
        sx_instr instr = {.kind = SX_BODY_INDEX, .dtype = dtype, .x = d};
        uint32_t term;
        uint32_t factor;
        plain = plain && !started && f->step[d].scale == 1;
        if (!sx_dim_is_constant(f->step[d]) || (!plain && !holds_indices(dtype, f->extent)) ||
            !sx_body_put(to, &instr, &term)) {
            return false;
        }
        if (f->step[d].scale != 1 && (!put_imm(to, dtype, f->step[d].scale, &factor) ||
                                      !put_apply(to, SX_OP_MULTIPLY, dtype, term, factor, &term))) {
            return false;
        }
        if (started && !put_apply(to, SX_OP_ADD, dtype, *index, term, &term)) {
            return false;
        }
        *index = term;
        started = true;
    }
    uint32_t offset;
    if (started && f->offset.scale == 0) {
        return true;
    }
    if (!sx_dim_is_constant(f->offset) || !holds_indices(dtype, f->extent) ||
        !put_imm(to, dtype, f->offset.scale, &offset)) {
        return false;
    }
    if (started) {
        return put_apply(to, SX_OP_ADD, dtype, *index, offset, index);
    }
    *index = offset;
    return true;
}

/* What a dot or an online sum of this type reads: a conversion that it makes itself is passed over. */
static uint32_t widened_operand(const sx_body *to, sx_dtype dtype, uint32_t operand)
{
    const sx_instr *instr = &to->instr[operand];
    bool converts = instr->kind == SX_BODY_APPLY && instr->op == SX_OP_CONVERT &&
                    instr->dtype == dtype && to->instr[instr->x].kind == SX_BODY_ARG &&
                    sx_dot_widens(to->instr[instr->x].dtype, dtype);
    return converts ? instr->x : operand;
}

/* Is DOT instruction i of the part the outer one of nested ones? */
static bool is_outer(const part *p, uint32_t i)
{
    const sx_body *from = p->from;
    return p->nests || (from->inner != 0 && from->instr[from->instr[i].x].kind != SX_BODY_ARG);
}

/* May a DOT of the new body have these operands? One of an outer DOT is computed; it comes first. */
static bool takes_operands(const sx_body *to, bool outer, sx_instr *dot)
{
    bool x_is_arg = to->instr[dot->x].kind == SX_BODY_ARG;
    bool y_is_arg = to->instr[dot->y].kind == SX_BODY_ARG;
    if (outer && x_is_arg && !y_is_arg) {
        uint32_t computed = dot->y;
        dot->y = dot->x;
        dot->x = computed;
    }
    return outer ? x_is_arg != y_is_arg : x_is_arg && y_is_arg;
}

/* Appends the program; false when the body is full, an index cannot be written, or a dot would get another
 * operand than an argument. */
static bool append(sx_body *to, const part *p, uint32_t *result)
{
    uint32_t renamed[SX_FUSED_INSTRS_MAX] = {0};
    for (uint32_t i = 0; i < p->from->instr_count; i++) {
        sx_instr instr = p->from->instr[i];
        uint32_t count = sx_body_operand_count(&instr);
        if (instr.kind == SX_BODY_ARG && instr.x == p->replaced) {
            renamed[i] = p->value;
            continue;
        }
        if (instr.kind == SX_BODY_INDEX) {
            if (!put_form(to, instr.dtype, &p->index[instr.x], &renamed[i])) {
                return false;
            }
            continue;
        }
        instr.x = instr.kind == SX_BODY_ARG ? p->arg[instr.x] : count > 0 ? renamed[instr.x] : 0;
        instr.y = count > 1 ? renamed[instr.y] : 0;
        instr.z = count > 2 ? renamed[instr.z] : 0;
        if (instr.kind == SX_BODY_DOT || instr.kind == SX_BODY_ONLINE) {
            bool dot = instr.kind == SX_BODY_DOT;
            instr.x = dot ? widened_operand(to, instr.dtype, instr.x) : instr.x;
            instr.y = widened_operand(to, instr.dtype, instr.y);
        }
        bool y_is_arg = count > 1 && to->instr[instr.y].kind == SX_BODY_ARG;
        bool y_is_imm = count > 1 && to->instr[instr.y].kind == SX_BODY_IMM;
        bool reads = instr.kind == SX_BODY_DOT      ? takes_operands(to, is_outer(p, i), &instr)
                     : instr.kind == SX_BODY_ONLINE ? y_is_arg || y_is_imm
                                                    : true;
        if (!reads || !sx_body_put(to, &instr, &renamed[i])) {
            return false;
        }
    }
    *result = renamed[p->from->instr_count - 1];
    return true;
}

static void same_indices(const sx_type *space, part *p)
{
    for (uint32_t d = 0; d < space->rank; d++) {
        form f = {.extent = space->dim[d], .offset = sx_dim_of(0)};
        for (uint32_t k = 0; k < SX_RANK_MAX; k++) {
            f.step[k] = sx_dim_of(k == d ? 1 : 0);
        }
        p->index[d] = f;
    }
}

/* New numbers for all arguments but `a`; their accesses copied. */
static bool keep_args(sx_body *to, part *p, uint32_t a)
{
    for (uint32_t k = 0; k < p->from->arg_count; k++) {
        if (k == a) {
            continue;
        }
        if (to->arg_count == SX_FUSED_ARGS_MAX) {
            return false;
        }
        p->arg[k] = to->arg_count;
        to->access[to->arg_count++] = p->from->access[k];
    }
    return true;
}

/* ---- one map into any consumer ---- */
static bool uses_index(const sx_body *body, uint32_t d)
{
    for (uint32_t i = 0; i < body->instr_count; i++) {
        if (body->instr[i].kind == SX_BODY_INDEX && body->instr[i].x == d) {
            return true;
        }
    }
    return false;
}

static bool is_unit(sx_dim extent)
{
    return sx_dim_is_constant(extent) && extent.scale == 1;
}

/* Dimensions of the producer's result (space dimensions `dim[0..rank)`) that may be seen as one: no argument
 * notices, no INDEX names either, and both or neither are reduced. */
static uint32_t joined_dims(const sx_type *through, const sx_body *body, const uint32_t *dim)
{
    sx_dim column[SX_FUSED_ARGS_MAX][SX_RANK_MAX];
    for (uint32_t a = 0; a < body->arg_count; a++) {
        for (uint32_t j = 0; j < through->rank; j++) {
            column[a][j] = body->access[a].stride[dim[j]];
        }
    }
    uint32_t joined = sx_digits_joined(through, body->arg_count, column);
    uint32_t previous = NONE; // the dimension before j that is not of extent 1
    for (uint32_t j = 0; j < through->rank; j++) {
        if (is_unit(through->dim[j])) {
            continue;
        }
        bool named = uses_index(body, dim[j]);
        bool reduced = (body->axes & 1u << dim[j]) != 0;
        joined &= named ? ~(1u << j) : UINT32_MAX;
        if (previous != NONE && (named || reduced != ((body->axes & 1u << dim[previous]) != 0))) {
            joined &= ~(1u << previous);
        }
        previous = j;
    }
    return joined;
}

/* The producer's dimension j in terms of the digits: the one merged dimension that ends in it. INDEX names
 * only dimensions that are merged with no other. */
static form form_of(const sx_digits *digits, const sx_type *through, uint32_t j, uint32_t rank)
{
    form f = {.extent = through->dim[j], .offset = sx_dim_of(0)};
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        f.step[d] = sx_dim_of(0);
    }
    for (uint32_t m = 0; m < digits->count; m++) {
        if (digits->last[m] != j) {
            continue;
        }
        f.offset = digits->offset[m];
        for (uint32_t d = 0; d < rank; d++) {
            f.step[d] = digits->digit[d][m];
        }
    }
    return f;
}

static const uint32_t straight[SX_RANK_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};

static bool inline_map(const sx_attr *consumer, uint32_t a, const sx_attr *producer,
                       const sx_type *through, sx_body *to)
{
    const sx_type *space = &consumer->type;
    const sx_body *inner = producer->body;
    sx_digits digits;
    uint32_t joined = joined_dims(through, inner, straight);
    part first = {.from = inner, .replaced = NONE};
    part second = {.from = consumer->body, .replaced = a};
    if (!sx_access_digits(space, &consumer->body->access[a], through, joined, &digits) ||
        !keep_args(to, &second, a) || to->arg_count + inner->arg_count > SX_FUSED_ARGS_MAX) {
        return false;
    }
    for (uint32_t k = 0; k < inner->arg_count; k++) {
        first.arg[k] = to->arg_count;
        if (!sx_digits_compose(&digits, space->rank, &inner->access[k],
                               &to->access[to->arg_count++])) {
            return false;
        }
    }
    for (uint32_t j = 0; j < through->rank; j++) {
        first.index[j] = form_of(&digits, through, j, space->rank);
    }
    same_indices(space, &second);
    to->axes = consumer->body->axes;
    to->inner = consumer->body->inner;
    uint32_t result;
    if (!append(to, &first, &second.value) || !append(to, &second, &result)) {
        return false;
    }
    sx_body_trim(to, result);
    /* A producer that repeats values can make the result constant along the reduced axes. */
    return sx_body_result_is_full(space, to) == sx_body_result_is_full(space, consumer->body);
}

/* ---- an epilogue behind a reduction ---- */
/* How the consumer's dimensions lie in the producer's result. */
typedef struct {
    sx_digits digits;
    /* merged dimension of the result that consumer dimension d is a factor of; NONE: extent 1 */
    uint32_t owner[SX_RANK_MAX];
    uint32_t depth[SX_RANK_MAX]; /* 0 for the innermost factor */
} layout;

/* Every merged dimension is exactly the product of its factors, so that each element is read once. */
static bool factors_fit(const sx_type *space, layout *l)
{
    uint32_t owned = 0;
    for (uint32_t d = 0; d < space->rank; d++) {
        l->owner[d] = NONE;
        owned += is_unit(space->dim[d]) ? 0 : 1;
    }
    for (uint32_t m = 0; m < l->digits.count; m++) {
        sx_dim reached = sx_dim_of(1);
        uint32_t depth = 0;
        for (bool found = true; found;) {
            found = false;
            for (uint32_t d = 0; d < space->rank && !found; d++) {
                found = l->owner[d] == NONE && !is_unit(space->dim[d]) &&
                        sx_dim_equal(l->digits.digit[d][m], reached);
                if (found) {
                    l->owner[d] = m;
                    l->depth[d] = depth++;
                    owned--;
                    if (!sx_dim_multiply(reached, space->dim[d], &reached)) {
                        return false;
                    }
                }
            }
        }
        if (l->digits.offset[m].scale != 0 || !sx_dim_equal(reached, l->digits.extent[m])) {
            return false;
        }
    }
    for (uint32_t d = 0; d < space->rank; d++) {
        for (uint32_t m = 0; m < l->digits.count; m++) {
            if (m != l->owner[d] && l->digits.digit[d][m].scale != 0) {
                return false;
            }
        }
    }
    return owned == 0;
}

/* The producer and its result. */
typedef struct {
    const sx_body *body;
    const sx_type *space;
    const sx_type *through;
    bool full;
    uint32_t dim[SX_RANK_MAX]; /* space dimension of each result dimension */
} reduction;

static bool is_axis(const reduction *r, uint32_t d)
{
    return (r->body->axes & 1u << d) != 0;
}

/* A full result: the reduced dimensions as the consumer sees them, in the producer's order of summation. */
static bool axes_in_order(const sx_type *space, const reduction *r, const layout *l, uint32_t *axes)
{
    uint32_t previous = NONE;
    for (uint32_t d = 0; d < r->space->rank; d++) {
        if (is_axis(r, d) && is_unit(r->space->dim[d])) {
            return false;
        }
    }
    *axes = 0;
    for (uint32_t d = 0; d < space->rank; d++) {
        uint32_t m = l->owner[d];
        if (m == NONE || !is_axis(r, r->dim[l->digits.last[m]])) {
            continue;
        }
        bool after = previous == NONE || l->owner[previous] < m ||
                     (l->owner[previous] == m && l->depth[previous] > l->depth[d]);
        if (!after) {
            return false;
        }
        *axes |= 1u << d;
        previous = d;
    }
    return true;
}

/* Where the dimensions go in the new space: place[d] for the consumer's, axis[d] for the producer's reduced ones. */
typedef struct {
    sx_type space;
    uint32_t axes, inner;
    uint32_t place[SX_RANK_MAX];
    uint32_t axis[SX_RANK_MAX];
} target;

/* Does the consumer read result dimension d at its dimension d? `l` has no merged dimensions. */
static bool is_straight(const sx_type *space, const layout *l)
{
    for (uint32_t d = 0; d < space->rank; d++) {
        if (l->owner[d] != NONE && l->digits.last[l->owner[d]] != d) {
            return false;
        }
    }
    return true;
}

/* The consumer's dimensions in its order, then the reduced ones. */
static bool plan_target(const sx_type *space, const reduction *r, const layout *l, target *t)
{
    t->space = *space;
    t->axes = 0;
    t->inner = 0;
    memcpy(t->place, straight, sizeof(straight));
    if (r->full) {
        return axes_in_order(space, r, l, &t->axes);
    }
    for (uint32_t d = 0; d < r->space->rank; d++) {
        if (!is_axis(r, d)) {
            continue;
        }
        if (t->space.rank == SX_RANK_MAX) {
            return false;
        }
        t->axis[d] = t->space.rank;
        t->axes |= 1u << t->space.rank;
        t->inner |= (r->body->inner >> d & 1) << t->space.rank;
        t->space.dim[t->space.rank++] = r->space->dim[d];
    }
    return true;
}

/* The producer's argument k over the new space. */
static bool move_inner_access(const reduction *r, const layout *l, const target *t, uint32_t rank,
                              uint32_t k, sx_access *moved)
{
    const sx_access *access = &r->body->access[k];
    sx_access by_result = *access; // strides per dimension of the result
    for (uint32_t j = 0; j < r->through->rank; j++) {
        by_result.stride[j] = access->stride[r->dim[j]];
    }
    if (!sx_digits_compose(&l->digits, rank, &by_result, moved)) {
        return false;
    }
    for (uint32_t d = 0; d < r->space->rank && !r->full; d++) {
        if (is_axis(r, d)) {
            moved->stride[t->axis[d]] = access->stride[d];
        }
    }
    return true;
}

static void move_outer_access(const target *t, uint32_t rank, sx_access *access)
{
    sx_access old = *access;
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        access->stride[d] = sx_dim_of(0);
    }
    for (uint32_t d = 0; d < rank; d++) {
        access->stride[t->place[d]] = old.stride[d];
    }
}

static void move_indices(const reduction *r, const layout *l, const target *t, const sx_type *space,
                         part *inner, part *outer)
{
    part identity = {.from = NULL};
    same_indices(&t->space, &identity);
    for (uint32_t d = 0; d < space->rank; d++) {
        outer->index[d] = identity.index[t->place[d]];
    }
    for (uint32_t j = 0; j < r->through->rank; j++) {
        inner->index[r->dim[j]] = form_of(&l->digits, r->through, j, space->rank);
    }
    for (uint32_t d = 0; d < r->space->rank && !r->full; d++) {
        if (is_axis(r, d)) {
            inner->index[d] = identity.index[t->axis[d]];
        }
    }
}

/* `l` NULL: the new space is the producer's. */
static bool build_epilogue(const sx_attr *consumer, uint32_t a, const reduction *r, const layout *l,
                           const target *t, sx_body *to)
{
    uint32_t rank = consumer->type.rank;
    part inner = {.from = r->body, .replaced = NONE};
    part outer = {.from = consumer->body, .replaced = a};
    if (!keep_args(to, &outer, a) || to->arg_count + r->body->arg_count > SX_FUSED_ARGS_MAX) {
        return false;
    }
    for (uint32_t k = 0; k < to->arg_count; k++) {
        move_outer_access(t, rank, &to->access[k]);
    }
    for (uint32_t k = 0; k < r->body->arg_count; k++) {
        sx_access *moved = &to->access[to->arg_count];
        inner.arg[k] = to->arg_count++;
        *moved = r->body->access[k];
        if (l != NULL && !move_inner_access(r, l, t, rank, k, moved)) {
            return false;
        }
    }
    same_indices(&t->space, &inner);
    if (l != NULL) {
        move_indices(r, l, t, &consumer->type, &inner, &outer);
    }
    for (uint32_t d = 0; d < rank && l == NULL; d++) {
        outer.index[d] = inner.index[t->place[d]];
    }
    to->axes = t->axes;
    to->inner = t->inner;
    uint32_t result;
    if (!append(to, &inner, &outer.value) || !append(to, &outer, &result)) {
        return false;
    }
    sx_body_trim(to, result);
    sx_type shape;
    sx_body_shape(&t->space, to, &shape);
    return sx_type_equal(&shape, &consumer->type) &&
           sx_body_result_is_full(&t->space, to) == r->full;
}

static bool inline_reduction(const sx_attr *consumer, uint32_t a, const sx_attr *producer,
                             const sx_type *through, sx_body *to, sx_type *space)
{
    if (sx_body_kernel_kind(consumer->body) != SX_KERNEL_MAP) {
        return false;
    }
    reduction r = {.body = producer->body, .space = &producer->type, .through = through};
    r.full = sx_body_result_is_full(&producer->type, producer->body);
    uint32_t count = 0;
    for (uint32_t d = 0; d < producer->type.rank; d++) {
        if (r.full || !is_axis(&r, d)) {
            r.dim[count++] = d;
        }
    }
    SX_ASSERT(count == through->rank);
    layout l;
    target t = {
        .space = producer->type, .axes = producer->body->axes, .inner = producer->body->inner};
    const sx_access *access = &consumer->body->access[a];
    if (sx_type_same_shape(&consumer->type, through) &&
        sx_access_digits(&consumer->type, access, through, 0, &l.digits) &&
        factors_fit(&consumer->type, &l) && is_straight(&consumer->type, &l)) {
        memcpy(t.place, r.dim, sizeof(r.dim));
        t.space.dtype = consumer->type.dtype;
        *space = t.space;
        return build_epilogue(consumer, a, &r, NULL, &t, to);
    }
    uint32_t joined = joined_dims(through, producer->body, r.dim);
    if (!sx_access_digits(&consumer->type, access, through, joined, &l.digits) ||
        !factors_fit(&consumer->type, &l) || !plan_target(&consumer->type, &r, &l, &t)) {
        return false;
    }
    *space = t.space;
    return build_epilogue(consumer, a, &r, &l, &t, to);
}

/* ---- a contraction as the scores of an ONLINE ---- */
/* Do both operands of the DOT vary along `axes`? Then no operand belongs to the rows alone, and no block of
 * keys is a matrix. */
static bool both_vary(const sx_body *body, uint32_t axes)
{
    uint32_t varying = 0;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const uint32_t operand[2] = {body->instr[i].x, body->instr[i].y};
        for (uint32_t k = 0; k < 2 && body->instr[i].kind == SX_BODY_DOT; k++) {
            const sx_access *access = &body->access[body->instr[operand[k]].x];
            bool varies = false;
            for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
                varies = varies || ((axes >> d & 1) != 0 && access->stride[d].scale != 0);
            }
            varying += varies ? 1 : 0;
        }
    }
    return varying == 2;
}

/* The producer's program with its sums over the inner dimensions of the target, in front of the consumer's. */
static bool build_inside(const sx_attr *consumer, const reduction *r, const target *t, part *inner,
                         part *outer, sx_body *to)
{
    layout l;
    uint32_t result, a = outer->replaced;
    uint32_t joined = joined_dims(r->through, r->body, r->dim);
    if (!sx_access_digits(&consumer->type, &consumer->body->access[a], r->through, joined,
                          &l.digits) ||
        !keep_args(to, outer, a) || to->arg_count + r->body->arg_count > SX_FUSED_ARGS_MAX) {
        return false;
    }
    for (uint32_t k = 0; k < r->body->arg_count; k++) {
        inner->arg[k] = to->arg_count;
        if (!move_inner_access(r, &l, t, consumer->type.rank, k, &to->access[to->arg_count++])) {
            return false;
        }
    }
    same_indices(&t->space, inner);
    move_indices(r, &l, t, &consumer->type, inner, outer);
    to->axes = t->axes;
    to->inner = t->inner;
    if (!append(to, inner, &outer->value) || !append(to, outer, &result)) {
        return false;
    }
    sx_body_trim(to, result);
    return true;
}

/* The space of the consumer, then the producer's reduced dimensions, which become `inner`. */
static bool inline_scores(const sx_attr *consumer, uint32_t a, const sx_attr *producer,
                          const sx_type *through, sx_body *to, sx_type *space)
{
    reduction r = {.body = producer->body, .space = &producer->type, .through = through};
    target t = {.space = consumer->type, .axes = consumer->body->axes};
    part inner = {.from = r.body, .replaced = NONE};
    part outer = {.from = consumer->body, .replaced = a};
    uint32_t count = 0;
    memcpy(t.place, straight, sizeof(straight));
    for (uint32_t d = 0; d < r.space->rank; d++) {
        if (!is_axis(&r, d)) {
            r.dim[count++] = d;
            continue;
        }
        if (t.space.rank == SX_RANK_MAX) {
            return false;
        }
        t.axis[d] = t.space.rank;
        t.inner |= 1u << t.space.rank;
        t.space.dim[t.space.rank++] = r.space->dim[d];
    }
    t.axes |= t.inner;
    *space = t.space;
    return consumer->body->inner == 0 && count == through->rank &&
           build_inside(consumer, &r, &t, &inner, &outer, to) && !both_vary(to, t.axes & ~t.inner);
}

/* ---- a contraction inside a contraction ---- */
/* Is argument a used by sums alone, not by what follows them? */
static bool is_only_summed(const sx_body *body, uint32_t a)
{
    bool needed[SX_FUSED_INSTRS_MAX] = {false}; /* by the result, beside the sums */
    bool only = true;
    needed[body->instr_count - 1] = true;
    for (uint32_t i = body->instr_count; i-- > 0;) {
        const sx_instr *instr = &body->instr[i];
        bool opens = needed[i] && !sx_body_combines(instr);
        for (uint32_t k = 0; opens && k < sx_body_operand_count(instr); k++) {
            needed[sx_body_operand(instr, k)] = true;
        }
        only = only && !(needed[i] && instr->kind == SX_BODY_ARG && instr->x == a);
    }
    return only;
}

static bool varies_along(const sx_access *access, uint32_t set)
{
    bool varies = false;
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        varies = varies || ((set >> d & 1) != 0 && access->stride[d].scale != 0);
    }
    return varies;
}

/* Of each inner DOT one operand belongs to the rows, the other to what is summed: then both are matrices. */
static bool inner_dots_are_matrices(const sx_body *body)
{
    bool all = true;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *dot = &body->instr[i];
        if (dot->kind == SX_BODY_DOT && sx_body_summed(body, dot) == body->inner) {
            uint32_t outer = body->axes & ~body->inner;
            bool x = varies_along(&body->access[body->instr[dot->x].x], outer);
            bool y = varies_along(&body->access[body->instr[dot->y].x], outer);
            all = all && x != y;
        }
    }
    return all;
}

/* Where the producer's reduced dimensions go: behind the space of a contraction, or, of one that has an inner sum
 * already, to the dimensions of that. */
static bool place_inner(const sx_attr *consumer, const reduction *r, target *t)
{
    uint32_t next = 0, left = consumer->body->inner;
    t->space = consumer->type;
    t->inner = consumer->body->inner;
    for (uint32_t d = 0; d < r->space->rank; d++) {
        if (!is_axis(r, d)) {
            continue;
        }
        if (consumer->body->inner == 0) {
            if (t->space.rank == SX_RANK_MAX) {
                return false;
            }
            next = t->space.rank;
            t->inner |= 1u << next;
            t->space.dim[t->space.rank++] = r->space->dim[d];
        } else {
            while (next < SX_RANK_MAX && (left >> next & 1) == 0) {
                next++;
            }
            if (next == SX_RANK_MAX || !sx_dim_equal(t->space.dim[next], r->space->dim[d])) {
                return false;
            }
            left &= ~(1u << next);
        }
        t->axis[d] = next;
    }
    t->axes = consumer->body->axes | t->inner;
    return consumer->body->inner == 0 || left == 0;
}

/* The consumer is a contraction that sums argument a, or a nested one that has one inner sum and makes its factor of
 * argument a too. */
static bool inline_nested(const sx_attr *consumer, uint32_t a, const sx_attr *producer,
                          const sx_type *through, sx_body *to, sx_type *space)
{
    reduction r = {.body = producer->body, .space = &producer->type, .through = through};
    target t;
    part inner = {.from = r.body, .replaced = NONE};
    part outer = {.from = consumer->body, .replaced = a, .nests = consumer->body->inner == 0};
    uint32_t count = 0, dots = 0;
    for (uint32_t i = 0; i < consumer->body->instr_count; i++) {
        dots += consumer->body->instr[i].kind == SX_BODY_DOT ? 1 : 0;
    }
    for (uint32_t d = 0; d < r.space->rank; d++) {
        if (!is_axis(&r, d)) {
            r.dim[count++] = d;
        }
    }
    memcpy(t.place, straight, sizeof(straight));
    if (dots > SX_NESTED_DOTS_MAX || count != through->rank || !is_only_summed(consumer->body, a) ||
        !place_inner(consumer, &r, &t)) {
        return false;
    }
    *space = t.space;
    return build_inside(consumer, &r, &t, &inner, &outer, to) && inner_dots_are_matrices(to);
}

sx_code sx_fused_inline(sx_ctx *cx, const sx_attr *consumer, uint32_t a, const sx_attr *producer,
                        const sx_type *through, sx_attr *fused, bool *ok)
{
    SX_ASSERT(consumer->body != NULL && producer->body != NULL && a < consumer->body->arg_count);
    sx_body *to = sx_body_make(cx);
    if (to == NULL) {
        return cx->error.code;
    }
    sx_type space = consumer->type;
    sx_kernel_kind kind = sx_body_kernel_kind(consumer->body);
    bool is_map = sx_body_kernel_kind(producer->body) == SX_KERNEL_MAP;
    bool is_dot = sx_body_kernel_kind(producer->body) == SX_KERNEL_DOT;
    bool is_scores = is_dot && kind == SX_KERNEL_ONLINE;
    bool is_nested = is_dot && (kind == SX_KERNEL_DOT || kind == SX_KERNEL_NESTED);
    *ok = is_map      ? inline_map(consumer, a, producer, through, to)
          : is_scores ? inline_scores(consumer, a, producer, through, to, &space)
          : is_nested ? inline_nested(consumer, a, producer, through, to, &space)
                      : inline_reduction(consumer, a, producer, through, to, &space);
    *ok = *ok && sx_body_keeps_bits(to);
    if (*ok) {
        sx_body_wrap(&space, to, fused);
    }
    return SX_OK;
}

/* ---- splats and equal arguments ---- */
sx_code sx_fused_inline_splat(sx_ctx *cx, const sx_attr *consumer, uint32_t a, double imm,
                              sx_attr *fused)
{
    const sx_body *body = consumer->body;
    SX_ASSERT(body != NULL && a < body->arg_count);
    sx_instr value = {.kind = SX_BODY_IMM, .imm = imm};
    for (uint32_t i = 0; i < body->instr_count; i++) {
        bool reads = body->instr[i].kind == SX_BODY_ARG && body->instr[i].x == a;
        value.dtype = reads ? body->instr[i].dtype : value.dtype;
    }
    part p = {.from = body, .replaced = a};
    sx_body *to = sx_body_make(cx);
    if (to == NULL) {
        return cx->error.code;
    }
    uint32_t result;
    same_indices(&consumer->type, &p);
    to->axes = body->axes;
    to->inner = body->inner;
    if (!sx_body_put(to, &value, &p.value) || !keep_args(to, &p, a) || !append(to, &p, &result)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "fused: argument %u: a splat is no operand of a dot, or %d instructions", a,
                       SX_FUSED_INSTRS_MAX);
    }
    sx_body_trim(to, result);
    if (sx_body_result_is_full(&consumer->type, to) !=
        sx_body_result_is_full(&consumer->type, body)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "fused: argument %u: the splat leaves the result constant along the axes",
                       a);
    }
    sx_body_wrap(&consumer->type, to, fused);
    return SX_OK;
}

static bool equal_access(const sx_access *a, const sx_access *b)
{
    bool equal = sx_dim_equal(a->offset, b->offset);
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        equal = equal && sx_dim_equal(a->stride[d], b->stride[d]);
    }
    return equal;
}

sx_code sx_fused_merge_args(sx_ctx *cx, const sx_attr *attr, uint32_t keep, uint32_t drop,
                            sx_attr *fused, bool *ok)
{
    const sx_body *body = attr->body;
    SX_ASSERT(body != NULL && keep < drop && drop < body->arg_count);
    *ok = equal_access(&body->access[keep], &body->access[drop]);
    if (!*ok) {
        return SX_OK;
    }
    part p = {.from = body, .replaced = NONE};
    sx_body *to = sx_body_make(cx);
    if (to == NULL) {
        return cx->error.code;
    }
    uint32_t result;
    same_indices(&attr->type, &p);
    to->axes = body->axes;
    to->inner = body->inner;
    *ok = keep_args(to, &p, drop);
    p.arg[drop] = p.arg[keep];
    *ok = *ok && append(to, &p, &result);
    if (*ok) {
        sx_body_trim(to, result);
        sx_body_wrap(&attr->type, to, fused);
    }
    return SX_OK;
}
