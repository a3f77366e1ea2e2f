/* subst.c - substitution in forms and terms.
 *
 * In general every operation of the result is made anew, in normal form: constants that take the place of a
 * variable may fold operations and join chains. Most substitutions only give variables other names, or shift
 * and scale them. Such a renaming (is_renaming) maps different forms to different forms, and forms that differ
 * by a constant to forms that do, so whatever compares terms decides for the image as it decided for the term:
 * nothing folds, no chain joins, no run merges that did not before. There the result is the term with its forms
 * exchanged (rename_term), and only the order of factors, which goes by number, is found again. A result that
 * was not in normal form would be a kernel that is refused, never one that is wrongly proven: the image of a
 * term under a substitution has the same value in every form. */
#include <string.h>

#include "core/judge/algebra.h"

void sx_subst_begin(sx_algebra *g, sx_subst *s)
{
    s->vars = 0;
    s->hole = s->acc = s->first = s->state_count = 0;
    s->stamp = ++g->stamp;
    s->shares = false;
}

void sx_subst_var(sx_subst *s, uint32_t variable, uint32_t form)
{
    s->vars |= SX_VAR_BIT(variable);
    s->form[variable] = form;
}

/* The stamp of an equal substitution that was made before, or one of its own. */
static uint32_t known_stamp(sx_algebra *g, const sx_subst *s, uint64_t vars)
{
    sx_subst_known own = {.vars = vars, .generation = g->generation};
    uint64_t hash = vars;
    uint32_t n = 0;
    for (uint64_t left = vars; left != 0; left &= left - 1) {
        SX_ASSERT(n < SX_SUBST_SHARED);
        own.form[n] = s->form[__builtin_ctzll(left)];
        hash = (hash ^ own.form[n++]) * UINT64_C(0x9E3779B97F4A7C15);
    }
    sx_subst_known *known = &g->known[(hash >> 32) % SX_SUBSTS_KNOWN];
    if (known->generation != own.generation || known->vars != vars ||
        memcmp(known->form, own.form, sizeof(own.form)) != 0) {
        own.stamp = ++g->stamp;
        *known = own;
    }
    return known->stamp;
}

void sx_subst_share(sx_algebra *g, sx_subst *s)
{
    uint32_t n = (uint32_t)__builtin_popcountll(s->vars);
    s->shares = n > 0 && n <= SX_SUBST_SHARED;
    if (!s->shares) {
        return;
    }
    sx_term own = {.marks = 0};
    own.holes = s->hole != 0;
    own.acc = s->first != 0;
    own.state = s->state_count != 0;
    s->own = own.marks;
    s->several = n > 1;
    s->shared = known_stamp(g, s, s->vars);
    for (uint64_t left = s->vars; s->several && left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        s->single[v] = known_stamp(g, s, SX_VAR_BIT(v));
    }
}

/* What a form becomes that has variables of the substitution. */
static void form_image(sx_algebra *g, uint32_t form, const sx_subst *s, sx_lin *lin)
{
    const sx_form *f = &g->form[form];
    uint64_t hit = f->vars & s->vars;
    int64_t factor[SX_VAR_COUNT];
    uint32_t at = f->first;
    sx_lin_init(lin, f->constant);
    for (uint64_t left = f->vars; left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        int64_t *to = (hit >> v & 1) != 0 ? factor : lin->coef;
        to[v] = g->coef[at++];
    }
    lin->vars = f->vars & ~hit;
    for (uint64_t left = hit; left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        sx_lin_add_form(g, lin, s->form[v], factor[v]);
    }
}

uint32_t sx_form_subst(sx_algebra *g, uint32_t form, const sx_subst *s)
{
    sx_lin lin;
    if ((g->form[form].vars & s->vars) == 0 || g->refused) {
        return form;
    }
    form_image(g, form, s, &lin);
    return sx_form_put(g, &lin);
}

