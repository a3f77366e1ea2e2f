/* Scales and shifts of channels into the weights of convolutions, where they are computed once at load. */
#include <math.h>

#include "core/rules/conv.h"

static bool is_weight(const sx_rewrite *rw, uint32_t class_)
{
    return class_ != SX_EG_NONE && sx_tensors_fact(sx_rewrite_tensors(rw), class_)->is_weight != 0;
}

/* ---- batch_norm ---- */

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

/* The same of a contraction whose result dimension `axis` is one of the right operand. */
sx_code sx_rule_dot_batch_norm(sx_rewrite *rw)
{
    sx_attr norm = sx_rewrite_attr(rw, 0);
    sx_attr dot = sx_rewrite_attr(rw, 1);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    if (!sx_type_is_real(&y) || !is_weight(rw, rw->var[1]) || !is_weight(rw, rw->var[2]) ||
        !is_weight(rw, rw->var[5])) {
        return SX_OK;
    }
    uint32_t used = 0;
    for (uint32_t k = 0; k < dot.rhs_batch.count; k++) {
        used |= 1u << dot.rhs_batch.v[k];
    }
    for (uint32_t k = 0; k < dot.rhs_contract.count; k++) {
        used |= 1u << dot.rhs_contract.v[k];
    }
    uint32_t at = y.rank - (w.rank - dot.rhs_batch.count - dot.rhs_contract.count);
    uint32_t dim = SX_RANK_MAX;
    for (uint32_t d = 0; d < w.rank; d++) {
        if ((used & 1u << d) == 0) {
            dim = at++ == (uint32_t)norm.axis ? d : dim;
        }
    }
    uint32_t factor;
    uint32_t shift;
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    if (dim == SX_RANK_MAX) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_norm_factor(rw, rw->var[2], rw->var[5], norm.eps, &factor));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, rw->var[4], factor, &shift));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_SUBTRACT, rw->var[3], shift, &shift));
    SX_TRY(sx_rewrite_repeat(rw, factor, dim, &w, &factor));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, rw->var[1], factor, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, &node));
    SX_TRY(sx_rewrite_repeat(rw, shift, (uint32_t)norm.axis, &y, &shift));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_ADD, node, shift, &node));
    return sx_rewrite_emit(rw, node);
}

/* The composite by its definition; the epsilon has to be a number that both spell the same. */
sx_code sx_rule_batch_norm(sx_rewrite *rw)
{
    sx_attr repeat = sx_rewrite_attr(rw, 3); /* of the mean; all three are one attribute */
    sx_type x = *sx_rewrite_type(rw, rw->var[0]);
    sx_fact eps = *sx_tensors_fact(sx_rewrite_tensors(rw), rw->var[4]);
    if (!sx_type_is_real(&x) || repeat.dims.count != 1 || eps.has_value == 0 || eps.value < 0) {
        return SX_OK;
    }
    sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = repeat.dims.v[0], .eps = eps.value};
    uint32_t child[5] = {rw->var[0], rw->var[2], rw->var[5], rw->var[1], rw->var[3]};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_BATCH_NORM, &attr, child, 5, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- one known number ---- */

/* s (a conv b), s one known number, for `inner` of the convolution's type. */
static sx_code scaled_result(sx_rewrite *rw, uint32_t child[2], double s)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr conv = sx_rewrite_attr(rw, 0);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t value;
    uint32_t node;
    SX_TRY(sx_tensors_add_value(rw->cx, t, &y, s, &value));
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &conv, child, 2, &node));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, node, value, &node));
    return sx_rewrite_emit(rw, node);
}

static bool known_factor(const sx_rewrite *rw, uint32_t class_, double *s)
{
    const sx_fact *fact = sx_tensors_fact(sx_rewrite_tensors(rw), class_);
    *s = fact->value;
    return fact->has_value != 0 && isfinite(fact->value) &&
           sx_type_is_real(sx_rewrite_type(rw, rw->node[0]));
}

/* conv(a, b) of an operand that is s times another; `k`: the name of s */
static sx_code pull_factor(sx_rewrite *rw, uint32_t k, bool far)
{
    double s;
    uint32_t child[2] = {rw->var[0], rw->var[3 - k]};
    bool may = known_factor(rw, rw->var[k], &s) &&
               sx_rewrite_may(rw, far, sx_rewrite_is_factor_near_one(rw, rw->var[k]));
    return may ? scaled_result(rw, child, s) : SX_OK;
}

sx_code sx_rule_conv_scale_input(sx_rewrite *rw)
{
    return pull_factor(rw, 1, false);
}

sx_code sx_rule_conv_scale_weight(sx_rewrite *rw)
{
    return pull_factor(rw, 2, false);
}

