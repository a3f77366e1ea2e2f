/* bounded.c - a while as the scan that its gradient needs: as many rounds as it may have, and a flag that says whether
 * it still goes on.
 *
 *     scan(values, true, zeros of `rounds` slices, whole)
 *         more = flag and condition(values, whole)
 *         values = cond(more) { step(values, whole) } otherwise { values }
 *         flag = more
 *
 * Rounds that the while does not have compute nothing. Where it would go on beyond its rounds, and a run of it fail,
 * floats are multiplied by NaN here, so that neither they nor their gradients look like results. */
#include <math.h>
#include <stdio.h>

#include "core/grad/sweep.h"
#include "core/ir/extent.h"

typedef struct {
    sx_sweep *s;
    const sx_attr *attr; /* of the while */
    uint32_t carried, count;
} bounded;

/* The nodes of a program on these parameters, into the graph of a sweep; its first result. */
static sx_node_id inline_first(sx_sweep *to, const sx_program *program, const sx_node_id *parameter)
{
    const sx_graph *graph = program->graph;
    sx_node_id none = {0};
    sx_node_id *image = SX_NEW_ARRAY(to->cx, sx_node_id, graph->node_count);
    if (image == NULL) {
        to->code = to->cx->error.code;
        return none;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        sx_node_id input[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = image[sx_graph_input(graph, node, k).i];
        }
        image[n] = n < program->parameter_count ? parameter[n]
                                                : sx_step(to, node->op, sx_graph_attr(graph, node),
                                                          input, node->input_count);
    }
    return image[graph->output[0].node.i];
}

static sx_node_id put_parameter(sx_sweep *to, const sx_type *type)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "p%u", to->graph->node_count);
    sx_attr attr = {.present = sx_op_info_of(SX_OP_PARAMETER)->attrs, .name = sx_span_of(name)};
    attr.type = *type;
    return sx_step(to, SX_OP_PARAMETER, &attr, NULL, 0);
}

static void put_result(sx_sweep *to, uint32_t number, sx_node_id value)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "r%u", number);
    const char *copy = sx_alloc_text(to->cx, sx_span_of(name));
    if (to->code == SX_OK) {
        to->code = copy != NULL ? sx_graph_add_output(to->cx, to->graph, sx_span_of(copy), value)
                                : to->cx->error.code;
    }
}

static sx_code open_program(const bounded *b, sx_sweep *to)
{
    const sx_graph *graph = b->s->graph;
    *to = (sx_sweep){.cx = b->s->cx, .body = true};
    SX_TRY(sx_graph_make(to->cx, graph->name, NULL, &to->graph));
    return sx_graph_copy_symbols(to->cx, graph->symbol, graph->symbol_count, to->graph);
}

/* What is done in a round that the while does not have: nothing. */
static sx_code make_identity(const bounded *b, const sx_program **identity)
{
    sx_sweep to;
    sx_node_id parameter[SX_INPUTS_MAX];
    SX_TRY(open_program(b, &to));
    for (uint32_t k = 0; k < b->count; k++) {
        parameter[k] = put_parameter(&to, sx_program_parameter(b->attr->step, k));
    }
    for (uint32_t k = 0; k < b->carried; k++) {
        put_result(&to, k, parameter[k]);
    }
    SX_TRY(to.code);
    return sx_program_make(to.cx, to.graph, identity);
}

