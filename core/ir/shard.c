#include "core/ir/shard.h"

#include <stdio.h>

#include "core/ir/check.h"
#include "core/ir/extent.h"

sx_places sx_places_none(void)
{
    sx_places none;
    for (uint32_t a = 0; a < SX_MESH_AXES_MAX; a++) {
        none.at[a] = SX_PLACE_R;
    }
    return none;
}

bool sx_places_equal(const sx_places *a, const sx_places *b)
{
    bool same = true;
    for (uint32_t i = 0; i < SX_MESH_AXES_MAX; i++) {
        same = same && a->at[i] == b->at[i];
    }
    return same;
}

uint32_t sx_mesh_find_axis(const sx_graph *graph, sx_span name)
{
    const sx_sharding *s = graph->sharding;
    for (uint32_t a = 0; s != NULL && a < s->axis_count; a++) {
        if (sx_span_equal(s->axis[a].name, name)) {
            return a;
        }
    }
    return SX_MESH_AXES_MAX;
}

sx_code sx_mesh_add_axis(sx_ctx *cx, sx_graph *graph, sx_span name, int64_t size)
{
    sx_short shown = sx_short_name(name);
    if (graph->sharding == NULL) {
        graph->sharding = SX_NEW(cx, sx_sharding);
        if (graph->sharding == NULL) {
            return cx->error.code;
        }
    }
    sx_sharding *s = graph->sharding;
    if (s->axis_count == SX_MESH_AXES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "mesh axis \"%s\": more than %u axes", shown.text,
                       SX_MESH_AXES_MAX);
    }
    if (name.len == 0 || name.len > SX_NAME_MAX) {
        return SX_FAIL(cx, SX_INPUT, "mesh axis name of %zu bytes, 1 to %d", name.len, SX_NAME_MAX);
    }
    if (sx_mesh_find_axis(graph, name) < SX_MESH_AXES_MAX) {
        return SX_FAIL(cx, SX_INPUT, "mesh axis \"%s\" is declared twice", shown.text);
    }
    if (size < 1 || size > SX_MESH_DEVICES_MAX) {
        return SX_FAIL(cx, SX_INPUT, "mesh axis \"%s\" of %lld devices, 1 to %lld", shown.text,
                       (long long)size, (long long)SX_MESH_DEVICES_MAX);
    }
    int64_t devices = size;
    for (uint32_t a = 0; a < s->axis_count; a++) {
        devices *= s->axis[a].size; /* both at most 2^20 */
    }
    if (devices > SX_MESH_DEVICES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "mesh axis \"%s\": mesh of %lld devices, at most %lld",
                       shown.text, (long long)devices, (long long)SX_MESH_DEVICES_MAX);
    }
    const char *copy = sx_alloc_text(cx, name);
    if (copy == NULL) {
        return cx->error.code;
    }
    s->axis[s->axis_count++] = (sx_mesh_axis){{(const uint8_t *)copy, name.len}, size};
    return SX_OK;
}

/* Is there a value of the extent that `pieces` divides? */
static bool can_divide(const sx_graph *graph, sx_dim dim, int64_t pieces)
{
    if (sx_dim_is_constant(dim)) {
        return dim.scale % pieces == 0;
    }
    const sx_symbol *s = &graph->symbol[dim.symbol];
    int64_t step = pieces / sx_gcd_i64(dim.scale, pieces);
    return s->high / step * step >= s->low;
}

