#include "client/verify/whole.h"

#include <math.h>

sx_code sxv_bound_graph(sx_ctx *cx, const sxr_program *program, sx_span text, sx_graph **bound)
{
    const sx_module *module = sxr_module(program);
    sx_graph *graph;
    SX_TRY(sx_graph_parse(cx, text, &graph));
    sx_binding binding[SX_SYMBOLS_MAX];
    if (module->symbol_count > SX_SYMBOLS_MAX) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %llu symbols, at most %u",
                       (unsigned long long)module->symbol_count, SX_SYMBOLS_MAX);
    }
    for (uint32_t i = 0; i < module->symbol_count; i++) {
        binding[i] =
            (sx_binding){sx_module_string(module, module->symbol[i].name), sxr_extent(program, i)};
    }
    graph->sharding = NULL; /* one device holds everything */
    return sx_graph_bind(cx, graph, binding, (uint32_t)module->symbol_count, bound);
}

typedef struct {
    const sxr_program *program;
    bool wide;
    bool unknown; /* the rounded elements do not tell */
    sxv_whole *whole;
} comparing;

/* The memory of an interface tensor that has this name, place and size. */
static sx_code memory_of(sx_ctx *cx, const sxr_program *program, sx_module_place place,
                         sx_span name, const sx_type *type, sx_span *memory)
{
    size_t size = (size_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    uint32_t tensor = sxr_find(program, place, name);
    if (tensor == UINT32_MAX || sxr_size(program, tensor) != size ||
        sxr_memory(program, tensor) == NULL) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %s %.*s of the program has no tensor of %zu bytes",
                       place == SX_TENSOR_OUTPUT ? "output" : "parameter", (int)name.len,
                       (const char *)name.ptr, size);
    }
    *memory = (sx_span){sxr_memory(program, tensor), size};
    return SX_OK;
}

static sx_code give_parameter(sx_ctx *cx, void *self, const sx_attr *attr, const sx_type *type,
                              sx_span *raw)
{
    const comparing *c = self;
    return memory_of(cx, c->program, attr->weight ? SX_TENSOR_WEIGHT : SX_TENSOR_INPUT, attr->name,
                     type, raw);
}

static sx_code take_output(sx_ctx *cx, void *self, const sx_output *output, const sxv_pair *pair)
{
    comparing *c = self;
    sxv_whole *whole = c->whole;
    sx_span memory = {0};
    sxv_comparison got;
    SX_TRY(memory_of(cx, c->program, SX_TENSOR_OUTPUT, output->name, pair->type, &memory));
    sxv_compare(pair, memory.ptr, c->wide, &got);
    if (got.verdict == SXV_UNKNOWN) {
        c->unknown = true;
        return SX_FAIL(cx, SX_MISMATCH, "output %.*s needs double precision", (int)output->name.len,
                       (const char *)output->name.ptr);
    }
    whole->points += got.points;
    whole->finite += got.finite;
    whole->nan += got.nan;
    whole->wrong += got.wrong;
    whole->imprecise = whole->imprecise || got.verdict == SXV_IMPRECISE;
    whole->spread = fmax(whole->spread, got.spread);
    if (got.error * whole->bound >= whole->error * got.bound) { /* further out, by its own bound */
        whole->error = got.error;
        whole->bound = got.bound;
    }
    if (got.verdict == SXV_WRONG && !c->wide) {
        return SX_FAIL(cx, SX_MISMATCH,
                       "output %.*s: element %llu is %.9g, the program as sent gives %.9g (error "
                       "%.2e, rounding explains %.2e)",
                       (int)output->name.len, (const char *)output->name.ptr,
                       (unsigned long long)got.worst, got.got, got.want, got.error, got.bound);
    }
    return SX_OK;
}

static sx_code compare(sx_ctx *cx, const sxr_program *program, const sx_graph *graph,
                       const sxv_reference *reference, bool wide, sxv_whole *whole, bool *unknown)
{
    *whole = (sxv_whole){0};
    comparing c = {.program = program, .wide = wide, .whole = whole};
    sxv_reader reader = {&c, give_parameter, take_output};
    sx_code code = sxv_reference_run(cx, reference, graph, &reader);
    *unknown = c.unknown;
    return code;
}

/* Mostly the rounded reference tells that all is right. Where it does not, both are computed. */
sx_code sxv_whole_compare(sx_ctx *cx, const sxr_program *program, const sx_graph *graph,
                          const sxv_reference *reference, bool wide, sxv_whole *whole)
{
    sxv_reference how = *reference;
    bool unknown;
    how.exact = false;
    how.moved = false;
    sx_code code = compare(cx, program, graph, &how, wide, whole, &unknown);
    if (!unknown) {
        return code;
    }
    sx_ctx_reset_error(cx);
    how.exact = true;
    how.moved = true;
    return compare(cx, program, graph, &how, wide, whole, &unknown);
}
