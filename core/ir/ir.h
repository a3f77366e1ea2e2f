/* ir.h - the tensor program: a graph in SSA form over typed tensors, its text, its checker.
 *
 * A graph is arrays; nodes are named by sx_node_id, and a node's inputs have smaller ids (so the array is in
 * topological order and cycles cannot be written down). Every node has one result. Attributes are interned:
 * equal attributes have equal ids within one table, so that "same operation" is a comparison of integers (the
 * e-graph shares the table). Everything lives in the arena of the sx_ctx it was made with.
 *
 * Text form (docs/IR.md):   sx 1
 *                           graph "mlp" (batch in [1, 4096]) {
 *                             %x = parameter {name = "x", weight = 0} : f32[batch, 784]
 *                             %0 = constant {data = 0.5} : f32[]
 *                             %1 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 512]
 *                             return %1 as "y"
 *                           }
 */
#ifndef SX_CORE_IR_IR_H
#define SX_CORE_IR_IR_H
#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/hash.h"
#include "core/base/idmap.h"

/* ---- types ---- */
typedef enum {
#define SX_DTYPE(name, enumerator, number, bytes, class_) SX_##enumerator = (number),
#include "core/ir/dtypes.def"
#undef SX_DTYPE
    SX_DTYPE_COUNT
} sx_dtype;
typedef enum { SX_CLASS_FLOAT, SX_CLASS_INT, SX_CLASS_BOOL } sx_dtype_class;

const char *sx_dtype_name(sx_dtype dtype);
uint32_t sx_dtype_bytes(sx_dtype dtype);
sx_dtype_class sx_dtype_class_of(sx_dtype dtype);
bool sx_dtype_parse(sx_span text, sx_dtype *dtype);

/* An extent or a stride: `scale` if symbol is SX_NO_SYMBOL, else scale * (value of the symbol). scale >= 0. A symbol
 * may stand for a sum of products of others (core/ir/extent.h); what has no such row cannot be written
 * (SX_UNIMPLEMENTED where it would arise). */
#define SX_NO_SYMBOL UINT32_MAX
#define SX_SYMBOLS_MAX 64u /* of a graph */
typedef struct {
    int64_t scale;
    uint32_t symbol;
} sx_dim;

static inline sx_dim sx_dim_of(int64_t extent)
{
    return (sx_dim){extent, SX_NO_SYMBOL};
}
static inline bool sx_dim_is_constant(sx_dim dim)
{
    return dim.symbol == SX_NO_SYMBOL;
}
static inline bool sx_dim_equal(sx_dim a, sx_dim b)
{
    return a.scale == b.scale && (a.symbol == b.symbol || a.scale == 0);
}
bool sx_dim_multiply(sx_dim a, sx_dim b, sx_dim *product); /* false: two symbols or overflow */
/* Of strides alone, which have no rows for what they are multiples of: the product of two symbols is a symbol of its
 * own, from SX_SYMBOLS_MAX on. A type has none. */
bool sx_dim_product(sx_dim a, sx_dim b, sx_dim *product); /* false: three symbols or overflow */
/* Is it the product of two symbols, and of which? */
bool sx_dim_factors(sx_dim dim, sx_dim factor[2]);
bool sx_dim_add(sx_dim a, sx_dim b, sx_dim *sum);         /* false: mixed symbols or overflow */
bool sx_dim_divide(sx_dim a, sx_dim b, sx_dim *quotient); /* exact division only */

/* What the checker holds of every tensor: rank <= SX_RANK_MAX; each extent at least 0, or 1 with a symbol, and
 * at most SX_EXTENT_MAX for the largest value of its symbol; at most SX_ELEMENTS_MAX elements for the largest
 * values of all symbols. */
typedef struct {
    sx_dtype dtype;
    uint32_t rank;
    sx_dim dim[SX_RANK_MAX];
} sx_type;
bool sx_type_equal(const sx_type *a, const sx_type *b);
bool sx_type_same_shape(const sx_type *a, const sx_type *b);
bool sx_type_is_static(const sx_type *type);
/* Elements of a static type. */
int64_t sx_tensor_elements(const sx_type *type);
/* Product of the extents (0 if one of them is 0); false if it has two symbols or its scale exceeds SX_ELEMENTS_MAX. */
bool sx_type_elements(const sx_type *type, sx_dim *elements);
/* Row-major strides in elements; false if one of them has three symbols or exceeds SX_ELEMENTS_MAX. [a, b, 4] has
 * strides [4 * b, 4, 1], though its number of elements is no extent. */
