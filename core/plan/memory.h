/* memory.h - places temporaries of one run in one arena, so that tensors that live at the same time do not overlap.
 *
 * Greedy by size (Pisarchyk and Lee 2020): the largest tensor first, each at the lowest offset free during its
 * whole life. Deterministic: ties go to the smaller index.
 */
#ifndef SX_CORE_PLAN_MEMORY_H
#define SX_CORE_PLAN_MEMORY_H
#include "core/base/base.h"

#define SX_MEMORY_ALIGNMENT 64u
typedef struct {
    uint64_t size;        /* bytes, > 0 */
    uint32_t first, last; /* steps of its life, inclusive */
    uint64_t offset;      /* result: multiple of SX_MEMORY_ALIGNMENT */
} sx_lifetime;

/* Fills in the offsets. *arena_bytes is the end of the highest area; *floor_bytes the largest sum of sizes
 * alive in one step, which no plan can beat. O(n^2) in the number of tensors: one fuel for each pair. */
sx_code sx_plan_memory(sx_ctx *cx, sx_lifetime *life, uint32_t count, uint64_t *arena_bytes,
                       uint64_t *floor_bytes);
#endif
