/* egraph.h - many equal programs in one graph: classes of nodes that are known to be equal.
 *
 * The engine knows no tensors. A node is an operation number, an attribute id (both opaque) and the classes of its children; equal
 * nodes are stored once (hash-consing). Nodes are numbered from 0 in order of insertion; a class is named by the smallest node in
 * it, so one kind of number names both: `sx_eg_find` turns any node into the name of its class.
 *
 * Work goes in rounds: look for matches, add nodes, unite classes, then `sx_eg_rebuild` restores congruence once for all unions
 * (Willsey 2021). Between unions and rebuild the graph may hold duplicates; searching wants a rebuilt graph.
 *
 * Every class carries a record of fixed size (the analysis) which is computed when a node is added, joined when classes unite and
 * carried upwards by rebuild. Every union is kept with its reason in a forest over the nodes, from which proof.h reads why two
 * nodes are equal (Nieuwenhuis 2005). Everything changed is appended to a log, so that a matcher can ask "what is new since".
 *
 * Layout: arrays of u32 in the arena of the request, 12 bytes a node, 16 bytes an edge, 8 bytes a hash slot; no pointers inside,
 * nothing depends on addresses. Rebuilding touches only parents of absorbed classes.
 * Papers: Willsey 2021 (egg); Downey, Sethi, Tarjan 1980; Detlefs, Nelson, Saxe 2005 (Simplify: modification times).
 */
#ifndef SX_CORE_EGRAPH_EGRAPH_H
#define SX_CORE_EGRAPH_EGRAPH_H
#include "core/base/base.h"

#define SX_EG_NONE UINT32_MAX
#define SX_EG_OPS_MAX 64u
#define SX_EG_ARITY_MAX 64u
#define SX_EG_NODES_MAX (1u << 30)
#define SX_EG_RULE_CONGRUENCE UINT32_MAX  /* reason: equal children */
#define SX_EG_RULE_GIVEN (UINT32_MAX - 1) /* reason: united from outside */

typedef struct {
    uint32_t attr;
    uint16_t op;
    uint8_t arity;
    uint8_t dead;  /* an equal node of the same class stands for it */
    uint32_t edge; /* its children are child[edge .. edge + arity) */
} sx_eg_node;
_Static_assert(sizeof(sx_eg_node) == 12, "a node is 12 bytes");

typedef struct sx_eg sx_eg;

/* What is known of a class. `make` computes the record of one node from the records of its children; `join` merges what two equal
 * classes know: *changed when `into` learnt something. A join that fails (say, unequal types) refuses the union. */
typedef struct {
    size_t size; /* bytes of a record, a multiple of 8; 0: no analysis */
    void *self;
    sx_code (*make)(sx_ctx *cx, void *self, const sx_eg *eg, uint32_t node, void *record);
    sx_code (*join)(sx_ctx *cx, void *self, void *into, const void *from, bool *changed);
} sx_eg_analysis;

struct sx_eg {
    sx_eg_node *node;
    uint32_t *up;          /* union-find: a smaller or equal node; roots name classes */
    uint32_t *member_next; /* ring of the members of a class */
    uint32_t *parent_head; /* list of edges whose child is this class; SX_EG_NONE ends */
    uint32_t *parent_tail;
    uint64_t *ops;        /* per class: set of operations among its members */
    uint32_t *proof_up;   /* forest of reasons: the node this one was united with */
    uint32_t *proof_rule; /* reason given to sx_eg_union */
    uint8_t *record;      /* node_count records */
    uint32_t node_count, node_capacity;
    uint32_t *child; /* class of the child; canonical after rebuild */
    uint32_t *made;  /* node the child was when the edge was made */
    uint32_t *owner; /* node the edge belongs to */
    uint32_t *edge_next;
    uint32_t edge_count, edge_capacity;
    uint64_t *slot; /* hash << 32 | node + 1; 0 is free */
    uint32_t slot_count, slot_used;
    uint32_t *absorbed; /* classes whose parents await rebuild */
    uint32_t absorbed_count, absorbed_capacity;
    uint32_t *learnt; /* classes whose record changed */
    uint32_t learnt_count, learnt_capacity;
    uint32_t *log; /* classes that gained a member or a fact, in order */
    uint32_t log_count, log_capacity;
    uint32_t class_count; /* roots */
    uint32_t live_count;  /* nodes that are not dead */
    uint64_t union_count;
    sx_eg_analysis analysis;
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

/* Declares the classes of nodes `a` and `b` equal; `reason` is any number of the caller's below SX_EG_RULE_GIVEN, or one of the
 * two above. Congruence waits for sx_eg_rebuild.
 *   errors   what analysis.join says: the graph is then unchanged */
sx_code sx_eg_union(sx_ctx *cx, sx_eg *eg, uint32_t a, uint32_t b, uint32_t reason);

/* Restores congruence, hash-consing and the analysis. */
sx_code sx_eg_rebuild(sx_ctx *cx, sx_eg *eg);

/* A graph from its parts (snapshot.c), in two calls: the first makes room for exactly so many nodes and edges; the caller fills in node,
 * child, made, up, proof_up and proof_rule, all of them checked (children below their nodes and canonical, classes named by their smallest
 * nodes); the second builds everything else, the analysis by its own functions, in O(n). The log is then empty.
 *   errors   SX_CORRUPT two live nodes are equal, or a dead one has no living equal in its class; SX_NOMEM; those of the analysis */
sx_code sx_eg_restore_begin(sx_ctx *cx, sx_eg *eg, const sx_eg_analysis *analysis, uint32_t nodes,
                            uint32_t edges);
sx_code sx_eg_restore_end(sx_ctx *cx, sx_eg *eg);

/* Verifies every invariant of a rebuilt graph: canonical children, hash table complete, congruence closed, member rings and
 * parent lists complete, counts, analysis at its fixpoint. SX_INTERNAL names the node. */
sx_code sx_eg_check(sx_ctx *cx, const sx_eg *eg);

static inline uint32_t sx_eg_find(const sx_eg *eg, uint32_t node)
{
    SX_ASSERT(node < eg->node_count);
    uint32_t *up = eg->up;
    while (up[node] != node) {
        up[node] = up[up[node]]; /* halving */
        node = up[node];
    }
    return node;
}
static inline uint32_t sx_eg_child(const sx_eg *eg, uint32_t node, uint32_t k)
{
    SX_ASSERT(k < eg->node[node].arity);
    return sx_eg_find(eg, eg->child[eg->node[node].edge + k]);
}
/* The k-th child as it was inserted: its class is sx_eg_child. */
static inline uint32_t sx_eg_made_child(const sx_eg *eg, uint32_t node, uint32_t k)
{
    SX_ASSERT(k < eg->node[node].arity);
    return eg->made[eg->node[node].edge + k];
}
static inline void *sx_eg_record(const sx_eg *eg, uint32_t node)
{
    return eg->record + (size_t)sx_eg_find(eg, node) * eg->analysis.size;
}
#endif
