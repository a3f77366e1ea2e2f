/* Assembling PTX with assemblers of the test's own: what is said, refused, cut short and stopped, and what is found
 * where. No CUDA toolkit is needed; test_toolkit.c has the real ones. */
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/assemble/assemble.h"
#include "client/assemble/tools.h"

static sx_ctx cx;
static char folder[256];
static const char text[] = ".version 7.0\n.target sm_90a\n\tadd.u32 %r1, %r2;  \n";
#define PTX ((sx_span){(const uint8_t *)text, sizeof(text) - 1})

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_test_mkdtemp(folder);
}

static void teardown(void)
{
    sx_test_rmtree(folder);
    sx_ctx_fini(&cx);
}

static void write_file(const char *name, const char *content, mode_t mode)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert(fputs(content, file) >= 0 && fclose(file) == 0 && chmod(path, mode) == 0);
}

/* A ptxas in FOLDER/bin that is a script. */
static void make_ptxas(const char *script)
{
    char path[512], all[2048];
    (void)snprintf(path, sizeof(path), "%s/bin", folder);
    ck_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
    (void)snprintf(all, sizeof(all), "#!/bin/sh\n%s\n", script);
    write_file("bin/ptxas", all, 0755);
}

static sx_code assemble(sxa_tool with, uint32_t timeout_ms, sxa_result *result)
{
    sxa_options options = {.with = with, .toolkit = folder, .timeout_ms = timeout_ms};
    return sxa_assemble(&cx, PTX, "sm_90a", &options, result);
}

#define SEED SX_SOURCE_DIR "/tests/fuzz/seeds/fuzz_cubin/hopper.cubin"
#define MAKES_SEED "/bin/cat " SEED " >/proc/self/fd/4\n"

/* ---- finding ---- */

START_TEST(test_no_assembler)
{
    sxa_result result;
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_ABSENT, "neither nvJitLink nor ptxas");
    ck_sx_fails(&cx, assemble(SXA_PTXAS, 0, &result), SX_ABSENT, folder);
    (void)assemble(SXA_NVJITLINK, 0, &result);
    ck_assert_ptr_nonnull(strstr(cx.error.hint, "CUDA toolkit 12 or 13"));
    ck_assert_ptr_nonnull(strstr(cx.error.hint, "driver compiles"));
}
END_TEST

START_TEST(test_what_others_can_exchange_is_not_run)
{
    char path[512];
    sxa_result result;
    make_ptxas(MAKES_SEED);
    (void)snprintf(path, sizeof(path), "%s/bin/ptxas", folder);
    ck_assert_int_eq(chmod(path, 0777), 0);
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_ABSENT, "mode 0777");
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_ABSENT, "mode 0644");
    ck_assert_int_eq(chmod(path, 0755), 0);
    (void)snprintf(path, sizeof(path), "%s/bin", folder);
    ck_assert_int_eq(chmod(path, 0777), 0);
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_ABSENT, "toolkit");
    ck_assert_int_eq(chmod(path, 0755), 0);
    ck_sx_ok(&cx, assemble(SXA_ANY, 0, &result));
}
END_TEST

START_TEST(test_where_it_is_looked_for)
{
    static sxa_found found;
    char path[512];
    make_ptxas("# \"Cuda compilation tools, release 12.9, V12.9.86\"");
    ck_assert_int_eq(setenv("PATH", folder, 1), 0);
    ck_assert_int_eq(unsetenv("CUDA_HOME"), 0);
    ck_assert_int_eq(setenv("CUDA_PATH", "/nonexistent", 1), 0);
    sxa_find(&cx, SXA_PTXAS, NULL, &found);
    ck_assert_ptr_null(strstr(found.path, folder)); /* PATH is not a place */
    ck_assert_int_eq(setenv("CUDA_PATH", folder, 1), 0);
    sxa_find(&cx, SXA_PTXAS, NULL, &found);
    (void)snprintf(path, sizeof(path), "%s/bin/ptxas", folder);
    ck_assert_str_eq(found.path, path);
    ck_assert_str_eq(found.version, "12.9.86");
    ck_assert_int_eq(setenv("CUDA_HOME", "/nonexistent", 1), 0); /* it is asked first */
    sxa_find(&cx, SXA_PTXAS, NULL, &found);
    ck_assert_str_eq(found.path, path);
    sxa_find(&cx, SXA_PTXAS, "/nonexistent", &found);
    ck_assert(!found.found && found.refused[0] == '\0');
}
END_TEST

/* ---- ptxas ---- */

