/* Forms, terms, runs and records: normal forms, overflow, digits, sets that meet and sets that do not. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/base/rng.h"
#include "core/judge/record.h"

typedef struct {
    sx_ctx cx;
    sx_algebra g;
} fixture;

static void open_fixture(fixture *f)
{
    sx_ctx_init(&f->cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&f->cx, sx_algebra_init(&f->cx, &f->g));
}

/* Element of buffer 0 at coefficient * variable + constant. */
static uint32_t element(sx_algebra *g, uint32_t var, int64_t coefficient, int64_t constant)
{
    return sx_term_element(g, 0, SX_MEM_LANE, sx_form_var(g, var, coefficient, constant), 0);
}

static uint32_t add(sx_algebra *g, uint32_t sum, uint32_t x)
{
    return sx_term_op(g, SX_LOP_ADD, 0, sum, x, 0);
}

/* The sum of `count` elements from byte `from` on, `step` bytes apart, in loops: `inner` elements to an iteration. */
static uint32_t sum_of(sx_algebra *g, uint32_t first, int64_t from, int64_t step, int64_t count,
                       int64_t inner)
{
    uint32_t sum = first;
    if (count / inner > 0) {
        uint32_t hole = sx_term_hole(g, 7, 0);
        uint32_t next = hole;
        for (int64_t k = 0; k < inner; k++) {
            next = add(g, next, element(g, 3, step * inner, from + k * step));
        }
        sum = sx_term_close(g, first, hole, next, 3, count / inner);
    }
    for (int64_t k = count / inner * inner; k < count; k++) {
        sum = add(g, sum,
                  sx_term_element(g, 0, SX_MEM_LANE, sx_form_constant(g, from + k * step), 0));
    }
    return sum;
}

START_TEST(test_runs_have_one_form)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    uint32_t zero = sx_term_constant(g, 0);
    for (int64_t count = 1; count < 40; count++) {
        uint32_t straight = sum_of(g, zero, 64, 4, count, 1);
        for (int64_t inner = 1; inner <= 9; inner++) {
            ck_assert_uint_eq(sum_of(g, zero, 64, 4, count, inner), straight);
        }
        ck_assert_uint_ne(sum_of(g, zero, 64, 4, count + 1, 1), straight); /* one more */
        ck_assert_uint_ne(sum_of(g, zero, 68, 4, count, 1), straight);     /* others */
        ck_assert_uint_ne(sum_of(g, sx_term_constant(g, 1), 64, 4, count, 1), straight);
        if (count > 1) { /* the other way round: another sequence */
            ck_assert_uint_ne(sum_of(g, zero, 64 + 4 * (count - 1), -4, count, 1), straight);
        }
    }
    ck_assert_msg(!g->refused, "%s", g->why);
    sx_ctx_fini(&f.cx);
}
END_TEST

/* Rows of `n` elements 1000 bytes apart: two counts, or one where the rows are neighbours. */
START_TEST(test_nested_runs)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    uint32_t zero = sx_term_constant(g, 0);
    for (int64_t rows = 1; rows <= 5; rows++) {
        for (int64_t n = 1; n <= 7; n++) {
            uint32_t straight = zero;
            uint32_t flat = zero;
            for (int64_t r = 0; r < rows; r++) {
                straight = sum_of(g, straight, 1000 * r, 4, n, 1);
                flat = sum_of(g, flat, 4 * n * r, 4, n, 1);
            }
            uint32_t hole = sx_term_hole(g, 1, 0);
            sx_lin lin;
            sx_lin_init(&lin, 0);
            sx_lin_add(g, &lin, 4, 1000);
            sx_lin_add(g, &lin, 5, 4);
            uint32_t next =
                add(g, hole, sx_term_element(g, 0, SX_MEM_LANE, sx_form_put(g, &lin), 0));
            next = sx_term_close(g, hole, hole, next, 5, n);
            ck_assert_uint_eq(sx_term_close(g, zero, hole, next, 4, rows), straight);
            ck_assert_uint_eq(sum_of(g, zero, 0, 4, n * rows, 1), flat);
        }
    }
    ck_assert_msg(!g->refused, "%s", g->why);
    sx_ctx_fini(&f.cx);
}
END_TEST

