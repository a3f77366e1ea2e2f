/* reduce.c - makes a part smaller without losing its best program within a limit.
 *
 * need(c) is the set of classes that every program of class c holds: the greatest solution of need(c) = {c} +
 * the intersection over the nodes n of c of need(n), need(n) the union over what n reads. Classes in
 * nontrivial cycles start from everything, so a class that has no program without itself keeps everything.
 * From it, in rounds until nothing changes:
 *   - a node that needs its own class is on a cycle in every program: it goes;
 *   - classes the roots need are forced: the cheapest node of each is paid, the others cost what they are above it;
 *   - a node whose needs take the paid sum over the limit goes;
 *   - a node goes when another of its class costs no more and reads only what the first one needs (or what is
 *     forced and cannot need the class), for the second can stand in its place in every program;
 *   - a forced class with one node and on no cycle is decided: it goes, with all edges to it;
 *   - a class with one node that only one class reads is joined to the nodes that read it; so is one that
 *     costs nothing and reads nothing;
 *   - what the forced classes do not reach goes.
 * Parts of too many classes for sets do with the steps that need none. */
#include <string.h>

#include "core/extract/inner.h"

#define SETS_BYTES_MAX ((size_t)64 << 20)
#define MANY (SX_XT_NONE - 1)

typedef struct {
    xt *x;
    xt_part *p;
    uint64_t limit;
    uint8_t *dead;       /* per node */
    uint32_t *knot;      /* per class: number of its strongly connected piece */
    uint32_t *knot_size; /* per knot */
    uint32_t knot_count;
    uint64_t *forced; /* set */
    uint64_t *node_need, *class_need;
    uint64_t *least;  /* per class: its cheapest node */
    uint32_t *reader; /* per class: the one class that reads it, NONE or MANY */
    uint8_t *fate;    /* per class */
    bool changed;
    bool tested; /* no node left is on a cycle in every program */
} reducer;
enum { KEPT, DROPPED, MERGED, UNREACHED };

static bool has(const uint64_t *set, uint32_t c)
{
    return (set[c / 64] >> (c % 64) & 1) != 0;
}

static void put(uint64_t *set, uint32_t c)
{
    set[c / 64] |= UINT64_C(1) << (c % 64);
}

/* ---- order of the classes, children first, and the knots of cycles (Tarjan 1972) ---- */

typedef struct {
    uint32_t *index, *low, *edge, *stack, *path;
} tarjan;

static sx_code find_knots(reducer *r)
{
    const xt_part *p = r->p;
    size_t count = (size_t)p->class_count + 1;
    tarjan t;
    uint32_t **arrays[] = {&t.index, &t.low, &t.edge, &t.stack, &t.path};
    for (size_t i = 0; i < SX_COUNT(arrays); i++) {
        *arrays[i] = XT_TAKE_ZEROED(r->x, uint32_t, count);
        if (*arrays[i] == NULL) {
            return r->x->cx->error.code;
        }
    }
    uint32_t next = 1;
    uint32_t held = 0;
    uint32_t done = 0;
    memset(r->knot, 0xFF, p->class_count * sizeof(uint32_t));
    for (uint32_t start = 0; start < p->class_count; start++) {
        uint32_t depth = 0;
        if (t.index[start] != 0) {
            continue;
        }
        t.path[depth++] = start;
        while (depth > 0) {
            uint32_t c = t.path[depth - 1];
            if (t.index[c] == 0) {
                t.index[c] = t.low[c] = next++;
                t.edge[c] = p->edge_first[p->node_first[c]];
                t.stack[held++] = c;
            }
            if (t.edge[c] < p->edge_first[p->node_first[c + 1]]) {
                uint32_t d = p->child[t.edge[c]++];
                if (t.index[d] == 0) {
                    t.path[depth++] = d;
                } else if (r->knot[d] == SX_XT_NONE && t.index[d] < t.low[c]) {
                    t.low[c] = t.index[d];
                }
                continue;
            }
            depth--;
            if (depth > 0 && t.low[c] < t.low[t.path[depth - 1]]) {
                t.low[t.path[depth - 1]] = t.low[c];
            }
            if (t.low[c] == t.index[c]) {
                uint32_t d;
                r->knot_size[r->knot_count] = 0;
                do {
                    d = t.stack[--held];
                    r->knot[d] = r->knot_count;
                    r->knot_size[r->knot_count]++;
                    p->order[done++] = d;
                } while (d != c);
                r->knot_count++;
            }
        }
    }
    return SX_OK;
}

