/* terms_math.c - the programs of the engine's public comparisons: math-micro, sums, egg's mathematics (MIT)
 * with conditions. */
#include <math.h>

#include "tests/lib/terms.h"

#define RULE(name, left, right)                \
    {                                          \
        name, SX_RULE_EXACT, left, right, NULL \
    }
#define BUILT(name, left, build)               \
    {                                          \
        name, SX_RULE_EXACT, left, NULL, build \
    }

const sx_rule sx_terms_sum_rules[3] = {
    RULE("commute", "(add ?a ?b)", "(add ?b ?a)"),
    RULE("left", "(add ?a (add ?b ?c))", "(add (add ?a ?b) ?c)"),
    RULE("right", "(add (add ?a ?b) ?c)", "(add ?a (add ?b ?c))"),
};

/* The rules that both sets hold. */
#define SHARED_RULES                                                                              \
    RULE("comm-add", "(add ?a ?b)", "(add ?b ?a)"),                                               \
        RULE("comm-mul", "(mul ?a ?b)", "(mul ?b ?a)"),                                           \
        RULE("assoc-add", "(add ?a (add ?b ?c))", "(add (add ?a ?b) ?c)"),                        \
        RULE("assoc-mul", "(mul ?a (mul ?b ?c))", "(mul (mul ?a ?b) ?c)"),                        \
        RULE("sub", "(sub ?a ?b)", "(add ?a (mul -1 ?b))"), RULE("zero-add", "(add ?a 0)", "?a"), \
        RULE("zero-mul", "(mul ?a 0)", "0"), RULE("one-mul", "(mul ?a 1)", "?a"),                 \
        RULE("cancel-sub", "(sub ?a ?a)", "0"),                                                   \
        RULE("distribute", "(mul ?a (add ?b ?c))", "(add (mul ?a ?b) (mul ?a ?c))"),              \
        RULE("factor", "(add (mul ?a ?b) (mul ?a ?c))", "(mul ?a (add ?b ?c))"),                  \
        RULE("pow-mul", "(mul (pow ?a ?b) (pow ?a ?c))", "(pow ?a (add ?b ?c))"),                 \
        RULE("pow1", "(pow ?x 1)", "?x"), RULE("pow2", "(pow ?x 2)", "(mul ?x ?x)"),              \
        RULE("d-add", "(d ?x (add ?a ?b))", "(add (d ?x ?a) (d ?x ?b))"),                         \
        RULE("d-mul", "(d ?x (mul ?a ?b))", "(add (mul ?a (d ?x ?b)) (mul ?b (d ?x ?a)))"),       \
        RULE("d-sin", "(d ?x (sin ?x))", "(cos ?x)"),                                             \
        RULE("d-cos", "(d ?x (cos ?x))", "(mul -1 (sin ?x))"), RULE("i-one", "(i 1 ?x)", "?x"),   \
        RULE("i-cos", "(i (cos ?x) ?x)", "(sin ?x)"),                                             \
        RULE("i-sin", "(i (sin ?x) ?x)", "(mul -1 (cos ?x))"),                                    \
        RULE("i-sum", "(i (add ?f ?g) ?x)", "(add (i ?f ?x) (i ?g ?x))"),                         \
        RULE("i-dif", "(i (sub ?f ?g) ?x)", "(sub (i ?f ?x) (i ?g ?x))"),                         \
        RULE("i-parts", "(i (mul ?a ?b) ?x)",                                                     \
             "(sub (mul ?a (i ?b ?x)) (i (mul (d ?x ?a) (i ?b ?x)) ?x))")

const sx_rule sx_terms_micro_rules[24] = {SHARED_RULES};

static sx_code put(sx_rewrite *rw, const char *op, uint32_t a, uint32_t b, uint32_t *node)
{
    sx_terms *t = rw->self;
    sx_bits ops;
    uint32_t child[2] = {a, b};
    if (a == SX_EG_NONE || b == SX_EG_NONE || !t->language.ops(t, sx_span_of(op), false, &ops)) {
        *node = SX_EG_NONE;
        return SX_OK;
    }
    return sx_eg_add(rw->cx, rw->eg, (uint16_t)sx_bits_first(&ops), 0, child, 2, node);
}

