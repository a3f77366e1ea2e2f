/* forms.h - every form of the table of PTX instructions, once with each modifier, as kernels that do nothing
 * sensible: for tests that print, read and assemble them. */
#ifndef SX_TESTS_CORE_PTX_FORMS_H
#define SX_TESTS_CORE_PTX_FORMS_H
#include "core/ptx/ptx.h"

/* What the operands of the kernel are made of. */
typedef struct {
    sx_ptx_builder b;
    sx_ptx_arg pointer, shared, label;
    uint32_t turn; /* immediates and registers in turns */
} sx_forms;

static sx_ptx_arg forms_register(sx_forms *f, sx_ptx_register_class class_of)
{
    return sx_ptx_register(&f->b, class_of);
}

static sx_ptx_arg forms_vector(sx_forms *f, sx_ptx_register_class class_of, uint32_t count)
{
    return sx_ptx_registers(&f->b, class_of, count);
}

static bool forms_has(const sx_ptx_insn *insn, uint16_t modifier)
{
    for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX; s++) {
        if (insn->modifier[s] == modifier) {
            return true;
        }
    }
    return false;
}

/* Memory operands: shared where the instruction says so, the second of a copy is global, the third its barrier. */
static sx_ptx_arg forms_memory(sx_forms *f, const sx_ptx_insn *insn, uint32_t nth)
{
    sx_ptx_modifier space = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_SPACE, nth % 2);
    bool matrix = insn->op == SX_PTX_OP_LDMATRIX || insn->op == SX_PTX_OP_STMATRIX;
    bool map = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TENSOR, 0) != 0 &&
               nth == (insn->op == SX_PTX_OP_CP_TENSOR_LOAD);
    if (map) {
        return sx_ptx_at(f->pointer, 0);
    }
    bool shared = matrix || space == SX_PTX_SPACE_SHARED || space == SX_PTX_SPACE_SHARED_CTA ||
                  space == SX_PTX_SPACE_SHARED_CLUSTER;
    if (shared) {
        return sx_ptx_at(f->shared, f->turn % 2 == 0 ? 0 : 64);
    }
    return sx_ptx_at(space == SX_PTX_SPACE_PARAM ? (sx_ptx_arg){.kind = SX_PTX_ARG_SYMBOL}
                                                 : f->pointer,
                     space == SX_PTX_SPACE_PARAM ? 0 : (int64_t)(f->turn % 3) * 16 - 16);
}

static sx_ptx_arg forms_coordinates(sx_forms *f, uint32_t count)
{
    sx_ptx_arg element[5];
    for (uint32_t i = 0; i < count; i++) {
        element[i] = i % 2 == 0 ? forms_register(f, SX_PTX_B32) : sx_ptx_imm(64);
    }
    return sx_ptx_coordinates(&f->b, element, count);
}

/* A constant that the instruction takes. */
static int64_t forms_number(const sx_ptx_insn *insn)
{
    switch (sx_ptx_row_of((sx_ptx_op)insn->op)->handler) {
    case SX_PTX_RUN_MBARRIER:
    case SX_PTX_RUN_WGMMA: return 1;
    case SX_PTX_RUN_BULK_GROUP:
    case SX_PTX_RUN_WGMMA_GROUP: return 2;
    case SX_PTX_RUN_SETMAXNREG: return 40;
    default: return 16;
    }
}

static sx_ptx_arg forms_arg(sx_forms *f, const sx_ptx_insn *insn, const sx_ptx_operand *operand,
                            uint32_t nth, uint32_t index)
{
    sx_ptx_register_class class_of = sx_ptx_operand_class(operand, insn);
    sx_ptx_modifier count = SX_PTX_NO_MODIFIER;
    bool immediate = (operand->flags & SX_PTX_OR_IMMEDIATE) != 0 && f->turn++ % 3 == 2;
    switch ((sx_ptx_takes)operand->takes) {
    case SX_PTX_TAKES_VECTOR: return forms_vector(f, class_of, operand->count);
    case SX_PTX_TAKES_COUNTED:
        return (operand->flags & SX_PTX_WITHIN) != 0
                   ? forms_coordinates(f, sx_ptx_counted(insn))
                   : forms_vector(f, class_of, sx_ptx_counted(insn));
    case SX_PTX_TAKES_ELEMENTS:
        count = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_VECTOR, 0);
        if (count != SX_PTX_NO_MODIFIER) {
            return forms_vector(f, class_of, sx_ptx_modifier_of(count)->value);
        }
        break;
    case SX_PTX_TAKES_HALVES:
        return forms_vector(f, class_of == SX_PTX_B64 ? SX_PTX_B32 : SX_PTX_B16, 2);
    case SX_PTX_TAKES_MEMORY: return forms_memory(f, insn, nth);
    case SX_PTX_TAKES_LABEL: return f->label;
    case SX_PTX_TAKES_IMMEDIATE: return sx_ptx_imm(forms_number(insn));
    default: break;
    }
    sx_ptx_modifier type =
        sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, operand->class_of == SX_PTX_BY_TYPE2 ? 1 : 0);
    int64_t number = index == 0 ? 3 : 64; /* a barrier, and threads */
    bool barrier = sx_ptx_row_of((sx_ptx_op)insn->op)->handler == SX_PTX_RUN_BAR;
    bool parity = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_PARITY, 0) != 0;
    bool bulk = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_BULK, 0) != 0 && class_of == SX_PTX_B32;
    bool small = (type >= SX_PTX_TYPE_F16 && type <= SX_PTX_TYPE_BF16X2) ||
                 type == SX_PTX_TYPE_E4M3X2 || type == SX_PTX_TYPE_E5M2X2;
    if ((operand->flags & SX_PTX_ONLY_SINK) != 0) {
        return (sx_ptx_arg){.kind = SX_PTX_ARG_SINK};
    }
    if (insn->op == SX_PTX_OP_ELECT && index == 0) {
        return sx_ptx_pair(forms_register(f, SX_PTX_B32), forms_register(f, SX_PTX_PRED));
    }
    if (insn->op == SX_PTX_OP_CREATEPOLICY && immediate) {
        return sx_ptx_imm_f32(0.5F);
    }
    if (immediate && class_of == SX_PTX_PRED) {
        return sx_ptx_imm(1);
    }
    if (immediate && class_of != SX_PTX_PRED && !small) {
        bool f32 = type == SX_PTX_TYPE_F32 && operand->class_of >= SX_PTX_BY_TYPE1;
        bool f64 = type == SX_PTX_TYPE_F64 && operand->class_of >= SX_PTX_BY_TYPE1;
        return f32   ? sx_ptx_imm_f32(1.5F)
               : f64 ? sx_ptx_imm_f64(-0.1)
                     : sx_ptx_imm(barrier  ? number
                                  : parity ? 1
                                  : bulk   ? 48
                                           : 3);
    }
    return forms_register(f, class_of);
}

