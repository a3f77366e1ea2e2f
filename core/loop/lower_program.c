/* lower_program.c - values of a fused program at the position of a lowering: loads, constants, elementwise
 * instructions. f32 goes through math.c; int32 is held as integer lanes and bool as lane masks (bytes in memory). */
#include "core/loop/lower.h"

#include <math.h>
#include <string.h>

static uint32_t op3(sx_lower *l, sx_lop op, uint32_t x, uint32_t y, uint32_t z)
{
    return sx_loop_op(&l->b, op, SX_NO_REG, NULL, x, y, z, 0, 0);
}

static uint32_t set_bits(sx_lower *l, uint32_t bits)
{
    return sx_loop_op(&l->b, SX_LOP_SET, SX_NO_REG, NULL, SX_NO_REG, SX_NO_REG, SX_NO_REG, bits, 0);
}

static uint32_t op_imm(sx_lower *l, sx_lop op, uint32_t x, uint32_t y, uint32_t imm)
{
    return sx_loop_op(&l->b, op, SX_NO_REG, NULL, x, y, SX_NO_REG, imm, 0);
}

static uint32_t refuse(sx_lower *l, const char *what, sx_dtype dtype)
{
    if (l->b.code == SX_OK) {
        l->b.code = SX_FAIL(l->cx, SX_UNIMPLEMENTED, "kernel %s: %s on %s has no vector form",
                            l->kernel->name, what, sx_dtype_name(dtype));
    }
    return 0;
}

/* Address of an element whose index is the dot product of `stride` and the position. */
static sx_addr address(const sx_lower *l, uint32_t buffer, const int64_t *stride, int64_t offset,
                       int64_t size)
{
    sx_addr a = {.buffer = buffer, .offset = offset, .index_reg = SX_NO_REG};
    for (uint32_t d = 0; d < l->view.rank; d++) {
        a.offset += stride[d] * l->at[d].constant;
        for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
            a.coef[v] += stride[d] * l->at[d].coef[v];
        }
    }
    a.offset *= size;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        a.coef[v] *= size;
    }
    return a;
}

sx_addr sx_lower_arg_address(const sx_lower *l, uint32_t argument)
{
    return address(l, l->arg_buffer[argument], l->view.stride[argument], l->view.offset[argument],
                   sx_dtype_bytes(l->arg_dtype[argument]));
}

sx_addr sx_lower_out_address(const sx_lower *l)
{
    return address(l, l->out_buffer, l->view.out_stride, l->view.out_offset,
                   sx_dtype_bytes(l->out_dtype));
}

void sx_lower_move(sx_lower *l)
{
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        l->have[i] = l->have[i] && l->pinned[i];
    }
}

static uint32_t mask_of(sx_lower *l, uint32_t value)
{
    uint32_t zero = op_imm(l, SX_LOP_ICMP, value, set_bits(l, 0), SX_EQ);
    return op3(l, SX_LOP_MNOT, zero, SX_NO_REG, SX_NO_REG);
}

/* Lane i from base + i * stride bytes, one byte each. */
static uint32_t load_spread_bytes(sx_lower *l, const sx_addr *base, int64_t stride)
{
    sx_addr a = *base;
    uint32_t lane =
        sx_loop_op(&l->b, SX_LOP_IOTA, SX_NO_REG, NULL, SX_NO_REG, SX_NO_REG, SX_NO_REG, 0, 0);
    uint32_t all = set_bits(l, 0);
    for (uint32_t i = 0; i < l->valid; i++) {
        uint32_t one =
            sx_loop_op(&l->b, SX_LOP_LOAD8, SX_NO_REG, &a, SX_NO_REG, SX_NO_REG, SX_NO_REG, 1, 0);
        uint32_t here = op_imm(l, SX_LOP_ICMP, lane, set_bits(l, i), SX_EQ);
        one = op3(l, SX_LOP_BCAST0, one, SX_NO_REG, SX_NO_REG);
        all = op3(l, SX_LOP_BLEND, here, one, all);
        a.offset += stride;
    }
    return all;
}

