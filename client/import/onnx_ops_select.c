#include <string.h>

#include "client/import/onnx_import.h"
#include "core/ir/extent.h"

/* Parts of tensors: concatenation, slices, gathers, padding, masks. */

/* ---- concatenate and split ---- */

static sx_code concat_known(sx_ox *im, bool *done)
{
    uint32_t count = 0;
    *done = false;
    for (uint32_t k = 0; k < im->input_count; k++) {
        const sx_ox_value *value = im->input[k];
        if (!sx_ox_is_known(value) || value->type.rank != 1 ||
            value->type.dtype != im->input[0]->type.dtype) {
            return SX_OK;
        }
        count += value->known_count; /* at most INPUTS_MAX * KNOWN_MAX */
    }
    if (count > SX_OX_KNOWN_MAX) {
        return SX_OK;
    }
    sx_dim *element = SX_NEW_ARRAY(im->cx, sx_dim, (size_t)count + 1);
    if (element == NULL) {
        return im->code = im->cx->error.code;
    }
    sx_dim *p = element;
    for (uint32_t k = 0; k < im->input_count; k++) {
        memcpy(p, im->input[k]->known, im->input[k]->known_count * sizeof(sx_dim));
        p += im->input[k]->known_count;
    }
    sx_type type = {.dtype = im->input[0]->type.dtype, .rank = 1, .dim = {sx_dim_of(count)}};
    *done = true;
    return sx_ox_set_known(im, 0, &type, element, count);
}

sx_code sx_ox_concat_op(sx_ox *im)
{
    uint32_t axis;
    bool done;
    for (uint32_t k = 0; k < im->input_count; k++) {
        if (im->input[k] == NULL) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u is left out", k);
        }
    }
    if (sx_ox_attr(im, "axis") == NULL) {
        return SX_OX_FAIL(im, SX_INPUT, "attribute 'axis' is missing");
    }
    SX_TRY(sx_ox_attr_axis(im, "axis", 0, im->input[0]->type.rank, &axis));
    SX_TRY(concat_known(im, &done));
    if (done) {
        return SX_OK;
    }
    sx_node_id part[SX_OX_INPUTS_MAX];
    uint32_t count = 0;
    for (uint32_t k = 0; k < im->input_count; k++) {
        const sx_ox_value *value = im->input[k];
        if (axis < value->type.rank && value->type.dim[axis].scale == 0) {
            continue; /* nothing to add */
        }
        part[count++] = sx_ox_in(im, k);
    }
    if (count == 0) { /* all of them are empty: so is the result */
        part[count++] = sx_ox_in(im, 0);
    }
    return sx_ox_set(im, 0, sx_ox_concat(im, part, count, axis));
}

/* Output k is [at, at + size) of input 0 along `axis`. */
static sx_code set_part(sx_ox *im, uint32_t k, uint32_t axis, int64_t at, int64_t size)
{
    const sx_ox_value *value = sx_ox_input(im, 0);
    if (sx_ox_is_known(value) && value->type.rank == 1) {
        sx_type type = value->type;
        type.dim[0] = sx_dim_of(size);
        return sx_ox_set_known(im, k, &type, value->known + at, (uint32_t)size);
    }
    return sx_ox_set(im, k, sx_ox_slice_axis(im, sx_ox_in(im, 0), axis, at, at + size, 1));
}

static sx_code split_sizes(sx_ox *im, int64_t extent, int64_t *size, uint32_t *count)
{
    *count = UINT32_MAX;
    uint32_t outputs = im->node->output_count;
    if (im->entry->arg == 0) {
        int64_t listed[SX_OX_INPUTS_MAX];
        const sx_onnx_attr *attr = sx_ox_attr(im, "split");
        if (attr != NULL) {
            SX_TRY(sx_ox_attr_ints(im, "split", listed, SX_OX_INPUTS_MAX, count));
            memcpy(size, listed, *count * sizeof(int64_t));
        }
    } else if (sx_ox_input(im, 1) != NULL) {
        SX_TRY(sx_ox_known_ints(im, 1, "split", size, SX_OX_INPUTS_MAX, count));
    }
    if (*count != UINT32_MAX) {
        return SX_OK;
    }
    if (outputs == 0 || outputs > SX_OX_INPUTS_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "%u outputs, 1 to %d allowed", outputs, SX_OX_INPUTS_MAX);
    }
    int64_t chunk = sx_ceil_div_i64(extent, outputs);
    if (im->entry->arg < 2 && extent % outputs != 0) {
        return SX_OX_FAIL(im, SX_INPUT, "extent %lld in %u equal parts", (long long)extent,
                          outputs);
    }
    (void)sx_ox_attr(im, "num_outputs"); /* the node has so many outputs */
    *count = outputs;
    for (uint32_t k = 0; k < outputs; k++) {
        size[k] = sx_max_i64(0, sx_min_i64(chunk, extent - k * chunk));
    }
    return SX_OK;
}

