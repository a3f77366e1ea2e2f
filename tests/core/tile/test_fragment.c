/* Fragments against the formulas of the PTX ISA manual, written down here a second time: every lane and register. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/tile/fragment.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* The manual's row and column of element i of a fragment; groupID = laneid >> 2, threadID_in_group = laneid % 4. */
typedef void formula(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column);

static void c_m16n8(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
    *column = (lane % 4) * 2 + (i & 1);
}

static void a_k16_16(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    bool first = i < 2 || (4 <= i && i < 6);
    *row = first ? lane >> 2 : (lane >> 2) + 8;
    *column = (lane % 4) * 2 + (i & 1) + (i < 4 ? 0 : 8);
}

static void b_k16_16(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = (lane % 4) * 2 + (i & 1) + (i < 2 ? 0 : 8);
    *column = lane >> 2;
}

static void a_k8_16(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = i == 0 || i == 1 ? lane >> 2 : (lane >> 2) + 8;
    *column = (lane % 4) * 2 + (i & 1);
}

static void b_k8_16(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = (lane % 4) * 2 + i;
    *column = lane >> 2;
}

static void a_k8_tf32(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = i == 0 || i == 2 ? lane >> 2 : (lane >> 2) + 8;
    *column = i == 0 || i == 1 ? lane % 4 : lane % 4 + 4;
}

static void b_k8_tf32(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = i == 0 ? lane % 4 : lane % 4 + 4;
    *column = lane >> 2;
}

static void a_k4_tf32(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = i == 0 ? lane >> 2 : (lane >> 2) + 8;
    *column = lane % 4;
}

static void b_k4_tf32(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = lane % 4 + i;
    *column = lane >> 2;
}

static void a_k16_8(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = i < 4 ? lane >> 2 : (lane >> 2) + 8;
    *column = (lane % 4) * 4 + (i & 3);
}

static void b_k16_8(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = (lane % 4) * 4 + i;
    *column = lane >> 2;
}

static void a_k32_8(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    bool first = i < 4 || (8 <= i && i < 12);
    *row = first ? lane >> 2 : (lane >> 2) + 8;
    *column = (lane % 4) * 4 + (i & 3) + (i < 8 ? 0 : 16);
}

static void b_k32_8(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = (lane % 4) * 4 + (i & 3) + (i < 4 ? 0 : 16);
    *column = lane >> 2;
}

/* D of wgmma, element i of N / 2: groups of four are the fragment of m16n8, each 8 columns further. */
static void d_wgmma(uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column)
{
    *row = (lane >> 2) + ((i / 2) % 2 == 0 ? 0 : 8);
    *column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
}

static const struct {
    sx_mma_kind kind;
    sx_operand operand;
    sx_dtype element;
    uint32_t n, k;
    uint32_t registers; /* elements of a lane, from the manual's tables */
    uint32_t rows, columns;
    formula *expected;
} forms[] = {
    {SX_MMA_SYNC, SX_OPERAND_C, SX_BF16, 8, 16, 4, 16, 8, c_m16n8},
    {SX_MMA_SYNC, SX_OPERAND_C, SX_I8, 8, 32, 4, 16, 8, c_m16n8},
    {SX_MMA_SYNC, SX_OPERAND_C, SX_F32, 8, 4, 4, 16, 8, c_m16n8},
    {SX_MMA_SYNC, SX_OPERAND_A, SX_BF16, 8, 16, 8, 16, 16, a_k16_16},
    {SX_MMA_SYNC, SX_OPERAND_B, SX_F16, 8, 16, 4, 16, 8, b_k16_16},
    {SX_MMA_SYNC, SX_OPERAND_A, SX_F16, 8, 8, 4, 16, 8, a_k8_16},
    {SX_MMA_SYNC, SX_OPERAND_B, SX_BF16, 8, 8, 2, 8, 8, b_k8_16},
    {SX_MMA_SYNC, SX_OPERAND_A, SX_F32, 8, 8, 4, 16, 8, a_k8_tf32},
    {SX_MMA_SYNC, SX_OPERAND_B, SX_F32, 8, 8, 2, 8, 8, b_k8_tf32},
    {SX_MMA_SYNC, SX_OPERAND_A, SX_F32, 8, 4, 2, 16, 4, a_k4_tf32},
    {SX_MMA_SYNC, SX_OPERAND_B, SX_F32, 8, 4, 1, 4, 8, b_k4_tf32},
    {SX_MMA_SYNC, SX_OPERAND_A, SX_I8, 8, 16, 8, 16, 16, a_k16_8},
    {SX_MMA_SYNC, SX_OPERAND_B, SX_U8, 8, 16, 4, 16, 8, b_k16_8},
    {SX_MMA_SYNC, SX_OPERAND_A, SX_F8E4M3, 8, 32, 16, 16, 32, a_k32_8},
    {SX_MMA_SYNC, SX_OPERAND_B, SX_F8E5M2, 8, 32, 8, 32, 8, b_k32_8},
    {SX_WGMMA, SX_OPERAND_C, SX_BF16, 8, 16, 4, 64, 8, d_wgmma},
    {SX_WGMMA, SX_OPERAND_C, SX_BF16, 104, 16, 52, 64, 104, d_wgmma},
    {SX_WGMMA, SX_OPERAND_C, SX_F8E4M3, 256, 32, 128, 64, 256, d_wgmma},
    {SX_WGMMA, SX_OPERAND_A, SX_BF16, 64, 16, 8, 64, 16, a_k16_16},
    {SX_WGMMA, SX_OPERAND_A, SX_F32, 64, 8, 4, 64, 8, a_k8_tf32},
    {SX_WGMMA, SX_OPERAND_A, SX_I8, 64, 32, 16, 64, 32, a_k32_8},
};

