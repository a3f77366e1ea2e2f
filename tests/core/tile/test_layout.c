/* Linear maps and layouts against counting: every input of random maps, every place of random layouts. */
#include "tests/core/tile/gen_layout.h"
#include "tests/lib/test.h"

#include <string.h>

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_layout parsed(const char *text)
{
    sx_layout layout;
    ck_sx_ok(&cx, sx_layout_parse(&cx, sx_span_of(text), &layout));
    return layout;
}

/* ---- linear maps ---- */

/* The first input that gives each value, by trying all; UINT32_MAX: none. Returns how many values are taken. */
static uint32_t tabulate(const sx_linear *map, uint32_t *first)
{
    uint32_t taken = 0;
    memset(first, 0xff, sizeof(uint32_t) << map->output_bits);
    for (uint32_t x = 0; x < 1U << map->input_bits; x++) {
        uint32_t y = 0;
        for (uint32_t i = 0; i < map->input_bits; i++) {
            y ^= (x >> i & 1U) * map->column[i];
        }
        ck_assert_uint_eq(sx_linear_apply(map, x), y);
        taken += first[y] == UINT32_MAX;
        first[y] = first[y] == UINT32_MAX ? x : first[y];
    }
    return taken;
}

START_TEST(test_linear)
{
    sx_rng rng = {sx_test_seed()};
    static uint32_t first[1 << 8];
    for (uint32_t trial = 0; trial < sx_test_trials(2000); trial++) {
        sx_linear map =
            gen_linear(&rng, (uint32_t)sx_rng_below(&rng, 11), (uint32_t)sx_rng_below(&rng, 9));
        uint32_t taken = tabulate(&map, first), pivots = sx_linear_pivots(&map);
        ck_assert_uint_eq(1U << sx_linear_rank(&map), taken);
        ck_assert_uint_eq((uint32_t)__builtin_popcount(pivots), sx_linear_rank(&map));
        sx_linear inverse;
        bool onto = taken == 1U << map.output_bits;
        ck_assert(sx_linear_find_inverse(&map, &inverse) == onto);
        for (uint32_t y = 0; y < 1U << map.output_bits; y++) {
            uint32_t x = 0;
            ck_assert(sx_linear_solve(&map, UINT32_MAX, y, &x) == (first[y] != UINT32_MAX));
            ck_assert(first[y] == UINT32_MAX || (x == first[y] && (x & ~pivots) == 0));
            ck_assert(!onto || sx_linear_apply(&inverse, y) == first[y]);
        }
        if (onto) {
            sx_linear both = sx_linear_compose(&map, &inverse);
            sx_linear same = sx_linear_identity(map.output_bits);
            ck_assert(sx_linear_equal(&both, &same));
        }
    }
}
END_TEST

START_TEST(test_solve_within_inputs)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(1000); trial++) {
        sx_linear map = gen_linear(&rng, 8, 6);
        uint32_t inputs = (uint32_t)sx_rng_below(&rng, 256), y = (uint32_t)sx_rng_below(&rng, 64);
        uint32_t least = UINT32_MAX, x = 0;
        for (uint32_t i = 0; i < 256 && least == UINT32_MAX; i++) {
            least = (i & ~inputs) == 0 && sx_linear_apply(&map, i) == y ? i : UINT32_MAX;
        }
        ck_assert(sx_linear_solve(&map, inputs, y, &x) == (least != UINT32_MAX));
        ck_assert(least == UINT32_MAX || x == least);
    }
}
END_TEST

START_TEST(test_compose)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(500); trial++) {
        uint32_t between = (uint32_t)sx_rng_below(&rng, 9);
        sx_linear inner = gen_linear(&rng, 7, between), outer = gen_linear(&rng, between, 9);
        sx_linear both = sx_linear_compose(&outer, &inner);
        for (uint32_t x = 0; x < 128; x++) {
            ck_assert_uint_eq(sx_linear_apply(&both, x),
                              sx_linear_apply(&outer, sx_linear_apply(&inner, x)));
        }
    }
}
END_TEST

/* ---- layouts ---- */

