/* rule_trial.h - one rule on random instances. The rule alone rewrites a random program its left side matches;
 * each pair of nodes it declares equal becomes a program of two outputs, which the interpreter evaluates.
 *
 * EXACT: equal bits on extreme values (infinities, NaN, zeros of both signs, subnormals, the largest) and
 * equal residues. REASSOCIATING: equal residues mod 2^31 - 1 and pairs mod 2147483579 and 1073741789, where
 * exponentials have their algebra (SX_EVAL_FIELDS), or equal doubles: within rounding, or exactly over small
 * whole numbers where the rule is about order. APPROXIMATE: within the bound its habit states.
 * A rule whose instances the pattern alone does not draw has a habit (rule_habits.h). */
#ifndef SX_TESTS_CORE_RULES_RULE_TRIAL_H
#define SX_TESTS_CORE_RULES_RULE_TRIAL_H
#include "core/eval/eval.h"
#include "core/ir/extent.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/core/rules/instances.h"
#include "tests/core/rules/rule_habits.h"
#include "tests/core/rules/rule_symbols.h"
#include "tests/core/rules/values.h"

#define ATTEMPTS 400000u
#define FAILURE_BYTES 6000

typedef struct {
    uint32_t fired;   /* pairs compared */
    uint32_t exact;   /* of them with equal bits on extreme values */
    uint32_t modular; /* of them with equal residues */
    /* of them with equal pairs: a second prime, and exponents in a field of their own */
    uint32_t fields;
    uint32_t ordered;  /* of them equal over small whole numbers */
    double worst;      /* deviation in doubles, in units of what is allowed */
    uint32_t refused;  /* unions of two types */
    uint32_t symbolic; /* pairs over symbols, each compared at several bindings */
    uint32_t attempts;
    char failure[FAILURE_BYTES]; /* the first pair that breaks the promise, as text */
} verdict;

static inline sx_code generate_program(generator *g, const sx_pattern *pattern, const habit *h,
                                       sx_node_id *id)
{
    g->pattern = pattern;
    g->first_max = (h->flags & HABIT_FIRST_MAX) != 0;
    g->online = (h->flags & HABIT_ONLINE) != 0;
    g->narrow = (h->flags & HABIT_NARROW) != 0;
    g->narrow_dtype = draw(g, 2) == 0 ? SX_BF16 : SX_F16;
    g->any_reducer = (h->flags & HABIT_REDUCERS) != 0;
    g->real = (h->flags & HABIT_REAL) != 0;
    g->any_float = (h->flags & HABIT_FLOAT) != 0;
    g->reciprocal_count = (h->flags & HABIT_RECIPROCAL) != 0;
    g->far = (h->flags & HABIT_FAR) != 0 || g->far;
    g->gelu = (h->flags & HABIT_GELU) != 0;
    g->bend = draw(g, 2) == 0 ? SX_OP_ERF : SX_OP_TANH;
    if (h->make != NULL) {
        return h->make(g, id);
    }
    sx_type type = draw_type(g, 4);
    return generate(g, pattern->root, &type, id);
}

/* ---- both sides as programs ---- */

/* Node n as a program over the smallest member of each class below it: the input's own terms, never the
 * rewritten ones. */
static inline sx_node_id spell(sx_ctx *cx, const sx_tensors *t, uint32_t n, sx_graph *out,
                               uint32_t *done)
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

static inline double compare(sx_ctx *cx, sx_rng *rng, const sx_graph *pair, sx_eval_mode mode,
                             fill_kind fill)
{
    sx_tensor *argument;
    uint32_t count;
    sx_tensor result[2];
    ck_sx_ok(cx, random_arguments(cx, rng, pair, mode, fill, &argument, &count));
    ck_sx_ok(cx, sx_graph_eval(cx, pair, mode, argument, count, result, 2));
    return deviation(&result[0], &result[1], mode);
}

/* Small whole numbers for the parameters. Over the reals there is no quotient by zero, so a program that
 * divides gets no zeros. */
static inline fill_kind small_numbers(const sx_graph *pair)
{
    for (uint32_t n = 0; n < pair->node_count; n++) {
        if (pair->node[n].op == SX_OP_DIVIDE) {
            return FILL_DIVISORS;
        }
    }
    return FILL_SMALL;
}

/* What doubles may deviate by: rounding, and that of constants stored in a narrow type. */
static inline double tolerance(const sx_graph *pair, const habit *h)
{
    double allowed = h->bound > 0 ? h->bound : 1e-5;
    for (uint32_t n = 0; n < pair->node_count; n++) {
        sx_dtype dtype = pair->node[n].type.dtype;
        if (pair->node[n].op == SX_OP_CONSTANT && (dtype == SX_BF16 || dtype == SX_F16)) {
            double narrow = dtype == SX_BF16 ? 0x1p-5 : 0x1p-8;
            allowed = narrow > allowed ? narrow : allowed;
        }
    }
    return allowed;
}

