#include "core/ir/fused.h"

#include <string.h>

/* Operands and fields that an instruction of this kind reads, others as zero: what equality and hash compare. */
static sx_instr normal(const sx_instr *in)
{
    sx_instr out = {.kind = in->kind, .dtype = in->dtype};
    switch (in->kind) {
    case SX_BODY_ARG:
    case SX_BODY_INDEX: out.x = in->x; break;
    case SX_BODY_IMM: out.imm = in->imm; break;
    case SX_BODY_APPLY: {
        uint32_t operands = sx_op_info_of(in->op)->input_max;
        out.op = in->op;
        out.direction = in->op == SX_OP_COMPARE ? in->direction : SX_EQ;
        out.x = in->x;
        out.y = operands > 1 ? in->y : 0;
        out.z = operands > 2 ? in->z : 0;
        break;
    }
    case SX_BODY_REDUCE:
        out.reducer = in->reducer;
        out.x = in->x;
        break;
    case SX_BODY_DOT:
        out.x = in->x;
        out.y = in->y;
        break;
    }
    return out;
}

sx_kernel_kind sx_body_kernel_kind(const sx_body *body)
{
    sx_kernel_kind kind = SX_KERNEL_MAP;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        if (body->instr[i].kind == SX_BODY_DOT) {
            return SX_KERNEL_DOT;
        }
        if (body->instr[i].kind == SX_BODY_REDUCE) {
            kind = SX_KERNEL_ROW;
        }
    }
    return kind;
}

static uint64_t hash_words(const uint64_t *word, uint32_t count, uint64_t seed)
{
    return sx_hash64((sx_span){(const uint8_t *)word, count * sizeof(*word)}, seed);
}

static uint64_t hash_dim(sx_dim dim, uint64_t seed)
{
    uint64_t word[2] = {(uint64_t)dim.scale, dim.scale == 0 ? SX_NO_SYMBOL : dim.symbol};
    return hash_words(word, 2, seed);
}

uint64_t sx_body_hash(const sx_body *body)
{
    SX_ASSERT(body->arg_count <= SX_FUSED_ARGS_MAX && body->instr_count <= SX_FUSED_INSTRS_MAX);
    uint64_t head[3] = {body->arg_count, body->instr_count, body->axes};
    uint64_t hash = hash_words(head, 3, 0);
    for (uint32_t a = 0; a < body->arg_count; a++) {
        for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
            hash = hash_dim(body->access[a].stride[d], hash);
        }
        hash = hash_dim(body->access[a].offset, hash);
    }
    for (uint32_t i = 0; i < body->instr_count; i++) {
        sx_instr in = normal(&body->instr[i]);
        uint64_t word[9] = {in.kind, in.op, in.direction, in.reducer, in.dtype, in.x, in.y, in.z};
        memcpy(&word[8], &in.imm, sizeof(in.imm));
        hash = hash_words(word, 9, hash);
    }
    return hash;
}

static bool equal_instr(const sx_instr *first, const sx_instr *second)
{
    sx_instr a = normal(first);
    sx_instr b = normal(second);
    return a.kind == b.kind && a.op == b.op && a.direction == b.direction &&
           a.reducer == b.reducer && a.dtype == b.dtype && a.x == b.x && a.y == b.y && a.z == b.z &&
           memcmp(&a.imm, &b.imm, sizeof(a.imm)) == 0;
}

bool sx_body_equal(const sx_body *a, const sx_body *b)
{
    if (a->arg_count != b->arg_count || a->instr_count != b->instr_count || a->axes != b->axes) {
        return false;
    }
    for (uint32_t i = 0; i < a->arg_count; i++) {
        if (!sx_dim_equal(a->access[i].offset, b->access[i].offset)) {
            return false;
        }
        for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
            if (!sx_dim_equal(a->access[i].stride[d], b->access[i].stride[d])) {
                return false;
            }
        }
    }
    for (uint32_t i = 0; i < a->instr_count; i++) {
        if (!equal_instr(&a->instr[i], &b->instr[i])) {
            return false;
        }
    }
    return true;
}

sx_code sx_fused_infer(sx_ctx *cx, const sx_attr *attr, const sx_type *input, uint32_t input_count,
                       sx_type *result)
{
    (void)input;
    (void)result;
    return SX_FAIL(cx, SX_UNIMPLEMENTED,
                   "fused: no checker for a body of %u instructions, %u inputs",
                   attr->body->instr_count, input_count);
}
