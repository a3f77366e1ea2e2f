/* regions.c - scan, while and cond become loops and branches of the module. Their bodies are compiled once; before that
 * each distinct body goes through level 1 by itself.
 *
 *     scan                                                    while
 *     copy    first values -> carried                         copy    first values -> carried
 *     ..      what the body computes of tensors that          ..      the same, of condition and step
 *             it sees whole, once                             while
 *     loop    as often as there are slices                      ..    what the condition computes
 *       slice   operand -> slice                                      (leaves, or goes on)
 *       ..      what else the body computes                     ..    what else the step computes
 *       row     result -> stacked                               copy  result -> carried
 *       copy    result -> carried
 *                                                             cond
 *     Slices are taken of operands that are needed, rows      branch
 *     written for results that somebody asks for. Values        ..    then, and copies of its results
 *     are copied that change; by way of a third tensor          ..    otherwise, and copies of its results
 *     where a result is itself a carried value, so that
 *     two may change places.
 */
#include "core/ir/extent.h"
#include "core/pipeline.h"

#include <string.h>

#include "core/cost/cost.h"
#include "core/ir/effect.h"
#include "core/ir/plain.h"
#include "core/ir/program.h"

/* ---- bodies by level 1 ---- */

/* What became of the bodies so far. */
typedef struct {
    sx_ctx *cx;
    const sx_device *device;
    const sx_optimize_options *options;
    const sx_program **from, **to; /* [count] */
    uint32_t count, capacity, other;
} bodies;

static sx_code improve_graph(bodies *b, const sx_graph *graph, sx_graph **better);

static sx_code improve(bodies *b, const sx_program *program, const sx_program **better)
{
    sx_graph *inner, *best;
    sx_optimize_report report;
    for (uint32_t i = 0; i < b->count; i++) {
        if (sx_span_equal(b->from[i]->text, program->text)) {
            *better = b->to[i];
            return SX_OK;
        }
    }
    SX_TRY(improve_graph(b, program->graph, &inner));
    SX_TRY(sx_optimize(b->cx, inner, b->device, b->options, &best, &report));
    SX_TRY(sx_graph_check(b->cx, best));
    SX_TRY(sx_program_make(b->cx, best, better));
    void *from = b->from, *to = b->to;
    b->other = b->capacity;
    SX_TRY(sx_grow(b->cx, &from, &b->capacity, b->count + 1, sizeof(*b->from)));
    SX_TRY(sx_grow(b->cx, &to, &b->other, b->count + 1, sizeof(*b->to)));
    b->from = from;
    b->to = to;
    b->from[b->count] = program;
    b->to[b->count++] = *better;
    return SX_OK;
}

/* The graph, node by node, with better bodies. */
static sx_code improve_graph(bodies *b, const sx_graph *graph, sx_graph **better)
{
    sx_graph *out;
    SX_TRY(sx_graph_make(b->cx, graph->name, NULL, &out));
    SX_TRY(sx_graph_copy_symbols(b->cx, graph->symbol, graph->symbol_count, out));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        const sx_node_id *input = node->input_count > 0 ? &graph->input[node->input_first] : NULL;
        sx_attr attr = *sx_graph_attr(graph, node);
        const sx_program **program[SX_ATTR_PROGRAMS_MAX];
        uint32_t count = sx_attr_programs(&attr, program);
        for (uint32_t k = 0; k < count; k++) {
            SX_TRY(improve(b, *program[k], program[k]));
        }
        sx_node_id id;
        SX_TRY(sx_graph_add(b->cx, out, node->op, &attr, input, node->input_count, &id));
        SX_ASSERT(id.i == n);
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        SX_TRY(sx_graph_add_output(b->cx, out, graph->output[k].name, graph->output[k].node));
    }
    *better = out;
    return sx_effects_copy(b->cx, graph, NULL, out);
}

