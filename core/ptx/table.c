/* table.c - the rows of ops.def, modifiers.def and specials.def as data, and what follows from a row alone. */
#include "core/ptx/ptx.h"

#include <string.h>

/* ---- modifiers ---- */
static const sx_ptx_modifier_row modifier_table[SX_PTX_MODIFIER_COUNT] = {
#define SX_PTX_MODIFIERS(class)
#define SX_PTX_MODIFIER(class, name, text, value, version, target) \
    [SX_PTX_##class##_##name] = {(text), SX_PTX_CLASS_##class, (value), (version), (target)},
#include "core/ptx/modifiers.def"
#undef SX_PTX_MODIFIER
#undef SX_PTX_MODIFIERS
};

/* By class: its first modifier. */
static const uint16_t class_first[SX_PTX_CLASSES] = {
#define SX_PTX_MODIFIERS(class) [SX_PTX_CLASS_##class] = SX_PTX_##class##_FIRST,
#define SX_PTX_MODIFIER(class, name, text, value, version, target)
#include "core/ptx/modifiers.def"
#undef SX_PTX_MODIFIER
#undef SX_PTX_MODIFIERS
};

static const sx_ptx_special_row special_table[SX_PTX_SPECIAL_COUNT] = {
#define SX_PTX_SPECIAL(name, text, bytes, version, target) \
    [SX_PTX_SPECIAL_##name] = {(text), (bytes), (version), (target)},
#include "core/ptx/specials.def"
#undef SX_PTX_SPECIAL
};

/* ---- sets of modifiers that rows name ---- */
#define OF(class, name) (UINT64_C(1) << (SX_PTX_##class##_##name - SX_PTX_##class##_FIRST))
#define ANY UINT64_MAX
/* of TYPE */
#define BITS_32 (OF(TYPE, B32) | OF(TYPE, B64))
#define BITS (OF(TYPE, B16) | BITS_32)
#define PREDICATE OF(TYPE, PRED)
#define LOGICAL (BITS | PREDICATE)
#define U32_S32 (OF(TYPE, U32) | OF(TYPE, S32))
#define WIDE_INTEGERS (U32_S32 | OF(TYPE, U64) | OF(TYPE, S64))
#define INTEGERS_32 (U32_S32 | OF(TYPE, U16) | OF(TYPE, S16))
#define INTEGERS (WIDE_INTEGERS | INTEGERS_32)
#define SIGNED (OF(TYPE, S16) | OF(TYPE, S32) | OF(TYPE, S64))
#define FLOATS (OF(TYPE, F32) | OF(TYPE, F64))
#define F16S (OF(TYPE, F16) | OF(TYPE, F16X2))
#define BF16S (OF(TYPE, BF16) | OF(TYPE, BF16X2))
#define PAIRS_16 (OF(TYPE, F16X2) | OF(TYPE, BF16X2))
#define PAIRS_8 (OF(TYPE, E4M3X2) | OF(TYPE, E5M2X2))
#define F8 (OF(TYPE, E4M3) | OF(TYPE, E5M2))
#define BYTES (OF(TYPE, U8) | OF(TYPE, S8))
#define COMPARED (BITS | INTEGERS | FLOATS | OF(TYPE, F16))
#define CONVERTED (BYTES | INTEGERS | FLOATS | OF(TYPE, F16) | OF(TYPE, BF16))
#define STORED (OF(TYPE, B8) | BITS | BYTES | INTEGERS | FLOATS)
#define ADDRESSES OF(TYPE, U64)
#define COMBINED (BITS_32 | WIDE_INTEGERS | FLOATS)
#define REDUCED (U32_S32 | OF(TYPE, B32))
/* of other classes */
#define LO_HI (OF(HALF, LO) | OF(HALF, HI))
#define NEAREST OF(ROUND, RN)
#define RN_RZ (OF(ROUND, RN) | OF(ROUND, RZ))
#define IEEE (RN_RZ | OF(ROUND, RM) | OF(ROUND, RP))
#define FAST OF(ROUND, APPROX)
#define FULL OF(ROUND, FULL)
#define CONVERTING (IEEE | OF(ROUND, RNI) | OF(ROUND, RZI) | OF(ROUND, RMI) | OF(ROUND, RPI))
#define TO_ONE OF(SAT, SAT)
#define TO_FINITE OF(SAT, SATFINITE)
#define LOADING (OF(ORDER, WEAK) | OF(ORDER, VOLATILE) | OF(ORDER, RELAXED) | OF(ORDER, ACQUIRE))
#define STORING (OF(ORDER, WEAK) | OF(ORDER, VOLATILE) | OF(ORDER, RELAXED) | OF(ORDER, RELEASE))
#define FENCING (OF(ORDER, SC) | OF(ORDER, ACQ_REL))
#define SCOPES (OF(SCOPE, CTA) | OF(SCOPE, CLUSTER) | OF(SCOPE, GPU) | OF(SCOPE, SYS))
#define REDUCING                                                                                   \
    (OF(COMBINE, ADD) | OF(COMBINE, MIN) | OF(COMBINE, MAX) | OF(COMBINE, AND) | OF(COMBINE, OR) | \
     OF(COMBINE, XOR))
#define MEMBAR_LEVELS (OF(SCOPE, CTA) | OF(SCOPE, GL) | OF(SCOPE, SYS))
#define OF_CTA OF(SCOPE, CTA)
#define FAR (OF(SPACE, GLOBAL) | OF(SPACE, LOCAL))
#define NEAR (OF(SPACE, SHARED) | OF(SPACE, SHARED_CTA))
#define CA_CG (OF(CACHE, CA) | OF(CACHE, CG))
#define CLUSTER OF(SPACE, SHARED_CLUSTER)
#define PROXIED (OF(SPACE, GLOBAL) | OF(SPACE, SHARED_CTA) | CLUSTER)
#define OF_CLUSTER (OF(SCOPE, CTA) | OF(SCOPE, CLUSTER))
#define RELEASING OF(ORDER, RELEASE)
#define ACQUIRING OF(ORDER, ACQUIRE)
#define UNORDERED OF(ORDER, RELAXED)
#define U32_U64 (OF(TYPE, U32) | OF(TYPE, U64))
/* Columns of products of integers: 8, 16, 24, 32, then multiples of 16. */
#define INTEGER_COLUMNS UINT64_C(0xAAAAAAAF)
#define VOTED (OF(VOTE, ALL) | OF(VOTE, ANY) | OF(VOTE, UNI))

/* ---- rows ---- */
/* clang-format off */
#define ONE(class, set) {SX_PTX_CLASS_##class, 0, (set)}
#define OPT(class, set) {SX_PTX_CLASS_##class, 1, (set)}
/* Spelled out: the names of some modifiers are macros below, which a second macro would expand. */
#define FIX(class, name) \
    {SX_PTX_CLASS_##class, 0, UINT64_C(1) << (SX_PTX_##class##_##name - SX_PTX_##class##_FIRST)}
#define NOTHING {0}

/* An operand: what it takes, of which class, how many, flags; then the modifier it comes with. */
#define REG(class, flags) SX_PTX_TAKES_REGISTER, SX_PTX_##class, 1, (flags)
#define WROTE SX_PTX_WRITTEN
#define IMM SX_PTX_OR_IMMEDIATE
#define WIDER SX_PTX_OR_WIDER
#define S32_ REG(B32, IMM)
#define S64_ REG(B64, 0)
#define S16_ REG(B16, IMM)
#define S64 {S64_, 0}
#define D_ {REG(BY_TYPE1, WROTE | SX_PTX_ONLY_SINK), 0}
#define R {REG(BY_TYPE1, 0), 0}
#define SPI {REG(PRED, IMM), 0}
#define SK {SX_PTX_TAKES_COUNTED, SX_PTX_B32, 1, IMM | SX_PTX_WITHIN, 0}
#define MAY(operand) {operand##_ | SX_PTX_OR_ABSENT, 0}
#define WHEN(class, name, operand) {operand##_, SX_PTX_##class##_##name}
#define D {REG(BY_TYPE1, WROTE), 0}
#define DW {REG(BY_TYPE1_TWICE, WROTE), 0}
#define DX {REG(BY_TYPE1, WROTE | WIDER), 0}
#define D32 {REG(B32, WROTE), 0}
#define D32P {REG(B32, WROTE | SX_PTX_OR_PAIR), 0}
#define DP {REG(PRED, WROTE), 0}
#define DPQ {REG(PRED, WROTE | SX_PTX_OR_PAIR), 0}
#define DE {SX_PTX_TAKES_ELEMENTS, SX_PTX_BY_TYPE1, 1, WROTE | WIDER, 0}
#define DH {SX_PTX_TAKES_HALVES, SX_PTX_BY_TYPE1, 1, WROTE, 0}
#define DC {SX_PTX_TAKES_COUNTED, SX_PTX_B32, 1, WROTE, 0}
#define DV(class, n) {SX_PTX_TAKES_VECTOR, SX_PTX_##class, (n), WROTE, 0}
#define S {REG(BY_TYPE1, IMM), 0}
#define S2 {REG(BY_TYPE2, IMM), 0}
#define S2X {REG(BY_TYPE2, IMM | WIDER), 0}
#define SW {REG(BY_TYPE1_TWICE, IMM), 0}
#define SA {REG(BY_TYPE1, IMM | SX_PTX_OR_SPECIAL | SX_PTX_OR_SYMBOL), 0}
#define S32 {S32_, 0}
#define SP {REG(PRED, 0), 0}
#define SPN {REG(PRED, SX_PTX_OR_NEGATED), 0}
#define SE {SX_PTX_TAKES_ELEMENTS, SX_PTX_BY_TYPE1, 1, IMM | WIDER, 0}
#define SH {SX_PTX_TAKES_HALVES, SX_PTX_BY_TYPE1, 1, IMM, 0}
#define SC {SX_PTX_TAKES_COUNTED, SX_PTX_B32, 1, 0, 0}
#define SV(class, n) {SX_PTX_TAKES_VECTOR, SX_PTX_##class, (n), 0, 0}
#define I {SX_PTX_TAKES_IMMEDIATE, SX_PTX_B32, 1, IMM, 0}
#define M {SX_PTX_TAKES_MEMORY, SX_PTX_B64, 1, 0, 0}
#define MW {SX_PTX_TAKES_MEMORY, SX_PTX_B64, 1, WROTE, 0}
#define L {SX_PTX_TAKES_LABEL, SX_PTX_B64, 1, 0, 0}
/* clang-format on */

#define NONE 0
#define LOADS SX_PTX_DOES_LOADS
#define STORES SX_PTX_DOES_STORES
#define WARP SX_PTX_DOES_WARP
#define BLOCK SX_PTX_DOES_BLOCK
#define ASYNC SX_PTX_DOES_ASYNC
#define FENCE SX_PTX_DOES_FENCE
#define CONTROL SX_PTX_DOES_CONTROL
#define END SX_PTX_DOES_END
#define UNPACK(...) __VA_ARGS__

static const sx_ptx_row table[SX_PTX_OP_COUNT] = {
#define SX_PTX_OP(op, text, slots, operands, version, target, effects, unit, handler) \
    [SX_PTX_OP_##op] = {(text),   {UNPACK slots}, {UNPACK operands},  (version),      \
                        (target), (effects),      SX_PTX_UNIT_##unit, SX_PTX_RUN_##handler},
#include "core/ptx/ops.def"
#undef SX_PTX_OP
};

const sx_ptx_modifier_row *sx_ptx_modifier_of(sx_ptx_modifier modifier)
{
    SX_ASSERT(modifier > SX_PTX_NO_MODIFIER && modifier < SX_PTX_MODIFIER_COUNT);
    return &modifier_table[modifier];
}

const sx_ptx_special_row *sx_ptx_special_of(sx_ptx_special special)
{
    SX_ASSERT(special < SX_PTX_SPECIAL_COUNT);
    return &special_table[special];
}

const sx_ptx_row *sx_ptx_row_of(sx_ptx_op op)
{
    SX_ASSERT(op < SX_PTX_OP_COUNT);
    return &table[op];
}

uint32_t sx_ptx_class_bytes(sx_ptx_register_class class_of)
{
    static const uint8_t bytes[SX_PTX_REGISTER_CLASSES] = {0, 2, 4, 8};
    SX_ASSERT(class_of < SX_PTX_REGISTER_CLASSES);
    return bytes[class_of];
}

/* ---- what follows from a row ---- */
static bool slot_allows(const sx_ptx_slot *slot, uint16_t modifier)
{
    return modifier != 0 && modifier_table[modifier].class_of == slot->class_of &&
           (slot->allowed >> (modifier - class_first[slot->class_of]) & 1) != 0;
}

/* The only modifier that the slot takes; 0: it takes several or may be empty. */
static uint16_t slot_fixed(const sx_ptx_slot *slot)
{
    bool one = (slot->allowed & (slot->allowed - 1)) == 0 && slot->optional == 0;
    return one ? (uint16_t)(class_first[slot->class_of] + __builtin_ctzll(slot->allowed)) : 0;
}

uint32_t sx_ptx_row_slots(const sx_ptx_row *row)
{
    uint32_t count = 0;
    while (count < SX_PTX_SLOTS_MAX && row->slot[count].allowed != 0) {
        count++;
    }
    return count;
}

uint32_t sx_ptx_row_operands(const sx_ptx_row *row)
{
    uint32_t count = 0;
    while (count < SX_PTX_OPERANDS_MAX && row->operand[count].takes != SX_PTX_TAKES_NOTHING) {
        count++;
    }
    return count;
}

bool sx_ptx_row_takes(const sx_ptx_row *row, const uint16_t *given, uint32_t given_count,
                      bool fixed_implied, uint16_t slot[SX_PTX_SLOTS_MAX])
{
    SX_ASSERT(row != NULL && slot != NULL);
    uint32_t next = 0;
    uint32_t count = sx_ptx_row_slots(row);
    memset(slot, 0, SX_PTX_SLOTS_MAX * sizeof(*slot));
    for (uint32_t s = 0; s < count; s++) {
        uint16_t fixed = slot_fixed(&row->slot[s]);
        if (fixed_implied && fixed != 0) {
            slot[s] = fixed;
            next += next < given_count && given[next] == fixed;
        } else if (next < given_count && slot_allows(&row->slot[s], given[next])) {
            slot[s] = given[next++];
        } else if (row->slot[s].optional == 0) {
            return false;
        }
    }
    return next == given_count;
}

/* The modifier of the slot's class that is written so and allowed there; 0: none. */
static uint16_t slot_reads(const sx_ptx_slot *slot, sx_span text)
{
    for (uint32_t m = class_first[slot->class_of];
         m < SX_PTX_MODIFIER_COUNT && modifier_table[m].class_of == slot->class_of; m++) {
        if (slot_allows(slot, (uint16_t)m) && sx_span_is(text, modifier_table[m].text)) {
            return (uint16_t)m;
        }
    }
    return 0;
}

bool sx_ptx_row_reads(const sx_ptx_row *row, const sx_span *text, uint32_t text_count,
                      uint16_t slot[SX_PTX_SLOTS_MAX])
{
    SX_ASSERT(row != NULL && slot != NULL);
    uint32_t next = 0;
    memset(slot, 0, SX_PTX_SLOTS_MAX * sizeof(*slot));
    for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX && row->slot[s].allowed != 0; s++) {
        slot[s] = next < text_count ? slot_reads(&row->slot[s], text[next]) : 0;
        next += slot[s] != 0;
        if (slot[s] == 0 && row->slot[s].optional == 0) {
            return false;
        }
    }
    return next == text_count;
}

sx_ptx_modifier sx_ptx_insn_modifier(const sx_ptx_insn *insn, sx_ptx_class class_of, uint32_t nth)
{
    const sx_ptx_row *row = sx_ptx_row_of(insn->op);
    for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX && row->slot[s].allowed != 0; s++) {
        if (row->slot[s].class_of == class_of && nth-- == 0) {
            return (sx_ptx_modifier)insn->modifier[s];
        }
    }
    return SX_PTX_NO_MODIFIER;
}

uint32_t sx_ptx_type_bytes(const sx_ptx_insn *insn, uint32_t nth)
{
    sx_ptx_modifier type = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, nth);
    return type == SX_PTX_NO_MODIFIER ? 0 : sx_ptx_modifier_of(type)->value;
}

uint32_t sx_ptx_counted(const sx_ptx_insn *insn)
{
    static const sx_ptx_class said_by[] = {SX_PTX_CLASS_COUNT, SX_PTX_CLASS_DIM,
                                           SX_PTX_CLASS_WARPGROUP_K8, SX_PTX_CLASS_WARPGROUP_K16,
                                           SX_PTX_CLASS_WARPGROUP_K32};
    for (uint32_t i = 0; i < SX_COUNT(said_by); i++) {
        sx_ptx_modifier modifier = sx_ptx_insn_modifier(insn, said_by[i], 0);
        if (modifier != SX_PTX_NO_MODIFIER) {
            uint32_t value = sx_ptx_modifier_of(modifier)->value;
            return said_by[i] >= SX_PTX_CLASS_WARPGROUP_K8 ? value / 2 : value;
        }
    }
    SX_UNREACHABLE();
}

sx_ptx_register_class sx_ptx_class_of_bytes(uint32_t bytes)
{
    switch (bytes) {
    case 0: return SX_PTX_PRED;
    case 1:
    case 2: return SX_PTX_B16;
    case 4: return SX_PTX_B32;
    default: return SX_PTX_B64;
    }
}

sx_ptx_register_class sx_ptx_operand_class(const sx_ptx_operand *operand, const sx_ptx_insn *insn)
{
    switch (operand->class_of) {
    case SX_PTX_BY_TYPE1: return sx_ptx_class_of_bytes(sx_ptx_type_bytes(insn, 0));
    case SX_PTX_BY_TYPE2: return sx_ptx_class_of_bytes(sx_ptx_type_bytes(insn, 1));
    case SX_PTX_BY_TYPE1_TWICE: return sx_ptx_class_of_bytes(2 * sx_ptx_type_bytes(insn, 0));
    default: return (sx_ptx_register_class)operand->class_of;
    }
}

uint64_t sx_ptx_variable_bytes(const sx_ptx_variable *variable)
{
    return variable->count * sx_ptx_modifier_of((sx_ptx_modifier)variable->type)->value;
}

const sx_ptx_variable *sx_ptx_symbol(const sx_ptx_module *module, const sx_ptx_kernel *kernel,
                                     sx_ptx_scope scope, uint32_t id)
{
    switch (scope) {
    case SX_PTX_PARAMETER: SX_ASSERT(id < kernel->parameter_count); return &kernel->parameter[id];
    case SX_PTX_KERNEL_VARIABLE:
        SX_ASSERT(id < kernel->variable_count);
        return &kernel->variable[id];
    default: SX_ASSERT(id < module->variable_count); return &module->variable[id];
    }
}

/* "PTX ISA", release notes: the version in which each target came. */
static const struct {
    uint16_t target;
    char feature; /* 0: any */
    uint16_t version;
} target_versions[] = {{120, 0, 87}, {110, 0, 90}, {103, 0, 88}, {100, 0, 86}, {90, 'a', 80},
                       {90, 0, 78},  {89, 0, 78},  {87, 0, 74},  {86, 0, 71},  {80, 0, 70}};

uint16_t sx_ptx_target_version(uint32_t target, char feature)
{
    for (uint32_t i = 0; i < SX_COUNT(target_versions); i++) {
        bool of = target_versions[i].feature == 0 || target_versions[i].feature == feature;
        if (target >= target_versions[i].target && of) {
            return target_versions[i].version;
        }
    }
    return 70;
}
