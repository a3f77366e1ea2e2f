#include "client/verify/reduced.h"

#include <stdio.h>
#include <string.h>

#include "client/verify/reference.h"

#define WISH_MAX 3

/* Gives every symbol `wish`, or what comes next to it; *smaller: one of them is less than in the module. */
static void choose(const sxr_program *program, const sx_graph *graph, int64_t wish,
                   sx_binding *binding, bool *smaller, char text[SXV_REDUCED_TEXT])
{
    size_t used = 0;
    *smaller = false;
    text[0] = '\0';
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        const sx_module *module = sxr_module(program);
        sx_span name = sx_module_string(module, module->symbol[i].name);
        int64_t value = sxr_extent(program, i);
        for (uint32_t k = 0; k < graph->symbol_count; k++) {
            if (sx_span_equal(graph->symbol[k].name, name)) {
                int64_t least = sx_max_i64(wish, graph->symbol[k].low);
                *smaller = *smaller || least < value;
                value = sx_min_i64(value, least);
            }
        }
        binding[i] = (sx_binding){name, value};
        if (used < SXV_REDUCED_TEXT) {
            used += (size_t)snprintf(text + used, SXV_REDUCED_TEXT - used, "%s%.*s=%lld",
                                     i > 0 ? ", " : "", (int)name.len, (const char *)name.ptr,
                                     (long long)value);
        }
    }
}

/* Of a module for several machines, the one whose code is compared. */
static sx_span target_of(const sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    sx_span target = sx_module_string(module, module->info->target);
    bool several = target.len > 0 && memchr(target.ptr, ',', target.len) != NULL;
    return several ? sx_span_of(sxr_machine(program)->name) : target;
}

static sx_code compile(sx_ctx *cx, const sxr_program *program, const sx_binding *binding,
                       uint32_t count, const sx_targets *targets, sx_buf *bytes)
{
    const sx_module *module = sxr_module(program);
    sx_core_request request = {
        .ir = {(const uint8_t *)module->optimized, (size_t)module->optimized_count},
        .target = target_of(program),
        .targets = targets,
        .binding = binding,
        .binding_count = count,
        .no_reassociate = true};
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, &request, &image);
    code = code == SX_OK ? sx_image_encode(cx, &image, bytes) : code;
    sx_image_fini(&image);
    return code;
}

sx_code sxv_reduced_compile(sx_ctx *cx, const sxr_program *program, sx_span sent, double flops_max,
                            const sx_targets *targets, sx_buf *module, sxv_reduced *reduced)
{
    sx_graph *graph, *bound;
    sx_binding binding[SX_SYMBOLS_MAX];
    SX_ASSERT(flops_max >= 0 && sent.len > 0);
    *reduced = (sxv_reduced){.text = "all its extents are fixed"};
    SX_TRY(sx_graph_parse(cx, sent, &graph));
    graph->sharding = NULL; /* one device holds everything */
    uint32_t count = graph->symbol_count;
    if (count != sxr_module(program)->symbol_count) {
        return SX_FAIL(cx, SX_CORRUPT, "module: its symbols are not those of the program");
    }
    for (int64_t wish = WISH_MAX; wish > 0 && count > 0 && !reduced->found; wish--) {
        bool smaller;
        choose(program, graph, wish, binding, &smaller, reduced->text);
        SX_TRY(sx_graph_bind(cx, graph, binding, count, &bound));
        reduced->found = smaller && sxv_reference_flops(bound) <= flops_max;
    }
    if (count > 0 && !reduced->found) {
        (void)snprintf(reduced->text, sizeof(reduced->text), "it is as large at its least extents");
    }
    return reduced->found ? compile(cx, program, binding, count, targets, module) : SX_OK;
}
