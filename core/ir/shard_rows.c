/* shard_rows.c - placements through operations, along one axis of a mesh.
 *
 * Three sources of rows, put together by the class of the operation:
 *   all R                  what every device computes alike
 *   dimensions             result dimension d is made of operand dimensions (one each, or none): all cut alike
 *   partial values         the table `algebra` for arithmetic; moving elements keeps sum, max and min;
 *                          reductions along a cut dimension make them; contractions are linear in each operand
 * Rounding: the sum of partial sums rounds in another order than the sum (reassociating). Conversions of
 * partial sums are taken only where they are exact. */
#include "core/ir/shard.h"

#include "core/ir/plain.h"

#define ANY_OPERAND UINT32_MAX

typedef struct {
    const sx_shard_op *op;
    sx_shard_rows *rows;
} lister;

/* ---- placements of a type ---- */

static bool divides(const sx_shard_op *op, sx_dim dim)
{
    if (sx_dim_is_constant(dim)) {
        return dim.scale % op->size == 0;
    }
    int64_t known;
    return op->multiple != NULL && sx_mul_i64(dim.scale, op->multiple[dim.symbol], &known) &&
           known % op->size == 0;
}

uint32_t sx_shard_possible(const sx_type *type, int64_t size, const int64_t *multiple)
{
    SX_ASSERT(size > 0);
    const sx_shard_op op = {.size = size, .multiple = multiple};
    uint32_t set = SX_PLACE_BIT(SX_PLACE_R);
    for (uint32_t d = 0; d < type->rank; d++) {
        set |= divides(&op, type->dim[d]) ? SX_PLACE_BIT(d) : 0;
    }
    if (type->dtype != SX_BOOL) {
        set |= SX_PLACE_BIT(SX_PLACE_SUM) | SX_PLACE_BIT(SX_PLACE_MAX) | SX_PLACE_BIT(SX_PLACE_MIN);
    }
    return set;
}

uint32_t sx_shard_closure(uint32_t set, uint32_t possible)
{
    return (set & SX_PLACE_BIT(SX_PLACE_R)) != 0 ? possible : set;
}

/* ---- adding rows ---- */

static bool can_be(const sx_shard_op *op, const sx_type *type, sx_shard_place place)
{
    if (place < SX_PLACE_R) {
        return place < type->rank && divides(op, type->dim[place]);
    }
    return place == SX_PLACE_R || type->dtype != SX_BOOL;
}

static void put(lister *l, const sx_shard_place *operand, sx_shard_place result)
{
    const sx_shard_op *op = l->op;
    sx_shard_row *row = &l->rows->row[l->rows->count];
    bool fits = can_be(op, op->result, result);
    for (uint32_t k = 0; k < op->operand_count && fits; k++) {
        fits = can_be(op, &op->operand[k], operand[k]);
    }
    if (!fits) {
        return;
    }
    SX_ASSERT(l->rows->count < SX_SHARD_ROWS_MAX);
    for (uint32_t k = 0; k < op->operand_count; k++) {
        row->operand[k] = operand[k];
    }
    row->result = result;
    l->rows->count++;
}

/* Every operand alike. */
static void put_uniform(lister *l, sx_shard_place operand, sx_shard_place result)
{
    sx_shard_place all[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < l->op->operand_count; k++) {
        all[k] = operand;
    }
    put(l, all, result);
}

/* Operands at the places given, R behind them. */
static void put_three(lister *l, sx_shard_place a, sx_shard_place b, sx_shard_place c,
                      sx_shard_place result)
{
    sx_shard_place all[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < l->op->operand_count; k++) {
        all[k] = SX_PLACE_R;
    }
    const sx_shard_place first[] = {a, b, c};
    for (uint32_t k = 0; k < l->op->operand_count && k < SX_COUNT(first); k++) {
        all[k] = first[k];
    }
    put(l, all, result);
}

static void put_one(lister *l, sx_shard_place a, sx_shard_place result)
{
    put_three(l, a, SX_PLACE_R, SX_PLACE_R, result);
}

/* Elements are only moved: partial values stay partial, of every operand that is not `fixed`. */
static void put_moved(lister *l, uint32_t fixed)
{
    for (uint32_t p = SX_PLACE_SUM; p < SX_PLACE_COUNT; p++) {
        sx_shard_place all[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < l->op->operand_count; k++) {
            all[k] = k == fixed ? SX_PLACE_R : (sx_shard_place)p;
        }
        put(l, all, (sx_shard_place)p);
    }
}

