#include "core/ir/check.h"
#include "core/ir/collective.h"
#include "core/ir/effect.h"
#include "core/ir/extent.h"
#include "core/ir/num.h"
#include "core/ir/plain.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"

#include <stdio.h>
#include <string.h>

static sx_code copy_name(sx_ctx *cx, const char *what, size_t least, sx_span name, sx_span *copy)
{
    if (name.len < least || name.len > SX_NAME_MAX) {
        return SX_FAIL(cx, SX_INPUT, "%s of %zu bytes, %zu to %d", what, name.len, least,
                       SX_NAME_MAX);
    }
    const char *text = sx_alloc_text(cx, name);
    if (text == NULL) {
        return cx->error.code;
    }
    *copy = (sx_span){(const uint8_t *)text, name.len};
    return SX_OK;
}

sx_code sx_graph_make(sx_ctx *cx, sx_span name, sx_attr_table *attrs, sx_graph **graph)
{
    SX_ASSERT(name.ptr != NULL || name.len == 0);
    sx_graph *g = SX_NEW(cx, sx_graph);
    if (g == NULL) {
        return cx->error.code;
    }
    SX_TRY(copy_name(cx, "graph name", 0, name, &g->name));
    if (attrs == NULL) {
        attrs = SX_NEW(cx, sx_attr_table);
        if (attrs == NULL) {
            return cx->error.code;
        }
        SX_TRY(sx_attr_table_init(cx, attrs));
    }
    g->attrs = attrs;
    *graph = g;
    return SX_OK;
}

sx_code sx_graph_add_symbol(sx_ctx *cx, sx_graph *graph, sx_span name, int64_t low, int64_t high,
                            uint32_t *symbol)
{
    SX_ASSERT(name.ptr != NULL || name.len == 0);
    if (graph->symbol_count >= SX_SYMBOLS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "symbol \"%s\": more than %u symbols",
                       sx_short_name(name).text, SX_SYMBOLS_MAX);
    }
    if (low < 1 || low > high || high > SX_EXTENT_MAX) {
        return SX_FAIL(cx, SX_INPUT, "symbol \"%s\": interval [%lld, %lld], within [1, %lld]",
                       sx_short_name(name).text, (long long)low, (long long)high,
                       (long long)SX_EXTENT_MAX);
    }
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        if (sx_symbol_is_declared(&graph->symbol[i]) &&
            sx_span_equal(graph->symbol[i].name, name)) {
            return SX_FAIL(cx, SX_INPUT, "symbol \"%s\" is declared twice",
                           sx_short_name(name).text);
        }
    }
    sx_symbol added = {.low = low, .high = high};
    SX_TRY(copy_name(cx, "symbol name", 1, name, &added.name));
    void *array = graph->symbol;
    SX_TRY(sx_grow(cx, &array, &graph->symbol_capacity, graph->symbol_count + 1, sizeof(added)));
    graph->symbol = array;
    graph->symbol[graph->symbol_count] = added;
    *symbol = graph->symbol_count++;
    return SX_OK;
}

/* ---- nodes ---- */

#define LIST_INT(name) UINT64_C(0)
#define LIST_INTS(name) SX_A(name)
#define LIST_EXTENTS(name) UINT64_C(0)
#define LIST_FLOAT(name) UINT64_C(0)
#define LIST_REDUCER(name) UINT64_C(0)
#define LIST_DIRECTION(name) UINT64_C(0)
#define LIST_TYPE(name) UINT64_C(0)
#define LIST_BYTES(name) UINT64_C(0)
#define LIST_NAME(name) UINT64_C(0)
#define LIST_BODY(name) UINT64_C(0)
#define LIST_PROGRAM(name) UINT64_C(0)
#define LIST_PAIRS(name) SX_A(name)

