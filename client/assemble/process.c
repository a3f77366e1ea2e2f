#include "client/assemble/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/assemble/tools.h"

#define ANSWER_BYTES_MAX (SX_CUBIN_BYTES_MAX + SXA_LOG_BYTES_MAX + 4096)
#define ARENA_BYTES ((size_t)1 << 30)

/* What is asked, followed by the text; what is answered, followed by a result (assemble.h) or a sx_error. */
typedef struct {
    char target[16];
    uint64_t size;
} question;
typedef struct {
    uint32_t code, reserved;
    uint64_t size;
} answer;

/* ---- bytes over the socket ---- */

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool send_all(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* `deadline_ms` 0: waits for ever. *late: it has passed. */
static bool receive_all(int fd, void *bytes, size_t size, int64_t deadline_ms, bool *late)
{
    char *at = bytes;
    while (size > 0) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left = deadline_ms > 0 ? deadline_ms - now_ms() : -1;
        *late = deadline_ms > 0 && left <= 0;
        if (*late) {
            return false;
        }
        if (poll(&wait, 1, (int)left) <= 0) {
            continue;
        }
        ssize_t n = recv(fd, at, size, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* ---- the process that assembles ---- */

static sx_code assemble(sx_ctx *cx, const sxa_identity *identity, sx_span ptx, const char *target,
                        sxa_result *result)
{
    sxa_output output = {.refused = false};
    result->tool = identity->tool;
    SX_TRY(identity->tool == SXA_NVJITLINK
               ? sxa_run_nvjitlink(cx, identity->path, ptx, target, &output)
               : sxa_run_ptxas(cx, identity->path, ptx, target, SXA_TIMEOUT_MS, &output));
    result->cubin = output.cubin;
    result->log = output.log;
    return output.refused ? sxa_fail_with_log(cx, sxa_tool_name(identity->tool), output.log, ptx)
                          : SX_OK;
}

/* One text; false: nobody asks any more. */
static bool serve_one(const sxa_identity *identity, int fd)
{
    question asked;
    bool late, said = false;
    if (!receive_all(fd, &asked, sizeof(asked), 0, &late)) {
        return false;
    }
    asked.target[sizeof(asked.target) - 1] = '\0';
    uint8_t *text = asked.size <= SXA_PTX_BYTES_MAX ? malloc((size_t)asked.size + 1) : NULL;
    if (text != NULL && receive_all(fd, text, (size_t)asked.size, 0, &late)) {
        sx_ctx cx;
        sx_buf bytes;
        sxa_result result = {.tool = identity->tool};
        text[asked.size] = 0;
        sx_ctx_init(&cx, ARENA_BYTES);
        sx_buf_init(&bytes, ANSWER_BYTES_MAX);
        sx_code code =
            assemble(&cx, identity, (sx_span){text, (size_t)asked.size}, asked.target, &result);
        if (code == SX_OK) {
            sxa_result_encode(&result, &bytes);
            code = sx_buf_check(&cx, &bytes, "cubin");
        }
        if (code != SX_OK) {
            sx_buf_clear(&bytes);
            sx_buf_put(&bytes, &cx.error, sizeof(cx.error));
        }
        answer head = {.code = (uint32_t)code, .size = bytes.len};
        said = send_all(fd, &head, sizeof(head)) && send_all(fd, bytes.ptr, bytes.len);
        sx_buf_fini(&bytes);
        sx_ctx_fini(&cx);
    }
    free(text);
    return said;
}

/* ---- whoever asks ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

sx_code sxa_preload(sx_ctx *cx, const sxa_identity *identity)
{
    if (identity->name[0] == '\0' || identity->tool != SXA_NVJITLINK) {
        return SX_OK;
    }
    return dlopen(identity->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) != NULL
               ? SX_OK
               : SX_FAIL(cx, SX_SYSTEM, "nvJitLink: %.300s", dlerror());
}

/* In the new process: of what it has inherited only its end of the socket stays, and where errors go. */
static void keep_only(int fd)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool fine = fd > STDERR_FILENO && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
                dup2(nothing, STDOUT_FILENO) >= 0;
    unsigned kept = (unsigned)fd;
    if (!fine || syscall(SYS_close_range, kept + 1, ~0u, 0u) != 0 ||
        (kept > 3 && syscall(SYS_close_range, 3u, kept - 1, 0u) != 0)) {
        _exit(EXIT_FAILURE);
    }
}

sx_code sxa_process_start(sx_ctx *cx, const sxa_identity *identity,
                          void (*confine)(const void *self, int *fd), const void *self,
                          sxa_process *process)
{
    int fd[2];
    pid_t parent = getpid();
    SX_ASSERT(identity->name[0] != '\0');
    *process = (sxa_process){.identity = *identity, .fd = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0) {
        return SX_FAIL(cx, SX_SYSTEM, "assembler: socketpair: %s", strerror(errno));
    }
    pid_t child = fork();
    if (child == 0) {
        keep_only(fd[1]);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(EXIT_FAILURE);
        }
        if (confine != NULL) {
            confine(self, &fd[1]);
        }
        while (serve_one(identity, fd[1])) {
        }
        _exit(EXIT_SUCCESS);
    }
    (void)close(fd[1]);
    if (child < 0) {
        (void)close(fd[0]);
        return SX_FAIL(cx, SX_SYSTEM, "assembler: fork: %s", strerror(errno));
    }
    process->fd = fd[0];
    return SX_OK;
}

void sxa_process_end(sxa_process *process)
{
    close_fd(&process->fd);
}

/* It has died, or is given up: nothing more is asked of it. */
static sx_code give_up(sx_ctx *cx, sxa_process *process, bool late)
{
    close_fd(&process->fd);
    sx_hint(cx, "Without an assembler (--assembler none) the module has PTX alone, which the "
                "driver compiles.");
    return late ? SX_FAIL(cx, SX_TIMEOUT, "%s has not ended after %d s", process->identity.name,
                          SXA_TIMEOUT_MS / 1000)
                : SX_FAIL(cx, SX_WORKER, "%s died: a crash, or its limits of memory and time",
                          process->identity.name);
}

/* The answer, in cx's arena. */
static sx_code converse(sx_ctx *cx, sxa_process *process, const question *asked, sx_span ptx,
                        sx_span *bytes, sx_code *said)
{
    answer head;
    bool late = false;
    int64_t deadline_ms = now_ms() + SXA_TIMEOUT_MS;
    if (!send_all(process->fd, asked, sizeof(*asked)) || !send_all(process->fd, ptx.ptr, ptx.len) ||
        !receive_all(process->fd, &head, sizeof(head), deadline_ms, &late)) {
        return give_up(cx, process, late);
    }
    if (head.size > ANSWER_BYTES_MAX) {
        return give_up(cx, process, false);
    }
    uint8_t *copy = sx_alloc(cx, (size_t)head.size + 1);
    if (copy == NULL) {
        close_fd(&process->fd); /* the rest of its answer would be taken for the next one */
        return cx->error.code;
    }
    if (!receive_all(process->fd, copy, (size_t)head.size, deadline_ms, &late)) {
        return give_up(cx, process, late);
    }
    *said = (sx_code)head.code;
    *bytes = (sx_span){copy, (size_t)head.size};
    return SX_OK;
}

sx_code sxa_process_assemble(sx_ctx *cx, sxa_process *process, sx_span ptx, const char *target,
                             sxa_result *result)
{
    question asked = {.size = ptx.len};
    sx_span bytes = {NULL, 0};
    sx_code said = SX_OK;
    SX_ASSERT(ptx.len > 0 && ptx.len <= SXA_PTX_BYTES_MAX);
    if (process->fd < 0) {
        return give_up(cx, process, false);
    }
    if (snprintf(asked.target, sizeof(asked.target), "%s", target) >= (int)sizeof(asked.target)) {
        return SX_FAIL(cx, SX_INPUT, "%.40s is no target of an assembler", target);
    }
    SX_TRY(converse(cx, process, &asked, ptx, &bytes, &said));
    if (said != SX_OK && bytes.len == sizeof(cx->error)) {
        memcpy(&cx->error, bytes.ptr, sizeof(cx->error));
        SX_ASSERT(cx->error.code == said);
        return said;
    }
    SX_TRY(sxa_result_decode(cx, bytes, result));
    sx_code code = sxa_refuse(cx, result);
    if (code == SX_COMPILE) { /* such code can be made, but another schedule may need less */
        code = cx->error.code = SX_LIMIT;
    }
    return code;
}
