/* atomic.c - reading, combining and writing memory in one. */
#include <string.h>

#include "core/simt/machine.h"

static uint64_t combine_unsigned(sx_ptx_modifier how, uint64_t old, uint64_t value)
{
    switch (how) {
    case SX_PTX_COMBINE_ADD: return old + value;
    case SX_PTX_COMBINE_MIN: return old < value ? old : value;
    case SX_PTX_COMBINE_MAX: return old > value ? old : value;
    case SX_PTX_COMBINE_AND: return old & value;
    case SX_PTX_COMBINE_OR: return old | value;
    case SX_PTX_COMBINE_XOR: return old ^ value;
    case SX_PTX_COMBINE_EXCH: return value;
    case SX_PTX_COMBINE_INC: return old >= value ? 0 : old + 1;
    case SX_PTX_COMBINE_DEC: return old == 0 || old > value ? value : old - 1;
    default: SX_UNREACHABLE();
    }
}

static uint64_t combine_signed(sx_ptx_modifier how, int64_t old, int64_t value)
{
    bool first = how == SX_PTX_COMBINE_MIN ? old < value : old > value;
    return (uint64_t)(first ? old : value);
}

static uint64_t add_floats(sx_ptx_modifier type, uint64_t old, uint64_t value)
{
    if (type == SX_PTX_TYPE_F64) {
        double a, b;
        memcpy(&a, &old, sizeof a);
        memcpy(&b, &value, sizeof b);
        a += b;
        memcpy(&old, &a, sizeof a);
        return old;
    }
    uint32_t bits[2] = {(uint32_t)old, (uint32_t)value};
    float a, b;
    memcpy(&a, &bits[0], sizeof a);
    memcpy(&b, &bits[1], sizeof b);
    a += b;
    memcpy(&bits[0], &a, sizeof a);
    return bits[0];
}

/* Values hold the bits of the type, those above them are zero; the result's are cut off by the caller. */
static uint64_t combine(sx_ptx_modifier how, sx_ptx_modifier type, uint64_t old, uint64_t value)
{
    bool ordered = how == SX_PTX_COMBINE_MIN || how == SX_PTX_COMBINE_MAX;
    if (how == SX_PTX_COMBINE_ADD && (type == SX_PTX_TYPE_F32 || type == SX_PTX_TYPE_F64)) {
        return add_floats(type, old, value);
    }
    if (ordered && type == SX_PTX_TYPE_S32) {
        return combine_signed(how, (int32_t)(uint32_t)old, (int32_t)(uint32_t)value);
    }
    if (ordered && type == SX_PTX_TYPE_S64) {
        return combine_signed(how, (int64_t)old, (int64_t)value);
    }
    return combine_unsigned(how, old, value);
}

sx_code sx_ptx_run_atomic(const sx_ptx_step *s)
{
    const sx_ptx_insn *insn = &s->m->kernel->insn[s->insn];
    sx_ptx_modifier how = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_COMBINE, 0);
    sx_ptx_modifier type = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, 0);
    uint32_t size = s->u->element_bytes;
    bool swap = s->u->operand_count == 2; // compare and swap
    SX_ASSERT(size == 4 || size == 8);
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        sx_ptx_spot place;
        if ((s->active >> lane & 1) == 0) {
            continue;
        }
        SX_TRY(sx_ptx_locate(s->m, s->w, lane, s->insn, s->u->space, sx_ptx_address(s, 0, lane),
                             size, SX_PTX_IS_ATOMIC, &place));
        SX_TRY(sx_ptx_touch(s->m, s->w, lane, s->insn, &place, size, SX_PTX_IS_ATOMIC));
        if (place.space != SX_PTX_SPACE_GLOBAL && place.space != SX_PTX_SPACE_SHARED) {
            return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                               "updates memory %s, where nothing is atomic",
                               sx_ptx_modifier_of(place.space)->text);
        }
        uint64_t old = 0, value = sx_ptx_operand_word(s, 0)->lane[lane];
        memcpy(&old, place.bytes, size);
        uint64_t fresh = !swap          ? combine(how, type, old, value)
                         : old == value ? sx_ptx_operand_word(s, 1)->lane[lane]
                                        : old;
        memcpy(place.bytes, &fresh, size);
        if (s->u->result_count > 0) {
            sx_ptx_result(s, 0)->lane[lane] = old;
        }
    }
    return SX_OK;
}
