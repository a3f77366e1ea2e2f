/* fold.c - operations in normal form: integer and mask operations on known values, factors in a fixed order,
 * integer maxima, and maxima that keep NaN. Other float operations are never folded: both sides of a
 * comparison keep the whole sequence. */
#include <math.h>
#include <string.h>

#include "core/judge/algebra.h"

static bool is_constant(const sx_algebra *g, uint32_t term, uint64_t *bits)
{
    const sx_term *t = &g->term[term];
    bool known = t->kind == SX_TERM_CONST;
    *bits = known ? sx_term_bits(g, t) : 0;
    return known;
}

/* The integer of a lane's bits. */
static int64_t lane_int(const sx_algebra *g, uint64_t bits)
{
    return g->wide ? (int64_t)bits : (int32_t)(uint32_t)bits;
}

/* The form of an integer term: a constant has one too. */
static bool int_form(sx_algebra *g, uint32_t term, sx_lin *lin)
{
    const sx_term *t = &g->term[term];
    if (t->kind == SX_TERM_CONST) {
        lin->constant = lane_int(g, sx_term_bits(g, t));
        lin->vars = 0;
        return true;
    }
    if (t->kind == SX_TERM_INT) {
        sx_lin_get(g, t->form, lin);
        return true;
    }
    return false;
}

/* Sums and shifts of forms: equal modulo what a lane holds. */
static uint32_t fold_form(sx_algebra *g, sx_lop op, uint32_t imm, uint32_t x, uint32_t y)
{
    sx_lin a, b, sum;
    sx_lin_init(&sum, 0);
    if (!int_form(g, x, &a) || (op == SX_LOP_SHL ? a.vars == 0 : !int_form(g, y, &b))) {
        return 0;
    }
    if (op == SX_LOP_SHL && imm > 31) {
        return 0; /* the coefficients would overflow */
    }
    if (op == SX_LOP_SHL) {
        sx_lin_add_lin(g, &sum, &a, INT64_C(1) << imm);
    } else if (a.vars == 0 && b.vars == 0) {
        return 0; /* constants wrap: below */
    } else {
        sx_lin_add_lin(g, &sum, &a, 1);
        sx_lin_add_lin(g, &sum, &b, op == SX_LOP_IADD ? 1 : -1);
    }
    return sx_term_int(g, sx_form_put(g, &sum));
}

static bool fold_bits(const sx_algebra *g, sx_lop op, uint32_t imm, uint64_t a, uint64_t b,
                      uint64_t *r)
{
    int64_t x = lane_int(g, a);
    int64_t y = lane_int(g, b);
    const uint64_t bits = g->wide ? 64 : 32;
    switch ((int)op) {
    case SX_LOP_AND:
    case SX_LOP_MAND: *r = a & b; break;
    case SX_LOP_OR:
    case SX_LOP_MOR: *r = a | b; break;
    case SX_LOP_XOR:
    case SX_LOP_MXOR: *r = a ^ b; break;
    case SX_LOP_MNOT: *r = a ^ 1; break;
    case SX_LOP_IADD: *r = a + b; break;
    case SX_LOP_ISUB: *r = a - b; break;
    case SX_LOP_IMUL: *r = (a & UINT32_MAX) * (b & UINT32_MAX); break;
    case SX_LOP_SHL: *r = a << imm; break;
    case SX_LOP_SHR: *r = a >> imm; break;
    case SX_LOP_SHLV: *r = b < bits ? a << b : 0; break;
    case SX_LOP_SHRV: *r = b < bits ? a >> b : 0; break;
    case SX_LOP_IMAX: *r = x > y ? a : b; break;
    case SX_LOP_IMIN: *r = x > y ? b : a; break;
    case SX_LOP_ICMP: *r = imm == SX_EQ ? a == b : x > y; break;
    default: return false;
    }
    *r = g->wide ? *r : (uint32_t)*r;
    return true;
}

static uint32_t fold_mask(sx_algebra *g, sx_lop op, uint32_t x, uint32_t y)
{
    uint64_t bits;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t known = k == 0 ? x : y;
        uint32_t other = k == 0 ? y : x;
        if (is_constant(g, known, &bits)) {
            return (bits != 0) == (op == SX_LOP_MAND) ? other : known;
        }
    }
    return 0;
}

