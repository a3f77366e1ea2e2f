/* fragments.h - finds out which pieces of a program (pieces.h) equal stored ones, before anything is saturated.
 *
 * A piece without parts is stored as an e-graph (library.h) and compared as meet.h says. A piece that is itself
 * divided into parts is stored as its wiring (wiring.h); it equals a stored one if all its parts do and the wiring is
 * the same. For a piece that equals a stored one the stored result is used; the others are saturated (optimize.h).
 *
 * The same program with the same stored parts has the same result. With other stored parts the result may be
 * another, equal program.
 */
#ifndef SX_CORE_OPTIMIZE_FRAGMENTS_H
#define SX_CORE_OPTIMIZE_FRAGMENTS_H
#include "core/store/meet.h"
#include "core/optimize/optimize.h"
#include "core/store/pieces.h"

#define SX_FRAGMENTS_STORED_MAX 64u

typedef struct {
    sx_key part;   /* sx_graph_key of the piece it may equal */
    sx_span bytes; /* aligned to 64 */
} sx_stored_part;
typedef struct {
    bool met;       /* the piece equals a stored part */
    uint32_t which; /* the number of that stored part */
    sx_key program; /* the sx_graph_key of that stored part */
    /* How parameters and outputs are paired, and which rules make the two equal. For a piece that is itself divided
     * into parts, `better` is not set. */
    sx_meeting *meeting;
} sx_fragment;
typedef struct sx_fragments {
    sx_pieces pieces;
    sx_fragment *of;     /* [pieces.count] */
    uint32_t left_count; /* undivided pieces for which no equal part is stored */
    uint32_t inserted;   /* nodes that were not in the stored e-graphs before */
    /* set of 1 << number of stored parts that are damaged or made by other rules */
    uint64_t refused;
    sx_span why; /* why the last of them was refused */
} sx_fragments;

/* Compares the pieces of `graph`, which is canonical and must outlive the result, with the stored parts. There are at
 * most SX_FRAGMENTS_STORED_MAX of these, and they are tried in their order.
 *   errors   SX_NOMEM; those of sx_pieces_find and sx_optimize_rules */
sx_code sx_fragments_find(sx_ctx *cx, const sx_graph *graph, const sx_optimize_options *options,
                          const sx_stored_part *stored, uint32_t stored_count,
                          sx_fragments *fragments);
#endif
