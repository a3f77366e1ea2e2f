/* gen_boxes.h - a module by hand whose block program has the copy engine (TMA) of a GPU read its input. */
#ifndef SX_TESTS_LIB_GEN_BOXES_H
#define SX_TESTS_LIB_GEN_BOXES_H
#include "tests/lib/gen_module.h"

/* Input x, weight w = 1 and output y, of f32. What is read of x is a matrix of 20 rows of 40 behind a first row that is
 * not; a block copies a box of 8 rows of 32 with a swizzle of 128 bytes, and writes it to y, each element plus w. The
 * boxes of all blocks make 24 rows of 64: beyond the matrix there are zeros. */
enum { SX_GEN_BOXES_X, SX_GEN_BOXES_W, SX_GEN_BOXES_Y };
enum {
    SX_GEN_BOXES_ROWS = 20,
    SX_GEN_BOXES_COLUMNS = 40,
    SX_GEN_BOXES_X_ELEMENTS = 21 * 40,
    SX_GEN_BOXES_Y_COLUMNS = 64,
    SX_GEN_BOXES_Y_ELEMENTS = 24 * 64
};
void sx_gen_boxes_make(sx_gen_module_tables *tables);
/* The element of y that such a module has to give. */
float sx_gen_boxes_expected(const float *x, float w, uint64_t element);
#endif
