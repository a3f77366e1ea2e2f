/* sort.c - what `sort` is in other operations. No element is moved: it is computed which one comes to which place.
 *
 * The index at place r is found in one of two ways, and the value there is the element that has this index.
 *
 *   by ranks    the rank of an element is the number of those that come before it; place r has the element of rank r.
 *               n^2 comparisons for n elements.
 *   by turns    an extreme of all, then of those not taken yet, and so on: a few passes over the n elements for each
 *               place. For few places, an arg-max above all.
 *
 * The value is picked as a product of ones and the element itself: exact, and the sign of a zero stays. Nothing here
 * is larger than all numbers where numbers are residues (core/eval), so that both sides are equal there, too.
 */
#include "core/ir/sort.h"

#include <math.h>

typedef struct {
    sx_ctx *cx;
    sx_graph *graph;
    sx_code code; /* after the first failure every step is a no-op */
    bool falls;   /* the largest element first */
    bool real;    /* there may be NaN */
    uint32_t axis;
    sx_type x, row; /* the operand, and without the axis */
    sx_type pair;   /* [.., places, n, ..]: the operand with the results before the axis */
    sx_dtype index; /* as wide as an element: both are in the lanes of one kernel */
    sx_node_id in;
} sorter;

/* ---- steps ---- */

static sx_type as(const sx_type *shape, sx_dtype dtype)
{
    sx_type type = *shape;
    type.dtype = dtype;
    return type;
}

static sx_dtype dtype_of(const sorter *s, sx_node_id a)
{
    return sx_graph_node(s->graph, a)->type.dtype;
}

static sx_node_id step(sorter *s, sx_op op, const sx_attr *attr, const sx_node_id *input,
                       uint32_t count)
{
    sx_node_id made = {0};
    if (s->code == SX_OK) {
        s->code = sx_graph_add(s->cx, s->graph, op, attr, input, count, &made);
    }
    return made;
}

static sx_node_id binary(sorter *s, sx_op op, sx_node_id a, sx_node_id b)
{
    return step(s, op, &(sx_attr){0}, (sx_node_id[2]){a, b}, 2);
}

static sx_node_id compare(sorter *s, sx_direction direction, sx_node_id a, sx_node_id b)
{
    sx_attr attr = {.present = SX_A(direction), .direction = direction};
    return step(s, SX_OP_COMPARE, &attr, (sx_node_id[2]){a, b}, 2);
}

static sx_node_id choose(sorter *s, sx_node_id p, sx_node_id a, sx_node_id b)
{
    return step(s, SX_OP_SELECT, &(sx_attr){0}, (sx_node_id[3]){p, a, b}, 3);
}

static sx_node_id convert(sorter *s, sx_node_id a, sx_dtype dtype)
{
    if (s->code != SX_OK || dtype_of(s, a) == dtype) {
        return a;
    }
    sx_type type = as(&sx_graph_node(s->graph, a)->type, dtype);
    return step(s, SX_OP_CONVERT, &(sx_attr){.present = SX_A(type), .type = type}, &a, 1);
}

static sx_node_id scalar(sorter *s, const sx_type *shape, sx_dtype dtype, double value)
{
    sx_type type = as(shape, dtype);
    sx_node_id made = {0};
    if (s->code == SX_OK) {
        s->code = sx_build_scalar(s->cx, s->graph, &type, value, &made);
    }
    return made;
}

static sx_node_id iota(sorter *s, const sx_type *shape, uint32_t axis)
{
    sx_attr attr = {.present = SX_A(axis) | SX_A(type), .axis = axis, .type = as(shape, s->index)};
    return step(s, SX_OP_IOTA, &attr, NULL, 0);
}

/* Repeats `a` along dimension `d` of `shape`, which it does not have. */
static sx_node_id repeat(sorter *s, sx_node_id a, const sx_type *shape, uint32_t d)
{
    if (s->code != SX_OK) {
        return a;
    }
    sx_attr attr = {.present = SX_A(dims) | SX_A(type), .type = as(shape, dtype_of(s, a))};
    SX_ASSERT(d < shape->rank && sx_graph_node(s->graph, a)->type.rank + 1 == shape->rank);
    for (uint32_t k = 0; k < shape->rank; k++) {
        if (k != d) {
            attr.dims.v[attr.dims.count++] = k;
        }
    }
    return step(s, SX_OP_BROADCAST, &attr, &a, 1);
}

