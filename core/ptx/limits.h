/* limits.h - may a kernel be launched on a device? The assemblers do not ask.
 *
 * They take kernels with more shared memory than a block can have, and launch bounds that no device has; the
 * driver says so at the launch, as one number. Here each of these is refused before, with the numbers of the
 * kernel and of the device (docs/DEVICES.md has the laws of blocks). */
#ifndef SX_CORE_PTX_LIMITS_H
#define SX_CORE_PTX_LIMITS_H
#include "core/cost/device.h"
#include "core/ptx/cubin.h"

typedef struct {
    /* Threads of a block. All 0: those that the kernel requires, else the most that it was compiled for. */
    sx_cubin_dim block;
    /* Blocks of a cluster. All 0: those that the kernel requires, else one. */
    sx_cubin_dim cluster;
    /* Shared memory that is asked for at the launch, beside what the kernel declares. */
    uint64_t dynamic_shared_bytes;
} sx_cubin_launch;

/* What a launch needs of a core, where it is possible. */
typedef struct {
    uint64_t threads, shared_bytes, registers;
    /* Blocks that a core holds at once. */
    uint32_t resident_blocks;
} sx_cubin_need;

/* The device has the laws of blocks.
 *   errors   SX_LIMIT shared memory, registers of all threads, threads of a block or blocks of a cluster are more
 *            than the device has; SX_INPUT the launch is not what the kernel requires, or no block is known */
sx_code sx_cubin_check_launch(sx_ctx *cx, const sx_cubin_kernel *kernel, const sx_device *device,
                              const sx_cubin_launch *launch, sx_cubin_need *need);
#endif
