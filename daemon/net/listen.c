/* listen.c - the socket in the file system: its directory, its owner, what an earlier daemon left behind. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/state.h"
#include "trust/trust.h"

#define BACKLOG 512

/* The directory of the socket: made with mode 0700 when absent; refused when others could replace the socket in it. */
static sx_code check_directory(sx_ctx *cx, const char *path)
{
    char directory[SXD_TEXT_MAX];
    (void)snprintf(directory, sizeof(directory), "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash == NULL || slash == directory) {
        return slash == NULL ? SX_OK : SX_FAIL(cx, SX_USAGE, "socket: '%s' lies in the root", path);
    }
    *slash = '\0';
    if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
        return SX_FAIL(cx, SX_SYSTEM, "socket: directory %s cannot be made: %s", directory,
                       strerror(errno));
    }
    sx_trust us = {.self = geteuid(), .also = geteuid()};
    return sx_trust_folder(cx, "socket", directory, &us, 0022); /* what clients ask for, too */
}

/* Removes a socket that nobody answers on. */
static sx_code remove_stale(sx_ctx *cx, const struct sockaddr_un *address)
{
    struct stat status;
    if (lstat(address->sun_path, &status) != 0) {
        return errno == ENOENT
                   ? SX_OK
                   : SX_FAIL(cx, SX_SYSTEM, "socket: %s: %s", address->sun_path, strerror(errno));
    }
    if (!S_ISSOCK(status.st_mode)) {
        return SX_FAIL(cx, SX_USAGE, "socket: %s exists and is not a socket", address->sun_path);
    }
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) {
        return SX_FAIL(cx, SX_SYSTEM, "socket: %s", strerror(errno));
    }
    int error = connect(probe, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : errno;
    (void)close(probe);
    if (error != ECONNREFUSED) {
        return SX_FAIL(cx, SX_BUSY, "socket: %s answers, another daemon serves it",
                       address->sun_path);
    }
    sxd_log(SXD_INFO, "stale-socket", "path=%s", address->sun_path);
    return unlink(address->sun_path) == 0 || errno == ENOENT
               ? SX_OK
               : SX_FAIL(cx, SX_SYSTEM, "socket: %s: %s", address->sun_path, strerror(errno));
}

static void on_connection(uv_stream_t *listener, int status)
{
    sxd_daemon *daemon = listener->data;
    if (status != 0) {
        sxd_log(SXD_WARN, "accept", "error=%s", uv_err_name(status));
        return;
    }
    sxd_session_accept(daemon);
}

/* Binds with mode 0600 from the first moment on; the descriptor, or -1. */
static int bind_private(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    mode_t old = umask(0177);
    int error = bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : errno;
    (void)umask(old);
    if (error != 0) {
        (void)close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

sx_code sxd_listen_open(sx_ctx *cx, sxd_daemon *daemon)
{
    const char *path = daemon->config.options.socket;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len >= sizeof(address.sun_path)) {
        return SX_FAIL(cx, SX_USAGE, "socket: path of %zu bytes, at most %zu", len,
                       sizeof(address.sun_path) - 1);
    }
    memcpy(address.sun_path, path, len + 1);
    SX_TRY(check_directory(cx, path));
    SX_TRY(remove_stale(cx, &address));
    int fd = bind_private(&address);
    if (fd < 0) {
        return SX_FAIL(cx, SX_SYSTEM, "socket: %s cannot be bound: %s", path, strerror(errno));
    }
    (void)uv_pipe_init(&daemon->loop, &daemon->listener, 0);
    daemon->listener.data = daemon;
    int error = uv_pipe_open(&daemon->listener, fd);
    if (error == 0) {
        error = uv_listen((uv_stream_t *)&daemon->listener, BACKLOG, on_connection);
    }
    daemon->listener_open = true;
    return error == 0 ? SX_OK : SX_FAIL(cx, SX_SYSTEM, "socket: %s: %s", path, uv_strerror(error));
}

void sxd_listen_close(sxd_daemon *daemon)
{
    if (daemon->listener_open) {
        daemon->listener_open = false;
        (void)unlink(daemon->config.options
                         .socket); /* ours: nobody else removes it while we hold the lock */
        uv_close((uv_handle_t *)&daemon->listener, NULL);
    }
}