sx_code sx_pipe_bodies(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                       sx_graph **graph)
{
    sx_optimize_options options;
    bodies b = {.cx = cx, .device = device, .options = &options};
    bool any = false;
    for (uint32_t n = 0; n < (*graph)->node_count; n++) {
        any = any || sx_op_info_of((*graph)->node[n].op)->op_class == SX_OPCLASS_REGION;
    }
    if (!any) {
        return SX_OK;
    }
    SX_TRY(sx_semantic_options(cx, request, &options));
    options.with_proof = false;
    return improve_graph(&b, *graph, graph);
}

/* ---- launches that are no kernels ---- */

_Static_assert(SX_MODULE_TRUTH == SX_BOOL, "what branches and whiles ask is a bool");
_Static_assert(SX_MODULE_ROUNDS_MAX == SX_PROGRAM_ROUNDS_MAX,
               "a while has the rounds that it may have");

static void put_launch(sx_pipe *pipe, sx_module_launch_kind kind, const uint32_t *arg,
                       uint32_t arg_count)
{
    sx_image *image = pipe->image;
    sx_module_launch made = {.kind = kind,
                             .kernel = SX_MODULE_NONE,
                             .arg_first = (uint32_t)(image->arg.len / sizeof(uint32_t)),
                             .arg_count = arg_count};
    SX_ASSERT(kind != SX_LAUNCH_KERNEL);
    for (uint32_t k = 0; k < arg_count; k++) {
        sx_buf_put(&image->arg, &arg[k], sizeof(arg[k]));
        sx_pipe_use_tensor(pipe, arg[k]);
    }
    sx_buf_put(&image->launch, &made, sizeof(made));
    pipe->launch_count++;
}

static void put_move(sx_pipe *pipe, sx_module_launch_kind kind, uint32_t from, uint32_t to)
{
    SX_ASSERT(from != to);
    put_launch(pipe, kind, (const uint32_t[]){from, to}, 2);
}

static sx_module_launch *launch_at(sx_pipe *pipe, uint32_t index)
{
    SX_ASSERT((size_t)index < pipe->image->launch.len / sizeof(sx_module_launch));
    return (sx_module_launch *)(void *)pipe->image->launch.ptr + index;
}

/* ---- one region ---- */

/* A program inside, with what is known of its nodes. */
typedef struct {
    const sx_program *program;
    uint32_t *tensor_of; /* UINT32_MAX: none yet */
    bool *needed, *varies;
} body;

typedef struct {
    sx_ctx *cx;
    sx_pipe *pipe;
    sx_node_id id;
    sx_op op;
    const sx_attr *attr;
    uint32_t carried, end; /* operands: carried up to the one, sliced up to the other */
    uint32_t input_count;
    uint32_t input[SX_INPUTS_MAX];
    uint64_t wanted; /* results that somebody asks for */
    uint32_t result[SX_PROGRAM_RESULTS_MAX];
    uint32_t parameter[SX_INPUTS_MAX]; /* tensors that the bodies read */
    body step, condition;              /* of a scan or while; the condition of a while */
} region;

