#include "tests/bench/server.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"

#define WAIT_MS 5000u

extern char **environ;

int sx_bench_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

bool sx_bench_folder_make(const char *bench, char folder[SX_BENCH_PATH_MAX])
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder, SX_BENCH_PATH_MAX, "%.80s/sxbench.XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL) {
        (void)fprintf(stderr, "bench %s: %s: %s\n", bench, folder, strerror(errno));
        return false;
    }
    return true;
}

static bool answers(const char *path)
{
    int fd = sx_bench_connect(path);
    if (fd >= 0) {
        (void)close(fd);
    }
    return fd >= 0;
}

bool sx_bench_server_start(const char *bench, const char *program, sx_bench_server *server)
{
    char path[512];
    char state[SX_BENCH_PATH_MAX + 8];
    if (!sx_bench_folder_make(bench, server->folder)) {
        return false;
    }
    (void)snprintf(server->socket, sizeof(server->socket), "%s/d", server->folder);
    (void)snprintf(state, sizeof(state), "%s/state", server->folder);
    (void)snprintf(path, sizeof(path), "%s/bin/%s", SX_BINARY_DIR, program);
    char level[] = "--log-level";
    char none[] = "0";
    char state_option[] = "--state";
    char socket_option[] = "--socket";
    char *arguments[] = {path,  level,         none,           state_option,
                         state, socket_option, server->socket, NULL};
    bool started = posix_spawn(&server->pid, path, NULL, NULL, arguments, environ) == 0;
    for (uint32_t i = 0; started && i < WAIT_MS; i++) {
        if (answers(server->socket)) {
            return true;
        }
        (void)usleep(1000);
    }
    (void)fprintf(stderr, "bench %s: %s does not answer\n", bench, path);
    server->pid = started ? server->pid : -1;
    sx_bench_server_stop(server);
    return false;
}

void sx_bench_server_stop(sx_bench_server *server)
{
    if (server->pid > 0) {
        (void)kill(server->pid, SIGTERM);
        (void)waitpid(server->pid, NULL, 0);
    }
    sx_test_rmtree(server->folder);
}
