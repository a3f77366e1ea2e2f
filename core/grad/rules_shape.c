/* rules_shape.c - operations that move elements, or repeat them. */
#include "core/grad/sweep.h"

#include <string.h>

#include "core/ir/extent.h"
#include "core/ir/num.h"

void sx_grad_reshape(sx_sweep *s, const sx_site *at)
{
    sx_type type = sx_step_type(s, at->x[0]);
    sx_give(s, at, 0, sx_step_reshape(s, at->g, &type));
}

void sx_grad_transpose(sx_sweep *s, const sx_site *at)
{
    sx_ints back = {.count = at->attr.perm.count};
    for (uint32_t i = 0; i < back.count; i++) {
        back.v[at->attr.perm.v[i]] = i;
    }
    sx_give(s, at, 0, sx_step_transpose(s, at->g, &back));
}

void sx_grad_broadcast(sx_sweep *s, const sx_site *at)
{
    sx_type from = sx_step_type(s, at->x[0]);
    sx_ints summed = sx_other_dims(at->type.rank, &at->attr.dims);
    for (uint32_t i = 0; i < from.rank; i++) {
        int64_t d = at->attr.dims.v[i];
        if (sx_dim_equal(from.dim[i], at->type.dim[d])) {
            continue;
        }
        uint32_t k =
            summed.count++; /* an extent of 1 that is repeated, in its place among the others */
        for (; k > 0 && summed.v[k - 1] > d; k--) {
            summed.v[k] = summed.v[k - 1];
        }
        summed.v[k] = d;
    }
    sx_node_id sum = sx_step_reduce(s, SX_SUM, at->g, &summed);
    sx_give(s, at, 0, sx_step_reshape(s, sum, &from));
}

/* ---- slice ---- */

/* g lies along dimension d at every `stride`-th place, from the first to the end of a symbolic extent: zeros follow
 * each element in a dimension of its own, which is then joined. */
static sx_node_id spread_symbolic(sx_sweep *s, sx_node_id g, uint32_t d, int64_t stride,
                                  sx_dim extent)
{
    sx_type type = sx_step_type(s, g);
    if (type.rank >= SX_RANK_MAX) {
        s->code =
            SX_FAIL(s->cx, SX_UNIMPLEMENTED,
                    "gradient of a slice of symbolic dimension %u in steps of %lld at rank %u", d,
                    (long long)stride, type.rank);
        return g;
    }
    sx_type split = sx_type_with(&type, d + 1, sx_dim_of(1));
    sx_attr pad = sx_no_padding(split.rank);
    pad.high.v[d + 1] = stride - 1;
    sx_node_id spread = sx_step_reshape(s, g, &split);
    spread = sx_step_pad(s, spread, &pad, 0);
    type.dim[d] = extent;
    return sx_step_reshape(s, spread, &type);
}

/* The positions 0, 1, ... along dimension d of `shape`, in i32 if they fit. */
static sx_node_id positions(sx_sweep *s, const sx_type *shape, uint32_t d, sx_dim extent)
{
    int64_t high = extent.scale;
    if (!sx_dim_is_constant(extent) &&
        !sx_mul_i64(high, s->graph->symbol[extent.symbol].high, &high)) {
        high = INT64_MAX;
    }
    sx_attr iota = {.present = SX_A(axis) | SX_A(type), .axis = d, .type = *shape};
    iota.type.dtype = high <= INT32_MAX ? SX_I32 : SX_I64;
    return sx_step(s, SX_OP_IOTA, &iota, NULL, 0);
}

/* The single element of g along dimension d is repeated, and kept at `start` alone. */
static sx_node_id place_one(sx_sweep *s, sx_node_id g, uint32_t d, int64_t start, sx_dim extent)
{
    sx_type type = sx_step_type(s, g);
    type.dim[d] = extent;
    sx_ints all = sx_other_dims(type.rank, &(sx_ints){0});
    sx_node_id repeated = sx_step_repeat(s, g, &all, &type);
    sx_node_id here = positions(s, &type, d, extent);
    sx_type index = sx_step_type(s, here);
    sx_node_id at = sx_step_constant(s, &index, (double)start);
    return sx_step_keep(s, sx_step_compare(s, SX_EQ, here, at), true, repeated);
}

