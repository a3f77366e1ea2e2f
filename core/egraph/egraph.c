#include "core/egraph/egraph.h"

#include <stddef.h>
#include <string.h>

#define SLOTS_MIN 64u
#define RECORD_WORDS_MAX 32u

/* Children + op + attr, mixed by multiplication (murmur3's finalizer constants). Never an address. */
static inline __attribute__((always_inline)) uint32_t
hash_content(uint16_t op, uint32_t attr, const uint32_t *child, uint32_t arity)
{
    uint64_t h = ((uint64_t)attr << 16 | op) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t k = 0; k < arity; k++) {
        h = (h ^ (h >> 29) ^ child[k]) * UINT64_C(0xFF51AFD7ED558CCD);
    }
    h = (h ^ (h >> 33)) * UINT64_C(0xC4CEB9FE1A85EC53);
    return (uint32_t)(h >> 32);
}

static inline const uint32_t *kids_of(const sx_eg *eg, const sx_eg_node *node, uint32_t k)
{
    return node->arity <= SX_EG_INLINE ? &node->kid[k] : &eg->wide[node->kid[0] + k].kid;
}

static void canonical_kids(const sx_eg *eg, uint32_t n, uint32_t *canonical)
{
    const sx_eg_node *node = &eg->node[n];
    for (uint32_t k = 0; k < node->arity; k++) {
        canonical[k] = sx_eg_find(eg, *kids_of(eg, node, k));
    }
}

/* What equal nodes agree on but for their children: operation, attribute, arity, and to be alive. */
typedef struct {
    uint32_t attr, kind;
} identity;

static inline uint32_t kind_of(const uint8_t *kind)
{
    uint32_t word;
    memcpy(&word, kind, sizeof(word));
    return word;
}
_Static_assert(offsetof(sx_eg_node, ops) == offsetof(sx_eg_node, op) + 3, "op, arity, dead, ops");

static inline identity identity_of(uint16_t op, uint32_t attr, uint32_t arity)
{
    const uint8_t kind[4] = {(uint8_t)op, (uint8_t)arity, 0, 0};
    return (identity){attr, kind_of(kind)};
}

static inline __attribute__((always_inline)) bool
same_content(const sx_eg *eg, uint32_t n, identity what, const uint32_t *canonical, uint32_t arity)
{
    static const uint8_t but_ops[4] = {0xFF, 0xFF, 0xFF, 0};
    const sx_eg_node *node = &eg->node[n];
    if ((kind_of((const uint8_t *)node + offsetof(sx_eg_node, op)) & kind_of(but_ops)) !=
            what.kind ||
        node->attr != what.attr) {
        return false;
    }
    const uint32_t *kids = arity <= SX_EG_INLINE ? node->kid : NULL;
    for (uint32_t k = 0; k < arity; k++) {
        uint32_t kid = kids != NULL ? kids[k] : *kids_of(eg, node, k);
        if (kid != canonical[k] && sx_eg_find(eg, kid) != canonical[k]) {
            return false;
        }
    }
    return true;
}

/* The live node with exactly this content (children canonical), or SX_EG_NONE, from slot `from` on. Slots of
 * dead or since changed nodes are passed over: content decides. */
static inline __attribute__((always_inline)) uint32_t probe_from(const sx_eg *eg, uint32_t from,
                                                                 uint32_t hash, identity what,
                                                                 const uint32_t *canonical,
                                                                 uint32_t arity)
{
    const uint64_t *slots = eg->slot;
    uint32_t mask = eg->slot_count - 1;
    for (uint32_t i = from; slots[i] != 0; i = (i + 1) & mask) {
        uint32_t n = (uint32_t)slots[i] - 1;
        if ((uint32_t)(slots[i] >> 32) == hash && same_content(eg, n, what, canonical, arity)) {
            return n;
        }
    }
    return SX_EG_NONE;
}

static uint32_t probe(const sx_eg *eg, uint32_t hash, uint16_t op, uint32_t attr,
                      const uint32_t *canonical, uint32_t arity)
{
    return probe_from(eg, hash & (eg->slot_count - 1), hash, identity_of(op, attr, arity),
                      canonical, arity);
}

static inline void place(sx_eg *eg, uint32_t hash, uint32_t n)
{
    uint32_t mask = eg->slot_count - 1;
    uint32_t i = hash & mask;
    while (eg->slot[i] != 0) {
        i = (i + 1) & mask;
    }
    eg->slot[i] = (uint64_t)hash << 32 | (n + 1);
    eg->slot_used++;
}

#define BATCH 32u

/* Writes the table anew from the live nodes: stale slots are gone. Slots of a batch are brought near before
 * they are filled. */
