/* select.c - vector and mask instructions of the loop IR as machine instructions.
 *
 * A source is a register, or memory: a constant without a register or a folded load. Where the machine wants a
 * register, the value goes to the destination if no other source is there, else to a scratch register; the
 * first use of one only counts the need, and the part is made again with the register set aside. */
#include "core/x64/gen.h"

#include <string.h>

typedef sx_x64_arg arg;

static arg vreg(const sx_gen *g, uint32_t reg)
{
    return sx_x64_reg(g->lanes == 16 ? SX_X64_ZMM : SX_X64_YMM, reg);
}

static arg ymm(uint32_t reg)
{
    return sx_x64_reg(SX_X64_YMM, reg);
}

static arg xmm(uint32_t reg)
{
    return sx_x64_reg(SX_X64_XMM, reg);
}

static bool in_memory(arg a)
{
    return a.kind == SX_X64_MEM;
}

static void put1(sx_gen *g, sx_x64_op op, arg a)
{
    sx_x64_put(g->as, op, &a, 1);
}

static void put2(sx_gen *g, sx_x64_op op, arg a, arg b)
{
    sx_x64_put(g->as, op, (const arg[]){a, b}, 2);
}

static void put3(sx_gen *g, sx_x64_op op, arg a, arg b, arg c)
{
    sx_x64_put(g->as, op, (const arg[]){a, b, c}, 3);
}

static void put4(sx_gen *g, sx_x64_op op, arg a, arg b, arg c, arg d)
{
    sx_x64_put(g->as, op, (const arg[]){a, b, c, d}, 4);
}

/* The next register set aside, from the top. */
static uint32_t scratch(sx_gen *g)
{
    uint32_t number = g->vector_taken++;
    g->vector_need = g->vector_need < g->vector_taken ? g->vector_taken : g->vector_need;
    return (g->lanes == 16 ? 31 : 15) - (number < SX_GEN_SCRATCH_MAX ? number : 0);
}

static uint32_t mask_scratch(sx_gen *g)
{
    uint32_t number = g->mask_taken++;
    g->mask_need = g->mask_need < g->mask_taken ? g->mask_taken : g->mask_need;
    return 7 - (number < SX_GEN_SCRATCH_MAX ? number : 0);
}

/* ---- constants ---- */
static void constant_words(const sx_gen *g, const sx_constant *constant, uint32_t words[16])
{
    for (uint32_t i = 0; i < g->lanes; i++) {
        words[i] = constant->kind == SX_CONSTANT_SET ? constant->bits : constant->bits + i;
    }
}

static uint32_t whole_constant(sx_gen *g, const sx_constant *constant)
{
    uint32_t words[16];
    constant_words(g, constant, words);
    return sx_x64_const_put(g->as, words, 4 * g->lanes, 4 * g->lanes);
}

static void load_value(sx_gen *g, const sx_constant *constant, uint32_t reg)
{
    if (constant->kind == SX_CONSTANT_IOTA) {
        put2(g, SX_X64_VMOVUPS, vreg(g, reg), sx_x64_at(whole_constant(g, constant)));
    } else if (constant->bits == 0) {
        put3(g, SX_X64_VXORPS, ymm(reg), ymm(reg), ymm(reg));
    } else {
        uint32_t label = sx_x64_const_put(g->as, &constant->bits, 4, 4);
        put2(g, SX_X64_VBROADCASTSS, vreg(g, reg), sx_x64_at(label));
    }
}

void sx_gen_load_constant(sx_gen *g, uint32_t constant, uint32_t reg)
{
    load_value(g, &g->constant[constant], reg);
}

static arg constant_source(sx_gen *g, uint32_t index)
{
    const sx_live *live = &g->vector.live[g->first_constant + index];
    if (live->reg >= 0) {
        return vreg(g, (uint32_t)live->reg);
    }
    const sx_constant *constant = &g->constant[index];
    if (g->lanes == 16 && constant->kind == SX_CONSTANT_SET) {
        return sx_x64_broadcast(sx_x64_at(sx_x64_const_put(g->as, &constant->bits, 4, 4)));
    }
    return sx_x64_at(whole_constant(g, constant));
}

