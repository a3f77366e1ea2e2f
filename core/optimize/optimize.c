#include "core/optimize/optimizer.h"

#include <math.h>
#include <string.h>

#include "core/fuse/fuse.h"
#include "core/ir/sort.h"
#include "core/proof/certificate.h"
#include "core/shard/plan.h"
#include "core/ir/check.h"

sx_optimize_options sx_optimize_defaults(void)
{
    sx_optimize_options options = {.objective = {.time = 1},
                                   .allow_reassociating = true,
                                   .extract_fuel = 12000000,
                                   .with_proof = true};
    options.limits = (sx_eg_limits){.rounds = 24,
                                    .nodes = 40000,
                                    .matches = 2000,
                                    .fuel = 20000000,
                                    .bytes = (size_t)400 << 20};
    return options;
}

sx_code sx_optimize_rules(sx_ctx *cx, const sx_optimize_options *options, bool *enabled)
{
    SX_ASSERT(options->disabled != NULL || options->disabled_count == 0);
    if (options->allow_approximate && !options->allow_reassociating) {
        return SX_FAIL(cx, SX_INPUT,
                       "exact and approximate exclude each other: one keeps every bit, the other "
                       "takes rewrites with an error bound");
    }
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        sx_rule_class rule_class = sx_rule_class_of(r);
        enabled[r] = rule_class == SX_RULE_EXACT ||
                     (rule_class == SX_RULE_REASSOCIATING && options->allow_reassociating) ||
                     (rule_class == SX_RULE_APPROXIMATE && options->allow_approximate);
        enabled[r] = enabled[r] && (options->range_any || sx_rule_range_of(r) != SX_RANGE_MOVES);
    }
    for (uint32_t i = 0; i < options->disabled_count; i++) {
        uint32_t rule;
        sx_span name = options->disabled[i];
        if (!sx_rule_find(name, &rule)) {
            return SX_FAIL(cx, SX_INPUT, "no rule is called '%.*s'",
                           name.len < SX_NAME_MAX ? (int)name.len : SX_NAME_MAX,
                           name.ptr != NULL ? (const char *)name.ptr : "");
        }
        enabled[rule] = false;
    }
    return SX_OK;
}

/* ---- costs, in picoseconds ---- */

#define SCRATCH_BYTES ((size_t)1 << 20) /* one kernel */

/* What follows from weights runs once at load: a millionth, to keep it small all the same. */
#define LOAD_TIME_SHARE 1048576u
/* Share of an elementwise operation or view that remains where fusion is foreseen. */
#define FUSED_SHARE 32u

/* `weights`: those of its children that follow from weights. */
static bool runs_at_load(const sx_tensors *t, uint32_t n, uint32_t weights)
{
    uint32_t arity = t->eg.node[n].arity;
    bool all = arity > SX_FUSED_ARGS_MAX || weights == (UINT32_C(1) << arity) - 1;
    for (uint32_t k = SX_FUSED_ARGS_MAX; all && k < arity; k++) {
        all = sx_tensors_fact(t, sx_eg_child(&t->eg, n, k))->is_weight != 0;
    }
    return all && sx_type_is_static(sx_tensors_type(t, n));
}

static bool is_fusible(sx_op op)
{
    sx_op_class c = sx_op_info_of(op)->op_class;
    return sx_op_is_elementwise(op) || c == SX_OPCLASS_VIEW;
}

static const struct {
    const char *name;
    sx_objective objective;
} objectives[] = {{"time", {1, 0, 0}}, {"memory", {1e-3, 1, 0}}, {"energy", {1e-3, 0, 1}}};

sx_code sx_objective_find(sx_ctx *cx, sx_span name, sx_objective *objective)
{
    for (size_t i = 0; i < SX_COUNT(objectives); i++) {
        if (sx_span_is(name, objectives[i].name)) {
            *objective = objectives[i].objective;
            return SX_OK;
        }
    }
    return SX_FAIL(cx, SX_INPUT,
                   "objective \"%s\" is not known, expected time, memory, energy or pareto",
                   sx_short_name(name).text);
}

/* Bytes of a result that takes memory of its own while it lives. */
static double kept_bytes(const sx_tensors *t, uint32_t n, const sx_cost *estimate)
{
    return estimate->bytes == 0 || t->eg.node[n].arity == 0
               ? 0
               : sx_cost_bytes(t->symbol, t->symbol_count, sx_tensors_type(t, n));
}

/* Does each member of the class copy elements? */
static bool all_copy(const sx_tensors *t, uint32_t class_)
{
    sx_bits ops = sx_eg_ops(&t->eg, class_);
    bool all = true;
    for (uint32_t op = sx_bits_first(&ops); op < SX_OP_COUNT; op = sx_bits_next(&ops, op + 1)) {
        sx_op_class c = sx_op_info_of((sx_op)op)->op_class;
        all = all && (c == SX_OPCLASS_CONCAT || c == SX_OPCLASS_GATHER || c == SX_OPCLASS_MOVE ||
                      c == SX_OPCLASS_SCATTER || c == SX_OPCLASS_SORT || c == SX_OPCLASS_DYNAMIC);
    }
    return all;
}

