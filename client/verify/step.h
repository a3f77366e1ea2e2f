/* step.h - inside client/verify: one operation of the reference in one of its two modes, and who carries it out. */
#ifndef SX_CLIENT_VERIFY_STEP_H
#define SX_CLIENT_VERIFY_STEP_H
#include "client/verify/multiply.h"
#include "core/eval/cell.h"

/* An operand in the form of the interpreter (cells), or as f32 (`raw`; cell NULL then). In TYPED mode every f32 tensor
 * is raw, and no other is; in F64 mode those of parameters may be. */
typedef struct {
    const sx_type *type;
    const sx_cell *cell;
    const float *raw;
    /* Not NULL: the elements are spread, and that at index i is number i . step of those there are (0 where they are
     * repeated along a dimension). Only element by element operations, and sxv_step_spread, take such operands. */
    const int64_t *step;
} sxv_operand;

typedef struct {
    sx_ctx *cx;
    sxr_pool *pool;
    sx_op op;
    const sx_attr *attr;
    /* SX_EVAL_F64 or SX_EVAL_TYPED. */
    sx_eval_mode mode;
    /* In TYPED mode factors of f32 are rounded to tf32. */
    bool tf32;
    sxv_operand input[SX_INPUTS_MAX];
    uint32_t input_count;
    const sx_type *type;
    /* One of them is there, as for operands. */
    sx_cell *result;
    float *narrow;
    /* Memory for packed operands, which grows as it is needed. */
    sxv_scratch *scratch;
} sxv_step;

/* Carries the step out.  errors  SX_NOMEM; those of the interpreter */
sx_code sxv_step_run(const sxv_step *step);

/* An element, whatever the operand's form. */
static inline sx_cell sxv_cell_at(const sxv_operand *x, int64_t i)
{
    return x->cell != NULL ? x->cell[i] : (sx_cell){.f = (double)x->raw[i]};
}

/* One element of the result. */
static inline void sxv_put(const sxv_step *s, int64_t i, sx_cell value)
{
    if (s->narrow != NULL) {
        s->narrow[i] = (float)value.f;
    } else {
        s->result[i] = value;
    }
}

/* The three that sxv_step_run asks, in elementwise.c, shape.c and contract.c. Where *done is false, they do not know
 * the operation or its types, and the interpreter carries the step out. */
sx_code sxv_step_elementwise(const sxv_step *step);
sx_code sxv_step_shape(const sxv_step *step, bool *done);
sx_code sxv_step_contract(const sxv_step *step, bool *done);
bool sxv_is_elementwise(sx_op op);
/* shape.c: the elements of a spread operand, one for each of its type. */
void sxv_step_spread(const sxv_step *step);
#endif
