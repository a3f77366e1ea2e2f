/* search.h - the choice of tiles for one kernel (level 2), by the analytical model of core/cost.
 *
 * Three phases over the space of sx_lower_plan: roofline (drop what cannot beat the best bound), alignment (register blocks that
 * fill the vector unit: enough independent chains to hide the FMA latency, whole vectors of columns), resources (registers, L1 and L2
 * footprints). What is left is ranked by the model; ties go to the earlier candidate, so the same input gives the same ranking.
 * No estimate lies below the roofline floor of the whole problem.
 */
#ifndef SX_CORE_SEARCH_SEARCH_H
#define SX_CORE_SEARCH_SEARCH_H
#include "core/cost/cost.h"
#include "core/loop/loop.h"

#define SX_SEARCH_KEEP 8
typedef struct {
    sx_lower_plan plan;
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

/* Ranks plans for a static fused node. `rhs_constant`: the right argument of a contraction depends on weights alone, so packing it
 * costs nothing at run time. SX_UNIMPLEMENTED for devices without a code generator. */
sx_code sx_search_fused(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                        uint32_t input_count, const sx_device *device, bool rhs_constant,
                        sx_search_result *result);
/* One line for reports: "block 14x32, tile 112x256, unroll 4, packed". */
void sx_search_plan_print(const sx_lower_plan *plan, sx_kernel_kind kind, sx_buf *text);
#endif