START_TEST(test_carried_values_that_mix)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    uint32_t zero = sx_term_constant(g, 0);
    uint32_t a = sx_term_hole(g, 1, 0);
    uint32_t b = sx_term_hole(g, 2, 0);
    (void)sx_term_close(g, zero, a, add(g, b, element(g, 3, 4, 0)), 3, 5);
    ck_assert(g->refused);
    sx_ctx_fini(&f.cx);
}
END_TEST

START_TEST(test_overflow)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    sx_lin lin = {.constant = INT64_MAX, .vars = 0};
    sx_lin_add_constant(g, &lin, 1);
    ck_assert(g->refused);
    sx_algebra_reset(g);
    lin = (sx_lin){.constant = 0, .vars = 0};
    sx_lin_add(g, &lin, 3, INT64_C(1) << 40);
    g->low[3] = 0;
    g->high[3] = INT64_C(1) << 40;
    int64_t low, high;
    ck_assert(!sx_lin_range(g, &lin, &low, &high));
    ck_assert(g->refused);
    sx_algebra_reset(g);
    (void)sx_lin_avoids(g, &lin, -1, 1);
    ck_assert(g->refused);
    sx_ctx_fini(&f.cx);
}
END_TEST

/* What sx_lin_avoids calls apart never meets, by enumeration; and it finds most of what does not meet. */
START_TEST(test_sets_that_meet)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    sx_rng rng = {sx_test_seed()};
    uint32_t apart = 0;
    uint32_t found = 0;
    for (uint32_t round = 0; round < 20000; round++) {
        sx_lin lin = {.constant = (int64_t)sx_rng_below(&rng, 200) - 100, .vars = 0};
        for (uint32_t v = 3; v < 6; v++) {
            sx_lin_add(g, &lin, v, (int64_t)sx_rng_below(&rng, 60) - 30);
            g->low[v] = (int64_t)sx_rng_below(&rng, 3);
            g->high[v] = g->low[v] + (int64_t)sx_rng_below(&rng, 5);
        }
        int64_t low = -(int64_t)sx_rng_below(&rng, 6) - 1;
        int64_t high = (int64_t)sx_rng_below(&rng, 6) + 1;
        bool meets = false;
        for (int64_t i = g->low[3]; i <= g->high[3]; i++) {
            for (int64_t j = g->low[4]; j <= g->high[4]; j++) {
                for (int64_t k = g->low[5]; k <= g->high[5]; k++) {
                    int64_t value[] = {i, j, k};
                    int64_t sum = lin.constant;
                    for (uint32_t v = 3; v < 6; v++) {
                        sum += (lin.vars & SX_VAR_BIT(v)) != 0 ? lin.coef[v] * value[v - 3] : 0;
                    }
                    meets = meets || (sum > low && sum < high);
                }
            }
        }
        bool avoids = sx_lin_avoids(g, &lin, low, high);
        ck_assert_msg(!(avoids && meets), "round %u", round);
        apart += !meets;
        found += avoids;
    }
    ck_assert_uint_gt(found, apart / 4);
    sx_ctx_fini(&f.cx);
}
END_TEST

static sx_record vector_at(sx_algebra *g, int64_t from, uint32_t count, int64_t source)
{
    sx_record r = {.buffer = 1, .width = 4, .dims = 1, .count = {count}};
    r.address = sx_form_var(g, SX_VAR_STORE, 4, from);
    r.value = element(g, SX_VAR_STORE, 4, source);
    return r;
}

START_TEST(test_records_join)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    sx_records list = {0};
    for (int64_t row = 0; row < 5; row++) { /* a block of 5 rows of 24 elements, 100 apart */
        for (int64_t v = 0; v < 3; v++) {
            sx_record r = vector_at(g, 400 * row + 32 * v, 8, 96 * row + 32 * v);
            sx_records_put(g, &list, 0, &r);
        }
    }
    ck_assert_uint_eq(list.count, 1);
    ck_assert_uint_eq(list.record[0].dims, 2);
    ck_assert_int_eq(list.record[0].count[0], 24);
    ck_assert_int_eq(list.record[0].count[1], 5);
    ck_assert_int_eq(list.record[0].low,
                     0); /* of the joined record, not of the first that was put */
    ck_assert_int_eq(list.record[0].end, 400 * 4 + 96);
    uint32_t value = 0;
    ck_assert_int_eq(
        sx_record_read(g, &list.record[0], sx_form_constant(g, 400 * 3 + 4 * 11), 4, &value),
        SX_READ_COVERED);
    ck_assert_uint_eq(value,
                      sx_term_element(g, 0, SX_MEM_LANE, sx_form_constant(g, 96 * 3 + 44), 0));
    ck_assert_int_eq(sx_record_read(g, &list.record[0], sx_form_constant(g, 96), 4, &value),
                     SX_READ_APART);
    ck_assert_int_eq(sx_record_read(g, &list.record[0], sx_form_constant(g, 94), 4, &value),
                     SX_READ_UNKNOWN); /* half an element of it */
    /* a loop whose iterations store to the same place is no set */
    sx_record r = vector_at(g, 0, 8, 0);
    sx_lin lin;
    sx_lin_get(g, r.address, &lin);
    sx_lin_add(g, &lin, 3, 28);
    r.address = sx_form_put(g, &lin);
    ck_assert(!sx_record_close(g, &r, 3, 4));
    sx_ctx_fini(&f.cx);
}
END_TEST