static bool has(const sx_ints *list, uint32_t d)
{
    bool found = false;
    for (uint32_t i = 0; i < list->count; i++) {
        found = found || list->v[i] == (int64_t)d;
    }
    return found;
}

/* ---- elementwise ---- */

enum { R = SX_PLACE_R, SUM = SX_PLACE_SUM, MAX = SX_PLACE_MAX, MIN = SX_PLACE_MIN };
/* Order is kept by arithmetic on floats only: integers wrap. log, sqrt, rsqrt are left out: a part may lie
 * outside their domain. */
static const struct {
    uint8_t op;
    sx_shard_place operand[3], result;
    bool floats;
} algebra[] = {
    {SX_OP_NEGATE, {SUM}, SUM, false},
    {SX_OP_NEGATE, {MAX}, MIN, true},
    {SX_OP_NEGATE, {MIN}, MAX, true},
    {SX_OP_EXP, {MAX}, MAX, true},
    {SX_OP_EXP, {MIN}, MIN, true},
    /* of a negative number both sides are NaN; not so of the maximum */
    {SX_OP_LOG, {MIN}, MIN, true},
    {SX_OP_SQRT, {MIN}, MIN, true},
    {SX_OP_TANH, {MAX}, MAX, true},
    {SX_OP_TANH, {MIN}, MIN, true},
    {SX_OP_ERF, {MAX}, MAX, true},
    {SX_OP_ERF, {MIN}, MIN, true},
    {SX_OP_LOGISTIC, {MAX}, MAX, true},
    {SX_OP_LOGISTIC, {MIN}, MIN, true},
    {SX_OP_FLOOR, {MAX}, MAX, true},
    {SX_OP_FLOOR, {MIN}, MIN, true},
    {SX_OP_CEIL, {MAX}, MAX, true},
    {SX_OP_CEIL, {MIN}, MIN, true},
    {SX_OP_ROUND, {MAX}, MAX, true},
    {SX_OP_ROUND, {MIN}, MIN, true},
    {SX_OP_SIGN, {MAX}, MAX, false},
    {SX_OP_SIGN, {MIN}, MIN, false},
    {SX_OP_NOT, {MAX}, MIN, false},
    {SX_OP_NOT, {MIN}, MAX, false},
    {SX_OP_RELU, {MAX}, MAX, false},
    {SX_OP_RELU, {MIN}, MIN, false},
    {SX_OP_ADD, {SUM, SUM}, SUM, false},
    {SX_OP_ADD, {MAX, R}, MAX, true},
    {SX_OP_ADD, {R, MAX}, MAX, true},
    {SX_OP_ADD, {MIN, R}, MIN, true},
    {SX_OP_ADD, {R, MIN}, MIN, true},
    {SX_OP_SUBTRACT, {SUM, SUM}, SUM, false},
    {SX_OP_SUBTRACT, {MAX, R}, MAX, true},
    {SX_OP_SUBTRACT, {R, MAX}, MIN, true},
    {SX_OP_SUBTRACT, {MIN, R}, MIN, true},
    {SX_OP_SUBTRACT, {R, MIN}, MAX, true},
    {SX_OP_MULTIPLY, {SUM, R}, SUM, false},
    {SX_OP_MULTIPLY, {R, SUM}, SUM, false},
    {SX_OP_DIVIDE, {SUM, R}, SUM, true},
    {SX_OP_MAXIMUM, {MAX, MAX}, MAX, false},
    {SX_OP_MAXIMUM, {MIN, R}, MIN, false},
    {SX_OP_MAXIMUM, {R, MIN}, MIN, false},
    {SX_OP_MINIMUM, {MIN, MIN}, MIN, false},
    {SX_OP_MINIMUM, {MAX, R}, MAX, false},
    {SX_OP_MINIMUM, {R, MAX}, MAX, false},
    {SX_OP_SHIFT_RIGHT_ARITHMETIC, {MAX, R}, MAX, false},
    {SX_OP_SHIFT_RIGHT_ARITHMETIC, {MIN, R}, MIN, false},
    {SX_OP_SELECT, {R, SUM, SUM}, SUM, false},
    {SX_OP_SELECT, {R, MAX, MAX}, MAX, false},
    {SX_OP_SELECT, {R, MIN, MIN}, MIN, false},
};

