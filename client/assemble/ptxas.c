/* ptxas.c - the assembler as a program. Text and cubin are files in memory that it is given as descriptors, so that
 * there is no folder to remove, however this ends. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/assemble/tools.h"

/* The descriptors in the process, and how it names them. */
#define INPUT_FD 3
#define OUTPUT_FD 4
#define INPUT_PATH "/proc/self/fd/3"
#define OUTPUT_PATH "/proc/self/fd/4"
/* Ours lie above those. */
#define OURS_FROM 10

typedef struct {
    sx_ctx *cx;
    int input, output, log[2], process; /* -1: not open */
    pid_t pid;
    sx_buf text;
} run;

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void close_if(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

/* Moves a descriptor out of the way of those that the process gets. */
static int raised(int fd)
{
    int above = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, OURS_FROM) : -1;
    close_if(&fd);
    return above;
}

static sx_code open_files(run *r, sx_span ptx)
{
    int ends[2];
    r->input = raised(memfd_create("text.ptx", MFD_CLOEXEC));
    r->output = raised(memfd_create("text.cubin", MFD_CLOEXEC));
    if (pipe2(ends, O_CLOEXEC) == 0) {
        r->log[0] = raised(ends[0]);
        r->log[1] = raised(ends[1]);
    }
    if (r->log[0] >= 0) {
        (void)fcntl(r->log[0], F_SETFL, O_NONBLOCK); /* ours alone: it writes as it likes */
    }
    if (r->input < 0 || r->output < 0 || r->log[0] < 0 || r->log[1] < 0) {
        return SX_FAIL(r->cx, SX_SYSTEM, "ptxas: no files for it: %s", strerror(errno));
    }
    for (size_t done = 0; done < ptx.len;) {
        ssize_t put = write(r->input, ptx.ptr + done, ptx.len - done);
        if (put <= 0 && errno != EINTR) {
            return SX_FAIL(r->cx, SX_SYSTEM, "ptxas: its text: %s", strerror(errno));
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return SX_OK;
}

static int set_up(const run *r, posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes)
{
    sigset_t none, defaults;
    (void)sigemptyset(&none);
    (void)sigfillset(&defaults);
    int failed = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    const int pairs[][2] = {{r->log[1], STDOUT_FILENO},
                            {r->log[1], STDERR_FILENO},
                            {r->input, INPUT_FD},
                            {r->output, OUTPUT_FD}};
    for (uint32_t i = 0; i < SX_COUNT(pairs) && failed == 0; i++) {
        failed = posix_spawn_file_actions_adddup2(actions, pairs[i][0], pairs[i][1]);
    }
    failed = failed != 0 ? failed : posix_spawnattr_setsigmask(attributes, &none);
    failed = failed != 0 ? failed : posix_spawnattr_setsigdefault(attributes, &defaults);
    return failed != 0 ? failed
                       : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                                                  POSIX_SPAWN_SETSIGDEF |
                                                                  POSIX_SPAWN_SETPGROUP);
}

/* Starts it in a process group of its own, without an environment. */
static sx_code start(run *r, const char *path, const char *target)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char name[] = "ptxas", verbose[] = "-v", to[] = "-o", output[] = OUTPUT_PATH;
    char input[] = INPUT_PATH, arch[48], *nothing[] = {NULL};
    char *arguments[] = {name, verbose, arch, to, output, input, NULL};
    struct rlimit bytes = {SX_CUBIN_BYTES_MAX, SX_CUBIN_BYTES_MAX}, core = {0, 0};
    (void)snprintf(arch, sizeof(arch), "-arch=%s", target);
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed != 0) {
        return SX_FAIL(r->cx, SX_NOMEM, "posix_spawn: %s", strerror(failed));
    }
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
        failed = set_up(r, &actions, &attributes);
        failed = failed != 0
                     ? failed
                     : posix_spawn(&r->pid, path, &actions, &attributes, arguments, nothing);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        r->pid = -1;
        return SX_FAIL(r->cx, SX_SYSTEM, "%.300s: %s", path, strerror(failed));
    }
    (void)prlimit(r->pid, RLIMIT_FSIZE, &bytes, NULL);
    (void)prlimit(r->pid, RLIMIT_CORE, &core, NULL);
    close_if(&r->log[1]);
    r->process = (int)syscall(SYS_pidfd_open, r->pid, 0);
    return r->process >= 0 ? SX_OK : SX_FAIL(r->cx, SX_SYSTEM, "pidfd_open: %s", strerror(errno));
}

