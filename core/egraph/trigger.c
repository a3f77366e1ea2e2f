/* trigger.c - matching driven by what is new.
 *
 * Every left side is compiled once for each of its nodes (the anchor) into a plan: bind the anchor to a
 * changed node, then go down into the members of a class or up its parents, test as soon as what is tested is
 * known. The plans of all rules that begin with the same operation form one tree, so that a common beginning
 * is matched once. A match is found from the first of its nodes that changed: nodes that come earlier in the
 * text must be old ("semi-naive"), so none is found twice. What a match consists of, nodes with their classes,
 * children and records, is in the log when it changes; so the cost of a round is what changed times the plans
 * that begin there.
 *
 * Invariant: since its position in the log a rule gets exactly the matches of which at least one node is new
 * or changed.
 */
#include <string.h>

#include "core/egraph/pattern.h"

/* DOWN looks at the members of class reg[from], UP at its parents that have it as child `slot`; a node that
 * fits is node number `atom` of the plan. Where child `join_slot` of the node must be of a class known before,
 * reg[join], the parents of that class are the other place to look, and the shorter list is taken. DOWN puts
 * its children into reg[out..], UP its class into reg[out] and its children behind it. */
typedef enum { AT_ANCHOR, AT_DOWN, AT_UP, AT_SAME, AT_VALUE, AT_ATTR, AT_REPORT } at_kind;
typedef struct {
    uint8_t kind;
    uint8_t from;
    uint8_t other; /* SAME: a register; ATTR: `from` and it are nodes of the plan */
    uint8_t atom;
    uint8_t out;
    uint8_t arity;
    uint8_t slot;
    bool any_arity;
    bool old;                /* the node must not have changed */
    uint8_t join, join_slot; /* NONE: no such child */
    uint8_t hint;
    sx_bits ops;
    double value;
} at_step;

/* One step of the tree; those that follow it are `child` and its `next`. */
typedef struct {
    at_step step;
    uint32_t child, next; /* SX_EG_NONE ends */
    uint32_t report;      /* REPORT */
    bool live;            /* some rule that may search in this pass lies behind it */
} at_node;
/* What a plan knows: its registers, then its nodes. */
#define REGS_MAX 256u
#define CELLS_MAX (REGS_MAX + SX_PATTERN_NODES_MAX)
/* The words of a match, nodes and then classes of names, as cells of the plan. */
typedef struct {
    uint32_t rule;
    bool from_root; /* anchored at the root: the only plan when all is new */
    bool drops;     /* matches without effect can be told */
    uint32_t width;
    uint16_t cell[SX_PATTERN_NODES_MAX + SX_PATTERN_NAMES_MAX];
} at_report;

/* Nodes found at one step from one class, kept for the pass with what the step puts into registers: where a
 * class has very many members or parents, the next node of it need not walk them all again. */
typedef struct {
    uint32_t class_, step; /* step SX_EG_NONE: free */
    uint32_t first, count; /* words of kept[]: node, registers */
} at_memo;
#define NEAR 4u       /* nodes ahead that are brought near */
#define HUB_STEPS 16u /* a walk longer than this is worth keeping */

struct sx_trigger {
    sx_ctx *cx;
    const sx_eg_ruleset *set;
    const bool *enabled; /* per rule: has plans */
    at_node *node;
    uint32_t node_count, node_capacity;
    at_report *report;
    uint32_t report_count, report_capacity;
    uint32_t first;                 /* anchors */
    uint32_t *by_op[SX_EG_OPS_MAX]; /* anchors that an operation can be */
    uint32_t by_op_count[SX_EG_OPS_MAX];
    uint64_t *changed; /* bit per node: in the log since the position of the pass */
    uint32_t changed_capacity;
    uint64_t *hub; /* bit per node: a class with something kept */
    uint32_t hub_capacity;
    at_memo *memo; /* open addressing, a power of two */
    uint32_t memo_count, memo_used, memo_capacity;
    uint32_t *kept;
    uint32_t kept_count, kept_capacity;
    sx_eg_position *since; /* per rule */
    bool *active;          /* per rule: searches in this pass */
};

/* ---- plans ---- */

typedef struct {
    sx_trigger *t;
    const sx_pattern *left;
    const sx_step *atom[SX_PATTERN_NODES_MAX]; /* BIND steps by number */
    uint8_t place[SX_PATTERN_NODES_MAX];       /* number in the plan; NONE: not bound yet */
    uint8_t reg[256];                          /* register of the pattern -> of the plan, or NONE */
    bool tested[2 * SX_PATTERN_NODES_MAX];
    uint8_t test[2 * SX_PATTERN_NODES_MAX]; /* steps that test something */
    uint8_t same[2 * SX_PATTERN_NODES_MAX]; /* those of them that compare classes */
    uint32_t test_count, same_count;
    uint32_t atom_count, reg_count;
    uint32_t anchor;
    uint32_t at; /* step of the tree to go on from */
} planner;

