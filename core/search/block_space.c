/* block_space.c - the block schedules of a contraction: what a block and its warps compute, how much of k a stage
 * holds, and how many stages there are. All of them are powers of two, as the layouts of core/tile want it.
 *
 * What a phase drops for the tile of a block, or of a warp, is dropped with all that would stand inside. */
#include "core/base/grid.h"
#include "core/search/space.h"

#define WARPS_MAX 8 /* of a block */
#define LANE_ROWS \
    4 /* lanes of a warp that stand one above the other, without matrix instructions */
#define LITTLE_LESS 0.995    /* times the price with a stage less: more stages are of no use */
#define COPY_BYTES 16        /* the widest copy to shared memory */
#define STAGE_BYTES_LEAST 32 /* of a row of a stage: a sector */

#define SWAPPED_ROWS_MAX 64 /* of a product whose sides may be exchanged */

static const int64_t block_rows[] = {256, 128, 64, 32, 16, 8, 4};
static const int64_t block_columns[] = {256, 128, 64, 32, 16, 8};
static const int64_t matrix_warp_rows[] = {SX_BLOCK_WARP_ROWS_MAX, 32, 16};
static const int64_t matrix_warp_columns[] = {SX_BLOCK_WARP_COLUMNS_MAX, 64, 32, 16, 8};
static const uint32_t thread_tiles[] = {8, 4, 2, 1};
static const uint32_t depths[] = {2, 3, 4, 6, 8};
static const uint32_t raster_of[] = {4, 8, 16};
/* How often the bytes of a row of a stage are halved, and one. */
#define STEPS_MAX 3
#define MOVES 32 /* blocks of a core for which it is kept what memory takes */
/* Points of the space for each tile of a block, and of a warp, about. */
#define INSIDE_WARP (3 * SX_COUNT(depths))
#define INSIDE_BLOCK (SX_COUNT(matrix_warp_rows) * SX_COUNT(matrix_warp_columns) * INSIDE_WARP)

typedef struct {
    sx_search_space *space;
    const sx_block_problem *problem;
    const sx_matrix_instruction *matrix; /* NULL: each thread multiplies by itself */
    int64_t element;                     /* bytes of the wider factor */
    bool crowded;                        /* small tiles make more blocks than a launch has */
    bool clusters;                       /* by the copy engine, on a device that has them */
    bool cluster[2];                     /* of `t`, along the columns and along the rows */
    /* Where threads copy: the most steps of a stage, and as often as they are halved, what all warps cost at least. */
    int64_t steps_most;
    uint32_t steps_count;
    double steps_least[STEPS_MAX];
    sx_block_tiles t;
    sx_block_problem of_tiles; /* of `t`: with slices apart or in turn */
    sx_block_work work;        /* of `t`, for any stages, slots and rows visited together */
    /* How long memory takes for blocks of these rows and columns in the best order, by how many a core holds; `moves`:
     * those that were asked for, a set of 1 << held. */
    double moving_ns[MOVES];
    uint32_t moves;
    uint32_t raster[SX_COUNT(raster_of)],
        raster_count; /* orders that these blocks can have, where `moves` is not 0 */
} blocks;

/* The stride of an argument along a dimension of the space; 0: none, or one that is not known. */
static int64_t stride_of(const sx_analysis *a, uint32_t argument, uint32_t dim)
{
    sx_dim stride = a->body->access[argument].stride[dim];
    return sx_dim_is_constant(stride) ? stride.scale : 0;
}

/* Two dimensions are summed over as one where an argument has nothing between them. Does a factor have a dimension of
 * extent 1 there? With a larger extent they would stay two, and the plan of a sum must not follow that extent. */
static bool parts_sums(const sx_analysis *a, uint32_t argument)
{
    const sx_type *space = &a->fused->type;
    for (uint32_t one = 0; one < space->rank; one++) {
        int64_t between = stride_of(a, argument, one);
        bool inside = false, outside = false;
        for (uint32_t d = 0; d < space->rank; d++) {
            int64_t stride = stride_of(a, argument, d);
            bool sum = (a->body->axes >> d & 1) != 0 && space->dim[d].scale > 1 && stride > 0;
            inside = inside || (sum && stride < between);
            outside = outside || (sum && stride >= between);
        }
        bool kept = (a->body->axes >> one & 1) == 0 && sx_dim_is_constant(space->dim[one]) &&
                    space->dim[one].scale == 1;
        if (kept && between > 0 && inside && outside) {
            return true;
        }
    }
    return false;
}

