/* The table of rules: every row parses and is well-typed; the harness that tries them (rule_trial.h) catches
 * false rules. The rules themselves are tried by test_rules_1.c to test_rules_4.c. */
#include "core/egraph/typed.h"
#include "core/ir/num.h"
#include "tests/core/rules/rule_trial.h"

static uint64_t seed;

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
    /* a wrong axis, a wrong constant, a wrong order */
    {"softmax-past-transpose", SX_RULE_EXACT, "(softmax@a (transpose@p ?x))",
     "(transpose@p (softmax@a ?x))", NULL},
    {"logistic-of-whole", SX_RULE_REASSOCIATING, "(multiply (add (tanh ?x) 1) 0.5)",
     "(logistic ?x)", NULL},
    {"select-not-kept", SX_RULE_EXACT, "(select (not ?p) ?a ?b)", "(select ?p ?a ?b)", NULL},
    {"concatenate-turned", SX_RULE_EXACT, "(concatenate@a ?x ?y)", "(concatenate@a ?y ?x)", NULL},
    {"reduce-any-function", SX_RULE_REASSOCIATING, "(reduce@r (tanh ?x))", "(tanh (reduce@r ?x))",
     NULL},
    {"view-order", SX_RULE_EXACT, "(transpose@p (transpose@q ?x))",
     "(transpose@q (transpose@p ?x))", NULL},
    /* rules of the table without their side condition */
    {"abs-negate", SX_RULE_EXACT, "(abs (negate ?a))", "(abs ?a)", NULL},
    {"subtract-same-integer", SX_RULE_EXACT, "(subtract ?a ?a)", "0", NULL},
    {"divide-negate", SX_RULE_EXACT, "(divide (negate ?a) ?b)", "(negate (divide ?a ?b))", NULL},
    {"factor-divide", SX_RULE_REASSOCIATING, "(add (divide ?a ?d) (divide ?b ?d))",
     "(divide (add ?a ?b) ?d)", NULL},
    {"divide-divide", SX_RULE_REASSOCIATING, "(divide (divide ?a ?b) ?d)",
     "(divide ?a (multiply ?b ?d))", NULL},
    {"multiply-reciprocal", SX_RULE_REASSOCIATING, "(multiply ?a (divide 1 ?b))", "(divide ?a ?b)",
     NULL},
    {"maximum-negate", SX_RULE_REASSOCIATING, "(maximum ?a (negate ?a))", "(abs ?a)", NULL},
    {"power-minus-one", SX_RULE_REASSOCIATING, "(power ?a -1)", "(divide 1 ?a)", NULL},
    {"outer-idle", SX_RULE_EXACT, "(relu (abs ?a))", "(abs ?a)", NULL},
    {"maximum-commute-exactly", SX_RULE_EXACT, "(maximum ?a ?b)", "(maximum ?b ?a)", NULL},
    {"add-same-order", SX_RULE_EXACT, "(add (add ?a ?b) ?a)", "(add ?b (multiply ?a 2))", NULL},
    {"sum-is-max", SX_RULE_REASSOCIATING, "(maximum ?a ?b)", "(add ?a ?b)", NULL},
    {"and-absorb-other", SX_RULE_EXACT, "(and ?a (or ?a ?b))", "?b", NULL},
    {"not-and-as-and", SX_RULE_EXACT, "(not (and (not ?a) (not ?b)))", "(and ?a ?b)", NULL},
    {"remainder-mask", SX_RULE_EXACT, "(remainder ?a 4)", "(and ?a 3)", NULL},
    {"divide-divide-integer", SX_RULE_EXACT, "(divide (divide ?a ?m) ?o)",
     "(divide ?a (multiply ?m ?o))", NULL},
    {"compare-same", SX_RULE_EXACT, "(compare ?a ?a)", "1", NULL},
    {"select-order-equal", SX_RULE_REASSOCIATING, "(select (compare ?a ?b) ?a ?b)",
     "(maximum ?a ?b)", NULL},
    {"select-unary", SX_RULE_EXACT, "(select ?p (abs ?a) (negate ?b))", "(abs (select ?p ?a ?b))",
     NULL},
    {"clamp-order", SX_RULE_REASSOCIATING, "(minimum (maximum ?a ?m) ?o)",
     "(maximum (minimum ?a ?o) ?m)", NULL},
    {"clamp-twice", SX_RULE_EXACT, "(minimum (maximum (minimum ?a ?o) ?m) ?o)",
     "(maximum (minimum ?a ?o) ?m)", NULL},
    {"maximum-maximum", SX_RULE_EXACT, "(maximum (maximum ?a ?m) ?o)", "(maximum ?a ?m)", NULL},
    {"gather-gather", SX_RULE_EXACT, "(gather@g (gather@g ?x ?i) ?j)",
     "(gather@g (gather@g ?x ?j) ?i)", NULL},
};

