/* solve.c - the ladder: from a problem to an answer. */
#include <math.h>
#include <string.h>

#include "core/extract/inner.h"

#define UNITS_LOG2 50  /* of the tree optimum's program */
#define POLISH_SHARE 4 /* so much of the fuel again for choosing among equal programs */

typedef struct {
    xt x;
    const sx_xt *problem;
    xt_part whole; /* the problem as a part, where its best program is not known to cost nothing */
    sx_xt_tree tree;
    xt_searcher searcher;
    const uint32_t *owner; /* per node of the problem: its class */
    /* per node of the problem: its cost; XT_TOP where it cannot be in a better program */
    uint64_t *units;
    uint32_t *choice; /* the best program so far, with holes where it does not care */
    uint64_t cost;    /* of it, in units */
    uint32_t *try_;
    uint64_t greedy; /* best of tree and greedy sets, in units */
    bool rounded;    /* some cost is no multiple of the unit */
    bool skipped;    /* a rung was left out for size */
} ladder;

/* ---- the program in hand ---- */

/* Makes `try_` the best if it is a program and cheaper. */
static sx_code offer(ladder *l)
{
    sx_xt_walk walk;
    SX_TRY(sx_xt_walk_run(l->x.cx, l->problem, l->try_, &walk));
    uint64_t cost = 0;
    for (uint32_t i = 0; i < walk.order_count && walk.whole; i++) {
        cost = sx_xt_add(cost, l->units[l->try_[walk.order[i]]]);
    }
    if (walk.whole && cost < l->cost) {
        l->cost = cost;
        memcpy(l->choice, l->try_, l->problem->class_count * sizeof(uint32_t));
    }
    return SX_OK;
}

static sx_code offer_rope(ladder *l, uint32_t rope)
{
    memcpy(l->try_, l->tree.choice, l->problem->class_count * sizeof(uint32_t));
    SX_TRY(sx_xt_write_rope(&l->x, rope, l->owner, l->try_));
    return offer(l);
}

/* ---- costs as whole numbers ---- */

/* `total`: cost of the tree optimum's program. */
static sx_code scale(ladder *l, double total)
{
    const sx_xt *p = l->problem;
    int exponent = 0;
    if (isinf(total)) {
        return SX_FAIL(l->x.cx, SX_INPUT, "extraction: the cost of a program is beyond %g", 1e308);
    }
    (void)frexp(total, &exponent);
    exponent = total > 0 ? exponent - UNITS_LOG2 : 0;
    exponent = exponent < -1022 ? -1022 : exponent;
    l->x.unit = ldexp(1, exponent);
    const double per_unit = ldexp(1, -exponent); /* a power of two: products with it are exact */
    l->x.grain = 0;
    for (uint32_t n = 0; n < p->node_count; n++) {
        l->units[n] = XT_TOP;
        if (p->cost[n] <= total) {
            l->units[n] = (uint64_t)rint(p->cost[n] * per_unit);
            l->x.grain = l->x.grain == 1 ? 1 : sx_gcd_u64(l->x.grain, l->units[n]);
            double back = (double)l->units[n] * l->x.unit;
            l->rounded = l->rounded || back < p->cost[n] || back > p->cost[n];
        }
    }
    l->x.grain = l->x.grain == 0 ? 1 : l->x.grain;
    return SX_OK;
}

/* ---- the problem as a part ---- */

/* May the node be in a better program than the tree optimum's, as far as one look tells? */
static bool admitted(const ladder *l, uint32_t n)
{
    const sx_xt *p = l->problem;
    bool ok = l->units[n] < XT_TOP;
    for (uint32_t e = p->edge_first[n]; ok && e < p->edge_first[n + 1]; e++) {
        ok = l->tree.choice[p->child[e]] != SX_XT_NONE && p->child[e] != l->owner[n];
    }
    return ok;
}

/* number[class] = 0 for classes below the roots, SX_XT_NONE for others; counts what the part will hold. Nodes that are
 * not admitted get XT_TOP. */
