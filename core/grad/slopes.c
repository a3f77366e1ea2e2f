/* slopes.c - on which of its operands a result of scan, while or cond depends by a slope: sets of 64 bits. */
#include "core/grad/sweep.h"

_Static_assert(SX_INPUTS_MAX <= 64, "a set of operands is 64 bits");

/* The parameters that are not zero in the set `sees`, each replaced by what it stands for. */
static uint64_t through(uint64_t sees, const uint64_t *stands_for, uint32_t count)
{
    uint64_t found = 0;
    for (uint32_t k = 0; k < count; k++) {
        found |= (sees >> k & 1) != 0 ? stands_for[k] : 0;
    }
    return found;
}

sx_code sx_program_slopes(sx_ctx *cx, const sx_program *program,
                          uint64_t parameters[SX_PROGRAM_RESULTS_MAX])
{
    const sx_graph *graph = program->graph;
    uint64_t *sees = SX_NEW_ARRAY(cx, uint64_t, graph->node_count);
    if (sees == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        uint64_t operand[SX_INPUTS_MAX];
        uint64_t result[SX_PROGRAM_RESULTS_MAX];
        uint64_t used = sx_has_slope(node->op) ? UINT64_MAX : 0;
        for (uint32_t k = 0; k < node->input_count; k++) {
            operand[k] = sees[sx_graph_input(graph, node, k).i];
        }
        if (sx_op_info_of(node->op)->op_class == SX_OPCLASS_REGION) {
            const sx_attr *attr = sx_graph_attr(graph, node);
            SX_TRY(sx_region_slopes(cx, node->op, attr, result));
            used = result[attr->result];
        }
        sees[n] = node->op == SX_OP_PARAMETER ? UINT64_C(1) << n
                                              : through(used, operand, node->input_count);
        sees[n] = sx_is_float(&node->type) ? sees[n] : 0;
    }
    SX_ASSERT(graph->output_count <= SX_PROGRAM_RESULTS_MAX);
    for (uint32_t r = 0; r < graph->output_count; r++) {
        parameters[r] = sees[graph->output[r].node.i];
    }
    return SX_OK;
}

static sx_code slopes_of_cond(sx_ctx *cx, const sx_attr *attr, uint64_t *operands)
{
    uint64_t other[SX_PROGRAM_RESULTS_MAX];
    SX_TRY(sx_program_slopes(cx, attr->then, operands));
    SX_TRY(sx_program_slopes(cx, attr->otherwise, other));
    for (uint32_t r = 0; r < attr->then->graph->output_count; r++) {
        operands[r] = (operands[r] | other[r]) << 1; /* behind the predicate */
    }
    return SX_OK;
}

void sx_carried_slopes(uint32_t carried, const uint64_t *sees, uint64_t stands_for[SX_INPUTS_MAX])
{
    for (uint32_t k = 0; k < SX_INPUTS_MAX; k++) {
        stands_for[k] = UINT64_C(1) << k | (k < carried ? sees[k] : 0);
    }
    for (uint32_t j = 0; j < carried; j++) { /* the transitive closure */
        for (uint32_t k = 0; k < carried; k++) {
            stands_for[k] |= (stands_for[k] >> j & 1) != 0 ? stands_for[j] : 0;
        }
    }
}

sx_code sx_region_slopes(sx_ctx *cx, sx_op op, const sx_attr *attr,
                         uint64_t operands[SX_PROGRAM_RESULTS_MAX])
{
    SX_ASSERT(op == SX_OP_SCAN || op == SX_OP_WHILE || op == SX_OP_COND);
    if (op == SX_OP_COND) {
        return slopes_of_cond(cx, attr, operands);
    }
    uint64_t stands_for[SX_INPUTS_MAX];
    SX_TRY(sx_program_slopes(cx, attr->step, operands));
    sx_carried_slopes((uint32_t)attr->carried, operands, stands_for);
    for (uint32_t r = 0; r < attr->step->graph->output_count; r++) {
        bool is_float = sx_is_float(sx_program_result(attr->step, r));
        uint64_t any = r < attr->carried && is_float
                           ? stands_for[r]
                           : through(operands[r], stands_for, SX_INPUTS_MAX);
        operands[r] = any;
    }
    return SX_OK;
}
