#include "tests/lib/block_sweep.h"

#include <math.h>

#include "core/base/grid.h"

#define RASTER_MOST 16
#define WARPS 8  /* of a block */
#define GROUPS 2 /* of warps that execute one instruction together */
#define SWAPPED_ROWS 64
#define APART_SIDE 128 /* blocks of this size would leave half of the cores without work */

typedef struct {
    const sx_device *device;
    const sx_analysis *a;
    const sx_matrix_instruction *matrix;
    sx_block_problem problem;
    sx_block_tiles t;
    sx_test_sweep *out;
} sweep;

static double larger(double x, double y)
{
    return x > y ? x : y;
}

static sx_block_any any_depth(const sx_block_problem *of_tiles, const sx_block_tiles *any,
                              const sx_block_work *work)
{
    sx_block_any some;
    sx_block_any_of(of_tiles, any, work, &some);
    some.moving_ns =
        some.held >= 1 ? sx_block_moving_least(of_tiles, any, work, (uint32_t)some.held) : 0;
    return some;
}

/* The bound of tiles for any stages; HUGE_VAL where it drops one that costs `ns`. */
static double work_least(const sweep *s, const sx_block_tiles *any, double ns)
{
    sx_block_problem of_tiles;
    sx_block_work work;
    sx_block_problem_of_tiles(&s->problem, any, &of_tiles);
    sx_block_work_of(&of_tiles, any, &work);
    const sx_block_any some = any_depth(&of_tiles, any, &work);
    bool may = sx_block_by_engine(any) ||
               sx_cost_block_may_be(&of_tiles, any, &work, &some, ns * (1 + 1e-9));
    return may ? sx_cost_block_work_least(&of_tiles, any, &work, &some, HUGE_VAL) : HUGE_VAL;
}

/* The bound of all steps of a stage from the most on, and the one of all warps. */
static double warps_least(const sweep *s, const sx_block_tiles *any)
{
    sx_block_problem of_tiles;
    sx_block_work work;
    sx_block_tiles most = *any;
    most.steps = 128 / sx_dtype_bytes(s->a->input[s->a->lhs].dtype);
    sx_block_problem_of_tiles(&s->problem, any, &of_tiles);
    sx_block_work_of(&of_tiles, &most, &work);
    double least = sx_cost_block_warp_least(&of_tiles, &most, &work);
    if (!sx_block_by_engine(any)) {
        sx_block_work_any(&of_tiles, any, &work);
        const sx_block_any some = any_depth(&of_tiles, any, &work);
        least = larger(least, sx_cost_block_work_least(&of_tiles, any, &work, &some, HUGE_VAL));
    }
    return least;
}

static void price(sweep *s)
{
    double ns = sx_cost_block(&s->problem, &s->t);
    sx_block_tiles any = s->t;
    bool ordered = !s->t.apart && !s->a->steady;
    any.raster = ordered ? RASTER_MOST : 0;
    any.cluster_rows = ordered ? 2 : 0;
    any.cluster_columns = ordered ? 2 : 0;
    s->out->count++;
    s->out->bound_worst = larger(s->out->bound_worst, sx_cost_block_least(&s->problem, &any) / ns);
    s->out->bound_worst = larger(s->out->bound_worst, work_least(s, &any, ns) / ns);
    s->out->bound_worst = larger(s->out->bound_worst, warps_least(s, &any) / ns);
    if (s->out->least_ns <= 0 || ns < s->out->least_ns) {
        s->out->least_ns = ns;
        s->out->best = s->t;
    }
}

/* The tiles as they are, and by blocks that walk where they may. */
static void price_both(sweep *s)
{
    price(s);
    s->t.walkers = s->a->steady ? 0 : sx_block_walkers(&s->problem, &s->t);
    if (s->t.walkers > 0) {
        price(s);
        s->t.walkers = 0;
    }
}

/* Clusters along the rows walk where an even number of rows is visited together: two, for their sake alone. */
static void price_pairs(sweep *s, int64_t down)
{
    s->t.raster = 2;
    s->t.walkers = sx_block_walkers(&s->problem, &s->t);
    if (s->t.walkers > 0 && s->a->extent[SX_ROLE_BATCH] == 1 && down > 2) {
        price(s);
    }
    s->t.walkers = s->t.raster = 0;
}

