/* code.c - PTX text made code of the GPU by its driver, or a cubin taken as it is; and launches. */
#include <string.h>

#include "client/cuda/gpu.h"

/* Numbers of cuda.h. */
enum {
    OPTION_ERROR_LOG = 5,
    OPTION_ERROR_LOG_BYTES = 6,
    LOG_BYTES = 4096,
    FUNCTION_DYNAMIC_SHARED_BYTES_MAX = 8
};
/* What every block may ask for; for more the function must be told. */
#define SHARED_BYTES_USUAL (48u << 10)

/* Reads "7.0" behind ".version " at the head of the text. */
static bool read_version(sx_span text, uint32_t *major, uint32_t *minor)
{
    static const char word[] = ".version ";
    size_t n = sizeof(word) - 1;
    if (text.len < n + 3 || memcmp(text.ptr, word, n) != 0) {
        return false;
    }
    const uint8_t *p = text.ptr + n;
    *major = (uint32_t)(p[0] - '0');
    *minor = (uint32_t)(p[2] - '0');
    return *major < 10 && *minor < 10 && p[1] == '.';
}

/* The first CUDA whose driver takes a version of PTX, as the driver numbers it: "PTX ISA", release notes. */
static uint32_t driver_for(uint32_t major, uint32_t minor)
{
    SX_ASSERT(major < 10 && minor < 10);
    if (major < 7) {
        return 11000; /* older than all that is supported */
    }
    if (major == 8 && minor >= 6) { /* 8.5 serves 12.5 and 12.6 */
        return 12010 + 10 * minor;
    }
    return 1000 * (major + 4) + 10 * minor;
}

static sx_code check_driver(sx_ctx *cx, const sxg_gpu *gpu, sx_span text)
{
    uint32_t major, minor;
    if (!read_version(text, &major, &minor)) {
        return SX_FAIL(cx, SX_CORRUPT, "code for the GPU: not PTX text");
    }
    uint32_t need = driver_for(major, minor);
    if (gpu->info.driver < need) {
        sx_hint(cx, "Install a newer NVIDIA driver.");
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "PTX %u.%u needs a driver of CUDA %u.%u, this one is of CUDA %u.%u", major,
                       minor, need / 1000, need % 1000 / 10, gpu->info.driver / 1000,
                       gpu->info.driver % 1000 / 10);
    }
    return SX_OK;
}

static sx_code load_image(sx_ctx *cx, sxg_gpu *gpu, const void *image, void **module)
{
    char log[LOG_BYTES] = "";
    int option[] = {OPTION_ERROR_LOG, OPTION_ERROR_LOG_BYTES};
    void *value[2] = {log, NULL};
    unsigned bytes = LOG_BYTES;
    memcpy(&value[1], &bytes, sizeof(bytes)); /* the number stands in the pointer's place */
    int status = gpu->driver.module_load(module, image, 2, option, value);
    log[LOG_BYTES - 1] = '\0';
    if (status != 0 && log[0] != '\0') {
        *module = NULL;
        return SX_FAIL(cx, SX_COMPILE, "the CUDA driver refuses the code (error %d): %.350s",
                       status, log);
    }
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "loading code on the GPU", status);
}

sx_code sxg_load(sx_ctx *cx, sxg_gpu *gpu, sx_span text, void **module)
{
    SX_ASSERT(text.len > 0 && text.ptr[text.len] == 0);
    SX_TRY(check_driver(cx, gpu, text));
    return load_image(cx, gpu, text.ptr, module);
}

sx_code sxg_load_cubin(sx_ctx *cx, sxg_gpu *gpu, sx_span cubin, void **module)
{
    SX_ASSERT(cubin.len > 4 && cubin.ptr[0] == 0x7f && (uintptr_t)cubin.ptr % 8 == 0);
    return load_image(cx, gpu, cubin.ptr, module);
}

void sxg_unload(sxg_gpu *gpu, void *module)
{
    if (module != NULL) {
        (void)gpu->driver.module_unload(module);
    }
}

/* The function may be launched with so much shared memory. */
static sx_code allow_shared(sx_ctx *cx, sxg_gpu *gpu, const char *name, uint32_t shared_bytes,
                            sxg_function *function)
{
    if (shared_bytes > gpu->info.block_shared_bytes) {
        return SX_FAIL(
            cx, SX_LIMIT, "%.200s: a block asks for %u bytes of shared memory, GPU %d (%s) has %u",
            name, shared_bytes, gpu->info.ordinal, gpu->info.name, gpu->info.block_shared_bytes);
    }
    function->shared_bytes = shared_bytes;
    if (shared_bytes <= SHARED_BYTES_USUAL) {
        return SX_OK;
    }
    int status = gpu->driver.function_set(function->handle, FUNCTION_DYNAMIC_SHARED_BYTES_MAX,
                                          (int)shared_bytes);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, name, status);
}

sx_code sxg_function_find(sx_ctx *cx, sxg_gpu *gpu, void *module, const char *name,
                          uint32_t threads, uint32_t shared_bytes, sxg_function *function)
{
    int blocks = 0;
    SX_ASSERT(module != NULL && threads >= 32 && threads <= 1024);
    int status = gpu->driver.module_function(&function->handle, module, name);
    if (status != 0) {
        return sxg_fail(cx, gpu, name, status);
    }
    SX_TRY(allow_shared(cx, gpu, name, shared_bytes, function));
    status = gpu->driver.function_occupancy(&blocks, function->handle, (int)threads, shared_bytes);
    if (status != 0) {
        return sxg_fail(cx, gpu, name, status);
    }
    if (blocks < 1) {
        return SX_FAIL(cx, SX_LIMIT,
                       "%.200s: no block of %u threads with %u bytes of shared memory fits on GPU "
                       "%d (%s)",
                       name, threads, shared_bytes, gpu->info.ordinal, gpu->info.name);
    }
    function->blocks_max = (uint32_t)blocks * gpu->info.processors;
    return SX_OK;
}

sx_code sxg_launch(sx_ctx *cx, sxg_gpu *gpu, const sxg_function *function, sxg_dim grid,
                   sxg_dim block, void **parameter)
{
    SX_ASSERT(grid.x > 0 && grid.y > 0 && grid.z > 0);
    SX_ASSERT(block.x > 0 && block.y > 0 && block.z > 0 && block.x * block.y * block.z <= 1024);
    int status = gpu->driver.launch(function->handle, grid.x, grid.y, grid.z, block.x, block.y,
                                    block.z, function->shared_bytes, gpu->stream, parameter, NULL);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "launching a kernel", status);
}
