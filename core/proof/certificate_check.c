/* The checker of one proved part. It keeps two records of what has been shown: `rep`, its own union-find over
 * terms, closed under congruence as sets are joined; and an e-graph of the same terms and equalities, in which
 * right sides are built. A step is decided by `rep` alone; at the end both must agree. */
#include "core/fuse/fuse.h"
#include "core/proof/certificate_read.h"

#include <string.h>

#include "core/proof/certificate_eval.h"
#include "core/egraph/multi.h"
#include "core/ir/extent.h"

#define STEP_NODES_MAX 128u

typedef struct {
    sx_ctx *cx;
    sx_proof_reader *reader;
    sx_tensors t;
    sx_eg_ruleset set;
    uint32_t *term; /* number in the certificate -> node */
    uint32_t term_count;
    /* the closure: sets of terms shown to be equal */
    uint32_t *rep;       /* per term: another of its set, at last the one that names it */
    uint32_t *size;      /* of the set a name stands for */
    uint32_t *member;    /* ring of the terms of a set */
    uint32_t *user_head; /* per term: list of those made over it, 0 ends */
    uint32_t *user;      /* of an edge: the term above, the next edge */
    uint32_t *slot;      /* term + 1, by signature */
    uint32_t *queue;     /* pairs that are to be equal */
    uint32_t rep_count, rep_capacity, size_capacity, member_capacity, head_capacity;
    uint32_t user_count, user_capacity, slot_count, slot_used, queue_count, queue_capacity;
    uint32_t number; /* of the step, from 1 */
    uint32_t rule;
    sx_proof_claim *claim; /* what the steps so far make equal */
    uint32_t claim_count, claim_capacity;
    uint32_t node[STEP_NODES_MAX]; /* from, to, then those matched */
    uint32_t node_count;
    uint32_t reading[SX_EG_READINGS_MAX]; /* constants: what their classes are read as */
    uint32_t reading_count;
    uint32_t var[SX_PATTERN_NAMES_MAX];
    sx_eg_pending pairs;
} checker;

static sx_code refuse(checker *c, const char *what)
{
    return SX_FAIL(c->cx, SX_INPUT, "certificate: step %u, %s: %s", c->number,
                   sx_rule_name(c->rule), what);
}

/* ---- the closure ---- */

static uint32_t rep_of(checker *c, uint32_t n)
{
    while (c->rep[n] != n) {
        c->rep[n] = c->rep[c->rep[n]];
        n = c->rep[n];
    }
    return n;
}

static uint32_t signature(checker *c, uint32_t n)
{
    const sx_eg_node *node = &c->t.eg.node[n];
    uint64_t h = ((uint64_t)node->attr << 16 | node->op) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t k = 0; k < node->arity; k++) {
        h = (h ^ (h >> 31) ^ rep_of(c, sx_eg_made_child(&c->t.eg, n, k))) *
            UINT64_C(0xD6E8FEB86659FD93);
    }
    return (uint32_t)(h >> 32);
}

static bool congruent(checker *c, uint32_t a, uint32_t b)
{
    const sx_eg_node *x = &c->t.eg.node[a];
    const sx_eg_node *y = &c->t.eg.node[b];
    bool same = x->op == y->op && x->attr == y->attr && x->arity == y->arity;
    for (uint32_t k = 0; same && k < x->arity; k++) {
        uint32_t left = rep_of(c, sx_eg_made_child(&c->t.eg, a, k));
        same = left == rep_of(c, sx_eg_made_child(&c->t.eg, b, k));
    }
    return same;
}

static sx_code queue_equal(checker *c, uint32_t a, uint32_t b)
{
    SX_TRY(sx_grow(c->cx, (void **)&c->queue, &c->queue_capacity, c->queue_count + 2,
                   sizeof(uint32_t)));
    c->queue[c->queue_count++] = a;
    c->queue[c->queue_count++] = b;
    return SX_OK;
}

/* A term under its present signature; one that is congruent to another will be equal to it. Old slots of it
 * stay: content decides. */
static sx_code file_term(checker *c, uint32_t n)
{
    uint32_t mask = c->slot_count - 1;
    uint32_t i = signature(c, n) & mask;
    bool here =
        false; /* by an old slot on the way: what is congruent to it may stand behind that */
    while (c->slot[i] != 0) {
        uint32_t other = c->slot[i] - 1;
        if (other != n && congruent(c, other, n)) {
            return queue_equal(c, other, n);
        }
        here = here || other == n;
        i = (i + 1) & mask;
    }
    if (here) {
        return SX_OK;
    }
    c->slot[i] = n + 1;
    c->slot_used++;
    return SX_OK;
}