START_TEST(test_text)
{
    sx_rng rng = {sx_test_seed()};
    sx_buf out;
    sx_buf_init(&out, 4096);
    for (uint32_t trial = 0; trial < sx_test_trials(2000); trial++) {
        sx_layout layout =
            gen_layout(&rng, (uint32_t)sx_rng_below(&rng, 13), (uint32_t)sx_rng_below(&rng, 4));
        sx_layout again;
        ck_sx_ok(&cx, sx_layout_check(&cx, &layout));
        sx_buf_clear(&out);
        sx_layout_print(&layout, &out);
        ck_sx_ok(&cx, sx_layout_parse(&cx, sx_buf_span(&out), &again));
        ck_assert(sx_layout_equal(&layout, &again));
    }
    sx_buf_clear(&out);
    sx_layout layout =
        parsed("tile 16x8 reg c1 r8 lane c2 c4 0 r2c1 r4 mode 3 reg c8 mode 2 warp 0");
    sx_layout_print(&layout, &out);
    ck_assert(sx_span_is(sx_buf_span(&out), "tile 16x8 reg c1 r8 lane c2 c4 0 r2c1 r4 "
                                            "mode 3 reg c8 mode 2 warp 0"));
    sx_buf_fini(&out);
}
END_TEST

static const struct {
    const char *text, *error;
} bad[] = {
    {"", "expected 'tile' at byte 0"},
    {"16x8", "expected 'tile'"},
    {"tile 16", "expected two powers of two"},
    {"tile 12x8", "expected two powers of two"},
    {"tile 0x8", "expected two powers of two"},
    {"tile 65536x8", "expected two powers of two"},
    {"tile 16x8 reg c1 r16", "column 1 is r16c0, the linear part is 16x8"},
    {"tile 16x8 reg c8", "column 0 is r0c8"},
    {"tile 16x8 reg c0", "found 'c0'"},
    {"tile 16x8 lane c1 reg c2", "found 'reg'"},
    {"tile 16x8 lane c1 c2 c4 r1 r2 r4", "6 lane bits, at most 5"},
    {"tile 16x8 reg c1x", "found 'c1x'"},
    {"tile 16x8 mode", "expected the extent"},
    {"tile 16x8 mode 3", "expected reg, warp or rank"},
    {"tile 16x8 mode 3 lane c8", "mode 0 stands in home 1"},
    {"tile 16x8 mode 3 reg", "expected a step"},
    {"tile 16x8 mode 1 reg c8", "mode 0 of 1"},
    {"tile 16x8 mode 3 reg r16c8", "mode 0 of 3 steps by r16c8"},
    {"tile 16x8 mode 3 reg c4", "mode 0 steps by 4, the tile before it ends at 8"},
    {"tile 16x8 mode 3 reg c8 mode 2 warp c16",
     "mode 1 steps by 16, the tile before it ends at 24"},
    {"tile 16x8 mode 30000 reg c8", "makes a side of 240000, at most 32768"},
    {"tile 16x8 mode 32768 warp 0 mode 64 warp 0", "warp of more than 1048576"},
    {"tile 16x8 mode 3 reg c8 mode 3 reg c24 mode 3 reg r16 mode 3 reg r48", "more than 3 modes"},
    {"tile 16x8 reg 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", "more than 20 columns"},
};

START_TEST(test_bad_texts)
{
    sx_layout layout;
    sx_code code = sx_layout_parse(&cx, sx_span_of(bad[_i].text), &layout);
    ck_assert(code == SX_INPUT || code == SX_LIMIT);
    ck_assert_msg(strstr(cx.error.text, bad[_i].error) != NULL, "%s: %s", bad[_i].text,
                  cx.error.text);
}
END_TEST

/* What the header says, by hand. */
START_TEST(test_example)
{
    sx_layout layout = parsed("tile 16x8 reg c1 r8 lane c2 c4 r1 r2 r4");
    sx_place place = {{3, 5, 0, 0}};
    ck_assert_uint_eq(sx_layout_apply(&layout, &place), SX_AT(9, 3));
    layout = parsed("tile 16x8 reg c1 r8 lane c2 c4 r1 r2 r4 mode 3 warp r16 mode 5 reg c8");
    place = (sx_place){{3 + 4 * 4, 5, 2, 0}};
    ck_assert_uint_eq(sx_layout_apply(&layout, &place), SX_AT(9 + 32, 3 + 32));
    ck_assert_uint_eq(sx_layout_count(&layout, SX_HOME_REGISTER), 20);
    ck_assert_uint_eq(sx_layout_side(&layout, SX_SIDE_ROW), 48);
    ck_assert_uint_eq(sx_layout_side(&layout, SX_SIDE_COLUMN), 40);
}
END_TEST

