/* Element by element: integers, order, selection, conversion, quotients, and products of sums. */
#include <math.h>

#include "core/rules/rules.h"
#include "core/ir/num.h"

static sx_dtype_class root_class(const sx_rewrite *rw)
{
    return sx_dtype_class_of(sx_rewrite_type(rw, rw->node[0])->dtype);
}

static bool is_float(const sx_rewrite *rw)
{
    return root_class(rw) == SX_CLASS_FLOAT;
}

/* x - x, x xor x, x * 0: not for floats, whose infinities and NaN stay. */
sx_code sx_rule_integer_zero(sx_rewrite *rw)
{
    return is_float(rw) ? SX_OK : sx_rewrite_emit_value(rw, 0);
}

/* max(x, -x) = |x|: not for numbers without sign. */
sx_code sx_rule_maximum_negate(sx_rewrite *rw)
{
    bool is_signed = is_float(rw) || sx_num_int_min(sx_rewrite_type(rw, rw->node[0])->dtype) < 0;
    return is_signed ? sx_rewrite_emit_unary(rw, SX_OP_ABS, rw->var[0]) : SX_OK;
}

/* The outer of two functions changes nothing the inner one gives. */
sx_code sx_rule_outer_idle(sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    sx_op outer = sx_tensors_op(t, rw->node[0]);
    sx_op inner = sx_tensors_op(t, rw->node[1]);
    bool rounds_outer = outer == SX_OP_FLOOR || outer == SX_OP_CEIL || outer == SX_OP_ROUND;
    bool rounds_inner =
        inner == SX_OP_FLOOR || inner == SX_OP_CEIL || inner == SX_OP_ROUND || inner == SX_OP_SIGN;
    bool positive = inner == SX_OP_EXP || inner == SX_OP_LOGISTIC ||
                    (inner == SX_OP_ABS && is_float(rw)); /* |MIN| is MIN */
    bool keeps = outer == SX_OP_RELU || outer == SX_OP_ABS;
    if ((outer == SX_OP_SIGN && inner == SX_OP_SIGN) || (rounds_outer && rounds_inner) ||
        (keeps && positive)) {
        return sx_rewrite_emit(rw, rw->node[1]);
    }
    return SX_OK;
}

/* ---- comparison and selection ---- */

