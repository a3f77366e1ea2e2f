/* lower_scores.c - inner products of blocks whose keys pass through a ring: views, slots, and programs of elements. */
#include "core/tile/lower_scores.h"

#include <string.h>

#include "core/tile/fragment.h"

#define OTHER_REGISTERS 64  /* of a thread: addresses, counters, factors under way */
#define QUERY_STAYS_MAX 128 /* steps of d whose fragments fit beside the sums */
#define SIDE_MAX 256        /* of head sizes */
#define KEYS_MAX 128
#define REGISTERS_MAX 255 /* of a thread */

sx_code sx_lower_scores_refuse(sx_lower_scores *w, const char *why)
{
    return SX_FAIL(w->l.cx, SX_UNIMPLEMENTED, "kernel %s: no blocks for %s", w->l.kernel->name,
                   why);
}

/* ---- operands ---- */
static int64_t extent_of(const sx_lower_scores *w, uint32_t dim)
{
    return dim == SX_NO_DIM ? 1 : w->l.view.extent[dim];
}

static int64_t stride_of(const sx_lower_scores *w, uint32_t argument, uint32_t dim)
{
    return dim == SX_NO_DIM ? 0 : w->l.view.stride[argument][dim];
}

void sx_lower_scores_view(sx_lower_scores *w, uint32_t argument, uint32_t side, uint32_t sum,
                          sx_tile_operand *o)
{
    sx_tile_view *v = &o->view;
    *v = (sx_tile_view){.buffer = w->l.arg_buffer[argument],
                        .element = w->l.arg_dtype[argument],
                        .offset = w->l.view.offset[argument],
                        .side_stride = stride_of(w, argument, side),
                        .side_extent = extent_of(w, side),
                        .sum_stride = stride_of(w, argument, sum),
                        .sum_extent = extent_of(w, sum)};
    uint32_t batch = 0;
    for (uint32_t d = 0; d < w->l.view.rank; d++) {
        if (w->l.analysis->role[d] == SX_ROLE_BATCH) {
            v->batch_stride[batch++] = w->l.view.stride[argument][d];
        }
    }
    o->sum_inner = v->sum_stride == 1 && v->side_stride != 1;
    o->copy_bytes = sx_tile_copy_bytes(w->tile, o);
}

/* The slot in which copies and reads meet the fewest banks twice. */
static sx_code slot_of(sx_lower_scores *w, sx_tile_operand *o, int64_t side, int64_t sum,
                       sx_slot *slot)
{
    uint32_t element = sx_dtype_bytes(o->view.element);
    int64_t rows = o->sum_inner ? side : sum;
    int64_t width = o->sum_inner ? sum : side;
    sx_matrix_move move;
    SX_TRY(sx_tile_copy_by_threads(w->l.cx, w->tile->threads / 32, o, rows, width));
    if (!sx_matrix_move_find(&o->held, element, &move)) {
        return sx_lower_scores_refuse(w, "factors that ldmatrix does not load");
    }
    sx_smem_access writer = {o->copied, element, o->copy_bytes, false};
    sx_smem_access reader = {move.rows, element, 16, true};
    return sx_slot_choose(w->l.cx, (uint32_t)rows, (uint32_t)width * element, &writer, &reader,
                          slot);
}