bool sx_search_takes_blocks(const sx_analysis *a)
{
    if (a->kind != SX_KERNEL_DOT || a->refusal != NULL || a->full) {
        return false;
    }
    uint32_t sums = 0;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        sums += a->role[d] == SX_ROLE_SUM;
    }
    return sums <= 1 && !parts_sums(a, a->lhs) && !parts_sums(a, a->rhs);
}

static int64_t power_above(int64_t x)
{
    int64_t power = 1;
    while (power < x) {
        power *= 2;
    }
    return power;
}

/* Do blocks follow an order of their own, or in clusters? Not where their slices are apart or one text serves several
 * extents. */
static bool is_ordered(const blocks *b)
{
    return !b->t.apart && !b->space->a->steady;
}

/* The tiles in clusters along the rows or along the columns. */
static void set_cluster(sx_block_tiles *t, bool along_rows)
{
    t->cluster_rows = along_rows ? SX_BLOCK_CLUSTER : 0;
    t->cluster_columns = along_rows ? 0 : SX_BLOCK_CLUSTER;
}

/* Blocks of so many rows and columns, and the orders that they may have. */
static void set_block(blocks *b, int64_t rows, int64_t columns)
{
    b->t.rows = rows;
    b->t.columns = columns;
    b->moves = 0;
    b->cluster[0] = b->cluster[1] = false;
    for (uint32_t i = 0; i < 2 && b->clusters; i++) {
        sx_block_tiles t = b->t;
        set_cluster(&t, i != 0);
        b->cluster[i] = is_ordered(b) && sx_block_has_cluster(&b->of_tiles, &t);
    }
}

/* The tiles as bounds of blocks want them: with the most rows of blocks that may be visited together, and all
 * clusters. */
static sx_block_tiles any_order(const blocks *b)
{
    sx_block_tiles any = b->t;
    any.raster = is_ordered(b) ? raster_of[SX_COUNT(raster_of) - 1] : 0;
    any.cluster_rows = b->cluster[1] ? SX_BLOCK_CLUSTER : 0;
    any.cluster_columns = b->cluster[0] ? SX_BLOCK_CLUSTER : 0;
    return any;
}

/* Sets how many rows of blocks may be visited together; 0, one after the other, is not among them. */
static void find_rasters(blocks *b)
{
    sx_block_tiles t = b->t;
    bool ordered = is_ordered(b) && sx_block_needs_raster(&b->of_tiles);
    b->raster_count = 0;
    for (uint32_t i = 0; ordered && i < SX_COUNT(raster_of); i++) {
        t.raster = raster_of[i];
        if (sx_block_has_raster(&b->of_tiles, &t)) {
            b->raster[b->raster_count++] = raster_of[i];
        }
    }
}

/* How long memory takes with the rows of blocks that are best visited together. */
static double least_moving(blocks *b, const sx_block_work *work, uint32_t held)
{
    if (held < MOVES && (b->moves >> held & 1) != 0) {
        return b->moving_ns[held];
    }
    if (b->moves == 0) { /* of these rows and columns nothing was asked for yet */
        find_rasters(b);
    }
    sx_block_tiles t = b->t;
    t.raster = 0;
    double once = sx_device_move_ns(b->space->device, b->of_tiles.bytes);
    double least = sx_block_moving_ns(&b->of_tiles, &t, work, held);
    for (uint32_t i = 0; i < b->raster_count && least > once; i++) {
        t.raster = b->raster[i];
        double ns = sx_block_moving_ns(&b->of_tiles, &t, work, held);
        least = ns < least ? ns : least;
    }
    if (held < MOVES) {
        b->moving_ns[held] = least;
        b->moves |= 1u << held;
    }
    return least;
}

