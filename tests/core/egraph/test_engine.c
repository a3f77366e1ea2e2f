/* The engine on plain symbols: congruence against a naive closure, exact node and class counts, limits, determinism. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/base/rng.h"
#include "core/egraph/match.h"
#include "tests/core/rules/symbols.h"

static sx_ctx cx;
static sx_eg eg;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    ck_sx_ok(&cx, sx_eg_init(&cx, &eg, NULL));
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static uint32_t add(uint16_t op, uint32_t attr, uint32_t arity, uint32_t a, uint32_t b)
{
    uint32_t child[2] = {a, b};
    uint32_t node;
    ck_sx_ok(&cx, sx_eg_add(&cx, &eg, op, attr, child, arity, &node));
    return node;
}

static const sx_eg_limits roomy = {.rounds = 1000,
                                   .nodes = 10000000,
                                   .matches = 100000000,
                                   .fuel = UINT64_C(1) << 40,
                                   .bytes = SIZE_MAX,
                                   .check = true};

/* A term store with classes as plain labels: union relabels everything, closure runs over all pairs until
 * nothing moves. */
#define NAIVE_MAX 400
typedef struct {
    uint16_t op;
    uint32_t attr, arity, child[2], label;
} naive_node;
static naive_node naive[NAIVE_MAX];
static uint32_t naive_count;

static void naive_relabel(uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < naive_count; i++) {
        if (naive[i].label == from) {
            naive[i].label = to;
        }
    }
}

static void naive_close(void)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < naive_count; i++) {
            for (uint32_t j = 0; j < i; j++) {
                const naive_node *a = &naive[i];
                const naive_node *b = &naive[j];
                bool same = a->op == b->op && a->attr == b->attr && a->arity == b->arity;
                for (uint32_t k = 0; same && k < a->arity; k++) {
                    same = naive[a->child[k]].label == naive[b->child[k]].label;
                }
                if (same && a->label != b->label) {
                    naive_relabel(a->label, b->label);
                    moved = true;
                }
            }
        }
    }
}

START_TEST(test_congruence_against_naive)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < 40; trial++) {
        ck_sx_ok(&cx, sx_eg_init(&cx, &eg, NULL));
        uint32_t term[NAIVE_MAX];
        naive_count = 0;
        uint32_t size = 20 + (uint32_t)sx_rng_below(&rng, 60);
        while (naive_count < size) {
            naive_node fresh = {.label = naive_count};
            fresh.arity = naive_count < 3 ? 0 : (uint32_t)sx_rng_below(&rng, 3);
            fresh.op = (uint16_t)(fresh.arity + sx_rng_below(&rng, 2) * 3);
            fresh.attr = (uint32_t)sx_rng_below(&rng, 2);
            for (uint32_t k = 0; k < fresh.arity; k++) {
                fresh.child[k] = (uint32_t)sx_rng_below(&rng, naive_count);
            }
            uint32_t child[2] = {term[fresh.child[0]], term[fresh.child[1]]};
            ck_sx_ok(&cx, sx_eg_add(&cx, &eg, fresh.op, fresh.attr, child, fresh.arity,
                                    &term[naive_count]));
            naive[naive_count++] = fresh;
            if (sx_rng_below(&rng, 6) == 0) {
                uint32_t a = (uint32_t)sx_rng_below(&rng, naive_count);
                uint32_t b = (uint32_t)sx_rng_below(&rng, naive_count);
                ck_sx_ok(&cx, sx_eg_union(&cx, &eg, term[a], term[b], SX_EG_RULE_GIVEN));
                naive_close();
                naive_relabel(naive[a].label, naive[b].label);
            }
            if (sx_rng_below(&rng, 4) == 0) {
                ck_sx_ok(&cx, sx_eg_rebuild(&cx, &eg));
                ck_sx_ok(&cx, sx_eg_check(&cx, &eg));
            }
        }
        naive_close();
        ck_sx_ok(&cx, sx_eg_rebuild(&cx, &eg));
        ck_sx_ok(&cx, sx_eg_check(&cx, &eg));
        for (uint32_t i = 0; i < naive_count; i++) {
            for (uint32_t j = 0; j < i; j++) {
                ck_assert_msg((naive[i].label == naive[j].label) ==
                                  (sx_eg_find(&eg, term[i]) == sx_eg_find(&eg, term[j])),
                              "trial %u: terms %u and %u", trial, i, j);
            }
        }
    }
}
END_TEST