/* g has a known number of places in a symbolic dimension d, the k-th at start + k stride: for each position the sum
 * over k of (position == place of k ? g of k : 0), of which one term at most is not zero. */
static sx_node_id place_several(sx_sweep *s, sx_node_id g, uint32_t d, const sx_attr *slice,
                                sx_dim extent)
{
    sx_type type = sx_step_type(s, g);
    int64_t count = type.dim[d].scale;
    if (type.rank >= SX_RANK_MAX) {
        s->code = SX_FAIL(s->cx, SX_UNIMPLEMENTED,
                          "gradient of a slice of %lld places of symbolic dimension %u at rank %u",
                          (long long)count, d, type.rank);
        return g;
    }
    sx_type whole = type;
    whole.dim[d] = extent;
    whole = sx_type_with(&whole, type.rank, sx_dim_of(count));
    sx_ints last = {.count = type.rank}; /* d behind all others */
    for (uint32_t i = 0; i + 1 < type.rank; i++) {
        last.v[i] = i < d ? i : i + 1;
    }
    last.v[type.rank - 1] = d;
    sx_ints other = sx_other_dims(whole.rank, &(sx_ints){1, {d}});
    sx_node_id repeated = sx_step_transpose(s, g, &last);
    repeated = sx_step_repeat(s, repeated, &other, &whole);
    sx_node_id here = positions(s, &whole, d, extent);
    sx_node_id place = positions(s, &whole, type.rank, extent);
    sx_type index = sx_step_type(s, here);
    place = sx_step_times(s, place, (double)slice->stride.v[d]);
    sx_node_id start = sx_step_constant(s, &index, (double)slice->start.v[d]);
    place = sx_step_binary(s, SX_OP_ADD, place, start);
    sx_node_id kept = sx_step_keep(s, sx_step_compare(s, SX_EQ, here, place), true, repeated);
    return sx_step_reduce(s, SX_SUM, kept, &(sx_ints){1, {type.rank}});
}

void sx_grad_slice(sx_sweep *s, const sx_site *at)
{
    const sx_attr *slice = &at->attr;
    sx_type from = sx_step_type(s, at->x[0]);
    sx_attr pad = sx_no_padding(from.rank);
    sx_node_id part = at->g;
    for (uint32_t d = 0; d < from.rank; d++) {
        if (sx_dim_is_constant(from.dim[d])) {
            int64_t reach = (at->type.dim[d].scale - 1) * slice->stride.v[d] + 1;
            pad.low.v[d] = slice->start.v[d];
            pad.high.v[d] = from.dim[d].scale - slice->start.v[d] - reach;
            pad.interior.v[d] = at->type.dim[d].scale > 1 ? slice->stride.v[d] - 1 : 0;
        } else if (slice->limit.v[d] < 0) {
            part = slice->stride.v[d] == 1
                       ? part
                       : spread_symbolic(s, part, d, slice->stride.v[d], from.dim[d]);
        } else {
            part = at->type.dim[d].scale == 1
                       ? place_one(s, part, d, slice->start.v[d], from.dim[d])
                       : place_several(s, part, d, slice, from.dim[d]);
        }
    }
    sx_give(s, at, 0, sx_step_pad(s, part, &pad, 0));
}

/* ---- gather ---- */

/* `index` repeated or clamped by `bound`, a scalar that is repeated to its shape. */
static sx_node_id clamp_by(sx_sweep *s, sx_op op, sx_node_id index, sx_node_id bound)
{
    sx_type type = sx_step_type(s, index);
    sx_node_id whole = sx_step_repeat(s, bound, &(sx_ints){0}, &type);
    return sx_step_binary(s, op, index, whole);
}

