/* tree.c - least tree costs by priority queue (Knuth 1977): a class is settled by the cheapest node all of
 * whose children are settled, so its choices never go in a circle, whatever the ties and zeros. */
#include <float.h>
#include <math.h>

#include "core/extract/inner.h"

typedef xt_searcher searcher;
typedef xt_item item;

static bool before(item a, item b)
{
    return a.key < b.key || (a.key == b.key && a.node < b.node);
}

static void push(searcher *s, item it)
{
    uint32_t i = s->heap_count++;
    while (i > 0 && before(it, s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = it;
}

static item pop(searcher *s)
{
    item top = s->heap[0];
    item last = s->heap[--s->heap_count];
    uint32_t i = 0;
    for (;;) {
        uint32_t k = i * 2 + 1;
        if (k >= s->heap_count) {
            break;
        }
        if (k + 1 < s->heap_count && before(s->heap[k + 1], s->heap[k])) {
            k++;
        }
        if (!before(s->heap[k], last)) {
            break;
        }
        s->heap[i] = s->heap[k];
        i = k;
    }
    s->heap[i] = last;
    return top;
}

static void index_readers(searcher *s)
{
    const sx_xt *p = s->p;
    for (uint32_t e = 0; e < p->edge_count; e++) {
        s->reader_first[p->child[e] + 1]++;
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        s->reader_first[c + 1] += s->reader_first[c];
    }
    for (uint32_t n = 0; n < p->node_count; n++) {
        for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
            s->reader[s->reader_first[p->child[e]]++] = n;
        }
    }
    for (uint32_t c = p->class_count; c > 0; c--) { /* each start moved to the next: back again */
        s->reader_first[c] = s->reader_first[c - 1];
    }
    s->reader_first[0] = 0;
}

/* A node whose children are all settled competes for its class; at one price the smaller node wins. Sums beyond the
 * doubles count as the largest one: a program stays a program. */
static void offer(searcher *s, uint32_t n)
{
    uint32_t class_ = s->owner[n];
    double sum = s->sum[n] < DBL_MAX ? s->sum[n] : DBL_MAX;
    bool better = sum < s->tree->cost[class_] ||
                  (!(sum > s->tree->cost[class_]) && n < s->tree->choice[class_]);
    if (!s->settled[class_] && !isinf(s->p->cost[n]) && better) {
        s->tree->cost[class_] = sum;
        s->tree->choice[class_] = n;
        push(s, (item){sum, n});
    }
}

static void settle(searcher *s, uint32_t class_)
{
    s->settled[class_] = true;
    for (uint32_t k = s->reader_first[class_]; k < s->reader_first[class_ + 1]; k++) {
        uint32_t reader = s->reader[k];
        if (s->last != NULL) { /* children are settled in order of cost */
            s->last[reader] = class_;
            s->sum[reader] = s->p->cost[reader];
        }
        s->sum[reader] += s->tree->cost[class_];
        if (--s->pending[reader] == 0) {
            offer(s, reader);
        }
    }
}

static void *room_for(sx_ctx *cx, xt *x, size_t count, size_t size)
{
    return x != NULL ? sx_xt_take_zeroed(x, count, size) : sx_alloc_array(cx, count, size);
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
    s->sum = ROOM(double, nodes);
    s->reader_first = ROOM(uint32_t, classes + 1);
    s->reader = ROOM(uint32_t, (size_t)problem->edge_count + 1);
    s->heap = ROOM(item, nodes);
    s->settled = ROOM(bool, classes);
    tree->cost = ROOM(double, classes);
    tree->choice = ROOM(uint32_t, classes);
    if (s->owner == NULL || s->pending == NULL || s->sum == NULL || s->reader_first == NULL ||
        s->reader == NULL || s->heap == NULL || s->settled == NULL || tree->cost == NULL ||
        tree->choice == NULL) {
        return cx->error.code;
    }
    index_readers(s);
    for (uint32_t c = 0; c < problem->class_count; c++) {
        for (uint32_t n = problem->node_first[c]; n < problem->node_first[c + 1]; n++) {
            s->owner[n] = c;
        }
    }
    return SX_OK;
}

void sx_xt_searcher_run(xt_searcher *s, const uint8_t *paid)
{
    SX_ASSERT(s->heap_count == 0); /* the last run emptied it */
    const sx_xt *p = s->p;
    for (uint32_t c = 0; c < p->class_count; c++) {
        s->tree->cost[c] = (double)INFINITY;
        s->tree->choice[c] = SX_XT_NONE;
        s->settled[c] = false;
    }
    for (uint32_t n = 0; n < p->node_count; n++) {
        s->pending[n] = p->edge_first[n + 1] - p->edge_first[n];
        s->sum[n] = p->cost[n];
        if (s->pending[n] == 0) {
            offer(s, n);
        }
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
