#include "core/x64/form.h"

#include <string.h>

static uint32_t bucket(uint32_t encoding, uint32_t map, uint32_t opcode)
{
    return (encoding * 4 + map) * 256 + opcode;
}

void sx_x64_decoder_init(sx_x64_decoder *decoder)
{
    memset(decoder, 0, sizeof(*decoder));
    for (uint32_t row = sx_x64_form_count; row-- > 0;) { /* chains in row order */
        const sx_x64_form *form = &sx_x64_forms[row];
        uint32_t slot = bucket(form->encoding, form->map, form->opcode);
        decoder->next[row] = decoder->head[slot];
        decoder->head[slot] = (uint16_t)(row + 1);
    }
}

/* What stands before the operands' bytes, in the numbering of the encoder (bits not inverted). */
typedef struct {
    const uint8_t *byte;
    uint32_t len, at; /* bytes there are; read so far */
    bool bad;
    uint32_t encoding, map, pp, w, length;
    uint32_t r, x, b, r4, v4, vvvv, mask;
    bool zero, broadcast;
    uint32_t opcode;
} cursor;

static uint32_t take(cursor *c)
{
    if (c->at >= c->len) {
        c->bad = true;
        return 0;
    }
    return c->byte[c->at++];
}

static uint64_t take_le(cursor *c, uint32_t size)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < size; i++) {
        value |= (uint64_t)take(c) << (8 * i);
    }
    return value;
}

static void take_vex(cursor *c, uint32_t lead)
{
    c->encoding = SX_ENC_VEX;
    uint32_t second = take(c);
    uint32_t third = second;
    c->r = second >> 7 ^ 1;
    c->map = SX_MAP_M0F;
    if (lead == 0xC4) {
        c->x = (second >> 6 & 1) ^ 1;
        c->b = (second >> 5 & 1) ^ 1;
        c->map = second & 31;
        third = take(c);
        c->w = third >> 7;
    }
    c->vvvv = ~(third >> 3) & 15;
    c->length = third >> 2 & 1;
    c->pp = third & 3;
}

static void take_evex(cursor *c)
{
    c->encoding = SX_ENC_EVEX;
    uint32_t one = take(c);
    uint32_t two = take(c);
    uint32_t three = take(c);
    c->r = one >> 7 ^ 1;
    c->x = (one >> 6 & 1) ^ 1;
    c->b = (one >> 5 & 1) ^ 1;
    c->r4 = (one >> 4 & 1) ^ 1;
    c->map = one & 15; /* bit 3 must be 0: refused as map > 3 */
    c->w = two >> 7;
    c->vvvv = ~(two >> 3) & 15;
    c->pp = two & 3;
    c->zero = (three >> 7) != 0;
    c->length = three >> 5 & 3;
    c->broadcast = (three >> 4 & 1) != 0;
    c->v4 = (three >> 3 & 1) ^ 1;
    c->mask = three & 7;
}

/* Prefix and opcode; false when the bytes start no listed instruction. */
static bool take_head(cursor *c)
{
    uint32_t lead = take(c);
    if (lead == 0xC4 || lead == 0xC5) {
        take_vex(c, lead);
        c->opcode = take(c);
    } else if (lead == 0x62) {
        take_evex(c);
        c->opcode = take(c);
    } else {
        c->encoding = SX_ENC_LEG;
        if ((lead & 0xF0) == 0x40) {
            c->w = lead >> 3 & 1;
            c->r = lead >> 2 & 1;
            c->x = lead >> 1 & 1;
            c->b = lead & 1;
            lead = take(c);
        }
        c->map = SX_MAP_M1;
        if (lead == 0x0F) {
            c->map = SX_MAP_M0F;
            lead = take(c);
        }
        c->opcode = lead;
    }
    return !c->bad && c->map <= SX_MAP_M3A && c->length <= 2;
}

static bool take_mem(cursor *c, const sx_x64_form *form, uint32_t modrm, sx_x64_arg *arg)
{
    uint32_t mod = modrm >> 6;
    uint32_t base = modrm & 7;
    *arg = sx_x64_mem(0, 0);
    arg->broadcast = c->broadcast;
    if (mod == 0 && base == 5) {
        arg->reg = SX_X64_RIP;
        arg->disp = (int32_t)(uint32_t)take_le(c, 4);
        return true;
    }
    if (base == 4) {
        uint32_t sib = take(c);
        base = sib & 7;
        uint32_t index = (sib >> 3 & 7) | c->x << 3;
        arg->scale = (uint8_t)(1U << (sib >> 6));
        arg->index = index == SX_RSP ? SX_X64_NO_REG : (uint8_t)index;
        if (mod == 0 && base == 5) {
            return false; /* no base register */
        }
    }
    arg->reg = (uint8_t)(base | c->b << 3);
    if (mod == 1) {
        uint32_t scale = sx_x64_form_disp_scale(form, c->length, c->broadcast);
        arg->disp = (int8_t)(uint8_t)take(c) * (int32_t)scale;
    } else if (mod == 2) {
        arg->disp = (int32_t)(uint32_t)take_le(c, 4);
    }
    return true;
}

