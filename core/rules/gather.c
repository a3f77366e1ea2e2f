/* Lookups: a product with rows of a unit matrix, lookups of lookups, of what is repeated, at a known place,
 * side by side. A gather picks along one axis, so what takes along another axis for each index (ONNX
 * GatherElements) is not one. */
#include "core/rules/rules.h"

/* Is the class the index along dimension `axis`, for itself or repeated along the others? */
static bool counts_along(const sx_rewrite *rw, uint32_t class_, int64_t axis)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t iota = sx_rewrite_member(rw, class_, SX_OP_IOTA);
    if (iota != SX_EG_NONE) {
        return sx_tensors_attr(t, iota)->axis == axis;
    }
    uint32_t repeat = sx_rewrite_member(rw, class_, SX_OP_BROADCAST);
    if (repeat == SX_EG_NONE) {
        return false;
    }
    uint32_t source = sx_eg_child(&t->eg, repeat, 0);
    iota = sx_rewrite_member(rw, source, SX_OP_IOTA);
    if (iota == SX_EG_NONE) {
        return false;
    }
    int64_t inner = sx_tensors_attr(t, iota)->axis;
    return sx_tensors_attr(t, repeat)->dims.v[inner] == axis &&
           sx_dim_equal(sx_tensors_type(t, source)->dim[inner],
                        sx_tensors_type(t, class_)->dim[axis]);
}

/* What the class repeats along dimension `axis` and along no other, or SX_EG_NONE. */
static uint32_t repeated_along(const sx_rewrite *rw, uint32_t class_, int64_t axis)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t repeat = sx_rewrite_member(rw, class_, SX_OP_BROADCAST);
    const sx_type *wide = sx_tensors_type(t, class_);
    if (repeat == SX_EG_NONE) {
        return SX_EG_NONE;
    }
    const sx_ints *dims = &sx_tensors_attr(t, repeat)->dims;
    uint32_t source = sx_eg_child(&t->eg, repeat, 0);
    bool fits = dims->count + 1 == wide->rank;
    for (uint32_t d = 0; d < dims->count && fits; d++) {
        fits = dims->v[d] == (int64_t)d + (d >= axis ? 1 : 0) &&
               sx_dim_equal(sx_tensors_type(t, source)->dim[d], wide->dim[dims->v[d]]);
    }
    return fits ? source : SX_EG_NONE;
}

/* Is each index within [0, extent)? As bools of the type `wide`, whose first dimensions are those of the index. */
static sx_code in_range(sx_rewrite *rw, uint32_t index, int64_t extent, sx_type wide,
                        uint32_t *node)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_type type = *sx_rewrite_type(rw, index);
    sx_attr repeat = {.present = SX_A(dims) | SX_A(type), .type = wide};
    uint32_t bound[2];
    repeat.type.dtype = SX_BOOL;
    repeat.dims.count = type.rank;
    for (uint32_t d = 0; d < type.rank; d++) {
        repeat.dims.v[d] = d;
    }
    for (uint32_t k = 0; k < 2; k++) {
        sx_attr order = {.present = SX_A(direction), .direction = k == 0 ? SX_GE : SX_LT};
        uint32_t child[2] = {index, SX_EG_NONE};
        SX_TRY(sx_tensors_add_value(rw->cx, t, &type, k == 0 ? 0 : (double)extent, &child[1]));
        SX_TRY(sx_rewrite_add(rw, SX_OP_COMPARE, &order, child, 2, &bound[k]));
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_AND, NULL, bound, 2, node));
    return sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, node, 1, node);
}

/* The dimensions of the index, at `axis` of a lookup, come first. */
static sx_code index_first(sx_rewrite *rw, uint32_t lookup, int64_t axis, uint32_t index_rank,
                           uint32_t *node)
{
    sx_attr move = {.present = SX_A(perm)};
    *node = lookup;
    if (lookup == SX_EG_NONE || axis == 0 || index_rank == 0) {
        return SX_OK;
    }
    uint32_t rank = sx_rewrite_type(rw, lookup)->rank;
    for (uint32_t d = 0; d < rank; d++) {
        bool of_index = d >= axis && d < axis + index_rank;
        uint32_t to = of_index ? d - (uint32_t)axis : d < axis ? d + index_rank : d;
        move.perm.v[to] = d;
    }
    move.perm.count = rank;
    return sx_rewrite_add(rw, SX_OP_TRANSPOSE, &move, &lookup, 1, node);
}

