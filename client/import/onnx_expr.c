#include <stdio.h>
#include <string.h>

#include "client/import/onnx_import.h"

static bool failed(sx_ox *im, sx_code code)
{
    if (im->code == SX_OK) {
        im->code = code;
    }
    return im->code != SX_OK;
}

const char *sx_ox_dim_text(const sx_ox *im, sx_dim dim, char text[SX_OX_DIM_TEXT])
{
    if (sx_dim_is_constant(dim)) {
        (void)snprintf(text, SX_OX_DIM_TEXT, "%lld", (long long)dim.scale);
        return text;
    }
    SX_ASSERT(dim.symbol < im->graph->symbol_count);
    const sx_symbol *symbol = &im->graph->symbol[dim.symbol];
    sx_span name = symbol->name;
    int length = (int)sx_min_i64((int64_t)name.len, 48);
    if (dim.scale != 1 && !sx_symbol_is_declared(symbol)) {
        (void)snprintf(text, SX_OX_DIM_TEXT, "%lld*(%.*s)", (long long)dim.scale, length,
                       (const char *)name.ptr);
    } else if (dim.scale == 1) {
        (void)snprintf(text, SX_OX_DIM_TEXT, "%.*s", length, (const char *)name.ptr);
    } else {
        (void)snprintf(text, SX_OX_DIM_TEXT, "%lld*%.*s", (long long)dim.scale, length,
                       (const char *)name.ptr);
    }
    return text;
}

const sx_type *sx_ox_type(const sx_ox *im, sx_node_id a)
{
    SX_ASSERT(a.i == UINT32_MAX || a.i < im->graph->node_count);
    static const sx_type scalar = {.dtype = SX_F32, .rank = 0};
    return a.i == UINT32_MAX ? &scalar : &sx_graph_node(im->graph, a)->type;
}

sx_type sx_ox_type_with(const sx_type *shape, sx_dtype dtype)
{
    SX_ASSERT(shape->rank <= SX_RANK_MAX && dtype < SX_DTYPE_COUNT);
    sx_type type = *shape;
    type.dtype = dtype;
    return type;
}

sx_ints sx_ox_dims_from(uint32_t first, uint32_t rank)
{
    SX_ASSERT(rank <= SX_RANK_MAX);
    sx_ints dims = {0};
    for (uint32_t k = first; k < rank; k++) {
        dims.v[dims.count++] = k;
    }
    return dims;
}

sx_node_id sx_ox_add(sx_ox *im, sx_op op, const sx_attr *attr, const sx_node_id *input,
                     uint32_t input_count)
{
    for (uint32_t k = 0; k < input_count; k++) {
        if (input[k].i == UINT32_MAX) {
            SX_ASSERT(im->code != SX_OK); /* a missing input was not looked for */
            return SX_OX_NONE;
        }
    }
    static const sx_attr none = {0};
    sx_node_id id;
    if (im->code != SX_OK || failed(im, sx_spend(im->cx, 1)) ||
        failed(im, sx_graph_add(im->cx, im->graph, op, attr == NULL ? &none : attr, input,
                                input_count, &id))) {
        return SX_OX_NONE;
    }
    return id;
}

sx_node_id sx_ox_un(sx_ox *im, sx_op op, sx_node_id a)
{
    SX_ASSERT(sx_op_is_elementwise(op));
    return sx_ox_add(im, op, NULL, &a, 1);
}

sx_node_id sx_ox_splat(sx_ox *im, const sx_type *type, double value)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX && type->dtype < SX_DTYPE_COUNT);
    sx_node_id id;
    if (im->code != SX_OK || failed(im, sx_build_scalar(im->cx, im->graph, type, value, &id))) {
        return SX_OX_NONE;
    }
    return id;
}

/* ---- shapes ---- */

