#include "core/egraph/extract.h"

#include <math.h>

#include "core/extract/extract.h"

static uint64_t add_cost(uint64_t a, uint64_t b)
{
    return a >= SX_COST_MAX || b >= SX_COST_MAX - a ? SX_COST_MAX : a + b;
}

sx_code sx_walker_init(sx_ctx *cx, const sx_eg *eg, sx_walker *walker)
{
    *walker = (sx_walker){0};
    walker->mark = SX_NEW_ARRAY(cx, uint32_t, eg->node_count);
    walker->stack = SX_NEW_ARRAY_UNSET(cx, uint32_t, eg->node_count);
    walker->next = SX_NEW_ARRAY_UNSET(cx, uint32_t, eg->node_count);
    walker->order = SX_NEW_ARRAY_UNSET(cx, uint32_t, eg->node_count);
    bool made = walker->mark != NULL && walker->stack != NULL && walker->next != NULL &&
                walker->order != NULL;
    return made ? SX_OK : cx->error.code;
}

static inline bool is_hole(const uint64_t *cost, uint32_t n)
{
    return n == SX_EG_NONE || (cost != NULL && cost[n] == SX_COST_NEVER);
}

/* Depth first from one class, children before parents; costs are added to *total. */
static bool walk_class(sx_walker *w, const sx_eg *eg, const uint64_t *cost, const uint32_t *choice,
                       uint32_t class_, uint64_t *total)
{
    const uint32_t open = w->epoch * 2;
    uint32_t *mark = w->mark;
    uint32_t top = 0;
    uint32_t k = 0; /* the next child of node n, which class_ has */
    uint32_t n = choice[class_];
    mark[class_] = open;
    if (is_hole(cost, n)) {
        return false;
    }
    for (;;) {
        if (k < eg->node[n].arity) {
            uint32_t child = sx_eg_child(eg, n, k++);
            if (mark[child] == open) {
                return false;
            }
            if (mark[child] != open + 1) {
                w->stack[top] = class_;
                w->next[top++] = k;
                mark[child] = open;
                class_ = child;
                n = choice[class_];
                k = 0;
                if (is_hole(cost, n)) {
                    return false;
                }
            }
            continue;
        }
        mark[class_] = open + 1;
        w->order[w->order_count++] = class_;
        *total = add_cost(*total, cost != NULL ? cost[n] : 1);
        if (top-- == 0) {
            return true;
        }
        class_ = w->stack[top];
        n = choice[class_];
        k = w->next[top];
    }
}

