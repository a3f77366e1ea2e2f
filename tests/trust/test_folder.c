/* Folders and peers: believed only when nobody else can put something in their place. The expected uid is
 * given, so that the tests need no second user: a folder of ours is another user's to somebody else. */
#include "trust/trust.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"

static sx_ctx cx;
static char top[256];
static sx_trust us, others;

static void setup(void)
{
    sx_ctx_init(&cx, 1 << 16);
    sx_test_mkdtemp(top);
    us = (sx_trust){.self = geteuid(), .also = geteuid()};
    others = (sx_trust){.self = geteuid() + 4242, .also = geteuid() + 4242};
}
static void teardown(void)
{
    sx_test_rmtree(top);
    sx_ctx_fini(&cx);
}

static const char *make(const char *name, mode_t mode)
{
    static char path[8][600];
    static uint32_t next;
    char *made = path[next++ % SX_COUNT(path)];
    (void)snprintf(made, sizeof(path[0]), "%s/%s", top, name);
    ck_assert_int_eq(mkdir(made, 0700), 0);
    ck_assert_int_eq(chmod(made, mode), 0);
    return made;
}

static void denied(const char *path, mode_t forbidden, const char *part)
{
    ck_sx_fails(&cx, sx_trust_folder(&cx, "test", path, &us, forbidden), SX_DENIED, part);
}

START_TEST(folders_of_ours_are_believed)
{
    ck_sx_ok(&cx, sx_trust_folder(&cx, "test", make("a", 0700), &us, 0077));
    ck_sx_ok(&cx, sx_trust_folder(&cx, "test", make("b", 0755), &us, 0022));
    ck_sx_ok(&cx, sx_trust_folder(&cx, "test", "/", &us, 0022));
    ck_assert_int_eq(chdir(top), 0);
    ck_sx_ok(&cx, sx_trust_folder(&cx, "test", "a", &us, 0077));
    ck_sx_ok(&cx, sx_trust_folder(&cx, "test", "a//../b/", &us, 0022));
    ck_sx_ok(&cx, sx_trust_folder(&cx, "test", ".", &us, 0022));
    ck_sx_fails(&cx, sx_trust_folder(&cx, "test", "c/d", &us, 0022), SX_ABSENT, "/c: No such");
}
END_TEST

START_TEST(what_others_may_write_is_not)
{
    denied(make("group", 0720), 0022, "mode 0720");
    denied(make("world", 0702), 0022, "mode 0702");
    const char *sticky = make("sticky", 01777);
    ck_assert_int_eq(sx_trust_folder(&cx, "test", sticky, &us, 0022), SX_DENIED);
    ck_assert_ptr_null(strstr(cx.error.hint, "chmod")); /* as /tmp is: not to be closed */
    ck_assert_ptr_nonnull(strstr(cx.error.hint, "mkdir -m 700"));
    sx_ctx_reset_error(&cx);
    denied(sticky, 0022, "mode 1777");
    denied(make("seen", 0750), 0077, "mode 0750");
    denied(make("entered", 0701), 0077, "mode 0701");
}
END_TEST

/* Whoever may rename the folder above may put a folder of his own there. */
START_TEST(folders_above_count)
{
    (void)make("open", 0777);
    const char *inner = make("open/inner", 0700);
    denied(inner, 0022, "/open has mode 0777");
    denied(make("open/inner/more", 0700), 0022, "/open has mode 0777");
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/open", top);
    ck_assert_int_eq(chmod(path, 01777), 0);
    ck_sx_ok(&cx, sx_trust_folder(&cx, "test", inner, &us, 0022));
}
END_TEST

static const char *link_to(const char *name, const char *target)
{
    static char path[8][600];
    static uint32_t next;
    char *made = path[next++ % SX_COUNT(path)];
    (void)snprintf(made, sizeof(path[0]), "%s/%s", top, name);
    ck_assert_int_eq(symlink(target, made), 0);
    return made;
}

START_TEST(links)
{
    const char *folder = make("folder", 0700);
    (void)make("folder/inner", 0700);
    denied(link_to("direct", folder), 0022, "is a symbolic link");
    char path[700];
    (void)snprintf(path, sizeof(path), "%s/inner", link_to("way", "folder"));
    ck_sx_ok(&cx, sx_trust_folder(&cx, "test", path, &us, 0077));
    /* a link that leads through an open folder */
    (void)make("open", 0777);
    (void)make("open/deep", 0700);
    (void)make("open/deep/inner", 0700);
    (void)snprintf(path, sizeof(path), "%s/inner", link_to("round", "open/deep"));
    denied(path, 0022, "/open has mode 0777");
    (void)snprintf(path, sizeof(path), "%s/inner", link_to("loop", "loop"));
    ck_sx_fails(&cx, sx_trust_folder(&cx, "test", path, &us, 0022), SX_SYSTEM, "too many");
    (void)snprintf(path, sizeof(path), "%s/file", top);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    (void)fclose(file);
    denied(path, 0022, "is not a folder");
}
END_TEST