/* A byte is not negative: greater than zero is not equal to zero. */
static bool is_byte_above_zero(const sx_algebra *g, uint32_t imm, uint32_t x, uint32_t y)
{
    const sx_term *a = &g->term[x];
    const sx_term *b = &g->term[y];
    return imm == SX_GT && a->kind == SX_TERM_ELEMENT && a->width == SX_MEM_U8 &&
           b->kind == SX_TERM_CONST && b->imm == 0 && b->form == 0;
}

/* Is it a known finite float? Infinities are what maxima start from: steps of a chain, which stay as they are. */
static bool is_number(const sx_algebra *g, uint32_t term, double *value)
{
    uint64_t bits;
    bool known = is_constant(g, term, &bits);
    if (g->wide) {
        memcpy(value, &bits, sizeof(bits));
    } else {
        uint32_t low = (uint32_t)bits;
        float narrow;
        memcpy(&narrow, &low, sizeof(low));
        *value = (double)narrow;
    }
    return known && isfinite(*value);
}

static uint32_t fold_blend(sx_algebra *g, uint32_t mask, uint32_t x, uint32_t y)
{
    sx_term m = g->term[mask];
    if (m.kind == SX_TERM_CONST) {
        return m.imm != 0 ? x : y;
    }
    if (x == y) {
        return x;
    }
    double value;
    bool asks_nan = m.kind == SX_TERM_OP && m.op == SX_LOP_CMP && m.imm == SX_NE &&
                    m.child[0] == x && m.child[1] == x;
    if (asks_nan && is_number(g, x, &value)) {
        return y;
    }
    sx_term order = g->term[y];
    if (asks_nan && order.kind == SX_TERM_OP && order.child[0] == x &&
        (order.op == SX_LOP_MAX || order.op == SX_LOP_MIN)) {
        int keeps = order.op == SX_LOP_MAX ? SX_LOP_NMAX : SX_LOP_NMIN;
        return sx_term_op(g, (sx_lop)keeps, 0, x, order.child[1], 0);
    }
    if (m.kind == SX_TERM_OP && m.op == SX_LOP_ICMP && m.imm == SX_GT) {
        if (m.child[0] == x && m.child[1] == y) {
            return sx_term_op(g, (sx_lop)SX_LOP_IMAX, 0, x, y, 0);
        }
        if (m.child[0] == y && m.child[1] == x) {
            return sx_term_op(g, (sx_lop)SX_LOP_IMIN, 0, y, x, 0);
        }
    }
    return 0;
}

/* Nothing times a number is nothing: what lanes behind the last element of a load become. */
static uint32_t fold_nothing(sx_algebra *g, uint32_t x, uint32_t y)
{
    uint64_t bits;
    double factor;
    bool ok = is_constant(g, x, &bits) && bits == 0 && is_number(g, y, &factor);
    return ok && factor > 0 ? x : 0;
}

/* With a known number one instruction keeps NaN, which gives its second operand where unordered or equal;
 * zeros have two signs, so a zero does not change places. */
static uint32_t fold_order(sx_algebra *g, sx_lop op, uint32_t x, uint32_t y)
{
    double value;
    sx_lop plain = (int)op == SX_LOP_NMAX ? SX_LOP_MAX : SX_LOP_MIN;
    if (is_number(g, x, &value)) {
        return sx_term_op(g, plain, 0, x, y, 0);
    }
    return is_number(g, y, &value) && value != 0 ? sx_term_op(g, plain, 0, y, x, 0) : 0;
}

static uint32_t fold_not(const sx_algebra *g, uint32_t x)
{
    const sx_term *t = &g->term[x];
    return t->kind == SX_TERM_OP && t->op == SX_LOP_MNOT ? t->child[0] : 0;
}

/* The greater or lesser of two integers. */
static bool is_extreme(const sx_term *t)
{
    return t->kind == SX_TERM_OP && ((int)t->op == SX_LOP_IMAX || (int)t->op == SX_LOP_IMIN);
}

