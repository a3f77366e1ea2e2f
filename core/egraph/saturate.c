#include "core/egraph/match.h"
#include "core/egraph/multi.h"

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
                         uint32_t node_count, const uint32_t *pick, uint32_t pick_count,
                         uint32_t *reason)
{
    SX_ASSERT(node_count > 0 && (pick != NULL || pick_count == 0));
    SX_TRY(sx_region_grow(cx, (void **)&set->reason, &set->reason_capacity, set->reason_count + 1,
                          sizeof(sx_eg_reason)));
    SX_TRY(sx_region_grow(cx, (void **)&set->reason_node, &set->reason_node_capacity,
                          set->reason_node_count + node_count + pick_count + 1, sizeof(uint32_t)));
    *reason = set->reason_count++;
    set->reason[*reason] = (sx_eg_reason){rule, set->reason_node_count, node_count + pick_count};
    for (uint32_t i = 0; i < node_count; i++) {
        set->reason_node[set->reason_node_count++] = node[i];
    }
    for (uint32_t i = 0; i < pick_count; i++) {
        set->reason_node[set->reason_node_count++] = pick[i];
    }
    return SX_OK;
}

/* The numbers that these nodes and their children are. */
static void read_numbers(const sx_eg *eg, const sx_eg_language *language, const uint32_t *node,
                         uint32_t count, uint32_t from[SX_EG_READINGS_MAX], uint32_t *read)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k <= eg->node[node[i]].arity && *read < SX_EG_READINGS_MAX; k++) {
            uint32_t class_ = k > 0 ? sx_eg_child(eg, node[i], k - 1) : sx_eg_find(eg, node[i]);
            uint32_t number = language->number_from(language->self, eg, class_);
            bool known = number == SX_EG_NONE;
            for (uint32_t j = 0; j < *read && !known; j++) {
                known = from[j] == number;
            }
            if (!known) {
                from[(*read)++] = number;
            }
        }
    }
}

/* Nodes by which classes had their numbers, as what the last reason may have read. */
static sx_code add_readings(sx_ctx *cx, sx_eg_ruleset *set, const uint32_t *from, uint32_t count)
{
    SX_ASSERT(set->reason_count > 0);
    SX_TRY(sx_region_grow(cx, (void **)&set->reading, &set->reading_capacity,
                          set->reading_count + count, sizeof(*set->reading)));
    for (uint32_t i = 0; i < count; i++) {
        set->reading[set->reading_count++] = (sx_eg_reading){set->reason_count - 1, from[i]};
    }
    return SX_OK;
}

sx_code sx_eg_reading_add(sx_ctx *cx, const sx_eg *eg, sx_eg_ruleset *set, const uint32_t *node,
                          uint32_t node_count)
{
    uint32_t from[SX_EG_READINGS_MAX];
    uint32_t read = 0;
    SX_ASSERT(set->language.number_from != NULL);
    read_numbers(eg, &set->language, node, node_count, from, &read);
    return add_readings(cx, set, from, read);
}

/* Room for the reasons of `count` more unions, so that uniting needs no memory. */
static sx_code reserve_reasons(sx_ctx *cx, sx_eg_pending *pending, uint32_t count,
                               uint32_t node_count, uint32_t read_count)
{
    sx_eg_ruleset *set = pending->set;
    SX_TRY(sx_region_grow(cx, (void **)&set->reason, &set->reason_capacity,
                          set->reason_count + pending->reasons + count, sizeof(sx_eg_reason)));
    SX_TRY(sx_region_grow(cx, (void **)&set->reason_node, &set->reason_node_capacity,
                          set->reason_node_count + pending->reason_nodes + count * node_count + 1,
                          sizeof(uint32_t)));
    SX_TRY(sx_region_grow(cx, (void **)&set->reading, &set->reading_capacity,
                          set->reading_count + pending->readings + read_count,
                          sizeof(*set->reading)));
    pending->reasons += count;
    pending->reason_nodes += count * node_count;
    pending->readings += read_count;
    return SX_OK;
}

