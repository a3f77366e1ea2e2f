/* rules_mesh.c - collectives. What is differentiated is the sum over all ranks of the output, so a cotangent goes to
 * the ranks whose values it came from: each rule is the collective the other way round. */
#include "core/grad/sweep.h"

/* Of the same ranks; a sum, where it combines. */
static sx_node_id collective(sx_sweep *s, const sx_site *at, sx_op op, sx_node_id x)
{
    sx_attr attr = {.present = sx_op_info_of(op)->attrs,
                    .along = at->attr.along,
                    .ranks = at->attr.ranks,
                    .axis = at->attr.axis,
                    .reducer = SX_SUM};
    return sx_step(s, op, &attr, &x, 1);
}

/* A maximum or minimum over the ranks: those that equal the result share its cotangent. `best` and `g`: result and
 * cotangent, of the shape of the operand, on every rank. */
static void give_extreme(sx_sweep *s, const sx_site *at, sx_node_id best, sx_node_id g)
{
    sx_type type = sx_step_type(s, at->x[0]);
    sx_node_id equal = sx_step_compare(s, SX_EQ, at->x[0], best);
    sx_node_id one = sx_step_keep(s, equal, true, sx_step_constant(s, &type, 1));
    sx_node_id count = collective(s, at, SX_OP_ALL_REDUCE, one);
    sx_node_id share = sx_step_binary(s, SX_OP_DIVIDE, g, count);
    sx_give(s, at, 0, sx_step_keep(s, equal, true, share));
}

static void refuse_product(sx_sweep *s, const sx_site *at)
{
    if (s->code == SX_OK) {
        s->code = SX_FAIL(s->cx, SX_UNIMPLEMENTED, "gradient of %s by multiply",
                          sx_op_info_of(at->op)->name);
    }
}

void sx_grad_all_reduce(sx_sweep *s, const sx_site *at)
{
    if (at->attr.reducer == SX_PRODUCT) {
        refuse_product(s, at);
        return;
    }
    sx_node_id g = collective(s, at, SX_OP_ALL_REDUCE, at->g); /* every rank has the result */
    if (at->attr.reducer == SX_SUM) {
        sx_give(s, at, 0, g);
    } else {
        give_extreme(s, at, at->y, g);
    }
}

void sx_grad_reduce_scatter(sx_sweep *s, const sx_site *at)
{
    if (at->attr.reducer == SX_PRODUCT) {
        refuse_product(s, at);
        return;
    }
    sx_node_id g = collective(s, at, SX_OP_ALL_GATHER, at->g);
    if (at->attr.reducer == SX_SUM) {
        sx_give(s, at, 0, g);
    } else {
        give_extreme(s, at, collective(s, at, SX_OP_ALL_GATHER, at->y), g);
    }
}

void sx_grad_all_gather(sx_sweep *s, const sx_site *at)
{
    sx_give(s, at, 0, collective(s, at, SX_OP_REDUCE_SCATTER, at->g));
}

void sx_grad_all_to_all(sx_sweep *s, const sx_site *at)
{
    sx_attr attr = at->attr;
    attr.split = at->attr.axis;
    attr.axis = at->attr.split;
    sx_give(s, at, 0, sx_step(s, SX_OP_ALL_TO_ALL, &attr, &at->g, 1));
}

/* The pairs turned round, sources ascending. */
void sx_grad_permute(sx_sweep *s, const sx_site *at)
{
    const sx_rank_pairs *pairs = &at->attr.pairs;
    sx_attr attr = at->attr;
    if (s->code != SX_OK) {
        return;
    }
    sx_rank_pair *turned = SX_NEW_ARRAY(s->cx, sx_rank_pair, (size_t)pairs->count + 1);
    if (turned == NULL) {
        s->code = s->cx->error.code;
        return;
    }
    for (uint32_t i = 0; i < pairs->count; i++) {
        uint32_t at_place = i;
        while (at_place > 0 && turned[at_place - 1].source > pairs->pair[i].target) {
            turned[at_place] = turned[at_place - 1];
            at_place--;
        }
        turned[at_place] = (sx_rank_pair){pairs->pair[i].target, pairs->pair[i].source};
    }
    SX_ASSERT(pairs->count == 0 || turned[0].source >= 0);
    attr.pairs.pair = turned;
    sx_give(s, at, 0, sx_step(s, SX_OP_PERMUTE, &attr, &at->g, 1));
}
