#include "core/egraph/extract.h"

#include <string.h>

typedef struct {
    sx_ctx *cx;
    const sx_eg *eg;
    const sx_extraction *wanted;
    sx_walker walker;
    uint64_t *tree;      /* per class: least tree cost */
    uint32_t *tree_best; /* per class: its node */
    uint32_t *queue;
    uint8_t *queued;
    uint64_t work;
} extractor;

static uint64_t add_cost(uint64_t a, uint64_t b)
{
    return a >= SX_COST_MAX || b >= SX_COST_MAX - a ? SX_COST_MAX : a + b;
}

sx_code sx_walker_init(sx_ctx *cx, const sx_eg *eg, sx_walker *walker)
{
    *walker = (sx_walker){0};
    uint32_t **words[] = {&walker->mark, &walker->stack, &walker->next, &walker->order};
    for (size_t i = 0; i < SX_COUNT(words); i++) {
        *words[i] = SX_NEW_ARRAY(cx, uint32_t, eg->node_count);
        if (*words[i] == NULL) {
            return cx->error.code;
        }
    }
    return SX_OK;
}

/* Depth first from one class, children before parents; costs are added to *total. */
static bool walk_class(sx_walker *w, const sx_eg *eg, const uint64_t *cost, const uint32_t *choice,
                       uint32_t class_, uint64_t *total)
{
    uint32_t open = w->epoch * 2;
    uint32_t top = 0;
    w->stack[0] = class_;
    w->next[0] = 0;
    w->mark[class_] = open;
    for (;;) {
        class_ = w->stack[top];
        uint32_t n = choice[class_];
        if (n == SX_EG_NONE || (cost != NULL && cost[n] == SX_COST_NEVER)) {
            return false;
        }
        w->work++;
        if (w->next[top] < eg->node[n].arity) {
            uint32_t child = sx_eg_child(eg, n, w->next[top]++);
            if (w->mark[child] == open) {
                return false;
            }
            if (w->mark[child] != open + 1) {
                w->mark[child] = open;
                w->stack[++top] = child;
                w->next[top] = 0;
            }
            continue;
        }
        w->mark[class_] = open + 1;
        w->order[w->order_count++] = class_;
        *total = add_cost(*total, cost != NULL ? cost[n] : 1);
        if (top-- == 0) {
            return true;
        }
    }
}

bool sx_walker_run(sx_walker *walker, const sx_eg *eg, const uint64_t *cost, const uint32_t *root,
                   uint32_t root_count, const uint32_t *choice, uint64_t *total)
{
    walker->epoch++;
    walker->order_count = 0;
    *total = 0;
    for (uint32_t r = 0; r < root_count; r++) {
        uint32_t class_ = sx_eg_find(eg, root[r]);
        if (walker->mark[class_] != walker->epoch * 2 + 1 &&
            !walk_class(walker, eg, cost, choice, class_, total)) {
            return false;
        }
    }
    return true;
}

static bool walk(extractor *x, const uint64_t *cost, const uint32_t *choice, uint64_t *total)
{
    uint64_t before = x->walker.work;
    bool ok = sx_walker_run(&x->walker, x->eg, cost, x->wanted->root, x->wanted->root_count, choice,
                            total);
    x->work += x->walker.work - before;
    return ok;
}

/* ---- rung 1: tree costs; `paid` (may be NULL) marks classes that cost nothing more ---- */

static uint64_t tree_cost_of(const extractor *x, const uint64_t *cost, uint32_t n)
{
    const sx_eg *eg = x->eg;
    if (cost[n] == SX_COST_NEVER) {
        return SX_COST_NEVER;
    }
    uint64_t sum = cost[n];
    for (uint32_t k = 0; k < eg->node[n].arity; k++) {
        uint64_t below = x->tree[sx_eg_child(eg, n, k)];
        if (below == SX_COST_NEVER) {
            return SX_COST_NEVER;
        }
        sum = add_cost(sum, below);
    }
    return sum;
}

