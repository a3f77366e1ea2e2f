/* tile.c - programs of blocks as PTX: entry, the loop over stages, and the program of each element. */
#include "core/nvidia/tile.h"

#include <stdio.h>
#include <string.h>

#include "core/nvidia/tile_inside.h"
#include "core/tile/online.h"

#define TENSOR_MAP_BYTES 128 /* CUtensorMap, a parameter by value */
#define TENSOR_MAP_ALIGN 64

/* ---- where the block is ---- */
static sx_ptx_arg zero(sx_nvidia_block *k)
{
    sx_ptx_arg d = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), d, sx_ptx_imm(0));
    return d;
}

sx_ptx_arg sx_nvidia_scaled(sx_nvidia_block *k, sx_ptx_arg x, uint32_t factor)
{
    sx_ptx_arg d = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, MUL, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_U32), d, x, sx_ptx_imm(factor));
    return d;
}

void sx_nvidia_split(sx_nvidia_block *k, sx_ptx_arg all, const int64_t *extent, uint32_t count,
                     sx_ptx_arg *index)
{
    sx_ptx_builder *b = &k->l.b;
    uint32_t first = 0; /* the first index that there is more than one of */
    while (first + 1 < count && extent[first] == 1) {
        first++;
    }
    for (uint32_t d = count; d-- > 0;) {
        SX_ASSERT(extent[d] >= 1 && extent[d] <= INT32_MAX);
        if (d == first) {
            index[d] = all;
        } else if (extent[d] == 1) {
            index[d] = zero(k);
        } else {
            sx_ptx_arg rest = sx_ptx_register(b, SX_PTX_B32);
            index[d] = sx_ptx_register(b, SX_PTX_B32);
            SX_PTX_PUT(b, REM, SX_PTX_M(SX_PTX_TYPE_U32), index[d], all, sx_ptx_imm(extent[d]));
            SX_PTX_PUT(b, DIV, SX_PTX_M(SX_PTX_TYPE_U32), rest, all, sx_ptx_imm(extent[d]));
            all = rest;
        }
    }
}

/* Blocks of an online sum with a horizon: the last rows of all batches, which see the most keys, come first. So the
 * blocks that are left when others have ended are the short ones. */
static void turn_rows(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    const int64_t extent[2] = {k->grid[1], k->grid[0]};
    sx_ptx_arg index[2], all = k->point[1];
    SX_ASSERT(k->grid[2] == 1 && k->grid[0] * k->grid[1] <= INT32_MAX);
    if (k->grid[0] > 1) {
        all = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_U32), all, k->point[0],
                   sx_ptx_imm(k->grid[1]), k->point[1]);
    }
    sx_nvidia_split(k, all, extent, 2, index);
    k->point[0] = index[1];
    k->point[1] = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, SUB, SX_PTX_M(SX_PTX_TYPE_U32), k->point[1], sx_ptx_imm(k->grid[1] - 1),
               index[0]);
}

/* The block in row raster * (group of rows) + (row of the group), of the only matrix. */
static void find_point_together(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg group = sx_nvidia_special(&k->l, SX_PTX_SPECIAL_CTAID_Z);
    k->point[0] = zero(k);
    k->point[1] = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_U32), k->point[1], group,
               sx_ptx_imm(k->tile->raster), sx_nvidia_special(&k->l, SX_PTX_SPECIAL_CTAID_X));
    k->point[2] = sx_nvidia_special(&k->l, SX_PTX_SPECIAL_CTAID_Y);
    sx_nvidia_split(k, k->point[0], k->tile->batch, k->tile->batch_count, k->batch);
}

/* The point of the grid, by the rule of core/base/grid.h or as turn_rows says, and the indices along the dimensions of
 * the batch. */
static void find_point(sx_nvidia_block *k)
{
    const sx_tile *tile = k->tile;
    if (tile->raster > 0) {
        find_point_together(k);
        return;
    }
    if (sx_grid_is_folded(k->grid)) {
        sx_nvidia_split(k, sx_nvidia_special(&k->l, SX_PTX_SPECIAL_CTAID_X), k->grid, 3, k->point);
    } else {
        k->point[1] = sx_nvidia_special(&k->l, SX_PTX_SPECIAL_CTAID_Y);
        k->point[2] = sx_nvidia_special(&k->l, SX_PTX_SPECIAL_CTAID_X);
    }
    if (tile->batch_count > 0 && !sx_grid_is_folded(k->grid)) {
        k->point[0] = sx_nvidia_special(&k->l, SX_PTX_SPECIAL_CTAID_Z);
    }
    bool turned = tile->online != NULL && tile->online->has_horizon;
    if (turned && k->grid[1] > 1 && k->grid[0] * k->grid[1] <= INT32_MAX) {
        turn_rows(k);
    }
    sx_nvidia_split(k, k->point[0], tile->batch, tile->batch_count, k->batch);
}

