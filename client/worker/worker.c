#include "client/worker/worker.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "client/assemble/process.h"
#include "client/job.h"
#include "client/spawn.h"
#include "client/verify/determinism.h"
#include "client/verify/team.h"
#include "client/verify/verify.h"
#include "client/worker/confine.h"

#define MEMORY_BYTES ((size_t)4 << 30)
#define CPU_SECONDS 3600
/* An assembler in this process can be stopped with the process alone. */
#define ASSEMBLE_SECONDS 120

typedef struct {
    sx_ctx *cx;
    int fd;
    sxc_job job;
    /* What stands behind the job: the program or module, aligned to 64; and its memory. */
    sx_span program;
    uint8_t *bytes;
    sx_core_request request;
    sx_buf result;
    sxa_process assembler;
    sx_assembler assemble;
} work;

/* ---- reading ---- */

static sx_code read_bytes(work *w, void *bytes, size_t size)
{
    return sxc_job_receive(w->fd, bytes, size)
               ? SX_OK
               : SX_FAIL(w->cx, SX_INPUT, "a job ends before all of it was said");
}

static sx_code read_text(work *w, uint64_t size, sx_span *text)
{
    if (size > SXC_JOB_TEXT_MAX) {
        return SX_FAIL(w->cx, SX_LIMIT, "a text of %llu bytes in a job, at most %zu",
                       (unsigned long long)size, SXC_JOB_TEXT_MAX);
    }
    char *copy = sx_alloc(w->cx, (size_t)size + 1);
    if (copy == NULL) {
        return w->cx->error.code;
    }
    *text = (sx_span){(const uint8_t *)copy, (size_t)size};
    return read_bytes(w, copy, (size_t)size);
}

static sx_code read_program(work *w)
{
    size_t size = (size_t)w->job.program_size;
    if (w->job.program_size > SXC_JOB_MODULE_MAX) {
        return SX_FAIL(w->cx, SX_LIMIT, "a program of %llu bytes in a job",
                       (unsigned long long)w->job.program_size);
    }
    uint8_t *bytes = aligned_alloc(64, (size + 64) / 64 * 64);
    if (bytes == NULL) {
        return SX_FAIL(w->cx, SX_NOMEM, "no memory for %zu bytes", size);
    }
    w->bytes = bytes;
    w->program = (sx_span){bytes, size};
    return read_bytes(w, bytes, size);
}

static sx_code assemble_text(void *self, sx_ctx *cx, sx_span text, const char *target,
                             sx_span *code)
{
    sxa_result result;
    SX_TRY(sxa_process_assemble(cx, self, text, target, &result));
    *code = result.cubin;
    return SX_OK;
}

/* In place of "any" the assembler of this machine, if there is one; it is started. */
static sx_code start_assembler(work *w)
{
    sxa_identity identity;
    sx_span wanted = w->request.assembler;
    w->request.assembler = (sx_span){NULL, 0};
    if (wanted.len == 0 || !sx_core_assembles(&w->request)) {
        return SX_OK;
    }
    sxa_identify(w->cx, true, &identity);
    if (identity.name[0] == '\0' && sx_span_is(wanted, SX_ASSEMBLER_ANY)) {
        return SX_OK;
    }
    if (!sx_span_is(wanted, SX_ASSEMBLER_ANY) && !sx_span_is(wanted, identity.name)) {
        return SX_FAIL(w->cx, SX_ABSENT, "no assembler %.*s here, but %s",
                       (int)sx_min_i64((int64_t)wanted.len, 60), (const char *)wanted.ptr,
                       identity.name[0] != '\0' ? identity.name : "none");
    }
    SX_TRY(sxa_process_start(w->cx, &identity, NULL, NULL, &w->assembler));
    w->assemble = (sx_assembler){.self = &w->assembler, .assemble = assemble_text};
    w->request.assembler = sx_span_of(w->assembler.identity.name);
    w->request.assemble = &w->assemble;
    return SX_OK;
}

static sx_code read_request(work *w)
{
    uint32_t flags = w->job.flags;
    if (w->job.extent_count > SX_SYMBOLS_MAX) {
        return SX_FAIL(w->cx, SX_LIMIT, "%u extents, at most %u", w->job.extent_count,
                       SX_SYMBOLS_MAX);
    }
    w->request = (sx_core_request){
        .ir = w->program,
        .no_reassociate = (flags >> SXC_JOB_NO_REASSOCIATE & 1) != 0,
        .allow_approximate = (flags >> SXC_JOB_APPROXIMATE & 1) != 0,
        .range_any = (flags >> SXC_JOB_RANGE_ANY & 1) != 0,
        .unfused = (flags >> SXC_JOB_UNFUSED & 1) != 0,
        .verify_flops = w->job.verify_flops,
        .verify_bytes = w->job.verify_bytes,
    };
    SX_TRY(read_text(w, w->job.target_size, &w->request.target));
    SX_TRY(read_text(w, w->job.device_size, &w->request.device));
    SX_TRY(read_text(w, w->job.disabled_size, &w->request.disabled_rules));
    SX_TRY(read_text(w, w->job.objective_size, &w->request.objective));
    SX_TRY(read_text(w, w->job.assembler_size, &w->request.assembler));
    SX_TRY(read_text(w, w->job.measured_size, &w->request.measured));
    sx_binding *binding = SX_NEW_ARRAY(w->cx, sx_binding, (size_t)w->job.extent_count + 1);
    sx_interval *interval = SX_NEW_ARRAY(w->cx, sx_interval, (size_t)w->job.extent_count + 1);
    if (binding == NULL || interval == NULL) {
        return w->cx->error.code;
    }
    for (uint32_t i = 0; i < w->job.extent_count; i++) {
        sxc_job_extent extent;
        sx_span name;
        SX_TRY(read_bytes(w, &extent, sizeof(extent)));
        SX_TRY(read_text(w, extent.name_size, &name));
        if (extent.high == 0) {
            binding[w->request.binding_count++] = (sx_binding){name, extent.value};
        } else {
            interval[w->request.interval_count++] = (sx_interval){name, extent.value, extent.high};
        }
    }
    w->request.binding = binding;
    w->request.interval = interval;
    return SX_OK;
}

