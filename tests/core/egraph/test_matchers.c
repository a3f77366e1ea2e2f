/* The matcher driven by what is new against the one by stamps, on random rules and graphs: the same graph
 * after every round, and the same matches, each found by the first once. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/egraph/match.h"
#include "core/egraph/pattern.h"
#include "tests/core/rules/symbols.h"

#define RULES 5u
#define TERMS 40u
#define ROUNDS 6u
#define RECORDED_MAX 400000u
#define REASONS_MIN 200u

typedef struct {
    char left[RULES][256], right[RULES][128], left_copy[RULES][256], name[2 * RULES][16];
    sx_rule rule[2 * RULES]; /* the second half only records what it matches */
} random_rules;

/* ---- random rules ---- */

static const char *const names[] = {"?a", "?b", "?c"};

static void put_left(sx_rng *rng, char *text, size_t size, uint32_t depth, uint32_t *used)
{
    static const char *const ops[] = {"add", "mul", "neg", "f", "g", "*binary"};
    size_t at = strlen(text);
    uint64_t kind = depth == 0 ? 0 : sx_rng_below(rng, 10);
    if (depth < 3 && (kind >= 6 || depth == 2)) {
        if (kind == 9 && depth > 0) {
            (void)snprintf(text + at, size - at, "1");
            return;
        }
        uint32_t name = (uint32_t)sx_rng_below(rng, SX_COUNT(names));
        *used |= 1u << name;
        (void)snprintf(text + at, size - at, "%s", names[name]);
        return;
    }
    uint32_t op = (uint32_t)sx_rng_below(rng, SX_COUNT(ops));
    uint32_t arity = op < 2 || op == 5 ? 2 : 1;
    bool tagged = op == 3 && sx_rng_below(rng, 2) == 0;
    bool open = sx_rng_below(rng, 8) == 0;
    (void)snprintf(text + at, size - at, "(%s%s", ops[op], tagged ? "@p" : "");
    for (uint32_t k = 0; k < (open ? 1 : arity); k++) {
        (void)snprintf(text + strlen(text), size - strlen(text), " ");
        put_left(rng, text, size, depth + 1 > 2 ? 2 : depth + 1, used);
    }
    (void)snprintf(text + strlen(text), size - strlen(text), open ? " ...)" : ")");
}

static const char *bound(sx_rng *rng, uint32_t used)
{
    uint32_t name = (uint32_t)sx_rng_below(rng, SX_COUNT(names));
    while ((used >> name & 1) == 0) {
        name = (name + 1) % (uint32_t)SX_COUNT(names);
    }
    return names[name];
}

/* ---- what was matched ---- */

typedef struct {
    uint32_t word[12]; /* rule, class of the root, classes of the names */
} record;
typedef struct {
    sx_ctx cx;
    sx_eg eg;
    sx_eg_ruleset set;
    record *record;
    uint32_t count;
    uint32_t given; /* nodes of the terms it began with */
} side;
static side sides[2];
static side *recording;

static sx_code note(sx_rewrite *rw)
{
    ck_assert_uint_lt(recording->count, RECORDED_MAX);
    record *r = &recording->record[recording->count++];
    const sx_pattern *left = recording->set.rule[rw->rule].left;
    memset(r, 0, sizeof(*r));
    r->word[0] = rw->rule;
    r->word[1] = rw->node[0];
    for (uint32_t i = 0; i < left->name_count; i++) {
        r->word[2 + i] = rw->var[i];
    }
    for (uint32_t i = 0; i < left->bind_count && i < 6; i++) {
        r->word[6 + i] = rw->node[i];
    }
    return SX_OK;
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(record));
}

