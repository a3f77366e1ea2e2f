/* pool.c - workers as the daemon sees them: a slot, a pipe, a job. The zygote makes and reaps the processes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/work/work.h"
#include "daemon/work/zygote.h"

#define ANSWER_BYTES_MAX (SX_CACHE_BLOB_MAX + ((size_t)1 << 20))
#define BACKOFF_MS 100
#define BACKOFF_STEPS 6
#define ZYGOTE_RETRY_MS 200
#define ZYGOTE_PATIENCE_MS 2000 /* for an order to be carried out; then the zygote is replaced */

extern char **environ;

static const bool allowed[SXD_WORKER_STATE_COUNT][SXD_WORKER_STATE_COUNT] = {
    [SXD_WORKER_NONE] = {[SXD_WORKER_STARTING] = true},
    [SXD_WORKER_STARTING] =
        {[SXD_WORKER_IDLE] = true, [SXD_WORKER_DYING] = true, [SXD_WORKER_NONE] = true},
    [SXD_WORKER_IDLE] = {[SXD_WORKER_BUSY] = true, [SXD_WORKER_DYING] = true},
    [SXD_WORKER_BUSY] = {[SXD_WORKER_IDLE] = true, [SXD_WORKER_DYING] = true},
    [SXD_WORKER_DYING] = {[SXD_WORKER_NONE] = true},
};

const char *sxd_worker_state_name(sxd_worker_state state)
{
    static const char *const names[SXD_WORKER_STATE_COUNT] = {
        [SXD_WORKER_NONE] = "none", [SXD_WORKER_STARTING] = "starting", [SXD_WORKER_IDLE] = "idle",
        [SXD_WORKER_BUSY] = "busy", [SXD_WORKER_DYING] = "dying",
    };
    SX_ASSERT(state < SXD_WORKER_STATE_COUNT);
    return names[state];
}

static void check_worker(const sxd_worker *worker)
{
    bool live = worker->state == SXD_WORKER_IDLE || worker->state == SXD_WORKER_BUSY;
    SX_ASSERT(!live || (worker->pipe_open && worker->pid > 0));
    SX_ASSERT(worker->state != SXD_WORKER_IDLE || worker->task == NULL);
    SX_ASSERT(worker->state != SXD_WORKER_NONE || (!worker->pipe_open && worker->task == NULL));
    SX_ASSERT(worker->task == NULL || worker->task->worker == worker);
}

static void move(sxd_worker *worker, sxd_worker_state to)
{
    SX_ASSERT(allowed[worker->state][to]);
    worker->state = to;
    worker->since_ms = sxd_base_now(worker->work->base);
    check_worker(worker);
}

/* ---- orders to the zygote ---- */
static bool order(sxd_work *work, const sxd_zygote_message *message)
{
    return work->zygote_fd >= 0 && send(work->zygote_fd, message, sizeof(*message),
                                        MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*message);
}

static void start_worker(sxd_worker *worker)
{
    sxd_work *work = worker->work;
    const sxd_options *options = &work->base->config.options;
    sxd_zygote_message message = {
        .op = SXD_ZYGOTE_SPAWN,
        .slot = worker->slot,
        .memory_bytes = (uint64_t)options->worker_memory_mb << 20,
        .cpu_s = (uint64_t)options->worker_cpu_s,
    };
    if (order(work, &message)) {
        move(worker, SXD_WORKER_STARTING);
    } else {
        worker->retry_ms = sxd_base_now(work->base) + BACKOFF_MS;
    }
}

void sxd_pool_kill(sxd_worker *worker)
{
    SX_ASSERT(worker->state != SXD_WORKER_NONE);
    sxd_zygote_message message = {.op = SXD_ZYGOTE_KILL, .slot = worker->slot, .pid = worker->pid};
    worker->expected = true;
    if (worker->state != SXD_WORKER_DYING) {
        worker->work->base->metrics.worker_killed++;
        move(worker, SXD_WORKER_DYING);
    }
    (void)order(worker->work,
                &message); /* a zygote that cannot be reached is dead, and so are its workers */
}