static void begin_block(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    b->kernel->required = (sx_ptx_block){k->tile->threads, 1, 1};
    uint32_t cluster[3];
    bool divides = sx_tile_cluster(k->tile, k->grid, cluster);
    SX_ASSERT(divides); /* the check has seen it */
    if (cluster[1] * cluster[2] > 1) {
        b->kernel->cluster = (sx_ptx_block){cluster[2], cluster[1], cluster[0]};
    }
    sx_nvidia_read_buffers(&k->l);
    static const char *const names[] = {"left_map", "right_map", "result_map"};
    uint32_t maps = !k->tile->by_engine ? 0 : k->tile->store.depth > 0 ? 3 : 2;
    for (uint32_t i = 0; i < maps; i++) {
        k->map[i] = sx_ptx_parameter_bytes(b, names[i], TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES);
    }
    sx_ptx_arg memory = sx_ptx_shared_dynamic(b, "tile_shared", SX_SLOT_UNIT);
    k->memory = sx_ptx_register(b, SX_PTX_B32);
    k->shared = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_U32), k->memory, memory);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), k->shared, k->memory,
               sx_ptx_imm(k->tile->ring.offset));
    k->thread = sx_nvidia_special(&k->l, SX_PTX_SPECIAL_TID_X);
    if (k->tile->walkers > 0) {
        return; /* each role finds its points by itself */
    }
    find_point(k);
    k->first[0] = sx_nvidia_scaled(k, k->point[1], k->tile->block_rows);
    k->first[1] = sx_nvidia_scaled(k, k->point[2], k->tile->block_columns);
}

/* ---- stages ---- */
/* To the next stage of the ring. */
static void next_stage(sx_nvidia_block *k, sx_ptx_arg stage)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_ring *ring = &k->tile->ring;
    sx_ptx_arg over = sx_ptx_register(b, SX_PTX_PRED);
    uint32_t bytes = sx_ring_stage_bytes(ring);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), stage, stage, sx_ptx_imm(bytes));
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_GE, SX_PTX_TYPE_U32), over, stage,
               sx_ptx_imm((int64_t)bytes * ring->depth));
    SX_PTX_PUT(b, SELP, SX_PTX_M(SX_PTX_TYPE_B32), stage, sx_ptx_imm(0), stage, over);
}

static void commit(sx_nvidia_block *k)
{
    sx_ptx_put(&k->l.b, SX_PTX_OP_CP_COMMIT, SX_PTX_M(0), NULL, 0);
}

/* Until the copies of this step's stage have arrived, and all threads are done with the step before. */
static void wait_for_stage(sx_nvidia_block *k)
{
    SX_PTX_PUT(&k->l.b, CP_WAIT, SX_PTX_M(0), sx_ptx_imm(k->tile->ring.depth - 2));
    SX_PTX_PUT(&k->l.b, BAR_SYNC, SX_PTX_M(0), sx_ptx_imm(0));
}

/* Steps of k in the last stage, which may not be whole. Matrix instructions make whole groups, of zeros at the end. */
static uint32_t rest_steps(const sx_tile *tile)
{
    uint32_t rest = (uint32_t)(tile->sum % tile->block_steps);
    uint32_t group = tile->matrix != NULL ? tile->matrix->steps : 1;
    return (rest + group - 1) / group * group;
}

/* Behind a stage: where a slice ends with it, its sums go to the totals. `stage` counts those of the slice. */
static void count_slice(sx_nvidia_block *k, sx_ptx_arg stage)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg inside = sx_ptx_register(b, SX_PTX_PRED);
    sx_ptx_arg same = sx_ptx_label(b);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S32), stage, stage, sx_ptx_imm(1));
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_TYPE_S32), inside, stage,
               sx_ptx_imm(k->tile->slice / k->tile->block_steps));
    sx_ptx_guard(b, inside);
    SX_PTX_PUT(b, BRA, SX_PTX_M(0), same);
    sx_nvidia_end_slice(k);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), stage, sx_ptx_imm(0));
    sx_ptx_place(b, same);
}

