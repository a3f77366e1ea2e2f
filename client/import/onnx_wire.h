/* onnx_wire.h - the protobuf wire format and the messages of onnx.proto, read in place.
 *
 * Nothing is copied: names, raw tensor data and attribute texts are spans into the file, which must outlive
 * the result; arrays of messages lie in cx's arena, and each of their items costs at least one byte of the
 * file. Every length and varint is checked against the message it lies in. The reader does not recurse:
 * messages nest as far as the structures below (six levels), fields it does not know are stepped over,
 * subgraphs are left to be read by who needs them, sequences and the like are noted and refused by the importer, and
 * protobuf groups are malformed here.
 * Errors: SX_INPUT with the byte offset in the file of what is malformed; SX_LIMIT where a bound below is exceeded.
 * Sources: Protocol Buffers encoding specification; onnx.proto of ONNX 1.16 (field numbers).
 */
#ifndef SX_CLIENT_IMPORT_ONNX_WIRE_H
#define SX_CLIENT_IMPORT_ONNX_WIRE_H
#include "core/base/base.h"

#define SX_ONNX_NODES_MAX 200000u
#define SX_ONNX_TENSORS_MAX 200000u
#define SX_ONNX_NODE_INPUTS_MAX 4096u
#define SX_ONNX_ATTRIBUTES_MAX 64u

/* ---- wire format ---- */
typedef enum {
    SX_WIRE_VARINT = 0,
    SX_WIRE_I64 = 1,
    SX_WIRE_BYTES = 2,
    SX_WIRE_I32 = 5
} sx_wire_type;
typedef struct {
    const uint8_t *file; /* start of the whole file, for offsets in errors */
    sx_span rest;        /* of the message being read */
} sx_wire;
typedef struct {
    uint32_t number;
    sx_wire_type type;
    uint64_t value; /* VARINT, I64, I32: the bits */
    sx_span bytes;  /* BYTES */
} sx_wire_field;

sx_wire sx_wire_of(sx_span file);
sx_wire sx_wire_in(const sx_wire *outer, sx_span message);
/* The next field; *more is false at the end of the message. */
sx_code sx_wire_next(sx_ctx *cx, sx_wire *wire, sx_wire_field *field, bool *more);
/* One varint of a packed field. */
sx_code sx_wire_varint(sx_ctx *cx, sx_wire *wire, uint64_t *value);

/* ---- messages ---- */
/* TensorProto.DataType */
typedef enum {
    SX_ONNX_UNDEFINED,
    SX_ONNX_FLOAT,
    SX_ONNX_UINT8,
    SX_ONNX_INT8,
    SX_ONNX_UINT16,
    SX_ONNX_INT16,
    SX_ONNX_INT32,
    SX_ONNX_INT64,
    SX_ONNX_STRING,
    SX_ONNX_BOOL,
    SX_ONNX_FLOAT16,
    SX_ONNX_DOUBLE,
    SX_ONNX_UINT32,
    SX_ONNX_UINT64,
    SX_ONNX_COMPLEX64,
    SX_ONNX_COMPLEX128,
    SX_ONNX_BFLOAT16,
    SX_ONNX_FLOAT8E4M3FN,
    SX_ONNX_FLOAT8E4M3FNUZ,
    SX_ONNX_FLOAT8E5M2,
    SX_ONNX_FLOAT8E5M2FNUZ
} sx_onnx_dtype;
/* "float", "int64", ...; "unknown" for a number that onnx.proto does not have. */
const char *sx_onnx_dtype_name(int64_t data_type);

typedef struct {
    sx_span name; /* may be empty */
    int64_t data_type;
    uint32_t rank;
    int64_t dim[SX_RANK_MAX];
    bool has_raw;
    sx_span raw;     /* row-major little-endian elements */
    sx_wire message; /* the whole TensorProto, for the typed fields */
    bool external;   /* the elements are in another file */
    sx_span location;
    int64_t offset; /* bytes */
    int64_t length; /* bytes; -1 to the end of the file */
} sx_onnx_tensor;

