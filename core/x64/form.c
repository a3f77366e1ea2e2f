#include "core/x64/form.h"

/* clang-format off */
/* X(name, place, register class, class by length, memory) */
#define REG_SPECS(X) \
    X(Rq, REG, R64, 0, 0) X(Rd, REG, R32, 0, 0) X(Rk, REG, K, 0, 0) X(RX, REG, XMM, 0, 0) X(RY, REG, YMM, 0, 0) \
    X(RZ, REG, ZMM, 0, 0) X(RV, REG, XMM, SX_REL_V, 0) X(VX, VVVV, XMM, 0, 0) X(VY, VVVV, YMM, 0, 0) X(VZ, VVVV, \
      ZMM, 0, 0) \
    X(VV, VVVV, XMM, SX_REL_V, 0) X(Vk, VVVV, K, 0, 0) X(Uq, RM, R64, 0, 0) X(Ud, RM, R32, 0, 0) X(Uk, RM, K, 0, 0) \
    X(UX, RM, XMM, 0, 0) X(UY, RM, YMM, 0, 0) X(UZ, RM, ZMM, 0, 0) X(UV, RM, XMM, SX_REL_V, 0) X(UH, RM, XMM, \
      SX_REL_H, 0) \
    X(UQ, RM, XMM, SX_REL_Q, 0) X(Wq, RM, R64, 0, 8) X(Wd, RM, R32, 0, 4) X(WX4, RM, XMM, 0, 4) X(WX8, RM, XMM, 0, 8) \
    X(WX16, RM, XMM, 0, 16) X(WY, RM, YMM, 0, 32) X(WV, RM, XMM, SX_REL_V, SX_REL_V) X(WH, RM, XMM, SX_REL_H, \
      SX_REL_H) \
    X(WQ, RM, XMM, SX_REL_Q, SX_REL_Q) X(M1, RM, NONE, 0, 1) X(M2, RM, NONE, 0, 2) X(M4, RM, NONE, 0, 4) X(M8, \
      RM, NONE, 0, 8) \
    X(M16, RM, NONE, 0, 16) X(M32, RM, NONE, 0, 32) X(Mq, RM, NONE, 0, 8) X(Md, RM, NONE, 0, 4) X(MV, RM, NONE, \
      0, SX_REL_V) \
    X(MH, RM, NONE, 0, SX_REL_H) X(MQ, RM, NONE, 0, SX_REL_Q) X(MA, RM, NONE, 0, SX_ADDRESS) X(Oq, OPCODE, R64, 0, 0) \
    X(Od, OPCODE, R32, 0, 0) X(Aq, RAX, R64, 0, 0) X(SV, IS4, XMM, SX_REL_V, 0)
#define IMM_SPECS(X) \
    X(Is, S8) X(Ib, U8) X(Ip, PREDICATE) X(Iz, S32) X(Iu, U32) X(Iq, 64) X(I1, ONE)
/* clang-format on */

enum {
    SPEC_NO,
#define X(name, ...) SPEC_##name,
    REG_SPECS(X) IMM_SPECS(X)
#undef X
        SPEC_Jz
};

