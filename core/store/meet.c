#include "core/store/meet.h"

#include <string.h>

#include "core/ir/extent.h"
#include "core/proof/certificate.h"
#include "core/proof/explain.h"
#include "core/egraph/multi.h"
#include "core/egraph/pattern.h"
#include "core/store/pair.h"
#include "core/proof/proof.h"

#define ROUNDS_SINGLE 2u  /* without rules over several matches */
#define ROUNDS_MAX 6u     /* with them, afterwards */
#define FEW_INSERTED 64u  /* where looking around them is less work than planning for all rules, */
#define FEW_NODES 2000u   /* in a graph of so few nodes */
#define NODES_PER_NEW 64u /* the graph may grow so much for each inserted node */
#define NODES_MORE 1000u
#define FUEL_MAX UINT64_C(2000000)
#define MATCHES_MAX 2000u
#define CERTIFICATE_BYTES_MAX ((size_t)256 << 20)

/* ---- inserting ---- */

typedef struct {
    sx_ctx *cx;
    sx_library_graph *graph;
    const sx_graph *program;
    sx_graph *interface; /* the program's symbols and parameters, the stored one's outputs */
    uint32_t *node;      /* e-node of every node of the program */
    sx_meeting *meeting;
} meeter;

/* *whole false: some node is ill-typed there, so the programs have nothing to do with each other. */
static sx_code insert(meeter *m, bool *whole)
{
    const sx_graph *program = m->program;
    uint32_t parameter = 0;
    *whole = true;
    for (uint32_t i = 0; i < program->node_count && *whole; i++) {
        const sx_node *node = &program->node[i];
        uint32_t child[SX_EG_ARITY_MAX];
        if (node->op == SX_OP_PARAMETER) {
            m->node[i] = m->graph->parameter[m->meeting->parameter_of[parameter++]];
            continue;
        }
        SX_ASSERT(node->input_count <= SX_EG_ARITY_MAX);
        for (uint32_t k = 0; k < node->input_count; k++) {
            child[k] = m->node[program->input[node->input_first + k].i];
        }
        uint32_t before = m->graph->t.eg.node_count;
        SX_TRY(sx_tensors_add(m->cx, &m->graph->t, node->op, sx_graph_attr(program, node), child,
                              node->input_count, &m->node[i]));
        m->meeting->inserted += m->graph->t.eg.node_count - before;
        *whole = m->node[i] != SX_EG_NONE;
    }
    return SX_OK;
}

/* Is every output in the class of a stored one? */
static bool outputs_meet(const meeter *m)
{
    const sx_eg *eg = &m->graph->t.eg;
    const sx_graph *stored = m->graph->interface;
    for (uint32_t i = 0; i < m->program->output_count; i++) {
        uint32_t class_ = sx_eg_find(eg, m->node[m->program->output[i].node.i]);
        uint32_t j = 0;
        while (j < stored->output_count && sx_eg_find(eg, m->graph->root[j]) != class_) {
            j++;
        }
        if (j == stored->output_count) {
            return false;
        }
        m->meeting->output_of[i] = j;
    }
    return true;
}

static bool can_match(const sx_pattern *left, const sx_bits *ops)
{
    for (uint32_t i = 0; i < left->part_count; i++) {
        if (left->part[i].kind == SX_PART_NODE && !sx_bits_meet(&left->part[i].ops, ops)) {
            return false;
        }
    }
    return true;
}

typedef struct {
    sx_eg_limits limits;
    const bool *enabled;
    sx_bits ops;    /* that there are */
    uint32_t nodes; /* so many have been looked at for that */
} lookout;

/* One round with the rules that can match anything, with or without those over several matches. *on: another
 * may find more. */
static sx_code look_once(meeter *m, lookout *l, bool several, bool *on)
{
    sx_eg_ruleset *set = &m->graph->set;
    sx_eg *eg = &m->graph->t.eg;
    sx_eg_run run;
    for (; l->nodes < eg->node_count; l->nodes++) {
        sx_bits_add(&l->ops, eg->node[l->nodes].op);
    }
    for (uint32_t r = 0; r < set->rule_count; r++) {
        const sx_pattern *left = set->rule[r].left;
        set->rule[r].enabled =
            l->enabled[r] && can_match(left, &l->ops) && (several || !sx_multi_is(left));
    }
    l->limits.fuel = FUEL_MAX - m->meeting->fuel;
    SX_TRY(sx_eg_saturate(m->cx, eg, set, &l->limits, &run));
    m->meeting->fuel += run.fuel;
    m->meeting->rounds++;
    m->meeting->met = outputs_meet(m);
    *on = !m->meeting->met && run.stop == SX_STOP_ROUNDS && m->meeting->fuel < FUEL_MAX;
    return SX_OK;
}

