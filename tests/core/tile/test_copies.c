/* What reads and writes shared memory by itself: the copy engine, which fills slots by boxes, and wgmma, which takes
 * its operands by descriptors. Both are executed here by their own rules and must meet the slot's addresses. */
#include "tests/core/tile/gen_layout.h"
#include "tests/core/tile/shared_memory.h"
#include "tests/lib/test.h"

#include <signal.h>

#include "core/tile/descriptor.h"
#include "core/tile/tensor_map.h"

static sx_ctx cx;
static uint32_t
    memory[1 << 18]; /* by byte address: 1 + number of the element whose first byte lies there */

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const uint32_t width_of[] = {16, 32, 64, 128};

static sx_slot made(uint32_t rows, uint32_t row_bytes, uint32_t panel_bytes, uint32_t pitch,
                    sx_swizzle swizzle)
{
    sx_slot slot;
    ck_sx_ok(&cx, sx_slot_make(&cx, rows, row_bytes, panel_bytes, pitch, swizzle, &slot));
    return slot;
}

/* A dense slot whose panels are as wide as the swizzle (plain ones: as wide as `plain`). */
static sx_slot dense_slot(sx_rng *rng, sx_swizzle swizzle, uint32_t plain, uint32_t unit)
{
    uint32_t width = swizzle == SX_SWIZZLE_NONE ? plain : width_of[swizzle];
    uint32_t panels = 1 + (uint32_t)sx_rng_below(rng, 4);
    uint32_t rows = unit * (1 + (uint32_t)sx_rng_below(rng, 200 / unit));
    return made(rows, panels * width, width, width, swizzle);
}

/* ---- the copy engine ---- */

/* The engine writes a box as a dense array at its start, with chunks exchanged by the absolute address. */
static void copy_box(const sx_slot *slot, const sx_boxes *boxes, uint32_t element_bytes,
                     uint32_t base, sx_box_start start)
{
    uint32_t columns = sx_slot_row_bytes(slot) / element_bytes, dense = base + start.offset;
    for (uint32_t r = 0; r < boxes->rows; r++) {
        for (uint32_t c = 0; c < boxes->columns; c++, dense += element_bytes) {
            uint32_t number = (start.row + r) * columns + start.column + c;
            memory[hw_swizzle(width_of[slot->swizzle], dense)] = 1 + number;
        }
    }
}

START_TEST(test_boxes_fill_the_slot)
{
    sx_rng rng = {sx_test_seed()};
    static const sx_dtype types[] = {SX_F8E4M3, SX_BF16, SX_F32};
    for (uint32_t trial = 0; trial < sx_test_trials(100); trial++) {
        sx_dtype element = types[sx_rng_below(&rng, 3)];
        uint32_t bytes = sx_dtype_bytes(element);
        sx_slot slot;
        sx_boxes boxes;
        do {
            slot = dense_slot(&rng, (sx_swizzle)(trial % SX_SWIZZLE_COUNT),
                              16 * (1 + (uint32_t)sx_rng_below(&rng, 8)), 8);
        } while (slot.bytes > 100000 ||
                 (slot.panels > 1 && sx_slot_panel_stride(&slot) % slot.align != 0));
        ck_sx_ok(&cx, sx_slot_boxes(&cx, &slot, element, &boxes));
        uint32_t base = slot.align * (uint32_t)sx_rng_below(&rng, 16);
        memset(memory, 0, sizeof(memory));
        uint32_t arrived = 0;
        for (uint32_t i = 0; i < boxes.down * boxes.across; i++, arrived += boxes.bytes) {
            sx_box_start start = sx_box_at(&slot, &boxes, i);
            ck_assert_uint_eq((base + start.offset) % slot.align, 0);
            copy_box(&slot, &boxes, bytes, base, start);
        }
        uint32_t columns = sx_slot_row_bytes(&slot) / bytes;
        ck_assert_uint_eq(arrived, slot.rows * columns * bytes);
        for (uint32_t i = 0; i < slot.rows * columns; i++) {
            uint32_t address = sx_slot_address(&slot, base, i / columns, i % columns * bytes);
            ck_assert_uint_eq(memory[address], 1 + i);
        }
    }
}
END_TEST

