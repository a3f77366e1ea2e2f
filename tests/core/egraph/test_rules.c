/* Every rule of rules.def on random instances. A rule alone rewrites a random program its left side matches; each pair of nodes it
 * declares equal is evaluated by the interpreter. Exact rules must give equal bits, also on infinities, NaN and zeros of both
 * signs, and equal residues; reassociating ones equal residues, or equal doubles within rounding where functions without algebra
 * stand in them. The same harness must catch false rules. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/core/egraph/instances.h"
#include "tests/core/egraph/values.h"

#define INSTANCES 200
#define ONLINE_INSTANCES 1000
#define ATTEMPTS 60000

typedef struct {
    uint32_t fired;   /* pairs compared */
    uint32_t exact;   /* of them with equal bits on extreme values */
    uint32_t modular; /* of them with equal residues */
    double worst;     /* deviation in doubles */
    uint32_t refused; /* unions of two types */
    uint32_t attempts;
} verdict;

/* How an instance is drawn where the pattern alone does not say. */
typedef struct {
    uint32_t rule;
    fill_kind fill;
    bool algebraic; /* equal residues are expected */
} habit;

static const habit habits[] = {
    {SX_RULE_POWER_TWO, FILL_POSITIVE, false},
    {SX_RULE_POWER_THREE, FILL_POSITIVE, false},
    {SX_RULE_POWER_HALF, FILL_POSITIVE, false},
    {SX_RULE_POWER_MINUS_HALF, FILL_POSITIVE, false},
    {SX_RULE_DIVIDE_ROOT, FILL_POSITIVE, false},
    {SX_RULE_DIVIDE_ROOT_BROADCAST, FILL_POSITIVE, false},
    {SX_RULE_POWER_ONE, FILL_PLAIN, false},
    {SX_RULE_RECIPROCAL_ROOT, FILL_POSITIVE, false},
    {SX_RULE_FOLD_VALUE, FILL_PLAIN, false},
    {SX_RULE_MEAN, FILL_PLAIN, false},
    {SX_RULE_LOGISTIC, FILL_PLAIN, false},
    {SX_RULE_SILU_DIVIDE, FILL_PLAIN, false},
    {SX_RULE_RELU_SWAPPED, FILL_PLAIN, true},
    {SX_RULE_GELU_HALF_LAST, FILL_PLAIN, false},
    {SX_RULE_GELU_HALF_FIRST, FILL_PLAIN, false},
    {SX_RULE_GELU_HALF_INNER, FILL_PLAIN, false},
    {SX_RULE_LOG_OF_SOFTMAX, FILL_PLAIN, false},
    {SX_RULE_EXP_PRODUCT, FILL_PLAIN, false},
    {SX_RULE_EXP_QUOTIENT, FILL_PLAIN, false},
    {SX_RULE_EXP_RECIPROCAL, FILL_PLAIN, false},
    {SX_RULE_LOG_EXP, FILL_PLAIN, false},
    {SX_RULE_SOFTMAX_SHIFT, FILL_PLAIN, false},
};

static habit habit_of(uint32_t rule)
{
    for (uint32_t i = 0; i < SX_COUNT(habits); i++) {
        if (habits[i].rule == rule) {
            return habits[i];
        }
    }
    return (habit){rule, FILL_PLAIN, true};
}

/* ---- programs the general generator does not make ---- */

static sx_code generate_constants(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 3);
    type.dtype = draw(g, 2) == 0 ? SX_F32 : SX_F64;
    sx_node_id node[2];
    for (uint32_t k = 0; k < 2; k++) {
        SX_TRY(sx_build_scalar(g->cx, g->graph, &type, (double)draw(g, 9) - 2, &node[k]));
    }
    static const sx_op binary[] = {SX_OP_ADD, SX_OP_SUBTRACT, SX_OP_MULTIPLY, SX_OP_DIVIDE};
    if (draw(g, 2) == 0) {
        return sx_build_binary(g->cx, g->graph, binary[draw(g, 4)], node[0], node[1], id);
    }
    sx_attr attr = {0};
    sx_type input;
    SX_TRY(before_transpose(g, &type, &attr, &input));
    return sx_build_transpose(g->cx, g->graph, node[0], &attr.perm, id);
}