static sx_code add_temporary(sx_ctx *cx, sx_pipe *pipe, const sx_type *type, uint32_t *tensor)
{
    uint64_t size = (uint64_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    return sx_pipe_add_tensor(cx, pipe, SX_SPAN_LITERAL(""), type, size, SX_TENSOR_TEMPORARY,
                              tensor);
}

static bool is_sibling(const sx_graph *graph, uint32_t a, uint32_t b)
{
    const sx_node *x = &graph->node[a];
    const sx_node *y = &graph->node[b];
    return x->op == y->op && x->input_count == y->input_count &&
           sx_attr_is_sibling(sx_graph_attr(graph, x), sx_graph_attr(graph, y)) &&
           memcmp(&graph->input[x->input_first], &graph->input[y->input_first],
                  x->input_count * sizeof(sx_node_id)) == 0;
}

/* A tensor for each result that a node of the graph is, in the memory of an output where it is one. */
static sx_code make_results(region *r, uint32_t *output_tensor)
{
    const sx_graph *graph = r->pipe->graph;
    for (uint32_t n = r->id.i; n < graph->node_count; n++) {
        if (!is_sibling(graph, r->id.i, n)) {
            continue;
        }
        uint32_t which = (uint32_t)sx_graph_attr(graph, &graph->node[n])->result;
        if ((r->wanted >> which & 1) == 0) {
            SX_TRY(
                sx_pipe_result(r->cx, r->pipe, (sx_node_id){n}, output_tensor, &r->result[which]));
            r->wanted |= UINT64_C(1) << which;
        }
        r->pipe->tensor_of[n] = r->result[which];
    }
    return SX_OK;
}

/* What the results `asked` are made of, and what of it is not the same in each round. A while inside another may fail,
 * so that it is not computed before it is known that there is a round. */
static sx_code open_body(const region *r, const sx_program *program, uint64_t asked, body *b)
{
    const sx_graph *graph = program->graph;
    *b = (body){.program = program,
                .tensor_of = SX_NEW_ARRAY(r->cx, uint32_t, graph->node_count),
                .needed = SX_NEW_ARRAY(r->cx, bool, graph->node_count),
                .varies = SX_NEW_ARRAY(r->cx, bool, graph->node_count)};
    if (b->tensor_of == NULL || b->needed == NULL || b->varies == NULL) {
        return r->cx->error.code;
    }
    memset(b->tensor_of, 0xff, graph->node_count * sizeof(*b->tensor_of));
    for (uint32_t k = 0; k < graph->output_count; k++) {
        uint32_t n = graph->output[k].node.i;
        b->needed[n] = b->needed[n] || (asked >> k & 1) != 0;
    }
    for (uint32_t n = graph->node_count; n-- > 0;) {
        for (uint32_t k = 0; b->needed[n] && k < graph->node[n].input_count; k++) {
            b->needed[sx_graph_input(graph, &graph->node[n], k).i] = true;
        }
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        bool inside = sx_op_info_of(graph->node[n].op)->op_class == SX_OPCLASS_REGION;
        b->varies[n] = (n < r->end && n < program->parameter_count) || r->op == SX_OP_COND ||
                       (r->op == SX_OP_WHILE && inside);
        for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
            b->varies[n] = b->varies[n] || b->varies[sx_graph_input(graph, &graph->node[n], k).i];
        }
    }
    return SX_OK;
}

/* Tensors of the parameters; carried values get their first ones. */
static sx_code make_parameters(region *r)
{
    const body *step = &r->step;
    for (uint32_t k = 0; k < r->input_count; k++) {
        bool kept = k < r->carried && (r->wanted >> k & 1) != 0;
        r->parameter[k] = kept ? r->result[k] : r->input[k];
        if (k < r->end && !kept && (k < r->carried || step->needed[k])) {
            SX_TRY(add_temporary(r->cx, r->pipe, sx_program_parameter(step->program, k),
                                 &r->parameter[k]));
        }
        if (k < r->carried) {
            put_move(r->pipe, SX_LAUNCH_COPY, r->input[k], r->parameter[k]);
        }
    }
    return SX_OK;
}

/* The nodes of a body, those that vary or the others; the tables of the pipeline are those of the body meanwhile. */
static sx_code compile_body(region *r, body *b, const uint32_t *parameter, bool varying)
{
    sx_pipe *pipe = r->pipe;
    sx_pipe outer = *pipe;
    sx_code code = SX_OK;
    pipe->graph = b->program->graph;
    pipe->tensor_of = b->tensor_of;
    pipe->made = NULL;
    pipe->made_count = pipe->made_capacity = 0;
    pipe->made_map = (sx_idmap){0};
    pipe->inside = true;
    memcpy(b->tensor_of, parameter, b->program->parameter_count * sizeof(*parameter));
    for (uint32_t n = b->program->parameter_count; n < pipe->graph->node_count && code == SX_OK;
         n++) {
        if (b->needed[n] && b->varies[n] == varying) {
            code = sx_pipe_node(r->cx, pipe, (sx_node_id){n}, NULL);
        }
    }
    pipe->graph = outer.graph;
    pipe->tensor_of = outer.tensor_of;
    pipe->made = outer.made;
    pipe->made_count = outer.made_count;
    pipe->made_capacity = outer.made_capacity;
    pipe->made_map = outer.made_map;
    pipe->inside = outer.inside;
    return code;
}

