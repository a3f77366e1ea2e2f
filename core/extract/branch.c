/* branch.c - exact search: reduce, split, bound, then pick a node for a class every program holds, or rule it out.
 *
 * A forced class with several nodes exists as long as anything is open. "It picks n" makes the needs of n
 * forced, so the reductions bite on both sides. Independent pieces are solved one after the other, each within
 * what the others' bounds leave of the limit. */
#include <string.h>

#include "core/extract/inner.h"

#define DEPTH_MAX 1000u
#define ROUNDS_TOP 600u
#define ROUNDS_BELOW 25u

typedef struct {
    uint8_t *kills;
    double *reduced;
    uint64_t bound; /* without paid */
    uint32_t kill_count;
} relaxed;

static sx_code relax(xt *x, const xt_part *part, uint64_t limit, uint32_t depth, relaxed *out)
{
    out->kills = XT_TAKE_ZEROED(x, uint8_t, (size_t)part->node_count + 1);
    out->reduced = XT_TAKE_ZEROED(x, double, (size_t)part->node_count + 1);
    if (out->kills == NULL || out->reduced == NULL) {
        return x->cx->error.code;
    }
    uint64_t left = limit - part->paid;
    uint64_t cuts = 0;
    SX_TRY(sx_xt_relax(x, part, left, depth == 0 ? ROUNDS_TOP : ROUNDS_BELOW, out->kills,
                       out->reduced, &out->bound, &out->kill_count));
    if (depth == 0 && out->bound <= left) { /* deeper down they cost more than they save */
        SX_TRY(sx_xt_cuts(x, part, left, out->kills, &cuts, &out->kill_count));
    }
    out->bound = cuts > out->bound ? cuts : out->bound;
    return SX_OK;
}

static void invert(uint8_t *flags, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        flags[i] = flags[i] == 0 ? 1 : 0;
    }
}

/* Of the forced classes with a choice, the one whose second-best node is furthest above its best; fewer nodes
 * on a tie. */
static uint32_t choose_node(const xt_part *part, const double *reduced)
{
    uint32_t chosen = SX_XT_NONE;
    double best_gap = -1;
    uint32_t best_size = 0;
    for (uint32_t c = 0; c < part->class_count; c++) {
        uint32_t size = part->node_first[c + 1] - part->node_first[c];
        if (part->forced[c] == 0 || size < 2) {
            continue;
        }
        uint32_t first = part->node_first[c];
        for (uint32_t n = first + 1; n < part->node_first[c + 1]; n++) {
            first = reduced[n] < reduced[first] ? n : first;
        }
        double gap = -1;
        for (uint32_t n = part->node_first[c]; n < part->node_first[c + 1]; n++) {
            double above = reduced[n] - reduced[first];
            gap = n != first && (gap < 0 || above < gap) ? above : gap;
        }
        if (chosen == SX_XT_NONE || gap > best_gap || (!(gap < best_gap) && size < best_size)) {
            chosen = first;
            best_gap = gap;
            best_size = size;
        }
    }
    SX_ASSERT(chosen != SX_XT_NONE);
    return chosen;
}

/* ---- independent pieces ---- */

typedef struct {
    uint32_t count;
    uint32_t *label; /* per class */
    uint64_t *bound; /* per piece */
    uint64_t *size;  /* per piece: nodes << 32 | piece, sorted */
} pieces;

static sx_code pieces_make(xt *x, const xt_part *part, pieces *out)
{
    *out = (pieces){.label = XT_TAKE(x, uint32_t, (size_t)part->class_count + 1)};
    if (out->label == NULL) {
        return x->cx->error.code;
    }
    SX_TRY(sx_xt_split(x, part, out->label, &out->count));
    out->bound = XT_TAKE_ZEROED(x, uint64_t, (size_t)out->count + 1);
    out->size = XT_TAKE_ZEROED(x, uint64_t, (size_t)out->count + 1);
    if (out->bound == NULL || out->size == NULL) {
        return x->cx->error.code;
    }
    for (uint32_t c = 0; c < part->class_count; c++) {
        out->size[out->label[c]] += part->node_first[c + 1] - part->node_first[c];
    }
    for (uint32_t i = 0; i < out->count; i++) {
        out->size[i] = out->size[i] << 32 | i;
    }
    for (uint32_t i = 1; i < out->count; i++) { /* small pieces first */
        uint64_t it = out->size[i];
        uint32_t k = i;
        for (; k > 0 && out->size[k - 1] > it; k--) {
            out->size[k] = out->size[k - 1];
        }
        out->size[k] = it;
    }
    return SX_OK;
}