/* Cover, uniqueness, replicas, representatives and places found: all by going through every place. */
START_TEST(test_proofs_against_counting)
{
    sx_rng rng = {sx_test_seed()};
    static uint32_t holders[1 << 16], first[1 << 16];
    for (uint32_t trial = 0; trial < sx_test_trials(600); trial++) {
        sx_layout layout =
            gen_layout(&rng, (uint32_t)sx_rng_below(&rng, 9), (uint32_t)sx_rng_below(&rng, 3));
        uint32_t rows = sx_layout_side(&layout, SX_SIDE_ROW);
        uint32_t columns = sx_layout_side(&layout, SX_SIDE_COLUMN), places = gen_places(&layout);
        ck_assert_uint_le(rows * columns, SX_COUNT(holders));
        memset(holders, 0, rows * columns * sizeof(holders[0]));
        for (uint32_t i = 0; i < places; i++) {
            sx_place place = gen_place(&layout, i);
            uint32_t at = sx_layout_apply(&layout, &place);
            ck_assert(sx_at_row(at) < rows && sx_at_column(at) < columns);
            uint32_t slot = sx_at_row(at) * columns + sx_at_column(at);
            first[slot] = holders[slot]++ == 0 ? i : first[slot];
        }
        bool covers = true, unique = true;
        for (uint32_t slot = 0; slot < rows * columns; slot++) {
            covers &= holders[slot] != 0;
            unique &= holders[slot] <= 1;
            ck_assert(holders[slot] == 0 || holders[slot] == sx_layout_replicas(&layout));
            sx_place place = {{0}};
            uint32_t at = SX_AT(slot / columns, slot % columns);
            ck_assert(sx_layout_find(&layout, at, SX_HOMES_ALL, &place) == (holders[slot] != 0));
            if (holders[slot] != 0) {
                sx_place least = gen_place(&layout, first[slot]);
                ck_assert_mem_eq(&place, &least, sizeof(place));
            }
        }
        ck_assert(sx_layout_covers(&layout) == covers);
        ck_assert(sx_layout_unique(&layout) == unique);
    }
}
END_TEST

/* Registers, lanes or warps chosen, the others given. */
START_TEST(test_find_within_homes)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(3000); trial++) {
        sx_layout layout = gen_layout(&rng, 8, (uint32_t)sx_rng_below(&rng, 3));
        uint32_t places = gen_places(&layout), homes = 1 + (uint32_t)sx_rng_below(&rng, 15);
        sx_place given = gen_place(&layout, (uint32_t)sx_rng_below(&rng, places));
        sx_place holder = gen_place(&layout, (uint32_t)sx_rng_below(&rng, places));
        uint32_t at = sx_layout_apply(&layout, &holder), i = 0;
        for (; i < places; i++) {
            sx_place place = gen_place(&layout, i);
            bool kept = sx_layout_apply(&layout, &place) == at;
            for (uint32_t home = 0; home < SX_HOME_COUNT; home++) {
                kept &= (homes >> home & 1U) != 0 || place.of[home] == given.of[home];
            }
            if (kept) {
                break;
            }
        }
        sx_place found = given;
        ck_assert(sx_layout_find(&layout, at, homes, &found) == (i < places));
        if (i < places) {
            sx_place least = gen_place(&layout, i);
            ck_assert_mem_eq(&found, &least, sizeof(found));
        }
    }
}
END_TEST

START_TEST(test_inverse)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(500); trial++) {
        sx_layout layout =
            gen_bijective(&rng, (uint32_t)sx_rng_below(&rng, 7), (uint32_t)sx_rng_below(&rng, 7));
        sx_linear map = sx_layout_linear(&layout), inverse,
                  same = sx_linear_identity(map.input_bits);
        ck_assert(sx_layout_covers(&layout) && sx_layout_unique(&layout));
        ck_assert(sx_linear_find_inverse(&map, &inverse));
        sx_linear left = sx_linear_compose(&inverse, &map),
                  right = sx_linear_compose(&map, &inverse);
        ck_assert(sx_linear_equal(&left, &same) && sx_linear_equal(&right, &same));
    }
}
END_TEST

START_TEST(test_vector)
{
    static const struct {
        const char *text;
        uint32_t width;
    } rows[] = {
        {"tile 8x8 reg c1 lane c2 c4 r1 r2 r4", 2}, {"tile 8x8 reg c1 c2 c4 lane r1 r2 r4", 8},
        {"tile 8x8 reg c2 c1 lane c4 r1 r2 r4", 1}, {"tile 8x8 reg c1 c2 lane r1c1 c4 r2 r4", 1},
        {"tile 8x8 reg r1 c1 lane c2 c4 r2 r4", 1}, {"tile 8x8 reg c1 c2 lane c4 r1c2 r2 r4", 2},
        {"tile 1x4 reg c1 c2 mode 3 reg c4", 4},
    };
    sx_layout layout = parsed(rows[_i].text);
    ck_assert_uint_eq(sx_layout_vector(&layout), rows[_i].width);
}
END_TEST

