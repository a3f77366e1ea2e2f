/* Numbers that follow two symbols become cases that hold at every pair of values; and where a case is lost or wrong at
 * a single pair, that is seen. Each pair is worked out here by going through all cases, one after the other. */
#include "core/curves.h"

#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "tests/lib/test.h"

#define CASES 4096u
#define SLOTS 3u
#define NUMBERS (SX_CURVES_GRID + SLOTS)

static sx_ctx cx;
static sx_points points;
static sx_pipe_steady steady;
static uint32_t point[SX_POINTS_MAX];
static int64_t number[NUMBERS][SX_POINTS_MAX];
static sx_module_case row[CASES];
static sx_module_number of_row[8 * CASES];
static sx_curves curves;
static sx_pipe_cases cases;
static uint32_t place[SX_COMES_SLOTS_MAX];

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = SX_FUEL_DEFAULT;
}
static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* A part that is there where `wanted` rows of blocks of `block` are left over; its numbers. */
typedef struct {
    bool both; /* presence follows each symbol for itself, else their product */
    int64_t block, left;
} part_of;

static bool has_part(const part_of *p, int64_t b, int64_t s)
{
    return p->both ? s % p->block == p->left && b >= 2 : b * s % p->block == p->left;
}

static void numbers_at(const part_of *p, int64_t b, int64_t s, int64_t *n)
{
    n[0] = p->both ? b : b * s / p->block + 1;
    n[1] = p->both ? s / p->block + 1 : 3;
    n[2] = 1;
    n[3] = 40 * b * s;                        /* an offset behind all rows */
    n[4] = s / 5;                             /* blocks of keys */
    n[5] = p->both && b > 3 ? 7 * b : 21 + b; /* a bend */
}

static void collect(const part_of *p, const int64_t *high)
{
    steady = (sx_pipe_steady){
        .symbol = {1, 0}, .symbol_count = 2, .low = {1, 1}, .high = {high[0], high[1]}};
    ck_sx_ok(&cx, sx_points_make(&cx, &steady, &points));
    ck_assert_uint_eq(points.count, (uint64_t)(high[0] * high[1]));
    curves = (sx_curves){.point = point, .number_count = NUMBERS};
    for (uint32_t i = 0; i < points.count; i++) {
        const sx_pipe_point at = sx_points_at(&points, i);
        int64_t n[NUMBERS];
        numbers_at(p, at.value[0], at.value[1], n);
        if (!has_part(p, at.value[0], at.value[1])) {
            continue;
        }
        for (uint32_t k = 0; k < NUMBERS; k++) {
            number[k][curves.count] = n[k];
        }
        point[curves.count++] = i;
    }
    for (uint32_t k = 0; k < NUMBERS; k++) {
        curves.number[k] = number[k];
    }
    cases = (sx_pipe_cases){
        .row = row, .number = of_row, .capacity = CASES, .number_capacity = 8 * CASES};
}

/* What the cases make of a pair: *has, and the numbers in the order of `numbers_at`. */
static void read_cases(int64_t b, int64_t s, bool *has, int64_t *n)
{
    uint32_t groups = 0, holding = 0;
    for (uint32_t i = 0; i < cases.count; i++) {
        groups = row[i].group + 1 > groups ? row[i].group + 1 : groups;
    }
    for (uint32_t g = 0; g < groups; g++) {
        for (uint32_t i = 0; i < cases.count; i++) {
            int64_t value = row[i].other != SX_MODULE_NONE ? b * s : row[i].symbol == 1 ? b : s;
            if (row[i].group != g || value < row[i].low || value > row[i].high ||
                value % row[i].modulus != row[i].remainder) {
                continue;
            }
            holding++;
            for (uint32_t k = 0; k < row[i].number_count; k++) {
                const sx_module_number *its = &of_row[row[i].number_first + k];
                int64_t times = its->scale * value + its->offset; /* a loader takes whole ones */
                bool is_whole = times % row[i].modulus == 0;
                n[row[i].slot + k] = is_whole ? times / row[i].modulus : INT64_MIN;
            }
            break;
        }
    }
    *has = groups > 0 && holding == groups;
    int64_t sorted[NUMBERS];
    for (uint32_t k = 0; k < NUMBERS; k++) {
        sorted[k] = n[k < SX_CURVES_GRID ? k : place[k - SX_CURVES_GRID] + SX_CURVES_GRID];
    }
    memcpy(n, sorted, sizeof(sorted));
}

