#include <string.h>

#include "client/import/onnx_import.h"

/* Shapes, reshaping and views: what is folded over known integers, and what becomes reshape, transpose and
 * broadcast. */

/* ---- shapes as values ---- */

sx_code sx_ox_shape(sx_ox *im)
{
    const sx_type *type = &sx_ox_input(im, 0)->type;
    int64_t rank = type->rank;
    int64_t start;
    int64_t end;
    SX_TRY(sx_ox_attr_int(im, "start", 0, &start));
    SX_TRY(sx_ox_attr_int(im, "end", rank, &end));
    start = sx_max_i64(0, sx_min_i64(start < 0 ? start + rank : start, rank));
    end = sx_max_i64(start, sx_min_i64(end < 0 ? end + rank : end, rank));
    sx_type out = {.dtype = SX_I64, .rank = 1, .dim = {sx_dim_of(end - start)}};
    return sx_ox_set_known(im, 0, &out, type->dim + start, (uint32_t)(end - start));
}

sx_code sx_ox_size(sx_ox *im)
{
    const sx_type *type = &sx_ox_input(im, 0)->type;
    sx_dim elements;
    sx_polynomial p;
    if (!sx_type_elements(type, &elements) &&
        (!sx_polynomial_elements(im->graph->symbol, type, &p) ||
         !sx_ox_extent(im, &p, &elements))) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "number of elements of a tensor of rank %u",
                          type->rank);
    }
    sx_type out = {.dtype = SX_I64};
    return sx_ox_set_known(im, 0, &out, &elements, 1);
}

/* Input 0 in another shape: known integers keep their elements. */
static sx_code set_reshaped(sx_ox *im, const sx_type *shape)
{
    const sx_ox_value *value = sx_ox_input(im, 0);
    if (sx_ox_is_known(value) && !value->has_node) {
        sx_type type = sx_ox_type_with(shape, value->type.dtype);
        sx_dim count = sx_dim_of(1);
        bool fits = true;
        for (uint32_t k = 0; k < type.rank; k++) {
            fits = fits && sx_ox_times(im, count, type.dim[k], &count);
        }
        if (!fits || !sx_dim_equal(count, sx_dim_of(value->known_count))) {
            return SX_OX_FAIL(im, SX_INPUT, "%u elements do not fill the new shape",
                              value->known_count);
        }
        return sx_ox_set_known(im, 0, &type, value->known, value->known_count);
    }
    return sx_ox_set(im, 0, sx_ox_reshape(im, sx_ox_in(im, 0), shape));
}

/* elements(from) / elements(to but `hole`): symbols cancel one by one, constants divide exactly. */
static bool missing_extent(const sx_type *from, const sx_type *to, uint32_t hole, sx_dim *extent)
{
    int64_t top = 1;
    int64_t bottom = 1;
    bool taken[SX_RANK_MAX] = {false};
    for (uint32_t k = 0; k < to->rank; k++) {
        if (k == hole) {
            continue;
        }
        if (!sx_mul_i64(bottom, to->dim[k].scale, &bottom)) {
            return false;
        }
        bool found = sx_dim_is_constant(to->dim[k]);
        for (uint32_t j = 0; !found && j < from->rank; j++) {
            found = !taken[j] && from->dim[j].symbol == to->dim[k].symbol;
            taken[j] = taken[j] || found;
        }
        if (!found) {
            return false;
        }
    }
    uint32_t symbol = SX_NO_SYMBOL;
    for (uint32_t j = 0; j < from->rank; j++) {
        if (!sx_mul_i64(top, from->dim[j].scale, &top)) {
            return false;
        }
        if (!sx_dim_is_constant(from->dim[j]) && !taken[j]) {
            if (symbol != SX_NO_SYMBOL) {
                return false;
            }
            symbol = from->dim[j].symbol;
        }
    }
    *extent = (sx_dim){bottom == 0 ? 0 : top / bottom, symbol};
    return bottom != 0 && top % bottom == 0;
}