START_TEST(test_normal_and_transpose)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(1000); trial++) {
        sx_layout layout =
            gen_layout(&rng, (uint32_t)sx_rng_below(&rng, 8), (uint32_t)sx_rng_below(&rng, 4));
        sx_layout normal = sx_layout_normal(&layout), turned = sx_layout_transpose(&layout);
        ck_sx_ok(&cx, sx_layout_check(&cx, &normal));
        ck_sx_ok(&cx, sx_layout_check(&cx, &turned));
        ck_assert_uint_eq(gen_places(&normal), gen_places(&layout));
        for (uint32_t i = 0; i < gen_places(&layout); i++) {
            sx_place place = gen_place(&layout, i);
            uint32_t at = sx_layout_apply(&layout, &place);
            ck_assert_uint_eq(sx_layout_apply(&normal, &place), at);
            ck_assert_uint_eq(sx_layout_apply(&turned, &place),
                              SX_AT(sx_at_column(at), sx_at_row(at)));
        }
    }
    sx_layout twelve = parsed("tile 64x8 reg c1 mode 12 reg c8");
    sx_layout folded = sx_layout_normal(&twelve),
              want = parsed("tile 64x32 reg c1 c8 c16 mode 3 reg c32");
    ck_assert(sx_layout_equal(&folded, &want));
    twelve = parsed("tile 1x1 mode 729 rank 0 mode 729 rank 0"); /* one mode has 16 bits */
    folded = sx_layout_normal(&twelve);
    ck_assert(sx_layout_equal(&folded, &twelve));
    twelve = parsed("tile 64x8 reg c1 mode 2 reg c8 mode 6 reg c16");
    folded = sx_layout_normal(&twelve);
    ck_assert(sx_layout_equal(&folded, &want));
}
END_TEST

/* What each thread holds after a side was reduced away, as a set: the slice says the same, each element once. */
START_TEST(test_slice)
{
    sx_rng rng = {sx_test_seed()};
    static uint8_t held[1 << 16], said[1 << 16];
    for (uint32_t trial = 0; trial < sx_test_trials(500); trial++) {
        sx_layout layout =
            gen_layout(&rng, (uint32_t)sx_rng_below(&rng, 9), (uint32_t)sx_rng_below(&rng, 3));
        sx_side side = sx_rng_below(&rng, 2) == 0 ? SX_SIDE_ROW : SX_SIDE_COLUMN;
        sx_layout slice = sx_layout_slice(&layout, side);
        ck_sx_ok(&cx, sx_layout_check(&cx, &slice));
        uint32_t kept = sx_layout_side(&layout, side == SX_SIDE_ROW ? SX_SIDE_COLUMN : SX_SIDE_ROW);
        uint32_t registers = sx_layout_count(&layout, SX_HOME_REGISTER);
        uint32_t rest = sx_layout_count(&slice, SX_HOME_REGISTER);
        uint32_t threads = gen_places(&layout) / registers;
        ck_assert_uint_eq(gen_places(&slice) / rest, threads);
        for (uint32_t t = 0; t < threads; t++) {
            memset(held, 0, kept);
            memset(said, 0, kept);
            for (uint32_t r = 0; r < registers; r++) {
                sx_place place = gen_place(&layout, t * registers + r);
                uint32_t at = sx_layout_apply(&layout, &place);
                held[side == SX_SIDE_ROW ? sx_at_column(at) : sx_at_row(at)] = 1;
            }
            for (uint32_t r = 0; r < rest; r++) {
                sx_place place = gen_place(&slice, t * rest + r);
                uint32_t at = sx_layout_apply(&slice, &place);
                ck_assert_uint_eq(side == SX_SIDE_ROW ? sx_at_row(at) : sx_at_column(at), 0);
                said[side == SX_SIDE_ROW ? sx_at_column(at) : sx_at_row(at)]++;
            }
            ck_assert_mem_eq(held, said, kept);
        }
    }
}
END_TEST

