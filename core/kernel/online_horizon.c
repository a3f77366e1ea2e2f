/* online_horizon.c - which keys does no query see, by the positions of both alone? Read off the body. */
#include <math.h>

#include "core/kernel/online_blocks.h"

#define DEPTH_MAX 8 /* of operands that are followed */

typedef struct {
    const sx_analysis *a;
    /* The dimensions of the space that are rows and keys. */
    uint32_t row, key;
} reader;

/* An integer that is row * rows + key * keys + constant. */
typedef struct {
    int64_t rows, keys, constant;
} position;

/* What is known of a value at all keys behind row + ahead. */
typedef struct {
    bool known;
    int64_t ahead;
} horizon;

static const sx_instr *instr(const reader *r, uint32_t i)
{
    SX_ASSERT(i < r->a->body->instr_count);
    return &r->a->body->instr[i];
}

static bool is_negative_infinity(const sx_instr *in)
{
    return in->kind == SX_BODY_IMM && isinf(in->imm) && in->imm < 0;
}

static bool read_position(const reader *r, uint32_t i, position *p)
{
    const sx_instr *in = instr(r, i), *added;
    *p = (position){0};
    if (in->dtype != SX_I32 && in->dtype != SX_I64) {
        return false;
    }
    if (in->kind == SX_BODY_INDEX) {
        p->rows = in->x == r->row ? 1 : 0;
        p->keys = in->x == r->key ? 1 : 0;
        return in->x == r->row || in->x == r->key;
    }
    if (in->kind != SX_BODY_APPLY || (in->op != SX_OP_ADD && in->op != SX_OP_SUBTRACT)) {
        return false;
    }
    added = instr(r, in->y);
    bool swapped = added->kind != SX_BODY_IMM && in->op == SX_OP_ADD;
    added = swapped ? instr(r, in->x) : added;
    uint32_t from = swapped ? in->y : in->x;
    if (added->kind != SX_BODY_IMM || instr(r, from)->kind != SX_BODY_INDEX ||
        fabs(added->imm) > (double)SX_HORIZON_MAX || !read_position(r, from, p)) {
        return false;
    }
    p->constant = in->op == SX_OP_ADD ? (int64_t)added->imm : -(int64_t)added->imm;
    return true;
}

/* Where is the comparison `value` at all keys behind row + ahead? */
static horizon compare_horizon(const reader *r, const sx_instr *in, bool value)
{
    position x, y;
    if (!read_position(r, in->x, &x) || !read_position(r, in->y, &y) || x.rows + y.rows != 1 ||
        x.keys + y.keys != 1 || x.rows != y.keys) {
        return (horizon){false, 0};
    }
    sx_direction d = in->direction;
    bool row_first = x.rows == 1;
    /* key - row <= reach: then the row is at least, or more than, the key, as they are compared */
    int64_t reach = row_first ? x.constant - y.constant : y.constant - x.constant;
    bool at_least = d == (row_first ? SX_GE : SX_LE), more = d == (row_first ? SX_GT : SX_LT);
    bool at_most = d == (row_first ? SX_LE : SX_GE), less = d == (row_first ? SX_LT : SX_GT);
    if (value ? at_most || less : at_least || more) {
        bool equal = value ? less : at_least; /* the key at `reach` is not yet one of them */
        return (horizon){true, equal ? reach : reach - 1};
    }
    return (horizon){false, 0};
}

static horizon nearer(horizon x, horizon y)
{
    if (!x.known || !y.known) {
        return x.known ? x : y;
    }
    return x.ahead < y.ahead ? x : y;
}

/* Where is a condition `value`? */
static horizon condition_horizon(const reader *r, uint32_t i, bool value, uint32_t depth)
{
    const sx_instr *in = instr(r, i);
    if (in->kind != SX_BODY_APPLY || depth > DEPTH_MAX) {
        return (horizon){false, 0};
    }
    if (in->op == SX_OP_NOT) {
        return condition_horizon(r, in->x, !value, depth + 1);
    }
    if (in->op == (value ? SX_OP_OR : SX_OP_AND)) {
        return nearer(condition_horizon(r, in->x, value, depth + 1),
                      condition_horizon(r, in->y, value, depth + 1));
    }
    return in->op == SX_OP_COMPARE ? compare_horizon(r, in, value) : (horizon){false, 0};
}

/* Where is a value minus infinity, whatever numbers it is made of? */
static horizon value_horizon(const reader *r, uint32_t i, uint32_t depth)
{
    const sx_instr *in = instr(r, i);
    if (in->kind != SX_BODY_APPLY || depth > DEPTH_MAX) {
        return (horizon){false, 0};
    }
    if (in->op == SX_OP_ADD) {
        return nearer(value_horizon(r, in->x, depth + 1), value_horizon(r, in->y, depth + 1));
    }
    if (in->op == SX_OP_SELECT && is_negative_infinity(instr(r, in->z))) {
        return condition_horizon(r, in->x, false, depth + 1);
    }
    if (in->op == SX_OP_SELECT && is_negative_infinity(instr(r, in->y))) {
        return condition_horizon(r, in->x, true, depth + 1);
    }
    return (horizon){false, 0};
}

/* The dimension of the space that is `dim` of the view alone, or SX_NO_DIM. */
static uint32_t space_dim(const sx_analysis *a, uint32_t dim)
{
    uint32_t found = SX_NO_DIM;
    for (uint32_t d = 0; dim != SX_NO_DIM && d < a->fused->type.rank; d++) {
        if (a->view.view_dim[d] == dim) {
            if (found != SX_NO_DIM) {
                return SX_NO_DIM;
            }
            found = d;
        }
    }
    return found;
}

bool sx_online_horizon(const sx_analysis *a, int64_t *ahead)
{
    *ahead = 0;
    if (a->kind != SX_KERNEL_ONLINE || a->scores == SX_NO_INSTR || a->row == SX_NO_DIM ||
        a->keys == SX_NO_DIM) {
        return false;
    }
    reader r = {a, space_dim(a, a->row), space_dim(a, a->keys)};
    if (r.row == SX_NO_DIM || r.key == SX_NO_DIM) {
        return false;
    }
    horizon h = value_horizon(&r, a->scores, 0);
    bool fits = h.known && h.ahead >= -SX_HORIZON_MAX && h.ahead <= SX_HORIZON_MAX &&
                a->view.extent[a->row] <= SX_HORIZON_MAX &&
                a->view.extent[a->keys] <= SX_HORIZON_MAX;
    *ahead = fits ? h.ahead : 0;
    return fits;
}
