#include "client/verify/reference.h"

#include "client/runtime/pages.h"
#include "core/base/fast.h"
#include "client/verify/moved.h"
#include "client/verify/step.h"
#include "core/base/rng.h"
#include "core/ir/program.h"

typedef enum { EXACT, TYPED, MODES } mode;
static const sx_eval_mode eval_mode[MODES] = {SX_EVAL_F64, SX_EVAL_TYPED};

typedef struct {
    void *data;
    size_t bytes;
    uint32_t users; /* values that hold it; 0: free */
} block;

/* The value of a node in both modes: block numbers, NONE where there is none. In TYPED mode a block of an f32 tensor
 * holds floats, every other one cells; equal cells are the same block. Elements of a parameter stay where they are
 * (`raw`), until somebody needs them as cells. A
 * broadcast or a constant is not written out before somebody needs it so: `step` says where its elements are found
 * (sxv_operand). */
typedef struct {
    sx_span raw;
    uint32_t block[MODES];
    const int64_t *step;
} value;
#define NONE UINT32_MAX

typedef struct {
    sx_ctx *cx;
    const sxv_reference *how;
    const sx_graph *graph;
    const sxv_reader *reader;
    value *value;       /* [node] */
    uint32_t *last_use; /* [node] */
    block *block;
    uint32_t block_count, block_capacity;
    size_t bytes; /* of blocks, free ones too */
    sxv_scratch scratch;
} walk;

/* ---- memory ---- */
static sx_code take_block(walk *w, size_t bytes, uint32_t *number)
{
    uint32_t best = NONE;
    bytes = bytes > 0 ? bytes : 1; /* of a tensor without elements */
    for (uint32_t i = 0; i < w->block_count; i++) {
        const block *b = &w->block[i];
        if (b->users == 0 && b->bytes >= bytes && b->bytes / 2 <= bytes &&
            (best == NONE || b->bytes < w->block[best].bytes)) {
            best = i;
        }
    }
    for (uint32_t i = 0; best == NONE && i < w->block_count && w->bytes + bytes > w->how->bytes_max;
         i++) { /* room is made of what is free */
        if (w->block[i].users == 0) {
            w->bytes -= w->block[i].bytes;
            sxr_pages_free(w->block[i].data, w->block[i].bytes);
            w->block[i] = (block){0};
        }
    }
    if (best == NONE) {
        if (bytes > w->how->bytes_max || w->bytes > w->how->bytes_max - bytes) {
            return SX_FAIL(w->cx, SX_LIMIT,
                           "reference: tensors of more than %zu bytes alive at once",
                           w->how->bytes_max);
        }
        void *array = w->block;
        SX_TRY(sx_grow(w->cx, &array, &w->block_capacity, w->block_count + 1, sizeof(block)));
        w->block = array;
        best = w->block_count;
        w->block[best] = (block){sxr_pages(bytes), bytes, 0};
        if (w->block[best].data == NULL) {
            return SX_FAIL(w->cx, SX_NOMEM, "reference: no memory for %zu bytes", bytes);
        }
        w->block_count++;
        w->bytes += bytes;
    }
    w->block[best].users = 1;
    *number = best;
    return SX_OK;
}

static bool is_narrow(const sx_type *type, mode m)
{
    return m == TYPED && type->dtype == SX_F32;
}

static sx_code take_result(walk *w, const sx_type *type, mode m, uint32_t *number)
{
    size_t each = is_narrow(type, m) ? sizeof(float) : sizeof(sx_cell);
    return take_block(w, (size_t)sx_tensor_elements(type) * each, number);
}

static void give_value(walk *w, value *v)
{
    for (mode m = EXACT; m < MODES; m++) {
        if (v->block[m] != NONE) {
            SX_ASSERT(w->block[v->block[m]].users > 0);
            w->block[v->block[m]].users--;
            v->block[m] = NONE;
        }
    }
}

static void share(walk *w, value *v, mode from)
{
    v->block[MODES - 1 - from] = v->block[from];
    w->block[v->block[from]].users++;
}

