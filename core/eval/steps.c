/* steps.c - a program that keeps state, run several times: what a run leaves is what the next one reads. */
#include "core/eval/cell.h"
#include "core/eval/eval.h"
#include "core/ir/effect.h"

sx_code sx_state_initial(sx_ctx *cx, const sx_graph *graph, uint32_t node, sx_eval_mode mode,
                         sx_tensor *tensor)
{
    const sx_kept *kept = sx_graph_kept(graph, node);
    SX_ASSERT(kept != NULL && kept->role == SX_KEEP_STATE);
    const sx_type *type = &graph->node[node].type;
    uint32_t size = sx_dtype_bytes(type->dtype);
    bool fills = kept->initial.len == size;
    SX_TRY(sx_tensor_make(cx, type, tensor));
    sx_cell *cell = tensor->data;
    for (int64_t i = 0; i < sx_tensor_elements(type); i++) {
        SX_ASSERT(fills || (uint64_t)(i + 1) * size <= kept->initial.len);
        cell[i] = sx_cell_load(mode, type->dtype, kept->initial.ptr, fills ? 0 : i);
    }
    return SX_OK;
}

/* The number of the argument for each node that is a parameter. */
static sx_code number_arguments(sx_ctx *cx, const sx_graph *graph, uint32_t count,
                                uint32_t **argument_of)
{
    uint32_t next = 0;
    *argument_of = SX_NEW_ARRAY(cx, uint32_t, (size_t)graph->node_count + 1);
    if (*argument_of == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_PARAMETER) {
            (*argument_of)[n] = next++;
        }
    }
    if (next != count) {
        return SX_FAIL(cx, SX_INPUT, "graph: %u arguments for %u parameters", count, next);
    }
    return SX_OK;
}

sx_code sx_graph_eval_steps(sx_ctx *cx, const sx_graph *graph, sx_eval_mode mode, uint32_t steps,
                            sx_tensor *argument, uint32_t argument_count, sx_tensor *result,
                            uint32_t result_count)
{
    const sx_effects *e = graph->effects;
    uint32_t *argument_of;
    SX_TRY(number_arguments(cx, graph, argument_count, &argument_of));
    for (uint32_t i = 0; e != NULL && i < e->kept_count; i++) {
        sx_tensor *state = &argument[argument_of[e->kept[i].node]];
        if (e->kept[i].role == SX_KEEP_STATE && state->data == NULL) {
            SX_TRY(sx_state_initial(cx, graph, e->kept[i].node, mode, state));
        }
    }
    for (uint32_t step = 0; step < steps; step++) {
        SX_TRY(sx_graph_eval(cx, graph, mode, argument, argument_count, result, result_count));
        for (uint32_t i = 0; e != NULL && i < e->update_count; i++) {
            uint32_t node = e->update[i].node;
            if (sx_graph_role(graph, node) == SX_KEEP_STATE) {
                argument[argument_of[node]] = result[e->update[i].output];
            }
        }
    }
    return SX_OK;
}
