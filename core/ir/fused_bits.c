/* fused_bits.c - operations that must not share a kernel, because results would have other bits than apart.
 *
 * Sums follow an order, and functions a sequence of instructions, that belong to the width of a lane: 4 bytes, or 8
 * where a kernel has a value of f64 or i64. So nothing of 8 bytes is fused with a function or a sum of a float that
 * is narrower. And a value that a function or sum gave may be compared for equality with one that was computed
 * elsewhere (x = max x, an index of an extreme): computed again beside the comparison it could come out one unit
 * apart where the reference computes it another way, so it is read. */
#include "core/ir/fused_body.h"

static bool is_function(sx_op op)
{
    switch ((int)op) {
    case SX_OP_EXP:
    case SX_OP_LOG:
    case SX_OP_TANH:
    case SX_OP_ERF:
    case SX_OP_LOGISTIC:
    case SX_OP_SIN:
    case SX_OP_COS:
    case SX_OP_POWER: return true;
    default: return false;
    }
}

/* Does the instruction itself give a float that depends on how it is computed? */
static bool is_rounded(const sx_instr *in)
{
    if (sx_dtype_class_of(in->dtype) != SX_CLASS_FLOAT) {
        return false;
    }
    switch (in->kind) {
    case SX_BODY_APPLY: return is_function(in->op);
    case SX_BODY_REDUCE: return in->reducer == SX_SUM || in->reducer == SX_PRODUCT;
    case SX_BODY_DOT:
    case SX_BODY_ONLINE: return true;
    default: return false;
    }
}

bool sx_body_is_wide(const sx_body *body)
{
    bool wide = false;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        bool divides = in->kind == SX_BODY_APPLY && in->dtype == SX_I32 &&
                       (in->op == SX_OP_DIVIDE || in->op == SX_OP_REMAINDER);
        wide = wide || sx_dtype_bytes(in->dtype) == 8 || divides;
    }
    return wide;
}

bool sx_body_keeps_bits(const sx_body *body)
{
    bool wide = sx_body_is_wide(body);
    bool rounded[SX_FUSED_INSTRS_MAX], read[SX_FUSED_INSTRS_MAX]; /* what it depends on */
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        bool own = is_rounded(in);
        if (own && wide && sx_dtype_bytes(in->dtype) < 8) {
            return false;
        }
        rounded[i] = own;
        read[i] = in->kind == SX_BODY_ARG;
        for (uint32_t k = 0; k < sx_body_operand_count(in); k++) {
            uint32_t from = sx_body_operand(in, k);
            rounded[i] = rounded[i] || rounded[from];
            read[i] = read[i] || read[from];
        }
        bool equality = in->kind == SX_BODY_APPLY && in->op == SX_OP_COMPARE &&
                        (in->direction == SX_EQ || in->direction == SX_NE);
        if (equality && rounded[in->x] != rounded[in->y] && read[in->x] && read[in->y]) {
            return false;
        }
    }
    return true;
}