/* The value in the form of a mode: its block, or the elements that a parameter came with. */
static sxv_operand operand_of(const walk *w, uint32_t node, mode m)
{
    const sx_type *type = &w->graph->node[node].type;
    const value *v = &w->value[node];
    const void *data = v->block[m] != NONE ? w->block[v->block[m]].data : NULL;
    const void *elements = data != NULL ? data : v->raw.ptr;
    bool raw = data == NULL || is_narrow(type, m);
    SX_ASSERT(elements != NULL && (!raw || type->dtype == SX_F32));
    return (sxv_operand){type, raw ? NULL : elements, raw ? elements : NULL, v->step};
}

/* ---- parameters ---- */
typedef struct {
    const sx_type *type;
    const void *from;
    sx_cell *to;
} widening;

SX_LEVELS static void widen(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const widening *w = self;
    const float *from = w->from;
    (void)thread;
    for (int64_t i = first; i < last && w->type->dtype == SX_F32; i++) {
        w->to[i].f = (double)from[i];
    }
    for (int64_t i = first; i < last && w->type->dtype != SX_F32; i++) {
        w->to[i] = sx_cell_load(SX_EVAL_F64, w->type->dtype, w->from, i);
    }
}

/* Elements of a parameter as cells: f32 (which only outputs need so) for the mode EXACT, other types for both. */
static sx_code unpack(walk *w, const sx_type *type, value *v)
{
    if (v->block[EXACT] != NONE || v->raw.ptr == NULL) {
        return SX_OK;
    }
    SX_TRY(take_result(w, type, EXACT, &v->block[EXACT]));
    widening all = {type, v->raw.ptr, w->block[v->block[EXACT]].data};
    sxr_pool_run(w->how->pool, widen, &all, sx_tensor_elements(type));
    if (type->dtype != SX_F32) {
        share(w, v, EXACT);
    }
    return SX_OK;
}

static sx_code run_parameter(walk *w, const sx_node *node, value *v)
{
    const sx_attr *attr = sx_graph_attr(w->graph, node);
    SX_TRY(w->reader->parameter(w->cx, w->reader->self, attr, &node->type, &v->raw));
    SX_ASSERT(v->raw.len ==
              (size_t)sx_tensor_elements(&node->type) * sx_dtype_bytes(node->type.dtype));
    if (v->raw.len == 0) {
        v->raw = SX_SPAN_LITERAL(""); /* no elements: any place will do */
    }
    return SX_OK;
}

/* ---- operations ---- */

/* Does the operation move or pick elements, without ever rounding one? */
static bool only_moves(sx_op op)
{
    switch (sx_op_info_of(op)->op_class) {
    case SX_OPCLASS_VIEW:
    case SX_OPCLASS_CONCAT:
    case SX_OPCLASS_GATHER:
    case SX_OPCLASS_DYNAMIC:
    case SX_OPCLASS_SORT:
    case SX_OPCLASS_MOVE:
    case SX_OPCLASS_LEAF:
    case SX_OPCLASS_SELECT: return true;
    default:
        return op == SX_OP_NEGATE || op == SX_OP_ABS || op == SX_OP_MAXIMUM || op == SX_OP_MINIMUM;
    }
}

/* By the interpreter, in a memory of its own. */
static sx_code interpret(const sxv_step *s, sx_ctx *own)
{
    sx_tensor input[SX_INPUTS_MAX];
    sx_tensor result;
    for (uint32_t k = 0; k < s->input_count; k++) {
        const sxv_operand *x = &s->input[k];
        union { /* the interpreter only reads */
            const sx_cell *read;
            sx_cell *write;
        } data = {x->cell};
        int64_t elements = sx_tensor_elements(x->type);
        if (x->cell == NULL) {
            data.write = SX_NEW_ARRAY(own, sx_cell, (size_t)elements + 1);
            if (data.write == NULL) {
                return own->error.code;
            }
            widening all = {x->type, x->raw, data.write};
            sxr_pool_run(s->pool, widen, &all, elements);
        }
        input[k] = (sx_tensor){*x->type, data.write};
    }
    SX_TRY(sx_node_eval(own, s->op, s->attr, s->mode, input, s->input_count, s->type, &result));
    const sx_cell *cell = result.data;
    int64_t elements = sx_tensor_elements(s->type);
    for (int64_t i = 0; i < elements; i++) {
        sxv_put(s, i, cell[i]);
    }
    return SX_OK;
}