/* Room for one more slot: a table twice as large as the terms need, or as it was, without old slots. */
static sx_code reserve_slot(checker *c)
{
    if (2 * (c->slot_used + 1) <= c->slot_count) {
        return SX_OK;
    }
    if (c->slot_count < 8 * (c->rep_count + 1)) {
        while (c->slot_count < 8 * (c->rep_count + 1)) {
            c->slot_count = c->slot_count == 0 ? 1024 : 2 * c->slot_count;
        }
        c->slot = SX_NEW_ARRAY(c->cx, uint32_t, c->slot_count);
        if (c->slot == NULL) {
            return c->cx->error.code;
        }
    }
    memset(c->slot, 0, c->slot_count * sizeof(*c->slot));
    c->slot_used = 0;
    SX_TRY(sx_spend(c->cx, c->rep_count));
    for (uint32_t n = 0; n < c->rep_count; n++) {
        SX_TRY(file_term(c, n));
    }
    return SX_OK;
}

/* Makes two sets one: the terms over members of the smaller set change their signature. */
static sx_code join_sets(checker *c, uint32_t a, uint32_t b)
{
    uint32_t keep = c->size[a] >= c->size[b] ? a : b;
    uint32_t drop = keep == a ? b : a;
    c->rep[drop] = keep;
    c->size[keep] += c->size[drop];
    uint32_t n = drop;
    do {
        for (uint32_t e = c->user_head[n]; e != 0; e = c->user[2 * e + 1]) {
            SX_TRY(reserve_slot(c));
            SX_TRY(file_term(c, c->user[2 * e]));
            SX_TRY(sx_spend(c->cx, 1));
        }
        n = c->member[n];
    } while (n != drop);
    uint32_t swap = c->member[keep];
    c->member[keep] = c->member[drop];
    c->member[drop] = swap;
    return SX_OK;
}

static sx_code close_congruence(checker *c)
{
    while (c->queue_count > 0) {
        uint32_t b = rep_of(c, c->queue[--c->queue_count]);
        uint32_t a = rep_of(c, c->queue[--c->queue_count]);
        if (a != b) {
            SX_TRY(join_sets(c, a, b));
        }
    }
    return SX_OK;
}

static sx_code admit_term(checker *c, uint32_t n)
{
    const sx_eg *eg = &c->t.eg;
    uint32_t *capacity[] = {&c->rep_capacity, &c->size_capacity, &c->member_capacity,
                            &c->head_capacity};
    uint32_t **list[] = {&c->rep, &c->size, &c->member, &c->user_head};
    for (size_t i = 0; i < SX_COUNT(list); i++) {
        SX_TRY(sx_grow(c->cx, (void **)list[i], capacity[i], n + 1, sizeof(uint32_t)));
    }
    c->rep[n] = c->member[n] = n;
    c->size[n] = 1;
    c->user_head[n] = 0;
    c->rep_count = n + 1;
    for (uint32_t k = 0; k < eg->node[n].arity; k++) {
        uint32_t child = sx_eg_made_child(eg, n, k);
        uint32_t e = ++c->user_count; /* edge 0 ends a list */
        SX_TRY(sx_grow(c->cx, (void **)&c->user, &c->user_capacity, 2 * e + 2, sizeof(uint32_t)));
        c->user[2 * e] = n;
        c->user[2 * e + 1] = c->user_head[child];
        c->user_head[child] = e;
    }
    SX_TRY(reserve_slot(c));
    SX_TRY(file_term(c, n));
    return close_congruence(c);
}

/* Shown to be equal? Equal operations of equal operands are, as soon as they are known. */
static sx_code is_equal(checker *c, uint32_t a, uint32_t b, bool *equal)
{
    while (c->rep_count < c->t.eg.node_count) {
        SX_TRY(admit_term(c, c->rep_count));
    }
    uint32_t left = rep_of(c, a);
    *equal = left == rep_of(c, b);
    return SX_OK;
}

static sx_code accept(checker *c, uint32_t a, uint32_t b)
{
    bool known;
    SX_TRY(is_equal(c, a, b, &known));
    if (known) {
        return SX_OK;
    }
    SX_TRY(queue_equal(c, a, b));
    SX_TRY(close_congruence(c));
    SX_TRY(sx_eg_union(c->cx, &c->t.eg, a, b, SX_EG_RULE_GIVEN));
    return sx_eg_rebuild(c->cx, &c->t.eg);
}

/* ---- numbers ---- */

/* A class that was shown to be several numbers is each of them: the search went by one. */
static bool is_some_value(void *self, const sx_eg *eg, uint32_t class_, double value)
{
    const sx_tensors *t = self;
    double known[SX_VALUES_MAX];
    SX_ASSERT(eg == &t->eg);
    uint32_t count = sx_tensors_values(t, sx_tensors_fact(t, class_), known);
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(&known[i], &value, sizeof(value)) == 0) {
            return true;
        }
    }
    return false;
}

