/* alu_prepare.c - an instruction prepared: its modifiers as fields, its function. */
#include "core/simt/alu_inside.h"

static sx_ptx_modifier get(const sx_ptx_insn *insn, sx_ptx_class class_of, uint32_t nth)
{
    return sx_ptx_insn_modifier(insn, class_of, nth);
}

static uint64_t low_bits(uint32_t count)
{
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

/* True where the operands compare as in the set; .ne is false of NaN, .neu true. */
static uint8_t relation_of(sx_ptx_modifier compare)
{
    static const uint8_t set[] = {
        [SX_PTX_COMPARE_EQ - SX_PTX_COMPARE_FIRST] = SX_PTX_EQUAL,
        [SX_PTX_COMPARE_NE - SX_PTX_COMPARE_FIRST] = SX_PTX_LESS | SX_PTX_GREATER,
        [SX_PTX_COMPARE_LT - SX_PTX_COMPARE_FIRST] = SX_PTX_LESS,
        [SX_PTX_COMPARE_LE - SX_PTX_COMPARE_FIRST] = SX_PTX_LESS | SX_PTX_EQUAL,
        [SX_PTX_COMPARE_GT - SX_PTX_COMPARE_FIRST] = SX_PTX_GREATER,
        [SX_PTX_COMPARE_GE - SX_PTX_COMPARE_FIRST] = SX_PTX_GREATER | SX_PTX_EQUAL,
        [SX_PTX_COMPARE_LO - SX_PTX_COMPARE_FIRST] = SX_PTX_LESS,
        [SX_PTX_COMPARE_LS - SX_PTX_COMPARE_FIRST] = SX_PTX_LESS | SX_PTX_EQUAL,
        [SX_PTX_COMPARE_HI - SX_PTX_COMPARE_FIRST] = SX_PTX_GREATER,
        [SX_PTX_COMPARE_HS - SX_PTX_COMPARE_FIRST] = SX_PTX_GREATER | SX_PTX_EQUAL,
        [SX_PTX_COMPARE_EQU - SX_PTX_COMPARE_FIRST] = SX_PTX_EQUAL | SX_PTX_UNORDERED,
        [SX_PTX_COMPARE_NEU - SX_PTX_COMPARE_FIRST] =
            SX_PTX_LESS | SX_PTX_GREATER | SX_PTX_UNORDERED,
        [SX_PTX_COMPARE_LTU - SX_PTX_COMPARE_FIRST] = SX_PTX_LESS | SX_PTX_UNORDERED,
        [SX_PTX_COMPARE_LEU - SX_PTX_COMPARE_FIRST] = SX_PTX_LESS | SX_PTX_EQUAL | SX_PTX_UNORDERED,
        [SX_PTX_COMPARE_GTU - SX_PTX_COMPARE_FIRST] = SX_PTX_GREATER | SX_PTX_UNORDERED,
        [SX_PTX_COMPARE_GEU - SX_PTX_COMPARE_FIRST] =
            SX_PTX_GREATER | SX_PTX_EQUAL | SX_PTX_UNORDERED,
        [SX_PTX_COMPARE_NUM - SX_PTX_COMPARE_FIRST] = SX_PTX_LESS | SX_PTX_EQUAL | SX_PTX_GREATER,
        [SX_PTX_COMPARE_NAN - SX_PTX_COMPARE_FIRST] = SX_PTX_UNORDERED,
    };
    if (compare == SX_PTX_NO_MODIFIER) {
        return 0;
    }
    SX_ASSERT((size_t)(compare - SX_PTX_COMPARE_FIRST) < SX_COUNT(set));
    return set[compare - SX_PTX_COMPARE_FIRST];
}

static void count_arguments(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn, sx_ptx_alu *alu)
{
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    uint8_t operand[SX_PTX_OPERANDS_MAX];
    uint32_t count = sx_ptx_operands_of(insn, operand);
    for (uint32_t i = 0; i < count; i++) {
        const sx_ptx_arg *arg = &kernel->arg[insn->arg + i];
        uint32_t words = arg->kind == SX_PTX_ARG_VECTOR ? arg->count : 1;
        if ((row->operand[operand[i]].flags & SX_PTX_WRITTEN) != 0) {
            alu->pair = arg->kind == SX_PTX_ARG_REGISTER && arg->count != 0;
            alu->result_count = (uint8_t)(alu->result_count + words + (alu->pair ? 1 : 0));
        } else {
            alu->operand_count = (uint8_t)(alu->operand_count + words);
            alu->negated = arg->kind == SX_PTX_ARG_REGISTER && arg->negated != 0;
        }
    }
}

/* Bits of the register that gets the result. */
static uint32_t result_bits(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn,
                            const sx_ptx_alu *alu)
{
    const sx_ptx_arg *arg = &kernel->arg[insn->arg];
    if (arg->kind == SX_PTX_ARG_REGISTER && arg->form != SX_PTX_PRED) {
        return 8 * sx_ptx_class_bytes((sx_ptx_register_class)arg->form);
    }
    bool twice = alu->handler == SX_PTX_RUN_MUL_WIDE || alu->handler == SX_PTX_RUN_MAD_WIDE;
    return twice ? 2U * alu->bits : alu->bits;
}

bool sx_ptx_alu_of(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn, sx_ptx_alu *alu)
{
    SX_ASSERT(insn->op < SX_PTX_OP_COUNT);
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    if ((row->effects & ~SX_PTX_DOES_WARP) != 0 || insn->arg_count == 0) {
        return false;
    }
    sx_ptx_modifier sat = get(insn, SX_PTX_CLASS_SAT, 0);
    sx_ptx_modifier type = get(insn, SX_PTX_CLASS_TYPE, 0);
    *alu = (sx_ptx_alu){
        .type = type,
        .type2 = get(insn, SX_PTX_CLASS_TYPE, 1),
        .type3 = get(insn, SX_PTX_CLASS_TYPE, 2),
        .round = get(insn, SX_PTX_CLASS_ROUND, 0),
        .half = get(insn, SX_PTX_CLASS_HALF, 0),
        .compare = get(insn, SX_PTX_CLASS_COMPARE, 0),
        .join = get(insn, SX_PTX_CLASS_JOIN, 0),
        .shape = get(insn, SX_PTX_CLASS_SHAPE, 0),
        .ftz = get(insn, SX_PTX_CLASS_FTZ, 0) != 0,
        .saturate = sat != 0,
        .nan = get(insn, SX_PTX_CLASS_NAN, 0) != 0,
        .relu = get(insn, SX_PTX_CLASS_RELU, 0) != 0,
        .handler = row->handler,
        .left = get(insn, SX_PTX_CLASS_SIDE, 0) == SX_PTX_SIDE_LEFT,
        .clamp = get(insn, SX_PTX_CLASS_BOUND, 0) == SX_PTX_BOUND_CLAMP,
        .shift_amount = get(insn, SX_PTX_CLASS_SHIFTAMT, 0) != 0,
        .is_signed = type >= SX_PTX_TYPE_S8 && type <= SX_PTX_TYPE_S64,
    };
    alu->relation = relation_of(alu->compare);
    count_arguments(kernel, insn, alu);
    uint32_t bytes = sx_ptx_type_bytes(insn, 0);
    alu->bits = (uint8_t)(bytes == 0 ? 1 : 8 * bytes);
    alu->mask = low_bits(alu->bits);
    alu->sign = alu->is_signed ? UINT64_C(1) << (alu->bits - 1) : 0;
    alu->wide_mask = low_bits(result_bits(kernel, insn, alu));
    static sx_ptx_run (*const file[])(const sx_ptx_alu *) = {
        sx_ptx_integer_of, sx_ptx_float_of, sx_ptx_approx_of, sx_ptx_convert_of, sx_ptx_mma_of};
    for (uint32_t f = 0; f < SX_COUNT(file) && alu->run == NULL; f++) {
        alu->run = file[f](alu);
    }
    return alu->run != NULL;
}
