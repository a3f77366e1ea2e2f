/* gpu.c - a GPU: which one, its memory, its time, and what its failures mean. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cuda/gpu.h"

/* Numbers of cuda.h. */
enum {
    ATTRIBUTE_PROCESSORS = 16,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    ATTRIBUTE_BLOCK_SHARED_BYTES = 97, /* that a function may be allowed */
    STREAM_NON_BLOCKING = 1,
    EVENT_DISABLE_TIMING = 2,
    POINTER_DEVICE_ORDINAL = 9,
    ERROR_OUT_OF_MEMORY = 2,
    ERROR_UNAVAILABLE = 46,
    ERROR_ECC = 214,
    ERROR_NVLINK = 220,
    ERROR_CONTAINED = 226,
    ERROR_KERNELS_FIRST = 700, /* CUDA_ERROR_ILLEGAL_ADDRESS */
    ERROR_OUT_OF_RESOURCES = 701,
    ERROR_KERNELS_LAST = 719 /* CUDA_ERROR_LAUNCH_FAILED */
};

/* After these the context is of no use, and what its memory held is lost. */
static bool loses_device(int status)
{
    return status == ERROR_UNAVAILABLE || status == ERROR_ECC || status == ERROR_NVLINK ||
           status == ERROR_CONTAINED ||
           (status >= ERROR_KERNELS_FIRST && status <= ERROR_KERNELS_LAST &&
            status != ERROR_OUT_OF_RESOURCES);
}

sx_code sxg_fail(sx_ctx *cx, sxg_gpu *gpu, const char *what, int status)
{
    sx_code code = sxg_driver_fail(cx, &gpu->driver, what, status);
    if (loses_device(status) && gpu->lost[0] == '\0') {
        (void)snprintf(gpu->lost, sizeof(gpu->lost), "GPU %d (%s) is lost: %.300s",
                       gpu->info.ordinal, gpu->info.name, cx->error.text);
    }
    if (gpu->lost[0] != '\0') {
        sx_ctx_reset_error(cx);
        sx_hint(cx, "Open the module again; if that fails, start the process again and look at "
                    "nvidia-smi.");
        return SX_FAIL(cx, SX_SYSTEM, "%s", gpu->lost);
    }
    return code;
}

/* ---- which one ---- */

static sx_code read_info(sx_ctx *cx, const sxg_driver *driver, int ordinal, sxg_info *info)
{
    static const int attribute[] = {ATTRIBUTE_PROCESSORS, ATTRIBUTE_MAJOR, ATTRIBUTE_MINOR,
                                    ATTRIBUTE_BLOCK_SHARED_BYTES};
    int device = 0, value[SX_COUNT(attribute)] = {0};
    int status = driver->device_get(&device, ordinal);
    *info = (sxg_info){.ordinal = ordinal, .driver = (uint32_t)driver->version};
    if (status == 0) {
        status = driver->device_name(info->name, (int)sizeof(info->name), device);
    }
    for (uint32_t i = 0; status == 0 && i < SX_COUNT(attribute); i++) {
        status = driver->device_attribute(&value[i], attribute[i], device);
    }
    if (status != 0) {
        return sxg_driver_fail(cx, driver, "asking for a GPU", status);
    }
    int processors = value[0], major = value[1], minor = value[2], shared = value[3];
    if (major < 1 || major > 99 || minor < 0 || minor > 9 || processors < 1 || shared < 0) {
        return SX_FAIL(cx, SX_SYSTEM,
                       "GPU %d: compute capability %d.%d, %d multiprocessors, %d bytes of shared "
                       "memory",
                       ordinal, major, minor, processors, shared);
    }
    info->capability = (uint32_t)(10 * major + minor);
    info->processors = (uint32_t)processors;
    info->block_shared_bytes = (uint32_t)shared;
    return SX_OK;
}