/* one_hot(i) e: row i of e, zeros where i is out of range. names: i j e */
sx_code sx_rule_one_hot_dot(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr dot = sx_rewrite_attr(rw, 0);
    sx_type result = *sx_rewrite_type(rw, rw->node[0]);
    const sx_type *wide = sx_rewrite_type(rw, rw->var[0]);
    uint32_t child[3] = {rw->var[2], SX_EG_NONE, SX_EG_NONE};
    if (dot.lhs_batch.count != 0 || dot.lhs_contract.count != 1 || result.dtype == SX_BOOL ||
        sx_rewrite_attr(rw, 2).direction != SX_EQ ||
        sx_dtype_class_of(wide->dtype) != SX_CLASS_INT ||
        !sx_dim_is_constant(wide->dim[dot.lhs_contract.v[0]])) {
        return SX_OK;
    }
    int64_t axis = dot.lhs_contract.v[0];
    int64_t extent = wide->dim[axis].scale;
    for (uint32_t k = 0; k < 2 && child[1] == SX_EG_NONE; k++) {
        if (counts_along(rw, rw->var[k], axis)) {
            child[1] = repeated_along(rw, rw->var[1 - k], axis);
        }
    }
    if (child[1] == SX_EG_NONE) {
        return SX_OK;
    }
    uint32_t index = child[1];
    sx_attr pick = {.present = SX_A(axis), .axis = dot.rhs_contract.v[0]};
    uint32_t chosen[3];
    uint32_t node;
    SX_TRY(in_range(rw, index, extent, result, &chosen[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_GATHER, &pick, child, 2, &node));
    SX_TRY(index_first(rw, node, pick.axis, sx_rewrite_type(rw, index)->rank, &chosen[1]));
    SX_TRY(sx_tensors_add_value(rw->cx, t, &result, 0, &chosen[2]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_SELECT, NULL, chosen, 3, &node));
    return sx_rewrite_emit(rw, node);
}

/* x[i][j] = x[i[j]] along one axis, for a list of indices; names: x i j */
sx_code sx_rule_gather_gather(sx_rewrite *rw)
{
    sx_attr outer = sx_rewrite_attr(rw, 0);
    sx_attr inner = sx_rewrite_attr(rw, 1);
    sx_attr first = {.present = SX_A(axis), .axis = 0};
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    if (outer.axis != inner.axis || sx_rewrite_type(rw, rw->var[1])->rank != 1) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_GATHER, &first, &rw->var[1], 2, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_GATHER, &outer, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* x seen in the result of a lookup: every dimension but those of the index. */
static sx_attr around_index(const sx_type *x, uint32_t index_rank, int64_t axis,
                            const sx_type *result)
{
    sx_attr repeat = {.present = SX_A(dims) | SX_A(type), .type = *result};
    for (uint32_t d = 0; d < x->rank; d++) {
        repeat.dims.v[d] = d < axis ? d : d + index_rank;
    }
    repeat.dims.count = x->rank;
    return repeat;
}

/* The same place for each index: a slice. names: x m */
sx_code sx_rule_gather_known(sx_rewrite *rw)
{
    const sx_fact *fact = sx_tensors_fact(sx_rewrite_tensors(rw), rw->var[1]);
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_type result = *sx_rewrite_type(rw, rw->node[0]);
    sx_type rest = {.dtype = x.dtype};
    if (fact->has_value == 0 || !sx_dim_is_constant(x.dim[axis])) {
        return SX_OK;
    }
    double extent = (double)x.dim[axis].scale;
    double at = fact->value < 0 ? fact->value + extent : fact->value;
    at = at < 0 ? 0 : at > extent - 1 ? extent - 1 : at;
    for (uint32_t d = 0; d < x.rank; d++) {
        if (d != axis) {
            rest.dim[rest.rank++] = x.dim[d];
        }
    }
    uint32_t node;
    uint32_t index_rank = sx_rewrite_type(rw, rw->var[1])->rank;
    sx_attr repeat = around_index(&rest, index_rank, axis, &result);
    SX_TRY(sx_rewrite_cut(rw, rw->var[0], (uint32_t)axis, (int64_t)at, 1, &node));
    SX_TRY(sx_rewrite_reshape(rw, node, &rest, &node));
    if (index_rank > 0) {
        SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &node, 1, &node));
    }
    return sx_rewrite_emit(rw, node);
}

/* Along a dimension that x does not have all places are equal; names: x i */
sx_code sx_rule_gather_repeated(sx_rewrite *rw)
{
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    sx_attr repeat = sx_rewrite_attr(rw, 1);
    uint32_t index_rank = sx_rewrite_type(rw, rw->var[1])->rank;
    uint32_t node;
    repeat.type = *sx_rewrite_type(rw, rw->node[0]);
    for (uint32_t d = 0; d < repeat.dims.count; d++) {
        if (repeat.dims.v[d] == axis) {
            return SX_OK;
        }
        repeat.dims.v[d] += repeat.dims.v[d] > axis ? (int64_t)index_rank - 1 : 0;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &rw->var[0], 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* Lookups in one table, side by side along a dimension of their indices: one lookup. names: x i j */
sx_code sx_rule_gather_index_parts(sx_rewrite *rw)
{
    sx_attr join = sx_rewrite_attr(rw, 0);
    sx_attr gather = sx_rewrite_attr(rw, 1);
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    int64_t rank = sx_rewrite_type(rw, rw->var[1])->rank;
    join.axis -= gather.axis;
    if (join.axis < 0 || join.axis >= rank ||
        sx_rewrite_type(rw, rw->var[2])->rank != sx_rewrite_type(rw, rw->var[1])->rank) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONCATENATE, &join, &rw->var[1], 2, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_GATHER, &gather, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}
