#include "core/x64/form.h"

#include <string.h>

/* Operands of one instruction, sorted by place. Absent registers are 0, which every field encodes as unused. */
typedef struct {
    const sx_x64_form *form;
    uint32_t length;
    uint32_t reg, vvvv, opcode_reg, rm_reg, is4;
    const sx_x64_arg *mem;
    const sx_x64_arg *imm;
    bool has_modrm, has_is4, has_branch;
    uint8_t imm_kind;
    int32_t branch;
    const sx_x64_arg *first;
} fields;

static void sort_fields(const sx_x64_form *form, uint32_t length, const sx_x64_insn *insn,
                        fields *f)
{
    *f = (fields){.form = form, .length = length};
    f->first = insn->arg_count > 0 ? &insn->arg[0] : NULL;
    f->has_modrm = form->digit != SX_DIGIT_NX;
    f->reg = form->digit != SX_DIGIT_NX ? (uint32_t)form->digit : 0;
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        const sx_x64_spec *spec = sx_x64_form_spec(form, i);
        const sx_x64_arg *arg = &insn->arg[i];
        switch ((sx_x64_place)spec->place) {
        case SX_PLACE_NONE:
        case SX_PLACE_RAX: break;
        case SX_PLACE_REG: f->reg = arg->reg, f->has_modrm = true; break;
        case SX_PLACE_VVVV: f->vvvv = arg->reg; break;
        case SX_PLACE_OPCODE: f->opcode_reg = arg->reg; break;
        case SX_PLACE_IS4: f->is4 = arg->reg, f->has_is4 = true; break;
        case SX_PLACE_IMM: f->imm = arg, f->imm_kind = spec->imm; break;
        case SX_PLACE_BRANCH: f->has_branch = true, f->branch = arg->disp; break;
        case SX_PLACE_RM:
            f->has_modrm = true;
            if (arg->kind == SX_X64_MEM) {
                f->mem = arg;
            } else {
                f->rm_reg = arg->reg;
            }
            break;
        }
    }
}

static void put(sx_x64_insn *insn, uint32_t byte)
{
    SX_ASSERT(insn->len < SX_X64_BYTES_MAX);
    insn->byte[insn->len++] = (uint8_t)byte;
}

static void put_le(sx_x64_insn *insn, uint64_t value, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        put(insn, (uint32_t)(value >> (8 * i)) & 0xFF);
    }
}

/* The high bits that REX, VEX and EVEX carry: R extends reg, X the index (EVEX: a register rm, bit 4), B base or rm. */
static void extension_bits(const fields *f, uint32_t *r, uint32_t *x, uint32_t *b)
{
    *r = f->reg >> 3 & 1;
    *x = 0;
    *b = (f->rm_reg | f->opcode_reg) >> 3 & 1;
    if (f->mem == NULL) {
        *x = f->form->encoding == SX_ENC_EVEX ? f->rm_reg >> 4 & 1 : 0;
        return;
    }
    *b = f->mem->reg != SX_X64_RIP ? f->mem->reg >> 3 & 1U : 0;
    *x = f->mem->index != SX_X64_NO_REG ? f->mem->index >> 3 & 1U : 0;
}

static void put_prefix(sx_x64_insn *insn, const fields *f)
{
    const sx_x64_form *form = f->form;
    uint32_t r, x, b;
    extension_bits(f, &r, &x, &b);
    if (form->encoding == SX_ENC_LEG) {
        uint32_t rex = (uint32_t)form->w << 3 | r << 2 | x << 1 | b;
        if (rex != 0) {
            put(insn, 0x40 | rex);
        }
        if (form->map == SX_MAP_M0F) {
            put(insn, 0x0F);
        }
        return;
    }
    if (form->encoding == SX_ENC_VEX) {
        uint32_t tail = (~f->vvvv & 15) << 3 | f->length << 2 | form->pp;
        if (form->map == SX_MAP_M0F && form->w == 0 && x == 0 && b == 0) {
            put(insn, 0xC5);
            put(insn, (r ^ 1) << 7 | tail);
            return;
        }
        put(insn, 0xC4);
        put(insn, (r ^ 1) << 7 | (x ^ 1) << 6 | (b ^ 1) << 5 | form->map);
        put(insn, (uint32_t)form->w << 7 | tail);
        return;
    }
    bool broadcast = f->mem != NULL && f->mem->broadcast;
    uint32_t r4 = f->reg >> 4 & 1;
    uint32_t v4 = f->vvvv >> 4 & 1;
    put(insn, 0x62);
    put(insn, (r ^ 1) << 7 | (x ^ 1) << 6 | (b ^ 1) << 5 | (r4 ^ 1) << 4 | form->map);
    put(insn, (uint32_t)form->w << 7 | (~f->vvvv & 15) << 3 | 4 | form->pp);
    put(insn, (f->first->zero ? 0x80U : 0U) | f->length << 5 | (broadcast ? 0x10U : 0U) |
                  (v4 ^ 1) << 3 | f->first->mask);
}