/* As the classes now are, in order, each once; returns how many. With `nodes`, told apart by the nodes as well. */
static uint32_t settle(side *s, bool nodes)
{
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t *word = s->record[i].word;
        for (uint32_t k = 1; k < 6; k++) {
            bool is_class = k == 1 || k - 2 < s->set.rule[word[0]].left->name_count;
            word[k] = is_class ? sx_eg_find(&s->eg, word[k]) : 0;
        }
        if (!nodes) {
            memset(&word[6], 0, 6 * sizeof(*word));
        }
    }
    qsort(s->record, s->count, sizeof(record), compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (kept == 0 || compare(&s->record[i], &s->record[kept - 1]) != 0) {
            s->record[kept++] = s->record[i];
        }
    }
    return s->count = kept;
}

/* Only matches whose classes hold given terms. */
static uint32_t keep_given(side *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const uint32_t *word = s->record[i].word;
        bool all = true;
        for (uint32_t k = 1; k < 6; k++) {
            all = all && word[k] < s->given;
        }
        if (all) {
            s->record[kept++] = s->record[i];
        }
    }
    return kept;
}

static void make_rules(sx_rng *rng, random_rules *r)
{
    for (uint32_t i = 0; i < RULES; i++) {
        uint32_t used = 0;
        while (used == 0) {
            r->left[i][0] = '\0';
            put_left(rng, r->left[i], sizeof(r->left[i]), 0, &used);
        }
        const char *a = bound(rng, used), *b = bound(rng, used);
        switch (sx_rng_below(rng, 5)) {
        case 0: (void)snprintf(r->right[i], sizeof(r->right[i]), "%s", a); break;
        case 1: (void)snprintf(r->right[i], sizeof(r->right[i]), "(g %s)", a); break;
        case 2: (void)snprintf(r->right[i], sizeof(r->right[i]), "(add %s (neg %s))", a, b); break;
        case 3: (void)snprintf(r->right[i], sizeof(r->right[i]), "(mul %s %s)", b, a); break;
        default: (void)snprintf(r->right[i], sizeof(r->right[i]), "(f (add 1 %s))", a); break;
        }
        (void)snprintf(r->name[i], sizeof(r->name[i]), "rule%u", i);
        (void)snprintf(r->name[RULES + i], sizeof(r->name[i]), "note%u", i);
        r->rule[i] = (sx_rule){r->name[i], SX_RULE_EXACT, r->left[i], r->right[i], NULL};
        r->rule[RULES + i] = (sx_rule){r->name[RULES + i], SX_RULE_EXACT, r->left[i], NULL, note};
    }
}

static void grow(side *s, uint64_t seed)
{
    static const uint16_t ops[] = {OP_ADD, OP_MUL, OP_NEG, OP_F, OP_G};
    sx_rng rng = {seed};
    uint32_t term[TERMS];
    for (uint32_t i = 0; i < TERMS; i++) {
        uint32_t op = (uint32_t)sx_rng_below(&rng, SX_COUNT(ops));
        uint32_t child[2] = {i < 4 ? 0 : term[sx_rng_below(&rng, i)],
                             i < 4 ? 0 : term[i - 1 - sx_rng_below(&rng, 3)]};
        bool leaf = i < 4;
        uint32_t attr = leaf ? 1000 + i : ops[op] == OP_F ? (uint32_t)sx_rng_below(&rng, 2) : 0;
        ck_sx_ok(&s->cx, sx_eg_add(&s->cx, &s->eg, leaf ? OP_LEAF : ops[op], attr, child,
                                   leaf     ? 0
                                   : op < 2 ? 2
                                            : 1,
                                   &term[i]));
    }
}

static void begin(side *s, const random_rules *r, uint64_t seed)
{
    sx_ctx_init(&s->cx, (size_t)1 << 30);
    ck_sx_ok(&s->cx, sx_eg_init(&s->cx, &s->eg, NULL));
    grow(s, seed);
    s->given = s->eg.node_count;
    ck_sx_ok(&s->cx, sx_eg_ruleset_init(&s->cx, &s->set, &symbols, r->rule, 2 * RULES));
    s->record = SX_NEW_ARRAY(&s->cx, record, RECORDED_MAX);
    ck_assert_ptr_nonnull(s->record);
    s->count = 0;
}

