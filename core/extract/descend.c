/* descend.c - local search: from one program to a cheaper one by changing one class, or all readers of one
 * class, at a time.
 *
 * Readers are counted, so that a change is priced by what it adds to the program and what it lets go. Classes
 * outside the program have a default: the cheapest tree, given what the program pays already. */
#include <math.h>
#include <string.h>

#include "core/extract/inner.h"

#define USERS_MAX 16u

typedef struct {
    xt *x;
    const xt_part *p;
    xt_program *best;   /* the program in hand, with defaults in choice */
    xt_program try_;    /* for walks */
    uint32_t *readers;  /* per class: edges of the program that need it, one more if forced */
    uint32_t *position; /* per class: place in best->order, or SX_XT_NONE */
    uint32_t *seen;     /* per class: epoch of the last search that met it */
    uint32_t *stack;
    uint32_t *owner;
    uint32_t *reader_first, *reader; /* nodes that read a class */
    uint8_t *paid;
    uint32_t *touched;        /* classes that the last rechoice gave one more reader, and from */
    uint32_t *touched_end[2]; /* touched_end[0] on those that it took one from */
    uint32_t *turned;         /* classes a move has given another node, */
    uint32_t *before;         /* and the nodes they had */
    uint32_t epoch;
    uint32_t holes; /* classes held without a choice */
    uint64_t cost;
    bool stale; /* defaults are those of an earlier program */
    xt_trees *trees;
} search;

/* One more reader of each child of node n, or one less; the first makes it part of the program, and its children with
 * it. Writes the classes down whose readers change, once for each change, and returns the end of that list. */
static inline uint32_t *change_children(search *s, uint32_t n, bool add, uint32_t *touched)
{
    const uint32_t *first = s->p->edge_first;
    const uint32_t *child = s->p->child;
    const uint64_t *price = s->p->cost;
    const uint32_t *choice = s->best->choice;
    uint32_t *const begin = touched;
    uint32_t *readers = s->readers;
    uint32_t *stack = s->stack; /* of nodes */
    uint32_t top = 0;
    uint32_t holes = 0;
    uint64_t cost = 0;
    for (;;) {
        const uint32_t *c = &child[first[n]];
        const uint32_t *const end = &child[first[n + 1]];
        for (; c < end; c++) {
            *touched++ = *c;
            if (add ? readers[*c]++ == 0 : --readers[*c] == 0) {
                uint32_t below = choice[*c];
                if (below == SX_XT_NONE) {
                    holes++;
                } else {
                    cost += price[below];
                    stack[top++] = below;
                }
            }
        }
        if (top == 0) {
            break;
        }
        n = stack[--top];
    }
    s->x->work += (uint64_t)(touched - begin);
    s->cost += add ? cost : 0 - cost;
    s->holes += add ? holes : 0 - holes;
    return touched;
}

/* One more reader of a class, or one less. */
static void change_readers(search *s, uint32_t class_, bool add)
{
    uint32_t n = s->best->choice[class_];
    s->x->work++;
    if (add ? s->readers[class_]++ > 0 : --s->readers[class_] > 0) {
        return;
    }
    if (n == SX_XT_NONE) {
        s->holes += add ? 1u : UINT32_MAX;
        return;
    }
    s->cost += add ? s->p->cost[n] : 0 - s->p->cost[n];
    (void)change_children(s, n, add, s->touched);
}

/* A class of the program gets node n; the cost follows. Doing it again with the old node restores everything. */
static void rechoose(search *s, uint32_t class_, uint32_t n)
{
    const xt_part *p = s->p;
    uint32_t old = s->best->choice[class_];
    s->touched_end[0] = change_children(s, n, true, s->touched);
    s->best->choice[class_] = n;
    s->cost = s->cost - p->cost[old] + p->cost[n];
    s->touched_end[1] = change_children(s, old, false, s->touched_end[0]);
}

/* Takes back the last rechoice, of a class that had node `old`, for as much work as doing it again the other way. */
static void take_back(search *s, uint32_t class_, uint32_t old, uint64_t cost, uint32_t holes)
{
    uint32_t *readers = s->readers;
    const uint32_t *touched = s->touched;
    for (; touched < s->touched_end[0]; touched++) {
        readers[*touched]--;
    }
    for (; touched < s->touched_end[1]; touched++) {
        readers[*touched]++;
    }
    s->x->work += (uint64_t)(touched - s->touched);
    s->best->choice[class_] = old;
    s->cost = cost;
    s->holes = holes;
}

