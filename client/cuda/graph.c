/* graph.c - work on a GPU as a graph, which is launched as a whole. */
#include "client/cuda/gpu.h"

#define CAPTURE_OF_THREAD \
    1 /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads are not restricted */

sx_code sxg_graph_begin(sx_ctx *cx, sxg_gpu *gpu)
{
    SX_ASSERT(gpu->stream != NULL);
    if (gpu->driver.graph_instantiate == NULL) {
        sx_hint(cx, "Drivers of CUDA 11.4 and later have it.");
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "the CUDA driver has no function cuGraphInstantiateWithFlags");
    }
    int status = gpu->driver.capture_begin(gpu->stream, CAPTURE_OF_THREAD);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "beginning a graph", status);
}

sx_code sxg_graph_end(sx_ctx *cx, sxg_gpu *gpu, sx_code code, void **graph)
{
    void *kept = NULL;
    *graph = NULL;
    int status = gpu->driver.capture_end(gpu->stream, &kept);
    if (code == SX_OK && status == 0) {
        status = gpu->driver.graph_instantiate(graph, kept, 0);
    }
    if (kept != NULL) {
        (void)gpu->driver.graph_source_free(kept);
    }
    if (code != SX_OK) { /* why there is no graph */
        return code;
    }
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "making a graph", status);
}

sx_code sxg_graph_launch(sx_ctx *cx, sxg_gpu *gpu, void *graph)
{
    SX_ASSERT(graph != NULL);
    int status = gpu->driver.graph_launch(graph, gpu->stream);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "launching a graph", status);
}

void sxg_graph_free(sxg_gpu *gpu, void *graph)
{
    if (graph != NULL) {
        (void)gpu->driver.graph_free(graph);
    }
}
