/* lower_online.c - online sums as programs of blocks: attention on matrix instructions. */
#include "core/tile/online.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/tile/fragment.h"
#include "core/tile/lower_inside.h"

#define OTHER_REGISTERS 64  /* of a thread: addresses, counters, factors under way */
#define QUERY_STAYS_MAX 128 /* steps of d whose fragments fit beside the sums */
#define SIDE_MAX 256        /* of head sizes */
#define KEYS_MAX 128

typedef struct {
    sx_lower l;
    const sx_tile_unit *unit;
    sx_online_blocks blocks;
    sx_tile *tile, *query;
    sx_tile_online *online;
} lowering;

static sx_code refuse(lowering *w, const char *why)
{
    return SX_FAIL(w->l.cx, SX_UNIMPLEMENTED, "kernel %s: no blocks for %s", w->l.kernel->name,
                   why);
}

/* ---- layouts ---- */
/* Columns of a layout are added in the order of its homes. */
static void put(sx_layout *layout, sx_home home, uint32_t at)
{
    uint32_t n = sx_layout_input_bits(layout);
    SX_ASSERT(n < SX_LAYOUT_BITS_MAX);
    layout->column[n] = at;
    layout->bits[home]++;
}

static void put_bits(sx_layout *layout, sx_home home, sx_side side, int64_t first, int64_t end)
{
    for (int64_t x = first; x < end; x *= 2) {
        put(layout, home, side == SX_SIDE_ROW ? SX_AT(x, 0) : SX_AT(0, x));
    }
}

/* Fragments side by side in registers, along `side` from `first` up to below `end`; warps stand one below the other,
 * `warp_rows` apart along `down`, or hold the same. */
typedef struct {
    sx_operand operand;
    bool turned;
    sx_side side;
    int64_t first, end;
    int64_t rows, columns;
    int64_t warp_rows;
    sx_side down;
} fragments;

static sx_code hold(sx_ctx *cx, const sx_tile *tile, const fragments *f, sx_layout *layout)
{
    const sx_matrix_instruction *m = tile->matrix;
    sx_layout atom;
    SX_TRY(sx_fragment_find(cx, SX_MMA_SYNC, f->operand, m->factor, m->columns, m->steps, &atom));
    atom = f->turned ? sx_layout_transpose(&atom) : atom;
    *layout = (sx_layout){
        .side_bits = {(uint8_t)sx_tile_log2(f->rows), (uint8_t)sx_tile_log2(f->columns)}};
    for (uint32_t i = 0; i < atom.bits[SX_HOME_REGISTER]; i++) {
        put(layout, SX_HOME_REGISTER, atom.column[i]);
    }
    put_bits(layout, SX_HOME_REGISTER, f->side, f->first, f->end);
    for (uint32_t i = 0; i < atom.bits[SX_HOME_LANE]; i++) {
        put(layout, SX_HOME_LANE, atom.column[atom.bits[SX_HOME_REGISTER] + i]);
    }
    for (uint32_t w = 1; w < tile->threads / 32; w *= 2) {
        int64_t at = f->warp_rows * w;
        put(layout, SX_HOME_WARP, f->down == SX_SIDE_ROW ? SX_AT(at, 0) : SX_AT(0, at));
    }
    return sx_layout_check(cx, layout);
}

sx_code sx_tile_online_layouts(sx_ctx *cx, const sx_tile *tile, sx_layout *scores, sx_layout *sums,
                               sx_layout factor[3])
{
    const sx_matrix_instruction *m = tile->matrix;
    const sx_tile *query = tile->online->query;
    const sx_tile_operand *q = &query->operand[SX_TILE_LEFT];
    const sx_tile_operand *keys = &tile->operand[SX_TILE_LEFT];
    const sx_tile_operand *values = &tile->operand[SX_TILE_RIGHT];
    int64_t rows = query->block_rows, stage = tile->block_steps, columns = tile->block_columns;
    const fragments all[] = {
        {SX_OPERAND_C, false, SX_SIDE_COLUMN, m->columns, stage, rows, stage, m->rows, SX_SIDE_ROW},
        {SX_OPERAND_C, false, SX_SIDE_COLUMN, m->columns, columns, rows, columns, m->rows,
         SX_SIDE_ROW},
        {SX_OPERAND_A, !q->sum_inner, SX_SIDE_ROW, 1, 1, q->sum_inner ? rows : m->steps,
         q->sum_inner ? m->steps : rows, m->rows, q->sum_inner ? SX_SIDE_ROW : SX_SIDE_COLUMN},
        /* the side of this product is what the ring calls its sum */
        {SX_OPERAND_B, !keys->sum_inner, keys->sum_inner ? SX_SIDE_COLUMN : SX_SIDE_ROW, m->columns,
         stage, keys->sum_inner ? m->steps : stage, keys->sum_inner ? stage : m->steps, 0,
         SX_SIDE_ROW},
        {SX_OPERAND_B, values->sum_inner, values->sum_inner ? SX_SIDE_ROW : SX_SIDE_COLUMN,
         m->columns, columns, values->sum_inner ? columns : m->steps,
         values->sum_inner ? m->steps : columns, 0, SX_SIDE_ROW}};
    sx_layout *const to[] = {scores, sums, &factor[0], &factor[1], &factor[2]};
    for (uint32_t i = 0; i < SX_COUNT(all); i++) {
        SX_TRY(hold(cx, tile, &all[i], to[i]));
    }
    return SX_OK;
}

