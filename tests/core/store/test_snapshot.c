/* Snapshots: what is stored comes back, a stored graph goes on growing as one that was never stored, and
 * damaged or hostile bytes are refused or make a graph that passes every check. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/egraph/extract.h"
#include "core/store/snapshot.h"
#include "tests/core/store/reseal.h"
#include "tests/core/rules/symbols.h"

static sx_ctx cx;
static sx_key rules_key;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    rules_key = sx_key_of("test", NULL, 0);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const sx_rule sums[] = {
    {.name = "commute", .left = "(add ?a ?b)", .right = "(add ?b ?a)"},
    {.name = "left", .left = "(add ?a (add ?b ?c))", .right = "(add (add ?a ?b) ?c)"},
    {.name = "right", .left = "(add (add ?a ?b) ?c)", .right = "(add ?a (add ?b ?c))"},
    {.name = "distribute",
     .left = "(mul ?a (add ?b ?c))",
     .right = "(add (mul ?a ?b) (mul ?a ?c))"},
    {.name = "negative", .left = "(neg (neg ?a))", .right = "?a"},
};
static const sx_eg_limits roomy = {.rounds = 1000,
                                   .nodes = 10000000,
                                   .matches = 100000000,
                                   .fuel = UINT64_C(1) << 40,
                                   .bytes = SIZE_MAX,
                                   .check = true};

typedef struct {
    sx_eg eg;
    sx_eg_ruleset set;
} grown;

static void grown_init(grown *g)
{
    ck_sx_ok(&cx, sx_eg_init(&cx, &g->eg, NULL));
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &g->set, &symbols, sums, SX_COUNT(sums)));
}

static void saturate(grown *g, uint32_t rounds, sx_eg_stop stop)
{
    sx_eg_limits limits = roomy;
    sx_eg_run run;
    limits.rounds = rounds;
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &g->eg, &g->set, &limits, &run));
    ck_assert_int_eq(run.stop, stop);
}

/* ---- random terms ---- */

#define TERMS_MAX 64
typedef struct {
    uint16_t op;
    uint32_t attr, arity, child[2];
} term;

/* Short sums, products and negations over few leaves: saturation stays small. */
static uint32_t draw_terms(sx_rng *rng, term *t, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        t[i] = (term){.op = OP_LEAF, .attr = i};
        if (i >= 4) {
            uint64_t kind = sx_rng_below(rng, 6);
            t[i].attr = 0;
            t[i].op = kind < 3 ? OP_ADD : kind < 5 ? OP_MUL : OP_NEG;
            t[i].arity = t[i].op == OP_NEG ? 1 : 2;
            t[i].child[0] = (uint32_t)sx_rng_below(rng, i < 8 ? i : 8);
            t[i].child[1] = (uint32_t)sx_rng_below(rng, i < 6 ? i : 6);
        }
    }
    return count;
}

static void insert(grown *g, const term *t, uint32_t first, uint32_t count, uint32_t *node)
{
    for (uint32_t i = first; i < count; i++) {
        uint32_t child[2] = {node[t[i].child[0]], node[t[i].child[1]]};
        ck_sx_ok(&cx, sx_eg_add(&cx, &g->eg, t[i].op, t[i].attr, child, t[i].arity, &node[i]));
    }
}

static uint64_t least_cost(grown *g, const uint32_t *root, uint32_t root_count)
{
    uint64_t *cost = SX_NEW_ARRAY(&cx, uint64_t, g->eg.node_count);
    for (uint32_t n = 0; n < g->eg.node_count; n++) {
        cost[n] = g->eg.node[n].op == OP_MUL ? 7 : 2;
    }
    sx_extraction wanted = {
        .cost = cost, .root = root, .root_count = root_count, .fuel = 100000000};
    sx_extracted best;
    ck_sx_ok(&cx, sx_eg_extract(&cx, &g->eg, &wanted, &best));
    ck_assert(best.proven);
    return best.cost;
}

static void store(const grown *g, bool proofs, const uint32_t *root, uint32_t root_count,
                  sx_buf *bytes)
{
    sx_snapshot_source source = {.rules = rules_key,
                                 .with_proofs = proofs,
                                 .set = &g->set,
                                 .root = root,
                                 .root_count = root_count};
    sx_buf_init(bytes, (size_t)64 << 20);
    ck_sx_ok(&cx, sx_snapshot_store(&cx, &g->eg, &source, bytes));
}

