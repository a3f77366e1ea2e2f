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

/* ---- contractions ---- */

/* Warps that a core holds at once. */
static double resident_warps(const sx_device *device, const sx_contraction_tiles *t,
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

double sx_model_warps_ns(const sx_device *device, const sx_analysis *a, const sx_model_warps *w,
                         double column_tiles)
{
    const sx_contraction_tiles *t = w->tiles;
    double k = (double)a->extent[SX_ROLE_SUM];
    double points = (double)a->extent[SX_ROLE_BATCH] * w->row_tiles * column_tiles;
    double each = sx_whole(points / device->cores); /* of the busiest core */
    double held = resident_warps(device, t, a->lane_bytes);
    double blocks = w->strips * w->panels / column_tiles; /* register blocks of a point */
    double turns = blocks * (k / t->unroll + 1);          /* and one that stores */
    double step = step_cycles(device, a, t, w->height);
    double latency = (double)device->l2_latency + (double)device->fma_latency * t->unroll;
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

/* Times that one point waits for loads: those of a contiguous piece stand together as far as it is in straight line,
 * where lanes have several elements as many as the lowering loads before it computes. */
static double turns_of(const sx_analysis *a, const sx_schedule *s)
{
    double rows = (double)sx_min_i64(sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_GRID, 0),
                                     a->extent[SX_ROLE_ROW]);
    sx_role along = a->along ? SX_ROLE_SUM : SX_ROLE_COLUMN;
    int64_t line = sx_schedule_step(s, along, SX_BIND_LOOP, 0);
    bool wide_rows = a->along && sx_schedule_width(s) > 1;
    line = wide_rows ? sx_min_i64(line, SX_ROW_LOADED * (int64_t)sx_schedule_lanes(s)) : line;
    int64_t tile = sx_schedule_step(s, along, SX_BIND_GRID, 0);
    int64_t all = a->extent[along];
    double pieces =
        (double)sx_ceil_div_i64(tile > 0 ? sx_min_i64(tile, all) : all, sx_max_i64(1, line));
    return rows * pieces * (a->along ? 1 : (double)a->extent[SX_ROLE_SUM]);
}

/* Warps that a core holds at once where each keeps its row in registers; no bound where it does not. */
static double held_warps(const sx_device *device, const sx_analysis *a, const sx_schedule *s)
{
    int64_t line = sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_LOOP, 0);
    if (!a->along || sx_schedule_width(s) < 2 || line < a->extent[SX_ROLE_SUM]) {
        return device->core_threads / device->lanes;
    }
    uint32_t registers = (uint32_t)(line / device->lanes) + OVERHEAD_REGISTERS;
    uint32_t blocks = sx_device_resident_blocks(device, BLOCK_WARPS * device->lanes, registers, 0);
    return sx_most(1, blocks) * BLOCK_WARPS;
}

double sx_model_warp_rows_ns(const sx_device *device, const sx_analysis *a, const sx_schedule *s,
                             double points, double work_ns)
{
    double at_once = sx_least(sx_device_points(device), device->cores * held_warps(device, a, s));
    double alone = (turns_of(a, s) * device->memory_latency + POINT_CYCLES) / device->ghz;
    double each = work_ns / points;
    double full = (double)(int64_t)(points / at_once), rest = points - full * at_once;
    SX_ASSERT(points >= 1 && alone > 0);
    return full * sx_most(at_once * each, alone) + (rest > 0 ? sx_most(rest * each, alone) : 0);
}
