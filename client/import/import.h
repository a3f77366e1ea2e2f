/* import.h - foreign model files as graphs of our IR.
 *
 * ONNX: operators of the standard domain, opset 7 to SX_ONNX_OPSET_MAX where onnx_ops.def has a meaning for
 * them; the whole range of an operator's history from opset 13 on. Shapes are inferred while importing: a
 * dimension named in the file becomes a symbol of the graph with an interval, computations on shapes (Shape,
 * Gather, Concat, Slice, arithmetic, Where...) are folded, also over symbols, and broadcasting becomes explicit.
 *
 * Weights: a float initializer of more than one element becomes a parameter with weight = 1 and never enters
 * the graph, so keys do not depend on it; so does a Constant node of more than SX_ONNX_CONSTANT_BYTES_MAX.
 * Integer and bool initializers up to that size and single floats become constants.
 *
 * The graph's origins (core/ir/origin.h) name the nodes of the model; a node without a name goes by that of
 * its first output.
 *
 * Errors name node, operator and opset: SX_UNIMPLEMENTED for what is valid ONNX but not supported, SX_INPUT
 * for what is not valid, SX_LIMIT for too much of anything. Extents may be 0. Source: the ONNX operator
 * specification, versions 1.12 to 1.23 (onnx.ai/onnx/operators).
 */
#ifndef SX_CLIENT_IMPORT_IMPORT_H
#define SX_CLIENT_IMPORT_IMPORT_H
#include "core/base/base.h"
#include "core/ir/ir.h"

#define SX_ONNX_OPSET_MIN 1
#define SX_ONNX_OPSET_MAX 28
#define SX_ONNX_CONSTANT_BYTES_MAX 1024
/* A symbolic dimension is in [1, this] unless an option says otherwise. Where some tensor would be too large, with
 * products of several of them, they all are in [1, half of that], and so on down to the least. */
#define SX_ONNX_SYMBOL_HIGH 65536
#define SX_ONNX_SYMBOL_HIGH_LEAST 256

/* The interval of a named dimension. */
typedef struct {
    sx_span name;
    int64_t low, high; /* both are allowed values; 1 <= low <= high */
} sx_onnx_interval;
/* An input whose value is known when importing (a shape, axes): it is no parameter of the graph. */
typedef struct {
    sx_span name;
    sx_span bytes; /* row-major little-endian elements of the input's type */
} sx_onnx_fixed;
/* All arrays are borrowed during the import. */
typedef struct {
    const sx_onnx_interval *interval; /* of dimensions that are not to have the default one */
    uint32_t interval_count;
    const sx_onnx_fixed *fixed;
    uint32_t fixed_count;
    /* Gives the bytes of the file `location` next to the model, for tensors whose data is kept there. The bytes must
     * outlive the graph and the weights. `location` is a relative path without "..". It is called with
     * `external_self`. NULL: such tensors are refused. */
    sx_code (*external)(void *self, sx_ctx *cx, sx_span location, sx_span *bytes);
    void *external_self;
} sx_onnx_options;

/* A weight: the type of the parameter and its row-major little-endian elements, mostly a span into the file
 * (then of no particular alignment), else in cx's arena. */
typedef struct {
    sx_span name;
    sx_type type;
    sx_span bytes;
} sx_weight;
typedef struct {
    sx_weight *weight; /* in the order of the weight parameters of the graph */
    uint32_t count, capacity;
} sx_weights;
/* NULL if there is none of that name. */
const sx_weight *sx_weights_find(const sx_weights *weights, sx_span name);

/* `file` (and what `external` gives) is borrowed for as long as graph and weights live; `options` may be NULL. */
sx_code sx_onnx_import(sx_ctx *cx, sx_span file, const sx_onnx_options *options, sx_graph **graph,
                       sx_weights **weights);

/* file.c: a model file and the files next to it, mapped. */
typedef struct sx_onnx_file sx_onnx_file;
void sx_onnx_file_close(sx_onnx_file *file);
/* Maps the model; NULL with cx->error set (SX_ABSENT, SX_SYSTEM, SX_LIMIT). */
sx_onnx_file *sx_onnx_file_open(sx_ctx *cx, const char *path) SX_GIVE(sx_onnx_file_close);
/* As sx_onnx_import, external data read from the folder of the model and below: regular files, without
 * symbolic links on the way; options->external is not used. */
sx_code sx_onnx_file_import(sx_ctx *cx, sx_onnx_file *file, const sx_onnx_options *options,
                            sx_graph **graph, sx_weights **weights);
/* Do these bytes lie in what was mapped? */
bool sx_onnx_file_has(const sx_onnx_file *file, sx_span bytes);
/* What was mapped is still as it was, by the sizes and times of the files, whatever their names are now.
 *   errors   SX_INPUT one was changed: its bytes must not be read again, some may be gone */
sx_code sx_onnx_file_check(sx_ctx *cx, const sx_onnx_file *file);
#endif
