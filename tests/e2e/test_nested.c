/* Gradients of attention by recomputation, from the text to the numbers: one kernel on every target, the same as the
 * interpreter, and for a batch element the same bits whatever the batch, the threads and the vector width. */
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/compiled.h"
#include "tests/lib/nested_text.h"

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
#define TEXT_BYTES_MAX ((size_t)1 << 16)
#define RESULT_BYTES_MAX ((size_t)1 << 16)

/* What was computed first, of batch element 0; the others are compared with it. */
typedef struct {
    uint8_t bits[RESULT_BYTES_MAX];
    size_t size;
    uint64_t numerics;
} reference;

static void run(const sx_nested_shape *s, const char *target, uint32_t threads, reference *first)
{
    sx_ctx cx;
    sx_buf text;
    sx_ctx_init(&cx, (size_t)1 << 30);
    cx.fuel = UINT64_C(1) << 50;
    sx_buf_init(&text, TEXT_BYTES_MAX);
    sx_nested_text(s, &text);
    sx_buf_put_u8(&text, 0);
    sx_test_request request = {
        .text = (const char *)text.ptr, .target = target, .disabled = "", .drawn = false};
    sxr_program *program = sx_test_run(&cx, &request, threads);
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_NESTED), 1);
    ck_assert_uint_eq(module->kernel_count, 1);
    uint32_t output = 0;
    while (module->tensor[output].place != SX_TENSOR_OUTPUT) {
        output++;
    }
    size_t size = module->tensor[output].size / (uint64_t)s->batch;
    ck_assert_uint_le(size, RESULT_BYTES_MAX);
    if (first->size == 0) {
        memcpy(first->bits, sxr_memory(program, output), size);
        first->size = size;
        first->numerics = module->kernel[0].numerics;
    }
    ck_assert_uint_eq(first->size, size);
    ck_assert_uint_eq(first->numerics, module->kernel[0].numerics);
    ck_assert_msg(memcmp(first->bits, sxr_memory(program, output), size) == 0,
                  "%s for %s, batch %lld, %u threads: other bits", sx_nested_name(s->kind), target,
                  (long long)s->batch, threads);
    sxr_close(program);
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}

/* _i: the gradient, causal or not, f32 or bf16. 90 rows and 80 keys are more than a block. */
START_TEST(test_one_kernel)
{
    static reference first;
    first.size = 0;
    bool narrow = _i / (2 * SX_NESTED_COUNT) != 0;
    sx_nested_shape s = {.kind = (sx_nested_kind)(_i % SX_NESTED_COUNT),
                         .rows = 90,
                         .keys = 80,
                         .width = 12,
                         .scale = 0.25,
                         .causal = _i / SX_NESTED_COUNT % 2 != 0,
                         .dtype = narrow ? "bf16" : "f32",
                         .rounded = narrow ? "bf16" : NULL};
    for (uint32_t t = 0; t < SX_COUNT(targets); t++) {
        for (s.batch = 1; s.batch <= 3 && sx_test_can_run(targets[t]); s.batch += 2) {
            run(&s, targets[t], (uint32_t)s.batch, &first);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.nested");
    TCase *cases = tcase_create("nested");
    tcase_add_loop_test(cases, test_one_kernel, 0, 4 * SX_NESTED_COUNT);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
