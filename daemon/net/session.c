/* session.c - connections: frames in, answers out, and everything a slow or hostile peer may try. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "daemon/service/search.h"

#define WINDOW_BYTES ((size_t)1 << 20) /* output waiting, above which no further request is read */
#define TRACE_BYTES_MAX 55             /* a W3C traceparent */
#define CALL_ARENA_BYTES ((size_t)96 << 20)

/* ---- windows ---- */
/* May another request of this client be looked at? */
static bool window_open(const sxd_session *session)
{
    return !session->closing && session->doomed == NULL &&
           session->inflight < (uint64_t)session->daemon->config.options.inflight_max &&
           uv_stream_get_write_queue_size((const uv_stream_t *)&session->pipe) <= WINDOW_BYTES;
}

/* There may be room again. Input is taken later, from `idle`, so that answering one call never runs another. */
static void resume(sxd_session *session)
{
    if (window_open(session) && (!session->reading || session->rest.len > 0)) {
        session->woken = true;
        sxd_daemon_wake(session->daemon);
    }
}

/* Close soon: for places in the middle of an answer. `why` is static text. */
static void doom(sxd_session *session, const char *why)
{
    session->doomed = why;
    session->woken = true;
    sxd_daemon_wake(session->daemon);
}

/* ---- calls ---- */
static void call_free(sxd_call *call)
{
    sx_buf_fini(&call->body);
    sx_ctx_fini(&call->cx);
    free(call);
}

static void on_timer_closed(uv_handle_t *handle)
{
    call_free(handle->data);
}

/* Takes the call off its session, which may be closed from then on without touching it. */
static sxd_session *detach(sxd_call *call)
{
    sxd_session *session = call->session;
    if (session != NULL) {
        DL_DELETE(session->calls, call);
        SX_ASSERT(session->inflight > 0);
        session->inflight--;
        call->session = NULL;
    }
    return session;
}

static void end_call(sxd_call *call)
{
    SX_ASSERT(call->session == NULL && !call->keying);
    SX_ASSERT(call->job == NULL && call->search == NULL);
    SX_ASSERT(call->timer_state != SXD_TIMER_CLOSING);
    if (call->timer_state == SXD_TIMER_OPEN) {
        call->timer_state = SXD_TIMER_CLOSING;
        uv_close((uv_handle_t *)&call->timer, on_timer_closed);
    } else {
        call_free(call);
    }
}

void sxd_call_drop(sxd_call *call)
{
    sxd_session *session = detach(call);
    end_call(call);
    if (session != NULL) {
        resume(session);
    }
}

static sxd_call *call_new(sxd_session *session)
{
    sxd_call *call = calloc(1, sizeof(*call));
    if (call == NULL) {
        return NULL;
    }
    sxd_daemon *daemon = session->daemon;
    call->daemon = daemon;
    call->session = session;
    call->uid = session->uid;
    call->id = ++daemon->next_call;
    call->start_ns = uv_hrtime();
    call->deadline_ms = UINT64_MAX;
    call->hold_ms = UINT64_MAX;
    sx_ctx_init(&call->cx, CALL_ARENA_BYTES);
    call->body = session->reader.body; /* the call owns the frame from here on */
    sx_buf_init(&session->reader.body, session->reader.limit_bytes);
    session->inflight++;
    DL_APPEND(session->calls, call);
    daemon->metrics.calls++;
    return call;
}

/* ---- writing ---- */
typedef struct {
    uv_write_t request;
    sxd_session *session;
    sx_buf head; /* frame head, id stack, message up to the tail */
    sx_blob *tail;
} output;

static void output_free(output *out)
{
    sx_buf_fini(&out->head);
    sx_blob_free(out->tail);
    free(out);
}

static void on_written(uv_write_t *request, int status)
{
    output *out = request->data;
    sxd_session *session = out->session;
    output_free(out);
    session->moved_ms = uv_now(&session->daemon->loop);
    if (status == 0) {
        resume(session);
    } else if (!session->closing) {
        sxd_session_close(session, uv_err_name(status));
    }
}

