/* reference_op.c - elementwise operations as terms: the sequences of core/loop/math.c recorded once and read
 * back; integers and masks written out here. */
#include <string.h>

#include "core/judge/reference.h"

sx_code sx_reference_make(sx_ctx *cx, sx_reference *r)
{
    memset(r, 0, sizeof(*r));
    SX_TRY(sx_kernel_make(cx, "operations", 8, &r->scratch));
    sx_loop_begin_part(&r->builder, cx, r->scratch, 1, 1, 1);
    for (uint32_t k = 0; k < 3; k++) {
        r->operand[k] = sx_loop_op(&r->builder, SX_LOP_SET, SX_NO_REG, NULL, SX_NO_REG, SX_NO_REG,
                                   SX_NO_REG, 0, 0);
    }
    return r->builder.code;
}

static const sx_recorded *record(sx_reference *r, sx_op op)
{
    sx_recorded *made = &r->recorded[op];
    sx_part *part = r->builder.part;
    if (!made->made) {
        made->first = part->item_count;
        made->result =
            sx_loop_apply(&r->builder, op, SX_EQ, r->operand[0], r->operand[1], r->operand[2]);
        made->end = part->item_count;
        made->made = r->builder.code == SX_OK;
        if (!made->made) { /* an operation without a sequence: not ours to report */
            sx_ctx_reset_error(r->builder.cx);
            r->builder.code = SX_OK;
            (void)sx_refuse(r->g, "%s has no sequence", sx_op_info_of(op)->name);
            return NULL;
        }
    }
    const uint32_t need[2] = {part->vector_count + 1, part->mask_count + 1};
    for (uint32_t c = 0; c < 2; c++) {
        void *array = r->value[c];
        if (need[c] > r->value_capacity[c] &&
            sx_grow(r->g->cx, &array, &r->value_capacity[c], need[c], sizeof(uint32_t)) != SX_OK) {
            (void)sx_refuse(r->g, "out of memory");
            return NULL;
        }
        r->value[c] = array;
    }
    return made;
}

/* A sequence of elementwise instructions on terms. */
static uint32_t play(sx_reference *r, sx_op op, const uint32_t operand[3])
{
    const sx_recorded *seq = record(r, op);
    if (seq == NULL) {
        return 0;
    }
    const sx_part *part = r->builder.part;
    for (uint32_t k = 0; k < 3; k++) {
        r->value[0][r->operand[k]] = operand[k];
    }
    for (uint32_t i = seq->first; i < seq->end && !r->g->refused; i++) {
        const sx_item *item = &part->item[i];
        const sx_lop_info *info = sx_lop_info_of(item->op);
        uint32_t x[3] = {0, 0, 0};
        uint32_t n = 0;
        for (const char *p = info->operands; *p != '\0'; p++) {
            if (*p == 'v' || *p == 'm') {
                x[n] = r->value[*p == 'm'][item->src[n]];
                n++;
            }
        }
        SX_ASSERT(item->kind == SX_ITEM_OP && info->result != 's' && info->result != '-');
        uint32_t value = item->op == SX_LOP_SET
                             ? sx_term_constant(r->g, item->imm)
                             : sx_term_op(r->g, item->op, item->imm, x[0], x[1], x[2]);
        r->value[info->result == 'm'][item->dst] = value;
    }
    return r->g->refused ? 0 : r->value[0][seq->result];
}

static uint32_t two(sx_reference *r, sx_lop op, uint32_t x, uint32_t y)
{
    return sx_term_op(r->g, op, 0, x, y, 0);
}

static uint32_t compare_int(sx_reference *r, sx_direction direction, uint32_t x, uint32_t y)
{
    bool turned = direction == SX_LT || direction == SX_GE;
    bool negated = direction == SX_NE || direction == SX_LE || direction == SX_GE;
    bool equal = direction == SX_EQ || direction == SX_NE;
    uint32_t m =
        sx_term_op(r->g, SX_LOP_ICMP, equal ? SX_EQ : SX_GT, turned ? y : x, turned ? x : y, 0);
    return negated ? sx_term_op(r->g, SX_LOP_MNOT, 0, m, 0, 0) : m;
}

static uint32_t compare(sx_reference *r, const sx_instr *in, uint32_t x, uint32_t y)
{
    sx_dtype dtype = r->body->instr[in->x].dtype;
    if (dtype == SX_F32) {
        return sx_term_op(r->g, SX_LOP_CMP, (uint32_t)in->direction, x, y, 0);
    }
    if (dtype == SX_I32) {
        return compare_int(r, in->direction, x, y);
    }
    if (dtype == SX_BOOL && (in->direction == SX_EQ || in->direction == SX_NE)) {
        uint32_t m = two(r, SX_LOP_MXOR, x, y);
        return in->direction == SX_NE ? m : sx_term_op(r->g, SX_LOP_MNOT, 0, m, 0, 0);
    }
    return sx_refuse(r->g, "a comparison of %s", sx_dtype_name(dtype));
}

