/* blocks.c - what a contraction takes under a block schedule (sx_block_tiles), by an analytical model.
 *
 * A core holds some blocks at once, as many as registers, threads and shared memory allow. For a stage of the ring they
 * need the longest of: the tensor cores (or multiply-adds of lanes), the port of shared memory, the schedulers, the
 * second level of the cache; one block alone also waits for its instructions in turn, and for memory as long as the
 * stages that are under way do not cover its latency. Blocks are dealt to cores in whole numbers, so the busiest core
 * counts:
 *
 *     launch + rounds * (first stage + stages * longest + results)
 *
 * Where blocks walk over the tiles, a block begins once, and the first stages of the next tile come while the results
 * of the one before are stored:
 *
 *     launch + first stage + tiles of a block * (stages * longest + results) + what is left of the first stages
 *
 * and all of it is no faster than memory: what blocks that run at once share comes from memory once, the rest again
 * where the second level does not hold it. Compare tritonBLAS (arXiv 2512.04226) and the heuristics of DeepGEMM.
 *
 * The registers follow laws that were found by assembling small kernels for sm_80 to sm_120 with ptxas 13.0. What
 * is marked as an estimate below was not measured. */
#include <math.h>

#include "core/base/grid.h"
#include "core/cost/model.h"

/* Estimates, in cycles: the start of a block (its launch, addresses, layouts); the wait of all its warps at a stage. */
#define START_CYCLES 600.0
#define BARRIER_CYCLES 30.0
/* From the results of a tile to the next one of a block that walks: its place by divisions, addresses, sums of 0. */
#define NEXT_TILE_CYCLES 150.0
/* A copy, its address, its bound. */
#define COPY_INSTRUCTIONS 3.0
/* What the port of shared memory and of L1 passes in a cycle, and the least that is fetched. */
#define LINE_BYTES 128.0
#define SECTOR_BYTES 32.0
/* Lines that the lanes of a warp touch when each stores an element of its fragment. */
#define STORE_LINES 8.0
/* A store of the copy engine is a box, and its threads meet twice for it. */
#define STORE_BARRIERS 2.0
/* Of a slice's sum of an element. */
#define PARTIAL_BYTES 4.0
/* Registers beside sums and fragments: addresses, counters, bounds; of groups of warps as their lowering counts. */
#define MATRIX_REGISTERS 28.0
#define GROUP_REGISTERS 48.0
/* Slots that the copy engine fills are multiples of this; another one holds barriers. */
#define SLOT_BYTES 1024.0
/* Rows or columns of a slot that one copy fills are multiples of this: what swizzles exchange. */
#define CLUSTER_ROWS 8
#define LANE_REGISTERS 64.0
/* Of a row or column of a thread: a vector of 16 bytes. */
#define LANE_FACTOR_REGISTERS 4.0
/* Estimates: times its latency that memory takes to answer while it is busy; the share of the shorter of computing
 * and waiting that does not overlap, because copies end unevenly; the share of the second level that stays there until
 * it is read again. */
#define LOADED 2.0
#define UNEVEN 0.05
#define REUSED_SHARE 0.5

/* ---- what does not depend on the tiles ---- */

/* Do elements lie side by side along rows, columns or k, so that several are copied at once? */
static bool is_run(const sx_analysis *a, uint32_t argument)
{
    bool varies = false;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        int64_t stride = a->view.stride[argument][d];
        if (stride == 1 && a->role[d] != SX_ROLE_BATCH) {
            return true;
        }
        varies = varies || stride != 0;
    }
    return !varies;
}

/* The largest power of two of elements, in bytes at most 16, by which all other strides of an argument can be divided,
 * where it has runs; else one element. */
static double copy_bytes(const sx_analysis *a, uint32_t argument)
{
    int64_t bytes = sx_dtype_bytes(a->input[argument].dtype);
    int64_t most = is_run(a, argument) ? 16 / bytes : 1;
    int64_t all = a->view.offset[argument];
    for (uint32_t d = 0; d < a->view.rank; d++) {
        int64_t stride = a->view.stride[argument][d];
        all |= stride == 1 && a->role[d] != SX_ROLE_BATCH ? 0 : stride;
    }
    while (most > 1 && all % most != 0) {
        most /= 2;
    }
    return (double)(most * bytes);
}

static void describe(const sx_analysis *a, uint32_t argument, sx_block_factor *factor)
{
    factor->element = sx_dtype_bytes(a->input[argument].dtype);
    factor->copied = copy_bytes(a, argument);
    factor->fetched = is_run(a, argument) ? factor->element : SECTOR_BYTES;
    factor->distinct = sx_model_distinct_bytes(a, argument);
    bool direct = factor->copied >= 4; /* cp.async; else through registers, a load and a store */
    factor->port = direct ? 1 / LINE_BYTES : 2 / (32 * factor->copied);
    factor->issue = COPY_INSTRUCTIONS / (32 * factor->copied) / SX_SCHEDULERS;
    SX_ASSERT(factor->copied >= 1 && factor->copied <= 16);
}