static bool take_imm(cursor *c, uint8_t kind, sx_x64_arg *arg)
{
    *arg = sx_x64_imm(0);
    switch ((sx_x64_imm_kind)kind) {
    case SX_IMM_NONE: return false;
    case SX_IMM_ONE: arg->imm = 1; break;
    case SX_IMM_S8: arg->imm = (int8_t)(uint8_t)take(c); break;
    case SX_IMM_U8:
    case SX_IMM_PREDICATE: arg->imm = (int64_t)take(c); break;
    case SX_IMM_S32: arg->imm = (int32_t)(uint32_t)take_le(c, 4); break;
    case SX_IMM_U32: arg->imm = (int64_t)take_le(c, 4); break;
    case SX_IMM_64: arg->imm = (int64_t)take_le(c, 8); break;
    }
    return true;
}

static bool take_rm(cursor *c, const sx_x64_form *form, const sx_x64_spec *spec, uint32_t modrm,
                    sx_x64_arg *arg)
{
    if (modrm >> 6 != 3) {
        return spec->mem != 0 && take_mem(c, form, modrm, arg);
    }
    uint32_t x = c->encoding == SX_ENC_EVEX ? c->x << 4 : 0;
    *arg = sx_x64_reg(sx_x64_spec_reg(spec, c->length), (modrm & 7) | c->b << 3 | x);
    return spec->reg != SX_X64_NONE;
}

/* Reads operands in the order of their bytes: ModRM first, then branch, register immediate, immediate. */
static bool take_args(cursor *c, const sx_x64_form *form, sx_x64_insn *insn)
{
    insn->arg_count = (uint8_t)sx_x64_form_arg_count(form);
    bool modrm_used = form->digit != SX_DIGIT_NX;
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        uint8_t place = sx_x64_form_spec(form, i)->place;
        modrm_used = modrm_used || place == SX_PLACE_RM || place == SX_PLACE_REG;
    }
    uint32_t modrm = modrm_used ? take(c) : 0;
    if (form->digit != SX_DIGIT_NX && (int32_t)(modrm >> 3 & 7) != form->digit) {
        return false;
    }
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        const sx_x64_spec *spec = sx_x64_form_spec(form, i);
        sx_x64_arg *arg = &insn->arg[i];
        sx_x64_kind kind = sx_x64_spec_reg(spec, c->length);
        switch ((sx_x64_place)spec->place) {
        case SX_PLACE_NONE: return false;
        case SX_PLACE_REG:
            *arg = sx_x64_reg(kind, (modrm >> 3 & 7) | c->r << 3 | c->r4 << 4);
            break;
        case SX_PLACE_VVVV: *arg = sx_x64_reg(kind, c->vvvv | c->v4 << 4); break;
        case SX_PLACE_OPCODE: *arg = sx_x64_reg(kind, (c->opcode & 7) | c->b << 3); break;
        case SX_PLACE_RAX: *arg = sx_x64_reg(kind, SX_RAX); break;
        case SX_PLACE_IS4: *arg = sx_x64_reg(kind, take(c) >> 4); break;
        case SX_PLACE_BRANCH:
            *arg = sx_x64_to(SX_X64_NO_LABEL);
            arg->disp = (int32_t)(uint32_t)take_le(c, 4);
            break;
        case SX_PLACE_RM:
            if (!take_rm(c, form, spec, modrm, arg)) {
                return false;
            }
            break;
        case SX_PLACE_IMM:
            if (!take_imm(c, spec->imm, arg)) {
                return false;
            }
            break;
        }
    }
    return !c->bad;
}

/* True when encoding what was read gives back the very bytes. */
static bool canonical(const cursor *c, sx_x64_insn *insn)
{
    if (insn->arg_count > 0) {
        insn->arg[0].mask = (uint8_t)c->mask;
        insn->arg[0].zero = c->zero;
    }
    return sx_x64_encode(insn) && insn->len == c->at && memcmp(insn->byte, c->byte, insn->len) == 0;
}

