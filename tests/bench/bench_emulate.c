/* bench_emulate.c - the emulator of machine code: lanes and instructions a second of processor time, by kind
 * of kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/verify/execute.h"
#include "core/x64/emulate.h"
#include "tests/bench/bench.h"
#include "tests/lib/compiled.h"

static const struct {
    const char *name, *target, *text;
} cases[] = {
    {"contraction-avx512", "x86-64-v4",
     "sx 1\ngraph \"g\" () {\n"
     "%x = parameter {name = \"x\", weight = 0} : f32[64, 512]\n"
     "%w = parameter {name = \"w\", weight = 1} : f32[512, 512]\n"
     "%y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[64, 512]\n"
     "return %y as \"y\"\n}\n"},
    {"contraction-avx2", "x86-64-v3",
     "sx 1\ngraph \"g\" () {\n"
     "%x = parameter {name = \"x\", weight = 0} : f32[64, 512]\n"
     "%w = parameter {name = \"w\", weight = 1} : f32[512, 512]\n"
     "%y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[64, 512]\n"
     "return %y as \"y\"\n}\n"},
    {"map-avx512", "x86-64-v4",
     "sx 1\ngraph \"g\" () {\n"
     "%x = parameter {name = \"x\", weight = 0} : f32[1024, 256]\n"
     "%y = tanh(%x) : f32[1024, 256]\n"
     "return %y as \"y\"\n}\n"},
};

static double processor_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* All launches of the module, once. */
static sx_code run_all(sxr_executor *executor)
{
    const sx_module *module = sxr_module(executor->program);
    for (uint32_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        void *buffer[65];
        for (uint32_t k = 0; k < launch->arg_count; k++) {
            buffer[k] = sxr_memory(executor->program, module->arg[launch->arg_first + k]);
        }
        SX_TRY(sxr_execute(executor, i, buffer));
    }
    return SX_OK;
}

static sx_code measure(sx_ctx *cx, const sx_bench_options *options, uint32_t index, sx_buf *bytes)
{
    sx_test_request request = {.text = cases[index].text, .target = cases[index].target};
    SX_TRY(sx_test_compile(cx, &request, bytes));
    sxr_options open = {.threads = 1, .any_level = true};
    sxr_executor executor = {0};
    (void)setenv("SYMPLEX_ISA_MAX", "none", 1);
    SX_TRY(sxr_open_bytes(cx, sx_buf_span(bytes), &open, &executor.program));
    const sx_module *module = sxr_module(executor.program);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place <= SX_TENSOR_OUTPUT) {
            void *memory = sx_alloc(cx, (size_t)module->tensor[i].size);
            sx_test_fill(module, i, SX_FILL_SMOOTH, memory);
            SX_TRY(sxr_bind(cx, executor.program, i, memory, module->tensor[i].size));
        }
    }
    SX_TRY(sxr_executor_make(cx, NULL, executor.program, &executor));
    double *lanes = SX_NEW_ARRAY(cx, double, options->rounds);
    double *instructions = SX_NEW_ARRAY(cx, double, options->rounds);
    for (uint32_t r = 0; r < options->rounds && cx->error.code == SX_OK; r++) {
        sx_x64_work before = sx_x64_emulated((const sx_x64_emulator *)executor.emulator);
        double start = processor_seconds();
        SX_TRY(run_all(&executor));
        double seconds = processor_seconds() - start;
        sx_x64_work after = sx_x64_emulated((const sx_x64_emulator *)executor.emulator);
        lanes[r] = (double)(after.lanes - before.lanes) / seconds / 1e6;
        instructions[r] = (double)(after.instructions - before.instructions) / seconds / 1e6;
    }
    SX_TRY(cx->error.code);
    const char *name = cases[index].name;
    sx_bench_put(options, &(sx_bench_row){"emulate", name, "lanes",
                                          sx_bench_median(lanes, options->rounds), "M/s", NULL, 0});
    sx_bench_put(options,
                 &(sx_bench_row){"emulate", name, "instructions",
                                 sx_bench_median(instructions, options->rounds), "M/s", NULL, 0});
    sxr_executor_fini(&executor);
    sxr_close(executor.program);
    return SX_OK;
}

int sx_bench_emulate(const sx_bench_options *options)
{
    for (uint32_t i = 0; i < SX_COUNT(cases); i++) {
        if (!sx_bench_wants(options, cases[i].name)) {
            continue;
        }
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_buf bytes;
        sx_buf_init(&bytes, (size_t)1 << 28);
        sx_code code = measure(&cx, options, i, &bytes);
        if (code != SX_OK) {
            (void)fprintf(stderr, "symplex-bench emulate: %s\n", cx.error.text);
        }
        sx_buf_fini(&bytes);
        sx_ctx_fini(&cx);
        if (code != SX_OK) {
            return sx_code_exit(code);
        }
    }
    return 0;
}
