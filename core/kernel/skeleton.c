/* skeleton.c - schedules of the forms that the lowerings of core/loop and core/tile follow, from their free numbers. */
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

void sx_schedule_map_wide(uint32_t lanes, uint32_t width, int64_t rows, int64_t columns,
                          uint32_t copies, sx_schedule *s)
{
    int64_t piece = (int64_t)lanes * width;
    SX_ASSERT(width >= 2 && width <= SX_LANE_WIDTH_MAX && (width & (width - 1)) == 0);
    *s = (sx_schedule){.level_count = 0};
    add(s, SX_BIND_GRID, SX_ROLE_ROW, rows);
    add(s, SX_BIND_GRID, SX_ROLE_COLUMN, sx_max_i64(columns, piece * copies));
    add(s, SX_BIND_LOOP, SX_ROLE_ROW, 1);
    add(s, SX_BIND_LOOP, SX_ROLE_COLUMN, piece * copies);
    add(s, SX_BIND_REGISTER, SX_ROLE_COLUMN, piece);
    add(s, SX_BIND_LANE, SX_ROLE_COLUMN, width);
    add(s, SX_BIND_REGISTER, SX_ROLE_COLUMN, 1);
}

void sx_schedule_row_wide(int64_t rows, uint32_t chunks, sx_schedule *s)
{
    SX_ASSERT(chunks >= 1 && chunks <= SX_ROW_LINE_MAX);
    *s = (sx_schedule){.level_count = 0};
    add(s, SX_BIND_GRID, SX_ROLE_ROW, rows);
    add(s, SX_BIND_LOOP, SX_ROLE_ROW, 1);
    add(s, SX_BIND_LOOP, SX_ROLE_SUM, (int64_t)SX_ROW_CHUNK(4) * chunks);
    add(s, SX_BIND_REGISTER, SX_ROLE_SUM, SX_ROW_CHUNK(4));
    add(s, SX_BIND_LANE, SX_ROLE_SUM, 2);
    add(s, SX_BIND_REGISTER, SX_ROLE_SUM, 1);
}

sx_row_pieces sx_row_cut(int64_t length, uint32_t lane_bytes)
{
    int64_t chunk = SX_ROW_CHUNK((int64_t)lane_bytes), count = 1;
    SX_ASSERT(length >= 0 && (lane_bytes == 4 || lane_bytes == 8));
    if (length <= SX_ROW_CUT) {
        return (sx_row_pieces){1, length, 0};
    }
    while (count < SX_ROW_PIECES_MAX && length / (2 * count) >= SX_ROW_PIECE_LEAST) {
        count *= 2;
    }
    int64_t piece = length / count / chunk * chunk;
    SX_ASSERT(count > 1 && piece > 0);
    return (sx_row_pieces){count, piece, length - count * piece};
}