#define SEVERAL_MAX 6u     /* classes of several numbers that one step may look at */
#define READINGS_MAX 2048u /* ways to read them */
#define SEVERAL_DEPTH 2u   /* below the nodes matched */

typedef struct {
    uint32_t class_[SEVERAL_MAX];
    uint32_t count[SEVERAL_MAX]; /* numbers of each */
    double value[SEVERAL_MAX][SX_VALUES_MAX];
    uint32_t class_count;
    uint32_t readings; /* product of the counts */
} several;

static void gather_several(checker *c, several *s, uint32_t term, uint32_t depth)
{
    const sx_eg *eg = &c->t.eg;
    uint32_t class_ = sx_eg_find(eg, term);
    const sx_fact *fact = sx_tensors_fact(&c->t, class_);
    bool known = fact->from == 0 || s->class_count == SEVERAL_MAX;
    for (uint32_t i = 0; i < s->class_count; i++) {
        known = known || s->class_[i] == class_;
    }
    if (!known) {
        uint32_t i = s->class_count;
        uint32_t count = sx_tensors_values(&c->t, fact, s->value[i]);
        if (count * s->readings <= READINGS_MAX) {
            s->class_[i] = class_;
            s->count[i] = count;
            s->readings *= count;
            s->class_count++;
        }
    }
    for (uint32_t k = 0; depth > 0 && k < eg->node[term].arity; k++) {
        gather_several(c, s, sx_eg_made_child(eg, term, k), depth - 1);
    }
}

/* Classes of several numbers near the nodes of the step. */
static void find_several(checker *c, several *s)
{
    s->class_count = 0;
    s->readings = 1;
    for (uint32_t i = 2; i < c->node_count; i++) {
        gather_several(c, s, c->node[i], SEVERAL_DEPTH);
    }
}

/* Reading number `reading`: 0 is the one that was in force. */
static void read_as(checker *c, const several *s, uint32_t reading)
{
    for (uint32_t i = 0; i < s->class_count; i++) {
        sx_fact *fact = sx_eg_record(&c->t.eg, s->class_[i]);
        fact->value = s->value[i][reading % s->count[i]];
        reading /= s->count[i];
    }
}

/* The constants that the step names are the numbers of their classes, or these are again what they were. */
static void read_constants(checker *c, double was[SX_EG_READINGS_MAX], bool again)
{
    for (uint32_t i = 0; i < c->reading_count; i++) {
        uint32_t at = again ? c->reading_count - 1 - i : i;
        sx_fact *fact = sx_eg_record(&c->t.eg, sx_eg_find(&c->t.eg, c->reading[at]));
        if (again) {
            fact->value = was[at];
            continue;
        }
        was[at] = fact->value;
        bool constant = sx_tensors_constant(&c->t, c->reading[at], &fact->value);
        SX_ASSERT(constant);
    }
}

/* A node is a number where its operands are these constants. */
static sx_code check_number(checker *c)
{
    double operand[2] = {0, 0};
    double value = 0;
    double made = 0;
    uint32_t n = c->node[2];
    bool same = c->node_count == 3 && c->t.eg.node[n].arity == c->reading_count &&
                c->reading_count <= 2 && sx_tensors_constant(&c->t, c->node[1], &value) &&
                sx_type_equal(sx_tensors_type(&c->t, n), sx_tensors_type(&c->t, c->node[1]));
    if (same) {
        SX_TRY(is_equal(c, c->node[0], n, &same));
    }
    for (uint32_t k = 0; same && k < c->reading_count; k++) {
        SX_TRY(is_equal(c, sx_eg_made_child(&c->t.eg, n, k), c->reading[k], &same));
        same = same && sx_tensors_constant(&c->t, c->reading[k], &operand[k]);
    }
    same = same && sx_tensors_fold(&c->t, n, operand, &made) &&
           memcmp(&made, &value, sizeof(made)) == 0;
    return same ? SX_OK : refuse(c, "its operands as read do not make it this number");
}

/* ---- left sides ---- */

typedef struct {
    const sx_pattern *left;
    uint32_t next; /* matched node */
    const uint32_t *node;
    uint32_t node_count;
    const char *wrong; /* NULL while it fits */
    uint32_t attr[SX_PATTERN_NAMES_MAX];
} fit;

