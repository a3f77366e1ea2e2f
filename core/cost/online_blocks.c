#include "core/cost/online_blocks.h"

#include "core/cost/model.h"

/* Estimates, in cycles: the start of a block, and the wait of its warps at a stage. */
#define START_CYCLES 1200.0
#define BARRIER_CYCLES 30.0
/* Registers beside sums, scores and fragments. */
#define OTHER_REGISTERS 64
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
    double registers = columns / 2 + 3 * keys / 4 + (d <= 128 ? d / 4 : 4) + OTHER_REGISTERS;
    double shared = element * ((double)b->rows * d + b->depth * keys * (d + columns));
    uint32_t threads = (uint32_t)(b->rows / b->warp_rows) * device->lanes;
    if (threads > device->block_threads || registers > device->registers) {
        return 0;
    }
    return sx_device_resident_blocks(device, threads, (uint32_t)registers, shared);
}

double sx_cost_online_blocks(const sx_device *device, const sx_analysis *a,
                             const sx_online_blocks *b)
{
    double rows = (double)a->extent[SX_ROLE_ROW], keys = (double)a->extent[SX_ROLE_SUM];
    double d = sx_whole((double)a->extent[SX_ROLE_INNER] / 16) * 16;
    double columns = sx_whole((double)a->extent[SX_ROLE_COLUMN] / 8) * 8;
    double element = sx_dtype_bytes(a->input[b->query].dtype);
    double blocks = (double)a->extent[SX_ROLE_BATCH] * sx_whole(rows / (double)b->rows);
    double held = sx_online_blocks_resident(device, a, b);
    SX_ASSERT(held >= 1 && b->depth >= 2);
    double rate = sx_device_rate(device, a->arithmetic, true) * device->matrix_share /
                  (device->cores * device->ghz);
    double scores = (double)a->extent[SX_ROLE_BATCH] * rows * keys;
    double beside = sx_most(
        0, a->work - 2 * scores * (double)(a->extent[SX_ROLE_INNER] + a->extent[SX_ROLE_COLUMN]));
    /* of a stage of one block */
    double stage = (double)b->rows * (double)b->keys;
    double products = 2 * stage * (d + columns) / rate;
    double others = stage * beside / scores / (device->lanes * device->fma_per_cycle);
    double second =
        (double)b->keys * (d + columns) * element / device->l2_bytes_per_ns * device->ghz;
    double warps = (double)(b->rows / b->warp_rows);
    double stages = sx_whole(keys / (double)b->keys);
    double each = sx_whole(blocks / device->cores);
    double at_once = sx_least(each, held);
    double idle = SX_SCHEDULERS / sx_least(SX_SCHEDULERS, at_once * warps);
    double longest = sx_most(products, others) + SERIAL_SHARE * sx_least(products, others);
    double turn = sx_most(at_once * sx_most(longest * idle, second),
                          2 * device->matrix_latency * (d / 16 + (double)b->keys / 16)) +
                  BARRIER_CYCLES;
    double rounds = sx_whole(each / at_once);
    double cycles = rounds * (START_CYCLES + device->memory_latency + stages * turn);
    double ns = sx_model_overlap(cycles / device->ghz, sx_device_move_ns(device, a->bytes));
    return sx_most(ns, sx_cost_floor(device, a)) + device->launch_ns;
}