static sx_code make_step(const bounded *b, const sx_program **step)
{
    const sx_type flag = {.dtype = SX_BOOL}, slice = {.dtype = SX_I8};
    sx_sweep to;
    sx_node_id value[SX_INPUTS_MAX + 1]; /* behind `more`, the operands of the while */
    sx_attr attr = {.present = sx_op_info_of(SX_OP_COND)->attrs, .then = b->attr->step};
    SX_TRY(open_program(b, &to));
    SX_TRY(make_identity(b, &attr.otherwise));
    for (uint32_t k = 0; k < b->carried; k++) {
        value[1 + k] = put_parameter(&to, sx_program_parameter(b->attr->step, k));
    }
    sx_node_id goes_on = put_parameter(&to, &flag);
    (void)put_parameter(&to, &slice);
    for (uint32_t k = b->carried; k < b->count; k++) {
        value[1 + k] = put_parameter(&to, sx_program_parameter(b->attr->step, k));
    }
    sx_node_id more = inline_first(&to, b->attr->condition, value + 1);
    value[0] = sx_step_binary(&to, SX_OP_AND, goes_on, more);
    for (uint32_t k = 0; k < b->carried; k++) {
        attr.result = k;
        put_result(&to, k, sx_step(&to, SX_OP_COND, &attr, value, b->count + 1));
    }
    put_result(&to, b->carried, value[0]);
    SX_TRY(to.code);
    return sx_program_make(to.cx, to.graph, step);
}

/* NaN where the while would have gone on, else 1: of the type of `like`. */
static sx_node_id make_factor(const bounded *b, const sx_node_id *last, sx_node_id flag,
                              const sx_type *like)
{
    sx_sweep *s = b->s;
    const sx_type one = {.dtype = like->dtype};
    const sx_ints none = {.count = 0};
    sx_node_id more = inline_first(s, b->attr->condition, last);
    sx_node_id beyond = sx_step_binary(s, SX_OP_AND, flag, more);
    sx_node_id nothing = sx_step_constant(s, &one, (double)NAN);
    sx_node_id same = sx_step_constant(s, &one, 1);
    sx_node_id factor = sx_step_select(s, beyond, nothing, same);
    return like->rank > 0 ? sx_step_repeat(s, factor, &none, like) : factor;
}

sx_code sx_bound_while(sx_sweep *s, const sx_attr *attr, const sx_node_id *input, uint32_t count,
                       sx_node_id *result)
{
    const bounded b = {s, attr, (uint32_t)attr->carried, count};
    sx_attr scan = {
        .present = sx_op_info_of(SX_OP_SCAN)->attrs, .carried = attr->carried + 1, .sliced = 1};
    const sx_type flag = {.dtype = SX_BOOL};
    const sx_type slices = {.dtype = SX_I8, .rank = 1, .dim = {sx_dim_of(attr->rounds)}};
    sx_node_id operand[SX_INPUTS_MAX + 2], last[SX_INPUTS_MAX];
    if (attr->rounds > SX_GRAD_ROUNDS_MAX || count + 2 > SX_INPUTS_MAX ||
        2 * (b.carried + 1) > SX_PROGRAM_RESULTS_MAX) {
        return SX_FAIL(s->cx, SX_UNIMPLEMENTED,
                       "gradient of while: %lld rounds of %u carried values, at most %u of %u are "
                       "kept for it; say less in `rounds`, or write a scan",
                       (long long)attr->rounds, b.carried, SX_GRAD_ROUNDS_MAX,
                       SX_PROGRAM_RESULTS_MAX / 2 - 1);
    }
    SX_TRY(make_step(&b, &scan.step));
    SX_TRY(sx_stack_carried(s->cx, &scan));
    for (uint32_t k = 0; k < b.carried; k++) {
        operand[k] = input[k];
    }
    operand[b.carried] = sx_step_constant(s, &flag, 1);
    operand[b.carried + 1] = sx_step_constant(s, &slices, 0);
    for (uint32_t k = b.carried; k < count; k++) {
        operand[k + 2] = last[k] = input[k];
    }
    for (uint32_t k = 0; k <= b.carried; k++) {
        scan.result = k;
        sx_node_id value = sx_step(s, SX_OP_SCAN, &scan, operand, count + 2);
        *(k < b.carried ? &last[k] : &operand[b.carried]) = value;
    }
    SX_TRY(s->code);
    sx_node_id own = last[attr->result];
    sx_type type = sx_step_type(s, own);
    *result =
        sx_step_binary(s, SX_OP_MULTIPLY, own, make_factor(&b, last, operand[b.carried], &type));
    return s->code;
}
