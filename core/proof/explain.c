#include "core/proof/explain.h"

#include <string.h>

#include "core/egraph/multi.h"

sx_code sx_explain_init(sx_ctx *cx, const sx_tensors *t, const sx_eg_ruleset *set,
                        sx_explainer *explainer)
{
    uint32_t count = t->eg.node_count;
    *explainer = (sx_explainer){.cx = cx, .t = t, .set = set, .epoch = 1};
    explainer->path = SX_NEW_ARRAY(cx, uint32_t, count + 1);
    explainer->walked = SX_NEW_ARRAY(cx, uint32_t, count);
    explainer->explained = SX_NEW_ARRAY(cx, uint32_t, count);
    explainer->number_of = SX_NEW_ARRAY(cx, uint32_t, count);
    explainer->counted = SX_NEW_ARRAY(cx, uint32_t, count);
    explainer->uncounted = SX_NEW_ARRAY(cx, uint32_t, count);
    if (explainer->path == NULL || explainer->walked == NULL || explainer->explained == NULL ||
        explainer->number_of == NULL || explainer->counted == NULL ||
        explainer->uncounted == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = t->number_count;
         i-- > 0;) { /* of several entries of a node the first counts */
        explainer->number_of[t->number[i].node] = i + 1;
    }
    return SX_OK;
}

uint32_t sx_explain_readings(const sx_explainer *x, uint32_t reason, const sx_eg_reading **reading)
{
    const sx_eg_ruleset *set = x->set;
    uint32_t first = 0;
    uint32_t end = set->reading_count;
    while (first < end) {
        uint32_t middle = first + (end - first) / 2;
        if (set->reading[middle].reason < reason) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    *reading = set->reading != NULL ? &set->reading[first] : NULL;
    while (end < set->reading_count && set->reading[end].reason == reason) {
        end++;
    }
    return end - first;
}

void sx_explain_path(sx_explainer *x, uint32_t from, uint32_t to)
{
    const sx_eg *eg = &x->t->eg;
    x->walk_epoch++;
    x->path_count = 0;
    uint32_t n = from;
    for (;;) {
        x->walked[n] = x->walk_epoch;
        if (sx_eg_why_of(eg, n).up == n) {
            break;
        }
        n = sx_eg_why_of(eg, n).up;
    }
    uint32_t meet = to;
    uint32_t tail = 0;
    while (x->walked[meet] != x->walk_epoch) {
        SX_ASSERT(sx_eg_why_of(eg, meet).up != meet);
        meet = sx_eg_why_of(eg, meet).up;
        tail++;
    }
    for (n = from; n != meet; n = sx_eg_why_of(eg, n).up) {
        x->path[x->path_count++] = n;
    }
    x->path[x->path_count] = meet;
    uint32_t last = x->path_count + tail;
    n = to;
    for (uint32_t i = last; i > x->path_count; i--) {
        x->path[i] = n;
        n = sx_eg_why_of(eg, n).up;
    }
    x->path_count = last + 1;
    SX_ASSERT(x->path[0] == from && x->path[last] == to);
}

sx_code sx_explain_want(sx_explainer *x, uint32_t a, uint32_t b)
{
    if (a == b) {
        return SX_OK;
    }
    SX_ASSERT(sx_eg_find(&x->t->eg, a) == sx_eg_find(&x->t->eg, b));
    SX_TRY(sx_grow(x->cx, (void **)&x->wanted, &x->wanted_capacity, x->wanted_count + 2,
                   sizeof(uint32_t)));
    x->wanted[x->wanted_count++] = a;
    x->wanted[x->wanted_count++] = b;
    return SX_OK;
}

#define FOLDS_MAX 4u /* operations on numbers on top of one another */

/* A class is known to hold one number: the constants among its members say so, else a member all of whose
 * operands are numbers. */
static sx_code want_value_to(sx_explainer *x, uint32_t term, uint32_t depth)
{
    const sx_eg *eg = &x->t->eg;
    uint32_t first = sx_eg_find(eg, term);
    uint32_t n = first;
    uint32_t folded = SX_EG_NONE;
    bool found = false;
    do {
        bool known = eg->node[n].arity > 0;
        if (sx_tensors_op(x->t, n) == SX_OP_CONSTANT) {
            SX_TRY(sx_explain_want(x, term, n));
            found = true;
        }
        for (uint32_t k = 0; known && k < eg->node[n].arity; k++) {
            known = sx_tensors_fact(x->t, sx_eg_made_child(eg, n, k))->has_value != 0;
        }
        folded = known && n < folded ? n : folded;
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    if (found || folded == SX_EG_NONE || depth == 0) {
        return SX_OK;
    }
    SX_TRY(sx_explain_want(x, term, folded));
    for (uint32_t k = 0; k < eg->node[folded].arity; k++) {
        SX_TRY(want_value_to(x, sx_eg_made_child(eg, folded, k), depth - 1));
    }
    return SX_OK;
}

static sx_code want_value(sx_explainer *x, uint32_t term)
{
    return want_value_to(x, term, FOLDS_MAX);
}

/* What had to be equal for a left side to match: every matched node and the child it was found as, every two
 * mentions of a name. */
typedef struct {
    sx_explainer *x;
    const sx_pattern *left;
    const uint32_t *node;
    uint32_t next;
    uint32_t bound[SX_PATTERN_NAMES_MAX];
} premises;

static sx_code want_name(premises *p, uint8_t name, uint32_t term)
{
    if (name == SX_PATTERN_NONE) {
        return SX_OK;
    }
    if (p->bound[name] != SX_EG_NONE) {
        return sx_explain_want(p->x, p->bound[name], term);
    }
    p->bound[name] = term;
    return SX_OK;
}

static sx_code want_part(premises *p, uint32_t index, uint32_t term)
{
    const sx_pattern_part *part = &p->left->part[index];
    if (part->kind == SX_PART_VALUE) {
        return want_value(p->x, term);
    }
    SX_TRY(want_name(p, part->name, term));
    if (part->kind == SX_PART_NAME) {
        return SX_OK;
    }
    uint32_t n = p->node[p->next++];
    SX_TRY(sx_explain_want(p->x, term, n));
    for (uint32_t k = 0; k < part->arity; k++) {
        SX_TRY(want_part(p, part->child[k], sx_eg_made_child(&p->x->t->eg, n, k)));
    }
    return SX_OK;
}

/* A child of node `to` as one of the children of the other two. */
static sx_code want_child(sx_explainer *x, uint32_t term, const uint32_t *node, uint32_t count)
{
    const sx_eg *eg = &x->t->eg;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < eg->node[node[i]].arity; k++) {
            uint32_t other = sx_eg_made_child(eg, node[i], k);
            if (sx_eg_find(eg, other) == sx_eg_find(eg, term)) {
                return sx_explain_want(x, term, other);
            }
        }
    }
    return SX_OK;
}

