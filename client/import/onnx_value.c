#include <string.h>

#include "client/import/onnx_import.h"

/* ---- names ---- */

/* In one scope. */
static bool same_name(const void *self, uint32_t id, const void *probe)
{
    const sx_ox *im = self;
    const sx_span *name = probe;
    return sx_span_equal(im->value[id]->name, *name);
}

sx_ox_value *sx_ox_lookup(const sx_ox *im, sx_span name)
{
    SX_ASSERT(name.ptr != NULL || name.len == 0);
    sx_ox_value *found = NULL;
    for (const sx_ox *scope = im; scope != NULL && found == NULL; scope = scope->outside) {
        uint32_t id = sx_idmap_find(&scope->names, sx_hash64(name, 0), same_name, scope, &name);
        found = id == SX_IDMAP_NONE ? NULL : scope->value[id];
    }
    return found;
}

sx_code sx_ox_declare(sx_ox *im, const sx_ox_value *value)
{
    SX_ASSERT(value->has_node || value->has_data || value->known != NULL || value->refused);
    sx_ctx *cx = im->cx;
    if (value->name.len == 0) {
        return SX_OX_FAIL(im, SX_INPUT, "a tensor without a name");
    }
    if (sx_ox_lookup(im, value->name) != NULL) {
        return SX_OX_FAIL(im, SX_INPUT, "tensor '%.*s' is defined twice", (int)value->name.len,
                          (const char *)value->name.ptr);
    }
    sx_ox_value *copy = SX_NEW(cx, sx_ox_value);
    if (copy == NULL) {
        return im->code = cx->error.code;
    }
    *copy = *value;
    void *array = im->value;
    SX_TRY(sx_grow(cx, &array, &im->value_capacity, im->value_count + 1, sizeof(sx_ox_value *)));
    im->value = array;
    im->value[im->value_count] = copy;
    SX_TRY(sx_idmap_put(cx, &im->names, sx_hash64(value->name, 0), im->value_count));
    im->value_count++;
    return SX_OK;
}

/* ---- data ---- */

sx_code sx_ox_dtype(sx_ox *im, int64_t data_type, sx_dtype *dtype)
{
    static const struct {
        sx_onnx_dtype onnx;
        sx_dtype ours;
    } row[] = {{SX_ONNX_FLOAT, SX_F32},
               {SX_ONNX_DOUBLE, SX_F64},
               {SX_ONNX_FLOAT16, SX_F16},
               {SX_ONNX_BFLOAT16, SX_BF16},
               {SX_ONNX_FLOAT8E4M3FN, SX_F8E4M3},
               {SX_ONNX_FLOAT8E5M2, SX_F8E5M2},
               {SX_ONNX_INT64, SX_I64},
               {SX_ONNX_INT32, SX_I32},
               {SX_ONNX_INT16, SX_I16},
               {SX_ONNX_INT8, SX_I8},
               {SX_ONNX_UINT8, SX_U8},
               {SX_ONNX_BOOL, SX_BOOL}};
    for (uint32_t k = 0; k < SX_COUNT(row); k++) {
        if ((int64_t)row[k].onnx == data_type) {
            *dtype = row[k].ours;
            return SX_OK;
        }
    }
    if (strcmp(sx_onnx_dtype_name(data_type), "unknown") == 0) {
        return SX_OX_FAIL(im, SX_INPUT, "element type %lld is not one of ONNX",
                          (long long)data_type);
    }
    return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "elements of type %s", sx_onnx_dtype_name(data_type));
}

static int64_t read_int(const uint8_t *bytes, sx_dtype dtype)
{
    int64_t wide;
    int32_t narrow;
    int16_t half;
    switch (dtype) {
    case SX_I64: memcpy(&wide, bytes, sizeof(wide)); return wide;
    case SX_I32: memcpy(&narrow, bytes, sizeof(narrow)); return narrow;
    case SX_I16: memcpy(&half, bytes, sizeof(half)); return half;
    case SX_I8: return (int8_t)bytes[0];
    case SX_U8:
    case SX_BOOL: return bytes[0];
    case SX_F64:
    case SX_F32:
    case SX_BF16:
    case SX_F16:
    case SX_F8E4M3:
    case SX_F8E5M2:
    case SX_DTYPE_COUNT: break;
    }
    SX_UNREACHABLE();
}

