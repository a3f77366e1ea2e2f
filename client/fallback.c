/* fallback.c - compiling without a daemon, in a child process: isl and fresh machine code never run in the
 * caller's process. */
#include "client/compile.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/confine.h"
#include "client/verify/verify.h"

#define CHILD_MEMORY_BYTES ((size_t)4 << 30)
#define CHILD_CPU_SECONDS 3600
#define RESULT_BYTES_MAX ((size_t)2 << 30)

/* What the child says first; then error text and hint, or the result. */
typedef struct {
    uint32_t code;
    uint32_t reserved;
    uint64_t size;
} child_head;

static bool write_all(int fd, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    while (size > 0) {
        ssize_t n = write(fd, at, size);
        if (n <= 0 && errno != EINTR) {
            return false;
        }
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static void limit(int resource, rlim_t value)
{
    struct rlimit rlimit = {value, value};
    (void)setrlimit((__rlimit_resource_t)resource, &rlimit);
}

static uint64_t now_ns(void *self)
{
    struct timespec now;
    (void)self;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Bytes of address space in use: a framework that calls us may have mapped far more than a compilation needs. */
static rlim_t mapped_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;
    if (file != NULL) {
        if (fscanf(file, "%llu", &pages) != 1) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* What the child does; `self` is the caller's. */
typedef sx_code (*child_work)(sx_ctx *cx, const void *self, sx_buf *result);

/* `confined`: what it does is run code of unknown origin. */
SX_NORETURN static void child_main(int fd, child_work work, const void *self, bool confined)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, CHILD_CPU_SECONDS);
    if (!SX_SANITIZED) {
        limit(RLIMIT_AS, mapped_bytes() + CHILD_MEMORY_BYTES * 2);
    }
    sx_ctx cx;
    sx_ctx_init(&cx, CHILD_MEMORY_BYTES);
    cx.now_ns = now_ns;
    sx_buf result;
    sx_buf_init(&result, RESULT_BYTES_MAX);
    sx_code code = !confined || sxc_confine(fd)
                       ? work(&cx, self, &result)
                       : SX_FAIL(&cx, SX_SYSTEM, "this system cannot confine a process (seccomp)");
    child_head head = {.code = code, .size = code == SX_OK ? result.len : sizeof(cx.error)};
    bool sent = write_all(fd, &head, sizeof(head));
    sent = sent && (code == SX_OK ? write_all(fd, result.ptr, result.len)
                                  : write_all(fd, &cx.error, sizeof(cx.error)));
    _exit(sent ? 0 : 1);
}

static bool read_all(int fd, void *bytes, size_t size)
{
    uint8_t *at = bytes;
    while (size > 0) {
        ssize_t n = read(fd, at, size);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return false;
        }
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* What the child sent; SX_WORKER if it died before it had said all. */
static sx_code collect(sx_ctx *cx, int fd, sx_buf *result)
{
    child_head head;
    bool whole = read_all(fd, &head, sizeof(head)) && head.code < SX_CODE_COUNT &&
                 head.size <= RESULT_BYTES_MAX;
    if (whole && head.code != SX_OK) {
        sx_error error;
        if (head.size == sizeof(error) && read_all(fd, &error, sizeof(error))) {
            error.file = NULL; /* a pointer of the child */
            cx->error = error;
            return error.code;
        }
        whole = false;
    }
    uint8_t chunk[65536];
    for (uint64_t left = whole ? head.size : 0; whole && left > 0;) {
        size_t n = left < sizeof(chunk) ? (size_t)left : sizeof(chunk);
        whole = read_all(fd, chunk, n);
        sx_buf_put(result, chunk, n);
        left -= n;
    }
    if (!whole) {
        return SX_FAIL(cx, SX_WORKER, "the compile process died");
    }
    return sx_buf_check(cx, result, "module");
}

static sx_code run_child(sx_ctx *cx, child_work work, const void *self, bool confined,
                         sx_buf *result)
{
    int pipes[2];
    if (pipe(pipes) != 0) {
        return SX_FAIL(cx, SX_SYSTEM, "pipe: %s", strerror(errno));
    }
    pid_t child = fork();
    if (child == 0) {
        (void)close(pipes[0]);
        child_main(pipes[1], work, self, confined);
    }
    (void)close(pipes[1]);
    sx_code code = SX_OK;
    if (child < 0) {
        code = SX_FAIL(cx, SX_SYSTEM, "fork: %s", strerror(errno));
    } else {
        code = collect(cx, pipes[0], result);
    }
    (void)close(pipes[0]);
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (code == SX_WORKER && child > 0 && WIFSIGNALED(status)) {
        sx_ctx_reset_error(cx);
        code = SX_FAIL(cx, SX_WORKER, "the compile process died of signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    return code;
}

/* A compilation as the child sees it. */
typedef struct {
    const sx_core_request *request;
    const sxc_compile_options *options;
    bool optimize;
} compilation;

static sx_code compile(sx_ctx *cx, const void *self, sx_buf *result)
{
    const compilation *c = self;
    sxr_verify_options verify = SXR_VERIFY_DEFAULT;
    cx->progress = c->options->progress_forks ? c->options->progress : NULL;
    cx->progress_self = c->options->progress_self;
    sx_code code = c->optimize ? sx_core_optimize_module(cx, c->request, result)
                               : sxr_compile_verified(cx, c->request, &verify, result);
    if (cx->progress != NULL) {
        cx->progress(cx->progress_self, NULL, 0, 0);
    }
    return code;
}

sx_code sxc_compile_here(sx_ctx *cx, const sx_core_request *request,
                         const sxc_compile_options *options, bool optimize, sx_buf *result)
{
    compilation c = {request, options, optimize};
    return run_child(cx, compile, &c, false, result);
}

/* ---- code of a module that is there ---- */

static sx_code verify_module(sx_ctx *cx, const void *self, sx_buf *result)
{
    const sx_span *module = self;
    sxr_verify_options verify = SXR_VERIFY_DEFAULT;
    verify.threads = 1; /* the confined process may start none */
    sxc_code_check found = {.confined = access("/", F_OK) != 0 && errno == EPERM};
    sx_image image; /* collects the comparisons */
    sx_image_init(&image);
    sx_code code = sxr_verify(cx, *module, &verify, &image);
    for (size_t at = 0; at < image.check.len; at += sizeof(sx_module_check)) {
        sx_module_check check;
        memcpy(&check, image.check.ptr + at, sizeof(check));
        found.ran += check.passed;
        found.left_out += 1 - check.passed;
        found.elements += check.points;
        found.emulated = found.emulated || check.emulated != 0;
        found.error = check.error > found.error ? check.error : found.error;
    }
    sx_image_fini(&image);
    sx_buf_put(result, &found, sizeof(found));
    return code;
}

sx_code sxc_verify_here(sx_ctx *cx, sx_span module, sxc_code_check *check)
{
    sx_buf result;
    sx_buf_init(&result, sizeof(*check));
    sx_code code = run_child(cx, verify_module, &module, true, &result);
    if (code == SX_OK && result.len != sizeof(*check)) {
        code = SX_FAIL(cx, SX_WORKER, "the verifying process said %zu bytes", result.len);
    }
    if (code == SX_OK) {
        memcpy(check, result.ptr, sizeof(*check));
    } else if (code == SX_INTERNAL) {
        code = cx->error.code = SX_MISMATCH; /* the code is somebody's, not our compiler's */
    }
    sx_buf_fini(&result);
    return code;
}
