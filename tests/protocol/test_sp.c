/* The SP codec: every split of the input, hostile headers, and the distribution's nng as the peer. */
#include "tests/lib/test.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/rng.h"
#include "protocol/sp.h"

#define LIMIT ((size_t)1 << 20)

static void put_frame(sx_buf *wire, sx_span body)
{
    uint8_t head[SX_SP_HEAD_BYTES];
    sx_sp_head(body.len, head);
    sx_buf_put(wire, head, sizeof(head));
    sx_buf_put_span(wire, body);
}

START_TEST(any_split_gives_the_same_frames)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 300; round++) {
        uint8_t payload[600];
        size_t sizes[4];
        sx_buf wire;
        sx_buf_init(&wire, LIMIT);
        uint8_t hello[SX_SP_HELLO_BYTES];
        sx_sp_hello(SX_SP_REQ, hello);
        sx_buf_put(&wire, hello, sizeof(hello));
        for (uint32_t i = 0; i < sizeof(payload); i++) {
            payload[i] = (uint8_t)sx_rng_next(&rng);
        }
        for (uint32_t i = 0; i < 4; i++) {
            sizes[i] = sx_rng_below(&rng, 3) == 0 ? 0 : sx_rng_below(&rng, sizeof(payload));
            put_frame(&wire, (sx_span){payload, sizes[i]});
        }
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 16);
        sx_sp_reader reader;
        sx_sp_reader_init(&reader, SX_SP_REQ, LIMIT);
        size_t at = 0;
        uint32_t frames = 0;
        bool ready = false;
        while (at < wire.len) {
            size_t n = 1 + sx_rng_below(&rng, round % 2 == 0 ? 3 : 400);
            n = n < wire.len - at ? n : wire.len - at;
            sx_span input = {wire.ptr + at, n};
            at += n;
            sx_sp_event event;
            do {
                ck_sx_ok(&cx, sx_sp_reader_feed(&cx, &reader, &input, &event));
                if (event == SX_SP_READY) {
                    ck_assert(!ready && frames == 0);
                    ready = true;
                } else if (event == SX_SP_FRAME) {
                    ck_assert(ready);
                    ck_assert_uint_eq(reader.body.len, sizes[frames]);
                    ck_assert(sx_span_equal(sx_buf_span(&reader.body),
                                            (sx_span){payload, sizes[frames]}));
                    frames++;
                }
            } while (event != SX_SP_MORE);
        }
        ck_assert_uint_eq(frames, 4);
        ck_assert(!sx_sp_reader_partial(&reader));
        sx_sp_reader_fini(&reader);
        sx_ctx_fini(&cx);
        sx_buf_fini(&wire);
    }
}
END_TEST

static void feed_fails(sx_span bytes, sx_code code, const char *text)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_sp_reader reader;
    sx_sp_reader_init(&reader, SX_SP_REQ, LIMIT);
    sx_sp_event event = SX_SP_READY;
    sx_code got = SX_OK;
    while (got == SX_OK && event != SX_SP_MORE) {
        got = sx_sp_reader_feed(&cx, &reader, &bytes, &event);
    }
    ck_sx_fails(&cx, got, code, text);
    ck_assert_uint_le(reader.body.capacity, 4096); /* nothing was reserved for the claim */
    sx_span more = SX_SPAN_LITERAL("x");
    ck_sx_fails(&cx, sx_sp_reader_feed(&cx, &reader, &more, &event), SX_INPUT, "broken");
    sx_sp_reader_fini(&reader);
    sx_ctx_fini(&cx);
}

#define HELLO "\0SP\0\0\x30\0\0"
START_TEST(hostile_headers)
{
    feed_fails(SX_SPAN_LITERAL("GET / HTTP/1.1\r\n"), SX_INPUT, "not the SP wire");
    feed_fails(SX_SPAN_LITERAL("\0SP\0\0\x31\0\0"), SX_INPUT, "protocol 0x0031, expected 0x0030");
    feed_fails(SX_SPAN_LITERAL("\0SP\0\0\x30\0\1"), SX_INPUT, "not the SP wire");
    feed_fails(SX_SPAN_LITERAL(HELLO "\x02\0\0\0\0\0\0\0\1x"), SX_INPUT, "type 0x02");
    feed_fails(SX_SPAN_LITERAL(HELLO "\x01\0\0\1\0\0\0\0\0xxxx"), SX_LIMIT, "1099511627776 bytes");
    feed_fails(SX_SPAN_LITERAL(HELLO "\x01\xff\xff\xff\xff\xff\xff\xff\xff"), SX_LIMIT,
               "at most 1048576");
    feed_fails(SX_SPAN_LITERAL(HELLO "\x01\0\0\0\0\0\x10\0\1x"), SX_LIMIT, "1048577 bytes");
}
END_TEST