/* What it has said by now; what is beyond the limit is dropped. False: it says no more. */
static bool drain(run *r)
{
    uint8_t chunk[4096];
    ssize_t got = read(r->log[0], chunk, sizeof(chunk));
    while (got > 0) {
        size_t room = r->text.limit - r->text.len, n = (size_t)got;
        sx_buf_put(&r->text, chunk, n < room ? n : room);
        got = read(r->log[0], chunk, sizeof(chunk));
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Until it has ended, or the deadline has passed. */
static sx_code wait_for(run *r, uint32_t timeout_ms)
{
    int64_t deadline = now_ms() + timeout_ms;
    bool talks = true;
    for (;;) {
        int64_t left = deadline - now_ms();
        struct pollfd fds[] = {{r->process, POLLIN, 0}, {talks ? r->log[0] : -1, POLLIN, 0}};
        if (left <= 0) {
            return SX_FAIL(r->cx, SX_TIMEOUT, "ptxas has not ended after %u ms", timeout_ms);
        }
        int ready = poll(fds, SX_COUNT(fds), (int)left);
        if (ready < 0 && errno != EINTR) {
            return SX_FAIL(r->cx, SX_SYSTEM, "poll: %s", strerror(errno));
        }
        talks = talks && drain(r);
        if (ready > 0 && fds[0].revents != 0) {
            return SX_OK;
        }
    }
}

static sx_code read_cubin(run *r, sx_span *cubin)
{
    struct stat status;
    if (fstat(r->output, &status) != 0 || status.st_size <= 0 ||
        (uint64_t)status.st_size > SX_CUBIN_BYTES_MAX) {
        return SX_FAIL(r->cx, SX_SYSTEM, "ptxas has written no cubin");
    }
    size_t size = (size_t)status.st_size;
    uint8_t *bytes = sx_alloc(r->cx, size);
    if (bytes == NULL) {
        return r->cx->error.code;
    }
    *cubin = (sx_span){bytes, size};
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(r->output, bytes + done, size - done, (off_t)done);
        if (got <= 0 && errno != EINTR) {
            return SX_FAIL(r->cx, SX_SYSTEM, "ptxas: its cubin: %s", strerror(errno));
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return SX_OK;
}

/* After it has ended: how. */
static sx_code collect(run *r, int status, sxa_output *output)
{
    char *text = sx_alloc_text(r->cx, sx_buf_span(&r->text));
    if (text == NULL) {
        return r->cx->error.code;
    }
    output->log = (sx_span){(const uint8_t *)text, r->text.len};
    if (WIFSIGNALED(status)) {
        return SX_FAIL(r->cx, SX_WORKER, "ptxas died of signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    }
    output->refused = WEXITSTATUS(status) != 0;
    return output->refused ? SX_OK : read_cubin(r, &output->cubin);
}

sx_code sxa_run_ptxas(sx_ctx *cx, const char *path, sx_span ptx, const char *target,
                      uint32_t timeout_ms, sxa_output *output)
{
    SX_ASSERT(ptx.len > 0 && timeout_ms > 0);
    run r = {.cx = cx, .input = -1, .output = -1, .log = {-1, -1}, .process = -1, .pid = -1};
    int status = 0;
    sx_buf_init(&r.text, SXA_LOG_BYTES_MAX);
    sx_code code = open_files(&r, ptx);
    code = code == SX_OK ? start(&r, path, target) : code;
    code = code == SX_OK ? wait_for(&r, timeout_ms) : code;
    if (r.pid > 0) {
        if (code != SX_OK) {
            (void)kill(-r.pid, SIGKILL); /* with all that it has started */
        }
        while (waitpid(r.pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    code = code == SX_OK ? collect(&r, status, output) : code;
    close_if(&r.input);
    close_if(&r.output);
    close_if(&r.log[0]);
    close_if(&r.log[1]);
    close_if(&r.process);
    sx_buf_fini(&r.text);
    return code;
}
