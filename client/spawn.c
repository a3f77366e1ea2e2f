/* spawn.c - asks a compile process of our own (job.h). It is another program, `symplex-client worker`: a caller
 * with threads and memory of its own is not forked, and holds no compiler. */
#include "client/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/connection.h"
#include "client/job.h"

#define PROGRAM "symplex-client"

/* ---- the program ---- */

/* The folder of the file that this code was loaded from: of the shared library, else of the running program. */
static bool own_folder(char folder[PATH_MAX])
{
    static const char here = 0;
    Dl_info info;
    struct link_map *map = NULL;
    void *found = NULL;
    if (dladdr1(&here, &info, &found, RTLD_DL_LINKMAP) == 0) {
        return false;
    }
    map = found;
    const char *name = map != NULL && map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe";
    if (realpath(name, folder) == NULL) {
        return false;
    }
    char *slash = strrchr(folder, '/');
    SX_ASSERT(slash != NULL);
    *slash = '\0';
    return true;
}

sx_code sxc_find_program(sx_ctx *cx, char path[SXC_PROGRAM_PATH_MAX])
{
    static const char *const place[] = {"", "/../bin", "/../../bin"};
    _Static_assert(SXC_PROGRAM_PATH_MAX >= PATH_MAX + 32, "a folder and the name fit");
    char folder[PATH_MAX] = "";
    const char *given = secure_getenv("SYMPLEX_CLIENT");
    if (given != NULL && given[0] != '\0') {
        if (snprintf(path, SXC_PROGRAM_PATH_MAX, "%s", given) < SXC_PROGRAM_PATH_MAX &&
            access(path, X_OK) == 0) {
            return SX_OK;
        }
        return SX_FAIL(cx, SX_NODAEMON, "SYMPLEX_CLIENT: %.500s cannot be executed", given);
    }
    for (uint32_t i = 0; own_folder(folder) && i < SX_COUNT(place); i++) {
        (void)snprintf(path, SXC_PROGRAM_PATH_MAX, "%s%s/" PROGRAM, folder, place[i]);
        if (access(path, X_OK) == 0) {
            return SX_OK;
        }
    }
    sx_hint(cx, "SYMPLEX_CLIENT names the program where it lies elsewhere.");
    return SX_FAIL(cx, SX_NODAEMON,
                   "there is no " PROGRAM " beside %.500s to compile without a daemon", folder);
}

/* Starts it with `fd` as its standard input. Nothing of the caller but its standard output and error goes along:
 * whoever opens files without O_CLOEXEC answers for that. */
static sx_code start(sx_ctx *cx, const char *program, int fd, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    char name[] = PROGRAM, command[] = "worker";
    char *arguments[] = {name, command, NULL};
    (void)sigemptyset(&none);
    (void)sigemptyset(&defaults);
    (void)sigaddset(&defaults, SIGPIPE);
    (void)sigaddset(&defaults, SIGCHLD);
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed != 0) {
        return SX_FAIL(cx, SX_NOMEM, "posix_spawn: %s", strerror(failed));
    }
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
        failed = posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
        failed = failed != 0 ? failed : posix_spawnattr_setsigmask(&attributes, &none);
        failed = failed != 0 ? failed : posix_spawnattr_setsigdefault(&attributes, &defaults);
        failed = failed != 0 ? failed
                             : posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK |
                                                                         POSIX_SPAWN_SETSIGDEF);
        failed = failed != 0
                     ? failed
                     : posix_spawn(child, program, &actions, &attributes, arguments, environ);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed == 0 ? SX_OK : SX_FAIL(cx, SX_SYSTEM, "%.500s: %s", program, strerror(failed));
}

/* ---- what it says ---- */

static bool read_progress(int fd, const sxc_word *word, const sxc_worker *worker)
{
    char stage[64] = "";
    bool whole = word->size < sizeof(stage) && sxc_job_receive(fd, stage, (size_t)word->size);
    if (whole && worker->progress != NULL) {
        worker->progress(worker->self, stage, word->done, word->total);
    }
    return whole;
}

