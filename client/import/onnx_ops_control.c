/* onnx_ops_control.c - subgraphs as bodies of operations, and If.
 *
 * A subgraph may name what is declared around it. Where the condition is known, one of the two is imported in place of
 * the node, with the names of the outside in sight. Else both become bodies of a cond: what they name from outside and
 * is in the graph, or is a weight, becomes an operand of it and a parameter of both; small data is written into each.
 */
#include <stdio.h>

#include "client/import/onnx_import.h"
#include "core/ir/extent.h"
#include "core/ir/program.h"

/* ---- what subgraphs name from outside ---- */

static sx_code collect_name(sx_ox *im, sx_span name, sx_ox_captures *c)
{
    sx_ox_value *value = name.len > 0 ? sx_ox_lookup(im, name) : NULL;
    for (uint32_t k = 0; k < c->count && value != NULL; k++) {
        value = c->value[k] == value ? NULL : value;
    }
    if (value == NULL) { /* known already, or of the subgraph */
        return SX_OK;
    }
    if (c->count == SX_OX_CAPTURES_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "subgraphs name more than %u tensors from outside",
                          SX_OX_CAPTURES_MAX);
    }
    c->value[c->count++] = value;
    return SX_OK;
}

/* All names in the subgraph of an attribute, and in those inside it. */
static sx_code collect(sx_ox *im, const sx_onnx_attr *attr, uint32_t depth, sx_ox_captures *c)
{
    sx_onnx_graph graph;
    if (depth > SX_OX_SUBGRAPHS_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "more than %u subgraphs inside each other",
                          SX_OX_SUBGRAPHS_MAX);
    }
    im->code = sx_onnx_read_graph(im->cx, attr->g, &graph);
    SX_TRY(im->code);
    for (uint32_t k = 0; k < graph.node_count; k++) {
        const sx_onnx_node *node = &graph.node[k];
        SX_TRY(sx_spend(im->cx, 1 + node->input_count));
        for (uint32_t i = 0; i < node->input_count; i++) {
            SX_TRY(collect_name(im, node->input[i], c));
        }
        for (uint32_t i = 0; i < node->attr_count; i++) {
            if (node->attr[i].type == SX_ONNX_ATTR_GRAPH) {
                SX_TRY(collect(im, &node->attr[i], depth + 1, c));
            }
        }
    }
    for (uint32_t k = 0; k < graph.output_count; k++) {
        SX_TRY(collect_name(im, graph.output[k].name, c));
    }
    return SX_OK;
}

static sx_code collect_all(sx_ox *im, sx_ox_captures *c)
{
    for (uint32_t k = 0; k < im->node->attr_count; k++) {
        if (im->node->attr[k].type == SX_ONNX_ATTR_GRAPH) {
            SX_TRY(collect(im, &im->node->attr[k], im->depth + 1, c));
        }
    }
    return SX_OK;
}

bool sx_ox_captures_refused(sx_ox *im)
{
    bool any = false, refused = false;
    SX_ASSERT(im->node != NULL && im->depth == 0);
    for (uint32_t k = 0; k < im->node->attr_count; k++) {
        any = any || im->node->attr[k].type == SX_ONNX_ATTR_GRAPH;
    }
    sx_ox_captures *c = any ? SX_NEW(im->cx, sx_ox_captures) : NULL;
    if (c == NULL || collect_all(im, c) != SX_OK) { /* what is wrong is told when it is imported */
        sx_ctx_reset_error(im->cx);
        im->code = SX_OK;
        return false;
    }
    for (uint32_t k = 0; k < c->count; k++) {
        refused = refused || c->value[k]->refused;
    }
    return refused;
}

/* ---- a subgraph ---- */

/* Begins a scope without names; leave() ends it. */
static sx_ox enter(sx_ox *im)
{
    sx_ox outer = *im;
    im->value = NULL;
    im->value_count = im->value_capacity = 0;
    im->names = (sx_idmap){0};
    im->depth++;
    return outer;
}

static void leave(sx_ox *im, const sx_ox *outer)
{
    sx_code code = im->code;
    uint32_t anonymous = im->anonymous_count;
    SX_ASSERT(im->depth == outer->depth + 1 && im->weights == outer->weights);
    *im = *outer;
    im->code = code;
    im->anonymous_count = anonymous;
}

sx_code sx_ox_read_subgraph(sx_ox *im, const char *name, sx_onnx_graph *graph)
{
    const sx_onnx_attr *attr = sx_ox_attr(im, name);
    if (attr == NULL || attr->type != SX_ONNX_ATTR_GRAPH) {
        return SX_OX_FAIL(im, SX_INPUT, "attribute '%s' is missing, or no graph", name);
    }
    if (im->depth == SX_OX_SUBGRAPHS_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "more than %u subgraphs inside each other",
                          SX_OX_SUBGRAPHS_MAX);
    }
    return im->code = sx_onnx_read_graph(im->cx, attr->g, graph);
}

