/* Programs with scan as machine code, against the interpreter: the order of rounds and rows, carried values that change
 * places or stay, results that nobody asks for, scans inside and behind each other, and what is left outside of the
 * loop. On GPUs it is refused by name. */
#include <string.h>

#include "client/verify/verify.h"
#include "tests/lib/compiled.h"
#include "tests/lib/ir.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

#define IN(name, type) "%" name " = parameter {name = \"" name "\", weight = 0} : " type "\n"
#define WEIGHT(name, type) "%" name " = parameter {name = \"" name "\", weight = 1} : " type "\n"
#define BEGIN "sx 1\ngraph \"g\" {\n"

/* s' = tanh(s w + x): w is packed once, before the loop. */
#define CELL(batch)                                                                                \
    IN("s", "f32[" batch ", 16]")                                                                  \
    IN("x", "f32[9, " batch ", 16]")                                                               \
    WEIGHT("w", "f32[16, 16]")                                                                     \
    "%a, %b = scan(%s, %x, %w) {carried = 1, sliced = 1, step = graph {\n" IN(                     \
        "s", "f32[" batch ", 16]") IN("x", "f32[" batch ", 16]")                                   \
        IN("w", "f32[16, 16]") "%p = dot_general(%s, %w) {lhs_contract = [1], rhs_contract = "     \
                               "[0]} : f32[" batch ", 16]\n"                                       \
                               "%q = add(%p, %x) : f32[" batch ", 16]\n%r = tanh(%q) : f32[" batch \
                               ", 16]\n"                                                           \
                               "return %r as \"r\", %r as \"y\"}} : f32[" batch                    \
                               ", 16], f32[9, " batch ", 16]\n"

/* s' = s + t, t' = s, u stays; y = x - t, z nobody asks for. */
#define SHIFT(rounds)                                                                              \
    BEGIN IN("s", "i32[5]") IN("t", "i32[5]") IN("u", "i32[5]")                                    \
        IN("x",                                                                                    \
           "i32[" rounds                                                                           \
           ", 5]") "%a, %b, %c, %y = scan(%s, %t, %u, %x) {carried = 3, sliced = 1, step = graph " \
                   "{\n" IN("s", "i32[5]") IN("t", "i32[5]") IN("u", "i32[5]") IN(                 \
                       "x", "i32[5]") "%n = add(%s, %t) : i32[5]\n%m = multiply(%u, %x) : "        \
                                      "i32[5]\n%o = add(%n, %m) : i32[5]\n"                        \
                                      "%y = subtract(%x, %t) : i32[5]\n%z = multiply(%y, %y) : "   \
                                      "i32[5]\n"                                                   \
                                      "return %o as \"s\", %s as \"t\", %u as \"u\", %y as "       \
                                      "\"y\", %z as \"z\"}}"                                       \
                                      " : i32[5], i32[5], i32[5], i32[" rounds ", 5]\n"            \
                                      "return %a as \"a\", %b as \"b\", %c as \"c\", %y as \"y\"}"

