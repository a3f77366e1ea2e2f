/* A request that gives two symbols intervals makes one module for all pairs of values: each gives, bit for bit, what
 * the module for this pair alone gives. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "client/runtime/runtime.h"
#include "client/verify/verify.h"
#include "tests/lib/compiled.h"
#include "tests/lib/intervals.h"

/* Rows are as many as the product of both symbols; queries and keys follow one of them alone, and so do the rows of a
 * transposed tensor, whose strides follow both. */
static const char layer[] =
    "sx 1\ngraph \"layer\" (batch in [1, 64], seq in [1, 512]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, seq, 40]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[40, 48]\n"
    "%v = parameter {name = \"v\", weight = 1} : f32[48, 40]\n"
    "%0 = dot_general(%x, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, seq, 48]\n"
    "%1 = tanh(%0) : f32[batch, seq, 48]\n"
    "%2 = dot_general(%1, %1) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], "
    "rhs_contract = [2]} : f32[batch, seq, seq]\n"
    "%3 = softmax(%2) {axis = 2} : f32[batch, seq, seq]\n"
    "%4 = dot_general(%3, %1) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], "
    "rhs_contract = [1]} : f32[batch, seq, 48]\n"
    "%5 = dot_general(%4, %v) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, seq, 40]\n"
    "%6 = add(%x, %5) : f32[batch, seq, 40]\n"
    "%7 = softmax(%6) {axis = 2} : f32[batch, seq, 40]\n"
    "return %7 as \"y\"\n}\n";

/* A block as language models have it: a query sees the keys up to its own position alone. What is left over of the 16
 * rows of a vector, and one key that is left over of 72, which most rows do not see, are among the values. */
static const char block[] =
    "sx 1\ngraph \"block\" (batch in [1, 8], seq in [1, 512]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, seq, 32]\n"
    "%g = parameter {name = \"g\", weight = 1} : f32[32]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[32, 96]\n"
    "%o = parameter {name = \"o\", weight = 1} : f32[32, 32]\n"
    "%0 = rms_norm(%x, %g) {axis = 2, eps = 1e-5} : f32[batch, seq, 32]\n"
    "%1 = dot_general(%0, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, seq, 96]\n"
    "%2 = reshape(%1) : f32[batch, seq, 6, 16]\n"
    "%3 = transpose(%2) {perm = [0, 2, 1, 3]} : f32[batch, 6, seq, 16]\n"
    "%4 = slice(%3) {start = [0, 0, 0, 0], limit = [-1, 2, -1, 16], stride = [1, 1, 1, 1]} : "
    "f32[batch, 2, seq, 16]\n"
    "%5 = slice(%3) {start = [0, 2, 0, 0], limit = [-1, 4, -1, 16], stride = [1, 1, 1, 1]} : "
    "f32[batch, 2, seq, 16]\n"
    "%6 = slice(%3) {start = [0, 4, 0, 0], limit = [-1, 6, -1, 16], stride = [1, 1, 1, 1]} : "
    "f32[batch, 2, seq, 16]\n"
    "%7 = iota {axis = 2} : i32[batch, 2, seq, seq]\n"
    "%8 = iota {axis = 3} : i32[batch, 2, seq, seq]\n"
    "%9 = compare(%8, %7) {direction = le} : bool[batch, 2, seq, seq]\n"
    "%10 = constant {data = -inf} : f32[batch, 2, seq, seq]\n"
    "%11 = constant {data = 0.0} : f32[batch, 2, seq, seq]\n"
    "%12 = select(%9, %11, %10) : f32[batch, 2, seq, seq]\n"
    "%13 = attention(%4, %5, %6, %12) {scale = 0.25} : f32[batch, 2, seq, 16]\n"
    "%14 = transpose(%13) {perm = [0, 2, 1, 3]} : f32[batch, seq, 2, 16]\n"
    "%15 = reshape(%14) : f32[batch, seq, 32]\n"
    "%16 = dot_general(%15, %o) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, seq, 32]\n"
    "%17 = add(%x, %16) : f32[batch, seq, 32]\n"
    "return %17 as \"y\"\n}\n";

/* Extents that are products of both, and sums of products: of an input and of each output. */
static const char flat[] =
    "sx 1\ngraph \"flat\" (batch in [1, 64], seq in [1, 512]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch*seq, 24]\n"
    "%t = parameter {name = \"t\", weight = 0} : f32[batch, seq, 20]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[24, 20]\n"
    "%0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch*seq, 20]\n"
    "%1 = softmax(%0) {axis = 1} : f32[batch*seq, 20]\n"
    "%2 = reduce(%1) {reducer = add, dims = [0]} : f32[20]\n"
    "%3 = reduce(%1) {reducer = maximum, dims = [1]} : f32[batch*seq]\n"
    "%4 = reshape(%1) : f32[batch, seq, 20]\n"
    "%5 = add(%4, %t) : f32[batch, seq, 20]\n"
    "%6 = reshape(%5) : f32[20*batch*seq]\n"
    "return %1 as \"s\", %2 as \"m\", %3 as \"l\", %6 as \"y\"\n}\n";