START_TEST(test_false_rules_are_caught)
{
    static verdict v;
    habit h = habit_of(SX_RULE_COUNT);
    for (uint32_t i = 0; i < SX_COUNT(false_rules); i++) {
        try_rule(seed, &false_rules[i], &h, 200, &v);
        ck_assert_msg(v.fired > 0, "%s fired %u times", false_rules[i].name, v.fired);
        ck_assert_msg(!holds(&v, false_rules[i].rule_class, &h), "%s was not caught",
                      false_rules[i].name);
        ck_assert_msg(v.refused > 0 || strstr(v.failure, "return") != NULL, "%s: no program shown",
                      false_rules[i].name);
    }
}
END_TEST

/* Wrong by NaN and infinities alone, under a habit that leaves the judgement to doubles. */
START_TEST(test_false_specials_are_caught)
{
    static const sx_rule rules[] = {
        {"root-of-negative", SX_RULE_REASSOCIATING, "(sqrt (multiply ?a ?a))",
         "(sqrt (negate (multiply ?a ?a)))", NULL},
        {"root-of-negative-turned", SX_RULE_REASSOCIATING, "(sqrt (negate (multiply ?a ?a)))",
         "(sqrt (multiply ?a ?a))", NULL},
        {"log-of-negative", SX_RULE_REASSOCIATING, "(log (multiply ?a ?a))",
         "(log (negate (multiply ?a ?a)))", NULL},
        {"rsqrt-of-negative", SX_RULE_REASSOCIATING, "(rsqrt (multiply ?a ?a))",
         "(rsqrt (negate (multiply ?a ?a)))", NULL},
        {"power-of-negative", SX_RULE_REASSOCIATING, "(power (abs ?a) 0.5)",
         "(power (negate (abs ?a)) 0.5)", NULL},
        {"divide-by-zeros", SX_RULE_REASSOCIATING, "(divide ?a 0)", "(divide ?a -0)", NULL},
        {"divide-by-zero-idle", SX_RULE_REASSOCIATING, "(divide ?a 0)", "?a", NULL},
        {"nothing-by-zero", SX_RULE_REASSOCIATING, "(multiply (divide ?a 0) 0)", "?a", NULL},
        {"log-of-zeros", SX_RULE_REASSOCIATING, "(log (multiply ?a 0))",
         "(negate (log (multiply ?a 0)))", NULL},
    };
    habit h = {SX_RULE_COUNT, FILL_PLAIN, HABIT_NO_RESIDUES | HABIT_REAL, 0, NULL};
    static verdict v;
    for (uint32_t i = 0; i < SX_COUNT(rules); i++) {
        try_rule(seed, &rules[i], &h, 200, &v);
        ck_assert_msg(v.fired > 0 && v.refused == 0 && v.worst == HUGE_VAL &&
                          !holds(&v, rules[i].rule_class, &h),
                      "%s: %u pairs, worst deviation %g", rules[i].name, v.fired, v.worst);
    }
}
END_TEST

/* The measure itself, on every pair of special values: only NaN is near NaN, only the same infinity near an
 * infinity. */
