/* Kernels with one fault each, and the instruction that the interpreter stops them at. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/core/simt/launches.h"

#define KERNELS SX_SOURCE_DIR "/tests/data/ptx/kernels.ptx"

static sx_ctx cx;
static sx_ptx_module *module;
static launches l;
static float x[64 * 64], w[64 * 64], y[64 * 64 + 1];

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
    module = launch_module(&cx, KERNELS);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* In every order, early and late, the kernel is stopped at an instruction of this opcode. */
static void stops(const char *opcode, const char *text)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        for (int lazy = 0; lazy < 2; lazy++) {
            sx_code code = launch_run(&cx, &l, seed, lazy != 0);
            ck_assert_msg(code == SX_MISMATCH, "%s: %s (%s)", l.launch.kernel, sx_code_name(code),
                          cx.error.text);
            ck_assert_msg(strstr(cx.error.text, text) != NULL, "%s", cx.error.text);
            ck_assert(l.outcome.fault.found && l.outcome.fault.line > 0);
            for (uint32_t i = 0; i < module->kernel_count; i++) {
                const sx_ptx_kernel *k = &module->kernel[i];
                const sx_ptx_insn *insn = &k->insn[l.outcome.fault.insn];
                if (strcmp(k->name, l.launch.kernel) == 0) {
                    ck_assert_str_eq(sx_ptx_row_of((sx_ptx_op)insn->op)->text, opcode);
                }
            }
            if (getenv("SX_SHOW") != NULL) {
                (void)printf("%s\n", cx.error.text);
            }
            sx_ctx_reset_error(&cx);
        }
    }
}

START_TEST(test_missing_barrier)
{
    launch_begin(&l, module, "no_barrier", (sx_ptx_dim){2, 2, 1}, (sx_ptx_dim){32, 8, 1});
    launch_in(&l, "x", x, sizeof x);
    launch_out(&l, "y", y, sizeof x);
    launch_number(&l, 64);
    launch_number(&l, 64);
    for (uint64_t seed = 0; seed < 8; seed++) { // a reader or a writer comes too early
        sx_code code = launch_run(&cx, &l, seed, false);
        ck_assert_int_eq(code, SX_MISMATCH);
        ck_assert_msg(strstr(cx.error.text, "race: reads") != NULL ||
                          strstr(cx.error.text, "race: writes") != NULL ||
                          strstr(cx.error.text, "nobody wrote") != NULL,
                      "%s", cx.error.text);
        sx_ctx_reset_error(&cx);
    }
}
END_TEST

START_TEST(test_off_by_one)
{
    launch_begin(&l, module, "one_too_many", (sx_ptx_dim){3, 1, 1}, (sx_ptx_dim){32, 1, 1});
    launch_in(&l, "argument a", x, 64 * 4);
    launch_out(&l, "argument c", y, 64 * 4);
    launch_number(&l, 64);
    stops("ld", "4 bytes behind its end");
    launch_begin(&l, module, "one_too_many", (sx_ptx_dim){3, 1, 1}, (sx_ptx_dim){32, 1, 1});
    launch_in(&l, "argument a", x, 65 * 4);
    launch_out(&l, "argument c", y, 64 * 4);
    launch_number(&l, 64);
    stops("st", "of argument c, which has 256 bytes");
    ck_assert_uint_eq(l.outcome.fault.block.x, 2);
    ck_assert_uint_eq(l.outcome.fault.thread.x, 0);
}
END_TEST

START_TEST(test_buffers)
{
    launch_begin(&l, module, "vector_add", (sx_ptx_dim){1, 1, 1}, (sx_ptx_dim){64, 1, 1});
    launch_in(&l, "a", x, 256);
    launch_in(&l, "b", w, 256);
    launch_out(&l, "c", y, 256);
    launch_number(&l, 64);
    l.region[1].initialised = false;
    stops("ld", "of b, which nobody wrote");
    l.region[1].initialised = true;
    l.region[2].writable = false;
    l.region[2].initialised = true;
    stops("st", "writes c, which is read-only");
    l.region[2].writable = true;
    l.argument[0].offset = 2;
    stops("ld", "which 4 does not divide");
    l.argument[0].offset = 4;
    stops("ld", "4 bytes behind its end");
    l.argument[0].offset = (uint64_t)-4;
    stops("ld", "4 bytes before its begin");
    l.argument[0].offset = (uint64_t)1 << 50;
    stops("ld", "far from all buffers");
    l.argument[0].offset = 0;
    l.argument[2].region = 1;
    l.region[0].writable = true;
    stops("st", "as constant"); // which ld.global.nc read before
}
END_TEST

static void matmul(const char *kernel)
{
    launch_begin(&l, module, kernel, (sx_ptx_dim){2, 2, 1}, (sx_ptx_dim){16, 16, 1});
    launch_in(&l, "a", x, 32 * 64 * 4);
    launch_in(&l, "b", w, 32 * 64 * 4);
    launch_out(&l, "c", y, 32 * 32 * 4);
    launch_number(&l, 32);
    launch_number(&l, 64);
}

START_TEST(test_copies)
{
    matmul("matmul_async");
    ck_sx_ok(&cx, launch_run(&cx, &l, 0, true));
    matmul("no_commit");
    stops("ld", "is under way");
    matmul("no_wait");
    stops("ld", "is under way");
}
END_TEST

static void one_result(const char *kernel, uint32_t blocks, uint32_t threads)
{
    launch_begin(&l, module, kernel, (sx_ptx_dim){blocks, 1, 1}, (sx_ptx_dim){threads, 1, 1});
    launch_out(&l, "y", y, 64 * 4);
}

START_TEST(test_threads_together)
{
    one_result("half_shuffle", 1, 32);
    for (uint64_t seed = 0; seed < 4; seed++) {
        ck_assert_int_eq(launch_run(&cx, &l, seed, false), SX_MISMATCH);
        ck_assert_msg(strstr(cx.error.text, "`shfl.sync.bfly") != NULL, "%s", cx.error.text);
        ck_assert_msg(strstr(cx.error.text, "0xffff0000") != NULL, "%s", cx.error.text);
        sx_ctx_reset_error(&cx);
    }
    one_result("half_barrier", 1, 64);
    stops("bar", "they never meet");
    one_result("two_barriers", 1, 64);
    stops("bar", "deadlock: barrier");
}
END_TEST

START_TEST(test_shared_memory)
{
    one_result("read_first", 1, 64);
    stops("ld", "reads byte 0 of shared memory, which nobody wrote");
    ck_assert_uint_eq(l.outcome.fault.thread.x, 63);
}
END_TEST

START_TEST(test_blocks)
{
    one_result("same_element", 1, 32);
    ck_sx_ok(&cx, launch_run(&cx, &l, 0, false));
    one_result("same_element", 2, 32);
    stops("st", "nothing orders blocks");
}
END_TEST

START_TEST(test_end)
{
    one_result("for_ever", 1, 32);
    l.region[0].initialised = true;
    l.launch.instructions_max = 10000;
    memset(y, 0, sizeof y);
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_QUOTA,
                "does not end within 10000 instructions");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ptx faults");
    TCase *tests = tcase_create("faults");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_missing_barrier);
    tcase_add_test(tests, test_off_by_one);
    tcase_add_test(tests, test_buffers);
    tcase_add_test(tests, test_copies);
    tcase_add_test(tests, test_threads_together);
    tcase_add_test(tests, test_shared_memory);
    tcase_add_test(tests, test_blocks);
    tcase_add_test(tests, test_end);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
