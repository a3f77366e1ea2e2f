/* onnx_proto.h - inside client/export: messages of onnx.proto, written. The reader is client/import/onnx_wire.h.
 *
 * Everything is appended to buffers whose first failure sticks (core/base/buf.h), so a writer checks once at its end.
 * Sources: Protocol Buffers encoding specification; onnx.proto of ONNX 1.16 (field numbers).
 */
#ifndef SX_CLIENT_EXPORT_ONNX_PROTO_H
#define SX_CLIENT_EXPORT_ONNX_PROTO_H
#include "client/import/onnx_wire.h"
#include "core/ir/ir.h"

void sx_pb_int(sx_buf *to, uint32_t field, int64_t value);
void sx_pb_bytes(sx_buf *to, uint32_t field, sx_span bytes);

/* TensorProto.DataType of an element type. */
sx_onnx_dtype sx_pb_dtype(sx_dtype dtype);

/* AttributeProtos of a NodeProto (field 5). */
void sx_pb_attr_int(sx_buf *node, const char *name, int64_t value);
void sx_pb_attr_float(sx_buf *node, const char *name, float value);
void sx_pb_attr_text(sx_buf *node, const char *name, const char *value);
void sx_pb_attr_ints(sx_buf *node, const char *name, const int64_t *value, uint32_t count);

/* A TensorProto as field `field` of `to`: row-major little-endian elements. */
void sx_pb_tensor(sx_buf *to, uint32_t field, sx_span name, sx_dtype dtype, const int64_t *dim,
                  uint32_t rank, sx_span bytes);
/* A ValueInfoProto as field `field`. Extents that are a multiple of a symbol are left open. */
void sx_pb_value_info(sx_buf *to, uint32_t field, sx_span name, const sx_type *type,
                      const sx_symbol *symbol);
#endif
