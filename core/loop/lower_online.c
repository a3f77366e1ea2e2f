/* lower_online.c - sums weighted by a softmax of scores that are made on the way: attention in one kernel.
 *
 * Rows (queries) lie across the lanes (lower_keys.h), so the running maximum and sum of a row stay in its lane. For a
 * block of keys
 *   1  scores    keys x rows in registers over all of the inner dimensions: key elements broadcast,
 *                rows from a transposed copy
 *   2  program   what stands between the contraction and ONLINE (scale, mask ...), and the new maximum
 *   3  weights   e^(score - maximum) in place; the sum, rescaled by e^(old - new maximum)
 *   4  values    columns x rows of the result, rescaled, plus weights times value elements, which are broadcast
 * and at the end each row leaves with lanes along the columns, through the rest of the program. Keys are cut in the
 * blocks of the outer loop(k/..): part of the numerics plan. The maximum starts at the lowest finite number,
 * so that rows whose first keys are all masked by -inf have weights 0 there; rows masked whole give NaN as the
 * definition does (sum 0).
 * Papers: Milakov, Gimelshein 2018; Dao 2022 (FlashAttention). */
#include "core/loop/lower_keys.h"

#include <float.h>
#include <math.h>

typedef struct {
    sx_keys keys;             /* first: what the shared part hands over is one */
    int64_t max_at, total_at; /* tables of the running maximum and sum of each row */
} online;

static void begin(sx_lower *l, sx_keys *o)
{
    const online *s = l->self;
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr max = sx_keys_at(l, o, s->max_at, NULL, v);
        sx_addr total = sx_keys_at(l, o, s->total_at, NULL, v);
        sx_keys_store(l, &max, sx_loop_set(&l->b, -FLT_MAX));
        sx_keys_store(l, &total, sx_loop_set(&l->b, 0.0f));
    }
}

/* ---- 2: the program of the scores, and their maximum in o->acc ---- */
static void finish_scores(sx_lower *l, sx_keys *o, int64_t keys)
{
    SX_ASSERT(keys == 1);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = sx_keys_at(l, o, o->weight_at, &o->local, v);
        sx_keys_to_vector(l, o, v);
        sx_lower_move(l);
        sx_keys_give(l, o, v);
        bool made = o->product_count > 0 && o->x == o->product[0].dot;
        uint32_t score = sx_lower_value(l, o->x);
        if (!made) {
            sx_keys_store(l, &a, score);
        }
        sx_keys_into(l, SX_LOP_MAX, o->acc[v], score, o->acc[v],
                     SX_NO_REG); /* of a NaN the weight is NaN, and so all sums */
        sx_keys_from_vector(l, o, v);
    }
    sx_lower_move(l);
}

/* ---- 3: weights in place, their sums in o->acc[vectors ..] ---- */
static void weigh(sx_lower *l, sx_keys *o, int64_t keys)
{
    SX_ASSERT(keys == 1);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = sx_keys_at(l, o, o->weight_at, &o->local, v);
        uint32_t weight = sx_keys_op(l, SX_LOP_SUB, sx_keys_load(l, &a), o->acc[v], SX_NO_REG);
        weight = sx_loop_apply(&l->b, SX_OP_EXP, SX_EQ, weight, SX_NO_REG, SX_NO_REG);
        sx_keys_store(l, &a, weight);
        uint32_t sum = o->acc[o->vectors + v];
        sx_keys_into(l, SX_LOP_ADD, sum, sum, weight, SX_NO_REG);
    }
}