/* Does the program below node n need class `target`? What stands before the target in the program cannot. */
static bool would_cycle(search *s, uint32_t target, uint32_t n)
{
    const uint32_t *first = s->p->edge_first;
    const uint32_t *children = s->p->child;
    const uint32_t *choice = s->best->choice;
    const uint32_t *position = s->position;
    const uint32_t least = position[target];
    const uint32_t epoch = ++s->epoch;
    uint32_t *seen = s->seen;
    uint32_t *stack = s->stack;
    uint32_t top = 0;
    uint64_t work = 0;
    bool found = false;
    for (;;) {
        const uint32_t end = first[n + 1];
        for (uint32_t e = first[n]; e < end && !found; e++) {
            uint32_t child = children[e];
            found = child == target;
            if (position[child] >= least && seen[child] != epoch && choice[child] != SX_XT_NONE) {
                seen[child] = epoch;
                stack[top++] = choice[child];
            }
        }
        if (top == 0 || found) {
            break;
        }
        n = stack[--top];
        work++;
    }
    s->x->work += work;
    return found;
}

/* Takes the change if it is a program and costs at most so much. */
static sx_code accept(search *s, uint64_t most, bool *taken)
{
    *taken = false;
    if (s->holes != 0 || s->cost > most) {
        return SX_OK;
    }
    memcpy(s->try_.choice, s->best->choice, s->p->class_count * sizeof(uint32_t));
    SX_TRY(sx_xt_program_walk(s->x, s->p, &s->try_));
    if (s->try_.cost > most) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < s->best->count; i++) {
        s->position[s->best->order[i]] = SX_XT_NONE;
    }
    memcpy(s->best->order, s->try_.order, s->try_.count * sizeof(uint32_t));
    s->best->count = s->try_.count;
    s->best->cost = s->try_.cost;
    for (uint32_t i = 0; i < s->best->count; i++) {
        s->position[s->best->order[i]] = i;
    }
    *taken = true;
    return SX_OK;
}

/* Choices of classes outside the program: cheapest given what is paid already. */
static void refresh_defaults(search *s)
{
    const uint32_t classes = s->p->class_count;
    const uint32_t *order = s->best->order;
    uint32_t *choice = s->best->choice;
    uint8_t *paid = s->paid;
    memset(paid, 0, classes);
    for (uint32_t i = 0; i < s->best->count; i++) {
        paid[order[i]] = 1;
    }
    sx_xt_searcher_run(&s->trees->searcher, paid);
    const uint32_t *found = s->trees->tree.choice;
    for (uint32_t c = 0; c < classes; c++) {
        choice[c] = paid[c] == 0 ? found[c] : choice[c];
    }
    s->stale = false;
}

/* Pays for fresh defaults, which are made when the first node is looked at that needs them. */
static void want_defaults(search *s)
{
    (void)sx_xt_spend(s->x, s->p->node_count + (uint64_t)sx_xt_edges(s->p));
    s->stale = true;
}

/* Does node n read classes outside the program? Only these have defaults. */
static bool reads_outside(const search *s, uint32_t n)
{
    const xt_part *p = s->p;
    bool outside = false;
    for (uint32_t e = p->edge_first[n]; !outside && e < p->edge_first[n + 1]; e++) {
        outside = s->position[p->child[e]] == SX_XT_NONE;
    }
    return outside;
}

static bool usable(const search *s, uint32_t n)
{
    const xt_part *p = s->p;
    bool ok = p->cost[n] < XT_TOP;
    for (uint32_t e = p->edge_first[n]; ok && e < p->edge_first[n + 1]; e++) {
        ok = !isinf(s->trees->tree.cost[p->child[e]]);
    }
    return ok;
}

/* Nodes first .. end of the class of a program, for at most so much. */
static sx_code try_alternatives(search *s, uint32_t class_, uint32_t end, uint64_t most,
                                bool *taken)
{
    uint32_t old = s->best->choice[class_];
    *taken = false;
    for (uint32_t n = s->p->node_first[class_]; n < end; n++) {
        if (n == old) {
            continue;
        }
        if (s->stale && s->p->cost[n] < XT_TOP && reads_outside(s, n)) {
            refresh_defaults(s);
        }
        if (!usable(s, n) || would_cycle(s, class_, n)) {
            continue;
        }
        const uint64_t cost = s->cost;
        const uint32_t holes = s->holes;
        rechoose(s, class_, n);
        SX_TRY(accept(s, most, taken));
        if (*taken) {
            return SX_OK;
        }
        take_back(s, class_, old, cost, holes);
    }
    return SX_OK;
}

