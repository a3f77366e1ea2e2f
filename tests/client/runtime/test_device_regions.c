/* scan, while and cond in modules for GPUs, on the driver of the tests: the host walks through them with what lies on
 * the GPU, and waits for what a branch or while asks. Bits are those of the processor. */
#include "tests/client/cuda/fake_driver.h"

#include <string.h>

#include "client/runtime/cpu.h"
#include "client/verify/verify.h"
#include "tests/lib/compiled.h"
#include "tests/lib/test.h"

static sx_ctx cx;
static char folder[256];

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_test_mkdtemp(folder);
    fake_driver(folder, "fake", "");
}

static void teardown(void)
{
    sx_test_rmtree(folder);
    sx_ctx_fini(&cx);
}

static void same_outputs(const sxr_program *a, const sxr_program *b)
{
    uint32_t compared = 0;
    for (uint32_t i = 0; i < sxr_module(a)->tensor_count; i++) {
        const sx_module_tensor *tensor = &sxr_module(a)->tensor[i];
        if (tensor->place != SX_TENSOR_OUTPUT) {
            continue;
        }
        uint32_t other =
            sxr_find(b, SX_TENSOR_OUTPUT, sx_module_string(sxr_module(a), tensor->name));
        ck_assert_uint_ne(other, UINT32_MAX);
        ck_assert_uint_eq(sxr_size(a, i), sxr_size(b, other));
        ck_assert_mem_eq(sxr_memory(a, i), sxr_memory(b, other), (size_t)sxr_size(a, i));
        compared++;
    }
    ck_assert_uint_ge(compared, 1);
}

/* Prefix sums of rows that are stacked, halves until they are small, and one of two functions. */
static const char regions_text[] =
    "sx 1 graph \"g\" {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[5, 8]\n"
    "%p = parameter {name = \"p\", weight = 0} : bool[]\n"
    "%n = parameter {name = \"n\", weight = 0} : f32[]\n"
    "%zero = constant {data = 0} : f32[8]\n"
    "%last, %sums = scan(%zero, %x) {carried = 1, sliced = 1, step = graph {\n"
    "    %s = parameter {name = \"s\", weight = 0} : f32[8]\n"
    "    %r = parameter {name = \"r\", weight = 0} : f32[8]\n"
    "    %t = add(%s, %r) : f32[8]\n"
    "    return %t as \"carried\", %t as \"stacked\"\n"
    "}} : f32[8], f32[5, 8]\n"
    "%h = while(%n) {carried = 1, rounds = 20, condition = graph {\n"
    "    %v = parameter {name = \"v\", weight = 0} : f32[]\n"
    "    %one = constant {data = 1} : f32[]\n"
    "    %more = compare(%v, %one) {direction = gt} : bool[]\n"
    "    return %more as \"more\"\n"
    "}, step = graph {\n"
    "    %v = parameter {name = \"v\", weight = 0} : f32[]\n"
    "    %half = constant {data = 0.5} : f32[]\n"
    "    %w = multiply(%v, %half) : f32[]\n"
    "    return %w as \"v\"\n"
    "}} : f32[]\n"
    "%y = cond(%p, %last) {then = graph {\n"
    "    %v = parameter {name = \"v\", weight = 0} : f32[8]\n"
    "    %e = negate(%v) : f32[8]\n"
    "    return %e as \"y\"\n"
    "}, otherwise = graph {\n"
    "    %v = parameter {name = \"v\", weight = 0} : f32[8]\n"
    "    %e = multiply(%v, %v) : f32[8]\n"
    "    return %e as \"y\"\n"
    "}} : f32[8]\n"
    "return %sums as \"sums\", %h as \"h\", %y as \"y\"\n}\n";

static void *input_of(sxr_program *program, const char *name)
{
    return sxr_memory(program, sxr_find(program, SX_TENSOR_INPUT, sx_span_of(name)));
}

static sxr_program *open_regions(const char *target)
{
    sx_buf module;
    const sx_test_request request = {.text = regions_text, .target = target, .disabled = ""};
    sx_buf_init(&module, (size_t)1 << 24);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&module), 1, SX_FILL_SMOOTH);
    sx_buf_fini(&module);
    return program;
}

START_TEST(test_regions)
{
    static const char *const target[] = {"a100", "h100"};
    sxr_program *gpu = open_regions(target[_i]);
    sxr_program *cpu = open_regions(sxr_cpu_machine()->name);
    ck_assert_ptr_nonnull(sxr_gpu(gpu));
    for (uint32_t run = 0; run < 4; run++) { /* both ways, and several counts of rounds */
        uint8_t p = run % 2;
        float n = (float)(1 << (4 * run));
        memcpy(input_of(gpu, "p"), &p, 1);
        memcpy(input_of(cpu, "p"), &p, 1);
        memcpy(input_of(gpu, "n"), &n, 4);
        memcpy(input_of(cpu, "n"), &n, 4);
        ck_sx_ok(&cx, sxr_run(&cx, gpu, NULL));
        ck_sx_ok(&cx, sxr_run(&cx, cpu, NULL));
        same_outputs(cpu, gpu);
        sx_module_check check;
        ck_sx_ok(&cx, sxr_check_program(&cx, gpu, 0, &check));
    }
    float n = 0x1p21F;
    memcpy(input_of(gpu, "n"), &n, 4);
    ck_sx_fails(&cx, sxr_run(&cx, gpu, NULL), SX_LIMIT,
                "while: the condition is true after 20 rounds (launch ");
    sxr_close(cpu);
    sxr_close(gpu);
}
END_TEST

/* What the host has to wait for is nothing for a stream of the caller or a graph. */
START_TEST(test_regions_refused_in_graphs)
{
    sxr_program *gpu = open_regions("a100");
    uint64_t ns;
    ck_sx_ok(&cx, sxr_prepare(&cx, gpu));
    ck_sx_fails(&cx, sxr_enqueue(&cx, gpu, NULL), SX_UNIMPLEMENTED,
                "the host waits for what it asks, which it cannot on a stream of the caller");
    ck_sx_ok(&cx, sxr_run(&cx, gpu, NULL));
    ck_sx_fails(&cx, sxr_time_graph(&cx, gpu, 1, &ns), SX_UNIMPLEMENTED, " is a while: ");
    sxr_close(gpu);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_regions");
    TCase *tcase = tcase_create("regions");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_regions, 0, 2);
    tcase_add_test(tcase, test_regions_refused_in_graphs);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
