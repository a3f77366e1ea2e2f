/* fuzz_cubin.c - any bytes as a cubin: an error, or a record whose names lie in the bytes and whose parameters lie
 * in their space. */
#include "core/ptx/cubin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_kernel(const sx_cubin *cubin, uint32_t index, const uint8_t *data, size_t size)
{
    const sx_cubin_kernel *kernel = &cubin->kernel[index];
    SX_ASSERT(kernel->name.len > 0 && kernel->name.ptr >= data);
    SX_ASSERT(kernel->name.ptr + kernel->name.len <= data + size);
    SX_ASSERT(sx_cubin_find(cubin, kernel->name) == kernel);
    SX_ASSERT(kernel->registers > 0 && kernel->registers <= 255);
    SX_ASSERT(index == 0 || sx_span_compare(cubin->kernel[index - 1].name, kernel->name) < 0);
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        const sx_cubin_param *param = &kernel->param[i];
        SX_ASSERT(param->size > 0 && param->size <= kernel->param_bytes);
        SX_ASSERT(param->offset <= kernel->param_bytes - param->size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sx_ctx cx;
    sx_cubin *cubin;
    char target[SX_CUBIN_TARGET_MAX];
    sx_ctx_init(&cx, (size_t)1 << 24);
    sx_code code = sx_cubin_read(&cx, (sx_span){data, size}, &cubin);
    SX_ASSERT(code == SX_OK || code == SX_INPUT || code == SX_CORRUPT || code == SX_UNIMPLEMENTED ||
              code == SX_LIMIT || code == SX_NOMEM);
    for (uint32_t i = 0; code == SX_OK && i < cubin->kernel_count; i++) {
        check_kernel(cubin, i, data, size);
    }
    if (code == SX_OK) {
        sx_cubin_target(cubin, target);
    }
    sx_ctx_fini(&cx);
    return 0;
}