void sx_block_problem_of(const sx_device *device, const sx_analysis *a, sx_block_problem *p)
{
    SX_ASSERT(device->block_threads > 0 && a->kind == SX_KERNEL_DOT);
    *p = (sx_block_problem){.device = device,
                            .batch = (double)a->extent[SX_ROLE_BATCH],
                            .rows = (double)a->extent[SX_ROLE_ROW],
                            .columns = (double)a->extent[SX_ROLE_COLUMN],
                            .sum = (double)a->extent[SX_ROLE_SUM],
                            .bytes = a->bytes,
                            .floor_ns = sx_cost_floor(device, a),
                            .words = a->lane_bytes / 4};
    describe(a, a->lhs, &p->factor[0]);
    describe(a, a->rhs, &p->factor[1]);
    double cycle = device->cores * device->ghz;
    double peak = sx_device_rate(device, a->arithmetic, true) / cycle;
    p->matrix_flops = peak * device->matrix_share;
    p->group_flops = peak * sx_most(device->group_share, device->matrix_share);
    p->lane_cycles = sx_device_slower(device, a->arithmetic) / device->fma_per_cycle;
    double elements = p->batch * p->rows * p->columns;
    double beside = sx_most(0, a->work - 2 * elements * p->sum) / elements;
    double others = 1 + (double)(a->input_count - (a->lhs == a->rhs ? 1 : 2));
    double computed = beside / (device->lanes * device->fma_per_cycle);
    p->result_cycles = computed + others * STORE_LINES / device->lanes;
    p->stored = sx_block_stored_bytes(a);
    /* written to shared memory, and read from there */
    p->stored_cycles =
        computed + (others - 1) * STORE_LINES / device->lanes + 2 * p->stored / LINE_BYTES;
    p->room = device->l2_bytes * device->cores * REUSED_SHARE;
    SX_ASSERT(p->matrix_flops > 0 && p->floor_ns > 0);
}

/* ---- laws ---- */

uint32_t sx_block_threads(const sx_device *device, const sx_block_tiles *t)
{
    int64_t warps = t->rows / t->warp_rows * (t->columns / t->warp_columns);
    if (sx_block_by_engine(t)) {
        warps = warps * SX_GROUP_WARPS + 1; /* one starts the copies */
    }
    SX_ASSERT(warps >= 1 && warps <= INT32_MAX / device->lanes);
    return (uint32_t)warps * device->lanes;
}

uint32_t sx_block_registers(const sx_block_problem *p, const sx_block_tiles *t)
{
    double all;
    double held = t->slice != 0 && !t->apart ? 2 : 1; /* the slice's sum, and the total */
    if (sx_block_by_engine(t)) {
        double m = (double)t->warp_rows, n = (double)t->warp_columns;
        all = held * m * n / (p->device->lanes * SX_GROUP_WARPS) + GROUP_REGISTERS;
    } else if (t->matrix_rows != 0) {
        double m = (double)t->warp_rows, n = (double)t->warp_columns;
        all = held * m * n / p->device->lanes + (m + n) / 2 + MATRIX_REGISTERS;
    } else {
        double m = t->thread_rows, n = t->thread_columns;
        all = p->words * m * n + LANE_FACTOR_REGISTERS * (m + n) + LANE_REGISTERS;
    }
    return (uint32_t)all;
}

/* A slot of the result, whose rows are those of one matrix instruction. */
static double store_bytes(const sx_block_problem *p, const sx_block_tiles *t)
{
    double row = sx_least(SX_STORE_ROW_BYTES, (double)t->warp_columns * p->stored);
    return sx_whole(SX_GROUP_ROWS * row / SLOT_BYTES) * SLOT_BYTES;
}

double sx_block_slots(const sx_block_problem *p, const sx_block_tiles *t)
{
    double row = sx_least(SX_STORE_ROW_BYTES, (double)t->warp_columns * p->stored);
    return (double)t->warp_rows * (double)t->warp_columns * p->stored / (SX_GROUP_ROWS * row);
}

/* Blocks that walk are counted along the grid: along the rows those of a cluster follow each other where an even number
 * of rows is visited together, along the columns where none is. */
static bool follow_each_other(const sx_block_tiles *t)
{
    return t->cluster_rows != 0      ? t->raster > 0 && t->raster % SX_BLOCK_CLUSTER == 0
           : t->cluster_columns != 0 ? t->raster == 0
                                     : true;
}

uint32_t sx_block_cluster_raster(const sx_block_problem *p, const sx_block_tiles *t)
{
    double rows = sx_whole(p->rows / (double)t->rows);
    double columns = sx_whole(p->columns / (double)t->columns);
    bool pairs = t->cluster_rows != 0 && t->raster == 0 && p->batch == 1 &&
                 rows > SX_BLOCK_CLUSTER && columns <= SX_GRID_YZ_MAX;
    return pairs ? SX_BLOCK_CLUSTER : t->cluster_columns != 0 ? 0 : t->raster;
}

uint32_t sx_block_walkers(const sx_block_problem *p, const sx_block_tiles *t)
{
    double tiles =
        p->batch * sx_whole(p->rows / (double)t->rows) * sx_whole(p->columns / (double)t->columns);
    bool alone = sx_block_by_engine(t) && follow_each_other(t) && sx_block_resident(p, t) == 1;
    bool walks = alone && !t->apart && tiles > p->device->cores && tiles <= SX_GRID_X_MAX &&
                 p->device->cores <= SX_SCHEDULE_BLOCKS_MAX;
    return walks ? (uint32_t)p->device->cores : 0;
}