/* The same for what the symbols stand for: [batch, seq, 4] as [-1, 4]. */
static bool missing_sum(sx_ox *im, const sx_type *from, sx_type *to, uint32_t hole)
{
    sx_polynomial all, others, rest;
    to->dim[hole] = sx_dim_of(1);
    return sx_polynomial_elements(im->graph->symbol, from, &all) &&
           sx_polynomial_elements(im->graph->symbol, to, &others) &&
           sx_polynomial_divide(&all, &others, &rest) && rest.count > 0 &&
           sx_ox_extent(im, &rest, &to->dim[hole]) && to->dim[hole].scale > 0;
}

sx_code sx_ox_reshape_op(sx_ox *im)
{
    const sx_type *from = &sx_ox_input(im, 0)->type;
    const sx_dim *want;
    uint32_t rank;
    int64_t allow_zero;
    SX_TRY(sx_ox_known(im, 1, "shape", &want, &rank));
    SX_TRY(sx_ox_attr_int(im, "allowzero", 0, &allow_zero));
    if (rank > SX_RANK_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "shape of rank %u, at most %d", rank, SX_RANK_MAX);
    }
    sx_type to = {.dtype = from->dtype, .rank = rank};
    uint32_t hole = UINT32_MAX;
    for (uint32_t k = 0; k < rank; k++) {
        to.dim[k] = want[k];
        if (!sx_dim_is_constant(want[k]) || want[k].scale > 0) {
            continue;
        }
        if (want[k].scale == 0 && allow_zero == 0 && k < from->rank) {
            to.dim[k] = from->dim[k];
        } else if (want[k].scale == 0 && allow_zero != 0) {
            to.dim[k] = sx_dim_of(0);
        } else if (want[k].scale == -1 && hole == UINT32_MAX) {
            hole = k;
            to.dim[k] = sx_dim_of(1);
        } else {
            return SX_OX_FAIL(im, SX_INPUT, "shape: element %u is %lld", k,
                              (long long)want[k].scale);
        }
    }
    if (hole != UINT32_MAX && !missing_extent(from, &to, hole, &to.dim[hole]) &&
        !missing_sum(im, from, &to, hole)) {
        return SX_OX_FAIL(im, sx_type_is_static(from) ? SX_INPUT : SX_UNIMPLEMENTED,
                          "shape: element %u is -1 and does not follow from the input", hole);
    }
    return set_reshaped(im, &to);
}

sx_code sx_ox_flatten(sx_ox *im)
{
    const sx_type *from = &sx_ox_input(im, 0)->type;
    int64_t axis;
    SX_TRY(sx_ox_attr_int(im, "axis", 1, &axis));
    int64_t rank = from->rank;
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis > rank) {
        return SX_OX_FAIL(im, SX_INPUT, "axis %lld of a tensor of rank %lld", (long long)axis,
                          (long long)rank);
    }
    sx_type to = {.dtype = from->dtype, .rank = 2, .dim = {sx_dim_of(1), sx_dim_of(1)}};
    for (int64_t k = 0; k < rank; k++) {
        sx_dim *side = &to.dim[k < axis ? 0 : 1];
        if (!sx_ox_times(im, *side, from->dim[k], side)) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "product of symbolic extents at axis %lld",
                              (long long)k);
        }
    }
    return set_reshaped(im, &to);
}

/* Attribute or input `axes` as a set; count UINT32_MAX if absent. `as_input` says where. */
static sx_code read_axes(sx_ox *im, bool as_input, uint32_t rank, bool set[SX_RANK_MAX],
                         uint32_t *count)
{
    int64_t axis[SX_RANK_MAX];
    memset(set, 0, SX_RANK_MAX * sizeof(bool));
    *count = UINT32_MAX;
    if (!as_input) {
        SX_TRY(sx_ox_attr_ints(im, "axes", axis, SX_RANK_MAX, count));
    } else if (sx_ox_input(im, 1) != NULL) {
        SX_TRY(sx_ox_known_ints(im, 1, "axes", axis, SX_RANK_MAX, count));
    }
    for (uint32_t k = 0; *count != UINT32_MAX && k < *count; k++) {
        uint32_t index;
        SX_TRY(sx_ox_axis(im, axis[k], rank, &index));
        if (set[index]) {
            return SX_OX_FAIL(im, SX_INPUT, "axis %u is listed twice", index);
        }
        set[index] = true;
    }
    return SX_OK;
}

