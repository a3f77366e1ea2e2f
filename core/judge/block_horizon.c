/* block_horizon.c - are the scores of a block's online sum minus infinity behind its horizon?
 *
 * The programs of scores are read once, under the assumption that the key is behind row + ahead. Then a difference of
 * positions that moves with key - row has a sign, so that a comparison is known; what a choice between two values gives
 * is the one that is chosen; and minus infinity plus a number is minus infinity. Nothing else is known of any value:
 * a program that hides keys in another way is refused. */
#include <math.h>
#include <string.h>

#include "core/judge/prove.h"
#include "core/tile/online.h"

typedef enum { ANYTHING, INTEGER, HIDDEN } value_kind;

/* What a register holds: of an integer its form over the variables. */
typedef struct {
    value_kind kind;
    int64_t coef[SX_LOOP_VARS_MAX];
    int64_t constant;
} value;

typedef enum { UNKNOWN, FALSE_BEHIND, TRUE_BEHIND } truth;

typedef struct {
    const sx_tile *tile;
    const sx_part *part;
    /* The first key of the program's stage 0. */
    int64_t first_key;
    value *vector, *scalar;
    truth *mask;
} reader;

#define COEF_MAX (INT64_C(1) << 31)

/* Operands of another class than the register's are nothing that is known. */
static const value nothing = {.kind = ANYTHING};

static const value *vector_at(const reader *r, uint32_t i)
{
    return i < r->part->vector_count ? &r->vector[i] : &nothing;
}

static const value *scalar_at(const reader *r, uint32_t i)
{
    return i < r->part->scalar_count ? &r->scalar[i] : &nothing;
}

static truth mask_at(const reader *r, uint32_t i)
{
    return i < r->part->mask_count ? r->mask[i] : UNKNOWN;
}

static value constant(int64_t x)
{
    return (value){.kind = INTEGER, .constant = x};
}

/* x + factor * y */
static value sum(const value *x, const value *y, int64_t factor)
{
    value z = *x;
    bool ok = x->kind == INTEGER && y->kind == INTEGER;
    for (uint32_t v = 0; ok && v <= SX_LOOP_VARS_MAX; v++) {
        int64_t *to = v < SX_LOOP_VARS_MAX ? &z.coef[v] : &z.constant;
        int64_t from = v < SX_LOOP_VARS_MAX ? y->coef[v] : y->constant, product;
        ok = sx_mul_i64(from, factor, &product) && sx_add_i64(*to, product, to) &&
             *to > -COEF_MAX && *to < COEF_MAX;
    }
    z.kind = ok ? INTEGER : ANYTHING;
    return z;
}

/* A form of row and key alone, as [0] * row + [1] * key + [2], whose 32 bits hold it for all rows and keys. */
static bool by_positions(const reader *r, const value *x, int64_t form[3])
{
    uint32_t stage = sx_tile_stage_variable(r->tile);
    int64_t rows = r->tile->online->query->rows, keys = r->tile->sum;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        bool named = v == SX_TILE_VAR_ROW || v == stage || v == stage + 1;
        if (!named && x->coef[v] != 0) {
            return false;
        }
    }
    form[0] = x->coef[SX_TILE_VAR_ROW];
    form[1] = x->coef[stage + 1];
    form[2] = x->constant - form[1] * r->first_key;
    bool small = form[0] >= -1 && form[0] <= 1 && form[1] >= -1 && form[1] <= 1;
    bool whole = r->part == &r->tile->online->scores[0].part;
    /* coefficients of at most 1 and positions below 2^30: only the constant could leave 32 bits */
    return small && x->coef[stage] == (whole ? form[1] * (int64_t)r->tile->block_steps : 0) &&
           rows <= SX_HORIZON_MAX && keys <= SX_HORIZON_MAX && form[2] >= -SX_HORIZON_MAX / 2 &&
           form[2] <= SX_HORIZON_MAX / 2;
}

/* x > y, or x == y, where key - row > ahead. */
static truth compare(const reader *r, const value *x, const value *y, bool greater)
{
    int64_t a[3], b[3];
    if (x->kind != INTEGER || y->kind != INTEGER || !by_positions(r, x, a) ||
        !by_positions(r, y, b)) {
        return UNKNOWN;
    }
    int64_t key = a[1] - b[1], at = a[2] - b[2], least = r->tile->online->ahead + 1;
    if (a[0] - b[0] != -key || (key != 1 && key != -1)) {
        return UNKNOWN;
    }
    /* the difference is key - row + at, or what is subtracted from `at` is key - row */
    if (key == 1 && least + at > 0) {
        return greater ? TRUE_BEHIND : FALSE_BEHIND;
    }
    if (key == -1 && at - least < 0) {
        return FALSE_BEHIND;
    }
    return key == -1 && greater && at - least <= 0 ? FALSE_BEHIND : UNKNOWN;
}

static truth both(truth x, truth y)
{
    if (x == FALSE_BEHIND || y == FALSE_BEHIND) {
        return FALSE_BEHIND;
    }
    return x == TRUE_BEHIND && y == TRUE_BEHIND ? TRUE_BEHIND : UNKNOWN;
}

static truth other(truth x)
{
    return x == UNKNOWN ? UNKNOWN : x == TRUE_BEHIND ? FALSE_BEHIND : TRUE_BEHIND;
}