/* The tiles as other bounds want them: with all clusters; in `copy`, if there are any. */
static const sx_block_tiles *any_cluster(const blocks *b, sx_block_tiles *copy)
{
    if (!b->clusters) {
        return &b->t;
    }
    *copy = any_order(b);
    return copy;
}

/* What bounds for any number of stages begin with. */
static sx_block_any any_depth(blocks *b, const sx_block_tiles *any, const sx_block_work *work)
{
    sx_block_any of;
    sx_block_any_of(&b->of_tiles, any, work, &of);
    of.moving_ns = of.held >= 1 ? least_moving(b, work, (uint32_t)of.held) : 0;
    return of;
}

/* With the rows of blocks that are best visited together: the fewest of equal ones. They are looked for where somebody
 * asks for them. */
static double price_raster(blocks *b, const sx_block_work *work, uint32_t held)
{
    double cycles = sx_block_cycles(&b->of_tiles, &b->t, work, held);
    double least = sx_cost_block_cycles(&b->of_tiles, cycles, least_moving(b, work, held));
    b->t.raster = 0;
    bool asked = sx_block_by_engine(&b->t) || sx_search_wants(b->space, least);
    for (uint32_t i = 0; asked && i <= b->raster_count; i++) {
        b->t.raster = i > 0 ? b->raster[i - 1] : 0;
        double moving_ns = sx_block_moving_ns(&b->of_tiles, &b->t, work, held);
        asked = sx_cost_block_cycles(&b->of_tiles, cycles, moving_ns) > least;
    }
    return least;
}

/* Keeps the block's schedule if it is among the best. */
static sx_code keep_block(blocks *b, double ns)
{
    sx_schedule schedule;
    if (!sx_search_wants(b->space, ns)) {
        b->space->result->considered++;
        return SX_OK;
    }
    sx_schedule_block(&b->t, &schedule);
    return sx_search_keep(b->space, &schedule, ns);
}

/* The same tiles by blocks that walk over them, where that costs less than `least`, which then is its price. */
static sx_code price_walk(blocks *b, const sx_block_work *work, uint32_t held, double *least)
{
    b->t.walkers = b->space->a->steady || held > 1 ? 0 : sx_block_walkers(b->problem, &b->t);
    if (b->t.walkers > 0) {
        double cycles = sx_block_cycles(&b->of_tiles, &b->t, work, held);
        double moving_ns = sx_block_moving_ns(&b->of_tiles, &b->t, work, held);
        double ns = sx_cost_block_cycles(&b->of_tiles, cycles, moving_ns);
        SX_TRY(ns < *least ? keep_block(b, ns) : SX_OK);
        *least = ns < *least ? ns : *least;
        b->t.walkers = 0;
    }
    return SX_OK;
}

/* The same tiles in clusters along the rows or the columns, which may walk, where that costs less than `least`. */
static sx_code price_clusters(blocks *b, uint32_t held, double *least)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (!b->cluster[i]) {
            continue;
        }
        set_cluster(&b->t, i != 0);
        sx_block_work work = b->work;
        sx_block_work_share(&b->of_tiles, &b->t, &work);
        double ns = price_raster(b, &work, held);
        SX_TRY(ns < *least ? keep_block(b, ns) : SX_OK);
        *least = ns < *least ? ns : *least;
        b->t.raster = sx_block_cluster_raster(&b->of_tiles, &b->t);
        SX_TRY(price_walk(b, &work, held, least));
        b->t.cluster_rows = b->t.cluster_columns = 0;
    }
    return SX_OK;
}

/* A block with so many stages, whose results threads store or, where it can, the copy engine: from two slots of each
 * group of warps, or from one where a core holds more blocks then. The least price. */