/* ---- the end of a worker ---- */
/* How a worker ended, and what that says about its task. */
static void say_how(const sxd_worker *worker, char how[64], sxd_end *end)
{
    int status = worker->status;
    end->strike =
        worker->status_known; /* else its parent died, which says nothing about the task */
    end->pid = worker->pid;
    end->how = how;
    if (end->strike && WIFSIGNALED(status)) {
        (void)snprintf(how, 64, "by signal %d", WTERMSIG(status));
    } else if (end->strike) {
        (void)snprintf(how, 64, "with exit status %d", WEXITSTATUS(status));
    } else {
        (void)snprintf(how, 64, "for an unknown reason");
    }
    (void)snprintf(end->error.text, sizeof(end->error.text), "worker %d ended %s", end->pid, how);
}

/* Pipe closed and exit status known: the task, if any, learns of it; the slot is free. */
static void settle(sxd_worker *worker)
{
    if (worker->state != SXD_WORKER_DYING || worker->pipe_open || !worker->exited) {
        return;
    }
    sxd_work *work = worker->work;
    char how[64];
    sxd_end end = {.kind = SXD_END_LOST, .error = {.code = SX_WORKER}};
    say_how(worker, how, &end);
    sxd_task *task = worker->task;
    worker->task = NULL;
    worker->pid = 0;
    uint32_t step = worker->failures < BACKOFF_STEPS ? worker->failures : BACKOFF_STEPS;
    bool useful = worker->jobs > 0 || worker->expected;
    worker->failures = useful ? 0 : worker->failures + 1;
    worker->retry_ms = sxd_base_now(work->base) + (useful ? 0 : (uint64_t)BACKOFF_MS << step);
    if (!worker->expected) {
        work->base->metrics.worker_died++;
        sxd_log(SXD_WARN, "worker-died", "pid=%d status=%d task=%s ticket=%u", end.pid,
                worker->status, task != NULL ? task->class->name : "none",
                task != NULL ? task->ticket : 0);
    }
    move(worker, SXD_WORKER_NONE);
    if (task != NULL) {
        sxd_task_end(task, &end);
    }
    sxd_work_sweep(work);
}

static void on_pipe_closed(uv_handle_t *handle)
{
    sxd_worker *worker = handle->data;
    worker->pipe_open = false;
    sx_sp_reader_fini(&worker->reader);
    settle(worker);
}

/* Nothing more is read from it; whatever it is, it ends now. */
static void close_pipe(sxd_worker *worker)
{
    if (worker->pipe_open && uv_is_closing((uv_handle_t *)&worker->pipe) == 0) {
        if (worker->state != SXD_WORKER_DYING) {
            move(worker, SXD_WORKER_DYING);
        }
        uv_close((uv_handle_t *)&worker->pipe, on_pipe_closed);
    }
}

/* ---- messages of a worker ---- */
static void break_worker(sxd_worker *worker, const char *why)
{
    char quoted[SXD_QUOTE_MAX];
    sxd_log(SXD_ERROR, "worker-bad", "pid=%d why=%s", worker->pid,
            sxd_quote(quoted, sx_span_of(why)));
    sxd_pool_kill(worker);
    worker->expected = false; /* its job has failed, and the key gets its strike */
}

static void read_error(const sx_error_body *body, sx_error *error)
{
    *error = (sx_error){.code = sx_code_from_wire(body->code)};
    (void)snprintf(error->text, sizeof(error->text), "%.*s",
                   (int)sx_min_i64((int64_t)body->msg.len, SX_ERROR_TEXT_MAX),
                   (const char *)body->msg.ptr);
    (void)snprintf(error->hint, sizeof(error->hint), "%.*s",
                   (int)sx_min_i64((int64_t)body->hint.len, SX_ERROR_TEXT_MAX),
                   (const char *)body->hint.ptr);
    error->code = error->code == SX_OK ? SX_INTERNAL : error->code;
}