bool sx_block_needs_raster(const sx_block_problem *p)
{
    return p->batch == 1 && p->factor[1].distinct > p->room;
}

bool sx_block_has_raster(const sx_block_problem *p, const sx_block_tiles *t)
{
    double rows = sx_whole(p->rows / (double)t->rows);
    return sx_block_needs_raster(p) && rows > t->raster &&
           sx_whole(rows / t->raster) * t->raster == rows &&
           sx_whole(p->columns / (double)t->columns) <= SX_GRID_YZ_MAX;
}

bool sx_block_has_cluster(const sx_block_problem *p, const sx_block_tiles *t)
{
    double row_blocks = sx_whole(p->rows / (double)t->rows);
    double column_blocks = sx_whole(p->columns / (double)t->columns);
    int64_t side = t->cluster_rows != 0 ? t->columns : t->rows; /* of the factor that is shared */
    double along = t->cluster_rows != 0 ? row_blocks : column_blocks;
    SX_ASSERT((t->cluster_rows == 0) != (t->cluster_columns == 0));
    return sx_block_by_engine(t) && p->device->cluster_blocks >= SX_BLOCK_CLUSTER &&
           p->device->cores % SX_BLOCK_CLUSTER == 0 &&
           sx_whole(along / SX_BLOCK_CLUSTER) * SX_BLOCK_CLUSTER == along &&
           side % (SX_BLOCK_CLUSTER * CLUSTER_ROWS) == 0 && p->batch <= SX_GRID_YZ_MAX &&
           row_blocks <= SX_GRID_YZ_MAX;
}

/* A stage of the ring: a slot for each factor. */
static double stage_bytes(const sx_block_problem *p, const sx_block_tiles *t)
{
    double left = (double)t->steps * (double)t->rows * p->factor[0].element;
    double right = (double)t->steps * (double)t->columns * p->factor[1].element;
    if (sx_block_by_engine(t)) {
        left = sx_whole(left / SLOT_BYTES) * SLOT_BYTES;
        right = sx_whole(right / SLOT_BYTES) * SLOT_BYTES;
    }
    return left + right;
}

double sx_block_shared_bytes(const sx_block_problem *p, const sx_block_tiles *t)
{
    double ring = stage_bytes(p, t) * t->depth;
    if (sx_block_by_engine(t)) {
        double groups = (double)(t->rows / t->warp_rows * (t->columns / t->warp_columns));
        double results = t->stores == 0 ? 0 : groups * t->stores * store_bytes(p, t);
        return ring + SLOT_BYTES + results;
    }
    return ring;
}

uint32_t sx_block_resident(const sx_block_problem *p, const sx_block_tiles *t)
{
    uint32_t threads = sx_block_threads(p->device, t);
    uint32_t registers = sx_block_registers(p, t);
    if (threads > p->device->block_threads || registers > p->device->registers) {
        return 0;
    }
    return sx_device_resident_blocks(p->device, threads, registers, sx_block_shared_bytes(p, t));
}

/* ---- a stage ---- */

/* Cycles of a stage whose block has a core for itself: its instructions in turn. */
static double alone_cycles(const sx_block_problem *p, const sx_block_tiles *t, double compute)
{
    const sx_device *device = p->device;
    double steps = (double)t->steps, m = t->thread_rows, n = t->thread_columns;
    if (sx_block_by_engine(t)) {
        return compute + device->shared_latency;
    }
    if (t->matrix_rows != 0) {
        return device->shared_latency + steps / t->matrix_steps * device->matrix_latency;
    }
    return device->shared_latency +
           steps * sx_most(device->fma_latency, m * n * p->lane_cycles * SX_SCHEDULERS);
}

/* Groups of warps read both factors from shared memory for each instruction, and begin the next stage before this one
 * is done. */
static void multiply_in_groups(const sx_block_problem *p, const sx_block_tiles *t, sx_block_work *s)
{
    double groups = (double)t->steps / t->matrix_steps;
    double products =
        groups * (double)t->rows / t->matrix_rows * (double)t->columns / t->matrix_columns;
    double read = t->matrix_steps * (t->matrix_rows * p->factor[0].element +
                                     t->matrix_columns * p->factor[1].element);
    s->warps *= SX_GROUP_WARPS;
    s->compute = 2 * (double)t->rows * (double)t->columns * (double)t->steps / p->group_flops;
    s->port += products * read / LINE_BYTES;
    s->issue = products * SX_GROUP_WARPS / SX_SCHEDULERS; /* a thread starts the copies */
}

static void multiply(const sx_block_problem *p, const sx_block_tiles *t, sx_block_work *s)
{
    double steps = (double)t->steps, left = p->factor[0].element, right = p->factor[1].element;
    if (t->matrix_rows != 0) {
        double groups = steps / t->matrix_steps;
        double products =
            (double)t->warp_rows / t->matrix_rows * (double)t->warp_columns / t->matrix_columns;
        double loads = (double)(t->warp_rows + t->warp_columns) / 16;
        s->compute = 2 * (double)t->rows * (double)t->columns * steps / p->matrix_flops;
        s->port += s->warps * steps *
                   ((double)t->warp_rows * left + (double)t->warp_columns * right) / LINE_BYTES;
        /* each element of f32 is rounded, by an instruction for every 32 of them */
        double rounds =
            left < 4 ? 0 : (double)(t->warp_rows + t->warp_columns) * t->matrix_steps / 32;
        s->issue += s->warps * groups * (products + loads + rounds) / SX_SCHEDULERS;
        return;
    }
    double m = t->thread_rows, n = t->thread_columns;
    double bytes = m * left + n * right; /* 16 in a load, of which lanes share half */
    double converts = (left < 4 ? m : 0) + (right < 4 ? n : 0);
    s->compute = s->warps * steps * m * n * p->lane_cycles;
    s->port += s->warps * steps * bytes / 8;
    s->issue += s->warps * steps * (m * n + bytes / 16 + converts) / SX_SCHEDULERS;
}