/* 128 x 128 of bf16: two boxes of 64 columns; 384 rows: two of 192. */
START_TEST(test_known_boxes)
{
    sx_boxes boxes;
    sx_slot slot = made(128, 256, 128, 128, SX_SWIZZLE_128);
    ck_sx_ok(&cx, sx_slot_boxes(&cx, &slot, SX_BF16, &boxes));
    ck_assert(boxes.columns == 64 && boxes.rows == 128 && boxes.down == 1 && boxes.across == 2);
    ck_assert_uint_eq(boxes.bytes, 16384);
    slot = made(384, 128, 128, 128, SX_SWIZZLE_128);
    ck_sx_ok(&cx, sx_slot_boxes(&cx, &slot, SX_BF16, &boxes));
    ck_assert(boxes.rows == 192 && boxes.down == 2);
    sx_box_start start = sx_box_at(&slot, &boxes, 1);
    ck_assert(start.row == 192 && start.column == 0 && start.offset == 192 * 128);
}
END_TEST

static const struct {
    uint32_t rows, row_bytes, panel_bytes, pitch;
    sx_swizzle swizzle;
    const char *error;
} bad_slots[] = {
    {64, 128, 128, 144, SX_SWIZZLE_NONE,
     "pitch is 144, panel_bytes 128; the engine leaves no gaps"},
    {64, 256, 256, 256, SX_SWIZZLE_128, "panel_bytes is 256, the swizzle is 128 wide"},
    {64, 64, 64, 64, SX_SWIZZLE_128, "panel_bytes is 64, the swizzle is 128 wide"},
    {64, 1024, 1024, 1024, SX_SWIZZLE_NONE, "panels of 512 elements, at most 256"},
    {262, 128, 128, 128, SX_SWIZZLE_128, "rows is 262, without a divisor up to 256"},
    {7, 64, 32, 32, SX_SWIZZLE_NONE, "panels of 224 bytes, a multiple of 128"},
};

START_TEST(test_slots_without_boxes)
{
    sx_slot slot = made(bad_slots[_i].rows, bad_slots[_i].row_bytes, bad_slots[_i].panel_bytes,
                        bad_slots[_i].pitch, bad_slots[_i].swizzle);
    sx_boxes boxes;
    ck_sx_fails(&cx, sx_slot_boxes(&cx, &slot, SX_BF16, &boxes), SX_INPUT, bad_slots[_i].error);
}
END_TEST

static const sx_tensor_map good = {.element = SX_BF16,
                                   .rank = 3,
                                   .dims = {4096, 100, 7},
                                   .strides = {2, 8192, 819200},
                                   .box = {64, 128, 1},
                                   .element_strides = {1, 1, 1},
                                   .swizzle = SX_SWIZZLE_128};

/* Each field out of its range alone. */
START_TEST(test_tensor_map_fields)
{
    sx_tensor_map map = good;
    const char *error[] = {
        NULL,
        "rank is 0, from 1 to 5",
        "rank is 6",
        "dims[1] is 0, from 1 to 2^32",
        "dims[0] is 4294967297",
        "strides[1] is 8200, a multiple of 16",
        "strides[2] is 1099511627776, a multiple of 16 below 2^40",
        "strides[1] is 0",
        "strides[0] is 4, elements have 2 bytes",
        "box[1] is 0, from 1 to 256",
        "box[1] is 257",
        "element_strides[1] is 9, from 1 to 8",
        "element_strides[2] is 0",
        "element_strides[0] is 2, which is 1",
        "box[0] is 60 of 2 bytes each, a multiple of 16 bytes",
        "box[0] is 256 bytes, at most the 128 of the swizzle",
        "box[0] is 128 bytes, at most the 64",
        "fill is NaN, which elements i32 do not have",
        "fill is NaN, which elements f8e4m3",
    };
    map.rank = _i == 1 ? 0 : _i == 2 ? 6 : 3;
    map.dims[1] = _i == 3 ? 0 : 100;
    map.dims[0] = _i == 4 ? (UINT64_C(1) << 32) + 1 : UINT64_C(1) << 32;
    map.strides[1] = _i == 5 ? 8200 : _i == 7 ? 0 : 8192;
    map.strides[2] = _i == 6 ? UINT64_C(1) << 40 : (UINT64_C(1) << 40) - 16;
    map.strides[0] = _i == 8 || _i == 17 ? 4 : _i == 18 ? 1 : 2;
    map.box[1] = _i == 9 ? 0 : _i == 10 ? 257 : 256;
    map.element_strides[1] = _i == 11 ? 9 : 8;
    map.element_strides[2] = _i == 12 ? 0 : 1;
    map.element_strides[0] = _i == 13 ? 2 : 1;
    map.box[0] = _i == 14 ? 60 : _i == 15 ? 128 : _i == 17 ? 32 : 64;
    map.swizzle = _i == 16 ? SX_SWIZZLE_64 : SX_SWIZZLE_128;
    map.fill = _i >= 17 ? SX_FILL_NAN : SX_FILL_ZERO;
    map.element = _i == 17 ? SX_I32 : _i == 18 ? SX_F8E4M3 : SX_BF16;
    if (_i == 0) {
        ck_sx_ok(&cx, sx_tensor_map_check(&cx, &map));
        ck_sx_ok(&cx, sx_tensor_map_check_address(&cx, 4096 + 16));
        ck_sx_fails(&cx, sx_tensor_map_check_address(&cx, 4096 + 8), SX_INPUT, "address is 1008");
    } else {
        ck_sx_fails(&cx, sx_tensor_map_check(&cx, &map), SX_INPUT, error[_i]);
    }
}
END_TEST

