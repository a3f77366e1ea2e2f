/* bench_hit.c - a cached compile over the socket: `get` by key, answered by the daemon from memory, against a bare epoll server that
 * answers a request of the same size with bytes of the same size. Both rotate over the same number of payloads; they take turns. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/compile.h"
#include "client/connection.h"
#include "tests/bench/bench.h"
#include "tests/bench/model.h"
#include "tests/lib/test.h"

#define KEYS 8u    /* payloads in rotation */
#define CALLS 200u /* per round */
#define START_MS 10000
#define COMPILE_MS 120000
#define REQUEST_BYTES 96u /* about what a `get` takes on the wire */

typedef struct {
    char folder[256], socket[300];
    pid_t daemon, echo;
    sxc_connection *connection;
    int echo_fd;
    sx_key key[KEYS];
    size_t size; /* bytes of the reply: the largest module */
} stand;

/* ---- the echo peer ---- */

static void echo_serve(int fd, size_t size)
{
    uint8_t *payload = calloc(KEYS, size);
    SX_ASSERT(payload != NULL);
    memset(payload, 1, KEYS * size);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    (void)epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    size_t got = 0;
    for (uint32_t turn = 0;;) {
        uint8_t request[REQUEST_BYTES];
        (void)epoll_wait(epoll, &event, 1, -1);
        ssize_t n = recv(fd, request, sizeof(request) - got, 0);
        if (n <= 0) {
            _exit(0);
        }
        got += (size_t)n;
        if (got < sizeof(request)) {
            continue;
        }
        got = 0;
        for (size_t sent = 0; sent < size;) {
            ssize_t put =
                send(fd, payload + (turn % KEYS) * size + sent, size - sent, MSG_NOSIGNAL);
            if (put <= 0) {
                _exit(0);
            }
            sent += (size_t)put;
        }
        turn++;
    }
}

static bool echo_start(stand *s)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        return false;
    }
    s->echo = fork();
    if (s->echo == 0) {
        (void)close(pair[0]);
        echo_serve(pair[1], s->size);
    }
    (void)close(pair[1]);
    s->echo_fd = pair[0];
    return s->echo > 0;
}

static double echo_call_ns(stand *s, uint8_t *into)
{
    uint8_t request[REQUEST_BYTES] = {0};
    uint64_t start = sx_bench_now_ns();
    if (send(s->echo_fd, request, sizeof(request), MSG_NOSIGNAL) != (ssize_t)sizeof(request)) {
        return -1;
    }
    for (size_t got = 0; got < s->size;) {
        ssize_t n = recv(s->echo_fd, into + got, s->size - got, 0);
        if (n <= 0) {
            return -1;
        }
        got += (size_t)n;
    }
    return (double)(sx_bench_now_ns() - start);
}

/* ---- the daemon ---- */

static bool daemon_start(sx_ctx *cx, stand *s)
{
    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/symplex-bench.XXXXXX");
    if (mkdtemp(s->folder) == NULL) {
        return false;
    }
    (void)snprintf(s->socket, sizeof(s->socket), "%s/d.sock", s->folder);
    s->daemon = fork();
    if (s->daemon == 0) {
        int null = open("/dev/null", O_RDWR);
        (void)dup2(null, STDERR_FILENO);
        (void)execl(SX_BINARY_DIR "/bin/symplexd", "symplexd", "--state", s->folder, "--socket",
                    s->socket, (char *)NULL);
        _exit(127);
    }
    for (uint32_t waited_ms = 0; waited_ms < START_MS; waited_ms += 5) {
        if (sxc_connect(cx, s->socket, SXC_DECIDE_MS, &s->connection) == SX_OK) {
            return true;
        }
        sx_ctx_reset_error(cx);
        (void)usleep(5000);
    }
    return false;
}

/* Fills the cache with one module for each batch size. */
static sx_code fill(sx_ctx *cx, stand *s, const char *model)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_code code = sx_bench_model_text(cx, model, &text);
    for (uint32_t i = 0; code == SX_OK && i < KEYS; i++) {
        sx_pair batch = {.name = SX_SPAN_LITERAL("batch"), .kind = SX_VALUE_INT, .integer = 1 + i};
        sx_compile_args args = {.ir = sx_buf_span(&text)};
        SX_PUT(&args, compile_args, target, sx_span_of(sxc_native_target()));
        SX_PUT(&args, compile_args, dims, ((sx_pairs){&batch, 1}));
        SX_PUT(&args, compile_args, wait_ms, COMPILE_MS);
        const void *reply;
        code = sxc_call(cx, s->connection, SX_METHOD_COMPILE, &args, COMPILE_MS, &reply);
        const sx_compile_result *done = reply;
        if (code == SX_OK && !SX_HAS(done, compile_result, module)) {
            code = SX_FAIL(cx, SX_TIMEOUT, "the daemon did not finish a compilation in time");
        }
        if (code == SX_OK) {
            s->key[i] = done->key;
            s->size = done->module.len > s->size ? done->module.len : s->size;
        }
    }
    sx_buf_fini(&text);
    return code;
}