/* ---- operands ---- */
static sx_live *mask_live(sx_gen *g, uint32_t reg)
{
    return g->lanes == 16 ? &g->mask.live[reg] : &g->vector.live[g->first_mask + reg];
}

/* The destination: its register, or one set aside whose value goes to the stack behind the instruction (put_back). */
static uint32_t result_reg(sx_gen *g, const sx_live *live, bool k)
{
    if (live->reg >= 0) {
        return (uint32_t)live->reg;
    }
    if (g->result_taken == SX_GEN_NONE) {
        g->result_taken = k ? mask_scratch(g) : scratch(g);
    }
    return g->result_taken;
}

static uint32_t vector_reg(sx_gen *g, uint32_t reg)
{
    return result_reg(g, &g->vector.live[reg], false);
}

static uint32_t mask_result(sx_gen *g, uint32_t reg)
{
    return result_reg(g, mask_live(g, reg), g->lanes == 16);
}

static uint32_t mask_reg(sx_gen *g, uint32_t reg)
{
    const sx_live *live = mask_live(g, reg);
    if (live->reg >= 0) {
        return (uint32_t)live->reg;
    }
    uint32_t place = g->lanes == 16 ? mask_scratch(g) : scratch(g);
    if (g->lanes == 16) {
        put2(g, SX_X64_MOV, sx_x64_r32(SX_RAX_SCRATCH), sx_gen_slot(live));
        put2(g, SX_X64_KMOVW, sx_x64_k(place), sx_x64_r32(SX_RAX_SCRATCH));
    } else {
        put2(g, SX_X64_VMOVUPS, vreg(g, place), sx_gen_slot(live));
    }
    return place;
}

static void put_back(sx_gen *g, const sx_item *item)
{
    if (g->result_taken == SX_GEN_NONE) {
        return;
    }
    if (sx_lop_info_of(item->op)->result == 'v') {
        put2(g, SX_X64_VMOVUPS, sx_gen_slot(&g->vector.live[item->dst]), vreg(g, g->result_taken));
    } else if (g->lanes == 8) {
        put2(g, SX_X64_VMOVUPS, sx_gen_slot(mask_live(g, item->dst)), vreg(g, g->result_taken));
    } else {
        put2(g, SX_X64_KMOVW, sx_x64_r32(SX_RAX_SCRATCH), sx_x64_k(g->result_taken));
        put2(g, SX_X64_MOV, sx_gen_slot(mask_live(g, item->dst)), sx_x64_r32(SX_RAX_SCRATCH));
    }
}

static arg source(sx_gen *g, uint32_t reg)
{
    if (g->constant_of[reg] != SX_GEN_NONE) {
        return constant_source(g, g->constant_of[reg]);
    }
    if (g->fold_of[reg] != SX_GEN_NONE) {
        arg mem = sx_gen_address(g, g->fold_of[reg], 0);
        mem.broadcast = g->part->item[g->fold_of[reg]].op == SX_LOP_LOADB;
        return mem;
    }
    const sx_live *live = &g->vector.live[reg];
    return live->reg >= 0 ? vreg(g, (uint32_t)live->reg) : sx_gen_slot(live);
}

/* A source as a register: itself, or loaded into `place`. */
static arg loaded(sx_gen *g, arg a, uint32_t place)
{
    if (!in_memory(a)) {
        return a;
    }
    bool broadcast = a.broadcast;
    a.broadcast = false;
    put2(g, broadcast ? SX_X64_VBROADCASTSS : SX_X64_VMOVUPS, vreg(g, place), a);
    return vreg(g, place);
}

static bool is_reg(arg a, uint32_t reg)
{
    return !in_memory(a) && a.reg == reg;
}

static uint32_t tail_mask(sx_gen *g, uint32_t lanes)
{
    const sx_live *live = &g->mask.live[g->first_tail + lanes];
    if (live->reg >= 0) {
        return (uint32_t)live->reg;
    }
    uint32_t place = mask_scratch(g);
    sx_gen_load_tail(g, lanes, place);
    return place;
}

