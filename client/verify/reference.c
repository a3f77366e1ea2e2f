#include "client/verify/reference.h"

#include <stdlib.h>
#include <string.h>

#include "client/verify/fast.h"
#include "client/verify/step.h"

typedef struct {
    void *data;
    size_t bytes;
    uint32_t users; /* values that hold it; 0: free */
} block;

/* The value of a node: cells of both modes (equal numbers: the same block), or f32 elements of a parameter
 * that nobody needed as cells yet. */
typedef struct {
    sx_span raw;
    uint32_t cells[2]; /* block numbers, by mode: 0 exact, 1 typed; NONE */
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
} walk;

static const sx_eval_mode mode_of[2] = {SX_EVAL_F64, SX_EVAL_TYPED};

/* ---- memory ---- */
static sx_code take_block(walk *w, size_t bytes, uint32_t *number)
{
    uint32_t best = NONE;
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
            free(w->block[i].data);
            w->block[i] = (block){0};
        }
    }
    if (best == NONE) {
        if (bytes > w->how->bytes_max || w->bytes > w->how->bytes_max - bytes) {
            return SX_FAIL(w->cx, SX_LIMIT, "reference: tensors of more than %zu MiB alive at once",
                           w->how->bytes_max >> 20);
        }
        void *array = w->block;
        SX_TRY(sx_grow(w->cx, &array, &w->block_capacity, w->block_count + 1, sizeof(block)));
        w->block = array;
        best = w->block_count;
        w->block[best] = (block){malloc(bytes), bytes, 0};
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

static sx_code take_cells(walk *w, const sx_type *type, uint32_t *number)
{
    return take_block(w, (size_t)sx_tensor_elements(type) * sizeof(sx_cell), number);
}

static void give_value(walk *w, value *v)
{
    for (uint32_t m = 0; m < 2; m++) {
        if (v->cells[m] != NONE) {
            SX_ASSERT(w->block[v->cells[m]].users > 0);
            w->block[v->cells[m]].users--;
            v->cells[m] = NONE;
        }
    }
}

static sx_cell *cells_of(const walk *w, const value *v, uint32_t mode)
{
    return w->block[v->cells[mode]].data;
}

/* The same block for both modes. */
static void share(walk *w, value *v)
{
    v->cells[1] = v->cells[0];
    w->block[v->cells[0]].users++;
}

/* ---- parameters ---- */
typedef struct {
    const float *from;
    sx_cell *to;
} widening;

SXV_LEVELS static void widen(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const widening *w = self;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        w->to[i].f = (double)w->from[i];
    }
}

static sx_code unpack(walk *w, const sx_type *type, value *v)
{
    if (v->cells[0] != NONE) {
        return SX_OK;
    }
    SX_TRY(take_cells(w, type, &v->cells[0]));
    sx_cell *cell = cells_of(w, v, 0);
    int64_t elements = sx_tensor_elements(type);
    if (type->dtype == SX_F32) {
        widening all = {(const void *)v->raw.ptr, cell};
        sxr_pool_run(w->how->pool, widen, &all, elements);
    } else {
        for (int64_t i = 0; i < elements; i++) {
            cell[i] = sx_cell_load(SX_EVAL_F64, type->dtype, v->raw.ptr, i);
        }
    }
    share(w, v);
    return SX_OK;
}

static sx_code run_parameter(walk *w, const sx_node *node, value *v)
{
    const sx_attr *attr = sx_graph_attr(w->graph, node);
    SX_TRY(w->reader->parameter(w->cx, w->reader->self, attr, &node->type, &v->raw));
    SX_ASSERT(v->raw.len ==
              (size_t)sx_tensor_elements(&node->type) * sx_dtype_bytes(node->type.dtype));
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
    case SX_OPCLASS_MOVE:
    case SX_OPCLASS_LEAF:
    case SX_OPCLASS_SELECT: return true;
    default:
        return op == SX_OP_NEGATE || op == SX_OP_ABS || op == SX_OP_MAXIMUM || op == SX_OP_MINIMUM;
    }
}

bool sxv_takes_raw(sx_op op)
{
    return op == SX_OP_DOT_GENERAL || op == SX_OP_CONVOLUTION || op == SX_OP_GATHER ||
           op == SX_OP_TRANSPOSE || op == SX_OP_BROADCAST || op == SX_OP_SLICE;
}

/* By the interpreter, in a memory of its own. */
static sx_code interpret(const sxv_step *s)
{
    sx_ctx own;
    sx_tensor input[SX_INPUTS_MAX];
    sx_tensor result;
    sx_ctx_init(&own, SIZE_MAX / 2);
    own.fuel = UINT64_MAX;
    for (uint32_t k = 0; k < s->input_count; k++) {
        union { /* the interpreter only reads */
            const sx_cell *read;
            void *any;
        } data = {s->input[k].cell};
        input[k] = (sx_tensor){*s->input[k].type, data.any};
    }
    sx_code code =
        sx_node_eval(&own, s->op, s->attr, s->mode, input, s->input_count, s->type, &result);
    if (code == SX_OK) {
        memcpy(s->result, result.data, (size_t)sx_tensor_elements(s->type) * sizeof(sx_cell));
    } else {
        s->cx->error = s->cx->error.code == SX_OK ? own.error : s->cx->error;
    }
    sx_ctx_fini(&own);
    return code;
}