/* arg 0: axes is an attribute; 1: an input. */
sx_code sx_ox_squeeze(sx_ox *im)
{
    const sx_type *from = &sx_ox_input(im, 0)->type;
    bool set[SX_RANK_MAX];
    uint32_t count;
    SX_TRY(read_axes(im, im->entry->arg == 1, from->rank, set, &count));
    sx_type to = {.dtype = from->dtype};
    for (uint32_t k = 0; k < from->rank; k++) {
        bool one = sx_dim_equal(from->dim[k], sx_dim_of(1));
        if (set[k] && !one) {
            char text[SX_OX_DIM_TEXT];
            return SX_OX_FAIL(im, SX_INPUT, "axis %u has extent %s, 1 wanted", k,
                              sx_ox_dim_text(im, from->dim[k], text));
        }
        if (!(count == UINT32_MAX ? one : set[k])) {
            to.dim[to.rank++] = from->dim[k];
        }
    }
    return set_reshaped(im, &to);
}

sx_code sx_ox_unsqueeze(sx_ox *im)
{
    const sx_type *from = &sx_ox_input(im, 0)->type;
    int64_t axis[SX_RANK_MAX];
    uint32_t count = UINT32_MAX;
    if (im->entry->arg == 0) {
        SX_TRY(sx_ox_attr_ints(im, "axes", axis, SX_RANK_MAX, &count));
    } else {
        SX_TRY(sx_ox_known_ints(im, 1, "axes", axis, SX_RANK_MAX, &count));
    }
    if (count == UINT32_MAX) {
        return SX_OX_FAIL(im, SX_INPUT, "axes are missing");
    }
    sx_type to = {.dtype = from->dtype, .rank = from->rank + count};
    if (to.rank > SX_RANK_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "rank %u, at most %d", to.rank, SX_RANK_MAX);
    }
    bool set[SX_RANK_MAX];
    SX_TRY(read_axes(im, im->entry->arg == 1, to.rank, set, &count));
    for (uint32_t k = 0, source = 0; k < to.rank; k++) {
        to.dim[k] = set[k] ? sx_dim_of(1) : from->dim[source++];
    }
    return set_reshaped(im, &to);
}

sx_code sx_ox_transpose_op(sx_ox *im)
{
    const sx_type *type = &sx_ox_input(im, 0)->type;
    sx_ints perm = {0};
    SX_TRY(sx_ox_attr_ints(im, "perm", perm.v, SX_RANK_MAX, &perm.count));
    if (perm.count == UINT32_MAX) {
        perm.count = type->rank;
        for (uint32_t k = 0; k < type->rank; k++) {
            perm.v[k] = type->rank - 1 - k;
        }
    }
    if (perm.count != type->rank) {
        return SX_OX_FAIL(im, SX_INPUT, "perm has %u numbers, the input rank %u", perm.count,
                          type->rank);
    }
    if (type->rank <= 1) {
        return set_reshaped(im, type);
    }
    return sx_ox_set(im, 0, sx_ox_transpose(im, sx_ox_in(im, 0), &perm));
}

/* ---- copies ---- */

sx_code sx_ox_identity(sx_ox *im)
{
    return sx_ox_set_value(im, 0, sx_ox_input(im, 0));
}

