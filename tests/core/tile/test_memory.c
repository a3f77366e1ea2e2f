/* Slots of shared memory: addresses and bank conflicts against the hardware's rules, written down a second time. */
#include "tests/core/tile/gen_layout.h"
#include "tests/core/tile/shared_memory.h"
#include "tests/lib/test.h"

#include <signal.h>

#include "core/tile/fragment.h"
#include "core/tile/memory.h"

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

static sx_slot made(uint32_t rows, uint32_t row_bytes, uint32_t panel_bytes, uint32_t pitch,
                    sx_swizzle swizzle)
{
    sx_slot slot;
    ck_sx_ok(&cx, sx_slot_make(&cx, rows, row_bytes, panel_bytes, pitch, swizzle, &slot));
    return slot;
}

static const uint32_t width_of[] = {16, 32, 64, 128};

START_TEST(test_swizzle)
{
    for (uint32_t mode = 0; mode < SX_SWIZZLE_COUNT; mode++) {
        ck_assert_uint_eq(sx_swizzle_bytes((sx_swizzle)mode), width_of[mode]);
        for (uint32_t a = 0; a < 16384; a++) {
            uint32_t b = sx_swizzle_apply((sx_swizzle)mode, a);
            ck_assert_uint_eq(b, hw_swizzle(width_of[mode], a));
            ck_assert_uint_eq(sx_swizzle_apply((sx_swizzle)mode, b), a);
        }
        /* The pattern begins anew where the alignment says, and not before. */
        uint32_t align = sx_swizzle_align((sx_swizzle)mode), same = 0;
        for (uint32_t a = 0; a < 1024; a++) {
            ck_assert_uint_eq(sx_swizzle_apply((sx_swizzle)mode, a + align),
                              sx_swizzle_apply((sx_swizzle)mode, a) + align);
            same += sx_swizzle_apply((sx_swizzle)mode, a + align / 2) ==
                    sx_swizzle_apply((sx_swizzle)mode, a) + align / 2;
        }
        ck_assert(mode == SX_SWIZZLE_NONE || same < 1024);
    }
}
END_TEST

/* A slot of a random shape; swizzled ones that need it have rows in multiples of 8. */
static sx_slot random_slot(sx_rng *rng)
{
    sx_swizzle swizzle = (sx_swizzle)sx_rng_below(rng, SX_SWIZZLE_COUNT);
    bool round = sx_rng_below(rng, 2) == 0;
    uint32_t rows = round ? 8U << sx_rng_below(rng, 4) : 8 * (1 + (uint32_t)sx_rng_below(rng, 9));
    uint32_t panel =
        round ? 16U << sx_rng_below(rng, 5) : 16 * (1 + (uint32_t)sx_rng_below(rng, 12));
    uint32_t panels = round ? 1U << sx_rng_below(rng, 3) : 1 + (uint32_t)sx_rng_below(rng, 3);
    uint32_t pitch = panel + (round ? 0 : 16 * (uint32_t)sx_rng_below(rng, 4));
    panels = rows * pitch % sx_swizzle_align(swizzle) == 0 ? panels : 1;
    return made(rows, panel * panels, panel, pitch, swizzle);
}

/* Every byte has one place, by the formula of the header and the table of the hardware; and is found there. */
START_TEST(test_addresses)
{
    sx_rng rng = {sx_test_seed()};
    static uint8_t taken[1 << 18];
    for (uint32_t trial = 0; trial < sx_test_trials(60); trial++) {
        sx_slot slot = random_slot(&rng);
        uint32_t base = slot.align * (uint32_t)sx_rng_below(&rng, 8), row, byte, held = 0;
        sx_linear map;
        bool linear = sx_slot_linear(&slot, &map);
        ck_assert_uint_eq(slot.bytes % SX_SLOT_UNIT, 0);
        memset(taken, 0, sizeof(taken));
        for (uint32_t i = 0; i < slot.rows * sx_slot_row_bytes(&slot); i++) {
            uint32_t r = i / sx_slot_row_bytes(&slot), b = i % sx_slot_row_bytes(&slot);
            uint32_t panel = b / slot.panel_bytes, within = b - panel * slot.panel_bytes;
            uint32_t address = sx_slot_address(&slot, base, r, b);
            uint32_t plain = base + (panel * slot.rows + r) * slot.pitch + within;
            ck_assert_uint_eq(address, hw_swizzle(width_of[slot.swizzle], plain));
            ck_assert(address >= base && address < base + slot.bytes && taken[address] == 0);
            taken[address] = 1;
            ck_assert(sx_slot_find(&slot, base, address, &row, &byte) && row == r && byte == b);
            ck_assert(!linear || sx_linear_apply(&map, i) == sx_slot_address(&slot, 0, r, b));
        }
        for (uint32_t address = 0; address < base + slot.bytes + 64; address++) {
            held += sx_slot_find(&slot, base, address, &row, &byte);
        }
        ck_assert_uint_eq(held, slot.rows * sx_slot_row_bytes(&slot));
    }
}
END_TEST

