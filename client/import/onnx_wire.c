#include "client/import/onnx_wire.h"

#include <string.h>

/* ---- wire format ---- */

sx_wire sx_wire_of(sx_span file)
{
    SX_ASSERT(file.ptr != NULL || file.len == 0);
    return (sx_wire){file.ptr, file};
}

sx_wire sx_wire_in(const sx_wire *outer, sx_span message)
{
    SX_ASSERT(message.ptr != NULL || message.len == 0);
    return (sx_wire){outer->file, message};
}

static size_t offset_of(const sx_wire *wire)
{
    return wire->rest.ptr == NULL ? 0 : (size_t)(wire->rest.ptr - wire->file);
}

static void step(sx_wire *wire, size_t count)
{
    SX_ASSERT(count <= wire->rest.len);
    wire->rest.ptr += count;
    wire->rest.len -= count;
}

sx_code sx_wire_varint(sx_ctx *cx, sx_wire *wire, uint64_t *value)
{
    uint64_t out = 0;
    for (uint32_t k = 0; k < 10; k++) {
        if (k == wire->rest.len) {
            return SX_FAIL(cx, SX_INPUT, "onnx: byte %zu: number cut off", offset_of(wire));
        }
        uint64_t byte = wire->rest.ptr[k];
        if (k == 9 && byte > 1) {
            return SX_FAIL(cx, SX_INPUT, "onnx: byte %zu: number of more than 64 bits",
                           offset_of(wire));
        }
        out |= (byte & 0x7F) << (7 * k);
        if (byte < 0x80) {
            step(wire, k + 1);
            *value = out;
            return SX_OK;
        }
    }
    return SX_FAIL(cx, SX_INPUT, "onnx: byte %zu: number of more than 10 bytes", offset_of(wire));
}

static uint64_t little_endian(const uint8_t *bytes, uint32_t count)
{
    uint64_t value = 0;
    for (uint32_t k = 0; k < count; k++) {
        value |= (uint64_t)bytes[k] << (8 * k);
    }
    return value;
}

static sx_code take_fixed(sx_ctx *cx, sx_wire *wire, uint32_t size, uint64_t *value)
{
    if (wire->rest.len < size) {
        return SX_FAIL(cx, SX_INPUT, "onnx: byte %zu: %u bytes wanted, %zu left in the message",
                       offset_of(wire), size, wire->rest.len);
    }
    *value = little_endian(wire->rest.ptr, size);
    step(wire, size);
    return SX_OK;
}

sx_code sx_wire_next(sx_ctx *cx, sx_wire *wire, sx_wire_field *field, bool *more)
{
    memset(field, 0, sizeof(*field));
    *more = wire->rest.len > 0;
    if (!*more) {
        return SX_OK;
    }
    size_t at = offset_of(wire);
    uint64_t tag;
    SX_TRY(sx_wire_varint(cx, wire, &tag));
    if (tag >> 3 == 0 || tag >> 3 > (1u << 29) - 1) {
        return SX_FAIL(cx, SX_INPUT, "onnx: byte %zu: field number %llu", at,
                       (unsigned long long)(tag >> 3));
    }
    field->number = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case SX_WIRE_VARINT:
        field->type = SX_WIRE_VARINT;
        return sx_wire_varint(cx, wire, &field->value);
    case SX_WIRE_I64: field->type = SX_WIRE_I64; return take_fixed(cx, wire, 8, &field->value);
    case SX_WIRE_I32: field->type = SX_WIRE_I32; return take_fixed(cx, wire, 4, &field->value);
    case SX_WIRE_BYTES: break;
    default:
        return SX_FAIL(cx, SX_INPUT, "onnx: byte %zu: wire type %u of field %u", at,
                       (unsigned)(tag & 7), field->number);
    }
    uint64_t length;
    SX_TRY(sx_wire_varint(cx, wire, &length));
    if (length > wire->rest.len) {
        return SX_FAIL(cx, SX_INPUT, "onnx: byte %zu: field %u has %llu bytes, %zu left", at,
                       field->number, (unsigned long long)length, wire->rest.len);
    }
    field->type = SX_WIRE_BYTES;
    field->bytes = (sx_span){wire->rest.ptr, (size_t)length};
    step(wire, (size_t)length);
    return SX_OK;
}

