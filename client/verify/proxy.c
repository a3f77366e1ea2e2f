#include "client/verify/proxy.h"

#include <stdio.h>
#include <string.h>

#include "client/verify/reference.h"
#include "core/cost/device.h"
#include "core/ir/extent.h"

#define EXTENT_MAX 3 /* at smaller extents */

/* The extents that the module has now. */
static uint32_t extents_of(const sxr_program *program, sx_binding binding[SX_SYMBOLS_MAX])
{
    const sx_module *module = sxr_module(program);
    SX_ASSERT(module->symbol_count <= SX_SYMBOLS_MAX);
    for (uint32_t i = 0; i < module->symbol_count; i++) {
        sx_span name = sx_module_string(module, module->symbol[i].name);
        binding[i] = (sx_binding){name, sxr_extent(program, i)};
    }
    return (uint32_t)module->symbol_count;
}

/* At most `extent` for every symbol, or the least value that the program allows; true: one of them became less. */
static bool make_smaller(const sx_graph *graph, int64_t extent, uint32_t count, sx_binding *binding)
{
    bool smaller = false;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < graph->symbol_count; k++) {
            if (sx_symbol_is_declared(&graph->symbol[k]) &&
                sx_span_equal(graph->symbol[k].name, binding[i].name)) {
                int64_t least = sx_max_i64(extent, graph->symbol[k].low);
                smaller = smaller || least < binding[i].value;
                binding[i].value = sx_min_i64(binding[i].value, least);
            }
        }
    }
    return smaller;
}

/* The largest of the small extents at which the program does not take too many operations. */
static sx_code choose_smaller(sx_ctx *cx, const sxr_program *program, const sxv_proxy_wish *wish,
                              sx_binding binding[SX_SYMBOLS_MAX], sxv_proxy *proxy)
{
    sx_graph *graph, *bound;
    SX_TRY(sx_graph_parse(cx, wish->sent, &graph));
    graph->sharding = NULL; /* one device holds everything */
    uint32_t count = 0;
    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        count += sx_symbol_is_declared(&graph->symbol[s]) ? 1 : 0;
    }
    if (count != sxr_module(program)->symbol_count) {
        return SX_FAIL(cx, SX_CORRUPT, "module: its symbols are not those of the program");
    }
    for (int64_t extent = EXTENT_MAX; extent > 0 && count > 0 && !proxy->found; extent--) {
        (void)extents_of(program, binding);
        bool smaller = make_smaller(graph, extent, count, binding);
        SX_TRY(sx_graph_bind(cx, graph, binding, count, &bound));
        proxy->found = smaller && sxv_reference_flops(bound) <= wish->flops_max;
    }
    (void)snprintf(proxy->text, sizeof(proxy->text), "at smaller extents: %s",
                   count == 0 ? "all its extents are fixed" : "it is as large at its least");
    return SX_OK;
}

static void describe(const sxv_proxy_wish *wish, const sx_binding *binding, uint32_t count,
                     sxv_proxy *proxy)
{
    size_t size = sizeof(proxy->text);
    size_t used =
        (size_t)snprintf(proxy->text, size, "%s", wish->machine != NULL ? "on this processor" : "");
    for (uint32_t i = 0; i < count && !wish->same_extents && used < size; i++) {
        const char *before = i > 0 ? ", " : used > 0 ? " at " : "at ";
        used += (size_t)snprintf(proxy->text + used, size - used, "%s%.*s=%lld", before,
                                 (int)binding[i].name.len, (const char *)binding[i].name.ptr,
                                 (long long)binding[i].value);
    }
}

/* Is this the name of a device that runs the code of the machine? */
static bool is_for(sx_span name, const char *machine)
{
    sx_ctx cx;
    const sx_device *device;
    sx_ctx_init(&cx, (size_t)1 << 16);
    bool same = sx_device_find(&cx, name, &device) == SX_OK && device->target != NULL &&
                strcmp(device->target, machine) == 0;
    sx_ctx_fini(&cx);
    return same;
}

sx_span sxv_target_of(const sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    const char *machine = sxr_machine(program)->name;
    sx_span target = sx_module_string(module, module->info->target);
    if (target.len == 0 || memchr(target.ptr, ',', target.len) == NULL) {
        return target;
    }
    for (size_t at = 0; at < target.len;) {
        const uint8_t *end = memchr(target.ptr + at, ',', target.len - at);
        size_t length = end != NULL ? (size_t)(end - target.ptr) - at : target.len - at;
        sx_span name = {target.ptr + at, length};
        if (is_for(name, machine)) {
            return name;
        }
        at += length + 1;
    }
    return sx_span_of(machine);
}

static sx_code compile(sx_ctx *cx, const sxr_program *program, const sxv_proxy_wish *wish,
                       const sx_binding *binding, uint32_t count, sx_buf *bytes)
{
    const sx_module *module = sxr_module(program);
    sx_core_request request = {
        .ir = {(const uint8_t *)module->optimized, (size_t)module->optimized_count},
        .target = wish->machine != NULL ? sx_span_of(wish->machine->name) : sxv_target_of(program),
        .targets = wish->targets,
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

sx_code sxv_proxy_compile(sx_ctx *cx, const sxr_program *program, const sxv_proxy_wish *wish,
                          sx_buf *module, sxv_proxy *proxy)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    SX_ASSERT(wish->flops_max >= 0 && wish->sent.len > 0);
    *proxy = (sxv_proxy){.found = wish->same_extents};
    uint32_t count = extents_of(program, binding);
    if (!wish->same_extents) {
        SX_TRY(choose_smaller(cx, program, wish, binding, proxy));
    }
    if (!proxy->found) {
        return SX_OK;
    }
    describe(wish, binding, count, proxy);
    return compile(cx, program, wish, binding, count, module);
}
