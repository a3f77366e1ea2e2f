/* block_sweep.h - the whole space of block schedules of a contraction, priced one by one by the full model: what the
 * search is held to. It shares the prices with core/search, and neither bounds, phases nor the order of its visits. */
#ifndef SX_TESTS_LIB_BLOCK_SWEEP_H
#define SX_TESTS_LIB_BLOCK_SWEEP_H
#include "core/search/search.h"

typedef struct {
    double least_ns;     /* of all that a core can hold; 0: there is none */
    sx_block_tiles best; /* the first that costs so much */
    uint64_t count;      /* of all that were priced */
    /* The most that a bound of core/cost is of a price that it is for: at most 1. */
    double bound_worst;
} sx_test_sweep;

/* Rows, columns, steps and tiles of warps by powers of two, 2 to SX_BLOCK_DEPTH_MAX stages, results stored by threads
 * or from every number of slots, rows of blocks visited together or not, slices in turn or apart, and both sides where
 * `sides` has them. Tiles of which half is outside of the problem are none of it, and neither are those of one side
 * that the search does not look at (products of more than 64 rows).
 *   matrix   NULL: each thread multiplies by itself */
void sx_test_sweep_blocks(const sx_device *device, const sx_analysis *analysis,
                          const sx_matrix_instruction *matrix, sx_search_sides sides,
                          sx_test_sweep *sweep);
#endif