static sx_code fit_name(checker *c, fit *f, uint8_t name, uint32_t term)
{
    bool equal = true;
    if (name == SX_PATTERN_NONE) {
        return SX_OK;
    }
    if (c->var[name] == SX_EG_NONE) {
        c->var[name] = term;
        return SX_OK;
    }
    SX_TRY(is_equal(c, c->var[name], term, &equal));
    f->wrong = equal ? f->wrong : "two mentions of a name are not shown to be equal";
    return SX_OK;
}

static void fit_node(checker *c, fit *f, const sx_pattern_part *part, uint32_t n)
{
    const sx_eg_node *node = &c->t.eg.node[n];
    bool arity = part->any_arity ? node->arity >= part->arity : node->arity == part->arity;
    if (!sx_bits_has(&part->ops, node->op) || !arity) {
        f->wrong = "a node has another operation than the left side";
    } else if (part->attr_name != SX_PATTERN_NONE) {
        uint32_t *attr = &f->attr[part->attr_name];
        f->wrong = *attr == SX_EG_NONE || *attr == node->attr ? f->wrong : "attributes differ";
        *attr = node->attr;
    }
}

static sx_code fit_part(checker *c, fit *f, uint32_t index, uint32_t term)
{
    const sx_pattern_part *part = &f->left->part[index];
    const sx_eg *eg = &c->t.eg;
    if (part->kind == SX_PART_VALUE) {
        if (!c->set.language.is_value(&c->t, eg, sx_eg_find(eg, term), part->value)) {
            f->wrong = "a value is not shown to be what the left side says";
        }
        return SX_OK;
    }
    SX_TRY(fit_name(c, f, part->name, term));
    if (part->kind == SX_PART_NAME || f->wrong != NULL) {
        return SX_OK;
    }
    if (f->next >= f->node_count) {
        f->wrong = "too few nodes";
        return SX_OK;
    }
    uint32_t n = f->node[f->next++];
    bool equal;
    SX_TRY(is_equal(c, term, n, &equal));
    f->wrong = equal ? f->wrong : "an operand is not shown to be the node matched";
    if (f->wrong == NULL) {
        fit_node(c, f, part, n);
    }
    for (uint32_t k = 0; f->wrong == NULL && k < part->arity; k++) {
        SX_TRY(fit_part(c, f, part->child[k], sx_eg_made_child(eg, n, k)));
    }
    return SX_OK;
}

/* One of the pairs the rule makes equal must be the pair of the step, unless that is known already. */
static sx_code among_pairs(checker *c, bool *found)
{
    SX_TRY(is_equal(c, c->node[0], c->node[1], found));
    for (uint32_t i = 0; i < c->pairs.count && !*found; i += SX_PENDING_WORDS) {
        const uint32_t *word = &c->pairs.word[i];
        for (uint32_t turn = 0; turn < 2 && !*found; turn++) {
            bool from, to;
            SX_TRY(is_equal(c, word[turn], c->node[0], &from));
            SX_TRY(is_equal(c, word[1 - turn], c->node[1], &to));
            *found = from && to;
        }
    }
    return SX_OK;
}

/* One match after the other, all of one class under the name ?shared if there is one; their names follow their
 * nodes in `match`. */
static sx_code fit_members(checker *c, fit *f, uint32_t count, uint32_t *match)
{
    const sx_pattern *left = f->left;
    uint32_t shared = sx_multi_shared(left);
    for (uint32_t i = 0; i < count && f->wrong == NULL; i++) {
        bool is_shared = shared < left->name_count;
        uint32_t common = is_shared && i > 0 ? c->var[shared] : SX_EG_NONE;
        memset(c->var, 0xFF, sizeof(c->var));
        c->var[is_shared ? shared : 0] = common;
        SX_TRY(fit_part(c, f, left->root, f->node[f->next]));
        uint32_t *row = &match[(size_t)i * (left->bind_count + left->name_count)];
        memcpy(row, &f->node[(size_t)i * left->bind_count], left->bind_count * sizeof(*row));
        for (uint32_t k = 0; f->wrong == NULL && k < left->name_count; k++) {
            row[left->bind_count + k] = c->var[k];
        }
    }
    for (uint32_t i = 0; i < count && f->wrong == NULL; i++) {
        uint32_t *row = &match[(size_t)i * (left->bind_count + left->name_count)];
        for (uint32_t k = left->bind_count; k < left->bind_count + left->name_count; k++) {
            row[k] = sx_eg_find(&c->t.eg, row[k]);
        }
    }
    return SX_OK;
}