/* Elementwise on what is only ever written by a kernel that copies: no kernel before it can compute it. */
static bool follows_copies(const sx_tensors *t, uint32_t n)
{
    bool follows = false;
    for (uint32_t k = 0; k < t->eg.node[n].arity && sx_op_is_elementwise(sx_tensors_op(t, n));
         k++) {
        uint32_t child = sx_eg_child(&t->eg, n, k);
        follows = follows || (sx_tensors_fact(t, child)->is_weight == 0 && all_copy(t, child));
    }
    return follows;
}

/* Will the node be computed inside a kernel, as far as that is foreseen? */
static bool is_foreseen_fused(const sx_tensors *t, uint32_t n)
{
    sx_op op = sx_tensors_op(t, n);
    return op == SX_OP_SLICE || (is_fusible(op) && !follows_copies(t, n));
}

/* What of its cost remains inside a kernel. A slice is read in place, as contiguous as the whole. */
static void foresee_fused(const sx_optimizer *o, uint32_t n, const sx_cost *estimate, double *ns,
                          double *nj, double *kept)
{
    if (sx_tensors_op(o->t, n) == SX_OP_SLICE) {
        *ns = o->device->launch_ns / FUSED_SHARE;
        *nj = *kept = 0;
    } else {
        *ns = sx_device_compute_ns(o->device, estimate->arithmetic, false, estimate->flops) +
              *ns / FUSED_SHARE;
        *nj = (estimate->flops * o->device->flop_pj +
               estimate->bytes / FUSED_SHARE * o->device->byte_pj) /
              1000;
        *kept /= FUSED_SHARE;
    }
}

/* With each run, in thousandths of the objective. */
static sx_code find_cost(sx_optimizer *o, uint32_t n, uint32_t weights, bool fused, uint64_t *cost)
{
    const sx_objective *objective = &o->options->objective;
    sx_cost estimate;
    SX_TRY(sx_optimizer_price(o, n, weights, &estimate));
    double ns = estimate.cost_ns;
    double kept = kept_bytes(o->t, n, &estimate);
    double nj = estimate.energy_nj;
    if (fused) {
        foresee_fused(o, n, &estimate, &ns, &nj, &kept);
    }
    double sum = 1000 * (objective->time * ns + objective->memory * kept + objective->energy * nj);
    *cost = sum < (double)SX_COST_MAX ? (uint64_t)ceil(sum) : SX_COST_MAX;
    return SX_OK;
}

/* In thousandths of the objective. Each extraction asks for all nodes: what does not change is found once. */
static sx_code node_cost(sx_optimizer *o, uint32_t n, bool foresee, uint64_t *cost)
{
    const sx_tensors *t = o->t;
    uint32_t weights = sx_optimizer_weights(t, n);
    bool fused = foresee && is_foreseen_fused(t, n);
    SX_TRY(
        sx_grow(o->cx, (void **)&o->cost, &o->cost_capacity, t->eg.node_count, sizeof(*o->cost)));
    sx_known_cost *known = &o->cost[n];
    if (known->weights != weights) {
        *known = (sx_known_cost){.weights = weights};
    }
    if (known->cost[fused] == 0) {
        SX_TRY(find_cost(o, n, weights, fused, &known->cost[fused]));
        known->cost[fused]++;
    }
    sx_op op = sx_tensors_op(t, n);
    uint32_t arity = t->eg.node[n].arity;
    *cost = known->cost[fused] - 1;
    if (arity > 0 && runs_at_load(t, n, weights)) {
        *cost /= LOAD_TIME_SHARE;
    }
    *cost +=
        op == SX_OP_FUSED || (arity == 0 && op != SX_OP_IOTA) ? 1 : 2; /* at equal cost, a kernel */
    return SX_OK;
}

static bool is_refused(const sx_optimize_options *options, const sx_attr *attr)
{
    bool refused = false;
    for (uint32_t i = 0; i < options->refused_count && !refused; i++) {
        refused = sx_type_equal(&attr->type, &options->refused[i]->type) &&
                  sx_body_equal(attr->body, options->refused[i]->body);
    }
    return refused;
}

/* Was the kernel refused that the node is, or the one that an online sum becomes at the end? Other operations stay:
 * nothing else computes what they do. */
static sx_code find_refused(sx_optimizer *o, uint32_t n, bool *refused)
{
    const sx_tensors *t = o->t;
    const sx_attr *attr = sx_tensors_attr(t, n);
    sx_type input[SX_EG_ARITY_MAX];
    uint32_t arity = t->eg.node[n].arity;
    *refused = false;
    if (o->options->refused_count == 0 || sx_tensors_op(t, n) != SX_OP_ONLINE_DOT) {
        *refused = sx_tensors_op(t, n) == SX_OP_FUSED && is_refused(o->options, attr);
        return SX_OK;
    }
    for (uint32_t k = 0; k < arity; k++) {
        input[k] = *sx_tensors_type(t, sx_eg_child(&t->eg, n, k));
    }
    sx_ctx scratch;
    sx_attr lifted;
    sx_ctx_init(&scratch, SCRATCH_BYTES);
    sx_code code = sx_fused_lift(&scratch, SX_OP_ONLINE_DOT, attr, input, arity,
                                 sx_tensors_type(t, n), &lifted);
    *refused = code == SX_OK && is_refused(o->options, &lifted);
    if (code == SX_OK && !*refused) {
        code = sx_fused_lift_online(&scratch, attr, input, arity, sx_tensors_type(t, n), &lifted);
        *refused = code == SX_OK && is_refused(o->options, &lifted);
    }
    sx_ctx_fini(&scratch);
    return code == SX_NOMEM ? SX_FAIL(o->cx, SX_NOMEM, "node %u: no memory to lift it", n) : SX_OK;
}