/* Planted: the pattern taken from the start of the buffer instead of from absolute addresses. At any base that is not
 * aligned to 1024 each of the 512 chunks of a tile of 8 KB lies elsewhere than the hardware looks. */
START_TEST(test_unaligned_base_misplaces_everything)
{
    static const uint32_t base[] = {128, 256, 512, 1024, 3072};
    uint32_t misplaced = 0;
    for (uint32_t offset = 0; offset < 8192; offset += 16) {
        uint32_t relative = base[_i] + sx_swizzle_apply(SX_SWIZZLE_128, offset);
        misplaced += relative != hw_swizzle(128, base[_i] + offset);
    }
    ck_assert_uint_eq(misplaced, base[_i] % 1024 == 0 ? 0 : 512);
    sx_slot slot = made(64, 128, 128, 128, SX_SWIZZLE_128);
    if (base[_i] % 1024 == 0) {
        ck_sx_ok(&cx, sx_slot_check_base(&cx, &slot, base[_i]));
    } else {
        ck_sx_fails(&cx, sx_slot_check_base(&cx, &slot, base[_i]), SX_INPUT, "a multiple of 1024");
    }
}
END_TEST

START_TEST(test_unaligned_base_dies)
{
    sx_slot slot = made(64, 128, 128, 128, SX_SWIZZLE_128);
    sx_slot_address(&slot, 512, 0, 0);
}
END_TEST

static const struct {
    uint32_t rows, row_bytes, panel_bytes, pitch;
    sx_swizzle swizzle;
    sx_code code;
    const char *error;
} bad[] = {
    {0, 128, 128, 128, SX_SWIZZLE_NONE, SX_INPUT, "rows is 0, from 1 to 32768"},
    {8, 128, 24, 32, SX_SWIZZLE_NONE, SX_INPUT, "panel_bytes is 24, a multiple of 16"},
    {8, 0, 16, 16, SX_SWIZZLE_NONE, SX_INPUT, "row_bytes is 0"},
    {8, 96, 64, 64, SX_SWIZZLE_NONE, SX_INPUT, "row_bytes is 96, a multiple of the panel's 64"},
    {8, 128, 128, 112, SX_SWIZZLE_NONE, SX_INPUT, "pitch is 112, a multiple of 16 from 128"},
    {8, 128, 128, 136, SX_SWIZZLE_NONE, SX_INPUT, "pitch is 136, a multiple of 16"},
    {12, 256, 128, 128, SX_SWIZZLE_128, SX_INPUT, "panels of 1536 bytes, a multiple of 1024"},
    {2048, 128, 128, 128, SX_SWIZZLE_128, SX_LIMIT, "bytes is 262144, at most 232448"},
};

START_TEST(test_bad_slots)
{
    sx_slot slot;
    ck_sx_fails(&cx,
                sx_slot_make(&cx, bad[_i].rows, bad[_i].row_bytes, bad[_i].panel_bytes,
                             bad[_i].pitch, bad[_i].swizzle, &slot),
                bad[_i].code, bad[_i].error);
}
END_TEST

START_TEST(test_print)
{
    sx_buf out;
    sx_buf_init(&out, 4096);
    sx_slot slot = made(64, 256, 128, 128, SX_SWIZZLE_128);
    sx_slot_print(&slot, &out);
    ck_assert(sx_span_is(sx_buf_span(&out), "slot 64 rows of 2 x 128 bytes pitch 128 swizzle 128"));
    ck_sx_fails(&cx, sx_slot_check_base(&cx, &slot, 229376), SX_LIMIT, "together at most 232448");
    sx_buf_fini(&out);
}
END_TEST

/* ---- bank conflicts ---- */