sx_code sx_rule_compare_swap(sx_rewrite *rw)
{
    static const sx_direction mirrored[SX_DIRECTION_COUNT] = {
        [SX_EQ] = SX_EQ, [SX_NE] = SX_NE, [SX_LT] = SX_GT,
        [SX_LE] = SX_GE, [SX_GT] = SX_LT, [SX_GE] = SX_LE};
    sx_attr attr = sx_rewrite_attr(rw, 0);
    attr.direction = mirrored[attr.direction];
    uint32_t child[2] = {rw->var[1], rw->var[0]};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_COMPARE, &attr, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* Every comparison with NaN is false but `ne`: the order of floats has no opposite. */
sx_code sx_rule_compare_not(sx_rewrite *rw)
{
    static const sx_direction opposite[SX_DIRECTION_COUNT] = {
        [SX_EQ] = SX_NE, [SX_NE] = SX_EQ, [SX_LT] = SX_GE,
        [SX_LE] = SX_GT, [SX_GT] = SX_LE, [SX_GE] = SX_LT};
    sx_attr attr = sx_rewrite_attr(rw, 1);
    bool ordered = attr.direction != SX_EQ && attr.direction != SX_NE;
    sx_dtype dtype = sx_rewrite_type(rw, rw->var[0])->dtype;
    if (ordered && sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
        return SX_OK;
    }
    attr.direction = opposite[attr.direction];
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_COMPARE, &attr, rw->var, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* Is there no order in which a NaN would be passed over? a > b ? a : b is b where a is NaN. */
static bool never_nan_first(const sx_rewrite *rw)
{
    const sx_fact *fact = sx_tensors_fact(sx_rewrite_tensors(rw), rw->var[0]);
    return !is_float(rw) || (fact->has_value != 0 && !isnan(fact->value));
}

/* a > b ? a : b is the definition of maximum but for a that is NaN. */
sx_code sx_rule_select_order(sx_rewrite *rw)
{
    sx_direction direction = sx_rewrite_attr(rw, 1).direction;
    if ((direction != SX_GT && direction != SX_LT) || !never_nan_first(rw)) {
        return SX_OK;
    }
    sx_op op = direction == SX_GT ? SX_OP_MAXIMUM : SX_OP_MINIMUM;
    return sx_rewrite_emit_binary(rw, op, rw->var[0], rw->var[1]);
}

sx_code sx_rule_select_known(sx_rewrite *rw)
{
    const sx_fact *fact = sx_tensors_fact(sx_rewrite_tensors(rw), rw->var[0]);
    return fact->has_value == 0 ? SX_OK : sx_rewrite_emit(rw, rw->var[fact->value != 0 ? 1 : 2]);
}

/* x + (p ? 0 : -inf), repeated: p ? x : -inf. names: x p low high */
sx_code sx_rule_mask_broadcast(sx_rewrite *rw)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_fact *first = sx_tensors_fact(t, rw->var[2]);
    const sx_fact *second = sx_tensors_fact(t, rw->var[3]);
    bool keeps_first = first->has_value != 0 && first->value == 0 && second->has_value != 0 &&
                       second->value == -HUGE_VAL;
    bool keeps_second = second->has_value != 0 && second->value == 0 && first->has_value != 0 &&
                        first->value == -HUGE_VAL;
    if (!keeps_first && !keeps_second) {
        return SX_OK;
    }
    sx_attr repeat = sx_rewrite_attr(rw, 1);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    repeat.type.dtype = SX_BOOL;
    uint32_t child[3] = {SX_EG_NONE, rw->var[0], SX_EG_NONE};
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &rw->var[1], 1, &child[0]));
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &type, -HUGE_VAL, &child[2]));
    if (keeps_second) {
        child[1] = child[2];
        child[2] = rw->var[0];
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_SELECT, NULL, child, 3, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- conversion ---- */

/* Does `to` hold every number of `from`? Floats: significand and exponents; integers in floats: all bits. */
static bool is_widening(sx_dtype from, sx_dtype to)
{
    static const struct {
        sx_dtype dtype;
        int bits, low,
            high; /* significand; exponents of the smallest subnormal and the largest number */
    } format[] = {{SX_F64, 53, -1074, 1023},
                  {SX_F32, 24, -149, 127},
                  {SX_BF16, 8, -133, 127},
                  {SX_F16, 11, -24, 15}};
    const uint32_t none = SX_COUNT(format);
    uint32_t f = none;
    uint32_t t = none;
    for (uint32_t i = 0; i < none; i++) {
        f = format[i].dtype == from ? i : f;
        t = format[i].dtype == to ? i : t;
    }
    if (sx_dtype_class_of(from) == SX_CLASS_INT && sx_dtype_class_of(to) == SX_CLASS_INT) {
        return sx_num_int_min(to) <= sx_num_int_min(from) &&
               sx_num_int_max(to) >= sx_num_int_max(from);
    }
    if (sx_dtype_class_of(from) == SX_CLASS_INT && t < none) {
        return sx_num_int_max(from) <= INT64_C(1) << format[t].bits;
    }
    return f < none && t < none && format[t].bits >= format[f].bits &&
           format[t].low <= format[f].low && format[t].high >= format[f].high;
}

/* Through a type that holds all numbers of the first: straight. Integers wrap, but through a float they saturate. */
sx_code sx_rule_convert_convert(sx_rewrite *rw)
{
    sx_dtype from = sx_rewrite_type(rw, rw->var[0])->dtype;
    sx_dtype middle = sx_rewrite_type(rw, rw->node[1])->dtype;
    sx_dtype to = sx_rewrite_type(rw, rw->node[0])->dtype;
    bool saturates = sx_dtype_class_of(from) == SX_CLASS_INT &&
                     sx_dtype_class_of(middle) == SX_CLASS_FLOAT &&
                     sx_dtype_class_of(to) == SX_CLASS_INT;
    if (!is_widening(from, middle) || (saturates && !is_widening(from, to))) {
        return SX_OK;
    }
    sx_attr attr = {.present = SX_A(type), .type = *sx_rewrite_type(rw, rw->node[0])};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_CONVERT, &attr, &rw->var[0], 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* ---- quotients of floats ---- */

/* a (1 / b) = a / b */
sx_code sx_rule_multiply_reciprocal(sx_rewrite *rw)
{
    return is_float(rw) ? sx_rewrite_emit_binary(rw, SX_OP_DIVIDE, rw->var[0], rw->var[1]) : SX_OK;
}

sx_code sx_rule_multiply_reciprocal_broadcast(sx_rewrite *rw)
{
    sx_attr repeat = sx_rewrite_attr(rw, 1);
    uint32_t node;
    if (!is_float(rw)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &rw->var[1], 1, &node));
    return sx_rewrite_emit_binary(rw, SX_OP_DIVIDE, rw->var[0], node);
}

/* a / c + b / c = (a + b) / c; names: a c b */
sx_code sx_rule_factor_divide(sx_rewrite *rw)
{
    uint32_t child[2] = {rw->var[0], rw->var[2]};
    uint32_t node;
    if (!is_float(rw)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_ADD, NULL, child, 2, &node));
    return sx_rewrite_emit_binary(rw, SX_OP_DIVIDE, node, rw->var[1]);
}