START_TEST(test_what_it_makes)
{
    sxa_result result, again;
    sx_buf bytes;
    make_ptxas("echo \"$@\"\n" MAKES_SEED);
    ck_sx_ok(&cx, assemble(SXA_ANY, 0, &result));
    ck_assert_int_eq(result.tool, SXA_PTXAS);
    ck_assert(sx_span_is(result.log, "-v -arch=sm_90a -o /proc/self/fd/4 /proc/self/fd/3\n"));
    ck_assert_uint_eq(result.record->kernel_count, 2);
    ck_assert_uint_eq(result.record->kernel[0].registers, 154);
    ck_assert_uint_eq(result.failure_count, 1); /* the seed says that it spills */
    ck_assert_str_eq(result.finding[0].name, "spill");
    ck_sx_fails(&cx, sxa_refuse(&cx, &result), SX_COMPILE, "kernel ring: 3 instructions");
    /* As bytes, for another process. */
    sx_buf_init(&bytes, (size_t)1 << 20);
    sxa_result_encode(&result, &bytes);
    ck_sx_ok(&cx, sxa_result_decode(&cx, sx_buf_span(&bytes), &again));
    ck_assert(sx_span_equal(again.cubin, result.cubin) && sx_span_equal(again.log, result.log));
    ck_assert_uint_eq(again.failure_count, 1);
    for (size_t size = 0; size < 8; size++) {
        ck_sx_fails(&cx, sxa_result_decode(&cx, (sx_span){bytes.ptr, size}, &again), SX_CORRUPT,
                    "no result");
    }
    ck_sx_fails(&cx, sxa_result_decode(&cx, (sx_span){bytes.ptr, 20}, &again), SX_CORRUPT,
                "no result");
    sx_buf_fini(&bytes);
}
END_TEST

START_TEST(test_the_text_it_gets)
{
    sxa_result result;
    make_ptxas("/bin/cat /proc/self/fd/3\n" MAKES_SEED);
    ck_sx_ok(&cx, assemble(SXA_PTXAS, 0, &result));
    ck_assert(sx_span_equal(result.log, PTX));
    ck_assert_int_eq(setenv("SECRET", "x", 1), 0);
    make_ptxas("echo \"<$SECRET>\"\n" MAKES_SEED);
    ck_sx_ok(&cx, assemble(SXA_PTXAS, 0, &result));
    ck_assert(sx_span_is(result.log, "<>\n")); /* it has no environment */
}
END_TEST

START_TEST(test_errors_show_the_line)
{
    sxa_result result;
    make_ptxas(
        "echo \"ptxas /proc/self/fd/3, line 3; error   : Arguments mismatch for 'add'\" >&2\n"
        "echo 'ptxas /proc/self/fd/3, line 900; error   : Unknown symbol' >&2\n"
        "echo 'ptxas fatal   : Ptx assembly aborted due to errors' >&2\nexit 255");
    ck_sx_fails(
        &cx, assemble(SXA_ANY, 0, &result), SX_COMPILE,
        "ptxas refuses the text: line 3: Arguments mismatch for 'add': `add.u32 %r1, %r2;`; "
        "line 900: Unknown symbol");
    make_ptxas(
        "echo 'ptxas fatal   : (C7602) Insufficient registers (32) to compile instruction at "
        "line 2 in function k. Try 58 or higher.'\nexit 1");
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_COMPILE, "58 or higher.: `.target sm_90a`");
    make_ptxas(
        "for i in 1 2 3 4 5 6 7; do echo \"ptxas f, line $i; error   : wrong\"; done\nexit 1");
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_COMPILE, "line 4: wrong; and 3 more");
    make_ptxas("printf 'something\\033[2J\\nelse\\n\\n'\nexit 9");
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_COMPILE, "text: something?[2J else");
    make_ptxas("exit 9");
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_COMPILE, "ptxas refuses the text");
}
END_TEST

START_TEST(test_ways_to_end)
{
    sxa_result result;
    make_ptxas("kill -SEGV $$");
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_WORKER, "ptxas died of signal 11");
    make_ptxas("exit 0");
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_SYSTEM, "no cubin");
    make_ptxas("echo nonsense >/proc/self/fd/4");
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_INPUT, "no cubin");
    make_ptxas("/bin/cat " SX_SOURCE_DIR
               "/tests/fuzz/seeds/fuzz_cubin/ampere.cubin >/proc/self/fd/4");
    ck_sx_fails(&cx, assemble(SXA_ANY, 0, &result), SX_COMPILE,
                "ptxas made code for sm_80, asked for sm_90a");
    make_ptxas("/usr/bin/yes | /usr/bin/head -c 4000000\n" MAKES_SEED); /* the log has a limit */
    ck_sx_ok(&cx, assemble(SXA_ANY, 0, &result));
    ck_assert_uint_eq(result.log.len, SXA_LOG_BYTES_MAX);
}
END_TEST

