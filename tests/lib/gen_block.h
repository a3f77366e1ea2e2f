/* gen_block.h - a module with a block program, by hand: a kernel for GPUs whose threads share memory. */
#ifndef SX_TESTS_LIB_GEN_BLOCK_H
#define SX_TESTS_LIB_GEN_BLOCK_H
#include "tests/lib/gen_module.h"

#define SX_GEN_BLOCK_THREADS 64
/* Input x, weight w = 1 and output y: as many elements as threads for each point of the grid. The block of a point
 * copies its elements of x to the last 256 bytes of its shared memory (cp.async), waits for all of its threads, and
 * writes them to y in reverse order, each plus w and plus the first index of the point. */
enum { SX_GEN_BLOCK_X, SX_GEN_BLOCK_W, SX_GEN_BLOCK_Y };
/* Its PTX, with the NUL behind it, and where its entry stands. */
sx_span sx_gen_block_text(void);
uint32_t sx_gen_block_entry(void);
void sx_gen_block_make(const int64_t grid[3], uint32_t shared_bytes, sx_gen_module_tables *tables);
/* The element of y that such a module has to give. */
float sx_gen_block_expected(const int64_t grid[3], const float *x, float w, uint64_t element);
#endif
