/* fuzz_parse.c - any bytes as text of a graph: an error with a line, or a graph that checks, prints and reads back. */
#include "core/ir/ir.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_graph *graph;
    if (sx_graph_parse(&cx, (sx_span){data, size}, &graph) == SX_OK) {
        sx_buf text;
        sx_buf again;
        sx_graph *back;
        sx_key key;
        sx_buf_init(&text, SX_TEXT_BYTES_MAX);
        sx_buf_init(&again, SX_TEXT_BYTES_MAX);
        if (sx_graph_print(&cx, graph, &text) == SX_OK) {
            sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &back);
            SX_ASSERT(code == SX_OK || code == SX_NOMEM);
            if (code == SX_OK && sx_graph_print(&cx, back, &again) == SX_OK) {
                SX_ASSERT(sx_span_equal(sx_buf_span(&text), sx_buf_span(&again)));
            }
        }
        sx_code code = sx_graph_key(&cx, graph, &key);
        SX_ASSERT(code == SX_OK || code == SX_NOMEM);
        sx_buf_fini(&text);
        sx_buf_fini(&again);
    }
    sx_ctx_fini(&cx);
    return 0;
}