static sx_code load(sx_span bytes, grown *g, const uint32_t **root, uint32_t *root_count)
{
    sx_snapshot s;
    SX_TRY(sx_snapshot_open(&cx, bytes, &rules_key, &s));
    SX_TRY(sx_snapshot_load(&cx, &s, NULL, &g->eg));
    SX_TRY(sx_eg_ruleset_init(&cx, &g->set, &symbols, sums, SX_COUNT(sums)));
    SX_TRY(sx_snapshot_load_set(&cx, &s, &g->eg, &g->set));
    uint32_t *choice;
    SX_TRY(sx_snapshot_load_choice(&cx, &s, &g->eg, &choice));
    return sx_snapshot_load_roots(&cx, &s, &g->eg, root, root_count);
}

/* The engine's arithmetic on reasons must hold: walking up the forest from any node ends at the one root of
 * its class. */
static void check_reasons(const grown *g)
{
    for (uint32_t n = 0; n < g->eg.node_count; n++) {
        uint32_t at = n;
        uint32_t steps = 0;
        while (sx_eg_why_of(&g->eg, at).up != at) {
            at = sx_eg_why_of(&g->eg, at).up;
            ck_assert_uint_lt(steps++, g->eg.node_count);
            ck_assert_uint_eq(sx_eg_find(&g->eg, at), sx_eg_find(&g->eg, n));
        }
    }
}

/* Terms in two parts: one graph takes both at once, the other is stored after the first part (saturated, or
 * stopped after one round) and loaded before the second. */
static void grow_both(sx_rng *rng, bool proofs, uint32_t rounds)
{
    term t[TERMS_MAX];
    uint32_t count = draw_terms(rng, t, 6 + (uint32_t)sx_rng_below(rng, 8));
    uint32_t first = 4 + (uint32_t)sx_rng_below(rng, count - 3);
    uint32_t whole_node[TERMS_MAX];
    uint32_t part_node[TERMS_MAX];
    grown whole, part, again;
    grown_init(&whole);
    insert(&whole, t, 0, count, whole_node);
    saturate(&whole, 1000, SX_STOP_SATURATED);
    grown_init(&part);
    insert(&part, t, 0, first, part_node);
    sx_eg_run run;
    sx_eg_limits limits = roomy;
    limits.rounds = rounds;
    ck_sx_ok(&cx, sx_eg_saturate(&cx, &part.eg, &part.set, &limits, &run));
    sx_buf bytes, second;
    store(&part, proofs, part_node, first, &bytes);
    const uint32_t *root;
    uint32_t root_count;
    ck_sx_ok(&cx, load(sx_buf_span(&bytes), &again, &root, &root_count));
    ck_assert_uint_eq(root_count, first);
    ck_sx_ok(&cx, sx_eg_check(&cx, &again.eg));
    check_reasons(&again);
    ck_assert_uint_eq(again.eg.class_count, part.eg.class_count);
    ck_assert_uint_eq(again.eg.live_count, part.eg.live_count);
    store(&again, proofs, root, root_count, &second);
    ck_assert_uint_eq(bytes.len, second.len);
    ck_assert(memcmp(bytes.ptr, second.ptr, bytes.len) == 0);
    memcpy(part_node, root, first * sizeof(uint32_t));
    insert(&again, t, first, count, part_node);
    saturate(&again, 1000, SX_STOP_SATURATED);
    check_reasons(&again);
    ck_assert_uint_eq(again.eg.class_count, whole.eg.class_count);
    ck_assert_uint_eq(again.eg.live_count, whole.eg.live_count);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            ck_assert(
                (sx_eg_find(&whole.eg, whole_node[i]) == sx_eg_find(&whole.eg, whole_node[j])) ==
                (sx_eg_find(&again.eg, part_node[i]) == sx_eg_find(&again.eg, part_node[j])));
        }
    }
    ck_assert_uint_eq(least_cost(&whole, whole_node + count - 1, 1),
                      least_cost(&again, part_node + count - 1, 1));
    sx_buf_fini(&bytes);
    sx_buf_fini(&second);
}

START_TEST(test_extended_equals_one_go)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < 40; trial++) {
        sx_ctx_fini(&cx);
        sx_ctx_init(&cx, (size_t)1 << 30);
        grow_both(&rng, trial % 2 == 0, trial % 4 < 2 ? 1000 : 1 + trial % 3);
    }
}
END_TEST