/* The tensor of a result of a body. */
static uint32_t result_of(const body *b, uint32_t k)
{
    uint32_t tensor = b->tensor_of[b->program->graph->output[k].node.i];
    SX_ASSERT(tensor != UINT32_MAX);
    return tensor;
}

/* Is the tensor one of a carried value, other than the k-th? */
static bool is_carried(const region *r, uint32_t tensor, uint32_t k)
{
    bool found = false;
    for (uint32_t j = 0; j < r->carried; j++) {
        found = found || (j != k && r->parameter[j] == tensor);
    }
    return found;
}

/* The end of a round: rows first, as carried values are still those of this round. */
static sx_code put_round(region *r)
{
    uint32_t from[SX_INPUTS_MAX];
    for (uint32_t k = r->carried; k < r->step.program->graph->output_count; k++) {
        if ((r->wanted >> k & 1) != 0) {
            put_move(r->pipe, SX_LAUNCH_ROW, result_of(&r->step, k), r->result[k]);
        }
    }
    for (uint32_t k = 0; k < r->carried; k++) {
        from[k] = result_of(&r->step, k);
        if (is_carried(r, from[k], k)) {
            uint32_t third;
            SX_TRY(add_temporary(r->cx, r->pipe, sx_program_parameter(r->step.program, k), &third));
            put_move(r->pipe, SX_LAUNCH_COPY, from[k], third);
            from[k] = third;
        }
    }
    for (uint32_t k = 0; k < r->carried; k++) {
        if (from[k] != r->parameter[k]) {
            put_move(r->pipe, SX_LAUNCH_COPY, from[k], r->parameter[k]);
        }
    }
    return SX_OK;
}

/* ---- bodies of launches ---- */

/* Launches of the prologue that were made meanwhile stand behind the outermost body: the prologue runs before. */
static void put_hoisted(sx_pipe *pipe)
{
    SX_ASSERT(pipe->loop_depth == 0);
    pipe->launch_count += (uint32_t)(pipe->hoisted.len / sizeof(sx_module_launch));
    sx_buf_put_span(&pipe->image->launch, sx_buf_span(&pipe->hoisted));
    sx_buf_clear(&pipe->hoisted);
}

/* What is put now is the body of a launch, and runs so often when that runs. Gives the number of the launch. */
static uint32_t open_launch(sx_pipe *pipe, sx_module_launch_kind kind, double rounds)
{
    SX_ASSERT(pipe->loop_depth < SX_MODULE_LOOPS_MAX && rounds > 0);
    put_launch(pipe, kind, NULL, 0);
    pipe->loop_depth++;
    pipe->rounds *= rounds;
    return pipe->launch_count - 1;
}

static sx_code close_launch(sx_ctx *cx, sx_pipe *pipe, uint32_t index, double outer)
{
    SX_ASSERT(pipe->loop_depth > 0 && index < pipe->launch_count);
    sx_module_launch *launch = launch_at(pipe, index);
    pipe->loop_depth--;
    pipe->rounds = outer;
    launch->body = pipe->launch_count - index - 1;
    if (launch->body == 0 && launch->kind == SX_LAUNCH_LOOP) { /* nothing changes */
        SX_ASSERT(index + 1 == pipe->launch_count);
        pipe->image->launch.len -= sizeof(*launch);
        pipe->launch_count--;
    } else if (launch->body > 0 && launch->kind != SX_LAUNCH_BRANCH) {
        SX_TRY(sx_pipe_across(cx, pipe, index, index + launch->body));
    }
    if (pipe->loop_depth == 0) {
        put_hoisted(pipe);
    }
    return sx_buf_check(cx, &pipe->image->launch, "launches");
}

