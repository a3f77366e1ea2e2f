#include "core/egraph/match.h"
#include "core/egraph/pattern.h"

#include <string.h>

const char *sx_rule_class_name(sx_rule_class rule_class)
{
    static const char *const name[] = {"exact", "reassociating", "approximate"};
    SX_ASSERT(rule_class < SX_COUNT(name));
    return name[rule_class];
}

const char *sx_eg_stop_name(sx_eg_stop stop)
{
    static const char *const name[] = {"saturated", "fuel",   "nodes",
                                       "bytes",     "rounds", "cancelled"};
    SX_ASSERT(stop < SX_COUNT(name));
    return name[stop];
}

sx_code sx_eg_ruleset_init(sx_ctx *cx, sx_eg_ruleset *set, const sx_eg_language *language,
                           const sx_rule *rule, uint32_t rule_count)
{
    *set = (sx_eg_ruleset){.language = *language, .rule_count = rule_count};
    set->rule = SX_NEW_ARRAY(cx, sx_eg_rule, rule_count);
    if (set->rule == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < rule_count; i++) {
        sx_eg_rule *r = &set->rule[i];
        r->rule = &rule[i];
        r->enabled = true;
        SX_ASSERT((rule[i].right == NULL) != (rule[i].build == NULL));
        SX_TRY(sx_pattern_parse(cx, language, rule[i].name, rule[i].left, NULL, &r->left));
        if (rule[i].right != NULL) {
            SX_TRY(sx_pattern_parse(cx, language, rule[i].name, rule[i].right, r->left, &r->right));
        }
    }
    return SX_OK;
}

sx_code sx_eg_reason_add(sx_ctx *cx, sx_eg_ruleset *set, uint32_t rule, const uint32_t *node,
                         uint32_t node_count, uint32_t *reason)
{
    SX_TRY(sx_grow(cx, (void **)&set->reason, &set->reason_capacity, set->reason_count + 1,
                   sizeof(sx_eg_reason)));
    SX_TRY(sx_grow(cx, (void **)&set->reason_node, &set->reason_node_capacity,
                   set->reason_node_count + node_count + 1, sizeof(uint32_t)));
    *reason = set->reason_count++;
    set->reason[*reason] = (sx_eg_reason){rule, set->reason_node_count, node_count};
    for (uint32_t i = 0; i < node_count; i++) {
        set->reason_node[set->reason_node_count++] = node[i];
    }
    return SX_OK;
}

sx_code sx_rewrite_pair(sx_rewrite *rewrite, uint32_t from, uint32_t to)
{
    sx_eg_pending *pending = rewrite->pending;
    if (sx_eg_find(rewrite->eg, from) == sx_eg_find(rewrite->eg, to)) {
        return SX_OK;
    }
    SX_TRY(sx_grow(rewrite->cx, (void **)&pending->word, &pending->capacity, pending->count + 4,
                   sizeof(uint32_t)));
    pending->word[pending->count++] = from;
    pending->word[pending->count++] = to;
    pending->word[pending->count++] = rewrite->rule;
    pending->word[pending->count++] = rewrite->match;
    return SX_OK;
}

sx_code sx_rewrite_to(sx_rewrite *rewrite, uint32_t to)
{
    return sx_rewrite_pair(rewrite, rewrite->node[0], to);
}

sx_code sx_eg_instance(sx_ctx *cx, sx_eg *eg, const sx_eg_ruleset *set, uint32_t rule,
                       const uint32_t *node, const uint32_t *var, sx_eg_pending *pairs)
{
    const sx_eg_rule *r = &set->rule[rule];
    sx_rewrite rewrite = {.cx = cx,
                          .eg = eg,
                          .self = set->language.self,
                          .node = node,
                          .var = var,
                          .rule = rule,
                          .pending = pairs,
                          .unguarded = true};
    uint32_t to;
    if (r->rule->right == NULL) {
        return r->rule->build(&rewrite);
    }
    SX_TRY(sx_pattern_build(cx, eg, &set->language, r->right, node, var, &to));
    return to == SX_EG_NONE ? SX_OK : sx_rewrite_to(&rewrite, to);
}

/* The classes changed since a position of the log and those above them, with their distance. */
typedef struct {
    uint32_t *class_;
    uint8_t *level;
    uint32_t count, class_capacity, level_capacity;
    uint32_t *mark; /* per class: epoch in which it was listed */
    uint32_t mark_capacity;
    uint32_t epoch;
    uint32_t since;
} delta;

static sx_code delta_put(sx_ctx *cx, delta *d, uint32_t class_, uint8_t level)
{
    if (d->mark[class_] == d->epoch) {
        return SX_OK;
    }
    d->mark[class_] = d->epoch;
    SX_TRY(sx_grow(cx, (void **)&d->class_, &d->class_capacity, d->count + 1, sizeof(uint32_t)));
    SX_TRY(sx_grow(cx, (void **)&d->level, &d->level_capacity, d->count + 1, sizeof(uint8_t)));
    d->class_[d->count] = class_;
    d->level[d->count++] = level;
    return SX_OK;
}