START_TEST(owners)
{
    const char *folder = make("mine", 0755);
    char want[64];
    if (geteuid() != 0) { /* what root owns is believed by everybody */
        (void)snprintf(want, sizeof(want), "belongs to user %u (mode 0700), we are %u", geteuid(),
                       others.self);
        ck_sx_fails(&cx, sx_trust_folder(&cx, "test", folder, &others, 0022), SX_DENIED, want);
        others.also = geteuid(); /* unless it is named */
    } else {
        ck_assert_int_eq(chown(folder, 4243, (gid_t)-1), 0);
        (void)snprintf(want, sizeof(want), "belongs to user 4243 (mode 0755), we are 0");
        denied(folder, 0022, want);
        ck_sx_fails(&cx, sx_trust_folder(&cx, "test", folder, &others, 0022), SX_DENIED, "4243");
        others.also = 4243;
        us.also = 4243;
        ck_sx_ok(&cx, sx_trust_folder(&cx, "test", folder, &us, 0022));
    }
    ck_sx_ok(&cx, sx_trust_folder(&cx, "test", folder, &others, 0022));
}
END_TEST

/* The peer of a socket pair is this process: another user's, for somebody else than it and root. */
START_TEST(peers)
{
    int pair[2];
    if (geteuid() == 0) {
        ck_assert_int_eq(seteuid(4243), 0); /* as a user: root is believed by everybody */
    }
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    sx_trust self = {.self = geteuid(), .also = geteuid()};
    sx_trust other = {.self = geteuid() + 1, .also = geteuid() + 1};
    char want[64];
    (void)snprintf(want, sizeof(want), "user %u listens there, we are %u", geteuid(), other.self);
    ck_sx_ok(&cx, sx_trust_peer(&cx, "/x/s", pair[0], &self));
    ck_sx_fails(&cx, sx_trust_peer(&cx, "/x/s", pair[0], &other), SX_DENIED, want);
    other.also = geteuid();
    ck_sx_ok(&cx, sx_trust_peer(&cx, "/x/s", pair[0], &other));
    ck_sx_fails(&cx, sx_trust_peer(&cx, "/x/s", STDIN_FILENO, &self), SX_DENIED, "does not say");
    (void)close(pair[0]);
    (void)close(pair[1]);
    if (getuid() == 0) {
        ck_assert_int_eq(seteuid(0), 0);
    }
}
END_TEST

START_TEST(files)
{
    char path[300], link_path[300];
    (void)snprintf(path, sizeof(path), "%s/library", top);
    (void)snprintf(link_path, sizeof(link_path), "%s/link", top);
    ck_sx_fails(&cx, sx_trust_file(&cx, "library", path, &us), SX_ABSENT, "is no regular file");
    FILE *file = fopen(path, "w");
    ck_assert(file != NULL && fclose(file) == 0 && chmod(path, 0644) == 0);
    ck_assert_int_eq(symlink(path, link_path), 0);
    ck_sx_ok(&cx, sx_trust_file(&cx, "library", path, &us));
    ck_sx_fails(&cx, sx_trust_file(&cx, "library", link_path, &us), SX_ABSENT, "no regular file");
    ck_sx_fails(&cx, sx_trust_file(&cx, "library", top, &us), SX_ABSENT, "no regular file");
    ck_assert_int_eq(chmod(path, 0664), 0);
    ck_sx_fails(&cx, sx_trust_file(&cx, "library", path, &us), SX_DENIED, "mode 0664");
    ck_assert(chmod(path, 0644) == 0 && chmod(top, 0702) == 0);
    ck_sx_fails(&cx, sx_trust_file(&cx, "library", path, &us), SX_DENIED, "others may");
    ck_assert_int_eq(chmod(top, 0700), 0);
    if (geteuid() != 0) { /* what is root's is believed by everybody */
        ck_sx_fails(&cx, sx_trust_file(&cx, "library", path, &others), SX_DENIED, "owner");
    }
}
END_TEST

START_TEST(the_variable)
{
    sx_trust trust;
    ck_assert_int_eq(unsetenv(SX_TRUST_UID_VARIABLE), 0);
    ck_sx_ok(&cx, sx_trust_of_process(&cx, &trust));
    ck_assert(trust.self == geteuid() && trust.also == geteuid());
    ck_assert_int_eq(setenv(SX_TRUST_UID_VARIABLE, "991", 1), 0);
    ck_sx_ok(&cx, sx_trust_of_process(&cx, &trust));
    ck_assert(trust.self == geteuid() && trust.also == 991);
    static const char *const bad[] = {"-1",    " 1",         "1x",
                                      "alice", "4294967295", "99999999999999999999"};
    for (uint32_t i = 0; i < SX_COUNT(bad); i++) {
        ck_assert_int_eq(setenv(SX_TRUST_UID_VARIABLE, bad[i], 1), 0);
        ck_sx_fails(&cx, sx_trust_of_process(&cx, &trust), SX_USAGE, "is not a user id");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("folder");
    TCase *cases = tcase_create("folder");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, folders_of_ours_are_believed);
    tcase_add_test(cases, what_others_may_write_is_not);
    tcase_add_test(cases, folders_above_count);
    tcase_add_test(cases, links);
    tcase_add_test(cases, owners);
    tcase_add_test(cases, peers);
    tcase_add_test(cases, files);
    tcase_add_test(cases, the_variable);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
