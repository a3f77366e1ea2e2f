/* warps.c - what kernels of the loop IR take where a grid point is a warp.
 *
 * A core runs several warps at once, as many as its registers and threads allow. Together they are as fast as its
 * units: multiply-adds, a load in a cycle, an instruction in a cycle for each of its schedulers. A warp alone waits
 * for each load of its straight line of code before it goes on (no generator here writes prefetches), so few warps
 * take as long as one: the latency of what they load, for each turn of their loops. The longer of the two counts. */
#include "core/cost/model.h"

#define POINT_CYCLES 60.0      /* the next point: its indices and addresses; an estimate */
#define OVERHEAD_REGISTERS 24u /* addresses, counters, bounds; an estimate */
#define BLOCK_WARPS 4u         /* how launches cut warps into blocks */
#define CACHE_LINE 128.0       /* what a warp's load takes in a cycle */
#define FOLD_CYCLES 250.0      /* 9 exchanges between lanes, each waited for; an estimate */
#define MEET_CYCLES \
    8.0 /* a sum of another warp: stored, waited for, loaded and added; an estimate */

/* ---- contractions ---- */

double sx_model_resident_warps(const sx_device *device, const sx_contraction_tiles *t,
                               uint32_t lane_bytes)
{
    uint32_t words = lane_bytes / 4;
    uint32_t registers = (t->block_rows * t->block_vectors + t->block_vectors + 1) * words;
    uint32_t blocks = sx_device_resident_blocks(device, BLOCK_WARPS * device->lanes,
                                                registers + OVERHEAD_REGISTERS, 0);
    return sx_most(1, blocks) * BLOCK_WARPS; /* where none fits, values live in memory */
}

/* Cycles that the units of a core need for one step of k of one register block. */
static double step_cycles(const sx_device *device, const sx_analysis *a,
                          const sx_contraction_tiles *t, double height)
{
    double vectors = t->block_vectors;
    bool scattered = t->panels == UINT32_MAX && !a->rhs_direct;
    double lines = scattered ? device->lanes : device->lanes * a->lane_bytes / CACHE_LINE;
    double fma = height * vectors / device->fma_per_cycle * sx_device_slower(device, a->arithmetic);
    double loads = vectors * lines + height * (a->lhs_by_lane ? vectors * lines : 1);
    double issued = (height * vectors + height + vectors + 2.0 / t->unroll) / SX_SCHEDULERS;
    return sx_most(sx_most(fma, loads), issued);
}

/* Cycles of `count` warps that a core runs at once, each with so many turns of the loop over k. Each has one of the
 * schedulers and its share of the units. */
static double together(double count, double turns, double step, double unroll, double latency)
{
    double busy = sx_most(count, SX_SCHEDULERS) * step * unroll;
    return POINT_CYCLES + turns * sx_most(busy, latency);
}

void sx_model_warps_begin(const sx_device *device, const sx_analysis *a, sx_model_warps *w)
{
    const sx_contraction_tiles *t = w->tiles;
    w->held = sx_model_resident_warps(device, t, a->lane_bytes);
    w->step = step_cycles(device, a, t, w->height);
    w->latency = (double)device->l2_latency + (double)device->fma_latency * t->unroll;
}

double sx_model_warps_ns(const sx_device *device, const sx_analysis *a, const sx_model_warps *w,
                         double column_tiles)
{
    const sx_contraction_tiles *t = w->tiles;
    double k = (double)a->extent[SX_ROLE_SUM];
    double points = (double)a->extent[SX_ROLE_BATCH] * w->row_tiles * column_tiles;
    double each = sx_whole(points / device->cores); /* of the busiest core */
    double held = w->held, step = w->step, latency = w->latency;
    double blocks = w->strips * w->panels / column_tiles; /* register blocks of a point */
    double turns = blocks * (k / t->unroll + 1);          /* and one that stores */
    double full = (double)(int64_t)(each / held), rest = each - full * held;
    double cycles = full * together(held, turns, step, t->unroll, latency);
    cycles += rest > 0 ? together(rest, turns, step, t->unroll, latency) : 0;
    double width = (double)t->block_vectors * t->lanes;
    bool stays = k * width * a->lane_bytes * sx_least(each, held) <= device->l1_bytes / 2;
    double read = k * a->lane_bytes * (width / (stays ? w->strips : 1) + w->height);
    double feed = each * blocks * read / device->l2_bytes_per_ns;
    SX_ASSERT(cycles > 0 && feed > 0);
    return sx_most(cycles / device->ghz, feed);
}

double sx_model_warps_bound_ns(const sx_device *device, const sx_analysis *a,
                               const sx_contraction_tiles *t, double height)
{
    double k = (double)a->extent[SX_ROLE_SUM];
    SX_ASSERT(height > 0);
    return k * step_cycles(device, a, t, height) / device->ghz;
}

/* ---- map and row kernels ---- */

/* Lines that a chain across the rows has, over all of its dimensions. */
static double chain_lines(const sx_analysis *a, const sx_model_row_steps *s)
{
    uint32_t inner = sx_view_inner_reduced(&a->view);
    int64_t length = inner == SX_NO_DIM ? 1 : a->view.extent[inner];
    int64_t lines = sx_ceil_div_i64(length, sx_max_i64(1, s->line_sum));
    return (double)(a->extent[SX_ROLE_SUM] / length) * (double)lines;
}

/* Times that one point waits for loads in a step of a chain across its rows, or in all: those of a contiguous piece
 * stand together as far as it is in straight line, where lanes have several elements as many as the lowering loads
 * before it computes. */