/* Element (q, a) of a product is element a of the atom that element q of the repeats is. */
START_TEST(test_product)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t made = 0;
    for (uint32_t trial = 0; trial < sx_test_trials(1500); trial++) {
        sx_layout atom =
            gen_layout(&rng, (uint32_t)sx_rng_below(&rng, 6), sx_rng_below(&rng, 3) == 0);
        sx_layout repeats =
            gen_layout(&rng, (uint32_t)sx_rng_below(&rng, 6), (uint32_t)sx_rng_below(&rng, 2));
        sx_layout product;
        bool rows_step = atom.mode_count != 0 && atom.mode[0].row != 0;
        bool columns_step = atom.mode_count != 0 && atom.mode[0].column != 0;
        if ((rows_step && repeats.side_bits[0] != 0) ||
            (columns_step && repeats.side_bits[1] != 0)) {
            ck_sx_fails(&cx, sx_layout_product(&cx, &atom, &repeats, &product), SX_INPUT,
                        "by a mode");
            continue;
        }
        if (atom.bits[SX_HOME_LANE] + repeats.bits[SX_HOME_LANE] > 5) {
            ck_sx_fails(&cx, sx_layout_product(&cx, &atom, &repeats, &product), SX_LIMIT,
                        "lane bits");
            continue;
        }
        ck_sx_ok(&cx, sx_layout_product(&cx, &atom, &repeats, &product));
        made++;
        uint32_t rows = sx_layout_side(&atom, SX_SIDE_ROW),
                 columns = sx_layout_side(&atom, SX_SIDE_COLUMN);
        for (uint32_t i = 0; i < gen_places(&product); i++) {
            sx_place whole = gen_place(&product, i), a, q;
            for (uint32_t home = 0; home < SX_HOME_COUNT;
                 home++) { /* bits of both, then modes of both */
                uint32_t bits = atom.bits[home], more = repeats.bits[home], x = whole.of[home];
                uint32_t high = x >> (bits + more);
                uint32_t modes = sx_layout_count(&atom, (sx_home)home) >> bits;
                a.of[home] = (x & ((1U << bits) - 1)) + (high % modes << bits);
                q.of[home] = (x >> bits & ((1U << more) - 1)) + (high / modes << more);
            }
            uint32_t low = sx_layout_apply(&atom, &a), step = sx_layout_apply(&repeats, &q);
            ck_assert_uint_eq(sx_layout_apply(&product, &whole),
                              low + SX_AT(sx_at_row(step) * rows, sx_at_column(step) * columns));
        }
    }
    ck_assert_uint_gt(made, sx_test_trials(1500) / 4);
}
END_TEST

/* `layout` with its register bits in the order that a quotient gives. */
static sx_layout reordered(const sx_layout *layout, uint32_t atom_bits, const sx_quotient *quotient)
{
    sx_layout out = *layout;
    for (uint32_t i = 0; i < layout->bits[SX_HOME_REGISTER]; i++) {
        out.column[i] = layout->column[i < atom_bits ? quotient->atom_bit[i]
                                                     : quotient->repeat_bit[i - atom_bits]];
    }
    return out;
}

START_TEST(test_division)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t made = 0;
    for (uint32_t trial = 0; trial < sx_test_trials(4000); trial++) {
        sx_layout atom =
            gen_layout(&rng, (uint32_t)sx_rng_below(&rng, 6), sx_rng_below(&rng, 4) == 0);
        sx_layout repeats =
            gen_layout(&rng, (uint32_t)sx_rng_below(&rng, 5), (uint32_t)sx_rng_below(&rng, 2));
        sx_layout product, again;
        if (sx_layout_product(&cx, &atom, &repeats, &product) != SX_OK) {
            sx_ctx_reset_error(&cx);
            continue;
        }
        made++;
        for (uint32_t i = product.bits[SX_HOME_REGISTER]; i > 1; i--) { /* registers in any order */
            uint32_t j = (uint32_t)sx_rng_below(&rng, i), kept = product.column[i - 1];
            product.column[i - 1] = product.column[j];
            product.column[j] = kept;
        }
        sx_quotient quotient;
        ck_assert(sx_layout_divide(&product, &atom, &quotient));
        ck_sx_ok(&cx, sx_layout_product(&cx, &atom, &quotient.repeats, &again));
        sx_layout ordered = reordered(&product, atom.bits[SX_HOME_REGISTER], &quotient);
        ck_assert(sx_layout_equal(&ordered, &again));
        /* a column of the atom that the layout lacks */
        uint32_t bits = sx_layout_input_bits(&atom);
        if (bits > 0 && sx_layout_unique(&product)) {
            sx_layout other = atom;
            uint32_t from = (uint32_t)sx_rng_below(&rng, bits);
            other.column[from] = 0;
            ck_assert(!sx_layout_divide(&product, &other, &quotient));
        }
    }
    ck_assert_uint_gt(made, sx_test_trials(4000) / 4);
}
END_TEST

