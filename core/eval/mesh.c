/* mesh.c - programs that every rank of a mesh runs: all ranks in step, node by node.
 *
 * What a rank computes alone is sx_node_eval on its own values; a collective is evaluated when all ranks have its
 * operand, for each rank from the operands of the ranks that take part with it. */
#include "core/eval/cell.h"
#include "core/ir/collective.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"

#include <string.h>

/* The elements of a tensor as rows: all dimensions before one, and blocks of everything from it on. */
typedef struct {
    int64_t rows, block;
} rows;

static rows rows_of(const sx_type *type, int64_t dim)
{
    rows r = {1, 1};
    SX_ASSERT(dim >= 0 && dim < (int64_t)type->rank);
    for (uint32_t d = 0; d < type->rank; d++) {
        *(d < dim ? &r.rows : &r.block) *= type->dim[d].scale;
    }
    return r;
}

/* ---- one collective, for the rank with number `rank` of those whose operands are `input` ---- */

typedef struct {
    sx_op op;
    const sx_attr *attr;
    sx_eval_mode mode;
    const sx_tensor *input; /* [attr->ranks]; none of axis_index */
    int64_t rank;
    sx_tensor *result;
} collective;

/* Elements [from, from + count) of all ranks combined, ascending. Of one rank they are its own: a sum that begins with
 * 0 would turn -0 into 0. */
static void combine(const collective *c, int64_t from, int64_t count, sx_cell *to)
{
    sx_dtype dtype = c->result->type.dtype;
    sx_reducer reducer = c->attr->reducer;
    for (int64_t i = 0; c->attr->ranks == 1 && i < count; i++) {
        to[i] = ((const sx_cell *)c->input[0].data)[from + i];
    }
    for (int64_t i = 0; c->attr->ranks > 1 && i < count; i++) {
        sx_cell sum = sx_reduce_open(c->mode, reducer, dtype);
        for (int64_t k = 0; k < c->attr->ranks; k++) {
            const sx_cell *x = c->input[k].data;
            sum = sx_reduce_step(c->mode, reducer, dtype, sum, x[from + i]);
        }
        to[i] = sx_reduce_close(c->mode, dtype, sum);
    }
}

/* The piece of each row that has the number of the rank. */
static void eval_reduce_scatter(const collective *c)
{
    rows whole = rows_of(&c->input[0].type, c->attr->axis);
    int64_t piece = whole.block / c->attr->ranks;
    SX_ASSERT(whole.block % c->attr->ranks == 0);
    for (int64_t r = 0; r < whole.rows; r++) {
        combine(c, r * whole.block + c->rank * piece, piece,
                (sx_cell *)c->result->data + r * piece);
    }
}

/* Rows of `from` go to the rows of the result, in the places of rank k. */
static void join_rows(const collective *c, const sx_type *type, const sx_cell *from, int64_t k)
{
    rows part = rows_of(type, c->attr->axis);
    int64_t stride = part.block * c->attr->ranks;
    for (int64_t r = 0; r < part.rows; r++) {
        memcpy((sx_cell *)c->result->data + r * stride + k * part.block, from + r * part.block,
               (size_t)part.block * sizeof(sx_cell));
    }
}

static sx_code eval_all_to_all(sx_ctx *cx, const collective *c)
{
    sx_tensor piece = {.type = c->input[0].type};
    piece.type.dim[c->attr->split].scale /= c->attr->ranks;
    rows whole = rows_of(&c->input[0].type, c->attr->split);
    int64_t block = whole.block / c->attr->ranks;
    SX_TRY(sx_tensor_make(cx, &piece.type, &piece));
    for (int64_t k = 0; k < c->attr->ranks; k++) {
        for (int64_t r = 0; r < whole.rows; r++) {
            memcpy((sx_cell *)piece.data + r * block,
                   (const sx_cell *)c->input[k].data + r * whole.block + c->rank * block,
                   (size_t)block * sizeof(sx_cell));
        }
        join_rows(c, &piece.type, piece.data, k);
    }
    return SX_OK;
}

static void eval_permute(const collective *c)
{
    int64_t elements = sx_tensor_elements(&c->result->type);
    sx_cell *to = c->result->data;
    for (int64_t i = 0; i < elements; i++) {
        to[i] = sx_cell_of(c->mode, c->result->type.dtype, 0);
    }
    for (uint32_t i = 0; i < c->attr->pairs.count; i++) {
        if (c->attr->pairs.pair[i].target == c->rank) {
            memcpy(to, c->input[c->attr->pairs.pair[i].source].data,
                   (size_t)elements * sizeof(sx_cell));
        }
    }
}

