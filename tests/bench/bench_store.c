/* bench_store.c - the daemon as the store of caches of others: a get and a put of an artefact by the C library, against
 * a Redis server that keeps it in memory alone, in the same run, in turns.
 *
 * Both are reached through a Unix socket by one client with one call under way, and both have VALUES artefacts, pieces
 * of this program's machine code, which are got and put in turn. The daemon checks, compresses and writes what it is
 * given to its database; Redis is started without files, so that this is the floor of a store, not its equal.
 */
#include "tests/bench/bench.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/symplex.h"
#include "tests/bench/server.h"

#define VALUES 16
#define CALLS 200 /* of one round and side */
#define ROUNDS_DEFAULT 15
#define ROUNDS_MAX 64
#define VALUE_MAX (1u << 20)
#define WAIT_MS 5000u
#define CACHE "bench"

extern char **environ;

static uint8_t *code; /* this program's file, at least VALUES + VALUE_MAX bytes */

typedef struct {
    pid_t pid;
    int fd;
    uint8_t *answer; /* 64 + VALUE_MAX bytes */
} redis;

/* ---- the peer, in the few words of its protocol that are needed (RESP 2) ---- */
static bool send_all(int fd, const void *bytes, size_t size)
{
    for (const uint8_t *at = bytes; size > 0;) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* Receives a line and, after "$N", N bytes and the end of their line. Their number; -1: an error, or nothing there. */
static int64_t receive(redis *r)
{
    size_t have = 0, need = 1;
    int64_t size = -1;
    while (have < need) {
        ssize_t n = recv(r->fd, r->answer + have, 64 + VALUE_MAX - have, 0);
        if (n <= 0) {
            return -1;
        }
        have += (size_t)n;
        const uint8_t *end = size < 0 ? memchr(r->answer, '\n', have) : NULL;
        if (size < 0 && end == NULL) {
            need = have + 1;
        } else if (end != NULL) {
            size_t head = (size_t)(end - r->answer) + 1;
            if (r->answer[0] == '+') {
                return 0;
            }
            size = r->answer[0] == '$' ? strtoll((const char *)r->answer + 1, NULL, 10) : -1;
            if (size < 0 || size > VALUE_MAX) {
                return -1;
            }
            need = head + (size_t)size + 2;
        }
    }
    return size;
}

static bool redis_get(redis *r, uint32_t i, size_t size)
{
    char head[64];
    int n = snprintf(head, sizeof(head), "*2\r\n$3\r\nGET\r\n$2\r\n%02u\r\n", i);
    return send_all(r->fd, head, (size_t)n) && receive(r) == (int64_t)size;
}

static bool redis_put(redis *r, uint32_t i, size_t size)
{
    char head[96];
    int n = snprintf(head, sizeof(head), "*3\r\n$3\r\nSET\r\n$2\r\n%02u\r\n$%zu\r\n", i, size);
    return send_all(r->fd, head, (size_t)n) && send_all(r->fd, code + i, size) &&
           send_all(r->fd, "\r\n", 2) && receive(r) == 0;
}

static void redis_stop(redis *r)
{
    if (r->fd >= 0) {
        (void)close(r->fd);
    }
    if (r->pid > 0) {
        (void)kill(r->pid, SIGTERM);
        (void)waitpid(r->pid, NULL, 0);
    }
    free(r->answer);
}

static bool redis_start(redis *r, const char *folder)
{
    char path[SX_BENCH_PATH_MAX + 8];
    char name[] = "redis-server", port[] = "--port", zero[] = "0", socket[] = "--unixsocket",
         save[] = "--save", empty[] = "", log[] = "--logfile", null[] = "/dev/null";
    char *argument[] = {name, port, zero, socket, path, save, empty, log, null, NULL};
    (void)snprintf(path, sizeof(path), "%s/r", folder);
    *r = (redis){.pid = -1, .fd = -1, .answer = malloc(64 + VALUE_MAX)};
    bool started =
        r->answer != NULL && posix_spawnp(&r->pid, name, NULL, NULL, argument, environ) == 0;
    for (uint32_t i = 0; started && r->fd < 0 && i < WAIT_MS; i++) {
        r->fd = sx_bench_connect(path);
        (void)usleep(1000);
    }
    if (r->fd < 0) {
        (void)fprintf(stderr, "symplex-bench store: redis-server does not answer\n");
    }
    return r->fd >= 0;
}

/* ---- ours ---- */
static bool our_get(symplex_store *store, uint32_t i, size_t want)
{
    void *bytes = NULL;
    size_t size = 0;
    symplex_error error = {.text = ""};
    symplex_code got =
        symplex_store_get(store, CACHE, &i, sizeof(i), 0, 0, &bytes, &size, NULL, &error);
    bool good = got == SYMPLEX_OK && size == want && memcmp(bytes, code + i, size) == 0;
    symplex_free(bytes);
    if (!good) {
        (void)fprintf(stderr, "symplex-bench store: get: %s\n", error.text);
    }
    return good;
}

static bool our_put(symplex_store *store, uint32_t i, size_t size)
{
    symplex_error error = {.text = ""};
    bool good =
        symplex_store_put(store, CACHE, &i, sizeof(i), code + i, size, 1000, &error) == SYMPLEX_OK;
    if (!good) {
        (void)fprintf(stderr, "symplex-bench store: put: %s\n", error.text);
    }
    return good;
}

/* ---- measuring ---- */
/* Microseconds of a call; negative: one failed. Of Redis where `store` is NULL. */
static double time_calls(symplex_store *store, redis *r, bool put, size_t size)
{
    bool good = true;
    uint64_t start = sx_bench_now_ns();
    for (uint32_t i = 0; good && i < CALLS; i++) {
        uint32_t value = i % VALUES;
        if (store != NULL) {
            good = put ? our_put(store, value, size) : our_get(store, value, size);
        } else {
            good = put ? redis_put(r, value, size) : redis_get(r, value, size);
        }
    }
    return good ? (double)(sx_bench_now_ns() - start) / 1000 / CALLS : -1;
}

static bool run_case(const sx_bench_options *options, const char *name, size_t size,
                     symplex_store *store, redis *r)
{
    uint32_t rounds = options->rounds > 0 ? options->rounds : ROUNDS_DEFAULT;
    rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    double sample[2][2][ROUNDS_MAX]; /* of gets and puts, ours and theirs */
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t way = 0; way < 4; way++) {
            bool put = way < 2, ours = way % 2 == 0;
            double us = time_calls(ours ? store : NULL, r, put, size);
            sample[put][!ours][round] = us;
            if (us < 0) {
                return false;
            }
        }
    }
    for (uint32_t put = 0; put < 2; put++) {
        sx_bench_put(options, &(sx_bench_row){
                                  .bench = "store",
                                  .case_name = name,
                                  .metric = put ? "put" : "get",
                                  .value = sx_bench_median(sample[put][0], rounds),
                                  .unit = "us",
                                  .peer = "Redis without files",
                                  .peer_value = sx_bench_median(sample[put][1], rounds),
                              });
    }
    return true;
}

