/* ahead.h - parts of a program that are worked on before their turn, side by side on the threads of the ctx's team.
 *
 * The parts of a program share its limits: what the first ones use up the later ones lack. Ahead of its turn each part
 * is given what all of them together may use. When its turn comes and what is left is more than it used, it has done
 * nothing else than it would have done now, and its result is taken. In all other cases, and where it failed, the
 * result is dropped and the part is worked on in its turn, as without threads. So results, reports and errors are the
 * same with any number of threads.
 */
#ifndef SX_CORE_OPTIMIZE_AHEAD_H
#define SX_CORE_OPTIMIZE_AHEAD_H
#include "core/optimize/optimize.h"
#include "core/store/pieces.h"

typedef struct {
    /* Which piece, and the options it has in its turn, with limits as if it were the first one. */
    uint32_t piece;
    const sx_graph *program;
    sx_optimize_options options;
    bool keeps; /* its e-graph is wanted */

    /* The fields below are results, in the memory of `cx` until they are taken. */
    sx_ctx cx;
    sx_code code;
    uint64_t fuel; /* that cx had */
    sx_graph *better;
    sx_optimize_report *report;
    sx_buf snapshot; /* of a part that is kept */
} sx_ahead_part;
typedef struct {
    sx_ctx cx; /* memory of the list: the program's is the same with and without it */
    const sx_device *device;
    sx_ahead_part *part;
    uint32_t count, capacity;
    uint32_t *order; /* [count] the numbers of the parts, those that take longest first */
} sx_ahead;

void sx_ahead_init(sx_ahead *ahead, const sx_ctx *cx, const sx_device *device);
/* A part at the end of the list, whose fields are the caller's to fill in.
 *   errors   SX_NOMEM, in ahead->cx */
sx_code sx_ahead_add(sx_ahead *ahead, sx_ahead_part **part);
/* Works on all parts of the list. Where that fails there is no result. */
void sx_ahead_run(sx_ahead *ahead, const sx_ctx *cx);
/* Takes the result for `piece` if it is what `left` gives: its memory belongs to cx from then on, and cx has paid its
 * fuel. NULL: there is none. */
const sx_ahead_part *sx_ahead_take(sx_ctx *cx, sx_ahead *ahead, uint32_t piece,
                                   const sx_eg_limits *left);
/* Drops the results that nobody took. */
void sx_ahead_fini(sx_ahead *ahead);

/* The same program with attributes of its own, so that its e-graph knows nothing of the program it is a part of. */
sx_code sx_ahead_detach(sx_ctx *cx, const sx_graph *program, sx_graph **out);
#endif
