/* recur.c - what a loop makes of memory that it carries: parts that step together.
 *
 * A state is what one place holds at the start of an iteration. Its step names states again: of the same place,
 * and of others (the maximum of a row, in the step of its sum). From the one that is asked for, the states that
 * are met are the parts, numbered in the order in which a walk of the steps meets them. So two loops that carry
 * the same recurrence give one term, wherever their tables lie: by induction over the iterations, equal first
 * values and equal steps are equal values behind the loop. A false "different" is possible, a false "equal" is
 * not. */
#include "core/judge/algebra.h"

uint32_t sx_term_state(sx_algebra *g, uint32_t table, uint32_t place)
{
    return sx_term_put(g, &(sx_term){.kind = SX_TERM_STATE, .imm = table, .form = place});
}

typedef struct {
    uint32_t count;
    uint32_t state[SX_RECUR_PARTS], first[SX_RECUR_PARTS], step[SX_RECUR_PARTS];
    bool in_run; /* a state stands in the step of a run */
    bool full;
} part_list;

static void find_states(sx_algebra *g, uint32_t term, const sx_subst *visit, part_list *list)
{
    uint32_t seen;
    const sx_term t = g->term[term];
    if (!t.state || list->full || sx_memo_find(g, term, visit, &seen)) {
        return;
    }
    sx_memo_put(g, term, visit, term);
    if (t.kind == SX_TERM_STATE) {
        uint32_t k = 0;
        while (k < list->count && list->state[k] != term) {
            k++;
        }
        if (k == list->count && k == SX_RECUR_PARTS) {
            list->full = true;
        } else if (k == list->count) {
            list->state[list->count++] = term;
        }
    }
    if (t.kind == SX_TERM_RUN && g->term[t.child[1]].state) {
        list->in_run = true;
    }
    for (uint32_t k = 0; k < 3; k++) {
        if (t.child[k] != 0) {
            find_states(g, t.child[k], visit, list);
        }
    }
}

/* The states that the one asked for needs. */
static bool find_parts(sx_algebra *g, part_list *list, sx_define define, void *self, uint32_t var)
{
    for (uint32_t k = 0; k < list->count; k++) {
        if (!define(self, list->state[k], &list->first[k], &list->step[k]) || g->refused) {
            return false;
        }
        sx_subst visit;
        sx_subst_begin(g, &visit);
        find_states(g, list->step[k], &visit, list);
        const sx_term *step = &g->term[list->step[k]];
        bool moves = (g->form[g->term[list->state[k]].form].vars & SX_VAR_BIT(var)) != 0;
        if (list->full || moves || step->recur || step->holes || step->acc) {
            return false;
        }
    }
    return !g->refused;
}

/* The step of the one part: the state is an accumulator. */
static uint32_t close_alone(sx_algebra *g, const part_list *list, uint32_t var, int64_t trip)
{
    sx_subst s;
    sx_subst_begin(g, &s);
    if (!g->term[list->step[0]].state) { /* every iteration stores it anew */
        sx_subst_var(&s, var, sx_form_constant(g, trip - 1));
        return sx_term_subst(g, list->step[0], &s);
    }
    uint32_t hole = sx_term_hole(g, UINT32_MAX, 0);
    s.state_count = 1;
    s.state[0] = list->state[0];
    s.part[0] = hole;
    uint32_t step = sx_term_subst(g, list->step[0], &s);
    return sx_term_close(g, list->first[0], hole, step, var, trip);
}

uint32_t sx_term_recur(sx_algebra *g, uint32_t asked, sx_define define, void *self, uint32_t var,
                       int64_t trip)
{
    part_list list = {.count = 1, .state = {asked}};
    SX_ASSERT(g->refused || g->term[asked].kind == SX_TERM_STATE);
    SX_ASSERT(trip > 1);
    if (g->refused || !find_parts(g, &list, define, self, var)) {
        return 0;
    }
    if (list.count == 1 && !list.in_run) {
        return close_alone(g, &list, var, trip);
    }
    sx_subst s;
    uint32_t level = 0;
    sx_subst_begin(g, &s);
    s.state_count = list.count;
    for (uint32_t k = 0; k < list.count; k++) {
        s.state[k] = list.state[k];
        s.part[k] = sx_term_put(g, &(sx_term){.kind = SX_TERM_PART, .imm = k});
        level = g->term[list.step[k]].level > level ? g->term[list.step[k]].level : level;
    }
    if (level >= SX_RUN_LEVELS) {
        return sx_refuse(g, "runs nest too deeply");
    }
    uint32_t bound = SX_VAR_RUN + level * SX_RUN_DEPTH;
    sx_subst_var(&s, var, sx_form_var(g, bound, 1, 0));
    sx_subst_share(g, &s);
    uint32_t rest = 0;
    uint32_t count = sx_form_constant(g, trip);
    for (uint32_t k = list.count; k-- > 0;) {
        uint32_t step = sx_term_subst(g, list.step[k], &s);
        sx_term part = {.kind = SX_TERM_RECUR, .imm = level, .form = count};
        part.child[0] = list.first[k];
        part.child[1] = step;
        part.child[2] = rest;
        rest = sx_term_put(g, &part);
    }
    SX_ASSERT(g->refused || !g->term[rest].state || g->term[rest].level == level + 1);
    return rest;
}
