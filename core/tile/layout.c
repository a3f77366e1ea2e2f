#include "core/tile/layout.h"

#include <string.h>

static uint32_t mode_step(const sx_layout_mode *mode, sx_side side)
{
    return side == SX_SIDE_ROW ? mode->row : mode->column;
}

uint32_t sx_layout_input_bits(const sx_layout *layout)
{
    uint32_t bits = 0;
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        bits += layout->bits[home];
    }
    SX_ASSERT(bits <= SX_LAYOUT_BITS_MAX);
    return bits;
}

uint32_t sx_layout_first(const sx_layout *layout, sx_home home)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < (uint32_t)home; i++) {
        first += layout->bits[i];
    }
    SX_ASSERT(first + layout->bits[home] <= SX_LAYOUT_BITS_MAX);
    return first;
}

uint32_t sx_layout_side(const sx_layout *layout, sx_side side)
{
    SX_ASSERT(layout->side_bits[side] <= SX_LAYOUT_SIDE_BITS_MAX);
    uint32_t extent = 1U << layout->side_bits[side];
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        extent *= mode_step(&layout->mode[i], side) != 0 ? layout->mode[i].extent : 1U;
    }
    return extent;
}

uint32_t sx_layout_count(const sx_layout *layout, sx_home home)
{
    SX_ASSERT(layout->bits[home] <= SX_LAYOUT_BITS_MAX);
    uint32_t count = 1U << layout->bits[home];
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        count *= layout->mode[i].home == home ? layout->mode[i].extent : 1U;
    }
    return count;
}

static sx_code check_modes(sx_ctx *cx, const sx_layout *layout)
{
    uint64_t next[2] = {UINT64_C(1) << layout->side_bits[0], UINT64_C(1) << layout->side_bits[1]};
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        const sx_layout_mode *mode = &layout->mode[i];
        if (mode->home >= SX_HOME_COUNT || mode->home == SX_HOME_LANE) {
            return SX_FAIL(cx, SX_INPUT, "layout: mode %u stands in home %u", i, mode->home);
        }
        if (mode->extent < 2 || (mode->row != 0 && mode->column != 0)) {
            return SX_FAIL(cx, SX_INPUT, "layout: mode %u of %u steps by r%uc%u", i, mode->extent,
                           mode->row, mode->column);
        }
        uint32_t side = mode->row != 0 ? SX_SIDE_ROW : SX_SIDE_COLUMN;
        uint32_t step = mode_step(mode, side);
        if (step != 0 && step != next[side]) {
            return SX_FAIL(cx, SX_INPUT,
                           "layout: mode %u steps by %u, the tile before it ends at %u", i, step,
                           (uint32_t)next[side]);
        }
        next[side] *= step != 0 ? mode->extent : 1U;
        if (next[side] > SX_LAYOUT_SIDE_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "layout: mode %u makes a side of %llu, at most %d", i,
                           (unsigned long long)next[side], SX_LAYOUT_SIDE_MAX);
        }
    }
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        uint64_t count = UINT64_C(1) << layout->bits[home];
        for (uint32_t i = 0; i < layout->mode_count && count <= SX_LAYOUT_COUNT_MAX; i++) {
            count *= layout->mode[i].home == home ? layout->mode[i].extent : 1U;
        }
        if (count > SX_LAYOUT_COUNT_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "layout: %s of more than %u", sx_home_name((sx_home)home),
                           SX_LAYOUT_COUNT_MAX);
        }
    }
    return SX_OK;
}

sx_code sx_layout_check(sx_ctx *cx, const sx_layout *layout)
{
    uint32_t bits = 0;
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        bits += layout->bits[home];
    }
    if (bits > SX_LAYOUT_BITS_MAX || layout->mode_count > SX_LAYOUT_MODES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "layout: %u bits and %u modes, at most %d and %d", bits,
                       layout->mode_count, SX_LAYOUT_BITS_MAX, SX_LAYOUT_MODES_MAX);
    }
    if (layout->bits[SX_HOME_LANE] > 5) {
        return SX_FAIL(cx, SX_LIMIT, "layout: %u lane bits, at most 5", layout->bits[SX_HOME_LANE]);
    }
    if (layout->side_bits[0] > SX_LAYOUT_SIDE_BITS_MAX ||
        layout->side_bits[1] > SX_LAYOUT_SIDE_BITS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "layout: sides of 2^%u and 2^%u, at most 2^%d",
                       layout->side_bits[0], layout->side_bits[1], SX_LAYOUT_SIDE_BITS_MAX);
    }
    for (uint32_t i = 0; i < bits; i++) {
        uint32_t row = sx_at_row(layout->column[i]), column = sx_at_column(layout->column[i]);
        if (row >> layout->side_bits[SX_SIDE_ROW] != 0 ||
            column >> layout->side_bits[SX_SIDE_COLUMN] != 0) {
            return SX_FAIL(cx, SX_INPUT, "layout: column %u is r%uc%u, the linear part is %ux%u", i,
                           row, column, 1U << layout->side_bits[0], 1U << layout->side_bits[1]);
        }
    }
    return check_modes(cx, layout);
}