/* Has the node no kernel of its own? Its parts, or itself without padding, stand beside it in the class. */
static sx_code lacks_kernel(sx_optimizer *o, uint32_t n, bool *lacks)
{
    const sx_tensors *t = o->t;
    sx_op op = sx_tensors_op(t, n);
    if (o->options->unfused) { /* kernels of online sums stand for operations beside them */
        *lacks = op == SX_OP_ATTENTION || op == SX_OP_ONLINE_DOT || op == SX_OP_FUSED;
        return SX_OK;
    }
    bool refused;
    SX_TRY(find_refused(o, n, &refused));
    bool ranks =
        op == SX_OP_SORT &&
        !sx_sort_is_network(sx_tensors_attr(t, n), sx_tensors_type(t, sx_eg_child(&t->eg, n, 0)));
    *lacks = op == SX_OP_ATTENTION || ranks || refused ||
             (op == SX_OP_ONLINE_DOT && (sx_tensors_attr(t, n)->lhs_contract.count != 1 ||
                                         sx_tensors_type(t, n)->dtype != SX_F32));
    if (op ==
        SX_OP_DOT_GENERAL) { /* its space has the dimensions of the result and the contracted ones */
        uint32_t rank = sx_tensors_type(t, n)->rank + sx_tensors_attr(t, n)->lhs_contract.count;
        *lacks = *lacks || rank > SX_RANK_MAX;
    }
    if (op != SX_OP_CONVOLUTION && op != SX_OP_REDUCE_WINDOW) {
        return SX_OK;
    }
    sx_type input[2];
    uint32_t arity = op == SX_OP_CONVOLUTION ? 2 : 1;
    for (uint32_t k = 0; k < arity; k++) {
        input[k] = *sx_tensors_type(t, sx_eg_child(&t->eg, n, k));
    }
    sx_ctx scratch;
    sx_attr lifted;
    sx_ctx_init(&scratch, SCRATCH_BYTES);
    sx_code code = sx_fused_lift(&scratch, op, sx_tensors_attr(t, n), input, arity,
                                 sx_tensors_type(t, n), &lifted);
    sx_ctx_fini(&scratch);
    *lacks = code == SX_UNIMPLEMENTED;
    return code == SX_OK || *lacks ? SX_OK : SX_FAIL(o->cx, code, "node %u: no kernel", n);
}

static bool can_run(const sx_eg *eg, uint32_t n, const bool *lacks, const bool *runs)
{
    bool can = eg->node[n].dead == 0 && !lacks[n];
    for (uint32_t k = 0; can && k < eg->node[n].arity; k++) {
        can = runs[sx_eg_find(eg, sx_eg_child(eg, n, k))];
    }
    return can;
}

/* Can each class be computed by kernels alone? `lacks`: nodes without one; `runs`, by class, starts out false. */
static sx_code find_running(sx_optimizer *o, const bool *lacks, bool *runs)
{
    const sx_eg *eg = &o->t->eg;
    uint32_t *stack = SX_NEW_ARRAY_UNSET(o->cx, uint32_t, eg->node_count + 1), count = 0;
    if (stack == NULL) {
        return o->cx->error.code;
    }
    for (uint32_t n = 0; n < eg->node_count; n++) {
        uint32_t c = sx_eg_find(eg, n);
        if (!runs[c] && can_run(eg, n, lacks, runs)) {
            runs[c] = true;
            stack[count++] = c;
        }
        while (count > 0) {
            uint32_t l = sx_eg_parent_first(eg, stack[--count]);
            for (; l != SX_EG_LINK_END; l = sx_eg_parent_next(eg, l)) {
                uint32_t parent = sx_eg_parent_node(eg, l);
                c = sx_eg_find(eg, parent);
                if (!runs[c] && can_run(eg, parent, lacks, runs)) {
                    runs[c] = true;
                    stack[count++] = c;
                }
            }
        }
    }
    return SX_OK;
}

sx_code sx_optimizer_costs(sx_optimizer *o, sx_cost_kind kind, uint64_t **cost)
{
    const sx_eg *eg = &o->t->eg;
    *cost = SX_NEW_ARRAY_UNSET(o->cx, uint64_t, eg->node_count);
    bool *left_out;
    bool *lacks = SX_NEW_ARRAY_UNSET(o->cx, bool, eg->node_count);
    bool *runs = SX_NEW_ARRAY(o->cx, bool, eg->node_count); /* by class */
    if (*cost == NULL || lacks == NULL || runs == NULL) {
        return o->cx->error.code;
    }
    bool operations = kind == SX_COST_OPERATIONS || kind == SX_COST_FORESEEN;
    bool foresee = kind == SX_COST_FORESEEN || kind == SX_COST_HOPED;
    SX_TRY(sx_optimizer_known_kernels(o, &left_out));
    for (uint32_t n = 0; n < eg->node_count; n++) {
        left_out[n] = eg->node[n].dead != 0 || (operations && left_out[n]);
        lacks[n] = left_out[n];
        if (!left_out[n]) {
            SX_TRY(lacks_kernel(o, n, &lacks[n]));
        }
    }
    SX_TRY(find_running(o, lacks, runs));
    bool whole = o->in != NULL; /* all of the program can */
    for (uint32_t i = 0; whole && i < o->in->output_count; i++) {
        whole = runs[sx_eg_find(eg, o->root[i])];
    }
    for (uint32_t n = 0; n < eg->node_count; n++) {
        (*cost)[n] = SX_COST_NEVER;
        if (!left_out[n]) {
            bool known = n < o->tried_count && o->tried[n];
            SX_TRY(node_cost(o, n, foresee && !known, &(*cost)[n]));
            (*cost)[n] += lacks[n] && (whole || runs[sx_eg_find(eg, n)]) ? SX_COST_LAST_RESORT : 0;
        }
    }
    return SX_OK;
}