/* Lowers the class of n if n is cheaper (or as cheap and smaller); costs are positive, so a choice never goes in a circle. */
static bool improve_tree(extractor *x, const uint64_t *cost, uint32_t n)
{
    uint32_t class_ = sx_eg_find(x->eg, n);
    uint64_t total = tree_cost_of(x, cost, n);
    if (total == SX_COST_NEVER || total > x->tree[class_] ||
        (total == x->tree[class_] && n >= x->tree_best[class_])) {
        return false;
    }
    bool cheaper = total < x->tree[class_];
    x->tree[class_] = total;
    x->tree_best[class_] = n;
    return cheaper;
}

static void find_tree_costs(extractor *x, const uint64_t *cost, const uint8_t *paid)
{
    const sx_eg *eg = x->eg;
    uint32_t head = 0;
    uint32_t count = 0;
    for (uint32_t c = 0; c < eg->node_count; c++) {
        x->queued[c] = 0;
        x->tree_best[c] = SX_EG_NONE;
        x->tree[c] = paid != NULL && paid[c] != 0 ? 0 : SX_COST_NEVER;
    }
    for (uint32_t n = 0; n < eg->node_count; n++) {
        if (eg->node[n].dead == 0 && improve_tree(x, cost, n)) {
            uint32_t class_ = sx_eg_find(eg, n);
            if (x->queued[class_] == 0) {
                x->queued[class_] = 1;
                x->queue[count++ % eg->node_count] = class_;
            }
        }
    }
    while (head < count) {
        uint32_t class_ = x->queue[head++ % eg->node_count];
        x->queued[class_] = 0;
        for (uint32_t e = sx_eg_parent_first(eg, class_); e != SX_EG_LINK_END;
             e = sx_eg_parent_next(eg, e)) {
            uint32_t parent = sx_eg_find(eg, sx_eg_parent_node(eg, e));
            x->work++;
            if (eg->node[sx_eg_parent_node(eg, e)].dead == 0 &&
                improve_tree(x, cost, sx_eg_parent_node(eg, e)) && x->queued[parent] == 0) {
                x->queued[parent] = 1;
                x->queue[count++ % eg->node_count] = parent;
            }
        }
    }
}

/* ---- rung 2: greedy with sets: each class knows the classes of its program ---- */

#define GREEDY_CLASSES_MAX 6000u

typedef struct {
    uint32_t *dense; /* class -> number, or NONE */
    uint32_t *class_of;
    uint32_t count;
    uint32_t words;
    uint64_t *set; /* count * words */
    uint64_t *total;
    uint32_t *best;
    uint64_t *scratch;
} greedy;

static sx_code greedy_init(extractor *x, greedy *g)
{
    const sx_eg *eg = x->eg;
    sx_ctx *cx = x->cx;
    g->dense = SX_NEW_ARRAY(cx, uint32_t, eg->node_count);
    g->class_of = SX_NEW_ARRAY(cx, uint32_t, eg->class_count);
    if (g->dense == NULL || g->class_of == NULL) {
        return cx->error.code;
    }
    for (uint32_t c = 0; c < eg->node_count; c++) {
        if (sx_eg_is_class(eg, c)) {
            g->class_of[g->count] = c;
            g->dense[c] = g->count++;
        }
    }
    g->words = (g->count + 63) / 64;
    g->set = SX_NEW_ARRAY(cx, uint64_t, (size_t)g->count * g->words);
    g->total = SX_NEW_ARRAY(cx, uint64_t, g->count);
    g->best = SX_NEW_ARRAY(cx, uint32_t, g->count);
    g->scratch = SX_NEW_ARRAY(cx, uint64_t, g->words);
    if (g->set == NULL || g->total == NULL || g->best == NULL || g->scratch == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < g->count; i++) {
        g->total[i] = SX_COST_NEVER;
        g->best[i] = SX_EG_NONE;
    }
    return SX_OK;
}

