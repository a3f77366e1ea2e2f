#include "core/ir/extent.h"
#include "core/proof/certificate_read.h"

#include <stdlib.h>
#include <string.h>

#include "core/proof/explain.h"

/* How much of the log of unions goes into the certificate: what the forest of reasons asks for; with how the
 * numbers came about that rules read; with the equalities around the nodes matched, since computed right sides
 * may look at these too; or everything. */
typedef enum { SLICE_NEEDED, SLICE_NUMBERS, SLICE_AROUND, SLICE_ALL, SLICE_COUNT } slice;

#define AROUND_DEPTH 3u

typedef struct {
    sx_ctx *cx;
    const sx_tensors *t;
    const sx_eg_ruleset *set;
    sx_explainer explainer;
    slice slice;
    bool *wanted;    /* per reason */
    uint32_t *from;  /* per reason: the nodes it made equal */
    uint32_t *to;    /* */
    uint32_t *visit; /* per class: 1 + depth up to which it was looked around */
    uint32_t *queue; /* reasons whose surroundings are still to be seen */
    uint32_t queue_count;
    uint32_t *term; /* per e-node: node of the graph of terms */
    sx_graph *terms;
    uint32_t *lifted; /* terms, in pairs: an operation and itself as a kernel */
    uint32_t lifted_count, lifted_capacity;
    /* per entry of sx_tensors.number: the constant that is its number, or SX_EG_NONE */
    uint32_t *number_term;
    uint32_t *number_step; /* per entry: 1 + the last slice that has a step for it */
    uint32_t *number_list; /* entries that the next step wants */
    uint32_t step_count;
} writer;

static sx_code want_reason(void *self, uint32_t reason)
{
    writer *w = self;
    if (!w->wanted[reason]) {
        w->wanted[reason] = true;
        w->queue[w->queue_count++] = reason;
    }
    return SX_OK;
}

/* Everything known of a class and of those below it. */
static sx_code look_around(writer *w, uint32_t node, uint32_t depth)
{
    const sx_eg *eg = &w->t->eg;
    uint32_t first = sx_eg_find(eg, node);
    if (w->visit[first] >= depth + 1) {
        return SX_OK;
    }
    w->visit[first] = depth + 1;
    uint32_t n = first;
    do {
        SX_TRY(sx_explain_want(&w->explainer, first, n));
        for (uint32_t k = 0; depth > 0 && k < eg->node[n].arity; k++) {
            SX_TRY(look_around(w, sx_eg_made_child(eg, n, k), depth - 1));
        }
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    return SX_OK;
}

static sx_code look_around_reasons(writer *w)
{
    while (w->queue_count > 0) {
        const sx_eg_reason *reason = &w->set->reason[w->queue[--w->queue_count]];
        bool computed =
            reason->rule < SX_RULE_ROUNDS_COUNT && w->set->rule[reason->rule].rule->right == NULL;
        for (uint32_t i = 0; computed && i < reason->node_count; i++) {
            SX_TRY(look_around(w, w->set->reason_node[reason->node_first + i], AROUND_DEPTH));
        }
        SX_TRY(sx_explain_run(&w->explainer));
    }
    return SX_OK;
}

/* Each reason stands at one edge of the forest, turned over as the trees grew. */
static void place_reasons(writer *w)
{
    const sx_eg *eg = &w->t->eg;
    for (uint32_t n = 0; n < eg->node_count; n++) {
        uint32_t reason = sx_eg_why_of(eg, n).rule;
        if (sx_eg_why_of(eg, n).up != n && reason < w->set->reason_count) {
            w->from[reason] = n;
            w->to[reason] = sx_eg_why_of(eg, n).up;
            if (w->slice == SLICE_ALL) {
                w->wanted[reason] = true;
            }
        }
    }
}

/* The nodes of a program as e-nodes: what was chosen for a child and what the e-node was made with are one class. */
static sx_code want_program(writer *w, const sx_graph *graph, const uint32_t *node)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *n = &graph->node[i];
        for (uint32_t k = 0; k < n->input_count; k++) {
            uint32_t chosen = node[sx_graph_input(graph, n, k).i];
            SX_TRY(sx_explain_want(&w->explainer, sx_eg_made_child(&w->t->eg, node[i], k), chosen));
        }
    }
    return SX_OK;
}

