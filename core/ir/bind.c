#include "core/ir/substitute.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/check.h"
#include "core/ir/effect.h"
#include "core/ir/extent.h"
#include "core/ir/fused.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"

static sx_code replace(sx_ctx *cx, const sx_dim *image, sx_dim *dim)
{
    if (sx_dim_is_constant(*dim) || dim->scale == 0) {
        *dim = sx_dim_of(dim->scale);
        return SX_OK;
    }
    sx_dim factor[2], of = sx_dim_of(dim->scale);
    bool fits = sx_dim_factors(*dim, factor) ? sx_dim_product(of, image[factor[0].symbol], &of) &&
                                                   sx_dim_product(of, image[factor[1].symbol], dim)
                                             : sx_dim_multiply(of, image[dim->symbol], dim);
    return fits ? SX_OK
                : SX_FAIL(cx, SX_LIMIT, "extent of %lld times the value of a symbol overflows",
                          (long long)of.scale);
}

sx_code sx_substitute(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *operand,
                      const sx_dim *image, const sx_graph *to, sx_attr *result)
{
    *result = *attr;
    for (uint32_t i = 0; i < result->type.rank; i++) {
        SX_TRY(replace(cx, image, &result->type.dim[i]));
    }
    for (uint32_t i = 0; (attr->present & SX_A(origin)) != 0 && i < result->origin.count; i++) {
        SX_TRY(replace(cx, image, &result->origin.v[i]));
    }
    if (op == SX_OP_SLICE) {
        SX_ASSERT(operand != NULL);
        for (uint32_t i = 0; i < operand->rank; i++) {
            if (result->limit.v[i] == -1 && sx_dim_is_constant(operand->dim[i])) {
                result->limit.v[i] = operand->dim[i].scale;
            }
        }
    }
    const sx_program **program[SX_ATTR_PROGRAMS_MAX];
    uint32_t count = sx_attr_programs(result, program);
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(sx_program_substitute(cx, *program[i], image, to, program[i]));
    }
    if (attr->body == NULL) {
        return SX_OK;
    }
    sx_body *body = SX_NEW(cx, sx_body);
    if (body == NULL) {
        return cx->error.code;
    }
    sx_body_copy(body, attr->body);
    for (uint32_t a = 0; a < body->arg_count; a++) {
        for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
            SX_TRY(replace(cx, image, &body->access[a].stride[d]));
        }
        SX_TRY(replace(cx, image, &body->access[a].offset));
    }
    result->body = body;
    return SX_OK;
}

void sx_crop_settle(const sx_type *operand, sx_op *op, sx_attr *attr)
{
    sx_attr slice = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    bool settles = *op == SX_OP_CROP;
    SX_ASSERT(!settles || (operand != NULL && operand->rank == attr->type.rank));
    slice.start.count = slice.limit.count = slice.stride.count = attr->type.rank;
    for (uint32_t d = 0; d < attr->type.rank && settles; d++) {
        sx_dim whole = operand->dim[d], origin = attr->origin.v[d], part = attr->type.dim[d];
        bool back = false, number = sx_dim_is_constant(origin) && sx_dim_is_constant(part);
        for (uint32_t k = 0; k < attr->dims.count; k++) {
            back = back || attr->dims.v[k] == (int64_t)d;
        }
        slice.stride.v[d] = 1;
        if (origin.scale == 0 && !sx_dim_is_constant(whole) && sx_dim_equal(whole, part)) {
            slice.limit.v[d] = -1;
            continue;
        }
        settles = number && (!back || sx_dim_is_constant(whole));
        slice.start.v[d] = back ? whole.scale - origin.scale - part.scale : origin.scale;
        slice.limit.v[d] = slice.start.v[d] + part.scale;
    }
    if (settles) {
        *op = SX_OP_SLICE;
        *attr = slice;
    }
}

static sx_code unknown_symbol(sx_ctx *cx, const sx_graph *graph, sx_short name)
{
    char list[512] = "";
    size_t used = 0;
    for (uint32_t s = 0; s < graph->symbol_count && used < sizeof(list); s++) {
        if (sx_symbol_is_declared(&graph->symbol[s])) {
            used +=
                (size_t)snprintf(list + used, sizeof(list) - used, "%s \"%s\"", used > 0 ? "," : "",
                                 sx_short_name(graph->symbol[s].name).text);
        }
    }
    return SX_FAIL(cx, SX_INPUT, "symbol \"%s\" is unknown; the graph has %s%s", name.text,
                   used > 0 ? "those named" : "no symbols", list);
}