/* The result has its type and its cells. */
static sx_code eval_collective(sx_ctx *cx, const collective *c)
{
    int64_t elements = sx_tensor_elements(&c->result->type);
    SX_ASSERT(c->rank >= 0 && c->rank < c->attr->ranks);
    SX_TRY(sx_spend(cx, (uint64_t)elements * (uint64_t)c->attr->ranks));
    switch ((int)c->op) {
    case SX_OP_ALL_REDUCE: combine(c, 0, elements, c->result->data); return SX_OK;
    case SX_OP_ALL_GATHER:
        for (int64_t k = 0; k < c->attr->ranks; k++) {
            join_rows(c, &c->input[k].type, c->input[k].data, k);
        }
        return SX_OK;
    case SX_OP_REDUCE_SCATTER: eval_reduce_scatter(c); return SX_OK;
    case SX_OP_ALL_TO_ALL: return eval_all_to_all(cx, c);
    case SX_OP_PERMUTE: eval_permute(c); return SX_OK;
    case SX_OP_AXIS_INDEX:
        ((sx_cell *)c->result->data)[0] = sx_cell_of_int(c->mode, SX_I64, c->rank);
        return SX_OK;
    default: SX_UNREACHABLE();
    }
}

sx_code sx_eval_alone(sx_ctx *cx, sx_op op, const sx_attr *attr, sx_eval_mode mode,
                      const sx_tensor *input, sx_tensor *result)
{
    if (attr->ranks != 1) {
        return SX_FAIL(cx, SX_INPUT,
                       "%s along \"%.*s\": %lld ranks take part, and one is evaluated",
                       sx_op_info_of(op)->name, (int)sx_min_i64((int64_t)attr->along.len, 60),
                       (const char *)attr->along.ptr, (long long)attr->ranks);
    }
    collective c = {op, attr, mode, input, 0, result};
    return eval_collective(cx, &c);
}

/* ---- all ranks ---- */

typedef struct {
    sx_ctx *cx;
    const sx_sharding *mesh;
    sx_eval_mode mode;
    uint32_t rank_count;
} machine;

/* The graphs of the ranks, which differ in extents alone, with the value of every node on every rank. */
typedef struct {
    const machine *m;
    const sx_graph *const *graph; /* [rank_count] */
    sx_tensor *value;             /* [node_count * rank_count] */
} stage;

static sx_tensor *value_of(const stage *s, uint32_t node, uint32_t rank)
{
    SX_ASSERT(node < s->graph[0]->node_count && rank < s->m->rank_count);
    return &s->value[(size_t)node * s->m->rank_count + rank];
}

/* How far the neighbours along an axis are apart. */
static uint32_t stride_of(const sx_sharding *mesh, uint32_t axis)
{
    uint32_t stride = 1;
    for (uint32_t a = axis + 1; a < mesh->axis_count; a++) {
        stride *= (uint32_t)mesh->axis[a].size;
    }
    return stride;
}

static void print_type(const sx_type *type, char *text, size_t size)
{
    sx_buf buf;
    sx_buf_init(&buf, size);
    sx_type_print(type, NULL, 0, &buf);
    memset(text, 0, size);
    memcpy(text, buf.ptr, buf.len < size ? buf.len : size - 1);
    sx_buf_fini(&buf);
}

/* Operands of one shape: one text gives no others, but ranks that took other values for its symbols. */
static sx_code check_shapes(const stage *s, uint32_t n, uint32_t first, uint32_t other)
{
    const sx_node *node = &s->graph[0]->node[n];
    const sx_attr *attr = sx_graph_attr(s->graph[0], node);
    uint32_t from = sx_graph_input(s->graph[0], node, 0).i;
    const sx_type *a = &value_of(s, from, first)->type;
    const sx_type *b = &value_of(s, from, other)->type;
    char text[2][128];
    if (sx_type_equal(a, b)) {
        return SX_OK;
    }
    print_type(a, text[0], sizeof(text[0]));
    print_type(b, text[1], sizeof(text[1]));
    return SX_FAIL(s->m->cx, SX_INPUT,
                   "node %u (%s along \"%.*s\"): the operand is %s on rank %u, %s on rank %u", n,
                   sx_op_info_of(node->op)->name, (int)sx_min_i64((int64_t)attr->along.len, 60),
                   (const char *)attr->along.ptr, text[0], first, text[1], other);
}

