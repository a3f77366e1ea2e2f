/* lower_program.c - values of a fused program at the position of a lowering: loads, constants, elementwise
 * instructions, as typed.c puts them in lanes. */
#include "core/ir/num.h"
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
        if (stride[d] == 0) {
            continue;
        }
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

/* Elements that are only moved keep their bits. */
static sx_mem mem_of(const sx_lower *l, sx_dtype dtype)
{
    uint32_t lane_bytes = l->kernel->lane_bytes;
    if (!l->moves) {
        return sx_loop_mem(dtype, lane_bytes);
    }
    uint32_t bytes = sx_dtype_bytes(dtype);
    return bytes == lane_bytes ? SX_MEM_LANE : bytes == 2 ? SX_MEM_U16 : SX_MEM_U8;
}

uint32_t sx_lower_load_raw(sx_lower *l, uint32_t argument)
{
    sx_dtype dtype = l->arg_dtype[argument];
    sx_addr a = sx_lower_arg_address(l, argument);
    sx_mem mem = mem_of(l, dtype);
    int64_t stride =
        l->vector_dim == SX_NO_DIM ? 0 : l->view.stride[argument][l->vector_dim] * l->lane_step;
    return stride == 0   ? sx_loop_access(&l->b, SX_LOP_LOADB, mem, &a, SX_NO_REG, 0, 0)
           : stride == 1 ? sx_loop_access(&l->b, SX_LOP_LOAD, mem, &a, SX_NO_REG, l->valid, 0)
                         : sx_loop_access(&l->b, SX_LOP_LOADS, mem, &a, SX_NO_REG, l->valid,
                                          stride * sx_dtype_bytes(dtype));
}

uint32_t sx_lower_loaded(sx_lower *l, uint32_t argument, uint32_t raw)
{
    return l->moves ? raw : sx_loop_decode(&l->b, l->arg_dtype[argument], raw);
}

uint32_t sx_lower_load(sx_lower *l, uint32_t argument)
{
    return sx_lower_loaded(l, argument, sx_lower_load_raw(l, argument));
}

uint32_t sx_lower_load_raw_along(sx_lower *l, uint32_t argument, uint32_t count)
{
    sx_addr a = sx_lower_arg_address(l, argument);
    sx_mem mem = mem_of(l, l->arg_dtype[argument]);
    return sx_loop_access(&l->b, SX_LOP_LOAD, mem, &a, SX_NO_REG, count, 0);
}

uint32_t sx_lower_load_along(sx_lower *l, uint32_t argument, uint32_t count)
{
    uint32_t raw = sx_lower_load_raw_along(l, argument, count);
    return sx_loop_decode(&l->b, l->arg_dtype[argument], raw);
}

uint32_t sx_lower_rounded(sx_lower *l, sx_dtype dtype, uint32_t value)
{
    if (dtype == SX_BOOL) {
        return sx_loop_decode(&l->b, SX_BOOL, value);
    }
    sx_loop_step step = sx_loop_close_step(dtype, l->kernel->lane_bytes);
    return sx_loop_typed(&l->b, &step, value, SX_NO_REG, SX_NO_REG);
}

bool sx_lower_is_lane_float(const sx_lower *l, sx_dtype dtype)
{
    return dtype == (l->kernel->lane_bytes == 8 ? SX_F64 : SX_F32);
}

uint32_t sx_lower_constant(sx_lower *l, sx_dtype dtype, double value)
{
    return sx_loop_constant(&l->b, dtype, value);
}