static double hit_call_ns(sx_ctx *cx, stand *s, uint32_t turn)
{
    sx_get_args args = {.key = s->key[turn % KEYS]};
    const void *reply;
    uint64_t start = sx_bench_now_ns();
    if (sxc_call(cx, s->connection, SX_METHOD_GET, &args, COMPILE_MS, &reply) != SX_OK) {
        return -1;
    }
    return (double)(sx_bench_now_ns() - start);
}

static void stop(stand *s)
{
    sxc_disconnect(s->connection);
    if (s->echo > 0) {
        (void)close(s->echo_fd);
        (void)waitpid(s->echo, NULL, 0);
    }
    if (s->daemon > 0) {
        (void)kill(s->daemon, SIGTERM);
        (void)waitpid(s->daemon, NULL, 0);
    }
    sx_test_rmtree(s->folder);
}

/* ---- the measurement ---- */

static void put(const sx_bench_options *options, const char *name, const char *metric, double ours,
                double theirs)
{
    sx_bench_put(options, &(sx_bench_row){"hit", name, metric, ours / 1e3, "us", "epoll echo",
                                          theirs / 1e3});
}

static int measure(const sx_bench_options *options, const char *model)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)4 << 30);
    stand s = {.echo_fd = -1};
    int status = 0;
    sx_code code = daemon_start(&cx, &s) ? fill(&cx, &s, model)
                                         : SX_FAIL(&cx, SX_NODAEMON, "symplexd did not start");
    if (code != SX_OK || !echo_start(&s)) {
        (void)fprintf(stderr, "symplex-bench: hit: %s\n", cx.error.text);
        stop(&s);
        return sx_code_exit(code != SX_OK ? code : SX_SYSTEM);
    }
    uint8_t *into = calloc(1, s.size);
    double *ours = calloc(CALLS, sizeof(double)), *theirs = calloc(CALLS, sizeof(double));
    double *p50[2] = {calloc(options->rounds, sizeof(double)),
                      calloc(options->rounds, sizeof(double))};
    double *p99[2] = {calloc(options->rounds, sizeof(double)),
                      calloc(options->rounds, sizeof(double))};
    SX_ASSERT(into != NULL && ours != NULL && theirs != NULL && p50[0] && p50[1] && p99[0] &&
              p99[1]);
    for (uint32_t round = 0; round < options->rounds && status == 0; round++) {
        sx_ctx scratch; /* replies are decoded into it */
        sx_ctx_init(&scratch, (size_t)1 << 30);
        for (uint32_t i = 0; i < CALLS; i++) {
            ours[i] = hit_call_ns(&scratch, &s, i);
        }
        for (uint32_t i = 0; i < CALLS; i++) {
            theirs[i] = echo_call_ns(&s, into);
        }
        p50[0][round] = sx_bench_median(ours, CALLS);
        p50[1][round] = sx_bench_median(theirs, CALLS);
        p99[0][round] = ours[CALLS * 99 / 100];
        p99[1][round] = theirs[CALLS * 99 / 100];
        status = ours[0] < 0 || theirs[0] < 0 ? 6 : 0;
        sx_ctx_fini(&scratch);
    }
    if (status == 0) {
        sx_bench_put(options,
                     &(sx_bench_row){"hit", model, "reply", (double)s.size / 1024, "KiB", NULL, 0});
        put(options, model, "p50", sx_bench_median(p50[0], options->rounds),
            sx_bench_median(p50[1], options->rounds));
        put(options, model, "p99", sx_bench_median(p99[0], options->rounds),
            sx_bench_median(p99[1], options->rounds));
    }
    free(into), free(ours), free(theirs), free(p50[0]), free(p50[1]), free(p99[0]), free(p99[1]);
    stop(&s);
    sx_ctx_fini(&cx);
    return status;
}

int sx_bench_hit(const sx_bench_options *options)
{
    static const char *const models[] = {"mlp", "encoder"};
    for (uint32_t i = 0; i < SX_COUNT(models); i++) {
        int status = sx_bench_wants(options, models[i]) ? measure(options, models[i]) : 0;
        if (status != 0) {
            return status;
        }
    }
    return 0;
}
