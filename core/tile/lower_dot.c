/* lower_dot.c - contractions as programs of blocks: layouts, slots and roles from a schedule.
 *
 * Each layout is built from one rule. A thread's sums are as the matrix instruction has them, or vectors that lie
 * side by side where the argument does; copies go along what is contiguous; the slot is the one in which both meet
 * the fewest banks twice. Extents of blocks are powers of two, those of the matrices are any. */
#include "core/tile/program.h"

#include "core/tile/fragment.h"
#include "core/tile/lower_inside.h"

#define OTHER_REGISTERS 48 /* of a thread: addresses, counters, what `map` computes with */

typedef struct {
    sx_lower l;
    sx_analysis analysis; /* as blocks see it */
    const sx_tile_unit *unit;
    sx_block_tiles tiles;
    sx_tile *tile;
    uint32_t warp_bits[2]; /* warps along the rows and the columns, log2 */
} lowering;

static bool power_of_two(int64_t x)
{
    return x > 0 && (x & (x - 1)) == 0;
}

static sx_code refuse(lowering *w, const char *why)
{
    return SX_FAIL(w->l.cx, SX_UNIMPLEMENTED, "kernel %s: no blocks for %s", w->l.kernel->name,
                   why);
}

/* ---- layouts ---- */
/* Columns of a layout by home, as they are found. */
typedef struct {
    uint32_t count[SX_HOME_COUNT];
    uint32_t column[SX_HOME_COUNT][SX_LAYOUT_BITS_MAX];
} columns;

static void put(columns *c, sx_home home, uint32_t at)
{
    SX_ASSERT(c->count[home] < SX_LAYOUT_BITS_MAX);
    c->column[home][c->count[home]++] = at;
}

/* Bits of a side from `first` up to below `end`, both powers of two; each adds to the row or to the column. */
static void put_bits(columns *c, sx_home home, sx_side side, int64_t first, int64_t end)
{
    for (int64_t x = first; x < end; x *= 2) {
        put(c, home, side == SX_SIDE_ROW ? SX_AT(x, 0) : SX_AT(0, x));
    }
}

static sx_code layout_of(sx_ctx *cx, const columns *c, int64_t rows, int64_t width,
                         sx_layout *layout)
{
    uint32_t n = 0;
    *layout = (sx_layout){.side_bits = {(uint8_t)sx_tile_log2(rows), (uint8_t)sx_tile_log2(width)}};
    for (uint32_t h = 0; h < SX_HOME_COUNT; h++) {
        layout->bits[h] = (uint8_t)c->count[h];
        for (uint32_t i = 0; i < c->count[h]; i++) {
            if (n == SX_LAYOUT_BITS_MAX) {
                return SX_FAIL(cx, SX_LIMIT, "layout: more than %d bits", SX_LAYOUT_BITS_MAX);
            }
            layout->column[n++] = c->column[h][i];
        }
    }
    return sx_layout_check(cx, layout);
}

/* Row and column of a fragment, exchanged or not. */
static void put_fragment(columns *c, const sx_layout *fragment, bool turned)
{
    sx_layout from = turned ? sx_layout_transpose(fragment) : *fragment;
    for (uint32_t h = 0; h <= SX_HOME_WARP; h++) {
        for (uint32_t i = 0; i < from.bits[h]; i++) {
            put(c, (sx_home)h, from.column[sx_layout_first(&from, (sx_home)h) + i]);
        }
    }
}

/* The warps of a block: along the columns first. A layout without one of the sides has copies there. */
static void put_warps(const lowering *w, columns *c, bool rows, bool wide, sx_side row,
                      sx_side column)
{
    const sx_block_tiles *t = &w->tiles;
    for (uint32_t i = 0; i < w->warp_bits[SX_SIDE_COLUMN]; i++) {
        int64_t at = t->warp_columns << i;
        wide ? put_bits(c, SX_HOME_WARP, column, at, at + 1) : put(c, SX_HOME_WARP, 0);
    }
    for (uint32_t i = 0; i < w->warp_bits[SX_SIDE_ROW]; i++) {
        int64_t at = t->warp_rows << i;
        rows ? put_bits(c, SX_HOME_WARP, row, at, at + 1) : put(c, SX_HOME_WARP, 0);
    }
}