START_TEST(test_gaps_of_special_values)
{
    static const double value[] = {(double)NAN, HUGE_VAL, -HUGE_VAL, 0.0, -0.0, 1, DBL_MAX};
    for (uint32_t i = 0; i < SX_COUNT(value); i++) {
        for (uint32_t k = 0; k < SX_COUNT(value); k++) {
            double gap = float_gap(value[i], value[k]);
            bool zeros = value[i] == 0 && value[k] == 0;
            bool finite = isfinite(value[i]) && isfinite(value[k]);
            if (i == k) {
                ck_assert_msg(gap == 0, "%g from itself: %g", value[i], gap);
            } else if (zeros) {
                ck_assert_msg(gap > 0 && gap < 1e-200, "two zeros: %g", gap);
            } else {
                ck_assert_msg(finite ? gap >= 0.5 : gap == HUGE_VAL, "%g from %g: %g", value[k],
                              value[i], gap);
            }
        }
    }
}
END_TEST

/* What two fields catch and doubles within their tolerance, or residues without algebra, do not: judged by
 * pairs alone. */
START_TEST(test_false_exponents_are_caught)
{
    static const sx_rule rules[] = {
        {"exp-product-scaled", SX_RULE_REASSOCIATING,
         "(multiply (exponential ?a) (exponential ?b))", "(exponential (multiply ?a ?b))", NULL},
        {"exp-nearly", SX_RULE_REASSOCIATING, "(multiply (exponential ?a) (exponential ?b))",
         "(multiply (exponential (add ?a ?b)) 1.00000011920928955078125)", NULL},
        {"logistic-nearly", SX_RULE_REASSOCIATING, "(divide 1 (add 1 (exponential (negate ?x))))",
         "(multiply (logistic ?x) 1.00000011920928955078125)", NULL},
        {"tanh-halved", SX_RULE_REASSOCIATING, "(subtract (multiply (logistic ?x) 2) 1)",
         "(tanh ?x)", NULL},
    };
    habit h = {SX_RULE_COUNT, FILL_PLAIN, HABIT_NO_RESIDUES | HABIT_EXPONENTS | HABIT_REAL, 1,
               NULL};
    static verdict v;
    for (uint32_t i = 0; i < SX_COUNT(rules); i++) {
        try_rule(seed, &rules[i], &h, 50, &v);
        ck_assert_msg(v.fired > 0 && v.fields < v.fired, "%s: %u of %u pairs are equal",
                      rules[i].name, v.fields, v.fired);
    }
    /* and what is true there: without the algebra of exponentials residues do not see it */
    sx_rule rule = sx_rules[SX_RULE_EXP_PRODUCT];
    try_rule(seed, &rule, &h, 200, &v);
    ck_assert_uint_eq(v.fields, v.fired);
    ck_assert_uint_lt(v.modular, v.fired);
}
END_TEST

/* ---- rules that compute their right sides, made to compute another ---- */

/* Two neighbours in the list of equalities get each other's right side. */
static sx_code exchange(sx_rewrite *rw, sx_rewrite_build build)
{
    uint32_t at = rw->pending->count;
    SX_TRY(build(rw));
    for (; at + 2 * SX_PENDING_WORDS <= rw->pending->count; at += 2 * SX_PENDING_WORDS) {
        uint32_t *pair = &rw->pending->word[at];
        uint32_t to = pair[1];
        pair[1] = pair[SX_PENDING_WORDS + 1];
        pair[SX_PENDING_WORDS + 1] = to;
    }
    return SX_OK;
}

/* The right side becomes operand `k` of what it was. */
static sx_code open_up(sx_rewrite *rw, sx_rewrite_build build, uint32_t k)
{
    uint32_t at = rw->pending->count;
    SX_TRY(build(rw));
    for (; at < rw->pending->count; at += SX_PENDING_WORDS) {
        uint32_t *to = &rw->pending->word[at + 1];
        *to = rw->eg->node[*to].arity > k ? sx_eg_child(rw->eg, *to, k) : *to;
    }
    return SX_OK;
}

static sx_code wrong_batch(sx_rewrite *rw)
{
    return exchange(rw, sx_rule_batch);
}

static sx_code wrong_parts(sx_rewrite *rw)
{
    return exchange(rw, sx_rule_parts_rows);
}

static sx_code wrong_strips(sx_rewrite *rw)
{
    return exchange(rw, sx_rule_strips_rows);
}

