/* A process of another user that owns the socket: the library tells it nothing and takes nothing from it. As
 * root the stranger is a real second user; without root it is a process of ours that a client of another uid
 * meets (sxc_connect_as). */
#include "client/symplex.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/connection.h"
#include "tests/lib/test.h"

#define STRANGER 4242424u
#define SPOKEN 7 /* exit status of a stranger to whom somebody said something */

static const char program_text[] = "sx 1\n"
                                   "graph \"twice\" () {\n"
                                   "    %0 = parameter {name = \"x\", weight = 0} : f32[4]\n"
                                   "    %1 = add(%0, %0) : f32[4]\n"
                                   "    return %1 as \"y\"\n"
                                   "}\n";

static char top[256], folder[300], path[310], said[600];
static uint32_t said_count;
static pid_t stranger;

/* Listens, tells the parent, and ends when a peer has gone: was anything said? */
static void listen_as(uid_t uid, int ready)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool fine = setresuid(uid, uid, uid) == 0 &&
                bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
                listen(listener, 8) == 0 && write(ready, "r", 1) == 1;
    char byte;
    bool spoken = false;
    for (uint32_t i = 0; fine && !spoken && i < 2; i++) {
        int peer = accept(listener, NULL, NULL);
        spoken = recv(peer, &byte, 1, 0) > 0;
        (void)close(peer);
    }
    _exit(!fine ? 1 : spoken ? SPOKEN : 0);
}

static void start_stranger(uid_t uid)
{
    int pipes[2];
    char byte;
    ck_assert_int_eq(pipe(pipes), 0);
    stranger = fork();
    ck_assert_int_ge(stranger, 0);
    if (stranger == 0) {
        listen_as(uid, pipes[1]);
    }
    (void)close(pipes[1]);
    ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
    (void)close(pipes[0]);
}

static void setup(void)
{
    sx_test_mkdtemp(top);
    ck_assert_int_eq(chmod(top, 0755), 0);
    (void)snprintf(folder, sizeof(folder), "%s/f", top);
    (void)snprintf(path, sizeof(path), "%s/s", folder);
    ck_assert_int_eq(mkdir(folder, 0755), 0);
    said_count = 0;
    stranger = 0;
}
static void teardown(void)
{
    if (stranger > 0) {
        (void)kill(stranger, SIGKILL);
        (void)waitpid(stranger, NULL, 0);
    }
    sx_test_rmtree(top);
}

static void hear(void *self, const char *text)
{
    (void)self;
    said_count++;
    (void)snprintf(said, sizeof(said), "%s", text);
}

/* The library with this socket: compiles in process and says `part` once; with DAEMON_ONLY it is an error that
 * says it. */
static void library_refuses(const char *part)
{
    symplex_options options = {.socket = path, .message = hear};
    symplex_program program = {.bytes = program_text, .size = sizeof(program_text) - 1};
    symplex_compiled info;
    symplex_client *client;
    symplex_error error;
    void *bytes = NULL;
    size_t size;
    ck_assert_int_eq(symplex_open(&options, &client, NULL), SYMPLEX_OK);
    symplex_code code = symplex_compile(client, &program, &bytes, &size, &info, &error);
    ck_assert_msg(code == SYMPLEX_OK, "%s", error.text);
    ck_assert_str_eq(info.tier, "process");
    ck_assert_uint_eq(said_count, 1);
    ck_assert_msg(strstr(said, part) != NULL && strstr(said, "; compiling in process") != NULL,
                  "said '%s'", said);
    symplex_free(bytes);
    symplex_close(client);
    options.daemon = SYMPLEX_DAEMON_ONLY;
    ck_assert_int_eq(symplex_open(&options, &client, &error), SYMPLEX_DENIED);
    ck_assert_msg(strstr(error.text, part) != NULL, "text is '%s'", error.text);
}

/* Two peers came and went; neither said anything. */
static void stranger_heard_nothing(void)
{
    int status = 0;
    ck_assert_int_eq(waitpid(stranger, &status, 0), stranger);
    stranger = 0;
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

START_TEST(a_strangers_process)
{
    if (geteuid() == 0) {
        char part[64];
        ck_assert_int_eq(chown(folder, STRANGER, (gid_t)-1), 0); /* to bind there */
        start_stranger(STRANGER);
        ck_assert_int_eq(chown(folder, 0, (gid_t)-1), 0);
        (void)snprintf(part, sizeof(part), "user %u listens there, we are 0", STRANGER);
        library_refuses(part);
        stranger_heard_nothing();
        return;
    }
    /* not root: a client of another uid; the look at the peer alone is in trust.test_folder */
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sxc_connection *connection = NULL;
    sx_trust other = {.self = geteuid() + 1, .also = geteuid() + 1};
    start_stranger(geteuid());
    ck_sx_fails(&cx, sxc_connect_as(&cx, path, 1000, &other, &connection), SX_DENIED, "belongs to");
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(a_strangers_folder)
{
    char part[400];
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(folder, STRANGER, (gid_t)-1), 0);
        (void)snprintf(part, sizeof(part), "folder %s belongs to user %u", folder, STRANGER);
    } else { /* one that any stranger may write to */
        ck_assert_int_eq(chmod(folder, 0777), 0);
        (void)snprintf(part, sizeof(part), "folder %s has mode 0777", folder);
    }
    start_stranger(geteuid() == 0 ? STRANGER : geteuid());
    library_refuses(part);
    ck_assert_int_eq(waitpid(stranger, NULL, WNOHANG), 0); /* nobody came */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stranger");
    TCase *cases = tcase_create("stranger");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, a_strangers_process);
    tcase_add_test(cases, a_strangers_folder);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
