#include "tests/lib/compiled.h"

#include <math.h>
#include <string.h>

#include "client/verify/verify.h"
#include "core/base/rng.h"
#include "tests/lib/test.h"

sx_code sx_test_compile(sx_ctx *cx, const sx_test_request *r, sx_buf *module)
{
    sx_binding binding = {SX_SPAN_LITERAL("batch"), r->batch};
    sx_core_request request = {.ir = sx_span_of(r->text),
                               .target = sx_span_of(r->target),
                               .binding = &binding,
                               .binding_count = r->batch > 0 ? 1 : 0,
                               .range_any = r->range_any,
                               .objective = sx_span_of(r->objective != NULL ? r->objective : ""),
                               .disabled_rules = sx_span_of(r->disabled)};
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, &request, &image);
    code = code == SX_OK ? sx_image_encode(cx, &image, module) : code;
    sx_image_fini(&image);
    return code;
}

static uint64_t mixed(uint64_t state)
{
    sx_rng rng = {state};
    return sx_rng_next(&rng);
}

static void store(const sx_module_tensor *tensor, uint64_t i, uint64_t bits, double scale,
                  sx_test_filling filling, uint8_t *memory)
{
    sx_rng rng = {bits};
    double whole = (double)((int)sx_rng_below(&rng, 5) - 2);
    double value = filling == SX_FILL_EXACT ? whole : (double)sx_rng_f32(&rng) * scale;
    if (tensor->dtype == SX_F32) {
        float f32 = (float)value;
        memcpy(memory + i * 4, &f32, 4);
    } else if (tensor->dtype == SX_F64) {
        memcpy(memory + i * 8, &value, 8);
    } else {
        uint64_t n = sx_rng_below(&rng, tensor->dtype == SX_BOOL ? 2 : 8);
        memcpy(memory + i * tensor->element_bytes, &n, tensor->element_bytes);
    }
}

void sx_test_fill(const sx_module *module, uint32_t index, sx_test_filling filling, void *memory)
{
    const sx_module_tensor *tensor = &module->tensor[index];
    sx_span name = sx_module_string(module, tensor->name);
    uint64_t start = sx_hash64(name, 17);
    double scale = tensor->place == SX_TENSOR_WEIGHT && tensor->rank >= 2
                       ? sqrt(3.0 / (double)tensor->dim[tensor->rank - 2])
                       : 1.0;
    int64_t at[SX_MODULE_RANK_MAX] = {0};
    for (uint64_t i = 0; i < tensor->size / tensor->element_bytes; i++) {
        uint64_t state = start;
        for (uint32_t d = 0; d < tensor->rank; d++) {
            state = mixed(state + (uint64_t)at[d]);
        }
        store(tensor, i, state, scale, filling, memory);
        for (uint32_t d = tensor->rank; d-- > 0 && ++at[d] == tensor->dim[d];) {
            at[d] = 0;
        }
    }
}

sxr_program *sx_test_open(sx_ctx *cx, sx_span bytes, uint32_t threads, sx_test_filling filling)
{
    sxr_program *program = NULL;
    sxr_options options = {.threads = threads};
    ck_sx_ok(cx, sxr_open_bytes(cx, bytes, &options, &program));
    const sx_module *module = sxr_module(program);
    sxr_draws *draws = NULL;
    if (filling == SX_FILL_DRAWN) {
        ck_sx_ok(cx, sxr_draws_make(cx, program, &draws));
    }
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        if (tensor->place != SX_TENSOR_INPUT && tensor->place != SX_TENSOR_OUTPUT &&
            tensor->place != SX_TENSOR_WEIGHT) {
            continue;
        }
        if (tensor->alias != SX_MODULE_NONE) { /* it lies in the memory of an input */
            continue;
        }
        void *memory = sx_alloc(cx, (size_t)tensor->size);
        ck_assert_ptr_nonnull(memory);
        memset(memory, 0xA5, (size_t)tensor->size);
        if (tensor->place != SX_TENSOR_OUTPUT && draws != NULL) {
            sxr_draws_fill(draws, i, 17, memory);
        } else if (tensor->place != SX_TENSOR_OUTPUT) {
            sx_test_fill(module, i, filling, memory);
        }
        ck_sx_ok(cx, sxr_bind(cx, program, i, memory, tensor->size));
    }
    return program;
}

sxr_program *sx_test_run(sx_ctx *cx, const sx_test_request *request, uint32_t threads)
{
    sx_buf module;
    sx_buf_init(&module, (size_t)1 << 30);
    ck_sx_ok(cx, sx_test_compile(cx, request, &module));
    sxr_program *program = sx_test_open(cx, sx_buf_span(&module), threads,
                                        request->drawn ? SX_FILL_DRAWN : SX_FILL_SMOOTH);
    sx_buf_fini(&module);
    ck_sx_ok(cx, sxr_run(cx, program, NULL));
    sx_module_check check;
    ck_sx_ok(cx, sxr_check_program(cx, program, 0, &check));
    return program;
}

uint32_t sx_test_kernels(const sx_module *module, sx_module_kernel_kind kind)
{
    uint32_t count = 0;
    for (uint64_t k = 0; k < module->kernel_count; k++) {
        count += module->kernel[k].kind == (uint32_t)kind;
    }
    return count;
}
