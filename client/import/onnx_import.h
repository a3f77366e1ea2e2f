/* onnx_import.h - what the operator handlers of the ONNX importer share (inner header).
 *
 * A value is one tensor name of the file: a node of the graph, or data not yet in the graph, or integers known
 * while importing (`known`: elements that are constants or symbolic extents, how shape computations fold). It
 * enters the graph when an operator needs it there.
 *
 * Expressions: the sx_ox_ functions append nodes and fail sticky: after the first failure (im->code) they do
 * nothing and return SX_OX_NONE, whose type is a scalar. So a handler writes its formula and returns im->code.
 */
#ifndef SX_CLIENT_IMPORT_ONNX_IMPORT_H
#define SX_CLIENT_IMPORT_ONNX_IMPORT_H
#include "client/import/import.h"
#include "client/import/onnx_kinds.h"
#include "client/import/onnx_wire.h"
#include "core/ir/extent.h"
#include "core/ir/refusals.h"

#define SX_OX_KNOWN_MAX 4096     /* elements of a value that is followed while importing */
#define SX_OX_INPUTS_MAX 256     /* of one node */
#define SX_OX_SUBGRAPHS_MAX 8u   /* subgraphs inside each other */
#define SX_OX_CAPTURES_MAX 1024u /* values from outside that the subgraphs of a node name */

typedef struct {
    sx_span name;
    sx_type type; /* extents >= 1, but 0 is possible for known integers */
    bool has_node;
    sx_node_id node; /* where it is in the graph, if `has_node` */
    /* It becomes a parameter, and not a constant, when an operator needs it in the graph. */
    bool is_weight;
    bool has_data;
    sx_span data; /* if `has_data`: all its elements, row-major and little-endian */
    /* All elements of an integer or bool value, row-major; NULL: they are not known. The scale of a constant may be
     * negative. */
    const sx_dim *known;
    uint32_t known_count;
    /* It would come from a node that is not supported, and no field but the name is valid. */
    bool refused;
} sx_ox_value;

typedef struct sx_ox sx_ox;
typedef sx_code (*sx_ox_handler)(sx_ox *im);
typedef struct {
    const char *name;
    int64_t since; /* opset from which this entry holds, up to the next entry of the same name */
    sx_ox_handler handler;
    uint32_t input_min, input_max; /* how many inputs a node may name */
    int arg; /* for the handler, so that several entries share one: an operation, a kind */
} sx_ox_entry;

struct sx_ox {
    sx_ctx *cx;
    const sx_onnx_options *options; /* NULL: all defaults */
    int64_t symbol_high;            /* of dimensions that `options` says nothing of */
    const sx_onnx_model *model;
    sx_graph *graph;     /* what has been imported so far */
    sx_weights *weights; /* those of its parameters that are weights */
    sx_ox_value **value; /* every tensor name that has been declared so far */
    uint32_t value_count, value_capacity;
    sx_idmap names;           /* the number of a value by its name */
    uint32_t anonymous_count; /* symbols that were made for dimensions without a name */
    sx_code code;             /* the first failure; after it the sx_ox_ functions do nothing */
    sx_refusals refusals;     /* all nodes that are not supported, for one message */
    uint32_t refused_index;   /* the last of them */
    /* Inside of subgraphs: how many; whether `graph` is the body of an operation, which sees nothing but its
     * parameters; and else where names are looked up that are not declared here. */
    uint32_t depth;
    bool is_body;
    const sx_ox *outside;
    /* The node that is being imported; so are the fields below. */
    const sx_onnx_node *node;
    uint32_t node_index;
    const sx_ox_entry *entry;
    sx_ox_value *input[SX_OX_INPUTS_MAX]; /* NULL: left out */
    uint32_t input_count;
    /* The attributes that the handler looked at, a set of 1 << number. One that it does not know is refused. */
    uint64_t attr_read;
};
_Static_assert(SX_ONNX_ATTRIBUTES_MAX <= 64, "set of attributes of a node");

#define SX_OX_NONE ((sx_node_id){UINT32_MAX})

/* ---- onnx.c ---- */
/* The entry for an operator at the model's opset, or NULL; *known tells whether the name exists at some opset. */
const sx_ox_entry *sx_ox_find(sx_span name, int64_t opset, bool *known);
/* The initializers and nodes of a subgraph, into im->graph. Failures name the nodes. */
sx_code sx_ox_add_subgraph(sx_ox *im, const sx_onnx_graph *graph);

/* ---- onnx_ops_control.c ---- */
/* Do the subgraphs of the node name what a node that is not supported would have made? */
bool sx_ox_captures_refused(sx_ox *im);