/* Has the process ended? One that nobody has waited for yet has no command line any more. */
static bool has_ended(void *self)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%ld/cmdline", *(const long *)self);
    FILE *file = fopen(path, "r");
    bool ended = file == NULL || fgetc(file) == EOF;
    if (file != NULL) {
        (void)fclose(file);
    }
    return ended;
}

/* It writes its number and that of a child, and both stay; after the deadline neither is there. */
START_TEST(test_a_deadline_ends_all_of_it)
{
    sxa_result result;
    char script[1024], path[512];
    sx_buf pids;
    (void)snprintf(script, sizeof(script),
                   "/bin/sleep 600 & echo $$ $! >%s/part; /bin/mv %s/part %s/pids\n/bin/sleep 600",
                   folder, folder, folder);
    make_ptxas(script);
    (void)snprintf(path, sizeof(path), "%s/pids", folder);
    for (uint32_t ms = 500; access(path, R_OK) != 0; ms *= 2) { /* a busy machine begins late */
        ck_assert_uint_lt(ms, 100000);
        ck_sx_fails(&cx, assemble(SXA_ANY, ms, &result), SX_TIMEOUT, "ptxas has not ended after");
    }
    sx_buf_init(&pids, 64);
    sx_test_read_file(path, &pids);
    sx_buf_put_u8(&pids, 0);
    char *rest = (char *)pids.ptr;
    for (uint32_t i = 0; i < 2; i++) {
        long pid = strtol(rest, &rest, 10);
        ck_assert_int_gt(pid, 1);
        ck_assert_msg(sx_test_wait(has_ended, &pid, 30000), "process %ld is there", pid);
    }
    sx_buf_fini(&pids);
}
END_TEST

/* ---- findings ---- */

START_TEST(test_advisories)
{
    sxa_result result;
    make_ptxas("echo \"ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored\"\n"
               "echo 'ptxas info    : (C7519) warpgroup.arrive is injected in around line 39'\n"
               "echo 'ptxas info    : (C7999) Potential Performance Loss: something new'\n"
               "echo 'ptxas info    : (C7998) something harmless'\n"
               "echo 'ptxas info    : Used 8 registers (Cuda), used 0 barriers'\n" MAKES_SEED);
    ck_sx_ok(&cx, assemble(SXA_ANY, 0, &result));
    ck_assert_uint_eq(result.failure_count, 4);
    ck_assert_uint_eq(result.finding_count, 5);
    static const char *const wanted[] = {"spill", "C7504", "C7519", "C7999", "C7998"};
    for (uint32_t i = 0; i < SX_COUNT(wanted); i++) {
        ck_assert_str_eq(result.finding[i].name, wanted[i]);
        ck_assert_int_eq(result.finding[i].severity, i < 4 ? SXA_FAILURE : SXA_NOTE);
    }
    ck_sx_fails(&cx, sxa_refuse(&cx, &result), SX_COMPILE,
                "C7504: Potential Performance Loss: 'setmaxnreg' ignored; C7519: warpgroup");
}
END_TEST

/* ---- policy ---- */

START_TEST(test_targets)
{
    static const struct {
        const char *name;
        uint32_t number;
    } target[] = {{"sm_90a", 90}, {"sm_80", 80}, {"sm_100f", 100}, {"sm_120", 120},  {"sm_9", 0},
                  {"sm_09", 0},   {"sm_90b", 0}, {"sm_90aa", 0},   {"sm_", 0},       {"h100", 0},
                  {"sm_1000", 0}, {"", 0},       {"sm_90 -x", 0},  {"compute_90", 0}};
    sxa_result result;
    sxa_options options = {.toolkit = folder};
    for (uint32_t i = 0; i < SX_COUNT(target); i++) {
        ck_assert_uint_eq(sxa_target_number(sx_span_of(target[i].name)), target[i].number);
    }
    ck_sx_fails(&cx, sxa_assemble(&cx, PTX, "-o/etc", &options, &result), SX_INPUT, "no target");
    ck_sx_fails(&cx, sxa_assemble(&cx, SX_SPAN_LITERAL(""), "sm_80", &options, &result), SX_INPUT,
                "0 bytes");
    ck_sx_fails(&cx, sxa_assemble(&cx, SX_SPAN_LITERAL("a\0b"), "sm_80", &options, &result),
                SX_INPUT, "none of them 0");
}
END_TEST