/* Sends head and tail; both become the write's. `out->head` has SX_SP_HEAD_BYTES free in front. */
static void send_output(sxd_session *session, output *out, size_t tail_bytes)
{
    sxd_daemon *daemon = session->daemon;
    size_t body = out->head.len - SX_SP_HEAD_BYTES + tail_bytes;
    sx_sp_head(body, out->head.ptr);
    uv_buf_t bufs[2] = {
        {.base = (char *)out->head.ptr, .len = out->head.len},
        {.base = NULL, .len = 0},
    };
    if (tail_bytes > 0) {
        /* libuv does not write to it */
        bufs[1].base = (char *)sx_blob_bytes(out->tail);
        bufs[1].len = tail_bytes;
    }
    out->session = session;
    out->request.data = out;
    if (uv_stream_get_write_queue_size((uv_stream_t *)&session->pipe) == 0) {
        session->moved_ms = uv_now(&daemon->loop);
    }
    int error = uv_write(&out->request, (uv_stream_t *)&session->pipe, bufs, tail_bytes > 0 ? 2 : 1,
                         on_written);
    if (error != 0) {
        output_free(out);
        doom(session, "cannot write");
        return;
    }
    daemon->metrics.bytes_out += SX_SP_HEAD_BYTES + body;
    size_t waiting = uv_stream_get_write_queue_size((uv_stream_t *)&session->pipe);
    if (waiting > (uint64_t)daemon->config.options.output_mb << 20) {
        daemon->metrics.stalled++;
        doom(session, "too much output waiting");
    }
}

static output *output_new(const sxd_call *call)
{
    static const uint8_t room[SX_SP_HEAD_BYTES] = {0};
    output *out = calloc(1, sizeof(*out));
    if (out != NULL) {
        sx_buf_init(&out->head, SX_CACHE_BLOB_MAX + ((size_t)16 << 20));
        sx_buf_put(&out->head, room, sizeof(room));
        sx_buf_put(&out->head, call->stack, call->stack_len);
    }
    return out;
}

static void log_call(const sxd_call *call, sx_code code)
{
    bool known = call->request.addressed && call->request.args != NULL;
    sxd_log(SXD_DEBUG, "call", "req=%llu method=%s code=%s uid=%u dur_us=%llu trace=%s",
            (unsigned long long)call->id,
            known ? sx_method_get(call->request.method)->name : "unknown", sx_code_name(code),
            call->uid, (unsigned long long)((uv_hrtime() - call->start_ns) / 1000),
            call->trace[0] != '\0' ? call->trace : "none");
}

void sxd_call_result(sxd_call *call, const void *result, sx_blob *tail)
{
    sxd_session *session = call->session;
    output *out = session != NULL && session->doomed == NULL ? output_new(call) : NULL;
    if (out == NULL) {
        sx_blob_free(tail);
        sxd_call_drop(call);
        return;
    }
    sx_span rest = {0};
    sx_rpc_encode_result(&out->head, call->request.msgid, call->request.method, result,
                         tail != NULL ? &rest : NULL);
    out->tail = tail;
    SX_ASSERT(tail == NULL || rest.ptr == sx_blob_span(tail).ptr);
    if (out->head.code != SX_OK) {
        sx_code code = out->head.code;
        output_free(out);
        sxd_call_refuse(call, code, 0, "answer: cannot be encoded");
        return;
    }
    log_call(call, SX_OK);
    (void)detach(call);
    end_call(call);
    send_output(session, out, rest.len);
    resume(session);
}

void sxd_call_fail(sxd_call *call, const sx_error *error, int64_t after_ms)
{
    sxd_session *session = call->session;
    call->daemon->metrics.errors++;
    output *out = session != NULL && session->doomed == NULL ? output_new(call) : NULL;
    if (out == NULL) {
        sxd_call_drop(call);
        return;
    }
    sx_rpc_encode_error(&out->head, call->request.msgid, error, after_ms);
    log_call(call, error->code);
    (void)detach(call);
    end_call(call); /* `error` may lie in it: not used below */
    if (out->head.code == SX_OK) {
        send_output(session, out, 0);
    } else {
        output_free(out);
        doom(session, "no memory for an answer");
    }
    resume(session);
}

void sxd_call_refuse(sxd_call *call, sx_code code, int64_t after_ms, const char *format, ...)
{
    sx_error error = {.code = code};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error.text, sizeof(error.text), format, arguments);
    va_end(arguments);
    sxd_call_fail(call, &error, after_ms);
}

