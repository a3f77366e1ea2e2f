/* joint.c - nodes that share a kernel, which then has a result for each of them.
 *
 * Elementwise nodes over one space that read the same tensors, or each other's results, move fewer bytes together than
 * one by one: an update of AdamW reads parameter, moments and gradient once instead of three times. The values are
 * those of the nodes alone, to the bit (core/fuse/join.c), so sharing is decided here, behind level 1, by price.
 *
 * A node joins a group that stands before it in the order of the nodes if all that it reads is there by then, and if no
 * reader of an old version that it overwrites stands behind. Whether a new version may be written over the old one
 * although another result is made of that, too, is read off the kernel (core/judge/over.c); if it may not, or if no
 * kernel can be had, each node gets its own. */
#include "core/kernels.h"

#include <stdio.h>
#include <string.h>

#define NONE UINT32_MAX

/* ---- which nodes ---- */

/* What is known while groups are made. */
typedef struct {
    sx_ctx *cx;
    sx_pipe *pipe;
    /* [node] it depends on weights alone; where it stands, in its group; what it costs alone, and the width of its
     * lanes, 0: not asked yet. */
    bool *constant;
    uint32_t *place;
    double *cost_ns;
    uint32_t *lane_bytes;
    /* [node] the last group that reads it; [node] the version whose old one it is. */
    uint32_t *reader, *old_of;
    /* [node] its value is an output, or several nodes read it. */
    bool *wanted;
    sx_analysis *analysis;
    sx_search_result *search;
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
    bool map = node->op == SX_OP_FUSED && !p->constant[n] && node->input_count > 0;
    if (!map) {
        return false;
    }
    const sx_attr *attr = sx_graph_attr(graph, node);
    return sx_body_kernel_kind(attr->body) == SX_KERNEL_MAP && attr->body->axes == 0 &&
           sx_tensor_elements(&node->type) > 0;
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

/* What these nodes cost as one kernel. */
static sx_code price(planning *p, const uint32_t *member, uint32_t count, double *ns,
                     uint32_t *lane_bytes, bool *ok)
{
    sx_type type[SX_FUSED_ARGS_MAX];
    sx_join *join = SX_NEW(p->cx, sx_join);
    if (join == NULL) {
        return p->cx->error.code;
    }
    SX_TRY(sx_fused_join_nodes(p->cx, p->pipe->graph, member, count, join, ok));
    if (!*ok) {
        return SX_OK;
    }
    SX_TRY(analyse(p->cx, p->pipe->graph, join, type, p->analysis));
    SX_TRY(sx_search_first(p->cx, p->analysis, p->pipe->device, false, 1, p->search));
    *ok = p->search->best_count > 0;
    *ns = *ok ? p->search->best[0].cost_ns : 0;
    *lane_bytes = p->analysis->lane_bytes;
    return SX_OK;
}

static sx_code price_alone(planning *p, uint32_t n, bool *ok)
{
    *ok = true;
    return p->lane_bytes[n] != 0 ? SX_OK : price(p, &n, 1, &p->cost_ns[n], &p->lane_bytes[n], ok);
}

static bool is_member(const sx_pipe_group *group, uint32_t n)
{
    bool found = false;
    for (uint32_t k = 0; k < group->count; k++) {
        found = found || group->node[k] == n;
    }
    return found;
}

/* Is all that the node reads there where the group stands, and does nobody behind need what it overwrites? */
static bool may_join(const planning *p, const sx_pipe_group *group, uint32_t n)
{
    const sx_graph *graph = p->pipe->graph;
    uint32_t place = p->place[group->node[0]];
    for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
        uint32_t in = root_of(graph, sx_graph_input(graph, &graph->node[n], k).i);
        if (!is_leaf(&graph->node[in]) && p->place[in] >= place && !is_member(group, in)) {
            return false;
        }
    }
    uint32_t v = sx_pipe_version_of(p->pipe, (sx_node_id){n});
    for (uint32_t r = 0; v != SX_NOWHERE && r < graph->node_count; r++) {
        bool reads = false;
        for (uint32_t k = 0; k < graph->node[r].input_count; k++) {
            reads = reads ||
                    p->old_of[root_of(graph, sx_graph_input(graph, &graph->node[r], k).i)] == v;
        }
        bool counts = reads && r != n && graph->node[r].op != SX_OP_RESHAPE;
        if (counts && p->place[r] >= place && !is_member(group, r)) {
            return false;
        }
    }
    return true;
}