/* ---- answering ---- */

static bool say(const work *w, sxc_word_kind kind, const void *bytes, size_t size)
{
    sxc_word word = {.kind = kind, .size = size};
    return sxc_job_send(w->fd, &word, sizeof(word)) && sxc_job_send(w->fd, bytes, size);
}

static void on_progress(void *self, const char *stage, uint64_t done, uint64_t total)
{
    const work *w = self;
    if (stage != NULL) {
        sxc_word word = {
            .kind = SXC_WORD_PROGRESS, .size = strnlen(stage, 63), .done = done, .total = total};
        (void)(sxc_job_send(w->fd, &word, sizeof(word)) &&
               sxc_job_send(w->fd, stage, (size_t)word.size));
    }
}

static uint64_t now_ns(void *self)
{
    struct timespec now;
    (void)self;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- the jobs ---- */

static void limit(int resource, rlim_t value)
{
    struct rlimit rlimit = {value, value};
    (void)setrlimit((__rlimit_resource_t)resource, &rlimit);
}

static sx_code compile(work *w)
{
    sxr_verify_options verify = SXR_VERIFY_DEFAULT;
    SX_TRY(read_request(w));
    SX_TRY(start_assembler(w));
    return w->job.kind == SXC_JOB_OPTIMIZE
               ? sx_core_optimize_module(w->cx, &w->request, &w->result)
               : sxr_compile_verified(w->cx, &w->request, &verify, &w->result);
}

/* The comparisons that the image has collected: their sum, and each. */
static void put_verified(work *w, const sx_image *image, bool confined)
{
    sxc_verified sum = {.confined = confined,
                        .comparison_count = (uint32_t)(image->check.len / sizeof(sx_module_check))};
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < sum.comparison_count; i++) {
            sxc_comparison row = {.name = ""};
            memcpy(&row.check, image->check.ptr + i * sizeof(row.check), sizeof(row.check));
            const sx_module_check *check = &row.check;
            (void)snprintf(row.name, sizeof(row.name), "%.*s", (int)check->name.size,
                           (const char *)image->strings.ptr + check->name.offset);
            if (pass == 1) {
                sx_buf_put(&w->result, &row, sizeof(row));
                continue;
            }
            sum.ran += check->passed != SX_CHECK_ABSENT ? 1 : 0;
            sum.left_out += check->passed == SX_CHECK_ABSENT ? 1 : 0;
            sum.elements += check->points;
            sum.emulated = sum.emulated || check->emulated != 0;
            sum.error = fmax(sum.error, check->error);
        }
        if (pass == 0) {
            sx_buf_put(&w->result, &sum, sizeof(sum));
        }
    }
}

/* Before code of unknown origin runs. */
static sx_code confine(const work *w)
{
    return sxc_confine(w->fd)
               ? SX_OK
               : SX_FAIL(w->cx, SX_SYSTEM, "this system cannot confine a process (seccomp)");
}

static sx_code look_for_differences(work *w)
{
    SX_TRY(confine(w));
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    options.threads = 1;
    options.seed = w->job.seed;
    w->cx->fuel = UINT64_MAX;
    return sxr_determinism(w->cx, w->program, &options, w->job.fuel, &w->result);
}

static sx_code verify_module(work *w)
{
    SX_TRY(confine(w));
    sxr_verify_options verify = SXR_VERIFY_DEFAULT;
    verify.threads = 1; /* the confined process may start none */
    verify.seed = w->job.seed;
    verify.program_flops = fmax(verify.program_flops, (double)w->job.verify_flops);
    if (w->job.verify_bytes > SXR_REFERENCE_BYTES) {
        verify.reference_bytes = (size_t)w->job.verify_bytes;
    }
    if ((w->job.flags >> SXC_JOB_ALL & 1) != 0) {
        verify.emulated_max = w->cx->fuel = UINT64_MAX;
    }
    bool confined = access("/", F_OK) != 0 && errno == EPERM;
    sx_image image;
    sx_image_init(&image);
    sx_code code = sxr_verify(w->cx, w->program, &verify, &image);
    put_verified(w, &image, confined);
    sx_image_fini(&image);
    return code == SX_OK ? sx_buf_check(w->cx, &w->result, "comparisons") : code;
}