/* ---- reading ---- */
static void on_frame(sxd_session *session)
{
    sxd_call *call = call_new(session);
    if (call == NULL) {
        sxd_session_close(session, "no memory for a call");
        return;
    }
    sx_span stack;
    sx_span payload;
    sx_span body = sx_buf_span(&call->body);
    if (sx_sp_split(&call->cx, body, &stack, &payload) != SX_OK) {
        session->daemon->metrics.protocol_errors++;
        sxd_session_close(session, call->cx.error.text); /* drops the call as well */
        return;
    }
    memcpy(call->stack, stack.ptr, stack.len);
    call->stack_len = (uint32_t)stack.len;
    if (sx_rpc_decode_request(&call->cx, payload, &call->request) != SX_OK) {
        if (call->request.notice) {
            sxd_call_drop(call); /* nobody waits for an answer */
        } else {
            sxd_call_fail(call, &call->cx.error, 0); /* msgid 0 when it could not be read */
        }
        return;
    }
    if (call->request.notice) {
        sxd_call_drop(call);
        return;
    }
    session->daemon->metrics.by_method[call->request.method]++;
    if (SX_HAS(&call->request.meta, call_meta, tr)) {
        char quoted[SXD_QUOTE_MAX];
        sx_span trace = call->request.meta.tr;
        trace.len = trace.len < TRACE_BYTES_MAX ? trace.len : TRACE_BYTES_MAX;
        (void)snprintf(call->trace, sizeof(call->trace), "%s", sxd_quote(quoted, trace));
    }
    sxd_call_dispatch(call);
}

static void on_bytes_bad(sxd_session *session, const sx_ctx *cx)
{
    session->daemon->metrics.protocol_errors++;
    sxd_session_close(session, cx->error.text);
}

static void feed(sxd_session *session, sx_span input)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    SX_ASSERT(!session->feeding);
    session->feeding = true;
    sx_sp_event event = SX_SP_READY;
    while (event != SX_SP_MORE && window_open(session)) {
        if (sx_sp_reader_feed(&cx, &session->reader, &input, &event) != SX_OK) {
            on_bytes_bad(session, &cx);
        } else if (event == SX_SP_READY) {
            session->ready = true;
        } else if (event == SX_SP_FRAME) {
            on_frame(session);
        }
    }
    session->feeding = false;
    if (!session->closing && input.len > 0) {
        sx_buf_put_span(&session->rest, input);
        SX_ASSERT(session->rest.code != SX_LIMIT); /* at most one chunk is kept */
        if (session->rest.code != SX_OK) {
            sxd_session_close(session, "no memory for input");
        }
    }
    sx_ctx_fini(&cx);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    sxd_session *session = handle->data;
    buf->base = (char *)session->daemon->chunk;
    buf->len = sizeof(session->daemon->chunk);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    sxd_session *session = stream->data;
    if (count < 0) {
        sxd_session_close(session,
                          count == UV_EOF ? "closed by the client" : uv_err_name((int)count));
        return;
    }
    session->moved_ms = uv_now(&session->daemon->loop);
    session->daemon->metrics.bytes_in += (uint64_t)count;
    feed(session, (sx_span){(const uint8_t *)buf->base, (size_t)count});
    /* While a window is full nothing is read, and so an end of the connection is not seen: the sweep looks for it. */
    if (!session->closing && !window_open(session) && session->reading) {
        session->reading = false;
        (void)uv_read_stop(stream);
    }
}

/* Room in the window: first what was read already, then the socket. */
static void take_input(sxd_session *session)
{
    if (session->rest.len > 0 && window_open(session)) {
        sx_buf rest = session->rest;
        sx_buf_init(&session->rest, rest.limit);
        feed(session, sx_buf_span(&rest));
        sx_buf_fini(&rest);
    }
    if (!session->reading && window_open(session) && session->rest.len == 0) {
        session->reading = true;
        if (uv_read_start((uv_stream_t *)&session->pipe, on_alloc, on_read) != 0) {
            sxd_session_close(session, "cannot read");
        }
    }
}

void sxd_session_wake(sxd_daemon *daemon)
{
    sxd_session *session;
    sxd_session *next;
    DL_FOREACH_SAFE(daemon->sessions, session, next)
    {
        if (!session->woken) {
            continue;
        }
        session->woken = false;
        if (session->doomed != NULL) {
            sxd_session_close(session, session->doomed);
        } else {
            take_input(session);
        }
    }
}

/* ---- life ---- */
static void on_closed(uv_handle_t *handle)
{
    sxd_session *session = handle->data;
    SX_ASSERT(session->calls == NULL);
    sx_sp_reader_fini(&session->reader);
    sx_buf_fini(&session->rest);
    free(session);
}

