/* run.c - chains of steps in normal form.
 *
 * One sequence of steps has one form: the first place where it stops being arithmetic fixes the innermost
 * count, and so on outwards. The constructors keep to it, so order, number and completeness of a chain are one
 * comparison. A false "different" is possible where a program nests its loops in a way that these rules do not
 * join; a false "equal" is not. */
#include "core/judge/algebra.h"

uint64_t sx_run_vars(uint32_t level)
{
    return ((UINT64_C(1) << SX_RUN_DEPTH) - 1) << (SX_VAR_RUN + level * SX_RUN_DEPTH);
}

static uint32_t run_var(uint32_t level, uint32_t k)
{
    return SX_VAR_RUN + level * SX_RUN_DEPTH + k;
}

uint32_t sx_run_operand(sx_lop op)
{
    switch ((int)op) {
    case SX_LOP_FMA:
    case SX_LOP_FNMA: return 2;
    case SX_LOP_ADD:
    case SX_LOP_MUL:
    case SX_LOP_IADD:
    case SX_LOP_IMUL:
    case SX_LOP_IMAX:
    case SX_LOP_IMIN: return 0;
    case SX_LOP_MAX:
    case SX_LOP_MIN:
    case SX_LOP_NMAX:
    case SX_LOP_NMIN: return 1;
    default: return 3;
    }
}

static uint32_t shifted(sx_algebra *g, uint32_t term, uint32_t var, int64_t coefficient,
                        int64_t constant)
{
    sx_subst s;
    if ((g->term[term].vars & SX_VAR_BIT(var)) == 0) {
        return term;
    }
    sx_subst_begin(g, &s);
    sx_subst_var(&s, var, sx_form_var(g, var, coefficient, constant));
    return sx_term_subst(g, term, &s);
}

/* Is `b` the term with the variable shifted so? */
static bool is_shifted(sx_algebra *g, uint32_t term, uint32_t var, int64_t coefficient,
                       int64_t constant, uint32_t b)
{
    sx_subst s;
    if ((g->term[term].vars & SX_VAR_BIT(var)) == 0) {
        return term == b;
    }
    sx_subst_begin(g, &s);
    sx_subst_var(&s, var, sx_form_var(g, var, coefficient, constant));
    return sx_term_becomes(g, term, b, &s);
}

/* Does the term use other variables of the level than the first `depth`? Then they belong to a run around it. */
static bool escapes(const sx_algebra *g, uint32_t term, uint32_t level, uint32_t depth)
{
    uint64_t bound = ((UINT64_C(1) << depth) - 1) << run_var(level, 0);
    return (g->term[term].vars & sx_run_vars(level) & ~bound) != 0;
}

void sx_counts_get(const sx_algebra *g, uint32_t form, sx_counts *counts)
{
    const sx_form *f = &g->form[form];
    uint32_t at = f->first;
    SX_ASSERT(f->constant >= 0 && f->constant <= SX_RUN_DEPTH);
    counts->depth = (uint32_t)f->constant;
    for (uint32_t k = 0; k < counts->depth; k++) {
        counts->count[k] = (f->vars >> k & 1) != 0 ? g->coef[at++] : 0;
    }
}

static uint32_t counts_form(sx_algebra *g, const sx_counts *counts)
{
    sx_lin lin;
    sx_lin_init(&lin, counts->depth);
    for (uint32_t k = 0; k < counts->depth; k++) {
        sx_lin_add(g, &lin, k, counts->count[k]);
    }
    return sx_form_put(g, &lin);
}

static void push_count(sx_counts *counts, int64_t value)
{
    SX_ASSERT(counts->depth <= SX_RUN_DEPTH);
    counts->count[counts->depth++] = value;
}

/* Counts of 1 go: their variable is 0. */
static uint32_t drop_ones(sx_algebra *g, uint32_t step, uint32_t level, sx_counts *counts)
{
    sx_subst s;
    uint32_t kept = 0;
    while (kept < counts->depth && counts->count[kept] != 1) {
        kept++;
    }
    if (kept == counts->depth) {
        return step;
    }
    sx_subst_begin(g, &s);
    for (uint32_t k = kept; k < counts->depth; k++) {
        int64_t count = counts->count[k];
        if (count == 1) {
            sx_subst_var(&s, run_var(level, k), 0);
            continue;
        }
        if (kept != k) {
            sx_subst_var(&s, run_var(level, k), sx_form_var(g, run_var(level, kept), 1, 0));
        }
        counts->count[kept++] = count;
    }
    counts->depth = kept;
    return s.vars == 0 ? step : sx_term_subst(g, step, &s);
}

