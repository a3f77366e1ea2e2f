/* rules_element.c - operations that work element by element. The formulas are those of rules.def. */
#include "core/grad/sweep.h"
#include "core/ir/num.h"

void sx_grad_negate(sx_sweep *s, const sx_site *at)
{
    sx_give(s, at, 0, sx_step_unary(s, SX_OP_NEGATE, at->g));
}

void sx_grad_abs(sx_sweep *s, const sx_site *at)
{
    sx_node_id sign = sx_step_unary(s, SX_OP_SIGN, at->x[0]);
    sx_give(s, at, 0, sx_step_binary(s, SX_OP_MULTIPLY, at->g, sign));
}

void sx_grad_exponential(sx_sweep *s, const sx_site *at)
{
    sx_give(s, at, 0, sx_step_binary(s, SX_OP_MULTIPLY, at->g, at->y));
}

void sx_grad_log(sx_sweep *s, const sx_site *at)
{
    sx_give(s, at, 0, sx_step_binary(s, SX_OP_DIVIDE, at->g, at->x[0]));
}

void sx_grad_sqrt(sx_sweep *s, const sx_site *at)
{
    sx_node_id half = sx_step_times(s, at->g, 0.5);
    sx_give(s, at, 0, sx_step_binary(s, SX_OP_DIVIDE, half, at->y));
}

void sx_grad_rsqrt(sx_sweep *s, const sx_site *at)
{
    sx_node_id part = sx_step_times(s, at->g, -0.5);
    for (uint32_t k = 0; k < 3; k++) {
        part = sx_step_binary(s, SX_OP_MULTIPLY, part, at->y);
    }
    sx_give(s, at, 0, part);
}

void sx_grad_tanh(sx_sweep *s, const sx_site *at)
{
    sx_node_id one = sx_step_constant(s, &at->type, 1);
    sx_node_id square = sx_step_binary(s, SX_OP_MULTIPLY, at->y, at->y);
    sx_node_id slope = sx_step_binary(s, SX_OP_SUBTRACT, one, square);
    sx_give(s, at, 0, sx_step_binary(s, SX_OP_MULTIPLY, at->g, slope));
}

void sx_grad_erf(sx_sweep *s, const sx_site *at)
{
    sx_node_id square = sx_step_binary(s, SX_OP_MULTIPLY, at->x[0], at->x[0]);
    sx_node_id bell = sx_step_unary(s, SX_OP_NEGATE, square);
    bell = sx_step_unary(s, SX_OP_EXP, bell);
    sx_node_id part = sx_step_times(s, at->g, 1.12837916709551257390); // 2 / sqrt(pi)
    sx_give(s, at, 0, sx_step_binary(s, SX_OP_MULTIPLY, part, bell));
}

void sx_grad_logistic(sx_sweep *s, const sx_site *at)
{
    sx_node_id one = sx_step_constant(s, &at->type, 1);
    sx_node_id rest = sx_step_binary(s, SX_OP_SUBTRACT, one, at->y);
    sx_node_id slope = sx_step_binary(s, SX_OP_MULTIPLY, at->y, rest);
    sx_give(s, at, 0, sx_step_binary(s, SX_OP_MULTIPLY, at->g, slope));
}

void sx_grad_sine(sx_sweep *s, const sx_site *at)
{
    sx_node_id slope = sx_step_unary(s, SX_OP_COS, at->x[0]);
    sx_give(s, at, 0, sx_step_binary(s, SX_OP_MULTIPLY, at->g, slope));
}

void sx_grad_cosine(sx_sweep *s, const sx_site *at)
{
    sx_node_id slope = sx_step_unary(s, SX_OP_SIN, at->x[0]);
    sx_node_id part = sx_step_binary(s, SX_OP_MULTIPLY, at->g, slope);
    sx_give(s, at, 0, sx_step_unary(s, SX_OP_NEGATE, part));
}

/* ---- two operands ---- */

void sx_grad_add(sx_sweep *s, const sx_site *at)
{
    sx_give(s, at, 0, at->g);
    sx_give(s, at, 1, at->g);
}

void sx_grad_subtract(sx_sweep *s, const sx_site *at)
{
    sx_give(s, at, 0, at->g);
    if (sx_wants(s, at, 1)) {
        sx_give(s, at, 1, sx_step_unary(s, SX_OP_NEGATE, at->g));
    }
}

void sx_grad_multiply(sx_sweep *s, const sx_site *at)
{
    for (uint32_t k = 0; k < 2; k++) {
        if (sx_wants(s, at, k)) {
            sx_give(s, at, k, sx_step_binary(s, SX_OP_MULTIPLY, at->g, at->x[1 - k]));
        }
    }
}