bool sx_walker_run(sx_walker *walker, const sx_eg *eg, const uint64_t *cost, const uint32_t *root,
                   uint32_t root_count, const uint32_t *choice, uint64_t *total)
{
    SX_ASSERT(walker->epoch < UINT32_MAX / 2 - 1); /* marks are made of twice the epoch */
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

/* ---- the e-graph as a problem on flat arrays: classes in order of their names, living nodes in order within
 * them ---- */

typedef struct {
    sx_xt problem;
    uint32_t *class_number; /* per node of the graph that names a class */
    uint32_t *node_number;  /* per node of the graph; SX_XT_NONE for dead ones */
    uint32_t *node_of;      /* per node of the problem */
    uint32_t *start;        /* NULL: none */
} adapter;

static sx_code number_all(sx_ctx *cx, const sx_eg *eg, adapter *a, uint32_t root_count)
{
    uint32_t classes = 0;
    uint32_t nodes = 0;
    uint32_t edges = 0;
    a->class_number = SX_NEW_ARRAY_UNSET(cx, uint32_t, (size_t)eg->node_count + 1);
    a->node_number = SX_NEW_ARRAY_UNSET(cx, uint32_t, (size_t)eg->node_count + 1);
    a->node_of = SX_NEW_ARRAY_UNSET(cx, uint32_t, (size_t)eg->node_count + 1);
    if (a->class_number == NULL || a->node_number == NULL || a->node_of == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < eg->node_count; n++) {
        if (sx_eg_is_class(eg, n)) {
            a->class_number[n] = classes++;
        }
        a->node_number[n] = SX_XT_NONE;
        if (eg->node[n].dead == 0) {
            nodes++;
            edges += eg->node[n].arity;
        }
    }
    return sx_xt_init(cx, &a->problem, classes, nodes, edges, root_count);
}

static void fill_nodes(const sx_eg *eg, adapter *a, const uint64_t *cost)
{
    sx_xt *p = &a->problem;
    for (uint32_t n = 0; n < eg->node_count; n++) {
        if (eg->node[n].dead == 0) {
            p->node_first[a->class_number[sx_eg_find(eg, n)] + 1]++;
        }
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        p->node_first[c + 1] += p->node_first[c];
    }
    for (uint32_t n = eg->node_count; n-- > 0;) { /* the ends move down to the starts */
        if (eg->node[n].dead == 0) {
            uint32_t at = --p->node_first[a->class_number[sx_eg_find(eg, n)] + 1];
            a->node_of[at] = n;
            a->node_number[n] = at;
        }
    }
    for (uint32_t c = 0; c < p->class_count; c++) {
        p->node_first[c] = p->node_first[c + 1];
    }
    p->node_first[p->class_count] = p->node_count;
    uint32_t edges = 0;
    for (uint32_t i = 0; i < p->node_count; i++) {
        uint32_t n = a->node_of[i];
        p->cost[i] = cost[n] == SX_COST_NEVER ? (double)INFINITY : (double)cost[n];
        for (uint32_t k = 0; k < eg->node[n].arity; k++) {
            p->child[edges++] = a->class_number[sx_eg_child(eg, n, k)];
        }
        p->edge_first[i + 1] = edges;
    }
}

static sx_code fill_rest(sx_ctx *cx, const sx_eg *eg, adapter *a, const sx_extraction *wanted)
{
    sx_xt *p = &a->problem;
    uint8_t *seen = SX_NEW_ARRAY(cx, uint8_t, (size_t)p->class_count + 1);
    a->start = SX_NEW_ARRAY_UNSET(cx, uint32_t, (size_t)p->class_count + 1);
    if (seen == NULL || a->start == NULL) {
        return cx->error.code;
    }
    p->root_count = 0;
    for (uint32_t r = 0; r < wanted->root_count; r++) {
        uint32_t class_ = a->class_number[sx_eg_find(eg, wanted->root[r])];
        if (seen[class_]++ == 0) {
            p->root[p->root_count++] = class_;
        }
    }
    for (uint32_t c = 0; c < eg->node_count; c++) {
        if (sx_eg_is_class(eg, c)) {
            uint32_t n = wanted->start != NULL ? wanted->start[c] : SX_EG_NONE;
            a->start[a->class_number[c]] = n != SX_EG_NONE ? a->node_number[n] : SX_XT_NONE;
        }
    }
    return SX_OK;
}

static uint64_t whole(double cost, bool up)
{
    double rounded = up ? ceil(cost) : floor(cost);
    return rounded < (double)SX_COST_MAX ? (uint64_t)rounded : SX_COST_MAX;
}

sx_code sx_eg_extract(sx_ctx *cx, const sx_eg *eg, const sx_extraction *wanted,
                      sx_extracted *result)
{
    adapter a = {0};
    sx_xt_answer answer;
    SX_ASSERT(sx_eg_is_rebuilt(eg));
    SX_ASSERT(wanted->root_count > 0);
    SX_TRY(number_all(cx, eg, &a, wanted->root_count));
    fill_nodes(eg, &a, wanted->cost);
    SX_TRY(fill_rest(cx, eg, &a, wanted));
#ifdef SX_DEBUG
    SX_TRY(sx_xt_check(cx, &a.problem));
#endif
    sx_xt_options options = {.fuel = wanted->fuel, .start = wanted->start != NULL ? a.start : NULL};
    sx_code code = sx_xt_solve(cx, &a.problem, &options, &answer);
    if (code == SX_INPUT) {
        sx_ctx_reset_error(cx);
        return SX_FAIL(cx, SX_INTERNAL, "e-graph of %u nodes holds no program for its roots",
                       eg->node_count);
    }
    SX_TRY(code);
    *result =
        (sx_extracted){.proven = answer.proven,
                       .fuel = answer.fuel,
                       .choice = SX_NEW_ARRAY_UNSET(cx, uint32_t, (size_t)eg->node_count + 1)};
    if (result->choice == NULL) {
        return cx->error.code;
    }
    for (uint32_t c = 0; c < eg->node_count; c++) {
        uint32_t n = sx_eg_is_class(eg, c) ? answer.choice[a.class_number[c]] : SX_XT_NONE;
        result->choice[c] = n != SX_XT_NONE ? a.node_of[n] : SX_EG_NONE;
        result->cost =
            n != SX_XT_NONE ? add_cost(result->cost, wanted->cost[a.node_of[n]]) : result->cost;
    }
    result->lower_bound = answer.proven ? result->cost : whole(answer.lower_bound, false);
    return SX_OK;
}