static bool same_step(const at_step *a, const at_step *b)
{
    return a->kind == b->kind && a->from == b->from && a->other == b->other && a->atom == b->atom &&
           a->out == b->out && a->arity == b->arity && a->slot == b->slot &&
           a->any_arity == b->any_arity && a->old == b->old && sx_bits_equal(&a->ops, &b->ops) &&
           a->join == b->join && a->join_slot == b->join_slot &&
           memcmp(&a->value, &b->value, sizeof(a->value)) == 0;
}

/* Goes to the step behind the present one, which another plan may have made. */
static sx_code follow(planner *p, const at_step *step)
{
    sx_trigger *t = p->t;
    uint32_t *link = p->at == SX_EG_NONE ? &t->first : &t->node[p->at].child;
    uint32_t last = SX_EG_NONE;
    for (uint32_t i = *link; i != SX_EG_NONE; i = t->node[i].next) {
        if (step->kind != AT_REPORT && same_step(&t->node[i].step, step)) {
            p->at = i;
            return SX_OK;
        }
        last = i;
    }
    uint32_t fresh = t->node_count;
    SX_TRY(sx_grow(t->cx, (void **)&t->node, &t->node_capacity, fresh + 1, sizeof(*t->node)));
    t->node[fresh] = (at_node){.step = *step, .child = SX_EG_NONE, .next = SX_EG_NONE};
    t->node_count++;
    if (last != SX_EG_NONE) {
        t->node[last].next = fresh;
    } else if (p->at == SX_EG_NONE) {
        t->first = fresh;
    } else {
        t->node[p->at].child = fresh;
    }
    p->at = fresh;
    return SX_OK;
}

/* The tests whose registers and nodes are now known. */
static sx_code add_tests(planner *p)
{
    const sx_pattern *left = p->left;
    for (uint32_t k = 0; k < p->test_count; k++) {
        uint32_t i = p->test[k];
        const sx_step *step = &left->step[i];
        if (p->tested[i]) {
            continue;
        }
        at_step test = {.kind = AT_SAME};
        bool known = false;
        if (step->kind == SX_STEP_SAME) {
            test.from = p->reg[step->from];
            test.other = p->reg[step->other];
            known = test.from != SX_PATTERN_NONE && test.other != SX_PATTERN_NONE;
        } else if (step->kind == SX_STEP_VALUE) {
            test = (at_step){.kind = AT_VALUE, .from = p->reg[step->from], .value = step->value};
            known = test.from != SX_PATTERN_NONE;
        } else {
            test = (at_step){
                .kind = AT_ATTR, .from = p->place[step->bind], .other = p->place[step->other]};
            known = test.from != SX_PATTERN_NONE && test.other != SX_PATTERN_NONE;
        }
        if (known) {
            p->tested[i] = true;
            SX_TRY(follow(p, &test));
        }
    }
    return SX_OK;
}

static void know(planner *p, uint8_t pattern_reg, uint32_t plan_reg)
{
    if (p->reg[pattern_reg] == SX_PATTERN_NONE) {
        p->reg[pattern_reg] = (uint8_t)plan_reg;
    }
}

/* A child of atom `a` that must be of a class already known, by name; not the one it was reached by. */
static void find_join(const planner *p, uint32_t a, at_step *step)
{
    const sx_step *atom = p->atom[a];
    step->join = step->join_slot = SX_PATTERN_NONE;
    for (uint32_t i = 0; i < p->same_count; i++) {
        const sx_step *same = &p->left->step[p->same[i]];
        for (uint32_t turn = 0; turn < 2; turn++) {
            uint8_t mine = turn == 0 ? same->from : same->other;
            uint8_t known = p->reg[turn == 0 ? same->other : same->from];
            if (mine >= atom->out && mine < atom->out + atom->arity && known != SX_PATTERN_NONE &&
                step->join == SX_PATTERN_NONE &&
                !(step->kind == AT_UP && mine - atom->out == step->slot)) {
                step->join = known;
                step->join_slot = (uint8_t)(mine - atom->out);
            }
        }
    }
}

/* Binds atom `a` by a step of this kind; its class is known (DOWN) or becomes register `out`. */
static sx_code bind_atom(planner *p, uint32_t a, at_kind kind, uint8_t from, uint8_t slot,
                         uint32_t place)
{
    const sx_step *atom = p->atom[a];
    bool with_class = kind != AT_DOWN;
    at_step step = {.kind = (uint8_t)kind,
                    .from = from,
                    .atom = (uint8_t)place,
                    .out = (uint8_t)p->reg_count,
                    .arity = atom->arity,
                    .slot = slot,
                    .any_arity = atom->any_arity,
                    .old = a < p->anchor,
                    .hint = atom->hint,
                    .ops = atom->ops};
    find_join(p, a, &step);
    p->place[a] = (uint8_t)place;
    if (with_class) {
        know(p, atom->from, p->reg_count++);
    }
    for (uint32_t k = 0; k < atom->arity; k++) {
        know(p, (uint8_t)(atom->out + k), p->reg_count++);
    }
    SX_ASSERT(p->reg_count < SX_PATTERN_NONE);
    SX_TRY(follow(p, &step));
    return add_tests(p);
}

