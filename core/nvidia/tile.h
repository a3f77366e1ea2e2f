/* tile.h - programs of blocks (core/tile/program.h) as PTX.
 *
 * A part with a tile becomes an entry NAME_pP whose parameters are a pointer to each buffer, in their order. A block of
 * the grid is a point of the part's grid by the rule of core/base/grid.h: %ctaid.x its last index, %ctaid.y, %ctaid.z
 * its first, or %ctaid.x all of them, which the entry then divides. Blocks have tile->threads threads, which the entry
 * requires, and tile->shared_bytes bytes of dynamic shared memory.
 *
 * Where blocks walk, the entry has the number of the first point from %ctaid.x and goes on by %nctaid.x, which lets it
 * run with any number of blocks along x.
 *
 * Where the loading and the computing role have the same warps, each step waits for its stage (cp.async.wait_group),
 * meets at one barrier, which also frees the stage of the step before, fills that one and computes. Bytes of a tile
 * beyond the edge of its matrix arrive as zeros; where fused multiply-adds sum up, the steps beyond the end are not
 * made, because a sum of -0 would become +0.
 *
 * With the copy engine, the entry takes a tensor map of 128 bytes for each argument behind the buffers, left one first.
 * Roles part at the begin of the entry and meet at barriers in shared memory: one thread of the last warp starts the
 * copies of a stage when it is free and says how many bytes will come; the multiplying warps wait for them, and one
 * thread of each four warps frees the stage before when its products are settled. Bytes beyond an edge arrive as zeros.
 */
#ifndef SX_CORE_NVIDIA_TILE_H
#define SX_CORE_NVIDIA_TILE_H
#include "core/ptx/ptx.h"
#include "core/tile/program.h"

/* 'a' where the tile (NULL: none) has instructions that only GPUs of this very architecture execute; else `feature`. */
char sx_nvidia_tile_feature(const sx_tile *tile, char feature);
/* Adds a part that has passed sx_tile_check to the module.
 *   errors   SX_UNIMPLEMENTED roles, slots or instructions that are not emitted */
sx_code sx_nvidia_of_tile(sx_ctx *cx, const sx_kernel *kernel, uint32_t part,
                          sx_ptx_module *module);
#endif