/* What is made of the stage that is read. */
static sx_code compute(sx_nvidia_block *k, bool whole, sx_ptx_arg stage)
{
    if (k->online != NULL) {
        return sx_nvidia_put_online(k, whole, stage);
    }
    sx_nvidia_multiply(k, whole ? k->tile->block_steps : rest_steps(k->tile));
    return SX_OK;
}

/* Jumps to `label` where the block does not pass the stage; NONE: it passes all. */
static void leave_behind(sx_nvidia_block *k, sx_ptx_arg passed, sx_ptx_arg stage, sx_ptx_arg label)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg behind = sx_ptx_register(b, SX_PTX_PRED);
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_LE, SX_PTX_TYPE_S32), behind, passed, stage);
    sx_ptx_guard(b, behind);
    SX_PTX_PUT(b, BRA, SX_PTX_M(0), label);
}

/* The stages that are on their way before the first is read. */
static void put_first_stages(sx_nvidia_block *k, sx_ptx_arg passed)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    int64_t stages = sx_ceil_div_i64(tile->sum, tile->block_steps);
    int64_t whole = tile->sum / tile->block_steps;
    for (uint32_t s = 0; s + 1 < tile->ring.depth; s++) {
        bool perhaps = s > 0 && s < stages && passed.kind != SX_PTX_ARG_NONE;
        sx_ptx_arg none = perhaps ? sx_ptx_label(b) : (sx_ptx_arg){0};
        if (perhaps) {
            leave_behind(k, passed, sx_ptx_imm(s), none);
        }
        if (s < stages) {
            sx_nvidia_fetch(k, s < whole);
            SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), k->written, k->written,
                       sx_ptx_imm(sx_ring_stage_bytes(&tile->ring)));
        }
        if (perhaps) {
            sx_ptx_place(b, none);
        }
        commit(k);
    }
}

/* Of the stages that the block passes, so many less. */
static sx_ptx_arg less_stages(sx_nvidia_block *k, sx_ptx_arg passed, int64_t stages, uint32_t less)
{
    if (passed.kind == SX_PTX_ARG_NONE) {
        return sx_ptx_imm(stages - less);
    }
    sx_ptx_arg d = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, SUB, SX_PTX_M(SX_PTX_TYPE_S32), d, passed, sx_ptx_imm(less));
    return d;
}

/* The loop over the stages that have all their steps. */
static sx_code put_whole_stages(sx_nvidia_block *k, sx_ptx_arg passed)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    uint32_t ahead = tile->ring.depth - 1;
    int64_t stages = sx_ceil_div_i64(tile->sum, tile->block_steps);
    int64_t whole = tile->sum / tile->block_steps;
    sx_ptx_arg done = zero(k);
    sx_ptx_arg of_slice = tile->slice != 0 ? zero(k) : (sx_ptx_arg){0};
    sx_ptx_arg more = sx_ptx_register(b, SX_PTX_PRED);
    sx_ptx_arg again = sx_ptx_label(b);
    sx_ptx_arg fetched = stages > ahead ? less_stages(k, passed, stages, ahead) : (sx_ptx_arg){0};
    sx_ptx_arg end = sx_ptx_imm(whole);
    if (passed.kind != SX_PTX_ARG_NONE) {
        end = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, MIN, SX_PTX_M(SX_PTX_TYPE_S32), end, passed, sx_ptx_imm(whole));
    }
    sx_ptx_place(b, again);
    wait_for_stage(k);
    if (stages > ahead) {
        sx_ptx_arg filled = sx_ptx_label(b);
        sx_ptx_arg last = sx_ptx_register(b, SX_PTX_PRED);
        SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_GE, SX_PTX_TYPE_S32), last, done, fetched);
        sx_ptx_guard(b, last);
        SX_PTX_PUT(b, BRA, SX_PTX_M(0), filled);
        sx_nvidia_fetch(k, stages == whole);
        next_stage(k, k->written);
        sx_ptx_place(b, filled);
    }
    commit(k);
    SX_TRY(compute(k, true, done));
    if (tile->slice != 0) {
        count_slice(k, of_slice);
    }
    next_stage(k, k->reading);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S32), done, done, sx_ptx_imm(1));
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_TYPE_S32), more, done, end);
    sx_ptx_guard(b, more);
    SX_PTX_PUT(b, BRA, SX_PTX_M(0), again);
    return b->code;
}