static sx_code delta_collect(sx_ctx *cx, const sx_eg *eg, delta *d, uint32_t since)
{
    SX_TRY(sx_grow(cx, (void **)&d->mark, &d->mark_capacity, eg->node_count, sizeof(uint32_t)));
    d->epoch++;
    d->count = 0;
    d->since = since;
    for (uint32_t i = since; i < eg->log_count; i++) {
        SX_TRY(delta_put(cx, d, sx_eg_find(eg, eg->log[i]), 0));
    }
    for (uint32_t i = 0; i < d->count; i++) {
        if (d->level[i] + 1u >= SX_PATTERN_DEPTH_MAX) {
            break;
        }
        uint32_t class_ = d->class_[i];
        for (uint32_t e = eg->parent_head[class_]; e != SX_EG_NONE; e = eg->edge_next[e]) {
            if (eg->node[eg->owner[e]].dead == 0) {
                SX_TRY(delta_put(cx, d, sx_eg_find(eg, eg->owner[e]), (uint8_t)(d->level[i] + 1)));
            }
        }
    }
    return SX_OK;
}

typedef struct {
    sx_ctx *cx;
    sx_eg *eg;
    sx_eg_ruleset *set;
    const sx_eg_limits *limits;
    sx_eg_run *run;
    sx_match_list *found;  /* per rule */
    uint32_t *seen_before; /* per rule: where it stood when the round began */
    sx_eg_pending pending;
    delta changed;
    size_t bytes_start;
    bool stopped;
    bool waiting; /* some rule is put back */
} runner;

/* True when a limit binds; the first reason stays. */
static bool must_stop(runner *r)
{
    if (r->stopped) {
        return true;
    }
    sx_ctx *cx = r->cx;
    sx_eg_stop stop = SX_STOP_SATURATED;
    if (r->run->fuel >= r->limits->fuel || r->run->fuel >= cx->fuel) {
        stop = SX_STOP_FUEL;
    } else if (r->eg->node_count >= r->limits->nodes) {
        stop = SX_STOP_NODES;
    } else if (cx->arena.used_bytes - r->bytes_start >= r->limits->bytes) {
        stop = SX_STOP_BYTES;
    } else if (cx->cancelled != NULL && cx->cancelled(cx->cancelled_self)) {
        stop = SX_STOP_CANCELLED;
    } else {
        return false;
    }
    r->stopped = true;
    r->run->stop = stop;
    return true;
}

#define BAN_ROUNDS 2u
#define BANS_MAX 16u

/* Looks for one rule where the graph changed since it last looked. Too many matches: the rule waits and has seen nothing. */
static sx_code search_rule(runner *r, uint32_t index)
{
    sx_eg_rule *rule = &r->set->rule[index];
    sx_match_list *found = &r->found[index];
    found->count = 0;
    found->match_count = 0;
    if (!rule->enabled || rule->seen >= r->eg->log_count) {
        return SX_OK;
    }
    if (rule->banned_to > r->run->rounds) {
        r->waiting = true;
        return SX_OK;
    }
    if (r->changed.since != rule->seen) {
        SX_TRY(delta_collect(r->cx, r->eg, &r->changed, rule->seen));
    }
    uint64_t allowance = (uint64_t)r->limits->matches << rule->bans;
    uint32_t limit = allowance < UINT32_MAX ? (uint32_t)allowance : UINT32_MAX;
    uint64_t root_ops = rule->left->step[0].kind == SX_STEP_BIND ? rule->left->step[0].ops : 0;
    SX_ASSERT(root_ops != 0);
    for (uint32_t i = 0; i < r->changed.count; i++) {
        uint32_t class_ = r->changed.class_[i];
        if (r->changed.level[i] > rule->left->depth) {
            break; /* levels ascend; names and values lie one step below the deepest node */
        }
        if ((r->eg->ops[class_] & root_ops) == 0) {
            continue;
        }
        uint64_t left = r->limits->fuel > r->run->fuel ? r->limits->fuel - r->run->fuel : 0;
        SX_TRY(sx_pattern_search(r->cx, r->eg, &r->set->language, rule->left, class_, limit, left,
                                 found, &r->run->fuel));
        if (found->match_count >= limit) {
            found->count = 0;
            found->match_count = 0;
            rule->banned_to = r->run->rounds + (BAN_ROUNDS << rule->bans);
            rule->bans += rule->bans < BANS_MAX ? 1 : 0;
            r->waiting = true;
            return SX_OK;
        }
        if (must_stop(r)) {
            return SX_OK;
        }
    }
    rule->seen = r->eg->log_count;
    return SX_OK;
}

