/* emit.c - functions around the vector code: entry and exit, loops, pointers, integers. */
#include "core/x64/gen.h"

#include <string.h>

sx_x64_level sx_x64_level_of(uint32_t vector_bytes)
{
    return vector_bytes == 64 ? SX_X64_AVX512 : SX_X64_AVX2;
}

static bool fits32(int64_t value)
{
    return value >= INT32_MIN && value <= INT32_MAX;
}

static void move_imm(sx_gen *g, uint32_t reg, int64_t value)
{
    if (value >= 0 && value <= UINT32_MAX) {
        SX_X64_PUT(g->as, MOV, sx_x64_r32(reg), sx_x64_imm(value)); /* zero-extends */
    } else {
        SX_X64_PUT(g->as, MOV, sx_x64_r64(reg), sx_x64_imm(value));
    }
}

sx_x64_arg sx_gen_slot(const sx_live *live)
{
    SX_ASSERT(live->reg < 0);
    return sx_x64_mem(SX_RSP, (int32_t)(8 * live->slot));
}

/* The register of an integer interval; one on the stack is loaded into `temporary` first. */
static uint32_t fetch(sx_gen *g, const sx_live *live, uint32_t temporary)
{
    if (live->reg >= 0) {
        return (uint32_t)live->reg;
    }
    SX_X64_PUT(g->as, MOV, sx_x64_r64(temporary), sx_gen_slot(live));
    return temporary;
}

static void keep(sx_gen *g, const sx_live *live, uint32_t reg)
{
    if (live->reg < 0) {
        SX_X64_PUT(g->as, MOV, sx_gen_slot(live), sx_x64_r64(reg));
    } else if ((uint32_t)live->reg != reg) {
        SX_X64_PUT(g->as, MOV, sx_x64_r64((uint32_t)live->reg), sx_x64_r64(reg));
    }
}

/* reg += value; rcx is used for what no immediate holds. */
static void add_imm(sx_gen *g, uint32_t reg, int64_t value)
{
    if (fits32(value) && value != 0) {
        SX_X64_PUT(g->as, ADD, sx_x64_r64(reg), sx_x64_imm(value));
    } else if (value != 0) {
        move_imm(g, SX_RCX_SCRATCH, value);
        SX_X64_PUT(g->as, ADD, sx_x64_r64(reg), sx_x64_r64(SX_RCX_SCRATCH));
    }
}

static void add_to_live(sx_gen *g, const sx_live *live, int64_t value)
{
    if (live->reg >= 0) {
        add_imm(g, (uint32_t)live->reg, value);
    } else if (fits32(value)) {
        SX_X64_PUT(g->as, ADD, sx_gen_slot(live), sx_x64_imm(value));
    } else {
        move_imm(g, SX_RAX_SCRATCH, value);
        SX_X64_PUT(g->as, ADD, sx_gen_slot(live), sx_x64_r64(SX_RAX_SCRATCH));
    }
}

/* ---- pointers ---- */
static const sx_live *stream_live(const sx_gen *g, uint32_t stream)
{
    return &g->general.live[g->first_stream + stream];
}

sx_x64_arg sx_gen_address(sx_gen *g, uint32_t index, int64_t extra)
{
    const sx_addr *addr = &g->part->addr[g->part->item[index].addr];
    uint32_t stream = g->item_stream[index];
    uint32_t base = fetch(g, stream_live(g, stream), SX_RAX_SCRATCH);
    int64_t disp = addr->offset - g->stream[stream].base + extra;
    if (!fits32(disp)) {
        move_imm(g, SX_RCX_SCRATCH, disp);
        SX_X64_PUT(g->as, ADD, sx_x64_r64(SX_RCX_SCRATCH), sx_x64_r64(base));
        SX_X64_PUT(g->as, MOV, sx_x64_r64(SX_RAX_SCRATCH), sx_x64_r64(SX_RCX_SCRATCH));
        base = SX_RAX_SCRATCH;
        disp = 0;
    }
    if (addr->index_reg == SX_NO_REG) {
        return sx_x64_mem(base, (int32_t)disp);
    }
    const sx_live *scalar = &g->general.live[g->first_scalar + addr->index_reg];
    return sx_x64_mem_index(base, fetch(g, scalar, SX_RCX_SCRATCH), 1, (int32_t)disp);
}

