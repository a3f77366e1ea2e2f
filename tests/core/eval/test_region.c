/* scan, while and cond in the interpreter, against loops written here. */
#include <string.h>

#include "core/eval/eval.h"
#include "tests/lib/ir.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)64 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

#define P(name, type) "%" name " = parameter {name = \"" name "\", weight = 0} : " type " "

static sx_code run(const char *text, const double *const *argument, uint32_t count,
                   sx_tensor *result, uint32_t result_count)
{
    sx_graph *graph = sx_test_parse(&cx, text);
    sx_tensor tensor[8];
    ck_assert_uint_le(count, SX_COUNT(tensor));
    for (uint32_t k = 0; k < count; k++) {
        sx_span raw = {(const uint8_t *)argument[k],
                       (size_t)sx_tensor_elements(&graph->node[k].type) * sizeof(double)};
        ck_sx_ok(&cx, sx_tensor_unpack(&cx, &graph->node[k].type, SX_EVAL_F64, raw, &tensor[k]));
    }
    return sx_graph_eval(&cx, graph, SX_EVAL_F64, tensor, count, result, result_count);
}

/* ---- scan ---- */

#define LINEAR(rounds)                                                                             \
    "sx 1 graph \"g\" {" P("s", "f64[2]") P("t", "f64[2]") P("x", "f64[" rounds ", 2]")            \
        P("w", "f64[2]") "%a, %b, %y = scan(%s, %t, %x, %w) {carried = 2, sliced = 1, step = "     \
                         "graph {" P("s", "f64[2]") P("t", "f64[2]") P("x", "f64[2]")              \
                             P("w", "f64[2]") "%u = multiply(%s, %w) : f64[2] %v = add(%u, %x) : " \
                                              "f64[2] %d = subtract(%v, %t) : f64[2] "             \
                                              "return %v as \"s\", %s as \"t\", %d as \"y\"}} : "  \
                                              "f64[2], f64[2], f64[" rounds ", 2] "                \
                                              "return %a as \"a\", %b as \"b\", %y as \"y\"}"

/* s' = s w + x, t' = s, y = s' - t: order of rounds, exchange of two carried values and each row show. */
static void check_linear(const char *text, uint32_t rounds)
{
    sx_rng rng = {sx_test_seed()};
    double s[2] = {1, -2};
    double t[2] = {0.5, 3};
    const double w[2] = {0.75, -0.5};
    double *x = SX_NEW_ARRAY(&cx, double, 2 * (size_t)rounds);
    ck_assert_ptr_nonnull(x);
    for (uint32_t i = 0; i < 2 * rounds; i++) {
        x[i] = (double)sx_rng_below(&rng, 17) - 8;
    }
    sx_tensor result[3];
    ck_sx_ok(&cx, run(text, (const double *const[]){s, t, x, w}, 4, result, 3));
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t i = 0; i < 2; i++) {
            double next = s[i] * w[i] + x[2 * r + i];
            ck_assert_double_eq(((const double *)result[2].data)[2 * r + i], next - t[i]);
            t[i] = s[i];
            s[i] = next;
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_double_eq(((const double *)result[0].data)[i], s[i]);
        ck_assert_double_eq(((const double *)result[1].data)[i], t[i]);
    }
}

START_TEST(scan_of_one)
{
    check_linear(LINEAR("1"), 1);
}
END_TEST

START_TEST(scan_of_seven)
{
    check_linear(LINEAR("7"), 7);
}
END_TEST

/* The memory of one round, whatever their number. */
START_TEST(scan_of_ten_thousand)
{
    check_linear(LINEAR("10000"), 10000);
    ck_assert_uint_lt(cx.arena.used_bytes, (size_t)4 << 20);
}
END_TEST

/* A result that nobody asks for, and one that two nodes ask for. */
START_TEST(siblings_alone_and_twice)
{
    static const char text[] = "sx 1 graph \"g\" {" P("s", "f64[]")
        P("x", "f64[3]") "%y = scan(%s, %x) {carried = 1, sliced = 1, result = 1, step = graph {" P(
            "s", "f64[]")
            P("x",
              "f64[]") "%t = add(%s, %x) : f64[] return %t as \"t\", %s as \"s\"}} : f64[3] "
                       "%z = scan(%s, %x) {carried = 1, sliced = 1, result = 1, step = graph {" P(
                           "s", "f64[]")
                           P("x", "f64[]") "%t = add(%s, %x) : f64[] return %t as "
                                           "\"t\", %s as \"s\"}} : f64[3] "
                                           "%n = negate(%y) : f64[3] %m = add(%n, %n) "
                                           ": f64[3] %e = add(%m, %z) : f64[3] "
                                           "return %e as \"e\"}";
    const double s = 1;
    const double x[3] = {10, 20, 30};
    sx_tensor result;
    ck_sx_ok(&cx, run(text, (const double *const[]){&s, x}, 2, &result, 1));
    const double *found = result.data;
    ck_assert(found[0] == -1 && found[1] == -11 && found[2] == -31);
}
END_TEST

