/* schedule.c - what a kernel takes under a schedule, by an analytical model. Times are for the whole device.
 *
 * Contraction, per core: a strip of h rows by v vectors needs for each k step h*v multiply-adds (at
 * fma_per_cycle, but not faster than the latency of one chain) and h + v loads at two a cycle. The panel of
 * the right argument is read once for each strip, from L1 where it fits half of it, else from L2; the rows of
 * the left argument once for each panel. What does not stay in L2 comes from the level behind it, a panel for
 * each tile of rows, a strip for each batch and tile; a core waits for what its first use does not hide. Grid
 * points are dealt to cores in whole numbers. Compare Low et al. 2016, "Analytical modeling is enough for
 * high-performance BLIS".
 *
 * Online sums and nested contractions: keys.c. Map and row kernels are bound by memory. Where lanes are threads a grid
 * point is a warp: warps.c. */
#include <math.h>

#include "core/cost/model.h"
#include "core/cost/online_blocks.h"

#define STRIP_CYCLES 24.0 /* prologue and stores of one register block */
#define UNHIDDEN 0.1      /* share of the shorter of computing and moving that does not overlap */
#define SCATTERED_LINE_CYCLES \
    3.0 /* the same where each comes from a line of its own, in maps ... */
#define SCATTERED_ROW_CYCLES \
    8.0                   /* ... and in row kernels, which walk along a row before the next one */
#define TURNED_CYCLES 0.6 /* an element of a square that is turned in registers */
#define LINE_BYTES 64.0

double sx_cost_floor(const sx_device *device, const sx_analysis *a)
{
    bool contraction =
        a->kind == SX_KERNEL_DOT || a->kind == SX_KERNEL_ONLINE || a->kind == SX_KERNEL_NESTED;
    return sx_device_floor_ns(device, a->arithmetic, contraction, a->work, a->bytes);
}

/* ---- contractions ---- */

#define WAYS 16.0         /* of the second level of a core */
#define APART_LINE_NS 6.0 /* a line of its own from the shared level, several being on their way */

/* Cycles in which a strip waits for an operand each of whose steps of k has `bytes` side by side and lies `step` bytes
 * behind the last. Where the step is a multiple of a power of two, lines meet in few sets of the second level; what
 * does not stay there comes again for each strip, and no prefetch follows it. */
static double apart_cycles(const sx_device *device, double k, double step, double bytes)
{
    double sets = device->l2_bytes / (WAYS * LINE_BYTES), apart = 1;
    double lines = sx_whole(bytes / LINE_BYTES);
    if (device->l3_bytes_per_ns <= 0 || step < LINE_BYTES) {
        return 0;
    }
    while (apart < sets && fmod(step, 2 * apart * LINE_BYTES) == 0) {
        apart *= 2;
    }
    double room = device->l2_bytes / 2 * sx_least(1, lines / apart);
    return k * lines * LINE_BYTES > room ? k * lines * APART_LINE_NS * device->ghz : 0;
}

/* The same for both operands: the right one where it is not packed, the left one where its rows lie side by side. */
static double operands_apart_cycles(const sx_device *device, const sx_analysis *a, bool packed,
                                    double row_step, double width)
{
    uint32_t d = sx_view_inner_reduced(&a->view);
    if (d == SX_NO_DIM) {
        return 0;
    }
    double k = (double)a->extent[SX_ROLE_SUM];
    double left = (double)a->view.stride[a->lhs][d] * a->lane_bytes;
    return apart_cycles(device, k, left, LINE_BYTES) +
           (packed ? 0 : apart_cycles(device, k, row_step, width * a->lane_bytes));
}

