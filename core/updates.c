/* updates.c - how new versions of state and of donated inputs come to where the old ones lie.
 *
 * Old versions are values that anything in a run may read. A kernel writes the new one in place where all that reads
 * the old one can run before it, and where it reads of the old one, for each element, that element alone, and stores
 * each element once (core/judge/judge.h says why that is enough). Every other new version is made apart and copied at
 * the end of the run, behind all readers; a value that lies where another copy goes is saved first (two states that
 * change places). */
#include "core/ir/check.h"
#include "core/pipeline.h"

#include <string.h>

/* The elements that the state begins with; zeros need none. */
static sx_code put_initial(sx_ctx *cx, sx_pipe *pipe, sx_span name, sx_span initial,
                           sx_module_tensor *tensor)
{
    bool zeros = true;
    for (size_t i = 0; i < initial.len; i++) {
        zeros = zeros && initial.ptr[i] == 0;
    }
    if (zeros) {
        return SX_OK;
    }
    if (tensor->size > SX_PIPE_CONSTANT_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT,
                       "state \"%.60s\": an initial value of %llu bytes, at most %lld",
                       sx_short_name(name).text, (unsigned long long)tensor->size,
                       (long long)SX_PIPE_CONSTANT_BYTES_MAX);
    }
    SX_ASSERT(initial.len == tensor->element_bytes || initial.len == tensor->size);
    sx_buf *data = &pipe->image->constants;
    sx_buf_pad(data, 64);
    tensor->initial = data->len;
    for (uint64_t done = 0; done < tensor->size; done += initial.len) {
        sx_buf_put_span(data, initial);
    }
    return sx_buf_check(cx, data, "constants");
}

sx_code sx_pipe_put_state(sx_ctx *cx, sx_pipe *pipe, sx_node_id id)
{
    const sx_node *node = sx_graph_node(pipe->graph, id);
    const sx_type *symbolic = &sx_graph_node(pipe->better, id)->type;
    const sx_kept *kept = sx_graph_kept(pipe->graph, id.i);
    sx_span name = sx_graph_attr(pipe->graph, node)->name;
    uint32_t before = pipe->tensor_count;
    SX_ASSERT(kept != NULL && kept->role == SX_KEEP_STATE);
    SX_TRY(sx_pipe_add_shared(cx, pipe, name, &node->type, symbolic, SX_TENSOR_STATE,
                              &pipe->tensor_of[id.i]));
    if (pipe->tensor_count == before) { /* an earlier variant's: it has its value */
        return SX_OK;
    }
    return put_initial(cx, pipe, name, kept->initial, &pipe->tensor[before].record);
}

/* ---- in place ---- */

/* The node whose tensor it has: reshapes share that of their operand. */
static uint32_t root_of(const sx_graph *graph, uint32_t node)
{
    while (graph->node[node].op == SX_OP_RESHAPE) {
        node = sx_graph_input(graph, &graph->node[node], 0).i;
    }
    return node;
}

/* Row-major strides of the result over the space; 0 along what is reduced. */
static void result_strides(const sx_attr *fused, bool full, int64_t stride[SX_RANK_MAX])
{
    int64_t next = 1;
    for (uint32_t d = fused->type.rank; d-- > 0;) {
        bool gone = !full && (fused->body->axes >> d & 1) != 0;
        stride[d] = gone ? 0 : next;
        next *= gone ? 1 : fused->type.dim[d].scale;
    }
}

/* Does a value that is combined along the axes depend on the argument? */
static bool is_combined(const sx_body *body, uint32_t argument)
{
    bool from[SX_FUSED_INSTRS_MAX];
    bool combined = false;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *instr = &body->instr[i];
        const uint32_t operand[3] = {instr->x, instr->y, instr->z};
        from[i] = instr->kind == SX_BODY_ARG && instr->x == argument;
        for (uint32_t k = 0; k < sx_body_operand_count(instr); k++) {
            SX_ASSERT(operand[k] < i);
            from[i] = from[i] || from[operand[k]];
        }
        combined = combined || (from[i] && sx_body_combines(instr));
    }
    return combined;
}

/* Is the element with the same row-major number all that an element of the result reads of the argument? */
static bool reads_own(const sx_attr *fused, uint32_t argument)
{
    const sx_body *body = fused->body;
    const sx_access *access = &body->access[argument];
    bool full = sx_body_result_is_full(&fused->type, body);
    int64_t stride[SX_RANK_MAX];
    bool own = access->offset.scale == 0 && !(full && is_combined(body, argument));
    result_strides(fused, full, stride);
    for (uint32_t d = 0; d < fused->type.rank; d++) {
        own = own && (fused->type.dim[d].scale == 1 || access->stride[d].scale == stride[d]);
    }
    return own;
}