static sx_code generate_attention(generator *g, sx_node_id *id)
{
    uint32_t batch = draw(g, 3);
    sx_dim extent[4]; /* s, t, d, e */
    for (uint32_t i = 0; i < 4; i++) {
        extent[i] = sx_dim_of(draw_extent(g));
    }
    static const uint32_t last[4][2] = {{0, 2}, {1, 2}, {1, 3}, {0, 1}}; /* q k v mask */
    sx_type type[4];
    sx_node_id input[4];
    uint32_t arity = 3 + draw(g, 2);
    for (uint32_t k = 0; k < arity; k++) {
        type[k] = (sx_type){.dtype = SX_F32, .rank = batch + 2};
        for (uint32_t d = 0; d < batch; d++) {
            type[k].dim[d] = k == 0 ? sx_dim_of(draw_extent(g)) : type[0].dim[d];
        }
        type[k].dim[batch] = extent[last[k][0]];
        type[k].dim[batch + 1] = extent[last[k][1]];
        SX_TRY(fresh_parameter(g, &type[k], &input[k]));
    }
    sx_attr attr = {.present = SX_A(scale), .scale = 0.5};
    return sx_graph_add(g->cx, g->graph, SX_OP_ATTENTION, &attr, input, arity, id);
}

static sx_code generate_program(generator *g, const sx_pattern *pattern, uint32_t rule,
                                sx_node_id *id)
{
    g->pattern = pattern;
    g->first_max = rule == SX_RULE_SOFTMAX || rule == SX_RULE_LOG_SOFTMAX;
    g->online = rule == SX_RULE_ONLINE;
    g->reciprocal_count = rule == SX_RULE_MEAN;
    g->gelu = rule >= SX_RULE_GELU_HALF_LAST && rule <= SX_RULE_GELU_HALF_INNER;
    g->bend = draw(g, 2) == 0 ? SX_OP_ERF : SX_OP_TANH;
    if (rule == SX_RULE_FOLD_VALUE) {
        return generate_constants(g, id);
    }
    if (rule == SX_RULE_ATTENTION) {
        return generate_attention(g, id);
    }
    sx_type type = draw_type(g, 4);
    return generate(g, pattern->root, &type, id);
}

/* ---- both sides as programs ---- */

/* Node n as a program over the smallest member of each class below it: the input's own terms, never the rewritten ones. */
static sx_node_id spell(sx_ctx *cx, const sx_tensors *t, uint32_t n, sx_graph *out, uint32_t *done)
{
    sx_node_id child[SX_EG_ARITY_MAX];
    if (done[n] != SX_EG_NONE) {
        return (sx_node_id){done[n]};
    }
    for (uint32_t k = 0; k < t->eg.node[n].arity; k++) {
        child[k] = spell(cx, t, sx_eg_child(&t->eg, n, k), out, done);
    }
    sx_node_id id;
    sx_attr attr = *sx_tensors_attr(t, n);
    ck_sx_ok(cx,
             sx_graph_add(cx, out, sx_tensors_op(t, n), &attr, child, t->eg.node[n].arity, &id));
    done[n] = id.i;
    return id;
}

static double compare(sx_ctx *cx, sx_rng *rng, const sx_graph *pair, sx_eval_mode mode,
                      fill_kind fill)
{
    sx_tensor *argument;
    uint32_t count;
    sx_tensor result[2];
    ck_sx_ok(cx, random_arguments(cx, rng, pair, mode, fill, &argument, &count));
    ck_sx_ok(cx, sx_graph_eval(cx, pair, mode, argument, count, result, 2));
    return deviation(&result[0], &result[1], mode);
}