/* The set and cost of node n from those of its children; true if its class gets cheaper. */
static bool greedy_improve(extractor *x, greedy *g, uint32_t n)
{
    const sx_eg *eg = x->eg;
    const uint64_t *cost = x->wanted->cost;
    uint32_t own = g->dense[sx_eg_find(eg, n)];
    if (cost[n] == SX_COST_NEVER || cost[n] >= g->total[own]) {
        return false;
    }
    memset(g->scratch, 0, g->words * sizeof(uint64_t));
    for (uint32_t k = 0; k < eg->node[n].arity; k++) {
        uint32_t child = g->dense[sx_eg_child(eg, n, k)];
        if (g->total[child] == SX_COST_NEVER) {
            return false;
        }
        const uint64_t *set = &g->set[(size_t)child * g->words];
        for (uint32_t w = 0; w < g->words; w++) {
            g->scratch[w] |= set[w];
        }
    }
    if ((g->scratch[own / 64] >> (own % 64) & 1) != 0) {
        return false; /* a cycle */
    }
    uint64_t total = cost[n];
    for (uint32_t w = 0; w < g->words; w++) {
        for (uint64_t bits = g->scratch[w]; bits != 0; bits &= bits - 1) {
            uint32_t member = w * 64 + (uint32_t)__builtin_ctzll(bits);
            total = add_cost(total, cost[g->best[member]]);
        }
        x->work++;
    }
    if (total >= g->total[own]) {
        return false;
    }
    g->scratch[own / 64] |= UINT64_C(1) << (own % 64);
    memcpy(&g->set[(size_t)own * g->words], g->scratch, g->words * sizeof(uint64_t));
    g->total[own] = total;
    g->best[own] = n;
    return true;
}

/* A choice for every class that has one; the caller walks it, for stale sets can hide a cycle. */
static sx_code greedy_choice(extractor *x, uint32_t *choice)
{
    const sx_eg *eg = x->eg;
    greedy g = {0};
    SX_TRY(greedy_init(x, &g));
    uint64_t budget = x->work + x->wanted->fuel;
    uint32_t head = 0;
    uint32_t count = 0;
    memset(x->queued, 0, eg->node_count);
    for (uint32_t n = 0; n < eg->node_count; n++) {
        uint32_t class_ = sx_eg_find(eg, n);
        if (eg->node[n].dead == 0 && greedy_improve(x, &g, n) && x->queued[class_] == 0) {
            x->queued[class_] = 1;
            x->queue[count++ % eg->node_count] = class_;
        }
    }
    while (head < count && x->work < budget) {
        uint32_t class_ = x->queue[head++ % eg->node_count];
        x->queued[class_] = 0;
        for (uint32_t e = sx_eg_parent_first(eg, class_); e != SX_EG_LINK_END;
             e = sx_eg_parent_next(eg, e)) {
            uint32_t parent = sx_eg_find(eg, sx_eg_parent_node(eg, e));
            if (eg->node[sx_eg_parent_node(eg, e)].dead == 0 &&
                greedy_improve(x, &g, sx_eg_parent_node(eg, e)) && x->queued[parent] == 0) {
                x->queued[parent] = 1;
                x->queue[count++ % eg->node_count] = parent;
            }
        }
    }
    for (uint32_t i = 0; i < g.count; i++) {
        choice[g.class_of[i]] = g.best[i];
    }
    return SX_OK;
}

/* ---- rung 3: local search ---- */

typedef struct {
    uint32_t *choice;  /* of the incumbent, with a default for every other class */
    uint32_t *program; /* classes of the incumbent, children first */
    uint32_t program_count;
    uint32_t *readers;  /* per class: edges and roots of the incumbent that need it */
    uint32_t *position; /* per class: place in program, or SX_EG_NONE */
    uint32_t *seen;     /* per class: epoch of the last reach() that met it */
    uint32_t epoch;
    uint8_t *paid;
    uint32_t *turned; /* classes a move has given another node, */
    uint32_t *before; /* and the nodes they had */
    uint64_t cost;
} search;

