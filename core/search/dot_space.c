/* dot_space.c - the plans of a contraction and their analytical price.
 *
 * Model, per core: a strip of h rows by v vectors needs for each k step h*v multiply-adds (at fma_per_cycle, but not faster than the
 * latency of one chain) and h + v loads at two a cycle. The panel of the right argument is read once for each strip, from L1 where it
 * fits half of it, else from L2; the rows of the left argument once for each panel. Grid points are dealt to cores in whole numbers.
 * Compare Low et al. 2016, "Analytical modeling is enough for high-performance BLIS". */
#include "core/search/space.h"

#include <math.h>

#define POINT_NS 20.0 /* entering a grid point: call, address set-up */
#define LOADS_PER_CYCLE 2.0
#define STRIP_CYCLES 24.0 /* prologue and stores of one register block */
#define UNHIDDEN 0.1      /* share of the shorter of computing and moving that does not overlap */

static const int64_t tile_rows[] = {16, 32, 64, 128, 256, 512};
static const int64_t tile_panels[] = {1, 2, 4, 8, 16, 32};
static const uint32_t unrolls[] = {1, 2, 4};

static int64_t padded_columns(const sx_search_problem *p)
{
    return sx_ceil_div_i64(p->dot.n, p->device->lanes) * p->device->lanes;
}

sx_code sx_dot_space(const sx_search_problem *p, sx_search_visit visit, void *self)
{
    uint32_t lanes = p->device->lanes;
    uint32_t first =
        p->dot.b_packable && !p->dot.b_direct ? 1 : 0; /* columns apart are slow to read in place */
    uint32_t last = p->dot.b_packable ? 1 : 0;
    for (uint32_t nv = 1; nv <= 4; nv++) {
        for (uint32_t bm = 1; bm <= 14; bm++) {
            for (uint32_t t = 0; t < SX_COUNT(tile_rows); t++) {
                for (uint32_t c = 0; c < SX_COUNT(tile_panels); c++) {
                    for (uint32_t u = 0; u < SX_COUNT(unrolls); u++) {
                        for (uint32_t packed = first; packed <= last; packed++) {
                            sx_lower_plan plan = {.lanes = lanes,
                                                  .block_m = bm,
                                                  .block_nv = nv,
                                                  .tile_m = tile_rows[t],
                                                  .tile_n = tile_panels[c] * nv * lanes,
                                                  .unroll_k = unrolls[u],
                                                  .packed_b = packed == 1};
                            SX_TRY(visit(self, &plan));
                        }
                    }
                }
            }
        }
    }
    return SX_OK;
}

sx_search_phase sx_dot_sieve(const sx_search_problem *p, const sx_lower_plan *plan)
{
    const sx_device *device = p->device;
    int64_t width = (int64_t)plan->block_nv * plan->lanes;
    int64_t rows = sx_min_i64(plan->block_m, p->dot.m);
    /* resources: accumulators, one row of the right argument, a broadcast and a spare */
    if (plan->block_m * plan->block_nv + plan->block_nv + 2 > device->registers) {
        return SX_PHASE_RESOURCES;
    }
    if ((double)sx_min_i64(plan->tile_m, p->dot.m) * (double)p->dot.k * 4 > device->l2_bytes / 2 &&
        plan->tile_m > 16) {
        return SX_PHASE_RESOURCES; /* the rows of a grid point are read again for each panel */
    }
    /* alignment: the block is not larger than the problem, tiles are not larger than needed, k fills the unrolled body */
    if (width >= padded_columns(p) + plan->lanes || rows < (int64_t)plan->block_m ||
        (plan->tile_m > 16 && plan->tile_m >= 2 * p->dot.m) ||
        plan->tile_m < (int64_t)plan->block_m ||
        (plan->tile_n > width && plan->tile_n >= 2 * padded_columns(p)) ||
        plan->unroll_k > p->dot.k) {
        return SX_PHASE_ALIGNMENT;
    }
    /* roofline: independent chains that cannot fill the pipeline, where a wider block exists */
    double chains = (double)plan->block_m * plan->block_nv;
    double needed = (double)device->fma_per_cycle * device->fma_latency;
    double possible = (double)p->dot.m * (double)(padded_columns(p) / plan->lanes);
    if (chains < needed / 2 && possible >= needed && chains < possible) {
        return SX_PHASE_ROOFLINE;
    }
    return SX_PHASE_KEPT;
}

/* Cycles one core needs for a strip of `rows` rows by `width` columns over all of k. */
static double strip_cycles(const sx_search_problem *p, const sx_lower_plan *plan, double rows)
{
    const sx_device *device = p->device;
    double vectors = plan->block_nv;
    double k = (double)p->dot.k;
    double fma = rows * vectors / device->fma_per_cycle;
    double latency = device->fma_latency;
    double loads = (rows + vectors) / LOADS_PER_CYCLE;
    double loop = 2.0 / plan->unroll_k;
    double step = fmax(fmax(fma, latency), loads) + 0.25 * loop;
    double panel_bytes = k * vectors * plan->lanes * 4;
    double row_step = plan->packed_b ? vectors * plan->lanes * 4 : (double)p->dot.n * 4;
    bool in_l1 = panel_bytes <= device->l1_bytes / 2 && (plan->packed_b || row_step < 2048);
    double feed = in_l1 ? 0 : panel_bytes / device->l2_bytes_per_ns * device->ghz;
    double strided =
        row_step <= 1024
            ? 1.04
            : (row_step < 4096 ? 1.12 : 1.25); /* few lines of each page: no prefetch */
    return fmax(k * step, feed) * (plan->packed_b ? 1.0 : strided) + STRIP_CYCLES + rows * vectors;
}

double sx_dot_price(const sx_search_problem *p, const sx_lower_plan *plan)
{
    const sx_device *device = p->device;
    double m = (double)p->dot.m, batch = (double)p->dot.batch;
    int64_t width = (int64_t)plan->block_nv * plan->lanes;
    double panels = (double)sx_ceil_div_i64(p->dot.n, width);
    int64_t row_tiles = sx_ceil_div_i64(p->dot.m, plan->tile_m);
    int64_t column_tiles = sx_ceil_div_i64(p->dot.n, plan->tile_n);
    double tile_rows_mean = m / (double)row_tiles;
    double strips = ceil(tile_rows_mean / plan->block_m);
    double height = tile_rows_mean / strips;
    double panels_per_tile = panels / (double)column_tiles;
    double cycles = strips * panels_per_tile * strip_cycles(p, plan, height);
    double points = batch * (double)row_tiles * (double)column_tiles;
    double rounds = ceil(points / device->cores); /* the slowest core */
    double time = rounds * (cycles / device->ghz + POINT_NS);
    if (plan->packed_b && !p->rhs_constant) {
        double copies = p->dot.rhs_batched ? batch : 1;
        double bytes = copies * (double)p->dot.k * panels * (double)width * 4;
        time += device->launch_ns + 2 * bytes / (device->l2_bytes_per_ns * device->cores);
    }
    double moved = sx_device_move_ns(device, p->bytes);
    double overlapped = fmax(time, moved) + UNHIDDEN * fmin(time, moved);
    return fmax(overlapped, p->floor_ns) + device->launch_ns;
}
