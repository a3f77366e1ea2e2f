/* map.c - tensors as the copy engine (TMA) reads them: encoded by the driver, which alone knows how. */
#include <string.h>

#include "client/cuda/gpu.h"

#define ADDRESS_ALIGN 16
#define CAPABILITY_LEAST 90

/* Numbers of cuda.h: which power of two times `unit` it is, from 1 on; 0: none. */
static int step_of(uint32_t bytes, uint32_t unit)
{
    int step = 0;
    for (uint32_t b = bytes / unit; b > 0; b /= 2) {
        step++;
    }
    return step;
}

sx_code sxg_map_encode(sx_ctx *cx, sxg_gpu *gpu, const sxg_map *map, sxg_encoded_map *encoded)
{
    static const unsigned every[SXG_MAP_RANK_MAX] = {1, 1, 1, 1, 1};
    void *at = NULL;
    SX_ASSERT(map->rank >= 1 && map->rank <= SXG_MAP_RANK_MAX);
    SX_ASSERT(map->swizzle_bytes <= 128 && map->promoted_bytes <= 256);
    if (map->at % ADDRESS_ALIGN != 0) {
        return SX_FAIL(cx, SX_INPUT,
                       "the copy engine reads from 0x%llx, which is no multiple of %d",
                       (unsigned long long)map->at, ADDRESS_ALIGN);
    }
    if (gpu->driver.map_encode == NULL || gpu->info.capability < CAPABILITY_LEAST) {
        sx_hint(cx,
                "Drivers of CUDA 12.0 and later have it, and GPUs of capability 9.0 and later.");
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "the driver or GPU %d (%s) has no maps of the copy engine",
                       gpu->info.ordinal, gpu->info.name);
    }
    memcpy(&at, &map->at, sizeof(at)); /* an address of the GPU as the driver takes it */
    int status = gpu->driver.map_encode(
        encoded, (int)map->element, map->rank, at, map->dim, map->stride + 1, map->box, every, 0,
        step_of(map->swizzle_bytes, 32), step_of(map->promoted_bytes, 64), 0);
    return status == 0 ? SX_OK : sxg_fail(cx, gpu, "encoding what the copy engine reads", status);
}
