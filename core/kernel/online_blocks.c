#include "core/kernel/online_blocks.h"

static bool are_different(const sx_online_blocks *b)
{
    const uint32_t argument[] = {b->query, b->key, b->value, b->second_query, b->second_key};
    uint32_t count = b->two ? 5 : 3;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (argument[i] == argument[j]) {
                return false;
            }
        }
    }
    return true;
}

/* Is there one dimension of this role, so that its extent is that of the role? */
static bool is_one(const sx_analysis *a, sx_role role)
{
    uint32_t count = 0;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        count += a->role[d] == role;
    }
    return count == 1;
}

bool sx_online_blocks_take(const sx_analysis *a, sx_online_blocks *b)
{
    bool nested = a->kind == SX_KERNEL_NESTED;
    if ((a->kind != SX_KERNEL_ONLINE && !nested) || a->refusal != NULL || a->product_count == 0 ||
        a->value == SX_NO_INSTR || !is_one(a, SX_ROLE_INNER)) {
        return false;
    }
    if (nested && !is_one(a, SX_ROLE_SUM)) {
        return false;
    }
    b->query = a->product[0].lhs;
    b->key = a->product[0].rhs;
    b->value = a->value;
    b->two = a->product_count == 2;
    b->second_query = b->two ? a->product[1].lhs : 0;
    b->second_key = b->two ? a->product[1].rhs : 0;
    return are_different(b);
}

void sx_schedule_online_blocks(const sx_online_blocks *b, sx_schedule *s)
{
    SX_ASSERT(b->depth >= 1 && are_different(b));
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
    if (b->two) {
        s->stage[s->stage_count++] = (sx_stage_place){b->second_query, SX_SPACE_SHARED, 1};
        s->stage[s->stage_count++] = (sx_stage_place){b->second_key, SX_SPACE_SHARED, b->depth};
    }
}

bool sx_online_blocks_of(const sx_schedule *s, sx_online_blocks *b)
{
    if ((s->stage_count != 3 && s->stage_count != 5) || s->level_count != 8) {
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
                            .value = s->stage[2].argument,
                            .two = s->stage_count == 5};
    if (b->two) {
        b->second_query = s->stage[3].argument;
        b->second_key = s->stage[4].argument;
    }
    if (b->depth < 1 || !are_different(b) || b->rows < b->warp_rows ||
        b->warp_rows < b->matrix_rows) {
        return false;
    }
    sx_schedule again;
    sx_schedule_online_blocks(b, &again);
    return sx_schedule_equal(s, &again);
}
