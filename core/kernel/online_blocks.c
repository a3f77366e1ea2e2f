#include "core/kernel/online_blocks.h"

void sx_schedule_online_blocks(const sx_online_blocks *b, sx_schedule *s)
{
    SX_ASSERT(b->depth >= 1 && b->query != b->key && b->key != b->value && b->query != b->value);
    SX_ASSERT(b->rows >= b->warp_rows && b->warp_rows >= b->matrix_rows);
    *s = (sx_schedule){.level = {{SX_ROLE_BATCH, SX_BIND_GRID, 1},
                                 {SX_ROLE_ROW, SX_BIND_GRID, b->rows},
                                 {SX_ROLE_SUM, SX_BIND_LOOP, b->keys},
                                 {SX_ROLE_ROW, SX_BIND_WARP, b->warp_rows},
                                 {SX_ROLE_ROW, SX_BIND_MATRIX, b->matrix_rows},
                                 {SX_ROLE_COLUMN, SX_BIND_MATRIX, b->matrix_columns},
                                 {SX_ROLE_SUM, SX_BIND_MATRIX, b->matrix_steps},
                                 {SX_ROLE_INNER, SX_BIND_MATRIX, b->matrix_steps}},
                       .level_count = 8,
                       .stage = {{b->query, SX_SPACE_SHARED, 1},
                                 {b->key, SX_SPACE_SHARED, b->depth},
                                 {b->value, SX_SPACE_SHARED, b->depth}},
                       .stage_count = 3};
}

bool sx_online_blocks_of(const sx_schedule *s, sx_online_blocks *b)
{
    if (s->stage_count != 3 || s->level_count != 8) {
        return false;
    }
    const int64_t shape[] = {sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_MATRIX, 0),
                             sx_schedule_step(s, SX_ROLE_COLUMN, SX_BIND_MATRIX, 0),
                             sx_schedule_step(s, SX_ROLE_INNER, SX_BIND_MATRIX, 0)};
    for (uint32_t i = 0; i < SX_COUNT(shape); i++) {
        if (shape[i] < 1 || shape[i] > UINT16_MAX) {
            return false;
        }
    }
    *b = (sx_online_blocks){.matrix_rows = (uint32_t)shape[0],
                            .matrix_columns = (uint32_t)shape[1],
                            .matrix_steps = (uint32_t)shape[2],
                            .rows = sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_GRID, 0),
                            .warp_rows = sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_WARP, 0),
                            .keys = sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_LOOP, 0),
                            .depth = s->stage[1].depth,
                            .query = s->stage[0].argument,
                            .key = s->stage[1].argument,
                            .value = s->stage[2].argument};
    if (b->depth < 1 || b->query == b->key || b->key == b->value || b->query == b->value ||
        b->rows < b->warp_rows || b->warp_rows < b->matrix_rows) {
        return false;
    }
    sx_schedule again;
    sx_schedule_online_blocks(b, &again);
    return sx_schedule_equal(s, &again);
}