/* A step of fusion: node[0] became node[1], with node[2], if it is there, computed inside. */
static sx_code want_fusion(sx_explainer *x, uint32_t rule, const uint32_t *node, uint32_t count)
{
    const sx_eg *eg = &x->t->eg;
    uint32_t source[2] = {node[0], count > 2 ? node[2] : SX_EG_NONE};
    for (uint32_t k = 0; k < eg->node[node[1]].arity; k++) {
        SX_TRY(want_child(x, sx_eg_made_child(eg, node[1], k), source, count - 1));
    }
    for (uint32_t k = 0; k < eg->node[node[0]].arity; k++) {
        uint32_t child = sx_eg_made_child(eg, node[0], k);
        if (count > 2 && sx_eg_find(eg, child) == sx_eg_find(eg, node[2])) {
            SX_TRY(sx_explain_want(x, child, node[2]));
        }
        if (rule == SX_RULE_FUSE_VALUE && sx_tensors_fact(x->t, child)->has_value != 0) {
            SX_TRY(want_value(x, child));
        }
        for (uint32_t j = 0; rule == SX_RULE_FUSE_SAME && j < k; j++) {
            uint32_t other = sx_eg_made_child(eg, node[0], j);
            if (sx_eg_find(eg, child) == sx_eg_find(eg, other)) {
                SX_TRY(sx_explain_want(x, child, other));
            }
        }
    }
    return SX_OK;
}

/* Nodes picked from a class: which class it was, some node matched or picked before says. */
static sx_code want_picks(sx_explainer *x, const uint32_t *node, uint32_t first, uint32_t count)
{
    const sx_eg *eg = &x->t->eg;
    for (uint32_t i = first; i < count; i++) {
        for (uint32_t k = 0; k < eg->node[node[i]].arity; k++) {
            uint32_t child = sx_eg_made_child(eg, node[i], k);
            if (sx_tensors_fact(x->t, child)->has_value != 0) {
                SX_TRY(want_value(x, child));
            }
        }
        for (uint32_t m = 0; m < i; m++) {
            for (uint32_t k = 0; k < eg->node[node[m]].arity; k++) {
                uint32_t child = sx_eg_made_child(eg, node[m], k);
                if (sx_eg_find(eg, child) == sx_eg_find(eg, node[i])) {
                    SX_TRY(sx_explain_want(x, child, node[i]));
                }
            }
        }
    }
    return SX_OK;
}

static void want_number(sx_explainer *x, uint32_t n)
{
    if (x->number_of[n] != 0 && x->counted[n] != x->epoch) {
        x->counted[n] = x->epoch;
        x->uncounted[x->uncounted_count++] = n;
    }
}

