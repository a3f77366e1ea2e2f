/* relax.c - a lower bound by Lagrangian relaxation, and the nodes it rules out.
 *
 * Integer program: x(n) = 1 for picked nodes, y(c) = sum of x over class c, 1 for forced classes, at most 1
 * for the others. For every class c and every class d that is needed below some of its nodes: sum of x(n) over
 * the nodes n of c that need d <= y(d). With direct children alone the relaxation is weak (0.34 of the
 * optimum, geometric mean over the public collection); with transitive needs it is mostly tight. A multiplier
 * w >= 0 for each of these rows moves it into the objective: what is left falls apart into classes,
 *     L(w) = sum over forced c of min r(n) + sum over other c of min(0, min r(n)),
 *     r(n) = cost(n) + sum of w(c, d) over what n needs - sum of w(c', c) over the rows that end in c,
 * and L(w) bounds every program from below whatever w is. Subgradient steps (Held, Karp 1971; Polyak's length)
 * raise it. A node with L - min + r(n) above the limit is in no program within it.
 *
 * Doubles in one fixed order; the bound is lowered by more than all rounding can add up to before it counts. */
#include <math.h>
#include <string.h>

#include "core/extract/inner.h"

#define ROWS_MAX (UINT32_C(1) << 22) /* entries of all rows together */
#define IMPLIED (SX_XT_NONE - 1)
#define STALL_ROUNDS 12u
#define STEP_LEAST 0.005

typedef struct {
    xt *x;
    const xt_part *p;
    uint32_t row_count;
    uint32_t *row_to;      /* per row: class d */
    uint32_t *entry_first; /* [node_count + 1] */
    uint32_t *entry;       /* rows a node takes part in */
    double *weight;        /* per row */
    double *income;        /* per class: sum of the weights of rows that end in it */
    double *price;         /* per node: r(n) */
    double *slope;         /* per row */
    uint32_t *picked;      /* per class: its cheapest node */
    uint8_t *used;         /* per class: y */
    uint64_t *set, *forced;
    uint32_t *list;   /* classes a node needs */
    uint32_t *met;    /* classes the class at hand needs */
    uint64_t *mark;   /* per class: which nodes of the class at hand need it */
    uint32_t *row_of; /* per class: row of the class at hand, SX_XT_NONE or IMPLIED */
    double margin;
} relaxer;

/* What node n needs and is not forced, into `list`; how many. */
static uint32_t list_needs(relaxer *l, uint32_t n)
{
    const xt_part *p = l->p;
    uint32_t count = 0;
    memset(l->set, 0, p->words * sizeof(uint64_t));
    for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
        const uint64_t *need = &p->need[(size_t)p->child[e] * p->words];
        for (uint32_t w = 0; w < p->words; w++) {
            l->set[w] |= need[w];
        }
    }
    for (uint32_t w = 0; w < p->words; w++) {
        for (uint64_t bits = l->set[w] & ~l->forced[w]; bits != 0; bits &= bits - 1) {
            l->list[count++] = w * 64 + (uint32_t)__builtin_ctzll(bits);
        }
    }
    l->x->work += p->words;
    return count;
}