/* How many elements of an argument's side one thread has side by side. */
static int64_t vector_of(const sx_tile_operand *o, int64_t thread)
{
    int64_t vector = SX_TILE_COPY_BYTES_MAX / sx_dtype_bytes(o->view.element);
    return o->sum_inner ? 1 : sx_min_i64(vector, thread);
}

/* What a thread has along one side, in registers around the lanes. */
static void put_side(columns *c, sx_side side, int64_t vector, int64_t thread, int64_t lanes)
{
    put_bits(c, SX_HOME_REGISTER, side, 1, vector);
    put_bits(c, SX_HOME_REGISTER, side, vector * lanes, thread * lanes);
}

static sx_code hold_by_threads(lowering *w)
{
    const sx_block_tiles *t = &w->tiles;
    sx_tile_operand *o = w->tile->operand;
    const int64_t thread[2] = {t->thread_rows, t->thread_columns};
    const int64_t lanes[2] = {t->warp_rows / thread[0], t->warp_columns / thread[1]};
    const int64_t block[2] = {t->rows, t->columns};
    columns sums = {.count = {0}};
    for (uint32_t i = 2; i-- > 0;) { /* columns are the low bits */
        int64_t vector = vector_of(&o[i], thread[i]);
        put_side(&sums, i == 0 ? SX_SIDE_ROW : SX_SIDE_COLUMN, vector, thread[i], lanes[i]);
        put_bits(&sums, SX_HOME_LANE, i == 0 ? SX_SIDE_ROW : SX_SIDE_COLUMN, vector,
                 vector * lanes[i]);
    }
    put_warps(w, &sums, true, true, SX_SIDE_ROW, SX_SIDE_COLUMN);
    SX_TRY(layout_of(w->l.cx, &sums, t->rows, t->columns, &w->tile->held));
    for (uint32_t i = 0; i < 2; i++) {
        columns c = {.count = {0}};
        int64_t vector = vector_of(&o[i], thread[i]);
        sx_side side = o[i].sum_inner ? SX_SIDE_ROW : SX_SIDE_COLUMN;
        o[i].group =
            o[i].sum_inner ? SX_TILE_COPY_BYTES_MAX / sx_dtype_bytes(o[i].view.element) : 1;
        put_bits(&c, SX_HOME_REGISTER, o[i].sum_inner ? SX_SIDE_COLUMN : SX_SIDE_ROW, 1,
                 o[i].group);
        put_side(&c, side, vector, thread[i], lanes[i]);
        for (uint32_t k = 2; k-- > 0;) {
            for (int64_t at = 1; at < lanes[k]; at *= 2) {
                k == i ? put_bits(&c, SX_HOME_LANE, side, vector * at, vector * at + 1)
                       : put(&c, SX_HOME_LANE, 0);
            }
        }
        put_warps(w, &c, i == 0, i == 1, side, side);
        SX_TRY(layout_of(w->l.cx, &c, o[i].sum_inner ? block[i] : o[i].group,
                         o[i].sum_inner ? o[i].group : block[i], &o[i].held));
    }
    return SX_OK;
}

static sx_code hold_by_matrices(lowering *w)
{
    const sx_block_tiles *t = &w->tiles;
    const sx_matrix_instruction *m = w->tile->matrix;
    sx_tile_operand *o = w->tile->operand;
    sx_layout fragment;
    const int64_t unit[2] = {m->rows, m->columns};
    const int64_t warp[2] = {t->warp_rows, t->warp_columns};
    const int64_t block[2] = {t->rows, t->columns};
    columns sums = {.count = {0}};
    SX_TRY(sx_fragment_find(w->l.cx, SX_MMA_SYNC, SX_OPERAND_C, m->factor, m->columns, m->steps,
                            &fragment));
    put_fragment(&sums, &fragment, false);
    put_bits(&sums, SX_HOME_REGISTER, SX_SIDE_COLUMN, unit[1], warp[1]);
    put_bits(&sums, SX_HOME_REGISTER, SX_SIDE_ROW, unit[0], warp[0]);
    put_warps(w, &sums, true, true, SX_SIDE_ROW, SX_SIDE_COLUMN);
    SX_TRY(layout_of(w->l.cx, &sums, t->rows, t->columns, &w->tile->held));
    for (uint32_t i = 0; i < 2; i++) {
        columns c = {.count = {0}};
        sx_side side = o[i].sum_inner ? SX_SIDE_ROW : SX_SIDE_COLUMN;
        o[i].group = m->steps;
        SX_TRY(sx_fragment_find(w->l.cx, SX_MMA_SYNC, i == 0 ? SX_OPERAND_A : SX_OPERAND_B,
                                m->factor, m->columns, m->steps, &fragment));
        put_fragment(&c, &fragment, (i == 0) != o[i].sum_inner);
        put_bits(&c, SX_HOME_REGISTER, side, unit[i], warp[i]);
        put_warps(w, &c, i == 0, i == 1, side, side);
        SX_TRY(layout_of(w->l.cx, &c, o[i].sum_inner ? block[i] : o[i].group,
                         o[i].sum_inner ? o[i].group : block[i], &o[i].held));
    }
    return SX_OK;
}

