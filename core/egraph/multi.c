#include "core/egraph/multi.h"

#include <string.h>

#include "core/base/hash.h"

/* rule, class of ?shared, operation of the root, named attributes */
#define KEY_WORDS (3u + SX_PATTERN_NAMES_MAX)

static uint32_t find_name(const sx_pattern *left, sx_span name)
{
    uint32_t k = 0;
    while (k < left->name_count &&
           (left->name[k].len != name.len || !sx_span_equal(left->name[k], name))) {
        k++;
    }
    return k;
}

uint32_t sx_multi_shared(const sx_pattern *left)
{
    return find_name(left, SX_SPAN_LITERAL("shared"));
}

bool sx_multi_is(const sx_pattern *left)
{
    return sx_multi_shared(left) < left->name_count ||
           find_name(left, SX_SPAN_LITERAL("apart")) < left->name_count;
}

void sx_rewrite_turn(sx_rewrite *rw, uint32_t i)
{
    const sx_bucket *b = rw->bucket;
    SX_ASSERT(i < b->count);
    rw->node = &b->found->word[(size_t)(b->first + i) * b->stride];
    rw->var = rw->node + b->bind_count;
}

void sx_multi_begin(sx_multi *m, const sx_eg *eg)
{
    SX_ASSERT(sx_eg_is_rebuilt(eg));
    m->node_limit = eg->node_count;
    m->run_count = 0;
}

/* The matched nodes are kept once for all the equalities of a run. */
sx_code sx_rewrite_run(sx_rewrite *rw, const uint32_t *member, uint32_t count)
{
    sx_bucket *b = rw->bucket;
    sx_multi *m = b->multi;
    sx_eg_ruleset *set = b->set;
    SX_ASSERT(count * b->bind_count <= SX_MULTI_RUN_NODES);
    if (rw->unguarded || rw->eg->unproven) {
        return SX_OK;
    }
    rw->match = m->run_count;
    SX_TRY(sx_grow(rw->cx, (void **)&m->run, &m->run_capacity, 2 * (m->run_count + 1),
                   sizeof(uint32_t)));
    SX_TRY(sx_region_grow(rw->cx, (void **)&set->reason_node, &set->reason_node_capacity,
                          set->reason_node_count + rw->pending->reason_nodes +
                              count * b->bind_count + 1,
                          sizeof(uint32_t)));
    m->run[2 * m->run_count] = set->reason_node_count;
    m->run[2 * m->run_count++ + 1] = count * b->bind_count;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *row = &b->found->word[(size_t)(b->first + member[i]) * b->stride];
        memcpy(&set->reason_node[set->reason_node_count], row, b->bind_count * sizeof(uint32_t));
        set->reason_node_count += b->bind_count;
    }
    return SX_OK;
}

sx_code sx_multi_reason(sx_ctx *cx, const sx_multi *m, sx_eg_ruleset *set, uint32_t rule,
                        uint32_t match, uint32_t *reason)
{
    SX_ASSERT(match < m->run_count);
    SX_TRY(sx_region_grow(cx, (void **)&set->reason, &set->reason_capacity, set->reason_count + 1,
                          sizeof(sx_eg_reason)));
    *reason = set->reason_count++;
    set->reason[*reason] = (sx_eg_reason){rule, m->run[2 * match], m->run[2 * match + 1]};
    return SX_OK;
}

sx_code sx_multi_instance(sx_ctx *cx, sx_eg *eg, const sx_eg_ruleset *set, uint32_t rule,
                          uint32_t *match, uint32_t count, sx_eg_pending *pairs)
{
    SX_ASSERT(rule < set->rule_count && sx_multi_is(set->rule[rule].left));
    const sx_eg_rule *r = &set->rule[rule];
    sx_match_list found = {.word = match, .match_count = count};
    sx_bucket bucket = {.found = &found, .count = count, .bind_count = r->left->bind_count};
    bucket.stride = sx_pattern_stride(r->left);
    sx_rewrite rw = {.cx = cx,
                     .eg = eg,
                     .self = set->language.self,
                     .rule = rule,
                     .bucket = &bucket,
                     .pending = pairs,
                     .unguarded = true};
    for (uint32_t i = 0; i < count; i++) {
        if (eg->node[match[(size_t)i * bucket.stride]].op != eg->node[match[0]].op) {
            return SX_OK;
        }
    }
    if (count < 2) {
        return SX_OK;
    }
    sx_rewrite_turn(&rw, 0);
    return r->rule->build(&rw);
}

/* ---- buckets met before ---- */

