/* region.c - scan, while and cond: their programs evaluated round by round. */
#include "core/eval/cell.h"
#include "core/ir/program.h"

#include <string.h>

typedef struct {
    sx_ctx *cx;
    const sx_attr *attr;
    sx_eval_mode mode;
    const sx_tensor *input;
    uint32_t input_count;
    uint64_t wanted; /* set of results */
    sx_tensor *result;
} region;

static void copy_cells(sx_tensor *to, const sx_tensor *from)
{
    SX_ASSERT(sx_type_equal(&to->type, &from->type));
    memcpy(to->data, from->data, (size_t)sx_tensor_elements(&to->type) * sizeof(sx_cell));
}

/* The program with its composites as primitives. */
static sx_code expand(const region *r, const sx_program *program, const sx_graph **graph)
{
    return sx_graph_expand(r->cx, program->graph, graph);
}

/* Results of one evaluation, copied to where `to` has cells. What it needs besides is given back at its end, so that
 * any number of rounds needs the memory of one. */
static sx_code evaluate(const region *r, const sx_graph *graph, const sx_tensor *argument,
                        uint32_t argument_count, sx_tensor *to)
{
    sx_ctx *cx = r->cx;
    sx_arena outer = cx->arena;
    sx_tensor found[SX_PROGRAM_RESULTS_MAX];
    SX_TRY(sx_spend(cx, 1));
    sx_arena_init(&cx->arena, outer.limit_bytes - outer.used_bytes);
    sx_code code =
        sx_eval_inside(cx, graph, r->mode, argument, argument_count, found, graph->output_count);
    for (uint32_t k = 0; code == SX_OK && k < graph->output_count; k++) {
        if (to[k].data != NULL) {
            copy_cells(&to[k], &found[k]);
        }
    }
    sx_arena_fini(&cx->arena);
    cx->arena = outer;
    return code;
}

/* Two places for each carried value: a round reads one and writes the other. */
typedef struct {
    sx_tensor place[2][SX_INPUTS_MAX];
    uint32_t count;
    uint32_t now; /* the place that holds the values */
} carries;

static sx_code make_carries(const region *r, carries *c)
{
    *c = (carries){.count = (uint32_t)r->attr->carried};
    for (uint32_t k = 0; k < c->count; k++) {
        SX_TRY(sx_tensor_make(r->cx, &r->input[k].type, &c->place[0][k]));
        SX_TRY(sx_tensor_make(r->cx, &r->input[k].type, &c->place[1][k]));
        copy_cells(&c->place[0][k], &r->input[k]);
    }
    return SX_OK;
}

static void put_carries(const region *r, const carries *c)
{
    for (uint32_t k = 0; k < c->count; k++) {
        if ((r->wanted >> k & 1) != 0) {
            copy_cells(&r->result[k], &c->place[c->now][k]);
        }
    }
}

static sx_code eval_scan(const region *r)
{
    const sx_program *step = r->attr->step;
    uint32_t carried = (uint32_t)r->attr->carried;
    uint32_t end = carried + (uint32_t)r->attr->sliced;
    int64_t rounds = r->input[carried].type.dim[0].scale;
    const sx_graph *graph;
    carries c;
    SX_TRY(expand(r, step, &graph));
    SX_TRY(make_carries(r, &c));
    for (int64_t round = 0; round < rounds; round++) {
        sx_tensor argument[SX_INPUTS_MAX];
        sx_tensor to[SX_PROGRAM_RESULTS_MAX] = {{{0}, NULL}};
        for (uint32_t k = 0; k < r->input_count; k++) {
            argument[k] = k < carried ? c.place[c.now][k] : r->input[k];
            if (k >= carried && k < end) {
                argument[k].type = *sx_program_parameter(step, k);
                int64_t slice = sx_tensor_elements(&argument[k].type);
                argument[k].data = (sx_cell *)r->input[k].data + round * slice;
            }
        }
        for (uint32_t k = 0; k < graph->output_count; k++) {
            if (k < carried) {
                to[k] = c.place[1 - c.now][k];
            } else if ((r->wanted >> k & 1) != 0) {
                to[k].type = *sx_program_result(step, k);
                int64_t row = sx_tensor_elements(&to[k].type);
                to[k].data = (sx_cell *)r->result[k].data + round * row;
            }
        }
        SX_TRY(evaluate(r, graph, argument, r->input_count, to));
        c.now = 1 - c.now;
    }
    put_carries(r, &c);
    return SX_OK;
}

static sx_code eval_while(const region *r)
{
    const sx_type truth = {.dtype = SX_BOOL};
    const sx_graph *condition;
    const sx_graph *step;
    sx_tensor more;
    carries c;
    SX_TRY(expand(r, r->attr->condition, &condition));
    SX_TRY(expand(r, r->attr->step, &step));
    SX_TRY(sx_tensor_make(r->cx, &truth, &more));
    SX_TRY(make_carries(r, &c));
    for (int64_t round = 0;; round++) {
        sx_tensor argument[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < r->input_count; k++) {
            argument[k] = k < c.count ? c.place[c.now][k] : r->input[k];
        }
        SX_TRY(evaluate(r, condition, argument, r->input_count, &more));
        if (((const sx_cell *)more.data)->i == 0) {
            put_carries(r, &c);
            return SX_OK;
        }
        if (round == r->attr->rounds) {
            return SX_FAIL(r->cx, SX_LIMIT, "while: the condition is true after %lld rounds",
                           (long long)round);
        }
        SX_TRY(evaluate(r, step, argument, r->input_count, c.place[1 - c.now]));
        c.now = 1 - c.now;
    }
}

static sx_code eval_cond(const region *r)
{
    bool truth = ((const sx_cell *)r->input[0].data)->i != 0;
    const sx_program *taken = truth ? r->attr->then : r->attr->otherwise;
    const sx_graph *graph;
    sx_tensor to[SX_PROGRAM_RESULTS_MAX] = {{{0}, NULL}};
    SX_TRY(expand(r, taken, &graph));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        if ((r->wanted >> k & 1) != 0) {
            to[k] = r->result[k];
        }
    }
    return evaluate(r, graph, r->input + 1, r->input_count - 1, to);
}

sx_code sx_eval_region(sx_ctx *cx, sx_op op, const sx_attr *attr, sx_eval_mode mode,
                       const sx_tensor *input, uint32_t input_count, uint64_t wanted,
                       sx_tensor *result)
{
    region r = {cx, attr, mode, input, input_count, wanted, result};
    SX_ASSERT(input_count >= 1 && wanted != 0);
    switch ((int)op) {
    case SX_OP_SCAN: return eval_scan(&r);
    case SX_OP_WHILE: return eval_while(&r);
    case SX_OP_COND: return eval_cond(&r);
    default: SX_UNREACHABLE();
    }
}