static sx_code find_steps(writer *w, const sx_graph *input, const uint32_t *input_node,
                          const sx_graph *output, const uint32_t *output_node)
{
    memset(w->wanted, 0, w->set->reason_count * sizeof(*w->wanted));
    memset(w->visit, 0, w->t->eg.node_count * sizeof(*w->visit));
    w->queue_count = 0;
    w->explainer.epoch++;
    w->explainer.numbers = w->slice >= SLICE_NUMBERS;
    w->explainer.wanted_count = w->explainer.uncounted_count = 0;
    place_reasons(w);
    if (w->slice == SLICE_ALL) {
        for (uint32_t r = 0; r < w->set->reason_count; r++) {
            SX_TRY(w->wanted[r] ? sx_explain_want_readings(&w->explainer, r) : SX_OK);
        }
        return sx_explain_run(&w->explainer);
    }
    SX_TRY(want_program(w, output, output_node));
    for (uint32_t i = 0; i < input->output_count; i++) {
        SX_TRY(sx_explain_want(&w->explainer, input_node[input->output[i].node.i],
                               output_node[output->output[i].node.i]));
    }
    SX_TRY(sx_explain_run(&w->explainer));
    return w->slice == SLICE_AROUND ? look_around_reasons(w) : SX_OK;
}

/* ---- text ---- */

static sx_code copy_symbols(sx_ctx *cx, const sx_graph *from, sx_graph *to)
{
    SX_TRY(sx_graph_copy_symbols(cx, from->symbol, from->symbol_count, to));
    return SX_OK;
}

/* Marks a node and all it was made of; children have smaller numbers. */
static void mark_terms(const sx_eg *eg, uint32_t *term, uint32_t count)
{
    for (uint32_t n = count; n-- > 0;) {
        for (uint32_t k = 0; term[n] != SX_EG_NONE && k < eg->node[n].arity; k++) {
            uint32_t child = sx_eg_made_child(eg, n, k);
            SX_ASSERT(child < n);
            term[child] = 0;
        }
    }
}

static sx_code add_term(writer *w, uint32_t n, sx_op op, sx_attr attr, uint32_t *term)
{
    const sx_eg *eg = &w->t->eg;
    sx_node_id child[SX_EG_ARITY_MAX];
    sx_node_id id;
    for (uint32_t k = 0; k < eg->node[n].arity; k++) {
        child[k].i = w->term[sx_eg_made_child(eg, n, k)];
    }
    SX_TRY(sx_graph_add(w->cx, w->terms, op, &attr, child, eg->node[n].arity, &id));
    *term = id.i;
    return SX_OK;
}

/* Operations that became kernels only as the output was written. */
static sx_code add_lifted(writer *w, const sx_graph *output, const uint32_t *output_node)
{
    w->lifted_count = 0;
    for (uint32_t i = 0; i < output->node_count; i++) {
        const sx_node *node = &output->node[i];
        uint32_t n = output_node[i];
        if (node->op != SX_OP_FUSED || sx_tensors_op(w->t, n) == SX_OP_FUSED) {
            continue;
        }
        SX_TRY(sx_grow(w->cx, (void **)&w->lifted, &w->lifted_capacity, w->lifted_count + 2,
                       sizeof(uint32_t)));
        w->lifted[w->lifted_count] = w->term[n];
        SX_TRY(add_term(w, n, SX_OP_FUSED, *sx_graph_attr(output, node),
                        &w->lifted[w->lifted_count + 1]));
        w->lifted_count += 2;
    }
    return SX_OK;
}

