/* Masks of bits, comparisons, selections and clamps. */
#include <math.h>

#include "core/rules/rules.h"
#include "core/ir/num.h"

/* Whole numbers up to here are doubles. */
#define WHOLE_MAX 9007199254740992.0

static sx_dtype root_dtype(const sx_rewrite *rw)
{
    return sx_rewrite_type(rw, rw->node[0])->dtype;
}

static bool is_float(sx_dtype dtype)
{
    return sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
}

static bool known(const sx_rewrite *rw, uint32_t class_, double *value)
{
    const sx_fact *fact = sx_tensors_fact(sx_rewrite_tensors(rw), class_);
    *value = fact->value;
    return fact->has_value != 0 && !isnan(fact->value);
}

static sx_code add_value(sx_rewrite *rw, double value, uint32_t *node)
{
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    return sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &type, value, node);
}

/* op(a, value) for the root's type */
static sx_code emit_with_value(sx_rewrite *rw, sx_op op, uint32_t a, double value)
{
    uint32_t node;
    SX_TRY(add_value(rw, value, &node));
    return sx_rewrite_emit_binary(rw, op, a, node);
}

/* ---- bits ---- */

/* The number whose bits are all set, where it is a double. */
static bool all_bits(sx_dtype dtype, double *value)
{
    *value = dtype == SX_BOOL ? 1 : sx_num_int_min(dtype) < 0 ? -1 : (double)sx_num_int_max(dtype);
    return *value < WHOLE_MAX;
}

/* No bits, or all: the mask or the operand. names: a m */
sx_code sx_rule_mask_known(sx_rewrite *rw)
{
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    double mask;
    double all;
    if (!known(rw, rw->var[1], &mask) || !all_bits(root_dtype(rw), &all) ||
        (mask != 0 && mask != all)) {
        return SX_OK;
    }
    if (op == SX_OP_XOR) {
        return mask == 0 ? sx_rewrite_emit(rw, rw->var[0])
                         : sx_rewrite_emit_unary(rw, SX_OP_NOT, rw->var[0]);
    }
    bool keeps = (op == SX_OP_AND) == (mask != 0);
    return sx_rewrite_emit(rw, rw->var[keeps ? 0 : 1]);
}

/* names: a m o */
sx_code sx_rule_and_and_known(sx_rewrite *rw)
{
    double mask[2];
    if (!known(rw, rw->var[1], &mask[0]) || !known(rw, rw->var[2], &mask[1]) ||
        fabs(mask[0]) >= WHOLE_MAX || fabs(mask[1]) >= WHOLE_MAX) {
        return SX_OK;
    }
    int64_t both = (int64_t)mask[0] & (int64_t)mask[1];
    return emit_with_value(rw, SX_OP_AND, rw->var[0], (double)both);
}

/* Is no element negative? By its type, or by the operation that gave it: an index, or a number from a type
 * without sign. */
static bool is_natural(const sx_rewrite *rw, uint32_t class_)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    sx_dtype dtype = sx_rewrite_type(rw, class_)->dtype;
    if (sx_num_int_min(dtype) >= 0) {
        return true;
    }
    if (sx_rewrite_member(rw, class_, SX_OP_IOTA) != SX_EG_NONE) {
        const sx_type *type = sx_rewrite_type(rw, class_);
        for (uint32_t d = 0; d < type->rank; d++) { /* an index that does not fit wraps */
            if (!sx_dim_is_constant(type->dim[d]) ||
                type->dim[d].scale - 1 > sx_num_int_max(dtype)) {
                return false;
            }
        }
        return true;
    }
    uint32_t convert = sx_rewrite_member(rw, class_, SX_OP_CONVERT);
    if (convert == SX_EG_NONE) {
        return false;
    }
    sx_dtype from = sx_tensors_type(t, sx_eg_child(&t->eg, convert, 0))->dtype;
    return !is_float(from) && (from == SX_BOOL || (sx_num_int_min(from) >= 0 &&
                                                   sx_num_int_max(from) <= sx_num_int_max(dtype)));
}

/* What is left of a number that is not negative by 2^k are its lowest k bits. names: a m */
sx_code sx_rule_remainder_mask(sx_rewrite *rw)
{
    sx_dtype dtype = root_dtype(rw);
    double by;
    int exponent;
    if (sx_dtype_class_of(dtype) != SX_CLASS_INT || !known(rw, rw->var[1], &by) || by < 1 ||
        frexp(by, &exponent) != 0.5 || !is_natural(rw, rw->var[0])) {
        return SX_OK;
    }
    return emit_with_value(rw, SX_OP_AND, rw->var[0], by - 1);
}

/* (a / m) / o = a / (m o) for positive divisors: both round towards zero. names: a m o */
sx_code sx_rule_divide_divide_integer(sx_rewrite *rw)
{
    sx_dtype dtype = root_dtype(rw);
    double by[2];
    if (sx_dtype_class_of(dtype) != SX_CLASS_INT || !known(rw, rw->var[1], &by[0]) ||
        !known(rw, rw->var[2], &by[1]) || by[0] < 1 || by[1] < 1 || by[0] * by[1] >= WHOLE_MAX) {
        return SX_OK;
    }
    return emit_with_value(rw, SX_OP_DIVIDE, rw->var[0], by[0] * by[1]);
}

/* ---- comparison and selection ---- */