static sx_code price_stores(blocks *b, double *least)
{
    uint32_t most = 0;
    if (b->problem->stored > 0 && sx_block_by_engine(&b->t) && !b->t.apart) {
        most =
            (uint32_t)sx_min_i64(SX_BLOCK_STORES_MAX, (int64_t)sx_block_slots(b->problem, &b->t));
    }
    uint32_t before = 0; /* blocks of a core with more slots */
    *least = 0;
    for (uint32_t stores = most + 1; stores-- > 0;) {
        b->t.stores = stores;
        uint32_t held = sx_block_held(&b->of_tiles, &b->t, &b->work);
        if (held == 0 || (stores == 1 && held == before)) { /* no more of them than with two */
            b->space->result->considered++;
            continue;
        }
        before = held;
        double ns = price_raster(b, &b->work, held);
        SX_TRY(keep_block(b, ns));
        SX_TRY(price_walk(b, &b->work, held, &ns));
        SX_TRY(price_clusters(b, held, &ns));
        *least = *least == 0 || ns < *least ? ns : *least;
    }
    b->t.stores = b->t.raster = 0;
    return SX_OK;
}

/* The stages of the ring: as many as cover the latency of memory, or fewer. */
static sx_code price_depths(blocks *b)
{
    sx_search_result *result = b->space->result;
    double before = 0;
    if (b->space->held_max != 0 && b->t.warp_rows * b->t.warp_columns > b->space->held_max) {
        return sx_search_drop(b->space, &result->dropped_resources, (uint32_t)SX_COUNT(depths));
    }
    sx_block_tiles copy;
    const sx_block_tiles *any = any_cluster(b, &copy);
    const sx_block_any least = any_depth(b, any, &b->work);
    double dearest = sx_search_dearest(b->space);
    bool may =
        sx_block_by_engine(any)
            ? sx_cost_block_work_least(&b->of_tiles, any, &b->work, &least, dearest) < dearest
            : sx_cost_block_may_be(&b->of_tiles, any, &b->work, &least, dearest);
    if (!may) {
        return sx_search_drop(b->space, &result->dropped_bound, (uint32_t)SX_COUNT(depths));
    }
    for (uint32_t d = 0; d < SX_COUNT(depths); d++) {
        b->t.depth = depths[d];
        if (d > 0 && depths[d] > b->work.stages + 1) { /* stages that nothing comes for */
            return sx_search_drop(b->space, &result->dropped_alignment,
                                  (uint32_t)SX_COUNT(depths) - d);
        }
        if (sx_block_held(&b->of_tiles, &b->t, &b->work) == 0) {
            return sx_search_drop(b->space, &result->dropped_resources,
                                  (uint32_t)SX_COUNT(depths) - d);
        }
        double ns;
        SX_TRY(price_stores(b, &ns));
        if (d > 0 && ns > LITTLE_LESS * before) { /* memory is waited for no longer */
            return sx_search_drop(b->space, &result->dropped_bound,
                                  (uint32_t)SX_COUNT(depths) - d - 1);
        }
        before = ns;
    }
    return SX_OK;
}

/* Drops a tile of a warp whatever its stages are: it does not fit, or cannot be among the best. */
static sx_code drop_warp(blocks *b, bool *dropped)
{
    sx_search_result *result = b->space->result;
    sx_block_tiles copy;
    const sx_block_tiles *any = any_cluster(b, &copy);
    bool fits = b->work.held_most > 0;
    *dropped =
        !fits || !sx_search_wants(b->space, sx_cost_block_warp_least(&b->of_tiles, any, &b->work));
    uint32_t *phase = fits ? &result->dropped_bound : &result->dropped_resources;
    return *dropped ? sx_search_drop(b->space, phase, (uint32_t)INSIDE_WARP) : SX_OK;
}

/* The steps of a stage, by halves, from the most that are of use. */
static void find_steps(blocks *b)
{
    int64_t least = sx_max_i64(STAGE_BYTES_LEAST / b->element, b->t.matrix_steps);
    int64_t sum = power_above(b->space->a->extent[SX_ROLE_SUM]);
    int64_t most = SX_BLOCK_STAGE_BYTES_MAX / b->element;
    while (most > least && most > sum) { /* the rest of every stage would be zeros */
        most /= 2;
    }
    b->steps_most = most;
    b->steps_count = 0;
    for (; most >= least; most /= 2) {
        SX_ASSERT(b->steps_count < STEPS_MAX);
        b->steps_least[b->steps_count++] = 0;
    }
}