/* The number that comes in a slot, one more than that of sx_comes, in rcx. */
static void load_number(sx_gen *g, uint32_t slot)
{
    SX_ASSERT(slot > 0 && slot <= g->part->slot_count);
    uint32_t from = fetch(g, &g->general.live[SX_ARG_INDEX], SX_RCX_SCRATCH);
    SX_X64_PUT(g->as, MOV, sx_x64_r64(SX_RCX_SCRATCH), sx_x64_mem(from, (int32_t)(8 * (2 + slot))));
}

/* reg += the number * grid index; uses rcx, and another register where the index lives on the stack. */
static void add_number_term(sx_gen *g, uint32_t reg, uint32_t grid, uint32_t slot)
{
    bool at_hand = g->general.live[SX_ARG_INDEX].reg >= 0;
    uint32_t from = fetch(g, &g->general.live[SX_ARG_INDEX], SX_RCX_SCRATCH);
    uint32_t other = at_hand ? SX_RCX_SCRATCH : reg != SX_RAX_SCRATCH ? SX_RAX_SCRATCH : SX_RBX;
    if (other == SX_RBX) {
        SX_X64_PUT(g->as, PUSH, sx_x64_r64(other));
    }
    SX_X64_PUT(g->as, MOV, sx_x64_r64(other), sx_x64_mem(from, (int32_t)(8 * (2 + slot))));
    SX_X64_PUT(g->as, IMUL, sx_x64_r64(other), sx_x64_mem(from, (int32_t)(8 * grid)));
    SX_X64_PUT(g->as, ADD, sx_x64_r64(reg), sx_x64_r64(other));
    if (other == SX_RBX) {
        SX_X64_PUT(g->as, POP, sx_x64_r64(other));
    }
}

/* reg += coefficient * grid index; uses rcx. A coefficient beyond 32 bits goes in two parts. */
static void add_grid_term(sx_gen *g, uint32_t reg, uint32_t grid, int64_t coefficient)
{
    int64_t high = coefficient >> 31;
    int64_t low = coefficient - high * (INT64_C(1) << 31);
    if (fits32(coefficient)) {
        high = 0;
        low = coefficient;
    }
    sx_x64_arg rcx = sx_x64_r64(SX_RCX_SCRATCH);
    for (uint32_t part = 0; part < 2; part++) {
        int64_t factor = part == 0 ? low : high;
        if (factor == 0) {
            continue;
        }
        uint32_t from = fetch(g, &g->general.live[SX_ARG_INDEX], SX_RCX_SCRATCH);
        SX_X64_PUT(g->as, MOV, rcx, sx_x64_mem(from, (int32_t)(8 * grid)));
        if (factor != 1) {
            SX_X64_PUT(g->as, IMUL, rcx, rcx, sx_x64_imm(factor));
        }
        if (part == 1) {
            SX_X64_PUT(g->as, SHL, rcx, sx_x64_imm(31));
        }
        SX_X64_PUT(g->as, ADD, sx_x64_r64(reg), rcx);
    }
}

static void set_up_stream(sx_gen *g, uint32_t index)
{
    const sx_stream *stream = &g->stream[index];
    const sx_live *live = stream_live(g, index);
    uint32_t reg = live->reg >= 0 ? (uint32_t)live->reg : SX_RAX_SCRATCH;
    if (stream->buffer == SX_STREAM_VALUE) {
        move_imm(g, reg, 0);
    } else if (g->kernel->buffer[stream->buffer].role == SX_BUFFER_WORKSPACE) {
        uint32_t from = fetch(g, &g->general.live[SX_ARG_WORKSPACE], SX_RCX_SCRATCH);
        SX_X64_PUT(g->as, MOV, sx_x64_r64(reg), sx_x64_r64(from));
    } else {
        uint32_t from = fetch(g, &g->general.live[SX_ARG_BUFFER], SX_RCX_SCRATCH);
        SX_X64_PUT(g->as, MOV, sx_x64_r64(reg), sx_x64_mem(from, (int32_t)(8 * stream->buffer)));
    }
    for (uint32_t grid = 0; grid < 3; grid++) {
        if (stream->coef_slot[grid] != 0) {
            add_number_term(g, reg, grid, stream->coef_slot[grid]);
        } else {
            add_grid_term(g, reg, grid, stream->coef[grid]);
        }
    }
    add_imm(g, reg, stream->base);
    if (stream->base_slot != 0) {
        load_number(g, stream->base_slot);
        SX_X64_PUT(g->as, ADD, sx_x64_r64(reg), sx_x64_r64(SX_RCX_SCRATCH));
    }
    keep(g, live, reg);
}