/* Cycles one core needs for a strip of `rows` rows by a panel over all of k. */
static double strip_cycles(const sx_device *device, const sx_analysis *a,
                           const sx_contraction_tiles *t, double rows)
{
    bool packed = t->panels != UINT32_MAX;
    double vectors = t->block_vectors;
    double width = vectors * t->lanes;
    double k = (double)a->extent[SX_ROLE_SUM];
    double fma = rows * vectors / device->fma_per_cycle * sx_device_slower(device, a->arithmetic);
    double loads = (rows + vectors) / SX_LOADS_PER_CYCLE;
    double loop = 2.0 / t->unroll;
    double cycles = fmax(fmax(fma, device->fma_latency), loads) + 0.25 * loop;
    double panel_bytes = k * width * a->lane_bytes;
    double row_step = (packed ? width : (double)a->extent[SX_ROLE_COLUMN]) * a->lane_bytes;
    bool in_l1 = panel_bytes <= device->l1_bytes / 2 && (packed || row_step < 2048);
    double feed = in_l1 ? 0 : panel_bytes / device->l2_bytes_per_ns * device->ghz;
    double strided = row_step <= 1024  ? 1.04
                     : row_step < 4096 ? 1.12
                                       : 1.25; /* few lines of each page: no prefetch */
    return fmax(k * cycles, feed) * (packed ? 1.0 : strided) + STRIP_CYCLES + rows * vectors +
           operands_apart_cycles(device, a, packed, row_step, width);
}

double sx_model_distinct_bytes(const sx_analysis *a, uint32_t argument)
{
    double span = 1, product = 1;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        double extent = (double)a->view.extent[d];
        double stride = (double)a->view.stride[argument][d];
        span += stride * (extent - 1);
        product *= stride > 0 ? extent : 1;
    }
    return (double)sx_dtype_bytes(a->input[argument].dtype) * sx_least(span, product);
}

/* What one core takes for all strips of a tile of rows by all panels. Operands that do not stay in L2 come from
 * the level that the cores share: a panel of the right argument while the first strip runs over it, the rows of a
 * strip while it runs over the first panel. The longer of fetching and computing counts. */
static double sweep_ns(const sx_device *device, const sx_analysis *a, const sx_contraction_tiles *t,
                       double strips, double panels)
{
    SX_ASSERT(strips >= 1 && panels >= 1);
    double m = (double)a->extent[SX_ROLE_ROW], n = (double)a->extent[SX_ROLE_COLUMN];
    double row_tiles = sx_whole(m / (double)t->tile_rows);
    double strip = strip_cycles(device, a, t, m / row_tiles / strips) / device->ghz;
    double rate = device->l3_bytes_per_ns;
    if (!(rate > 0)) {
        return strips * panels * strip;
    }
    double room = device->l2_bytes / 2;
    double row_bytes = a->lane_bytes * (double)a->extent[SX_ROLE_SUM];
    double rhs = row_bytes * n; /* of one batch */
    rhs = t->panels == UINT32_MAX ? sx_least(rhs, sx_model_distinct_bytes(a, a->rhs)) : rhs;
    double lhs = sx_model_distinct_bytes(a, a->lhs);
    double panel_fetch = rhs <= room ? 0 : rhs / panels / rate;
    double rows_fetch = lhs <= room ? 0 : sx_least(row_bytes * m, lhs) / row_tiles / strips / rate;
    double first = fmax(strip, panel_fetch + rows_fetch);
    double first_strip = (panels - 1) * fmax(strip, panel_fetch);
    double first_panel = (strips - 1) * fmax(strip, rows_fetch);
    return first + first_strip + first_panel + (strips - 1) * (panels - 1) * strip;
}

double sx_model_overlap(double computing, double moving)
{
    return sx_most(computing, moving) + UNHIDDEN * sx_least(computing, moving);
}

double sx_model_overlapped(const sx_device *device, const sx_analysis *a, double computing)
{
    return sx_model_overlap(computing, sx_device_move_ns(device, a->bytes));
}

/* The source comes from memory; the panels go no further than the level that the cores share, if they fit half of it,
 * as the next launch reads them. */
