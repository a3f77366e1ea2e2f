/* A request that gives a symbol an interval makes one module for all values in it: each gives, bit for bit, what the
 * module for this value alone gives. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "client/verify/verify.h"
#include "tests/lib/compiled.h"
#include "tests/lib/intervals.h"
#include "tests/lib/model.h"

/* A weight that is packed, a row kernel, an output that is an input, and one that another symbol shapes. */
static const char text[] =
    "sx 1\ngraph \"layer\" (batch in [1, 64], n in [1, 100]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, 12, 48]\n"
    "%s = parameter {name = \"s\", weight = 0} : f32[n]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[48, 32]\n"
    "%0 = dot_general(%x, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 12, 32]\n"
    "%1 = tanh(%0) : f32[batch, 12, 32]\n"
    "%2 = softmax(%1) {axis = 2} : f32[batch, 12, 32]\n"
    "%3 = exponential(%s) : f32[n]\n"
    "return %2 as \"y\", %3 as \"e\", %x as \"same\"\n}\n";

/* Kernels whose grids follow the batch: contractions, of which no block of rows fits the 128 rows of each, a row
 * kernel, and one that goes over all elements. */
static const char block[] =
    "sx 1\ngraph \"block\" (batch in [1, 4096]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, 128, 48]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[48, 64]\n"
    "%v = parameter {name = \"v\", weight = 1} : f32[64, 48]\n"
    "%0 = dot_general(%x, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 128, 64]\n"
    "%1 = tanh(%0) : f32[batch, 128, 64]\n"
    "%2 = dot_general(%1, %v) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 128, 48]\n"
    "%3 = add(%2, %x) : f32[batch, 128, 48]\n"
    "%4 = softmax(%3) {axis = 2} : f32[batch, 128, 48]\n"
    "%5 = exponential(%x) : f32[batch, 128, 48]\n"
    "return %4 as \"y\", %5 as \"e\"\n}\n";

/* Each value of the symbol is one row, so that no block of rows fits many values. */
static const char rows[] =
    "sx 1\ngraph \"rows\" (batch in [1, 4096]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, 96]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[96, 160]\n"
    "%v = parameter {name = \"v\", weight = 1} : f32[160, 40]\n"
    "%0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 160]\n"
    "%1 = tanh(%0) : f32[batch, 160]\n"
    "%2 = dot_general(%1, %v) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 40]\n"
    "%3 = softmax(%2) {axis = 1} : f32[batch, 40]\n"
    "%4 = exponential(%x) : f32[batch, 96]\n"
    "return %3 as \"y\", %4 as \"e\"\n}\n";

/* Strides, lengths of rows and numbers of addends are multiples of the symbol. */
static const char inner[] =
    "sx 1\ngraph \"inner\" (batch in [1, 4096]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[3, batch, 40]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[40, 24]\n"
    "%0 = dot_general(%x, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[3, batch, 24]\n"
    "%1 = tanh(%0) : f32[3, batch, 24]\n"
    "%2 = transpose(%1) {perm = [1, 0, 2]} : f32[batch, 3, 24]\n"
    "%3 = transpose(%1) {perm = [0, 2, 1]} : f32[3, 24, batch]\n"
    "%4 = softmax(%3) {axis = 2} : f32[3, 24, batch]\n"
    "%5 = reduce(%x) {dims = [1], reducer = add} : f32[3, 40]\n"
    "%6 = dot_general(%x, %1) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [1], "
    "rhs_contract = [1]} : f32[3, 40, 24]\n"
    "return %2 as \"y\", %4 as \"z\", %5 as \"m\", %6 as \"d\"\n}\n";

/* Operations that move elements. */
static const char moves[] = "sx 1\ngraph \"moves\" (batch in [1, 4096]) {\n"
                            "%i = parameter {name = \"i\", weight = 0} : i32[batch]\n"
                            "%x = parameter {name = \"x\", weight = 0} : f32[batch, 24]\n"
                            "%w = parameter {name = \"w\", weight = 1} : f32[50, 24]\n"
                            "%0 = gather(%w, %i) {axis = 0} : f32[batch, 24]\n"
                            "%1 = concatenate(%0, %x) {axis = 1} : f32[batch, 48]\n"
                            "%2 = reverse(%x) {dims = [0]} : f32[batch, 24]\n"
                            "%3 = exponential(%2) : f32[batch, 24]\n"
                            "return %1 as \"y\", %3 as \"e\"\n}\n";

