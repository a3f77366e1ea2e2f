/* regions.c - scan becomes a loop of the module: its body is compiled once, between slices of what it reads and rows of
 * what it stacks. Before that each distinct body goes through level 1 by itself.
 *
 *     copy    first values -> carried          for each carried value
 *     ..      what the body computes of tensors that it sees whole, once
 *     loop    as often as there are slices
 *       slice   operand -> slice               for each operand that is sliced and needed
 *       ..      what else the body computes
 *       row     result -> stacked              for each other result that somebody asks for
 *       copy    result -> carried              for those that change; by way of a third tensor where a result is
 *                                              itself a carried value, so that two may change places
 */
#include "core/pipeline.h"

#include <string.h>

#include "core/ir/effect.h"
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
    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        const sx_symbol *from = &graph->symbol[s];
        uint32_t symbol;
        SX_TRY(sx_graph_add_symbol(b->cx, out, from->name, from->low, from->high, &symbol));
    }
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

static void put_launch(sx_pipe *pipe, sx_module_launch_kind kind, uint32_t from, uint32_t to)
{
    sx_image *image = pipe->image;
    sx_module_launch made = {.kind = kind,
                             .kernel = SX_MODULE_NONE,
                             .arg_first = (uint32_t)(image->arg.len / sizeof(uint32_t)),
                             .arg_count = kind == SX_LAUNCH_LOOP ? 0 : 2};
    const uint32_t arg[2] = {from, to};
    for (uint32_t k = 0; k < made.arg_count; k++) {
        sx_buf_put(&image->arg, &arg[k], sizeof(arg[k]));
        sx_pipe_use_tensor(pipe, arg[k]);
    }
    sx_buf_put(&image->launch, &made, sizeof(made));
    pipe->launch_count++;
}

static sx_module_launch *launch_at(sx_pipe *pipe, uint32_t index)
{
    SX_ASSERT((size_t)index < pipe->image->launch.len / sizeof(sx_module_launch));
    return (sx_module_launch *)(void *)pipe->image->launch.ptr + index;
}

/* ---- one scan ---- */

typedef struct {
    sx_ctx *cx;
    sx_pipe *pipe;
    const sx_program *step;
    uint32_t carried, end; /* operands: carried up to the one, sliced up to the other */
    uint32_t input[SX_INPUTS_MAX];
    uint64_t wanted; /* results that somebody asks for */
    uint32_t result[SX_PROGRAM_RESULTS_MAX];
    uint32_t parameter[SX_INPUTS_MAX]; /* tensors that the body reads */
    uint32_t *body_of;                 /* tensor of each node of the body */
    bool *needed, *varies;             /* nodes of the body */
} scan;

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
static sx_code make_results(scan *s, sx_node_id id, uint32_t *output_tensor)
{
    const sx_graph *graph = s->pipe->graph;
    for (uint32_t n = id.i; n < graph->node_count; n++) {
        if (!is_sibling(graph, id.i, n)) {
            continue;
        }
        uint32_t which = (uint32_t)sx_graph_attr(graph, &graph->node[n])->result;
        if ((s->wanted >> which & 1) == 0) {
            SX_TRY(
                sx_pipe_result(s->cx, s->pipe, (sx_node_id){n}, output_tensor, &s->result[which]));
            s->wanted |= UINT64_C(1) << which;
        }
        s->pipe->tensor_of[n] = s->result[which];
    }
    return SX_OK;
}

