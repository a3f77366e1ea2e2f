/* join.c - several nodes over the same rows as one program with a result for each.
 *
 * The nodes are maps over one space, or row kernels of one space and the same reduced dimensions; beside rows stand
 * maps over the whole space (a sum and the norm of what was summed up), and maps over what is left of it when it is
 * reduced (the root of a variance). A result is as large as the space, or has one value a row.
 *
 * Nothing is computed in another way: each result has the instructions that its node has alone, and equal ones of
 * equal operands are one. A node that reads an earlier result at its own element, or at its own row, takes the value
 * before it is stored, which has been rounded to the type of that result. */
#include "core/fuse/fuse.h"

#include <string.h>

#include "core/ir/fused_body.h"

/* A node with what it reads of earlier results made in place, and the tensors of its arguments. */
typedef struct {
    sx_attr fused;
    uint32_t tensor[SX_FUSED_ARGS_MAX];
    /* The result is as large as the space; else it has one value a row. */
    bool full;
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

/* Does the argument read, of a result that has these elements, the one with the number of the point or of its row?
 * Extents are numbers. */
static bool reads_own(const sx_attr *fused, uint32_t argument, uint32_t axes, bool full)
{
    const sx_access *access = &fused->body->access[argument];
    bool own = access->offset.scale == 0;
    int64_t stride = 1;
    for (uint32_t d = fused->type.rank; d-- > 0;) {
        int64_t extent = fused->type.dim[d].scale;
        bool has = full || (axes >> d & 1) == 0;
        own = own && (extent == 1 || access->stride[d].scale == (has ? stride : 0));
        stride *= has ? extent : 1;
    }
    return own;
}

/* Appends the program of a node, which reads arguments under other numbers; instead of argument `instead` it takes the
 * value `made`. False: the body is full. */
static bool append(sx_body *to, const sx_body *from, const uint32_t *argument, uint32_t instead,
                   uint32_t made, uint32_t *result)
{
    uint32_t renamed[SX_FUSED_INSTRS_MAX] = {0};
    for (uint32_t i = 0; i < from->instr_count; i++) {
        sx_instr in = from->instr[i];
        uint32_t count = sx_body_operand_count(&in);
        if (in.kind == SX_BODY_ARG && in.x == instead) {
            renamed[i] = made;
            continue;
        }
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

#define NO_ARGUMENT UINT32_MAX

/* Puts the program of an earlier node in the place of argument `a`, which reads its result where the node itself is.
 * *ok is false where there is no room. */
static sx_code take_result(sx_ctx *cx, expanded *e, uint32_t a, const expanded *producer,
                           uint32_t axes, bool *ok)
{
    const sx_body *own = e->fused.body, *before = producer->fused.body;
    uint32_t number[SX_FUSED_ARGS_MAX] = {0}, theirs[SX_FUSED_ARGS_MAX], made, result;
    sx_body *body = sx_body_make(cx);
    if (body == NULL) {
        return cx->error.code;
    }
    *ok = own->arg_count - 1 + before->arg_count <= SX_FUSED_ARGS_MAX;
    if (!*ok) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < own->arg_count; k++) {
        if (k != a) {
            number[k] = body->arg_count;
            body->access[body->arg_count] = own->access[k];
            e->tensor[body->arg_count++] = e->tensor[k];
        }
    }
    for (uint32_t k = 0; k < before->arg_count; k++) {
        theirs[k] = body->arg_count;
        body->access[body->arg_count] = before->access[k];
        e->tensor[body->arg_count++] = producer->tensor[k];
    }
    *ok = append(body, before, theirs, NO_ARGUMENT, 0, &made) &&
          append(body, own, number, a, made, &result);
    if (!*ok) {
        return SX_OK;
    }
    sx_body_trim(body, result);
    body->axes = sx_body_kernel_kind(body) == SX_KERNEL_ROW ? axes : 0;
    sx_type space = e->fused.type;
    sx_body_wrap(&space, body, &e->fused);
    *ok = sx_body_result_is_full(&space, body) == e->full;
    return *ok ? merge_equal(cx, e) : SX_OK;
}

/* Puts the program of an earlier node in the place of each argument that is its result. */
static sx_code take_results(sx_ctx *cx, const sx_join_node *node, uint32_t n, uint32_t axes,
                            expanded *made, bool *ok)
{
    expanded *e = &made[n];
    for (uint32_t k = n; k-- > 0 && *ok;) {
        for (uint32_t a = 0; a < e->fused.body->arg_count && *ok; a++) {
            if (e->tensor[a] != node[k].result) {
                continue;
            }
            *ok = reads_own(&e->fused, a, axes, made[k].full);
            if (*ok) {
                SX_TRY(take_result(cx, e, a, &made[k], axes, ok));
            }
            a = UINT32_MAX; /* arguments have other numbers */
        }
    }
    return SX_OK;
}

/* ---- one space for all ---- */

/* The space of the nodes, and its dimensions that are reduced: that of the first row kernel, else of the first node. */
static const sx_type *space_of(const sx_join_node *node, uint32_t count, uint32_t *axes)
{
    *axes = 0;
    for (uint32_t n = 0; n < count; n++) {
        if (sx_body_kernel_kind(node[n].fused->body) == SX_KERNEL_ROW) {
            *axes = node[n].fused->body->axes;
            return &node[n].fused->type;
        }
    }
    return &node[0].fused->type;
}

/* Is it the space without its reduced dimensions? */
static bool is_reduced_space(const sx_type *type, const sx_type *space, uint32_t axes)
{
    sx_type left = {.dtype = type->dtype};
    for (uint32_t d = 0; d < space->rank; d++) {
        if ((axes >> d & 1) == 0) {
            left.dim[left.rank++] = space->dim[d];
        }
    }
    return axes != 0 && sx_type_same_shape(&left, type);
}

/* A map over rows as one over the points of the rows, which are all the same. */
static sx_code widen(sx_ctx *cx, const sx_attr *fused, const sx_type *space, uint32_t axes,
                     sx_attr *wide)
{
    sx_body *body = sx_body_make(cx);
    uint32_t of[SX_RANK_MAX] = {0}, rank = 0;
    if (body == NULL) {
        return cx->error.code;
    }
    for (uint32_t d = 0; d < space->rank; d++) {
        if ((axes >> d & 1) == 0) {
            of[rank++] = d;
        }
    }
    SX_ASSERT(rank == fused->type.rank);
    body->arg_count = fused->body->arg_count;
    body->instr_count = fused->body->instr_count;
    for (uint32_t a = 0; a < body->arg_count; a++) {
        body->access[a].offset = fused->body->access[a].offset;
        for (uint32_t d = 0; d < rank; d++) {
            body->access[a].stride[of[d]] = fused->body->access[a].stride[d];
        }
    }
    for (uint32_t i = 0; i < body->instr_count; i++) {
        body->instr[i] = fused->body->instr[i];
        bool index = body->instr[i].kind == SX_BODY_INDEX;
        body->instr[i].x = index ? of[body->instr[i].x] : body->instr[i].x;
    }
    sx_type type = *space;
    type.dtype = fused->type.dtype;
    sx_body_wrap(&type, body, wide);
    return SX_OK;
}

/* A node as one over the space of all; *ok is false where it is none. */
static sx_code take_node(sx_ctx *cx, const sx_join_node *node, const sx_type *space, uint32_t axes,
                         expanded *e, bool *ok)
{
    const sx_attr *fused = node->fused;
    const sx_body *body = fused->body;
    bool rows = sx_body_kernel_kind(body) == SX_KERNEL_ROW;
    bool map = sx_body_kernel_kind(body) == SX_KERNEL_MAP && body->axes == 0;
    bool same = sx_type_same_shape(&fused->type, space);
    bool wider = map && is_reduced_space(&fused->type, space, axes);
    memcpy(e->tensor, node->tensor, body->arg_count * sizeof(e->tensor[0]));
    *ok = wider || (same && (map || (rows && body->axes == axes)));
    e->fused = *fused;
    e->full = *ok && !wider && sx_body_result_is_full(space, body);
    SX_TRY(wider ? widen(cx, fused, space, axes, &e->fused) : SX_OK);
    return *ok ? merge_equal(cx, e) : SX_OK;
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

/* Is each result along the rows as the program of all says it is? One that has a value for each point of the space but
 * does not depend on the reduced dimensions is none of a kernel of rows. */
static bool results_fit(const sx_join *join, const expanded *made, const sx_body *whole,
                        const sx_type *space)
{
    uint32_t vary[SX_FUSED_INSTRS_MAX];
    sx_body_vary(whole, space->rank, vary);
    bool fit = true;
    for (uint32_t n = 0; n < join->count; n++) {
        bool full = whole->axes == 0 || (vary[join->root[n]] & whole->axes) != 0;
        bool reduces = whole->axes == 0 || made[n].full || made[n].fused.body->axes != 0;
        fit = fit && full == made[n].full && reduces;
    }
    return fit;
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
        bool fits = append(body, made[n].fused.body, argument[n], NO_ARGUMENT, 0, &result);
        SX_ASSERT(fits && result + 1 == body->instr_count);
        body->axes = made[n].fused.body->axes;
        sx_body_wrap(&made[n].fused.type, body, &join->member[n]);
    }
    return SX_OK;
}

sx_code sx_fused_join(sx_ctx *cx, const sx_join_node *node, uint32_t count, sx_join *join, bool *ok)
{
    SX_ASSERT(count > 0 && count <= SX_FUSED_RESULTS_MAX);
    expanded *made = SX_NEW_ARRAY(cx, expanded, count);
    sx_body *whole = sx_body_make(cx);
    uint32_t argument[SX_FUSED_RESULTS_MAX][SX_FUSED_ARGS_MAX], axes;
    const sx_type *space = space_of(node, count, &axes);
    if (made == NULL || whole == NULL) {
        return cx->error.code;
    }
    *join = (sx_join){.count = count};
    *ok = true;
    whole->axes = axes;
    for (uint32_t n = 0; n < count && *ok; n++) {
        SX_TRY(take_node(cx, &node[n], space, axes, &made[n], ok));
        SX_TRY(*ok ? take_results(cx, node, n, axes, made, ok) : SX_OK);
        const sx_body *body = made[n].fused.body;
        for (uint32_t a = 0; a < body->arg_count && *ok; a++) {
            *ok = put_argument(join, whole, &made[n], a, &argument[n][a]);
        }
        *ok = *ok && append(whole, body, argument[n], NO_ARGUMENT, 0, &join->root[n]);
    }
    *ok = *ok && results_fit(join, made, whole, space) && sx_body_keeps_bits(whole);
    if (!*ok) {
        return SX_OK;
    }
    sx_body_wrap(space, whole, &join->whole);
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
