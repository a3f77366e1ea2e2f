/* reference_sum.c - contractions and reductions as terms, in the order of the numerics plans (core/loop/README.md):
 *
 *   contraction   one chain of multiply-adds from +0 over ascending row-major steps of the reduced dimensions
 *   row across    one chain from the identity in the same order
 *   row along     the last dimension is reduced: 16 lanes x 4 accumulators, chunk c of 16 elements of the
 *                 innermost axis to accumulator c mod 4, the tail filled with the identity; (a0 + a1) + (a2 +
 *                 a3); lanes folded by 8, 4, 2, 1 */
#include <math.h>
#include <string.h>

#include "core/judge/reference.h"

#define LANES 16u
#define ACCUMULATORS 4u

uint32_t sx_reference_hole(sx_reference *r)
{
    return sx_term_hole(r->g, 1000000 + r->holes++, 0);
}

static uint32_t loop_var(uint32_t d)
{
    return 3 + d; /* no variable of the program is left in what is compared */
}

uint32_t sx_reference_loops(sx_reference *r, uint32_t first, uint32_t hole, uint32_t next,
                            uint32_t dims)
{
    for (uint32_t d = r->space.rank; d-- > 0;) {
        if ((dims >> d & 1) != 0) {
            next = sx_term_close(r->g, hole, hole, next, loop_var(d), r->space.extent[d]);
        }
    }
    return sx_term_close(r->g, first, hole, next, SX_LOOP_VARS_MAX - 1, 1);
}

/* The position along `dims` becomes loop variables; `saved` keeps what it was. */
static void enter(sx_reference *r, uint32_t dims, uint32_t saved[SX_RANK_MAX])
{
    memcpy(saved, r->position, sizeof(r->position));
    for (uint32_t d = 0; d < r->space.rank; d++) {
        if ((dims >> d & 1) != 0) {
            r->position[d] = sx_form_var(r->g, loop_var(d), 1, 0);
        }
    }
    r->step = ++r->epoch;
}

static void leave(sx_reference *r, const uint32_t saved[SX_RANK_MAX], uint32_t step)
{
    memcpy(r->position, saved, sizeof(r->position));
    r->step = step;
}

uint32_t sx_reference_dot(sx_reference *r, const sx_instr *in)
{
    sx_algebra *g = r->g;
    uint32_t saved[SX_RANK_MAX];
    uint32_t step = r->step;
    if (g->wide || in->dtype != SX_F32 || r->body->instr[in->x].dtype != SX_F32 ||
        r->body->instr[in->y].dtype != SX_F32) {
        return sx_refuse(g, "a contraction of %s", sx_dtype_name(in->dtype));
    }
    uint32_t dims = 0; /* under an online sum the inner ones alone */
    for (uint32_t d = 0; d < r->space.rank; d++) {
        bool summed = r->online_kind ? r->space.inner[d] : r->space.reduced[d];
        dims |= summed ? 1u << d : 0;
    }
    uint32_t hole = sx_reference_hole(r);
    enter(r, dims, saved);
    uint32_t x = sx_reference_value(r, in->x);
    uint32_t y = sx_reference_value(r, in->y);
    uint32_t next = sx_term_op(g, SX_LOP_FMA, 0, x, y, hole);
    uint32_t sum = sx_reference_loops(r, sx_term_constant(g, 0), hole, next, dims);
    leave(r, saved, step);
    return sum;
}

static uint32_t combine(sx_reference *r, const sx_instr *in, uint32_t x, uint32_t y)
{
    sx_algebra *g = r->g;
    bool real = in->dtype == SX_F32;
    switch (in->reducer) {
    case SX_SUM: return sx_term_op(g, real ? SX_LOP_ADD : SX_LOP_IADD, 0, x, y, 0);
    case SX_PRODUCT: return sx_term_op(g, SX_LOP_MUL, 0, x, y, 0);
    case SX_MAX: /* the accumulator where equal */
        return real ? sx_term_op(g, (sx_lop)SX_LOP_NMAX, 0, y, x, 0)
                    : sx_term_op(g, (sx_lop)SX_LOP_IMAX, 0, x, y, 0);
    case SX_MIN:
        return real ? sx_term_op(g, (sx_lop)SX_LOP_NMIN, 0, y, x, 0)
                    : sx_term_op(g, (sx_lop)SX_LOP_IMIN, 0, x, y, 0);
    case SX_REDUCER_COUNT:
    default: return sx_refuse(g, "a reducer without a meaning");
    }
}

