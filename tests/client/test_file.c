/* Writing files: whole or not at all; links stay, devices are never replaced. All names are in a folder of the test. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/file.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[4][128];
    static uint32_t next;
    char *to = path[next++ % 4];
    (void)snprintf(to, sizeof(path[0]), "%s/%s", folder, name);
    return to;
}

static void setup(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/sxfile.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
    (void)unlink(in_folder("file"));
    (void)unlink(in_folder("link"));
    ck_assert_int_eq(rmdir(folder), 0); /* no temporary file is left */
}

static void check_content(const char *path, const char *want)
{
    char got[64] = {0};
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    (void)fread(got, 1, sizeof(got) - 1, file);
    (void)fclose(file);
    ck_assert_str_eq(got, want);
}

static bool is_link(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISLNK(status.st_mode);
}

START_TEST(test_link_stays)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sxc_write_file(&cx, in_folder("file"), sx_span_of("first")));
    ck_assert_int_eq(symlink("file", in_folder("link")), 0);
    ck_sx_ok(&cx, sxc_write_file(&cx, in_folder("link"), sx_span_of("second")));
    ck_assert(is_link(in_folder("link")));
    check_content(in_folder("file"), "second");
    sx_ctx_fini(&cx);
}
END_TEST

/* Through a link, so that a writer that replaces what it finds replaces the link only. */
START_TEST(test_device_stays)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_assert_int_eq(symlink("/dev/full", in_folder("link")), 0);
    ck_sx_fails(&cx, sxc_write_file(&cx, in_folder("link"), sx_span_of("text")), SX_INPUT,
                "No space left on device");
    ck_assert(is_link(in_folder("link")));
    ck_assert_int_eq(unlink(in_folder("link")), 0);
    ck_assert_int_eq(symlink("/dev/null", in_folder("link")), 0);
    sx_ctx_reset_error(&cx);
    ck_sx_ok(&cx, sxc_write_file(&cx, in_folder("link"), sx_span_of("text")));
    ck_assert(is_link(in_folder("link")));
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_failure_leaves_the_old_file)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_fails(&cx, sxc_write_file(&cx, folder, sx_span_of("text")), SX_INPUT, folder);
    sx_ctx_reset_error(&cx);
    ck_sx_fails(&cx, sxc_write_file(&cx, in_folder("none/file"), sx_span_of("text")), SX_INPUT,
                "none/file");
    (void)unlink(in_folder("file"));
    sx_ctx_fini(&cx);
}
END_TEST

/* The disk is full in the middle, as a limit on the size of files has it: nothing is left, and the old file stays. */
START_TEST(test_full_disk_leaves_no_part)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sxc_write_file(&cx, in_folder("file"), sx_span_of("old")));
    size_t size = (size_t)1 << 20;
    void *bytes = sx_alloc(&cx, size);
    ck_assert_ptr_nonnull(bytes);
    struct rlimit before, limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 65536, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    sx_code code = sxc_write_file(&cx, in_folder("file"), (sx_span){bytes, size});
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_sx_fails(&cx, code, SX_INPUT, in_folder("file"));
    check_content(in_folder("file"), "old");
    sx_ctx_fini(&cx);
}
END_TEST

static void check_refused(const char *path, const char *why)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_fails(&cx, sxc_check_output(&cx, path), SX_INPUT, why);
    ck_sx_fails(&cx, sxc_check_output(&cx, path), SX_INPUT, path);
    ck_assert_int_eq(sx_code_exit(SX_INPUT), 4);
    sx_ctx_fini(&cx);
}

/* Asked before the work. What may be written is not touched by the question. */
START_TEST(test_outputs_are_checked)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sxc_check_output(&cx, in_folder("file")));
    ck_assert_int_ne(access(in_folder("file"), F_OK), 0);
    ck_sx_ok(&cx, sxc_write_file(&cx, in_folder("file"), sx_span_of("old")));
    ck_sx_ok(&cx, sxc_check_output(&cx, in_folder("file")));
    check_content(in_folder("file"), "old");
    ck_sx_ok(&cx, sxc_check_output(&cx, "-"));
    ck_sx_ok(&cx, sxc_check_output(&cx, "/dev/null"));
    check_refused(in_folder("none/file"), "No such file or directory");
    check_refused(in_folder("file/below"), "Not a directory");
    check_refused(folder, "is a folder");
    check_refused("/proc/none.sxm", "cannot be written");
    char name[400];
    (void)snprintf(name, sizeof(name), "%s/%0300d", folder, 1);
    check_refused(name, "File name too long");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("file");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, test_link_stays);
    tcase_add_test(all, test_device_stays);
    tcase_add_test(all, test_failure_leaves_the_old_file);
    tcase_add_test(all, test_full_disk_leaves_no_part);
    tcase_add_test(all, test_outputs_are_checked);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