static sx_code interpret_alone(const sxv_step *s)
{
    sx_ctx own;
    sx_ctx_init(&own, SIZE_MAX / 2);
    own.fuel = UINT64_MAX;
    sx_code code = interpret(s, &own);
    if (code != SX_OK && s->cx->error.code == SX_OK) {
        s->cx->error = own.error;
    }
    sx_ctx_fini(&own);
    return code;
}

sx_code sxv_step_run(const sxv_step *step)
{
    bool done = false;
    bool of_nothing = false; /* an operand has no elements */
    if (sx_tensor_elements(step->type) == 0) {
        return SX_OK;
    }
    if (sxv_is_elementwise(step->op)) {
        return sxv_step_elementwise(step);
    }
    for (uint32_t k = 0; k < step->input_count; k++) {
        of_nothing = of_nothing || sx_tensor_elements(step->input[k].type) == 0;
    }
    if (of_nothing) {
        return interpret_alone(step);
    }
    switch (sx_op_info_of(step->op)->op_class) {
    case SX_OPCLASS_VIEW:
    case SX_OPCLASS_GATHER:
    case SX_OPCLASS_CONCAT:
    case SX_OPCLASS_REDUCE:
    case SX_OPCLASS_WINDOW: SX_TRY(sxv_step_shape(step, &done)); break;
    case SX_OPCLASS_DOT:
    case SX_OPCLASS_CONV: SX_TRY(sxv_step_contract(step, &done)); break;
    default: break;
    }
    return done ? SX_OK : interpret_alone(step);
}

static sxv_step step_of(walk *w, const sx_node *node, mode m, void *result)
{
    bool narrow = is_narrow(&node->type, m);
    return (sxv_step){.cx = w->cx,
                      .pool = w->how->pool,
                      .op = node->op,
                      .attr = sx_graph_attr(w->graph, node),
                      .mode = eval_mode[m],
                      .tf32 = w->how->tf32,
                      .type = &node->type,
                      .result = narrow ? NULL : result,
                      .narrow = narrow ? result : NULL,
                      .scratch = &w->scratch};
}

static sx_code run_mode(walk *w, const sx_node *node, value *v, mode m)
{
    SX_TRY(take_result(w, &node->type, m, &v->block[m]));
    sxv_step step = step_of(w, node, m, w->block[v->block[m]].data);
    step.input_count = node->input_count;
    for (uint32_t k = 0; k < node->input_count; k++) {
        step.input[k] = operand_of(w, sx_graph_input(w->graph, node, k).i, m);
        SX_ASSERT(step.input[k].step == NULL || sxv_is_elementwise(node->op));
    }
    return sxv_step_run(&step);
}

/* ---- elements that are repeated ---- */

/* Every element of the type is the first. */
static const int64_t one_for_all[SX_RANK_MAX];

/* A constant of one value: that value. */
static sx_code run_splat(walk *w, const sx_node *node, value *v)
{
    const sx_type one = {.dtype = node->type.dtype};
    const uint8_t *data = sx_graph_attr(w->graph, node)->data.ptr;
    bool shared = one.dtype != SX_F32;
    for (mode m = w->how->exact && !shared ? EXACT : TYPED; m < MODES; m++) {
        SX_TRY(take_result(w, &one, m, &v->block[m]));
        void *to = w->block[v->block[m]].data;
        sx_cell cell = sx_cell_load(SX_EVAL_F64, one.dtype, data, 0);
        if (is_narrow(&one, m)) {
            *(float *)to = (float)cell.f;
        } else {
            *(sx_cell *)to = cell;
        }
    }
    if (shared) {
        share(w, v, TYPED);
    }
    v->step = one_for_all;
    return SX_OK;
}

/* Writes all elements out. */
static sx_code make_dense(walk *w, uint32_t n)
{
    const sx_node *node = &w->graph->node[n];
    value *v = &w->value[n];
    value dense = {.block = {NONE, NONE}};
    if (v->step == NULL) {
        return SX_OK;
    }
    bool shared = node->type.dtype != SX_F32 && v->block[EXACT] == v->block[TYPED];
    for (mode m = w->how->exact && !shared ? EXACT : TYPED; m < MODES; m++) {
        SX_TRY(take_result(w, &node->type, m, &dense.block[m]));
        sxv_step step = step_of(w, node, m, w->block[dense.block[m]].data);
        step.input[0] = operand_of(w, n, m);
        if (sx_tensor_elements(&node->type) > 0) {
            sxv_step_spread(&step);
        }
    }
    if (shared) {
        share(w, &dense, TYPED);
    }
    give_value(w, v);
    *v = dense;
    return SX_OK;
}