/* Attention with as many queries as keys, over all of them, and over those up to the query. */
static const char attention[] =
    "sx 1\ngraph \"attention\" (batch in [1, 64], seq in [1, 4096]) {\n"
    "%q = parameter {name = \"q\", weight = 0} : f32[batch, seq, 2, 24]\n"
    "%k = parameter {name = \"k\", weight = 0} : f32[batch, seq, 2, 24]\n"
    "%v = parameter {name = \"v\", weight = 0} : f32[batch, seq, 2, 20]\n"
    "%0 = dot_general(%q, %k) {lhs_batch = [0, 2], rhs_batch = [0, 2], lhs_contract = [3], "
    "rhs_contract = [3]} : f32[batch, 2, seq, seq]\n"
    "%1 = softmax(%0) {axis = 3} : f32[batch, 2, seq, seq]\n"
    "%2 = dot_general(%1, %v) {lhs_batch = [0, 1], rhs_batch = [0, 2], lhs_contract = [3], "
    "rhs_contract = [1]} : f32[batch, 2, seq, 20]\n"
    "return %2 as \"y\"\n}\n";
static const char causal[] =
    "sx 1\ngraph \"causal\" (batch in [1, 64], seq in [1, 4096]) {\n"
    "%q = parameter {name = \"q\", weight = 0} : f32[batch, seq, 2, 24]\n"
    "%k = parameter {name = \"k\", weight = 0} : f32[batch, seq, 2, 24]\n"
    "%v = parameter {name = \"v\", weight = 0} : f32[batch, seq, 2, 20]\n"
    "%0 = dot_general(%q, %k) {lhs_batch = [0, 2], rhs_batch = [0, 2], lhs_contract = [3], "
    "rhs_contract = [3]} : f32[batch, 2, seq, seq]\n"
    "%1 = iota {axis = 2} : i32[batch, 2, seq, seq]\n"
    "%2 = iota {axis = 3} : i32[batch, 2, seq, seq]\n"
    "%3 = compare(%1, %2) {direction = ge} : bool[batch, 2, seq, seq]\n"
    "%4 = constant {data = -1e+30} : f32[batch, 2, seq, seq]\n"
    "%5 = select(%3, %0, %4) : f32[batch, 2, seq, seq]\n"
    "%6 = softmax(%5) {axis = 3} : f32[batch, 2, seq, seq]\n"
    "%7 = dot_general(%6, %v) {lhs_batch = [0, 1], rhs_batch = [0, 2], lhs_contract = [3], "
    "rhs_contract = [1]} : f32[batch, 2, seq, 20]\n"
    "return %7 as \"y\"\n}\n";

#define NAME(name_) .name = SX_SPAN_LITERAL(name_)

static sx_ctx cx;
static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
}
static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_core_request request_of(const sx_binding *binding, uint32_t bindings,
                                  const sx_interval *interval, uint32_t intervals)
{
    return (sx_core_request){.ir = sx_span_of(text),
                             .target = SX_SPAN_LITERAL("x86-64-v3"),
                             .binding = binding,
                             .binding_count = bindings,
                             .interval = interval,
                             .interval_count = intervals};
}

/* The module for one interval of the batch beside those for single values, on AVX2. *bytes is its size, and *alone
 * that of the largest of the others. */
static void compare(const char *program_text, sx_interval interval, uint32_t points,
                    uint32_t variants, size_t *bytes, size_t *alone)
{
    sx_core_request request = request_of(NULL, 0, &interval, 1);
    sx_test_intervals t = {.points = points, .variants = variants};
    request.ir = sx_span_of(program_text);
    sx_test_compare_intervals(&cx, &request, &t);
    *bytes = t.bytes;
    *alone = t.alone;
}

/* Few variants serve all of an interval, and the module is hardly larger than one for a value. */
START_TEST(test_few_variants_for_many_values)
{
    size_t bytes, alone;
    compare(block, (sx_interval){NAME("batch"), 1, 70}, 12, 4, &bytes, &alone);
    ck_assert_msg(bytes <= 4 * alone, "%zu and %zu bytes", bytes, alone);
}
END_TEST

/* Blocks of rows end where they may, and what is left over has parts of its own. */
START_TEST(test_rows_have_cases)
{
    size_t bytes, alone;
    compare(rows, (sx_interval){NAME("batch"), 1, 300}, 40, 4, &bytes, &alone);
    ck_assert_msg(bytes <= 4 * alone, "%zu and %zu bytes", bytes, alone);
}
END_TEST

START_TEST(test_moves_have_cases)
{
    size_t bytes, alone;
    compare(moves, (sx_interval){NAME("batch"), 1, 300}, 40, 4, &bytes, &alone);
}
END_TEST

/* Numbers that follow the symbol come when kernels are launched. */
START_TEST(test_inner_dimensions_have_cases)
{
    size_t bytes, alone;
    compare(inner, (sx_interval){NAME("batch"), 1, 200}, 40, 12, &bytes, &alone);
}
END_TEST