/* The same of moves: what is updated is read where it is stored, and the rest has another shape or other places. */
static bool updates_own(sx_op op, uint32_t argument)
{
    return argument == 0 && (op == SX_OP_DYNAMIC_UPDATE_SLICE || op == SX_OP_SCATTER);
}

/* How the node reads the tensor of a parameter. */
typedef enum { READS_NOTHING, READS_OWN, READS_OTHERS } reading;

static reading reading_of(const sx_graph *graph, uint32_t node, uint32_t parameter)
{
    const sx_node *n = &graph->node[node];
    const sx_attr *attr = sx_graph_attr(graph, n);
    reading how = READS_NOTHING;
    for (uint32_t k = 0; k < n->input_count; k++) {
        if (root_of(graph, sx_graph_input(graph, n, k).i) == parameter) {
            bool own = n->op == SX_OP_FUSED ? reads_own(attr, k) : updates_own(n->op, k);
            own = own && how != READS_OTHERS;
            how = own ? READS_OWN : READS_OTHERS;
        }
    }
    return how;
}

/* Does something behind all kernels read the old version: an output, or another version? */
static bool is_kept(const sx_pipe *pipe, uint32_t parameter)
{
    const sx_graph *graph = pipe->graph;
    for (uint32_t k = 0; k < graph->output_count; k++) {
        if (root_of(graph, graph->output[k].node.i) == parameter) {
            return true;
        }
    }
    return false;
}

/* What is known while versions are planned. */
typedef struct {
    sx_pipe *pipe;
    /* [node] the version of which it is the old one; and the planned one of which it is the root. SX_NOWHERE: none */
    uint32_t *old_of, *root_of;
    /* The nodes that read the old one of version v: reader[first[v]] to reader[first[v + 1]]. */
    uint32_t *first, *reader;
    /* [node] it comes from the root that is moved; [node] where it stands in the order; room to move nodes. */
    bool *depends;
    uint32_t *place, *later;
} planning;

static sx_code find_readers(sx_ctx *cx, planning *p)
{
    const sx_graph *graph = p->pipe->graph;
    uint32_t updates = graph->effects->update_count;
    p->first = SX_NEW_ARRAY(cx, uint32_t, updates + 2);
    p->reader = SX_NEW_ARRAY(cx, uint32_t, (size_t)graph->input_count + 1);
    if (p->first == NULL || p->reader == NULL) {
        return cx->error.code;
    }
    for (uint32_t pass = 0; pass < 2; pass++) { /* first how many, then which */
        for (uint32_t n = 0; n < graph->node_count; n++) {
            const sx_node *node = &graph->node[n];
            for (uint32_t k = 0; k < node->input_count && node->op != SX_OP_RESHAPE; k++) {
                uint32_t v = p->old_of[root_of(graph, sx_graph_input(graph, node, k).i)];
                if (v != SX_NOWHERE && pass == 0) {
                    p->first[v + 2]++;
                } else if (v != SX_NOWHERE) {
                    p->reader[p->first[v + 1]++] = n;
                }
            }
        }
        for (uint32_t v = 0; pass == 0 && v < updates; v++) {
            p->first[v + 2] += p->first[v + 1];
        }
    }
    return SX_OK;
}

/* What comes from the root, and, of the readers of old versions, what has to stay behind them. */
static void find_dependents(planning *p, uint32_t root)
{
    const sx_graph *graph = p->pipe->graph;
    const uint32_t *order = p->pipe->order;
    memset(p->depends, 0, graph->node_count * sizeof(*p->depends));
    p->depends[root] = true;
    for (uint32_t i = p->place[root] + 1; i < graph->node_count; i++) {
        uint32_t n = order[i], v = p->root_of[n];
        bool depends = false;
        for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
            depends = depends || p->depends[sx_graph_input(graph, &graph->node[n], k).i];
        }
        for (uint32_t r = v != SX_NOWHERE ? p->first[v] : 0; v != SX_NOWHERE && r < p->first[v + 1];
             r++) {
            depends = depends || p->depends[p->reader[r]];
        }
        p->depends[n] = depends;
    }
}

/* Moves the root of a version, and what is made of it, behind everything that reads the old one. False: that cannot be
 * done, because a reader needs the new one. */
