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
    return sx_x64_reg(g->zmm ? SX_X64_ZMM : SX_X64_YMM, reg);
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
    return (g->zmm ? 31 : 15) - (number < SX_GEN_SCRATCH_MAX ? number : 0);
}

static uint32_t mask_scratch(sx_gen *g)
{
    uint32_t number = g->mask_taken++;
    g->mask_need = g->mask_need < g->mask_taken ? g->mask_taken : g->mask_need;
    return 7 - (number < SX_GEN_SCRATCH_MAX ? number : 0);
}

/* ---- constants ---- */
static uint32_t lane_bytes(const sx_gen *g)
{
    return g->wide ? 8 : 4;
}

/* A vector of a constant in the pool. */
static uint32_t whole_constant(sx_gen *g, const sx_constant *constant)
{
    uint8_t bytes[64];
    uint32_t size = lane_bytes(g);
    for (uint32_t i = 0; i < g->lanes; i++) {
        uint64_t lane = constant->kind == SX_CONSTANT_SET ? constant->bits : constant->bits + i;
        memcpy(&bytes[i * size], &lane, size);
    }
    return sx_x64_const_put(g->as, bytes, size * g->lanes, size * g->lanes);
}

/* One lane of a constant in the pool. */
static arg lane_constant(sx_gen *g, const sx_constant *constant)
{
    uint32_t size = lane_bytes(g);
    return sx_x64_at(sx_x64_const_put(g->as, &constant->bits, size, size));
}

static sx_x64_op broadcast_op(const sx_gen *g)
{
    return g->wide ? SX_X64_VBROADCASTSD : SX_X64_VBROADCASTSS;
}