static sx_code decode_known(sx_ox *im, sx_ox_value *value, int64_t elements)
{
    uint32_t size = sx_dtype_bytes(value->type.dtype);
    sx_dim *known = SX_NEW_ARRAY(im->cx, sx_dim, (size_t)elements + 1);
    if (known == NULL) {
        return im->code = im->cx->error.code;
    }
    for (int64_t k = 0; k < elements; k++) {
        known[k] = sx_dim_of(read_int(value->data.ptr + (size_t)k * size, value->type.dtype));
    }
    value->known = known;
    value->known_count = (uint32_t)elements;
    return SX_OK;
}

sx_code sx_ox_value_of_bytes(sx_ox *im, const sx_type *type, sx_span bytes, sx_ox_value *value)
{
    int64_t elements = 1;
    for (uint32_t k = 0; k < type->rank; k++) {
        SX_ASSERT(sx_dim_is_constant(type->dim[k]));
        if (!sx_mul_i64(elements, type->dim[k].scale, &elements)) {
            return SX_OX_FAIL(im, SX_LIMIT, "tensor '%.*s': more than %lld elements",
                              (int)value->name.len, (const char *)value->name.ptr,
                              (long long)SX_ELEMENTS_MAX);
        }
    }
    uint32_t size = sx_dtype_bytes(type->dtype);
    if (elements < 0 || bytes.len / size != (uint64_t)elements || bytes.len % size != 0) {
        return SX_OX_FAIL(im, SX_INPUT,
                          "tensor '%.*s': %zu bytes of data, %lld elements of %u bytes wanted",
                          (int)value->name.len, (const char *)value->name.ptr, bytes.len,
                          (long long)elements, size);
    }
    for (int64_t k = 0; type->dtype == SX_BOOL && k < elements; k++) {
        if (bytes.ptr[k] > 1) {
            return SX_OX_FAIL(im, SX_INPUT, "tensor '%.*s': element %lld is %u, a bool is 0 or 1",
                              (int)value->name.len, (const char *)value->name.ptr, (long long)k,
                              bytes.ptr[k]);
        }
    }
    value->type = *type;
    value->has_data = true;
    value->data = bytes;
    if (sx_dtype_class_of(type->dtype) != SX_CLASS_FLOAT && elements <= SX_OX_KNOWN_MAX) {
        return decode_known(im, value, elements);
    }
    return SX_OK;
}

/* Relative, and no step is "..". */
static bool is_below(sx_span path)
{
    bool below = path.len > 0 && path.ptr[0] != '/' && memchr(path.ptr, '\0', path.len) == NULL;
    for (size_t start = 0, k = 0; k <= path.len; k++) {
        if (k == path.len || path.ptr[k] == '/') {
            below &= !sx_span_is((sx_span){path.ptr + start, k - start}, "..");
            start = k + 1;
        }
    }
    return below;
}

/* External data: a relative path that stays inside the folder of the model. */
static sx_code fetch_external(sx_ox *im, sx_onnx_tensor *tensor)
{
    sx_span path = tensor->location;
    int length = (int)path.len;
    const char *text = (const char *)path.ptr;
    if (im->options == NULL || im->options->external == NULL) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "tensor '%.*s': its data is in the file '%.*s'",
                          (int)tensor->name.len, (const char *)tensor->name.ptr, length, text);
    }
    if (!is_below(path)) {
        return SX_OX_FAIL(im, SX_INPUT,
                          "tensor '%.*s': external file '%.*s' is not below the model",
                          (int)tensor->name.len, (const char *)tensor->name.ptr, length, text);
    }
    sx_span bytes;
    sx_code code = im->options->external(im->options->external_self, im->cx, path, &bytes);
    if (code != SX_OK) {
        return im->code = sx_fail_in(im->cx, "tensor '%.*s'", (int)tensor->name.len,
                                     (const char *)tensor->name.ptr);
    }
    int64_t size = (int64_t)bytes.len;
    int64_t wanted = tensor->length < 0 ? size - tensor->offset : tensor->length;
    if (tensor->offset < 0 || tensor->offset > size || wanted < 0 ||
        wanted > size - tensor->offset) {
        return SX_OX_FAIL(
            im, SX_INPUT, "tensor '%.*s': bytes %lld to %lld + %lld of '%.*s', which has %lld",
            (int)tensor->name.len, (const char *)tensor->name.ptr, (long long)tensor->offset,
            (long long)tensor->offset, (long long)wanted, length, text, (long long)size);
    }
    tensor->raw = (sx_span){bytes.ptr + tensor->offset, (size_t)wanted};
    tensor->has_raw = true;
    return SX_OK;
}

