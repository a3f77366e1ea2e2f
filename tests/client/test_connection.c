/* The client's half of the wire against servers that answer, refuse, lie, stop in the middle or say nothing. */
#include "client/connection.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/compile.h"
#include "core/base/rng.h"
#include "protocol/protocol.h"
#include "tests/lib/test.h"

/* A daemon of the test's own: a thread that listens, says what it is told to say and stops where it is told to stop. */
typedef struct {
    char folder[256], path[300];
    int listener;
    pthread_t thread;
    sx_buf say;     /* hello, then what follows the first request */
    size_t cut;     /* bytes of `say` that are sent */
    bool hold;      /* keep the connection open when all is said, until the peer closes it */
    uint32_t peers; /* connections to serve */
} fake_server;

static sx_ctx cx;
static fake_server server;

/* ---- the server ---- */

static void fake_server_init(fake_server *s)
{
    uint8_t hello[SX_SP_HELLO_BYTES];
    memset(s, 0, sizeof(*s));
    sx_test_mkdtemp(s->folder);
    (void)snprintf(s->path, sizeof(s->path), "%s/s", s->folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_uint_lt(strlen(s->path), sizeof(address.sun_path));
    memcpy(address.sun_path, s->path, strlen(s->path) + 1);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(s->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(s->listener, 16), 0);
    sx_buf_init(&s->say, (size_t)64 << 20);
    sx_sp_hello(SX_SP_REP, hello);
    sx_buf_put(&s->say, hello, sizeof(hello));
    s->cut = SIZE_MAX;
    s->peers = 1;
}

/* Appends a frame with this response; the id stack is that of the client's call of that number. */
static void fake_server_reply(fake_server *s, uint32_t call, const sx_buf *response)
{
    uint8_t head[SX_SP_HEAD_BYTES], stack[4] = {0x80, 0, (uint8_t)(call >> 8), (uint8_t)call};
    sx_sp_head(sizeof(stack) + response->len, head);
    sx_buf_put(&s->say, head, sizeof(head));
    sx_buf_put(&s->say, stack, sizeof(stack));
    sx_buf_put_span(&s->say, sx_buf_span(response));
}

static bool send_bytes(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

/* Reads until one whole frame has come, so that the answer follows the question; false: the peer is gone. */
static bool await_request(int fd)
{
    sx_ctx own;
    sx_sp_reader reader;
    bool come = false, gone = false;
    sx_ctx_init(&own, (size_t)1 << 20);
    sx_sp_reader_init(&reader, SX_SP_REQ, (size_t)64 << 20);
    while (!come && !gone) {
        uint8_t bytes[4096];
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
        gone = n <= 0;
        sx_span input = {bytes, n > 0 ? (size_t)n : 0};
        while (input.len > 0 && !come) {
            sx_sp_event event;
            if (sx_sp_reader_feed(&own, &reader, &input, &event) != SX_OK) {
                abort();
            }
            come = event == SX_SP_FRAME;
        }
    }
    sx_sp_reader_fini(&reader);
    sx_ctx_fini(&own);
    return come;
}

static void serve_peer(const fake_server *s, int fd)
{
    size_t size = s->say.len < s->cut ? s->say.len : s->cut;
    size_t hello = size < SX_SP_HELLO_BYTES ? size : SX_SP_HELLO_BYTES;
    bool alive = send_bytes(fd, s->say.ptr, hello);
    if (alive && size > hello) {
        alive = await_request(fd) && send_bytes(fd, s->say.ptr + hello, size - hello);
    }
    uint8_t bytes[4096];
    if (alive && size <= hello) {
        /* a peer that is still saying hello would see a broken pipe, not our answer */
        (void)recv(fd, bytes, SX_SP_HELLO_BYTES, MSG_WAITALL);
    }
    while (s->hold && alive && recv(fd, bytes, sizeof(bytes), 0) > 0) {
    }
    (void)close(fd);
}

static void *serve(void *self)
{
    const fake_server *s = self;
    for (uint32_t i = 0; i < s->peers; i++) {
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0) {
            abort();
        }
        serve_peer(s, fd);
    }
    return NULL;
}

static void fake_server_start(fake_server *s)
{
    ck_assert_int_eq(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void fake_server_stop(fake_server *s)
{
    ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
    (void)close(s->listener);
    sx_buf_fini(&s->say);
    sx_test_rmtree(s->folder);
}

/* ---- helpers ---- */

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    cx.fuel = UINT64_MAX;
    fake_server_init(&server);
}
static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static const uint8_t module_bytes[] = "a module of these bytes";

static void reply_hit(uint32_t call)
{
    sx_buf response;
    sx_buf_init(&response, 65536);
    sx_get_result hit = {.tier = SX_SPAN_LITERAL("ram"),
                         .cost_us = 123456,
                         .module = {module_bytes, sizeof(module_bytes)}};
    sx_rpc_encode_result(&response, call, SX_METHOD_GET, &hit, NULL);
    fake_server_reply(&server, call, &response);
    sx_buf_fini(&response);
}

static void reply_error(uint32_t call, sx_code code)
{
    sx_buf response;
    sx_error error = {.code = code, .text = "no entry of that key", .hint = "Compile it."};
    sx_buf_init(&response, 65536);
    sx_rpc_encode_error(&response, call, &error, 0);
    fake_server_reply(&server, call, &response);
    sx_buf_fini(&response);
}

/* One connection, one get; the connection is closed whatever happens. */
static sx_code get(int timeout_ms, const sx_get_result **hit)
{
    sxc_connection *connection = NULL;
    sx_get_args args = {0};
    const void *reply = NULL;
    sx_code code = sxc_connect(&cx, server.path, 1000, &connection);
    if (code == SX_OK) {
        code = sxc_call(&cx, connection, SX_METHOD_GET, &args, timeout_ms, &reply);
    }
    if (code == SX_OK && hit != NULL) { /* what the reply points to ends with the connection */
        sx_get_result *copy = SX_NEW(&cx, sx_get_result);
        *copy = *(const sx_get_result *)reply;
        copy->module.ptr = (const uint8_t *)sx_alloc_text(&cx, copy->module);
        copy->tier.ptr = (const uint8_t *)sx_alloc_text(&cx, copy->tier);
        *hit = copy;
    }
    sxc_disconnect(connection);
    return code;
}

/* ---- answers ---- */

START_TEST(a_hit_is_read)
{
    const sx_get_result *hit;
    reply_hit(1);
    fake_server_start(&server);
    ck_sx_ok(&cx, get(5000, &hit));
    fake_server_stop(&server);
    ck_assert(sx_span_equal(hit->module, (sx_span){module_bytes, sizeof(module_bytes)}));
    ck_assert(sx_span_is(hit->tier, "ram"));
    ck_assert_int_eq(hit->cost_us, 123456);
}
END_TEST

START_TEST(every_error_comes_back_as_itself)
{
    for (int code = SX_OK + 1; code < SX_CODE_COUNT; code++) {
        if (code > SX_OK + 1) {
            fake_server_init(&server);
        }
        reply_error(1, (sx_code)code);
        fake_server_start(&server);
        ck_assert_int_eq(get(5000, NULL), code);
        fake_server_stop(&server);
        ck_assert_str_eq(cx.error.text, "no entry of that key");
        ck_assert_str_eq(cx.error.hint, "Compile it.");
        sx_ctx_reset_error(&cx);
    }
}
END_TEST

START_TEST(answers_to_other_calls_are_passed_over)
{
    const sx_get_result *hit;
    reply_error(7, SX_INTERNAL);
    reply_error(0, SX_INTERNAL);
    reply_hit(1);
    fake_server_start(&server);
    ck_sx_ok(&cx, get(5000, &hit));
    fake_server_stop(&server);
    ck_assert_int_eq(hit->cost_us, 123456);
}
END_TEST

/* ---- silence ---- */

START_TEST(nobody_listens)
{
    sxc_connection *connection;
    (void)close(server.listener);
    ck_sx_fails(&cx, sxc_connect(&cx, server.path, SXC_DECIDE_MS, &connection), SX_NODAEMON,
                server.path);
    (void)unlink(server.path);
    ck_sx_fails(&cx, sxc_connect(&cx, server.path, SXC_DECIDE_MS, &connection), SX_NODAEMON,
                "No such file");
    char path[SXC_PATH_MAX + 1];
    memset(path, 'p', sizeof(path));
    path[SXC_PATH_MAX] = '\0';
    ck_sx_fails(&cx, sxc_connect(&cx, path, SXC_DECIDE_MS, &connection), SX_USAGE, "at most 103");
    sx_test_rmtree(server.folder);
}
END_TEST

START_TEST(deciding_takes_50_ms)
{
    sxc_connection *connection;
    int64_t start = now_ms(); /* the backlog takes the connection, nobody ever says hello */
    ck_sx_fails(&cx, sxc_connect(&cx, server.path, SXC_DECIDE_MS, &connection), SX_NODAEMON,
                "says nothing");
    int64_t took = now_ms() - start;
    ck_assert_int_ge(took, SXC_DECIDE_MS - 1);
    ck_assert_int_lt(took, SXC_DECIDE_MS + 450); /* a loaded machine */
    sx_test_rmtree(server.folder);
}
END_TEST

START_TEST(a_full_backlog_is_no_hang)
{
    int held[64];
    uint32_t count = 0;
    sx_code code = SX_OK;
    ck_assert_int_eq(listen(server.listener, 0), 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, server.path, strlen(server.path) + 1);
    for (; count < SX_COUNT(held); count++) {
        held[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(held[count], (struct sockaddr *)&address, sizeof(address)) != 0) {
            ck_assert_int_eq(errno, EAGAIN);
            break;
        }
    }
    ck_assert_uint_lt(count, SX_COUNT(held));
    sxc_connection *connection;
    int64_t start = now_ms();
    code = sxc_connect(&cx, server.path, SXC_DECIDE_MS, &connection);
    ck_assert_int_lt(now_ms() - start, SXC_DECIDE_MS + 450);
    ck_sx_fails(&cx, code, SX_NODAEMON, "does not accept");
    for (uint32_t i = 0; i <= count; i++) {
        (void)close(held[i]);
    }
    sx_test_rmtree(server.folder);
}
END_TEST

START_TEST(a_call_ends_at_its_deadline)
{
    server.hold = true;
    fake_server_start(&server);
    int64_t start = now_ms();
    ck_sx_fails(&cx, get(80, NULL), SX_TIMEOUT, "deadline");
    int64_t took = now_ms() - start;
    fake_server_stop(&server);
    ck_assert_int_ge(took, 79);
    ck_assert_int_lt(took, 80 + 450);
}
END_TEST

/* ---- lies ---- */

START_TEST(another_protocol_is_no_daemon)
{
    static const char *const first[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                        "SSH-2.0-OpenSSH_9.2\r\n",
                                        "\x00SP\x00\x00\x30\x00\x00" /* REQ, as we */};
    for (uint32_t i = 0; i < SX_COUNT(first); i++) {
        if (i > 0) {
            fake_server_init(&server);
        }
        sx_buf_clear(&server.say);
        sx_buf_put(&server.say, first[i], 8);
        server.hold = true;
        fake_server_start(&server);
        sxc_connection *connection = NULL;
        ck_sx_fails(&cx, sxc_connect(&cx, server.path, 1000, &connection), SX_NODAEMON,
                    "another protocol");
        fake_server_stop(&server);
    }
}
END_TEST

START_TEST(a_frame_beyond_the_limit_takes_no_memory)
{
    uint8_t head[SX_SP_HEAD_BYTES];
    sx_sp_head(UINT64_MAX / 2, head);
    sx_buf_put(&server.say, head, sizeof(head));
    server.hold = true;
    fake_server_start(&server);
    ck_sx_fails(&cx, get(5000, NULL), SX_LIMIT, "");
    fake_server_stop(&server);
}
END_TEST

START_TEST(disconnected_at_each_byte)
{
    reply_hit(1);
    size_t size = server.say.len;
    server.peers = (uint32_t)size;
    for (size_t cut = 0; cut < size; cut++) {
        server.cut = cut;
        server.peers = 1;
        fake_server_start(&server);
        sx_code code = get(5000, NULL);
        ck_assert_int_eq(pthread_join(server.thread, NULL), 0);
        ck_assert_msg(code == SX_NODAEMON, "cut at %zu: %s: %s", cut, sx_code_name(code),
                      cx.error.text);
        sx_ctx_reset_error(&cx);
    }
    server.cut = size;
    fake_server_start(&server);
    ck_sx_ok(&cx, get(5000, NULL));
    fake_server_stop(&server);
}
END_TEST

/* Bytes changed at random: an answer or an error, within the deadline, and never anything else. */
START_TEST(altered_answers)
{
    sx_rng rng = {sx_test_seed()};
    reply_hit(1);
    sx_buf whole;
    sx_buf_init(&whole, 65536);
    sx_buf_put_span(&whole, sx_buf_span(&server.say));
    for (int round = 0; round < 400; round++) {
        sx_buf_clear(&server.say);
        sx_buf_put_span(&server.say, sx_buf_span(&whole));
        uint64_t changes = 1 + sx_rng_below(&rng, 4);
        for (uint64_t i = 0; i < changes; i++) {
            server.say.ptr[sx_rng_below(&rng, whole.len)] = (uint8_t)sx_rng_next(&rng);
        }
        fake_server_start(&server);
        int64_t start = now_ms();
        sx_code code = get(2000, NULL);
        ck_assert_int_lt(now_ms() - start, 3500);
        ck_assert_int_eq(pthread_join(server.thread, NULL), 0);
        ck_assert(code == SX_OK || cx.error.text[0] != '\0');
        sx_ctx_reset_error(&cx);
    }
    sx_buf_fini(&whole);
    fake_server_start(&server);
    (void)get(2000, NULL);
    fake_server_stop(&server);
}
END_TEST

/* ---- where the daemon is ---- */

START_TEST(default_paths)
{
    char path[SXC_PATH_MAX], want[SXC_PATH_MAX], longer[200];
    ck_assert_int_eq(setenv("SYMPLEX_SOCKET", "/a/b.sock", 1), 0);
    ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", "/run/user/7", 1), 0);
    ck_sx_ok(&cx, sxc_default_socket(&cx, path));
    ck_assert_str_eq(path, "/a/b.sock");
    ck_assert_int_eq(unsetenv("SYMPLEX_SOCKET"), 0);
    ck_sx_ok(&cx, sxc_default_socket(&cx, path));
    ck_assert_str_eq(path, "/run/user/7/symplex/d.sock");
    ck_assert_int_eq(unsetenv("XDG_RUNTIME_DIR"), 0);
    ck_sx_ok(&cx, sxc_default_socket(&cx, path));
    (void)snprintf(want, sizeof(want), "/tmp/symplex-%u/d.sock", (unsigned)getuid());
    ck_assert_str_eq(path, want);
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    ck_assert_int_eq(setenv("SYMPLEX_SOCKET", longer, 1), 0);
    ck_sx_fails(&cx, sxc_default_socket(&cx, path), SX_USAGE, "199 bytes, at most 103");
    sx_test_rmtree(server.folder);
}
END_TEST

/* ---- compiling without ---- */

typedef struct {
    uint32_t count;
    char last[600];
} spoken;

static void listen_to(void *self, const char *text)
{
    spoken *s = self;
    s->count++;
    (void)snprintf(s->last, sizeof(s->last), "%s", text);
}

static const char program_text[] = "sx 1\n"
                                   "graph \"twice\" {\n"
                                   "    %0 = parameter {name = \"x\", weight = 0} : f32[4]\n"
                                   "    %1 = add(%0, %0) : f32[4]\n"
                                   "    return %1 as \"y\"\n"
                                   "}\n";

/* The daemon says hello and goes away: the program is compiled here, and that is said once. */
START_TEST(a_daemon_that_goes_away_is_done_without)
{
    sxc_source source;
    sxc_compile_info info;
    sx_buf module;
    spoken heard = {0};
    sx_core_request request = {.target = SX_SPAN_LITERAL("x86-64-v3")};
    sxc_compile_options options = {
        .socket = server.path, .daemon = SXC_MODE_AUTO, .message = listen_to, .self = &heard};
    server.cut = SX_SP_HELLO_BYTES;
    server.peers = 2;
    sx_buf_init(&module, (size_t)1 << 30);
    ck_sx_ok(&cx, sxc_source_bytes(&cx, sx_span_of(program_text), &source));
    fake_server_start(&server);
    ck_sx_ok(&cx, sxc_compile(&cx, &source, &request, &options, &module, &info));
    ck_assert_str_eq(info.tier, "process");
    ck_assert_uint_eq(heard.count, 1);
    ck_assert_ptr_nonnull(strstr(heard.last, "compiling in process"));
    ck_assert_uint_gt(module.len, 0);
    options.daemon = SXC_MODE_ONLY;
    sx_buf_clear(&module);
    ck_assert_int_eq(sxc_compile(&cx, &source, &request, &options, &module, &info), SX_NODAEMON);
    fake_server_stop(&server);
    ck_assert_uint_eq(heard.count, 1);
    sx_buf_fini(&module);
    sxc_source_fini(&source);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("connection");
    TCase *wire = tcase_create("wire");
    tcase_add_checked_fixture(wire, setup, teardown);
    tcase_add_test(wire, a_hit_is_read);
    tcase_add_test(wire, every_error_comes_back_as_itself);
    tcase_add_test(wire, answers_to_other_calls_are_passed_over);
    tcase_add_test(wire, nobody_listens);
    tcase_add_test(wire, deciding_takes_50_ms);
    tcase_add_test(wire, a_full_backlog_is_no_hang);
    tcase_add_test(wire, a_call_ends_at_its_deadline);
    tcase_add_test(wire, another_protocol_is_no_daemon);
    tcase_add_test(wire, a_frame_beyond_the_limit_takes_no_memory);
    tcase_add_test(wire, disconnected_at_each_byte);
    tcase_add_test(wire, altered_answers);
    tcase_add_test(wire, default_paths);
    tcase_add_test(wire, a_daemon_that_goes_away_is_done_without);
    suite_add_tcase(suite, wire);
    return sx_test_main(suite);
}
