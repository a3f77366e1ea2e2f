/* unix.c - the transport that there is: a socket in the file system, with its folder, its owner and what an earlier
 * daemon left behind, and the stream of one connection on it. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

#include "daemon/net/net.h"
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

/* ---- the stream ---- */
typedef struct {
    sxd_stream stream; /* first: the session knows nothing but this */
    sxd_base *base;
    uv_pipe_t pipe;
} unix_stream;

static unix_stream *of(sxd_stream *stream)
{
    return (unix_stream *)stream;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    unix_stream *u = handle->data;
    buf->base = (char *)u->base->chunk;
    buf->len = sizeof(u->base->chunk);
}

static void on_read(uv_stream_t *handle, ssize_t count, const uv_buf_t *buf)
{
    unix_stream *u = handle->data;
    const sxd_stream *stream = &u->stream;
    if (count < 0) {
        stream->user->end(stream->self,
                          count == UV_EOF ? "closed by the client" : uv_err_name((int)count));
    } else {
        stream->user->bytes(stream->self, (sx_span){(const uint8_t *)buf->base, (size_t)count});
    }
}

static bool start(sxd_stream *stream)
{
    return uv_read_start((uv_stream_t *)&of(stream)->pipe, on_alloc, on_read) == 0;
}

static void stop(sxd_stream *stream)
{
    (void)uv_read_stop((uv_stream_t *)&of(stream)->pipe);
}

static void on_written(uv_write_t *request, int status)
{
    sxd_write *write = request->data;
    write->done(write, status == 0 ? NULL : uv_err_name(status));
}

static bool begin_write(sxd_stream *stream, sxd_write *write)
{
    uv_buf_t bufs[2];
    unsigned count = 0;
    for (uint32_t i = 0; i < SX_COUNT(write->part); i++) {
        if (write->part[i].len > 0) {
            /* libuv does not write to it */
            bufs[count++] = (uv_buf_t){.base = (char *)(uintptr_t)write->part[i].ptr,
                                       .len = write->part[i].len};
        }
    }
    SX_ASSERT(count > 0);
    write->request.data = write;
    return uv_write(&write->request, (uv_stream_t *)&of(stream)->pipe, bufs, count, on_written) ==
           0;
}

static size_t waiting(const sxd_stream *stream)
{
    const unix_stream *u = (const unix_stream *)stream;
    return uv_stream_get_write_queue_size((const uv_stream_t *)&u->pipe);
}

static bool gone(sxd_stream *stream)
{
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&of(stream)->pipe, &fd) != 0) {
        return true;
    }
    struct pollfd poll_fd = {.fd = fd, .events = POLLRDHUP};
    return poll(&poll_fd, 1, 0) == 1;
}

static void on_closed(uv_handle_t *handle)
{
    unix_stream *u = handle->data;
    if (u->stream.user != NULL) {
        u->stream.user->closed(u->stream.self);
    }
    free(u);
}

static void close_stream(sxd_stream *stream)
{
    uv_close((uv_handle_t *)&of(stream)->pipe, on_closed);
}

static const sxd_stream_class unix_class = {.start = start,
                                            .stop = stop,
                                            .write = begin_write,
                                            .waiting = waiting,
                                            .gone = gone,
                                            .close = close_stream};

/* ---- listening ---- */
typedef struct {
    sxd_listener listener; /* first */
    sxd_net *net;
    uv_pipe_t pipe;
    char path[SXD_TEXT_MAX];
} unix_listener;

/* The process at the other end, as the kernel names it. Without a name it has no rights. */
static sxd_principal peer_of(const unix_stream *u)
{
    uv_os_fd_t fd;
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (uv_fileno((const uv_handle_t *)&u->pipe, &fd) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return (sxd_principal){.space = UINT32_MAX};
    }
    return sxd_principal_of_process(peer.uid, peer.pid, getuid());
}

static void on_connection(uv_stream_t *handle, int status)
{
    unix_listener *l = handle->data;
    unix_stream *u = status == 0 ? calloc(1, sizeof(*u)) : NULL;
    if (u == NULL) {
        sxd_log(status == 0 ? SXD_ERROR : SXD_WARN, "accept", "error=%s",
                status == 0 ? "\"no memory\"" : uv_err_name(status));
        return;
    }
    u->stream.class = &unix_class;
    u->base = l->net->base;
    (void)uv_pipe_init(&u->base->loop, &u->pipe, 0);
    u->pipe.data = u;
    bool taken = uv_accept(handle, (uv_stream_t *)&u->pipe) == 0;
    sxd_principal principal = taken ? peer_of(u) : (sxd_principal){.space = UINT32_MAX};
    sxd_session_open(l->net, &u->stream, &principal);
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

static void on_listener_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_listener(sxd_listener *listener)
{
    unix_listener *l = (unix_listener *)listener;
    (void)unlink(l->path); /* it is ours: nobody else removes it while we hold the lock */
    uv_close((uv_handle_t *)&l->pipe, on_listener_closed);
}

/* The address of a path; the folder is fit, and nobody answers there. */
static sx_code address_of(sx_ctx *cx, const char *path, struct sockaddr_un *address)
{
    size_t len = strlen(path);
    if (len >= sizeof(address->sun_path)) {
        return SX_FAIL(cx, SX_USAGE, "socket: path of %zu bytes, at most %zu", len,
                       sizeof(address->sun_path) - 1);
    }
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, path, len + 1);
    SX_TRY(check_directory(cx, path));
    return remove_stale(cx, address);
}

sx_code sxd_unix_listen(sx_ctx *cx, sxd_net *net, const char *path)
{
    SX_ASSERT(net->server.serve != NULL && path[0] != '\0');
    struct sockaddr_un address;
    SX_TRY(address_of(cx, path, &address));
    unix_listener *l = calloc(1, sizeof(*l));
    int fd = l != NULL ? bind_private(&address) : -1;
    if (fd < 0) {
        bool memory = l == NULL;
        free(l);
        return memory ? SX_FAIL(cx, SX_NOMEM, "socket: no memory")
                      : SX_FAIL(cx, SX_SYSTEM, "socket: %s cannot be bound: %s", path,
                                strerror(errno));
    }
    l->listener.close = close_listener;
    l->net = net;
    l->pipe.data = l;
    (void)snprintf(l->path, sizeof(l->path), "%s", path);
    (void)uv_pipe_init(&net->base->loop, &l->pipe, 0);
    LL_PREPEND(net->listeners, &l->listener);
    int error = uv_pipe_open(&l->pipe, fd);
    if (error == 0) {
        error = uv_listen((uv_stream_t *)&l->pipe, BACKLOG, on_connection);
    }
    return error == 0 ? SX_OK : SX_FAIL(cx, SX_SYSTEM, "socket: %s: %s", path, uv_strerror(error));
}