/* ---- operands ---- */
static int64_t extent_of(const lowering *w, uint32_t dim)
{
    return dim == SX_NO_DIM ? 1 : w->l.view.extent[dim];
}

static int64_t stride_of(const lowering *w, uint32_t argument, uint32_t dim)
{
    return dim == SX_NO_DIM ? 0 : w->l.view.stride[argument][dim];
}

static void view_of(lowering *w, uint32_t argument, uint32_t side, uint32_t sum, sx_tile_operand *o)
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
static sx_code slot_of(lowering *w, sx_tile_operand *o, int64_t side, int64_t sum, sx_slot *slot)
{
    uint32_t element = sx_dtype_bytes(o->view.element);
    int64_t rows = o->sum_inner ? side : sum;
    int64_t width = o->sum_inner ? sum : side;
    sx_matrix_move move;
    SX_TRY(sx_tile_copy_by_threads(w->l.cx, w->tile->threads / 32, o, rows, width));
    if (!sx_matrix_move_find(&o->held, element, &move)) {
        return refuse(w, "factors that ldmatrix does not load");
    }
    sx_smem_access writer = {o->copied, element, o->copy_bytes, false};
    sx_smem_access reader = {move.rows, element, 16, true};
    return sx_slot_choose(w->l.cx, (uint32_t)rows, (uint32_t)width * element, &writer, &reader,
                          slot);
}

static sx_code make_rings(lowering *w)
{
    sx_tile *tile = w->tile;
    sx_tile_operand *q = &w->query->operand[SX_TILE_LEFT];
    sx_tile_operand *keys = &tile->operand[SX_TILE_LEFT], *values = &tile->operand[SX_TILE_RIGHT];
    sx_layout factor[3];
    sx_slot slot[3];
    uint32_t offset;
    SX_TRY(sx_tile_online_layouts(w->l.cx, tile, &w->online->held, &tile->held, factor));
    q->held = factor[0];
    keys->held = factor[1];
    values->held = factor[2];
    q->group = keys->group = values->group = tile->matrix->steps;
    SX_TRY(slot_of(w, q, w->query->block_rows, w->query->block_steps, &slot[0]));
    SX_TRY(slot_of(w, keys, tile->block_rows, tile->block_steps, &slot[1]));
    SX_TRY(slot_of(w, values, tile->block_columns, tile->block_steps, &slot[2]));
    tile->ring = (sx_ring){.depth = w->blocks.depth, .full_arrivals = 1, .empty_arrivals = 1};
    w->query->ring = (sx_ring){.depth = 1, .full_arrivals = 1, .empty_arrivals = 1};
    SX_TRY(sx_ring_add(w->l.cx, &tile->ring, &slot[1], NULL));
    SX_TRY(sx_ring_add(w->l.cx, &tile->ring, &slot[2], NULL));
    SX_TRY(sx_ring_add(w->l.cx, &w->query->ring, &slot[0], NULL));
    SX_TRY(sx_smem_place(w->l.cx, &tile->ring, 1, &slot[0], 1, &offset, &tile->shared_bytes));
    w->query->ring.offset = offset;
    w->query->shared_bytes = tile->shared_bytes;
    if (tile->shared_bytes > w->unit->shared_bytes) {
        return SX_FAIL(w->l.cx, SX_LIMIT, "kernel %s: %u bytes of shared memory, at most %u",
                       w->l.kernel->name, tile->shared_bytes, w->unit->shared_bytes);
    }
    return SX_OK;
}