/* ---- typed access to one field ---- */

static sx_code bad_type(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field)
{
    return SX_FAIL(cx, SX_INPUT, "onnx: before byte %zu: field %u has wire type %u",
                   offset_of(wire), field->number, (unsigned)field->type);
}

static sx_code as_int(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field, int64_t *value)
{
    if (field->type != SX_WIRE_VARINT) {
        return bad_type(cx, wire, field);
    }
    *value = (int64_t)field->value;
    return SX_OK;
}

static sx_code as_bytes(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field, sx_span *bytes)
{
    if (field->type != SX_WIRE_BYTES) {
        return bad_type(cx, wire, field);
    }
    *bytes = field->bytes;
    return SX_OK;
}

/* Names come back in errors and in the text form: well-formed UTF-8 without control characters, at most
 * SX_NAME_MAX bytes. */
static bool utf8_step(sx_span text, size_t *at)
{
    uint8_t lead = text.ptr[*at];
    if (lead < 0x80) {
        *at += 1;
        return lead >= 0x20 && lead != 0x7F;
    }
    uint32_t extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || text.len - *at <= extra) {
        return false;
    }
    uint32_t point = lead & (0x3Fu >> extra);
    for (uint32_t k = 1; k <= extra; k++) {
        uint8_t byte = text.ptr[*at + k];
        if ((byte & 0xC0) != 0x80) {
            return false;
        }
        point = point << 6 | (byte & 0x3Fu);
    }
    static const uint32_t least[4] = {0, 0x80, 0x800, 0x10000};
    *at += extra + 1;
    return point >= least[extra] && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
}

static sx_code as_name(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field, sx_span *name)
{
    SX_TRY(as_bytes(cx, wire, field, name));
    if (name->len > SX_NAME_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "onnx: before byte %zu: name of %zu bytes, at most %d",
                       offset_of(wire), name->len, SX_NAME_MAX);
    }
    for (size_t at = 0; at < name->len;) {
        if (!utf8_step(*name, &at)) {
            return SX_FAIL(cx, SX_INPUT, "onnx: before byte %zu: name is not printable UTF-8",
                           offset_of(wire));
        }
    }
    return SX_OK;
}

/* How often field `number` occurs in a message; wants it length-delimited. */
static sx_code count_field(sx_ctx *cx, sx_wire wire, uint32_t number, uint32_t most,
                           const char *what, uint32_t *count)
{
    sx_wire_field field;
    bool more;
    *count = 0;
    for (;;) {
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            return SX_OK;
        }
        if (field.number == number) {
            if (field.type != SX_WIRE_BYTES) {
                return bad_type(cx, &wire, &field);
            }
            if (++*count > most) {
                return SX_FAIL(cx, SX_LIMIT, "onnx: more than %u %s", most, what);
            }
        }
    }
}

/* ---- numbers, packed or one by one ---- */

/* How many numbers `field` holds; varints are counted by their last bytes. */
static sx_code count_numbers(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field,
                             sx_wire_type type, uint64_t *count)
{
    if (field->type == type) {
        *count += 1;
        return SX_OK;
    }
    if (field->type != SX_WIRE_BYTES) {
        return bad_type(cx, wire, field);
    }
    uint32_t size = type == SX_WIRE_I32 ? 4 : 8;
    if (type != SX_WIRE_VARINT) {
        if (field->bytes.len % size != 0) {
            return SX_FAIL(cx, SX_INPUT, "onnx: before byte %zu: %zu bytes of %u-byte numbers",
                           offset_of(wire), field->bytes.len, size);
        }
        *count += field->bytes.len / size;
        return SX_OK;
    }
    for (size_t k = 0; k < field->bytes.len; k++) {
        *count += field->bytes.ptr[k] < 0x80;
    }
    return SX_OK;
}

/* The low `size` bytes of each number, one after the other at `out`. */
static sx_code copy_numbers(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field,
                            sx_wire_type type, uint32_t size, uint8_t **out)
{
    uint32_t width = type == SX_WIRE_I32 ? 4 : 8;
    sx_wire packed = sx_wire_in(wire, field->bytes);
    bool single = field->type != SX_WIRE_BYTES;
    while (single || packed.rest.len > 0) {
        uint64_t value = field->value;
        if (!single && type == SX_WIRE_VARINT) {
            SX_TRY(sx_wire_varint(cx, &packed, &value));
        } else if (!single) {
            SX_TRY(take_fixed(cx, &packed, width, &value));
        }
        for (uint32_t k = 0; k < size; k++) {
            *(*out)++ = (uint8_t)(value >> (8 * k));
        }
        if (single) {
            return SX_OK;
        }
    }
    return SX_OK;
}

