/* Scales and shifts of channels into the weights of convolutions, where they are computed once at load. */
#include "core/egraph/rules_conv.h"

static bool is_weight(const sx_rewrite *rw, uint32_t class_)
{
    return class_ != SX_EG_NONE && sx_tensors_fact(sx_rewrite_tensors(rw), class_)->is_weight != 0;
}

/* batch_norm(conv(x, w)) = conv(x, w f) + (bias - mean f), f the factor of an output channel. */
sx_code sx_rule_conv_batch_norm(sx_rewrite *rw)
{
    sx_attr norm = sx_rewrite_attr(rw, 0);
    sx_attr conv = sx_rewrite_attr(rw, 1);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    if (norm.axis != 1 || !sx_type_is_real(&y) || !is_weight(rw, rw->var[1]) ||
        !is_weight(rw, rw->var[2]) || !is_weight(rw, rw->var[5])) {
        return SX_OK;
    }
    uint32_t factor;
    uint32_t shift;
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    SX_TRY(sx_rewrite_norm_factor(rw, rw->var[2], rw->var[5], norm.eps, &factor));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, rw->var[4], factor, &shift));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_SUBTRACT, rw->var[3], shift, &shift));
    SX_TRY(sx_rewrite_repeat(rw, factor, 0, &w, &factor));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, rw->var[1], factor, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &conv, child, 2, &node));
    SX_TRY(sx_rewrite_repeat(rw, shift, 1, &y, &shift));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_ADD, node, shift, &node));
    return sx_rewrite_emit(rw, node);
}
