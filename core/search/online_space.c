/* online_space.c - the schedules of online sums and nested contractions. Keys per block are the same for every one: of
 * an online sum they belong to the numerics plan. Strips divide them, so that blocks are made of whole strips. */
#include <math.h>

#include "core/search/space.h"

#define KEYS_PER_BLOCK 72
#define STRIP_MAX 24
#define ROW_VECTORS_MAX 4

/* The largest divisor of the block that leaves room for one vector of each row group and a broadcast. */
static uint32_t strip_of(uint32_t registers, uint32_t vectors)
{
    uint32_t best = 1;
    for (uint32_t strip = 1; strip <= STRIP_MAX; strip++) {
        bool fits = strip * vectors + vectors + 1 < registers;
        best = KEYS_PER_BLOCK % strip == 0 && fits ? strip : best;
    }
    return best;
}

sx_code sx_search_online(sx_search_space *space)
{
    const sx_device *device = space->device;
    sx_search_result *result = space->result;
    const int64_t *extent = space->a->extent;
    double product = (double)extent[SX_ROLE_INNER] + KEYS_PER_BLOCK;
    double lines = (double)extent[SX_ROLE_COLUMN] + fmax(space->a->product_count, 1) * product;
    double needed = (double)device->fma_per_cycle * device->fma_latency;
    for (uint32_t vectors = 1; vectors <= ROW_VECTORS_MAX; vectors++) {
        uint32_t strip = strip_of(device->registers, vectors);
        double width = (double)vectors * device->lanes;
        bool empty = (int64_t)(vectors - 1) * device->lanes >= extent[SX_ROLE_ROW];
        uint32_t *phase = NULL;
        if (vectors > 1 && 4 * width * lines > device->l2_bytes / 2) {
            phase = &result->dropped_resources;
        } else if (vectors > 1 && empty) {
            phase = &result->dropped_alignment; /* a whole vector of every block without a row */
        } else if ((double)strip * vectors < needed / 2) {
            phase = &result->dropped_roofline;
        }
        if (phase != NULL) {
            SX_TRY(sx_search_drop(space, phase, 1));
            continue;
        }
        sx_schedule schedule;
        sx_online_tiles tiles = {device->lanes, strip, vectors, KEYS_PER_BLOCK};
        sx_schedule_online(&tiles, &schedule);
        SX_TRY(sx_search_price(space, &schedule));
    }
    return SX_OK;
}
