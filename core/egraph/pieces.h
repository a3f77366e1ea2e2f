/* pieces.h - a program and the distinct parts it is cut into (core/ir/roll.h), parts of parts included: what is worked on, stored and met
 * one by one.
 */
#ifndef SX_CORE_EGRAPH_PIECES_H
#define SX_CORE_EGRAPH_PIECES_H
#include "core/ir/roll.h"

#define SX_PIECES_DEPTH_MAX 4u /* parts within parts */

typedef struct {
    sx_key key; /* sx_graph_key */
    const sx_graph *program;
    const sx_roll *roll;   /* how it is cut; NULL: it is not */
    const uint32_t *inner; /* [roll->part_count] numbers of pieces */
    uint32_t node_count;   /* operations */
} sx_piece;
typedef struct {
    sx_piece *piece; /* piece 0 is the program; every other one is inner to some piece */
    uint32_t count, capacity;
} sx_pieces;

/* `graph` must outlive the result, which is in cx's arena.  errors  as sx_roll_find */
sx_code sx_pieces_find(sx_ctx *cx, const sx_graph *graph, sx_pieces *pieces);
/* The same without the key of piece 0, which takes as long as all the rest. */
sx_code sx_pieces_cut(sx_ctx *cx, const sx_graph *graph, sx_pieces *pieces);
/* The same, without it too, of a program on a mesh, as its values lie (sx_roll_find_placed); its parts are not cut again. */
sx_code sx_pieces_find_placed(sx_ctx *cx, const sx_graph *graph, const sx_places *places,
                              sx_pieces *pieces);
#endif
