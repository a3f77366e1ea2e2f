/* loop.c - the daemon's life: start, signals, timers, drain, end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/service/service.h"

#define SWEEP_MS 250
#define FAST_GRACE_MS 1000 /* for answers still on their way when told to stop at once */

/* The process. */
typedef struct {
    sxd_base base;
    sxd_net net;
    sxd_work work;
    sxd_service service;
    int argc;
    char **argv;
    bool fast;        /* do not finish what is under way */
    uv_timer_t sweep; /* every SWEEP_MS: stalls, finished jobs, drain, restarts of workers */
    uv_signal_t signal_term, signal_int, signal_hup;
    uint64_t drain_end_ms;
    uint64_t idle_since_ms;
} process;

/* ---- the end ---- */
/* Everything is closed; uv_run returns when the close callbacks are done. */
static void go_down(process *p)
{
    SX_ASSERT(p->base.phase == SXD_DRAINING);
    sxd_net_deafen(&p->net);
    sxd_service_halt(&p->service, "the daemon is stopping");
    sxd_net_close(&p->net, "the daemon is stopping");
    p->base.phase = SXD_DOWN;
    sxd_work_close(&p->work);
    sxd_service_close(&p->service);
    sxd_base_close(&p->base);
    uv_handle_t *handles[] = {
        (uv_handle_t *)&p->sweep,
        (uv_handle_t *)&p->signal_term,
        (uv_handle_t *)&p->signal_int,
        (uv_handle_t *)&p->signal_hup,
    };
    for (size_t i = 0; i < SX_COUNT(handles); i++) {
        uv_close(handles[i], NULL);
    }
}

/* While draining: is it time? */
static void check_drain(process *p)
{
    if (p->base.phase != SXD_DRAINING) {
        return;
    }
    if (p->fast) {
        sxd_service_drain(&p->service, true);
    }
    bool quiet = sxd_service_quiet(&p->service) && !sxd_net_writes(&p->net);
    if (quiet || sxd_base_now(&p->base) >= p->drain_end_ms) {
        go_down(p);
    }
}

/* Begins to stop; may be called again. */
static void drain(void *self, bool fast)
{
    process *p = self;
    uint64_t now = sxd_base_now(&p->base);
    if (p->base.phase == SXD_UP) {
        p->base.phase = SXD_DRAINING;
        p->drain_end_ms = now + (uint64_t)p->base.config.options.drain_s * 1000;
        sxd_net_deafen(&p->net);
        sxd_service_drain(&p->service, false);
    }
    if (fast && !p->fast) {
        p->fast = true;
        p->drain_end_ms = now + FAST_GRACE_MS;
    }
    sxd_log(SXD_INFO, "drain", "fast=%d jobs=%u sessions=%u", p->fast, p->service.active_count,
            p->net.session_count);
    sxd_base_wake(&p->base);
}

/* ---- once, soon ---- */
static void on_soon(void *self)
{
    process *p = self;
    sxd_net_wake(&p->net);
    check_drain(p);
}

/* ---- now and then ---- */
static void check_idle_exit(process *p)
{
    uint64_t now = sxd_base_now(&p->base);
    uint64_t limit_ms = (uint64_t)p->base.config.options.idle_exit_s * 1000;
    if (p->net.session_count > 0 || !sxd_service_idle(&p->service)) {
        p->idle_since_ms = now;
    } else if (limit_ms > 0 && p->base.phase == SXD_UP && now - p->idle_since_ms >= limit_ms) {
        sxd_log(SXD_INFO, "idle-exit", "idle_s=%lld",
                (long long)p->base.config.options.idle_exit_s);
        drain(p, false);
    }
}

static void on_sweep(uv_timer_t *timer)
{
    process *p = timer->data;
    sxd_net_sweep(&p->net);
    sxd_work_sweep(&p->work);
    sxd_service_sweep(&p->service);
    check_idle_exit(p);
    check_drain(p);
}

/* ---- signals ---- */
static void on_reload_report(void *self, const char *name, bool applied)
{
    (void)self;
    sxd_log(applied ? SXD_INFO : SXD_WARN, "reload", "option=%s applied=%s", name,
            applied ? "yes" : "needs-restart");
}

static void reload(process *p)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sxd_config *fresh = SX_NEW(&cx, sxd_config);
    if (fresh == NULL || sxd_config_load(&cx, p->argc, p->argv, fresh) != SX_OK) {
        char quoted[SXD_QUOTE_MAX];
        sxd_log(SXD_ERROR, "reload", "error=%s", sxd_quote(quoted, sx_span_of(cx.error.text)));
    } else {
        sxd_config_apply(&p->base.config, fresh, on_reload_report, NULL);
        sxd_log_set((sxd_level)p->base.config.options.log_level);
        sxd_log(SXD_INFO, "reloaded", "file=%s", fresh->file[0] != '\0' ? fresh->file : "none");
    }
    sx_ctx_fini(&cx);
}

static void on_signal(uv_signal_t *handle, int number)
{
    process *p = handle->data;
    if (number == SIGHUP) {
        reload(p);
    } else {
        drain(p, number == SIGINT || p->base.phase != SXD_UP);
    }
}