/* Variables k and k + 1 as one, where they make one arithmetic sequence. */
static bool merge_at(sx_algebra *g, uint32_t *step, uint32_t level, sx_counts *counts, uint32_t k)
{
    uint32_t inner = run_var(level, k);
    uint32_t outer = run_var(level, k + 1);
    int64_t product;
    uint32_t flat = sx_term_flat(g, *step, inner, outer, counts->count[k]);
    if (flat == 0 || !sx_mul_i64(counts->count[k], counts->count[k + 1], &product)) {
        return false;
    }
    counts->count[k] = product;
    counts->count[k + 1] = 1;
    *step = drop_ones(g, flat, level, counts);
    return true;
}

static bool inner_equal(const sx_counts *a, const sx_counts *b, uint32_t depth)
{
    for (uint32_t k = 0; k < depth; k++) {
        if (a->count[k] != b->count[k]) {
            return false;
        }
    }
    return true;
}

/* A chain that ends in `step` (with counts) behind the run or single step `*before`; true: *before is its
 * first value, and step and counts are those of both. */
static bool join(sx_algebra *g, uint32_t *before, uint32_t *step, uint32_t level, sx_counts *counts)
{
    sx_term t = g->term[*before];
    sx_counts old = {.depth = 0};
    uint32_t old_step;
    uint32_t first;
    uint32_t at = t.kind == SX_TERM_OP ? sx_run_operand((sx_lop)t.op) : 3;
    if (t.kind == SX_TERM_RUN && t.imm == level) {
        first = t.child[0];
        old_step = t.child[1];
        sx_counts_get(g, t.form, &old);
    } else if (at < 3 && g->term[*step].kind == SX_TERM_OP && g->term[*step].op == t.op) {
        first = t.child[at];
        for (uint32_t k = 0; k < 3; k++) { /* its other operands are no part of the chain */
            if (k != at && t.child[k] != 0 && g->term[t.child[k]].acc) {
                return false;
            }
        }
        t.child[at] = SX_TERM_THE_ACC;
        old_step = sx_term_put(g, &t);
        if (g->term[old_step].level != level) {
            return false;
        }
    } else {
        return false;
    }
    uint32_t m = counts->depth;
    uint32_t n = old.depth;
    if (g->refused || escapes(g, *step, level, m) || escapes(g, old_step, level, n)) {
        return false;
    }
    if (n == m + 1 && inner_equal(&old, counts, m)) {
        uint32_t last = run_var(level, m);
        if (is_shifted(g, old_step, last, 0, old.count[m], *step)) {
            *counts = old;
            counts->count[m]++;
            *step = old_step;
            *before = first;
            return true;
        }
    }
    if (n == m && m > 0 && inner_equal(&old, counts, m - 1)) {
        uint32_t last = run_var(level, m - 1);
        if (is_shifted(g, old_step, last, 1, old.count[m - 1], *step)) {
            counts->count[m - 1] += old.count[m - 1];
            *step = old_step;
            *before = first;
            return true;
        }
    }
    if (m == n + 1 && inner_equal(&old, counts, n)) {
        uint32_t last = run_var(level, n);
        if (is_shifted(g, *step, last, 0, -1, old_step)) {
            *step = shifted(g, *step, last, 1, -1);
            counts->count[n]++;
            *before = first;
            return true;
        }
    }
    if (n == m && m < SX_RUN_DEPTH && inner_equal(&old, counts, m)) {
        uint32_t pair = sx_term_pair(g, old_step, *step, run_var(level, m));
        if (pair != 0) {
            push_count(counts, 2);
            *step = pair;
            *before = first;
            return true;
        }
    }
    return false;
}

/* A run of no count is its step once. */
static uint32_t once(sx_algebra *g, uint32_t first, uint32_t step)
{
    sx_subst s;
    sx_subst_begin(g, &s);
    s.first = first;
    return sx_term_subst(g, step, &s);
}