/* Nodes whose cost is the same: operation, attribute, and what is known of the children. */
static bool same_cost(const void *self, uint32_t id, const void *probe)
{
    const sx_tensors *t = self;
    uint32_t n = *(const uint32_t *)probe;
    bool same = t->eg.node[id].op == t->eg.node[n].op &&
                t->eg.node[id].attr == t->eg.node[n].attr &&
                t->eg.node[id].arity == t->eg.node[n].arity;
    for (uint32_t k = 0; same && k < t->eg.node[n].arity; k++) {
        const sx_fact *a = sx_tensors_fact(t, sx_eg_child(&t->eg, id, k));
        const sx_fact *b = sx_tensors_fact(t, sx_eg_child(&t->eg, n, k));
        same = a->type == b->type && a->is_weight == b->is_weight;
    }
    return same;
}

/* Costs of single kernels, each computed once for all nodes like it (a deep program has few kinds). */
static sx_code known_cost(sx_optimizer *o, sx_idmap *map, uint64_t *known, uint32_t n,
                          uint64_t *cost)
{
    const sx_eg_node *node = &o->t->eg.node[n];
    uint64_t hash =
        sx_hash64((sx_span){(const uint8_t *)&node->attr, sizeof(node->attr)}, node->op);
    uint32_t twin = sx_idmap_find(map, hash, same_cost, o->t, &n);
    if (twin == SX_IDMAP_NONE) {
        SX_TRY(node_cost(o, n, false, &known[n]));
        SX_TRY(sx_idmap_put(o->cx, map, hash, n));
        twin = n;
    }
    *cost = known[twin];
    return SX_OK;
}

/* What the program of a choice costs, each operation a kernel; 0 if it has a cycle. */
static sx_code cost_of(sx_optimizer *o, const uint32_t *choice, double *cost)
{
    const sx_eg *eg = &o->t->eg;
    sx_walker walker;
    uint64_t total;
    uint64_t sum = 0;
    uint64_t *known = SX_NEW_ARRAY(o->cx, uint64_t, eg->node_count);
    sx_idmap map = {0};
    if (known == NULL) {
        return o->cx->error.code;
    }
    SX_TRY(sx_walker_init(o->cx, eg, &walker));
    *cost = 0;
    if (!sx_walker_run(&walker, eg, NULL, o->root, o->in->output_count, choice, &total)) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < walker.order_count; i++) {
        uint64_t one;
        SX_TRY(known_cost(o, &map, known, choice[walker.order[i]], &one));
        sum += one < SX_COST_MAX - sum ? one : SX_COST_MAX - sum;
    }
    *cost = (double)sum / 1000;
    return SX_OK;
}

/* The same in nanoseconds, whatever the objective; *ns holds it by the objective. */
static sx_code time_of(sx_optimizer *o, const uint32_t *choice, double *ns)
{
    sx_optimize_options options = *o->options;
    sx_optimizer timer = *o;
    if (sx_objective_is_time(&o->options->objective) && *ns > 0) {
        return SX_OK; /* it is known */
    }
    options.objective = (sx_objective){.time = 1};
    timer.options = &options;
    return cost_of(&timer, choice, ns);
}

/* The input as it stands: every operation its outputs need, each a kernel. */
static sx_code cost_before(sx_optimizer *o)
{
    uint32_t *choice = SX_NEW_ARRAY(o->cx, uint32_t, o->t->eg.node_count);
    if (choice == NULL) {
        return o->cx->error.code;
    }
    for (uint32_t c = 0; c < o->t->eg.node_count; c++) {
        choice[c] = c;
    }
    SX_TRY(cost_of(o, choice, &o->report->objective_before));
    o->report->cost_before_ns = o->report->objective_before;
    return time_of(o, choice, &o->report->cost_before_ns);
}

/* ---- stages ---- */

static sx_code find_roots(sx_optimizer *o)
{
    o->root = SX_NEW_ARRAY(o->cx, uint32_t, o->in->output_count + 1);
    if (o->root == NULL) {
        return o->cx->error.code;
    }
    for (uint32_t i = 0; i < o->in->output_count; i++) {
        o->root[i] = o->input_node[o->in->output[i].node.i];
    }
    return SX_OK;
}