/* Sums of rows inside sums: prefix sums of a matrix along both axes. */
START_TEST(scan_inside_scan)
{
    static const char text[] = "sx 1 graph \"g\" {" P("s", "f64[3]") P("x", "f64[2, 3]")
        P("z", "f64[]") "%e, %y = scan(%s, %x, %z) {carried = 1, sliced = 1, step = graph {" P(
            "s", "f64[3]") P("x", "f64[3]")
            P("z", "f64[]") "%t, %row = scan(%z, %x) {carried = 1, sliced = 1, "
                            "step = graph {" P("a", "f64[]")
                                P("b", "f64[]") "%c = add(%a, %b) : f64[] return %c as \"c\", %c "
                                                "as \"row\"}} : f64[], f64[3] "
                                                "%u = add(%s, %row) : f64[3] return %u as \"u\", "
                                                "%u as \"y\"}} : f64[3], f64[2, 3] "
                                                "return %y as \"y\"}";
    const double s[3] = {0};
    const double x[6] = {1, 2, 3, 4, 5, 6};
    const double z = 0;
    sx_tensor result;
    ck_sx_ok(&cx, run(text, (const double *const[]){s, x, &z}, 3, &result, 1));
    static const double expected[6] = {1, 3, 6, 5, 12, 21};
    ck_assert_mem_eq(result.data, expected, sizeof(expected));
}
END_TEST

/* ---- while ---- */

#define COLLATZ(rounds, more)                                                                      \
    "sx 1 graph \"g\" {" P("x", "f64[]")                                                           \
        P("n",                                                                                     \
          "f64[]") "%u, %v = while(%x, %n) {carried = 2, rounds = " rounds                         \
                   ", condition = graph {" P("x", "f64[]") P(                                      \
                       "n",                                                                        \
                       "f64[]") "%one = constant {data = 1} : f64[] " more " return %c as "        \
                                "\"c\"}, step = graph {" P("x", "f64[]") P(                        \
                                    "n",                                                           \
                                    "f64[]") "%half = constant {data = 0.5} : "                    \
                                             "f64[] %h = multiply(%x, %half) : f64[] %f = "        \
                                             "floor(%h) : f64[] "                                  \
                                             "%even = compare(%h, %f) {direction = eq} : bool[] "  \
                                             "%one = constant {data = 1} : f64[] "                 \
                                             "%m = add(%n, %one) : f64[] %next = cond(%even, %x, " \
                                             "%h) {then = graph {" P("x", "f64[]")                 \
                                                 P("h",                                            \
                                                   "f64[]") "return %h as \"h\"}, otherwise = "    \
                                                            "graph {" P("x", "f64[]") P(           \
                                                                "h",                               \
                                                                "f64[]") "%three = constant "      \
                                                                         "{data = 3} : f64[] "     \
                                                                         "%one = constant {data "  \
                                                                         "= 1} : f64[] "           \
                                                                         "%t = multiply(%x, "      \
                                                                         "%three) : f64[] %o = "   \
                                                                         "add(%t, %one) : f64[] "  \
                                                                         "return %o as \"o\"}} : " \
                                                                         "f64[] "                  \
                                                                         "return %next as \"x\", " \
                                                                         "%m as \"n\"}} : f64[], " \
                                                                         "f64[] return %u as "     \
                                                                         "\"u\", %v as \"v\"}"
#define UNTIL_ONE "%c = compare(%x, %one) {direction = ne} : bool[]"
#define FOR_EVER "%c = compare(%one, %one) {direction = eq} : bool[]"

START_TEST(while_with_branches)
{
    for (uint32_t start = 1; start < 40; start++) {
        double x = start;
        const double zero = 0;
        sx_tensor result[2];
        uint32_t rounds = 0;
        for (uint32_t value = start; value != 1; rounds++) {
            value = value % 2 == 0 ? value / 2 : 3 * value + 1;
        }
        ck_sx_ok(&cx,
                 run(COLLATZ("111", UNTIL_ONE), (const double *const[]){&x, &zero}, 2, result, 2));
        ck_assert_double_eq(*(const double *)result[0].data, 1);
        ck_assert_double_eq(*(const double *)result[1].data, rounds);
    }
}
END_TEST

/* 27 takes 111 rounds. */
START_TEST(while_of_too_many_rounds)
{
    const double x = 27;
    const double zero = 0;
    sx_tensor result[2];
    ck_sx_fails(&cx,
                run(COLLATZ("110", UNTIL_ONE), (const double *const[]){&x, &zero}, 2, result, 2),
                SX_LIMIT, "while: the condition is true after 110 rounds");
    ck_sx_fails(&cx,
                run(COLLATZ("2000", FOR_EVER), (const double *const[]){&x, &zero}, 2, result, 2),
                SX_LIMIT, "while: the condition is true after 2000 rounds");
}
END_TEST