void sx_schedule_row_warps(const sx_row_pieces *pieces, uint32_t warps, sx_schedule *s)
{
    SX_ASSERT(warps > 0 && pieces->count % warps == 0);
    const uint32_t at = s->level[1].axis == SX_ROLE_COLUMN ? 4 : 2; /* in loops of rows, columns */
    SX_ASSERT(s->level_count > at && s->level_count < SX_SCHEDULE_LEVELS_MAX);
    for (uint32_t i = s->level_count++; i > at; i--) {
        s->level[i] = s->level[i - 1];
    }
    s->level[at] = (sx_level){SX_ROLE_SUM, SX_BIND_WARP, pieces->length * (pieces->count / warps)};
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

void sx_schedule_row_line(uint32_t line, sx_schedule *s)
{
    const uint32_t at = 4; /* the chain, behind grid and loops of rows and columns */
    SX_ASSERT(line > 1 && line <= SX_ROW_LINE_MAX && s->level_count == 7);
    SX_ASSERT(s->level[at].axis == SX_ROLE_SUM && s->level[at].bind == SX_BIND_LOOP);
    for (uint32_t i = s->level_count++; i > at + 1; i--) {
        s->level[i] = s->level[i - 1];
    }
    s->level[at].step = line;
    s->level[at + 1] = (sx_level){SX_ROLE_SUM, SX_BIND_REGISTER, 1};
}

int64_t sx_matrix_slice(const sx_matrix_instruction *matrix, int64_t sum)
{
    SX_ASSERT(sum >= 1);
    int64_t least = matrix->slice_least;
    if (least == 0 || sum % SX_SLICE_UNIT != 0 || sum < SX_SLICED_FROM * least) {
        return 0;
    }
    int64_t slices = sx_min_i64(SX_SLICES_MAX, sum / least);
    while (sum / SX_SLICE_UNIT % slices != 0) {
        slices--;
    }
    SX_ASSERT(slices >= 1 && sum / slices >= least);
    return slices > 1 ? sum / slices : 0;
}

void sx_schedule_block(const sx_block_tiles *t, sx_schedule *s)
{
    SX_ASSERT(t->depth >= 1 && (t->matrix_rows == 0) == (t->thread_rows != 0));
    const sx_role row = t->swapped ? SX_ROLE_COLUMN : SX_ROLE_ROW;
    const sx_role column = t->swapped ? SX_ROLE_ROW : SX_ROLE_COLUMN;
    *s = (sx_schedule){.level_count = 0};
    add(s, SX_BIND_GRID, SX_ROLE_BATCH, 1);
    if (t->apart) {
        SX_ASSERT(t->slice != 0);
        add(s, SX_BIND_GRID, SX_ROLE_SUM, t->slice);
    }
    int64_t rows = t->rows * sx_max_i64(t->cluster_rows, 1);
    int64_t columns = t->columns * sx_max_i64(t->cluster_columns, 1);
    if (t->raster > 0) {
        add(s, SX_BIND_GRID, row, t->rows * t->raster);
        add(s, SX_BIND_GRID, column, columns);
        add(s, SX_BIND_GRID, row, rows);
    } else {
        add(s, SX_BIND_GRID, row, rows);
        add(s, SX_BIND_GRID, column, columns);
    }
    if (t->cluster_rows != 0) {
        add(s, SX_BIND_CLUSTER, row, t->rows);
    }
    if (t->cluster_columns != 0) {
        add(s, SX_BIND_CLUSTER, column, t->columns);
    }
    if (t->slice != 0 && !t->apart) {
        add(s, SX_BIND_LOOP, SX_ROLE_SUM, t->slice);
    }
    add(s, SX_BIND_LOOP, SX_ROLE_SUM, t->steps);
    add(s, SX_BIND_WARP, row, t->warp_rows);
    add(s, SX_BIND_WARP, column, t->warp_columns);
    if (t->matrix_rows != 0) {
        add(s, SX_BIND_MATRIX, row, t->matrix_rows);
        add(s, SX_BIND_MATRIX, column, t->matrix_columns);
        add(s, SX_BIND_MATRIX, SX_ROLE_SUM, t->matrix_steps);
    } else {
        add(s, SX_BIND_LANE, row, t->thread_rows);
        add(s, SX_BIND_LANE, column, t->thread_columns);
        add(s, SX_BIND_REGISTER, row, 1);
        add(s, SX_BIND_REGISTER, column, 1);
        add(s, SX_BIND_REGISTER, SX_ROLE_SUM, 1);
    }
    s->stage[s->stage_count++] =
        (sx_stage_place){.argument = t->left, .space = SX_SPACE_SHARED, .depth = t->depth};
    if (t->right != t->left) {
        s->stage[s->stage_count++] =
            (sx_stage_place){.argument = t->right, .space = SX_SPACE_SHARED, .depth = t->depth};
    }
    if (t->stores > 0) {
        s->stage[s->stage_count++] = (sx_stage_place){
            .argument = SX_STAGE_RESULT, .space = SX_SPACE_SHARED, .depth = t->stores};
    }
    s->blocks = t->walkers;
}

uint32_t sx_block_stored_bytes(const sx_analysis *a)
{
    const sx_view *view = &a->view;
    int64_t bytes = sx_dtype_bytes(a->result.dtype), all = view->out_offset;
    uint32_t matrices = 0;
    for (uint32_t d = 0; d < view->rank; d++) {
        if (view->reduced[d] || view->extent[d] == 1 || d == a->column) {
            continue;
        }
        if (view->out_stride[d] <= 0) {
            return 0;
        }
        all |= view->out_stride[d];
        matrices += d == a->row ? 0 : 1;
    }
    bool beside = a->column != SX_NO_DIM && view->out_stride[a->column] == 1 &&
                  view->extent[a->column] * bytes % 16 == 0;
    bool fits = beside && (bytes == 2 || bytes == 4) && all * bytes % 16 == 0 && matrices <= 3;
    return fits ? (uint32_t)bytes : 0;
}

/* Do columns stand in the grid before rows? */
static bool is_swapped(const sx_schedule *s)
{
    for (uint32_t i = 0; i < s->level_count; i++) {
        const sx_level *level = &s->level[i];
        if (level->bind == SX_BIND_GRID &&
            (level->axis == SX_ROLE_ROW || level->axis == SX_ROLE_COLUMN)) {
            return level->axis == SX_ROLE_COLUMN;
        }
    }
    return false;
}

/* How many blocks are a cluster where the grid goes in steps of `all`; 0: too many. `own` becomes the step of one. */
static uint32_t read_cluster(const sx_schedule *s, sx_role axis, int64_t all, int64_t *own)
{
    *own = sx_schedule_step(s, axis, SX_BIND_CLUSTER, 0);
    return *own != 0 && all / *own <= SX_BLOCK_CLUSTER ? (uint32_t)(all / *own) : 0;
}

/* From the steps of the grid: rows that are visited together, clusters, and what one block has. */
static bool read_grid(const sx_schedule *s, sx_role row, sx_role column, sx_block_tiles *t)
{
    int64_t visited = sx_schedule_step(s, row, SX_BIND_GRID, 1), rows, columns;
    t->cluster_rows = read_cluster(s, row, visited != 0 ? visited : t->rows, &rows);
    t->cluster_columns = read_cluster(s, column, t->columns, &columns);
    if ((t->cluster_rows == 0) != (rows == 0) || (t->cluster_columns == 0) != (columns == 0)) {
        return false;
    }
    rows = rows != 0 ? rows : visited != 0 ? visited : t->rows;
    if (visited != 0) {
        if (rows == 0 || t->rows / rows > SX_BLOCK_RASTER_MAX) {
            return false;
        }
        t->raster = (uint32_t)(t->rows / rows);
    }
    t->rows = rows;
    t->columns = columns != 0 ? columns : t->columns;
    return true;
}

bool sx_block_tiles_of(const sx_schedule *s, sx_block_tiles *t)
{
    const sx_stage_place *result = sx_schedule_stage(s, SX_STAGE_RESULT);
    uint32_t factors = s->stage_count - (result != NULL ? 1 : 0);
    if (factors < 1 || factors > 2 || s->stage[0].argument == SX_STAGE_RESULT) {
        return false;
    }
    bool swapped = is_swapped(s);
    const sx_role row = swapped ? SX_ROLE_COLUMN : SX_ROLE_ROW;
    const sx_role column = swapped ? SX_ROLE_ROW : SX_ROLE_COLUMN;
#define STEP(axis, bind) sx_schedule_step(s, axis, SX_BIND_##bind, 0)
    *t = (sx_block_tiles){.rows = STEP(row, GRID),
                          .columns = STEP(column, GRID),
                          .steps = STEP(SX_ROLE_SUM, LOOP),
                          .warp_rows = STEP(row, WARP),
                          .warp_columns = STEP(column, WARP),
                          .depth = s->stage[0].depth,
                          .left = s->stage[0].argument,
                          .right = s->stage[factors - 1].argument,
                          .stores = result != NULL ? result->depth : 0,
                          .walkers = s->blocks,
                          .swapped = swapped};
    const int64_t rest[] = {STEP(row, MATRIX), STEP(column, MATRIX), STEP(SX_ROLE_SUM, MATRIX),
                            STEP(row, LANE), STEP(column, LANE)};
#undef STEP
    if (!read_grid(s, row, column, t)) {
        return false;
    }
    int64_t inner = sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_LOOP, 1);
    if (inner != 0) {
        t->slice = t->steps;
        t->steps = inner;
    }
    int64_t slice = sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_GRID, 0);
    if (slice != 0) {
        t->slice = slice;
        t->apart = true;
    }
    for (uint32_t i = 0; i < SX_COUNT(rest); i++) {
        if (rest[i] > UINT16_MAX) {
            return false;
        }
    }
    t->matrix_rows = (uint32_t)rest[0];
    t->matrix_columns = (uint32_t)rest[1];
    t->matrix_steps = (uint32_t)rest[2];
    t->thread_rows = (uint32_t)rest[3];
    t->thread_columns = (uint32_t)rest[4];
    if ((t->matrix_rows == 0) != (t->thread_rows != 0)) {
        return false;
    }
    sx_schedule again;
    sx_schedule_block(t, &again);
    return sx_schedule_equal(s, &again);
}
