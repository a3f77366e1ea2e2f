#include "client/cli/layers.h"

#include <string.h>

static sx_code parse(sx_ctx *cx, const char *text, uint64_t size, sx_graph **graph)
{
    sx_code code = sx_graph_parse_named(cx, (sx_span){(const uint8_t *)text, (size_t)size}, graph);
    if (code == SX_INPUT) {
        cx->error.code = SX_CORRUPT;
        return sx_fail_in(cx, "module: its program cannot be read");
    }
    return code;
}

static bool has_launch(const sx_node *node)
{
    return node->op != SX_OP_PARAMETER && node->op != SX_OP_CONSTANT && node->op != SX_OP_RESHAPE;
}

/* Equal nodes share a kernel: the node of the launch is the next one that is like the node the kernel was made for. */
static bool is_like(const sx_graph *graph, uint32_t node, uint32_t made_for)
{
    return made_for < graph->node_count && graph->node[node].op == graph->node[made_for].op &&
           graph->node[node].attr.i == graph->node[made_for].attr.i;
}

/* Launches stand in the order of the nodes; a packing stands before the contraction that it is for. */
static void pair_launches(sxc_layers *layers)
{
    const sx_module *module = layers->module;
    const sx_graph *graph = layers->optimised;
    uint32_t next = 0;
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_kernel *kernel = sx_module_kernel_of(module, i);
        if (kernel == NULL) { /* it only moves what others made */
            layers->node_of[i] = SX_ORIGIN_NONE;
            continue;
        }
        layers->node_of[i] = kernel->node < graph->node_count ? kernel->node : SX_ORIGIN_NONE;
        uint32_t at = next;
        while (at < graph->node_count &&
               !(has_launch(&graph->node[at]) && is_like(graph, at, kernel->node))) {
            at++;
        }
        if (layers->node_of[i] != SX_ORIGIN_NONE && at < graph->node_count) {
            layers->node_of[i] = at;
            next = kernel->kind == SX_MODULE_PACK ? at : at + 1;
        }
    }
}

sx_code sxc_layers_find(sx_ctx *cx, const sx_module *module, sxc_layers *layers)
{
    *layers = (sxc_layers){.module = module};
    sx_graph *program, *optimised;
    SX_TRY(parse(cx, module->program, module->program_count, &program));
    SX_TRY(parse(cx, module->optimized, module->optimized_count, &optimised));
    layers->program = program;
    layers->optimised = optimised;
    SX_TRY(sx_descent_find(cx, program, optimised, &layers->descent));
    layers->node_of = SX_NEW_ARRAY(cx, uint32_t, (size_t)module->launch_count + 1);
    if (layers->node_of == NULL) {
        return cx->error.code;
    }
    pair_launches(layers);
    return SX_OK;
}

/* The nodes of a launch: of a kernel with several results one for each. */
static uint32_t nodes_of(const sxc_layers *layers, uint64_t launch,
                         uint32_t node[SX_MODULE_RESULTS_MAX])
{
    const sx_module_kernel *kernel = sx_module_kernel_of(layers->module, launch);
    const sx_graph *graph = layers->optimised;
    uint32_t count = 0;
    if (kernel == NULL || layers->node_of[launch] == SX_ORIGIN_NONE) {
        return 0;
    }
    SX_ASSERT(kernel->result_count <= SX_MODULE_RESULTS_MAX);
    node[count++] = layers->node_of[launch];
    for (uint32_t k = 1; k < kernel->result_count; k++) {
        uint32_t at = kernel->other[k - 1];
        if (node[0] != kernel->node) { /* another launch: nodes like those of the kernel */
            for (at = node[count - 1] + 1; at < graph->node_count; at++) {
                if (is_like(graph, at, kernel->other[k - 1])) {
                    break;
                }
            }
        }
        if (at < graph->node_count) {
            node[count++] = at;
        }
    }
    return count;
}

