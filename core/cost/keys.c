/* keys.c - what kernels take that sum over blocks of keys with rows in their lanes (core/loop/lower_keys.h).
 *
 * A strip of keys (or columns): as many broadcasts and the vectors of rows feed strip * vectors multiply-adds, for each
 * product over its inner dimensions and for the values over the columns. Between them each vector of scores goes
 * through a program. Results are read and written once for a block of keys, and each row is packed and leaves once. */
#include <math.h>

#include "core/cost/model.h"

#define SCORE_CYCLES 8.0 /* of an online sum: power, maximum, sum, for each vector of scores */

/* Vector instructions of the program between the contractions, for each vector of scores. */
static double program_weight(const sx_analysis *a)
{
    double weight = 0;
    for (uint32_t i = 0; i < a->outer; i++) {
        const sx_instr *in = &a->body->instr[i];
        uint32_t key = a->varies[i] & a->reduced;
        weight += in->kind == SX_BODY_APPLY && key != 0 ? sx_op_weight(in->op) : 0;
    }
    return weight;
}

double sx_model_keys_ns(const sx_device *device, const sx_analysis *a, const sx_schedule *s)
{
    bool nested = a->kind == SX_KERNEL_NESTED;
    double strip = (double)sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_LOOP, 1);
    double block = (double)sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_LOOP, 0);
    double width = (double)sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_GRID, 0);
    double vectors = width / sx_schedule_lanes(s);
    double points = (double)a->extent[SX_ROLE_BATCH] * ceil((double)a->extent[SX_ROLE_ROW] / width);
    double keys = (double)a->extent[SX_ROLE_SUM];
    double inner = a->product_count * (double)a->extent[SX_ROLE_INNER];
    double columns = (double)a->extent[SX_ROLE_COLUMN];
    double slower = sx_device_slower(device, a->arithmetic);
    double fma = strip * vectors / device->fma_per_cycle * slower;
    double loads = (strip + vectors) / SX_LOADS_PER_CYCLE;
    double each = fmax(fmax(fma, loads), device->fma_latency) / strip;
    double score = nested ? program_weight(a) / device->fma_per_cycle : SCORE_CYCLES;
    double cycles = keys * ((inner + columns) * each + score * vectors) +
                    2 * columns * vectors * ceil(keys / block) + (inner + columns) * width;
    cycles += a->scattered * SX_SCATTERED_CYCLES / fmax(points, 1);
    double busiest = ceil(points / device->cores);
    busiest = sx_model_has_warps(device) ? sx_most(busiest, SX_SCHEDULERS) : busiest;
    double time = busiest * (cycles / device->ghz + SX_POINT_NS);
    return fmax(time, sx_device_move_ns(device, a->bytes));
}
