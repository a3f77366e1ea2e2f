/* block.c - do the blocks of a tile program compute, element by element, what its unfolded form says?
 *
 * The unfolded form (core/tile/unfold.h) is proven against the body like any program of the loop IR. What is left is
 * read off the program of the block, in terms of its rules (core/tile/program.h): the grid and the block cover rows and
 * columns; threads hold each sum once, and beside it the factors that it needs; slots keep their elements apart; each
 * stage of k is fetched whole, once, in order, and multiplied between the moment that it is full and the moment that it
 * is free, whatever the order in which roles run; each element's program stands for itself and stores one place. */
#include "core/judge/block.h"

#include <string.h>

#include "core/base/grid.h"
#include "core/tile/fragment.h"
#include "core/tile/online.h"

#define THREADS_MAX 1024U

static const char *const side_name[] = {"left", "right", "second"};

/* ---- the grid and the block ---- */

/* Blocks that compute several points in turn: the points are counted without overflow, and what a point leaves behind
 * is nothing but uses of the ring, which are counted on (check_roles takes two points, one after the other): its sums
 * begin with a FILL, and no thread holds factors of another point. */
static bool check_walk(const sx_block *b, const int64_t grid[3])
{
    int64_t points;
    bool ok = b->t->walkers == 0 ||
              (b->t->by_engine && b->t->online == NULL && sx_grid_can_walk(grid, &points));
    if (!ok) {
        (void)sx_refuse(b->g, "%u blocks walk over a grid without a copy engine, or too large",
                        b->t->walkers);
        return false;
    }
    /* Blocks of a cluster share what each of them reads of one factor: at every point they are neighbours on the side
     * of the other one. Points are counted along the columns; along the rows where these are visited together. */
    const sx_tile *t = b->t;
    uint32_t along = t->raster > 0 ? t->cluster_rows : t->cluster_columns;
    uint32_t across = t->raster > 0 ? t->cluster_columns : t->cluster_rows;
    if (t->walkers > 0 && (across > 1 || (along > 1 && t->walkers % along != 0))) {
        (void)sx_refuse(b->g, "%u blocks walk in clusters of %u x %u that do not stay together",
                        t->walkers, t->cluster_rows, t->cluster_columns);
        return false;
    }
    return true;
}

bool sx_block_check_grid(const sx_block *b)
{
    const sx_tile *t = b->t;
    int64_t batches = 1;
    bool ok = t->threads >= SX_BLOCK_WARP && t->threads % SX_BLOCK_WARP == 0 &&
              t->threads <= THREADS_MAX && t->block_rows > 0 && t->block_columns > 0 &&
              t->block_steps > 0;
    if (!ok) {
        (void)sx_refuse(b->g, "a block of %u threads for %u rows, %u columns, %u steps", t->threads,
                        t->block_rows, t->block_columns, t->block_steps);
        return false;
    }
    for (uint32_t k = 0; k < t->batch_count; k++) {
        ok = ok && sx_mul_i64(batches, t->batch[k], &batches);
    }
    int64_t rows = sx_ceil_div_i64(t->rows, t->block_rows);
    int64_t columns = sx_ceil_div_i64(t->columns, t->block_columns);
    const int64_t *grid = b->part->grid;
    bool together = t->raster > 0; /* points are (group of rows, column, row of the group) */
    ok = ok && (together ? batches == 1 && grid[0] * t->raster == rows && grid[1] == columns &&
                               grid[2] == t->raster && !sx_grid_is_folded(grid)
                         : grid[0] == batches && grid[1] == rows && grid[2] == columns);
    if (!ok) {
        (void)sx_refuse(b->g, "the grid is not that of %lld matrices in %lld x %lld blocks",
                        (long long)batches, (long long)rows, (long long)columns);
        return false;
    }
    uint32_t along[2] = {t->cluster_rows > 1 ? t->cluster_rows : 1,
                         t->cluster_columns > 1 ? t->cluster_columns : 1};
    bool clusters = along[0] * along[1] > 1;
    if (clusters &&
        (!t->by_engine || t->online != NULL || rows % along[0] != 0 || columns % along[1] != 0 ||
         sx_grid_is_folded(grid) || (together && t->raster % along[0] != 0))) {
        (void)sx_refuse(b->g, "clusters of %u x %u blocks do not divide the grid", along[0],
                        along[1]);
        return false;
    }
    if (!sx_grid_fits(b->part->grid)) {
        (void)sx_refuse(b->g, "%lld x %lld x %lld blocks, more than a launch has",
                        (long long)batches, (long long)rows, (long long)columns);
        return false;
    }
    return check_walk(b, grid);
}

/* |stride| * extent, summed up; false beyond what a kernel may reach. */
static bool reaches(int64_t *sum, int64_t stride, int64_t extent)
{
    int64_t product;
    return stride > INT64_MIN && sx_mul_i64(stride < 0 ? -stride : stride, extent, &product) &&
           sx_add_i64(*sum, product, sum) && *sum <= SX_LOOP_BYTES_MAX;
}