/* Memory for the tensors of the interface, with their contents as they are said. */
static sx_code read_tensors(work *w, sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        if (!sxc_is_interface(tensor)) {
            continue;
        }
        void *memory = sx_alloc(w->cx, (size_t)tensor->size);
        if (memory == NULL) {
            return w->cx->error.code;
        }
        SX_TRY(read_bytes(w, memory, (size_t)tensor->size));
        SX_TRY(sxr_bind(w->cx, program, i, memory, tensor->size));
    }
    return SX_OK;
}

static sx_code check_outputs(work *w)
{
    sxr_program *program = NULL;
    sx_module_check check = {0};
    sxr_options options = {.any_level = true}; /* its code is not run */
    SX_TRY(sxr_open_bytes(w->cx, w->program, &options, &program));
    sx_code code = read_tensors(w, program);
    code = code == SX_OK ? sxr_check_program(w->cx, program, 0, &check) : code;
    sxr_close(program);
    sx_buf_put(&w->result, &check, sizeof(check));
    return code;
}

static sx_code assemble(work *w)
{
    sx_span target, toolkit;
    sxa_result result;
    SX_TRY(read_text(w, w->job.target_size, &target));
    SX_TRY(read_text(w, w->job.device_size, &toolkit));
    if (w->job.tool >= SXA_TOOL_COUNT) {
        return SX_FAIL(w->cx, SX_USAGE, "assembler %u, known are 0 to %d", w->job.tool,
                       SXA_TOOL_COUNT - 1);
    }
    sxa_options options = {.with = (sxa_tool)w->job.tool,
                           .toolkit = toolkit.len > 0 ? (const char *)toolkit.ptr : NULL};
    (void)alarm(ASSEMBLE_SECONDS);
    SX_TRY(sxa_assemble(w->cx, w->program, (const char *)target.ptr, &options, &result));
    sxa_result_encode(&result, &w->result);
    return sx_buf_check(w->cx, &w->result, "cubin");
}

static sx_code perform(work *w)
{
    char build[sizeof(w->job.build)] = "";
    SX_TRY(read_bytes(w, &w->job, sizeof(w->job)));
    (void)snprintf(build, sizeof(build), "%s", sx_core_toolchain());
    if (memcmp(build, w->job.build, sizeof(build)) != 0) {
        return SX_FAIL(w->cx, SX_USAGE, "symplex-client is of build %s, the library of another",
                       build);
    }
    if (w->job.verify_flops > SX_VERIFY_LIMIT_MAX || w->job.verify_bytes > SX_VERIFY_LIMIT_MAX) {
        return SX_FAIL(w->cx, SX_LIMIT, "a job with limits of verification beyond 2^60");
    }
    if (w->job.kind >= SXC_JOB_COUNT) {
        return SX_FAIL(w->cx, SX_USAGE, "job of kind %u, known are 0 to %d", w->job.kind,
                       SXC_JOB_COUNT - 1);
    }
    if (w->job.kind == SXC_JOB_CHECK) { /* it holds, and takes, as much as the caller */
        w->cx->fuel = UINT64_MAX;
    } else {
        w->cx->arena.limit_bytes = MEMORY_BYTES;
        if (!SX_SANITIZED) {
            limit(RLIMIT_AS, MEMORY_BYTES * 2 + w->job.verify_bytes);
        }
    }
    SX_TRY(read_program(w));
    switch ((sxc_job_kind)w->job.kind) {
    case SXC_JOB_COMPILE:
    case SXC_JOB_OPTIMIZE: return compile(w);
    case SXC_JOB_VERIFY: return verify_module(w);
    case SXC_JOB_DETERMINISM: return look_for_differences(w);
    case SXC_JOB_CHECK: return check_outputs(w);
    case SXC_JOB_ASSEMBLE: return assemble(w);
    case SXC_JOB_COUNT: break;
    }
    SX_UNREACHABLE();
}

int sxc_work(int fd)
{
    static sx_ctx cx;
    work w = {.cx = &cx, .fd = fd, .assembler = {.fd = -1}};
    pid_t parent = getppid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        return 1; /* it went away before it could be watched */
    }
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, CPU_SECONDS);
    sxv_keep_memory();
    sx_ctx_init(&cx, SXC_JOB_MODULE_MAX);
    cx.error = (sx_error){.code = SX_OK}; /* it travels whole */
    cx.now_ns = now_ns;
    cx.progress = on_progress;
    cx.progress_self = &w;
    sx_buf_init(&w.result, SXC_JOB_RESULT_MAX);
    sx_code code = perform(&w);
    bool said = code == SX_OK ? say(&w, SXC_WORD_RESULT, w.result.ptr, w.result.len)
                              : say(&w, SXC_WORD_ERROR, &cx.error, sizeof(cx.error));
    sxa_process_end(&w.assembler);
    sx_buf_fini(&w.result);
    free(w.bytes);
    sx_ctx_fini(&cx);
    return said ? 0 : 1;
}