/* How many places differ from the formula; warps of wgmma are 16 rows apart. */
static uint32_t differences(const sx_layout *layout, formula *expected)
{
    uint32_t found = 0, registers = sx_layout_count(layout, SX_HOME_REGISTER);
    uint32_t warps = sx_layout_count(layout, SX_HOME_WARP);
    for (uint32_t at = 0; at < registers * 32 * warps; at++) {
        uint32_t i = at % registers, lane = at / registers % 32, warp = at / registers / 32, row,
                 column;
        expected(lane, i, &row, &column);
        sx_place place = {{i, lane, warp, 0}};
        found += sx_layout_apply(layout, &place) != SX_AT(row + 16 * warp, column);
    }
    return found;
}

START_TEST(test_manual)
{
    sx_layout layout;
    ck_sx_ok(&cx, sx_fragment_find(&cx, forms[_i].kind, forms[_i].operand, forms[_i].element,
                                   forms[_i].n, forms[_i].k, &layout));
    ck_assert_uint_eq(sx_layout_count(&layout, SX_HOME_REGISTER), forms[_i].registers);
    ck_assert_uint_eq(sx_layout_count(&layout, SX_HOME_LANE), 32);
    ck_assert_uint_eq(sx_layout_count(&layout, SX_HOME_WARP), forms[_i].kind == SX_WGMMA ? 4 : 1);
    ck_assert_uint_eq(sx_layout_side(&layout, SX_SIDE_ROW), forms[_i].rows);
    ck_assert_uint_eq(sx_layout_side(&layout, SX_SIDE_COLUMN), forms[_i].columns);
    ck_assert_uint_eq(differences(&layout, forms[_i].expected), 0);
    ck_assert(sx_layout_covers(&layout) && sx_layout_unique(&layout));
}
END_TEST

/* Planted: any two columns of any fragment exchanged, and any bit of a column set wrong. */
START_TEST(test_wrong_columns_are_seen)
{
    sx_layout layout;
    ck_sx_ok(&cx, sx_fragment_find(&cx, forms[_i].kind, forms[_i].operand, forms[_i].element,
                                   forms[_i].n, forms[_i].k, &layout));
    uint32_t bits = sx_layout_input_bits(&layout);
    for (uint32_t a = 0; a < bits; a++) {
        for (uint32_t b = a + 1; b < bits; b++) {
            sx_layout wrong = layout;
            wrong.column[a] = layout.column[b];
            wrong.column[b] = layout.column[a];
            ck_assert_uint_gt(differences(&wrong, forms[_i].expected), 0);
        }
        sx_layout wrong = layout;
        wrong.column[a] ^= SX_AT(1, 0);
        ck_assert_uint_gt(differences(&wrong, forms[_i].expected), 0);
    }
}
END_TEST