/* What carried values and wanted results are made of, and what of it is not the same in each round. */
static sx_code mark(scan *s)
{
    const sx_graph *body = s->step->graph;
    s->needed = SX_NEW_ARRAY(s->cx, bool, body->node_count);
    s->varies = SX_NEW_ARRAY(s->cx, bool, body->node_count);
    s->body_of = SX_NEW_ARRAY(s->cx, uint32_t, body->node_count);
    if (s->needed == NULL || s->varies == NULL || s->body_of == NULL) {
        return s->cx->error.code;
    }
    memset(s->body_of, 0xff, body->node_count * sizeof(*s->body_of));
    for (uint32_t k = 0; k < body->output_count; k++) {
        bool asked = k < s->carried || (s->wanted >> k & 1) != 0;
        s->needed[body->output[k].node.i] = s->needed[body->output[k].node.i] || asked;
    }
    for (uint32_t n = body->node_count; n-- > 0;) {
        for (uint32_t k = 0; s->needed[n] && k < body->node[n].input_count; k++) {
            s->needed[sx_graph_input(body, &body->node[n], k).i] = true;
        }
    }
    for (uint32_t n = 0; n < body->node_count; n++) {
        s->varies[n] = n < s->end && n < s->step->parameter_count;
        for (uint32_t k = 0; k < body->node[n].input_count; k++) {
            s->varies[n] = s->varies[n] || s->varies[sx_graph_input(body, &body->node[n], k).i];
        }
    }
    return SX_OK;
}

/* Tensors of the parameters; carried values get their first ones. */
static sx_code make_parameters(scan *s)
{
    for (uint32_t k = 0; k < s->step->parameter_count; k++) {
        const sx_type *type = sx_program_parameter(s->step, k);
        bool kept = k < s->carried && (s->wanted >> k & 1) != 0;
        s->parameter[k] = kept ? s->result[k] : s->input[k];
        if (k < s->end && !kept && (k < s->carried || s->needed[k])) {
            SX_TRY(add_temporary(s->cx, s->pipe, type, &s->parameter[k]));
        }
        if (k < s->carried) {
            put_launch(s->pipe, SX_LAUNCH_COPY, s->input[k], s->parameter[k]);
        }
        s->body_of[k] = s->parameter[k];
    }
    return SX_OK;
}

