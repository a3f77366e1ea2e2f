#include "tests/lib/model.h"

#include <stdio.h>
#include <string.h>

#include "client/import/import.h"
#include "client/verify/verify.h"
#include "core/core.h"

static sx_code import(sx_ctx *cx, const char *name, sx_graph **graph, sx_weights **weights)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/tests/models/%s.onnx", SX_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return SX_FAIL(cx, SX_INPUT, "%s: cannot be opened", path);
    }
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 28);
    uint8_t chunk[65536];
    size_t got;
    while ((got = fread(chunk, 1, sizeof(chunk), file)) > 0) {
        sx_buf_put(&bytes, chunk, got);
    }
    (void)fclose(file);
    uint8_t *copy = sx_alloc(cx, bytes.len); /* graph and weights borrow it */
    if (copy == NULL) {
        return cx->error.code;
    }
    memcpy(copy, bytes.ptr, bytes.len);
    sx_span span = {copy, bytes.len};
    sx_buf_fini(&bytes);
    return sx_onnx_import(cx, span, NULL, graph, weights);
}

sx_code sx_test_model_text(sx_ctx *cx, const char *name, sx_buf *text)
{
    sx_graph *graph;
    sx_weights *weights;
    SX_TRY(import(cx, name, &graph, &weights));
    return sx_graph_print(cx, graph, text);
}

sx_code sx_test_model_compile(sx_ctx *cx, const char *name, const char *target, int64_t batch,
                              sx_buf *module)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    SX_TRY(sx_test_model_text(cx, name, &text));
    sx_binding binding = {SX_SPAN_LITERAL("batch"), batch};
    sx_core_request request = {.ir = sx_buf_span(&text),
                               .target = sx_span_of(target),
                               .binding = &binding,
                               .binding_count = 1};
    sxr_verify_options verify = {.seed = 1, .program_flops = -1};
    sx_code code = sxr_compile_verified(cx, &request, &verify, module);
    sx_buf_fini(&text);
    return code;
}

sx_code sx_test_model_bind(sx_ctx *cx, const char *name, sxr_program *program, uint64_t seed)
{
    sx_graph *graph;
    sx_weights *weights;
    SX_TRY(import(cx, name, &graph, &weights));
    const sx_module *module = sxr_module(program);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        if (tensor->place != SX_TENSOR_INPUT && tensor->place != SX_TENSOR_OUTPUT &&
            tensor->place != SX_TENSOR_WEIGHT) {
            continue;
        }
        void *memory = sx_alloc(cx, (size_t)tensor->size);
        if (memory == NULL) {
            return cx->error.code;
        }
        const sx_weight *weight = sx_weights_find(weights, sx_module_string(module, tensor->name));
        if (tensor->place == SX_TENSOR_WEIGHT && weight != NULL &&
            weight->bytes.len == tensor->size) {
            memcpy(memory, weight->bytes.ptr, weight->bytes.len);
        } else {
            sxr_fill_random(tensor, memory, seed + i);
        }
        SX_TRY(sxr_bind(cx, program, i, memory, tensor->size));
    }
    return SX_OK;
}
