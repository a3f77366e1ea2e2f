/* lower_nested.c - contractions whose left factor is a program of contractions, made on the way: the gradients of
 * attention from recomputed scores, which are never in memory.
 *
 * Rows lie across the lanes (lower_keys.h). For a block of keys
 *   1  products  one or two tables keys x rows, each over all of the inner dimensions
 *   2  program   what stands between the contractions (power, mask, difference ...), in place of the first table
 *   3  values    columns x rows of the result, plus the program's values times value elements, which are broadcast
 * What else is summed over (the heads of a group) is a loop around the blocks. Each sum is one chain in ascending order
 * whatever the blocks, which only group work: they are no part of the numerics plan.
 * Papers: Dao 2022 (FlashAttention), section B: the backward pass. */
#include "core/loop/lower_keys.h"

/* ---- 2: the program ---- */
static void finish(sx_lower *l, sx_keys *o, int64_t keys)
{
    SX_ASSERT(keys == 1);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_keys_to_vector(l, o, v);
        sx_lower_move(l);
        sx_keys_give(l, o, v);
        sx_addr a = sx_keys_at(l, o, o->weight_at, &o->local, v);
        sx_keys_store(l, &a, sx_lower_value(l, o->x));
        sx_keys_from_vector(l, o, v);
    }
    sx_lower_move(l);
}

static void finish_block(sx_lower *l, sx_keys *o, int64_t length)
{
    if (o->x != o->product[0].dot || l->body->instr[o->x].dtype != SX_F32) {
        sx_keys_each(l, o, length, 1, finish);
    }
}

/* ---- the end ---- */
static void give_sum(sx_lower *l, const sx_keys *o, const sx_affine *line, uint32_t v)
{
    uint32_t outer = l->analysis->outer;
    sx_affine column = sx_keys_column(l, o);
    uint32_t sum = sx_keys_held(l, o, o->result_at, line, v, &column);
    l->reg[outer] = sx_lower_rounded(l, l->body->instr[outer].dtype, sum);
    l->have[outer] = true;
}

sx_code sx_lower_nested(sx_lower *l)
{
    sx_keys keys = {.weigh = finish_block, .give = give_sum};
    sx_keys *o = &keys;
    sx_keys_take_roles(l, o);
    SX_TRY(sx_keys_take_schedule(l, o));
    SX_TRY(sx_keys_place_tables(l, o));
    SX_TRY(sx_keys_end_tables(l, o));
    const int64_t *of = l->analysis->extent;
    int64_t extent[2] = {of[SX_ROLE_SUM], of[SX_ROLE_INNER]};
    l->kernel->numerics = sx_lower_numerics(l, SX_KERNEL_NESTED, extent, SX_COUNT(extent));
    return sx_keys_emit(l, o);
}