static bool run_round(side *s, bool stamps, sx_rng *rng)
{
    sx_eg_limits limits = {.rounds = 1,
                           .nodes = SX_EG_NODES_MAX,
                           .matches = UINT32_MAX,
                           .fuel = UINT64_C(1) << 40,
                           .bytes = SIZE_MAX,
                           .stamps = stamps};
    sx_eg_run run;
    /* a union from outside, of two old nodes, is news like any other */
    uint32_t a = (uint32_t)sx_rng_below(rng, TERMS / 2);
    uint32_t b = (uint32_t)sx_rng_below(rng, TERMS / 2);
    if (sx_rng_below(rng, 3) == 0) {
        ck_sx_ok(&s->cx, sx_eg_union(&s->cx, &s->eg, a, b, SX_EG_RULE_GIVEN));
    }
    recording = s;
    ck_sx_ok(&s->cx, sx_eg_saturate(&s->cx, &s->eg, &s->set, &limits, &run));
    return run.stop == SX_STOP_SATURATED;
}

START_TEST(test_same_matches)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t moved = 0, matched = 0;
    for (uint32_t trial = 0; trial < 120; trial++) {
        static random_rules r;
        uint64_t seed = sx_rng_next(&rng);
        make_rules(&rng, &r);
        begin(&sides[0], &r, seed);
        begin(&sides[1], &r, seed);
        sx_rng outside[2] = {{seed + 1}, {seed + 1}};
        for (uint32_t round = 0; round < ROUNDS && sides[0].eg.node_count < 1500; round++) {
            for (uint32_t i = 0; i < 2; i++) {
                (void)run_round(&sides[i], i == 1, &outside[i]);
            }
            ck_assert_msg(sides[0].eg.live_count == sides[1].eg.live_count &&
                              sides[0].eg.class_count == sides[1].eg.class_count,
                          "trial %u round %u: %u nodes %u classes, by stamps %u and %u; %s => %s; "
                          "%s => %s; %s => %s; %s => %s; %s => %s",
                          trial, round, sides[0].eg.live_count, sides[0].eg.class_count,
                          sides[1].eg.live_count, sides[1].eg.class_count, r.left[0], r.right[0],
                          r.left[1], r.right[1], r.left[2], r.right[2], r.left[3], r.right[3],
                          r.left[4], r.right[4]);
        }
        moved += sides[0].eg.union_count > 0 ? 1 : 0;
        matched += sides[0].count > 0 ? 1 : 0;
        uint32_t counts[2] = {settle(&sides[0], false), settle(&sides[1], false)};
        ck_assert_msg(counts[0] == counts[1], "trial %u: %u matches, by stamps %u", trial,
                      counts[0], counts[1]);
        /* later nodes are numbered otherwise, as matches were applied in another order: of the given terms the
         * rows are equal */
        uint32_t given[2] = {keep_given(&sides[0]), keep_given(&sides[1])};
        ck_assert_uint_eq(given[0], given[1]);
        ck_assert_int_eq(memcmp(sides[0].record, sides[1].record, given[0] * sizeof(record)), 0);
        sx_ctx_fini(&sides[0].cx);
        sx_ctx_fini(&sides[1].cx);
    }
    ck_assert_uint_gt(moved, 80);
    ck_assert_uint_gt(matched, 80);
}
END_TEST

/* Nothing is found twice while nothing old changes: one pass over a graph finds each match once, a second nothing. */
START_TEST(test_each_match_once)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < 60; trial++) {
        static random_rules r;
        make_rules(&rng, &r);
        begin(&sides[0], &r, sx_rng_next(&rng));
        for (uint32_t i = 0; i < RULES; i++) {
            sides[0].set.rule[i].enabled = false;
        }
        sx_rng none = {0};
        sx_eg *eg = &sides[0].eg;
        recording = &sides[0];
        sx_eg_limits limits = {.rounds = 3,
                               .nodes = SX_EG_NODES_MAX,
                               .matches = UINT32_MAX,
                               .fuel = UINT64_C(1) << 40,
                               .bytes = SIZE_MAX};
        sx_eg_run run;
        for (uint32_t more = 0; more < 3;
             more++) { /* new terms on top: only what they make is found */
            ck_sx_ok(&sides[0].cx, sx_eg_saturate(&sides[0].cx, eg, &sides[0].set, &limits, &run));
            ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
            grow(&sides[0], sx_rng_next(&rng) + none.state);
        }
        uint32_t found = sides[0].count;
        ck_assert_uint_eq(settle(&sides[0], true), found);
        sx_ctx_fini(&sides[0].cx);
    }
}
END_TEST

