/* build.h - inside client/operation: the program under construction, and the words that are read for it. */
#ifndef SX_CLIENT_OPERATION_BUILD_H
#define SX_CLIENT_OPERATION_BUILD_H
#include "client/operation/operation.h"

typedef struct {
    sx_ctx *cx;
    const sxc_operation *asked;
    const char *name; /* of the option, for messages */
    sx_graph *graph;
    /* Element types of the inputs, of what is computed with them, and of the result. */
    sx_dtype input, compute, result;
} sxc_build;

/* Fails with SX_USAGE: "--gemm 4x4: " and the message. */
#define SXC_BUILD_FAIL(b, format, ...) \
    SX_FAIL((b)->cx, SX_USAGE, "--%s %.60s: " format, (b)->name, (b)->asked->shape, __VA_ARGS__)

/* Takes the text up to the next comma, and the comma, off `rest`. False: nothing is left. */
bool sxc_word_next(sx_span *rest, sx_span *word);
/* The text behind "NAME=", or false: the word is another one. */
bool sxc_word_value(sx_span word, const char *name, sx_span *value);

/* Extents with an x in between, at least `fewest` and at most SX_RANK_MAX of them; `form` is how they are written, for
 * the message: "MxNxK". */
sx_code sxc_build_extents(sxc_build *b, sx_span text, uint32_t fewest, uint32_t most,
                          const char *form, sx_type *type);
sx_code sxc_build_extent(sxc_build *b, sx_span text, sx_dim *dim);
/* A parameter of element type `dtype`, converted to what is computed with. */
sx_code sxc_build_input(sxc_build *b, const char *name, bool weight, sx_dtype dtype,
                        const sx_type *shape, sx_node_id *id);
/* `id` in another element type; the same node where it has that type. */
sx_code sxc_build_convert(sxc_build *b, sx_dtype dtype, sx_node_id *id);

/* One function for each operation: its program up to the result in any element type. */
sx_code sxc_build_gemm(sxc_build *b, sx_node_id *result);
sx_code sxc_build_attention(sxc_build *b, sx_node_id *result);
sx_code sxc_build_softmax(sxc_build *b, sx_node_id *result);
sx_code sxc_build_norm(sxc_build *b, sx_node_id *result);
#endif