/* All numbers of field `number` in a message, `size` bytes each. */
static sx_code take_numbers(sx_ctx *cx, sx_wire message, uint32_t number, sx_wire_type type,
                            uint32_t size, uint64_t *count, uint8_t **out)
{
    sx_wire_field field;
    bool more;
    *count = 0;
    for (sx_wire wire = message;;) {
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            break;
        }
        if (field.number == number) {
            SX_TRY(count_numbers(cx, &wire, &field, type, count));
        }
    }
    *out = sx_alloc_array(cx, (size_t)*count + 1, size);
    if (*out == NULL) {
        return cx->error.code;
    }
    uint8_t *p = *out;
    for (sx_wire wire = message;;) {
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            break;
        }
        if (field.number == number) {
            SX_TRY(copy_numbers(cx, &wire, &field, type, size, &p));
        }
    }
    SX_ASSERT(p == *out + (size_t)*count * size);
    return SX_OK;
}

/* ---- tensors ---- */

const char *sx_onnx_dtype_name(int64_t data_type)
{
    static const char *const name[] = {
        "undefined",      "float",    "uint8",        "int8",           "uint16",
        "int16",          "int32",    "int64",        "string",         "bool",
        "float16",        "double",   "uint32",       "uint64",         "complex64",
        "complex128",     "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
        "float8e5m2fnuz", "uint4",    "int4",         "float4e2m1",     "float8e8m0",
        "uint2",          "int2"};
    return data_type >= 0 && data_type < (int64_t)SX_COUNT(name) ? name[data_type] : "unknown";
}

static sx_code parse_decimal(sx_ctx *cx, sx_span text, int64_t *value)
{
    *value = 0;
    for (size_t k = 0; k < text.len; k++) {
        uint8_t digit = (uint8_t)(text.ptr[k] - '0');
        if (digit > 9 || !sx_mul_i64(*value, 10, value) || !sx_add_i64(*value, digit, value)) {
            return SX_FAIL(cx, SX_INPUT, "onnx: external data: '%.*s' is not an offset or length",
                           (int)sx_min_i64((int64_t)text.len, 40), (const char *)text.ptr);
        }
    }
    return SX_OK;
}

/* StringStringEntryProto: key 1, value 2. */
static sx_code read_external(sx_ctx *cx, sx_wire wire, sx_onnx_tensor *tensor)
{
    sx_wire_field field;
    bool more;
    sx_span key = {NULL, 0};
    sx_span value = {NULL, 0};
    for (;;) {
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            break;
        }
        if (field.number == 1) {
            SX_TRY(as_name(cx, &wire, &field, &key));
        } else if (field.number == 2) {
            SX_TRY(as_name(cx, &wire, &field, &value));
        }
    }
    if (sx_span_is(key, "location")) {
        tensor->location = value;
    } else if (sx_span_is(key, "offset")) {
        SX_TRY(parse_decimal(cx, value, &tensor->offset));
    } else if (sx_span_is(key, "length")) {
        SX_TRY(parse_decimal(cx, value, &tensor->length));
    }
    return SX_OK;
}

static sx_code read_dims(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field,
                         sx_onnx_tensor *tensor)
{
    sx_wire packed = sx_wire_in(wire, field->bytes);
    bool single = field->type == SX_WIRE_VARINT;
    if (!single && field->type != SX_WIRE_BYTES) {
        return bad_type(cx, wire, field);
    }
    while (single || packed.rest.len > 0) {
        uint64_t value = field->value;
        if (!single) {
            SX_TRY(sx_wire_varint(cx, &packed, &value));
        }
        if (tensor->rank == SX_RANK_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "onnx: before byte %zu: tensor of rank over %d",
                           offset_of(wire), SX_RANK_MAX);
        }
        tensor->dim[tensor->rank++] = (int64_t)value;
        if (single) {
            return SX_OK;
        }
    }
    return SX_OK;
}

