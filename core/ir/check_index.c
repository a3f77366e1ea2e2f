/* check_index.c - types of operations with indices: scatter, dynamic_slice, dynamic_update_slice, sort. */
#include "core/ir/check.h"
#include "core/ir/sort.h"

static sx_code check_integer(const sx_infer *in, uint32_t k)
{
    if (sx_dtype_class_of(in->input[k].dtype) != SX_CLASS_INT) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand %u is %s; takes integers", in->name, k,
                       sx_dtype_name(in->input[k].dtype));
    }
    return SX_OK;
}

/* The smallest and the largest value of an extent. */
static int64_t lowest(const sx_infer *in, sx_dim dim)
{
    int64_t low = dim.scale;
    bool fits = sx_dim_is_constant(dim) || dim.symbol >= in->symbol_count ||
                sx_mul_i64(dim.scale, in->symbols[dim.symbol].low, &low);
    return fits ? low : INT64_MAX;
}

static int64_t highest(const sx_infer *in, sx_dim dim)
{
    int64_t high = dim.scale;
    bool fits = sx_dim_is_constant(dim) || dim.symbol >= in->symbol_count ||
                sx_mul_i64(dim.scale, in->symbols[dim.symbol].high, &high);
    return fits ? high : INT64_MAX;
}

/* ---- scatter ---- */

/* The dimensions of the updates: those of x, with those of the indices in place of the axis. */
static sx_code updates_of(const sx_infer *in, sx_type *updates)
{
    const sx_type *x = &in->input[0];
    const sx_type *index = &in->input[1];
    uint32_t rank = x->rank - 1 + index->rank;
    if (rank > SX_RANK_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: updates of rank %u, at most %d", in->name, rank,
                       SX_RANK_MAX);
    }
    *updates = (sx_type){.dtype = x->dtype};
    for (uint32_t d = 0; d < x->rank; d++) {
        if (d != (uint32_t)in->attr->axis) {
            updates->dim[updates->rank++] = x->dim[d];
            continue;
        }
        for (uint32_t k = 0; k < index->rank; k++) {
            updates->dim[updates->rank++] = index->dim[k];
        }
    }
    SX_ASSERT(updates->rank == rank);
    return SX_OK;
}

sx_code sx_infer_scatter(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    const sx_type *given = &in->input[2];
    sx_type updates = {0};
    SX_ASSERT(in->input_count == 3); /* by the table of operations, as below */
    SX_TRY(sx_check_axis(in, x->rank));
    SX_TRY(check_integer(in, 1));
    SX_TRY(sx_check_reducer(in, x->dtype, true));
    SX_TRY(updates_of(in, &updates));
    if (given->dtype != x->dtype) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 2 is %s, operand 0 is %s", in->name,
                       sx_dtype_name(given->dtype), sx_dtype_name(x->dtype));
    }
    if (given->rank != updates.rank) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: operand 2 has rank %u; with operand 0 of rank %u and operand 1 of rank "
                       "%u it is %u",
                       in->name, given->rank, x->rank, in->input[1].rank, updates.rank);
    }
    for (uint32_t d = 0; d < updates.rank; d++) {
        if (!sx_dim_equal(given->dim[d], updates.dim[d])) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: axis %u of operand 2 has extent %s, operands 0 and 1 have %s there",
                           in->name, d, SX_DIM_TEXT(in, given->dim[d]),
                           SX_DIM_TEXT(in, updates.dim[d]));
        }
    }
    *in->result = *x;
    return SX_OK;
}

/* ---- dynamic slices ---- */

/* One start for each of `dims`, from operand `first` on: an integer each. */
static sx_code check_starts(const sx_infer *in, uint32_t first)
{
    const sx_ints *dims = &in->attr->dims;
    if (dims->count == 0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: dims is empty, at least 1 dimension", in->name);
    }
    SX_TRY(sx_check_dims(in, dims, SX_ATTR_dims, in->input[0].rank, true));
    if (in->input_count != first + dims->count) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %u starts for %u dimensions", in->name,
                       in->input_count - first, dims->count);
    }
    for (uint32_t k = first; k < in->input_count; k++) {
        SX_TRY(check_integer(in, k));
        if (in->input[k].rank != 0) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: operand %u, a start, has rank %u, not 0",
                           in->name, k, in->input[k].rank);
        }
    }
    return SX_OK;
}

