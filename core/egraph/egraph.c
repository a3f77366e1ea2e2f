#include "core/egraph/egraph.h"

#include <string.h>

#define SLOTS_MIN 64u

/* Children + op + attr, mixed by multiplication (murmur3's finalizer constants). Never an address. */
static uint32_t hash_content(uint16_t op, uint32_t attr, const uint32_t *child, uint32_t arity)
{
    uint64_t h = ((uint64_t)attr << 16 | op) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t k = 0; k < arity; k++) {
        h = (h ^ (h >> 29) ^ child[k]) * UINT64_C(0xFF51AFD7ED558CCD);
    }
    h = (h ^ (h >> 33)) * UINT64_C(0xC4CEB9FE1A85EC53);
    return (uint32_t)(h >> 32);
}

static uint32_t hash_node(const sx_eg *eg, uint32_t n)
{
    const sx_eg_node *node = &eg->node[n];
    return hash_content(node->op, node->attr, &eg->child[node->edge], node->arity);
}

static bool same_content(const sx_eg *eg, uint32_t n, uint16_t op, uint32_t attr,
                         const uint32_t *child, uint32_t arity)
{
    const sx_eg_node *node = &eg->node[n];
    if (node->op != op || node->attr != attr || node->arity != arity) {
        return false;
    }
    return arity == 0 || memcmp(&eg->child[node->edge], child, arity * sizeof(*child)) == 0;
}

/* The live node with exactly this content (children canonical), or SX_EG_NONE. Slots of dead or since changed nodes are
 * passed over: content decides. */
static uint32_t probe(const sx_eg *eg, uint32_t hash, uint16_t op, uint32_t attr,
                      const uint32_t *child, uint32_t arity)
{
    uint32_t mask = eg->slot_count - 1;
    for (uint32_t i = hash & mask; eg->slot[i] != 0; i = (i + 1) & mask) {
        uint64_t slot = eg->slot[i];
        uint32_t n = (uint32_t)slot - 1;
        if ((uint32_t)(slot >> 32) == hash && eg->node[n].dead == 0 &&
            same_content(eg, n, op, attr, child, arity)) {
            return n;
        }
    }
    return SX_EG_NONE;
}

static void place(sx_eg *eg, uint32_t hash, uint32_t n)
{
    uint32_t mask = eg->slot_count - 1;
    uint32_t i = hash & mask;
    while (eg->slot[i] != 0) {
        i = (i + 1) & mask;
    }
    eg->slot[i] = (uint64_t)hash << 32 | (n + 1);
    eg->slot_used++;
}

/* Room for one more slot at a load of at most 5/8; growing drops stale slots. */
static sx_code reserve_slot(sx_ctx *cx, sx_eg *eg)
{
    if ((uint64_t)(eg->slot_used + 1) * 8 <= (uint64_t)eg->slot_count * 5) {
        return SX_OK;
    }
    uint32_t wanted = eg->slot_count;
    if ((uint64_t)eg->live_count * 4 > eg->slot_count || wanted == 0) {
        wanted = wanted == 0 ? SLOTS_MIN : wanted * 2;
    }
    uint64_t *fresh = SX_NEW_ARRAY(cx, uint64_t, wanted);
    if (fresh == NULL) {
        return cx->error.code;
    }
    uint64_t *old = eg->slot;
    uint32_t old_count = eg->slot_count;
    eg->slot = fresh;
    eg->slot_count = wanted;
    eg->slot_used = 0;
    for (uint32_t i = 0; i < old_count; i++) {
        uint32_t n = (uint32_t)old[i] - 1;
        if (old[i] != 0 && eg->node[n].dead == 0 && hash_node(eg, n) == (uint32_t)(old[i] >> 32)) {
            place(eg, (uint32_t)(old[i] >> 32), n);
        }
    }
    return SX_OK;
}

static sx_code push(sx_ctx *cx, uint32_t **array, uint32_t *count, uint32_t *capacity,
                    uint32_t value)
{
    SX_TRY(sx_grow(cx, (void **)array, capacity, *count + 1, sizeof(uint32_t)));
    (*array)[(*count)++] = value;
    return SX_OK;
}

static sx_code touch(sx_ctx *cx, sx_eg *eg, uint32_t class_)
{
    return push(cx, &eg->log, &eg->log_count, &eg->log_capacity, class_);
}