static sx_code to(sx_rewrite *rw, uint32_t node)
{
    return node == SX_EG_NONE ? SX_OK : sx_rewrite_to(rw, node);
}

/* Known to be zero, or it cannot be said: egg's condition asks for "not known to be zero". */
static bool is_zero(const sx_rewrite *rw, uint32_t class_)
{
    double value;
    return sx_terms_value(rw->self, sx_eg_find(rw->eg, class_), &value) && value == 0;
}

static bool is_number(const sx_rewrite *rw, uint32_t class_)
{
    double value;
    return sx_terms_value(rw->self, sx_eg_find(rw->eg, class_), &value);
}

static bool is_symbol(const sx_rewrite *rw, uint32_t class_)
{
    const sx_terms *t = rw->self;
    for (uint32_t n = sx_eg_find(rw->eg, class_), first = n, more = 1; more != 0;) {
        const sx_eg_node *node = &rw->eg->node[n];
        if (node->op == SX_TERMS_LEAF && t->leaf[node->attr].name.len > 0) {
            return true;
        }
        n = sx_eg_member_next(rw->eg, n);
        more = n != first;
    }
    return false;
}

static sx_code to_value(sx_rewrite *rw, double value)
{
    uint32_t node;
    SX_TRY(sx_terms_add_value(rw->self, value, &node));
    return to(rw, node);
}

static sx_code fold(sx_rewrite *rw)
{
    double value;
    bool known = sx_terms_value(rw->self, sx_eg_find(rw->eg, rw->node[0]), &value);
    return known ? to_value(rw, value) : SX_OK;
}

static sx_code div_canon(sx_rewrite *rw)
{
    uint32_t one, power;
    if (is_zero(rw, rw->var[1])) {
        return SX_OK;
    }
    SX_TRY(sx_terms_add_value(rw->self, -1, &one));
    SX_TRY(put(rw, "pow", rw->var[1], one, &power));
    SX_TRY(put(rw, "mul", rw->var[0], power, &power));
    return to(rw, power);
}

static sx_code one_unless_zero(sx_rewrite *rw) /* x / x, x^0, x * (1 / x) */
{
    return is_zero(rw, rw->var[0]) ? SX_OK : to_value(rw, 1);
}

static sx_code reciprocal(sx_rewrite *rw) /* x^-1 = 1 / x; d ln x = 1 / x */
{
    uint32_t node;
    if (is_zero(rw, rw->var[0])) {
        return SX_OK;
    }
    SX_TRY(sx_terms_add_value(rw->self, 1, &node));
    SX_TRY(put(rw, "div", node, rw->var[0], &node));
    return to(rw, node);
}

static sx_code d_variable(sx_rewrite *rw)
{
    return is_symbol(rw, rw->var[0]) ? to_value(rw, 1) : SX_OK;
}

static sx_code d_constant(sx_rewrite *rw)
{
    bool other = sx_eg_find(rw->eg, rw->var[0]) != sx_eg_find(rw->eg, rw->var[1]) &&
                 is_symbol(rw, rw->var[1]);
    bool holds = is_symbol(rw, rw->var[0]) && (is_number(rw, rw->var[1]) || other);
    return holds ? to_value(rw, 0) : SX_OK;
}

