/* pieces.h - a program, its distinct parts (core/roll/roll.h), and the parts of those, in one list.
 *
 * Each of them is called a piece. Pieces are optimised, stored and compared with stored ones one at a time. For
 * example, a model of twelve equal layers has two pieces: the whole model, and one layer.
 */
#ifndef SX_CORE_STORE_PIECES_H
#define SX_CORE_STORE_PIECES_H
#include "core/roll/roll.h"

#define SX_PIECES_DEPTH_MAX 4u /* parts within parts */

typedef struct {
    sx_key key; /* sx_graph_key */
    const sx_graph *program;
    const sx_roll *roll;   /* how it is divided into parts; NULL: it is not */
    const uint32_t *inner; /* [roll->part_count] for each part, the number of its piece */
    uint32_t node_count;   /* number of operations */
} sx_piece;
typedef struct {
    sx_piece *piece; /* piece 0 is the program; every other one is inner to some piece */
    uint32_t count, capacity;
} sx_pieces;

/* Finds the pieces of `graph`, which must outlive the result. The result is in cx's arena.
 *   errors   as sx_roll_find */
sx_code sx_pieces_find(sx_ctx *cx, const sx_graph *graph, sx_pieces *pieces);
/* The same without the key of piece 0. To compute that key takes as long as all the rest. */
sx_code sx_pieces_cut(sx_ctx *cx, const sx_graph *graph, sx_pieces *pieces);
/* The same as sx_pieces_cut for a program on a mesh, whose values lie as `places` says (sx_roll_find). Parts are
 * not divided again. */
sx_code sx_pieces_find_placed(sx_ctx *cx, const sx_graph *graph, const sx_places *places,
                              sx_pieces *pieces);
#endif