/* The best of all pieces together, within the limit; every bound of a piece narrows what the others may cost. */
static sx_code solve_pieces(xt *x, const xt_part *part, const pieces *all, uint64_t limit,
                            uint32_t depth, xt_outcome *outcome)
{
    uint64_t sum = part->paid; /* of the bounds */
    uint64_t cost = part->paid;
    uint32_t rope = part->paid_rope;
    uint64_t budget = x->budget;
    for (uint32_t i = 0; i < all->count && sum <= limit; i++) {
        xt_mark mark = sx_xt_mark(x);
        xt_part piece;
        xt_outcome one;
        uint32_t which = (uint32_t)(all->size[i] & UINT32_MAX);
        SX_TRY(sx_xt_part_pick(x, part, all->label, which, &piece));
        uint64_t left = budget > x->work ? budget - x->work : 0;
        x->budget = x->work + left / (all->count - i);
        SX_TRY(sx_xt_branch(x, &piece, limit - sum, depth, &one));
        x->budget = budget;
        sx_xt_release(x, mark);
        sum = sx_xt_add(sum, one.bound);
        cost = one.cost == XT_NEVER || cost == XT_NEVER ? XT_NEVER : sx_xt_add(cost, one.cost);
        if (cost != XT_NEVER) {
            SX_TRY(sx_xt_join(x, rope, one.rope, &rope));
        }
    }
    *outcome = (xt_outcome){.cost = XT_NEVER, .bound = sum, .rope = SX_XT_NONE};
    if (cost <= limit) {
        outcome->cost = cost;
        outcome->rope = rope;
    }
    return SX_OK;
}

/* ---- the search ---- */

typedef struct {
    uint64_t limit;
    uint64_t floor; /* no program of what is left of the part costs less */
    xt_outcome best;
} progress;

static void take(xt *x, progress *p, const xt_outcome *found)
{
    if (found->cost != XT_NEVER && found->cost <= p->limit) {
        p->best.cost = found->cost;
        p->best.rope = found->rope;
        p->limit = found->cost >= x->grain ? found->cost - x->grain : 0;
    }
}

/* Some programs of what is left are left behind: they cost at least this. */
static void leave(progress *p, uint64_t bound)
{
    bound = bound > p->floor ? bound : p->floor;
    p->best.bound = bound < p->best.bound ? bound : p->best.bound;
}

/* The side on which the class of node n picks n. */
static sx_code descend_into(xt *x, const xt_part *part, uint32_t n, progress *p, uint32_t depth)
{
    xt_mark mark = sx_xt_mark(x);
    uint32_t joins = x->join_count;
    xt_part child;
    xt_outcome found;
    uint8_t *keep = XT_TAKE(x, uint8_t, (size_t)part->node_count + 1);
    if (keep == NULL) {
        return x->cx->error.code;
    }
    memset(keep, 1, part->node_count);
    for (uint32_t c = 0; c < part->class_count; c++) {
        if (n >= part->node_first[c] && n < part->node_first[c + 1]) {
            memset(keep + part->node_first[c], 0, part->node_first[c + 1] - part->node_first[c]);
        }
    }
    keep[n] = 1;
    SX_TRY(sx_xt_part_copy(x, part, keep, &child));
    SX_TRY(sx_xt_branch(x, &child, p->limit, depth + 1, &found));
    sx_xt_release(x, mark);
    leave(p, found.bound);
    if (found.cost == XT_NEVER) {
        x->join_count = joins;
    }
    take(x, p, &found);
    return SX_OK;
}

/* One round: *over when nothing is left of the part; else it lost nodes. */
static sx_code search(xt *x, xt_part *part, progress *p, uint32_t depth, bool *over)
{
    xt_verdict verdict;
    pieces all;
    relaxed r;
    *over = true;
    SX_TRY(sx_xt_reduce(x, part, p->limit, &verdict));
    if (verdict == XT_CLOSED) {
        leave(p, p->limit + x->grain);
        return SX_OK;
    }
    if (verdict == XT_DONE) {
        leave(p, part->paid);
        take(x, p, &(xt_outcome){.cost = part->paid, .rope = part->paid_rope});
        return SX_OK;
    }
    if (sx_xt_out(x) || part->words == 0 || depth >= DEPTH_MAX) {
        leave(p, part->paid);
        return SX_OK;
    }
    SX_TRY(pieces_make(x, part, &all));
    if (all.count > 1) {
        xt_outcome found;
        SX_TRY(solve_pieces(x, part, &all, p->limit, depth, &found));
        leave(p, found.bound);
        take(x, p, &found);
        return SX_OK;
    }
    SX_TRY(relax(x, part, p->limit, depth, &r));
    uint64_t bound = sx_xt_add(part->paid, r.bound);
    p->floor = bound > p->floor ? bound : p->floor;
    if (bound > p->limit || sx_xt_out(x)) {
        leave(p, bound > p->limit ? p->limit + x->grain : bound);
        return SX_OK;
    }
    *over = false;
    if (r.kill_count == 0) {
        uint32_t n = choose_node(part, r.reduced);
        SX_TRY(descend_into(x, part, n, p, depth));
        if (sx_xt_out(x)) {
            leave(p, bound);
            *over = true;
            return SX_OK;
        }
        r.kills[n] = 1;
    }
    invert(r.kills, part->node_count);
    xt_part rest;
    SX_TRY(sx_xt_part_copy(x, part, r.kills, &rest));
    *part = rest;
    return SX_OK;
}

sx_code sx_xt_branch(xt *x, xt_part *part, uint64_t limit, uint32_t depth, xt_outcome *outcome)
{
    progress p = {.limit = limit,
                  .best = {.cost = XT_NEVER, .bound = XT_NEVER, .rope = SX_XT_NONE}};
    bool over = false;
    while (!over) {
        SX_TRY(search(x, part, &p, depth, &over));
    }
    if (p.best.cost < p.best.bound) {
        p.best.bound = p.best.cost;
    }
    SX_ASSERT(p.best.bound <= p.best.cost);
    *outcome = p.best;
    return SX_OK;
}