/* Rounds over what was inserted: the journals start at the end of what is stored. Merging what shares an
 * operand is dear, and seldom what two spellings differ in: it waits until the other rules have had their turn. */
static sx_code look_on(meeter *m, const bool *enabled)
{
    sx_eg *eg = &m->graph->t.eg;
    lookout l = {.limits = {.rounds = 1, .matches = MATCHES_MAX, .bytes = (size_t)400 << 20},
                 .enabled = enabled};
    l.limits.stamps = m->meeting->inserted < FEW_INSERTED && eg->node_count < FEW_NODES;
    l.limits.nodes = eg->node_count + NODES_PER_NEW * m->meeting->inserted + NODES_MORE;
    bool on = true;
    for (uint32_t i = 0; i < ROUNDS_SINGLE && on; i++) {
        SX_TRY(look_once(m, &l, false, &on));
    }
    on = !m->meeting->met && m->meeting->fuel < FUEL_MAX && eg->node_count < l.limits.nodes;
    for (uint32_t i = 0; i < ROUNDS_MAX && on; i++) {
        SX_TRY(look_once(m, &l, true, &on));
    }
    return SX_OK;
}

/* ---- why ---- */

typedef struct {
    const sx_eg_ruleset *set;
    bool used[SX_RULE_COUNT];
} rule_list;

static sx_code note_rule(void *self, uint32_t reason)
{
    rule_list *list = self;
    uint32_t rule = list->set->reason[reason].rule;
    if (rule < SX_RULE_COUNT) {
        list->used[rule] = true;
    }
    return SX_OK;
}

/* Every node of the program against the e-node that stands for it, and its outputs against the stored ones. */
static sx_code explain(meeter *m)
{
    const sx_eg *eg = &m->graph->t.eg;
    rule_list list = {.set = &m->graph->set};
    sx_explainer x;
    SX_TRY(sx_explain_init(m->cx, &m->graph->t, &m->graph->set, &x));
    x.found = note_rule;
    x.self = &list;
    for (uint32_t i = 0; i < m->program->node_count; i++) {
        const sx_node *node = &m->program->node[i];
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t operand = m->node[m->program->input[node->input_first + k].i];
            SX_TRY(sx_explain_want(&x, operand, sx_eg_made_child(eg, m->node[i], k)));
        }
    }
    for (uint32_t i = 0; i < m->program->output_count; i++) {
        SX_TRY(sx_explain_want(&x, m->node[m->program->output[i].node.i],
                               m->graph->root[m->meeting->output_of[i]]));
    }
    SX_TRY(sx_explain_run(&x));
    memcpy(m->meeting->used, list.used, sizeof(list.used));
    return sx_meeting_name_rules(m->cx, m->meeting);
}

sx_code sx_meeting_name_rules(sx_ctx *cx, sx_meeting *meeting)
{
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 16);
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        if (meeting->used[r]) {
            sx_buf_print(&text, "%s%s", text.len > 0 ? ", " : "", sx_rule_name(r));
        }
    }
    SX_ASSERT(text.code == SX_OK); /* all names together are shorter */
    char *copy = sx_alloc_text(cx, sx_buf_span(&text));
    meeting->rules = (sx_span){(const uint8_t *)copy, text.len};
    sx_buf_fini(&text);
    return copy == NULL ? cx->error.code : SX_OK;
}

/* ---- names ---- */

/* The stored parameters get the names of the program's, so that everything read from the graph from here on is
 * in its words. */