static sx_code import(sx_optimizer *o)
{
    sx_ctx *cx = o->cx;
    o->t = SX_NEW(cx, sx_tensors);
    o->input_node = SX_NEW_ARRAY(cx, uint32_t, o->in->node_count + 1);
    if (o->t == NULL || o->input_node == NULL) {
        return cx->error.code;
    }
    if (o->in->output_count == 0) {
        return SX_FAIL(cx, SX_INPUT, "the program has no outputs");
    }
    SX_TRY(sx_tensors_init(cx, o->t, o->in));
    SX_TRY(sx_tensors_import(cx, o->t, o->in, o->input_node));
    SX_TRY(find_roots(o));
    return cost_before(o);
}

/* The e-graph that an earlier search left of the program, from here on over its attributes; *found false:
 * there is none. */
static sx_code remember(sx_optimizer *o, bool *found)
{
    sx_memory_graph *known;
    SX_TRY(sx_memory_find(o->cx, o->options->memory, o->in, &known));
    *found = known != NULL;
    if (known == NULL) {
        return SX_OK;
    }
    const sx_objective time = {.time = 1};
    SX_TRY(sx_optimize_cost(o->cx, o->in, o->device, &o->options->objective,
                            &o->report->objective_before));
    SX_TRY(sx_optimize_cost(o->cx, o->in, o->device, &time, &o->report->cost_before_ns));
    o->known = known;
    o->in = known->program;
    o->t = &known->graph.t;
    o->set = known->graph.set;
    o->input_node = known->node;
    return find_roots(o);
}

/* The program in an e-graph: its own, or the one it had. */
static sx_code begin(sx_optimizer *o)
{
    bool found = false;
    if (o->options->memory != NULL && o->options->limits.rounds > 0 && o->in->sharding == NULL) {
        SX_TRY(remember(o, &found));
    }
    for (uint32_t r = 0; found && o->options->afresh && r < o->set.rule_count; r++) {
        sx_eg_rule_set_position(&o->t->eg, &o->set.rule[r], (sx_eg_position){0, 0});
    }
    if (found) {
        return SX_OK;
    }
    SX_TRY(import(o));
    return sx_rules_set(o->cx, o->t, &o->set);
}

/* What makes kernels of operations that have none by themselves. These come first, so that every operation of
 * the input has one whatever limit binds later; what they make is never more than some dozens of nodes each. */
static const uint16_t to_kernels[] = {SX_RULE_CONV_PADDING, SX_RULE_WINDOW_PADDING,
                                      SX_RULE_CONV_DEEP, SX_RULE_CONV_GROUPS, SX_RULE_SORT};
#define TO_KERNELS_ROUNDS 4u

static sx_code run_rules(sx_optimizer *o, const bool *enabled, const sx_eg_limits *limits)
{
    sx_eg_run run;
    for (uint32_t r = 0; r < SX_RULE_ROUNDS_COUNT; r++) {
        o->set.rule[r].enabled = enabled[r];
    }
    SX_TRY(sx_eg_saturate(o->cx, &o->t->eg, &o->set, limits, &run));
    o->report->stop = run.stop;
    o->report->rounds += run.rounds;
    o->report->fuel += run.fuel;
    return SX_OK;
}

static sx_code run_to_kernels(sx_optimizer *o)
{
    const sx_eg *eg = &o->t->eg;
    bool enabled[SX_RULE_ROUNDS_COUNT] = {false}, wanted = false;
    for (uint32_t n = 0; n < eg->node_count && !wanted && !o->options->unfused; n++) {
        SX_TRY(lacks_kernel(o, n, &wanted));
    }
    for (size_t i = 0; i < sizeof(to_kernels) / sizeof(*to_kernels); i++) {
        enabled[to_kernels[i]] = o->enabled[to_kernels[i]];
    }
    sx_eg_limits limits = o->options->limits;
    limits.rounds = limits.rounds < TO_KERNELS_ROUNDS ? limits.rounds : TO_KERNELS_ROUNDS;
    return wanted ? run_rules(o, enabled, &limits) : SX_OK;
}

/* A first step over a program: what more nodes cost in time they have not been worth (docs/PERFORMANCE.md,
 * "Cold compiles"), because what is in the e-graph must be found in it too. */
static uint32_t nodes_worth(const sx_optimizer *o)
{
    double effort = o->options->effort;
    double nodes = (effort > 0 ? 1500 : 6000) + 16.0 * o->in->node_count;
    nodes *= effort > 0 ? effort : 1;
    return nodes < SX_EG_NODES_MAX ? (uint32_t)nodes : SX_EG_NODES_MAX;
}

static sx_code saturate(sx_optimizer *o)
{
    sx_eg_ruleset *set = &o->set;
    SX_ASSERT(set->rule_count == SX_RULE_ROUNDS_COUNT);
    o->report->stop = SX_STOP_ROUNDS;
    if (o->options->limits.rounds == 0) {
        return SX_OK;
    }
    SX_TRY(run_to_kernels(o));
    sx_eg_limits limits = o->options->limits;
    limits.fuel -= o->report->fuel < limits.fuel ? o->report->fuel : limits.fuel;
    if (o->known == NULL && limits.nodes > nodes_worth(o)) {
        limits.nodes = nodes_worth(o);
    }
    SX_TRY(run_rules(o, o->enabled, &limits));
    for (uint32_t r = 0; r < SX_RULE_ROUNDS_COUNT; r++) {
        o->report->match_count[r] = set->rule[r].match_count;
        o->report->union_count[r] = set->rule[r].union_count;
    }
    return SX_OK;
}

