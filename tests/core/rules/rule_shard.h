/* rule_shard.h - the program that tries every SHARDS-th rule of the table, beginning with SHARD.
 * SX_RULE=name tries one rule only, SX_INSTANCES=n another number of instances. */
#include <errno.h>

#include "tests/core/rules/rule_trial.h"

#define SHARDS 4
#define SLICES 8
#define INSTANCES 200u

static uint64_t seed;

/* _i: a slice of the shard, so that slow rules do not add up in one case */
START_TEST(test_rules_hold)
{
    const char *only = getenv("SX_RULE");
    const char *wanted = getenv("SX_INSTANCES");
    uint32_t instances =
        wanted != NULL ? (uint32_t)strtoul(wanted, NULL, 10) : sx_test_trials(INSTANCES);
    static verdict v;
    for (uint32_t r = SHARD + SHARDS * (uint32_t)_i; r < SX_RULE_ROUNDS_COUNT;
         r += SHARDS * SLICES) {
        const sx_rule *rule = &sx_rules[r];
        habit h = habit_of(r);
        if (only != NULL && strcmp(only, rule->name) != 0) {
            continue;
        }
        try_rule(seed, rule, &h, instances, &v);
        ck_assert_msg(holds(&v, rule->rule_class, &h),
                      "rule %s (%s): of %u instances %u equal in bits, %u in residues, %u in "
                      "pairs, %u over small "
                      "numbers, worst deviation %g of what is allowed, %u ill-typed; again: "
                      "SX_SEED=%llu SX_RULE=%s %s\n%s",
                      rule->name, sx_rule_class_name(rule->rule_class), v.fired, v.exact, v.modular,
                      v.fields, v.ordered, v.worst, v.refused, (unsigned long long)seed, rule->name,
                      program_invocation_name, v.failure);
        ck_assert_msg(v.fired >= instances || getenv("SX_PAIRS") != NULL,
                      "rule %s: %u instances in %u attempts", rule->name, v.fired, v.attempts);
    }
}
END_TEST

/* The same rules on symbolic extents, evaluated at several bindings. */
START_TEST(test_rules_hold_on_symbols)
{
    const char *only = getenv("SX_RULE");
    const char *wanted = getenv("SX_INSTANCES");
    uint32_t instances =
        (wanted != NULL ? (uint32_t)strtoul(wanted, NULL, 10) : sx_test_trials(INSTANCES)) / 10;
    static verdict v;
    for (uint32_t r = SHARD + SHARDS * (uint32_t)_i;
         r < SX_RULE_ROUNDS_COUNT && getenv("SX_PAIRS") == NULL; r += SHARDS * SLICES) {
        const sx_rule *rule = &sx_rules[r];
        habit h = habit_of(r);
        if (only != NULL && strcmp(only, rule->name) != 0) {
            continue;
        }
        try_rule_on_symbols(seed, rule, &h, instances, &v);
        ck_assert_msg(holds(&v, rule->rule_class, &h),
                      "rule %s (%s) on symbols: of %u bound pairs %u equal in bits, %u in "
                      "residues, %u in pairs, %u over small numbers, worst deviation %g of what is "
                      "allowed, %u ill-typed; again: SX_SEED=%llu SX_RULE=%s %s\n%s",
                      rule->name, sx_rule_class_name(rule->rule_class), v.fired, v.exact, v.modular,
                      v.fields, v.ordered, v.worst, v.refused, (unsigned long long)seed, rule->name,
                      program_invocation_name, v.failure);
        ck_assert_msg(v.symbolic >= instances, "rule %s: %u symbolic instances in %u attempts",
                      rule->name, v.symbolic, v.attempts);
    }
}
END_TEST

int main(void)
{
    seed = sx_test_seed();
    Suite *suite = suite_create("core.rules.rules");
    TCase *cases = tcase_create("rules");
    tcase_add_loop_test(cases, test_rules_hold, 0, SLICES);
    tcase_add_loop_test(cases, test_rules_hold_on_symbols, 0, SLICES);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
