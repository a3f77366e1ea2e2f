/* part.c - pieces of a problem: memory, ropes, programs, independent pieces. */
#include <math.h>
#include <string.h>

#include "core/extract/inner.h"

#define BLOCK_BYTES_MIN \
    ((size_t)64 << 10) /* of the first block; each further one is twice as large */
#define BLOCK_BYTES_MAX ((size_t)32 << 20) /* unless more is wanted at once */
#define POLL_WORK UINT64_C(1000000)

/* ---- memory ---- */

void *sx_xt_take(xt *x, size_t count, size_t size)
{
    SX_ASSERT(size > 0 && x->pool.at <= x->pool.block_count);
    xt_pool *p = &x->pool;
    size_t bytes;
    if (!sx_mul_size(count, size, &bytes) || bytes > SIZE_MAX - 63) {
        (void)SX_FAIL(x->cx, SX_NOMEM, "extraction: %zu items of %zu bytes", count, size);
        return NULL;
    }
    bytes = (bytes + 63) & ~(size_t)63;
    while (p->at < p->block_count && p->block_bytes[p->at] - p->used < bytes) {
        p->at++;
        p->used = 0;
    }
    if (p->at == p->block_count) {
        size_t wanted = p->block_count > 0 ? p->block_bytes[p->block_count - 1] : 0;
        wanted = 2 * wanted < BLOCK_BYTES_MAX ? 2 * wanted : BLOCK_BYTES_MAX;
        wanted = wanted < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : wanted;
        while (wanted < bytes) {
            wanted *= 2;
        }
        if (p->block_count == XT_BLOCKS_MAX) {
            (void)SX_FAIL(x->cx, SX_NOMEM, "extraction: %u blocks of memory in use", XT_BLOCKS_MAX);
            return NULL;
        }
        p->block[p->at] = sx_alloc_unset(x->cx, wanted);
        if (p->block[p->at] == NULL) {
            return NULL;
        }
        p->block_bytes[p->block_count++] = wanted;
        p->used = 0;
    }
    uint8_t *bytes_at = p->block[p->at] + p->used;
    p->used += bytes;
    return bytes_at;
}

void *sx_xt_take_zeroed(xt *x, size_t count, size_t size)
{
    void *memory = sx_xt_take(x, count, size);
    if (memory != NULL) {
        memset(memory, 0, count * size);
    }
    return memory;
}

/* ---- fuel ---- */

bool sx_xt_out(const xt *x)
{
    return x->work >= x->budget || x->expired || x->cancelled;
}

bool sx_xt_spend(xt *x, uint64_t amount)
{
    x->work += amount;
    if (x->work >= x->next_poll) {
        x->next_poll = x->work + POLL_WORK;
        x->expired = x->expired ||
                     (x->options->expired != NULL && x->options->expired(x->options->expired_self));
        x->cancelled =
            x->cancelled || (x->cx->cancelled != NULL && x->cx->cancelled(x->cx->cancelled_self));
    }
    return !sx_xt_out(x);
}

/* ---- ropes ---- */

sx_code sx_xt_join(xt *x, uint32_t a, uint32_t b, uint32_t *rope)
{
    if (a == SX_XT_NONE || b == SX_XT_NONE) {
        *rope = a == SX_XT_NONE ? b : a;
        return SX_OK;
    }
    SX_ASSERT(a < x->problem->node_count + x->join_count &&
              b < x->problem->node_count + x->join_count);
    if (x->join_count >= SX_XT_NONE - 1 - x->problem->node_count) {
        return SX_FAIL(x->cx, SX_LIMIT, "extraction: %u joins of choices", x->join_count);
    }
    SX_TRY(
        sx_grow(x->cx, (void **)&x->join, &x->join_capacity, x->join_count + 1, sizeof(*x->join)));
    x->join[x->join_count] = (xt_join){a, b};
    *rope = x->problem->node_count + x->join_count++;
    return SX_OK;
}

sx_code sx_xt_write_rope(xt *x, uint32_t rope, const uint32_t *owner, uint32_t *choice)
{
    SX_ASSERT(rope == SX_XT_NONE || rope < x->problem->node_count + x->join_count);
    xt_mark mark = sx_xt_mark(x);
    uint32_t leaves = x->problem->node_count;
    uint32_t *stack = XT_TAKE(x, uint32_t, (size_t)x->join_count * 2 + 2);
    uint8_t *met = XT_TAKE_ZEROED(x, uint8_t, (size_t)x->join_count + 1);
    uint32_t top = 0;
    if (stack == NULL || met == NULL) {
        return x->cx->error.code;
    }
    if (rope != SX_XT_NONE) {
        stack[top++] = rope;
    }
    while (top > 0) {
        uint32_t at = stack[--top];
        if (at < leaves) {
            choice[owner[at]] = at;
        } else if (met[at - leaves]++ == 0) {
            stack[top++] = x->join[at - leaves].a;
            stack[top++] = x->join[at - leaves].b;
        }
    }
    sx_xt_release(x, mark);
    return SX_OK;
}

