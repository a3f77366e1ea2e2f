/* range_trial.h - does a rule do to the range of intermediate values what range.def says of it? Tried, on
 * programs of the rule's left side:
 *
 * Every parameter has a magnitude, one of those below, which go from the least normal number of f32 to the
 * largest. A search looks for magnitudes under which all values of the left side stay in range while some
 * value of the right side leaves it: it starts at random and changes one magnitude at a time, as long as the
 * right side gets no nearer to its range. Values are those of the interpreter in doubles, where nothing of
 * this size overflows or vanishes. There numbers of these magnitudes are drawn. Where the left side, computed
 * in f32, is right (compared with itself in doubles), the right side must be as well: it is not if it
 * overflowed or vanished. A sum that cancels can be wrong on either side for another reason, so what counts is
 * the greater part of the draws. "In range" leaves room of SX_RANGE_FACTOR, and of a bit more for the digits,
 * at both ends; for CONTRACTS also for the number of terms. What MOVES must be seen to break where the left
 * side has all of the range but one bit. */
#ifndef SX_TESTS_CORE_RULES_RANGE_TRIAL_H
#define SX_TESTS_CORE_RULES_RANGE_TRIAL_H
#include <math.h>

#include "core/eval/eval.h"
#include "tests/core/rules/rule_trial.h"

#define STARTS 14u
#define DRAWS 7u
#define PARAMETERS_MAX 12u
#define ROOM_BITS 5  /* twice SX_RANGE_FACTOR */
#define SEEN 0x1p-10 /* f32 is right: this near to doubles */
#define WRONG 0x1p-6 /* and wrong: this far */

static const int magnitudes[] = {-125, -94, -64, -32, -8, 0, 8, 32, 64, 94, 126};

typedef struct {
    sx_ctx *cx;
    sx_rng *rng;
    const sx_graph *pair; /* outputs: left, right, then every node */
    bool *on_left;        /* nodes that the left side needs */
    bool *of_weights;     /* nodes that follow from weights */
    uint32_t parameters;
    sx_rule_range range;
    int room;
} range_case;

/* What a search at one program, or at all programs of a rule, came to. */
typedef struct {
    uint32_t programs; /* programs of f32 alone */
    uint32_t points;   /* magnitudes at which numbers were drawn */
    uint32_t judged;   /* of them with a left side that is right, mostly */
    uint32_t broken;   /* of them with a right side that is wrong, mostly */
    char witness[FAILURE_BYTES];
} range_verdict;

static inline bool is_float_node(const sx_graph *graph, uint32_t n)
{
    return sx_dtype_class_of(graph->node[n].type.dtype) == SX_CLASS_FLOAT;
}

/* Numbers of the magnitudes `bits`, one a parameter. `plain`: powers of two alone; else any digits and signs,
 * and where `mixed`, one in four elements has the magnitude of another parameter. */
static inline sx_tensor *range_arguments(const range_case *c, const int *bits, bool plain,
                                         bool mixed)
{
    sx_tensor *argument = SX_NEW_ARRAY(c->cx, sx_tensor, c->parameters + 1);
    ck_assert_ptr_nonnull(argument);
    uint32_t p = 0;
    for (uint32_t n = 0; n < c->pair->node_count; n++) {
        if (c->pair->node[n].op != SX_OP_PARAMETER) {
            continue;
        }
        const sx_type *type = &c->pair->node[n].type;
        bool both_signs = sx_rng_below(c->rng, 2) == 0;
        ck_sx_ok(c->cx,
                 random_tensor(c->cx, c->rng, type, SX_EVAL_F64, FILL_POSITIVE, &argument[p]));
        double *f = argument[p].data;
        for (int64_t k = 0; is_float_node(c->pair, n) && k < sx_tensor_elements(type); k++) {
            bool other = mixed && sx_rng_below(c->rng, 4) == 0;
            int size = other ? bits[sx_rng_below(c->rng, c->parameters)] : bits[p];
            double digits = plain ? 1 : 1 + fabs((double)sx_rng_f32(c->rng)) / 2;
            f[k] = sx_num_round(type->dtype, ldexp(digits, size));
            f[k] = !plain && both_signs && sx_rng_below(c->rng, 2) == 0 ? -f[k] : f[k];
        }
        p++;
    }
    return argument;
}

