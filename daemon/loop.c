/* loop.c - the daemon's life: start, signals, timers, drain, end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

#include "daemon/daemon.h"
#include "daemon/service/search.h"
#include "trust/trust.h"

#define SWEEP_MS 250
#define TOUCH_MS 1000
#define FAST_GRACE_MS 1000 /* for answers still on their way when told to stop at once */

/* ---- the cache's clock ---- */
static void on_cache_timer(uv_timer_t *timer)
{
    sxd_daemon_tick_cache(timer->data);
}

static void on_cache_wake(uv_async_t *async)
{
    sxd_daemon_tick_cache(async->data);
}

/* Called on the cache's writer thread. */
static void wake_loop(void *self)
{
    sxd_daemon *daemon = self;
    (void)uv_async_send(&daemon->cache_wake);
}

void sxd_daemon_tick_cache(sxd_daemon *daemon)
{
    if (daemon->phase == SXD_DOWN) {
        return;
    }
    uint64_t next_us = sx_cache_tick(daemon->cache);
    if (next_us == UINT64_MAX) {
        (void)uv_timer_stop(&daemon->cache_timer);
    } else {
        (void)uv_timer_start(&daemon->cache_timer, on_cache_timer, next_us / 1000 + 1, 0);
    }
}

void sxd_daemon_touch_cache(sxd_daemon *daemon)
{
    if (daemon->phase != SXD_DOWN && uv_is_active((uv_handle_t *)&daemon->cache_timer) == 0) {
        (void)uv_timer_start(&daemon->cache_timer, on_cache_timer, TOUCH_MS, 0);
    }
}

/* ---- the end ---- */
static void close_sessions(sxd_daemon *daemon, const char *why)
{
    while (daemon->sessions != NULL) {
        sxd_session_close(daemon->sessions, why);
    }
}

static bool output_waits(const sxd_daemon *daemon)
{
    const sxd_session *session;
    DL_FOREACH(daemon->sessions, session)
    {
        if (uv_stream_get_write_queue_size((const uv_stream_t *)&session->pipe) > 0) {
            return true;
        }
    }
    return false;
}

/* Everything is closed; uv_run returns when the close callbacks are done. */
static void go_down(sxd_daemon *daemon)
{
    SX_ASSERT(daemon->phase == SXD_DRAINING);
    sxd_listen_close(daemon);
    sxd_queue_stop(daemon, "the daemon is stopping");
    close_sessions(daemon, "the daemon is stopping");
    sxd_search_stop_steps(daemon);
    sxd_spread_close(daemon);
    daemon->phase = SXD_DOWN;
    sxd_search_close(daemon);
    while (daemon->jobs != NULL) {
        sxd_job_free(daemon->jobs);
    }
    sxd_pool_close(daemon);
    sx_cache_close(
        daemon
            ->cache); /* commits what is staged, gives the lock back; its thread calls wake_loop until here */
    daemon->cache = NULL;
    uv_handle_t *handles[] = {
        (uv_handle_t *)&daemon->sweep,       (uv_handle_t *)&daemon->cache_timer,
        (uv_handle_t *)&daemon->cache_wake,  (uv_handle_t *)&daemon->idle,
        (uv_handle_t *)&daemon->signal_term, (uv_handle_t *)&daemon->signal_int,
        (uv_handle_t *)&daemon->signal_hup,  (uv_handle_t *)&daemon->exchange_wake,
    };
    for (size_t i = 0; i < SX_COUNT(handles); i++) {
        uv_close(handles[i], NULL);
    }
}

/* While draining: is it time? */
static void check_drain(sxd_daemon *daemon)
{
    if (daemon->phase != SXD_DRAINING) {
        return;
    }
    uint64_t now = uv_now(&daemon->loop);
    if (daemon->fast && daemon->active_count > 0) {
        sxd_queue_stop(daemon, "the daemon is stopping");
    }
    if (daemon->fast) {
        sxd_search_stop_steps(daemon);
    }
    bool quiet = daemon->active_count == 0 && daemon->keying_count == 0 &&
                 !sxd_search_busy(daemon) && !output_waits(daemon);
    if (quiet || now >= daemon->drain_end_ms) {
        go_down(daemon);
    }
}

void sxd_daemon_drain(sxd_daemon *daemon, bool fast)
{
    uint64_t now = uv_now(&daemon->loop);
    if (daemon->phase == SXD_UP) {
        daemon->phase = SXD_DRAINING;
        daemon->drain_end_ms = now + (uint64_t)daemon->config.options.drain_s * 1000;
        sxd_listen_close(daemon);
        sxd_search_drain(daemon);
    }
    if (fast && !daemon->fast) {
        daemon->fast = true;
        daemon->drain_end_ms = now + FAST_GRACE_MS;
    }
    sxd_log(SXD_INFO, "drain", "fast=%d jobs=%u sessions=%u", daemon->fast, daemon->active_count,
            daemon->session_count);
    sxd_daemon_wake(daemon);
}