/* Sums as four warps hold them; factors stay in shared memory. */
static sx_code hold_by_warpgroups(lowering *w)
{
    const sx_block_tiles *t = &w->tiles;
    const sx_matrix_instruction *m = w->tile->matrix;
    sx_layout fragment;
    columns sums = {.count = {0}};
    SX_TRY(sx_fragment_find(w->l.cx, SX_WGMMA, SX_OPERAND_C, m->factor, 8, m->steps, &fragment));
    put_fragment(&sums, &fragment, false);
    put_bits(&sums, SX_HOME_REGISTER, SX_SIDE_COLUMN, 8, t->warp_columns);
    put_bits(&sums, SX_HOME_REGISTER, SX_SIDE_ROW, m->rows, t->warp_rows);
    put_warps(w, &sums, true, true, SX_SIDE_ROW, SX_SIDE_COLUMN);
    return layout_of(w->l.cx, &sums, t->rows, t->columns, &w->tile->held);
}

/* ---- operands ---- */
static void view_of(lowering *w, uint32_t side_dim, uint32_t argument, sx_tile_operand *o)
{
    const sx_view *view = &w->l.view;
    sx_tile_view *v = &o->view;
    *v = (sx_tile_view){.buffer = w->l.arg_buffer[argument],
                        .element = w->l.arg_dtype[argument],
                        .offset = view->offset[argument],
                        .side_extent = 1,
                        .sum_extent = w->tile->sum};
    uint32_t batch = 0;
    for (uint32_t d = 0; d < view->rank; d++) {
        int64_t stride = view->stride[argument][d];
        if (d == side_dim) {
            v->side_stride = stride;
            v->side_extent = view->extent[d];
        } else if (view->reduced[d]) {
            v->sum_stride = stride;
        } else if (w->l.analysis->role[d] == SX_ROLE_BATCH) {
            v->batch_stride[batch++] = stride;
        }
    }
    o->sum_inner = v->sum_stride == 1;
    o->copy_bytes = w->tile->by_engine ? 0 : sx_tile_copy_bytes(w->tile, o);
}

/* The slot in which copies and reads meet the fewest banks twice. */
static sx_code slot_of(lowering *w, sx_tile_operand *o, int64_t side, sx_slot *slot)
{
    uint32_t element = sx_dtype_bytes(o->view.element);
    int64_t rows = o->sum_inner ? side : w->tiles.steps;
    int64_t width = o->sum_inner ? w->tiles.steps : side;
    if (width * element < SX_TILE_COPY_BYTES_MAX || width % (o->copy_bytes / element) != 0) {
        return refuse(w, "rows of fewer than 16 bytes in shared memory");
    }
    SX_TRY(sx_tile_copy_by_threads(w->l.cx, w->tile->threads / 32, o, rows, width));
    sx_smem_access writer = {o->copied, element, o->copy_bytes, false};
    sx_smem_access reader = {o->held, element, element, false};
    sx_matrix_move move;
    if (w->tile->matrix != NULL && sx_matrix_move_find(&o->held, element, &move)) {
        reader = (sx_smem_access){move.rows, element, 16, true};
    } else {
        uint32_t vector = sx_layout_vector(&o->held) * element;
        reader.vector_bytes = vector < SX_TILE_COPY_BYTES_MAX ? vector : SX_TILE_COPY_BYTES_MAX;
    }
    return sx_slot_choose(w->l.cx, (uint32_t)rows, (uint32_t)width * element, &writer, &reader,
                          slot);
}