/* ---- parts ---- */

sx_code sx_xt_part_make(xt *x, xt_part *part, uint32_t class_count, uint32_t node_count,
                        uint32_t edge_count)
{
    SX_ASSERT(edge_count < UINT32_MAX / 2); /* half as many again and 64 fit in 32 bits */
    *part =
        (xt_part){.class_count = class_count, .node_count = node_count, .paid_rope = SX_XT_NONE};
    part->child_capacity = edge_count + edge_count / 2 + 64;
    part->node_first = XT_TAKE(x, uint32_t, (size_t)class_count + 1);
    part->edge_first = XT_TAKE(x, uint32_t, (size_t)node_count + 1);
    part->child = XT_TAKE(x, uint32_t, part->child_capacity);
    part->cost = XT_TAKE(x, uint64_t, (size_t)node_count + 1);
    part->rope = XT_TAKE(x, uint32_t, (size_t)node_count + 1);
    part->forced = XT_TAKE_ZEROED(x, uint8_t, (size_t)class_count + 1);
    if (part->node_first == NULL || part->edge_first == NULL || part->child == NULL ||
        part->cost == NULL || part->rope == NULL || part->forced == NULL) {
        return x->cx->error.code;
    }
    part->node_first[0] = 0;
    part->edge_first[0] = 0;
    return SX_OK;
}

sx_code sx_xt_part_copy(xt *x, const xt_part *from, const uint8_t *keep, xt_part *to)
{
    SX_TRY(sx_xt_part_make(x, to, from->class_count, from->node_count, sx_xt_edges(from)));
    to->paid = from->paid;
    to->paid_rope = from->paid_rope;
    memcpy(to->forced, from->forced, from->class_count);
    uint32_t nodes = 0;
    uint32_t edges = 0;
    for (uint32_t c = 0; c < from->class_count; c++) {
        for (uint32_t n = from->node_first[c]; n < from->node_first[c + 1]; n++) {
            if (keep != NULL && keep[n] == 0) {
                continue;
            }
            for (uint32_t e = from->edge_first[n]; e < from->edge_first[n + 1]; e++) {
                to->child[edges++] = from->child[e];
            }
            to->cost[nodes] = from->cost[n];
            to->rope[nodes++] = from->rope[n];
            to->edge_first[nodes] = edges;
        }
        to->node_first[c + 1] = nodes;
    }
    SX_ASSERT(nodes <= from->node_count && edges <= to->child_capacity);
    to->node_count = nodes;
    return SX_OK;
}

sx_code sx_xt_part_pick(xt *x, const xt_part *from, const uint32_t *label, uint32_t wanted,
                        xt_part *to)
{
    uint32_t *number = XT_TAKE(x, uint32_t, (size_t)from->class_count + 1);
    uint32_t classes = 0;
    uint32_t nodes = 0;
    uint32_t edges = 0;
    if (number == NULL) {
        return x->cx->error.code;
    }
    for (uint32_t c = 0; c < from->class_count; c++) {
        if (label[c] == wanted) {
            number[c] = classes++;
            nodes += from->node_first[c + 1] - from->node_first[c];
            edges +=
                from->edge_first[from->node_first[c + 1]] - from->edge_first[from->node_first[c]];
        }
    }
    SX_TRY(sx_xt_part_make(x, to, classes, nodes, edges));
    classes = nodes = edges = 0;
    for (uint32_t c = 0; c < from->class_count; c++) {
        if (label[c] != wanted) {
            continue;
        }
        to->forced[classes] = from->forced[c];
        for (uint32_t n = from->node_first[c]; n < from->node_first[c + 1]; n++) {
            for (uint32_t e = from->edge_first[n]; e < from->edge_first[n + 1]; e++) {
                to->child[edges++] = number[from->child[e]];
            }
            to->cost[nodes] = from->cost[n];
            to->rope[nodes++] = from->rope[n];
            to->edge_first[nodes] = edges;
        }
        to->node_first[++classes] = nodes;
    }
    SX_ASSERT(classes == to->class_count && nodes == to->node_count);
    return SX_OK;
}