static sx_code read_branch(sx_ox *im, const char *name, sx_onnx_graph *graph)
{
    SX_TRY(sx_ox_read_subgraph(im, name, graph));
    if (graph->input_count > 0 || graph->output_count != im->node->output_count) {
        return SX_OX_FAIL(im, SX_INPUT, "%s: %u inputs, none wanted; %u outputs, %u wanted", name,
                          graph->input_count, graph->output_count, im->node->output_count);
    }
    return SX_OK;
}

sx_ox_value *sx_ox_output_of(sx_ox *im, const sx_onnx_graph *graph, uint32_t k)
{
    SX_ASSERT(k < graph->output_count);
    sx_ox_value *value = sx_ox_lookup(im, graph->output[k].name);
    if (value == NULL) {
        SX_OX_FAIL(im, SX_INPUT, "output '%.*s' of a subgraph is made by no node",
                   (int)graph->output[k].name.len, (const char *)graph->output[k].name.ptr);
    }
    return value;
}

/* In the place of the node; its results are other names for those of the subgraph. */
static sx_code import_here(sx_ox *im, const sx_onnx_graph *graph)
{
    sx_ox_value **result = sx_alloc_array(im->cx, graph->output_count + 1, sizeof(sx_ox_value *));
    if (result == NULL) {
        return im->code = im->cx->error.code;
    }
    const sx_ox outer = enter(im);
    im->outside = &outer;
    sx_code code = sx_ox_add_subgraph(im, graph);
    for (uint32_t k = 0; k < graph->output_count && code == SX_OK; k++) {
        result[k] = sx_ox_output_of(im, graph, k);
        if (result[k] != NULL && !result[k]->has_node && result[k]->is_weight) {
            (void)sx_ox_node_of(im, result[k]);
        }
        code = im->code;
    }
    leave(im, &outer);
    for (uint32_t k = 0; k < graph->output_count && code == SX_OK; k++) {
        code = sx_ox_set_value(im, k, result[k]);
    }
    return code;
}

/* Names of the outside in the body: operands as parameters, all else as it is. */
static sx_code declare_captures(sx_ox *im, const sx_ox_captures *c)
{
    SX_ASSERT(im->is_body && c->count <= SX_OX_CAPTURES_MAX);
    for (uint32_t k = 0; k < c->count; k++) {
        sx_ox_value value = *c->value[k];
        if (c->is_operand[k]) {
            sx_attr attr = {.present = SX_A(name) | SX_A(weight) | SX_A(type),
                            .name = value.name,
                            .type = value.type};
            value.node = sx_ox_add(im, SX_OP_PARAMETER, &attr, NULL, 0);
            value.has_node = true;
            value.is_weight = false;
        }
        SX_TRY(im->code);
        SX_TRY(sx_ox_declare(im, &value));
    }
    return SX_OK;
}

sx_code sx_ox_add_result(sx_ox *im, uint32_t k, sx_node_id node)
{
    char name[24];
    SX_TRY(im->code);
    SX_ASSERT(im->is_body && node.i < im->graph->node_count);
    (void)snprintf(name, sizeof(name), "%u", k); /* one value may be two results */
    const char *copy = sx_alloc_text(im->cx, sx_span_of(name));
    im->code = copy != NULL ? SX_OK : im->cx->error.code;
    SX_TRY(im->code);
    return im->code = sx_graph_add_output(im->cx, im->graph, sx_span_of(copy), node);
}

sx_code sx_ox_add_results(sx_ox *im, const sx_onnx_graph *graph, uint32_t first)
{
    SX_ASSERT(im->is_body && first <= graph->output_count);
    for (uint32_t k = first; k < graph->output_count; k++) {
        sx_ox_value *value = sx_ox_output_of(im, graph, k);
        SX_TRY(im->code);
        SX_TRY(sx_ox_add_result(im, k, sx_ox_node_of(im, value)));
    }
    return im->code;
}

static sx_code fill_body(sx_ox *im, const sx_ox_body *body)
{
    SX_TRY(body->begin != NULL ? body->begin(im, body->self) : SX_OK);
    if (body->captures != NULL) {
        SX_TRY(declare_captures(im, body->captures));
    }
    if (body->graph != NULL) {
        SX_TRY(sx_ox_add_subgraph(im, body->graph));
    }
    return body->end != NULL ? body->end(im, body->self) : sx_ox_add_results(im, body->graph, 0);
}

sx_code sx_ox_add_body(sx_ox *im, const sx_ox_body *body, const sx_program **program)
{
    sx_graph *graph;
    SX_ASSERT(body->graph != NULL || body->end != NULL);
    SX_TRY(sx_graph_make(im->cx, SX_SPAN_LITERAL("branch"), NULL, &graph));
    SX_TRY(sx_graph_copy_symbols(im->cx, im->graph->symbol, im->graph->symbol_count, graph));
    const sx_ox outer = enter(im);
    im->graph = graph;
    im->is_body = true;
    im->outside = NULL;
    sx_code code = fill_body(im, body);
    leave(im, &outer);
    SX_TRY(code);
    SX_TRY(sx_graph_copy_symbols(im->cx, graph->symbol, graph->symbol_count, im->graph)); /* sums */
    return im->code = sx_program_make(im->cx, graph, program);
}