/* Slots that the copy engine fills and matrix instructions read. */
static sx_code make_engine_ring(lowering *w)
{
    sx_tile *tile = w->tile;
    const int64_t side[2] = {w->tiles.rows, w->tiles.columns};
    uint32_t groups = tile->role[1].warps / tile->matrix->warps;
    tile->ring = (sx_ring){.depth = w->tiles.depth, .full_arrivals = 1, .empty_arrivals = groups};
    for (uint32_t i = 0; i < 2; i++) {
        const sx_tile_operand *o = &tile->operand[i];
        sx_slot slot;
        int64_t rows = o->sum_inner ? side[i] : w->tiles.steps;
        int64_t width = o->sum_inner ? w->tiles.steps : side[i];
        SX_TRY(sx_slot_choose(w->l.cx, (uint32_t)rows,
                              (uint32_t)width * sx_dtype_bytes(o->view.element), NULL, NULL,
                              &slot));
        SX_TRY(sx_ring_add(w->l.cx, &tile->ring, &slot, &o->view.element));
    }
    for (uint32_t i = 0; i < 2; i++) {
        sx_wgmma_operand descriptor;
        SX_TRY(sx_tile_boxes_of(w->l.cx, tile, i, &tile->operand[i].boxes));
        SX_TRY(sx_tile_descriptor_of(w->l.cx, tile, i, &descriptor));
    }
    return hold_by_warpgroups(w);
}

/* Slots that threads fill and read. */
static sx_code make_thread_ring(lowering *w)
{
    sx_tile *tile = w->tile;
    SX_TRY(tile->matrix != NULL ? hold_by_matrices(w) : hold_by_threads(w));
    tile->ring = (sx_ring){.depth = w->tiles.depth, .full_arrivals = 1, .empty_arrivals = 1};
    for (uint32_t i = 0; i < 2; i++) {
        sx_slot slot;
        SX_TRY(slot_of(w, &tile->operand[i], i == 0 ? w->tiles.rows : w->tiles.columns, &slot));
        SX_TRY(sx_ring_add(w->l.cx, &tile->ring, &slot, NULL));
    }
    return SX_OK;
}

/* ---- the program ---- */
/* One warp loads; a stage is free when the products of the one behind it have begun, which are the only ones under
 * way then. */
static void make_engine_roles(sx_tile *tile)
{
    static const sx_tile_item math[] = {{SX_TILE_FILL, 0, 0},    {SX_TILE_LOOP, 0, 0},
                                        {SX_TILE_WAIT, 0, 0},    {SX_TILE_MULTIPLY, 0, 0},
                                        {SX_TILE_SETTLE, 0, 1},  {SX_TILE_RELEASE, 0, 1},
                                        {SX_TILE_END, 0, 0},     {SX_TILE_SETTLE, 0, 0},
                                        {SX_TILE_RELEASE, 0, 0}, {SX_TILE_MAP, 0, 0}};
    uint32_t warps = tile->threads / 32 - 1;
    sx_tile_put_load(tile, warps, 1);
    sx_tile_put_role(tile, "math", 0, warps, math, SX_COUNT(math));
}

/* The program of an element: the fused body behind the contraction. */
static sx_code make_map(lowering *w)
{
    sx_lower *l = &w->l;
    const sx_analysis *a = l->analysis;
    sx_loop_begin_part(&l->b, l->cx, l->kernel, 1, 1, 1);
    uint32_t batch = SX_TILE_VAR_BATCH;
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (d == a->row) {
            l->at[d].coef[SX_TILE_VAR_ROW] = 1;
        } else if (d == a->column) {
            l->at[d].coef[SX_TILE_VAR_COLUMN] = 1;
        } else if (a->role[d] == SX_ROLE_BATCH) {
            l->at[d].coef[batch++] = 1;
        }
    }
    l->vector_dim = SX_NO_DIM;
    l->valid = 1;
    uint32_t sum = sx_loop_vector(&l->b);
    SX_ASSERT(l->b.code != SX_OK || sum == 0);
    l->reg[a->dot] = sx_lower_rounded(l, l->body->instr[a->dot].dtype, sum);
    l->have[a->dot] = true;
    sx_lower_store_out(l, sx_lower_value(l, l->body->instr_count - 1), l->out_dtype);
    SX_TRY(sx_loop_end_part(&l->b));
    w->tile->map = l->kernel->part[0];
    w->tile->map.var_count = batch;
    return SX_OK;
}