/* Every point is looked at: the bytes that are reached begin with the first of them and end with the last. */
START_TEST(test_bytes_reached)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    sx_rng rng = {sx_test_seed()};
    const int64_t count[2] = {3, 5};
    int64_t low, end;
    g->low[3] = -2;
    g->high[3] = 4;
    g->low[SX_VAR_STORE] = g->high[SX_VAR_STORE] = 99; /* of another record */
    for (uint32_t round = 0; round < 200; round++) {
        int64_t c[4]; /* constant, loop variable, two store variables */
        sx_lin lin;
        for (uint32_t k = 0; k < 4; k++) {
            c[k] = (int64_t)sx_rng_below(&rng, 200) - 100;
        }
        sx_lin_init(&lin, c[0]);
        sx_lin_add(g, &lin, 3, c[1]);
        sx_lin_add(g, &lin, SX_VAR_STORE, c[2]);
        sx_lin_add(g, &lin, SX_VAR_STORE + 1, c[3]);
        sx_bytes_reached(g, sx_form_put(g, &lin), 4, 2, count, &low, &end);
        int64_t first = INT64_MAX;
        int64_t last = INT64_MIN;
        for (int64_t point = 0; point < 7 * 3 * 5; point++) {
            int64_t at =
                c[0] + c[1] * (point % 7 - 2) + c[2] * (point / 7 % 3) + c[3] * (point / 21);
            first = sx_min_i64(first, at);
            last = sx_max_i64(last, at);
        }
        ck_assert_msg(low == first && end == last + 4, "round %u", round);
    }
    sx_bytes_reached(g, sx_form_var(g, 3, INT64_MAX / 2, 0), 4, 0, NULL, &low, &end);
    ck_assert_msg(low == INT64_MIN && end == INT64_MAX, "a range that overflows is no range");
    ck_assert(!g->refused);
    sx_ctx_fini(&f.cx);
}
END_TEST

/* A later store between two that could be joined keeps them apart if it meets them. */
START_TEST(test_order_of_records)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    sx_records list = {0};
    sx_record first = vector_at(g, 0, 8, 0);
    sx_record over = vector_at(g, 40, 2, 5000);
    sx_record next = vector_at(g, 32, 8, 32);
    sx_records_put(g, &list, 0, &first);
    sx_records_put(g, &list, 0, &over);
    sx_records_put(g, &list, 0, &next); /* would continue the first, and hides `over` */
    ck_assert_uint_eq(list.count, 3);
    sx_ctx_fini(&f.cx);
}
END_TEST

#define POOL 40u
/* Terms of all kinds of operations over variables 0, 1 and 2, which stand for the forms `at`. The same seed
 * gives the same terms: chains, runs, operations whose factors are exchanged, and those that fold. */
