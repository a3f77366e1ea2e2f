/* gen_module.h - a small hand-made module: one kernel of known machine code that adds 1 to element g2 of its
 * result for each grid point, so that a runner that misses or repeats a point is caught. */
#ifndef SX_TESTS_LIB_GEN_MODULE_H
#define SX_TESTS_LIB_GEN_MODULE_H
#include "protocol/module.h"

#define SX_GEN_POINTS 1000
typedef struct {
    sx_module_info info;
    sx_module_tensor tensor[3]; /* input x, weight w, output y */
    sx_module_kernel kernel[1];
    sx_module_part part[1];
    sx_module_launch launch[1];
    uint32_t arg[2];
    uint8_t weights[64];
    uint8_t code[64];
    char strings[16];
} sx_gen_module_tables;
void sx_gen_module_make(sx_gen_module_tables *tables);
sx_module sx_gen_module_view(const sx_gen_module_tables *tables); /* points into them */
void sx_gen_module_encode(sx_ctx *cx, const sx_gen_module_tables *tables, sx_buf *bytes);
void sx_gen_module(sx_ctx *cx, sx_buf *bytes); /* both */
#endif