/* ---- what is taken ---- */
static sx_code choose_matrix(lowering *w)
{
    const sx_block_tiles *t = &w->tiles;
    const sx_analysis *a = w->l.analysis;
    sx_dtype left = a->input[a->lhs].dtype, right = a->input[a->rhs].dtype;
    sx_dtype lane = a->lane_bytes == 8 ? SX_F64 : SX_F32;
    if (t->matrix_rows == 0) {
        return left == lane && right == lane ? SX_OK : refuse(w, "products of other types");
    }
    for (uint32_t i = 0; i < w->unit->matrix_count; i++) {
        const sx_matrix_instruction *m = &w->unit->matrix[i];
        if (m->factor == left && m->factor == right && sx_dtype_bytes(m->sum) == a->lane_bytes &&
            m->rows == t->matrix_rows && m->columns == t->matrix_columns &&
            m->steps == t->matrix_steps) {
            w->tile->matrix = m;
            w->tile->slice = sx_matrix_slice(m, a->extent[SX_ROLE_SUM]);
            return SX_OK;
        }
    }
    return refuse(w, "this matrix instruction and these types");
}

static sx_code check_kernel(lowering *w)
{
    const sx_analysis *a = w->l.analysis;
    uint32_t sums = 0;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        sums += a->view.reduced[d];
        if (a->view.extent[d] > INT32_MAX) {
            return refuse(w, "extents beyond 31 bits");
        }
    }
    if (a->kind != SX_KERNEL_DOT || a->refusal != NULL || a->full) {
        return refuse(w, "kernels that are no contraction");
    }
    if (sums > 1) {
        return refuse(w, "sums over two dimensions");
    }
    bool known = w->tiles.left == a->lhs && w->tiles.right == a->rhs;
    return known ? SX_OK : refuse(w, "other staged arguments than the factors");
}

/* How many threads there are, and whether their sums fit into registers. */
static sx_code check_threads(lowering *w)
{
    const sx_block_tiles *t = &w->tiles;
    const sx_matrix_instruction *m = w->tile->matrix;
    int64_t together = m != NULL && m->warps > 1 ? m->warps : 1, loading = together > 1 ? 1 : 0;
    int64_t warps = t->rows / t->warp_rows * (t->columns / t->warp_columns) * together + loading;
    int64_t words = w->l.kernel->lane_bytes / 4;
    int64_t sums =
        t->warp_rows * t->warp_columns / (32 * together) * words * (t->slice != 0 ? 2 : 1);
    int64_t factors = loading != 0 ? 0
                      : m != NULL  ? (t->warp_rows + t->warp_columns) / 4
                                   : (t->thread_rows + t->thread_columns) * 4;
    /* a thread gets a multiple of 8 */
    int64_t most = sx_min_i64(255, w->unit->registers / (32 * warps) / 8 * 8);
    if (warps * 32 > w->unit->threads || sums + factors + OTHER_REGISTERS > most) {
        return SX_FAIL(
            w->l.cx, SX_LIMIT,
            "kernel %s: blocks of %lld threads with about %lld registers, at most %u and %lld",
            w->l.kernel->name, (long long)warps * 32, (long long)(sums + factors + OTHER_REGISTERS),
            w->unit->threads, (long long)most);
    }
    w->tile->threads = (uint32_t)warps * 32;
    w->tile->by_engine = loading != 0;
    return SX_OK;
}

