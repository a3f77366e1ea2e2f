/* Transformers from text to results: layers that are equal share their kernels, so that depth adds launches
 * and no code; every element of the outputs is compared with the interpreter. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "client/verify/verify.h"
#include "tests/lib/compiled.h"
#include "tests/lib/gen_transformer.h"

static const char *const target = "x86-64-v3";
static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_transformer shape_of(uint32_t layers, uint32_t encoder_layers)
{
    sx_transformer shape = sx_transformer_default(layers);
    shape.hidden = 32;
    shape.heads = 2;
    shape.ffn = 48;
    shape.seq = 7;
    shape.vocab = 19;
    shape.encoder_layers = encoder_layers;
    return shape;
}

static const char *text_of(const sx_transformer *shape)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 24);
    sx_transformer_print(shape, &text);
    const char *copy = sx_alloc_text(&cx, sx_buf_span(&text));
    sx_buf_fini(&text);
    ck_assert_ptr_nonnull(copy);
    return copy;
}

START_TEST(test_results)
{
    static const struct {
        uint32_t layers, encoder_layers;
        bool layer_norm, glu, causal, post_norm;
    } kind[] = {{4, 0, false, true, true, false},
                {4, 0, true, false, false, true},
                {2, 3, true, true, true, false}};
    sx_transformer shape = shape_of(kind[_i].layers, kind[_i].encoder_layers);
    shape.layer_norm = kind[_i].layer_norm;
    shape.glu = kind[_i].glu;
    shape.causal = kind[_i].causal;
    shape.post_norm = kind[_i].post_norm;
    for (int64_t batch = 1; batch <= 3; batch += 2) {
        sx_test_request request = {.text = text_of(&shape), .target = target, .batch = batch};
        sxr_program *program = sx_test_run(&cx, &request, 2);
        const sx_module *module = sxr_module(program);
        ck_assert_uint_lt(2 * module->kernel_count, module->launch_count);
        sxr_close(program);
    }
}
END_TEST

static void compile(uint32_t layers, uint64_t *kernels, uint64_t *launches, uint64_t *code)
{
    sx_transformer shape = shape_of(layers, 0);
    sx_test_request request = {.text = text_of(&shape), .target = target, .batch = 2};
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 28);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&bytes), 1, SX_FILL_SMOOTH);
    const sx_module *module = sxr_module(program);
    *kernels = module->kernel_count;
    *launches = module->launch_count;
    *code = module->code_count;
    sxr_close(program);
    sx_buf_fini(&bytes);
}

START_TEST(test_depth_adds_no_code)
{
    uint64_t kernels[2];
    uint64_t launches[2];
    uint64_t code[2];
    compile(3, &kernels[0], &launches[0], &code[0]);
    compile(12, &kernels[1], &launches[1], &code[1]);
    ck_assert_uint_eq(kernels[0], kernels[1]);
    ck_assert_uint_eq(code[0], code[1]);
    ck_assert_uint_gt(launches[1], 3 * launches[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.transformer");
    TCase *tcase = tcase_create("transformer");
    tcase_set_timeout(tcase, 400);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_results, 0, 3);
    tcase_add_test(tcase, test_depth_adds_no_code);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
