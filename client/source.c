#include "client/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/file.h"
#include "client/kind.h"
#include "core/ir/general.h"
#include "core/ir/origin.h"
#include "protocol/module.h"

/* ---- files ---- */

sx_code sxc_read_text(sx_ctx *cx, const char *path, sx_buf *text)
{
    FILE *file;
    SX_TRY(sxc_open_input(cx, path, &file));
    uint8_t chunk[65536];
    size_t got;
    while ((got = fread(chunk, 1, sizeof(chunk), file)) > 0) {
        sx_buf_put(text, chunk, got);
    }
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    if (failed) {
        return SX_FAIL(cx, SX_INPUT, "%s: cannot be read", path);
    }
    return sx_buf_check(cx, text, path);
}

static sx_code read_head(sx_ctx *cx, const char *path, uint8_t head[SXC_KIND_BYTES], size_t *size)
{
    FILE *file;
    SX_TRY(sxc_open_input(cx, path, &file));
    *size = fread(head, 1, SXC_KIND_BYTES, file);
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    if (failed || *size == 0) {
        return SX_FAIL(cx, SX_INPUT, "%s: %s", path, failed ? "cannot be read" : "is empty");
    }
    return SX_OK;
}

void sxc_source_fini(sxc_source *source)
{
    sx_buf_fini(&source->text);
    if (source->file != NULL) {
        sx_onnx_file_close(source->file);
        source->file = NULL;
    }
}

static sx_code load(sx_ctx *cx, const char *path, sxc_kind kind, sxc_source *source)
{
    if (kind == SXC_KIND_TEXT) {
        SX_TRY(sxc_read_text(cx, path, &source->text));
        return sx_graph_parse(cx, sx_buf_span(&source->text), &source->graph);
    }
    source->file = sx_onnx_file_open(cx, path);
    if (source->file == NULL) {
        return cx->error.code;
    }
    sx_weights *weights;
    SX_TRY(sx_onnx_file_import(cx, source->file, NULL, &source->graph, &weights));
    source->weights = weights;
    return sx_graph_print(cx, source->graph, &source->text);
}

sx_code sxc_source_load(sx_ctx *cx, const char *path, sxc_source *source)
{
    *source = (sxc_source){0};
    sx_buf_init(&source->text, SX_TEXT_BYTES_MAX);
    uint8_t head[SXC_KIND_BYTES];
    size_t size = 0;
    sxc_kind kind;
    SX_TRY(read_head(cx, path, head, &size));
    SX_TRY(sxc_kind_of(cx, path, (sx_span){head, size}, &kind));
    sx_code code = load(cx, path, kind, source);
    if (code != SX_OK && strstr(cx->error.text, path) == NULL) {
        return sx_fail_in(cx, "%.200s", path);
    }
    return code;
}

sx_code sxc_source_bytes(sx_ctx *cx, sx_span bytes, sxc_source *source)
{
    *source = (sxc_source){0};
    sx_buf_init(&source->text, SX_TEXT_BYTES_MAX);
    if (bytes.len == 0) {
        return SX_FAIL(cx, SX_INPUT, "program: 0 bytes");
    }
    sxc_kind kind;
    sx_span head = {bytes.ptr, bytes.len < SXC_KIND_BYTES ? bytes.len : SXC_KIND_BYTES};
    SX_TRY(sxc_kind_of(cx, "program", head, &kind));
    if (kind == SXC_KIND_TEXT) {
        sx_buf_put_span(&source->text, bytes);
        SX_TRY(sx_buf_check(cx, &source->text, "program"));
        return sx_graph_parse(cx, sx_buf_span(&source->text), &source->graph);
    }
    sx_weights *weights;
    SX_TRY(sx_onnx_import(cx, bytes, NULL, &source->graph, &weights));
    source->weights = weights;
    return sx_graph_print(cx, source->graph, &source->text);
}

/* ---- any number of rows ---- */

/* The first result that has dimensions begins with a symbol: level 1 does not see its value. */
static bool begins_with_symbol(const sx_graph *graph)
{
    const sx_type *type = NULL;
    for (uint32_t k = 0; k < graph->output_count && (type == NULL || type->rank == 0); k++) {
        type = &sx_graph_node(graph, graph->output[k].node)->type;
    }
    return type != NULL && type->rank > 0 && !sx_dim_is_constant(type->dim[0]);
}