void sx_gen_load_tail(sx_gen *g, uint32_t lanes, uint32_t k)
{
    put2(g, SX_X64_MOV, sx_x64_r32(SX_RAX_SCRATCH), sx_x64_imm((INT64_C(1) << lanes) - 1));
    put2(g, SX_X64_KMOVW, sx_x64_k(k), sx_x64_r32(SX_RAX_SCRATCH));
}

/* ---- arithmetic ---- */
static void binary(sx_gen *g, sx_x64_op op, bool commutes, uint32_t dst, arg a, arg b)
{
    if (in_memory(a) && commutes && !in_memory(b)) {
        arg swap = a;
        a = b;
        b = swap;
    }
    if (in_memory(a)) {
        a = loaded(g, a, is_reg(b, dst) ? scratch(g) : dst);
    }
    put3(g, op, vreg(g, dst), a, b);
}

/* a * b + c, or c - a * b: the form is chosen by which operand dies in the destination and which is in memory. */
static void fused(sx_gen *g, bool negate, uint32_t dst, arg a, arg b, arg c)
{
    sx_x64_op f132 = negate ? SX_X64_VFNMADD132PS : SX_X64_VFMADD132PS;
    sx_x64_op f213 = negate ? SX_X64_VFNMADD213PS : SX_X64_VFMADD213PS;
    sx_x64_op f231 = negate ? SX_X64_VFNMADD231PS : SX_X64_VFMADD231PS;
    arg d = vreg(g, dst);
    if (in_memory(a) && in_memory(b)) {
        a = loaded(g, a, is_reg(c, dst) ? scratch(g) : dst);
    }
    if (in_memory(a)) {
        arg swap = a;
        a = b;
        b = swap;
    }
    if (in_memory(b) && in_memory(c)) { /* a is a register: one of the two must be loaded */
        if (is_reg(a, dst)) {
            b = loaded(g, b, scratch(g));
        } else {
            c = loaded(g, c, dst);
        }
    }
    if (is_reg(c, dst)) {
        put3(g, f231, d, a, b);
    } else if (is_reg(b, dst)) {
        put3(g, f213, d, a, c);
    } else if (is_reg(a, dst) && in_memory(b)) {
        put3(g, f132, d, c, b);
    } else if (is_reg(a, dst)) {
        put3(g, f213, d, b, c);
    } else if (in_memory(c)) {
        put2(g, SX_X64_VMOVAPS, d, a);
        put3(g, f213, d, b, c);
    } else {
        put2(g, SX_X64_VMOVAPS, d, c);
        put3(g, f231, d, a, b);
    }
}

static void shift(sx_gen *g, sx_x64_op op, uint32_t dst, arg a, uint32_t amount)
{
    put3(g, op, vreg(g, dst), loaded(g, a, dst), sx_x64_imm(amount));
}

static void exchange(sx_gen *g, uint32_t dst, arg a, uint32_t n)
{
    arg d = vreg(g, dst);
    a = loaded(g, a, dst);
    if (n <= 2) {
        put3(g, SX_X64_VPERMILPS, d, a, sx_x64_imm(n == 1 ? 0xB1 : 0x4E));
    } else if (g->lanes == 8) {
        put3(g, SX_X64_VPERMPD, d, a, sx_x64_imm(0x4E));
    } else {
        put4(g, SX_X64_VSHUFF64X2, d, a, a, sx_x64_imm(n == 4 ? 0xB1 : 0x4E));
    }
}

static void from_scalar(sx_gen *g, uint32_t dst, uint32_t scalar)
{
    const sx_live *live = &g->general.live[g->first_scalar + scalar];
    arg d = vreg(g, dst);
    if (live->reg < 0) {
        put2(g, SX_X64_VPBROADCASTD, d, sx_gen_slot(live));
    } else if (g->lanes == 16) {
        put2(g, SX_X64_VPBROADCASTD, d, sx_x64_r32((uint32_t)live->reg));
    } else {
        put2(g, SX_X64_VMOVD, xmm(dst), sx_x64_r32((uint32_t)live->reg));
        put2(g, SX_X64_VPBROADCASTD, d, xmm(dst));
    }
}

