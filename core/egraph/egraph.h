/* egraph.h - many equal programs in one graph: classes of nodes that are known to be equal.
 *
 * The engine knows no tensors. A node is an operation number, an attribute id (both opaque) and the classes of
 * its children; equal nodes are stored once (hash-consing). Nodes are numbered from 0 in order of insertion; a
 * class is named by the smallest node in it, so one kind of number names both: `sx_eg_find` turns any node
 * into the name of its class.
 *
 * Work goes in rounds: look for matches, add nodes, unite classes, then `sx_eg_rebuild` restores congruence
 * once for all unions (Willsey 2021). Between unions and rebuild the graph may hold duplicates; searching
 * wants a rebuilt graph.
 *
 * Every class carries a record of fixed size (the analysis) which is computed when a node is added, joined
 * when classes unite and carried upwards by rebuild. Every union is kept with its reason in a forest over the
 * nodes, from which proof.h reads why two nodes are equal (Nieuwenhuis 2005). What is new since a moment: the
 * nodes from a number on, and `changed`, a log of older nodes whose class, children or record became others.
 *
 * Layout: 32 bytes a node (two to a cache line: content, class, members and parents of a class in one place),
 * 8 bytes of reasons, 8 bytes a hash slot; the arrays grow in place (sx_region_grow). Children are kept as
 * they were inserted and read through sx_eg_find. No pointers inside, nothing depends on addresses. Rebuilding
 * touches only parents of absorbed classes, and needs no memory: whatever limit stops a run, the graph can be
 * made valid.
 * Papers: Willsey 2021 (egg); Downey, Sethi, Tarjan 1980; Detlefs, Nelson, Saxe 2005 (Simplify: modification
 * times).
 */
#ifndef SX_CORE_EGRAPH_EGRAPH_H
#define SX_CORE_EGRAPH_EGRAPH_H
#include "core/base/base.h"
#include "core/base/bits.h"

#define SX_EG_NONE UINT32_MAX
#define SX_EG_OPS_MAX SX_BITS_MAX
#define SX_EG_ARITY_MAX 64u
#define SX_EG_NODES_MAX (1u << 29)
#define SX_EG_RULE_CONGRUENCE UINT32_MAX  /* reason: equal children */
#define SX_EG_RULE_GIVEN (UINT32_MAX - 1) /* reason: united from outside */

#define SX_EG_INLINE 2u                /* children kept in the node itself */
#define SX_EG_ROOT (UINT32_C(1) << 31) /* in `tie`: the node names a class */
#define SX_EG_WIDE (UINT32_C(1) << 30) /* in a link: an entry of wide[] */
#define SX_EG_LINK_END (SX_EG_ROOT - 1)

typedef struct {
    uint32_t attr;
    uint8_t op;
    uint8_t arity;
    /* True: an equal node of the same class stands for this one, which matching passes over. */
    uint8_t dead;
    /* Of a node that names a class: a set of bits, one for each operation among the members of the class, taken
     * modulo 8. It may hold more than there are. */
    uint8_t ops;
    /* The children as they were inserted. With more than two, kid[0] is the first of them in wide[]. */
    uint32_t kid[SX_EG_INLINE];
    /* For each child: the next node in the list of parents of its class. */
    uint32_t next[SX_EG_INLINE];
    /* Of a node that names a class: SX_EG_ROOT with its first parent. Of any other: a smaller node of its class. */
    uint32_t tie;
    /* The next member of the class; the members are a ring. */
    uint32_t member;
} sx_eg_node;
_Static_assert(sizeof(sx_eg_node) == 32, "a node is 32 bytes");
typedef struct {
    uint32_t kid, next, owner;
} sx_eg_wide;
typedef struct {
    /* The node that this one was united with; itself at the root of the forest of reasons. */
    uint32_t up;
    /* The reason that was given to sx_eg_union. */
    uint32_t rule;
} sx_eg_why;

#define SX_EG_REPAIRS 64u /* a power of two */
typedef struct sx_eg sx_eg;

/* What is known of a class. `make` computes the record of one node from the records of its children; `join`
 * merges what two equal classes know: *changed when `into` learnt something. A join that fails (say, unequal
 * types) refuses the union. */
typedef struct {
    /* How many bytes a record has, a multiple of 8; 0: there is no analysis. */
    size_t size;
    void *self;
    sx_code (*make)(sx_ctx *cx, void *self, const sx_eg *eg, uint32_t node, void *record);
    sx_code (*join)(sx_ctx *cx, void *self, void *into, const void *from, bool *changed);
} sx_eg_analysis;