/* ---- needs ---- */

static void need_of_node(reducer *r, uint32_t n, uint64_t *restrict set)
{
    const xt_part *p = r->p;
    const uint32_t words = p->words;
    const uint32_t *child = &p->child[p->edge_first[n]];
    const uint32_t *const end = &p->child[p->edge_first[n + 1]];
    const uint64_t *need = p->need;
    r->x->work += words * (1 + (uint64_t)(end - child));
    if (child == end) {
        memset(set, 0, words * sizeof(uint64_t));
        return;
    }
    const uint64_t *restrict below = &need[(size_t)*child * words];
    if (child + 1 == end) {
        memcpy(set, below, words * sizeof(uint64_t));
        return;
    }
    const uint64_t *restrict other = &need[(size_t)child[1] * words];
    for (uint32_t w = 0; w < words; w++) {
        set[w] = below[w] | other[w];
    }
    for (child += 2; child < end; child++) {
        below = &need[(size_t)*child * words];
        for (uint32_t w = 0; w < words; w++) {
            set[w] |= below[w];
        }
    }
}

/* The set of class c from those of the classes that its nodes read. */
static void find_need(reducer *r, uint32_t c, uint64_t *restrict set)
{
    const xt_part *p = r->p;
    const uint32_t words = p->words;
    const uint32_t end = p->node_first[c + 1];
    uint64_t *restrict one = r->node_need;
    uint32_t n = p->node_first[c];
    if (n == end) {
        memset(set, 0xFF, words * sizeof(uint64_t)); /* it has no program */
        return;
    }
    need_of_node(r, n, set);
    for (n++; n < end && !sx_xt_out(r->x); n++) {
        need_of_node(r, n, one);
        for (uint32_t w = 0; w < words; w++) {
            set[w] &= one[w];
        }
    }
    put(set, c);
}

/* True if the set of class c, one of several in a knot, got smaller. */
static bool shrink_need(reducer *r, uint32_t c)
{
    const uint32_t words = r->p->words;
    uint64_t *restrict need = &r->p->need[(size_t)c * words];
    uint64_t *restrict now = r->class_need;
    uint64_t lost = 0;
    find_need(r, c, now);
    for (uint32_t w = 0; w < words; w++) {
        lost |= need[w] & ~now[w];
        need[w] &= now[w];
    }
    return lost != 0;
}

/* False: no fuel for it, and the sets are not known. */
static bool find_needs(reducer *r)
{
    const xt_part *p = r->p;
    const uint32_t words = p->words;
    for (uint32_t i = 0; i < p->class_count;) {
        const uint32_t c = p->order[i];
        const uint32_t end = i + r->knot_size[r->knot[c]];
        bool again = end - i > 1;
        if (!again && !sx_xt_out(r->x)) {
            find_need(r, c, &p->need[(size_t)c * words]);
        }
        for (uint32_t k = i; again && k < end; k++) {
            memset(&p->need[(size_t)p->order[k] * words], 0xFF, words * sizeof(uint64_t));
        }
        while (again && !sx_xt_out(r->x)) {
            again = false;
            for (uint32_t k = i; k < end && !sx_xt_out(r->x); k++) {
                again = shrink_need(r, p->order[k]) || again;
            }
        }
        if (sx_xt_out(r->x)) {
            return false;
        }
        i = end;
    }
    return true;
}