/* The input after the rounds: the smallest node of each class is the input's own (proof.c). */
static sx_code start_choice(sx_optimizer *o, uint32_t **choice)
{
    const sx_eg *eg = &o->t->eg;
    *choice = SX_NEW_ARRAY_UNSET(o->cx, uint32_t, eg->node_count);
    if (*choice == NULL) {
        return o->cx->error.code;
    }
    for (uint32_t c = 0; c < eg->node_count; c++) {
        (*choice)[c] = sx_eg_is_class(eg, c) ? c : SX_EG_NONE;
    }
    return SX_OK;
}

sx_code sx_optimizer_extract(sx_optimizer *o, sx_cost_kind kind, const uint64_t *cost,
                             uint64_t fuel, sx_extracted *best)
{
    uint32_t *start;
    SX_TRY(start_choice(o, &start));
    if (o->known != NULL && (kind == SX_COST_KERNELS || o->options->unfused)) {
        sx_optimizer_known_choice(o, start);
    }
    sx_extraction wanted = {.cost = cost,
                            .root = o->root,
                            .root_count = o->in->output_count,
                            .start = start,
                            .fuel = fuel};
    SX_TRY(sx_eg_extract(o->cx, &o->t->eg, &wanted, best));
    SX_ASSERT(best->lower_bound <= best->cost);
    o->report->extract_fuel += best->fuel;
    return SX_OK;
}

static sx_code extract(sx_optimizer *o, sx_cost_kind kind, uint64_t fuel, sx_extracted *best)
{
    uint64_t *cost;
    SX_TRY(sx_optimizer_costs(o, kind, &cost));
    return sx_optimizer_extract(o, kind, cost, fuel, best);
}

/* Kernels for the program that is chosen; *fresh false: each of its operations was in a program before.
 * `again`: even so, as long as it is not the program `before`. */
sx_code sx_optimizer_fuse(sx_optimizer *o, const uint32_t *choice, bool again,
                          const uint32_t *before, bool *fresh)
{
    SX_ASSERT(o->tried_count <= o->t->eg.node_count);
    sx_walker walker;
    uint64_t total;
    *fresh = false;
    SX_TRY(sx_walker_init(o->cx, &o->t->eg, &walker));
    if (!sx_walker_run(&walker, &o->t->eg, NULL, o->root, o->in->output_count, choice, &total)) {
        return SX_OK; /* the start, where a rule put a cycle through it: nothing to fuse */
    }
    bool same = before != NULL;
    for (uint32_t i = 0; i < walker.order_count; i++) {
        uint32_t n = choice[walker.order[i]];
        same = same && before[walker.order[i]] == n;
        *fresh = *fresh || (n < o->tried_count && !o->tried[n]);
        if (n < o->tried_count) {
            o->tried[n] = true;
        }
    }
    if (same || !(*fresh || again)) {
        return SX_OK;
    }
    return sx_fuse(o->cx, o->t, choice, walker.order, walker.order_count, o->root,
                   o->in->output_count, o->enabled, &o->options->limits, &o->fuse_fuel, &o->steps,
                   &o->pairs, o->report->match_count);
}

static sx_code unite_kernels(sx_optimizer *o)
{
    sx_eg *eg = &o->t->eg;
    for (uint32_t i = 0; i < o->pairs.count; i += 4) {
        const uint32_t *word = &o->pairs.word[i];
        uint64_t before = eg->union_count;
        uint32_t reason;
        SX_TRY(sx_eg_reason_add(o->cx, &o->set, word[3], word, word[2] == SX_EG_NONE ? 2 : 3, NULL,
                                0, &reason));
        if (word[3] == SX_RULE_FUSE_VALUE) {
            SX_TRY(sx_eg_reading_add(o->cx, eg, &o->set, word, 1));
        }
        SX_TRY(sx_eg_union(o->cx, eg, word[0], word[1], reason));
        o->report->union_count[word[3]] += eg->union_count - before;
    }
    o->pairs.count = 0;
    SX_TRY(sx_eg_rebuild(o->cx, eg));
#ifdef SX_DEBUG
    SX_TRY(sx_eg_check(o->cx, eg));
#endif
    return SX_OK;
}

/* Of the fuel of an extraction, for the programs that are fused: they need not be the very best. */
#define STAGE_SHARE 8u
/* Programs that are fused because their operations might make better kernels than those known. */
#define HOPES_MAX 3u

/* Kernels of several programs, united with the operations they compute: the input, the cheapest one, the
 * cheapest one by foreseen costs, and then, as long as there is one, what is cheapest where operations that
 * have been fused count as what they came to. */
