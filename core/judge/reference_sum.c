/* reference_sum.c - contractions and reductions as terms, in the order of the numerics plans (core/loop/README.md):
 *
 *   contraction   one chain of multiply-adds from +0 over ascending row-major steps of the reduced dimensions
 *   row across    one chain from the identity in the same order
 *   row along     the last dimension is reduced: 16 lanes (of 8 bytes: 8) x 4 accumulators, chunk c of as many
 *                 elements of the innermost axis to accumulator c mod 4, the tail filled with the identity;
 *                 (a0 + a1) + (a2 + a3); lanes folded by halves
 *
 * Rows of more than 4096 elements along one axis are cut in pieces, at most 32 and the largest power of two of which
 * each has 1024 elements, in whole steps of 4 accumulators; each piece, and the rest, by itself, then added in
 * ascending order to the identity. */
#include <math.h>
#include <string.h>

#include "core/ir/num.h"
#include "core/judge/reference.h"

#define LANES_MAX 16u /* of 4 bytes; of 8 bytes half as many */
#define ACCUMULATORS 4u
#define CUT_FROM 4097
#define PIECE_LEAST 1024
#define PIECES_MAX 32
#define PIECE_VAR (SX_LOOP_VARS_MAX - 2) /* the number of the piece */
_Static_assert(3 + SX_RANK_MAX <= PIECE_VAR, "dimensions have variables of their own");

/* What is summed up for itself: `length` elements along the innermost axis from `first` on, or from there `step` times
 * the number of the piece. */
typedef struct {
    uint32_t inner, outer; /* the axis, and the set of the other reduced ones */
    int64_t first, length, step;
} section;

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

/* The low 32 bits of both decide the low 32 of the product; of i64 all count. */
static uint32_t product_of(sx_reference *r, sx_dtype dtype, uint32_t x, uint32_t y)
{
    sx_loop_step step = {.op = SX_OP_MULTIPLY, .from = dtype, .to = dtype};
    return dtype == SX_I64 ? sx_reference_typed(r, &step, (const uint32_t[]){x, y, 0})
                           : sx_term_op(r->g, SX_LOP_IMUL, 0, x, y, 0);
}

uint32_t sx_reference_closed(sx_reference *r, sx_dtype dtype, uint32_t sum)
{
    if (dtype == SX_BOOL) {
        return sx_reference_decode(r, dtype, sum);
    }
    sx_loop_step step = sx_loop_close_step(dtype, r->g->wide ? 8 : 4);
    return sx_reference_typed(r, &step, (const uint32_t[]){sum, 0, 0});
}

/* What blocks make of the left factor of an outer contraction, which is computed: it is rounded to the type of the
 * right one. */
static uint32_t rounded(sx_reference *r, const sx_instr *in, uint32_t x)
{
    const sx_instr *left = &r->body->instr[in->x], *right = &r->body->instr[in->y];
    if (!r->facts.rounds || left->kind == SX_BODY_ARG || left->dtype == right->dtype) {
        return x;
    }
    sx_loop_step step = {.op = SX_OP_CONVERT, .from = SX_F32, .to = right->dtype};
    return sx_reference_typed(r, &step, (const uint32_t[]){x, 0, 0});
}

uint32_t sx_reference_dot(sx_reference *r, const sx_instr *in)
{
    sx_algebra *g = r->g;
    uint32_t saved[SX_RANK_MAX];
    uint32_t step = r->step;
    uint32_t dims = sx_reference_summed(r, in);
    uint32_t hole = sx_reference_hole(r);
    enter(r, dims, saved);
    uint32_t x = rounded(r, in, sx_reference_value(r, in->x));
    uint32_t y = sx_reference_value(r, in->y);
    uint32_t next;
    if (sx_dtype_class_of(in->dtype) == SX_CLASS_FLOAT) {
        next = sx_term_op(g, SX_LOP_FMA, 0, x, y, hole);
    } else {
        next = sx_term_op(g, SX_LOP_IADD, 0, hole, product_of(r, in->dtype, x, y), 0);
    }
    uint32_t sum = sx_reference_loops(r, sx_term_constant(g, 0), hole, next, dims);
    leave(r, saved, step);
    return sx_reference_closed(r, in->dtype, sum);
}

