/* bench_hit.c - a cached hit against a bare epoll echo that answers with the same number of bytes, in the same
 * run, interleaved.
 *
 * The daemon is the real one with the test's compiler (sx-fake-symplexd): a hit never reaches a compiler. Both
 * servers answer from 64 payloads in turn, so that neither lives in the first-level cache. Clients are n
 * sockets with one request each under way.
 */
#include "tests/bench/bench.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/protocol.h"
#include "tests/bench/server.h"

#define PAYLOADS 64
#define PAYLOAD_BYTES 65536
#define REQUEST_BYTES 256
#define CLIENTS_MAX 16
#define CALLS 3000 /* of one round and server */
#define ROUNDS_DEFAULT 7

typedef struct {
    uint8_t bytes[REQUEST_BYTES];
} request_frame;

/* ---- sockets ---- */
static bool send_all(int fd, sx_span bytes)
{
    while (bytes.len > 0) {
        ssize_t n = send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        bytes.ptr += n;
        bytes.len -= (size_t)n;
    }
    return true;
}

static bool receive_all(int fd, uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = recv(fd, bytes, len, 0);
        if (n <= 0) {
            return false;
        }
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

/* ---- the echo: a child process with one epoll loop ---- */
/* Reads whole requests, answers each with one of the payloads; `frame_bytes` is the size of an answer. */
static void echo_loop(int listener, size_t request_bytes, size_t frame_bytes)
{
    uint8_t *payload = calloc(PAYLOADS, frame_bytes);
    size_t filled[1024] = {0};
    uint32_t turn = 0;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    if (payload == NULL || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0) {
        _exit(EXIT_FAILURE);
    }
    for (uint32_t i = 0; i < PAYLOADS; i++) {
        memset(payload + i * frame_bytes, (int)i, frame_bytes);
        sx_sp_head(frame_bytes - SX_SP_HEAD_BYTES, payload + i * frame_bytes);
    }
    for (;;) { /* until it is killed */
        struct epoll_event ready[32];
        int count = epoll_wait(epoll, ready, 32, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            uint8_t chunk[4096];
            if (fd == listener) {
                event = (struct epoll_event){.events = EPOLLIN, .data.fd = accept(fd, NULL, NULL)};
                (void)epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            ssize_t got = fd < 1024 ? recv(fd, chunk, sizeof(chunk), 0) : -1;
            if (got <= 0) {
                (void)close(fd);
                continue;
            }
            filled[fd] += (size_t)got;
            while (filled[fd] >= request_bytes) {
                filled[fd] -= request_bytes;
                sx_span answer = {payload + (turn++ % PAYLOADS) * frame_bytes, frame_bytes};
                (void)send_all(fd, answer);
            }
        }
    }
}

static pid_t start_echo(const char *path, size_t request_bytes, size_t frame_bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, CLIENTS_MAX) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        echo_loop(listener, request_bytes, frame_bytes);
    }
    (void)close(listener);
    return pid;
}

/* ---- requests ---- */
/* A frame that asks for program `index`; all have REQUEST_BYTES. */
static void make_request(uint32_t index, uint8_t frame[REQUEST_BYTES])
{
    char ir[REQUEST_BYTES];
    sx_buf message;
    sx_buf_init(&message, 4096);
    size_t fill = 0;
    do {
        sx_buf_clear(&message);
        int n = snprintf(ir, sizeof(ir), "big %d %02u ", PAYLOAD_BYTES, index);
        memset(ir + n, 'x', fill);
        ir[(size_t)n + fill] = '\0';
        sx_compile_args args = {.ir = sx_span_of(ir)};
        sx_rpc_encode_request(&message, 1, SX_METHOD_COMPILE, &args, NULL);
        fill += REQUEST_BYTES - SX_SP_HEAD_BYTES - 4 - message.len;
    } while (message.len != REQUEST_BYTES - SX_SP_HEAD_BYTES - 4);
    sx_sp_head(message.len + 4, frame);
    memcpy(frame + SX_SP_HEAD_BYTES, "\x80\0\0\1", 4);
    memcpy(frame + SX_SP_HEAD_BYTES + 4, message.ptr, message.len);
    sx_buf_fini(&message);
}

