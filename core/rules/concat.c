/* Concatenations: flat, of adjacent slices, exchanged, past what is element by element; gathers. */
#include <string.h>

#include "core/rules/rules.h"

#define PARTS_MAX SX_EG_ARITY_MAX

static uint32_t count_parts(const sx_rewrite *rw, uint32_t node)
{
    return sx_rewrite_tensors(rw)->eg.node[node].arity;
}

static uint32_t part_of(const sx_rewrite *rw, uint32_t node, uint32_t k)
{
    return sx_eg_child(&sx_rewrite_tensors(rw)->eg, node, k);
}

static sx_code add_concatenate(sx_rewrite *rw, int64_t axis, const uint32_t *part, uint32_t count,
                               uint32_t *node)
{
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    *node = count == 1 ? part[0] : SX_EG_NONE;
    return count == 1 ? SX_OK : sx_rewrite_add(rw, SX_OP_CONCATENATE, &attr, part, count, node);
}

static sx_code emit_concatenate(sx_rewrite *rw, int64_t axis, const uint32_t *part, uint32_t count)
{
    uint32_t node;
    SX_TRY(add_concatenate(rw, axis, part, count, &node));
    return sx_rewrite_emit(rw, node);
}

/* Some part is a concatenation along the same axis: its parts take its place. */
sx_code sx_rule_concatenate_flat(sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    uint32_t part[PARTS_MAX];
    uint32_t count = 0;
    bool flat = true;
    for (uint32_t k = 0; k < count_parts(rw, rw->node[0]); k++) {
        uint32_t class_ = part_of(rw, rw->node[0], k);
        uint32_t inner = sx_rewrite_member(rw, class_, SX_OP_CONCATENATE);
        bool opens = inner != SX_EG_NONE && sx_tensors_attr(t, inner)->axis == axis &&
                     class_ != sx_eg_find(&t->eg, rw->node[0]);
        uint32_t more = opens ? count_parts(rw, inner) : 1;
        if (count + more > PARTS_MAX) {
            return SX_OK;
        }
        for (uint32_t i = 0; i < more; i++) {
            part[count++] = opens ? part_of(rw, inner, i) : class_;
        }
        flat = flat && !opens;
    }
    return flat ? SX_OK : emit_concatenate(rw, axis, part, count);
}

/* Does slice b go on along `axis` where slice a of the same tensor ends? Then a becomes both. */
static bool append_slice(sx_attr *a, const sx_attr *b, uint32_t axis)
{
    for (uint32_t d = 0; d < a->start.count; d++) {
        bool same = a->start.v[d] == b->start.v[d] && a->limit.v[d] == b->limit.v[d] &&
                    a->stride.v[d] == b->stride.v[d];
        if (d != axis && !same) {
            return false;
        }
    }
    if (a->stride.v[axis] != 1 || b->stride.v[axis] != 1 || a->limit.v[axis] < 0 ||
        a->limit.v[axis] != b->start.v[axis]) {
        return false;
    }
    a->limit.v[axis] = b->limit.v[axis];
    return true;
}

/* The slice in the class that cuts class `source`, where it is one. */
static uint32_t slice_of(const sx_rewrite *rw, uint32_t class_, uint32_t *source)
{
    uint32_t slice = sx_rewrite_member(rw, class_, SX_OP_SLICE);
    *source = slice != SX_EG_NONE ? part_of(rw, slice, 0) : SX_EG_NONE;
    return slice;
}

/* Neighbouring parts that are neighbouring slices of one tensor become one slice. */
sx_code sx_rule_concatenate_slices(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t axis = (uint32_t)sx_rewrite_attr(rw, 0).axis;
    uint32_t count = count_parts(rw, rw->node[0]);
    uint32_t part[PARTS_MAX];
    uint32_t kept = 0;
    uint32_t k = 0;
    while (k < count) {
        uint32_t source;
        uint32_t class_ = part_of(rw, rw->node[0], k++);
        uint32_t slice = slice_of(rw, class_, &source);
        part[kept++] = class_;
        if (slice == SX_EG_NONE) {
            continue;
        }
        sx_attr whole = *sx_tensors_attr(t, slice);
        bool grown = false;
        for (; k < count; k++) {
            uint32_t other;
            uint32_t next = slice_of(rw, part_of(rw, rw->node[0], k), &other);
            if (next == SX_EG_NONE || other != source ||
                !append_slice(&whole, sx_tensors_attr(t, next), axis)) {
                break;
            }
            grown = true;
        }
        if (grown) {
            SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &whole, &source, 1, &part[kept - 1]));
        }
    }
    return kept == count ? SX_OK : emit_concatenate(rw, axis, part, kept);
}

/* cat_i(cat_j(a, b, ..), cat_j(c, d, ..), ..) = cat_j(cat_i(a, c, ..), cat_i(b, d, ..), ..): parts equal
 * pairwise, not only in sum. */