static sx_code check_tiles(lowering *w)
{
    const sx_block_tiles *t = &w->tiles;
    const int64_t all[] = {t->rows, t->columns, t->steps, t->warp_rows, t->warp_columns};
    for (uint32_t i = 0; i < SX_COUNT(all); i++) {
        if (!power_of_two(all[i]) || all[i] > 1024) {
            return refuse(w, "extents that are no powers of two up to 1024");
        }
    }
    const sx_matrix_instruction *m = w->tile->matrix;
    if (t->apart || t->slice != w->tile->slice ||
        t->slice % t->steps != 0) { /* the numerics plan decides */
        return refuse(w, "sums in other slices than those of their plan");
    }
    int64_t unit_rows = m != NULL ? m->rows : t->thread_rows;
    int64_t unit_columns = m != NULL ? m->columns : t->thread_columns;
    int64_t unit_steps = m != NULL ? m->steps : SX_TILE_COPY_BYTES_MAX / w->l.kernel->lane_bytes;
    bool fits = t->warp_rows <= t->rows && t->warp_columns <= t->columns && t->depth >= 2 &&
                t->depth <= SX_BLOCK_DEPTH_MAX && power_of_two(unit_rows) &&
                power_of_two(unit_columns) && unit_rows <= t->warp_rows &&
                unit_columns <= t->warp_columns && unit_steps <= t->steps;
    int64_t lanes = fits ? t->warp_rows / unit_rows * (t->warp_columns / unit_columns) : 0;
    if (!fits || (m == NULL && lanes != 32)) {
        return refuse(w, "warps that are no whole number of threads or matrices");
    }
    if (t->stores > SX_BLOCK_STORES_MAX || (t->stores > 0 && (m == NULL || m->warps == 1))) {
        return refuse(w, "results through these slots of shared memory");
    }
    if (t->walkers > 0 && (m == NULL || m->warps == 1)) {
        return refuse(w, "several tiles in turn, without a copy engine");
    }
    if (t->walkers > 0 && w->l.analysis->steady) {
        return refuse(w, "several tiles in turn, by one program for several extents");
    }
    if (m != NULL && m->warps > 1 && t->warp_columns != m->columns) {
        return refuse(w, "several instructions side by side for the same warps");
    }
    if (m != NULL && m->warps > 1 &&
        t->rows / t->warp_rows * (t->columns / t->warp_columns) >= SX_ROLES_MAX) {
        return refuse(w, "more groups of warps than a ring has roles");
    }
    if ((t->cluster_rows != 0 || t->cluster_columns != 0) &&
        (m == NULL || m->warps == 1 || t->cluster_rows + t->cluster_columns != SX_BLOCK_CLUSTER)) {
        return refuse(w, "these clusters");
    }
    w->warp_bits[SX_SIDE_ROW] = sx_tile_log2(t->rows / t->warp_rows);
    w->warp_bits[SX_SIDE_COLUMN] = sx_tile_log2(t->columns / t->warp_columns);
    return check_threads(w);
}

static void measure(lowering *w)
{
    const sx_analysis *a = w->l.analysis;
    sx_tile *tile = w->tile;
    tile->rows = a->extent[SX_ROLE_ROW];
    tile->columns = a->extent[SX_ROLE_COLUMN];
    tile->sum = a->extent[SX_ROLE_SUM];
    for (uint32_t d = 0; d < a->view.rank; d++) {
        if (!a->view.reduced[d] && a->role[d] == SX_ROLE_BATCH) {
            tile->batch[tile->batch_count++] = a->view.extent[d];
        }
    }
    tile->block_rows = (uint32_t)w->tiles.rows;
    tile->block_columns = (uint32_t)w->tiles.columns;
    tile->block_steps = (uint32_t)w->tiles.steps;
    tile->raster = w->tiles.raster;
    tile->walkers = w->tiles.walkers;
    tile->cluster_rows = w->tiles.cluster_rows;
    tile->cluster_columns = w->tiles.cluster_columns;
}

/* ---- the kernel ---- */
/* The ring, and behind it the slots through which the copy engine stores the result. */
static sx_code place_slots(lowering *w)
{
    sx_tile *tile = w->tile;
    sx_slot slab[SX_ROLES_MAX * SX_BLOCK_STORES_MAX];
    uint32_t offset[SX_COUNT(slab)] = {0}, count = 0;
    tile->store.depth = w->tiles.stores;
    if (tile->store.depth > 0) {
        SX_TRY(sx_tile_store_of(w->l.cx, tile, w->l.out_dtype, &tile->store));
        count = tile->store.depth * sx_tile_groups(tile);
        SX_ASSERT(count <= SX_COUNT(slab));
    }
    for (uint32_t i = 0; i < count; i++) {
        slab[i] = tile->store.slot;
    }
    SX_TRY(sx_smem_place(w->l.cx, &tile->ring, 1, slab, count, offset, &tile->shared_bytes));
    tile->store.offset = offset[0];
    return SX_OK;
}

