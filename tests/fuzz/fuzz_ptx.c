/* fuzz_ptx.c - any bytes as PTX: an error, or a module that prints, reads back, and whose kernels run in the
 * interpreter to an end, a fault or the last of their instructions, without an access outside of their buffers. */
#include <string.h>

#include "core/simt/run.h"

#define TEXT_BYTES_MAX ((size_t)1 << 16)
#define ARGUMENTS_MAX 16
#define BUFFER_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const sx_ptx_module *module)
{
    sx_ctx cx;
    sx_buf text;
    sx_ptx_module *again;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_buf_init(&text, (size_t)1 << 22);
    sx_ptx_print(module, &text);
    if (text.code == SX_OK) {
        sx_code code = sx_ptx_parse(&cx, sx_buf_span(&text), &again);
        SX_ASSERT(code == SX_OK || code == SX_NOMEM || code == SX_LIMIT);
    }
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}

static void run_kernel(const sx_ptx_module *module, const sx_ptx_kernel *kernel, uint64_t seed)
{
    static uint8_t in[BUFFER_BYTES], out[BUFFER_BYTES];
    static const uint8_t number[BUFFER_BYTES] = {3};
    sx_ptx_region region[2] = {
        {.name = "in", .bytes = in, .size = sizeof(in), .initialised = true},
        {.name = "out",
         .bytes = out,
         .size = sizeof(out),
         .writable = true,
         .initialised = seed % 2 == 0},
    };
    sx_ptx_argument argument[ARGUMENTS_MAX] = {{.region = 0}};
    sx_ptx_launch launch = {.module = module,
                            .kernel = kernel->name,
                            .grid = {2, 1, 1},
                            .block = {41, 1, 1},
                            .dynamic_shared_bytes = 512,
                            .region = region,
                            .region_count = SX_COUNT(region),
                            .argument = argument,
                            .argument_count = kernel->parameter_count,
                            .seed = seed,
                            .lazy = seed % 3 == 0,
                            .instructions_max = 4000};
    if (kernel->parameter_count > ARGUMENTS_MAX) {
        return;
    }
    if (kernel->required.x != 0) {
        launch.block = (sx_ptx_dim){kernel->required.x, kernel->required.y, kernel->required.z};
    }
    for (uint32_t i = 0; i < kernel->parameter_count; i++) {
        uint64_t bytes = sx_ptx_variable_bytes(&kernel->parameter[i]);
        argument[i].region = bytes == 8 ? 1 + i % 2 : 0;
        argument[i].value =
            (sx_span){number, bytes < sizeof(number) ? (size_t)bytes : sizeof(number)};
    }
    sx_ctx cx;
    sx_ptx_outcome outcome;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_code code = sx_ptx_run(&cx, &launch, &outcome);
    SX_ASSERT(code == SX_OK || code == SX_INPUT || code == SX_LIMIT || code == SX_UNIMPLEMENTED ||
              code == SX_MISMATCH || code == SX_QUOTA || code == SX_NOMEM);
    SX_ASSERT(code != SX_MISMATCH ||
              (outcome.fault.found && outcome.fault.insn <= kernel->insn_count));
    sx_ctx_fini(&cx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sx_ctx cx;
    sx_ptx_module *module;
    if (size > TEXT_BYTES_MAX) {
        return 0;
    }
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_code code = sx_ptx_parse(&cx, (sx_span){data, size}, &module);
    SX_ASSERT(code == SX_OK || code == SX_INPUT || code == SX_UNIMPLEMENTED || code == SX_LIMIT ||
              code == SX_NOMEM);
    if (code == SX_OK) {
        check_text(module);
        for (uint32_t i = 0; i < module->kernel_count && i < 4; i++) {
            run_kernel(module, &module->kernel[i], size % 7);
        }
    }
    sx_ctx_fini(&cx);
    return 0;
}
