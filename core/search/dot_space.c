/* dot_space.c - the schedules of a contraction: register blocks, tiles of a grid point, unrolling, panels. What a phase drops for a
 * register block, or for its tiles, is dropped with all that would stand inside. */
#include "core/search/space.h"

#define BLOCK_ROWS_MAX 14
#define BLOCK_VECTORS_MAX 4
static const int64_t tile_rows[] = {16, 32, 64, 128, 256, 512};
static const int64_t tile_panels[] = {1, 2, 4, 8, 16, 32};
static const uint32_t unrolls[] = {1, 2, 4};

static int64_t padded_columns(const sx_search_space *space)
{
    int64_t lanes = space->device->lanes;
    return sx_ceil_div_i64(space->a->extent[SX_ROLE_COLUMN], lanes) * lanes;
}

/* The phase that drops register blocks of this size, or NULL. */
static uint32_t *block_phase(sx_search_space *space, uint32_t rows, uint32_t vectors)
{
    const sx_device *device = space->device;
    sx_search_result *result = space->result;
    int64_t m = space->a->extent[SX_ROLE_ROW];
    int64_t width = (int64_t)vectors * device->lanes;
    /* accumulators, one row of the right argument, a broadcast and a spare */
    if (rows * vectors + vectors + 2 > device->registers) {
        return &result->dropped_resources;
    }
    if (width >= padded_columns(space) + device->lanes || m < (int64_t)rows) {
        return &result->dropped_alignment; /* larger than the problem */
    }
    /* independent chains that cannot fill the pipeline, where a wider block exists */
    double chains = (double)rows * vectors;
    double needed = (double)device->fma_per_cycle * device->fma_latency;
    double possible = (double)m * (double)(padded_columns(space) / device->lanes);
    bool starves = chains < needed / 2 && possible >= needed && chains < possible;
    return starves ? &result->dropped_roofline : NULL;
}

/* The phase that drops tiles of `rows` rows, or NULL. */
static uint32_t *rows_phase(sx_search_space *space, int64_t rows, uint32_t block)
{
    int64_t m = space->a->extent[SX_ROLE_ROW];
    double bytes = (double)sx_min_i64(rows, m) * (double)space->a->extent[SX_ROLE_SUM] * 4;
    if (bytes > space->device->l2_bytes / 2 && rows > 16) {
        return &space->result->dropped_resources; /* they are read again for each panel */
    }
    bool misfit = (rows > 16 && rows >= 2 * m) || rows < (int64_t)block;
    return misfit ? &space->result->dropped_alignment : NULL;
}

/* The rest of the space for one block and tiles of `rows` rows: tiles of columns, unrolling, panels or not. */
static sx_code price_tiles(sx_search_space *space, sx_contraction_tiles t, uint32_t ways)
{
    const sx_analysis *a = space->a;
    sx_search_result *result = space->result;
    int64_t width = (int64_t)t.block_vectors * t.lanes;
    for (uint32_t c = 0; c < SX_COUNT(tile_panels); c++) {
        t.tile_columns = tile_panels[c] * width;
        if (t.tile_columns > width && t.tile_columns >= 2 * padded_columns(space)) {
            SX_TRY(sx_search_drop(space, &result->dropped_alignment, SX_COUNT(unrolls) * ways));
            continue;
        }
        for (uint32_t u = 0; u < SX_COUNT(unrolls); u++) {
            t.unroll = unrolls[u];
            if (t.unroll > a->extent[SX_ROLE_SUM]) {
                SX_TRY(sx_search_drop(space, &result->dropped_alignment, ways));
                continue;
            }
            for (uint32_t packed = 0; packed < 2; packed++) {
                sx_schedule schedule;
                /* columns that lie apart are slow to read in place */
                if (packed == 1 ? !a->rhs_packable : a->rhs_packable && !a->rhs_direct) {
                    continue;
                }
                t.panels = packed == 1 ? a->rhs : UINT32_MAX;
                sx_schedule_contraction(&t, &schedule);
                SX_TRY(sx_search_price(space, &schedule));
            }
        }
    }
    return SX_OK;
}

sx_code sx_search_dot(sx_search_space *space)
{
    uint32_t ways = space->a->rhs_packable && space->a->rhs_direct ? 2 : 1;
    uint32_t inside = SX_COUNT(tile_panels) * SX_COUNT(unrolls) * ways;
    for (uint32_t vectors = 1; vectors <= BLOCK_VECTORS_MAX; vectors++) {
        for (uint32_t rows = 1; rows <= BLOCK_ROWS_MAX; rows++) {
            uint32_t *phase = block_phase(space, rows, vectors);
            if (phase != NULL) {
                SX_TRY(sx_search_drop(space, phase, SX_COUNT(tile_rows) * inside));
                continue;
            }
            for (uint32_t t = 0; t < SX_COUNT(tile_rows); t++) {
                phase = rows_phase(space, tile_rows[t], rows);
                if (phase != NULL) {
                    SX_TRY(sx_search_drop(space, phase, inside));
                    continue;
                }
                SX_TRY(price_tiles(space,
                                   (sx_contraction_tiles){.lanes = space->device->lanes,
                                                          .block_rows = rows,
                                                          .block_vectors = vectors,
                                                          .tile_rows = tile_rows[t]},
                                   ways));
            }
        }
    }
    return SX_OK;
}
