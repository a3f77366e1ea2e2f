#include <math.h>
#include <string.h>

#include "core/eval/cell.h"
#include "core/ir/fused_body.h"

#define ROW_LENGTH_MAX (INT64_C(1) << 50) /* times the instructions: fits the fuel's integers */

/* Where an argument's elements are: cells, or stored bytes decoded at each read. */
typedef struct {
    const sx_cell *cell;
    const uint8_t *raw;
    sx_dtype dtype;
    int64_t offset;
    int64_t stride[SX_RANK_MAX];
    int64_t at; /* element of the present iteration */
} source;

/* Instructions to run for one purpose, in order; results of REDUCE and DOT are taken from before. */
typedef struct {
    uint32_t count;
    uint32_t instr[SX_FUSED_INSTRS_MAX];
} steps;

typedef struct {
    uint32_t count;
    uint32_t dim[SX_RANK_MAX]; /* space dimensions, ascending */
} dims;

/* The scores of one row under ONLINE, or the values that the outer DOT of nested ones sums: computed once, used by
 * every reduction and by all rows that differ in nothing they read. */
typedef struct {
    uint32_t x;     /* instruction; UINT32_MAX: neither in the program */
    uint32_t outer; /* kept dimensions that x varies along */
    steps to_x;
    bool powers; /* of ONLINE */
    sx_cell max;
    sx_cell *weight;         /* x, under ONLINE e^(x - max) */
    int64_t at[SX_RANK_MAX]; /* where they were computed */
    bool have;
} scores;

typedef struct {
    sx_eval_mode mode;
    const sx_body *body;
    uint32_t rank;
    bool full;
    int64_t extent[SX_RANK_MAX];
    int64_t index[SX_RANK_MAX];
    dims outer, axis; /* kept and reduced; without `inner` */
    dims inner;       /* that inner DOTs sum over */
    scores online;
    uint64_t row_cost;
    int64_t row_length;
    source source[SX_FUSED_ARGS_MAX];
    sx_scalar_op scalar[SX_FUSED_INSTRS_MAX];
    sx_cell value[SX_FUSED_INSTRS_MAX];
    uint32_t combine_count;
    uint32_t combine[SX_FUSED_INSTRS_MAX]; /* the REDUCE and DOT instructions */
    steps before[SX_FUSED_INSTRS_MAX];     /* what combine[k] needs at each iteration of the row */
    steps after;                           /* what the result needs */
} frame;

static void plan_steps(const sx_body *body, uint32_t target, bool operands_only, steps *plan)
{
    bool needed[SX_FUSED_INSTRS_MAX] = {false};
    needed[target] = true;
    for (uint32_t i = target + 1; i-- > 0;) {
        bool opens =
            needed[i] && (!sx_body_combines(&body->instr[i]) || (operands_only && i == target));
        for (uint32_t k = 0; opens && k < sx_body_operand_count(&body->instr[i]); k++) {
            needed[sx_body_operand(&body->instr[i], k)] = true;
        }
    }
    plan->count = 0;
    for (uint32_t i = 0; i <= target; i++) {
        if (needed[i] && !sx_body_combines(&body->instr[i])) {
            plan->instr[plan->count++] = i;
        }
    }
}

static void plan_frame(frame *f)
{
    const sx_body *body = f->body;
    uint64_t cost = 0;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *instr = &body->instr[i];
        if (sx_body_combines(instr)) {
            plan_steps(body, i, true, &f->before[f->combine_count]);
            cost += 1 + f->before[f->combine_count].count;
            f->combine[f->combine_count++] = i;
        }
        if (instr->kind == SX_BODY_APPLY) {
            uint32_t from = instr->op == SX_OP_SELECT ? instr->y : instr->x;
            f->scalar[i] =
                (sx_scalar_op){instr->op, instr->direction, body->instr[from].dtype, instr->dtype};
        }
        if (instr->kind == SX_BODY_IMM) {
            f->value[i] = sx_cell_of(f->mode, instr->dtype, instr->imm);
        }
    }
    plan_steps(body, body->instr_count - 1, false, &f->after);
    f->row_cost = cost;
}