/* Inference: the input; the mask keeps everything. */
sx_code sx_ox_dropout(sx_ox *im)
{
    (void)sx_ox_attr(im, "ratio"); /* of training */
    (void)sx_ox_attr(im, "seed");
    if (sx_ox_input(im, 2) != NULL) {
        int64_t training;
        uint32_t count;
        SX_TRY(sx_ox_known_ints(im, 2, "training_mode", &training, 1, &count));
        if (count == 1 && training != 0) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "training mode");
        }
    }
    sx_type mask = sx_ox_type_with(&sx_ox_input(im, 0)->type, SX_BOOL);
    SX_TRY(sx_ox_identity(im));
    return sx_ox_wants(im, 1) ? sx_ox_set(im, 1, sx_ox_splat(im, &mask, 1.0)) : SX_OK;
}

/* ---- constants ---- */

static sx_code constant_floats(sx_ox *im, const float *number, uint32_t count, bool scalar)
{
    sx_type type = {.dtype = SX_F32, .rank = scalar ? 0 : 1, .dim = {sx_dim_of(count)}};
    sx_ox_value value = {.name = im->node->output[0]};
    sx_span bytes = {(const uint8_t *)number, count * sizeof(float)};
    if (count == 0) {
        return SX_OX_FAIL(im, SX_INPUT, "a constant of 0 elements, at least 1");
    }
    SX_TRY(sx_ox_value_of_bytes(im, &type, bytes, &value));
    value.is_weight = bytes.len > SX_ONNX_CONSTANT_BYTES_MAX;
    return sx_ox_declare(im, &value);
}

static sx_code constant_ints(sx_ox *im, const int64_t *number, uint32_t count, bool scalar)
{
    sx_type type = {.dtype = SX_I64, .rank = scalar ? 0 : 1, .dim = {sx_dim_of(count)}};
    sx_ox_value value = {.name = im->node->output[0]};
    sx_span bytes = {(const uint8_t *)number, count * sizeof(int64_t)};
    SX_TRY(sx_ox_value_of_bytes(im, &type, bytes, &value));
    value.is_weight = bytes.len > SX_ONNX_CONSTANT_BYTES_MAX;
    return sx_ox_declare(im, &value);
}

sx_code sx_ox_constant(sx_ox *im)
{
    if (im->node->attr_count != 1 || im->node->output_count != 1) {
        return SX_OX_FAIL(im, SX_INPUT, "%u attributes and %u outputs, one each wanted",
                          im->node->attr_count, im->node->output_count);
    }
    const sx_onnx_attr *attr = &im->node->attr[0];
    im->attr_read = 1;
    sx_ox_value value;
    switch (attr->type) {
    case SX_ONNX_ATTR_TENSOR:
        SX_TRY(sx_ox_value_of_tensor(im, attr->t, im->node->output[0], false, &value));
        return sx_ox_declare(im, &value);
    case SX_ONNX_ATTR_FLOAT: return constant_floats(im, &attr->f, 1, true);
    case SX_ONNX_ATTR_INT: return constant_ints(im, &attr->i, 1, true);
    case SX_ONNX_ATTR_FLOATS: return constant_floats(im, attr->floats, attr->count, false);
    case SX_ONNX_ATTR_INTS: return constant_ints(im, attr->ints, attr->count, false);
    case SX_ONNX_ATTR_UNDEFINED:
    case SX_ONNX_ATTR_STRING:
    case SX_ONNX_ATTR_GRAPH:
    case SX_ONNX_ATTR_STRINGS:
    case SX_ONNX_ATTR_TENSORS:
    case SX_ONNX_ATTR_GRAPHS:
    case SX_ONNX_ATTR_SPARSE_TENSOR:
    case SX_ONNX_ATTR_SPARSE_TENSORS:
    case SX_ONNX_ATTR_TYPE:
    case SX_ONNX_ATTR_TYPES: break;
    }
    return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "attribute '%.*s' of type %d", (int)attr->name.len,
                      (const char *)attr->name.ptr, (int)attr->type);
}