static void weigh_block(sx_lower *l, sx_keys *o, int64_t length)
{
    const online *s = l->self;
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = sx_keys_at(l, o, s->max_at, NULL, v);
        o->acc[v] = sx_keys_load(l, &a);
    }
    sx_keys_each(l, o, length, 1, finish_scores);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr max = sx_keys_at(l, o, s->max_at, NULL, v);
        sx_addr total = sx_keys_at(l, o, s->total_at, NULL, v);
        sx_addr rescale = sx_keys_at(l, o, o->rescale_at, NULL, v);
        uint32_t factor = sx_keys_op(l, SX_LOP_SUB, sx_keys_load(l, &max), o->acc[v], SX_NO_REG);
        factor = sx_loop_apply(&l->b, SX_OP_EXP, SX_EQ, factor, SX_NO_REG, SX_NO_REG);
        sx_keys_store(l, &max, o->acc[v]);
        sx_keys_store(l, &rescale, factor);
        o->acc[o->vectors + v] =
            sx_keys_op(l, SX_LOP_MUL, sx_keys_load(l, &total), factor, SX_NO_REG);
    }
    sx_keys_each(l, o, length, 1, weigh);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr total = sx_keys_at(l, o, s->total_at, NULL, v);
        sx_keys_store(l, &total, o->acc[o->vectors + v]);
    }
}

/* ---- the end ---- */
static void give_reductions(sx_lower *l, const sx_keys *o, const sx_affine *line, uint32_t v)
{
    const online *s = l->self;
    uint32_t none = SX_NO_REG;
    sx_affine column = sx_keys_column(l, o);
    uint32_t total = sx_keys_held(l, o, s->total_at, line, v, NULL);
    uint32_t one = sx_keys_op(l, SX_LOP_DIV, total, total, none); /* NaN for rows masked whole */
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        if (in->kind != SX_BODY_ONLINE && in->kind != SX_BODY_REDUCE) {
            continue;
        }
        const sx_instr *y = &l->body->instr[in->y];
        if (in->kind == SX_BODY_REDUCE) {
            uint32_t max = sx_keys_held(l, o, s->max_at, line, v, NULL);
            uint32_t zero = sx_loop_set(&l->b, 0.0f);
            uint32_t empty = sx_loop_op(&l->b, SX_LOP_CMP, none, NULL, total, zero, none, SX_EQ, 0);
            l->reg[i] = sx_keys_op(l, SX_LOP_BLEND, empty, sx_loop_set(&l->b, -HUGE_VALF), max);
        } else if (y->kind == SX_BODY_IMM) {
            uint32_t weight = sx_loop_set(&l->b, (float)y->imm);
            uint32_t factor = sx_keys_op(l, SX_LOP_MUL, one, weight, none);
            l->reg[i] = sx_keys_op(l, SX_LOP_MUL, total, factor, none);
        } else {
            uint32_t value = sx_keys_held(l, o, o->result_at, line, v, &column);
            l->reg[i] = sx_keys_op(l, SX_LOP_MUL, value, one, none);
        }
        l->have[i] = true;
    }
}

/* ---- what the analysis says ---- */
static sx_code take_roles(sx_lower *l, sx_keys *o)
{
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        bool sums = in->kind == SX_BODY_ONLINE || in->kind == SX_BODY_DOT;
        if (sums && in->dtype != SX_F32) {
            return SX_FAIL(l->cx, SX_UNIMPLEMENTED,
                           "kernel %s: online sum of %s has no vector form", l->kernel->name,
                           sx_dtype_name(in->dtype));
        }
    }
    *o = (sx_keys){.begin = begin, .weigh = weigh_block, .give = give_reductions};
    sx_keys_take_roles(l, o);
    return SX_OK;
}

sx_code sx_lower_online(sx_lower *l)
{
    online s = {.max_at = 0};
    sx_keys *o = &s.keys;
    SX_TRY(take_roles(l, o));
    SX_TRY(sx_keys_take_schedule(l, o));
    SX_TRY(sx_keys_place_tables(l, o));
    SX_TRY(sx_keys_place(l, o, 1, &s.max_at));
    SX_TRY(sx_keys_place(l, o, 1, &s.total_at));
    SX_TRY(sx_keys_place(l, o, 1, &o->rescale_at));
    SX_TRY(sx_keys_end_tables(l, o));
    const int64_t *of = l->analysis->extent;
    int64_t keys = o->keys == SX_NO_DIM ? 1 : l->view.extent[o->keys];
    int64_t extent[3] = {sx_min_i64(o->block, keys), of[SX_ROLE_SUM], of[SX_ROLE_INNER]};
    l->kernel->numerics = sx_lower_numerics(l, SX_KERNEL_ONLINE, extent, SX_COUNT(extent));
    return sx_keys_emit(l, o);
}
