#include "core/ir/effect.h"

#include <string.h>

#include "core/ir/check.h"

static sx_span name_of(const sx_graph *graph, uint32_t node)
{
    return sx_graph_attr(graph, &graph->node[node])->name;
}

/* ---- parameters ---- */

static sx_code check_initial(sx_ctx *cx, const sx_type *type, sx_span initial, const char *name)
{
    size_t size = sx_dtype_bytes(type->dtype);
    sx_dim elements;
    bool counted = sx_type_elements(type, &elements) && sx_dim_is_constant(elements);
    if (initial.len == 0) {
        return SX_FAIL(cx, SX_INPUT, "state \"%s\" has no initial value: state = 0 fills it", name);
    }
    if (initial.len != size && (!counted || (uint64_t)elements.scale * size != initial.len)) {
        return SX_FAIL(cx, SX_INPUT,
                       "state \"%s\": an initial value of %zu bytes; one element of %zu fills it, "
                       "or all of them are given",
                       name, initial.len, size);
    }
    for (size_t i = 0; type->dtype == SX_BOOL && i < initial.len; i++) {
        if (initial.ptr[i] > 1) {
            return SX_FAIL(cx, SX_INPUT, "state \"%s\": element %zu of bool is %u, 0 or 1", name, i,
                           initial.ptr[i]);
        }
    }
    return SX_OK;
}

static sx_code check_kept(sx_ctx *cx, const sx_graph *graph, const sx_kept *kept)
{
    if (kept->node >= graph->node_count || graph->node[kept->node].op != SX_OP_PARAMETER) {
        return SX_FAIL(cx, SX_INPUT, "node %u is %s, and no parameter", kept->node,
                       kept->role == SX_KEEP_STATE ? "state" : "donated");
    }
    const sx_node *node = &graph->node[kept->node];
    sx_short name = sx_short_name(name_of(graph, kept->node));
    if (kept->role != SX_KEEP_STATE && kept->role != SX_KEEP_DONATED) {
        return SX_FAIL(cx, SX_INPUT, "parameter \"%s\": role %u", name.text, (unsigned)kept->role);
    }
    if (sx_graph_attr(graph, node)->weight != 0) {
        return SX_FAIL(cx, SX_INPUT, "parameter \"%s\" is a weight, and cannot be %s", name.text,
                       kept->role == SX_KEEP_STATE ? "state" : "donated");
    }
    if (kept->role == SX_KEEP_STATE) {
        return check_initial(cx, &node->type, kept->initial, name.text);
    }
    if (kept->initial.len > 0) {
        return SX_FAIL(cx, SX_INPUT, "parameter \"%s\" is donated and has an initial value",
                       name.text);
    }
    return SX_OK;
}

static sx_code find_effects(sx_ctx *cx, sx_graph *graph)
{
    if (graph->effects == NULL) {
        graph->effects = SX_NEW(cx, sx_effects);
    }
    return graph->effects != NULL ? SX_OK : cx->error.code;
}

/* The one way to write an initial value: equal elements are their first. */
static size_t normal_length(const sx_type *type, sx_span initial)
{
    size_t size = sx_dtype_bytes(type->dtype);
    bool equal =
        initial.len > size && memcmp(initial.ptr, initial.ptr + size, initial.len - size) == 0;
    return equal ? size : initial.len;
}

sx_code sx_graph_keep(sx_ctx *cx, sx_graph *graph, sx_node_id parameter, sx_keep_role role,
                      sx_span initial)
{
    sx_kept kept = {.node = parameter.i, .role = role, .initial = initial};
    SX_TRY(check_kept(cx, graph, &kept));
    kept.initial.len = normal_length(&graph->node[parameter.i].type, initial);
    if (kept.initial.len > 0) {
        uint8_t *bytes = sx_alloc(cx, kept.initial.len);
        if (bytes == NULL) {
            return cx->error.code;
        }
        memcpy(bytes, initial.ptr, kept.initial.len);
        kept.initial.ptr = bytes;
    }
    SX_TRY(find_effects(cx, graph));
    sx_effects *e = graph->effects;
    SX_ASSERT(e->kept_count == 0 || e->kept[e->kept_count - 1].node < parameter.i);
    void *array = e->kept;
    SX_TRY(sx_grow(cx, &array, &e->kept_capacity, e->kept_count + 1, sizeof(kept)));
    e->kept = array;
    e->kept[e->kept_count++] = kept;
    return SX_OK;
}

const sx_kept *sx_graph_kept(const sx_graph *graph, uint32_t node)
{
    const sx_effects *e = graph->effects;
    uint32_t low = 0, high = e != NULL ? e->kept_count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (e->kept[middle].node == node) {
            return &e->kept[middle];
        }
        low = e->kept[middle].node < node ? middle + 1 : low;
        high = e->kept[middle].node < node ? high : middle;
    }
    return NULL;
}

/* ---- outputs ---- */