static uint32_t apply_int(sx_reference *r, const sx_instr *in, uint32_t x, uint32_t y)
{
    switch ((int)in->op) {
    case SX_OP_ADD: return two(r, SX_LOP_IADD, x, y);
    case SX_OP_SUBTRACT: return two(r, SX_LOP_ISUB, x, y);
    case SX_OP_NEGATE: return two(r, SX_LOP_ISUB, sx_term_constant(r->g, 0), x);
    case SX_OP_AND: return two(r, SX_LOP_AND, x, y);
    case SX_OP_OR: return two(r, SX_LOP_OR, x, y);
    case SX_OP_XOR: return two(r, SX_LOP_XOR, x, y);
    case SX_OP_NOT: return two(r, SX_LOP_XOR, x, sx_term_constant(r->g, UINT32_MAX));
    case SX_OP_MAXIMUM: return two(r, (sx_lop)SX_LOP_IMAX, x, y);
    case SX_OP_MINIMUM: return two(r, (sx_lop)SX_LOP_IMIN, y, x);
    default: return sx_refuse(r->g, "%s of integers", sx_op_info_of(in->op)->name);
    }
}

static uint32_t apply_bool(sx_reference *r, const sx_instr *in, uint32_t x, uint32_t y)
{
    switch ((int)in->op) {
    case SX_OP_ADD:
    case SX_OP_OR: return two(r, SX_LOP_MOR, x, y);
    case SX_OP_MULTIPLY:
    case SX_OP_AND: return two(r, SX_LOP_MAND, x, y);
    case SX_OP_XOR: return two(r, SX_LOP_MXOR, x, y);
    case SX_OP_NOT: return sx_term_op(r->g, SX_LOP_MNOT, 0, x, 0, 0);
    default: return sx_refuse(r->g, "%s of booleans", sx_op_info_of(in->op)->name);
    }
}

static uint32_t bits_of(sx_reference *r, sx_dtype dtype, double value)
{
    uint32_t bits = 0;
    if (dtype == SX_F32) {
        float f = (float)value;
        memcpy(&bits, &f, sizeof(bits));
    } else if (value >= -2147483648.0 && value <= 2147483647.0) { /* others are not lowered */
        bits = (uint32_t)(int32_t)value;
    }
    return sx_term_constant(r->g, bits);
}

static uint32_t convert(sx_reference *r, const sx_instr *in, uint32_t x)
{
    sx_algebra *g = r->g;
    sx_dtype from = r->body->instr[in->x].dtype;
    sx_dtype to = in->dtype;
    bool known = (from == SX_F32 || from == SX_I32 || from == SX_BOOL) &&
                 (to == SX_F32 || to == SX_I32 || to == SX_BOOL);
    if (!known) {
        return sx_refuse(g, "a conversion from %s to %s", sx_dtype_name(from), sx_dtype_name(to));
    }
    if (from == to) {
        return x;
    }
    if (from == SX_BOOL) {
        return sx_term_op(g, SX_LOP_BLEND, 0, x, bits_of(r, to, 1), bits_of(r, to, 0));
    }
    if (to == SX_BOOL) {
        uint32_t zero = sx_term_constant(g, 0);
        if (from == SX_F32) {
            return sx_term_op(g, SX_LOP_CMP, SX_NE, x, zero, 0);
        }
        return sx_term_op(g, SX_LOP_MNOT, 0, sx_term_op(g, SX_LOP_ICMP, SX_EQ, x, zero, 0), 0, 0);
    }
    if (from == SX_I32) {
        return sx_term_op(g, SX_LOP_I2F, 0, x, 0, 0);
    }
    /* toward zero, saturated, NaN to 0 */
    uint32_t i = sx_term_op(g, SX_LOP_F2I, 0, x, 0, 0);
    uint32_t above = sx_term_op(g, SX_LOP_CMP, SX_GE, x, bits_of(r, SX_F32, 2147483648.0), 0);
    i = sx_term_op(g, SX_LOP_BLEND, 0, above, sx_term_constant(g, INT32_MAX), i);
    uint32_t ordered = sx_term_op(g, SX_LOP_CMP, SX_EQ, x, x, 0);
    return sx_term_op(g, SX_LOP_BLEND, 0, ordered, i, sx_term_constant(g, 0));
}

static uint32_t select_value(sx_reference *r, const sx_instr *in, const uint32_t operand[3])
{
    if (in->dtype != SX_BOOL) {
        return sx_term_op(r->g, SX_LOP_BLEND, 0, operand[0], operand[1], operand[2]);
    }
    uint32_t taken = two(r, SX_LOP_MAND, operand[0], operand[1]);
    uint32_t not_p = sx_term_op(r->g, SX_LOP_MNOT, 0, operand[0], 0, 0);
    return two(r, SX_LOP_MOR, taken, two(r, SX_LOP_MAND, not_p, operand[2]));
}

uint32_t sx_reference_apply(sx_reference *r, const sx_instr *in, const uint32_t operand[3])
{
    if (r->g->refused) {
        return 0;
    }
    switch ((int)in->op) {
    case SX_OP_COMPARE: return compare(r, in, operand[0], operand[1]);
    case SX_OP_SELECT: return select_value(r, in, operand);
    case SX_OP_CONVERT: return convert(r, in, operand[0]);
    default: break;
    }
    switch ((int)in->dtype) {
    case SX_F32: return play(r, in->op, operand);
    case SX_I32: return apply_int(r, in, operand[0], operand[1]);
    case SX_BOOL: return apply_bool(r, in, operand[0], operand[1]);
    default:
        return sx_refuse(r->g, "%s of %s", sx_op_info_of(in->op)->name, sx_dtype_name(in->dtype));
    }
}