/* The first point, as they are numbered, at which cases say something else; false: there is none. */
static bool find_wrong(const part_of *p, sx_pipe_point *wrong)
{
    bool found = false;
    for (uint32_t i = 0; i < points.count && !found; i++) {
        *wrong = sx_points_at(&points, i);
        int64_t n[NUMBERS] = {0}, want[NUMBERS];
        bool has, should = has_part(p, wrong->value[0], wrong->value[1]);
        read_cases(wrong->value[0], wrong->value[1], &has, n);
        numbers_at(p, wrong->value[0], wrong->value[1], want);
        found = has != should || (has && memcmp(n, want, sizeof(want)) != 0);
    }
    return found;
}

static part_of draw(sx_rng *rng, int64_t *high)
{
    part_of p = {.both = sx_rng_below(rng, 2) == 0, .block = 2 + (int64_t)sx_rng_below(rng, 23)};
    p.left = (int64_t)sx_rng_below(rng, (uint64_t)p.block);
    high[0] = 4 + (int64_t)sx_rng_below(rng, 6);
    high[1] = p.block + (int64_t)sx_rng_below(rng, 60);
    return p;
}

START_TEST(test_cases_hold_at_every_pair)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < 60; trial++) {
        int64_t high[2];
        sx_pipe_point wrong;
        const part_of p = draw(&rng, high);
        collect(&p, high);
        ck_sx_ok(&cx, sx_curves_put(&cx, &points, &curves, 0, &cases, place));
        ck_assert_msg(!find_wrong(&p, &wrong), "%d, %d", (int)wrong.value[0], (int)wrong.value[1]);
    }
}
END_TEST

/* One fault in the cases, of several kinds. */
static void plant(sx_rng *rng, uint32_t kind)
{
    uint32_t at = (uint32_t)sx_rng_below(rng, cases.count);
    if (kind == 0) { /* a run that is lost */
        memmove(&row[at], &row[at + 1], (cases.count - at - 1) * sizeof(*row));
        cases.count--;
    } else if (kind == 1) { /* one that ends early, or */
        row[at].high = row[at].high > row[at].low ? row[at].high - row[at].modulus : 0;
    } else if (kind == 2) { /* late */
        row[at].high += row[at].modulus;
    } else if (cases.number_count > 0) { /* a number that grows otherwise */
        of_row[sx_rng_below(rng, cases.number_count)].scale += 1;
    }
}

/* What is lost at a few pairs is seen, and the first of them is named. */
START_TEST(test_faults_are_seen)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t seen[4] = {0};
    for (uint32_t trial = 0; trial < 240; trial++) {
        int64_t high[2];
        sx_pipe_point wrong;
        const part_of p = draw(&rng, high);
        collect(&p, high);
        ck_sx_ok(&cx, sx_curves_put(&cx, &points, &curves, 0, &cases, place));
        plant(&rng, trial % 4);
        sx_code code = sx_curves_check(&cx, &points, &curves, &cases, 0, place);
        if (find_wrong(&p, &wrong)) {
            char text[80];
            (void)snprintf(text, sizeof(text), "cases that do not hold at %d, %d",
                           (int)wrong.value[0], (int)wrong.value[1]);
            ck_sx_fails(&cx, code, SX_INTERNAL, text);
            seen[trial % 4]++;
        } else {
            ck_sx_ok(&cx, code); /* what is never asked for */
        }
    }
    for (uint32_t k = 0; k < 4; k++) {
        ck_assert_uint_gt(seen[k], 0);
    }
}
END_TEST

/* A number, or a presence, that no axis tells, is refused: there are no cases that hold almost everywhere. */
START_TEST(test_what_no_axis_tells)
{
    const int64_t high[2] = {9, 40};
    const part_of p = {.block = 6, .left = 2};
    collect(&p, high);
    uint32_t at = 0; /* a pair of whose values and product there are others */
    while (memcmp(sx_points_at(&points, point[at]).value, (int64_t[]){2, 4}, sizeof(high)) != 0) {
        at++;
    }
    number[4][at] += 1;
    ck_sx_fails(&cx, sx_curves_put(&cx, &points, &curves, 0, &cases, place), SX_UNIMPLEMENTED,
                "follows both symbols");
    collect(&p, high);
    curves.count--; /* the part is not there */
    memmove(&point[at], &point[at + 1], (curves.count - at) * sizeof(*point));
    for (uint32_t k = 0; k < NUMBERS; k++) {
        memmove(&number[k][at], &number[k][at + 1], (curves.count - at) * sizeof(**number));
    }
    ck_sx_fails(&cx, sx_curves_put(&cx, &points, &curves, 0, &cases, place), SX_UNIMPLEMENTED,
                "for values of both symbols");
    steady.high[0] = SX_POINTS_MAX;
    ck_sx_fails(&cx, sx_points_make(&cx, &steady, &points), SX_LIMIT, "pairs of values");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("curves");
    TCase *tcase = tcase_create("curves");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_cases_hold_at_every_pair);
    tcase_add_test(tcase, test_faults_are_seen);
    tcase_add_test(tcase, test_what_no_axis_tells);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