void sxd_session_close(sxd_session *session, const char *why)
{
    if (session->closing) {
        return;
    }
    sxd_daemon *daemon = session->daemon;
    char quoted[SXD_QUOTE_MAX];
    sxd_log(SXD_DEBUG, "session-end", "session=%llu uid=%u pid=%d why=%s",
            (unsigned long long)session->id, session->uid, session->pid,
            sxd_quote(quoted, sx_span_of(why)));
    session->closing = true;
    DL_DELETE(daemon->sessions, session);
    daemon->session_count--;
    sxd_call *call;
    sxd_call *next;
    DL_FOREACH_SAFE(session->calls, call, next)
    {
        if (call->keying) { /* the pool thread still reads it: freed when that ends */
            DL_DELETE(session->calls, call);
            session->inflight--;
            call->session = NULL;
        } else {
            if (call->job != NULL) {
                sxd_queue_leave(call);
            } else if (call->search != NULL) {
                sxd_search_leave(call);
            }
            sxd_call_drop(call);
        }
    }
    uv_close((uv_handle_t *)&session->pipe, on_closed);
}

/* Is the peer gone although nothing is read from it? */
static bool peer_gone(sxd_session *session)
{
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&session->pipe, &fd) != 0) {
        return true;
    }
    struct pollfd poll_fd = {.fd = fd, .events = POLLRDHUP};
    return poll(&poll_fd, 1, 0) == 1;
}

void sxd_session_sweep(sxd_daemon *daemon)
{
    uint64_t now = uv_now(&daemon->loop);
    uint64_t stall = (uint64_t)daemon->config.options.stall_ms;
    sxd_session *session;
    sxd_session *next;
    DL_FOREACH_SAFE(daemon->sessions, session, next)
    {
        bool partial = session->reading && sx_sp_reader_partial(&session->reader);
        bool writing = uv_stream_get_write_queue_size((uv_stream_t *)&session->pipe) > 0;
        if ((partial || writing) && now - session->moved_ms > stall) {
            daemon->metrics.stalled++;
            sxd_session_close(session, writing ? "output makes no progress"
                                               : "hello or frame makes no progress");
        } else if (!session->reading && peer_gone(session)) {
            sxd_session_close(session, "closed by the client");
        }
    }
}

static void on_refused_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* The other side's user, process; false when the kernel does not say. */
static bool peer_of(sxd_session *session)
{
    uv_os_fd_t fd;
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (uv_fileno((uv_handle_t *)&session->pipe, &fd) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return false;
    }
    session->uid = peer.uid;
    session->pid = peer.pid;
    return true;
}

/* Sends our half of the SP hello. */
static void send_hello(sxd_session *session)
{
    output *out = calloc(1, sizeof(*out));
    uint8_t hello[SX_SP_HELLO_BYTES];
    if (out == NULL) {
        doom(session, "no memory for a hello");
        return;
    }
    sx_buf_init(&out->head, 64);
    sx_sp_hello(SX_SP_REP, hello);
    sx_buf_put(&out->head, hello, sizeof(hello));
    uv_buf_t buf = {.base = (char *)out->head.ptr, .len = out->head.len};
    out->session = session;
    out->request.data = out;
    if (uv_write(&out->request, (uv_stream_t *)&session->pipe, &buf, 1, on_written) != 0) {
        output_free(out);
        doom(session, "cannot write");
    }
}

void sxd_session_accept(sxd_daemon *daemon)
{
    sxd_session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        sxd_log(SXD_ERROR, "accept", "error=\"no memory\"");
        return;
    }
    session->daemon = daemon;
    (void)uv_pipe_init(&daemon->loop, &session->pipe, 0);
    session->pipe.data = session;
    bool taken = uv_accept((uv_stream_t *)&daemon->listener, (uv_stream_t *)&session->pipe) == 0;
    bool known = taken && peer_of(session);
    if (!known || (session->uid != getuid() && session->uid != 0) ||
        daemon->session_count >= (uint64_t)daemon->config.options.clients_max) {
        daemon->metrics.sessions_refused++;
        sxd_log(SXD_WARN, "session-refused", "uid=%u pid=%d open=%u", session->uid, session->pid,
                daemon->session_count);
        uv_close((uv_handle_t *)&session->pipe, on_refused_closed);
        return;
    }
    session->id = ++daemon->next_session;
    session->moved_ms = uv_now(&daemon->loop);
    sx_sp_reader_init(&session->reader, SX_SP_REQ, SX_RPC_REQUEST_BYTES_MAX + SXD_STACK_BYTES_MAX);
    sx_buf_init(&session->rest, sizeof(daemon->chunk));
    DL_APPEND(daemon->sessions, session);
    daemon->session_count++;
    daemon->metrics.sessions++;
    send_hello(session);
    take_input(session);
}