/* The value of the operand, whoever reads it first. */
static void take_over(walk *w, const value *from, value *v)
{
    *v = *from;
    for (mode m = EXACT; m < MODES; m++) {
        if (v->block[m] != NONE) {
            w->block[v->block[m]].users++;
        }
    }
}

static sx_code run_broadcast(walk *w, const sx_node *node, const value *from, value *v)
{
    const sx_type *source = &sx_graph_node(w->graph, sx_graph_input(w->graph, node, 0))->type;
    const sx_ints *dims = &sx_graph_attr(w->graph, node)->dims;
    int64_t *step = SX_NEW_ARRAY(w->cx, int64_t, SX_RANK_MAX);
    int64_t stride = 1;
    if (step == NULL) {
        return w->cx->error.code;
    }
    for (uint32_t d = source->rank; d-- > 0;) {
        int64_t own = from->step != NULL ? from->step[d] : stride;
        step[dims->v[d]] = source->dim[d].scale == 1 ? 0 : own;
        stride *= source->dim[d].scale;
    }
    take_over(w, from, v);
    v->step = step;
    return SX_OK;
}

/* Constants of one value, and views that need no elements of their own. */
static sx_code run_lazily(walk *w, const sx_node *node, value *v, bool *done)
{
    const sx_attr *attr = sx_graph_attr(w->graph, node);
    *done = true;
    if (node->op == SX_OP_CONSTANT && attr->data.len == sx_dtype_bytes(node->type.dtype)) {
        return run_splat(w, node, v);
    }
    if (node->op == SX_OP_BROADCAST || node->op == SX_OP_RESHAPE) {
        uint32_t from = sx_graph_input(w->graph, node, 0).i;
        if (w->graph->node[from].type.dtype != SX_F32) {
            SX_TRY(unpack(w, &w->graph->node[from].type, &w->value[from]));
        }
        if (node->op == SX_OP_BROADCAST) {
            return run_broadcast(w, node, &w->value[from], v);
        }
        if (w->value[from].step != one_for_all) {
            SX_TRY(make_dense(w, from));
        }
        take_over(w, &w->value[from], v);
        return SX_OK;
    }
    *done = false;
    return SX_OK;
}

/* ---- f64 ---- */

/* Results that a second rounding could have given. */
typedef struct {
    sx_cell *cell;
    float *narrow; /* else NULL */
    uint64_t seed;
} rounding;

static void round_again(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const rounding *r = self;
    (void)thread;
    static const float narrow[2] = {1 - 0x1p-24F, 1 + 0x1p-23F};
    static const double wide[2] = {1 - 0x1p-53, 1 + 0x1p-52};
    uint64_t up = 0; /* a bit for each of 64 neighbours */
    for (int64_t i = first; i < last; i++) {
        if (i == first || i % 64 == 0) {
            sx_rng rng = {r->seed + (uint64_t)i / 64};
            up = sx_rng_next(&rng) >> (i % 64);
        }
        if (r->narrow != NULL) {
            r->narrow[i] *= narrow[up & 1];
        } else {
            r->cell[i].f *= wide[up & 1];
        }
        up >>= 1;
    }
}

/* Both modes compute f64 in double precision. So that their difference says what rounding does, as it does for
 * narrower floats, each result of the rounded one is moved by a unit in the last place, up or down at random:
 * Monte Carlo arithmetic (Parker 1997). */
static void move_by_units(walk *w, const sx_node *node, const value *v)
{
    void *data = w->block[v->block[TYPED]].data;
    bool narrow = is_narrow(&node->type, TYPED);
    uint64_t seed = ((uint64_t)(node - w->graph->node) + ((uint64_t)(w->how->moved - 1) << 20))
                    << 40;
    rounding r = {narrow ? NULL : data, narrow ? data : NULL, seed};
    sxr_pool_run(w->how->pool, round_again, &r, sx_tensor_elements(&node->type));
}

static bool jumps(const walk *w, const sx_node *node)
{
    bool any = false;
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t from = sx_graph_input(w->graph, node, k).i;
        any = any || sxv_jumps(node->op, w->graph->node[from].type.dtype, node->type.dtype);
    }
    return any;
}