/* The commonest question: one variable is replaced, by a constant or by itself and a constant. */
static bool one_becomes(const sx_algebra *g, uint32_t a, uint32_t b, const sx_subst *s, bool *same)
{
    const sx_form *x = &g->form[a];
    const sx_form *y = &g->form[b];
    uint64_t hit = x->vars & s->vars;
    const sx_form *to = &g->form[s->form[__builtin_ctzll(hit)]];
    bool keeps = to->vars == hit && g->coef[to->first] == 1;
    if ((hit & (hit - 1)) != 0 || (to->vars != 0 && !keeps)) {
        return false;
    }
    const int64_t *p = &g->coef[x->first];
    const int64_t *q = &g->coef[y->first];
    int64_t factor = 0;
    *same = y->vars == (keeps ? x->vars : x->vars & ~hit);
    for (uint64_t left = x->vars; *same && left != 0; left &= left - 1) {
        bool here = (left & (0 - left)) == hit;
        factor = here ? *p : factor;
        if (!here || keeps) {
            *same = *p == *q++;
        }
        p++;
    }
    int64_t constant;
    bool ok =
        sx_mul_i64(factor, to->constant, &constant) && sx_add_i64(constant, x->constant, &constant);
    *same = *same && constant == y->constant;
    return ok || !*same;
}

bool sx_form_becomes(sx_algebra *g, uint32_t a, uint32_t b, const sx_subst *s)
{
    sx_lin lin;
    bool same;
    if ((g->form[a].vars & s->vars) == 0) {
        return a == b;
    }
    if (one_becomes(g, a, b, s, &same)) {
        return same;
    }
    form_image(g, a, s, &lin);
    return !g->refused && sx_form_equal(g, b, &lin);
}

/* ---- renaming ---- */
/* Each variable that is replaced must have a variable of its own in the form that it becomes: one that neither
 * the others become nor the term keeps. Then the images of the variables are linearly independent, together
 * with the variables that stay. A hole that becomes an accumulator is a name for another name. */
static bool is_renaming(const sx_algebra *g, const sx_term *t, const sx_subst *s)
{
    uint64_t stays = t->vars & ~s->vars;
    uint64_t once = 0;
    uint64_t twice = stays;
    if (s->first != 0 || s->state_count != 0 || (s->hole != 0 && t->acc)) {
        return false;
    }
    for (uint64_t left = t->vars & s->vars; left != 0; left &= left - 1) {
        uint64_t vars = g->form[s->form[__builtin_ctzll(left)]].vars;
        twice |= once & vars;
        once |= vars;
    }
    for (uint64_t left = t->vars & s->vars; left != 0; left &= left - 1) {
        if ((g->form[s->form[__builtin_ctzll(left)]].vars & ~twice) == 0) {
            return false;
        }
    }
    return true;
}

bool sx_subst_renames(const sx_algebra *g, uint32_t term, const sx_subst *s)
{
    return is_renaming(g, &g->term[term], s);
}

/* Nothing of the term is replaced. */
static bool stays(const sx_term *t, const sx_subst *s)
{
    return (t->vars & s->vars) == 0 && !(s->hole != 0 && t->holes);
}

static uint32_t rename_term(sx_algebra *g, uint32_t term, const sx_subst *s)
{
    const sx_term *t = &g->term[term];
    if (stays(t, s) || g->refused) {
        return term;
    }
    if (term == s->hole) {
        return s->acc;
    }
    uint32_t result;
    if (sx_memo_find(g, term, s, &result)) {
        return result;
    }
    sx_term key = *t;
    bool binds = key.kind == SX_TERM_RUN || key.kind == SX_TERM_RECUR;
    if (binds && s->hole != 0 && (g->term[key.child[1]].holes || g->term[key.child[2]].holes)) {
        return sx_refuse(g, "a step reads the value that a loop carries");
    }
    for (uint32_t k = 0; k < 3; k++) {
        uint32_t child = key.child[k];
        if (!stays(&g->term[child], s)) { /* term 0, which is none, has nothing to replace */
            key.child[k] = rename_term(g, child, s);
        }
    }
    if (key.form != 0 && !binds) { /* that of a run are its counts */
        key.form = sx_form_subst(g, key.form, s);
    }
    if (key.kind == SX_TERM_OP) {
        sx_term_exchange(g, &key);
    }
    result = sx_term_put(g, &key);
    sx_memo_put(g, term, s, result);
    return result;
}

/* ---- substitution ---- */
static uint32_t subst_op(sx_algebra *g, const sx_term *t, const sx_subst *s)
{
    uint32_t child[3];
    for (uint32_t k = 0; k < 3; k++) {
        child[k] = t->child[k] == 0 ? 0 : sx_term_subst(g, t->child[k], s);
    }
    return t->form != 0 ? sx_term_op_imm2(g, (sx_lop)t->op, g->form[t->form].constant, child[0])
                        : sx_term_op(g, (sx_lop)t->op, t->imm, child[0], child[1], child[2]);
}