/* Does the instruction, of a program with scores, make them? */
static bool is_inner(const sx_body *body, const sx_instr *instr)
{
    return instr->kind == SX_BODY_DOT && body->instr[instr->x].kind == SX_BODY_ARG;
}

/* Room for the scores of a row; the way to x from the inner DOTs on. */
static sx_code plan_online(sx_ctx *cx, frame *f, int64_t inner_length)
{
    const sx_body *body = f->body;
    scores *s = &f->online;
    s->x = UINT32_MAX;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *instr = &body->instr[i];
        bool is_outer = instr->kind == SX_BODY_DOT && body->inner != 0 && !is_inner(body, instr);
        s->powers = s->powers || instr->kind == SX_BODY_ONLINE;
        s->x = instr->kind == SX_BODY_ONLINE || is_outer ? instr->x : s->x;
    }
    if (s->x == UINT32_MAX) {
        return SX_OK;
    }
    uint32_t vary[SX_FUSED_INSTRS_MAX];
    sx_body_vary(body, f->rank, vary);
    s->outer = vary[s->x] & ~body->axes;
    plan_steps(body, s->x, false, &s->to_x);
    int64_t cost = 0;
    for (uint32_t k = 0; k < f->combine_count; k++) {
        bool is_dot = is_inner(body, &body->instr[f->combine[k]]);
        cost += is_dot ? 1 + f->before[k].count : 0;
    }
    if (!sx_mul_i64(cost, inner_length, &cost) || !sx_add_i64(cost, s->to_x.count + 2, &cost) ||
        cost > ROW_LENGTH_MAX / f->row_length) {
        return SX_FAIL(cx, SX_LIMIT, "fused: a row has more than %lld operations",
                       (long long)ROW_LENGTH_MAX);
    }
    f->row_cost = (uint64_t)cost;
    s->weight = SX_NEW_ARRAY(cx, sx_cell, (size_t)f->row_length);
    return s->weight == NULL ? cx->error.code : SX_OK;
}

/* A static node, checked by sx_fused_infer. */
static sx_code make_frame(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, frame **made)
{
    frame *f = SX_NEW(cx, frame);
    if (f == NULL) {
        return cx->error.code;
    }
    const sx_type *space = &attr->type;
    f->mode = mode;
    f->body = attr->body;
    f->rank = space->rank;
    f->full = sx_body_result_is_full(space, attr->body);
    f->row_length = 1;
    int64_t inner_length = 1;
    for (uint32_t d = 0; d < space->rank; d++) {
        bool is_axis = (attr->body->axes & 1u << d) != 0;
        bool is_inner = (attr->body->inner & 1u << d) != 0;
        dims *list = is_inner ? &f->inner : is_axis ? &f->axis : &f->outer;
        int64_t *length = is_inner ? &inner_length : &f->row_length;
        f->extent[d] = space->dim[d].scale;
        list->dim[list->count++] = d;
        if (is_axis && (!sx_mul_i64(*length, f->extent[d], length) || *length > ROW_LENGTH_MAX)) {
            return SX_FAIL(cx, SX_LIMIT, "fused: a row has more than %lld iterations",
                           (long long)ROW_LENGTH_MAX);
        }
    }
    for (uint32_t a = 0; a < attr->body->arg_count; a++) {
        f->source[a].offset = attr->body->access[a].offset.scale;
        for (uint32_t d = 0; d < space->rank; d++) {
            f->source[a].stride[d] = attr->body->access[a].stride[d].scale;
        }
    }
    plan_frame(f);
    *made = f;
    return plan_online(cx, f, inner_length);
}

/* ---- moving through the space ---- */
static void locate(frame *f)
{
    for (uint32_t a = 0; a < f->body->arg_count; a++) {
        f->source[a].at = f->source[a].offset;
        for (uint32_t d = 0; d < f->rank; d++) {
            f->source[a].at += f->source[a].stride[d] * f->index[d];
        }
    }
}

static void step_along(frame *f, uint32_t d, int64_t by)
{
    f->index[d] += by;
    for (uint32_t a = 0; a < f->body->arg_count; a++) {
        f->source[a].at += f->source[a].stride[d] * by;
    }
}