/* Classes the forced ones need. Without sets: what their single nodes read. */
static void find_forced(reducer *r)
{
    const xt_part *p = r->p;
    memset(r->forced, 0, ((size_t)p->class_count / 64 + 1) * sizeof(uint64_t));
    for (uint32_t i = p->class_count; i-- > 0;) { /* readers first, but for cycles */
        uint32_t c = p->order[i];
        if (p->forced[c] != 0 && p->words > 0) {
            for (uint32_t w = 0; w < p->words; w++) {
                r->forced[w] |= p->need[(size_t)c * p->words + w];
            }
        } else if (p->forced[c] != 0) {
            uint32_t n = p->node_first[c];
            put(r->forced, c);
            for (uint32_t e = p->edge_first[n];
                 p->node_first[c + 1] == n + 1 && e < p->edge_first[n + 1]; e++) {
                p->forced[p->child[e]] = 1;
                put(r->forced, p->child[e]);
            }
        }
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        p->forced[c] = has(r->forced, c) ? 1 : 0;
    }
}

/* Cheapest nodes; what the forced ones cost together, without `paid`. */
static uint64_t find_least(reducer *r)
{
    const xt_part *p = r->p;
    uint64_t sum = 0;
    for (uint32_t c = 0; c < p->class_count; c++) {
        r->least[c] = XT_TOP;
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            r->least[c] = p->cost[n] < r->least[c] ? p->cost[n] : r->least[c];
        }
        sum = p->forced[c] != 0 ? sx_xt_add(sum, r->least[c]) : sum;
    }
    return sum;
}

/* ---- nodes that go ---- */

static bool over_limit(const reducer *r, uint32_t c, uint32_t n, uint64_t least_sum)
{
    const xt_part *p = r->p;
    uint64_t sum = sx_xt_add(p->paid, least_sum);
    sum = sx_xt_add(sum, p->forced[c] != 0 ? p->cost[n] - r->least[c] : p->cost[n]);
    for (uint32_t w = 0; w < p->words && sum <= r->limit; w++) {
        for (uint64_t bits = r->node_need[w] & ~r->forced[w]; bits != 0; bits &= bits - 1) {
            uint32_t d = w * 64 + (uint32_t)__builtin_ctzll(bits);
            sum = d < p->class_count ? sx_xt_add(sum, r->least[d]) : sum;
        }
    }
    return sum > r->limit;
}

/* Does node m of class c stand in for one whose needs are in node_need and that costs no less? */
static bool dominates(const reducer *r, uint32_t c, uint32_t m)
{
    const xt_part *p = r->p;
    const uint32_t end = p->edge_first[m + 1];
    bool ok = true;
    for (uint32_t e = p->edge_first[m]; ok && e < end; e++) {
        uint32_t d = p->child[e];
        ok = has(r->node_need, d) || (p->forced[d] != 0 && r->knot[d] != r->knot[c]);
    }
    return ok;
}

static void kill_nodes(reducer *r, uint64_t least_sum)
{
    xt_part *p = r->p;
    const uint64_t *cost = p->cost;
    uint8_t *gone = r->dead;
    for (uint32_t c = 0; c < p->class_count && !sx_xt_out(r->x); c++) {
        const uint32_t first = p->node_first[c];
        const uint32_t end = p->node_first[c + 1];
        for (uint32_t n = end; n-- > first && !sx_xt_out(r->x);) { /* equals: the first stays */
            need_of_node(r, n, r->node_need);
            bool dead = has(r->node_need, c) || over_limit(r, c, n, least_sum);
            const uint64_t most = cost[n];
            for (uint32_t m = first; m < end && !dead; m++) {
                dead = cost[m] <= most && m != n && gone[m] == 0 && dominates(r, c, m);
            }
            (void)sx_xt_spend(r->x, end - first);
            gone[n] = dead ? 1 : 0;
            r->changed = r->changed || dead;
        }
    }
    r->tested = !sx_xt_out(r->x);
}

/* ---- what stays of each class ---- */