sx_code sx_infer_dynamic_slice(const sx_infer *in)
{
    const sx_ints *dims = &in->attr->dims;
    const sx_ints *sizes = &in->attr->sizes;
    SX_ASSERT(in->input_count >= 2);
    SX_TRY(check_starts(in, 1));
    if (sizes->count != dims->count) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: sizes has %u numbers, dims %u", in->name,
                       sizes->count, dims->count);
    }
    *in->result = in->input[0];
    for (uint32_t k = 0; k < dims->count; k++) {
        sx_dim *dim = &in->result->dim[dims->v[k]];
        if (sizes->v[k] < 0 || sizes->v[k] > lowest(in, *dim)) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: axis %lld: size %lld of extent %s, at least %lld",
                           in->name, (long long)dims->v[k], (long long)sizes->v[k],
                           SX_DIM_TEXT(in, *dim), (long long)lowest(in, *dim));
        }
        *dim = sx_dim_of(sizes->v[k]);
    }
    return SX_OK;
}

static bool has(const sx_ints *list, uint32_t d)
{
    bool found = false;
    for (uint32_t k = 0; k < list->count; k++) {
        found = found || list->v[k] == (int64_t)d;
    }
    return found;
}

/* Is the first extent never larger than the second? */
static bool fits_inside(const sx_infer *in, sx_dim inner, sx_dim outer)
{
    bool alike = inner.symbol == outer.symbol || inner.scale == 0;
    return alike ? inner.scale <= outer.scale : highest(in, inner) <= lowest(in, outer);
}

sx_code sx_infer_dynamic_update_slice(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    const sx_type *update = &in->input[1];
    SX_ASSERT(in->input_count >= 3);
    SX_TRY(sx_check_like_first(in, 1));
    SX_TRY(check_starts(in, 2));
    for (uint32_t d = 0; d < x->rank; d++) {
        bool starts = has(&in->attr->dims, d);
        bool fits = starts ? fits_inside(in, update->dim[d], x->dim[d])
                           : sx_dim_equal(update->dim[d], x->dim[d]);
        if (!fits) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: axis %u: operand 1 has extent %s, operand 0 %s%s",
                           in->name, d, SX_DIM_TEXT(in, update->dim[d]), SX_DIM_TEXT(in, x->dim[d]),
                           starts ? "" : " and no start");
        }
    }
    *in->result = *x;
    return SX_OK;
}

/* ---- sort ---- */

/* Compared by ranks, each element meets each other one: a space of rows times the square of the axis. */
static sx_code check_square(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    int64_t elements = highest(in, x->dim[in->attr->axis]);
    for (uint32_t d = 0; d < x->rank; d++) {
        if (!sx_mul_i64(elements, highest(in, x->dim[d]), &elements) ||
            elements > SX_ELEMENTS_MAX) {
            return SX_FAIL(
                in->cx, SX_LIMIT,
                "%s: axis %lld has extent %s; rows times its square are at most %lld for "
                "more than %d elements",
                in->name, (long long)in->attr->axis, SX_DIM_TEXT(in, x->dim[in->attr->axis]),
                (long long)SX_ELEMENTS_MAX, SX_SORT_TURNS_MAX);
        }
    }
    return SX_OK;
}

sx_code sx_infer_sort(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    const sx_attr *attr = in->attr;
    SX_TRY(sx_check_axis(in, x->rank));
    sx_dim extent = x->dim[attr->axis];
    if (attr->direction != SX_LT && attr->direction != SX_GT) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: direction %s, expected lt or gt", in->name,
                       sx_direction_name(attr->direction));
    }
    if (attr->result < 0 || attr->result > 1) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: result %lld, it has 2", in->name,
                       (long long)attr->result);
    }
    if (attr->count < -1 || attr->count > lowest(in, extent)) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: count %lld, axis %lld has extent %s", in->name,
                       (long long)attr->count, (long long)attr->axis, SX_DIM_TEXT(in, extent));
    }
    if (x->rank == SX_RANK_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: rank %u, at most %d", in->name, x->rank,
                       SX_RANK_MAX - 1);
    }
    if (highest(in, extent) > SX_SORT_EXTENT_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: axis %lld has extent %s, at most %lld", in->name,
                       (long long)attr->axis, SX_DIM_TEXT(in, extent),
                       (long long)SX_SORT_EXTENT_MAX);
    }
    if (!sx_sort_takes_turns(attr, x) && !sx_sort_is_network(attr, x)) {
        SX_TRY(check_square(in));
    }
    *in->result = *x;
    in->result->dtype = attr->result == 1 ? SX_I64 : x->dtype;
    in->result->dim[attr->axis] = attr->count == -1 ? extent : sx_dim_of(attr->count);
    return SX_OK;
}
