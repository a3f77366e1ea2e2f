/* loop_ops.c - instructions of the loop IR as PTX, one lane in each thread. */
#include "core/nvidia/loop.h"
#include "core/nvidia/loop_inside.h"

/* ---- shorthand ---- */
static sx_ptx_arg fresh(sx_nvidia_lowering *l, sx_ptx_register_class class_of)
{
    return sx_ptx_register(&l->b, class_of);
}

static bool is_wide(const sx_nvidia_lowering *l)
{
    return l->kernel->lane_bytes == 8;
}

/* Modifiers that end in the float, integer or bit type of a lane. */
static sx_ptx_modifiers of_type(const sx_nvidia_lowering *l, sx_ptx_modifiers m,
                                sx_ptx_modifier narrow, sx_ptx_modifier wide)
{
    uint32_t at = 0;
    while (m.item[at] != 0) {
        at++;
    }
    SX_ASSERT(at + 1 < SX_PTX_SLOTS_MAX);
    m.item[at] = (uint16_t)(is_wide(l) ? wide : narrow);
    return m;
}

static sx_ptx_modifiers of_float(const sx_nvidia_lowering *l, sx_ptx_modifiers m)
{
    return of_type(l, m, SX_PTX_TYPE_F32, SX_PTX_TYPE_F64);
}

static sx_ptx_modifiers of_bits(const sx_nvidia_lowering *l, sx_ptx_modifiers m)
{
    return of_type(l, m, SX_PTX_TYPE_B32, SX_PTX_TYPE_B64);
}

static sx_ptx_modifiers of_signed(const sx_nvidia_lowering *l, sx_ptx_modifiers m)
{
    return of_type(l, m, SX_PTX_TYPE_S32, SX_PTX_TYPE_S64);
}

static sx_ptx_arg lane_register(sx_nvidia_lowering *l)
{
    return fresh(l, is_wide(l) ? SX_PTX_B64 : SX_PTX_B32);
}

/* ---- floats ---- */
/* a > b ? a : b, or with <. */
static void put_order(sx_nvidia_lowering *l, sx_ptx_modifier compare, sx_ptx_arg d, sx_ptx_arg a,
                      sx_ptx_arg b)
{
    sx_ptx_arg first = fresh(l, SX_PTX_PRED);
    SX_PTX_PUT(&l->b, SETP, of_float(l, SX_PTX_M((uint16_t)compare)), first, a, b);
    SX_PTX_PUT(&l->b, SELP, of_bits(l, SX_PTX_M(0)), d, a, b, first);
}

static void put_round(sx_nvidia_lowering *l, uint32_t mode, sx_ptx_arg d, sx_ptx_arg a)
{
    static const uint16_t round[4] = {SX_PTX_ROUND_RNI, SX_PTX_ROUND_RMI, SX_PTX_ROUND_RPI,
                                      SX_PTX_ROUND_RZI};
    SX_ASSERT(mode < SX_COUNT(round));
    uint16_t type = is_wide(l) ? SX_PTX_TYPE_F64 : SX_PTX_TYPE_F32;
    SX_PTX_PUT(&l->b, CVT, SX_PTX_M(round[mode], type, type), d, a);
}