bool sx_layout_equal(const sx_layout *a, const sx_layout *b)
{
    uint32_t bits = sx_layout_input_bits(a);
    bool same = memcmp(a->bits, b->bits, sizeof(a->bits)) == 0 &&
                memcmp(a->side_bits, b->side_bits, sizeof(a->side_bits)) == 0 &&
                a->mode_count == b->mode_count &&
                memcmp(a->column, b->column, bits * sizeof(a->column[0])) == 0;
    SX_ASSERT(a->mode_count <= SX_LAYOUT_MODES_MAX);
    for (uint32_t i = 0; same && i < a->mode_count; i++) {
        same = a->mode[i].home == b->mode[i].home && a->mode[i].extent == b->mode[i].extent &&
               a->mode[i].row == b->mode[i].row && a->mode[i].column == b->mode[i].column;
    }
    return same;
}

/* row << column bits | column. */
static uint32_t pack(const sx_layout *layout, uint32_t at)
{
    return sx_at_row(at) << layout->side_bits[SX_SIDE_COLUMN] | sx_at_column(at);
}

sx_linear sx_layout_linear(const sx_layout *layout)
{
    uint32_t bits = sx_layout_input_bits(layout);
    _Static_assert(SX_LAYOUT_BITS_MAX <= SX_LINEAR_INPUTS_MAX, "every layout is a map");
    sx_linear map = {.input_bits = (uint8_t)bits,
                     .output_bits = (uint8_t)(layout->side_bits[0] + layout->side_bits[1])};
    SX_ASSERT(map.output_bits <= 2 * SX_LAYOUT_SIDE_BITS_MAX);
    for (uint32_t i = 0; i < bits; i++) {
        map.column[i] = pack(layout, layout->column[i]);
    }
    return map;
}

/* The bits of the linear part that `place` sets; the index of each mode in `index`. */
static uint32_t split(const sx_layout *layout, const sx_place *place, uint32_t *index)
{
    uint32_t bits = 0, rest[SX_HOME_COUNT];
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        uint32_t low = place->of[home] & ((1U << layout->bits[home]) - 1U);
        bits |= low << sx_layout_first(layout, (sx_home)home);
        rest[home] = place->of[home] >> layout->bits[home];
    }
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        index[i] = rest[layout->mode[i].home] % layout->mode[i].extent;
        rest[layout->mode[i].home] /= layout->mode[i].extent;
    }
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        SX_ASSERT(rest[home] == 0); // no such register, lane, warp or rank
    }
    return bits;
}

static sx_place join(const sx_layout *layout, uint32_t bits, const uint32_t *index)
{
    sx_place place;
    uint32_t unit[SX_HOME_COUNT];
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        unit[home] = 1U << layout->bits[home];
        place.of[home] = bits >> sx_layout_first(layout, (sx_home)home) & (unit[home] - 1U);
    }
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        uint32_t home = layout->mode[i].home;
        place.of[home] += index[i] * unit[home];
        unit[home] *= layout->mode[i].extent;
    }
    return place;
}

uint32_t sx_layout_apply(const sx_layout *layout, const sx_place *place)
{
    uint32_t index[SX_LAYOUT_MODES_MAX], at = 0;
    uint32_t bits = split(layout, place, index);
    SX_ASSERT(bits >> sx_layout_input_bits(layout) == 0);
    for (uint32_t i = 0; bits >> i != 0; i++) {
        at ^= (bits >> i & 1U) != 0 ? layout->column[i] : 0;
    }
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        const sx_layout_mode *mode = &layout->mode[i];
        at += SX_AT(index[i] * mode->row, index[i] * mode->column);
    }
    return at;
}