/* A node that is a collective, on every rank. */
static sx_code eval_together(const stage *s, uint32_t n)
{
    const sx_graph *graph = s->graph[0];
    const sx_node *node = &graph->node[n];
    const sx_attr *attr = sx_graph_attr(graph, node);
    uint32_t axis = 0;
    while (!sx_span_equal(s->m->mesh->axis[axis].name, attr->along)) {
        axis++;
        SX_ASSERT(axis < s->m->mesh->axis_count); /* sx_collectives_check */
    }
    uint32_t stride = stride_of(s->m->mesh, axis);
    uint32_t size = (uint32_t)attr->ranks;
    sx_tensor *input = SX_NEW_ARRAY(s->m->cx, sx_tensor, size);
    if (input == NULL) {
        return s->m->cx->error.code;
    }
    for (uint32_t rank = 0; rank < s->m->rank_count; rank++) {
        uint32_t place = rank / stride % size;
        uint32_t first = rank - place * stride;
        for (uint32_t k = 0; k < size && node->input_count > 0; k++) {
            SX_TRY(check_shapes(s, n, first, first + k * stride));
            input[k] = *value_of(s, sx_graph_input(graph, node, 0).i, first + k * stride);
        }
        sx_tensor *result = value_of(s, n, rank);
        SX_TRY(sx_tensor_make(s->m->cx, &s->graph[rank]->node[n].type, result));
        collective c = {node->op, attr, s->m->mode, input, place, result};
        SX_TRY(eval_collective(s->m->cx, &c));
    }
    return SX_OK;
}

static sx_code eval_apart(const stage *s, uint32_t n)
{
    for (uint32_t rank = 0; rank < s->m->rank_count; rank++) {
        const sx_graph *graph = s->graph[rank];
        const sx_node *node = &graph->node[n];
        sx_tensor input[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = *value_of(s, sx_graph_input(graph, node, k).i, rank);
        }
        SX_TRY(sx_node_eval(s->m->cx, node->op, sx_graph_attr(graph, node), s->m->mode, input,
                            node->input_count, &node->type, value_of(s, n, rank)));
    }
    return SX_OK;
}

static sx_code eval_scan_together(const stage *s, uint32_t n);
static bool knows_ranks(const sx_node *node, const sx_attr *attr)
{
    return node->op == SX_OP_SCAN && attr->step->collective;
}

static sx_code eval_nodes(const stage *s)
{
    for (uint32_t n = 0; n < s->graph[0]->node_count; n++) {
        const sx_node *node = &s->graph[0]->node[n];
        const sx_attr *attr = sx_graph_attr(s->graph[0], node);
        if (node->op == SX_OP_PARAMETER) {
            continue; /* the caller gave it */
        }
        if (sx_op_info_of(node->op)->op_class == SX_OPCLASS_COLLECTIVE) {
            SX_TRY(eval_together(s, n));
        } else if (knows_ranks(node, attr)) {
            SX_TRY(eval_scan_together(s, n));
        } else {
            SX_TRY(eval_apart(s, n));
        }
    }
    return SX_OK;
}

/* ---- a scan whose step has collectives ---- */

typedef struct {
    const stage *s;
    uint32_t node;
    uint32_t carried, end;  /* operands: carried up to the one, sliced up to the other */
    sx_tensor *place[2];    /* [carried * rank_count] a round reads one and writes the other */
    const sx_graph **graph; /* [rank_count] the step of each */
} loop;

static const sx_attr *attr_on(const loop *l, uint32_t rank)
{
    const sx_graph *graph = l->s->graph[rank];
    return sx_graph_attr(graph, &graph->node[l->node]);
}

static sx_tensor operand_on(const loop *l, uint32_t k, uint32_t rank)
{
    const sx_graph *graph = l->s->graph[rank];
    return *value_of(l->s, sx_graph_input(graph, &graph->node[l->node], k).i, rank);
}

static void copy_cells(const sx_tensor *to, int64_t at, const sx_tensor *from)
{
    memcpy((sx_cell *)to->data + at, from->data,
           (size_t)sx_tensor_elements(&from->type) * sizeof(sx_cell));
}