static bool is_sum(const sx_term *t)
{
    return t->kind == SX_TERM_OP && ((int)t->op == SX_LOP_IADD || (int)t->op == SX_LOP_ISUB);
}

/* Does a lane hold all of these integers as they are? */
static bool holds(const sx_algebra *g, int64_t low, int64_t high)
{
    return g->wide || (low >= INT32_MIN && high <= INT32_MAX);
}

#define SX_EXTREMES_MAX \
    8u /* inside each other, of which the range is asked for, and sums of them */

/* Between which values an integer lies wherever it is asked for; false: it may be anything. */
static bool range_of(sx_algebra *g, uint32_t term, uint32_t depth, int64_t *low, int64_t *high)
{
    uint64_t bits;
    sx_lin lin;
    const sx_term t = g->term[term];
    if (t.kind == SX_TERM_INT) { /* what a lane cannot hold is another number there */
        sx_lin_get(g, t.form, &lin);
        return sx_lin_range(g, &lin, low, high) && holds(g, *low, *high);
    }
    if (is_constant(g, term, &bits)) {
        *low = *high = lane_int(g, bits);
        return true;
    }
    int64_t least, most;
    if ((!is_extreme(&t) && !is_sum(&t)) || depth == SX_EXTREMES_MAX ||
        !range_of(g, t.child[0], depth + 1, low, high) ||
        !range_of(g, t.child[1], depth + 1, &least, &most)) {
        return false;
    }
    if (is_sum(&t)) { /* none where it may wrap */
        bool minus = (int)t.op == SX_LOP_ISUB;
        bool lowest = minus && (least == INT64_MIN || most == INT64_MIN); /* has no negative */
        return !lowest && sx_add_i64(*low, minus ? -most : least, low) &&
               sx_add_i64(*high, minus ? -least : most, high) && holds(g, *low, *high);
    }
    bool greater = (int)t.op == SX_LOP_IMAX;
    *low = (least > *low) == greater ? least : *low;
    *high = (most > *high) == greater ? most : *high;
    return true;
}

static bool is_position(const sx_algebra *g, uint32_t term)
{
    const sx_term *t = &g->term[term];
    return t->kind == SX_TERM_INT || is_extreme(t) || is_sum(t);
}

/* A comparison of positions that is true for all of them, or for none. */
static uint32_t fold_positions(sx_algebra *g, uint32_t imm, uint32_t x, uint32_t y)
{
    int64_t low[2], high[2];
    if ((imm != SX_GT && imm != SX_EQ) || (!is_position(g, x) && !is_position(g, y)) ||
        !range_of(g, x, 0, &low[0], &high[0]) || !range_of(g, y, 0, &low[1], &high[1])) {
        return 0;
    }
    bool never = imm == SX_GT ? high[0] <= low[1] : high[0] < low[1] || low[0] > high[1];
    bool always = imm == SX_GT && low[0] > high[1];
    return never || always ? sx_term_constant(g, always) : 0;
}

/* The greater or lesser of two positions where ranges say which one it is. fold_blend makes these terms where a
 * comparison is open; without this they would stay when the comparison, asked again, is decided. */
static uint32_t fold_extreme(sx_algebra *g, sx_lop op, uint32_t x, uint32_t y)
{
    uint32_t greater = x == y || !g->settles ? 0 : fold_positions(g, SX_GT, x, y);
    if (greater == 0) {
        return x == y ? x : 0;
    }
    bool first = (g->term[greater].imm != 0) == ((int)op == SX_LOP_IMAX);
    return first ? x : y;
}

static uint32_t fold_compare(sx_algebra *g, uint32_t imm, uint32_t x, uint32_t y)
{
    if (!is_byte_above_zero(g, imm, x, y)) {
        return g->settles ? fold_positions(g, imm, x, y) : 0;
    }
    uint32_t zero = sx_term_op(g, SX_LOP_ICMP, SX_EQ, x, y, 0);
    return sx_term_op(g, SX_LOP_MNOT, 0, zero, 0, 0);
}