static void build(sx_algebra *g, uint64_t seed, const uint32_t at[3], uint32_t pool[POOL])
{
    static const sx_lop op[] = {SX_LOP_ADD,  SX_LOP_MUL,  SX_LOP_FMA, SX_LOP_MAX,
                                SX_LOP_IADD, SX_LOP_IMUL, SX_LOP_SUB, SX_LOP_BLEND};
    sx_rng rng = {seed};
    for (uint32_t k = 0; k < POOL; k++) {
        uint32_t kind = k < 8 ? 0 : (uint32_t)sx_rng_below(&rng, 8);
        uint32_t x = k == 0 ? 0 : pool[sx_rng_below(&rng, k)];
        uint32_t y = k == 0 ? 0 : pool[sx_rng_below(&rng, k)];
        uint32_t z = k == 0 ? 0 : pool[sx_rng_below(&rng, k)];
        sx_lin lin;
        sx_lin_init(&lin, 4 * (int64_t)sx_rng_below(&rng, 8));
        for (uint32_t v = 0; v < 3; v++) {
            sx_lin_add_form(g, &lin, at[v], 4 * (int64_t)sx_rng_below(&rng, 3));
        }
        uint32_t form = sx_form_put(g, &lin);
        if (kind == 0) {
            pool[k] = sx_term_element(g, (uint32_t)sx_rng_below(&rng, 2), SX_MEM_LANE, form, 0);
        } else if (kind == 1) {
            pool[k] = sx_term_int(g, form);
        } else if (kind == 2) { /* a chain over a variable of its own, which the run binds */
            uint32_t hole = sx_term_hole(g, k, 0);
            sx_lin_add(g, &lin, 9, 32);
            uint32_t next = sx_term_element(g, 0, SX_MEM_LANE, sx_form_put(g, &lin), 0);
            next = add(g, add(g, hole, next), g->term[x].holes ? pool[0] : x);
            pool[k] = sx_term_close(g, y, hole, next, 9, 2 + (int64_t)sx_rng_below(&rng, 3));
        } else {
            sx_lop which = op[sx_rng_below(&rng, SX_COUNT(op))];
            bool three = which == SX_LOP_FMA || which == SX_LOP_BLEND;
            pool[k] = sx_term_op(g, which, 0, x, y, three ? z : 0);
        }
    }
}

/* Terms made over other names for their variables are the terms under a substitution by these names, though that
 * does not make them anew: it keeps the normal form, without which right kernels are refused. */
START_TEST(test_renaming_keeps_the_normal_form)
{
    uint64_t seed = sx_test_seed();
    for (uint32_t round = 0; round < 60; round++) {
        fixture f;
        open_fixture(&f);
        sx_algebra *g = &f.g;
        uint32_t before[POOL], after[POOL];
        uint32_t plain[3], at[3];
        sx_subst s;
        sx_subst_begin(g, &s);
        for (uint32_t v = 0; v < 3; v++) {
            uint32_t to = round % 3 == 0 ? 4 + (v + round) % 3 : round % 3 == 1 ? (v + 1) % 3 : v;
            sx_lin lin;
            sx_lin_init(&lin, (int64_t)(round % 7));
            sx_lin_add(g, &lin, to, 1 + round % 5);
            if (round % 4 == 3 && v == 1) {
                sx_lin_add(g, &lin, 8, 3);
            }
            plain[v] = sx_form_var(g, v, 1, 0);
            at[v] = sx_form_put(g, &lin);
            sx_subst_var(&s, v, at[v]);
        }
        build(g, seed + round, plain, before);
        build(g, seed + round, at, after);
        for (uint32_t k = 0; k < POOL; k++) {
            ck_assert_msg(sx_term_subst(g, before[k], &s) == after[k] || g->refused,
                          "round %u, term %u", round, k);
        }
        ck_assert_msg(!g->refused || strstr(g->why, "too deeply") != NULL, "%s", g->why);
        sx_ctx_fini(&f.cx);
    }
}
END_TEST

#define ASKED 120u
typedef struct {
    uint32_t term, to[3], hole;
    uint32_t vars; /* bits of those that are replaced */
} asked_subst;

static uint32_t answer_to(sx_algebra *g, const asked_subst *a, bool share)
{
    sx_subst s;
    sx_subst_begin(g, &s);
    for (uint32_t v = 0; v < 3; v++) {
        if ((a->vars >> v & 1) != 0) {
            sx_subst_var(&s, v, a->to[v]);
        }
    }
    s.hole = a->hole;
    s.acc = SX_TERM_THE_ACC;
    if (share) {
        sx_subst_share(g, &s);
    }
    return sx_term_subst(g, a->term, &s);
}

