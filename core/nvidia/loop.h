/* loop.h - programs of the loop IR as PTX: a vector of 32 lanes is a register of each thread of a warp.
 *
 * Every part of a kernel becomes an entry NAME_pP. Its parameters: a pointer to each buffer in their order, the
 * workspace last if there is one; then .u32 first and .u32 count, the points of the part's grid to run, counted
 * with the last index fastest. Blocks have 32 x W threads, W = 1 to SX_NVIDIA_WARPS; a warp runs the points
 * first + w, first + w + n, ... where w is its number among the n warps of the launch, and has the bytes of the
 * workspace from w times its size on.
 *
 * Each instruction of the loop IR is one rounding, as there: .rn keeps ptxas from fusing a product with a sum.
 */
#ifndef SX_CORE_NVIDIA_LOOP_H
#define SX_CORE_NVIDIA_LOOP_H
#include "core/loop/loop.h"
#include "core/ptx/ptx.h"

#define SX_NVIDIA_LANES 32 /* threads of a warp */
#define SX_NVIDIA_WARPS 4  /* of a block, at most */
#define SX_NVIDIA_POINTS_MAX (INT64_C(1) << 31)

/* Adds a part of a checked kernel, of 32 lanes, to the module.
 *   errors   SX_LIMIT a grid of more than SX_NVIDIA_POINTS_MAX points, too many instructions */
sx_code sx_nvidia_of_loop(sx_ctx *cx, const sx_kernel *kernel, uint32_t part,
                          sx_ptx_module *module);
#endif
