#include "tests/lib/intervals.h"

#include <string.h>

#include "client/runtime/cpu.h"
#include "client/verify/execute.h"
#include "core/base/rng.h"
#include "tests/lib/compiled.h"
#include "tests/lib/model.h"
#include "tests/lib/test.h"

sx_code sx_test_compile_request(sx_ctx *cx, const sx_core_request *request, sx_buf *module)
{
    sx_image image;
    cx->stage_count = 0; /* several requests, one context */
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, request, &image);
    code = code == SX_OK ? sx_image_encode(cx, &image, module) : code;
    sx_image_fini(&image);
    return code;
}

void sx_test_bind_drawn(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        sx_module_tensor tensor = module->tensor[i];
        if (tensor.place > SX_TENSOR_OUTPUT) {
            continue;
        }
        memcpy(tensor.dim, sxr_shape(program, i), sizeof(tensor.dim));
        tensor.size = sxr_size(program, i);
        void *memory = sx_alloc(cx, (size_t)tensor.size);
        ck_assert_ptr_nonnull(memory);
        sx_module one = *module;
        one.tensor = &tensor;
        if (tensor.place != SX_TENSOR_OUTPUT) {
            sx_test_fill(&one, 0, SX_FILL_SMOOTH, memory);
        } else {
            memset(memory, 0x5a, (size_t)tensor.size);
        }
        ck_sx_ok(cx, sxr_bind(cx, program, i, memory, tensor.size));
    }
}

static const sxr_options open_any = {.threads = 1, .any_level = true};

/* All launches of the variant, by the emulator of the target. */
static void emulate(sx_ctx *cx, sxr_executor *executor)
{
    const sx_module *module = sxr_module(executor->program);
    const sx_module_variant *variant = &module->variant[sxr_variant(executor->program)];
    for (uint32_t i = 0; i < variant->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[variant->launch_first + i];
        void *buffer[SX_MODULE_ARGS_MAX];
        for (uint32_t k = 0; k < launch->arg_count; k++) {
            buffer[k] = sxr_memory(executor->program, module->arg[launch->arg_first + k]);
        }
        ck_sx_ok(cx, sxr_execute(executor, variant->launch_first + i, buffer));
    }
}

static sx_span name_of(const sx_module *module, uint32_t tensor)
{
    return sx_module_string(module, module->tensor[tensor].name);
}

/* The first output by name, or the next one behind `last`; SX_MODULE_NONE: there is none. */
static uint32_t next_output(const sx_module *module, uint32_t last)
{
    uint32_t next = SX_MODULE_NONE;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        sx_span name = name_of(module, i);
        if (module->tensor[i].place == SX_TENSOR_OUTPUT &&
            (last == SX_MODULE_NONE || sx_span_compare(name, name_of(module, last)) > 0) &&
            (next == SX_MODULE_NONE || sx_span_compare(name, name_of(module, next)) < 0)) {
            next = i;
        }
    }
    return next;
}

/* Runs a program for these extents on the values that sx_test_fill draws; all outputs into one buffer, in the order
 * of their names. */
static void run(sx_ctx *cx, sxr_program *program, const sx_interval *symbol, uint32_t symbols,
                const int64_t *value, sx_buf *out)
{
    sxr_executor executor;
    for (uint32_t k = 0; k < symbols; k++) {
        ck_sx_ok(cx, sxr_set_extent(cx, program, symbol[k].name, value[k]));
    }
    const sx_module *module = sxr_module(program);
    sx_test_bind_drawn(cx, program);
    ck_sx_ok(cx, sxr_executor_make(cx, NULL, program, &executor));
    if (executor.emulator != NULL) {
        emulate(cx, &executor);
    } else {
        ck_sx_ok(cx, sxr_run(cx, program, NULL));
    }
    sxr_executor_fini(&executor);
    for (uint32_t i = SX_MODULE_NONE; (i = next_output(module, i)) != SX_MODULE_NONE;) {
        sx_buf_put(out, sxr_memory(program, i), (size_t)sxr_size(program, i));
    }
}

/* The module for one value of each symbol, in *module. */
static void compile_alone(sx_ctx *cx, const sx_core_request *all, const int64_t *value,
                          sx_buf *module)
{
    sx_core_request request = *all;
    sx_binding binding[2];
    for (uint32_t k = 0; k < all->interval_count; k++) {
        binding[k] = (sx_binding){all->interval[k].name, value[k]};
    }
    request.binding = binding;
    request.binding_count = all->interval_count;
    request.interval_count = 0;
    ck_sx_ok(cx, sx_test_compile_request(cx, &request, module));
}