/* The next atom: down where a class is known, which is narrow, else up from one that is bound. */
static sx_code bind_next(planner *p, uint32_t place)
{
    for (uint32_t a = 0; a < p->atom_count; a++) {
        uint8_t from = p->reg[p->atom[a]->from];
        if (p->place[a] == SX_PATTERN_NONE && from != SX_PATTERN_NONE) {
            return bind_atom(p, a, AT_DOWN, from, 0, place);
        }
    }
    for (uint32_t a = 0; a < p->atom_count; a++) {
        uint8_t reg = p->atom[a]->from;
        uint32_t parent = reg == 0 ? SX_EG_NONE : p->left->reg_bind[reg];
        if (p->place[a] != SX_PATTERN_NONE && parent != SX_EG_NONE &&
            p->place[parent] == SX_PATTERN_NONE) {
            return bind_atom(p, parent, AT_UP, p->reg[reg], p->left->reg_slot[reg], place);
        }
    }
    SX_UNREACHABLE(); /* the atoms of a left side are a tree */
}

static sx_code plan(sx_trigger *t, uint32_t rule, uint32_t anchor)
{
    const sx_pattern *left = t->set->rule[rule].left;
    planner p = {.t = t, .left = left, .anchor = anchor, .at = SX_EG_NONE};
    memset(p.place, (int)SX_PATTERN_NONE, sizeof(p.place));
    memset(p.reg, (int)SX_PATTERN_NONE, sizeof(p.reg));
    SX_ASSERT(left->step_count <= SX_COUNT(p.test));
    for (uint32_t i = 0; i < left->step_count; i++) {
        const sx_step *step = &left->step[i];
        if (step->kind == SX_STEP_BIND) {
            p.atom[step->bind] = step;
            p.atom_count++;
        }
        if (step->kind == SX_STEP_SAME) {
            p.same[p.same_count++] = (uint8_t)i;
        }
        if (step->kind != SX_STEP_BIND || step->other != SX_PATTERN_NONE) {
            p.test[p.test_count++] = (uint8_t)i;
        }
    }
    SX_TRY(bind_atom(&p, anchor, AT_ANCHOR, 0, 0, 0));
    for (uint32_t place = 1; place < p.atom_count; place++) {
        SX_TRY(bind_next(&p, place));
    }
    SX_TRY(sx_grow(t->cx, (void **)&t->report, &t->report_capacity, t->report_count + 1,
                   sizeof(*t->report)));
    SX_TRY(follow(&p, &(at_step){.kind = AT_REPORT}));
    at_report *report = &t->report[t->report_count];
    const sx_pattern *right = t->set->rule[rule].right;
    *report = (at_report){.rule = rule,
                          .from_root = anchor == 0,
                          .drops = right != NULL && sx_pattern_finds(&t->set->language, right),
                          .width = sx_pattern_stride(left)};
    for (uint32_t i = 0; i < left->bind_count; i++) {
        report->cell[i] = (uint16_t)(REGS_MAX + p.place[i]);
    }
    for (uint32_t i = 0; i < left->name_count; i++) {
        report->cell[left->bind_count + i] = p.reg[left->name_reg[i]];
    }
    t->node[p.at].report = t->report_count++;
    return SX_OK;
}

static sx_code sort_anchors(sx_trigger *t)
{
    for (uint32_t op = 0; op < SX_EG_OPS_MAX; op++) {
        uint32_t count = 0;
        for (uint32_t i = t->first; i != SX_EG_NONE; i = t->node[i].next) {
            count += sx_bits_has(&t->node[i].step.ops, op) ? 1 : 0;
        }
        t->by_op[op] = SX_NEW_ARRAY(t->cx, uint32_t, count + 1);
        if (t->by_op[op] == NULL) {
            return t->cx->error.code;
        }
        for (uint32_t i = t->first; i != SX_EG_NONE; i = t->node[i].next) {
            if (sx_bits_has(&t->node[i].step.ops, op)) {
                t->by_op[op][t->by_op_count[op]++] = i;
            }
        }
    }
    return SX_OK;
}