/* What jumps is as it is in double precision: a unit that was moved decides nothing. */
static sx_code run_jump(walk *w, const sx_node *node, value *v)
{
    SX_TRY(run_mode(w, node, v, EXACT));
    if (!is_narrow(&node->type, TYPED)) {
        share(w, v, EXACT);
        return SX_OK;
    }
    SX_TRY(take_result(w, &node->type, TYPED, &v->block[TYPED]));
    const sx_cell *from = w->block[v->block[EXACT]].data;
    float *to = w->block[v->block[TYPED]].data;
    int64_t elements = sx_tensor_elements(&node->type);
    for (int64_t i = 0; i < elements; i++) {
        to[i] = (float)from[i].f;
    }
    return SX_OK;
}

static sx_code run_node(walk *w, const sx_node *node, value *v)
{
    bool same = node->type.dtype != SX_F32; /* are operands and results of both modes the same? */
    bool floats = sx_dtype_class_of(node->type.dtype) == SX_CLASS_FLOAT;
    bool done;
    SX_TRY(run_lazily(w, node, v, &done));
    if (done) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t from = sx_graph_input(w->graph, node, k).i;
        value *x = &w->value[from];
        const sx_type *type = &w->graph->node[from].type;
        if (type->dtype != SX_F32) {
            SX_TRY(unpack(w, type, x));
        }
        if (!sxv_is_elementwise(node->op)) {
            SX_TRY(make_dense(w, from));
        }
        same = same && x->block[EXACT] == x->block[TYPED];
        floats = floats || sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
    }
    if (same && (only_moves(node->op) || !floats)) {
        SX_TRY(run_mode(w, node, v, TYPED));
        share(w, v, TYPED);
        return SX_OK;
    }
    if (w->how->exact && w->how->moved > 1 && jumps(w, node)) {
        return run_jump(w, node, v);
    }
    if (w->how->exact) {
        SX_TRY(run_mode(w, node, v, EXACT));
    }
    SX_TRY(run_mode(w, node, v, TYPED));
    bool moves = node->type.dtype == SX_F64 ? w->how->moved > 0
                                            : node->type.dtype == SX_F32 && w->how->moved > 1;
    if (moves && !only_moves(node->op)) {
        move_by_units(w, node, v);
    }
    return SX_OK;
}

static sx_code put_outputs(walk *w, uint32_t n)
{
    for (uint32_t k = 0; k < w->graph->output_count; k++) {
        const sx_output *output = &w->graph->output[k];
        if (output->node.i != n) {
            continue;
        }
        const sx_type *type = &w->graph->node[n].type;
        SX_TRY(make_dense(w, n));
        if (type->dtype != SX_F32 || w->how->exact) {
            SX_TRY(unpack(w, type, &w->value[n]));
        }
        sxv_operand typed = operand_of(w, n, TYPED);
        const sx_cell *exact = w->how->exact ? operand_of(w, n, EXACT).cell : NULL;
        sxv_pair pair = {type, exact, typed.cell, typed.raw, w->how->tf32};
        SX_TRY(w->reader->output(w->cx, w->reader->self, output, &pair));
    }
    return SX_OK;
}

/* Multiplications and additions of one node, about. */
static double node_flops(const sx_graph *graph, const sx_node *node);

/* The interpreter takes so many times as long for an operation as the reference does. */
#define INTERPRETED 8

/* What the rounds of a region take; of `while` as many as there are in general. */
static double region_flops(const sx_graph *graph, const sx_node *node)
{
    sx_attr attr = *sx_graph_attr(graph, node);
    const sx_program **program[SX_ATTR_PROGRAMS_MAX];
    uint32_t count = sx_attr_programs(&attr, program);
    double rounds = node->op == SX_OP_WHILE ? 8 : 1, flops = 0;
    if (node->op == SX_OP_SCAN) {
        sx_node_id sliced = sx_graph_input(graph, node, (uint32_t)attr.carried);
        rounds = (double)sx_graph_node(graph, sliced)->type.dim[0].scale;
    }
    for (uint32_t k = 0; k < count; k++) {
        const sx_graph *body = (*program[k])->graph;
        for (uint32_t n = 0; n < body->node_count; n++) {
            flops += node_flops(body, &body->node[n]);
        }
    }
    return INTERPRETED * rounds * flops;
}