/* 2^(difference of ranks) of 20,000 random phases is what counting gives. */
START_TEST(test_ranks_are_counts)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t address[64], seen[7] = {0};
    for (uint32_t trial = 0; trial < sx_test_trials(20000); trial++) {
        uint32_t column[6], count = 1 + (uint32_t)sx_rng_below(&rng, 6);
        uint32_t bits = 5 + (uint32_t)sx_rng_below(&rng, 12);
        for (uint32_t i = 0; i < count; i++) { /* often a single bit, as pitches are */
            uint32_t any = (uint32_t)sx_rng_below(&rng, UINT64_C(1) << bits);
            column[i] = sx_rng_below(&rng, 2) == 0 ? any : 1U << sx_rng_below(&rng, bits);
        }
        for (uint32_t x = 0; x < 1U << count; x++) {
            address[x] = 0;
            for (uint32_t i = 0; i < count; i++) {
                address[x] ^= (x >> i & 1U) * column[i];
            }
        }
        uint32_t waves = sx_bank_conflict(column, count);
        ck_assert_uint_eq(waves, hw_wavefronts(address, 1U << count));
        seen[__builtin_ctz(waves)]++;
    }
    ck_assert(seen[0] > 0 && seen[1] > 0 && seen[2] > 0 && seen[3] > 0);
}
END_TEST

/* All phases of an access, one lane after the other. */
static sx_wavefronts slow(const sx_slot *slot, const sx_smem_access *access)
{
    sx_wavefronts waves = {.worst = 0};
    uint32_t elements = access->matrix ? 1 : access->vector_bytes / access->element_bytes;
    uint32_t together = access->vector_bytes == 16 ? 8 : access->vector_bytes == 8 ? 16 : 32;
    uint32_t registers = sx_layout_count(&access->layout, SX_HOME_REGISTER);
    uint32_t lanes = sx_layout_count(&access->layout, SX_HOME_LANE);
    uint32_t warps = gen_places(&access->layout) / registers / lanes, address[128];
    for (uint32_t i = 0; i < registers * warps; i += elements) {
        for (uint32_t phase = 0; phase < lanes; phase += together) {
            uint32_t count = 0;
            for (uint32_t lane = phase; lane < phase + together && lane < lanes; lane++) {
                uint32_t number = i % registers + registers * (lane + lanes * (i / registers));
                sx_place place = gen_place(&access->layout, number);
                uint32_t at = sx_layout_apply(&access->layout, &place), byte;
                byte = sx_at_column(at) * access->element_bytes;
                uint32_t panel = byte / slot->panel_bytes;
                uint32_t plain =
                    (panel * slot->rows + sx_at_row(at)) * slot->pitch + byte % slot->panel_bytes;
                for (uint32_t k = 0; k < access->vector_bytes; k++) {
                    if (count == 0 || k % 4 == 0) {
                        address[count++] = hw_swizzle(width_of[slot->swizzle], plain + k);
                    }
                }
            }
            uint32_t here = hw_wavefronts(address, count);
            waves.worst = here > waves.worst ? here : waves.worst;
            waves.total += here;
            waves.phases++;
        }
    }
    return waves;
}

/* A layout over the tile of the slot, with vectors of registers and 32 lanes. */
static sx_smem_access random_access(sx_rng *rng, const sx_slot *slot)
{
    sx_smem_access access = {.element_bytes = 1U << sx_rng_below(rng, 3)};
    uint32_t columns = sx_slot_row_bytes(slot) / access.element_bytes;
    uint32_t row_bits = (uint32_t)(31 - __builtin_clz(slot->rows));
    uint32_t column_bits = (uint32_t)(31 - __builtin_clz(columns));
    uint32_t vector =
        (uint32_t)sx_rng_below(rng, 5 - (uint32_t)__builtin_ctz(access.element_bytes));
    vector = vector < column_bits ? vector : column_bits;
    sx_layout *layout = &access.layout;
    layout->side_bits[0] = (uint8_t)row_bits;
    layout->side_bits[1] = (uint8_t)column_bits;
    uint32_t rest[24], count = 0, at = 0;
    for (uint32_t i = 0; i < row_bits; i++) {
        rest[count++] = SX_AT(1U << i, 0);
    }
    for (uint32_t i = 0; i < column_bits; i++) {
        if (i < vector) {
            layout->column[at++] = SX_AT(0, 1U << i);
        } else {
            rest[count++] = SX_AT(0, 1U << i);
        }
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        uint32_t j = i + (uint32_t)sx_rng_below(rng, count - i), kept = rest[i];
        rest[i] = rest[j];
        rest[j] = kept;
    }
    layout->bits[SX_HOME_REGISTER] = (uint8_t)vector;
    layout->bits[SX_HOME_LANE] = (uint8_t)(count < 5 ? count : 5);
    layout->bits[SX_HOME_WARP] = (uint8_t)(count < 5 ? 0 : count - 5 < 3 ? count - 5 : 3);
    uint32_t used = (uint32_t)layout->bits[SX_HOME_LANE] + layout->bits[SX_HOME_WARP];
    for (uint32_t i = 0; i < used; i++) {
        bool mixed = i > 0 && sx_rng_below(rng, 4) == 0;
        layout->column[at++] = rest[i] ^ (mixed ? rest[i - 1] : 0);
    }
    access.vector_bytes = access.element_bytes << vector;
    return access;
}

