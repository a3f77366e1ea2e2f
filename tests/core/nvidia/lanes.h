/* lanes.h - kernels of the loop IR on NVIDIA targets: executed in the interpreter, their text, assembled. */
#ifndef SX_TESTS_CORE_NVIDIA_LANES_H
#define SX_TESTS_CORE_NVIDIA_LANES_H
#include "client/assemble/assemble.h"
#include "core/target/target.h"
#include "tests/core/judge/try.h"

#include <stdio.h>

/* The kernel on a target, and its text. */
SX_UNUSED static const sx_kernel *emit_on(sx_ctx *cx, const sx_target *target, const node *n,
                                          const sx_schedule *s, sx_buf *text, sx_target_code *code)
{
    sx_lowering what = {
        .kind = SX_LOWER_FUSED, .name = "k", .schedule = s, .analysis = analysis_of(cx, n)};
    sx_kernel *kernel;
    ck_sx_ok(cx, sx_target_lower(cx, target, &what, &kernel));
    ck_sx_ok(cx, target->emit(cx, target, kernel, false, text, code));
    return kernel;
}

/* Runs the text; *result: what it computes, where the interpreter finds no fault. */
SX_UNUSED static sx_code run_text(sx_ctx *cx, const sx_target *target, const node *n,
                                  const sx_kernel *kernel, const sx_target_code *code,
                                  const sx_buf *text, const uint8_t **result)
{
    sx_emulator *emulator;
    sx_region region[SX_LOOP_BUFFERS_MAX];
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        size_t size = (size_t)kernel->buffer[k].size;
        region[k] = (sx_region){.name = "a buffer",
                                .memory = k < n->count ? n->raw[k] : sx_alloc(cx, size),
                                .size = size,
                                .writable = kernel->buffer[k].role != SX_BUFFER_IN};
    }
    ck_sx_ok(cx, target->emulator_make(cx, target, sx_buf_span(text), code->entry,
                                       code->entry_count, &emulator));
    uint32_t count = kernel->buffer_count;
    bool works = kernel->buffer[count - 1].role == SX_BUFFER_WORKSPACE;
    *result = region[n->count].memory;
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const int64_t *grid = kernel->part[p].grid;
        sx_emulation all = {.entry = code->entry[p],
                            .grid = {grid[0], grid[1], grid[2]},
                            .count = grid[0] * grid[1] * grid[2],
                            .buffer = region,
                            .buffer_count = count - (works ? 1 : 0),
                            .workspace = works ? &region[count - 1] : NULL,
                            .threads = code->block[p].threads,
                            .shared_bytes = code->block[p].shared_bytes};
        SX_TRY(target->emulate(cx, emulator, &all));
    }
    return SX_OK;
}

/* Text and result of the kernel on a target. */
SX_UNUSED static const uint8_t *run_on(sx_ctx *cx, const sx_target *target, const node *n,
                                       const sx_schedule *s, sx_buf *text)
{
    sx_target_code code;
    const uint8_t *result;
    const sx_kernel *kernel = emit_on(cx, target, n, s, text, &code);
    sx_code status = run_text(cx, target, n, kernel, &code, text, &result);
    ck_assert_msg(status == SX_OK, "%s", cx->error.text);
    return result;
}

SX_UNUSED static bool has(const sx_buf *text, const char *op, const char *access)
{
    char word[64];
    (void)snprintf(word, sizeof(word), "%s.%s", op, access);
    return strstr((const char *)text->ptr, word) != NULL;
}

/* Everything stays in at most so many registers. */
SX_UNUSED static void expect_registers(sx_ctx *cx, const sx_buf *text, const char *target,
                                       uint32_t most)
{
    sxa_options options = {.with = SXA_PTXAS};
    sxa_result result;
    sx_span source = {text->ptr, strlen((const char *)text->ptr)};
    sx_code code = sxa_assemble(cx, source, target, &options, &result);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    for (uint32_t i = 0; i < result.record->kernel_count; i++) {
        const sx_cubin_kernel *made = &result.record->kernel[i];
        ck_assert_uint_eq(made->spill_count + made->stack_bytes, 0);
        ck_assert_uint_le(made->registers, most);
    }
}
#endif
