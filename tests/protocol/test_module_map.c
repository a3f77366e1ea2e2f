/* What a module says of the copy engine: every field out of its range, alone, is refused by name. */
#include <string.h>

#include "tests/lib/faults.h"
#include "tests/lib/gen_boxes.h"
#include "tests/lib/test.h"

static sx_ctx cx;
static sx_gen_module_tables tables;

static void setup(void)
{
    sx_ctx_init(&cx, 1 << 24);
    sx_gen_boxes_make(&tables);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_code decode(sx_module *module)
{
    static _Alignas(64) uint8_t file[1 << 16];
    sx_buf bytes;
    sx_buf_init(&bytes, sizeof(file));
    sx_gen_module_encode(&cx, &tables, &bytes);
    ck_assert_uint_le(bytes.len, sizeof(file));
    memcpy(file, bytes.ptr, bytes.len);
    sx_span span = {file, bytes.len};
    sx_buf_fini(&bytes);
    return sx_module_decode(&cx, span, true, module);
}

#define M tables.map[0]
#define FAULTS(FAULT)                                                                            \
    FAULT(kernel, M.kernel = 1, "map 0: of kernel 1, part 0")                                    \
    FAULT(part, M.part = 1, "map 0: of kernel 0, part 1")                                        \
    FAULT(arg, M.arg = 3, "map 0: argument 3, kernel 0 has 3")                                   \
    FAULT(rank_none, M.rank = 0, "map 0: elements of 4 bytes, rank 0")                           \
    FAULT(rank_many, M.rank = 6, "map 0: elements of 4 bytes, rank 6")                           \
    FAULT(bytes, M.element_bytes = 3, "map 0: elements of 3 bytes, rank 2")                      \
    FAULT(offset, M.offset = 168, "from byte 168 on, a multiple of 16")                          \
    FAULT(dim_none, M.dim[1] = 0, "map 0: dim[1] is 0, from 1 to 2^32")                          \
    FAULT(dim_large, M.dim[1] = 4294967297, "map 0: dim[1] is 4294967297")                       \
    FAULT(stride_inner, M.stride[0] = 8, "map 0: stride[0] is 8, the bytes of an element")       \
    FAULT(stride_odd, M.stride[1] = 168, "map 0: stride[1] is 168, a multiple of 16 below 2^40") \
    FAULT(stride_none, M.stride[1] = 0, "map 0: stride[1] is 0")                                 \
    FAULT(stride_large, M.stride[1] = UINT64_C(1) << 40, "map 0: stride[1] is 1099511627776")    \
    FAULT(box_none, M.box[1] = 0, "map 0: box[1] is 0, from 1 to 256")                           \
    FAULT(box_large, M.box[1] = 257, "map 0: box[1] is 257, from 1 to 256")                      \
    FAULT(box_ragged, M.box[0] = 30, "map 0: box of 960 bytes in rows of 120")                   \
    FAULT(box_much, (M.box[0] = M.box[1] = 256), "map 0: box of 262144 bytes")                   \
    FAULT(swizzle, M.swizzle_bytes = 48, "map 0: box[0] of 128 bytes, swizzle of 48")            \
    FAULT(swizzle_narrow, M.swizzle_bytes = 64, "map 0: box[0] of 128 bytes, swizzle of 64")     \
    FAULT(promotion, M.promoted_bytes = 512, "map 0: promotion to 512 bytes")                    \
    FAULT(number, M.dim_number[1] = 3, "map 0: dim[1] is number 3 of part 0, whose cases have")  \
    FAULT(number_behind, M.dim_number[2] = 3, "map 0: dimension 2 of 2 is not empty")            \
    FAULT(behind, M.box[2] = 1, "map 0: dimension 2 of 2 is not empty")                          \
    FAULT(dtype, M.dtype = 7, "of element type 7, launch 0 gives tensor 0 of 3360 and type 1")   \
    FAULT(outside, M.dim[1] = 21, "map 0: 3360 bytes from 160 on of element type 1, launch 0")   \
    FAULT(far, M.offset = UINT64_MAX - 15, "bytes from 18446744073709551600 on")                 \
    FAULT(span, (M.dim[1] = UINT64_C(1) << 32, M.stride[1] = UINT64_C(1) << 39), "0 bytes from") \
    FAULT(vector, (tables.part[0].threads = tables.part[0].shared_bytes = 0),                    \
          "map 0: of part 0: 0 threads, on level 90")                                            \
    FAULT(level, (tables.kernel[0].level = tables.info.level = 89),                              \
          "256 threads, on level 89; blocks from level 90 on")                                   \
    FAULT(many, (tables.map[1] = tables.map[2] = tables.map[3] = M, tables.maps = 4),            \
          "map 3: part 0, behind part 0 and 3 maps of its own, at most 3")
SX_FAULTS(FAULTS)

START_TEST(test_impossible_maps)
{
    sx_module module;
    ck_sx_ok(&cx, decode(&module));
    fault[_i].make();
    sx_code code = decode(&module);
    sx_fault_refused(&fault[_i], &cx, code);
}
END_TEST

/* A second kernel, of the same code. */
static void put_kernel(void)
{
    tables.kernel[1] = tables.kernel[0];
    tables.kernel[1].part_first = 1;
    tables.part[1] = tables.part[0];
    tables.map[1] = tables.map[0];
    tables.map[1].kernel = tables.map[1].part = 1;
    tables.kernels = tables.parts = tables.maps = 2;
}

START_TEST(test_maps_of_parts)
{
    sx_module module;
    uint32_t count;
    put_kernel();
    tables.map[1].dim[1] = 7;
    ck_sx_ok(&cx, decode(&module));
    ck_assert_uint_eq(module.map_count, 2);
    ck_assert_mem_eq(module.map, tables.map, 2 * sizeof(*tables.map));
    for (uint32_t p = 0; p < 2; p++) {
        const sx_module_map *map = sx_module_maps_of(&module, p, &count);
        ck_assert(count == 1 && map == &module.map[p]);
    }
    (void)sx_module_maps_of(&module, 2, &count);
    ck_assert_uint_eq(count, 0);
    sx_module_map first = tables.map[0];
    tables.map[0] = tables.map[1];
    tables.map[1] = first;
    ck_sx_fails(&cx, decode(&module), SX_CORRUPT, "map 1: part 0, behind part 1");
}
END_TEST

/* What a symbol makes longer has no fixed place for its rows. */
START_TEST(test_a_tensor_that_follows_a_symbol)
{
    sx_module module;
    tables.symbol[0] = (sx_module_symbol){.name = {0, 1}, .range_count = 1};
    tables.range[0] = (sx_module_range){SX_GEN_BOXES_X_ELEMENTS, SX_GEN_BOXES_X_ELEMENTS, 1};
    tables.extent[0] = (sx_module_extent){
        .what = SX_EXTENT_TENSOR, .scale = 1, .divisor = 1, .other = SX_MODULE_NONE};
    tables.symbols = tables.ranges = tables.extents = 1;
    ck_sx_fails(&cx, decode(&module), SX_CORRUPT, "map 0: 3200 bytes from 160 on");
    tables.maps = 0;
    ck_sx_ok(&cx, decode(&module));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("module_map");
    TCase *cases = tcase_create("module_map");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_impossible_maps, 0, SX_COUNT(fault));
    tcase_add_test(cases, test_maps_of_parts);
    tcase_add_test(cases, test_a_tensor_that_follows_a_symbol);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