/* arg 0: sizes are an attribute; 1: an input; 2: an input, or num_outputs parts of which the last may be smaller. */
sx_code sx_ox_split(sx_ox *im)
{
    const sx_type *type = &sx_ox_input(im, 0)->type;
    uint32_t axis;
    SX_TRY(sx_ox_attr_axis(im, "axis", 0, type->rank, &axis));
    if (!sx_dim_is_constant(type->dim[axis])) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "symbolic extent at axis %u", axis);
    }
    int64_t extent = type->dim[axis].scale;
    int64_t size[SX_OX_INPUTS_MAX];
    uint32_t count;
    SX_TRY(split_sizes(im, extent, size, &count));
    int64_t total = 0;
    for (uint32_t k = 0; k < count; k++) {
        if (size[k] < 0 || !sx_add_i64(total, size[k], &total)) {
            return SX_OX_FAIL(im, SX_INPUT, "split: element %u is %lld", k, (long long)size[k]);
        }
    }
    if (total != extent || count != im->node->output_count) {
        return SX_OX_FAIL(im, SX_INPUT, "%u parts of together %lld, %u outputs and extent %lld",
                          count, (long long)total, im->node->output_count, (long long)extent);
    }
    int64_t at = 0;
    for (uint32_t k = 0; k < count; k++) {
        SX_TRY(set_part(im, k, axis, at, size[k]));
        at += size[k];
    }
    return SX_OK;
}

/* ---- slices ---- */

typedef struct {
    uint32_t axis;
    sx_dim start, end; /* as written; negative counts from the end */
    int64_t step;
} cut;

/* First index and number of elements of a cut over a constant extent (rules of the specification: clamp to the
 * extent). */
static void resolve_cut(const cut *c, int64_t extent, int64_t *first, int64_t *count)
{
    int64_t start =
        c->start.scale < 0 ? sx_max_i64(c->start.scale, -extent - 1) + extent : c->start.scale;
    int64_t end = c->end.scale < 0 ? sx_max_i64(c->end.scale, -extent - 1) + extent : c->end.scale;
    if (c->step > 0) {
        start = sx_max_i64(0, sx_min_i64(start, extent));
        end = sx_max_i64(0, sx_min_i64(end, extent));
        *count = end <= start ? 0 : (end - start - 1) / c->step + 1;
    } else {
        start = sx_max_i64(-1, sx_min_i64(start, extent - 1));
        end = sx_max_i64(-1, sx_min_i64(end, extent - 1));
        *count = end >= start ? 0 : (start - end - 1) / -c->step + 1;
    }
    *first = start;
}

static sx_node_id index_constant(sx_ox *im, const int64_t *index, int64_t count)
{
    sx_attr attr = {.present = SX_A(data) | SX_A(type),
                    .data = {(const uint8_t *)index, (size_t)count * sizeof(int64_t)},
                    .type = {.dtype = SX_I64, .rank = 1, .dim = {sx_dim_of(count)}}};
    return sx_ox_add(im, SX_OP_CONSTANT, &attr, NULL, 0);
}

/* Elements first, first + step, ... of one axis through a gather: what a slice cannot say. */
static sx_node_id gather_steps(sx_ox *im, sx_node_id x, uint32_t axis, int64_t first, int64_t step,
                               int64_t count)
{
    if (count > SX_OX_KNOWN_MAX) {
        SX_OX_FAIL(im, SX_UNIMPLEMENTED, "axis %u: %lld elements taken backwards, at most %d", axis,
                   (long long)count, SX_OX_KNOWN_MAX);
        return SX_OX_NONE;
    }
    int64_t index[SX_OX_KNOWN_MAX];
    for (int64_t k = 0; k < count; k++) {
        index[k] = first + k * step;
    }
    return sx_ox_gather(im, x, index_constant(im, index, count), axis);
}

static sx_node_id cut_constant(sx_ox *im, sx_node_id x, const cut *c, int64_t extent)
{
    int64_t first;
    int64_t count;
    resolve_cut(c, extent, &first, &count);
    if (count == 0) {
        return sx_ox_slice_axis(im, x, c->axis, 0, 0, 1);
    }
    if (c->step > 0 || count == 1) {
        int64_t step = count == 1 ? 1 : c->step;
        return sx_ox_slice_axis(im, x, c->axis, first, first + (count - 1) * step + 1, step);
    }
    return gather_steps(im, x, c->axis, first, c->step, count);
}

/* Is the polynomial at least `least` for all values of the symbols? */
static bool is_at_least(const sx_ox *im, const sx_polynomial *p, int64_t least)
{
    int64_t low, high;
    return sx_polynomial_bounds(im->graph->symbol, p, &low, &high) && low >= least;
}