uint32_t sx_lower_load(sx_lower *l, uint32_t argument)
{
    sx_dtype dtype = l->arg_dtype[argument];
    sx_addr a = sx_lower_arg_address(l, argument);
    int64_t stride = l->vector_dim == SX_NO_DIM ? 0 : l->view.stride[argument][l->vector_dim];
    uint32_t none = SX_NO_REG;
    if (dtype == SX_F32 || dtype == SX_I32) {
        return stride == 0 ? sx_loop_op(&l->b, SX_LOP_LOADB, none, &a, none, none, none, 0, 0)
               : stride == 1
                   ? sx_loop_op(&l->b, SX_LOP_LOAD, none, &a, none, none, none, l->valid, 0)
                   : sx_loop_op(&l->b, SX_LOP_LOADS, none, &a, none, none, none, l->valid,
                                4 * stride);
    }
    if (dtype != SX_BOOL) {
        return refuse(l, "argument", dtype);
    }
    uint32_t bytes;
    if (stride == 0) {
        bytes = sx_loop_op(&l->b, SX_LOP_LOAD8, none, &a, none, none, none, 1, 0);
        bytes = op3(l, SX_LOP_BCAST0, bytes, none, none);
    } else if (stride == 1) {
        bytes = sx_loop_op(&l->b, SX_LOP_LOAD8, none, &a, none, none, none, l->valid, 0);
    } else {
        bytes = load_spread_bytes(l, &a, stride);
    }
    return mask_of(l, bytes);
}

uint32_t sx_lower_constant(sx_lower *l, sx_dtype dtype, double value)
{
    switch (dtype) {
    case SX_F32: return sx_loop_set(&l->b, (float)value);
    case SX_I32:
        if (!(value >= -2147483648.0 && value <= 2147483647.0)) {
            return refuse(l, "constant beyond 32 bits", dtype);
        }
        return set_bits(l, (uint32_t)(int32_t)value);
    case SX_BOOL: return op_imm(l, SX_LOP_ICMP, set_bits(l, value != 0), set_bits(l, 0), SX_GT);
    default: return refuse(l, "constant", dtype);
    }
}

/* The index along a dimension: constant + variables + lane. */
static uint32_t index_value(sx_lower *l, uint32_t dim, sx_dtype dtype)
{
    uint32_t d = l->view.view_dim[dim];
    if (dtype != SX_F32 && dtype != SX_I32) {
        return refuse(l, "index", dtype);
    }
    if (d == SX_NO_DIM) {
        return set_bits(l, 0);
    }
    const sx_affine *at = &l->at[d];
    if (l->view.extent[d] > INT32_MAX) {
        return refuse(l, "index beyond 32 bits", dtype);
    }
    uint32_t none = SX_NO_REG;
    uint32_t v = d == l->vector_dim ? sx_loop_op(&l->b, SX_LOP_IOTA, none, NULL, none, none, none,
                                                 (uint32_t)at->constant, 0)
                                    : set_bits(l, (uint32_t)at->constant);
    for (uint32_t k = 0; k < SX_LOOP_VARS_MAX; k++) {
        if (at->coef[k] != 0) {
            uint32_t s = sx_loop_op(&l->b, SX_LOP_SVAR, none, NULL, none, none, none, k, 0);
            s = sx_loop_op(&l->b, SX_LOP_SMUL, none, NULL, s, none, none, 0, at->coef[k]);
            v = op3(l, SX_LOP_IADD, v, op3(l, SX_LOP_S2V, s, none, none), none);
        }
    }
    return dtype == SX_I32 ? v : op3(l, SX_LOP_I2F, v, none, none);
}

static uint32_t compare_i32(sx_lower *l, sx_direction direction, uint32_t x, uint32_t y)
{
    uint32_t m;
    switch (direction) {
    case SX_EQ: return op_imm(l, SX_LOP_ICMP, x, y, SX_EQ);
    case SX_GT: return op_imm(l, SX_LOP_ICMP, x, y, SX_GT);
    case SX_LT: return op_imm(l, SX_LOP_ICMP, y, x, SX_GT);
    case SX_NE: m = op_imm(l, SX_LOP_ICMP, x, y, SX_EQ); break;
    case SX_LE: m = op_imm(l, SX_LOP_ICMP, x, y, SX_GT); break;
    case SX_GE: m = op_imm(l, SX_LOP_ICMP, y, x, SX_GT); break;
    case SX_DIRECTION_COUNT:
    default: return refuse(l, "comparison", SX_I32);
    }
    return op3(l, SX_LOP_MNOT, m, SX_NO_REG, SX_NO_REG);
}