/* The last index n - 1 of a symbolic extent, as a scalar of i64. */
static sx_node_id last_of_symbol(sx_sweep *s, sx_dim extent)
{
    sx_attr iota = {.present = SX_A(axis) | SX_A(type), .type = {SX_I64, 1, {extent}}};
    sx_node_id all = sx_step(s, SX_OP_IOTA, &iota, NULL, 0);
    return sx_step_reduce(s, SX_MAX, all, &(sx_ints){1, {0}});
}

/* Indices in [-n, n): gather clamps the others, scatter drops their updates. What the type of the indices cannot
 * express needs no clamping. */
static sx_node_id clamped(sx_sweep *s, sx_node_id index, sx_dim extent)
{
    if (!sx_dim_is_constant(extent)) {
        sx_node_id last = last_of_symbol(s, extent);
        sx_type scalar = sx_step_type(s, last);
        sx_node_id one = sx_step_constant(s, &scalar, 1);
        sx_node_id first = sx_step_unary(s, SX_OP_NEGATE, last);
        first = sx_step_binary(s, SX_OP_SUBTRACT, first, one);
        sx_node_id wide = sx_step_convert(s, index, SX_I64);
        wide = clamp_by(s, SX_OP_MAXIMUM, wide, first);
        return clamp_by(s, SX_OP_MINIMUM, wide, last);
    }
    sx_type scalar = {.dtype = sx_step_type(s, index).dtype};
    if (-extent.scale > sx_num_int_min(scalar.dtype)) {
        sx_node_id first = sx_step_constant(s, &scalar, -(double)extent.scale);
        index = clamp_by(s, SX_OP_MAXIMUM, index, first);
    }
    if (extent.scale - 1 < sx_num_int_max(scalar.dtype)) {
        sx_node_id last = sx_step_constant(s, &scalar, (double)(extent.scale - 1));
        index = clamp_by(s, SX_OP_MINIMUM, index, last);
    }
    return index;
}

void sx_grad_gather(sx_sweep *s, const sx_site *at)
{
    sx_type from = sx_step_type(s, at->x[0]);
    sx_attr attr = {
        .present = sx_op_info_of(SX_OP_SCATTER)->attrs, .axis = at->attr.axis, .reducer = SX_SUM};
    sx_node_id input[3];
    input[0] = sx_step_constant(s, &from, 0);
    input[1] = clamped(s, at->x[1], from.dim[at->attr.axis]);
    input[2] = at->g;
    sx_give(s, at, 0, sx_step(s, SX_OP_SCATTER, &attr, input, 3));
}

/* The updates that are added get the rows of g that their indices name, and nothing where an index is out of range and
 * the update was dropped. */
static void give_updates(sx_sweep *s, const sx_site *at)
{
    sx_type from = sx_step_type(s, at->x[0]);
    sx_type given = sx_step_type(s, at->x[2]);
    sx_attr attr = {.present = SX_A(axis), .axis = at->attr.axis};
    uint32_t axis = (uint32_t)at->attr.axis;
    sx_node_id input[2] = {at->g, at->x[1]};
    sx_node_id rows = sx_step(s, SX_OP_GATHER, &attr, input, 2);
    sx_node_id wide = sx_step_convert(s, at->x[1], SX_I64);
    sx_node_id inside = clamped(s, wide, from.dim[axis]);
    inside = sx_step_compare(s, SX_EQ, wide, inside);
    sx_ints dims = {.count = sx_step_type(s, inside).rank};
    for (uint32_t i = 0; i < dims.count; i++) {
        dims.v[i] = axis + i;
    }
    inside = sx_step_repeat(s, inside, &dims, &given);
    sx_give(s, at, 2, sx_step_keep(s, inside, true, rows));
}

