/* joint.c - nodes that share a kernel, which then has a result for each of them.
 *
 * Nodes over one space that read the same tensors, or each other's results, move fewer bytes together than one by one:
 * an update of AdamW reads parameter, moments and gradient once instead of three times; a norm gives its statistics, a
 * maximum its index, from the rows that it reads anyway. The values are those of the nodes alone, to the bit
 * (core/fuse/join.c), so sharing is decided here, behind level 1, by price.
 *
 * A node joins a group if nothing that it needs needs the group, where a node that overwrites an old version needs all
 * readers of that; so groups and nodes have an order again, as near as can be to that of the nodes. Whether a new
 * version may be written over the old one although another result is made of that, too, is read off the kernel
 * (core/judge/over.c); if it may not, or if no kernel can be had, each node gets its own. */
#include "core/kernels.h"

#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/idmap.h"

#define NONE UINT32_MAX

/* ---- which nodes ---- */

/* What nodes cost as one kernel: the question as words, and its answer. */
typedef struct {
    uint32_t first, count; /* into prices.word */
    double ns;
    bool ok; /* there is such a kernel */
} answer;
/* Answers so far: equal layers ask the same. */
typedef struct {
    uint64_t *word;
    answer *answer;
    uint32_t word_count, word_capacity, answer_count, answer_capacity;
    sx_idmap map;
} prices;

/* What is known while groups are made. */
typedef struct {
    sx_ctx *cx;
    sx_pipe *pipe;
    prices prices;
    /* [node] it depends on weights alone; where it stands; what it costs alone, 0: not asked yet. */
    bool *constant;
    uint32_t *place;
    double *cost_ns;
    /* [node] the last group that reads it. */
    uint32_t *reader;
    /* Readers of old versions: those of version v are old_reader[old_first[v]] to that of v + 1. */
    uint32_t *old_first, *old_reader;
    /* Nodes that are still to be looked at, and [node] the last round that has looked at it. */
    uint32_t *stack, *seen, round;
    /* [node] its value is an output, or several nodes read it. */
    bool *wanted;
} planning;

static uint32_t root_of(const sx_graph *graph, uint32_t node)
{
    while (graph->node[node].op == SX_OP_RESHAPE) {
        node = sx_graph_input(graph, &graph->node[node], 0).i;
    }
    return node;
}

static bool is_leaf(const sx_node *node)
{
    return node->op == SX_OP_PARAMETER || node->op == SX_OP_CONSTANT;
}

static void find_constant(planning *p)
{
    const sx_graph *graph = p->pipe->graph;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        bool all = node->op != SX_OP_PARAMETER || sx_graph_attr(graph, node)->weight != 0;
        for (uint32_t k = 0; k < node->input_count; k++) {
            all = all && p->constant[sx_graph_input(graph, node, k).i];
        }
        p->constant[n] = all;
    }
}

static void find_wanted(planning *p)
{
    const sx_graph *graph = p->pipe->graph;
    bool *read = p->constant; /* not in use yet */
    memset(read, 0, graph->node_count * sizeof(*read));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
            uint32_t in = sx_graph_input(graph, &graph->node[n], k).i;
            p->wanted[in] = p->wanted[in] || read[in];
            read[in] = true;
        }
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        p->wanted[graph->output[k].node.i] = true;
    }
}

/* Can the node share a kernel at all? */
static bool is_eligible(const planning *p, uint32_t n)
{
    const sx_graph *graph = p->pipe->graph;
    const sx_node *node = &graph->node[n];
    bool fused = node->op == SX_OP_FUSED && !p->constant[n] && node->input_count > 0;
    if (!fused) {
        return false;
    }
    const sx_attr *attr = sx_graph_attr(graph, node);
    sx_kernel_kind kind = sx_body_kernel_kind(attr->body);
    return (kind == SX_KERNEL_ROW || (kind == SX_KERNEL_MAP && attr->body->axes == 0)) &&
           sx_tensor_elements(&attr->type) > 0;
}