/* The nodes of the program that a node of the optimised one covers. */
static const uint32_t *cover_of(const sxc_layers *layers, uint32_t node, uint32_t *count)
{
    const sx_descent *descent = &layers->descent;
    *count = descent->cover_first[node + 1] - descent->cover_first[node];
    return descent->cover + descent->cover_first[node];
}

sx_code sxc_layers_of_launch(sx_ctx *cx, const sxc_layers *layers, uint64_t launch,
                             const sx_origin ***origin, uint32_t *count)
{
    uint32_t node[SX_MODULE_RESULTS_MAX], covered, room = 0;
    uint32_t nodes = nodes_of(layers, launch, node);
    for (uint32_t n = 0; n < nodes; n++) {
        (void)cover_of(layers, node[n], &covered);
        room += covered;
    }
    *count = 0;
    *origin = SX_NEW_ARRAY(cx, const sx_origin *, (size_t)room + 1);
    if (*origin == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < nodes; n++) {
        const uint32_t *cover = cover_of(layers, node[n], &covered);
        for (uint32_t k = 0; k < covered; k++) {
            const sx_origin *found = sx_origin_find(layers->program->origins, cover[k]);
            bool known = found == NULL;
            for (uint32_t j = 0; j < *count && !known; j++) {
                known = sx_span_equal((*origin)[j]->name, found->name) &&
                        sx_span_equal((*origin)[j]->op, found->op);
            }
            if (!known) {
                (*origin)[(*count)++] = found;
            }
        }
    }
    return SX_OK;
}

const sx_origin *sxc_layers_main(const sxc_layers *layers, uint64_t launch)
{
    uint32_t node[SX_MODULE_RESULTS_MAX], count;
    uint32_t nodes = nodes_of(layers, launch, node);
    const sx_origin *last = NULL;
    for (uint32_t n = 0; n < nodes; n++) {
        const uint32_t *cover = cover_of(layers, node[n], &count);
        for (uint32_t k = 0; k < count; k++) {
            const sx_origin *origin = sx_origin_find(layers->program->origins, cover[k]);
            sx_op_class work = sx_op_info_of(layers->program->node[cover[k]].op)->op_class;
            if (origin != NULL && (work == SX_OPCLASS_DOT || work == SX_OPCLASS_CONV)) {
                return origin;
            }
            last = origin != NULL ? origin : last;
        }
    }
    for (uint32_t n = 0; n < nodes; n++) {
        uint32_t root = layers->descent.root[node[n]];
        const sx_origin *origin = sx_origin_find(layers->program->origins, root);
        if (origin != NULL) {
            return origin;
        }
    }
    return last;
}

sx_code sxc_layers_operators(sx_ctx *cx, const sxc_layers *layers, uint64_t launch, size_t most,
                             sx_buf *text)
{
    const sx_origin **origin;
    uint32_t count, left_out = 0;
    size_t before = text->len;
    SX_TRY(sxc_layers_of_launch(cx, layers, launch, &origin, &count));
    const sx_origin *main = sxc_layers_main(layers, launch);
    for (uint32_t k = 0; k < count; k++) { /* the main one first: what it stands for */
        bool named = sx_span_equal(origin[k]->name, main->name);
        if (named && k > 0) {
            memmove(origin + 1, origin, k * sizeof(*origin));
            origin[0] = main;
        }
    }
    for (uint32_t k = 0; k < count; k++) {
        bool again = false;
        for (uint32_t j = 0; j < k && !again; j++) {
            again = sx_span_equal(origin[j]->op, origin[k]->op);
        }
        if (again) {
            continue;
        }
        bool fits = text->len - before + origin[k]->op.len + 1 <= most;
        if (fits && left_out == 0) {
            sx_buf_put_text(text, text->len > before ? " " : "");
            sx_buf_put_span(text, origin[k]->op);
        } else {
            left_out++;
        }
    }
    if (left_out > 0) {
        sx_buf_print(text, " +%u", left_out);
    }
    return SX_OK;
}