/* Two blocks side by side, where as many blocks stand there as pairs have, and the copy engine copies halves of what
 * they share: 16 rows or columns at least. */
static void sweep_clusters(sweep *s)
{
    int64_t down = sx_ceil_div_i64(s->a->extent[SX_ROLE_ROW], s->t.rows);
    int64_t across = sx_ceil_div_i64(s->a->extent[SX_ROLE_COLUMN], s->t.columns);
    bool pairs = s->matrix != NULL && s->matrix->rows >= SX_GROUP_ROWS && !s->t.apart &&
                 !s->a->steady && s->device->cluster_blocks >= 2 && s->device->cores % 2 == 0 &&
                 s->a->extent[SX_ROLE_BATCH] <= SX_GRID_YZ_MAX && down <= SX_GRID_YZ_MAX;
    if (pairs && down % 2 == 0 && s->t.columns >= 16) {
        s->t.cluster_rows = 2;
        price_both(s);
        if (s->t.raster == 0) {
            price_pairs(s, down);
        }
        s->t.cluster_rows = 0;
    }
    if (pairs && across % 2 == 0 && s->t.rows >= 16) {
        s->t.cluster_columns = 2;
        price_both(s);
        s->t.cluster_columns = 0;
    }
}

static void sweep_raster(sweep *s)
{
    for (uint32_t raster = 0; raster <= RASTER_MOST; raster = raster == 0 ? 4 : 2 * raster) {
        s->t.raster = raster;
        if (raster == 0 ||
            (!s->t.apart && !s->a->steady && sx_block_has_raster(&s->problem, &s->t))) {
            price_both(s);
            sweep_clusters(s);
        }
    }
    s->t.raster = 0;
}

static void sweep_stages(sweep *s)
{
    int64_t bytes = sx_dtype_bytes(s->a->input[s->a->lhs].dtype);
    bool engine = sx_block_by_engine(&s->t);
    for (s->t.steps = 32 / bytes; s->t.steps <= 128 / bytes; s->t.steps *= 2) {
        bool whole = s->t.matrix_steps == 0 || s->t.steps % s->t.matrix_steps == 0;
        for (s->t.depth = 2; whole && s->t.depth <= SX_BLOCK_DEPTH_MAX; s->t.depth++) {
            bool stored = engine && s->problem.stored > 0 && !s->t.apart;
            double slots = stored ? sx_block_slots(&s->problem, &s->t) : 0;
            for (s->t.stores = 0; s->t.stores <= SX_BLOCK_STORES_MAX && s->t.stores <= slots;
                 s->t.stores++) {
                if (sx_block_resident(&s->problem, &s->t) > 0) {
                    sweep_raster(s);
                }
            }
            s->t.stores = 0;
        }
    }
}

static bool can_launch(const sweep *s)
{
    const int64_t *extent = s->a->extent;
    int64_t slices = s->t.apart ? extent[SX_ROLE_SUM] / s->t.slice : 1;
    int64_t grid[3] = {extent[SX_ROLE_BATCH] * slices,
                       sx_ceil_div_i64(extent[SX_ROLE_ROW], s->t.rows),
                       sx_ceil_div_i64(extent[SX_ROLE_COLUMN], s->t.columns)};
    return sx_grid_fits(grid);
}

static void sweep_warp(sweep *s)
{
    int64_t warps = s->t.rows / s->t.warp_rows * (s->t.columns / s->t.warp_columns);
    if (s->t.warp_rows <= s->t.rows && s->t.warp_columns <= s->t.columns && warps <= WARPS) {
        sweep_stages(s);
    }
}

static void sweep_warps(sweep *s)
{
    if (s->matrix != NULL) {
        for (s->t.warp_rows = 16; s->t.warp_rows <= 64; s->t.warp_rows *= 2) {
            for (s->t.warp_columns = 8; s->t.warp_columns <= 128; s->t.warp_columns *= 2) {
                sweep_warp(s);
            }
        }
        return;
    }
    for (s->t.thread_rows = 1; s->t.thread_rows <= 8; s->t.thread_rows *= 2) {
        for (s->t.thread_columns = 1; s->t.thread_columns <= 8; s->t.thread_columns *= 2) {
            s->t.warp_rows = 4 * s->t.thread_rows;
            s->t.warp_columns = s->device->lanes / 4 * s->t.thread_columns;
            sweep_warp(s);
        }
    }
}