static sx_code put_stages(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    int64_t whole = tile->sum / tile->block_steps;
    sx_ptx_arg passed = k->online != NULL ? sx_nvidia_stages_of_block(k) : (sx_ptx_arg){0};
    k->written = zero(k);
    k->reading = zero(k);
    put_first_stages(k, passed);
    if (k->online != NULL) {
        sx_nvidia_take_query(k);
    }
    if (whole > 0) {
        SX_TRY(put_whole_stages(k, passed));
    }
    if (tile->sum % tile->block_steps != 0) {
        bool perhaps = passed.kind != SX_PTX_ARG_NONE;
        sx_ptx_arg end = perhaps ? sx_ptx_label(b) : (sx_ptx_arg){0};
        if (perhaps) {
            leave_behind(k, passed, sx_ptx_imm(whole), end);
        }
        wait_for_stage(k);
        SX_TRY(compute(k, false, sx_ptx_imm(whole)));
        if (perhaps) {
            sx_ptx_place(b, end);
        }
    }
    return b->code;
}

/* ---- the program of each element ---- */
/* Pointers of the thread's first element. */
static void start_pointers(sx_nvidia_block *k)
{
    sx_nvidia_lowering *l = &k->l;
    for (uint32_t p = 0; p < l->pointer_count; p++) {
        sx_nvidia_pointer *pointer = &l->pointer[p];
        pointer->at = sx_ptx_register(&l->b, SX_PTX_B64);
        SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B64), pointer->at, l->buffer[pointer->buffer]);
        for (uint32_t v = SX_TILE_VAR_ROW; v < SX_LOOP_VARS_MAX; v++) {
            if (pointer->coef[v] != 0) {
                SX_PTX_PUT(&l->b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S64), pointer->at,
                           l->variable[v], sx_ptx_imm(pointer->coef[v]), pointer->at);
            }
        }
    }
}

/* The first row or column of the thread, of 64 bits; and how many there are from it on, where some may lie outside. */
static sx_ptx_arg start_side(sx_nvidia_block *k, sx_side side, int64_t extent, uint32_t block,
                             sx_ptx_arg *rest)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg own = sx_nvidia_side(k, &k->tile->held, side);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), own, own, k->first[side]);
    *rest = (sx_ptx_arg){0};
    if (extent % block != 0) {
        *rest = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, SUB, SX_PTX_M(SX_PTX_TYPE_S32), *rest, sx_ptx_imm(extent), own);
    }
    return sx_nvidia_widened(&k->l, own);
}

/* Whether the element so many rows or columns from the thread's first lies inside, and `with` is true. */
static sx_ptx_arg inside(sx_nvidia_block *k, sx_ptx_arg rest, uint32_t at, sx_ptx_arg with)
{
    if (rest.kind == SX_PTX_ARG_NONE) {
        return with;
    }
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg d = sx_ptx_register(b, SX_PTX_PRED);
    if (with.kind == SX_PTX_ARG_NONE) {
        SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_GT, SX_PTX_TYPE_S32), d, rest, sx_ptx_imm(at));
    } else {
        SX_PTX_PUT(b, SETP_JOIN, SX_PTX_M(SX_PTX_COMPARE_GT, SX_PTX_JOIN_AND, SX_PTX_TYPE_S32), d,
                   rest, sx_ptx_imm(at), with);
    }
    return d;
}

static sx_code make_group(sx_nvidia_block *k)
{
    uint32_t width = sx_nvidia_group_width(&k->l, &k->tile->held, k->tile->columns);
    if (width == 1) {
        return SX_OK;
    }
    k->l.group = SX_NEW(k->l.cx, sx_nvidia_group);
    if (k->l.group == NULL) {
        return k->l.cx->error.code;
    }
    k->l.group->width = width;
    void *words = sx_alloc(k->l.cx, (k->l.part->item_count + 1) * sizeof(*k->l.group->word));
    k->l.group->word = words;
    return words == NULL ? k->l.cx->error.code : SX_OK;
}