bool sx_x64_decode(const sx_x64_decoder *decoder, sx_span bytes, sx_x64_insn *insn)
{
    cursor head = {.byte = bytes.ptr,
                   .len = bytes.len < SX_X64_BYTES_MAX ? (uint32_t)bytes.len : SX_X64_BYTES_MAX};
    if (!take_head(&head)) {
        return false;
    }
    for (uint32_t pass = 0; pass < 2; pass++) { /* second: a register in the low opcode bits */
        uint32_t opcode = pass == 0 ? head.opcode : head.opcode & 0xF8;
        uint32_t row = decoder->head[bucket(head.encoding, head.map, opcode)];
        for (; row != 0; row = decoder->next[row - 1]) {
            const sx_x64_form *form = &sx_x64_forms[row - 1];
            bool length_ok = form->lengths == SX_LEN_L0 ? head.length == 0
                                                        : (form->lengths >> head.length & 1) != 0;
            if (form->pp != head.pp || form->w != head.w || !length_ok) {
                continue;
            }
            cursor c = head;
            *insn = (sx_x64_insn){.op = (sx_x64_op)form->op};
            if (take_args(&c, form, insn) && canonical(&c, insn)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- text ---- */
static const char *const name64[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                       "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
static const char *const name32[16] = {"eax",  "ecx",  "edx",  "ebx", "esp",  "ebp",
                                       "esi",  "edi",  "r8d",  "r9d", "r10d", "r11d",
                                       "r12d", "r13d", "r14d", "r15d"};

static void print_mem(sx_buf *text, const sx_x64_form *form, const sx_x64_spec *spec,
                      uint32_t length, const sx_x64_arg *arg)
{
    static const char *const size_name[7] = {"byte",    "word",    "dword",  "qword",
                                             "xmmword", "ymmword", "zmmword"};
    uint32_t element = sx_x64_form_broadcast(form);
    uint32_t size = arg->broadcast ? element : sx_x64_spec_mem(spec, length);
    if (size != 0) {
        sx_buf_print(text, "%s ptr ", size_name[__builtin_ctz(size)]);
    }
    sx_buf_print(text, "[%s", arg->reg == SX_X64_RIP ? "rip" : name64[arg->reg & 15]);
    if (arg->index != SX_X64_NO_REG) {
        sx_buf_print(text, "+%s*%u", name64[arg->index & 15], arg->scale);
    }
    if (arg->disp != 0) {
        sx_buf_print(text, "%+d", arg->disp);
    }
    sx_buf_put_text(text, "]");
    if (arg->broadcast) {
        sx_buf_print(text, "{1to%u}", (16U << length) / element);
    }
}

static void print_arg(sx_buf *text, const sx_x64_form *form, const sx_x64_spec *spec,
                      uint32_t length, const sx_x64_insn *insn, const sx_x64_arg *arg)
{
    switch ((sx_x64_kind)arg->kind) {
    case SX_X64_NONE: break;
    case SX_X64_R64: sx_buf_put_text(text, name64[arg->reg & 15]); break;
    case SX_X64_R32: sx_buf_put_text(text, name32[arg->reg & 15]); break;
    case SX_X64_XMM: sx_buf_print(text, "xmm%u", arg->reg); break;
    case SX_X64_YMM: sx_buf_print(text, "ymm%u", arg->reg); break;
    case SX_X64_ZMM: sx_buf_print(text, "zmm%u", arg->reg); break;
    case SX_X64_K: sx_buf_print(text, "k%u", arg->reg); break;
    case SX_X64_MEM: print_mem(text, form, spec, length, arg); break;
    case SX_X64_IMM: sx_buf_print(text, "%lld", (long long)arg->imm); break;
    case SX_X64_LABEL:
        sx_buf_print(text, ".%+lld", (long long)arg->disp + (long long)insn->len);
        break;
    }
    if (arg->mask != 0) {
        sx_buf_print(text, "{k%u}%s", arg->mask, arg->zero ? "{z}" : "");
    }
}

void sx_x64_print(sx_buf *text, const sx_x64_insn *insn)
{
    const sx_x64_form *form = &sx_x64_forms[insn->form];
    uint32_t length = 0;
    SX_ASSERT(insn->form < sx_x64_form_count && sx_x64_form_match(form, insn, &length));
    sx_buf_put_text(text, sx_x64_op_text(insn->op));
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        sx_buf_put_text(text, i == 0 ? " " : ", ");
        print_arg(text, form, sx_x64_form_spec(form, i), length, insn, &insn->arg[i]);
    }
}

void sx_x64_print_code(sx_buf *text, sx_span blob, uint32_t offset, uint32_t size)
{
    sx_x64_decoder decoder;
    sx_x64_decoder_init(&decoder);
    uint32_t end = size < blob.len ? size : (uint32_t)blob.len;
    sx_x64_insn insn;
    while (offset < end &&
           sx_x64_decode(&decoder, (sx_span){blob.ptr + offset, end - offset}, &insn)) {
        sx_buf_print(text, "%6x: ", offset);
        for (uint32_t i = 0; i < 11; i++) {
            if (i < insn.len) {
                sx_buf_print(text, "%02x", insn.byte[i]);
            } else {
                sx_buf_put_text(text, "  ");
            }
        }
        sx_buf_put_text(text, " ");
        sx_x64_print(text, &insn);
        sx_buf_put_text(text, "\n");
        offset += insn.len;
    }
}