static void load_value(sx_gen *g, const sx_constant *constant, uint32_t reg)
{
    if (constant->kind == SX_CONSTANT_IOTA) {
        put2(g, SX_X64_VMOVUPS, vreg(g, reg), sx_x64_at(whole_constant(g, constant)));
    } else if (constant->bits == 0) {
        put3(g, SX_X64_VXORPS, ymm(reg), ymm(reg), ymm(reg));
    } else {
        put2(g, broadcast_op(g), vreg(g, reg), lane_constant(g, constant));
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
    if (g->zmm && constant->kind == SX_CONSTANT_SET) {
        return sx_x64_broadcast(lane_constant(g, constant));
    }
    return sx_x64_at(whole_constant(g, constant));
}

/* ---- operands ---- */
static sx_live *mask_live(sx_gen *g, uint32_t reg)
{
    return g->zmm ? &g->mask.live[reg] : &g->vector.live[g->first_mask + reg];
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
    return result_reg(g, mask_live(g, reg), g->zmm);
}

static uint32_t mask_reg(sx_gen *g, uint32_t reg)
{
    const sx_live *live = mask_live(g, reg);
    if (live->reg >= 0) {
        return (uint32_t)live->reg;
    }
    uint32_t place = g->zmm ? mask_scratch(g) : scratch(g);
    if (g->zmm) {
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
    } else if (!g->zmm) {
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
    put2(g, broadcast ? broadcast_op(g) : SX_X64_VMOVUPS, vreg(g, place), a);
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
    static const sx_x64_op forms[2][2][3] = {
        {{SX_X64_VFMADD132PS, SX_X64_VFMADD213PS, SX_X64_VFMADD231PS},
         {SX_X64_VFNMADD132PS, SX_X64_VFNMADD213PS, SX_X64_VFNMADD231PS}},
        {{SX_X64_VFMADD132PD, SX_X64_VFMADD213PD, SX_X64_VFMADD231PD},
         {SX_X64_VFNMADD132PD, SX_X64_VFNMADD213PD, SX_X64_VFNMADD231PD}}};
    sx_x64_op f132 = forms[g->wide][negate][0];
    sx_x64_op f213 = forms[g->wide][negate][1];
    sx_x64_op f231 = forms[g->wide][negate][2];
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
    if (g->wide && n <= 2) {
        put3(g, SX_X64_VPERMPD, d, a, sx_x64_imm(n == 1 ? 0xB1 : 0x4E));
    } else if (g->wide) {
        put4(g, SX_X64_VSHUFF64X2, d, a, a, sx_x64_imm(0x4E));
    } else if (n <= 2) {
        put3(g, SX_X64_VPERMILPS, d, a, sx_x64_imm(n == 1 ? 0xB1 : 0x4E));
    } else if (!g->zmm) {
        put3(g, SX_X64_VPERMPD, d, a, sx_x64_imm(0x4E));
    } else {
        put4(g, SX_X64_VSHUFF64X2, d, a, a, sx_x64_imm(n == 4 ? 0xB1 : 0x4E));
    }
}

static void from_scalar(sx_gen *g, uint32_t dst, uint32_t scalar)
{
    const sx_live *live = &g->general.live[g->first_scalar + scalar];
    sx_x64_op spread = g->wide ? SX_X64_VPBROADCASTQ : SX_X64_VPBROADCASTD;
    arg d = vreg(g, dst);
    if (live->reg < 0) {
        put2(g, spread, d, sx_gen_slot(live));
        return;
    }
    arg from = g->wide ? sx_x64_r64((uint32_t)live->reg) : sx_x64_r32((uint32_t)live->reg);
    if (g->zmm) {
        put2(g, spread, d, from);
    } else {
        put2(g, g->wide ? SX_X64_VMOVQ : SX_X64_VMOVD, xmm(dst), from);
        put2(g, spread, d, xmm(dst));
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
    arg d = g->zmm ? sx_x64_k(dst) : vreg(g, dst);
    arg a = source(g, item->src[0]);
    arg b = source(g, item->src[1]);
    uint8_t how = predicate[item->imm];
    sx_x64_op op = g->wide ? SX_X64_VCMPPD : SX_X64_VCMPPS;
    if (in_memory(a) && !in_memory(b)) {
        put4(g, op, d, b, a, sx_x64_imm(mirrored[item->imm]));
        return;
    }
    if (in_memory(a)) { /* and b is too */
        a = loaded(g, a, g->zmm ? scratch(g) : dst);
    }
    put4(g, op, d, a, b, sx_x64_imm(how));
}

static void compare_ints(sx_gen *g, const sx_item *item)
{
    static const sx_x64_op ops[2][2] = {{SX_X64_VPCMPGTD, SX_X64_VPCMPEQD},
                                        {SX_X64_VPCMPGTQ, SX_X64_VPCMPEQQ}};
    sx_x64_op op = ops[g->wide][item->imm == SX_EQ];
    uint32_t dst = mask_result(g, item->dst);
    arg a = source(g, item->src[0]);
    arg b = source(g, item->src[1]);
    if (!g->zmm) {
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
    bool wide = g->zmm;
    if (item->op == SX_LOP_MNOT && wide) {
        put2(g, SX_X64_KNOTW, sx_x64_k(dst), sx_x64_k(a));
    } else if (item->op == SX_LOP_MNOT) {
        sx_constant ones = {SX_CONSTANT_SET, UINT64_MAX};
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
        bool taken = is_reg(a, dst) || (!g->zmm && m == dst);
        b = loaded(g, b, taken ? scratch(g) : dst);
    }
    if (g->zmm) {
        put3(g, g->wide ? SX_X64_VBLENDMPD : SX_X64_VBLENDMPS,
             sx_x64_masked(vreg(g, dst), m, false), b, a);
    } else {
        put4(g, g->wide ? SX_X64_VBLENDVPD : SX_X64_VBLENDVPS, vreg(g, dst), b, a, vreg(g, m));
    }
}

/* ---- elements in memory ----
 * Elements that are narrower than lanes are extended behind the load and packed in front of the store: in one
 * step, or with lanes of 8 bytes by way of 4 bytes in a vector of half the size. */
typedef struct {
    sx_x64_op first; /* to 4 bytes */
    sx_x64_op then;  /* to a lane of 8 bytes */
    bool two;
} extension;

static extension extension_of(const sx_gen *g, sx_mem mem)
{
    static const sx_x64_op narrow[SX_MEM_COUNT] = {[SX_MEM_HALF] = SX_X64_VCVTPH2PS,
                                                   [SX_MEM_I16] = SX_X64_VPMOVSXWD,
                                                   [SX_MEM_U16] = SX_X64_VPMOVZXWD,
                                                   [SX_MEM_I8] = SX_X64_VPMOVSXBD,
                                                   [SX_MEM_U8] = SX_X64_VPMOVZXBD};
    extension e = {.first = narrow[mem], .two = g->wide};
    if (g->wide && (mem == SX_MEM_HALF || mem == SX_MEM_I32)) {
        return (extension){.first = mem == SX_MEM_HALF ? SX_X64_VCVTPS2PD : SX_X64_VPMOVSXDQ};
    }
    e.then = mem == SX_MEM_I16 || mem == SX_MEM_I8 ? SX_X64_VPMOVSXDQ : SX_X64_VPMOVZXDQ;
    return e;
}

/* Half of a vector register. */
static arg half_reg(const sx_gen *g, uint32_t reg)
{
    return g->zmm ? ymm(reg) : xmm(reg);
}

static uint32_t element_bytes(const sx_gen *g, const sx_item *item)
{
    return sx_mem_bytes(item->mem, lane_bytes(g));
}

static uint32_t lane_mask_constant(sx_gen *g, uint32_t n)
{
    uint8_t bytes[32] = {0};
    memset(bytes, 0xFF, (size_t)n * lane_bytes(g));
    return sx_x64_const_put(g->as, bytes, sizeof(bytes), 32);
}

/* The register of `bytes` with a plain move (4, 8, 16, 32, all), and that move; false: a mask is needed. */
static bool plain_bytes(const sx_gen *g, uint32_t bytes, uint32_t reg, arg *part, sx_x64_op *op)
{
    *op = bytes == 4 ? SX_X64_VMOVSS : bytes == 8 ? SX_X64_VMOVSD : SX_X64_VMOVUPS;
    *part = bytes == g->lanes * lane_bytes(g) ? vreg(g, reg) : bytes == 32 ? ymm(reg) : xmm(reg);
    return (bytes & (bytes - 1)) == 0;
}

static void load_lanes(sx_gen *g, uint32_t n, uint32_t dst, uint32_t index)
{
    arg part;
    sx_x64_op op;
    if (plain_bytes(g, n * lane_bytes(g), dst, &part, &op)) {
        put2(g, op, part, sx_gen_address(g, index, 0));
    } else if (g->zmm) {
        uint32_t k = tail_mask(g, n);
        put2(g, g->wide ? SX_X64_VMOVUPD : SX_X64_VMOVUPS, sx_x64_masked(vreg(g, dst), k, true),
             sx_gen_address(g, index, 0));
    } else {
        put2(g, SX_X64_VMOVUPS, vreg(g, dst), sx_x64_at(lane_mask_constant(g, n)));
        put3(g, SX_X64_VMASKMOVPS, vreg(g, dst), vreg(g, dst), sx_gen_address(g, index, 0));
    }
}

static void store_lanes(sx_gen *g, uint32_t n, arg a, uint32_t index)
{
    arg part;
    sx_x64_op op;
    if (plain_bytes(g, n * lane_bytes(g), a.reg, &part, &op)) {
        put2(g, op, sx_gen_address(g, index, 0), part);
    } else if (g->zmm) {
        uint32_t k = tail_mask(g, n);
        put2(g, g->wide ? SX_X64_VMOVUPD : SX_X64_VMOVUPS,
             sx_x64_masked(sx_gen_address(g, index, 0), k, false), a);
    } else {
        uint32_t m = scratch(g);
        put2(g, SX_X64_VMOVUPS, vreg(g, m), sx_x64_at(lane_mask_constant(g, n)));
        put3(g, SX_X64_VMASKMOVPS, sx_gen_address(g, index, 0), vreg(g, m), a);
    }
}

/* At most 16 bytes at the address into the low end of a register, zeros behind them. */
static void load_bytes(sx_gen *g, uint32_t bytes, uint32_t dst, uint32_t index)
{
    arg part;
    sx_x64_op op;
    if (bytes >= 4 && plain_bytes(g, bytes, dst, &part, &op)) {
        put2(g, op, xmm(dst), sx_gen_address(g, index, 0));
        return;
    }
    uint32_t at = bytes >= 8 ? 8 : bytes >= 4 ? 4 : 0;
    if (at > 0) {
        put2(g, at == 8 ? SX_X64_VMOVSD : SX_X64_VMOVSS, xmm(dst), sx_gen_address(g, index, 0));
    } else {
        put3(g, SX_X64_VXORPS, xmm(dst), xmm(dst), xmm(dst));
    }
    for (; at < bytes; at++) {
        put4(g, SX_X64_VPINSRB, xmm(dst), xmm(dst), sx_gen_address(g, index, at), sx_x64_imm(at));
    }
}

/* The low `bytes` of a register to `extra` bytes behind the address; at most 16. */
static void store_bytes(sx_gen *g, uint32_t bytes, uint32_t from, uint32_t index, uint32_t extra)
{
    arg part;
    sx_x64_op op;
    if (bytes >= 4 && plain_bytes(g, bytes, from, &part, &op)) {
        put2(g, op, sx_gen_address(g, index, extra), xmm(from));
        return;
    }
    uint32_t at = bytes >= 8 ? 8 : bytes >= 4 ? 4 : 0;
    if (at > 0) {
        put2(g, at == 8 ? SX_X64_VMOVSD : SX_X64_VMOVSS, sx_gen_address(g, index, extra),
             xmm(from));
    }
    for (; at < bytes; at++) {
        put3(g, SX_X64_VPEXTRB, sx_gen_address(g, index, (int64_t)extra + at), xmm(from),
             sx_x64_imm(at));
    }
}

static void load(sx_gen *g, const sx_item *item, uint32_t index)
{
    uint32_t n = item->imm;
    uint32_t dst = vector_reg(g, item->dst);
    if (item->mem == SX_MEM_LANE) {
        load_lanes(g, n, dst, index);
        return;
    }
    extension e = extension_of(g, item->mem);
    arg to = e.two ? half_reg(g, dst) : vreg(g, dst);
    arg from = xmm(dst);
    if (g->zmm || n == g->lanes) {
        to = n < g->lanes ? sx_x64_masked(to, tail_mask(g, n), true) : to;
        from = sx_gen_address(g, index, 0);
    } else {
        load_bytes(g, n * element_bytes(g, item), dst, index);
    }
    put2(g, e.first, to, from);
    if (e.two) {
        put2(g, e.then, vreg(g, dst), half_reg(g, dst));
    }
}

/* One element as the lowest lane of a register; the rest of its low 16 bytes is zero. */
static void load_one(sx_gen *g, sx_mem mem, uint32_t dst, uint32_t index, int64_t extra)
{
    arg rax = sx_x64_r64(SX_RAX_SCRATCH);
    arg eax = sx_x64_r32(SX_RAX_SCRATCH);
    arg from = sx_gen_address(g, index, extra);
    switch (mem) {
    case SX_MEM_LANE: put2(g, g->wide ? SX_X64_VMOVSD : SX_X64_VMOVSS, xmm(dst), from); return;
    case SX_MEM_HALF:
        if (g->wide) {
            put2(g, SX_X64_VMOVSS, xmm(dst), from);
        } else {
            put2(g, SX_X64_MOVZX16, eax, from);
            put2(g, SX_X64_VMOVD, xmm(dst), eax);
        }
        put2(g, g->wide ? SX_X64_VCVTPS2PD : SX_X64_VCVTPH2PS, xmm(dst), xmm(dst));
        return;
    case SX_MEM_I32: put2(g, SX_X64_MOVSXD, rax, from); break;
    case SX_MEM_I16: put2(g, SX_X64_MOVSX16, rax, from); break;
    case SX_MEM_U16: put2(g, SX_X64_MOVZX16, eax, from); break;
    case SX_MEM_I8: put2(g, SX_X64_MOVSX8, rax, from); break;
    case SX_MEM_U8: put2(g, SX_X64_MOVZX8, eax, from); break;
    case SX_MEM_COUNT:
    default: SX_UNREACHABLE();
    }
    put2(g, g->wide ? SX_X64_VMOVQ : SX_X64_VMOVD, xmm(dst), g->wide ? rax : eax);
}

static void load_everywhere(sx_gen *g, const sx_item *item, uint32_t index)
{
    uint32_t dst = vector_reg(g, item->dst);
    arg from = xmm(dst);
    if (item->mem == SX_MEM_LANE) {
        from = sx_gen_address(g, index, 0);
    } else {
        load_one(g, item->mem, dst, index, 0);
    }
    put2(g, broadcast_op(g), vreg(g, dst), from);
}

/* Lane i from address + i * stride: 16 bytes of lanes at a time are put together in a scratch register. */
static void load_strided(sx_gen *g, const sx_item *item, uint32_t index)
{
    uint32_t dst = vector_reg(g, item->dst);
    uint32_t lanes = 16 / lane_bytes(g);
    uint32_t high = item->imm > lanes ? scratch(g) : dst;
    bool direct = item->mem == SX_MEM_LANE && !g->wide;
    uint32_t one = direct || item->imm == 1 ? dst : scratch(g);
    for (uint32_t first = 0; first < item->imm; first += lanes) {
        uint32_t part = first == 0 ? dst : high;
        for (uint32_t i = first; i < first + lanes && i < item->imm; i++) {
            int64_t at = (int64_t)i * item->imm2;
            if (i == first) {
                load_one(g, item->mem, part, index, at);
                continue;
            }
            arg from = xmm(one);
            if (direct) {
                from = sx_gen_address(g, index, at);
            } else {
                load_one(g, item->mem, one, index, at);
            }
            if (g->wide) {
                put3(g, SX_X64_VUNPCKLPD, xmm(part), xmm(part), from);
            } else {
                put4(g, SX_X64_VINSERTPS, xmm(part), xmm(part), from,
                     sx_x64_imm((int64_t)(i - first) << 4));
            }
        }
        if (first > 0 && !g->zmm) {
            put4(g, SX_X64_VINSERTF128, ymm(dst), ymm(dst), xmm(part), sx_x64_imm(1));
        } else if (first > 0) {
            put4(g, SX_X64_VINSERTF32X4, vreg(g, dst), vreg(g, dst), xmm(part),
                 sx_x64_imm(first / lanes));
        }
    }
}

/* The low 4 bytes of each lane of 8 bytes (or the float of half the width) as the low half of a vector. */
static void halve_lanes(sx_gen *g, sx_mem mem, uint32_t to, arg a)
{
    static const uint32_t even[16] = {0, 2, 4, 6, 8, 10, 12, 14};
    if (mem == SX_MEM_HALF) {
        put2(g, SX_X64_VCVTPD2PS, half_reg(g, to), a);
        return;
    }
    uint32_t bytes = g->zmm ? 64 : 32;
    put2(g, SX_X64_VMOVUPS, vreg(g, to), sx_x64_at(sx_x64_const_put(g->as, even, bytes, bytes)));
    put3(g, SX_X64_VPERMPS, vreg(g, to), vreg(g, to), a);
}

/* Elements of 4 bytes or less with vectors of 64 bytes: `a` has one in every 4 bytes. */
static void store_masked(sx_gen *g, const sx_item *item, arg a, uint32_t index)
{
    uint32_t n = item->imm;
    uint32_t k = n == g->lanes ? 0 : tail_mask(g, n);
    arg to = sx_x64_masked(sx_gen_address(g, index, 0), k, false);
    switch (element_bytes(g, item)) {
    case 1: put2(g, SX_X64_VPMOVDB, to, a); break;
    case 2:
        if (item->mem == SX_MEM_HALF) {
            put3(g, SX_X64_VCVTPS2PH, to, a, sx_x64_imm(0));
        } else {
            put2(g, SX_X64_VPMOVDW, to, a);
        }
        break;
    default: put2(g, SX_X64_VMOVUPS, to, a); break;
    }
}

/* The same with vectors of 32 bytes; `t` may be changed, and is `a` with lanes of 8 bytes. */
static void store_packed(sx_gen *g, const sx_item *item, arg a, uint32_t t, uint32_t index)
{
    static const uint8_t low[2][32] = {
        {0, 4, 8, 12, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
         0, 4, 8, 12, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
        {0, 1, 4, 5, 8, 9, 12, 13, 128, 128, 128, 128, 128, 128, 128, 128,
         0, 1, 4, 5, 8, 9, 12, 13, 128, 128, 128, 128, 128, 128, 128, 128}};
    uint32_t n = item->imm;
    uint32_t size = element_bytes(g, item);
    if (item->mem == SX_MEM_HALF && !g->wide) {
        put3(g, SX_X64_VCVTPS2PH, xmm(t), a, sx_x64_imm(0));
    }
    if (item->mem == SX_MEM_HALF || size == 4) {
        store_bytes(g, size * n, t, index, 0);
        return;
    }
    arg whole = g->wide ? xmm(t) : ymm(t);
    uint32_t bytes = g->wide ? 16 : 32;
    put3(g, SX_X64_VPSHUFB, whole, a,
         sx_x64_at(sx_x64_const_put(g->as, low[size - 1], bytes, bytes)));
    for (uint32_t first = 0; first < n; first += 4) {
        if (first > 0) {
            put3(g, SX_X64_VEXTRACTF128, xmm(t), ymm(t), sx_x64_imm(1));
        }
        store_bytes(g, size * (n - first < 4 ? n - first : 4), t, index, size * first);
    }
}

static void store(sx_gen *g, const sx_item *item, uint32_t index)
{
    arg a = source(g, item->src[0]);
    bool lane = item->mem == SX_MEM_LANE;
    uint32_t t = in_memory(a) || (!lane && (g->wide || !g->zmm)) ? scratch(g) : 0;
    if (in_memory(a)) { /* its own, as the permutation reads both */
        a = loaded(g, a, g->wide && !lane ? scratch(g) : t);
    }
    if (lane) {
        store_lanes(g, item->imm, a, index);
        return;
    }
    if (g->wide) {
        halve_lanes(g, item->mem, t, a);
        a = half_reg(g, t);
    }
    if (g->zmm) {
        store_masked(g, item, a, index);
    } else {
        store_packed(g, item, a, t, index);
    }
}

/* Rounded to the float type of half the width, and back. */
static void round_half(sx_gen *g, uint32_t dst, arg a)
{
    a = loaded(g, a, dst);
    if (g->wide) {
        put2(g, SX_X64_VCVTPD2PS, half_reg(g, dst), a);
        put2(g, SX_X64_VCVTPS2PD, vreg(g, dst), half_reg(g, dst));
    } else {
        put3(g, SX_X64_VCVTPS2PH, half_reg(g, dst), a, sx_x64_imm(0));
        put2(g, SX_X64_VCVTPH2PS, vreg(g, dst), half_reg(g, dst));
    }
}

/* ---- dispatch ---- */
static void two_sources(sx_gen *g, const sx_item *item)
{
    static const struct {
        sx_x64_op op[2]; /* lanes of 4 and of 8 bytes */
        bool commutes;
    } table[SX_LOP_COUNT] = {
        [SX_LOP_ADD] = {{SX_X64_VADDPS, SX_X64_VADDPD}, true},
        [SX_LOP_SUB] = {{SX_X64_VSUBPS, SX_X64_VSUBPD}, false},
        [SX_LOP_MUL] = {{SX_X64_VMULPS, SX_X64_VMULPD}, true},
        [SX_LOP_DIV] = {{SX_X64_VDIVPS, SX_X64_VDIVPD}, false},
        [SX_LOP_MAX] = {{SX_X64_VMAXPS, SX_X64_VMAXPD}, false},
        [SX_LOP_MIN] = {{SX_X64_VMINPS, SX_X64_VMINPD}, false},
        [SX_LOP_AND] = {{SX_X64_VANDPS, SX_X64_VANDPD}, true},
        [SX_LOP_OR] = {{SX_X64_VORPS, SX_X64_VORPD}, true},
        [SX_LOP_XOR] = {{SX_X64_VXORPS, SX_X64_VXORPD}, true},
        [SX_LOP_IADD] = {{SX_X64_VPADDD, SX_X64_VPADDQ}, true},
        [SX_LOP_ISUB] = {{SX_X64_VPSUBD, SX_X64_VPSUBQ}, false},
        [SX_LOP_IMUL] = {{SX_X64_VPMULLD, SX_X64_VPMULUDQ}, true},
        [SX_LOP_SHLV] = {{SX_X64_VPSLLVD, SX_X64_VPSLLVQ}, false},
        [SX_LOP_SHRV] = {{SX_X64_VPSRLVD, SX_X64_VPSRLVQ}, false},
        [SX_LOP_SARV] = {{SX_X64_VPSRAVD}, false},
    };
    arg a = source(g, item->src[0]);
    arg b = source(g, item->src[1]);
    binary(g, table[item->op].op[g->wide], table[item->op].commutes, vector_reg(g, item->dst), a,
           b);
}

static void one_source(sx_gen *g, const sx_item *item)
{
    static const sx_x64_op round_op[2][2] = {{SX_X64_VROUNDPS, SX_X64_VRNDSCALEPS},
                                             {SX_X64_VROUNDPD, SX_X64_VRNDSCALEPD}};
    arg a = source(g, item->src[0]);
    uint32_t dst = vector_reg(g, item->dst);
    arg d = vreg(g, dst);
    switch (item->op) {
    case SX_LOP_SQRT: put2(g, g->wide ? SX_X64_VSQRTPD : SX_X64_VSQRTPS, d, a); break;
    case SX_LOP_HALVE: round_half(g, dst, a); break;
    case SX_LOP_F2I: put2(g, SX_X64_VCVTTPS2DQ, d, a); break;
    case SX_LOP_I2F: put2(g, SX_X64_VCVTDQ2PS, d, a); break;
    case SX_LOP_ROUND: /* bit 3: no inexact exception */
        put3(g, round_op[g->wide][g->zmm], d, a, sx_x64_imm(item->imm | 8));
        break;
    case SX_LOP_SHL: shift(g, g->wide ? SX_X64_VPSLLQ : SX_X64_VPSLLD, dst, a, item->imm); break;
    case SX_LOP_SHR: shift(g, g->wide ? SX_X64_VPSRLQ : SX_X64_VPSRLD, dst, a, item->imm); break;
    case SX_LOP_SAR: shift(g, SX_X64_VPSRAD, dst, a, item->imm); break;
    case SX_LOP_SWAP: exchange(g, dst, a, item->imm); break;
    case SX_LOP_BCAST0: put2(g, broadcast_op(g), d, xmm(loaded(g, a, dst).reg)); break;
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
    case SX_LOP_LOAD: load(g, item, index); break;
    case SX_LOP_LOADB: load_everywhere(g, item, index); break;
    case SX_LOP_LOADS: load_strided(g, item, index); break;
    case SX_LOP_STORE: store(g, item, index); break;
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
                             item->op == SX_LOP_SET ? sx_item_bits(item) : item->imm};
        load_value(g, &value, vector_reg(g, item->dst));
        break;
    }
    case SX_LOP_LOAD:
    case SX_LOP_LOADB:
    case SX_LOP_LOADS:
    case SX_LOP_STORE:
    case SX_LOP_STORES:
    case SX_LOP_PREFETCH: memory_op(g, item, index); break;
    case SX_LOP_ADD:
    case SX_LOP_SUB:
    case SX_LOP_MUL:
    case SX_LOP_DIV:
    case SX_LOP_MAX:
    case SX_LOP_MIN:
    case SX_LOP_AND:
    case SX_LOP_OR:
    case SX_LOP_XOR:
    case SX_LOP_IADD:
    case SX_LOP_ISUB:
    case SX_LOP_IMUL:
    case SX_LOP_SHLV:
    case SX_LOP_SHRV:
    case SX_LOP_SARV: two_sources(g, item); break;
    case SX_LOP_FMA:
    case SX_LOP_FNMA: fma_op(g, item); break;
    case SX_LOP_MOV:
    case SX_LOP_SQRT:
    case SX_LOP_HALVE:
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
    case SX_LOP_SADD:
    case SX_LOP_SOFF:
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