/* What was found under one substitution is used under an equal one, whatever was asked between. */
START_TEST(test_equal_substitutions_share)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t moved = 0;
    for (uint32_t round = 0; round < 30; round++) {
        fixture f;
        open_fixture(&f);
        sx_algebra *g = &f.g;
        uint32_t plain[3], to[4], hole[2], pool[POOL], got[ASKED];
        asked_subst asked[ASKED];
        for (uint32_t v = 0; v < 4; v++) {
            plain[v % 3] = sx_form_var(g, v % 3, 1, 0);
            to[v] = v == 0 ? sx_form_constant(g, 3) : sx_form_var(g, v + 3, 2, v);
        }
        build(g, sx_rng_next(&rng), plain, pool);
        hole[0] = sx_term_hole(g, 100, 0);
        hole[1] = sx_term_hole(g, 101, 0);
        for (uint32_t k = 0; k < ASKED; k++) {
            asked_subst *a = &asked[k];
            a->vars = 1 + (uint32_t)sx_rng_below(&rng, 7);
            for (uint32_t v = 0; v < 3; v++) {
                a->to[v] = to[sx_rng_below(&rng, 4)];
            }
            uint32_t which = (uint32_t)sx_rng_below(&rng, 4);
            a->term = pool[sx_rng_below(&rng, 8)];
            a->hole = which < 2 ? hole[which] : 0;
            if (which < 2) {
                uint32_t other =
                    hole[sx_rng_below(&rng, 2)]; /* often not the one that is replaced */
                a->term = sx_term_op(g, SX_LOP_SUB, 0, other, a->term, 0);
            }
            a->term = sx_term_op(g, SX_LOP_SUB, 0, a->term, pool[sx_rng_below(&rng, POOL)], 0);
            got[k] = answer_to(g, a, true);
        }
        for (uint32_t k = 0; k < ASKED && !g->refused; k++) {
            ck_assert_uint_eq(got[k], answer_to(g, &asked[k], false));
            moved += got[k] != asked[k].term;
        }
        sx_ctx_fini(&f.cx);
    }
    ck_assert_uint_gt(moved, 1000);
}
END_TEST

/* A value for a variable: the way that makes nothing anew gives the term that the other way gives. And whether a
 * term becomes another is the same question as whether the term that is made is the other. */
START_TEST(test_values_for_variables)
{
    uint64_t seed = sx_test_seed();
    uint32_t same = 0;
    uint32_t not_same = 0;
    for (uint32_t round = 0; round < 60; round++) {
        fixture f;
        open_fixture(&f);
        sx_algebra *g = &f.g;
        uint32_t pool[POOL];
        uint32_t plain[3];
        for (uint32_t v = 0; v < 3; v++) {
            plain[v] = sx_form_var(g, v, 1, 0);
        }
        build(g, seed + round, plain, pool);
        uint32_t shift = sx_form_var(g, 1, 1, 4 * (round % 5));
        for (uint32_t k = 0; k < POOL && !g->refused; k++) {
            sx_subst s;
            sx_subst_begin(g, &s);
            sx_subst_var(&s, round % 3, round % 2 == 0 ? sx_form_constant(g, 3) : shift);
            uint32_t made = sx_term_subst(g, pool[k], &s);
            if (g->refused) { /* runs that nest too deeply */
                break;
            }
            if (round % 2 == 0) {
                ck_assert_uint_eq(sx_term_fix(g, pool[k], round % 3, 3), made);
            }
            for (uint32_t j = 0; j < POOL; j++) {
                sx_subst_begin(g, &s); /* no notes of the term that was made */
                ck_assert(sx_term_becomes(g, pool[k], pool[j], &s) == (pool[j] == pool[k]));
                sx_subst_begin(g, &s);
                sx_subst_var(&s, round % 3, round % 2 == 0 ? sx_form_constant(g, 3) : shift);
                ck_assert(sx_term_becomes(g, pool[k], pool[j], &s) == (pool[j] == made));
                same += pool[j] == made;
                not_same += pool[j] != made;
            }
            sx_subst_begin(g, &s);
            sx_subst_var(&s, round % 3, round % 2 == 0 ? sx_form_constant(g, 3) : shift);
            ck_assert(sx_term_becomes(g, pool[k], made, &s));
        }
        sx_ctx_fini(&f.cx);
    }
    ck_assert_uint_gt(same, 0);
    ck_assert_uint_gt(not_same, 0);
}
END_TEST

/* Links of a chain that have no common form become a run where a value of the variable gives them one, and a choice
 * between two elements no choice. */
