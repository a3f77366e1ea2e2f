/* Writing files: whole or not at all; links stay, devices are never replaced. All names are in a folder of the test. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    ck_sx_fails(&cx, sxc_write_file(&cx, in_folder("link"), sx_span_of("text")), SX_SYSTEM,
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
    ck_sx_fails(&cx, sxc_write_file(&cx, folder, sx_span_of("text")), SX_SYSTEM, folder);
    sx_ctx_reset_error(&cx);
    ck_sx_fails(&cx, sxc_write_file(&cx, in_folder("none/file"), sx_span_of("text")), SX_SYSTEM,
                "none/file");
    (void)unlink(in_folder("file"));
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
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