sx_code sx_ox_value_of_tensor(sx_ox *im, const sx_onnx_tensor *tensor, sx_span name, bool weight,
                              sx_ox_value *value)
{
    SX_ASSERT(tensor->rank <= SX_RANK_MAX);
    sx_onnx_tensor copy = *tensor;
    copy.name = name;
    memset(value, 0, sizeof(*value));
    value->name = name;
    sx_type type = {.rank = copy.rank};
    SX_TRY(sx_ox_dtype(im, copy.data_type, &type.dtype));
    int64_t elements;
    SX_TRY(sx_onnx_tensor_elements(im->cx, &copy, &elements));
    bool is_float = sx_dtype_class_of(type.dtype) == SX_CLASS_FLOAT;
    for (uint32_t k = 0; k < copy.rank; k++) {
        type.dim[k] = sx_dim_of(copy.dim[k]);
    }
    if (copy.external) {
        SX_TRY(fetch_external(im, &copy));
    }
    sx_span bytes;
    SX_TRY(sx_onnx_tensor_bytes(im->cx, &copy, sx_dtype_bytes(type.dtype), &bytes));
    SX_TRY(sx_ox_value_of_bytes(im, &type, bytes, value));
    value->is_weight =
        bytes.len > SX_ONNX_CONSTANT_BYTES_MAX || (weight && is_float && elements > 1);
    return SX_OK;
}

/* ---- values into the graph ---- */

static sx_node_id add_weight(sx_ox *im, const sx_ox_value *value)
{
    if (im->is_body) {
        SX_OX_FAIL(im, SX_UNIMPLEMENTED,
                   "tensor '%.*s': data of %zu bytes inside of a subgraph, at most %d",
                   (int)value->name.len, (const char *)value->name.ptr, value->data.len,
                   SX_ONNX_CONSTANT_BYTES_MAX);
        return SX_OX_NONE;
    }
    sx_weights *weights = im->weights;
    void *array = weights->weight;
    im->code = sx_grow(im->cx, &array, &weights->capacity, weights->count + 1, sizeof(sx_weight));
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    weights->weight = array;
    weights->weight[weights->count++] = (sx_weight){value->name, value->type, value->data};
    sx_attr attr = {.present = SX_A(name) | SX_A(weight) | SX_A(type),
                    .name = value->name,
                    .weight = 1,
                    .type = value->type};
    return sx_ox_add(im, SX_OP_PARAMETER, &attr, NULL, 0);
}

sx_node_id sx_ox_add_constant(sx_ox *im, const sx_type *type, sx_span data)
{
    static const uint8_t nothing[8] = {
        0}; /* of a tensor without elements: a number that nobody sees */
    size_t size = sx_dtype_bytes(type->dtype);
    data = data.len == 0 ? (sx_span){nothing, size} : data;
    SX_ASSERT(data.len >= size && data.len % size == 0);
    bool uniform = true;
    for (size_t k = size; uniform && k < data.len; k += size) {
        uniform = memcmp(data.ptr, data.ptr + k, size) == 0;
    }
    sx_attr attr = {.present = SX_A(data) | SX_A(type),
                    .data = {data.ptr, uniform ? size : data.len},
                    .type = *type};
    return sx_ox_add(im, SX_OP_CONSTANT, &attr, NULL, 0);
}

static sx_node_id add_known(sx_ox *im, const sx_ox_value *value)
{
    uint32_t size = sx_dtype_bytes(value->type.dtype);
    uint8_t *bytes = sx_alloc_array(im->cx, value->known_count, size);
    if (bytes == NULL) {
        im->code = im->cx->error.code;
        return SX_OX_NONE;
    }
    for (uint32_t k = 0; k < value->known_count; k++) {
        sx_dim element = value->known[k];
        if (!sx_dim_is_constant(element)) {
            char text[SX_OX_DIM_TEXT];
            SX_OX_FAIL(im, SX_UNIMPLEMENTED, "tensor '%.*s': the extent %s is used as data",
                       (int)value->name.len, (const char *)value->name.ptr,
                       sx_ox_dim_text(im, element, text));
            return SX_OX_NONE;
        }
        for (uint32_t b = 0; b < size; b++) {
            bytes[(size_t)k * size + b] = (uint8_t)((uint64_t)element.scale >> (8 * b));
        }
    }
    return sx_ox_add_constant(im, &value->type,
                              (sx_span){bytes, (size_t)value->known_count * size});
}