/* Rows of a stage that are read: what the copy engine finds beyond the matrix is zeros, and comes from nowhere. */
static double fetched_rows_of(const sx_block_problem *p, const sx_block_tiles *t)
{
    return sx_block_by_engine(t) ? sx_least((double)t->rows, p->rows) : (double)t->rows;
}

/* Cycles of the second level for what a stage fetches. The blocks of a cluster fetch their parts of the factor that
 * they share, each for both; tiles that say both kinds of clusters take the better one. */
static double second_of(const sx_block_problem *p, const sx_block_tiles *t, const double bytes[2])
{
    double columns = sx_most(1, t->cluster_columns), rows = sx_most(1, t->cluster_rows);
    double all = sx_least(bytes[0] / columns + bytes[1], bytes[0] + bytes[1] / rows);
    return all / p->device->l2_bytes_per_ns * p->device->ghz;
}

void sx_block_work_share(const sx_block_problem *p, const sx_block_tiles *t, sx_block_work *s)
{
    s->second = second_of(p, t, s->fetched);
}

void sx_block_work_of(const sx_block_problem *p, const sx_block_tiles *t, sx_block_work *s)
{
    const sx_block_factor *left = &p->factor[0], *right = &p->factor[1];
    double steps = (double)t->steps;
    double m = (double)t->rows * steps, n = (double)t->columns * steps;
    double fetched_rows = fetched_rows_of(p, t);
    /* whole numbers, which doubles divide in less time */
    double warps =
        (double)t->rows * (double)t->columns / ((double)t->warp_rows * (double)t->warp_columns);
    uint32_t all = (uint32_t)warps * (sx_block_by_engine(t) ? SX_GROUP_WARPS : 1);
    uint32_t threads = (all + (sx_block_by_engine(t) ? 1 : 0)) * p->device->lanes;
    uint32_t registers = sx_block_registers(p, t);
    bool fits = threads <= p->device->block_threads && registers <= p->device->registers;
    *s = (sx_block_work){
        .warps = warps,
        .stages = sx_whole(p->sum / steps),
        .port = m * left->element * left->port + n * right->element * right->port,
        .issue = m * left->element * left->issue + n * right->element * right->issue,
        .fetched = {fetched_rows * steps * left->fetched, n * right->fetched},
        .row_blocks = sx_whole(p->rows / (double)t->rows),
        .column_blocks = sx_whole(p->columns / (double)t->columns),
        .held_most = fits ? sx_device_resident_blocks(p->device, threads, registers, 0) : 0};
    sx_block_work_share(p, t, s);
    s->blocks = p->batch * s->row_blocks * s->column_blocks;
    s->each = sx_whole(s->blocks / p->device->cores);
    if (sx_block_by_engine(t)) {
        s->port = (m * left->element + n * right->element) / LINE_BYTES;
        multiply_in_groups(p, t, s);
    } else {
        multiply(p, t, s);
    }
    s->alone = alone_cycles(p, t, s->compute);
}

/* But for the latencies of `alone`, all of a stage is in proportion to its steps, and half of a double is exact. */
void sx_block_work_halve(const sx_block_problem *p, const sx_block_tiles *t, sx_block_work *s)
{
    s->compute /= 2;
    s->issue /= 2;
    s->port /= 2;
    s->second /= 2;
    s->fetched[0] /= 2;
    s->fetched[1] /= 2;
    s->alone = alone_cycles(p, t, s->compute);
    s->stages = sx_whole(p->sum / (double)t->steps);
}

uint32_t sx_block_held(const sx_block_problem *p, const sx_block_tiles *t, const sx_block_work *s)
{
    double shared = sx_block_shared_bytes(p, t);
    double by_shared = shared > 0 ? p->device->shared_bytes / shared : s->held_most;
    if (shared > p->device->shared_block_bytes) {
        return 0;
    }
    return by_shared < s->held_most ? (uint32_t)by_shared : s->held_most;
}

/* Cycles until a block of a cluster knows what the other one has done; 0 where there is no cluster. Where the device
 * does not say, as long as by way of the second level, which is no shorter. */
static double hop_of(const sx_block_problem *p, const sx_block_tiles *t)
{
    if (t->cluster_rows == 0 && t->cluster_columns == 0) {
        return 0;
    }
    return p->device->cluster_latency != 0 ? p->device->cluster_latency : p->device->l2_latency;
}

/* Cycles from a copy's start to its end, shared by the stages that are under way. The first of them were waited for
 * before the sum began. In a cluster a stage is filled again when the other block, too, has said that it is free. */