/* a / d + b / d = (a + b) / d where b and d have one number for each row; names: a d b */
sx_code sx_rule_factor_divide_row(sx_rewrite *rw)
{
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    sx_attr repeat = sx_rewrite_attr(rw, 2);
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    if (!is_float(rw) || (op != SX_OP_ADD && op != SX_OP_SUBTRACT)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_BROADCAST, &repeat, &rw->var[2], 1, &child[1]));
    SX_TRY(sx_rewrite_add(rw, op, NULL, child, 2, &node));
    return node == SX_EG_NONE ? SX_OK : sx_rewrite_emit_binary(rw, SX_OP_DIVIDE, node, rw->node[2]);
}

/* a^-1 = 1 / a */
sx_code sx_rule_power_minus_one(sx_rewrite *rw)
{
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t one;
    if (!is_float(rw)) {
        return SX_OK;
    }
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &type, 1, &one));
    return one == SX_EG_NONE ? SX_OK : sx_rewrite_emit_binary(rw, SX_OP_DIVIDE, one, rw->var[0]);
}

/* ---- products of sums ---- */

static bool is_cheap(const sx_rewrite *rw, uint32_t class_)
{
    const sx_fact *fact = sx_tensors_fact(sx_rewrite_tensors(rw), class_);
    return fact->has_value != 0 || fact->is_weight != 0;
}

/* a + a b = a (b + 1), where b + 1 is known at load. */
sx_code sx_rule_factor_one(sx_rewrite *rw)
{
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t child[2] = {rw->var[1], SX_EG_NONE};
    uint32_t node;
    if (!is_cheap(rw, rw->var[1]) && !rw->unguarded && !rw->open) {
        return SX_OK;
    }
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &type, 1, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_ADD, NULL, child, 2, &node));
    return node == SX_EG_NONE ? SX_OK
                              : sx_rewrite_emit_binary(rw, SX_OP_MULTIPLY, rw->var[0], node);
}

/* May the addend take a factor into what made it: a weight, or a contraction? */
static bool takes_factor(const sx_rewrite *rw, uint32_t class_)
{
    const sx_fact *fact = sx_tensors_fact(sx_rewrite_tensors(rw), class_);
    return (fact->is_weight != 0 && fact->has_value == 0) ||
           sx_rewrite_member(rw, class_, SX_OP_DOT_GENERAL) != SX_EG_NONE;
}

/* f (a + b) = f a + f b for a factor known at load that an addend may take, where nothing else reads the sum. */
sx_code sx_rule_distribute(sx_rewrite *rw)
{
    uint32_t part[2];
    bool taken = takes_factor(rw, rw->var[1]) || takes_factor(rw, rw->var[2]);
    taken = taken && is_cheap(rw, rw->var[0]) && sx_rewrite_is_private(rw, 1);
    if (!taken && !rw->unguarded && !rw->open) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t child[2] = {rw->var[0], rw->var[1 + k]};
        SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, child, 2, &part[k]));
    }
    return part[0] == SX_EG_NONE || part[1] == SX_EG_NONE
               ? SX_OK
               : sx_rewrite_emit_binary(rw, SX_OP_ADD, part[0], part[1]);
}