/* The kernel of nodes that were joined, analysed. `type` has room for the types of its arguments. */
static sx_code analyse(sx_ctx *cx, const sx_graph *graph, const sx_join *join, sx_type *type,
                       sx_analysis *a)
{
    sx_dtype dtype[SX_FUSED_RESULTS_MAX];
    uint32_t count = join->whole.body->arg_count;
    for (uint32_t k = 0; k < count; k++) {
        type[k] = graph->node[join->tensor[k]].type;
    }
    for (uint32_t k = 0; k < join->count; k++) {
        dtype[k] = join->member[k].type.dtype;
    }
    return sx_analysis_of_results(cx, &join->whole, type, count, join->root, dtype, join->count, a);
}

/* ---- what they cost ---- */

static sx_code put_word(planning *p, uint64_t word)
{
    prices *known = &p->prices;
    void *array = known->word;
    SX_TRY(sx_grow(p->cx, &array, &known->word_capacity, known->word_count + 1, sizeof(word)));
    known->word = array;
    known->word[known->word_count++] = word;
    return SX_OK;
}

static sx_code put_type(planning *p, const sx_type *type)
{
    SX_TRY(put_word(p, (uint64_t)type->dtype << 32 | type->rank));
    for (uint32_t d = 0; d < type->rank; d++) {
        SX_TRY(put_word(p, (uint64_t)type->dim[d].scale)); /* extents are numbers */
    }
    return SX_OK;
}

/* The question: what each node computes, of which tensors, which are numbered as they come, and their types. */
static sx_code put_question(planning *p, const uint32_t *member, uint32_t count)
{
    const sx_graph *graph = p->pipe->graph;
    uint32_t tensor[SX_FUSED_RESULTS_MAX * (SX_FUSED_ARGS_MAX + 1)], known = count;
    memcpy(tensor, member, count * sizeof(*member));
    for (uint32_t m = 0; m < count; m++) {
        const sx_node *node = &graph->node[member[m]];
        SX_TRY(put_word(p, (uint64_t)node->input_count << 32 | node->attr.i));
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t in = sx_graph_input(graph, node, k).i, number = 0;
            while (number < known && tensor[number] != in) {
                number++;
            }
            SX_TRY(put_word(p, number));
            if (number == known) {
                SX_ASSERT(known < SX_COUNT(tensor));
                tensor[known++] = in;
                SX_TRY(put_type(p, &graph->node[in].type));
            }
        }
    }
    return SX_OK;
}

static bool same_question(const void *self, uint32_t id, const void *probe)
{
    const prices *known = self;
    const answer *a = &known->answer[id], *b = probe;
    return a->count == b->count && memcmp(known->word + a->first, known->word + b->first,
                                          a->count * sizeof(*known->word)) == 0;
}

/* Asks the search; what it takes of memory is given back. */
static sx_code ask(planning *p, const uint32_t *member, uint32_t count, answer *a)
{
    sx_ctx *cx = p->cx;
    sx_type type[SX_FUSED_ARGS_MAX];
    sx_join *join = SX_NEW(cx, sx_join);
    sx_analysis *analysis = SX_NEW(cx, sx_analysis);
    sx_search_result *search = SX_NEW(cx, sx_search_result);
    if (join == NULL || analysis == NULL || search == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_fused_join_nodes(cx, p->pipe->graph, member, count, join, &a->ok));
    if (!a->ok) {
        return SX_OK;
    }
    SX_TRY(analyse(cx, p->pipe->graph, join, type, analysis));
    SX_TRY(sx_search_first(cx, analysis, p->pipe->device, false, 1, search));
    a->ok = search->best_count > 0;
    a->ns = a->ok ? search->best[0].cost_ns : 0;
    return SX_OK;
}

/* What these nodes cost as one kernel; *ok false: there is none. */
static sx_code price(planning *p, const uint32_t *member, uint32_t count, double *ns, bool *ok)
{
    prices *known = &p->prices;
    answer a = {.first = known->word_count};
    SX_TRY(put_question(p, member, count));
    a.count = known->word_count - a.first;
    sx_span words = {(const uint8_t *)(known->word + a.first), a.count * sizeof(*known->word)};
    uint64_t hash = sx_hash64(words, 0);
    uint32_t found = sx_idmap_find(&known->map, hash, same_question, known, &a);
    if (found == SX_IDMAP_NONE) {
        sx_arena outer = p->cx->arena;
        sx_arena_init(&p->cx->arena, outer.limit_bytes - outer.used_bytes);
        sx_code code = ask(p, member, count, &a);
        sx_arena_fini(&p->cx->arena);
        p->cx->arena = outer;
        void *array = known->answer;
        SX_TRY(code);
        SX_TRY(sx_grow(p->cx, &array, &known->answer_capacity, known->answer_count + 1, sizeof(a)));
        known->answer = array;
        known->answer[found = known->answer_count++] = a;
        SX_TRY(sx_idmap_put(p->cx, &known->map, hash, found));
    } else {
        known->word_count = a.first;
    }
    *ns = known->answer[found].ns;
    *ok = known->answer[found].ok;
    return SX_OK;
}