static uint32_t apply_i32(sx_lower *l, const sx_instr *in, uint32_t x, uint32_t y)
{
    uint32_t none = SX_NO_REG;
    switch (in->op) {
    case SX_OP_ADD: return op3(l, SX_LOP_IADD, x, y, none);
    case SX_OP_SUBTRACT: return op3(l, SX_LOP_ISUB, x, y, none);
    case SX_OP_NEGATE: return op3(l, SX_LOP_ISUB, set_bits(l, 0), x, none);
    case SX_OP_AND: return op3(l, SX_LOP_AND, x, y, none);
    case SX_OP_OR: return op3(l, SX_LOP_OR, x, y, none);
    case SX_OP_XOR: return op3(l, SX_LOP_XOR, x, y, none);
    case SX_OP_NOT: return op3(l, SX_LOP_XOR, x, set_bits(l, UINT32_MAX), none);
    case SX_OP_MAXIMUM: return op3(l, SX_LOP_BLEND, op_imm(l, SX_LOP_ICMP, x, y, SX_GT), x, y);
    case SX_OP_MINIMUM: return op3(l, SX_LOP_BLEND, op_imm(l, SX_LOP_ICMP, y, x, SX_GT), x, y);
    default: return refuse(l, sx_op_info_of(in->op)->name, SX_I32);
    }
}

static uint32_t apply_bool(sx_lower *l, const sx_instr *in, uint32_t x, uint32_t y)
{
    uint32_t none = SX_NO_REG;
    switch (in->op) {
    case SX_OP_ADD:
    case SX_OP_OR: return op3(l, SX_LOP_MOR, x, y, none);
    case SX_OP_MULTIPLY:
    case SX_OP_AND: return op3(l, SX_LOP_MAND, x, y, none);
    case SX_OP_XOR: return op3(l, SX_LOP_MXOR, x, y, none);
    case SX_OP_NOT: return op3(l, SX_LOP_MNOT, x, none, none);
    default: return refuse(l, sx_op_info_of(in->op)->name, SX_BOOL);
    }
}

static uint32_t compare(sx_lower *l, const sx_instr *in, uint32_t x, uint32_t y)
{
    sx_dtype dtype = l->body->instr[in->x].dtype;
    if (dtype == SX_F32) {
        return sx_loop_apply(&l->b, SX_OP_COMPARE, in->direction, x, y, SX_NO_REG);
    }
    if (dtype == SX_I32) {
        return compare_i32(l, in->direction, x, y);
    }
    if (dtype == SX_BOOL && (in->direction == SX_EQ || in->direction == SX_NE)) {
        uint32_t m = op3(l, SX_LOP_MXOR, x, y, SX_NO_REG);
        return in->direction == SX_NE ? m : op3(l, SX_LOP_MNOT, m, SX_NO_REG, SX_NO_REG);
    }
    return refuse(l, "compare", dtype);
}

static uint32_t select_value(sx_lower *l, const sx_instr *in, uint32_t p, uint32_t x, uint32_t y)
{
    if (in->dtype != SX_BOOL) {
        return op3(l, SX_LOP_BLEND, p, x, y);
    }
    uint32_t taken = op3(l, SX_LOP_MAND, p, x, SX_NO_REG);
    uint32_t not_p = op3(l, SX_LOP_MNOT, p, SX_NO_REG, SX_NO_REG);
    return op3(l, SX_LOP_MOR, taken, op3(l, SX_LOP_MAND, not_p, y, SX_NO_REG), SX_NO_REG);
}

/* Rounded toward zero, saturated, NaN to 0. */
static uint32_t float_to_int(sx_lower *l, uint32_t x)
{
    uint32_t r = op3(l, SX_LOP_F2I, x, SX_NO_REG, SX_NO_REG);
    uint32_t above = op_imm(l, SX_LOP_CMP, x, sx_loop_set(&l->b, 2147483648.0f), SX_GE);
    r = op3(l, SX_LOP_BLEND, above, set_bits(l, INT32_MAX), r);
    return op3(l, SX_LOP_BLEND, op_imm(l, SX_LOP_CMP, x, x, SX_EQ), r, set_bits(l, 0));
}

static uint32_t convert(sx_lower *l, const sx_instr *in, uint32_t x)
{
    sx_dtype from = l->body->instr[in->x].dtype;
    sx_dtype to = in->dtype;
    if (from == to && (to == SX_F32 || to == SX_I32 || to == SX_BOOL)) {
        return x;
    }
    if (from == SX_F32 && to == SX_I32) {
        return float_to_int(l, x);
    }
    if (from == SX_I32 && to == SX_F32) {
        return op3(l, SX_LOP_I2F, x, SX_NO_REG, SX_NO_REG);
    }
    if (from == SX_F32 && to == SX_BOOL) {
        return op_imm(l, SX_LOP_CMP, x, sx_loop_set(&l->b, 0.0f), SX_NE);
    }
    if (from == SX_I32 && to == SX_BOOL) {
        return mask_of(l, x);
    }
    if (from == SX_BOOL && (to == SX_F32 || to == SX_I32)) {
        return op3(l, SX_LOP_BLEND, x, sx_lower_constant(l, to, 1), sx_lower_constant(l, to, 0));
    }
    return refuse(l, to == SX_F32 || to == SX_I32 || to == SX_BOOL ? "convert from" : "convert to",
                  to == SX_F32 || to == SX_I32 || to == SX_BOOL ? from : to);
}