static const char squares[] =
    "sx 1\ngraph \"squares\" (batch in [1, 64], seq in [1, 512]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, seq, 8]\n"
    "%0 = dot_general(%x, %x) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], "
    "rhs_contract = [2]} : f32[batch, seq, seq]\n"
    "%1 = reshape(%0) : f32[batch, seq*seq]\n"
    "%2 = reshape(%x) : f32[batch, 8*seq]\n"
    "%3 = concatenate(%2, %1) {axis = 1} : f32[batch, seq*seq + 8*seq]\n"
    "return %3 as \"y\"\n}\n";
static const char cubes[] = "sx 1\ngraph \"cubes\" (batch in [1, 64], seq in [1, 512]) {\n"
                            "%x = parameter {name = \"x\", weight = 0} : f32[batch, seq, seq]\n"
                            "%0 = reshape(%x) : f32[batch*seq*seq]\n"
                            "return %0 as \"y\"\n}\n";

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

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
static sx_core_request request_of(const char *program, int target, const sx_interval *interval)
{
    return (sx_core_request){.ir = sx_span_of(program),
                             .target = sx_span_of(targets[target]),
                             .interval = interval,
                             .interval_count = 2};
}

/* Every pair of a box, with all remainders of both symbols. */
START_TEST(test_every_pair)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    const sx_interval interval[] = {{NAME("batch"), 1, 7}, {NAME("seq"), 1, 50}};
    const sx_core_request request = request_of(layer, _i, interval);
    sx_test_intervals t = {.variants = 1};
    sx_test_compare_intervals(&cx, &request, &t);
}
END_TEST

START_TEST(test_causal_block)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    const sx_interval interval[] = {{NAME("batch"), 2, 5}, {NAME("seq"), 2, 160}};
    const sx_core_request request = request_of(block, _i, interval);
    sx_test_intervals t = {.points = 12, .variants = 6};
    sx_test_compare_intervals(&cx, &request, &t);
}
END_TEST

/* One key is left over of a block of 72, which some rows see and others do not: that is proven, too. */
START_TEST(test_one_key_left_over)
{
    const sx_binding binding[] = {{NAME("batch"), .value = 2}, {NAME("seq"), .value = 73}};
    const sx_core_request request = {.ir = sx_span_of(block),
                                     .target = sx_span_of(targets[_i]),
                                     .binding = binding,
                                     .binding_count = 2};
    sx_image image;
    sx_image_init(&image);
    ck_sx_ok(&cx, sx_core_compile(&cx, &request, &image));
    const sx_module_search *search = (const sx_module_search *)(const void *)image.search.ptr;
    const char *stop = (const char *)image.strings.ptr + search->stop.offset;
    ck_assert_msg(memmem(stop, search->stop.size, "extracted again", 15) == NULL, "%.*s",
                  (int)search->stop.size, stop);
    sx_image_fini(&image);
}
END_TEST

START_TEST(test_products)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    const sx_interval interval[] = {{NAME("batch"), 1, 9}, {NAME("seq"), 1, 70}};
    const sx_core_request request = request_of(flat, _i, interval);
    sx_test_intervals t = {.points = 40, .variants = 1};
    sx_test_compare_intervals(&cx, &request, &t);
}
END_TEST

START_TEST(test_squares)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    const sx_interval interval[] = {{NAME("seq"), 2, 5}, {NAME("batch"), 1, 3}};
    const sx_core_request request = request_of(squares, _i, interval);
    sx_test_intervals t = {.points = 0, .variants = 12};
    sx_test_compare_intervals(&cx, &request, &t);
}
END_TEST

/* What is of three symbols has no row of the module. With one value for one of them the square of the other is left. */
START_TEST(test_cubes)
{
    const sx_interval interval[] = {{NAME("batch"), 1, 9}, {NAME("seq"), 2, 3}};
    sx_core_request request = request_of(cubes, 0, interval);
    sx_buf module;
    sx_buf_init(&module, (size_t)1 << 26);
    ck_sx_fails(&cx, sx_test_compile_request(&cx, &request, &module), SX_UNIMPLEMENTED,
                "an extent of \"y\" is batch*seq*seq: give \"batch\" one value");
    const sx_binding batch = {NAME("batch"), .value = 3};
    request.binding = &batch;
    request.binding_count = 1;
    request.interval = &interval[1];
    request.interval_count = 1;
    ck_sx_ok(&cx, sx_test_compile_request(&cx, &request, &module));
    sxr_program *program;
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&module), NULL, &program));
    for (int64_t seq = 2; seq <= 3; seq++) {
        ck_sx_ok(&cx, sxr_set_extent(&cx, program, SX_SPAN_LITERAL("seq"), seq));
        ck_assert_int_eq(sxr_shape(program, 1)[0], 3 * seq * seq);
    }
    sxr_close(program);
    sx_buf_fini(&module);
}
END_TEST

