/* algebra.c - hash-consed forms and terms. */
#include "core/judge/algebra.h"

#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"

enum { TABLE_FORM, TABLE_TERM };

uint32_t sx_refuse(sx_algebra *g, const char *format, ...)
{
    if (!g->refused) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(g->why, sizeof(g->why), format, arguments);
        va_end(arguments);
        g->refused = true;
    }
    return 0;
}

sx_code sx_algebra_init(sx_ctx *cx, sx_algebra *g)
{
    memset(g, 0, sizeof(*g));
    g->cx = cx;
    for (uint32_t t = 0; t < 2; t++) {
        g->slot_count[t] = 4096;
        g->slot[t] = SX_NEW_ARRAY(cx, uint64_t, g->slot_count[t]);
    }
    g->pair = SX_NEW_ARRAY(cx, sx_pair_memo, SX_PAIR_MEMO);
    if (cx->error.code != SX_OK) {
        return cx->error.code;
    }
    sx_algebra_reset(g);
    return g->refused ? SX_NOMEM : SX_OK;
}

/* ---- tables ---- */
static void put_slot(sx_algebra *g, uint32_t table, uint64_t hash, uint32_t number)
{
    uint32_t mask = g->slot_count[table] - 1;
    uint32_t at = (uint32_t)hash & mask;
    while (g->slot[table][at] >> 32 == g->generation) {
        at = (at + 1) & mask;
    }
    g->slot[table][at] = (uint64_t)g->generation << 32 | number;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

/* The low bits of a product know nothing of the high bits of its factors: once more, with those below. */
static uint64_t finish(uint64_t hash)
{
    hash *= UINT64_C(0xD6E8FEB86659FD93);
    return hash ^ hash >> 32;
}

static uint64_t form_hash(const sx_algebra *g, uint32_t number)
{
    const sx_form *f = &g->form[number];
    uint64_t hash = mix((uint64_t)f->constant, f->vars);
    uint32_t n = (uint32_t)__builtin_popcountll(f->vars);
    for (uint32_t k = 0; k < n; k++) {
        hash = mix(hash, (uint64_t)g->coef[f->first + k]);
    }
    return finish(hash);
}

static uint64_t term_hash(const sx_term *t)
{
    uint64_t word[SX_TERM_KEY / 8];
    memcpy(word, t, sizeof(word));
    return finish(mix(mix(word[0], word[1]), word[2]));
}

static bool grow(sx_algebra *g, void **array, uint32_t *capacity, uint32_t need, size_t size)
{
    need = need < 1024 ? 1024 : need;
    if (need > *capacity && sx_grow(g->cx, array, capacity, need, size) != SX_OK) {
        (void)sx_refuse(g, "out of memory");
        return false;
    }
    return true;
}

/* Twice the slots once half of them are taken. */
static bool grow_slots(sx_algebra *g, uint32_t table, uint32_t count)
{
    if (2 * (count + 1) <= g->slot_count[table]) {
        return true;
    }
    uint64_t *slot = SX_NEW_ARRAY(g->cx, uint64_t, 2 * (size_t)g->slot_count[table]);
    if (slot == NULL) {
        (void)sx_refuse(g, "out of memory");
        return false;
    }
    g->slot[table] = slot;
    g->slot_count[table] *= 2;
    for (uint32_t k = 0; k < count; k++) {
        uint64_t hash = table == TABLE_FORM ? form_hash(g, k) : term_hash(&g->term[k]);
        put_slot(g, table, hash, k);
    }
    return true;
}

static void set_room(sx_algebra *g, uint32_t table, uint32_t capacity, uint32_t most)
{
    uint32_t half = g->slot_count[table] / 2 - 1;
    capacity = capacity < most ? capacity : most;
    g->room[table] = capacity < half ? capacity : half;
}

/* Room for one more form. */
static bool grow_forms(sx_algebra *g)
{
    void *forms = g->form;
    if (g->form_count >= SX_FORMS_MAX) {
        (void)sx_refuse(g, "more than %u forms", SX_FORMS_MAX);
        return false;
    }
    if (!grow(g, &forms, &g->form_capacity, g->form_count + 1, sizeof(sx_form))) {
        return false;
    }
    g->form = forms;
    if (!grow_slots(g, TABLE_FORM, g->form_count)) {
        return false;
    }
    set_room(g, TABLE_FORM, g->form_capacity, SX_FORMS_MAX);
    return true;
}

/* Room for one more term, and for a note on each. */
static bool grow_terms(sx_algebra *g)
{
    void *terms = g->term;
    void *memo = g->memo;
    if (g->term_count >= SX_TERMS_MAX) {
        (void)sx_refuse(g, "more than %u terms", SX_TERMS_MAX);
        return false;
    }
    if (!grow(g, &terms, &g->term_capacity, g->term_count + 1, sizeof(sx_term))) {
        return false;
    }
    g->term = terms;
    if (!grow(g, &memo, &g->memo_capacity, g->term_capacity, sizeof(sx_memo))) {
        return false;
    }
    g->memo = memo;
    if (!grow_slots(g, TABLE_TERM, g->term_count)) {
        return false;
    }
    set_room(g, TABLE_TERM, g->term_capacity, SX_TERMS_MAX);
    return true;
}

void sx_algebra_reset(sx_algebra *g)
{
    g->refused = false;
    g->why[0] = '\0';
    g->generation++;
    g->form_count = g->coef_count = g->term_count = 0;
    sx_lin zero;
    sx_lin_init(&zero, 0);
    SX_ASSERT(sx_form_put(g, &zero) == 0 || g->refused);
    if (g->room[TABLE_TERM] > 0 || grow_terms(g)) {
        memset(&g->term[0], 0, sizeof(g->term[0]));
        g->term_count = 1;
        uint32_t acc = sx_term_put(g, &(sx_term){.kind = SX_TERM_ACC});
        SX_ASSERT(acc == SX_TERM_THE_ACC || g->refused);
    }
}

/* ---- forms ---- */
void sx_lin_get(const sx_algebra *g, uint32_t form, sx_lin *lin)
{
    const sx_form *f = &g->form[form];
    uint32_t at = f->first;
    lin->constant = f->constant;
    lin->vars = f->vars;
    for (uint64_t left = f->vars; left != 0; left &= left - 1) {
        lin->coef[__builtin_ctzll(left)] = g->coef[at++];
    }
}

void sx_lin_add_constant(sx_algebra *g, sx_lin *lin, int64_t value)
{
    if (!sx_add_i64(lin->constant, value, &lin->constant)) {
        (void)sx_refuse(g, "a form overflows");
    }
}

void sx_lin_add(sx_algebra *g, sx_lin *lin, uint32_t variable, int64_t coefficient)
{
    uint64_t bit = SX_VAR_BIT(variable);
    int64_t sum = coefficient;
    if ((lin->vars & bit) != 0 && !sx_add_i64(lin->coef[variable], coefficient, &sum)) {
        (void)sx_refuse(g, "a form overflows");
    }
    lin->coef[variable] = sum;
    lin->vars = sum != 0 ? lin->vars | bit : lin->vars & ~bit;
}

void sx_lin_add_lin(sx_algebra *g, sx_lin *lin, const sx_lin *other, int64_t factor)
{
    int64_t product = 0;
    bool ok = sx_mul_i64(other->constant, factor, &product);
    sx_lin_add_constant(g, lin, product);
    for (uint64_t left = other->vars; left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        ok = ok && sx_mul_i64(other->coef[v], factor, &product);
        sx_lin_add(g, lin, v, ok ? product : 0);
    }
    if (!ok) {
        (void)sx_refuse(g, "a form overflows");
    }
}

void sx_lin_add_form(sx_algebra *g, sx_lin *lin, uint32_t form, int64_t factor)
{
    const sx_form *f = &g->form[form];
    uint32_t at = f->first;
    int64_t product = 0;
    bool ok = sx_mul_i64(f->constant, factor, &product);
    sx_lin_add_constant(g, lin, product);
    for (uint64_t left = f->vars; left != 0; left &= left - 1) {
        ok = ok && sx_mul_i64(g->coef[at++], factor, &product);
        sx_lin_add(g, lin, (uint32_t)__builtin_ctzll(left), ok ? product : 0);
    }
    if (!ok) {
        (void)sx_refuse(g, "a form overflows");
    }
}

bool sx_form_equal(const sx_algebra *g, uint32_t form, const sx_lin *lin)
{
    const sx_form *f = &g->form[form];
    if (f->constant != lin->constant || f->vars != lin->vars) {
        return false;
    }
    uint32_t at = f->first;
    for (uint64_t left = f->vars; left != 0; left &= left - 1) {
        if (g->coef[at++] != lin->coef[__builtin_ctzll(left)]) {
            return false;
        }
    }
    return true;
}

uint32_t sx_form_put(sx_algebra *g, const sx_lin *lin)
{
    if (g->refused) {
        return 0;
    }
    uint64_t hash = mix((uint64_t)lin->constant, lin->vars);
    uint32_t n = 0;
    for (uint64_t left = lin->vars; left != 0; left &= left - 1) {
        hash = mix(hash, (uint64_t)lin->coef[__builtin_ctzll(left)]);
        n++;
    }
    hash = finish(hash);
    uint32_t mask = g->slot_count[TABLE_FORM] - 1;
    for (uint32_t at = (uint32_t)hash & mask;; at = (at + 1) & mask) {
        uint64_t slot = g->slot[TABLE_FORM][at];
        if (slot >> 32 != g->generation) {
            break;
        }
        if (sx_form_equal(g, (uint32_t)slot, lin)) {
            return (uint32_t)slot;
        }
    }
    void *coefs = g->coef;
    if ((g->form_count >= g->room[TABLE_FORM] && !grow_forms(g)) ||
        (g->coef_count + n > g->coef_capacity &&
         !grow(g, &coefs, &g->coef_capacity, g->coef_count + n, sizeof(int64_t)))) {
        return 0;
    }
    g->coef = coefs;
    g->form[g->form_count] =
        (sx_form){.constant = lin->constant, .vars = lin->vars, .first = g->coef_count};
    for (uint64_t left = lin->vars; left != 0; left &= left - 1) {
        g->coef[g->coef_count++] = lin->coef[__builtin_ctzll(left)];
    }
    put_slot(g, TABLE_FORM, hash, g->form_count);
    return g->form_count++;
}

uint32_t sx_form_constant(sx_algebra *g, int64_t value)
{
    sx_lin lin;
    bool small = value >= 0 && value < (int64_t)SX_SMALL_FORMS;
    if (small && g->small[value].stamp == g->generation && !g->refused) {
        return g->small[value].result;
    }
    sx_lin_init(&lin, value);
    uint32_t form = sx_form_put(g, &lin);
    if (small && !g->refused) {
        g->small[value] = (sx_memo){g->generation, form};
    }
    return form;
}

uint32_t sx_form_var(sx_algebra *g, uint32_t variable, int64_t coefficient, int64_t constant)
{
    sx_lin lin;
    lin.constant = constant;
    lin.vars = 0;
    sx_lin_add(g, &lin, variable, coefficient);
    return sx_form_put(g, &lin);
}

bool sx_lin_range(sx_algebra *g, const sx_lin *lin, int64_t *low, int64_t *high)
{
    *low = *high = lin->constant;
    bool ok = true;
    for (uint64_t left = lin->vars; left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        int64_t at_low = 0;
        int64_t at_high = 0;
        ok = ok && sx_mul_i64(lin->coef[v], g->low[v], &at_low) &&
             sx_mul_i64(lin->coef[v], g->high[v], &at_high) &&
             sx_add_i64(*low, sx_min_i64(at_low, at_high), low) &&
             sx_add_i64(*high, sx_max_i64(at_low, at_high), high);
    }
    if (!ok) {
        (void)sx_refuse(g, "the range of a form overflows");
    }
    return ok;
}

/* ---- terms ---- */
/* What follows from the key: free variables, marks, level. A child that is none is term 0, which has nothing. */
static void derive(const sx_algebra *g, sx_term *t)
{
    const sx_term *x = &g->term[t->child[0]];
    const sx_term *y = &g->term[t->child[1]];
    const sx_term *z = &g->term[t->child[2]];
    t->vars = x->vars | y->vars | z->vars | g->form[t->form].vars;
    t->marks = x->marks | y->marks | z->marks;
    t->level = x->level > y->level ? x->level : y->level;
    t->level = z->level > t->level ? z->level : t->level;
    switch ((sx_term_kind)t->kind) {
    case SX_TERM_HOLE: t->holes = true; break;
    case SX_TERM_ACC: t->acc = true; break;
    case SX_TERM_STATE: t->state = true; break;
    case SX_TERM_RUN: /* its form are the counts; its step has an accumulator of its own */
        t->vars = x->vars | (y->vars & ~sx_run_vars(t->imm)) | z->vars;
        t->acc = x->acc || z->acc;
        t->level = t->imm + 1 > t->level ? (uint8_t)(t->imm + 1) : t->level;
        break;
    case SX_TERM_RECUR:
        t->recur = true;
        t->vars = x->vars | (y->vars & ~sx_run_vars(t->imm)) | z->vars;
        t->level = t->imm + 1 > t->level ? (uint8_t)(t->imm + 1) : t->level;
        break;
    case SX_TERM_CONST:
    case SX_TERM_ELEMENT:
    case SX_TERM_INT:
    case SX_TERM_OP:
    case SX_TERM_PART:
    default: break;
    }
}

uint32_t sx_term_put(sx_algebra *g, const sx_term *key)
{
    if (g->refused) {
        return 0;
    }
    uint64_t hash = term_hash(key);
    uint32_t mask = g->slot_count[TABLE_TERM] - 1;
    for (uint32_t at = (uint32_t)hash & mask;; at = (at + 1) & mask) {
        uint64_t slot = g->slot[TABLE_TERM][at];
        if (slot >> 32 != g->generation) {
            break;
        }
        if (memcmp(&g->term[(uint32_t)slot], key, SX_TERM_KEY) == 0) {
            return (uint32_t)slot;
        }
    }
    if (g->term_count >= g->room[TABLE_TERM] && !grow_terms(g)) {
        return 0;
    }
    sx_term *t = &g->term[g->term_count];
    *t = *key;
    derive(g, t);
    put_slot(g, TABLE_TERM, hash, g->term_count);
    return g->term_count++;
}

uint32_t sx_term_constant(sx_algebra *g, uint64_t bits)
{
    SX_ASSERT(g->wide || bits <= UINT32_MAX);
    uint32_t high = bits >> 32 == 0 ? 0 : sx_form_constant(g, (int64_t)(bits >> 32));
    return sx_term_put(g, &(sx_term){.kind = SX_TERM_CONST, .imm = (uint32_t)bits, .form = high});
}

uint64_t sx_term_bits(const sx_algebra *g, const sx_term *constant)
{
    return (uint64_t)g->form[constant->form].constant << 32 | constant->imm;
}

uint32_t sx_term_int(sx_algebra *g, uint32_t form)
{
    const sx_form *f = &g->form[form];
    if (f->vars == 0) {
        uint64_t bits = (uint64_t)f->constant;
        return sx_term_constant(g, g->wide ? bits : (uint32_t)bits);
    }
    return sx_term_put(g, &(sx_term){.kind = SX_TERM_INT, .form = form});
}

uint32_t sx_term_scalar(sx_algebra *g, uint32_t form)
{
    return sx_term_put(g, &(sx_term){.kind = SX_TERM_INT, .form = form});
}

uint32_t sx_term_element(sx_algebra *g, uint32_t buffer, uint8_t width, uint32_t form,
                         uint32_t index)
{
    return sx_term_put(g, &(sx_term){.kind = SX_TERM_ELEMENT,
                                     .width = width,
                                     .imm = buffer,
                                     .form = form,
                                     .child = {index, 0, 0}});
}

uint32_t sx_term_hole(sx_algebra *g, uint32_t number, uint32_t lane_form)
{
    return sx_term_put(g, &(sx_term){.kind = SX_TERM_HOLE, .imm = number, .form = lane_form});
}
