#include "tests/lib/gen_block.h"

#include <string.h>

#include "tests/lib/test.h"

static const char ptx[] = ".version 7.0\n"
                          ".target sm_80\n"
                          ".address_size 64\n"
                          "\n"
                          ".extern .shared .align 1024 .b8 pool[];\n"
                          "\n"
                          ".visible .entry turn(.param .u64 x, .param .u64 w, "
                          ".param .u64 y)\n"
                          ".reqntid 64, 1, 1\n"
                          "{\n"
                          "    .reg .b32 %r<12>;\n"
                          "    .reg .b64 %rd<8>;\n"
                          "    .reg .f32 %f<4>;\n"
                          "    ld.param.u64 %rd1, [x];\n"
                          "    ld.param.u64 %rd2, [w];\n"
                          "    ld.param.u64 %rd3, [y];\n"
                          "    mov.u32 %r1, %ctaid.z;\n"
                          "    cvt.rn.f32.u32 %f3, %r1;\n"
                          "    mov.u32 %r2, %nctaid.y;\n"
                          "    mov.u32 %r3, %ctaid.y;\n"
                          "    mad.lo.u32 %r1, %r1, %r2, %r3;\n"
                          "    mov.u32 %r2, %nctaid.x;\n"
                          "    mov.u32 %r3, %ctaid.x;\n"
                          "    mad.lo.u32 %r1, %r1, %r2, %r3;\n"
                          "    mov.u32 %r4, %tid.x;\n"
                          "    shl.b32 %r2, %r1, 6;\n"
                          "    add.u32 %r2, %r2, %r4;\n"
                          "    mul.wide.u32 %rd4, %r2, 4;\n"
                          "    add.u64 %rd1, %rd1, %rd4;\n"
                          "    add.u64 %rd3, %rd3, %rd4;\n"
                          "    mov.u32 %r5, pool;\n"
                          "    mov.u32 %r6, %dynamic_smem_size;\n"
                          "    sub.u32 %r6, %r6, 256;\n"
                          "    add.u32 %r5, %r5, %r6;\n"
                          "    shl.b32 %r7, %r4, 2;\n"
                          "    add.u32 %r8, %r5, %r7;\n"
                          "    cp.async.ca.shared.global [%r8], [%rd1], 4;\n"
                          "    cp.async.commit_group;\n"
                          "    cp.async.wait_group 0;\n"
                          "    bar.sync 0;\n"
                          "    sub.u32 %r9, %r5, %r7;\n"
                          "    ld.shared.f32 %f1, [%r9+252];\n"
                          "    ld.global.f32 %f2, [%rd2];\n"
                          "    add.rn.f32 %f1, %f1, %f2;\n"
                          "    add.rn.f32 %f1, %f1, %f3;\n"
                          "    st.global.f32 [%rd3], %f1;\n"
                          "    ret;\n"
                          "}\n";

sx_span sx_gen_block_text(void)
{
    return (sx_span){(const uint8_t *)ptx, sizeof(ptx)};
}

uint32_t sx_gen_block_entry(void)
{
    const char *entry = strstr(ptx, ".visible");
    ck_assert_ptr_nonnull(entry);
    return (uint32_t)(entry - ptx);
}

void sx_gen_block_make(const int64_t grid[3], uint32_t shared_bytes, sx_gen_module_tables *t)
{
    int64_t points = grid[0] * grid[1] * grid[2];
    sx_gen_module_make(t);
    t->text = sx_gen_block_text();
    t->info.arch = SX_ARCH_NVIDIA;
    t->info.level = 80;
    for (uint32_t i = 0; i < t->tensors; i++) {
        t->tensor[i].dim[0] = i == SX_GEN_BLOCK_W ? 1 : points * SX_GEN_BLOCK_THREADS;
        t->tensor[i].size = 4 * (uint64_t)t->tensor[i].dim[0];
    }
    t->kernel[0].form = SX_FORM_PTX;
    t->kernel[0].arch = SX_ARCH_NVIDIA;
    t->kernel[0].level = 80;
    t->kernel[0].code_size = sizeof(ptx);
    t->kernel[0].arg_count = 3;
    t->part[0] = (sx_module_part){.entry = sx_gen_block_entry(),
                                  .grid = {grid[0], grid[1], grid[2]},
                                  .threads = SX_GEN_BLOCK_THREADS,
                                  .shared_bytes = shared_bytes};
    t->args = t->launch[0].arg_count = 3;
    for (uint32_t k = 0; k < t->args; k++) {
        t->arg[k] = k; /* x, w, y */
    }
}

float sx_gen_block_expected(const int64_t grid[3], const float *x, float w, uint64_t element)
{
    uint64_t first = element / SX_GEN_BLOCK_THREADS / (uint64_t)(grid[1] * grid[2]);
    uint64_t thread = element % SX_GEN_BLOCK_THREADS;
    return x[element - thread + SX_GEN_BLOCK_THREADS - 1 - thread] + w + (float)first;
}