/* The whole box arrives, also beyond the tensor's edge; with steps, the elements that are taken. */
START_TEST(test_bytes_that_arrive)
{
    sx_tensor_map map = good;
    ck_assert_uint_eq(sx_tensor_map_box_bytes(&map), 64 * 128 * 2); /* dims[1] is 100 */
    map.element_strides[1] = 3;
    ck_assert_uint_eq(sx_tensor_map_box_bytes(&map), 64 * 43 * 2);
    uint64_t dims[3] = {4096, 100, 7}, strides[3] = {2, 8192, 819200};
    sx_slot slot = made(128, 256, 128, 128, SX_SWIZZLE_128);
    ck_sx_ok(&cx, sx_slot_tensor_map(&cx, &slot, SX_BF16, 3, dims, strides, SX_FILL_ZERO, &map));
    ck_assert_mem_eq(map.box, good.box, sizeof(map.box));
    strides[1] = 8194;
    ck_sx_fails(&cx, sx_slot_tensor_map(&cx, &slot, SX_BF16, 3, dims, strides, SX_FILL_ZERO, &map),
                SX_INPUT, "strides[1] is 8194");
}
END_TEST

/* ---- wgmma ---- */

/* The address at which the instruction reads element (mn, k) of its operand: the canonical layouts, in units of 16
 * bytes and chunks of T elements, out of the fields of the descriptor alone. */
static uint32_t operand_address(uint64_t descriptor, sx_major major, uint32_t bytes, uint32_t mn,
                                uint32_t k)
{
    uint32_t start = (uint32_t)(descriptor & 0x3fff),
             leading = (uint32_t)(descriptor >> 16 & 0x3fff);
    uint32_t stride = (uint32_t)(descriptor >> 32 & 0x3fff), mode = (uint32_t)(descriptor >> 62);
    uint32_t t = 16 / bytes, w = mode == 0 ? 1 : mode == 1 ? 8 : mode == 2 ? 4 : 2, at, within;
    if (major == SX_MAJOR_K) {
        at = mode == 0 ? mn % 8 + mn / 8 * stride + k / t * leading
                       : mn % 8 * w + mn / 8 * stride + k / t;
        within = k % t;
    } else {
        at = mode == 0 ? mn / t * stride + k % 8 + k / 8 * leading
                       : mn / t % w + mn / t / w * leading + k % 8 * w + k / 8 * stride;
        within = mn % t;
    }
    return hw_swizzle(16 * w, (start + at) * 16 + within * bytes);
}

