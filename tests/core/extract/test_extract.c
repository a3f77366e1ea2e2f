/* Extraction problems against brute force: costs, bounds, proofs; every answer is checked by its own walk. */
#include <math.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/extract/extract.h"
#include "tests/lib/sweep.h"
#include "tests/lib/test.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- problems at random ---- */

typedef struct {
    uint32_t classes, nodes_max, arity_max;
    uint32_t back;  /* percent of children that may be any class: cycles */
    uint32_t kinds; /* of costs: 0 small whole numbers with zeros, 1 fractions, 2 wide range */
} shape;

static double draw_cost(sx_rng *rng, uint32_t kind)
{
    if (sx_rng_below(rng, 25) == 0) {
        return (double)INFINITY;
    }
    double unit = (double)sx_rng_below(rng, 1000003) / 1000003;
    switch (kind) {
    case 0: return (double)sx_rng_below(rng, 5);
    case 1: return unit;
    default: return ldexp(unit, (int)sx_rng_below(rng, 30));
    }
}

static void draw(sx_rng *rng, const shape *s, sx_xt *p)
{
    uint32_t child[4096];
    uint32_t edge_first[1024] = {0};
    uint32_t node_first[256] = {0};
    uint32_t nodes = 0;
    uint32_t edges = 0;
    for (uint32_t c = 0; c < s->classes; c++) {
        uint32_t count = 1 + (uint32_t)sx_rng_below(rng, s->nodes_max);
        for (uint32_t k = 0; k < count; k++) {
            uint32_t arity = (uint32_t)sx_rng_below(rng, s->arity_max + 1);
            for (uint32_t i = 0; i < arity && (c > 0 || s->back > 0); i++) {
                bool back = c == 0 || sx_rng_below(rng, 100) < s->back;
                child[edges++] = (uint32_t)sx_rng_below(rng, back ? s->classes : c);
            }
            edge_first[++nodes] = edges;
        }
        node_first[c + 1] = nodes;
    }
    uint32_t roots = 1 + (uint32_t)sx_rng_below(rng, 3);
    ck_sx_ok(&cx, sx_xt_init(&cx, p, s->classes, nodes, edges, roots));
    memcpy(p->node_first, node_first, (s->classes + 1) * sizeof(uint32_t));
    memcpy(p->edge_first, edge_first, (nodes + 1) * sizeof(uint32_t));
    memcpy(p->child, child, edges * sizeof(uint32_t));
    for (uint32_t n = 0; n < nodes; n++) {
        p->cost[n] = draw_cost(rng, s->kinds);
    }
    p->root_count = 0;
    for (uint32_t r = 0; r < roots; r++) {
        uint32_t root = r == 0 ? s->classes - 1 : (uint32_t)sx_rng_below(rng, s->classes);
        bool there = false;
        for (uint32_t k = 0; k < p->root_count; k++) {
            there = there || p->root[k] == root;
        }
        if (!there) {
            p->root[p->root_count++] = root;
        }
    }
    ck_sx_ok(&cx, sx_xt_check(&cx, p));
}

/* ---- brute force: every choice for every class needed, in the order they come up; cycles are looked for at
 * the end ---- */

typedef struct {
    const sx_xt *p;
    uint32_t choice[256];
    bool needed[256];
    uint32_t pending[256];
    double best;
    uint64_t steps;
} brute;

static bool reaches_itself(const brute *b, uint32_t class_, uint8_t *mark)
{
    const sx_xt *p = b->p;
    uint32_t n = b->choice[class_];
    bool cycle = false;
    mark[class_] = 1;
    for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1] && !cycle; e++) {
        uint32_t d = p->child[e];
        cycle = mark[d] == 1 || (mark[d] == 0 && reaches_itself(b, d, mark));
    }
    mark[class_] = 2;
    return cycle;
}

#define STEPS_MAX 2000000u

static void enumerate(brute *b, uint32_t at, uint32_t count, double cost)
{
    const sx_xt *p = b->p;
    if (++b->steps > STEPS_MAX || cost >= b->best) {
        return;
    }
    if (at == count) {
        uint8_t mark[256] = {0};
        bool cycle = false;
        for (uint32_t r = 0; r < p->root_count && !cycle; r++) {
            cycle = mark[p->root[r]] == 0 && reaches_itself(b, p->root[r], mark);
        }
        b->best = cycle ? b->best : cost;
        return;
    }
    uint32_t class_ = b->pending[at];
    for (uint32_t n = p->node_first[class_]; n < p->node_first[class_ + 1]; n++) {
        uint32_t more = count;
        b->choice[class_] = n;
        for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
            if (!b->needed[p->child[e]]) {
                b->needed[p->child[e]] = true;
                b->pending[more++] = p->child[e];
            }
        }
        enumerate(b, at + 1, more, cost + p->cost[n]);
        while (more > count) {
            b->needed[b->pending[--more]] = false;
        }
    }
}