static double ring_wait(const sx_block_problem *p, const sx_block_tiles *t, const sx_block_work *s,
                        double count)
{
    double ahead = t->depth - 1;
    double arrives = LOADED * p->device->memory_latency + count * s->second + hop_of(p, t);
    double later = sx_most(0, s->stages - ahead) / s->stages;
    return arrives / ahead * later;
}

/* Cycles that `count` blocks on a core need for a stage of each. */
static double stage_together(const sx_block_problem *p, const sx_block_tiles *t,
                             const sx_block_work *s, double count)
{
    double idle = SX_SCHEDULERS / sx_least(SX_SCHEDULERS, count * s->warps); /* a warp has one */
    double units = sx_most(s->compute, s->issue) * idle;
    double busy = count * sx_most(units, sx_most(s->port, s->second));
    double longest = sx_most(busy, s->alone) + BARRIER_CYCLES;
    double wait = ring_wait(p, t, s, count);
    return sx_most(longest, wait) + UNEVEN * sx_least(longest, wait);
}

/* ---- the whole ---- */

/* Bytes to and from memory. Blocks that run at once read what they share once; the right argument comes again for each
 * row of blocks that they do not reach, the left one for each group of columns, unless the second level holds it. Where
 * rows are visited together, they go over the columns once for all of them, and their part of the left one stays. */
static double moved_bytes(const sx_block_problem *p, const sx_block_tiles *t, double row_blocks,
                          double column_blocks, double at_once)
{
    double left = p->factor[0].distinct, right = p->factor[1].distinct;
    double panel = (double)t->rows * p->sum * p->factor[0].element;
    double together = sx_most(1, t->raster);
    panel *= together;
    double again_right = row_blocks * column_blocks / sx_most(at_once, together * column_blocks);
    double again_left = together * column_blocks / at_once;
    again_right = right / p->batch <= p->room ? 1 : sx_most(1, again_right);
    again_left = panel <= p->room ? 1 : sx_most(1, again_left);
    return p->bytes + (again_left - 1) * left + (again_right - 1) * right;
}

double sx_cost_combine(const sx_block_problem *p, const sx_block_tiles *t)
{
    const sx_device *device = p->device;
    double elements = p->batch * p->rows * p->columns;
    double bytes = (p->sum / (double)t->slice + 1) * PARTIAL_BYTES * elements;
    double begin = (START_CYCLES + 2 * device->memory_latency) / device->ghz;
    return device->launch_ns + begin + sx_device_move_ns(device, bytes);
}

/* The launch that makes the sums of slices apart from each other: they are a dimension of its batch. */
void sx_block_problem_of_tiles(const sx_block_problem *p, const sx_block_tiles *t,
                               sx_block_problem *of_tiles)
{
    *of_tiles = *p;
    if (!t->apart) {
        return;
    }
    double slices = p->sum / (double)t->slice;
    SX_ASSERT(slices > 1 && p->after_ns == 0);
    of_tiles->sum = (double)t->slice;
    of_tiles->batch *= slices;
    of_tiles->bytes += PARTIAL_BYTES * of_tiles->batch * p->rows * p->columns;
    of_tiles->result_cycles = STORE_LINES / p->device->lanes;
    of_tiles->after_ns = sx_cost_combine(p, t);
}

/* Cycles of a core for the results of a block. Where the copy engine stores them, groups of warps write slot by slot,
 * side by side with each other; a slot that is the only one is free when the engine has read it. */
static double result_cycles_of(const sx_block_problem *p, const sx_block_tiles *t)
{
    double elements = (double)t->rows * (double)t->columns;
    if (t->stores == 0) {
        return elements * p->result_cycles;
    }
    double bytes = store_bytes(p, t);
    double slots = sx_block_slots(p, t);
    double wait = STORE_BARRIERS * BARRIER_CYCLES + p->device->shared_latency;
    double read = t->stores == 1 ? bytes / LINE_BYTES + p->device->shared_latency : 0;
    return elements * p->stored_cycles + slots * (wait + read);
}

/* Cycles of the busiest core where each tile is a block: they are dealt in rounds of as many as it holds. The blocks of
 * a cluster meet before their first copies, and wait for each other behind their results: what these take longer than
 * the word of the other one hides it. */
static double dealt_cycles(const sx_block_problem *p, const sx_block_tiles *t,
                           const sx_block_work *s, double held)
{
    double results = result_cycles_of(p, t);
    double hop = hop_of(p, t);
    double begin = START_CYCLES + p->device->memory_latency + hop;
    double full = (double)(int64_t)(s->each / held), rest = s->each - full * held;
    double ends = sx_most(held * results, hop), last = sx_most(rest * results, hop);
    double cycles =
        full > 0 ? full * (begin + s->stages * stage_together(p, t, s, held) + ends) : 0;
    cycles += rest > 0 ? begin + s->stages * stage_together(p, t, s, rest) + last : 0;
    return cycles;
}

/* The same where blocks walk over the tiles. `held` of them share the core, one round of them after another if there
 * are more. A tile after the first waits for what its first stage takes longer than the results before it; in a cluster
 * that stage is filled when the other block, too, has freed it. The blocks of a cluster meet twice: before the first
 * tile and behind the last one. */