static sx_code find_reached(ladder *l, uint32_t *number, uint32_t count[3])
{
    const sx_xt *p = l->problem;
    xt_mark mark = sx_xt_mark(&l->x);
    uint32_t *stack = XT_TAKE(&l->x, uint32_t, (size_t)p->class_count + 1);
    uint32_t top = 0;
    if (stack == NULL) {
        return l->x.cx->error.code;
    }
    memset(number, 0xFF, p->class_count * sizeof(uint32_t));
    for (uint32_t r = 0; r < p->root_count; r++) {
        number[p->root[r]] = 0;
        stack[top++] = p->root[r];
    }
    while (top > 0) {
        uint32_t c = stack[--top];
        count[0]++;
        for (uint32_t n = p->node_first[c]; n < p->node_first[c + 1]; n++) {
            if (!admitted(l, n)) {
                l->units[n] = XT_TOP;
                continue;
            }
            count[1]++;
            count[2] += p->edge_first[n + 1] - p->edge_first[n];
            for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
                if (number[p->child[e]] == SX_XT_NONE) {
                    number[p->child[e]] = 0;
                    stack[top++] = p->child[e];
                }
            }
        }
    }
    sx_xt_release(&l->x, mark);
    return SX_OK;
}

static sx_code import(ladder *l, xt_part *part)
{
    const sx_xt *p = l->problem;
    xt *x = &l->x;
    uint32_t count[3] = {0, 0, 0};
    uint32_t *number = XT_TAKE(x, uint32_t, (size_t)p->class_count + 1);
    uint32_t *seen = XT_TAKE_ZEROED(x, uint32_t, (size_t)p->class_count + 1);
    if (number == NULL || seen == NULL) {
        return x->cx->error.code;
    }
    SX_TRY(find_reached(l, number, count));
    SX_TRY(sx_xt_part_make(x, part, count[0], count[1], count[2]));
    uint32_t classes = 0;
    for (uint32_t c = 0; c < p->class_count; c++) {
        number[c] = number[c] != SX_XT_NONE ? classes++ : SX_XT_NONE;
    }
    uint32_t nodes = 0;
    uint32_t edges = 0;
    for (uint32_t c = 0; c < p->class_count; c++) {
        for (uint32_t n = p->node_first[c]; number[c] != SX_XT_NONE && n < p->node_first[c + 1];
             n++) {
            if (l->units[n] >= XT_TOP) {
                continue;
            }
            for (uint32_t e = p->edge_first[n]; e < p->edge_first[n + 1]; e++) {
                uint32_t d = p->child[e];
                if (seen[d] != n + 1) {
                    seen[d] = n + 1;
                    part->child[edges++] = number[d];
                }
            }
            part->cost[nodes] = l->units[n];
            part->rope[nodes++] = n;
            part->edge_first[nodes] = edges;
        }
        if (number[c] != SX_XT_NONE) {
            part->node_first[number[c] + 1] = nodes;
        }
    }
    for (uint32_t r = 0; r < p->root_count; r++) {
        part->forced[number[p->root[r]]] = 1;
    }
    return SX_OK;
}

/* ---- rungs ---- */

static sx_code join_program(xt *x, const xt_part *part, const xt_program *program, uint32_t *rope)
{
    *rope = SX_XT_NONE;
    for (uint32_t i = 0; i < program->count; i++) {
        SX_TRY(sx_xt_join(x, *rope, part->rope[program->choice[program->order[i]]], rope));
    }
    return SX_OK;
}

#define DESCEND_CLASSES_MAX 200000u
#define GREEDY_SHARE \
    4u /* of the fuel: descending makes more of the rest than more greedy sets do */

/* A good program of an open part: with paid in cost, without paid in rope. */
static sx_code heuristics(ladder *l, const xt_part *part, xt_outcome *found)
{
    xt *x = &l->x;
    xt_mark mark = sx_xt_mark(x);
    xt_program best;
    xt_trees trees;
    *found = (xt_outcome){.cost = XT_NEVER, .rope = SX_XT_NONE};
    SX_TRY(sx_xt_program_make(x, part, &best));
    SX_TRY(sx_xt_trees_init(x, part, &trees));
    uint64_t budget = x->budget;
    x->budget = x->work < budget ? x->work + (budget - x->work) / GREEDY_SHARE : budget;
    SX_TRY(sx_xt_greedy(x, part, &trees, &best));
    x->budget = budget;
    l->greedy = sx_xt_add(part->paid, best.cost) < l->greedy ? part->paid + best.cost : l->greedy;
    if (part->class_count <= DESCEND_CLASSES_MAX) {
        SX_TRY(sx_xt_descend(x, part, &trees, &best));
    }
    if (best.cost != XT_NEVER) {
        found->cost = best.cost;
        SX_TRY(join_program(x, part, &best, &found->rope));
    }
    sx_xt_release(x, mark);
    return SX_OK;
}