bool sx_rewrite_pick(const sx_rewrite *rewrite, uint32_t node)
{
    SX_ASSERT(node < rewrite->eg->node_count);
    sx_rewrite_picks *picks = rewrite->picks;
    if (picks == NULL) {
        return true;
    }
    if (picks->again) {
        bool wanted = picks->next < picks->count && picks->node[picks->next] == node;
        picks->next += wanted ? 1 : 0;
        return wanted;
    }
    if (picks->count < SX_REWRITE_PICKS_MAX) {
        picks->node[picks->count++] = node;
    }
    return true;
}

/* The numbers that the rewrite may have read. */
static uint32_t read_rewrite(const sx_rewrite *rewrite, uint32_t from[SX_EG_READINGS_MAX])
{
    const sx_eg *eg = rewrite->eg;
    const sx_eg_ruleset *set = rewrite->pending->set;
    uint32_t read = 0;
    if (set == NULL || eg->unproven || set->language.number_from == NULL) {
        return 0;
    }
    if (rewrite->bucket != NULL) {
        const uint32_t *run = &rewrite->bucket->multi->run[(size_t)2 * rewrite->match];
        read_numbers(eg, &set->language, &set->reason_node[run[0]], run[1], from, &read);
        return read;
    }
    uint32_t bind_count = set->rule[rewrite->rule].left->bind_count;
    read_numbers(eg, &set->language, rewrite->node, bind_count, from, &read);
    read_numbers(eg, &set->language, rewrite->picks->node, rewrite->picks->count, from, &read);
    return read;
}

/* The picks of the rewrite and the numbers it may have read into the pending ones; *at is where. */
static sx_code put_picks(sx_rewrite *rewrite, uint32_t *at)
{
    sx_eg_pending *pending = rewrite->pending;
    uint32_t count = rewrite->picks != NULL ? rewrite->picks->count : 0;
    uint32_t from[SX_EG_READINGS_MAX];
    uint32_t read = read_rewrite(rewrite, from);
    SX_TRY(sx_region_grow(rewrite->cx, (void **)&pending->pick, &pending->pick_capacity,
                          pending->pick_count + count + read + 2, sizeof(uint32_t)));
    *at = pending->pick_count;
    pending->pick[pending->pick_count++] = count;
    pending->pick[pending->pick_count++] = read;
    for (uint32_t i = 0; i < count; i++) {
        pending->pick[pending->pick_count++] = rewrite->picks->node[i];
    }
    for (uint32_t i = 0; i < read; i++) {
        pending->pick[pending->pick_count++] = from[i];
    }
    return SX_OK;
}

sx_code sx_rewrite_pair(sx_rewrite *rewrite, uint32_t from, uint32_t to)
{
    sx_eg_pending *pending = rewrite->pending;
    SX_ASSERT(pending->count % SX_PENDING_WORDS == 0);
    if (sx_eg_find(rewrite->eg, from) == sx_eg_find(rewrite->eg, to)) {
        return SX_OK;
    }
    SX_TRY(sx_region_grow(rewrite->cx, (void **)&pending->word, &pending->capacity,
                          pending->count + SX_PENDING_WORDS, sizeof(uint32_t)));
    uint32_t picks;
    SX_TRY(put_picks(rewrite, &picks));
    if (pending->set != NULL) {
        const sx_pattern *left = pending->set->rule[rewrite->rule].left;
        SX_TRY(reserve_reasons(rewrite->cx, pending, 1, left->bind_count + pending->pick[picks],
                               pending->pick[picks + 1]));
    }
    pending->word[pending->count++] = from;
    pending->word[pending->count++] = to;
    pending->word[pending->count++] = rewrite->rule;
    pending->word[pending->count++] = rewrite->match;
    pending->word[pending->count++] = picks;
    return SX_OK;
}