static void write_slots(sx_eg *eg)
{
    memset(eg->slot, 0, (size_t)eg->slot_count * sizeof(*eg->slot));
    eg->slot_used = 0;
    uint32_t hash[BATCH];
    uint32_t node[BATCH];
    uint32_t canonical[SX_EG_ARITY_MAX];
    uint32_t n = 0;
    while (n < eg->node_count) {
        uint32_t count = 0;
        for (; n < eg->node_count && count < BATCH; n++) {
            const sx_eg_node *at = &eg->node[n];
            if (at->dead == 0) {
                canonical_kids(eg, n, canonical);
                node[count] = n;
                hash[count] = hash_content(at->op, at->attr, canonical, at->arity);
                __builtin_prefetch(&eg->slot[hash[count] & (eg->slot_count - 1)], 1);
                count++;
            }
        }
        for (uint32_t i = 0; i < count; i++) {
            place(eg, hash[i], node[i]);
        }
    }
}

#define WRAPPED_MAX 64u

/* The table has grown to twice its length, of which the first half is filled: every slot goes on to its place
 * or so much further, in one pass from the front. What has run over the end to the front waits until then;
 * false where that is too much. Stale slots stay. */
static bool split_slots(sx_eg *eg)
{
    uint64_t wrapped[WRAPPED_MAX];
    uint32_t wrapped_count = 0;
    uint32_t old = eg->slot_count / 2;
    uint64_t *slots = eg->slot;
    memset(slots + old, 0, (size_t)old * sizeof(*slots));
    eg->slot_used = 0;
    for (uint32_t i = 0; i < old; i++) {
        uint64_t slot = slots[i];
        uint32_t hash = (uint32_t)(slot >> 32);
        slots[i] =
            0; /* free, as all before it are settled: its place is at most i, or in the other half */
        if (slot != 0 && (hash & (old - 1)) > i) {
            if (wrapped_count == WRAPPED_MAX) {
                return false;
            }
            wrapped[wrapped_count++] = slot;
        } else if (slot != 0) {
            place(eg, hash, (uint32_t)slot - 1);
        }
    }
    for (uint32_t i = 0; i < wrapped_count; i++) {
        place(eg, (uint32_t)(wrapped[i] >> 32), (uint32_t)wrapped[i] - 1);
    }
    return true;
}

/* Room for `more` live nodes, at most SX_EG_BATCH, at a load of at most 3/4. */
static sx_code reserve_slots(sx_ctx *cx, sx_eg *eg, uint32_t more)
{
    if (((uint64_t)eg->slot_used + more) * 4 <= (uint64_t)eg->slot_count * 3) {
        return SX_OK;
    }
    if (((uint64_t)eg->live_count + more) * 2 > eg->slot_count) {
        bool first = eg->slot_count == 0;
        uint32_t wanted = first ? SLOTS_MIN : eg->slot_count * 2;
        SX_TRY(sx_region_resize(cx, (void **)&eg->slot, &eg->slot_capacity, wanted,
                                sizeof(*eg->slot)));
        eg->slot_count = wanted;
        if (!first && split_slots(eg)) {
            return SX_OK;
        }
    }
    write_slots(eg);
    return SX_OK;
}

/* In rebuild no node is new: at least a quarter of the slots is free once the stale ones are gone. */
static void place_again(sx_eg *eg, uint32_t hash, uint32_t n)
{
    if ((uint64_t)(eg->slot_used + 1) * 8 > (uint64_t)eg->slot_count * 7) {
        write_slots(eg); /* n is live, so this has placed it */
    } else {
        place(eg, hash, n);
    }
}

/* An older node became another: who has seen it must see it again. Without memory for the log all nodes count
 * as changed. */
static void log_change(sx_ctx *cx, sx_eg *eg, uint32_t n)
{
    if (n >= eg->old_count) {
        return;
    }
    if (eg->changed_count >= eg->changed_capacity &&
        sx_region_grow(cx, (void **)&eg->changed, &eg->changed_capacity, eg->changed_count + 1,
                       sizeof(*eg->changed)) != SX_OK) {
        sx_ctx_reset_error(cx);
        eg->changed_count = 0;
        eg->changed_lost++;
        eg->old_count = 0;
        return;
    }
    eg->changed[eg->changed_count++] = n;
}

static sx_code reserve_node(sx_ctx *cx, sx_eg *eg)
{
    uint32_t need = eg->node_count + 1;
    if (need <= eg->node_capacity) {
        return SX_OK;
    }
    if (eg->node_count >= SX_EG_NODES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "e-graph of %u nodes, at most %u", eg->node_count,
                       SX_EG_NODES_MAX);
    }
    if (!eg->unproven) {
        SX_TRY(sx_region_grow(cx, (void **)&eg->why, &eg->why_capacity, need, sizeof(*eg->why)));
    }
    if (eg->analysis.size > 0) {
        SX_TRY(sx_region_grow(cx, (void **)&eg->record, &eg->record_capacity, need,
                              eg->analysis.size));
    }
    SX_TRY(sx_region_grow(cx, (void **)&eg->node, &eg->node_capacity, need, sizeof(*eg->node)));
    /* the least of the three says when to ask again */
    if (!eg->unproven && eg->why_capacity < eg->node_capacity) {
        eg->node_capacity = eg->why_capacity;
    }
    if (eg->analysis.size > 0 && eg->record_capacity < eg->node_capacity) {
        eg->node_capacity = eg->record_capacity;
    }
    return SX_OK;
}