/* Both arguments end at the same k, and each at the end of its side: behind that both are zero, so that no product has
 * a zero of one and an infinity of the other. Addresses of whole blocks do not overflow. */
bool sx_block_check_view(const sx_block *b, uint32_t k)
{
    const sx_tile *t = b->t;
    const sx_tile_view *v = &t->operand[k].view;
    int64_t side = k == SX_TILE_RIGHT ? t->columns : t->rows;
    int64_t whole = k == SX_TILE_RIGHT ? t->block_columns : t->block_rows;
    if (v->side_extent != side || v->sum_extent != t->sum) {
        (void)sx_refuse(b->g, "the %s argument is %lld by %lld steps, not %lld by %lld",
                        side_name[k], (long long)v->side_extent, (long long)v->sum_extent,
                        (long long)side, (long long)t->sum);
        return false;
    }
    int64_t sum = 0;
    int64_t steps = t->block_steps;
    bool ok = reaches(&sum, v->offset, 1) &&
              reaches(&sum, v->side_stride, sx_ceil_div_i64(side, whole) * whole) &&
              reaches(&sum, v->sum_stride, sx_ceil_div_i64(t->sum, steps) * steps);
    for (uint32_t i = 0; ok && i < t->batch_count; i++) {
        ok = reaches(&sum, v->batch_stride[i], t->batch[i]);
    }
    if (!ok || sum > SX_LOOP_BYTES_MAX / sx_dtype_bytes(v->element)) {
        (void)sx_refuse(b->g, "addresses of the %s argument overflow", side_name[k]);
        return false;
    }
    return true;
}

/* Each slice ends with a stage, so that what is added up are the sums of whole ones. */
static bool check_slices(const sx_block *b)
{
    const sx_tile *t = b->t;
    bool ok = t->slice == 0 || (t->matrix != NULL && t->slice > 0 && t->slice < t->sum &&
                                t->slice % t->block_steps == 0 && t->sum % t->slice == 0);
    if (!ok) {
        (void)sx_refuse(b->g, "%lld steps are not cut in slices of %lld, whole stages of %u",
                        (long long)t->sum, (long long)t->slice, t->block_steps);
    }
    return ok;
}

/* ---- shared memory ---- */

/* A slot has a place of its own for each element of the tile. Exchanging bits 4 to 6 moves bytes within 128. */
bool sx_block_check_slot(const sx_block *b, uint32_t k)
{
    const sx_tile_operand *o = &b->t->operand[k];
    const sx_slot *s = &b->t->ring.slot[k];
    uint32_t side = k == SX_TILE_RIGHT ? b->t->block_columns : b->t->block_rows;
    uint64_t rows = o->sum_inner ? side : b->t->block_steps;
    uint64_t row = (uint64_t)(o->sum_inner ? b->t->block_steps : side) *
                   (uint64_t)sx_dtype_bytes(o->view.element);
    bool ok = s->rows == rows && s->panel_bytes >= 16 && s->panel_bytes % 16 == 0 &&
              s->pitch >= s->panel_bytes && s->pitch % 16 == 0 && s->swizzle < SX_SWIZZLE_COUNT &&
              (uint64_t)s->panels * s->panel_bytes >= row && s->bytes % SX_SLOT_UNIT == 0 &&
              s->bytes <= SX_SMEM_BYTES_MAX && s->panels <= s->bytes && s->pitch <= s->bytes &&
              (uint64_t)s->panels * s->pitch <= s->bytes / rows;
    if (!ok) {
        (void)sx_refuse(b->g, "the slot of the %s argument does not hold %llu rows of %llu bytes",
                        side_name[k], (unsigned long long)rows, (unsigned long long)row);
    }
    return ok;
}

bool sx_block_check_shared(const sx_block *b)
{
    const sx_tile *t = b->t;
    const sx_ring *r = &t->ring;
    uint64_t boxes = 0; // of the copy engine, which leaves no gaps
    for (uint32_t k = 0; t->by_engine && k < 2; k++) {
        boxes += (uint64_t)r->slot[k].rows * r->slot[k].panels * r->slot[k].panel_bytes;
    }
    if (r->slot_count != sx_tile_operands(t) || r->depth == 0 || r->depth > SX_RING_DEPTH_MAX ||
        r->tx_bytes != boxes) {
        (void)sx_refuse(b->g, "a ring of %u slots, %u stages, %u bytes of the copy engine",
                        r->slot_count, r->depth, r->tx_bytes);
        return false;
    }
    for (uint32_t k = 0; k < r->slot_count; k++) {
        if (!sx_block_check_slot(b, k)) {
            return false;
        }
    }
    uint64_t first = r->offset;
    uint64_t end = first + (uint64_t)sx_ring_stage_bytes(r) * r->depth;
    uint64_t barrier = r->barriers;
    uint64_t barriers_end = barrier + UINT64_C(16) * r->depth;
    bool apart = barriers_end <= first || barrier >= end;
    if (first % SX_SLOT_UNIT != 0 || barrier % 8 != 0 || !apart || end > t->shared_bytes ||
        barriers_end > t->shared_bytes || t->shared_bytes > SX_SMEM_BYTES_MAX) {
        (void)sx_refuse(b->g, "%u stages do not lie apart from their barriers in %u bytes",
                        r->depth, t->shared_bytes);
        return false;
    }
    return true;
}