/* Entry `i` of the numbers is asked for. */
static bool is_number_wanted(const writer *w, uint32_t i)
{
    const sx_explainer *x = &w->explainer;
    uint32_t n = w->t->number[i].node;
    return x->numbers && x->counted[n] == x->epoch && x->number_of[n] == i + 1;
}

/* What numbers rest upon. */
static void mark_numbers(writer *w)
{
    const sx_eg_reading *reading;
    for (uint32_t r = 0; r < w->set->reason_count && w->explainer.numbers; r++) {
        uint32_t count = w->wanted[r] ? sx_explain_readings(&w->explainer, r, &reading) : 0;
        for (uint32_t i = 0; i < count; i++) {
            w->term[reading[i].from] = 0;
        }
    }
    for (uint32_t i = 0; i < w->t->number_count; i++) {
        const sx_number *number = &w->t->number[i];
        for (uint32_t k = 0; is_number_wanted(w, i) && k < w->t->eg.node[number->node].arity; k++) {
            w->term[number->node] = w->term[number->below[k]] = 0;
        }
    }
}

/* The numbers as constants, which the steps that read them name. */
static sx_code add_numbers(writer *w)
{
    for (uint32_t i = 0; i < w->t->number_count; i++) {
        uint8_t data[8];
        sx_attr attr;
        sx_node_id id;
        const sx_number *number = &w->t->number[i];
        const sx_type *type = sx_tensors_type(w->t, number->node);
        w->number_term[i] = SX_EG_NONE;
        if (is_number_wanted(w, i) && sx_tensors_value_attr(type, number->value, data, &attr)) {
            SX_TRY(sx_graph_add(w->cx, w->terms, SX_OP_CONSTANT, &attr, NULL, 0, &id));
            w->number_term[i] = id.i;
        }
    }
    return SX_OK;
}

static sx_code make_terms(writer *w, const sx_graph *input, const uint32_t *input_node,
                          const sx_graph *output, const uint32_t *output_node)
{
    const sx_eg *eg = &w->t->eg;
    memset(w->term, 0xFF, eg->node_count * sizeof(*w->term));
    for (uint32_t i = 0; i < input->node_count; i++) {
        w->term[input_node[i]] = 0;
    }
    for (uint32_t i = 0; i < output->node_count; i++) {
        w->term[output_node[i]] = 0;
    }
    for (uint32_t r = 0; r < w->set->reason_count; r++) {
        const sx_eg_reason *reason = &w->set->reason[r];
        if (!w->wanted[r]) {
            continue;
        }
        w->term[w->from[r]] = w->term[w->to[r]] = 0;
        for (uint32_t i = 0; i < reason->node_count; i++) {
            w->term[w->set->reason_node[reason->node_first + i]] = 0;
        }
    }
    mark_numbers(w);
    mark_terms(eg, w->term, eg->node_count);
    SX_TRY(sx_graph_make(w->cx, SX_SPAN_LITERAL("terms"), input->attrs, &w->terms));
    SX_TRY(copy_symbols(w->cx, input, w->terms));
    for (uint32_t n = 0; n < eg->node_count; n++) {
        if (w->term[n] == SX_EG_NONE) {
            continue;
        }
        SX_TRY(add_term(w, n, sx_tensors_op(w->t, n), *sx_tensors_attr(w->t, n), &w->term[n]));
    }
    SX_TRY(add_lifted(w, output, output_node));
    SX_TRY(add_numbers(w));
    for (uint32_t i = 0; i < input->output_count; i++) {
        sx_node_id id = {w->term[input_node[input->output[i].node.i]]};
        SX_TRY(sx_graph_add_output(w->cx, w->terms, input->output[i].name, id));
    }
    return SX_OK;
}

static sx_code put_program(sx_ctx *cx, const char *name, const sx_graph *graph, sx_buf *text)
{
    sx_buf program;
    sx_buf_init(&program, SX_TEXT_BYTES_MAX);
    sx_graph plain = *graph;
    plain.sharding = NULL; /* no part of what it computes */
    plain.effects = NULL;
    sx_code code = sx_graph_print(cx, &plain, &program);
    sx_buf_print(text, "%s %zu\n", name, program.len);
    sx_buf_put_span(text, sx_buf_span(&program));
    sx_buf_fini(&program);
    return code;
}