void sx_grad_scatter(sx_sweep *s, const sx_site *at)
{
    if (at->attr.reducer != SX_SUM) {
        s->code = SX_FAIL(s->cx, SX_UNIMPLEMENTED, "gradient of scatter by %s",
                          sx_reducer_name(at->attr.reducer));
        return;
    }
    sx_give(s, at, 0, at->g);
    if (sx_wants(s, at, 2)) {
        give_updates(s, at);
    }
}

/* ---- sort ---- */

/* An element goes to one place at most: its cotangent is the sum over the places, of which one counts. */
void sx_grad_sort(sx_sweep *s, const sx_site *at)
{
    sx_type from = sx_step_type(s, at->x[0]);
    uint32_t axis = (uint32_t)at->attr.axis;
    sx_attr attr = at->attr;
    attr.result = 1;
    sx_node_id index = sx_step(s, SX_OP_SORT, &attr, &at->x[0], 1);
    sx_type pair = sx_type_with(&from, axis, at->type.dim[axis]); /* [.., places, elements, ..] */
    sx_ints all = {0};
    for (uint32_t d = 0; d < pair.rank; d++) {
        if (d != axis + 1) {
            all.v[all.count++] = d;
        }
    }
    sx_type indices = pair;
    indices.dtype = SX_I64;
    index = sx_step_repeat(s, index, &all, &indices);
    sx_attr along = {.present = SX_A(axis) | SX_A(type), .axis = axis + 1, .type = indices};
    sx_node_id hit = sx_step_compare(s, SX_EQ, index, sx_step(s, SX_OP_IOTA, &along, NULL, 0));
    sx_node_id part = sx_step_keep(s, hit, true, sx_step_repeat(s, at->g, &all, &pair));
    sx_give(s, at, 0, sx_step_reduce(s, SX_SUM, part, &(sx_ints){1, {axis}}));
}

/* ---- dynamic slices: both clamp their starts in the same way ---- */

void sx_grad_dynamic_slice(sx_sweep *s, const sx_site *at)
{
    sx_type from = sx_step_type(s, at->x[0]);
    sx_attr attr = {.present = SX_A(dims), .dims = at->attr.dims};
    sx_node_id input[SX_INPUTS_MAX] = {sx_step_constant(s, &from, 0), at->g};
    SX_ASSERT(at->count < SX_INPUTS_MAX);
    memcpy(&input[2], &at->x[1], (at->count - 1) * sizeof(input[0]));
    sx_give(s, at, 0, sx_step(s, SX_OP_DYNAMIC_UPDATE_SLICE, &attr, input, at->count + 1));
}

/* One less than an extent, as a scalar of i64. */
static sx_node_id last_of(sx_sweep *s, sx_dim extent)
{
    const sx_type scalar = {.dtype = SX_I64};
    return sx_dim_is_constant(extent) ? sx_step_constant(s, &scalar, (double)(extent.scale - 1))
                                      : last_of_symbol(s, extent);
}

/* ---- crop ---- */

/* What a crop leaves of dimension `d` beside its origin, where that is an extent of the program. */
static bool left_by_crop(const sx_sweep *s, const sx_site *at, uint32_t d, sx_dim *rest)
{
    const sx_dim part[] = {sx_step_type(s, at->x[0]).dim[d], at->attr.origin.v[d], at->type.dim[d]};
    sx_polynomial left = {0}, p;
    bool fits = true;
    for (uint32_t k = 0; k < SX_COUNT(part); k++) {
        fits = fits && sx_polynomial_of(s->graph->symbol, part[k], &p) &&
               sx_polynomial_add(&left, &p, k == 0 ? 1 : -1);
    }
    return fits && sx_extent_find(s->graph->symbol, s->graph->symbol_count, &left, rest);
}

static bool counts_from_the_end(const sx_site *at, uint32_t d)
{
    bool back = false;
    for (uint32_t k = 0; k < at->attr.dims.count; k++) {
        back = back || at->attr.dims.v[k] == (int64_t)d;
    }
    return back;
}

