/* The committed models from ONNX to results: compiled for each batch and target, run on their real weights,
 * compared with the interpreter; the number of kernels says what was fused. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "client/verify/verify.h"
#include "core/ir/ir.h"
#include "tests/lib/compiled.h"
#include "tests/lib/model.h"

#define BYTES_MAX ((size_t)1 << 28)
static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
static const int64_t batches[] = {1, 3, 8, 64};

/* Kernels that run for each request and those that run once at load. */
static void count_kernels(const sx_module *module, uint32_t run[SX_MODULE_KERNEL_KIND_COUNT],
                          uint32_t once[SX_MODULE_KERNEL_KIND_COUNT])
{
    memset(run, 0, SX_MODULE_KERNEL_KIND_COUNT * sizeof(*run));
    memset(once, 0, SX_MODULE_KERNEL_KIND_COUNT * sizeof(*once));
    for (uint64_t i = 0; i < module->launch_count; i++) {
        uint32_t kind = module->kernel[module->launch[i].kernel].kind;
        uint32_t *count = module->launch[i].prologue != 0 ? once : run;
        count[kind]++;
    }
}

/* No kernel that only moves elements, and none that is not part of the plan of its model. */
static void check_fusion(const sx_module *module, uint32_t contractions, uint32_t rows,
                         uint32_t online, uint32_t pads)
{
    uint32_t run[SX_MODULE_KERNEL_KIND_COUNT], once[SX_MODULE_KERNEL_KIND_COUNT];
    count_kernels(module, run, once);
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_kernel *kernel = &module->kernel[module->launch[i].kernel];
        sx_span what = sx_module_string(module, kernel->what);
        sx_span name = sx_module_string(module, kernel->name);
        ck_assert_msg(module->launch[i].prologue != 0 || !sx_span_is(what, "copy"),
                      "%.*s only copies", (int)name.len, (const char *)name.ptr);
        ck_assert_msg(kernel->cost_ns >= kernel->floor_ns, "%.*s: %g ns below the floor %g",
                      (int)name.len, (const char *)name.ptr, kernel->cost_ns, kernel->floor_ns);
    }
    ck_assert_uint_eq(run[SX_MODULE_CONTRACTION], contractions);
    ck_assert_uint_eq(run[SX_MODULE_ROW], rows);
    ck_assert_uint_eq(run[SX_MODULE_ONLINE], online);
    /* where there are convolutions, output channels may be brought to order by what follows one */
    ck_assert_uint_le(run[SX_MODULE_MAP], pads > 0 ? 1 : 0);
    ck_assert_uint_eq(run[SX_MODULE_COPY], pads);
    /* weights side by side are copied once */
    ck_assert_uint_eq(once[SX_MODULE_CONTRACTION] + once[SX_MODULE_ROW], 0);
}

/* The module says of every kernel how it was compared. */
static void check_record(const sx_module *module, uint32_t kernels)
{
    uint32_t compared = 0;
    for (uint64_t i = 0; i < module->check_count; i++) {
        const sx_module_check *check = &module->check[i];
        sx_span name = sx_module_string(module, check->name);
        if (name.len > 7 && memcmp(name.ptr, "kernel ", 7) == 0) {
            ck_assert(check->passed == 1 && check->points >= 10 &&
                      check->error <= check->tolerance);
            compared++;
        }
    }
    ck_assert_uint_ge(compared, kernels);
}

static void check_model(const char *name, const char *target, int64_t batch, uint32_t contractions,
                        uint32_t rows, uint32_t online, uint32_t pads)
{
    if (!sx_test_can_run(target)) {
        return;
    }
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)4 << 30);
    sx_buf module;
    sx_buf_init(&module, BYTES_MAX);
    /* the kernels at sampled elements are compared while compiling */
    ck_sx_ok(&cx, sx_test_model_compile(&cx, name, target, batch, &module));
    sxr_program *program;
    sxr_options options = {.threads = 2};
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&module), &options, &program));
    check_fusion(sxr_module(program), contractions, rows, online, pads);
    check_record(sxr_module(program), contractions + rows + online);
    ck_sx_ok(&cx, sx_test_model_bind(&cx, name, program, 11));
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    sx_module_check check;
    cx.fuel = UINT64_C(1) << 50;
    ck_sx_ok(&cx, sxr_check_program(&cx, program, 0, &check));
    printf("%s %s batch %lld: %llu elements, error %.1e\n", name, target, (long long)batch,
           (unsigned long long)check.points, check.error);
    ck_assert_uint_gt(check.points, 0);
    sxr_close(program);
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
}

START_TEST(test_mlp)
{
    check_model("mlp", targets[_i % 2], batches[_i / 2], 3, 1, 0, 0);
}
END_TEST

START_TEST(test_encoder)
{
    check_model("encoder", targets[_i % 2], batches[_i / 2], 4, 3, 1,
                0); /* attention is one kernel */
}
END_TEST

/* Every convolution with its batch_norm, Relu and residual is one kernel; what pads its input is another. */
START_TEST(test_cnn)
{
    check_model("cnn", targets[_i % 2], batches[_i / 2], 7, 2, 0, 6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e.models");
    TCase *cases = tcase_create("models");
    tcase_add_loop_test(cases, test_mlp, 0, 8);
    tcase_add_loop_test(cases, test_encoder, 0, 8);
    tcase_add_loop_test(cases, test_cnn, 0, 8);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
