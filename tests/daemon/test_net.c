/* A session on a stream that exists in this test alone: no socket, no process. What goes in and out is compared
 * byte for byte with frames that are written here by hand. */
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/net/net.h"

/* ---- a transport in memory ---- */
typedef struct {
    sxd_stream stream; /* first */
    bool reading, closed, finished, refuses, gone;
    sxd_write *pending; /* not done yet */
    uint8_t sent[4096];
    size_t sent_len;
    size_t gone_out; /* of the write that waits */
    uint32_t write_count;
} pipe_;

static bool pipe_start(sxd_stream *stream)
{
    ((pipe_ *)stream)->reading = true;
    return true;
}

static void pipe_stop(sxd_stream *stream)
{
    ((pipe_ *)stream)->reading = false;
}

/* One write at a time waits until pipe_flush. */
static bool pipe_write(sxd_stream *stream, sxd_write *write)
{
    pipe_ *p = (pipe_ *)stream;
    if (p->refuses) {
        return false;
    }
    ck_assert_ptr_null(p->pending);
    p->pending = write;
    p->write_count++;
    return true;
}

static void pipe_flush(pipe_ *p, const char *error)
{
    sxd_write *write = p->pending;
    p->pending = NULL;
    if (write == NULL) {
        return;
    }
    for (uint32_t i = 0; error == NULL && i < 2; i++) {
        if (write->part[i].len > 0) {
            ck_assert_uint_le(p->sent_len + write->part[i].len, sizeof(p->sent));
            memcpy(p->sent + p->sent_len, write->part[i].ptr, write->part[i].len);
            p->sent_len += write->part[i].len;
        }
    }
    write->done(write, error);
}

static size_t pipe_waiting(const sxd_stream *stream)
{
    const pipe_ *p = (const pipe_ *)stream;
    const sxd_write *write = p->pending;
    return write != NULL ? write->part[0].len + write->part[1].len - p->gone_out : 0;
}

static bool pipe_gone(sxd_stream *stream)
{
    return ((pipe_ *)stream)->gone;
}

static void pipe_close(sxd_stream *stream)
{
    pipe_ *p = (pipe_ *)stream;
    ck_assert(!p->closed);
    p->closed = true;
}

/* A stream tells its user later, when the loop turns, that it is closed. */
static void pipe_finish(pipe_ *p)
{
    if (p->closed && !p->finished) {
        p->finished = true;
        pipe_flush(p, "closed");
        if (p->stream.user != NULL) {
            p->stream.user->closed(p->stream.self);
        }
    }
}

static const sxd_stream_class pipe_class = {.start = pipe_start,
                                            .stop = pipe_stop,
                                            .write = pipe_write,
                                            .waiting = pipe_waiting,
                                            .gone = pipe_gone,
                                            .close = pipe_close};

/* ---- a server that keeps its calls ---- */
#define CALLS 8
static sxd_call *kept[CALLS];
static uint32_t kept_count, left_count;

static void serve(void *self, sxd_call *call)
{
    (void)self;
    ck_assert_uint_lt(kept_count, CALLS);
    kept[kept_count++] = call;
}

static uint64_t closed_peer;

static void closed(void *self, uint64_t number)
{
    (void)self;
    closed_peer = number;
}

static void leave(void *self, sxd_call *call)
{
    (void)self;
    ck_assert(!call->pinned);
    left_count++;
}

static sxd_base *base;
static sxd_net net;
static pipe_ peer;
static const sxd_principal me = {.space = 7, .rights = SXD_MAY_USE, .pid = 1};

static void on_soon(void *self)
{
    sxd_net_wake(self);
}

static void setup(void)
{
    base = calloc(1, sizeof(*base));
    ck_assert_ptr_nonnull(base);
    ck_assert_int_eq(uv_loop_init(&base->loop), 0);
    ck_assert(sxd_base_open(base, on_soon, &net));
    base->config.options.inflight_max = 2;
    base->config.options.clients_max = 1;
    base->config.options.output_mb = 1;
    base->config.options.stall_ms = 1000;
    net = (sxd_net){.base = base, .server = {.serve = serve, .leave = leave, .closed = closed}};
    peer = (pipe_){.stream = {.class = &pipe_class}};
    kept_count = left_count = 0;
    sxd_log_set(SXD_ERROR);
}

static void teardown(void)
{
    sxd_net_close(&net, "the test ends");
    pipe_finish(&peer);
    base->phase = SXD_DOWN;
    sxd_base_close(base);
    (void)uv_run(&base->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&base->loop), 0);
    free(base);
}

