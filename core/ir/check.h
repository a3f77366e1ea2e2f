/* check.h - inside of the checker: one question of sx_infer_type, and what check.c and check_shape.c share.
 * Private to core/ir. */
#ifndef SX_CORE_IR_CHECK_H
#define SX_CORE_IR_CHECK_H
#include "core/ir/extent.h"
#include "core/ir/ir.h"

typedef struct {
    sx_ctx *cx;
    const sx_symbol *symbols;
    uint32_t symbol_count;
    /* The graph whose symbols they are, where it may get rows for sums that are new; NULL: it may not. */
    sx_graph *grows;
    sx_op op;
    const char *name; /* of the operation */
    const sx_attr *attr;
    const sx_type *input;
    uint32_t input_count;
    sx_type *result;
} sx_infer;

/* An extent or a name as short printable text for messages. */
#define SX_SHORT_TEXT_SIZE 96
typedef struct {
    char text[SX_SHORT_TEXT_SIZE];
} sx_short;
sx_short sx_short_dim(const sx_symbol *symbols, uint32_t symbol_count, sx_dim dim);
sx_short sx_short_name(sx_span name);
/* print.c: a name bare where the lexer reads it as one, else in quotes. */
void sx_symbol_print(sx_span name, sx_buf *text);
#define SX_DIM_TEXT(in, dim) (sx_short_dim((in)->symbols, (in)->symbol_count, (dim)).text)

/* sx_infer_type over the symbols of `graph`, which get a row for each new sum in the result. */
sx_code sx_infer_over(sx_ctx *cx, sx_graph *graph, sx_op op, const sx_attr *attr,
                      const sx_type *input, uint32_t input_count, sx_type *result);
/* The extent `p` of the result along `axis`. After it `symbols` may be those of before.
 *   errors   SX_UNIMPLEMENTED it has no row; SX_INPUT, SX_LIMIT as sx_graph_add_extent */
sx_code sx_infer_extent(const sx_infer *in, int64_t axis, const sx_polynomial *p, sx_dim *dim);
/* Is `type` one that a tensor can have? `what` names it in the message. */
sx_code sx_check_type(const sx_infer *in, const sx_type *type, const char *what);
/* Operand k has the element type and rank of operand 0. */
sx_code sx_check_like_first(const sx_infer *in, uint32_t k);
/* attr.axis is one of `rank` dimensions. */
sx_code sx_check_axis(const sx_infer *in, uint32_t rank);
/* attr.reducer is one that combines elements of type `dtype`; `set` only where `sets`. */
sx_code sx_check_reducer(const sx_infer *in, sx_dtype dtype, bool sets);
/* A list of dimension numbers below `rank`, none twice; strictly ascending where asked. */
sx_code sx_check_dims(const sx_infer *in, const sx_ints *dims, sx_attr_field field, uint32_t rank,
                      bool ascending);

sx_code sx_infer_reshape(const sx_infer *in);
sx_code sx_infer_transpose(const sx_infer *in);
sx_code sx_infer_broadcast(const sx_infer *in);
sx_code sx_infer_slice(const sx_infer *in);
sx_code sx_infer_crop(const sx_infer *in);
sx_code sx_infer_concatenate(const sx_infer *in);
sx_code sx_infer_reduce(const sx_infer *in);
sx_code sx_infer_dot_general(const sx_infer *in);
sx_code sx_infer_gather(const sx_infer *in);
/* check_index.c */
sx_code sx_infer_scatter(const sx_infer *in);
sx_code sx_infer_dynamic_slice(const sx_infer *in);
sx_code sx_infer_dynamic_update_slice(const sx_infer *in);
sx_code sx_infer_sort(const sx_infer *in);
/* check_window.c */
sx_code sx_infer_reverse(const sx_infer *in);
sx_code sx_infer_pad(const sx_infer *in);
sx_code sx_infer_reduce_window(const sx_infer *in);
sx_code sx_infer_convolution(const sx_infer *in);
sx_code sx_infer_composite(const sx_infer *in);
/* check_region.c */
sx_code sx_infer_region(const sx_infer *in);
/* collective.c */
sx_code sx_infer_collective(const sx_infer *in);
/* graph.c: image[n] is the parameter of `to` that parameter n of `from` is: both have the same ones in the same order,
 * `to` perhaps with other nodes between them. In cx's arena, 0 for nodes that are no parameters. */
sx_code sx_graph_parameter_image(sx_ctx *cx, const sx_graph *from, const sx_graph *to,
                                 uint32_t **image);
#endif