static void list_convert(lister *l)
{
    sx_dtype from = l->op->operand[0].dtype;
    sx_dtype to = l->op->result->dtype;
    if (sx_dtype_class_of(from) != SX_CLASS_FLOAT || sx_dtype_class_of(to) != SX_CLASS_FLOAT) {
        return;
    }
    put_one(l, SX_PLACE_MAX, SX_PLACE_MAX);
    put_one(l, SX_PLACE_MIN, SX_PLACE_MIN);
    if (from == to || sx_dtype_bytes(to) > sx_dtype_bytes(from)) {
        put_one(l, SX_PLACE_SUM, SX_PLACE_SUM);
    }
}

static void list_elementwise(lister *l)
{
    const sx_shard_op *op = l->op;
    bool floats = sx_dtype_class_of(op->result->dtype) == SX_CLASS_FLOAT;
    for (uint32_t d = 0; d < op->result->rank; d++) {
        put_uniform(l, (sx_shard_place)d, (sx_shard_place)d);
    }
    for (size_t i = 0; i < SX_COUNT(algebra); i++) {
        const sx_shard_place *in = algebra[i].operand;
        if ((sx_op)algebra[i].op == op->op && (floats || !algebra[i].floats)) {
            put_three(l, in[0], in[1], in[2], algebra[i].result);
        }
    }
    if (op->op == SX_OP_CONVERT) {
        list_convert(l);
    }
}

/* Windows of `span` elements at every `stride`-th place without padding: does each lie within one piece? */
static bool keeps_within(const sx_shard_op *op, sx_dim extent, int64_t span, int64_t stride)
{
    int64_t pieces;
    sx_shard_op joint = *op;
    if (span > stride || !sx_mul_i64(op->size, stride, &pieces)) {
        return false;
    }
    joint.size = pieces;
    return divides(&joint, extent);
}

/* ---- views ---- */

/* A run of operand dimensions that holds the elements of a run of result dimensions. */
typedef struct {
    uint32_t from, from_end, to, to_end;
} group;

/* The next dimension of a run: its extent times `product`. */
static bool widen(const sx_type *type, uint32_t *end, sx_dim *product)
{
    return *end < type->rank && sx_dim_multiply(*product, type->dim[*end], product) && ++*end > 0;
}

/* Extends `g` until both sides hold the same elements; false where that cannot be told. */
static bool match_group(const sx_shard_op *op, group *g)
{
    const sx_type *from = &op->operand[0];
    const sx_type *to = op->result;
    sx_dim a = sx_dim_of(1);
    sx_dim b = sx_dim_of(1);
    if (!widen(from, &g->from_end, &a) || !widen(to, &g->to_end, &b)) {
        return false;
    }
    while (!sx_dim_equal(a, b)) {
        bool one_symbol = a.symbol == b.symbol;
        bool left = one_symbol ? a.scale < b.scale : sx_dim_is_constant(a);
        if (!one_symbol && !sx_dim_is_constant(a) && !sx_dim_is_constant(b)) {
            return false;
        }
        if (!(left ? widen(from, &g->from_end, &a) : widen(to, &g->to_end, &b))) {
            return false;
        }
    }
    return true;
}

/* The first dimension of a run that is longer than 1. */
static uint32_t leading(const sx_type *type, uint32_t first, uint32_t end)
{
    while (first + 1 < end && sx_dim_is_constant(type->dim[first]) && type->dim[first].scale == 1) {
        first++;
    }
    return first;
}

/* Cut along the leading dimension of a run, the pieces are cut along that of the other. */
static void list_reshape(lister *l)
{
    const sx_shard_op *op = l->op;
    group g = {0, 0, 0, 0};
    while (match_group(op, &g)) {
        put_one(l, (sx_shard_place)leading(&op->operand[0], g.from, g.from_end),
                (sx_shard_place)leading(op->result, g.to, g.to_end));
        g.from = g.from_end;
        g.to = g.to_end;
    }
}