static const struct {
    const char *name, *text;
    uint32_t loops;
    int64_t batch;
} programs[] = {
    {"cell", BEGIN CELL("4") "return %a as \"a\", %b as \"b\"}", 1, 0},
    {"rows alone", BEGIN CELL("1") "return %b as \"b\"}", 1, 0},
    {"last value alone", BEGIN CELL("3") "return %a as \"a\"}", 1, 0},
    {"symbolic",
     "sx 1\ngraph \"g\" (batch in [1, 64]) {\n" CELL("batch") "return %a as \"a\", %b as \"b\"}", 1,
     6},
    /* what the scan makes is read and written while other temporaries come and go */
    {"in between",
     BEGIN CELL("4") "%c = exponential(%b) : f32[9, 4, 16]\n"
                     "%d = reduce(%c) {dims = [0], reducer = add} : f32[4, 16]\n"
                     "%e = multiply(%d, %a) : f32[4, 16]\n"
                     "%f, %h = scan(%e, %c, %w) {carried = 1, sliced = 1, step = graph {\n" IN(
                         "s", "f32[4, 16]") IN("x", "f32[4, 16]")
                         IN("w", "f32[16, 16]") "%p = dot_general(%x, %w) {lhs_contract = [1], "
                                                "rhs_contract = [1]} : f32[4, 16]\n"
                                                "%q = subtract(%p, %s) : f32[4, 16]\n%r = "
                                                "logistic(%q) : f32[4, 16]\n"
                                                "return %r as \"r\", %q as \"y\"}} : f32[4, 16], "
                                                "f32[9, 4, 16]\n"
                                                "%i = negate(%h) : f32[9, 4, 16]\nreturn %f as "
                                                "\"f\", %i as \"i\"}",
     2, 0},
    {"shift", SHIFT("7"), 1, 0},
    {"shift once", SHIFT("1"), 1, 0},
    {"shift long", SHIFT("10000"), 1, 0},
    /* three values go round in a ring; a row is one of them, another one a slice */
    {"ring",
     BEGIN IN("s", "i32[3]") IN("t", "i32[3]") IN("u", "i32[3]") IN(
         "x", "i32[8, 3]") "%a, %b, %c, %y, %z = scan(%s, %t, %u, %x) {carried = 3, sliced = 1, "
                           "step = graph {\n" IN("s", "i32[3]") IN("t", "i32[3]") IN("u", "i32[3]")
                               IN("x", "i32[3]") "%n = add(%u, %x) : i32[3]\n"
                                                 "return %t as \"s\", %u as \"t\", %s as \"u\", %s "
                                                 "as \"y\", %x as \"z\"}}"
                                                 " : i32[3], i32[3], i32[3], i32[8, 3], i32[8, 3]\n"
                                                 "return %a as \"a\", %b as \"b\", %c as \"c\", %y "
                                                 "as \"y\", %z as \"z\"}",
     1, 0},
    /* results that are a constant, a tensor seen whole, the slice; nothing is carried */
    {"without carried values",
     BEGIN IN("x", "f32[6, 4]")
         IN("w", "f32[4]") "%a, %b, %c, %d = scan(%x, %w) {carried = 0, sliced = 1, step = graph "
                           "{\n" IN("x", "f32[4]")
                               IN("w", "f32[4]") "%k = constant {data = [1, 2, 3, 4]} : f32[4]\n%e "
                                                 "= exponential(%w) : f32[4]\n"
                                                 "%f = multiply(%e, %x) : f32[4]\n"
                                                 "return %k as \"k\", %w as \"w\", %x as \"x\", %f "
                                                 "as \"f\"}}"
                                                 " : f32[6, 4], f32[6, 4], f32[6, 4], f32[6, 4]\n"
                                                 "return %a as \"a\", %b as \"b\", %c as \"c\", %d "
                                                 "as \"d\"}",
     1, 0},
    /* scalars that are carried; a slice in another shape is the next value */
    {"scalars",
     BEGIN IN("s", "i64[]") IN("x", "i64[11]") IN("v", "i64[1, 2]") IN(
         "y", "i64[11, 2]") "%a, %b, %c = scan(%s, %v, %x, %y) {carried = 2, sliced = 2, step = "
                            "graph {\n" IN("s", "i64[]") IN("v", "i64[1, 2]") IN("x", "i64[]")
                                IN("y", "i64[2]") "%n = subtract(%x, %s) : i64[]\n%w = reshape(%y) "
                                                  ": i64[1, 2]\n"
                                                  "%z = reshape(%v) : i64[2]\n"
                                                  "return %n as \"s\", %w as \"v\", %z as \"z\"}} "
                                                  ": i64[], i64[1, 2], i64[11, 2]\n"
                                                  "return %a as \"a\", %b as \"b\", %c as \"c\"}",
     1, 0},
    /* prefix sums of rows inside prefix sums of columns */
    {"nested",
     BEGIN IN("s", "i32[4]") IN("x", "i32[5, 4]")
         IN("z", "i32[]") "%e, %y = scan(%s, %x, %z) {carried = 1, sliced = 1, step = graph {\n" IN(
             "s", "i32[4]") IN("x", "i32[4]")
             IN("z", "i32[]") "%t, %row = scan(%z, %x) {carried = 1, sliced = 1, step = graph "
                              "{\n" IN("a", "i32[]") IN(
                                  "b",
                                  "i32[]") "%c = add(%a, %b) : i32[]\nreturn %c as \"c\", %c as "
                                           "\"row\"}}"
                                           " : i32[], i32[4]\n%n = multiply(%row, %s) : i32[4]\n"
                                           "%u = add(%n, %row) : i32[4]\n"
                                           "return %u as \"u\", %u as \"y\"}} : i32[4], i32[5, 4]\n"
                                           "return %e as \"e\", %y as \"y\"}",
     2, 0},
    /* one body, three times; an operand twice; nothing at all changes */
    {"equal bodies",
     BEGIN IN("s", "f32[4]") IN(
         "x",
         "f32[5, 4]") "%a, %b = scan(%s, %x, %s) {carried = 1, sliced = 1, step = graph {\n" IN("s",
                                                                                                "f3"
                                                                                                "2["
                                                                                                "4"
                                                                                                "]")
         IN("x", "f32[4]")
             IN("w",
                "f32[4]") "%n = multiply(%s, %w) : f32[4]\n%m = add(%n, %x) : f32[4]\n"
                          "return %m as \"s\", %n as \"n\"}} : f32[4], f32[5, 4]\n"
                          "%c, %d = scan(%a, %b, %s) {carried = 1, sliced = 1, step = graph {\n" IN(
                              "s", "f32[4]") IN("x", "f32[4]")
                              IN("w",
                                 "f32[4]") "%n = multiply(%s, %w) : f32[4]\n%m = add(%n, %x) : "
                                           "f32[4]\n"
                                           "return %m as \"s\", %n as \"n\"}} : f32[4], f32[5, 4]\n"
                                           "%e = scan(%c, %d) {carried = 1, sliced = 1, step = "
                                           "graph {\n" IN("s", "f32[4]")
                                               IN("x",
                                                  "f32[4]") "return %s as \"s\"}} : f32[4]\nreturn "
                                                            "%e as \"e\", %d as \"d\"}",
     2, 0},
};