/* An end of a cut: below 0 from the end of the axis, and never before its first element or behind its last. false:
 * whether it is inside depends on the symbols. */
static bool place_end(const sx_ox *im, sx_dim end, const sx_polynomial *extent,
                      sx_polynomial *place)
{
    sx_polynomial rest = *extent, beyond, before = {0};
    bool ok = sx_polynomial_of(im->graph->symbol, end, place) &&
              (end.scale >= 0 || sx_polynomial_add(place, extent, 1));
    beyond = *place;
    ok = ok && sx_polynomial_add(&rest, place, -1) && sx_polynomial_add(&beyond, extent, -1);
    if (ok && is_at_least(im, &beyond, 0)) {
        *place = *extent;
        return true;
    }
    if (ok && sx_polynomial_add(&before, place, -1) && is_at_least(im, &before, 0)) {
        *place = (sx_polynomial){0};
        return true;
    }
    return ok && is_at_least(im, &rest, 0) && is_at_least(im, place, 0);
}

/* The same as an extent; false: it may be 0 and more. */
static bool place_origin(sx_ox *im, const sx_polynomial *place, sx_dim *origin)
{
    bool number = place->count == 0 || (place->count == 1 && is_at_least(im, place, 0) &&
                                        place->term[0].factor[0] == SX_NO_SYMBOL);
    return (number || is_at_least(im, place, 1)) && sx_ox_extent(im, place, origin);
}

/* Where an end or the extent has symbols: a part that is inside for all their values. */
static sx_node_id cut_symbolic(sx_ox *im, sx_node_id x, const cut *c, sx_dim extent)
{
    const sx_type *type = sx_ox_type(im, x);
    sx_attr attr = {.present = SX_A(dims) | SX_A(origin) | SX_A(type),
                    .origin = {.count = type->rank},
                    .type = *type};
    sx_dim *part = &attr.type.dim[c->axis], *origin = &attr.origin.v[c->axis];
    sx_polynomial whole = {0}, start = {0}, length = {0}, behind;
    char text[SX_OX_DIM_TEXT];
    for (uint32_t d = 0; d < type->rank; d++) {
        attr.origin.v[d] = sx_dim_of(0);
    }
    bool fits = c->step == 1 && sx_polynomial_of(im->graph->symbol, extent, &whole) &&
                place_end(im, c->start, &whole, &start) && place_end(im, c->end, &whole, &length);
    behind = whole;
    fits = fits && sx_polynomial_add(&behind, &length, -1) &&
           sx_polynomial_add(&length, &start, -1) && place_origin(im, &length, part);
    if (fits && sx_dim_equal(*part, extent)) {
        return x;
    }
    bool number = sx_dim_is_constant(*part);
    if (fits && number && place_origin(im, &start, origin) && sx_dim_is_constant(*origin)) {
        return sx_ox_slice_axis(im, x, c->axis, origin->scale, origin->scale + part->scale, 1);
    }
    if (fits && !place_origin(im, &start, origin)) { /* it may be 0: then from the end */
        attr.dims = (sx_ints){.count = 1, .v = {c->axis}};
        fits = place_origin(im, &behind, origin);
    }
    if (fits && im->code == SX_OK) {
        return sx_ox_add(im, SX_OP_CROP, &attr, &x, 1);
    }
    SX_OX_FAIL(im, SX_UNIMPLEMENTED,
               "axis %u: a part of the extent %s that is not inside for all values of its symbols, "
               "or in steps",
               c->axis, sx_ox_dim_text(im, extent, text));
    return SX_OX_NONE;
}

static sx_code slice_known(sx_ox *im, const cut *c, uint32_t cuts, bool *done)
{
    const sx_ox_value *value = sx_ox_input(im, 0);
    *done = sx_ox_is_known(value) && value->type.rank == 1 && cuts == 1 &&
            sx_dim_is_constant(c->start) && sx_dim_is_constant(c->end);
    if (!*done) {
        return SX_OK;
    }
    int64_t first;
    int64_t count;
    sx_dim element[SX_OX_KNOWN_MAX];
    resolve_cut(c, value->known_count, &first, &count);
    for (int64_t k = 0; k < count; k++) {
        element[k] = value->known[first + k * c->step];
    }
    sx_type type = value->type;
    type.dim[0] = sx_dim_of(count);
    return sx_ox_set_known(im, 0, &type, element, (uint32_t)count);
}

static sx_code apply_cuts(sx_ox *im, const cut *cuts, uint32_t count)
{
    bool done;
    SX_TRY(slice_known(im, cuts, count, &done));
    if (done) {
        return SX_OK;
    }
    sx_node_id x = sx_ox_in(im, 0);
    for (uint32_t k = 0; k < count && im->code == SX_OK; k++) {
        sx_dim extent = sx_ox_type(im, x)->dim[cuts[k].axis];
        bool numbers = sx_dim_is_constant(extent) && sx_dim_is_constant(cuts[k].start) &&
                       sx_dim_is_constant(cuts[k].end);
        x = numbers ? cut_constant(im, x, &cuts[k], extent.scale)
                    : cut_symbolic(im, x, &cuts[k], extent);
    }
    return sx_ox_set(im, 0, x);
}