static sx_code apply_rule(runner *r, uint32_t index)
{
    sx_eg_rule *rule = &r->set->rule[index];
    const sx_match_list *found = &r->found[index];
    uint32_t stride = rule->left->bind_count + rule->left->name_count;
    rule->match_count += found->match_count;
    for (uint32_t i = 0; i < found->match_count; i++) {
        const uint32_t *match = &found->word[(size_t)i * stride];
        sx_rewrite rewrite = {.cx = r->cx,
                              .eg = r->eg,
                              .self = r->set->language.self,
                              .node = match,
                              .var = match + rule->left->bind_count,
                              .rule = index,
                              .match = i,
                              .pending = &r->pending};
        uint32_t before = r->eg->node_count;
        if (rule->right != NULL) {
            uint32_t node;
            SX_TRY(sx_pattern_build(r->cx, r->eg, &r->set->language, rule->right, rewrite.node,
                                    rewrite.var, &node));
            if (node != SX_EG_NONE) {
                SX_TRY(sx_rewrite_to(&rewrite, node));
            }
        } else {
            SX_TRY(rule->rule->build(&rewrite));
        }
        r->run->fuel += 1 + (r->eg->node_count - before);
        if (must_stop(r)) {
            return SX_OK;
        }
    }
    return SX_OK;
}

static sx_code unite(runner *r)
{
    for (uint32_t i = 0; i < r->pending.count; i += 4) {
        const uint32_t *word = &r->pending.word[i];
        sx_eg_rule *rule = &r->set->rule[word[2]];
        uint32_t stride = rule->left->bind_count + rule->left->name_count;
        uint32_t reason;
        if (sx_eg_find(r->eg, word[0]) == sx_eg_find(r->eg, word[1])) {
            continue;
        }
        SX_TRY(sx_eg_reason_add(r->cx, r->set, word[2],
                                &r->found[word[2]].word[(size_t)word[3] * stride],
                                rule->left->bind_count, &reason));
        SX_TRY(sx_eg_union(r->cx, r->eg, word[0], word[1], reason));
        rule->union_count++;
    }
    r->pending.count = 0;
    SX_TRY(sx_eg_rebuild(r->cx, r->eg));
#ifdef SX_DEBUG
    bool check = true;
#else
    bool check = r->limits->check;
#endif
    return check ? sx_eg_check(r->cx, r->eg) : SX_OK;
}

/* One round; *quiet when it changed nothing. A round cut short by a limit keeps what was applied: every match is sound. */
static sx_code run_round(runner *r, bool *quiet)
{
    uint32_t log_before = r->eg->log_count;
    r->waiting = false;
    r->changed.since = SX_EG_NONE;
    for (uint32_t i = 0; i < r->set->rule_count; i++) {
        r->seen_before[i] = r->set->rule[i].seen;
    }
    for (uint32_t i = 0; i < r->set->rule_count && !r->stopped; i++) {
        SX_TRY(search_rule(r, i));
    }
    uint32_t applied = 0;
    while (applied < r->set->rule_count && !r->stopped) {
        SX_TRY(apply_rule(r, applied));
        applied += r->stopped ? 0 : 1;
    }
    for (uint32_t i = applied; i < r->set->rule_count; i++) {
        r->set->rule[i].seen = r->seen_before[i]; /* found but not applied: to be found again */
    }
    SX_TRY(unite(r));
    r->run->rounds++;
    *quiet = r->eg->log_count == log_before;
    return SX_OK;
}

sx_code sx_eg_saturate(sx_ctx *cx, sx_eg *eg, sx_eg_ruleset *set, const sx_eg_limits *limits,
                       sx_eg_run *run)
{
    *run = (sx_eg_run){.stop = SX_STOP_SATURATED};
    runner r = {.cx = cx,
                .eg = eg,
                .set = set,
                .limits = limits,
                .run = run,
                .bytes_start = cx->arena.used_bytes};
    r.found = SX_NEW_ARRAY(cx, sx_match_list, set->rule_count + 1);
    r.seen_before = SX_NEW_ARRAY(cx, uint32_t, set->rule_count + 1);
    if (r.found == NULL || r.seen_before == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_eg_rebuild(cx, eg));
    for (uint32_t i = 0; i < set->rule_count; i++) {
        set->rule[i].banned_to = 0;
    }
    while (!must_stop(&r)) {
        if (run->rounds >= limits->rounds) {
            run->stop = SX_STOP_ROUNDS;
            break;
        }
        bool quiet;
        SX_TRY(run_round(&r, &quiet));
        if (quiet && !r.stopped && !r.waiting) {
            break;
        }
        for (uint32_t i = 0; quiet && i < set->rule_count; i++) {
            set->rule[i].banned_to = 0; /* nothing else to do: the waiting ones go on */
        }
    }
    cx->fuel -= run->fuel < cx->fuel ? run->fuel : cx->fuel;
    return SX_OK;
}