static sx_code grow_array(sx_ctx *cx, void **array, uint32_t old, uint32_t fresh, size_t size)
{
    uint32_t capacity = old;
    return sx_grow(cx, array, &capacity, fresh, size);
}

static sx_code reserve_node(sx_ctx *cx, sx_eg *eg)
{
    if (eg->node_count < eg->node_capacity) {
        return SX_OK;
    }
    if (eg->node_count >= SX_EG_NODES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "e-graph of %u nodes, at most %u", eg->node_count,
                       SX_EG_NODES_MAX);
    }
    uint32_t old = eg->node_capacity;
    uint32_t wanted = old == 0 ? 256 : old * 2;
    uint32_t **words[] = {&eg->up,          &eg->member_next, &eg->parent_head,
                          &eg->parent_tail, &eg->proof_up,    &eg->proof_rule};
    for (size_t i = 0; i < SX_COUNT(words); i++) {
        SX_TRY(grow_array(cx, (void **)words[i], old, wanted, sizeof(uint32_t)));
    }
    SX_TRY(grow_array(cx, (void **)&eg->node, old, wanted, sizeof(sx_eg_node)));
    SX_TRY(grow_array(cx, (void **)&eg->ops, old, wanted, sizeof(uint64_t)));
    if (eg->analysis.size > 0) {
        SX_TRY(grow_array(cx, (void **)&eg->record, old, wanted, eg->analysis.size));
    }
    eg->node_capacity = wanted;
    return SX_OK;
}

static sx_code reserve_edges(sx_ctx *cx, sx_eg *eg, uint32_t arity)
{
    uint32_t need = eg->edge_count + arity;
    if (need <= eg->edge_capacity) {
        return SX_OK;
    }
    uint32_t old = eg->edge_capacity;
    uint32_t wanted = old == 0 ? 512 : old * 2;
    uint32_t **words[] = {&eg->child, &eg->made, &eg->owner, &eg->edge_next};
    for (size_t i = 0; i < SX_COUNT(words); i++) {
        SX_TRY(grow_array(cx, (void **)words[i], old, wanted, sizeof(uint32_t)));
    }
    eg->edge_capacity = wanted;
    return SX_OK;
}

sx_code sx_eg_init(sx_ctx *cx, sx_eg *eg, const sx_eg_analysis *analysis)
{
    *eg = (sx_eg){0};
    if (analysis != NULL) {
        SX_ASSERT(analysis->size % 8 == 0);
        eg->analysis = *analysis;
    }
    SX_TRY(reserve_slot(cx, eg));
    SX_TRY(reserve_edges(cx, eg, 1));
    return reserve_node(cx, eg);
}

static void link_parent(sx_eg *eg, uint32_t class_, uint32_t edge)
{
    eg->edge_next[edge] = SX_EG_NONE;
    if (eg->parent_head[class_] == SX_EG_NONE) {
        eg->parent_head[class_] = edge;
    } else {
        eg->edge_next[eg->parent_tail[class_]] = edge;
    }
    eg->parent_tail[class_] = edge;
}

uint32_t sx_eg_lookup(const sx_eg *eg, uint16_t op, uint32_t attr, const uint32_t *child,
                      uint32_t arity)
{
    SX_ASSERT(arity <= SX_EG_ARITY_MAX);
    uint32_t canonical[SX_EG_ARITY_MAX];
    for (uint32_t k = 0; k < arity; k++) {
        canonical[k] = sx_eg_find(eg, child[k]);
    }
    return probe(eg, hash_content(op, attr, canonical, arity), op, attr, canonical, arity);
}

