/* The public collection with 10 s a file: never above the best known, never below what is proven, 9 of 10
 * files proven. */
#include <stdio.h>
#include <time.h>

#include "tests/lib/gym.h"
#include "tests/lib/test.h"

#define SECONDS 10
#define PROVEN_LEAST 39

static bool is_expired(void *self)
{
    struct timespec now;
    const struct timespec *end = self;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > end->tv_sec || (now.tv_sec == end->tv_sec && now.tv_nsec >= end->tv_nsec);
}

static bool solve(const sx_gym_row *r)
{
    sx_ctx cx;
    sx_buf text;
    sxc_egraph g;
    sx_xt_answer a;
    struct timespec end;
    sx_ctx_init(&cx, (size_t)2 << 30);
    ck_sx_ok(&cx, sx_gym_load(&cx, r->file, &text, &g));
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += SECONDS;
    sx_xt_options options = {.fuel = UINT64_MAX, .expired = is_expired, .expired_self = &end};
    ck_sx_ok(&cx, sx_xt_solve(&cx, &g.problem, &options, &a));
    ck_assert_msg(a.dag_cost <= r->best_cost * (1 + 1e-9), "%s: cost %.15g, best known %.15g",
                  r->file, a.dag_cost, r->best_cost);
    ck_assert_msg(r->proofs == 0 || a.dag_cost >= r->best_cost * (1 - 1e-9),
                  "%s: cost %.15g is below the proven %.15g", r->file, a.dag_cost, r->best_cost);
    ck_assert_double_le(a.lower_bound, r->best_cost * (1 + 1e-9));
    if (!a.proven) {
        printf("%s: %.15g, at least %.15g\n", r->file, a.dag_cost, a.lower_bound);
    }
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
    return a.proven;
}

START_TEST(test_collection)
{
    sx_gym_row row[SX_GYM_FILES];
    sx_ctx cx;
    uint32_t proven = 0;
    sx_ctx_init(&cx, (size_t)1 << 20);
    ck_sx_ok(&cx, sx_gym_rows(&cx, row));
    for (uint32_t i = 0; i < SX_GYM_FILES; i++) {
        proven += solve(&row[i]) ? 1 : 0;
    }
    printf("%u of %u files proven\n", proven, (uint32_t)SX_GYM_FILES);
    ck_assert_uint_ge(proven, PROVEN_LEAST);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.extraction");
    TCase *cases = tcase_create("extraction");
    tcase_set_timeout(cases, 550);
    tcase_add_test(cases, test_collection);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