static sx_node_id reduce(sorter *s, sx_reducer reducer, sx_node_id a, uint32_t d)
{
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = {1, {d}}, .reducer = reducer};
    return step(s, SX_OP_REDUCE, &attr, &a, 1);
}

/* ---- by ranks ---- */

/* Does the element j come before the element i, in space [.., i, j, ..]? NaN is larger than all numbers. */
static sx_node_id comes_before(sorter *s, const sx_type *space)
{
    sx_node_id i = repeat(s, s->in, space, s->axis + 1), j = repeat(s, s->in, space, s->axis);
    sx_node_id earlier = iota(s, space, s->axis + 1), later = iota(s, space, s->axis);
    earlier = compare(s, SX_LT, earlier, later);
    sx_node_id strict = compare(s, s->falls ? SX_GT : SX_LT, j, i);
    sx_node_id equal = compare(s, s->falls ? SX_GE : SX_LE, j, i);
    if (s->real) {
        sx_node_id larger = s->falls ? j : i, smaller = s->falls ? i : j;
        sx_node_id above = compare(s, SX_NE, larger, larger);
        sx_node_id below = compare(s, SX_EQ, smaller, smaller);
        equal = binary(s, SX_OP_OR, equal, above);
        strict = binary(s, SX_OP_OR, strict, binary(s, SX_OP_AND, above, below));
    }
    /* among equals the one with the smaller index */
    return binary(s, SX_OP_OR, strict, binary(s, SX_OP_AND, equal, earlier));
}

static sx_node_id index_by_ranks(sorter *s)
{
    sx_type square = s->pair;
    square.dim[s->axis] = s->x.dim[s->axis];
    sx_node_id rank = convert(s, comes_before(s, &square), s->index);
    rank = reduce(s, SX_SUM, rank, s->axis + 1);
    sx_node_id place = iota(s, &s->pair, s->axis), index = iota(s, &s->pair, s->axis + 1);
    sx_node_id hit = compare(s, SX_EQ, repeat(s, rank, &s->pair, s->axis), place);
    index = choose(s, hit, index, scalar(s, &s->pair, s->index, 0));
    return reduce(s, SX_SUM, index, s->axis + 1);
}

/* ---- by turns ---- */

/* x with `infinity` for NaN. */
static sx_node_id numbers(sorter *s, double infinity)
{
    if (!s->real) {
        return s->in;
    }
    sx_node_id number = compare(s, SX_EQ, s->in, s->in);
    return choose(s, number, s->in, scalar(s, &s->x, s->x.dtype, infinity));
}

/* The smallest index where `hit`; SX_SORT_EXTENT_MAX where there is none. */
static sx_node_id first_hit(sorter *s, sx_node_id hit)
{
    sx_node_id none = scalar(s, &s->x, s->index, (double)SX_SORT_EXTENT_MAX);
    sx_node_id index = choose(s, hit, iota(s, &s->x, s->axis), none);
    return reduce(s, SX_MIN, index, s->axis);
}

static sx_node_id extreme(sorter *s, sx_node_id of)
{
    return repeat(s, reduce(s, s->falls ? SX_MAX : SX_MIN, of, s->axis), &s->x, s->axis);
}

/* The index of the extreme of those that are `left`, of all where that is NULL. `worst`: no number of x comes later. */
static sx_node_id take_turn(sorter *s, const sx_node_id *left, sx_node_id worst)
{
    sx_node_id from = s->falls ? s->in : numbers(s, HUGE_VAL);
    from = left == NULL ? from : choose(s, *left, from, worst);
    sx_node_id hit = compare(s, SX_EQ, s->in, extreme(s, from));
    if (s->real && s->falls) { /* the first NaN, where there is one */
        hit = binary(s, SX_OP_OR, hit, compare(s, SX_NE, s->in, s->in));
    }
    hit = left == NULL ? hit : binary(s, SX_OP_AND, hit, *left);
    sx_node_id index = first_hit(s, hit);
    if (!s->real || s->falls) {
        return index;
    }
    /* nothing but NaN is left: the first of it */
    sx_node_id first = left == NULL ? scalar(s, &s->row, s->index, 0) : first_hit(s, *left);
    sx_node_id none = scalar(s, &s->row, s->index, (double)SX_SORT_EXTENT_MAX);
    return choose(s, compare(s, SX_EQ, index, none), first, index);
}