sx_code sx_eg_add(sx_ctx *cx, sx_eg *eg, uint16_t op, uint32_t attr, const uint32_t *child,
                  uint32_t arity, uint32_t *node)
{
    SX_ASSERT(arity <= SX_EG_ARITY_MAX && op < SX_EG_OPS_MAX);
    uint32_t canonical[SX_EG_ARITY_MAX];
    for (uint32_t k = 0; k < arity; k++) {
        canonical[k] = sx_eg_find(eg, child[k]);
    }
    uint32_t hash = hash_content(op, attr, canonical, arity);
    uint32_t found = probe(eg, hash, op, attr, canonical, arity);
    if (found != SX_EG_NONE) {
        *node = found;
        return SX_OK;
    }
    SX_TRY(reserve_node(cx, eg));
    SX_TRY(reserve_edges(cx, eg, arity));
    SX_TRY(reserve_slot(cx, eg));
    uint32_t n = eg->node_count;
    eg->node[n] = (sx_eg_node){attr, op, (uint8_t)arity, 0, eg->edge_count};
    for (uint32_t k = 0; k < arity; k++) {
        eg->child[eg->edge_count + k] = canonical[k];
        eg->made[eg->edge_count + k] = child[k];
        eg->owner[eg->edge_count + k] = n;
    }
    eg->up[n] = n;
    eg->member_next[n] = n;
    eg->parent_head[n] = eg->parent_tail[n] = SX_EG_NONE;
    eg->proof_up[n] = n;
    eg->proof_rule[n] = SX_EG_RULE_GIVEN;
    eg->ops[n] = UINT64_C(1) << op;
    eg->node_count = n + 1;
    if (eg->analysis.size > 0) {
        void *record = eg->record + (size_t)n * eg->analysis.size;
        memset(record, 0, eg->analysis.size);
        sx_code code = eg->analysis.make(cx, eg->analysis.self, eg, n, record);
        if (code != SX_OK) {
            eg->node_count = n;
            return code;
        }
    }
    for (uint32_t k = 0; k < arity; k++) {
        link_parent(eg, canonical[k], eg->edge_count + k);
    }
    eg->edge_count += arity;
    eg->class_count++;
    eg->live_count++;
    place(eg, hash, n);
    *node = n;
    return touch(cx, eg, n);
}

/* Makes `a` the root of its tree of reasons by turning the path around, then hangs it below `b`. */
static void link_reason(sx_eg *eg, uint32_t a, uint32_t b, uint32_t rule)
{
    uint32_t at = a;
    uint32_t next = b;
    uint32_t reason = rule;
    while (eg->proof_up[at] != at) {
        uint32_t up = eg->proof_up[at];
        uint32_t old = eg->proof_rule[at];
        eg->proof_up[at] = next;
        eg->proof_rule[at] = reason;
        next = at;
        reason = old;
        at = up;
    }
    eg->proof_up[at] = next;
    eg->proof_rule[at] = reason;
}

sx_code sx_eg_union(sx_ctx *cx, sx_eg *eg, uint32_t a, uint32_t b, uint32_t reason)
{
    uint32_t keep = sx_eg_find(eg, a);
    uint32_t drop = sx_eg_find(eg, b);
    if (keep == drop) {
        return SX_OK;
    }
    if (keep > drop) {
        uint32_t swap = keep;
        keep = drop;
        drop = swap;
    }
    if (eg->analysis.size > 0) {
        bool changed = false;
        void *into = eg->record + (size_t)keep * eg->analysis.size;
        const void *from = eg->record + (size_t)drop * eg->analysis.size;
        SX_TRY(eg->analysis.join(cx, eg->analysis.self, into, from, &changed));
        if (changed || memcmp(into, from, eg->analysis.size) != 0) {
            SX_TRY(push(cx, &eg->learnt, &eg->learnt_count, &eg->learnt_capacity, keep));
        }
    }
    SX_TRY(push(cx, &eg->absorbed, &eg->absorbed_count, &eg->absorbed_capacity, drop));
    SX_TRY(touch(cx, eg, keep));
    link_reason(eg, a, b, reason);
    eg->up[drop] = keep;
    uint32_t swap = eg->member_next[keep];
    eg->member_next[keep] = eg->member_next[drop];
    eg->member_next[drop] = swap;
    eg->ops[keep] |= eg->ops[drop];
    eg->class_count--;
    eg->union_count++;
    return SX_OK;
}

/* Node n again in the table after a child was absorbed; on a duplicate the two classes unite and n is dead. */
static sx_code repair_node(sx_ctx *cx, sx_eg *eg, uint32_t n)
{
    sx_eg_node *node = &eg->node[n];
    bool moved = false;
    for (uint32_t k = 0; k < node->arity; k++) {
        uint32_t root = sx_eg_find(eg, eg->child[node->edge + k]);
        moved = moved || root != eg->child[node->edge + k];
        eg->child[node->edge + k] = root;
    }
    if (!moved) {
        return SX_OK;
    }
    uint32_t hash = hash_node(eg, n);
    node->dead = 1; /* not to be found by its own old slot */
    uint32_t twin = probe(eg, hash, node->op, node->attr, &eg->child[node->edge], node->arity);
    if (twin == SX_EG_NONE || twin > n) { /* of two equal nodes the older one lives on */
        node->dead = 0;
        SX_TRY(reserve_slot(cx, eg));
        place(eg, hash, n);
    }
    if (twin == SX_EG_NONE) {
        return SX_OK;
    }
    eg->node[twin].dead = twin > n ? 1 : 0;
    eg->live_count--;
    return sx_eg_union(cx, eg, n, twin, SX_EG_RULE_CONGRUENCE);
}

