/* onnx_write.c - see onnx_write.h: names, interface, the order of things. */
#include "client/export/onnx_writer.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/check.h"
#include "core/ir/effect.h"
#include "core/ir/extent.h"

/* ---- operators ---- */

sx_code sx_ow_fail(sx_ow *w, const char *file, int line, const char *format, ...)
{
    SX_ASSERT(w->at < w->graph->node_count);
    char text[SX_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return sx_fail(w->cx, SX_UNIMPLEMENTED, file, line, "node %u (%s) as ONNX: %s", w->at,
                   sx_op_info_of(sx_ow_node(w)->op)->name, text);
}

sx_span sx_ow_fresh(sx_ow *w)
{
    char text[SX_NAME_MAX + 16];
    (void)snprintf(text, sizeof(text), "%s%u", w->prefix, w->fresh++);
    return sx_span_of(sx_alloc_text(w->cx, sx_span_of(text)));
}

sx_span sx_ow_result(sx_ow *w)
{
    SX_ASSERT(w->at < w->graph->node_count);
    return w->wanted[w->at].len > 0 ? w->wanted[w->at] : sx_ow_fresh(w);
}

void sx_ow_begin(sx_ow *w)
{
    sx_buf_clear(&w->part);
}

/* NodeProto: input 1, output 2, op_type 4, attribute 5. */
void sx_ow_input(sx_ow *w, sx_span name)
{
    sx_pb_bytes(&w->part, 1, name);
}

void sx_ow_end(sx_ow *w, const char *type, sx_span output)
{
    SX_ASSERT(output.len > 0 ||
              w->cx->error.code != SX_OK); /* a node without a result is nobody's */
    sx_pb_bytes(&w->part, 2, output);
    sx_pb_bytes(&w->part, 4, sx_span_of(type));
    if (w->node.code == SX_OK && w->part.code != SX_OK) {
        w->node.code = w->part.code;
    }
    sx_pb_bytes(&w->node, 1, sx_buf_span(&w->part));
}

sx_span sx_ow_apply(sx_ow *w, const char *type, sx_span a, sx_span b)
{
    sx_span output = sx_ow_fresh(w);
    sx_ow_begin(w);
    sx_ow_input(w, a);
    if (b.len > 0) {
        sx_ow_input(w, b);
    }
    sx_ow_end(w, type, output);
    return output;
}

sx_span sx_ow_tensor(sx_ow *w, const sx_type *type, sx_span bytes)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX);
    sx_span name = sx_ow_fresh(w);
    int64_t dim[SX_RANK_MAX];
    for (uint32_t d = 0; d < type->rank; d++) {
        dim[d] = type->dim[d].scale;
    }
    sx_pb_tensor(&w->initializer, 5, name, type->dtype, dim, type->rank, bytes);
    return name;
}

sx_span sx_ow_ints(sx_ow *w, const int64_t *value, uint32_t count)
{
    uint8_t bytes[8 * 2 * SX_RANK_MAX];
    sx_type type = {.dtype = SX_I64, .rank = 1, .dim = {sx_dim_of(count)}};
    SX_ASSERT(count <= sizeof(bytes) / 8);
    for (uint32_t i = 0; i < 8 * count; i++) {
        bytes[i] = (uint8_t)((uint64_t)value[i / 8] >> i % 8 * 8);
    }
    return sx_ow_tensor(w, &type, (sx_span){bytes, (size_t)8 * count});
}

/* ---- extents ---- */

/* The value of a symbol: the extent of an input. */
static sx_code symbol_value(sx_ow *w, uint32_t symbol, sx_span *name)
{
    const sx_graph *graph = w->graph;
    for (uint32_t n = 0; n < graph->node_count && w->symbol[symbol].len == 0; n++) {
        const sx_type *type = &graph->node[n].type;
        for (uint32_t d = 0; graph->node[n].op == SX_OP_PARAMETER && d < type->rank; d++) {
            if (sx_dim_equal(type->dim[d], (sx_dim){1, symbol}) && w->symbol[symbol].len == 0) {
                w->symbol[symbol] = sx_ow_fresh(w);
                sx_ow_begin(w);
                sx_ow_input(w, w->name[n]);
                sx_pb_attr_int(&w->part, "start", d);
                sx_pb_attr_int(&w->part, "end", (int64_t)d + 1);
                sx_ow_end(w, "Shape", w->symbol[symbol]);
            }
        }
    }
    *name = w->symbol[symbol];
    return name->len > 0 ? SX_OK
                         : SX_OW_FAIL(w, "symbol \"%s\" is the extent of no input",
                                      sx_short_name(graph->symbol[symbol].name).text);
}

