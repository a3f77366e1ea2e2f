/* Node and class counts that egg, egglog and a prototype agree on (research of the field; math-micro is
 * egglog's benchmark). */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/terms.h"

static sx_ctx cx;
static sx_terms t;
static sx_eg_ruleset set;
static sx_eg_run run;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)4 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const sx_eg_limits roomy = {.rounds = 1000,
                                   .nodes = SX_EG_NODES_MAX,
                                   .matches = UINT32_MAX,
                                   .fuel = UINT64_C(1) << 40,
                                   .bytes = SIZE_MAX};

/* After each iteration, breadth first: all matches on the graph as it stands, all applied, one rebuild. */
START_TEST(test_math_micro_counts)
{
    static const uint32_t counts[][2] = {
        {69, 50},     {118, 71},    {208, 116},     {389, 197},      {784, 361},       {1576, 666},
        {3160, 1347}, {8113, 3576}, {28303, 12445}, {136446, 58464}, {1047896, 443832}};
    ck_sx_ok(&cx, sx_terms_init(&cx, &t, false));
    ck_sx_ok(&cx, sx_terms_add_micro(&t));
    ck_assert_uint_eq(t.eg.live_count, 35);
    ck_assert_uint_eq(t.eg.class_count, 35);
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &t.language, sx_terms_micro_rules, 24));
    sx_eg_limits limits = roomy;
    limits.rounds = 1;
    for (uint32_t i = 0; i < SX_COUNT(counts); i++) {
        cx.fuel = UINT64_MAX;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
        ck_assert_int_eq(run.stop, SX_STOP_ROUNDS);
        ck_assert_msg(t.eg.live_count == counts[i][0] && t.eg.class_count == counts[i][1],
                      "iteration %u: %u nodes and %u classes, expected %u and %u", i + 1,
                      t.eg.live_count, t.eg.class_count, counts[i][0], counts[i][1]);
    }
}
END_TEST

/* All sums of subsets of n leaves: 2^n - 1 classes, 3^n - 2^(n+1) + 1 + n nodes. */
START_TEST(test_sums)
{
    static const uint32_t counts[][3] = {
        {3, 15, 7}, {5, 185, 31}, {7, 1939, 127}, {8, 6058, 255}, {9, 18669, 511}};
    for (uint32_t i = 0; i < SX_COUNT(counts); i++) {
        ck_sx_ok(&cx, sx_terms_init(&cx, &t, false));
        ck_sx_ok(&cx, sx_terms_add_sum(&t, counts[i][0]));
        ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &t.language, sx_terms_sum_rules, 3));
        cx.fuel = UINT64_MAX;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &roomy, &run));
        ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
        ck_assert_uint_eq(t.eg.live_count, counts[i][1]);
        ck_assert_uint_eq(t.eg.class_count, counts[i][2]);
        ck_assert_uint_lt(t.eg.node_count, 3 * t.eg.live_count); /* few are made twice */
    }
}
END_TEST

/* Matches whose right side is in its class already are not kept until the end of the search: their list would
 * not fit into this. */
START_TEST(test_idle_matches_take_no_room)
{
    sx_eg_limits limits = roomy;
    limits.bytes = (size_t)7 << 20;
    ck_sx_ok(&cx, sx_terms_init(&cx, &t, false));
    ck_sx_ok(&cx, sx_terms_add_sum(&t, 9));
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &t.language, sx_terms_sum_rules, 3));
    cx.fuel = UINT64_MAX;
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
    ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
    ck_assert_uint_eq(t.eg.live_count, 18669);
    ck_assert_uint_gt(set.rule[1].match_count, 200000); /* though they are counted */
}
END_TEST