/* INFINITY: no program. False: too many programs to go through. */
static bool brute_force(const sx_xt *p, double *best)
{
    brute b = {.p = p, .best = (double)INFINITY};
    for (uint32_t r = 0; r < p->root_count; r++) {
        b.needed[p->root[r]] = true;
        b.pending[r] = p->root[r];
    }
    enumerate(&b, 0, p->root_count, 0);
    *best = b.best;
    return b.steps <= STEPS_MAX;
}

static void check_answer(const sx_xt *p, const sx_xt_answer *a)
{
    sx_xt_walk walk;
    uint32_t chosen = 0;
    ck_sx_ok(&cx, sx_xt_walk_run(&cx, p, a->choice, &walk));
    ck_assert(walk.whole);
    ck_assert_double_eq(walk.cost, a->dag_cost);
    for (uint32_t c = 0; c < p->class_count; c++) {
        chosen += a->choice[c] != SX_XT_NONE ? 1 : 0;
    }
    ck_assert_uint_eq(chosen, walk.order_count);
    ck_assert_double_le(a->lower_bound, a->dag_cost);
    ck_assert_double_le(a->dag_cost, a->greedy_cost * (1 + 1e-12) + 1e-300);
    ck_assert_double_le(a->dag_cost, a->tree_cost * (1 + 1e-12) + 1e-300);
    ck_assert(a->proven == (a->stop == SX_XT_PROVEN));
}

static const shape shapes[] = {
    {5, 3, 2, 30, 0},  {8, 4, 3, 50, 0},   {8, 6, 3, 100, 1}, {12, 3, 2, 0, 0},
    {14, 3, 3, 15, 1}, {20, 2, 2, 10, 0},  {20, 3, 2, 40, 2}, {25, 3, 3, 5, 0},
    {30, 2, 2, 5, 1},  {10, 8, 4, 100, 0}, {40, 2, 2, 3, 2},  {12, 5, 2, 60, 0},
};

START_TEST(test_against_brute_force)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t compared = 0;
    uint32_t none = 0;
    for (uint32_t trial = 0; trial < 1500; trial++) {
        sx_xt p;
        double best;
        sx_xt_answer a;
        sx_ctx_fini(&cx);
        sx_ctx_init(&cx, (size_t)1 << 30);
        draw(&rng, &shapes[trial % SX_COUNT(shapes)], &p);
        sx_xt_options options = {.fuel = SX_XT_FUEL_DEFAULT};
        if (!brute_force(&p, &best)) {
            continue;
        }
        if (isinf(best)) {
            ck_sx_fails(&cx, sx_xt_solve(&cx, &p, &options, &a), SX_INPUT, "no program");
            none++;
            continue;
        }
        ck_sx_ok(&cx, sx_xt_solve(&cx, &p, &options, &a));
        check_answer(&p, &a);
        ck_assert_msg(a.proven, "trial %u: not proven", trial);
        ck_assert_msg(fabs(a.dag_cost - best) <= 1e-9 * best, "trial %u: %.17g, best is %.17g",
                      trial, a.dag_cost, best);
        compared++;
    }
    ck_assert_uint_ge(compared, 1000);
    ck_assert_uint_ge(none, 5);
}
END_TEST

