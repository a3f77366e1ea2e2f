/* onnx_proto.c - see onnx_proto.h. */
#include "client/export/onnx_proto.h"

#include <string.h>

#define SMALL_BYTES ((size_t)65536) /* messages without tensor data */

static size_t varint_size(uint64_t value)
{
    size_t size = 1;
    for (; value > 127; value >>= 7) {
        size++;
    }
    return size;
}

static void put_varint(sx_buf *to, uint64_t value)
{
    for (; value > 127; value >>= 7) {
        sx_buf_put_u8(to, (uint8_t)(value | 128));
    }
    sx_buf_put_u8(to, (uint8_t)value);
}

static void put_tag(sx_buf *to, uint32_t field, sx_wire_type type)
{
    put_varint(to, (uint64_t)field << 3 | type);
}

void sx_pb_int(sx_buf *to, uint32_t field, int64_t value)
{
    SX_ASSERT(field > 0); /* fields are numbered from 1 */
    put_tag(to, field, SX_WIRE_VARINT);
    put_varint(to, (uint64_t)value);
}

void sx_pb_bytes(sx_buf *to, uint32_t field, sx_span bytes)
{
    SX_ASSERT(field > 0 && (bytes.ptr != NULL || bytes.len == 0));
    put_tag(to, field, SX_WIRE_BYTES);
    put_varint(to, bytes.len);
    sx_buf_put_span(to, bytes);
}

/* Ends a message made apart; its failure becomes that of `to`. */
static void put_message(sx_buf *to, uint32_t field, sx_buf *message)
{
    if (to->code == SX_OK && message->code != SX_OK) {
        to->code = message->code;
    }
    sx_pb_bytes(to, field, sx_buf_span(message));
    sx_buf_fini(message);
}

sx_onnx_dtype sx_pb_dtype(sx_dtype dtype)
{
    static const sx_onnx_dtype number[SX_DTYPE_COUNT] = {[SX_F64] = SX_ONNX_DOUBLE,
                                                         [SX_F32] = SX_ONNX_FLOAT,
                                                         [SX_BF16] = SX_ONNX_BFLOAT16,
                                                         [SX_F16] = SX_ONNX_FLOAT16,
                                                         [SX_F8E4M3] = SX_ONNX_FLOAT8E4M3FN,
                                                         [SX_F8E5M2] = SX_ONNX_FLOAT8E5M2,
                                                         [SX_I64] = SX_ONNX_INT64,
                                                         [SX_I32] = SX_ONNX_INT32,
                                                         [SX_I16] = SX_ONNX_INT16,
                                                         [SX_I8] = SX_ONNX_INT8,
                                                         [SX_U8] = SX_ONNX_UINT8,
                                                         [SX_BOOL] = SX_ONNX_BOOL};
    SX_ASSERT(dtype < SX_DTYPE_COUNT);
    return number[dtype];
}

/* ---- attributes: name 1, f 2, i 3, s 4, ints 8, type 20 ---- */

static void begin_attr(sx_buf *attr, const char *name)
{
    sx_buf_init(attr, SMALL_BYTES);
    sx_pb_bytes(attr, 1, sx_span_of(name));
}

static void end_attr(sx_buf *node, sx_buf *attr, sx_onnx_attr_type type)
{
    sx_pb_int(attr, 20, type);
    put_message(node, 5, attr);
}

void sx_pb_attr_int(sx_buf *node, const char *name, int64_t value)
{
    sx_buf attr;
    begin_attr(&attr, name);
    sx_pb_int(&attr, 3, value);
    end_attr(node, &attr, SX_ONNX_ATTR_INT);
}

void sx_pb_attr_float(sx_buf *node, const char *name, float value)
{
    sx_buf attr;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    begin_attr(&attr, name);
    put_tag(&attr, 2, SX_WIRE_I32);
    sx_buf_put_u32(&attr, bits);
    end_attr(node, &attr, SX_ONNX_ATTR_FLOAT);
}

void sx_pb_attr_text(sx_buf *node, const char *name, const char *value)
{
    sx_buf attr;
    begin_attr(&attr, name);
    sx_pb_bytes(&attr, 4, sx_span_of(value));
    end_attr(node, &attr, SX_ONNX_ATTR_STRING);
}

void sx_pb_attr_ints(sx_buf *node, const char *name, const int64_t *value, uint32_t count)
{
    SX_ASSERT(value != NULL || count == 0);
    sx_buf attr;
    begin_attr(&attr, name);
    for (uint32_t i = 0; i < count; i++) {
        sx_pb_int(&attr, 8, value[i]);
    }
    end_attr(node, &attr, SX_ONNX_ATTR_INTS);
}

/* ---- tensors: dims 1, data_type 2, name 8, raw_data 9 ---- */

void sx_pb_tensor(sx_buf *to, uint32_t field, sx_span name, sx_dtype dtype, const int64_t *dim,
                  uint32_t rank, sx_span bytes)
{
    SX_ASSERT(rank <= SX_RANK_MAX && (bytes.ptr != NULL || bytes.len == 0));
    sx_buf head;
    sx_buf_init(&head, SMALL_BYTES);
    for (uint32_t d = 0; d < rank; d++) {
        sx_pb_int(&head, 1, dim[d]);
    }
    sx_pb_int(&head, 2, sx_pb_dtype(dtype));
    sx_pb_bytes(&head, 8, name);
    if (to->code == SX_OK && head.code != SX_OK) {
        to->code = head.code;
    }
    put_tag(to, field, SX_WIRE_BYTES);
    put_varint(to, head.len + 1 + varint_size(bytes.len) + bytes.len);
    sx_buf_put_span(to, sx_buf_span(&head));
    sx_pb_bytes(to, 9, bytes);
    sx_buf_fini(&head);
}

/* ---- value infos: name 1, type 2 { tensor_type 1 { elem_type 1, shape 2 { dim 1 { dim_value 1, dim_param 2 }
 * } } } ---- */

void sx_pb_value_info(sx_buf *to, uint32_t field, sx_span name, const sx_type *type,
                      const sx_symbol *symbol)
{
    SX_ASSERT(field > 0 && type->rank <= SX_RANK_MAX);
    sx_buf shape, tensor, outer, info;
    sx_buf_init(&shape, SMALL_BYTES);
    for (uint32_t d = 0; d < type->rank; d++) {
        sx_buf dim;
        sx_buf_init(&dim, SMALL_BYTES);
        if (sx_dim_is_constant(type->dim[d])) {
            sx_pb_int(&dim, 1, type->dim[d].scale);
        } else if (type->dim[d].scale == 1) {
            sx_pb_bytes(&dim, 2, symbol[type->dim[d].symbol].name);
        }
        put_message(&shape, 1, &dim);
    }
    sx_buf_init(&tensor, SMALL_BYTES);
    sx_pb_int(&tensor, 1, sx_pb_dtype(type->dtype));
    put_message(&tensor, 2, &shape);
    sx_buf_init(&outer, SMALL_BYTES);
    put_message(&outer, 1, &tensor);
    sx_buf_init(&info, SMALL_BYTES);
    sx_pb_bytes(&info, 1, name);
    put_message(&info, 2, &outer);
    put_message(to, field, &info);
}