/* `part` between zeros along dimension d, which then has the extent of the whole. */
static sx_node_id between_zeros(sx_sweep *s, sx_node_id part, uint32_t d, const sx_dim beside[2])
{
    sx_node_id piece[3];
    uint32_t count = 0;
    for (uint32_t k = 0; k < 2; k++) {
        sx_type zeros = sx_step_type(s, part);
        zeros.dim[d] = beside[k];
        if (k == 1) {
            piece[count++] = part;
        }
        if (beside[k].scale != 0) {
            piece[count++] = sx_step_constant(s, &zeros, 0);
        }
    }
    sx_attr attr = {.present = SX_A(axis), .axis = d};
    return sx_step(s, SX_OP_CONCATENATE, &attr, piece, count);
}

/* Where dimension d of a crop begins, as a scalar of i64: a number that the run knows. */
static sx_node_id begin_of_crop(sx_sweep *s, const sx_site *at, uint32_t d)
{
    const sx_type scalar = {.dtype = SX_I64};
    sx_node_id origin = last_of(s, at->attr.origin.v[d]);
    origin = sx_step_binary(s, SX_OP_ADD, origin, sx_step_constant(s, &scalar, 1));
    if (!counts_from_the_end(at, d)) {
        return origin;
    }
    sx_node_id room = last_of(s, sx_step_type(s, at->x[0]).dim[d]);
    room = sx_step_binary(s, SX_OP_SUBTRACT, room, last_of(s, at->type.dim[d]));
    return sx_step_binary(s, SX_OP_SUBTRACT, room, origin);
}

/* g between zeros; or, where what is left has no extent, as it may be nothing, g put into zeros. */
void sx_grad_crop(sx_sweep *s, const sx_site *at)
{
    const sx_type from = sx_step_type(s, at->x[0]);
    sx_attr put = {.present = SX_A(dims)};
    sx_node_id input[2 + SX_RANK_MAX], part = at->g;
    for (uint32_t d = 0; d < from.rank; d++) {
        sx_dim origin = at->attr.origin.v[d], rest;
        bool back = counts_from_the_end(at, d);
        if (sx_dim_equal(from.dim[d], at->type.dim[d])) {
            continue;
        }
        if (left_by_crop(s, at, d, &rest)) {
            const sx_dim beside[2] = {back ? rest : origin, back ? origin : rest};
            part = between_zeros(s, part, d, beside);
        } else {
            input[2 + put.dims.count] = begin_of_crop(s, at, d);
            put.dims.v[put.dims.count++] = d;
        }
    }
    if (put.dims.count > 0) {
        input[0] = sx_step_constant(s, &from, 0);
        input[1] = part;
        part = sx_step(s, SX_OP_DYNAMIC_UPDATE_SLICE, &put, input, 2 + put.dims.count);
    }
    sx_give(s, at, 0, part);
}

/* ---- dynamic update slice ---- */

/* `size` elements of `a` along dimension d from `start` on, which is clamped so that all of them lie inside: by gather,
 * as a dynamic slice has no symbolic sizes. */
static sx_node_id slice_symbolic(sx_sweep *s, sx_node_id a, uint32_t d, sx_dim size,
                                 sx_node_id start)
{
    sx_type from = sx_step_type(s, a);
    const sx_type scalar = {.dtype = SX_I64};
    sx_attr iota = {.present = SX_A(axis) | SX_A(type), .type = {SX_I64, 1, {size}}};
    sx_attr along = {.present = SX_A(axis), .axis = d};
    SX_ASSERT(d < from.rank);
    sx_node_id room = last_of(s, from.dim[d]);
    room = sx_step_binary(s, SX_OP_SUBTRACT, room, last_of(s, size));
    sx_node_id first = sx_step_convert(s, start, SX_I64);
    first = sx_step_binary(s, SX_OP_MAXIMUM, first, sx_step_constant(s, &scalar, 0));
    first = sx_step_binary(s, SX_OP_MINIMUM, first, room);
    first = sx_step_repeat(s, first, &(sx_ints){0}, &iota.type);
    sx_node_id index = sx_step(s, SX_OP_IOTA, &iota, NULL, 0);
    sx_node_id input[2] = {a, sx_step_binary(s, SX_OP_ADD, first, index)};
    return sx_step(s, SX_OP_GATHER, &along, input, 2);
}