static double walked_cycles(const sx_block_problem *p, const sx_block_tiles *t,
                            const sx_block_work *s, double held)
{
    double walkers = sx_least(t->walkers, s->blocks);
    held = sx_least(held, sx_whole(walkers / p->device->cores));
    double rounds = sx_whole(walkers / (held * p->device->cores));
    double each = sx_whole(s->blocks / walkers);
    double results = held * result_cycles_of(p, t);
    double hop = hop_of(p, t), latency = p->device->memory_latency + hop;
    double next = NEXT_TILE_CYCLES + sx_most(0, latency - results);
    double of_block = each * (s->stages * stage_together(p, t, s, held) + results);
    return rounds * (START_CYCLES + latency + of_block + (each - 1) * next + hop);
}

double sx_block_cycles(const sx_block_problem *p, const sx_block_tiles *t, const sx_block_work *s,
                       uint32_t held)
{
    SX_ASSERT(held >= 1 && t->depth >= 2);
    return t->walkers > 0 ? walked_cycles(p, t, s, held) : dealt_cycles(p, t, s, held);
}

double sx_block_moving_ns(const sx_block_problem *p, const sx_block_tiles *t,
                          const sx_block_work *s, uint32_t held)
{
    double most = t->walkers > 0 ? t->walkers : s->blocks;
    double at_once = sx_least(sx_least(s->blocks, most), held * p->device->cores);
    return sx_device_move_ns(p->device,
                             moved_bytes(p, t, s->row_blocks, s->column_blocks, at_once));
}

double sx_cost_block_cycles(const sx_block_problem *p, double cycles, double moving_ns)
{
    double ns = sx_model_overlap(cycles / p->device->ghz, moving_ns);
    return sx_most(ns, p->floor_ns) + p->device->launch_ns + p->after_ns;
}

double sx_cost_block(const sx_block_problem *p, const sx_block_tiles *t)
{
    sx_block_problem of_tiles;
    sx_block_work work;
    sx_block_problem_of_tiles(p, t, &of_tiles);
    sx_block_work_of(&of_tiles, t, &work);
    uint32_t held = sx_block_held(&of_tiles, t, &work);
    double cycles = sx_block_cycles(&of_tiles, t, &work, held);
    return sx_cost_block_cycles(&of_tiles, cycles, sx_block_moving_ns(&of_tiles, t, &work, held));
}

/* ---- bounds ---- */

/* Bounds are sums in another order than prices: so much less than they are. */
#define ROUNDED (1 - 1e-9)

/* As few bytes as with any raster up to that of the tiles, be it one that divides the rows of blocks or not. */
static double least_bytes(const sx_block_problem *p, const sx_block_tiles *t, double row_blocks,
                          double column_blocks, double at_once)
{
    sx_block_tiles together = *t;
    together.raster = 0;
    double least = moved_bytes(p, &together, row_blocks, column_blocks, at_once);
    if (!sx_block_needs_raster(p)) {
        return least;
    }
    for (together.raster = 2; together.raster <= t->raster && least > p->bytes;
         together.raster *= 2) { /* each byte moves once at least */
        if (together.raster < row_blocks) {
            least = sx_least(least, moved_bytes(p, &together, row_blocks, column_blocks, at_once));
        }
    }
    return least;
}

/* Cycles that rounds of blocks begin with. Where the copy engine copies they may walk: then the first one alone begins
 * as a block does. */
static double least_begins(const sx_block_problem *p, const sx_block_tiles *t, double rounds)
{
    double begin = START_CYCLES + p->device->memory_latency;
    double next = sx_block_by_engine(t) && !t->apart ? sx_least(begin, NEXT_TILE_CYCLES) : begin;
    return begin + (rounds - 1) * next;
}

/* Cycles of the busiest core for all its blocks with rings of so many stages, but for their results. Blocks that are
 * held together take a round; what is linear in their number adds up over the rounds to the work of all, and what
 * every round waits for to so many times that. Of max(x, y) + u * min(x, y), which grows with x and y, the sum over
 * the rounds is no less than that of the sums. */
static double least_cycles(const sx_block_problem *p, const sx_block_tiles *t,
                           const sx_block_work *s, double second, double all, double one,
                           double held, double depth)
{
    double rounds = sx_most(1, s->each / held);
    double ahead = depth - 1;
    double longest = sx_most(all, rounds * one) + rounds * BARRIER_CYCLES;
    double arrives = rounds * LOADED * p->device->memory_latency + s->each * second;
    double wait = arrives / ahead * sx_most(0, s->stages - ahead) / s->stages;
    double stage = sx_most(longest, wait) + UNEVEN * sx_least(longest, wait);
    return least_begins(p, t, rounds) + s->stages * stage;
}

/* Cycles of a core for the results of all its blocks, by the faster of threads and slots. */
static double least_results(const sx_block_problem *p, const sx_block_tiles *t,
                            const sx_block_work *s)
{
    double each = p->stored > 0 && sx_block_by_engine(t)
                      ? sx_least(p->stored_cycles, p->result_cycles)
                      : p->result_cycles;
    return s->each * (double)t->rows * (double)t->columns * each;
}

/* Cycles of the second level for a stage, with the clusters of the tiles, of which the work knows nothing. */
static double least_second(const sx_block_problem *p, const sx_block_tiles *t,
                           const sx_block_work *s)
{
    bool shares = t->cluster_rows != 0 || t->cluster_columns != 0;
    return shares ? second_of(p, t, s->fetched) : s->second;
}