static void set_up(sx_gen *g, const sx_setup *setup)
{
    const sx_live *live;
    switch (setup->kind) {
    case SX_SETUP_CONSTANT:
        live = &g->vector.live[g->first_constant + setup->index];
        if (live->reg >= 0) {
            sx_gen_load_constant(g, setup->index, (uint32_t)live->reg);
        }
        break;
    case SX_SETUP_TAIL:
        live = &g->mask.live[g->first_tail + setup->index];
        if (live->reg >= 0) {
            sx_gen_load_tail(g, setup->index, (uint32_t)live->reg);
        }
        break;
    case SX_SETUP_STREAM: set_up_stream(g, setup->index); break;
    }
}

/* ---- loops ---- */
static void open_loop(sx_gen *g, sx_gen_loop *loop, uint32_t index)
{
    if (!sx_gen_is_loop(loop)) {
        return;
    }
    const sx_live *counter = &g->general.live[g->first_counter + index];
    uint32_t reg = counter->reg >= 0 ? (uint32_t)counter->reg : SX_RAX_SCRATCH;
    if (loop->trip_slot != 0) {
        load_number(g, loop->trip_slot);
        keep(g, counter, SX_RCX_SCRATCH);
        reg = SX_RCX_SCRATCH;
    } else {
        move_imm(g, reg, loop->trip);
        keep(g, counter, reg);
    }
    if (loop->any_trip) {
        loop->behind = sx_x64_label_make(g->as);
        SX_X64_PUT(g->as, TEST, sx_x64_r64(reg), sx_x64_r64(reg));
        SX_X64_PUT(g->as, JE, sx_x64_to(loop->behind));
    }
    if (loop->innermost) {
        sx_x64_align(g->as, 32);
    }
    loop->label = sx_x64_label_make(g->as);
    sx_x64_label_put(g->as, loop->label);
}

/* The pointer += or, where `back`, -= rcx. */
static void add_rcx(sx_gen *g, const sx_live *live, bool back)
{
    sx_x64_arg rcx = sx_x64_r64(SX_RCX_SCRATCH);
    if (back) {
        SX_X64_PUT(g->as, NEG, rcx);
    }
    SX_X64_PUT(g->as, ADD, live->reg >= 0 ? sx_x64_r64((uint32_t)live->reg) : sx_gen_slot(live),
               rcx);
}

/* Takes a pointer back to where it was before the loop, of which numbers come at run time. rax and rcx are used. */
static void take_back(sx_gen *g, const sx_gen_loop *loop, const sx_stream *stream,
                      const sx_live *live)
{
    sx_x64_arg rcx = sx_x64_r64(SX_RCX_SCRATCH), rax = sx_x64_r64(SX_RAX_SCRATCH);
    uint32_t slot = stream->coef_slot[loop->variable];
    if (slot != 0) {
        load_number(g, slot);
    } else {
        move_imm(g, SX_RCX_SCRATCH, stream->coef[loop->variable]);
    }
    SX_X64_PUT(g->as, MOV, rax, rcx);
    if (loop->trip_slot != 0) {
        load_number(g, loop->trip_slot);
    } else {
        move_imm(g, SX_RCX_SCRATCH, loop->trip);
    }
    SX_X64_PUT(g->as, IMUL, rcx, rax);
    add_rcx(g, live, true);
}

static sx_code close_loop(sx_gen *g, const sx_gen_loop *loop, uint32_t index)
{
    for (uint32_t s = loop->first_step; s != SX_GEN_NONE; s = g->step[s].next) {
        uint32_t stream = g->step[s].stream;
        if (g->stream[stream].coef_slot[loop->variable] != 0) {
            load_number(g, g->stream[stream].coef_slot[loop->variable]);
            add_rcx(g, stream_live(g, stream), false);
        } else {
            add_to_live(g, stream_live(g, stream), g->stream[stream].coef[loop->variable]);
        }
    }
    if (sx_gen_is_loop(loop)) {
        const sx_live *counter = &g->general.live[g->first_counter + index];
        SX_X64_PUT(g->as, DEC,
                   counter->reg >= 0 ? sx_x64_r64((uint32_t)counter->reg) : sx_gen_slot(counter));
        SX_X64_PUT(g->as, JNE, sx_x64_to(loop->label));
    }
    for (uint32_t s = loop->first_step; s != SX_GEN_NONE; s = g->step[s].next) {
        const sx_stream *stream = &g->stream[g->step[s].stream];
        const sx_live *live = stream_live(g, g->step[s].stream);
        int64_t whole;
        if (!sx_mul_i64(stream->coef[loop->variable], loop->trip, &whole)) {
            return SX_FAIL(g->cx, SX_LIMIT,
                           "kernel %s: part %u: loop of %lld steps of %lld bytes overflows",
                           g->kernel->name, g->part_index, (long long)loop->trip,
                           (long long)stream->coef[loop->variable]);
        }
        if (live->end <= 2 * loop->end + 1) {
            continue;
        }
        if (stream->coef_slot[loop->variable] != 0 || loop->trip_slot != 0) {
            take_back(g, loop, stream, live);
        } else { /* back to the start: used again */
            add_to_live(g, live, -whole);
        }
    }
    if (loop->any_trip) { /* without iterations nothing has moved */
        sx_x64_label_put(g->as, loop->behind);
    }
    return SX_OK;
}

