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

static uint32_t next_live(const sx_eg *eg, uint32_t n)
{
    return eg->member_next[n];
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
        for (uint32_t e = eg->parent_head[class_]; e != SX_EG_NONE; e = eg->edge_next[e]) {
            uint32_t parent = sx_eg_find(eg, eg->owner[e]);
            x->work++;
            if (eg->node[eg->owner[e]].dead == 0 && improve_tree(x, cost, eg->owner[e]) &&
                x->queued[parent] == 0) {
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
        if (eg->up[c] == c) {
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
        for (uint32_t e = eg->parent_head[class_]; e != SX_EG_NONE; e = eg->edge_next[e]) {
            uint32_t parent = sx_eg_find(eg, eg->owner[e]);
            if (eg->node[eg->owner[e]].dead == 0 && greedy_improve(x, &g, eg->owner[e]) &&
                x->queued[parent] == 0) {
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
    uint32_t *choice; /* of the incumbent, with a default for every other class */
    uint32_t *trial;
    uint32_t *program; /* classes of the incumbent, children first */
    uint32_t program_count;
    uint8_t *paid;
    uint64_t cost;
} search;

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
        if (s->paid[c] == 0) {
            s->choice[c] = x->tree_best[c];
        }
        s->trial[c] = s->choice[c];
    }
}

/* Takes the trial if it is a cheaper program; else puts back the classes in `changed`. */
static bool settle(extractor *x, search *s, const uint32_t *changed, uint32_t count)
{
    uint64_t total;
    if (walk(x, x->wanted->cost, s->trial, &total) && total < s->cost) {
        s->cost = total;
        for (uint32_t i = 0; i < count; i++) {
            s->choice[changed[i]] = s->trial[changed[i]];
        }
        memcpy(s->program, x->walker.order, x->walker.order_count * sizeof(uint32_t));
        s->program_count = x->walker.order_count;
        return true;
    }
    for (uint32_t i = 0; i < count; i++) {
        s->trial[changed[i]] = s->choice[changed[i]];
    }
    return false;
}

static bool try_alternatives(extractor *x, search *s, uint32_t class_)
{
    const sx_eg *eg = x->eg;
    uint32_t n = class_;
    do {
        if (eg->node[n].dead == 0 && n != s->choice[class_] &&
            x->wanted->cost[n] != SX_COST_NEVER) {
            s->trial[class_] = n;
            if (settle(x, s, &class_, 1)) {
                return true;
            }
        }
        n = next_live(eg, n);
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

/* All users of a class at once turn to their cheapest node that does without it: one at a time none of them would gain. */
static bool try_without(extractor *x, search *s, uint32_t class_)
{
    const sx_eg *eg = x->eg;
    uint32_t changed[16];
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->program_count && count < SX_COUNT(changed); i++) {
        uint32_t user = s->program[i];
        if (!uses_class(eg, s->choice[user], class_)) {
            continue;
        }
        uint32_t best = SX_EG_NONE;
        uint64_t best_cost = SX_COST_NEVER;
        uint32_t n = user;
        do {
            uint64_t total = eg->node[n].dead == 0 && !uses_class(eg, n, class_)
                                 ? tree_cost_of(x, x->wanted->cost, n)
                                 : SX_COST_NEVER;
            if (total < best_cost || (total == best_cost && n < best && total != SX_COST_NEVER)) {
                best = n;
                best_cost = total;
            }
            n = next_live(eg, n);
        } while (n != user);
        if (best == SX_EG_NONE) {
            break;
        }
        s->trial[user] = best;
        changed[count++] = user;
    }
    return count > 0 && settle(x, s, changed, count);
}

static sx_code search_init(extractor *x, search *s)
{
    uint32_t count = x->eg->node_count;
    s->choice = SX_NEW_ARRAY(x->cx, uint32_t, count);
    s->trial = SX_NEW_ARRAY(x->cx, uint32_t, count);
    s->program = SX_NEW_ARRAY(x->cx, uint32_t, count);
    s->paid = SX_NEW_ARRAY(x->cx, uint8_t, count);
    if (s->choice == NULL || s->trial == NULL || s->program == NULL || s->paid == NULL) {
        return x->cx->error.code;
    }
    s->cost = SX_COST_NEVER;
    return SX_OK;
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

static void descend(extractor *x, search *s)
{
    uint64_t budget = x->work + x->wanted->fuel;
    bool better = true;
    while (better && x->work < budget) {
        better = false;
        refresh_defaults(x, s);
        for (uint32_t i = s->program_count; i-- > 0 && x->work < budget;) {
            uint32_t class_ = s->program[i < s->program_count ? i : s->program_count - 1];
            better = try_alternatives(x, s, class_) || better;
        }
        for (uint32_t i = 0; i < s->program_count && x->work < budget; i++) {
            better = try_without(x, s, s->program[i]) || better;
        }
    }
}

/* ---- rung 4: branch and bound over the classes a program still needs ---- */

#define BRANCH_DEPTH_MAX 400u

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
        n = next_live(eg, n);
    } while (n != class_);
    return least;
}

/* pending[decided] is next; `bound` is the cost of what is decided plus the least of what is pending. */
static void branch(extractor *x, search *s, brancher *b, uint32_t decided, uint32_t count,
                   uint64_t bound)
{
    const sx_eg *eg = x->eg;
    x->work++;
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
        n = next_live(eg, n);
    } while (n != class_ && !b->cut);
    b->choice[class_] = eg->node_count;
}

static sx_code prove(extractor *x, search *s, bool *proven)
{
    const sx_eg *eg = x->eg;
    brancher b = {.budget = x->work + x->wanted->fuel};
    b.choice = SX_NEW_ARRAY(x->cx, uint32_t, eg->node_count);
    b.pending = SX_NEW_ARRAY(x->cx, uint32_t, eg->node_count + 1);
    b.least = SX_NEW_ARRAY(x->cx, uint64_t, eg->node_count);
    if (b.choice == NULL || b.pending == NULL || b.least == NULL) {
        return x->cx->error.code;
    }
    for (uint32_t c = 0; c < eg->node_count; c++) {
        b.choice[c] = SX_EG_NONE;
        b.least[c] = eg->up[c] == c ? least_node(x, c) : 0;
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
    SX_ASSERT(eg->absorbed_count == 0);
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
    descend(&x, &s);
    result->proven = false;
    SX_TRY(prove(&x, &s, &result->proven));
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
