/* reference_op.c - elementwise operations as terms: the sequences of core/loop/typed.c recorded once and read
 * back. */
#include <string.h>

#include "core/judge/reference.h"

sx_code sx_reference_make(sx_ctx *cx, sx_reference *r)
{
    memset(r, 0, sizeof(*r));
    for (uint32_t wide = 0; wide < 2; wide++) {
        sx_sequences *all = &r->recorded[wide];
        sx_loop_builder *b = &all->builder;
        SX_TRY(sx_kernel_make(cx, "operations", 8, wide != 0 ? 8 : 4, &all->scratch));
        sx_loop_begin_part(b, cx, all->scratch, 1, 1, 1);
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t v = sx_loop_bits(b, 0);
            all->operand[0][k] = v;
            all->operand[1][k] =
                sx_loop_op(b, SX_LOP_ICMP, SX_NO_REG, NULL, v, v, SX_NO_REG, SX_EQ, 0);
        }
        SX_TRY(b->code);
    }
    return SX_OK;
}

/* Is operand `k` of the sequence a lane mask? */
static bool takes_mask(sx_sequence_kind kind, const sx_loop_step *step, uint32_t k)
{
    if (kind == SX_SEQUENCE_STEP && step->op == SX_OP_SELECT) {
        return k == 0 || step->to == SX_BOOL;
    }
    return kind != SX_SEQUENCE_DECODE && step->from == SX_BOOL;
}

static bool gives_mask(sx_sequence_kind kind, const sx_loop_step *step)
{
    bool step_mask = kind == SX_SEQUENCE_STEP && step->to == SX_BOOL;
    return step_mask || (kind == SX_SEQUENCE_DECODE && step->from == SX_BOOL);
}

static void make_sequence(sx_sequences *all, sx_sequence *made)
{
    sx_loop_builder *b = &all->builder;
    uint32_t x[3];
    for (uint32_t k = 0; k < 3; k++) {
        x[k] = all->operand[takes_mask(made->kind, &made->step, k)][k];
    }
    made->first = b->part->item_count;
    switch (made->kind) {
    case SX_SEQUENCE_STEP: made->result = sx_loop_typed(b, &made->step, x[0], x[1], x[2]); break;
    case SX_SEQUENCE_DECODE: made->result = sx_loop_decode(b, made->step.from, x[0]); break;
    case SX_SEQUENCE_ENCODE: made->result = sx_loop_encode(b, made->step.from, x[0]); break;
    }
    made->end = b->part->item_count;
    made->failed = b->code != SX_OK;
    if (b->code == SX_UNIMPLEMENTED) { /* an operation without a sequence: not ours to report */
        sx_ctx_reset_error(b->cx);
        b->code = SX_OK;
    }
}

static const sx_sequence *find_sequence(sx_reference *r, sx_sequence_kind kind,
                                        const sx_loop_step *step)
{
    sx_sequences *all = &r->recorded[r->g->wide];
    for (uint32_t i = 0; i < all->count; i++) {
        const sx_sequence *s = &all->sequence[i];
        if (s->kind == kind && s->step.op == step->op && s->step.from == step->from &&
            s->step.to == step->to && s->step.direction == step->direction) {
            return s;
        }
    }
    void *array = all->sequence;
    if (all->count == SX_SEQUENCES_MAX ||
        sx_grow(r->g->cx, &array, &all->capacity, all->count + 1, sizeof(sx_sequence)) != SX_OK) {
        (void)sx_refuse(r->g, "more than %u sequences", SX_SEQUENCES_MAX);
        return NULL;
    }
    all->sequence = array;
    sx_sequence *made = &all->sequence[all->count++];
    *made = (sx_sequence){.kind = kind, .step = *step};
    make_sequence(all, made);
    return made;
}

/* Room for the values of all registers of the recorded sequences. */
static bool make_values(sx_reference *r, const sx_part *part)
{
    const uint32_t need[2] = {part->vector_count + 1, part->mask_count + 1};
    for (uint32_t c = 0; c < 2; c++) {
        void *array = r->value[c];
        if (need[c] > r->value_capacity[c] &&
            sx_grow(r->g->cx, &array, &r->value_capacity[c], need[c], sizeof(uint32_t)) != SX_OK) {
            (void)sx_refuse(r->g, "out of memory");
            return false;
        }
        r->value[c] = array;
    }
    return true;
}

/* A sequence of elementwise instructions on terms. */
static uint32_t play(sx_reference *r, sx_sequence_kind kind, const sx_loop_step *step,
                     const uint32_t operand[3])
{
    const sx_sequences *all = &r->recorded[r->g->wide];
    const sx_sequence *seq = r->g->refused ? NULL : find_sequence(r, kind, step);
    const sx_part *part = all->builder.part;
    if (seq == NULL || !make_values(r, part)) {
        return 0;
    }
    if (seq->failed) {
        return sx_refuse(r->g, "%s of %s has no sequence", sx_op_info_of(step->op)->name,
                         sx_dtype_name(step->from));
    }
    for (uint32_t k = 0; k < 3; k++) {
        bool mask = takes_mask(kind, step, k);
        r->value[mask][all->operand[mask][k]] = operand[k];
    }
    for (uint32_t i = seq->first; i < seq->end && !r->g->refused; i++) {
        const sx_item *item = &part->item[i];
        const sx_lop_info *info = sx_lop_info_of(item->op);
        uint32_t x[3] = {0, 0, 0};
        uint32_t n = 0;
        for (const char *p = info->operands; *p != '\0'; p++) {
            if (*p == 'v' || *p == 'm') {
                x[n] = r->value[*p == 'm'][item->src[n]];
                n++;
            }
        }
        SX_ASSERT(item->kind == SX_ITEM_OP && info->result != 's' && info->result != '-');
        uint32_t value = item->op == SX_LOP_SET
                             ? sx_term_constant(r->g, sx_item_bits(item))
                             : sx_term_op(r->g, item->op, item->imm, x[0], x[1], x[2]);
        r->value[info->result == 'm'][item->dst] = value;
    }
    return r->g->refused ? 0 : r->value[gives_mask(kind, step)][seq->result];
}

uint32_t sx_reference_typed(sx_reference *r, const sx_loop_step *step, const uint32_t operand[3])
{
    return play(r, SX_SEQUENCE_STEP, step, operand);
}

uint32_t sx_reference_decode(sx_reference *r, sx_dtype dtype, uint32_t raw)
{
    sx_loop_step step = {.from = dtype};
    return play(r, SX_SEQUENCE_DECODE, &step, (const uint32_t[]){raw, 0, 0});
}

uint32_t sx_reference_encode(sx_reference *r, sx_dtype dtype, uint32_t value)
{
    sx_loop_step step = {.from = dtype};
    return play(r, SX_SEQUENCE_ENCODE, &step, (const uint32_t[]){value, 0, 0});
}

uint32_t sx_reference_apply(sx_reference *r, const sx_instr *in, const uint32_t operand[3])
{
    sx_loop_step step = {in->op, in->direction, in->dtype, in->dtype};
    if (in->op == SX_OP_COMPARE || in->op == SX_OP_CONVERT) {
        step.from = r->body->instr[in->x].dtype;
    }
    return sx_reference_typed(r, &step, operand);
}