static double pack_ns(const sx_device *device, const sx_analysis *a, double width)
{
    double panels = sx_whole((double)a->extent[SX_ROLE_COLUMN] / width);
    double rows = a->lane_bytes * (double)a->rhs_copies * (double)a->extent[SX_ROLE_SUM];
    double packed = rows * panels * width;
    double source = rows * (double)a->extent[SX_ROLE_COLUMN];
    double copying = 2 * packed / (device->l2_bytes_per_ns * device->cores);
    double kept = packed <= device->l3_bytes / 2 && device->l3_bytes_per_ns > 0 ? packed : 0;
    double moving = sx_device_move_ns(device, source + packed - kept);
    moving += kept > 0 ? kept / (device->l3_bytes_per_ns * device->cores) : 0;
    return device->launch_ns + fmax(copying, moving);
}

/* A core holds no more warps than it has points. */
void sx_cost_contraction_rows(const sx_device *device, const sx_analysis *a,
                              const sx_contraction_tiles *t, int64_t columns,
                              sx_contraction_rows *rows)
{
    double m = (double)a->extent[SX_ROLE_ROW], n = (double)a->extent[SX_ROLE_COLUMN];
    double row_tiles = sx_whole(m / (double)t->tile_rows);
    double points = (double)a->extent[SX_ROLE_BATCH] * row_tiles * sx_whole(n / (double)columns);
    SX_ASSERT(sx_model_has_warps(device) && columns > 0);
    rows->strips = sx_whole(m / row_tiles / t->block_rows);
    rows->height = m / row_tiles / rows->strips;
    rows->held = sx_least(sx_model_resident_warps(device, t, a->lane_bytes),
                          sx_whole(points / device->cores));
}

void sx_cost_contractions(const sx_device *device, const sx_analysis *a,
                          const sx_contraction_tiles *t, const int64_t *tile_columns,
                          uint32_t count, bool rhs_constant, double *ns)
{
    double m = (double)a->extent[SX_ROLE_ROW], n = (double)a->extent[SX_ROLE_COLUMN];
    double width = (double)t->block_vectors * t->lanes;
    double panels = sx_whole(n / width);
    double row_tiles = sx_whole(m / (double)t->tile_rows);
    double strips = sx_whole(m / row_tiles / t->block_rows);
    bool warps = sx_model_has_warps(device);
    sx_model_warps points_of_warps = {.tiles = t,
                                      .strips = strips,
                                      .height = m / row_tiles / strips,
                                      .panels = panels,
                                      .row_tiles = row_tiles};
    if (warps) {
        sx_model_warps_begin(device, a, &points_of_warps);
    }
    double sweep = warps ? 0 : sweep_ns(device, a, t, strips, panels);
    double points = (double)a->extent[SX_ROLE_BATCH] * row_tiles;
    double floor_ns = sx_cost_floor(device, a);
    bool packs = t->panels != UINT32_MAX && !rhs_constant;
    double beside = device->launch_ns + (packs ? pack_ns(device, a, width) : 0);
    for (uint32_t c = 0; c < count; c++) {
        double column_tiles = sx_whole(n / (double)tile_columns[c]);
        double rounds = sx_whole(points * column_tiles / device->cores); /* the slowest core */
        double time = warps ? sx_model_warps_ns(device, a, &points_of_warps, column_tiles)
                            : rounds * (sweep / column_tiles + SX_POINT_NS);
        ns[c] = sx_most(sx_model_overlapped(device, a, time), floor_ns) + beside;
    }
}

static sx_contraction_tiles tiles_of(const sx_analysis *a, const sx_schedule *s)
{
    uint32_t lanes = sx_schedule_lanes(s);
    int64_t width = sx_schedule_step(s, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
    return (sx_contraction_tiles){
        .lanes = lanes,
        .block_rows = (uint32_t)sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_LOOP, 0),
        .block_vectors = (uint32_t)(width / lanes),
        .tile_rows = sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_GRID, 0),
        .tile_columns = sx_schedule_step(s, SX_ROLE_COLUMN, SX_BIND_GRID, 0),
        .unroll = (uint32_t)sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_LOOP, 0),
        .panels = sx_schedule_stage(s, a->rhs) != NULL ? a->rhs : UINT32_MAX};
}