static sx_code price_alone(planning *p, uint32_t n, bool *ok)
{
    *ok = true;
    return p->cost_ns[n] > 0 ? SX_OK : price(p, &n, 1, &p->cost_ns[n], ok);
}

static bool is_member(const sx_pipe_group *group, uint32_t n)
{
    bool found = false;
    for (uint32_t k = 0; k < group->count; k++) {
        found = found || group->node[k] == n;
    }
    return found;
}

/* How many nodes must come before the node: what it reads, and readers of what it overwrites. */
static uint32_t needs_of(const planning *p, uint32_t n)
{
    uint32_t v = sx_pipe_version_of(p->pipe, (sx_node_id){n});
    uint32_t old = v != SX_NOWHERE ? p->old_first[v + 1] - p->old_first[v] : 0;
    return p->pipe->graph->node[n].input_count + old;
}

/* One of them; the node itself where it reads what it overwrites. */
static uint32_t need_of(const planning *p, uint32_t n, uint32_t k)
{
    const sx_graph *graph = p->pipe->graph;
    uint32_t inputs = graph->node[n].input_count;
    if (k < inputs) {
        return sx_graph_input(graph, &graph->node[n], k).i;
    }
    return p->old_reader[p->old_first[sx_pipe_version_of(p->pipe, (sx_node_id){n})] + k - inputs];
}

/* Puts what the node needs on the stack, but members of the group. */
static uint32_t push_needs(const planning *p, uint32_t n, const sx_pipe_group *but, uint32_t count)
{
    for (uint32_t k = 0; k < needs_of(p, n); k++) {
        uint32_t need = need_of(p, n, k);
        bool open = need != n && !is_leaf(&p->pipe->graph->node[need]) && p->seen[need] != p->round;
        if (open && (but == NULL || !is_member(but, need))) {
            p->seen[need] = p->round;
            p->stack[count++] = need;
        }
    }
    return count;
}

/* Does nothing that the node needs need the group? Only what stands behind the first of its nodes can. */
static sx_code may_join(planning *p, const sx_pipe_group *group, uint32_t n, bool *may)
{
    const sx_pipe *pipe = p->pipe;
    p->round++;
    uint32_t count = push_needs(p, n, group, 0), first = p->place[group->node[0]];
    *may = true;
    while (count > 0 && *may) {
        uint32_t at = p->stack[--count], of = pipe->group_of[at];
        const sx_pipe_group alone = {.node = {at}, .count = 1};
        const sx_pipe_group *unit = of == NONE ? &alone : &pipe->group[of];
        SX_TRY(sx_spend(p->cx, unit->count));
        *may = !is_member(group, at);
        for (uint32_t k = 0; k < unit->count && *may; k++) {
            bool behind = p->place[unit->node[unit->count - 1]] > first;
            count = behind ? push_needs(p, unit->node[k], NULL, count) : count;
        }
    }
    return SX_OK;
}

/* Do they read one tensor that is as large as their space, or one the result of the other? A large result that nobody
 * else wants would be stored for nothing: level 1 makes one node of the two where that is good. */
static bool shares(const planning *p, const sx_pipe_group *group, uint32_t n)
{
    const sx_graph *graph = p->pipe->graph;
    int64_t elements = sx_tensor_elements(&sx_graph_attr(graph, &graph->node[n])->type);
    for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
        uint32_t in = sx_graph_input(graph, &graph->node[n], k).i;
        bool large = sx_tensor_elements(&graph->node[in].type) >= elements;
        for (uint32_t m = 0; m < group->count; m++) {
            const sx_node *member = &graph->node[group->node[m]];
            const sx_type *space = &sx_graph_attr(graph, member)->type;
            bool small = sx_tensor_elements(&member->type) < sx_tensor_elements(space);
            bool same = group->node[m] == in && (p->wanted[in] || small);
            for (uint32_t i = 0; i < member->input_count && large; i++) {
                same = same || sx_graph_input(graph, member, i).i == in;
            }
            if (same) {
                return true;
            }
        }
    }
    return false;
}

