/* Sources of settings, their order, and every way to get one wrong. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/config.h"

static sx_ctx cx;
static sxd_config config;
static char folder[256];
static char file[300];

static void setup(void)
{
    sx_ctx_init(&cx, 1 << 16);
    sx_test_mkdtemp(folder);
    (void)snprintf(file, sizeof(file), "%s/f.conf", folder);
    (void)setenv("HOME", folder, 1);
    (void)unsetenv("XDG_CONFIG_HOME");
    (void)unsetenv("XDG_STATE_HOME");
    (void)unsetenv("XDG_RUNTIME_DIR");
}

static void teardown(void)
{
    sx_test_rmtree(folder);
    sx_ctx_fini(&cx);
}

static void write_file(const char *text)
{
    FILE *out = fopen(file, "w");
    ck_assert_ptr_nonnull(out);
    (void)fputs(text, out);
    (void)fclose(out);
}

static sx_code load(const char *a, const char *b)
{
    char program[] = "symplexd";
    char name[] = "--config";
    char *first = a != NULL ? strdup(a) : NULL;
    char *second = b != NULL ? strdup(b) : NULL;
    char *arguments[] = {program, name, file, first, second, NULL};
    int count = 3 + (a != NULL ? 1 : 0) + (b != NULL ? 1 : 0);
    sx_code code = sxd_config_load(&cx, count, arguments, &config);
    free(first);
    free(second);
    return code;
}

START_TEST(order_of_sources)
{
    write_file("; a comment\n[symplexd]\nworkers = 3\nqueue_max=9\nwait_ms = 77\n");
    (void)setenv("SYMPLEX_QUEUE_MAX", "10", 1);
    (void)setenv("SYMPLEX_WAIT_MS", "78", 1);
    ck_sx_ok(&cx, load("--wait-ms", "79"));
    ck_assert_int_eq(config.options.workers, 3);
    ck_assert_int_eq(config.options.queue_max, 10);
    ck_assert_int_eq(config.options.wait_ms, 79);
    ck_assert_int_eq(config.options.drain_s, 30);
    ck_assert_int_eq(config.origin[SXD_OPTION_workers], SXD_FROM_FILE);
    ck_assert_int_eq(config.origin[SXD_OPTION_queue_max], SXD_FROM_ENVIRONMENT);
    ck_assert_int_eq(config.origin[SXD_OPTION_wait_ms], SXD_FROM_ARGUMENT);
    ck_assert_int_eq(config.origin[SXD_OPTION_drain_s], SXD_FROM_DEFAULT);
    sx_buf text;
    sx_buf_init(&text, 1 << 16);
    sxd_config_print(&config, &text);
    sx_buf_put_u8(&text, 0);
    ck_assert_ptr_nonnull(strstr((char *)text.ptr, "queue_max = 10    ; environment\n"));
    ck_assert_ptr_nonnull(strstr((char *)text.ptr, "workers = 3    ; file "));
    write_file((char *)text.ptr); /* what is printed reads back to the same values */
    sxd_config before = config;
    (void)unsetenv("SYMPLEX_QUEUE_MAX");
    (void)unsetenv("SYMPLEX_WAIT_MS");
    ck_sx_ok(&cx, load(NULL, NULL));
    ck_assert(memcmp(&before.options, &config.options, sizeof(before.options)) == 0);
    sx_buf_fini(&text);
}
END_TEST

START_TEST(default_paths)
{
    char expected[400];
    write_file("");
    ck_sx_ok(&cx, load(NULL, NULL));
    (void)snprintf(expected, sizeof(expected), "%s/.local/state/symplex", folder);
    ck_assert_str_eq(config.options.state, expected);
    (void)snprintf(expected, sizeof(expected), "/tmp/symplex-%u/d.sock", getuid());
    ck_assert_str_eq(config.options.socket, expected);
    (void)setenv("XDG_STATE_HOME", "/st", 1);
    (void)setenv("XDG_RUNTIME_DIR", "/run/x", 1);
    ck_sx_ok(&cx, load(NULL, NULL));
    ck_assert_str_eq(config.options.state, "/st/symplex");
    ck_assert_str_eq(config.options.socket, "/run/x/symplex/d.sock");
    (void)setenv("XDG_STATE_HOME", "relative", 1);
    (void)unsetenv("HOME");
    ck_sx_fails(&cx, load(NULL, NULL), SX_USAGE, "neither XDG_STATE_HOME nor HOME");
}
END_TEST