static sx_code extent(sx_ow *w, sx_dim dim, sx_span *name)
{
    if (sx_dim_is_constant(dim)) {
        *name = sx_ow_ints(w, &dim.scale, 1);
        return SX_OK;
    }
    SX_TRY(symbol_value(w, dim.symbol, name));
    if (dim.scale != 1) {
        *name = sx_ow_apply(w, "Mul", *name, sx_ow_ints(w, &dim.scale, 1));
    }
    return SX_OK;
}

sx_code sx_ow_shape(sx_ow *w, const sx_dim *dim, uint32_t rank, sx_span *name)
{
    SX_ASSERT(rank <= SX_RANK_MAX);
    int64_t value[SX_RANK_MAX];
    sx_span piece[SX_RANK_MAX];
    bool constant = true;
    for (uint32_t d = 0; d < rank; d++) {
        value[d] = dim[d].scale;
        constant = constant && sx_dim_is_constant(dim[d]);
    }
    if (constant) {
        *name = sx_ow_ints(w, value, rank);
        return SX_OK;
    }
    for (uint32_t d = 0; d < rank; d++) {
        SX_TRY(extent(w, dim[d], &piece[d]));
    }
    if (rank == 1) {
        *name = piece[0];
        return SX_OK;
    }
    *name = sx_ow_fresh(w);
    sx_ow_begin(w);
    for (uint32_t d = 0; d < rank; d++) {
        sx_ow_input(w, piece[d]);
    }
    sx_pb_attr_int(&w->part, "axis", 0);
    sx_ow_end(w, "Concat", *name);
    return SX_OK;
}

/* ---- the interface ---- */

static bool starts_with(sx_span name, const char *prefix)
{
    size_t length = strlen(prefix);
    return name.len >= length && memcmp(name.ptr, prefix, length) == 0;
}

/* "v", "v_", "v__", ...: what no name at the interface starts with. */
static sx_code choose_prefix(sx_ow *w)
{
    size_t length = 1;
    (void)snprintf(w->prefix, sizeof(w->prefix), "v");
    for (bool again = true; again && length <= SX_NAME_MAX; length++) {
        again = false;
        for (uint32_t n = 0; n < w->graph->node_count && !again; n++) {
            const sx_node *node = &w->graph->node[n];
            again = node->op == SX_OP_PARAMETER &&
                    starts_with(sx_graph_attr(w->graph, node)->name, w->prefix);
        }
        for (uint32_t i = 0; i < w->graph->output_count && !again; i++) {
            again = starts_with(w->graph->output[i].name, w->prefix);
        }
        if (again) {
            (void)memcpy(w->prefix + length, "_", 2);
        }
    }
    return SX_OK;
}

static sx_code check_name(sx_ow *w, sx_span name)
{
    if (name.len == 0 || memchr(name.ptr, 0, name.len) != NULL) {
        return SX_OW_FAIL(w, "the name \"%s\" is no name there", sx_short_name(name).text);
    }
    return SX_OK;
}