/* The cheapest node of class `user` that does without another class, given what is paid. */
static uint32_t best_without(search *s, uint32_t user, uint32_t class_)
{
    const xt_part *p = s->p;
    uint32_t best = SX_XT_NONE;
    double best_cost = (double)INFINITY;
    for (uint32_t n = p->node_first[user]; n < p->node_first[user + 1]; n++) {
        double total = (double)p->cost[n];
        bool uses = false;
        for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
            uses = uses || p->child[e] == class_;
            total += s->trees->tree.cost[p->child[e]];
        }
        if (!uses && total < best_cost && !would_cycle(s, user, n)) {
            best = n;
            best_cost = total;
        }
    }
    return best;
}

/* All readers of a class at once turn to their cheapest node that does without it: one at a time none of them
 * would gain. */
static sx_code try_without(search *s, uint32_t class_, bool *taken)
{
    uint32_t user[USERS_MAX];
    uint32_t old[USERS_MAX];
    uint32_t count = 0;
    *taken = false;
    if (s->readers[class_] < 2 || s->readers[class_] > USERS_MAX || s->p->forced[class_] != 0) {
        return SX_OK;
    }
    bool possible = true;
    for (uint32_t k = s->reader_first[class_]; k < s->reader_first[class_ + 1] && possible; k++) {
        uint32_t n = s->reader[k];
        uint32_t parent = s->owner[n];
        if (s->best->choice[parent] != n || s->position[parent] == SX_XT_NONE ||
            s->readers[parent] == 0) {
            continue;
        }
        uint32_t best = count < USERS_MAX ? best_without(s, parent, class_) : SX_XT_NONE;
        possible = best != SX_XT_NONE;
        if (possible) {
            user[count] = parent;
            old[count++] = n;
            rechoose(s, parent, best);
        }
    }
    if (possible) {
        SX_TRY(accept(s, s->best->cost - 1, taken));
    }
    while (!*taken && count-- > 0) {
        rechoose(s, user[count], old[count]);
    }
    return SX_OK;
}

/* Could the class of node n, which is in the program, pick it instead of what it has? */
static bool may_turn(search *s, uint32_t n)
{
    uint32_t own = s->owner[n];
    s->x->work++;
    return s->position[own] != SX_XT_NONE && s->readers[own] > 0 && s->best->choice[own] != n &&
           usable(s, n);
}

static bool has_two_readers(search *s, uint32_t class_)
{
    uint32_t first = SX_XT_NONE;
    for (uint32_t k = s->reader_first[class_]; k < s->reader_first[class_ + 1]; k++) {
        uint32_t own = s->owner[s->reader[k]];
        if (own != first && may_turn(s, s->reader[k])) {
            if (first != SX_XT_NONE) {
                return true;
            }
            first = own;
        }
    }
    return false;
}

/* A class is taken in as it is picked now; each class of the program that could read it turns to the node that
 * does, unless that loses. Kept if all in all the program gets cheaper. */
static sx_code take_in(search *s, uint32_t class_, bool *taken)
{
    uint32_t count = 0;
    change_readers(s, class_, true);
    for (uint32_t k = s->reader_first[class_]; k < s->reader_first[class_ + 1]; k++) {
        uint32_t n = s->reader[k];
        uint32_t own = s->owner[n];
        if (count >= s->p->class_count || !may_turn(s, n) || would_cycle(s, own, n)) {
            continue;
        }
        const uint64_t cost = s->cost;
        const uint32_t holes = s->holes;
        s->turned[count] = own;
        s->before[count] = s->best->choice[own];
        rechoose(s, own, n);
        if (s->holes == 0 && s->cost <= cost) { /* what it read before may go once all turned */
            count++;
        } else {
            take_back(s, own, s->before[count], cost, holes);
        }
    }
    change_readers(s, class_, false);
    if (count > 0) {
        SX_TRY(accept(s, s->best->cost - 1, taken));
    }
    while (!*taken && count-- > 0) {
        rechoose(s, s->turned[count], s->before[count]);
    }
    return SX_OK;
}

#define TAKEN_MAX 8u /* nodes tried for one class */

/* A class outside the program that several classes of it could read (one contraction instead of many): for one
 * alone it would not pay. Its cheapest node may be the one that puts those very classes together again, so
 * each is tried. */
static sx_code try_together(search *s, uint32_t class_, bool *taken)
{
    uint32_t old = s->best->choice[class_];
    *taken = false;
    if (s->position[class_] != SX_XT_NONE || old == SX_XT_NONE || !has_two_readers(s, class_)) {
        return SX_OK;
    }
    uint32_t tried = 0;
    uint32_t end = s->p->node_first[class_ + 1];
    for (uint32_t n = s->p->node_first[class_]; n < end && tried < TAKEN_MAX && !*taken; n++) {
        if (usable(s, n) && !would_cycle(s, class_, n)) {
            s->best->choice[class_] = n;
            SX_TRY(take_in(s, class_, taken));
            tried++;
        }
    }
    s->best->choice[class_] = *taken ? s->best->choice[class_] : old;
    return SX_OK;
}