sx_code sx_rewrite_to(sx_rewrite *rewrite, uint32_t to)
{
    return sx_rewrite_pair(rewrite, rewrite->node[0], to);
}

sx_code sx_eg_instance(sx_ctx *cx, sx_eg *eg, const sx_eg_ruleset *set, uint32_t rule,
                       const uint32_t *node, const uint32_t *var, const uint32_t *pick,
                       uint32_t pick_count, sx_eg_pending *pairs)
{
    const sx_eg_rule *r = &set->rule[rule];
    sx_rewrite_picks picks = {.count = pick_count, .again = true};
    SX_ASSERT(pick_count <= SX_REWRITE_PICKS_MAX);
    for (uint32_t i = 0; i < pick_count; i++) {
        picks.node[i] = pick[i];
    }
    sx_rewrite rewrite = {.cx = cx,
                          .eg = eg,
                          .self = set->language.self,
                          .node = node,
                          .var = var,
                          .rule = rule,
                          .pending = pairs,
                          .picks = &picks,
                          .unguarded = true};
    uint32_t to;
    if (r->rule->right == NULL) {
        return r->rule->build(&rewrite);
    }
    SX_TRY(sx_pattern_build(cx, eg, &set->language, r->right, node, var, &to));
    return to == SX_EG_NONE ? SX_OK : sx_rewrite_to(&rewrite, to);
}

typedef struct {
    sx_ctx *cx;
    sx_eg *eg;
    sx_eg_ruleset *set;
    const sx_eg_limits *limits;
    sx_eg_run *run;
    sx_match_list *found; /* per rule */
    bool *wanted, *over;  /* per rule: may search in this round; found too much */
    uint32_t *limit;      /* per rule: matches */
    sx_eg_pending pending;
    sx_stamps *stamps; /* or */
    sx_trigger *trigger;
    sx_multi multi;
    bool *multi_rule;                  /* per rule: is it one over several matches */
    size_t bytes_start, bytes_outside; /* the arena's use at the call, and its limit */
    bool stopped;
    bool waiting;     /* some rule is put back */
    bool at_once;     /* see unite_now */
    uint64_t rebuilt; /* at_once: unions of the graph when it was last rebuilt */
} runner;

static void stop(runner *r, sx_eg_stop why)
{
    if (!r->stopped) {
        r->stopped = true;
        r->run->stop = why;
    }
}

/* True when a limit binds; the first reason stays. */
static bool must_stop(runner *r)
{
    sx_ctx *cx = r->cx;
    if (r->stopped) {
        return true;
    }
    if (r->run->fuel >= r->limits->fuel || r->run->fuel >= cx->fuel) {
        stop(r, SX_STOP_FUEL);
    } else if (r->eg->node_count >= r->limits->nodes) {
        stop(r, SX_STOP_NODES);
    } else if (cx->arena.used_bytes - r->bytes_start >= r->limits->bytes) {
        stop(r, SX_STOP_BYTES);
    } else if (cx->cancelled != NULL && cx->cancelled(cx->cancelled_self)) {
        stop(r, SX_STOP_CANCELLED);
    }
    return r->stopped;
}

/* Searching and applying end where the memory does: a stop like any other. */
static sx_code absorb_nomem(runner *r, sx_code code)
{
    if (code != SX_NOMEM) {
        return code;
    }
    sx_ctx_reset_error(r->cx);
    stop(r, SX_STOP_BYTES);
    return SX_OK;
}

/* While matches are sought and applied the arena ends at the limit of the call. */
static void hold_bytes(runner *r, bool hold)
{
    sx_arena *arena = &r->cx->arena;
    size_t room = r->bytes_outside - r->bytes_start;
    arena->limit_bytes =
        hold && r->limits->bytes < room ? r->bytes_start + r->limits->bytes : r->bytes_outside;
    if (arena->limit_bytes < arena->used_bytes) {
        arena->limit_bytes = arena->used_bytes;
    }
}

#define BAN_ROUNDS 2u
#define BANS_MAX 16u