bool sx_ox_common_shape(sx_ox *im, const sx_type *a, const sx_type *b, sx_type *shape)
{
    SX_ASSERT(a->rank <= SX_RANK_MAX && b->rank <= SX_RANK_MAX);
    uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    sx_type out = {.dtype = a->dtype, .rank = rank};
    for (uint32_t k = 0; k < rank; k++) {
        sx_dim one = sx_dim_of(1);
        sx_dim x = k < rank - a->rank ? one : a->dim[k - (rank - a->rank)];
        sx_dim y = k < rank - b->rank ? one : b->dim[k - (rank - b->rank)];
        out.dim[k] = sx_dim_equal(x, one) ? y : x;
        if (!sx_dim_equal(x, y) && !sx_dim_equal(x, one) && !sx_dim_equal(y, one)) {
            char left[SX_OX_DIM_TEXT];
            char right[SX_OX_DIM_TEXT];
            bool fixed = sx_dim_is_constant(x) && sx_dim_is_constant(y);
            SX_OX_FAIL(im, fixed ? SX_INPUT : SX_UNIMPLEMENTED,
                       "operands of extents %s and %s on axis %u of %u",
                       sx_ox_dim_text(im, x, left), sx_ox_dim_text(im, y, right), k, rank);
            return false;
        }
    }
    *shape = out;
    return true;
}

/* The element of a constant that fills its tensor, else an empty span. */
static sx_span splat_of(const sx_ox *im, sx_node_id a)
{
    const sx_node *node = sx_graph_node(im->graph, a);
    if (node->op == SX_OP_CONSTANT) {
        sx_span data = sx_graph_attr(im->graph, node)->data;
        if (data.len == sx_dtype_bytes(node->type.dtype)) {
            return data;
        }
    }
    return (sx_span){NULL, 0};
}

sx_node_id sx_ox_broadcast_in(sx_ox *im, sx_node_id a, const sx_ints *dims, const sx_type *shape)
{
    SX_ASSERT(dims->count <= SX_RANK_MAX);
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    sx_attr attr = {.present = SX_A(dims) | SX_A(type),
                    .dims = *dims,
                    .type = sx_ox_type_with(shape, sx_ox_type(im, a)->dtype)};
    sx_span splat = splat_of(im, a);
    if (splat.len > 0) {
        attr.present = SX_A(data) | SX_A(type);
        attr.data = splat;
        attr.dims = (sx_ints){0};
        return sx_ox_add(im, SX_OP_CONSTANT, &attr, NULL, 0);
    }
    return sx_ox_add(im, SX_OP_BROADCAST, &attr, &a, 1);
}

sx_node_id sx_ox_broadcast(sx_ox *im, sx_node_id a, const sx_type *shape)
{
    SX_ASSERT(shape->rank <= SX_RANK_MAX);
    const sx_type *type = sx_ox_type(im, a);
    if (im->code != SX_OK || sx_type_same_shape(type, shape)) {
        return a;
    }
    if (type->rank > shape->rank) {
        SX_OX_FAIL(im, SX_INPUT, "rank %u does not broadcast to rank %u", type->rank, shape->rank);
        return SX_OX_NONE;
    }
    sx_ints dims = {.count = type->rank};
    for (uint32_t k = 0; k < type->rank; k++) {
        dims.v[k] = shape->rank - type->rank + k;
    }
    return sx_ox_broadcast_in(im, a, &dims, shape);
}

sx_node_id sx_ox_reshape(sx_ox *im, sx_node_id a, const sx_type *shape)
{
    SX_ASSERT(shape->rank <= SX_RANK_MAX);
    if (im->code != SX_OK || sx_type_same_shape(sx_ox_type(im, a), shape)) {
        return a;
    }
    sx_attr attr = {.present = SX_A(type),
                    .type = sx_ox_type_with(shape, sx_ox_type(im, a)->dtype)};
    return sx_ox_add(im, SX_OP_RESHAPE, &attr, &a, 1);
}

sx_node_id sx_ox_transpose(sx_ox *im, sx_node_id a, const sx_ints *perm)
{
    SX_ASSERT(perm->count <= SX_RANK_MAX);
    bool identity = true;
    for (uint32_t k = 0; k < perm->count; k++) {
        identity &= perm->v[k] == k;
    }
    if (identity) {
        return a;
    }
    sx_attr attr = {.present = SX_A(perm), .perm = *perm};
    return sx_ox_add(im, SX_OP_TRANSPOSE, &attr, &a, 1);
}

/* ---- element by element ---- */

static bool align(sx_ox *im, sx_node_id *a, sx_node_id *b)
{
    sx_type shape;
    if (im->code != SX_OK ||
        !sx_ox_common_shape(im, sx_ox_type(im, *a), sx_ox_type(im, *b), &shape)) {
        return false;
    }
    *a = sx_ox_broadcast(im, *a, &shape);
    *b = sx_ox_broadcast(im, *b, &shape);
    return im->code == SX_OK;
}