/* ---- integers ---- */
static const sx_live *scalar_live(const sx_gen *g, uint32_t reg)
{
    return &g->general.live[g->first_scalar + reg];
}

static void load_scalar(sx_gen *g, const sx_item *item, uint32_t index)
{
    const sx_live *live = scalar_live(g, item->dst);
    sx_x64_arg from = sx_gen_address(g, index, 0);
    uint32_t reg = live->reg >= 0 ? (uint32_t)live->reg : SX_RAX_SCRATCH;
    if (item->op == SX_LOP_SLOAD32) {
        SX_X64_PUT(g->as, MOVSXD, sx_x64_r64(reg), from);
    } else {
        SX_X64_PUT(g->as, MOV, sx_x64_r64(reg), from);
    }
    keep(g, live, reg);
}

/* rax = the operand; the result leaves in rax. `slot`: in which its number comes; 0: in the item. */
static void scalar_op(sx_gen *g, const sx_item *item, uint32_t slot)
{
    sx_x64_arg rax = sx_x64_r64(SX_RAX_SCRATCH);
    sx_x64_arg rcx = sx_x64_r64(SX_RCX_SCRATCH);
    uint32_t from = fetch(g, scalar_live(g, item->src[0]), SX_RAX_SCRATCH);
    if (from != SX_RAX_SCRATCH) {
        SX_X64_PUT(g->as, MOV, rax, sx_x64_r64(from));
    }
    if (item->op == SX_LOP_SADD) {
        uint32_t other = fetch(g, scalar_live(g, item->src[1]), SX_RCX_SCRATCH);
        SX_X64_PUT(g->as, ADD, rax, sx_x64_r64(other));
        keep(g, scalar_live(g, item->dst), SX_RAX_SCRATCH);
        return;
    }
    if (slot != 0) {
        load_number(g, slot);
        if (item->op == SX_LOP_SCLAMP) {
            SX_X64_PUT(g->as, SUB, rcx, sx_x64_imm(1));
        }
    } else {
        move_imm(g, SX_RCX_SCRATCH, item->op == SX_LOP_SCLAMP ? item->imm2 - 1 : item->imm2);
    }
    switch (item->op) {
    case SX_LOP_SOFF: SX_X64_PUT(g->as, ADD, rax, rcx); break;
    case SX_LOP_SMUL: SX_X64_PUT(g->as, IMUL, rax, rcx); break;
    case SX_LOP_SWRAP:
        SX_X64_PUT(g->as, ADD, rcx, rax);
        SX_X64_PUT(g->as, TEST, rax, rax);
        SX_X64_PUT(g->as, CMOVL, rax, rcx);
        break;
    default: /* sclamp: not above the bound, not below zero */
        SX_X64_PUT(g->as, CMP, rax, rcx);
        SX_X64_PUT(g->as, CMOVG, rax, rcx);
        move_imm(g, SX_RCX_SCRATCH, 0);
        SX_X64_PUT(g->as, TEST, rax, rax);
        SX_X64_PUT(g->as, CMOVL, rax, rcx);
        break;
    }
    keep(g, scalar_live(g, item->dst), SX_RAX_SCRATCH);
}