/* Adds the node to the group if that is possible and cheaper. */
static sx_code try_group(planning *p, sx_pipe_group *group, uint32_t n, bool *joined)
{
    uint32_t member[SX_FUSED_RESULTS_MAX];
    double ns;
    bool ok = group->count < SX_FUSED_RESULTS_MAX && shares(p, group, n);
    *joined = false;
    SX_TRY(ok ? may_join(p, group, n, &ok) : SX_OK);
    if (!ok) {
        return SX_OK;
    }
    memcpy(member, group->node, group->count * sizeof(*member));
    member[group->count] = n;
    SX_TRY(price(p, member, group->count + 1, &ns, &ok));
    if (!ok) {
        return SX_OK;
    }
    SX_TRY(price_alone(p, n, &ok));
    if (ok && ns < group->cost_ns + p->cost_ns[n]) {
        group->node[group->count++] = n;
        group->cost_ns = ns;
        *joined = true;
    }
    return SX_OK;
}

/* Gives the node a group: that of an operand, or the last one that reads an operand; else one of its own. */
static sx_code place_node(planning *p, uint32_t n)
{
    sx_pipe *pipe = p->pipe;
    const sx_graph *graph = pipe->graph;
    uint32_t group = NONE;
    for (uint32_t k = 0; k < graph->node[n].input_count && group == NONE; k++) {
        uint32_t in = sx_graph_input(graph, &graph->node[n], k).i;
        const uint32_t candidate[] = {pipe->group_of[in], p->reader[in]};
        for (uint32_t c = 0; c < SX_COUNT(candidate) && group == NONE; c++) {
            bool joined = false;
            if (candidate[c] != NONE) {
                SX_TRY(try_group(p, &pipe->group[candidate[c]], n, &joined));
            }
            group = joined ? candidate[c] : NONE;
        }
    }
    if (group == NONE) {
        bool ok;
        SX_TRY(price_alone(p, n, &ok));
        if (!ok) {
            return SX_OK;
        }
        group = pipe->group_count++;
        pipe->group[group] = (sx_pipe_group){.node = {n}, .count = 1, .cost_ns = p->cost_ns[n]};
    }
    pipe->group_of[n] = group;
    for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
        p->reader[sx_graph_input(graph, &graph->node[n], k).i] = group;
    }
    return SX_OK;
}

/* ---- the order of the nodes ---- */

/* A group or a node alone, as far as what it needs has been gone through. */
static const sx_pipe_group *unit_of(const sx_pipe *pipe, uint32_t n, sx_pipe_group *alone)
{
    *alone = (sx_pipe_group){.node = {n}, .count = 1};
    return pipe->group_of[n] == NONE ? alone : &pipe->group[pipe->group_of[n]];
}

/* What the unit needs and is not put yet; NONE: nothing. `next` counts what was gone through. */
static uint32_t missing(const planning *p, const sx_pipe_group *unit, const bool *put,
                        uint32_t *next)
{
    uint32_t passed = 0;
    for (uint32_t m = 0; m < unit->count; m++) {
        uint32_t count = needs_of(p, unit->node[m]);
        for (uint32_t k = *next > passed ? *next - passed : 0; k < count; k++) {
            uint32_t need = need_of(p, unit->node[m], k);
            if (!put[need] && !is_member(unit, need)) {
                return need;
            }
            *next = passed + k + 1;
        }
        passed += count;
    }
    return NONE;
}

/* Puts the unit of a node behind all that it needs; `next`: of the first node of each unit. */
static void put_unit(const planning *p, uint32_t n, bool *put, uint32_t *next, uint32_t *order,
                     uint32_t *count)
{
    uint32_t depth = 0;
    p->stack[depth++] = n;
    while (depth > 0) {
        sx_pipe_group alone;
        const sx_pipe_group *unit = unit_of(p->pipe, p->stack[depth - 1], &alone);
        uint32_t need = put[unit->node[0]] ? NONE : missing(p, unit, put, &next[unit->node[0]]);
        if (need != NONE) {
            SX_ASSERT(depth < p->pipe->graph->node_count);
            p->stack[depth++] = need;
            continue;
        }
        depth--;
        for (uint32_t k = 0; k < unit->count && !put[unit->node[k]]; k++) {
            put[unit->node[k]] = true;
            order[(*count)++] = unit->node[k];
        }
    }
}