/* However little fuel there is: a program, a bound below the best, the same answer twice. */
START_TEST(test_bound_holds_at_any_fuel)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t unproven = 0;
    for (uint32_t trial = 0; trial < 800; trial++) {
        sx_xt p;
        sx_xt_answer whole;
        sx_xt_answer part;
        sx_xt_answer again;
        sx_ctx_fini(&cx);
        sx_ctx_init(&cx, (size_t)1 << 30);
        draw(&rng, &shapes[trial % SX_COUNT(shapes)], &p);
        sx_xt_options options = {.fuel = SX_XT_FUEL_DEFAULT};
        if (sx_xt_solve(&cx, &p, &options, &whole) != SX_OK) {
            sx_ctx_reset_error(&cx);
            continue;
        }
        options.fuel = sx_rng_below(&rng, whole.fuel + 1);
        options.start = trial % 2 == 0 ? NULL : whole.choice;
        ck_sx_ok(&cx, sx_xt_solve(&cx, &p, &options, &part));
        check_answer(&p, &part);
        ck_assert_double_le(part.lower_bound, whole.dag_cost * (1 + 1e-12));
        ck_assert_double_ge(part.dag_cost, whole.dag_cost * (1 - 1e-12));
        ck_assert(options.start == NULL || part.dag_cost <= whole.dag_cost * (1 + 1e-12));
        ck_sx_ok(&cx, sx_xt_solve(&cx, &p, &options, &again));
        ck_assert(memcmp(part.choice, again.choice, p.class_count * sizeof(uint32_t)) == 0);
        ck_assert(part.fuel == again.fuel && part.stop == again.stop);
        ck_assert_double_eq(part.lower_bound, again.lower_bound);
        unproven += part.proven ? 0 : 1;
    }
    ck_assert_uint_ge(unproven, 30);
}
END_TEST

/* ---- single cases ---- */

/* Classes of one leaf each but the last, whose nodes are given: costs and children. */
static void make(sx_xt *p, uint32_t classes, const uint32_t *node_first, const uint32_t *edge_first,
                 const uint32_t *child, const double *cost)
{
    uint32_t nodes = node_first[classes];
    ck_sx_ok(&cx, sx_xt_init(&cx, p, classes, nodes, edge_first[nodes], 1));
    memcpy(p->node_first, node_first, (classes + 1) * sizeof(uint32_t));
    memcpy(p->edge_first, edge_first, (nodes + 1) * sizeof(uint32_t));
    memcpy(p->child, child, edge_first[nodes] * sizeof(uint32_t));
    memcpy(p->cost, cost, nodes * sizeof(double));
    p->root[0] = classes - 1;
}

/* 2 = f(0, 0, 1) where 1 = g(0): the tree counts 0 three times. */
START_TEST(test_tree_counts_each_reader)
{
    sx_xt p;
    sx_xt_answer a;
    sx_xt_options options = {.fuel = 1000};
    make(&p, 3, (uint32_t[]){0, 1, 2, 3}, (uint32_t[]){0, 0, 1, 4}, (uint32_t[]){0, 0, 0, 1},
         (double[]){10, 0.5, 0.25});
    ck_sx_ok(&cx, sx_xt_solve(&cx, &p, &options, &a));
    ck_assert_double_eq(a.tree_cost, 30.75);
    ck_assert_double_eq(a.dag_cost, 10.75);
    ck_assert(a.proven);
    check_answer(&p, &a);
}
END_TEST

/* Classes by number: the root reads 1 and 2; 1 is a view of 3 or reads 4; 2 is a view of 4; 3 is dear or a view of 4.
 * Two programs cost the same. The one with the smaller node of 1 needs 3 as a view of 4, which is free once 4 is paid;
 * by itself each form of 3 costs the same, so that the tree optimum has the other. */
START_TEST(test_equal_programs)
{
    static const uint32_t node_first[] = {0, 1, 3, 4, 6, 7};
    static const uint32_t edge_first[] = {0, 2, 3, 4, 5, 5, 6, 6};
    static const uint32_t child[] = {1, 2, 3, 4, 4, 4};
    static const double cost[] = {0, 0, 0, 0, 10, 0, 10};
    sx_xt p;
    sx_xt_answer a;
    make(&p, 5, node_first, edge_first, child, cost);
    p.root[0] = 0;
    ck_sx_ok(&cx, sx_xt_solve(&cx, &p, &(sx_xt_options){.fuel = 1000000}, &a));
    check_answer(&p, &a);
    ck_assert(a.proven && a.dag_cost == 10);
    ck_assert_uint_eq(a.choice[1], 1);
    ck_assert_uint_eq(a.choice[3], 5);
}
END_TEST

/* Layers in two forms each, every form read by both forms of the next layer: no class is needed by all
 * programs, and the relaxation halves from layer to layer; the cuts prove the least at once. */
