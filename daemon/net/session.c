/* session.c - connections: frames in, answers out, and everything a slow or hostile peer may try. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "daemon/net/net.h"

#define WINDOW_BYTES ((size_t)1 << 20) /* output waiting, above which no further request is read */
#define TRACE_BYTES_MAX 55             /* a W3C traceparent */
#define CALL_ARENA_BYTES ((size_t)96 << 20)

struct sxd_session {
    sxd_session *prev, *next; /* net->sessions */
    sxd_net *net;
    sxd_stream *stream;
    sx_sp_reader reader;
    sxd_call *calls; /* received, not answered */
    sxd_principal principal;
    uint64_t id;
    uint64_t moved_ms;     /* the last time that bytes moved, in either direction */
    size_t waiting_before; /* output that waited at the last sweep */
    uint32_t inflight;
    sx_buf rest;  /* read but not looked at: the window was full */
    bool feeding; /* frames are being taken out right now */
    bool reading; /* the stream is started */
    bool woken;   /* sxd_net_wake looks at it next: there is room in the window, or it is doomed */
    bool closing;
    const char *doomed; /* why it will be closed before the loop waits again; NULL: it will not */
};

static void close_session(sxd_session *session, const char *why);

/* ---- windows ---- */
static size_t output_waiting(const sxd_session *session)
{
    return session->stream->class->waiting(session->stream);
}

/* May another request of this client be looked at? */
static bool window_open(const sxd_session *session)
{
    return !session->closing && session->doomed == NULL &&
           session->inflight < (uint64_t)session->net->base->config.options.inflight_max &&
           output_waiting(session) <= WINDOW_BYTES;
}

/* There may be room again. Input is taken later, from sxd_net_wake, so that answering one call never runs another. */
static void resume(sxd_session *session)
{
    if (window_open(session) && (!session->reading || session->rest.len > 0)) {
        session->woken = true;
        sxd_base_wake(session->net->base);
    }
}

/* Close soon: for places in the middle of an answer. `why` is static text. */
static void doom(sxd_session *session, const char *why)
{
    session->doomed = why;
    session->woken = true;
    sxd_base_wake(session->net->base);
}

/* ---- calls ---- */
static void call_free(sxd_call *call)
{
    sx_buf_fini(&call->body);
    sx_ctx_fini(&call->cx);
    free(call);
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
    SX_ASSERT(call->session == NULL && !call->pinned);
    call_free(call);
}

void sxd_call_drop(sxd_call *call)
{
    SX_ASSERT(!call->pinned);
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
    sxd_net *net = session->net;
    call->net = net;
    call->session = session;
    call->principal = session->principal;
    call->peer = session->id;
    call->id = ++net->next_call;
    call->start_ns = uv_hrtime();
    call->deadline_ms = UINT64_MAX;
    sx_ctx_init(&call->cx, CALL_ARENA_BYTES);
    call->body = session->reader.body; /* the call owns the frame from here on */
    sx_buf_init(&session->reader.body, session->reader.limit_bytes);
    session->inflight++;
    DL_APPEND(session->calls, call);
    net->base->metrics.calls++;
    return call;
}