static sx_code make_ring(lowering *w)
{
    sx_tile *tile = w->tile;
    const sx_analysis *a = w->l.analysis;
    view_of(w, a->row, a->lhs, &tile->operand[SX_TILE_LEFT]);
    view_of(w, a->column, a->rhs, &tile->operand[SX_TILE_RIGHT]);
    SX_TRY(tile->by_engine ? make_engine_ring(w) : make_thread_ring(w));
    SX_TRY(place_slots(w));
    if (tile->shared_bytes > w->unit->shared_bytes) {
        return SX_FAIL(w->l.cx, SX_LIMIT, "kernel %s: %u bytes of shared memory, at most %u",
                       w->l.kernel->name, tile->shared_bytes, w->unit->shared_bytes);
    }
    return SX_OK;
}

static sx_code make_part(lowering *w)
{
    sx_tile *tile = w->tile;
    sx_part *part = &w->l.kernel->part[0];
    *part = (sx_part){.tile = tile, .var_count = 3};
    int64_t points;
    if (!sx_tile_grid(tile, part->grid)) {
        return refuse(w, "several matrices, or other numbers of rows, that are visited together");
    }
    if (tile->walkers > 0 && !sx_grid_can_walk(part->grid, &points)) {
        return refuse(w, "more tiles than can be counted");
    }
    uint32_t cluster[3];
    if (!sx_tile_cluster(tile, part->grid, cluster)) {
        return refuse(w, "clusters that do not divide them");
    }
    if (!sx_tile_cluster_walks(tile, cluster)) {
        return refuse(w, "clusters that walk, by half or of blocks that do not follow each other");
    }
    return sx_grid_fits(part->grid)
               ? sx_tile_check(w->l.cx, w->l.kernel, part)
               : SX_FAIL(w->l.cx, SX_LIMIT,
                         "kernel %s: %lld x %lld x %lld blocks, more than a launch has",
                         w->l.kernel->name, (long long)part->grid[0], (long long)part->grid[1],
                         (long long)part->grid[2]);
}

sx_code sx_tile_lower_dot(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                          const sx_analysis *a, const sx_schedule *schedule, sx_kernel **kernel)
{
    SX_ASSERT(unit->vectors != NULL && unit->vectors->threads);
    lowering *w = SX_NEW(cx, lowering);
    sx_tile *tile = SX_NEW(cx, sx_tile);
    if (w == NULL || tile == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_schedule_check(cx, schedule, a));
    bool blocks = sx_block_tiles_of(schedule, &w->tiles);
    sx_analysis_of_blocks(a, &w->analysis);
    if (blocks && w->tiles.swapped) {
        sx_analysis_swap(&w->analysis);
    }
    a = &w->analysis;
    w->unit = unit;
    w->tile = tile;
    w->l = (sx_lower){.cx = cx,
                      .analysis = a,
                      .schedule = schedule,
                      .unit = unit->vectors,
                      .body = a->fused->body,
                      .view = a->view,
                      .lanes = unit->vectors->lanes};
    SX_TRY(sx_kernel_make(cx, name, w->l.lanes, a->lane_bytes, &w->l.kernel));
    if (!blocks) {
        return refuse(w, "a schedule of another form");
    }
    SX_TRY(check_kernel(w));
    SX_TRY(choose_matrix(w));
    SX_TRY(check_tiles(w));
    sx_tile_add_buffers(&w->l, w->l.analysis);
    w->l.kernel->numerics = sx_tile_numerics(unit, a, tile->matrix, tile->slice);
    measure(w);
    tile->by_engine ? make_engine_roles(tile) : sx_tile_make_roles(tile);
    SX_TRY(make_map(w));
    SX_TRY(make_ring(w));
    SX_TRY(make_part(w));
    *kernel = w->l.kernel;
    return SX_OK;
}