/* The constant that is the number of node n, or SX_EG_NONE. */
static uint32_t number_of(const writer *w, uint32_t n)
{
    uint32_t at = w->explainer.number_of[n];
    return at == 0 ? w->term[n] : w->number_term[at - 1];
}

static void want_step(writer *w, uint32_t n, uint32_t *count)
{
    uint32_t at = w->explainer.number_of[n];
    if (at != 0 && w->number_step[at - 1] != (uint32_t)w->slice + 1) {
        w->number_step[at - 1] = (uint32_t)w->slice + 1;
        w->number_list[(*count)++] = at - 1;
    }
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* A step that a node is its number, where its operands are theirs. */
static void put_number(writer *w, uint32_t i, sx_buf *steps)
{
    const sx_number *number = &w->t->number[i];
    uint32_t arity = w->t->eg.node[number->node].arity;
    uint32_t operand[2];
    bool all = w->number_term[i] != SX_EG_NONE;
    for (uint32_t k = 0; k < arity; k++) {
        operand[k] = number_of(w, number->below[k]);
        all = all && operand[k] != SX_EG_NONE;
    }
    if (!all) {
        return;
    }
    uint32_t term = w->term[number->node];
    sx_buf_print(steps, "%s %u %u %u as", sx_rule_name(SX_RULE_FOLD_VALUE), term, w->number_term[i],
                 term);
    for (uint32_t k = 0; k < arity; k++) {
        sx_buf_print(steps, " %u", operand[k]);
    }
    sx_buf_put_text(steps, "\n");
    w->step_count++;
}

/* Steps for the numbers that reason `r` reads, and for those they come from, which have smaller places. */
static void put_numbers(writer *w, const sx_eg_reading *reading, uint32_t reading_count,
                        sx_buf *steps)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < reading_count; i++) {
        want_step(w, reading[i].from, &count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const sx_number *number = &w->t->number[w->number_list[i]];
        for (uint32_t k = 0; k < w->t->eg.node[number->node].arity; k++) {
            want_step(w, number->below[k], &count);
        }
    }
    qsort(w->number_list, count, sizeof(*w->number_list), ascending);
    for (uint32_t i = 0; i < count; i++) {
        put_number(w, w->number_list[i], steps);
    }
}

static void put_step(writer *w, uint32_t r, sx_buf *steps)
{
    const sx_eg_reason *reason = &w->set->reason[r];
    const sx_eg_reading *reading = NULL;
    uint32_t count = w->explainer.numbers ? sx_explain_readings(&w->explainer, r, &reading) : 0;
    put_numbers(w, reading, count, steps);
    sx_buf_print(steps, "%s %u %u", sx_rule_name(reason->rule), w->term[w->from[r]],
                 w->term[w->to[r]]);
    for (uint32_t i = 0; i < reason->node_count; i++) {
        sx_buf_print(steps, " %u", w->term[w->set->reason_node[reason->node_first + i]]);
    }
    const char *before = " as";
    /* that a node is its number follows from the steps just put */
    for (uint32_t i = 0; i < count && reason->rule != SX_RULE_FOLD_VALUE; i++) {
        uint32_t constant = number_of(w, reading[i].from);
        if (constant != SX_EG_NONE) {
            sx_buf_print(steps, "%s %u", before, constant);
            before = "";
        }
    }
    sx_buf_put_text(steps, "\n");
    w->step_count++;
}

static void put_steps(writer *w, sx_buf *steps)
{
    w->step_count = 0;
    for (uint32_t r = 0; r < w->set->reason_count; r++) {
        if (w->wanted[r]) {
            put_step(w, r, steps);
        }
    }
    for (uint32_t i = 0; i < w->lifted_count; i += 2) {
        uint32_t from = w->lifted[i];
        uint32_t to = w->lifted[i + 1];
        sx_buf_print(steps, "%s %u %u %u %u\n", sx_rule_name(SX_RULE_LIFT), from, to, from, to);
        w->step_count++;
    }
}

