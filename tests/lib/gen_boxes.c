#include "tests/lib/gen_boxes.h"

#include <string.h>

#include "core/ir/ir.h"
#include "tests/lib/test.h"

static const char ptx[] =
    ".version 8.0\n"
    ".target sm_90\n"
    ".address_size 64\n"
    "\n"
    ".extern .shared .align 1024 .b8 pool[];\n"
    "\n"
    ".visible .entry boxes(.param .u64 x, .param .u64 w, .param .u64 y,\n"
    "                      .param .align 64 .b8 x_map[128])\n"
    ".reqntid 256, 1, 1\n"
    "{\n"
    "    .reg .pred %p<4>;\n"
    "    .reg .b32 %r<20>;\n"
    "    .reg .b64 %rd<8>;\n"
    "    .reg .f32 %f<4>;\n"
    "    ld.param.u64 %rd2, [w];\n"
    "    ld.param.u64 %rd3, [y];\n"
    "    mov.u32 %r1, %tid.x;\n"
    "    mov.u32 %r2, pool;\n"
    "    add.u32 %r3, %r2, 1024;\n"
    "    mov.u32 %r4, %ctaid.x;\n"
    "    shl.b32 %r4, %r4, 5;\n"
    "    mov.u32 %r5, %ctaid.y;\n"
    "    shl.b32 %r5, %r5, 3;\n"
    "    setp.ne.u32 %p1, %r1, 0;\n"
    "    @%p1 bra made;\n"
    "    mov.u32 %r6, 1;\n"
    "    mbarrier.init.shared::cta.b64 [%r3], %r6;\n"
    "    fence.mbarrier_init.release.cluster;\n"
    "made:\n"
    "    bar.sync 0;\n"
    "    @%p1 bra wait;\n"
    "    mov.b64 %rd4, x_map;\n"
    "    cvta.param.u64 %rd5, %rd4;\n"
    "    mov.u32 %r7, 1024;\n"
    "    mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r3], %r7;\n"
    "    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes\n"
    "        [%r2], [%rd5, {%r4, %r5}], [%r3];\n"
    "wait:\n"
    "    mov.u32 %r8, 0;\n"
    "again:\n"
    "    mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r3], %r8;\n"
    "    @%p2 bra over;\n"
    "    bra again;\n"
    "over:\n"
    "    shr.u32 %r9, %r1, 5;\n"
    "    and.b32 %r10, %r1, 31;\n"
    "    shl.b32 %r11, %r9, 7;\n"
    "    shl.b32 %r12, %r10, 2;\n"
    "    shl.b32 %r13, %r9, 4;\n"
    "    xor.b32 %r12, %r12, %r13;\n"
    "    add.u32 %r11, %r11, %r12;\n"
    "    add.u32 %r11, %r11, %r2;\n"
    "    ld.shared.f32 %f1, [%r11];\n"
    "    ld.global.f32 %f2, [%rd2];\n"
    "    add.rn.f32 %f1, %f1, %f2;\n"
    "    mov.u32 %r14, %nctaid.x;\n"
    "    shl.b32 %r14, %r14, 5;\n"
    "    add.u32 %r15, %r5, %r9;\n"
    "    add.u32 %r16, %r4, %r10;\n"
    "    mad.lo.u32 %r15, %r15, %r14, %r16;\n"
    "    mul.wide.u32 %rd6, %r15, 4;\n"
    "    add.u64 %rd3, %rd3, %rd6;\n"
    "    st.global.f32 [%rd3], %f1;\n"
    "    ret;\n"
    "}\n";

void sx_gen_boxes_make(sx_gen_module_tables *t)
{
    static const int64_t elements[] = {SX_GEN_BOXES_X_ELEMENTS, 1, SX_GEN_BOXES_Y_ELEMENTS};
    const char *entry = strstr(ptx, ".visible");
    ck_assert_ptr_nonnull(entry);
    sx_gen_module_make(t);
    t->text = (sx_span){(const uint8_t *)ptx, sizeof(ptx)};
    t->info.arch = SX_ARCH_NVIDIA;
    t->info.level = 90;
    for (uint32_t i = 0; i < t->tensors; i++) {
        t->tensor[i].dim[0] = elements[i];
        t->tensor[i].size = 4 * (uint64_t)elements[i];
    }
    t->kernel[0].form = SX_FORM_PTX;
    t->kernel[0].arch = SX_ARCH_NVIDIA;
    t->kernel[0].level = 90;
    t->kernel[0].code_size = sizeof(ptx);
    t->kernel[0].arg_count = 3;
    t->part[0] = (sx_module_part){
        .entry = (uint64_t)(entry - ptx), .grid = {1, 3, 2}, .threads = 256, .shared_bytes = 1032};
    t->args = t->launch[0].arg_count = 3;
    for (uint32_t k = 0; k < t->args; k++) {
        t->arg[k] = k; /* x, w, y */
    }
    t->map[0] = (sx_module_map){.arg = SX_GEN_BOXES_X,
                                .dtype = SX_F32,
                                .element_bytes = 4,
                                .rank = 2,
                                .swizzle_bytes = 128,
                                .promoted_bytes = 256,
                                .offset = 4 * SX_GEN_BOXES_COLUMNS,
                                .dim = {SX_GEN_BOXES_COLUMNS, SX_GEN_BOXES_ROWS},
                                .stride = {4, 4 * SX_GEN_BOXES_COLUMNS},
                                .box = {32, 8}};
    t->maps = 1;
}

float sx_gen_boxes_expected(const float *x, float w, uint64_t element)
{
    uint64_t row = element / SX_GEN_BOXES_Y_COLUMNS, column = element % SX_GEN_BOXES_Y_COLUMNS;
    bool inside = row < SX_GEN_BOXES_ROWS && column < SX_GEN_BOXES_COLUMNS;
    return (inside ? x[(row + 1) * SX_GEN_BOXES_COLUMNS + column] : 0.0F) + w;
}