/* The elements of g where the update was put. */
static sx_node_id slice_of_update(sx_sweep *s, const sx_site *at)
{
    sx_type box = sx_step_type(s, at->x[1]);
    sx_attr attr = {.present = SX_A(dims) | SX_A(sizes)};
    sx_node_id input[SX_INPUTS_MAX];
    sx_node_id part = at->g;
    for (uint32_t k = 0; k < at->attr.dims.count; k++) {
        uint32_t d = (uint32_t)at->attr.dims.v[k];
        if (!sx_dim_is_constant(box.dim[d])) {
            part = slice_symbolic(s, part, d, box.dim[d], at->x[2 + k]);
            continue;
        }
        attr.dims.v[attr.dims.count++] = d;
        attr.sizes.v[attr.sizes.count++] = box.dim[d].scale;
        input[attr.dims.count] = at->x[2 + k];
    }
    input[0] = part;
    return attr.dims.count == 0
               ? part
               : sx_step(s, SX_OP_DYNAMIC_SLICE, &attr, input, attr.dims.count + 1);
}

void sx_grad_dynamic_update(sx_sweep *s, const sx_site *at)
{
    sx_type box = sx_step_type(s, at->x[1]);
    sx_node_id input[SX_INPUTS_MAX];
    memcpy(input, at->x, at->count * sizeof(input[0]));
    input[0] = at->g;
    if (sx_wants(s, at, 0)) {
        input[1] = sx_step_constant(s, &box, 0);
        sx_give(s, at, 0, sx_step(s, SX_OP_DYNAMIC_UPDATE_SLICE, &at->attr, input, at->count));
    }
    if (sx_wants(s, at, 1)) {
        sx_give(s, at, 1, slice_of_update(s, at));
    }
}

/* ---- concatenate, reverse, pad ---- */

/* `count` multiples of a symbol from the `first` on: the dimension as multiples times symbol, of which rows are cut. */
static sx_node_id cut_symbolic(sx_sweep *s, const sx_site *at, uint32_t d, int64_t first,
                               sx_dim part)
{
    sx_dim whole = at->type.dim[d];
    if (at->type.rank >= SX_RANK_MAX) {
        s->code =
            SX_FAIL(s->cx, SX_UNIMPLEMENTED,
                    "gradient of a concatenation of symbolic extents at rank %u", at->type.rank);
        return at->g;
    }
    sx_type rows = at->type;
    rows.dim[d].scale = 1;
    rows = sx_type_with(&rows, d, sx_dim_of(whole.scale));
    sx_attr slice = sx_whole_slice(&rows);
    slice.start.v[d] = first;
    slice.limit.v[d] = first + part.scale;
    sx_node_id cut = sx_step_reshape(s, at->g, &rows);
    cut = sx_step_slice(s, cut, &slice);
    rows = at->type;
    rows.dim[d] = part;
    return sx_step_reshape(s, cut, &rows);
}

/* As many elements as part k has, from where the parts before it end: no number says where that is, but ones of their
 * extents, added up, do. */
