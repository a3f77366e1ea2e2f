/* Views past each other and past what reads them: slices early, broadcasts and transposes late, concatenations flat. */
#include "core/rules/rules.h"

static bool is_one(sx_dim dim)
{
    return sx_dim_is_constant(dim) && dim.scale == 1;
}

/* Takes slice dimension d whole? */
static bool is_whole(const sx_attr *slice, const sx_type *x, uint32_t d)
{
    return slice->start.v[d] == 0 && slice->stride.v[d] == 1 &&
           (slice->limit.v[d] < 0 ||
            (sx_dim_is_constant(x->dim[d]) && slice->limit.v[d] == x->dim[d].scale));
}

static void take_dim(sx_attr *to, uint32_t d, const sx_attr *from, uint32_t k)
{
    to->start.v[d] = from->start.v[k];
    to->limit.v[d] = from->limit.v[k];
    to->stride.v[d] = from->stride.v[k];
}

/* slice of x, or x itself where it takes everything */
static sx_code add_slice(sx_rewrite *rw, const sx_attr *slice, uint32_t x, uint32_t *node)
{
    *node = x;
    if (x == SX_EG_NONE) {
        return SX_OK;
    }
    const sx_type *type = sx_rewrite_type(rw, x);
    bool all = true;
    for (uint32_t d = 0; d < type->rank; d++) {
        all = all && is_whole(slice, type, d);
    }
    return all ? SX_OK : sx_rewrite_add(rw, SX_OP_SLICE, slice, &x, 1, node);
}

/* ---- slices early ----
 * Only where nothing else reads what is cut: a value of which all parts are read, each by a slice of its own,
 * stays whole. */