sx_code sx_lower_scores_rings(sx_lower_scores *w)
{
    sx_tile *tile = w->tile;
    sx_tile_online_layout layouts;
    sx_slot slot[SX_TILE_OPERANDS_MAX], own[SX_TILE_PRODUCTS_MAX];
    uint32_t offset[SX_TILE_PRODUCTS_MAX], products = sx_tile_products(tile);
    SX_TRY(sx_tile_online_layouts(w->l.cx, tile, &layouts));
    w->online->held = layouts.scores;
    tile->held = layouts.sums;
    tile->ring = (sx_ring){.depth = w->blocks.depth, .full_arrivals = 1, .empty_arrivals = 1};
    for (uint32_t i = 0; i < products; i++) {
        sx_tile *query = w->query[i];
        sx_tile_operand *q = &query->operand[SX_TILE_LEFT];
        q->held = layouts.query[i];
        q->group = tile->matrix->steps;
        SX_TRY(slot_of(w, q, query->block_rows, query->block_steps, &own[i]));
        query->ring = (sx_ring){.depth = 1, .full_arrivals = 1, .empty_arrivals = 1};
        SX_TRY(sx_ring_add(w->l.cx, &query->ring, &own[i], NULL));
    }
    for (uint32_t which = 0; which < sx_tile_operands(tile); which++) {
        sx_tile_operand *o = &tile->operand[which];
        uint32_t side = which == SX_TILE_RIGHT ? tile->block_columns : tile->block_rows;
        o->held = layouts.operand[which];
        o->group = tile->matrix->steps;
        SX_TRY(slot_of(w, o, side, tile->block_steps, &slot[which]));
        SX_TRY(sx_ring_add(w->l.cx, &tile->ring, &slot[which], NULL));
    }
    SX_TRY(sx_smem_place(w->l.cx, &tile->ring, 1, own, products, offset, &tile->shared_bytes));
    for (uint32_t i = 0; i < products; i++) {
        w->query[i]->ring.offset = offset[i];
        w->query[i]->shared_bytes = tile->shared_bytes;
    }
    if (tile->shared_bytes > w->unit->shared_bytes) {
        return SX_FAIL(w->l.cx, SX_LIMIT, "kernel %s: %u bytes of shared memory, at most %u",
                       w->l.kernel->name, tile->shared_bytes, w->unit->shared_bytes);
    }
    return SX_OK;
}

/* ---- programs of elements ---- */
/* The position of an element: its row and the batch; all else at 0. */
void sx_lower_scores_begin_program(sx_lower_scores *w)
{
    sx_lower *l = &w->l;
    uint32_t batch = SX_TILE_VAR_BATCH;
    sx_loop_begin_part(&l->b, l->cx, l->kernel, 1, 1, 1);
    memset(l->have, 0, sizeof(l->have));
    memset(l->at, 0, sizeof(l->at));
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (d == l->analysis->row) {
            l->at[d].coef[SX_TILE_VAR_ROW] = 1;
        } else if (l->analysis->role[d] == SX_ROLE_BATCH) {
            l->at[d].coef[batch++] = 1;
        }
    }
    l->vector_dim = SX_NO_DIM;
    l->valid = 1;
}

sx_code sx_lower_scores_end_program(sx_lower_scores *w, sx_part *part)
{
    SX_TRY(sx_loop_end_part(&w->l.b));
    *part = w->l.kernel->part[0];
    part->var_count = sx_tile_stage_variable(w->tile) + 2;
    w->l.kernel->part_count = 0;
    return SX_OK;
}

static sx_code make_scores(sx_lower_scores *w, bool whole, uint32_t made, const uint32_t *dot,
                           uint32_t count, sx_tile_value *scores)
{
    sx_lower *l = &w->l;
    const sx_analysis *a = l->analysis;
    uint32_t stage = sx_tile_stage_variable(w->tile), reg[SX_TILE_PRODUCTS_MAX];
    int64_t keys = w->tile->block_steps;
    sx_lower_scores_begin_program(w);
    if (a->keys != SX_NO_DIM) {
        l->at[a->keys].coef[stage] = whole ? keys : 0;
        l->at[a->keys].coef[stage + 1] = 1;
        l->at[a->keys].constant = whole ? 0 : w->tile->sum / keys * keys;
    }
    for (uint32_t i = 0; i < count; i++) {
        reg[i] = sx_loop_vector(&l->b);
        SX_ASSERT(l->b.code != SX_OK || reg[i] == i);
    }
    for (uint32_t i = 0; i < count; i++) {
        sx_dtype dtype = l->body->instr[dot[i]].dtype;
        l->reg[dot[i]] = dtype == SX_F32 ? reg[i] : sx_lower_rounded(l, dtype, reg[i]);
        l->have[dot[i]] = true;
    }
    scores->result = sx_lower_value(l, made);
    return sx_lower_scores_end_program(w, &scores->part);
}

sx_code sx_lower_scores_programs(sx_lower_scores *w, uint32_t made, const uint32_t *dot,
                                 uint32_t count)
{
    SX_TRY(make_scores(w, true, made, dot, count, &w->online->scores[0]));
    return w->tile->sum % w->tile->block_steps != 0
               ? make_scores(w, false, made, dot, count, &w->online->scores[1])
               : SX_OK;
}