static uint32_t subst_run(sx_algebra *g, const sx_term *t, const sx_subst *s)
{
    sx_counts counts;
    uint32_t first = sx_term_subst(g, t->child[0], s);
    uint32_t step = t->child[1];
    if (s->hole != 0 && g->term[step].holes) { /* the accumulator there is another one */
        (void)sx_refuse(g, "a step reads the value that a loop carries");
    }
    sx_counts_get(g, t->form, &counts);
    /* replacing an accumulator replaces no variable: the step, whose accumulator is its own, stays */
    step = s->first != 0 ? step : sx_term_subst(g, step, s);
    return sx_run_make(g, first, step, t->imm, &counts);
}

/* Terms without children, and recurrences. */
static uint32_t subst_other(sx_algebra *g, sx_term key, const sx_subst *s)
{
    bool recur = key.kind == SX_TERM_RECUR;
    if (recur && s->hole != 0 && (g->term[key.child[1]].holes || g->term[key.child[2]].holes)) {
        (void)sx_refuse(g, "a recurrence reads the value that a loop carries");
    }
    for (uint32_t k = 0; k < 3; k++) {
        key.child[k] = key.child[k] == 0 ? 0 : sx_term_subst(g, key.child[k], s);
    }
    key.form = recur ? key.form : sx_form_subst(g, key.form, s);
    return sx_term_put(g, &key);
}

uint32_t sx_term_subst(sx_algebra *g, uint32_t term, const sx_subst *s)
{
    const sx_term *at = &g->term[term];
    bool hit = (at->vars & s->vars) != 0 || (s->hole != 0 && at->holes) ||
               (s->first != 0 && at->acc) || (s->state_count != 0 && at->state);
    if (g->refused || !hit) {
        return term;
    }
    if (s->hole != 0 && term == s->hole) {
        return s->acc;
    }
    if (at->kind == SX_TERM_ACC) {
        return s->first;
    }
    for (uint32_t k = 0; at->kind == SX_TERM_STATE && k < s->state_count; k++) {
        if (term == s->state[k]) {
            return s->part[k];
        }
    }
    uint32_t result;
    if (sx_memo_find(g, term, s, &result)) {
        return result;
    }
    if (is_renaming(g, at, s)) {
        return rename_term(g, term, s);
    }
    const sx_term t = *at;
    switch ((sx_term_kind)t.kind) {
    case SX_TERM_INT: result = sx_term_int(g, sx_form_subst(g, t.form, s)); break;
    case SX_TERM_OP: result = subst_op(g, &t, s); break;
    case SX_TERM_RUN: result = subst_run(g, &t, s); break;
    case SX_TERM_RECUR:
    case SX_TERM_CONST:
    case SX_TERM_ELEMENT:
    case SX_TERM_HOLE:
    case SX_TERM_ACC:
    case SX_TERM_STATE:
    case SX_TERM_PART:
    default: result = subst_other(g, t, s); break;
    }
    sx_memo_put(g, term, s, result);
    return result;
}

/* ---- one value for a variable ---- */
/* May two operands, at some value of a variable, differ by constants alone? */
static bool alike(const sx_algebra *g, uint32_t x, uint32_t y)
{
    const sx_term *t = &g->term[x];
    const sx_term *u = &g->term[y];
    return t->kind == u->kind && t->op == u->op && t->imm == u->imm;
}

/* The step `t` of a chain behind `before`, which may be a link of the same chain: could they join? */
static bool may_join(const sx_algebra *g, const sx_term *t, uint32_t before)
{
    uint32_t at = t->kind == SX_TERM_OP ? sx_run_operand((sx_lop)t->op) : 3;
    const sx_term *last = &g->term[before];
    last = last->kind == SX_TERM_RUN ? &g->term[last->child[1]] : last;
    if (at == 3 || last->kind != SX_TERM_OP || last->op != t->op) {
        return false;
    }
    uint32_t k = at == 0 ? 1 : 0;
    bool straight = alike(g, t->child[k], last->child[k]);
    bool other = at == 2 && alike(g, t->child[0], last->child[1]);
    return straight || other;
}