static void key_of(const sx_eg *eg, const sx_pattern *left, uint32_t rule, const uint32_t *match,
                   uint32_t key[KEY_WORDS])
{
    memset(key, 0, KEY_WORDS * sizeof(*key));
    key[0] = rule;
    uint32_t shared = sx_multi_shared(left);
    key[1] =
        shared < left->name_count ? sx_eg_find(eg, match[left->bind_count + shared]) : SX_EG_NONE;
    key[2] = eg->node[match[0]].op;
    for (uint32_t k = 0; k < left->attr_name_count; k++) {
        key[3 + k] = eg->node[match[left->attr_bind[k]]].attr;
    }
}

static bool equal_key(const void *self, uint32_t id, const void *probe)
{
    const sx_multi *m = self;
    return memcmp(&m->key[(size_t)id * KEY_WORDS], probe, KEY_WORDS * sizeof(uint32_t)) == 0;
}

static sx_code intern_bucket(sx_ctx *cx, sx_multi *m, const uint32_t key[KEY_WORDS], uint32_t *id)
{
    uint64_t hash =
        sx_hash64((sx_span){(const uint8_t *)key, KEY_WORDS * sizeof(uint32_t)}, KEY_WORDS);
    *id = sx_idmap_find(&m->map, hash, equal_key, m, key);
    if (*id != SX_IDMAP_NONE) {
        return SX_OK;
    }
    uint32_t n = m->bucket_count;
    SX_TRY(sx_grow(cx, (void **)&m->key, &m->key_capacity, (n + 1) * KEY_WORDS, sizeof(uint32_t)));
    SX_TRY(sx_grow(cx, (void **)&m->size, &m->size_capacity, n + 1, sizeof(uint32_t)));
    SX_TRY(sx_grow(cx, (void **)&m->builds, &m->builds_capacity, n + 1, sizeof(uint32_t)));
    SX_TRY(sx_grow(cx, (void **)&m->epoch, &m->epoch_capacity, n + 1, sizeof(uint32_t)));
    memcpy(&m->key[(size_t)n * KEY_WORDS], key, KEY_WORDS * sizeof(uint32_t));
    m->size[n] = m->builds[n] = m->epoch[n] = 0;
    m->bucket_count++;
    *id = n;
    return sx_idmap_put(cx, &m->map, hash, n);
}

/* ---- members, upwards from the shared class ---- */

typedef struct {
    sx_multi *m;
    const sx_eg_language *language;
    const sx_eg_rule *rule;
    sx_match_list *found;
    sx_rewrite *rw;
    uint64_t fuel_limit;
    uint64_t *fuel;
} joiner;

/* The step that matches the node whose child register `reg` is. */
static const sx_step *step_above(const sx_pattern *left, uint32_t reg)
{
    for (uint32_t i = 0; i < left->step_count; i++) {
        if (left->step[i].kind == SX_STEP_BIND && left->step[i].bind == left->reg_bind[reg]) {
            return &left->step[i];
        }
    }
    SX_UNREACHABLE();
}

/* Classes that hold a node of `ops` whose child `slot` is a class of frontier 0, into frontier 1; the two
 * change places. */
static sx_code climb(const joiner *j, const sx_bits *ops, uint32_t slot)
{
    sx_multi *m = j->m;
    const sx_eg *eg = j->rw->eg;
    m->walk++;
    m->frontier_count[1] = 0;
    for (uint32_t i = 0; i < m->frontier_count[0]; i++) {
        uint32_t class_ = m->frontier[0][i];
        for (uint32_t e = sx_eg_parent_first(eg, class_); e != SX_EG_LINK_END;
             e = sx_eg_parent_next(eg, e)) {
            uint32_t n = sx_eg_parent_node(eg, e);
            uint32_t up = sx_eg_find(eg, n);
            (*j->fuel)++;
            if (eg->node[n].dead != 0 || n >= m->node_limit || !sx_bits_has(ops, eg->node[n].op) ||
                slot >= eg->node[n].arity || sx_eg_child(eg, n, slot) != class_ ||
                m->mark[up] == m->walk) {
                continue;
            }
            m->mark[up] = m->walk;
            SX_TRY(sx_grow(j->rw->cx, (void **)&m->frontier[1], &m->frontier_capacity[1],
                           m->frontier_count[1] + 1, sizeof(uint32_t)));
            m->frontier[1][m->frontier_count[1]++] = up;
        }
    }
    uint32_t *array = m->frontier[0];
    uint32_t capacity = m->frontier_capacity[0];
    m->frontier[0] = m->frontier[1];
    m->frontier_count[0] = m->frontier_count[1];
    m->frontier_capacity[0] = m->frontier_capacity[1];
    m->frontier[1] = array;
    m->frontier_capacity[1] = capacity;
    return SX_OK;
}