/* Operations whose numbers differ by 64, or by the 8 of the hints, are told apart by patterns, on both sides. */
START_TEST(test_many_operations)
{
    static const sx_rule rules[] = {
        {"inner", SX_RULE_EXACT, "(f90 (f26 ?x))", "(f91 ?x)", NULL},
        {"outer", SX_RULE_EXACT, "(f27 ?x)", "(f98 ?x)", NULL},
    };
    static char name[100][8];
    sx_bits ops;
    ck_sx_ok(&cx, sx_terms_init(&cx, &t, false));
    for (uint32_t i = 0; i < SX_COUNT(name); i++) {
        (void)snprintf(name[i], sizeof(name[i]), "f%u", i);
        ck_assert(t.language.ops(&t, sx_span_of(name[i]), false, &ops));
        ck_assert(sx_bits_count(&ops) == 1 && sx_bits_first(&ops) == t.op_count - 1);
    }
    uint32_t same[4], apart[3];
    ck_sx_ok(&cx, sx_terms_add(&t, "(f90 (f26 x))", &same[0]));
    ck_sx_ok(&cx, sx_terms_add(&t, "(f91 x)", &same[1]));
    ck_sx_ok(&cx, sx_terms_add(&t, "(f27 (f90 x))", &same[2]));
    ck_sx_ok(&cx, sx_terms_add(&t, "(f98 (f90 x))", &same[3]));
    ck_sx_ok(&cx, sx_terms_add(&t, "(f26 (f26 x))", &apart[0]));
    ck_sx_ok(&cx, sx_terms_add(&t, "(f90 (f90 x))", &apart[1]));
    ck_sx_ok(&cx, sx_terms_add(&t, "(f27 x)", &apart[2]));
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &t.language, rules, SX_COUNT(rules)));
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &roomy, &run));
    ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
    ck_sx_ok(&cx, sx_eg_check(&cx, &t.eg));
    ck_assert_uint_eq(set.rule[0].match_count, 1);
    ck_assert_uint_eq(set.rule[1].match_count, 2);
    ck_assert_uint_eq(sx_eg_find(&t.eg, same[0]), sx_eg_find(&t.eg, same[1]));
    ck_assert_uint_eq(sx_eg_find(&t.eg, same[2]), sx_eg_find(&t.eg, same[3]));
    for (uint32_t i = 0; i < SX_COUNT(apart); i++) {
        ck_assert_uint_ne(sx_eg_find(&t.eg, apart[i]), sx_eg_find(&t.eg, same[0]));
        ck_assert_uint_ne(sx_eg_find(&t.eg, apart[i]), sx_eg_find(&t.eg, same[2]));
    }
}
END_TEST

/* Back-off with constant folding: rules wait, the run stops at its node limit, and the graph is valid. */
START_TEST(test_math_under_back_off)
{
    ck_sx_ok(&cx, sx_terms_init(&cx, &t, true));
    ck_sx_ok(&cx, sx_terms_add_micro(&t));
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &t.language, sx_terms_math_rules,
                                     sx_terms_math_rule_count));
    sx_eg_limits limits = roomy;
    limits.nodes = 8000;
    limits.matches = 200;
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
    ck_assert_int_eq(run.stop, SX_STOP_NODES);
    ck_sx_ok(&cx, sx_eg_check(&cx, &t.eg));
    uint32_t banned = 0;
    for (uint32_t i = 0; i < set.rule_count; i++) {
        banned += set.rule[i].bans > 0 ? 1 : 0;
    }
    ck_assert_uint_gt(banned, 3);
    double value;
    uint32_t three, five;
    ck_sx_ok(&cx, sx_terms_add(&t, "(sub (mul 2 2) 1)", &three));
    ck_sx_ok(&cx, sx_terms_add(&t, "(add 1 4)", &five));
    ck_assert(sx_terms_value(&t, sx_eg_find(&t.eg, three), &value) && value == 3);
    ck_assert(sx_terms_value(&t, sx_eg_find(&t.eg, five), &value) && value == 5);
}
END_TEST

START_TEST(test_terms_that_are_none)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"(add x", "a symbol"}, {"", "a symbol"}, {"x y", "the end"}, {"(() x)", "an operation"}};
    ck_sx_ok(&cx, sx_terms_init(&cx, &t, false));
    for (uint32_t i = 0; i < SX_COUNT(bad); i++) {
        uint32_t node;
        ck_sx_fails(&cx, sx_terms_add(&t, bad[i].text, &node), SX_INPUT, bad[i].error);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.egraph.terms");
    TCase *cases = tcase_create("terms");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_math_micro_counts);
    tcase_add_test(cases, test_sums);
    tcase_add_test(cases, test_idle_matches_take_no_room);
    tcase_add_test(cases, test_many_operations);
    tcase_add_test(cases, test_math_under_back_off);
    tcase_add_test(cases, test_terms_that_are_none);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