uint32_t sx_run_make(sx_algebra *g, uint32_t first, uint32_t step, uint32_t level,
                     const sx_counts *counts)
{
    sx_counts c = *counts;
    if (g->refused) {
        return 0;
    }
    if (level >= SX_RUN_LEVELS || c.depth > SX_RUN_DEPTH || g->term[step].level > level ||
        escapes(g, step, level, c.depth)) {
        return sx_refuse(g, "runs nest too deeply");
    }
    for (bool again = true; again && !g->refused;) {
        step = drop_ones(g, step, level, &c);
        for (uint32_t k = 0; k + 1 < c.depth;) {
            k = merge_at(g, &step, level, &c, k) ? 0 : k + 1;
        }
        again = join(g, &first, &step, level, &c);
    }
    if (g->refused) {
        return 0;
    }
    if (c.depth == 0) {
        return once(g, first, step);
    }
    return sx_term_put(g, &(sx_term){.kind = SX_TERM_RUN,
                                     .imm = level,
                                     .child = {first, step, 0},
                                     .form = counts_form(g, &c)});
}

uint32_t sx_run_continue(sx_algebra *g, const sx_term *key, uint32_t at)
{
    uint32_t before = key->child[at];
    const sx_term *t = &g->term[before];
    bool same = t->kind == SX_TERM_OP && t->op == key->op;
    if (t->kind == SX_TERM_RUN) {
        const sx_term *last = &g->term[t->child[1]];
        same = last->kind == SX_TERM_OP && last->op == key->op;
    }
    if (!same) {
        return 0;
    }
    sx_term step = *key;
    for (uint32_t k = 0; k < 3; k++) {
        same = same && (k == at || key->child[k] == 0 || !g->term[key->child[k]].acc);
    }
    if (!same) {
        return 0;
    }
    step.child[at] = SX_TERM_THE_ACC;
    uint32_t one = sx_term_put(g, &step);
    uint32_t level = g->term[one].level;
    sx_counts counts = {.depth = 0};
    if (g->refused || !join(g, &before, &one, level, &counts)) {
        return 0;
    }
    return sx_run_make(g, before, one, level, &counts);
}

/* ---- pairs ---- */
uint32_t sx_form_pair(sx_algebra *g, uint32_t a, uint32_t b, uint32_t var)
{
    if (a == b) {
        return a;
    }
    const sx_form *x = &g->form[a];
    const sx_form *y = &g->form[b];
    int64_t step;
    if (x->vars != y->vars || !sx_sub_i64(y->constant, x->constant, &step)) {
        return UINT32_MAX;
    }
    uint32_t n = (uint32_t)__builtin_popcountll(x->vars);
    for (uint32_t k = 0; k < n; k++) {
        if (g->coef[x->first + k] != g->coef[y->first + k]) {
            return UINT32_MAX;
        }
    }
    sx_lin lin;
    sx_lin_get(g, a, &lin);
    sx_lin_add(g, &lin, var, step);
    return sx_form_put(g, &lin);
}

static uint32_t pair_children(sx_algebra *g, sx_term a, const sx_term *b, uint32_t var)
{
    bool product =
        a.kind == SX_TERM_OP && (a.op == SX_LOP_FMA || a.op == SX_LOP_FNMA || a.op == SX_LOP_MUL);
    uint32_t child[3];
    for (uint32_t order = 0; order < (product ? 2u : 1u); order++) {
        bool ok = true;
        for (uint32_t k = 0; ok && k < 3; k++) {
            uint32_t other = b->child[order == 1 && k < 2 ? 1 - k : k];
            child[k] = a.child[k] == 0 || other == 0 ? 0 : sx_term_pair(g, a.child[k], other, var);
            ok = child[k] != 0 || (a.child[k] == 0 && other == 0);
        }
        if (ok && a.kind == SX_TERM_OP && a.form == 0) {
            return sx_term_op(g, (sx_lop)a.op, a.imm, child[0], child[1], child[2]);
        }
        if (ok) {
            a.child[0] = child[0];
            a.child[1] = child[1];
            a.child[2] = child[2];
            return sx_term_put(g, &a);
        }
    }
    return 0;
}