void sx_grad_divide(sx_sweep *s, const sx_site *at)
{
    sx_node_id share = sx_step_binary(s, SX_OP_DIVIDE, at->g, at->x[1]);
    sx_give(s, at, 0, share);
    if (sx_wants(s, at, 1)) {
        sx_node_id part = sx_step_binary(s, SX_OP_MULTIPLY, share, at->y);
        sx_give(s, at, 1, sx_step_unary(s, SX_OP_NEGATE, part));
    }
}

/* Is every element of `a` the same known number? */
static bool known_number(const sx_sweep *s, sx_node_id a, double *value)
{
    const sx_node *node = sx_graph_node(s->graph, a);
    const sx_attr *attr = sx_graph_attr(s->graph, node);
    if (node->op != SX_OP_CONSTANT || attr->data.len != sx_dtype_bytes(node->type.dtype)) {
        return false;
    }
    *value = sx_num_decode(node->type.dtype, sx_num_load(node->type.dtype, attr->data.ptr, 0));
    return true;
}

/* a^(b - 1) for a known b that is not 0: a itself for a square. */
static sx_node_id known_power(sx_sweep *s, const sx_site *at, double b)
{
    sx_node_id less = sx_step_constant(s, &at->type, b - 1);
    return b == 2 ? at->x[0] : sx_step_binary(s, SX_OP_POWER, at->x[0], less);
}

/* Where b is 0 the power is 1 for every a, so the slope is 0 and not 0 times a^-1. Where a is 0 its logarithm is not
 * formed: y is 0 there, or b is not positive and there is no derivative. */
void sx_grad_power(sx_sweep *s, const sx_site *at)
{
    sx_node_id zero = sx_step_constant(s, &at->type, 0);
    sx_node_id one = sx_step_constant(s, &at->type, 1);
    double b;
    if (sx_wants(s, at, 0) && known_number(s, at->x[1], &b) && b != 0) {
        sx_node_id power = known_power(s, at, b);
        power = sx_step_binary(s, SX_OP_MULTIPLY, at->x[1], power);
        sx_give(s, at, 0, sx_step_binary(s, SX_OP_MULTIPLY, at->g, power));
    } else if (sx_wants(s, at, 0)) {
        sx_node_id less = sx_step_binary(s, SX_OP_SUBTRACT, at->x[1], one);
        sx_node_id flat = sx_step_compare(s, SX_EQ, at->x[1], zero);
        sx_node_id power = sx_step_select(s, flat, one, less);
        power = sx_step_binary(s, SX_OP_POWER, at->x[0], power);
        power = sx_step_binary(s, SX_OP_MULTIPLY, at->x[1], power);
        sx_give(s, at, 0, sx_step_binary(s, SX_OP_MULTIPLY, at->g, power));
    }
    if (sx_wants(s, at, 1)) {
        sx_node_id none = sx_step_compare(s, SX_EQ, at->x[0], zero);
        sx_node_id log = sx_step_select(s, none, one, at->x[0]);
        log = sx_step_unary(s, SX_OP_LOG, log);
        log = sx_step_binary(s, SX_OP_MULTIPLY, at->y, log);
        sx_give(s, at, 1, sx_step_binary(s, SX_OP_MULTIPLY, at->g, log));
    }
}

/* y = a - b trunc(a / b), so that -trunc(a / b) = (y - a) / b. */
void sx_grad_remainder(sx_sweep *s, const sx_site *at)
{
    sx_give(s, at, 0, at->g);
    if (sx_wants(s, at, 1)) {
        sx_node_id whole = sx_step_binary(s, SX_OP_SUBTRACT, at->y, at->x[0]);
        whole = sx_step_binary(s, SX_OP_DIVIDE, whole, at->x[1]);
        sx_give(s, at, 1, sx_step_binary(s, SX_OP_MULTIPLY, at->g, whole));
    }
}

/* The operand that is greater (less) gets g; of equals the first does, so that a constant zero before x keeps the
 * gradient of relu at zero away from x. */
static void give_to_greater(sx_sweep *s, const sx_site *at, sx_direction direction)
{
    sx_node_id first = sx_step_compare(s, direction, at->x[0], at->x[1]);
    for (uint32_t k = 0; k < 2; k++) {
        if (sx_wants(s, at, k)) {
            sx_give(s, at, k, sx_step_keep(s, first, k == 0, at->g));
        }
    }
}

void sx_grad_maximum(sx_sweep *s, const sx_site *at)
{
    give_to_greater(s, at, SX_GE);
}

void sx_grad_minimum(sx_sweep *s, const sx_site *at)
{
    give_to_greater(s, at, SX_LE);
}

void sx_grad_select(sx_sweep *s, const sx_site *at)
{
    for (uint32_t k = 1; k < 3; k++) {
        if (sx_wants(s, at, k)) {
            sx_give(s, at, k, sx_step_keep(s, at->x[0], k == 1, at->g));
        }
    }
}

void sx_grad_convert(sx_sweep *s, const sx_site *at)
{
    sx_give(s, at, 0, sx_step_convert(s, at->g, sx_step_type(s, at->x[0]).dtype));
}