bool sx_type_strides(const sx_type *type, sx_dim stride[SX_RANK_MAX]);

/* ---- attributes ---- */
typedef struct {
    uint32_t count;
    int64_t v[SX_RANK_MAX];
} sx_ints;
typedef struct {
    uint32_t count;
    sx_dim v[SX_RANK_MAX];
} sx_extents;
typedef enum {
    SX_SUM,
    SX_PRODUCT,
    SX_MAX,
    SX_MIN,
    /* How many of them reductions have. */
    SX_REDUCER_COUNT,
    /* Of scatter alone: an update takes the place of what was there. */
    SX_REPLACE = SX_REDUCER_COUNT
} sx_reducer; /* text: add multiply maximum minimum set */
typedef enum { SX_EQ, SX_NE, SX_LT, SX_LE, SX_GT, SX_GE, SX_DIRECTION_COUNT } sx_direction;
/* Who sends to whom. */
typedef struct {
    int64_t source, target;
} sx_rank_pair;
typedef struct {
    const sx_rank_pair *pair;
    uint32_t count;
} sx_rank_pairs;
#define SX_RANK_PAIRS_MAX 4096u
typedef struct sx_body sx_body;       /* core/ir/fused.h */
typedef struct sx_program sx_program; /* core/ir/program.h */

#define SX_ATTR_FIELD_INT int64_t
#define SX_ATTR_FIELD_INTS sx_ints
#define SX_ATTR_FIELD_EXTENTS sx_extents
#define SX_ATTR_FIELD_FLOAT double
#define SX_ATTR_FIELD_REDUCER sx_reducer
#define SX_ATTR_FIELD_DIRECTION sx_direction
#define SX_ATTR_FIELD_TYPE sx_type
#define SX_ATTR_FIELD_BYTES sx_span
#define SX_ATTR_FIELD_NAME sx_span
#define SX_ATTR_FIELD_BODY const sx_body *
#define SX_ATTR_FIELD_PROGRAM const sx_program *
#define SX_ATTR_FIELD_PAIRS sx_rank_pairs
typedef enum {
#define SX_ATTR(name, kind, help) SX_ATTR_##name,
#include "core/ir/attrs.def"
#undef SX_ATTR
    SX_ATTR_COUNT
} sx_attr_field;
#define SX_A(name) (UINT64_C(1) << SX_ATTR_##name)
typedef enum {
    SX_KIND_INT,
    SX_KIND_INTS,
    SX_KIND_EXTENTS,
    SX_KIND_FLOAT,
    SX_KIND_REDUCER,
    SX_KIND_DIRECTION,
    SX_KIND_TYPE,
    SX_KIND_BYTES,
    SX_KIND_NAME,
    SX_KIND_BODY,
    SX_KIND_PROGRAM,
    SX_KIND_PAIRS
} sx_attr_kind;
typedef struct {
    const char *name;
    const char *help;
    sx_attr_kind kind;
} sx_attr_info;
const sx_attr_info *sx_attr_info_of(sx_attr_field field);
bool sx_attr_field_parse(sx_span name, sx_attr_field *field);
const char *sx_reducer_name(sx_reducer reducer); /* "add", ... */
bool sx_reducer_parse(sx_span name, sx_reducer *reducer);
const char *sx_direction_name(sx_direction direction); /* "eq", ... */
bool sx_direction_parse(sx_span name, sx_direction *direction);
typedef struct {
    uint64_t present; /* set of SX_A(..); fields not present are zero */
#define SX_ATTR(name, kind, help) SX_ATTR_FIELD_##kind name;
#include "core/ir/attrs.def"
#undef SX_ATTR
} sx_attr;

typedef struct {
    uint32_t i;
} sx_attr_id;
typedef struct {
    sx_attr **attr; /* [count]; rows stay where they are; id 0 is the empty attribute */
    uint32_t count;
    uint32_t capacity;
    uint64_t *hash; /* [hash_capacity] of the rows; 0: not known */
    uint32_t hash_capacity;
    sx_idmap map;
} sx_attr_table;
sx_code sx_attr_table_init(sx_ctx *cx, sx_attr_table *table);
/* The id of `attr`, equal content giving equal ids; bytes, names, bodies and programs are copied into cx's arena when
 * new. FLOATs are compared by bits. */
