/* An assembler in a process of its own: what it answers, and what becomes of whoever asks when it dies. The assembler
 * is that of fake/nvjitlink.c, so that no CUDA toolkit is needed. */
#include "tests/client/assemble/fake_toolkit.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/assemble/process.h"

static sx_ctx cx;
static char folder[256];
static sxa_identity identity;
static sxa_process process;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_test_mkdtemp(folder);
    fake_toolkit(folder);
    sxa_identify(&cx, false, &identity);
}

static void teardown(void)
{
    sxa_process_end(&process);
    sx_test_rmtree(folder);
    sx_ctx_fini(&cx);
}

#define HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"
static sx_code assemble(const char *text, sxa_result *result)
{
    return sxa_process_assemble(&cx, &process, sx_span_of(text), "sm_80", result);
}

static void start(const char *settings)
{
    ck_assert(setenv("SX_FAKE_NVJITLINK", settings, 1) == 0);
    ck_sx_ok(&cx, sxa_process_start(&cx, &identity, NULL, NULL, &process));
}

START_TEST(test_identity)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/lib64/libnvJitLink.so.13", folder);
    ck_assert_str_eq(identity.name, "nvJitLink 13.0.99");
    ck_assert_str_eq(identity.path, path);
    ck_assert_int_eq(identity.tool, SXA_NVJITLINK);
    /* What others could exchange does not count. */
    ck_assert_int_eq(chmod(path, 0666), 0);
    sxa_identify(&cx, false, &identity);
    ck_assert_str_ne(identity.name, "nvJitLink 13.0.99");
}
END_TEST

START_TEST(test_one_text_after_the_other)
{
    sxa_result result;
    start("");
    ck_sx_ok(&cx, assemble(HEAD ".visible .entry one(.param .u64 x)\n{ ret; }\n", &result));
    ck_assert_uint_eq(result.record->kernel_count, 1);
    ck_assert(sx_span_is(result.record->kernel[0].name, "one"));
    ck_assert_uint_eq(result.record->kernel[0].param_bytes, 8);
    ck_sx_ok(&cx,
             assemble(HEAD ".visible .entry two()\n{ ret; }\n.visible .entry too()\n{ ret; }\n",
                      &result));
    ck_assert_uint_eq(result.record->kernel_count, 2);
    ck_assert_uint_eq(result.record->arch, 80);
}
END_TEST

START_TEST(test_what_is_refused)
{
    sxa_result result;
    start("refuse=one spill=two");
    ck_sx_fails(&cx, assemble(HEAD ".visible .entry one()\n{ ret; }\n", &result), SX_COMPILE,
                "refused by the test");
    ck_sx_fails(&cx, assemble(HEAD ".visible .entry two()\n{ ret; }\n", &result), SX_LIMIT, "two");
    ck_sx_ok(&cx, assemble(HEAD ".visible .entry three()\n{ ret; }\n", &result));
    ck_sx_fails(&cx,
                sxa_process_assemble(&cx, &process, SX_SPAN_LITERAL(HEAD),
                                     "a target with a long name", &result),
                SX_INPUT, "is no target");
}
END_TEST

/* It is a process that dies: whoever asks gets an error with its name, again and again, and lives. */
START_TEST(test_a_crash)
{
    sxa_result result;
    start("crash=one");
    ck_sx_ok(&cx, assemble(HEAD ".visible .entry two()\n{ ret; }\n", &result));
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(assemble(HEAD ".visible .entry one()\n{ ret; }\n", &result), SX_WORKER);
        ck_assert_ptr_nonnull(strstr(cx.error.text, "nvJitLink 13.0.99 died"));
        ck_assert_ptr_nonnull(strstr(cx.error.hint, "--assembler none"));
        sx_ctx_reset_error(&cx);
    }
    int status = 0;
    ck_assert_int_gt(wait(&status), 0);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
END_TEST

/* It ends where nobody asks any more. */
START_TEST(test_the_end)
{
    int status = -1;
    start("");
    sxa_process_end(&process);
    ck_assert_int_gt(wait(&status), 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

/* Nothing of the process that started it stays open in it but the end of the socket. */
static void only_its_own(const void *self, int *fd)
{
    uint32_t open = 0;
    (void)self;
    for (int i = 0; i < 256; i++) {
        open += fcntl(i, F_GETFD) >= 0 ? 1 : 0;
    }
    if (open != 4 || *fd <= STDERR_FILENO) { /* three and the socket */
        _exit(3);
    }
}

START_TEST(test_what_it_inherits)
{
    sxa_result result;
    int more = dup(STDERR_FILENO);
    ck_assert_int_gt(more, STDERR_FILENO);
    ck_sx_ok(&cx, sxa_process_start(&cx, &identity, only_its_own, NULL, &process));
    ck_sx_ok(&cx, assemble(HEAD ".visible .entry two()\n{ ret; }\n", &result));
    (void)close(more);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client.assemble.process");
    TCase *cases = tcase_create("process");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_identity);
    tcase_add_test(cases, test_one_text_after_the_other);
    tcase_add_test(cases, test_what_is_refused);
    tcase_add_test(cases, test_a_crash);
    tcase_add_test(cases, test_the_end);
    tcase_add_test(cases, test_what_it_inherits);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