static void list_broadcast(lister *l)
{
    const sx_shard_op *op = l->op;
    const sx_type *from = &op->operand[0];
    sx_shard_place source[SX_RANK_MAX];
    for (uint32_t d = 0; d < op->result->rank; d++) {
        source[d] = SX_PLACE_R;
    }
    for (uint32_t i = 0; i < from->rank; i++) {
        uint32_t d = (uint32_t)op->attr->dims.v[i];
        source[d] = sx_dim_equal(from->dim[i], op->result->dim[d]) ? (sx_shard_place)i : SX_PLACE_R;
    }
    for (uint32_t d = 0; d < op->result->rank; d++) {
        put_one(l, source[d], (sx_shard_place)d);
    }
}

/* Everything, or every stride-th element of everything. */
static void list_slice(lister *l)
{
    const sx_shard_op *op = l->op;
    const sx_attr *attr = op->attr;
    for (uint32_t d = 0; d < op->result->rank; d++) {
        sx_dim whole, stride = sx_dim_of(attr->stride.v[d]);
        if (attr->start.v[d] < attr->stride.v[d] &&
            sx_dim_multiply(op->result->dim[d], stride, &whole) &&
            sx_dim_equal(whole, op->operand[0].dim[d]) &&
            keeps_within(op, whole, 1, attr->stride.v[d])) {
            put_one(l, (sx_shard_place)d, (sx_shard_place)d);
        }
    }
}

static void list_view(lister *l)
{
    const sx_shard_op *op = l->op;
    if (op->op == SX_OP_RESHAPE) {
        list_reshape(l);
    } else if (op->op == SX_OP_BROADCAST) {
        list_broadcast(l);
    } else if (op->op == SX_OP_SLICE) {
        list_slice(l);
    } else {
        for (uint32_t d = 0; d < op->result->rank; d++) {
            put_one(l, (sx_shard_place)op->attr->perm.v[d], (sx_shard_place)d);
        }
    }
    put_moved(l, ANY_OPERAND);
}

/* ---- moving ---- */

static void list_concatenate(lister *l)
{
    for (uint32_t d = 0; d < l->op->result->rank; d++) {
        if ((int64_t)d != l->op->attr->axis || l->op->operand_count == 1) {
            put_uniform(l, (sx_shard_place)d, (sx_shard_place)d);
        }
    }
    put_moved(l, ANY_OPERAND);
}

static void list_gather(lister *l)
{
    const sx_shard_op *op = l->op;
    uint32_t axis = (uint32_t)op->attr->axis;
    uint32_t inner = op->operand[1].rank;
    for (uint32_t d = 0; d < op->operand[0].rank; d++) {
        if (d != axis) {
            put_one(l, (sx_shard_place)d, (sx_shard_place)(d < axis ? d : d - 1 + inner));
        }
    }
    for (uint32_t d = 0; d < inner; d++) {
        put_three(l, SX_PLACE_R, (sx_shard_place)d, SX_PLACE_R, (sx_shard_place)(axis + d));
    }
    put_moved(l, 1);
}

static void list_move(lister *l)
{
    const sx_shard_op *op = l->op;
    const sx_attr *attr = op->attr;
    for (uint32_t d = 0; d < op->result->rank; d++) {
        bool still = op->op == SX_OP_REVERSE ? !has(&attr->dims, d)
                     : op->op == SX_OP_CROP
                         ? false /* its type is that of the whole */
                         : sx_padding_is_plain(op->op, attr) &&
                               attr->low.v[d] + attr->high.v[d] == attr->interior.v[d];
        if (still) {
            put_one(l, (sx_shard_place)d, (sx_shard_place)d);
        }
    }
    put_moved(l, ANY_OPERAND);
}

/* ---- reductions ---- */

static sx_shard_place partial_of(sx_reducer reducer)
{
    switch (reducer) {
    case SX_SUM: return SX_PLACE_SUM;
    case SX_MAX: return SX_PLACE_MAX;
    case SX_MIN: return SX_PLACE_MIN;
    case SX_PRODUCT:
    case SX_REPLACE: break;
    }
    return SX_PLACE_R;
}