static sx_code pick(sx_ctx *cx, const sxg_driver *driver, uint32_t capability, sxg_info *info)
{
    int count = 0;
    sxg_info best = {.capability = 0};
    int status = driver->device_count(&count);
    if (status != 0) {
        return sxg_driver_fail(cx, driver, "counting GPUs", status);
    }
    for (int i = 0; i < count; i++) {
        SX_TRY(read_info(cx, driver, i, info));
        info->count = count;
        if (info->capability >= capability) {
            return SX_OK;
        }
        best = info->capability > best.capability ? *info : best;
    }
    if (count == 0) {
        return SX_FAIL(cx, SX_ABSENT, "the CUDA driver finds no GPU");
    }
    sx_hint(cx, "Compile with a --target that this GPU has, or with --target native.");
    return SX_FAIL(cx, SX_UNIMPLEMENTED,
                   "compute capability %u.%u is needed, GPU %d (%s) has %u.%u", capability / 10,
                   capability % 10, best.ordinal, best.name, best.capability / 10,
                   best.capability % 10);
}

sx_code sxg_library_find(sx_ctx *cx, sxg_library *library)
{
    sxg_driver driver = {.version = 0};
    SX_TRY(sxg_driver_find(cx, &driver));
    SX_ASSERT(driver.library[0] != '\0' && driver.version >= 0);
    library->version = (uint32_t)driver.version;
    memcpy(library->name, driver.library, sizeof(library->name));
    return SX_OK;
}

sx_code sxg_describe(sx_ctx *cx, int ordinal, sxg_info *info)
{
    sxg_driver driver = {.version = 0};
    int count = 0;
    SX_TRY(sxg_driver_open(cx, &driver));
    int status = driver.device_count(&count);
    if (status != 0) {
        return sxg_driver_fail(cx, &driver, "counting GPUs", status);
    }
    if (ordinal < 0 || ordinal >= count) {
        return SX_FAIL(cx, SX_ABSENT, "there is no GPU %d, the CUDA driver finds %d", ordinal,
                       count);
    }
    SX_TRY(read_info(cx, &driver, ordinal, info));
    info->count = count;
    return SX_OK;
}

sx_code sxg_find(sx_ctx *cx, uint32_t capability, sxg_info *info)
{
    sxg_driver driver = {.version = 0};
    SX_ASSERT(capability > 0 && info != NULL);
    SX_TRY(sxg_driver_open(cx, &driver));
    return pick(cx, &driver, capability, info);
}

/* ---- opening ---- */

void sxg_close(sxg_gpu *gpu)
{
    if (gpu == NULL) {
        return;
    }
    if (gpu->context != NULL) {
        bool current = gpu->driver.context_push(gpu->context) == 0;
        for (uint32_t i = 0; i < SX_COUNT(gpu->event); i++) {
            if (gpu->event[i] != NULL) {
                (void)gpu->driver.event_destroy(gpu->event[i]);
            }
        }
        if (gpu->own != NULL) {
            (void)gpu->driver.stream_destroy(gpu->own);
        }
        if (current) {
            sxg_leave(gpu);
        }
        (void)gpu->driver.context_release(gpu->device);
    }
    free(gpu);
}

static sx_code start(sx_ctx *cx, sxg_gpu *gpu)
{
    int status = gpu->driver.device_get(&gpu->device, gpu->info.ordinal);
    if (status == 0) {
        status = gpu->driver.context_retain(&gpu->context, gpu->device);
    }
    if (status != 0) {
        return sxg_fail(cx, gpu, "starting the GPU", status);
    }
    SX_TRY(sxg_enter(cx, gpu));
    status = gpu->driver.stream_create(&gpu->own, STREAM_NON_BLOCKING);
    for (uint32_t i = 0; status == 0 && i < SX_COUNT(gpu->event); i++) {
        status = gpu->driver.event_create(&gpu->event[i], i > SXG_END ? EVENT_DISABLE_TIMING : 0);
    }
    sxg_leave(gpu);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "starting the GPU", status);
}

sx_code sxg_open(sx_ctx *cx, uint32_t capability, sxg_gpu **out)
{
    SX_ASSERT(capability > 0 && out != NULL);
    sxg_gpu *gpu = calloc(1, sizeof(*gpu));
    if (gpu == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %zu bytes", sizeof(*gpu));
    }
    sx_code code = sxg_driver_open(cx, &gpu->driver);
    if (code == SX_OK) {
        code = pick(cx, &gpu->driver, capability, &gpu->info);
    }
    if (code == SX_OK) {
        code = start(cx, gpu);
    }
    if (code != SX_OK) {
        sxg_close(gpu);
        return code;
    }
    *out = gpu;
    return SX_OK;
}