START_TEST(test_layers_in_two_forms)
{
    enum { LAYERS = 40, CLASSES = 2 * LAYERS + 1 };
    sx_xt p;
    sx_xt_answer a;
    sx_xt_options options = {.fuel = 1000000};
    uint32_t nodes = 0;
    uint32_t edges = 0;
    ck_sx_ok(&cx, sx_xt_init(&cx, &p, CLASSES, 4 * LAYERS, 4 * LAYERS - 2, 1));
    for (uint32_t c = 0; c < CLASSES; c++) {
        uint32_t layer = c / 2;
        for (uint32_t k = 0; k < (layer == 0 ? 1u : 2u); k++) {
            if (layer > 0) {
                p.child[edges++] = 2 * (layer - 1) + k;
            }
            p.cost[nodes] = layer == LAYERS ? 0 : 10 + (c + k) % 2;
            p.edge_first[++nodes] = edges;
        }
        p.node_first[c + 1] = nodes;
    }
    ck_assert_uint_eq(nodes, p.node_count);
    p.root[0] = CLASSES - 1;
    ck_sx_ok(&cx, sx_xt_check(&cx, &p));
    ck_sx_ok(&cx, sx_xt_solve(&cx, &p, &options, &a));
    check_answer(&p, &a);
    ck_assert_double_eq(a.dag_cost, 10 * LAYERS);
    ck_assert_msg(a.proven, "at least %g", a.lower_bound);
}
END_TEST

/* Large classes of pairs of leaves, none of which stands in for another: what is compared within one class
 * counts as it is done. */
START_TEST(test_large_classes_keep_the_fuel)
{
    enum { LEAVES = 64, LARGE = 6, PAIRS = LEAVES * (LEAVES - 1) / 2 };
    enum { NODES = LEAVES + LARGE * PAIRS };
    sx_rng rng = {sx_test_seed()};
    sx_xt p;
    sx_xt_answer a;
    sx_xt_options options = {.fuel = 1000000};
    uint32_t nodes = 0;
    uint32_t edges = 0;
    ck_sx_ok(&cx, sx_xt_init(&cx, &p, LEAVES + LARGE, NODES, 2 * LARGE * PAIRS, LARGE));
    for (uint32_t c = 0; c < LEAVES; c++) {
        p.cost[nodes] = 10 + (double)sx_rng_below(&rng, 10);
        p.edge_first[++nodes] = 0;
        p.node_first[c + 1] = nodes;
    }
    for (uint32_t c = LEAVES; c < LEAVES + LARGE; c++) {
        for (uint32_t i = 0; i < LEAVES; i++) {
            for (uint32_t k = 0; k < i; k++) {
                p.child[edges++] = i;
                p.child[edges++] = k;
                p.cost[nodes] = (double)sx_rng_below(&rng, 40);
                p.edge_first[++nodes] = edges;
            }
        }
        p.node_first[c + 1] = nodes;
        p.root[c - LEAVES] = c;
    }
    ck_sx_ok(&cx, sx_xt_check(&cx, &p));
    ck_sx_ok(&cx, sx_xt_solve(&cx, &p, &options, &a));
    check_answer(&p, &a);
    ck_assert_msg(a.fuel <= 2 * options.fuel, "%llu", (unsigned long long)a.fuel);
}
END_TEST

/* A chain of n classes, each reading the one before twice: the tree cost is 2^n - 1, beyond the doubles for n
 * = 2000. */
START_TEST(test_sums_beyond_the_doubles)
{
    enum { N = 2000 };
    sx_xt p;
    sx_xt_answer a;
    sx_xt_options options = {.fuel = 100000000};
    ck_sx_ok(&cx, sx_xt_init(&cx, &p, N, N, 2 * (N - 1), 1));
    for (uint32_t c = 0; c < N; c++) {
        p.node_first[c + 1] = c + 1;
        p.edge_first[c + 1] = 2 * c;
        p.cost[c] = 1;
        if (c > 0) {
            p.child[2 * c - 2] = p.child[2 * c - 1] = c - 1;
        }
    }
    p.root[0] = N - 1;
    ck_sx_ok(&cx, sx_xt_check(&cx, &p));
    ck_sx_ok(&cx, sx_xt_solve(&cx, &p, &options, &a));
    ck_assert_double_eq(a.dag_cost, N);
    ck_assert(a.proven);
    p.cost[0] = p.cost[1] = 1.5e308;
    ck_sx_fails(&cx, sx_xt_solve(&cx, &p, &options, &a), SX_INPUT, "beyond");
}
END_TEST