static uint32_t count_loops(const sx_module *module)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < module->launch_count; i++) {
        count += module->launch[i].kind == SX_LAUNCH_LOOP ? 1 : 0;
    }
    return count;
}

START_TEST(equals_the_interpreter)
{
    static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
    for (uint32_t t = 0; t < 2 * SX_COUNT(targets); t++) {
        const sx_test_request request = {
            .text = programs[_i].text, .target = targets[t / 2], .batch = programs[_i].batch};
        if (!sx_test_can_run(request.target)) {
            continue;
        }
        sxr_program *program = sx_test_run(&cx, &request, 1 + t % 2);
        ck_assert_uint_eq(count_loops(sxr_module(program)), programs[_i].loops);
        if (_i == 0) { /* product, sum and tanh are one kernel, and the weight is packed */
            ck_assert_uint_eq(sxr_module(program)->kernel_count, 2);
        }
        sx_module_check check; /* a run leaves nothing behind that the next one sees */
        ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
        ck_sx_ok(&cx, sxr_check_program(&cx, program, 0, &check));
        sxr_close(program);
    }
}
END_TEST

/* As before a module is handed out: every launch, in memory of the verifier, on drawn inputs; also emulated. */
START_TEST(is_verified)
{
    sx_buf module;
    sx_buf_init(&module, (size_t)1 << 30);
    const sx_test_request request = {
        .text = programs[_i].text, .target = "x86-64-v3", .batch = programs[_i].batch};
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
    sx_image image;
    sx_image_init(&image);
    const sxr_verify_options options = {.seed = sx_test_seed(), .program_flops = 1e9};
    ck_sx_ok(&cx, sxr_verify(&cx, sx_buf_span(&module), &options, &image));
    const sx_module_check *check = (const void *)image.check.ptr;
    size_t count = image.check.len / sizeof(*check);
    ck_assert_uint_gt(count, 0);
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_ne(check[i].passed, SX_CHECK_ABSENT);
    }
    sx_image_fini(&image);
    sx_buf_fini(&module);
}
END_TEST

/* Random steps over every element type. */
START_TEST(random_scans)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(40); trial++) {
        sx_test_op made;
        sx_graph *graph;
        sx_node_id id[4];
        sx_buf text;
        teardown();
        setup();
        do {
            sx_test_op_make(&cx, &rng, SX_OP_SCAN, &made);
        } while (sx_dtype_bytes(made.result.dtype) == 1 && made.result.dtype != SX_BOOL);
        ck_sx_ok(&cx, sx_graph_make(&cx, sx_span_of("g"), NULL, &graph));
        for (uint32_t k = 0; k < 2; k++) {
            ck_sx_ok(&cx, sx_build_parameter(&cx, graph, k == 0 ? "a" : "b", false, &made.input[k],
                                             &id[k]));
        }
        for (uint32_t k = 0; k < 2; k++) {
            made.attr.result = k;
            ck_sx_ok(&cx, sx_graph_add(&cx, graph, made.op, &made.attr, id, 2, &id[2 + k]));
            ck_sx_ok(&cx,
                     sx_graph_add_output(&cx, graph, sx_span_of(k == 0 ? "y" : "z"), id[2 + k]));
        }
        sx_buf_init(&text, 1 << 20);
        ck_sx_ok(&cx, sx_graph_print(&cx, graph, &text));
        sx_buf_put_u8(&text, 0);
        const sx_test_request request = {.text = (const char *)text.ptr, .target = "x86-64-v3"};
        if (sx_test_can_run(request.target)) {
            sxr_close(sx_test_run(&cx, &request, 2));
        }
        sx_buf_fini(&text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("regions");
    TCase *tcase = tcase_create("scan");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, equals_the_interpreter, 0, SX_COUNT(programs));
    tcase_add_loop_test(tcase, is_verified, 0, SX_COUNT(programs));
    tcase_add_test(tcase, random_scans);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