static sx_code wrong_view(sx_rewrite *rw)
{
    uint32_t node;
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    bool all = sx_rewrite_type(rw, rw->var[0])->rank > 0;
    SX_TRY(sx_rewrite_reshape(rw, rw->var[0], &type, &node));
    return all ? sx_rewrite_emit(rw, node) : SX_OK;
}

static sx_code wrong_one_hot(sx_rewrite *rw)
{
    return open_up(rw, sx_rule_one_hot_dot, 1); /* without the test of the range */
}

static sx_code wrong_sum_parts(sx_rewrite *rw)
{
    return open_up(rw, sx_rule_conv_sum_parts, 0); /* without the last part */
}

/* The padding of the enlarged convolution stands on the other side. */
static sx_code wrong_enlarged(sx_rewrite *rw)
{
    uint32_t at = rw->pending->count;
    SX_TRY(sx_rule_conv_enlarge_shared(rw));
    for (; at < rw->pending->count; at += SX_PENDING_WORDS) {
        uint32_t *to = &rw->pending->word[at + 1];
        uint32_t child[2] = {sx_eg_child(rw->eg, *to, 0), sx_eg_child(rw->eg, *to, 1)};
        sx_attr attr = *sx_tensors_attr(sx_rewrite_tensors(rw), *to);
        sx_ints low = attr.low;
        uint32_t node;
        attr.low = attr.high;
        attr.high = low;
        SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &attr, child, 2, &node));
        *to = node != SX_EG_NONE ? node : *to;
    }
    return SX_OK;
}

static sx_code wrong_index_parts(sx_rewrite *rw)
{
    uint32_t var[3] = {rw->var[0], rw->var[2], rw->var[1]};
    sx_rewrite turned = *rw;
    turned.var = var;
    return sx_rule_gather_index_parts(&turned);
}

START_TEST(test_wrong_builds_are_caught)
{
    static const struct {
        uint32_t rule;
        sx_rewrite_build build;
    } wrong[] = {
        {SX_RULE_DOT_BATCH, wrong_batch},
        {SX_RULE_CONV_BATCH, wrong_batch},
        {SX_RULE_PARTS_SOFTMAX, wrong_parts},
        {SX_RULE_PARTS_LOG_SOFTMAX, wrong_parts},
        {SX_RULE_STRIPS_SOFTMAX, wrong_strips},
        {SX_RULE_STRIPS_LOG_SOFTMAX, wrong_strips},
        {SX_RULE_STACK_STRIPS, wrong_view},
        {SX_RULE_STRIPS_UNSTACKED, wrong_view},
        {SX_RULE_ONE_HOT_DOT, wrong_one_hot},
        {SX_RULE_CONV_SUM_PARTS, wrong_sum_parts},
        {SX_RULE_CONV_ENLARGE_SHARED, wrong_enlarged},
        {SX_RULE_GATHER_INDEX_PARTS, wrong_index_parts},
    };
    static verdict v;
    for (uint32_t i = 0; i < SX_COUNT(wrong); i++) {
        sx_rule rule = sx_rules[wrong[i].rule];
        habit h = habit_of(wrong[i].rule);
        rule.build = wrong[i].build;
        try_rule(seed, &rule, &h, 200, &v);
        ck_assert_msg(v.fired > 0 && !holds(&v, rule.rule_class, &h), "%s: %u equalities hold",
                      rule.name, v.fired);
    }
}
END_TEST

/* ---- rules that are right for constant extents only ---- */

typedef enum { AS_CONSTANT, EXCHANGED } confusion;

/* The sum of a scalar's repetitions is x times the sum of as many ones, counted in dimensions that are not
 * those of the sum. */
static sx_code sum_of_ones(sx_rewrite *rw, confusion wrong)
{
    sx_attr sum = sx_rewrite_attr(rw, 0);
    sx_type ones = *sx_rewrite_type(rw, rw->node[1]);
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    if (sum.reducer != SX_SUM || sx_rewrite_type(rw, rw->var[0])->rank != 0 ||
        sx_rewrite_type(rw, rw->node[0])->rank != 0) {
        return SX_OK;
    }
    for (uint32_t d = 0; d < ones.rank; d++) {
        if (!sx_dim_is_constant(ones.dim[d])) {
            ones.dim[d].symbol = wrong == AS_CONSTANT ? SX_NO_SYMBOL : 1 - ones.dim[d].symbol;
        }
    }
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &ones, 1, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &sum, &child[1], 1, &child[1]));
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* The scale of an extent taken for all of it: right as long as there are no symbols. */
static sx_code wrong_scale(sx_rewrite *rw)
{
    return sum_of_ones(rw, AS_CONSTANT);
}

