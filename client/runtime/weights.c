/* weights.c - weights that come beside a module, as those of a model do that was just compiled. */
#include <stdlib.h>
#include <string.h>

#include "client/runtime/pages.h"
#include "client/runtime/program.h"

/* What options.weight has for tensor `index`, which is a weight that the file does not carry; empty: nothing. */
static sx_code weight_bytes(sx_ctx *cx, const sxr_program *program, const sxr_options *options,
                            uint64_t index, sx_span *bytes)
{
    const sx_module *module = &program->module;
    const sx_module_tensor *tensor = &module->tensor[index];
    sx_span name = sx_module_string(module, tensor->name);
    bool asked = tensor->place == SX_TENSOR_WEIGHT && tensor->offset == UINT64_MAX;
    *bytes = (sx_span){NULL, 0};
    if (asked && options->weight(options->weight_self, name, bytes) && bytes->len != tensor->size) {
        return SX_FAIL(cx, SX_INPUT, "weight %.*s: %zu bytes in the model, the module has %llu",
                       (int)name.len, (const char *)name.ptr, bytes->len,
                       (unsigned long long)tensor->size);
    }
    return SX_OK;
}

/* Into new memory, whose pages come with the bytes that go there. */
static void copy_weight(uint8_t *to, sx_span bytes)
{
    for (size_t at = 0; at < bytes.len; at += SXR_TOUCH_BYTES) {
        size_t rest = bytes.len - at, size = rest < SXR_TOUCH_BYTES ? rest : SXR_TOUCH_BYTES;
        sxr_pages_touch(to + at, size);
        memcpy(to + at, bytes.ptr + at, size);
    }
}

sx_code sxr_take_weights(sx_ctx *cx, sxr_program *program, const sxr_options *options)
{
    const sx_module *module = &program->module;
    uint64_t total = 0;
    sx_span bytes;
    program->weight = calloc((size_t)module->tensor_count + 1, sizeof(*program->weight));
    if (program->weight == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %llu tensors",
                       (unsigned long long)module->tensor_count);
    }
    for (uint64_t i = 0; options->weight != NULL && i < module->tensor_count; i++) {
        SX_TRY(weight_bytes(cx, program, options, i, &bytes));
        total += (bytes.len + 63) / 64 * 64;
    }
    program->weights = total > 0 ? sxr_pages_kept((size_t)total) : NULL;
    if (total > 0 && program->weights == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %llu bytes of weights",
                       (unsigned long long)total);
    }
    program->weights_size = (size_t)total;
    uint8_t *to = program->weights;
    for (uint64_t i = 0; total > 0 && i < module->tensor_count; i++) {
        SX_TRY(weight_bytes(cx, program, options, i, &bytes));
        if (bytes.len > 0) {
            copy_weight(to, bytes);
            program->weight[i] = to;
            to += (bytes.len + 63) / 64 * 64;
        }
    }
    return SX_OK;
}