/* Lists that an operation carries and the attribute lacks: they are empty. */
static uint64_t missing_lists(sx_op op, const sx_attr *attr)
{
    uint64_t lists = 0;
#define SX_ATTR(name, kind, help) lists |= LIST_##kind(name);
#include "core/ir/attrs.def"
#undef SX_ATTR
    return lists & sx_op_info_of(op)->attrs & ~attr->present;
}

const sx_attr *sx_attr_normal(sx_op op, const sx_attr *attr, sx_attr *made)
{
    static const uint8_t nothing[8] = {0}; /* what fills a constant without elements */
    SX_ASSERT(op < SX_OP_COUNT);
    uint64_t lists = missing_lists(op, attr);
    if (lists == 0 && op != SX_OP_CONVERT && op != SX_OP_CONSTANT) {
        return attr; /* most are: a copy takes its time */
    }
    *made = *attr;
#define SX_ATTR(name, kind, help)                   \
    if ((LIST_##kind(name) & lists) != 0) {         \
        memset(&made->name, 0, sizeof(made->name)); \
    }
#include "core/ir/attrs.def"
#undef SX_ATTR
    made->present |= lists;
    if (op == SX_OP_CONVERT) {
        made->type = (sx_type){.dtype = made->type.dtype};
    }
    if (op == SX_OP_CONSTANT && (made->present & SX_A(data)) != 0 &&
        made->type.dtype < SX_DTYPE_COUNT) {
        size_t size = sx_dtype_bytes(made->type.dtype);
        if (sx_type_is_empty(&made->type)) {
            made->data = (sx_span){nothing, size};
        }
        if (made->data.len > size &&
            memcmp(made->data.ptr, made->data.ptr + size, made->data.len - size) == 0) {
            made->data.len = size;
        }
    }
    return made;
}

/* "node 7 (%2 "x", %5)" in front of the message; "node 0 ("x")" for a parameter. */
static sx_code fail_at_node(sx_ctx *cx, const sx_graph *graph, sx_op op, const sx_attr *attr,
                            const sx_node_id *input, uint32_t input_count, uint32_t node)
{
    char list[256] = "";
    size_t used = 0;
    if (op == SX_OP_PARAMETER && (attr->present & SX_A(name)) != 0) {
        sx_short own = sx_short_name(attr->name);
        return sx_fail_in(cx, "node %u (\"%s\")", node, own.text);
    }
    if (input_count == 0) {
        return sx_fail_in(cx, "node %u", node);
    }
    for (uint32_t k = 0; k < input_count && k < 4 && used < sizeof(list) - 1; k++) {
        int more =
            snprintf(list + used, sizeof(list) - used, "%s%%%u", k > 0 ? ", " : "", input[k].i);
        used += more > 0 ? (size_t)more : 0;
        if (input[k].i < graph->node_count && used < sizeof(list) - 1 &&
            graph->node[input[k].i].op == SX_OP_PARAMETER) {
            sx_short name = sx_short_name(sx_graph_attr(graph, &graph->node[input[k].i])->name);
            more = snprintf(list + used, sizeof(list) - used, " \"%s\"", name.text);
            used += more > 0 ? (size_t)more : 0;
        }
    }
    return sx_fail_in(cx, "node %u (%s%s)", node, list, input_count > 4 ? ", ..." : "");
}

/* `grows`: the graph again, where it may get new sums. */
static sx_code infer_node(sx_ctx *cx, const sx_graph *graph, sx_graph *grows, sx_op op,
                          const sx_attr *attr, const sx_node_id *input, uint32_t input_count,
                          uint32_t node, sx_type *type)
{
    sx_type operand[SX_INPUTS_MAX];
    operand[0] = (sx_type){0};
    if (input_count > SX_INPUTS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "node %u: %u operands, at most %d", node, input_count,
                       SX_INPUTS_MAX);
    }
    for (uint32_t k = 0; k < input_count; k++) {
        if (input[k].i >= node) {
            return SX_FAIL(cx, SX_INPUT, "node %u: operand %u is node %u, not an earlier one", node,
                           k, input[k].i);
        }
        operand[k] = graph->node[input[k].i].type;
    }
    sx_code code = grows != NULL ? sx_infer_over(cx, grows, op, attr, operand, input_count, type)
                                 : sx_infer_type(cx, graph->symbol, graph->symbol_count, op, attr,
                                                 operand, input_count, type);
    return code == SX_OK ? code : fail_at_node(cx, graph, op, attr, input, input_count, node);
}