static sx_code reserve_wide(sx_ctx *cx, sx_eg *eg, uint32_t arity)
{
    if (arity <= SX_EG_INLINE) {
        return SX_OK;
    }
    if (eg->wide_count + arity >= SX_EG_WIDE - 1) {
        return SX_FAIL(cx, SX_LIMIT, "e-graph of %u edges of wide nodes, at most %u",
                       eg->wide_count, SX_EG_WIDE - 2);
    }
    return sx_region_grow(cx, (void **)&eg->wide, &eg->wide_capacity, eg->wide_count + arity,
                          sizeof(*eg->wide));
}

sx_code sx_eg_init(sx_ctx *cx, sx_eg *eg, const sx_eg_analysis *analysis)
{
    *eg = (sx_eg){.repair_head = SX_EG_LINK_END, .repair_tail = SX_EG_LINK_END};
    if (analysis != NULL) {
        SX_ASSERT(analysis->size % 8 == 0 && analysis->size <= RECORD_WORDS_MAX * 8);
        eg->analysis = *analysis;
    }
    return reserve_slots(cx, eg, 1);
}

static inline uint32_t *next_of(sx_eg *eg, uint32_t link)
{
    return (link & SX_EG_WIDE) != 0 ? &eg->wide[link & ~SX_EG_WIDE].next
                                    : &eg->node[link / SX_EG_INLINE].next[link % SX_EG_INLINE];
}

static inline void link_parent(sx_eg *eg, uint32_t class_, uint32_t link)
{
    *next_of(eg, link) = eg->node[class_].tie & ~SX_EG_ROOT;
    eg->node[class_].tie = SX_EG_ROOT | link;
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

/* The node at its place, before the analysis has spoken; its parents' lists do not know it yet. */
static void write_node(sx_eg *eg, uint32_t n, uint16_t op, uint32_t attr, const uint32_t *child,
                       uint32_t arity)
{
    sx_eg_node *node = &eg->node[n];
    *node = (sx_eg_node){.attr = attr,
                         .op = (uint8_t)op,
                         .arity = (uint8_t)arity,
                         .ops = (uint8_t)(1u << (op & 7)),
                         .tie = SX_EG_ROOT | SX_EG_LINK_END,
                         .member = n};
    if (arity <= SX_EG_INLINE) {
        for (uint32_t k = 0; k < arity; k++) {
            node->kid[k] = child[k];
        }
    } else {
        node->kid[0] = eg->wide_count;
        for (uint32_t k = 0; k < arity; k++) {
            eg->wide[eg->wide_count + k] = (sx_eg_wide){child[k], SX_EG_LINK_END, n};
        }
    }
    if (!eg->unproven) {
        eg->why[n] = (sx_eg_why){n, SX_EG_RULE_GIVEN};
    }
}

/* A node that is not there yet. */
static sx_code add_new(sx_ctx *cx, sx_eg *eg, uint16_t op, uint32_t attr, const uint32_t *child,
                       uint32_t arity, const uint32_t *canonical, uint32_t hash, uint32_t *node)
{
    SX_TRY(reserve_node(cx, eg));
    SX_TRY(reserve_wide(cx, eg, arity));
    SX_TRY(reserve_slots(cx, eg, 1));
    uint32_t n = eg->node_count;
    write_node(eg, n, op, attr, child, arity);
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
    uint32_t link = arity <= SX_EG_INLINE ? n * SX_EG_INLINE : SX_EG_WIDE | eg->wide_count;
    for (uint32_t k = 0; k < arity; k++) {
        link_parent(eg, canonical[k], link + k);
    }
    eg->wide_count += arity <= SX_EG_INLINE ? 0 : arity;
    eg->class_count++;
    eg->live_count++;
    place(eg, hash, n);
    *node = n;
    return SX_OK;
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
    *node = probe(eg, hash, op, attr, canonical, arity);
    return *node != SX_EG_NONE ? SX_OK
                               : add_new(cx, eg, op, attr, child, arity, canonical, hash, node);
}

/* The operands as classes, those of node i in canonical[i * arity ..]; node[i] SX_EG_NONE where one is, else 0. */
static inline __attribute__((always_inline)) void settle_batch(const sx_eg *eg,
                                                               const sx_eg_operand *operand,
                                                               const uint32_t arity, uint32_t count,
                                                               uint32_t *canonical, uint32_t *node)
{
    memset(node, 0, count * sizeof(*node));
    for (uint32_t k = 0; k < arity; k++) {
        const uint32_t *at = operand[k].at;
        for (uint32_t i = 0; i < count; i++, at += operand[k].stride) {
            if (*at == SX_EG_NONE) {
                node[i] = canonical[i * arity + k] = SX_EG_NONE;
            } else {
                canonical[i * arity + k] = sx_eg_find(eg, *at);
            }
        }
    }
}

/* The first slot in which a node of each hash can be, or that is free; what will be looked at there is brought near. */
static inline void approach_batch(const sx_eg *eg, const uint32_t *hash, uint32_t count,
                                  uint32_t *from)
{
    const uint64_t *slots = eg->slot;
    const sx_eg_node *nodes = eg->node;
    uint32_t mask = eg->slot_count - 1;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t s = hash[i] & mask;
        while (slots[s] != 0 && (uint32_t)(slots[s] >> 32) != hash[i]) {
            s = (s + 1) & mask;
        }
        from[i] = s;
        __builtin_prefetch(&nodes[slots[s] != 0 ? (uint32_t)slots[s] - 1 : 0]);
    }
}