static void put_float(sx_nvidia_lowering *l, const sx_item *item, sx_ptx_arg d, sx_ptx_arg a,
                      sx_ptx_arg b, sx_ptx_arg c)
{
    const bool wide = is_wide(l);
    sx_ptx_modifiers m = of_float(l, SX_PTX_M(SX_PTX_ROUND_RN));
    const sx_ptx_arg two[] = {d, a, b};
    sx_ptx_op op = SX_PTX_OP_COUNT;
    switch (item->op) {
    case SX_LOP_ADD: op = wide ? SX_PTX_OP_ADD_F64 : SX_PTX_OP_ADD_F32; break;
    case SX_LOP_SUB: op = wide ? SX_PTX_OP_SUB_F64 : SX_PTX_OP_SUB_F32; break;
    case SX_LOP_MUL: op = wide ? SX_PTX_OP_MUL_F64 : SX_PTX_OP_MUL_F32; break;
    case SX_LOP_DIV: op = wide ? SX_PTX_OP_DIV_F64 : SX_PTX_OP_DIV_F32; break;
    default: break;
    }
    sx_ptx_op fma = wide ? SX_PTX_OP_FMA_F64 : SX_PTX_OP_FMA_F32;
    sx_ptx_arg minus;
    switch (item->op) {
    case SX_LOP_MAX: put_order(l, SX_PTX_COMPARE_GT, d, a, b); return;
    case SX_LOP_MIN: put_order(l, SX_PTX_COMPARE_LT, d, a, b); return;
    case SX_LOP_SQRT:
        sx_ptx_put(&l->b, wide ? SX_PTX_OP_SQRT_F64 : SX_PTX_OP_SQRT_F32, m, two, 2);
        return;
    case SX_LOP_FMA: sx_ptx_put(&l->b, fma, m, (const sx_ptx_arg[]){d, a, b, c}, 4); return;
    case SX_LOP_FNMA:
        minus = lane_register(l);
        SX_PTX_PUT(&l->b, NEG_F, of_float(l, SX_PTX_M(0)), minus, a);
        sx_ptx_put(&l->b, fma, m, (const sx_ptx_arg[]){d, minus, b, c}, 4);
        return;
    case SX_LOP_ROUND: put_round(l, item->imm, d, a); return;
    default: sx_ptx_put(&l->b, op, m, two, 3); return;
    }
}

/* ---- integers and bits ---- */
/* The low halves of both as unsigned numbers, multiplied. */
static void put_imul(sx_nvidia_lowering *l, sx_ptx_arg d, sx_ptx_arg a, sx_ptx_arg b)
{
    if (!is_wide(l)) {
        SX_PTX_PUT(&l->b, MUL, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S32), d, a, b);
        return;
    }
    sx_ptx_arg low[2];
    low[0] = fresh(l, SX_PTX_B32);
    low[1] = fresh(l, SX_PTX_B32);
    SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_TYPE_U32, SX_PTX_TYPE_U64), low[0], a);
    SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_TYPE_U32, SX_PTX_TYPE_U64), low[1], b);
    SX_PTX_PUT(&l->b, MUL_WIDE, SX_PTX_M(SX_PTX_TYPE_U32), d, low[0], low[1]);
}

/* PTX takes numbers of places as unsigned ones of 32 bits, and large ones as the number of bits. */
static void put_shift(sx_nvidia_lowering *l, const sx_item *item, sx_ptx_arg d, sx_ptx_arg a,
                      sx_ptx_arg b)
{
    if (is_wide(l)) {
        sx_ptx_arg least = fresh(l, SX_PTX_B64);
        sx_ptx_arg places = fresh(l, SX_PTX_B32);
        SX_PTX_PUT(&l->b, MIN, SX_PTX_M(SX_PTX_TYPE_U64), least, b, sx_ptx_imm(64));
        SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_TYPE_U32, SX_PTX_TYPE_U64), places, least);
        b = places;
    }
    sx_ptx_modifiers m = of_bits(l, SX_PTX_M(0));
    switch (item->op) {
    case SX_LOP_SHLV: SX_PTX_PUT(&l->b, SHL, m, d, a, b); return;
    case SX_LOP_SHRV: SX_PTX_PUT(&l->b, SHR, m, d, a, b); return;
    default: SX_PTX_PUT(&l->b, SHR, of_signed(l, SX_PTX_M(0)), d, a, b); return;
    }
}

/* Toward zero; 0x80000000 where PTX would saturate, and for NaN. */
static void put_f2i(sx_nvidia_lowering *l, sx_ptx_arg d, sx_ptx_arg a)
{
    sx_ptx_arg made = fresh(l, SX_PTX_B32);
    sx_ptx_arg above = fresh(l, SX_PTX_PRED);
    sx_ptx_arg inside = fresh(l, SX_PTX_PRED);
    SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_ROUND_RZI, SX_PTX_TYPE_S32, SX_PTX_TYPE_F32), made, a);
    SX_PTX_PUT(&l->b, SETP, SX_PTX_M(SX_PTX_COMPARE_GE, SX_PTX_TYPE_F32), above, a,
               sx_ptx_imm_f32(-2147483648.0F));
    SX_PTX_PUT(&l->b, SETP_JOIN, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_JOIN_AND, SX_PTX_TYPE_F32),
               inside, a, sx_ptx_imm_f32(2147483648.0F), above);
    SX_PTX_PUT(&l->b, SELP, SX_PTX_M(SX_PTX_TYPE_B32), d, made, sx_ptx_imm(INT32_MIN), inside);
}