/* The nodes of the body, those that vary or the others; the tables of the pipeline are those of the body meanwhile. */
static sx_code compile_body(scan *s, bool varying)
{
    sx_pipe *pipe = s->pipe;
    sx_pipe outer = *pipe;
    sx_code code = SX_OK;
    pipe->graph = s->step->graph;
    pipe->tensor_of = s->body_of;
    pipe->made = NULL;
    pipe->made_count = pipe->made_capacity = 0;
    pipe->made_map = (sx_idmap){0};
    pipe->inside = true;
    for (uint32_t n = s->step->parameter_count; n < pipe->graph->node_count && code == SX_OK; n++) {
        if (s->needed[n] && s->varies[n] == varying) {
            code = sx_pipe_node(s->cx, pipe, (sx_node_id){n}, NULL);
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

/* Is the tensor one of a carried value, other than the k-th? */
static bool is_carried(const scan *s, uint32_t tensor, uint32_t k)
{
    bool found = false;
    for (uint32_t j = 0; j < s->carried; j++) {
        found = found || (j != k && s->parameter[j] == tensor);
    }
    return found;
}

/* The end of a round: rows first, as carried values are still those of this round. */
static sx_code put_round(scan *s)
{
    const sx_graph *body = s->step->graph;
    uint32_t from[SX_INPUTS_MAX];
    for (uint32_t k = s->carried; k < body->output_count; k++) {
        if ((s->wanted >> k & 1) != 0) {
            put_launch(s->pipe, SX_LAUNCH_ROW, s->body_of[body->output[k].node.i], s->result[k]);
        }
    }
    for (uint32_t k = 0; k < s->carried; k++) {
        from[k] = s->body_of[body->output[k].node.i];
        if (is_carried(s, from[k], k)) {
            uint32_t third;
            SX_TRY(add_temporary(s->cx, s->pipe, sx_program_parameter(s->step, k), &third));
            put_launch(s->pipe, SX_LAUNCH_COPY, from[k], third);
            from[k] = third;
        }
    }
    for (uint32_t k = 0; k < s->carried; k++) {
        if (from[k] != s->parameter[k]) {
            put_launch(s->pipe, SX_LAUNCH_COPY, from[k], s->parameter[k]);
        }
    }
    return SX_OK;
}

/* Launches of the prologue that were made meanwhile stand behind the outermost loop: the prologue runs before. */
static void put_hoisted(sx_pipe *pipe)
{
    SX_ASSERT(pipe->loop_depth == 0);
    pipe->launch_count += (uint32_t)(pipe->hoisted.len / sizeof(sx_module_launch));
    sx_buf_put_span(&pipe->image->launch, sx_buf_span(&pipe->hoisted));
    sx_buf_clear(&pipe->hoisted);
}

static sx_code put_loop(scan *s, int64_t rounds)
{
    sx_pipe *pipe = s->pipe;
    uint32_t first = pipe->launch_count;
    double outer = pipe->rounds;
    put_launch(pipe, SX_LAUNCH_LOOP, 0, 0);
    pipe->loop_depth++;
    pipe->rounds = outer * (double)rounds;
    for (uint32_t k = s->carried; k < s->end; k++) {
        if (s->needed[k]) {
            put_launch(pipe, SX_LAUNCH_SLICE, s->input[k], s->parameter[k]);
        }
    }
    SX_TRY(compile_body(s, true));
    SX_TRY(put_round(s));
    pipe->loop_depth--;
    pipe->rounds = outer;
    uint32_t body = pipe->launch_count - first - 1;
    if (body == 0) { /* nothing changes: there is nothing to repeat */
        pipe->image->launch.len -= sizeof(sx_module_launch);
        pipe->launch_count--;
    } else {
        launch_at(pipe, first)->value = (uint64_t)rounds;
        launch_at(pipe, first)->body = body;
        SX_TRY(sx_pipe_across(s->cx, pipe, first, first + body));
    }
    if (pipe->loop_depth == 0) {
        put_hoisted(pipe);
    }
    return sx_buf_check(s->cx, &pipe->image->launch, "launches");
}

/* What comes after its results have tensors. */
static sx_code compile_scan(scan *s, sx_node_id id)
{
    const sx_graph *graph = s->pipe->graph;
    const sx_node *node = sx_graph_node(graph, id);
    const sx_attr *attr = sx_graph_attr(graph, node);
    if (node->op != SX_OP_SCAN || s->pipe->machine->arch != SX_ARCH_X86_64) {
        return SX_FAIL(s->cx, SX_UNIMPLEMENTED, "node %%%u: no code generator for %s", id.i,
                       sx_op_info_of(node->op)->name);
    }
    if (s->pipe->loop_depth == SX_MODULE_LOOPS_MAX) {
        return SX_FAIL(s->cx, SX_LIMIT, "node %%%u: more than %u loops inside each other", id.i,
                       SX_MODULE_LOOPS_MAX);
    }
    s->step = attr->step;
    s->carried = (uint32_t)attr->carried;
    s->end = s->carried + (uint32_t)attr->sliced;
    for (uint32_t k = 0; k < node->input_count; k++) {
        s->input[k] = s->pipe->tensor_of[sx_graph_input(graph, node, k).i];
    }
    sx_node_id sliced = sx_graph_input(graph, node, s->carried);
    SX_TRY(mark(s));
    SX_TRY(make_parameters(s));
    SX_TRY(compile_body(s, false));
    return put_loop(s, sx_graph_node(graph, sliced)->type.dim[0].scale);
}

sx_code sx_pipe_region(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor)
{
    uint32_t depth = pipe->loop_depth;
    double rounds = pipe->rounds;
    if (pipe->tensor_of[id.i] != UINT32_MAX) { /* made with an earlier result */
        return SX_OK;
    }
    scan *s = SX_NEW(cx, scan);
    if (s == NULL) {
        return cx->error.code;
    }
    s->cx = cx;
    s->pipe = pipe;
    SX_TRY(make_results(s, id, output_tensor));
    sx_code code = compile_scan(s, id);
    SX_ASSERT(code != SX_OK || pipe->loop_depth == depth);
    pipe->loop_depth = depth; /* what else is not supported is told, too */
    pipe->rounds = rounds;
    return code;
}