/* TensorProto: dims 1, data_type 2, segment 3, name 8, raw_data 9, external_data 13, data_location 14; typed
 * fields later. */
static sx_code read_tensor(sx_ctx *cx, sx_wire wire, sx_onnx_tensor *tensor)
{
    memset(tensor, 0, sizeof(*tensor));
    tensor->message = wire;
    tensor->length = -1;
    for (;;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            return SX_OK;
        }
        int64_t location = 0;
        sx_span entry = {NULL, 0};
        switch (field.number) {
        case 1: SX_TRY(read_dims(cx, &wire, &field, tensor)); break;
        case 2: SX_TRY(as_int(cx, &wire, &field, &tensor->data_type)); break;
        case 3:
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "onnx: before byte %zu: segmented tensor",
                           offset_of(&wire));
        case 8: SX_TRY(as_name(cx, &wire, &field, &tensor->name)); break;
        case 9:
            SX_TRY(as_bytes(cx, &wire, &field, &tensor->raw));
            tensor->has_raw = true;
            break;
        case 13:
            SX_TRY(as_bytes(cx, &wire, &field, &entry));
            SX_TRY(read_external(cx, sx_wire_in(&wire, entry), tensor));
            break;
        case 14:
            SX_TRY(as_int(cx, &wire, &field, &location));
            tensor->external = location == 1;
            break;
        default: break;
        }
    }
}

sx_code sx_onnx_read_tensor(sx_ctx *cx, sx_span file, sx_onnx_tensor *tensor)
{
    return read_tensor(cx, sx_wire_of(file), tensor);
}

sx_code sx_onnx_tensor_elements(sx_ctx *cx, const sx_onnx_tensor *tensor, int64_t *elements)
{
    SX_ASSERT(tensor->rank <= SX_RANK_MAX);
    *elements = 1;
    bool empty = false;
    for (uint32_t k = 0; k < tensor->rank; k++) {
        int64_t extent = tensor->dim[k];
        if (extent < 0) {
            return SX_FAIL(cx, SX_INPUT, "tensor '%.*s': axis %u has extent %lld",
                           (int)tensor->name.len, (const char *)tensor->name.ptr, k,
                           (long long)extent);
        }
        empty |= extent == 0;
        if (extent > SX_EXTENT_MAX || (extent > 0 && (!sx_mul_i64(*elements, extent, elements) ||
                                                      *elements > SX_ELEMENTS_MAX))) {
            return SX_FAIL(cx, SX_LIMIT,
                           "tensor '%.*s': axis %u has extent %lld: over %lld elements",
                           (int)tensor->name.len, (const char *)tensor->name.ptr, k,
                           (long long)extent, (long long)SX_ELEMENTS_MAX);
        }
    }
    *elements = empty ? 0 : *elements;
    return SX_OK;
}

/* Which typed field of TensorProto holds elements of this type, and as what. */
static bool typed_field(int64_t data_type, uint32_t *number, sx_wire_type *type)
{
    switch (data_type) {
    case SX_ONNX_FLOAT:
        *number = 4;
        *type = SX_WIRE_I32;
        return true;
    case SX_ONNX_DOUBLE:
        *number = 10;
        *type = SX_WIRE_I64;
        return true;
    case SX_ONNX_INT64:
        *number = 7;
        *type = SX_WIRE_VARINT;
        return true;
    case SX_ONNX_INT32:
    case SX_ONNX_INT16:
    case SX_ONNX_INT8:
    case SX_ONNX_UINT16:
    case SX_ONNX_UINT8:
    case SX_ONNX_BOOL:
    case SX_ONNX_FLOAT16:
    case SX_ONNX_BFLOAT16:
    case SX_ONNX_FLOAT8E4M3FN:
    case SX_ONNX_FLOAT8E5M2:
        *number = 5;
        *type = SX_WIRE_VARINT;
        return true;
    default: return false;
    }
}