/* Cycles of the busiest core whose memory is never waited for, where it holds so many blocks: with fewer they take more
 * rounds. */
static double least_free_cycles(const sx_block_problem *p, const sx_block_tiles *t,
                                const sx_block_work *s, double all, double one, double held)
{
    double rounds = sx_most(1, s->each / held);
    double stage = sx_most(all, rounds * one) + rounds * BARRIER_CYCLES;
    return least_begins(p, t, rounds) + s->stages * stage;
}

/* What a core holds at once has no more warps than registers and threads allow. Half of the steps take half of the
 * cycles of units, latencies stay; so none has fewer cycles for a step of k than the most steps. */
double sx_cost_block_warp_least(const sx_block_problem *p, const sx_block_tiles *t,
                                const sx_block_work *s)
{
    double units = sx_most(s->compute, s->issue);
    double all = s->each * sx_most(units, sx_most(s->port, least_second(p, t, s)));
    double one = sx_most(units * SX_SCHEDULERS / sx_least(SX_SCHEDULERS, s->warps), s->alone);
    double rounds = sx_most(1, s->each / s->held_most);
    double stage = sx_most(all, rounds * one) + rounds * BARRIER_CYCLES;
    double cycles = least_begins(p, t, rounds) + p->sum / (double)t->steps * stage;
    double ns = sx_model_overlap((cycles + least_results(p, t, s)) / p->device->ghz,
                                 sx_device_move_ns(p->device, p->bytes));
    return (ns + p->device->launch_ns + p->after_ns) * ROUNDED;
}

static double ns_of_least(const sx_block_problem *p, double cycles, double moving)
{
    return sx_cost_block_cycles(p, cycles, moving) * ROUNDED;
}

double sx_block_moving_least(const sx_block_problem *p, const sx_block_tiles *t,
                             const sx_block_work *s, uint32_t held)
{
    double at_once = sx_least(s->blocks, held * p->device->cores);
    double bytes = least_bytes(p, t, s->row_blocks, s->column_blocks, at_once);
    return sx_device_move_ns(p->device, bytes);
}

void sx_block_any_of(const sx_block_problem *p, const sx_block_tiles *t, const sx_block_work *s,
                     sx_block_any *d)
{
    double units = sx_most(s->compute, s->issue);
    *d = (sx_block_any){.ring = (double)(int64_t)(p->device->shared_bytes / stage_bytes(p, t)),
                        .second = least_second(p, t, s),
                        .results = least_results(p, t, s)};
    d->held = sx_least(s->held_most, (double)(int64_t)(d->ring / 2));
    d->all = s->each * sx_most(units, sx_most(s->port, d->second));
    d->one = sx_most(units * SX_SCHEDULERS / sx_least(SX_SCHEDULERS, s->warps), s->alone);
    if (d->held >= 1) {
        d->free_cycles = least_free_cycles(p, t, s, d->all, d->one, d->held) + d->results;
    }
}

/* The next fewer blocks that a core holds because of their rings, and the deepest ring with which it does: of rings
 * that let it hold as many the deepest one waits least. False: there are no more. */
static bool next_depth(sx_block_any *d, uint32_t *depth)
{
    d->held = sx_least(d->held, (double)(int64_t)(d->ring / (*depth + 1)));
    if (*depth >= SX_BLOCK_DEPTH_MAX || d->held < 1) {
        return false;
    }
    *depth = (uint32_t)sx_least(SX_BLOCK_DEPTH_MAX, d->ring / d->held);
    return true;
}

double sx_cost_block_work_least(const sx_block_problem *p, const sx_block_tiles *t,
                                const sx_block_work *s, const sx_block_any *any, double enough)
{
    sx_block_any d = *any;
    double cycles = HUGE_VAL;
    double free_ns = d.held < 1 ? 0 : ns_of_least(p, d.free_cycles, d.moving_ns);
    uint32_t depth = 1;
    if (d.held < 1 || free_ns >= enough) {
        return free_ns;
    }
    while (next_depth(&d, &depth)) {
        double some = least_cycles(p, t, s, d.second, d.all, d.one, d.held, depth);
        cycles = sx_least(cycles, some);
    }
    return ns_of_least(p, cycles + d.results, d.moving_ns);
}

bool sx_cost_block_may_be(const sx_block_problem *p, const sx_block_tiles *t,
                          const sx_block_work *s, const sx_block_any *any, double dearest)
{
    sx_block_any d = *any;
    sx_block_tiles deepest = *t;
    SX_ASSERT(!sx_block_by_engine(t) && t->stores == 0 && t->walkers == 0);
    deepest.depth = 1;
    deepest.cluster_rows = deepest.cluster_columns = 0;
    bool may = false;
    bool is_free = d.held >= 1 && ns_of_least(p, d.free_cycles, d.moving_ns) < dearest;
    while (is_free && !may && next_depth(&d, &deepest.depth)) {
        may = ns_of_least(p, dealt_cycles(p, &deepest, s, d.held), d.moving_ns) < dearest;
    }
    return may;
}

/* Cycles of shared memory's port for a step of k of a block, whatever its warps are: what is copied, and what they
 * read, each row once for every column of warps. */