sx_node_id sx_ox_bin(sx_ox *im, sx_op op, sx_node_id a, sx_node_id b)
{
    SX_ASSERT(sx_op_is_elementwise(op));
    if (!align(im, &a, &b)) {
        return SX_OX_NONE;
    }
    sx_node_id input[2] = {a, b};
    return sx_ox_add(im, op, NULL, input, 2);
}

sx_node_id sx_ox_cmp(sx_ox *im, sx_direction direction, sx_node_id a, sx_node_id b)
{
    SX_ASSERT(direction < SX_DIRECTION_COUNT);
    if (!align(im, &a, &b)) {
        return SX_OX_NONE;
    }
    sx_node_id input[2] = {a, b};
    sx_attr attr = {.present = SX_A(direction), .direction = direction};
    return sx_ox_add(im, SX_OP_COMPARE, &attr, input, 2);
}

sx_node_id sx_ox_select(sx_ox *im, sx_node_id p, sx_node_id a, sx_node_id b)
{
    sx_type shape;
    if (!align(im, &a, &b) ||
        !sx_ox_common_shape(im, sx_ox_type(im, p), sx_ox_type(im, a), &shape)) {
        return SX_OX_NONE;
    }
    sx_node_id input[3] = {p, a, b};
    for (uint32_t i = 0; i < 3; i++) {
        input[i] = sx_ox_broadcast(im, input[i], &shape);
    }
    return sx_ox_add(im, SX_OP_SELECT, NULL, input, 3);
}

sx_node_id sx_ox_with(sx_ox *im, sx_op op, sx_node_id a, double value)
{
    return sx_ox_bin(im, op, a, sx_ox_splat(im, sx_ox_type(im, a), value));
}

sx_node_id sx_ox_from(sx_ox *im, sx_op op, double value, sx_node_id a)
{
    return sx_ox_bin(im, op, sx_ox_splat(im, sx_ox_type(im, a), value), a);
}

sx_node_id sx_ox_cmp_with(sx_ox *im, sx_direction direction, sx_node_id a, double value)
{
    return sx_ox_cmp(im, direction, a, sx_ox_splat(im, sx_ox_type(im, a), value));
}

sx_node_id sx_ox_cast(sx_ox *im, sx_node_id a, sx_dtype dtype)
{
    SX_ASSERT(dtype < SX_DTYPE_COUNT);
    const sx_type *type = sx_ox_type(im, a);
    if (im->code != SX_OK || type->dtype == dtype) {
        return a;
    }
    if (dtype == SX_BOOL) {
        return sx_ox_cmp_with(im, SX_NE, a, 0.0);
    }
    sx_attr attr = {.present = SX_A(type), .type = sx_ox_type_with(type, dtype)};
    return sx_ox_add(im, SX_OP_CONVERT, &attr, &a, 1);
}

sx_node_id sx_ox_log1p(sx_ox *im, sx_node_id x)
{
    /* Kahan: with u = 1 + x rounded, x log(u) / (u - 1) has the error of u cancelled; x itself where u = 1. */
    sx_node_id u = sx_ox_with(im, SX_OP_ADD, x, 1.0);
    sx_node_id tiny = sx_ox_cmp_with(im, SX_EQ, u, 1.0);
    sx_node_id low = sx_ox_with(im, SX_OP_SUBTRACT, u, 1.0);
    sx_node_id divisor = sx_ox_select(im, tiny, sx_ox_splat(im, sx_ox_type(im, low), 1.0), low);
    sx_node_id ratio = sx_ox_bin(im, SX_OP_DIVIDE, x, divisor);
    sx_node_id exact = sx_ox_bin(im, SX_OP_MULTIPLY, sx_ox_un(im, SX_OP_LOG, u), ratio);
    return sx_ox_select(im, tiny, x, exact);
}

/* ---- reductions ---- */

