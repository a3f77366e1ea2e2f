#include "core/ir/extent.h"
#include "core/proof/proof.h"

#include <string.h>

#include "core/fuse/fuse.h"
#include "core/proof/explain.h"

/* ---- programs of choices ---- */

#define SCRATCH_BYTES ((size_t)1 << 20) /* one kernel */

/* The operation as a kernel of its own; *ok false if it is none. */
static sx_code add_lifted(sx_ctx *cx, const sx_tensors *t, uint32_t n, const sx_type *type,
                          const sx_node_id *input, sx_graph *graph, sx_node_id *id, bool *ok)
{
    sx_ctx scratch;
    sx_attr fused;
    sx_ctx_init(&scratch, SCRATCH_BYTES);
    uint32_t arity = t->eg.node[n].arity;
    sx_code code = sx_fused_lift(&scratch, sx_tensors_op(t, n), sx_tensors_attr(t, n), type, arity,
                                 sx_tensors_type(t, n), &fused);
    *ok = code == SX_OK;
    if (code == SX_OK) {
        code = sx_graph_add(cx, graph, SX_OP_FUSED, &fused, input, arity, id);
        if (code == SX_UNIMPLEMENTED) { /* two symbols in a stride of the result */
            sx_ctx_reset_error(cx);
            *ok = false;
            code = SX_OK;
        }
    } else if (code != SX_UNIMPLEMENTED) {
        code = SX_FAIL(cx, code, "lift: %s", scratch.error.text);
    } else {
        code = SX_OK;
    }
    sx_ctx_fini(&scratch);
    return code;
}

static sx_code add_node(sx_ctx *cx, const sx_tensors *t, uint32_t n, bool lift,
                        const uint32_t *made, sx_graph *graph, sx_node_id *id)
{
    sx_node_id input[SX_EG_ARITY_MAX];
    sx_type type[SX_EG_ARITY_MAX];
    uint32_t arity = t->eg.node[n].arity;
    sx_op op = sx_tensors_op(t, n);
    sx_attr attr = *sx_tensors_attr(t, n);
    for (uint32_t k = 0; k < arity; k++) {
        uint32_t class_ = sx_eg_child(&t->eg, n, k);
        SX_ASSERT(made[class_] != SX_EG_NONE);
        input[k].i = made[class_];
        type[k] = *sx_tensors_type(t, class_);
    }
    if (lift && arity > 0 && op != SX_OP_RESHAPE && op != SX_OP_FUSED) {
        bool ok;
        SX_TRY(add_lifted(cx, t, n, type, input, graph, id, &ok));
        if (ok) {
            return SX_OK;
        }
    }
    return sx_graph_add(cx, graph, op, &attr, input, arity, id);
}

static sx_code graph_of(sx_ctx *cx, const sx_tensors *t, const sx_graph *input,
                        const uint32_t *root, const uint32_t *choice, const sx_walker *walked,
                        bool lift, sx_graph **graph, uint32_t **node_of)
{
    uint32_t *made = SX_NEW_ARRAY(cx, uint32_t, t->eg.node_count);
    if (made == NULL) {
        return cx->error.code;
    }
    *node_of = SX_NEW_ARRAY(cx, uint32_t, input->node_count + walked->order_count + 1);
    if (*node_of == NULL) {
        return cx->error.code;
    }
    memset(made, 0xFF, t->eg.node_count * sizeof(*made));
    SX_TRY(sx_graph_make(cx, input->name, input->attrs, graph));
    SX_TRY(sx_graph_copy_symbols(cx, input->symbol, input->symbol_count, *graph));
    for (uint32_t i = 0; i < input->node_count; i++) {
        const sx_node *node = &input->node[i];
        if (node->op == SX_OP_PARAMETER) {
            sx_attr attr = *sx_graph_attr(input, node);
            sx_node_id id;
            SX_TRY(sx_graph_add(cx, *graph, SX_OP_PARAMETER, &attr, NULL, 0, &id));
            uint32_t n = sx_eg_lookup(&t->eg, SX_OP_PARAMETER, node->attr.i, NULL, 0);
            SX_ASSERT(n != SX_EG_NONE);
            (*node_of)[id.i] = n;
            uint32_t class_ = sx_eg_find(&t->eg, n);
            if (choice[class_] == SX_EG_NONE ||
                sx_tensors_op(t, choice[class_]) == SX_OP_PARAMETER) {
                made[class_] = id.i;
            }
        }
    }
    for (uint32_t i = 0; i < walked->order_count; i++) {
        uint32_t class_ = walked->order[i];
        sx_node_id id;
        if (made[class_] == SX_EG_NONE) {
            SX_TRY(add_node(cx, t, choice[class_], lift, made, *graph, &id));
            made[class_] = id.i;
            (*node_of)[id.i] = choice[class_];
        }
    }
    for (uint32_t i = 0; i < input->output_count; i++) {
        sx_node_id id = {made[sx_eg_find(&t->eg, root[i])]};
        SX_TRY(sx_graph_add_output(cx, *graph, input->output[i].name, id));
    }
    return SX_OK;
}

