/* What is right by the rounded reference alone is right by both references, whatever rounding does. */
#include "tests/lib/test.h"

#include <math.h>

#include "client/verify/compare.h"
#include "client/verify/whole.h"
#include "core/base/rng.h"

#define ELEMENTS 1000
typedef struct {
    sx_cell exact[ELEMENTS];
    float typed[ELEMENTS], got[ELEMENTS];
    sx_type type;
    bool tf32; /* factors are rounded to it */
} fixture;

static sxv_comparison compare(const fixture *f, bool exact, bool wide)
{
    sxv_comparison result;
    sxv_pair pair = {&f->type, exact ? f->exact : NULL, NULL, f->typed, f->tf32};
    sxv_compare(&pair, f->got, wide, NULL, &result);
    return result;
}

/* Elements of many magnitudes, rounded ones that are off by `spread` units, got ones by `off` from those. */
static void fixture_make(fixture *f, sx_rng *rng, double spread, double off)
{
    f->type = (sx_type){.dtype = SX_F32, .rank = 1, .dim = {sx_dim_of(ELEMENTS)}};
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        double magnitude = ldexp(1, -(int)(i / 100));
        double value = (double)sx_rng_f32(rng) * magnitude;
        double rounded = value + (double)sx_rng_f32(rng) * spread * 0x1p-24 * magnitude;
        f->exact[i].f = value;
        f->typed[i] = (float)rounded;
        f->got[i] =
            (float)((double)f->typed[i] + (double)sx_rng_f32(rng) * off * 0x1p-24 * magnitude);
    }
}

START_TEST(test_rounded_is_stricter)
{
    static fixture f;
    sx_rng rng = {sx_test_seed()};
    uint32_t right = 0;
    uint32_t unknown = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        bool wide = i % 2 == 1;
        fixture_make(&f, &rng, ldexp(1, (int)sx_rng_below(&rng, 16)),
                     ldexp(1, (int)sx_rng_below(&rng, 10)));
        sxv_comparison rounded = compare(&f, false, wide);
        ck_assert(rounded.verdict == SXV_RIGHT || rounded.verdict == SXV_UNKNOWN);
        right += rounded.verdict == SXV_RIGHT;
        unknown += rounded.verdict == SXV_UNKNOWN;
        if (rounded.verdict == SXV_RIGHT) {
            ck_assert_int_eq(compare(&f, true, wide).verdict, SXV_RIGHT);
            ck_assert(rounded.error <= rounded.bound && rounded.finite == ELEMENTS);
        }
    }
    ck_assert_uint_gt(right, 100);
    ck_assert_uint_gt(unknown, 100);
}
END_TEST

/* An element in each group that rounding alone decides. In each way to round one of them lies on the exact result by
 * chance, another one each time: so every way by itself refuses what all of them together explain, and no more. */
START_TEST(test_several_roundings)
{
    static fixture f;
    double spread[ELEMENTS / SXV_GROUP + 1] = {0};
    sx_rng rng = {sx_test_seed()};
    const double noise = 0.01;
    fixture_make(&f, &rng, 0, 0);
    for (uint32_t way = 0; way < 4; way++) {
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            bool decided = i % SXV_GROUP == 7;
            double by = (0.5 + 0.5 * fabs((double)sx_rng_f32(&rng))) * noise;
            f.exact[i].f = decided ? 0 : 1;
            f.typed[i] = !decided ? 1.0F : i / SXV_GROUP == way ? 0 : (float)by;
            f.got[i] = decided ? (float)-noise : 1.0F;
        }
        ck_assert_int_eq(compare(&f, true, false).verdict, SXV_WRONG);
        sxv_comparison all;
        sxv_pair pair = {&f.type, f.exact, NULL, f.typed, false};
        sxv_compare(&pair, f.got, false, spread, &all);
        ck_assert_int_eq(all.verdict == SXV_WRONG, way == 0);
        ck_assert_uint_eq(all.wrong, way == 0);
        f.got[7 + 3 * SXV_GROUP] = 1; /* 100 times as far as anything explains */
        sxv_compare(&pair, f.got, false, spread, &all);
        ck_assert_int_eq(all.verdict, SXV_WRONG);
        ck_assert_uint_eq(all.worst, way == 0 ? 7 : 7 + 3 * SXV_GROUP);
    }
}
END_TEST