static bool move_behind_readers(planning *p, uint32_t root, uint32_t version)
{
    uint32_t *order = p->pipe->order;
    uint32_t from = p->place[root], last = from, moved = 0, to = from;
    for (uint32_t r = p->first[version]; r < p->first[version + 1]; r++) {
        uint32_t at = p->place[p->reader[r]];
        last = at > last ? at : last;
    }
    if (last == from) {
        return true;
    }
    find_dependents(p, root);
    for (uint32_t r = p->first[version]; r < p->first[version + 1]; r++) {
        if (p->reader[r] != root && p->depends[p->reader[r]]) {
            return false;
        }
    }
    for (uint32_t i = from; i <= last;
         i++) { /* those that depend on it go behind, in their order */
        uint32_t n = order[i];
        if (p->depends[n]) {
            p->later[moved++] = n;
        } else {
            order[to++] = n;
        }
    }
    SX_ASSERT(to + moved == last + 1);
    memcpy(order + to, p->later, moved * sizeof(*p->later));
    for (uint32_t i = from; i <= last; i++) {
        p->place[order[i]] = i;
    }
    return true;
}

static sx_code make_planning(sx_ctx *cx, sx_pipe *pipe, planning *p)
{
    const sx_graph *graph = pipe->graph;
    const sx_effects *e = graph->effects;
    size_t count = (size_t)graph->node_count + 1;
    *p = (planning){.pipe = pipe,
                    .old_of = SX_NEW_ARRAY(cx, uint32_t, count),
                    .root_of = SX_NEW_ARRAY(cx, uint32_t, count),
                    .depends = SX_NEW_ARRAY(cx, bool, count),
                    .place = SX_NEW_ARRAY(cx, uint32_t, count),
                    .later = SX_NEW_ARRAY(cx, uint32_t, count)};
    pipe->version = SX_NEW_ARRAY(cx, sx_pipe_version, e->update_count);
    pipe->order = SX_NEW_ARRAY(cx, uint32_t, count);
    if (p->old_of == NULL || p->root_of == NULL || p->depends == NULL || p->place == NULL ||
        p->later == NULL || pipe->version == NULL || pipe->order == NULL) {
        return cx->error.code;
    }
    memset(p->old_of, 0xff, count * sizeof(*p->old_of)); /* all SX_NOWHERE */
    memset(p->root_of, 0xff, count * sizeof(*p->root_of));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        pipe->order[n] = p->place[n] = n;
    }
    for (uint32_t v = 0; v < e->update_count; v++) {
        p->old_of[e->update[v].node] = v;
    }
    return find_readers(cx, p);
}

sx_code sx_pipe_plan_updates(sx_ctx *cx, sx_pipe *pipe)
{
    const sx_graph *graph = pipe->graph;
    const sx_effects *e = graph->effects;
    planning p;
    pipe->version = NULL;
    pipe->order = NULL;
    if (e == NULL || e->update_count == 0) {
        return SX_OK;
    }
    SX_TRY(make_planning(cx, pipe, &p));
    for (uint32_t v = 0; v < e->update_count; v++) {
        uint32_t old = e->update[v].node;
        uint32_t root = root_of(graph, graph->output[e->update[v].output].node.i);
        pipe->version[v] = (sx_pipe_version){.root = root, .target = SX_MODULE_NONE};
        SX_TRY(sx_spend(cx, graph->node_count));
        sx_op op = graph->node[root].op;
        if ((op == SX_OP_FUSED || updates_own(op, 0)) && p.root_of[root] == SX_NOWHERE &&
            !is_kept(pipe, old) && reading_of(graph, root, old) != READS_OTHERS &&
            move_behind_readers(&p, root, v)) {
            pipe->version[v].planned = true;
            p.root_of[root] = v;
        }
    }
    return SX_OK;
}

uint32_t sx_pipe_version_of(const sx_pipe *pipe, sx_node_id id)
{
    const sx_effects *e = pipe->graph->effects;
    for (uint32_t v = 0; e != NULL && v < e->update_count; v++) {
        if (pipe->version[v].planned && pipe->version[v].root == id.i) {
            return v;
        }
    }
    return SX_NOWHERE;
}

/* The state itself, or the output that lies in the memory of the donated input. */
sx_code sx_pipe_target(sx_ctx *cx, sx_pipe *pipe, uint32_t version, uint32_t *target)
{
    const sx_update *update = &pipe->graph->effects->update[version];
    uint32_t *known = &pipe->version[version].target;
    uint32_t old = pipe->tensor_of[update->node];
    if (*known == SX_MODULE_NONE) {
        *known = old;
        if (sx_graph_role(pipe->graph, update->node) == SX_KEEP_DONATED) {
            SX_TRY(sx_pipe_add_output(cx, pipe, update->output, known));
            pipe->tensor[*known].record.alias = old;
        }
    }
    *target = *known;
    return SX_OK;
}