/* Members that share nothing: the classes of all nodes of operation `op` into frontier 0. */
static sx_code list_roots(const joiner *j, uint32_t op)
{
    sx_multi *m = j->m;
    const sx_eg *eg = j->rw->eg;
    m->walk++;
    m->frontier_count[0] = 0;
    *j->fuel += m->node_limit / 16; /* a node is a glance here, not a step */
    for (uint32_t n = 0; n < m->node_limit; n++) {
        if (eg->node[n].op != op || eg->node[n].dead != 0) {
            continue;
        }
        uint32_t root = sx_eg_find(eg, n);
        (*j->fuel)++;
        if (m->mark[root] != m->walk) {
            m->mark[root] = m->walk;
            SX_TRY(sx_grow(j->rw->cx, (void **)&m->frontier[0], &m->frontier_capacity[0],
                           m->frontier_count[0] + 1, sizeof(uint32_t)));
            m->frontier[0][m->frontier_count[0]++] = root;
        }
    }
    return SX_OK;
}

/* Frontier 0 becomes the classes that may be roots of members. */
static sx_code climb_to_roots(const joiner *j, uint32_t shared, uint32_t op)
{
    sx_multi *m = j->m;
    const sx_pattern *left = j->rule->left;
    SX_TRY(sx_grow(j->rw->cx, (void **)&m->mark, &m->mark_capacity, j->rw->eg->node_count,
                   sizeof(uint32_t)));
    if (shared == SX_EG_NONE) {
        return list_roots(j, op);
    }
    SX_TRY(sx_grow(j->rw->cx, (void **)&m->frontier[0], &m->frontier_capacity[0], 1,
                   sizeof(uint32_t)));
    m->frontier[0][0] = shared;
    m->frontier_count[0] = 1;
    uint32_t reg = left->name_reg[sx_multi_shared(left)];
    while (reg != 0) {
        const sx_step *above = step_above(left, reg);
        SX_TRY(climb(j, &above->ops, left->reg_slot[reg]));
        reg = above->from;
    }
    return SX_OK;
}

static bool is_old(const joiner *j, const uint32_t *match)
{
    for (uint32_t i = 0; i < j->rule->left->bind_count; i++) {
        if (match[i] >= j->m->node_limit) {
            return false;
        }
    }
    return true;
}

static void sift_down(uint32_t *word, uint32_t stride, uint32_t at, uint32_t count)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= count) {
            return;
        }
        if (child + 1 < count && word[(child + 1) * stride] > word[child * stride]) {
            child++;
        }
        if (word[child * stride] <= word[at * stride]) {
            return;
        }
        for (uint32_t i = 0; i < stride; i++) {
            uint32_t w = word[child * stride + i];
            word[child * stride + i] = word[at * stride + i];
            word[at * stride + i] = w;
        }
        at = child;
    }
}

/* Ascending by root; rows of equal roots in any order that follows from the order before. */
static void sort_rows(uint32_t *word, uint32_t stride, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;) {
        sift_down(word, stride, i, count);
    }
    for (uint32_t last = count; last-- > 1;) {
        for (uint32_t i = 0; i < stride; i++) {
            uint32_t w = word[i];
            word[i] = word[last * stride + i];
            word[last * stride + i] = w;
        }
        sift_down(word, stride, 0, last);
    }
}

/* Appends the members of the bucket to the list of matches. */
static sx_code collect(const joiner *j, const uint32_t key[KEY_WORDS], sx_bucket *bucket)
{
    const sx_eg *eg = j->rw->eg;
    const sx_pattern *left = j->rule->left;
    sx_multi *m = j->m;
    SX_TRY(climb_to_roots(j, key[1], key[2]));
    bucket->first = j->found->match_count;
    for (uint32_t i = 0; i < m->frontier_count[0] && *j->fuel < j->fuel_limit; i++) {
        SX_TRY(sx_pattern_search(j->rw->cx, eg, j->language, left, m->frontier[0][i], UINT32_MAX,
                                 j->fuel_limit - *j->fuel, j->found, j->fuel));
    }
    uint32_t stride = bucket->stride;
    uint32_t *word = &j->found->word[(size_t)bucket->first * stride];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < j->found->match_count - bucket->first; i++) {
        uint32_t other[KEY_WORDS];
        const uint32_t *row = &word[(size_t)i * stride];
        key_of(eg, left, key[0], row, other);
        if (is_old(j, row) && memcmp(key, other, sizeof(other)) == 0) {
            memmove(&word[(size_t)kept++ * stride], row, stride * sizeof(*word));
        }
    }
    sort_rows(word, stride, kept);
    m->walk++;
    bucket->count = 0;
    for (uint32_t i = 0; i < kept; i++) {
        uint32_t root = sx_eg_find(eg, word[(size_t)i * stride]);
        if (m->mark[root] != m->walk) {
            m->mark[root] = m->walk;
            memmove(&word[(size_t)bucket->count++ * stride], &word[(size_t)i * stride],
                    stride * sizeof(*word));
        }
    }
    j->found->match_count = bucket->first + bucket->count;
    j->found->count = j->found->match_count * stride;
    return SX_OK;
}

