/* elementwise.c - operations element by element: loops over doubles for the usual ones on floats, the
 * interpreter's scalars for the rest. */
#include <math.h>

#include "client/verify/fast.h"
#include "client/verify/step.h"

typedef enum { ROUND_NEVER, ROUND_F32, ROUND_OTHER } rounding;

static rounding rounding_of(const sxv_step *s)
{
    if (s->mode == SX_EVAL_F64 || s->type->dtype == SX_F64) {
        return ROUND_NEVER;
    }
    return s->type->dtype == SX_F32 ? ROUND_F32 : ROUND_OTHER;
}

/* `value` is said of element i; each result is rounded once. */
#define EACH(value)                                  \
    do {                                             \
        if (how == ROUND_F32) {                      \
            for (int64_t i = first; i < last; i++) { \
                to[i].f = (double)(float)(value);    \
            }                                        \
        } else {                                     \
            for (int64_t i = first; i < last; i++) { \
                to[i].f = (value);                   \
            }                                        \
        }                                            \
    } while (0)

/* Elements [first, last) of an operation on floats; false: not one of the usual ones. */
SXV_LEVELS static bool run_floats(const sxv_step *s, int64_t first, int64_t last)
{
    rounding how = rounding_of(s);
    const sx_cell *x = s->input[0].cell;
    const sx_cell *y = s->input_count > 1 ? s->input[1].cell : x;
    sx_cell *to = s->result;
    switch ((int)s->op) {
    case SX_OP_NEGATE: EACH(-x[i].f); break;
    case SX_OP_ABS: EACH(fabs(x[i].f)); break;
    case SX_OP_EXP: EACH(exp(x[i].f)); break;
    case SX_OP_LOG: EACH(log(x[i].f)); break;
    case SX_OP_SQRT: EACH(sqrt(x[i].f)); break;
    case SX_OP_TANH: EACH(tanh(x[i].f)); break;
    case SX_OP_ERF: EACH(erf(x[i].f)); break;
    case SX_OP_LOGISTIC: EACH(1 / (1 + exp(-x[i].f))); break;
    case SX_OP_ADD: EACH(x[i].f + y[i].f); break;
    case SX_OP_SUBTRACT: EACH(x[i].f - y[i].f); break;
    case SX_OP_MULTIPLY: EACH(x[i].f * y[i].f); break;
    case SX_OP_DIVIDE: EACH(x[i].f / y[i].f); break;
    default: return false;
    }
    for (int64_t i = first; how == ROUND_OTHER && i < last; i++) {
        to[i].f = sx_round(s->type->dtype, to[i].f);
    }
    return true;
}

static bool is_order(const sxv_step *s)
{
    return s->op == SX_OP_MAXIMUM || s->op == SX_OP_MINIMUM;
}

/* The larger or smaller of two numbers; what becomes of NaN is the interpreter's matter. */
SXV_LEVELS static void run_order(const sxv_step *s, const sx_scalar_op *op, int64_t first,
                                 int64_t last)
{
    const sx_cell *x = s->input[0].cell;
    const sx_cell *y = s->input[1].cell;
    for (int64_t i = first; i < last; i++) {
        if (x[i].f != x[i].f || y[i].f != y[i].f) {
            s->result[i] = sx_cell_apply(s->mode, op, x[i], y[i], x[i]);
        } else if (s->op == SX_OP_MAXIMUM) {
            s->result[i].f = x[i].f > y[i].f ? x[i].f : y[i].f;
        } else {
            s->result[i].f = x[i].f < y[i].f ? x[i].f : y[i].f;
        }
    }
}

static void run(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const sxv_step *s = self;
    uint32_t from = s->op == SX_OP_SELECT ? 1 : 0;
    sx_scalar_op op = {s->op, s->op == SX_OP_COMPARE ? s->attr->direction : SX_EQ,
                       s->input[from].type->dtype, s->type->dtype};
    const sx_cell *x = s->input[0].cell;
    const sx_cell *y = s->input_count > 1 ? s->input[1].cell : x;
    const sx_cell *z = s->input_count > 2 ? s->input[2].cell : x;
    bool floats = sx_dtype_class_of(op.from) == SX_CLASS_FLOAT &&
                  sx_dtype_class_of(op.to) == SX_CLASS_FLOAT && op.op != SX_OP_CONVERT &&
                  op.op != SX_OP_SELECT;
    (void)thread;
    if (floats && is_order(s)) {
        run_order(s, &op, first, last);
    } else if (!floats || !run_floats(s, first, last)) {
        for (int64_t i = first; i < last; i++) {
            s->result[i] = sx_cell_apply(s->mode, &op, x[i], y[i], z[i]);
        }
    }
}

sx_code sxv_step_elementwise(const sxv_step *step)
{
    sxv_step s = *step;
    SX_ASSERT(s.input_count >= 1 && s.input_count <= 3);
    sxr_pool_run(s.pool, run, &s, sx_tensor_elements(s.type));
    return SX_OK;
}
