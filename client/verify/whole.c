#include "client/verify/whole.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "client/verify/rounded.h"
#include "core/ir/effect.h"

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

/* ---- roundings to types that are narrower than f32 ---- */
/* The results of narrow types on a way to a node, where they are most, and the largest unit of them. */
typedef struct {
    uint32_t count;
    double unit;
} roundings;

static uint32_t roundings_of(const sx_node *node)
{
    switch (sx_op_info_of(node->op)->op_class) {
    case SX_OPCLASS_LEAF:
    case SX_OPCLASS_VIEW:
    case SX_OPCLASS_CONCAT:
    case SX_OPCLASS_GATHER:
    case SX_OPCLASS_DYNAMIC:
    case SX_OPCLASS_SORT:
    case SX_OPCLASS_MOVE: return 0;
    case SX_OPCLASS_UNARY:
    case SX_OPCLASS_BINARY:
    case SX_OPCLASS_COMPARE:
    case SX_OPCLASS_SELECT:
    case SX_OPCLASS_CONVERT:
    case SX_OPCLASS_REDUCE:
    case SX_OPCLASS_DOT:
    case SX_OPCLASS_WINDOW:
    case SX_OPCLASS_CONV:
    case SX_OPCLASS_SCATTER:
    case SX_OPCLASS_COMPOSITE:
    case SX_OPCLASS_REGION:
    case SX_OPCLASS_COLLECTIVE:
    case SX_OPCLASS_FUSED: break;
    }
    return 1;
}

sx_code sxv_precise_bounds(sx_ctx *cx, const sx_graph *graph, bool tf32, const double **bound)
{
    roundings *way = sx_alloc(cx, graph->node_count * sizeof(*way));
    double *b = sx_alloc(cx, graph->node_count * sizeof(*b));
    if (way == NULL || b == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t from = graph->input[node->input_first + i].i;
            SX_ASSERT(from < n);
            way[n].count = way[from].count > way[n].count ? way[from].count : way[n].count;
            way[n].unit = fmax(way[n].unit, way[from].unit);
        }
        sx_op_class op_class = sx_op_info_of(node->op)->op_class;
        bool multiplies = op_class == SX_OPCLASS_DOT || op_class == SX_OPCLASS_CONV;
        bool rounds = tf32 && multiplies && node->type.dtype == SX_F32;
        double unit = rounds ? SXV_TF32_UNIT : sxv_unit(node->type.dtype);
        if (unit > sxv_unit(SX_F32)) {
            way[n].count += roundings_of(node);
            way[n].unit = fmax(way[n].unit, unit);
        }
        b[n] = SXR_PRECISE + 4 * way[n].unit * sqrt((double)way[n].count);
    }
    *bound = b;
    return SX_OK;
}

/* ---- the comparison ---- */
typedef struct {
    const sxr_program *program;
    const sx_graph *graph;
    const double *precise; /* of each node of the program without composite operations */
    bool wide;
    bool unknown; /* the rounded elements do not tell */
    sxv_whole *whole;
    /* Where the program is rounded in several ways: of each output what sxv_compare keeps, and the outputs so far. One
     * that is wrong does not keep the others from being looked at. */
    double **spread; /* [output_count]; NULL: it is rounded in one way */
    uint32_t outputs;
    bool wrong;
    sx_error first;
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

/* What the run read of a parameter that a run may overwrite: the version from before it. */
static sx_code old_version(sx_ctx *cx, const comparing *c, const sx_kept *kept, sx_span name,
                           const sx_type *type, sx_span *raw)
{
    size_t size = (size_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    bool state = kept->role == SX_KEEP_STATE;
    uint32_t tensor = sxr_find(c->program, state ? SX_TENSOR_STATE : SX_TENSOR_INPUT, name);
    if (tensor == UINT32_MAX || sxr_size(c->program, tensor) != size) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module: parameter %.*s of the program has no %s of %zu bytes",
                       (int)name.len, (const char *)name.ptr, state ? "state" : "input", size);
    }
    raw->ptr = sxr_remembered(c->program, tensor);
    raw->len = size;
    return raw->ptr != NULL ? SX_OK
                            : SX_FAIL(cx, SX_USAGE,
                                      "what the run overwrote of %.*s is not remembered: a "
                                      "comparison needs it",
                                      (int)name.len, (const char *)name.ptr);
}