START_TEST(test_wavefronts)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t proven = 0, counted = 0;
    for (uint32_t trial = 0; trial < sx_test_trials(2500); trial++) {
        sx_slot slot = random_slot(&rng);
        sx_smem_access access = random_access(&rng, &slot);
        sx_wavefronts waves, counts, want = slow(&slot, &access);
        ck_sx_ok(&cx, sx_slot_wavefronts(&cx, &slot, &access, &waves));
        ck_sx_ok(&cx, sx_slot_count_wavefronts(&cx, &slot, &access, &counts));
        ck_assert_uint_eq(waves.worst, want.worst);
        ck_assert_uint_eq(waves.total, want.total);
        ck_assert_uint_eq(waves.phases, want.phases);
        ck_assert_uint_eq(counts.worst, want.worst);
        ck_assert_uint_eq(counts.total, want.total);
        ck_assert_uint_eq(counts.phases, want.phases);
        proven += waves.proven;
        counted += !waves.proven;
        ck_assert(!counts.proven);
    }
    ck_assert(proven > 0 && counted > 0);
}
END_TEST

/* Eight rows of 16 bytes of one matrix of ldmatrix, at the pitch and swizzle of a slot. */
static const struct {
    uint32_t panel_bytes, pitch;
    sx_swizzle swizzle;
    uint32_t wavefronts;
} pitches[] = {
    {128, 128, SX_SWIZZLE_128, 1},  {64, 64, SX_SWIZZLE_64, 1},    {32, 32, SX_SWIZZLE_32, 1},
    {128, 128, SX_SWIZZLE_NONE, 8}, {64, 64, SX_SWIZZLE_NONE, 4},  {256, 256, SX_SWIZZLE_128, 2},
    {64, 80, SX_SWIZZLE_NONE, 1},   {64, 112, SX_SWIZZLE_NONE, 1}, {128, 144, SX_SWIZZLE_NONE, 1},
    {256, 272, SX_SWIZZLE_NONE, 1}, {64, 96, SX_SWIZZLE_NONE, 2},  {128, 160, SX_SWIZZLE_NONE, 2},
    {128, 192, SX_SWIZZLE_NONE, 4}, {16, 16, SX_SWIZZLE_NONE, 1},
};

START_TEST(test_ldmatrix_pitches)
{
    sx_layout layout = parsed("tile 64x8 reg c1 r8 r16 lane c2 c4 r1 r2 r4 warp r32");
    sx_matrix_move move;
    ck_assert(sx_matrix_move_find(&layout, 2, &move));
    sx_smem_access access = {
        .layout = move.rows, .element_bytes = 2, .vector_bytes = 16, .matrix = true};
    sx_slot slot = made(64, pitches[_i].panel_bytes, pitches[_i].panel_bytes, pitches[_i].pitch,
                        pitches[_i].swizzle);
    sx_wavefronts waves;
    ck_sx_ok(&cx, sx_slot_wavefronts(&cx, &slot, &access, &waves));
    ck_assert_uint_eq(waves.worst, pitches[_i].wavefronts);
    ck_assert_uint_eq(waves.total, waves.phases * pitches[_i].wavefronts);
    ck_assert_uint_eq(waves.phases, 8); /* matrices: 2 warps of x4 */
    ck_assert_uint_eq(slow(&slot, &access).total, waves.total);
}
END_TEST