static void put_mem(sx_x64_insn *insn, const fields *f)
{
    const sx_x64_arg *mem = f->mem;
    uint32_t reg = (f->reg & 7) << 3;
    if (mem->reg == SX_X64_RIP) {
        put(insn, reg | 5);
        insn->disp_at = insn->len;
        put_le(insn, (uint32_t)mem->disp, 4);
        return;
    }
    int32_t scale =
        (int32_t)sx_x64_form_disp_scale(f->form, f->length, mem->broadcast); /* disp8 * N */
    uint32_t base = mem->reg & 7U;
    int32_t short_disp = mem->disp / scale;
    bool fits8 = mem->disp % scale == 0 && short_disp >= INT8_MIN && short_disp <= INT8_MAX;
    uint32_t mod = mem->disp == 0 && base != 5 ? 0 : fits8 ? 1 : 2; /* rbp, r13 have no mod 0 */
    bool indexed = mem->index != SX_X64_NO_REG;
    put(insn, mod << 6 | reg | (indexed || base == 4 ? 4 : base));
    if (indexed || base == 4) { /* rsp, r12 need a SIB byte */
        uint32_t log2 = (uint32_t)__builtin_ctz(mem->scale);
        put(insn, (indexed ? log2 << 6 | (mem->index & 7U) << 3 : 4U << 3) | base);
    }
    if (mod == 1) {
        put(insn, (uint32_t)short_disp & 0xFF);
    } else if (mod == 2) {
        put_le(insn, (uint32_t)mem->disp, 4);
    }
}

static uint32_t imm_size(uint8_t kind)
{
    switch ((sx_x64_imm_kind)kind) {
    case SX_IMM_NONE:
    case SX_IMM_ONE: return 0;
    case SX_IMM_S8:
    case SX_IMM_U8:
    case SX_IMM_PREDICATE: return 1;
    case SX_IMM_S32:
    case SX_IMM_U32: return 4;
    case SX_IMM_64: return 8;
    }
    return 0;
}

static void put_insn(sx_x64_insn *insn, const fields *f)
{
    insn->len = 0;
    insn->disp_at = 0;
    put_prefix(insn, f);
    put(insn, f->form->opcode | (f->opcode_reg & 7));
    if (f->mem != NULL) {
        put_mem(insn, f);
    } else if (f->has_modrm) {
        put(insn, 0xC0U | (f->reg & 7) << 3 | (f->rm_reg & 7));
    }
    if (f->has_branch) {
        insn->disp_at = insn->len;
        put_le(insn, (uint32_t)f->branch, 4);
    }
    if (f->has_is4) {
        put(insn, f->is4 << 4);
    }
    if (f->imm != NULL) {
        put_le(insn, (uint64_t)f->imm->imm, imm_size(f->imm_kind));
    }
}

bool sx_x64_encode(sx_x64_insn *insn)
{
    if (insn->op >= SX_X64_OP_COUNT || insn->arg_count > SX_X64_ARG_MAX) {
        return false;
    }
    uint32_t end = sx_x64_form_first(insn->op + 1);
    for (uint32_t row = sx_x64_form_first(insn->op); row < end; row++) {
        uint32_t length;
        if (sx_x64_form_match(&sx_x64_forms[row], insn, &length)) {
            fields f;
            sort_fields(&sx_x64_forms[row], length, insn, &f);
            insn->form = (uint16_t)row;
            put_insn(insn, &f);
            return true;
        }
    }
    return false;
}
