/* ScatterND, ScatterElements, GatherND. The IR gathers and scatters along one axis, so several
 * dimensions become one, and an index its row-major number in it. */
#include "client/import/onnx_import.h"

static sx_ints row_major(const sx_type *type, uint32_t count)
{
    sx_ints stride = {.count = count};
    int64_t step = 1;
    for (uint32_t d = count; d-- > 0;) {
        stride.v[d] = step;
        step *= type->dim[d].scale;
    }
    return stride;
}

/* The first `count` dimensions are numbers. */
static sx_code check_constant(sx_ox *im, const sx_type *type, uint32_t count)
{
    for (uint32_t d = 0; d < count; d++) {
        if (!sx_dim_is_constant(type->dim[d])) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "symbolic extent at axis %u", d);
        }
    }
    return SX_OK;
}

/* The first `count` dimensions as one. */
static sx_type joined(const sx_type *type, uint32_t count)
{
    sx_type flat = {.dtype = type->dtype, .rank = 1, .dim = {sx_dim_of(1)}};
    for (uint32_t d = 0; d < count; d++) {
        flat.dim[0].scale *= type->dim[d].scale;
    }
    for (uint32_t d = count; d < type->rank; d++) {
        flat.dim[flat.rank++] = type->dim[d];
    }
    return flat;
}

/* Indices along one dimension as their part of a row-major number; `far` where they are out of range, so that no sum
 * with other parts is in range again. */
static sx_node_id part_of(sx_ox *im, sx_node_id index, int64_t extent, int64_t stride, int64_t far)
{
    sx_node_id below = sx_ox_cmp_with(im, SX_LT, index, 0.0);
    sx_node_id wrapped = sx_ox_with(im, SX_OP_ADD, index, (double)extent);
    wrapped = sx_ox_select(im, below, wrapped, index);
    sx_node_id part = sx_ox_with(im, SX_OP_MULTIPLY, wrapped, (double)stride);
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    sx_node_id outside = sx_ox_splat(im, sx_ox_type(im, part), (double)far);
    sx_node_id low = sx_ox_cmp_with(im, SX_GE, wrapped, 0.0);
    sx_node_id high = sx_ox_cmp_with(im, SX_LT, wrapped, (double)extent);
    return sx_ox_select(im, sx_ox_bin(im, SX_OP_AND, low, high), part, outside);
}

/* Tuples of `depth` numbers, the last dimension of `index`, as numbers of rows of `x`. */
static sx_node_id numbers_of(sx_ox *im, sx_node_id index, const sx_type *x, uint32_t depth)
{
    const sx_type tuples = *sx_ox_type(im, index);
    sx_type shape = tuples;
    sx_ints stride = row_major(x, depth);
    sx_node_id sum = SX_OX_NONE;
    shape.rank--;
    for (uint32_t k = 0; k < depth; k++) {
        sx_node_id one = sx_ox_slice_axis(im, index, tuples.rank - 1, k, k + 1, 1);
        one = sx_ox_reshape(im, one, &shape);
        if (depth > 1) {
            int64_t far = stride.v[0] * x->dim[0].scale;
            one = part_of(im, one, x->dim[k].scale, stride.v[k], far);
        }
        sum = k == 0 ? one : sx_ox_bin(im, SX_OP_ADD, sum, one);
    }
    return sum;
}

/* The node's operand `k` of tuples, and how long they are: at most the rank of x. */
static sx_code read_tuples(sx_ox *im, sx_node_id index, const sx_type *x, uint32_t *depth)
{
    SX_TRY(im->code);
    const sx_type *type = sx_ox_type(im, index);
    if (type->rank == 0 || !sx_dim_is_constant(type->dim[type->rank - 1])) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "tuples of indices of no known length");
    }
    int64_t count = type->dim[type->rank - 1].scale;
    if (count < 1 || count > (int64_t)x->rank) {
        return SX_OX_FAIL(im, SX_INPUT, "tuples of %lld indices, data has rank %u",
                          (long long)count, x->rank);
    }
    *depth = (uint32_t)count;
    return *depth > 1 ? check_constant(im, x, *depth) : SX_OK;
}

static sx_code read_reduction(sx_ox *im, sx_reducer *reducer)
{
    static const struct {
        const char *name;
        sx_reducer reducer;
    } known[] = {{"none", SX_REPLACE},
                 {"add", SX_SUM},
                 {"mul", SX_PRODUCT},
                 {"max", SX_MAX},
                 {"min", SX_MIN}};
    sx_span name;
    SX_TRY(sx_ox_attr_text(im, "reduction", "none", &name));
    for (uint32_t k = 0; k < SX_COUNT(known); k++) {
        if (sx_span_is(name, known[k].name)) {
            *reducer = known[k].reducer;
            return SX_OK;
        }
    }
    return SX_OX_FAIL(im, SX_INPUT, "reduction %.*s", (int)sx_min_i64(32, (int64_t)name.len),
                      (const char *)name.ptr);
}

