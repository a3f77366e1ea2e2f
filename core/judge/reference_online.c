/* reference_online.c - online sums as terms, in the order of their numerics plan (core/loop/README.md): keys
 * in blocks of facts.keys; the running maximum m from the lowest finite number, the sum l and the weighted
 * values a from 0. A block of keys gives
 *
 *   m' = maximum of m and its scores, one chain      weight of a key = e^(score - m')
 *   l' = l e^(m - m') and its weights, one chain
 *   a' = a e^(m - m') and weight times value, one chain of multiply-adds
 *
 * (where facts.rounds, with weights that are rounded to the type of the values)
 *
 * and at the end sums are divided by the way of l / l, which is not a number for rows that are masked whole. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/judge/reference.h"
#include "core/judge/walk.h"

static uint32_t bits_of(sx_algebra *g, float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return sx_term_constant(g, bits);
}

static uint32_t two(sx_reference *r, sx_lop op, uint32_t x, uint32_t y)
{
    return sx_term_op(r->g, op, 0, x, y, 0);
}

static uint32_t power(sx_reference *r, uint32_t x)
{
    static const sx_instr exp = {.kind = SX_BODY_APPLY, .op = SX_OP_EXP, .dtype = SX_F32};
    const uint32_t operand[3] = {x, 0, 0};
    return sx_reference_apply(r, &exp, operand);
}

/* The dimension of the keys; SX_RANK_MAX: there is one key. */
static uint32_t keys_of(sx_reference *r)
{
    uint32_t keys = SX_RANK_MAX;
    for (uint32_t d = 0; d < r->space.rank; d++) {
        if (r->space.reduced[d] && !r->space.inner[d]) {
            if (keys != SX_RANK_MAX) {
                (void)sx_refuse(r->g, "an online sum over two dimensions");
            }
            keys = d;
        }
    }
    return keys;
}

/* The weight as it is summed: where the plan says so, a number of the type of the values. Where there are none, only
 * sums of weights, that is the type of what scores are made of. */
static uint32_t summed(sx_reference *r, uint32_t weight, uint32_t value)
{
    uint32_t typed = value;
    for (uint32_t i = 0; i < r->body->instr_count && typed == UINT32_MAX; i++) {
        const sx_instr *in = &r->body->instr[i];
        typed = in->kind == SX_BODY_DOT && r->facts.statistic ? in->x : typed;
    }
    if (!r->facts.rounds || typed == UINT32_MAX) {
        return weight;
    }
    const uint32_t operand[3] = {weight, 0, 0};
    sx_loop_step step = {.op = SX_OP_CONVERT, .from = SX_F32, .to = r->body->instr[typed].dtype};
    return sx_reference_typed(r, &step, operand);
}

/* One block of `count` keys; the first is number `start` (form). `value`: instruction that is weighted, or
 * UINT32_MAX. */
static void add_block(sx_reference *r, sx_online_state *s, uint32_t scores, uint32_t value,
                      uint32_t keys, uint32_t start, int64_t count)
{
    sx_algebra *g = r->g;
    uint32_t var = keys == SX_RANK_MAX ? SX_LOOP_VARS_MAX - 2 : 3 + keys;
    if (keys != SX_RANK_MAX) {
        sx_lin lin;
        sx_lin_get(g, start, &lin);
        if (count > 1) { /* one key has a number, by which positions are compared at once */
            sx_lin_add(g, &lin, var, 1);
        }
        r->position[keys] = sx_form_put(g, &lin);
    }
    r->step = ++r->epoch;
    uint32_t score = sx_reference_value(r, scores);
    uint32_t hole = sx_reference_hole(r);
    uint32_t max = sx_term_close(g, s->max, hole, two(r, SX_LOP_MAX, score, hole), var, count);
    uint32_t factor = power(r, two(r, SX_LOP_SUB, s->max, max));
    uint32_t weight = summed(r, power(r, two(r, SX_LOP_SUB, score, max)), value);
    hole = sx_reference_hole(r);
    uint32_t sum = two(r, SX_LOP_ADD, hole, weight);
    s->sum = sx_term_close(g, two(r, SX_LOP_MUL, s->sum, factor), hole, sum, var, count);
    if (value != UINT32_MAX) {
        uint32_t element = sx_reference_value(r, value);
        hole = sx_reference_hole(r);
        s->value = sx_term_close(g, two(r, SX_LOP_MUL, s->value, factor), hole,
                                 sx_term_op(g, SX_LOP_FMA, 0, element, weight, hole), var, count);
    }
    s->max = max;
}