/* How many elements all instructions of an operand read elsewhere than the slot has them. */
static uint32_t misread(const sx_slot *slot, const sx_wgmma_operand *operand, uint32_t base)
{
    uint32_t wrong = 0, bytes = operand->element_bytes, size = operand->mn_unit;
    memset(memory, 0, sizeof(memory));
    for (uint32_t i = 0; i < operand->mn * operand->k; i++) {
        uint32_t mn = i % operand->mn, k = i / operand->mn;
        uint32_t row = operand->major == SX_MAJOR_K ? mn : k;
        uint32_t along = operand->major == SX_MAJOR_K ? k : mn;
        memory[sx_slot_address(slot, base, row, along * bytes)] = 1 + i;
    }
    for (uint32_t k0 = 0; k0 < operand->k; k0 += operand->k_unit) {
        for (uint32_t mn0 = 0; mn0 < operand->mn; mn0 += size) {
            uint64_t descriptor =
                sx_wgmma_descriptor(operand, base + sx_wgmma_offset(operand, mn0, k0));
            uint32_t rest = operand->mn - mn0 < 256 ? operand->mn - mn0 : 256;
            for (uint32_t i = 0; i < rest * operand->k_unit; i++) {
                uint32_t mn = i % rest, k = i / rest;
                uint32_t address = operand_address(descriptor, operand->major, bytes, mn, k);
                wrong += memory[address] != 1 + (k0 + k) * operand->mn + mn0 + mn;
            }
        }
    }
    return wrong;
}

START_TEST(test_descriptors)
{
    sx_rng rng = {sx_test_seed()};
    static const sx_dtype types[] = {SX_BF16, SX_F16, SX_F8E4M3, SX_I8, SX_F32};
    uint32_t made_of[2][SX_SWIZZLE_COUNT] = {{0}};
    for (uint32_t trial = 0; trial < sx_test_trials(48); trial++) {
        sx_major major = trial % 2 == 0 ? SX_MAJOR_K : SX_MAJOR_MN;
        sx_swizzle swizzle = (sx_swizzle)(trial / 2 % SX_SWIZZLE_COUNT);
        sx_dtype element =
            major == SX_MAJOR_MN ? types[sx_rng_below(&rng, 2)] : types[sx_rng_below(&rng, 5)];
        sx_slot slot;
        sx_wgmma_operand operand;
        do {
            slot = dense_slot(&rng, swizzle, 16, major == SX_MAJOR_K ? 8 : 16);
        } while (slot.bytes > 40000 || (major == SX_MAJOR_K && sx_slot_row_bytes(&slot) % 32 != 0));
        ck_sx_ok(&cx, sx_wgmma_operand_make(&cx, &slot, element, major, &operand));
        uint32_t base = 1024 * (uint32_t)sx_rng_below(&rng, 100);
        ck_assert_uint_eq(misread(&slot, &operand, base), 0);
        made_of[major][swizzle]++;
        /* planted: the offsets exchanged, or the mode of another width */
        if (operand.leading != operand.stride &&
            (major == SX_MAJOR_MN || swizzle == SX_SWIZZLE_NONE) && operand.mn > operand.mn_unit) {
            sx_wgmma_operand wrong = operand;
            uint64_t low = operand.bits >> 16 & 0x3fff, high = operand.bits >> 32 & 0x3fff;
            wrong.bits = (operand.bits & ~UINT64_C(0x3fff3fff0000)) | high << 16 | low << 32;
            ck_assert_uint_gt(misread(&slot, &wrong, base), 0);
        }
        sx_wgmma_operand wrong = operand;
        wrong.bits ^= UINT64_C(1) << 62;
        ck_assert_uint_gt(misread(&slot, &wrong, base), 0);
    }
    for (uint32_t i = 0; i < 2 * SX_SWIZZLE_COUNT; i++) {
        ck_assert_uint_gt(made_of[i / SX_SWIZZLE_COUNT][i % SX_SWIZZLE_COUNT], 0);
    }
}
END_TEST

/* The descriptor that hand-written kernels use for 64 columns of bf16, and its steps. */
START_TEST(test_known_descriptor)
{
    sx_slot slot = made(256, 256, 128, 128, SX_SWIZZLE_128);
    sx_wgmma_operand operand;
    ck_sx_ok(&cx, sx_wgmma_operand_make(&cx, &slot, SX_BF16, SX_MAJOR_K, &operand));
    uint64_t want = UINT64_C(1) << 62 | UINT64_C(64) << 32 | UINT64_C(1) << 16 | 0x5400 >> 4;
    ck_assert(sx_wgmma_descriptor(&operand, 0x5400) == want);
    ck_assert_uint_eq(sx_wgmma_offset(&operand, 0, 16), 32);
    ck_assert_uint_eq(sx_wgmma_offset(&operand, 64, 0), 8192);
    ck_assert_uint_eq(sx_wgmma_offset(&operand, 0, 64),
                      256 * 128); /* the next panel: rows of the buffer */
    ck_assert_uint_eq(sx_wgmma_offset(&operand, 128, 80), 256 * 128 + 16384 + 32);
}
END_TEST