START_TEST(test_refusals)
{
    sx_xt p;
    sx_xt_answer a;
    sx_xt_options options = {.fuel = 1000};
    uint32_t first[] = {0, 1, 2};
    uint32_t edges[] = {0, 0, 1};
    make(&p, 2, first, edges, (uint32_t[]){0}, (double[]){-1, 1});
    ck_sx_fails(&cx, sx_xt_check(&cx, &p), SX_INPUT, "cost -1");
    p.cost[0] = (double)NAN;
    ck_sx_fails(&cx, sx_xt_check(&cx, &p), SX_INPUT, "node 0: cost");
    p.cost[0] = 1;
    p.child[0] = 2;
    ck_sx_fails(&cx, sx_xt_check(&cx, &p), SX_INPUT, "class 2 of 2");
    p.child[0] = 0;
    p.root[0] = 7;
    ck_sx_fails(&cx, sx_xt_check(&cx, &p), SX_INPUT, "class 7 of 2");
    p.root[0] = 1;
    p.root_count = 0;
    ck_sx_fails(&cx, sx_xt_check(&cx, &p), SX_INPUT, "no root");
    p.root_count = 1;
    p.edge_first[1] = 9;
    ck_sx_fails(&cx, sx_xt_check(&cx, &p), SX_INPUT, "out of order");
    p.edge_first[1] = 0;
    p.child[0] = 1; /* class 1 reads itself alone */
    ck_sx_fails(&cx, sx_xt_solve(&cx, &p, &options, &a), SX_INPUT, "class 1 has no program");
}
END_TEST

static bool always(void *self)
{
    return *(bool *)self;
}

/* A deadline ends with the best so far, a cancelled request with SX_CANCELLED. */
START_TEST(test_deadline_and_cancel)
{
    sx_rng rng = {7};
    shape s = {60, 6, 3, 0, 1};
    sx_xt p;
    sx_xt_answer a;
    bool now = true;
    draw(&rng, &s, &p);
    for (uint32_t n = 0; n < p.node_count; n++) {
        p.cost[n] = isinf(p.cost[n]) ? 1 : p.cost[n];
    }
    sx_xt_options options = {.fuel = UINT64_MAX, .expired = always, .expired_self = &now};
    ck_sx_ok(&cx, sx_xt_solve(&cx, &p, &options, &a));
    check_answer(&p, &a);
    ck_assert(a.proven || a.stop == SX_XT_DEADLINE);
    cx.cancelled = always;
    cx.cancelled_self = &now;
    options.expired = NULL;
    ck_sx_fails(&cx, sx_xt_solve(&cx, &p, &options, &a), SX_CANCELLED, "cancelled");
}
END_TEST

static sx_code solve_once(sx_ctx *c, void *self)
{
    const sx_xt *p = self;
    sx_xt_options options = {.fuel = 2000000};
    sx_xt_answer answer;
    sx_xt_walk walk;
    SX_TRY(sx_xt_check(c, p));
    SX_TRY(sx_xt_solve(c, p, &options, &answer));
    SX_TRY(sx_xt_walk_run(c, p, answer.choice, &walk));
    ck_assert(walk.whole);
    return SX_OK;
}

/* Memory ends on every rung of the ladder. */
START_TEST(test_memory)
{
    static const shape large = {.classes = 150, .nodes_max = 5, .arity_max = 3, .back = 5};
    sx_rng rng = {sx_test_seed()};
    sx_xt p;
    sx_xt_tree tree;
    do {
        draw(&rng, &large, &p);
        ck_sx_ok(&cx, sx_xt_tree_run(&cx, &p, &tree));
    } while (!isfinite(tree.total));
    (void)sx_test_oom(&(sx_test_sweep){
        .name = "extraction", .work = solve_once, .self = &p, .part = 1.0 / 24, .fails_min = 20});
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.extract");
    TCase *cases = tcase_create("extract");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_against_brute_force);
    tcase_add_test(cases, test_bound_holds_at_any_fuel);
    tcase_add_test(cases, test_tree_counts_each_reader);
    tcase_add_test(cases, test_equal_programs);
    tcase_add_test(cases, test_layers_in_two_forms);
    tcase_add_test(cases, test_large_classes_keep_the_fuel);
    tcase_add_test(cases, test_sums_beyond_the_doubles);
    tcase_add_test(cases, test_refusals);
    tcase_add_test(cases, test_deadline_and_cancel);
    tcase_add_test(cases, test_memory);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