/* The sum of n leaves: the exact counts survive, stored in the middle of its growth. */
START_TEST(test_counts)
{
    grown g, again;
    grown_init(&g);
    uint32_t sum, leaf;
    ck_sx_ok(&cx, sx_eg_add(&cx, &g.eg, OP_LEAF, 0, NULL, 0, &sum));
    for (uint32_t i = 1; i < 8; i++) {
        ck_sx_ok(&cx, sx_eg_add(&cx, &g.eg, OP_LEAF, i, NULL, 0, &leaf));
        uint32_t child[2] = {leaf, sum};
        ck_sx_ok(&cx, sx_eg_add(&cx, &g.eg, OP_ADD, 0, child, 2, &sum));
    }
    saturate(&g, 3, SX_STOP_ROUNDS);
    sx_buf bytes;
    const uint32_t *root;
    uint32_t root_count;
    store(&g, true, &sum, 1, &bytes);
    ck_sx_ok(&cx, load(sx_buf_span(&bytes), &again, &root, &root_count));
    saturate(&again, 1000, SX_STOP_SATURATED);
    ck_assert_uint_eq(again.eg.class_count, 255);
    ck_assert_uint_eq(again.eg.live_count, 6058);
    sx_buf_fini(&bytes);
}
END_TEST

static void make_small(grown *g, sx_buf *bytes)
{
    sx_rng rng = {7};
    term t[TERMS_MAX];
    uint32_t node[TERMS_MAX];
    uint32_t count = draw_terms(&rng, t, 14);
    grown_init(g);
    insert(g, t, 0, count, node);
    saturate(g, 1, SX_STOP_ROUNDS);
    /* older nodes that change: entries of the log */
    ck_sx_ok(&cx, sx_eg_union(&cx, &g->eg, node[count - 1], node[count - 3], SX_EG_RULE_GIVEN));
    ck_sx_ok(&cx, sx_eg_rebuild(&cx, &g->eg));
    uint32_t *choice = SX_NEW_ARRAY(&cx, uint32_t, g->eg.node_count);
    for (uint32_t n = 0; n < g->eg.node_count; n++) {
        choice[n] = sx_eg_find(&g->eg, n) == n ? n : SX_EG_NONE;
    }
    sx_snapshot_source source = {.rules = rules_key,
                                 .stop = SX_STOP_ROUNDS,
                                 .with_proofs = true,
                                 .set = &g->set,
                                 .root = node,
                                 .root_count = count,
                                 .choice = choice};
    sx_buf_init(bytes, (size_t)1 << 20);
    ck_sx_ok(&cx, sx_snapshot_store(&cx, &g->eg, &source, bytes));
}

static sx_code load_any(sx_span bytes)
{
    grown g;
    const uint32_t *root;
    uint32_t root_count;
    sx_code code = load(bytes, &g, &root, &root_count);
    if (code == SX_OK) {
        ck_sx_ok(&cx, sx_eg_check(&cx, &g.eg));
        check_reasons(&g);
    }
    return code;
}

/* Every byte that means something is under a checksum: whichever is altered, the snapshot is refused. */
START_TEST(test_altered)
{
    grown g;
    sx_buf bytes;
    make_small(&g, &bytes);
    ck_sx_ok(&cx, load_any(sx_buf_span(&bytes)));
    sx_snapshot s;
    ck_sx_ok(&cx, sx_snapshot_open(&cx, sx_buf_span(&bytes), &rules_key, &s));
    for (size_t at = 0; at < bytes.len; at++) {
        bool covered = at < SX_SNAPSHOT_PAGE;
        for (uint32_t kind = 0; kind < SX_SNAPSHOT_SECTIONS_MAX; kind++) {
            covered = covered || (at >= s.section[kind].offset &&
                                  at < s.section[kind].offset + s.section[kind].size);
        }
        if (!covered) {
            continue;
        }
        bytes.ptr[at] ^= 0x10;
        ck_assert_msg(load_any(sx_buf_span(&bytes)) != SX_OK, "byte %zu altered", at);
        sx_ctx_reset_error(&cx);
        bytes.ptr[at] ^= 0x10;
    }
    for (size_t len = 0; len < bytes.len; len += 509) {
        ck_assert_int_eq(load_any((sx_span){bytes.ptr, len}), SX_CORRUPT);
        sx_ctx_reset_error(&cx);
    }
    sx_buf_fini(&bytes);
}
END_TEST