/* Rounded to the float of half the width, as a float of the lane. */
static void put_halve(sx_nvidia_lowering *l, sx_ptx_arg d, sx_ptx_arg a)
{
    bool wide = is_wide(l);
    uint16_t type = wide ? SX_PTX_TYPE_F64 : SX_PTX_TYPE_F32;
    uint16_t half = wide ? SX_PTX_TYPE_F32 : SX_PTX_TYPE_F16;
    sx_ptx_arg made = fresh(l, wide ? SX_PTX_B32 : SX_PTX_B16);
    SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_ROUND_RN, half, type), made, a);
    SX_PTX_PUT(&l->b, CVT, SX_PTX_M(type, half), d, made);
}

/* One word of each thread from another thread of the warp. */
static void put_shuffle(sx_nvidia_lowering *l, sx_ptx_modifier mode, uint32_t n, sx_ptx_arg d,
                        sx_ptx_arg a)
{
    sx_ptx_modifiers m = SX_PTX_M((uint16_t)mode);
    sx_ptx_arg from = sx_ptx_imm(n);
    sx_ptx_arg bound = sx_ptx_imm(31);
    sx_ptx_arg all = sx_ptx_imm(UINT32_MAX);
    if (!is_wide(l)) {
        SX_PTX_PUT(&l->b, SHFL, m, d, a, from, bound, all);
        return;
    }
    sx_ptx_arg halves = sx_ptx_registers(&l->b, SX_PTX_B32, 2);
    SX_PTX_PUT(&l->b, MOV_UNPACK, SX_PTX_M(SX_PTX_TYPE_B64), halves, a);
    for (uint32_t h = 0; h < 2; h++) {
        sx_ptx_arg half = sx_ptx_element(&l->b, halves, h);
        SX_PTX_PUT(&l->b, SHFL, m, half, half, from, bound, all);
    }
    SX_PTX_PUT(&l->b, MOV_PACK, SX_PTX_M(SX_PTX_TYPE_B64), d, halves);
}

static void put_bits(sx_nvidia_lowering *l, const sx_item *item, sx_ptx_arg d, sx_ptx_arg a,
                     sx_ptx_arg b)
{
    sx_ptx_modifiers bits = of_bits(l, SX_PTX_M(0));
    sx_ptx_arg n = sx_ptx_imm(item->imm);
    switch (item->op) {
    case SX_LOP_MOV: SX_PTX_PUT(&l->b, MOV, bits, d, a); return;
    case SX_LOP_AND: SX_PTX_PUT(&l->b, AND, bits, d, a, b); return;
    case SX_LOP_OR: SX_PTX_PUT(&l->b, OR, bits, d, a, b); return;
    case SX_LOP_XOR: SX_PTX_PUT(&l->b, XOR, bits, d, a, b); return;
    case SX_LOP_IADD: SX_PTX_PUT(&l->b, ADD, of_signed(l, SX_PTX_M(0)), d, a, b); return;
    case SX_LOP_ISUB: SX_PTX_PUT(&l->b, SUB, of_signed(l, SX_PTX_M(0)), d, a, b); return;
    case SX_LOP_IMUL: put_imul(l, d, a, b); return;
    case SX_LOP_SHL: SX_PTX_PUT(&l->b, SHL, bits, d, a, n); return;
    case SX_LOP_SHR: SX_PTX_PUT(&l->b, SHR, bits, d, a, n); return;
    case SX_LOP_SAR: SX_PTX_PUT(&l->b, SHR, of_signed(l, SX_PTX_M(0)), d, a, n); return;
    case SX_LOP_SHLV:
    case SX_LOP_SHRV:
    case SX_LOP_SARV: put_shift(l, item, d, a, b); return;
    case SX_LOP_F2I: put_f2i(l, d, a); return;
    case SX_LOP_I2F:
        SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_ROUND_RN, SX_PTX_TYPE_F32, SX_PTX_TYPE_S32), d, a);
        return;
    case SX_LOP_HALVE: put_halve(l, d, a); return;
    case SX_LOP_SWAP: put_shuffle(l, SX_PTX_SHUFFLE_BFLY, item->imm, d, a); return;
    case SX_LOP_BCAST0: put_shuffle(l, SX_PTX_SHUFFLE_IDX, 0, d, a); return;
    default: SX_UNREACHABLE();
    }
}