/* Larger programs stay as greedy has them: the walks below recurse along chains of the program. */
#define SEARCH_CLASSES_MAX 10000u

/* One more reader of a class; the first makes it part of the program, and its children with it. */
static void acquire(extractor *x, search *s, uint32_t class_)
{
    x->work++;
    if (s->readers[class_]++ > 0) {
        return;
    }
    uint32_t n = s->choice[class_];
    s->cost = n == SX_EG_NONE ? SX_COST_MAX : add_cost(s->cost, x->wanted->cost[n]);
    for (uint32_t k = 0; n != SX_EG_NONE && k < x->eg->node[n].arity; k++) {
        acquire(x, s, sx_eg_child(x->eg, n, k));
    }
}

static void release(extractor *x, search *s, uint32_t class_)
{
    x->work++;
    SX_ASSERT(s->readers[class_] > 0);
    if (--s->readers[class_] > 0) {
        return;
    }
    uint32_t n = s->choice[class_];
    s->cost -= n == SX_EG_NONE ? 0 : x->wanted->cost[n];
    for (uint32_t k = 0; n != SX_EG_NONE && k < x->eg->node[n].arity; k++) {
        release(x, s, sx_eg_child(x->eg, n, k));
    }
}

/* Class of the program gets node n; the cost follows. Doing it again with the old node restores everything. */
static void rechoose(extractor *x, search *s, uint32_t class_, uint32_t n)
{
    const sx_eg *eg = x->eg;
    uint32_t old = s->choice[class_];
    for (uint32_t k = 0; k < eg->node[n].arity; k++) {
        acquire(x, s, sx_eg_child(eg, n, k));
    }
    s->choice[class_] = n;
    s->cost = s->cost - x->wanted->cost[old] + x->wanted->cost[n];
    for (uint32_t k = 0; k < eg->node[old].arity; k++) {
        release(x, s, sx_eg_child(eg, old, k));
    }
}

/* Does the program below `from` need class `target`? What stands before the target in the program cannot. */
static bool reaches(extractor *x, search *s, uint32_t from, uint32_t target)
{
    x->work++;
    if (from == target) {
        return true;
    }
    uint32_t n = s->choice[from];
    if (s->seen[from] == s->epoch || n == SX_EG_NONE || s->position[from] < s->position[target]) {
        return false;
    }
    s->seen[from] = s->epoch;
    for (uint32_t k = 0; k < x->eg->node[n].arity; k++) {
        if (reaches(x, s, sx_eg_child(x->eg, n, k), target)) {
            return true;
        }
    }
    return false;
}

static bool would_cycle(extractor *x, search *s, uint32_t class_, uint32_t n)
{
    s->epoch++;
    for (uint32_t k = 0; k < x->eg->node[n].arity; k++) {
        if (reaches(x, s, sx_eg_child(x->eg, n, k), class_)) {
            return true;
        }
    }
    return false;
}

/* The order of the incumbent anew, after a change was taken. False if it is no program after all. */
static bool renumber(extractor *x, search *s)
{
    uint64_t total;
    if (!walk(x, x->wanted->cost, s->choice, &total)) {
        return false;
    }
    for (uint32_t i = 0; i < s->program_count; i++) {
        s->position[s->program[i]] = SX_EG_NONE;
    }
    s->program_count = x->walker.order_count;
    memcpy(s->program, x->walker.order, s->program_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < s->program_count; i++) {
        s->position[s->program[i]] = i;
    }
    SX_ASSERT(total == s->cost);
    return true;
}

/* Choices of classes outside the incumbent: cheapest given what is paid already. */
static void refresh_defaults(extractor *x, search *s)
{
    const sx_eg *eg = x->eg;
    memset(s->paid, 0, eg->node_count);
    for (uint32_t i = 0; i < s->program_count; i++) {
        s->paid[s->program[i]] = 1;
    }
    find_tree_costs(x, x->wanted->cost, s->paid);
    for (uint32_t c = 0; c < eg->node_count; c++) {
        s->choice[c] = s->paid[c] == 0 ? x->tree_best[c] : s->choice[c];
    }
}