sx_code sx_trigger_make(sx_ctx *cx, const sx_eg_ruleset *set, sx_trigger **trigger)
{
    sx_trigger *t = SX_NEW(cx, sx_trigger);
    if (t == NULL) {
        return cx->error.code;
    }
    t->cx = cx;
    t->set = set;
    t->first = SX_EG_NONE;
    t->active = SX_NEW_ARRAY(cx, bool, (size_t)set->rule_count + 1);
    t->since = SX_NEW_ARRAY(cx, sx_eg_position, (size_t)set->rule_count + 1);
    bool *enabled = SX_NEW_ARRAY(cx, bool, (size_t)set->rule_count + 1);
    if (t->active == NULL || t->since == NULL || enabled == NULL) {
        return cx->error.code;
    }
    t->enabled = enabled;
    for (uint32_t r = 0; r < set->rule_count; r++) {
        enabled[r] = set->rule[r].enabled;
        for (uint32_t a = 0; enabled[r] && a < set->rule[r].left->bind_count; a++) {
            SX_TRY(plan(t, r, a));
        }
    }
    *trigger = t;
    return sort_anchors(t);
}

/* Were these plans made of the rules that are enabled now? */
static bool is_of(const sx_trigger *made, const sx_eg_ruleset *set)
{
    bool same = made->set->rule_count == set->rule_count;
    for (uint32_t r = 0; same && r < set->rule_count; r++) {
        const sx_eg_rule *a = &made->set->rule[r];
        const sx_eg_rule *b = &set->rule[r];
        same = a->left == b->left && a->right == b->right && made->enabled[r] == b->enabled;
    }
    return same;
}

sx_code sx_trigger_share(sx_ctx *cx, const sx_trigger *made, const sx_eg_ruleset *set,
                         sx_trigger **trigger)
{
    if (made == NULL || !is_of(made, set)) {
        return sx_trigger_make(cx, set, trigger);
    }
    sx_trigger *t = SX_NEW(cx, sx_trigger);
    if (t == NULL) {
        return cx->error.code;
    }
    SX_ASSERT(made->set != set && made->enabled != NULL);
    *t = (sx_trigger){.cx = cx,
                      .set = set,
                      .enabled = made->enabled,
                      .node = SX_NEW_ARRAY_UNSET(cx, at_node, (size_t)made->node_count + 1),
                      .node_count = made->node_count,
                      .node_capacity = made->node_count,
                      .report = made->report,
                      .report_count = made->report_count,
                      .report_capacity = made->report_count,
                      .first = made->first,
                      .active = SX_NEW_ARRAY(cx, bool, (size_t)set->rule_count + 1),
                      .since = SX_NEW_ARRAY(cx, sx_eg_position, (size_t)set->rule_count + 1)};
    if (t->node == NULL || t->active == NULL || t->since == NULL) {
        return cx->error.code;
    }
    memcpy(t->node, made->node, made->node_count * sizeof(*t->node));
    memcpy(t->by_op, made->by_op, sizeof(t->by_op));
    memcpy(t->by_op_count, made->by_op_count, sizeof(t->by_op_count));
    *trigger = t;
    return SX_OK;
}

/* ---- search ---- */

typedef struct {
    sx_trigger *t;
    sx_search *q;
    const sx_eg *eg;
    uint32_t new_from; /* nodes from here on are new */
    bool logged;       /* some older ones changed */
    bool any_live;     /* some rule still searches */
    uint32_t cell[CELLS_MAX];
} machine;

static inline bool is_old(const machine *m, uint32_t n)
{
    return n < m->new_from && (!m->logged || (m->t->changed[n / 64] >> (n % 64) & 1) == 0);
}

/* Steps behind which lies a rule that searches now. A step is made before those that follow it. */
static bool mark_live(sx_trigger *t, bool all_new)
{
    bool any = false;
    for (uint32_t i = t->node_count; i-- > 0;) {
        at_node *at = &t->node[i];
        if (at->step.kind == AT_REPORT) {
            const at_report *r = &t->report[at->report];
            at->live = t->active[r->rule] && (r->from_root || !all_new);
            any = any || at->live;
            continue;
        }
        at->live = false;
        for (uint32_t c = at->child; c != SX_EG_NONE && !at->live; c = t->node[c].next) {
            at->live = t->node[c].live;
        }
    }
    return any;
}

/* The rule has found its fill: nobody looks for it any more. */
static void retire(machine *m, uint32_t rule)
{
    m->q->over[rule] = true;
    m->t->active[rule] = false;
    m->any_live = mark_live(m->t, m->new_from == 0);
}

/* The last batch of matches loses those without effect, unless it is to be passed over. */
static void drop_idle(machine *m, uint32_t rule, sx_match_list *found)
{
    if (found->pass == 0) {
        sx_pattern_drop_idle(m->eg, &m->t->set->rule[rule], found);
    } else {
        found->pass -= SX_EG_BATCH;
        found->looked += SX_EG_BATCH;
    }
}

static inline sx_code report(machine *m, const at_report *r)
{
    sx_match_list *found = &m->q->found[r->rule];
    uint32_t need = found->count + r->width;
    if (need > found->capacity) {
        SX_TRY(sx_region_grow(m->t->cx, (void **)&found->word, &found->capacity, need,
                              sizeof(uint32_t)));
    }
    uint32_t *word = &found->word[found->count];
    for (uint32_t i = 0; i < r->width; i++) {
        word[i] = m->cell[r->cell[i]];
    }
    found->count = need;
    found->match_count++;
    if (found->match_count + found->idle >= m->q->limit[r->rule]) {
        retire(m, r->rule);
    } else if (found->match_count - found->looked >= SX_EG_BATCH && m->q->drops && r->drops) {
        drop_idle(m, r->rule, found);
    }
    return SX_OK;
}