static sx_code wrong_symbol(sx_rewrite *rw)
{
    return sum_of_ones(rw, EXCHANGED);
}

static sx_code make_scalar_sum(generator *g, sx_node_id *id)
{
    sx_type type = draw_type(g, 3);
    sx_type scalar = {.dtype = draw(g, 3) == 0 ? SX_F64 : SX_F32};
    sx_attr sum = {.present = SX_A(dims) | SX_A(reducer), .reducer = SX_SUM};
    sx_attr wide = {.present = SX_A(dims) | SX_A(type), .type = type};
    wide.type.dtype = scalar.dtype;
    for (uint32_t d = 0; d < type.rank; d++) {
        sum.dims.v[sum.dims.count++] = d;
    }
    if (type.rank == 0) {
        return GIVE_UP;
    }
    SX_TRY(fresh_parameter(g, &scalar, id));
    SX_TRY(sx_graph_add(g->cx, g->graph, SX_OP_BROADCAST, &wide, id, 1, id));
    return sx_graph_add(g->cx, g->graph, SX_OP_REDUCE, &sum, id, 1, id);
}

/* Nothing is wrong with them on constant extents: only the trial on symbols can refuse them. */
START_TEST(test_wrong_symbols_are_caught)
{
    static const sx_rule rules[] = {
        {"scale-for-extent", SX_RULE_REASSOCIATING, "(reduce (broadcast_in_dim ?x))", NULL,
         wrong_scale},
        {"other-symbol", SX_RULE_REASSOCIATING, "(reduce (broadcast_in_dim ?x))", NULL,
         wrong_symbol},
    };
    habit h = {SX_RULE_COUNT, FILL_PLAIN, 0, 0, make_scalar_sum};
    static verdict v;
    for (uint32_t i = 0; i < SX_COUNT(rules); i++) {
        try_rule(seed, &rules[i], &h, 200, &v);
        ck_assert_msg(v.fired >= 200 && holds(&v, rules[i].rule_class, &h),
                      "%s is right on constant extents: %s", rules[i].name, v.failure);
        try_rule_on_symbols(seed, &rules[i], &h, 50, &v);
        ck_assert_msg(v.fired > 0 && !holds(&v, rules[i].rule_class, &h) &&
                          strstr(v.failure, "return") != NULL,
                      "%s: %u bound pairs hold", rules[i].name, v.fired);
    }
}
END_TEST

START_TEST(test_names_are_known)
{
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        uint32_t found = SX_RULE_COUNT;
        ck_assert(sx_rule_find(sx_span_of(sx_rule_name(r)), &found));
        ck_assert_msg(found == r, "rule %s is there twice", sx_rule_name(r));
    }
    uint32_t found;
    ck_assert(!sx_rule_find(SX_SPAN_LITERAL("no-such-rule"), &found));
}
END_TEST

/* ---- types of the rows ---- */

/* What is wrong with a rule; NULL: nothing. */
static const char *fault_of_rule(sx_ctx *cx, const sx_rule *rule)
{
    sx_graph *graph;
    sx_tensors t;
    sx_eg_ruleset set;
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("none"), NULL, &graph));
    ck_sx_ok(cx, sx_tensors_init(cx, &t, graph));
    sx_eg_language language = sx_tensors_language(&t);
    sx_code code = sx_eg_ruleset_init(cx, &set, &language, rule, 1);
    if (code == SX_OK) {
        code = sx_rule_typed(cx, rule->name, set.rule[0].left, set.rule[0].right);
    }
    return code == SX_OK ? NULL : cx->error.text;
}

static bool same_names(const sx_span *a, const sx_span *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!sx_span_equal(a[i], b[i])) {
            return false;
        }
    }
    return true;
}

