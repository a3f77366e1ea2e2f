/* lower_inside.h - inside core/tile: what lowerings to programs of blocks have in common. */
#ifndef SX_CORE_TILE_LOWER_INSIDE_H
#define SX_CORE_TILE_LOWER_INSIDE_H
#include "core/base/grid.h"
#include "core/loop/lower.h"
#include "core/tile/program.h"

/* Of a power of two. */
static inline uint32_t sx_tile_log2(int64_t x)
{
    SX_ASSERT(x > 0);
    return 63 - (uint32_t)__builtin_clzll((unsigned long long)x);
}

/* Buffers of the arguments in order, then of the result; what the kernel computes and moves. */
void sx_tile_add_buffers(sx_lower *l, const sx_analysis *a);

#define SX_TILE_COPY_BYTES_MAX 16
/* The widest copies that all places of the argument allow, in bytes. The batch of the tile is known. */
uint32_t sx_tile_copy_bytes(const sx_tile *tile, const sx_tile_operand *o);
/* How threads copy a tile of rows x width elements, o->copy_bytes at once: the copies lie side by side in lanes, then
 * warps, then one behind the other; surplus threads repeat the first ones.
 *   errors  those of sx_layout_check */
sx_code sx_tile_copy_by_threads(sx_ctx *cx, uint32_t warps, sx_tile_operand *o, int64_t rows,
                                int64_t width);

/* A role of these warps with `count` items; role_count goes up by one. */
void sx_tile_put_role(sx_tile *tile, const char *name, uint32_t first_warp, uint32_t warps,
                      const sx_tile_item *item, uint32_t count);
/* The role of these warps that loads a stage of all operands in each turn. */
void sx_tile_put_load(sx_tile *tile, uint32_t first_warp, uint32_t warps);
/* All warps load and compute: a GPU without a copy engine. */
void sx_tile_make_roles(sx_tile *tile);
#endif