/* The independent pieces of what the reductions left: a good program each, then the exact search. Bounds in `bound`. */
static sx_code solve_part(ladder *l, xt_part *part, uint64_t *bound)
{
    xt *x = &l->x;
    xt_outcome found;
    xt_outcome exact;
    SX_TRY(heuristics(l, part, &found));
    if (found.cost != XT_NEVER) {
        uint32_t rope;
        SX_TRY(sx_xt_join(x, part->paid_rope, found.rope, &rope));
        SX_TRY(offer_rope(l, rope));
    }
    if (part->words == 0) {
        l->skipped = true;
        *bound = part->paid;
        return SX_OK;
    }
    SX_TRY(sx_xt_branch(x, part, l->cost - x->grain, 0, &exact));
    if (exact.cost != XT_NEVER) {
        SX_TRY(offer_rope(l, exact.rope));
    }
    *bound = exact.bound;
    return SX_OK;
}

static sx_code climb(ladder *l, uint64_t *bound)
{
    xt_part part;
    xt_verdict verdict;
    *bound = l->cost;
    if (l->cost == 0) {
        return SX_OK;
    }
    SX_TRY(import(l, &l->whole));
    SX_TRY(sx_xt_part_copy(&l->x, &l->whole, NULL, &part)); /* which the reductions change */
    *bound = 0;
    uint64_t budget = l->x.budget; /* half of it is for what follows */
    l->x.budget = l->x.work < budget ? l->x.work + (budget - l->x.work) / 2 : budget;
    SX_TRY(sx_xt_reduce(&l->x, &part, l->cost - l->x.grain, &verdict));
    l->x.budget = budget;
    if (verdict == XT_CLOSED) {
        *bound = l->cost;
    } else if (verdict == XT_DONE) {
        SX_TRY(offer_rope(l, part.paid_rope));
        *bound = l->cost;
    } else {
        SX_TRY(solve_part(l, &part, bound));
    }
    return SX_OK;
}

/* Of programs that cost the same, one with small nodes. */
static sx_code polish(ladder *l)
{
    xt *x = &l->x;
    const xt_part *part = &l->whole;
    xt_program program;
    xt_trees trees;
    uint32_t rope;
    SX_TRY(sx_xt_program_make(x, part, &program));
    for (uint32_t c = 0; c < part->class_count; c++) {
        program.choice[c] = SX_XT_NONE;
        for (uint32_t n = part->node_first[c]; n < part->node_first[c + 1]; n++) {
            if (l->choice[l->owner[part->rope[n]]] == part->rope[n]) {
                program.choice[c] = n;
            }
        }
    }
    SX_TRY(sx_xt_program_walk(x, part, &program));
    if (program.cost != l->cost) {
        return SX_OK; /* a node that the import left out: no better program has it */
    }
    SX_TRY(sx_xt_trees_init(x, part, &trees));
    SX_TRY(sx_xt_polish(x, part, &trees, &program));
    SX_TRY(join_program(x, part, &program, &rope));
    return sx_xt_write_rope(x, rope, l->owner, l->choice);
}

/* ---- the answer ---- */

/* `spent`: the search ended for lack of fuel. */
static sx_code fill_answer(ladder *l, uint64_t bound, bool spent, sx_xt_answer *answer)
{
    const sx_xt *p = l->problem;
    sx_xt_walk walk;
    SX_TRY(sx_xt_walk_run(l->x.cx, p, l->choice, &walk));
    SX_ASSERT(walk.whole);
    memset(answer->choice, 0xFF, p->class_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < walk.order_count; i++) {
        answer->choice[walk.order[i]] = l->choice[walk.order[i]];
    }
    answer->dag_cost = walk.cost;
    answer->proven = bound >= l->cost;
    /* a bound in units is off by half a unit for every class that has a cost */
    double slack = l->rounded ? (double)p->class_count / 2 : 0;
    double low = ((double)bound - slack) * l->x.unit;
    low = low > 0 ? low : 0;
    answer->lower_bound = answer->proven || low > walk.cost ? walk.cost : low;
    answer->greedy_cost = (double)l->greedy * l->x.unit;
    answer->fuel = l->x.work;
    if (answer->proven) {
        answer->stop = SX_XT_PROVEN;
    } else if (l->x.expired) {
        answer->stop = SX_XT_DEADLINE;
    } else {
        answer->stop = l->skipped && !spent ? SX_XT_SIZE : SX_XT_FUEL;
    }
    return SX_OK;
}