/* A batch on its way: hashes, and where in the table nodes with them can be. */
typedef struct {
    uint32_t canonical[SX_EG_BATCH * SX_EG_BATCH_ARITY];
    uint32_t hash[SX_EG_BATCH];
    uint32_t from[SX_EG_BATCH];
} batch;

/* What adding or finding has in common; inlined for a known arity, so that the loops over children are
 * straight code. */
static inline __attribute__((always_inline)) void
begin_batch(const sx_eg *eg, uint16_t op, const uint32_t *attr, const sx_eg_operand *operand,
            const uint32_t arity, uint32_t count, batch *b, uint32_t *node)
{
    const uint64_t *slots = eg->slot;
    uint32_t mask = eg->slot_count - 1;
    settle_batch(eg, operand, arity, count, b->canonical, node);
    for (uint32_t i = 0; i < count; i++) {
        b->hash[i] = hash_content(op, attr == NULL ? 0 : attr[i], &b->canonical[i * arity], arity);
        __builtin_prefetch(&slots[b->hash[i] & mask]);
    }
    approach_batch(eg, b->hash, count, b->from);
}

static inline __attribute__((always_inline)) sx_code
add_batch(sx_ctx *cx, sx_eg *eg, uint16_t op, const uint32_t *attr, const sx_eg_operand *operand,
          const uint32_t arity, uint32_t count, uint32_t *node)
{
    batch b;
    SX_TRY(reserve_slots(cx, eg, count)); /* the table stays as it is until the end */
    begin_batch(eg, op, attr, operand, arity, count, &b, node);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *at = &b.canonical[i * arity];
        uint32_t of = attr == NULL ? 0 : attr[i];
        if (node[i] == SX_EG_NONE) {
            continue;
        }
        uint32_t n = probe_from(eg, b.from[i], b.hash[i], identity_of(op, of, arity), at, arity);
        node[i] = n;
        if (n == SX_EG_NONE) {
            uint32_t made[SX_EG_BATCH_ARITY];
            for (uint32_t k = 0; k < arity; k++) {
                made[k] = operand[k].at[(size_t)i * operand[k].stride];
            }
            SX_TRY(add_new(cx, eg, op, of, made, arity, at, b.hash[i], &node[i]));
        }
    }
    return SX_OK;
}

static inline __attribute__((always_inline)) void
find_batch(const sx_eg *eg, uint16_t op, const uint32_t *attr, const sx_eg_operand *operand,
           const uint32_t arity, uint32_t count, uint32_t *node)
{
    batch b;
    begin_batch(eg, op, attr, operand, arity, count, &b, node);
    for (uint32_t i = 0; i < count; i++) {
        identity what = identity_of(op, attr == NULL ? 0 : attr[i], arity);
        const uint32_t *at = &b.canonical[i * arity];
        node[i] = node[i] == SX_EG_NONE ? SX_EG_NONE
                                        : probe_from(eg, b.from[i], b.hash[i], what, at, arity);
    }
}

sx_code sx_eg_add_batch(sx_ctx *cx, sx_eg *eg, uint16_t op, const uint32_t *attr,
                        const sx_eg_operand *operand, uint32_t arity, uint32_t count,
                        uint32_t *node)
{
    SX_ASSERT(arity <= SX_EG_BATCH_ARITY && op < SX_EG_OPS_MAX && count <= SX_EG_BATCH);
    switch (arity) {
    case 1: return add_batch(cx, eg, op, attr, operand, 1, count, node);
    case 2: return add_batch(cx, eg, op, attr, operand, 2, count, node);
    default: return add_batch(cx, eg, op, attr, operand, arity, count, node);
    }
}

void sx_eg_find_batch(const sx_eg *eg, uint16_t op, const uint32_t *attr,
                      const sx_eg_operand *operand, uint32_t arity, uint32_t count, uint32_t *node)
{
    SX_ASSERT(arity <= SX_EG_BATCH_ARITY && op < SX_EG_OPS_MAX && count <= SX_EG_BATCH);
    switch (arity) {
    case 1: find_batch(eg, op, attr, operand, 1, count, node); break;
    case 2: find_batch(eg, op, attr, operand, 2, count, node); break;
    default: find_batch(eg, op, attr, operand, arity, count, node);
    }
}

/* Makes `a` the root of its tree of reasons by turning the path around, then hangs it below `b`. */
static void turn_and_link(sx_eg *eg, uint32_t a, uint32_t b, uint32_t rule)
{
    sx_eg_why put = {b, rule};
    uint32_t at = a;
    for (;;) {
        sx_eg_why old = eg->why[at];
        eg->why[at] = put;
        if (old.up == at) {
            return;
        }
        put = (sx_eg_why){at, old.rule};
        at = old.up;
    }
}