/* ---- what is taken ---- */
sx_code sx_lower_scores_matrix(sx_lower_scores *w)
{
    const sx_online_blocks *b = &w->blocks;
    const sx_analysis *a = w->l.analysis;
    const uint32_t argument[] = {b->query, b->key, b->value, b->second_query, b->second_key};
    SX_ASSERT(sx_online_blocks_take(a, &(sx_online_blocks){.keys = 0}));
    sx_dtype factor = a->input[b->query].dtype;
    bool same = true;
    for (uint32_t i = 0; i < (b->two ? 5 : 3); i++) {
        same = same && a->input[argument[i]].dtype == factor;
    }
    for (uint32_t i = 0; i < w->unit->matrix_count && same; i++) {
        const sx_matrix_instruction *m = &w->unit->matrix[i];
        if (m->factor == factor && m->sum == SX_F32 && m->rows == b->matrix_rows &&
            m->columns == b->matrix_columns && m->steps == b->matrix_steps &&
            m->steps == 2 * m->columns) {
            w->tile->matrix = m;
            return SX_OK;
        }
    }
    return sx_lower_scores_refuse(w, "this matrix instruction and these types");
}

static int64_t power_above(int64_t x, int64_t least)
{
    int64_t power = least;
    while (power < x) {
        power *= 2;
    }
    return power;
}

/* About; fragments of the queries in them or not. */
static int64_t registers_of(const sx_lower_scores *w, bool stays)
{
    const sx_tile *tile = w->tile;
    int64_t keys = w->blocks.keys, products = w->blocks.two ? 2 : 1;
    return tile->block_columns / 2 + products * keys / 2 + keys / 4 + OTHER_REGISTERS +
           products * (stays ? tile->block_rows / 4 : 4);
}

sx_code sx_lower_scores_measure(sx_lower_scores *w)
{
    const sx_analysis *a = w->l.analysis;
    const sx_online_blocks *b = &w->blocks;
    sx_tile *tile = w->tile, *query = w->query[0];
    SX_ASSERT(tile->matrix != NULL && b->warp_rows > 0);
    int64_t side[2] = {a->extent[SX_ROLE_INNER], a->extent[SX_ROLE_COLUMN]};
    int64_t warps = b->rows / b->warp_rows;
    bool fits = b->warp_rows == b->matrix_rows && b->rows % b->warp_rows == 0 &&
                (warps & (warps - 1)) == 0 && warps <= 8 && b->keys >= b->matrix_steps &&
                (b->keys & (b->keys - 1)) == 0 && b->keys <= KEYS_MAX && b->depth >= 2 &&
                b->depth <= SX_BLOCK_DEPTH_MAX && side[0] <= SIDE_MAX && side[1] <= SIDE_MAX;
    for (uint32_t d = 0; fits && d < a->view.rank; d++) {
        fits = a->view.extent[d] <= INT32_MAX;
    }
    if (!fits) {
        return sx_lower_scores_refuse(w, "this number of rows, keys or stages, or this head size");
    }
    *query = (sx_tile){.threads = (uint32_t)warps * 32,
                       .matrix = tile->matrix,
                       .rows = a->extent[SX_ROLE_ROW],
                       .columns = 1,
                       .sum = side[0],
                       .block_rows = (uint32_t)b->rows,
                       .block_columns = 1,
                       .block_steps = (uint32_t)power_above(side[0], b->matrix_steps)};
    tile->threads = query->threads;
    tile->rows = side[0];
    tile->columns = side[1];
    tile->sum = a->extent[SX_ROLE_SUM];
    tile->block_rows = query->block_steps;
    tile->block_columns = (uint32_t)power_above(side[1], b->matrix_steps);
    tile->block_steps = (uint32_t)b->keys;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        if (a->role[d] == SX_ROLE_BATCH) {
            query->batch[query->batch_count++] = a->view.extent[d];
            tile->batch[tile->batch_count++] = a->view.extent[d];
        }
    }
    *w->query[1] = *query;
    tile->online = w->online;
    w->online->query = query;
    w->online->second = b->two ? w->query[1] : NULL;
    w->online->query_stays =
        tile->block_rows <= QUERY_STAYS_MAX && (!b->two || registers_of(w, true) <= REGISTERS_MAX);
    int64_t registers = registers_of(w, w->online->query_stays);
    if (registers > REGISTERS_MAX || registers * tile->threads > w->unit->registers) {
        return SX_FAIL(w->l.cx, SX_LIMIT,
                       "kernel %s: %u threads with about %lld registers, at most %d and %u",
                       w->l.kernel->name, tile->threads, (long long)registers, REGISTERS_MAX,
                       w->unit->registers);
    }
    return SX_OK;
}