/* Code for machines with vectors of 64 bytes: emulated where the processor has none, at the ends and in the middle. */
START_TEST(test_cases_are_verified)
{
    const sx_interval interval = {NAME("batch"), 1, 40};
    static const char *const target[] = {"x86-64-v3", "x86-64-v4"};
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    for (uint32_t i = 0; i < 2 * SX_COUNT(target); i++) {
        sx_core_request request = request_of(NULL, 0, &interval, 1);
        request.ir = sx_span_of(i % 2 == 0 ? rows : inner);
        request.target = sx_span_of(target[i / 2]);
        sx_buf_clear(&bytes);
        cx.stage_count = 0;
        ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &options, &bytes));
        const sxr_options any = {.threads = 1, .any_level = true};
        sxr_program *program;
        ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), &any, &program));
        ck_assert_uint_gt(sxr_module(program)->cases_count, 0);
        sxr_close(program);
    }
    sx_buf_fini(&bytes);
}
END_TEST

/* Queries and keys follow the symbol: whole blocks of both, and what is left over of any length. */
START_TEST(test_attention_has_cases)
{
    static const struct {
        const char *text, *target;
    } row[] = {{attention, "x86-64-v3"}, {causal, "x86-64-v3"}, {attention, "x86-64-v4"}};
    const sx_interval interval[] = {{NAME("seq"), 1, 200}, {NAME("batch"), 3, 3}};
    sx_core_request request = request_of(NULL, 0, interval, 2);
    request.ir = sx_span_of(row[_i].text);
    request.target = sx_span_of(row[_i].target);
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    sx_buf module;
    sx_buf_init(&module, (size_t)1 << 26);
    ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &options, &module)); /* emulated if need be */
    sx_buf_fini(&module);
    if (sxr_cpu_machine() != NULL &&
        (_i < 2 || sx_span_is(sx_span_of(sxr_cpu_machine()->name), "x86-64-v4"))) {
        sx_test_compare_intervals(&cx, &request, &(sx_test_intervals){.points = 24, .variants = 4});
    }
}
END_TEST

START_TEST(test_encoder)
{
    sx_buf encoder;
    size_t bytes, alone;
    sx_buf_init(&encoder, SX_TEXT_BYTES_MAX);
    ck_sx_ok(&cx, sx_test_model_text(&cx, "encoder", &encoder));
    sx_buf_put_u8(&encoder, 0);
    compare((const char *)encoder.ptr, (sx_interval){NAME("batch"), 1, 64}, 8, 4, &bytes, &alone);
    ck_assert_msg(bytes <= 4 * alone, "%zu and %zu bytes", bytes, alone);
    sx_buf_fini(&encoder);
}
END_TEST

/* A scatter of values of both intervals; where the values before were others, too. A copy of an input has no cases, so
 * that each value of one symbol has a variant. */
START_TEST(test_bits_are_those_of_single_values)
{
    const sx_interval both[] = {{NAME("n"), 6, 8}, {NAME("batch"), 2, 9}};
    const sx_core_request request = request_of(NULL, 0, both, 2);
    sx_test_compare_intervals(&cx, &request, &(sx_test_intervals){.points = 24, .variants = 24});
}
END_TEST

/* The module says what it serves; anything else is refused when it is chosen, and changes nothing. */
START_TEST(test_values_outside_are_refused)
{
    const sx_interval batch = {NAME("batch"), 3, 5};
    const sx_binding n = {NAME("n"), .value = 7};
    const sx_core_request request = request_of(&n, 1, &batch, 1);
    static const int64_t outside[] = {2, 6, 64, 0, -1};
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    ck_sx_ok(&cx, sx_test_compile_request(&cx, &request, &bytes));
    sxr_program *program;
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &program));
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(module->symbol_count, 2);
    ck_sx_ok(&cx, sxr_set_extent(&cx, program, SX_SPAN_LITERAL("batch"), 4));
    uint32_t symbol = sx_span_is(sx_module_string(module, module->symbol[0].name), "batch") ? 0 : 1;
    for (uint32_t i = 0; i < SX_COUNT(outside); i++) {
        char what[80];
        (void)snprintf(what, sizeof(what), "extent batch has %d; the module serves 3 to 5",
                       (int)outside[i]);
        ck_sx_fails(&cx, sxr_set_extent(&cx, program, SX_SPAN_LITERAL("batch"), outside[i]),
                    SX_INPUT, what);
        ck_assert_int_eq(sxr_extent(program, symbol), 4);
    }
    sxr_close(program);
    sx_buf_fini(&bytes);
}
END_TEST