/* The shorter of the two paths to a root is turned: a fresh node costs nothing. */
static void link_reason(sx_eg *eg, uint32_t a, uint32_t b, uint32_t rule)
{
    uint32_t x = a;
    uint32_t y = b;
    while (eg->why[x].up != x && eg->why[y].up != y) {
        x = eg->why[x].up;
        y = eg->why[y].up;
    }
    if (eg->why[y].up == y) {
        turn_and_link(eg, b, a, rule);
    } else {
        turn_and_link(eg, a, b, rule);
    }
}

/* A class whose parents must hear of its record. What cannot be noted for want of memory is found by looking
 * everywhere. */
static void note_learnt(sx_ctx *cx, sx_eg *eg, uint32_t class_)
{
    if (sx_region_grow(cx, (void **)&eg->learnt, &eg->learnt_capacity, eg->learnt_count + 1,
                       sizeof(*eg->learnt)) != SX_OK) {
        sx_ctx_reset_error(cx);
        eg->learn_all = true;
        return;
    }
    eg->learnt[eg->learnt_count++] = class_;
}

static void log_members(sx_ctx *cx, sx_eg *eg, uint32_t class_)
{
    uint32_t n = class_;
    do {
        log_change(cx, eg, n);
        n = eg->node[n].member;
    } while (n != class_);
}

static void log_parents(sx_ctx *cx, sx_eg *eg, uint32_t class_)
{
    for (uint32_t l = sx_eg_parent_first(eg, class_); l != SX_EG_LINK_END;
         l = sx_eg_parent_next(eg, l)) {
        log_change(cx, eg, sx_eg_parent_node(eg, l));
    }
}

/* Without an analysis a class has the value of a leaf in it: parents of a class that such a leaf joins see
 * another child. */
static bool holds_leaf(const sx_eg *eg, uint32_t class_)
{
    uint32_t n = class_;
    do {
        if (eg->node[n].arity == 0) {
            return true;
        }
        n = eg->node[n].member;
    } while (n != class_);
    return false;
}

static uint32_t last_link(const sx_eg *eg, uint32_t first)
{
    uint32_t last = first;
    for (uint32_t l = first; l != SX_EG_LINK_END; l = sx_eg_parent_next(eg, l)) {
        last = l;
    }
    return last;
}

/* The parents of an absorbed class wait for rebuild, in the order of unions: as a list of its own while there
 * is room for one more, else behind the last. */
static void queue_parents(sx_eg *eg, uint32_t first)
{
    if (first == SX_EG_LINK_END) {
        return;
    }
    uint32_t at = eg->repair_at + eg->repair_count;
    if (eg->repair_count < SX_EG_REPAIRS) {
        eg->repair[at % SX_EG_REPAIRS] = first;
        eg->repair_count++;
        eg->repair_tail = SX_EG_LINK_END;
        return;
    }
    if (eg->repair_tail == SX_EG_LINK_END) {
        eg->repair_tail = last_link(eg, eg->repair[(at - 1) % SX_EG_REPAIRS]);
    }
    *next_of(eg, eg->repair_tail) = first;
    eg->repair_tail = last_link(eg, first);
}

/* The next link that waits, or the end. */
static uint32_t next_repair(sx_eg *eg)
{
    if (eg->repair_head == SX_EG_LINK_END && eg->repair_count > 0) {
        eg->repair_head = eg->repair[eg->repair_at++ % SX_EG_REPAIRS];
        eg->repair_count--;
    }
    uint32_t link = eg->repair_head;
    eg->repair_head = link == SX_EG_LINK_END ? link : sx_eg_parent_next(eg, link);
    return link;
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
        if (changed) {
            log_members(cx, eg, keep);
            log_parents(cx, eg, keep);
            note_learnt(cx, eg, keep);
        }
        eg->learn_moved = eg->learn_moved || memcmp(into, from, eg->analysis.size) != 0;
    }
    if (eg->analysis.size == 0 && holds_leaf(eg, drop)) {
        log_parents(cx, eg, keep);
    }
    if (drop < eg->old_count) {
        log_members(cx, eg, drop); /* its parents follow when they are repaired */
    }
    if (!eg->unproven) {
        link_reason(eg, a, b, reason);
    }
    sx_eg_node *kept = &eg->node[keep];
    sx_eg_node *dropped = &eg->node[drop];
    SX_ASSERT(eg->class_count > 1 && sx_eg_is_class(eg, drop));
    queue_parents(eg, dropped->tie & ~SX_EG_ROOT);
    dropped->tie = keep;
    uint32_t swap = kept->member;
    kept->member = dropped->member;
    dropped->member = swap;
    kept->ops |= dropped->ops;
    eg->class_count--;
    eg->union_count++;
    return SX_OK;
}