START_TEST(memory_follows_the_bytes)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_sp_reader reader;
    sx_sp_reader_init(&reader, SX_SP_REQ, LIMIT);
    sx_span bytes = SX_SPAN_LITERAL(HELLO "\x01\0\0\0\0\0\x0f\0\0only these");
    sx_sp_event event;
    do {
        ck_sx_ok(&cx, sx_sp_reader_feed(&cx, &reader, &bytes, &event));
    } while (event != SX_SP_MORE);
    ck_assert_uint_eq(reader.body.len, 10);
    ck_assert_uint_le(reader.body.capacity, 4096); /* of 983040 claimed */
    ck_assert(sx_sp_reader_partial(&reader));
    sx_sp_reader_fini(&reader);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(stack)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_span ids;
    sx_span payload;
    ck_sx_ok(&cx, sx_sp_split(&cx, SX_SPAN_LITERAL("\x80\0\0\1hi"), &ids, &payload));
    ck_assert(sx_span_is(payload, "hi") && ids.len == 4);
    ck_sx_ok(&cx, sx_sp_split(&cx, SX_SPAN_LITERAL("\0\0\0\7\0\0\0\5\xff\0\0\1"), &ids, &payload));
    ck_assert(payload.len == 0 && ids.len == 12);
    ck_sx_fails(&cx, sx_sp_split(&cx, SX_SPAN_LITERAL("\0\0\0\1\x80\0\0"), &ids, &payload),
                SX_INPUT, "7 bytes without a request id");
    ck_sx_fails(&cx, sx_sp_split(&cx, SX_SPAN_LITERAL(""), &ids, &payload), SX_INPUT, "0 bytes");
    uint8_t long_stack[4 * (SX_SP_STACK_MAX + 1)] = {0};
    long_stack[4 * SX_SP_STACK_MAX] = 0x80;
    ck_sx_fails(&cx, sx_sp_split(&cx, (sx_span){long_stack, sizeof(long_stack)}, &ids, &payload),
                SX_LIMIT, "more than 16 ids");
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- a stock nng REQ socket against a server made of the codec and nothing else ---- */
typedef struct {
    int listener;
    uint32_t answered;
    char error[SX_ERROR_TEXT_MAX];
} echo_server;

static void send_all(int fd, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n <= 0) {
            return;
        }
        p += n;
        len -= (size_t)n;
    }
}

/* Answers each request with its payload reversed, until the peer closes. */
static void *serve(void *self)
{
    echo_server *server = self;
    int fd = accept(server->listener, NULL, NULL);
    uint8_t hello[SX_SP_HELLO_BYTES];
    sx_sp_hello(SX_SP_REP, hello);
    send_all(fd, hello, sizeof(hello));
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_sp_reader reader;
    sx_sp_reader_init(&reader, SX_SP_REQ, LIMIT);
    uint8_t chunk[777];
    ssize_t got;
    while ((got = read(fd, chunk, sizeof(chunk))) > 0) {
        sx_span input = {chunk, (size_t)got};
        sx_sp_event event = SX_SP_READY;
        while (event != SX_SP_MORE && sx_sp_reader_feed(&cx, &reader, &input, &event) == SX_OK) {
            sx_span ids;
            sx_span payload;
            if (event == SX_SP_FRAME &&
                sx_sp_split(&cx, sx_buf_span(&reader.body), &ids, &payload) == SX_OK) {
                sx_buf reply;
                sx_buf_init(&reply, LIMIT);
                sx_buf_put_span(&reply, ids);
                for (size_t i = payload.len; i > 0; i--) {
                    sx_buf_put_u8(&reply, payload.ptr[i - 1]);
                }
                uint8_t head[SX_SP_HEAD_BYTES];
                sx_sp_head(reply.len, head);
                send_all(fd, head, sizeof(head));
                send_all(fd, reply.ptr, reply.len);
                sx_buf_fini(&reply);
                server->answered++;
            }
        }
    }
    memcpy(server->error, cx.error.text, sizeof(server->error));
    sx_sp_reader_fini(&reader);
    sx_ctx_fini(&cx);
    (void)close(fd);
    return NULL;
}

START_TEST(stock_nng_client)
{
    char folder[256];
    sx_test_mkdtemp(folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/s", folder);
    echo_server server = {.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    ck_assert_int_eq(bind(server.listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(server.listener, 4), 0);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &server), 0);

    nng_socket client;
    char url[200];
    (void)snprintf(url, sizeof(url), "ipc://%s", address.sun_path);
    ck_assert_int_eq(nng_req0_open(&client), 0);
    ck_assert_int_eq(nng_socket_set_ms(client, NNG_OPT_RECVTIMEO, 10000), 0);
    ck_assert_int_eq(nng_dial(client, url, NULL, 0), 0);
    static uint8_t question[100000];
    for (size_t size = 0; size <= sizeof(question); size = size * 3 + 1) {
        for (size_t i = 0; i < size; i++) {
            question[i] = (uint8_t)(i * 7);
        }
        ck_assert_int_eq(nng_send(client, question, size, 0), 0);
        void *answer;
        size_t answer_size;
        ck_assert_int_eq(nng_recv(client, &answer, &answer_size, NNG_FLAG_ALLOC), 0);
        ck_assert_uint_eq(answer_size, size);
        for (size_t i = 0; i < size; i++) {
            ck_assert_uint_eq(((uint8_t *)answer)[i], question[size - 1 - i]);
        }
        nng_free(answer, answer_size);
    }
    (void)nng_close(client);
    (void)pthread_join(thread, NULL);
    ck_assert_str_eq(server.error, "");
    ck_assert_uint_eq(server.answered, 12);
    (void)close(server.listener);
    sx_test_rmtree(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sp");
    TCase *cases = tcase_create("sp");
    tcase_add_test(cases, any_split_gives_the_same_frames);
    tcase_add_test(cases, hostile_headers);
    tcase_add_test(cases, memory_follows_the_bytes);
    tcase_add_test(cases, stack);
    tcase_add_test(cases, stock_nng_client);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