static sx_code run_all(machine *m, uint32_t index);

/* What follows a step; mostly it is the end of a plan. */
static inline sx_code go_on(machine *m, uint32_t child)
{
    const at_node *at = &m->t->node[child];
    if (at->step.kind != AT_REPORT || at->next != SX_EG_NONE) {
        return run_all(m, child);
    }
    if (!at->live) {
        return SX_OK;
    }
    m->q->work++;
    return report(m, &m->t->report[at->report]);
}

static inline bool fits(const sx_eg_node *node, const at_step *s)
{
    return node->dead == 0 && sx_bits_has(&s->ops, node->op) &&
           (s->any_arity ? node->arity >= s->arity : node->arity == s->arity);
}

/* The children of node n as classes, at most so many as fit the step. */
static inline void take_children(const sx_eg *eg, uint32_t n, uint32_t arity, uint32_t *out)
{
    for (uint32_t k = 0; k < arity; k++) {
        out[k] = sx_eg_child(eg, n, k);
    }
}

/* What step s puts into registers for node n; how many. */
static inline uint32_t fill(const sx_eg *eg, const at_step *s, uint32_t n, uint32_t *out)
{
    uint32_t count = 0;
    if (s->kind == AT_UP) {
        out[count++] = sx_eg_find(eg, n);
    }
    take_children(eg, n, s->arity, out + count);
    return count + s->arity;
}

static inline uint32_t memo_hash(uint32_t class_, uint32_t step)
{
    uint64_t h = ((uint64_t)class_ << 32 | step) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(h >> 32);
}

static const at_memo *find_memo(const sx_trigger *t, uint32_t class_, uint32_t step)
{
    if ((t->hub[class_ / 64] >> (class_ % 64) & 1) == 0) {
        return NULL;
    }
    uint32_t i = memo_hash(class_, step) & (t->memo_count - 1);
    for (; t->memo[i].step != SX_EG_NONE; i = (i + 1) & (t->memo_count - 1)) {
        if (t->memo[i].class_ == class_ && t->memo[i].step == step) {
            return &t->memo[i];
        }
    }
    return NULL;
}

/* Room for one more at a load of at most 1/2. */
static sx_code grow_memo(sx_trigger *t)
{
    if ((t->memo_used + 1) * 2 <= t->memo_count) {
        return SX_OK;
    }
    uint32_t old = t->memo_count;
    uint32_t wanted = old == 0 ? 256 : old * 2;
    SX_TRY(sx_region_resize(t->cx, (void **)&t->memo, &t->memo_capacity, wanted + old,
                            sizeof(*t->memo)));
    at_memo *copy = t->memo + wanted; /* behind the table while it is filled */
    if (old > 0) {
        memcpy(copy, t->memo, old * sizeof(*copy));
    }
    memset(t->memo, 0xFF, wanted * sizeof(*t->memo));
    t->memo_count = wanted;
    for (uint32_t e = 0; e < old; e++) {
        if (copy[e].step != SX_EG_NONE) {
            uint32_t i = memo_hash(copy[e].class_, copy[e].step) & (wanted - 1);
            while (t->memo[i].step != SX_EG_NONE) {
                i = (i + 1) & (wanted - 1);
            }
            t->memo[i] = copy[e];
        }
    }
    return SX_OK;
}

static sx_code begin_memo(sx_trigger *t, uint32_t class_, uint32_t step, at_memo **memo)
{
    SX_TRY(grow_memo(t));
    uint32_t i = memo_hash(class_, step) & (t->memo_count - 1);
    while (t->memo[i].step != SX_EG_NONE) {
        i = (i + 1) & (t->memo_count - 1);
    }
    t->memo[i] = (at_memo){class_, step, t->kept_count, 0};
    t->memo_used++;
    t->hub[class_ / 64] |= UINT64_C(1) << (class_ % 64);
    *memo = &t->memo[i];
    return SX_OK;
}

static sx_code keep_node(machine *m, const at_step *s, at_memo *memo, uint32_t n)
{
    sx_trigger *t = m->t;
    SX_TRY(sx_region_grow(t->cx, (void **)&t->kept, &t->kept_capacity, t->kept_count + s->arity + 2,
                          sizeof(*t->kept)));
    uint32_t *word = &t->kept[t->kept_count];
    word[0] = n;
    uint32_t width = 1 + fill(m->eg, s, n, word + 1);
    t->kept_count += width;
    memo->count += width;
    return SX_OK;
}

