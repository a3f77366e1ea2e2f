/* rules_sum.c - reductions and contractions. */
#include "core/grad/sweep.h"

/* The elements of x that equal the result share its cotangent. */
static sx_node_id share_among_equals(sx_sweep *s, const sx_site *at, const sx_ints *kept,
                                     const sx_type *from)
{
    sx_node_id best = sx_step_repeat(s, at->y, kept, from);
    sx_node_id equal = sx_step_compare(s, SX_EQ, at->x[0], best);
    sx_node_id one = sx_step_constant(s, from, 1);
    sx_node_id count = sx_step_reduce(s, SX_SUM, sx_step_keep(s, equal, true, one), &at->attr.dims);
    sx_node_id share = sx_step_binary(s, SX_OP_DIVIDE, at->g, count);
    return sx_step_keep(s, equal, true, sx_step_repeat(s, share, kept, from));
}

/* g times the product of the other elements. The product q of those that are not 0 is divided by each; with one 0
 * among them that element alone gets q, and with two nobody gets anything. */
static sx_node_id others_product(sx_sweep *s, const sx_site *at, const sx_ints *kept,
                                 const sx_type *from)
{
    sx_node_id x = at->x[0];
    sx_node_id zero = sx_step_constant(s, from, 0);
    sx_node_id one = sx_step_constant(s, from, 1);
    sx_node_id is_zero = sx_step_compare(s, SX_EQ, x, zero);
    sx_node_id filled = sx_step_select(s, is_zero, one, x);
    sx_node_id zeros = sx_step_select(s, is_zero, one, zero);
    sx_node_id product = sx_step_reduce(s, SX_PRODUCT, filled, &at->attr.dims);
    zeros = sx_step_reduce(s, SX_SUM, zeros, &at->attr.dims);
    product = sx_step_binary(s, SX_OP_MULTIPLY, at->g, product);
    product = sx_step_repeat(s, product, kept, from);
    product = sx_step_binary(s, SX_OP_DIVIDE, product, filled);
    zeros = sx_step_repeat(s, zeros, kept, from);
    sx_node_id own = sx_step_select(s, is_zero, one, zero); /* are all zeros its own? */
    return sx_step_keep(s, sx_step_compare(s, SX_EQ, zeros, own), true, product);
}

void sx_grad_reduce(sx_sweep *s, const sx_site *at)
{
    sx_type from = sx_step_type(s, at->x[0]);
    sx_ints kept = sx_other_dims(from.rank, &at->attr.dims);
    switch (at->attr.reducer) {
    case SX_SUM: sx_give(s, at, 0, sx_step_repeat(s, at->g, &kept, &from)); return;
    case SX_PRODUCT: sx_give(s, at, 0, others_product(s, at, &kept, &from)); return;
    case SX_MAX:
    case SX_MIN: sx_give(s, at, 0, share_among_equals(s, at, &kept, &from)); return;
    case SX_REDUCER_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* ---- dot_general ---- */

/* The operands of a contraction: what is batch, what is summed, what is free (ascending). */
typedef struct {
    sx_ints batch, contract, free;
} roles;

static roles roles_of(const sx_ints *batch, const sx_ints *contract, uint32_t rank)
{
    roles r = {.batch = *batch, .contract = *contract};
    uint32_t taken = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        taken |= 1u << batch->v[i];
    }
    for (uint32_t i = 0; i < contract->count; i++) {
        taken |= 1u << contract->v[i];
    }
    for (uint32_t d = 0; d < rank; d++) {
        if ((taken >> d & 1) == 0) {
            r.free.v[r.free.count++] = d;
        }
    }
    return r;
}

static sx_ints range_of(uint32_t first, uint32_t count)
{
    SX_ASSERT(first + count <= SX_RANK_MAX);
    sx_ints range = {.count = count};
    for (uint32_t i = 0; i < count; i++) {
        range.v[i] = first + i;
    }
    return range;
}

/* The place of `d` among the ascending numbers of `list`. */
static uint32_t rank_among(const sx_ints *list, int64_t d)
{
    uint32_t below = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        below += list->v[i] < d ? 1 : 0;
    }
    return below;
}

/* The cotangent of operand `side`: g and the other operand, contracted over the free dimensions of that one. The
 * product has the dimensions batch, own free, contracted (in the order they have in the other operand). */
static void give_dot(sx_sweep *s, const sx_site *at, uint32_t side, const roles role[2])
{
    const roles *own = &role[side];
    const roles *other = &role[1 - side];
    uint32_t batch = own->batch.count;
    uint32_t own_first = batch + (side == 1 ? other->free.count : 0);
    uint32_t other_first = batch + (side == 0 ? own->free.count : 0);
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    attr.lhs_batch = range_of(0, batch);
    attr.rhs_batch = other->batch;
    attr.lhs_contract = range_of(other_first, other->free.count);
    attr.rhs_contract = other->free;
    sx_node_id input[2] = {at->g, at->x[1 - side]};
    sx_node_id product = sx_step(s, SX_OP_DOT_GENERAL, &attr, input, 2);
    sx_ints perm = {.count = batch + own->free.count + own->contract.count};
    SX_ASSERT(own_first + own->free.count <= SX_RANK_MAX && perm.count <= SX_RANK_MAX);
    for (uint32_t i = 0; i < batch; i++) {
        perm.v[own->batch.v[i]] = i;
    }
    for (uint32_t i = 0; i < own->free.count; i++) {
        perm.v[own->free.v[i]] = batch + i;
    }
    for (uint32_t i = 0; i < own->contract.count; i++) {
        uint32_t place = rank_among(&other->contract, other->contract.v[i]);
        perm.v[own->contract.v[i]] = batch + own->free.count + place;
    }
    sx_give(s, at, side, sx_step_transpose(s, product, &perm));
}

void sx_grad_dot(sx_sweep *s, const sx_site *at)
{
    const sx_attr *attr = &at->attr;
    roles role[2] = {
        roles_of(&attr->lhs_batch, &attr->lhs_contract, sx_step_type(s, at->x[0]).rank),
        roles_of(&attr->rhs_batch, &attr->rhs_contract, sx_step_type(s, at->x[1]).rank),
    };
    for (uint32_t side = 0; side < 2; side++) {
        if (sx_wants(s, at, side)) {
            give_dot(s, at, side, role);
        }
    }
}