/* Entries of the rows if all were written; above ROWS_MAX there is no bound. */
static uint64_t count_entries(relaxer *l)
{
    uint64_t total = 0;
    for (uint32_t n = 0; n < l->p->node_count && total <= ROWS_MAX; n++) {
        total += list_needs(l, n);
    }
    return total;
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Marks the classes needed by class c whose row another row implies: needed below a class that the same nodes
 * of c need. Which nodes need a class is told by a sum of hashes: a clash leaves a row out, and the bound
 * stays a bound. */
static uint32_t find_rows(relaxer *l, uint32_t c)
{
    const xt_part *p = l->p;
    uint32_t count = 0;
    for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
        uint32_t needs = list_needs(l, n);
        for (uint32_t i = 0; i < needs; i++) {
            uint32_t d = l->list[i];
            if (l->mark[d] == 0) {
                l->met[count++] = d;
            }
            l->mark[d] += mix(n + UINT64_C(0x9E3779B97F4A7C15)) | 1;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t above = l->met[i];
        const uint64_t *need = &p->need[(size_t)above * p->words];
        for (uint32_t w = 0; w < p->words; w++) {
            for (uint64_t bits = need[w] & ~l->forced[w]; bits != 0; bits &= bits - 1) {
                uint32_t d = w * 64 + (uint32_t)__builtin_ctzll(bits);
                l->row_of[d] = d != above && l->mark[d] == l->mark[above] ? IMPLIED : l->row_of[d];
            }
        }
        l->x->work += p->words;
    }
    return count;
}

static void write_rows(relaxer *l)
{
    const xt_part *p = l->p;
    uint32_t entries = 0;
    for (uint32_t c = 0; c < p->class_count; c++) {
        uint32_t count = find_rows(l, c);
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            l->entry_first[n] = entries;
            uint32_t needs = list_needs(l, n);
            for (uint32_t i = 0; i < needs; i++) {
                uint32_t d = l->list[i];
                if (l->row_of[d] == SX_XT_NONE) {
                    l->row_of[d] = l->row_count;
                    l->row_to[l->row_count++] = d;
                }
                l->entry[entries] = l->row_of[d];
                entries += l->row_of[d] != IMPLIED ? 1 : 0;
            }
        }
        while (count-- > 0) {
            l->row_of[l->met[count]] = SX_XT_NONE;
            l->mark[l->met[count]] = 0;
        }
    }
    l->entry_first[p->node_count] = entries;
}

static sx_code relaxer_init(relaxer *l, uint32_t entries)
{
    xt *x = l->x;
    const xt_part *p = l->p;
    size_t classes = (size_t)p->class_count + 1;
    size_t nodes = (size_t)p->node_count + 1;
    l->row_to = XT_TAKE(x, uint32_t, (size_t)entries + 1);
    l->entry = XT_TAKE(x, uint32_t, (size_t)entries + 1);
    l->met = XT_TAKE(x, uint32_t, classes);
    l->mark = XT_TAKE_ZEROED(x, uint64_t, classes);
    l->entry_first = XT_TAKE(x, uint32_t, nodes);
    l->weight = XT_TAKE_ZEROED(x, double, (size_t)entries + 1);
    l->slope = XT_TAKE_ZEROED(x, double, (size_t)entries + 1);
    l->income = XT_TAKE_ZEROED(x, double, classes);
    l->price = XT_TAKE_ZEROED(x, double, nodes);
    l->picked = XT_TAKE(x, uint32_t, classes);
    l->used = XT_TAKE(x, uint8_t, classes);
    l->row_of = XT_TAKE(x, uint32_t, classes);
    bool room = l->row_to != NULL && l->entry != NULL && l->met != NULL && l->mark != NULL &&
                l->entry_first != NULL && l->weight != NULL && l->slope != NULL &&
                l->income != NULL && l->price != NULL && l->picked != NULL && l->used != NULL &&
                l->row_of != NULL;
    if (room) {
        memset(l->row_of, 0xFF, classes * sizeof(uint32_t));
    }
    return room ? SX_OK : x->cx->error.code;
}

/* L(w), lowered by the margin of rounding. */
static double evaluate(relaxer *l)
{
    const xt_part *p = l->p;
    double bound = 0;
    double size = 0;
    memset(l->income, 0, p->class_count * sizeof(double));
    for (uint32_t k = 0; k < l->row_count; k++) {
        l->income[l->row_to[k]] += l->weight[k];
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        double least = (double)INFINITY;
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            double price = (double)p->cost[n];
            for (uint32_t e = l->entry_first[n]; e < l->entry_first[n + 1]; e++) {
                price += l->weight[l->entry[e]];
            }
            size += price;
            price -= l->income[c];
            l->price[n] = price;
            if (price < least) {
                least = price;
                l->picked[c] = n;
            }
        }
        size += l->income[c];
        l->used[c] = p->forced[c] != 0 || least < 0 ? 1 : 0;
        bound += l->used[c] != 0 ? least : 0;
    }
    /* each sum of k doubles is off by at most k units in the last place of what went in */
    l->margin = size * 0x1p-52 * (double)(l->row_count + p->class_count + 64);
    return bound - l->margin;
}