static sx_code check_places(sx_ctx *cx, const sx_graph *graph, const sx_type *type,
                            const sx_places *places)
{
    const sx_sharding *s = graph->sharding;
    int64_t pieces[SX_RANK_MAX];
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        pieces[d] = 1;
    }
    for (uint32_t a = 0; a < SX_MESH_AXES_MAX; a++) {
        uint32_t place = places->at[a];
        sx_short name = a < s->axis_count ? sx_short_name(s->axis[a].name) : (sx_short){{0}};
        if (place >= SX_PLACE_COUNT || (a >= s->axis_count && place != SX_PLACE_R)) {
            return SX_FAIL(cx, SX_INPUT, "placement %u along mesh axis %u of %u", place, a,
                           s->axis_count);
        }
        if (place > SX_PLACE_R && type->dtype == SX_BOOL) {
            return SX_FAIL(cx, SX_INPUT, "mesh axis \"%s\": a bool cannot be P", name.text);
        }
        if (place >= SX_PLACE_R) {
            continue;
        }
        if (place >= type->rank) {
            return SX_FAIL(cx, SX_INPUT, "mesh axis \"%s\": S(%u) of a tensor of rank %u",
                           name.text, place, type->rank);
        }
        sx_dim extent = type->dim[place];
        if (!sx_dim_is_constant(extent) && !sx_symbol_is_declared(&graph->symbol[extent.symbol])) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "mesh axis \"%s\": S(%u) of extent %s, of which no multiple is known",
                           name.text, place,
                           sx_short_dim(graph->symbol, graph->symbol_count, extent).text);
        }
        pieces[place] *= s->axis[a].size; /* at most SX_MESH_DEVICES_MAX */
        if (!can_divide(graph, type->dim[place], pieces[place])) {
            return SX_FAIL(cx, SX_INPUT,
                           "mesh axis \"%s\": S(%u) of extent %s, which %lld pieces do not divide",
                           name.text, place,
                           sx_short_dim(graph->symbol, graph->symbol_count, type->dim[place]).text,
                           (long long)pieces[place]);
        }
    }
    return SX_OK;
}

static sx_code put(sx_ctx *cx, sx_placed **list, uint32_t *count, uint32_t *capacity,
                   uint32_t index, const sx_places *places)
{
    void *array = *list;
    SX_TRY(sx_grow(cx, &array, capacity, *count + 1, sizeof(sx_placed)));
    *list = array;
    (*list)[(*count)++] = (sx_placed){index, *places};
    return SX_OK;
}

sx_code sx_graph_place(sx_ctx *cx, sx_graph *graph, sx_node_id parameter, const sx_places *places)
{
    sx_sharding *s = graph->sharding;
    const sx_places none = sx_places_none();
    SX_ASSERT(s != NULL && sx_graph_node(graph, parameter)->op == SX_OP_PARAMETER);
    SX_ASSERT(s->parameter_count == 0 || s->parameter[s->parameter_count - 1].index < parameter.i);
    SX_TRY(check_places(cx, graph, &graph->node[parameter.i].type, places));
    if (sx_places_equal(places, &none)) {
        return SX_OK;
    }
    return put(cx, &s->parameter, &s->parameter_count, &s->parameter_capacity, parameter.i, places);
}

sx_code sx_graph_want(sx_ctx *cx, sx_graph *graph, uint32_t output, const sx_places *places)
{
    sx_sharding *s = graph->sharding;
    SX_ASSERT(s != NULL && output < graph->output_count);
    SX_ASSERT(s->output_count == 0 || s->output[s->output_count - 1].index < output);
    const sx_node *node = sx_graph_node(graph, graph->output[output].node);
    SX_TRY(check_places(cx, graph, &node->type, places));
    return put(cx, &s->output, &s->output_count, &s->output_capacity, output, places);
}

static const sx_places *find(const sx_placed *list, uint32_t count, uint32_t index)
{
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (list[middle].index == index) {
            return &list[middle].places;
        }
        if (list[middle].index < index) {
            low = middle + 1;
        } else {
            count = middle;
        }
    }
    return NULL;
}

sx_places sx_graph_places(const sx_graph *graph, uint32_t parameter)
{
    SX_ASSERT(parameter < graph->node_count);
    const sx_sharding *s = graph->sharding;
    const sx_places *found = s != NULL ? find(s->parameter, s->parameter_count, parameter) : NULL;
    return found != NULL ? *found : sx_places_none();
}

const sx_places *sx_graph_wanted(const sx_graph *graph, uint32_t output)
{
    SX_ASSERT(output < graph->output_count);
    const sx_sharding *s = graph->sharding;
    return s != NULL ? find(s->output, s->output_count, output) : NULL;
}

