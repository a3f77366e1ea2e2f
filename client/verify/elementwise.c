/* elementwise.c - operations element by element: loops over doubles for the usual ones on floats, the
 * interpreter's scalars for the rest. */
#include <math.h>

#include "core/base/fast.h"
#include "client/verify/narrow.h"
#include "client/verify/step.h"
#include "core/ir/num.h"

typedef enum { ROUND_NEVER, ROUND_F32, ROUND_OTHER } rounding;

static rounding rounding_of(const sxv_step *s)
{
    if (s->mode == SX_EVAL_F64 || s->type->dtype == SX_F64 || s->narrow != NULL) {
        return ROUND_NEVER; /* or by whoever stores the result as f32 */
    }
    return s->type->dtype == SX_F32 ? ROUND_F32 : ROUND_OTHER;
}

/* Some elements in a row: of the operands, and room for those of the result. */
#define CHUNK 512
typedef struct {
    const sx_cell *x, *y, *z;
    sx_cell *to;
} chunk;

/* `value` is said of element i; each result is rounded once. */
#define EACH(value)                               \
    do {                                          \
        if (how == ROUND_F32) {                   \
            for (int64_t i = 0; i < count; i++) { \
                to[i].f = (double)(float)(value); \
            }                                     \
        } else {                                  \
            for (int64_t i = 0; i < count; i++) { \
                to[i].f = (value);                \
            }                                     \
        }                                         \
    } while (0)

/* An operation on floats; false: not one of the usual ones. */
SX_LEVELS static bool run_floats(const sxv_step *s, const chunk *c, int64_t count)
{
    rounding how = rounding_of(s);
    const sx_cell *x = c->x;
    const sx_cell *y = c->y;
    sx_cell *to = c->to;
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
    for (int64_t i = 0; how == ROUND_OTHER && i < count; i++) {
        to[i].f = sx_round(s->type->dtype, to[i].f);
    }
    return true;
}

static bool is_order(const sxv_step *s)
{
    return s->op == SX_OP_MAXIMUM || s->op == SX_OP_MINIMUM;
}

/* The larger or smaller of two numbers; what becomes of NaN is the interpreter's matter. */
SX_LEVELS static void run_order(const sxv_step *s, const sx_scalar_op *op, const chunk *c,
                                int64_t count)
{
    const sx_cell *x = c->x;
    const sx_cell *y = c->y;
    bool larger = s->op == SX_OP_MAXIMUM;
    bool unordered = false;
    for (int64_t i = 0; i < count; i++) {
        bool first = larger ? x[i].f > y[i].f : x[i].f < y[i].f;
        c->to[i].f = first ? x[i].f : y[i].f;
        unordered = unordered || x[i].f != x[i].f || y[i].f != y[i].f;
    }
    for (int64_t i = 0; unordered && i < count; i++) {
        if (x[i].f != x[i].f || y[i].f != y[i].f) {
            c->to[i] = sx_cell_apply(s->mode, op, x[i], y[i], x[i]);
        }
    }
}

static void run_chunk(const sxv_step *s, const sx_scalar_op *op, const chunk *c, int64_t count)
{
    bool floats = sx_dtype_class_of(op->from) == SX_CLASS_FLOAT &&
                  sx_dtype_class_of(op->to) == SX_CLASS_FLOAT && op->op != SX_OP_CONVERT &&
                  op->op != SX_OP_SELECT;
    if (floats && is_order(s)) {
        run_order(s, op, c, count);
    } else if (!floats || !run_floats(s, c, count)) {
        for (int64_t i = 0; i < count; i++) {
            c->to[i] = sx_cell_apply(s->mode, op, c->x[i], c->y[i], c->z[i]);
        }
    }
}

/* `count` elements from `from`, each `step` behind the other. */
SX_LEVELS static void load_run(const sxv_operand *x, int64_t from, int64_t step, int64_t count,
                               sx_cell *to)
{
    if (step == 0) {
        sx_cell repeated = sxv_cell_at(x, from);
        for (int64_t i = 0; i < count; i++) {
            to[i] = repeated;
        }
    } else if (x->cell == NULL && step == 1) {
        const float *restrict raw = x->raw + from;
        sx_cell *restrict cell = to;
        for (int64_t i = 0; i < count; i++) {
            cell[i].f = (double)raw[i];
        }
    } else if (x->cell == NULL) {
        for (int64_t i = 0; i < count; i++) {
            to[i].f = (double)x->raw[from + i * step];
        }
    } else {
        for (int64_t i = 0; i < count; i++) {
            to[i] = x->cell[from + i * step];
        }
    }
}

/* Elements of a spread operand that lie `step` apart, from number `at` of those there are. */
typedef struct {
    int64_t at, step, count;
} spread_run;