static sx_code fuse(sx_optimizer *o)
{
    sx_extracted plain;
    sx_extracted foreseen;
    uint32_t *start;
    bool fresh;
    o->tried_count = o->t->eg.node_count;
    o->tried = SX_NEW_ARRAY(o->cx, bool, o->tried_count + 1);
    if (o->tried == NULL) {
        return o->cx->error.code;
    }
    SX_TRY(extract(o, SX_COST_OPERATIONS, o->options->extract_fuel / STAGE_SHARE, &plain));
    SX_TRY(extract(o, SX_COST_FORESEEN, o->options->extract_fuel / STAGE_SHARE, &foreseen));
    SX_TRY(start_choice(o, &start));
    o->fuse_fuel = o->options->limits.fuel;
    SX_TRY(o->options->samples > 0 ? sx_optimizer_fuse_samples(o) : SX_OK);
    SX_TRY(sx_optimizer_fuse(o, foreseen.choice, true, NULL, &fresh));
    SX_TRY(sx_optimizer_fuse(o, plain.choice, true, foreseen.choice, &fresh));
    SX_TRY(sx_optimizer_fuse(o, start, true, foreseen.choice, &fresh));
    SX_TRY(unite_kernels(o));
    fresh = true;
    for (uint32_t i = 0; i < HOPES_MAX && fresh; i++) {
        SX_TRY(extract(o, SX_COST_HOPED, o->options->extract_fuel / STAGE_SHARE, &foreseen));
        SX_TRY(sx_optimizer_fuse(o, foreseen.choice, false, NULL, &fresh));
        SX_TRY(fresh ? unite_kernels(o) : SX_OK);
    }
    o->report->fuel += o->options->limits.fuel - o->fuse_fuel;
    return SX_OK;
}

static sx_code refuse_fused(sx_ctx *cx, const sx_graph *in)
{
    for (uint32_t i = 0; i < in->node_count; i++) {
        if (in->node[i].op == SX_OP_FUSED) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "node %u is a fused kernel, no program of operations is made of it", i);
        }
    }
    return SX_OK;
}

#define MESH_FUEL_SHARE 2u /* problems of many placements for each value */

/* Of the fastest program on one device, the fastest along each axis of the mesh, and the input: the fastest on
 * the mesh. */
static sx_code choose_on_mesh(sx_optimizer *o, sx_extracted *best)
{
    uint64_t *cost;
    uint32_t *choice;
    uint32_t axes = o->t->mesh->program->sharding->axis_count;
    SX_TRY(sx_optimizer_costs(o, SX_COST_FORESEEN, &cost));
    for (uint32_t n = 0; n < o->t->eg.node_count; n++) { /* no kernels are made here */
        bool attention = o->t->eg.node[n].op == SX_OP_ATTENTION && cost[n] != SX_COST_NEVER;
        cost[n] -= attention && cost[n] > SX_COST_LAST_RESORT ? SX_COST_LAST_RESORT : 0;
    }
    const sx_plan_space space = {.t = o->t,
                                 .device = o->device,
                                 .cost = cost,
                                 .root = o->root,
                                 .fuel = MESH_FUEL_SHARE * o->options->extract_fuel};
    double *least = &o->report->mesh_after_ns;
    SX_TRY(sx_plan_cost(o->cx, &space, best->choice, least));
    for (uint32_t a = 0; a <= axes; a++) {
        double ns = (double)INFINITY;
        bool found = true;
        if (a < axes) {
            choice = SX_NEW_ARRAY(o->cx, uint32_t, o->t->eg.node_count + 1);
            if (choice == NULL) {
                return o->cx->error.code;
            }
            SX_TRY(sx_plan_propose(o->cx, &space, a, choice, &found));
        } else {
            SX_TRY(start_choice(o, &choice));
        }
        SX_TRY(found ? sx_plan_cost(o->cx, &space, choice, &ns) : SX_OK);
        if (a == axes) {
            o->report->mesh_before_ns = ns;
        }
        if (ns < *least) {
            *least = ns;
            best->choice = choice;
            best->proven = false;
        }
    }
    return SX_OK;
}

/* The cheapest program of operations, by the costs they will have inside kernels; its own costs are those of
 * single kernels. */
static sx_code extract_operations(sx_optimizer *o, sx_extracted *best)
{
    sx_optimize_report *report = o->report;
    SX_TRY(extract(o, SX_COST_FORESEEN, o->options->extract_fuel, best));
    if (o->t->mesh != NULL && sx_objective_is_time(&o->options->objective)) {
        SX_TRY(choose_on_mesh(o, best));
    }
    SX_TRY(cost_of(o, best->choice, &report->objective_after));
    report->cost_after_ns = report->objective_after;
    return time_of(o, best->choice, &report->cost_after_ns);
}

static sx_code extract_kernels(sx_optimizer *o, sx_extracted *best)
{
    sx_optimize_report *report = o->report;
    SX_TRY(fuse(o));
    SX_TRY(extract(o, SX_COST_KERNELS, o->options->extract_fuel, best));
    report->objective_after = (double)best->cost / 1000;
    report->cost_after_ns = report->objective_after;
    SX_TRY(time_of(o, best->choice, &report->cost_after_ns));
    bool timed = sx_objective_is_time(&o->options->objective);
    report->bound_ns = timed ? (double)best->lower_bound / 1000 : 0;
    report->proven = best->proven;
    return SX_OK;
}

#define CERTIFICATE_BYTES_MAX ((size_t)256 << 20)

