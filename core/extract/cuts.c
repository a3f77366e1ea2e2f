/* cuts.c - a lower bound by landmark cuts: sets of nodes of which every program picks one (Helmert, Domshlak
 * 2009, for planning without deletes, which is this problem with classes for facts and nodes for actions).
 *
 * The longest necessary chain, max(c) = min over the nodes n of c of cost(n) + max over what n reads, names
 * for every node the child that makes it late. In the graph of these links, the classes that reach the latest
 * forced class for nothing are its zone; the nodes that enter the zone from what can be made without it are a
 * cut: every program picks one of them. Their least cost goes to the bound and off the cost of each; then
 * again, until the chain is free. What a node still costs is what it adds to the bound when picked. */
#include <math.h>
#include <string.h>

#include "core/extract/inner.h"

#define CUTS_MAX 20000u

typedef struct {
    xt *x;
    const xt_part *p;
    sx_xt view; /* the part with what is left of the costs */
    sx_xt_tree chain;
    xt_searcher searcher;
    uint8_t *zone; /* per class: IN_ZONE, BEFORE or 0 */
    uint32_t *stack;
    uint32_t *cut;
    uint32_t cut_count;
} cutter;
enum { OUTSIDE, IN_ZONE, BEFORE };

static bool is_leaf(const xt_part *p, uint32_t n)
{
    return p->edge_first[n] == p->edge_first[n + 1];
}

/* The forced class with the longest chain. */
static uint32_t latest(const cutter *k)
{
    uint32_t late = SX_XT_NONE;
    for (uint32_t c = 0; c < k->p->class_count; c++) {
        if (k->p->forced[c] != 0 &&
            (late == SX_XT_NONE || k->chain.cost[c] > k->chain.cost[late])) {
            late = c;
        }
    }
    return late;
}

/* Classes that reach `goal` through free nodes, by the latest child of each. */
static void mark_zone(cutter *k, uint32_t goal)
{
    const xt_part *p = k->p;
    uint32_t top = 0;
    memset(k->zone, OUTSIDE, p->class_count);
    k->zone[goal] = IN_ZONE;
    k->stack[top++] = goal;
    while (top > 0) {
        uint32_t c = k->stack[--top];
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            bool link = k->searcher.pending[n] == 0 && !is_leaf(p, n) && !(k->view.cost[n] > 0);
            if (link && k->zone[k->searcher.last[n]] == OUTSIDE) {
                k->zone[k->searcher.last[n]] = IN_ZONE;
                k->stack[top++] = k->searcher.last[n];
            }
        }
    }
}

/* Node n can be made: into its class, or into the cut where that is in the zone. */
static void enter(cutter *k, uint32_t n, uint32_t *top)
{
    uint32_t own = k->searcher.owner[n];
    if (k->zone[own] == IN_ZONE) {
        k->cut[k->cut_count++] = n;
    } else if (k->zone[own] == OUTSIDE) {
        k->zone[own] = BEFORE;
        k->stack[(*top)++] = own;
    }
}

static void find_cut(cutter *k)
{
    const xt_part *p = k->p;
    const xt_searcher *s = &k->searcher;
    uint32_t top = 0;
    k->cut_count = 0;
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (is_leaf(p, n)) {
            enter(k, n, &top);
        }
    }
    while (top > 0) {
        uint32_t c = k->stack[--top];
        for (uint32_t i = s->reader_first[c]; i < s->reader_first[c + 1]; i++) {
            uint32_t n = s->reader[i];
            if (s->pending[n] == 0 && s->last[n] == c) {
                enter(k, n, &top);
            }
        }
    }
}

static sx_code cutter_init(cutter *k)
{
    xt *x = k->x;
    const xt_part *p = k->p;
    size_t classes = (size_t)p->class_count + 1;
    SX_TRY(sx_xt_view_of(x, p, &k->view));
    SX_TRY(sx_xt_searcher_init(x->cx, x, &k->searcher, &k->view, &k->chain));
    k->searcher.last = XT_TAKE(x, uint32_t, (size_t)p->node_count + 1);
    k->zone = XT_TAKE(x, uint8_t, classes);
    k->stack = XT_TAKE(x, uint32_t, classes);
    k->cut = XT_TAKE(x, uint32_t, (size_t)p->node_count + 1);
    bool room = k->searcher.last != NULL && k->zone != NULL && k->stack != NULL && k->cut != NULL;
    return room ? SX_OK : x->cx->error.code;
}

sx_code sx_xt_cuts(xt *x, const xt_part *part, uint64_t limit, uint8_t *kills, uint64_t *bound,
                   uint32_t *kill_count)
{
    xt_mark mark = sx_xt_mark(x);
    cutter k = {.x = x, .p = part};
    *bound = 0;
    SX_TRY(cutter_init(&k));
    for (uint32_t i = 0; i < CUTS_MAX && *bound <= limit; i++) {
        sx_xt_searcher_run(&k.searcher, NULL);
        uint32_t goal = latest(&k);
        if (goal == SX_XT_NONE || !(k.chain.cost[goal] > 0)) {
            break;
        }
        if (isinf(k.chain.cost[goal])) { /* no program at all */
            *bound = limit + x->grain;
            break;
        }
        mark_zone(&k, goal);
        find_cut(&k);
        double least = (double)INFINITY;
        for (uint32_t c = 0; c < k.cut_count; c++) {
            least = k.view.cost[k.cut[c]] < least ? k.view.cost[k.cut[c]] : least;
        }
        SX_ASSERT(least > 0 && !isinf(least));
        for (uint32_t c = 0; c < k.cut_count; c++) {
            k.view.cost[k.cut[c]] -= least;
        }
        *bound += (uint64_t)least;
        if (!sx_xt_spend(x, 4 * (uint64_t)sx_xt_edges(part) + 8 * (uint64_t)part->node_count)) {
            break;
        }
    }
    for (uint32_t n = 0; n < part->node_count && *bound <= limit; n++) {
        if (kills[n] == 0 && (double)*bound + k.view.cost[n] > (double)limit) {
            kills[n] = 1;
            (*kill_count)++;
        }
    }
    sx_xt_release(x, mark);
    return SX_OK;
}