struct sx_eg {
    sx_eg_node *node;
    /* [node_count] NULL where no reasons are kept (`unproven`). */
    sx_eg_why *why;
    /* [node_count] the records, of analysis.size bytes each. */
    uint8_t *record;
    uint32_t node_count, node_capacity, why_capacity, record_capacity;
    /* The children of nodes that have more than two. */
    sx_eg_wide *wide;
    uint32_t wide_count, wide_capacity;
    /* The hash table: hash << 32 | node + 1; a slot that is 0 is free. */
    uint64_t *slot;
    uint32_t slot_count, slot_used, slot_capacity;
    /* For rebuild: lists of parents of absorbed classes. This is the list that is worked on. */
    uint32_t repair_head;
    /* A ring of the lists that follow; the first one is at repair_at. */
    uint32_t repair[SX_EG_REPAIRS];
    uint32_t repair_at, repair_count;
    /* The end of the last list, if others were appended to it because the ring was full. */
    uint32_t repair_tail;
    /* Classes whose record has changed; rebuild tells their parents. */
    uint32_t *learnt;
    uint32_t learnt_count, learnt_capacity;
    /* An absorbed class had a record that says less than that of its new class. Its parents are told when they are
     * repaired. */
    bool learn_moved;
    /* There was no memory to note a class, so rebuild looks at all nodes. */
    bool learn_all;
    /* The log for matchers: nodes below `old_count` whose class, children or record has changed. */
    uint32_t *changed;
    uint32_t changed_count, changed_capacity;
    /* How often the log was thrown away. A matcher that had not read it looks at all nodes again. */
    uint32_t changed_lost;
    /* Nodes that some matcher has seen; the nodes after them are new to all. */
    uint32_t old_count;
    uint32_t class_count;
    /* Nodes that are not dead. */
    uint32_t live_count;
    uint64_t union_count;
    sx_eg_analysis analysis;
    /* No reasons are kept. It is set before the first node, to measure what reasons cost. */
    bool unproven;
};

/* An empty graph; `analysis` may be NULL. Memory in cx's arena. */
sx_code sx_eg_init(sx_ctx *cx, sx_eg *eg, const sx_eg_analysis *analysis);

/* The node with this content, new or found; `child` holds nodes or classes. A new node is a class of its own.
 *   errors   SX_LIMIT too many nodes; SX_NOMEM; what analysis.make says (the node is then not added) */
sx_code sx_eg_add(sx_ctx *cx, sx_eg *eg, uint16_t op, uint32_t attr, const uint32_t *child,
                  uint32_t arity, uint32_t *node);
/* The same, but only if it is there already: SX_EG_NONE otherwise. */
uint32_t sx_eg_lookup(const sx_eg *eg, uint16_t op, uint32_t attr, const uint32_t *child,
                      uint32_t arity);
/* The same as `count` (at most SX_EG_BATCH) calls of sx_eg_add of one operation with at most SX_EG_BATCH_ARITY
 * children, in order, but what they touch in memory is brought near for all of them first. Child k of node i
 * is operand[k].at[i * stride]; where one is SX_EG_NONE, node[i] is. attr NULL: 0 for all.
 *   errors   as sx_eg_add; some of the nodes may be there then */
#define SX_EG_BATCH 32u
#define SX_EG_BATCH_ARITY 4u
typedef struct {
    const uint32_t *at;
    uint32_t stride;
} sx_eg_operand;
sx_code sx_eg_add_batch(sx_ctx *cx, sx_eg *eg, uint16_t op, const uint32_t *attr,
                        const sx_eg_operand *operand, uint32_t arity, uint32_t count,
                        uint32_t *node);
/* The same, but only if they are there already: SX_EG_NONE otherwise. */
void sx_eg_find_batch(const sx_eg *eg, uint16_t op, const uint32_t *attr,
                      const sx_eg_operand *operand, uint32_t arity, uint32_t count, uint32_t *node);

/* Declares the classes of nodes `a` and `b` equal; `reason` is any number of the caller's below
 * SX_EG_RULE_GIVEN, or one of the two above. Congruence waits for sx_eg_rebuild.
 *   errors   what analysis.join says: the graph is then unchanged */
sx_code sx_eg_union(sx_ctx *cx, sx_eg *eg, uint32_t a, uint32_t b, uint32_t reason);

/* Restores congruence, hash-consing and the analysis.  errors  what the analysis says */
sx_code sx_eg_rebuild(sx_ctx *cx, sx_eg *eg);

/* A graph from its parts (snapshot.c): room for exactly so many nodes, of which those with more than two
 * children have `wide` children together; every node in order, `made` its children as inserted, `class_` the
 * smallest node of its class, all checked by the caller (children below their node, classes named by their
 * smallest nodes), its reason where one is kept; then everything else is built, the analysis by its own
 * functions, in O(n). The log of changes is then empty and nothing has been seen.
 *   errors   SX_CORRUPT two live nodes are equal, or a dead one has no living equal in its class; SX_NOMEM;
 *            those of the analysis */
sx_code sx_eg_restore_begin(sx_ctx *cx, sx_eg *eg, const sx_eg_analysis *analysis, uint32_t nodes,
                            uint32_t wide);
void sx_eg_restore_node(sx_eg *eg, const sx_eg_node *content, const uint32_t *made, uint32_t class_,
                        sx_eg_why why);