sx_code sx_attr_intern(sx_ctx *cx, sx_attr_table *table, const sx_attr *attr, sx_attr_id *id);
/* The same for row `row` of another table. */
sx_code sx_attr_intern_row(sx_ctx *cx, sx_attr_table *table, const sx_attr_table *from,
                           uint32_t row, sx_attr_id *id);
uint64_t sx_attr_hash(const sx_attr *attr);
/* A table of `count` rows for the caller to fill (those of a stored graph), all empty, and then what finds
 * them by content. Row 0 stays empty; others that do are found by nobody.  errors  SX_CORRUPT two rows are equal */
sx_code sx_attr_table_restore(sx_ctx *cx, sx_attr_table *table, uint32_t count);
sx_code sx_attr_table_index(sx_ctx *cx, sx_attr_table *table);
/* Row `id` under another name, which is borrowed: the caller sees to it that no other row is equal then. */
sx_code sx_attr_table_rename(sx_ctx *cx, sx_attr_table *table, uint32_t id, sx_span name);
bool sx_attr_equal(const sx_attr *a, const sx_attr *b);
/* attr_bytes.c: as bytes that read back to an equal attribute. Reading moves `bytes` on and treats them as
 * hostile: what the text parser refuses is SX_CORRUPT; whether the attribute fits an operation is
 * sx_infer_type's question. Bytes and names point into the input. */
void sx_attr_encode(const sx_attr *attr, sx_buf *to);
sx_code sx_attr_decode(sx_ctx *cx, sx_span *bytes, uint32_t symbol_count, sx_attr *attr);
static inline const sx_attr *sx_attr_get(const sx_attr_table *table, sx_attr_id id)
{
    SX_ASSERT(id.i < table->count);
    return table->attr[id.i];
}

/* ---- operations ---- */
typedef enum {
    SX_OPCLASS_LEAF,
    SX_OPCLASS_UNARY,
    SX_OPCLASS_BINARY,
    SX_OPCLASS_COMPARE,
    SX_OPCLASS_SELECT,
    SX_OPCLASS_CONVERT,
    SX_OPCLASS_VIEW,
    SX_OPCLASS_CONCAT,
    SX_OPCLASS_REDUCE,
    SX_OPCLASS_DOT,
    SX_OPCLASS_GATHER,
    SX_OPCLASS_SCATTER,
    SX_OPCLASS_DYNAMIC,
    SX_OPCLASS_SORT,
    SX_OPCLASS_MOVE,
    SX_OPCLASS_WINDOW,
    SX_OPCLASS_CONV,
    SX_OPCLASS_COMPOSITE,
    SX_OPCLASS_REGION,
    SX_OPCLASS_COLLECTIVE,
    SX_OPCLASS_FUSED
} sx_op_class;
typedef enum {
#define SX_OP(name, enumerator, class_, min, max, attrs, help) SX_OP_##enumerator,
#include "core/ir/ops.def"
#undef SX_OP
    SX_OP_COUNT
} sx_op;
typedef struct {
    const char *name;
    const char *help;
    uint32_t name_len;
    sx_op_class op_class;
    uint32_t input_min;
    uint32_t input_max;
    uint64_t attrs; /* set of SX_A(..) it carries */
} sx_op_info;
extern const sx_op_info sx_op_table[SX_OP_COUNT];
static inline const sx_op_info *sx_op_info_of(sx_op op)
{
    SX_ASSERT(op < SX_OP_COUNT);
    return &sx_op_table[op];
}
bool sx_op_parse(sx_span name, sx_op *op);
/* Element types an elementwise operation works on: a bit for each sx_dtype_class; 0 for other operations,
 * compare, select, convert. */
uint32_t sx_op_classes(sx_op op);
static inline bool sx_op_is_elementwise(sx_op op)
{
    sx_op_class c = sx_op_info_of(op)->op_class;
    return c >= SX_OPCLASS_UNARY && c <= SX_OPCLASS_CONVERT;
}

/* Two nodes that differ in `result` alone are siblings: results of one computation. */
bool sx_attr_is_sibling(const sx_attr *a, const sx_attr *b);

/* The one way to write an attribute of `op`: lists that are not there are empty, convert has no shape, a
 * constant of equal elements is its first element.  Result: `attr`, where it is written so, or `made`, which shares
 * memory with it */
