/* The public collection within little fuel: tree costs exact, DAG costs as good as the best known, proofs. The
 * rest of its proofs is in tests/e2e/test_extraction.c. */
#include <math.h>
#include <string.h>

#include "tests/lib/gym.h"
#include "tests/lib/test.h"

#define FUEL UINT64_C(60000000)

/* Not proven within this fuel. */
static const char *const hard[] = {"egg/math_associate_adds.json", "tensat/vgg.json",
                                   "rover/box_filter_3iteration_egraph.json"};

static bool is_hard(const char *file)
{
    bool found = false;
    for (uint32_t i = 0; i < SX_COUNT(hard); i++) {
        found = found || strcmp(file, hard[i]) == 0;
    }
    return found;
}

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

START_TEST(test_collection)
{
    sx_gym_row row[SX_GYM_FILES];
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 30);
    ck_sx_ok(&cx, sx_gym_rows(&cx, row));
    const sx_gym_row *r = &row[_i];
    sx_buf text;
    sxc_egraph g;
    sx_xt_answer a;
    sx_xt_walk walk;
    sx_xt_options options = {.fuel = FUEL};
    ck_sx_ok(&cx, sx_gym_load(&cx, r->file, &text, &g));
    ck_assert_uint_eq(g.problem.node_count, r->nodes);
    ck_assert_uint_eq(g.problem.class_count, r->classes);
    ck_assert_uint_eq(g.problem.root_count, r->roots);
    ck_sx_ok(&cx, sx_xt_solve(&cx, &g.problem, &options, &a));
    ck_sx_ok(&cx, sx_xt_walk_run(&cx, &g.problem, a.choice, &walk));
    ck_assert(walk.whole);
    ck_assert_double_eq(walk.cost, a.dag_cost);
    ck_assert_msg(close_to(a.tree_cost, r->tree_cost), "%s: tree %.15g, not %.15g", r->file,
                  a.tree_cost, r->tree_cost);
    ck_assert_msg(close_to(a.dag_cost, r->best_cost), "%s: cost %.15g, best known %.15g", r->file,
                  a.dag_cost, r->best_cost);
    ck_assert_double_le(a.lower_bound, r->best_cost * (1 + 1e-9));
    ck_assert_msg(a.proven || is_hard(r->file), "%s: not proven: at least %.15g of %.15g", r->file,
                  a.lower_bound, a.dag_cost);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.extract.gym");
    TCase *cases = tcase_create("gym");
    tcase_add_loop_test(cases, test_collection, 0, SX_GYM_FILES);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
