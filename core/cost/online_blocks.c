#include "core/cost/online_blocks.h"

#include "core/cost/model.h"

/* Estimates, in cycles: the start of a block, and the wait of its warps at a stage. */
#define START_CYCLES 1200.0
#define BARRIER_CYCLES 30.0
/* Registers beside sums, scores and fragments. */
#define OTHER_REGISTERS 64
#define THREAD_REGISTERS 255
/* Of the shorter of products and other instructions, the share that does not overlap. */
#define SERIAL_SHARE 0.5

static double power_above(double x, double least)
{
    double power = least;
    while (power < x) {
        power *= 2;
    }
    return power;
}

/* Of d and of the columns, with zeros up to a power of two. */
static double padded(const sx_analysis *a, const sx_online_blocks *b, sx_role role)
{
    return power_above((double)a->extent[role], b->matrix_steps);
}

uint32_t sx_online_blocks_resident(const sx_device *device, const sx_analysis *a,
                                   const sx_online_blocks *b)
{
    SX_ASSERT(device->block_threads > 0 && b->warp_rows > 0);
    double d = padded(a, b, SX_ROLE_INNER), columns = padded(a, b, SX_ROLE_COLUMN);
    double keys = (double)b->keys, element = sx_dtype_bytes(a->input[b->query].dtype);
    double products = b->two ? 2 : 1;
    double sums = columns / 2 + products * keys / 2 + keys / 4 + OTHER_REGISTERS;
    bool stays = d <= 128 && (!b->two || sums + products * d / 4 <= THREAD_REGISTERS);
    double registers = sums + products * (stays ? d / 4 : 4);
    double ring = b->depth * keys * (products * d + columns);
    double shared = element * (products * (double)b->rows * d + ring);
    uint32_t threads = (uint32_t)(b->rows / b->warp_rows) * device->lanes;
    if (threads > device->block_threads || registers > device->registers) {
        return 0;
    }
    return sx_device_resident_blocks(device, threads, (uint32_t)registers, shared);
}

/* How many blocks of rows are looked at to find what they pass on average. */
#define SAMPLED_BLOCKS 64

/* Stages of keys that blocks of rows pass: on average, and the last block. */
static void passed_stages(const sx_analysis *a, const sx_online_blocks *b, double *mean,
                          double *most)
{
    int64_t rows = a->extent[SX_ROLE_ROW],
            stages = sx_ceil_div_i64(a->extent[SX_ROLE_SUM], b->keys);
    int64_t ahead, blocks = sx_ceil_div_i64(rows, b->rows), sampled = 0;
    double sum = 0;
    *mean = *most = (double)stages;
    if (!sx_online_horizon(a, &ahead)) {
        return;
    }
    for (int64_t i = 0; i < sx_min_i64(blocks, SAMPLED_BLOCKS); i++, sampled++) {
        int64_t block = blocks <= SAMPLED_BLOCKS ? i : i * (blocks - 1) / (SAMPLED_BLOCKS - 1);
        int64_t last = (block + 1) * b->rows - 1 + ahead; /* the last key that is seen */
        *most = last < 0 ? 1 : (double)sx_min_i64(stages, last / b->keys + 1);
        sum += *most;
    }
    SX_ASSERT(sampled > 0 && *most >= 1);
    *mean = sum / (double)sampled;
}

double sx_cost_online_blocks(const sx_device *device, const sx_analysis *a,
                             const sx_online_blocks *b)
{
    double rows = (double)a->extent[SX_ROLE_ROW], keys = (double)a->extent[SX_ROLE_SUM];
    double inner = b->two ? 2 : 1; /* products */
    double d = inner * sx_whole((double)a->extent[SX_ROLE_INNER] / 16) * 16;
    double columns = sx_whole((double)a->extent[SX_ROLE_COLUMN] / 8) * 8;
    double element = sx_dtype_bytes(a->input[b->query].dtype);
    double blocks = (double)a->extent[SX_ROLE_BATCH] * sx_whole(rows / (double)b->rows);
    double held = sx_online_blocks_resident(device, a, b);
    SX_ASSERT(held >= 1 && b->depth >= 2);
    double rate = sx_device_rate(device, a->arithmetic, true) * device->matrix_share /
                  (device->cores * device->ghz);
    double scores = (double)a->extent[SX_ROLE_BATCH] * rows * keys;
    double beside = sx_most(0, a->work - 2 * scores *
                                             (inner * (double)a->extent[SX_ROLE_INNER] +
                                              (double)a->extent[SX_ROLE_COLUMN]));
    /* of a stage of one block */
    double stage = (double)b->rows * (double)b->keys;
    double products = 2 * stage * (d + columns) / rate;
    double others = stage * beside / scores / (device->lanes * device->fma_per_cycle);
    double second =
        (double)b->keys * (d + columns) * element / device->l2_bytes_per_ns * device->ghz;
    double warps = (double)(b->rows / b->warp_rows);
    double stages, most;
    passed_stages(a, b, &stages, &most);
    double each = sx_whole(blocks / device->cores);
    double at_once = sx_least(each, held);
    double idle = SX_SCHEDULERS / sx_least(SX_SCHEDULERS, at_once * warps);
    double longest = sx_most(products, others) + SERIAL_SHARE * sx_least(products, others);
    double turn = sx_most(at_once * sx_most(longest * idle, second),
                          2 * device->matrix_latency * (d / 16 + (double)b->keys / 16)) +
                  BARRIER_CYCLES;
    double rounds = sx_whole(each / at_once);
    /* the longest blocks begin first */
    double turns = sx_most(rounds * stages, most);
    double cycles = rounds * (START_CYCLES + device->memory_latency) + turns * turn;
    double ns = sx_model_overlap(cycles / device->ghz, sx_device_move_ns(device, a->bytes));
    return sx_most(ns, sx_cost_floor(device, a)) + device->launch_ns;
}