/* Quotients that exist only because 16 columns are two groups of 8. */
START_TEST(test_division_across_modes)
{
    sx_layout layout =
        parsed("tile 64x8 reg c1 r8 lane c2 c4 r1 r2 r4 warp r16 r32 mode 24 reg c8");
    sx_layout atom = parsed("tile 16x16 reg c1 r8 c8 lane c2 c4 r1 r2 r4"), want;
    sx_quotient quotient;
    ck_assert(sx_layout_divide(&layout, &atom, &quotient));
    want = parsed("tile 4x4 reg c1 c2 warp r1 r2 mode 3 reg c4");
    ck_assert(sx_layout_equal(&quotient.repeats, &want));
    layout = parsed("tile 128x8 reg c1 r8 lane c2 c4 r1 r2 r4 warp r16 r32 r64 mode 12 reg c8");
    atom = parsed("tile 64x8 reg c1 r8 lane c2 c4 r1 r2 r4 warp r16 r32 mode 12 reg c8");
    ck_assert(sx_layout_divide(&layout, &atom, &quotient));
    want = parsed("tile 2x1 warp r1");
    ck_assert(sx_layout_equal(&quotient.repeats, &want));
}
END_TEST

static const char *const indivisible[][2] = {
    {"tile 128x8 reg c1 r8 lane c2 c4 r1 r2 r4 warp r16 r32 r64 mode 12 reg c8",
     "tile 64x8 reg c1 r8 lane c2 c4 r1 r2 r4 warp r16 r32 mode 13 reg c8"},
    {"tile 4x4 reg c1 c2 r1 r2c1", "tile 2x4 reg c1 c2 r1"}, /* a repeat that ends inside an atom */
    {"tile 4x4 reg c1 c2 r2 r1", "tile 2x4 reg c1 c2"},
    {"tile 4x4 reg c1 lane c2 r1 r2", "tile 4x4 reg c1 lane r1 c2 r2"},
    {"tile 4x4 reg c1 lane c2 r1 r2", "tile 4x4 reg c1 r2 lane c2 r1"},
    {"tile 4x4 reg c1 lane c2 r1 r2", "tile 8x2 reg c1 lane r1 r2 r4"},
    {"tile 2x2 reg c1 r1 mode 3 reg c2", "tile 2x2 reg c1 r1 mode 3 warp c2"},
    {"tile 2x2 reg c1 r1 mode 9 reg c2", "tile 2x2 reg c1 r1 mode 3 reg c2"},
    {"tile 2x2 reg c1 r1 mode 3 reg c2", "tile 2x4 reg c1 r1 c2"},
    {"tile 2x4 reg c1 r1 c2", "tile 2x2 reg c1 r1 mode 3 reg c2"},
    {"tile 2x2 reg c1 r1", "tile 2x2 reg c1 r1 mode 3 reg c2"},
};

START_TEST(test_indivisible)
{
    sx_layout layout = parsed(indivisible[_i][0]), atom = parsed(indivisible[_i][1]);
    sx_quotient quotient;
    ck_assert(!sx_layout_divide(&layout, &atom, &quotient));
}
END_TEST

/* ---- conversions, by going through all places ---- */

static sx_convert slow_convert(const sx_layout *from, const sx_layout *to)
{
    uint32_t registers = sx_layout_count(to, SX_HOME_REGISTER), places = gen_places(to);
    uint32_t own = sx_layout_count(from, SX_HOME_REGISTER), sources = gen_places(from);
    bool same = own == registers, moves = true, warp = true, block = true;
    for (uint32_t r = 0; r < registers; r++) {
        static uint8_t serves[1 << 8]; /* source registers that are right for all threads */
        memset(serves, 1, own);
        for (uint32_t i = r; i < places; i += registers) {
            sx_place place = gen_place(to, i);
            uint32_t want = sx_layout_apply(to, &place);
            bool in_warp = false, in_block = false;
            for (uint32_t s = 0; s < sources; s++) {
                sx_place source = gen_place(from, s);
                bool right = sx_layout_apply(from, &source) == want;
                bool block_is = source.of[SX_HOME_RANK] == place.of[SX_HOME_RANK];
                bool warp_is = block_is && source.of[SX_HOME_WARP] == place.of[SX_HOME_WARP];
                bool lane_is = warp_is && source.of[SX_HOME_LANE] == place.of[SX_HOME_LANE];
                in_block |= right && block_is;
                in_warp |= right && warp_is;
                serves[source.of[SX_HOME_REGISTER]] &= lane_is && !right ? 0 : 1;
            }
            warp &= in_warp;
            block &= in_block;
        }
        same &= r < own && serves[r] != 0;
        moves &= memchr(serves, 1, own) != NULL;
    }
    return same    ? SX_CONVERT_NONE
           : moves ? SX_CONVERT_MOVES
           : warp  ? SX_CONVERT_SHUFFLE
           : block ? SX_CONVERT_SHARED
                   : SX_CONVERT_CLUSTER;
}