sx_code sxv_step_run(const sxv_step *step)
{
    bool done = false;
    switch (sx_op_info_of(step->op)->op_class) {
    case SX_OPCLASS_UNARY:
    case SX_OPCLASS_BINARY:
    case SX_OPCLASS_COMPARE:
    case SX_OPCLASS_SELECT:
    case SX_OPCLASS_CONVERT: return sxv_step_elementwise(step);
    case SX_OPCLASS_VIEW:
    case SX_OPCLASS_GATHER:
    case SX_OPCLASS_REDUCE:
    case SX_OPCLASS_WINDOW: SX_TRY(sxv_step_shape(step, &done)); break;
    case SX_OPCLASS_DOT:
    case SX_OPCLASS_CONV: SX_TRY(sxv_step_contract(step, &done)); break;
    case SX_OPCLASS_LEAF:
    case SX_OPCLASS_CONCAT:
    case SX_OPCLASS_MOVE:
    case SX_OPCLASS_COMPOSITE:
    case SX_OPCLASS_FUSED: break;
    }
    return done ? SX_OK : interpret(step);
}

static sx_code run_mode(walk *w, const sx_node *node, value *v, uint32_t mode)
{
    SX_TRY(take_cells(w, &node->type, &v->cells[mode]));
    sxv_step step = {.cx = w->cx,
                     .pool = w->how->pool,
                     .op = node->op,
                     .attr = sx_graph_attr(w->graph, node),
                     .mode = mode_of[mode],
                     .input_count = node->input_count,
                     .type = &node->type,
                     .result = cells_of(w, v, mode)};
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t from = sx_graph_input(w->graph, node, k).i;
        const value *x = &w->value[from];
        step.input[k] = (sxv_operand){
            .type = &w->graph->node[from].type,
            .cell = x->cells[0] != NONE ? cells_of(w, x, mode) : NULL,
            .raw = x->cells[0] != NONE ? NULL : (const float *)(const void *)x->raw.ptr};
    }
    return sxv_step_run(&step);
}

static sx_code run_node(walk *w, const sx_node *node, value *v)
{
    bool same = true; /* are the operands of both modes the same? */
    bool floats = sx_dtype_class_of(node->type.dtype) == SX_CLASS_FLOAT;
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t from = sx_graph_input(w->graph, node, k).i;
        value *x = &w->value[from];
        const sx_type *type = &w->graph->node[from].type;
        if (node->op == SX_OP_RESHAPE && x->cells[0] == NONE) { /* still nobody's cells */
            v->raw = x->raw;
            return SX_OK;
        }
        if (type->dtype != SX_F32 || !sxv_takes_raw(node->op)) {
            SX_TRY(unpack(w, type, x));
        }
        same = same && x->cells[0] == x->cells[1];
        floats = floats || sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
    }
    if (node->op == SX_OP_RESHAPE) {
        *v = w->value[sx_graph_input(w->graph, node, 0).i];
        w->block[v->cells[0]].users++;
        w->block[v->cells[1]].users++;
        return SX_OK;
    }
    SX_TRY(run_mode(w, node, v, 0));
    if (same && (only_moves(node->op) || !floats)) {
        share(w, v);
        return SX_OK;
    }
    return run_mode(w, node, v, 1);
}

static sx_code put_outputs(walk *w, uint32_t n)
{
    for (uint32_t k = 0; k < w->graph->output_count; k++) {
        const sx_output *output = &w->graph->output[k];
        if (output->node.i != n) {
            continue;
        }
        const sx_type *type = &w->graph->node[n].type;
        value *v = &w->value[n];
        SX_TRY(unpack(w, type, v));
        sxv_pair pair = {{*type, cells_of(w, v, 0)}, {*type, cells_of(w, v, 1)}};
        SX_TRY(w->reader->output(w->cx, w->reader->self, output, &pair));
    }
    return SX_OK;
}

/* Multiplications and additions of one node, about. */
static double node_flops(const sx_graph *graph, const sx_node *node)
{
    const sx_attr *attr = sx_graph_attr(graph, node);
    double each = 1;
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

static sx_code run_nodes(walk *w)
{
    const sx_graph *graph = w->graph;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        value *v = &w->value[n];
        /* fuel shows how far it is, and lets a request be cancelled; it does not end the comparison */
        double flops = node_flops(graph, node);
        SX_TRY(sx_spend(w->cx, flops < (double)w->cx->fuel / 2 ? (uint64_t)flops : 0));
        SX_TRY(node->op == SX_OP_PARAMETER ? run_parameter(w, node, v) : run_node(w, node, v));
        SX_TRY(put_outputs(w, n));
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
        w.value[n] = (value){.cells = {NONE, NONE}};
        w.last_use[n] = n;
        for (uint32_t k = 0; k < node->input_count; k++) {
            w.last_use[sx_graph_input(w.graph, node, k).i] = n;
        }
    }
    sx_code code = run_nodes(&w);
    for (uint32_t i = 0; i < w.block_count; i++) {
        free(w.block[i].data);
    }
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