/* What the class of a rule promises. */
static inline bool holds(const verdict *v, sx_rule_class rule_class, const habit *h)
{
    bool residues = (h->flags & (HABIT_NO_RESIDUES | HABIT_ORDER)) == 0;
    bool order = (h->flags & HABIT_ORDER) != 0;
    if (v->refused > 0) {
        return false;
    }
    if (rule_class == SX_RULE_APPROXIMATE) {
        return v->worst < 1;
    }
    bool fields = (residues || (h->flags & HABIT_EXPONENTS) != 0);
    bool real = v->worst < 1 && (v->modular == v->fired || !residues) &&
                (v->fields == v->fired || !fields) && (v->ordered == v->fired || !order);
    return rule_class == SX_RULE_EXACT ? v->exact == v->fired && (real || (!residues && !fields))
                                       : real;
}

static inline void keep_failure(sx_ctx *cx, const sx_graph *pair, verdict *v)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    if (sx_graph_print(cx, pair, &text) == SX_OK) {
        size_t bytes = text.len < FAILURE_BYTES - 1 ? text.len : FAILURE_BYTES - 1;
        memcpy(v->failure, text.ptr, bytes);
        v->failure[bytes] = 0;
    }
    sx_buf_fini(&text);
}

/* SX_PAIRS=FOLDER: pairs are written there instead, as RULE-K.sx, small ones of 32- and 64-bit floats, bytes
 * and bools (tests/tools/ prove_rules.py). false: too large, or of another type. */
#define PAIR_ELEMENTS_MAX 48
static inline bool write_pair(sx_ctx *cx, const sx_graph *pair, const char *folder,
                              const char *rule, uint32_t number)
{
    for (uint32_t n = 0; n < pair->node_count; n++) {
        const sx_type *type = &pair->node[n].type;
        bool narrow =
            sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT && sx_dtype_bytes(type->dtype) < 4;
        bool wide_integer = type->dtype == SX_I32 && pair->node[n].op != SX_OP_PARAMETER;
        if (sx_tensor_elements(type) > PAIR_ELEMENTS_MAX || (wide_integer && narrow)) {
            return false;
        }
    }
    char path[512];
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    ck_sx_ok(cx, sx_graph_print(cx, pair, &text));
    (void)snprintf(path, sizeof(path), "%s/%s-%u.sx", folder, rule, number);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text.ptr, 1, text.len, file), text.len);
    (void)fclose(file);
    sx_buf_fini(&text);
    return true;
}

/* Both sides of a pair of static extents, evaluated in every way. */
static inline void measure(sx_ctx *cx, sx_rng *rng, const sx_graph *pair, const sx_rule *rule,
                           const habit *h, verdict *v)
{
    sx_node_id left = pair->output[0].node;
    v->fired++;
    bool is_float = sx_dtype_class_of(sx_graph_node(pair, left)->type.dtype) == SX_CLASS_FLOAT;
    /* integer division is no field operation: integers are judged by their exact values alone */
    v->modular += !is_float || compare(cx, rng, pair, SX_EVAL_MODP, h->fill) == 0 ? 1 : 0;
    v->fields += !is_float || compare(cx, rng, pair, SX_EVAL_FIELDS, h->fill) == 0 ? 1 : 0;
    v->exact += compare(cx, rng, pair, SX_EVAL_TYPED, FILL_EXTREME) == 0 ? 1 : 0;
    if ((h->flags & HABIT_ORDER) != 0) { /* zeros of two signs are one number */
        v->ordered += compare(cx, rng, pair, SX_EVAL_POW2, small_numbers(pair)) <= 1e-12 ? 1 : 0;
    }
    double gap = compare(cx, rng, pair, SX_EVAL_F64, h->fill) / tolerance(pair, h);
    v->worst = gap > v->worst ? gap : v->worst;
    if (h->fill == FILL_POSITIVE) { /* elsewhere both sides are defined, or neither */
        gap = compare(cx, rng, pair, SX_EVAL_F64, FILL_PLAIN) / tolerance(pair, h);
        v->worst = gap > v->worst ? gap : v->worst;
    }
    if (v->failure[0] == 0 && !holds(v, rule->rule_class, h)) {
        keep_failure(cx, pair, v);
    }
}