/* Who may search in this round: enabled rules with something new that are not put back. */
static void choose_rules(runner *r)
{
    r->waiting = false;
    for (uint32_t i = 0; i < r->set->rule_count; i++) {
        sx_eg_rule *rule = &r->set->rule[i];
        sx_eg_position seen = sx_eg_rule_position(r->eg, rule);
        bool news = seen.node < r->eg->node_count || seen.changed < r->eg->changed_count;
        bool banned = rule->banned_to > r->run->rounds;
        uint64_t allowance = (uint64_t)r->limits->matches << rule->bans;
        sx_match_list *found = &r->found[i];
        *found = (sx_match_list){.word = found->word, .capacity = found->capacity};
        r->over[i] = false;
        r->limit[i] = allowance < UINT32_MAX ? (uint32_t)allowance : UINT32_MAX;
        r->wanted[i] = rule->enabled && news && !banned;
        r->waiting = r->waiting || (rule->enabled && news && banned);
    }
}

/* All rules search the graph as it stands. Too many matches: the rule waits and has seen nothing. */
static sx_code search_all(runner *r)
{
    uint64_t fuel = r->limits->fuel < r->cx->fuel ? r->limits->fuel : r->cx->fuel;
    sx_search search = {.cx = r->cx,
                        .eg = r->eg,
                        .set = r->set,
                        .found = r->found,
                        .wanted = r->wanted,
                        .over = r->over,
                        .limit = r->limit,
                        .work_limit = fuel - r->run->fuel,
                        .drops = r->at_once};
    bool done = false;
    sx_code code = r->stamps != NULL ? sx_stamps_run(r->stamps, &search, &done)
                                     : sx_trigger_run(r->trigger, &search, &done);
    SX_TRY(absorb_nomem(r, code));
    r->run->fuel += search.work;
    for (uint32_t i = 0; i < r->set->rule_count; i++) {
        sx_eg_rule *rule = &r->set->rule[i];
        if (r->over[i]) {
            r->found[i].match_count = r->found[i].idle = 0;
            r->wanted[i] = false;
            rule->banned_to = r->run->rounds + (BAN_ROUNDS << rule->bans);
            rule->bans += rule->bans < BANS_MAX ? 1 : 0;
            r->waiting = true;
        }
    }
    if (!done) {
        (void)must_stop(r);
        stop(r, SX_STOP_FUEL);
    }
    return SX_OK;
}

static sx_code apply_match(runner *r, uint32_t index, uint32_t *match, uint32_t number)
{
    sx_eg_rule *rule = &r->set->rule[index];
    uint32_t *var = match + rule->left->bind_count;
    if (rule->right == NULL) {
        sx_rewrite_picks picks;
        picks.count = picks.next = 0;
        picks.again = false;
        sx_rewrite rewrite = {.cx = r->cx,
                              .eg = r->eg,
                              .self = r->set->language.self,
                              .node = match,
                              .var = var,
                              .rule = index,
                              .match = number,
                              .pending = &r->pending,
                              .picks = &picks,
                              .open = r->limits->open};
        return rule->rule->build(&rewrite);
    }
    uint32_t node;
    SX_TRY(reserve_reasons(r->cx, &r->pending, 1, rule->left->bind_count, 0));
    SX_TRY(sx_pattern_build(r->cx, r->eg, &r->set->language, rule->right, match, var, &node));
    var[0] = node; /* no more needed: the place of what the root is to be united with */
    return SX_OK;
}

static sx_code apply_buckets(runner *r, uint32_t index)
{
    sx_rewrite rewrite = {.cx = r->cx,
                          .eg = r->eg,
                          .self = r->set->language.self,
                          .rule = index,
                          .pending = &r->pending,
                          .open = r->limits->open};
    uint64_t fuel = r->limits->fuel < r->cx->fuel ? r->limits->fuel : r->cx->fuel;
    r->set->rule[index].match_count += r->found[index].match_count;
    sx_code code =
        sx_multi_apply(&r->multi, r->set, &r->found[index], &rewrite, fuel, &r->run->fuel);
    (void)must_stop(r);
    return absorb_nomem(r, code);
}