/* Numbers in the steps of a run that may be positions, which are no forms any more where a single lane is left. */
#define POSITION_MAX (1u << 24)
static bool is_position(const sx_term *t)
{
    return t->kind == SX_TERM_CONST && t->form == 0 && t->imm < POSITION_MAX;
}

uint32_t sx_term_pair(sx_algebra *g, uint32_t a, uint32_t b, uint32_t var)
{
    if (a == b) {
        return a;
    }
    sx_term x = g->term[a];
    sx_term y = g->term[b];
    if (!g->refused && var >= SX_VAR_RUN && var < SX_VAR_STORE && is_position(&x) &&
        is_position(&y)) {
        sx_lin lin;
        sx_lin_init(&lin, (int64_t)x.imm);
        sx_lin_add(g, &lin, var, (int64_t)y.imm - (int64_t)x.imm);
        return sx_term_int(g, sx_form_put(g, &lin));
    }
    if (g->refused || x.kind != y.kind || x.op != y.op || x.width != y.width || x.imm != y.imm ||
        x.vars != y.vars) {
        return 0;
    }
    uint32_t form = sx_form_pair(g, x.form, y.form, var);
    if (form == UINT32_MAX || (form != x.form && (x.kind == SX_TERM_RUN || x.kind == SX_TERM_OP ||
                                                  x.kind == SX_TERM_RECUR))) {
        return 0;
    }
    sx_pair_memo *memo = &g->pair[(a * 31 + b * 7 + var) % SX_PAIR_MEMO];
    if (memo->stamp == g->generation && memo->a == a && memo->b == b && memo->var == var) {
        return memo->result;
    }
    uint32_t result = 0;
    if (x.kind == SX_TERM_ELEMENT || x.kind == SX_TERM_INT || x.kind == SX_TERM_STATE) {
        x.form = form;
        bool same = x.child[0] == y.child[0];
        result = !same ? 0 : x.kind == SX_TERM_INT ? sx_term_int(g, form) : sx_term_put(g, &x);
    } else if (x.kind == SX_TERM_OP || x.kind == SX_TERM_RUN || x.kind == SX_TERM_RECUR) {
        result = pair_children(g, x, &y, var);
    }
    *memo = (sx_pair_memo){a, b, var, result, g->generation};
    return result;
}

/* ---- loops ---- */
uint32_t sx_term_close(sx_algebra *g, uint32_t first, uint32_t hole, uint32_t last, uint32_t var,
                       int64_t trip)
{
    sx_subst s;
    if (g->refused || last == hole) {
        return first;
    }
    sx_term t = g->term[last];
    sx_counts counts = {.depth = 0};
    uint32_t level = t.level;
    bool inner = t.kind == SX_TERM_RUN && t.child[0] == hole; /* the loop goes around a run */
    if (inner) {
        level = t.imm;
        sx_counts_get(g, t.form, &counts);
    }
    uint32_t depth = counts.depth;
    if (depth >= SX_RUN_DEPTH || level >= SX_RUN_LEVELS) {
        return sx_refuse(g, "runs nest too deeply");
    }
    if (inner && depth > 0 && !g->term[t.child[1]].holes) { /* the loop may continue the run */
        int64_t product;
        int64_t count = counts.count[depth - 1];
        uint32_t flat = sx_term_flat(g, t.child[1], run_var(level, depth - 1), var, count);
        if (flat != 0 && sx_mul_i64(count, trip, &product)) {
            counts.count[depth - 1] = product;
            return sx_run_make(g, first, flat, level, &counts);
        }
    }
    push_count(&counts, trip);
    sx_subst_begin(g, &s);
    s.hole = hole;
    s.acc = SX_TERM_THE_ACC;
    sx_subst_var(&s, var, sx_form_var(g, run_var(level, depth), 1, 0));
    sx_subst_share(g, &s);
    /* the step of a run has an accumulator of its own, and must not read that of the loop */
    if (inner && g->term[t.child[1]].holes) {
        return sx_refuse(g, "a step reads the value that a loop carries");
    }
    uint32_t step = sx_term_subst(g, inner ? t.child[1] : last, &s);
    if (!g->refused && g->term[step].holes) {
        return sx_refuse(g, "a loop mixes the values that it carries");
    }
    return sx_run_make(g, first, step, level, &counts);
}