const sxg_info *sxg_info_of(const sxg_gpu *gpu)
{
    return &gpu->info;
}

sx_code sxg_enter_stream(sx_ctx *cx, sxg_gpu *gpu, void *stream)
{
    SX_ASSERT(gpu != NULL);
    if (gpu->lost[0] != '\0') {
        return SX_FAIL(cx, SX_SYSTEM, "%s", gpu->lost);
    }
    gpu->stream = stream;
    int status = gpu->driver.context_push(gpu->context);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "making the GPU current", status);
}

sx_code sxg_enter(sx_ctx *cx, sxg_gpu *gpu)
{
    return sxg_enter_stream(cx, gpu, gpu->own);
}

void sxg_leave(sxg_gpu *gpu)
{
    void *context = NULL;
    int status = gpu->driver.context_pop(&context);
    SX_ASSERT(status != 0 || context == gpu->context);
}

/* ---- memory ---- */

sx_code sxg_check_address(sx_ctx *cx, sxg_gpu *gpu, uint64_t at)
{
    int ordinal = -1;
    if (gpu->lost[0] != '\0') {
        return SX_FAIL(cx, SX_SYSTEM, "%s", gpu->lost);
    }
    if (gpu->driver.pointer_attribute(&ordinal, POINTER_DEVICE_ORDINAL, at) != 0) {
        return SX_FAIL(cx, SX_INPUT, "0x%llx is no address of memory of a GPU",
                       (unsigned long long)at);
    }
    if (ordinal != gpu->info.ordinal) {
        return SX_FAIL(cx, SX_INPUT, "0x%llx is memory of GPU %d, the module is on GPU %d (%s)",
                       (unsigned long long)at, ordinal, gpu->info.ordinal, gpu->info.name);
    }
    return SX_OK;
}

sx_code sxg_alloc(sx_ctx *cx, sxg_gpu *gpu, const char *what, uint64_t bytes, uint64_t *at)
{
    SX_ASSERT(bytes > 0);
    int status = gpu->driver.memory_alloc(at, (size_t)bytes);
    if (status == ERROR_OUT_OF_MEMORY) {
        size_t left = 0, total = 0;
        bool known = gpu->driver.memory_info(&left, &total) == 0;
        *at = 0;
        return SX_FAIL(cx, SX_NOMEM,
                       "GPU %d (%s): %llu bytes wanted for %s, %zu of %zu bytes are free%s",
                       gpu->info.ordinal, gpu->info.name, (unsigned long long)bytes, what, left,
                       total, known ? "" : " (the driver does not say)");
    }
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "memory of the GPU", status);
}

void sxg_free(sxg_gpu *gpu, uint64_t at)
{
    if (at != 0) {
        (void)gpu->driver.memory_free(at); /* fails on a lost device, whose memory is gone */
    }
}

sx_code sxg_upload(sx_ctx *cx, sxg_gpu *gpu, uint64_t to, const void *from, uint64_t bytes)
{
    int status = bytes == 0 ? 0 : gpu->driver.upload(to, from, (size_t)bytes, gpu->stream);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "copying to the GPU", status);
}

sx_code sxg_download(sx_ctx *cx, sxg_gpu *gpu, void *to, uint64_t from, uint64_t bytes)
{
    int status = bytes == 0 ? 0 : gpu->driver.download(to, from, (size_t)bytes, gpu->stream);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "copying from the GPU", status);
}

sx_code sxg_copy(sx_ctx *cx, sxg_gpu *gpu, uint64_t to, uint64_t from, uint64_t bytes)
{
    int status =
        bytes == 0 || to == from ? 0 : gpu->driver.copy(to, from, (size_t)bytes, gpu->stream);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "copying on the GPU", status);
}

/* The driver has no fill of 8 bytes: the halves are rows of 4 bytes that lie 8 apart. */
static int fill_64(const sxg_gpu *gpu, uint64_t to, uint64_t count, uint64_t element)
{
    const uint64_t size = sizeof(element);
    unsigned low = (unsigned)(element & UINT32_MAX), high = (unsigned)(element >> 32);
    if (low == high) {
        return gpu->driver.fill_32(to, low, (size_t)(2 * count), gpu->stream);
    }
    int status = gpu->driver.fill_32_strided(to, size, low, 1, (size_t)count, gpu->stream);
    return status != 0 ? status
                       : gpu->driver.fill_32_strided(to + size / 2, size, high, 1, (size_t)count,
                                                     gpu->stream);
}

