#include "client/tune/tune.h"

#include "core/cost/cost.h"
#include "core/cost/device.h"

/* The program of the module with its extents. */
static sx_code bound_program(sx_ctx *cx, const sx_module *module, sx_graph **graph)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_graph *open;
    for (uint64_t i = 0; i < module->symbol_count; i++) {
        const sx_module_symbol *symbol = &module->symbol[i];
        const sx_module_range *range = &module->range[symbol->range_first];
        sx_span name = sx_module_string(module, symbol->name);
        if (i >= SX_SYMBOLS_MAX || symbol->range_count != 1 || range->low != range->high) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "symbol %.*s has several values; one is tuned at a time",
                           (int)sx_min_i64((int64_t)name.len, 60), (const char *)name.ptr);
        }
        binding[i] = (sx_binding){name, range->low};
    }
    sx_span text = {(const uint8_t *)module->optimized, (size_t)module->optimized_count};
    SX_TRY(sx_graph_parse(cx, text, &open));
    open->sharding = NULL; /* one device holds everything */
    return sx_graph_bind(cx, open, binding, (uint32_t)module->symbol_count, graph);
}

sx_code sxt_device(sx_ctx *cx, const sx_module *module, const sx_device **device)
{
    sx_span name = sx_module_string(module, module->info->target);
    if (sx_device_find(cx, name, device) != SX_OK) {
        sx_ctx_reset_error(cx);
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "target %.*s: only a module for one device of the table is tuned",
                       (int)sx_min_i64((int64_t)name.len, 60), (const char *)name.ptr);
    }
    return SX_OK;
}

/* Is the argument there before a run begins? */
static bool is_constant(const sx_module *module, uint32_t tensor)
{
    uint32_t place = module->tensor[tensor].place;
    return place == SX_TENSOR_WEIGHT || place == SX_TENSOR_PERSISTENT ||
           place == SX_TENSOR_CONSTANT;
}

/* The schedule of a plan, behind whose last parenthesis may stand words. */
static bool read_plan(sx_ctx *cx, sx_span text, const sx_analysis *a, sx_schedule *schedule)
{
    while (text.len > 0 && text.ptr[text.len - 1] != ')') {
        text.len--;
    }
    bool read = sx_schedule_parse(cx, text, schedule) == SX_OK &&
                sx_schedule_check(cx, schedule, a) == SX_OK;
    if (!read) {
        sx_ctx_reset_error(cx);
    }
    return read;
}

/* What is known of a kernel; *known false: nothing is to be chosen. */
static sx_code look_at(sx_ctx *cx, const sx_module *module, const sx_graph *graph,
                       const sx_device *device, const sx_module_launch *launch, sxt_kernel *k,
                       bool *known)
{
    const sx_module_kernel *kernel = &module->kernel[launch->kernel];
    sx_type input[SX_INPUTS_MAX];
    sx_search_result search;
    *known = false;
    if (kernel->kind == SX_MODULE_PACK || kernel->kind == SX_MODULE_COPY ||
        kernel->result_count != 1 || kernel->node >= graph->node_count) {
        return SX_OK;
    }
    const sx_node *node = sx_graph_node(graph, (sx_node_id){kernel->node});
    if (node->op != SX_OP_FUSED) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        input[i] = sx_graph_node(graph, sx_graph_input(graph, node, i))->type;
    }
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    if (a == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_analysis_make(cx, sx_graph_attr(graph, node), input, node->input_count, a));
    if (sx_search_piece(a, device) != 0 ||
        !read_plan(cx, sx_module_string(module, kernel->plan), a, &k->own)) {
        return SX_OK;
    }
    bool constant =
        a->kind == SX_KERNEL_DOT && is_constant(module, module->arg[launch->arg_first + a->rhs]);
    SX_TRY(sx_search_kernel(cx, a, device, constant, SX_SEARCH_KEEP, &search));
    k->number = launch->kernel;
    k->own_ns = sx_cost_schedule(device, a, &k->own, constant);
    k->kernel = sx_measured_kernel(a, constant);
    k->offered_count = search.best_count;
    for (uint32_t i = 0; i < search.best_count; i++) {
        k->offered[i] = search.best[i].schedule;
    }
    *known = true;
    return SX_OK;
}

sx_code sxt_kernels(sx_ctx *cx, const sx_module *module, sxt_kernel **kernel, uint32_t *count)
{
    sx_graph *graph;
    const sx_device *device;
    *count = 0;
    SX_TRY(sxt_device(cx, module, &device));
    SX_TRY(bound_program(cx, module, &graph));
    *kernel = SX_NEW_ARRAY(cx, sxt_kernel, (size_t)module->kernel_count + 1);
    bool *seen = SX_NEW_ARRAY(cx, bool, (size_t)module->kernel_count + 1);
    if (*kernel == NULL || seen == NULL) {
        return cx->error.code;
    }
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        bool known;
        if (sx_module_kernel_of(module, i) == NULL || seen[launch->kernel] || launch->prologue) {
            continue;
        }
        seen[launch->kernel] = true;
        SX_TRY(look_at(cx, module, graph, device, launch, &(*kernel)[*count], &known));
        *count += known ? 1 : 0;
    }
    return SX_OK;
}

void sxt_add_times(const sx_module *module, const uint64_t *launch_ns, double *ns)
{
    for (uint32_t k = 0; k < module->kernel_count; k++) {
        double sum = 0, packing = 0;
        uint32_t launches = 0;
        for (uint64_t i = 0; i < module->launch_count; i++) {
            const sx_module_kernel *kernel = sx_module_kernel_of(module, i);
            bool packs = kernel != NULL && kernel->kind == SX_MODULE_PACK;
            if (module->launch[i].prologue) {
                continue;
            }
            if (kernel != NULL && module->launch[i].kernel == k) {
                sum += (double)launch_ns[i] + (packs ? 0 : packing);
                launches++;
            }
            packing = packs ? packing + (double)launch_ns[i] : 0;
        }
        ns[k] += launches > 0 ? sum / launches : 0;
    }
}