static void put_op(sx_gen *g, const sx_item *item, uint32_t index)
{
    if (sx_lop_info_of(item->op)->result == 'v' &&
        (g->constant_of[item->dst] != SX_GEN_NONE || g->fold_of[item->dst] == index)) {
        return; /* made at its use */
    }
    switch (item->op) {
    case SX_LOP_SLOAD32:
    case SX_LOP_SLOAD64: load_scalar(g, item, index); break;
    case SX_LOP_SVAR: {
        uint32_t reg = fetch(g, stream_live(g, g->item_stream[index]), SX_RAX_SCRATCH);
        keep(g, scalar_live(g, item->dst), reg);
        break;
    }
    case SX_LOP_SWRAP:
    case SX_LOP_SCLAMP:
    case SX_LOP_SADD:
    case SX_LOP_SOFF:
    case SX_LOP_SMUL: scalar_op(g, item, g->item_slot[index]); break;
    default: sx_gen_vector_op(g, item, index); break;
    }
}

static sx_code put_body(sx_gen *g)
{
    uint32_t next_setup = 0;
    uint32_t next_loop = 0;
    for (uint32_t i = 0; i < g->part->item_count; i++) {
        while (next_setup < g->setup_count && g->setup[next_setup].position == 2 * i) {
            set_up(g, &g->setup[next_setup++]);
        }
        const sx_item *item = &g->part->item[i];
        switch (item->kind) {
        case SX_ITEM_OP: put_op(g, item, i); break;
        case SX_ITEM_LOOP:
            open_loop(g, &g->loop[next_loop], next_loop);
            next_loop++;
            break;
        case SX_ITEM_END: SX_TRY(close_loop(g, &g->loop[g->item_loop[i]], g->item_loop[i])); break;
        }
    }
    SX_ASSERT(next_setup == g->setup_count && next_loop == g->loop_count);
    return SX_OK;
}

/* ---- functions ---- */
static const uint8_t callee_saved[] = {SX_RBX, SX_RBP, SX_R12, SX_R13, SX_R14, SX_R15};

static void put_entry(sx_gen *g)
{
    for (uint32_t i = 0; i < SX_COUNT(callee_saved); i++) {
        if ((g->general.used >> callee_saved[i] & 1) != 0) {
            SX_X64_PUT(g->as, PUSH, sx_x64_r64(callee_saved[i]));
        }
    }
    if (g->slot_count > 0) {
        SX_X64_PUT(g->as, SUB, sx_x64_r64(SX_RSP), sx_x64_imm(8 * (int64_t)g->slot_count));
    }
    static const uint8_t argument[SX_ARG_COUNT] = {SX_RDI, SX_RSI, SX_RDX};
    for (uint32_t a = 0; a < SX_ARG_COUNT; a++) {
        const sx_live *live = &g->general.live[a];
        SX_ASSERT(live->reg < 0 || live->reg == argument[a]);
        if (live->start != SX_GEN_NONE) {
            keep(g, live, argument[a]);
        }
    }
}

static void put_exit(sx_gen *g)
{
    SX_X64_PUT0(g->as, VZEROUPPER);
    if (g->slot_count > 0) {
        SX_X64_PUT(g->as, ADD, sx_x64_r64(SX_RSP), sx_x64_imm(8 * (int64_t)g->slot_count));
    }
    for (uint32_t i = SX_COUNT(callee_saved); i-- > 0;) {
        if ((g->general.used >> callee_saved[i] & 1) != 0) {
            SX_X64_PUT(g->as, POP, sx_x64_r64(callee_saved[i]));
        }
    }
    SX_X64_PUT0(g->as, RET);
}

static void assign_set(sx_gen *g, sx_live_set *set, uint32_t count, uint32_t slots)
{
    for (uint32_t i = 0; i < count; i++) {
        if (set->live[i].start != SX_GEN_NONE && set->live[i].reg < 0) {
            set->live[i].slot = g->slot_count;
            g->slot_count += slots;
        }
    }
}

/* Stack slots: vectors first, so that their offsets are multiples of their size. */
static sx_code assign_slots(sx_gen *g)
{
    g->slot_count = 0;
    uint32_t slots = g->zmm ? 8 : 4;
    assign_set(g, &g->vector, g->first_constant, slots);
    g->spill_count = g->slot_count / slots;
    uint32_t before = g->slot_count;
    assign_set(g, &g->mask, g->zmm ? g->first_tail : 0, 1);
    g->spill_count += g->slot_count - before;
    assign_set(g, &g->general, g->general.count, 1);
    if (g->slot_count > SX_GEN_SLOTS_MAX) {
        return SX_FAIL(g->cx, SX_LIMIT, "kernel %s: part %u: %u stack slots, at most %u",
                       g->kernel->name, g->part_index, g->slot_count, SX_GEN_SLOTS_MAX);
    }
    return SX_OK;
}