/* As probe, but another node than n; *placed when n itself is in the table under this hash. */
static uint32_t probe_twin(const sx_eg *eg, uint32_t hash, uint32_t n, const uint32_t *canonical,
                           bool *placed)
{
    const sx_eg_node *node = &eg->node[n];
    uint32_t mask = eg->slot_count - 1;
    *placed = false;
    for (uint32_t i = hash & mask; eg->slot[i] != 0; i = (i + 1) & mask) {
        uint64_t slot = eg->slot[i];
        uint32_t other = (uint32_t)slot - 1;
        if ((uint32_t)(slot >> 32) != hash) {
            continue;
        }
        if (other == n) {
            *placed = true;
        } else if (same_content(eg, other, identity_of(node->op, node->attr, node->arity),
                                canonical, node->arity)) {
            return other;
        }
    }
    return SX_EG_NONE;
}

/* A node of which a child was absorbed gets its new slot; on a duplicate the two classes unite and the younger
 * node is dead. There can be several: a table written anew in the midst of a rebuild holds nodes whose turn is
 * still to come. */
static sx_code repair_node(sx_ctx *cx, sx_eg *eg, uint32_t n, const uint32_t *canonical)
{
    sx_eg_node *node = &eg->node[n];
    uint32_t hash = hash_content(node->op, node->attr, canonical, node->arity);
    bool placed;
    uint32_t twin = probe_twin(eg, hash, n, canonical, &placed);
    log_change(cx, eg, n);
    while (twin != SX_EG_NONE && twin > n) { /* of two equal nodes the older one lives on */
        eg->node[twin].dead = 1;
        eg->live_count--;
        SX_TRY(sx_eg_union(cx, eg, n, twin, SX_EG_RULE_CONGRUENCE));
        twin = probe_twin(eg, hash, n, canonical, &placed);
    }
    if (twin != SX_EG_NONE) {
        node->dead = 1;
        eg->live_count--;
        return sx_eg_union(cx, eg, n, twin, SX_EG_RULE_CONGRUENCE);
    }
    if (!placed) {
        place_again(eg, hash, n);
    }
    return SX_OK;
}

/* What a node tells its class; what the class then knows goes on to the classes of its parents. */
static sx_code relearn_node(sx_ctx *cx, sx_eg *eg, uint32_t n)
{
    uint64_t record[RECORD_WORDS_MAX];
    memset(record, 0, eg->analysis.size);
    bool changed = false;
    SX_TRY(eg->analysis.make(cx, eg->analysis.self, eg, n, record));
    SX_TRY(eg->analysis.join(cx, eg->analysis.self, sx_eg_record(eg, n), record, &changed));
    if (changed) {
        uint32_t root = sx_eg_find(eg, n);
        log_members(cx, eg, root);
        log_parents(cx, eg, root);
        note_learnt(cx, eg, root);
    }
    return SX_OK;
}

static sx_code repair_link(sx_ctx *cx, sx_eg *eg, uint32_t link)
{
    uint32_t n = sx_eg_parent_node(eg, link);
    if (eg->node[n].dead != 0) {
        return SX_OK; /* leaves the lists */
    }
    uint32_t canonical[SX_EG_ARITY_MAX];
    canonical_kids(eg, n, canonical);
    uint32_t child = canonical[sx_eg_parent_slot(eg, link)];
    SX_TRY(repair_node(cx, eg, n, canonical));
    if (eg->node[n].dead != 0) {
        return SX_OK; /* what it tells its class the twin tells */
    }
    if (sx_eg_is_class(eg, child)) {
        link_parent(eg, child, link);
    } else { /* the repair has just absorbed it: the node's turn comes again */
        *next_of(eg, link) = SX_EG_LINK_END;
        queue_parents(eg, link);
    }
    return eg->learn_moved ? relearn_node(cx, eg, n) : SX_OK;
}

static sx_code carry_up(sx_ctx *cx, sx_eg *eg, uint32_t class_)
{
    for (uint32_t l = sx_eg_parent_first(eg, class_); l != SX_EG_LINK_END;
         l = sx_eg_parent_next(eg, l)) {
        uint32_t n = sx_eg_parent_node(eg, l);
        if (eg->node[n].dead == 0) {
            SX_TRY(relearn_node(cx, eg, n));
        }
    }
    return SX_OK;
}

static sx_code relearn_all(sx_ctx *cx, sx_eg *eg)
{
    eg->learn_all = false;
    for (uint32_t n = 0; n < eg->node_count; n++) {
        if (eg->node[n].dead == 0) {
            SX_TRY(relearn_node(cx, eg, n));
        }
    }
    return SX_OK;
}

/* What repairing this link will touch is brought near. */
static void approach_link(const sx_eg *eg, uint32_t link)
{
    const sx_eg_node *node = &eg->node[sx_eg_parent_node(eg, link)];
    for (uint32_t k = 0; k < node->arity && k < SX_EG_INLINE; k++) {
        __builtin_prefetch(&eg->node[*kids_of(eg, node, k)]);
    }
}