/* A batch as long as no limit can bind within it. */
static bool has_room(const runner *r, const sx_pattern *right)
{
    uint64_t most = (uint64_t)SX_EG_BATCH * (right->part_count + 1);
    uint64_t fuel = r->limits->fuel < r->cx->fuel ? r->limits->fuel : r->cx->fuel;
    return r->eg->node_count + most < r->limits->nodes &&
           r->run->fuel < fuel - (most < fuel ? most : fuel);
}

static sx_code apply_batch(runner *r, uint32_t index, uint32_t *match, uint32_t count)
{
    const sx_eg_rule *rule = &r->set->rule[index];
    uint32_t stride = sx_pattern_stride(rule->left);
    uint32_t node[SX_EG_BATCH];
    SX_TRY(reserve_reasons(r->cx, &r->pending, count, rule->left->bind_count, 0));
    SX_TRY(sx_pattern_build_batch(r->cx, r->eg, &r->set->language, rule->right, match, stride,
                                  rule->left->bind_count, count, node));
    for (uint32_t i = 0; i < count; i++) {
        match[i * stride + rule->left->bind_count] = node[i];
    }
    return SX_OK;
}

/* Of rule `index`, for match `number` of its list, or for run `number` of its buckets. `pick` is an entry of
 * sx_eg_pending.pick, or NULL. */
static sx_code unite(runner *r, uint32_t index, uint32_t from, uint32_t to, uint32_t number,
                     const uint32_t *pick)
{
    sx_eg_rule *rule = &r->set->rule[index];
    uint32_t reason = SX_EG_RULE_GIVEN;
    if (sx_eg_find(r->eg, from) == sx_eg_find(r->eg, to)) {
        return SX_OK;
    }
    if (!r->eg->unproven && r->multi_rule[index]) {
        SX_TRY(sx_multi_reason(r->cx, &r->multi, r->set, index, number, &reason));
    } else if (!r->eg->unproven) {
        const uint32_t *match =
            &r->found[index].word[(size_t)number * sx_pattern_stride(rule->left)];
        SX_TRY(sx_eg_reason_add(r->cx, r->set, index, match, rule->left->bind_count,
                                pick != NULL ? pick + 2 : NULL, pick != NULL ? pick[0] : 0,
                                &reason));
    }
    if (!r->eg->unproven && pick != NULL) {
        SX_TRY(add_readings(r->cx, r->set, pick + 2 + pick[0], pick[1]));
    }
    rule->union_count++;
    return sx_eg_union(r->cx, r->eg, from, to, reason);
}

/* Of rule `index`, whose right side is a pattern: matches first to first + count - 1 of its list, of which the
 * right sides stand. */
static sx_code unite_found(runner *r, uint32_t index, uint32_t first, uint32_t count)
{
    const sx_eg_rule *rule = &r->set->rule[index];
    uint32_t stride = sx_pattern_stride(rule->left);
    uint32_t end = first + count;
    for (uint32_t m = first; m < end; m++) {
        const uint32_t *match = &r->found[index].word[(size_t)m * stride];
        if (m + SX_EG_BATCH < end) {
            sx_eg_approach(r->eg, match[SX_EG_BATCH * stride]);
            sx_eg_approach(r->eg, match[SX_EG_BATCH * stride + rule->left->bind_count]);
        }
        uint32_t to = match[rule->left->bind_count];
        if (to != SX_EG_NONE && sx_eg_find(r->eg, to) != sx_eg_find(r->eg, match[0])) {
            SX_TRY(unite(r, index, match[0], to, m, NULL));
        }
    }
    return SX_OK;
}

#define UNIONS_AT_ONCE 64u /* after so many the graph is rebuilt in the midst of a round */