/* ---- masks ---- */
static void compare(sx_gen *g, const sx_item *item)
{
    static const uint8_t predicate[SX_DIRECTION_COUNT] = {
        [SX_EQ] = 0x00, [SX_NE] = 0x04, [SX_LT] = 0x11,
        [SX_LE] = 0x12, [SX_GT] = 0x1E, [SX_GE] = 0x1D};
    static const uint8_t mirrored[SX_DIRECTION_COUNT] = {
        [SX_EQ] = 0x00, [SX_NE] = 0x04, [SX_LT] = 0x1E,
        [SX_LE] = 0x1D, [SX_GT] = 0x11, [SX_GE] = 0x12};
    uint32_t dst = mask_result(g, item->dst);
    arg d = g->lanes == 16 ? sx_x64_k(dst) : vreg(g, dst);
    arg a = source(g, item->src[0]);
    arg b = source(g, item->src[1]);
    uint8_t how = predicate[item->imm];
    if (in_memory(a) && !in_memory(b)) {
        put4(g, SX_X64_VCMPPS, d, b, a, sx_x64_imm(mirrored[item->imm]));
        return;
    }
    if (in_memory(a)) { /* and b is too */
        a = loaded(g, a, g->lanes == 16 ? scratch(g) : dst);
    }
    put4(g, SX_X64_VCMPPS, d, a, b, sx_x64_imm(how));
}

static void compare_ints(sx_gen *g, const sx_item *item)
{
    sx_x64_op op = item->imm == SX_EQ ? SX_X64_VPCMPEQD : SX_X64_VPCMPGTD;
    uint32_t dst = mask_result(g, item->dst);
    arg a = source(g, item->src[0]);
    arg b = source(g, item->src[1]);
    if (g->lanes == 8) {
        binary(g, op, item->imm == SX_EQ, dst, a, b);
        return;
    }
    if (in_memory(a)) {
        a = loaded(g, a, scratch(g));
    }
    put3(g, op, sx_x64_k(dst), a, b);
}

static void mask_logic(sx_gen *g, const sx_item *item)
{
    uint32_t dst = mask_result(g, item->dst);
    uint32_t a = mask_reg(g, item->src[0]);
    uint32_t b = item->op == SX_LOP_MNOT ? 0 : mask_reg(g, item->src[1]);
    bool wide = g->lanes == 16;
    if (item->op == SX_LOP_MNOT && wide) {
        put2(g, SX_X64_KNOTW, sx_x64_k(dst), sx_x64_k(a));
    } else if (item->op == SX_LOP_MNOT) {
        sx_constant ones = {SX_CONSTANT_SET, UINT32_MAX};
        put3(g, SX_X64_VXORPS, vreg(g, dst), vreg(g, a), sx_x64_at(whole_constant(g, &ones)));
    } else if (wide) {
        sx_x64_op op = item->op == SX_LOP_MAND  ? SX_X64_KANDW
                       : item->op == SX_LOP_MOR ? SX_X64_KORW
                                                : SX_X64_KXORW;
        put3(g, op, sx_x64_k(dst), sx_x64_k(a), sx_x64_k(b));
    } else {
        sx_x64_op op = item->op == SX_LOP_MAND  ? SX_X64_VANDPS
                       : item->op == SX_LOP_MOR ? SX_X64_VORPS
                                                : SX_X64_VXORPS;
        put3(g, op, vreg(g, dst), vreg(g, a), vreg(g, b));
    }
}

static void blend(sx_gen *g, const sx_item *item)
{
    uint32_t dst = vector_reg(g, item->dst);
    uint32_t m = mask_reg(g, item->src[0]);
    arg a = source(g, item->src[1]);
    arg b = source(g, item->src[2]);
    if (in_memory(b)) {
        bool taken = is_reg(a, dst) || (g->lanes == 8 && m == dst);
        b = loaded(g, b, taken ? scratch(g) : dst);
    }
    if (g->lanes == 16) {
        put3(g, SX_X64_VBLENDMPS, sx_x64_masked(vreg(g, dst), m, false), b, a);
    } else {
        put4(g, SX_X64_VBLENDVPS, vreg(g, dst), b, a, vreg(g, m));
    }
}

/* ---- loads and stores ---- */
static uint32_t lane_mask_constant(sx_gen *g, uint32_t n)
{
    uint32_t words[8] = {0};
    for (uint32_t i = 0; i < n; i++) {
        words[i] = UINT32_MAX;
    }
    return sx_x64_const_put(g->as, words, sizeof(words), 32);
}