const sx_ox_captures *sx_ox_capture(sx_ox *im, sx_node_id input[SX_INPUTS_MAX], uint32_t *count)
{
    sx_ox_captures *c = im->code == SX_OK ? SX_NEW(im->cx, sx_ox_captures) : NULL;
    if (c == NULL) {
        im->code = im->code != SX_OK ? im->code : im->cx->error.code;
        return NULL;
    }
    const uint32_t own = *count;
    if (collect_all(im, c) != SX_OK) {
        return NULL;
    }
    for (uint32_t k = 0; k < c->count; k++) {
        c->is_operand[k] = c->value[k]->has_node || c->value[k]->is_weight;
        if (c->is_operand[k] && *count == SX_INPUTS_MAX) {
            SX_OX_FAIL(im, SX_UNIMPLEMENTED, "subgraphs name more than %u tensors from outside",
                       SX_INPUTS_MAX - own);
            return NULL;
        }
        if (c->is_operand[k]) {
            input[(*count)++] = sx_ox_node_of(im, c->value[k]);
        }
        if (im->code != SX_OK) {
            return NULL;
        }
    }
    SX_ASSERT(*count >= own && *count <= SX_INPUTS_MAX);
    return c;
}

/* ---- If ---- */

sx_node_id sx_ox_one(sx_ox *im, sx_node_id p, sx_dtype dtype, const char *what)
{
    const sx_type scalar = {.dtype = dtype};
    if (im->code != SX_OK) {
        return SX_OX_NONE;
    }
    const sx_type *type = sx_ox_type(im, p);
    bool one = type->dtype == dtype;
    for (uint32_t k = 0; k < type->rank; k++) {
        one = one && sx_dim_is_constant(type->dim[k]) && type->dim[k].scale == 1;
    }
    if (!one) {
        SX_OX_FAIL(im, SX_INPUT, "the %s is of %s and rank %u, one %s is wanted", what,
                   sx_dtype_name(type->dtype), type->rank, sx_dtype_name(dtype));
        return SX_OX_NONE;
    }
    return type->rank > 0 ? sx_ox_reshape(im, p, &scalar) : p;
}

/* Both branches give the same types. */
static sx_code check_types(sx_ox *im, const sx_attr *attr)
{
    for (uint32_t k = 0; k < im->node->output_count; k++) {
        const sx_type *a = sx_program_result(attr->then, k);
        const sx_type *b = sx_program_result(attr->otherwise, k);
        if (!sx_type_equal(a, b)) {
            return SX_OX_FAIL(im, a->dtype != b->dtype ? SX_INPUT : SX_UNIMPLEMENTED,
                              "output %u is %s of rank %u in one branch, and %s of rank %u with "
                              "other extents in the other",
                              k, sx_dtype_name(a->dtype), a->rank, sx_dtype_name(b->dtype),
                              b->rank);
        }
    }
    return SX_OK;
}

static sx_code import_both(sx_ox *im, const sx_onnx_graph *then, const sx_onnx_graph *otherwise)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_COND)->attrs};
    sx_node_id input[SX_INPUTS_MAX] = {sx_ox_one(im, sx_ox_in(im, 0), SX_BOOL, "condition")};
    uint32_t count = 1;
    const sx_ox_captures *c = sx_ox_capture(im, input, &count);
    if (c == NULL) {
        return im->code;
    }
    const sx_ox_body first = {.graph = then, .captures = c};
    const sx_ox_body second = {.graph = otherwise, .captures = c};
    SX_TRY(sx_ox_add_body(im, &first, &attr.then));
    SX_TRY(sx_ox_add_body(im, &second, &attr.otherwise));
    SX_TRY(check_types(im, &attr));
    for (uint32_t k = 0; k < im->node->output_count; k++) {
        attr.result = k;
        SX_TRY(sx_ox_set(im, k, sx_ox_add(im, SX_OP_COND, &attr, input, count)));
    }
    return im->code;
}

sx_code sx_ox_if(sx_ox *im)
{
    sx_onnx_graph then, otherwise;
    const sx_ox_value *truth = sx_ox_input(im, 0);
    SX_ASSERT(truth != NULL && im->depth <= SX_OX_SUBGRAPHS_MAX);
    SX_TRY(read_branch(im, "then_branch", &then));
    SX_TRY(read_branch(im, "else_branch", &otherwise));
    if (truth->known != NULL && truth->known_count == 1 && sx_dim_is_constant(truth->known[0])) {
        return import_here(im, truth->known[0].scale != 0 ? &then : &otherwise);
    }
    return import_both(im, &then, &otherwise);
}