/* A contraction as the blocks of a schedule see it. */
static void problem_of(const sx_device *device, const sx_analysis *a, const sx_block_tiles *tiles,
                       sx_block_problem *problem)
{
    sx_analysis blocks;
    sx_analysis_of_blocks(a, &blocks);
    if (tiles->swapped) {
        sx_analysis_swap(&blocks);
    }
    sx_block_problem_of(device, &blocks, problem);
}

double sx_cost_pack(const sx_device *device, const sx_analysis *a, const sx_schedule *s)
{
    sx_block_tiles block;
    if (sx_block_tiles_of(s, &block) && block.apart) {
        sx_block_problem problem;
        problem_of(device, a, &block, &problem);
        return sx_cost_block(&problem, &block) - sx_cost_combine(&problem, &block);
    }
    return pack_ns(device, a, (double)sx_schedule_step(s, SX_ROLE_COLUMN, SX_BIND_LOOP, 0));
}

/* The work of all strips, spread over the cores without rest; strips are as high as they can be, as their
 * fixed costs count less then. */
double sx_cost_block_bound(const sx_device *device, const sx_analysis *a,
                           const sx_contraction_tiles *t, bool rhs_constant)
{
    double width = (double)t->block_vectors * t->lanes;
    double strips = sx_whole((double)a->extent[SX_ROLE_ROW] / t->block_rows);
    double panels = sx_whole((double)a->extent[SX_ROLE_COLUMN] / width);
    double height = (double)a->extent[SX_ROLE_ROW] / strips;
    double each = sx_model_has_warps(device) ? sx_model_warps_bound_ns(device, a, t, height)
                                             : strip_cycles(device, a, t, height) / device->ghz;
    double time = (double)a->extent[SX_ROLE_BATCH] * strips * panels * each / device->cores;
    bool packs = t->panels != UINT32_MAX && !rhs_constant;
    return sx_model_overlapped(device, a, time) + device->launch_ns +
           (packs ? pack_ns(device, a, width) : 0);
}

/* ---- the other kinds: what a schedule says ---- */

typedef struct {
    const sx_device *device;
    const sx_analysis *a;
    const sx_schedule *s;
} pricing;

static double extent(const pricing *p, sx_role role)
{
    return (double)p->a->extent[role];
}

/* ---- map and row kernels ---- */

#define SECTOR_BYTES 32.0
#define SQUARE_CYCLES \
    160 /* 32 rows, 5 exchanges of lanes for each; a core does one for a warp in a cycle */

/* Of a map, what lies apart along the lanes of a warp: the second level answers with 32 bytes for each such element,
 * unless the warp turns it in registers. */
static double lines_ns(const pricing *p, double points)
{
    const sx_device *device = p->device;
    const sx_analysis *a = p->a;
    double bytes = a->bytes;
    if (a->kind != SX_KERNEL_MAP || a->lane == SX_NO_DIM) {
        return 0;
    }
    if (sx_schedule_turned_rows(a, p->s) != SX_NO_DIM) {
        return points * SQUARE_CYCLES / device->ghz / device->cores;
    }
    for (uint32_t k = 0; k < a->body->arg_count; k++) {
        int64_t stride = a->view.stride[k][a->lane];
        double elements = 1, apart = (double)stride * sx_dtype_bytes(a->input[k].dtype);
        for (uint32_t d = 0; d < a->view.rank; d++) {
            elements *= a->view.stride[k][d] != 0 ? (double)a->view.extent[d] : 1;
        }
        bytes += stride > 1 ? elements * fmin(SECTOR_BYTES, apart) : 0;
    }
    return bytes / device->l2_bytes_per_ns / device->cores;
}