/* A shape given by known integers, each at least 0 or symbolic; elements: UINT32_MAX if not a small constant. */
static sx_code shape_of_known(sx_ox *im, uint32_t k, const char *what, sx_type *shape,
                              uint32_t *elements)
{
    const sx_dim *dim;
    SX_TRY(sx_ox_known(im, k, what, &dim, &shape->rank));
    if (shape->rank > SX_RANK_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "%s of rank %u, at most %d", what, shape->rank,
                          SX_RANK_MAX);
    }
    int64_t count = 1;
    bool small = true;
    for (uint32_t i = 0; i < shape->rank; i++) {
        shape->dim[i] = dim[i];
        if (dim[i].scale < 0) {
            return SX_OX_FAIL(im, SX_INPUT, "%s: element %u is %lld", what, i,
                              (long long)dim[i].scale);
        }
        small = small && sx_dim_is_constant(dim[i]) && sx_mul_i64(count, dim[i].scale, &count) &&
                count <= SX_OX_KNOWN_MAX;
    }
    *elements = small ? (uint32_t)count : UINT32_MAX;
    return SX_OK;
}

sx_code sx_ox_constant_of_shape(sx_ox *im)
{
    sx_type type = {.dtype = SX_F32};
    uint32_t elements;
    SX_TRY(shape_of_known(im, 0, "shape", &type, &elements));
    const sx_onnx_attr *attr = sx_ox_attr(im, "value");
    sx_ox_value value = {.known = NULL};
    if (attr != NULL) {
        if (attr->type != SX_ONNX_ATTR_TENSOR) {
            return SX_OX_FAIL(im, SX_INPUT, "attribute 'value' is no tensor");
        }
        SX_TRY(sx_ox_value_of_tensor(im, attr->t, im->node->output[0], false, &value));
        type.dtype = value.type.dtype;
        if (value.data.len != sx_dtype_bytes(type.dtype)) {
            return SX_OX_FAIL(im, SX_INPUT, "attribute 'value' has %zu bytes, one element wanted",
                              value.data.len);
        }
    }
    if (value.known != NULL && elements != UINT32_MAX) {
        sx_dim *element = SX_NEW_ARRAY(im->cx, sx_dim, (size_t)elements + 1);
        if (element == NULL) {
            return im->code = im->cx->error.code;
        }
        for (uint32_t k = 0; k < elements; k++) {
            element[k] = value.known[0];
        }
        return sx_ox_set_known(im, 0, &type, element, elements);
    }
    if (attr == NULL) {
        return sx_ox_set(im, 0, sx_ox_splat(im, &type, 0.0));
    }
    sx_attr splat = {.present = SX_A(data) | SX_A(type), .data = value.data, .type = type};
    return sx_ox_set(im, 0, sx_ox_add(im, SX_OP_CONSTANT, &splat, NULL, 0));
}

sx_code sx_ox_range(sx_ox *im)
{
    int64_t bound[3];
    static const char *const what[3] = {"start", "limit", "delta"};
    for (uint32_t k = 0; k < 3; k++) {
        uint32_t count;
        SX_TRY(sx_ox_known_ints(im, k, what[k], &bound[k], 1, &count));
        if (count != 1) {
            return SX_OX_FAIL(im, SX_INPUT, "%s has no element", what[k]);
        }
    }
    int64_t start = bound[0];
    int64_t span;
    if (bound[2] == 0 || bound[2] == INT64_MIN || !sx_sub_i64(bound[1], start, &span) ||
        span == INT64_MIN) {
        return SX_OX_FAIL(im, SX_INPUT, "from %lld to %lld by %lld", (long long)start,
                          (long long)bound[1], (long long)bound[2]);
    }
    int64_t step = bound[2] < 0 ? -bound[2] : bound[2];
    span = bound[2] < 0 ? -span : span;
    int64_t count = span <= 0 ? 0 : span / step + (span % step != 0);
    if (count > SX_OX_KNOWN_MAX) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "range of %lld elements, at most %d",
                          (long long)count, SX_OX_KNOWN_MAX);
    }
    sx_dim *element = SX_NEW_ARRAY(im->cx, sx_dim, (size_t)count + 1);
    if (element == NULL) {
        return im->code = im->cx->error.code;
    }
    for (int64_t k = 0; k < count; k++) {
        element[k] = sx_dim_of(start + k * bound[2]); /* between start and limit */
    }
    sx_type type = {.dtype = sx_ox_input(im, 0)->type.dtype, .rank = 1, .dim = {sx_dim_of(count)}};
    return sx_ox_set_known(im, 0, &type, element, (uint32_t)count);
}

