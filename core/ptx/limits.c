#include "core/ptx/limits.h"

#define NAME(kernel) (int)(kernel)->name.len, (const char *)(kernel)->name.ptr

static bool is_none(sx_cubin_dim dim)
{
    return dim.x == 0 && dim.y == 0 && dim.z == 0;
}

/* The product, or UINT64_MAX where it is beyond all limits. */
static uint64_t volume(sx_cubin_dim dim)
{
    uint64_t plane = (uint64_t)dim.x * dim.y, all;
    return __builtin_mul_overflow(plane, (uint64_t)dim.z, &all) ? UINT64_MAX : all;
}

static bool same(sx_cubin_dim a, sx_cubin_dim b)
{
    return a.x == b.x && a.y == b.y && a.z == b.z;
}

/* The threads of the block that is launched. */
static sx_code choose_block(sx_ctx *cx, const sx_cubin_kernel *kernel, const sx_device *device,
                            const sx_cubin_launch *launch, uint64_t *threads)
{
    sx_cubin_dim block = launch->block;
    if (is_none(block)) {
        block = !is_none(kernel->block) ? kernel->block : kernel->block_max;
    }
    *threads = volume(block);
    if (*threads == 0) {
        return SX_FAIL(cx, SX_INPUT, "kernel %.*s: a block of %ux%ux%u threads is none",
                       NAME(kernel), block.x, block.y, block.z);
    }
    if (!is_none(kernel->block) && !same(kernel->block, block)) {
        return SX_FAIL(cx, SX_INPUT,
                       "kernel %.*s: a block of %ux%ux%u threads, it requires %ux%ux%u",
                       NAME(kernel), block.x, block.y, block.z, kernel->block.x, kernel->block.y,
                       kernel->block.z);
    }
    if (!is_none(kernel->block_max) && *threads > volume(kernel->block_max)) {
        return SX_FAIL(cx, SX_INPUT, "kernel %.*s: a block of %llu threads, compiled for %llu",
                       NAME(kernel), (unsigned long long)*threads,
                       (unsigned long long)volume(kernel->block_max));
    }
    if (*threads > device->block_threads) {
        return SX_FAIL(cx, SX_LIMIT, "kernel %.*s: a block of %llu threads, %s has at most %u",
                       NAME(kernel), (unsigned long long)*threads, device->name,
                       device->block_threads);
    }
    return SX_OK;
}

static sx_code check_cluster(sx_ctx *cx, const sx_cubin_kernel *kernel, const sx_device *device,
                             const sx_cubin_launch *launch)
{
    sx_cubin_dim cluster = is_none(launch->cluster) ? kernel->cluster : launch->cluster;
    if (is_none(cluster)) {
        return SX_OK;
    }
    uint64_t blocks = volume(cluster);
    if (blocks == 0 || (!is_none(kernel->cluster) && !same(kernel->cluster, cluster))) {
        return SX_FAIL(cx, SX_INPUT,
                       "kernel %.*s: a cluster of %ux%ux%u blocks, it requires %ux%ux%u",
                       NAME(kernel), cluster.x, cluster.y, cluster.z, kernel->cluster.x,
                       kernel->cluster.y, kernel->cluster.z);
    }
    if (kernel->cluster_max > 0 && blocks > kernel->cluster_max) {
        return SX_FAIL(cx, SX_INPUT, "kernel %.*s: a cluster of %llu blocks, compiled for %u",
                       NAME(kernel), (unsigned long long)blocks, kernel->cluster_max);
    }
    if (blocks > device->cluster_blocks) {
        return SX_FAIL(cx, SX_LIMIT, "kernel %.*s: a cluster of %llu blocks, %s has at most %u",
                       NAME(kernel), (unsigned long long)blocks, device->name,
                       device->cluster_blocks);
    }
    return SX_OK;
}

sx_code sx_cubin_check_launch(sx_ctx *cx, const sx_cubin_kernel *kernel, const sx_device *device,
                              const sx_cubin_launch *launch, sx_cubin_need *need)
{
    SX_ASSERT(device->block_threads > 0 && kernel->registers > 0);
    uint64_t threads, shared;
    SX_TRY(choose_block(cx, kernel, device, launch, &threads));
    SX_TRY(check_cluster(cx, kernel, device, launch));
    uint64_t warps =
        (threads + device->lanes - 1) / device->lanes; /* registers go to whole warps */
    uint64_t held = warps * device->lanes;
    held = held < device->block_threads ? held : device->block_threads;
    uint32_t most = sx_device_thread_registers(device, (uint32_t)held);
    if (kernel->registers > most) {
        return SX_FAIL(cx, SX_LIMIT,
                       "kernel %.*s: %llu threads of %u registers, %s has room for %u in each (%u "
                       "in all)",
                       NAME(kernel), (unsigned long long)threads, kernel->registers, device->name,
                       most, device->register_file);
    }
    if (__builtin_add_overflow(kernel->shared_bytes, launch->dynamic_shared_bytes, &shared) ||
        (double)shared > device->shared_block_bytes) {
        return SX_FAIL(cx, SX_LIMIT,
                       "kernel %.*s: %llu bytes of shared memory and %llu at the launch, a block "
                       "of %s has at most %.0f",
                       NAME(kernel), (unsigned long long)kernel->shared_bytes,
                       (unsigned long long)launch->dynamic_shared_bytes, device->name,
                       device->shared_block_bytes);
    }
    *need = (sx_cubin_need){.threads = threads,
                            .shared_bytes = shared,
                            .registers = held * kernel->registers,
                            .resident_blocks = sx_device_resident_blocks(
                                device, (uint32_t)held, kernel->registers, (double)shared)};
    return SX_OK;
}
