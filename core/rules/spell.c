/* Other spellings of composites: softmax without a maximum, composites between conversions, scales of
 * attention, approximations. */
#include <string.h>

#include "core/rules/rules.h"

/* Is the reduce of matched node `k` a sum along one dimension, and does matched broadcast `b` repeat its
 * result along it? */
static bool is_row_sum(const sx_rewrite *rw, uint32_t b, uint32_t k, uint32_t rank, int64_t *axis)
{
    sx_attr repeat = sx_rewrite_attr(rw, b);
    sx_attr sum = sx_rewrite_attr(rw, k);
    if (sum.reducer != SX_SUM || sum.dims.count != 1 || repeat.dims.count + 1 != rank) {
        return false;
    }
    *axis = sum.dims.v[0];
    for (uint32_t i = 0; i < repeat.dims.count; i++) {
        if (repeat.dims.v[i] != (int64_t)i + (i >= *axis ? 1 : 0)) {
            return false;
        }
    }
    return true;
}

/* A difference is what the definition has below its exponential: opened, it would be met again and again. */
static bool is_shifted(const sx_rewrite *rw, uint32_t x)
{
    return !rw->unguarded && sx_rewrite_member(rw, x, SX_OP_SUBTRACT) != SX_EG_NONE;
}

static sx_code emit_rows(sx_rewrite *rw, sx_op op, uint32_t x, int64_t axis)
{
    sx_attr attr = {.present = SX_A(axis), .axis = axis};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, &attr, &x, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* matched: divide, exponential, broadcast, reduce; names: e x */
sx_code sx_rule_softmax_plain(sx_rewrite *rw)
{
    const sx_type *type = sx_rewrite_type(rw, rw->var[1]);
    int64_t axis;
    if (!sx_type_is_real(type) || is_shifted(rw, rw->var[1]) ||
        !is_row_sum(rw, 2, 3, type->rank, &axis)) {
        return SX_OK;
    }
    return emit_rows(rw, SX_OP_SOFTMAX, rw->var[1], axis);
}

/* x - log sum e^x. matched: subtract, broadcast, log, reduce, exponential; names: x */
sx_code sx_rule_log_softmax_plain(sx_rewrite *rw)
{
    const sx_type *type = sx_rewrite_type(rw, rw->var[0]);
    int64_t axis;
    if (!sx_type_is_real(type) || is_shifted(rw, rw->var[0]) ||
        !is_row_sum(rw, 1, 3, type->rank, &axis)) {
        return SX_OK;
    }
    return emit_rows(rw, SX_OP_LOG_SOFTMAX, rw->var[0], axis);
}

/* x - (m + log sum e^(x - m)) for any m of the row. matched: subtract, broadcast, add, log, reduce,
 * exponential, subtract, broadcast; names: x m. */
sx_code sx_rule_log_softmax_shifted(sx_rewrite *rw)
{
    const sx_type *type = sx_rewrite_type(rw, rw->var[0]);
    int64_t axis;
    if (!sx_type_is_real(type) || !is_row_sum(rw, 1, 4, type->rank, &axis)) {
        return SX_OK;
    }
    return emit_rows(rw, SX_OP_LOG_SOFTMAX, rw->var[0], axis);
}

/* Composites of narrow types compute in f32: between conversions from a narrow type and back they are that. */
sx_code sx_rule_narrow_composite(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_op op = sx_tensors_op(t, rw->node[1]);
    sx_attr attr = sx_rewrite_attr(rw, 1);
    uint32_t arity = t->eg.node[rw->node[1]].arity;
    sx_dtype dtype = sx_rewrite_type(rw, rw->node[0])->dtype;
    bool fits = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT && sx_dtype_bytes(dtype) < 4 &&
                sx_rewrite_type(rw, rw->node[1])->dtype == SX_F32 &&
                (op == SX_OP_GELU || op == SX_OP_GELU_TANH || op == SX_OP_SILU ||
                 sx_op_info_of(op)->op_class == SX_OPCLASS_COMPOSITE);
    for (uint32_t k = 0; k < arity; k++) {
        fits = fits && sx_rewrite_type(rw, rw->var[k])->dtype == dtype;
    }
    uint32_t node;
    if (!fits) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, op, &attr, rw->var, arity, &node));
    return sx_rewrite_emit(rw, node);
}

/* attention(s q, k, v) and attention(q, s k, v): s belongs to the scale. `at`: which operand; `scale`, `x`: names. */
static sx_code scale_into_attention(sx_rewrite *rw, uint32_t at, uint32_t x, uint32_t scale,
                                    bool far)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_fact *fact = sx_tensors_fact(t, scale);
    sx_attr attr = sx_rewrite_attr(rw, 0);
    uint32_t arity = t->eg.node[rw->node[0]].arity;
    uint32_t child[4];
    SX_ASSERT(arity <= 4);
    if (fact->has_value == 0 || !sx_type_is_real(sx_rewrite_type(rw, x)) ||
        !sx_rewrite_may(rw, far, sx_rewrite_is_factor_near_one(rw, scale))) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < arity; k++) {
        child[k] = k == at ? x : sx_eg_child(&t->eg, rw->node[0], k);
    }
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    double product = attr.scale * fact->value;
    if (sx_rewrite_rounded(&type, product) != product) {
        return SX_OK; /* the scale is a number of the element type */
    }
    attr.scale = product;
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_ATTENTION, &attr, child, arity, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_attention_scaled_query(sx_rewrite *rw)
{
    return scale_into_attention(rw, 0, rw->var[0], rw->var[1], false);
}