/* The parents of an absorbed class move to the class that absorbed it. */
static sx_code repair_parents(sx_ctx *cx, sx_eg *eg, uint32_t drop)
{
    uint32_t edge = eg->parent_head[drop];
    eg->parent_head[drop] = eg->parent_tail[drop] = SX_EG_NONE;
    while (edge != SX_EG_NONE) {
        uint32_t next = eg->edge_next[edge];
        uint32_t n = eg->owner[edge];
        if (eg->node[n].dead == 0) {
            SX_TRY(repair_node(cx, eg, n));
        }
        if (eg->node[n].dead == 0) {
            /* the class the node names, even if the repair has just absorbed it: then its turn comes */
            link_parent(eg, eg->child[edge], edge);
        }
        edge = next;
    }
    return SX_OK;
}

/* What a class learnt goes up to the classes of its parents. */
static sx_code carry_up(sx_ctx *cx, sx_eg *eg, uint32_t class_)
{
    uint64_t record[32];
    SX_ASSERT(eg->analysis.size <= sizeof(record));
    for (uint32_t e = eg->parent_head[class_]; e != SX_EG_NONE; e = eg->edge_next[e]) {
        uint32_t n = eg->owner[e];
        if (eg->node[n].dead != 0) {
            continue;
        }
        memset(record, 0, eg->analysis.size);
        SX_TRY(eg->analysis.make(cx, eg->analysis.self, eg, n, record));
        bool changed = false;
        SX_TRY(eg->analysis.join(cx, eg->analysis.self, sx_eg_record(eg, n), record, &changed));
        if (changed) {
            uint32_t root = sx_eg_find(eg, n);
            SX_TRY(push(cx, &eg->learnt, &eg->learnt_count, &eg->learnt_capacity, root));
            SX_TRY(touch(cx, eg, root));
        }
    }
    return SX_OK;
}

sx_code sx_eg_rebuild(sx_ctx *cx, sx_eg *eg)
{
    uint32_t absorbed = 0;
    uint32_t learnt = 0;
    while (absorbed < eg->absorbed_count || learnt < eg->learnt_count) {
        if (absorbed < eg->absorbed_count) {
            SX_TRY(repair_parents(cx, eg, eg->absorbed[absorbed++]));
        } else {
            SX_TRY(carry_up(cx, eg, sx_eg_find(eg, eg->learnt[learnt++])));
        }
    }
    eg->absorbed_count = 0;
    eg->learnt_count = 0;
    return SX_OK;
}

/* ---- a graph from its parts ---- */

sx_code sx_eg_restore_begin(sx_ctx *cx, sx_eg *eg, const sx_eg_analysis *analysis, uint32_t nodes,
                            uint32_t edges)
{
    uint32_t node_capacity = nodes + 256; /* so that doubling always has room for one more */
    uint32_t edge_capacity = edges + 512;
    *eg = (sx_eg){0};
    if (analysis != NULL) {
        SX_ASSERT(analysis->size % 8 == 0);
        eg->analysis = *analysis;
    }
    uint32_t **words[] = {&eg->up,          &eg->member_next, &eg->parent_head,
                          &eg->parent_tail, &eg->proof_up,    &eg->proof_rule};
    for (size_t i = 0; i < SX_COUNT(words); i++) {
        SX_TRY(grow_array(cx, (void **)words[i], 0, node_capacity, sizeof(uint32_t)));
    }
    uint32_t **edge_words[] = {&eg->child, &eg->made, &eg->owner, &eg->edge_next};
    for (size_t i = 0; i < SX_COUNT(edge_words); i++) {
        SX_TRY(grow_array(cx, (void **)edge_words[i], 0, edge_capacity, sizeof(uint32_t)));
    }
    SX_TRY(grow_array(cx, (void **)&eg->node, 0, node_capacity, sizeof(sx_eg_node)));
    SX_TRY(grow_array(cx, (void **)&eg->ops, 0, node_capacity, sizeof(uint64_t)));
    if (eg->analysis.size > 0) {
        SX_TRY(grow_array(cx, (void **)&eg->record, 0, node_capacity, eg->analysis.size));
    }
    eg->node_count = nodes;
    eg->node_capacity = node_capacity;
    eg->edge_count = edges;
    eg->edge_capacity = edge_capacity;
    return SX_OK;
}