static void forget(sx_trigger *t)
{
    for (uint32_t i = 0; t->memo_used > 0 && i < t->memo_count; i++) {
        if (t->memo[i].step != SX_EG_NONE) {
            t->hub[t->memo[i].class_ / 64] = 0;
            t->memo[i].step = SX_EG_NONE;
        }
    }
    t->memo_used = 0;
    t->kept_count = 0;
}

/* A node that fits step `at`, with all that follows. */
static inline sx_code take_node(machine *m, const at_node *at, uint32_t n)
{
    const at_step *s = &at->step;
    m->cell[REGS_MAX + s->atom] = n;
    (void)fill(m->eg, s, n, &m->cell[s->out]);
    return go_on(m, at->child);
}

static inline bool passes(const machine *m, const at_step *s, uint32_t n)
{
    return fits(&m->eg->node[n], s) && (!s->old || is_old(m, n));
}

static sx_code run_kept(machine *m, const at_node *at, at_memo memo)
{
    const at_step *s = &at->step;
    uint32_t *out = &m->cell[s->out];
    uint32_t width = (s->kind == AT_UP ? 1u : 0u) + s->arity;
    for (uint32_t i = 0; i < memo.count && at->live && m->q->work < m->q->work_limit;) {
        const uint32_t *word = &m->t->kept[memo.first + i]; /* steps that follow may move kept[] */
        m->q->work++;
        m->cell[REGS_MAX + s->atom] = word[0];
        for (uint32_t k = 0; k < width; k++) {
            out[k] = word[k + 1];
        }
        i += width + 1;
        SX_TRY(go_on(m, at->child));
    }
    return SX_OK;
}

/* Parents of class `below` by child `slot`, of class `within` unless that is NONE. */
static sx_code run_parents(machine *m, const at_node *at, uint32_t below, uint32_t slot,
                           uint32_t within)
{
    const sx_eg *eg = m->eg;
    const at_step *s = &at->step;
    uint32_t index = (uint32_t)(at - m->t->node);
    bool keeps = within == SX_EG_NONE && slot == s->slot;
    const at_memo *known = keeps ? find_memo(m->t, below, index) : NULL;
    uint32_t steps = 0;
    if (known != NULL) {
        return run_kept(m, at, *known);
    }
    for (uint32_t l = sx_eg_parent_first(eg, below);
         l != SX_EG_LINK_END && at->live && m->q->work < m->q->work_limit;
         l = sx_eg_parent_next(eg, l), steps++) {
        uint32_t n = sx_eg_parent_node(eg, l);
        m->q->work++;
        if (passes(m, s, n) && sx_eg_parent_slot(eg, l) == slot &&
            (within == SX_EG_NONE || sx_eg_find(eg, n) == within)) {
            SX_TRY(take_node(m, at, n));
        }
    }
    if (!keeps || steps < HUB_STEPS) {
        return SX_OK;
    }
    at_memo *memo;
    SX_TRY(begin_memo(m->t, below, index, &memo));
    for (uint32_t l = sx_eg_parent_first(eg, below); l != SX_EG_LINK_END;
         l = sx_eg_parent_next(eg, l)) {
        uint32_t n = sx_eg_parent_node(eg, l);
        if (passes(m, s, n) && sx_eg_parent_slot(eg, l) == slot) {
            SX_TRY(keep_node(m, s, memo, n));
        }
    }
    return SX_OK;
}

/* Steps of walking the parents of a class, or its members but one; a walk that is worth keeping is made once. */
#define LENGTH_PARENTS (SX_EG_NONE - 1) /* for the step of a plan */
#define LENGTH_MEMBERS (SX_EG_NONE - 2)
static sx_code measure(machine *m, uint32_t class_, uint32_t kind, uint32_t *length)
{
    const sx_eg *eg = m->eg;
    const at_memo *known = find_memo(m->t, class_, kind);
    *length = known != NULL ? known->count : 0;
    if (known != NULL) {
        return SX_OK;
    }
    if (kind == LENGTH_PARENTS) {
        for (uint32_t l = sx_eg_parent_first(eg, class_); l != SX_EG_LINK_END;
             l = sx_eg_parent_next(eg, l)) {
            ++*length;
        }
    } else {
        for (uint32_t n = sx_eg_member_next(eg, class_); n != class_;
             n = sx_eg_member_next(eg, n)) {
            ++*length;
        }
    }
    at_memo *memo;
    SX_TRY(begin_memo(m->t, class_, kind, &memo));
    memo->count = *length;
    return SX_OK;
}

/* Is the walk of the parents of class `a` no longer than that of the parents of `b`, or of its members? Counts
 * as walking both as far as the shorter goes. */
