/* gen_module.h - hand-made modules of known machine code that adds argument 0 to element g2 of its result for
 * each grid point, so that a runner that misses or repeats a point is caught. */
#ifndef SX_TESTS_LIB_GEN_MODULE_H
#define SX_TESTS_LIB_GEN_MODULE_H
#include "protocol/module.h"

#define SX_GEN_POINTS 1000
typedef struct {
    sx_module_info info;
    sx_module_symbol symbol[2];
    sx_module_range range[4];
    sx_module_variant variant[3];
    sx_module_guard guard[8];
    sx_module_extent extent[5];
    sx_module_tensor tensor[12];
    sx_module_kernel kernel[4];
    sx_module_part part[4];
    sx_module_launch launch[16];
    uint32_t arg[40];
    sx_module_cubin cubin[4];
    sx_module_map map[4];
    sx_module_case cases[4];
    sx_module_number number[16];
    sx_module_axis axis[5]; /* one more than there may be */
    sx_module_pair pair[4];
    /* How many records of each table above there are. */
    uint32_t symbols, ranges, variants, guards, extents, tensors, kernels, parts, launches, args,
        cubins, maps, case_count, numbers, axes, pairs;
    /* One record of each table of the report, if `with_report`. */
    bool with_report;
    sx_module_stage stage;
    sx_module_rewrite rewrite;
    sx_module_check check;
    sx_module_search search;
    sx_module_rule rule;
    sx_module_point point;
    sx_module_sharding sharding;
    sx_module_step step;
    uint8_t constants[64];
    uint8_t weights[64];
    uint8_t code[64];
    sx_span text; /* the code, where it is longer or is text; borrowed */
    /* Of sx_gen_module_for_gpu: the text, and a cubin at a multiple of 64 behind it. */
    uint8_t ptx[4096];
    char strings[16];
} sx_gen_module_tables;

/* Input x of 4, weight w = 1, output y of SX_GEN_POINTS; one kernel: y += w. */
void sx_gen_module_make(sx_gen_module_tables *tables);

/* All that a module can say and this runtime runs. Symbol n is 1 to 8 or 16 to 64 step 16. Inputs
 * x of n and d of 4; weight w = 1; outputs y of n and z of 4 in place of d; state s, one number, first 5.
 *   variant 0, n a multiple of 4: y = 1 + 3 w; s += 6 w; z += w   (fill, copy, loops inside each other)
 *   variant 1, n up to 8: y = x; s += 2; z += w                    (a fill in the prologue, a copy) */
void sx_gen_module_make_rich(sx_gen_module_tables *tables);
enum {
    SX_GEN_X,
    SX_GEN_W,
    SX_GEN_Y,
    SX_GEN_Z,
    SX_GEN_D,
    SX_GEN_S,
    SX_GEN_T,
    SX_GEN_ROUND,
    SX_GEN_P
};

/* Two variants that share what their prologues make. Symbol n is 1 or 2; input x of n; weight w = 1; constant 5;
 * outputs y of n; q, persistent: each variant has the launches q += w in its prologue and y += q. */
void sx_gen_module_make_shared(sx_gen_module_tables *tables);
enum { SX_GEN_SHARED_X, SX_GEN_SHARED_W, SX_GEN_SHARED_C, SX_GEN_SHARED_Y, SX_GEN_SHARED_Q };

/* A branch and a while. Input p, a bool; weight w = 1; output y of 4, temporary q, a bool.
 *   0 fill     y = 1                         5 copy     q = p
 *   1 branch   p: launch 2, else 3 and 4     6 while    7, then as long as q: 8 and 9, at most 3 times
 *   2 kernel   y += w                        7 kernel   y += w
 *   3 kernel   y += w                        8 kernel   y += w
 *   4 kernel   y += w                        9 fill     q = false
 * So y is 5 where p is true, else 4. */
void sx_gen_module_make_choices(sx_gen_module_tables *tables);
enum { SX_GEN_CHOICE_P, SX_GEN_CHOICE_W, SX_GEN_CHOICE_Y, SX_GEN_CHOICE_Q };

/* Makes the kernels of any of them PTX for sm_80 that does the same. With `cubin`, which is
 * tests/fuzz/seeds/fuzz_cubin/add.cubin, each part has it for sm_80, too. */
void sx_gen_module_for_gpu(sx_gen_module_tables *tables, sx_span cubin);
extern const char sx_gen_module_ptx[];

sx_module sx_gen_module_view(const sx_gen_module_tables *tables); /* points into them */
void sx_gen_module_encode(sx_ctx *cx, const sx_gen_module_tables *tables, sx_buf *bytes);
void sx_gen_module(sx_ctx *cx, sx_buf *bytes); /* the first one, encoded */
#endif