START_TEST(test_forms_that_do_not_exist)
{
    sx_layout layout;
    static const struct {
        sx_mma_kind kind;
        sx_operand operand;
        sx_dtype element;
        uint32_t n, k;
        const char *error;
    } rows[] = {
        {SX_MMA_SYNC, SX_OPERAND_A, SX_BF16, 8, 32,
         "mma.sync: no registers hold operand a of k32 with elements bf16"},
        {SX_MMA_SYNC, SX_OPERAND_C, SX_BF16, 8, 4, "operand c of k4"},
        {SX_MMA_SYNC, SX_OPERAND_A, SX_F64, 8, 8, "elements f64"},
        {SX_MMA_SYNC, SX_OPERAND_A, SX_I16, 8, 16, "elements i16"},
        {SX_MMA_SYNC, SX_OPERAND_A, SX_BOOL, 8, 16, "elements bool"},
        {SX_MMA_SYNC, SX_OPERAND_A, SX_I32, 8, 8, "elements i32"},
        {SX_WGMMA, SX_OPERAND_B, SX_BF16, 64, 16, "operand b"},
        {SX_WGMMA, SX_OPERAND_C, SX_BF16, 64, 8, "operand c of k8"},
        {SX_WGMMA, SX_OPERAND_C, SX_BF16, 100, 16, "n is 100 for bf16"},
        {SX_WGMMA, SX_OPERAND_C, SX_BF16, 264, 16, "n is 264"},
        {SX_WGMMA, SX_OPERAND_C, SX_BF16, 0, 16, "n is 0"},
        {SX_WGMMA, SX_OPERAND_C, SX_I8, 40, 32, "n is 40 for i8"},
    };
    ck_sx_fails(&cx,
                sx_fragment_find(&cx, rows[_i].kind, rows[_i].operand, rows[_i].element, rows[_i].n,
                                 rows[_i].k, &layout),
                SX_UNIMPLEMENTED, rows[_i].error);
}
END_TEST

START_TEST(test_n_of_wgmma)
{
    uint32_t floats = 0, integers = 0;
    for (uint32_t n = 0; n <= 300; n++) {
        floats += sx_wgmma_check_n(&cx, SX_BF16, n) == SX_OK;
        integers += sx_wgmma_check_n(&cx, SX_I8, n) == SX_OK;
    }
    ck_assert_uint_eq(floats, 32);       /* 8, 16 ... 256 */
    ck_assert_uint_eq(integers, 4 + 14); /* 8, 16, 24, 32; 48, 64 ... 256 */
}
END_TEST

/* ---- ldmatrix, executed: each lane gives an address, a row of 16 bytes, and gets 4 bytes of each matrix ---- */

/* What element e (of 4 bytes) of matrix m lane `lane` receives: the position that the manual's figures give. */
static uint32_t received(const sx_matrix_move *move, uint32_t bytes, uint32_t instruction,
                         uint32_t warp, uint32_t m, uint32_t lane, uint32_t e)
{
    uint32_t row = move->transposed ? 2 * (lane % 4) + e : lane / 4;
    uint32_t column = move->transposed ? lane / 4 : 4 / bytes * (lane % 4) + e;
    sx_place giver = {{instruction, 8 * m + row, warp, 0}};
    return sx_layout_apply(&move->rows, &giver) + SX_AT(0, column);
}

/* How many elements of `layout` ldmatrix brings to the wrong place. */
static uint32_t misplaced(const sx_layout *layout, uint32_t bytes, const sx_matrix_move *move)
{
    sx_layout whole = sx_layout_normal(layout);
    uint32_t found = 0, low = bytes == 1 ? 2 : bytes == 2 ? 1 : 0;
    uint32_t registers = sx_layout_count(&whole, SX_HOME_REGISTER);
    uint32_t warps = sx_layout_count(&whole, SX_HOME_WARP), bits = whole.bits[SX_HOME_REGISTER];
    for (uint32_t r = 0; r < registers; r++) {
        uint32_t e = 0, m = 0, instruction = 0, count = 0, place = 0;
        for (uint32_t bit = 0; bit < bits; bit++) {
            uint32_t set = r >> bit & 1U;
            bool chosen = false;
            for (uint32_t k = 0; 1U << k < move->matrices; k++) {
                m |= move->matrix_bit[k] == bit ? set << k : 0;
                chosen |= move->matrix_bit[k] == bit;
            }
            e |= !chosen && count < low ? set << count : 0;
            instruction |= !chosen && count >= low ? set << place++ : 0;
            count += chosen ? 0 : 1;
        }
        instruction += (r >> bits) << place;
        for (uint32_t at = 0; at < 32 * warps; at++) {
            sx_place holder = {{r, at % 32, at / 32, 0}};
            found += received(move, bytes, instruction, at / 32, m, at % 32, e) !=
                     sx_layout_apply(&whole, &holder);
        }
    }
    return found;
}

