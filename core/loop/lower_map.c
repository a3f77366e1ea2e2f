/* lower_map.c - elementwise kernels: the last dimension of the view across the lanes, the others in grid and loops. */
#include "core/loop/lower.h"

#include <string.h>

sx_code sx_lower_match_map(sx_ctx *cx, const sx_schedule *schedule, const char *name)
{
    static const sx_level_form form[] = {
        {SX_ROLE_ROW, SX_BIND_GRID},        {SX_ROLE_COLUMN, SX_BIND_GRID},
        {SX_ROLE_ROW, SX_BIND_LOOP},        {SX_ROLE_COLUMN, SX_BIND_LOOP},
        {SX_ROLE_COLUMN, SX_BIND_REGISTER}, {SX_ROLE_COLUMN, SX_BIND_LANE},
    };
    return sx_schedule_match(cx, schedule, form, SX_COUNT(form), name);
}

static void one_vector(sx_lower *l, uint32_t valid)
{
    uint32_t result = l->body->instr_count - 1;
    l->valid = valid;
    sx_lower_move(l);
    sx_lower_store_out(l, sx_lower_value(l, result), l->out_dtype);
}

/* Loads and values that do not change along the vector dimension are made once, before the loop, while they are few. */
static void pin_invariants(sx_lower *l)
{
    uint32_t pinned = 0;
    l->valid = l->lanes;
    for (uint32_t i = 0; i < l->body->instr_count && pinned < 4; i++) {
        const sx_instr *in = &l->body->instr[i];
        if (in->kind == SX_BODY_ARG && in->dtype != SX_BOOL &&
            (l->analysis->varies[i] >> l->vector_dim & 1) == 0) {
            (void)sx_lower_value(l, i);
            l->pinned[i] = true;
            pinned++;
        }
    }
}

static void emit_row(sx_lower *l, int64_t length)
{
    uint32_t d = l->vector_dim;
    if (d == SX_NO_DIM) {
        one_vector(l, 1);
        return;
    }
    memset(l->pinned, 0, sizeof(l->pinned));
    memset(l->have, 0, sizeof(l->have));
    pin_invariants(l);
    int64_t lanes = l->lanes;
    int64_t step = sx_schedule_step(l->schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
    int64_t trip = length / step;
    int64_t start = l->at[d].constant;
    if (trip > 0) {
        bool opened = sx_lower_open(l, d, trip, step);
        for (int64_t u = 0; u < step; u += lanes) {
            l->at[d].constant = start + u;
            one_vector(l, l->lanes);
        }
        sx_lower_close(l, d, opened);
    }
    for (int64_t done = trip * step; done < length; done += lanes) {
        l->at[d].constant = start + done;
        one_vector(l, (uint32_t)sx_min_i64(lanes, length - done));
    }
    l->at[d].constant = start;
}

sx_code sx_lower_map(sx_lower *l)
{
    uint32_t outer[SX_RANK_MAX];
    uint32_t outer_count = 0;
    const sx_schedule *schedule = l->schedule;
    SX_TRY(sx_lower_match_map(l->cx, schedule, l->kernel->name));
    l->kernel->numerics = sx_lower_numerics(l, SX_KERNEL_MAP, NULL, 0);
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (d != l->vector_dim) {
            outer[outer_count++] = d;
        }
    }
    int64_t step = sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
    int64_t tile = sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_GRID, 0);
    int64_t rows = sx_schedule_step(schedule, SX_ROLE_ROW, SX_BIND_GRID, 0);
    tile = sx_ceil_div_i64(tile, step) * step;
    return sx_lower_parts(l, outer, outer_count, rows, l->vector_dim, tile, emit_row);
}