static inline void judge(sx_ctx *cx, sx_rng *rng, const sx_tensors *t, uint32_t from, uint32_t to,
                         const sx_rule *rule, const habit *h, verdict *v)
{
    sx_graph *pair;
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("pair"), t->attrs, &pair));
    ck_sx_ok(cx, sx_graph_copy_symbols(cx, t->symbol, t->symbol_count, pair));
    uint32_t *done = SX_NEW_ARRAY(cx, uint32_t, t->eg.node_count);
    ck_assert_ptr_nonnull(done);
    memset(done, 0xFF, t->eg.node_count * sizeof(*done));
    sx_node_id left = spell(cx, t, from, pair, done);
    sx_node_id right = spell(cx, t, to, pair, done);
    ck_sx_ok(cx, sx_graph_add_output(cx, pair, SX_SPAN_LITERAL("left"), left));
    ck_sx_ok(cx, sx_graph_add_output(cx, pair, SX_SPAN_LITERAL("right"), right));
    const char *folder = getenv("SX_PAIRS");
    if (folder != NULL) {
        v->fired += write_pair(cx, pair, folder, rule->name, v->fired) ? 1 : 0;
        v->exact = v->modular = v->fields = v->ordered = v->fired;
        return;
    }
    if (t->symbol_count == 0) {
        measure(cx, rng, pair, rule, h, v);
        return;
    }
    if (!is_symbolic(pair)) {
        return;
    }
    int64_t value[BINDINGS_MAX][SYMBOL_COUNT];
    uint32_t count = draw_bindings(rng, pair->symbol, value);
    for (uint32_t i = 0; i < count; i++) {
        sx_ctx scratch;
        sx_ctx_init(&scratch, (size_t)1 << 28);
        measure(&scratch, rng, bind_pair(&scratch, pair, value[i]), rule, h, v);
        sx_ctx_fini(&scratch);
    }
    v->symbolic++;
}

/* What the rule makes of one program. */
static inline void rewrite(sx_ctx *cx, sx_rng *rng, const sx_graph *graph, sx_eg_ruleset *set,
                           const sx_rule *rule, const habit *h, verdict *v)
{
    sx_tensors t;
    ck_sx_ok(cx, sx_tensors_init(cx, &t, graph));
    set->language = sx_tensors_language(&t);
    uint32_t *node = SX_NEW_ARRAY(cx, uint32_t, graph->node_count + 1);
    ck_assert_ptr_nonnull(node);
    ck_sx_ok(cx, sx_tensors_import(cx, &t, graph, node));
    sx_eg_limits limits = {.rounds = 1,
                           .nodes = 1000,
                           .matches = 1000,
                           .fuel = 100000,
                           .bytes = SIZE_MAX,
                           .check = true};
    sx_eg_run run;
    sx_code code = sx_eg_saturate(cx, &t.eg, set, &limits, &run);
    ck_assert_msg(code == SX_OK || code == SX_INTERNAL, "%s", cx->error.text);
    v->fired += code != SX_OK ? 1 : 0;
    v->refused += code != SX_OK ? 1 : 0;
    for (uint32_t n = 0; code == SX_OK && n < t.eg.node_count; n++) {
        if (sx_eg_why_of(&t.eg, n).up != n &&
            sx_eg_why_of(&t.eg, n).rule != SX_EG_RULE_CONGRUENCE) {
            uint32_t to = sx_eg_why_of(&t.eg, n).up;
            judge(cx, rng, &t, n < to ? n : to, n < to ? to : n, rule, h, v);
        }
    }
}

/* One random program, the rule alone, every union it makes. */
static inline void attempt(sx_rng *rng, const sx_rule *rule, const habit *h, bool symbolic,
                           verdict *v)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 28);
    generator g = {.cx = &cx, .rng = rng, .symbolic = symbolic};
    sx_tensors none = {0};
    sx_eg_ruleset set;
    sx_node_id root;
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("instance"), NULL, &g.graph));
    sx_eg_language language = sx_tensors_language(&none);
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &language, rule, 1));
    v->attempts++;
    sx_graph *graph = g.graph;
    sx_code code = generate_program(&g, set.rule[0].left, h, &root);
    if (code == SX_OK && symbolic) {
        code = make_symbolic(&cx, rng, g.graph, &graph);
    }
    if (code == SX_OK) {
        rewrite(&cx, rng, graph, &set, rule, h, v);
    } else { /* given up, or a number the type does not have */
        ck_assert_msg(cx.error.code == SX_OK || cx.error.code == SX_INPUT, "%s", cx.error.text);
    }
    sx_ctx_fini(&cx);
}

/* Until `instances` pairs are compared or one breaks the promise. */
static inline void try_rule(uint64_t seed, const sx_rule *rule, const habit *h, uint32_t instances,
                            verdict *v)
{
    sx_rng rng = {seed ^ sx_hash64(sx_span_of(rule->name), 0)};
    memset(v, 0, sizeof(*v));
    uint32_t most = getenv("SX_PAIRS") != NULL ? ATTEMPTS / 20 : ATTEMPTS;
    while (v->fired < instances && v->attempts < most && v->failure[0] == 0 && v->refused == 0) {
        attempt(&rng, rule, h, false, v);
    }
}

/* The same on symbolic programs. */
static inline void try_rule_on_symbols(uint64_t seed, const sx_rule *rule, const habit *h,
                                       uint32_t instances, verdict *v)
{
    sx_rng rng = {seed ^ sx_hash64(sx_span_of(rule->name), 1)};
    memset(v, 0, sizeof(*v));
    while (v->symbolic < instances && v->attempts < ATTEMPTS && v->failure[0] == 0 &&
           v->refused == 0) {
        attempt(&rng, rule, h, true, v);
    }
}
#endif