/* Two roundings of factors to tf32 are imprecise or wrong for f32, and right where a module rounds so. */
START_TEST(test_tf32)
{
    static fixture f;
    sx_rng rng = {sx_test_seed()};
    fixture_make(&f, &rng, 0.5, 0);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        f.got[i] = f.typed[i] * (1 + (i % 2 == 0 ? 0x1p-10F : -0x1p-10F));
    }
    f.tf32 = false;
    ck_assert_int_eq(compare(&f, true, true).verdict, SXV_WRONG);
    f.tf32 = true;
    ck_assert_int_eq(compare(&f, true, true).verdict, SXV_RIGHT);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        f.got[i] = f.typed[i] * 1.125F; /* no rounding explains it */
    }
    ck_assert_int_eq(compare(&f, true, true).verdict, SXV_WRONG);
    f.tf32 = false;
}
END_TEST

/* One element in the middle that is off, not finite, or not finite in the rounded reference. */
START_TEST(test_one_element)
{
    static fixture f;
    static const float wrong[] = {0.5F, 1e-5F, -1e-5F, (float)NAN, (float)INFINITY};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < SX_COUNT(wrong); i++) {
        uint32_t at = (uint32_t)sx_rng_below(&rng, ELEMENTS);
        fixture_make(&f, &rng, 1, 0);
        f.got[at] = f.typed[at];
        ck_assert_int_eq(compare(&f, false, false).verdict, SXV_RIGHT);
        f.got[at] += wrong[i];
        ck_assert_int_eq(compare(&f, false, false).verdict, SXV_UNKNOWN);
        fixture_make(&f, &rng, 1, 0);
        f.typed[at] = f.got[at] = i % 2 == 0 ? (float)NAN : (float)INFINITY;
        ck_assert_int_eq(compare(&f, false, false).verdict, SXV_UNKNOWN);
        ck_assert_int_eq(compare(&f, true, false).verdict, SXV_RIGHT); /* the range was left */
    }
}
END_TEST

/* Of several outputs the one that is furthest out by its own bound is told, in whatever order they come; integers,
 * which have no bound, hide none of the others while they are right. */
START_TEST(test_furthest_output)
{
    static const struct {
        double first_error, first_bound, second_error, second_bound, error, bound;
    } row[] = {
        {1e-7, 1e-6, 0, 0, 1e-7, 1e-6},
        {1e-7, 1e-6, 5e-7, 1e-6, 5e-7, 1e-6},
        {1e-7, 1e-6, 2e-7, 1e-5, 1e-7, 1e-6},
        {0, 1e-6, 0, 0, 0, 1e-6},
        {1e-7, 1e-6, 1, 0, 1, 0},
    };
    for (uint32_t r = 0; r < SX_COUNT(row); r++) {
        sxv_whole a = {.error = row[r].first_error, .bound = row[r].first_bound};
        sxv_whole b = {.error = row[r].second_error, .bound = row[r].second_bound};
        for (uint32_t swapped = 0; swapped < 2; swapped++) {
            sxv_whole all = {0};
            sxv_whole_add(&all, swapped ? &b : &a);
            sxv_whole_add(&all, swapped ? &a : &b);
            ck_assert_msg(all.error == row[r].error && all.bound == row[r].bound,
                          "row %u: %g of %g", r, all.error, all.bound);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verify.compare");
    TCase *cases = tcase_create("compare");
    tcase_add_test(cases, test_rounded_is_stricter);
    tcase_add_test(cases, test_one_element);
    tcase_add_test(cases, test_several_roundings);
    tcase_add_test(cases, test_tf32);
    tcase_add_test(cases, test_furthest_output);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