static bool same_part(const sx_pattern_part *a, const sx_pattern_part *b)
{
    return a->kind == b->kind && a->name == b->name && a->attr_name == b->attr_name &&
           a->arity == b->arity && a->any_arity == b->any_arity &&
           sx_bits_equal(&a->ops, &b->ops) && memcmp(&a->value, &b->value, sizeof(a->value)) == 0 &&
           memcmp(a->child, b->child, sizeof(a->child)) == 0;
}

static bool same_step(const sx_step *a, const sx_step *b)
{
    return a->kind == b->kind && a->from == b->from && a->other == b->other && a->bind == b->bind &&
           a->out == b->out && a->arity == b->arity && a->any_arity == b->any_arity &&
           sx_bits_equal(&a->ops, &b->ops) && a->hint == b->hint &&
           memcmp(&a->value, &b->value, sizeof(a->value)) == 0;
}

static bool same_pattern(const sx_pattern *a, const sx_pattern *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    bool same = a->part_count == b->part_count && a->root == b->root &&
                a->step_count == b->step_count && a->bind_count == b->bind_count &&
                a->reg_count == b->reg_count && a->depth == b->depth &&
                a->name_count == b->name_count && a->attr_name_count == b->attr_name_count &&
                same_names(a->name, b->name, a->name_count) &&
                same_names(a->attr_name, b->attr_name, a->attr_name_count) &&
                memcmp(a->attr_bind, b->attr_bind, sizeof(a->attr_bind)) == 0 &&
                memcmp(a->name_reg, b->name_reg, sizeof(a->name_reg)) == 0 &&
                memcmp(a->reg_bind, b->reg_bind, a->reg_count) == 0 &&
                memcmp(a->reg_slot, b->reg_slot, a->reg_count) == 0;
    for (uint32_t i = 0; same && i < a->part_count; i++) {
        same = same_part(&a->part[i], &b->part[i]);
    }
    for (uint32_t i = 0; same && i < a->step_count; i++) {
        same = same_step(&a->step[i], &b->step[i]);
    }
    return same;
}