uint32_t sx_lower_scores_inner(const sx_lower_scores *w)
{
    uint32_t inner = 0;
    while (w->l.analysis->role[inner] != SX_ROLE_INNER) {
        inner++;
        SX_ASSERT(inner < w->l.view.rank);
    }
    return inner;
}

/* ---- the kernel ---- */
void sx_lower_scores_name(sx_lower_scores *w, sx_kernel_kind kind, const int64_t *extent,
                          uint32_t count)
{
    sx_vector_unit rounding = *w->unit->vectors;
    SX_ASSERT(w->tile->matrix->numerics != NULL);
    rounding.numerics = w->tile->matrix->numerics;
    w->l.unit = &rounding;
    w->l.kernel->numerics = sx_lower_numerics(&w->l, kind, extent, count);
    w->l.unit = w->unit->vectors;
}

sx_code sx_lower_scores_part(sx_lower_scores *w)
{
    const sx_tile *tile = w->tile;
    int64_t batch = 1;
    for (uint32_t d = 0; d < tile->batch_count; d++) {
        batch *= tile->batch[d]; /* within SX_SPACE_MAX: the view was checked */
    }
    sx_part *part = &w->l.kernel->part[0];
    *part =
        (sx_part){.grid = {batch, sx_ceil_div_i64(w->query[0]->rows, w->query[0]->block_rows), 1},
                  .tile = w->tile,
                  .var_count = 3};
    w->l.kernel->part_count = 1;
    return sx_grid_fits(part->grid)
               ? sx_tile_check(w->l.cx, w->l.kernel, part)
               : SX_FAIL(w->l.cx, SX_LIMIT,
                         "kernel %s: %lld x %lld x %lld blocks, more than a launch has",
                         w->l.kernel->name, (long long)part->grid[0], (long long)part->grid[1],
                         (long long)part->grid[2]);
}

/* The arguments that the schedule brings are those that are multiplied. */
static sx_code take_arguments(sx_lower_scores *w)
{
    sx_online_blocks known;
    if (!sx_online_blocks_of(w->l.schedule, &w->blocks)) {
        return sx_lower_scores_refuse(w, "a schedule of another form");
    }
    known = w->blocks;
    if (!sx_online_blocks_take(w->l.analysis, &known)) {
        return sx_lower_scores_refuse(w, "kernels that are no attention or gradient of attention "
                                         "over one dimension of keys and one inner dimension");
    }
    const sx_online_blocks *b = &w->blocks;
    bool same = known.query == b->query && known.key == b->key && known.value == b->value &&
                known.two == b->two && known.second_query == b->second_query &&
                known.second_key == b->second_key;
    return same
               ? SX_OK
               : sx_lower_scores_refuse(w, "other staged arguments than those that are multiplied");
}

sx_code sx_lower_scores_begin(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                              const sx_analysis *a, const sx_schedule *schedule,
                              sx_lower_scores **scores)
{
    SX_ASSERT(unit->vectors != NULL && unit->vectors->threads);
    sx_lower_scores *w = SX_NEW(cx, sx_lower_scores);
    if (w == NULL || (w->tile = SX_NEW(cx, sx_tile)) == NULL ||
        (w->query[0] = SX_NEW(cx, sx_tile)) == NULL ||
        (w->query[1] = SX_NEW(cx, sx_tile)) == NULL ||
        (w->online = SX_NEW(cx, sx_tile_online)) == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_schedule_check(cx, schedule, a));
    w->unit = unit;
    w->l = (sx_lower){.cx = cx,
                      .analysis = a,
                      .schedule = schedule,
                      .unit = unit->vectors,
                      .body = a->fused->body,
                      .view = a->view,
                      .lanes = unit->vectors->lanes};
    SX_TRY(sx_kernel_make(cx, name, w->l.lanes, a->lane_bytes, &w->l.kernel));
    *scores = w;
    return take_arguments(w);
}