static sx_code add_binding(sx_ctx *cx, sx_core_request *request, int64_t value)
{
    sx_binding *binding = SX_NEW_ARRAY(cx, sx_binding, request->binding_count + 1);
    if (binding == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < request->binding_count; i++) {
        binding[i] = request->binding[i];
    }
    binding[request->binding_count++] =
        (sx_binding){.name = SX_SPAN_LITERAL(SX_GENERAL_SYMBOL), .value = value};
    request->binding = binding;
    return SX_OK;
}

sx_code sxc_source_generalise(sx_ctx *cx, sxc_source *source, sx_core_request *request,
                              const char **why)
{
    sx_graph *named;
    sx_general general;
    *why = NULL;
    if (begins_with_symbol(source->graph)) {
        return SX_OK;
    }
    const char *text = sx_alloc_text(cx, sx_buf_span(&source->text)); /* which names point into */
    SX_TRY(text != NULL ? SX_OK : cx->error.code);
    SX_TRY(sx_graph_parse_named(cx, (sx_span){(const uint8_t *)text, source->text.len}, &named));
    SX_TRY(sx_graph_generalise(cx, named, &general));
    if (general.graph == NULL) {
        request->no_reassociate = true;
        *why = general.why;
        return SX_OK;
    }
    sx_buf_clear(&source->text);
    SX_TRY(sx_graph_print(cx, general.graph, &source->text));
    source->graph = general.graph;
    SX_TRY(sx_buf_check(cx, &source->text, "program"));
    return add_binding(cx, request, general.rows);
}

/* ---- weights into a module ---- */

static sx_code place_weight(sx_ctx *cx, const sx_module *module, sx_module_tensor *tensor,
                            const sx_weights *weights, sx_buf *payload)
{
    sx_span name = sx_module_string(module, tensor->name);
    const sx_weight *weight = sx_weights_find(weights, name);
    if (weight == NULL || weight->bytes.len != tensor->size) {
        return SX_FAIL(cx, SX_INPUT, "weight %.*s: %zu bytes in the model, the module has %llu",
                       (int)name.len, (const char *)name.ptr,
                       weight == NULL ? 0 : weight->bytes.len, (unsigned long long)tensor->size);
    }
    sx_buf_pad(payload, 64);
    tensor->offset = payload->len;
    sx_buf_put_span(payload, weight->bytes);
    return sx_buf_check(cx, payload, "weights");
}

static sx_code attach(sx_ctx *cx, const sx_module *module, const sx_weights *weights,
                      sx_buf *payload, sx_buf *out)
{
    size_t count = (size_t)module->tensor_count;
    sx_module_tensor *tensor = SX_NEW_ARRAY(cx, sx_module_tensor, count + 1);
    if (tensor == NULL) {
        return cx->error.code;
    }
    memcpy(tensor, module->tensor, count * sizeof(*tensor));
    for (size_t i = 0; i < count; i++) {
        if (tensor[i].place == SX_TENSOR_WEIGHT) {
            SX_TRY(place_weight(cx, module, &tensor[i], weights, payload));
        }
    }
    sx_module with = *module;
    with.tensor = tensor;
    with.weights = payload->ptr;
    with.weights_count = payload->len;
    return sx_module_encode(cx, &with, out);
}

sx_code sxc_attach_weights(sx_ctx *cx, sx_span bytes, const sx_weights *weights, sx_buf *out)
{
    size_t rounded = (bytes.len + 63) / 64 * 64;
    uint8_t *aligned = aligned_alloc(64, rounded > 0 ? rounded : 64);
    if (aligned == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for a module of %zu bytes", bytes.len);
    }
    memcpy(aligned, bytes.ptr, bytes.len);
    sx_buf payload;
    sx_buf_init(&payload, (size_t)32 << 30);
    sx_module module;
    sx_code code = sx_module_decode(cx, (sx_span){aligned, bytes.len}, true, &module);
    code = code == SX_OK ? attach(cx, &module, weights, &payload, out) : code;
    sx_buf_fini(&payload);
    free(aligned);
    return code;
}