/* Half of its processor time is used up, it has done as much as one worker does, or a process that it needs died. */
static bool retires(const sxd_worker *worker)
{
    const sxd_options *options = &worker->work->base->config.options;
    return worker->worn || worker->jobs >= (uint64_t)options->worker_jobs ||
           worker->busy_ms >= (uint64_t)options->worker_cpu_s * 500;
}

/* The worker is free again, or leaves. */
static void let_go(sxd_worker *worker)
{
    worker->busy_ms += sxd_base_now(worker->work->base) - worker->since_ms;
    if (retires(worker)) {
        worker->expected = true;
        worker->work->base->metrics.worker_recycled++;
        close_pipe(worker); /* it exits at the end of its input */
    } else {
        move(worker, SXD_WORKER_IDLE);
    }
}

static void on_answer(sxd_worker *worker, sx_ctx *cx, sx_span message)
{
    sxd_work *work = worker->work;
    sxd_task *task = worker->task;
    sx_rpc_response response;
    sx_method method = task != NULL ? task->class->method : SX_METHOD_WORK;
    if (sx_rpc_decode_response(cx, message, method, &response) != SX_OK) {
        break_worker(worker, cx->error.text);
        return;
    }
    if (worker->state != SXD_WORKER_BUSY || task == NULL || response.msgid != task->ticket) {
        if (worker->state != SXD_WORKER_DYING) { /* an answer that crossed a kill is no fault */
            break_worker(worker, "answer to no job");
        }
        return;
    }
    sxd_end end = {.kind = SXD_END_DONE, .message = message};
    if (response.failed) {
        end.kind = SXD_END_FAILED;
        read_error(&response.error, &end.error);
        worker->worn = end.error.code == SX_WORKER || end.error.code == SX_TIMEOUT;
    } else {
        end.result = response.result;
    }
    worker->task = NULL;
    let_go(worker);
    sxd_task_end(task, &end);
    sxd_work_run(work);
}

static void on_message(sxd_worker *worker, sx_span message)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    bool notice = message.len > 0 && message.ptr[0] == 0x93;
    if (!notice) {
        on_answer(worker, &cx, message);
    } else {
        sx_rpc_request request;
        if (sx_rpc_decode_request(&cx, message, &request) != SX_OK || !request.notice ||
            request.method != SX_METHOD_PROGRESS) {
            break_worker(worker, cx.error.code != SX_OK ? cx.error.text : "unknown notice");
        } else if (worker->task != NULL && worker->task->class->event != NULL) {
            worker->task->class->event(worker->task, request.args);
        }
    }
    sx_ctx_fini(&cx);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    sxd_worker *worker = handle->data;
    buf->base = (char *)worker->work->base->chunk;
    buf->len = sizeof(worker->work->base->chunk);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    sxd_worker *worker = stream->data;
    if (count < 0) {
        sxd_zygote_message message = {
            .op = SXD_ZYGOTE_KILL, .slot = worker->slot, .pid = worker->pid};
        close_pipe(worker);
        (void)order(worker->work, &message); /* in case it closed its end and lives on */
        return;
    }
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_span input = {(const uint8_t *)buf->base, (size_t)count};
    sx_sp_event event = SX_SP_READY;
    while (event != SX_SP_MORE && uv_is_closing((uv_handle_t *)stream) == 0) {
        if (sx_sp_reader_feed(&cx, &worker->reader, &input, &event) != SX_OK) {
            break_worker(worker, cx.error.text);
            break;
        }
        if (event == SX_SP_FRAME) {
            on_message(worker, sx_buf_span(&worker->reader.body));
        }
    }
    sx_ctx_fini(&cx);
}