START_TEST(test_values_that_join)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    uint32_t zero = sx_term_constant(g, 0);
    uint32_t links = add(g, add(g, zero, element(g, 3, 4, 0)), element(g, 3, 8, 0));
    uint32_t joined = add(g, add(g, zero, element(g, 0, 0, 4)), element(g, 0, 0, 8));
    ck_assert_uint_eq(sx_term_fix(g, links, 3, 1), joined);
    uint32_t mask = sx_term_op(g, SX_LOP_CMP, SX_GT, element(g, 4, 4, 0), zero, 0);
    uint32_t choice =
        sx_term_op(g, SX_LOP_BLEND, 0, mask, element(g, 3, 4, 4), element(g, 3, 8, 0));
    ck_assert_uint_eq(sx_term_fix(g, choice, 3, 1), element(g, 0, 0, 8));
    ck_assert_uint_eq(sx_term_fix(g, sx_term_int(g, sx_form_var(g, 3, 4, 0)), 3, 1),
                      sx_term_constant(g, 4));
    ck_assert(!g->refused);
    sx_ctx_fini(&f.cx);
}
END_TEST

/* Two variables are one where each form has the second as often as it must; else they stay two. */
START_TEST(test_flat_terms)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    sx_lin lin;
    sx_lin_init(&lin, 20);
    sx_lin_add(g, &lin, 3, 4);
    sx_lin_add(g, &lin, 5, 24);
    uint32_t x = sx_term_element(g, 0, SX_MEM_LANE, sx_form_put(g, &lin), 0);
    uint32_t sum = add(g, x, element(g, 9, 4, 0));
    ck_assert_uint_eq(sx_term_flat(g, sum, 3, 5, 6),
                      add(g, element(g, 3, 4, 20), element(g, 9, 4, 0)));
    ck_assert_uint_eq(sx_term_flat(g, sum, 3, 5, 5), 0);
    ck_assert_uint_eq(sx_term_flat(g, add(g, x, element(g, 3, 4, 0)), 3, 5, 6), 0);
    ck_assert_uint_eq(sx_term_flat(g, add(g, x, element(g, 5, 24, 0)), 3, 5, 6), 0);
    ck_assert_uint_eq(sx_term_flat(g, element(g, 9, 4, 0), 3, 5, 6), element(g, 9, 4, 0));
    ck_assert(!g->refused);
    sx_ctx_fini(&f.cx);
}
END_TEST

/* A position v - 2 with v from 0 to 4, its extremes, and comparisons: decided by ranges, and only when they are asked
 * again (sx_term_settle). */
START_TEST(test_ranges_of_positions)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    const sx_lop greatest = (sx_lop)SX_LOP_IMAX, least = (sx_lop)SX_LOP_IMIN;
    g->low[3] = 0;
    g->high[3] = 4;
    uint32_t x = sx_term_int(g, sx_form_var(g, 3, 1, -2));
    uint32_t zero = sx_term_constant(g, 0), one = sx_term_constant(g, 1);
    uint32_t two = sx_term_constant(g, 2), five = sx_term_constant(g, 5);
    uint32_t not_negative = sx_term_op(g, greatest, 0, x, zero, 0);
    uint32_t bounded = sx_term_op(g, least, 0, not_negative, two, 0);
    uint32_t is_negative = sx_term_op(g, SX_LOP_ICMP, SX_GT, zero, bounded, 0);
    const struct {
        uint32_t term, settled;
    } cases[] = {
        {sx_term_op(g, greatest, 0, x, five, 0), five},
        {sx_term_op(g, least, 0, x, five, 0), x},
        {sx_term_op(g, least, 0, five, x, 0), x},
        {not_negative, not_negative},
        {bounded, not_negative}, /* 2 where it is 2 */
        {is_negative, zero},
        {sx_term_op(g, SX_LOP_ICMP, SX_GT, five, bounded, 0), one},
        {sx_term_op(g, SX_LOP_BLEND, 0, is_negative, element(g, 3, 4, 0), five), five},
        {sx_term_op(g, SX_LOP_ICMP, SX_GT, bounded, zero, 0),
         sx_term_op(g, SX_LOP_ICMP, SX_GT, not_negative, zero, 0)},
    };
    for (uint32_t i = 0; i < SX_COUNT(cases); i++) {
        ck_assert_msg(sx_term_settle(g, cases[i].term) == cases[i].settled, "case %u", i);
    }
    ck_assert_uint_ne(is_negative, zero);
    ck_assert_msg(!g->refused, "%s", g->why);
    sx_ctx_fini(&f.cx);
}
END_TEST