static bool usable(const extractor *x, uint32_t n)
{
    const sx_eg *eg = x->eg;
    bool ok = eg->node[n].dead == 0 && x->wanted->cost[n] != SX_COST_NEVER;
    for (uint32_t k = 0; ok && k < eg->node[n].arity; k++) {
        ok = x->tree[sx_eg_child(eg, n, k)] != SX_COST_NEVER;
    }
    return ok;
}

static bool try_alternatives(extractor *x, search *s, uint32_t class_)
{
    const sx_eg *eg = x->eg;
    uint64_t before = s->cost;
    uint32_t old = s->choice[class_];
    uint32_t n = class_;
    do {
        if (n != old && usable(x, n) && !would_cycle(x, s, class_, n)) {
            rechoose(x, s, class_, n);
            if (s->cost < before && renumber(x, s)) {
                return true;
            }
            rechoose(x, s, class_, old);
            SX_ASSERT(s->cost == before);
        }
        n = sx_eg_member_next(eg, n);
    } while (n != class_);
    return false;
}

static bool uses_class(const sx_eg *eg, uint32_t n, uint32_t class_)
{
    for (uint32_t k = 0; k < eg->node[n].arity; k++) {
        if (sx_eg_child(eg, n, k) == class_) {
            return true;
        }
    }
    return false;
}

/* The cheapest node of a class that does without another class, given what is paid. */
static uint32_t best_without(extractor *x, search *s, uint32_t user, uint32_t class_)
{
    const sx_eg *eg = x->eg;
    uint32_t best = SX_EG_NONE;
    uint64_t best_cost = SX_COST_NEVER;
    uint32_t n = user;
    do {
        if (eg->node[n].dead == 0 && !uses_class(eg, n, class_)) {
            uint64_t total = tree_cost_of(x, x->wanted->cost, n);
            if ((total < best_cost || (total == best_cost && n < best)) && total != SX_COST_NEVER &&
                !would_cycle(x, s, user, n)) {
                best = n;
                best_cost = total;
            }
        }
        n = sx_eg_member_next(eg, n);
    } while (n != user);
    return best;
}

#define USERS_MAX 16u

/* All users of a class at once turn to their cheapest node that does without it: one at a time none of them would gain. */
static bool try_without(extractor *x, search *s, uint32_t class_)
{
    const sx_eg *eg = x->eg;
    uint32_t user[USERS_MAX];
    uint32_t old[USERS_MAX];
    uint32_t count = 0;
    uint64_t before = s->cost;
    if (s->readers[class_] < 2 || s->readers[class_] > USERS_MAX) {
        return false;
    }
    bool possible = true;
    for (uint32_t e = sx_eg_parent_first(eg, class_); e != SX_EG_LINK_END && possible;
         e = sx_eg_parent_next(eg, e)) {
        uint32_t parent = sx_eg_find(eg, sx_eg_parent_node(eg, e));
        if (s->choice[parent] != sx_eg_parent_node(eg, e) || s->position[parent] == SX_EG_NONE ||
            s->readers[parent] == 0) {
            continue;
        }
        uint32_t best = count < USERS_MAX ? best_without(x, s, parent, class_) : SX_EG_NONE;
        possible = best != SX_EG_NONE;
        if (possible) {
            user[count] = parent;
            old[count++] = s->choice[parent];
            rechoose(x, s, parent, best);
        }
    }
    if (possible && s->cost < before && renumber(x, s)) {
        return true;
    }
    while (count-- > 0) {
        rechoose(x, s, user[count], old[count]);
    }
    SX_ASSERT(s->cost == before);
    return false;
}