/* Steps whose magnitude exceeds every extent act as that. */
static int64_t clamp_step(int64_t step)
{
    return sx_max_i64(-SX_EXTENT_MAX, sx_min_i64(step, SX_EXTENT_MAX));
}

static sx_code fill_cuts(sx_ox *im, const int64_t *axis, uint32_t count, uint32_t rank, cut *cuts)
{
    bool used[SX_RANK_MAX] = {false};
    for (uint32_t k = 0; k < count; k++) {
        SX_TRY(sx_ox_axis(im, axis[k], rank, &cuts[k].axis));
        if (used[cuts[k].axis]) {
            return SX_OX_FAIL(im, SX_INPUT, "axis %u is listed twice", cuts[k].axis);
        }
        if (cuts[k].step == 0) {
            return SX_OX_FAIL(im, SX_INPUT, "axis %u: step 0", cuts[k].axis);
        }
        used[cuts[k].axis] = true;
    }
    return SX_OK;
}

sx_code sx_ox_slice_inputs(sx_ox *im)
{
    uint32_t rank = sx_ox_input(im, 0)->type.rank;
    const sx_dim *start;
    const sx_dim *end;
    uint32_t count;
    uint32_t others;
    int64_t axis[SX_RANK_MAX];
    int64_t step[SX_RANK_MAX];
    cut cuts[SX_RANK_MAX];
    SX_TRY(sx_ox_known(im, 1, "starts", &start, &count));
    SX_TRY(sx_ox_known(im, 2, "ends", &end, &others));
    bool even = count == others && count <= rank;
    for (uint32_t k = 0; k < SX_RANK_MAX; k++) {
        axis[k] = k;
        step[k] = 1;
    }
    if (sx_ox_input(im, 3) != NULL) {
        SX_TRY(sx_ox_known_ints(im, 3, "axes", axis, SX_RANK_MAX, &others));
        even = even && others == count;
    }
    if (sx_ox_input(im, 4) != NULL) {
        SX_TRY(sx_ox_known_ints(im, 4, "steps", step, SX_RANK_MAX, &others));
        even = even && others == count;
    }
    if (!even) {
        return SX_OX_FAIL(im, SX_INPUT, "starts, ends, axes and steps of unequal lengths");
    }
    for (uint32_t k = 0; k < count; k++) {
        cuts[k] = (cut){.start = start[k], .end = end[k], .step = clamp_step(step[k])};
    }
    SX_TRY(fill_cuts(im, axis, count, rank, cuts));
    return apply_cuts(im, cuts, count);
}

sx_code sx_ox_slice_attrs(sx_ox *im)
{
    uint32_t rank = sx_ox_input(im, 0)->type.rank;
    int64_t start[SX_RANK_MAX];
    int64_t end[SX_RANK_MAX];
    int64_t axis[SX_RANK_MAX];
    uint32_t count;
    uint32_t ends;
    uint32_t axes;
    cut cuts[SX_RANK_MAX];
    SX_TRY(sx_ox_attr_ints(im, "starts", start, SX_RANK_MAX, &count));
    SX_TRY(sx_ox_attr_ints(im, "ends", end, SX_RANK_MAX, &ends));
    SX_TRY(sx_ox_attr_ints(im, "axes", axis, SX_RANK_MAX, &axes));
    if (count > rank || ends != count || (axes != UINT32_MAX && axes != count)) {
        return SX_OX_FAIL(im, SX_INPUT, "starts, ends and axes of unequal lengths");
    }
    for (uint32_t k = 0; k < count; k++) {
        cuts[k] = (cut){.start = sx_dim_of(start[k]), .end = sx_dim_of(end[k]), .step = 1};
        axis[k] = axes == UINT32_MAX ? k : axis[k];
    }
    SX_TRY(fill_cuts(im, axis, count, rank, cuts));
    return apply_cuts(im, cuts, count);
}

/* ---- gathers ---- */

static sx_code gather_known(sx_ox *im, bool *done)
{
    const sx_ox_value *value = sx_ox_input(im, 0);
    const sx_ox_value *index = sx_ox_input(im, 1);
    *done = false;
    if (!sx_ox_is_known(value) || value->type.rank != 1 || !sx_ox_is_known(index)) {
        return SX_OK;
    }
    sx_dim element[SX_OX_KNOWN_MAX];
    int64_t extent = value->known_count;
    for (uint32_t k = 0; k < index->known_count; k++) {
        if (!sx_dim_is_constant(index->known[k])) {
            return SX_OK;
        }
        int64_t i = index->known[k].scale;
        if (i < -extent || i >= extent) {
            return SX_OX_FAIL(im, SX_INPUT, "index %lld into %lld elements", (long long)i,
                              (long long)extent);
        }
        element[k] = value->known[i < 0 ? i + extent : i];
    }
    sx_type type = sx_ox_type_with(&index->type, value->type.dtype);
    *done = true;
    return sx_ox_set_known(im, 0, &type, element, index->known_count);
}