/* May any warps be among the best with some number of steps? */
static bool wants_steps(const blocks *b)
{
    bool wants = false;
    for (uint32_t i = 0; i < b->steps_count; i++) {
        wants = wants || sx_search_wants(b->space, b->steps_least[i]);
    }
    return wants;
}

/* What any warps cost with each number of steps, at least. */
static void bound_steps(blocks *b)
{
    sx_block_tiles any = b->t;
    double enough = sx_search_dearest(b->space);
    any.steps = b->steps_most;
    sx_block_work work;
    SX_ASSERT(!b->clusters);
    for (uint32_t i = 0; i < b->steps_count; i++) {
        if (i > 0 && b->matrix != NULL) {
            sx_block_work_halve(&b->of_tiles, &any, &work);
        } else {
            sx_block_work_any(&b->of_tiles, &any, &work);
        }
        const sx_block_any least = any_depth(b, &any, &work);
        b->steps_least[i] =
            work.held_most > 0 ? sx_cost_block_work_least(&b->of_tiles, &any, &work, &least, enough)
                               : 0;
        any.steps /= 2;
    }
}

static sx_code price_steps(blocks *b)
{
    b->t.steps = b->steps_most;
    if (!wants_steps(b)) {
        return sx_search_drop(b->space, &b->space->result->dropped_bound, (uint32_t)INSIDE_WARP);
    }
    bool dropped;
    if (sx_block_registers(&b->of_tiles, &b->t) > b->space->device->registers) {
        return sx_search_drop(b->space, &b->space->result->dropped_resources,
                              (uint32_t)INSIDE_WARP);
    }
    sx_block_work_of(&b->of_tiles, &b->t, &b->work);
    SX_TRY(drop_warp(b, &dropped));
    for (uint32_t i = 0; i < b->steps_count && !dropped; i++) {
        if (i > 0) {
            b->t.steps /= 2;
            sx_block_work_halve(&b->of_tiles, &b->t, &b->work);
        }
        SX_TRY(sx_search_wants(b->space, b->steps_least[i])
                   ? price_depths(b)
                   : sx_search_drop(b->space, &b->space->result->dropped_bound,
                                    (uint32_t)SX_COUNT(depths)));
    }
    return SX_OK;
}

/* The phase that drops this tile of a warp, or NULL. */
static uint32_t *warp_phase(const blocks *b)
{
    sx_search_result *result = b->space->result;
    const sx_block_tiles *t = &b->t;
    if (t->warp_rows > t->rows || t->warp_columns > t->columns) {
        return &result->dropped_alignment;
    }
    /* all of them are powers of two, and products take less time than quotients */
    bool many = t->rows * t->columns > WARPS_MAX * t->warp_rows * t->warp_columns;
    return many ? &result->dropped_resources : NULL;
}

static sx_code price_warp(blocks *b)
{
    uint32_t *phase = warp_phase(b);
    if (phase != NULL) {
        return sx_search_drop(b->space, phase, (uint32_t)INSIDE_WARP);
    }
    return price_steps(b);
}

static sx_code price_matrix_warps(blocks *b)
{
    for (uint32_t r = 0; r < SX_COUNT(matrix_warp_rows); r++) {
        for (uint32_t c = 0; c < SX_COUNT(matrix_warp_columns); c++) {
            b->t.warp_rows = matrix_warp_rows[r];
            b->t.warp_columns = matrix_warp_columns[c];
            if (b->t.warp_rows >= b->matrix->rows && b->t.warp_columns >= b->matrix->columns) {
                SX_TRY(price_warp(b));
            }
        }
    }
    return SX_OK;
}

static sx_code price_lane_warps(blocks *b)
{
    int64_t lanes = b->space->device->lanes;
    for (uint32_t r = 0; r < SX_COUNT(thread_tiles); r++) {
        for (uint32_t c = 0; c < SX_COUNT(thread_tiles); c++) {
            b->t.thread_rows = thread_tiles[r];
            b->t.thread_columns = thread_tiles[c];
            b->t.warp_rows = thread_tiles[r] * LANE_ROWS;
            b->t.warp_columns = thread_tiles[c] * (lanes / LANE_ROWS);
            SX_TRY(price_warp(b));
        }
    }
    return SX_OK;
}

