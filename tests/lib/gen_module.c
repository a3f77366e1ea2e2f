#include "tests/lib/gen_module.h"

#include <string.h>

#include "core/ir/ir.h"
#include "tests/lib/test.h"

#define ONE_F32 0x3f800000u
#define TWO_F32 0x40000000u

static sx_module_tensor tensor_of(uint32_t name, sx_module_place place, int64_t extent)
{
    return (sx_module_tensor){.name = {name, 1},
                              .place = place,
                              .rank = 1,
                              .element_bytes = 4,
                              .dim = {extent},
                              .size = 4 * (uint64_t)extent,
                              .dtype = SX_F32,
                              .variant = SX_MODULE_NONE,
                              .alias = SX_MODULE_NONE,
                              .initial = UINT64_MAX};
}

/* The code adds element 0 of argument 0 to element g2 of argument 1. */
static void put_kernel(sx_gen_module_tables *t, int64_t points)
{
    t->kernel[t->kernels] =
        (sx_module_kernel){.name = {3, 1},
                           .part_first = t->parts,
                           .part_count = 1,
                           .form = SX_FORM_X86_64,
                           .arch = SX_ARCH_X86_64,
                           .level = 3,
                           .arg_count = 2,
                           .result_count = 1,
                           .other = {SX_MODULE_NONE, SX_MODULE_NONE, SX_MODULE_NONE},
                           .code_size = 31};
    t->kernels++;
    t->part[t->parts++] = (sx_module_part){.grid = {1, 1, points}};
}

static sx_module_launch *put_launch(sx_gen_module_tables *t, sx_module_launch_kind kind,
                                    uint32_t arg_count, uint32_t a, uint32_t b)
{
    sx_module_launch *launch = &t->launch[t->launches++];
    *launch = (sx_module_launch){
        .kind = kind, .kernel = SX_MODULE_NONE, .arg_first = t->args, .arg_count = arg_count};
    const uint32_t arg[2] = {a, b};
    for (uint32_t k = 0; k < arg_count; k++) {
        t->arg[t->args++] = arg[k];
    }
    t->variant[t->variants - 1].launch_count++;
    return launch;
}

static void begin(sx_gen_module_tables *t)
{
    /* mov rax, [rdi+8]; mov rcx, [rsi+16]; vmovss xmm0, [rax+rcx*4]; vaddss is not among the forms, so: vaddps with the
     * one element of w broadcast; vmovss [rax+rcx*4], xmm0; ret  (bytes checked against the assembler by the
     * encoder's test) */
    static const uint8_t code[] = {0x48, 0x8b, 0x47, 0x08, 0x48, 0x8b, 0x4e, 0x10, 0xc5, 0xfa, 0x10,
                                   0x04, 0x88, 0x48, 0x8b, 0x17, 0xc4, 0xe2, 0x79, 0x18, 0x0a, 0xc5,
                                   0xf8, 0x58, 0xc1, 0xc5, 0xfa, 0x11, 0x04, 0x88, 0xc3};
    memset(t, 0, sizeof(*t));
    memcpy(t->strings, "xwykzdstpnab13", 14);
    memcpy(t->code, code, sizeof(code));
    float one = 1.0F, five = 5.0F;
    memcpy(t->weights, &one, sizeof(one));
    memcpy(t->constants, &five, sizeof(five));
    t->info = (sx_module_info){
        .name = {3, 1}, .arch = SX_ARCH_X86_64, .level = 3, .numerics = SX_NUMERICS_VERSION};
}

void sx_gen_module_make(sx_gen_module_tables *t)
{
    begin(t);
    t->variants = 1;
    t->tensor[0] = tensor_of(0, SX_TENSOR_INPUT, 4);
    t->tensor[1] = tensor_of(1, SX_TENSOR_WEIGHT, 1);
    t->tensor[2] = tensor_of(2, SX_TENSOR_OUTPUT, SX_GEN_POINTS);
    t->tensors = 3;
    put_kernel(t, SX_GEN_POINTS);
    put_launch(t, SX_LAUNCH_KERNEL, 2, 1, 2)->kernel = 0;
}