static sx_code give_parameter(sx_ctx *cx, void *self, const sx_attr *attr, const sx_type *type,
                              sx_span *raw)
{
    const comparing *c = self;
    const sx_effects *e = c->graph->effects;
    for (uint32_t i = 0; e != NULL && i < e->kept_count; i++) {
        const sx_kept *kept = &e->kept[i];
        const sx_node *node = sx_graph_node(c->graph, (sx_node_id){kept->node});
        bool written =
            kept->role == SX_KEEP_STATE || sx_graph_version(c->graph, kept->node) != SX_NOWHERE;
        if (written && sx_span_equal(sx_graph_attr(c->graph, node)->name, attr->name)) {
            return old_version(cx, c, kept, attr->name, type, raw);
        }
    }
    return memory_of(cx, c->program, attr->weight ? SX_TENSOR_WEIGHT : SX_TENSOR_INPUT, attr->name,
                     type, raw);
}

/* The elements that the run gave an output: in memory of its own, or as the new version of a state. */
static sx_code new_version(sx_ctx *cx, const comparing *c, sx_span name, const sx_type *type,
                           sx_span *memory)
{
    uint32_t k = 0;
    while (k < c->graph->output_count && !sx_span_equal(c->graph->output[k].name, name)) {
        k++;
    }
    uint32_t into = k < c->graph->output_count ? sx_graph_into(c->graph, k) : SX_NOWHERE;
    if (into == SX_NOWHERE || sx_graph_role(c->graph, into) != SX_KEEP_STATE) {
        return memory_of(cx, c->program, SX_TENSOR_OUTPUT, name, type, memory);
    }
    size_t size = (size_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    const sx_attr *attr = sx_graph_attr(c->graph, &c->graph->node[into]);
    uint32_t tensor = sxr_find(c->program, SX_TENSOR_STATE, attr->name);
    uint8_t *now = sx_alloc(cx, size);
    if (tensor == UINT32_MAX) {
        return SX_FAIL(cx, SX_CORRUPT, "module: no state %.*s", (int)attr->name.len,
                       (const char *)attr->name.ptr);
    }
    *memory = (sx_span){now, size};
    return now != NULL ? sxr_state_read(cx, c->program, tensor, now, size) : cx->error.code;
}

/* What is further out by its own bound stays; among those that are not out at all, the one with the largest bound.
 * Integers have a bound of 0: they are right or wrong, and hide no other output. */
static void keep_furthest(sxv_whole *whole, double error, double bound)
{
    double ratio = error == 0 ? 0 : error / fmax(bound, DBL_MIN);
    double before = whole->error == 0 ? 0 : whole->error / fmax(whole->bound, DBL_MIN);
    if (ratio > before || (ratio == before && bound > whole->bound)) {
        whole->error = error;
        whole->bound = bound;
    }
}

/* An output whose exact elements are so much smaller than what rounding to f32 makes of them is zero, as the gradient
 * of a bias of keys is: the elements are what double precision rounds. How far off is relative to them says nothing. */
#define VANISHED 0x1p20

sx_code sxv_whole_take(sx_ctx *cx, const sxv_pair *pair, const void *memory, sx_span name,
                       double precise, bool wide, double *spread, sxv_whole *whole, bool *unknown)
{
    sxv_comparison got;
    sxv_compare(pair, memory, wide, spread, &got);
    *unknown = got.verdict == SXV_UNKNOWN;
    if (*unknown) {
        return SX_FAIL(cx, SX_MISMATCH, "output %.*s needs double precision", (int)name.len,
                       (const char *)name.ptr);
    }
    whole->points += got.points;
    whole->finite += got.finite;
    whole->nan += got.nan;
    whole->wrong += got.wrong;
    bool vanishes = got.spread > VANISHED;
    bool coarse = got.error > precise && !vanishes;
    whole->imprecise = whole->imprecise || got.verdict == SXV_IMPRECISE || coarse;
    whole->spread = vanishes ? whole->spread : fmax(whole->spread, got.spread);
    keep_furthest(whole, got.error, got.bound);
    if (got.verdict == SXV_WRONG && !wide) {
        return SX_FAIL(cx, SX_MISMATCH,
                       "output %.*s: element %llu is %.9g, the program as sent gives %.9g (error "
                       "%.2e, rounding explains %.2e)",
                       (int)name.len, (const char *)name.ptr, (unsigned long long)got.worst,
                       got.got, got.want, got.error, got.bound);
    }
    return SX_OK;
}

static sx_code take_output(sx_ctx *cx, void *self, const sx_output *output, const sxv_pair *pair)
{
    comparing *c = self;
    sx_span memory = {0};
    double *spread = NULL;
    SX_TRY(new_version(cx, c, output->name, pair->type, &memory));
    if (c->spread != NULL) {
        SX_ASSERT(c->outputs < c->graph->output_count);
        double **its = &c->spread[c->outputs++];
        size_t groups = (size_t)sx_tensor_elements(pair->type) / SXV_GROUP + 1;
        *its = *its != NULL ? *its : calloc(groups, sizeof(**its));
        if (*its == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "no memory for %zu groups of elements", groups);
        }
        spread = *its;
    }
    sx_code code = sxv_whole_take(cx, pair, memory.ptr, output->name, c->precise[output->node.i],
                                  c->wide, spread, c->whole, &c->unknown);
    if (code != SX_MISMATCH || c->spread == NULL || c->unknown) {
        return code;
    }
    c->first = c->wrong ? c->first : cx->error;
    c->wrong = true;
    sx_ctx_reset_error(cx);
    return SX_OK;
}

