/* onnx_write.h - a program of operations as an ONNX model of standard operators, opset SX_ONNX_WRITE_OPSET.
 *
 * Parameters are graph inputs, symbols their named dimensions; weights whose elements are in `weights` are
 * initializers, others graph inputs. Operations have the operator of the same meaning, several where there is
 * none (dot_general: MatMul, else Einsum), and composites without one their decomposition. Broadcasts and
 * splats are left to operators that broadcast. Intervals of symbols have no place in the file. Where ONNX
 * leaves a result open (NaN in Max, Min, ReduceMax, ReduceMin; conversions of floats beyond an integer's
 * range; indices outside in Gather) it is as the runtime makes it.
 */
#ifndef SX_CLIENT_EXPORT_ONNX_WRITE_H
#define SX_CLIENT_EXPORT_ONNX_WRITE_H
#include "client/import/import.h"

#define SX_ONNX_WRITE_OPSET 20
#define SX_ONNX_WRITE_IR 9
#define SX_ONNX_FILE_MAX (((size_t)1 << 31) - 1) /* bytes of a protobuf message */

/* The file, appended to `file` (owned by the caller, its limit holds as well). `weights` may be NULL.
 *   errors   SX_UNIMPLEMENTED what ONNX cannot say: operation, node and reason are named; SX_LIMIT a file
 *            beyond SX_ONNX_FILE_MAX */
sx_code sx_onnx_write(sx_ctx *cx, const sx_graph *graph, const sx_weights *weights, sx_buf *file);
#endif