static void sweep_blocks(sweep *s)
{
    int64_t bytes = sx_dtype_bytes(s->a->input[s->a->lhs].dtype);
    int64_t high = s->a->extent[SX_ROLE_ROW], wide = s->a->extent[SX_ROLE_COLUMN];
    int64_t least_rows = sx_max_i64(16 / bytes, s->matrix != NULL ? 16 : 4);
    int64_t least_columns = sx_max_i64(16 / bytes, 8);
    for (s->t.rows = least_rows; s->t.rows <= 256; s->t.rows *= 2) {
        for (s->t.columns = least_columns; s->t.columns <= 256; s->t.columns *= 2) {
            bool outside = (s->t.rows > least_rows && s->t.rows >= 2 * high) ||
                           (s->t.columns > least_columns && s->t.columns >= 2 * wide);
            if (!outside && can_launch(s)) {
                sweep_warps(s);
            }
        }
    }
}

/* Blocks of one or two groups of warps, each of which has all columns. */
static void sweep_groups(sweep *s)
{
    int64_t high = s->a->extent[SX_ROLE_ROW], wide = s->a->extent[SX_ROLE_COLUMN];
    for (uint32_t i = 0; i <= s->matrix->more; i++) {
        s->t.matrix_columns = s->matrix[i].columns;
        s->t.columns = s->t.warp_columns = s->matrix[i].columns;
        for (s->t.rows = 64; s->t.rows <= 256; s->t.rows *= 2) {
            bool outside =
                (s->t.rows > 64 && s->t.rows >= 2 * high) || (i > 0 && s->t.columns >= 2 * wide);
            for (int64_t own = 64; !outside && can_launch(s) && own <= 128 && own <= s->t.rows;
                 own *= 2) {
                s->t.warp_rows = own;
                if (s->t.rows / own <= GROUPS) {
                    sweep_stages(s);
                }
            }
        }
    }
}

static bool leaves_cores(const sweep *s)
{
    const int64_t *extent = s->a->extent;
    int64_t down = sx_ceil_div_i64(extent[SX_ROLE_ROW], APART_SIDE);
    int64_t across = sx_ceil_div_i64(extent[SX_ROLE_COLUMN], APART_SIDE);
    return 2.0 * (double)extent[SX_ROLE_BATCH] * (double)(down * across) <= s->device->cores;
}

static void sweep_side(sweep *s, bool swapped)
{
    bool engine = s->matrix != NULL && s->matrix->rows >= SX_GROUP_ROWS;
    s->t = (sx_block_tiles){.left = s->a->lhs, .right = s->a->rhs, .swapped = swapped};
    sx_block_problem_of(s->device, s->a, &s->problem);
    if (s->matrix != NULL) {
        s->t.matrix_rows = s->matrix->rows;
        s->t.matrix_columns = s->matrix->columns;
        s->t.matrix_steps = s->matrix->steps;
        s->t.slice = sx_matrix_slice(s->matrix, s->a->extent[SX_ROLE_SUM]);
    }
    bool can_be_apart = s->t.slice != 0 && sx_slices_apart(s->a) && (!engine || leaves_cores(s));
    for (uint32_t apart = 0; apart <= (can_be_apart ? 1 : 0); apart++) {
        s->t.apart = apart != 0;
        if (engine) {
            sweep_groups(s);
        } else {
            sweep_blocks(s);
        }
    }
}

void sx_test_sweep_blocks(const sx_device *device, const sx_analysis *a,
                          const sx_matrix_instruction *matrix, sx_search_sides sides,
                          sx_test_sweep *out)
{
    sx_analysis blocks;
    sweep s = {.device = device, .a = &blocks, .matrix = matrix, .out = out};
    *out = (sx_test_sweep){0};
    sx_analysis_of_blocks(a, &blocks);
    if (sides != SX_SIDES_SWAPPED) {
        sweep_side(&s, false);
    }
    bool few = blocks.extent[SX_ROLE_ROW] <= SWAPPED_ROWS &&
               blocks.extent[SX_ROLE_ROW] < blocks.extent[SX_ROLE_COLUMN];
    if (sides != SX_SIDES_PLAIN && matrix != NULL && blocks.lhs != blocks.rhs && few) {
        sx_analysis_swap(&blocks);
        sweep_side(&s, true);
    }
}