sx_code sx_choice_graph(sx_ctx *cx, const sx_tensors *t, const sx_graph *input,
                        const uint32_t *root, const uint32_t *choice, bool lift, sx_graph **graph,
                        uint32_t **node_of)
{
    uint32_t *ignored;
    sx_walker walker;
    uint64_t total;
    SX_TRY(sx_walker_init(cx, &t->eg, &walker));
    bool whole = sx_walker_run(&walker, &t->eg, NULL, root, input->output_count, choice, &total);
    if (SX_NEVER(!whole)) {
        return SX_FAIL(cx, SX_INTERNAL, "e-graph: the chosen program has a cycle or a hole");
    }
    return graph_of(cx, t, input, root, choice, &walker, lift, graph,
                    node_of != NULL ? node_of : &ignored);
}

/* ---- the chain ---- */

typedef struct {
    sx_ctx *cx;
    const sx_tensors *t;
    sx_proof *proof;
    sx_walker walker;
    sx_explainer explainer;
    uint32_t rule_first; /* of the step being explained */
    uint32_t *now;       /* the choice as it stands */
    uint32_t root_count;
} chainer;

static sx_code text_of(chainer *c, uint32_t node, sx_span *text)
{
    sx_buf buf;
    sx_buf_init(&buf, 1 << 16);
    sx_tensors_print(c->t, c->now, node, 2, &buf);
    char *copy = sx_alloc_text(c->cx, sx_buf_span(&buf));
    *text = (sx_span){(const uint8_t *)copy, buf.len};
    sx_buf_fini(&buf);
    return copy == NULL ? c->cx->error.code : SX_OK;
}

static bool same_node(const sx_eg *eg, uint32_t a, uint32_t b)
{
    const sx_eg_node *x = &eg->node[a];
    const sx_eg_node *y = &eg->node[b];
    bool same = x->op == y->op && x->attr == y->attr && x->arity == y->arity;
    for (uint32_t k = 0; same && k < x->arity; k++) {
        same = sx_eg_child(eg, a, k) == sx_eg_child(eg, b, k);
    }
    return same;
}

/* The rule of a reason into the list of the step, once. */
static sx_code put_rule(void *self, uint32_t reason)
{
    chainer *c = self;
    sx_proof *p = c->proof;
    uint32_t rule = c->explainer.set->reason[reason].rule;
    for (uint32_t i = c->rule_first; i < p->rule_count; i++) {
        if (p->rule[i] == rule) {
            return SX_OK;
        }
    }
    SX_TRY(
        sx_grow(c->cx, (void **)&p->rule, &p->rule_capacity, p->rule_count + 1, sizeof(uint32_t)));
    p->rule[p->rule_count++] = rule;
    return SX_OK;
}

static void begin_step(chainer *c)
{
    c->rule_first = c->proof->rule_count;
    c->explainer.epoch++;
    c->explainer.wanted_count = 0;
}

static sx_code put_step(chainer *c, sx_proof_step step)
{
    sx_proof *p = c->proof;
    if (p->step_count >= SX_PROOF_STEPS_MAX) {
        return SX_FAIL(c->cx, SX_LIMIT, "proof of more than %u steps", SX_PROOF_STEPS_MAX);
    }
    SX_TRY(sx_grow(c->cx, (void **)&p->step, &p->step_capacity, p->step_count + 1, sizeof(step)));
    step.rule_first = c->rule_first;
    step.rule_direct = p->rule_count - c->rule_first;
    SX_TRY(sx_explain_run(&c->explainer));
    step.rule_count = p->rule_count - c->rule_first;
    SX_TRY(text_of(c, step.from, &step.before));
    SX_TRY(text_of(c, step.to, &step.after));
    p->step[p->step_count++] = step;
    return SX_OK;
}

/* One class from its present node to `target`, a step for every program on the way that stands by itself. */
static sx_code switch_class(chainer *c, uint32_t class_, uint32_t target)
{
    const sx_eg *eg = &c->t->eg;
    sx_proof *p = c->proof;
    uint32_t from = c->now[class_];
    sx_explain_path(&c->explainer, from, target);
    uint32_t count = c->explainer.path_count;
    uint32_t *path = SX_NEW_ARRAY(c->cx, uint32_t, count);
    if (path == NULL) {
        return c->cx->error.code;
    }
    memcpy(path, c->explainer.path, count * sizeof(*path));
    begin_step(c);
    for (uint32_t i = 1; i < count; i++) {
        SX_TRY(sx_explain_edge(&c->explainer, path[i - 1], path[i]));
        uint64_t total;
        c->now[class_] = path[i];
        bool stands = sx_walker_run(&c->walker, eg, NULL, p->root, c->root_count, c->now, &total);
        SX_ASSERT(stands || i + 1 < count);
        if (!stands || same_node(eg, from, path[i])) {
            continue;
        }
        SX_TRY(put_step(c, (sx_proof_step){.place = class_, .from = from, .to = path[i]}));
        from = path[i];
        begin_step(c);
    }
    return SX_OK;
}