/* gcd by congruence: f^a(x) = x and f^b(x) = x leave gcd(a, b) classes and one node more. */
START_TEST(test_gcd)
{
    static const uint32_t pair[][3] = {{12, 18, 6}, {7, 5, 1}, {30, 42, 6}, {64, 48, 16}};
    for (uint32_t i = 0; i < SX_COUNT(pair); i++) {
        ck_sx_ok(&cx, sx_eg_init(&cx, &eg, NULL));
        uint32_t power[65];
        power[0] = add(OP_LEAF, 0, 0, 0, 0);
        for (uint32_t k = 1; k <= 64; k++) {
            power[k] = add(OP_F, 0, 1, power[k - 1], 0);
        }
        ck_sx_ok(&cx, sx_eg_union(&cx, &eg, power[pair[i][0]], power[0], SX_EG_RULE_GIVEN));
        ck_sx_ok(&cx, sx_eg_union(&cx, &eg, power[pair[i][1]], power[0], SX_EG_RULE_GIVEN));
        ck_sx_ok(&cx, sx_eg_rebuild(&cx, &eg));
        ck_sx_ok(&cx, sx_eg_check(&cx, &eg));
        ck_assert_uint_eq(eg.class_count, pair[i][2]);
        ck_assert_uint_eq(eg.live_count, pair[i][2] + 1);
    }
}
END_TEST

static const sx_rule sum_rules[] = {
    {"commute", SX_RULE_EXACT, "(add ?a ?b)", "(add ?b ?a)", NULL},
    {"left", SX_RULE_EXACT, "(add ?a (add ?b ?c))", "(add (add ?a ?b) ?c)", NULL},
    {"right", SX_RULE_EXACT, "(add (add ?a ?b) ?c)", "(add ?a (add ?b ?c))", NULL},
};

static uint32_t add_sum(uint32_t leaves)
{
    uint32_t sum = add(OP_LEAF, leaves, 0, 0, 0);
    for (uint32_t k = leaves - 1; k >= 1; k--) {
        sum = add(OP_ADD, 0, 2, add(OP_LEAF, k, 0, 0, 0), sum);
    }
    return sum;
}

static uint32_t power_of(uint32_t base, uint32_t exponent)
{
    uint32_t power = 1;
    for (uint32_t i = 0; i < exponent; i++) {
        power *= base;
    }
    return power;
}

START_TEST(test_sums_reach_exact_counts)
{
    for (uint32_t n = 2; n <= 8; n++) {
        ck_sx_ok(&cx, sx_eg_init(&cx, &eg, NULL));
        (void)add_sum(n);
        sx_eg_ruleset set;
        ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, sum_rules, 3));
        sx_eg_limits limits = roomy;
        limits.check = n <= 6;
        sx_eg_run run;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &limits, &run));
        ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
        ck_assert_uint_eq(eg.class_count, power_of(2, n) - 1);
        ck_assert_uint_eq(eg.live_count, power_of(3, n) - power_of(2, n + 1) + 1 + n);
    }
}
END_TEST

START_TEST(test_associativity_alone)
{
    for (uint32_t n = 2; n <= 12; n += 5) {
        ck_sx_ok(&cx, sx_eg_init(&cx, &eg, NULL));
        (void)add_sum(n);
        sx_eg_ruleset set;
        ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, &sum_rules[1], 2));
        sx_eg_run run;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &roomy, &run));
        ck_assert_uint_eq(eg.class_count, n * (n + 1) / 2);
        ck_assert_uint_eq(eg.live_count, n + (n - 1) * n * (n + 1) / 6);
    }
}
END_TEST

/* A rule that is put back by its match limit loses nothing: the same graph at saturation. */
START_TEST(test_waiting_rules_lose_nothing)
{
    (void)add_sum(6);
    sx_eg_ruleset set;
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, sum_rules, 3));
    sx_eg_limits limits = roomy;
    limits.matches = 3;
    sx_eg_run run;
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &limits, &run));
    ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
    ck_assert_uint_gt(set.rule[0].bans, 0);
    ck_assert_uint_eq(eg.class_count, 63);
    ck_assert_uint_eq(eg.live_count, 729 - 128 + 1 + 6);
}
END_TEST