/* x with x: known but for floats, where NaN is not equal to itself. */
sx_code sx_rule_compare_same(sx_rewrite *rw)
{
    sx_direction direction = sx_rewrite_attr(rw, 0).direction;
    bool strict = direction == SX_LT || direction == SX_GT;
    if (!strict && is_float(sx_rewrite_type(rw, rw->var[0])->dtype)) {
        return SX_OK;
    }
    bool holds = direction == SX_EQ || direction == SX_LE || direction == SX_GE;
    return sx_rewrite_emit_value(rw, holds ? 1 : 0);
}

/* p ? true : false. names: p m o */
sx_code sx_rule_select_itself(sx_rewrite *rw)
{
    double value[2];
    if (root_dtype(rw) != SX_BOOL || !known(rw, rw->var[1], &value[0]) ||
        !known(rw, rw->var[2], &value[1]) || value[0] == value[1]) {
        return SX_OK;
    }
    return value[0] != 0 ? sx_rewrite_emit(rw, rw->var[0])
                         : sx_rewrite_emit_unary(rw, SX_OP_NOT, rw->var[0]);
}

/* a >= b ? a : b is maximum but for zeros of two signs, and for a that is NaN. */
sx_code sx_rule_select_order_equal(sx_rewrite *rw)
{
    sx_direction direction = sx_rewrite_attr(rw, 1).direction;
    const sx_fact *first = sx_tensors_fact(sx_rewrite_tensors(rw), rw->var[0]);
    bool number = !is_float(sx_rewrite_type(rw, rw->var[0])->dtype) ||
                  (first->has_value != 0 && !isnan(first->value));
    if ((direction != SX_GE && direction != SX_LE) || !number) {
        return SX_OK;
    }
    return sx_rewrite_emit_binary(rw, direction == SX_GE ? SX_OP_MAXIMUM : SX_OP_MINIMUM,
                                  rw->var[0], rw->var[1]);
}

/* The same operation on both sides, read by nothing else. */
static bool is_common(const sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    return sx_tensors_op(t, rw->node[1]) == sx_tensors_op(t, rw->node[2]) &&
           sx_rewrite_is_private(rw, 1) && sx_rewrite_is_private(rw, 2);
}

static sx_code choose(sx_rewrite *rw, uint32_t a, uint32_t b, uint32_t *node)
{
    uint32_t child[3] = {rw->var[0], a, b};
    return sx_rewrite_add(rw, SX_OP_SELECT, NULL, child, 3, node);
}

/* p ? f(a) : f(b) = f(p ? a : b); names: p a b */
sx_code sx_rule_select_unary(sx_rewrite *rw)
{
    uint32_t node;
    if (!is_common(rw)) {
        return SX_OK;
    }
    SX_TRY(choose(rw, rw->var[1], rw->var[2], &node));
    return sx_rewrite_emit_unary(rw, sx_tensors_op(sx_rewrite_tensors(rw), rw->node[1]), node);
}

/* names: p d a b */
sx_code sx_rule_select_binary(sx_rewrite *rw)
{
    uint32_t node;
    if (!is_common(rw)) {
        return SX_OK;
    }
    SX_TRY(choose(rw, rw->var[2], rw->var[3], &node));
    return sx_rewrite_emit_binary(rw, sx_tensors_op(sx_rewrite_tensors(rw), rw->node[1]),
                                  rw->var[1], node);
}

/* names: p a d b */
sx_code sx_rule_select_binary_right(sx_rewrite *rw)
{
    uint32_t node;
    if (!is_common(rw)) {
        return SX_OK;
    }
    SX_TRY(choose(rw, rw->var[1], rw->var[3], &node));
    return sx_rewrite_emit_binary(rw, sx_tensors_op(sx_rewrite_tensors(rw), rw->node[1]), node,
                                  rw->var[2]);
}

/* ---- clamps; names: a and two known numbers ---- */

/* max(max(a, m), o) = max(a, max(m, o)), minimum likewise: in the order of the definition, so zeros of two
 * signs come out right. */
sx_code sx_rule_bound_twice(sx_rewrite *rw)
{
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    double m;
    double o;
    if (!known(rw, rw->var[1], &m) || !known(rw, rw->var[2], &o)) {
        return SX_OK;
    }
    bool first = op == SX_OP_MAXIMUM ? m > o : m < o;
    return emit_with_value(rw, op, rw->var[0], first ? m : o);
}

/* min(max(a, m), o) = max(min(a, o), m) for m <= o */
sx_code sx_rule_clamp_order(sx_rewrite *rw)
{
    double m;
    double o;
    uint32_t child[2] = {rw->var[0], rw->var[2]};
    uint32_t node;
    if (!known(rw, rw->var[1], &m) || !known(rw, rw->var[2], &o) || !(m <= o)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_MINIMUM, NULL, child, 2, &node));
    return sx_rewrite_emit_binary(rw, SX_OP_MAXIMUM, node, rw->var[1]);
}

/* Between m and o there is nothing left to cut. names: a o m */
sx_code sx_rule_clamp_twice(sx_rewrite *rw)
{
    double m;
    double o;
    if (!known(rw, rw->var[1], &o) || !known(rw, rw->var[2], &m) || !(m < o)) {
        return SX_OK;
    }
    return sx_rewrite_emit(rw, rw->node[1]);
}