const sx_attr *sx_attr_normal(sx_op op, const sx_attr *attr, sx_attr *made);

/* ---- graphs ---- */
typedef struct {
    uint32_t i;
} sx_node_id;
#define SX_INPUTS_MAX 64
typedef struct {
    sx_op op;
    sx_attr_id attr;
    uint32_t input_first; /* index into graph->input */
    uint32_t input_count;
    sx_type type; /* of the result */
} sx_node;
typedef struct {
    sx_span name;
    int64_t low, high; /* inclusive interval, 1 <= low <= high <= SX_EXTENT_MAX */
    /* What a derived symbol stands for (core/ir/extent.h); its name is this as text, its interval bounds of it. NULL: a
     * declared symbol. */
    const struct sx_polynomial *sum;
} sx_symbol;
typedef struct {
    sx_span name;
    sx_node_id node;
} sx_output;
typedef struct sx_graph {
    sx_span name;
    sx_node *node;
    uint32_t node_count, node_capacity;
    sx_node_id *input; /* inputs of all nodes, one after the other */
    uint32_t input_count, input_capacity;
    sx_symbol *symbol;
    uint32_t symbol_count, symbol_capacity;
    sx_output *output;
    uint32_t output_count, output_capacity;
    sx_attr_table *attrs;         /* may be shared between graphs of one ctx */
    struct sx_sharding *sharding; /* on a mesh of devices (shard.h); NULL: nothing is said */
    struct sx_effects *effects;   /* state, donated inputs (effect.h); NULL: there are none */
    struct sx_origins *origins; /* names of the user's for its nodes (origin.h); NULL: not known */
} sx_graph;
#define SX_NODES_MAX 1000000u
#define SX_OUTPUTS_MAX 1024u

/* An empty graph; `attrs` NULL makes a new table. */
sx_code sx_graph_make(sx_ctx *cx, sx_span name, sx_attr_table *attrs, sx_graph **graph);
sx_code sx_graph_add_symbol(sx_ctx *cx, sx_graph *graph, sx_span name, int64_t low, int64_t high,
                            uint32_t *symbol);
/* `from`, node by node, over the attributes and symbols of `to`, whose name it takes: symbols are paired by number. */
sx_code sx_graph_adopt(sx_ctx *cx, const sx_graph *from, const sx_graph *to, sx_graph **out);
/* Appends a node: infers and checks its type. SX_INPUT names node, operation, axis and both sizes.
 * attr.present is the operation's set of attributes; it is stored as sx_attr_normal writes it. */
sx_code sx_graph_add(sx_ctx *cx, sx_graph *graph, sx_op op, const sx_attr *attr,
                     const sx_node_id *input, uint32_t input_count, sx_node_id *id);
/* The same for a copy of a node of `from`, over other inputs. Its type is not inferred again where it cannot be another
 * one: the symbols of both graphs stand for the same, and the inputs have the types that the node's own have. */
sx_code sx_graph_add_copy(sx_ctx *cx, sx_graph *graph, const sx_graph *from, const sx_node *node,
                          const sx_node_id *input, sx_node_id *id);
sx_code sx_graph_add_output(sx_ctx *cx, sx_graph *graph, sx_span name, sx_node_id node);
static inline const sx_node *sx_graph_node(const sx_graph *graph, sx_node_id id)
{
    SX_ASSERT(id.i < graph->node_count);
    return &graph->node[id.i];
}
static inline sx_node_id sx_graph_input(const sx_graph *graph, const sx_node *node, uint32_t k)
{
    SX_ASSERT(k < node->input_count);
    return graph->input[node->input_first + k];
}
static inline const sx_attr *sx_graph_attr(const sx_graph *graph, const sx_node *node)
{
    return sx_attr_get(graph->attrs, node->attr);
}

/* build.c: shorthands over sx_graph_add used by importers, rules and tests. Each appends the nodes it needs. */
sx_code sx_build_parameter(sx_ctx *cx, sx_graph *g, const char *name, bool weight,
                           const sx_type *type, sx_node_id *id);
sx_code sx_build_scalar(sx_ctx *cx, sx_graph *g, const sx_type *type, double value,
                        sx_node_id *id); /* splat */