/* An input value that turned out equal to an earlier one. */
static sx_code merge_value(chainer *c, uint32_t n)
{
    sx_proof *p = c->proof;
    uint32_t to = sx_eg_find(&c->t->eg, n);
    begin_step(c);
    sx_explain_path(&c->explainer, n, to);
    for (uint32_t i = 1; i < c->explainer.path_count; i++) {
        SX_TRY(sx_explain_edge(&c->explainer, c->explainer.path[i - 1], c->explainer.path[i]));
    }
    SX_TRY(put_step(c, (sx_proof_step){.place = SX_EG_NONE, .from = n, .to = to}));
    p->merge_count = p->step_count;
    return SX_OK;
}

static sx_code merge_values(chainer *c, const bool *needed)
{
    const sx_graph *input = c->proof->input;
    bool *done = SX_NEW_ARRAY(c->cx, bool, c->t->eg.node_count);
    if (done == NULL) {
        return c->cx->error.code;
    }
    for (uint32_t i = 0; i < input->node_count; i++) {
        uint32_t n = c->proof->input_node[i];
        if (needed[i] && !done[n] && sx_eg_find(&c->t->eg, n) != n) {
            done[n] = true; /* nodes of equal content are one e-node */
            SX_TRY(merge_value(c, n));
        }
    }
    return SX_OK;
}

/* Nodes of the input its outputs depend on. */
static sx_code find_needed(sx_ctx *cx, const sx_graph *input, bool **needed)
{
    *needed = SX_NEW_ARRAY(cx, bool, input->node_count + 1);
    if (*needed == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < input->output_count; i++) {
        (*needed)[input->output[i].node.i] = true;
    }
    for (uint32_t i = input->node_count; i-- > 0;) {
        const sx_node *node = &input->node[i];
        for (uint32_t k = 0; k < node->input_count && (*needed)[i]; k++) {
            (*needed)[input->input[node->input_first + k].i] = true;
        }
    }
    return SX_OK;
}

/* Where the chain starts: the smallest node of a class that holds a value of the input (it is the input's
 * own), else the target's, else the smallest. The smallest nodes of classes never form a cycle: children were
 * there before their parents. */
static sx_code find_start(sx_ctx *cx, const sx_eg *eg, uint32_t input_nodes, const uint32_t *target,
                          uint32_t **start)
{
    *start = SX_NEW_ARRAY(cx, uint32_t, eg->node_count);
    if (*start == NULL) {
        return cx->error.code;
    }
    for (uint32_t c = 0; c < eg->node_count; c++) {
        (*start)[c] = c < input_nodes || target[c] == SX_EG_NONE ? c : target[c];
    }
    return SX_OK;
}

static sx_code chainer_init(chainer *c, const sx_eg_ruleset *set)
{
    uint32_t count = c->t->eg.node_count;
    SX_TRY(sx_walker_init(c->cx, &c->t->eg, &c->walker));
    SX_TRY(sx_explain_init(c->cx, c->t, set, &c->explainer));
    c->explainer.found = put_rule;
    c->explainer.self = c;
    c->now = SX_NEW_ARRAY(c->cx, uint32_t, count);
    if (c->now == NULL) {
        return c->cx->error.code;
    }
    memcpy(c->now, c->proof->start, count * sizeof(uint32_t));
    return SX_OK;
}