static uint32_t sole_node(const reducer *r, uint32_t c)
{
    uint32_t sole = SX_XT_NONE;
    for (uint32_t n = r->p->node_first[c]; n < r->p->node_first[c + 1]; n++) {
        if (r->dead[n] == 0) {
            if (sole != SX_XT_NONE) {
                return SX_XT_NONE;
            }
            sole = n;
        }
    }
    return sole;
}

static sx_code find_reached(reducer *r)
{
    const xt_part *p = r->p;
    uint32_t *stack = XT_TAKE(r->x, uint32_t, (size_t)p->class_count + 1);
    uint32_t top = 0;
    if (stack == NULL) {
        return r->x->cx->error.code;
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        r->reader[c] = SX_XT_NONE;
        r->fate[c] = p->forced[c] != 0 ? KEPT : UNREACHED;
        if (p->forced[c] != 0) {
            stack[top++] = c;
        }
    }
    while (top > 0) {
        uint32_t c = stack[--top];
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            for (uint32_t e = p->edge_first[n]; r->dead[n] == 0 && e < p->edge_first[n + 1]; e++) {
                uint32_t d = p->child[e];
                bool other = r->reader[d] != SX_XT_NONE && r->reader[d] != c;
                r->reader[d] = other ? MANY : c;
                if (r->fate[d] == UNREACHED) {
                    r->fate[d] = KEPT;
                    stack[top++] = d;
                }
            }
        }
    }
    return SX_OK;
}

/* Reads nothing that stays. */
static bool is_leaf(const reducer *r, uint32_t n)
{
    const xt_part *p = r->p;
    bool leaf = true;
    for (uint32_t e = p->edge_first[n]; leaf && e < p->edge_first[n + 1]; e++) {
        leaf = r->fate[p->child[e]] == DROPPED;
    }
    return leaf;
}

static void decide_fates(reducer *r)
{
    const xt_part *p = r->p;
    for (uint32_t c = 0; c < p->class_count; c++) {
        /* one node before this round: what it reads was found forced */
        if (p->forced[c] != 0 && r->knot_size[r->knot[c]] == 1 &&
            p->node_first[c + 1] - p->node_first[c] == 1) {
            r->fate[c] = DROPPED;
        }
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        /* inside a knot, needs tell of cycles only through nodes that were alone before this round */
        bool alone = r->tested && p->node_first[c + 1] - p->node_first[c] == 1;
        bool free_of_cycles = alone || r->knot_size[r->knot[c]] == 1;
        bool candidate = free_of_cycles && r->fate[c] == KEPT && p->forced[c] == 0;
        uint32_t n = candidate ? sole_node(r, c) : SX_XT_NONE;
        if (n != SX_XT_NONE && (r->reader[c] != MANY || (p->cost[n] == 0 && is_leaf(r, n)))) {
            r->fate[c] = MERGED;
        }
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        r->changed = r->changed || r->fate[c] != KEPT;
    }
}

/* ---- the part anew ---- */

typedef struct {
    uint32_t *child; /* classes by their old numbers */
    uint32_t edge_count, edge_capacity;
    uint32_t *seen; /* per class: stamp */
    uint32_t *stack;
    uint32_t stamp;
} builder;

/* What node n reads once merged classes are inside it; its cost and rope with theirs. False: no room for the edges. */
static sx_code inline_node(reducer *r, builder *b, uint32_t n, uint64_t *cost, uint32_t *rope,
                           bool *room)
{
    const xt_part *p = r->p;
    uint32_t top = 0;
    b->stamp++;
    *cost = p->cost[n];
    *rope = p->rope[n];
    for (;;) {
        for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
            uint32_t d = p->child[e];
            if (b->seen[d] == b->stamp || r->fate[d] == DROPPED) {
                continue;
            }
            b->seen[d] = b->stamp;
            if (r->fate[d] == MERGED) {
                b->stack[top++] = d;
            } else if (b->edge_count == b->edge_capacity) {
                *room = false;
                return SX_OK;
            } else {
                b->child[b->edge_count++] = d;
            }
        }
        if (top == 0) {
            return SX_OK;
        }
        n = sole_node(r, b->stack[--top]);
        *cost = sx_xt_add(*cost, p->cost[n]);
        SX_TRY(sx_xt_join(r->x, *rope, p->rope[n], rope));
    }
}