/* One constant index: a slice without the axis. */
static sx_code gather_one(sx_ox *im, uint32_t axis, int64_t index)
{
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, x);
    int64_t extent = type.dim[axis].scale;
    if (index < -extent || index >= extent) {
        return SX_OX_FAIL(im, SX_INPUT, "index %lld, axis %u has extent %lld", (long long)index,
                          axis, (long long)extent);
    }
    index = index < 0 ? index + extent : index;
    x = sx_ox_slice_axis(im, x, axis, index, index + 1, 1);
    type.rank--;
    memmove(type.dim + axis, type.dim + axis + 1, (type.rank - axis) * sizeof(sx_dim));
    return sx_ox_set(im, 0, sx_ox_reshape(im, x, &type));
}

sx_code sx_ox_gather_op(sx_ox *im)
{
    const sx_ox_value *value = sx_ox_input(im, 0);
    const sx_ox_value *index = sx_ox_input(im, 1);
    uint32_t axis;
    bool done;
    SX_TRY(sx_ox_attr_axis(im, "axis", 0, value->type.rank, &axis));
    SX_TRY(gather_known(im, &done));
    if (done) {
        return SX_OK;
    }
    if (sx_ox_is_known(index) && index->type.rank == 0 && sx_dim_is_constant(index->known[0]) &&
        sx_dim_is_constant(value->type.dim[axis])) {
        return gather_one(im, axis, index->known[0].scale);
    }
    sx_node_id x = sx_ox_in(im, 0);
    return sx_ox_set(im, 0, sx_ox_gather(im, x, sx_ox_in(im, 1), axis));
}

/* The shape of `type` with a dimension put in at `axis`. */
static sx_code insert_dim(sx_ox *im, const sx_type *type, uint32_t axis, sx_dim extent,
                          sx_type *wide, sx_ints *dims)
{
    if (type->rank == SX_RANK_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "rank %u, at most %d", type->rank, SX_RANK_MAX - 1);
    }
    *wide = *type;
    wide->rank++;
    dims->count = type->rank;
    for (uint32_t k = 0; k < type->rank; k++) {
        uint32_t to = k < axis ? k : k + 1;
        dims->v[k] = to;
        wide->dim[to] = type->dim[k];
    }
    wide->dim[axis] = extent;
    return SX_OK;
}

/* Gather element by element: a sum over the axis with one term that counts. */
sx_code sx_ox_gather_elements(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id index = sx_ox_cast(im, sx_ox_in(im, 1), SX_I64);
    SX_TRY(im->code);
    uint32_t axis;
    SX_TRY(sx_ox_attr_axis(im, "axis", 0, sx_ox_type(im, x)->rank, &axis));
    sx_type out = *sx_ox_type(im, index);
    sx_type from = *sx_ox_type(im, x);
    bool plain = out.rank == from.rank && sx_dim_is_constant(from.dim[axis]);
    for (uint32_t k = 0; plain && k < from.rank; k++) {
        plain = k == axis || sx_dim_equal(out.dim[k], from.dim[k]);
    }
    if (!plain || from.dtype == SX_BOOL) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "index shape unlike the input's beside the axis");
    }
    sx_type wide;
    sx_ints at;
    sx_ints from_dims;
    SX_TRY(insert_dim(im, &out, axis, from.dim[axis], &wide, &at)); /* [.., n, k, ..] */
    from_dims = at;
    from_dims.v[axis] = axis;
    sx_node_id below = sx_ox_cmp_with(im, SX_LT, index, 0.0);
    sx_node_id shifted = sx_ox_with(im, SX_OP_ADD, index, (double)from.dim[axis].scale);
    index = sx_ox_broadcast_in(im, sx_ox_select(im, below, shifted, index), &at, &wide);
    sx_node_id hit = sx_ox_cmp(im, SX_EQ, index, sx_ox_iota(im, &wide, SX_I64, axis));
    sx_node_id every = sx_ox_broadcast_in(im, x, &from_dims, &wide);
    sx_node_id none = sx_ox_splat(im, sx_ox_type(im, every), 0.0);
    sx_ints over = {.count = 1, .v = {axis}};
    every = sx_ox_select(im, hit, every, none);
    return sx_ox_set(im, 0, sx_ox_reduce(im, SX_SUM, every, &over, false));
}