static sx_code check_members(checker *c, fit *f)
{
    const sx_pattern *left = f->left;
    uint32_t count = f->node_count / left->bind_count;
    if (f->node_count % left->bind_count != 0 || f->node_count > SX_MULTI_RUN_NODES) {
        return refuse(c, "nodes of no whole number of members");
    }
    uint32_t *match =
        SX_NEW_ARRAY(c->cx, uint32_t, (size_t)count * (left->bind_count + left->name_count));
    if (match == NULL) {
        return c->cx->error.code;
    }
    SX_TRY(fit_members(c, f, count, match));
    if (f->wrong != NULL) {
        return refuse(c, f->wrong);
    }
    c->pairs.count = c->pairs.pick_count = 0;
    return sx_multi_instance(c->cx, &c->t.eg, &c->set, c->rule, match, count, &c->pairs);
}

static sx_code check_match(checker *c, fit *f)
{
    SX_TRY(fit_part(c, f, f->left->root, f->node[0]));
    if (f->wrong != NULL || f->node_count - f->next > SX_REWRITE_PICKS_MAX) {
        return refuse(c, f->wrong != NULL ? f->wrong : "too many nodes");
    }
    for (uint32_t i = 0; i < f->left->name_count; i++) {
        c->var[i] = sx_eg_find(&c->t.eg, c->var[i]);
    }
    c->pairs.count = c->pairs.pick_count = 0;
    return sx_eg_instance(c->cx, &c->t.eg, &c->set, c->rule, f->node, c->var, &f->node[f->next],
                          f->node_count - f->next, &c->pairs);
}

/* What the rule makes of the nodes of the step. */
static sx_code run_rule(checker *c, bool *found)
{
    fit f = {
        .left = c->set.rule[c->rule].left, .node = &c->node[2], .node_count = c->node_count - 2};
    memset(f.attr, 0xFF, sizeof(f.attr));
    memset(c->var, 0xFF, sizeof(c->var));
    SX_TRY(sx_multi_is(f.left) ? check_members(c, &f) : check_match(c, &f));
    return among_pairs(c, found);
}

static sx_code check_rewrite(checker *c)
{
    bool found;
    if (c->node_count == 2) {
        return refuse(c, "no nodes");
    }
    if (c->rule == SX_RULE_FOLD_VALUE && c->reading_count > 0) {
        return check_number(c);
    }
    if (c->reading_count > 0) {
        double was[SX_EG_READINGS_MAX];
        read_constants(c, was, false);
        sx_code code = run_rule(c, &found);
        read_constants(c, was, true);
        SX_TRY(code);
        if (found) {
            return SX_OK;
        }
    }
    SX_TRY(run_rule(c, &found));
    if (found) {
        return SX_OK;
    }
    several *s = SX_NEW(c->cx, several);
    if (s == NULL) {
        return c->cx->error.code;
    }
    find_several(c, s);
    for (uint32_t reading = 1; reading < s->readings && !found; reading++) {
        SX_TRY(sx_spend(c->cx, 1));
        read_as(c, s, reading);
        sx_code code = run_rule(c, &found);
        read_as(c, s, 0);
        SX_TRY(code);
    }
    return found ? SX_OK : refuse(c, "the rule does not make these two terms equal");
}

/* ---- steps of fusion ---- */

/* Is node[1] the kernel `attr` over these operands? */
static sx_code is_kernel(checker *c, const sx_attr *attr, const uint32_t *child, uint32_t count,
                         bool *found)
{
    uint32_t to = c->node[1];
    const sx_eg *eg = &c->t.eg;
    *found = sx_tensors_op(&c->t, to) == SX_OP_FUSED && eg->node[to].arity == count &&
             sx_type_equal(&attr->type, &sx_tensors_attr(&c->t, to)->type) &&
             sx_body_equal(attr->body, sx_tensors_attr(&c->t, to)->body);
    for (uint32_t k = 0; *found && k < count; k++) {
        SX_TRY(is_equal(c, child[k], sx_eg_made_child(eg, to, k), found));
    }
    return SX_OK;
}

static uint32_t operands(const checker *c, uint32_t n, uint32_t without, uint32_t *child)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < c->t.eg.node[n].arity; k++) {
        if (k != without) {
            child[count++] = sx_eg_made_child(&c->t.eg, n, k);
        }
    }
    return count;
}

static sx_code lift_step(checker *c, sx_ctx *scratch, bool *found)
{
    uint32_t n = c->node[0];
    sx_type type[SX_EG_ARITY_MAX];
    uint32_t child[SX_EG_ARITY_MAX];
    uint32_t count = operands(c, n, SX_EG_NONE, child);
    sx_attr attr;
    for (uint32_t k = 0; k < count; k++) {
        type[k] = *sx_tensors_type(&c->t, child[k]);
    }
    SX_TRY(sx_fused_lift(scratch, sx_tensors_op(&c->t, n), sx_tensors_attr(&c->t, n), type, count,
                         sx_tensors_type(&c->t, n), &attr));
    SX_TRY(is_kernel(c, &attr, child, count, found));
    if (!*found && sx_tensors_op(&c->t, n) == SX_OP_ONLINE_DOT) { /* its other kind of kernel */
        SX_TRY(sx_fused_lift_online(scratch, sx_tensors_attr(&c->t, n), type, count,
                                    sx_tensors_type(&c->t, n), &attr));
        SX_TRY(is_kernel(c, &attr, child, count, found));
    }
    return SX_OK;
}

