/* updates.c - how new versions of state and of donated inputs come to where the old ones lie.
 *
 * Old versions are values that anything in a run may read, so new ones are written behind all that reads them: each is
 * made apart and copied at the end of the run. A value that itself lies where another new version goes is saved first
 * (two states that change places). */
#include "core/ir/check.h"
#include "core/pipeline.h"

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

/* Where the new version goes: the state itself, or the output that lies in the memory of the donated input. */
static sx_code target_of(sx_ctx *cx, sx_pipe *pipe, const sx_update *update, uint32_t *target)
{
    uint32_t old = pipe->tensor_of[update->node];
    *target = old;
    if (sx_graph_role(pipe->graph, update->node) == SX_KEEP_DONATED) {
        SX_TRY(sx_pipe_add_output(cx, pipe, update->output, target));
        pipe->tensor[*target].record.alias = old;
    }
    return SX_OK;
}

/* Does the tensor lie where a new version goes? */
static bool is_overwritten(const sx_pipe *pipe, uint32_t tensor)
{
    const sx_effects *e = pipe->graph->effects;
    for (uint32_t i = 0; i < e->update_count; i++) {
        if (pipe->tensor_of[e->update[i].node] == tensor) {
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
        sx_node_id root = graph->output[e->update[i].output].node;
        source[i] = pipe->tensor_of[root.i];
        if (source[i] != pipe->tensor_of[e->update[i].node] && is_overwritten(pipe, source[i])) {
            SX_TRY(save(cx, pipe, &sx_graph_node(graph, root)->type, &source[i]));
        }
    }
    for (uint32_t i = 0; i < e->update_count; i++) {
        const sx_type *type = &sx_graph_node(graph, (sx_node_id){e->update[i].node})->type;
        uint32_t target;
        SX_TRY(target_of(cx, pipe, &e->update[i], &target));
        if (source[i] != pipe->tensor_of[e->update[i].node]) {
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
