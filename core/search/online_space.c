/* online_space.c - the schedules of online sums and nested contractions. Strips divide the keys of a block, so that
 * blocks are made of whole strips. Of an online sum the keys of a block are the same for every one: they belong to the
 * numerics plan. */
#include <math.h>

#include "core/search/space.h"

static const int64_t block_of[] = {72, 60, 48};
#define STRIP_MAX 24
#define ROW_VECTORS_MAX 4

/* The largest divisor of the block that leaves room for one vector of each row group and a broadcast. */
static uint32_t strip_of(int64_t keys, uint32_t registers, uint32_t vectors)
{
    uint32_t best = 1;
    for (uint32_t strip = 1; strip <= STRIP_MAX; strip++) {
        bool fits = strip * vectors + vectors + 1 < registers;
        best = keys % strip == 0 && fits ? strip : best;
    }
    return best;
}

/* The keys of a block. Of a nested contraction none that leave a last key by itself: where that key decides a
 * comparison of positions, inside of another sum, the judge does not see that it goes on with the others. */
static int64_t keys_of(const sx_analysis *a)
{
    int64_t keys = a->keys == SX_NO_DIM ? 1 : a->view.extent[a->keys];
    uint32_t k = 0;
    while (a->kind == SX_KERNEL_NESTED && k + 1 < SX_COUNT(block_of) && keys > block_of[k] &&
           keys % block_of[k] == 1) {
        k++;
    }
    return block_of[k];
}

sx_code sx_search_online(sx_search_space *space)
{
    const sx_device *device = space->device;
    sx_search_result *result = space->result;
    const int64_t *extent = space->a->extent;
    int64_t keys = keys_of(space->a);
    double product = (double)extent[SX_ROLE_INNER] + (double)keys;
    double lines = (double)extent[SX_ROLE_COLUMN] + fmax(space->a->product_count, 1) * product;
    double needed = (double)device->fma_per_cycle * device->fma_latency;
    for (uint32_t vectors = 1; vectors <= ROW_VECTORS_MAX; vectors++) {
        uint32_t strip = strip_of(keys, device->registers, vectors);
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
        sx_online_tiles tiles = {device->lanes, strip, vectors, keys};
        sx_schedule_online(&tiles, &schedule);
        SX_TRY(sx_search_price(space, &schedule));
    }
    return SX_OK;
}