/* Has a launch as many blocks as tiles of this size make? */
static bool can_launch(const blocks *b, int64_t rows, int64_t columns)
{
    const int64_t *extent = b->space->a->extent;
    int64_t slices = b->t.apart ? extent[SX_ROLE_SUM] / b->t.slice : 1; /* a part of the batch */
    int64_t grid[3] = {0, sx_ceil_div_i64(extent[SX_ROLE_ROW], rows),
                       sx_ceil_div_i64(extent[SX_ROLE_COLUMN], columns)};
    return sx_mul_i64(extent[SX_ROLE_BATCH], slices, &grid[0]) && sx_grid_fits(grid);
}

/* ---- instructions of several warps together, whose factors the copy engine brings ---- */

#define GROUPS_MAX \
    2 /* of a block: a ring has four roles, the loading one and, by powers of two, these */
static const int64_t group_rows[] = {128, 256, 64};
/* Rows and columns of the largest block whose threads hold totals of slices beside their sums. */
#define SLICED_SIDE 128
/* Points of the space for the rows of a block, about. */
#define INSIDE_GROUPS (2 * SX_COUNT(depths))

/* A stage has all that a row of shared memory holds: no less keeps the tensor cores busy. */
static sx_code price_group_steps(blocks *b)
{
    int64_t sum = power_above(b->space->a->extent[SX_ROLE_SUM]);
    b->t.steps = SX_BLOCK_STAGE_BYTES_MAX / b->element;
    while (b->t.steps > b->t.matrix_steps && b->t.steps > sum) {
        b->t.steps /= 2;
    }
    sx_block_work_of(&b->of_tiles, &b->t, &b->work);
    return price_depths(b);
}

static sx_code price_group_rows(blocks *b)
{
    sx_search_result *result = b->space->result;
    const int64_t *extent = b->space->a->extent;
    for (uint32_t r = 0; r < SX_COUNT(group_rows); r++) {
        set_block(b, group_rows[r], b->t.columns);
        bool high = b->t.rows > SX_GROUP_ROWS && b->t.rows >= 2 * extent[SX_ROLE_ROW];
        bool fits = !high && can_launch(b, b->t.rows, b->t.columns);
        sx_block_tiles any = any_order(b);
        bool wanted = fits && sx_search_wants(b->space, sx_cost_block_least(b->problem, &any));
        if (!wanted) {
            uint32_t *phase = !fits ? &result->dropped_alignment : &result->dropped_bound;
            SX_TRY(sx_search_drop(b->space, phase, (uint32_t)INSIDE_GROUPS));
            continue;
        }
        int64_t least = sx_max_i64(SX_GROUP_ROWS, b->t.rows / GROUPS_MAX);
        for (int64_t own = least; own <= 2 * SX_GROUP_ROWS && own <= b->t.rows; own *= 2) {
            b->t.warp_rows = own;
            SX_TRY(price_group_steps(b));
        }
    }
    return SX_OK;
}

/* Would blocks that make their slices in turn leave half of the cores without work? */
static bool leaves_cores(const blocks *b)
{
    const int64_t *extent = b->space->a->extent;
    int64_t down = sx_ceil_div_i64(extent[SX_ROLE_ROW], SLICED_SIDE);
    int64_t across = sx_ceil_div_i64(extent[SX_ROLE_COLUMN], SLICED_SIDE);
    double blocks_of_all = (double)extent[SX_ROLE_BATCH] * (double)down * (double)across;
    return 2 * blocks_of_all <= b->space->device->cores;
}

/* A group has all columns of its block. */
static sx_code price_groups(blocks *b)
{
    const int64_t columns = b->space->a->extent[SX_ROLE_COLUMN];
    for (uint32_t i = b->matrix->more + 1; i-- > 0;) { /* the good ones first */
        b->t.matrix_columns = b->matrix[i].columns;
        b->t.columns = b->t.warp_columns = b->matrix[i].columns;
        if (i > 0 && b->t.columns >= 2 * columns) { /* half of it would be outside of the problem */
            SX_TRY(sx_search_drop(b->space, &b->space->result->dropped_alignment,
                                  (uint32_t)(SX_COUNT(group_rows) * INSIDE_GROUPS)));
            continue;
        }
        SX_TRY(price_group_rows(b));
    }
    return SX_OK;
}