uint32_t sx_reference_combine(sx_reference *r, sx_reducer reducer, sx_dtype dtype, uint32_t x,
                              uint32_t y)
{
    sx_algebra *g = r->g;
    bool real = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
    bool truth = dtype == SX_BOOL; /* 0 and 1: the greater is or, the lesser and */
    switch (reducer) {
    case SX_SUM:
        return sx_term_op(g,
                          real    ? SX_LOP_ADD
                          : truth ? (sx_lop)SX_LOP_IMAX
                                  : SX_LOP_IADD,
                          0, x, y, 0);
    case SX_PRODUCT:
        return real || truth ? sx_term_op(g, real ? SX_LOP_MUL : (sx_lop)SX_LOP_IMIN, 0, x, y, 0)
                             : product_of(r, dtype, x, y);
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

static uint32_t combine(sx_reference *r, const sx_instr *in, uint32_t x, uint32_t y)
{
    return sx_reference_combine(r, in->reducer, in->dtype, x, y);
}

static uint32_t identity(sx_reference *r, const sx_instr *in)
{
    sx_dtype_class of = sx_dtype_class_of(in->dtype);
    bool max = in->reducer == SX_MAX;
    bool order = max || in->reducer == SX_MIN;
    double f = order ? (max ? -HUGE_VAL : HUGE_VAL) : in->reducer == SX_PRODUCT;
    int64_t i = in->reducer == SX_PRODUCT;
    if (order && of == SX_CLASS_INT) {
        i = max ? sx_num_int_min(in->dtype) : sx_num_int_max(in->dtype);
    }
    bool wide = r->g->wide;
    return sx_term_constant(r->g, of == SX_CLASS_FLOAT
                                      ? sx_num_encode(wide ? SX_F64 : SX_F32, f)
                                      : sx_num_int_encode(wide ? SX_I64 : SX_I32, i));
}

/* What is accumulated at the position: of a bool 0 or 1. */
static uint32_t operand_of(sx_reference *r, const sx_instr *in)
{
    uint32_t value = sx_reference_value(r, in->x);
    return in->dtype == SX_BOOL ? sx_reference_encode(r, SX_BOOL, value) : value;
}

/* Lanes of the virtual shape. */
static uint32_t lanes_of(const sx_reference *r)
{
    return r->g->wide ? LANES_MAX / 2 : LANES_MAX;
}

/* The value along a row at chunk `first` + 4 w (w a loop variable, or `whole` chunks behind: one tail), lane
 * by lane. */
static uint32_t chunk_value(sx_reference *r, const sx_instr *in, const section *of, bool loops,
                            int64_t chunk)
{
    sx_algebra *g = r->g;
    uint32_t lanes = lanes_of(r);
    sx_lin lin;
    sx_lin_init(&lin, of->first + chunk * lanes);
    if (loops) {
        sx_lin_add(g, &lin, loop_var(of->inner), (int64_t)lanes * ACCUMULATORS);
    }
    if (of->step != 0) {
        sx_lin_add(g, &lin, PIECE_VAR, of->step);
    }
    sx_lin_add(g, &lin, SX_VAR_LANE, 1);
    r->position[of->inner] = sx_form_put(g, &lin);
    r->step = ++r->epoch;
    return operand_of(r, in);
}

/* Accumulator `c` of the lanes that have an element in the tail chunk (`in_tail`), or of the others. */
static uint32_t accumulator(sx_reference *r, const sx_instr *in, const section *of, uint32_t c,
                            bool in_tail)
{
    sx_algebra *g = r->g;
    int64_t length = of->length;
    int64_t whole = length / lanes_of(r);
    int64_t count = whole / ACCUMULATORS;
    uint32_t hole = sx_reference_hole(r);
    uint32_t next = hole;
    if (count > 0) {
        next = combine(r, in, hole, chunk_value(r, in, of, true, c));
        next = sx_term_close(g, hole, hole, next, loop_var(of->inner), count);
    }
    /* One step more: it joins the loop, but for products of i64, whose step is several operations. */
    if (c < whole % ACCUMULATORS) {
        next = combine(r, in, next, chunk_value(r, in, of, false, count * ACCUMULATORS + c));
    }
    if (length % lanes_of(r) != 0 && whole % ACCUMULATORS == c) {
        uint32_t value = in_tail ? chunk_value(r, in, of, false, whole) : identity(r, in);
        next = combine(r, in, next, value);
    }
    return sx_reference_loops(r, identity(r, in), hole, next, of->outer);
}

/* One chain over a section of a row across. */
static uint32_t chain_of(sx_reference *r, const sx_instr *in, const section *of)
{
    sx_algebra *g = r->g;
    sx_lin lin;
    sx_lin_init(&lin, of->first);
    sx_lin_add(g, &lin, loop_var(of->inner), 1);
    if (of->step != 0) {
        sx_lin_add(g, &lin, PIECE_VAR, of->step);
    }
    r->position[of->inner] = sx_form_put(g, &lin);
    r->step = ++r->epoch;
    uint32_t hole = sx_reference_hole(r);
    uint32_t next = combine(r, in, hole, operand_of(r, in));
    next = sx_term_close(g, hole, hole, next, loop_var(of->inner), of->length);
    return sx_reference_loops(r, identity(r, in), hole, next, of->outer);
}

/* All of a section. */
static uint32_t sum_of(sx_reference *r, const sx_instr *in, const section *of)
{
    if (!r->space.along) {
        return chain_of(r, in, of);
    }
    sx_algebra *g = r->g;
    uint32_t lanes = lanes_of(r);
    int64_t tail = of->length % lanes;
    uint32_t lane[LANES_MAX];
    uint32_t both[2]; /* lanes with an element in the tail, and those without */
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t acc[ACCUMULATORS];
        for (uint32_t c = 0; c < ACCUMULATORS; c++) {
            acc[c] = accumulator(r, in, of, c, k == 0);
        }
        uint32_t high = combine(r, in, acc[2], acc[3]);
        both[k] = combine(r, in, combine(r, in, acc[0], acc[1]), high);
        if (tail == 0) {
            both[1] = both[0];
            break;
        }
    }
    for (uint32_t i = 0; i < lanes; i++) {
        lane[i] = sx_term_fix(g, both[i >= tail && tail != 0], SX_VAR_LANE, i);
    }
    for (uint32_t n = lanes / 2; n > 0; n /= 2) {
        for (uint32_t i = 0; i < n; i++) {
            lane[i] = combine(r, in, lane[i], lane[i + n]);
        }
    }
    return lane[0];
}

static uint32_t reduce_row(sx_reference *r, const sx_instr *in)
{
    sx_algebra *g = r->g;
    uint32_t inner = 31u - (uint32_t)__builtin_clz(r->reduced);
    int64_t length = r->space.extent[inner], count = PIECES_MAX;
    section whole = {.inner = inner, .outer = r->reduced & ~(1u << inner), .length = length};
    if (whole.outer != 0 || length < CUT_FROM) {
        return sum_of(r, in, &whole);
    }
    while (length / count < PIECE_LEAST) {
        count /= 2;
    }
    section piece = whole, rest = whole;
    int64_t steps = length / count / (lanes_of(r) * ACCUMULATORS);
    piece.length = piece.step = steps * lanes_of(r) * ACCUMULATORS;
    rest.first = count * piece.length;
    rest.length = length - rest.first;
    uint32_t hole = sx_reference_hole(r);
    uint32_t next = combine(r, in, hole, sum_of(r, in, &piece));
    next = sx_term_close(g, hole, hole, next, PIECE_VAR, count);
    if (rest.length > 0) {
        next = combine(r, in, next, sum_of(r, in, &rest));
    }
    return sx_term_close(g, identity(r, in), hole, next, SX_LOOP_VARS_MAX - 1, 1);
}

uint32_t sx_reference_reduce(sx_reference *r, const sx_instr *in)
{
    uint32_t saved[SX_RANK_MAX];
    uint32_t step = r->step;
    uint32_t value;
    enter(r, r->reduced, saved);
    if (r->reduced != 0) {
        value = reduce_row(r, in);
    } else { /* of one element */
        uint32_t hole = sx_reference_hole(r);
        uint32_t next = combine(r, in, hole, operand_of(r, in));
        value = sx_reference_loops(r, identity(r, in), hole, next, 0);
    }
    leave(r, saved, step);
    return sx_reference_closed(r, in->dtype, value);
}