/* How far the elements reach beyond the range of f32, in bits; negative: how far they stay within. What is
 * zero or -inf in doubles is meant to be. */
static inline double reach_of(const sx_tensor *tensor)
{
    const double *f = tensor->data;
    double reach = -HUGE_VAL;
    for (int64_t k = 0; k < sx_tensor_elements(&tensor->type); k++) {
        if (f[k] == 0 || f[k] == -HUGE_VAL) {
            continue;
        }
        double size = isfinite(f[k]) ? log2(fabs(f[k])) : HUGE_VAL;
        double beyond = fmax(size - 128, -126 - size);
        reach = fmax(reach, beyond);
    }
    return reach;
}

/* Are all values that must be in range there; how far does the right side reach? */
static inline bool in_range(const range_case *c, const sx_tensor *result, double *reach)
{
    bool all = true;
    *reach = -HUGE_VAL;
    for (uint32_t n = 0; all && n < c->pair->node_count; n++) {
        if (!is_float_node(c->pair, n)) {
            continue;
        }
        double own = reach_of(&result[2 + n]);
        bool must = c->on_left[n] || (c->range == SX_RANGE_FOLDS && c->of_weights[n]);
        bool given = c->pair->node[n].op == SX_OP_CONSTANT;
        all = !must || own <= (given ? 0 : -c->room);
        *reach = must ? *reach : fmax(*reach, own);
    }
    return all;
}

static inline const sx_tensor *evaluate(const range_case *c, sx_eval_mode mode,
                                        const sx_tensor *argument)
{
    uint32_t count = 2 + c->pair->node_count;
    sx_tensor *result = SX_NEW_ARRAY(c->cx, sx_tensor, count);
    ck_assert_ptr_nonnull(result);
    ck_sx_ok(c->cx, sx_graph_eval(c->cx, c->pair, mode, argument, c->parameters, result, count));
    return result;
}

/* Nearness of f32 to doubles, worst of the elements where `which` (of which[k] elements, NULL: all). */
typedef enum { RIGHT, UNCLEAR, IS_WRONG } nearness;
static inline nearness judge_element(double got, double wanted)
{
    double gap = fabs(got - wanted);
    if (got == wanted || gap <= SEEN * fabs(wanted)) {
        return RIGHT;
    }
    return isfinite(got) && gap <= WRONG * fabs(wanted) ? UNCLEAR : IS_WRONG;
}

/* One draw: *judged, the left side is in range and right in some element; *broken, the right side is wrong in
 * such a one. */
static inline void draw_numbers(const range_case *c, const int *bits, bool mixed, bool *judged,
                                bool *broken)
{
    double reach;
    const sx_tensor *argument = range_arguments(c, bits, false, mixed);
    const sx_tensor *wide = evaluate(c, SX_EVAL_F64, argument);
    *judged = *broken = false;
    if (!in_range(c, wide, &reach)) {
        return;
    }
    const sx_tensor *f32 = evaluate(c, SX_EVAL_TYPED, argument);
    const double *wanted = wide[0].data;
    const double *own = wide[1].data; /* of the right side; it may round in another way */
    const double *left = f32[0].data;
    const double *right = f32[1].data;
    for (int64_t k = 0; k < sx_tensor_elements(&wide[0].type); k++) {
        bool agree = judge_element(own[k], wanted[k]) != IS_WRONG; /* doubles can tell */
        if (agree && isfinite(wanted[k]) && wanted[k] != 0 &&
            judge_element(left[k], wanted[k]) == RIGHT) {
            *judged = true;
            *broken = *broken || judge_element(right[k], own[k]) == IS_WRONG;
        }
    }
}

/* The magnitudes as a comment before the program. */
static inline void keep_witness(const range_case *c, const int *bits, range_verdict *v)
{
    size_t at = 0;
    for (uint32_t p = 0; p < c->parameters; p++) {
        at += (size_t)snprintf(&v->witness[at], 16, " 2^%d", bits[p]);
    }
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    if (sx_graph_print(c->cx, c->pair, &text) == SX_OK) {
        size_t bytes = text.len < FAILURE_BYTES - at - 2 ? text.len : FAILURE_BYTES - at - 2;
        v->witness[at++] = '\n';
        memcpy(&v->witness[at], text.ptr, bytes);
        v->witness[at + bytes] = 0;
    }
    sx_buf_fini(&text);
}

