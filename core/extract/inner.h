/* inner.h - inside core/extract only: the problem as the rungs see it, fuel, and memory that is used again.
 *
 * A part is a piece of the problem: costs in whole units, children once each, no self loops. What it means to
 * pick a node of a part, in terms of nodes of the problem, is a rope: a tree of joins whose leaves are nodes
 * of the problem.
 */
#ifndef SX_CORE_EXTRACT_INNER_H
#define SX_CORE_EXTRACT_INNER_H
#include "core/extract/extract.h"

#define XT_NEVER UINT64_MAX        /* cost of no program */
#define XT_TOP (UINT64_C(1) << 60) /* costs above count as this */

/* ---- tree costs, again and again on one problem ---- */
typedef struct {
    double key;
    uint32_t node;
} xt_item;
typedef struct {
    const sx_xt *p;
    sx_xt_tree *tree;
    /* For each node, its class. */
    uint32_t *owner;
    /* For each node: how many children are not settled, each occurrence counted. */
    uint32_t *pending;
    /* For each node, how many that are at the start; the nodes where there are none. */
    uint32_t *child_count;
    uint32_t *leaf;
    uint32_t leaf_count;
    /* For each node: what it costs together with its settled children. */
    double *sum;
    uint32_t *reader_first; /* [class_count + 1] */
    /* The nodes that read a class, once for each occurrence; [reader_first[class], reader_first[class + 1]). */
    uint32_t *reader;
    /* For each class: its cheapest node is known. */
    bool *settled;
    /* For each node its dearest child, the only one that counts; or NULL. */
    uint32_t *last;
    xt_item *heap;
    uint32_t heap_count;
} xt_searcher;
/* ---- memory in stack order: blocks of the arena, used again after a release ---- */
#define XT_BLOCKS_MAX 64u
typedef struct {
    uint8_t *block[XT_BLOCKS_MAX];
    size_t block_bytes[XT_BLOCKS_MAX];
    uint32_t block_count;
    /* The block that is in use, and how many of its bytes are. */
    uint32_t at;
    size_t used;
} xt_pool;
typedef struct {
    uint32_t at;
    size_t used;
} xt_mark;

/* ---- one solve ---- */
typedef struct {
    uint32_t a, b;
} xt_join;
typedef struct {
    sx_ctx *cx;
    const sx_xt *problem;
    const sx_xt_options *options;
    /* What 1 is worth in costs of the problem. */
    double unit;
    /* All costs are multiples of it; it is at least 1. */
    uint64_t grain;
    uint64_t work;
    /* A share of the fuel: no more work than this is done. */
    uint64_t budget;
    /* The amount of work at which the deadline is asked next. */
    uint64_t next_poll;
    bool expired, cancelled;
    xt_pool pool;
    /* Ropes are numbers: below node_count a node, above it join[number - node_count]. */
    xt_join *join;
    uint32_t join_count, join_capacity;
} xt;

/* Zeroed only on request; NULL past the limit of the arena, with cx->error set. */
void *sx_xt_take(xt *x, size_t count, size_t size);
void *sx_xt_take_zeroed(xt *x, size_t count, size_t size);
#define XT_TAKE(x, type, count) ((type *)sx_xt_take((x), (count), sizeof(type)))
#define XT_TAKE_ZEROED(x, type, count) ((type *)sx_xt_take_zeroed((x), (count), sizeof(type)))
static inline xt_mark sx_xt_mark(const xt *x)
{
    return (xt_mark){x->pool.at, x->pool.used};
}
static inline void sx_xt_release(xt *x, xt_mark mark)
{
    x->pool.at = mark.at;
    x->pool.used = mark.used;
}
/* Counts work; false when the share is used up, the deadline passed or the request is no longer wanted. */
bool sx_xt_spend(xt *x, uint64_t amount);
bool sx_xt_out(const xt *x);

/* Memory from the pool of `x`, or from cx where that is NULL. Before the first run all tree costs are 0. */
sx_code sx_xt_searcher_init(sx_ctx *cx, xt *x, xt_searcher *s, const sx_xt *problem,
                            sx_xt_tree *tree);
/* `paid` [class_count] or NULL: classes that cost nothing more; their choice is SX_XT_NONE. */
void sx_xt_searcher_run(xt_searcher *s, const uint8_t *paid);

static inline uint64_t sx_xt_add(uint64_t a, uint64_t b)
{
    return a >= XT_TOP || b >= XT_TOP - a ? XT_TOP : a + b;
}

/* Nodes of the problem that both mean; SX_XT_NONE means none. */
sx_code sx_xt_join(xt *x, uint32_t a, uint32_t b, uint32_t *rope);
/* choice[class] = node for every leaf of a rope. Memory for the walk from the pool. */
sx_code sx_xt_write_rope(xt *x, uint32_t rope, const uint32_t *owner, uint32_t *choice);