static bool is_number(const sx_instr *in)
{
    return in->kind == SX_BODY_IMM && isfinite(in->imm);
}

/* A maximum or minimum with a known number: one instruction, which gives its second operand where that is NaN
 * or equal. Zeros have two signs, so a zero stays in its place. */
static bool bounds(sx_lower *l, const sx_instr *in, uint32_t *result)
{
    if (in->op != SX_OP_MAXIMUM && in->op != SX_OP_MINIMUM) {
        return false;
    }
    const sx_instr *x = &l->body->instr[in->x];
    const sx_instr *y = &l->body->instr[in->y];
    sx_lop lop = in->op == SX_OP_MAXIMUM ? SX_LOP_MAX : SX_LOP_MIN;
    bool turned = !is_number(x) && is_number(y) && y->imm != 0;
    if (!is_number(x) && !turned) {
        return false;
    }
    *result =
        op3(l, lop, l->reg[turned ? in->y : in->x], l->reg[turned ? in->x : in->y], SX_NO_REG);
    return true;
}

static uint32_t apply(sx_lower *l, const sx_instr *in)
{
    uint32_t bounded;
    uint32_t operands = sx_body_operand_count(in);
    uint32_t x = l->reg[in->x];
    uint32_t y = operands > 1 ? l->reg[in->y] : SX_NO_REG;
    uint32_t z = operands > 2 ? l->reg[in->z] : SX_NO_REG;
    switch (in->op) {
    case SX_OP_COMPARE: return compare(l, in, x, y);
    case SX_OP_SELECT: return select_value(l, in, x, y, z);
    case SX_OP_CONVERT: return convert(l, in, x);
    default: break;
    }
    switch (in->dtype) {
    case SX_F32:
        return bounds(l, in, &bounded) ? bounded
                                       : sx_loop_apply(&l->b, in->op, in->direction, x, y, z);
    case SX_I32: return apply_i32(l, in, x, y);
    case SX_BOOL: return apply_bool(l, in, x, y);
    default: return refuse(l, sx_op_info_of(in->op)->name, in->dtype);
    }
}

uint32_t sx_lower_value(sx_lower *l, uint32_t instr)
{
    bool need[SX_FUSED_INSTRS_MAX] = {false};
    const sx_instr *instrs = l->body->instr;
    need[instr] = true;
    for (uint32_t i = instr + 1; i-- > 0;) {
        if (!need[i] || l->have[i] || instrs[i].kind != SX_BODY_APPLY) {
            continue;
        }
        const uint32_t operand[] = {instrs[i].x, instrs[i].y, instrs[i].z};
        for (uint32_t k = 0; k < sx_body_operand_count(&instrs[i]); k++) {
            need[operand[k]] = true;
        }
    }
    for (uint32_t i = 0; i <= instr; i++) {
        const sx_instr *in = &instrs[i];
        if (!need[i] || l->have[i]) {
            continue;
        }
        switch (in->kind) {
        case SX_BODY_ARG: l->reg[i] = sx_lower_load(l, in->x); break;
        case SX_BODY_IMM: l->reg[i] = sx_lower_constant(l, in->dtype, in->imm); break;
        case SX_BODY_INDEX: l->reg[i] = index_value(l, in->x, in->dtype); break;
        case SX_BODY_APPLY: l->reg[i] = apply(l, in); break;
        case SX_BODY_REDUCE:
        case SX_BODY_DOT:
        case SX_BODY_ONLINE: SX_UNREACHABLE(); // written by its lowering beforehand
        }
        l->have[i] = true;
    }
    return l->reg[instr];
}

void sx_lower_store_out(sx_lower *l, uint32_t value, sx_dtype dtype)
{
    sx_addr a = sx_lower_out_address(l);
    sx_lop op = SX_LOP_STORE;
    if (dtype == SX_BOOL) {
        value = op3(l, SX_LOP_BLEND, value, set_bits(l, 1), set_bits(l, 0));
        op = SX_LOP_STORE8;
    } else if (dtype != SX_F32 && dtype != SX_I32) {
        (void)refuse(l, "result", dtype);
    }
    (void)sx_loop_op(&l->b, op, SX_NO_REG, &a, value, SX_NO_REG, SX_NO_REG, l->valid, 0);
}
