/* join.c - several elementwise nodes over one space as one program with a result for each.
 *
 * Nothing is computed in another way: each result has the instructions that its node has alone, and equal ones of
 * equal operands are one. A node that reads an earlier result at its own element takes the value before it is
 * stored, which has been rounded to the type of that result. */
#include "core/fuse/fuse.h"

#include <string.h>

#include "core/ir/fused_body.h"

/* A node with what it reads of earlier results made in place, and the tensors of its arguments. */
typedef struct {
    sx_attr fused;
    uint32_t tensor[SX_FUSED_ARGS_MAX];
} expanded;

/* Merges arguments that are one tensor, read in one way. */
static sx_code merge_equal(sx_ctx *cx, expanded *e)
{
    for (uint32_t keep = 0; keep < e->fused.body->arg_count; keep++) {
        for (uint32_t drop = keep + 1; drop < e->fused.body->arg_count; drop++) {
            bool merged = false;
            sx_attr fewer;
            if (e->tensor[keep] == e->tensor[drop]) {
                SX_TRY(sx_fused_merge_args(cx, &e->fused, keep, drop, &fewer, &merged));
            }
            if (merged) {
                e->fused = fewer;
                memmove(e->tensor + drop, e->tensor + drop + 1,
                        (e->fused.body->arg_count - drop) * sizeof(e->tensor[0]));
                drop--;
            }
        }
    }
    return SX_OK;
}

/* Does the argument read the element with the number of the point? Extents are numbers. */
static bool reads_own(const sx_attr *fused, uint32_t argument)
{
    const sx_access *access = &fused->body->access[argument];
    bool own = access->offset.scale == 0;
    int64_t stride = 1;
    for (uint32_t d = fused->type.rank; d-- > 0;) {
        int64_t extent = fused->type.dim[d].scale;
        own = own && (extent == 1 || access->stride[d].scale == stride);
        stride *= extent;
    }
    return own;
}

/* Puts the program of an earlier node in the place of each argument that is its result. */
static sx_code take_results(sx_ctx *cx, const sx_join_node *node, uint32_t n, expanded *made,
                            bool *ok)
{
    expanded *e = &made[n];
    for (uint32_t k = n; k-- > 0 && *ok;) {
        const sx_body *producer = made[k].fused.body;
        for (uint32_t a = 0; a < e->fused.body->arg_count && *ok; a++) {
            sx_attr one;
            if (e->tensor[a] != node[k].result) {
                continue;
            }
            *ok = reads_own(&e->fused, a);
            if (*ok) {
                SX_TRY(sx_fused_inline(cx, &e->fused, a, &made[k].fused, node[k].type, &one, ok));
            }
            if (!*ok) {
                return SX_OK;
            }
            uint32_t kept = e->fused.body->arg_count - 1;
            SX_ASSERT(kept + producer->arg_count == one.body->arg_count);
            memmove(e->tensor + a, e->tensor + a + 1, (kept - a) * sizeof(e->tensor[0]));
            memcpy(e->tensor + kept, made[k].tensor, producer->arg_count * sizeof(e->tensor[0]));
            e->fused = one;
            SX_TRY(merge_equal(cx, e));
            a = UINT32_MAX; /* arguments have other numbers */
        }
    }
    return SX_OK;
}

static bool same_access(const sx_access *a, const sx_access *b, uint32_t rank)
{
    bool same = sx_dim_equal(a->offset, b->offset);
    for (uint32_t d = 0; d < rank; d++) {
        same = same && sx_dim_equal(a->stride[d], b->stride[d]);
    }
    return same;
}

/* The argument of the whole that is this one of a node; false: there is no room for it. */
static bool put_argument(sx_join *join, sx_body *whole, const expanded *e, uint32_t a,
                         uint32_t *number)
{
    const sx_access *access = &e->fused.body->access[a];
    for (uint32_t k = 0; k < whole->arg_count; k++) {
        if (join->tensor[k] == e->tensor[a] &&
            same_access(&whole->access[k], access, e->fused.type.rank)) {
            *number = k;
            return true;
        }
    }
    if (whole->arg_count == SX_FUSED_ARGS_MAX) {
        return false;
    }
    *number = whole->arg_count++;
    whole->access[*number] = *access;
    join->tensor[*number] = e->tensor[a];
    return true;
}