/* 2^30 v with v from 1 to 4 is negative in a lane of 4 bytes where v is 2 or 3. */
START_TEST(test_ranges_beyond_lanes)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    g->low[3] = 1;
    g->high[3] = 4;
    uint32_t x = sx_term_int(g, sx_form_var(g, 3, INT64_C(1) << 30, 0));
    uint32_t zero = sx_term_constant(g, 0);
    uint32_t is_negative = sx_term_op(g, SX_LOP_ICMP, SX_GT, zero, x, 0);
    uint32_t greatest = sx_term_op(g, (sx_lop)SX_LOP_IMAX, 0, x, zero, 0);
    ck_assert_uint_eq(sx_term_settle(g, is_negative), is_negative);
    ck_assert_uint_eq(sx_term_settle(g, greatest), greatest);
    g->wide = true;
    ck_assert_uint_eq(sx_term_settle(g, is_negative), zero);
    ck_assert_uint_eq(sx_term_settle(g, greatest), x);
    sx_ctx_fini(&f.cx);
}
END_TEST

/* 8 v with v from 0 to 4: narrowed to so many bits and widened with its sign it is itself, if it has no more. */
START_TEST(test_positions_narrowed)
{
    fixture f;
    open_fixture(&f);
    sx_algebra *g = &f.g;
    g->low[3] = 0;
    g->high[3] = 4;
    for (uint32_t wide = 0; wide < 2; wide++) {
        g->wide = wide != 0;
        uint32_t x = sx_term_int(g, sx_form_var(g, 3, 8, 0));
        for (uint32_t bits = 4; bits <= 32; bits++) {
            if (bits == 32 && !g->wide) { /* it has no other bits, and its sign is one of them */
                continue;
            }
            uint32_t all = sx_term_constant(g, (UINT64_C(1) << bits) - 1);
            uint32_t top = sx_term_constant(g, UINT64_C(1) << (bits - 1));
            uint32_t low = sx_term_op(g, SX_LOP_AND, 0, x, all, 0);
            uint32_t added = sx_term_op(g, SX_LOP_XOR, 0, x, top, 0);
            ck_assert_int_eq(low == x, bits >= 6); /* 32 has six bits */
            ck_assert_int_eq(sx_term_op(g, SX_LOP_ISUB, 0, added, top, 0) == x, bits >= 7);
        }
        uint32_t five = sx_term_constant(g, 5);
        ck_assert_uint_ne(sx_term_op(g, SX_LOP_AND, 0, x, five, 0), x);
        uint32_t odd = sx_term_constant(g, 65);
        ck_assert_int_eq((int)g->term[sx_term_op(g, SX_LOP_XOR, 0, x, odd, 0)].kind, SX_TERM_OP);
        g->low[3] = -1; /* a negative number has all upper bits */
        uint32_t y = sx_term_int(g, sx_form_var(g, 3, 4, 0));
        uint32_t byte = sx_term_constant(g, 255), sign = sx_term_constant(g, 128);
        ck_assert_uint_ne(sx_term_op(g, SX_LOP_AND, 0, y, byte, 0), y);
        ck_assert_int_eq((int)g->term[sx_term_op(g, SX_LOP_XOR, 0, y, sign, 0)].kind, SX_TERM_OP);
        g->low[3] = 0;
    }
    sx_ctx_fini(&f.cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/algebra");
    TCase *cases = tcase_create("algebra");
    tcase_add_test(cases, test_runs_have_one_form);
    tcase_add_test(cases, test_nested_runs);
    tcase_add_test(cases, test_carried_values_that_mix);
    tcase_add_test(cases, test_ranges_of_positions);
    tcase_add_test(cases, test_ranges_beyond_lanes);
    tcase_add_test(cases, test_positions_narrowed);
    tcase_add_test(cases, test_overflow);
    tcase_add_test(cases, test_sets_that_meet);
    tcase_add_test(cases, test_bytes_reached);
    tcase_add_test(cases, test_records_join);
    tcase_add_test(cases, test_order_of_records);
    tcase_add_test(cases, test_renaming_keeps_the_normal_form);
    tcase_add_test(cases, test_equal_substitutions_share);
    tcase_add_test(cases, test_values_for_variables);
    tcase_add_test(cases, test_values_that_join);
    tcase_add_test(cases, test_flat_terms);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