/* Where every right side is a pattern and any node can be, unions need not wait for the end of the round: all
 * matches are found before the first is applied, and the round ends with the closure of the same terms under
 * the same equations. But right sides are then looked up among what the round has already learnt, and most of
 * what would be made twice is made once. */
static sx_code unite_now(runner *r, uint32_t index, uint32_t first, uint32_t count)
{
    SX_TRY(unite_found(r, index, first, count));
    r->pending.reasons = 0;
    r->pending.reason_nodes = 0;
    r->pending.readings = 0;
    if (r->eg->union_count - r->rebuilt < UNIONS_AT_ONCE) {
        return SX_OK;
    }
    r->rebuilt = r->eg->union_count;
    return sx_eg_rebuild(r->cx, r->eg);
}

/* *applied: matches whose right side stands. */
static sx_code apply_rule(runner *r, uint32_t index, uint32_t *applied)
{
    sx_eg_rule *rule = &r->set->rule[index];
    const sx_match_list *found = &r->found[index];
    uint32_t stride = sx_pattern_stride(rule->left);
    if (r->multi_rule[index]) {
        return apply_buckets(r, index);
    }
    bool batches = rule->right != NULL && sx_pattern_batches(&r->set->language, rule->right);
    sx_code code = SX_OK;
    *applied = 0;
    rule->match_count += found->idle;
    r->run->fuel += found->idle;
    while (code == SX_OK && *applied < found->match_count && !must_stop(r)) {
        uint32_t before = r->eg->node_count;
        uint32_t *match = &found->word[(size_t)*applied * stride];
        uint32_t left = found->match_count - *applied;
        uint32_t done = 1;
        if (batches && has_room(r, rule->right)) {
            done = left < SX_EG_BATCH ? left : SX_EG_BATCH;
            code = apply_batch(r, index, match, done);
        } else {
            code = apply_match(r, index, match, *applied);
        }
        if (code == SX_OK && r->at_once) {
            code = unite_now(r, index, *applied, done);
        }
        done = code == SX_OK ? done : 0;
        *applied += done;
        r->run->fuel += done + (r->eg->node_count - before);
    }
    rule->match_count += *applied;
    return absorb_nomem(r, code);
}

/* All unions of a round that are still to be made, in the order of the rules and their matches, and a rebuild. */
static sx_code unite_all(runner *r, const uint32_t *applied)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < r->set->rule_count; i++) {
        const sx_eg_rule *rule = &r->set->rule[i];
        if (rule->right != NULL && !r->at_once) {
            SX_TRY(unite_found(r, i, 0, applied[i]));
        }
        for (; at < r->pending.count && r->pending.word[at + 2] == i; at += SX_PENDING_WORDS) {
            const uint32_t *word = &r->pending.word[at];
            SX_TRY(unite(r, i, word[0], word[1], word[3], &r->pending.pick[word[4]]));
        }
    }
    r->pending.count = 0;
    r->pending.pick_count = 0;
    r->pending.reasons = 0;
    r->pending.reason_nodes = 0;
    r->pending.readings = 0;
    SX_TRY(sx_eg_rebuild(r->cx, r->eg));
#ifdef SX_DEBUG
    bool check = true;
#else
    bool check = r->limits->check;
#endif
    return check ? sx_eg_check(r->cx, r->eg) : SX_OK;
}

/* One round; *quiet when it changed nothing. A round cut short by a limit keeps what was applied: every match
 * is sound. */