/* ---- running the program ---- */
static double f32_at(const uint8_t *raw, int64_t index)
{
    float value;
    memcpy(&value, raw + index * (int64_t)sizeof(value), sizeof(value));
    return (double)value;
}

static sx_cell read_source(const frame *f, const source *s)
{
    if (s->cell != NULL) {
        return s->cell[s->at];
    }
    if (s->dtype == SX_F32 && !sx_mode_is_exact(f->mode)) {
        return (sx_cell){.f = f32_at(s->raw, s->at)};
    }
    return sx_cell_load(f->mode, s->dtype, s->raw, s->at);
}

static void run_steps(frame *f, const steps *plan)
{
    for (uint32_t k = 0; k < plan->count; k++) {
        uint32_t i = plan->instr[k];
        const sx_instr *instr = &f->body->instr[i];
        if (instr->kind == SX_BODY_ARG) {
            f->value[i] = read_source(f, &f->source[instr->x]);
        } else if (instr->kind == SX_BODY_INDEX) {
            f->value[i] = sx_cell_of_int(f->mode, instr->dtype, f->index[instr->x]);
        } else if (instr->kind == SX_BODY_APPLY) {
            uint32_t count = sx_body_operand_count(instr);
            f->value[i] = sx_cell_apply(f->mode, &f->scalar[i], f->value[instr->x],
                                        f->value[count > 1 ? instr->y : instr->x],
                                        f->value[count > 2 ? instr->z : instr->x]);
        }
    }
}

/* A contraction along the innermost reduced dimension, from stored cells: the steps of sx_dot_step without its
 * dispatch. */
static sx_cell dot_line(const frame *f, const sx_instr *dot, uint32_t d, sx_cell sum)
{
    const source *x = &f->source[f->body->instr[dot->x].x];
    const source *y = &f->source[f->body->instr[dot->y].x];
    const sx_cell *left = x->cell + x->at;
    const sx_cell *right = y->cell + y->at;
    int64_t left_step = x->stride[d];
    int64_t right_step = y->stride[d];
    if (f->mode != SX_EVAL_TYPED) {
        for (int64_t i = 0; i < f->extent[d]; i++) {
            sum.f += left[i * left_step].f * right[i * right_step].f;
        }
        return sum;
    }
    for (int64_t i = 0; i < f->extent[d]; i++) {
        sum =
            sx_dot_step(SX_EVAL_TYPED, dot->dtype, sum, left[i * left_step], right[i * right_step]);
    }
    return sum;
}

/* The same from stored elements of f32. */
static sx_cell dot_raw_line(const frame *f, const sx_instr *dot, uint32_t d, sx_cell sum)
{
    const source *x = &f->source[f->body->instr[dot->x].x];
    const source *y = &f->source[f->body->instr[dot->y].x];
    float narrow = (float)sum.f;
    for (int64_t i = 0; i < f->extent[d]; i++) {
        double left = f32_at(x->raw, x->at + i * x->stride[d]);
        double right = f32_at(y->raw, y->at + i * y->stride[d]);
        if (f->mode == SX_EVAL_TYPED) {
            narrow = fmaf((float)left, (float)right, narrow);
        } else {
            sum.f += left * right;
        }
    }
    return f->mode == SX_EVAL_TYPED ? (sx_cell){.f = (double)narrow} : sum;
}

static bool is_raw_f32(const frame *f, uint32_t instr)
{
    const sx_instr *from = &f->body->instr[instr];
    return from->kind == SX_BODY_ARG && f->source[from->x].cell == NULL &&
           f->source[from->x].dtype == SX_F32;
}

/* The next iteration along the first `count` of `list`, the last one fastest; false, and back at the first,
 * after the last. */
static bool next_along(frame *f, const dims *list, uint32_t count)
{
    for (uint32_t k = count; k-- > 0;) {
        uint32_t d = list->dim[k];
        if (f->index[d] + 1 < f->extent[d]) {
            step_along(f, d, 1);
            return true;
        }
        step_along(f, d, -f->index[d]);
    }
    return false;
}

/* The next iteration of the row in ascending order; false, and back at the first, after the last. */
static bool next_in_row(frame *f)
{
    return next_along(f, &f->axis, f->axis.count);
}