/* ---- writing ---- */
typedef struct {
    sxd_write write; /* first: the stream knows nothing but this */
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

static void on_written(sxd_write *write, const char *error)
{
    output *out = (output *)write;
    sxd_session *session = out->session;
    output_free(out);
    session->moved_ms = sxd_base_now(session->net->base);
    if (error == NULL) {
        resume(session);
    } else if (!session->closing) {
        close_session(session, error);
    }
}

/* Hands `out` to the stream; false: it is freed, and the session is doomed. */
static bool begin_write(sxd_session *session, SX_TAKE output *out, sx_span head, sx_span tail)
{
    SX_ASSERT(out->session == NULL && !session->closing);
    out->session = session;
    out->write = (sxd_write){.part = {head, tail}, .done = on_written};
    if (!session->stream->class->write(session->stream, &out->write)) {
        output_free(out);
        doom(session, "cannot write");
        return false;
    }
    return true;
}

/* Sends head and tail; both become the write's. `out->head` has SX_SP_HEAD_BYTES free in front. */
static void send_output(sxd_session *session, output *out, size_t tail_bytes)
{
    sxd_base *base = session->net->base;
    size_t body = out->head.len - SX_SP_HEAD_BYTES + tail_bytes;
    sx_span tail = {0};
    sx_sp_head(body, out->head.ptr);
    if (tail_bytes > 0) {
        tail = (sx_span){sx_blob_bytes(out->tail), tail_bytes};
    }
    if (output_waiting(session) == 0) {
        session->moved_ms = sxd_base_now(base);
    }
    if (!begin_write(session, out, sx_buf_span(&out->head), tail)) {
        return;
    }
    base->metrics.bytes_out += SX_SP_HEAD_BYTES + body;
    if (output_waiting(session) > (uint64_t)base->config.options.output_mb << 20) {
        base->metrics.stalled++;
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
            call->principal.space, (unsigned long long)((uv_hrtime() - call->start_ns) / 1000),
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
    SX_ASSERT(error->code != SX_OK);
    sxd_session *session = call->session;
    call->net->base->metrics.errors++;
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
    SX_ASSERT(code != SX_OK && after_ms >= 0);
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
        close_session(session, "no memory for a call");
        return;
    }
    sx_span stack;
    sx_span payload;
    sx_span body = sx_buf_span(&call->body);
    if (sx_sp_split(&call->cx, body, &stack, &payload) != SX_OK) {
        session->net->base->metrics.protocol_errors++;
        close_session(session, call->cx.error.text); /* drops the call as well */
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
    session->net->base->metrics.by_method[call->request.method]++;
    if (SX_HAS(&call->request.meta, call_meta, tr)) {
        char quoted[SXD_QUOTE_MAX];
        sx_span trace = call->request.meta.tr;
        trace.len = trace.len < TRACE_BYTES_MAX ? trace.len : TRACE_BYTES_MAX;
        (void)snprintf(call->trace, sizeof(call->trace), "%s", sxd_quote(quoted, trace));
    }
    session->net->server.serve(session->net->server.self, call);
}

static void on_bytes_bad(sxd_session *session, const sx_ctx *cx)
{
    session->net->base->metrics.protocol_errors++;
    close_session(session, cx->error.text);
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
        } else if (event == SX_SP_FRAME) {
            on_frame(session);
        }
    }
    session->feeding = false;
    if (!session->closing && input.len > 0) {
        sx_buf_put_span(&session->rest, input);
        SX_ASSERT(session->rest.code != SX_LIMIT); /* at most one chunk is kept */
        if (session->rest.code != SX_OK) {
            close_session(session, "no memory for input");
        }
    }
    sx_ctx_fini(&cx);
}

static void on_bytes(void *self, sx_span bytes)
{
    sxd_session *session = self;
    session->moved_ms = sxd_base_now(session->net->base);
    session->net->base->metrics.bytes_in += bytes.len;
    feed(session, bytes);
    /* While a window is full nothing is read, and so an end of the connection is not seen: the sweep looks for it. */
    if (!session->closing && !window_open(session) && session->reading) {
        session->reading = false;
        session->stream->class->stop(session->stream);
    }
}

static void on_end(void *self, const char *why)
{
    close_session(self, why);
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
        if (!session->stream->class->start(session->stream)) {
            close_session(session, "cannot read");
        }
    }
}

void sxd_net_wake(sxd_net *net)
{
    sxd_session *session;
    sxd_session *next;
    DL_FOREACH_SAFE(net->sessions, session, next)
    {
        if (!session->woken) {
            continue;
        }
        session->woken = false;
        if (session->doomed != NULL) {
            close_session(session, session->doomed);
        } else {
            take_input(session);
        }
    }
}

/* ---- life ---- */
static void on_closed(void *self)
{
    sxd_session *session = self;
    SX_ASSERT(session->calls == NULL && session->closing);
    sx_sp_reader_fini(&session->reader);
    sx_buf_fini(&session->rest);
    free(session);
}