/* Argument a of node[0] with node[2] absorbed or computed in place. */
static sx_code inner_step(checker *c, sx_ctx *scratch, uint32_t a, bool *found)
{
    const sx_attr *outer = sx_tensors_attr(&c->t, c->node[0]);
    uint32_t n = c->node[2];
    const sx_attr *inner = sx_tensors_attr(&c->t, n);
    const sx_type *through = sx_tensors_type(&c->t, n);
    uint32_t child[2 * SX_EG_ARITY_MAX];
    sx_attr attr;
    bool ok;
    sx_op op = sx_tensors_op(&c->t, n);
    if (c->rule == SX_RULE_FUSE_VIEW ? sx_op_info_of(op)->op_class != SX_OPCLASS_VIEW
                                     : op != SX_OP_FUSED) {
        return refuse(c, "what went inside is no view or no kernel");
    }
    if (c->rule == SX_RULE_FUSE_VIEW) {
        uint32_t source = sx_eg_made_child(&c->t.eg, n, 0);
        uint32_t count = operands(c, c->node[0], SX_EG_NONE, child);
        SX_TRY(sx_fused_absorb_view(scratch, outer, a, sx_tensors_op(&c->t, n), inner,
                                    sx_tensors_type(&c->t, source), through, &attr, &ok));
        child[a] = source;
        return ok ? is_kernel(c, &attr, child, count, found) : SX_OK;
    }
    uint32_t count = operands(c, c->node[0], a, child);
    SX_TRY(sx_fused_inline(scratch, outer, a, inner, through, &attr, &ok));
    count += operands(c, n, SX_EG_NONE, &child[count]);
    return ok ? is_kernel(c, &attr, child, count, found) : SX_OK;
}

static sx_code same_step(checker *c, sx_ctx *scratch, uint32_t a, bool *found)
{
    uint32_t child[SX_EG_ARITY_MAX];
    uint32_t count = operands(c, c->node[0], a, child);
    for (uint32_t b = 0; b < a && !*found; b++) {
        sx_attr attr;
        bool equal, ok;
        SX_TRY(is_equal(c, sx_eg_made_child(&c->t.eg, c->node[0], a),
                        sx_eg_made_child(&c->t.eg, c->node[0], b), &equal));
        if (equal) {
            SX_TRY(
                sx_fused_merge_args(scratch, sx_tensors_attr(&c->t, c->node[0]), b, a, &attr, &ok));
            SX_TRY(ok ? is_kernel(c, &attr, child, count, found) : SX_OK);
        }
    }
    return SX_OK;
}

static sx_code argument_step(checker *c, sx_ctx *scratch, uint32_t a, bool *found)
{
    uint32_t term = sx_eg_made_child(&c->t.eg, c->node[0], a);
    if (c->rule == SX_RULE_FUSE_SAME) {
        return same_step(c, scratch, a, found);
    }
    if (c->rule == SX_RULE_FUSE_VALUE) {
        uint32_t child[SX_EG_ARITY_MAX];
        uint32_t count = operands(c, c->node[0], a, child);
        double value[SX_VALUES_MAX];
        uint32_t values = sx_tensors_values(&c->t, sx_tensors_fact(&c->t, term), value);
        for (uint32_t i = 0; i < values && !*found; i++) {
            sx_attr attr;
            SX_TRY(sx_fused_inline_splat(scratch, sx_tensors_attr(&c->t, c->node[0]), a, value[i],
                                         &attr));
            SX_TRY(is_kernel(c, &attr, child, count, found));
        }
        return SX_OK;
    }
    bool equal;
    SX_TRY(is_equal(c, term, c->node[4], &equal));
    return equal ? inner_step(c, scratch, a, found) : SX_OK;
}

#define SCRATCH_BYTES ((size_t)64 << 20)