/* ---- programs of elements ---- */
/* The position of an element: its row and the batch; all else at 0. */
static void begin_program(lowering *w)
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

static sx_code end_program(lowering *w, sx_part *part)
{
    SX_TRY(sx_loop_end_part(&w->l.b));
    *part = w->l.kernel->part[0];
    part->var_count = sx_tile_stage_variable(w->tile) + 2;
    w->l.kernel->part_count = 0;
    return SX_OK;
}

static sx_code make_scores(lowering *w, bool whole, sx_tile_value *scores)
{
    sx_lower *l = &w->l;
    const sx_analysis *a = l->analysis;
    uint32_t stage = sx_tile_stage_variable(w->tile);
    int64_t keys = w->tile->block_steps;
    begin_program(w);
    if (a->keys != SX_NO_DIM) {
        l->at[a->keys].coef[stage] = whole ? keys : 0;
        l->at[a->keys].coef[stage + 1] = 1;
        l->at[a->keys].constant = whole ? 0 : w->tile->sum / keys * keys;
    }
    l->reg[a->dot] = sx_loop_vector(&l->b);
    SX_ASSERT(l->b.code != SX_OK || l->reg[a->dot] == 0);
    l->have[a->dot] = true;
    scores->result = sx_lower_value(l, a->scores);
    return end_program(w, &scores->part);
}

static sx_code make_power(lowering *w)
{
    begin_program(w);
    uint32_t x = sx_loop_vector(&w->l.b);
    w->online->power.result = sx_loop_apply(&w->l.b, SX_OP_EXP, SX_EQ, x, SX_NO_REG, SX_NO_REG);
    return end_program(w, &w->online->power.part);
}

static uint32_t op(sx_lower *l, sx_lop lop, uint32_t x, uint32_t y, uint32_t z)
{
    return sx_loop_op(&l->b, lop, SX_NO_REG, NULL, x, y, z, 0, 0);
}

/* The reductions of the body, from the sums of the block; not a number for rows that are masked whole. */
static void give_reductions(lowering *w, const uint32_t sum[SX_TILE_ONLINE_SUMS])
{
    sx_lower *l = &w->l;
    uint32_t total = sum[SX_TILE_WEIGHT_SUM];
    uint32_t one = op(l, SX_LOP_DIV, total, total, SX_NO_REG);
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        if (in->kind == SX_BODY_REDUCE) {
            uint32_t zero = sx_loop_set(&l->b, 0.0f);
            uint32_t empty =
                sx_loop_op(&l->b, SX_LOP_CMP, SX_NO_REG, NULL, total, zero, SX_NO_REG, SX_EQ, 0);
            l->reg[i] =
                op(l, SX_LOP_BLEND, empty, sx_loop_set(&l->b, -HUGE_VALF), sum[SX_TILE_MAXIMUM]);
        } else if (in->kind == SX_BODY_ONLINE && l->body->instr[in->y].kind == SX_BODY_IMM) {
            uint32_t factor = sx_loop_set(&l->b, (float)l->body->instr[in->y].imm);
            factor = op(l, SX_LOP_MUL, one, factor, SX_NO_REG);
            l->reg[i] = op(l, SX_LOP_MUL, total, factor, SX_NO_REG);
        } else if (in->kind == SX_BODY_ONLINE) {
            l->reg[i] = op(l, SX_LOP_MUL, sum[SX_TILE_VALUE_SUM], one, SX_NO_REG);
        }
        l->have[i] = l->have[i] || in->kind == SX_BODY_REDUCE || in->kind == SX_BODY_ONLINE;
    }
}

static sx_code make_map(lowering *w)
{
    sx_lower *l = &w->l;
    const sx_analysis *a = l->analysis;
    uint32_t sum[SX_TILE_ONLINE_SUMS];
    begin_program(w);
    if (a->column != SX_NO_DIM) {
        l->at[a->column].coef[SX_TILE_VAR_COLUMN] = 1;
    }
    for (uint32_t i = 0; i < SX_TILE_ONLINE_SUMS; i++) {
        sum[i] = sx_loop_vector(&l->b);
        SX_ASSERT(l->b.code != SX_OK || sum[i] == i);
    }
    give_reductions(w, sum);
    sx_lower_store_out(l, sx_lower_value(l, l->body->instr_count - 1), l->out_dtype);
    return end_program(w, &w->tile->map);
}