static sx_code ladder_init(ladder *l)
{
    const sx_xt *p = l->problem;
    sx_ctx *cx = l->x.cx;
    l->units = SX_NEW_ARRAY_UNSET(cx, uint64_t, (size_t)p->node_count + 1);
    l->choice = SX_NEW_ARRAY_UNSET(cx, uint32_t, (size_t)p->class_count + 1);
    l->try_ = SX_NEW_ARRAY_UNSET(cx, uint32_t, (size_t)p->class_count + 1);
    if (l->units == NULL || l->choice == NULL || l->try_ == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_xt_searcher_init(cx, NULL, &l->searcher, p, &l->tree));
    sx_xt_searcher_run(&l->searcher, NULL);
    l->owner = l->searcher.owner;
    return SX_OK;
}

/* Everything in the memory of `x`, but for the choice of the answer. */
static sx_code run(xt *x, sx_ctx *cx, sx_xt_answer *answer)
{
    const sx_xt *p = x->problem;
    ladder l = {.x = *x, .problem = p, .cost = XT_NEVER};
    SX_TRY(ladder_init(&l));
    for (uint32_t r = 0; r < p->root_count; r++) {
        if (l.tree.choice[p->root[r]] == SX_XT_NONE) {
            return SX_FAIL(x->cx, SX_INPUT, "root %u: class %u has no program", r, p->root[r]);
        }
    }
    sx_xt_walk walk;
    SX_TRY(sx_xt_walk_run(x->cx, p, l.tree.choice, &walk));
    SX_ASSERT(walk.whole);
    answer->tree_cost = l.tree.total;
    SX_TRY(scale(&l, walk.cost));
    memcpy(l.try_, l.tree.choice, p->class_count * sizeof(uint32_t));
    SX_TRY(offer(&l));
    l.greedy = l.cost;
    if (x->options->start != NULL) {
        memcpy(l.try_, x->options->start, p->class_count * sizeof(uint32_t));
        SX_TRY(offer(&l));
    }
    uint64_t bound;
    bool imported = l.cost > 0;
    SX_TRY(climb(&l, &bound));
    bool spent = sx_xt_out(&l.x);
    l.x.budget = sx_xt_add(l.x.work, x->options->fuel / POLISH_SHARE);
    SX_ASSERT(imported || l.cost == 0);
    if (l.cost > 0 && p->class_count <= DESCEND_CLASSES_MAX && !sx_xt_out(&l.x)) {
        SX_TRY(polish(&l));
    }
    if (l.x.cancelled) {
        return SX_FAIL(x->cx, SX_CANCELLED, "the request was cancelled");
    }
    answer->choice = SX_NEW_ARRAY(cx, uint32_t, (size_t)p->class_count + 1);
    if (answer->choice == NULL) {
        return SX_FAIL(x->cx, cx->error.code, "%s", cx->error.text);
    }
    return fill_answer(&l, bound, spent, answer);
}

sx_code sx_xt_solve(sx_ctx *cx, const sx_xt *problem, const sx_xt_options *options,
                    sx_xt_answer *answer)
{
    sx_ctx scratch; /* memory that goes when the answer is there */
    sx_arena *arena = &cx->arena;
    SX_ASSERT(problem->root_count > 0 && arena->used_bytes <= arena->limit_bytes);
    sx_ctx_init(&scratch, arena->limit_bytes - arena->used_bytes);
    scratch.cancelled = cx->cancelled;
    scratch.cancelled_self = cx->cancelled_self;
    xt x = {.cx = &scratch, .problem = problem, .options = options, .budget = options->fuel};
    *answer = (sx_xt_answer){0};
    sx_code code = run(&x, cx, answer);
    SX_ASSERT(code != SX_OK || answer->lower_bound <= answer->dag_cost);
    if (code != SX_OK) {
        const sx_error *e = &scratch.error;
        (void)sx_fail(cx, code, e->file, e->line, "%s", e->text);
    }
    sx_arena_needed(arena, sx_arena_peak(&scratch.arena));
    sx_ctx_fini(&scratch);
    return code;
}