/* Looking again everywhere after saturation finds nothing that looking only where something changed had missed. */
START_TEST(test_incremental_search_misses_nothing)
{
    static const sx_rule rules[] = {
        {"f-f", SX_RULE_EXACT, "(f (f ?a))", "?a", NULL},
        {"deep", SX_RULE_EXACT, "(g (neg (g ?a)))", "(neg ?a)", NULL},
        {"same", SX_RULE_EXACT, "(add ?a (neg ?a))", "(mul ?a ?a)", NULL},
        {"far", SX_RULE_EXACT, "(add (neg ?a) (f ?a))", "(g ?a)", NULL},
        {"named", SX_RULE_EXACT, "(mul ?a (add ?a 1))", "(g (add ?a 1))", NULL},
        {"value", SX_RULE_EXACT, "(mul (f ?a) 1)", "(f ?a)", NULL},
        {"commute", SX_RULE_EXACT, "(add ?a ?b)", "(add ?b ?a)", NULL},
        {"out", SX_RULE_EXACT, "(f (mul ?a ?b))", "(mul (f ?a) ?b)", NULL},
    };
    sx_rng rng = {sx_test_seed()};
    uint32_t changed = 0;
    for (uint32_t trial = 0; trial < 200; trial++) {
        ck_sx_ok(&cx, sx_eg_init(&cx, &eg, NULL));
        uint32_t term[60];
        for (uint32_t i = 0; i < SX_COUNT(term); i++) {
            static const uint16_t ops[] = {OP_ADD, OP_MUL, OP_NEG, OP_F, OP_G};
            uint32_t pick = (uint32_t)sx_rng_below(&rng, SX_COUNT(ops));
            uint32_t last = i < 6 ? i : 6;
            uint32_t a = i < 4 ? 0 : term[i - 1 - sx_rng_below(&rng, last)];
            uint32_t b = i < 4 ? 0 : term[i - 1 - sx_rng_below(&rng, last)];
            term[i] =
                i < 4 ? add(OP_LEAF, 1000 + i, 0, 0, 0) : add(ops[pick], 0, pick < 2 ? 2 : 1, a, b);
        }
        sx_eg_ruleset set;
        ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, rules, SX_COUNT(rules)));
        sx_eg_limits limits = roomy;
        limits.nodes = 3000;
        sx_eg_run run;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &limits, &run));
        if (run.stop != SX_STOP_SATURATED) {
            continue;
        }
        changed += eg.union_count > 0 ? 1 : 0;
        for (uint32_t r = 0; r < set.rule_count; r++) {
            set.rule[r].seen = 0;
        }
        uint64_t unions = eg.union_count;
        uint32_t nodes = eg.node_count;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &limits, &run));
        ck_assert_msg(eg.union_count == unions && eg.node_count == nodes, "trial %u", trial);
        sx_ctx_fini(&cx);
        sx_ctx_init(&cx, (size_t)1 << 30);
    }
    ck_assert_uint_gt(changed, 100);
}
END_TEST

/* A name at the far end of a pattern: its two classes become one long after the nodes above were looked at. */
START_TEST(test_late_union_far_below)
{
    static const sx_rule rules[] = {
        {"far", SX_RULE_EXACT, "(add (neg ?a) (f ?a))", "(g ?a)", NULL}};
    uint32_t x = add(OP_LEAF, 1, 0, 0, 0);
    uint32_t y = add(OP_LEAF, 2, 0, 0, 0);
    uint32_t sum = add(OP_ADD, 0, 2, add(OP_NEG, 0, 1, x, 0), add(OP_F, 0, 1, y, 0));
    sx_eg_ruleset set;
    sx_eg_run run;
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, rules, 1));
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &roomy, &run));
    ck_assert_uint_eq(set.rule[0].match_count, 0);
    ck_sx_ok(&cx, sx_eg_union(&cx, &eg, x, y, SX_EG_RULE_GIVEN));
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &roomy, &run));
    ck_assert_uint_gt(set.rule[0].match_count, 0);
    ck_assert_uint_eq(sx_eg_find(&eg, sum), sx_eg_find(&eg, add(OP_G, 0, 1, x, 0)));
}
END_TEST

