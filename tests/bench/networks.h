/* networks.h - the networks that `compile` and `ablation` measure, as text: two committed models, and shapes
 * from generators.
 *
 * Weights are parameters, so that no large file is needed. What is generated has the shapes of the published
 * networks, but not every operation: see the table in networks.c.
 */
#ifndef SX_TESTS_BENCH_NETWORKS_H
#define SX_TESTS_BENCH_NETWORKS_H
#include "core/base/buf.h"

typedef struct {
    const char *name;
    const char *model; /* tests/models/MODEL.onnx; NULL: it is generated */
    bool gradients;    /* for all weights too */
    bool step;         /* of training: step.h */
} sx_bench_network;
/* NULL: there is none of this name. */
const sx_bench_network *sx_bench_network_find(const char *name);
sx_code sx_bench_network_text(sx_ctx *cx, const sx_bench_network *network, sx_buf *text);
/* In place of the program in `text`, the one that has its gradients for all weights too. */
sx_code sx_bench_add_gradients(sx_ctx *cx, sx_buf *text);
#endif