static truth mask_of(const reader *r, const sx_item *item)
{
    const uint32_t *s = item->src;
    switch ((int)item->op) {
    case SX_LOP_ICMP: return compare(r, vector_at(r, s[0]), vector_at(r, s[1]), item->imm == SX_GT);
    case SX_LOP_MAND: return both(mask_at(r, s[0]), mask_at(r, s[1]));
    case SX_LOP_MOR: return other(both(other(mask_at(r, s[0])), other(mask_at(r, s[1]))));
    case SX_LOP_MNOT: return other(mask_at(r, s[0]));
    default: return UNKNOWN;
    }
}

static value scalar_of(const reader *r, const sx_item *item)
{
    value x = nothing, zero = constant(0);
    if (item->op == SX_LOP_SVAR && item->imm < SX_LOOP_VARS_MAX) {
        x = constant(0);
        x.coef[item->imm] = 1;
    } else if (item->op == SX_LOP_SMUL) {
        x = sum(&zero, scalar_at(r, item->src[0]), item->imm2);
    }
    return x;
}

static value vector_of(const reader *r, const sx_item *item)
{
    const value *x = vector_at(r, item->src[0]), *y = vector_at(r, item->src[1]);
    switch ((int)item->op) {
    case SX_LOP_SET: {
        float f;
        memcpy(&f, &item->imm, sizeof(f));
        value hidden = {.kind = HIDDEN};
        return isinf(f) && f < 0 ? hidden : constant((int32_t)item->imm);
    }
    case SX_LOP_S2V: return *scalar_at(r, item->src[0]);
    case SX_LOP_MOV: return *x;
    case SX_LOP_IADD: return sum(x, y, 1);
    case SX_LOP_ISUB: return sum(x, y, -1);
    case SX_LOP_ADD: return x->kind == HIDDEN ? *x : y->kind == HIDDEN ? *y : nothing;
    case SX_LOP_BLEND: {
        truth chosen = mask_at(r, item->src[0]);
        return chosen == TRUE_BEHIND    ? *y
               : chosen == FALSE_BEHIND ? *vector_at(r, item->src[2])
                                        : nothing;
    }
    default: return nothing;
    }
}

/* Are the scores of the program hidden? Registers are mutable, and the items are in straight line. */
static bool hides(reader *r, const sx_tile_value *scores)
{
    const sx_part *part = r->part = &scores->part;
    memset(r->vector, 0, part->vector_count * sizeof(value));
    memset(r->scalar, 0, part->scalar_count * sizeof(value));
    memset(r->mask, 0, part->mask_count * sizeof(truth));
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        char result = sx_lop_info_of(item->op)->result;
        if (item->kind != SX_ITEM_OP) {
            return false;
        }
        if (result == 's') {
            r->scalar[item->dst] = scalar_of(r, item);
        } else if (result == 'm') {
            r->mask[item->dst] = mask_of(r, item);
        } else if (result == 'v') {
            r->vector[item->dst] = vector_of(r, item);
        }
    }
    return r->vector[scores->result].kind == HIDDEN;
}

/* A warp's rows are those of one instruction, so that the last of them sees all that the others see. */
static bool rows_of_warp(const sx_layout *held, uint32_t rows)
{
    bool ok = held->mode_count == 0;
    for (uint32_t i = 0; ok && i < sx_layout_input_bits(held); i++) {
        uint32_t row = sx_at_row(held->column[i]);
        bool warp = i >= sx_layout_first(held, SX_HOME_WARP) &&
                    i < sx_layout_first(held, SX_HOME_WARP) + held->bits[SX_HOME_WARP];
        ok = warp ? row % rows == 0 : row < rows;
    }
    return ok;
}

sx_code sx_prove_horizon(sx_judge *j, const sx_tile *tile)
{
    const sx_tile_online *o = tile->online;
    uint32_t registers = 1;
    for (uint32_t i = 0; i < 2; i++) {
        const sx_part *p = &o->scores[i].part;
        registers += p->vector_count + p->scalar_count + p->mask_count;
    }
    reader r = {.tile = tile,
                .vector = SX_NEW_ARRAY(j->cx, value, registers),
                .scalar = SX_NEW_ARRAY(j->cx, value, registers),
                .mask = SX_NEW_ARRAY(j->cx, truth, registers)};
    if (r.vector == NULL || r.scalar == NULL || r.mask == NULL) {
        return j->cx->error.code;
    }
    int64_t whole = tile->sum / tile->block_steps;
    bool ok = o->ahead >= -SX_HORIZON_MAX && o->ahead <= SX_HORIZON_MAX &&
              (whole == 0 || hides(&r, &o->scores[0]));
    r.first_key = whole * tile->block_steps;
    ok = ok && (tile->sum % tile->block_steps == 0 || hides(&r, &o->scores[1]));
    if (!ok) {
        (void)sx_refuse(&j->algebra, "scores behind row + %lld are not all minus infinity",
                        (long long)o->ahead);
    } else if (!rows_of_warp(&o->held, tile->matrix->rows) ||
               !rows_of_warp(&tile->held, tile->matrix->rows)) {
        (void)sx_refuse(&j->algebra, "a warp passes stages for rows of others");
    }
    return SX_OK;
}