/* A class becomes that of a number which was not there before: its parents see another child, though none of
 * them moved. */
START_TEST(test_late_number)
{
    static const sx_rule rules[] = {{"one", SX_RULE_EXACT, "(mul ?a 1)", "?a", NULL}};
    uint32_t x = add(OP_LEAF, 1, 0, 0, 0);
    uint32_t y = add(OP_LEAF, 2, 0, 0, 0);
    uint32_t product = add(OP_MUL, 0, 2, x, y);
    sx_eg_ruleset set;
    sx_eg_run run;
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, rules, 1));
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &roomy, &run));
    ck_sx_ok(&cx, sx_eg_union(&cx, &eg, y, add(OP_LEAF, 1001, 0, 0, 0), SX_EG_RULE_GIVEN));
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &roomy, &run));
    ck_assert_uint_eq(sx_eg_find(&eg, product), sx_eg_find(&eg, x));
}
END_TEST

static bool cancel_at_once(void *self)
{
    (void)self;
    return true;
}

/* Every limit binds, names itself, leaves a valid graph, and a second call without it reaches the same fixpoint. */
START_TEST(test_limits_bind_and_work_goes_on)
{
    for (uint32_t which = 0; which < 5; which++) {
        ck_sx_ok(&cx, sx_eg_init(&cx, &eg, NULL));
        (void)add_sum(7);
        sx_eg_ruleset set;
        ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, sum_rules, 3));
        sx_eg_limits limits = roomy;
        static const sx_eg_stop expected[] = {SX_STOP_FUEL, SX_STOP_NODES, SX_STOP_ROUNDS,
                                              SX_STOP_BYTES, SX_STOP_CANCELLED};
        limits.fuel = which == 0 ? 500 : limits.fuel;
        limits.nodes = which == 1 ? 300 : limits.nodes;
        limits.rounds = which == 2 ? 2 : limits.rounds;
        limits.bytes = which == 3 ? 50000 : limits.bytes;
        cx.cancelled = which == 4 ? cancel_at_once : NULL;
        sx_eg_run run;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &limits, &run));
        ck_assert_int_eq(run.stop, expected[which]);
        ck_assert_uint_lt(eg.live_count, 1939);
        ck_sx_ok(&cx, sx_eg_check(&cx, &eg));
        cx.cancelled = NULL;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &roomy, &run));
        ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
        ck_assert_uint_eq(eg.live_count, 1939);
        ck_assert_uint_eq(eg.class_count, 127);
    }
}
END_TEST

static uint64_t digest_of_sum(void)
{
    sx_eg graph;
    ck_sx_ok(&cx, sx_eg_init(&cx, &graph, NULL));
    eg = graph;
    (void)add_sum(7);
    sx_eg_ruleset set;
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, sum_rules, 3));
    sx_eg_run run;
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &roomy, &run));
    sx_span parts[] = {{(uint8_t *)eg.node, eg.node_count * sizeof(sx_eg_node)},
                       {(uint8_t *)eg.why, eg.node_count * sizeof(sx_eg_why)},
                       {(uint8_t *)set.reason, set.reason_count * sizeof(sx_eg_reason)},
                       {(uint8_t *)eg.slot, eg.slot_count * sizeof(uint64_t)}};
    uint64_t digest = 0;
    for (uint32_t i = 0; i < SX_COUNT(parts); i++) {
        digest = sx_hash64(parts[i], digest);
    }
    return digest;
}

START_TEST(test_same_bytes_every_time)
{
    uint64_t first = digest_of_sum();
    (void)sx_alloc(&cx, 12345); /* another address layout */
    ck_assert_uint_eq(digest_of_sum(), first);
}
END_TEST

