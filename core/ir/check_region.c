/* check_region.c - scan, while and cond: the parameters and results of their programs against their operands. */
#include "core/ir/check.h"
#include "core/ir/extent.h"
#include "core/ir/program.h"

#include <stdio.h>

typedef struct {
    char text[160];
} type_text;

static type_text text_of(const sx_infer *in, const sx_type *type)
{
    type_text out = {{0}};
    sx_buf buf;
    sx_buf_init(&buf, sizeof(out.text));
    sx_type_print(type, in->symbols, in->symbol_count, &buf);
    (void)snprintf(out.text, sizeof(out.text), "%.*s", (int)buf.len,
                   buf.ptr == NULL ? "" : (const char *)buf.ptr);
    sx_buf_fini(&buf);
    return out;
}

/* "scan: parameter 1 of step is f32[4], operand 1 is f32[5]" */
static sx_code check_equal(const sx_infer *in, const char *part, const char *what, uint32_t k,
                           const sx_type *type, const char *other, uint32_t index,
                           const sx_type *wanted)
{
    if (sx_type_equal(type, wanted)) {
        return SX_OK;
    }
    return SX_FAIL(in->cx, SX_INPUT, "%s: %s %u of %s is %s, %s %u is %s", in->name, what, k, part,
                   text_of(in, type).text, other, index, text_of(in, wanted).text);
}

/* Are rows of sums all that a program with `count` symbols lacks? */
static bool may_follow(const sx_infer *in, uint32_t count)
{
    bool sums = true;
    for (uint32_t s = count; s < in->symbol_count; s++) {
        sums = sums && !sx_symbol_is_declared(&in->symbols[s]);
    }
    return sums;
}

/* The symbols of a program are those of the graph around it. */
static sx_code check_symbols(const sx_infer *in, const char *part, const sx_program *program)
{
    const sx_graph *graph = program->graph;
    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        const sx_symbol *own = &graph->symbol[s];
        bool missing = s >= in->symbol_count || !sx_symbols_equal(own, &in->symbols[s], 1, true);
        if (missing || !may_follow(in, graph->symbol_count)) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: symbol %u of %s is \"%s\", which the graph around it does not have",
                           in->name, s, part, sx_short_name(own->name).text);
        }
    }
    return SX_OK;
}

/* Operand `from` and those behind it are the parameters; those below `sliced` from `slices` on without axis 0. */
static sx_code check_parameters(const sx_infer *in, const char *part, const sx_program *program,
                                uint32_t from, uint32_t slices, uint32_t sliced)
{
    SX_TRY(check_symbols(in, part, program));
    if (program->parameter_count != in->input_count - from) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %s has %u parameters for %u operands", in->name, part,
                       program->parameter_count, in->input_count - from);
    }
    for (uint32_t k = from; k < in->input_count; k++) {
        sx_type wanted = in->input[k];
        bool is_slice = k >= slices && k < sliced;
        for (uint32_t d = 1; is_slice && d <= wanted.rank; d++) {
            wanted.dim[d - 1] = d < wanted.rank ? wanted.dim[d] : (sx_dim){0};
        }
        wanted.rank -= is_slice ? 1 : 0;
        SX_TRY(check_equal(in, part, "parameter", k - from, sx_program_parameter(program, k - from),
                           is_slice ? "a slice of operand" : "operand", k, &wanted));
    }
    return SX_OK;
}

static sx_code check_result(const sx_infer *in, uint32_t count)
{
    if (in->attr->result < 0 || in->attr->result >= (int64_t)count) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: result %lld of %u", in->name,
                       (long long)in->attr->result, count);
    }
    return SX_OK;
}

static sx_code check_carried(const sx_infer *in, uint32_t others)
{
    if (in->attr->carried < 0 || in->attr->carried > (int64_t)(in->input_count - others)) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %lld of %u operands are carried", in->name,
                       (long long)in->attr->carried, in->input_count);
    }
    const sx_graph *step = in->attr->step->graph;
    if (step->output_count < in->attr->carried) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: step has %u results, %lld operands are carried",
                       in->name, step->output_count, (long long)in->attr->carried);
    }
    for (uint32_t k = 0; k < in->attr->carried; k++) {
        SX_TRY(check_equal(in, "step", "result", k, sx_program_result(in->attr->step, k),
                           "carried operand", k, &in->input[k]));
    }
    return SX_OK;
}

