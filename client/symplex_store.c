/* symplex_store.c - artefacts of other caches, over a connection that lasts: leases belong to it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/connection.h"
#include "client/symplex_inside.h"

#define CONNECT_MS 1000
#define ANSWER_MS 30000 /* beyond what the daemon holds a call */
#define HOLD_MS 20000   /* one call of a longer wait; the daemon may hold it for less */

struct symplex_store {
    char socket[SXC_PATH_MAX];
    symplex_options options; /* options.socket is not used */
    sxc_connection *connection;
    pid_t pid; /* which process made the connection: a forked child makes one of its own */
};

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool asks_to_stop(void *self)
{
    const symplex_store *store = self;
    return store->options.stop(store->options.self) != 0;
}

static void begin(symplex_store *store, sx_ctx *cx)
{
    sxc_call_begin(cx);
    if (store->options.stop != NULL) {
        cx->cancelled = asks_to_stop;
        cx->cancelled_self = store;
    }
}

/* ---- the connection ---- */
static void hang_up(symplex_store *store)
{
    sxc_disconnect(store->connection);
    store->connection = NULL;
}

static sx_code connect_store(sx_ctx *cx, symplex_store *store)
{
    if (store->connection != NULL && store->pid != getpid()) {
        hang_up(store); /* the parent's goes on */
    }
    if (store->connection != NULL) {
        return SX_OK;
    }
    store->pid = getpid();
    return sxc_connect(cx, store->socket, CONNECT_MS, &store->connection);
}

/* One call; where a connection of an earlier call turns out to be dead, once more on a new one. What leaves an answer
 * behind ends the connection, and with it its leases. */
static sx_code ask(sx_ctx *cx, symplex_store *store, sx_method method, const void *args,
                   int timeout_ms, const void **result)
{
    bool old = store->connection != NULL && store->pid == getpid();
    for (;;) {
        SX_TRY(connect_store(cx, store));
        sx_code code = sxc_call(cx, store->connection, method, args, timeout_ms, result);
        bool lost = code == SX_NODAEMON;
        if (lost || code == SX_TIMEOUT || code == SX_CANCELLED || code == SX_SYSTEM) {
            hang_up(store);
        }
        if (!lost || !old) {
            return code;
        }
        old = false;
        sx_ctx_reset_error(cx);
    }
}

symplex_code symplex_store_open(const symplex_options *options, symplex_store **store,
                                symplex_error *error)
{
    static const symplex_options defaults = {.daemon = SYMPLEX_DAEMON_AUTO};
    if (store == NULL) {
        return sxc_call_misuse(error, "symplex_store_open: no place for the store");
    }
    options = options != NULL ? options : &defaults;
    *store = NULL;
    sx_ctx cx;
    sxc_call_begin(&cx);
    symplex_store *made = calloc(1, sizeof(*made));
    sx_code code = made == NULL ? SX_FAIL(&cx, SX_NOMEM, "no memory for a store") : SX_OK;
    if (code == SX_OK) {
        made->options = *options;
        made->options.socket = NULL;
        code = sxc_socket_of(&cx, options->socket, made->socket);
    }
    code = code == SX_OK ? connect_store(&cx, made) : code;
    if (code == SX_OK) {
        *store = made;
    } else {
        free(made);
    }
    return sxc_call_finish(&cx, code, error);
}

void symplex_store_close(symplex_store *store)
{
    if (store != NULL) {
        hang_up(store);
        free(store);
    }
}

/* ---- get ---- */
static sx_code take_value(sx_ctx *cx, const sx_artefact_get_result *got, void **bytes, size_t *size)
{
    sx_span value = got->value;
    void *copy = malloc(value.len > 0 ? value.len : 1);
    if (copy == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "artefact of %zu bytes: no memory", value.len);
    }
    if (value.len > 0) {
        memcpy(copy, value.ptr, value.len);
    }
    *bytes = copy;
    *size = value.len;
    return SX_OK;
}