static const struct {
    uint32_t rows, row_bytes, panel_bytes, pitch;
    sx_swizzle swizzle;
    sx_dtype element;
    sx_major major;
    sx_code code;
    const char *error;
} bad_operands[] = {
    {64, 128, 128, 128, SX_SWIZZLE_128, SX_F8E4M3, SX_MAJOR_MN, SX_UNIMPLEMENTED,
     "operands of f8e4m3 are K-major"},
    {64, 128, 128, 128, SX_SWIZZLE_128, SX_F32, SX_MAJOR_MN, SX_UNIMPLEMENTED,
     "operands of f32 are K-major"},
    {64, 128, 128, 128, SX_SWIZZLE_128, SX_F64, SX_MAJOR_K, SX_UNIMPLEMENTED,
     "no operand has elements f64"},
    {64, 128, 128, 128, SX_SWIZZLE_128, SX_I16, SX_MAJOR_K, SX_UNIMPLEMENTED, "elements i16"},
    {64, 128, 128, 128, SX_SWIZZLE_NONE, SX_BF16, SX_MAJOR_K, SX_INPUT,
     "panel_bytes is 128 and pitch 128, both 16"},
    {64, 256, 256, 256, SX_SWIZZLE_128, SX_BF16, SX_MAJOR_K, SX_INPUT,
     "panel_bytes is 256 and pitch 256, both 128"},
    {64, 128, 128, 256, SX_SWIZZLE_128, SX_BF16, SX_MAJOR_K, SX_INPUT, "pitch 256, both 128"},
    {12, 128, 128, 128, SX_SWIZZLE_128, SX_BF16, SX_MAJOR_K, SX_INPUT,
     "rows is 12, a multiple of 8"},
    {64, 48, 16, 16, SX_SWIZZLE_NONE, SX_BF16, SX_MAJOR_K, SX_INPUT,
     "k has 48 bytes, a multiple of 32"},
    {24, 128, 128, 128, SX_SWIZZLE_128, SX_BF16, SX_MAJOR_MN, SX_INPUT,
     "k is 24, a multiple of 16"},
};

START_TEST(test_operands_refused)
{
    sx_slot slot =
        made(bad_operands[_i].rows, bad_operands[_i].row_bytes, bad_operands[_i].panel_bytes,
             bad_operands[_i].pitch, bad_operands[_i].swizzle);
    sx_wgmma_operand operand;
    ck_sx_fails(&cx,
                sx_wgmma_operand_make(&cx, &slot, bad_operands[_i].element, bad_operands[_i].major,
                                      &operand),
                bad_operands[_i].code, bad_operands[_i].error);
}
END_TEST

/* A part of an MN-major operand that does not begin at a panel cannot be addressed. */
START_TEST(test_cut_within_the_swizzle_dies)
{
    sx_slot slot = made(64, 256, 128, 128, SX_SWIZZLE_128);
    sx_wgmma_operand operand;
    ck_sx_ok(&cx, sx_wgmma_operand_make(&cx, &slot, SX_BF16, SX_MAJOR_MN, &operand));
    ck_assert_uint_eq(operand.mn_unit, 64);
    sx_wgmma_offset(&operand, 32, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core/tile/copies");
    TCase *tc = tcase_create("copies");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_boxes_fill_the_slot);
    tcase_add_test(tc, test_known_boxes);
    tcase_add_loop_test(tc, test_slots_without_boxes, 0, SX_COUNT(bad_slots));
    tcase_add_loop_test(tc, test_tensor_map_fields, 0, 19);
    tcase_add_test(tc, test_bytes_that_arrive);
    tcase_add_test(tc, test_descriptors);
    tcase_add_test(tc, test_known_descriptor);
    tcase_add_loop_test(tc, test_operands_refused, 0, SX_COUNT(bad_operands));
    tcase_add_test_raise_signal(tc, test_cut_within_the_swizzle_dies, SIGABRT);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