static void put_rich_tensors(sx_gen_module_tables *t)
{
    t->tensor[SX_GEN_X] = tensor_of(0, SX_TENSOR_INPUT, 64);
    t->tensor[SX_GEN_W] = tensor_of(1, SX_TENSOR_WEIGHT, 1);
    t->tensor[SX_GEN_Y] = tensor_of(2, SX_TENSOR_OUTPUT, 64);
    t->tensor[SX_GEN_Z] = tensor_of(4, SX_TENSOR_OUTPUT, 4);
    t->tensor[SX_GEN_Z].alias = SX_GEN_D;
    t->tensor[SX_GEN_D] = tensor_of(5, SX_TENSOR_INPUT, 4);
    t->tensor[SX_GEN_S] = tensor_of(6, SX_TENSOR_STATE, 1);
    t->tensor[SX_GEN_S].offset = 64;
    t->tensor[SX_GEN_S].initial = 0;
    t->tensor[SX_GEN_T] = tensor_of(7, SX_TENSOR_TEMPORARY, 64);
    t->tensor[SX_GEN_T].variant = 0;
    t->tensor[SX_GEN_ROUND] = tensor_of(7, SX_TENSOR_TEMPORARY, 1);
    t->tensor[SX_GEN_ROUND].variant = 0;
    t->tensor[SX_GEN_ROUND].offset = 256;
    t->tensor[SX_GEN_ROUND].rank = 0;
    t->tensor[SX_GEN_ROUND].dim[0] = 0;
    t->tensor[SX_GEN_ROUND].element_bytes = 8;
    t->tensor[SX_GEN_ROUND].size = 8;
    t->tensor[SX_GEN_ROUND].dtype = SX_I64;
    t->tensor[SX_GEN_P] = tensor_of(8, SX_TENSOR_PERSISTENT, 1);
    t->tensor[SX_GEN_P].variant = 1;
    t->tensor[SX_GEN_P].offset = 128;
    t->tensors = 9;
    t->info.arena_bytes = 320;
    t->info.state_bytes = 128;
    t->info.persistent_bytes = 192;
}

static void put_rich_launches(sx_gen_module_tables *t)
{
    t->variants = 1;
    put_launch(t, SX_LAUNCH_FILL, 1, SX_GEN_T, 0)->value = ONE_F32;
    put_launch(t, SX_LAUNCH_COPY, 2, SX_GEN_T, SX_GEN_Y);
    sx_module_launch *outer = put_launch(t, SX_LAUNCH_LOOP, 1, SX_GEN_ROUND, 0);
    outer->value = 3;
    outer->body = 3;
    put_launch(t, SX_LAUNCH_KERNEL, 2, SX_GEN_W, SX_GEN_Y)->kernel = 0;
    sx_module_launch *inner = put_launch(t, SX_LAUNCH_LOOP, 0, 0, 0);
    inner->value = 2;
    inner->body = 1;
    put_launch(t, SX_LAUNCH_KERNEL, 2, SX_GEN_W, SX_GEN_S)->kernel = 1;
    put_launch(t, SX_LAUNCH_KERNEL, 2, SX_GEN_W, SX_GEN_Z)->kernel = 2;
    t->variant[0].name = (sx_module_text){10, 1};
    t->variants = 2;
    t->variant[1].name = (sx_module_text){11, 1};
    t->variant[1].launch_first = t->launches;
    sx_module_launch *load = put_launch(t, SX_LAUNCH_FILL, 1, SX_GEN_P, 0);
    load->value = TWO_F32;
    load->prologue = 1;
    put_launch(t, SX_LAUNCH_COPY, 2, SX_GEN_X, SX_GEN_Y);
    put_launch(t, SX_LAUNCH_KERNEL, 2, SX_GEN_P, SX_GEN_S)->kernel = 1;
    put_launch(t, SX_LAUNCH_KERNEL, 2, SX_GEN_W, SX_GEN_Z)->kernel = 2;
}