/* Asks until it is found, is to be made by the caller, or `wait_ms` are over. */
static sx_code get(sx_ctx *cx, symplex_store *store, sx_artefact_get_args *args, uint64_t wait_ms,
                   const sx_artefact_get_result **got)
{
    uint64_t begun = now_ms();
    for (;;) {
        uint64_t gone = now_ms() - begun;
        uint64_t left = gone < wait_ms ? wait_ms - gone : 0;
        int64_t hold = (int64_t)(left < HOLD_MS ? left : HOLD_MS);
        const void *result;
        SX_PUT(args, artefact_get_args, wait_ms, hold);
        SX_TRY(ask(cx, store, SX_METHOD_ARTEFACT_GET, args, (int)hold + ANSWER_MS, &result));
        *got = result;
        if (!sx_span_is((*got)->state, "held") || left == 0) {
            return SX_OK;
        }
    }
}

symplex_code symplex_store_get(symplex_store *store, const char *cache, const void *name,
                               size_t name_size, uint64_t claim_ms, uint64_t wait_ms, void **bytes,
                               size_t *size, symplex_found *found, symplex_error *error)
{
    if (store == NULL || cache == NULL || name == NULL || bytes == NULL || size == NULL) {
        return sxc_call_misuse(error,
                               "symplex_store_get: store, cache, name, bytes and size are needed");
    }
    *bytes = NULL;
    *size = 0;
    symplex_found ignored;
    found = found != NULL ? found : &ignored;
    *found = (symplex_found){0};
    sx_ctx cx;
    begin(store, &cx);
    uint64_t begun = now_ms();
    sx_artefact_get_args args = {.cache = sx_span_of(cache), .name = {name, name_size}};
    SX_PUT(&args, artefact_get_args, claim_ms, (int64_t)(claim_ms & INT64_MAX));
    const sx_artefact_get_result *got = NULL;
    sx_code code = get(&cx, store, &args, wait_ms, &got);
    if (code == SX_OK) {
        found->lease = SX_HAS(got, artefact_get_result, lease) ? (uint64_t)got->lease : 0;
        found->held = sx_span_is(got->state, "held");
        found->cost_us = SX_HAS(got, artefact_get_result, cost_us) ? (uint64_t)got->cost_us : 0;
        found->waited_ms = got->waited_ms > 0 ? now_ms() - begun : 0;
        code = SX_HAS(got, artefact_get_result, value)
                   ? take_value(&cx, got, bytes, size)
                   : SX_FAIL(&cx, SX_ABSENT, "artefact of %s: not there", cache);
    }
    return sxc_call_finish(&cx, code, error);
}

/* ---- put, release ---- */
symplex_code symplex_store_put(symplex_store *store, const char *cache, const void *name,
                               size_t name_size, const void *bytes, size_t size, uint64_t cost_us,
                               symplex_error *error)
{
    if (store == NULL || cache == NULL || name == NULL || (bytes == NULL && size > 0)) {
        return sxc_call_misuse(error, "symplex_store_put: store, cache, name and bytes are needed");
    }
    sx_ctx cx;
    begin(store, &cx);
    sx_artefact_put_args args = {
        .cache = sx_span_of(cache), .name = {name, name_size}, .value = {bytes, size}};
    SX_PUT(&args, artefact_put_args, cost_us, (int64_t)(cost_us & INT64_MAX));
    const void *result;
    sx_code code = size > SX_RPC_REQUEST_BYTES_MAX - 65536
                       ? SX_FAIL(&cx, SX_LIMIT, "artefact of %zu bytes, at most %zu", size,
                                 SX_RPC_REQUEST_BYTES_MAX - 65536)
                       : ask(&cx, store, SX_METHOD_ARTEFACT_PUT, &args, ANSWER_MS, &result);
    return sxc_call_finish(&cx, code, error);
}

symplex_code symplex_store_release(symplex_store *store, uint64_t lease, symplex_error *error)
{
    if (store == NULL) {
        return sxc_call_misuse(error, "symplex_store_release: no store");
    }
    sx_ctx cx;
    begin(store, &cx);
    sx_artefact_release_args args = {.lease = (int64_t)(lease & INT64_MAX)};
    const void *result;
    sx_code code = ask(&cx, store, SX_METHOD_ARTEFACT_RELEASE, &args, ANSWER_MS, &result);
    return sxc_call_finish(&cx, code, error);
}
