/* Any bytes to the ONNX importer: an error or a graph that passes its checker. Run on a small arena and budget. */
#include "client/import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)32 << 20);
    cx.fuel = 1000000;
    sx_graph *graph;
    sx_weights *weights;
    if (sx_onnx_import(&cx, (sx_span){data, size}, NULL, &graph, &weights) == SX_OK) {
        SX_ASSERT(sx_graph_check(&cx, graph) == SX_OK || cx.error.code == SX_NOMEM ||
                  cx.error.code == SX_QUOTA);
    }
    sx_ctx_fini(&cx);
    return 0;
}
