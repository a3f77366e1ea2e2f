/* source.h - a program file as a graph: ONNX, or the text form of the IR; told apart by content. */
#ifndef SX_CLIENT_SOURCE_H
#define SX_CLIENT_SOURCE_H
#include "client/import/import.h"
#include "core/request/request.h"

typedef struct {
    sx_graph *graph;
    /* Their bytes lie in the mapped file or in the memory of the caller. NULL: the program is a .sx text, which
     * carries none. */
    const sx_weights *weights;
    /* The text form of the graph. This is what travels to the compiler. */
    sx_buf text;
    /* The open file of an ONNX model, or NULL. */
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

/* The program for any number of rows, so that what it computes for one does not depend on how many there are:
 * generalised (core/ir/general.h), with the value of the symbol among those of `request`. A program whose results begin
 * with a symbol stays as it is. Where it cannot be generalised, *why says why, and `request` allows only rewrites that
 * keep every bit; else *why is NULL. Texts are in cx's arena.
 *   errors   SX_NOMEM; SX_LIMIT the text becomes too long */
sx_code sxc_source_generalise(sx_ctx *cx, sxc_source *source, sx_core_request *request,
                              const char **why);

/* A module with the weights written into its WEIGHTS section. SX_INPUT: a weight of the module is not in
 * `weights`, or has another size. */
sx_code sxc_attach_weights(sx_ctx *cx, sx_span module, const sx_weights *weights, sx_buf *out);
#endif