sx_code sx_build_unary(sx_ctx *cx, sx_graph *g, sx_op op, sx_node_id a, sx_node_id *id);
sx_code sx_build_binary(sx_ctx *cx, sx_graph *g, sx_op op, sx_node_id a, sx_node_id b,
                        sx_node_id *id);
sx_code sx_build_transpose(sx_ctx *cx, sx_graph *g, sx_node_id a, const sx_ints *perm,
                           sx_node_id *id);
sx_code sx_build_broadcast(sx_ctx *cx, sx_graph *g, sx_node_id a, const sx_ints *dims,
                           const sx_type *type, sx_node_id *id);
sx_code sx_build_reduce(sx_ctx *cx, sx_graph *g, sx_reducer reducer, sx_node_id a,
                        const sx_ints *dims, sx_node_id *id);

/* check.c: the result type of an operation, or SX_INPUT / SX_UNIMPLEMENTED with a text that names operation,
 * axis and both sizes. `symbols` gives intervals and names for messages. The e-graph's type analysis is this
 * function. */
sx_code sx_infer_type(sx_ctx *cx, const sx_symbol *symbols, uint32_t symbol_count, sx_op op,
                      const sx_attr *attr, const sx_type *input, uint32_t input_count,
                      sx_type *result);
/* The whole graph: ids, arities, attributes, types, symbols, outputs present. */
sx_code sx_graph_check(sx_ctx *cx, const sx_graph *graph);

/* bind.c: every symbol replaced by a value inside its interval. SX_INPUT names the symbol that is missing,
 * unknown or out of range, with the interval. */
typedef struct {
    sx_span name;
    int64_t value;
} sx_binding;
sx_code sx_graph_bind(sx_ctx *cx, const sx_graph *graph, const sx_binding *binding,
                      uint32_t binding_count, sx_graph **bound);
/* The same for one node alone: *there of *bound, whose inputs are parameters. */
sx_code sx_graph_bind_node(sx_ctx *cx, const sx_graph *graph, const sx_binding *binding,
                           uint32_t binding_count, sx_node_id id, sx_graph **bound,
                           sx_node_id *there);

/* canon.c: the canonical form: nodes reachable from the outputs, plus all parameters, numbered in depth-first
 * order from the outputs (parameters first, in their order), identical nodes merged, inner names gone. Two
 * programs that differ in node order, dead code or duplicates have equal canonical text. Origins are left
 * behind (origin.h). */
sx_code sx_graph_canon(sx_ctx *cx, const sx_graph *graph, sx_graph **canonical);
/* BLAKE2b-256 of the canonical form (interface names included, weight values not part of a graph). */
sx_code sx_graph_key(sx_ctx *cx, const sx_graph *graph, sx_key *key);
/* The same for a graph that is as sx_graph_canon made it, without a name. */
sx_code sx_graph_key_canonical(sx_ctx *cx, const sx_graph *canonical, sx_key *key);

/* print.c, parse.c: text that reads back to an equal graph. Errors of parse: SX_INPUT "line L:C: ...". */
sx_code sx_graph_print(sx_ctx *cx, const sx_graph *graph, sx_buf *text);
void sx_type_print(const sx_type *type, const sx_symbol *symbols, uint32_t symbol_count,
                   sx_buf *text);
/* " {perm = [1, 0]}", or nothing where no attribute is worth saying. */
void sx_attr_print(const sx_attr *attr, const sx_symbol *symbols, uint32_t symbol_count,
                   sx_buf *out);
sx_code sx_graph_parse(sx_ctx *cx, sx_span text, sx_graph **graph);
#define SX_TEXT_BYTES_MAX ((size_t)64 << 20)
#define SX_TEXT_VERSION 1 /* the text starts with "sx 1" */

/* compose.c: a composite (softmax, layer_norm, rms_norm, batch_norm, attention, log_softmax, relu, gelu,
 * gelu_tanh, silu) as primitives appended to `graph`. This decomposition is the meaning of the composite.
 * sx_decompose also takes a sort (sort.c), which is no composite: it is evaluated as it is. */
bool sx_op_is_composite(sx_op op);
sx_code sx_decompose(sx_ctx *cx, sx_graph *graph, sx_op op, const sx_attr *attr,
                     const sx_node_id *input, uint32_t input_count, sx_node_id *result);
/* The same program with every composite replaced by its decomposition; `graph` itself where there is none. */
sx_code sx_graph_expand(sx_ctx *cx, const sx_graph *graph, const sx_graph **expanded);
#endif