/* ---- masks ---- */
static void put_compare(sx_nvidia_lowering *l, const sx_item *item, sx_ptx_arg d, sx_ptx_arg a,
                        sx_ptx_arg b)
{
    static const uint16_t compare[SX_DIRECTION_COUNT] = {
        [SX_EQ] = SX_PTX_COMPARE_EQ, [SX_NE] = SX_PTX_COMPARE_NE, [SX_LT] = SX_PTX_COMPARE_LT,
        [SX_LE] = SX_PTX_COMPARE_LE, [SX_GT] = SX_PTX_COMPARE_GT, [SX_GE] = SX_PTX_COMPARE_GE};
    SX_ASSERT(item->imm < SX_DIRECTION_COUNT);
    uint16_t direction = compare[item->imm];
    if (item->op == SX_LOP_ICMP) {
        SX_PTX_PUT(&l->b, SETP, of_signed(l, SX_PTX_M(direction)), d, a, b);
        return;
    }
    /* .ne is false for NaN, .neu is true */
    direction = direction == SX_PTX_COMPARE_NE ? SX_PTX_COMPARE_NEU : direction;
    SX_PTX_PUT(&l->b, SETP, of_float(l, SX_PTX_M(direction)), d, a, b);
}

static void put_mask(sx_nvidia_lowering *l, const sx_item *item)
{
    sx_ptx_modifiers m = SX_PTX_M(SX_PTX_TYPE_PRED);
    sx_ptx_arg d = l->mask[item->dst];
    sx_ptx_arg a = l->mask[item->src[0]];
    switch (item->op) {
    case SX_LOP_MAND: SX_PTX_PUT(&l->b, AND, m, d, a, l->mask[item->src[1]]); return;
    case SX_LOP_MOR: SX_PTX_PUT(&l->b, OR, m, d, a, l->mask[item->src[1]]); return;
    case SX_LOP_MXOR: SX_PTX_PUT(&l->b, XOR, m, d, a, l->mask[item->src[1]]); return;
    default: SX_PTX_PUT(&l->b, NOT, m, d, a); return;
    }
}

/* ---- memory ---- */
/* How an element lies in memory: the type of the access, and the float type it is, if its width is another. */
typedef struct {
    uint16_t access, element;
    sx_ptx_register_class held; /* of the register that the access fills */
} memory_form;

static memory_form form_of(const sx_nvidia_lowering *l, sx_mem mem)
{
    bool wide = is_wide(l);
    sx_ptx_register_class lane = wide ? SX_PTX_B64 : SX_PTX_B32;
    switch (mem) {
    case SX_MEM_LANE: return (memory_form){wide ? SX_PTX_TYPE_B64 : SX_PTX_TYPE_B32, 0, lane};
    case SX_MEM_HALF:
        return wide ? (memory_form){SX_PTX_TYPE_B32, SX_PTX_TYPE_F32, SX_PTX_B32}
                    : (memory_form){SX_PTX_TYPE_B16, SX_PTX_TYPE_F16, SX_PTX_B16};
    case SX_MEM_I32: return (memory_form){SX_PTX_TYPE_S32, 0, lane};
    case SX_MEM_I16: return (memory_form){SX_PTX_TYPE_S16, 0, lane};
    case SX_MEM_U16: return (memory_form){SX_PTX_TYPE_U16, 0, lane};
    case SX_MEM_I8: return (memory_form){SX_PTX_TYPE_S8, 0, lane};
    case SX_MEM_U8: return (memory_form){SX_PTX_TYPE_U8, 0, lane};
    default: SX_UNREACHABLE();
    }
}

static void guard_partial(sx_nvidia_lowering *l, uint32_t lanes)
{
    if (lanes < SX_NVIDIA_LANES && !(l->by_element && l->partial[1].kind == SX_PTX_ARG_NONE)) {
        sx_ptx_guard(&l->b, l->partial[lanes]);
    }
}