/* ---- unions made at once ---- */

static sx_code add_plainly(sx_ctx *cx, void *self, sx_eg *eg, uint16_t op, uint32_t attr,
                           const uint32_t *child, uint32_t arity, uint32_t *node)
{
    (void)self;
    return sx_eg_add(cx, eg, op, attr, child, arity, node);
}

/* Side 0 unites while right sides are built; side 1, whose language might refuse a node, at the end of the round. */
static void begin_both(const random_rules *r, uint64_t seed)
{
    for (uint32_t i = 0; i < 2; i++) {
        begin(&sides[i], r, seed);
        sides[i].set.rule_count = RULES; /* none of those that record */
    }
    sides[1].set.language.make_node = add_plainly;
}

/* Of the given terms: the smallest of each class, which is its name. */
static void ck_same_classes(const sx_eg *a, const sx_eg *b, uint32_t count, uint32_t trial)
{
    for (uint32_t n = 0; n < count; n++) {
        ck_assert_msg(sx_eg_find(a, n) == sx_eg_find(b, n), "trial %u: term %u equals %u and %u",
                      trial, n, sx_eg_find(a, n), sx_eg_find(b, n));
    }
}

/* Is node a of `eg` the same as node b, up to what is known to be equal? */
static bool same_node(const sx_eg *eg, uint32_t a, uint32_t b)
{
    const sx_eg_node *x = &eg->node[a], *y = &eg->node[b];
    bool same = x->op == y->op && x->attr == y->attr && x->arity == y->arity &&
                sx_eg_find(eg, a) == sx_eg_find(eg, b);
    for (uint32_t k = 0; same && k < x->arity; k++) {
        same = sx_eg_child(eg, a, k) == sx_eg_child(eg, b, k);
    }
    return same;
}

/* Applies a reason of `s` in `eg`, where `of` are its nodes: the left side must match these nodes by what is
 * equal there already. */
static bool replay(side *s, sx_eg *eg, const uint32_t *of, const sx_eg_reason *reason)
{
    const sx_eg_rule *rule = &s->set.rule[reason->rule];
    const uint32_t *node = &s->set.reason_node[reason->node_first];
    uint32_t stride = sx_pattern_stride(rule->left);
    sx_match_list found = {0};
    uint64_t work = 0;
    ck_assert_uint_eq(reason->node_count, rule->left->bind_count);
    ck_sx_ok(&s->cx,
             sx_pattern_search(&s->cx, eg, &symbols, rule->left, sx_eg_find(eg, of[node[0]]),
                               UINT32_MAX, UINT64_MAX, &found, &work));
    for (uint32_t m = 0; m < found.match_count; m++) {
        const uint32_t *match = &found.word[m * stride];
        bool is_it = true;
        for (uint32_t i = 0; is_it && i < reason->node_count; i++) {
            is_it = same_node(eg, match[i], of[node[i]]);
        }
        if (is_it) {
            uint32_t to;
            ck_sx_ok(&s->cx, sx_pattern_build(&s->cx, eg, &symbols, rule->right, match,
                                              match + rule->left->bind_count, &to));
            ck_sx_ok(&s->cx, sx_eg_union(&s->cx, eg, match[0], to, SX_EG_RULE_GIVEN));
            ck_sx_ok(&s->cx, sx_eg_rebuild(&s->cx, eg));
            return true;
        }
    }
    return false;
}

/* What a run united follows from its reasons in the order it had them: each rests on what came before it, and
 * the edges of the forest say no more. Returns how many there were. */
