/* onnx_writer.h - inside client/export: the model being written, and what writes parts of it. */
#ifndef SX_CLIENT_EXPORT_ONNX_WRITER_H
#define SX_CLIENT_EXPORT_ONNX_WRITER_H
#include "client/export/onnx_proto.h"
#include "client/export/onnx_write.h"

typedef struct {
    sx_ctx *cx;
    const sx_graph *graph;     /* what is written; borrowed */
    const sx_weights *weights; /* the values of its parameters that are weights; borrowed */
    sx_buf node, initializer, input,
        output;    /* the repeated fields of GraphProto, as far as they are written */
    sx_buf part;   /* the NodeProto under way */
    sx_span *name; /* [node] the name of its result; empty: not written */
    /* [node] the name of a value that broadcasts to the result, dimensions aligned at the end; empty: there is none.
     * Elementwise operators of ONNX broadcast by themselves, so they can read it in place of the result. */
    sx_span *thin;
    sx_span *wanted; /* [node] the name of the output that it is; empty: it is none */
    uint8_t *needs;  /* [node] in which forms it is read: a set of SX_OW_FULL and SX_OW_THIN */
    /* The name of a value i64[1] that holds the symbol; empty: not written. */
    sx_span symbol[SX_SYMBOLS_MAX];
    uint32_t fresh; /* how many fresh names were given */
    /* How fresh names begin. No name at the interface of the program begins so. */
    char prefix[SX_NAME_MAX + 3];
    uint32_t at; /* the number of the node that is being written */
} sx_ow;
#define SX_OW_FULL 1u
#define SX_OW_THIN 2u

#define SX_OW_FAIL(w, ...) sx_ow_fail((w), __FILE__, __LINE__, __VA_ARGS__)
/* SX_UNIMPLEMENTED "node N (operation): ..." */
sx_code sx_ow_fail(sx_ow *w, const char *file, int line, const char *format, ...) SX_PRINTF(4, 5);

static inline const sx_node *sx_ow_node(const sx_ow *w)
{
    return &w->graph->node[w->at];
}
static inline const sx_attr *sx_ow_attr(const sx_ow *w)
{
    return sx_graph_attr(w->graph, sx_ow_node(w));
}
/* Operand k of the node being written. */
static inline uint32_t sx_ow_child(const sx_ow *w, uint32_t k)
{
    return sx_graph_input(w->graph, sx_ow_node(w), k).i;
}
static inline const sx_type *sx_ow_type(const sx_ow *w, uint32_t k)
{
    return &w->graph->node[sx_ow_child(w, k)].type;
}
static inline sx_span sx_ow_value(const sx_ow *w, uint32_t k)
{
    return w->name[sx_ow_child(w, k)];
}

sx_span sx_ow_fresh(sx_ow *w); /* empty past the arena's limit */
/* The name that the result of the node being written is to have: the output's, or a fresh one. */
sx_span sx_ow_result(sx_ow *w);

/* One operator: begin, inputs in order (an empty span: none), attributes into w->part, end. */
void sx_ow_begin(sx_ow *w);
void sx_ow_input(sx_ow *w, sx_span name);
void sx_ow_end(sx_ow *w, const char *type, sx_span output);
/* One with no attributes and a result of a fresh name; inputs b, c may be empty. */
sx_span sx_ow_apply(sx_ow *w, const char *type, sx_span a, sx_span b);
/* An initializer i64[count]; of any static type. */
sx_span sx_ow_ints(sx_ow *w, const int64_t *value, uint32_t count);
sx_span sx_ow_tensor(sx_ow *w, const sx_type *type, sx_span bytes);
/* Extents as i64[rank]: an initializer, or made from the shapes of inputs.  errors  SX_UNIMPLEMENTED a symbol
 * that is no input's extent */
sx_code sx_ow_shape(sx_ow *w, const sx_dim *dim, uint32_t rank, sx_span *name);

/* Has the node a form that broadcasts to its result? */
bool sx_ow_has_thin(const sx_graph *graph, uint32_t node);
/* May operand k of `node` be read in that form? */
bool sx_ow_reads_thin(const sx_graph *graph, const sx_node *node, uint32_t k);
/* Is there an operator for this composite? */
bool sx_ow_is_native(sx_op op, const sx_attr *attr, const sx_type *x);

/* Writes node w->at: sets w->name, and w->thin where it has that form. */
sx_code sx_ow_write_node(sx_ow *w);
/* onnx_moves.c: constants, iota, broadcast_in_dim, reshape and other moves of elements. */
sx_code sx_ow_constant(sx_ow *w);
sx_code sx_ow_iota(sx_ow *w);
sx_code sx_ow_broadcast(sx_ow *w);
sx_code sx_ow_reshape(sx_ow *w);
sx_code sx_ow_transpose(sx_ow *w);
sx_code sx_ow_slice(sx_ow *w);
sx_code sx_ow_reverse(sx_ow *w);
sx_code sx_ow_pad(sx_ow *w);
/* onnx_linear.c */
sx_code sx_ow_dot(sx_ow *w);
sx_code sx_ow_convolution(sx_ow *w);
sx_code sx_ow_window(sx_ow *w);
#endif