static sx_code write_parameter(sx_ow *w)
{
    const sx_node *node = sx_ow_node(w);
    const sx_attr *attr = sx_ow_attr(w);
    SX_TRY(check_name(w, attr->name));
    for (uint32_t i = 0; i < w->graph->output_count; i++) {
        if (sx_span_equal(w->graph->output[i].name, attr->name)) {
            return SX_OW_FAIL(w, "input and output are both called \"%s\"",
                              sx_short_name(attr->name).text);
        }
    }
    const sx_weight *weight =
        attr->weight != 0 && w->weights != NULL ? sx_weights_find(w->weights, attr->name) : NULL;
    w->name[w->at] = attr->name;
    if (weight != NULL && sx_type_equal(&weight->type, &node->type)) {
        int64_t dim[SX_RANK_MAX];
        for (uint32_t d = 0; d < node->type.rank; d++) {
            dim[d] = node->type.dim[d].scale;
        }
        sx_pb_tensor(&w->initializer, 5, attr->name, node->type.dtype, dim, node->type.rank,
                     weight->bytes);
        return SX_OK;
    }
    for (uint32_t d = 0; d < node->type.rank; d++) {
        sx_dim dim = node->type.dim[d];
        if (!sx_dim_is_constant(dim) && dim.scale != 1) {
            return SX_OW_FAIL(w, "axis %u has %lld times an extent with a name", d,
                              (long long)dim.scale);
        }
        if (!sx_dim_is_constant(dim)) {
            SX_TRY(check_name(w, w->graph->symbol[dim.symbol].name));
        }
    }
    sx_pb_value_info(&w->input, 11, attr->name, &node->type, w->graph->symbol);
    return SX_OK;
}

/* Outputs that no node is named by: a second name, a parameter, an initializer. */
static sx_code write_outputs(sx_ow *w)
{
    for (uint32_t i = 0; i < w->graph->output_count; i++) {
        const sx_output *output = &w->graph->output[i];
        w->at = output->node.i;
        SX_TRY(check_name(w, output->name));
        for (uint32_t k = 0; k < i; k++) {
            if (sx_span_equal(w->graph->output[k].name, output->name)) {
                return SX_OW_FAIL(w, "two outputs are called \"%s\"",
                                  sx_short_name(output->name).text);
            }
        }
        if (!sx_span_equal(w->name[w->at], output->name)) {
            sx_ow_begin(w);
            sx_ow_input(w, w->name[w->at]);
            sx_ow_end(w, "Identity", output->name);
        }
        sx_pb_value_info(&w->output, 12, output->name, &sx_ow_node(w)->type, w->graph->symbol);
    }
    return SX_OK;
}

/* ---- the program ---- */

/* The same with every composite that has no operator decomposed, in canonical form. */
static sx_code prepare(sx_ctx *cx, const sx_graph *in, sx_graph **out)
{
    sx_graph *graph;
    sx_node_id *map = SX_NEW_ARRAY(cx, sx_node_id, (size_t)in->node_count + 1);
    if (map == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_graph_make(cx, in->name, in->attrs, &graph));
    SX_TRY(sx_graph_copy_symbols(cx, in->symbol, in->symbol_count, graph));
    for (uint32_t n = 0; n < in->node_count; n++) {
        const sx_node *node = &in->node[n];
        sx_attr attr = *sx_graph_attr(in, node);
        sx_node_id input[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = map[sx_graph_input(in, node, k).i];
        }
        bool native =
            !sx_op_is_composite(node->op) ||
            sx_ow_is_native(node->op, &attr, &in->node[sx_graph_input(in, node, 0).i].type);
        SX_TRY(native
                   ? sx_graph_add(cx, graph, node->op, &attr, input, node->input_count, &map[n])
                   : sx_decompose(cx, graph, node->op, &attr, input, node->input_count, &map[n]));
    }
    for (uint32_t i = 0; i < in->output_count; i++) {
        SX_TRY(sx_graph_add_output(cx, graph, in->output[i].name, map[in->output[i].node.i]));
    }
    SX_TRY(sx_graph_canon(cx, graph, out));
    (*out)->name = in->name;
    return SX_OK;
}

/* In which form each result is read, last node first. */
static void mark_needs(sx_ow *w)
{
    const sx_graph *graph = w->graph;
    for (uint32_t i = graph->output_count; i-- > 0;) {
        uint32_t n = graph->output[i].node.i;
        w->needs[n] |= SX_OW_FULL;
        w->wanted[n] = graph->node[n].op != SX_OP_PARAMETER ? graph->output[i].name : (sx_span){0};
    }
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const sx_node *node = &graph->node[n];
        for (uint32_t k = 0; k < node->input_count && w->needs[n] != 0; k++) {
            bool thin = sx_ow_reads_thin(graph, node, k);
            w->needs[sx_graph_input(graph, node, k).i] |= thin ? SX_OW_THIN : SX_OW_FULL;
        }
    }
}