static sx_code put_map(sx_nvidia_block *k)
{
    const sx_tile *tile = k->tile;
    sx_nvidia_lowering *l = &k->l;
    sx_ptx_arg rest[2];
    l->variable[SX_TILE_VAR_ROW] =
        start_side(k, SX_SIDE_ROW, tile->rows, tile->block_rows, &rest[0]);
    l->variable[SX_TILE_VAR_COLUMN] =
        start_side(k, SX_SIDE_COLUMN, tile->columns, tile->block_columns, &rest[1]);
    for (uint32_t d = 0; d < tile->batch_count; d++) {
        l->variable[SX_TILE_VAR_BATCH + d] = sx_nvidia_widened(l, k->batch[d]);
    }
    SX_TRY(sx_nvidia_make_registers(l));
    SX_TRY(sx_nvidia_find_pointers(l));
    start_pointers(k);
    SX_TRY(make_group(k));
    if (tile->store.depth > 0) {
        SX_TRY(sx_nvidia_begin_store(k));
    }
    uint32_t count = sx_layout_count(&tile->held, SX_HOME_REGISTER);
    for (uint32_t r = 0; r < count && l->b.code == SX_OK; r++) {
        uint32_t at = sx_layout_apply(&tile->held, &(sx_place){{r}});
        l->shift[SX_TILE_VAR_ROW] = sx_at_row(at);
        l->shift[SX_TILE_VAR_COLUMN] = sx_at_column(at);
        bool first = l->group == NULL || r % l->group->width == 0;
        if (first) { /* the others are inside where it is */
            l->partial[1] = inside(k, rest[1], sx_at_column(at),
                                   inside(k, rest[0], sx_at_row(at), (sx_ptx_arg){0}));
        }
        if (l->group != NULL) {
            l->group->element = r % l->group->width;
        }
        l->vector[0] = k->total != NULL ? k->total[r] : k->sum[r];
        for (uint32_t i = 0; i < tile->map.item_count; i++) {
            sx_nvidia_op(l, i);
        }
        if (k->store != NULL && (r + 1) % l->group->width == 0) {
            sx_nvidia_put_store(k, r + 1 - l->group->width);
        }
    }
    return l->b.code;
}

/* Behind the map: the next point, where blocks walk. At the end of all the slots of the result may go, and the rest of
 * the block's memory when the other block of its cluster is there, too. */
static void end_points(sx_nvidia_block *k)
{
    if (k->tile->walkers > 0) {
        sx_nvidia_end_walk(k);
        sx_nvidia_part_from_cluster(k);
    }
    if (k->store != NULL) {
        sx_nvidia_end_store(k);
    }
    sx_nvidia_leave_cluster(k);
}

/* ---- entries ---- */
/* Is this the order of a role's items that one loop of all warps can follow? */
static bool follows(const sx_tile_role *role, const sx_tile_op *op, uint32_t count)
{
    bool same = role->item_count == count;
    for (uint32_t i = 0; i < count && same; i++) {
        same = role->item[i].op == op[i];
    }
    return same;
}

/* The loading role is one warp of its own, the other one multiplies while the stage behind is settled. */
static sx_code check_engine_form(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    static const sx_tile_op load[] = {SX_TILE_LOOP,  SX_TILE_ACQUIRE, SX_TILE_FETCH,
                                      SX_TILE_FETCH, SX_TILE_PUBLISH, SX_TILE_END};
    static const sx_tile_op math[] = {
        SX_TILE_FILL,    SX_TILE_LOOP, SX_TILE_WAIT,   SX_TILE_MULTIPLY, SX_TILE_SETTLE,
        SX_TILE_RELEASE, SX_TILE_END,  SX_TILE_SETTLE, SX_TILE_RELEASE,  SX_TILE_MAP};
    const sx_tile_role *role = tile->role;
    bool all = tile->role_count == 2 && follows(&role[0], load, SX_COUNT(load)) &&
               follows(&role[1], math, SX_COUNT(math)) && role[1].first_warp == 0 &&
               role[0].first_warp == role[1].warps && role[0].warps == 1 &&
               tile->threads == 32 * (role[1].warps + 1);
    all = all && role[1].item[4].back == 1 && role[1].item[5].back == 1 &&
          role[1].item[7].back == 0 && role[1].item[8].back == 0;
    if (!all) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: roles other than a warp that loads",
                       kernel->name);
    }
    return SX_OK;
}