/* ---- repeating ---- */

sx_code sx_ox_expand(sx_ox *im)
{
    sx_type shape = {.dtype = SX_F32};
    uint32_t elements;
    SX_TRY(shape_of_known(im, 1, "shape", &shape, &elements));
    const sx_ox_value *value = sx_ox_input(im, 0);
    if (sx_ox_is_known(value) && value->known_count == 1 && elements != UINT32_MAX &&
        value->type.rank <= shape.rank) {
        sx_dim *element = SX_NEW_ARRAY(im->cx, sx_dim, (size_t)elements + 1);
        if (element == NULL) {
            return im->code = im->cx->error.code;
        }
        for (uint32_t k = 0; k < elements; k++) {
            element[k] = value->known[0];
        }
        shape.dtype = value->type.dtype;
        return sx_ox_set_known(im, 0, &shape, element, elements);
    }
    sx_node_id x = sx_ox_in(im, 0);
    sx_type common;
    if (im->code != SX_OK || !sx_ox_common_shape(im, sx_ox_type(im, x), &shape, &common)) {
        return im->code;
    }
    return sx_ox_set(im, 0, sx_ox_broadcast(im, x, &common));
}

/* Dimension `axis` repeated: [.., n, ..] -> [.., 1, n, ..] -> [.., r, n, ..] -> [.., r n, ..]. */
static sx_node_id tile_axis(sx_ox *im, sx_node_id x, uint32_t axis, sx_dim repeat)
{
    if (im->code != SX_OK || sx_dim_equal(repeat, sx_dim_of(1))) {
        return x;
    }
    sx_type type = *sx_ox_type(im, x);
    sx_type wide = type;
    if (type.rank == SX_RANK_MAX) {
        SX_OX_FAIL(im, SX_LIMIT, "input of rank %u, at most %d", type.rank, SX_RANK_MAX - 1);
        return SX_OX_NONE;
    }
    wide.rank++;
    memmove(wide.dim + axis + 1, type.dim + axis, (type.rank - axis) * sizeof(sx_dim));
    wide.dim[axis] = sx_dim_of(1);
    x = sx_ox_reshape(im, x, &wide);
    wide.dim[axis] = repeat;
    x = sx_ox_broadcast(im, x, &wide);
    if (!sx_ox_times(im, repeat, type.dim[axis], &type.dim[axis])) {
        SX_OX_FAIL(im, SX_UNIMPLEMENTED, "product of two symbolic extents at axis %u", axis);
        return SX_OX_NONE;
    }
    return sx_ox_reshape(im, x, &type);
}

sx_code sx_ox_tile(sx_ox *im)
{
    const sx_dim *repeat;
    uint32_t count;
    SX_TRY(sx_ox_known(im, 1, "repeats", &repeat, &count));
    sx_node_id x = sx_ox_in(im, 0);
    if (count != sx_ox_type(im, x)->rank) {
        return SX_OX_FAIL(im, SX_INPUT, "repeats has %u elements, the input rank %u", count,
                          sx_ox_type(im, x)->rank);
    }
    for (uint32_t k = 0; k < count; k++) {
        if (repeat[k].scale < 0) {
            return SX_OX_FAIL(im, SX_INPUT, "repeats: element %u is %lld, at least 0", k,
                              (long long)repeat[k].scale);
        }
        x = tile_axis(im, x, k, repeat[k]);
    }
    return sx_ox_set(im, 0, x);
}

/* ---- blocks of pixels ---- */