static sx_cell run_dot(frame *f, const sx_instr *dot, const dims *over, const steps *before)
{
    sx_cell sum = sx_reduce_open(f->mode, SX_SUM, dot->dtype);
    bool in_lines = !sx_mode_is_exact(f->mode) && sx_dtype_class_of(dot->dtype) == SX_CLASS_FLOAT &&
                    f->source[f->body->instr[dot->x].x].cell != NULL;
    bool in_raw_lines = !sx_mode_is_exact(f->mode) && dot->dtype == SX_F32 && over->count > 0 &&
                        is_raw_f32(f, dot->x) && is_raw_f32(f, dot->y);
    bool more = true;
    while (more) {
        if (in_lines || in_raw_lines) {
            uint32_t d = over->dim[over->count - 1];
            sum = in_lines ? dot_line(f, dot, d, sum) : dot_raw_line(f, dot, d, sum);
            more = next_along(f, over, over->count - 1);
        } else {
            run_steps(f, before);
            sum = sx_dot_step(f->mode, dot->dtype, sum, f->value[dot->x], f->value[dot->y]);
            more = next_along(f, over, over->count);
        }
    }
    return sx_reduce_close(f->mode, dot->dtype, sum);
}

static sx_cell run_combine(frame *f, uint32_t k)
{
    const sx_instr *instr = &f->body->instr[f->combine[k]];
    if (instr->kind == SX_BODY_DOT) {
        return run_dot(f, instr, &f->axis, &f->before[k]);
    }
    sx_cell sum = sx_reduce_open(f->mode, instr->reducer, instr->dtype);
    bool more = true;
    while (more) {
        run_steps(f, &f->before[k]);
        sum = sx_reduce_step(f->mode, instr->reducer, instr->dtype, sum, f->value[instr->x]);
        more = next_in_row(f);
    }
    return sx_reduce_close(f->mode, instr->dtype, sum);
}

/* ---- scores ---- */
static bool have_scores(const frame *f)
{
    bool have = f->online.have;
    for (uint32_t d = 0; d < f->rank; d++) {
        have = have && ((f->online.outer >> d & 1) == 0 || f->online.at[d] == f->index[d]);
    }
    return have;
}

/* From scores to powers of what they are below the largest. */
static void weigh_scores(frame *f)
{
    scores *s = &f->online;
    sx_dtype dtype = f->body->instr[s->x].dtype;
    sx_scalar_op subtract = {SX_OP_SUBTRACT, SX_EQ, dtype, dtype};
    sx_scalar_op power = {SX_OP_EXP, SX_EQ, dtype, dtype};
    s->max = sx_reduce_open(f->mode, SX_MAX, dtype);
    for (int64_t j = 0; j < f->row_length; j++) {
        s->max = sx_reduce_step(f->mode, SX_MAX, dtype, s->max, s->weight[j]);
    }
    s->max = sx_reduce_close(f->mode, dtype, s->max);
    for (int64_t j = 0; j < f->row_length; j++) {
        sx_cell low = sx_cell_apply(f->mode, &subtract, s->weight[j], s->max, s->max);
        s->weight[j] = sx_cell_apply(f->mode, &power, low, low, low);
    }
}

static sx_code make_scores(sx_ctx *cx, frame *f)
{
    scores *s = &f->online;
    SX_TRY(sx_spend(cx, 1 + f->row_cost * (uint64_t)f->row_length));
    bool more = true;
    for (int64_t j = 0; more; j++) {
        for (uint32_t k = 0; k < f->combine_count; k++) {
            const sx_instr *instr = &f->body->instr[f->combine[k]];
            if (is_inner(f->body, instr)) {
                f->value[f->combine[k]] = run_dot(f, instr, &f->inner, &f->before[k]);
            }
        }
        run_steps(f, &s->to_x);
        s->weight[j] = f->value[s->x];
        more = next_in_row(f);
    }
    if (s->powers) {
        weigh_scores(f);
    }
    memcpy(s->at, f->index, sizeof(s->at));
    s->have = true;
    return SX_OK;
}