/* Every live node into a fresh table; two equal ones are an error. */
static sx_code restore_table(sx_ctx *cx, sx_eg *eg)
{
    uint32_t wanted = SLOTS_MIN;
    while ((uint64_t)wanted * 5 < ((uint64_t)eg->live_count + 1) * 8) {
        wanted *= 2;
    }
    eg->slot = SX_NEW_ARRAY(cx, uint64_t, wanted);
    if (eg->slot == NULL) {
        return cx->error.code;
    }
    eg->slot_count = wanted;
    for (uint32_t n = 0; n < eg->node_count; n++) {
        const sx_eg_node *node = &eg->node[n];
        if (node->dead != 0) {
            continue;
        }
        uint32_t hash = hash_node(eg, n);
        uint32_t twin = probe(eg, hash, node->op, node->attr, &eg->child[node->edge], node->arity);
        if (twin != SX_EG_NONE) {
            return SX_FAIL(cx, SX_CORRUPT, "e-node %u: equal to e-node %u", n, twin);
        }
        place(eg, hash, n);
    }
    for (uint32_t n = 0; n < eg->node_count; n++) {
        const sx_eg_node *node = &eg->node[n];
        if (node->dead != 0) {
            uint32_t twin = probe(eg, hash_node(eg, n), node->op, node->attr,
                                  &eg->child[node->edge], node->arity);
            if (twin == SX_EG_NONE || eg->up[twin] != eg->up[n]) {
                return SX_FAIL(cx, SX_CORRUPT, "e-node %u: dead, and no equal one lives", n);
            }
        }
    }
    return SX_OK;
}

/* Records in order of the nodes: what a node is made from lies below it. What a later member teaches its class goes up. */
static sx_code restore_records(sx_ctx *cx, sx_eg *eg)
{
    uint64_t record[32];
    SX_ASSERT(eg->analysis.size <= sizeof(record));
    for (uint32_t n = 0; n < eg->node_count; n++) {
        if (eg->node[n].dead != 0) {
            continue;
        }
        bool changed = false;
        uint32_t root = eg->up[n];
        memset(record, 0, eg->analysis.size);
        SX_TRY(eg->analysis.make(cx, eg->analysis.self, eg, n, record));
        uint8_t *held = eg->record + (size_t)root * eg->analysis.size;
        if (root == n) {
            memcpy(held, record, eg->analysis.size);
        } else {
            SX_TRY(eg->analysis.join(cx, eg->analysis.self, held, record, &changed));
        }
        if (changed) {
            SX_TRY(push(cx, &eg->learnt, &eg->learnt_count, &eg->learnt_capacity, root));
        }
    }
    SX_TRY(sx_eg_rebuild(cx, eg));
    eg->log_count = 0;
    return SX_OK;
}

sx_code sx_eg_restore_end(sx_ctx *cx, sx_eg *eg)
{
    uint32_t edge = 0;
    for (uint32_t n = 0; n < eg->node_count; n++) {
        sx_eg_node *node = &eg->node[n];
        uint32_t root = eg->up[n];
        SX_ASSERT(root <= n && eg->up[root] == root);
        node->edge = edge;
        for (uint32_t k = 0; k < node->arity; k++) {
            eg->owner[edge++] = n;
        }
        eg->ops[n] = UINT64_C(1) << node->op;
        eg->ops[root] |= eg->ops[n];
        eg->member_next[n] = root == n ? n : eg->member_next[root];
        eg->member_next[root] = n;
        eg->parent_head[n] = eg->parent_tail[n] = SX_EG_NONE;
        eg->class_count += root == n ? 1 : 0;
        eg->live_count += node->dead == 0 ? 1 : 0;
    }
    SX_ASSERT(edge == eg->edge_count);
    SX_TRY(restore_table(cx, eg));
    for (uint32_t e = 0; e < eg->edge_count; e++) {
        if (eg->node[eg->owner[e]].dead == 0) {
            link_parent(eg, eg->child[e], e);
        }
    }
    eg->union_count = eg->node_count - eg->class_count;
    return eg->analysis.size > 0 ? restore_records(cx, eg) : SX_OK;
}