static sx_code search_init(search *s)
{
    xt *x = s->x;
    const xt_part *p = s->p;
    size_t classes = (size_t)p->class_count + 1;
    SX_TRY(sx_xt_program_make(x, p, &s->try_));
    s->readers = XT_TAKE_ZEROED(x, uint32_t, classes);
    s->position = XT_TAKE(x, uint32_t, classes);
    s->seen = XT_TAKE_ZEROED(x, uint32_t, classes);
    s->stack = XT_TAKE(x, uint32_t, classes + sx_xt_edges(p));
    s->touched = XT_TAKE(x, uint32_t, 2 * ((size_t)sx_xt_edges(p) + 1));
    s->paid = XT_TAKE(x, uint8_t, classes);
    s->turned = XT_TAKE(x, uint32_t, classes);
    s->before = XT_TAKE(x, uint32_t, classes);
    if (s->readers == NULL || s->position == NULL || s->seen == NULL || s->stack == NULL ||
        s->touched == NULL || s->paid == NULL || s->turned == NULL || s->before == NULL) {
        return x->cx->error.code;
    }
    s->owner = s->trees->searcher.owner;
    s->reader_first = s->trees->searcher.reader_first;
    s->reader = s->trees->searcher.reader;
    return SX_OK;
}

/* Readers and positions of the program in hand. */
static void begin(search *s)
{
    const xt_part *p = s->p;
    memset(s->position, 0xFF, p->class_count * sizeof(uint32_t));
    s->cost = s->best->cost;
    for (uint32_t c = 0; c < p->class_count; c++) {
        s->readers[c] = p->forced[c] != 0 ? 1 : 0;
    }
    for (uint32_t i = 0; i < s->best->count; i++) {
        uint32_t class_ = s->best->order[i];
        uint32_t n = s->best->choice[class_];
        s->position[class_] = i;
        for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
            s->readers[p->child[e]]++;
        }
    }
}

sx_code sx_xt_descend(xt *x, const xt_part *part, xt_trees *trees, xt_program *best)
{
    xt_mark mark = sx_xt_mark(x);
    uint64_t before = best->cost;
    search s = {.x = x, .p = part, .best = best, .trees = trees};
    bool better = best->cost != XT_NEVER;
    SX_TRY(search_init(&s));
    if (better) {
        begin(&s);
    }
    while (better && best->cost > 0 && sx_xt_spend(x, 1)) {
        bool taken;
        better = false;
        want_defaults(&s);
        refresh_defaults(&s);
        for (uint32_t i = best->count; i-- > 0 && best->cost > 0 && sx_xt_spend(x, 1);) {
            i = i < best->count ? i : best->count - 1;
            uint32_t class_ = best->order[i];
            SX_TRY(
                try_alternatives(&s, class_, part->node_first[class_ + 1], best->cost - 1, &taken));
            better = better || taken;
        }
        for (uint32_t i = 0; i < best->count && best->cost > 0 && sx_xt_spend(x, 1); i++) {
            SX_TRY(try_without(&s, best->order[i], &taken));
            better = better || taken;
        }
        for (uint32_t c = 0; c < part->class_count && best->cost > 0 && sx_xt_spend(x, 1); c++) {
            SX_TRY(try_together(&s, c, &taken));
            better = better || taken;
        }
    }
    SX_ASSERT(best->cost <= before);
    sx_xt_release(x, mark);
    return SX_OK;
}

sx_code sx_xt_polish(xt *x, const xt_part *part, xt_trees *trees, xt_program *best)
{
    xt_mark mark = sx_xt_mark(x);
    uint64_t before = best->cost;
    search s = {.x = x, .p = part, .best = best, .trees = trees};
    SX_TRY(search_init(&s));
    begin(&s);
    want_defaults(&s);
    for (uint32_t i = best->count; i-- > 0 && sx_xt_spend(x, 1);) {
        bool taken;
        i = i < best->count ? i : best->count - 1;
        uint32_t class_ = best->order[i];
        SX_TRY(try_alternatives(&s, class_, best->choice[class_], best->cost, &taken));
        if (taken) {
            want_defaults(&s);
        }
    }
    SX_ASSERT(best->cost <= before);
    sx_xt_release(x, mark);
    return SX_OK;
}
