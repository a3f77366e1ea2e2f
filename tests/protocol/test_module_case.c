/* Parts that are for some values of a symbol: every field of a case out of its range, alone, is refused by name. */
#include <string.h>

#include "tests/lib/faults.h"
#include "tests/lib/gen_module.h"
#include "tests/lib/test.h"

static sx_ctx cx;
static sx_gen_module_tables tables;

/* Part 0, whose grid is 1 x 1 x 64, has n points for n up to 8, and for multiples of 16 half as many and a number. */
static void setup(void)
{
    sx_ctx_init(&cx, 1 << 24);
    sx_gen_module_make_rich(&tables);
    tables.extents = 2;
    tables.cases[0] = (sx_module_case){0, 0, 0, 4, 0, SX_MODULE_NONE, 0, 1, 8, 1, 0};
    tables.cases[1] = (sx_module_case){0, 0, 0, 4, 0, SX_MODULE_NONE, 4, 16, 64, 16, 0};
    const sx_module_number number[] = {{0, 1},  {0, 1},  {1, 0}, {-3, 5},
                                       {0, 16}, {0, 16}, {8, 0}, {160, -16}};
    memcpy(tables.number, number, sizeof(number));
    tables.case_count = 2;
    tables.numbers = SX_COUNT(number);
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

#define C tables.cases[1]
#define FAULTS(FAULT)                                                                             \
    FAULT(part, C.part = 3, "case 1: part 3, behind part 0, of 3")                                \
    FAULT(order, (tables.part[1].grid[2] = 64, tables.cases[0].part = 1),                         \
          "case 1: part 0, behind part 1")                                                        \
    FAULT(group, C.group = 2, "case 1: group 2 from number 0 on, behind group 0 of part 0")       \
    FAULT(first_group, tables.cases[0].group = 1, "case 0: group 1 from number 0 on")             \
    FAULT(slot, C.slot = 1, "case 1: group 0 from number 1 on, behind group 0 of part 0")         \
    FAULT(first_slot, tables.cases[0].slot = 1, "case 0: group 0 from number 1 on")               \
    FAULT(next_slot, C.group = 1, "case 1: group 1 from number 0 on, behind group 0 of part 0")   \
    FAULT(too_few, tables.cases[0].number_count = C.number_count = 2, "case 1: 2 numbers from 4") \
    FAULT(other, tables.cases[0].other = C.other = 1, "case 0: values 1 to 8 of symbol 0")        \
    FAULT(one_other, C.other = 0, "case 1: group 0 from number 0 on")                             \
    FAULT(symbol, tables.cases[0].symbol = C.symbol = 1, "symbol 1, those that leave 0 of 1")     \
    FAULT(other_symbol, C.symbol = 1, "case 1: group 0 from number 0 on")                         \
    FAULT(low, tables.cases[0].low = 0, "case 0: values 0 to 8 of symbol 0")                      \
    FAULT(low_between, C.low = 17, "values 17 to 64 of symbol 0, those that leave 0 of 16")       \
    FAULT(high, C.high = 0, "case 1: values 16 to 0")                                             \
    FAULT(high_between, C.high = 65, "values 16 to 65")                                           \
    FAULT(high_far, C.high = INT64_MAX - 15, "case 1: values 16 to")                              \
    FAULT(modulus, C.modulus = 0, "those that leave 0 of 0")                                      \
    FAULT(remainder, C.remainder = 16, "those that leave 16 of 16")                               \
    FAULT(negative, C.remainder = -16, "those that leave -16 of 16")                              \
    FAULT(first, C.number_first = 3, "case 1: 4 numbers from 3 on")                               \
    FAULT(few, C.number_count = 2, "case 1: group 0 from number 0 on")                            \
    FAULT(differ, C.number_count = 3, "case 1: group 0 from number 0 on")                         \
    FAULT(beyond, tables.numbers = 7, "case 1: 4 numbers from 4 on")                              \
    FAULT(many, tables.cases[0].number_count = 65, "case 0: 65 numbers")                          \
    FAULT(unused, tables.numbers = 9, "module numbers: 9, the cases have 8")                      \
    FAULT(grid_none, tables.number[2].offset = -1, "number 2, (1 value + -1) / 1, of part 0")     \
    FAULT(grid_large, tables.number[6].scale = 32, "number 2, (32 value + 0) / 16, of part 0")    \
    FAULT(ragged, tables.number[7].offset = 8, "number 3, (160 value + 8) / 16")                  \
    FAULT(overflow, tables.number[7].scale = INT64_MAX, "number 3, (9223372036854775807 value")   \
    FAULT(sum, (tables.number[3].scale = 1, tables.number[3].offset = INT64_MAX),                 \
          "number 3, (1 value + 9223372036854775807) / 1")                                        \
    FAULT(extents, tables.extents = 3, "case 0: of part 0, which has extents")
SX_FAULTS(FAULTS)

START_TEST(test_impossible_cases)
{
    sx_module module;
    ck_sx_ok(&cx, decode(&module));
    fault[_i].make();
    sx_code code = decode(&module);
    sx_fault_refused(&fault[_i], &cx, code);
}
END_TEST

/* What holds for which value, and its numbers. */
START_TEST(test_numbers_of_cases)
{
    sx_module module;
    uint32_t count;
    ck_sx_ok(&cx, decode(&module));
    const sx_module_case *row = sx_module_cases_of(&module, 0, &count);
    ck_assert_uint_eq(count, 2);
    for (int64_t n = 1; n <= 80; n++) {
        bool small = n <= 8, even = n >= 16 && n <= 64 && n % 16 == 0;
        ck_assert(sx_module_case_holds(&row[0], n) == small);
        ck_assert(sx_module_case_holds(&row[1], n) == even);
        if (small || even) {
            const sx_module_case *its = small ? &row[0] : &row[1];
            ck_assert_int_eq(sx_module_number_of(&module, its, 2, n), small ? n : n / 2);
            ck_assert_int_eq(sx_module_number_of(&module, its, 3, n),
                             small ? 5 - 3 * n : 10 * n - 1);
        }
    }
    (void)sx_module_cases_of(&module, 1, &count);
    ck_assert_uint_eq(count, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("module_case");
    TCase *cases = tcase_create("module_case");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_impossible_cases, 0, SX_COUNT(fault));
    tcase_add_test(cases, test_numbers_of_cases);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
