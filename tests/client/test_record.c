/* A module whose code was altered and whose checksums were repaired: its record is of other bytes, and every
 * command says so. */
#include "client/record.h"
#include "client/runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/compile.h"
#include "client/file.h"
#include "client/module_file.h"
#include "client/spawn.h"
#include "tests/lib/test.h"

#define NOBODY "/nonexistent/d.sock"

static const char program_text[] = "sx 1\n"
                                   "graph \"twice\" () {\n"
                                   "    %0 = parameter {name = \"x\", weight = 0} : f32[64]\n"
                                   "    %1 = add(%0, %0) : f32[64]\n"
                                   "    return %1 as \"y\"\n"
                                   "}\n";

static const sxc_worker worker = {.program = NULL}; /* it is found beside this test */
static const sxc_verifying how = {.seed = 1};
static sx_ctx cx;
static char top[256], path[300];
static sx_buf module;
static sxc_module_file original;
static sxc_record record;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    cx.fuel = UINT64_MAX;
    sx_test_mkdtemp(top);
    (void)snprintf(path, sizeof(path), "%s/m.sxm", top);
    ck_assert_int_eq(setenv("XDG_STATE_HOME", top, 1), 0);
    ck_assert_int_eq(setenv("SYMPLEX_SOCKET", NOBODY, 1), 0);
    sxc_source source;
    sx_core_request request = {.target = SX_SPAN_LITERAL("native")};
    sxc_compile_options options = {.daemon = SXC_MODE_NEVER};
    sxc_compile_info info;
    sx_span text = {(const uint8_t *)program_text, sizeof(program_text) - 1};
    sx_buf_init(&module, (size_t)1 << 28);
    ck_sx_ok(&cx, sxc_source_bytes(&cx, text, &source));
    ck_sx_ok(&cx, sxc_compile(&cx, &source, &request, &options, &module, &info));
    sxc_source_fini(&source);
    ck_sx_ok(&cx, sxc_module_file_of(&cx, sx_buf_span(&module), &original));
}
static void teardown(void)
{
    sxc_module_file_close(&original);
    sx_buf_fini(&module);
    sx_test_rmtree(top);
    sx_ctx_fini(&cx);
}

static sxc_record_state state_of(const sx_module *tables)
{
    ck_sx_ok(&cx, sxc_record_read(&cx, tables, NOBODY, &record));
    return record.state;
}