/* One step along the violated rows. False: there are none, the program relaxed is a program. */
static bool step(relaxer *l, double bound, double target, double length)
{
    const xt_part *p = l->p;
    double norm = 0;
    for (uint32_t k = 0; k < l->row_count; k++) {
        l->slope[k] = -(double)l->used[l->row_to[k]];
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        if (l->used[c] != 0) {
            uint32_t n = l->picked[c];
            for (uint32_t e = l->entry_first[n]; e < l->entry_first[n + 1]; e++) {
                l->slope[l->entry[e]] += 1;
            }
        }
    }
    for (uint32_t k = 0; k < l->row_count; k++) {
        if (l->slope[k] > 0 || l->weight[k] > 0) {
            norm += l->slope[k] * l->slope[k];
        }
    }
    if (!(norm > 0)) {
        return false;
    }
    double scale = length * (target - bound) / norm;
    for (uint32_t k = 0; k < l->row_count; k++) {
        double weight = l->weight[k] + scale * l->slope[k];
        l->weight[k] = weight > 0 ? weight : 0;
    }
    return true;
}

/* Nodes that cost too much above the bound; `reduced` follows the best bound. */
static uint32_t judge(const relaxer *l, double bound, double limit, bool best, uint8_t *kills,
                      double *reduced)
{
    const xt_part *p = l->p;
    uint32_t count = 0;
    for (uint32_t c = 0; c < p->class_count; c++) {
        double base = l->used[c] != 0 ? l->price[l->picked[c]] : 0;
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            double above = l->price[n] - base;
            if (best) {
                reduced[n] = above;
            }
            if (kills[n] == 0 && bound + above - l->margin > limit) {
                kills[n] = 1;
                count++;
            }
        }
    }
    return count;
}

static uint64_t round_up(const relaxer *l, double bound, uint64_t limit)
{
    uint64_t grain = l->x->grain;
    if (!(bound > 0)) {
        return 0;
    }
    if (bound > (double)limit) {
        return limit + grain;
    }
    uint64_t whole = (uint64_t)ceil(bound);
    return (whole + grain - 1) / grain * grain;
}

sx_code sx_xt_relax(xt *x, const xt_part *part, uint64_t limit, uint32_t rounds, uint8_t *kills,
                    double *reduced, uint64_t *bound, uint32_t *kill_count)
{
    SX_ASSERT(part->words > 0); /* the part is open, and small enough for sets */
    xt_mark mark = sx_xt_mark(x);
    relaxer l = {.x = x, .p = part};
    *bound = 0;
    *kill_count = 0;
    l.set = XT_TAKE(x, uint64_t, (size_t)part->words + 1);
    l.forced = XT_TAKE_ZEROED(x, uint64_t, (size_t)part->words + 1);
    l.list = XT_TAKE(x, uint32_t, (size_t)part->words * 64 + 1);
    if (l.set == NULL || l.forced == NULL || l.list == NULL) {
        return x->cx->error.code;
    }
    for (uint32_t c = 0; c < part->words * 64; c++) {
        bool forced = c >= part->class_count || part->forced[c] != 0;
        l.forced[c / 64] |= (uint64_t)(forced ? 1 : 0) << (c % 64);
    }
    uint64_t entries = count_entries(&l);
    if (entries > ROWS_MAX) {
        sx_xt_release(x, mark);
        return SX_OK;
    }
    SX_TRY(relaxer_init(&l, (uint32_t)entries));
    write_rows(&l);
    entries = l.entry_first[part->node_count];
    double top = (double)limit;
    double best = 0;
    double length = 1.5;
    double target = top + 0.05 * top + (double)x->grain;
    uint32_t stalled = 0;
    for (uint32_t i = 0; i < rounds && length > STEP_LEAST && best <= top; i++) {
        double now = evaluate(&l);
        bool better = i == 0 || now > best;
        stalled = now > best + 1e-4 * (target - best) ? 0 : stalled + 1;
        best = better ? now : best;
        *kill_count += judge(&l, now, top, better, kills, reduced);
        if (stalled >= STALL_ROUNDS) {
            length *= 0.6;
            stalled = 0;
        }
        uint64_t work = entries + 3 * (uint64_t)l.row_count + 2 * (uint64_t)part->node_count;
        if (!sx_xt_spend(x, work) || !step(&l, now, target, length)) {
            break;
        }
    }
    *bound = round_up(&l, best, limit);
    sx_xt_release(x, mark);
    return SX_OK;
}