static sx_code check_form(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    static const sx_tile_op load[] = {SX_TILE_LOOP,  SX_TILE_ACQUIRE, SX_TILE_FETCH,
                                      SX_TILE_FETCH, SX_TILE_PUBLISH, SX_TILE_END};
    static const sx_tile_op math[] = {SX_TILE_FILL,    SX_TILE_LOOP,     SX_TILE_WAIT,
                                      SX_TILE_RELEASE, SX_TILE_MULTIPLY, SX_TILE_END,
                                      SX_TILE_RELEASE, SX_TILE_MAP};
    static const sx_tile_op load_three[] = {SX_TILE_LOOP,  SX_TILE_ACQUIRE, SX_TILE_FETCH,
                                            SX_TILE_FETCH, SX_TILE_FETCH,   SX_TILE_PUBLISH,
                                            SX_TILE_END};
    if (tile->by_engine) {
        return check_engine_form(cx, kernel, tile);
    }
    bool three = sx_tile_operands(tile) == 3;
    bool all = tile->role_count == 2;
    for (uint32_t i = 0; i < tile->role_count; i++) {
        all = all && tile->role[i].first_warp == 0 && tile->role[i].warps * 32 == tile->threads;
    }
    if (!all ||
        !follows(&tile->role[0], three ? load_three : load,
                 three ? SX_COUNT(load_three) : SX_COUNT(load)) ||
        !follows(&tile->role[1], math, SX_COUNT(math))) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: roles other than one loop of all warps",
                       kernel->name);
    }
    for (uint32_t i = 0; i < tile->ring.slot_count; i++) {
        sx_linear map;
        const sx_slot *slot = &tile->ring.slot[i];
        if (slot->swizzle != SX_SWIZZLE_NONE && !sx_slot_linear(slot, &map)) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: a swizzled slot with a pitch of %u",
                           kernel->name, slot->pitch);
        }
    }
    return SX_OK;
}

static sx_code check_instruction(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    const sx_matrix_instruction *m = tile->matrix;
    sx_ptx_op op = m == NULL ? SX_PTX_OP_FMA_F32
                             : (m->warps > 1 ? sx_nvidia_warpgroup_op : sx_nvidia_matrix_op)(m);
    if (op == SX_PTX_OP_COUNT) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: the instruction %s is not emitted",
                       kernel->name, tile->matrix->name);
    }
    return SX_OK;
}

sx_code sx_nvidia_of_tile(sx_ctx *cx, const sx_kernel *kernel, uint32_t part, sx_ptx_module *module)
{
    const sx_tile *tile = kernel->part[part].tile;
    char name[80];
    SX_ASSERT(tile != NULL && tile->threads % SX_NVIDIA_LANES == 0);
    SX_TRY(check_form(cx, kernel, tile));
    SX_TRY(check_instruction(cx, kernel, tile));
    sx_nvidia_block *k = SX_NEW(cx, sx_nvidia_block);
    if (k == NULL) {
        return cx->error.code;
    }
    (void)snprintf(name, sizeof(name), "%s_p%u", kernel->name, part);
    k->tile = tile;
    memcpy(k->grid, kernel->part[part].grid, sizeof(k->grid));
    k->l.cx = cx;
    k->l.kernel = kernel;
    k->l.part = &tile->map;
    k->l.by_element = true;
    sx_ptx_begin(&k->l.b, cx, module, name);
    SX_TRY(k->l.b.code);
    begin_block(k);
    sx_ptx_arg loading = {0};
    if (tile->by_engine) {
        SX_TRY(sx_nvidia_ring(k, &loading));
    } else if (tile->online != NULL) {
        SX_TRY(sx_nvidia_begin_online(k));
        SX_TRY(put_stages(k));
    } else {
        sx_nvidia_begin_copies(k);
        SX_TRY(sx_nvidia_begin_math(k));
        SX_TRY(put_stages(k));
    }
    SX_TRY(tile->online != NULL ? sx_nvidia_end_online(k) : put_map(k));
    end_points(k);
    sx_ptx_put(&k->l.b, SX_PTX_OP_RET, SX_PTX_M(0), NULL, 0);
    if (tile->by_engine) {
        sx_nvidia_load(k, loading);
    }
    return sx_ptx_end(&k->l.b);
}

char sx_nvidia_tile_feature(const sx_tile *tile, char feature)
{
    return tile != NULL && tile->by_engine ? 'a' : feature;
}
