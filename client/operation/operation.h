/* operation.h - the program of a single operation, made from a few words instead of a model file.
 *
 * The command line says "--gemm 4096x4096x2048 --dtype bf16 --epilogue bias,relu"; what comes out is a graph like
 * that of any model, which goes the same way: key, cache, compiler, verification. README.md lists the words.
 *
 * Invariant: an extent is a number or a name, and equal names are one symbol. Its interval is that of a named dimension
 * of an ONNX model, or ends at the number behind the name: "S:4096".
 */
#ifndef SX_CLIENT_OPERATION_OPERATION_H
#define SX_CLIENT_OPERATION_OPERATION_H
#include "core/ir/ir.h"

typedef enum {
    SXC_OPERATION_GEMM,
    SXC_OPERATION_ATTENTION,
    SXC_OPERATION_SOFTMAX,
    SXC_OPERATION_NORM,
    SXC_OPERATION_COUNT
} sxc_operation_kind;

/* Each text is what stands behind the option of that name. NULL: it is not given. */
typedef struct {
    sxc_operation_kind kind;
    const char *shape; /* always given: "MxNxK", "BxHxSxD,causal", "RxC", "layer:RxC" */
    const char *dtype; /* always given */
    const char *batch, *layout, *epilogue;
} sxc_operation;

#define SXC_OPERATION_SYMBOL_HIGH \
    65536 /* a name stands for an extent from 1 to this unless it says another */

/* "gemm", "attention", "softmax", "norm": the option without its dashes, and the name of the program. */
const char *sxc_operation_name(sxc_operation_kind kind);
/* The program, in cx's arena.
 *   errors   SX_USAGE a word that is none of those allowed, with these; a shape with too few extents or one that is
 *            none; an option that the operation does not have; an element type that it does not take
 *            SX_INPUT, SX_LIMIT a tensor with too many elements */
sx_code sxc_operation_make(sx_ctx *cx, const sxc_operation *operation, sx_graph **graph);
#endif