/* ---- masks ---- */

sx_code sx_ox_one_hot(sx_ox *im)
{
    sx_node_id index = sx_ox_cast(im, sx_ox_in(im, 0), SX_I64);
    SX_TRY(im->code);
    uint32_t axis;
    uint32_t count;
    int64_t depth;
    sx_type from = *sx_ox_type(im, index);
    SX_TRY(sx_ox_attr_axis(im, "axis", -1, from.rank + 1, &axis));
    SX_TRY(sx_ox_known_ints(im, 1, "depth", &depth, 1, &count));
    if (count != 1 || depth < 1 || depth > SX_EXTENT_MAX) {
        return SX_OX_FAIL(im, SX_INPUT, "depth is not a number of at least 1");
    }
    sx_type wide;
    sx_ints dims;
    SX_TRY(insert_dim(im, &from, axis, sx_dim_of(depth), &wide, &dims));
    sx_node_id below = sx_ox_cmp_with(im, SX_LT, index, 0.0);
    sx_node_id shifted = sx_ox_with(im, SX_OP_ADD, index, (double)depth);
    index = sx_ox_broadcast_in(im, sx_ox_select(im, below, shifted, index), &dims, &wide);
    sx_node_id hit = sx_ox_cmp(im, SX_EQ, index, sx_ox_iota(im, &wide, SX_I64, axis));
    sx_node_id values = sx_ox_in(im, 2);
    if (sx_ox_type(im, values)->rank != 1) {
        return SX_OX_FAIL(im, SX_INPUT, "values has rank %u, 1 wanted",
                          sx_ox_type(im, values)->rank);
    }
    sx_type scalar = {.dtype = sx_ox_type(im, values)->dtype};
    sx_node_id off = sx_ox_reshape(im, sx_ox_slice_axis(im, values, 0, 0, 1, 1), &scalar);
    sx_node_id on = sx_ox_reshape(im, sx_ox_slice_axis(im, values, 0, 1, 2, 1), &scalar);
    return sx_ox_set(im, 0, sx_ox_select(im, hit, on, off));
}

/* Input k, one known integer, or `fallback` if left out. */
static sx_code known_number(sx_ox *im, uint32_t k, const char *what, int64_t fallback,
                            int64_t *number)
{
    uint32_t count = 1;
    *number = fallback;
    if (sx_ox_input(im, k) != NULL) {
        SX_TRY(sx_ox_known_ints(im, k, what, number, 1, &count));
    }
    return count == 1 ? SX_OK : SX_OX_FAIL(im, SX_INPUT, "%s has no element", what);
}

sx_code sx_ox_trilu(sx_ox *im)
{
    int64_t upper;
    int64_t diagonal;
    SX_TRY(sx_ox_attr_int(im, "upper", 1, &upper));
    SX_TRY(known_number(im, 1, "k", 0, &diagonal));
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, x);
    if (type.rank < 2) {
        return SX_OX_FAIL(im, SX_INPUT, "input of rank %u, at least 2", type.rank);
    }
    diagonal = sx_max_i64(-SX_EXTENT_MAX, sx_min_i64(diagonal, SX_EXTENT_MAX));
    sx_node_id row = sx_ox_iota(im, &type, SX_I64, type.rank - 2);
    sx_node_id column = sx_ox_iota(im, &type, SX_I64, type.rank - 1);
    row = sx_ox_with(im, SX_OP_ADD, row, (double)diagonal);
    sx_node_id keep = sx_ox_cmp(im, upper != 0 ? SX_GE : SX_LE, column, row);
    return sx_ox_set(im, 0, sx_ox_select(im, keep, x, sx_ox_splat(im, &type, 0.0)));
}

sx_code sx_ox_eye_like(sx_ox *im)
{
    int64_t diagonal;
    int64_t to;
    sx_type type = sx_ox_input(im, 0)->type;
    SX_TRY(sx_ox_attr_int(im, "k", 0, &diagonal));
    SX_TRY(sx_ox_attr_int(im, "dtype", -1, &to));
    if (to != -1) {
        SX_TRY(sx_ox_dtype(im, to, &type.dtype));
    }
    if (type.rank != 2) {
        return SX_OX_FAIL(im, SX_INPUT, "input of rank %u, 2 wanted", type.rank);
    }
    diagonal = sx_max_i64(-SX_EXTENT_MAX, sx_min_i64(diagonal, SX_EXTENT_MAX));
    sx_node_id row = sx_ox_iota(im, &type, SX_I64, 0);
    sx_node_id column = sx_ox_iota(im, &type, SX_I64, 1);
    row = sx_ox_with(im, SX_OP_ADD, row, (double)diagonal);
    return sx_ox_set(im, 0, sx_ox_cast(im, sx_ox_cmp(im, SX_EQ, row, column), type.dtype));
}