static inline void judge_point(const range_case *c, const int *bits, range_verdict *v)
{
    v->points++;
    for (uint32_t mixed = 0; mixed < 2; mixed++) {
        uint32_t judged = 0;
        uint32_t broken = 0;
        for (uint32_t i = 0; i < DRAWS; i++) {
            bool is_judged, is_broken;
            draw_numbers(c, bits, mixed != 0, &is_judged, &is_broken);
            judged += is_judged ? 1 : 0;
            broken += is_broken ? 1 : 0;
        }
        v->judged += 2 * judged > DRAWS ? 1 : 0;
        if (2 * judged > DRAWS && 2 * broken > judged) {
            v->broken++;
            if (v->witness[0] == 0) {
                keep_witness(c, bits, v);
            }
        }
    }
}

/* From one start: as long as a change of one magnitude takes the right side further out, or not nearer. */
static inline void search_from(const range_case *c, int *bits, range_verdict *v)
{
    double best = -HUGE_VAL;
    double reach;
    bool inside =
        in_range(c, evaluate(c, SX_EVAL_F64, range_arguments(c, bits, true, false)), &reach);
    best = inside ? reach : best;
    if (inside) {
        judge_point(c, bits, v);
    }
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t p = 0; p < c->parameters; p++) {
            int kept = bits[p];
            uint32_t first = (uint32_t)sx_rng_below(c->rng, SX_COUNT(magnitudes));
            for (uint32_t i = 0; i < SX_COUNT(magnitudes); i++) {
                bits[p] = magnitudes[(first + i) % SX_COUNT(magnitudes)];
                bool now = in_range(
                    c, evaluate(c, SX_EVAL_F64, range_arguments(c, bits, true, false)), &reach);
                if (now && (!inside || reach >= best)) {
                    inside = true;
                    best = reach;
                    kept = bits[p];
                }
            }
            bits[p] = kept;
        }
    }
    if (inside) {
        judge_point(c, bits, v);
    }
}

static inline void mark(const sx_graph *graph, uint32_t n, bool *on)
{
    if (!on[n]) {
        on[n] = true;
        for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
            mark(graph, graph->input[graph->node[n].input_first + k].i, on);
        }
    }
}

/* As spell, but composites as their definitions, so that every value in between is a node. */
static inline sx_node_id spell_open(sx_ctx *cx, const sx_tensors *t, uint32_t n, sx_graph *out,
                                    uint32_t *done)
{
    sx_node_id child[SX_EG_ARITY_MAX];
    if (done[n] != SX_EG_NONE) {
        return (sx_node_id){done[n]};
    }
    uint32_t arity = t->eg.node[n].arity;
    for (uint32_t k = 0; k < arity; k++) {
        child[k] = spell_open(cx, t, sx_eg_child(&t->eg, n, k), out, done);
    }
    sx_node_id id;
    sx_attr attr = *sx_tensors_attr(t, n);
    sx_op op = sx_tensors_op(t, n);
    if (sx_op_info_of(op)->op_class == SX_OPCLASS_COMPOSITE) {
        ck_sx_ok(cx, sx_decompose(cx, out, op, &attr, child, arity, &id));
    } else {
        ck_sx_ok(cx, sx_graph_add(cx, out, op, &attr, child, arity, &id));
    }
    done[n] = id.i;
    return id;
}