static void judge(sx_ctx *cx, sx_rng *rng, const sx_tensors *t, uint32_t from, uint32_t to,
                  fill_kind fill, verdict *v)
{
    sx_graph *pair;
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("pair"), t->attrs, &pair));
    uint32_t *done = SX_NEW_ARRAY(cx, uint32_t, t->eg.node_count);
    ck_assert_ptr_nonnull(done);
    memset(done, 0xFF, t->eg.node_count * sizeof(*done));
    sx_node_id left = spell(cx, t, from, pair, done);
    sx_node_id right = spell(cx, t, to, pair, done);
    ck_sx_ok(cx, sx_graph_add_output(cx, pair, SX_SPAN_LITERAL("left"), left));
    ck_sx_ok(cx, sx_graph_add_output(cx, pair, SX_SPAN_LITERAL("right"), right));
    v->fired++;
    bool is_float = sx_dtype_class_of(sx_graph_node(pair, left)->type.dtype) == SX_CLASS_FLOAT;
    /* integer division is no field operation: integers are judged by their exact values alone */
    v->modular += !is_float || compare(cx, rng, pair, SX_EVAL_MODP, fill) == 0 ? 1 : 0;
    v->exact += compare(cx, rng, pair, SX_EVAL_TYPED, FILL_EXTREME) == 0 ? 1 : 0;
    double gap = compare(cx, rng, pair, SX_EVAL_F64, fill);
    v->worst = gap > v->worst ? gap : v->worst;
}

/* One random program, the rule alone, every union it makes. */
static void attempt(sx_rng *rng, const sx_rule *rule, uint32_t number, fill_kind fill, verdict *v)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 28);
    generator g = {.cx = &cx, .rng = rng};
    sx_tensors t;
    sx_eg_ruleset set;
    sx_node_id root;
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("instance"), NULL, &g.graph));
    ck_sx_ok(&cx, sx_tensors_init(&cx, &t, g.graph));
    sx_eg_language language = sx_tensors_language(&t);
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &language, rule, 1));
    v->attempts++;
    if (generate_program(&g, set.rule[0].left, number, &root) == SX_OK) {
        uint32_t *node = SX_NEW_ARRAY(&cx, uint32_t, g.graph->node_count);
        ck_assert_ptr_nonnull(node);
        ck_sx_ok(&cx, sx_tensors_import(&cx, &t, g.graph, node));
        uint32_t before = t.eg.node_count;
        sx_eg_limits limits = {.rounds = 1,
                               .nodes = 1000,
                               .matches = 1000,
                               .fuel = 100000,
                               .bytes = SIZE_MAX,
                               .check = true};
        sx_eg_run run;
        sx_code code = sx_eg_saturate(&cx, &t.eg, &set, &limits, &run);
        ck_assert_msg(code == SX_OK || code == SX_INTERNAL, "%s", cx.error.text);
        v->fired += code != SX_OK ? 1 : 0;
        v->refused += code != SX_OK ? 1 : 0;
        for (uint32_t n = 0; code == SX_OK && n < t.eg.node_count; n++) {
            if (t.eg.proof_up[n] != n && t.eg.proof_rule[n] != SX_EG_RULE_CONGRUENCE) {
                uint32_t to = t.eg.proof_up[n];
                judge(&cx, rng, &t, n < to ? n : to, n < to ? to : n, fill, v);
            }
        }
        ck_assert_uint_le(before, t.eg.node_count);
    } else {
        ck_assert_msg(cx.error.code == SX_OK || cx.error.code == SX_LIMIT, "%s", cx.error.text);
    }
    sx_ctx_fini(&cx);
}

static verdict try_rule(sx_rng *rng, const sx_rule *rule, uint32_t number, uint32_t instances)
{
    verdict v = {0};
    fill_kind fill = habit_of(number).fill;
    while (v.fired < instances && v.attempts < ATTEMPTS) {
        attempt(rng, rule, number, fill, &v);
    }
    return v;
}

/* The rules that online softmax rests on are drawn more often. */
static uint32_t instances_of(uint32_t rule)
{
    return rule >= SX_RULE_EXP_PRODUCT && rule <= SX_RULE_ONLINE_LOG ? ONLINE_INSTANCES : INSTANCES;
}

/* What the class of a rule promises. */
static bool holds(const verdict *v, sx_rule_class rule_class, bool algebraic)
{
    if (v->refused > 0) {
        return false;
    }
    if (rule_class == SX_RULE_EXACT) {
        return v->exact == v->fired && (v->modular == v->fired || !algebraic);
    }
    return v->worst < 1e-5 && (v->modular == v->fired || !algebraic);
}

