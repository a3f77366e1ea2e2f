/* alike.c - for which extents does a lowering make the same program? All that it reads of an analysis, as words. */
#include "core/kernel/kernel.h"

#include <string.h>

typedef struct {
    uint64_t *word;
    uint32_t count;
    /* Extents, strides, offsets and sizes, which go behind the other words. */
    int64_t number[SX_ALIKE_NUMBERS];
    uint32_t number_count;
} writer;

static void put(writer *w, uint64_t word)
{
    SX_ASSERT(w->count < SX_ALIKE_WORDS);
    w->word[w->count++] = word;
}

static void put_number(writer *w, int64_t number)
{
    SX_ASSERT(w->number_count < SX_ALIKE_NUMBERS);
    w->number[w->number_count++] = number;
}

static void put_body(writer *w, const sx_body *body)
{
    put(w, (uint64_t)body->arg_count << 32 | body->instr_count);
    put(w, (uint64_t)body->axes << 32 | body->inner);
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        uint64_t bits;
        memcpy(&bits, &in->imm, sizeof(bits));
        put(w, (uint64_t)in->kind << 32 | (uint64_t)in->op);
        put(w, (uint64_t)in->direction << 32 | (uint64_t)in->reducer << 16 | (uint64_t)in->dtype);
        put(w, (uint64_t)in->x << 32 | in->y);
        put(w, in->z);
        put(w, in->kind == SX_BODY_IMM ? bits : 0);
    }
}

static void put_view(writer *w, const sx_analysis *a, uint32_t own)
{
    const sx_view *view = &a->view;
    put(w, view->rank);
    for (uint32_t d = 0; d < view->rank; d++) {
        put_number(w, d == own ? 0 : view->extent[d]);
        put_number(w, view->out_stride[d]);
        put(w,
            (uint64_t)a->role[d] << 2 | (view->reduced[d] ? 2u : 0u) | (view->inner[d] ? 1u : 0u));
    }
    for (uint32_t k = 0; k < a->body->arg_count; k++) {
        put_number(w, view->offset[k]);
        for (uint32_t d = 0; d < view->rank; d++) {
            put_number(w, view->stride[k][d]);
        }
    }
    put_number(w, view->out_offset);
    put(w, view->last_reduced ? 1 : 0);
    for (uint32_t i = 0; i < a->body->instr_count; i++) {
        const sx_instr *in = &a->body->instr[i];
        put(w, in->kind == SX_BODY_INDEX ? view->view_dim[in->x] : SX_NO_DIM);
    }
}

/* Buffers: how large they are follows from `own`, too. */
static void put_tensors(writer *w, const sx_analysis *a, uint32_t own)
{
    bool sizes = own == SX_NO_DIM;
    put(w, (uint64_t)a->input_count << 32 | a->result_count);
    for (uint32_t k = 0; k < a->input_count; k++) {
        put(w, a->input[k].dtype);
        put_number(w, sizes ? sx_tensor_elements(&a->input[k]) : 0);
    }
    for (uint32_t k = 0; k < a->result_count; k++) {
        put(w, (uint64_t)a->root[k] << 32 | (uint64_t)a->root_dtype[k] << 1 |
                   (a->root_full[k] ? 1u : 0u));
        put_number(w, sizes ? sx_analysis_elements(a, k) : 0);
    }
}

static void put_roles(writer *w, const sx_analysis *a, uint32_t own)
{
    const uint32_t number[] = {
        a->kind,         a->reduced,    a->lane,  a->lane_bytes, a->row,         a->column,
        a->keys,         a->dot,        a->lhs,   a->rhs,        a->scores,      a->value,
        a->outer,        a->full,       a->along, a->swapped,    a->lhs_by_lane, a->rhs_direct,
        a->rhs_packable, a->arithmetic, a->steady};
    for (uint32_t i = 0; i < SX_COUNT(number); i++) {
        put(w, number[i]);
    }
    for (uint32_t r = 0; r < SX_ROLE_COUNT; r++) {
        put_number(w, own != SX_NO_DIM && r == SX_ROLE_BATCH ? 0 : a->extent[r]);
    }
    put_number(w, own != SX_NO_DIM ? 0 : a->rhs_copies);
    put(w, a->passes.passes);
    put(w, (uint64_t)a->passes.reductions << 32 | a->passes.arguments_again);
    put(w, a->passes.makes_again ? 1 : 0);
    for (uint32_t i = 0; i < a->body->instr_count; i++) {
        put(w, a->varies[i]);
    }
    put(w, a->product_count);
    for (uint32_t k = 0; k < a->product_count; k++) {
        put(w, (uint64_t)a->product[k].lhs << 32 | a->product[k].rhs);
        put(w, a->product[k].dot);
    }
}

uint32_t sx_analysis_own(const sx_analysis *a)
{
    uint32_t own = SX_NO_DIM, last = SX_NO_DIM;
    if (a->kind != SX_KERNEL_ONLINE && a->kind != SX_KERNEL_NESTED) {
        return SX_NO_DIM;
    }
    for (uint32_t d = 0; d < a->view.rank; d++) {
        last = a->role[d] == SX_ROLE_BATCH ? d : last;
    }
    for (uint32_t d = 0; d < a->view.rank; d++) {
        bool other = a->role[d] == SX_ROLE_BATCH && d != last;
        own = other && (own == SX_NO_DIM || a->view.extent[d] > a->view.extent[own]) ? d : own;
    }
    for (uint32_t i = 0; i < a->body->instr_count && own != SX_NO_DIM; i++) {
        const sx_instr *in = &a->body->instr[i];
        bool counts = in->kind == SX_BODY_INDEX && a->view.view_dim[in->x] == own;
        own = counts ? SX_NO_DIM : own;
    }
    return own;
}

bool sx_analysis_alike(const sx_analysis *a, uint32_t own, uint64_t word[SX_ALIKE_WORDS],
                       uint32_t *count, uint32_t *numbers)
{
    writer w;
    w.word = word;
    w.count = w.number_count = 0;
    *count = *numbers = 0;
    if (a->statistic != NULL || a->refusal != NULL) {
        return false;
    }
    put(&w, own);
    put_body(&w, a->body);
    put_view(&w, a, own);
    put_tensors(&w, a, own);
    put_roles(&w, a, own);
    for (uint32_t i = 0; i < w.number_count; i++) {
        put(&w, (uint64_t)w.number[i]);
    }
    *count = w.count;
    *numbers = w.number_count;
    return true;
}