/* Results of rows lie in the order of the sums, without the columns. */
static void row_strides(const lowering *w, sx_view *view)
{
    const sx_analysis *a = w->l.analysis;
    for (uint32_t d = 0; d < view->rank && a->column != SX_NO_DIM; d++) {
        bool outer = view->out_stride[d] > view->out_stride[a->column];
        view->out_stride[d] = d == a->column ? 0
                              : outer        ? view->out_stride[d] / view->extent[a->column]
                                             : view->out_stride[d];
    }
}

/* The program of the second result: its body stands for that of the kernel while it is written. */
static sx_code make_statistic(lowering *w)
{
    sx_lower *l = &w->l;
    const sx_analysis *a = l->analysis;
    const sx_lower before = *l;
    uint32_t sum[SX_TILE_ONLINE_SUMS];
    sx_part *part = SX_NEW(l->cx, sx_part);
    if (part == NULL) {
        return l->cx->error.code;
    }
    l->body = a->statistic->body;
    l->out_dtype = a->statistic_result.dtype;
    l->out_buffer = before.out_buffer + 1;
    row_strides(w, &l->view);
    begin_program(w);
    for (uint32_t i = 0; i < SX_TILE_ONLINE_SUMS; i++) {
        sum[i] = sx_loop_vector(&l->b);
    }
    give_reductions(w, sum);
    sx_lower_store_out(l, sx_lower_value(l, l->body->instr_count - 1), l->out_dtype);
    SX_TRY(end_program(w, part));
    l->body = before.body;
    l->out_dtype = before.out_dtype;
    l->out_buffer = before.out_buffer;
    l->view = before.view;
    w->online->statistic = part;
    return SX_OK;
}

static sx_code make_programs(lowering *w)
{
    const sx_tile *tile = w->tile;
    SX_TRY(make_scores(w, true, &w->online->scores[0]));
    if (tile->sum % tile->block_steps != 0) {
        SX_TRY(make_scores(w, false, &w->online->scores[1]));
    }
    SX_TRY(make_power(w));
    SX_TRY(w->l.analysis->statistic != NULL ? make_statistic(w) : SX_OK);
    return make_map(w);
}

/* ---- what is taken ---- */
static sx_code choose_matrix(lowering *w)
{
    const sx_online_blocks *b = &w->blocks;
    const sx_analysis *a = w->l.analysis;
    sx_dtype factor = a->input[b->query].dtype;
    bool same = a->input[b->key].dtype == factor && a->input[b->value].dtype == factor;
    for (uint32_t i = 0; i < w->unit->matrix_count && same; i++) {
        const sx_matrix_instruction *m = &w->unit->matrix[i];
        if (m->factor == factor && m->sum == SX_F32 && m->rows == b->matrix_rows &&
            m->columns == b->matrix_columns && m->steps == b->matrix_steps &&
            m->steps == 2 * m->columns) {
            w->tile->matrix = m;
            return SX_OK;
        }
    }
    return refuse(w, "this matrix instruction and these types");
}

static sx_code check_kernel(lowering *w)
{
    const sx_analysis *a = w->l.analysis;
    uint32_t inner = 0;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        inner += a->role[d] == SX_ROLE_INNER;
        if (a->view.extent[d] > INT32_MAX) {
            return refuse(w, "extents beyond 31 bits");
        }
    }
    if (a->kind != SX_KERNEL_ONLINE || a->refusal != NULL || a->dot == SX_NO_INSTR ||
        a->value == SX_NO_INSTR || inner != 1) {
        return refuse(w, "kernels that are no attention over one inner dimension");
    }
    bool known =
        w->blocks.query == a->lhs && w->blocks.key == a->rhs && w->blocks.value == a->value;
    return known ? SX_OK : refuse(w, "other staged arguments than queries, keys and values");
}

static int64_t power_above(int64_t x, int64_t least)
{
    int64_t power = least;
    while (power < x) {
        power *= 2;
    }
    return power;
}