static sx_node_id index_by_turns(sorter *s, uint32_t count)
{
    sx_node_id part[SX_SORT_TURNS_MAX], left = {0}, worst = {0};
    sx_type one = s->x;
    one.dim[s->axis] = sx_dim_of(1);
    SX_ASSERT(count >= 1 && count <= SX_SORT_TURNS_MAX);
    if (count > 1) {
        double infinity = s->falls ? HUGE_VAL : -HUGE_VAL;
        worst = reduce(s, s->falls ? SX_MIN : SX_MAX, numbers(s, infinity), s->axis);
        worst = repeat(s, worst, &s->x, s->axis);
    }
    for (uint32_t r = 0; r < count; r++) {
        sx_node_id index = take_turn(s, r == 0 ? NULL : &left, worst);
        part[r] = repeat(s, index, &one, s->axis);
        sx_node_id taken = repeat(s, index, &s->x, s->axis);
        sx_node_id other = compare(s, SX_NE, iota(s, &s->x, s->axis), taken);
        left = r == 0 ? other : binary(s, SX_OP_AND, left, other);
    }
    sx_attr attr = {.present = SX_A(axis), .axis = s->axis};
    return count == 1 ? part[0] : step(s, SX_OP_CONCATENATE, &attr, part, count);
}

/* ---- */

bool sx_sort_takes_turns(const sx_attr *attr, const sx_type *x)
{
    sx_dim n = x->dim[attr->axis];
    bool few = attr->count >= 1 && attr->count <= SX_SORT_TURNS_MAX;
    return few && (attr->count == 1 || !sx_dim_is_constant(n) || n.scale >= 16 * attr->count);
}

bool sx_sort_is_network(const sx_attr *attr, const sx_type *x)
{
    sx_dim n = x->dim[attr->axis];
    return sx_type_is_static(x) && n.scale >= SX_SORT_NETWORK_MIN &&
           n.scale <= SX_SORT_NETWORK_MAX && attr->count != 0 && !sx_sort_takes_turns(attr, x);
}

sx_code sx_sort_decompose(sx_ctx *cx, sx_graph *graph, const sx_attr *attr, sx_node_id x,
                          sx_node_id *result)
{
    const sx_type type = sx_graph_node(graph, x)->type;
    sorter s = {.cx = cx, .graph = graph, .axis = (uint32_t)attr->axis, .in = x};
    SX_ASSERT(s.axis < type.rank && type.rank < SX_RANK_MAX);
    s.falls = attr->direction == SX_GT;
    bool saturates = type.dtype == SX_F8E4M3 ||
                     type.dtype == SX_F8E5M2; /* no infinity comes through a maximum */
    s.in = convert(&s, x, type.dtype == SX_BOOL ? SX_U8 : saturates ? SX_F32 : type.dtype);
    SX_TRY(s.code);
    s.x = sx_graph_node(graph, s.in)->type;
    s.real = sx_dtype_class_of(s.x.dtype) == SX_CLASS_FLOAT;
    s.index = sx_dtype_bytes(s.x.dtype) == 8 ? SX_I64 : SX_I32;
    for (uint32_t d = 0; d < s.x.rank; d++) {
        if (d == s.axis) {
            bool all = attr->count == -1;
            s.pair.dim[s.pair.rank++] = all ? s.x.dim[d] : sx_dim_of(attr->count);
        } else {
            s.row.dim[s.row.rank++] = s.x.dim[d];
        }
        s.pair.dim[s.pair.rank++] = s.x.dim[d];
    }
    sx_node_id index = sx_sort_takes_turns(attr, &s.x) ? index_by_turns(&s, (uint32_t)attr->count)
                                                       : index_by_ranks(&s);
    if (attr->result == 1) {
        *result = convert(&s, index, SX_I64);
        return s.code;
    }
    sx_node_id place = repeat(&s, index, &s.pair, s.axis + 1);
    sx_node_id hit = compare(&s, SX_EQ, place, iota(&s, &s.pair, s.axis + 1));
    sx_node_id one = scalar(&s, &s.pair, s.x.dtype, 1);
    sx_node_id value = choose(&s, hit, repeat(&s, s.in, &s.pair, s.axis), one);
    *result = convert(&s, reduce(&s, SX_PRODUCT, value, s.axis + 1), type.dtype);
    return s.code;
}