static sx_code compare(machine *m, uint32_t a, uint32_t b, uint32_t kind_b, bool *first)
{
    const sx_eg *eg = m->eg;
    const at_memo *known_a = find_memo(m->t, a, LENGTH_PARENTS);
    const at_memo *known_b = find_memo(m->t, b, kind_b);
    uint32_t steps = known_a != NULL ? known_a->count : 0;
    uint32_t steps_b = known_b != NULL ? known_b->count : 0;
    if (known_a == NULL || known_b == NULL) {
        uint32_t end = kind_b == LENGTH_PARENTS ? SX_EG_LINK_END : b;
        uint32_t x = sx_eg_parent_first(eg, a);
        uint32_t y =
            kind_b == LENGTH_PARENTS ? sx_eg_parent_first(eg, b) : sx_eg_member_next(eg, b);
        for (steps = 0; x != SX_EG_LINK_END && y != end && steps < HUB_STEPS; steps++) {
            x = sx_eg_parent_next(eg, x);
            y = kind_b == LENGTH_PARENTS ? sx_eg_parent_next(eg, y) : sx_eg_member_next(eg, y);
        }
        if (x == SX_EG_LINK_END || y == end) {
            *first = x == SX_EG_LINK_END;
            m->q->work += steps;
            return SX_OK;
        }
        SX_TRY(measure(m, a, LENGTH_PARENTS, &steps));
        SX_TRY(measure(m, b, kind_b, &steps_b));
    }
    *first = steps <= steps_b;
    m->q->work += *first ? steps : steps_b;
    return SX_OK;
}

static sx_code run_members(machine *m, const at_node *at, uint32_t first)
{
    const sx_eg *eg = m->eg;
    uint32_t index = (uint32_t)(at - m->t->node);
    const at_memo *known = find_memo(m->t, first, index);
    uint32_t n = first;
    uint32_t steps = 0;
    if (known != NULL) {
        return run_kept(m, at, *known);
    }
    do {
        uint32_t next = sx_eg_member_next(eg, n);
        m->q->work++;
        steps++;
        sx_eg_approach(eg, next);
        if (passes(m, &at->step, n)) {
            SX_TRY(take_node(m, at, n));
        }
        n = next;
    } while (n != first && at->live && m->q->work < m->q->work_limit);
    if (steps < HUB_STEPS || n != first) {
        return SX_OK;
    }
    at_memo *memo;
    SX_TRY(begin_memo(m->t, first, index, &memo));
    do {
        if (passes(m, &at->step, n)) {
            SX_TRY(keep_node(m, &at->step, memo, n));
        }
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    return SX_OK;
}

static sx_code run_down(machine *m, const at_node *at)
{
    const at_step *s = &at->step;
    uint32_t class_ = m->cell[s->from];
    if ((m->eg->node[class_].ops & s->hint) == 0) {
        return SX_OK;
    }
    bool above = false; /* from the class that is known */
    if (s->join != SX_PATTERN_NONE) {
        SX_TRY(compare(m, m->cell[s->join], class_, LENGTH_MEMBERS, &above));
    }
    if (above) {
        return run_parents(m, at, m->cell[s->join], s->join_slot, class_);
    }
    return run_members(m, at, class_);
}

/* The child that was reached from below is tested by what the parent is: of the other list only such as have it. */
static sx_code run_up(machine *m, const at_node *at)
{
    const at_step *s = &at->step;
    const sx_eg *eg = m->eg;
    uint32_t class_ = m->cell[s->from];
    bool other = false; /* from the class that is known */
    if (s->join != SX_PATTERN_NONE) {
        SX_TRY(compare(m, m->cell[s->join], class_, LENGTH_PARENTS, &other));
    }
    if (!other) {
        return run_parents(m, at, class_, s->slot, SX_EG_NONE);
    }
    for (uint32_t l = sx_eg_parent_first(eg, m->cell[s->join]);
         l != SX_EG_LINK_END && at->live && m->q->work < m->q->work_limit;
         l = sx_eg_parent_next(eg, l)) {
        uint32_t n = sx_eg_parent_node(eg, l);
        m->q->work++;
        if (passes(m, s, n) && sx_eg_parent_slot(eg, l) == s->join_slot &&
            sx_eg_child(eg, n, s->slot) == class_) {
            SX_TRY(take_node(m, at, n));
        }
    }
    return SX_OK;
}

/* Step `index` and those beside it, each with all that follows: at most one level of recursion per step of a plan. */
static sx_code run_all(machine *m, uint32_t index)
{
    for (uint32_t i = index; i != SX_EG_NONE; i = m->t->node[i].next) {
        const at_node *at = &m->t->node[i];
        const at_step *s = &at->step;
        bool passed = false;
        if (!at->live) {
            continue;
        }
        switch ((at_kind)s->kind) {
        case AT_DOWN: SX_TRY(run_down(m, at)); break;
        case AT_UP: SX_TRY(run_up(m, at)); break;
        case AT_SAME: passed = m->cell[s->from] == m->cell[s->other]; break;
        case AT_VALUE:
            passed = m->t->set->language.is_value(m->t->set->language.self, m->eg, m->cell[s->from],
                                                  s->value);
            break;
        case AT_ATTR:
            passed = m->eg->node[m->cell[REGS_MAX + s->from]].attr ==
                     m->eg->node[m->cell[REGS_MAX + s->other]].attr;
            break;
        case AT_REPORT: SX_TRY(report(m, &m->t->report[at->report])); break;
        case AT_ANCHOR: SX_UNREACHABLE();
        }
        m->q->work++;
        if (passed) {
            SX_TRY(go_on(m, at->child));
        }
    }
    return SX_OK;
}

/* The children of a node that comes soon. */
static inline void approach_kids(const sx_eg *eg, uint32_t n)
{
    if (n < eg->node_count && eg->node[n].arity <= SX_EG_INLINE) {
        for (uint32_t k = 0; k < eg->node[n].arity; k++) {
            sx_eg_approach(eg, eg->node[n].kid[k]);
        }
    }
}

/* All plans that begin with this node. */
static sx_code run_anchors(machine *m, uint32_t n)
{
    const sx_trigger *t = m->t;
    const sx_eg_node *node = &m->eg->node[n];
    if (node->dead != 0 || m->q->work >= m->q->work_limit) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < t->by_op_count[node->op]; i++) {
        const at_node *at = &t->node[t->by_op[node->op][i]];
        if (at->live && fits(node, &at->step)) {
            m->cell[REGS_MAX] = n;
            m->cell[0] = sx_eg_find(m->eg, n);
            take_children(m->eg, n, at->step.arity, &m->cell[1]);
            SX_TRY(run_all(m, at->child));
        }
    }
    return SX_OK;
}