sx_code sx_eg_restore_end(sx_ctx *cx, sx_eg *eg);

/* Verifies every invariant of a rebuilt graph: hash table complete, congruence closed, member rings and parent
 * lists complete, counts, analysis at its fixpoint. SX_INTERNAL names the node. */
sx_code sx_eg_check(sx_ctx *cx, const sx_eg *eg);

static inline bool sx_eg_is_rebuilt(const sx_eg *eg)
{
    return eg->repair_head == SX_EG_LINK_END && eg->repair_count == 0 && eg->learnt_count == 0 &&
           !eg->learn_all;
}
static inline bool sx_eg_is_class(const sx_eg *eg, uint32_t node)
{
    return (eg->node[node].tie & SX_EG_ROOT) != 0;
}
static inline uint32_t sx_eg_find(const sx_eg *eg, uint32_t node)
{
    SX_ASSERT(node < eg->node_count);
    sx_eg_node *at = eg->node;
    for (;;) {
        uint32_t up = at[node].tie;
        if ((up & SX_EG_ROOT) != 0) {
            return node;
        }
        uint32_t over = at[up].tie;
        if ((over & SX_EG_ROOT) != 0) {
            return up;
        }
        at[node].tie = over; /* halving */
        node = over;
    }
}
/* Says that this node, or SX_EG_NONE, will soon be looked at. */
static inline void sx_eg_approach(const sx_eg *eg, uint32_t node)
{
    __builtin_prefetch(&eg->node[node < eg->node_count ? node : 0]);
}
/* The k-th child as it was inserted: its class is sx_eg_child. */
static inline uint32_t sx_eg_made_child(const sx_eg *eg, uint32_t node, uint32_t k)
{
    const sx_eg_node *n = &eg->node[node];
    SX_ASSERT(k < n->arity);
    return n->arity <= SX_EG_INLINE ? n->kid[k] : eg->wide[n->kid[0] + k].kid;
}
static inline uint32_t sx_eg_child(const sx_eg *eg, uint32_t node, uint32_t k)
{
    return sx_eg_find(eg, sx_eg_made_child(eg, node, k));
}
static inline void *sx_eg_record(const sx_eg *eg, uint32_t node)
{
    return eg->record + (size_t)sx_eg_find(eg, node) * eg->analysis.size;
}

/* Members: from any node of a class round to it again; dead ones among them. */
static inline uint32_t sx_eg_member_next(const sx_eg *eg, uint32_t node)
{
    return eg->node[node].member;
}
/* Is one of the members of a class an `op`? */
static inline bool sx_eg_has_op(const sx_eg *eg, uint32_t class_, uint32_t op)
{
    SX_ASSERT(class_ < eg->node_count);
    uint32_t n = class_;
    do {
        if (eg->node[n].op == op) {
            return true;
        }
        n = eg->node[n].member;
    } while (n != class_);
    return false;
}
/* Operations of the members of a class. */
static inline sx_bits sx_eg_ops(const sx_eg *eg, uint32_t class_)
{
    SX_ASSERT(class_ < eg->node_count);
    sx_bits ops = {0};
    uint32_t n = class_;
    do {
        sx_bits_add(&ops, eg->node[n].op);
        n = eg->node[n].member;
    } while (n != class_);
    return ops;
}

/* Parents of a class: for (l = sx_eg_parent_first(eg, c); l != SX_EG_LINK_END; l = sx_eg_parent_next(eg, l));
 * dead ones among them; a node that has the class twice as a child comes twice, newest first. */
static inline uint32_t sx_eg_parent_first(const sx_eg *eg, uint32_t class_)
{
    SX_ASSERT(sx_eg_is_class(eg, class_));
    return eg->node[class_].tie & ~SX_EG_ROOT;
}
static inline uint32_t sx_eg_parent_node(const sx_eg *eg, uint32_t link)
{
    return (link & SX_EG_WIDE) != 0 ? eg->wide[link & ~SX_EG_WIDE].owner : link / SX_EG_INLINE;
}
static inline uint32_t sx_eg_parent_slot(const sx_eg *eg, uint32_t link)
{
    return (link & SX_EG_WIDE) == 0
               ? link % SX_EG_INLINE
               : (link & ~SX_EG_WIDE) - eg->node[sx_eg_parent_node(eg, link)].kid[0];
}
static inline uint32_t sx_eg_parent_next(const sx_eg *eg, uint32_t link)
{
    return (link & SX_EG_WIDE) != 0 ? eg->wide[link & ~SX_EG_WIDE].next
                                    : eg->node[link / SX_EG_INLINE].next[link % SX_EG_INLINE];
}

/* Reasons: `up` is the node that `node` was united with, itself at the root of its tree. */
static inline sx_eg_why sx_eg_why_of(const sx_eg *eg, uint32_t node)
{
    SX_ASSERT(node < eg->node_count && !eg->unproven);
    return eg->why[node];
}
#endif