sx_code sx_rule_conv_scale_far_input(sx_rewrite *rw)
{
    return pull_factor(rw, 1, true);
}

sx_code sx_rule_conv_scale_far_weight(sx_rewrite *rw)
{
    return pull_factor(rw, 2, true);
}

/* conv(x, w factor), where that follows from weights. */
static sx_code into_weight(sx_rewrite *rw, const sx_attr *conv, uint32_t x, uint32_t w,
                           uint32_t factor, uint32_t *node)
{
    uint32_t child[2] = {x, SX_EG_NONE};
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, w, factor, &child[1]));
    return sx_rewrite_add(rw, SX_OP_CONVOLUTION, conv, child, 2, node);
}

sx_code sx_rule_scale_into_conv(sx_rewrite *rw)
{
    double s;
    sx_attr conv = sx_rewrite_attr(rw, 1);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    uint32_t factor;
    uint32_t node;
    if (!known_factor(rw, rw->var[2], &s) || !is_weight(rw, rw->var[1])) {
        return SX_OK;
    }
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &w, s, &factor));
    SX_TRY(into_weight(rw, &conv, rw->var[0], rw->var[1], factor, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- one number for each channel ---- */

static bool along_channels(const sx_attr *repeat)
{
    return repeat->dims.count == 1 && repeat->dims.v[0] == 1;
}

sx_code sx_rule_channel_scale_into_conv(sx_rewrite *rw)
{
    sx_attr conv = sx_rewrite_attr(rw, 1);
    sx_attr repeat = sx_rewrite_attr(rw, 2);
    sx_type w = *sx_rewrite_type(rw, rw->var[1]);
    uint32_t factor;
    uint32_t node;
    if (!along_channels(&repeat) || !is_weight(rw, rw->var[1]) || !is_weight(rw, rw->var[2])) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_repeat(rw, rw->var[2], 0, &w, &factor));
    SX_TRY(into_weight(rw, &conv, rw->var[0], rw->var[1], factor, &node));
    return sx_rewrite_emit(rw, node);
}

/* Padding is zeros, which a scale leaves what they are. By channel each input channel has one output channel. */
sx_code sx_rule_input_scale_into_conv(sx_rewrite *rw)
{
    sx_attr conv = sx_rewrite_attr(rw, 0);
    sx_attr repeat = sx_rewrite_attr(rw, 2);
    sx_type w = *sx_rewrite_type(rw, rw->var[2]);
    bool by_channel =
        sx_dim_equal(w.dim[1], sx_dim_of(1)) && sx_dim_equal(w.dim[0], sx_dim_of(conv.groups));
    uint32_t factor;
    uint32_t node;
    if (!along_channels(&repeat) || (conv.groups != 1 && !by_channel) ||
        !is_weight(rw, rw->var[1]) || !is_weight(rw, rw->var[2])) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_repeat(rw, rw->var[1], conv.groups == 1 ? 1 : 0, &w, &factor));
    SX_TRY(into_weight(rw, &conv, rw->var[0], rw->var[2], factor, &node));
    return sx_rewrite_emit(rw, node);
}

/* conv(x +- v, w) = conv(x, w) +- the weights of an output channel times v; only without padding, which v does
 * not reach. */
sx_code sx_rule_input_shift_from_conv(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_op op = sx_tensors_op(t, rw->node[1]);
    sx_attr conv = sx_rewrite_attr(rw, 0);
    sx_attr repeat = sx_rewrite_attr(rw, 2);
    sx_type w = *sx_rewrite_type(rw, rw->var[2]);
    sx_type y = *sx_rewrite_type(rw, rw->node[0]);
    if ((op != SX_OP_ADD && op != SX_OP_SUBTRACT) || !along_channels(&repeat) || conv.groups != 1 ||
        sx_has_padding(&conv) || !is_weight(rw, rw->var[1]) || !is_weight(rw, rw->var[2])) {
        return SX_OK;
    }
    sx_attr sum = {.present = SX_A(dims) | SX_A(reducer), .reducer = SX_SUM};
    for (uint32_t d = 1; d < w.rank; d++) {
        sum.dims.v[sum.dims.count++] = d;
    }
    uint32_t child[2] = {rw->var[0], rw->var[2]};
    uint32_t shift;
    uint32_t node;
    SX_TRY(sx_rewrite_repeat(rw, rw->var[1], 1, &w, &shift));
    SX_TRY(sx_rewrite_binary(rw, SX_OP_MULTIPLY, rw->var[2], shift, &shift));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &sum, &shift, 1, &shift));
    SX_TRY(sx_rewrite_repeat(rw, shift, 1, &y, &shift));
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVOLUTION, &conv, child, 2, &node));
    SX_TRY(sx_rewrite_binary(rw, op, node, shift, &node));
    return sx_rewrite_emit(rw, node);
}