sx_code sxg_fill(sx_ctx *cx, sxg_gpu *gpu, uint64_t to, uint64_t bytes, uint64_t element,
                 uint32_t element_bytes)
{
    int status = 0;
    SX_ASSERT(element_bytes > 0 && bytes % element_bytes == 0);
    size_t count = (size_t)(bytes / element_bytes);
    if (count == 0) {
        return SX_OK;
    }
    switch (element_bytes) {
    case 1: status = gpu->driver.fill_8(to, (unsigned char)element, count, gpu->stream); break;
    case 2: status = gpu->driver.fill_16(to, (unsigned short)element, count, gpu->stream); break;
    case 4: status = gpu->driver.fill_32(to, (unsigned)element, count, gpu->stream); break;
    case 8: status = fill_64(gpu, to, count, element); break;
    default: SX_UNREACHABLE();
    }
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "filling memory of the GPU", status);
}

sx_code sxg_sync(sx_ctx *cx, sxg_gpu *gpu)
{
    int status = gpu->driver.stream_sync(gpu->stream);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "work on the GPU", status);
}

/* ---- streams in order ---- */

/* `stream` waits for the event. */
static sx_code wait_for(sx_ctx *cx, sxg_gpu *gpu, sxg_event event, void *stream)
{
    int status = gpu->driver.stream_wait(stream, gpu->event[event], 0);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "a stream that waits for another", status);
}

static sx_code is_captured(sx_ctx *cx, sxg_gpu *gpu, void *stream, bool *captured)
{
    int answer = 0, status = gpu->driver.stream_captured(stream, &answer);
    *captured = answer != 0;
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "asking for a stream", status);
}

sx_code sxg_order(sx_ctx *cx, sxg_gpu *gpu, void *first, void *then)
{
    if (first == then) {
        return SX_OK;
    }
    int status = gpu->driver.event_record(gpu->event[SXG_ORDER], first);
    return status == 0 ? wait_for(cx, gpu, SXG_ORDER, then)
                       : sxg_fail(cx, gpu, "a stream that another waits for", status);
}

sx_code sxg_mark(sx_ctx *cx, sxg_gpu *gpu, void *stream)
{
    bool captured;
    SX_TRY(is_captured(cx, gpu, stream, &captured));
    if (captured) {
        return SX_OK;
    }
    int status = gpu->driver.event_record(gpu->event[SXG_MARK], stream);
    gpu->marked = gpu->marked || status == 0;
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "marking a stream", status);
}

sx_code sxg_follow(sx_ctx *cx, sxg_gpu *gpu, void *stream)
{
    bool captured = false;
    SX_TRY(gpu->marked ? is_captured(cx, gpu, stream, &captured) : SX_OK);
    return gpu->marked && !captured ? wait_for(cx, gpu, SXG_MARK, stream) : SX_OK;
}

sx_code sxg_follow_own(sx_ctx *cx, sxg_gpu *gpu)
{
    return sxg_follow(cx, gpu, gpu->own);
}

/* ---- time ---- */

sx_code sxg_time_begin(sx_ctx *cx, sxg_gpu *gpu)
{
    int status = gpu->driver.event_record(gpu->event[SXG_BEGIN], gpu->stream);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "time on the GPU", status);
}

sx_code sxg_time_end(sx_ctx *cx, sxg_gpu *gpu, uint64_t *ns)
{
    float ms = 0;
    int status = gpu->driver.event_record(gpu->event[SXG_END], gpu->stream);
    if (status == 0) {
        status = gpu->driver.event_sync(gpu->event[SXG_END]);
    }
    if (status == 0) {
        status = gpu->driver.event_elapsed(&ms, gpu->event[SXG_BEGIN], gpu->event[SXG_END]);
    }
    if (status != 0) {
        return sxg_fail(cx, gpu, "time on the GPU", status);
    }
    *ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return SX_OK;
}