static sx_code append(sx_ctx *cx, sx_graph *graph, const sx_node *node, const sx_node_id *input,
                      sx_node_id *id)
{
    uint32_t input_count = node->input_count;
    void *array = graph->input;
    SX_TRY(sx_grow(cx, &array, &graph->input_capacity, graph->input_count + input_count,
                   sizeof(sx_node_id)));
    graph->input = array;
    array = graph->node;
    SX_TRY(sx_grow(cx, &array, &graph->node_capacity, graph->node_count + 1, sizeof(sx_node)));
    graph->node = array;
    for (uint32_t k = 0; k < input_count; k++) {
        graph->input[graph->input_count++] = input[k];
    }
    id->i = graph->node_count;
    graph->node[graph->node_count++] = *node;
    return SX_OK;
}

sx_code sx_graph_add(sx_ctx *cx, sx_graph *graph, sx_op op, const sx_attr *attr,
                     const sx_node_id *input, uint32_t input_count, sx_node_id *id)
{
    SX_ASSERT(input != NULL || input_count == 0);
    if (op >= SX_OP_COUNT) {
        return SX_FAIL(cx, SX_INPUT, "node %u: operation number %u, at most %d", graph->node_count,
                       (unsigned)op, SX_OP_COUNT - 1);
    }
    if (graph->node_count >= SX_NODES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "graph of more than %u nodes", SX_NODES_MAX);
    }
    sx_attr made;
    const sx_attr *kept = sx_attr_normal(op, attr, &made);
    sx_node node = {.op = op, .input_first = graph->input_count, .input_count = input_count};
    SX_TRY(
        infer_node(cx, graph, graph, op, kept, input, input_count, graph->node_count, &node.type));
    SX_TRY(sx_attr_intern(cx, graph->attrs, kept, &node.attr));
    return append(cx, graph, &node, input, id);
}

/* Do the symbols of both graphs stand for the same extents, by number? */
static bool has_same_symbols(const sx_graph *a, const sx_graph *b)
{
    bool same = a->symbol_count == b->symbol_count;
    for (uint32_t i = 0; same && i < a->symbol_count; i++) {
        const sx_symbol *s = &a->symbol[i];
        const sx_symbol *other = &b->symbol[i];
        same = sx_symbol_is_declared(s) && sx_symbol_is_declared(other) && s->low == other->low &&
               s->high == other->high;
    }
    return same;
}

/* Has the node, over these inputs, the type that it has in its own graph? */
static bool is_typed_alike(const sx_graph *graph, const sx_graph *from, const sx_node *node,
                           const sx_node_id *input)
{
    bool alike = node->input_count <= SX_INPUTS_MAX && graph->node_count < SX_NODES_MAX &&
                 has_same_symbols(graph, from);
    for (uint32_t k = 0; alike && k < node->input_count; k++) {
        uint32_t own = sx_graph_input(from, node, k).i;
        alike = input[k].i < graph->node_count &&
                sx_type_equal(&graph->node[input[k].i].type, &from->node[own].type);
    }
    return alike;
}

sx_code sx_graph_add_copy(sx_ctx *cx, sx_graph *graph, const sx_graph *from, const sx_node *node,
                          const sx_node_id *input, sx_node_id *id)
{
    SX_ASSERT(graph != from && (input != NULL || node->input_count == 0));
    const sx_attr *attr = sx_graph_attr(from, node);
    if (!is_typed_alike(graph, from, node, input)) {
        return sx_graph_add(cx, graph, node->op, attr, input, node->input_count, id);
    }
    sx_node copy = *node;
    copy.input_first = graph->input_count;
    if (graph->attrs != from->attrs) {
        SX_TRY(sx_attr_intern(cx, graph->attrs, attr, &copy.attr));
    }
    return append(cx, graph, &copy, input, id);
}

