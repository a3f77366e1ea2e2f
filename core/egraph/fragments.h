/* fragments.h - the parts of a program looked for among stored ones, before anything is saturated.
 *
 * A stored part is a snapshot (library.h), met as meet.h says, or a wiring (wiring.h) for a part that is cut again, which is met if all of
 * its pieces are and the wiring is the same. A part that met takes the program that was extracted for the stored one; the others are
 * saturated (optimize.h). With the same stored parts the same program has the same result; with others it may have another equal one.
 */
#ifndef SX_CORE_EGRAPH_FRAGMENTS_H
#define SX_CORE_EGRAPH_FRAGMENTS_H
#include "core/egraph/meet.h"
#include "core/egraph/optimize.h"
#include "core/egraph/pieces.h"

#define SX_FRAGMENTS_STORED_MAX 64u

typedef struct {
    sx_key part;   /* sx_graph_key of the piece it may equal */
    sx_span bytes; /* aligned to 64 */
} sx_stored_part;
typedef struct {
    bool met;
    uint32_t which; /* number of the stored part */
    sx_key program; /* its sx_graph_key */
    /* paired how, and by which rules; `better` of what is cut is not known here */
    sx_meeting *meeting;
} sx_fragment;
typedef struct sx_fragments {
    sx_pieces pieces;
    sx_fragment *of;     /* [pieces.count] */
    uint32_t left_count; /* pieces that are not cut and have met nothing */
    uint32_t inserted;   /* nodes that the stored graphs did not hold */
    uint64_t refused;    /* set of 1 << number: damaged, or of other rules */
    sx_span why;         /* of the last one refused */
} sx_fragments;

/* `graph` is canonical and outlives the result; `stored` at most SX_FRAGMENTS_STORED_MAX, tried in their order.
 *   errors   SX_NOMEM; as sx_pieces_find, sx_optimize_rules */
sx_code sx_fragments_find(sx_ctx *cx, const sx_graph *graph, const sx_optimize_options *options,
                          const sx_stored_part *stored, uint32_t stored_count,
                          sx_fragments *fragments);
#endif