/* nvJitLink as a library of the test's: it has the interface of 12.4 alone, and says what it is asked. */
static const char fake_library[] =
    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "#define F(n) __nvJitLink##n##_12_4\n"
    "static char arch[64]; static char seed[65536]; static size_t size; static int kind;\n"
    "int nvJitLinkVersion(unsigned *a, unsigned *b) { *a = 12; *b = 4; return 0; }\n"
    "int F(Create)(void **h, unsigned n, const char **o) { *h = arch;\n"
    "  snprintf(arch, 64, \"%u %s %s\", n, o[0], o[1]); return strstr(arch, \"sm_91\") ? 16 : 0; "
    "}\n"
    "int F(AddData)(void *h, int k, const void *b, size_t n, const char *name) {\n"
    "  kind = k; return memcmp(b, \".version\", 8) != 0 || ((char *)b)[n] != 0; }\n"
    "int F(Complete)(void *h) { FILE *f = fopen(\"" SEED "\", \"r\");\n"
    "  size = fread(seed, 1, sizeof(seed), f); fclose(f); return 0; }\n"
    "int F(GetLinkedCubinSize)(void *h, size_t *n) { *n = size; return 0; }\n"
    "int F(GetLinkedCubin)(void *h, void *b) { memcpy(b, seed, size); return 0; }\n"
    "int F(GetErrorLogSize)(void *h, size_t *n) { *n = 0; return 0; }\n"
    "int F(GetErrorLog)(void *h, char *t) { abort(); }\n"
    "int F(GetInfoLogSize)(void *h, size_t *n) { *n = 96; return 0; }\n"
    "int F(GetInfoLog)(void *h, char *t) { sprintf(t, \"%s, kind %d\", arch, kind); return 0; }\n"
    "int F(Destroy)(void **h) { *h = 0; return 0; }\n";

START_TEST(test_the_library)
{
    char command[1024];
    sxa_result result;
    sxa_options options = {.toolkit = folder};
    (void)snprintf(command, sizeof(command), "%s/lib", folder);
    ck_assert_int_eq(mkdir(command, 0755), 0);
    write_file("fake.c", fake_library, 0644);
    (void)snprintf(command, sizeof(command),
                   "cc -w -shared -fPIC -o %s/lib/libnvJitLink.so.12 %s/fake.c", folder, folder);
    ck_assert_int_eq(system(command), 0);
    ck_sx_ok(&cx, assemble(SXA_ANY, 0, &result));
    ck_assert_int_eq(result.tool, SXA_NVJITLINK);
    ck_assert(sx_span_is(result.log, "\n2 -arch=sm_90a -verbose, kind 2"));
    ck_assert_uint_eq(result.record->kernel_count, 2);
    ck_sx_fails(&cx, sxa_assemble(&cx, PTX, "sm_91", &options, &result), SX_COMPILE,
                "does not take target sm_91");
    static sxa_found found;
    sxa_find(&cx, SXA_NVJITLINK, folder, &found);
    ck_assert(found.found);
    ck_assert_str_eq(found.version, "12.4");
    /* What it would drop goes to ptxas, and a word of a comment is no instruction. */
    static const char handed[] = ".version 8.0 /* x */ @%p setmaxnreg.dec.sync.aligned.u32 40;";
    static const char comment[] =
        ".version 8.0 // setmaxnreg\n/* setmaxnreg */ %setmaxnreg setmaxnregs";
    sx_span dropped = sx_span_of(handed), kept = sx_span_of(comment);
    ck_sx_fails(&cx, sxa_assemble(&cx, dropped, "sm_90a", &options, &result), SX_ABSENT,
                "ptxas, which setmaxnreg needs");
    ck_sx_ok(&cx, sxa_assemble(&cx, kept, "sm_90a", &options, &result));
    make_ptxas(MAKES_SEED);
    ck_sx_ok(&cx, sxa_assemble(&cx, dropped, "sm_90a", &options, &result));
    ck_assert_int_eq(result.tool, SXA_PTXAS);
    options.with = SXA_NVJITLINK;
    ck_sx_ok(&cx, sxa_assemble(&cx, dropped, "sm_90a", &options, &result));
    ck_assert_int_eq(result.tool, SXA_NVJITLINK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("assemble");
    TCase *tcase = tcase_create("assemble");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_no_assembler);
    tcase_add_test(tcase, test_what_others_can_exchange_is_not_run);
    tcase_add_test(tcase, test_where_it_is_looked_for);
    tcase_add_test(tcase, test_what_it_makes);
    tcase_add_test(tcase, test_the_text_it_gets);
    tcase_add_test(tcase, test_errors_show_the_line);
    tcase_add_test(tcase, test_ways_to_end);
    tcase_add_test(tcase, test_a_deadline_ends_all_of_it);
    tcase_add_test(tcase, test_advisories);
    tcase_add_test(tcase, test_targets);
    tcase_add_test(tcase, test_the_library);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
