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
    const uint32_t *owner; /* per node: its class */
    const uint32_t *reader_first, *reader;
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

static sx_code greedy_init(greedy *g)
{
    size_t classes = (size_t)g->part->class_count + 1;
    size_t nodes = (size_t)g->part->node_count + 1;
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
    const uint32_t words = g->words;
    const uint32_t *child = p->child;
    const uint32_t end = p->edge_first[n + 1];
    uint64_t *restrict scratch = g->scratch;
    memset(scratch, 0, words * sizeof(uint64_t));
    for (uint32_t e = p->edge_first[n]; e < end; e++) {
        if (g->total[child[e]] == XT_NEVER) {
            return false;
        }
        const uint64_t *restrict set = &g->set[(size_t)child[e] * words];
        for (uint32_t w = 0; w < words; w++) {
            scratch[w] |= set[w];
        }
    }
    (void)sx_xt_spend(g->x, g->words * (1 + (uint64_t)(p->edge_first[n + 1] - p->edge_first[n])));
    if ((g->scratch[own / 64] >> (own % 64) & 1) != 0) {
        return false; /* a cycle */
    }
    uint64_t total = p->cost[n];
    const uint64_t *cost = p->cost;
    const uint32_t *choice = g->choice;
    for (uint32_t w = 0; w < words && total <= most; w++) {
        for (uint64_t bits = scratch[w]; bits != 0; bits &= bits - 1) {
            uint32_t member = w * 64 + (uint32_t)__builtin_ctzll(bits);
            total = sx_xt_add(total, cost[choice[member]]);
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
    uint32_t head = 0; /* the queue is a ring: a node stands in it once */
    uint32_t tail = 0;
    uint32_t held = 0;
    for (uint32_t c = 0; c < p->class_count; c++) {
        g->total[c] = XT_NEVER;
        g->choice[c] = SX_XT_NONE;
    }
    memset(g->queued, 0, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = order == 1 ? count - 1 - i : i;
        if (p->edge_first[n] == p->edge_first[n + 1]) {
            g->queued[n] = 1;
            g->queue[held++] = n;
        }
    }
    tail = held < count ? held : 0;
    while (held > 0 && !sx_xt_out(g->x)) {
        uint32_t n;
        if (order == 2) {
            tail = (tail == 0 ? count : tail) - 1;
            n = g->queue[tail];
        } else {
            n = g->queue[head];
            head = head + 1 == count ? 0 : head + 1;
        }
        held--;
        g->queued[n] = 0;
        if (!improve(g, n)) {
            continue;
        }
        uint32_t class_ = g->owner[n];
        for (uint32_t k = g->reader_first[class_]; k < g->reader_first[class_ + 1]; k++) {
            uint32_t reader = g->reader[k];
            if (g->queued[reader] == 0) {
                g->queued[reader] = 1;
                g->queue[tail] = reader;
                tail = tail + 1 == count ? 0 : tail + 1;
                held++;
            }
        }
    }
}

sx_code sx_xt_greedy(xt *x, const xt_part *part, xt_trees *trees, xt_program *best)
{
    SX_ASSERT(trees->view.node_count == part->node_count);
    xt_mark mark = sx_xt_mark(x);
    uint64_t before = best->cost;
    const xt_searcher *searcher = &trees->searcher;
    xt_program try_;
    SX_TRY(sx_xt_program_make(x, part, &try_));
    sx_xt_searcher_run(&trees->searcher, NULL);
    memcpy(try_.choice, trees->tree.choice, part->class_count * sizeof(uint32_t));
    SX_TRY(offer(x, part, &try_, best));
    greedy g = {.x = x,
                .part = part,
                .words = (part->class_count + 63) / 64,
                .owner = searcher->owner,
                .reader_first = searcher->reader_first,
                .reader = searcher->reader};
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