/* The weighted sum of an argument from stored cells: the steps of sx_dot_step without its dispatch. */
static sx_cell weighted_line(const frame *f, const sx_instr *instr, const source *y, sx_cell sum)
{
    uint32_t d = f->axis.dim[0];
    const sx_cell *right = y->cell + y->at;
    for (int64_t j = 0; j < f->row_length; j++) {
        sx_cell value = right[j * y->stride[d]];
        if (f->mode == SX_EVAL_TYPED) {
            sum = sx_dot_step(SX_EVAL_TYPED, instr->dtype, sum, f->online.weight[j], value);
        } else {
            sum.f += f->online.weight[j].f * value.f;
        }
    }
    return sum;
}

/* Sum of e^(x - max) y by ONLINE instruction `instr`, of x y by an outer DOT. */
static sx_cell run_weighted(frame *f, const sx_instr *instr)
{
    sx_cell sum = sx_reduce_open(f->mode, SX_SUM, instr->dtype);
    const sx_instr *y = &f->body->instr[instr->y];
    const source *from = y->kind == SX_BODY_ARG ? &f->source[y->x] : NULL;
    bool in_lines = !sx_mode_is_exact(f->mode) && sx_dtype_class_of(instr->dtype) == SX_CLASS_FLOAT;
    if (from != NULL && from->cell != NULL && f->axis.count == 1 && in_lines) {
        return sx_reduce_close(f->mode, instr->dtype, weighted_line(f, instr, from, sum));
    }
    bool more = true;
    for (int64_t j = 0; more; j++) {
        sx_cell value = from != NULL ? read_source(f, from) : f->value[instr->y];
        sum = sx_dot_step(f->mode, instr->dtype, sum, f->online.weight[j], value);
        more = next_in_row(f);
    }
    return sx_reduce_close(f->mode, instr->dtype, sum);
}

static sx_code run_online(sx_ctx *cx, frame *f)
{
    if (!have_scores(f)) {
        SX_TRY(make_scores(cx, f));
    }
    SX_TRY(sx_spend(cx, 1 + (uint64_t)f->row_length * f->combine_count));
    for (uint32_t k = 0; k < f->combine_count; k++) {
        const sx_instr *instr = &f->body->instr[f->combine[k]];
        if (!is_inner(f->body, instr)) {
            f->value[f->combine[k]] =
                instr->kind == SX_BODY_REDUCE ? f->online.max : run_weighted(f, instr);
        }
    }
    return SX_OK;
}

/* Everything about one row that the result needs, in program order: later reductions use earlier ones. */
static sx_code run_row(sx_ctx *cx, frame *f)
{
    if (f->online.x != UINT32_MAX) {
        return run_online(cx, f);
    }
    SX_TRY(sx_spend(cx, 1 + f->row_cost * (uint64_t)f->row_length));
    for (uint32_t k = 0; k < f->combine_count; k++) {
        f->value[f->combine[k]] = run_combine(f, k);
    }
    return SX_OK;
}

static sx_cell run_result(frame *f)
{
    run_steps(f, &f->after);
    return f->value[f->body->instr_count - 1];
}

/* The place in the row-major result of the present iteration. */
static int64_t result_at(const frame *f)
{
    int64_t at = 0;
    for (uint32_t d = 0; d < f->rank; d++) {
        if (f->full || (f->body->axes & 1u << d) == 0) {
            at = at * f->extent[d] + f->index[d];
        }
    }
    return at;
}

static bool next_row(frame *f)
{
    return next_along(f, &f->outer, f->outer.count);
}

sx_code sx_eval_fused(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                      uint32_t input_count, const sx_type *type, sx_tensor *result)
{
    frame *f;
    SX_TRY(make_frame(cx, attr, mode, &f));
    SX_ASSERT(input_count == attr->body->arg_count);
    if (sx_tensor_elements(type) == 0) {
        return SX_OK;
    }
    for (uint32_t a = 0; a < input_count; a++) {
        f->source[a].cell = input[a].data;
    }
    sx_cell *cell = result->data;
    uint64_t after_cost = f->after.count * (f->full ? (uint64_t)f->row_length : 1);
    locate(f);
    bool more = true;
    while (more) {
        SX_TRY(run_row(cx, f));
        SX_TRY(sx_spend(cx, after_cost));
        bool more_in_row = true;
        while (more_in_row) {
            cell[result_at(f)] = run_result(f);
            more_in_row = f->full && next_in_row(f);
        }
        more = next_row(f);
    }
    return SX_OK;
}

