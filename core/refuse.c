/* refuse.c - failures of code generation in the words of the program that came, not of the one that the
 * optimizer made of it. */
#include "core/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/program.h"

/* The node of the original that says best what node `id` of the optimised program is: its root if that has a
 * name, else the last node with a name of those it covers, else the root itself. */
static uint32_t nearest(const sx_pipe *pipe, sx_node_id id)
{
    const sx_descent *descent = pipe->descent;
    uint32_t root = descent->root[id.i];
    if (root == SX_ORIGIN_NONE || sx_origin_find(pipe->origins, root) != NULL) {
        return root;
    }
    for (uint32_t k = descent->cover_first[id.i + 1]; k-- > descent->cover_first[id.i];) {
        if (sx_origin_find(pipe->origins, descent->cover[k]) != NULL) {
            return descent->cover[k];
        }
    }
    return root;
}

static sx_code find_origin(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, sx_origin *origin)
{
    if (pipe->descent == NULL) {
        pipe->descent = SX_NEW(cx, sx_descent);
        if (pipe->descent == NULL) {
            return SX_NOMEM;
        }
        SX_TRY(sx_descent_find(cx, pipe->program, pipe->better, pipe->descent));
    }
    uint32_t node = nearest(pipe, id);
    const sx_origin *known = sx_origin_find(pipe->origins, node);
    if (known != NULL) {
        *origin = *known;
        return SX_OK;
    }
    char text[32];
    const sx_graph *graph = node != SX_ORIGIN_NONE ? pipe->program : pipe->graph;
    node = node != SX_ORIGIN_NONE ? node : id.i;
    (void)snprintf(text, sizeof(text), "%%%u", node);
    const char *name = sx_alloc_text(cx, sx_span_of(text));
    *origin = (sx_origin){.name = sx_span_of(name),
                          .op = sx_span_of(sx_op_info_of(graph->node[node].op)->name)};
    return name == NULL ? SX_NOMEM : SX_OK;
}

/* "kernel map_3: ", "node %3: ": a name of ours in front of the reason. */
static void drop_own_name(sx_error *error)
{
    bool ours = strncmp(error->text, "kernel ", 7) == 0 || strncmp(error->text, "node %", 6) == 0;
    const char *colon = ours ? strstr(error->text, ": ") : NULL;
    if (colon != NULL) {
        memmove(error->text, colon + 2, strlen(colon + 2) + 1);
    }
}

sx_code sx_pipe_refuse(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, sx_code code)
{
    bool about_node = code == SX_UNIMPLEMENTED || code == SX_COMPILE || code == SX_LIMIT;
    if (!about_node) {
        return code;
    }
    sx_error error = cx->error;
    sx_origin origin;
    sx_ctx_reset_error(cx);
    SX_TRY(find_origin(cx, pipe, id, &origin));
    drop_own_name(&error);
    cx->error = error;
    if (code == SX_UNIMPLEMENTED) {
        return sx_refusals_add(cx, &pipe->refusals, &origin);
    }
    return sx_fail_in(cx, "node '%.*s' (%.*s)", (int)sx_min_i64((int64_t)origin.name.len, 120),
                      (const char *)origin.name.ptr, (int)sx_min_i64((int64_t)origin.op.len, 40),
                      (const char *)origin.op.ptr);
}

sx_code sx_pipe_refuse_ranks(sx_ctx *cx, const sx_graph *graph)
{
    sx_collective first;
    if (!sx_collective_find(graph, &first)) {
        return SX_OK;
    }
    SX_ASSERT(first.attr->ranks > 1); /* one rank: the canonical form has none */
    return SX_FAIL(
        cx, SX_UNIMPLEMENTED,
        "node %%%u (%s): %lld ranks take part: certificates and searches are of programs "
        "that one device computes; compile makes code for it",
        first.node, sx_op_info_of(first.op)->name, (long long)first.attr->ranks);
}