/* Does a value for the variable fold no operation and join no chain, whatever the value is? Integers of the variable
 * become known, a choice between two elements may become one between equal ones, and links of a chain may come
 * to differ by constants. */
static bool is_plain(sx_algebra *g, uint32_t term, uint32_t var, const sx_subst *visit)
{
    const sx_term *t = &g->term[term];
    uint32_t seen;
    if ((t->vars & SX_VAR_BIT(var)) == 0 || sx_memo_find(g, term, visit, &seen)) {
        return true; /* the first that is not ends the walk */
    }
    sx_memo_put(g, term, visit, term);
    bool operation = t->kind == SX_TERM_OP;
    bool chooses = operation && (t->op == SX_LOP_BLEND || (int)t->op == SX_LOP_IMAX ||
                                 (int)t->op == SX_LOP_IMIN);
    uint32_t at = operation ? sx_run_operand((sx_lop)t->op) : 3;
    if (t->kind == SX_TERM_INT || t->kind == SX_TERM_RECUR || chooses ||
        (at < 3 && may_join(g, t, t->child[at])) ||
        (t->kind == SX_TERM_RUN && may_join(g, &g->term[t->child[1]], t->child[0]))) {
        return false;
    }
    for (uint32_t k = 0; k < 3; k++) {
        if (t->child[k] != 0 && !is_plain(g, t->child[k], var, visit)) {
            return false;
        }
    }
    return true;
}

uint32_t sx_term_fix(sx_algebra *g, uint32_t term, uint32_t var, int64_t value)
{
    sx_subst s;
    if ((g->term[term].vars & SX_VAR_BIT(var)) == 0 || g->refused) {
        return term;
    }
    if (g->plain.term != term || g->plain.var != var || g->plain.generation != g->generation) {
        sx_subst_begin(g, &s);
        g->plain.term = term;
        g->plain.var = var;
        g->plain.generation = g->generation;
        g->plain.yes = is_plain(g, term, var, &s);
    }
    sx_subst_begin(g, &s);
    sx_subst_var(&s, var, sx_form_constant(g, value));
    return g->plain.yes ? rename_term(g, term, &s) : sx_term_subst(g, term, &s);
}

/* ---- two variables that are one ---- */
static bool form_scales(const sx_algebra *g, uint32_t form, uint32_t inner, uint32_t outer,
                        int64_t factor)
{
    const sx_form *f = &g->form[form];
    int64_t coef[2] = {0, 0};
    const uint32_t var[2] = {inner, outer};
    for (uint32_t k = 0; k < 2; k++) {
        uint64_t below = f->vars & (SX_VAR_BIT(var[k]) - 1);
        if ((f->vars & SX_VAR_BIT(var[k])) != 0) {
            coef[k] = g->coef[f->first + (uint32_t)__builtin_popcountll(below)];
        }
    }
    int64_t product;
    return sx_mul_i64(coef[0], factor, &product) && product == coef[1];
}

static bool scales(sx_algebra *g, uint32_t term, const sx_subst *visit, uint32_t inner,
                   uint32_t outer, int64_t factor)
{
    const sx_term *t = &g->term[term];
    uint64_t both = SX_VAR_BIT(inner) | SX_VAR_BIT(outer);
    uint32_t seen;
    if ((t->vars & both) == 0 || sx_memo_find(g, term, visit, &seen)) {
        return true; /* the first that does not ends the walk */
    }
    sx_memo_put(g, term, visit, term);
    bool counts = t->kind == SX_TERM_RUN;
    if ((t->vars & both) != both || (!counts && !form_scales(g, t->form, inner, outer, factor))) {
        return false;
    }
    for (uint32_t k = 0; k < 3; k++) {
        if (t->child[k] != 0 && !scales(g, t->child[k], visit, inner, outer, factor)) {
            return false;
        }
    }
    return true;
}

/* Where each form has the coefficients of one variable, they are one variable: to take `outer` for 0 keeps
 * different forms of the term different, so it is a renaming, too. */
uint32_t sx_term_flat(sx_algebra *g, uint32_t term, uint32_t inner, uint32_t outer, int64_t factor)
{
    sx_subst s;
    sx_subst_begin(g, &s);
    if (!scales(g, term, &s, inner, outer, factor)) {
        return 0;
    }
    sx_subst_begin(g, &s);
    sx_subst_var(&s, outer, 0);
    return rename_term(g, term, &s);
}