/* ---- measuring ---- */
typedef struct {
    int fd[CLIENTS_MAX];
    uint32_t clients;
    const request_frame *request;
    uint32_t turn;
    size_t frame_bytes; /* of the last answer */
} peer;

static bool open_peer(peer *p, const char *path, uint32_t clients, bool hello)
{
    p->clients = clients;
    for (uint32_t i = 0; i < clients; i++) {
        uint8_t bytes[SX_SP_HELLO_BYTES];
        p->fd[i] = sx_bench_connect(path);
        sx_sp_hello(SX_SP_REQ, bytes);
        if (p->fd[i] < 0 || (hello && (!send_all(p->fd[i], (sx_span){bytes, sizeof(bytes)}) ||
                                       !receive_all(p->fd[i], bytes, sizeof(bytes))))) {
            return false;
        }
    }
    return true;
}

static void close_peer(peer *p)
{
    for (uint32_t i = 0; i < p->clients; i++) {
        (void)close(p->fd[i]);
    }
}

static bool ask(peer *p, uint32_t client)
{
    return send_all(p->fd[client],
                    (sx_span){p->request[p->turn++ % PAYLOADS].bytes, REQUEST_BYTES});
}

static bool take(peer *p, uint32_t client, uint8_t *answer)
{
    uint64_t size = 0;
    if (!receive_all(p->fd[client], answer, SX_SP_HEAD_BYTES)) {
        return false;
    }
    for (uint32_t i = 1; i < SX_SP_HEAD_BYTES; i++) {
        size = size << 8 | answer[i];
    }
    p->frame_bytes = SX_SP_HEAD_BYTES + (size_t)size;
    /* an error is shorter than a module */
    return size >= PAYLOAD_BYTES && size < (uint64_t)2 * PAYLOAD_BYTES &&
           receive_all(p->fd[client], answer, (size_t)size);
}

/* CALLS calls, each client with one under way; latencies in ns into `sample`. */
static bool round_of(peer *p, double *sample)
{
    static uint8_t answer[2 * PAYLOAD_BYTES + 64];
    uint64_t sent[CLIENTS_MAX];
    struct pollfd fds[CLIENTS_MAX];
    for (uint32_t i = 0; i < p->clients; i++) {
        fds[i] = (struct pollfd){.fd = p->fd[i], .events = POLLIN};
        sent[i] = sx_bench_now_ns();
        if (!ask(p, i)) {
            return false;
        }
    }
    uint32_t done = 0;
    while (done < CALLS) {
        if (poll(fds, p->clients, 10000) <= 0) {
            return false;
        }
        for (uint32_t i = 0; i < p->clients && done < CALLS; i++) {
            if ((fds[i].revents & (POLLIN | POLLHUP)) == 0) {
                continue;
            }
            if (!take(p, i, answer)) {
                return false;
            }
            uint64_t now = sx_bench_now_ns();
            sample[done++] = (double)(now - sent[i]);
            sent[i] = now;
            if (!ask(p, i)) {
                return false;
            }
        }
    }
    for (uint32_t i = 0; i < p->clients; i++) { /* the ones still under way */
        if (!take(p, i, answer)) {
            return false;
        }
    }
    return true;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : (x > y ? 1 : 0);
}

typedef struct {
    double p50[64], p99[64];
} series;

static bool measure(peer *p, series *s, uint32_t round)
{
    static double sample[CALLS];
    if (!round_of(p, sample)) {
        return false;
    }
    qsort(sample, CALLS, sizeof(sample[0]), by_value);
    s->p50[round] = sample[CALLS / 2] / 1000;
    s->p99[round] = sample[CALLS * 99 / 100] / 1000;
    return true;
}

static void put(const sx_bench_options *options, const char *name, const char *metric, double *ours,
                double *theirs, uint32_t rounds)
{
    sx_bench_put(options, &(sx_bench_row){
                              .bench = "hit",
                              .case_name = name,
                              .metric = metric,
                              .value = sx_bench_median(ours, rounds),
                              .unit = "us",
                              .peer = "epoll echo",
                              .peer_value = sx_bench_median(theirs, rounds),
                          });
}

