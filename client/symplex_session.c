/* symplex_session.c - sessions: the ranks of a job use the same modules, and compare what they used. */
#include "client/symplex_session.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/connection.h"
#include "client/symplex_inside.h"

#define CONNECT_MS 1000
#define ANSWER_MS 30000 /* beyond what the daemon holds a call */
#define HOLD_MS 20000   /* one call of a longer wait; the daemon may hold it for less */
#define AGAIN_MS 20     /* between two tries to reach a daemon that is started again */
#define GRACE_MS 5000   /* a rank whose connection ended may come back for so long */
#define NAME_MAX_BYTES 96

/* What this rank used. */
typedef struct {
    sx_session_entry entry;
    char name[NAME_MAX_BYTES];
} used;

struct symplex_session {
    char socket[SXC_PATH_MAX];
    char job[257];
    symplex_options options; /* options.socket is not used */
    sxc_connection *connection;
    pid_t pid; /* which process made the connection */
    uint32_t rank, world;
    int64_t id;    /* at the daemon; 0: none yet */
    int64_t round; /* checks that have ended */
    used *used;    /* from malloc */
    uint32_t count, capacity;
};

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool asks_to_stop(void *self)
{
    const symplex_session *session = self;
    return session->options.stop(session->options.self) != 0;
}

static void begin(symplex_session *session, sx_ctx *cx)
{
    sxc_call_begin(cx);
    if (session->options.stop != NULL) {
        cx->cancelled = asks_to_stop;
        cx->cancelled_self = session;
    }
}

/* ---- the connection ---- */
static void hang_up(symplex_session *session)
{
    sxc_disconnect(session->connection);
    session->connection = NULL;
}

/* Connects where there is no connection, and comes to the session, again or for the first time. Another number means
 * that the daemon was started again: its checks begin anew. */
static sx_code reach(sx_ctx *cx, symplex_session *session)
{
    if (session->connection != NULL && session->pid == getpid()) {
        return SX_OK;
    }
    hang_up(session);
    session->pid = getpid();
    SX_TRY(sxc_connect(cx, session->socket, CONNECT_MS, &session->connection));
    sx_session_open_args args = {
        .job = sx_span_of(session->job), .rank = session->rank, .world = session->world};
    const void *reply;
    sx_code code =
        sxc_call(cx, session->connection, SX_METHOD_SESSION_OPEN, &args, ANSWER_MS, &reply);
    if (code != SX_OK) {
        hang_up(session);
        return code;
    }
    const sx_session_open_result *opened = reply;
    if (opened->session != session->id) {
        session->id = opened->session;
        session->round = opened->round;
    }
    return SX_OK;
}

/* The same after a loss: a daemon that is started again gets a little time for it. */
static sx_code reach_again(sx_ctx *cx, symplex_session *session)
{
    uint64_t begun = now_ms();
    for (;;) {
        sx_code code = reach(cx, session);
        bool stopped = cx->cancelled != NULL && cx->cancelled(cx->cancelled_self);
        if (code != SX_NODAEMON || stopped || now_ms() - begun >= GRACE_MS) {
            return code;
        }
        sx_ctx_reset_error(cx);
        (void)poll(NULL, 0, AGAIN_MS);
    }
}

/* One call, whose arguments have the number of the session in *id, and that of the next check in *round (NULL: there is
 * none). A connection that was lost, or a session that the daemon does not know any more, is opened again once, and
 * then both may be others. */
static sx_code ask(sx_ctx *cx, symplex_session *session, sx_method method, const void *args,
                   int64_t *id, int64_t *round, int timeout_ms, const void **reply)
{
    bool old = session->connection != NULL && session->pid == getpid();
    bool again = false;
    for (;;) {
        SX_TRY(again ? reach_again(cx, session) : reach(cx, session));
        *id = session->id;
        if (round != NULL) {
            *round = session->round + 1;
        }
        sx_code code = sxc_call(cx, session->connection, method, args, timeout_ms, reply);
        bool lost = code == SX_NODAEMON || code == SX_ABSENT;
        if (lost || code == SX_TIMEOUT || code == SX_CANCELLED || code == SX_SYSTEM) {
            hang_up(session);
        }
        if (!lost || !old) {
            return code;
        }
        old = false;
        again = true;
        sx_ctx_reset_error(cx);
    }
}

