#include "core/target/target.h"

#include "core/kernel/online_blocks.h"

static sx_code check_types(sx_ctx *cx, const sx_target *target, const sx_lowering *what)
{
    bool move = what->kind == SX_LOWER_MOVE;
    const sx_type *input = move ? what->input : what->analysis->input;
    uint32_t count = move ? what->input_count : what->analysis->input_count;
    uint32_t results = move ? 1 : what->analysis->result_count;
    for (uint32_t k = 0; k < count + results; k++) {
        sx_dtype dtype = k < count ? input[k].dtype
                         : move    ? what->result->dtype
                                   : what->analysis->root_dtype[k - count];
        if ((target->memory_types >> dtype & 1) == 0) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: target %s has no %s in memory",
                           what->name, target->machine->name, sx_dtype_name(dtype));
        }
    }
    return SX_OK;
}

/* Lanes of this kernel, by the size of an element. */
static uint32_t lanes_of(const sx_target *target, const sx_lowering *what)
{
    uint32_t bytes =
        what->kind != SX_LOWER_MOVE
            ? what->analysis->lane_bytes
            : sx_move_lane_bytes_of(what->op, what->input[0].dtype, what->result->dtype);
    return sx_vector_unit_lanes(&target->vectors, bytes);
}

static sx_code check_schedule(sx_ctx *cx, const sx_target *target, const sx_lowering *what)
{
    const sx_schedule *s = what->schedule;
    for (uint32_t i = 0; i < s->level_count; i++) {
        if ((target->bindings >> s->level[i].bind & 1) == 0) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: target %s has nothing to bind %s to",
                           what->name, target->machine->name, sx_bind_name(s->level[i].bind));
        }
    }
    for (uint32_t i = 0; i < s->stage_count; i++) {
        if ((target->spaces >> s->stage[i].space & 1) == 0) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: target %s stages nothing in %s",
                           what->name, target->machine->name, sx_space_name(s->stage[i].space));
        }
    }
    sx_block_tiles tiles; /* say themselves what a thread computes */
    sx_online_blocks online;
    uint32_t lanes = lanes_of(target, what);
    bool blocks = sx_block_tiles_of(s, &tiles) || sx_online_blocks_of(s, &online);
    if (!blocks && sx_schedule_lanes(s) != lanes) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: schedule of %u lanes, target %s has %u",
                       what->name, sx_schedule_lanes(s), target->machine->name, lanes);
    }
    return SX_OK;
}

sx_code sx_target_lower(sx_ctx *cx, const sx_target *target, const sx_lowering *what,
                        sx_kernel **kernel)
{
    SX_ASSERT(what->kind == SX_LOWER_MOVE ? what->attr != NULL : what->analysis != NULL);
    SX_TRY(check_types(cx, target, what));
    SX_TRY(check_schedule(cx, target, what));
    SX_TRY(target->lower(cx, target, what, kernel));
    SX_ASSERT((*kernel)->lanes == lanes_of(target, what));
    return SX_OK;
}