/* Leaves first, and the nodes of a group side by side: where the first of them stands, or behind what the others
 * need. */
static sx_code make_order(planning *p)
{
    sx_pipe *pipe = p->pipe;
    const sx_graph *graph = pipe->graph;
    uint32_t *order = SX_NEW_ARRAY(p->cx, uint32_t, (size_t)graph->node_count + 1);
    uint32_t *next = SX_NEW_ARRAY(p->cx, uint32_t, (size_t)graph->node_count + 1);
    bool *put = SX_NEW_ARRAY(p->cx, bool, (size_t)graph->node_count + 1);
    uint32_t count = 0;
    if (order == NULL || put == NULL || next == NULL) {
        return p->cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (is_leaf(&graph->node[n])) {
            order[count++] = n;
            put[n] = true;
        }
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        put_unit(p, pipe->order != NULL ? pipe->order[i] : i, put, next, order, &count);
    }
    SX_ASSERT(count == graph->node_count);
    pipe->order = order;
    return SX_OK;
}

/* Who reads old versions, through views. */
static sx_code find_old_readers(planning *p)
{
    const sx_graph *graph = p->pipe->graph;
    const sx_effects *e = graph->effects;
    uint32_t count = 0, updates = e != NULL ? e->update_count : 0, inputs = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        inputs += graph->node[n].input_count;
    }
    p->old_first = SX_NEW_ARRAY(p->cx, uint32_t, (size_t)updates + 1);
    p->old_reader = SX_NEW_ARRAY(p->cx, uint32_t, (size_t)inputs * (updates > 0) + 1);
    if (p->old_first == NULL || p->old_reader == NULL) {
        return p->cx->error.code;
    }
    for (uint32_t v = 0; v < updates; v++) {
        p->old_first[v] = count;
        for (uint32_t r = 0; r < graph->node_count; r++) {
            bool reads = false;
            for (uint32_t k = 0; k < graph->node[r].input_count; k++) {
                uint32_t in = root_of(graph, sx_graph_input(graph, &graph->node[r], k).i);
                reads = reads || in == e->update[v].node;
            }
            if (reads && graph->node[r].op != SX_OP_RESHAPE) {
                p->old_reader[count++] = r;
            }
        }
    }
    p->old_first[updates] = count;
    return SX_OK;
}

static sx_code make_planning(sx_ctx *cx, sx_pipe *pipe, planning *p)
{
    size_t count = (size_t)pipe->graph->node_count + 1;
    *p = (planning){.cx = cx,
                    .pipe = pipe,
                    .constant = SX_NEW_ARRAY(cx, bool, count),
                    .place = SX_NEW_ARRAY(cx, uint32_t, count),
                    .cost_ns = SX_NEW_ARRAY(cx, double, count),
                    .reader = SX_NEW_ARRAY(cx, uint32_t, count),
                    .stack = SX_NEW_ARRAY(cx, uint32_t, count),
                    .seen = SX_NEW_ARRAY(cx, uint32_t, count),
                    .wanted = SX_NEW_ARRAY(cx, bool, count)};
    pipe->group = SX_NEW_ARRAY(cx, sx_pipe_group, count);
    pipe->group_of = SX_NEW_ARRAY(cx, uint32_t, count);
    if (cx->error.code != SX_OK) {
        return cx->error.code;
    }
    memset(p->reader, 0xff, count * sizeof(*p->reader)); /* all NONE */
    memset(pipe->group_of, 0xff, count * sizeof(*pipe->group_of));
    for (uint32_t i = 0; i < pipe->graph->node_count; i++) {
        p->place[pipe->order != NULL ? pipe->order[i] : i] = i;
    }
    return find_old_readers(p);
}