/* The phase that drops tiles of this size for a block, or NULL. */
static uint32_t *block_phase(const blocks *b)
{
    sx_search_result *result = b->space->result;
    const int64_t *extent = b->space->a->extent;
    int64_t copy = COPY_BYTES / b->element; /* a row of a stage is no shorter */
    int64_t least_rows = sx_max_i64(copy, b->matrix != NULL ? b->matrix->rows : LANE_ROWS);
    int64_t least_columns = sx_max_i64(copy, b->matrix != NULL ? b->matrix->columns : 8);
    if (b->t.rows < least_rows || b->t.columns < least_columns) {
        return &result->dropped_alignment;
    }
    bool high = b->t.rows > least_rows && b->t.rows >= 2 * extent[SX_ROLE_ROW];
    bool wide = b->t.columns > least_columns && b->t.columns >= 2 * extent[SX_ROLE_COLUMN];
    if (high || wide) {
        return &result->dropped_alignment; /* half of it would be outside of the problem */
    }
    if (b->crowded && !can_launch(b, b->t.rows, b->t.columns)) {
        return &result->dropped_resources;
    }
    return NULL;
}

/* A tile of a block that is left, and the least that schedules with it cost. */
typedef struct {
    int64_t rows, columns;
    double least_ns;
} tile;

/* All of them, the one that may be cheapest first. */
static sx_code order_blocks(blocks *b, tile *order, uint32_t *count)
{
    *count = 0;
    for (uint32_t r = 0; r < SX_COUNT(block_rows); r++) {
        for (uint32_t c = 0; c < SX_COUNT(block_columns); c++) {
            set_block(b, block_rows[r], block_columns[c]);
            uint32_t *phase = block_phase(b);
            if (phase != NULL) {
                SX_TRY(sx_search_drop(b->space, phase, (uint32_t)INSIDE_BLOCK));
                continue;
            }
            sx_block_tiles any = any_order(b);
            double ns = sx_cost_block_least(b->problem, &any);
            uint32_t at = (*count)++;
            for (; at > 0 && order[at - 1].least_ns > ns; at--) {
                order[at] = order[at - 1];
            }
            order[at] = (tile){b->t.rows, b->t.columns, ns};
        }
    }
    return SX_OK;
}

/* Blocks on one side of a product, with their slices in turn or apart; whatever their tiles are. */
typedef struct {
    blocks b;
    tile order[SX_COUNT(block_rows) * SX_COUNT(block_columns)];
    uint32_t count;
    bool priced;
} part;
#define PARTS_MAX 4
typedef struct {
    part part[PARTS_MAX];
    uint32_t count;
} parts;

static sx_code put_part(parts *all, const blocks *b)
{
    SX_ASSERT(all->count < PARTS_MAX);
    part *p = &all->part[all->count++];
    p->b = *b;
    p->priced = false;
    p->b.crowded = !can_launch(b, block_rows[SX_COUNT(block_rows) - 1],
                               block_columns[SX_COUNT(block_columns) - 1]);
    find_steps(&p->b);
    return order_blocks(&p->b, p->order, &p->count);
}

static sx_code price_blocks(blocks *b, const tile *order, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        set_block(b, order[i].rows, order[i].columns);
        if (!sx_search_wants(b->space, order[i].least_ns)) { /* nor any that follows */
            return sx_search_drop(b->space, &b->space->result->dropped_bound,
                                  (count - i) * (uint32_t)INSIDE_BLOCK);
        }
        bound_steps(b);
        if (!wants_steps(b)) {
            SX_TRY(
                sx_search_drop(b->space, &b->space->result->dropped_bound, (uint32_t)INSIDE_BLOCK));
            continue;
        }
        SX_TRY(b->matrix != NULL ? price_matrix_warps(b) : price_lane_warps(b));
    }
    return SX_OK;
}

