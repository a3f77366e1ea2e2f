/* Extraction on plain symbols against brute force over all choices. */
#include "tests/lib/test.h"

#include "core/base/rng.h"
#include "core/egraph/extract.h"

static sx_ctx cx;
static sx_eg eg;
static uint64_t *cost;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* A random graph: leaves, nodes above, a few unions (so that classes have several members and cycles exist),
 * random costs. */
static void make_random(sx_rng *rng, uint32_t size)
{
    ck_sx_ok(&cx, sx_eg_init(&cx, &eg, NULL));
    uint32_t term[64];
    for (uint32_t i = 0; i < size; i++) {
        uint32_t arity = i < 3 ? 0 : (uint32_t)sx_rng_below(rng, 3);
        uint32_t child[2];
        for (uint32_t k = 0; k < arity; k++) {
            child[k] = term[sx_rng_below(rng, i)];
        }
        ck_sx_ok(&cx, sx_eg_add(&cx, &eg, (uint16_t)(arity * 2 + sx_rng_below(rng, 2)),
                                (uint32_t)sx_rng_below(rng, 3), child, arity, &term[i]));
        if (i > 3 && sx_rng_below(rng, 2) == 0) {
            ck_sx_ok(&cx,
                     sx_eg_union(&cx, &eg, term[i], term[sx_rng_below(rng, i)], SX_EG_RULE_GIVEN));
        }
    }
    ck_sx_ok(&cx, sx_eg_rebuild(&cx, &eg));
    ck_sx_ok(&cx, sx_eg_check(&cx, &eg));
    cost = SX_NEW_ARRAY(&cx, uint64_t, eg.node_count);
    ck_assert_ptr_nonnull(cost);
    for (uint32_t n = 0; n < eg.node_count; n++) {
        cost[n] = 1 + sx_rng_below(rng, 20);
        if (eg.node[n].dead != 0 || sx_rng_below(rng, 12) == 0) {
            cost[n] = SX_COST_NEVER;
        }
    }
}

/* Least cost over every choice of one node per class, by counting through them all. */
static uint64_t brute_force(const uint32_t *root, uint32_t root_count)
{
    uint32_t *choice = SX_NEW_ARRAY(&cx, uint32_t, eg.node_count);
    ck_assert_ptr_nonnull(choice);
    sx_walker walker;
    ck_sx_ok(&cx, sx_walker_init(&cx, &eg, &walker));
    uint64_t best = SX_COST_NEVER;
    for (uint32_t c = 0; c < eg.node_count; c++) {
        choice[c] = c;
    }
    for (;;) {
        uint64_t total;
        if (sx_walker_run(&walker, &eg, cost, root, root_count, choice, &total) && total < best) {
            best = total;
        }
        uint32_t c = 0;
        for (; c < eg.node_count; c++) {
            if (!sx_eg_is_class(&eg, c)) {
                continue;
            }
            choice[c] = sx_eg_member_next(&eg, choice[c]);
            if (choice[c] != c) {
                break;
            }
        }
        if (c == eg.node_count) {
            return best;
        }
    }
}

static uint64_t combinations(void)
{
    uint64_t product = 1;
    for (uint32_t c = 0; c < eg.node_count && product < 100000; c++) {
        uint64_t members = 1;
        for (uint32_t n = sx_eg_member_next(&eg, c); n != c && sx_eg_is_class(&eg, c);
             n = sx_eg_member_next(&eg, n)) {
            members++;
        }
        product *= members;
    }
    return product;
}