/* The bytes of this program's file into `code`. */
static bool read_code(void)
{
    FILE *file = fopen("/proc/self/exe", "rb");
    size_t need = VALUES + VALUE_MAX;
    code = malloc(need);
    bool good = file != NULL && code != NULL && fread(code, 1, need, file) == need;
    if (file != NULL) {
        (void)fclose(file);
    }
    return good;
}

int sx_bench_store(const sx_bench_options *options)
{
    static const struct {
        const char *name;
        size_t size;
    } cases[] = {{"4k", 4096}, {"64k", 65536}, {"1m", VALUE_MAX}};
    bool wanted[SX_COUNT(cases)], any = false;
    for (uint32_t i = 0; i < SX_COUNT(cases); i++) {
        wanted[i] = sx_bench_wants(options, cases[i].name);
        any = any || wanted[i];
    }
    if (!any) {
        return EXIT_SUCCESS;
    }
    sx_bench_server server;
    redis r = {.pid = -1, .fd = -1};
    symplex_store *store = NULL;
    symplex_error error = {.text = ""};
    if (!read_code() || !sx_bench_server_start("store", "symplexd", &server)) {
        free(code);
        return EXIT_FAILURE;
    }
    symplex_options open = {.socket = server.socket};
    bool good =
        symplex_store_open(&open, &store, &error) == SYMPLEX_OK && redis_start(&r, server.folder);
    for (uint32_t i = 0; good && i < SX_COUNT(cases); i++) {
        good = !wanted[i] || run_case(options, cases[i].name, cases[i].size, store, &r);
    }
    symplex_store_close(store);
    redis_stop(&r);
    sx_bench_server_stop(&server);
    free(code);
    if (!good) {
        (void)fprintf(stderr, "symplex-bench store: %s\n", error.text);
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