symplex_code symplex_session_open(const symplex_options *options, const char *job, uint32_t rank,
                                  uint32_t world, symplex_session **session, symplex_error *error)
{
    static const symplex_options defaults = {.daemon = SYMPLEX_DAEMON_AUTO};
    if (job == NULL || session == NULL) {
        return sxc_call_misuse(error, "symplex_session_open: job and session are needed");
    }
    options = options != NULL ? options : &defaults;
    *session = NULL;
    sx_ctx cx;
    sxc_call_begin(&cx);
    symplex_session *made = calloc(1, sizeof(*made));
    sx_code code = made == NULL ? SX_FAIL(&cx, SX_NOMEM, "no memory for a session") : SX_OK;
    if (code == SX_OK && strlen(job) >= sizeof(made->job)) {
        code = SX_FAIL(&cx, SX_USAGE, "session: a job's name of %zu bytes, at most %zu",
                       strlen(job), sizeof(made->job) - 1);
    }
    if (code == SX_OK) {
        (void)snprintf(made->job, sizeof(made->job), "%s", job);
        made->options = *options;
        made->options.socket = NULL;
        made->rank = rank;
        made->world = world;
        code = sxc_socket_of(&cx, options->socket, made->socket);
    }
    code = code == SX_OK ? reach(&cx, made) : code;
    if (code == SX_OK) {
        *session = made;
    } else {
        free(made);
    }
    return sxc_call_finish(&cx, code, error);
}

void symplex_session_close(symplex_session *session)
{
    if (session == NULL) {
        return;
    }
    if (session->connection != NULL && session->pid == getpid()) {
        sx_ctx cx;
        sxc_call_begin(&cx);
        sx_session_args args = {.session = session->id};
        SX_PUT(&args, session_args, rank, session->rank);
        const void *reply; /* whether it is heard or not: this rank leaves */
        (void)sxc_call(&cx, session->connection, SX_METHOD_SESSION_CLOSE, &args, CONNECT_MS,
                       &reply);
        sx_ctx_fini(&cx);
    }
    hang_up(session);
    free(session->used);
    free(session);
}

/* ---- what was used ---- */
static sx_key digest_of(sx_span bytes)
{
    return sx_key_of("symplex-module-1", &bytes, 1);
}

/* NULL: this rank has not used it. */
static used *find_used(const symplex_session *session, const sx_key *key)
{
    for (uint32_t i = 0; i < session->count; i++) {
        if (sx_key_equal(&session->used[i].entry.key, key)) {
            return &session->used[i];
        }
    }
    return NULL;
}

static sx_code note(sx_ctx *cx, symplex_session *session, const sx_key *key, const sx_key *digest,
                    sx_span name)
{
    used *its = find_used(session, key);
    if (its == NULL && session->count == session->capacity) {
        uint32_t capacity = session->capacity > 0 ? 2 * session->capacity : 64;
        used *grown = realloc(session->used, capacity * sizeof(*grown));
        if (grown == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "session '%s': no memory", session->job);
        }
        session->used = grown;
        session->capacity = capacity;
    }
    its = its != NULL ? its : &session->used[session->count++];
    its->entry = (sx_session_entry){.key = *key, .digest = *digest};
    sxc_copy_text(its->name, sizeof(its->name), name);
    return SX_OK;
}

symplex_code symplex_session_note(symplex_session *session, const char *name, const void *bytes,
                                  size_t size, symplex_error *error)
{
    if (session == NULL || name == NULL || (bytes == NULL && size > 0)) {
        return sxc_call_misuse(error, "symplex_session_note: session, name and bytes are needed");
    }
    sx_ctx cx;
    begin(session, &cx);
    sx_span its = sx_span_of(name);
    sx_key key = sx_key_of("symplex-note-1", &its, 1);
    sx_key digest = digest_of((sx_span){bytes, size});
    return sxc_call_finish(&cx, note(&cx, session, &key, &digest, its), error);
}

static int by_key(const void *left, const void *right)
{
    return memcmp(((const used *)left)->entry.key.byte, ((const used *)right)->entry.key.byte,
                  SX_KEY_BYTES);
}

