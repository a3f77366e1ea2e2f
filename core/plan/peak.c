#include "core/plan/peak.h"

#include "core/plan/memory.h"

#define NONE UINT32_MAX

/* The node whose memory holds the value of a node. */
static uint32_t holder(const sx_graph *graph, uint32_t n)
{
    while (graph->node[n].op == SX_OP_RESHAPE) {
        n = sx_graph_input(graph, &graph->node[n], 0).i;
    }
    return n;
}

/* Nodes that are made once at load: weights, constants, and what follows from them alone. */
static void find_constant(const sx_graph *graph, bool *constant)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        bool all = node->op != SX_OP_PARAMETER || sx_graph_attr(graph, node)->weight != 0;
        for (uint32_t k = 0; k < node->input_count; k++) {
            all = all && constant[sx_graph_input(graph, node, k).i];
        }
        constant[n] = all;
    }
}

sx_code sx_plan_peak(sx_ctx *cx, const sx_graph *graph, uint64_t *peak_bytes)
{
    uint32_t count = graph->node_count;
    bool *constant = SX_NEW_ARRAY(cx, bool, count + 1);
    uint32_t *place = SX_NEW_ARRAY(cx, uint32_t, count + 1);
    sx_lifetime *life = SX_NEW_ARRAY(cx, sx_lifetime, count + 1);
    if (constant == NULL || place == NULL || life == NULL) {
        return cx->error.code;
    }
    uint32_t lives = 0;
    find_constant(graph, constant);
    for (uint32_t n = 0; n < count; n++) {
        const sx_node *node = &graph->node[n];
        bool made = node->input_count > 0 && node->op != SX_OP_RESHAPE && !constant[n];
        for (uint32_t i = 0; i < graph->output_count; i++) {
            made = made && holder(graph, graph->output[i].node.i) != n;
        }
        uint64_t size =
            (uint64_t)sx_tensor_elements(&node->type) * sx_dtype_bytes(node->type.dtype);
        place[n] = made && size > 0 ? lives : NONE;
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t read = place[holder(graph, sx_graph_input(graph, node, k).i)];
            if (read != NONE) {
                life[read].last = n;
            }
        }
        if (place[n] != NONE) {
            life[lives++] = (sx_lifetime){.size = size, .first = n, .last = n};
        }
    }
    SX_ASSERT(lives <= count);
    uint64_t floor_bytes;
    return sx_plan_memory(cx, life, lives, peak_bytes, &floor_bytes);
}