static void approach_slot(const sx_eg *eg, uint32_t link)
{
    uint32_t n = sx_eg_parent_node(eg, link);
    uint32_t canonical[SX_EG_ARITY_MAX];
    const sx_eg_node *node = &eg->node[n];
    if (node->dead == 0 && node->arity <= SX_EG_INLINE) {
        canonical_kids(eg, n, canonical);
        uint32_t hash = hash_content(node->op, node->attr, canonical, node->arity);
        __builtin_prefetch(&eg->slot[hash & (eg->slot_count - 1)]);
    }
}

/* The next links of the queue, in order. */
static sx_code repair_some(sx_ctx *cx, sx_eg *eg)
{
    uint32_t link[BATCH];
    uint32_t count = 0;
    for (uint32_t next; count < BATCH && (next = next_repair(eg)) != SX_EG_LINK_END; count++) {
        link[count] = next;
        approach_link(eg, next);
    }
    for (uint32_t i = 0; i < count; i++) {
        approach_slot(eg, link[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(repair_link(cx, eg, link[i]));
    }
    return SX_OK;
}

sx_code sx_eg_rebuild(sx_ctx *cx, sx_eg *eg)
{
    uint32_t learnt = 0;
    while (eg->repair_head != SX_EG_LINK_END || eg->repair_count > 0 || learnt < eg->learnt_count ||
           eg->learn_all) {
        if (eg->repair_head != SX_EG_LINK_END || eg->repair_count > 0) {
            SX_TRY(repair_some(cx, eg));
        } else if (eg->learn_all) {
            SX_TRY(relearn_all(cx, eg));
        } else {
            SX_TRY(carry_up(cx, eg, sx_eg_find(eg, eg->learnt[learnt++])));
        }
    }
    eg->learnt_count = 0;
    eg->learn_moved = false;
    SX_ASSERT(sx_eg_is_rebuilt(eg));
    return SX_OK;
}

/* ---- a graph from its parts ---- */

sx_code sx_eg_restore_begin(sx_ctx *cx, sx_eg *eg, const sx_eg_analysis *analysis, uint32_t nodes,
                            uint32_t wide)
{
    SX_ASSERT(nodes <= SX_EG_NODES_MAX && wide < SX_EG_WIDE - 1);
    *eg = (sx_eg){.repair_head = SX_EG_LINK_END, .repair_tail = SX_EG_LINK_END};
    if (analysis != NULL) {
        SX_ASSERT(analysis->size % 8 == 0 && analysis->size <= RECORD_WORDS_MAX * 8);
        eg->analysis = *analysis;
    }
    uint32_t count = nodes + 1;
    SX_TRY(sx_region_resize(cx, (void **)&eg->why, &eg->why_capacity, count, sizeof(*eg->why)));
    if (eg->analysis.size > 0) {
        SX_TRY(sx_region_resize(cx, (void **)&eg->record, &eg->record_capacity, count,
                                eg->analysis.size));
    }
    SX_TRY(sx_region_resize(cx, (void **)&eg->node, &eg->node_capacity, count, sizeof(*eg->node)));
    return sx_region_resize(cx, (void **)&eg->wide, &eg->wide_capacity, wide + 1,
                            sizeof(*eg->wide));
}

void sx_eg_restore_node(sx_eg *eg, const sx_eg_node *content, const uint32_t *made, uint32_t class_,
                        sx_eg_why why)
{
    uint32_t n = eg->node_count;
    SX_ASSERT(n < eg->node_capacity && class_ <= n);
    SX_ASSERT(content->arity <= SX_EG_INLINE ||
              eg->wide_count + content->arity <= eg->wide_capacity);
    write_node(eg, n, content->op, content->attr, made, content->arity);
    eg->wide_count += content->arity <= SX_EG_INLINE ? 0 : content->arity;
    eg->node_count = n + 1;
    eg->node[n].dead = content->dead;
    eg->why[n] = why;
    if (class_ == n) {
        eg->class_count++;
    } else {
        SX_ASSERT(sx_eg_is_class(eg, class_));
        eg->node[n].tie = class_;
        eg->node[n].member = eg->node[class_].member;
        eg->node[class_].member = n;
        eg->node[class_].ops |= eg->node[n].ops;
    }
    eg->live_count += content->dead == 0 ? 1 : 0;
}

#define AHEAD 32u /* nodes for which memory is asked before it is looked at */

/* The memory that node n's children, and then its hash slot, will be looked up in. */
static inline void fetch_kids(const sx_eg *eg, uint32_t n)
{
    const sx_eg_node *node = &eg->node[n < eg->node_count ? n : eg->node_count - 1];
    for (uint32_t k = 0; k < node->arity && k < SX_EG_INLINE && node->arity <= SX_EG_INLINE; k++) {
        __builtin_prefetch(&eg->node[node->kid[k]], 1);
    }
}

static uint32_t restored_hash(const sx_eg *eg, uint32_t n, uint32_t *canonical)
{
    const sx_eg_node *node = &eg->node[n];
    canonical_kids(eg, n, canonical);
    return hash_content(node->op, node->attr, canonical, node->arity);
}

/* Node n, of this hash, into the table; an equal one is an error. */
static sx_code restore_slot(sx_ctx *cx, sx_eg *eg, uint32_t n, uint32_t hash)
{
    uint32_t mask = eg->slot_count - 1;
    uint32_t i = hash & mask;
    for (; eg->slot[i] != 0; i = (i + 1) & mask) {
        if ((uint32_t)(eg->slot[i] >> 32) == hash) {
            uint32_t canonical[SX_EG_ARITY_MAX];
            const sx_eg_node *node = &eg->node[n];
            uint32_t other = (uint32_t)eg->slot[i] - 1;
            canonical_kids(eg, n, canonical);
            if (same_content(eg, other, identity_of(node->op, node->attr, node->arity), canonical,
                             node->arity)) {
                return SX_FAIL(cx, SX_CORRUPT, "e-node %u: equal to e-node %u", n, other);
            }
        }
    }
    eg->slot[i] = (uint64_t)hash << 32 | (n + 1);
    eg->slot_used++;
    return SX_OK;
}

/* A dead node has a living equal in its class. */
static sx_code check_dead(sx_ctx *cx, const sx_eg *eg)
{
    uint32_t canonical[SX_EG_ARITY_MAX];
    for (uint32_t n = 0; n < eg->node_count && eg->live_count < eg->node_count; n++) {
        const sx_eg_node *node = &eg->node[n];
        if (node->dead == 0) {
            continue;
        }
        uint32_t hash = restored_hash(eg, n, canonical);
        uint32_t twin = probe(eg, hash, node->op, node->attr, canonical, node->arity);
        if (twin == SX_EG_NONE || sx_eg_find(eg, twin) != sx_eg_find(eg, n)) {
            return SX_FAIL(cx, SX_CORRUPT, "e-node %u: dead, and no equal one lives", n);
        }
    }
    return SX_OK;
}

/* Every live node into a fresh table; two equal ones are an error, as is a dead one without a living equal. */
static sx_code restore_table(sx_ctx *cx, sx_eg *eg)
{
    uint32_t wanted = SLOTS_MIN;
    uint32_t canonical[SX_EG_ARITY_MAX];
    uint32_t hash[AHEAD];
    while ((uint64_t)wanted * 5 < ((uint64_t)eg->live_count + 1) * 8) {
        wanted *= 2;
    }
    SX_TRY(sx_region_resize(cx, (void **)&eg->slot, &eg->slot_capacity, wanted, sizeof(*eg->slot)));
    eg->slot_count = wanted;
    memset(eg->slot, 0, (size_t)wanted * sizeof(*eg->slot));
    for (uint32_t n = 0; n < eg->node_count + AHEAD; n++) {
        if (n >= AHEAD && eg->node[n - AHEAD].dead == 0) {
            SX_TRY(restore_slot(cx, eg, n - AHEAD, hash[n % AHEAD]));
        }
        if (n < eg->node_count) {
            fetch_kids(eg, n + AHEAD);
            hash[n % AHEAD] = restored_hash(eg, n, canonical);
            __builtin_prefetch(&eg->slot[hash[n % AHEAD] & (wanted - 1)], 1);
        }
    }
    return check_dead(cx, eg);
}

/* Records in order of the nodes: what a node is made from lies below it. What a later member teaches its class
 * goes up. */
static sx_code restore_records(sx_ctx *cx, sx_eg *eg)
{
    uint64_t record[RECORD_WORDS_MAX];
    for (uint32_t n = 0; n < eg->node_count; n++) {
        if (eg->node[n].dead != 0) {
            continue;
        }
        bool changed = false;
        uint32_t root = sx_eg_find(eg, n);
        memset(record, 0, eg->analysis.size);
        SX_TRY(eg->analysis.make(cx, eg->analysis.self, eg, n, record));
        uint8_t *held = eg->record + (size_t)root * eg->analysis.size;
        if (root == n) {
            memcpy(held, record, eg->analysis.size);
        } else {
            SX_TRY(eg->analysis.join(cx, eg->analysis.self, held, record, &changed));
        }
        if (changed) {
            note_learnt(cx, eg, root);
        }
    }
    return sx_eg_rebuild(cx, eg);
}

sx_code sx_eg_restore_end(sx_ctx *cx, sx_eg *eg)
{
    SX_ASSERT(eg->node_count + 1 ==
              eg->node_capacity); /* as many as sx_eg_restore_begin was told */
    SX_TRY(restore_table(cx, eg));
    for (uint32_t n = 0; n < eg->node_count; n++) {
        const sx_eg_node *node = &eg->node[n];
        fetch_kids(eg, n + AHEAD);
        uint32_t link = node->arity <= SX_EG_INLINE ? n * SX_EG_INLINE : SX_EG_WIDE | node->kid[0];
        for (uint32_t k = 0; node->dead == 0 && k < node->arity; k++) {
            link_parent(eg, sx_eg_child(eg, n, k), link + k);
        }
    }
    eg->union_count = eg->node_count - eg->class_count;
    return eg->analysis.size > 0 ? restore_records(cx, eg) : SX_OK;
}