/* Why a node is the number it is: its operands are equal to what gave them theirs. */
static sx_code explain_number(sx_explainer *x, uint32_t n)
{
    const sx_eg *eg = &x->t->eg;
    const sx_number *number = &x->t->number[x->number_of[n] - 1];
    for (uint32_t k = 0; k < eg->node[n].arity; k++) {
        SX_TRY(sx_explain_want(x, sx_eg_made_child(eg, n, k), number->below[k]));
        want_number(x, number->below[k]);
    }
    return SX_OK;
}

sx_code sx_explain_want_readings(sx_explainer *x, uint32_t number)
{
    const sx_eg *eg = &x->t->eg;
    const sx_eg_reason *reason = &x->set->reason[number];
    const sx_eg_reading *reading;
    uint32_t count = sx_explain_readings(x, number, &reading);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = reading[i].from;
        for (uint32_t m = 0; m < reason->node_count; m++) {
            uint32_t n = x->set->reason_node[reason->node_first + m];
            for (uint32_t k = 0; k <= eg->node[n].arity; k++) {
                uint32_t term = k > 0 ? sx_eg_made_child(eg, n, k - 1) : n;
                if (sx_eg_find(eg, term) == sx_eg_find(eg, from)) {
                    SX_TRY(sx_explain_want(x, term, from));
                }
            }
        }
        want_number(x, from);
    }
    return SX_OK;
}

static sx_code want_premises(sx_explainer *x, const sx_eg_reason *reason)
{
    const uint32_t *node = &x->set->reason_node[reason->node_first];
    if (reason->rule >= SX_RULE_ROUNDS_COUNT) {
        return want_fusion(x, reason->rule, node, reason->node_count);
    }
    if (reason->node_count == 0) {
        return SX_OK;
    }
    premises p = {.x = x, .left = x->set->rule[reason->rule].left, .node = node};
    uint32_t shared = sx_multi_shared(p.left);
    uint32_t common = SX_EG_NONE;
    bool bucket = sx_multi_is(p.left);
    bool is_shared = shared < p.left->name_count;
    do { /* once, or once for each member of a bucket */
        memset(p.bound, 0xFF, sizeof(p.bound));
        if (is_shared) {
            p.bound[shared] = common;
        }
        SX_TRY(want_part(&p, p.left->root, node[p.next]));
        common = is_shared ? p.bound[shared] : SX_EG_NONE;
        bool computed = x->set->rule[reason->rule].right == NULL; /* may look at values */
        for (uint32_t i = 0; computed && i < p.left->name_count; i++) {
            if (sx_tensors_fact(x->t, p.bound[i])->has_value != 0) {
                SX_TRY(want_value(x, p.bound[i]));
            }
        }
    } while (bucket && p.next < reason->node_count);
    SX_ASSERT(bucket ? p.next == reason->node_count : p.next <= reason->node_count);
    return bucket ? SX_OK : want_picks(x, node, p.next, reason->node_count);
}

sx_code sx_explain_edge(sx_explainer *x, uint32_t a, uint32_t b)
{
    const sx_eg *eg = &x->t->eg;
    SX_ASSERT(sx_eg_why_of(eg, a).up == b || sx_eg_why_of(eg, b).up == a);
    uint32_t edge = sx_eg_why_of(eg, a).up == b ? a : b; /* the node whose edge joins the two */
    uint32_t reason = sx_eg_why_of(eg, edge).rule;
    if (x->explained[edge] == x->epoch) {
        return SX_OK;
    }
    x->explained[edge] = x->epoch;
    if (reason == SX_EG_RULE_CONGRUENCE) {
        for (uint32_t k = 0; k < eg->node[a].arity; k++) {
            SX_TRY(sx_explain_want(x, sx_eg_made_child(eg, a, k), sx_eg_made_child(eg, b, k)));
        }
        return SX_OK;
    }
    SX_ASSERT(reason < x->set->reason_count);
    SX_TRY(x->found(x->self, reason));
    if (x->numbers) {
        SX_TRY(sx_explain_want_readings(x, reason));
    }
    return want_premises(x, &x->set->reason[reason]);
}

/* Each edge counts once an epoch, so this ends. */
sx_code sx_explain_run(sx_explainer *x)
{
    while (x->wanted_count > 0 || x->uncounted_count > 0) {
        if (x->uncounted_count > 0) {
            SX_TRY(explain_number(x, x->uncounted[--x->uncounted_count]));
            continue;
        }
        uint32_t b = x->wanted[--x->wanted_count];
        uint32_t a = x->wanted[--x->wanted_count];
        sx_explain_path(x, a, b);
        for (uint32_t i = 1; i < x->path_count; i++) {
            SX_TRY(sx_explain_edge(x, x->path[i - 1], x->path[i]));
        }
    }
    return SX_OK;
}