symplex_code symplex_session_digest(symplex_session *session, uint8_t digest[32], size_t *count,
                                    symplex_error *error)
{
    if (session == NULL || digest == NULL) {
        return sxc_call_misuse(error, "symplex_session_digest: session and digest are needed");
    }
    sx_ctx cx;
    begin(session, &cx);
    if (session->count > 0) {
        qsort(session->used, session->count, sizeof(*session->used), by_key);
    }
    sx_buf pairs;
    sx_buf_init(&pairs, (size_t)1 << 30);
    for (uint32_t i = 0; i < session->count; i++) {
        sx_buf_put(&pairs, session->used[i].entry.key.byte, SX_KEY_BYTES);
        sx_buf_put(&pairs, session->used[i].entry.digest.byte, SX_KEY_BYTES);
    }
    sx_code code = sx_buf_check(&cx, &pairs, "digest of a session");
    sx_span all = sx_buf_span(&pairs);
    sx_key whole = sx_key_of("symplex-session-1", &all, 1);
    memcpy(digest, whole.byte, SX_KEY_BYTES);
    sx_buf_fini(&pairs);
    if (count != NULL) {
        *count = session->count;
    }
    return sxc_call_finish(&cx, code, error);
}

/* ---- pins ---- */
static sx_code ask_pin(sx_ctx *cx, symplex_session *session, sx_session_pin_args *args,
                       const sx_session_pin_result **got)
{
    const void *reply;
    args->rank = session->rank;
    SX_TRY(ask(cx, session, SX_METHOD_SESSION_PIN, args, &args->session, NULL, ANSWER_MS, &reply));
    *got = reply;
    return SX_OK;
}

static sx_code note_module(sx_ctx *cx, symplex_session *session, const sx_key *key, sx_span module)
{
    sx_key digest = digest_of(module);
    char name[SX_KEY_TEXT_SIZE];
    sx_key_print(key, name);
    return note(cx, session, key, &digest, sx_span_of(name));
}

sx_code sxc_session_find(sx_ctx *cx, symplex_session *session, const sx_key *key, sx_buf *module)
{
    sx_session_pin_args args = {.key = *key};
    const sx_session_pin_result *got;
    SX_TRY(ask_pin(cx, session, &args, &got));
    if (!SX_HAS(got, session_pin_result, module)) {
        return SX_FAIL(cx, SX_ABSENT, "session '%s': no module is pinned", session->job);
    }
    sx_buf_put_span(module, got->module);
    SX_TRY(sx_buf_check(cx, module, "module"));
    return note_module(cx, session, key, sx_buf_span(module));
}

/* Another module is pinned, and nobody has its bytes any more. */
static sx_code refuse_lost(sx_ctx *cx, const symplex_session *session, const sx_key *key,
                           const sx_session_pin_result *got)
{
    char text[SX_KEY_TEXT_SIZE];
    sx_key_print(key, text);
    return SX_FAIL(cx, SX_MISMATCH,
                   "session '%s': rank %u has another module for key %.16s than rank %lld, and "
                   "those bytes are not kept",
                   session->job, session->rank, text, (long long)got->rank);
}

sx_code sxc_session_commit(sx_ctx *cx, symplex_session *session, const sx_key *key, sx_buf *module)
{
    sx_session_pin_args args = {.key = *key};
    const sx_session_pin_result *got;
    SX_PUT(&args, session_pin_args, digest, digest_of(sx_buf_span(module)));
    SX_TRY(ask_pin(cx, session, &args, &got));
    if (sx_span_is(got->state, "absent")) {
        SX_PUT(&args, session_pin_args, module, sx_buf_span(module));
        SX_TRY(ask_pin(cx, session, &args, &got));
    }
    if (sx_span_is(got->state, "lost")) {
        return refuse_lost(cx, session, key, got);
    }
    if (SX_HAS(got, session_pin_result, module)) {
        sx_buf_clear(module);
        sx_buf_put_span(module, got->module);
        SX_TRY(sx_buf_check(cx, module, "module"));
    }
    return note_module(cx, session, key, sx_buf_span(module));
}

/* ---- check ---- */
static void put_digest(char out[20], bool has, const sx_key *digest)
{
    char text[SX_KEY_TEXT_SIZE];
    sx_key_print(digest, text);
    (void)snprintf(out, 20, "%s", has ? "" : "none");
    if (has) {
        (void)snprintf(out, 20, "%.12s", text);
    }
}