static double turns_of(const sx_analysis *a, const sx_model_row_steps *s)
{
    double rows = (double)sx_min_i64(s->rows, a->extent[SX_ROLE_ROW]);
    int64_t all = a->extent[a->along ? SX_ROLE_SUM : SX_ROLE_COLUMN];
    int64_t line = a->along ? s->line_sum : s->line_columns;
    bool wide_rows = a->along && s->width > 1;
    line = wide_rows ? sx_min_i64(line, SX_ROW_LOADED * (int64_t)s->lanes) : line;
    int64_t tile = a->along ? 0 : s->columns;
    tile = tile > 0 ? sx_min_i64(tile, all) : all;
    return rows * (double)sx_ceil_div_i64(tile, sx_max_i64(1, line));
}

/* How the warps of a device share the rows. */
typedef struct {
    double team;   /* warps of a block that share a row; 1: a point is the work of one */
    double passes; /* that read arguments, one after the other */
    double again;  /* bytes that they read once more, of the whole kernel */
    double folds;  /* sums that a warp makes of its lanes for a point */
    double meets;  /* sums that warps of a block exchange for a point */
    bool holds;    /* a warp keeps its row in registers */
} row_walk;

static row_walk walk_of(const sx_device *device, const sx_analysis *a, const sx_model_row_steps *s)
{
    int64_t length = a->extent[SX_ROLE_SUM], warp = s->team_sum;
    row_walk w = {.team = 1, .passes = 1};
    if (a->kind != SX_KERNEL_ROW) {
        return w;
    }
    const sx_row_passes passes = a->passes;
    sx_row_pieces cut = {.count = 1};
    if ((a->reduced & (a->reduced - 1)) == 0) {
        cut = sx_row_cut(length, a->lane_bytes);
    }
    w.holds = a->along && s->width > 1 && cut.count == 1 && s->line_sum >= length;
    w.team = warp > 0 ? (double)(cut.length * cut.count / warp) : 1;
    w.passes = w.holds ? 1 : sx_most(1, passes.passes);
    w.again = w.holds ? 0 : passes.bytes_again;
    w.folds = passes.reductions * (double)(a->along ? cut.count : 0) / w.team;
    w.meets = w.team > 1 ? passes.reductions * (double)cut.count : 0;
    SX_ASSERT(device->cores > 0 && w.team >= 1);
    return w;
}

/* Points that the device works at together. */
static double points_at_once(const sx_device *device, const sx_analysis *a,
                             const sx_model_row_steps *s, const row_walk *w)
{
    bool wide_rows = a->along && s->width > 1;
    bool chain = a->kind == SX_KERNEL_ROW && !a->along && s->line_sum > 1;
    if (!w->holds && w->team <= 1 && !chain) {
        return sx_device_points(device);
    }
    int64_t line = wide_rows ? s->line_sum : 0;
    line = w->holds ? line : SX_ROW_LOADED * (int64_t)device->lanes;
    uint32_t registers = (uint32_t)(line / device->lanes) + OVERHEAD_REGISTERS;
    registers = chain ? (uint32_t)s->line_sum * a->input_count + OVERHEAD_REGISTERS : registers;
    uint32_t warps = w->team > 1 ? (uint32_t)w->team : BLOCK_WARPS;
    uint32_t blocks = sx_device_resident_blocks(device, warps * device->lanes, registers, 0);
    double points = (double)sx_most(1, blocks) * device->cores;
    return w->team > 1 ? points : sx_least(sx_device_points(device), points * BLOCK_WARPS);
}

/* What is read again comes from the second level where it holds the rows that are worked at together, as far as the
 * cores that have work can take it; else from memory. */
static double moved_ns(const sx_device *device, const sx_analysis *a, const row_walk *w,
                       double points, double at_once)
{
    double together = a->bytes * sx_least(1, at_once / points);
    bool stays = together <= device->l2_bytes * device->cores;
    double feed = (a->bytes + w->again) / device->l2_bytes_per_ns / sx_least(points, device->cores);
    return sx_most(feed, sx_device_move_ns(device, a->bytes + (stays ? 0 : w->again)));
}

double sx_model_warp_rows_ns(const sx_device *device, const sx_analysis *a,
                             const sx_model_row_steps *s, double points, double work_ns)
{
    row_walk w = walk_of(device, a, s);
    double at_once = points_at_once(device, a, s, &w);
    double rows = turns_of(a, s), turns = rows * (a->along ? 1 : chain_lines(a, s));
    double waits = w.passes * sx_whole(turns / w.team) * device->memory_latency;
    double sums = w.folds * FOLD_CYCLES + w.meets * MEET_CYCLES;
    double chain = a->kind == SX_KERNEL_ROW && !a->along ? (double)a->extent[SX_ROLE_SUM] : 0;
    /* each step waits for the one before */
    sums += w.passes * rows * sx_whole(chain / w.team) * device->fma_latency;
    double alone = (waits + sums + POINT_CYCLES) / device->ghz;
    double moved = a->kind == SX_KERNEL_ROW ? moved_ns(device, a, &w, points, at_once) : 0;
    double each = sx_most(work_ns, moved) / points;
    double full = (double)(int64_t)(points / at_once), rest = points - full * at_once;
    SX_ASSERT(points >= 1 && alone > 0);
    return full * sx_most(at_once * each, alone) + (rest > 0 ? sx_most(rest * each, alone) : 0);
}