/* Does a node read the class whose own class is in the program, and could it be chosen there? */
static bool may_turn(extractor *x, search *s, uint32_t n)
{
    uint32_t own = sx_eg_find(x->eg, n);
    x->work++;
    return s->position[own] != SX_EG_NONE && s->readers[own] > 0 && s->choice[own] != n &&
           usable(x, n);
}

static bool has_two_readers(extractor *x, search *s, uint32_t class_)
{
    const sx_eg *eg = x->eg;
    uint32_t first = SX_EG_NONE;
    for (uint32_t e = sx_eg_parent_first(eg, class_); e != SX_EG_LINK_END;
         e = sx_eg_parent_next(eg, e)) {
        uint32_t own = sx_eg_find(eg, sx_eg_parent_node(eg, e));
        if (own != first && may_turn(x, s, sx_eg_parent_node(eg, e))) {
            if (first != SX_EG_NONE) {
                return true;
            }
            first = own;
        }
    }
    return false;
}

/* A class outside the program that several classes of it could read (one contraction instead of many) is taken in, and each of them
 * turns to the node that reads it, unless that loses: for one alone it would not pay. */
static bool try_together(extractor *x, search *s, uint32_t class_)
{
    const sx_eg *eg = x->eg;
    uint64_t before = s->cost;
    uint32_t count = 0;
    if (s->position[class_] != SX_EG_NONE || s->choice[class_] == SX_EG_NONE ||
        !has_two_readers(x, s, class_)) {
        return false;
    }
    acquire(x, s, class_);
    for (uint32_t e = sx_eg_parent_first(eg, class_); e != SX_EG_LINK_END;
         e = sx_eg_parent_next(eg, e)) {
        uint32_t n = sx_eg_parent_node(eg, e);
        uint32_t own = sx_eg_find(eg, n);
        if (count >= eg->node_count || !may_turn(x, s, n) || would_cycle(x, s, own, n)) {
            continue;
        }
        uint64_t cost = s->cost;
        s->turned[count] = own;
        s->before[count] = s->choice[own];
        rechoose(x, s, own, n);
        if (s->cost <= cost) { /* as good: what it read before may go once all have turned */
            count++;
        } else {
            rechoose(x, s, own, s->before[count]);
        }
    }
    release(x, s, class_);
    if (count > 0 && s->cost < before && renumber(x, s)) {
        return true;
    }
    while (count-- > 0) {
        rechoose(x, s, s->turned[count], s->before[count]);
    }
    SX_ASSERT(s->cost == before);
    return false;
}

static sx_code search_init(extractor *x, search *s)
{
    uint32_t count = x->eg->node_count;
    uint32_t **words[] = {&s->choice, &s->program, &s->readers, &s->position,
                          &s->seen,   &s->turned,  &s->before};
    for (size_t i = 0; i < SX_COUNT(words); i++) {
        *words[i] = SX_NEW_ARRAY(x->cx, uint32_t, count);
        if (*words[i] == NULL) {
            return x->cx->error.code;
        }
    }
    s->paid = SX_NEW_ARRAY(x->cx, uint8_t, count);
    s->cost = SX_COST_NEVER;
    return s->paid == NULL ? x->cx->error.code : SX_OK;
}

/* Makes `choice` the incumbent if it is a cheaper program. */
static void offer(extractor *x, search *s, const uint32_t *choice)
{
    uint64_t total;
    if (walk(x, x->wanted->cost, choice, &total) && total < s->cost) {
        s->cost = total;
        memcpy(s->choice, choice, x->eg->node_count * sizeof(uint32_t));
        memcpy(s->program, x->walker.order, x->walker.order_count * sizeof(uint32_t));
        s->program_count = x->walker.order_count;
    }
}