static void close_session(sxd_session *session, const char *why)
{
    if (session->closing) {
        return;
    }
    sxd_net *net = session->net;
    char quoted[SXD_QUOTE_MAX];
    sxd_log(SXD_DEBUG, "session-end", "session=%llu uid=%u pid=%d why=%s",
            (unsigned long long)session->id, session->principal.space, session->principal.pid,
            sxd_quote(quoted, sx_span_of(why)));
    session->closing = true;
    DL_DELETE(net->sessions, session);
    net->session_count--;
    sxd_call *call;
    sxd_call *next;
    DL_FOREACH_SAFE(session->calls, call, next)
    {
        if (call->pinned) { /* a pool thread still reads it: it is freed when that ends */
            DL_DELETE(session->calls, call);
            session->inflight--;
            call->session = NULL;
        } else {
            net->server.leave(net->server.self, call);
            sxd_call_drop(call);
        }
    }
    net->server.closed(net->server.self, session->id);
    session->stream->class->close(session->stream);
}

void sxd_net_sweep(sxd_net *net)
{
    uint64_t now = sxd_base_now(net->base);
    uint64_t stall = (uint64_t)net->base->config.options.stall_ms;
    sxd_session *session;
    sxd_session *next;
    DL_FOREACH_SAFE(net->sessions, session, next)
    {
        bool partial = session->reading && sx_sp_reader_partial(&session->reader);
        size_t waiting = output_waiting(session);
        bool writing = waiting > 0;
        if (waiting < session->waiting_before) { /* a part of a long answer went */
            session->moved_ms = now;
        }
        session->waiting_before = waiting;
        if ((partial || writing) && now - session->moved_ms > stall) {
            net->base->metrics.stalled++;
            close_session(session, writing ? "output makes no progress"
                                           : "hello or frame makes no progress");
        } else if (!session->reading && session->stream->class->gone(session->stream)) {
            close_session(session, "closed by the client");
        }
    }
}

bool sxd_net_writes(const sxd_net *net)
{
    const sxd_session *session;
    DL_FOREACH(net->sessions, session)
    {
        if (output_waiting(session) > 0) {
            return true;
        }
    }
    return false;
}

void sxd_net_deafen(sxd_net *net)
{
    while (net->listeners != NULL) {
        sxd_listener *listener = net->listeners;
        LL_DELETE(net->listeners, listener);
        listener->close(listener);
    }
}

void sxd_net_close(sxd_net *net, const char *why)
{
    sxd_net_deafen(net);
    while (net->sessions != NULL) {
        close_session(net->sessions, why);
    }
    SX_ASSERT(net->session_count == 0);
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
    if (out->head.code != SX_OK) {
        output_free(out);
        doom(session, "no memory for a hello");
        return;
    }
    (void)begin_write(session, out, sx_buf_span(&out->head), (sx_span){0});
}

void sxd_session_open(sxd_net *net, sxd_stream *stream, const sxd_principal *principal)
{
    SX_ASSERT(stream->class != NULL && stream->user == NULL);
    static const sxd_stream_user user = {.bytes = on_bytes, .end = on_end, .closed = on_closed};
    sxd_base *base = net->base;
    bool welcome = sxd_principal_may(principal, SXD_MAY_USE) &&
                   net->session_count < (uint64_t)base->config.options.clients_max;
    sxd_session *session = welcome ? calloc(1, sizeof(*session)) : NULL;
    if (session == NULL) {
        base->metrics.sessions_refused++;
        sxd_log(SXD_WARN, "session-refused", "uid=%u pid=%d open=%u%s", principal->space,
                principal->pid, net->session_count, welcome ? " error=\"no memory\"" : "");
        stream->class->close(stream);
        return;
    }
    stream->user = &user;
    stream->self = session;
    session->net = net;
    session->stream = stream;
    session->principal = *principal;
    session->id = ++net->next_session;
    session->moved_ms = sxd_base_now(base);
    sx_sp_reader_init(&session->reader, SX_SP_REQ, SX_RPC_REQUEST_BYTES_MAX + SXD_STACK_BYTES_MAX);
    sx_buf_init(&session->rest, sizeof(base->chunk));
    DL_APPEND(net->sessions, session);
    net->session_count++;
    base->metrics.sessions++;
    send_hello(session);
    take_input(session);
}
