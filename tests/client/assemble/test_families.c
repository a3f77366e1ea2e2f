/* What is emitted for GPUs goes through a real assembler: every form of the table of PTX instructions, and a kernel of
 * every kind and element type. Nothing spills. Skipped where there is no CUDA toolkit. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/assemble/assemble.h"
#include "core/core.h"
#include "core/ptx/ptx.h"
#include "tests/core/ptx/forms.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
    cx.fuel = SX_FUEL_DEFAULT;
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- the table ---- */

static const struct {
    uint32_t target;
    char feature;
    const char *name;
} machines[] = {{80, 0, "sm_80"}, {89, 0, "sm_89"}, {90, 'a', "sm_90a"}};

/* An instruction of the table with every modifier, in a kernel of its own; false: the target lacks it. */
static bool make_form(sx_ptx_op op, uint32_t machine, sx_buf *text)
{
    sx_ptx_module *module;
    sx_forms f = {.turn = 0};
    ck_sx_ok(&cx,
             sx_ptx_module_make(&cx, machines[machine].target, machines[machine].feature, &module));
    sx_ptx_begin(&f.b, &cx, module, "forms");
    (void)sx_ptx_parameter(&f.b, "data", SX_PTX_TYPE_U64);
    f.shared = sx_ptx_shared(&f.b, "tile", 128, 1024);
    f.pointer = sx_ptx_register(&f.b, SX_PTX_B64);
    f.label = sx_ptx_label(&f.b);
    sx_ptx_place(&f.b, f.label);
    uint32_t before = f.b.kernel->insn_count;
    forms_sweep(&f, op);
    bool some = f.b.kernel->insn_count > before;
    sx_ptx_put(&f.b, SX_PTX_OP_EXIT, SX_PTX_M(0), NULL, 0);
    ck_sx_ok(&cx, sx_ptx_end(&f.b));
    sx_buf_clear(text);
    sx_ptx_print(module, text);
    return some;
}

START_TEST(test_every_form_assembles)
{
    const sxa_options options = {.with = SXA_ANY};
    uint32_t assembled = 0, refused = 0;
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 24);
    for (uint32_t op = 0; op < SX_PTX_OP_COUNT; op++) {
        sxa_result result;
        if (make_form((sx_ptx_op)op, (uint32_t)_i, &text)) {
            sx_code code =
                sxa_assemble(&cx, sx_buf_span(&text), machines[_i].name, &options, &result);
            if (code != SX_OK) {
                (void)fprintf(stderr, "%s for %s: %s\n", sx_ptx_row_of((sx_ptx_op)op)->text,
                              machines[_i].name, cx.error.text);
                sx_ctx_reset_error(&cx);
                refused++;
            }
            assembled++;
        }
    }
    ck_assert_uint_eq(refused, 0);
    ck_assert_uint_ge(assembled, 80);
    sx_buf_fini(&text);
}
END_TEST

/* ---- kernels of every kind and type ---- */

static uint32_t texts;

/* In this process, which may die: it is the test's own. Whatever would be refused fails the test at once. */
static sx_code assemble(void *self, sx_ctx *c, sx_span text, const char *target, sx_span *code)
{
    const sxa_options options = {.with = SXA_ANY};
    sxa_result result;
    (void)self;
    ck_sx_ok(c, sxa_assemble(c, text, target, &options, &result));
    ck_assert_uint_ge(result.record->kernel_count, 1);
    for (uint32_t k = 0; k < result.record->kernel_count; k++) {
        const sx_cubin_kernel *kernel = &result.record->kernel[k];
        ck_assert_msg(kernel->spill_count == 0 && kernel->stack_bytes == 0,
                      "%.*s for %s: %u spills, %u bytes of local memory", (int)kernel->name.len,
                      (const char *)kernel->name.ptr, target, kernel->spill_count,
                      kernel->stack_bytes);
    }
    ck_assert_uint_eq(result.failure_count, 0);
    *code = result.cubin;
    texts++;
    return SX_OK;
}

#define KERNELS \
    7 /* of eight operations, two of which may share one: a sum of rows, and what else walks them */