/* The register of `n` lanes with a plain move (1, 2, 4, 8, all), and that move; false: a mask is needed. */
static bool plain_lanes(const sx_gen *g, uint32_t n, uint32_t reg, arg *part, sx_x64_op *op)
{
    *op = n == 1 ? SX_X64_VMOVSS : n == 2 ? SX_X64_VMOVSD : SX_X64_VMOVUPS;
    *part = n == g->lanes ? vreg(g, reg) : n == 8 ? ymm(reg) : xmm(reg);
    return n == g->lanes || n == 1 || n == 2 || n == 4 || n == 8;
}

static void load(sx_gen *g, uint32_t n, uint32_t dst, uint32_t index)
{
    arg part;
    sx_x64_op op;
    if (plain_lanes(g, n, dst, &part, &op)) {
        put2(g, op, part, sx_gen_address(g, index, 0));
    } else if (g->lanes == 16) {
        uint32_t k = tail_mask(g, n);
        put2(g, SX_X64_VMOVUPS, sx_x64_masked(vreg(g, dst), k, true), sx_gen_address(g, index, 0));
    } else {
        put2(g, SX_X64_VMOVUPS, vreg(g, dst), sx_x64_at(lane_mask_constant(g, n)));
        put3(g, SX_X64_VMASKMOVPS, vreg(g, dst), vreg(g, dst), sx_gen_address(g, index, 0));
    }
}

static void store(sx_gen *g, const sx_item *item, uint32_t index)
{
    uint32_t n = item->imm;
    arg a = source(g, item->src[0]);
    if (in_memory(a)) {
        a = loaded(g, a, scratch(g));
    }
    arg part;
    sx_x64_op op;
    if (plain_lanes(g, n, a.reg, &part, &op)) {
        put2(g, op, sx_gen_address(g, index, 0), part);
    } else if (g->lanes == 16) {
        uint32_t k = tail_mask(g, n);
        put2(g, SX_X64_VMOVUPS, sx_x64_masked(sx_gen_address(g, index, 0), k, false), a);
    } else {
        uint32_t m = scratch(g);
        put2(g, SX_X64_VMOVUPS, vreg(g, m), sx_x64_at(lane_mask_constant(g, n)));
        put3(g, SX_X64_VMASKMOVPS, sx_gen_address(g, index, 0), vreg(g, m), a);
    }
}

/* Lane i from address + i * stride: four lanes at a time are put together in a scratch register. */
static void load_strided(sx_gen *g, const sx_item *item, uint32_t index)
{
    uint32_t dst = vector_reg(g, item->dst);
    uint32_t high = item->imm > 4 ? scratch(g) : dst;
    for (uint32_t first = 0; first < item->imm; first += 4) {
        uint32_t part = first == 0 ? dst : high;
        for (uint32_t i = first; i < first + 4 && i < item->imm; i++) {
            arg from = sx_gen_address(g, index, (int64_t)i * item->imm2);
            if (i == first) {
                put2(g, SX_X64_VMOVSS, xmm(part), from);
            } else {
                put4(g, SX_X64_VINSERTPS, xmm(part), xmm(part), from,
                     sx_x64_imm((int64_t)(i - first) << 4));
            }
        }
        if (first > 0 && g->lanes == 8) {
            put4(g, SX_X64_VINSERTF128, ymm(dst), ymm(dst), xmm(part), sx_x64_imm(1));
        } else if (first > 0) {
            put4(g, SX_X64_VINSERTF32X4, vreg(g, dst), vreg(g, dst), xmm(part),
                 sx_x64_imm(first / 4));
        }
    }
}

static void load_bytes(sx_gen *g, const sx_item *item, uint32_t index)
{
    uint32_t n = item->imm;
    uint32_t dst = vector_reg(g, item->dst);
    if (n == g->lanes || n == 8 || n == 4) {
        arg whole = n == g->lanes ? vreg(g, dst) : n == 8 ? ymm(dst) : xmm(dst);
        put2(g, SX_X64_VPMOVZXBD, whole, sx_gen_address(g, index, 0));
        return;
    }
    put3(g, SX_X64_VXORPS, xmm(dst), xmm(dst), xmm(dst));
    for (uint32_t i = 0; i < n; i++) {
        put4(g, SX_X64_VPINSRB, xmm(dst), xmm(dst), sx_gen_address(g, index, i), sx_x64_imm(i));
    }
    put2(g, SX_X64_VPMOVZXBD, vreg(g, dst), xmm(dst));
}