static double least_port(const sx_block_problem *p, const sx_block_tiles *t)
{
    const sx_block_factor *left = &p->factor[0], *right = &p->factor[1];
    double m = (double)t->rows * left->element, n = (double)t->columns * right->element;
    if (sx_block_by_engine(t)) {
        return (m + n) / LINE_BYTES;
    }
    double copied = m * left->port + n * right->port;
    if (t->matrix_rows == 0) {
        return copied;
    }
    double across = sx_most(1, (double)t->columns / SX_BLOCK_WARP_COLUMNS_MAX);
    double down = sx_most(1, (double)t->rows / SX_BLOCK_WARP_ROWS_MAX);
    return copied + (m * across + n * down) / LINE_BYTES;
}

/* The same for the fragments of threads, if each computes 8 x 8 elements, the most. */
static double least_lane_port(const sx_block_problem *p, const sx_block_tiles *t)
{
    double bytes = p->factor[0].element + p->factor[1].element;
    return (double)t->rows * (double)t->columns * bytes / SX_BLOCK_THREAD_MAX / p->device->lanes /
           8;
}

void sx_block_work_any(const sx_block_problem *p, const sx_block_tiles *t, sx_block_work *s)
{
    SX_ASSERT(!sx_block_by_engine(t));
    const sx_block_factor *left = &p->factor[0], *right = &p->factor[1];
    double steps = (double)t->steps, m = (double)t->rows, n = (double)t->columns;
    double words = t->matrix_rows == 0 ? p->words : t->slice != 0 && !t->apart ? 2 : 1;
    double held = p->device->register_file / (words * m * n);
    double products = m * n / p->device->lanes; /* of an instruction of each lane */
    *s = (sx_block_work){
        .warps = SX_SCHEDULERS,
        .stages = sx_whole(p->sum / steps),
        .port = steps * (least_port(p, t) + (t->matrix_rows == 0 ? least_lane_port(p, t) : 0)),
        .issue = steps * (m * left->element * left->issue + n * right->element * right->issue),
        .fetched = {steps * m * left->fetched, steps * n * right->fetched},
        .row_blocks = sx_whole(p->rows / m),
        .column_blocks = sx_whole(p->columns / n),
        .held_most = held < p->device->core_blocks ? (uint32_t)held : p->device->core_blocks};
    s->blocks = p->batch * s->row_blocks * s->column_blocks;
    s->each = sx_whole(s->blocks / p->device->cores);
    s->second = second_of(p, t, s->fetched);
    if (t->matrix_rows != 0) {
        s->compute = 2 * m * n * steps / p->matrix_flops;
        s->alone = alone_cycles(p, t, s->compute);
    } else {
        s->compute = products * steps * p->lane_cycles;
        s->issue += products * steps / SX_SCHEDULERS;
        s->alone = p->device->shared_latency + steps * p->device->fma_latency;
    }
}

/* Memory is waited for as long as it takes to answer for all that comes to a core, its shared memory full at a time
 * (Little's law): but for what was under way before the sum began. */
double sx_cost_block_least(const sx_block_problem *of, const sx_block_tiles *t)
{
    sx_block_problem of_tiles;
    const sx_block_problem *p = of;
    if (t->apart) {
        sx_block_problem_of_tiles(of, t, &of_tiles);
        p = &of_tiles;
    }
    const sx_device *device = p->device;
    double row_blocks = sx_whole(p->rows / (double)t->rows);
    double column_blocks = sx_whole(p->columns / (double)t->columns);
    double blocks = p->batch * row_blocks * column_blocks;
    double each = sx_whole(blocks / device->cores);
    double m = (double)t->rows, n = (double)t->columns;
    /* the sums are in registers */
    double held = sx_least(device->core_blocks, sx_most(1, device->register_file / (m * n)));
    double bytes =
        least_bytes(p, t, row_blocks, column_blocks, sx_least(blocks, held * device->cores));
    const double fetched[2] = {fetched_rows_of(p, t) * p->factor[0].fetched,
                               n * p->factor[1].fetched};
    double second = second_of(p, t, fetched);
    double compute = sx_block_by_engine(t) ? 2 * m * n / p->group_flops
                     : t->matrix_rows != 0 ? 2 * m * n / p->matrix_flops
                                           : m * n * p->lane_cycles / device->lanes;
    bool stored = p->stored > 0 && sx_block_by_engine(t);
    double results =
        m * n * (stored ? sx_least(p->stored_cycles, p->result_cycles) : p->result_cycles);
    double rounds = sx_most(1, each / held);
    double busy = sx_most(compute, sx_most(second, least_port(p, t)));
    double flight = (m * p->factor[0].element + n * p->factor[1].element) / device->shared_bytes;
    double narrow = sx_least(p->factor[0].element, p->factor[1].element);
    double stages = p->sum * narrow / SX_BLOCK_STAGE_BYTES_MAX;
    double later = sx_most(0, 1 - (SX_BLOCK_DEPTH_MAX - 1) / stages);
    double wait = flight * LOADED * device->memory_latency * later;
    busy += rounds * stages * BARRIER_CYCLES / (each * p->sum);
    double step = sx_most(busy, wait) + UNEVEN * sx_least(busy, wait);
    double cycles = least_begins(p, t, rounds) + each * (p->sum * step + results);
    double ns = sx_model_overlap(cycles / device->ghz, sx_device_move_ns(device, bytes));
    return (sx_most(ns, p->floor_ns) + device->launch_ns + p->after_ns) * ROUNDED;
}