static sx_code begin_loop(loop *l, int64_t *rounds)
{
    const machine *m = l->s->m;
    for (uint32_t i = 0; i < 2; i++) {
        l->place[i] = SX_NEW_ARRAY(m->cx, sx_tensor, (size_t)l->carried * m->rank_count + 1);
        if (l->place[i] == NULL) {
            return m->cx->error.code;
        }
    }
    l->graph = SX_NEW_ARRAY(m->cx, const sx_graph *, m->rank_count);
    if (l->graph == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t rank = 0; rank < m->rank_count; rank++) {
        int64_t own = operand_on(l, l->carried, rank).type.dim[0].scale;
        *rounds = rank == 0 ? own : *rounds;
        if (own != *rounds) {
            return SX_FAIL(m->cx, SX_INPUT,
                           "node %u (scan): %lld rounds on rank 0, %lld on rank %u, and its step "
                           "has collectives",
                           l->node, (long long)*rounds, (long long)own, rank);
        }
        l->graph[rank] = attr_on(l, rank)->step->graph;
        for (uint32_t k = 0; k < l->carried; k++) {
            sx_tensor first = operand_on(l, k, rank);
            sx_tensor *place = l->place[0] + (size_t)k * m->rank_count + rank;
            SX_TRY(sx_tensor_make(m->cx, &first.type, place));
            SX_TRY(sx_tensor_make(m->cx, &first.type, place - l->place[0] + l->place[1]));
            copy_cells(place, 0, &first);
        }
    }
    return SX_OK;
}

/* One round: carried values from place `now` into the other one, others into their row of the result. */
static sx_code run_round(const loop *l, int64_t round, uint32_t now)
{
    const machine *m = l->s->m;
    const sx_graph *body = l->graph[0];
    const sx_node *node = &l->s->graph[0]->node[l->node];
    stage inner = {m, l->graph, NULL};
    inner.value = SX_NEW_ARRAY(m->cx, sx_tensor, (size_t)body->node_count * m->rank_count + 1);
    if (inner.value == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t rank = 0; rank < m->rank_count; rank++) {
        for (uint32_t k = 0; k < node->input_count; k++) {
            sx_tensor x = k < l->carried ? l->place[now][(size_t)k * m->rank_count + rank]
                                         : operand_on(l, k, rank);
            if (k >= l->carried && k < l->end) {
                x.type = l->graph[rank]->node[k].type;
                x.data = (sx_cell *)x.data + round * sx_tensor_elements(&x.type);
            }
            *value_of(&inner, k, rank) = x;
        }
    }
    SX_TRY(eval_nodes(&inner));
    uint32_t which = (uint32_t)attr_on(l, 0)->result;
    for (uint32_t rank = 0; rank < m->rank_count; rank++) {
        for (uint32_t k = 0; k < l->carried; k++) {
            copy_cells(&l->place[1 - now][(size_t)k * m->rank_count + rank], 0,
                       value_of(&inner, body->output[k].node.i, rank));
        }
        if (which >= l->carried) {
            const sx_tensor *row = value_of(&inner, body->output[which].node.i, rank);
            copy_cells(value_of(l->s, l->node, rank), round * sx_tensor_elements(&row->type), row);
        }
    }
    return SX_OK;
}

static sx_code eval_scan_together(const stage *s, uint32_t n)
{
    sx_ctx *cx = s->m->cx;
    const sx_attr *attr = sx_graph_attr(s->graph[0], &s->graph[0]->node[n]);
    loop l = {.s = s,
              .node = n,
              .carried = (uint32_t)attr->carried,
              .end = (uint32_t)(attr->carried + attr->sliced)};
    int64_t rounds = 0;
    SX_TRY(begin_loop(&l, &rounds));
    for (uint32_t rank = 0; rank < s->m->rank_count; rank++) {
        SX_TRY(sx_tensor_make(cx, &s->graph[rank]->node[n].type, value_of(s, n, rank)));
    }
    for (int64_t round = 0; round < rounds;
         round++) { /* each in memory that is given back at its end */
        sx_arena outer = cx->arena;
        SX_TRY(sx_spend(cx, 1));
        sx_arena_init(&cx->arena, outer.limit_bytes - outer.used_bytes);
        sx_code code = run_round(&l, round, (uint32_t)(round % 2));
        sx_arena_fini(&cx->arena);
        cx->arena = outer;
        SX_TRY(code);
    }
    for (uint32_t rank = 0; rank < s->m->rank_count && attr->result < attr->carried; rank++) {
        copy_cells(value_of(s, n, rank), 0,
                   &l.place[rounds % 2][(size_t)attr->result * s->m->rank_count + rank]);
    }
    return SX_OK;
}