static void turn(void)
{
    (void)uv_run(&base->loop, UV_RUN_NOWAIT);
    pipe_finish(&peer);
}

static void feed(const void *bytes, size_t len)
{
    peer.stream.user->bytes(peer.stream.self, (sx_span){bytes, len});
}

/* ---- frames by hand: docs/PROTOCOL.md ---- */
static const uint8_t hello_req[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
static const uint8_t hello_rep[8] = {0, 'S', 'P', 0, 0, 0x31, 0, 0};
/* 01, size 13; hop 5, then request id 0x80000001; [0, id, "ping" without arguments ...] is 10 bytes */
#define PING(id)                                                                                 \
    {                                                                                            \
        1, 0, 0, 0, 0, 0, 0, 0, 18, 0, 0, 0, 5, 0x80, 0, 0, 1, 0x94, 0, id, 0xa4, 'p', 'i', 'n', \
            'g', 0x91, 0x80                                                                      \
    }

static void open_peer(void)
{
    sxd_session_open(&net, &peer.stream, &me);
    ck_assert_ptr_nonnull(net.sessions);
    ck_assert(peer.reading);
    pipe_flush(&peer, NULL);
    ck_assert_uint_eq(peer.sent_len, sizeof(hello_rep));
    ck_assert_int_eq(memcmp(peer.sent, hello_rep, sizeof(hello_rep)), 0);
    peer.sent_len = 0;
    feed(hello_req, sizeof(hello_req));
}

/* The request arrives byte by byte; the answer carries its stack and id. */
START_TEST(one_call)
{
    static const uint8_t ping[] = PING(9);
    open_peer();
    for (size_t i = 0; i < sizeof(ping); i++) {
        ck_assert_uint_eq(kept_count, 0);
        feed(ping + i, 1);
    }
    ck_assert_uint_eq(kept_count, 1);
    ck_assert_int_eq(kept[0]->request.method, SX_METHOD_PING);
    ck_assert_uint_eq(kept[0]->principal.space, 7);
    sx_ping_result result = {.boot_id = SX_SPAN_LITERAL("b"), .now_ms = 1};
    sxd_call_result(kept[0], &result, NULL);
    ck_assert(sxd_net_writes(&net));
    pipe_flush(&peer, NULL);
    ck_assert(!sxd_net_writes(&net));
    static const uint8_t head[] = {0, 0, 0, 5, 0x80, 0, 0, 1, 0x94, 1, 9, 0xc0};
    ck_assert_uint_gt(peer.sent_len, 9 + sizeof(head));
    ck_assert_uint_eq(peer.sent[0], 1);
    ck_assert_uint_eq(peer.sent[8], peer.sent_len - 9); /* below 256 */
    ck_assert_int_eq(memcmp(peer.sent + 9, head, sizeof(head)), 0);
}
END_TEST

/* Two calls may be under way: the third is looked at once one is answered, and not before the loop turns. */
START_TEST(window)
{
    static const uint8_t ping[3][27] = {PING(1), PING(2), PING(3)};
    open_peer();
    feed(ping, sizeof(ping));
    ck_assert_uint_eq(kept_count, 2);
    ck_assert(!peer.reading);
    sxd_call_refuse(kept[1], SX_BUSY, 5, "another time");
    pipe_flush(&peer, NULL);
    ck_assert_uint_eq(kept_count, 2); /* never in the middle of an answer */
    turn();
    ck_assert_uint_eq(kept_count, 3);
    ck_assert_uint_eq(kept[2]->request.msgid, 3);
    ck_assert_uint_eq(base->metrics.errors, 1);
}
END_TEST

START_TEST(refused)
{
    const sxd_principal nobody = {.space = 8};
    sxd_session_open(&net, &peer.stream, &nobody);
    ck_assert(peer.closed);
    ck_assert_ptr_null(net.sessions);
    ck_assert_uint_eq(base->metrics.sessions_refused, 1);
    peer = (pipe_){.stream = {.class = &pipe_class}};
    open_peer();
    pipe_ second = {.stream = {.class = &pipe_class}};
    sxd_session_open(&net, &second.stream, &me); /* clients_max is 1 */
    ck_assert(second.closed);
    ck_assert_uint_eq(net.session_count, 1);
}
END_TEST

/* The client goes: the server leaves one call, and keeps the pinned one, which it answers into the void. */
START_TEST(client_gone)
{
    static const uint8_t ping[2][27] = {PING(1), PING(2)};
    open_peer();
    feed(ping, sizeof(ping));
    ck_assert_uint_eq(kept_count, 2);
    kept[1]->pinned = true;
    uint64_t number = kept[0]->peer;
    ck_assert_uint_eq(kept[1]->peer, number);
    peer.stream.user->end(peer.stream.self, "closed by the client");
    ck_assert_uint_eq(closed_peer, number);
    ck_assert(peer.closed);
    ck_assert_uint_eq(left_count, 1);
    ck_assert_ptr_null(kept[1]->session);
    kept[1]->pinned = false;
    sxd_call_refuse(kept[1], SX_BUSY, 0, "nobody reads this");
    ck_assert_uint_eq(peer.write_count, 1); /* the hello */
}
END_TEST

START_TEST(broken_output)
{
    static const uint8_t ping[2][27] = {PING(1), PING(2)};
    open_peer();
    feed(ping, sizeof(ping));
    peer.refuses = true;
    sxd_call_refuse(kept[0], SX_BUSY, 0, "lost");
    ck_assert(!peer.closed); /* not in the middle of an answer */
    turn();
    ck_assert(peer.closed);
    ck_assert_uint_eq(left_count, 1);
}
END_TEST

START_TEST(no_protocol)
{
    static const char http[] = "GET / HTTP/1.1\r\n\r\n";
    sxd_session_open(&net, &peer.stream, &me);
    pipe_flush(&peer, NULL);
    feed(http, sizeof(http) - 1);
    ck_assert(peer.closed);
    ck_assert_uint_eq(base->metrics.protocol_errors, 1);
}
END_TEST

/* While a window is full nothing is read: the sweep asks the stream whether its peer is gone. */
START_TEST(gone_while_full)
{
    static const uint8_t ping[2][27] = {PING(1), PING(2)};
    open_peer();
    feed(ping, sizeof(ping));
    sxd_net_sweep(&net);
    ck_assert(!peer.closed);
    peer.gone = true;
    sxd_net_sweep(&net);
    ck_assert(peer.closed);
    ck_assert_uint_eq(left_count, 2);
}
END_TEST

/* A peer that reads slowly is no peer that reads nothing. */
START_TEST(slow_reader)
{
    static const uint8_t ping[] = PING(1);
    open_peer();
    feed(ping, sizeof(ping));
    base->config.options.stall_ms = 1;
    sxd_call_refuse(kept[0], SX_BUSY, 0, "a long answer");
    sxd_net_sweep(&net);
    for (peer.gone_out = 1; peer.gone_out < 8; peer.gone_out++) {
        uint64_t now = sxd_base_now(base);
        while (sxd_base_now(base) < now + 3) {
            uv_update_time(&base->loop);
        }
        sxd_net_sweep(&net);
        ck_assert(!peer.closed);
    }
    uint64_t now = sxd_base_now(base);
    while (sxd_base_now(base) < now + 3) {
        uv_update_time(&base->loop);
    }
    peer.gone_out--; /* as the last sweep saw it */
    sxd_net_sweep(&net);
    ck_assert(peer.closed);
}
END_TEST

START_TEST(principals)
{
    sxd_principal self = sxd_principal_of_process(7, 1, 7);
    sxd_principal root = sxd_principal_of_process(0, 1, 7);
    sxd_principal other = sxd_principal_of_process(8, 1, 7);
    ck_assert(sxd_principal_may(&self, SXD_MAY_USE | SXD_MAY_MANAGE));
    ck_assert(!sxd_principal_may(&self, SXD_MAY_SEE_ALL));
    ck_assert(!sxd_principal_may(&other, SXD_MAY_USE));
    ck_assert(sxd_principal_sees(&self, 7) && !sxd_principal_sees(&self, 8));
    ck_assert(sxd_principal_sees(&root, 7) && sxd_principal_sees(&root, 0));
    ck_assert(!sxd_principal_sees(&other, 8)); /* without rights not even its own */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("net");
    TCase *cases = tcase_create("net");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, one_call);
    tcase_add_test(cases, window);
    tcase_add_test(cases, refused);
    tcase_add_test(cases, client_gone);
    tcase_add_test(cases, broken_output);
    tcase_add_test(cases, no_protocol);
    tcase_add_test(cases, gone_while_full);
    tcase_add_test(cases, slow_reader);
    tcase_add_test(cases, principals);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