static sx_model_row_steps row_steps_of(const sx_schedule *s)
{
    sx_model_row_steps steps = {.lanes = sx_schedule_lanes(s), .width = sx_schedule_width(s)};
    for (uint32_t i = s->level_count; i-- > 0;) { /* the outermost of several counts */
        const sx_level *level = &s->level[i];
        bool grid = level->bind == SX_BIND_GRID, loop = level->bind == SX_BIND_LOOP;
        if (level->axis == SX_ROLE_ROW && grid) {
            steps.rows = level->step;
        } else if (level->axis == SX_ROLE_COLUMN && (grid || loop)) {
            *(grid ? &steps.columns : &steps.line_columns) = level->step;
        } else if (level->axis == SX_ROLE_SUM && loop) {
            steps.line_sum = level->step;
        } else if (level->axis == SX_ROLE_SUM && level->bind == SX_BIND_WARP) {
            steps.team_sum = level->step;
        }
    }
    return steps;
}

/* A grid point works on whole vectors and fetches whole cache lines of every tensor. */
static double price_rows(const pricing *p)
{
    const sx_device *device = p->device;
    const sx_analysis *a = p->a;
    const sx_model_row_steps steps = row_steps_of(p->s);
    double lanes = steps.lanes, tile = (double)steps.columns;
    double points = sx_whole(extent(p, SX_ROLE_ROW) / (double)steps.rows);
    points *= tile > 0 ? sx_whole(extent(p, SX_ROLE_COLUMN) / tile) : 1;
    double along = a->lane == SX_NO_DIM ? 1 : (double)a->view.extent[a->lane];
    double vectors = a->lane == SX_NO_DIM ? lanes : sx_whole(along / lanes) * lanes / along;
    double bytes = sx_most(a->effort, points * LINE_BYTES * (a->input_count + a->result_count));
    double computing = sx_device_compute_ns(device, a->arithmetic, false, a->work);
    double work = sx_most(computing * vectors, sx_device_move_ns(device, bytes));
    if (sx_model_has_warps(device)) {
        bool again = a->passes.makes_again && steps.team_sum > 0; /* blocks keep no values */
        work = again ? sx_most(work, 2 * computing) : work;
        work = sx_most(work, lines_ns(p, points));
        return sx_model_warp_rows_ns(device, a, &steps, points, work);
    }
    double rounds = sx_whole(points / device->cores);
    bool turned = sx_schedule_turned_rows(a, p->s) != SX_NO_DIM;
    double apart = a->kind == SX_KERNEL_ROW ? SCATTERED_ROW_CYCLES : SCATTERED_LINE_CYCLES;
    double cycles = turned ? TURNED_CYCLES : apart;
    work += a->scattered * cycles / device->ghz / device->cores;
    return work * rounds * device->cores / points + rounds * SX_POINT_NS;
}

double sx_cost_schedule(const sx_device *device, const sx_analysis *a, const sx_schedule *s,
                        bool rhs_constant)
{
    sx_block_tiles block;
    if (a->kind == SX_KERNEL_DOT && sx_block_tiles_of(s, &block)) {
        sx_block_problem problem;
        problem_of(device, a, &block, &problem);
        return sx_cost_block(&problem, &block);
    }
    if (a->kind == SX_KERNEL_DOT) {
        double ns;
        sx_contraction_tiles tiles = tiles_of(a, s);
        sx_cost_contractions(device, a, &tiles, &tiles.tile_columns, 1, rhs_constant, &ns);
        return ns;
    }
    sx_online_blocks online;
    bool sums = a->kind == SX_KERNEL_ONLINE || a->kind == SX_KERNEL_NESTED;
    if (sums && sx_online_blocks_of(s, &online)) {
        return sx_cost_online_blocks(device, a, &online);
    }
    pricing p = {device, a, s};
    double time = sums ? sx_model_keys_ns(device, a, s) : price_rows(&p);
    return sx_most(time, sx_cost_floor(device, a)) + device->launch_ns;
}