sx_code sx_proof_make(sx_ctx *cx, const sx_tensors *t, const sx_eg_ruleset *set,
                      const sx_graph *input, const uint32_t *input_node, const uint32_t *target,
                      sx_proof **proof)
{
    sx_proof *p = SX_NEW(cx, sx_proof);
    uint32_t *root = SX_NEW_ARRAY(cx, uint32_t, input->output_count + 1);
    if (p == NULL || root == NULL) {
        return cx->error.code;
    }
    uint32_t input_nodes = 0;
    for (uint32_t i = 0; i < input->node_count; i++) {
        input_nodes = input_node[i] >= input_nodes ? input_node[i] + 1 : input_nodes;
    }
    for (uint32_t i = 0; i < input->output_count; i++) {
        root[i] = input_node[input->output[i].node.i];
    }
    uint32_t *start;
    bool *needed;
    SX_TRY(find_start(cx, &t->eg, input_nodes, target, &start));
    SX_TRY(find_needed(cx, input, &needed));
    *p = (sx_proof){.tensors = t, .input = input, .input_node = input_node, .root = root};
    p->start = start;
    chainer c = {.cx = cx, .t = t, .proof = p, .root_count = input->output_count};
    SX_TRY(chainer_init(&c, set));
    SX_TRY(merge_values(&c, needed));
    sx_walker goal;
    uint64_t total;
    SX_TRY(sx_walker_init(cx, &t->eg, &goal));
    bool whole = sx_walker_run(&goal, &t->eg, NULL, root, input->output_count, target, &total);
    if (SX_NEVER(!whole)) {
        return SX_FAIL(cx, SX_INTERNAL, "proof: the target is no program");
    }
    for (uint32_t i = 0; i < goal.order_count; i++) {
        uint32_t class_ = goal.order[i];
        if (c.now[class_] != target[class_]) {
            SX_TRY(switch_class(&c, class_, target[class_]));
        }
    }
    *proof = p;
    return SX_OK;
}

/* The input with the first `count` merges made. */
static sx_code merged_program(sx_ctx *cx, const sx_proof *proof, uint32_t count, sx_graph **graph)
{
    const sx_graph *input = proof->input;
    sx_node_id *made = SX_NEW_ARRAY(cx, sx_node_id, input->node_count + 1);
    uint32_t *by_node = SX_NEW_ARRAY(cx, uint32_t, proof->tensors->eg.node_count);
    uint32_t *merged = SX_NEW_ARRAY(cx, uint32_t, proof->tensors->eg.node_count);
    if (made == NULL || by_node == NULL || merged == NULL) {
        return cx->error.code;
    }
    memset(merged, 0xFF, proof->tensors->eg.node_count * sizeof(*merged));
    for (uint32_t s = 0; s < count; s++) {
        merged[proof->step[s].from] = proof->step[s].to;
    }
    SX_TRY(sx_graph_make(cx, input->name, input->attrs, graph));
    SX_TRY(sx_graph_copy_symbols(cx, input->symbol, input->symbol_count, *graph));
    for (uint32_t i = 0; i < input->node_count; i++) {
        const sx_node *node = &input->node[i];
        sx_node_id operand[SX_EG_ARITY_MAX];
        for (uint32_t k = 0; k < node->input_count; k++) {
            operand[k] = made[input->input[node->input_first + k].i];
        }
        sx_attr attr = *sx_graph_attr(input, node);
        SX_TRY(sx_graph_add(cx, *graph, node->op, &attr, operand, node->input_count, &made[i]));
        by_node[proof->input_node[i]] = made[i].i;
        if (merged[proof->input_node[i]] != SX_EG_NONE) {
            made[i].i = by_node[merged[proof->input_node[i]]];
        }
    }
    for (uint32_t i = 0; i < input->output_count; i++) {
        SX_TRY(
            sx_graph_add_output(cx, *graph, input->output[i].name, made[input->output[i].node.i]));
    }
    return SX_OK;
}

sx_code sx_proof_program(sx_ctx *cx, const sx_proof *proof, uint32_t step_count, sx_graph **graph)
{
    SX_ASSERT(step_count <= proof->step_count);
    if (step_count <= proof->merge_count) {
        return merged_program(cx, proof, step_count, graph);
    }
    const sx_eg *eg = &proof->tensors->eg;
    uint32_t *choice = SX_NEW_ARRAY(cx, uint32_t, eg->node_count);
    if (choice == NULL) {
        return cx->error.code;
    }
    memcpy(choice, proof->start, eg->node_count * sizeof(uint32_t));
    for (uint32_t i = proof->merge_count; i < step_count; i++) {
        choice[proof->step[i].place] = proof->step[i].to;
    }
    return sx_choice_graph(cx, proof->tensors, proof->input, proof->root, choice, false, graph,
                           NULL);
}

void sx_proof_print(const sx_proof *proof, sx_buf *text)
{
    for (uint32_t i = 0; i < proof->step_count; i++) {
        const sx_proof_step *step = &proof->step[i];
        sx_buf_print(text, "%u.%s", i + 1, step->rule_direct == 0 ? " equal operands (exact)" : "");
        for (uint32_t k = 0; k < step->rule_count; k++) {
            uint32_t rule = proof->rule[step->rule_first + k];
            const char *link = k > 0 ? "," : "";
            sx_buf_print(text, "%s %s (%s)", k == step->rule_direct ? ", using" : link,
                         sx_rule_name(rule), sx_rule_class_name(sx_rule_class_of(rule)));
        }
        sx_buf_put_text(text, ": ");
        sx_buf_put_span(text, step->before);
        sx_buf_put_text(text, " = ");
        sx_buf_put_span(text, step->after);
        sx_buf_put_text(text, "\n");
    }
}
