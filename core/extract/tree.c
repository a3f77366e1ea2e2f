/* tree.c - least tree costs by priority queue (Knuth 1977): a class is settled by the cheapest node all of
 * whose children are settled, so its choices never go in a circle, whatever the ties and zeros. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/extract/inner.h"

typedef xt_searcher searcher;
typedef xt_item item;

static inline bool before(item a, item b)
{
    return a.key < b.key || (a.key == b.key && a.node < b.node);
}

/* Puts an item into the hole at i: what comes after it moves down into the hole. */
static inline void rise(item *heap, uint32_t i, item it)
{
    while (i > 0 && before(it, heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = it;
}

static void push(searcher *s, item it)
{
    rise(s->heap, s->heap_count++, it);
}

/* The hole that the first item leaves goes down to the end, where the last item, which is late mostly, fills it. */
static item pop(searcher *s)
{
    item *heap = s->heap;
    const uint32_t count = --s->heap_count;
    item top = heap[0];
    uint32_t i = 0;
    for (uint32_t k = 1; k < count; k = i * 2 + 1) {
        k += k + 1 < count && before(heap[k + 1], heap[k]) ? 1 : 0;
        heap[i] = heap[k];
        i = k;
    }
    rise(heap, i, heap[count]);
    return top;
}

static void index_readers(searcher *s)
{
    const sx_xt *p = s->p;
    const uint32_t *child = p->child;
    uint32_t *first = s->reader_first;
    uint32_t *reader = s->reader;
    for (uint32_t e = 0; e < p->edge_count; e++) {
        first[child[e] + 1]++;
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        first[c + 1] += first[c];
    }
    for (uint32_t n = 0, e = 0; n < p->node_count; n++) {
        for (const uint32_t end = p->edge_first[n + 1]; e < end; e++) {
            reader[first[child[e]]++] = n;
        }
    }
    for (uint32_t c = p->class_count; c > 0; c--) { /* each start moved to the next: back again */
        first[c] = first[c - 1];
    }
    first[0] = 0;
}

/* A node whose children are all settled competes for its class; at one price the smaller node wins. Sums beyond the
 * doubles count as the largest one: a program stays a program. */
static void offer(searcher *s, uint32_t n)
{
    uint32_t class_ = s->owner[n];
    if (s->settled[class_]) {
        return;
    }
    double sum = s->sum[n] < DBL_MAX ? s->sum[n] : DBL_MAX;
    bool better = sum < s->tree->cost[class_] ||
                  (!(sum > s->tree->cost[class_]) && n < s->tree->choice[class_]);
    if (!isinf(s->p->cost[n]) && better) {
        s->tree->cost[class_] = sum;
        s->tree->choice[class_] = n;
        push(s, (item){sum, n});
    }
}

static void settle(searcher *s, uint32_t class_)
{
    double cost = s->tree->cost[class_];
    double *sum = s->sum;
    uint32_t *pending = s->pending;
    const uint32_t *readers = s->reader;
    uint32_t *last = s->last;
    const uint32_t end = s->reader_first[class_ + 1];
    s->settled[class_] = true;
    for (uint32_t k = s->reader_first[class_]; k < end; k++) {
        uint32_t reader = readers[k];
        if (last != NULL) { /* children are settled in order of cost */
            last[reader] = class_;
            sum[reader] = s->p->cost[reader];
        }
        sum[reader] += cost;
        if (--pending[reader] == 0) {
            offer(s, reader);
        }
    }
}

/* Not cleared. */
static void *room_for(sx_ctx *cx, xt *x, size_t count, size_t size)
{
    return x != NULL ? sx_xt_take(x, count, size) : sx_alloc_array_unset(cx, count, size);
}
#define ROOM(type, count) ((type *)room_for(cx, x, (count), sizeof(type)))

sx_code sx_xt_searcher_init(sx_ctx *cx, xt *x, xt_searcher *s, const sx_xt *problem,
                            sx_xt_tree *tree)
{
    SX_ASSERT(problem->node_first[problem->class_count] == problem->node_count);
    size_t classes = (size_t)problem->class_count + 1;
    size_t nodes = (size_t)problem->node_count + 1;
    *s = (searcher){.p = problem, .tree = tree};
    s->owner = ROOM(uint32_t, nodes);
    s->pending = ROOM(uint32_t, nodes);
    s->child_count = ROOM(uint32_t, nodes);
    s->leaf = ROOM(uint32_t, nodes);
    s->sum = ROOM(double, nodes);
    s->reader_first = ROOM(uint32_t, classes + 1);
    s->reader = ROOM(uint32_t, (size_t)problem->edge_count + 1);
    s->heap = ROOM(item, nodes);
    s->settled = ROOM(bool, classes);
    tree->cost = ROOM(double, classes);
    tree->choice = ROOM(uint32_t, classes);
    if (s->owner == NULL || s->pending == NULL || s->child_count == NULL || s->leaf == NULL ||
        s->sum == NULL || s->reader_first == NULL || s->reader == NULL || s->heap == NULL ||
        s->settled == NULL || tree->cost == NULL || tree->choice == NULL) {
        return cx->error.code;
    }
    memset(tree->cost, 0,
           classes * sizeof(*tree->cost)); /* which some ask for before the first run */
    memset(s->reader_first, 0, (classes + 1) * sizeof(*s->reader_first));
    index_readers(s);
    uint32_t leaves = 0;
    for (uint32_t c = 0, n = 0; c < problem->class_count; c++) {
        for (const uint32_t end = problem->node_first[c + 1]; n < end; n++) {
            s->owner[n] = c;
            s->child_count[n] = problem->edge_first[n + 1] - problem->edge_first[n];
            s->leaf[leaves] = n;
            leaves += s->child_count[n] == 0 ? 1 : 0;
        }
    }
    s->leaf_count = leaves;
    return SX_OK;
}

sx_code sx_xt_trees_init(xt *x, const xt_part *part, xt_trees *trees)
{
    SX_ASSERT(part->node_first[part->class_count] == part->node_count);
    SX_TRY(sx_xt_view_of(x, part, &trees->view));
    return sx_xt_searcher_init(x->cx, x, &trees->searcher, &trees->view, &trees->tree);
}

void sx_xt_searcher_run(xt_searcher *s, const uint8_t *paid)
{
    SX_ASSERT(s->heap_count == 0); /* the last run emptied it */
    const sx_xt *p = s->p;
    double *cost = s->tree->cost;
    for (uint32_t c = 0; c < p->class_count; c++) {
        cost[c] = (double)INFINITY;
    }
    memset(s->tree->choice, 0xFF, p->class_count * sizeof(*s->tree->choice)); /* SX_XT_NONE */
    memset(s->settled, 0, p->class_count * sizeof(*s->settled));
    memcpy(s->pending, s->child_count, p->node_count * sizeof(*s->pending));
    memcpy(s->sum, p->cost, p->node_count * sizeof(*s->sum));
    for (uint32_t i = 0; i < s->leaf_count; i++) {
        offer(s, s->leaf[i]);
    }
    for (uint32_t c = 0; paid != NULL && c < p->class_count; c++) {
        if (paid[c] != 0) {
            s->tree->cost[c] = 0;
            s->tree->choice[c] = SX_XT_NONE;
            settle(s, c);
        }
    }
    while (s->heap_count > 0) {
        uint32_t n = pop(s).node;
        if (!s->settled[s->owner[n]]) {
            settle(s, s->owner[n]);
        }
    }
    s->tree->total = 0;
    for (uint32_t r = 0; r < p->root_count; r++) {
        s->tree->total += s->tree->cost[p->root[r]];
    }
}

sx_code sx_xt_tree_run(sx_ctx *cx, const sx_xt *problem, sx_xt_tree *tree)
{
    searcher s;
    SX_TRY(sx_xt_searcher_init(cx, NULL, &s, problem, tree));
    sx_xt_searcher_run(&s, NULL);
    return SX_OK;
}