static uint32_t identity(sx_reference *r, const sx_instr *in)
{
    bool real = in->dtype == SX_F32;
    float f = in->reducer == SX_PRODUCT ? 1 : 0;
    int32_t i = 0;
    uint32_t bits;
    if (in->reducer == SX_MAX || in->reducer == SX_MIN) {
        f = in->reducer == SX_MAX ? -INFINITY : INFINITY;
        i = in->reducer == SX_MAX ? INT32_MIN : INT32_MAX;
    }
    memcpy(&bits, &f, sizeof(bits));
    return sx_term_constant(r->g, real ? bits : (uint32_t)i);
}

/* The value along a row at chunk `first` + 4 w (w a loop variable, or `whole` chunks behind: one tail), lane
 * by lane. */
static uint32_t chunk_value(sx_reference *r, const sx_instr *in, uint32_t inner, bool loops,
                            int64_t chunk)
{
    sx_algebra *g = r->g;
    sx_lin lin = {.constant = chunk * LANES, .vars = 0};
    if (loops) {
        sx_lin_add(g, &lin, loop_var(inner), (int64_t)LANES * ACCUMULATORS);
    }
    sx_lin_add(g, &lin, SX_VAR_LANE, 1);
    r->position[inner] = sx_form_put(g, &lin);
    r->step = ++r->epoch;
    return sx_reference_value(r, in->x);
}

/* Accumulator `c` of the lanes that have an element in the tail chunk (`in_tail`), or of the others. */
static uint32_t accumulator(sx_reference *r, const sx_instr *in, uint32_t inner, uint32_t outer,
                            uint32_t c, bool in_tail)
{
    sx_algebra *g = r->g;
    int64_t length = r->space.extent[inner];
    int64_t whole = length / LANES;
    int64_t count = whole / ACCUMULATORS + (c < whole % ACCUMULATORS);
    uint32_t hole = sx_reference_hole(r);
    uint32_t next = hole;
    if (count > 0) {
        next = combine(r, in, hole, chunk_value(r, in, inner, true, c));
        next = sx_term_close(g, hole, hole, next, loop_var(inner), count);
    }
    if (length % LANES != 0 && whole % ACCUMULATORS == c) {
        uint32_t value = in_tail ? chunk_value(r, in, inner, false, whole) : identity(r, in);
        next = combine(r, in, next, value);
    }
    return sx_reference_loops(r, identity(r, in), hole, next, outer);
}

static uint32_t at_lane(sx_algebra *g, uint32_t term, uint32_t lane)
{
    sx_subst s;
    sx_subst_begin(g, &s);
    sx_subst_var(&s, SX_VAR_LANE, sx_form_constant(g, lane));
    return sx_term_subst(g, term, &s);
}

static uint32_t reduce_along(sx_reference *r, const sx_instr *in)
{
    sx_algebra *g = r->g;
    uint32_t inner = 31u - (uint32_t)__builtin_clz(r->reduced);
    uint32_t outer = r->reduced & ~(1u << inner);
    int64_t tail = r->space.extent[inner] % LANES;
    uint32_t lane[LANES];
    uint32_t both[2]; /* lanes with an element in the tail, and those without */
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t acc[ACCUMULATORS];
        for (uint32_t c = 0; c < ACCUMULATORS; c++) {
            acc[c] = accumulator(r, in, inner, outer, c, k == 0);
        }
        both[k] = combine(r, in, combine(r, in, acc[0], acc[1]), combine(r, in, acc[2], acc[3]));
        if (tail == 0) {
            both[1] = both[0];
            break;
        }
    }
    for (uint32_t i = 0; i < LANES; i++) {
        lane[i] = at_lane(g, both[i >= tail && tail != 0], i);
    }
    for (uint32_t n = LANES / 2; n > 0; n /= 2) {
        for (uint32_t i = 0; i < n; i++) {
            lane[i] = combine(r, in, lane[i], lane[i + n]);
        }
    }
    return lane[0];
}

uint32_t sx_reference_reduce(sx_reference *r, const sx_instr *in)
{
    sx_algebra *g = r->g;
    uint32_t saved[SX_RANK_MAX];
    uint32_t step = r->step;
    uint32_t value;
    bool known = in->dtype == SX_F32 || (in->dtype == SX_I32 && in->reducer != SX_PRODUCT);
    if (g->wide || !known) {
        return sx_refuse(g, "a reduction of %s", sx_dtype_name(in->dtype));
    }
    enter(r, r->reduced, saved);
    if (r->space.along && r->reduced != 0) {
        value = reduce_along(r, in);
    } else {
        uint32_t hole = sx_reference_hole(r);
        uint32_t next = combine(r, in, hole, sx_reference_value(r, in->x));
        value = sx_reference_loops(r, identity(r, in), hole, next, r->reduced);
    }
    leave(r, saved, step);
    return value;
}