/* AttributeProto.AttributeType */
typedef enum {
    SX_ONNX_ATTR_UNDEFINED,
    SX_ONNX_ATTR_FLOAT,
    SX_ONNX_ATTR_INT,
    SX_ONNX_ATTR_STRING,
    SX_ONNX_ATTR_TENSOR,
    SX_ONNX_ATTR_GRAPH,
    SX_ONNX_ATTR_FLOATS,
    SX_ONNX_ATTR_INTS,
    SX_ONNX_ATTR_STRINGS,
    SX_ONNX_ATTR_TENSORS,
    SX_ONNX_ATTR_GRAPHS,
    SX_ONNX_ATTR_SPARSE_TENSOR,
    SX_ONNX_ATTR_SPARSE_TENSORS,
    SX_ONNX_ATTR_TYPE,
    SX_ONNX_ATTR_TYPES
} sx_onnx_attr_type;
typedef struct {
    sx_span name;
    sx_onnx_attr_type type;
    bool is_reference; /* it names an attribute of an enclosing function */
    /* Which of the next ones holds the value is said by `type`. */
    float f;
    int64_t i;
    sx_span s;
    const sx_onnx_tensor *t;
    sx_wire g; /* a subgraph, which has not been read: sx_onnx_read_graph */
    const float *floats;
    const int64_t *ints;
    const sx_span *strings;
    uint32_t count; /* how many items the one of floats, ints and strings has that `type` names */
} sx_onnx_attr;

typedef struct {
    sx_span name;
    sx_span op_type;
    sx_span domain; /* empty or "ai.onnx" is the standard one */
    const sx_span *input;
    uint32_t input_count;
    const sx_span *output;
    uint32_t output_count;
    const sx_onnx_attr *attr;
    uint32_t attr_count;
} sx_onnx_node;

typedef enum { SX_ONNX_DIM_UNKNOWN, SX_ONNX_DIM_VALUE, SX_ONNX_DIM_NAME } sx_onnx_dim_kind;
typedef struct {
    sx_onnx_dim_kind kind;
    int64_t value;
    sx_span name;
} sx_onnx_dim;
typedef enum {
    SX_ONNX_TYPE_ABSENT,
    SX_ONNX_TYPE_TENSOR,
    SX_ONNX_TYPE_SEQUENCE,
    SX_ONNX_TYPE_MAP,
    SX_ONNX_TYPE_SPARSE,
    SX_ONNX_TYPE_OPTIONAL,
    SX_ONNX_TYPE_UNKNOWN
} sx_onnx_type_kind;
const char *sx_onnx_type_kind_name(sx_onnx_type_kind kind);
typedef struct {
    sx_span name;
    sx_onnx_type_kind kind;
    int64_t data_type;
    bool has_shape;
    uint32_t rank;
    sx_onnx_dim dim[SX_RANK_MAX];
} sx_onnx_value_info;

typedef struct {
    sx_span name;
    const sx_onnx_node *node;
    uint32_t node_count;
    const sx_onnx_tensor *initializer;
    uint32_t initializer_count;
    const sx_onnx_value_info *input;
    uint32_t input_count;
    const sx_onnx_value_info *output;
    uint32_t output_count;
    uint32_t sparse_initializer_count;
} sx_onnx_graph;

typedef struct {
    int64_t ir_version;
    int64_t opset;           /* of the standard domain; 0 if not imported */
    sx_span foreign_domain;  /* some other imported domain; empty if none */
    uint32_t function_count; /* local functions */
    uint32_t training_count; /* TrainingInfoProto messages */
    bool has_graph;
    sx_onnx_graph graph;
} sx_onnx_model;

sx_code sx_onnx_read_model(sx_ctx *cx, sx_span file, sx_onnx_model *model);
/* A GraphProto, not those in the attributes of its nodes. */
sx_code sx_onnx_read_graph(sx_ctx *cx, sx_wire message, sx_onnx_graph *graph);
/* A TensorProto alone, as in the .pb files of test data. */
sx_code sx_onnx_read_tensor(sx_ctx *cx, sx_span file, sx_onnx_tensor *tensor);
/* Number of elements; SX_INPUT for a negative extent, SX_LIMIT past SX_ELEMENTS_MAX. Extents of 0 give 0. */
sx_code sx_onnx_tensor_elements(sx_ctx *cx, const sx_onnx_tensor *tensor, int64_t *elements);
/* Elements as row-major little-endian bytes of `size` each: a span into the file for raw data, else made in
 * the arena from the typed fields. SX_INPUT where their number is not that of the shape; external data must
 * have been resolved into `raw`. */
sx_code sx_onnx_tensor_bytes(sx_ctx *cx, const sx_onnx_tensor *tensor, uint32_t size,
                             sx_span *bytes);
#endif