static sx_code put_part(sx_gen *g)
{
    SX_ASSERT(g->vector_scratch <= SX_GEN_SCRATCH_MAX && g->mask_scratch <= SX_GEN_SCRATCH_MAX);
    uint32_t all = g->zmm ? UINT32_MAX : 0xFFFF;
    g->vector.allowed = all >> g->vector_scratch;
    g->mask.allowed = 0xFEU & 0xFFU >> g->mask_scratch; /* k0 cannot be a write mask */
    SX_TRY(sx_gen_allocate(g, &g->vector, "vector"));
    SX_TRY(sx_gen_allocate(g, &g->mask, "mask"));
    SX_TRY(sx_gen_allocate(g, &g->general, "general"));
    SX_TRY(assign_slots(g));
    put_entry(g);
    SX_TRY(put_body(g));
    put_exit(g);
    return g->as->code;
}

/* A part is made with no register set aside; where selection found the need for scratch registers, once more
 * with them. */
static sx_code emit_part(sx_gen *g, sx_x64_kernel *out)
{
    SX_TRY(sx_gen_analyse(g));
    sx_x64_align(g->as, 64);
    out->entry[g->part_index] = sx_x64_offset(g->as);
    sx_x64_asm before = *g->as;
    size_t length = g->as->out->len;
    for (;;) {
        SX_TRY(put_part(g));
        if (g->vector_need <= g->vector_scratch && g->mask_need <= g->mask_scratch) {
            break;
        }
        g->vector_scratch = g->vector_need;
        g->mask_scratch = g->mask_need;
        g->as->out->len = length;
        g->as->fixup_count = before.fixup_count;
        SX_TRY(sx_spend(g->cx, g->part->item_count));
    }
    uint32_t used = (uint32_t)__builtin_popcount(g->vector.used) + g->vector_scratch;
    out->vector_count = out->vector_count < used ? used : out->vector_count;
    out->slot_count = out->slot_count < g->slot_count ? g->slot_count : out->slot_count;
    out->spill_count += g->spill_count;
    for (uint32_t i = 0; i < g->constant_count; i++) {
        const sx_live *live = &g->vector.live[g->first_constant + i];
        out->constant_count += live->start != SX_GEN_NONE && live->reg < 0;
    }
    return SX_OK;
}

static sx_code emit_parts(sx_ctx *cx, const sx_kernel *kernel, bool spills, sx_buf *blob,
                          sx_x64_kernel *out)
{
    sx_x64_asm as;
    sx_x64_asm_init(&as, cx, out->level, blob);
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        sx_gen g = {.cx = cx,
                    .kernel = kernel,
                    .part = &kernel->part[p],
                    .part_index = p,
                    .lanes = kernel->lanes,
                    .wide = kernel->lane_bytes == 8,
                    .zmm = sx_kernel_vector_bytes(kernel) == 64,
                    .spills = spills,
                    .as = &as};
        SX_TRY(emit_part(&g, out));
    }
    return sx_x64_finish(&as);
}

static sx_code emit(sx_ctx *cx, const sx_kernel *kernel, bool spills, sx_buf *blob,
                    sx_x64_kernel *out)
{
    SX_TRY(sx_kernel_check(cx, kernel));
    uint32_t bytes = sx_kernel_vector_bytes(kernel);
    if (bytes != 32 && bytes != 64) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "kernel %s: no vector register has %u lanes of %u bytes", kernel->name,
                       kernel->lanes, kernel->lane_bytes);
    }
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        for (uint32_t i = 0; i < kernel->part[p].item_count; i++) {
            const sx_item *item = &kernel->part[p].item[i];
            if (item->kind == SX_ITEM_OP && item->op == SX_LOP_STORES) {
                return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: stores of lanes that lie apart",
                               kernel->name);
            }
        }
    }
    memset(out, 0, sizeof(*out));
    out->level = sx_x64_level_of(bytes);
    out->entry_count = kernel->part_count;
    size_t start = blob->len;
    sx_code code = emit_parts(cx, kernel, spills, blob, out);
    if (code != SX_OK) {
        blob->len = start; /* half a kernel is none */
        return code;
    }
    return SX_OK;
}

sx_code sx_x64_emit(sx_ctx *cx, const sx_kernel *kernel, sx_buf *blob, sx_x64_kernel *out)
{
    return emit(cx, kernel, false, blob, out);
}

sx_code sx_x64_emit_spilling(sx_ctx *cx, const sx_kernel *kernel, sx_buf *blob, sx_x64_kernel *out)
{
    return emit(cx, kernel, true, blob, out);
}