/* A layout of the same tile and threads: registers exchanged, or columns exchanged, or a bit that repeats. */
static sx_layout disturbed(sx_rng *rng, const sx_layout *layout)
{
    sx_layout out = *layout;
    uint32_t bits = sx_layout_input_bits(layout);
    uint32_t changes = (uint32_t)sx_rng_below(rng, 3);
    for (uint32_t i = 0; bits > 0 && i < changes; i++) {
        uint32_t registers = layout->bits[SX_HOME_REGISTER];
        uint32_t of = registers > 0 && sx_rng_below(rng, 2) == 0 ? registers : bits;
        uint32_t a = (uint32_t)sx_rng_below(rng, of), b = (uint32_t)sx_rng_below(rng, of);
        uint32_t kept = out.column[a];
        bool exchange = sx_rng_below(rng, 2) == 0;
        out.column[a] = exchange ? out.column[b] : kept;
        out.column[b] = exchange ? kept : out.column[b];
        out.column[a] ^= a != b && sx_rng_below(rng, 4) == 0 ? out.column[b] : 0;
        out.column[a] = sx_rng_below(rng, 8) == 0 ? 0 : out.column[a];
    }
    return out;
}

START_TEST(test_conversion)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t seen[5] = {0};
    for (uint32_t trial = 0; trial < sx_test_trials(1500); trial++) {
        sx_layout from = gen_bijective(&rng, 1 + (uint32_t)sx_rng_below(&rng, 3),
                                       1 + (uint32_t)sx_rng_below(&rng, 3));
        sx_layout to = disturbed(&rng, &from);
        if (sx_rng_below(&rng, 4) == 0) { /* one that holds elements more than once */
            uint32_t bits = sx_layout_input_bits(&from), home = (uint32_t)sx_rng_below(&rng, 4);
            memmove(from.column + 1, from.column, bits * sizeof(from.column[0]));
            from = home == 0 ? from : to;
            to = home == 0 ? from : to;
            if (home == 0) {
                from.bits[0]++;
                from.column[0] = 0;
                to = disturbed(&rng, &from);
            }
        }
        if (!sx_layout_covers(&from)) {
            continue;
        }
        sx_convert convert;
        ck_sx_ok(&cx, sx_layout_convert(&cx, &from, &to, &convert));
        sx_convert slow = slow_convert(&from, &to);
        ck_assert_msg(convert == slow, "%s, counted %s", sx_convert_name(convert),
                      sx_convert_name(slow));
        seen[convert]++;
    }
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_uint_gt(seen[i], 0);
    }
}
END_TEST

static const struct {
    const char *from, *to;
    sx_convert convert;
} conversions[] = {
    /* the accumulator of wgmma is the bf16 operand A of the next one */
    {"tile 64x8 reg c1 r8 lane c2 c4 r1 r2 r4 warp r16 r32 mode 2 reg c8",
     "tile 64x16 reg c1 r8 c8 lane c2 c4 r1 r2 r4 warp r16 r32", SX_CONVERT_NONE},
    /* that of fp8 is not */
    {"tile 64x8 reg c1 r8 lane c2 c4 r1 r2 r4 warp r16 r32 mode 4 reg c8",
     "tile 64x32 reg c1 c2 r8 c16 lane c4 c8 r1 r2 r4 warp r16 r32", SX_CONVERT_SHUFFLE},
    /* 16 bytes of a row for each lane: rows of other warps */
    {"tile 64x64 reg c1 r8 c8 c16 c32 lane c2 c4 r1 r2 r4 warp r16 r32",
     "tile 64x64 reg c1 c2 c4 r16 r32 lane c8 c16 c32 r1 r2 warp r4 r8", SX_CONVERT_SHARED},
    {"tile 2x2 reg c1 rank r1", "tile 2x2 reg r1 rank c1", SX_CONVERT_CLUSTER},
    /* modes in another order of registers */
    {"tile 2x2 reg c1 r1 mode 3 reg c2 mode 4 reg r2",
     "tile 2x2 reg c1 r1 mode 4 reg r2 mode 3 reg c2", SX_CONVERT_MOVES},
    {"tile 2x2 reg c1 r1 mode 3 reg c2", "tile 2x2 reg r1 c1 mode 3 reg c2", SX_CONVERT_MOVES},
    {"tile 2x2 reg c1 r1 mode 3 reg c2 mode 3 warp r2",
     "tile 2x2 reg c1 r1 mode 3 warp c2 mode 3 reg r2", SX_CONVERT_SHARED},
    {"tile 2x2 reg c1 r1 mode 2 reg c2 mode 6 reg c4",
     "tile 2x2 reg c1 r1 mode 4 reg c2 mode 3 reg c8", SX_CONVERT_NONE},
};