/* ---- once, soon ---- */
static void on_idle(uv_idle_t *idle)
{
    sxd_daemon *daemon = idle->data;
    (void)uv_idle_stop(idle);
    sxd_session_wake(daemon);
    check_drain(daemon);
}

void sxd_daemon_wake(sxd_daemon *daemon)
{
    if (daemon->phase != SXD_DOWN) {
        (void)uv_idle_start(&daemon->idle, on_idle);
    }
}

/* ---- now and then ---- */
static void check_idle_exit(sxd_daemon *daemon)
{
    uint64_t now = uv_now(&daemon->loop);
    uint64_t limit_ms = (uint64_t)daemon->config.options.idle_exit_s * 1000;
    if (daemon->session_count > 0 || daemon->active_count > 0 || daemon->step_count > 0 ||
        sxd_search_running(daemon) > 0) {
        daemon->idle_since_ms = now;
    } else if (limit_ms > 0 && daemon->phase == SXD_UP && now - daemon->idle_since_ms >= limit_ms) {
        sxd_log(SXD_INFO, "idle-exit", "idle_s=%lld",
                (long long)daemon->config.options.idle_exit_s);
        sxd_daemon_drain(daemon, false);
    }
}

static void on_sweep(uv_timer_t *timer)
{
    sxd_daemon *daemon = timer->data;
    sxd_session_sweep(daemon);
    sxd_queue_sweep(daemon);
    sxd_pool_sweep(daemon);
    sxd_search_sweep(daemon);
    check_idle_exit(daemon);
    check_drain(daemon);
}

/* ---- signals ---- */
static void on_reload_report(void *self, const char *name, bool applied)
{
    (void)self;
    sxd_log(applied ? SXD_INFO : SXD_WARN, "reload", "option=%s applied=%s", name,
            applied ? "yes" : "needs-restart");
}

static void reload(sxd_daemon *daemon)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sxd_config *fresh = SX_NEW(&cx, sxd_config);
    if (fresh == NULL || sxd_config_load(&cx, daemon->argc, daemon->argv, fresh) != SX_OK) {
        char quoted[SXD_QUOTE_MAX];
        sxd_log(SXD_ERROR, "reload", "error=%s", sxd_quote(quoted, sx_span_of(cx.error.text)));
    } else {
        sxd_config_apply(&daemon->config, fresh, on_reload_report, NULL);
        sxd_log_set((sxd_level)daemon->config.options.log_level);
        sxd_log(SXD_INFO, "reloaded", "file=%s", fresh->file[0] != '\0' ? fresh->file : "none");
    }
    sx_ctx_fini(&cx);
}

static void on_signal(uv_signal_t *handle, int number)
{
    sxd_daemon *daemon = handle->data;
    if (number == SIGHUP) {
        reload(daemon);
    } else {
        sxd_daemon_drain(daemon, number == SIGINT || daemon->phase != SXD_UP);
    }
}

/* ---- start ---- */
static sx_code open_handles(sx_ctx *cx, sxd_daemon *daemon)
{
    uv_loop_t *loop = &daemon->loop;
    bool fine = uv_timer_init(loop, &daemon->sweep) == 0 &&
                uv_timer_init(loop, &daemon->cache_timer) == 0 &&
                uv_async_init(loop, &daemon->cache_wake, on_cache_wake) == 0 &&
                uv_idle_init(loop, &daemon->idle) == 0 &&
                uv_signal_init(loop, &daemon->signal_term) == 0 &&
                uv_signal_init(loop, &daemon->signal_int) == 0 &&
                uv_signal_init(loop, &daemon->signal_hup) == 0;
    daemon->sweep.data = daemon->cache_timer.data = daemon->cache_wake.data = daemon;
    daemon->idle.data = daemon->signal_term.data = daemon->signal_int.data = daemon;
    daemon->signal_hup.data = daemon;
    fine = fine && uv_timer_start(&daemon->sweep, on_sweep, SWEEP_MS, SWEEP_MS) == 0 &&
           uv_signal_start(&daemon->signal_term, on_signal, SIGTERM) == 0 &&
           uv_signal_start(&daemon->signal_int, on_signal, SIGINT) == 0 &&
           uv_signal_start(&daemon->signal_hup, on_signal, SIGHUP) == 0;
    return fine ? SX_OK : SX_FAIL(cx, SX_SYSTEM, "loop: handles cannot be opened");
}

static sx_code open_cache(sx_ctx *cx, sxd_daemon *daemon)
{
    const sxd_options *options = &daemon->config.options;
    sx_cache_options cache = {
        .dir = options->state,
        .size_limit = (uint64_t)options->cache_mb << 20,
        .ram_limit = (uint64_t)options->cache_ram_mb << 20,
        .wake = wake_loop,
        .wake_self = daemon,
    };
    return sx_cache_open(cx, &cache, &daemon->cache);
}