/* The sides that were parsed while this was built are those that the text has now. */
START_TEST(test_parsed_sides_are_the_text)
{
    sx_ctx cx;
    sx_tensors none = {0};
    sx_eg_ruleset text, built;
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_eg_language language = sx_tensors_language(&none);
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &text, &language, sx_rules, SX_RULE_ROUNDS_COUNT));
    ck_sx_ok(&cx, sx_rules_set(&cx, &none, &built));
    ck_assert_uint_eq(built.rule_count, text.rule_count);
    for (uint32_t r = 0; r < SX_RULE_ROUNDS_COUNT; r++) {
        ck_assert_msg(built.rule[r].rule == text.rule[r].rule && built.rule[r].enabled &&
                          same_pattern(built.rule[r].left, text.rule[r].left) &&
                          same_pattern(built.rule[r].right, text.rule[r].right),
                      "%s", sx_rule_name(r));
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_rows_are_typed)
{
    for (uint32_t r = 0; r < SX_RULE_ROUNDS_COUNT; r++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 24);
        const char *fault = fault_of_rule(&cx, &sx_rules[r]);
        ck_assert_msg(fault == NULL, "rule %s: %s", sx_rules[r].name, fault);
        ck_assert_int_le(sx_rules[r].rule_class, SX_RULE_APPROXIMATE);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_untyped_rows_are_caught)
{
    static const sx_rule bad[] = {
        {"unknown", SX_RULE_EXACT, "(addd ?a ?b)", "?a", NULL},
        {"unbound", SX_RULE_EXACT, "(add ?a ?b)", "?c", NULL},
        {"open", SX_RULE_EXACT, "(add ?a ?b", "?a", NULL},
        {"many", SX_RULE_EXACT, "(add ?a ?b ?c)", "?a", NULL},
        {"few", SX_RULE_EXACT, "(add ?a ?b)", "(add ?a)", NULL},
        {"bare", SX_RULE_EXACT, "(transpose ?a)", "(transpose ?a)", NULL},
        {"borrowed", SX_RULE_EXACT, "(transpose@p ?a)", "(reshape@p ?a)", NULL},
        {"given", SX_RULE_EXACT, "(negate@p ?a)", "(abs@p ?a)", NULL},
        {"truth", SX_RULE_EXACT, "(exponential (compare ?a ?b))", "?a", NULL},
        {"number", SX_RULE_EXACT, "(select (negate ?a) ?b ?c)", "?b", NULL},
        {"roots", SX_RULE_EXACT, "(compare ?a ?b)", "(exponential ?a)", NULL},
        {"two-types", SX_RULE_EXACT, "(add (exponential ?a) (and ?a ?b))", "?a", NULL},
        {"half", SX_RULE_EXACT, "(and ?a 0.5)", "?a", NULL},
        {"index", SX_RULE_EXACT, "(gather ?x (tanh ?i))", NULL, sx_rule_same_type},
        {"named", SX_RULE_EXACT, "(select ?e=(exponential ?x) ?e ?e)", "?x", NULL},
    };
    for (uint32_t i = 0; i < SX_COUNT(bad); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 24);
        ck_assert_msg(fault_of_rule(&cx, &bad[i]) != NULL, "%s", bad[i].name);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* variance-one-pass: the bound that rules.def states, on a sweep of means over deviations, in f32. */
START_TEST(test_one_pass_variance_keeps_its_bound)
{
    static const char text[] = "sx 1\ngraph \"variance\" {\n"
                               "%x = parameter {name = \"x\", weight = 0} : f32[64]\n"
                               "%n = constant {data = 64} : f32[]\n"
                               "%s = reduce(%x) {dims = [0], reducer = add} : f32[]\n"
                               "%m = divide(%s, %n) : f32[]\n"
                               "%r = broadcast_in_dim(%m) {} : f32[64]\n"
                               "%d = subtract(%x, %r) : f32[64]\n"
                               "%q = multiply(%d, %d) : f32[64]\n"
                               "%t = reduce(%q) {dims = [0], reducer = add} : f32[]\n"
                               "%two = divide(%t, %n) : f32[]\n"
                               "%p = multiply(%x, %x) : f32[64]\n"
                               "%u = reduce(%p) {dims = [0], reducer = add} : f32[]\n"
                               "%v = divide(%u, %n) : f32[]\n"
                               "%w = multiply(%m, %m) : f32[]\n"
                               "%one = subtract(%v, %w) : f32[]\n"
                               "return %two as \"two\", %one as \"one\"\n}\n";
    sx_ctx cx;
    sx_graph *graph;
    sx_rng rng = {seed};
    sx_ctx_init(&cx, (size_t)1 << 28);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    for (uint32_t i = 0; i < 2000; i++) {
        double data[64];
        double mean = ldexp((double)sx_rng_f32(&rng), (int)sx_rng_below(&rng, 12));
        for (uint32_t k = 0; k < 64; k++) {
            data[k] = sx_round(SX_F32, mean + (double)sx_rng_f32(&rng));
        }
        sx_tensor x = {.type = graph->node[0].type, .data = data};
        sx_tensor exact[2];
        sx_tensor result[2];
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_F64, &x, 1, exact, 2));
        ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, &x, 1, result, 2));
        double variance = *(double *)exact[0].data;
        double allowed = 64 * 0x1p-24 * (variance + mean * mean + 1); /* one rounding an addend */
        ck_assert_double_le(fabs(*(double *)result[1].data - variance), allowed);
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    seed = sx_test_seed();
    Suite *suite = suite_create("core.rules.rules");
    TCase *cases = tcase_create("rules");
    tcase_add_test(cases, test_false_rules_are_caught);
    tcase_add_test(cases, test_false_specials_are_caught);
    tcase_add_test(cases, test_gaps_of_special_values);
    tcase_add_test(cases, test_false_exponents_are_caught);
    tcase_add_test(cases, test_wrong_builds_are_caught);
    tcase_add_test(cases, test_wrong_symbols_are_caught);
    tcase_add_test(cases, test_names_are_known);
    tcase_add_test(cases, test_parsed_sides_are_the_text);
    tcase_add_test(cases, test_rows_are_typed);
    tcase_add_test(cases, test_untyped_rows_are_caught);
    tcase_add_test(cases, test_one_pass_variance_keeps_its_bound);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