/* What subgraphs name from outside. */
typedef struct {
    sx_ox_value *value[SX_OX_CAPTURES_MAX];
    /* It is an operand of the operation, and a parameter of its bodies. */
    bool is_operand[SX_OX_CAPTURES_MAX];
    uint32_t count;
} sx_ox_captures;
/* What the subgraphs of the node name from outside; operands are appended to `input`. NULL on failure. */
const sx_ox_captures *sx_ox_capture(sx_ox *im, sx_node_id input[SX_INPUTS_MAX], uint32_t *count);
sx_code sx_ox_read_subgraph(sx_ox *im, const char *name, sx_onnx_graph *graph);
/* What a body is made of: what `begin` adds (first of all its own parameters), captures, a subgraph, and then what
 * `end` adds, which gives the results; without it they are those of the subgraph. All but one of graph and end may be
 * NULL. */
typedef struct {
    const sx_onnx_graph *graph;
    const sx_ox_captures *captures;
    sx_code (*begin)(sx_ox *im, void *self);
    sx_code (*end)(sx_ox *im, void *self);
    void *self;
} sx_ox_body;
sx_code sx_ox_add_body(sx_ox *im, const sx_ox_body *body, const sx_program **program);
sx_code sx_ox_add_result(sx_ox *im, uint32_t k, sx_node_id node); /* of the body, named by k */
/* All outputs of the subgraph from `first` on. */
sx_code sx_ox_add_results(sx_ox *im, const sx_onnx_graph *graph, uint32_t first);
/* NULL and a failure where nothing makes it. */
sx_ox_value *sx_ox_output_of(sx_ox *im, const sx_onnx_graph *graph, uint32_t k);
/* The only element as a scalar; SX_INPUT names it `what`. */
sx_node_id sx_ox_one(sx_ox *im, sx_node_id p, sx_dtype dtype, const char *what);

/* ---- onnx_value.c: values and attributes of the node ---- */
sx_ox_value *sx_ox_input(const sx_ox *im, uint32_t k); /* NULL if left out */
/* Input k in the graph; SX_OX_NONE if left out (no failure) or on failure. */
sx_node_id sx_ox_in(sx_ox *im, uint32_t k);
sx_node_id sx_ox_node_of(sx_ox *im, sx_ox_value *value);
/* A constant of these elements; one element is kept where all are the same. `data` is borrowed. */
sx_node_id sx_ox_add_constant(sx_ox *im, const sx_type *type, sx_span data);
/* Input k as integers known now; SX_UNIMPLEMENTED otherwise, naming it `what`. */
sx_code sx_ox_known(sx_ox *im, uint32_t k, const char *what, const sx_dim **element,
                    uint32_t *count);
/* The same, constants only. */
sx_code sx_ox_known_ints(sx_ox *im, uint32_t k, const char *what, int64_t *element, uint32_t most,
                         uint32_t *count);
bool sx_ox_wants(const sx_ox *im, uint32_t k); /* does the node have a k-th output? */
sx_code sx_ox_set(sx_ox *im, uint32_t k, sx_node_id node);
sx_code sx_ox_set_known(sx_ox *im, uint32_t k, const sx_type *type, const sx_dim *element,
                        uint32_t count);
sx_code sx_ox_set_value(sx_ox *im, uint32_t k, const sx_ox_value *value); /* another name for it */
sx_code sx_ox_value_of_tensor(sx_ox *im, const sx_onnx_tensor *tensor, sx_span name, bool weight,
                              sx_ox_value *value);
sx_code sx_ox_value_of_bytes(sx_ox *im, const sx_type *type, sx_span bytes, sx_ox_value *value);
sx_code sx_ox_declare(sx_ox *im, const sx_ox_value *value); /* SX_INPUT if the name is taken */
sx_ox_value *sx_ox_lookup(const sx_ox *im, sx_span name);

/* NULL if absent. A node with an attribute that its handler never asked for is refused, so that no later
 * meaning is overlooked. */
const sx_onnx_attr *sx_ox_attr(sx_ox *im, const char *name);
sx_code sx_ox_attr_int(sx_ox *im, const char *name, int64_t fallback, int64_t *value);
/* Attributes are f32, and so is the value of one that is absent. */
sx_code sx_ox_attr_float(sx_ox *im, const char *name, double fallback, double *value);
sx_code sx_ox_attr_text(sx_ox *im, const char *name, const char *fallback, sx_span *value);
/* *count is UINT32_MAX if the attribute is absent. */
sx_code sx_ox_attr_ints(sx_ox *im, const char *name, int64_t *value, uint32_t most,
                        uint32_t *count);
/* Attribute `name` brought into [0, rank). */
sx_code sx_ox_attr_axis(sx_ox *im, const char *name, int64_t fallback, uint32_t rank,
                        uint32_t *axis);
sx_code sx_ox_axis(sx_ox *im, int64_t axis, uint32_t rank, uint32_t *index);
sx_code sx_ox_dtype(sx_ox *im, int64_t data_type, sx_dtype *dtype);
/* A failure that sticks; the importer puts node, operator and opset in front of the text. */
#define SX_OX_FAIL(im, code_, ...) ((im)->code = SX_FAIL((im)->cx, (code_), __VA_ARGS__))
#define SX_OX_DIM_TEXT 80
const char *sx_ox_dim_text(const sx_ox *im, sx_dim dim, char text[SX_OX_DIM_TEXT]);