/* All parts, the one first that may be cheapest: what it costs drops most of the others. */
static sx_code price_parts(parts *all)
{
    for (uint32_t n = 0; n < all->count; n++) {
        uint32_t next = 0;
        double least = HUGE_VAL;
        for (uint32_t i = 0; i < all->count; i++) {
            const part *p = &all->part[i];
            double own = p->count > 0 ? p->order[0].least_ns : HUGE_VAL;
            bool sooner = !p->priced && (all->part[next].priced || own < least);
            next = sooner ? i : next;
            least = sooner ? own : least;
        }
        part *p = &all->part[next];
        p->priced = true;
        SX_TRY(price_blocks(&p->b, p->order, p->count));
    }
    return SX_OK;
}

/* Prices blocks of one side of the product, or leaves them in `all`. */
static sx_code search_side(sx_search_space *space, const sx_matrix_instruction *matrix,
                           bool swapped, sx_block_problem *problem, parts *all)
{
    const sx_analysis *a = space->a;
    SX_ASSERT(sx_search_takes_blocks(a));
    sx_block_problem_of(space->device, a, problem);
    int64_t left = sx_dtype_bytes(a->input[a->lhs].dtype);
    int64_t right = sx_dtype_bytes(a->input[a->rhs].dtype);
    blocks b = {.space = space,
                .problem = problem,
                .matrix = matrix,
                .element = sx_max_i64(left, right),
                .t = {.left = a->lhs, .right = a->rhs, .swapped = swapped}};
    if (matrix != NULL) {
        b.t.matrix_rows = matrix->rows;
        b.t.matrix_columns = matrix->columns;
        b.t.matrix_steps = matrix->steps;
        b.t.slice = sx_matrix_slice(matrix, a->extent[SX_ROLE_SUM]);
    }
    bool engine = sx_block_by_engine(&b.t);
    b.clusters = engine && space->device->cluster_blocks >= SX_BLOCK_CLUSTER;
    if (matrix != NULL &&
        !can_launch(&b, engine ? group_rows[0] : block_rows[0], block_columns[0])) {
        if (swapped) {
            return SX_OK;
        }
        /* without blocks it would be computed under another numerics plan */
        return SX_FAIL(
            space->cx, SX_LIMIT,
            "%lld products of %lld x %lld: more blocks of threads than the %d of a launch",
            (long long)a->extent[SX_ROLE_BATCH], (long long)a->extent[SX_ROLE_ROW],
            (long long)a->extent[SX_ROLE_COLUMN], SX_GRID_X_MAX);
    }
    sx_block_problem_of_tiles(problem, &b.t, &b.of_tiles);
    SX_TRY(engine ? price_groups(&b) : put_part(all, &b));
    b.t.apart = b.t.slice != 0 && sx_slices_apart(a) && (!engine || leaves_cores(&b));
    if (!b.t.apart) {
        return SX_OK;
    }
    sx_block_problem_of_tiles(problem, &b.t, &b.of_tiles);
    return engine ? price_groups(&b) : put_part(all, &b);
}

/* Few rows do not fill the side of a matrix instruction on which they stand; the columns do, and the rows then stand on
 * the side that can be as short as 8. */
static bool may_swap(const sx_search_space *space, const sx_matrix_instruction *matrix)
{
    const sx_analysis *a = space->a;
    return matrix != NULL && a->lhs != a->rhs && a->extent[SX_ROLE_ROW] <= SWAPPED_ROWS_MAX &&
           a->extent[SX_ROLE_ROW] < a->extent[SX_ROLE_COLUMN];
}

sx_code sx_search_blocks(sx_search_space *space, const sx_matrix_instruction *matrix)
{
    sx_block_problem problem[2];
    parts all;
    sx_analysis turned;
    sx_search_space other = *space;
    all.count = 0;
    if (space->sides != SX_SIDES_SWAPPED) {
        SX_TRY(search_side(space, matrix, false, &problem[0], &all));
    }
    if (space->sides != SX_SIDES_PLAIN && may_swap(space, matrix)) {
        turned = *space->a;
        sx_analysis_swap(&turned);
        other.a = &turned;
        SX_TRY(search_side(&other, matrix, true, &problem[1], &all));
    }
    return price_parts(&all);
}
