#include "client/cli/estimate.h"

#include <string.h>

#include "client/cli/cmd_module.h"
#include "client/cli/machine.h"

/* The program of the module with its extents, if each of them has one value; *graph NULL: one has several. */
static sx_code bound_program(sx_ctx *cx, const sx_module *module, sx_graph **graph)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_graph *open;
    *graph = NULL;
    for (uint64_t i = 0; i < module->symbol_count; i++) {
        const sx_module_symbol *symbol = &module->symbol[i];
        const sx_module_range *range = &module->range[symbol->range_first];
        if (i >= SX_SYMBOLS_MAX || symbol->range_count != 1 || range->low != range->high) {
            return SX_OK;
        }
        binding[i] = (sx_binding){sx_module_string(module, symbol->name), range->low};
    }
    sx_span text = {(const uint8_t *)module->optimized, (size_t)module->optimized_count};
    SX_TRY(sx_graph_parse(cx, text, &open));
    open->sharding = NULL; /* one device holds everything */
    return sx_graph_bind(cx, open, binding, (uint32_t)module->symbol_count, graph);
}

/* The schedule of a kernel as the report has it: behind it may stand ", 3 vectors on the stack", or when it was
 * measured. */
static bool read_schedule(sx_ctx *cx, sx_span plan, const sx_analysis *analysis,
                          sx_schedule *schedule)
{
    while (plan.len > 0 && plan.ptr[plan.len - 1] != ')') {
        plan.len--;
    }
    return sx_schedule_parse(cx, plan, schedule) == SX_OK &&
           sx_schedule_check(cx, schedule, analysis) == SX_OK;
}

/* Prices one kernel again. What is not known here leaves its figures as they are. */
static void price(sx_ctx *cx, const sx_module *module, const sx_graph *graph, const sx_device *here,
                  uint32_t index, sxc_estimate *e)
{
    const sx_module_kernel *kernel = &module->kernel[index];
    bool moves = kernel->kind == SX_MODULE_PACK || kernel->kind == SX_MODULE_COPY;
    bool several = kernel->result_count > 1;
    if (moves || several || kernel->plan.size == 0 || kernel->node >= graph->node_count) {
        return;
    }
    const sx_node *node = sx_graph_node(graph, (sx_node_id){kernel->node});
    if (node->op != SX_OP_FUSED) {
        return;
    }
    sx_type input[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < node->input_count; k++) {
        input[k] = sx_graph_node(graph, sx_graph_input(graph, node, k))->type;
    }
    sx_analysis analysis;
    sx_schedule schedule;
    if (sx_analysis_make(cx, sx_graph_attr(graph, node), input, node->input_count, &analysis) ==
            SX_OK &&
        read_schedule(cx, sx_module_string(module, kernel->plan), &analysis, &schedule)) {
        double there = sx_cost_schedule(e->device, &analysis, &schedule, true);
        double now = sx_cost_schedule(here, &analysis, &schedule, true);
        double floor_there = sx_cost_floor(e->device, &analysis);
        double floor_now = sx_cost_floor(here, &analysis);
        SX_ASSERT(there > 0 && now > 0);
        e->cost_ns[index] *= now / there;
        e->floor_ns[index] *= floor_there > 0 ? floor_now / floor_there : 1;
    }
    sx_ctx_reset_error(cx);
}

static void add_up(const sx_module *module, sxc_estimate *e)
{
    e->run_cost_ns = e->run_floor_ns = 0;
    for (uint64_t i = 0; i < module->launch_count; i++) {
        if (sx_module_kernel_of(module, i) != NULL && !module->launch[i].prologue) {
            e->run_cost_ns += e->cost_ns[module->launch[i].kernel];
            e->run_floor_ns += e->floor_ns[module->launch[i].kernel];
        }
    }
}

sx_code sxc_estimate_make(sx_ctx *cx, const sx_module *module, const sxc_record *record,
                          uint32_t cores, sxc_estimate *e)
{
    size_t count = (size_t)module->kernel_count;
    *e = (sxc_estimate){.device = sxc_device_of(sx_module_string(module, module->info->target)),
                        .cost_ns = SX_NEW_ARRAY(cx, double, count + 1),
                        .floor_ns = SX_NEW_ARRAY(cx, double, count + 1),
                        .run_cost_ns = module->info->cost_ns,
                        .run_floor_ns = module->info->floor_ns};
    if (e->cost_ns == NULL || e->floor_ns == NULL) {
        return cx->error.code;
    }
    for (size_t i = 0; i < count; i++) {
        e->cost_ns[i] = module->kernel[i].cost_ns;
        e->floor_ns[i] = module->kernel[i].floor_ns;
    }
    cores = cores > 0 ? cores : sxc_cores();
    e->cores = e->device != NULL ? e->device->cores : 0;
    bool gpu = e->device != NULL && e->device->block_threads > 0; /* its cores are its own */
    if (e->device == NULL || gpu || cores == 0 || cores == e->cores || count == 0 ||
        module->variant_count > 1 || record->state != SXC_RECORD_VERIFIED) {
        return SX_OK;
    }
    sx_graph *graph;
    sx_code code = bound_program(cx, module, &graph);
    if (code != SX_OK || graph == NULL) {
        sx_ctx_reset_error(cx);
        return code == SX_NOMEM ? code : SX_OK;
    }
    sx_device here = *e->device;
    here.cores = cores;
    e->cores = cores;
    e->adapted = true;
    for (uint32_t k = 0; k < count; k++) {
        price(cx, module, graph, &here, k, e);
    }
    add_up(module, e);
    return SX_OK;
}

void sxc_estimate_print(const sx_module *module, const sxc_estimate *e, sx_buf *out)
{
    const sx_module_info *info = module->info;
    char cost[32], floor[32], here[32];
    sxc_human_ns(info->cost_ns, cost);
    sxc_human_ns(e->run_cost_ns, here);
    sxc_human_ns(e->run_floor_ns, floor);
    if (e->adapted) {
        sx_buf_print(out, "estimate   %s a run on the %u core%s of this machine; %s on ", here,
                     e->cores, e->cores == 1 ? "" : "s", cost);
    } else {
        sx_buf_print(out, "estimate   %s a run, for ", cost);
    }
    sxc_put_machine(module, !e->adapted, out);
    sx_buf_print(out, "\n           roofline floor %s (%.2fx)", floor,
                 e->run_floor_ns > 0 ? e->run_cost_ns / e->run_floor_ns : 0.0);
}

void sxc_estimate_print_before(const sxc_estimate *e, const char *before, sx_buf *out)
{
    sx_buf_print(out, "; as it came %s", before);
    if (e->adapted) {
        sx_buf_print(out, " on %u cores", e->device->cores);
    }
    sx_buf_put_text(out, ", one kernel per operation");
}