/* Both modules at one point, in an arena of their own. */
static void compare_at(sx_ctx *cx, const sx_core_request *all, const int64_t *value,
                       sxr_program *whole, size_t *alone)
{
    sx_arena outer = cx->arena;
    sx_arena_init(&cx->arena, (size_t)1 << 30);
    sx_buf module, got, want;
    sx_buf_init(&module, (size_t)1 << 26);
    sx_buf_init(&got, (size_t)1 << 28);
    sx_buf_init(&want, (size_t)1 << 28);
    sxr_program *one;
    compile_alone(cx, all, value, &module);
    *alone = module.len > *alone ? module.len : *alone;
    ck_sx_ok(cx, sxr_open_bytes(cx, sx_buf_span(&module), &open_any, &one));
    run(cx, whole, all->interval, all->interval_count, value, &got);
    run(cx, one, all->interval, all->interval_count, value, &want);
    ck_assert_msg(sx_span_equal(sx_buf_span(&got), sx_buf_span(&want)), "%d, %d", (int)value[0],
                  (int)value[1]);
    sxr_close(one);
    sx_buf_fini(&module);
    sx_buf_fini(&got);
    sx_buf_fini(&want);
    sx_arena_fini(&cx->arena);
    cx->arena = outer;
}

void sx_test_compare_intervals(sx_ctx *cx, const sx_core_request *all, sx_test_intervals *t)
{
    sx_rng rng = {sx_test_seed()};
    const sx_interval *interval = all->interval;
    sx_buf module;
    sx_buf_init(&module, (size_t)1 << 26);
    ck_sx_ok(cx, sx_test_compile_request(cx, all, &module));
    sxr_program *whole;
    ck_sx_ok(cx, sxr_open_bytes(cx, sx_buf_span(&module), &open_any, &whole));
    ck_assert_uint_le(sxr_module(whole)->variant_count, t->variants);
    t->cases = (uint32_t)sxr_module(whole)->cases_count;
    t->bytes = module.len;
    t->alone = 0;
    uint64_t values[2] = {1, 1};
    for (uint32_t k = 0; k < all->interval_count; k++) {
        values[k] = (uint64_t)(interval[k].high - interval[k].low + 1);
    }
    uint64_t points = t->points == 0 ? values[0] * values[1] : t->points;
    for (uint64_t i = 0; i < points; i++) {
        int64_t value[2] = {0};
        for (uint32_t k = 0; k < all->interval_count; k++) {
            uint64_t drawn = sx_rng_below(&rng, values[k]), end = i >> k & 1 ? values[k] - 1 : 0;
            uint64_t all_of = k == 0 ? i / values[1] : i % values[1];
            drawn = t->points == 0 ? all_of : i < 4 ? end : drawn;
            value[k] = interval[k].low + (int64_t)drawn;
        }
        compare_at(cx, all, value, whole, &t->alone);
    }
    sxr_close(whole);
    sx_buf_fini(&module);
}

sx_code sx_test_encoder_text(sx_ctx *cx, const char **text)
{
    sx_buf fixed, any;
    sx_buf_init(&fixed, SX_TEXT_BYTES_MAX);
    sx_buf_init(&any, SX_TEXT_BYTES_MAX);
    sx_code code = sx_test_model_text(cx, "encoder", &fixed);
    sx_span from = sx_buf_span(&fixed);
    for (size_t i = 0; i < from.len;) {
        bool here = i > 0 && from.len - i > 4 && memcmp(from.ptr + i, "128", 3) == 0 &&
                    memchr("[ ", from.ptr[i - 1], 2) != NULL && memchr(",]", from.ptr[i + 3], 2);
        bool symbols = from.len - i > 2 && memcmp(from.ptr + i, ") {", 3) == 0 && any.len < 100;
        sx_buf_put_text(&any, here ? "seq" : symbols ? ", seq in [1, 4096]" : "");
        if (!here) {
            sx_buf_put_u8(&any, from.ptr[i]);
        }
        i += here ? 3 : 1;
    }
    char *copy = sx_alloc(cx, any.len + 1);
    if (copy != NULL) {
        memcpy(copy, any.ptr, any.len);
    }
    *text = copy;
    sx_buf_fini(&fixed);
    sx_buf_fini(&any);
    return code == SX_OK ? cx->error.code : code;
}
