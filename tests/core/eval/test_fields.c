/* SX_EVAL_FIELDS: two fields at once, in which exponentials have their algebra. */
#include "core/eval/cell.h"
#include "tests/lib/test.h"

#include <stdio.h>

#include "core/base/rng.h"
#include "core/ir/ir.h"

#define COUNT 64

static sx_ctx cx;
static sx_rng rng;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
    rng.state = sx_test_seed();
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Results 0 and 1 of a program over x and y, random pairs. */
static void run(const char *body, sx_tensor result[2])
{
    char text[1024];
    sx_graph *graph;
    uint64_t data[2][COUNT];
    sx_tensor argument[2];
    (void)snprintf(text, sizeof(text),
                   "sx 1\ngraph \"g\" {\n%%x = parameter {name = \"x\", weight = 0} : f32[64]\n"
                   "%%y = parameter {name = \"y\", weight = 0} : f32[64]\n%s}\n",
                   body);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            data[k][i] = sx_rng_below(&rng, SX_FIELD_P) | (uint64_t)sx_rng_below(&rng, SX_FIELD_Q)
                                                              << 32;
        }
        argument[k] = (sx_tensor){graph->node[k].type, data[k]};
    }
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_FIELDS, argument, 2, result, 2));
}

static uint32_t count_equal(const char *body)
{
    sx_tensor result[2];
    uint32_t count = 0;
    run(body, result);
    for (uint32_t i = 0; i < COUNT; i++) {
        count += sx_pair_equal(((uint64_t *)result[0].data)[i], ((uint64_t *)result[1].data)[i]);
    }
    return count;
}

#define RETURN "return %a as \"a\", %b as \"b\"\n"
START_TEST(test_exponents_add)
{
    ck_assert_uint_eq(count_equal("%s = add(%x, %y) : f32[64]\n%a = exponential(%s) : f32[64]\n"
                                  "%p = exponential(%x) : f32[64]\n%q = exponential(%y) : f32[64]\n"
                                  "%b = multiply(%p, %q) : f32[64]\n" RETURN),
                      COUNT);
    ck_assert_uint_eq(count_equal("%s = multiply(%x, %y) : f32[64]\n"
                                  "%a = exponential(%s) : f32[64]\n"
                                  "%p = exponential(%x) : f32[64]\n%q = exponential(%y) : f32[64]\n"
                                  "%b = multiply(%p, %q) : f32[64]\n" RETURN),
                      0);
}
END_TEST

/* tanh x = 1 - 2 / (1 + e^2x), logistic x = e^x / (1 + e^x) */
START_TEST(test_what_follows_from_them)
{
    ck_assert_uint_eq(
        count_equal("%a = tanh(%x) : f32[64]\n%t = add(%x, %x) : f32[64]\n"
                    "%l = logistic(%t) : f32[64]\n%m = add(%l, %l) : f32[64]\n"
                    "%o = constant {data = 1} : f32[64]\n%b = subtract(%m, %o) : f32[64]\n" RETURN),
        COUNT);
    ck_assert_uint_eq(count_equal("%a = logistic(%x) : f32[64]\n%e = exponential(%x) : f32[64]\n"
                                  "%o = constant {data = 1} : f32[64]\n%d = add(%e, %o) : f32[64]\n"
                                  "%b = divide(%e, %d) : f32[64]\n" RETURN),
                      COUNT);
}
END_TEST

/* Constants are exact in both fields: (x / 3 + x / 6) * 2 = x, x * 0.5 + x * 0.5 = x. */
START_TEST(test_both_are_fields)
{
    ck_assert_uint_eq(
        count_equal("%c = constant {data = 3} : f32[64]\n%d = constant {data = 6} : f32[64]\n"
                    "%e = constant {data = 0.5} : f32[64]\n%p = divide(%x, %c) : f32[64]\n"
                    "%q = divide(%x, %d) : f32[64]\n%a = add(%p, %q) : f32[64]\n"
                    "%b = multiply(%x, %e) : f32[64]\n" RETURN),
        COUNT);
    ck_assert_uint_eq(count_equal("%n = negate(%x) : f32[64]\n%c = subtract(%y, %n) : f32[64]\n"
                                  "%a = abs(%c) : f32[64]\n%m = negate(%c) : f32[64]\n"
                                  "%b = maximum(%c, %m) : f32[64]\n" RETURN),
                      COUNT);
}
END_TEST

START_TEST(test_what_is_no_pair_is_refused)
{
    static const uint64_t bad[] = {SX_FIELD_P, SX_FIELD_Q << 32, UINT64_C(1) << 62,
                                   UINT64_C(1) << 63, UINT64_C(1) << 31};
    sx_graph *graph;
    sx_tensor result;
    ck_sx_ok(&cx, sx_graph_parse(&cx,
                                 SX_SPAN_LITERAL("sx 1\ngraph \"g\" {\n%x = parameter {name = "
                                                 "\"x\", weight = 0} : f32[]\n%a = negate(%x) : "
                                                 "f32[]\nreturn %a as \"a\"\n}\n"),
                                 &graph));
    for (uint32_t i = 0; i < SX_COUNT(bad); i++) {
        uint64_t data = bad[i];
        sx_tensor x = {graph->node[0].type, &data};
        ck_assert_int_eq(sx_graph_eval(&cx, graph, SX_EVAL_FIELDS, &x, 1, &result, 1), SX_INPUT);
        sx_ctx_reset_error(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fields");
    TCase *cases = tcase_create("fields");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_exponents_add);
    tcase_add_test(cases, test_what_follows_from_them);
    tcase_add_test(cases, test_both_are_fields);
    tcase_add_test(cases, test_what_is_no_pair_is_refused);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