/* The body that is being put has its first range; argument 0 says how it goes on from there. */
static void ask(sx_pipe *pipe, uint32_t index, uint32_t truth)
{
    sx_image *image = pipe->image;
    sx_module_launch *launch = launch_at(pipe, index);
    launch->first = pipe->launch_count - index - 1;
    launch->arg_first = (uint32_t)(image->arg.len / sizeof(uint32_t));
    launch->arg_count = 1;
    sx_buf_put(&image->arg, &truth, sizeof(truth));
}

/* ---- scan, while, cond ---- */

static sx_code compile_scan(region *r)
{
    sx_pipe *pipe = r->pipe;
    const sx_graph *graph = pipe->graph;
    uint64_t values = (UINT64_C(1) << r->carried) - 1;
    sx_node_id sliced = sx_graph_input(graph, sx_graph_node(graph, r->id), r->carried);
    int64_t rounds = sx_graph_node(graph, sliced)->type.dim[0].scale;
    double outer = pipe->rounds;
    SX_TRY(open_body(r, r->attr->step, r->wanted | values, &r->step));
    SX_TRY(make_parameters(r));
    SX_TRY(compile_body(r, &r->step, r->parameter, false));
    uint32_t loop = open_launch(pipe, SX_LAUNCH_LOOP, (double)rounds);
    launch_at(pipe, loop)->value = (uint64_t)rounds;
    for (uint32_t k = r->carried; k < r->end; k++) {
        if (r->step.needed[k]) {
            put_move(pipe, SX_LAUNCH_SLICE, r->input[k], r->parameter[k]);
        }
    }
    SX_TRY(compile_body(r, &r->step, r->parameter, true));
    SX_TRY(put_round(r));
    return close_launch(r->cx, pipe, loop, outer);
}

static sx_code compile_while(region *r)
{
    sx_pipe *pipe = r->pipe;
    double outer = pipe->rounds;
    SX_TRY(open_body(r, r->attr->step, UINT64_MAX, &r->step));
    SX_TRY(open_body(r, r->attr->condition, 1, &r->condition));
    SX_TRY(make_parameters(r));
    SX_TRY(compile_body(r, &r->condition, r->parameter, false));
    SX_TRY(compile_body(r, &r->step, r->parameter, false));
    uint32_t loop = open_launch(pipe, SX_LAUNCH_WHILE, SX_COST_ROUNDS);
    launch_at(pipe, loop)->value = (uint64_t)r->attr->rounds;
    SX_TRY(compile_body(r, &r->condition, r->parameter, true));
    ask(pipe, loop, result_of(&r->condition, 0));
    sx_pipe_use_tensor(pipe, result_of(&r->condition, 0)); /* before the launch that comes next */
    SX_TRY(compile_body(r, &r->step, r->parameter, true));
    SX_TRY(put_round(r));
    return close_launch(r->cx, pipe, loop, outer);
}

/* What one of two programs makes, at its place. */
static sx_code compile_taken(region *r, const sx_program *program)
{
    body b;
    SX_TRY(open_body(r, program, r->wanted, &b));
    SX_TRY(compile_body(r, &b, r->input + 1, true));
    for (uint32_t k = 0; k < program->graph->output_count; k++) {
        if ((r->wanted >> k & 1) != 0) {
            put_move(r->pipe, SX_LAUNCH_COPY, result_of(&b, k), r->result[k]);
        }
    }
    return SX_OK;
}