/* Batch and positions together: 40 pairs of the two. */
START_TEST(test_encoder_of_both)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    const sx_interval interval[] = {{NAME("batch"), 1, 64}, {NAME("seq"), 1, 512}};
    const char *encoder;
    ck_sx_ok(&cx, sx_test_encoder_text(&cx, &encoder));
    const sx_core_request request = request_of(encoder, _i, interval);
    sx_test_intervals t = {.points = 40, .variants = 2};
    sx_test_compare_intervals(&cx, &request, &t);
    t.bytes += SX_TEST_ENCODER_WEIGHTS;
    t.alone += SX_TEST_ENCODER_WEIGHTS;
    ck_assert_msg(t.bytes <= 4 * t.alone, "%zu and %zu bytes", t.bytes, t.alone);
}
END_TEST

START_TEST(test_encoder_along_its_positions)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    const sx_interval interval[] = {{NAME("seq"), 1, 512}, {NAME("batch"), 4, 4}};
    const char *encoder;
    ck_sx_ok(&cx, sx_test_encoder_text(&cx, &encoder));
    const sx_core_request request = request_of(encoder, _i, interval);
    sx_test_intervals t = {.points = 12, .variants = 8};
    sx_test_compare_intervals(&cx, &request, &t);
    t.bytes += SX_TEST_ENCODER_WEIGHTS;
    t.alone += SX_TEST_ENCODER_WEIGHTS;
    ck_assert_msg(t.bytes <= 4 * t.alone, "%zu and %zu bytes", t.bytes, t.alone);
}
END_TEST

/* The corners of a box and its middle are compared with the program as sent; a value outside of either interval is
 * refused, by the name of the symbol. */
START_TEST(test_corners_and_outside)
{
    if (!sx_test_can_run(targets[_i])) {
        return;
    }
    const sx_interval interval[] = {{NAME("batch"), 2, 5}, {NAME("seq"), 3, 40}};
    const sx_core_request request = request_of(layer, _i, interval);
    static const int64_t corner[][2] = {{2, 3}, {2, 40}, {5, 3}, {5, 40}, {3, 21}};
    bool seen[SX_COUNT(corner)] = {false};
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &options, &bytes));
    sxr_program *program;
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &program));
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(module->variant_count, 1);
    for (uint32_t i = 0; i < module->check_count; i++) {
        sx_span name = sx_module_string(module, module->check[i].name);
        bool whole = memmem(name.ptr, name.len, "program as sent", 15) != NULL;
        for (uint32_t k = 0; k < SX_COUNT(corner) && whole; k++) {
            int64_t points = corner[k][0] * corner[k][1] * 40;
            seen[k] = seen[k] || module->check[i].points == (uint64_t)points;
        }
    }
    for (uint32_t k = 0; k < SX_COUNT(corner); k++) {
        ck_assert_msg(seen[k], "%d, %d", (int)corner[k][0], (int)corner[k][1]);
    }
    ck_sx_fails(&cx, sxr_set_extent(&cx, program, SX_SPAN_LITERAL("batch"), 6), SX_INPUT,
                "extent batch has 6; the module serves 2 to 5");
    ck_sx_fails(&cx, sxr_set_extent(&cx, program, SX_SPAN_LITERAL("seq"), 2), SX_INPUT,
                "extent seq has 2; the module serves 3 to 40");
    sxr_close(program);
    sx_buf_fini(&bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pairs");
    TCase *cases = tcase_create("pairs");
    tcase_set_timeout(cases, 500);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_every_pair, 0, 2);
    tcase_add_loop_test(cases, test_encoder_of_both, 0, 2);
    tcase_add_loop_test(cases, test_encoder_along_its_positions, 0, 2);
    tcase_add_loop_test(cases, test_corners_and_outside, 0, 2);
    suite_add_tcase(suite, cases);
    TCase *products = tcase_create("products");
    tcase_set_timeout(products, 500);
    tcase_add_checked_fixture(products, setup, teardown);
    tcase_add_loop_test(products, test_products, 0, 2);
    tcase_add_loop_test(products, test_squares, 0, 2);
    tcase_add_test(products, test_cubes);
    suite_add_tcase(suite, products);
    TCase *causal = tcase_create("causal");
    tcase_set_timeout(causal, 500);
    tcase_add_checked_fixture(causal, setup, teardown);
    tcase_add_loop_test(causal, test_causal_block, 0, 2);
    suite_add_tcase(suite, causal);
    TCase *key = tcase_create("key");
    tcase_set_timeout(key, 500);
    tcase_add_checked_fixture(key, setup, teardown);
    tcase_add_loop_test(key, test_one_key_left_over, 0, 2);
    suite_add_tcase(suite, key);
    return sx_test_main(suite);
}