static int run_case(const sx_bench_options *options, const char *name, uint32_t clients,
                    const char *hit_path, const char *echo_path, const request_frame *request)
{
    static series hit;
    static series echo;
    peer a = {.request = request};
    peer b = {.request = request};
    uint32_t rounds = options->rounds == 0 ? ROUNDS_DEFAULT : options->rounds;
    rounds = rounds < 64 ? rounds : 64;
    if (!open_peer(&a, hit_path, clients, true) || !open_peer(&b, echo_path, clients, false) ||
        !measure(&a, &hit, 0) || !measure(&b, &echo, 0)) { /* warm */
        return EXIT_FAILURE;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        if (!measure(&b, &echo, round) || !measure(&a, &hit, round)) {
            return EXIT_FAILURE;
        }
    }
    put(options, name, "p50", hit.p50, echo.p50, rounds);
    put(options, name, "p99", hit.p99, echo.p99, rounds);
    close_peer(&a);
    close_peer(&b);
    return EXIT_SUCCESS;
}

/* Compiles all programs once; the size of an answer frame, 0 on failure. */
static size_t fill_cache(const char *path, const request_frame *request)
{
    static uint8_t answer[2 * PAYLOAD_BYTES + 64];
    peer p = {.request = request};
    bool fine = open_peer(&p, path, 1, true);
    for (uint32_t i = 0; fine && i < 2 * PAYLOADS; i++) {
        fine = ask(&p, 0) && take(&p, 0, answer);
    }
    close_peer(&p);
    return fine ? p.frame_bytes : 0;
}

/* Both servers run on one processor and the clients on another, where there are two: else the scheduler's
 * choice of where each server wakes up decides the ratio. Children inherit the choice. */
static void use_processor(bool servers)
{
    static cpu_set_t allowed;
    static bool known = false;
    if (!known) {
        known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
    }
    size_t first = CPU_SETSIZE, last = CPU_SETSIZE;
    for (size_t i = 0; known && i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &allowed)) {
            first = first == CPU_SETSIZE ? i : first;
            last = i;
        }
    }
    if (first != last) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(servers ? last : first, &one);
        (void)sched_setaffinity(0, sizeof(one), &one);
    }
}

int sx_bench_hit(const sx_bench_options *options)
{
    static request_frame request[PAYLOADS];
    sx_bench_server server;
    char echo_path[SX_BENCH_PATH_MAX + 8];
    bool one = sx_bench_wants(options, "1-client");
    bool sixteen = sx_bench_wants(options, "16-clients");
    if (!one && !sixteen) {
        return EXIT_SUCCESS;
    }
    for (uint32_t i = 0; i < PAYLOADS; i++) {
        make_request(i, request[i].bytes);
    }
    int status = EXIT_FAILURE;
    use_processor(true);
    if (!sx_bench_server_start("hit", "sx-fake-symplexd", &server)) {
        return EXIT_FAILURE;
    }
    (void)snprintf(echo_path, sizeof(echo_path), "%s/e", server.folder);
    size_t frame_bytes = fill_cache(server.socket, request);
    pid_t echo = frame_bytes > 0 ? start_echo(echo_path, REQUEST_BYTES, frame_bytes) : -1;
    use_processor(false);
    if (echo > 0) {
        status = EXIT_SUCCESS;
        if (one) {
            status = run_case(options, "1-client", 1, server.socket, echo_path, request);
        }
        if (status == EXIT_SUCCESS && sixteen) {
            status = run_case(options, "16-clients", 16, server.socket, echo_path, request);
        }
        (void)kill(echo, SIGKILL);
        (void)waitpid(echo, NULL, 0);
    }
    if (status != EXIT_SUCCESS) {
        (void)fprintf(stderr, "bench hit: a server did not answer: %s\n", strerror(errno));
    }
    sx_bench_server_stop(&server);
    return status;
}