static void list_reduce(lister *l)
{
    const sx_shard_op *op = l->op;
    sx_shard_place partial = partial_of(op->attr->reducer);
    uint32_t to = 0;
    for (uint32_t d = 0; d < op->operand[0].rank; d++) {
        if (!has(&op->attr->dims, d)) {
            put_one(l, (sx_shard_place)d, (sx_shard_place)to++);
        } else if (partial != SX_PLACE_R) {
            put_one(l, (sx_shard_place)d, partial);
        }
    }
    if (partial != SX_PLACE_R) {
        put_one(l, partial, partial);
    }
}

/* A partial value of x and of the updates is one of the result where combining them is: with `set` any, with the
 * other reducers their own; factors are whole. Updates that are cut leave a partial value of the whole. */
static void list_scatter(lister *l)
{
    const sx_shard_op *op = l->op;
    uint32_t axis = (uint32_t)op->attr->axis;
    uint32_t inner = op->operand[1].rank;
    sx_shard_place partial = partial_of(op->attr->reducer);
    for (uint32_t d = 0; d < op->operand[0].rank; d++) {
        if (d != axis) {
            uint32_t of_update = d < axis ? d : d - 1 + inner;
            put_three(l, (sx_shard_place)d, SX_PLACE_R, (sx_shard_place)of_update,
                      (sx_shard_place)d);
        }
    }
    if (op->attr->reducer == SX_REPLACE) {
        put_moved(l, 1);
    } else if (partial == SX_PLACE_R) { /* products: linear in x */
        put_one(l, SX_PLACE_SUM, SX_PLACE_SUM);
    } else {
        put_three(l, partial, SX_PLACE_R, partial, partial);
        for (uint32_t d = 0; d < inner; d++) {
            put_three(l, partial, (sx_shard_place)d, (sx_shard_place)(axis + d), partial);
        }
    }
}

/* What has a start is whole everywhere, and so are the starts. */
static void list_dynamic(lister *l)
{
    const sx_shard_op *op = l->op;
    bool updates = op->op == SX_OP_DYNAMIC_UPDATE_SLICE;
    for (uint32_t p = 0; p < SX_PLACE_COUNT; p++) {
        bool cuts = p < op->operand[0].rank && !has(&op->attr->dims, p);
        if (cuts || p >= SX_PLACE_SUM) {
            sx_shard_place place = (sx_shard_place)p;
            put_three(l, place, updates ? place : SX_PLACE_R, SX_PLACE_R, place);
        }
    }
}

/* Rows are sorted each by itself. */
static void list_sort(lister *l)
{
    for (uint32_t d = 0; d < l->op->result->rank; d++) {
        if (d != (uint32_t)l->op->attr->axis) {
            put_one(l, (sx_shard_place)d, (sx_shard_place)d);
        }
    }
}

static void list_window(lister *l)
{
    const sx_attr *attr = l->op->attr;
    sx_shard_place partial = partial_of(attr->reducer);
    bool moves = true; /* single elements */
    for (uint32_t d = 0; d < l->op->result->rank; d++) {
        bool bare = attr->low.v[d] == 0 && attr->high.v[d] == 0;
        int64_t span = (attr->window.v[d] - 1) * attr->dilation.v[d] + 1;
        moves = moves && bare && attr->window.v[d] == 1;
        if (bare && keeps_within(l->op, l->op->operand[0].dim[d], span, attr->stride.v[d])) {
            put_one(l, (sx_shard_place)d, (sx_shard_place)d);
        }
    }
    if (moves) {
        put_moved(l, ANY_OPERAND);
    } else if (partial != SX_PLACE_R) {
        put_one(l, partial, partial);
    }
}

/* ---- contractions ---- */

static void put_linear(lister *l)
{
    put_three(l, SX_PLACE_SUM, SX_PLACE_R, SX_PLACE_R, SX_PLACE_SUM);
    put_three(l, SX_PLACE_R, SX_PLACE_SUM, SX_PLACE_R, SX_PLACE_SUM);
}