sx_code sx_xt_view_of(xt *x, const xt_part *part, sx_xt *view)
{
    *view = (sx_xt){.class_count = part->class_count,
                    .node_count = part->node_count,
                    .edge_count = sx_xt_edges(part),
                    .node_first = part->node_first,
                    .edge_first = part->edge_first,
                    .child = part->child};
    view->cost = XT_TAKE(x, double, (size_t)part->node_count + 1);
    if (view->cost == NULL) {
        return x->cx->error.code;
    }
    for (uint32_t n = 0; n < part->node_count; n++) {
        view->cost[n] = part->cost[n] >= XT_TOP ? (double)INFINITY : (double)part->cost[n];
    }
    return SX_OK;
}

static uint32_t leader(uint32_t *up, uint32_t c)
{
    while (up[c] != c) {
        up[c] = up[up[c]];
        c = up[c];
    }
    return c;
}

sx_code sx_xt_split(xt *x, const xt_part *part, uint32_t *label, uint32_t *count)
{
    xt_mark mark = sx_xt_mark(x);
    uint32_t *up = XT_TAKE(x, uint32_t, (size_t)part->class_count + 1);
    if (up == NULL) {
        return x->cx->error.code;
    }
    for (uint32_t c = 0; c < part->class_count; c++) {
        up[c] = c;
    }
    for (uint32_t c = 0; c < part->class_count; c++) {
        uint32_t last = part->edge_first[part->node_first[c + 1]];
        for (uint32_t e = part->edge_first[part->node_first[c]]; e < last; e++) {
            uint32_t a = leader(up, c);
            uint32_t b = leader(up, part->child[e]);
            up[a > b ? a : b] = a > b ? b : a;
        }
    }
    *count = 0;
    for (uint32_t c = 0; c < part->class_count; c++) { /* leaders are smallest: labelled first */
        uint32_t a = leader(up, c);
        label[c] = a == c ? (*count)++ : label[a];
    }
    sx_xt_release(x, mark);
    return SX_OK;
}

/* ---- programs ---- */

sx_code sx_xt_program_make(xt *x, const xt_part *part, xt_program *program)
{
    program->choice = XT_TAKE(x, uint32_t, (size_t)part->class_count + 1);
    program->order = XT_TAKE(x, uint32_t, (size_t)part->class_count + 1);
    program->count = 0;
    program->cost = XT_NEVER;
    return program->choice == NULL || program->order == NULL ? x->cx->error.code : SX_OK;
}

enum { UNSEEN, OPEN, DONE };

/* Depth first from one class; false on a cycle or a hole. */
static bool walk_from(const xt_part *p, xt_program *g, uint8_t *mark, uint32_t *stack,
                      uint32_t *next, uint32_t class_)
{
    uint32_t top = 0;
    stack[0] = class_;
    mark[class_] = UNSEEN;
    for (;;) {
        class_ = stack[top];
        uint32_t n = g->choice[class_];
        if (mark[class_] == UNSEEN) {
            if (n == SX_XT_NONE) {
                return false;
            }
            mark[class_] = OPEN;
            next[top] = p->edge_first[n];
        }
        if (next[top] < p->edge_first[n + 1]) {
            uint32_t child = p->child[next[top]++];
            if (mark[child] == OPEN) {
                return false;
            }
            if (mark[child] == UNSEEN) {
                stack[++top] = child;
            }
            continue;
        }
        mark[class_] = DONE;
        g->order[g->count++] = class_;
        g->cost = sx_xt_add(g->cost, p->cost[n]);
        if (top-- == 0) {
            return true;
        }
    }
}

sx_code sx_xt_program_walk(xt *x, const xt_part *part, xt_program *program)
{
    xt_mark mark = sx_xt_mark(x);
    size_t count = (size_t)part->class_count + 1;
    uint8_t *seen = XT_TAKE_ZEROED(x, uint8_t, count);
    uint32_t *stack = XT_TAKE(x, uint32_t, count);
    uint32_t *next = XT_TAKE(x, uint32_t, count);
    if (seen == NULL || stack == NULL || next == NULL) {
        return x->cx->error.code;
    }
    program->count = 0;
    program->cost = 0;
    bool whole = true;
    for (uint32_t c = 0; c < part->class_count && whole; c++) {
        whole = part->forced[c] == 0 || seen[c] == DONE ||
                walk_from(part, program, seen, stack, next, c);
    }
    program->cost = whole ? program->cost : XT_NEVER;
    SX_ASSERT(program->count <= part->class_count);
    (void)sx_xt_spend(x, program->count);
    sx_xt_release(x, mark);
    return SX_OK;
}