sx_code sx_graph_add_output(sx_ctx *cx, sx_graph *graph, sx_span name, sx_node_id node)
{
    SX_ASSERT(name.ptr != NULL || name.len == 0);
    if (graph->output_count >= SX_OUTPUTS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "output \"%s\": more than %u outputs",
                       sx_short_name(name).text, SX_OUTPUTS_MAX);
    }
    if (node.i >= graph->node_count) {
        return SX_FAIL(cx, SX_INPUT, "output \"%s\" is node %u, the graph has %u",
                       sx_short_name(name).text, node.i, graph->node_count);
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        if (sx_span_equal(graph->output[i].name, name)) {
            return SX_FAIL(cx, SX_INPUT, "output \"%s\" is named twice", sx_short_name(name).text);
        }
    }
    sx_output added = {.node = node};
    SX_TRY(copy_name(cx, "output name", 1, name, &added.name));
    void *array = graph->output;
    SX_TRY(sx_grow(cx, &array, &graph->output_capacity, graph->output_count + 1, sizeof(added)));
    graph->output = array;
    graph->output[graph->output_count++] = added;
    return SX_OK;
}

/* ---- the whole graph ---- */

static sx_code check_symbols(sx_ctx *cx, const sx_graph *graph)
{
    if (graph->symbol_count > SX_SYMBOLS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%u symbols, at most %u", graph->symbol_count, SX_SYMBOLS_MAX);
    }
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        const sx_symbol *s = &graph->symbol[i];
        if (s->name.len == 0 || s->name.len > SX_NAME_MAX || s->low < 1 || s->low > s->high ||
            s->high > SX_EXTENT_MAX) {
            return SX_FAIL(cx, SX_INPUT,
                           "symbol %u \"%s\": interval [%lld, %lld], within [1, %lld]", i,
                           sx_short_name(s->name).text, (long long)s->low, (long long)s->high,
                           (long long)SX_EXTENT_MAX);
        }
        for (uint32_t k = 0; k < i && sx_symbol_is_declared(s); k++) {
            if (sx_symbol_is_declared(&graph->symbol[k]) &&
                sx_span_equal(graph->symbol[k].name, s->name)) {
                return SX_FAIL(cx, SX_INPUT, "symbol \"%s\" is declared twice",
                               sx_short_name(s->name).text);
            }
        }
    }
    return SX_OK;
}

static bool same_parameter(const void *self, uint32_t id, const void *probe)
{
    const sx_graph *graph = self;
    return sx_span_equal(sx_graph_attr(graph, &graph->node[id])->name, *(const sx_span *)probe);
}

static sx_code check_nodes(sx_ctx *cx, const sx_graph *graph)
{
    sx_idmap parameters = {0};
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        if (node->op >= SX_OP_COUNT || node->attr.i >= graph->attrs->count ||
            node->input_first > graph->input_count ||
            node->input_count > graph->input_count - node->input_first) {
            return SX_FAIL(cx, SX_INPUT,
                           "node %u: operation %u, attribute %u of %u, inputs %u + %u of %u", i,
                           (unsigned)node->op, node->attr.i, graph->attrs->count, node->input_first,
                           node->input_count, graph->input_count);
        }
        const sx_attr *attr = sx_graph_attr(graph, node);
        const sx_node_id *input = node->input_count > 0 ? &graph->input[node->input_first] : NULL;
        sx_type type;
        SX_TRY(infer_node(cx, graph, NULL, node->op, attr, input, node->input_count, i, &type));
        if (node->type.rank > SX_RANK_MAX || !sx_type_equal(&type, &node->type)) {
            return SX_FAIL(cx, SX_INPUT, "node %u (%s): stored type is not the one it computes", i,
                           sx_op_info_of(node->op)->name);
        }
        if (node->op == SX_OP_PARAMETER) {
            uint64_t hash = sx_hash64(attr->name, 0);
            uint32_t other = sx_idmap_find(&parameters, hash, same_parameter, graph, &attr->name);
            if (other != SX_IDMAP_NONE) {
                return SX_FAIL(cx, SX_INPUT, "nodes %u and %u: both are parameter \"%s\"", other, i,
                               sx_short_name(attr->name).text);
            }
            SX_TRY(sx_idmap_put(cx, &parameters, hash, i));
        }
    }
    return SX_OK;
}