/* One pass: the active rules, which all stand at `since`. Older nodes that changed, then new ones, each kind
 * in order. */
static sx_code run_pass(sx_trigger *t, sx_search *q, sx_eg_position since)
{
    const sx_eg *eg = q->eg;
    machine m = {.t = t, .q = q, .eg = eg, .new_from = since.node};
    uint32_t low = UINT32_MAX;
    uint32_t high = 0;
    m.any_live = mark_live(t, since.node == 0);
    for (uint32_t i = since.changed; i < eg->changed_count; i++) {
        uint32_t n = eg->changed[i];
        if (n < since.node) {
            m.logged = true;
            t->changed[n / 64] |= UINT64_C(1) << (n % 64);
            low = n / 64 < low ? n / 64 : low;
            high = n / 64 > high ? n / 64 : high;
        }
    }
    sx_code code = SX_OK;
    for (uint32_t w = low; m.logged && w <= high; w++) {
        for (uint64_t bits = t->changed[w]; bits != 0 && m.any_live && code == SX_OK;
             bits &= bits - 1) {
            code = run_anchors(&m, w * 64 + (uint32_t)__builtin_ctzll(bits));
        }
    }
    for (uint32_t n = since.node; n < eg->node_count && m.any_live && code == SX_OK; n++) {
        approach_kids(eg, n + NEAR);
        code = run_anchors(&m, n);
    }
    for (uint32_t w = low; m.logged && w <= high; w++) {
        t->changed[w] = 0;
    }
    forget(t);
    return code;
}

static sx_code grow_bits(sx_trigger *t, uint64_t **bits, uint32_t *capacity, uint32_t words)
{
    uint32_t before = *capacity;
    SX_TRY(sx_region_grow(t->cx, (void **)bits, capacity, words, sizeof(uint64_t)));
    if (*capacity > before) {
        memset(*bits + before, 0, (*capacity - before) * sizeof(uint64_t));
    }
    return SX_OK;
}

sx_code sx_trigger_run(sx_trigger *t, sx_search *q, bool *done)
{
    SX_ASSERT(sx_eg_is_rebuilt(q->eg) && q->set->rule_count == t->set->rule_count);
    uint32_t words = q->eg->node_count / 64 + 1;
    SX_TRY(grow_bits(t, &t->changed, &t->changed_capacity, words));
    SX_TRY(grow_bits(t, &t->hub, &t->hub_capacity, words));
    uint32_t left = 0;
    for (uint32_t r = 0; r < q->set->rule_count; r++) {
        t->active[r] = false;
        t->since[r] = sx_eg_rule_position(q->eg, &q->set->rule[r]);
        left += q->wanted[r] ? 1 : 0;
    }
    for (uint32_t r = 0; r < q->set->rule_count && left > 0; r++) {
        bool first = q->wanted[r] && !t->active[r];
        for (uint32_t e = 0; first && e < r; e++) {
            first = !q->wanted[e] || t->since[e].node != t->since[r].node ||
                    t->since[e].changed != t->since[r].changed;
        }
        if (!first) {
            continue;
        }
        for (uint32_t e = 0; e < q->set->rule_count; e++) {
            t->active[e] = q->wanted[e] && t->since[e].node == t->since[r].node &&
                           t->since[e].changed == t->since[r].changed;
            left -= t->active[e] ? 1 : 0;
        }
        SX_TRY(run_pass(t, q, t->since[r]));
    }
    *done = q->work < q->work_limit;
    return SX_OK;
}