/* Copies are aligned at both ends: tensors begin at multiples of 64 bytes, and blocks at multiples of their sides. */
bool sx_block_check_copies(const sx_block *b, uint32_t k)
{
    const sx_tile *t = b->t;
    const sx_tile_operand *o = &t->operand[k];
    const sx_tile_view *v = &o->view;
    int64_t bytes = sx_dtype_bytes(v->element);
    int64_t copy = o->copy_bytes;
    bool ok = copy == bytes;
    if (!ok && copy > bytes && (copy == 4 || copy == 8 || copy == 16)) {
        int64_t block_side = k == SX_TILE_RIGHT ? t->block_columns : t->block_rows;
        int64_t row = o->sum_inner ? t->block_steps : block_side;
        int64_t next = o->sum_inner ? v->sum_stride : v->side_stride;
        int64_t other = o->sum_inner ? v->side_stride : v->sum_stride;
        int64_t others = o->sum_inner ? v->side_extent : v->sum_extent;
        ok = next == 1 && row * bytes % copy == 0 && v->offset * bytes % copy == 0 &&
             (others == 1 || other * bytes % copy == 0);
        for (uint32_t i = 0; ok && i < t->batch_count; i++) {
            ok = t->batch[i] == 1 || v->batch_stride[i] * bytes % copy == 0;
        }
    }
    if (!ok) {
        (void)sx_refuse(b->g, "copies of %u bytes of the %s argument are not aligned",
                        o->copy_bytes, side_name[k]);
    }
    return ok;
}

/* ---- who holds what ---- */

/* One warp's lanes, `warps` warps, one block, and a tile of these sides. */
bool sx_block_has_sides(const sx_layout *layout, uint32_t warps, uint64_t rows, uint64_t columns)
{
    return layout->bits[SX_HOME_LANE] == 5 && sx_layout_count(layout, SX_HOME_WARP) == warps &&
           sx_layout_count(layout, SX_HOME_RANK) == 1 &&
           sx_layout_side(layout, SX_SIDE_ROW) == rows &&
           sx_layout_side(layout, SX_SIDE_COLUMN) == columns;
}

/* Each element of the slot is copied by one thread: bits of a thread that move nothing mark those that copy nothing,
 * all others lead to elements of their own. A copy's elements lie side by side, and begin where copies may. */
sx_code sx_block_check_copied(const sx_block *b, uint32_t k, uint32_t warps)
{
    const sx_tile_operand *o = &b->t->operand[k];
    const sx_layout *copied = &o->copied;
    uint32_t side = k == SX_TILE_RIGHT ? b->t->block_columns : b->t->block_rows;
    uint32_t steps = b->t->block_steps, moving = 0;
    SX_TRY(sx_layout_check(b->j->cx, copied));
    sx_linear map = sx_layout_linear(copied);
    for (uint32_t i = 0; i < map.input_bits; i++) {
        moving += map.column[i] != 0 ? 1U : 0U;
    }
    if (!sx_block_has_sides(copied, warps, o->sum_inner ? side : steps,
                            o->sum_inner ? steps : side) ||
        copied->mode_count != 0 || !sx_layout_covers(copied) || moving != sx_linear_rank(&map) ||
        sx_layout_replica_bits(copied, SX_HOME_REGISTER) != 0 ||
        sx_layout_vector(copied) * sx_dtype_bytes(o->view.element) < o->copy_bytes) {
        (void)sx_refuse(b->g, "%u warps do not copy each element of the %s argument once", warps,
                        side_name[k]);
    }
    return SX_OK;
}

/* How many warps stand still while the index of mode `at` moves by one. */
static uint32_t weight(const sx_layout *layout, uint32_t at)
{
    uint32_t warps = 1U << layout->bits[SX_HOME_WARP];
    for (uint32_t i = 0; i < at; i++) {
        warps *= layout->mode[i].home == SX_HOME_WARP ? layout->mode[i].extent : 1U;
    }
    return warps;
}

static uint32_t step_of(const sx_layout_mode *mode, sx_side side)
{
    return side == SX_SIDE_ROW ? mode->row : mode->column;
}

/* The modes of both along the side that they share: the same steps, by registers of both or by the same warps. Steps of
 * k are modes of registers. */