sx_node_id sx_ox_node_of(sx_ox *im, sx_ox_value *value)
{
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    if (value->has_node) {
        return value->node;
    }
    sx_node_id node;
    if (value->is_weight) {
        node = add_weight(im, value);
    } else if (value->known != NULL) {
        node = add_known(im, value);
    } else {
        SX_ASSERT(value->has_data);
        node = sx_ox_add_constant(im, &value->type, value->data);
    }
    value->has_node = im->code == SX_OK;
    value->node = node;
    return node;
}

/* ---- inputs and outputs of the node ---- */

sx_ox_value *sx_ox_input(const sx_ox *im, uint32_t k)
{
    SX_ASSERT(im->input_count <= SX_OX_INPUTS_MAX);
    return k < im->input_count ? im->input[k] : NULL;
}

sx_node_id sx_ox_in(sx_ox *im, uint32_t k)
{
    sx_ox_value *value = sx_ox_input(im, k);
    return value == NULL ? SX_OX_NONE : sx_ox_node_of(im, value);
}

sx_code sx_ox_known(sx_ox *im, uint32_t k, const char *what, const sx_dim **element,
                    uint32_t *count)
{
    SX_ASSERT(im->node != NULL && k < SX_OX_INPUTS_MAX);
    const sx_ox_value *value = sx_ox_input(im, k);
    if (value == NULL) {
        return SX_OX_FAIL(im, SX_INPUT, "%s (input %u) is missing", what, k);
    }
    if (value->known == NULL) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "%s '%.*s' is not known before the run", what,
                          (int)value->name.len, (const char *)value->name.ptr);
    }
    *element = value->known;
    *count = value->known_count;
    return SX_OK;
}

sx_code sx_ox_known_ints(sx_ox *im, uint32_t k, const char *what, int64_t *element, uint32_t most,
                         uint32_t *count)
{
    SX_ASSERT(most > 0);
    const sx_dim *known;
    SX_TRY(sx_ox_known(im, k, what, &known, count));
    if (*count > most) {
        return SX_OX_FAIL(im, SX_LIMIT, "%s has %u elements, at most %u", what, *count, most);
    }
    for (uint32_t i = 0; i < *count; i++) {
        if (!sx_dim_is_constant(known[i])) {
            char text[SX_OX_DIM_TEXT];
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "%s: element %u is %s, a constant is wanted",
                              what, i, sx_ox_dim_text(im, known[i], text));
        }
        element[i] = known[i].scale;
    }
    return SX_OK;
}

bool sx_ox_wants(const sx_ox *im, uint32_t k)
{
    SX_ASSERT(im->node != NULL);
    return k < im->node->output_count && im->node->output[k].len > 0;
}

static sx_code declare_output(sx_ox *im, uint32_t k, sx_ox_value *value)
{
    if (!sx_ox_wants(im, k)) {
        return SX_OK;
    }
    value->name = im->node->output[k];
    return sx_ox_declare(im, value);
}

sx_code sx_ox_set(sx_ox *im, uint32_t k, sx_node_id node)
{
    SX_ASSERT(im->code != SX_OK || node.i < im->graph->node_count);
    if (im->code != SX_OK) {
        return im->code;
    }
    sx_ox_value value = {.type = *sx_ox_type(im, node), .has_node = true, .node = node};
    return declare_output(im, k, &value);
}

sx_code sx_ox_set_known(sx_ox *im, uint32_t k, const sx_type *type, const sx_dim *element,
                        uint32_t count)
{
    SX_ASSERT(count <= SX_OX_KNOWN_MAX);
    SX_TRY(sx_spend(im->cx, count));
    sx_dim *copy = SX_NEW_ARRAY(im->cx, sx_dim, (size_t)count + 1);
    if (copy == NULL) {
        return im->code = im->cx->error.code;
    }
    memcpy(copy, element, count * sizeof(sx_dim));
    sx_ox_value value = {.type = *type, .known = copy, .known_count = count};
    return declare_output(im, k, &value);
}