START_TEST(test_pattern_forms)
{
    uint32_t x = add(OP_LEAF, 1, 0, 0, 0);
    uint32_t y = add(OP_LEAF, 2, 0, 0, 0);
    uint32_t one = add(OP_LEAF, 1001, 0, 0, 0);
    uint32_t times_one = add(OP_MUL, 0, 2, x, one);
    uint32_t square = add(OP_MUL, 0, 2, y, y);
    uint32_t tagged = add(OP_ADD, 0, 2, add(OP_F, 5, 1, x, 0), add(OP_F, 5, 1, y, 0));
    uint32_t mixed = add(OP_ADD, 0, 2, add(OP_F, 5, 1, x, 0), add(OP_F, 6, 1, y, 0));
    static const sx_rule rules[] = {
        {"one", SX_RULE_EXACT, "(mul ?a 1)", "?a", NULL},
        {"square", SX_RULE_EXACT, "(mul ?a ?a)", "(g ?a)", NULL},
        {"attr", SX_RULE_EXACT, "(add (f@p ?a) (f@p ?b))", "(f@p (add ?a ?b))", NULL},
        {"named", SX_RULE_EXACT, "(g ?e=(mul ?a ...))", "(neg ?e)", NULL},
        {"set", SX_RULE_EXACT, "(neg (*binary ?a ?b))", "(g ?a)", NULL},
    };
    sx_eg_ruleset set;
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, rules, SX_COUNT(rules)));
    uint32_t deep = add(OP_G, 0, 1, square, 0);
    sx_eg_run run;
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &eg, &set, &roomy, &run));
    ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
    ck_assert_uint_eq(sx_eg_find(&eg, times_one), sx_eg_find(&eg, x));
    ck_assert_uint_eq(sx_eg_find(&eg, square), sx_eg_find(&eg, add(OP_G, 0, 1, y, 0)));
    ck_assert_uint_eq(sx_eg_find(&eg, tagged),
                      sx_eg_find(&eg, add(OP_F, 5, 1, add(OP_ADD, 0, 2, x, y), 0)));
    ck_assert_uint_eq(sx_eg_find(&eg, deep), sx_eg_find(&eg, add(OP_NEG, 0, 1, square, 0)));
    ck_assert_uint_eq(sx_eg_find(&eg, deep), sx_eg_find(&eg, add(OP_G, 0, 1, y, 0)));
    sx_bits ops = sx_eg_ops(&eg, sx_eg_find(&eg, mixed));
    ck_assert(sx_bits_count(&ops) == 1 && sx_bits_has(&ops, OP_ADD));
    ck_assert(sx_eg_has_op(&eg, mixed, OP_ADD) && !sx_eg_has_op(&eg, mixed, OP_F));
    ck_assert_uint_eq(set.rule[2].match_count > 0, 1);
}
END_TEST

START_TEST(test_bad_rules_are_refused)
{
    static const struct {
        sx_rule rule;
        const char *text;
    } bad[] = {
        {{"r1", SX_RULE_EXACT, "(plus ?a ?b)", "?a", NULL}, "rule r1: column 6"},
        {{"r2", SX_RULE_EXACT, "(add ?a ?b", "?a", NULL}, "rule r2"},
        {{"r3", SX_RULE_EXACT, "(add ?a ?b)", "?c", NULL}, "a name that is bound"},
        {{"r4", SX_RULE_EXACT, "?a", "?a", NULL}, "a left side that is a node"},
        {{"r5", SX_RULE_EXACT, "(add ?a ?b) x", "?a", NULL}, "the end"},
        {{"r6", SX_RULE_EXACT, "(f (f (f (f (f (f (f (f (f (f (f (f (f ?a)))))))))))))", "?a",
          NULL},
         "12 levels"},
        {{"r7", SX_RULE_EXACT, "(f ?a)", "(*binary ?a ?a)", NULL}, "name of an operation"},
    };
    for (uint32_t i = 0; i < SX_COUNT(bad); i++) {
        sx_eg_ruleset set;
        ck_sx_fails(&cx, sx_eg_ruleset_init(&cx, &set, &symbols, &bad[i].rule, 1), SX_INPUT,
                    bad[i].text);
    }
}
END_TEST

/* A record: the smallest leaf number below; classes keep the smaller of two. Refuses to unite classes marked 7
 * and 8. */
static sx_code least_make(sx_ctx *c, void *self, const sx_eg *graph, uint32_t n, void *record)
{
    (void)c;
    (void)self;
    const sx_eg_node *node = &graph->node[n];
    uint64_t least = node->arity == 0 ? node->attr : UINT64_MAX;
    for (uint32_t k = 0; k < node->arity; k++) {
        const uint64_t *below = sx_eg_record(graph, sx_eg_child(graph, n, k));
        least = *below < least ? *below : least;
    }
    *(uint64_t *)record = least;
    return SX_OK;
}