/* ---- giving work ---- */
sxd_worker *sxd_pool_idle(sxd_work *work)
{
    for (uint32_t i = 0; i < work->worker_count; i++) {
        if (work->worker[i].state == SXD_WORKER_IDLE) {
            return &work->worker[i];
        }
    }
    return NULL;
}

typedef struct {
    uv_write_t request;
    sx_buf bytes;
} work_output;

static void on_given(uv_write_t *request, int status)
{
    work_output *out = request->data;
    (void)status; /* a worker that does not read is dead or dying: its end of the pipe says so */
    sx_buf_fini(&out->bytes);
    free(out);
}

void sxd_pool_give(sxd_worker *worker, sx_buf *frame)
{
    SX_ASSERT(worker->task != NULL);
    move(worker, SXD_WORKER_BUSY);
    worker->jobs++;
    work_output *out = calloc(1, sizeof(*out));
    if (out == NULL) {
        sx_buf_fini(frame);
        break_worker(worker, "no memory to give it work");
        return;
    }
    out->bytes = *frame;
    sx_buf_init(frame, 0);
    out->request.data = out;
    uv_buf_t buf = {.base = (char *)out->bytes.ptr, .len = out->bytes.len};
    if (uv_write(&out->request, (uv_stream_t *)&worker->pipe, &buf, 1, on_given) != 0) {
        on_given(&out->request, 0);
        break_worker(worker, "cannot write to it");
    }
}

/* ---- answers of the zygote ---- */
static void on_spawned(sxd_work *work, sxd_worker *worker, int32_t pid, int fd)
{
    (void)uv_pipe_init(&work->base->loop, &worker->pipe, 0);
    worker->pipe.data = worker;
    worker->pipe_open = true;
    worker->pid = pid;
    worker->jobs = 0;
    worker->busy_ms = 0;
    worker->worn = false;
    worker->exited = false;
    worker->status = 0;
    worker->status_known = false;
    worker->expected = false;
    sx_sp_reader_init(&worker->reader, 0, ANSWER_BYTES_MAX);
    work->base->metrics.worker_started++;
    if (uv_pipe_open(&worker->pipe, fd) != 0 ||
        uv_read_start((uv_stream_t *)&worker->pipe, on_alloc, on_read) != 0) {
        sxd_pool_kill(worker);
        close_pipe(worker);
        return;
    }
    move(worker, SXD_WORKER_IDLE);
    sxd_work_run(work);
}

static void on_exited(sxd_worker *worker, const sxd_zygote_message *message)
{
    if (worker->pid != message->pid) {
        return;
    }
    worker->exited = true;
    worker->status = message->status;
    worker->status_known = true;
    worker->end_ms = sxd_base_now(worker->work->base);
    settle(worker); /* else when the rest of the pipe is read */
}