/* A program that cannot be certified is handed out all the same, and says so. */
static sx_code certify(sx_optimizer *o, const sx_graph *out, const uint32_t *output_node,
                       sx_span *certificate)
{
    sx_buf text;
    sx_buf_init(&text, CERTIFICATE_BYTES_MAX);
    sx_code code =
        sx_certificate_print(o->cx, o->t, &o->set, o->in, o->input_node, out, output_node, &text);
    const char *copy = NULL;
    if (code == SX_COMPILE) {
        const sx_error why = o->cx->error;
        sx_ctx_reset_error(o->cx);
        copy = o->report->unproved = sx_alloc_text(o->cx, sx_span_of(why.text));
        code = copy != NULL ? SX_OK : o->cx->error.code;
    } else if (code == SX_OK) {
        copy = sx_alloc_text(o->cx, sx_buf_span(&text));
        *certificate = (sx_span){(const uint8_t *)copy, text.len};
        code = copy != NULL ? SX_OK : o->cx->error.code;
    }
    sx_buf_fini(&text);
    return code;
}

/* The report of a program that is the only part. */
static sx_code put_part(sx_optimizer *o, const sx_graph *in, sx_graph *out, sx_span certificate)
{
    sx_optimize_report *report = o->report;
    sx_optimize_part *part = SX_NEW(o->cx, sx_optimize_part);
    if (part == NULL) {
        return o->cx->error.code;
    }
    *part = (sx_optimize_part){.program = in,
                               .better = out,
                               .proof = report->proof,
                               .certificate = certificate,
                               .use_count = 1,
                               .stop = report->stop,
                               .rounds = report->rounds,
                               .nodes = report->nodes,
                               .classes = report->classes,
                               .fuel = report->fuel};
    report->part = part;
    report->part_count = 1;
    return SX_OK;
}

/* The graph with the program extracted. Too large for its buffer: none. */
static sx_code store(sx_optimizer *o, const uint32_t *choice)
{
    sx_library_info info = {.cost_before_ns = o->report->cost_before_ns,
                            .cost_after_ns = o->report->cost_after_ns};
    SX_TRY(sx_graph_key(o->cx, o->in, &info.program));
    sx_code code =
        sx_library_store(o->cx, o->t, &o->set, o->in, o->input_node, choice, o->report->stop, &info,
                         &o->options->snapshot_rules, o->options->snapshot);
    if (code == SX_LIMIT) {
        sx_ctx_reset_error(o->cx);
        sx_buf_clear(o->options->snapshot);
        return SX_OK;
    }
    return code;
}

sx_code sx_optimize_whole(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                          const sx_optimize_options *options, sx_graph **out,
                          sx_optimize_report *report)
{
    *report = (sx_optimize_report){0};
    sx_optimizer o = {.cx = cx,
                      .in = in,
                      .device = sx_device_class(device),
                      .options = options,
                      .report = report};
    sx_extracted best;
    SX_TRY(sx_optimize_rules(cx, options, o.enabled));
    SX_TRY(options->unfused ? refuse_fused(cx, in) : SX_OK);
    SX_TRY(begin(&o));
    SX_TRY(saturate(&o));
    uint32_t kernel_first = o.t->eg.node_count;
    SX_TRY(options->unfused ? extract_operations(&o, &best) : extract_kernels(&o, &best));
    if (options->memory != NULL && options->limits.rounds > 0) {
        SX_TRY(sx_optimizer_leave(&o, best.choice, kernel_first));
    }
    report->nodes = o.t->eg.live_count;
    report->all_nodes = o.t->eg.node_count;
    report->classes = o.t->eg.class_count;
    if (options->with_proof) {
        SX_TRY(sx_proof_make(cx, o.t, &o.set, o.in, o.input_node, best.choice, &report->proof));
    }
    uint32_t *output_node;
    SX_TRY(
        sx_choice_graph(cx, o.t, o.in, o.root, best.choice, !options->unfused, out, &output_node));
    SX_ASSERT(sx_graph_check(cx, *out) == SX_OK);
    sx_span certificate = {NULL, 0};
    if (options->with_certificate) {
        SX_TRY(certify(&o, *out, output_node, &certificate));
    }
    if (options->snapshot != NULL) {
        SX_TRY(store(&o, best.choice));
    }
    if (o.in != in) {
        SX_TRY(sx_graph_adopt(cx, *out, in, out));
    }
    return put_part(&o, in, *out, certificate);
}

sx_code sx_optimizer_cost(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                          const sx_objective *objective, struct sx_prices *prices, double *cost)
{
    sx_optimize_report report = {0};
    SX_ASSERT(in != NULL && device != NULL);
    sx_optimize_options options = {.objective = *objective, .prices = prices};
    sx_optimizer o = {.cx = cx,
                      .in = in,
                      .device = sx_device_class(device),
                      .options = &options,
                      .report = &report};
    SX_TRY(import(&o));
    *cost = report.objective_before;
    return SX_OK;
}

sx_code sx_optimize_cost(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                         const sx_objective *objective, double *cost)
{
    return sx_optimizer_cost(cx, in, device, objective, NULL, cost);
}

sx_code sx_optimize_node_costs(sx_ctx *cx, sx_tensors *t, const sx_device *device,
                               const sx_objective *objective, uint64_t **cost)
{
    sx_optimize_options options = {.objective = *objective};
    sx_optimizer o = {.cx = cx, .device = sx_device_class(device), .options = &options, .t = t};
    return sx_optimizer_costs(&o, SX_COST_KERNELS, cost);
}