/* ---- a program ---- */

/* The programs of all ranks are those of rank 0 but for extents. */
static sx_code check_ranks(sx_ctx *cx, const sx_graph *const *graph, uint32_t rank_count)
{
    for (uint32_t rank = 0; rank < rank_count; rank++) {
        const sx_graph *first = graph[0];
        const sx_graph *own = graph[rank];
        bool same = own->node_count == first->node_count &&
                    own->input_count == first->input_count &&
                    own->output_count == first->output_count;
        for (uint32_t n = 0; n < own->node_count && same; n++) {
            same = own->node[n].op == first->node[n].op &&
                   own->node[n].input_first == first->node[n].input_first;
            if (!sx_type_is_static(&own->node[n].type)) {
                return SX_FAIL(cx, SX_INPUT, "node %u: a symbolic dimension has no value", n);
            }
        }
        if (!same) {
            return SX_FAIL(cx, SX_INPUT, "rank %u has another program than rank 0", rank);
        }
    }
    return SX_OK;
}

static sx_code take_arguments(const stage *s, const sx_tensor *argument, uint32_t argument_count)
{
    const machine *m = s->m;
    for (uint32_t rank = 0; rank < m->rank_count; rank++) {
        uint32_t taken = 0;
        for (uint32_t n = 0; n < s->graph[rank]->node_count; n++) {
            const sx_node *node = &s->graph[rank]->node[n];
            if (node->op != SX_OP_PARAMETER) {
                continue;
            }
            const sx_tensor *given = &argument[(size_t)rank * argument_count + taken];
            if (taken == argument_count || !sx_type_equal(&given->type, &node->type)) {
                return SX_FAIL(m->cx, SX_INPUT, "rank %u: parameter %u: %s", rank, taken,
                               taken == argument_count ? "no argument"
                                                       : "the argument's type differs");
            }
            SX_TRY(sx_eval_take(m->cx, m->mode, taken++, given, value_of(s, n, rank)));
        }
        if (taken != argument_count) {
            return SX_FAIL(m->cx, SX_INPUT, "rank %u: %u arguments for %u parameters", rank,
                           argument_count, taken);
        }
    }
    return SX_OK;
}

sx_code sx_graph_eval_mesh(sx_ctx *cx, const sx_graph *const *graph, uint32_t rank_count,
                           sx_eval_mode mode, const sx_tensor *argument, uint32_t argument_count,
                           sx_tensor *result, uint32_t result_count)
{
    SX_ASSERT(rank_count > 0);
    const sx_sharding *mesh = graph[0]->sharding;
    machine m = {cx, mesh, mode, rank_count};
    if (mesh == NULL || mesh->parameter_count > 0 || mesh->output_count > 0) {
        return SX_FAIL(cx, SX_INPUT, "graph: %s: no program for each rank",
                       mesh == NULL ? "it has no mesh" : "it has placements");
    }
    uint32_t devices = stride_of(mesh, 0) * (uint32_t)mesh->axis[0].size;
    if (rank_count != devices || result_count != graph[0]->output_count) {
        return SX_FAIL(cx, SX_INPUT, "graph: %u ranks and %u results, it has %u and %u", rank_count,
                       result_count, devices, graph[0]->output_count);
    }
    SX_TRY(sx_collectives_check(cx, graph[0]));
    SX_TRY(check_ranks(cx, graph, rank_count));
    stage s = {&m, graph, NULL};
    s.value = SX_NEW_ARRAY(cx, sx_tensor, (size_t)graph[0]->node_count * rank_count + 1);
    if (s.value == NULL) {
        return cx->error.code;
    }
    SX_TRY(take_arguments(&s, argument, argument_count));
    SX_TRY(eval_nodes(&s));
    for (uint32_t rank = 0; rank < rank_count; rank++) {
        for (uint32_t k = 0; k < result_count; k++) {
            result[(size_t)rank * result_count + k] =
                *value_of(&s, graph[0]->output[k].node.i, rank);
        }
    }
    return SX_OK;
}
