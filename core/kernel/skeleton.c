/* skeleton.c - schedules of the forms that the lowerings of core/loop follow, from their free numbers. */
#include "core/kernel/kernel.h"

static void add(sx_schedule *s, sx_bind bind, sx_role axis, int64_t step)
{
    SX_ASSERT(s->level_count < SX_SCHEDULE_LEVELS_MAX);
    s->level[s->level_count++] = (sx_level){axis, bind, step};
}

void sx_schedule_contraction(const sx_contraction_tiles *t, sx_schedule *s)
{
    int64_t width = (int64_t)t->block_vectors * t->lanes;
    *s = (sx_schedule){.level_count = 0};
    add(s, SX_BIND_GRID, SX_ROLE_BATCH, 1);
    add(s, SX_BIND_GRID, SX_ROLE_ROW, sx_max_i64(t->tile_rows, t->block_rows));
    add(s, SX_BIND_GRID, SX_ROLE_COLUMN, sx_max_i64(t->tile_columns, width));
    add(s, SX_BIND_LOOP, SX_ROLE_COLUMN, width);
    add(s, SX_BIND_LOOP, SX_ROLE_ROW, t->block_rows);
    add(s, SX_BIND_LOOP, SX_ROLE_SUM, t->unroll);
    add(s, SX_BIND_REGISTER, SX_ROLE_SUM, 1);
    add(s, SX_BIND_REGISTER, SX_ROLE_ROW, 1);
    add(s, SX_BIND_REGISTER, SX_ROLE_COLUMN, t->lanes);
    add(s, SX_BIND_LANE, SX_ROLE_COLUMN, 1);
    if (t->panels != UINT32_MAX) {
        s->stage[s->stage_count++] =
            (sx_stage_place){.argument = t->panels, .space = SX_SPACE_MEMORY, .depth = 1};
    }
}

void sx_schedule_online(const sx_online_tiles *t, sx_schedule *s)
{
    *s = (sx_schedule){.level_count = 0};
    add(s, SX_BIND_GRID, SX_ROLE_BATCH, 1);
    add(s, SX_BIND_GRID, SX_ROLE_ROW, (int64_t)t->vectors * t->lanes);
    add(s, SX_BIND_LOOP, SX_ROLE_SUM, t->keys);
    add(s, SX_BIND_LOOP, SX_ROLE_SUM, t->strip);
    add(s, SX_BIND_LOOP, SX_ROLE_COLUMN, t->strip);
    add(s, SX_BIND_LOOP, SX_ROLE_INNER, 1);
    add(s, SX_BIND_REGISTER, SX_ROLE_SUM, 1);
    add(s, SX_BIND_REGISTER, SX_ROLE_COLUMN, 1);
    add(s, SX_BIND_REGISTER, SX_ROLE_ROW, t->lanes);
    add(s, SX_BIND_LANE, SX_ROLE_ROW, 1);
}

void sx_schedule_map(uint32_t lanes, int64_t rows, int64_t columns, uint32_t copies, sx_schedule *s)
{
    int64_t step = (int64_t)lanes * copies;
    *s = (sx_schedule){.level_count = 0};
    add(s, SX_BIND_GRID, SX_ROLE_ROW, rows);
    add(s, SX_BIND_GRID, SX_ROLE_COLUMN, sx_max_i64(columns, step));
    add(s, SX_BIND_LOOP, SX_ROLE_ROW, 1);
    add(s, SX_BIND_LOOP, SX_ROLE_COLUMN, step);
    add(s, SX_BIND_REGISTER, SX_ROLE_COLUMN, lanes);
    add(s, SX_BIND_LANE, SX_ROLE_COLUMN, 1);
}

void sx_schedule_row(uint32_t lanes, uint32_t lane_bytes, bool along, int64_t rows, int64_t columns,
                     sx_schedule *s)
{
    *s = (sx_schedule){.level_count = 0};
    add(s, SX_BIND_GRID, SX_ROLE_ROW, rows);
    if (along) {
        add(s, SX_BIND_LOOP, SX_ROLE_ROW, 1);
        add(s, SX_BIND_LOOP, SX_ROLE_SUM, SX_ROW_CHUNK(lane_bytes));
        add(s, SX_BIND_REGISTER, SX_ROLE_SUM, lanes);
        add(s, SX_BIND_LANE, SX_ROLE_SUM, 1);
    } else {
        add(s, SX_BIND_GRID, SX_ROLE_COLUMN, sx_max_i64(columns, lanes));
        add(s, SX_BIND_LOOP, SX_ROLE_ROW, 1);
        add(s, SX_BIND_LOOP, SX_ROLE_COLUMN, lanes);
        add(s, SX_BIND_LOOP, SX_ROLE_SUM, 1);
        add(s, SX_BIND_REGISTER, SX_ROLE_COLUMN, lanes);
        add(s, SX_BIND_LANE, SX_ROLE_COLUMN, 1);
    }
}