static bool cancel_later(void *self)
{
    uint32_t *asked = self;
    return ++*asked > 1000;
}

START_TEST(while_for_ever_is_stopped)
{
    const double x = 27;
    const double zero = 0;
    sx_tensor result[2];
    uint32_t asked = 0;
    cx.fuel = 20000;
    ck_sx_fails(
        &cx, run(COLLATZ("2000000000", FOR_EVER), (const double *const[]){&x, &zero}, 2, result, 2),
        SX_QUOTA, "out of fuel");
    cx.fuel = UINT64_MAX;
    cx.cancelled = cancel_later;
    cx.cancelled_self = &asked;
    ck_sx_fails(
        &cx, run(COLLATZ("2000000000", FOR_EVER), (const double *const[]){&x, &zero}, 2, result, 2),
        SX_CANCELLED, "cancelled");
}
END_TEST

/* The branch that is not taken is not computed: here it would never end. */
START_TEST(cond_computes_one_branch)
{
    static const char text[] = "sx 1 graph \"g\" {" P("p", "f64[]") P(
        "x",
        "f64[]") "%zero = constant {data = 0} : f64[] %b = compare(%p, "
                 "%zero) {direction = gt} : bool[] "
                 "%y = cond(%b, %x) {then = graph {" P(
                     "x",
                     "f64[]") "return %x as \"x\"}, otherwise = graph "
                              "{" P(
                                  "x",
                                  "f64[]") "%w = while(%x) "
                                           "{carried = 1, "
                                           "rounds = 1000, "
                                           "condition = graph "
                                           "{" P(
                                               "x",
                                               "f64[]") "%t = "
                                                        "const"
                                                        "ant "
                                                        "{data"
                                                        " = "
                                                        "true}"
                                                        " : "
                                                        "bool["
                                                        "] "
                                                        "retur"
                                                        "n %t "
                                                        "as "
                                                        "\"t\""
                                                        "}, "
                                                        "step "
                                                        "= "
                                                        "graph"
                                                        " {" P(
                                                            "x",
                                                            "f64[]") "return %x as \"x\"}} : f64[] "
                                                                     "return %w as \"w\"}} : f64[] "
                                                                     "return %y as \"y\"}";
    const double x = 5;
    sx_tensor result;
    ck_sx_ok(&cx, run(text, (const double *const[]){&(const double){1}, &x}, 2, &result, 1));
    ck_assert_double_eq(*(const double *)result.data, 5);
    ck_sx_fails(&cx, run(text, (const double *const[]){&(const double){-1}, &x}, 2, &result, 1),
                SX_LIMIT, "true after 1000 rounds");
}
END_TEST

/* Every mode and element type: a node alone gives what it gives in a graph. */
START_TEST(every_mode)
{
    static const sx_eval_mode modes[] = {SX_EVAL_F64, SX_EVAL_TYPED, SX_EVAL_MODP, SX_EVAL_POW2};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < 200; trial++) {
        static const sx_op ops[] = {SX_OP_SCAN, SX_OP_WHILE, SX_OP_COND};
        sx_eval_mode mode = modes[trial % SX_COUNT(modes)];
        sx_test_op made;
        sx_tensor input[2];
        sx_graph *graph;
        sx_node_id id[3];
        sx_test_op_make(&cx, &rng, ops[trial % 3], &made);
        ck_sx_ok(&cx, sx_graph_make(&cx, sx_span_of("g"), NULL, &graph));
        for (uint32_t k = 0; k < 2; k++) {
            sx_test_tensor(&cx, &rng, mode, &made.input[k], &input[k]);
            ck_sx_ok(&cx, sx_build_parameter(&cx, graph, k == 0 ? "a" : "b", false, &made.input[k],
                                             &id[k]));
        }
        ck_sx_ok(&cx, sx_graph_add(&cx, graph, made.op, &made.attr, id, 2, &id[2]));
        ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, sx_span_of("y"), id[2]));
        sx_tensor whole;
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph, mode, input, 2, &whole, 1));
        sx_tensor alone = sx_test_eval(&cx, made.op, &made.attr, mode, input, 2);
        sx_test_tensor_equal(&whole, &alone, sx_op_info_of(made.op)->name);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("eval/region");
    TCase *tcase = tcase_create("regions");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, scan_of_one);
    tcase_add_test(tcase, scan_of_seven);
    tcase_add_test(tcase, scan_of_ten_thousand);
    tcase_add_test(tcase, siblings_alone_and_twice);
    tcase_add_test(tcase, scan_inside_scan);
    tcase_add_test(tcase, while_with_branches);
    tcase_add_test(tcase, while_of_too_many_rounds);
    tcase_add_test(tcase, while_for_ever_is_stopped);
    tcase_add_test(tcase, cond_computes_one_branch);
    tcase_add_test(tcase, every_mode);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