sx_code sx_pipe_settle(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t version)
{
    const sx_node *node = sx_graph_node(pipe->graph, id);
    uint32_t old = pipe->graph->effects->update[version].node;
    sx_buf *args = &pipe->image->arg;
    SX_ASSERT(pipe->version[version].planned && pipe->version[version].root == id.i);
    pipe->version[version].written =
        pipe->stored_once || reading_of(pipe->graph, id.i, old) == READS_NOTHING;
    if (pipe->version[version].written) {
        return SX_OK;
    }
    uint64_t size = (uint64_t)sx_tensor_elements(&node->type) * sx_dtype_bytes(node->type.dtype);
    uint32_t apart;
    SX_TRY(sx_pipe_add_tensor(cx, pipe, SX_SPAN_LITERAL(""), &node->type, size, SX_TENSOR_TEMPORARY,
                              &apart));
    SX_ASSERT(args->len >= sizeof(apart)); /* the result is the last argument of the last launch */
    memcpy(args->ptr + args->len - sizeof(apart), &apart, sizeof(apart));
    pipe->tensor[apart].first = pipe->tensor[apart].last = pipe->launch_count - 1;
    pipe->tensor_of[id.i] = apart;
    return SX_OK;
}

/* ---- copies ---- */

/* Does the tensor lie where a new version is still to be copied? */
static bool is_overwritten(const sx_pipe *pipe, uint32_t tensor)
{
    const sx_effects *e = pipe->graph->effects;
    for (uint32_t i = 0; i < e->update_count; i++) {
        if (!pipe->version[i].written && pipe->tensor_of[e->update[i].node] == tensor) {
            return true;
        }
    }
    return false;
}

/* A temporary with the value of a tensor that will be written. */
static sx_code save(sx_ctx *cx, sx_pipe *pipe, const sx_type *type, uint32_t *tensor)
{
    uint32_t saved;
    uint64_t size = (uint64_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    SX_TRY(
        sx_pipe_add_tensor(cx, pipe, SX_SPAN_LITERAL(""), type, size, SX_TENSOR_TEMPORARY, &saved));
    SX_TRY(sx_pipe_copy(cx, pipe, *tensor, saved, type));
    pipe->copied_bytes += size;
    *tensor = saved;
    return SX_OK;
}

sx_code sx_pipe_update(sx_ctx *cx, sx_pipe *pipe)
{
    const sx_graph *graph = pipe->graph;
    const sx_effects *e = graph->effects;
    if (e == NULL || e->update_count == 0) {
        return SX_OK;
    }
    uint32_t *source = SX_NEW_ARRAY(cx, uint32_t, e->update_count);
    if (source == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < e->update_count; i++) {
        uint32_t root = pipe->version[i].root;
        source[i] = pipe->tensor_of[root];
        if (!pipe->version[i].written && root != e->update[i].node &&
            is_overwritten(pipe, source[i])) {
            SX_TRY(save(cx, pipe, &graph->node[root].type, &source[i]));
        }
    }
    for (uint32_t i = 0; i < e->update_count; i++) {
        const sx_type *type = &graph->node[e->update[i].node].type;
        uint32_t target;
        SX_TRY(sx_pipe_target(cx, pipe, i, &target));
        if (!pipe->version[i].written && pipe->version[i].root != e->update[i].node) {
            SX_TRY(sx_pipe_copy(cx, pipe, source[i], target, type));
            pipe->copied_bytes += pipe->tensor[target].record.size;
        }
    }
    return SX_OK;
}

sx_code sx_pipe_place_state(sx_ctx *cx, sx_pipe *pipe)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < pipe->tensor_count && end <= SX_MODULE_BYTES_MAX; i++) {
        sx_module_tensor *tensor = &pipe->tensor[i].record;
        if (tensor->place == SX_TENSOR_STATE) {
            tensor->offset = end;
            end += (tensor->size + 63) & ~UINT64_C(63);
        }
    }
    if (end > SX_MODULE_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%llu bytes of state, at most %llu", (unsigned long long)end,
                       (unsigned long long)SX_MODULE_BYTES_MAX);
    }
    pipe->image->info.state_bytes = end;
    return SX_OK;
}
