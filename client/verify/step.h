/* step.h - inside client/verify: one operation of the reference in one of its two modes, and who carries it out. */
#ifndef SX_CLIENT_VERIFY_STEP_H
#define SX_CLIENT_VERIFY_STEP_H
#include "client/runtime/pool.h"
#include "core/ir/eval.h"

/* An operand in the form of the interpreter (cells), or as f32 in the memory of the one who gave it (`raw`;
 * cell NULL then). */
typedef struct {
    const sx_type *type;
    const sx_cell *cell;
    const float *raw;
} sxv_operand;

typedef struct {
    sx_ctx *cx;
    sxr_pool *pool;
    sx_op op;
    const sx_attr *attr;
    sx_eval_mode mode; /* SX_EVAL_F64 or SX_EVAL_TYPED */
    sxv_operand input[SX_INPUTS_MAX];
    uint32_t input_count;
    const sx_type *type;
    sx_cell *result;
} sxv_step;

/* May the operands of this operation be raw? */
bool sxv_takes_raw(sx_op op);
/* Carries the step out.  errors  SX_NOMEM; those of the interpreter */
sx_code sxv_step_run(const sxv_step *step);

/* Elements as numbers, whatever the operand's form. */
static inline double sxv_float_at(const sxv_operand *x, int64_t i)
{
    return x->cell != NULL ? x->cell[i].f : (double)x->raw[i];
}

/* elementwise.c, shape.c, contract.c: *done false: not an operation, or types, of theirs. */
sx_code sxv_step_elementwise(const sxv_step *step);
sx_code sxv_step_shape(const sxv_step *step, bool *done);
sx_code sxv_step_contract(const sxv_step *step, bool *done);
#endif