/* A sum over j with the terms j <= i (or >=, or strict): n^2 additions per row, of zeros for the rest. */
sx_code sx_ox_cumsum(sx_ox *im)
{
    int64_t number;
    int64_t exclusive;
    int64_t reverse;
    uint32_t axis;
    SX_TRY(known_number(im, 1, "axis", 0, &number));
    SX_TRY(sx_ox_attr_int(im, "exclusive", 0, &exclusive));
    SX_TRY(sx_ox_attr_int(im, "reverse", 0, &reverse));
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(im->code);
    sx_type type = *sx_ox_type(im, x);
    SX_TRY(sx_ox_axis(im, number, type.rank, &axis));
    sx_type wide;
    sx_ints dims;
    SX_TRY(insert_dim(im, &type, axis, type.dim[axis], &wide, &dims)); /* [.., i, j, ..] */
    sx_node_id every = sx_ox_broadcast_in(im, x, &dims, &wide);
    sx_node_id i = sx_ox_iota(im, &wide, SX_I64, axis);
    sx_node_id j = sx_ox_iota(im, &wide, SX_I64, axis + 1);
    sx_direction direction =
        reverse != 0 ? (exclusive != 0 ? SX_GT : SX_GE) : (exclusive != 0 ? SX_LT : SX_LE);
    sx_node_id none = sx_ox_splat(im, sx_ox_type(im, every), 0.0);
    every = sx_ox_select(im, sx_ox_cmp(im, direction, j, i), every, none);
    sx_ints over = {.count = 1, .v = {axis + 1}};
    return sx_ox_set(im, 0, sx_ox_reduce(im, SX_SUM, every, &over, false));
}

/* ---- padding ---- */

typedef enum { PAD_CONSTANT, PAD_EDGE, PAD_REFLECT, PAD_WRAP } pad_mode;

/* Where position i of [-before, extent + after) comes from. */
static int64_t pad_source(pad_mode mode, int64_t i, int64_t extent)
{
    if (mode == PAD_EDGE) {
        return sx_max_i64(0, sx_min_i64(i, extent - 1));
    }
    if (mode == PAD_WRAP) {
        return ((i % extent) + extent) % extent;
    }
    int64_t period = 2 * (extent - 1);
    int64_t at = period == 0 ? 0 : ((i % period) + period) % period;
    return at < extent ? at : period - at;
}

static sx_node_id pad_constant(sx_ox *im, sx_node_id x, uint32_t axis, int64_t before,
                               int64_t after, sx_node_id fill)
{
    uint32_t rank = sx_ox_type(im, x)->rank;
    sx_attr attr = {.present = sx_op_info_of(SX_OP_PAD)->attrs};
    attr.low.count = attr.high.count = attr.interior.count = rank;
    attr.low.v[axis] = before;
    attr.high.v[axis] = after;
    sx_node_id input[2] = {x, fill};
    return sx_ox_add(im, SX_OP_PAD, &attr, input, 2);
}

/* Of an extent that has a symbol: borders before and behind it. */
static sx_node_id pad_symbol(sx_ox *im, sx_node_id x, uint32_t axis, int64_t before, int64_t after,
                             sx_node_id fill)
{
    const int64_t border[2] = {before, after};
    const sx_ints none = {.count = 0};
    sx_type type = *sx_ox_type(im, x);
    sx_node_id part[3];
    uint32_t count = 0;
    for (uint32_t k = 0; k < 2; k++) {
        if (border[k] > 0) {
            type.dim[axis] = sx_dim_of(border[k]);
            part[count++] = sx_ox_broadcast_in(im, fill, &none, &type);
        }
        if (k == 0) {
            part[count++] = x;
        }
    }
    return sx_ox_concat(im, part, count, axis);
}

static sx_node_id pad_axis(sx_ox *im, sx_node_id x, uint32_t axis, int64_t before, int64_t after,
                           pad_mode mode, sx_node_id fill)
{
    sx_type type = *sx_ox_type(im, x);
    if (im->code != SX_OK || (before == 0 && after == 0)) {
        return x;
    }
    int64_t extent = type.dim[axis].scale;
    int64_t total;
    if (mode == PAD_CONSTANT) {
        bool symbol = !sx_dim_is_constant(type.dim[axis]) && before >= 0 && after >= 0;
        return symbol ? pad_symbol(im, x, axis, before, after, fill)
                      : pad_constant(im, x, axis, before, after, fill);
    }
    if (!sx_dim_is_constant(type.dim[axis]) || !sx_add_i64(before, after, &total) ||
        !sx_add_i64(total, extent, &total) || total > SX_OX_KNOWN_MAX) {
        SX_OX_FAIL(im, SX_UNIMPLEMENTED, "axis %u: not a constant extent of at most %d", axis,
                   SX_OX_KNOWN_MAX);
        return SX_OX_NONE;
    }
    int64_t index[SX_OX_KNOWN_MAX];
    for (int64_t k = 0; k < total; k++) {
        index[k] = pad_source(mode, k - before, extent);
    }
    return sx_ox_gather(im, x, index_constant(im, index, total), axis);
}

