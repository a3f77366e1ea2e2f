/* cost.h - what work costs on a device: roofline floors and per-node estimates.
 *
 * Times are nanoseconds as doubles, for the whole device (all cores). No estimate is below the roofline floor
 * max(flops / peak, bytes / bandwidth) of the whole problem (Williams, Waterman, Patterson 2009); estimates
 * grow with every extent.
 */
#ifndef SX_CORE_COST_COST_H
#define SX_CORE_COST_COST_H
#include "core/cost/device.h"
#include "core/kernel/kernel.h"

#define SX_COST_ROUNDS 8.0 /* of a while, as nobody knows before it runs */

/* No schedule of the kernel takes less: its work at the best rate for its type, or its bytes. */
double sx_cost_floor(const sx_device *device, const sx_analysis *analysis);
/* Estimated time of a kernel under a schedule, launch included; not below the roofline floor of its work and
 * bytes. The schedule is one that a lowering takes. `rhs_constant`: the right argument of a contraction
 * depends on weights alone, so packing it costs nothing at run time. */
double sx_cost_schedule(const sx_device *device, const sx_analysis *analysis,
                        const sx_schedule *schedule, bool rhs_constant);
/* What of it is the launch that packs the right argument, or makes the sums of slices. */
double sx_cost_pack(const sx_device *device, const sx_analysis *analysis,
                    const sx_schedule *schedule);
/* sx_cost_schedule for contractions that differ in the columns of a grid point alone: ns[c] under tile_columns[c]. */
void sx_cost_contractions(const sx_device *device, const sx_analysis *analysis,
                          const sx_contraction_tiles *tiles, const int64_t *tile_columns,
                          uint32_t count, bool rhs_constant, double *ns);
/* Where grid points are warps: what of the rows of register blocks these prices depend on, if grid points have so many
 * columns at least. With equal ones, tiles that differ in the rows of their blocks alone cost the same. */
typedef struct {
    double strips, height, held;
} sx_contraction_rows;
void sx_cost_contraction_rows(const sx_device *device, const sx_analysis *analysis,
                              const sx_contraction_tiles *tiles, int64_t columns,
                              sx_contraction_rows *rows);
/* No contraction with these register blocks, whatever its tiles, costs less. */
double sx_cost_block_bound(const sx_device *device, const sx_analysis *analysis,
                           const sx_contraction_tiles *tiles, bool rhs_constant);

/* ---- blocks.c: contractions under block schedules (sx_block_tiles), on devices with the laws of blocks ---- */
/* One of the two arguments that are multiplied. */
typedef struct {
    /* Bytes of an element in memory, what is fetched for one, and what is copied at once. */
    double element, fetched, copied;
    /* Distinct bytes of the whole argument. */
    double distinct;
    /* Cycles of a core's port of shared memory, and of its schedulers, for a byte that is copied there. */
    double port, issue;
} sx_block_factor;
/* What is the same for all tiles of a contraction. */
typedef struct {
    const sx_device *device;
    double batch, rows, columns, sum; /* extents */
    sx_block_factor factor[2];        /* the left argument and the right one */
    double bytes, floor_ns;           /* of the whole kernel */
    double words;                     /* registers of an element */
    /* Of a core in a cycle, by matrix instructions of groups of warps; likewise, by those of a warp; cycles of a core
     * for a multiply-add of a warp, and for all that follows the sum of one element. */
    double group_flops, matrix_flops, lane_cycles, result_cycles;
    /* Bytes of an element of the result, where the copy engine can store it, else 0; then the cycles for all that
     * follows a sum. */
    double stored, stored_cycles;
    double room;     /* bytes of the second level that stay until they are read again */
    double after_ns; /* a launch that follows */
} sx_block_problem;
void sx_block_problem_of(const sx_device *device, const sx_analysis *analysis,
                         sx_block_problem *problem);
/* Threads of a block; registers that its threads need, by law; its shared memory; how many blocks a core holds at
 * once, 0 where not one fits. */