/* ---- start ---- */
static sx_code open_handles(sx_ctx *cx, process *p)
{
    uv_loop_t *loop = &p->base.loop;
    bool fine = sxd_base_open(&p->base, on_soon, p) && uv_timer_init(loop, &p->sweep) == 0 &&
                uv_signal_init(loop, &p->signal_term) == 0 &&
                uv_signal_init(loop, &p->signal_int) == 0 &&
                uv_signal_init(loop, &p->signal_hup) == 0;
    p->sweep.data = p->signal_term.data = p->signal_int.data = p->signal_hup.data = p;
    fine = fine && uv_timer_start(&p->sweep, on_sweep, SWEEP_MS, SWEEP_MS) == 0 &&
           uv_signal_start(&p->signal_term, on_signal, SIGTERM) == 0 &&
           uv_signal_start(&p->signal_int, on_signal, SIGINT) == 0 &&
           uv_signal_start(&p->signal_hup, on_signal, SIGHUP) == 0;
    return fine ? SX_OK : SX_FAIL(cx, SX_SYSTEM, "loop: handles cannot be opened");
}

static sx_code make_boot_id(sx_ctx *cx, char boot_id[17])
{
    uint8_t bytes[8];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return SX_FAIL(cx, SX_SYSTEM, "boot id: %s", strerror(errno));
    }
    for (uint32_t i = 0; i < sizeof(bytes); i++) {
        (void)snprintf(boot_id + 2 * i, 3, "%02x", bytes[i]);
    }
    return SX_OK;
}

/* Each step needs the ones before; on failure the process ends, so nothing is taken back. */
static sx_code start(sx_ctx *cx, process *p)
{
    const sxd_options *options = &p->base.config.options;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a full file is an error of write, not the end */
    SX_TRY(make_boot_id(cx, p->base.boot_id));
    SX_TRY(open_handles(cx, p));
    SX_TRY(sxd_service_open(cx, &p->service));
    SX_TRY(sxd_work_open(cx, &p->work));
    SX_TRY(sxd_unix_listen(cx, &p->net, options->socket));
    p->idle_since_ms = sxd_base_now(&p->base);
    sxd_log(SXD_INFO, "ready", "pid=%d socket=%s state=%s build=%s workers=%u seccomp=%s", getpid(),
            options->socket, options->state, p->service.backend->build(), p->work.worker_count,
            sxd_sandbox_filters() ? "yes" : "no");
    return SX_OK;
}

/* Who knows whom. */
static void tie(process *p, const sxd_backend *backend)
{
    p->net = (sxd_net){.base = &p->base, .server = sxd_service_server(&p->service)};
    p->work = (sxd_work){
        .base = &p->base, .room = sxd_service_room, .self = &p->service, .zygote_fd = -1};
    p->service.base = &p->base;
    p->service.net = &p->net;
    p->service.work = &p->work;
    p->service.backend = backend;
    p->service.drain = drain;
    p->service.self = p;
}

static int run(process *p)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)64 << 20);
    sxd_log_set((sxd_level)p->base.config.options.log_level);
    if (uv_loop_init(&p->base.loop) != 0 || start(&cx, p) != SX_OK) {
        char quoted[SXD_QUOTE_MAX];
        sxd_log(SXD_ERROR, "start", "code=%s error=%s", sx_code_name(cx.error.code),
                sxd_quote(quoted, sx_span_of(cx.error.text)));
        int status = sx_code_exit(cx.error.code != SX_OK ? cx.error.code : SX_SYSTEM);
        sx_cache_close(p->service.cache);
        _exit(status); /* handles of a loop that never ran; the zygote sees the end of its socket */
    }
    sx_ctx_fini(&cx);
    (void)uv_run(&p->base.loop, UV_RUN_DEFAULT);
    SX_ASSERT(p->base.phase == SXD_DOWN && p->net.sessions == NULL);
    int left = uv_loop_close(&p->base.loop);
    SX_ASSERT(left == 0);
    sxd_service_fini(&p->service);
    sxd_log(SXD_INFO, "stopped", "pid=%d", getpid());
    return EXIT_SUCCESS;
}

/* ---- command line ---- */
/* The exit status. */
static int print(sx_buf *buf)
{
    bool arrived = fwrite(buf->ptr, 1, buf->len, stdout) == buf->len && fflush(stdout) == 0;
    if (!arrived) {
        (void)fprintf(stderr, "symplexd: standard output: cannot be written: %s\n",
                      strerror(errno));
    }
    sx_buf_fini(buf);
    return arrived ? EXIT_SUCCESS : sx_code_exit(SX_INPUT);
}

static int act(process *p)
{
    sx_buf buf;
    sx_buf_init(&buf, 1 << 20);
    switch (p->base.config.action) {
    case SXD_RUN: return run(p);
    case SXD_HELP: sxd_config_help(&buf); break;
    case SXD_VERSION:
        sx_buf_print(&buf, "symplexd %s build %s\n", SX_VERSION_TEXT, p->service.backend->build());
        break;
    case SXD_CHECK_CONFIG: sx_buf_put_text(&buf, "configuration is valid\n"); break;
    case SXD_PRINT_CONFIG: sxd_config_print(&p->base.config, &buf); break;
    }
    return print(&buf);
}

int sxd_main(int argc, char **argv, const sxd_backend *backend)
{
    if (argc == 3 && strcmp(argv[1], "--zygote") == 0) {
        return sxd_zygote_main(backend, strtol(argv[2], NULL, 10));
    }
    process *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return sx_code_exit(SX_NOMEM);
    }
    tie(p, backend);
    p->argc = argc;
    p->argv = argv;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    int status;
    if (sxd_config_load(&cx, argc, argv, &p->base.config) != SX_OK) {
        (void)fprintf(stderr, "symplexd: %s\n", cx.error.text);
        status = sx_code_exit(cx.error.code);
    } else {
        status = act(p);
    }
    sx_ctx_fini(&cx);
    free(p);
    return status;
}