/* Accumulators of m16n8 stored as they are held. */
START_TEST(test_stores_of_accumulators)
{
    static const struct {
        uint32_t element_bytes, vector_bytes, pitch;
        sx_swizzle swizzle;
        uint32_t wavefronts;
    } rows[] = {
        {2, 4, 128, SX_SWIZZLE_128, 1}, {4, 8, 128, SX_SWIZZLE_128, 2},
        {4, 8, 256, SX_SWIZZLE_128, 1}, {2, 4, 128, SX_SWIZZLE_NONE, 8},
        {4, 4, 128, SX_SWIZZLE_128, 2},
    };
    sx_smem_access access = {.layout = parsed("tile 16x32 reg c1 r8 c8 c16 lane c2 c4 r1 r2 r4"),
                             .element_bytes = rows[_i].element_bytes,
                             .vector_bytes = rows[_i].vector_bytes};
    sx_slot slot = made(16, rows[_i].pitch, rows[_i].pitch, rows[_i].pitch, rows[_i].swizzle);
    sx_wavefronts waves;
    ck_sx_ok(&cx, sx_slot_wavefronts(&cx, &slot, &access, &waves));
    ck_assert_uint_eq(waves.worst, rows[_i].wavefronts);
}
END_TEST

START_TEST(test_bad_accesses)
{
    static const struct {
        const char *text;
        uint32_t element_bytes, vector_bytes;
        bool matrix;
        const char *error;
    } rows[] = {
        {"tile 16x8 reg c1 r8 lane c2 c4 r1 r2 r4", 2, 8, false,
         "vector_bytes is 8, the layout holds 4"},
        {"tile 16x8 reg c1 r8 lane c2 c4 r1 r2 r4", 2, 1, false, "vector_bytes is 1"},
        {"tile 16x8 reg c1 c2 c4 lane r1 r2 r4 r8", 4, 32, false, "vector_bytes is 32"},
        {"tile 16x8 reg c1 c2 c4 lane r1 r2 r4 r8", 2, 12, false, "vector_bytes is 12"},
        {"tile 16x8 lane r1 r2 r4 r8", 2, 8, true, "of matrices 16"},
        {"tile 32x8 reg c1 lane c2 c4 r1 r2 r4", 2, 4, false,
         "32 rows of 16 bytes in a slot with 16 of 64"},
        {"tile 16x64 reg c1 lane c2 c4 r1 r2 r4", 2, 4, false, "16 rows of 128 bytes"},
    };
    sx_slot slot = made(16, 64, 64, 64, SX_SWIZZLE_64);
    sx_smem_access access = {parsed(rows[_i].text), rows[_i].element_bytes, rows[_i].vector_bytes,
                             rows[_i].matrix};
    sx_wavefronts waves;
    ck_sx_fails(&cx, sx_slot_wavefronts(&cx, &slot, &access, &waves), SX_INPUT, rows[_i].error);
}
END_TEST

/* ---- choice ---- */

/* 16-byte pieces of rows by cp.async or vector loads, one row of `columns` bf16 after the other. */
static const char *const rows_of_64 =
    "tile 64x64 reg c1 c2 c4 lane c8 c16 c32 r1 r2 warp r4 r8 r16 r32";
static const char *const rows_of_32 =
    "tile 64x32 reg c1 c2 c4 lane c8 c16 r1 r2 r4 warp r8 r16 r32";

static sx_smem_access of_matrix(const char *text)
{
    sx_matrix_move move;
    sx_layout layout = parsed(text);
    ck_assert(sx_matrix_move_find(&layout, 2, &move));
    return (sx_smem_access){move.rows, 2, 16, true};
}

