/* dot_space.c - the schedules of a contraction: register blocks, tiles of a grid point, unrolling, panels.
 * What a phase drops for a register block, or for its tiles, is dropped with all that would stand inside. */
#include <string.h>

#include "core/search/space.h"

#define BLOCK_ROWS_MAX 14
#define BLOCK_VECTORS_MAX 4
#define UNROLL_MAX 4 /* steps of k: the more, the less a step costs */
static const int64_t tile_rows[] = {16, 32, 64, 128, 256, 512};
static const int64_t tile_panels[] = {1, 2, 4, 8, 16, 32};

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
    return NULL;
}

/* The ways of reading the right argument; columns that lie apart are slow to read in place. */
static uint32_t ways_of(const sx_analysis *a, uint32_t panels[2])
{
    uint32_t count = 0;
    if (!a->rhs_packable || a->rhs_direct) {
        panels[count++] = UINT32_MAX;
    }
    if (a->rhs_packable) {
        panels[count++] = a->rhs;
    }
    return count;
}

/* The phase that drops tiles of `rows` rows, or NULL. */
static uint32_t *rows_phase(sx_search_space *space, int64_t rows, uint32_t block)
{
    int64_t m = space->a->extent[SX_ROLE_ROW];
    double bytes =
        (double)sx_min_i64(rows, m) * (double)space->a->extent[SX_ROLE_SUM] * space->a->lane_bytes;
    if (bytes > space->device->l2_bytes / 2 && rows > 16) {
        return &space->result->dropped_resources; /* they are read again for each panel */
    }
    bool misfit = (rows > 16 && rows >= 2 * m) || rows < (int64_t)block;
    return misfit ? &space->result->dropped_alignment : NULL;
}

/* The rest of the space for one block, tiles of rows and way: tiles of columns. */
static sx_code price_columns(sx_search_space *space, sx_contraction_tiles t)
{
    sx_search_result *result = space->result;
    int64_t width = (int64_t)t.block_vectors * t.lanes;
    int64_t columns[SX_COUNT(tile_panels)];
    double ns[SX_COUNT(tile_panels)];
    uint32_t count = 0;
    for (uint32_t c = 0; c < SX_COUNT(tile_panels); c++) {
        int64_t tile = tile_panels[c] * width;
        if (c == 0 || tile < 2 * padded_columns(space)) {
            columns[count++] = tile;
        }
    }
    SX_TRY(sx_search_drop(space, &result->dropped_alignment, SX_COUNT(tile_panels) - count));
    sx_cost_contractions(space->device, space->a, &t, columns, count, space->rhs_constant, ns);
    for (uint32_t c = 0; c < count; c++) {
        if (sx_search_wants(space, ns[c])) {
            sx_schedule schedule;
            t.tile_columns = columns[c];
            sx_schedule_contraction(&t, &schedule);
            SX_TRY(sx_search_keep(space, &schedule, ns[c])); /* it is what sx_cost_schedule says */
        } else {
            result->considered++;
        }
    }
    return SX_OK;
}

/* For each rows of tiles: what the price of the last blocks with as many columns depended on. */
typedef struct {
    sx_contraction_rows rows[SX_COUNT(tile_rows)];
} priced;

/* Where grid points are warps, blocks of many rows cost what others cost that were priced before: of equal ones the
 * first is taken, so that these cannot be the cheapest. */
static bool is_priced(const sx_search_space *space, const sx_contraction_tiles *t,
                      sx_contraction_rows *before)
{
    if (space->all || space->result->keep > 1 || space->device->block_threads == 0) {
        return false;
    }
    sx_contraction_rows rows;
    int64_t width = (int64_t)t->block_vectors * t->lanes;
    sx_cost_contraction_rows(space->device, space->a, t, width, &rows);
    bool same =
        rows.strips == before->strips && rows.height == before->height && rows.held == before->held;
    *before = rows;
    return same;
}

/* All tiles for one block and way of reading. */
static sx_code price_block(sx_search_space *space, sx_contraction_tiles t, priced *before)
{
    for (uint32_t r = 0; r < SX_COUNT(tile_rows); r++) {
        uint32_t *phase = rows_phase(space, tile_rows[r], t.block_rows);
        if (phase != NULL) {
            SX_TRY(sx_search_drop(space, phase, SX_COUNT(tile_panels)));
            continue;
        }
        t.tile_rows = sx_max_i64(tile_rows[r], t.block_rows);
        SX_TRY(is_priced(space, &t, &before->rows[r])
                   ? sx_search_drop(space, &space->result->dropped_bound, SX_COUNT(tile_panels))
                   : price_columns(space, t));
    }
    return SX_OK;
}

sx_code sx_search_dot(sx_search_space *space)
{
    const sx_analysis *a = space->a;
    uint32_t panels[2];
    uint32_t ways = ways_of(a, panels);
    uint32_t inside = SX_COUNT(tile_panels) * SX_COUNT(tile_rows);
    uint32_t unroll = (uint32_t)sx_min_i64(UNROLL_MAX, a->extent[SX_ROLE_SUM]);
    for (uint32_t vectors = BLOCK_VECTORS_MAX; vectors > 0; vectors--) { /* the good ones first */
        priced before[2];
        memset(before, 0, sizeof(before)); /* no block has 0 strips */
        for (uint32_t rows = BLOCK_ROWS_MAX; rows > 0; rows--) {
            uint32_t *phase = block_phase(space, rows, vectors);
            if (phase != NULL) {
                SX_TRY(sx_search_drop(space, phase, inside * ways));
                continue;
            }
            for (uint32_t w = 0; w < ways; w++) {
                sx_contraction_tiles tiles = {.lanes = space->device->lanes,
                                              .block_rows = rows,
                                              .block_vectors = vectors,
                                              .unroll = unroll,
                                              .panels = panels[w]};
                double least = sx_cost_block_bound(space->device, a, &tiles, space->rhs_constant);
                if (!sx_search_wants(space, least)) {
                    SX_TRY(sx_search_drop(space, &space->result->dropped_bound, inside));
                    continue;
                }
                SX_TRY(price_block(space, tiles, &before[w]));
            }
        }
    }
    return SX_OK;
}