/* ---- a piece of the problem ---- */
typedef struct {
    uint32_t class_count, node_count;
    uint32_t *node_first; /* [class_count + 1] */
    uint32_t *edge_first; /* [node_count + 1] */
    uint32_t *child;      /* each class once for a node, never the node's own */
    uint32_t child_capacity;
    /* For each node; for nodes of forced classes what they cost above the cheapest of the class. */
    uint64_t *cost;
    /* For each node the nodes of the problem that it stands for. */
    uint32_t *rope;
    /* For each class: every program holds it. */
    uint8_t *forced;
    /* What the nodes cost that are decided. */
    uint64_t paid;
    uint32_t paid_rope;
    /* What follows is what the last reduction left that changed nothing. */
    /* How many words a set of classes has; 0: there are too many classes for sets. */
    uint32_t words;
    /* For each class: the set of classes that every program of it holds, itself among them. */
    uint64_t *need;
    uint32_t *order; /* classes, children first where no cycle forbids */
} xt_part;
sx_code sx_xt_part_make(xt *x, xt_part *part, uint32_t class_count, uint32_t node_count,
                        uint32_t edge_count);
/* The part with those nodes alone for which `keep` is not 0; NULL: with all. */
sx_code sx_xt_part_copy(xt *x, const xt_part *from, const uint8_t *keep, xt_part *to);
/* The part as a problem without roots, for the tree search; the arrays are shared but for the costs. */
sx_code sx_xt_view_of(xt *x, const xt_part *part, sx_xt *view);
static inline uint32_t sx_xt_edges(const xt_part *part)
{
    return part->edge_first[part->node_count];
}

/* A program of a part. Its cost is without `paid`. */
typedef struct {
    /* For each class the node that was chosen, or SX_XT_NONE. */
    uint32_t *choice;
    /* The classes of the program, children first. */
    uint32_t *order;
    uint32_t count;
    /* XT_NEVER: there is no program. */
    uint64_t cost;
} xt_program;
sx_code sx_xt_program_make(xt *x, const xt_part *part, xt_program *program);
/* Fills in order, count and cost from the choice. The cost is XT_NEVER where the choice has a cycle, or lacks a class
 * that it needs. */
sx_code sx_xt_program_walk(xt *x, const xt_part *part, xt_program *program);

/* What the searches for good programs of a part share: the part as a problem, and its tree costs. */
typedef struct {
    sx_xt view;
    sx_xt_tree tree;
    xt_searcher searcher;
} xt_trees;
sx_code sx_xt_trees_init(xt *x, const xt_part *part, xt_trees *trees);
/* The best program, by its cost as a graph with sharing, of those that the tree optimum and greedy sets in a few fixed
 * orders give. `best` was made before. */
sx_code sx_xt_greedy(xt *x, const xt_part *part, xt_trees *trees, xt_program *best);
/* Changes one class at a time, or all readers of one, while that gains. */
sx_code sx_xt_descend(xt *x, const xt_part *part, xt_trees *trees, xt_program *best);
/* Smaller nodes at the same cost, from the roots down: which of equal programs is found depends less on the
 * way there. */
sx_code sx_xt_polish(xt *x, const xt_part *part, xt_trees *trees, xt_program *best);

/* What a reduction found. OPEN: choices are left. DONE: `paid` and its rope are the least. CLOSED: nothing
 * within the limit. */
typedef enum { XT_OPEN, XT_DONE, XT_CLOSED } xt_verdict;
/* In place; only programs that cost at most `limit` (with paid) are kept. need and order hold for XT_OPEN. */
sx_code sx_xt_reduce(xt *x, xt_part *part, uint64_t limit, xt_verdict *verdict);

/* Lagrangian bound of an open part (without paid); kills[n] = 1 for nodes no program within `limit` (without
 * paid) picks. reduced[n]: what picking n costs above the bound, or 0. */
sx_code sx_xt_relax(xt *x, const xt_part *part, uint64_t limit, uint32_t rounds, uint8_t *kills,
                    double *reduced, uint64_t *bound, uint32_t *kill_count);

/* The same by landmark cuts; adds to kills and their count. */
sx_code sx_xt_cuts(xt *x, const xt_part *part, uint64_t limit, uint8_t *kills, uint64_t *bound,
                   uint32_t *kill_count);

/* Divides an open part into pieces that do not depend on each other; label[class] is the number of its piece. */
sx_code sx_xt_split(xt *x, const xt_part *part, uint32_t *label, uint32_t *count);
sx_code sx_xt_part_pick(xt *x, const xt_part *from, const uint32_t *label, uint32_t wanted,
                        xt_part *to);

typedef struct {
    /* What the best program that was found costs, with `paid`; XT_NEVER: there is none within the limit. */
    uint64_t cost;
    /* No program of the part costs less, with `paid`. */
    uint64_t bound;
    /* The nodes of that program. */
    uint32_t rope;
} xt_outcome;
/* Branch and reduce until the best within `limit` is proven or the budget is used up. `part` is used up. */
sx_code sx_xt_branch(xt *x, xt_part *part, uint64_t limit, uint32_t depth, xt_outcome *outcome);
#endif
