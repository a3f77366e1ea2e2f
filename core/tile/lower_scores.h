/* lower_scores.h - inside core/tile: what the lowerings of online sums and of nested contractions have in common. */
#ifndef SX_CORE_TILE_LOWER_SCORES_H
#define SX_CORE_TILE_LOWER_SCORES_H
#include "core/tile/lower_inside.h"
#include "core/tile/online.h"

typedef struct {
    sx_lower l;
    const sx_tile_unit *unit;
    sx_online_blocks blocks;
    sx_tile *tile, *query[SX_TILE_PRODUCTS_MAX];
    sx_tile_online *online;
} sx_lower_scores;

/* What is lowered, for this schedule; its kernel has no part yet.
 *   errors   SX_UNIMPLEMENTED a schedule of another form */
sx_code sx_lower_scores_begin(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                              const sx_analysis *analysis, const sx_schedule *schedule,
                              sx_lower_scores **scores);
sx_code sx_lower_scores_refuse(sx_lower_scores *w, const char *why);
/* The instruction of the schedule; all arguments that it multiplies are of its type. */
sx_code sx_lower_scores_matrix(sx_lower_scores *w);
/* The sides of the block and of its queries; what they take of a thread's registers. */
sx_code sx_lower_scores_measure(sx_lower_scores *w);
/* The view of an argument whose side and sum are these dimensions. */
void sx_lower_scores_view(sx_lower_scores *w, uint32_t argument, uint32_t side, uint32_t sum,
                          sx_tile_operand *o);
/* The dimension of the inner contractions. */
uint32_t sx_lower_scores_inner(const sx_lower_scores *w);
/* Layouts, slots, the ring and the queries beside it; all views are there. */
sx_code sx_lower_scores_rings(sx_lower_scores *w);
/* A program of one element: begins at its row and batch, all else at 0. */
void sx_lower_scores_begin_program(sx_lower_scores *w);
sx_code sx_lower_scores_end_program(sx_lower_scores *w, sx_part *part);
/* The programs of whole stages and of the rest: what `made`, an instruction, makes of the sums of the `count`
 * instructions `dot`, which are in registers 0 and on. */
sx_code sx_lower_scores_programs(sx_lower_scores *w, uint32_t made, const uint32_t *dot,
                                 uint32_t count);
/* The numerics plan by the instruction, of these extents. */
void sx_lower_scores_name(sx_lower_scores *w, sx_kernel_kind kind, const int64_t *extent,
                          uint32_t count);
/* The part, checked. */
sx_code sx_lower_scores_part(sx_lower_scores *w);
#endif