static sx_code take_names(meeter *m)
{
    sx_tensors *t = &m->graph->t;
    uint32_t *list, count;
    SX_TRY(sx_pair_list(m->cx, m->program, &list, &count));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = m->graph->parameter[m->meeting->parameter_of[i]];
        SX_TRY(sx_attr_table_rename(m->cx, t->attrs, t->eg.node[n].attr,
                                    sx_graph_attr(m->program, &m->program->node[list[i]])->name));
    }
    SX_TRY(sx_graph_make(m->cx, m->program->name, t->attrs, &m->interface));
    SX_TRY(
        sx_graph_copy_symbols(m->cx, m->program->symbol, m->program->symbol_count, m->interface));
    t->symbol = m->interface->symbol;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = m->graph->parameter[m->meeting->parameter_of[i]];
        sx_attr attr = *sx_tensors_attr(t, n);
        sx_node_id id;
        SX_TRY(sx_graph_add(m->cx, m->interface, SX_OP_PARAMETER, &attr, NULL, 0, &id));
        uint32_t found =
            sx_eg_lookup(&t->eg, SX_OP_PARAMETER, m->interface->node[id.i].attr.i, NULL, 0);
        if (found != n) {
            return SX_FAIL(m->cx, SX_CORRUPT, "parameter %u: e-node %u is not its only one", i, n);
        }
    }
    m->interface->output = m->graph->interface->output;
    m->interface->output_count = m->graph->interface->output_count;
    return SX_OK;
}

/* ---- the answer ---- */

/* Symbols, and the parameters of `to` at the places of those of `from`; place[j]: the node that stands for
 * parameter j of `from`. */
static sx_code rename_parameters(sx_ctx *cx, const sx_graph *from, const sx_graph *to,
                                 const uint32_t *parameter_of, uint32_t *place)
{
    uint32_t *from_list, *to_list, from_count, to_count;
    SX_TRY(sx_pair_list(cx, from, &from_list, &from_count));
    SX_TRY(sx_pair_list(cx, to, &to_list, &to_count));
    bool same = from_count == to_count && from->symbol_count <= to->symbol_count &&
                from->output_count == to->output_count;
    for (uint32_t i = 0; same && i < to_count; i++) {
        SX_ASSERT(parameter_of[i] < to_count);
        uint32_t other = from_list[parameter_of[i]];
        same = from_list[i] == i && sx_pair_same_kind(to, to_list[i], from, other);
        place[parameter_of[i]] = i;
    }
    return same ? SX_OK
                : SX_FAIL(cx, SX_CORRUPT, "stored program: %u parameters, the program has %u",
                          from_count, to_count);
}

sx_code sx_graph_rename(sx_ctx *cx, const sx_graph *from, const sx_graph *to,
                        const uint32_t *parameter_of, const uint32_t *output_of, sx_graph **renamed)
{
    uint32_t *place = SX_NEW_ARRAY(cx, uint32_t, from->node_count + 1);
    sx_graph *out;
    if (place == NULL) {
        return cx->error.code;
    }
    SX_TRY(rename_parameters(cx, from, to, parameter_of, place));
    SX_TRY(sx_graph_make(cx, to->name, from->attrs, &out));
    SX_TRY(sx_graph_copy_symbols(cx, to->symbol, from->symbol_count, out));
    uint32_t *to_list, to_count;
    SX_TRY(sx_pair_list(cx, to, &to_list, &to_count));
    for (uint32_t i = 0; i < from->node_count; i++) {
        const sx_node *node = &from->node[i];
        bool is_parameter = i < to_count;
        sx_attr attr =
            is_parameter ? *sx_graph_attr(to, &to->node[to_list[i]]) : *sx_graph_attr(from, node);
        sx_node_id input[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t at = from->input[node->input_first + k].i;
            input[k].i = at < to_count ? place[at] : at;
        }
        sx_node_id id;
        SX_TRY(sx_graph_add(cx, out, node->op, &attr, input, node->input_count, &id));
        SX_ASSERT(id.i == i);
    }
    for (uint32_t i = 0; i < to->output_count; i++) {
        SX_ASSERT(output_of[i] < from->output_count);
        sx_node_id node = from->output[output_of[i]].node;
        node.i = node.i < to_count ? place[node.i] : node.i;
        SX_TRY(sx_graph_add_output(cx, out, to->output[i].name, node));
    }
    *renamed = out;
    return SX_OK;
}

/* ---- the meeting ---- */

/* The stored extraction with the outputs of the program. */
static sx_code name_outputs(meeter *m, const sx_graph *stored)
{
    const sx_graph *program = m->program;
    sx_graph *better = SX_NEW(m->cx, sx_graph);
    sx_output *output = SX_NEW_ARRAY(m->cx, sx_output, program->output_count + 1);
    if (better == NULL || output == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t i = 0; i < program->output_count; i++) {
        output[i].name = program->output[i].name;
        output[i].node = stored->output[m->meeting->output_of[i]].node;
    }
    *better = *stored;
    better->output = output;
    better->output_count = better->output_capacity = program->output_count;
    m->meeting->better = better;
    return SX_OK;
}