/* The lanes of `d` get `lanes` elements, the others 0. */
static void put_load(sx_nvidia_lowering *l, uint32_t index, uint32_t lanes)
{
    const sx_item *item = &l->part->item[index];
    uint16_t lane_type = is_wide(l) ? SX_PTX_TYPE_F64 : SX_PTX_TYPE_F32;
    memory_form form = form_of(l, item->mem);
    sx_ptx_arg d = l->vector[item->dst];
    sx_ptx_arg held = form.element != 0 ? fresh(l, form.held) : d;
    sx_ptx_arg address = sx_nvidia_address(l, index);
    if (lanes < SX_NVIDIA_LANES) {
        uint16_t bits = form.held == SX_PTX_B64   ? SX_PTX_TYPE_B64
                        : form.held == SX_PTX_B32 ? SX_PTX_TYPE_B32
                                                  : SX_PTX_TYPE_B16;
        SX_PTX_PUT(&l->b, MOV, SX_PTX_M(bits), held, sx_ptx_imm(0));
    }
    guard_partial(l, lanes);
    SX_PTX_PUT(&l->b, LD, SX_PTX_M(sx_nvidia_space(l, item), form.access), held, address);
    if (form.element != 0) {
        SX_PTX_PUT(&l->b, CVT, SX_PTX_M(lane_type, form.element), d, held);
    }
}

/* Waits until all threads of the warp are here, and sees what they wrote. */
static void put_warp_barrier(sx_nvidia_lowering *l)
{
    SX_PTX_PUT(&l->b, BAR_WARP, SX_PTX_M(0), sx_ptx_imm(UINT32_MAX));
}

static void put_store(sx_nvidia_lowering *l, uint32_t index)
{
    const sx_item *item = &l->part->item[index];
    uint16_t lane_type = is_wide(l) ? SX_PTX_TYPE_F64 : SX_PTX_TYPE_F32;
    memory_form form = form_of(l, item->mem);
    sx_ptx_arg value = l->vector[item->src[0]];
    if (form.element != 0) {
        sx_ptx_arg held = fresh(l, form.held);
        SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_ROUND_RN, form.element, lane_type), held, value);
        value = held;
    }
    sx_ptx_arg address = sx_nvidia_address(l, index);
    bool shared = l->shared_by_lanes[l->part->addr[item->addr].buffer];
    if (shared) {
        put_warp_barrier(l);
    }
    guard_partial(l, item->imm);
    SX_PTX_PUT(&l->b, ST, SX_PTX_M(sx_nvidia_space(l, item), form.access), address, value);
    if (shared) {
        put_warp_barrier(l);
    }
}

/* ---- integers of the whole warp ---- */
static void put_scalar(sx_nvidia_lowering *l, uint32_t index)
{
    const sx_item *item = &l->part->item[index];
    sx_ptx_modifiers s64 = SX_PTX_M(SX_PTX_TYPE_S64);
    sx_ptx_arg d = l->scalar[item->dst];
    sx_ptx_arg a = item->op >= SX_LOP_SWRAP ? l->scalar[item->src[0]] : d;
    sx_ptx_arg test;
    switch (item->op) {
    case SX_LOP_SLOAD32:
    case SX_LOP_SLOAD64:
        SX_PTX_PUT(&l->b, LD,
                   SX_PTX_M(sx_nvidia_space(l, item),
                            item->op == SX_LOP_SLOAD32 ? SX_PTX_TYPE_S32 : SX_PTX_TYPE_S64),
                   d, sx_nvidia_address(l, index));
        return;
    case SX_LOP_SVAR:
        if (l->by_element) {
            SX_PTX_PUT(&l->b, ADD, s64, d, l->variable[item->imm], sx_ptx_imm(l->shift[item->imm]));
        } else if (item->imm < 3) {
            SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B64), d, l->variable[item->imm]);
        } else {
            SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_TYPE_S64, SX_PTX_TYPE_S32), d,
                       l->variable[item->imm]);
        }
        return;
    case SX_LOP_SWRAP:
        test = fresh(l, SX_PTX_PRED);
        SX_PTX_PUT(&l->b, SETP, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_TYPE_S64), test, a,
                   sx_ptx_imm(0));
        SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B64), d, a);
        sx_ptx_guard(&l->b, test);
        SX_PTX_PUT(&l->b, ADD, s64, d, d, sx_ptx_imm(item->imm2));
        return;
    case SX_LOP_SCLAMP:
        SX_PTX_PUT(&l->b, MIN, s64, d, a, sx_ptx_imm(item->imm2 - 1));
        SX_PTX_PUT(&l->b, MAX, s64, d, d, sx_ptx_imm(0));
        return;
    case SX_LOP_SADD: SX_PTX_PUT(&l->b, ADD, s64, d, a, l->scalar[item->src[1]]); return;
    case SX_LOP_SOFF: SX_PTX_PUT(&l->b, ADD, s64, d, a, sx_ptx_imm(item->imm2)); return;
    default:
        SX_PTX_PUT(&l->b, MUL, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S64), d, a,
                   sx_ptx_imm(item->imm2));
        return;
    }
}