/* Readers and positions of the incumbent. */
static void begin_search(extractor *x, search *s)
{
    const sx_eg *eg = x->eg;
    memset(s->position, 0xFF, eg->node_count * sizeof(uint32_t));
    for (uint32_t r = 0; r < x->wanted->root_count; r++) {
        s->readers[sx_eg_find(eg, x->wanted->root[r])]++;
    }
    for (uint32_t i = 0; i < s->program_count; i++) {
        uint32_t n = s->choice[s->program[i]];
        s->position[s->program[i]] = i;
        for (uint32_t k = 0; k < eg->node[n].arity; k++) {
            s->readers[sx_eg_child(eg, n, k)]++;
        }
    }
}

static void descend(extractor *x, search *s)
{
    uint64_t budget = x->work + x->wanted->fuel;
    bool better = true;
    begin_search(x, s);
    while (better && x->work < budget) {
        better = false;
        refresh_defaults(x, s);
        for (uint32_t i = s->program_count; i-- > 0 && x->work < budget;) {
            i = i < s->program_count ? i : s->program_count - 1;
            better = try_alternatives(x, s, s->program[i]) || better;
        }
        for (uint32_t i = 0; i < s->program_count && x->work < budget; i++) {
            better = try_without(x, s, s->program[i]) || better;
        }
        for (uint32_t c = 0; c < x->eg->node_count && x->work < budget; c++) {
            better = (sx_eg_find(x->eg, c) == c && try_together(x, s, c)) || better;
        }
    }
}

/* ---- rung 4: branch and bound over the classes a program still needs ---- */

#define BRANCH_DEPTH_MAX 400u
#define PROVE_FUEL 300000u
#define PROVE_CLASSES_MAX \
    64u /* larger programs are not tried: the tree would not end within the fuel */

typedef struct {
    uint32_t *choice;
    uint32_t *pending; /* classes needed, decided ones first */
    uint64_t *least;   /* per class: cost of its cheapest node */
    uint64_t budget;
    bool cut; /* fuel or depth ended it: nothing is proven */
} brancher;

static uint64_t least_node(const extractor *x, uint32_t class_)
{
    const sx_eg *eg = x->eg;
    uint64_t least = SX_COST_NEVER;
    uint32_t n = class_;
    do {
        if (eg->node[n].dead == 0 && x->wanted->cost[n] < least) {
            least = x->wanted->cost[n];
        }
        n = sx_eg_member_next(eg, n);
    } while (n != class_);
    return least;
}

/* pending[decided] is next; `bound` is the cost of what is decided plus the least of what is pending. */
static void branch(extractor *x, search *s, brancher *b, uint32_t decided, uint32_t count,
                   uint64_t bound)
{
    const sx_eg *eg = x->eg;
    if (x->work >= b->budget || decided >= BRANCH_DEPTH_MAX) {
        b->cut = true;
        return;
    }
    if (decided == count) {
        offer(x, s, b->choice);
        return;
    }
    uint32_t class_ = b->pending[decided];
    uint32_t n = class_;
    do {
        uint64_t cost = eg->node[n].dead == 0 ? x->wanted->cost[n] : SX_COST_NEVER;
        x->work++;
        if (cost != SX_COST_NEVER) {
            uint64_t next = bound - b->least[class_] + cost;
            uint32_t more = count;
            b->choice[class_] = n;
            for (uint32_t k = 0; k < eg->node[n].arity; k++) {
                uint32_t child = sx_eg_child(eg, n, k);
                if (b->choice[child] == SX_EG_NONE) {
                    b->choice[child] = eg->node_count; /* needed, not decided */
                    b->pending[more++] = child;
                    next = add_cost(next, b->least[child]);
                }
            }
            if (next < s->cost) {
                branch(x, s, b, decided + 1, more, next);
            }
            for (uint32_t i = count; i < more; i++) {
                b->choice[b->pending[i]] = SX_EG_NONE;
            }
        }
        n = sx_eg_member_next(eg, n);
    } while (n != class_ && !b->cut);
    b->choice[class_] = eg->node_count;
}