START_TEST(test_against_brute_force)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t compared = 0;
    for (uint32_t trial = 0; trial < 600 && compared < 150; trial++) {
        make_random(&rng, 8 + (uint32_t)sx_rng_below(&rng, 14));
        if (combinations() > 4000) {
            continue;
        }
        uint32_t root[2] = {eg.node_count - 1, (uint32_t)sx_rng_below(&rng, eg.node_count)};
        uint64_t best = brute_force(root, 2);
        sx_extraction wanted = {.cost = cost, .root = root, .root_count = 2, .fuel = 1000000};
        sx_extracted result;
        if (best == SX_COST_NEVER) {
            ck_sx_fails(&cx, sx_eg_extract(&cx, &eg, &wanted, &result), SX_INTERNAL, "no program");
            continue;
        }
        ck_sx_ok(&cx, sx_eg_extract(&cx, &eg, &wanted, &result));
        ck_assert_msg(result.proven, "trial %u is not proven", trial);
        ck_assert_uint_eq(result.cost, best);
        sx_walker walker;
        uint64_t total;
        ck_sx_ok(&cx, sx_walker_init(&cx, &eg, &walker));
        ck_assert(sx_walker_run(&walker, &eg, cost, root, 2, result.choice, &total));
        ck_assert_uint_eq(total, best);
        compared++;
    }
    ck_assert_uint_ge(compared, 100);
}
END_TEST

/* Without fuel the answer is still a program, not worse than the start. */
START_TEST(test_start_is_never_lost)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < 100; trial++) {
        make_random(&rng, 40);
        for (uint32_t n = 0; n < eg.node_count; n++) {
            cost[n] = eg.node[n].dead != 0 ? SX_COST_NEVER : 1 + sx_rng_below(&rng, 9);
        }
        uint32_t root[1] = {eg.node_count - 1};
        uint32_t *start = SX_NEW_ARRAY(&cx, uint32_t, eg.node_count);
        for (uint32_t c = 0; c < eg.node_count; c++) {
            start[c] = c; /* smallest members: acyclic */
        }
        sx_walker walker;
        uint64_t start_cost;
        ck_sx_ok(&cx, sx_walker_init(&cx, &eg, &walker));
        ck_assert(sx_walker_run(&walker, &eg, cost, root, 1, start, &start_cost));
        sx_extraction wanted = {.cost = cost, .root = root, .root_count = 1, .start = start};
        sx_extracted result;
        ck_sx_ok(&cx, sx_eg_extract(&cx, &eg, &wanted, &result));
        ck_assert_uint_le(result.cost, start_cost);
    }
}
END_TEST

/* Sharing: f(a, a') is dearer as a tree than g(b), but the shared part is paid once. */
START_TEST(test_sharing_is_paid_once)
{
    ck_sx_ok(&cx, sx_eg_init(&cx, &eg, NULL));
    uint32_t shared;
    uint32_t above[2];
    uint32_t twice;
    uint32_t other;
    ck_sx_ok(&cx, sx_eg_add(&cx, &eg, 0, 1, NULL, 0, &shared));
    ck_sx_ok(&cx, sx_eg_add(&cx, &eg, 1, 1, &shared, 1, &above[0]));
    ck_sx_ok(&cx, sx_eg_add(&cx, &eg, 1, 2, &shared, 1, &above[1]));
    ck_sx_ok(&cx, sx_eg_add(&cx, &eg, 2, 1, above, 2, &twice));
    ck_sx_ok(&cx, sx_eg_add(&cx, &eg, 0, 2, NULL, 0, &other));
    ck_sx_ok(&cx, sx_eg_union(&cx, &eg, twice, other, SX_EG_RULE_GIVEN));
    ck_sx_ok(&cx, sx_eg_rebuild(&cx, &eg));
    uint64_t costs[5] = {100, 1, 1, 1, 150}; /* tree 203, dag 103, other 150 */
    sx_extraction wanted = {.cost = costs, .root = &twice, .root_count = 1, .fuel = 1000};
    sx_extracted result;
    ck_sx_ok(&cx, sx_eg_extract(&cx, &eg, &wanted, &result));
    ck_assert_uint_eq(result.cost, 103);
    ck_assert_uint_eq(result.choice[sx_eg_find(&eg, twice)], twice);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.egraph.extract");
    TCase *cases = tcase_create("extract");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_against_brute_force);
    tcase_add_test(cases, test_start_is_never_lost);
    tcase_add_test(cases, test_sharing_is_paid_once);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