static sx_code infer_scan(const sx_infer *in)
{
    const sx_attr *attr = in->attr;
    uint32_t count = in->input_count;
    if (attr->sliced < 1 || attr->sliced > (int64_t)count) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %lld of %u operands are sliced, at least 1", in->name,
                       (long long)attr->sliced, count);
    }
    SX_TRY(check_carried(in, (uint32_t)attr->sliced));
    uint32_t first = (uint32_t)attr->carried;
    uint32_t end = first + (uint32_t)attr->sliced;
    for (uint32_t k = first; k < end; k++) {
        const sx_type *x = &in->input[k];
        if (x->rank == 0 || !sx_dim_equal(x->dim[0], in->input[first].dim[0])) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: operand %u is %s, to be sliced along axis 0 as operand %u, %s",
                           in->name, k, text_of(in, x).text, first,
                           text_of(in, &in->input[first]).text);
        }
    }
    SX_TRY(check_parameters(in, "step", attr->step, 0, first, end));
    SX_TRY(check_result(in, attr->step->graph->output_count));
    const sx_type *own = sx_program_result(attr->step, (uint32_t)attr->result);
    *in->result = *own;
    if (attr->result < attr->carried) {
        return SX_OK;
    }
    if (own->rank == SX_RANK_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: result %lld of step has rank %u, stacked at most %d",
                       in->name, (long long)attr->result, own->rank, SX_RANK_MAX);
    }
    in->result->rank = own->rank + 1;
    in->result->dim[0] = in->input[first].dim[0];
    for (uint32_t d = 0; d < own->rank; d++) {
        in->result->dim[d + 1] = own->dim[d];
    }
    return SX_OK;
}

/* Ranks decide for themselves which way they take, and would wait for those that take another one. */
static sx_code check_alone(const sx_infer *in, const char *part, const sx_program *program)
{
    sx_collective found;
    if (!program->collective || !sx_collective_find(program->graph, &found)) {
        return SX_OK;
    }
    return SX_FAIL(in->cx, SX_INPUT,
                   "%s: %s has %s along \"%s\", which not every rank may reach: collectives stand "
                   "outside of while and cond",
                   in->name, part, sx_op_info_of(found.op)->name,
                   sx_short_name(found.attr->along).text);
}

static sx_code infer_while(const sx_infer *in)
{
    const sx_attr *attr = in->attr;
    const sx_type truth = {.dtype = SX_BOOL};
    SX_TRY(check_alone(in, "condition", attr->condition));
    SX_TRY(check_alone(in, "step", attr->step));
    if (attr->rounds < 1 || attr->rounds > SX_PROGRAM_ROUNDS_MAX) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %lld rounds, 1 to %lld", in->name,
                       (long long)attr->rounds, (long long)SX_PROGRAM_ROUNDS_MAX);
    }
    SX_TRY(check_carried(in, 0));
    SX_TRY(check_parameters(in, "condition", attr->condition, 0, 0, 0));
    SX_TRY(check_parameters(in, "step", attr->step, 0, 0, 0));
    if (attr->condition->graph->output_count != 1) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: condition has %u results, not 1", in->name,
                       attr->condition->graph->output_count);
    }
    if (!sx_type_equal(sx_program_result(attr->condition, 0), &truth)) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: condition gives %s, not bool[]", in->name,
                       text_of(in, sx_program_result(attr->condition, 0)).text);
    }
    if (attr->step->graph->output_count != attr->carried) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: step has %u results, %lld operands are carried",
                       in->name, attr->step->graph->output_count, (long long)attr->carried);
    }
    SX_TRY(check_result(in, attr->step->graph->output_count));
    *in->result = *sx_program_result(attr->step, (uint32_t)attr->result);
    return SX_OK;
}

static sx_code infer_cond(const sx_infer *in)
{
    const sx_attr *attr = in->attr;
    if (in->input[0].rank != 0 || in->input[0].dtype != SX_BOOL) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 is %s, not bool[]", in->name,
                       text_of(in, &in->input[0]).text);
    }
    SX_TRY(check_alone(in, "then", attr->then));
    SX_TRY(check_alone(in, "otherwise", attr->otherwise));
    SX_TRY(check_parameters(in, "then", attr->then, 1, 0, 0));
    SX_TRY(check_parameters(in, "otherwise", attr->otherwise, 1, 0, 0));
    uint32_t count = attr->then->graph->output_count;
    if (attr->otherwise->graph->output_count != count) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: otherwise has %u results, then has %u", in->name,
                       attr->otherwise->graph->output_count, count);
    }
    for (uint32_t k = 0; k < count; k++) {
        SX_TRY(check_equal(in, "otherwise", "result", k, sx_program_result(attr->otherwise, k),
                           "that of then, result", k, sx_program_result(attr->then, k)));
    }
    SX_TRY(check_result(in, count));
    *in->result = *sx_program_result(attr->then, (uint32_t)attr->result);
    return SX_OK;
}

sx_code sx_infer_region(const sx_infer *in)
{
    SX_ASSERT(in->input_count >= 1);
    switch ((int)in->op) {
    case SX_OP_SCAN: return infer_scan(in);
    case SX_OP_WHILE: return infer_while(in);
    case SX_OP_COND: return infer_cond(in);
    default: SX_UNREACHABLE();
    }
}