static sx_code prove(extractor *x, search *s, bool *proven)
{
    const sx_eg *eg = x->eg;
    brancher b = {.budget =
                      x->work + (x->wanted->fuel < PROVE_FUEL ? x->wanted->fuel : PROVE_FUEL)};
    b.choice = SX_NEW_ARRAY(x->cx, uint32_t, eg->node_count);
    b.pending = SX_NEW_ARRAY(x->cx, uint32_t, eg->node_count + 1);
    b.least = SX_NEW_ARRAY(x->cx, uint64_t, eg->node_count);
    if (b.choice == NULL || b.pending == NULL || b.least == NULL) {
        return x->cx->error.code;
    }
    for (uint32_t c = 0; c < eg->node_count; c++) {
        b.choice[c] = SX_EG_NONE;
        b.least[c] = sx_eg_is_class(eg, c) ? least_node(x, c) : 0;
    }
    uint32_t count = 0;
    uint64_t bound = 0;
    for (uint32_t r = 0; r < x->wanted->root_count; r++) {
        uint32_t class_ = sx_eg_find(eg, x->wanted->root[r]);
        if (b.choice[class_] == SX_EG_NONE) {
            b.choice[class_] = eg->node_count;
            b.pending[count++] = class_;
            bound = add_cost(bound, b.least[class_]);
        }
    }
    branch(x, s, &b, 0, count, bound);
    *proven = !b.cut;
    return SX_OK;
}

/* ---- the ladder ---- */

static sx_code extractor_init(extractor *x)
{
    uint32_t count = x->eg->node_count;
    SX_TRY(sx_walker_init(x->cx, x->eg, &x->walker));
    uint32_t **words[] = {&x->tree_best, &x->queue};
    for (size_t i = 0; i < SX_COUNT(words); i++) {
        *words[i] = SX_NEW_ARRAY(x->cx, uint32_t, count);
        if (*words[i] == NULL) {
            return x->cx->error.code;
        }
    }
    x->tree = SX_NEW_ARRAY(x->cx, uint64_t, count);
    x->queued = SX_NEW_ARRAY(x->cx, uint8_t, count);
    return x->tree == NULL || x->queued == NULL ? x->cx->error.code : SX_OK;
}

sx_code sx_eg_extract(sx_ctx *cx, const sx_eg *eg, const sx_extraction *wanted,
                      sx_extracted *result)
{
    SX_ASSERT(sx_eg_is_rebuilt(eg));
    extractor x = {.cx = cx, .eg = eg, .wanted = wanted};
    search s = {0};
    SX_TRY(extractor_init(&x));
    SX_TRY(search_init(&x, &s));
    find_tree_costs(&x, wanted->cost, NULL);
    offer(&x, &s, x.tree_best);
    if (eg->class_count <= GREEDY_CLASSES_MAX) {
        uint32_t *choice = SX_NEW_ARRAY(cx, uint32_t, eg->node_count);
        if (choice == NULL) {
            return cx->error.code;
        }
        SX_TRY(greedy_choice(&x, choice));
        offer(&x, &s, choice);
    }
    result->greedy_cost = s.cost;
    if (wanted->start != NULL) {
        offer(&x, &s, wanted->start);
    }
    if (s.cost == SX_COST_NEVER) {
        return SX_FAIL(cx, SX_INTERNAL, "e-graph of %u nodes holds no program for its roots",
                       eg->node_count);
    }
    if (s.program_count <= SEARCH_CLASSES_MAX) {
        descend(&x, &s);
    }
    result->proven = false;
    if (s.program_count <= PROVE_CLASSES_MAX) {
        SX_TRY(prove(&x, &s, &result->proven));
    }
    result->choice = SX_NEW_ARRAY(cx, uint32_t, eg->node_count);
    if (result->choice == NULL) {
        return cx->error.code;
    }
    for (uint32_t c = 0; c < eg->node_count; c++) {
        result->choice[c] = SX_EG_NONE;
    }
    for (uint32_t i = 0; i < s.program_count; i++) {
        result->choice[s.program[i]] = s.choice[s.program[i]];
    }
    result->cost = s.cost;
    return SX_OK;
}