static sx_code run_round(runner *r, bool *quiet)
{
    sx_eg_position now = {r->eg->node_count, r->eg->changed_count};
    uint64_t unions = r->eg->union_count;
    uint32_t lost = r->eg->changed_lost; /* more when the rules are done: all nodes are news */
    uint32_t *applied = r->limit;        /* done with when the search is */
    hold_bytes(r, true);
    choose_rules(r);
    SX_TRY(search_all(r));
    uint32_t last = 0;
    if (r->at_once && r->eg->old_count < now.node) {
        r->eg->old_count = now.node; /* from here on changes are news to those of this round */
    }
    sx_multi_begin(&r->multi, r->eg);
    for (uint32_t i = 0; i < r->set->rule_count; i++) {
        applied[i] = 0;
        if (r->wanted[i] && !r->stopped) {
            SX_TRY(apply_rule(r, i, &applied[i]));
            last = i;
        }
    }
    for (uint32_t i = 0; i < r->set->rule_count; i++) {
        bool done = !r->stopped || i < last; /* else found, not applied: to be found again */
        if (r->wanted[i] && done && r->eg->changed_lost == lost) {
            sx_eg_rule_set_position(r->eg, &r->set->rule[i], now);
        }
    }
    hold_bytes(r, false);
    SX_TRY(unite_all(r, applied));
    r->run->rounds++;
    *quiet = r->eg->node_count == now.node && r->eg->changed_count == now.changed &&
             r->eg->union_count == unions;
    return SX_OK;
}

static bool can_unite_now(const sx_eg_ruleset *set, const sx_eg_rule *rule)
{
    return rule->right != NULL && sx_pattern_batches(&set->language, rule->right) &&
           !sx_multi_is(rule->left);
}

static sx_code prepare(runner *r)
{
    sx_ctx *cx = r->cx;
    size_t count = (size_t)r->set->rule_count + 1;
    r->found = SX_NEW_ARRAY(cx, sx_match_list, count);
    r->wanted = SX_NEW_ARRAY(cx, bool, count);
    r->over = SX_NEW_ARRAY(cx, bool, count);
    r->limit = SX_NEW_ARRAY(cx, uint32_t, count);
    r->multi_rule = SX_NEW_ARRAY(cx, bool, count);
    if (r->multi_rule == NULL || r->found == NULL || r->wanted == NULL || r->over == NULL ||
        r->limit == NULL) {
        return cx->error.code;
    }
    r->at_once = true;
    for (uint32_t i = 0; i < r->set->rule_count; i++) {
        const sx_eg_rule *rule = &r->set->rule[i];
        r->set->rule[i].banned_to = 0;
        r->multi_rule[i] = sx_multi_is(rule->left);
        r->at_once = r->at_once && (!rule->enabled || can_unite_now(r->set, rule));
    }
    r->rebuilt = r->eg->union_count;
    SX_TRY(r->limits->stamps ? sx_stamps_make(cx, &r->stamps)
                             : sx_trigger_share(cx, r->limits->plans, r->set, &r->trigger));
    return sx_eg_rebuild(cx, r->eg);
}

static sx_code run_rounds(runner *r)
{
    while (!must_stop(r)) {
        if (r->run->rounds >= r->limits->rounds) {
            stop(r, SX_STOP_ROUNDS);
            break;
        }
        bool quiet;
        SX_TRY(run_round(r, &quiet));
        if (quiet && !r->stopped && !r->waiting) {
            break;
        }
        for (uint32_t i = 0; quiet && i < r->set->rule_count; i++) {
            r->set->rule[i].banned_to = 0; /* nothing else to do: the waiting ones go on */
        }
    }
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
                .pending = {.set = set},
                .bytes_start = cx->arena.used_bytes,
                .bytes_outside = cx->arena.limit_bytes};
    SX_TRY(prepare(&r));
    sx_code code = run_rounds(&r);
    cx->arena.limit_bytes = r.bytes_outside;
    SX_TRY(code);
    SX_ASSERT(sx_eg_is_rebuilt(eg));
    for (uint32_t i = 0; i < set->rule_count; i++) {
        sx_match_list *found = &r.found[i];
        if (found->word != NULL) {
            SX_TRY(
                sx_region_resize(cx, (void **)&found->word, &found->capacity, 0, sizeof(uint32_t)));
        }
    }
    cx->fuel -= run->fuel < cx->fuel ? run->fuel : cx->fuel;
    return SX_OK;
}