static void put_rich_variants(sx_gen_module_tables *t)
{
    t->symbol[0] = (sx_module_symbol){.name = {9, 1}, .range_count = 2};
    t->symbols = 1;
    t->range[0] = (sx_module_range){1, 8, 1};
    t->range[1] = (sx_module_range){16, 64, 16};
    t->ranges = 2;
    t->guard[0] = (sx_module_guard){SX_GUARD_DIVISIBLE, 0, 4, 0};
    t->guard[1] = (sx_module_guard){SX_GUARD_MACHINE, SX_ARCH_X86_64, 3, 0};
    t->guard[2] = (sx_module_guard){SX_GUARD_RANGE, 0, 1, 8};
    t->guards = 3;
    t->variant[0].guard_count = 2;
    t->variant[1].guard_first = 2;
    t->variant[1].guard_count = 1;
    t->variant[1].persistent_offset = 128;
    t->variant[1].persistent_bytes = 64;
    t->extent[0] = (sx_module_extent){SX_EXTENT_TENSOR, SX_GEN_X, 0, 0, 1, 1, SX_MODULE_NONE};
    t->extent[1] = (sx_module_extent){SX_EXTENT_TENSOR, SX_GEN_Y, 0, 0, 1, 1, SX_MODULE_NONE};
    t->extent[2] = (sx_module_extent){SX_EXTENT_PART, 0, 2, 0, 1, 1, SX_MODULE_NONE};
    t->extents = 3;
}

void sx_gen_module_make_rich(sx_gen_module_tables *t)
{
    begin(t);
    put_rich_tensors(t);
    put_kernel(t, 64);
    put_kernel(t, 1);
    put_kernel(t, 4);
    put_rich_launches(t);
    put_rich_variants(t);
    t->with_report = true;
}

static sx_module_tensor truth_of(uint32_t name, sx_module_place place)
{
    sx_module_tensor tensor = tensor_of(name, place, 1);
    tensor.rank = 0;
    tensor.dim[0] = 0;
    tensor.element_bytes = 1;
    tensor.size = 1;
    tensor.dtype = SX_BOOL;
    return tensor;
}

void sx_gen_module_make_choices(sx_gen_module_tables *t)
{
    begin(t);
    t->tensor[SX_GEN_CHOICE_P] = truth_of(8, SX_TENSOR_INPUT);
    t->tensor[SX_GEN_CHOICE_W] = tensor_of(1, SX_TENSOR_WEIGHT, 1);
    t->tensor[SX_GEN_CHOICE_Y] = tensor_of(2, SX_TENSOR_OUTPUT, 4);
    t->tensor[SX_GEN_CHOICE_Q] = truth_of(7, SX_TENSOR_TEMPORARY);
    t->tensor[SX_GEN_CHOICE_Q].variant = 0;
    t->tensors = 4;
    t->info.arena_bytes = 64;
    t->variants = 1;
    put_kernel(t, 4);
    put_launch(t, SX_LAUNCH_FILL, 1, SX_GEN_CHOICE_Y, 0)->value = ONE_F32;
    sx_module_launch *branch = put_launch(t, SX_LAUNCH_BRANCH, 1, SX_GEN_CHOICE_P, 0);
    branch->first = 1;
    branch->body = 3;
    for (uint32_t i = 0; i < 3; i++) {
        put_launch(t, SX_LAUNCH_KERNEL, 2, SX_GEN_CHOICE_W, SX_GEN_CHOICE_Y)->kernel = 0;
    }
    put_launch(t, SX_LAUNCH_COPY, 2, SX_GEN_CHOICE_P, SX_GEN_CHOICE_Q);
    sx_module_launch *rounds = put_launch(t, SX_LAUNCH_WHILE, 1, SX_GEN_CHOICE_Q, 0);
    rounds->first = 1;
    rounds->body = 3;
    rounds->value = 3;
    for (uint32_t i = 0; i < 2; i++) {
        put_launch(t, SX_LAUNCH_KERNEL, 2, SX_GEN_CHOICE_W, SX_GEN_CHOICE_Y)->kernel = 0;
    }
    put_launch(t, SX_LAUNCH_FILL, 1, SX_GEN_CHOICE_Q, 0);
}