/* Integer registers whose values are forms: their sum is a form again, and so is what lanes get of them. */
static uint32_t fold_integer(sx_algebra *g, sx_lop op, uint32_t x, uint32_t y)
{
    if (g->term[x].kind != SX_TERM_INT) {
        return 0;
    }
    if (op == SX_LOP_S2V) {
        return sx_term_int(g, g->term[x].form);
    }
    if (g->term[y].kind != SX_TERM_INT) {
        return 0;
    }
    sx_lin sum;
    sx_lin_get(g, g->term[x].form, &sum);
    sx_lin_add_form(g, &sum, g->term[y].form, 1);
    return sx_term_scalar(g, sx_form_put(g, &sum));
}

/* An integer that is below 2^imm wherever it is asked for: nothing of it is left. Where lanes are unrolled each of them
 * has a number of its own, which folds; where they are not, or in what is expected of them, this says the same. */
static uint32_t fold_shift(sx_algebra *g, uint32_t imm, uint32_t x)
{
    int64_t low, high;
    sx_lin lin;
    if (g->term[x].kind != SX_TERM_INT || imm > 62) {
        return 0;
    }
    sx_lin_get(g, g->term[x].form, &lin);
    bool none = sx_lin_range(g, &lin, &low, &high) && low >= 0 && high < INT64_C(1) << imm;
    return none ? sx_term_constant(g, 0) : 0;
}

/* Low bits of a position that has no others are the position; the bit above all that it has is added by an exclusive
 * or. So a position that is narrowed and widened again is itself, as the number is where lanes are unrolled. */
static uint32_t fold_low_bits(sx_algebra *g, sx_lop op, uint32_t x, uint32_t y)
{
    int64_t low, high;
    uint64_t bits;
    if (g->term[x].kind != SX_TERM_INT || !is_constant(g, y, &bits) ||
        !range_of(g, x, 0, &low, &high) || low < 0) {
        return 0;
    }
    int64_t number = lane_int(g, bits);
    if (op == SX_LOP_AND) { /* of 2^k - 1 */
        bool all = number == -1 || (number >= high && (number & (number + 1)) == 0);
        return all ? x : 0;
    }
    bool above = number > high && (number & (number - 1)) == 0 && holds(g, low, high + number);
    return above ? fold_form(g, SX_LOP_IADD, 0, x, y) : 0;
}

static uint32_t fold(sx_algebra *g, sx_lop op, uint32_t imm, uint32_t x, uint32_t y, uint32_t z)
{
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t bits;
    if (op == SX_LOP_BLEND) {
        return fold_blend(g, x, y, z);
    }
    if (op == SX_LOP_MOV) {
        return x;
    }
    if (op == SX_LOP_SADD || op == SX_LOP_S2V) {
        return fold_integer(g, op, x, y);
    }
    if (z == 0 && is_constant(g, x, &a) && (y == 0 || is_constant(g, y, &b)) &&
        fold_bits(g, op, imm, a, b, &bits)) {
        return sx_term_constant(g, bits);
    }
    switch ((int)op) {
    case SX_LOP_IMAX:
    case SX_LOP_IMIN: return fold_extreme(g, op, x, y);
    case SX_LOP_NMAX:
    case SX_LOP_NMIN: return fold_order(g, op, x, y);
    case SX_LOP_MUL: return fold_nothing(g, x, y);
    case SX_LOP_IADD:
    case SX_LOP_ISUB:
    case SX_LOP_SHL: return fold_form(g, op, imm, x, y);
    case SX_LOP_MAND:
    case SX_LOP_MOR: return fold_mask(g, op, x, y);
    case SX_LOP_MNOT: return fold_not(g, x);
    case SX_LOP_ICMP: return fold_compare(g, imm, x, y);
    case SX_LOP_SHR: return fold_shift(g, imm, x);
    case SX_LOP_AND:
    case SX_LOP_XOR: return fold_low_bits(g, op, x, y);
    default: return 0;
    }
}

/* The factors of a multiply-add are exchanged freely (which NaN it gives is not specified): elements by
 * buffer, else by number. */
static bool wants_exchange(const sx_algebra *g, uint32_t x, uint32_t y)
{
    const sx_term *a = &g->term[x];
    const sx_term *b = &g->term[y];
    if (a->kind != b->kind) {
        return a->kind > b->kind;
    }
    if (a->kind == SX_TERM_ELEMENT && a->imm != b->imm) {
        return a->imm > b->imm;
    }
    return x > y;
}

