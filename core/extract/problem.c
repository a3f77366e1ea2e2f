/* problem.c - the flat arrays: room, checks, walks. */
#include <math.h>

#include "core/extract/extract.h"

const char *sx_xt_stop_name(sx_xt_stop stop)
{
    switch (stop) {
    case SX_XT_PROVEN: return "proven";
    case SX_XT_FUEL: return "fuel";
    case SX_XT_DEADLINE: return "deadline";
    case SX_XT_SIZE: return "size";
    }
    SX_UNREACHABLE();
}

sx_code sx_xt_init(sx_ctx *cx, sx_xt *problem, uint32_t class_count, uint32_t node_count,
                   uint32_t edge_count, uint32_t root_count)
{
    if (class_count > SX_XT_CLASSES_MAX || node_count > SX_XT_CLASSES_MAX) {
        return SX_FAIL(cx, SX_LIMIT,
                       "extraction problem: %u classes and %u nodes, at most %u of each",
                       class_count, node_count, SX_XT_CLASSES_MAX);
    }
    *problem = (sx_xt){.class_count = class_count,
                       .node_count = node_count,
                       .edge_count = edge_count,
                       .root_count = root_count};
    problem->node_first = SX_NEW_ARRAY(cx, uint32_t, (size_t)class_count + 1);
    problem->edge_first = SX_NEW_ARRAY(cx, uint32_t, (size_t)node_count + 1);
    problem->child = SX_NEW_ARRAY(cx, uint32_t, (size_t)edge_count + 1);
    problem->cost = SX_NEW_ARRAY(cx, double, (size_t)node_count + 1);
    problem->root = SX_NEW_ARRAY(cx, uint32_t, (size_t)root_count + 1);
    bool room = problem->node_first != NULL && problem->edge_first != NULL &&
                problem->child != NULL && problem->cost != NULL && problem->root != NULL;
    return room ? SX_OK : cx->error.code;
}

/* first[0] = 0 <= first[1] <= .. = total. */
static bool is_partition(const uint32_t *first, uint32_t count, uint32_t total)
{
    bool ok = first[0] == 0 && first[count] == total;
    for (uint32_t i = 0; ok && i < count; i++) {
        ok = first[i] <= first[i + 1];
    }
    return ok;
}

sx_code sx_xt_check(sx_ctx *cx, const sx_xt *problem)
{
    if (!is_partition(problem->node_first, problem->class_count, problem->node_count) ||
        !is_partition(problem->edge_first, problem->node_count, problem->edge_count)) {
        return SX_FAIL(cx, SX_INPUT, "extraction problem: ranges of nodes or edges out of order");
    }
    for (uint32_t n = 0; n < problem->node_count; n++) {
        if (!(problem->cost[n] >= 0)) {
            return SX_FAIL(cx, SX_INPUT, "node %u: cost %g, at least 0", n, problem->cost[n]);
        }
        for (uint32_t e = problem->edge_first[n]; e < problem->edge_first[n + 1]; e++) {
            if (problem->child[e] >= problem->class_count) {
                return SX_FAIL(cx, SX_INPUT, "node %u: reads class %u of %u", n, problem->child[e],
                               problem->class_count);
            }
        }
    }
    uint8_t *seen = SX_NEW_ARRAY(cx, uint8_t, (size_t)problem->class_count + 1);
    if (seen == NULL) {
        return cx->error.code;
    }
    for (uint32_t r = 0; r < problem->root_count; r++) {
        uint32_t root = problem->root[r];
        if (root >= problem->class_count) {
            return SX_FAIL(cx, SX_INPUT, "root %u: class %u of %u", r, root, problem->class_count);
        }
        if (seen[root]++ != 0) {
            return SX_FAIL(cx, SX_INPUT, "root %u: class %u is a root already", r, root);
        }
    }
    return problem->root_count > 0 ? SX_OK
                                   : SX_FAIL(cx, SX_INPUT, "extraction problem: no root class");
}

/* ---- walk ---- */

enum { UNSEEN, OPEN, DONE };

typedef struct {
    uint8_t *mark;   /* per class */
    uint32_t *stack; /* classes open */
    uint32_t *next;  /* per stack slot: next edge */
} walker;

static bool walk_class(walker *w, const sx_xt *p, const uint32_t *choice, uint32_t root,
                       sx_xt_walk *walk)
{
    uint32_t top = 0;
    uint32_t class_ = root;
    bool entering = true;
    for (;;) {
        uint32_t n = choice[class_];
        if (entering) {
            if (n == SX_XT_NONE || n < p->node_first[class_] || n >= p->node_first[class_ + 1] ||
                isinf(p->cost[n])) {
                return false;
            }
            w->mark[class_] = OPEN;
            w->stack[top] = class_;
            w->next[top] = p->edge_first[n];
            entering = false;
        }
        if (w->next[top] < p->edge_first[n + 1]) {
            uint32_t child = p->child[w->next[top]++];
            if (w->mark[child] == OPEN) {
                return false;
            }
            if (w->mark[child] == UNSEEN) {
                class_ = child;
                top++;
                entering = true;
            }
            continue;
        }
        w->mark[class_] = DONE;
        walk->order[walk->order_count++] = class_;
        walk->cost += p->cost[n];
        if (top == 0) {
            return true;
        }
        class_ = w->stack[--top];
    }
}

sx_code sx_xt_walk_run(sx_ctx *cx, const sx_xt *problem, const uint32_t *choice, sx_xt_walk *walk)
{
    walker w;
    size_t count = (size_t)problem->class_count + 1;
    w.mark = SX_NEW_ARRAY(cx, uint8_t, count);
    w.stack = SX_NEW_ARRAY_UNSET(cx, uint32_t, count);
    w.next = SX_NEW_ARRAY_UNSET(cx, uint32_t, count);
    *walk = (sx_xt_walk){.order = SX_NEW_ARRAY_UNSET(cx, uint32_t, count), .whole = true};
    if (w.mark == NULL || w.stack == NULL || w.next == NULL || walk->order == NULL) {
        return cx->error.code;
    }
    for (uint32_t r = 0; r < problem->root_count && walk->whole; r++) {
        uint32_t root = problem->root[r];
        walk->whole = w.mark[root] == DONE || walk_class(&w, problem, choice, root, walk);
    }
    SX_ASSERT(walk->order_count <= problem->class_count);
    return SX_OK;
}