/* ---- single elements ---- */
/* Sets the iteration to that of result element `position`; true if it lies in another row than before. */
static bool move_to(frame *f, int64_t position)
{
    bool moved = false;
    for (uint32_t d = f->rank; d-- > 0;) {
        bool is_axis = (f->body->axes & 1u << d) != 0;
        if (is_axis && !f->full) {
            continue;
        }
        int64_t index = position % f->extent[d];
        position /= f->extent[d];
        moved = moved || (!is_axis && f->index[d] != index);
        f->index[d] = index;
    }
    locate(f);
    return moved;
}

/* The row's reductions start at its first iteration. */
static sx_code run_row_of(sx_ctx *cx, frame *f)
{
    int64_t index[SX_RANK_MAX];
    memcpy(index, f->index, sizeof(index));
    for (uint32_t k = 0; k < f->axis.count; k++) {
        f->index[f->axis.dim[k]] = 0;
    }
    locate(f);
    SX_TRY(run_row(cx, f));
    memcpy(f->index, index, sizeof(index));
    locate(f);
    return SX_OK;
}

static double number_of(sx_dtype dtype, sx_cell cell)
{
    return sx_dtype_class_of(dtype) == SX_CLASS_FLOAT ? cell.f : (double)cell.i;
}

static sx_code check_raw(sx_ctx *cx, const sx_type *type, sx_span raw, uint32_t a)
{
    uint64_t size = (uint64_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    if (raw.len != size) {
        return SX_FAIL(cx, SX_INPUT, "fused: argument %u has %zu bytes, its type %llu", a, raw.len,
                       (unsigned long long)size);
    }
    return SX_OK;
}

static bool is_number(sx_dim dim)
{
    return dim.scale == 0 || sx_dim_is_constant(dim);
}

static sx_code check_static(sx_ctx *cx, const sx_attr *attr, const sx_type *input, uint32_t count,
                            sx_type *result)
{
    SX_TRY(sx_fused_infer(cx, attr, input, count, result));
    bool is_static = sx_type_is_static(&attr->type);
    for (uint32_t a = 0; a < count && is_static; a++) {
        const sx_access *access = &attr->body->access[a];
        is_static = sx_type_is_static(&input[a]) && is_number(access->offset);
        for (uint32_t d = 0; d < attr->type.rank && is_static; d++) {
            is_static = is_number(access->stride[d]);
        }
    }
    if (!is_static) {
        return SX_FAIL(cx, SX_INPUT, "fused: a symbol has no value");
    }
    return SX_OK;
}

sx_code sx_fused_eval_at(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_type *input,
                         const sx_span *raw, uint32_t input_count, const int64_t *position,
                         uint32_t position_count, double *value)
{
    sx_type type;
    frame *f;
    SX_ASSERT(!sx_mode_is_exact(mode));
    SX_TRY(check_static(cx, attr, input, input_count, &type));
    SX_TRY(make_frame(cx, attr, mode, &f));
    int64_t elements = sx_tensor_elements(&type);
    for (uint32_t a = 0; a < input_count; a++) {
        SX_TRY(check_raw(cx, &input[a], raw[a], a));
        f->source[a].raw = raw[a].ptr;
        f->source[a].dtype = input[a].dtype;
    }
    bool first = true;
    for (uint32_t k = 0; k < position_count; k++) {
        if (position[k] < 0 || position[k] >= elements) {
            return SX_FAIL(cx, SX_INPUT, "fused: position %lld of %lld elements",
                           (long long)position[k], (long long)elements);
        }
        if (move_to(f, position[k]) || first) {
            SX_TRY(run_row_of(cx, f));
        }
        first = false;
        SX_TRY(sx_spend(cx, f->after.count));
        value[k] = number_of(type.dtype, run_result(f));
    }
    return SX_OK;
}