void sx_gen_module_make_shared(sx_gen_module_tables *t)
{
    begin(t);
    t->tensor[SX_GEN_SHARED_X] = tensor_of(0, SX_TENSOR_INPUT, 2);
    t->tensor[SX_GEN_SHARED_W] = tensor_of(1, SX_TENSOR_WEIGHT, 1);
    t->tensor[SX_GEN_SHARED_C] = tensor_of(3, SX_TENSOR_CONSTANT, 1);
    t->tensor[SX_GEN_SHARED_Y] = tensor_of(2, SX_TENSOR_OUTPUT, 2);
    t->tensor[SX_GEN_SHARED_Q] = tensor_of(8, SX_TENSOR_PERSISTENT, 1);
    t->tensors = 5;
    t->info.persistent_bytes = 64;
    put_kernel(t, 1);
    put_kernel(t, 2);
    t->symbol[0] = (sx_module_symbol){.name = {9, 1}, .range_count = 1};
    t->range[0] = (sx_module_range){1, 2, 1};
    t->symbols = t->ranges = 1;
    t->extent[0] =
        (sx_module_extent){SX_EXTENT_TENSOR, SX_GEN_SHARED_X, 0, 0, 1, 1, SX_MODULE_NONE};
    t->extent[1] =
        (sx_module_extent){SX_EXTENT_TENSOR, SX_GEN_SHARED_Y, 0, 0, 1, 1, SX_MODULE_NONE};
    t->extents = 2;
    t->guards = 2;
    for (uint32_t v = 0; v < 2; v++) {
        t->guard[v] = (sx_module_guard){SX_GUARD_EQUAL, 0, v + 1, 0};
        t->variant[v] = (sx_module_variant){.name = {10 + v, 1},
                                            .guard_first = v,
                                            .guard_count = 1,
                                            .launch_first = t->launches,
                                            .persistent_offset = 64};
        t->variants = v + 1;
        sx_module_launch *load =
            put_launch(t, SX_LAUNCH_KERNEL, 2, SX_GEN_SHARED_W, SX_GEN_SHARED_Q);
        load->kernel = 0;
        load->prologue = 1;
        put_launch(t, SX_LAUNCH_KERNEL, 2, SX_GEN_SHARED_Q, SX_GEN_SHARED_Y)->kernel = v;
    }
}

/* y[point] += w[0], by the first thread of each warp. */
const char sx_gen_module_ptx[] = ".version 7.0\n"
                                 ".target sm_80\n"
                                 ".address_size 64\n"
                                 "\n"
                                 ".visible .entry add(.param .u64 w, .param .u64 y, "
                                 ".param .u32 first, .param .u32 count)\n"
                                 "{\n"
                                 "    .reg .pred %p<2>;\n"
                                 "    .reg .b32 %r<8>;\n"
                                 "    .reg .b64 %rd<5>;\n"
                                 "    .reg .f32 %f<3>;\n"
                                 "    ld.param.u64 %rd1, [w];\n"
                                 "    ld.param.u64 %rd2, [y];\n"
                                 "    ld.param.u32 %r1, [first];\n"
                                 "    ld.param.u32 %r2, [count];\n"
                                 "    mov.u32 %r3, %tid.x;\n"
                                 "    setp.ne.u32 %p1, %r3, 0;\n"
                                 "    @%p1 bra done;\n"
                                 "    mov.u32 %r4, %ctaid.x;\n"
                                 "    mov.u32 %r5, %ntid.y;\n"
                                 "    mov.u32 %r6, %tid.y;\n"
                                 "    mad.lo.u32 %r4, %r4, %r5, %r6;\n"
                                 "    mov.u32 %r6, %nctaid.x;\n"
                                 "    mul.lo.u32 %r5, %r5, %r6;\n"
                                 "    ld.global.f32 %f2, [%rd1];\n"
                                 "next:\n"
                                 "    setp.ge.u32 %p1, %r4, %r2;\n"
                                 "    @%p1 bra done;\n"
                                 "    add.u32 %r7, %r1, %r4;\n"
                                 "    mul.wide.u32 %rd3, %r7, 4;\n"
                                 "    add.u64 %rd4, %rd2, %rd3;\n"
                                 "    ld.global.f32 %f1, [%rd4];\n"
                                 "    add.rn.f32 %f1, %f1, %f2;\n"
                                 "    st.global.f32 [%rd4], %f1;\n"
                                 "    add.u32 %r4, %r4, %r5;\n"
                                 "    bra next;\n"
                                 "done:\n"
                                 "    ret;\n"
                                 "}\n";

