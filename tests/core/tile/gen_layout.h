/* gen_layout.h - random linear maps and layouts for the tests of core/tile, and places counted through. */
#ifndef SX_TESTS_CORE_TILE_GEN_LAYOUT_H
#define SX_TESTS_CORE_TILE_GEN_LAYOUT_H
#include "core/base/rng.h"
#include "core/tile/layout.h"

/* Any columns, so often not injective and not onto. */
SX_UNUSED static sx_linear gen_linear(sx_rng *rng, uint32_t input_bits, uint32_t output_bits)
{
    sx_linear map = {.input_bits = (uint8_t)input_bits, .output_bits = (uint8_t)output_bits};
    for (uint32_t i = 0; i < input_bits; i++) {
        map.column[i] = (uint32_t)sx_rng_next(rng) & (uint32_t)((UINT64_C(1) << output_bits) - 1);
    }
    return map;
}

/* A mode of a random home and side that goes on where the tile ends. */
SX_UNUSED static void gen_mode(sx_rng *rng, sx_layout *layout)
{
    static const uint8_t homes[] = {SX_HOME_REGISTER, SX_HOME_WARP, SX_HOME_RANK};
    sx_layout_mode mode = {.home = homes[sx_rng_below(rng, 3)],
                           .extent = (uint16_t)(2 + sx_rng_below(rng, 5))};
    uint64_t side = sx_rng_below(rng, 5);
    mode.row = side < 2 ? (uint16_t)sx_layout_side(layout, SX_SIDE_ROW) : 0;
    mode.column = side == 2 || side == 3 ? (uint16_t)sx_layout_side(layout, SX_SIDE_COLUMN) : 0;
    layout->mode[layout->mode_count++] = mode;
}

/* At most 2^bits places in the linear part; each column a single bit (as in most real layouts), or any. */
SX_UNUSED static sx_layout gen_layout(sx_rng *rng, uint32_t bits, uint32_t modes)
{
    sx_layout layout = {.mode_count = 0};
    bool single = sx_rng_below(rng, 2) == 0;
    layout.side_bits[0] = (uint8_t)sx_rng_below(rng, bits / 2 + 1);
    layout.side_bits[1] = (uint8_t)sx_rng_below(rng, bits / 2 + 1);
    uint32_t columns = layout.side_bits[1], all = layout.side_bits[0] + columns;
    for (uint32_t i = 0; i < bits; i++) {
        uint32_t home = (uint32_t)sx_rng_below(rng, SX_HOME_COUNT);
        layout.bits[layout.bits[SX_HOME_LANE] == 5 ? 0 : home]++;
        uint32_t value = (uint32_t)sx_rng_below(rng, UINT64_C(1) << all);
        value = single && sx_rng_below(rng, 8) != 0 ? 1U << sx_rng_below(rng, all + 1) : value;
        value &= (1U << all) - 1;
        layout.column[i] = SX_AT(value >> columns, value & ((1U << columns) - 1));
    }
    for (uint32_t i = 0; i < modes; i++) {
        gen_mode(rng, &layout);
    }
    return layout;
}

/* Each element once: the columns are the unit positions in random order, then mixed by exclusive or. */
SX_UNUSED static sx_layout gen_bijective(sx_rng *rng, uint32_t row_bits, uint32_t column_bits)
{
    sx_layout layout = {.side_bits = {(uint8_t)row_bits, (uint8_t)column_bits}};
    uint32_t bits = row_bits + column_bits;
    for (uint32_t i = 0; i < bits; i++) {
        layout.column[i] = i < row_bits ? SX_AT(1U << i, 0) : SX_AT(0, 1U << (i - row_bits));
        layout.bits[layout.bits[SX_HOME_LANE] == 5 ? 0 : sx_rng_below(rng, SX_HOME_COUNT)]++;
    }
    for (uint32_t i = 0; i + 1 < bits; i++) {
        uint32_t j = i + (uint32_t)sx_rng_below(rng, bits - i), kept = layout.column[i];
        layout.column[i] = layout.column[j];
        layout.column[j] = kept;
    }
    for (uint32_t i = 0; bits > 1 && i < bits; i++) {
        uint32_t a = (uint32_t)sx_rng_below(rng, bits), b = (uint32_t)sx_rng_below(rng, bits);
        layout.column[a] ^= a != b && sx_rng_below(rng, 2) == 0 ? layout.column[b] : 0;
    }
    return layout;
}

/* Place number `index`, registers fastest, then lanes, warps, ranks. */
SX_UNUSED static sx_place gen_place(const sx_layout *layout, uint32_t index)
{
    sx_place place;
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        place.of[home] = index % sx_layout_count(layout, (sx_home)home);
        index /= sx_layout_count(layout, (sx_home)home);
    }
    return place;
}

SX_UNUSED static uint32_t gen_places(const sx_layout *layout)
{
    uint32_t count = 1;
    for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
        count *= sx_layout_count(layout, (sx_home)home);
    }
    return count;
}
#endif
