/* Attention in steps, from the text to the numbers: one kernel on every target, the same as the interpreter
 * also where rows are masked by -inf or by very low numbers, and as the program without the rule; the bits of
 * a row depend on nothing beside it. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/attention_text.h"
#include "tests/lib/compiled.h"

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
#define TEXT_BYTES_MAX ((size_t)1 << 16)
#define MODULE_BYTES_MAX ((size_t)64 << 20)
#define ELEMENTS_MAX 65536

static uint32_t output_of(const sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    uint32_t t = 0;
    while (module->tensor[t].place != SX_TENSOR_OUTPUT) {
        t++;
    }
    return t;
}

/* The program's result after one run, in `value`; `online` kernels must be there, and no contraction or row
 * kernel beside one. */
static uint64_t run_text(const char *text, const char *target, const char *disabled,
                         uint32_t online, float value[ELEMENTS_MAX])
{
    sx_ctx cx;
    sx_buf module;
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_buf_init(&module, MODULE_BYTES_MAX);
    sx_test_request request = {
        .text = text, .target = target, .batch = 2, .disabled = disabled == NULL ? "" : disabled};
    sx_code code = sx_test_compile(&cx, &request, &module);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 2, SX_FILL_SMOOTH);
    ck_assert_uint_eq(sx_test_kernels(sxr_module(program), SX_MODULE_ONLINE), online);
    uint32_t others = sx_test_kernels(sxr_module(program), SX_MODULE_CONTRACTION) +
                      sx_test_kernels(sxr_module(program), SX_MODULE_ROW);
    ck_assert_uint_eq(others, online > 0 ? 0 : 3);
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    uint32_t t = output_of(program);
    uint64_t count = sxr_module(program)->tensor[t].size / 4;
    ck_assert_uint_le(count, ELEMENTS_MAX);
    memcpy(value, sxr_memory(program, t), count * 4);
    sxr_close(program);
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
    return count;
}

/* _i: kind and target. 90 keys are more than a block. */
START_TEST(test_one_kernel)
{
    static float fused[ELEMENTS_MAX], plain[ELEMENTS_MAX];
    sx_attention_kind kind = (sx_attention_kind)(_i / 2);
    const char *target = targets[_i % 2];
    if (!sx_test_can_run(target)) {
        return;
    }
    sx_buf text;
    sx_buf_init(&text, TEXT_BYTES_MAX);
    sx_attention_text(kind, 90, 90, 12, &text);
    uint64_t count = run_text((const char *)text.ptr, target, NULL, 1, fused);
    uint64_t same = run_text((const char *)text.ptr, target, "online", 0, plain);
    ck_assert_uint_eq(count, same);
    for (uint64_t k = 0; k < count; k++) {
        ck_assert_msg(fabsf(fused[k] - plain[k]) <= 1e-5F * (1 + fabsf(plain[k])),
                      "%s, %s: element %llu is %.9g, without the rule %.9g",
                      sx_attention_name(kind), target, (unsigned long long)k, (double)fused[k],
                      (double)plain[k]);
    }
    sx_ctx cx; /* and by the interpreter, kernel by kernel and as a whole */
    sx_ctx_init(&cx, (size_t)1 << 30);
    cx.fuel = UINT64_C(1) << 50;
    sx_test_request request = {.text = (const char *)text.ptr, .target = target, .batch = 2};
    sxr_close(sx_test_run(&cx, &request, 2));
    sx_ctx_fini(&cx);
    sx_buf_fini(&text);
}
END_TEST

/* One row of queries does not fill a vector: nothing is gained, the three kernels stay. Long sequences take one. */
START_TEST(test_where_it_pays)
{
    static float value[ELEMENTS_MAX];
    if (!sx_test_can_run(targets[0])) {
        return;
    }
    sx_buf text;
    sx_buf_init(&text, TEXT_BYTES_MAX);
    sx_attention_text(SX_ATTENTION_SCALED, 256, 256, 16, &text);
    (void)run_text((const char *)text.ptr, targets[0], NULL, 1, value);
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.attention");
    TCase *cases = tcase_create("attention");
    tcase_add_loop_test(cases, test_one_kernel, 0, 2 * SX_ATTENTION_COUNT);
    tcase_add_test(cases, test_where_it_pays);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