static uint64_t seed;

/* _i: a slice of the table, so that slow rules do not add up in one case */
#define SLICES 8
START_TEST(test_rules_hold)
{
    sx_rng rng = {seed + (uint64_t)_i};
    for (uint32_t r = (uint32_t)_i; r < SX_RULE_ROUNDS_COUNT; r += SLICES) {
        verdict v = try_rule(&rng, &sx_rules[r], r, instances_of(r));
        ck_assert_msg(v.fired >= instances_of(r), "rule %s: %u instances in %u attempts",
                      sx_rules[r].name, v.fired, v.attempts);
        ck_assert_msg(holds(&v, sx_rules[r].rule_class, habit_of(r).algebraic),
                      "rule %s (%s): of %u instances %u equal in bits, %u in residues, worst "
                      "deviation %g; SX_SEED=%llu",
                      sx_rules[r].name, sx_rule_class_name(sx_rules[r].rule_class), v.fired,
                      v.exact, v.modular, v.worst, (unsigned long long)seed);
    }
}
END_TEST

/* False rules, and true ones under a class that promises too much. */
static const sx_rule false_rules[] = {
    {"add-zero", SX_RULE_EXACT, "(add ?a 0)", "?a", NULL},
    {"multiply-zero", SX_RULE_EXACT, "(multiply ?a 0)", "0", NULL},
    {"half-is-one", SX_RULE_REASSOCIATING, "(multiply ?a 0.5)", "?a", NULL},
    {"subtract-commutes", SX_RULE_REASSOCIATING, "(subtract ?a ?b)", "(subtract ?b ?a)", NULL},
    {"dot-factor-swapped", SX_RULE_REASSOCIATING,
     "(add (dot_general@d ?b ?a) (dot_general@d ?c ?a))", "(dot_general@d ?a (add ?b ?c))", NULL},
    {"add-associates-exactly", SX_RULE_EXACT, "(add ?a (add ?b ?c))", "(add (add ?a ?b) ?c)", NULL},
    {"transpose-is-nothing", SX_RULE_EXACT, "(transpose@p (transpose@q ?x))", "?x", NULL},
    {"relu-swapped-exactly", SX_RULE_EXACT, "(maximum ?a 0)", "(relu ?a)", NULL},
    {"exp-of-sum", SX_RULE_REASSOCIATING, "(exponential (add ?a ?b))",
     "(add (exponential ?a) (exponential ?b))", NULL},
    {"softmax-shift-anywhere", SX_RULE_REASSOCIATING,
     "(softmax@s (add ?x (broadcast_in_dim@r ?b)))", "(softmax@s ?x)", NULL},
    {"sum-is-max", SX_RULE_REASSOCIATING, "(maximum ?a ?b)", "(add ?a ?b)", NULL},
};

START_TEST(test_false_rules_are_caught)
{
    sx_rng rng = {seed};
    for (uint32_t i = 0; i < SX_COUNT(false_rules); i++) {
        verdict v = try_rule(&rng, &false_rules[i], SX_RULE_COUNT, 50);
        ck_assert_msg(v.fired >= 50, "%s fired %u times", false_rules[i].name, v.fired);
        ck_assert_msg(!holds(&v, false_rules[i].rule_class, true), "%s was not caught",
                      false_rules[i].name);
    }
}
END_TEST

START_TEST(test_names_are_known)
{
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        uint32_t found = SX_RULE_COUNT;
        ck_assert(sx_rule_find(sx_span_of(sx_rule_name(r)), &found));
        ck_assert_uint_eq(found, r);
    }
    uint32_t found;
    ck_assert(!sx_rule_find(SX_SPAN_LITERAL("no-such-rule"), &found));
}
END_TEST

int main(void)
{
    seed = sx_test_seed();
    Suite *suite = suite_create("core.egraph.rules");
    TCase *cases = tcase_create("rules");
    tcase_add_loop_test(cases, test_rules_hold, 0, SLICES);
    tcase_add_test(cases, test_false_rules_are_caught);
    tcase_add_test(cases, test_names_are_known);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