/* Batch and free dimensions of dot_general; those of online_dot with one operand. */
static void list_free(lister *l)
{
    const sx_shard_op *op = l->op;
    const sx_attr *attr = op->attr;
    uint32_t to = attr->lhs_batch.count;
    for (uint32_t i = 0; i < attr->lhs_batch.count; i++) {
        put_three(l, (sx_shard_place)attr->lhs_batch.v[i], (sx_shard_place)attr->rhs_batch.v[i],
                  SX_PLACE_R, (sx_shard_place)i);
    }
    for (uint32_t d = 0; d < op->operand[0].rank; d++) {
        if (!has(&attr->lhs_batch, d) && !has(&attr->lhs_contract, d)) {
            put_one(l, (sx_shard_place)d, (sx_shard_place)to++);
        }
    }
    for (uint32_t d = 0; op->operand_count > 1 && d < op->operand[1].rank; d++) {
        if (!has(&attr->rhs_batch, d) && !has(&attr->rhs_contract, d)) {
            put_three(l, SX_PLACE_R, (sx_shard_place)d, SX_PLACE_R, (sx_shard_place)to++);
        }
    }
}

static void list_dot(lister *l)
{
    const sx_attr *attr = l->op->attr;
    list_free(l);
    for (uint32_t i = 0; i < attr->lhs_contract.count; i++) {
        put_three(l, (sx_shard_place)attr->lhs_contract.v[i],
                  (sx_shard_place)attr->rhs_contract.v[i], SX_PLACE_R, SX_PLACE_SUM);
    }
    put_linear(l);
}

/* Is the row of a convolution in groups the one that deals whole groups? */
static bool deals_groups(const sx_attr *attr, const sx_shard_row *row)
{
    return attr->groups > 1 && row->operand[0] == 1 && row->operand[1] == 0;
}

static void list_convolution(lister *l)
{
    put_one(l, 0, 0);
    if (l->op->attr->groups == 1) {
        put_three(l, SX_PLACE_R, 0, SX_PLACE_R, 1);
        put_three(l, 1, 1, SX_PLACE_R, SX_PLACE_SUM);
    } else if (l->op->attr->groups % l->op->size == 0) {
        put_three(l, 1, 0, SX_PLACE_R, 1);
    }
    for (uint32_t d = 2; d < l->op->result->rank; d++) {
        const sx_attr *attr = l->op->attr;
        sx_dim window = l->op->operand[1].dim[d];
        int64_t span = (window.scale - 1) * attr->dilation.v[d - 2] + 1;
        if (sx_dim_is_constant(window) && attr->low.v[d - 2] == 0 && attr->high.v[d - 2] == 0 &&
            keeps_within(l->op, l->op->operand[0].dim[d], span, attr->stride.v[d - 2])) {
            put_one(l, (sx_shard_place)d, (sx_shard_place)d);
        }
    }
    put_linear(l);
}

/* ---- composites: what their definitions leave free ---- */

static void list_attention(lister *l)
{
    uint32_t rank = l->op->result->rank;
    sx_shard_place all[4] = {SX_PLACE_R, SX_PLACE_R, SX_PLACE_R, (sx_shard_place)(rank - 2)};
    for (uint32_t d = 0; d + 2 < rank; d++) {
        put_uniform(l, (sx_shard_place)d, (sx_shard_place)d);
    }
    all[0] = (sx_shard_place)(rank - 2); /* queries; the mask has a row for each */
    put(l, all, (sx_shard_place)(rank - 2));
    put_three(l, SX_PLACE_R, SX_PLACE_R, (sx_shard_place)(rank - 1), (sx_shard_place)(rank - 1));
    put_three(l, SX_PLACE_R, SX_PLACE_R, SX_PLACE_SUM, SX_PLACE_SUM);
}

static void list_composite(lister *l)
{
    const sx_shard_op *op = l->op;
    uint32_t axis = (uint32_t)op->attr->axis;
    if (op->op == SX_OP_ATTENTION) {
        list_attention(l);
        return;
    }
    if (op->op == SX_OP_ONLINE_DOT) {
        list_free(l);
        if (op->operand_count > 1) { /* linear in what is summed */
            put_three(l, SX_PLACE_R, SX_PLACE_SUM, SX_PLACE_R, SX_PLACE_SUM);
        }
        return;
    }
    bool norm = op->op == SX_OP_LAYER_NORM || op->op == SX_OP_RMS_NORM;
    for (uint32_t d = 0; d < op->result->rank; d++) {
        if (d < axis || (d > axis && !norm)) {
            put_one(l, (sx_shard_place)d, (sx_shard_place)d);
        }
    }
    if (op->op == SX_OP_BATCH_NORM) {
        const sx_shard_place channels[5] = {(sx_shard_place)axis, 0, 0, 0, 0};
        const sx_shard_place centre[5] = {SX_PLACE_SUM, SX_PLACE_R, SX_PLACE_SUM, SX_PLACE_SUM,
                                          SX_PLACE_R};
        put(l, channels, (sx_shard_place)axis);
        put(l, centre, SX_PLACE_SUM);
    }
    if (norm || op->op == SX_OP_BATCH_NORM) { /* linear in scale and bias */
        bool has_bias = op->op != SX_OP_RMS_NORM;
        put_three(l, SX_PLACE_R, SX_PLACE_SUM, has_bias ? SX_PLACE_SUM : SX_PLACE_R, SX_PLACE_SUM);
    }
}