/* A run pays for the dearer one. */
static sx_code compile_cond(region *r)
{
    sx_pipe *pipe = r->pipe;
    const sx_pipe before = *pipe;
    uint32_t branch = open_launch(pipe, SX_LAUNCH_BRANCH, 1);
    sx_pipe_use_tensor(pipe, r->input[0]);
    SX_TRY(compile_taken(r, r->attr->then));
    ask(pipe, branch, r->input[0]);
    const sx_pipe then = *pipe;
    pipe->flops = before.flops;
    pipe->cost_ns = before.cost_ns;
    pipe->floor_ns = before.floor_ns;
    SX_TRY(compile_taken(r, r->attr->otherwise));
    if (then.cost_ns > pipe->cost_ns) {
        pipe->flops = then.flops;
        pipe->cost_ns = then.cost_ns;
        pipe->floor_ns = then.floor_ns;
    }
    return close_launch(r->cx, pipe, branch, before.rounds);
}

/* What comes after its results have tensors. */
static sx_code compile_region(region *r)
{
    const sx_graph *graph = r->pipe->graph;
    const sx_node *node = sx_graph_node(graph, r->id);
    if (r->pipe->loop_depth == SX_MODULE_LOOPS_MAX) {
        return SX_FAIL(r->cx, SX_LIMIT, "node %%%u: more than %u loops inside each other", r->id.i,
                       SX_MODULE_LOOPS_MAX);
    }
    r->op = node->op;
    r->attr = sx_graph_attr(graph, node);
    r->carried = r->op == SX_OP_COND ? 0 : (uint32_t)r->attr->carried;
    r->end = r->carried + (r->op == SX_OP_SCAN ? (uint32_t)r->attr->sliced : 0);
    r->input_count = node->input_count;
    for (uint32_t k = 0; k < node->input_count; k++) {
        r->input[k] = r->pipe->tensor_of[sx_graph_input(graph, node, k).i];
    }
    switch ((int)r->op) {
    case SX_OP_SCAN: return compile_scan(r);
    case SX_OP_WHILE: return compile_while(r);
    case SX_OP_COND: return compile_cond(r);
    default: SX_UNREACHABLE();
    }
}

/* Loops slice and stack tensors with elements. */
static sx_code check_elements(sx_ctx *cx, const sx_graph *graph, sx_node_id id)
{
    const sx_node *node = sx_graph_node(graph, id);
    const sx_attr *attr = sx_graph_attr(graph, node);
    bool empty = false;
    for (uint32_t k = 0; k < node->input_count; k++) {
        empty = empty || sx_type_is_empty(&graph->node[sx_graph_input(graph, node, k).i].type);
    }
    const sx_program *program = node->op == SX_OP_COND ? attr->then : attr->step;
    for (uint32_t k = 0; k < program->graph->output_count; k++) {
        empty = empty || sx_type_is_empty(sx_program_result(program, k));
    }
    if (empty) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "node %%%u: %s of a tensor without elements", id.i,
                       sx_op_info_of(node->op)->name);
    }
    return SX_OK;
}

sx_code sx_pipe_region(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor)
{
    SX_TRY(check_elements(cx, pipe->graph, id));
    uint32_t depth = pipe->loop_depth;
    double rounds = pipe->rounds;
    if (pipe->tensor_of[id.i] != UINT32_MAX) { /* made with an earlier result */
        return SX_OK;
    }
    if (pipe->steady != NULL) {
        return sx_pipe_unsteady(cx, pipe, "of a region", "it has loops of launches");
    }
    region *r = SX_NEW(cx, region);
    if (r == NULL) {
        return cx->error.code;
    }
    r->cx = cx;
    r->pipe = pipe;
    r->id = id;
    SX_TRY(make_results(r, output_tensor));
    sx_code code = compile_region(r);
    SX_ASSERT(code != SX_OK || pipe->loop_depth == depth);
    pipe->loop_depth = depth; /* what else is not supported is told, too */
    pipe->rounds = rounds;
    return code;
}