static bool read_result(int fd, uint64_t size, sx_buf *result)
{
    uint8_t chunk[65536];
    bool whole = size <= SXC_JOB_RESULT_MAX;
    while (whole && size > 0) {
        size_t n = size < sizeof(chunk) ? (size_t)size : sizeof(chunk);
        whole = sxc_job_receive(fd, chunk, n);
        sx_buf_put(result, chunk, whole ? n : 0);
        size -= n;
    }
    return whole;
}

static bool read_error(sx_ctx *cx, int fd, uint64_t size)
{
    sx_error error;
    if (size != sizeof(error) || !sxc_job_receive(fd, &error, sizeof(error)) ||
        error.code == SX_OK || error.code >= SX_CODE_COUNT) {
        return false;
    }
    error.file = NULL; /* a pointer of the process */
    error.text[SX_ERROR_TEXT_MAX - 1] = error.hint[SX_ERROR_TEXT_MAX - 1] = '\0';
    cx->error = error;
    return true;
}

/* Waits for the next word; asks meanwhile whether the caller gives up. */
static sx_code await_word(sx_ctx *cx, int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (cx->cancelled != NULL) {
        if (cx->cancelled(cx->cancelled_self)) {
            return SX_FAIL(cx, SX_CANCELLED, "the compile process was given up by the caller");
        }
        int ready = poll(&wait, 1, SXC_ASK_MS);
        if (ready > 0 || (ready < 0 && errno != EINTR)) {
            break; /* whatever is the matter shows itself in the read */
        }
    }
    return SX_OK;
}

/* What the process answers; SX_WORKER if it died before it had said all. */
static sx_code collect(sx_ctx *cx, int fd, const sxc_worker *worker, sx_buf *result)
{
    sxc_word word;
    for (;;) {
        SX_TRY(await_word(cx, fd));
        if (!sxc_job_receive(fd, &word, sizeof(word))) {
            break;
        }
        if (word.kind == SXC_WORD_PROGRESS && read_progress(fd, &word, worker)) {
            continue;
        }
        if (word.kind == SXC_WORD_RESULT && read_result(fd, word.size, result)) {
            return sx_buf_check(cx, result, "module");
        }
        if (word.kind == SXC_WORD_ERROR && read_error(cx, fd, word.size)) {
            return cx->error.code;
        }
        break;
    }
    return SX_FAIL(cx, SX_WORKER, "the compile process died");
}

/* ---- one job ---- */

/* A piece of what is sent. */
typedef struct {
    const void *bytes;
    size_t size;
} piece;

static sx_code converse(sx_ctx *cx, int fd, const piece *pieces, size_t count,
                        const sxc_worker *worker, sx_buf *result)
{
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].size > 0 && !sxc_job_send(fd, pieces[i].bytes, pieces[i].size)) {
            break; /* it ended early: it has said why, or died */
        }
    }
    return collect(cx, fd, worker, result);
}