static uint32_t ck_reasons(side *s, uint32_t trial)
{
    sx_eg eg;
    uint32_t *of = SX_NEW_ARRAY(&s->cx, uint32_t, s->eg.node_count);
    uint32_t *edge = SX_NEW_ARRAY(&s->cx, uint32_t, s->set.reason_count + 1);
    ck_sx_ok(&s->cx, sx_eg_init(&s->cx, &eg, NULL));
    for (uint32_t n = 0; n < s->eg.node_count; n++) {
        const sx_eg_node *node = &s->eg.node[n];
        uint32_t child[2] = {0};
        ck_assert_uint_le(node->arity, 2);
        for (uint32_t k = 0; k < node->arity; k++) {
            child[k] = of[sx_eg_made_child(&s->eg, n, k)];
        }
        ck_sx_ok(&s->cx, sx_eg_add(&s->cx, &eg, node->op, node->attr, child, node->arity, &of[n]));
    }
    for (uint32_t n = 0; n < s->eg.node_count; n++) {
        sx_eg_why why = s->eg.why[n];
        if (why.up != n && why.rule < s->set.reason_count) {
            edge[why.rule] = n;
        } else if (why.up != n && why.rule == SX_EG_RULE_GIVEN) {
            ck_sx_ok(&s->cx, sx_eg_union(&s->cx, &eg, of[n], of[why.up], why.rule));
        }
    }
    ck_sx_ok(&s->cx, sx_eg_rebuild(&s->cx, &eg));
    for (uint32_t i = 0; i < s->set.reason_count; i++) {
        uint32_t a = of[edge[i]], b = of[s->eg.why[edge[i]].up];
        ck_assert_msg(replay(s, &eg, of, &s->set.reason[i]), "trial %u: reason %u does not match",
                      trial, i);
        ck_assert_msg(sx_eg_find(&eg, a) == sx_eg_find(&eg, b), "trial %u: reason %u gives another",
                      trial, i);
    }
    for (uint32_t n = 0; n < s->eg.node_count; n++) {
        ck_assert_uint_eq(sx_eg_find(&eg, of[n]), sx_eg_find(&eg, of[sx_eg_find(&s->eg, n)]));
    }
    return s->set.reason_count;
}

/* The same graph after every round, and every union has a reason that held when it was made. */
START_TEST(test_unions_at_once)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t reasons = 0;
    for (uint32_t trial = 0; trial < 60; trial++) {
        static random_rules r;
        uint64_t seed = sx_rng_next(&rng);
        make_rules(&rng, &r);
        begin_both(&r, seed);
        for (uint32_t round = 0; round < ROUNDS && sides[1].eg.node_count < 1500; round++) {
            for (uint32_t i = 0; i < 2; i++) {
                sx_rng outside = {seed +
                                  round}; /* the same for both: a union from outside or none */
                (void)run_round(&sides[i], false, &outside);
                ck_sx_ok(&sides[i].cx, sx_eg_check(&sides[i].cx, &sides[i].eg));
            }
            ck_assert_msg(sides[0].eg.live_count == sides[1].eg.live_count &&
                              sides[0].eg.class_count == sides[1].eg.class_count,
                          "trial %u round %u: %u nodes %u classes, at the end of a round %u and %u",
                          trial, round, sides[0].eg.live_count, sides[0].eg.class_count,
                          sides[1].eg.live_count, sides[1].eg.class_count);
        }
        ck_same_classes(&sides[0].eg, &sides[1].eg, sides[0].given, trial);
        for (uint32_t i = 0; i < 2; i++) {
            bool some = trial < 12 || reasons <= REASONS_MIN; /* slow: no more than are needed */
            reasons += some ? ck_reasons(&sides[i], trial) : 0;
            sx_ctx_fini(&sides[i].cx);
        }
    }
    ck_assert_uint_gt(reasons, REASONS_MIN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.egraph.matchers");
    TCase *cases = tcase_create("matchers");
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_same_matches);
    tcase_add_test(cases, test_each_match_once);
    tcase_add_test(cases, test_unions_at_once);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
