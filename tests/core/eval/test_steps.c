/* Programs that keep state, run several times, against sums and sequences done by hand. */
#include <string.h>

#include "core/eval/eval.h"
#include "core/ir/effect.h"
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

/* a, b = b, a + b: each new version is made of the old ones, whichever output comes first. */
static const char fibonacci[] =
    "sx 1 graph \"f\" { %a = parameter {name = \"a\", weight = 0} : i64[] state = 0 "
    "%b = parameter {name = \"b\", weight = 0} : i64[] state = 1 %c = add(%a, %b) : i64[] "
    "return %b as \"a\" into \"a\", %c as \"b\" into \"b\", %a as \"now\" }";

START_TEST(test_versions)
{
    static const int64_t number[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55};
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(fibonacci), &graph));
    for (uint32_t steps = 1; steps < SX_COUNT(number); steps++) {
        sx_tensor argument[2] = {{.type = graph->node[0].type}, {.type = graph->node[1].type}};
        sx_tensor result[3];
        ck_sx_ok(&cx,
                 sx_graph_eval_steps(&cx, graph, SX_EVAL_TYPED, steps, argument, 2, result, 3));
        ck_assert_int_eq(*(int64_t *)argument[0].data, number[steps]);
        ck_assert_int_eq(*(int64_t *)result[2].data, number[steps - 1]);
    }
}
END_TEST

/* State that is given is not begun anew; no step leaves it as it is, and 3 and then 4 steps are 7. */
START_TEST(test_continued)
{
    sx_graph *graph;
    sx_tensor argument[2] = {{.data = NULL}}, result[3] = {{.data = NULL}};
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(fibonacci), &graph));
    ck_sx_ok(&cx, sx_graph_eval_steps(&cx, graph, SX_EVAL_TYPED, 0, argument, 2, result, 3));
    ck_assert_int_eq(*(int64_t *)argument[1].data, 1);
    ck_assert_ptr_null(result[0].data);
    ck_sx_ok(&cx, sx_graph_eval_steps(&cx, graph, SX_EVAL_TYPED, 3, argument, 2, result, 3));
    ck_sx_ok(&cx, sx_graph_eval_steps(&cx, graph, SX_EVAL_TYPED, 4, argument, 2, result, 3));
    ck_assert_int_eq(*(int64_t *)argument[0].data, 13);
    ck_assert_int_eq(*(int64_t *)argument[1].data, 21);
    ck_sx_fails(&cx, sx_graph_eval_steps(&cx, graph, SX_EVAL_TYPED, 1, argument, 1, result, 3),
                SX_INPUT, "1 arguments for 2 parameters");
}
END_TEST

/* In residues mod p too; the first value as a list; what is donated is the same in every run. */
START_TEST(test_modes)
{
    static const char text[] =
        "sx 1 graph \"f\" { %s = parameter {name = \"s\", weight = 0} : f32[2] state = [1, 0.5] "
        "%x = parameter {name = \"x\", weight = 0} : f32[2] donated %y = multiply(%s, %x) : f32[2] "
        "return %y as \"s\" into \"s\", %y as \"y\" into \"x\" }";
    sx_graph *graph;
    double two[2] = {2, 3};
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    sx_tensor argument[2] = {{.data = NULL}, {graph->node[1].type, two}}, result[2];
    ck_sx_ok(&cx, sx_graph_eval_steps(&cx, graph, SX_EVAL_F64, 3, argument, 2, result, 2));
    ck_assert(((double *)argument[0].data)[0] == 8 && ((double *)argument[0].data)[1] == 13.5);
    ck_assert(argument[1].data == two);
    uint64_t residue[2] = {2, 3}, p = UINT64_C(2147483647);
    sx_tensor exact[2] = {{.data = NULL}, {graph->node[1].type, residue}};
    ck_sx_ok(&cx, sx_graph_eval_steps(&cx, graph, SX_EVAL_MODP, 3, exact, 2, result, 2));
    ck_assert_uint_eq(((uint64_t *)exact[0].data)[0], 8);
    ck_assert_uint_eq(((uint64_t *)exact[0].data)[1] * 2 % p, 27);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.eval.steps");
    TCase *cases = tcase_create("steps");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_versions);
    tcase_add_test(cases, test_continued);
    tcase_add_test(cases, test_modes);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