static const struct {
    const char *text;
    uint32_t bytes, matrices;
    bool transposed;
} moves[] = {
    {"tile 8x8 reg c1 lane c2 c4 r1 r2 r4", 2, 1, false},
    {"tile 8x8 reg r1 lane r2 r4 c1 c2 c4", 2, 1, true},
    {"tile 16x8 reg c1 r8 lane c2 c4 r1 r2 r4", 2, 2, false},         /* C by stmatrix */
    {"tile 16x16 reg c1 r8 c8 lane c2 c4 r1 r2 r4", 2, 4, false},     /* A */
    {"tile 16x16 reg r1 r8 c8 lane r2 r4 c1 c2 c4", 2, 4, true},      /* two B, n contiguous */
    {"tile 16x32 reg c1 c2 r8 c16 lane c4 c8 r1 r2 r4", 1, 4, false}, /* A of 8-bit types */
    {"tile 16x8 reg r8 c4 lane c1 c2 r1 r2 r4", 4, 4, false},         /* A of tf32 */
    {"tile 64x64 reg c1 r8 c8 c16 c32 lane c2 c4 r1 r2 r4 warp r16 r32", 2, 4, false},
    {"tile 64x8 reg c1 r8 lane c2 c4 r1 r2 r4 warp r16 r32 mode 12 reg c8", 2, 4, false},
    {"tile 64x8 reg c1 r8 lane c2 c4 r1 r2 r4 warp r16 r32 mode 3 warp r64", 2, 2, false},
};

START_TEST(test_ldmatrix)
{
    sx_layout layout;
    sx_matrix_move move;
    uint32_t bytes = moves[_i].bytes;
    ck_sx_ok(&cx, sx_layout_parse(&cx, sx_span_of(moves[_i].text), &layout));
    ck_assert(sx_matrix_move_find(&layout, bytes, &move));
    ck_assert_uint_eq(move.matrices, moves[_i].matrices);
    ck_assert(move.transposed == moves[_i].transposed);
    ck_assert_uint_eq(misplaced(&layout, bytes, &move), 0);
    /* planted: addresses of two lane bits exchanged */
    uint32_t lane = sx_layout_first(&move.rows, SX_HOME_LANE), kept = move.rows.column[lane];
    move.rows.column[lane] = move.rows.column[lane + 1];
    move.rows.column[lane + 1] = kept;
    ck_assert_uint_gt(misplaced(&layout, bytes, &move), 0);
}
END_TEST

START_TEST(test_what_ldmatrix_cannot)
{
    static const struct {
        const char *text;
        uint32_t bytes;
    } rows[] = {
        {"tile 16x8 reg c1 r8 lane c2 c4 r1 r2 r4", 4},     /* C of f32 */
        {"tile 8x8 reg r1 lane r2 r4 c1 c2 c4", 1},         /* 8-bit elements do not transpose */
        {"tile 32x8 reg c1 c2 c4 lane r1 r2 r4 r8 r16", 2}, /* rows of lanes */
        {"tile 8x8 reg c1 lane c2 c4 r1 r2 r4", 8},
        {"tile 16x8 reg c1 r8 c2 c4 lane r1 r2 r4", 2}, /* not a whole warp */
    };
    sx_layout layout;
    sx_matrix_move move;
    ck_sx_ok(&cx, sx_layout_parse(&cx, sx_span_of(rows[_i].text), &layout));
    ck_assert(!sx_matrix_move_find(&layout, rows[_i].bytes, &move));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core/tile/fragment");
    TCase *tc = tcase_create("fragment");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, test_manual, 0, SX_COUNT(forms));
    tcase_add_loop_test(tc, test_wrong_columns_are_seen, 0, SX_COUNT(forms));
    tcase_add_loop_test(tc, test_forms_that_do_not_exist, 0, 12);
    tcase_add_test(tc, test_n_of_wgmma);
    tcase_add_loop_test(tc, test_ldmatrix, 0, SX_COUNT(moves));
    tcase_add_loop_test(tc, test_what_ldmatrix_cannot, 0, 5);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