/* Both sides as a program of f32 alone (comparisons and indices aside); false: it is not. */
static inline bool range_program(sx_ctx *cx, const sx_tensors *t, uint32_t from, uint32_t to,
                                 range_case *c)
{
    sx_graph *pair;
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("pair"), t->attrs, &pair));
    uint32_t *done = SX_NEW_ARRAY(cx, uint32_t, t->eg.node_count);
    ck_assert_ptr_nonnull(done);
    memset(done, 0xFF, t->eg.node_count * sizeof(*done));
    sx_node_id side[2] = {spell_open(cx, t, from, pair, done), spell_open(cx, t, to, pair, done)};
    ck_sx_ok(cx, sx_graph_add_output(cx, pair, SX_SPAN_LITERAL("left"), side[0]));
    ck_sx_ok(cx, sx_graph_add_output(cx, pair, SX_SPAN_LITERAL("right"), side[1]));
    c->pair = pair;
    c->parameters = 0;
    c->on_left = SX_NEW_ARRAY(cx, bool, pair->node_count);
    c->of_weights = SX_NEW_ARRAY(cx, bool, pair->node_count);
    ck_assert(c->on_left != NULL && c->of_weights != NULL);
    mark(pair, side[0].i, c->on_left);
    for (uint32_t n = 0; n < pair->node_count; n++) {
        char name[16];
        const sx_node *node = &pair->node[n];
        if (sx_dtype_class_of(node->type.dtype) == SX_CLASS_FLOAT && node->type.dtype != SX_F32) {
            return false;
        }
        sx_attr attr = *sx_attr_get(pair->attrs, node->attr);
        bool weights = node->op == SX_OP_PARAMETER ? attr.weight : true;
        for (uint32_t k = 0; k < node->input_count; k++) {
            weights = weights && c->of_weights[pair->input[node->input_first + k].i];
        }
        c->of_weights[n] = weights;
        c->parameters += node->op == SX_OP_PARAMETER ? 1 : 0;
        (void)snprintf(name, sizeof(name), "n%u", n);
        ck_sx_ok(cx, sx_graph_add_output(cx, pair, sx_span_of(name), (sx_node_id){n}));
    }
    return is_float_node(pair, side[0].i) && c->parameters > 0 && c->parameters <= PARAMETERS_MAX;
}

static inline void try_range(sx_ctx *cx, sx_rng *rng, const sx_tensors *t, uint32_t from,
                             uint32_t to, sx_rule_range range, range_verdict *v)
{
    range_case c = {.cx = cx, .rng = rng, .range = range};
    int bits[PARAMETERS_MAX];
    if (!range_program(cx, t, from, to, &c)) {
        return;
    }
    int64_t most = 1; /* terms a sum can have */
    for (uint32_t n = 0; n < c.pair->node_count; n++) {
        most = sx_max_i64(most, sx_tensor_elements(&c.pair->node[n].type));
    }
    c.room = range == SX_RANGE_MOVES ? 1 : ROOM_BITS;
    c.room += range == SX_RANGE_CONTRACTS ? (int)ceil(log2((double)most)) : 0;
    v->programs++;
    for (uint32_t i = 0; i < STARTS; i++) {
        for (uint32_t p = 0; p < c.parameters; p++) {
            bits[p] = i == 0 ? 0 : magnitudes[sx_rng_below(rng, SX_COUNT(magnitudes))];
        }
        sx_ctx scratch;
        sx_ctx_init(&scratch, (size_t)1 << 28);
        c.cx = &scratch;
        search_from(&c, bits, v);
        sx_ctx_fini(&scratch);
    }
}

/* One random program, the rule alone. */
static inline void range_attempt(sx_rng *rng, const sx_rule *rule, const habit *h,
                                 sx_rule_range range, range_verdict *v)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 30);
    generator g = {.cx = &cx, .rng = rng, .far = sx_rng_below(rng, 2) == 0};
    sx_tensors t;
    sx_eg_ruleset set;
    sx_node_id root;
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("instance"), NULL, &g.graph));
    ck_sx_ok(&cx, sx_tensors_init(&cx, &t, g.graph));
    sx_eg_language language = sx_tensors_language(&t);
    ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &language, rule, 1));
    if (generate_program(&g, set.rule[0].left, h, &root) == SX_OK) {
        uint32_t *node = SX_NEW_ARRAY(&cx, uint32_t, g.graph->node_count);
        ck_assert_ptr_nonnull(node);
        ck_sx_ok(&cx, sx_tensors_import(&cx, &t, g.graph, node));
        sx_eg_limits limits = {
            .rounds = 1, .nodes = 1000, .matches = 1000, .fuel = 100000, .bytes = SIZE_MAX};
        sx_eg_run run;
        sx_code code = sx_eg_saturate(&cx, &t.eg, &set, &limits, &run);
        for (uint32_t n = 0; code == SX_OK && n < t.eg.node_count; n++) {
            uint32_t to = sx_eg_why_of(&t.eg, n).up;
            uint32_t reason = sx_eg_why_of(&t.eg, n).rule;
            if (to != n && reason < set.reason_count) { /* the left side is what was matched */
                uint32_t matched = set.reason_node[set.reason[reason].node_first];
                bool turned = matched == n || (matched != to && n < to);
                try_range(&cx, rng, &t, turned ? n : to, turned ? to : n, range, v);
            }
        }
    }
    sx_ctx_fini(&cx);
}
#endif
