/* online_space.c - the plans of an online sum and their price: rows to lanes, two register-blocked contractions per block of keys.
 *
 * Keys per block are the same for every plan: they belong to the numerics plan. Strips divide them, so that blocks are made of whole
 * strips. */
#include "core/search/space.h"

#include <math.h>

#define KEYS_PER_BLOCK 72
#define POINT_NS 20.0
#define SCATTERED_CYCLES 1.0 /* an element that goes to its lane by itself */
#define SCORE_CYCLES 8.0     /* power, maximum, sum: per vector of scores */

/* Strips are divisors of the block that leave room for one vector of each row group and a broadcast. */
static uint32_t strip_of(uint32_t registers, uint32_t vectors)
{
    uint32_t best = 1;
    for (uint32_t m = 1; m <= 24; m++) {
        bool fits = m * vectors + vectors + 1 < registers;
        best = KEYS_PER_BLOCK % m == 0 && fits ? m : best;
    }
    return best;
}

sx_code sx_online_space(const sx_search_problem *p, sx_search_visit visit, void *self)
{
    for (uint32_t vectors = 1; vectors <= 4; vectors++) {
        uint32_t strip = strip_of(p->device->registers, vectors);
        sx_lower_plan plan = {.lanes = p->device->lanes,
                              .block_m = strip,
                              .block_nv = vectors,
                              .tile_m = 1,
                              .tile_n = KEYS_PER_BLOCK,
                              .unroll_k = 1};
        SX_TRY(visit(self, &plan));
    }
    return SX_OK;
}

sx_search_phase sx_online_sieve(const sx_search_problem *p, const sx_lower_plan *plan)
{
    int64_t rows = p->online.extent[SX_ROLE_ROW];
    double width = (double)plan->block_nv * plan->lanes;
    double columns = (double)p->online.extent[SX_ROLE_COLUMN];
    double inner = (double)p->online.extent[SX_ROLE_INNER];
    double lines = columns + inner + KEYS_PER_BLOCK;
    if (plan->block_nv > 1 && 4 * width * lines > p->device->l2_bytes / 2) {
        return SX_PHASE_RESOURCES;
    }
    if (plan->block_nv > 1 && (int64_t)(plan->block_nv - 1) * plan->lanes >= rows) {
        return SX_PHASE_ALIGNMENT; /* a whole vector of every block without a row */
    }
    double chains = (double)plan->block_m * plan->block_nv;
    double needed = (double)p->device->fma_per_cycle * p->device->fma_latency;
    return chains < needed / 2 ? SX_PHASE_ROOFLINE : SX_PHASE_KEPT;
}

double sx_online_price(const sx_search_problem *p, const sx_lower_plan *plan)
{
    const sx_device *device = p->device;
    const int64_t *extent = p->online.extent;
    double vectors = plan->block_nv;
    double width = vectors * plan->lanes;
    double points = (double)extent[SX_ROLE_BATCH] * ceil((double)extent[SX_ROLE_ROW] / width);
    double keys = (double)extent[SX_ROLE_KEY];
    double inner = p->online.has_dot ? (double)extent[SX_ROLE_INNER] : 0;
    double columns = (double)extent[SX_ROLE_COLUMN];
    /* a strip of m keys (or columns): m broadcasts and the vectors of rows feed m * vectors multiply-adds */
    double fma = plan->block_m * vectors / device->fma_per_cycle;
    double loads = (plan->block_m + vectors) / 2;
    double step = fmax(fmax(fma, loads), device->fma_latency) / plan->block_m;
    double cycles = keys * ((inner + columns) * step + SCORE_CYCLES * vectors) +
                    2 * columns * vectors * ceil(keys / KEYS_PER_BLOCK) + (inner + columns) * width;
    cycles += p->online.scattered * SCATTERED_CYCLES / fmax(points, 1);
    double time = ceil(points / device->cores) * (cycles / device->ghz + POINT_NS);
    double moved = sx_device_move_ns(device, p->bytes);
    return fmax(fmax(time, moved), p->floor_ns) + device->launch_ns;
}