static bool is_product(const sx_algebra *g, uint32_t term)
{
    const sx_term *t = &g->term[term];
    return t->kind == SX_TERM_OP && t->op == SX_LOP_IMUL && !t->holes && !t->acc && !t->state;
}

/* Factors of an integer product that is added are exchanged like those of a multiply-add. Products that are
 * multiplied on keep their order, which is that of a run. */
static uint32_t ordered_product(sx_algebra *g, uint32_t term)
{
    sx_term key = g->term[term];
    if (!is_product(g, term) || !wants_exchange(g, key.child[0], key.child[1])) {
        return term;
    }
    sx_term exchanged = {.kind = SX_TERM_OP,
                         .op = SX_LOP_IMUL,
                         .imm = key.imm,
                         .child = {key.child[1], key.child[0], key.child[2]}};
    return sx_term_put(g, &exchanged);
}

void sx_term_exchange(sx_algebra *g, sx_term *key)
{
    bool exchanges = key->op == SX_LOP_FMA || key->op == SX_LOP_FNMA;
    if (key->op == SX_LOP_IADD) {
        key->child[0] = ordered_product(g, key->child[0]);
        key->child[1] = ordered_product(g, key->child[1]);
        /* the halves of a 64-bit product */
        exchanges = is_product(g, key->child[0]) && is_product(g, key->child[1]);
    }
    if (exchanges && wants_exchange(g, key->child[0], key->child[1])) {
        uint32_t other = key->child[0];
        key->child[0] = key->child[1];
        key->child[1] = other;
    }
}

uint32_t sx_term_op(sx_algebra *g, sx_lop op, uint32_t imm, uint32_t x, uint32_t y, uint32_t z)
{
    if (g->refused) {
        return 0;
    }
    uint32_t known = fold(g, op, imm, x, y, z);
    if (known != 0 || g->refused) {
        return known;
    }
    uint32_t at = sx_run_operand(op);
    sx_term key = {.kind = SX_TERM_OP, .op = (uint8_t)op, .imm = imm, .child = {x, y, z}};
    sx_term_exchange(g, &key);
    uint32_t joined = at < 3 ? sx_run_continue(g, &key, at) : 0;
    return joined != 0 ? joined : sx_term_put(g, &key);
}

uint32_t sx_term_op_imm2(sx_algebra *g, sx_lop op, int64_t imm2, uint32_t x)
{
    if (g->refused) {
        return 0;
    }
    sx_term key = {.kind = SX_TERM_OP, .op = (uint8_t)op, .child = {x, 0, 0}};
    if ((op == SX_LOP_SMUL || op == SX_LOP_SOFF) && g->term[x].kind == SX_TERM_INT) {
        sx_lin made;
        sx_lin_init(&made, op == SX_LOP_SMUL ? 0 : imm2);
        sx_lin_add_form(g, &made, g->term[x].form, op == SX_LOP_SMUL ? imm2 : 1);
        return sx_term_scalar(g, sx_form_put(g, &made));
    }
    key.form = sx_form_constant(g, imm2);
    /* a zero immediate has the form of none: the operation tells them apart, and no other uses it */
    return sx_term_put(g, &key);
}

#define SETTLED_MAX 4096u /* operations that are made again */
static uint32_t settled(sx_algebra *g, uint32_t term, uint32_t *left)
{
    sx_term t = g->term[term];
    bool plain = t.kind == SX_TERM_OP && !t.holes && !t.acc && !t.state && !t.recur && t.form == 0;
    if (!plain || *left == 0 || g->refused) {
        return term;
    }
    --*left;
    uint32_t child[3];
    for (uint32_t k = 0; k < 3; k++) {
        child[k] = t.child[k] != 0 ? settled(g, t.child[k], left) : 0;
    }
    return sx_term_op(g, (sx_lop)t.op, t.imm, child[0], child[1], child[2]);
}

uint32_t sx_term_settle(sx_algebra *g, uint32_t term)
{
    uint32_t left = SETTLED_MAX;
    g->settles = true;
    uint32_t made = settled(g, term, &left);
    g->settles = false;
    return made;
}
