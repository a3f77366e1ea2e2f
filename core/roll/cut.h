/* cut.h - where to cut a program into layers, and what the files of rolling share. Private to them. */
#ifndef SX_CORE_ROLL_CUT_H
#define SX_CORE_ROLL_CUT_H
#include "core/roll/roll.h"

typedef struct {
    const sx_graph *graph;
    bool *live;   /* per node: an output depends on it */
    bool *weight; /* follows from weights and constants, static */
    /* Follows from positions and constants of one value, element by element: a causal mask. */
    bool *made;
    uint32_t *depth; /* longest path below, weights aside */
    uint32_t *path;  /* [path_count + 1] node of each level, from 1; its depth is its level */
    uint32_t path_count;
    uint32_t *after; /* highest level it depends on */
    uint32_t *level; /* where it belongs: `after` <= level <= that of its readers */
    uint32_t *cut;   /* ascending levels after which the program is cut */
    uint32_t cut_count;
} sx_roll_levels;

/* Nodes that every part reading them has a copy of. */
static inline bool sx_roll_is_copied(const sx_roll_levels *l, uint32_t n)
{
    return l->made[n] || l->graph->node[n].op == SX_OP_CONSTANT ||
           sx_op_info_of(l->graph->node[n].op)->op_class == SX_OPCLASS_VIEW;
}

/* Fills *l; cut_count 0 where nothing repeats. */
sx_code sx_roll_cut(sx_ctx *cx, const sx_graph *graph, sx_roll_levels *l);

/* roll.c */
sx_code sx_roll_copy_symbols(sx_ctx *cx, const sx_graph *from, sx_graph *to);
sx_code sx_roll_copy_node(sx_ctx *cx, sx_graph *to, const sx_graph *from, const sx_node *node,
                          const sx_node_id *input, sx_node_id *id);
#endif