/* d f^g = f^g * (df * g/f + dg * ln f) */
static sx_code d_power(sx_rewrite *rw)
{
    sx_terms *t = rw->self;
    uint32_t x = rw->var[0], f = rw->var[1], g = rw->var[2], power, df, dg, part, log;
    sx_bits ops;
    if (is_zero(rw, f) || is_zero(rw, g) || !t->language.ops(t, sx_span_of("ln"), false, &ops)) {
        return SX_OK;
    }
    SX_TRY(put(rw, "pow", f, g, &power));
    SX_TRY(put(rw, "d", x, f, &df));
    SX_TRY(put(rw, "div", g, f, &part));
    SX_TRY(put(rw, "mul", df, part, &df));
    SX_TRY(put(rw, "d", x, g, &dg));
    SX_TRY(sx_eg_add(rw->cx, rw->eg, (uint16_t)sx_bits_first(&ops), 0, &f, 1, &log));
    SX_TRY(put(rw, "mul", dg, log, &dg));
    SX_TRY(put(rw, "add", df, dg, &df));
    SX_TRY(put(rw, "mul", power, df, &power));
    return to(rw, power);
}

/* i x^c = x^(c+1) / (c+1) */
static sx_code i_power(sx_rewrite *rw)
{
    uint32_t next, power;
    if (!is_number(rw, rw->var[1])) {
        return SX_OK;
    }
    SX_TRY(sx_terms_add_value(rw->self, 1, &next));
    SX_TRY(put(rw, "add", rw->var[1], next, &next));
    SX_TRY(put(rw, "pow", rw->var[0], next, &power));
    SX_TRY(put(rw, "div", power, next, &power));
    return to(rw, power);
}

const sx_rule sx_terms_math_rules[] = {
    SHARED_RULES,
    RULE("add-zero", "?x=(*any ...)", "(add ?x 0)"),
    RULE("mul-one", "?x=(*any ...)", "(mul ?x 1)"),
    BUILT("fold", "(*any ?a ?b)", fold),
    BUILT("div-canon", "(div ?a ?b)", div_canon),
    BUILT("cancel-div", "(div ?a ?a)", one_unless_zero),
    BUILT("pow0", "(pow ?x 0)", one_unless_zero),
    BUILT("pow-recip", "(pow ?x -1)", reciprocal),
    BUILT("recip-mul-div", "(mul ?x (div 1 ?x))", one_unless_zero),
    BUILT("d-variable", "(d ?x ?x)", d_variable),
    BUILT("d-constant", "(d ?x ?c)", d_constant),
    BUILT("d-ln", "(d ?x (ln ?x))", reciprocal),
    BUILT("d-power", "(d ?x (pow ?f ?g))", d_power),
    BUILT("i-power-const", "(i (pow ?x ?c) ?x)", i_power),
};
const uint32_t sx_terms_math_rule_count = SX_COUNT(sx_terms_math_rules);

sx_code sx_terms_add_micro(sx_terms *t)
{
    static const char *const term[] = {
        "(i (ln x) x)",
        "(i (add x (cos x)) x)",
        "(i (mul (cos x) x) x)",
        "(d x (add 1 (mul 2 x)))",
        "(d x (sub (pow x 3) (mul 7 (pow x 2))))",
        "(add (mul y (add x y)) (sub (add x 2) (add x x)))",
        "(div 1 (sub (div (add 1 (sqrt five)) 2) (div (sub 1 (sqrt five)) 2)))",
    };
    for (uint32_t i = 0; i < SX_COUNT(term); i++) {
        uint32_t node;
        SX_TRY(sx_terms_add(t, term[i], &node));
    }
    return SX_OK;
}

sx_code sx_terms_add_sum(sx_terms *t, uint32_t leaves)
{
    uint32_t sum, leaf;
    sx_bits ops;
    SX_TRY(sx_terms_add_value(t, leaves, &sum));
    SX_ASSERT(t->language.ops(t, sx_span_of("add"), false, &ops));
    for (uint32_t k = leaves - 1; k >= 1; k--) {
        SX_TRY(sx_terms_add_value(t, k, &leaf));
        uint32_t child[2] = {leaf, sum};
        SX_TRY(sx_eg_add(t->cx, &t->eg, (uint16_t)sx_bits_first(&ops), 0, child, 2, &sum));
    }
    return SX_OK;
}
