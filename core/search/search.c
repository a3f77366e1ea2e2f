#include "core/search/search.h"

#include "core/search/space.h"
#include "core/target/target.h"

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

sx_code sx_search_keep(sx_search_space *space, const sx_schedule *schedule, double ns)
{
    SX_TRY(sx_spend(space->cx, 1));
    space->result->considered++;
    keep(space->result, schedule, ns);
    return SX_OK;
}

sx_code sx_search_price(sx_search_space *space, const sx_schedule *schedule)
{
    double ns = sx_cost_schedule(space->device, space->a, schedule, space->rhs_constant);
    return sx_search_keep(space, schedule, ns);
}

/* ---- blocks of threads ---- */

const sx_matrix_instruction *sx_search_matrix(const sx_analysis *a,
                                              const sx_matrix_instruction *matrix, uint32_t count)
{
    SX_ASSERT(a->kind == SX_KERNEL_DOT);
    sx_dtype left = a->input[a->lhs].dtype, right = a->input[a->rhs].dtype;
    for (uint32_t i = 0; i < count; i++) {
        /* f32 is multiplied in f32: an instruction for it would round its factors. What follows a sum is computed
         * in its type. */
        bool sums = sx_dtype_bytes(matrix[i].sum) == a->lane_bytes;
        if (matrix[i].factor == left && left == right && left != SX_F32 && sums) {
            return &matrix[i];
        }
    }
    return NULL;
}

sx_code sx_search_block(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                        const sx_matrix_instruction *matrix, uint32_t keep_count,
                        sx_search_result *result)
{
    SX_ASSERT(keep_count >= 1 && keep_count <= SX_SEARCH_KEEP && device->block_threads > 0);
    *result = (sx_search_result){.keep = keep_count, .floor_ns = sx_cost_floor(device, a)};
    if (sx_search_takes_blocks(a)) {
        sx_analysis blocks;
        sx_analysis_of_blocks(a, &blocks);
        sx_search_space space = {cx, device, &blocks, false, result};
        SX_TRY(sx_search_blocks(&space, matrix));
    }
    return SX_OK;
}

static void add_counts(sx_search_result *to, const sx_search_result *from)
{
    to->considered += from->considered;
    to->dropped_bound += from->dropped_bound;
    to->dropped_roofline += from->dropped_roofline;
    to->dropped_alignment += from->dropped_alignment;
    to->dropped_resources += from->dropped_resources;
}

/* Those of `blocks` come first, or among those of `result` by their cost. Half of the places are for each. */
static void join(sx_search_result *result, const sx_search_result *blocks, bool first)
{
    sx_search_result others = *result;
    uint32_t b = 0, o = 0;
    add_counts(result, blocks);
    result->best_count = 0;
    while (result->best_count < result->keep && (b < blocks->best_count || o < others.best_count)) {
        bool block = b < blocks->best_count && (first || o == others.best_count ||
                                                blocks->best[b].cost_ns <= others.best[o].cost_ns);
        result->best[result->best_count++] = block ? blocks->best[b++] : others.best[o++];
    }
    result->matrix_count = first ? b : 0;
}

static bool runs_blocks(const sx_target *target)
{
    uint32_t bindings = 1u << SX_BIND_WARP | 1u << SX_BIND_LANE;
    return target != NULL && (target->bindings & bindings) == bindings &&
           (target->spaces >> SX_SPACE_SHARED & 1) != 0;
}

/* Adds block schedules to those of the loop IR. */
static sx_code search_blocks(sx_search_space *space)
{
    const sx_analysis *a = space->a;
    const sx_target *target = sx_target_find(NULL, space->device->target);
    sx_search_result *result = space->result;
    sx_search_result found;
    if (!runs_blocks(target) || space->device->block_threads == 0 || !sx_search_takes_blocks(a)) {
        return SX_OK;
    }
    const sx_matrix_instruction *matrix = sx_search_matrix(a, target->matrix, target->matrix_count);
    sx_dtype lane = a->lane_bytes == 8 ? SX_F64 : SX_F32;
    bool lanes = a->input[a->lhs].dtype == lane && a->input[a->rhs].dtype == lane;
    if (matrix == NULL && !lanes) {
        return SX_OK;
    }
    uint32_t half = (result->keep + 1) / 2;
    SX_TRY(sx_search_block(space->cx, a, space->device, matrix, half, &found));
    join(result, &found, matrix != NULL);
    return SX_OK;
}

/* The same for online sums: matrix instructions come first where they can be taken. */
static sx_code search_online_blocks(sx_search_space *space)
{
    const sx_target *target = sx_target_find(NULL, space->device->target);
    sx_search_result *result = space->result;
    sx_search_result found = {.keep = (result->keep + 1) / 2, .floor_ns = result->floor_ns};
    if (!runs_blocks(target) || space->device->block_threads == 0) {
        return SX_OK;
    }
    const sx_matrix_instruction *matrix =
        sx_search_online_matrix(space->a, target->matrix, target->matrix_count);
    if (matrix == NULL) {
        return SX_OK;
    }
    sx_search_space blocks = *space;
    blocks.result = &found;
    SX_TRY(sx_search_online_blocks(&blocks, matrix));
    join(result, &found, true);
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
    case SX_KERNEL_DOT:
        SX_TRY(sx_search_dot(&space));
        SX_TRY(search_blocks(&space));
        break;
    case SX_KERNEL_ONLINE:
        SX_TRY(sx_search_online(&space));
        SX_TRY(search_online_blocks(&space));
        break;
    case SX_KERNEL_MAP:
    case SX_KERNEL_ROW: SX_TRY(sx_search_rows(&space)); break;
    }
    SX_ASSERT(result->best_count > 0);
    SX_ASSERT(result->best[0].cost_ns >= result->floor_ns);
    return SX_OK;
}