/* Nodes of the step: from, to, the kernel before, the kernel after, and what went inside. */
static sx_code check_fusion(checker *c)
{
    bool inside = c->rule == SX_RULE_FUSE_VIEW || c->rule == SX_RULE_FUSE_PRODUCER ||
                  c->rule == SX_RULE_FUSE_EPILOGUE || c->rule == SX_RULE_FUSE_SCORES ||
                  c->rule == SX_RULE_FUSE_NESTED;
    if (c->node_count != (inside ? 5u : 4u)) {
        return refuse(c, "another number of nodes than the rule has");
    }
    bool found = false;
    uint32_t step[5];
    memcpy(step, c->node, sizeof(step));
    memcpy(c->node, &step[2], 3 * sizeof(*step)); /* before, after, inside */
    c->node[4] = step[4];
    uint32_t arity = c->t.eg.node[step[2]].arity;
    bool fused = sx_tensors_op(&c->t, step[2]) == SX_OP_FUSED;
    for (uint32_t a = 0; a < (c->rule == SX_RULE_LIFT ? 1 : arity) && !found; a++) {
        sx_ctx scratch;
        sx_ctx_init(&scratch, SCRATCH_BYTES);
        sx_code code = c->rule == SX_RULE_LIFT ? lift_step(c, &scratch, &found)
                       : fused                 ? argument_step(c, &scratch, a, &found)
                                               : SX_OK;
        bool other_argument = code != SX_OK && c->cx->error.code == SX_OK;
        sx_ctx_fini(&scratch);
        if (code != SX_OK && !other_argument) {
            return code;
        }
    }
    bool same_from = false, same_to = false;
    for (uint32_t turn = 0; found && turn < 2 && !(same_from && same_to); turn++) {
        SX_TRY(is_equal(c, step[turn], step[2], &same_from));
        SX_TRY(is_equal(c, step[1 - turn], step[3], &same_to));
    }
    memcpy(c->node, step, sizeof(step));
    return same_from && same_to ? SX_OK : refuse(c, "the kernel after is not what the rule makes");
}

static sx_code check_step(checker *c)
{
    double was[SX_EG_READINGS_MAX];
    if (c->rule < SX_RULE_ROUNDS_COUNT) {
        return check_rewrite(c);
    }
    read_constants(c, was, false);
    sx_code code = check_fusion(c);
    read_constants(c, was, true);
    return code;
}

/* ---- reading ---- */

/* The nodes of a program as terms. */
static sx_code add_program(checker *c, const sx_graph *graph, uint32_t **node)
{
    *node = SX_NEW_ARRAY(c->cx, uint32_t, graph->node_count + 1);
    if (*node == NULL) {
        return c->cx->error.code;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *n = &graph->node[i];
        uint32_t child[SX_EG_ARITY_MAX];
        for (uint32_t k = 0; k < n->input_count; k++) {
            child[k] = (*node)[sx_graph_input(graph, n, k).i];
        }
        sx_attr attr = *sx_graph_attr(graph, n);
        SX_TRY(sx_tensors_add(c->cx, &c->t, n->op, &attr, child, n->input_count, &(*node)[i]));
        if ((*node)[i] == SX_EG_NONE) {
            return SX_FAIL(c->cx, SX_INPUT, "certificate: node %%%u of '%.*s' has no type", i,
                           (int)graph->name.len, (const char *)graph->name.ptr);
        }
    }
    return SX_OK;
}

static sx_code same_interface(checker *c, const sx_graph *a, const sx_graph *b)
{
    bool same = a->symbol_count == b->symbol_count &&
                sx_symbols_equal(a->symbol, b->symbol, a->symbol_count, true);
    return same ? SX_OK : SX_FAIL(c->cx, SX_INPUT, "certificate: programs of different symbols");
}

/* What follows "as". */
static sx_code read_readings(checker *c, sx_span line)
{
    for (; line.len > 0; c->reading_count++) {
        uint64_t number;
        double value;
        if (c->reading_count >= SX_EG_READINGS_MAX ||
            !sx_proof_number(&line, c->term_count - 1, &number) ||
            !sx_tensors_constant(&c->t, c->term[number], &value)) {
            return refuse(c, "what it reads are not numbers of constants");
        }
        c->reading[c->reading_count] = c->term[number];
    }
    return SX_OK;
}

static sx_code read_step(checker *c)
{
    sx_span line = {0};
    uint32_t end[3] = {0, 0, UINT32_MAX}; /* from, to, left */
    SX_TRY(sx_proof_line(c->reader, &line));
    if (!sx_rule_find(sx_proof_word(&line), &c->rule)) {
        return SX_FAIL(c->cx, SX_INPUT, "certificate: step %u names no rule", c->number);
    }
    c->reading_count = 0;
    for (c->node_count = 0; line.len > 0; c->node_count++) {
        uint64_t number;
        sx_span rest = line;
        if (sx_span_is(sx_proof_word(&rest), "as")) {
            SX_TRY(read_readings(c, rest));
            break;
        }
        if (c->node_count >= STEP_NODES_MAX ||
            !sx_proof_number(&line, c->term_count - 1, &number)) {
            return refuse(c, "its terms are not numbers of terms");
        }
        c->node[c->node_count] = c->term[number];
        if (c->node_count < 3) {
            end[c->node_count] = (uint32_t)number;
        }
    }
    if (c->node_count < 2) {
        return refuse(c, "two terms are needed");
    }
    SX_TRY(sx_grow(c->cx, (void **)&c->claim, &c->claim_capacity, c->claim_count + 1,
                   sizeof(*c->claim)));
    c->claim[c->claim_count++] = (sx_proof_claim){c->rule, end[0], end[1], end[2]};
    return SX_OK;
}