/* Appends the program of a node, which reads arguments under other numbers; false: the body is full. */
static bool append(sx_body *to, const sx_body *from, const uint32_t *argument, uint32_t *result)
{
    uint32_t renamed[SX_FUSED_INSTRS_MAX] = {0};
    for (uint32_t i = 0; i < from->instr_count; i++) {
        sx_instr in = from->instr[i];
        uint32_t count = sx_body_operand_count(&in);
        in.x = in.kind == SX_BODY_ARG ? argument[in.x] : count > 0 ? renamed[in.x] : in.x;
        in.y = count > 1 ? renamed[in.y] : 0;
        in.z = count > 2 ? renamed[in.z] : 0;
        if (!sx_body_put(to, &in, &renamed[i])) {
            return false;
        }
    }
    *result = renamed[from->instr_count - 1];
    return true;
}

/* The nodes over the arguments of the whole, once all of these are known. */
static sx_code make_members(sx_ctx *cx, const expanded *made,
                            uint32_t argument[][SX_FUSED_ARGS_MAX], const sx_body *whole,
                            sx_join *join)
{
    for (uint32_t n = 0; n < join->count; n++) {
        sx_body *body = sx_body_make(cx);
        uint32_t result;
        if (body == NULL) {
            return cx->error.code;
        }
        body->arg_count = whole->arg_count;
        memcpy(body->access, whole->access, whole->arg_count * sizeof(whole->access[0]));
        bool fits = append(body, made[n].fused.body, argument[n], &result);
        SX_ASSERT(fits && result + 1 == body->instr_count);
        sx_body_wrap(&made[n].fused.type, body, &join->member[n]);
    }
    return SX_OK;
}

sx_code sx_fused_join(sx_ctx *cx, const sx_join_node *node, uint32_t count, sx_join *join, bool *ok)
{
    SX_ASSERT(count > 0 && count <= SX_FUSED_RESULTS_MAX);
    expanded *made = SX_NEW_ARRAY(cx, expanded, count);
    sx_body *whole = sx_body_make(cx);
    uint32_t argument[SX_FUSED_RESULTS_MAX][SX_FUSED_ARGS_MAX];
    if (made == NULL || whole == NULL) {
        return cx->error.code;
    }
    *join = (sx_join){.count = count};
    *ok = true;
    for (uint32_t n = 0; n < count && *ok; n++) {
        const sx_attr *fused = node[n].fused;
        *ok = sx_body_kernel_kind(fused->body) == SX_KERNEL_MAP && fused->body->axes == 0 &&
              sx_type_same_shape(&fused->type, &node[0].fused->type);
        made[n].fused = *fused;
        memcpy(made[n].tensor, node[n].tensor, fused->body->arg_count * sizeof(made[n].tensor[0]));
        SX_TRY(*ok ? merge_equal(cx, &made[n]) : SX_OK);
        SX_TRY(*ok ? take_results(cx, node, n, made, ok) : SX_OK);
        const sx_body *body = made[n].fused.body;
        for (uint32_t a = 0; a < body->arg_count && *ok; a++) {
            *ok = put_argument(join, whole, &made[n], a, &argument[n][a]);
        }
        *ok = *ok && append(whole, body, argument[n], &join->root[n]);
    }
    *ok = *ok && sx_body_keeps_bits(whole);
    if (!*ok) {
        return SX_OK;
    }
    sx_body_wrap(&node[0].fused->type, whole, &join->whole);
    return make_members(cx, made, argument, whole, join);
}

/* Nodes of a graph, in the words of sx_fused_join, with room for what it points to. */
typedef struct {
    sx_join_node node[SX_FUSED_RESULTS_MAX];
    uint32_t tensor[SX_FUSED_RESULTS_MAX][SX_INPUTS_MAX];
} naming;

sx_code sx_fused_join_nodes(sx_ctx *cx, const sx_graph *graph, const uint32_t *member,
                            uint32_t count, sx_join *join, bool *ok)
{
    SX_ASSERT(count > 0 && count <= SX_FUSED_RESULTS_MAX);
    naming *names = SX_NEW(cx, naming);
    if (names == NULL) {
        return cx->error.code;
    }
    for (uint32_t k = 0; k < count; k++) {
        SX_ASSERT(member[k] < graph->node_count);
        const sx_node *node = &graph->node[member[k]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            names->tensor[k][i] = sx_graph_input(graph, node, i).i;
        }
        names->node[k] = (sx_join_node){.fused = sx_graph_attr(graph, node),
                                        .type = &node->type,
                                        .tensor = names->tensor[k],
                                        .result = member[k]};
        *ok = node->op == SX_OP_FUSED;
        if (!*ok) {
            return SX_OK;
        }
    }
    return sx_fused_join(cx, names->node, count, join, ok);
}