/* Whole blocks of keys: the three carry each other from block to block. */
#define BLOCK_VAR (SX_LOOP_VARS_MAX - 3u)
#define TABLES 1000000u
typedef struct {
    sx_algebra *g;
    uint32_t first[3], step[3];
} block_steps;

static bool define_block(void *self, uint32_t state, uint32_t *first, uint32_t *step)
{
    const block_steps *b = self;
    uint32_t table = b->g->term[state].imm;
    if (table < TABLES || table >= TABLES + 3) {
        return false;
    }
    *first = b->first[table - TABLES];
    *step = b->step[table - TABLES];
    return true;
}

static void add_blocks(sx_reference *r, sx_online_state *s, uint32_t scores, uint32_t value,
                       uint32_t keys, int64_t block, int64_t blocks)
{
    sx_algebra *g = r->g;
    block_steps b = {.g = g, .first = {s->max, s->sum, s->value}};
    uint32_t state[3];
    for (uint32_t k = 0; k < 3; k++) {
        state[k] = sx_term_state(g, TABLES + k, 0);
    }
    s->max = state[0];
    s->sum = state[1];
    s->value = state[2];
    add_block(r, s, scores, value, keys, sx_form_var(g, BLOCK_VAR, block, 0), block);
    b.step[0] = s->max;
    b.step[1] = s->sum;
    b.step[2] = s->value;
    uint32_t made[3];
    for (uint32_t k = 0; k < 3; k++) {
        made[k] = sx_term_recur(g, state[k], define_block, &b, BLOCK_VAR, blocks);
        if (made[k] == 0) {
            (void)sx_refuse(g, "blocks of keys that are no recurrence");
        }
    }
    s->max = made[0];
    s->sum = made[1];
    s->value = made[2];
}

/* The reductions at the position, made once for a point: all ONLINE stand over the same scores. */
static void find_state(sx_reference *r)
{
    sx_algebra *g = r->g;
    sx_online_state *s = &r->online;
    uint32_t saved[SX_RANK_MAX];
    uint32_t step = r->step;
    uint32_t scores = UINT32_MAX;
    uint32_t value = UINT32_MAX;
    for (uint32_t i = 0; i < r->body->instr_count; i++) {
        const sx_instr *in = &r->body->instr[i];
        if (in->kind == SX_BODY_ONLINE) {
            scores = in->x;
            value = r->body->instr[in->y].kind == SX_BODY_ARG ? in->y : value;
        }
    }
    s->max = bits_of(g, -FLT_MAX);
    s->sum = s->value = bits_of(g, 0);
    s->point = r->point;
    uint32_t keys = keys_of(r);
    int64_t extent = keys == SX_RANK_MAX ? 1 : r->space.extent[keys];
    int64_t block = sx_min_i64(r->facts.keys, extent);
    if (block < 1) {
        (void)sx_refuse(g, "%lld keys in blocks of %lld", (long long)extent, (long long)block);
        return;
    }
    memcpy(saved, r->position, sizeof(saved));
    int64_t blocks = extent / block;
    if (blocks == 1) {
        add_block(r, s, scores, value, keys, 0, block);
    } else {
        add_blocks(r, s, scores, value, keys, block, blocks);
    }
    if (extent % block != 0) {
        add_block(r, s, scores, value, keys, sx_form_constant(g, blocks * block), extent % block);
    }
    memcpy(r->position, saved, sizeof(saved));
    r->step = step;
}

uint32_t sx_reference_online(sx_reference *r, const sx_instr *in)
{
    sx_algebra *g = r->g;
    if (r->g->wide || in->dtype != SX_F32 || r->body->instr[in->x].dtype != SX_F32) {
        return sx_refuse(g, "an online sum of %s", sx_dtype_name(in->dtype));
    }
    if (r->online.point != r->point) {
        find_state(r);
    }
    const sx_online_state *s = &r->online;
    if (in->kind == SX_BODY_REDUCE) {
        uint32_t empty = sx_term_op(g, SX_LOP_CMP, SX_EQ, s->sum, sx_term_constant(g, 0), 0);
        return sx_term_op(g, SX_LOP_BLEND, 0, empty, bits_of(g, -INFINITY), s->max);
    }
    uint32_t one = two(r, SX_LOP_DIV, s->sum, s->sum);
    const sx_instr *y = &r->body->instr[in->y];
    if (y->kind == SX_BODY_IMM) {
        return two(r, SX_LOP_MUL, s->sum, two(r, SX_LOP_MUL, one, bits_of(g, (float)y->imm)));
    }
    return two(r, SX_LOP_MUL, s->value, one);
}