/* The last instruction gets its arguments: those that may be absent are there in every other turn. */
static void forms_put(sx_forms *f, sx_ptx_op op, const uint16_t slot[SX_PTX_SLOTS_MAX])
{
    const sx_ptx_row *row = sx_ptx_row_of(op);
    sx_ptx_insn insn = {.op = (uint16_t)op};
    sx_ptx_modifiers modifiers = {{0}};
    sx_ptx_arg arg[SX_PTX_OPERANDS_MAX];
    uint32_t count = 0;
    uint32_t addresses = 0;
    for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX; s++) {
        uint64_t allowed = row->slot[s].allowed;
        insn.modifier[s] = slot[s];
        bool fixed = (allowed & (allowed - 1)) == 0 && row->slot[s].optional == 0;
        modifiers.item[s] = fixed ? 0 : slot[s];
    }
    bool absent = f->turn % 2 == 0;
    for (uint32_t o = 0; o < sx_ptx_row_operands(row); o++) {
        const sx_ptx_operand *operand = &row->operand[o];
        bool there = operand->when == 0 || forms_has(&insn, operand->when);
        if (there && !(absent && (operand->flags & SX_PTX_OR_ABSENT) != 0)) {
            arg[count] = forms_arg(f, &insn, operand, addresses, count);
            count++;
            addresses += operand->takes == SX_PTX_TAKES_MEMORY;
        }
    }
    sx_ptx_put(&f->b, op, modifiers, arg, count);
}

/* The nth modifier that the slot takes, none of them at `nth` 0 where it is optional; false: no more. */
static bool forms_nth(const sx_ptx_slot *slot, uint32_t nth, uint16_t *modifier)
{
    if (slot->optional != 0 && nth-- == 0) {
        *modifier = 0;
        return true;
    }
    for (uint32_t m = 1; m < SX_PTX_MODIFIER_COUNT; m++) {
        const sx_ptx_modifier_row *row = sx_ptx_modifier_of((sx_ptx_modifier)m);
        uint32_t first = m;
        while (first > 1 &&
               sx_ptx_modifier_of((sx_ptx_modifier)(first - 1))->class_of == row->class_of) {
            first--;
        }
        if (row->class_of == slot->class_of && (slot->allowed >> (m - first) & 1) != 0 &&
            nth-- == 0) {
            *modifier = (uint16_t)m;
            return true;
        }
    }
    return false;
}

/* Puts the form if the target has it. */
static void forms_try(sx_forms *f, sx_ptx_op op, const uint16_t slot[SX_PTX_SLOTS_MAX])
{
    sx_ptx_insn insn = {.op = (uint16_t)op};
    memcpy(insn.modifier, slot, sizeof(insn.modifier));
    uint16_t version = 0;
    uint16_t least = 0;
    sx_ptx_floor(&insn, f->b.kernel, &version, &least);
    bool specific = (least & SX_PTX_SPECIFIC) == 0 || f->b.module->feature == 'a';
    if ((least & ~SX_PTX_SPECIFIC) <= f->b.module->target && specific &&
        sx_ptx_modifiers_misfit(&insn) == NULL) {
        forms_put(f, op, slot);
    }
}

/* Every form of the row that the target of the module has, the modifiers of two slots changed at a time. */
static void forms_sweep(sx_forms *f, sx_ptx_op op)
{
    const sx_ptx_row *row = sx_ptx_row_of(op);
    uint32_t slots = sx_ptx_row_slots(row);
    uint16_t base[SX_PTX_SLOTS_MAX] = {0};
    for (uint32_t s = 0; s < slots; s++) {
        (void)forms_nth(&row->slot[s], 0, &base[s]);
    }
    forms_try(f, op, base);
    for (uint32_t s = 0; s < slots; s++) {
        uint16_t slot[SX_PTX_SLOTS_MAX];
        memcpy(slot, base, sizeof(base));
        for (uint32_t i = 1; forms_nth(&row->slot[s], i, &slot[s]); i++) {
            forms_try(f, op, slot);
            for (uint32_t t = s + 1; t < slots; t++) {
                uint16_t other = slot[t];
                for (uint32_t j = 1; forms_nth(&row->slot[t], j, &slot[t]); j++) {
                    forms_try(f, op, slot);
                }
                slot[t] = other;
            }
        }
    }
}
#endif