sx_code sx_graph_check(sx_ctx *cx, const sx_graph *graph)
{
    SX_ASSERT(graph->attrs != NULL);
    if (graph->name.len > SX_NAME_MAX || graph->node_count > SX_NODES_MAX ||
        graph->output_count > SX_OUTPUTS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "graph of %u nodes and %u outputs, at most %u and %u",
                       graph->node_count, graph->output_count, SX_NODES_MAX, SX_OUTPUTS_MAX);
    }
    if (graph->output_count == 0) {
        return SX_FAIL(cx, SX_INPUT, "graph \"%s\" has no output", sx_short_name(graph->name).text);
    }
    SX_TRY(check_symbols(cx, graph));
    SX_TRY(check_nodes(cx, graph));
    for (uint32_t i = 0; i < graph->output_count; i++) {
        const sx_output *output = &graph->output[i];
        if (output->node.i >= graph->node_count || output->name.len == 0 ||
            output->name.len > SX_NAME_MAX) {
            return SX_FAIL(cx, SX_INPUT, "output %u \"%s\" is node %u, the graph has %u", i,
                           sx_short_name(output->name).text, output->node.i, graph->node_count);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (sx_span_equal(graph->output[k].name, output->name)) {
                return SX_FAIL(cx, SX_INPUT, "output \"%s\" is named twice",
                               sx_short_name(output->name).text);
            }
        }
    }
    SX_TRY(sx_effects_check(cx, graph));
    SX_TRY(sx_sharding_check(cx, graph));
    return graph->sharding != NULL ? sx_collectives_check(cx, graph) : SX_OK;
}

sx_code sx_graph_adopt(sx_ctx *cx, const sx_graph *from, const sx_graph *to, sx_graph **out)
{
    SX_TRY(sx_graph_make(cx, to->name, to->attrs, out));
    SX_TRY(sx_graph_copy_symbols(cx, to->symbol, to->symbol_count, *out));
    for (uint32_t i = 0; i < from->node_count; i++) {
        const sx_node *node = &from->node[i];
        sx_attr attr = *sx_graph_attr(from, node);
        sx_node_id id;
        SX_TRY(sx_attr_over(cx, *out, &attr));
        const sx_node_id *input = node->input_count > 0 ? from->input + node->input_first : NULL;
        SX_TRY(sx_graph_add(cx, *out, node->op, &attr, input, node->input_count, &id));
        SX_ASSERT(id.i == i);
    }
    for (uint32_t i = 0; i < from->output_count; i++) {
        SX_TRY(sx_graph_add_output(cx, *out, from->output[i].name, from->output[i].node));
    }
    return SX_OK;
}

sx_code sx_graph_parameter_image(sx_ctx *cx, const sx_graph *from, const sx_graph *to,
                                 uint32_t **image)
{
    uint32_t *made = SX_NEW_ARRAY(cx, uint32_t, (size_t)from->node_count + 1);
    if (made == NULL) {
        return cx->error.code;
    }
    uint32_t at = 0;
    for (uint32_t n = 0; n < from->node_count; n++) {
        if (from->node[n].op == SX_OP_PARAMETER) {
            while (at < to->node_count && to->node[at].op != SX_OP_PARAMETER) {
                at++;
            }
            SX_ASSERT(at < to->node_count);
            made[n] = at++;
        }
    }
    *image = made;
    return SX_OK;
}
