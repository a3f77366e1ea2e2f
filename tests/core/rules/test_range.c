/* Every reassociating rule does to the range of intermediate values what range.def says. SX_RULE=name tries
 * one rule only. */
#include <errno.h>

#include "tests/core/rules/range_trial.h"

#define SLICES 16
#define PROGRAMS 3u
#define RANGE_ATTEMPTS 60000u

static uint64_t seed;

/* Until `most` programs are tried and some point of theirs could be judged, or one breaks it. */
static void try_rule_range(const sx_rule *rule, const habit *h, sx_rule_range range, uint32_t most,
                           range_verdict *v)
{
    sx_rng rng = {seed ^ sx_hash64(sx_span_of(rule->name), 2)};
    memset(v, 0, sizeof(*v));
    for (uint32_t i = 0;
         i < RANGE_ATTEMPTS && (v->programs < most || v->judged == 0) && v->broken == 0; i++) {
        range_attempt(&rng, rule, h, range, v);
    }
}

/* Equal bits on extreme values, which test_rules_1.c to _4.c try, are the same range. */
START_TEST(test_exact_rules_keep)
{
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        ck_assert_msg(sx_rule_class_of(r) != SX_RULE_EXACT || sx_rule_range_of(r) == SX_RANGE_KEEPS,
                      "%s", sx_rule_name(r));
        ck_assert((sx_rule_range_of(r) == SX_RANGE_KEEPS) == (sx_rule_range_why(r) == NULL));
    }
}
END_TEST

/* Rows that say too much of themselves: rules that move the range stated as keeping it, and as folding weights. */
START_TEST(test_wrong_rows_are_caught)
{
    static const uint32_t moves[] = {
        SX_RULE_MULTIPLY_ASSOCIATE_FAR_LEFT, SX_RULE_DIVIDE_DIVIDE_FAR,
        SX_RULE_DOT_SCALE_FAR_LEFT,          SX_RULE_CONV_SCALE_FAR_INPUT,
        SX_RULE_ATTENTION_SCALED_FAR_QUERY,  SX_RULE_DOT_ASSOCIATE_FAR_LEFT};
    static const uint32_t folds[] = {SX_RULE_CONV_BATCH_NORM, SX_RULE_SCALE_INTO_WEIGHT};
    static range_verdict v;
    for (uint32_t i = 0; i < SX_COUNT(moves) + SX_COUNT(folds); i++) {
        uint32_t r = i < SX_COUNT(moves) ? moves[i] : folds[i - SX_COUNT(moves)];
        habit h = habit_of(r);
        try_rule_range(&sx_rules[r], &h, SX_RANGE_KEEPS, 40, &v);
        ck_assert_msg(v.broken > 0, "%s as \"keeps\": nothing in %u programs", sx_rules[r].name,
                      v.programs);
        if (i < SX_COUNT(moves)) {
            try_rule_range(&sx_rules[r], &h, SX_RANGE_FOLDS, 40, &v);
            ck_assert_msg(v.broken > 0, "%s as \"folds\": nothing in %u programs", sx_rules[r].name,
                          v.programs);
        }
    }
}
END_TEST

START_TEST(test_rules_keep_their_range)
{
    static range_verdict v;
    const char *only = getenv("SX_RULE");
    for (uint32_t r = (uint32_t)_i; r < SX_RULE_ROUNDS_COUNT; r += SLICES) {
        const sx_rule *rule = &sx_rules[r];
        habit h = habit_of(r);
        sx_rule_range range = sx_rule_range_of(r);
        if (rule->rule_class == SX_RULE_EXACT || (only != NULL && strcmp(only, rule->name) != 0)) {
            continue;
        }
        try_rule_range(rule, &h, range,
                       range == SX_RANGE_MOVES ? 8 * PROGRAMS : sx_test_trials(PROGRAMS), &v);
        const char *again = program_invocation_name;
        if (range == SX_RANGE_MOVES) {
            ck_assert_msg(v.broken > 0,
                          "rule %s moves the range, but no program of %u shows it; again: "
                          "SX_SEED=%llu SX_RULE=%s %s",
                          rule->name, v.programs, (unsigned long long)seed, rule->name, again);
        } else {
            ck_assert_msg(v.broken == 0,
                          "rule %s %s the range, but not at magnitudes%s; again: SX_SEED=%llu "
                          "SX_RULE=%s %s",
                          rule->name, sx_rule_range_name(range), v.witness,
                          (unsigned long long)seed, rule->name, again);
            ck_assert_msg(v.programs > 0 && v.judged > 0, "rule %s: %u programs, %u points judged",
                          rule->name, v.programs, v.judged);
        }
    }
}
END_TEST

int main(void)
{
    seed = sx_test_seed();
    Suite *suite = suite_create("core.rules.range");
    TCase *cases = tcase_create("range");
    tcase_add_test(cases, test_exact_rules_keep);
    tcase_add_test(cases, test_wrong_rows_are_caught);
    tcase_add_loop_test(cases, test_rules_keep_their_range, 0, SLICES);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