/* ---- all of them ---- */

void sx_shard_list(const sx_shard_op *op, sx_shard_rows *rows)
{
    lister l = {op, rows};
    rows->count = 0;
    SX_ASSERT(op->op != SX_OP_PARAMETER && op->size >= 1);
    put_uniform(&l, SX_PLACE_R, SX_PLACE_R);
    switch (sx_op_info_of(op->op)->op_class) {
    case SX_OPCLASS_UNARY:
    case SX_OPCLASS_BINARY:
    case SX_OPCLASS_COMPARE:
    case SX_OPCLASS_SELECT:
    case SX_OPCLASS_CONVERT: list_elementwise(&l); break;
    case SX_OPCLASS_VIEW: list_view(&l); break;
    case SX_OPCLASS_CONCAT: list_concatenate(&l); break;
    case SX_OPCLASS_GATHER: list_gather(&l); break;
    case SX_OPCLASS_SCATTER: list_scatter(&l); break;
    case SX_OPCLASS_DYNAMIC: list_dynamic(&l); break;
    case SX_OPCLASS_SORT: list_sort(&l); break;
    case SX_OPCLASS_MOVE: list_move(&l); break;
    case SX_OPCLASS_REDUCE: list_reduce(&l); break;
    case SX_OPCLASS_WINDOW: list_window(&l); break;
    case SX_OPCLASS_DOT: list_dot(&l); break;
    case SX_OPCLASS_CONV: list_convolution(&l); break;
    case SX_OPCLASS_COMPOSITE: list_composite(&l); break;
    case SX_OPCLASS_LEAF:       /* constants and indices are everywhere */
    case SX_OPCLASS_REGION:     /* its programs are those of one device */
    case SX_OPCLASS_COLLECTIVE: /* of programs without placements */
    case SX_OPCLASS_FUSED: /* kernels are made for one device */ break;
    }
}

uint32_t sx_shard_transfer(const sx_shard_op *op, const uint32_t *set)
{
    sx_shard_rows rows;
    uint32_t result = 0;
    sx_shard_list(op, &rows);
    for (uint32_t i = 0; i < rows.count; i++) {
        bool met = true;
        for (uint32_t k = 0; k < op->operand_count && met; k++) {
            met = (set[k] & SX_PLACE_BIT(rows.row[i].operand[k])) != 0;
        }
        result |= met ? SX_PLACE_BIT(rows.row[i].result) : 0;
    }
    return sx_shard_closure(result, sx_shard_possible(op->result, op->size, op->multiple));
}

/* ---- what a device runs ---- */

void sx_shard_local_type(sx_type *type, sx_shard_place place, int64_t size)
{
    if (place < SX_PLACE_R) {
        SX_ASSERT(place < type->rank && sx_dim_is_constant(type->dim[place]));
        SX_ASSERT(type->dim[place].scale % size == 0);
        type->dim[place].scale /= size;
    }
}

void sx_shard_local_attr(const sx_shard_op *op, const sx_shard_row *row, sx_attr *local)
{
    *local = *op->attr;
    if (op->op == SX_OP_RESHAPE || op->op == SX_OP_BROADCAST) {
        sx_shard_local_type(&local->type, row->result, op->size);
    }
    if (op->op == SX_OP_SLICE && row->result < SX_PLACE_R) {
        local->limit.v[row->result] = op->operand[0].dim[row->result].scale / op->size;
    }
    if (op->op == SX_OP_CONVOLUTION && deals_groups(op->attr, row)) {
        local->groups /= op->size;
    }
}