/* An interval of one value gives the bytes of that value. */
START_TEST(test_interval_of_one_value)
{
    const sx_interval one = {NAME("batch"), 5, 5};
    const sx_binding values[] = {{NAME("n"), .value = 7}, {NAME("batch"), .value = 5}};
    const sx_core_request interval = request_of(values, 1, &one, 1),
                          value = request_of(values, 2, NULL, 0);
    sx_buf got, want;
    sx_buf_init(&got, (size_t)1 << 26);
    sx_buf_init(&want, (size_t)1 << 26);
    ck_sx_ok(&cx, sx_test_compile_request(&cx, &interval, &got));
    ck_sx_ok(&cx, sx_test_compile_request(&cx, &value, &want));
    ck_assert(sx_span_equal(sx_buf_span(&got), sx_buf_span(&want)));
    sx_buf_fini(&got);
    sx_buf_fini(&want);
}
END_TEST

/* Both ends of what a module serves are among what was compared with the program as sent. */
START_TEST(test_ends_are_verified)
{
    const sx_interval batch = {NAME("batch"), 3, 6};
    const sx_binding n = {NAME("n"), .value = 7};
    const sx_core_request request = request_of(&n, 1, &batch, 1);
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &options, &bytes));
    sxr_program *program;
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &program));
    const sx_module *module = sxr_module(program);
    uint32_t low = 0, high = 0;
    for (uint32_t i = 0; i < module->check_count; i++) {
        const sx_module_check *check = &module->check[i];
        sx_span name = sx_module_string(module, check->name);
        bool whole = memmem(name.ptr, name.len, "program as sent", 15) != NULL;
        low += whole && check->points == 3 * 12 * (32 + 48) + 7 ? 1 : 0;
        high += whole && check->points == 6 * 12 * (32 + 48) + 7 ? 1 : 0;
    }
    ck_assert_uint_ge(low, 1);
    ck_assert_uint_ge(high, 1);
    sxr_close(program);
    sx_buf_fini(&bytes);
}
END_TEST

START_TEST(test_requests_that_are_refused)
{
    const sx_binding values[] = {{NAME("n"), .value = 7}, {NAME("batch"), .value = 5}};
    const struct {
        sx_interval interval[2];
        uint32_t bindings, intervals;
        sx_code code;
        const char *part;
    } row[] = {
        {{{NAME("batch"), 60, 65}},
         1,
         1,
         SX_INPUT,
         "symbol \"batch\": the interval 60..65 is not inside of [1, 64], which the program "
         "declares"},
        {{{NAME("batch"), 4, 3}}, 1, 1, SX_INPUT, "the interval 4..3"},
        {{{NAME("batch"), 0, 3}}, 1, 1, SX_INPUT, "the interval 0..3"},
        {{{NAME("batch"), 4, 5}}, 2, 1, SX_INPUT, "the interval 4..5 and a value"},
        {{{NAME("batch"), 4, 5}, {NAME("batch"), 7, 9}}, 1, 2, SX_INPUT, "7..9 and another one"},
        {{{NAME("heads"), 4, 5}}, 2, 1, SX_INPUT, "symbol \"heads\" is unknown"},
        {{{NAME("batch"), 4, 5}}, 0, 1, SX_INPUT, "symbol \"n\" has no value"},
        {{{NAME("n"), 1, 80}, {NAME("batch"), 1, 64}}, 0, 2, SX_LIMIT, "more than 64 variants"},
        {{{NAME("batch"), 1, 32}, {NAME("n"), 1, 3}},
         0,
         2,
         SX_LIMIT,
         "interval 1..32 makes more than 64 variants, as few of its values have the same code"},
    };
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        const sx_core_request request =
            request_of(values, row[i].bindings, row[i].interval, row[i].intervals);
        ck_sx_fails(&cx, sx_test_compile_request(&cx, &request, &bytes), row[i].code, row[i].part);
    }
    const sx_core_request request = request_of(values, 1, row[5].interval, 1);
    sx_image image;
    sx_image_init(&image);
    ck_sx_fails(&cx, sx_core_optimize(&cx, &request, &image), SX_INPUT, "optimize takes values");
    sx_image_fini(&image);
    sx_buf_fini(&bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.intervals");
    TCase *cases = tcase_create("intervals");
    tcase_set_timeout(cases, 400);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_few_variants_for_many_values);
    tcase_add_test(cases, test_rows_have_cases);
    tcase_add_test(cases, test_moves_have_cases);
    tcase_add_test(cases, test_inner_dimensions_have_cases);
    tcase_add_test(cases, test_cases_are_verified);
    tcase_add_loop_test(cases, test_attention_has_cases, 0, 3);
    tcase_add_test(cases, test_encoder);
    tcase_add_test(cases, test_bits_are_those_of_single_values);
    tcase_add_test(cases, test_values_outside_are_refused);
    tcase_add_test(cases, test_interval_of_one_value);
    tcase_add_test(cases, test_ends_are_verified);
    tcase_add_test(cases, test_requests_that_are_refused);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