static void on_zygote_message(sxd_work *work, const sxd_zygote_message *message, int fd)
{
    sxd_worker *worker = message->slot < work->worker_count ? &work->worker[message->slot] : NULL;
    if (SX_NEVER(worker == NULL)) {
        return;
    }
    if (message->op == SXD_ZYGOTE_SPAWNED && fd >= 0 && worker->state == SXD_WORKER_STARTING) {
        on_spawned(work, worker, message->pid, fd);
        return;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (message->op == SXD_ZYGOTE_EXITED) {
        on_exited(worker, message);
    } else if (message->op == SXD_ZYGOTE_FAILED && worker->state == SXD_WORKER_STARTING) {
        sxd_log(SXD_ERROR, "worker-start", "slot=%u error=\"%s\"", worker->slot,
                strerror(message->status));
        worker->failures++;
        worker->retry_ms = sxd_base_now(work->base) + ((uint64_t)BACKOFF_MS << BACKOFF_STEPS);
        move(worker, SXD_WORKER_NONE);
    }
}

/* The zygote died: its workers die with it, and nobody tells their status. */
static void on_zygote_gone(sxd_work *work)
{
    sxd_log(SXD_ERROR, "zygote-died", "pid=%d", work->zygote_pid);
    (void)uv_poll_stop(&work->zygote_poll);
    uv_close((uv_handle_t *)&work->zygote_poll, NULL);
    (void)close(work->zygote_fd);
    work->zygote_fd = -1;
    (void)kill(work->zygote_pid, SIGKILL);
    (void)waitpid(work->zygote_pid, NULL, 0);
    work->zygote_retry_ms = sxd_base_now(work->base) + ZYGOTE_RETRY_MS;
    for (uint32_t i = 0; i < work->worker_count; i++) {
        sxd_worker *worker = &work->worker[i];
        if (worker->state == SXD_WORKER_STARTING) {
            move(worker, SXD_WORKER_NONE);
        } else if (worker->state != SXD_WORKER_NONE) {
            worker->exited = true;
            worker->expected = worker->expected || worker->task == NULL;
            close_pipe(worker);
            settle(worker);
        }
    }
}

/* One packet; 1 message, 0 nothing there, -1 the zygote is gone. */
static int receive(sxd_work *work, sxd_zygote_message *message, int *fd)
{
    struct iovec io = {.iov_base = message, .iov_len = sizeof(*message)};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr packet = {
        .msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    *fd = -1;
    ssize_t got = recvmsg(work->zygote_fd, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (got != (ssize_t)sizeof(*message)) {
        return -1;
    }
    struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
    if (head != NULL && head->cmsg_type == SCM_RIGHTS) {
        memcpy(fd, CMSG_DATA(head), sizeof(*fd));
    }
    return 1;
}

static void on_zygote(uv_poll_t *handle, int status, int events)
{
    sxd_work *work = handle->data;
    (void)events;
    int got = status < 0 ? -1 : 1;
    for (uint32_t n = 0; got > 0 && n < SXD_WORKER_MAX && work->zygote_fd >= 0; n++) {
        sxd_zygote_message message;
        int fd;
        got = receive(work, &message, &fd);
        if (got > 0) {
            on_zygote_message(work, &message, fd);
        }
    }
    if (got < 0) {
        on_zygote_gone(work);
    }
}

/* ---- the zygote process ---- */
/* Starts our own program as the zygote, with `fd` as its SXD_WORK_FD and everything else closed. */
static int spawn_zygote(int fd, int32_t *pid)
{
    char parent[16];
    char name[] = "symplexd-zygote";
    char flag[] = "--zygote";
    (void)snprintf(parent, sizeof(parent), "%d", getpid());
    char *arguments[] = {name, flag, parent, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigset_t all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return ENOMEM;
    }
    if (posix_spawnattr_init(&attributes) != 0) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    (void)posix_spawn_file_actions_adddup2(&actions, fd, SXD_WORK_FD);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setflags(&attributes,
                                   (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    pid_t child;
    int error = posix_spawn(&child, "/proc/self/exe", &actions, &attributes, arguments, environ);
    *pid = child;
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

static sx_code open_zygote(sx_ctx *cx, sxd_work *work)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return SX_FAIL(cx, SX_SYSTEM, "zygote: %s", strerror(errno));
    }
    if (pair[1] == SXD_WORK_FD) { /* dup2 onto itself would keep it closed on exec */
        int moved = fcntl(pair[1], F_DUPFD_CLOEXEC, SXD_WORK_FD + 1);
        (void)close(pair[1]);
        pair[1] = moved;
    }
    int error = spawn_zygote(pair[1], &work->zygote_pid);
    (void)close(pair[1]);
    if (error != 0) {
        (void)close(pair[0]);
        return SX_FAIL(cx, SX_SYSTEM, "zygote: cannot be started: %s", strerror(error));
    }
    work->zygote_fd = pair[0];
    (void)uv_poll_init(&work->base->loop, &work->zygote_poll, work->zygote_fd);
    work->zygote_poll.data = work;
    (void)uv_poll_start(&work->zygote_poll, UV_READABLE, on_zygote);
    return SX_OK;
}

sx_code sxd_work_open(sx_ctx *cx, sxd_work *work)
{
    work->zygote_fd = -1;
    work->worker_count = (uint32_t)work->base->config.options.workers;
    SX_ASSERT(work->worker_count <= SXD_WORKER_MAX);
    for (uint32_t i = 0; i < work->worker_count; i++) {
        work->worker[i] = (sxd_worker){.work = work, .slot = i};
    }
    SX_TRY(open_zygote(cx, work));
    sxd_work_sweep(work);
    return SX_OK;
}

/* Starts what is missing, repeats what was not heard, gives up on a zygote that does nothing. */
static void sweep_worker(sxd_worker *worker, uint64_t now)
{
    sxd_work *work = worker->work;
    bool waits = worker->state == SXD_WORKER_STARTING ||
                 (worker->state == SXD_WORKER_DYING && !worker->exited);
    if (work->zygote_fd < 0) {
        return;
    }
    if (worker->state == SXD_WORKER_NONE && now >= worker->retry_ms) {
        start_worker(worker);
    } else if (worker->exited && worker->pipe_open && now - worker->end_ms > 1000) {
        close_pipe(worker); /* a descendant holds the other end */
    } else if (waits && now - worker->since_ms > ZYGOTE_PATIENCE_MS) {
        sxd_log(SXD_ERROR, "zygote-hangs", "pid=%d", work->zygote_pid);
        (void)kill(work->zygote_pid, SIGKILL); /* its socket ends: on_zygote_gone */
    } else if (waits && worker->state == SXD_WORKER_DYING) {
        sxd_zygote_message message = {
            .op = SXD_ZYGOTE_KILL, .slot = worker->slot, .pid = worker->pid};
        (void)order(work, &message);
    }
}

void sxd_work_sweep(sxd_work *work)
{
    uint64_t now = sxd_base_now(work->base);
    if (work->base->phase == SXD_DOWN) {
        return;
    }
    if (work->zygote_fd < 0 && now >= work->zygote_retry_ms &&
        uv_is_closing((uv_handle_t *)&work->zygote_poll) != 0) {
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 12);
        work->zygote_retry_ms = now + ZYGOTE_RETRY_MS;
        work->base->metrics.zygote_restarts++;
        if (open_zygote(&cx, work) != SX_OK) {
            sxd_log(SXD_ERROR, "zygote", "error=\"%s\"", cx.error.text);
        }
        sx_ctx_fini(&cx);
    }
    for (uint32_t i = 0; i < work->worker_count; i++) {
        sweep_worker(&work->worker[i], now);
    }
}

bool sxd_work_alive(const sxd_work *work)
{
    for (uint32_t i = 0; i < work->worker_count; i++) {
        if (work->worker[i].state == SXD_WORKER_IDLE || work->worker[i].state == SXD_WORKER_BUSY) {
            return true;
        }
    }
    return false;
}

void sxd_work_close(sxd_work *work)
{
    SX_ASSERT(work->base->phase == SXD_DOWN);
    for (uint32_t i = 0; i < work->worker_count; i++) {
        sxd_worker *worker = &work->worker[i];
        worker->expected = true;
        worker->exited = true; /* nobody will tell */
        close_pipe(worker);
    }
    if (work->zygote_fd >= 0) {
        (void)uv_poll_stop(&work->zygote_poll);
        uv_close((uv_handle_t *)&work->zygote_poll, NULL);
        (void)close(work->zygote_fd);
        work->zygote_fd = -1;
        (void)kill(work->zygote_pid,
                   SIGKILL); /* also when it is stopped; its workers die with it */
        (void)waitpid(work->zygote_pid, NULL, 0);
    }
}