static void file_fails(const char *text, const char *part)
{
    write_file(text);
    ck_sx_fails(&cx, load(NULL, NULL), SX_INPUT, part);
}

START_TEST(wrong_files)
{
    char line[400];
    file_fails("\nworkerz = 3\n", "f.conf:2: key 'workerz' is not known");
    file_fails("workers = 3\nworkers = three\n",
               "f.conf:2: workers: 'three' is not a whole number");
    file_fails("workers = 0\n", "f.conf:1: workers: 0, allowed 1 to 64");
    file_fails("workers =\n", "f.conf:1: workers: '' is not a whole number");
    file_fails("workers = 99999999999999999999\n", "is not a whole number");
    file_fails("[other]\nworkers = 1\n", "section 'other' is not known");
    file_fails("no pair\n", "f.conf:1:");
    memset(line, 'x', sizeof(line));
    memcpy(line, "state = /", 9);
    line[sizeof(line) - 2] = '\n';
    line[sizeof(line) - 1] = '\0';
    file_fails(line, "f.conf:1: line of 398 bytes, at most 199");
    (void)unlink(file);
    ck_sx_fails(&cx, load(NULL, NULL), SX_SYSTEM, "cannot be read");
}
END_TEST

START_TEST(wrong_arguments)
{
    write_file("");
    ck_sx_fails(&cx, load("--worker", "3"), SX_USAGE, "");
    ck_sx_fails(&cx, load("--nothing", NULL), SX_USAGE, "'--nothing' is not known");
    ck_sx_fails(&cx, load("--workers", NULL), SX_USAGE, "lacks its value");
    ck_sx_fails(&cx, load("--workers", "65"), SX_USAGE, "workers: 65, allowed 1 to 64");
    ck_sx_fails(&cx, load("stray", NULL), SX_USAGE, "'stray' is not wanted");
    (void)setenv("SYMPLEX_WORKERS", "many", 1);
    ck_sx_fails(&cx, load(NULL, NULL), SX_USAGE, "workers: 'many'");
    (void)unsetenv("SYMPLEX_WORKERS");
    ck_sx_ok(&cx, load("--print-config", NULL));
    ck_assert_int_eq(config.action, SXD_PRINT_CONFIG);
    ck_sx_ok(&cx, load("--version", NULL));
    ck_assert_int_eq(config.action, SXD_VERSION);
}
END_TEST

static void on_report(void *self, const char *name, bool applied)
{
    uint32_t *seen = self;
    if (strcmp(name, "queue_max") == 0) {
        ck_assert(applied);
        *seen += 1;
    } else {
        ck_assert_str_eq(name, "workers");
        ck_assert(!applied);
        *seen += 100;
    }
}

START_TEST(apply)
{
    write_file("");
    ck_sx_ok(&cx, load(NULL, NULL));
    sxd_config old = config;
    write_file("workers = 5\nqueue_max = 6\n");
    ck_sx_ok(&cx, load(NULL, NULL));
    uint32_t seen = 0;
    sxd_config_apply(&old, &config, on_report, &seen);
    ck_assert_uint_eq(seen, 101);
    ck_assert_int_eq(old.options.queue_max, 6);
    ck_assert_int_eq(old.options.workers, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *cases = tcase_create("config");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, order_of_sources);
    tcase_add_test(cases, default_paths);
    tcase_add_test(cases, wrong_files);
    tcase_add_test(cases, wrong_arguments);
    tcase_add_test(cases, apply);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