static sx_code check_update(sx_ctx *cx, const sx_graph *graph, uint32_t index)
{
    const sx_effects *e = graph->effects;
    const sx_update *update = &e->update[index];
    if (update->output >= graph->output_count) {
        return SX_FAIL(cx, SX_INPUT, "output %u goes into a parameter, the graph has %u outputs",
                       update->output, graph->output_count);
    }
    sx_short output = sx_short_name(graph->output[update->output].name);
    const sx_kept *kept = sx_graph_kept(graph, update->node);
    if (kept == NULL) {
        bool named =
            update->node < graph->node_count && graph->node[update->node].op == SX_OP_PARAMETER;
        sx_hint(cx, "Write state = 0 or donated behind the type of the parameter.");
        return SX_FAIL(cx, SX_INPUT,
                       "output \"%s\" goes into \"%s\", which is neither state nor donated",
                       output.text, named ? sx_short_name(name_of(graph, update->node)).text : "");
    }
    sx_short name = sx_short_name(name_of(graph, update->node));
    const sx_type *to = &graph->node[update->node].type;
    const sx_type *from = &graph->node[graph->output[update->output].node.i].type;
    if (!sx_type_equal(to, from)) {
        sx_buf text;
        sx_buf_init(&text, 4096);
        sx_type_print(from, graph->symbol, graph->symbol_count, &text);
        sx_buf_put_text(&text, ", that is ");
        sx_type_print(to, graph->symbol, graph->symbol_count, &text);
        sx_code code = SX_FAIL(cx, SX_INPUT, "output \"%s\" goes into \"%s\": it is %.*s",
                               output.text, name.text, (int)text.len, (const char *)text.ptr);
        sx_buf_fini(&text);
        return code;
    }
    for (uint32_t i = 0; i < index; i++) {
        if (e->update[i].node == update->node) {
            return SX_FAIL(cx, SX_INPUT, "outputs \"%s\" and \"%s\" both go into %s \"%s\"",
                           sx_short_name(graph->output[e->update[i].output].name).text, output.text,
                           kept->role == SX_KEEP_STATE ? "state" : "the donated", name.text);
        }
    }
    return SX_OK;
}

static sx_code put_update(sx_ctx *cx, sx_graph *graph, uint32_t output, uint32_t node)
{
    SX_TRY(find_effects(cx, graph));
    sx_effects *e = graph->effects;
    SX_ASSERT(e->update_count == 0 || e->update[e->update_count - 1].output < output);
    void *array = e->update;
    SX_TRY(sx_grow(cx, &array, &e->update_capacity, e->update_count + 1, sizeof(sx_update)));
    e->update = array;
    e->update[e->update_count] = (sx_update){output, node};
    SX_TRY(check_update(cx, graph, e->update_count));
    e->update_count++;
    return SX_OK;
}

sx_code sx_graph_put_into(sx_ctx *cx, sx_graph *graph, uint32_t output, sx_span parameter)
{
    SX_ASSERT(output < graph->output_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_PARAMETER && sx_span_equal(name_of(graph, n), parameter)) {
            return put_update(cx, graph, output, n);
        }
    }
    return SX_FAIL(cx, SX_INPUT, "output \"%s\" goes into \"%s\", and no parameter has that name",
                   sx_short_name(graph->output[output].name).text, sx_short_name(parameter).text);
}

uint32_t sx_graph_into(const sx_graph *graph, uint32_t output)
{
    const sx_effects *e = graph->effects;
    uint32_t low = 0, high = e != NULL ? e->update_count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (e->update[middle].output == output) {
            return e->update[middle].node;
        }
        low = e->update[middle].output < output ? middle + 1 : low;
        high = e->update[middle].output < output ? high : middle;
    }
    return SX_NOWHERE;
}

uint32_t sx_graph_version(const sx_graph *graph, uint32_t node)
{
    const sx_effects *e = graph->effects;
    for (uint32_t i = 0; e != NULL && i < e->update_count; i++) {
        if (e->update[i].node == node) {
            return e->update[i].output;
        }
    }
    return SX_NOWHERE;
}

/* ---- whole graphs ---- */

sx_code sx_effects_copy(sx_ctx *cx, const sx_graph *from, const uint32_t *image, sx_graph *to)
{
    const sx_effects *e = from->effects;
    for (uint32_t i = 0; e != NULL && i < e->kept_count; i++) {
        uint32_t n = e->kept[i].node;
        sx_node_id node = {image != NULL ? image[n] : n};
        SX_TRY(sx_graph_keep(cx, to, node, e->kept[i].role, e->kept[i].initial));
    }
    for (uint32_t i = 0; e != NULL && i < e->update_count; i++) {
        uint32_t n = e->update[i].node;
        SX_TRY(put_update(cx, to, e->update[i].output, image != NULL ? image[n] : n));
    }
    return SX_OK;
}

sx_code sx_effects_restore(sx_ctx *cx, const sx_graph *from, sx_graph *to)
{
    if (from->effects == NULL || to->effects != NULL) {
        return SX_OK;
    }
    uint32_t *image = NULL;
    SX_TRY(sx_graph_parameter_image(cx, from, to, &image));
    SX_ASSERT(from->output_count == to->output_count);
    return sx_effects_copy(cx, from, image, to);
}

sx_code sx_effects_check(sx_ctx *cx, const sx_graph *graph)
{
    const sx_effects *e = graph->effects;
    for (uint32_t i = 0; e != NULL && i < e->kept_count; i++) {
        SX_TRY(check_kept(cx, graph, &e->kept[i]));
    }
    for (uint32_t i = 0; e != NULL && i < e->update_count; i++) {
        SX_TRY(check_update(cx, graph, i));
    }
    return SX_OK;
}