/* Negative padding takes away. */
static sx_node_id crop_axis(sx_ox *im, sx_node_id x, uint32_t axis, int64_t *before, int64_t *after)
{
    sx_dim extent = sx_ox_type(im, x)->dim[axis];
    int64_t start = *before < 0 ? -*before : 0;
    int64_t end = *after < 0 ? extent.scale + *after : extent.scale;
    if (im->code != SX_OK || (*before >= 0 && *after >= 0)) {
        return x;
    }
    if (!sx_dim_is_constant(extent) || start >= end) {
        SX_OX_FAIL(im, SX_UNIMPLEMENTED, "axis %u: padding takes away all of it", axis);
        return SX_OX_NONE;
    }
    *before = sx_max_i64(0, *before);
    *after = sx_max_i64(0, *after);
    return sx_ox_slice_axis(im, x, axis, start, end, 1);
}

static sx_code pad_all(sx_ox *im, const int64_t *pad, uint32_t count, const int64_t *axis,
                       uint32_t axes, sx_node_id fill)
{
    static const char *const name[] = {"constant", "edge", "reflect", "wrap"};
    sx_span text;
    SX_TRY(sx_ox_attr_text(im, "mode", "constant", &text));
    uint32_t mode = 0;
    while (mode < SX_COUNT(name) && !sx_span_is(text, name[mode])) {
        mode++;
    }
    if (mode == SX_COUNT(name)) {
        return SX_OX_FAIL(im, SX_INPUT, "mode '%.*s'", (int)sx_min_i64((int64_t)text.len, 40),
                          (const char *)text.ptr);
    }
    if (count != 2 * axes) {
        return SX_OX_FAIL(im, SX_INPUT, "%u paddings for %u axes, two each wanted", count, axes);
    }
    sx_node_id x = sx_ox_in(im, 0);
    for (uint32_t k = 0; k < axes; k++) {
        uint32_t at;
        SX_TRY(sx_ox_axis(im, axis[k], sx_ox_type(im, x)->rank, &at));
        int64_t before = pad[k];
        int64_t after = pad[axes + k];
        if (before > SX_EXTENT_MAX || after > SX_EXTENT_MAX || before < -SX_EXTENT_MAX ||
            after < -SX_EXTENT_MAX) {
            return SX_OX_FAIL(im, SX_LIMIT, "axis %u: padding of %lld and %lld", at,
                              (long long)before, (long long)after);
        }
        if (mode !=
            PAD_CONSTANT) { /* the borders that the other modes repeat are those of what is left */
            x = crop_axis(im, x, at, &before, &after);
        }
        x = pad_axis(im, x, at, before, after, (pad_mode)mode, fill);
    }
    return sx_ox_set(im, 0, x);
}

sx_code sx_ox_pad_inputs(sx_ox *im)
{
    int64_t pad[2 * SX_RANK_MAX];
    int64_t axis[SX_RANK_MAX];
    uint32_t count;
    const sx_type *type = &sx_ox_input(im, 0)->type;
    uint32_t axes = type->rank;
    for (uint32_t k = 0; k < SX_RANK_MAX; k++) {
        axis[k] = k;
    }
    SX_TRY(sx_ox_known_ints(im, 1, "pads", pad, 2 * SX_RANK_MAX, &count));
    if (sx_ox_input(im, 3) != NULL) {
        SX_TRY(sx_ox_known_ints(im, 3, "axes", axis, SX_RANK_MAX, &axes));
    }
    sx_type scalar = {.dtype = type->dtype};
    sx_node_id fill = sx_ox_input(im, 2) == NULL ? sx_ox_splat(im, &scalar, 0.0)
                                                 : sx_ox_reshape(im, sx_ox_in(im, 2), &scalar);
    return pad_all(im, pad, count, axis, axes, fill);
}

sx_code sx_ox_pad_attrs(sx_ox *im)
{
    int64_t pad[2 * SX_RANK_MAX];
    int64_t axis[SX_RANK_MAX];
    uint32_t count;
    double value;
    const sx_type *type = &sx_ox_input(im, 0)->type;
    for (uint32_t k = 0; k < SX_RANK_MAX; k++) {
        axis[k] = k;
    }
    SX_TRY(sx_ox_attr_ints(im, "pads", pad, 2 * SX_RANK_MAX, &count));
    SX_TRY(sx_ox_attr_float(im, "value", 0.0, &value));
    sx_type scalar = {.dtype = type->dtype};
    return pad_all(im, pad, count, axis, type->rank, sx_ox_splat(im, &scalar, value));
}
