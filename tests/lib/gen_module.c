#include "tests/lib/gen_module.h"

#include <string.h>

#include "tests/lib/test.h"

void sx_gen_module_make(sx_gen_module_tables *t)
{
    /* mov rax, [rdi+8]; mov rcx, [rsi+16]; vmovss xmm0, [rax+rcx*4]; vaddss is not among the forms, so: vaddps with the
     * one element of w broadcast; vmovss [rax+rcx*4], xmm0; ret  (bytes checked against the assembler by the
     * encoder's test) */
    static const uint8_t code[] = {0x48, 0x8b, 0x47, 0x08, 0x48, 0x8b, 0x4e, 0x10, 0xc5, 0xfa, 0x10,
                                   0x04, 0x88, 0x48, 0x8b, 0x17, 0xc4, 0xe2, 0x79, 0x18, 0x0a, 0xc5,
                                   0xf8, 0x58, 0xc1, 0xc5, 0xfa, 0x11, 0x04, 0x88, 0xc3};
    memset(t, 0, sizeof(*t));
    memcpy(t->strings, "xwyk", 4);
    memcpy(t->code, code, sizeof(code));
    float one = 1.0F;
    memcpy(t->weights, &one, sizeof(one));
    t->info = (sx_module_info){.isa = 3, .numerics = SX_NUMERICS_VERSION};
    t->tensor[0] = (sx_module_tensor){.name = {0, 1},
                                      .place = SX_TENSOR_INPUT,
                                      .rank = 1,
                                      .element_bytes = 4,
                                      .dim = {4},
                                      .size = 16,
                                      .dtype = 1};
    t->tensor[1] = (sx_module_tensor){.name = {1, 1},
                                      .place = SX_TENSOR_WEIGHT,
                                      .rank = 1,
                                      .element_bytes = 4,
                                      .dim = {1},
                                      .size = 4,
                                      .dtype = 1};
    t->tensor[2] = (sx_module_tensor){.name = {2, 1},
                                      .place = SX_TENSOR_OUTPUT,
                                      .rank = 1,
                                      .element_bytes = 4,
                                      .dim = {SX_GEN_POINTS},
                                      .size = 4 * SX_GEN_POINTS,
                                      .dtype = 1};
    t->kernel[0] = (sx_module_kernel){.name = {3, 1}, .part_count = 1};
    t->part[0] = (sx_module_part){.grid = {1, 1, SX_GEN_POINTS}};
    t->launch[0] = (sx_module_launch){.kernel = 0, .arg_count = 2};
    t->arg[0] = 1;
    t->arg[1] = 2;
}

sx_module sx_gen_module_view(const sx_gen_module_tables *t)
{
    return (sx_module){.info = &t->info,
                       .info_count = 1,
                       .strings = t->strings,
                       .strings_count = 16,
                       .tensor = t->tensor,
                       .tensor_count = 3,
                       .kernel = t->kernel,
                       .kernel_count = 1,
                       .part = t->part,
                       .part_count = 1,
                       .launch = t->launch,
                       .launch_count = 1,
                       .arg = t->arg,
                       .arg_count = 2,
                       .code = t->code,
                       .code_count = 31,
                       .weights = t->weights,
                       .weights_count = 64};
}

void sx_gen_module_encode(sx_ctx *cx, const sx_gen_module_tables *t, sx_buf *bytes)
{
    sx_module module = sx_gen_module_view(t);
    ck_sx_ok(cx, sx_module_encode(cx, &module, bytes));
}

void sx_gen_module(sx_ctx *cx, sx_buf *bytes)
{
    sx_gen_module_tables tables;
    sx_gen_module_make(&tables);
    sx_gen_module_encode(cx, &tables, bytes);
}
