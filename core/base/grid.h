/* grid.h - how the grid of a block program becomes the grid of a launch on a GPU.
 *
 * A point (i, j, k) of a grid is one block. A launch has at most 2^31 - 1 blocks along x and 65535 along y and z. Where
 * that is enough, k goes along x, j along y and i along z. Where i or j go beyond 65535, the grid is folded: all points
 * lie along x, in the order of the grid, the last index fastest, and block n is the point
 *
 *     k = n mod extent[2], j = n / extent[2] mod extent[1], i = n / (extent[1] * extent[2])
 *
 * Both orders are the same, so that blocks which share what they read run side by side either way. The text of a kernel
 * (core/nvidia), its launch (client/runtime, core/nvidia) and the check of its module (protocol) follow this rule.
 *
 * Where blocks walk, fewer of them than there are points are launched, all of them along x. The points are counted as
 * above, and block n of a launch of g blocks is the points n, n + g, n + 2 g ... in this order, whatever g is. Blocks
 * of a cluster have numbers side by side; where g is a multiple of how many they are, so are their points. */
#ifndef SX_CORE_BASE_GRID_H
#define SX_CORE_BASE_GRID_H
#include "core/base/base.h"

#define SX_GRID_X_MAX INT32_MAX
#define SX_GRID_YZ_MAX 65535

static inline bool sx_grid_is_folded(const int64_t extent[3])
{
    return extent[0] > SX_GRID_YZ_MAX || extent[1] > SX_GRID_YZ_MAX;
}

/* Can a launch have all points? */
static inline bool sx_grid_fits(const int64_t extent[3])
{
    int64_t all = extent[2];
    if (extent[0] < 1 || extent[1] < 1 || extent[2] < 1) {
        return false;
    }
    if (sx_grid_is_folded(extent) &&
        (!sx_mul_i64(all, extent[1], &all) || !sx_mul_i64(all, extent[0], &all))) {
        return false;
    }
    return all <= SX_GRID_X_MAX;
}

/* The blocks of the launch along x, y and z. */
static inline void sx_grid_launched(const int64_t extent[3], uint32_t blocks[3])
{
    SX_ASSERT(sx_grid_fits(extent));
    bool folded = sx_grid_is_folded(extent);
    blocks[0] = (uint32_t)(folded ? extent[0] * extent[1] * extent[2] : extent[2]);
    blocks[1] = folded ? 1 : (uint32_t)extent[1];
    blocks[2] = folded ? 1 : (uint32_t)extent[0];
    SX_ASSERT(blocks[0] >= 1 && blocks[1] <= SX_GRID_YZ_MAX && blocks[2] <= SX_GRID_YZ_MAX);
}

/* Can blocks walk over the points? false also where there are none. */
static inline bool sx_grid_can_walk(const int64_t extent[3], int64_t *points)
{
    *points = extent[2];
    return extent[0] >= 1 && extent[1] >= 1 && extent[2] >= 1 &&
           sx_mul_i64(*points, extent[1], points) && sx_mul_i64(*points, extent[0], points) &&
           *points <= SX_GRID_X_MAX;
}

/* The same where `walkers` blocks walk, no more than there are points; 0: each point is a block. */
static inline void sx_grid_launched_by(const int64_t extent[3], uint32_t walkers,
                                       uint32_t blocks[3])
{
    int64_t points;
    if (walkers == 0) {
        sx_grid_launched(extent, blocks);
        return;
    }
    bool can = sx_grid_can_walk(extent, &points);
    SX_ASSERT(can);
    blocks[0] = (uint32_t)sx_min_i64(points, walkers);
    blocks[1] = blocks[2] = 1;
}
#endif