/* slice(f(x, y, ...)) = f(slice x, slice y, ...) */
sx_code sx_rule_slice_elementwise(sx_rewrite *rw)
{
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr slice = sx_rewrite_attr(rw, 0);
    sx_attr attr = sx_rewrite_attr(rw, 1);
    uint32_t inner = rw->node[1];
    uint32_t arity = t->eg.node[inner].arity;
    uint32_t child[3];
    SX_ASSERT(arity <= 3);
    for (uint32_t k = 0; k < arity; k++) {
        SX_TRY(add_slice(rw, &slice, sx_eg_child(&t->eg, inner, k), &child[k]));
    }
    if ((attr.present & SX_A(type)) != 0) {
        attr.type = *sx_rewrite_type(rw, rw->node[0]);
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, sx_tensors_op(t, inner), &attr, child, arity, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_slice_transpose(sx_rewrite *rw)
{
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    sx_attr slice = sx_rewrite_attr(rw, 0);
    sx_attr perm = sx_rewrite_attr(rw, 1);
    sx_attr inner = slice;
    for (uint32_t d = 0; d < perm.perm.count; d++) {
        take_dim(&inner, (uint32_t)perm.perm.v[d], &slice, d);
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &inner, &rw->var[0], 1, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &perm, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* What is repeated stays one; what is not is cut. */
sx_code sx_rule_slice_broadcast(sx_rewrite *rw)
{
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    sx_attr slice = sx_rewrite_attr(rw, 0);
    sx_attr repeat = sx_rewrite_attr(rw, 1);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    const sx_type *wide = sx_rewrite_type(rw, rw->node[1]);
    sx_attr inner = sx_slice_whole(&x);
    for (uint32_t i = 0; i < repeat.dims.count; i++) {
        if (sx_dim_equal(x.dim[i], wide->dim[repeat.dims.v[i]])) {
            take_dim(&inner, i, &slice, (uint32_t)repeat.dims.v[i]);
        }
    }
    repeat.type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    SX_TRY(add_slice(rw, &inner, rw->var[0], &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* Number of elements before dimension d; false where it cannot be written. */
static bool elements_before(const sx_type *type, uint32_t d, sx_dim *count)
{
    *count = sx_dim_of(1);
    for (uint32_t k = 0; k < d; k++) {
        if (!sx_dim_multiply(*count, type->dim[k], count)) {
            return false;
        }
    }
    return true;
}

/* The dimension of `x` that dimension d of `y` is, where y is a reshape of x; false: none. */
static bool same_place(const sx_type *y, uint32_t d, const sx_type *x, uint32_t *place)
{
    sx_dim before;
    if (!elements_before(y, d, &before)) {
        return false;
    }
    for (uint32_t k = 0; k < x->rank; k++) {
        sx_dim other;
        if (sx_dim_equal(x->dim[k], y->dim[d]) && elements_before(x, k, &other) &&
            sx_dim_equal(before, other)) {
            *place = k;
            return true;
        }
    }
    return false;
}

/* Dimensions that are cut must be dimensions of the source. */
sx_code sx_rule_slice_reshape(sx_rewrite *rw)
{
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    sx_attr slice = sx_rewrite_attr(rw, 0);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type y = *sx_rewrite_type(rw, rw->node[1]);
    sx_attr inner = sx_slice_whole(&x);
    for (uint32_t d = 0; d < y.rank; d++) {
        uint32_t place;
        if (is_whole(&slice, &y, d)) {
            continue;
        }
        if (!same_place(&y, d, &x, &place)) {
            return SX_OK;
        }
        take_dim(&inner, place, &slice, d);
    }
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    SX_TRY(add_slice(rw, &inner, rw->var[0], &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &type, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_slice_reduce(sx_rewrite *rw)
{
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    sx_attr slice = sx_rewrite_attr(rw, 0);
    sx_attr reduce = sx_rewrite_attr(rw, 1);
    sx_attr inner = sx_slice_whole(sx_rewrite_type(rw, rw->var[0]));
    uint32_t reduced = 0;
    for (uint32_t i = 0; i < reduce.dims.count; i++) {
        reduced |= 1u << reduce.dims.v[i];
    }
    for (uint32_t d = 0, k = 0; d < inner.start.count; d++) {
        if ((reduced & 1u << d) == 0) {
            take_dim(&inner, d, &slice, k++);
        }
    }
    uint32_t node;
    SX_TRY(add_slice(rw, &inner, rw->var[0], &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &reduce, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* Softmax and norms, cut between rows. */
sx_code sx_rule_slice_rows(sx_rewrite *rw)
{
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t inner = rw->node[1];
    sx_op op = sx_tensors_op(t, inner);
    sx_attr slice = sx_rewrite_attr(rw, 0);
    sx_attr attr = sx_rewrite_attr(rw, 1);
    uint32_t arity = t->eg.node[inner].arity;
    uint32_t child[3];
    bool to_end = op == SX_OP_LAYER_NORM || op == SX_OP_RMS_NORM;
    SX_ASSERT(arity >= 1 && arity <= 3);
    for (uint32_t k = 0; k < arity; k++) {
        child[k] = sx_eg_child(&t->eg, inner, k);
    }
    const sx_type *type = sx_tensors_type(t, child[0]);
    for (uint32_t d = (uint32_t)attr.axis; d < (to_end ? type->rank : (uint32_t)attr.axis + 1);
         d++) {
        if (!is_whole(&slice, type, d)) {
            return SX_OK;
        }
    }
    uint32_t node;
    SX_TRY(add_slice(rw, &slice, child[0], &child[0]));
    SX_TRY(sx_rewrite_add(rw, op, &attr, child, arity, &node));
    return sx_rewrite_emit(rw, node);
}

/* Batch and free dimensions of a contraction are cut in the operands. */
sx_code sx_rule_slice_dot(sx_rewrite *rw)
{
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    sx_attr slice = sx_rewrite_attr(rw, 0);
    sx_attr dot = sx_rewrite_attr(rw, 1);
    uint32_t at = dot.lhs_batch.count;
    uint32_t child[2];
    for (uint32_t k = 0; k < 2; k++) {
        const sx_ints *batch = k == 0 ? &dot.lhs_batch : &dot.rhs_batch;
        const sx_ints *contract = k == 0 ? &dot.lhs_contract : &dot.rhs_contract;
        sx_type x = *sx_rewrite_type(rw, rw->var[k]);
        sx_attr inner = sx_slice_whole(&x);
        uint32_t bound = 0;
        for (uint32_t i = 0; i < batch->count; i++) {
            take_dim(&inner, (uint32_t)batch->v[i], &slice, i);
            bound |= 1u << batch->v[i];
        }
        for (uint32_t i = 0; i < contract->count; i++) {
            bound |= 1u << contract->v[i];
        }
        for (uint32_t d = 0; d < x.rank; d++) {
            if ((bound & 1u << d) == 0) {
                take_dim(&inner, d, &slice, at++);
            }
        }
        SX_TRY(add_slice(rw, &inner, rw->var[k], &child[k]));
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* The dimensions of the operand that are not indexed. */
sx_code sx_rule_slice_gather(sx_rewrite *rw)
{
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    sx_attr slice = sx_rewrite_attr(rw, 0);
    sx_attr gather = sx_rewrite_attr(rw, 1);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type index = *sx_rewrite_type(rw, rw->var[1]);
    sx_attr of_x = sx_slice_whole(&x);
    sx_attr of_index = sx_slice_whole(&index);
    uint32_t axis = (uint32_t)gather.axis;
    for (uint32_t d = 0; d < slice.start.count; d++) {
        if (d >= axis && d < axis + index.rank) {
            take_dim(&of_index, d - axis, &slice, d);
        } else {
            take_dim(&of_x, d < axis ? d : d - index.rank + 1, &slice, d);
        }
    }
    uint32_t child[2];
    uint32_t node;
    SX_TRY(add_slice(rw, &of_x, rw->var[0], &child[0]));
    SX_TRY(add_slice(rw, &of_index, rw->var[1], &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_GATHER, &gather, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- transposes and reshapes of broadcasts: of what is repeated ---- */

sx_code sx_rule_transpose_broadcast(sx_rewrite *rw)
{
    sx_ints perm = sx_rewrite_attr(rw, 0).perm;
    sx_attr repeat = sx_rewrite_attr(rw, 1);
    sx_attr moved = {.present = repeat.present, .type = *sx_rewrite_type(rw, rw->node[0])};
    sx_attr inner = {.present = SX_A(perm)};
    bool identity = true;
    for (uint32_t d = 0; d < perm.count; d++) {
        for (uint32_t i = 0; i < repeat.dims.count; i++) {
            if (repeat.dims.v[i] == perm.v[d]) {
                identity = identity && inner.perm.count == i;
                inner.perm.v[inner.perm.count++] = i;
                moved.dims.v[moved.dims.count++] = d;
            }
        }
    }
    uint32_t node = rw->var[0];
    if (!identity) {
        SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &inner, &rw->var[0], 1, &node));
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &moved, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* Dimensions are matched in segments of equal size on both sides of the reshape; each segment is repeated as a
 * whole or not at all. */
sx_code sx_rule_reshape_broadcast(sx_rewrite *rw)
{
    sx_attr repeat = sx_rewrite_attr(rw, 1);
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type from = *sx_rewrite_type(rw, rw->node[1]);
    sx_type to = *sx_rewrite_type(rw, rw->node[0]);
    sx_type source = {.dtype = x.dtype};
    sx_attr direct = {.present = repeat.present, .type = to};
    int64_t of[SX_RANK_MAX]; /* operand dimension, -1: repeated */
    for (uint32_t d = 0; d < from.rank; d++) {
        of[d] = -1;
    }
    for (uint32_t i = 0; i < repeat.dims.count; i++) {
        uint32_t d = (uint32_t)repeat.dims.v[i];
        of[d] = sx_dim_equal(x.dim[i], from.dim[d]) ? (int64_t)i : -1;
        if (of[d] < 0 && !is_one(x.dim[i])) {
            return SX_OK;
        }
    }
    uint32_t f = 0;
    uint32_t d = 0;
    while (f < from.rank || d < to.rank) {
        sx_dim left = sx_dim_of(1);
        sx_dim right = sx_dim_of(1);
        uint32_t f_first = f;
        uint32_t d_first = d;
        if (f < from.rank && (is_one(from.dim[f]) || d >= to.rank)) {
            left = from.dim[f++];
        } else if (d < to.rank && (is_one(to.dim[d]) || f >= from.rank)) {
            right = to.dim[d++];
        } else {
            left = from.dim[f++];
            right = to.dim[d++];
        }
        while (!sx_dim_equal(left, right)) {
            bool grow_left = f < from.rank && sx_dim_is_constant(left) &&
                             (!sx_dim_is_constant(right) || left.scale < right.scale);
            if (grow_left ? !sx_dim_multiply(left, from.dim[f++], &left)
                          : d >= to.rank || !sx_dim_multiply(right, to.dim[d++], &right)) {
                return SX_OK;
            }
        }
        bool repeats = false;
        for (uint32_t k = f; k-- > f_first;) {
            repeats = is_one(from.dim[k]) ? repeats : of[k] < 0;
        }
        for (uint32_t k = f_first; k < f; k++) {
            if (!is_one(from.dim[k]) && (of[k] < 0) != repeats) {
                return SX_OK;
            }
        }
        for (uint32_t k = d_first; k < d && !repeats; k++) {
            source.dim[source.rank++] = to.dim[k];
            direct.dims.v[direct.dims.count++] = k;
        }
    }
    uint32_t node;
    SX_TRY(sx_rewrite_reshape(rw, rw->var[0], &source, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &direct, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}
