/* greedy.c - good programs quickly: the tree optimum, and sets of classes built from the leaves in several
 * fixed orders.
 *
 * Greedy sets: every class knows the set of classes its best program so far holds; a node is priced by the
 * union of its children's sets. What a class knows depends on the order of visits, and a stale set can hide a
 * cycle: so several orders, and each result is walked before it counts. */
#include <string.h>

#include "core/extract/inner.h"

#define SETS_BYTES_MAX ((size_t)48 << 20)

typedef struct {
    xt *x;
    const xt_part *part;
    uint32_t words;
    uint64_t *set;   /* per class: classes of its program */
    uint64_t *total; /* per class: cost of its program */
    uint32_t *choice;
    uint64_t *scratch;
    uint32_t *owner; /* per node: its class */
    uint32_t *reader_first, *reader;
    uint32_t *queue; /* ring of nodes */
    uint8_t *queued;
} greedy;

static sx_code offer(xt *x, const xt_part *part, xt_program *try_, xt_program *best)
{
    SX_TRY(sx_xt_program_walk(x, part, try_));
    if (try_->cost < best->cost) {
        memcpy(best->choice, try_->choice, part->class_count * sizeof(uint32_t));
        memcpy(best->order, try_->order, try_->count * sizeof(uint32_t));
        best->count = try_->count;
        best->cost = try_->cost;
    }
    return SX_OK;
}

static sx_code index_readers(greedy *g)
{
    const xt_part *p = g->part;
    g->owner = XT_TAKE(g->x, uint32_t, (size_t)p->node_count + 1);
    g->reader_first = XT_TAKE_ZEROED(g->x, uint32_t, (size_t)p->class_count + 2);
    g->reader = XT_TAKE(g->x, uint32_t, (size_t)sx_xt_edges(p) + 1);
    if (g->owner == NULL || g->reader_first == NULL || g->reader == NULL) {
        return g->x->cx->error.code;
    }
    for (uint32_t e = 0; e < sx_xt_edges(p); e++) {
        g->reader_first[p->child[e] + 2]++;
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        g->reader_first[c + 2] += g->reader_first[c + 1];
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            g->owner[n] = c;
        }
    }
    for (uint32_t n = 0; n < p->node_count; n++) {
        for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
            g->reader[g->reader_first[p->child[e] + 1]++] = n;
        }
    }
    return SX_OK;
}

static sx_code greedy_init(greedy *g)
{
    size_t classes = (size_t)g->part->class_count + 1;
    size_t nodes = (size_t)g->part->node_count + 1;
    SX_TRY(index_readers(g));
    g->set = XT_TAKE(g->x, uint64_t, classes * g->words);
    g->total = XT_TAKE(g->x, uint64_t, classes);
    g->choice = XT_TAKE(g->x, uint32_t, classes);
    g->scratch = XT_TAKE(g->x, uint64_t, g->words);
    g->queue = XT_TAKE(g->x, uint32_t, nodes);
    g->queued = XT_TAKE(g->x, uint8_t, nodes);
    bool room = g->set != NULL && g->total != NULL && g->choice != NULL && g->scratch != NULL &&
                g->queue != NULL && g->queued != NULL;
    return room ? SX_OK : g->x->cx->error.code;
}

/* The set and cost of node n from those of its children; true if its class gets cheaper, or as cheap by a
 * smaller node. */