static sx_code want_image(sx_ox *im, sx_node_id x, int64_t *block)
{
    SX_TRY(im->code);
    SX_TRY(sx_ox_attr_int(im, "blocksize", 0, block));
    const sx_type *type = sx_ox_type(im, x);
    if (type->rank != 4 || *block < 1 || *block > 65536) {
        return SX_OX_FAIL(im, SX_INPUT, "blocksize %lld, input of rank %u (4 wanted)",
                          (long long)*block, type->rank);
    }
    for (uint32_t k = 1; k < 4; k++) {
        if (!sx_dim_is_constant(type->dim[k])) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "symbolic extent at axis %u", k);
        }
    }
    return SX_OK;
}

/* x as `shape`, permuted, as `out`. */
static sx_node_id regroup(sx_ox *im, sx_node_id x, const sx_dim *dim, const int64_t *perm,
                          const sx_type *out)
{
    sx_type shape = {.dtype = out->dtype, .rank = 6};
    sx_ints order = {.count = 6};
    memcpy(shape.dim, dim, 6 * sizeof(sx_dim));
    memcpy(order.v, perm, 6 * sizeof(int64_t));
    x = sx_ox_transpose(im, sx_ox_reshape(im, x, &shape), &order);
    return sx_ox_reshape(im, x, out);
}

sx_code sx_ox_depth_to_space(sx_ox *im)
{
    int64_t block;
    sx_span mode;
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(want_image(im, x, &block));
    SX_TRY(sx_ox_attr_text(im, "mode", "DCR", &mode));
    sx_type out = *sx_ox_type(im, x);
    sx_dim b = sx_dim_of(block);
    int64_t depth = out.dim[1].scale / (block * block);
    if (out.dim[1].scale % (block * block) != 0) {
        return SX_OX_FAIL(im, SX_INPUT, "%lld channels in blocks of %lld",
                          (long long)out.dim[1].scale, (long long)(block * block));
    }
    sx_dim h = out.dim[2];
    sx_dim w = out.dim[3];
    out.dim[1] = sx_dim_of(depth);
    if (!sx_dim_multiply(h, b, &out.dim[2]) || !sx_dim_multiply(w, b, &out.dim[3])) {
        return SX_OX_FAIL(im, SX_LIMIT, "extents overflow");
    }
    if (sx_span_is(mode, "CRD")) {
        sx_dim dim[6] = {out.dim[0], out.dim[1], b, b, h, w};
        static const int64_t perm[6] = {0, 1, 4, 2, 5, 3};
        return sx_ox_set(im, 0, regroup(im, x, dim, perm, &out));
    }
    sx_dim dim[6] = {out.dim[0], b, b, out.dim[1], h, w};
    static const int64_t perm[6] = {0, 3, 4, 1, 5, 2};
    return sx_ox_set(im, 0, regroup(im, x, dim, perm, &out));
}

sx_code sx_ox_space_to_depth(sx_ox *im)
{
    int64_t block;
    sx_node_id x = sx_ox_in(im, 0);
    SX_TRY(want_image(im, x, &block));
    sx_type out = *sx_ox_type(im, x);
    sx_dim b = sx_dim_of(block);
    if (out.dim[2].scale % block != 0 || out.dim[3].scale % block != 0) {
        return SX_OX_FAIL(im, SX_INPUT, "%lld by %lld pixels in blocks of %lld",
                          (long long)out.dim[2].scale, (long long)out.dim[3].scale,
                          (long long)block);
    }
    out.dim[2].scale /= block;
    out.dim[3].scale /= block;
    sx_dim dim[6] = {out.dim[0], out.dim[1], out.dim[2], b, out.dim[3], b};
    static const int64_t depth_last[6] = {0, 3, 5, 1, 2, 4};
    static const int64_t depth_first[6] = {0, 1, 3, 5, 2, 4};
    sx_span mode;
    SX_TRY(sx_ox_attr_text(im, "mode", "DCR", &mode));
    if (!sx_dim_multiply(out.dim[1], sx_dim_of(block * block), &out.dim[1])) {
        return SX_OX_FAIL(im, SX_LIMIT, "extents overflow");
    }
    return sx_ox_set(im, 0,
                     regroup(im, x, dim, sx_span_is(mode, "CRD") ? depth_first : depth_last, &out));
}