const sx_x64_spec sx_x64_specs[] = {
    [SPEC_NO] = {SX_PLACE_NONE, SX_X64_NONE, 0, 0, SX_IMM_NONE},
#define X(name, place, reg, rel, mem) \
    [SPEC_##name] = {SX_PLACE_##place, SX_X64_##reg, rel, mem, SX_IMM_NONE},
    REG_SPECS(X)
#undef X
#define X(name, imm) [SPEC_##name] = {SX_PLACE_IMM, SX_X64_NONE, 0, 0, SX_IMM_##imm},
        IMM_SPECS(X)
#undef X
            [SPEC_Jz] = {SX_PLACE_BRANCH, SX_X64_NONE, 0, 0, SX_IMM_NONE},
};

const sx_x64_form sx_x64_forms[] = {
#define SX_X64_OP(...)
#define SX_X64_FORM(op, tag, enc, map, pp, w, len, opcode, digit, a, b, c, d, tuple, flags, nan) \
    {SX_X64_##op,                                                                                \
     SX_ENC_##enc,                                                                               \
     SX_MAP_##map,                                                                               \
     SX_PP_##pp,                                                                                 \
     w,                                                                                          \
     SX_LEN_##len,                                                                               \
     opcode,                                                                                     \
     SX_DIGIT_##digit,                                                                           \
     {SPEC_##a, SPEC_##b, SPEC_##c, SPEC_##d},                                                   \
     SX_TUPLE_##tuple,                                                                           \
     SX_FLAG_##flags,                                                                            \
     SX_NAN_##nan},
#include "core/x64/ops.def"
#undef SX_X64_OP
#undef SX_X64_FORM
};
const uint32_t sx_x64_form_count = SX_COUNT(sx_x64_forms);

/* FIRST_op is the row number of the op's first row: BACK_op steps the counter back so that the rows count on
 * from there. */
enum {
#define SX_X64_OP(op, ...) FIRST_##op, BACK_##op = FIRST_##op - 1,
#define SX_X64_FORM(op, tag, ...) ROW_##op##_##tag,
#include "core/x64/ops.def"
#undef SX_X64_OP
#undef SX_X64_FORM
    ROW_COUNT
};
_Static_assert(ROW_COUNT == SX_COUNT(sx_x64_forms), "row numbers");
_Static_assert(ROW_COUNT <= 512, "room in sx_x64_decoder");

static const uint16_t first_row[SX_X64_OP_COUNT + 1] = {
#define SX_X64_OP(op, ...) FIRST_##op,
#define SX_X64_FORM(...)
#include "core/x64/ops.def"
#undef SX_X64_OP
#undef SX_X64_FORM
    ROW_COUNT};

static const char *const op_text[SX_X64_OP_COUNT] = {
#define SX_X64_OP(op, text, ...) text,
#define SX_X64_FORM(...)
#include "core/x64/ops.def"
#undef SX_X64_OP
#undef SX_X64_FORM
};

const sx_x64_meaning sx_x64_meanings[SX_X64_OP_COUNT] = {
#define SX_X64_OP(op, text, micro, element, variant) \
    {SX_MICRO_##micro, SX_ELEMENT_##element, SX_VARIANT_##variant},
#define SX_X64_FORM(...)
#include "core/x64/ops.def"
#undef SX_X64_OP
#undef SX_X64_FORM
};

const char *sx_x64_op_text(sx_x64_op op)
{
    SX_ASSERT(op < SX_X64_OP_COUNT);
    return op_text[op];
}

const sx_x64_spec *sx_x64_form_spec(const sx_x64_form *form, uint32_t index)
{
    SX_ASSERT(index < SX_X64_ARG_MAX);
    return &sx_x64_specs[form->spec[index]];
}

uint32_t sx_x64_form_arg_count(const sx_x64_form *form)
{
    uint32_t count = 0;
    while (count < SX_X64_ARG_MAX && form->spec[count] != SPEC_NO) {
        count++;
    }
    return count;
}

sx_x64_level sx_x64_form_level(const sx_x64_form *form)
{
    bool masks = false;
    for (uint32_t i = 0; i < sx_x64_form_arg_count(form); i++) {
        masks = masks || sx_x64_form_spec(form, i)->reg == SX_X64_K;
    }
    return masks || form->encoding == SX_ENC_EVEX ? SX_X64_AVX512 : SX_X64_AVX2;
}

uint32_t sx_x64_form_first(sx_x64_op op)
{
    SX_ASSERT(op <= SX_X64_OP_COUNT);
    return first_row[op];
}

sx_x64_kind sx_x64_spec_reg(const sx_x64_spec *spec, uint32_t length)
{
    static const sx_x64_kind by_length[3] = {SX_X64_XMM, SX_X64_YMM, SX_X64_ZMM};
    switch (spec->rel) {
    case SX_REL_V: return by_length[length];
    case SX_REL_H: return by_length[length == 2 ? 1 : 0];
    case SX_REL_Q: return SX_X64_XMM;
    default: return (sx_x64_kind)spec->reg;
    }
}

uint32_t sx_x64_spec_mem(const sx_x64_spec *spec, uint32_t length)
{
    switch (spec->mem) {
    case SX_REL_V: return 16U << length;
    case SX_REL_H: return 8U << length;
    case SX_REL_Q: return 4U << length;
    case SX_ADDRESS: return 0;
    default: return (uint32_t)spec->mem;
    }
}

uint32_t sx_x64_form_broadcast(const sx_x64_form *form)
{
    return form->tuple == SX_TUPLE_T4B ? 4 : form->tuple == SX_TUPLE_T8B ? 8 : 0;
}

uint32_t sx_x64_form_disp_scale(const sx_x64_form *form, uint32_t length, bool broadcast)
{
    switch ((sx_x64_tuple)form->tuple) {
    case SX_TUPLE_T0: return 1;
    case SX_TUPLE_TV: return 16U << length;
    case SX_TUPLE_T4B: return broadcast ? 4 : 16U << length;
    case SX_TUPLE_T8B: return broadcast ? 8 : 16U << length;
    case SX_TUPLE_TH: return 8U << length;
    case SX_TUPLE_TQ: return 4U << length;
    case SX_TUPLE_T1: return 1;
    case SX_TUPLE_T4: return 4;
    case SX_TUPLE_T8: return 8;
    case SX_TUPLE_T16: return 16;
    case SX_TUPLE_T32: return 32;
    }
    SX_UNREACHABLE();
}

static bool fits_imm(sx_x64_imm_kind kind, int64_t value)
{
    switch (kind) {
    case SX_IMM_NONE: return false;
    case SX_IMM_S8: return value >= INT8_MIN && value <= INT8_MAX;
    case SX_IMM_U8: return value >= 0 && value <= UINT8_MAX;
    case SX_IMM_PREDICATE: return value >= 0 && value <= 31;
    case SX_IMM_S32: return value >= INT32_MIN && value <= INT32_MAX;
    case SX_IMM_U32: return value >= 0 && value <= UINT32_MAX;
    case SX_IMM_64: return true;
    case SX_IMM_ONE: return value == 1;
    }
    return false;
}

static bool fits_mem(const sx_x64_form *form, const sx_x64_spec *spec, const sx_x64_arg *arg)
{
    if (spec->mem == 0 || (arg->broadcast && sx_x64_form_broadcast(form) == 0)) {
        return false;
    }
    if (arg->reg == SX_X64_RIP) {
        return arg->index == SX_X64_NO_REG;
    }
    bool index_ok = arg->index == SX_X64_NO_REG || (arg->index < 16 && arg->index != SX_RSP);
    bool scale_ok = arg->scale == 1 || arg->scale == 2 || arg->scale == 4 || arg->scale == 8;
    return arg->reg < 16 && index_ok && scale_ok;
}

static uint32_t register_count(const sx_x64_form *form, uint32_t kind)
{
    if (kind == SX_X64_K) {
        return 8;
    }
    bool vector = kind == SX_X64_XMM || kind == SX_X64_YMM || kind == SX_X64_ZMM;
    return vector && form->encoding == SX_ENC_EVEX ? 32 : 16;
}

/* The operand fits position `spec`; a vector register fixes *length, which must not change afterwards. */
static bool fits_arg(const sx_x64_form *form, const sx_x64_spec *spec, const sx_x64_arg *arg,
                     uint32_t length)
{
    switch ((sx_x64_kind)arg->kind) {
    case SX_X64_NONE: return false;
    case SX_X64_IMM: return spec->place == SX_PLACE_IMM && fits_imm(spec->imm, arg->imm);
    case SX_X64_LABEL: return spec->place == SX_PLACE_BRANCH;
    case SX_X64_MEM: return spec->place == SX_PLACE_RM && fits_mem(form, spec, arg);
    case SX_X64_R64:
    case SX_X64_R32:
    case SX_X64_XMM:
    case SX_X64_YMM:
    case SX_X64_ZMM:
    case SX_X64_K: break;
    }
    return spec->reg != SX_X64_NONE && sx_x64_spec_reg(spec, length) == (sx_x64_kind)arg->kind &&
           arg->reg < register_count(form, arg->kind) &&
           (spec->place != SX_PLACE_RAX || arg->reg == SX_RAX);
}

static bool fits_mask(const sx_x64_form *form, const sx_x64_insn *insn)
{
    for (uint32_t i = 1; i < insn->arg_count; i++) {
        if (insn->arg[i].mask != 0 || insn->arg[i].zero) {
            return false;
        }
    }
    const sx_x64_arg *first = &insn->arg[0];
    if (insn->arg_count == 0 || (first->mask == 0 && !first->zero)) {
        return true;
    }
    return first->mask >= 1 && first->mask <= 7 && (form->flags & SX_FLAG_MASK) != 0 &&
           (!first->zero || (form->flags & SX_FLAG_ZERO) != 0);
}

bool sx_x64_form_match(const sx_x64_form *form, const sx_x64_insn *insn, uint32_t *length)
{
    if (insn->arg_count != sx_x64_form_arg_count(form) || !fits_mask(form, insn)) {
        return false;
    }
    uint32_t first = 0;
    uint32_t last = 2;
    for (uint32_t i = 0; i < insn->arg_count; i++) { /* a whole-length register decides */
        uint32_t kind = insn->arg[i].kind;
        if (sx_x64_specs[form->spec[i]].rel == SX_REL_V && kind >= SX_X64_XMM &&
            kind <= SX_X64_ZMM) {
            first = last = kind - SX_X64_XMM;
            break;
        }
    }
    for (uint32_t l = first; l <= last; l++) {
        bool allowed = form->lengths == SX_LEN_L0 ? l == 0 : (form->lengths >> l & 1) != 0;
        uint32_t fitting = 0;
        while (allowed && fitting < insn->arg_count &&
               fits_arg(form, sx_x64_form_spec(form, fitting), &insn->arg[fitting], l)) {
            fitting++;
        }
        if (allowed && fitting == insn->arg_count) {
            *length = l;
            return true;
        }
    }
    return false;
}