/* From element `first` on, `count` at most: the rest of a row of its type. */
static spread_run spread_run_of(const sxv_operand *x, int64_t first, int64_t count)
{
    const sx_type *type = x->type;
    uint32_t inner = type->rank > 0 ? type->rank - 1 : 0;
    int64_t length = type->rank > 0 ? type->dim[inner].scale : 1;
    spread_run run = {.step = type->rank > 0 ? x->step[inner] : 0};
    int64_t rest = first / length;
    run.count = sx_min_i64(length - first % length, count);
    run.at = first % length * run.step;
    for (uint32_t d = inner; d-- > 0;) {
        run.at += rest % type->dim[d].scale * x->step[d];
        rest /= type->dim[d].scale;
    }
    return run;
}

static void load_spread(const sxv_operand *x, int64_t first, int64_t count, sx_cell *room)
{
    spread_run run;
    for (int64_t i = 0; i < count; i += run.count) {
        run = spread_run_of(x, first + i, count - i);
        load_run(x, run.at, run.step, run.count, room + i);
    }
}

static const sx_cell *load(const sxv_operand *x, int64_t first, int64_t count, sx_cell *room)
{
    if (x->step != NULL) {
        load_spread(x, first, count, room);
        return room;
    }
    if (x->cell == NULL) {
        load_run(x, first, 1, count, room);
        return room;
    }
    return x->cell + first;
}

SX_LEVELS static void store(const sx_cell *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = (float)from[i].f;
    }
}

static void run(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const sxv_step *s = self;
    uint32_t from = s->op == SX_OP_SELECT ? 1 : 0;
    sx_scalar_op op = {s->op, s->op == SX_OP_COMPARE ? s->attr->direction : SX_EQ,
                       s->input[from].type->dtype, s->type->dtype};
    sx_cell room[4][CHUNK];
    (void)thread;
    for (int64_t i = first; i < last; i += CHUNK) {
        int64_t count = sx_min_i64(CHUNK, last - i);
        chunk c = {.x = load(&s->input[0], i, count, room[0])};
        c.y = s->input_count > 1 ? load(&s->input[1], i, count, room[1]) : c.x;
        c.z = s->input_count > 2 ? load(&s->input[2], i, count, room[2]) : c.x;
        c.to = s->narrow != NULL ? room[3] : s->result + i;
        run_chunk(s, &op, &c, count);
        if (s->narrow != NULL) {
            store(c.to, count, s->narrow + i);
        }
    }
}

/* ---- f32 throughout ---- */

typedef struct {
    const sxv_step *s;
    sxv_narrow narrow;
} narrow_step;

/* Elements of a spread operand in a row, each `step` behind the other. */
SX_LEVELS static void load_floats(const float *from, int64_t step, int64_t count, float *to)
{
    if (step == 0) {
        for (int64_t i = 0; i < count; i++) {
            to[i] = *from;
        }
    } else {
        for (int64_t i = 0; i < count; i++) {
            to[i] = from[i * step];
        }
    }
}

static const float *floats_of(const sxv_operand *x, int64_t first, int64_t count, float *room)
{
    spread_run run;
    if (x->step == NULL) {
        return x->raw + first;
    }
    for (int64_t i = 0; i < count; i += run.count) {
        run = spread_run_of(x, first + i, count - i);
        load_floats(x->raw + run.at, run.step, run.count, room + i);
    }
    return room;
}

static void run_narrow(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const narrow_step *n = self;
    const sxv_step *s = n->s;
    float room[2][CHUNK];
    (void)thread;
    for (int64_t i = first; i < last; i += CHUNK) {
        int64_t count = sx_min_i64(CHUNK, last - i);
        const float *x = floats_of(&s->input[0], i, count, room[0]);
        const float *y = s->input_count > 1 ? floats_of(&s->input[1], i, count, room[1]) : x;
        sxv_narrow_run(&n->narrow, x, y, count, s->narrow + i);
    }
}

bool sxv_is_elementwise(sx_op op)
{
    switch (sx_op_info_of(op)->op_class) {
    case SX_OPCLASS_UNARY:
    case SX_OPCLASS_BINARY:
    case SX_OPCLASS_COMPARE:
    case SX_OPCLASS_SELECT:
    case SX_OPCLASS_CONVERT: return true;
    default: return false;
    }
}

sx_code sxv_step_elementwise(const sxv_step *step)
{
    sxv_step s = *step;
    narrow_step n = {.s = &s};
    bool floats = s.narrow != NULL;
    SX_ASSERT(s.input_count >= 1 && s.input_count <= 3);
    for (uint32_t k = 0; k < s.input_count; k++) {
        floats = floats && s.input[k].cell == NULL;
    }
    if (floats && sxv_narrow_make(s.op, &n.narrow)) {
        sxr_pool_run(s.pool, run_narrow, &n, sx_tensor_elements(s.type));
    } else {
        sxr_pool_run(s.pool, run, &s, sx_tensor_elements(s.type));
    }
    return SX_OK;
}