sx_code sx_ox_set_value(sx_ox *im, uint32_t k, const sx_ox_value *value)
{
    SX_ASSERT(value->has_node || value->has_data || value->known != NULL);
    sx_ox_value copy = *value;
    if (copy.is_weight && !copy.has_node) {
        return sx_ox_set(im, k, sx_ox_node_of(im, sx_ox_lookup(im, value->name)));
    }
    return declare_output(im, k, &copy);
}

/* ---- attributes ---- */

const sx_onnx_attr *sx_ox_attr(sx_ox *im, const char *name)
{
    SX_ASSERT(im->node->attr_count <= SX_ONNX_ATTRIBUTES_MAX);
    for (uint32_t k = 0; k < im->node->attr_count; k++) {
        if (sx_span_is(im->node->attr[k].name, name)) {
            im->attr_read |= UINT64_C(1) << k;
            return &im->node->attr[k];
        }
    }
    return NULL;
}

static sx_code find_attr(sx_ox *im, const char *name, sx_onnx_attr_type type,
                         const sx_onnx_attr **attr)
{
    *attr = sx_ox_attr(im, name);
    if (*attr != NULL && (*attr)->type != type) {
        return SX_OX_FAIL(im, SX_INPUT, "attribute '%s' is of type %d, %d wanted", name,
                          (int)(*attr)->type, (int)type);
    }
    return SX_OK;
}

sx_code sx_ox_attr_int(sx_ox *im, const char *name, int64_t fallback, int64_t *value)
{
    const sx_onnx_attr *attr;
    SX_TRY(find_attr(im, name, SX_ONNX_ATTR_INT, &attr));
    *value = attr == NULL ? fallback : attr->i;
    return SX_OK;
}

sx_code sx_ox_attr_float(sx_ox *im, const char *name, double fallback, double *value)
{
    const sx_onnx_attr *attr;
    SX_TRY(find_attr(im, name, SX_ONNX_ATTR_FLOAT, &attr));
    *value = (double)(attr == NULL ? (float)fallback : attr->f);
    return SX_OK;
}

sx_code sx_ox_attr_text(sx_ox *im, const char *name, const char *fallback, sx_span *value)
{
    const sx_onnx_attr *attr;
    SX_TRY(find_attr(im, name, SX_ONNX_ATTR_STRING, &attr));
    *value = attr == NULL          ? sx_span_of(fallback)
             : attr->s.ptr == NULL ? SX_SPAN_LITERAL("") // the type says text, the text is absent
                                   : attr->s;
    return SX_OK;
}

sx_code sx_ox_attr_ints(sx_ox *im, const char *name, int64_t *value, uint32_t most, uint32_t *count)
{
    SX_ASSERT(most > 0);
    const sx_onnx_attr *attr;
    SX_TRY(find_attr(im, name, SX_ONNX_ATTR_INTS, &attr));
    *count = UINT32_MAX;
    if (attr == NULL) {
        return SX_OK;
    }
    if (attr->count > most) {
        return SX_OX_FAIL(im, SX_LIMIT, "attribute '%s' has %u numbers, at most %u", name,
                          attr->count, most);
    }
    memcpy(value, attr->ints, attr->count * sizeof(int64_t));
    *count = attr->count;
    return SX_OK;
}

sx_code sx_ox_axis(sx_ox *im, int64_t axis, uint32_t rank, uint32_t *index)
{
    SX_ASSERT(rank <= SX_RANK_MAX);
    int64_t extent = rank;
    if (axis < -extent || axis >= extent) {
        return SX_OX_FAIL(im, SX_INPUT, "axis %lld of a tensor of rank %u", (long long)axis, rank);
    }
    *index = (uint32_t)(axis < 0 ? axis + extent : axis);
    return SX_OK;
}

sx_code sx_ox_attr_axis(sx_ox *im, const char *name, int64_t fallback, uint32_t rank,
                        uint32_t *axis)
{
    SX_ASSERT(rank <= SX_RANK_MAX);
    int64_t value;
    SX_TRY(sx_ox_attr_int(im, name, fallback, &value));
    return sx_ox_axis(im, value, rank, axis);
}
