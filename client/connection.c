#include "client/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "protocol/sp.h"

#define REPLY_BYTES_MAX ((size_t)1 << 31)
#define REQUEST_ID 0x80000000u /* top bit: the end of the id stack */

struct sxc_connection {
    int fd;
    uint32_t serial;
    sx_sp_reader reader;
    uint8_t input[65536]; /* received, not yet taken by the reader */
    size_t input_first, input_last;
    char path[SXC_PATH_MAX];
};

sx_code sxc_default_socket(sx_ctx *cx, char path[SXC_PATH_MAX])
{
    const char *given = getenv("SYMPLEX_SOCKET");
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int length;
    if (given != NULL && given[0] != '\0') {
        length = snprintf(path, SXC_PATH_MAX, "%s", given);
    } else if (runtime != NULL && runtime[0] != '\0') {
        length = snprintf(path, SXC_PATH_MAX, "%s/symplex/d.sock", runtime);
    } else {
        length = snprintf(path, SXC_PATH_MAX, "/tmp/symplex-%u/d.sock", (unsigned)getuid());
    }
    if (length < 0 || length >= SXC_PATH_MAX) {
        return SX_FAIL(cx, SX_USAGE, "socket path of %d bytes, at most %d", length,
                       SXC_PATH_MAX - 1);
    }
    return SX_OK;
}

sx_code sxc_socket_of(sx_ctx *cx, const char *given, char path[SXC_PATH_MAX])
{
    if (given == NULL) {
        return sxc_default_socket(cx, path);
    }
    size_t length = strlen(given);
    if (length >= SXC_PATH_MAX) {
        return SX_FAIL(cx, SX_USAGE, "socket path of %zu bytes, at most %d", length,
                       SXC_PATH_MAX - 1);
    }
    memcpy(path, given, length + 1);
    return SX_OK;
}

/* ---- waiting ---- */

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Absolute deadline; INT64_MAX for none. */
static int64_t deadline_of(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
}

static sx_code wait_for(sx_ctx *cx, sxc_connection *c, short events, int64_t deadline)
{
    for (bool last = false;;) {
        int64_t left = deadline == INT64_MAX ? -1 : deadline - now_ms();
        if (cx->cancelled != NULL && cx->cancelled(cx->cancelled_self)) {
            return SX_FAIL(cx, SX_CANCELLED, "%s: given up by the caller", c->path);
        }
        if (last) {
            return SX_FAIL(cx, SX_TIMEOUT, "%s: no answer within the deadline", c->path);
        }
        if (deadline != INT64_MAX && left <= 0) { /* it may have come while we did not run */
            last = true;
            left = 0;
        }
        struct pollfd wait = {.fd = c->fd, .events = events};
        bool asks = cx->cancelled != NULL && (left < 0 || left > SXC_ASK_MS);
        int ready = poll(&wait, 1, asks ? SXC_ASK_MS : (int)sx_min_i64(left, 1 << 30));
        if (ready > 0) {
            return SX_OK; /* an error or hang-up shows itself in the next read or write */
        }
        if (ready < 0 && errno != EINTR) {
            return SX_FAIL(cx, SX_SYSTEM, "%s: %s", c->path, strerror(errno));
        }
    }
}

/* ---- bytes ---- */

static sx_code send_all(sx_ctx *cx, sxc_connection *c, sx_span bytes, int64_t deadline)
{
    size_t sent = 0;
    while (sent < bytes.len) {
        ssize_t n = send(c->fd, bytes.ptr + sent, bytes.len - sent, MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return SX_FAIL(cx, SX_NODAEMON, "%s: the daemon went away: %s", c->path,
                           strerror(errno));
        } else {
            SX_TRY(wait_for(cx, c, POLLOUT, deadline));
        }
    }
    return SX_OK;
}

/* Reads until the reader reports `wanted`. */
static sx_code receive(sx_ctx *cx, sxc_connection *c, sx_sp_event wanted, int64_t deadline)
{
    for (;;) {
        while (c->input_first < c->input_last) {
            sx_span input = {c->input + c->input_first, c->input_last - c->input_first};
            sx_sp_event event;
            SX_TRY(sx_sp_reader_feed(cx, &c->reader, &input, &event));
            c->input_first = c->input_last - input.len;
            if (event == wanted) {
                return SX_OK;
            }
        }
        SX_TRY(wait_for(cx, c, POLLIN, deadline));
        ssize_t n = recv(c->fd, c->input, sizeof(c->input), 0);
        if (n == 0) {
            return SX_FAIL(cx, SX_NODAEMON, "%s: the daemon closed the connection", c->path);
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return SX_FAIL(cx, SX_NODAEMON, "%s: the daemon went away: %s", c->path,
                           strerror(errno));
        }
        c->input_first = 0;
        c->input_last = n > 0 ? (size_t)n : 0;
    }
}

/* ---- connecting ---- */

void sxc_disconnect(sxc_connection *c)
{
    if (c == NULL) {
        return;
    }
    if (c->fd >= 0) {
        (void)close(c->fd);
    }
    sx_sp_reader_fini(&c->reader);
    free(c);
}

