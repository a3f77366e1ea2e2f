/* numerics.c - the id of a kernel's numerics plan: what its bits depend on beside the values of its arguments. */
#include <string.h>

#include "core/loop/lower.h"

uint64_t sx_lower_numerics(const sx_lower *l, sx_kernel_kind kind, const int64_t *extent,
                           uint32_t extent_count)
{
    uint64_t word[5 + SX_RANK_MAX + SX_FUSED_INSTRS_MAX * 9 + 2 * SX_FUSED_RESULTS_MAX];
    SX_ASSERT(extent_count <= SX_RANK_MAX + 1);
    uint32_t n = 0;
    word[n++] = l->unit != NULL ? sx_hash64(sx_span_of(l->unit->numerics), 0) : 0; // a move
    word[n++] = (uint64_t)kind;
    word[n++] = (uint64_t)l->out_dtype;
    word[n++] = extent_count;
    for (uint32_t e = 0; e < extent_count; e++) {
        word[n++] = (uint64_t)extent[e];
    }
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        bool apply = in->kind == SX_BODY_APPLY;
        uint32_t operands = apply ? sx_op_info_of(in->op)->input_max : 0;
        word[n++] = (uint64_t)in->kind;
        word[n++] = (uint64_t)in->dtype;
        word[n++] = apply ? (uint64_t)in->op : 0;
        word[n++] = apply && in->op == SX_OP_COMPARE ? (uint64_t)in->direction : 0;
        word[n++] = in->kind == SX_BODY_REDUCE ? (uint64_t)in->reducer : 0;
        word[n++] = in->kind == SX_BODY_IMM ? 0 : in->x;
        word[n++] =
            operands > 1 || in->kind == SX_BODY_DOT || in->kind == SX_BODY_ONLINE ? in->y : 0;
        word[n++] = operands > 2 ? in->z : 0;
        word[n] = 0;
        if (in->kind == SX_BODY_IMM) {
            memcpy(&word[n], &in->imm, sizeof(in->imm));
        }
        n++;
    }
    uint32_t results = l->analysis != NULL ? l->analysis->result_count : 1;
    for (uint32_t r = 0; results > 1 && r < results; r++) {
        word[n++] = l->analysis->root[r];
        word[n++] = (uint64_t)l->analysis->root_dtype[r];
    }
    return sx_hash64((sx_span){(const uint8_t *)word, n * sizeof(word[0])}, 1);
}