sx_code sx_onnx_tensor_bytes(sx_ctx *cx, const sx_onnx_tensor *tensor, uint32_t size,
                             sx_span *bytes)
{
    SX_ASSERT(size > 0 && size <= 8 && tensor->rank <= SX_RANK_MAX);
    int64_t elements;
    SX_TRY(sx_onnx_tensor_elements(cx, tensor, &elements));
    int name_length = (int)tensor->name.len;
    const char *name = (const char *)tensor->name.ptr;
    if (tensor->has_raw) {
        if (tensor->raw.len / size != (uint64_t)elements || tensor->raw.len % size != 0) {
            return SX_FAIL(cx, SX_INPUT,
                           "tensor '%.*s': %zu bytes of data, %lld elements of %u bytes wanted",
                           name_length, name, tensor->raw.len, (long long)elements, size);
        }
        *bytes = tensor->raw;
        return SX_OK;
    }
    uint32_t number;
    sx_wire_type type;
    if (!typed_field(tensor->data_type, &number, &type)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "tensor '%.*s': elements of type %s (%lld)",
                       name_length, name, sx_onnx_dtype_name(tensor->data_type),
                       (long long)tensor->data_type);
    }
    uint64_t count;
    uint8_t *out;
    SX_TRY(take_numbers(cx, tensor->message, number, type, size, &count, &out));
    if (count != (uint64_t)elements) {
        return SX_FAIL(cx, SX_INPUT, "tensor '%.*s': %llu elements of data, %lld wanted",
                       name_length, name, (unsigned long long)count, (long long)elements);
    }
    *bytes = (sx_span){out, (size_t)count * size};
    return SX_OK;
}

/* ---- attributes ---- */

static sx_code read_strings(sx_ctx *cx, sx_wire wire, sx_onnx_attr *attr)
{
    uint32_t count;
    SX_TRY(count_field(cx, wire, 9, SX_ONNX_NODE_INPUTS_MAX, "texts in an attribute", &count));
    sx_span *strings = SX_NEW_ARRAY(cx, sx_span, (size_t)count + 1);
    if (strings == NULL) {
        return cx->error.code;
    }
    sx_wire_field field;
    bool more = true;
    while (more) {
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (more && field.number == 9) {
            strings[attr->count++] = field.bytes;
        }
    }
    attr->strings = strings;
    return SX_OK;
}

/* The repeated fields, read once the type is known. */
static sx_code read_lists(sx_ctx *cx, sx_wire message, sx_onnx_attr *attr)
{
    uint64_t count = 0;
    uint8_t *out = NULL;
    if (attr->type == SX_ONNX_ATTR_STRINGS) {
        return read_strings(cx, message, attr);
    }
    if (attr->type == SX_ONNX_ATTR_FLOATS) {
        SX_TRY(take_numbers(cx, message, 7, SX_WIRE_I32, sizeof(float), &count, &out));
        attr->floats = (const float *)(const void *)out;
    } else if (attr->type == SX_ONNX_ATTR_INTS) {
        SX_TRY(take_numbers(cx, message, 8, SX_WIRE_VARINT, sizeof(int64_t), &count, &out));
        attr->ints = (const int64_t *)(const void *)out;
    }
    attr->count = (uint32_t)sx_min_i64((int64_t)count, UINT32_MAX);
    return SX_OK;
}

static sx_code read_attr_field(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field,
                               sx_onnx_attr *attr)
{
    int64_t number = 0;
    sx_span bytes = {NULL, 0};
    sx_onnx_tensor *tensor;
    switch (field->number) {
    case 1: return as_name(cx, wire, field, &attr->name);
    case 2:
        if (field->type != SX_WIRE_I32) {
            return bad_type(cx, wire, field);
        }
        uint32_t bits = (uint32_t)field->value;
        memcpy(&attr->f, &bits, sizeof(bits));
        return SX_OK;
    case 3: return as_int(cx, wire, field, &attr->i);
    case 4: return as_bytes(cx, wire, field, &attr->s);
    case 5:
        SX_TRY(as_bytes(cx, wire, field, &bytes));
        tensor = SX_NEW(cx, sx_onnx_tensor);
        if (tensor == NULL) {
            return cx->error.code;
        }
        attr->t = tensor;
        return read_tensor(cx, sx_wire_in(wire, bytes), tensor);
    case 6:
        SX_TRY(as_bytes(cx, wire, field, &bytes));
        attr->g = sx_wire_in(wire, bytes);
        return SX_OK;
    case 20:
        SX_TRY(as_int(cx, wire, field, &number));
        if (number < 0 || number > SX_ONNX_ATTR_TYPES) {
            return SX_FAIL(cx, SX_INPUT, "onnx: before byte %zu: attribute type %lld",
                           offset_of(wire), (long long)number);
        }
        attr->type = (sx_onnx_attr_type)number;
        return SX_OK;
    case 21: attr->is_reference = true; return SX_OK;
    default: return SX_OK;
    }
}