/* The value of each symbol; every binding is used once. */
static sx_code read_bindings(sx_ctx *cx, const sx_graph *graph, const sx_binding *binding,
                             uint32_t binding_count, sx_dim *image)
{
    bool bound[SX_SYMBOLS_MAX] = {false};
    for (uint32_t i = 0; i < binding_count; i++) {
        uint32_t s = 0;
        while (s < graph->symbol_count &&
               (!sx_symbol_is_declared(&graph->symbol[s]) ||
                !sx_span_equal(graph->symbol[s].name, binding[i].name))) {
            s++;
        }
        sx_short name = sx_short_name(binding[i].name);
        if (s == graph->symbol_count) {
            return unknown_symbol(cx, graph, name);
        }
        if (bound[s]) {
            return SX_FAIL(cx, SX_INPUT, "symbol \"%s\" is bound twice", name.text);
        }
        if (binding[i].value < graph->symbol[s].low || binding[i].value > graph->symbol[s].high) {
            return SX_FAIL(cx, SX_INPUT, "symbol \"%s\" is %lld, within [%lld, %lld]", name.text,
                           (long long)binding[i].value, (long long)graph->symbol[s].low,
                           (long long)graph->symbol[s].high);
        }
        bound[s] = true;
        image[s] = sx_dim_of(binding[i].value);
    }
    int64_t value[SX_SYMBOLS_MAX] = {0};
    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        if (!bound[s] && sx_symbol_is_declared(&graph->symbol[s])) {
            sx_short name = sx_short_name(graph->symbol[s].name);
            sx_hint(
                cx,
                "Name it with its value, or an interval: 'dims' of a request, --dim %s=N or --dim "
                "%s=1..N of the client.",
                name.text, name.text);
            return SX_FAIL(cx, SX_INPUT, "symbol \"%s\" has no value, within [%lld, %lld]",
                           sx_short_name(graph->symbol[s].name).text,
                           (long long)graph->symbol[s].low, (long long)graph->symbol[s].high);
        }
        value[s] = bound[s] ? image[s].scale : 0;
    }
    sx_symbols_derive(graph->symbol, graph->symbol_count, value);
    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        image[s] = sx_dim_of(value[s]);
    }
    return SX_OK;
}

sx_code sx_graph_bind(sx_ctx *cx, const sx_graph *graph, const sx_binding *binding,
                      uint32_t binding_count, sx_graph **bound)
{
    sx_dim image[SX_SYMBOLS_MAX];
    SX_ASSERT(graph->symbol_count <= SX_SYMBOLS_MAX);
    SX_TRY(read_bindings(cx, graph, binding, binding_count, image));
    sx_graph *out;
    SX_TRY(sx_graph_make(cx, graph->name, NULL, &out));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        const sx_node_id *input = node->input_count > 0 ? &graph->input[node->input_first] : NULL;
        const sx_type *operand = input != NULL ? &out->node[input[0].i].type : NULL;
        sx_attr attr;
        SX_TRY(sx_substitute(cx, node->op, sx_graph_attr(graph, node), operand, image, out, &attr));
        sx_op op = node->op;
        sx_crop_settle(operand, &op, &attr);
        sx_node_id id;
        SX_TRY(sx_graph_add(cx, out, op, &attr, input, node->input_count, &id));
        SX_ASSERT(id.i == i);
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        SX_TRY(sx_graph_add_output(cx, out, graph->output[i].name, graph->output[i].node));
    }
    *bound = out;
    SX_TRY(sx_effects_copy(cx, graph, NULL, out));
    return sx_sharding_copy(cx, graph, NULL, out);
}

sx_code sx_graph_bind_node(sx_ctx *cx, const sx_graph *graph, const sx_binding *binding,
                           uint32_t binding_count, sx_node_id id, sx_graph **bound,
                           sx_node_id *there)
{
    sx_dim image[SX_SYMBOLS_MAX];
    sx_node_id input[SX_INPUTS_MAX];
    const sx_node *node = sx_graph_node(graph, id);
    SX_ASSERT(graph->symbol_count <= SX_SYMBOLS_MAX && node->input_count <= SX_INPUTS_MAX);
    SX_TRY(read_bindings(cx, graph, binding, binding_count, image));
    sx_graph *out;
    SX_TRY(sx_graph_make(cx, graph->name, NULL, &out));
    sx_attr attr;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const sx_type *type = &sx_graph_node(graph, sx_graph_input(graph, node, i))->type;
        attr = (sx_attr){.present = sx_op_info_of(SX_OP_PARAMETER)->attrs,
                         .type = *type,
                         .name = SX_SPAN_LITERAL("x")};
        for (uint32_t d = 0; d < type->rank; d++) {
            SX_TRY(replace(cx, image, &attr.type.dim[d]));
        }
        SX_TRY(sx_graph_add(cx, out, SX_OP_PARAMETER, &attr, NULL, 0, &input[i]));
    }
    const sx_type *operand = node->input_count > 0 ? &out->node[input[0].i].type : NULL;
    SX_TRY(sx_substitute(cx, node->op, sx_graph_attr(graph, node), operand, image, out, &attr));
    sx_op op = node->op;
    sx_crop_settle(operand, &op, &attr);
    *bound = out;
    return sx_graph_add(cx, out, op, &attr, input, node->input_count, there);
}