/* ---- dependence ---- */

static sx_code visit(sx_ctx *cx, sx_multi *m, uint32_t class_)
{
    if (m->mark[class_] == m->walk) {
        return SX_OK;
    }
    m->mark[class_] = m->walk;
    SX_TRY(sx_grow(cx, (void **)&m->frontier[0], &m->frontier_capacity[0], m->frontier_count[0] + 1,
                   sizeof(uint32_t)));
    m->frontier[0][m->frontier_count[0]++] = class_;
    return SX_OK;
}

sx_code sx_rewrite_independent(sx_rewrite *rw, const uint32_t *from, uint32_t count,
                               bool *independent)
{
    return sx_rewrite_independent_of(rw, from, count, NULL, rw->bucket->count, independent);
}

sx_code sx_rewrite_independent_of(sx_rewrite *rw, const uint32_t *from, uint32_t count,
                                  const uint32_t *member, uint32_t member_count, bool *independent)
{
    SX_ASSERT(rw->bucket != NULL && member_count <= rw->bucket->count);
    sx_bucket *b = rw->bucket;
    sx_multi *m = b->multi;
    const sx_eg *eg = rw->eg;
    *independent = true;
    if (rw->unguarded) {
        return SX_OK; /* no equality rests on it: only whether a program can be made of it */
    }
    SX_TRY(sx_grow(rw->cx, (void **)&m->mark, &m->mark_capacity, eg->node_count, sizeof(uint32_t)));
    m->walk++;
    m->frontier_count[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(visit(rw->cx, m, sx_eg_find(eg, from[i])));
    }
    uint32_t steps = 0;
    for (uint32_t i = 0; i < m->frontier_count[0] && steps < SX_MULTI_REACH_MAX; i++) {
        uint32_t class_ = m->frontier[0][i];
        uint32_t n = class_;
        do {
            steps++;
            for (uint32_t k = 0; eg->node[n].dead == 0 && k < eg->node[n].arity; k++) {
                SX_TRY(visit(rw->cx, m, sx_eg_child(eg, n, k)));
            }
            n = sx_eg_member_next(eg, n);
        } while (n != class_);
    }
    b->work += steps;
    *independent = steps < SX_MULTI_REACH_MAX;
    for (uint32_t i = 0; i < member_count && *independent; i++) {
        uint32_t at = member != NULL ? member[i] : i;
        uint32_t root = b->found->word[(size_t)(b->first + at) * b->stride];
        *independent = m->mark[sx_eg_find(eg, root)] != m->walk;
    }
    return SX_OK;
}

sx_code sx_multi_apply(sx_multi *m, sx_eg_ruleset *set, sx_match_list *found, sx_rewrite *rw,
                       uint64_t fuel_limit, uint64_t *fuel)
{
    SX_ASSERT(rw->rule < set->rule_count && sx_multi_is(set->rule[rw->rule].left));
    const sx_eg_rule *rule = &set->rule[rw->rule];
    joiner j = {m, &set->language, rule, found, rw, fuel_limit, fuel};
    sx_bucket bucket = {
        .multi = m, .set = set, .found = found, .bind_count = rule->left->bind_count};
    bucket.stride = sx_pattern_stride(rule->left);
    uint32_t new_matches = found->match_count;
    m->now++;
    for (uint32_t i = 0; i < new_matches && *fuel < fuel_limit; i++) {
        uint32_t key[KEY_WORDS];
        uint32_t id;
        key_of(rw->eg, rule->left, rw->rule, &found->word[(size_t)i * bucket.stride], key);
        SX_TRY(intern_bucket(rw->cx, m, key, &id));
        if (m->epoch[id] == m->now || m->builds[id] >= SX_MULTI_BUILDS) {
            continue;
        }
        m->epoch[id] = m->now;
        SX_TRY(collect(&j, key, &bucket));
        if (bucket.count < 2 || bucket.count <= m->size[id]) {
            continue;
        }
        m->size[id] = bucket.count;
        m->builds[id]++;
        bucket.work = 0;
        rw->bucket = &bucket;
        sx_rewrite_turn(rw, 0);
        uint32_t before = rw->eg->node_count;
        SX_TRY(rule->rule->build(rw));
        *fuel += bucket.count + bucket.work + (rw->eg->node_count - before);
    }
    return SX_OK;
}