static sx_code builder_init(reducer *r, builder *b)
{
    *b = (builder){.edge_capacity = r->p->child_capacity};
    b->child = XT_TAKE(r->x, uint32_t, (size_t)b->edge_capacity + 1);
    b->seen = XT_TAKE_ZEROED(r->x, uint32_t, (size_t)r->p->class_count + 1);
    b->stack = XT_TAKE(r->x, uint32_t, (size_t)r->p->class_count + 1);
    return b->child == NULL || b->seen == NULL || b->stack == NULL ? r->x->cx->error.code : SX_OK;
}

/* Pays the cheapest node of every forced class; a class with one node has nothing left to pay. */
static sx_code pay(reducer *r)
{
    xt_part *p = r->p;
    for (uint32_t c = 0; c < p->class_count; c++) {
        if (p->forced[c] == 0) {
            continue;
        }
        uint64_t least = XT_TOP;
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            least = r->dead[n] == 0 && p->cost[n] < least ? p->cost[n] : least;
        }
        p->paid = sx_xt_add(p->paid, least);
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            p->cost[n] = p->cost[n] >= least ? p->cost[n] - least : 0;
        }
        uint32_t sole = sole_node(r, c);
        if (sole != SX_XT_NONE) {
            SX_TRY(sx_xt_join(r->x, p->paid_rope, p->rope[sole], &p->paid_rope));
            p->rope[sole] = SX_XT_NONE;
        }
    }
    return SX_OK;
}

/* In place: what is written stands before what is read. `*room` false: nothing but counts of the builder changed. */
static sx_code rebuild(reducer *r, bool *room)
{
    xt_part *p = r->p;
    builder b;
    SX_TRY(builder_init(r, &b));
    uint32_t *first = XT_TAKE(r->x, uint32_t, (size_t)p->node_count + 2);
    uint64_t *cost = XT_TAKE(r->x, uint64_t, (size_t)p->node_count + 1);
    uint32_t *rope = XT_TAKE(r->x, uint32_t, (size_t)p->node_count + 1);
    uint32_t *number = XT_TAKE(r->x, uint32_t, (size_t)p->class_count + 1);
    if (first == NULL || cost == NULL || rope == NULL || number == NULL) {
        return r->x->cx->error.code;
    }
    uint32_t nodes = 0;
    for (uint32_t c = 0; c < p->class_count && *room; c++) {
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1] && *room; n++) {
            if (r->fate[c] == KEPT && r->dead[n] == 0) {
                first[nodes] = b.edge_count;
                SX_TRY(inline_node(r, &b, n, &cost[nodes], &rope[nodes], room));
                nodes++;
            }
        }
    }
    if (!*room) {
        return SX_OK;
    }
    first[nodes] = b.edge_count;
    uint32_t classes = 0;
    uint32_t at = 0;
    uint32_t begin = p->node_first[0];
    for (uint32_t c = 0; c < p->class_count; c++) {
        uint32_t end = p->node_first[c + 1];
        number[c] = classes;
        if (r->fate[c] == KEPT) {
            for (uint32_t n = begin; n < end; n++) {
                at += r->dead[n] == 0 ? 1 : 0;
            }
            p->forced[classes] = p->forced[c];
            p->node_first[++classes] = at;
        }
        begin = end;
    }
    for (uint32_t e = 0; e < b.edge_count; e++) {
        p->child[e] = number[b.child[e]];
    }
    memcpy(p->edge_first, first, ((size_t)nodes + 1) * sizeof(uint32_t));
    memcpy(p->cost, cost, nodes * sizeof(uint64_t));
    memcpy(p->rope, rope, nodes * sizeof(uint32_t));
    p->class_count = classes;
    p->node_count = nodes;
    return SX_OK;
}

/* ---- rounds ---- */