uint32_t sx_block_threads(const sx_device *device, const sx_block_tiles *tiles);
uint32_t sx_block_registers(const sx_block_problem *problem, const sx_block_tiles *tiles);
double sx_block_shared_bytes(const sx_block_problem *problem, const sx_block_tiles *tiles);
/* Slots of the result that a group of warps fills, one after the other, where the copy engine stores it. */
double sx_block_slots(const sx_block_problem *problem, const sx_block_tiles *tiles);
/* Is it of use that rows of blocks are visited together: does the second level not hold the right factor anyhow? Can
 * tiles->raster of them be, and is it? */
bool sx_block_needs_raster(const sx_block_problem *problem);
bool sx_block_has_raster(const sx_block_problem *problem, const sx_block_tiles *tiles);
/* Can the blocks be clusters, of the one kind that tiles->cluster_rows or tiles->cluster_columns says? All are
 * whole, the device has clusters and an even number of cores, and the factor that they share is fetched in halves. */
bool sx_block_has_cluster(const sx_block_problem *problem, const sx_block_tiles *tiles);
uint32_t sx_block_resident(const sx_block_problem *problem, const sx_block_tiles *tiles);
/* How many blocks may walk over the tiles: one for each core, where the copy engine copies, a core holds one block (of
 * several one computes while another one begins or ends), there are more tiles than cores, and the blocks of a cluster
 * follow each other. Else 0. */
uint32_t sx_block_walkers(const sx_block_problem *problem, const sx_block_tiles *tiles);
/* The rows of blocks to visit together so that clusters walk: as many as tiles->raster says, two where clusters lie
 * along the rows and it is 0, none where they lie along the columns. */
uint32_t sx_block_cluster_raster(const sx_block_problem *problem, const sx_block_tiles *tiles);
/* sx_cost_schedule for tiles of which a core holds at least one block. */
double sx_cost_block(const sx_block_problem *problem, const sx_block_tiles *tiles);
/* What of it is the launch that adds up slices which different blocks made. */
double sx_cost_combine(const sx_block_problem *problem, const sx_block_tiles *tiles);
/* Bounds of sx_cost_block; here, and in sx_cost_block_work_least, tiles->raster is the most rows (a power of two) that
 * are visited together, and tiles->cluster_rows and cluster_columns, none or both of them, are clusters that blocks may
 * form. No schedule with blocks of so many rows and columns costs less, whatever else it says within these limits: what
 * a warp computes by matrix instructions of its own, and the bytes of a row of a stage. */
#define SX_BLOCK_WARP_ROWS_MAX 64
#define SX_BLOCK_WARP_COLUMNS_MAX 128
#define SX_BLOCK_STAGE_BYTES_MAX 128
#define SX_BLOCK_THREAD_MAX 8 /* rows, and columns, of a thread that multiplies by itself */
double sx_cost_block_least(const sx_block_problem *problem, const sx_block_tiles *tiles);

/* sx_cost_block in steps, for a search that prices tiles which differ in stages of the ring, slots of the result and
 * rows visited together alone. */
/* The problem that sx_cost_block prices: with slices apart, the one whose batch they are, and the launch that adds
 * them up. */
void sx_block_problem_of_tiles(const sx_block_problem *problem, const sx_block_tiles *tiles,
                               sx_block_problem *of_tiles);
/* What is the same for all of these. */
typedef struct {
    /* Cycles of a core for a stage of one block: of all tensor cores or lanes, of all schedulers, of the port of shared
     * memory, of the second level; and of a block that has the core for itself, its instructions in turn. */
    double compute, issue, port, second, alone;
    double fetched[2]; /* bytes of the left factor and of the right one that it takes from there */
    double warps, stages;                           /* of a block; of the whole sum */
    double row_blocks, column_blocks, blocks, each; /* of the grid; `each`: of the busiest core */
    uint32_t held_most; /* blocks that a core holds, as far as registers and threads go */
} sx_block_work;
void sx_block_work_of(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                      sx_block_work *work);
/* From the work of tiles with twice the steps in a stage to that of these: the same as sx_block_work_of. */
void sx_block_work_halve(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                         sx_block_work *work);
/* From the work of tiles to that of the same ones in clusters, or not in clusters. */
void sx_block_work_share(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                         sx_block_work *work);
/* No more than the work of any warps within these limits, for sx_cost_block_work_least; not where a copy engine
 * copies. */