static sx_code say_different(sx_ctx *cx, const symplex_session *session,
                             const sx_session_check_result *result)
{
    const sx_session_difference *first = &result->differences.items[0];
    char key[SX_KEY_TEXT_SIZE], its[20], others[20], more[40] = "";
    sx_key_print(&first->key, key);
    const used *known = find_used(session, &first->key);
    put_digest(its, SX_HAS(first, session_difference, digest), &first->digest);
    put_digest(others, SX_HAS(first, session_difference, other_digest), &first->other_digest);
    if (result->differences.count > 1) {
        (void)snprintf(more, sizeof(more), "; %u differences in all", result->differences.count);
    }
    return SX_FAIL(cx, SX_MISMATCH,
                   "session '%s': for '%.60s' rank %lld has %s, rank %lld has %s%s", session->job,
                   known != NULL ? known->name : key, (long long)first->rank, its,
                   (long long)first->other_rank, others, more);
}

/* A rank that left, or is gone for longer than it may, ends the check; *hold is how long it may still come back. */
static sx_code look_at_missing(sx_ctx *cx, const symplex_session *session,
                               const sx_session_check_result *result, uint64_t *hold)
{
    for (uint32_t i = 0; i < result->missing.count; i++) {
        const sx_session_rank_row *row = &result->missing.items[i];
        bool gone = sx_span_is(row->state, "gone");
        if (sx_span_is(row->state, "closed") || (gone && row->since_ms >= GRACE_MS)) {
            return SX_FAIL(cx, SX_ABSENT,
                           "session '%s': rank %lld (process %lld) %s %.1f s ago, and did not come "
                           "to the check",
                           session->job, (long long)row->rank, (long long)row->pid,
                           gone ? "lost its connection" : "left", (double)row->since_ms / 1e3);
        }
        if (gone && (uint64_t)(GRACE_MS - row->since_ms) < *hold) {
            *hold = (uint64_t)(GRACE_MS - row->since_ms);
        }
    }
    return SX_OK;
}

static sx_code say_late(sx_ctx *cx, const symplex_session *session,
                        const sx_session_check_result *result, uint64_t timeout_ms)
{
    char ranks[160] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < result->missing.count && length < sizeof(ranks) - 16; i++) {
        length += (size_t)snprintf(ranks + length, sizeof(ranks) - length, "%s%lld",
                                   i > 0 ? ", " : "", (long long)result->missing.items[i].rank);
    }
    return SX_FAIL(cx, SX_TIMEOUT,
                   "session '%s': rank %s of %u did not come to the check within %.1f s",
                   session->job, ranks, session->world, (double)timeout_ms / 1e3);
}

static sx_code check(sx_ctx *cx, symplex_session *session, uint64_t timeout_ms)
{
    uint64_t begun = now_ms();
    uint64_t hold = HOLD_MS;
    sx_session_check_args args = {.rank = session->rank};
    args.entries.items = SX_NEW_ARRAY(cx, sx_session_entry, session->count + 1);
    if (args.entries.items == NULL) {
        return cx->error.code;
    }
    args.entries.count = session->count;
    for (uint32_t i = 0; i < session->count; i++) {
        args.entries.items[i] = session->used[i].entry;
    }
    for (;;) {
        uint64_t gone = now_ms() - begun;
        uint64_t left = gone < timeout_ms ? timeout_ms - gone : 0;
        const void *reply;
        SX_PUT(&args, session_check_args, wait_ms, (int64_t)(hold < left ? hold : left));
        SX_TRY(ask(cx, session, SX_METHOD_SESSION_CHECK, &args, &args.session, &args.round,
                   (int)args.wait_ms + ANSWER_MS, &reply));
        const sx_session_check_result *result = reply;
        if (!sx_span_is(result->state, "waiting")) {
            session->round++;
            return result->differences.count == 0 ? SX_OK : say_different(cx, session, result);
        }
        hold = HOLD_MS;
        SX_TRY(look_at_missing(cx, session, result, &hold));
        if (left == 0) {
            return say_late(cx, session, result, timeout_ms);
        }
        hold = hold > 0 ? hold : 1;
    }
}

symplex_code symplex_session_check(symplex_session *session, uint64_t timeout_ms,
                                   symplex_error *error)
{
    if (session == NULL) {
        return sxc_call_misuse(error, "symplex_session_check: no session");
    }
    sx_ctx cx;
    begin(session, &cx);
    return sxc_call_finish(&cx, check(&cx, session, timeout_ms), error);
}