sx_code sx_rule_concatenate_exchange(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    int64_t outer = sx_rewrite_attr(rw, 0).axis;
    int64_t inner = sx_rewrite_attr(rw, 1).axis;
    uint32_t row_count = count_parts(rw, rw->node[0]);
    uint32_t count = count_parts(rw, rw->node[1]);
    uint32_t row[PARTS_MAX];
    if (outer == inner) {
        return SX_OK;
    }
    for (uint32_t r = 0; r < row_count; r++) {
        row[r] = r == 0 ? rw->node[1]
                        : sx_rewrite_member(rw, part_of(rw, rw->node[0], r), SX_OP_CONCATENATE);
        if (row[r] == SX_EG_NONE || sx_tensors_attr(t, row[r])->axis != inner ||
            count_parts(rw, row[r]) != count) {
            return SX_OK;
        }
        for (uint32_t k = 0; k < count; k++) {
            if (!sx_dim_equal(sx_tensors_type(t, part_of(rw, row[r], k))->dim[inner],
                              sx_tensors_type(t, part_of(rw, row[0], k))->dim[inner])) {
                return SX_OK;
            }
        }
    }
    uint32_t column[PARTS_MAX];
    for (uint32_t k = 0; k < count; k++) {
        uint32_t part[PARTS_MAX];
        for (uint32_t r = 0; r < row_count; r++) {
            part[r] = part_of(rw, row[r], k);
        }
        SX_TRY(add_concatenate(rw, outer, part, row_count, &column[k]));
        if (column[k] == SX_EG_NONE) {
            return SX_OK;
        }
    }
    uint32_t node;
    SX_TRY(add_concatenate(rw, inner, column, count, &node));
    return sx_rewrite_emit(rw, node);
}

/* f(cat(x, y, ..)) = cat(f(x), f(y), ..), where nothing else reads the concatenation. */
sx_code sx_rule_unary_concatenate(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t count = count_parts(rw, rw->node[1]);
    sx_op op = sx_tensors_op(t, rw->node[0]);
    uint32_t part[PARTS_MAX];
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t x = part_of(rw, rw->node[1], k);
        SX_TRY(sx_rewrite_add(rw, op, NULL, &x, 1, &part[k]));
    }
    return emit_concatenate(rw, sx_rewrite_attr(rw, 1).axis, part, count);
}