/* A map, reductions along both dimensions, moves, and for numbers a contraction; for floats a softmax, too. */
static void make_program(sx_dtype dtype, sx_buf *text)
{
    const char *name = sx_dtype_name(dtype);
    bool numbers = dtype != SX_BOOL, real = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
    sx_buf_print(text, "sx 1\ngraph \"g\" {\n");
    sx_buf_print(text, "  %%x = parameter {name = \"x\", weight = 0} : %s[45, 35]\n", name);
    sx_buf_print(text, "  %%y = parameter {name = \"y\", weight = 0} : %s[35, 21]\n", name);
    sx_buf_print(text, "  %%i = parameter {name = \"i\", weight = 0} : i64[7]\n");
    sx_buf_print(text, "  %%0 = %s(%%x, %%x) : %s[45, 35]\n", numbers ? "add" : "xor", name);
    sx_buf_print(text, "  %%1 = reduce(%%x) {dims = [0], reducer = add} : %s[35]\n", name);
    sx_buf_print(text, "  %%2 = reduce(%%x) {dims = [1], reducer = add} : %s[45]\n", name);
    sx_buf_print(text, "  %%3 = concatenate(%%x, %%0) {axis = 1} : %s[45, 70]\n", name);
    sx_buf_print(text, "  %%4 = gather(%%x, %%i) {axis = 0} : %s[7, 35]\n", name);
    sx_buf_print(text, "  %%5 = reverse(%%x) {dims = [0]} : %s[45, 35]\n", name);
    sx_buf_print(text,
                 numbers ? "  %%6 = dot_general(%%x, %%y) {lhs_contract = [1], rhs_contract "
                           "= [0]} : %s[45, 21]\n"
                         : "  %%6 = not(%%x) : %s[45, 35]\n",
                 name);
    sx_buf_print(text,
                 real ? "  %%7 = softmax(%%x) {axis = 1} : %s[45, 35]\n"
                      : "  %%7 = reverse(%%y) {dims = [1]} : %s[35, 21]\n",
                 name);
    sx_buf_put_text(text, "  return ");
    for (uint32_t k = 0; k < 8; k++) {
        sx_buf_print(text, "%s%%%u as \"o%u\"", k > 0 ? ", " : "", k, k);
    }
    sx_buf_put_text(text, "\n}\n");
}

static void compile(sx_dtype dtype, const char *device)
{
    sx_buf text;
    sx_image image;
    const sx_assembler assembler = {.assemble = assemble};
    sx_buf_init(&text, 1 << 16);
    cx.stage_count = 0; /* of the compilation before */
    make_program(dtype, &text);
    sx_core_request request = {.ir = sx_buf_span(&text),
                               .target = sx_span_of(device),
                               .assembler = SX_SPAN_LITERAL("that of the test"),
                               .assemble = &assembler};
    sx_image_init(&image);
    sx_code code = sx_core_compile(&cx, &request, &image);
    ck_assert_msg(code == SX_OK, "%s for %s: %s\n%.*s", sx_dtype_name(dtype), device, cx.error.text,
                  (int)text.len, (const char *)text.ptr);
    ck_assert_uint_ge(image.cubin.len / sizeof(sx_module_cubin), KERNELS);
    sx_image_fini(&image);
    sx_buf_fini(&text);
}

/* Each type on one device, in turns; bf16 also on that with the fewest instructions, and f32 on all of them. */
START_TEST(test_every_kind_and_type_assembles)
{
    static const char *const devices[] = {"a100", "rtx3090", "rtx4090", "h100", "b200"};
    compile((sx_dtype)_i, devices[(uint32_t)_i % SX_COUNT(devices)]);
    if (_i == (int)SX_BF16) {
        compile((sx_dtype)_i, devices[0]);
    }
    for (uint32_t d = 0; _i == (int)SX_F32 && d < SX_COUNT(devices); d++) {
        compile(SX_F32, devices[d]);
    }
    ck_assert_uint_ge(texts, KERNELS);
}
END_TEST

int main(void)
{
    sxa_found found;
    sx_ctx_init(&cx, (size_t)1 << 24);
    sxa_find(&cx, SXA_NVJITLINK, NULL, &found);
    if (!found.found) {
        sxa_find(&cx, SXA_PTXAS, NULL, &found);
    }
    sx_ctx_fini(&cx);
    if (!found.found) {
        printf("SKIPPED: CUDA toolkit: no assembler\n");
        return SX_TEST_SKIPPED;
    }
    Suite *suite = suite_create("client.assemble.families");
    TCase *cases = tcase_create("families");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_every_form_assembles, 0, (int)SX_COUNT(machines));
    tcase_add_loop_test(cases, test_every_kind_and_type_assembles, 0, SX_DTYPE_COUNT);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