static sx_code open_socket(sx_ctx *cx, sxc_connection *c, int64_t deadline)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, c->path, strlen(c->path) + 1);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0) {
        return SX_FAIL(cx, SX_SYSTEM, "socket: %s", strerror(errno));
    }
    while (connect(c->fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        if (errno != EAGAIN && errno != EINTR) {
            return SX_FAIL(cx, SX_NODAEMON, "no daemon at %s: %s", c->path, strerror(errno));
        }
        if (now_ms() >= deadline) { /* a full backlog: something listens but accepts nobody */
            return SX_FAIL(cx, SX_NODAEMON, "no daemon at %s: it does not accept connections",
                           c->path);
        }
        (void)poll(NULL, 0, 2);
    }
    return SX_OK;
}

static sx_code say_hello(sx_ctx *cx, sxc_connection *c, int64_t deadline)
{
    uint8_t hello[SX_SP_HELLO_BYTES];
    sx_sp_hello(SX_SP_REQ, hello);
    sx_code code = send_all(cx, c, (sx_span){hello, sizeof(hello)}, deadline);
    code = code == SX_OK ? receive(cx, c, SX_SP_READY, deadline) : code;
    if (code == SX_TIMEOUT || code == SX_INPUT) { /* whatever it is, it is no daemon of ours */
        bool silent = code == SX_TIMEOUT;
        sx_ctx_reset_error(cx);
        return SX_FAIL(cx, SX_NODAEMON, "no daemon at %s: what listens there %s", c->path,
                       silent ? "says nothing" : "speaks another protocol");
    }
    return code;
}

/* The folder in which the socket lies: whoever may write to it may put a socket of his own there. */
static sx_code check_folder(sx_ctx *cx, const char *path, const sx_trust *trust)
{
    char folder[SXC_PATH_MAX];
    (void)snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL) {
        (void)snprintf(folder, sizeof(folder), ".");
    } else {
        slash[slash == folder ? 1 : 0] = '\0';
    }
    sx_code code = sx_trust_folder(cx, "socket", folder, trust, 0022);
    if (code == SX_ABSENT) {
        sx_ctx_reset_error(cx);
        return SX_FAIL(cx, SX_NODAEMON, "no daemon at %s: there is no folder %s", path, folder);
    }
    return code;
}

sx_code sxc_connect(sx_ctx *cx, const char *path, int timeout_ms, sxc_connection **connection)
{
    sx_trust trust;
    SX_TRY(sx_trust_of_process(cx, &trust));
    return sxc_connect_as(cx, path, timeout_ms, &trust, connection);
}

sx_code sxc_connect_as(sx_ctx *cx, const char *path, int timeout_ms, const sx_trust *trust,
                       sxc_connection **connection)
{
    if (strlen(path) >= SXC_PATH_MAX) {
        return SX_FAIL(cx, SX_USAGE, "socket path of %zu bytes, at most %d", strlen(path),
                       SXC_PATH_MAX - 1);
    }
    SX_TRY(check_folder(cx, path, trust));
    sxc_connection *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for a connection");
    }
    c->fd = -1;
    (void)snprintf(c->path, sizeof(c->path), "%s", path);
    sx_sp_reader_init(&c->reader, SX_SP_REP, REPLY_BYTES_MAX);
    int64_t deadline = deadline_of(timeout_ms);
    sx_code code = open_socket(cx, c, deadline);
    code = code == SX_OK ? sx_trust_peer(cx, path, c->fd, trust) : code;
    code = code == SX_OK ? say_hello(cx, c, deadline) : code;
    if (code != SX_OK) {
        sxc_disconnect(c);
        return code;
    }
    *connection = c;
    return SX_OK;
}

/* ---- calls ---- */

static sx_code send_request(sx_ctx *cx, sxc_connection *c, sx_method method, const void *args,
                            int64_t deadline)
{
    sx_buf message;
    sx_buf_init(&message, SX_RPC_REQUEST_BYTES_MAX + 4096);
    uint32_t id = REQUEST_ID | (++c->serial & 0x7fffffffu);
    uint8_t stack[4] = {(uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};
    sx_buf_put(&message, stack, sizeof(stack));
    sx_rpc_encode_request(&message, c->serial, method, args, NULL);
    sx_code code = sx_buf_check(cx, &message, "request");
    uint8_t head[SX_SP_HEAD_BYTES];
    sx_sp_head(message.len, head);
    code = code == SX_OK ? send_all(cx, c, (sx_span){head, sizeof(head)}, deadline) : code;
    code = code == SX_OK ? send_all(cx, c, sx_buf_span(&message), deadline) : code;
    sx_buf_fini(&message);
    return code;
}

sx_code sxc_call(sx_ctx *cx, sxc_connection *c, sx_method method, const void *args, int timeout_ms,
                 const void **result)
{
    int64_t deadline = deadline_of(timeout_ms);
    SX_TRY(send_request(cx, c, method, args, deadline));
    sx_rpc_response response;
    do { /* answers to calls given up earlier are passed over */
        SX_TRY(receive(cx, c, SX_SP_FRAME, deadline));
        sx_span stack, payload;
        SX_TRY(sx_sp_split(cx, sx_buf_span(&c->reader.body), &stack, &payload));
        SX_TRY(sx_rpc_decode_response(cx, payload, method, &response));
    } while (response.msgid != c->serial);
    if (response.failed) {
        return sx_rpc_raise(cx, &response.error);
    }
    *result = response.result;
    return SX_OK;
}