sx_code sx_pipe_plan_groups(sx_ctx *cx, sx_pipe *pipe)
{
    const sx_graph *graph = pipe->graph;
    uint32_t eligible = 0, shared = 0;
    planning p;
    pipe->group = NULL;
    pipe->group_of = NULL;
    pipe->group_count = 0;
    pipe->joint_count = 0;
    if (pipe->steady != NULL) { /* kernels whose grids follow a symbol have one result */
        return SX_OK;
    }
    SX_TRY(make_planning(cx, pipe, &p));
    find_wanted(&p);
    find_constant(&p);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        eligible += is_eligible(&p, n) ? 1 : 0;
    }
    for (uint32_t i = 0; i < graph->node_count && eligible > 1; i++) {
        uint32_t n = pipe->order != NULL ? pipe->order[i] : i;
        SX_TRY(sx_spend(cx, graph->node[n].input_count + 1));
        SX_TRY(is_eligible(&p, n) ? place_node(&p, n) : SX_OK);
    }
    for (uint32_t g = 0; g < pipe->group_count; g++) {
        shared += pipe->group[g].count > 1 ? 1 : 0;
    }
    return shared > 0 ? make_order(&p) : SX_OK;
}

const sx_pipe_group *sx_pipe_group_of(const sx_pipe *pipe, sx_node_id id)
{
    if (pipe->inside || pipe->group_of == NULL || pipe->group_of[id.i] == NONE) {
        return NULL;
    }
    const sx_pipe_group *group = &pipe->group[pipe->group_of[id.i]];
    return group->count > 1 ? group : NULL;
}

/* ---- their kernel ---- */

/* A group for which there is a kernel. */
struct sx_pipe_joint {
    const sx_pipe_group *group;
    const sx_join *join;
    uint32_t kernel;
    /* Over which arguments each result may lie, a set of 1 << argument. */
    uint32_t over[SX_FUSED_RESULTS_MAX];
};

/* Do the nodes of both groups compute the same of tensors of the same types, which are the same ones among each other
 * in both? */
static bool same_group(const sx_graph *graph, const sx_pipe_group *a, const sx_pipe_group *b,
                       const sx_join *x, const sx_join *y)
{
    uint32_t count = x->whole.body->arg_count;
    bool same = a->count == b->count &&
                graph->node[a->node[0]].attr.i == graph->node[b->node[0]].attr.i &&
                count == y->whole.body->arg_count && sx_body_equal(x->whole.body, y->whole.body) &&
                memcmp(x->root, y->root, sizeof(x->root)) == 0;
    for (uint32_t k = 0; k < a->count && same; k++) {
        same = graph->node[a->node[k]].attr.i == graph->node[b->node[k]].attr.i &&
               sx_type_equal(&x->member[k].type, &y->member[k].type);
    }
    for (uint32_t k = 0; k < count && same; k++) {
        same = sx_type_equal(&graph->node[x->tensor[k]].type, &graph->node[y->tensor[k]].type);
    }
    return same;
}

static const sx_pipe_joint *find_twin(const sx_pipe *pipe, const sx_pipe_group *group,
                                      const sx_join *join)
{
    for (uint32_t i = 0; i < pipe->joint_count; i++) {
        const sx_pipe_joint *joint = &pipe->joint[i];
        if (same_group(pipe->graph, joint->group, group, joint->join, join)) {
            return joint;
        }
    }
    return NULL;
}

/* May each new version that is planned lie where its old one does? */
static bool fits_versions(const sx_pipe *pipe, const sx_pipe_group *group, const sx_join *join,
                          const uint32_t *tensor, const sx_pipe_joint *joint)
{
    bool fits = true;
    for (uint32_t k = 0; k < group->count; k++) {
        uint32_t v = sx_pipe_version_of(pipe, (sx_node_id){group->node[k]});
        if (v == SX_NOWHERE) {
            continue;
        }
        uint32_t old = pipe->tensor_of[pipe->graph->effects->update[v].node];
        for (uint32_t a = 0; a < join->whole.body->arg_count; a++) {
            fits = fits && (tensor[a] != old || (joint->over[k] >> a & 1) != 0);
        }
    }
    return fits;
}

