/* Extents that are products of two symbols: what their rows give, and every row that cannot be, alone, is refused. */
#include <string.h>

#include "core/base/rng.h"
#include "tests/lib/faults.h"
#include "tests/lib/gen_module.h"
#include "tests/lib/test.h"

#define HIGH 64 /* of both symbols */

static sx_ctx cx;
static sx_gen_module_tables tables;

/* The rich module with a second symbol, k, that has the values of n; x and y are of n * k. */
static void setup(void)
{
    static const uint32_t tensor[] = {SX_GEN_X, SX_GEN_Y, SX_GEN_T};
    sx_ctx_init(&cx, 1 << 24);
    sx_gen_module_make_rich(&tables);
    tables.symbol[1] = tables.symbol[0];
    tables.symbol[1].name.offset = 3;
    tables.symbols = 2;
    for (uint32_t i = 0; i < SX_COUNT(tensor); i++) {
        tables.tensor[tensor[i]].dim[0] = HIGH * HIGH;
        tables.tensor[tensor[i]].size = 4 * HIGH * HIGH;
    }
    tables.info.arena_bytes = 4 * HIGH * HIGH;
    tables.extent[0].other = tables.extent[1].other = 1;
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

/* Extent 0 is that of x, 1 that of y, 2 that of the grid of part 0. */
#define E(index) tables.extent[index]
#define FAULTS(FAULT)                                                                              \
    FAULT(unknown, E(0).other = 2,                                                                 \
          "extent 0: row 0 of dimension 0 of kind 0 follows symbols 0 and 2")                      \
    FAULT(unknown_first, E(0).symbol = 2, "follows symbols 2 and 1")                               \
    FAULT(turned, (E(0).symbol = 1, E(0).other = 0), "follows symbols 1 and 0")                    \
    FAULT(of_grid, E(2).other = 1,                                                                 \
          "extent 2: row 0 of dimension 2 of kind 1 follows symbols 0 and 1")                      \
    FAULT(of_number, (E(1) = E(0), E(1).symbol = SX_MODULE_NONE),                                  \
          "extent 1: row 0 of dimension 0 of kind 0 follows symbols 4294967295 and 1")             \
    FAULT(twice, E(1) = E(0), "extent 1: row 0")                                                   \
    FAULT(order, (E(1) = E(0), E(1).other = 0),                                                    \
          "extent 1: row 0 of dimension 0 of kind 0 follows symbols 0 and 0")                      \
    FAULT(divided, E(0).divisor = 2, "by 1 / 2")                                                   \
    FAULT(below, E(0).scale = -1, "by -1 / 1")                                                     \
    FAULT(largest, E(0).scale = 2, "2 / 1 of symbols 0 and 1: 2 to 8192, the record has 4096")     \
    FAULT(alone, E(0).other = SX_MODULE_NONE, "1 to 64, the record has 4096")                      \
    FAULT(overflow, E(0).scale = INT64_MAX / HIGH, "the record has 4096")                          \
    FAULT(overflow_of_sum, (E(1) = E(0), E(0).scale = INT64_MAX / HIGH / HIGH, E(1).symbol = 1),   \
          "extent 1: 1 / 1 of symbols 1 and 1")                                                    \
    FAULT(overflow_of_quotient, (E(2).scale = INT64_MAX / HIGH, E(2).divisor = UINT32_MAX),        \
          "extent 2: 144115188075855871 / 4294967295 of symbols 0")                                \
    FAULT(in_place, (E(1).other = 0, tables.tensor[SX_GEN_Y].alias = SX_GEN_X),                    \
          "tensor 2: in place of tensor 0: element type 1 and 16384 bytes, that has 1 and 16384")  \
    FAULT(copied, E(1).other = 0, "launch 8 (copy): tensor 0 of 16384 bytes to tensor 2 of 16384") \
    FAULT(filled_by_less,                                                                          \
          (tables.tensor[SX_GEN_T].size = 4 * HIGH, tables.tensor[SX_GEN_T].dim[0] = HIGH),        \
          "launch 1 (copy): tensor 6 of 256 bytes to tensor 2 of 16384")

SX_FAULTS(FAULTS)

START_TEST(test_impossible_products)
{
    sx_module module;
    ck_sx_ok(&cx, decode(&module));
    fault[_i].make();
    sx_code code = decode(&module);
    sx_fault_refused(&fault[_i], &cx, code);
}
END_TEST

/* y of n n + 3 n k - 1: each row gives its part. */
START_TEST(test_sums_of_products)
{
    sx_module module;
    E(4) = E(2);
    E(2) = E(3) = E(1);
    E(1).other = 0;
    E(2).scale = 3;
    E(3).symbol = E(3).other = SX_MODULE_NONE;
    E(3).scale = -1;
    tables.extents = 5;
    tables.tensor[SX_GEN_Y].dim[0] = 4 * HIGH * HIGH - 1;
    tables.tensor[SX_GEN_Y].size = 4 * (uint64_t)tables.tensor[SX_GEN_Y].dim[0];
    tables.launch[1] = tables.launch[0]; /* no other tensor has so many bytes to copy */
    tables.launch[8] = tables.launch[7];
    ck_sx_ok(&cx, decode(&module));
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < 100; i++) {
        const int64_t n = 1 + (int64_t)sx_rng_below(&rng, HIGH);
        const int64_t k = 1 + (int64_t)sx_rng_below(&rng, HIGH), value[] = {n, k};
        uint32_t count;
        const sx_module_extent *row =
            sx_module_extents_of(&module, SX_EXTENT_TENSOR, SX_GEN_Y, &count);
        ck_assert_uint_eq(count, 3);
        ck_assert_int_eq(sx_module_extent_of(&row[0], value), n * n);
        ck_assert_int_eq(sx_module_extent_of(&row[1], value), 3 * n * k);
        ck_assert_int_eq(sx_module_extent_of(&row[2], value), -1);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("module_extents");
    TCase *cases = tcase_create("module_extents");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_impossible_products, 0, SX_COUNT(fault));
    tcase_add_test(cases, test_sums_of_products);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