static double node_flops(const sx_graph *graph, const sx_node *node)
{
    if (sx_op_info_of(node->op)->op_class == SX_OPCLASS_REGION) {
        return region_flops(graph, node);
    }
    const sx_attr *attr = sx_graph_attr(graph, node);
    double each = 1;
    if (sx_tensor_elements(&node->type) == 0) {
        return 0;
    }
    if (node->op == SX_OP_DOT_GENERAL) {
        const sx_type *left = &sx_graph_node(graph, sx_graph_input(graph, node, 0))->type;
        for (uint32_t k = 0; k < attr->lhs_contract.count; k++) {
            each *= (double)left->dim[attr->lhs_contract.v[k]].scale;
        }
        each *= 2;
    } else if (node->op == SX_OP_CONVOLUTION) {
        const sx_type *weight = &sx_graph_node(graph, sx_graph_input(graph, node, 1))->type;
        each = 2 * (double)sx_tensor_elements(weight) / (double)weight->dim[0].scale;
    } else if (node->op == SX_OP_ATTENTION) {
        const sx_type *query = &sx_graph_node(graph, sx_graph_input(graph, node, 0))->type;
        const sx_type *key = &sx_graph_node(graph, sx_graph_input(graph, node, 1))->type;
        each = 4 * (double)key->dim[key->rank - 2].scale *
               (double)query->dim[query->rank - 1].scale /
               (double)node->type.dim[node->type.rank - 1].scale;
    }
    return each * (double)sx_tensor_elements(&node->type);
}

/* Tells how much is done, in steps of a hundredth at least. */
static void tell(const walk *w, double done, double total, double *told)
{
    if (w->cx->progress != NULL && done >= *told + total / 100) {
        w->cx->progress(w->cx->progress_self, "verify", (uint64_t)(done / 1e6),
                        (uint64_t)(total / 1e6));
        *told = done;
    }
}

static sx_code run_nodes(walk *w)
{
    const sx_graph *graph = w->graph;
    double total = sxv_reference_flops(graph);
    double done = 0;
    double told = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        value *v = &w->value[n];
        /* fuel shows how far it is, and lets a request be cancelled; it does not end the comparison */
        double flops = node_flops(graph, node);
        SX_TRY(sx_spend(w->cx, flops < (double)w->cx->fuel / 2 ? (uint64_t)flops : 0));
        SX_TRY(node->op == SX_OP_PARAMETER ? run_parameter(w, node, v) : run_node(w, node, v));
        SX_TRY(put_outputs(w, n));
        done += flops;
        tell(w, done, total, &told);
        for (uint32_t k = 0; k <= node->input_count; k++) {
            uint32_t of = k < node->input_count ? sx_graph_input(graph, node, k).i : n;
            if (w->last_use[of] == n) {
                give_value(w, &w->value[of]);
            }
        }
    }
    return SX_OK;
}

sx_code sxv_reference_run(sx_ctx *cx, const sxv_reference *reference, const sx_graph *graph,
                          const sxv_reader *reader)
{
    walk w = {.cx = cx, .how = reference, .reader = reader};
    SX_ASSERT(reader->parameter != NULL && reader->output != NULL && reference->bytes_max > 0);
    SX_TRY(sx_graph_expand(cx, graph, &w.graph));
    w.value = SX_NEW_ARRAY(cx, value, w.graph->node_count + 1);
    w.last_use = SX_NEW_ARRAY(cx, uint32_t, w.graph->node_count + 1);
    if (w.value == NULL || w.last_use == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < w.graph->node_count; n++) {
        const sx_node *node = &w.graph->node[n];
        SX_ASSERT(sx_type_is_static(&node->type));
        w.value[n] = (value){.block = {NONE, NONE}};
        w.last_use[n] = n;
        for (uint32_t k = 0; k < node->input_count; k++) {
            w.last_use[sx_graph_input(w.graph, node, k).i] = n;
        }
    }
    sx_code code = run_nodes(&w);
    for (uint32_t i = 0; i < w.block_count; i++) {
        sxr_pages_free(w.block[i].data, w.block[i].bytes);
    }
    sxv_scratch_free(&w.scratch);
    return code;
}

double sxv_reference_flops(const sx_graph *graph)
{
    double flops = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        flops += node_flops(graph, &graph->node[n]);
    }
    return flops;
}