static sx_code least_join(sx_ctx *c, void *self, void *into, const void *from, bool *changed)
{
    (void)self;
    uint64_t a = *(uint64_t *)into;
    uint64_t b = *(const uint64_t *)from;
    if (a == 7 && b == 8) {
        return SX_FAIL(c, SX_INTERNAL, "records 7 and 8 exclude each other");
    }
    *changed = b < a;
    *(uint64_t *)into = b < a ? b : a;
    return SX_OK;
}

START_TEST(test_analysis_climbs)
{
    sx_eg_analysis analysis = {8, NULL, least_make, least_join};
    ck_sx_ok(&cx, sx_eg_init(&cx, &eg, &analysis));
    uint32_t seven = add(OP_LEAF, 7, 0, 0, 0);
    uint32_t eight = add(OP_LEAF, 8, 0, 0, 0);
    uint32_t nine = add(OP_LEAF, 9, 0, 0, 0);
    uint32_t tower = add(OP_F, 0, 1, add(OP_G, 0, 1, nine, 0), 0);
    ck_assert_uint_eq(*(uint64_t *)sx_eg_record(&eg, tower), 9);
    ck_sx_ok(&cx, sx_eg_union(&cx, &eg, nine, seven, SX_EG_RULE_GIVEN));
    ck_sx_ok(&cx, sx_eg_rebuild(&cx, &eg));
    ck_sx_ok(&cx, sx_eg_check(&cx, &eg));
    ck_assert_uint_eq(*(uint64_t *)sx_eg_record(&eg, tower), 7);
    ck_sx_fails(&cx, sx_eg_union(&cx, &eg, seven, eight, SX_EG_RULE_GIVEN), SX_INTERNAL, "exclude");
    ck_assert_uint_ne(sx_eg_find(&eg, seven), sx_eg_find(&eg, eight));
}
END_TEST

/* check() must see what it claims to see. */
START_TEST(test_check_finds_damage)
{
    uint32_t sum = add_sum(4);
    ck_sx_ok(&cx, sx_eg_check(&cx, &eg));
    eg.class_count++;
    ck_sx_fails(&cx, sx_eg_check(&cx, &eg), SX_INTERNAL, "counts");
    eg.class_count--;
    uint32_t tie = eg.node[0].tie;
    eg.node[0].tie = SX_EG_ROOT | SX_EG_LINK_END;
    ck_sx_fails(&cx, sx_eg_check(&cx, &eg), SX_INTERNAL, "parent lists");
    eg.node[0].tie = tie;
    eg.node[sum].attr = 3;
    ck_sx_fails(&cx, sx_eg_check(&cx, &eg), SX_INTERNAL, "hash table");
    eg.node[sum].attr = 0;
    ck_sx_ok(&cx, sx_eg_union(&cx, &eg, 0, 1, SX_EG_RULE_GIVEN));
    ck_sx_fails(&cx, sx_eg_check(&cx, &eg), SX_INTERNAL, "not rebuilt");
    eg.repair_count = 0;
    ck_sx_fails(&cx, sx_eg_check(&cx, &eg), SX_INTERNAL, "hash table");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.egraph.engine");
    TCase *cases = tcase_create("engine");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_congruence_against_naive);
    tcase_add_test(cases, test_gcd);
    tcase_add_test(cases, test_sums_reach_exact_counts);
    tcase_add_test(cases, test_associativity_alone);
    tcase_add_test(cases, test_waiting_rules_lose_nothing);
    tcase_add_test(cases, test_incremental_search_misses_nothing);
    tcase_add_test(cases, test_late_union_far_below);
    tcase_add_test(cases, test_late_number);
    tcase_add_test(cases, test_limits_bind_and_work_goes_on);
    tcase_add_test(cases, test_same_bytes_every_time);
    tcase_add_test(cases, test_pattern_forms);
    tcase_add_test(cases, test_bad_rules_are_refused);
    tcase_add_test(cases, test_analysis_climbs);
    tcase_add_test(cases, test_check_finds_damage);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