sx_node_id sx_ox_reduce(sx_ox *im, sx_reducer reducer, sx_node_id a, const sx_ints *dims, bool keep)
{
    SX_ASSERT(dims->count <= SX_RANK_MAX);
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    sx_type kept = *sx_ox_type(im, a);
    for (uint32_t k = 0; k < dims->count; k++) {
        kept.dim[dims->v[k]] = sx_dim_of(1);
    }
    if (dims->count == 0) {
        return a;
    }
    sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = *dims, .reducer = reducer};
    sx_node_id out = sx_ox_add(im, SX_OP_REDUCE, &attr, &a, 1);
    return keep ? sx_ox_reshape(im, out, &kept) : out;
}

sx_node_id sx_ox_mean(sx_ox *im, sx_node_id a, const sx_ints *dims, bool keep)
{
    SX_ASSERT(dims->count <= SX_RANK_MAX);
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    const sx_type type = *sx_ox_type(im, a);
    double count = 1.0;
    bool constant = true;
    for (uint32_t k = 0; k < dims->count; k++) {
        sx_dim dim = type.dim[dims->v[k]];
        constant &= sx_dim_is_constant(dim);
        count *= (double)dim.scale;
    }
    sx_node_id sum = sx_ox_reduce(im, SX_SUM, a, dims, keep);
    if (constant) {
        return sx_ox_with(im, SX_OP_DIVIDE, sum, count);
    }
    sx_node_id ones = sx_ox_splat(im, &type, 1.0);
    return sx_ox_bin(im, SX_OP_DIVIDE, sum, sx_ox_reduce(im, SX_SUM, ones, dims, keep));
}

/* ---- movement ---- */

sx_node_id sx_ox_iota(sx_ox *im, const sx_type *shape, sx_dtype dtype, uint32_t axis)
{
    SX_ASSERT(axis < shape->rank);
    sx_attr attr = {
        .present = SX_A(axis) | SX_A(type), .axis = axis, .type = sx_ox_type_with(shape, dtype)};
    return sx_ox_add(im, SX_OP_IOTA, &attr, NULL, 0);
}

sx_node_id sx_ox_gather(sx_ox *im, sx_node_id a, sx_node_id index, uint32_t axis)
{
    SX_ASSERT(im->code != SX_OK || axis < sx_ox_type(im, a)->rank);
    sx_node_id input[2] = {a, index};
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    return sx_ox_add(im, SX_OP_GATHER, &attr, input, 2);
}

sx_node_id sx_ox_slice_axis(sx_ox *im, sx_node_id a, uint32_t axis, int64_t start, int64_t limit,
                            int64_t stride)
{
    SX_ASSERT(axis < SX_RANK_MAX);
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    const sx_type *type = sx_ox_type(im, a);
    sx_attr attr = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    attr.start.count = attr.limit.count = attr.stride.count = type->rank;
    for (uint32_t k = 0; k < type->rank; k++) {
        attr.limit.v[k] = sx_dim_is_constant(type->dim[k]) ? type->dim[k].scale : -1;
        attr.stride.v[k] = 1;
    }
    if (start == 0 && stride == 1 && limit == attr.limit.v[axis]) {
        return a;
    }
    attr.start.v[axis] = start;
    attr.limit.v[axis] = limit;
    attr.stride.v[axis] = stride;
    return sx_ox_add(im, SX_OP_SLICE, &attr, &a, 1);
}

sx_node_id sx_ox_concat(sx_ox *im, const sx_node_id *part, uint32_t count, uint32_t axis)
{
    SX_ASSERT(count > 0 && count <= SX_OX_INPUTS_MAX);
    sx_node_id group[SX_OX_INPUTS_MAX];
    memcpy(group, part, count * sizeof(sx_node_id));
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    while (count > 1 && im->code == SX_OK) { /* SX_INPUTS_MAX at a time */
        uint32_t made = 0;
        for (uint32_t k = 0; k < count; k += SX_INPUTS_MAX) {
            uint32_t n = count - k < SX_INPUTS_MAX ? count - k : SX_INPUTS_MAX;
            group[made++] =
                n == 1 ? group[k] : sx_ox_add(im, SX_OP_CONCATENATE, &attr, group + k, n);
        }
        count = made;
    }
    return group[0];
}

sx_node_id sx_ox_dot(sx_ox *im, sx_node_id a, sx_node_id b, const sx_attr *dims)
{
    sx_node_id input[2] = {a, b};
    sx_attr attr = *dims;
    attr.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract);
    return sx_ox_add(im, SX_OP_DOT_GENERAL, &attr, input, 2);
}