static bool improve(greedy *g, uint32_t n)
{
    const xt_part *p = g->part;
    uint32_t own = g->owner[n];
    bool smaller = n < g->choice[own];
    if (p->cost[n] > g->total[own] || (p->cost[n] == g->total[own] && !smaller)) {
        return false;
    }
    uint64_t most = g->total[own] - (smaller ? 0 : 1); /* equals: the smaller node */
    memset(g->scratch, 0, g->words * sizeof(uint64_t));
    for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
        uint32_t child = p->child[e];
        if (g->total[child] == XT_NEVER) {
            return false;
        }
        const uint64_t *set = &g->set[(size_t)child * g->words];
        for (uint32_t w = 0; w < g->words; w++) {
            g->scratch[w] |= set[w];
        }
    }
    (void)sx_xt_spend(g->x, g->words * (1 + (uint64_t)(p->edge_first[n + 1] - p->edge_first[n])));
    if ((g->scratch[own / 64] >> (own % 64) & 1) != 0) {
        return false; /* a cycle */
    }
    uint64_t total = p->cost[n];
    for (uint32_t w = 0; w < g->words && total <= most; w++) {
        for (uint64_t bits = g->scratch[w]; bits != 0; bits &= bits - 1) {
            uint32_t member = w * 64 + (uint32_t)__builtin_ctzll(bits);
            total = sx_xt_add(total, p->cost[g->choice[member]]);
        }
    }
    if (total > most) {
        return false;
    }
    g->scratch[own / 64] |= UINT64_C(1) << (own % 64);
    memcpy(&g->set[(size_t)own * g->words], g->scratch, g->words * sizeof(uint64_t));
    g->total[own] = total;
    g->choice[own] = n;
    return true;
}

/* Orders: 0 first in, first out from node 0 up; 1 from the last node down; 2 last in, first out. */
#define ORDERS 3u

static void sweep(greedy *g, uint32_t order)
{
    const xt_part *p = g->part;
    uint32_t count = p->node_count;
    uint64_t head = 0;
    uint64_t tail = 0;
    for (uint32_t c = 0; c < p->class_count; c++) {
        g->total[c] = XT_NEVER;
        g->choice[c] = SX_XT_NONE;
    }
    memset(g->queued, 0, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = order == 1 ? count - 1 - i : i;
        if (p->edge_first[n] == p->edge_first[n + 1]) {
            g->queued[n] = 1;
            g->queue[tail++ % count] = n;
        }
    }
    while (head < tail && !sx_xt_out(g->x)) {
        uint32_t n = order == 2 ? g->queue[--tail % count] : g->queue[head++ % count];
        g->queued[n] = 0;
        if (!improve(g, n)) {
            continue;
        }
        uint32_t class_ = g->owner[n];
        for (uint32_t k = g->reader_first[class_]; k < g->reader_first[class_ + 1]; k++) {
            uint32_t reader = g->reader[k];
            if (g->queued[reader] == 0) {
                g->queued[reader] = 1;
                g->queue[tail++ % count] = reader;
            }
        }
    }
}

sx_code sx_xt_greedy(xt *x, const xt_part *part, xt_program *best)
{
    xt_mark mark = sx_xt_mark(x);
    uint64_t before = best->cost;
    sx_xt view;
    sx_xt_tree tree;
    xt_program try_;
    SX_TRY(sx_xt_program_make(x, part, &try_));
    SX_TRY(sx_xt_view_of(x, part, &view));
    xt_searcher searcher;
    SX_TRY(sx_xt_searcher_init(x->cx, x, &searcher, &view, &tree));
    sx_xt_searcher_run(&searcher, NULL);
    memcpy(try_.choice, tree.choice, part->class_count * sizeof(uint32_t));
    SX_TRY(offer(x, part, &try_, best));
    greedy g = {.x = x, .part = part, .words = (part->class_count + 63) / 64};
    if (part->node_count > 0 &&
        (size_t)part->class_count * g.words <= SETS_BYTES_MAX / sizeof(uint64_t)) {
        SX_TRY(greedy_init(&g));
        for (uint32_t order = 0; order < ORDERS && !sx_xt_out(x); order++) {
            sweep(&g, order);
            memcpy(try_.choice, g.choice, part->class_count * sizeof(uint32_t));
            SX_TRY(offer(x, part, &try_, best));
        }
    }
    SX_ASSERT(best->cost <= before);
    sx_xt_release(x, mark);
    return SX_OK;
}
