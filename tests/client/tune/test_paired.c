/* The sign test against exact counts, and what it says of times that jitter: nothing where neither is faster, and the
 * change where one is, with outliers as large as may be. */
#include "client/tune/paired.h"

#include <math.h>

#include "tests/lib/test.h"

/* Of 2^pairs sequences those with so many heads, counted one by one. */
static double counted(uint32_t wins, uint32_t pairs)
{
    uint32_t found = 0;
    for (uint32_t bits = 0; bits < 1U << pairs; bits++) {
        found += (uint32_t)__builtin_popcount(bits) >= wins ? 1 : 0;
    }
    return (double)found / (double)(1U << pairs);
}

START_TEST(test_chance)
{
    for (uint32_t pairs = 0; pairs <= 16; pairs++) {
        for (uint32_t wins = 0; wins <= pairs; wins++) {
            /* lgamma and exp have errors of some 1e-15 each, of a sum of at most 17 of them */
            ck_assert_double_lt(fabs(sxt_chance(wins, pairs) - counted(wins, pairs)), 1e-12);
        }
    }
    ck_assert(sxt_chance(9, 9) > SXT_CHANCE_MAX && sxt_chance(10, 10) <= SXT_CHANCE_MAX);
}
END_TEST

static uint64_t state;
static double jitter(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    double share = (double)(state >> 40) / (double)(1 << 24);
    return (1 + share) * (state >> 33 & 15 ? 1 : 1000);
}

#define PAIRS 48
/* How many of `n` comparisons are certain, where a takes `ratio` of b's time. */
static uint32_t certain(double ratio, uint32_t n, double *median)
{
    uint32_t found = 0;
    sx_ctx cx;
    for (uint32_t i = 0; i < n; i++) {
        double a[PAIRS], b[PAIRS];
        sxt_comparison c;
        sx_ctx_init(&cx, 1 << 16);
        for (uint32_t k = 0; k < PAIRS; k++) {
            double busy = k / 8 % 3 == 2 ? 30 : 1; /* something else runs for a while */
            a[k] = ratio * busy * jitter();
            b[k] = busy * jitter();
        }
        ck_sx_ok(&cx, sxt_compare(&cx, a, 1, b, 1, PAIRS, &c));
        ck_assert(c.pairs <= PAIRS && c.wins <= c.pairs);
        found += c.chance <= SXT_CHANCE_MAX ? 1 : 0;
        *median = c.ratio;
        sx_ctx_fini(&cx);
    }
    return found;
}

START_TEST(test_jitter)
{
    double median;
    state = sx_test_seed();
    /* A false one in a thousand at most: more than 20 of 10000, where 10 are expected, has a chance of 0.002; more than
     * 32 of 10^-8. */
    ck_assert_uint_le(certain(1, 10000, &median), 32);
    /* A wins a pair at 0.5 unless its outlier (1/16) is none of b's: 47 of 50 at least, and 36 of 48 are enough. */
    ck_assert_uint_ge(certain(0.5, 1000, &median), 990);
    ck_assert(median < 0.9);
    ck_assert_uint_eq(certain(2, 1000, &median), 0);
}
END_TEST

START_TEST(test_ties)
{
    const double a[] = {1, 2, 3, 4}, b[] = {1, 2, 3, 5};
    sxt_comparison c;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    ck_sx_ok(&cx, sxt_compare(&cx, a, 1, b, 1, 4, &c));
    ck_assert(c.wins == 1 && c.pairs == 1 && c.ratio == 1 && c.chance == 0.5);
    ck_sx_ok(&cx, sxt_compare(&cx, a, 2, b, 2, 2, &c)); /* every second one */
    ck_assert(c.wins == 0 && c.pairs == 0 && c.chance == 1);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client.tune.paired");
    TCase *tcase = tcase_create("paired");
    tcase_add_test(tcase, test_chance);
    tcase_add_test(tcase, test_jitter);
    tcase_add_test(tcase, test_ties);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
