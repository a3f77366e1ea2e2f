/* whole.h - inside client/verify: a module against the program that was sent, all outputs, all elements. */
#ifndef SX_CLIENT_VERIFY_WHOLE_H
#define SX_CLIENT_VERIFY_WHOLE_H
#include "client/runtime/runtime.h"
#include "client/verify/compare.h"

/* A module whose outputs are further off than this, relative to their largest magnitude, is handed out with a
 * warning. Where results on the way to an output are of narrower types, each rounds by up to u, half a unit in the last
 * place of 1 of the coarsest of them, and the roundings of n results one after the other add up like independent ones:
 * 4 u sqrt(n) is allowed beside, as far as compare.h allows one rounding of its own. */
#define SXR_PRECISE 1e-4

/* A text as a graph with the program's extents bound, as one device computes it. */
sx_code sxv_bound_graph(sx_ctx *cx, const sxr_program *program, sx_span text, sx_graph **bound);

typedef struct {
    uint64_t points, finite, nan;
    /* Elements that are beyond their bound. Only with `wide` they are counted and are no error. */
    uint64_t wrong;
    /* An element is imprecise by its group (compare.h), or further off than an output of its roundings may be without
     * a warning (SXR_PRECISE). */
    bool imprecise;
    /* The deviation and the bound of the element that is furthest out, relative to the largest magnitude of its
     * output. */
    double error, bound;
    /* What rounding alone does to the program: the largest spread of all outputs. */
    double spread;
} sxv_whole;
/* Takes the comparison of another run to it. */
void sxv_whole_add(sxv_whole *whole, const sxv_whole *more);
/* NaN agrees with NaN whatever the code does: is there nothing else? */
static inline bool sxv_whole_says_nothing(const sxv_whole *whole)
{
    return whole->points > 0 && whole->nan == whole->points;
}
/* For each node how far a result of it may be off without a warning, relative to its largest magnitude: SXR_PRECISE
 * and the roundings of narrow types on the way to it; with `tf32` those of the factors of f32, too. */
sx_code sxv_precise_bounds(sx_ctx *cx, const sx_graph *graph, bool tf32, const double **bound);
/* Takes one output to it: `memory` holds what the module made, `precise` is as of sxv_precise_bounds,
 * `spread` as of sxv_compare.
 *   errors   SX_MISMATCH as sxv_whole_compare; with `wide` a wrong element is counted, and is none */
sx_code sxv_whole_take(sx_ctx *cx, const sxv_pair *pair, const void *memory, sx_span name,
                       double precise, bool wide, double *spread, sxv_whole *whole, bool *unknown);
/* The outputs that are bound now, against the reference of `graph` on the inputs and weights that are bound now.
 *   errors   SX_MISMATCH names output, element, both values and the bound; SX_CORRUPT a parameter or output
 *            has no tensor of its size; those of sxv_reference_run */
sx_code sxv_whole_compare(sx_ctx *cx, const sxr_program *program, const sx_graph *graph,
                          const sxv_reference *reference, bool wide, sxv_whole *whole);
#endif
