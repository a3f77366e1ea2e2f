/* stamps.c - matching by modification stamps (Detlefs, Nelson, Saxe 2005): a left side of depth d is looked
 * for, from its root down, below every class that changed or lies within d steps above one that did. Finds
 * every new match, and old ones again. */
#include "core/egraph/pattern.h"

struct sx_stamps {
    uint32_t *class_; /* changed classes and those above them, by distance */
    uint8_t *level;
    uint32_t count, class_capacity, level_capacity;
    uint32_t *mark; /* per class: epoch in which it was listed */
    uint32_t mark_capacity, marked;
    uint32_t epoch;
    sx_eg_position since;
};

sx_code sx_stamps_make(sx_ctx *cx, sx_stamps **stamps)
{
    *stamps = SX_NEW(cx, sx_stamps);
    return *stamps == NULL ? cx->error.code : SX_OK;
}

static sx_code put(sx_ctx *cx, sx_stamps *s, uint32_t class_, uint8_t level)
{
    if (s->mark[class_] == s->epoch) {
        return SX_OK;
    }
    s->mark[class_] = s->epoch;
    SX_TRY(sx_region_grow(cx, (void **)&s->class_, &s->class_capacity, s->count + 1,
                          sizeof(uint32_t)));
    SX_TRY(sx_region_grow(cx, (void **)&s->level, &s->level_capacity, s->count + 1, 1));
    s->class_[s->count] = class_;
    s->level[s->count++] = level;
    return SX_OK;
}

static sx_code collect(sx_ctx *cx, const sx_eg *eg, sx_stamps *s, sx_eg_position since)
{
    SX_TRY(
        sx_region_grow(cx, (void **)&s->mark, &s->mark_capacity, eg->node_count, sizeof(uint32_t)));
    while (s->marked < eg->node_count) {
        s->mark[s->marked++] = 0;
    }
    s->epoch++;
    s->count = 0;
    s->since = since;
    for (uint32_t n = since.node; n < eg->node_count; n++) {
        SX_TRY(put(cx, s, sx_eg_find(eg, n), 0));
    }
    for (uint32_t i = since.changed; i < eg->changed_count; i++) {
        SX_TRY(put(cx, s, sx_eg_find(eg, eg->changed[i]), 0));
    }
    for (uint32_t i = 0; i < s->count && s->level[i] + 1u < SX_PATTERN_DEPTH_MAX; i++) {
        for (uint32_t l = sx_eg_parent_first(eg, s->class_[i]); l != SX_EG_LINK_END;
             l = sx_eg_parent_next(eg, l)) {
            uint32_t n = sx_eg_parent_node(eg, l);
            if (eg->node[n].dead == 0) {
                SX_TRY(put(cx, s, sx_eg_find(eg, n), (uint8_t)(s->level[i] + 1)));
            }
        }
    }
    return SX_OK;
}

static sx_code search_rule(sx_stamps *s, sx_search *q, uint32_t index)
{
    const sx_pattern *left = q->set->rule[index].left;
    const sx_step *first = &left->step[0];
    SX_ASSERT(first->kind == SX_STEP_BIND);
    for (uint32_t i = 0; i < s->count && q->work < q->work_limit; i++) {
        if (s->level[i] > left->depth) {
            break; /* levels ascend; names and values lie one step below the deepest node */
        }
        if ((q->eg->node[s->class_[i]].ops & first->hint) == 0) {
            continue;
        }
        SX_TRY(sx_pattern_search(q->cx, q->eg, &q->set->language, left, s->class_[i],
                                 q->limit[index], q->work_limit - q->work, &q->found[index],
                                 &q->work));
        if (q->found[index].match_count >= q->limit[index]) {
            q->over[index] = true;
            break;
        }
    }
    return SX_OK;
}

sx_code sx_stamps_run(sx_stamps *s, sx_search *q, bool *done)
{
    SX_ASSERT(sx_eg_is_rebuilt(q->eg));
    s->since = (sx_eg_position){SX_EG_NONE, SX_EG_NONE};
    for (uint32_t i = 0; i < q->set->rule_count && q->work < q->work_limit; i++) {
        if (!q->wanted[i]) {
            continue;
        }
        sx_eg_position since = sx_eg_rule_position(q->eg, &q->set->rule[i]);
        if (since.node != s->since.node || since.changed != s->since.changed) {
            SX_TRY(collect(q->cx, q->eg, s, since));
        }
        SX_TRY(search_rule(s, q, i));
    }
    *done = q->work < q->work_limit;
    return SX_OK;
}