static sx_code reducer_init(reducer *r)
{
    xt *x = r->x;
    xt_part *p = r->p;
    size_t classes = (size_t)p->class_count + 1;
    size_t words = classes / 64 + 1;
    p->words = classes * words <= SETS_BYTES_MAX / sizeof(uint64_t) ? (uint32_t)words : 0;
    p->order = XT_TAKE(x, uint32_t, classes);
    p->need = XT_TAKE(x, uint64_t, classes * p->words);
    r->dead = XT_TAKE_ZEROED(x, uint8_t, (size_t)p->node_count + 1);
    r->knot = XT_TAKE(x, uint32_t, classes);
    r->knot_size = XT_TAKE(x, uint32_t, classes);
    r->forced = XT_TAKE(x, uint64_t, words);
    r->node_need = XT_TAKE(x, uint64_t, words);
    r->class_need = XT_TAKE(x, uint64_t, words);
    r->least = XT_TAKE(x, uint64_t, classes);
    r->reader = XT_TAKE(x, uint32_t, classes);
    r->fate = XT_TAKE(x, uint8_t, classes);
    bool room = p->order != NULL && p->need != NULL && r->dead != NULL && r->knot != NULL &&
                r->knot_size != NULL && r->forced != NULL && r->node_need != NULL &&
                r->class_need != NULL && r->least != NULL && r->reader != NULL && r->fate != NULL;
    return room ? SX_OK : x->cx->error.code;
}

static bool all_decided(const xt_part *p)
{
    bool decided = true;
    for (uint32_t c = 0; decided && c < p->class_count; c++) {
        decided = p->forced[c] == 0 || p->node_first[c + 1] == p->node_first[c] + 1;
    }
    return decided;
}

static sx_code rebuild_or_unmerge(reducer *r)
{
    bool room = true;
    SX_TRY(pay(r));
    SX_TRY(rebuild(r, &room));
    for (uint32_t c = 0; !room && c < r->p->class_count; c++) {
        r->fate[c] = r->fate[c] == MERGED ? KEPT : r->fate[c];
    }
    if (!room) {
        room = true;
        SX_TRY(rebuild(r, &room));
        SX_ASSERT(room);
    }
    return SX_OK;
}

static sx_code round_of(xt *x, xt_part *part, uint64_t limit, xt_verdict *verdict, bool *changed)
{
    reducer r = {.x = x, .p = part, .limit = limit};
    SX_TRY(reducer_init(&r));
    SX_TRY(find_knots(&r));
    if (part->words > 0 && !find_needs(&r)) {
        part->words = 0;
    }
    find_forced(&r);
    uint64_t least_sum = find_least(&r);
    if (sx_xt_add(part->paid, least_sum) > limit) {
        *verdict = XT_CLOSED;
        return SX_OK;
    }
    if (part->words > 0) {
        kill_nodes(&r, least_sum);
    }
    SX_TRY(find_reached(&r));
    decide_fates(&r);
    (void)sx_xt_spend(x, part->node_count + (uint64_t)sx_xt_edges(part));
    *changed = r.changed;
    if (r.changed) {
        SX_TRY(rebuild_or_unmerge(&r));
        *verdict = part->paid > limit ? XT_CLOSED : XT_OPEN;
        return SX_OK;
    }
    SX_TRY(pay(&r)); /* nothing goes, but classes found forced are to be paid once */
    *verdict = XT_OPEN;
    return SX_OK;
}

sx_code sx_xt_reduce(xt *x, xt_part *part, uint64_t limit, xt_verdict *verdict)
{
    bool changed = true;
    while (changed) { /* every change takes nodes or classes away */
        xt_mark mark = sx_xt_mark(x);
        SX_TRY(round_of(x, part, limit, verdict, &changed));
        if (*verdict == XT_CLOSED) {
            return SX_OK;
        }
        if (changed) {
            sx_xt_release(x, mark);
        }
        if (sx_xt_out(x)) {
            part->words = 0;
            return SX_OK;
        }
    }
    *verdict = all_decided(part) ? XT_DONE : XT_OPEN;
    return SX_OK;
}