/* The same with the checksums made good again: refused, or a graph that passes every check. */
START_TEST(test_hostile)
{
    grown g;
    sx_buf bytes;
    sx_rng rng = {sx_test_seed()};
    make_small(&g, &bytes);
    uint32_t refused = 0;
    for (uint32_t trial = 0; trial < 4000; trial++) {
        sx_ctx fresh;
        sx_buf copy;
        sx_ctx_init(&fresh, (size_t)1 << 28);
        sx_buf_init(&copy, bytes.len);
        sx_buf_put_span(&copy, sx_buf_span(&bytes));
        uint32_t changes = 1 + (uint32_t)sx_rng_below(&rng, 3);
        for (uint32_t i = 0; i < changes; i++) {
            size_t at = sx_rng_below(&rng, bytes.len / 4) * 4;
            uint32_t word = (uint32_t)sx_rng_below(&rng, 64) - (trial % 8 == 0 ? 4u : 0u);
            memcpy(copy.ptr + at, &word, sizeof(word));
        }
        sx_test_reseal(copy.ptr, copy.len);
        sx_ctx old = cx;
        cx = fresh;
        refused += load_any(sx_buf_span(&copy)) != SX_OK ? 1 : 0;
        sx_ctx_fini(&cx);
        cx = old;
        sx_buf_fini(&copy);
    }
    ck_assert_uint_gt(refused, 100);
    sx_buf_fini(&bytes);
}
END_TEST

static void put_word(sx_buf *bytes, uint32_t kind, uint32_t index, uint32_t word)
{
    sx_snapshot s;
    ck_sx_ok(&cx, sx_snapshot_open(&cx, sx_buf_span(bytes), &rules_key, &s));
    ck_assert_uint_lt(index * 4, s.section[kind].size);
    memcpy(bytes->ptr + s.section[kind].offset + (size_t)index * 4, &word, sizeof(word));
    sx_test_reseal(bytes->ptr, bytes->len);
}

START_TEST(test_refusals)
{
    static const struct {
        uint32_t kind, index, word;
        const char *text;
    } row[] = {
        {SX_SNAPSHOT_CHILD, 0, 4000, "no class below it"},
        {SX_SNAPSHOT_CLASS, 5, 6, "e-node 5: class 6"},
        {SX_SNAPSHOT_CLASS, 5, 4, "child 1 is 5"}, /* a child that names no class any more */
        {SX_SNAPSHOT_NODE, 1, OP_TEST_COUNT << 16 | 190, "operation 190"},
        {SX_SNAPSHOT_NODE, 2, 0, "equal to e-node 0"}, /* the second leaf like the first */
        {SX_SNAPSHOT_PROOF_UP, 4, 0, "united with 0"},
        {SX_SNAPSHOT_LOG, 0, 1u << 31, "snapshot log"},
        {SX_SNAPSHOT_JOURNAL, 0, 1u << 30, "journal 0"},
        {SX_SNAPSHOT_ROOT, 0, 1u << 30, "root 0"},
        {SX_SNAPSHOT_CHOICE, 1, 3, "choice 0"},
    };
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        grown g;
        sx_buf bytes;
        make_small(&g, &bytes);
        put_word(&bytes, row[i].kind, row[i].index, row[i].word);
        ck_sx_fails(&cx, load_any(sx_buf_span(&bytes)), SX_CORRUPT, row[i].text);
        sx_buf_fini(&bytes);
    }
    grown g;
    sx_buf bytes;
    make_small(&g, &bytes);
    sx_snapshot s;
    sx_key other = sx_key_of("other", NULL, 0);
    ck_sx_fails(&cx, sx_snapshot_open(&cx, sx_buf_span(&bytes), &other, &s), SX_ABSENT,
                "another set of rules");
    uint32_t version = SX_SNAPSHOT_VERSION + 1;
    memcpy(bytes.ptr + offsetof(sx_snapshot_header, version), &version, sizeof(version));
    char text[64];
    (void)snprintf(text, sizeof(text), "form %u, this is %u", version, SX_SNAPSHOT_VERSION);
    ck_sx_fails(&cx, load_any(sx_buf_span(&bytes)), SX_ABSENT, text);
    sx_buf_fini(&bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshot");
    TCase *tc = tcase_create("snapshot");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 400);
    tcase_add_test(tc, test_extended_equals_one_go);
    tcase_add_test(tc, test_counts);
    tcase_add_test(tc, test_altered);
    tcase_add_test(tc, test_hostile);
    tcase_add_test(tc, test_refusals);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