/* AttributeProto: name 1, f 2, i 3, s 4, t 5, g 6, floats 7, ints 8, strings 9, type 20, ref_attr_name 21. */
static sx_code read_attr(sx_ctx *cx, sx_wire message, sx_onnx_attr *attr)
{
    memset(attr, 0, sizeof(*attr));
    sx_wire_field field;
    bool more;
    for (sx_wire wire = message;;) {
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            break;
        }
        SX_TRY(read_attr_field(cx, &wire, &field, attr));
    }
    if (attr->type == SX_ONNX_ATTR_TENSOR && attr->t == NULL) {
        return SX_FAIL(cx, SX_INPUT, "onnx: attribute '%.*s': no tensor in it", (int)attr->name.len,
                       (const char *)attr->name.ptr);
    }
    return read_lists(cx, message, attr);
}

/* ---- nodes ---- */

static sx_code read_node_field(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field,
                               sx_onnx_node *node, sx_span *input, sx_span *output,
                               sx_onnx_attr *attr)
{
    sx_span bytes = {NULL, 0};
    switch (field->number) {
    case 1: return as_name(cx, wire, field, &input[node->input_count++]);
    case 2: return as_name(cx, wire, field, &output[node->output_count++]);
    case 3: return as_name(cx, wire, field, &node->name);
    case 4: return as_name(cx, wire, field, &node->op_type);
    case 5:
        SX_TRY(as_bytes(cx, wire, field, &bytes));
        return read_attr(cx, sx_wire_in(wire, bytes), &attr[node->attr_count++]);
    case 7: return as_name(cx, wire, field, &node->domain);
    default: return SX_OK;
    }
}

/* NodeProto: input 1, output 2, name 3, op_type 4, attribute 5, domain 7. */
static sx_code read_node(sx_ctx *cx, sx_wire message, sx_onnx_node *node)
{
    memset(node, 0, sizeof(*node));
    uint32_t inputs;
    uint32_t outputs;
    uint32_t attrs;
    SX_TRY(count_field(cx, message, 1, SX_ONNX_NODE_INPUTS_MAX, "inputs of a node", &inputs));
    SX_TRY(count_field(cx, message, 2, SX_ONNX_NODE_INPUTS_MAX, "outputs of a node", &outputs));
    SX_TRY(count_field(cx, message, 5, SX_ONNX_ATTRIBUTES_MAX, "attributes of a node", &attrs));
    sx_span *input = SX_NEW_ARRAY(cx, sx_span, (size_t)inputs + outputs + 1);
    sx_onnx_attr *attr = SX_NEW_ARRAY(cx, sx_onnx_attr, (size_t)attrs + 1);
    if (input == NULL || attr == NULL) {
        return cx->error.code;
    }
    node->input = input;
    node->output = input + inputs;
    node->attr = attr;
    for (;;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &message, &field, &more));
        if (!more) {
            return SX_OK;
        }
        SX_TRY(read_node_field(cx, &message, &field, node, input, input + inputs, attr));
    }
}

/* ---- value infos ---- */

const char *sx_onnx_type_kind_name(sx_onnx_type_kind kind)
{
    static const char *const name[] = {"absent",        "tensor",   "sequence", "map",
                                       "sparse tensor", "optional", "unknown"};
    SX_ASSERT(kind < SX_COUNT(name));
    return name[kind];
}

/* TensorShapeProto.Dimension: dim_value 1, dim_param 2. */
static sx_code read_dim(sx_ctx *cx, sx_wire wire, sx_onnx_dim *dim)
{
    for (;;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            return SX_OK;
        }
        if (field.number == 1) {
            SX_TRY(as_int(cx, &wire, &field, &dim->value));
            dim->kind = SX_ONNX_DIM_VALUE;
        } else if (field.number == 2) {
            SX_TRY(as_name(cx, &wire, &field, &dim->name));
            dim->kind = dim->name.len > 0 ? SX_ONNX_DIM_NAME : SX_ONNX_DIM_UNKNOWN;
        }
    }
}