static void store_bytes(sx_gen *g, const sx_item *item, uint32_t index)
{
    static const uint8_t low_bytes[32] = {0,   4,   8,   12,  128, 128, 128, 128, 128, 128, 128,
                                          128, 128, 128, 128, 128, 0,   4,   8,   12,  128, 128,
                                          128, 128, 128, 128, 128, 128, 128, 128, 128, 128};
    uint32_t n = item->imm;
    arg a = source(g, item->src[0]);
    uint32_t t = g->lanes == 8 || in_memory(a) ? scratch(g) : 0;
    a = loaded(g, a, t);
    if (g->lanes == 16) {
        uint32_t k = n == 16 ? 0 : tail_mask(g, n);
        put2(g, SX_X64_VPMOVDB, sx_x64_masked(sx_gen_address(g, index, 0), k, false), a);
        return;
    }
    put3(g, SX_X64_VPSHUFB, ymm(t), a, sx_x64_at(sx_x64_const_put(g->as, low_bytes, 32, 32)));
    for (uint32_t first = 0; first < n; first += 4) {
        if (first > 0) {
            put3(g, SX_X64_VEXTRACTF128, xmm(t), ymm(t), sx_x64_imm(1));
        }
        if (n - first >= 4) {
            put2(g, SX_X64_VMOVD, sx_gen_address(g, index, first), xmm(t));
            continue;
        }
        for (uint32_t i = first; i < n; i++) {
            put3(g, SX_X64_VPEXTRB, sx_gen_address(g, index, i), xmm(t), sx_x64_imm(i - first));
        }
    }
}

/* ---- dispatch ---- */
static void two_sources(sx_gen *g, const sx_item *item, sx_x64_op op, bool commutes)
{
    arg a = source(g, item->src[0]);
    arg b = source(g, item->src[1]);
    binary(g, op, commutes, vector_reg(g, item->dst), a, b);
}

static void one_source(sx_gen *g, const sx_item *item)
{
    arg a = source(g, item->src[0]);
    uint32_t dst = vector_reg(g, item->dst);
    arg d = vreg(g, dst);
    switch (item->op) {
    case SX_LOP_SQRT: put2(g, SX_X64_VSQRTPS, d, a); break;
    case SX_LOP_F2I: put2(g, SX_X64_VCVTTPS2DQ, d, a); break;
    case SX_LOP_I2F: put2(g, SX_X64_VCVTDQ2PS, d, a); break;
    case SX_LOP_ROUND: /* bit 3: no inexact exception */
        put3(g, g->lanes == 16 ? SX_X64_VRNDSCALEPS : SX_X64_VROUNDPS, d, a,
             sx_x64_imm(item->imm | 8));
        break;
    case SX_LOP_SHL: shift(g, SX_X64_VPSLLD, dst, a, item->imm); break;
    case SX_LOP_SHR: shift(g, SX_X64_VPSRLD, dst, a, item->imm); break;
    case SX_LOP_SAR: shift(g, SX_X64_VPSRAD, dst, a, item->imm); break;
    case SX_LOP_SWAP: exchange(g, dst, a, item->imm); break;
    case SX_LOP_BCAST0: put2(g, SX_X64_VBROADCASTSS, d, xmm(loaded(g, a, dst).reg)); break;
    default: /* mov */
        if (in_memory(a)) {
            (void)loaded(g, a, dst);
        } else if (a.reg != dst) {
            put2(g, SX_X64_VMOVAPS, d, a);
        }
        break;
    }
}