static sx_code write_nodes(sx_ow *w)
{
    SX_TRY(choose_prefix(w));
    for (w->at = 0; w->at < w->graph->node_count; w->at++) {
        if (sx_ow_node(w)->op == SX_OP_PARAMETER) {
            SX_TRY(write_parameter(w));
        }
    }
    mark_needs(w);
    for (w->at = 0; w->at < w->graph->node_count; w->at++) {
        if (sx_ow_node(w)->op != SX_OP_PARAMETER && w->needs[w->at] != 0) {
            SX_TRY(sx_ow_write_node(w));
        }
    }
    return write_outputs(w);
}

/* GraphProto: node 1, name 2, initializer 5, input 11, output 12. ModelProto: ir_version 1, producer 2 and 3,
 * graph 7, opset 8. */
static sx_code put_model(sx_ow *w, sx_buf *file)
{
    sx_buf graph, opset;
    const sx_buf *part[] = {&w->node, &w->initializer, &w->input, &w->output};
    sx_buf_init(&graph, SX_ONNX_FILE_MAX);
    sx_buf_init(&opset, 64);
    sx_code code = SX_OK;
    for (uint32_t i = 0; i < SX_COUNT(part); i++) {
        code = code == SX_OK ? sx_buf_check(w->cx, part[i], "ONNX model") : code;
        sx_buf_put_span(&graph, sx_buf_span(part[i]));
        if (i == 0) {
            sx_pb_bytes(&graph, 2, w->graph->name.len > 0 ? w->graph->name : sx_span_of("graph"));
        }
    }
    sx_pb_int(file, 1, SX_ONNX_WRITE_IR);
    sx_pb_bytes(file, 2, sx_span_of("symplex"));
    sx_pb_bytes(file, 3, sx_span_of(SX_VERSION_TEXT));
    sx_pb_bytes(file, 7, sx_buf_span(&graph));
    sx_pb_bytes(&opset, 1, (sx_span){NULL, 0});
    sx_pb_int(&opset, 2, SX_ONNX_WRITE_OPSET);
    sx_pb_bytes(file, 8, sx_buf_span(&opset));
    code = code == SX_OK ? sx_buf_check(w->cx, &graph, "ONNX model") : code;
    code = code == SX_OK ? sx_buf_check(w->cx, file, "ONNX model") : code;
    sx_buf_fini(&graph);
    sx_buf_fini(&opset);
    if (code == SX_OK && file->len > SX_ONNX_FILE_MAX) {
        return SX_FAIL(w->cx, SX_LIMIT, "ONNX model of %zu bytes, at most %zu", file->len,
                       SX_ONNX_FILE_MAX);
    }
    return code;
}

sx_code sx_onnx_write(sx_ctx *cx, const sx_graph *in, const sx_weights *weights, sx_buf *file)
{
    sx_graph *graph;
    if (in->effects != NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "ONNX has no parameters that are state or donated, the program has %u",
                       in->effects->kept_count);
    }
    SX_TRY(prepare(cx, in, &graph));
    size_t count = (size_t)graph->node_count + 1;
    sx_ow w = {.cx = cx,
               .graph = graph,
               .weights = weights,
               .name = SX_NEW_ARRAY(cx, sx_span, count),
               .thin = SX_NEW_ARRAY(cx, sx_span, count),
               .wanted = SX_NEW_ARRAY(cx, sx_span, count),
               .needs = SX_NEW_ARRAY(cx, uint8_t, count)};
    if (w.name == NULL || w.thin == NULL || w.wanted == NULL || w.needs == NULL) {
        return cx->error.code;
    }
    sx_buf *part[] = {&w.node, &w.initializer, &w.input, &w.output, &w.part};
    for (uint32_t i = 0; i < SX_COUNT(part); i++) {
        sx_buf_init(part[i], SX_ONNX_FILE_MAX);
    }
    sx_code code = write_nodes(&w);
    code = code == SX_OK ? cx->error.code : code; /* names that found no memory */
    code = code == SX_OK ? put_model(&w, file) : code;
    for (uint32_t i = 0; i < SX_COUNT(part); i++) {
        sx_buf_fini(part[i]);
    }
    return code;
}