/* TensorShapeProto: dim 1. */
static sx_code read_shape(sx_ctx *cx, sx_wire wire, sx_onnx_value_info *info)
{
    info->has_shape = true;
    for (;;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            return SX_OK;
        }
        if (field.number == 1) {
            sx_span bytes = {NULL, 0};
            SX_TRY(as_bytes(cx, &wire, &field, &bytes));
            if (info->rank == SX_RANK_MAX) {
                return SX_FAIL(cx, SX_LIMIT, "onnx: '%.*s': rank over %d", (int)info->name.len,
                               (const char *)info->name.ptr, SX_RANK_MAX);
            }
            SX_TRY(read_dim(cx, sx_wire_in(&wire, bytes), &info->dim[info->rank++]));
        }
    }
}

/* TypeProto.Tensor: elem_type 1, shape 2. */
static sx_code read_tensor_type(sx_ctx *cx, sx_wire wire, sx_onnx_value_info *info)
{
    for (;;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            return SX_OK;
        }
        if (field.number == 1) {
            SX_TRY(as_int(cx, &wire, &field, &info->data_type));
        } else if (field.number == 2) {
            sx_span bytes = {NULL, 0};
            SX_TRY(as_bytes(cx, &wire, &field, &bytes));
            SX_TRY(read_shape(cx, sx_wire_in(&wire, bytes), info));
        }
    }
}

/* TypeProto: tensor_type 1, sequence_type 4, map_type 5, sparse_tensor_type 8, optional_type 9. */
static sx_code read_type(sx_ctx *cx, sx_wire wire, sx_onnx_value_info *info)
{
    for (;;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            return SX_OK;
        }
        sx_span bytes = {NULL, 0};
        switch (field.number) {
        case 1:
            SX_TRY(as_bytes(cx, &wire, &field, &bytes));
            info->kind = SX_ONNX_TYPE_TENSOR;
            SX_TRY(read_tensor_type(cx, sx_wire_in(&wire, bytes), info));
            break;
        case 4: info->kind = SX_ONNX_TYPE_SEQUENCE; break;
        case 5: info->kind = SX_ONNX_TYPE_MAP; break;
        case 6: /* denotation */ break;
        case 8: info->kind = SX_ONNX_TYPE_SPARSE; break;
        case 9: info->kind = SX_ONNX_TYPE_OPTIONAL; break;
        default: info->kind = SX_ONNX_TYPE_UNKNOWN; break;
        }
    }
}

/* ValueInfoProto: name 1, type 2. */
static sx_code read_value_info(sx_ctx *cx, sx_wire wire, sx_onnx_value_info *info)
{
    memset(info, 0, sizeof(*info));
    for (;;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            return SX_OK;
        }
        if (field.number == 1) {
            SX_TRY(as_name(cx, &wire, &field, &info->name));
        } else if (field.number == 2) {
            sx_span bytes = {NULL, 0};
            SX_TRY(as_bytes(cx, &wire, &field, &bytes));
            SX_TRY(read_type(cx, sx_wire_in(&wire, bytes), info));
        }
    }
}

/* ---- graph and model ---- */

typedef struct {
    sx_onnx_node *node;
    sx_onnx_tensor *initializer;
    sx_onnx_value_info *input;
    sx_onnx_value_info *output;
} graph_room;

static sx_code make_room(sx_ctx *cx, sx_wire message, graph_room *room)
{
    uint32_t nodes;
    uint32_t tensors;
    uint32_t inputs;
    uint32_t outputs;
    SX_TRY(count_field(cx, message, 1, SX_ONNX_NODES_MAX, "nodes", &nodes));
    SX_TRY(count_field(cx, message, 5, SX_ONNX_TENSORS_MAX, "initializers", &tensors));
    SX_TRY(count_field(cx, message, 11, SX_ONNX_TENSORS_MAX, "inputs of the graph", &inputs));
    SX_TRY(count_field(cx, message, 12, SX_ONNX_TENSORS_MAX, "outputs of the graph", &outputs));
    room->node = SX_NEW_ARRAY(cx, sx_onnx_node, (size_t)nodes + 1);
    room->initializer = SX_NEW_ARRAY(cx, sx_onnx_tensor, (size_t)tensors + 1);
    room->input = SX_NEW_ARRAY(cx, sx_onnx_value_info, (size_t)inputs + 1);
    room->output = SX_NEW_ARRAY(cx, sx_onnx_value_info, (size_t)outputs + 1);
    if (room->node == NULL || room->initializer == NULL || room->input == NULL ||
        room->output == NULL) {
        return cx->error.code;
    }
    return SX_OK;
}

