/* table.c - the rows of targets.def, and what is asked of any row. */
#include <string.h>

#include "core/target/target.h"

static const sx_target *const rows[] = {
#define SX_TARGET(symbol) &(symbol),
#include "core/target/targets.def"
#undef SX_TARGET
};

const sx_targets *sx_targets_all(void)
{
    static const sx_targets all = {rows, (uint32_t)SX_COUNT(rows)};
    return &all;
}

const sx_target *sx_target_find(const sx_targets *targets, const char *name)
{
    SX_ASSERT(name != NULL);
    targets = targets != NULL ? targets : sx_targets_all();
    for (uint32_t i = 0; i < targets->count; i++) {
        if (strcmp(targets->row[i]->name, name) == 0) {
            return targets->row[i];
        }
    }
    return NULL;
}

const sx_target *sx_target_numbered(const sx_targets *targets, uint32_t number)
{
    targets = targets != NULL ? targets : sx_targets_all();
    for (uint32_t i = 0; i < targets->count; i++) {
        SX_ASSERT(targets->row[i]->number != 0);
        if (targets->row[i]->number == number) {
            return targets->row[i];
        }
    }
    return NULL;
}

sx_code sx_target_of_module(sx_ctx *cx, const sx_targets *targets, uint32_t number,
                            const sx_target **target)
{
    *target = sx_target_numbered(targets, number);
    if (*target == NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "module is for machine %u, which is not known here",
                       number);
    }
    return SX_OK;
}

bool sx_target_executes(const sx_target *machine, const sx_target *code)
{
    return strcmp(machine->family, code->family) == 0 && code->level <= machine->level;
}

/* ---- lowering ---- */

static sx_code check_types(sx_ctx *cx, const sx_target *target, const sx_lowering *what)
{
    bool move = what->kind == SX_LOWER_MOVE;
    const sx_type *input = move ? what->input : what->analysis->input;
    const sx_type *result = move ? what->result : &what->analysis->result;
    uint32_t count = move ? what->input_count : what->analysis->input_count;
    for (uint32_t k = 0; k <= count; k++) {
        sx_dtype dtype = k < count ? input[k].dtype : result->dtype;
        if ((target->memory_types >> dtype & 1) == 0) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: target %s has no %s in memory",
                           what->name, target->name, sx_dtype_name(dtype));
        }
    }
    return SX_OK;
}

static sx_code check_schedule(sx_ctx *cx, const sx_target *target, const sx_lowering *what)
{
    const sx_schedule *s = what->schedule;
    for (uint32_t i = 0; i < s->level_count; i++) {
        if ((target->bindings >> s->level[i].bind & 1) == 0) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: target %s has nothing to bind %s to",
                           what->name, target->name, sx_bind_name(s->level[i].bind));
        }
    }
    for (uint32_t i = 0; i < s->stage_count; i++) {
        if ((target->spaces >> s->stage[i].space & 1) == 0) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: target %s stages nothing in %s",
                           what->name, target->name, sx_space_name(s->stage[i].space));
        }
    }
    if (sx_schedule_lanes(s) != target->vectors.lanes) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: schedule of %u lanes, target %s has %u",
                       what->name, sx_schedule_lanes(s), target->name, target->vectors.lanes);
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
    SX_ASSERT((*kernel)->lanes == target->vectors.lanes);
    return SX_OK;
}
