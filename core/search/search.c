#include "core/search/search.h"

#include "core/search/space.h"

static void keep(sx_search_result *result, const sx_schedule *schedule, double cost_ns)
{
    uint32_t at = result->best_count;
    while (at > 0 && result->best[at - 1].cost_ns > cost_ns) {
        at--;
    }
    if (at == result->keep) {
        return;
    }
    uint32_t last = result->best_count < result->keep ? result->best_count++ : result->keep - 1;
    for (uint32_t i = last; i > at; i--) {
        result->best[i] = result->best[i - 1];
    }
    result->best[at] = (sx_search_candidate){*schedule, cost_ns};
}

sx_code sx_search_drop(sx_search_space *space, uint32_t *phase, uint32_t count)
{
    space->result->considered += count;
    *phase += count;
    return sx_spend(space->cx, 1);
}

sx_code sx_search_price(sx_search_space *space, const sx_schedule *schedule)
{
    SX_TRY(sx_spend(space->cx, 1));
    space->result->considered++;
    keep(space->result, schedule,
         sx_cost_schedule(space->device, space->a, schedule, space->rhs_constant));
    return SX_OK;
}

sx_code sx_search_kernel(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                         bool rhs_constant, uint32_t keep_count, sx_search_result *result)
{
    SX_ASSERT(keep_count >= 1 && keep_count <= SX_SEARCH_KEEP);
    sx_device of_lanes = *device; /* f64 and i64: half as many in a vector register */
    of_lanes.lanes = sx_device_lanes(device, a->lane_bytes);
    device = &of_lanes;
    *result = (sx_search_result){.keep = keep_count, .floor_ns = sx_cost_floor(device, a)};
    if (device->target == NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "target %s: no code generator", device->name);
    }
    sx_search_space space = {cx, device, a, rhs_constant, result};
    switch (a->kind) {
    case SX_KERNEL_DOT: SX_TRY(sx_search_dot(&space)); break;
    case SX_KERNEL_ONLINE: SX_TRY(sx_search_online(&space)); break;
    case SX_KERNEL_MAP:
    case SX_KERNEL_ROW: SX_TRY(sx_search_rows(&space)); break;
    }
    SX_ASSERT(result->best_count > 0);
    SX_ASSERT(result->best[0].cost_ns >= result->floor_ns);
    return SX_OK;
}