static sx_code read_graph_field(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field,
                                const graph_room *room, sx_onnx_graph *graph)
{
    sx_wire inner = sx_wire_in(wire, field->bytes);
    switch (field->number) {
    case 1: return read_node(cx, inner, &room->node[graph->node_count++]);
    case 2: return as_name(cx, wire, field, &graph->name);
    case 5: return read_tensor(cx, inner, &room->initializer[graph->initializer_count++]);
    case 11: return read_value_info(cx, inner, &room->input[graph->input_count++]);
    case 12: return read_value_info(cx, inner, &room->output[graph->output_count++]);
    case 15: graph->sparse_initializer_count++; return SX_OK;
    default: return SX_OK;
    }
}

/* GraphProto: node 1, name 2, initializer 5, doc_string 10, input 11, output 12, value_info 13,
 * sparse_initializer 15. */
sx_code sx_onnx_read_graph(sx_ctx *cx, sx_wire message, sx_onnx_graph *graph)
{
    graph_room room;
    SX_ASSERT(message.rest.ptr != NULL || message.rest.len == 0);
    SX_TRY(make_room(cx, message, &room));
    memset(graph, 0, sizeof(*graph));
    graph->node = room.node;
    graph->initializer = room.initializer;
    graph->input = room.input;
    graph->output = room.output;
    for (;;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &message, &field, &more));
        if (!more) {
            return SX_OK;
        }
        SX_TRY(sx_spend(cx, 1));
        SX_TRY(read_graph_field(cx, &message, &field, &room, graph));
    }
}

/* OperatorSetIdProto: domain 1, version 2. */
static sx_code read_opset(sx_ctx *cx, sx_wire wire, sx_onnx_model *model)
{
    sx_span domain = {NULL, 0};
    int64_t version = 0;
    for (;;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            break;
        }
        if (field.number == 1) {
            SX_TRY(as_name(cx, &wire, &field, &domain));
        } else if (field.number == 2) {
            SX_TRY(as_int(cx, &wire, &field, &version));
        }
    }
    if (domain.len == 0 || sx_span_is(domain, "ai.onnx")) {
        model->opset = version;
    } else {
        model->foreign_domain = domain;
    }
    return SX_OK;
}

static sx_code read_model_field(sx_ctx *cx, const sx_wire *wire, const sx_wire_field *field,
                                sx_onnx_model *model)
{
    sx_span bytes = {NULL, 0};
    switch (field->number) {
    case 1: return as_int(cx, wire, field, &model->ir_version);
    case 7:
        SX_TRY(as_bytes(cx, wire, field, &bytes));
        if (model->has_graph) {
            return SX_FAIL(cx, SX_INPUT, "onnx: before byte %zu: a second graph", offset_of(wire));
        }
        model->has_graph = true;
        return sx_onnx_read_graph(cx, sx_wire_in(wire, bytes), &model->graph);
    case 8:
        SX_TRY(as_bytes(cx, wire, field, &bytes));
        return read_opset(cx, sx_wire_in(wire, bytes), model);
    case 20: model->training_count++; return SX_OK;
    case 25: model->function_count++; return SX_OK;
    default: return SX_OK;
    }
}

/* ModelProto: ir_version 1, graph 7, opset_import 8, training_info 20, functions 25. */
sx_code sx_onnx_read_model(sx_ctx *cx, sx_span file, sx_onnx_model *model)
{
    memset(model, 0, sizeof(*model));
    for (sx_wire wire = sx_wire_of(file);;) {
        sx_wire_field field;
        bool more;
        SX_TRY(sx_wire_next(cx, &wire, &field, &more));
        if (!more) {
            break;
        }
        SX_TRY(read_model_field(cx, &wire, &field, model));
    }
    if (!model->has_graph) {
        return SX_FAIL(cx, SX_INPUT, "onnx: %zu bytes without a graph: not an ONNX model",
                       file.len);
    }
    return SX_OK;
}