static sx_code read_steps(checker *c, sx_certificate *certificate)
{
    uint32_t count;
    SX_TRY(sx_proof_count(c->reader, "steps", SX_CERTIFICATE_STEPS_MAX, &count));
    for (c->number = 1; c->number <= count; c->number++) {
        SX_TRY(read_step(c));
        SX_TRY(sx_spend(c->cx, 1));
        certificate->rule_count[c->rule]++;
        if ((c->reader->asked & SX_PROOF_STEPS) != 0) {
            SX_TRY(check_step(c));
            SX_TRY(accept(c, c->node[0], c->node[1]));
        }
    }
    certificate->step_count += count;
    return SX_OK;
}

/* Every output of the first program is that of the same name of the second; parameters are the same. */
static sx_code check_outputs(checker *c, const sx_graph *a, const uint32_t *a_node,
                             const sx_graph *b, const uint32_t *b_node)
{
    bool same = a->output_count == b->output_count;
    for (uint32_t i = 0; same && i < a->output_count; i++) {
        const sx_output *x = &a->output[i];
        const sx_output *y = &b->output[i];
        SX_TRY(is_equal(c, a_node[x->node.i], b_node[y->node.i], &same));
        same = same && sx_span_equal(x->name, y->name);
        if (!same) {
            return SX_FAIL(c->cx, SX_INPUT, "certificate: output '%.*s' is not shown to be equal",
                           (int)x->name.len, (const char *)x->name.ptr);
        }
    }
    return same ? SX_OK : SX_FAIL(c->cx, SX_INPUT, "certificate: other outputs");
}

/* Both records must say the same of every term. */
static sx_code check_agreement(checker *c)
{
    const sx_eg *eg = &c->t.eg;
    bool known;
    SX_TRY(is_equal(c, 0, 0, &known));
    for (uint32_t n = 0; n < eg->node_count; n++) {
        uint32_t of_class = rep_of(c, sx_eg_find(eg, n));
        uint32_t rep = rep_of(c, n);
        bool agree = of_class == rep && sx_eg_find(eg, rep) == sx_eg_find(eg, n);
        if (SX_NEVER(!agree)) {
            return SX_FAIL(c->cx, SX_INTERNAL, "certificate: term %u: closure and e-graph differ",
                           n);
        }
    }
    return SX_OK;
}

sx_code sx_proof_check_part(sx_proof_reader *r, sx_certificate *certificate, sx_graph **input,
                            sx_graph **output)
{
    sx_ctx *cx = r->cx;
    checker *c = SX_NEW(cx, checker);
    sx_graph *terms;
    uint32_t *input_node, *output_node;
    if (c == NULL) {
        return cx->error.code;
    }
    c->cx = cx;
    c->reader = r;
    SX_TRY(sx_proof_program_text(r, "input", input));
    SX_TRY(sx_proof_program_text(r, "output", output));
    SX_TRY(sx_proof_program_text(r, "terms", &terms));
    SX_TRY(same_interface(c, *input, *output));
    SX_TRY(same_interface(c, *input, terms));
    SX_TRY(sx_tensors_init(cx, &c->t, *input));
    c->t.all_values = true;
    SX_TRY(sx_tensors_name_values(cx, &c->t, terms));
    SX_TRY(add_program(c, *input, &input_node));
    SX_TRY(add_program(c, *output, &output_node));
    SX_TRY(add_program(c, terms, &c->term));
    c->term_count = terms->node_count;
    SX_TRY(sx_rules_set(cx, &c->t, &c->set));
    c->set.language.is_value = is_some_value;
    SX_TRY(read_steps(c, certificate));
    certificate->term_count += terms->node_count;
    if ((r->asked & SX_PROOF_STEPS) != 0) {
        SX_TRY(check_outputs(c, *input, input_node, *output, output_node));
        SX_TRY(check_agreement(c));
    }
    return (r->asked & SX_PROOF_VALUES) == 0
               ? SX_OK
               : sx_proof_evaluate(cx, *input, *output, terms, c->claim, c->claim_count,
                                   &certificate->evaluation);
}