START_TEST(test_choice)
{
    sx_slot slot;
    sx_smem_access reader =
        of_matrix("tile 64x64 reg c1 r8 c8 c16 c32 lane c2 c4 r1 r2 r4 warp r16 r32");
    sx_smem_access writer = {parsed(rows_of_64), 2, 16, false};
    ck_sx_ok(&cx, sx_slot_choose(&cx, 64, 128, &writer, &reader, &slot));
    ck_assert(slot.swizzle == SX_SWIZZLE_128 && slot.pitch == 128);
    ck_sx_ok(&cx, sx_slot_choose(&cx, 64, 128, NULL, NULL, &slot));
    ck_assert(slot.swizzle == SX_SWIZZLE_128 && slot.panel_bytes == 128);
    ck_sx_ok(&cx, sx_slot_choose(&cx, 64, 256, NULL, NULL, &slot));
    ck_assert(slot.swizzle == SX_SWIZZLE_128 && slot.panels == 2);
    reader = of_matrix("tile 64x32 reg c1 r8 c8 c16 lane c2 c4 r1 r2 r4 warp r16 r32");
    writer = (sx_smem_access){parsed(rows_of_32), 2, 16, false};
    ck_sx_ok(&cx, sx_slot_choose(&cx, 64, 64, &writer, &reader, &slot));
    ck_assert(slot.swizzle == SX_SWIZZLE_64 && slot.pitch == 64);
    /* accumulators of f32 leave through rows of 256 bytes, if no copy engine takes them */
    writer = (sx_smem_access){
        parsed("tile 64x64 reg c1 r8 c8 c16 c32 lane c2 c4 r1 r2 r4 warp r16 r32"), 4, 8, false};
    reader = (sx_smem_access){
        parsed("tile 64x64 reg c1 c2 r16 r32 lane c4 c8 c16 c32 r1 warp r2 r4 r8"), 4, 16, false};
    ck_sx_ok(&cx, sx_slot_choose(&cx, 64, 256, &writer, &reader, &slot));
    ck_assert(slot.swizzle == SX_SWIZZLE_128 && slot.pitch == 256);
    /* for the copy engine: rows of 32 bytes are the only dense ones that v2.f32 stores meet without conflicts */
    ck_sx_ok(&cx, sx_slot_choose(&cx, 64, 256, &writer, NULL, &slot));
    ck_assert(slot.swizzle == SX_SWIZZLE_32 && slot.panel_bytes == 32 && slot.pitch == 32);
    /* odd multiples of 16 bytes fit no swizzle and need none */
    reader = of_matrix("tile 64x8 reg c1 r8 r16 lane c2 c4 r1 r2 r4 warp r32 mode 5 reg c8");
    ck_sx_ok(&cx, sx_slot_choose(&cx, 64, 80, &reader, &reader, &slot));
    ck_assert(slot.swizzle == SX_SWIZZLE_NONE && slot.pitch == 80);
    reader = of_matrix("tile 64x8 reg c1 r8 r16 lane c2 c4 r1 r2 r4 warp r32 mode 9 reg c8");
    ck_sx_ok(&cx, sx_slot_choose(&cx, 64, 144, &reader, &reader, &slot));
    ck_assert(slot.swizzle == SX_SWIZZLE_NONE && slot.pitch == 144);
    reader = of_matrix("tile 64x8 reg c1 r8 r16 lane c2 c4 r1 r2 r4 warp r32 mode 3 reg c8");
    ck_sx_ok(&cx, sx_slot_choose(&cx, 64, 48, &reader, &reader, &slot));
    ck_assert(slot.swizzle == SX_SWIZZLE_NONE && slot.pitch == 48);
}
END_TEST

/* No slot of the whole space that the header names has fewer wavefronts than the one chosen. */
START_TEST(test_choice_is_the_least)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(150); trial++) {
        sx_slot shape = random_slot(&rng), chosen;
        uint32_t row_bytes = sx_slot_row_bytes(&shape);
        sx_smem_access writer = random_access(&rng, &shape), reader = random_access(&rng, &shape);
        ck_sx_ok(&cx, sx_slot_choose(&cx, shape.rows, row_bytes, &writer, &reader, &chosen));
        uint64_t total = slow(&chosen, &writer).total + slow(&chosen, &reader).total;
        for (uint32_t mode = 0; mode < SX_SWIZZLE_COUNT; mode++) {
            for (uint32_t pad = 0; pad < (mode == 0 ? 128U : 1U); pad += 16) {
                uint32_t panel =
                    mode == 0 || row_bytes % width_of[mode] != 0 ? row_bytes : width_of[mode];
                if (mode != 0 && (panel == row_bytes ||
                                  shape.rows * panel % sx_swizzle_align((sx_swizzle)mode) != 0)) {
                    continue;
                }
                sx_slot other = made(shape.rows, row_bytes, panel, panel + pad, (sx_swizzle)mode);
                ck_assert_uint_le(total, slow(&other, &writer).total + slow(&other, &reader).total);
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core/tile/memory");
    TCase *tc = tcase_create("memory");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_swizzle);
    tcase_add_test(tc, test_addresses);
    tcase_add_loop_test(tc, test_unaligned_base_misplaces_everything, 0, 5);
    tcase_add_test_raise_signal(tc, test_unaligned_base_dies, SIGABRT);
    tcase_add_loop_test(tc, test_bad_slots, 0, SX_COUNT(bad));
    tcase_add_test(tc, test_print);
    tcase_add_test(tc, test_ranks_are_counts);
    tcase_add_test(tc, test_wavefronts);
    tcase_add_loop_test(tc, test_ldmatrix_pitches, 0, SX_COUNT(pitches));
    tcase_add_loop_test(tc, test_stores_of_accumulators, 0, 5);
    tcase_add_loop_test(tc, test_bad_accesses, 0, 7);
    tcase_add_test(tc, test_choice);
    tcase_add_test(tc, test_choice_is_the_least);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