/* Do they read one tensor that is as large as a result, or one the result of the other? A result that nobody else wants
 * would be stored for nothing: level 1 makes one node of the two where that is good. */
static bool shares(const planning *p, const sx_pipe_group *group, uint32_t n)
{
    const sx_graph *graph = p->pipe->graph;
    int64_t elements = sx_tensor_elements(&graph->node[n].type);
    for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
        uint32_t in = sx_graph_input(graph, &graph->node[n], k).i;
        bool large = sx_tensor_elements(&graph->node[in].type) >= elements;
        for (uint32_t m = 0; m < group->count && large; m++) {
            const sx_node *member = &graph->node[group->node[m]];
            bool same = group->node[m] == in && p->wanted[in];
            for (uint32_t i = 0; i < member->input_count; i++) {
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
    const sx_graph *graph = p->pipe->graph;
    uint32_t member[SX_FUSED_RESULTS_MAX], lane_bytes;
    double ns;
    bool ok;
    *joined = false;
    if (group->count == SX_FUSED_RESULTS_MAX ||
        !sx_type_same_shape(&graph->node[group->node[0]].type, &graph->node[n].type) ||
        !shares(p, group, n) || !may_join(p, group, n)) {
        return SX_OK;
    }
    memcpy(member, group->node, group->count * sizeof(*member));
    member[group->count] = n;
    SX_TRY(price(p, member, group->count + 1, &ns, &lane_bytes, &ok));
    if (!ok) {
        return SX_OK;
    }
    SX_TRY(price_alone(p, n, &ok));
    /* wider lanes would compute in other sequences of instructions */
    if (ok && lane_bytes == group->lane_bytes && lane_bytes == p->lane_bytes[n] &&
        ns < group->cost_ns + p->cost_ns[n]) {
        group->node[group->count++] = n;
        group->cost_ns = ns;
        p->place[n] = p->place[group->node[0]];
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
        pipe->group[group] = (sx_pipe_group){
            .node = {n}, .count = 1, .lane_bytes = p->lane_bytes[n], .cost_ns = p->cost_ns[n]};
    }
    pipe->group_of[n] = group;
    for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
        p->reader[sx_graph_input(graph, &graph->node[n], k).i] = group;
    }
    return SX_OK;
}

/* ---- the order of the nodes ---- */

/* Puts a node that has no kernel, with those that it needs, which have none either. */
static void put_view(const sx_pipe *pipe, uint32_t n, uint32_t *order, uint32_t *count, bool *put)
{
    const sx_graph *graph = pipe->graph;
    for (uint32_t at = n; graph->node[at].op == SX_OP_RESHAPE && !put[at];) {
        uint32_t first = at; /* the first one of the chain that is not there yet */
        while (true) {
            uint32_t in = sx_graph_input(graph, &graph->node[first], 0).i;
            if (graph->node[in].op != SX_OP_RESHAPE || put[in]) {
                break;
            }
            first = in;
        }
        put[first] = true;
        order[(*count)++] = first;
    }
}

/* Leaves first, and the nodes of a group side by side where the first of them stands. */
static sx_code make_order(sx_ctx *cx, sx_pipe *pipe)
{
    const sx_graph *graph = pipe->graph;
    uint32_t *order = SX_NEW_ARRAY(cx, uint32_t, (size_t)graph->node_count + 1);
    bool *put = SX_NEW_ARRAY(cx, bool, (size_t)graph->node_count + 1);
    uint32_t count = 0;
    if (order == NULL || put == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (is_leaf(&graph->node[n])) {
            order[count++] = n;
            put[n] = true;
        }
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        uint32_t n = pipe->order != NULL ? pipe->order[i] : i;
        uint32_t group = pipe->group_of[n];
        bool alone = group == NONE || pipe->group[group].count == 1;
        const uint32_t *member = alone ? &n : pipe->group[group].node;
        for (uint32_t k = 0; k < (alone ? 1 : pipe->group[group].count) && !put[n]; k++) {
            const sx_node *node = &graph->node[member[k]];
            for (uint32_t in = 0; !alone && in < node->input_count; in++) {
                put_view(pipe, sx_graph_input(graph, node, in).i, order, &count, put);
            }
        }
        bool there = put[n];
        for (uint32_t k = 0; k < (alone ? 1 : pipe->group[group].count) && !there; k++) {
            order[count++] = member[k];
            put[member[k]] = true;
        }
    }
    SX_ASSERT(count == graph->node_count);
    pipe->order = order;
    return SX_OK;
}

static sx_code make_planning(sx_ctx *cx, sx_pipe *pipe, planning *p)
{
    const sx_effects *e = pipe->graph->effects;
    size_t count = (size_t)pipe->graph->node_count + 1;
    *p = (planning){.cx = cx,
                    .pipe = pipe,
                    .constant = SX_NEW_ARRAY(cx, bool, count),
                    .place = SX_NEW_ARRAY(cx, uint32_t, count),
                    .cost_ns = SX_NEW_ARRAY(cx, double, count),
                    .lane_bytes = SX_NEW_ARRAY(cx, uint32_t, count),
                    .reader = SX_NEW_ARRAY(cx, uint32_t, count),
                    .old_of = SX_NEW_ARRAY(cx, uint32_t, count),
                    .wanted = SX_NEW_ARRAY(cx, bool, count),
                    .analysis = SX_NEW(cx, sx_analysis),
                    .search = SX_NEW(cx, sx_search_result)};
    pipe->group = SX_NEW_ARRAY(cx, sx_pipe_group, count);
    pipe->group_of = SX_NEW_ARRAY(cx, uint32_t, count);
    if (cx->error.code != SX_OK) {
        return cx->error.code;
    }
    memset(p->reader, 0xff, count * sizeof(*p->reader)); /* all NONE */
    memset(p->old_of, 0xff, count * sizeof(*p->old_of));
    memset(pipe->group_of, 0xff, count * sizeof(*pipe->group_of));
    for (uint32_t i = 0; i < pipe->graph->node_count; i++) {
        p->place[pipe->order != NULL ? pipe->order[i] : i] = i;
    }
    for (uint32_t v = 0; e != NULL && v < e->update_count; v++) {
        p->old_of[e->update[v].node] = v;
    }
    return SX_OK;
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
    return shared > 0 ? make_order(cx, pipe) : SX_OK;
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
    bool same = a->count == b->count && count == y->whole.body->arg_count &&
                sx_body_equal(x->whole.body, y->whole.body) &&
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

static sx_code find_twin(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_group *group,
                         const sx_join *join, const sx_pipe_joint **twin)
{
    sx_join *other = SX_NEW(cx, sx_join);
    if (other == NULL) {
        return cx->error.code;
    }
    *twin = NULL;
    for (uint32_t i = 0; i < pipe->joint_count && *twin == NULL; i++) {
        const sx_pipe_joint *joint = &pipe->joint[i];
        const sx_pipe_group *like = joint->group;
        bool ok = like->count == group->count && pipe->graph->node[like->node[0]].attr.i ==
                                                     pipe->graph->node[group->node[0]].attr.i;
        SX_TRY(ok ? sx_fused_join_nodes(cx, pipe->graph, like->node, like->count, other, &ok)
                  : SX_OK);
        *twin = ok && same_group(pipe->graph, like, group, other, join) ? joint : NULL;
    }
    return SX_OK;
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
                         .analysis = a,
                         .kind = SX_MODULE_MAP};
    if (type == NULL || a == NULL || choice == NULL) {
        return cx->error.code;
    }
    (void)snprintf(s.name, sizeof(s.name), "map_%u", group->node[0]);
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
    sx_pipe_joint joint = {.group = group};
    const sx_pipe_joint *twin;
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
    SX_TRY(find_twin(cx, pipe, group, join, &twin));
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