/* ---- constants and numbers in lanes ---- */
static void put_made(sx_nvidia_lowering *l, const sx_item *item, sx_ptx_arg d)
{
    sx_ptx_arg value;
    switch (item->op) {
    case SX_LOP_SET:
        value = sx_ptx_imm(is_wide(l) ? (int64_t)sx_item_bits(item) : (int64_t)item->imm);
        SX_PTX_PUT(&l->b, MOV, of_bits(l, SX_PTX_M(0)), d, value);
        return;
    case SX_LOP_IOTA:
        value = is_wide(l) ? l->lane_wide : l->lane;
        SX_PTX_PUT(&l->b, ADD, of_signed(l, SX_PTX_M(0)), d, value, sx_ptx_imm(item->imm));
        return;
    default:
        value = l->scalar[item->src[0]];
        if (is_wide(l)) {
            SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B64), d, value);
        } else {
            SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_TYPE_U32, SX_PTX_TYPE_U64), d, value);
        }
        return;
    }
}

void sx_nvidia_op(sx_nvidia_lowering *l, uint32_t index)
{
    const sx_item *item = &l->part->item[index];
    const sx_lop_info *info = sx_lop_info_of(item->op);
    sx_ptx_arg v[3] = {{0}};
    uint32_t operand = 0;
    uint32_t vectors = 0;
    for (const char *p = info->operands; *p != '\0'; p++) {
        if (*p == 'v') {
            v[vectors++] = l->vector[item->src[operand]];
        }
        operand += *p == 'v' || *p == 'm' || *p == 's';
    }
    sx_ptx_arg d = info->result == 'v' ? l->vector[item->dst] : (sx_ptx_arg){0};
    switch (item->op) {
    case SX_LOP_PREFETCH: return; /* other warps hide the latency */
    case SX_LOP_LOAD:
    case SX_LOP_LOADS: put_load(l, index, item->imm); return;
    case SX_LOP_LOADB:
        if (!sx_nvidia_load_group(l, index)) {
            put_load(l, index, l->by_element ? 1 : SX_NVIDIA_LANES);
        }
        return;
    case SX_LOP_STORE:
        if (!sx_nvidia_store_group(l, index)) {
            put_store(l, index);
        }
        return;
    case SX_LOP_STORES: put_store(l, index); return;
    case SX_LOP_SET:
    case SX_LOP_IOTA:
    case SX_LOP_S2V: put_made(l, item, d); return;
    case SX_LOP_CMP:
    case SX_LOP_ICMP: put_compare(l, item, l->mask[item->dst], v[0], v[1]); return;
    case SX_LOP_MAND:
    case SX_LOP_MOR:
    case SX_LOP_MXOR:
    case SX_LOP_MNOT: put_mask(l, item); return;
    case SX_LOP_BLEND:
        SX_PTX_PUT(&l->b, SELP, of_bits(l, SX_PTX_M(0)), d, v[0], v[1], l->mask[item->src[0]]);
        return;
    case SX_LOP_SLOAD32:
    case SX_LOP_SLOAD64:
    case SX_LOP_SVAR:
    case SX_LOP_SWRAP:
    case SX_LOP_SCLAMP:
    case SX_LOP_SADD:
    case SX_LOP_SOFF:
    case SX_LOP_SMUL: put_scalar(l, index); return;
    default: break;
    }
    if (item->op >= SX_LOP_ADD && item->op <= SX_LOP_ROUND) {
        put_float(l, item, d, v[0], v[1], v[2]);
    } else {
        put_bits(l, item, d, v[0], v[1]);
    }
}