static void put_cubin(sx_gen_module_tables *t, sx_span cubin)
{
    size_t at = (t->text.len + 63) / 64 * 64;
    ck_assert_uint_le(at + cubin.len, sizeof(t->ptx));
    memcpy(t->ptx + at, cubin.ptr, cubin.len);
    t->text.len = at + cubin.len;
    ck_assert_uint_le(t->parts, SX_COUNT(t->cubin));
    for (uint32_t p = 0; p < t->parts; p++) {
        t->cubin[t->cubins++] = (sx_module_cubin){.kernel = p, /* each kernel has one part */
                                                  .part = p,
                                                  .level = 80,
                                                  .registers = 12,
                                                  .barriers = 1,
                                                  .parameter_bytes = 24,
                                                  .local_bytes = 16,
                                                  .spills = 2,
                                                  .shared_bytes = 512,
                                                  .offset = at,
                                                  .size = cubin.len,
                                                  .toolchain = {12, 2}};
    }
}

void sx_gen_module_for_gpu(sx_gen_module_tables *t, sx_span cubin)
{
    const char *entry = strstr(sx_gen_module_ptx, ".visible");
    ck_assert_ptr_nonnull(entry);
    t->info.arch = SX_ARCH_NVIDIA;
    t->info.level = 80;
    t->text = (sx_span){t->ptx, strlen(sx_gen_module_ptx) + 1};
    ck_assert_uint_le(t->text.len, sizeof(t->ptx));
    memcpy(t->ptx, sx_gen_module_ptx, t->text.len);
    for (uint32_t k = 0; k < t->kernels; k++) {
        ck_assert(t->kernel[k].part_first == k && t->kernel[k].part_count == 1);
        t->kernel[k].form = SX_FORM_PTX;
        t->kernel[k].arch = SX_ARCH_NVIDIA;
        t->kernel[k].level = 80;
        t->kernel[k].code_size = t->text.len;
    }
    for (uint32_t p = 0; p < t->parts; p++) {
        t->part[p].entry = (uint64_t)(entry - sx_gen_module_ptx);
    }
    for (uint32_t g = 0; g < t->guards; g++) {
        if (t->guard[g].kind == SX_GUARD_MACHINE) {
            t->guard[g] = (sx_module_guard){SX_GUARD_MACHINE, SX_ARCH_NVIDIA, 80, 0};
        }
    }
    if (cubin.len > 0) {
        put_cubin(t, cubin);
    }
}

sx_module sx_gen_module_view(const sx_gen_module_tables *t)
{
    uint32_t report = t->with_report ? 1 : 0;
    return (sx_module){.info = &t->info,
                       .info_count = 1,
                       .strings = t->strings,
                       .strings_count = 16,
                       .symbol = t->symbol,
                       .symbol_count = t->symbols,
                       .range = t->range,
                       .range_count = t->ranges,
                       .variant = t->variant,
                       .variant_count = t->variants,
                       .guard = t->guard,
                       .guard_count = t->guards,
                       .extent = t->extent,
                       .extent_count = t->extents,
                       .tensor = t->tensor,
                       .tensor_count = t->tensors,
                       .kernel = t->kernel,
                       .kernel_count = t->kernels,
                       .part = t->part,
                       .part_count = t->parts,
                       .launch = t->launch,
                       .launch_count = t->launches,
                       .arg = t->arg,
                       .arg_count = t->args,
                       .stage = &t->stage,
                       .stage_count = report,
                       .rewrite = &t->rewrite,
                       .rewrite_count = report,
                       .check = &t->check,
                       .check_count = report,
                       .search = &t->search,
                       .search_count = report,
                       .rule = &t->rule,
                       .rule_count = report,
                       .point = &t->point,
                       .point_count = report,
                       .sharding = &t->sharding,
                       .sharding_count = report,
                       .step = &t->step,
                       .step_count = report,
                       .code = t->text.ptr != NULL ? t->text.ptr : t->code,
                       .code_count = t->text.ptr != NULL ? t->text.len : 31,
                       .cubin = t->cubin,
                       .cubin_count = t->cubins,
                       .map = t->map,
                       .map_count = t->maps,
                       .cases = t->cases,
                       .cases_count = t->case_count,
                       .number = t->number,
                       .number_count = t->numbers,
                       .axis = t->axis,
                       .axis_count = t->axes,
                       .pair = t->pair,
                       .pair_count = t->pairs,
                       .constants = t->constants,
                       .constants_count = 64,
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