void sx_block_work_any(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                       sx_block_work *work);
/* sx_block_resident. */
uint32_t sx_block_held(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                       const sx_block_work *work);
/* How long memory takes where cores hold `held` blocks, with the raster of the tiles; no longer than with any raster up
 * to theirs, be it one that divides the rows of blocks or not. */
double sx_block_moving_ns(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                          const sx_block_work *work, uint32_t held);
double sx_block_moving_least(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                             const sx_block_work *work, uint32_t held);
/* What bounds for any number of stages begin with. Results are those by the faster of threads and slots; clusters of
 * the tiles take no time. */
typedef struct {
    double ring; /* stages of all rings of a core */
    double held; /* blocks of a core whose rings have two stages; 0: there are none */
    /* Cycles: of a stage of a block at the second level; of the units, for all blocks of a core and for one alone; of
     * all results; and of all if memory is never waited for. */
    double second, all, one, results, free_cycles;
    double moving_ns; /* of memory with `held` blocks, at least: who asks for a bound sets it */
} sx_block_any;
void sx_block_any_of(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                     const sx_block_work *work, sx_block_any *any);
/* None of these costs less. From `enough` on a bound is as good as any other: one that takes less time is given then.
 * HUGE_VAL: none is. */
double sx_cost_block_work_least(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                                const sx_block_work *work, const sx_block_any *any, double enough);
/* May one of these cost less than `dearest`, where threads copy? The bound is closer to the prices, for the work of
 * the tiles alone. */
bool sx_cost_block_may_be(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                          const sx_block_work *work, const sx_block_any *any, double dearest);
/* Nor does one with fewer steps in a stage. It takes less time to find, and is further from the prices. `work` holds
 * one block at least. */
double sx_cost_block_warp_least(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                                const sx_block_work *work);
/* Cycles of the busiest core where cores hold `held` blocks, for any raster; the price with so many where memory takes
 * so long. */
double sx_block_cycles(const sx_block_problem *of_tiles, const sx_block_tiles *tiles,
                       const sx_block_work *work, uint32_t held);
double sx_cost_block_cycles(const sx_block_problem *of_tiles, double cycles, double moving_ns);

typedef struct {
    sx_dtype arithmetic; /* the type that most of it is computed in */
    double flops;        /* weighted: a transcendental counts as the instructions of its sequence */
    double bytes;        /* distinct bytes read and written */
    double floor_ns;     /* roofline */
    double energy_nj;
    /* estimate as one kernel, launch included; 0 for parameter, constant and reshape */
    double cost_ns;
} sx_cost;
/* The extent a symbol stands for in costs: depends on its interval only, never on the value bound later, so
 * that the program chosen by level 1 is the same for every batch size (batch invariance). A sum of symbols is that of
 * what they stand for. */
int64_t sx_cost_reference(const sx_symbol *symbols, uint32_t symbol);
/* Bytes of a tensor, symbols at their reference. */
double sx_cost_bytes(const sx_symbol *symbols, uint32_t symbol_count, const sx_type *type);
/* One node, symbols at their reference. SX_LIMIT when sizes overflow. */
sx_code sx_cost_node(sx_ctx *cx, const sx_device *device, const sx_symbol *symbols,
                     uint32_t symbol_count, sx_op op, const sx_attr *attr, const sx_type *input,
                     uint32_t input_count, const sx_type *result, sx_cost *cost);
#endif