/* Of a kernel with code what results may lie over. */
static void find_over(const sx_pipe_subject *s, const sx_pipe_choice *c, sx_pipe_joint *joint)
{
    const sx_analysis *a = s->analysis;
    for (uint32_t k = 0; k < a->result_count; k++) {
        joint->over[k] = 0;
        for (uint32_t in = 0; in < s->count && c->verdict.once; in++) {
            bool alike = sx_dtype_bytes(s->type[in].dtype) == sx_dtype_bytes(a->root_dtype[k]) &&
                         c->kernel->buffer[in].size == c->kernel->buffer[s->count + k].size;
            bool may = alike && sx_judge_reads_first(c->kernel, in, s->count + k);
            joint->over[k] |= may ? 1u << in : 0;
        }
    }
}

static sx_code compile(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_group *group, const sx_join *join,
                       uint32_t *tensor, const uint32_t *result, sx_pipe_joint *joint)
{
    sx_type *type = SX_NEW_ARRAY(cx, sx_type, SX_FUSED_ARGS_MAX);
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    sx_pipe_choice *choice = SX_NEW(cx, sx_pipe_choice);
    sx_pipe_subject s = {.join = join,
                         .type = type,
                         .tensor = tensor,
                         .count = join->whole.body->arg_count,
                         .node = group->node[0],
                         .analysis = a};
    if (type == NULL || a == NULL || choice == NULL) {
        return cx->error.code;
    }
    bool rows = sx_body_kernel_kind(join->whole.body) == SX_KERNEL_ROW;
    s.kind = rows ? SX_MODULE_ROW : SX_MODULE_MAP;
    (void)snprintf(s.name, sizeof(s.name), "%s_%u", rows ? "row" : "map", group->node[0]);
    for (uint32_t k = 1; k < group->count; k++) {
        size_t used = strlen(s.name);
        (void)snprintf(s.name + used, sizeof(s.name) - used, "_%u", group->node[k]);
        s.other[k - 1] = group->node[k];
    }
    SX_TRY(analyse(cx, pipe->graph, join, type, a));
    SX_TRY(sx_pipe_choose(cx, pipe, &s, choice));
    find_over(&s, choice, joint);
    if (!fits_versions(pipe, group, join, tensor, joint)) {
        pipe->image->code.len = choice->code.offset;
        return SX_FAIL(cx, SX_COMPILE, "kernel %s: a result does not lie over what it is made of",
                       s.name);
    }
    return sx_pipe_finish_fused(cx, pipe, &s, result, choice);
}

/* Keeps what was made for groups like this one. */
static sx_code remember(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_joint *joint)
{
    void *array = pipe->joint;
    SX_TRY(sx_grow(cx, &array, &pipe->joint_capacity, pipe->joint_count + 1, sizeof(*joint)));
    pipe->joint = array;
    pipe->joint[pipe->joint_count++] = *joint;
    return SX_OK;
}

sx_code sx_pipe_joint_kernel(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_group *group,
                             const uint32_t *result, bool *made)
{
    sx_join *join = SX_NEW(cx, sx_join);
    uint32_t tensor[SX_FUSED_ARGS_MAX + SX_FUSED_RESULTS_MAX];
    sx_pipe_joint joint = {.group = group, .join = join};
    if (join == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_fused_join_nodes(cx, pipe->graph, group->node, group->count, join, made));
    SX_ASSERT(*made); /* they were joined when the group was made */
    uint32_t count = join->whole.body->arg_count;
    for (uint32_t k = 0; k < count; k++) {
        tensor[k] = pipe->tensor_of[join->tensor[k]];
        SX_ASSERT(tensor[k] != NONE);
    }
    const sx_pipe_joint *twin = find_twin(pipe, group, join);
    if (twin != NULL && fits_versions(pipe, group, join, tensor, twin)) {
        memcpy(tensor + count, result, group->count * sizeof(*result));
        sx_pipe_launch(pipe, twin->kernel, tensor, count + group->count, false);
        return SX_OK;
    }
    sx_code code = compile(cx, pipe, group, join, tensor, result, &joint);
    if (code == SX_COMPILE || code == SX_LIMIT || code == SX_UNIMPLEMENTED) {
        sx_ctx_reset_error(cx);
        pipe->unproven = false;
        *made = false; /* each node has a kernel of its own, then */
        return SX_OK;
    }
    joint.kernel = pipe->kernel_last;
    return code == SX_OK ? remember(cx, pipe, &joint) : code;
}