/* The index along a dimension: constant + variables + lane. */
static uint32_t index_value(sx_lower *l, uint32_t dim, sx_dtype dtype)
{
    uint32_t d = l->view.view_dim[dim];
    if (d == SX_NO_DIM) {
        return sx_lower_constant(l, dtype, 0);
    }
    const sx_affine *at = &l->at[d];
    if (l->view.extent[d] > INT32_MAX) {
        return refuse(l, "index beyond 32 bits", dtype);
    }
    uint32_t none = SX_NO_REG;
    bool across = d == l->vector_dim;
    bool wide = across && l->lane_step > 1;
    bool steady =
        l->analysis
            ->steady; /* the constant is a number of an instruction that may come at run time */
    uint32_t first = wide || steady ? 0 : (uint32_t)at->constant;
    uint32_t v = across ? sx_loop_op(&l->b, SX_LOP_IOTA, none, NULL, none, none, none, first, 0)
                        : set_bits(l, first);
    if (wide) {
        uint32_t shift = (uint32_t)__builtin_ctzll((uint64_t)l->lane_step);
        v = sx_loop_op(&l->b, SX_LOP_SHL, none, NULL, v, none, none, shift, 0);
        v = steady ? v : op3(l, SX_LOP_IADD, v, sx_loop_bits(&l->b, (uint64_t)at->constant), none);
    }
    if (steady) {
        uint32_t s = sx_loop_op(&l->b, SX_LOP_SVAR, none, NULL, none, none, none, 0, 0);
        s = sx_loop_op(&l->b, SX_LOP_SMUL, none, NULL, s, none, none, 0, 0);
        s = sx_loop_op(&l->b, SX_LOP_SOFF, none, NULL, s, none, none, 0, at->constant);
        v = op3(l, SX_LOP_IADD, v, op3(l, SX_LOP_S2V, s, none, none), none);
    }
    for (uint32_t k = 0; k < SX_LOOP_VARS_MAX; k++) {
        if (at->coef[k] != 0) {
            uint32_t s = sx_loop_op(&l->b, SX_LOP_SVAR, none, NULL, none, none, none, k, 0);
            s = sx_loop_op(&l->b, SX_LOP_SMUL, none, NULL, s, none, none, 0, at->coef[k]);
            v = op3(l, SX_LOP_IADD, v, op3(l, SX_LOP_S2V, s, none, none), none);
        }
    }
    sx_loop_step step = sx_loop_index_step(l->view.extent[d], dtype, l->kernel->lane_bytes);
    return sx_loop_typed(&l->b, &step, v, none, none);
}

/* Is it a known number, in its own type? */
static bool is_number(const sx_instr *in, double *value)
{
    bool known = in->kind == SX_BODY_IMM && sx_dtype_class_of(in->dtype) == SX_CLASS_FLOAT;
    *value = known ? sx_num_round(in->dtype, in->imm) : 0;
    return known && isfinite(*value);
}

/* A maximum or minimum with a known number: one instruction, which gives its second operand where that is NaN
 * or equal. Zeros have two signs, so a zero stays in its place. */
static bool bounds(sx_lower *l, const sx_instr *in, uint32_t *result)
{
    bool order = in->op == SX_OP_MAXIMUM || in->op == SX_OP_MINIMUM;
    if (!order || in->dtype == SX_F8E5M2) {
        return false;
    }
    const sx_instr *x = &l->body->instr[in->x];
    const sx_instr *y = &l->body->instr[in->y];
    sx_lop lop = in->op == SX_OP_MAXIMUM ? SX_LOP_MAX : SX_LOP_MIN;
    double left, right;
    bool number = is_number(x, &left);
    bool turned = !number && is_number(y, &right) && right != 0;
    if (!number && !turned) {
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
    sx_loop_step step = {in->op, in->direction, l->body->instr[in->x].dtype, in->dtype};
    bool real = sx_dtype_class_of(in->dtype) == SX_CLASS_FLOAT;
    return real && bounds(l, in, &bounded) ? bounded : sx_loop_typed(&l->b, &step, x, y, z);
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

uint32_t sx_lower_stored(sx_lower *l, uint32_t value, sx_dtype dtype)
{
    return l->moves ? value : sx_loop_encode(&l->b, dtype, value);
}

void sx_lower_store_raw(sx_lower *l, uint32_t raw, sx_dtype dtype)
{
    sx_addr a = sx_lower_out_address(l);
    bool wide = l->lane_step > 1;
    (void)sx_loop_access(&l->b, wide ? SX_LOP_STORES : SX_LOP_STORE, mem_of(l, dtype), &a, raw,
                         l->valid, wide ? l->lane_step * sx_dtype_bytes(dtype) : 0);
}

void sx_lower_choose_result(sx_lower *l, uint32_t result)
{
    const sx_analysis *a = l->analysis;
    SX_ASSERT(result < a->result_count && l->out_result <= l->out_buffer);
    if (a->result_count > 1) {
        l->out_buffer = l->out_buffer - l->out_result + result;
        l->out_result = result;
        l->out_dtype = a->root_dtype[result];
        sx_view_result_strides(&l->view, a->root_full[result], l->view.out_stride);
    }
}

void sx_lower_store_out(sx_lower *l, uint32_t value, sx_dtype dtype)
{
    sx_lower_store_raw(l, sx_lower_stored(l, value, dtype), dtype);
}