static sx_node_id scatter(sx_ox *im, sx_node_id x, sx_node_id index, sx_node_id updates,
                          uint32_t axis, sx_reducer reducer)
{
    sx_node_id input[3] = {x, index, updates};
    sx_attr attr = {.present = SX_A(axis) | SX_A(reducer), .axis = axis, .reducer = reducer};
    return sx_ox_add(im, SX_OP_SCATTER, &attr, input, 3);
}

sx_code sx_ox_scatter_nd(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id index = sx_ox_cast(im, sx_ox_in(im, 1), SX_I64);
    sx_node_id updates = sx_ox_in(im, 2);
    sx_reducer reducer;
    uint32_t depth;
    SX_TRY(im->code);
    const sx_type type = *sx_ox_type(im, x);
    SX_TRY(read_reduction(im, &reducer));
    SX_TRY(read_tuples(im, index, &type, &depth));
    sx_type flat = joined(&type, depth);
    if (depth > 1) {
        x = sx_ox_reshape(im, x, &flat);
    }
    index = numbers_of(im, index, &type, depth);
    x = scatter(im, x, index, updates, 0, reducer);
    return sx_ox_set(im, 0, depth > 1 ? sx_ox_reshape(im, x, &type) : x);
}

sx_code sx_ox_gather_nd(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id index = sx_ox_cast(im, sx_ox_in(im, 1), SX_I64);
    int64_t batches;
    uint32_t depth;
    SX_TRY(im->code);
    const sx_type type = *sx_ox_type(im, x);
    SX_TRY(sx_ox_attr_int(im, "batch_dims", 0, &batches));
    if (batches != 0) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "batch_dims is %lld, only 0", (long long)batches);
    }
    SX_TRY(read_tuples(im, index, &type, &depth));
    sx_type flat = joined(&type, depth);
    if (depth > 1) {
        x = sx_ox_reshape(im, x, &flat);
    }
    index = numbers_of(im, index, &type, depth);
    return sx_ox_set(im, 0, sx_ox_gather(im, x, index, 0));
}

/* Each element has a place of its own: all dimensions become one. */
sx_code sx_ox_scatter_elements(sx_ox *im)
{
    sx_node_id x = sx_ox_in(im, 0);
    sx_node_id index = sx_ox_cast(im, sx_ox_in(im, 1), SX_I64);
    sx_node_id updates = sx_ox_in(im, 2);
    sx_reducer reducer;
    uint32_t axis;
    SX_TRY(im->code);
    const sx_type type = *sx_ox_type(im, x);
    const sx_type places = *sx_ox_type(im, index);
    SX_TRY(sx_ox_attr_axis(im, "axis", 0, type.rank, &axis));
    SX_TRY(read_reduction(im, &reducer));
    SX_TRY(check_constant(im, &type, type.rank));
    SX_TRY(check_constant(im, &places, places.rank));
    if (places.rank != type.rank) {
        return SX_OX_FAIL(im, SX_INPUT, "indices of rank %u, data of rank %u", places.rank,
                          type.rank);
    }
    sx_ints stride = row_major(&type, type.rank);
    sx_type flat = joined(&type, type.rank);
    index = part_of(im, index, type.dim[axis].scale, stride.v[axis], flat.dim[0].scale);
    for (uint32_t d = 0; d < type.rank; d++) {
        if (d != axis && places.dim[d].scale > type.dim[d].scale) {
            return SX_OX_FAIL(im, SX_INPUT, "axis %u: %lld indices, data has extent %lld", d,
                              (long long)places.dim[d].scale, (long long)type.dim[d].scale);
        }
        if (d != axis && places.dim[d].scale > 1) {
            sx_node_id at = sx_ox_iota(im, &places, SX_I64, d);
            at = sx_ox_with(im, SX_OP_MULTIPLY, at, (double)stride.v[d]);
            index = sx_ox_bin(im, SX_OP_ADD, index, at);
        }
    }
    sx_type list = joined(&places, places.rank);
    index = sx_ox_reshape(im, index, &list);
    updates = sx_ox_reshape(im, updates, &list);
    x = scatter(im, sx_ox_reshape(im, x, &flat), index, updates, 0, reducer);
    return sx_ox_set(im, 0, sx_ox_reshape(im, x, &type));
}
