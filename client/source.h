/* source.h - a program file as a graph: ONNX, or the text form of the IR; told apart by content. */
#ifndef SX_CLIENT_SOURCE_H
#define SX_CLIENT_SOURCE_H
#include "client/import/import.h"
#include "core/request/request.h"

typedef struct {
    sx_graph *graph;
    /* bytes lie in the mapped file or the caller's memory; NULL for .sx */
    const sx_weights *weights;
    sx_buf text; /* text form of the graph: what travels */
    sx_onnx_file *file;
} sxc_source;

void sxc_source_fini(sxc_source *source);
/* Appends the bytes of a file.  errors  SX_INPUT it cannot be read */
sx_code sxc_read_text(sx_ctx *cx, const char *path, sx_buf *text);
/* Errors: SX_INPUT missing file, not a program, malformed; SX_UNIMPLEMENTED operator, named; as the importer says. */
sx_code sxc_source_load(sx_ctx *cx, const char *path, sxc_source *source);
/* The same from memory, which is borrowed as long as the source lives; tensors kept in files next to a model
 * are refused. */
sx_code sxc_source_bytes(sx_ctx *cx, sx_span bytes, sxc_source *source);

/* A module with the weights written into its WEIGHTS section. SX_INPUT: a weight of the module is not in
 * `weights`, or has another size. */
sx_code sxc_attach_weights(sx_ctx *cx, sx_span module, const sx_weights *weights, sx_buf *out);
#endif