static sx_code put_certificate(writer *w, const sx_graph *input, const sx_graph *output,
                               sx_buf *text)
{
    SX_TRY(put_program(w->cx, "input", input, text));
    SX_TRY(put_program(w->cx, "output", output, text));
    SX_TRY(put_program(w->cx, "terms", w->terms, text));
    sx_buf steps;
    sx_buf_init(&steps, text->limit);
    put_steps(w, &steps);
    sx_code code = sx_buf_check(w->cx, &steps, "certificate");
    sx_buf_print(text, "steps %u\n", w->step_count);
    sx_buf_put_span(text, sx_buf_span(&steps));
    sx_buf_fini(&steps);
    return code != SX_OK ? code : sx_buf_check(w->cx, text, "certificate");
}

static sx_code writer_init(writer *w)
{
    uint32_t nodes = w->t->eg.node_count;
    uint32_t reasons = w->set->reason_count + 1;
    uint32_t numbers = w->t->number_count + 1;
    SX_TRY(sx_explain_init(w->cx, w->t, w->set, &w->explainer));
    w->explainer.found = want_reason;
    w->explainer.self = w;
    w->wanted = SX_NEW_ARRAY(w->cx, bool, reasons);
    w->from = SX_NEW_ARRAY(w->cx, uint32_t, reasons);
    w->to = SX_NEW_ARRAY(w->cx, uint32_t, reasons);
    w->queue = SX_NEW_ARRAY(w->cx, uint32_t, reasons);
    w->visit = SX_NEW_ARRAY(w->cx, uint32_t, nodes);
    w->term = SX_NEW_ARRAY(w->cx, uint32_t, nodes);
    w->number_term = SX_NEW_ARRAY(w->cx, uint32_t, numbers);
    w->number_step = SX_NEW_ARRAY(w->cx, uint32_t, numbers);
    w->number_list = SX_NEW_ARRAY(w->cx, uint32_t, numbers);
    bool all = w->wanted != NULL && w->from != NULL && w->to != NULL && w->queue != NULL &&
               w->visit != NULL && w->term != NULL && w->number_term != NULL &&
               w->number_step != NULL && w->number_list != NULL;
    return all ? SX_OK : w->cx->error.code;
}

#define CHECK_BYTES ((size_t)1 << 30)

sx_code sx_certificate_print(sx_ctx *cx, const sx_tensors *t, const sx_eg_ruleset *set,
                             const sx_graph *input, const uint32_t *input_node,
                             const sx_graph *output, const uint32_t *output_node, sx_buf *text)
{
    writer w = {.cx = cx, .t = t, .set = set};
    SX_TRY(writer_init(&w));
    SX_ASSERT(text->len == 0);
    for (w.slice = SLICE_NEEDED;; w.slice++) {
        sx_ctx check;
        sx_certificate certificate = {0};
        SX_TRY(find_steps(&w, input, input_node, output, output_node));
        SX_TRY(make_terms(&w, input, input_node, output, output_node));
        SX_TRY(put_certificate(&w, input, output, text));
        sx_ctx_init(&check, CHECK_BYTES);
        sx_proof_reader reader = {&check, text->ptr, text->ptr + text->len, SX_PROOF_STEPS};
        sx_graph *checked[2];
        sx_code code = sx_proof_check_part(&reader, &certificate, &checked[0], &checked[1]);
        if (code != SX_OK && w.slice + 1 == SLICE_COUNT) {
            code = SX_FAIL(cx, SX_COMPILE, "no certificate: %s", check.error.text);
        }
        sx_ctx_fini(&check);
        if (code == SX_OK || w.slice + 1 == SLICE_COUNT) {
            return code;
        }
        sx_buf_clear(text);
    }
}