static sx_node_id cut_behind(sx_sweep *s, const sx_site *at, uint32_t d, uint32_t k)
{
    sx_type index = {.dtype = SX_I64, .rank = 1, .dim = {sx_step_type(s, at->x[k]).dim[d]}};
    sx_attr iota = {.present = SX_A(axis) | SX_A(type), .type = index};
    sx_node_id place = sx_step(s, SX_OP_IOTA, &iota, NULL, 0);
    for (uint32_t j = 0; j < k; j++) {
        sx_type ones = {.dtype = SX_I64, .rank = 1, .dim = {sx_step_type(s, at->x[j]).dim[d]}};
        sx_node_id count =
            sx_step_reduce(s, SX_SUM, sx_step_constant(s, &ones, 1), &(sx_ints){1, {0}});
        count = sx_step_repeat(s, count, &(sx_ints){0}, &index);
        place = sx_step_binary(s, SX_OP_ADD, place, count);
    }
    sx_attr gather = {.present = SX_A(axis), .axis = d};
    return sx_step(s, SX_OP_GATHER, &gather, (sx_node_id[2]){at->g, place}, 2);
}

/* Are all extents along dimension `d` multiples of the same symbol, or all numbers? */
static bool is_alike(sx_sweep *s, const sx_site *at, uint32_t d)
{
    bool alike = true;
    for (uint32_t k = 0; k < at->count && alike; k++) {
        sx_dim extent = sx_step_type(s, at->x[k]).dim[d];
        alike = extent.symbol == at->type.dim[d].symbol || extent.scale == 0;
    }
    return alike;
}

void sx_grad_concatenate(sx_sweep *s, const sx_site *at)
{
    uint32_t d = (uint32_t)at->attr.axis;
    int64_t first = 0;
    if (!is_alike(s, at, d)) {
        for (uint32_t k = 0; k < at->count; k++) {
            if (sx_wants(s, at, k)) {
                sx_give(s, at, k, cut_behind(s, at, d, k));
            }
        }
        return;
    }
    for (uint32_t k = 0; k < at->count; k++) {
        sx_dim extent = sx_step_type(s, at->x[k]).dim[d];
        bool whole = sx_dim_equal(extent, at->type.dim[d]);
        if (sx_wants(s, at, k) && (whole || sx_dim_is_constant(extent))) {
            sx_attr slice = sx_whole_slice(&at->type);
            slice.start.v[d] = first;
            slice.limit.v[d] = whole ? slice.limit.v[d] : first + extent.scale;
            sx_give(s, at, k, sx_step_slice(s, at->g, &slice));
        } else if (sx_wants(s, at, k)) {
            sx_give(s, at, k, cut_symbolic(s, at, d, first, extent));
        }
        first += extent.scale;
    }
}

void sx_grad_reverse(sx_sweep *s, const sx_site *at)
{
    sx_give(s, at, 0, sx_step(s, SX_OP_REVERSE, &at->attr, &at->g, 1));
}

void sx_grad_pad(sx_sweep *s, const sx_site *at)
{
    sx_type from = sx_step_type(s, at->x[0]);
    sx_attr slice = sx_whole_slice(&at->type);
    for (uint32_t d = 0; d < from.rank; d++) {
        if (!sx_dim_is_constant(from.dim[d])) {
            continue; /* has no padding */
        }
        int64_t step = at->attr.interior.v[d] + 1;
        slice.start.v[d] = at->attr.low.v[d];
        slice.limit.v[d] = at->attr.low.v[d] + (from.dim[d].scale - 1) * step + 1;
        slice.stride.v[d] = from.dim[d].scale > 1 ? step : 1;
    }
    if (sx_wants(s, at, 0)) {
        sx_give(s, at, 0, sx_step_slice(s, at->g, &slice));
    }
    if (sx_wants(s, at, 1)) {
        sx_type known = from;
        known.dtype = SX_BOOL;
        sx_node_id inside = sx_step_pad(s, sx_step_constant(s, &known, 1), &at->attr, 0);
        sx_node_id outside = sx_step_keep(s, inside, false, at->g);
        sx_ints all = sx_other_dims(at->type.rank, &(sx_ints){0});
        sx_give(s, at, 1, sx_step_reduce(s, SX_SUM, outside, &all));
    }
}