/* cat(f(x), f(y), ..) = f(cat(x, y, ..)): one operation instead of many. */
sx_code sx_rule_concatenate_unary(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t count = count_parts(rw, rw->node[0]);
    sx_op op = sx_tensors_op(t, rw->node[1]);
    uint32_t part[PARTS_MAX];
    for (uint32_t k = 0; k < count; k++) {
        uint32_t f = k == 0 ? rw->node[1] : sx_rewrite_member(rw, part_of(rw, rw->node[0], k), op);
        if (f == SX_EG_NONE) {
            return SX_OK;
        }
        part[k] = part_of(rw, f, 0);
    }
    uint32_t node;
    SX_TRY(add_concatenate(rw, sx_rewrite_attr(rw, 0).axis, part, count, &node));
    SX_TRY(sx_rewrite_add(rw, op, NULL, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

static bool is_cut(const sx_rewrite *rw, uint32_t concatenate)
{
    return sx_tensors_op(sx_rewrite_tensors(rw), concatenate) == SX_OP_CONCATENATE;
}

/* op(cat(a, b, ..), cat(c, d, ..)) = cat(op(a, c), op(b, d), ..): parts equal pairwise. */
sx_code sx_rule_binary_concatenate(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_op op = sx_tensors_op(t, rw->node[0]);
    uint32_t count = count_parts(rw, rw->node[1]);
    int64_t axis = sx_rewrite_attr(rw, 1).axis;
    uint32_t part[PARTS_MAX];
    SX_ASSERT(is_cut(rw, rw->node[1]) && is_cut(rw, rw->node[2]));
    if (sx_rewrite_attr(rw, 2).axis != axis || count_parts(rw, rw->node[2]) != count ||
        !sx_rewrite_is_private(rw, 1) || !sx_rewrite_is_private(rw, 2)) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t child[2] = {part_of(rw, rw->node[1], k), part_of(rw, rw->node[2], k)};
        if (!sx_type_equal(sx_tensors_type(t, child[0]), sx_tensors_type(t, child[1]))) {
            return SX_OK;
        }
        SX_TRY(sx_rewrite_add(rw, op, NULL, child, 2, &part[k]));
    }
    return emit_concatenate(rw, axis, part, count);
}

/* cat(op(a, b), op(c, d)) = op(cat(a, c), cat(b, d)), where nothing else reads the parts; names: a b c d */
sx_code sx_rule_concatenate_binary(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_op op = sx_tensors_op(t, rw->node[1]);
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    uint32_t child[2];
    if (sx_tensors_op(t, rw->node[2]) != op || !sx_rewrite_is_private(rw, 1) ||
        !sx_rewrite_is_private(rw, 2)) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t part[2] = {rw->var[k], rw->var[2 + k]};
        SX_TRY(add_concatenate(rw, axis, part, 2, &child[k]));
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, NULL, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* cat(T x, T y, ..) = T cat(x, y, ..) for one transposition T. */
sx_code sx_rule_concatenate_transpose(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t count = count_parts(rw, rw->node[0]);
    sx_attr perm = sx_rewrite_attr(rw, 1);
    uint32_t part[PARTS_MAX];
    for (uint32_t k = 0; k < count; k++) {
        uint32_t turned = k == 0
                              ? rw->node[1]
                              : sx_rewrite_member(rw, part_of(rw, rw->node[0], k), SX_OP_TRANSPOSE);
        if (turned == SX_EG_NONE || t->eg.node[turned].attr != t->eg.node[rw->node[1]].attr) {
            return SX_OK;
        }
        part[k] = part_of(rw, turned, 0);
    }
    uint32_t node;
    int64_t axis = perm.perm.v[sx_rewrite_attr(rw, 0).axis];
    SX_TRY(add_concatenate(rw, axis, part, count, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_TRANSPOSE, &perm, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* cat(bc x, bc y, ..) = bc cat(x, y, ..) where the axis is a dimension of x that is not repeated. */
sx_code sx_rule_concatenate_broadcast(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    uint32_t count = count_parts(rw, rw->node[0]);
    sx_attr repeat = sx_rewrite_attr(rw, 1);
    int64_t axis = sx_rewrite_attr(rw, 0).axis;
    uint32_t part[PARTS_MAX];
    uint32_t inner = 0;
    while (inner < repeat.dims.count && repeat.dims.v[inner] != axis) {
        inner++;
    }
    if (inner == repeat.dims.count) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t class_ = part_of(rw, rw->node[0], k);
        uint32_t wide = k == 0 ? rw->node[1] : sx_rewrite_member(rw, class_, SX_OP_BROADCAST);
        if (wide == SX_EG_NONE ||
            memcmp(&sx_tensors_attr(t, wide)->dims, &repeat.dims, sizeof(repeat.dims)) != 0) {
            return SX_OK;
        }
        part[k] = part_of(rw, wide, 0);
        if (!sx_dim_equal(sx_tensors_type(t, part[k])->dim[inner],
                          sx_tensors_type(t, class_)->dim[axis])) {
            return SX_OK;
        }
    }
    uint32_t node;
    repeat.type = *sx_rewrite_type(rw, rw->node[0]);
    SX_TRY(add_concatenate(rw, inner, part, count, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* A slice over several parts, or along another axis: of the parts. Only where parts fall away or nothing else
 * reads the whole. */
sx_code sx_rule_slice_parts(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr slice = sx_rewrite_attr(rw, 0);
    int64_t axis = sx_rewrite_attr(rw, 1).axis;
    uint32_t count = count_parts(rw, rw->node[1]);
    int64_t start = slice.start.v[axis];
    int64_t limit = slice.limit.v[axis];
    uint32_t part[PARTS_MAX];
    uint32_t kept = 0;
    int64_t offset = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t x = part_of(rw, rw->node[1], k);
        sx_dim size = sx_tensors_type(t, x)->dim[axis];
        if (!sx_dim_is_constant(size) || limit < 0 || slice.stride.v[axis] != 1) {
            return SX_OK;
        }
        int64_t first = start > offset ? start - offset : 0;
        int64_t end = limit < offset + size.scale ? limit - offset : size.scale;
        offset += size.scale;
        if (first < end) {
            sx_attr inner = slice;
            inner.start.v[axis] = first;
            inner.limit.v[axis] = end;
            SX_TRY(sx_rewrite_add(rw, SX_OP_SLICE, &inner, &x, 1, &part[kept++]));
        }
    }
    if (kept < 2 || (kept == count && !sx_rewrite_is_private(rw, 1))) {
        return SX_OK; /* slice-concatenate has what lies in one part */
    }
    return emit_concatenate(rw, axis, part, kept);
}

/* ---- gathers ---- */

/* f(gather(x, i)) = gather(f(x), i) where x follows from weights: computed once at load. */
sx_code sx_rule_unary_gather(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr attr = sx_rewrite_attr(rw, 1);
    uint32_t child[2] = {SX_EG_NONE, rw->var[1]};
    uint32_t node;
    if (sx_tensors_fact(t, rw->var[0])->is_weight == 0) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, sx_tensors_op(t, rw->node[0]), NULL, &rw->var[0], 1, &child[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_GATHER, &attr, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* gather(cat(x, y, ..), i) = cat(gather(x, i), gather(y, i), ..) along another axis; names: i */
sx_code sx_rule_gather_concatenate(sx_rewrite *rw)
{
    sx_attr gather = sx_rewrite_attr(rw, 0);
    int64_t axis = sx_rewrite_attr(rw, 1).axis;
    uint32_t index = sx_eg_child(&sx_rewrite_tensors(rw)->eg, rw->node[0], 1);
    uint32_t count = count_parts(rw, rw->node[1]);
    uint32_t part[PARTS_MAX];
    if (gather.axis == axis || !sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t child[2] = {part_of(rw, rw->node[1], k), index};
        SX_TRY(sx_rewrite_add(rw, SX_OP_GATHER, &gather, child, 2, &part[k]));
    }
    int64_t rank = sx_rewrite_type(rw, index)->rank;
    return emit_concatenate(rw, axis < gather.axis ? axis : axis + rank - 1, part, count);
}