sx_code sx_sharding_copy(sx_ctx *cx, const sx_graph *from, const uint32_t *image, sx_graph *to)
{
    const sx_sharding *s = from->sharding;
    if (s == NULL) {
        return SX_OK;
    }
    for (uint32_t a = 0; a < s->axis_count; a++) {
        SX_TRY(sx_mesh_add_axis(cx, to, s->axis[a].name, s->axis[a].size));
    }
    for (uint32_t i = 0; i < s->parameter_count; i++) {
        uint32_t n = s->parameter[i].index;
        sx_node_id node = {image != NULL ? image[n] : n};
        if (sx_graph_place(cx, to, node, &s->parameter[i].places) != SX_OK) {
            return sx_fail_in(cx, "parameter \"%s\"",
                              sx_short_name(sx_graph_attr(from, &from->node[n])->name).text);
        }
    }
    for (uint32_t i = 0; i < s->output_count; i++) {
        uint32_t k = s->output[i].index;
        if (sx_graph_want(cx, to, k, &s->output[i].places) != SX_OK) {
            return sx_fail_in(cx, "output \"%s\"", sx_short_name(from->output[k].name).text);
        }
    }
    return SX_OK;
}

sx_code sx_sharding_restore(sx_ctx *cx, const sx_graph *from, sx_graph *to)
{
    if (from->sharding == NULL || to->sharding != NULL) {
        return SX_OK;
    }
    uint32_t *image = NULL;
    SX_TRY(sx_graph_parameter_image(cx, from, to, &image));
    SX_ASSERT(from->output_count == to->output_count);
    return sx_sharding_copy(cx, from, image, to);
}

sx_code sx_sharding_check(sx_ctx *cx, const sx_graph *graph)
{
    const sx_sharding *s = graph->sharding;
    if (s == NULL) {
        return SX_OK;
    }
    if (s->axis_count == 0 || s->axis_count > SX_MESH_AXES_MAX) {
        return SX_FAIL(cx, SX_INPUT, "mesh of %u axes, 1 to %u", s->axis_count, SX_MESH_AXES_MAX);
    }
    for (uint32_t i = 0; i < s->parameter_count; i++) {
        uint32_t n = s->parameter[i].index;
        if (n >= graph->node_count || graph->node[n].op != SX_OP_PARAMETER) {
            return SX_FAIL(cx, SX_INPUT, "placement %u: node %u is no parameter", i, n);
        }
        SX_TRY(check_places(cx, graph, &graph->node[n].type, &s->parameter[i].places));
    }
    for (uint32_t i = 0; i < s->output_count; i++) {
        uint32_t k = s->output[i].index;
        if (k >= graph->output_count) {
            return SX_FAIL(cx, SX_INPUT, "placement %u: output %u, the graph has %u", i, k,
                           graph->output_count);
        }
        const sx_type *type = &graph->node[graph->output[k].node.i].type;
        SX_TRY(check_places(cx, graph, type, &s->output[i].places));
    }
    return SX_OK;
}

void sx_sharding_multiples(const sx_graph *graph, int64_t *multiple)
{
    const sx_sharding *s = graph->sharding;
    for (uint32_t i = 0; i < SX_SYMBOLS_MAX; i++) {
        multiple[i] = 1;
    }
    for (uint32_t i = 0; s != NULL && i < s->parameter_count; i++) {
        const sx_type *type = &graph->node[s->parameter[i].index].type;
        for (uint32_t d = 0; d < type->rank; d++) {
            int64_t pieces = 1;
            for (uint32_t a = 0; a < s->axis_count; a++) {
                pieces *= s->parameter[i].places.at[a] == d ? s->axis[a].size : 1;
            }
            if (!sx_dim_is_constant(type->dim[d])) {
                int64_t *m = &multiple[type->dim[d].symbol];
                int64_t step = pieces / sx_gcd_i64(type->dim[d].scale, pieces);
                int64_t both = *m / sx_gcd_i64(*m, step);
                int64_t least = 0;
                if (sx_mul_i64(both, step, &least) && least <= SX_EXTENT_MAX) {
                    *m = least;
                }
            }
        }
    }
}
