/* search.h - the choice of a schedule for one kernel (level 2), by the analytical model of core/cost.
 *
 * Three phases over the space of schedules: roofline (drop what cannot fill the multiply-add pipeline), alignment (register blocks that fill
 * the vector unit and are not larger than the problem), resources (registers, L1 and L2 footprints). What is left is ranked by
 * sx_cost_schedule; ties go to the earlier candidate, so the same input gives the same ranking. No estimate lies below the roofline floor of
 * the whole problem.
 */
#ifndef SX_CORE_SEARCH_SEARCH_H
#define SX_CORE_SEARCH_SEARCH_H
#include "core/cost/cost.h"

#define SX_SEARCH_KEEP 8
typedef struct {
    sx_schedule schedule;
    double cost_ns;
} sx_search_candidate;
typedef struct {
    sx_search_candidate best[SX_SEARCH_KEEP]; /* ascending cost */
    uint32_t best_count;
    uint32_t considered;       /* points of the space */
    uint32_t dropped_roofline; /* by phase */
    uint32_t dropped_alignment;
    uint32_t dropped_resources;
    double floor_ns; /* roofline floor of the kernel on this device */
} sx_search_result;

/* Ranks schedules for a kernel. `rhs_constant` as sx_cost_schedule. SX_UNIMPLEMENTED for devices without a code generator. */
sx_code sx_search_kernel(sx_ctx *cx, const sx_analysis *analysis, const sx_device *device,
                         bool rhs_constant, sx_search_result *result);
#endif