/* ---- onnx_fold.c: extents ---- */
/* The extent that `p` is, which gets a row among the symbols where it needs one, or the number; false: it is neither,
 * as it may be less than 1. */
bool sx_ox_extent(sx_ox *im, const sx_polynomial *p, sx_dim *dim);
bool sx_ox_times(sx_ox *im, sx_dim a, sx_dim b, sx_dim *product);

/* ---- onnx_expr.c: expressions ---- */
const sx_type *sx_ox_type(const sx_ox *im, sx_node_id a);
sx_type sx_ox_type_with(const sx_type *shape, sx_dtype dtype);
sx_node_id sx_ox_add(sx_ox *im, sx_op op, const sx_attr *attr, const sx_node_id *input,
                     uint32_t input_count);
sx_node_id sx_ox_un(sx_ox *im, sx_op op, sx_node_id a);
/* Both operands broadcast to their common shape. */
sx_node_id sx_ox_bin(sx_ox *im, sx_op op, sx_node_id a, sx_node_id b);
sx_node_id sx_ox_cmp(sx_ox *im, sx_direction direction, sx_node_id a, sx_node_id b);
sx_node_id sx_ox_select(sx_ox *im, sx_node_id p, sx_node_id a, sx_node_id b);
sx_node_id sx_ox_splat(sx_ox *im, const sx_type *type, double value);
/* a op value, value op a: `value` of a's element type. */
sx_node_id sx_ox_with(sx_ox *im, sx_op op, sx_node_id a, double value);
sx_node_id sx_ox_from(sx_ox *im, sx_op op, double value, sx_node_id a);
sx_node_id sx_ox_cmp_with(sx_ox *im, sx_direction direction, sx_node_id a, double value);
/* Cast as ONNX has it: to bool is "not zero". */
sx_node_id sx_ox_cast(sx_ox *im, sx_node_id a, sx_dtype dtype);
sx_node_id sx_ox_reshape(sx_ox *im, sx_node_id a, const sx_type *shape);
sx_node_id sx_ox_transpose(sx_ox *im, sx_node_id a, const sx_ints *perm);
/* Trailing dimensions aligned, extents of 1 repeated, to the shape of `shape`. */
sx_node_id sx_ox_broadcast(sx_ox *im, sx_node_id a, const sx_type *shape);
/* Dimension i of `a` becomes dimension dims[i]. */
sx_node_id sx_ox_broadcast_in(sx_ox *im, sx_node_id a, const sx_ints *dims, const sx_type *shape);
/* The common shape of two; false and a failure naming axis and both extents. */
bool sx_ox_common_shape(sx_ox *im, const sx_type *a, const sx_type *b, sx_type *shape);
sx_node_id sx_ox_reduce(sx_ox *im, sx_reducer reducer, sx_node_id a, const sx_ints *dims,
                        bool keep);
/* Sum along dims divided by the number of elements, also where that is symbolic. */
sx_node_id sx_ox_mean(sx_ox *im, sx_node_id a, const sx_ints *dims, bool keep);
sx_node_id sx_ox_iota(sx_ox *im, const sx_type *shape, sx_dtype dtype, uint32_t axis);
sx_node_id sx_ox_gather(sx_ox *im, sx_node_id a, sx_node_id index, uint32_t axis);
/* Along one axis; limit -1 is the extent of a symbolic dimension. */
sx_node_id sx_ox_slice_axis(sx_ox *im, sx_node_id a, uint32_t axis, int64_t start, int64_t limit,
                            int64_t stride);
sx_node_id sx_ox_concat(sx_ox *im, const sx_node_id *part, uint32_t count, uint32_t axis);
sx_node_id sx_ox_dot(sx_ox *im, sx_node_id a, sx_node_id b, const sx_attr *dims);
/* log(1 + x), relative error of a few ulp near 0 as well. */
sx_node_id sx_ox_log1p(sx_ox *im, sx_node_id x);
/* Dimensions from `first` to the last. */
sx_ints sx_ox_dims_from(uint32_t first, uint32_t rank);

/* ---- onnx_fold.c: integers known while importing ---- */
/* Elementwise over known operands with broadcasting; *done false where not all are known or a result cannot be
 * written. */
sx_code sx_ox_fold_binary(sx_ox *im, sx_op op, bool *done);
sx_code sx_ox_fold_compare(sx_ox *im, sx_direction direction, bool *done);
sx_code sx_ox_fold_select(sx_ox *im, bool *done);
bool sx_ox_is_known(const sx_ox_value *value);

/* ---- handlers: onnx_ops_*.c, table onnx_ops.def ---- */
#define SX_ONNX_OP(name, since, handler, input_min, input_max, arg) sx_code handler(sx_ox *im);
#include "client/import/onnx_ops.def"
#undef SX_ONNX_OP
#endif