bool sx_layout_find(const sx_layout *layout, uint32_t at, uint32_t homes, sx_place *place)
{
    SX_ASSERT(homes != 0 && homes <= SX_HOMES_ALL);
    SX_ASSERT(sx_at_row(at) < sx_layout_side(layout, SX_SIDE_ROW));
    SX_ASSERT(sx_at_column(at) < sx_layout_side(layout, SX_SIDE_COLUMN));
    sx_place fixed = {{0}};
    uint32_t index[SX_LAYOUT_MODES_MAX], inputs = 0;
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        bool chosen = (homes >> home & 1U) != 0;
        fixed.of[home] = chosen ? 0 : place->of[home];
        uint32_t bits = (1U << layout->bits[home]) - 1U;
        inputs |= chosen ? bits << sx_layout_first(layout, (sx_home)home) : 0;
    }
    uint32_t given = split(layout, &fixed, index);
    uint32_t offset[2] = {sx_at_row(at), sx_at_column(at)};
    for (uint32_t i = layout->mode_count; i-- > 0;) { // outer ones first
        const sx_layout_mode *mode = &layout->mode[i];
        uint32_t side = mode->row != 0 ? SX_SIDE_ROW : SX_SIDE_COLUMN;
        uint32_t step = mode_step(mode, side);
        uint32_t wanted = step == 0 ? index[i] : offset[side] / step;
        offset[side] -= step == 0 ? 0 : wanted * step;
        if ((homes >> mode->home & 1U) == 0 && wanted != index[i]) {
            return false;
        }
        index[i] = wanted;
    }
    sx_linear map = sx_layout_linear(layout);
    uint32_t chosen, want = pack(layout, SX_AT(offset[0], offset[1]));
    if (!sx_linear_solve(&map, inputs, want ^ sx_linear_apply(&map, given), &chosen)) {
        return false;
    }
    *place = join(layout, given | chosen, index);
    SX_ASSERT(sx_layout_apply(layout, place) == at);
    return true;
}

bool sx_layout_covers(const sx_layout *layout)
{
    sx_linear map = sx_layout_linear(layout);
    SX_ASSERT(map.input_bits <= SX_LAYOUT_BITS_MAX);
    return sx_linear_rank(&map) == map.output_bits;
}

bool sx_layout_unique(const sx_layout *layout)
{
    sx_linear map = sx_layout_linear(layout);
    bool steps = true;
    SX_ASSERT(layout->mode_count <= SX_LAYOUT_MODES_MAX);
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        steps &= layout->mode[i].row != 0 || layout->mode[i].column != 0;
    }
    return steps && sx_linear_rank(&map) == map.input_bits;
}

uint32_t sx_layout_replicas(const sx_layout *layout)
{
    sx_linear map = sx_layout_linear(layout);
    uint32_t replicas = 1U << (map.input_bits - sx_linear_rank(&map));
    SX_ASSERT(layout->mode_count <= SX_LAYOUT_MODES_MAX);
    for (uint32_t i = 0; i < layout->mode_count; i++) {
        bool still = layout->mode[i].row == 0 && layout->mode[i].column == 0;
        replicas *= still ? layout->mode[i].extent : 1U;
    }
    return replicas;
}

uint32_t sx_layout_replica_bits(const sx_layout *layout, sx_home home)
{
    sx_linear map = sx_layout_linear(layout);
    uint32_t free_bits = ~sx_linear_pivots(&map) >> sx_layout_first(layout, home);
    SX_ASSERT(home < SX_HOME_COUNT);
    return free_bits & ((1U << layout->bits[home]) - 1U);
}

uint32_t sx_layout_vector(const sx_layout *layout)
{
    uint32_t bits = sx_layout_input_bits(layout), width = 1;
    SX_ASSERT(layout->bits[SX_HOME_REGISTER] <= bits);
    for (uint32_t k = 0; k < layout->bits[SX_HOME_REGISTER]; k++, width *= 2) {
        bool aligned = layout->column[k] == SX_AT(0, width);
        for (uint32_t i = k + 1; i < bits; i++) {
            aligned &= (layout->column[i] & width) == 0;
        }
        if (!aligned) {
            break;
        }
    }
    return width;
}