sx_code sx_rule_attention_scaled_far_query(sx_rewrite *rw)
{
    return scale_into_attention(rw, 0, rw->var[0], rw->var[1], true);
}

sx_code sx_rule_attention_scaled_key(sx_rewrite *rw)
{
    return scale_into_attention(rw, 1, rw->var[1], rw->var[2], false);
}

sx_code sx_rule_attention_scaled_far_key(sx_rewrite *rw)
{
    return scale_into_attention(rw, 1, rw->var[1], rw->var[2], true);
}

/* ---- quotients by a number past a contraction ---- */

static sx_code divide_after(sx_rewrite *rw, uint32_t a, uint32_t b, uint32_t divisor, bool far)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr dot = sx_rewrite_attr(rw, 0);
    const sx_fact *fact = sx_tensors_fact(t, divisor);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    double value = fact->value;
    if (fact->has_value == 0 || value == 0 || sx_dtype_class_of(type.dtype) != SX_CLASS_FLOAT ||
        !sx_rewrite_may(rw, far, sx_rewrite_is_factor_near_one(rw, divisor))) {
        return SX_OK;
    }
    uint32_t child[2] = {a, b};
    uint32_t pair[2];
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DOT_GENERAL, &dot, child, 2, &pair[0]));
    SX_TRY(sx_tensors_add_value(rw->cx, t, &type, value, &pair[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_DIVIDE, NULL, pair, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_dot_quotient_left(sx_rewrite *rw)
{
    return divide_after(rw, rw->var[0], rw->var[2], rw->var[1], false);
}

sx_code sx_rule_dot_quotient_far_left(sx_rewrite *rw)
{
    return divide_after(rw, rw->var[0], rw->var[2], rw->var[1], true);
}

sx_code sx_rule_dot_quotient_right(sx_rewrite *rw)
{
    return divide_after(rw, rw->var[0], rw->var[1], rw->var[2], false);
}

sx_code sx_rule_dot_quotient_far_right(sx_rewrite *rw)
{
    return divide_after(rw, rw->var[0], rw->var[1], rw->var[2], true);
}

/* ---- approximations: only on request ---- */

/* gelu(x) = x logistic(1.702 x) */
sx_code sx_rule_gelu_logistic(sx_rewrite *rw)
{
    sx_type type = *sx_rewrite_type(rw, rw->var[0]);
    uint32_t pair[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    double value = sx_rewrite_rounded(&type, 1.702);
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &type, value, &pair[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, pair, 2, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_LOGISTIC, NULL, &node, 1, &pair[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, pair, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* Mean of squared differences from the mean = mean of squares - square of the mean. matched: divide, reduce,
 * multiply, subtract, broadcast, divide (the mean), reduce; names: d x m n k */
sx_code sx_rule_variance_one_pass(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    sx_attr outer = sx_rewrite_attr(rw, 1);
    sx_attr inner = sx_rewrite_attr(rw, 6);
    sx_attr repeat = sx_rewrite_attr(rw, 4);
    sx_type type = *sx_rewrite_type(rw, rw->var[1]);
    double count = 1;
    uint32_t set = 0;
    for (uint32_t i = 0; i < outer.dims.count; i++) {
        set |= 1u << outer.dims.v[i];
        count *= sx_dim_is_constant(type.dim[outer.dims.v[i]])
                     ? (double)type.dim[outer.dims.v[i]].scale
                     : 0;
    }
    for (uint32_t i = 0; i < repeat.dims.count; i++) {
        set |= 1u << repeat.dims.v[i]; /* what is not reduced is what the mean is repeated over */
    }
    const sx_fact *n = sx_tensors_fact(t, rw->var[3]);
    const sx_fact *k = sx_tensors_fact(t, rw->var[4]);
    if (outer.reducer != SX_SUM || inner.reducer != SX_SUM ||
        memcmp(&outer.dims, &inner.dims, sizeof(outer.dims)) != 0 ||
        outer.dims.count + repeat.dims.count != type.rank || set != (1u << type.rank) - 1 ||
        n->has_value == 0 || k->has_value == 0 || n->value != count || k->value != count) {
        return SX_OK;
    }
    uint32_t square[2] = {rw->var[1], rw->var[1]};
    uint32_t mean[2] = {rw->var[2], rw->var[2]};
    uint32_t part[2];
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, square, 2, &part[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_REDUCE, &outer, &part[0], 1, &part[0]));
    part[1] = rw->var[4];
    SX_TRY(sx_rewrite_add(rw, SX_OP_DIVIDE, NULL, part, 2, &part[0]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, mean, 2, &part[1]));
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_SUBTRACT, NULL, part, 2, &node));
    return sx_rewrite_emit(rw, node);
}