static sx_code measure(lowering *w)
{
    const sx_analysis *a = w->l.analysis;
    const sx_online_blocks *b = &w->blocks;
    sx_tile *tile = w->tile, *query = w->query;
    int64_t side[2] = {a->extent[SX_ROLE_INNER], a->extent[SX_ROLE_COLUMN]};
    int64_t warps = b->rows / b->warp_rows;
    bool fits = b->warp_rows == b->matrix_rows && b->rows % b->warp_rows == 0 &&
                (warps & (warps - 1)) == 0 && warps <= 8 && b->keys >= b->matrix_steps &&
                (b->keys & (b->keys - 1)) == 0 && b->keys <= KEYS_MAX && b->depth >= 2 &&
                b->depth <= SX_BLOCK_DEPTH_MAX && side[0] <= SIDE_MAX && side[1] <= SIDE_MAX;
    if (!fits) {
        return refuse(w, "this number of rows, keys or stages, or this head size");
    }
    *query = (sx_tile){.threads = (uint32_t)warps * 32,
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
    tile->online = w->online;
    w->online->query = query;
    w->online->query_stays = tile->block_rows <= QUERY_STAYS_MAX;
    w->online->has_horizon = sx_online_horizon(a, &w->online->ahead);
    for (uint32_t d = 0; d < a->view.rank; d++) {
        if (a->role[d] == SX_ROLE_BATCH) {
            query->batch[query->batch_count++] = a->view.extent[d];
            tile->batch[tile->batch_count++] = a->view.extent[d];
        }
    }
    int64_t registers = tile->block_columns / 2 + 3 * b->keys / 4 + OTHER_REGISTERS +
                        (w->online->query_stays ? tile->block_rows / 4 : 4);
    if (registers > 255 || registers * tile->threads > w->unit->registers) {
        return SX_FAIL(w->l.cx, SX_LIMIT,
                       "kernel %s: %u threads with about %lld registers, at most 255 and %u",
                       w->l.kernel->name, tile->threads, (long long)registers, w->unit->registers);
    }
    return SX_OK;
}

/* ---- the kernel ---- */
static void name_numerics(lowering *w)
{
    const int64_t *of = w->l.analysis->extent;
    sx_vector_unit rounding = *w->unit->vectors;
    int64_t extent[3] = {w->blocks.keys, of[SX_ROLE_SUM], of[SX_ROLE_INNER]};
    rounding.numerics = w->tile->matrix->numerics;
    w->l.unit = &rounding;
    w->l.kernel->numerics = sx_lower_numerics(&w->l, SX_KERNEL_ONLINE, extent, SX_COUNT(extent));
    w->l.unit = w->unit->vectors;
}

static sx_code make_part(lowering *w)
{
    const sx_tile *tile = w->tile;
    int64_t batch = 1;
    for (uint32_t d = 0; d < tile->batch_count; d++) {
        batch *= tile->batch[d]; /* within SX_SPACE_MAX: the view was checked */
    }
    sx_part *part = &w->l.kernel->part[0];
    *part = (sx_part){.grid = {batch, sx_ceil_div_i64(w->query->rows, w->query->block_rows), 1},
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

static sx_code lower(lowering *w, sx_kernel **kernel)
{
    const sx_analysis *a = w->l.analysis;
    sx_tile *tile = w->tile;
    SX_TRY(check_kernel(w));
    SX_TRY(choose_matrix(w));
    SX_TRY(measure(w));
    uint32_t inner = 0;
    while (a->role[inner] != SX_ROLE_INNER) {
        inner++;
    }
    sx_tile_add_buffers(&w->l, w->l.analysis);
    name_numerics(w);
    view_of(w, a->lhs, a->row, inner, &w->query->operand[SX_TILE_LEFT]);
    view_of(w, a->rhs, inner, a->keys, &tile->operand[SX_TILE_LEFT]);
    view_of(w, a->value, a->column, a->keys, &tile->operand[SX_TILE_RIGHT]);
    w->query->matrix = tile->matrix;
    sx_tile_make_roles(tile);
    SX_TRY(make_programs(w));
    SX_TRY(make_rings(w));
    SX_TRY(make_part(w));
    *kernel = w->l.kernel;
    return SX_OK;
}

sx_code sx_tile_lower_online(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                             const sx_analysis *a, const sx_schedule *schedule, sx_kernel **kernel)
{
    SX_ASSERT(unit->vectors != NULL && unit->vectors->threads);
    lowering *w = SX_NEW(cx, lowering);
    if (w == NULL || (w->tile = SX_NEW(cx, sx_tile)) == NULL ||
        (w->query = SX_NEW(cx, sx_tile)) == NULL ||
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
    return sx_online_blocks_of(schedule, &w->blocks) ? lower(w, kernel)
                                                     : refuse(w, "a schedule of another form");
}
