/* model.h - what the files of the analytical model share. Internal to core/cost. */
#ifndef SX_CORE_COST_MODEL_H
#define SX_CORE_COST_MODEL_H
#include "core/cost/cost.h"

/* The next whole number of a positive one below 2^53. */
static inline double sx_whole(double x)
{
    double down = (double)(int64_t)x;
    return down < x ? down + 1 : down;
}

static inline double sx_least(double x, double y)
{
    return x < y ? x : y;
}

static inline double sx_most(double x, double y)
{
    return x > y ? x : y;
}

/* Of a multiprocessor, since compute capability 5.0. Each issues an instruction of one warp in a cycle, and has its
 * share of the units that compute. */
#define SX_SCHEDULERS 4.0

/* Do grid points of kernels of the loop IR run as warps? */
static inline bool sx_model_has_warps(const sx_device *device)
{
    return device->block_threads > 0;
}

/* Of a core with vector registers. */
#define SX_POINT_NS 20.0 /* entering a grid point: call, address set-up */
#define SX_LOADS_PER_CYCLE 2.0
#define SX_SCATTERED_CYCLES 1.0 /* an element that goes to its lane by itself */

/* ---- keys.c ---- */
/* Online sums and nested contractions of the loop IR, without their launch. */
double sx_model_keys_ns(const sx_device *device, const sx_analysis *a, const sx_schedule *s);

/* ---- schedule.c ---- */
/* Bytes of an argument that are read, about: windows of a convolution overlap, rows of a slice lie apart. */
double sx_model_distinct_bytes(const sx_analysis *a, uint32_t argument);
/* A kernel that computes for so long and moves its bytes meanwhile, as far as the two overlap. */
double sx_model_overlap(double computing, double moving);
double sx_model_overlapped(const sx_device *device, const sx_analysis *a, double computing);

/* What the schedule of a map or row kernel says, read from its levels once; 0: it has no such level. */
typedef struct {
    int64_t rows, columns;          /* of a grid point */
    int64_t line_columns, line_sum; /* in straight line: of the columns, of what a row sums */
    int64_t team_sum;               /* of a row, the work of one warp of several */
    uint32_t lanes, width;          /* lanes of a vector; elements of one side by side */
} sx_model_row_steps;

/* ---- warps.c: kernels of the loop IR where a grid point is a warp ---- */
/* What the cores take for all points of a contraction. `strips` register blocks stand one above the other in a tile
 * of rows, `height` rows in each. */
typedef struct {
    const sx_contraction_tiles *tiles;
    double strips, height, panels;
    double row_tiles;
    /* Of sx_model_warps_begin: warps that a core holds at once, cycles of its units for a step of k of a register
     * block, and of a warp that waits for what it loads. */
    double held, step, latency;
} sx_model_warps;
/* Warps with these register blocks that a core holds at once. */
double sx_model_resident_warps(const sx_device *device, const sx_contraction_tiles *tiles,
                               uint32_t lane_bytes);
void sx_model_warps_begin(const sx_device *device, const sx_analysis *a, sx_model_warps *w);
double sx_model_warps_ns(const sx_device *device, const sx_analysis *a, const sx_model_warps *w,
                         double column_tiles);
/* No tiles take less with register blocks of `height` rows. */
double sx_model_warps_bound_ns(const sx_device *device, const sx_analysis *a,
                               const sx_contraction_tiles *tiles, double height);
/* Map and row kernels, without their launch. */
double sx_model_warp_rows_ns(const sx_device *device, const sx_analysis *a,
                             const sx_model_row_steps *s, double points, double work_ns);
#endif