static bool modes_agree(const sx_layout *sums, const sx_layout *factor, sx_side shared)
{
    sx_side other = shared == SX_SIDE_ROW ? SX_SIDE_COLUMN : SX_SIDE_ROW;
    for (uint32_t i = 0; i < factor->mode_count; i++) {
        const sx_layout_mode *mode = &factor->mode[i];
        if (step_of(mode, other) != 0 && mode->home != SX_HOME_REGISTER) {
            return false;
        }
        bool found = step_of(mode, shared) == 0;
        for (uint32_t k = 0; !found && k < sums->mode_count; k++) {
            const sx_layout_mode *sum = &sums->mode[k];
            found = step_of(sum, shared) == step_of(mode, shared) && sum->extent == mode->extent &&
                    (mode->home == SX_HOME_REGISTER ||
                     (sum->home == SX_HOME_WARP && weight(sums, k) == weight(factor, i)));
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

/* Does each thread hold, beside its sums, the factors at their rows (or columns) for all k of a group, and all threads
 * in the same registers?
 *
 * Both layouts are linear. So it is enough that each bit of a register of the sums, and of k, leads to what some
 * register of the factors holds, and that each bit of lane and warp moves sums and factors along the shared side
 * alike, and no factor along k. */
bool sx_block_holds_factors(const sx_layout *sum_layout, const sx_layout *factor_layout,
                            sx_side shared)
{
    sx_layout sums = sx_layout_normal(sum_layout);
    sx_layout factor = sx_layout_normal(factor_layout);
    sx_side k_side = shared == SX_SIDE_ROW ? SX_SIDE_COLUMN : SX_SIDE_ROW;
    if (sums.side_bits[shared] != factor.side_bits[shared] ||
        sums.bits[SX_HOME_LANE] != factor.bits[SX_HOME_LANE] ||
        !modes_agree(&sums, &factor, shared)) {
        return false;
    }
    sx_linear map = sx_layout_linear(&factor);
    uint32_t registers = (1U << factor.bits[SX_HOME_REGISTER]) - 1U;
    uint32_t columns = factor.side_bits[SX_SIDE_COLUMN], unused;
    uint32_t at_row = shared == SX_SIDE_ROW ? columns : 0; // where the shared side's bits stand
    for (uint32_t i = 0; i < factor.side_bits[k_side]; i++) {
        uint32_t step = 1U << (i + (shared == SX_SIDE_ROW ? 0 : columns));
        if (!sx_linear_solve(&map, registers, step, &unused)) {
            return false;
        }
    }
    static const sx_home homes[] = {SX_HOME_REGISTER, SX_HOME_LANE, SX_HOME_WARP};
    for (uint32_t h = 0; h < SX_COUNT(homes); h++) {
        uint32_t own = sx_layout_first(&sums, homes[h]);
        uint32_t its = sx_layout_first(&factor, homes[h]);
        uint32_t bits = sums.bits[homes[h]], same = factor.bits[homes[h]];
        if (homes[h] == SX_HOME_WARP && bits != same) {
            return false; // digits of modes would be those of other warps
        }
        for (uint32_t i = 0; i < bits; i++) {
            uint32_t at = sums.column[own + i];
            uint32_t along = shared == SX_SIDE_ROW ? sx_at_row(at) : sx_at_column(at);
            bool found = homes[h] == SX_HOME_REGISTER
                             ? sx_linear_solve(&map, registers, along << at_row, &unused)
                             : along << at_row == map.column[its + i];
            if (!found) {
                return false;
            }
        }
    }
    return true;
}

/* Layouts in units of the fragments of the matrix instruction; false where they are not made of them. The registers of
 * a fragment follow each other, as operands of an instruction do. */
bool sx_block_in_fragments(const sx_block *b, sx_operand operand, const sx_layout *layout,
                           sx_layout *repeats)
{
    const sx_matrix_instruction *m = b->t->matrix;
    sx_layout fragment;
    sx_quotient quotient;
    bool group = b->t->by_engine; // four warps, each of which has 16 of 64 rows
    if (m->rows != (group ? 64U : 16U) || (!group && m->columns != 8) ||
        sx_fragment_find(b->j->cx, group ? SX_WGMMA : SX_MMA_SYNC, operand, m->factor, m->columns,
                         m->steps, &fragment) != SX_OK) {
        return false;
    }
    fragment = sx_layout_normal(&fragment);
    if (!sx_layout_divide(layout, &fragment, &quotient)) {
        return false;
    }
    for (uint32_t i = 0; i < fragment.bits[SX_HOME_REGISTER]; i++) {
        if (quotient.atom_bit[i] != i) {
            return false;
        }
    }
    *repeats = quotient.repeats;
    return true;
}

static sx_code valid_layouts(const sx_block *b, uint32_t warps)
{
    const sx_tile *t = b->t;
    SX_TRY(sx_layout_check(b->j->cx, &t->held));
    if (!sx_block_has_sides(&t->held, warps, t->block_rows, t->block_columns) ||
        !sx_layout_covers(&t->held) || !sx_layout_unique(&t->held)) {
        (void)sx_refuse(b->g, "the block's %u x %u sums are not held once each by %u warps",
                        t->block_rows, t->block_columns, warps);
        return SX_OK;
    }
    for (uint32_t k = 0; !t->by_engine && k < 2; k++) {
        const sx_tile_operand *o = &t->operand[k];
        uint32_t side = k == SX_TILE_RIGHT ? t->block_columns : t->block_rows;
        SX_TRY(sx_layout_check(b->j->cx, &o->held));
        if (o->group == 0 || t->block_steps % o->group != 0 ||
            !sx_block_has_sides(&o->held, warps, o->sum_inner ? side : o->group,
                                o->sum_inner ? o->group : side)) {
            (void)sx_refuse(b->g, "the %s argument is not held in groups of %u steps by %u warps",
                            side_name[k], o->group, warps);
            return SX_OK;
        }
    }
    return SX_OK;
}

/* The instruction takes elements of this type, adds them up in a lane's own, and stages are whole groups of it. */
static bool check_matrix(const sx_block *b)
{
    const sx_tile *t = b->t;
    const sx_matrix_instruction *m = t->matrix;
    bool ok = m == NULL ||
              (m->factor == t->operand[0].view.element && m->factor == t->operand[1].view.element &&
               sx_dtype_bytes(m->sum) == b->kernel->lane_bytes &&
               sx_dtype_class_of(m->sum) == sx_dtype_class_of(m->factor) && m->steps > 0 &&
               (t->by_engine ? t->block_steps % m->steps == 0
                             : t->operand[0].group == t->operand[1].group &&
                                   t->operand[0].group % m->steps == 0));
    if (!ok) {
        (void)sx_refuse(b->g, "%s does not multiply these arguments", m->name);
    }
    return ok;
}

/* Instructions of four warps read factors where the copy engine has put them: the rows and columns of their sums, in
 * slots that they can read. */
static sx_code check_groups(const sx_block *b, uint32_t warps)
{
    const sx_tile *t = b->t;
    const sx_matrix_instruction *m = t->matrix;
    sx_layout repeats;
    sx_wgmma_operand operand[2];
    for (uint32_t k = 0; k < 2; k++) {
        SX_TRY(sx_wgmma_operand_make(b->j->cx, &t->ring.slot[k], m->factor,
                                     t->operand[k].sum_inner ? SX_MAJOR_K : SX_MAJOR_MN,
                                     &operand[k]));
    }
    bool begins = (m->rows % operand[0].mn_unit == 0 || t->block_rows == m->rows) &&
                  (m->columns % operand[1].mn_unit == 0 || t->block_columns == m->columns) &&
                  m->steps % operand[0].k_unit == 0 && m->steps % operand[1].k_unit == 0;
    if (warps % 4 != 0 || !begins || !sx_block_in_fragments(b, SX_OPERAND_C, &t->held, &repeats)) {
        (void)sx_refuse(b->g, "%u warps do not hold the sums of whole instructions", warps);
    }
    return SX_OK;
}

static sx_code check_held(const sx_block *b, uint32_t warps)
{
    const sx_tile *t = b->t;
    SX_TRY(valid_layouts(b, warps));
    if (b->g->refused || !check_matrix(b)) {
        return SX_OK;
    }
    if (t->by_engine) {
        return check_groups(b, warps);
    }
    static const sx_operand operands[2] = {SX_OPERAND_A, SX_OPERAND_B};
    for (uint32_t k = 0; k < 2; k++) {
        sx_layout sums = t->held;
        /* rows by k, and k by columns, as a product is written */
        bool as_written = t->operand[k].sum_inner == (k == SX_TILE_LEFT);
        sx_layout factor =
            as_written ? t->operand[k].held : sx_layout_transpose(&t->operand[k].held);
        bool whole = t->matrix == NULL || (sx_block_in_fragments(b, SX_OPERAND_C, &sums, &sums) &&
                                           sx_block_in_fragments(b, operands[k], &factor, &factor));
        if (!whole || !sx_block_holds_factors(&sums, &factor,
                                              k == SX_TILE_LEFT ? SX_SIDE_ROW : SX_SIDE_COLUMN)) {
            (void)sx_refuse(b->g, "threads do not hold the %s factors of their sums", side_name[k]);
            return b->j->cx->error.code;
        }
    }
    return SX_OK;
}

/* ---- roles ---- */

/* What a role does, as far as it was read. */
typedef struct {
    sx_step step[SX_TILE_ITEMS_MAX];
    uint32_t count;
    bool looped, in_loop;
    bool acquired, published, waited, multiplied, filled, mapped;
    bool engine, settled; /* products end later than their item, until they are settled */
    uint32_t fetched[SX_TILE_OPERANDS_MAX];
    uint32_t back_max; /* of the releases in the loop */
} role_state;

static bool read_item(const sx_tile_item *item, role_state *s)
{
    bool behind = s->looped && !s->in_loop;
    switch (item->op) {
    case SX_TILE_ACQUIRE: {
        bool ok = s->in_loop && !s->acquired;
        s->acquired = true;
        return ok;
    }
    case SX_TILE_FETCH:
        return s->acquired && s->in_loop && !s->published && item->operand < SX_TILE_OPERANDS_MAX &&
               s->fetched[item->operand]++ == 0;
    case SX_TILE_PUBLISH: {
        bool ok = s->in_loop && s->acquired && !s->published;
        s->published = true;
        return ok;
    }
    case SX_TILE_FILL: {
        bool ok = !s->looped && !s->filled;
        s->filled = true;
        return ok;
    }
    case SX_TILE_WAIT: {
        bool ok = s->in_loop && !s->waited;
        s->waited = true;
        return ok;
    }
    case SX_TILE_MULTIPLY: {
        bool ok = s->in_loop && s->waited && !s->multiplied;
        s->multiplied = true;
        return ok;
    }
    case SX_TILE_SETTLE:
        s->settled = behind && item->back == 0;
        return s->multiplied && item->back < SX_RING_DEPTH_MAX;
    case SX_TILE_RELEASE:
        /* before this stage's wait the one of the iteration before is the last */
        s->back_max = s->in_loop && item->back > s->back_max ? item->back : s->back_max;
        return s->looped && item->back < SX_RING_DEPTH_MAX &&
               (behind || s->multiplied || !s->waited || item->back > 0);
    case SX_TILE_MAP: {
        bool ok = behind && !s->mapped && (s->settled || !s->engine);
        s->mapped = true;
        return ok;
    }
    case SX_TILE_LOOP: {
        bool ok = !s->looped;
        s->looped = s->in_loop = true;
        return ok;
    }
    case SX_TILE_END: {
        bool ok = s->in_loop;
        s->in_loop = false;
        return ok;
    }
    }
    return false;
}

static void put_step(const sx_tile_item *item, role_state *s)
{
    sx_step step = {.back = (uint8_t)item->back};
    switch (item->op) {
    case SX_TILE_ACQUIRE: step.op = SX_STEP_ACQUIRE; break;
    case SX_TILE_PUBLISH: step.op = SX_STEP_PUBLISH; break;
    case SX_TILE_WAIT: step.op = SX_STEP_WAIT; break;
    case SX_TILE_RELEASE: step.op = SX_STEP_RELEASE; break;
    case SX_TILE_SETTLE: step.op = SX_STEP_SETTLE; break;
    case SX_TILE_MULTIPLY:
        if (!s->engine) {
            return;
        }
        step.op = SX_STEP_READ;
        break;
    case SX_TILE_FETCH:
    case SX_TILE_FILL:
    case SX_TILE_MAP:
    case SX_TILE_LOOP:
    case SX_TILE_END: return;
    }
    s->step[s->count++] = step;
}

/* Its loop, with one stage acquired, fetched and published, or waited for, multiplied and released, in each turn. */
static bool read_role(const sx_block *b, const sx_tile_role *role, role_state *s,
                      sx_role_steps *steps)
{
    bool ok = role->item_count <= SX_TILE_ITEMS_MAX && role->warps > 0 &&
              role->warps <= b->t->threads / SX_BLOCK_WARP &&
              role->first_warp <= b->t->threads / SX_BLOCK_WARP - role->warps;
    for (uint32_t i = 0; ok && i < role->item_count; i++) {
        ok = read_item(&role->item[i], s);
        put_step(&role->item[i], s);
        if (role->item[i].op == SX_TILE_END) {
            steps->body_count = s->count;
        }
    }
    bool computes = s->filled && s->waited && s->multiplied && s->mapped;
    bool none = !s->filled && !s->waited && !s->multiplied && !s->mapped;
    bool fetches = s->fetched[0] + s->fetched[1] + s->fetched[2] > 0;
    if (!ok || s->in_loop || !s->looped || (!computes && !none) || s->acquired != s->published ||
        s->acquired != fetches) {
        (void)sx_refuse(b->g, "role %.24s: not a loop that hands on one stage in each turn",
                        role->name);
        return false;
    }
    steps->name = role->name;
    steps->body = s->step;
    steps->tail = s->step + steps->body_count;
    steps->tail_count = s->count - steps->body_count;
    return true;
}

static bool same_steps(const sx_role_steps *x, const sx_role_steps *y)
{
    uint32_t count = x->body_count + x->tail_count;
    bool same = x->body_count == y->body_count && x->tail_count == y->tail_count;
    for (uint32_t i = 0; same && i < count; i++) { // the tail follows the body
        same = x->body[i].op == y->body[i].op && x->body[i].back == y->body[i].back;
    }
    return same;
}

/* All interleavings; what was found right before is not gone through again. */
static sx_code check_ring(const sx_block *b, const sx_role_steps *steps, uint32_t roles)
{
    const sx_ring *r = &b->t->ring;
    sx_proven_ring *known = b->j->ring;
    for (uint32_t i = 0; i < b->j->ring_count; i++) {
        bool same = known[i].depth == r->depth && known[i].full == r->full_arrivals &&
                    known[i].empty == r->empty_arrivals && known[i].roles == roles;
        for (uint32_t k = 0; same && k < roles; k++) {
            sx_role_steps its = {.body = known[i].step[k],
                                 .body_count = known[i].body[k],
                                 .tail_count = known[i].tail[k]};
            same = same_steps(&its, &steps[k]);
        }
        if (same) {
            return SX_OK;
        }
    }
    SX_TRY(sx_rings_check(b->j->cx, r, 1, steps, roles));
    sx_proven_ring *next = &known[b->j->ring_next++ % SX_PROVEN_RINGS];
    b->j->ring_count = b->j->ring_count < SX_PROVEN_RINGS ? b->j->ring_count + 1 : SX_PROVEN_RINGS;
    *next = (sx_proven_ring){
        .depth = r->depth, .full = r->full_arrivals, .empty = r->empty_arrivals, .roles = roles};
    for (uint32_t k = 0; k < roles; k++) {
        next->body[k] = steps[k].body_count;
        next->tail[k] = steps[k].tail_count;
        memcpy(next->step[k], steps[k].body,
               (steps[k].body_count + steps[k].tail_count) * sizeof(sx_step));
    }
    return SX_OK;
}

/* Warps have one role, or several roles have the same warps: these execute the loading one depth - 1 turns ahead. The
 * stage that it acquires then is the one of the turn before, which must be free within the turn. */
static bool share_warps(const sx_block *b, const role_state *state)
{
    for (uint32_t i = 0; i < b->t->role_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            const sx_tile_role *x = &b->t->role[i];
            const sx_tile_role *y = &b->t->role[k];
            bool apart = x->first_warp >= y->first_warp + y->warps ||
                         y->first_warp >= x->first_warp + x->warps;
            bool same = x->first_warp == y->first_warp && x->warps == y->warps;
            if (!apart && (!same || state[i].back_max + state[k].back_max > 1)) {
                (void)sx_refuse(b->g, "roles %.24s and %.24s share warps out of step", x->name,
                                y->name);
                return false;
            }
        }
    }
    return true;
}

sx_code sx_block_check_roles(const sx_block *b, sx_block_crew *warps)
{
    role_state state[SX_ROLES_MAX];
    sx_role_steps steps[SX_ROLES_MAX];
    uint32_t fetched[SX_TILE_OPERANDS_MAX] = {0}, computing = 0;
    memset(state, 0, sizeof(state));
    memset(steps, 0, sizeof(steps));
    uint32_t roles = b->t->role_count;
    if (b->t->role_count == 0 || b->t->role_count > SX_ROLES_MAX) {
        (void)sx_refuse(b->g, "%u roles", b->t->role_count);
        return SX_OK;
    }
    for (uint32_t i = 0; i < b->t->role_count; i++) {
        state[i].engine = b->t->by_engine;
        if (!read_role(b, &b->t->role[i], &state[i], &steps[i])) {
            return SX_OK;
        }
        computing += state[i].multiplied ? 1U : 0U;
        uint32_t own = b->t->role[i].warps;
        warps->multiply = state[i].multiplied ? own : warps->multiply;
        for (uint32_t k = 0; k < SX_TILE_OPERANDS_MAX; k++) {
            fetched[k] += state[i].fetched[k];
            warps->load[k] = state[i].fetched[k] > 0 ? own : warps->load[k];
        }
    }
    bool third = fetched[SX_TILE_SECOND] == (sx_tile_operands(b->t) == 3 ? 1 : 0);
    if (fetched[0] != 1 || fetched[1] != 1 || !third || computing != 1) {
        (void)sx_refuse(b->g,
                        "a stage is fetched %u and %u times, and multiplied by %u roles, not once",
                        fetched[0], fetched[1], computing);
        return SX_OK;
    }
    if (!share_warps(b, state)) {
        return SX_OK;
    }
    for (uint32_t i = 0; b->t->by_engine && i < b->t->role_count; i++) {
        const sx_tile_role *role = &b->t->role[i];
        bool alone = state[i].multiplied ? role->warps % 4 == 0 && role->first_warp % 4 == 0
                                         : role->warps == 1;
        uint32_t more = state[i].multiplied ? role->warps / 4 - 1 : 0; // each four free a stage
        if (!alone || roles + more > SX_ROLES_MAX) {
            (void)sx_refuse(b->g, "role %.24s: %u warps from %u on", role->name, role->warps,
                            role->first_warp);
            return SX_OK;
        }
        for (; more > 0; more--) {
            steps[roles++] = steps[i];
        }
    }
    return check_ring(b, steps, roles);
}

/* ---- the program of an element ---- */

/* Strides nest: two points never store to bytes of one place. */
static bool stores_apart(const sx_block *b, const sx_addr *a, int64_t width)
{
    const sx_tile *t = b->t;
    int64_t extent[SX_LOOP_VARS_MAX] = {1, 1, 1, t->rows, t->columns};
    uint32_t vars = SX_TILE_VAR_BATCH + t->batch_count;
    memcpy(&extent[SX_TILE_VAR_BATCH], t->batch, t->batch_count * sizeof(t->batch[0]));
    uint32_t left = 0;
    for (uint32_t v = 0; v < vars; v++) {
        left |= extent[v] > 1 ? 1U << v : 0U;
    }
    int64_t reach = width; // bytes that the variables so far span
    while (left != 0) {
        uint32_t least = SX_LOOP_VARS_MAX;
        for (uint32_t v = 0; v < vars; v++) {
            bool less = least == SX_LOOP_VARS_MAX || a->coef[v] < a->coef[least];
            least = (left >> v & 1U) != 0 && less ? v : least;
        }
        int64_t span;
        if (a->coef[least] < reach || !sx_mul_i64(a->coef[least], extent[least] - 1, &span) ||
            !sx_add_i64(reach, span, &reach)) {
            return false;
        }
        left &= ~(1U << least);
    }
    return a->index_reg == SX_NO_REG;
}

/* Each element's program sees its own registers and the inputs alone, and stores one element, in a place that is no
 * other one's. Threads run it side by side, so exchanges between lanes would mix elements. */
bool sx_block_check_map(const sx_block *b, const sx_part *map)
{
    const sx_kernel *kernel = b->kernel;
    uint32_t stores = 0;
    for (uint32_t i = 0; i < map->item_count; i++) {
        const sx_item *item = &map->item[i];
        bool memory = sx_lop_info_of(item->op)->operands[0] == 'A';
        const sx_addr *a = memory ? &map->addr[item->addr] : NULL;
        bool ok = item->op != SX_LOP_SWAP && item->op != SX_LOP_BCAST0 && item->op != SX_LOP_IOTA;
        if (item->op == SX_LOP_STORE) {
            stores++;
            ok = item->imm == 1 && kernel->buffer[a->buffer].role == SX_BUFFER_OUT &&
                 stores_apart(b, a, sx_mem_bytes(item->mem, kernel->lane_bytes));
        } else if (memory) {
            ok = item->op == SX_LOP_LOADB && kernel->buffer[a->buffer].role == SX_BUFFER_IN;
        }
        if (!ok) {
            (void)sx_refuse(b->g, "item %u of the map is not of one element alone", i);
            return false;
        }
    }
    if (stores != 1) {
        (void)sx_refuse(b->g, "the map stores %u times", stores);
        return false;
    }
    return true;
}

/* ---- a part ---- */

/* The copy engine fills what instructions of four warps read, and nothing else. */
static bool check_engine(const sx_block *b)
{
    const sx_matrix_instruction *m = b->t->matrix;
    bool ok = b->t->by_engine == (m != NULL && m->warps == 4);
    if (!ok) {
        (void)sx_refuse(b->g, "%s between copy engine and threads", m != NULL ? m->name : "sums");
    }
    return ok;
}

static sx_code prove_part(const sx_block *b)
{
    sx_block_crew warps = {0};
    bool engine = b->t->by_engine;
    bool ok = sx_block_check_grid(b) && check_slices(b) && sx_block_check_view(b, SX_TILE_LEFT) &&
              sx_block_check_view(b, SX_TILE_RIGHT) && sx_block_check_shared(b) &&
              check_engine(b) && sx_block_check_map(b, &b->t->map);
    for (uint32_t k = 0; k < 2 && ok; k++) {
        ok = engine ? sx_prove_boxes(b->j, b->t, k) : sx_block_check_copies(b, k);
    }
    if (ok) {
        SX_TRY(sx_block_check_roles(b, &warps));
    }
    for (uint32_t k = 0; k < 2 && !b->g->refused && !engine; k++) {
        SX_TRY(sx_block_check_copied(b, k, warps.load[k]));
    }
    return b->g->refused ? SX_OK : check_held(b, warps.multiply);
}

sx_code sx_prove_blocks(sx_judge *j, const sx_kernel *kernel)
{
    sx_algebra *g = &j->algebra;
    for (uint32_t p = 0; p < kernel->part_count && !g->refused; p++) {
        sx_block b = {
            .j = j, .g = g, .kernel = kernel, .part = &kernel->part[p], .t = kernel->part[p].tile};
        if (b.t == NULL) {
            continue;
        }
        sx_code code = b.t->online != NULL ? sx_block_prove_online(&b) : prove_part(&b);
        if (code == SX_INPUT || code == SX_LIMIT || code == SX_UNIMPLEMENTED) {
            (void)sx_refuse(g, "%.140s", j->cx->error.text);
            sx_ctx_reset_error(j->cx);
            code = SX_OK;
        }
        SX_TRY(code);
    }
    SX_ASSERT(j->cx->error.code == SX_OK);
    return SX_OK;
}