static sx_code run(sx_ctx *cx, const sxc_worker *worker, const piece *pieces, size_t count,
                   sx_buf *result)
{
    char path[SXC_PROGRAM_PATH_MAX];
    int fd[2];
    pid_t child = -1;
    const char *program = worker->program;
    if (program == NULL) {
        SX_TRY(sxc_find_program(cx, path));
        program = path;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0) {
        return SX_FAIL(cx, SX_SYSTEM, "socketpair: %s", strerror(errno));
    }
    sx_code code = start(cx, program, fd[1], &child);
    (void)close(fd[1]);
    code = code == SX_OK ? converse(cx, fd[0], pieces, count, worker, result) : code;
    (void)close(fd[0]);
    if (code == SX_CANCELLED) {
        (void)kill(child, SIGKILL);
    }
    int status = 0;
    bool ended = false;
    while (child > 0 && !ended) {
        ended = waitpid(child, &status, 0) == child || errno != EINTR;
    }
    if (code == SX_WORKER && cx->cancelled != NULL && cx->cancelled(cx->cancelled_self)) {
        sx_ctx_reset_error(cx); /* a terminal sends Ctrl-C to both */
        code = SX_FAIL(cx, SX_CANCELLED, "the compile process was given up by the caller");
    }
    if (code == SX_WORKER && child > 0 && WIFSIGNALED(status)) {
        sx_ctx_reset_error(cx);
        code = SX_FAIL(cx, SX_WORKER, "the compile process died of signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    return code;
}

static sxc_job job_of(sxc_job_kind kind, size_t program_size)
{
    sxc_job job = {.kind = kind, .program_size = program_size};
    (void)snprintf(job.build, sizeof(job.build), "%s", sx_core_toolchain());
    return job;
}

sx_code sxc_compile_here(sx_ctx *cx, const sx_core_request *request, const sxc_worker *worker,
                         bool optimize, sx_buf *result)
{
    sxc_job job = job_of(optimize ? SXC_JOB_OPTIMIZE : SXC_JOB_COMPILE, request->ir.len);
    size_t extents = (size_t)request->binding_count + request->interval_count, count = 0;
    sxc_job_extent *extent = SX_NEW_ARRAY(cx, sxc_job_extent, extents + 1);
    piece *pieces = SX_NEW_ARRAY(cx, piece, 8 + 2 * extents);
    if (extent == NULL || pieces == NULL) {
        return cx->error.code;
    }
    job.flags = (uint32_t)request->no_reassociate << SXC_JOB_NO_REASSOCIATE |
                (uint32_t)request->allow_approximate << SXC_JOB_APPROXIMATE |
                (uint32_t)request->range_any << SXC_JOB_RANGE_ANY |
                (uint32_t)request->unfused << SXC_JOB_UNFUSED;
    job.verify_flops = request->verify_flops;
    job.verify_bytes = request->verify_bytes;
    job.extent_count = (uint32_t)extents;
    job.target_size = request->target.len;
    job.device_size = request->device.len;
    job.disabled_size = request->disabled_rules.len;
    job.objective_size = request->objective.len;
    job.assembler_size = request->assembler.len;
    job.measured_size = request->measured.len;
    pieces[count++] = (piece){&job, sizeof(job)};
    pieces[count++] = (piece){request->ir.ptr, request->ir.len};
    pieces[count++] = (piece){request->target.ptr, request->target.len};
    pieces[count++] = (piece){request->device.ptr, request->device.len};
    pieces[count++] = (piece){request->disabled_rules.ptr, request->disabled_rules.len};
    pieces[count++] = (piece){request->objective.ptr, request->objective.len};
    pieces[count++] = (piece){request->assembler.ptr, request->assembler.len};
    pieces[count++] = (piece){request->measured.ptr, request->measured.len};
    for (size_t i = 0; i < extents; i++) { /* values, then intervals */
        bool value = i < request->binding_count;
        sx_interval its = {.high = 0};
        if (value) {
            its.name = request->binding[i].name;
            its.low = request->binding[i].value;
        } else {
            its = request->interval[i - request->binding_count];
        }
        extent[i] = (sxc_job_extent){.value = its.low, .high = its.high, .name_size = its.name.len};
        pieces[count++] = (piece){&extent[i], sizeof(extent[i])};
        pieces[count++] = (piece){its.name.ptr, its.name.len};
    }
    return run(cx, worker, pieces, count, result);
}

/* A job whose result is one structure. */
static sx_code run_for(sx_ctx *cx, const sxc_worker *worker, const piece *pieces, size_t count,
                       void *answer, size_t size)
{
    sx_buf result;
    sx_buf_init(&result, size);
    sx_code code = run(cx, worker, pieces, count, &result);
    if (code == SX_OK && result.len != size) {
        code = SX_FAIL(cx, SX_WORKER, "the compile process said %zu bytes", result.len);
    }
    if (code == SX_OK) {
        memcpy(answer, result.ptr, size);
    }
    sx_buf_fini(&result);
    return code;
}

/* The structure, and behind it the comparisons that it counts. */
static sx_code read_verified(sx_ctx *cx, sx_span answer, sxc_verified *verified)
{
    size_t rest = answer.len - sizeof(*verified);
    if (answer.len >= sizeof(*verified)) {
        memcpy(verified, answer.ptr, sizeof(*verified));
    }
    if (answer.len < sizeof(*verified) ||
        rest != verified->comparison_count * sizeof(*verified->comparison)) {
        return SX_FAIL(cx, SX_WORKER, "the compile process said %zu bytes", answer.len);
    }
    sxc_comparison *comparison = SX_NEW_ARRAY(cx, sxc_comparison, verified->comparison_count + 1);
    if (comparison == NULL) {
        return cx->error.code;
    }
    memcpy(comparison, answer.ptr + sizeof(*verified), rest);
    verified->comparison = comparison;
    return SX_OK;
}

sx_code sxc_verify_here(sx_ctx *cx, sx_span module, const sxc_verifying *how,
                        const sxc_worker *worker, sxc_verified *verified)
{
    sxc_job job = job_of(SXC_JOB_VERIFY, module.len);
    job.flags = (uint32_t)how->all << SXC_JOB_ALL;
    job.seed = how->seed;
    job.verify_flops = how->verify_flops;
    job.verify_bytes = how->verify_bytes;
    piece pieces[] = {{&job, sizeof(job)}, {module.ptr, module.len}};
    sx_buf answer;
    sx_buf_init(&answer, SXC_JOB_RESULT_MAX);
    sx_code code = run(cx, worker, pieces, SX_COUNT(pieces), &answer);
    code = code == SX_OK ? read_verified(cx, sx_buf_span(&answer), verified) : code;
    sx_buf_fini(&answer);
    if (code == SX_INTERNAL) {
        code = cx->error.code = SX_MISMATCH; /* the code is somebody's, not our compiler's */
    }
    return code;
}

sx_code sxc_determinism_here(sx_ctx *cx, sx_span module, uint64_t seed, uint64_t fuel,
                             const sxc_worker *worker, sx_buf *rows)
{
    sxc_job job = job_of(SXC_JOB_DETERMINISM, module.len);
    job.seed = seed;
    job.fuel = fuel;
    piece pieces[] = {{&job, sizeof(job)}, {module.ptr, module.len}};
    return run(cx, worker, pieces, SX_COUNT(pieces), rows);
}

sx_code sxc_assemble_here(sx_ctx *cx, const sxc_assembling *what, const sxc_worker *worker,
                          sx_buf *result)
{
    sxc_job job = job_of(SXC_JOB_ASSEMBLE, what->ptx.len);
    job.tool = what->tool;
    job.target_size = what->target.len;
    job.device_size = what->toolkit.len;
    piece pieces[] = {{&job, sizeof(job)},
                      {what->ptx.ptr, what->ptx.len},
                      {what->target.ptr, what->target.len},
                      {what->toolkit.ptr, what->toolkit.len}};
    return run(cx, worker, pieces, SX_COUNT(pieces), result);
}

sx_code sxc_check_here(sx_ctx *cx, const sxr_program *program, const sxc_worker *worker,
                       sx_module_check *check)
{
    const sx_module *module = sxr_module(program);
    sx_span bytes = sxr_bytes(program);
    sxc_job job = job_of(SXC_JOB_CHECK, bytes.len);
    size_t count = 0;
    piece *pieces = SX_NEW_ARRAY(cx, piece, (size_t)module->tensor_count + 2);
    if (pieces == NULL) {
        return cx->error.code;
    }
    pieces[count++] = (piece){&job, sizeof(job)};
    pieces[count++] = (piece){bytes.ptr, bytes.len};
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (sxc_is_interface(&module->tensor[i])) {
            SX_ASSERT(sxr_memory(program, i) != NULL);
            pieces[count++] = (piece){sxr_memory(program, i), (size_t)module->tensor[i].size};
        }
    }
    return run_for(cx, worker, pieces, count, check, sizeof(*check));
}