static sx_code make_boot_id(sx_ctx *cx, sxd_daemon *daemon)
{
    uint8_t bytes[8];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return SX_FAIL(cx, SX_SYSTEM, "boot id: %s", strerror(errno));
    }
    for (uint32_t i = 0; i < sizeof(bytes); i++) {
        (void)snprintf(daemon->boot_id + 2 * i, 3, "%02x", bytes[i]);
    }
    return SX_OK;
}

/* Each step needs the ones before; on failure the process ends, so nothing is taken back. */
static sx_code start(sx_ctx *cx, sxd_daemon *daemon)
{
    const sxd_options *options = &daemon->config.options;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a full file is an error of write, not the end */
    SX_TRY(make_boot_id(cx, daemon));
    SX_TRY(sx_trust_make_folder(cx, "state", options->state));
    daemon->memo = calloc((size_t)SXD_MEMO_SETS * SXD_MEMO_WAYS, sizeof(*daemon->memo));
    if (daemon->memo == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "memo: no memory");
    }
    SX_TRY(open_handles(cx, daemon));
    SX_TRY(open_cache(cx, daemon)); /* takes the lock of the state directory */
    SX_TRY(sx_trust_key_open(cx, options->state, true, &daemon->key));
    sxd_search_open(daemon);
    sxd_spread_open(daemon);
    SX_TRY(sxd_pool_open(cx, daemon));
    SX_TRY(sxd_listen_open(cx, daemon));
    daemon->start_ms = uv_now(&daemon->loop);
    daemon->idle_since_ms = daemon->start_ms;
    sxd_log(SXD_INFO, "ready", "pid=%d socket=%s state=%s build=%s workers=%u seccomp=%s", getpid(),
            options->socket, options->state, daemon->backend->build(), daemon->worker_count,
            sxd_sandbox_filters() ? "yes" : "no");
    return SX_OK;
}

static int run(sxd_daemon *daemon)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)64 << 20);
    sxd_log_set((sxd_level)daemon->config.options.log_level);
    if (uv_loop_init(&daemon->loop) != 0 || start(&cx, daemon) != SX_OK) {
        char quoted[SXD_QUOTE_MAX];
        sxd_log(SXD_ERROR, "start", "code=%s error=%s", sx_code_name(cx.error.code),
                sxd_quote(quoted, sx_span_of(cx.error.text)));
        int status = sx_code_exit(cx.error.code != SX_OK ? cx.error.code : SX_SYSTEM);
        sx_cache_close(daemon->cache);
        _exit(status); /* handles of a loop that never ran; the zygote sees the end of its socket */
    }
    sx_ctx_fini(&cx);
    (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
    SX_ASSERT(daemon->phase == SXD_DOWN && daemon->sessions == NULL);
    int left = uv_loop_close(&daemon->loop);
    SX_ASSERT(left == 0);
    free(daemon->memo);
    sx_trust_key_close(&daemon->key);
    uv_mutex_destroy(&daemon->search_lock);
    sxd_log(SXD_INFO, "stopped", "pid=%d", getpid());
    return EXIT_SUCCESS;
}

/* ---- command line ---- */
static void print(sx_buf *buf)
{
    (void)fwrite(buf->ptr, 1, buf->len, stdout);
    sx_buf_fini(buf);
}

static int act(sxd_daemon *daemon)
{
    sx_buf buf;
    sx_buf_init(&buf, 1 << 20);
    switch (daemon->config.action) {
    case SXD_RUN: return run(daemon);
    case SXD_HELP: sxd_config_help(&buf); break;
    case SXD_VERSION:
        sx_buf_print(&buf, "symplexd %s build %s\n", SX_VERSION_TEXT, daemon->backend->build());
        break;
    case SXD_CHECK_CONFIG: sx_buf_put_text(&buf, "configuration is valid\n"); break;
    case SXD_PRINT_CONFIG: sxd_config_print(&daemon->config, &buf); break;
    }
    print(&buf);
    return EXIT_SUCCESS;
}

int sxd_main(int argc, char **argv, const sxd_backend *backend)
{
    if (argc == 3 && strcmp(argv[1], "--zygote") == 0) {
        return sxd_zygote_main(backend, strtol(argv[2], NULL, 10));
    }
    sxd_daemon *daemon = calloc(1, sizeof(*daemon));
    if (daemon == NULL) {
        return sx_code_exit(SX_NOMEM);
    }
    daemon->backend = backend;
    daemon->argc = argc;
    daemon->argv = argv;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    int status;
    if (sxd_config_load(&cx, argc, argv, &daemon->config) != SX_OK) {
        (void)fprintf(stderr, "symplexd: %s\n", cx.error.text);
        status = sx_code_exit(cx.error.code);
    } else {
        status = act(daemon);
    }
    sx_ctx_fini(&cx);
    free(daemon);
    return status;
}
