/* online_blocks.h - what attention and its gradients take by blocks of threads (core/kernel/online_blocks.h), by an
 * analytical model.
 *
 * A warp multiplies, computes the scores' program and the power of each score, and multiplies again, one after the
 * other; several warps of a scheduler overlap these. Keys and values come from the second level for each block of rows.
 * Stages behind the horizon of a block (sx_online_horizon) take nothing, but the floor counts them as work.
 * None of it was measured. */
#ifndef SX_CORE_COST_ONLINE_BLOCKS_H
#define SX_CORE_COST_ONLINE_BLOCKS_H
#include "core/cost/cost.h"
#include "core/kernel/online_blocks.h"

/* How many blocks a core holds at once; 0: not one fits. Device with the laws of blocks. */
uint32_t sx_online_blocks_resident(const sx_device *device, const sx_analysis *analysis,
                                   const sx_online_blocks *blocks);
/* sx_cost_schedule for blocks of which a core holds at least one. */
double sx_cost_online_blocks(const sx_device *device, const sx_analysis *analysis,
                             const sx_online_blocks *blocks);
#endif