/* The checker's word on it; node i of the stored extraction is e-node stored_node[i]. */
static sx_code certify(meeter *m, const uint32_t *stored_node)
{
    sx_buf text;
    sx_buf_init(&text, CERTIFICATE_BYTES_MAX);
    sx_code code = sx_certificate_print(m->cx, &m->graph->t, &m->graph->set, m->program, m->node,
                                        m->meeting->better, stored_node, &text);
    if (code == SX_OK) {
        char *copy = sx_alloc_text(m->cx, sx_buf_span(&text));
        m->meeting->certificate = (sx_span){(const uint8_t *)copy, text.len};
        code = copy != NULL ? SX_OK : m->cx->error.code;
    } else if (code != SX_NOMEM && code != SX_CANCELLED) {
        sx_ctx_reset_error(m->cx); /* the checker does not agree that they are equal */
        m->meeting->met = false;
        code = SX_OK;
    }
    sx_buf_fini(&text);
    return code;
}

/* The extraction; taken before classes unite any further, as the choice is of these. Loading has looked at each
 * chosen node alone; that together they are a program is found out here. */
static sx_code extract_stored(meeter *m, sx_graph **stored, uint32_t **stored_node)
{
    const sx_library_graph *graph = m->graph;
    sx_walker walker;
    uint64_t total;
    SX_TRY(sx_walker_init(m->cx, &graph->t.eg, &walker));
    if (!sx_walker_run(&walker, &graph->t.eg, NULL, graph->root, m->interface->output_count,
                       graph->choice, &total)) {
        return SX_FAIL(m->cx, SX_CORRUPT, "stored choice: it has a cycle or a hole");
    }
    sx_code code = sx_choice_graph(m->cx, &graph->t, m->interface, graph->root, graph->choice, true,
                                   stored, stored_node);
    if (code != SX_OK && code != SX_NOMEM) {
        m->cx->error.code = SX_CORRUPT;
        return SX_CORRUPT;
    }
    return code;
}

sx_library_kernels sx_meet_kernels(const sx_graph *program, bool certified)
{
    for (uint32_t i = 0; i < program->node_count; i++) {
        if (program->node[i].op == SX_OP_FUSED) {
            return SX_LIBRARY_ALL;
        }
    }
    return certified ? SX_LIBRARY_ALL : SX_LIBRARY_CHOSEN;
}

sx_code sx_meet(sx_ctx *cx, sx_library_graph *graph, const sx_graph *program,
                const sx_meet_options *options, sx_meeting *meeting)
{
    *meeting = (sx_meeting){0};
    meeter m = {.cx = cx, .graph = graph, .program = program, .meeting = meeting};
    bool paired, whole;
    sx_graph *stored;
    uint32_t *stored_node;
    SX_ASSERT(!options->certified || !graph->t.partial);
    SX_TRY(sx_pair_parameters(cx, program, graph->interface, graph->mark, options->by_name,
                              &meeting->parameter_of, &paired));
    if (!paired || program->output_count != graph->interface->output_count) {
        return SX_OK;
    }
    SX_TRY(take_names(&m));
    SX_TRY(extract_stored(&m, &stored, &stored_node));
    m.node = SX_NEW_ARRAY(cx, uint32_t, program->node_count + 1);
    meeting->output_of = SX_NEW_ARRAY(cx, uint32_t, program->output_count + 1);
    if (m.node == NULL || meeting->output_of == NULL) {
        return cx->error.code;
    }
    sx_eg *eg = &graph->t.eg;
    for (uint32_t r = 0; r < graph->set.rule_count; r++) { /* only what is new is looked at */
        sx_eg_rule_set_position(eg, &graph->set.rule[r],
                                (sx_eg_position){eg->node_count, eg->changed_count});
    }
    SX_TRY(insert(&m, &whole));
    if (!whole) {
        return SX_OK;
    }
    meeting->met = outputs_meet(&m);
    if (!meeting->met && meeting->inserted > 0) {
        SX_TRY(look_on(&m, options->enabled));
    }
    if (meeting->met) {
        SX_TRY(name_outputs(&m, stored));
        SX_TRY(options->certified ? certify(&m, stored_node) : SX_OK);
    }
    meeting->nodes = eg->live_count;
    meeting->classes = eg->class_count;
    return meeting->met ? explain(&m) : SX_OK;
}