/* What the command line says about the module at `path`, stdout and stderr; its exit status. */
static int tell(const char *command, const char *options, char said[16384])
{
    char line[700];
    (void)snprintf(line, sizeof(line), SX_BINARY_DIR "/bin/symplex-client %s %s %s 2>&1", command,
                   path, options);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t size = fread(said, 1, 16383, pipe);
    said[size] = '\0';
    int status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define says(status, command, options, part)                                                     \
    do {                                                                                         \
        char said_[16384];                                                                       \
        int exit_ = tell(command, options, said_);                                               \
        ck_assert_msg(exit_ == (status), "%s: exit %d: %s", command, exit_, said_);              \
        ck_assert_msg(strstr(said_, part) != NULL, "%s: '%s' not in: %s", command, part, said_); \
    } while (0)
#define never_says(command, options, part)                                                   \
    do {                                                                                     \
        char said_[16384];                                                                   \
        (void)tell(command, options, said_);                                                 \
        ck_assert_msg(strstr(said_, part) == NULL, "%s: '%s' in: %s", command, part, said_); \
    } while (0)

START_TEST(what_was_compiled_here_is_verified)
{
    ck_sx_ok(&cx, sxc_write_file(&cx, path, sx_buf_span(&module)));
    ck_assert_int_eq(state_of(&original.module), SXC_RECORD_VERIFIED);
    says(0, "module check", "", "verified here, these bytes (key ");
    says(0, "verify", "", "verified   again just now (executed): 3 comparisons");
    sxc_verified check;
    ck_sx_ok(&cx, sxc_verify_here(&cx, sx_buf_span(&module), &how, &worker, &check));
    ck_assert_uint_eq(check.ran, 3);
    ck_assert(check.confined || SX_SANITIZED);
    says(0, "determinism", "", "kernels    1, of which 0 give other bits");
    says(0, "determinism --json", "", "\"threads\":7,\"gpu\":\"\",\"equal\":true}");
    says(0, "explain", "", "\nverified   ");
    says(0, "run", "--random 1", "record   verified here");
}
END_TEST

START_TEST(no_key_and_another_key)
{
    sx_module unsigned_module = original.module;
    unsigned_module.sealed = false;
    ck_assert_int_eq(state_of(&unsigned_module), SXC_RECORD_UNSIGNED);
    ck_sx_ok(&cx, sxc_write_file(&cx, path, sx_buf_span(&module)));
    ck_assert_int_eq(setenv("XDG_STATE_HOME", NOBODY, 1), 0);
    ck_assert_int_eq(state_of(&original.module), SXC_RECORD_UNKNOWN);
    says(0, "module check", "", "signed by an unknown key, not trusted (key ");
    says(0, "explain", "", "\nclaimed    ");
    never_says("explain", "", "passed");
    says(0, "run", "--random 1", "not verified for these bytes");
}
END_TEST

/* The first place where an addition of the code can be made a subtraction so that it computes something else;
 * the code is still one of listed forms. */
static bool alter_code(sx_module *altered, uint8_t *code)
{
    for (uint64_t i = 0; i < altered->code_count; i++) {
        if (code[i] != 0x58) {
            continue;
        }
        code[i] = 0x5c;
        sx_buf bytes;
        sxc_verified check;
        sx_buf_init(&bytes, (size_t)1 << 28);
        bool other =
            sxr_check_code(&cx, NULL, altered) == SX_OK &&
            sx_module_encode(&cx, altered, &bytes) == SX_OK &&
            sxc_verify_here(&cx, sx_buf_span(&bytes), &how, &worker, &check) == SX_MISMATCH;
        sx_ctx_reset_error(&cx);
        sx_buf_fini(&bytes);
        if (other) {
            return true;
        }
        code[i] = 0x58;
    }
    return false;
}

START_TEST(altered_code_with_repaired_checksums)
{
    sx_module altered = original.module;
    uint8_t *code = malloc((size_t)altered.code_count);
    memcpy(code, altered.code, (size_t)altered.code_count);
    altered.code = code;
    ck_assert(alter_code(&altered, code));
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 28);
    ck_sx_ok(&cx, sx_module_encode(&cx, &altered, &bytes)); /* with checksums that fit */
    ck_sx_ok(&cx, sxc_write_file(&cx, path, sx_buf_span(&bytes)));
    ck_assert_int_eq(state_of(&altered), SXC_RECORD_ALTERED);
    says(4, "module check", "", "does not fit these bytes");
    says(1, "verify", "", "kernel");
    says(1, "verify --random 7", "", "seed 7");
    says(1, "determinism", "", "BUT    under");
    says(0, "explain", "", "it does not fit these bytes");
    never_says("explain", "", "passed");
    says(0, "module show", "", "it does not fit these bytes");
    never_says("module show --json", "", "\"record\":\"verified\"");
    says(0, "run", "--random 1", "not verified for these bytes: symplex-client verify");
    sx_buf_fini(&bytes);
    free(code);
}
END_TEST

/* The id of a numerics plan that is not that of the kernel. */
START_TEST(altered_numerics)
{
    sx_module altered = original.module;
    sx_module_kernel kernel = altered.kernel[0];
    sx_buf bytes;
    ck_assert_uint_eq(altered.kernel_count, 1);
    kernel.numerics++;
    altered.kernel = &kernel;
    sx_buf_init(&bytes, (size_t)1 << 28);
    ck_sx_ok(&cx, sx_module_encode(&cx, &altered, &bytes));
    ck_sx_ok(&cx, sxc_write_file(&cx, path, sx_buf_span(&bytes)));
    says(0, "verify", "", "verified   again just now");
    says(1, "determinism", "", "the kernel of its schedule has numerics plan");
    sx_buf_fini(&bytes);
}
END_TEST

/* The record itself: a comparison that did not run made one that passed, an error made smaller. */
START_TEST(altered_record)
{
    sx_module altered = original.module;
    sx_module_check check[8];
    ck_assert_uint_le(altered.check_count, SX_COUNT(check));
    memcpy(check, altered.check, (size_t)altered.check_count * sizeof(*check));
    altered.check = check;
    ck_assert_int_eq(state_of(&altered), SXC_RECORD_VERIFIED);
    check[0].error += 1e-9;
    ck_assert_int_eq(state_of(&altered), SXC_RECORD_ALTERED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("record");
    TCase *cases = tcase_create("record");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, what_was_compiled_here_is_verified);
    tcase_add_test(cases, no_key_and_another_key);
    tcase_add_test(cases, altered_code_with_repaired_checksums);
    tcase_add_test(cases, altered_record);
    tcase_add_test(cases, altered_numerics);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
