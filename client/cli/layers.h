/* layers.h - what a module computes in the names of the model that it was made of.
 *
 * The program of a module says where its nodes come from (core/ir/origin.h), and its launches are in the order
 * of the optimised program's nodes. So each launch has the nodes of the model whose work it does, as far as
 * that can be told.
 */
#ifndef SX_CLIENT_CLI_LAYERS_H
#define SX_CLIENT_CLI_LAYERS_H
#include "core/ir/origin.h"
#include "protocol/module.h"

typedef struct {
    const sx_module *module;
    const sx_graph *program, *optimised;
    sx_descent descent;
    /* [launches] The node of `optimised` that each launch computes, or SX_ORIGIN_NONE. */
    uint32_t *node_of;
} sxc_layers;

/* In cx's arena; the module is borrowed.  errors  SX_CORRUPT its programs cannot be read */
sx_code sxc_layers_find(sx_ctx *cx, const sx_module *module, sxc_layers *layers);

/* The nodes of the model that a launch does the work of, each once, in the order of the program; *count 0: not
 * known. */
sx_code sxc_layers_of_launch(sx_ctx *cx, const sxc_layers *layers, uint64_t launch,
                             const sx_origin ***origin, uint32_t *count);
/* The node of the model that most of the work of a launch comes from: a contraction if there is one. */
const sx_origin *sxc_layers_main(const sxc_layers *layers, uint64_t launch);
/* "MatMul Add Relu": operators of those nodes, each once; what is over `most` bytes is counted. */
sx_code sxc_layers_operators(sx_ctx *cx, const sxc_layers *layers, uint64_t launch, size_t most,
                             sx_buf *text);
#endif