static sx_code compare(sx_ctx *cx, const sxr_program *program, const sx_graph *graph,
                       const sxv_reference *reference, bool wide, double **spread, sxv_whole *whole,
                       bool *unknown)
{
    *whole = (sxv_whole){0};
    comparing c = {
        .program = program, .graph = graph, .wide = wide, .whole = whole, .spread = spread};
    *unknown = false;
    const sx_graph *expanded; /* as the reference does, which names outputs by nodes of it */
    SX_TRY(sx_graph_expand(cx, graph, &expanded));
    SX_TRY(sxv_precise_bounds(cx, expanded, reference->tf32, &c.precise));
    sxv_reader reader = {&c, give_parameter, take_output};
    sx_code code = sxv_reference_run(cx, reference, graph, &reader);
    *unknown = c.unknown;
    if (code == SX_OK && c.wrong) {
        cx->error = c.first;
        code = c.first.code;
    }
    return code;
}

void sxv_whole_add(sxv_whole *whole, const sxv_whole *more)
{
    SX_ASSERT(more->finite <= more->points && more->nan <= more->points);
    whole->points += more->points;
    whole->finite += more->finite;
    whole->nan += more->nan;
    whole->wrong += more->wrong;
    whole->imprecise = whole->imprecise || more->imprecise;
    whole->spread = fmax(whole->spread, more->spread);
    keep_furthest(whole, more->error, more->bound);
}

/* Does a node of the program run another one? What rounding does inside is not looked at. */
static bool has_regions(const sx_graph *graph)
{
    bool any = false;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        any = any || sx_op_info_of(graph->node[n].op)->op_class == SX_OPCLASS_REGION;
    }
    return any;
}

/* Mostly the rounded reference tells that all is right. Where it does not, both are computed; where rounding seems to
 * explain too little, it is asked again how far that goes: one way to round may lie beside the exact result by chance,
 * by less than a 64th of what is usual about once in 100 times, and a step of training has more elements than that. Of
 * all ways the one that went furthest counts, for each group of elements. */
#define ROUNDINGS 4u
sx_code sxv_whole_compare(sx_ctx *cx, const sxr_program *program, const sx_graph *graph,
                          const sxv_reference *reference, bool wide, sxv_whole *whole)
{
    sxv_reference how = *reference;
    bool unknown;
    how.exact = false;
    how.moved = 0;
    sx_code code = compare(cx, program, graph, &how, wide, NULL, whole, &unknown);
    if (!unknown) {
        return code;
    }
    sx_ctx_reset_error(cx);
    const uint32_t last = has_regions(graph) ? 1 : ROUNDINGS;
    double **spread = calloc((size_t)graph->output_count + 1, sizeof(*spread));
    how.exact = true;
    code = spread != NULL ? SX_MISMATCH : SX_FAIL(cx, SX_NOMEM, "no memory for the outputs");
    for (how.moved = 1; how.moved <= last && code == SX_MISMATCH; how.moved++) {
        sx_ctx_reset_error(cx);
        code = compare(cx, program, graph, &how, wide, spread, whole, &unknown);
    }
    for (uint32_t k = 0; spread != NULL && k < graph->output_count; k++) {
        free(spread[k]);
    }
    free(spread);
    return code;
}