static void memory_op(sx_gen *g, const sx_item *item, uint32_t index)
{
    switch (item->op) {
    case SX_LOP_LOAD: load(g, item->imm, vector_reg(g, item->dst), index); break;
    case SX_LOP_LOADB:
        put2(g, SX_X64_VBROADCASTSS, vreg(g, vector_reg(g, item->dst)),
             sx_gen_address(g, index, 0));
        break;
    case SX_LOP_LOADS: load_strided(g, item, index); break;
    case SX_LOP_LOAD8: load_bytes(g, item, index); break;
    case SX_LOP_STORE: store(g, item, index); break;
    case SX_LOP_STORE8: store_bytes(g, item, index); break;
    default: put1(g, SX_X64_PREFETCHT0, sx_gen_address(g, index, 0)); break;
    }
}

static void fma_op(sx_gen *g, const sx_item *item)
{
    arg a = source(g, item->src[0]);
    arg b = source(g, item->src[1]);
    arg c = source(g, item->src[2]);
    fused(g, item->op == SX_LOP_FNMA, vector_reg(g, item->dst), a, b, c);
}

static void dispatch(sx_gen *g, const sx_item *item, uint32_t index)
{
    switch (item->op) {
    case SX_LOP_SET:
    case SX_LOP_IOTA: {
        sx_constant value = {item->op == SX_LOP_SET ? SX_CONSTANT_SET : SX_CONSTANT_IOTA,
                             item->imm};
        load_value(g, &value, vector_reg(g, item->dst));
        break;
    }
    case SX_LOP_LOAD:
    case SX_LOP_LOADB:
    case SX_LOP_LOADS:
    case SX_LOP_LOAD8:
    case SX_LOP_STORE:
    case SX_LOP_STORE8:
    case SX_LOP_PREFETCH: memory_op(g, item, index); break;
    case SX_LOP_ADD: two_sources(g, item, SX_X64_VADDPS, true); break;
    case SX_LOP_SUB: two_sources(g, item, SX_X64_VSUBPS, false); break;
    case SX_LOP_MUL: two_sources(g, item, SX_X64_VMULPS, true); break;
    case SX_LOP_DIV: two_sources(g, item, SX_X64_VDIVPS, false); break;
    case SX_LOP_MAX: two_sources(g, item, SX_X64_VMAXPS, false); break;
    case SX_LOP_MIN: two_sources(g, item, SX_X64_VMINPS, false); break;
    case SX_LOP_AND: two_sources(g, item, SX_X64_VANDPS, true); break;
    case SX_LOP_OR: two_sources(g, item, SX_X64_VORPS, true); break;
    case SX_LOP_XOR: two_sources(g, item, SX_X64_VXORPS, true); break;
    case SX_LOP_IADD: two_sources(g, item, SX_X64_VPADDD, true); break;
    case SX_LOP_ISUB: two_sources(g, item, SX_X64_VPSUBD, false); break;
    case SX_LOP_FMA:
    case SX_LOP_FNMA: fma_op(g, item); break;
    case SX_LOP_MOV:
    case SX_LOP_SQRT:
    case SX_LOP_ROUND:
    case SX_LOP_SHL:
    case SX_LOP_SHR:
    case SX_LOP_SAR:
    case SX_LOP_F2I:
    case SX_LOP_I2F:
    case SX_LOP_SWAP:
    case SX_LOP_BCAST0: one_source(g, item); break;
    case SX_LOP_CMP: compare(g, item); break;
    case SX_LOP_ICMP: compare_ints(g, item); break;
    case SX_LOP_MAND:
    case SX_LOP_MOR:
    case SX_LOP_MXOR:
    case SX_LOP_MNOT: mask_logic(g, item); break;
    case SX_LOP_BLEND: blend(g, item); break;
    case SX_LOP_S2V: from_scalar(g, vector_reg(g, item->dst), item->src[0]); break;
    case SX_LOP_SLOAD32:
    case SX_LOP_SLOAD64:
    case SX_LOP_SVAR:
    case SX_LOP_SWRAP:
    case SX_LOP_SCLAMP:
    case SX_LOP_SMUL:
    case SX_LOP_COUNT: SX_UNREACHABLE();
    }
}

void sx_gen_vector_op(sx_gen *g, const sx_item *item, uint32_t index)
{
    g->vector_taken = 0;
    g->mask_taken = 0;
    g->result_taken = SX_GEN_NONE;
    dispatch(g, item, index);
    put_back(g, item);
}