START_TEST(test_known_conversions)
{
    sx_layout from = parsed(conversions[_i].from), to = parsed(conversions[_i].to);
    sx_convert convert;
    ck_sx_ok(&cx, sx_layout_convert(&cx, &from, &to, &convert));
    ck_assert_str_eq(sx_convert_name(convert), sx_convert_name(conversions[_i].convert));
}
END_TEST

/* fp8 again: with k renamed c1 c8 c2 c4 c16, operand A takes the accumulator by moves alone. */
START_TEST(test_renamed_k)
{
    sx_layout from = parsed("tile 64x32 reg c1 r8 c8 c16 lane c2 c4 r1 r2 r4 warp r16 r32");
    sx_layout to = parsed("tile 64x32 reg c1 c2 r8 c16 lane c4 c8 r1 r2 r4 warp r16 r32");
    sx_linear map = sx_linear_identity(11);
    map.column[1] = 8; /* c2 becomes c8, c4 becomes c2, c8 becomes c4 */
    map.column[2] = 2;
    map.column[3] = 4;
    sx_layout renamed = sx_layout_rename(&to, &map);
    sx_convert convert;
    ck_sx_ok(&cx, sx_layout_convert(&cx, &from, &renamed, &convert));
    ck_assert_str_eq(sx_convert_name(convert), "moves");
}
END_TEST

START_TEST(test_conversions_refused)
{
    static const char *const rows[][3] = {
        {"tile 2x4 reg r1 c1 c2", "tile 2x2 reg r1 c1", "4 columns become 2"},
        {"tile 2x2 reg r1 lane c1", "tile 2x2 reg r1 c1", "lane of 2 become 1"},
        {"tile 2x2 reg r1 lane 0", "tile 2x2 reg r1 lane c1", "does not hold the whole tile"},
    };
    sx_layout from = parsed(rows[_i][0]), to = parsed(rows[_i][1]);
    sx_convert convert;
    ck_sx_fails(&cx, sx_layout_convert(&cx, &from, &to, &convert), SX_INPUT, rows[_i][2]);
}
END_TEST

START_TEST(test_replica_bits)
{
    sx_layout layout = parsed("tile 4x1 reg r1 r1 lane r2 0 r2 0 r1");
    ck_assert_uint_eq(sx_layout_replica_bits(&layout, SX_HOME_REGISTER), 2);
    ck_assert_uint_eq(sx_layout_replica_bits(&layout, SX_HOME_LANE), 30);
    ck_assert_uint_eq(sx_layout_replicas(&layout), 32);
}
END_TEST

static void add_layouts(TCase *tc)
{
    tcase_add_test(tc, test_text);
    tcase_add_loop_test(tc, test_bad_texts, 0, SX_COUNT(bad));
    tcase_add_test(tc, test_example);
    tcase_add_test(tc, test_proofs_against_counting);
    tcase_add_test(tc, test_find_within_homes);
    tcase_add_test(tc, test_inverse);
    tcase_add_loop_test(tc, test_vector, 0, 7);
    tcase_add_test(tc, test_normal_and_transpose);
    tcase_add_test(tc, test_slice);
    tcase_add_test(tc, test_product);
    tcase_add_test(tc, test_division);
    tcase_add_test(tc, test_division_across_modes);
    tcase_add_loop_test(tc, test_indivisible, 0, SX_COUNT(indivisible));
    tcase_add_test(tc, test_conversion);
    tcase_add_loop_test(tc, test_known_conversions, 0, SX_COUNT(conversions));
    tcase_add_test(tc, test_renamed_k);
    tcase_add_loop_test(tc, test_conversions_refused, 0, 3);
    tcase_add_test(tc, test_replica_bits);
}

int main(void)
{
    Suite *suite = suite_create("core/tile/layout");
    TCase *tc = tcase_create("layout");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_linear);
    tcase_add_test(tc, test_solve_within_inputs);
    tcase_add_test(tc, test_compose);
    add_layouts(tc);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
