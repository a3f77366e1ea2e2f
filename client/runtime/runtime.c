#include "client/runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/runtime/cpu.h"
#include "client/runtime/pool.h"
#include "core/ir/ir.h"

typedef void (*kernel_entry)(void *const *buffer, const int64_t *index, void *workspace);

struct sxr_program {
    sx_module module;
    uint8_t *file; /* the module's bytes: a mapping */
    size_t file_size;
    uint8_t *code; /* executable mapping of the CODE section */
    size_t code_size;
    uint8_t *memory; /* arena, persistent area, workspaces: one mapping */
    size_t memory_size;
    uint8_t *workspace;
    uint64_t workspace_stride;
    void **tensor; /* [tensor_count] where each lies; NULL while unbound */
    bool prologue_done;
    const sx_target *target; /* that the module is for */
    bool runs_here;          /* the processor executes its code */
    sxr_pool *pool;
};

/* ---- opening ---- */

static uint32_t usable_threads(uint32_t wanted)
{
    if (wanted != 0) {
        return wanted;
    }
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : (count > (int)SXR_THREADS_MAX ? SXR_THREADS_MAX : (uint32_t)count);
}

/* Code goes through a sealed memory file: written through the descriptor, then mapped read-execute; never
 * writable and executable. */
static sx_code map_code(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = &program->module;
    if (module->code_count == 0) {
        return SX_OK;
    }
    int fd = memfd_create("symplex-code", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return SX_FAIL(cx, SX_SYSTEM, "memory file for %llu bytes of code: %s",
                       (unsigned long long)module->code_count, strerror(errno));
    }
    sx_code code = SX_OK;
    uint64_t written = 0;
    while (written < module->code_count) {
        ssize_t n = write(fd, module->code + written, (size_t)(module->code_count - written));
        if (n <= 0) {
            code = SX_FAIL(cx, SX_SYSTEM, "writing %llu bytes of code: %s",
                           (unsigned long long)module->code_count, strerror(errno));
            goto out;
        }
        written += (uint64_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        code = SX_FAIL(cx, SX_SYSTEM, "sealing code: %s", strerror(errno));
        goto out;
    }
    void *mapping =
        mmap(NULL, (size_t)module->code_count, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED) {
        code = SX_FAIL(cx, SX_SYSTEM, "mapping %llu bytes of code: %s",
                       (unsigned long long)module->code_count, strerror(errno));
        sx_hint(
            cx,
            "The system may forbid executable memory files (vm.memfd_noexec, a service profile).");
        goto out;
    }
    program->code = mapping;
    program->code_size = (size_t)module->code_count;
out:
    (void)close(fd);
    return code;
}

/* Every entry leads through instructions of the target only: a check of forms before anything is made
 * executable. */
static sx_code check_code(sx_ctx *cx, const sx_module *module, const sx_target *target)
{
    if (module->part_count > UINT32_MAX) {
        return SX_FAIL(cx, SX_CORRUPT, "module: %llu parts",
                       (unsigned long long)module->part_count);
    }
    uint32_t *entry = SX_NEW_ARRAY(cx, uint32_t, (size_t)module->part_count + 1);
    if (entry == NULL) {
        return cx->error.code;
    }
    for (uint64_t i = 0; i < module->part_count; i++) {
        if (module->part[i].entry > UINT32_MAX) {
            return SX_FAIL(cx, SX_CORRUPT, "module part %llu: entry %llu", (unsigned long long)i,
                           (unsigned long long)module->part[i].entry);
        }
        entry[i] = (uint32_t)module->part[i].entry;
    }
    sx_code code = target->check(cx, target, (sx_span){module->code, (size_t)module->code_count},
                                 entry, (uint32_t)module->part_count);
    if (code == SX_INPUT) { /* the bytes come from a file or a wire, not from the caller */
        cx->error.code = SX_CORRUPT;
        return SX_CORRUPT;
    }
    return code;
}

static sx_code map_memory(sx_ctx *cx, sxr_program *program)
{
    const sx_module_info *info = program->module.info;
    uint64_t threads = sxr_pool_threads(program->pool);
    uint64_t arena = (info->arena_bytes + 4095) & ~(uint64_t)4095;
    uint64_t persistent = (info->persistent_bytes + 4095) & ~(uint64_t)4095;
    program->workspace_stride = (info->workspace_bytes + 4095) & ~(uint64_t)4095;
    uint64_t total = arena + persistent + program->workspace_stride * threads;
    if (total > 0) {
        void *memory =
            mmap(NULL, (size_t)total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            return SX_FAIL(cx, SX_NOMEM, "module needs %llu bytes of memory: %s",
                           (unsigned long long)total, strerror(errno));
        }
        program->memory = memory;
        program->memory_size = (size_t)total;
    }
    program->workspace = total > 0 ? program->memory + arena + persistent : NULL;
    for (uint64_t i = 0; i < program->module.tensor_count; i++) {
        const sx_module_tensor *tensor = &program->module.tensor[i];
        uint8_t *base = NULL;
        switch ((sx_module_place)tensor->place) {
        case SX_TENSOR_TEMPORARY: base = program->memory; break;
        case SX_TENSOR_PERSISTENT: base = program->memory + arena; break;
        case SX_TENSOR_CONSTANT:
            base = program->file + ((const uint8_t *)program->module.constants - program->file);
            break;
        case SX_TENSOR_WEIGHT:
            base = tensor->offset == UINT64_MAX
                       ? NULL
                       : program->file + ((const uint8_t *)program->module.weights - program->file);
            break;
        case SX_TENSOR_INPUT:
        case SX_TENSOR_OUTPUT:
        case SX_TENSOR_PLACE_COUNT: break;
        }
        program->tensor[i] = base == NULL ? NULL : base + tensor->offset;
    }
    return SX_OK;
}

/* Element types are known ones of the size the module says: who reads a tensor may index tables by them. */
static sx_code check_types(sx_ctx *cx, const sx_module *module)
{
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        if (tensor->dtype >= SX_DTYPE_COUNT ||
            sx_dtype_bytes((sx_dtype)tensor->dtype) != tensor->element_bytes) {
            return SX_FAIL(cx, SX_CORRUPT,
                           "tensor %llu: element type %u with %u bytes an element; %d types are "
                           "known",
                           (unsigned long long)i, tensor->dtype, tensor->element_bytes,
                           SX_DTYPE_COUNT);
        }
    }
    return SX_OK;
}

static sx_code refuse_target(sx_ctx *cx, const sx_target *target)
{
    const sx_target *here = sxr_cpu_target();
    sx_code code = SX_FAIL(cx, SX_UNIMPLEMENTED, "module is for %s, this processor executes %s",
                           target->name, here != NULL ? here->name : "no target");
    sx_hint(cx,
            "Compile with --target native, or run it on a machine with %s (%s). `doctor` shows "
            "what this machine has.",
            target->name, target->text);
    return code;
}

static sx_code finish_open(sx_ctx *cx, sxr_program *program, const sxr_options *options)
{
    SX_TRY(sx_module_decode(cx, (sx_span){program->file, program->file_size},
                            !options->skip_checksums, &program->module));
    const sx_module *module = &program->module;
    SX_TRY(sx_target_of_module(cx, NULL, module->info->isa, &program->target));
    program->runs_here = sxr_cpu_executes(program->target);
    if (!program->runs_here && !options->any_level) {
        return refuse_target(cx, program->target);
    }
    program->tensor = calloc((size_t)module->tensor_count + 1, sizeof(*program->tensor));
    if (program->tensor == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %llu tensors",
                       (unsigned long long)module->tensor_count);
    }
    SX_TRY(check_types(cx, module));
    SX_TRY(check_code(cx, module, program->target));
    if (program->runs_here) {
        SX_TRY(map_code(cx, program));
    }
    SX_TRY(sxr_pool_new(cx, usable_threads(options->threads), &program->pool));
    return map_memory(cx, program);
}

static sx_code open_mapping(sx_ctx *cx, SX_TAKE void *mapping, size_t size,
                            const sxr_options *options, sxr_program **out)
{
    static const sxr_options defaults = {0};
    sxr_program *program = calloc(1, sizeof(*program));
    if (program == NULL) {
        (void)munmap(mapping, size);
        return SX_FAIL(cx, SX_NOMEM, "no memory for %zu bytes", sizeof(*program));
    }
    program->file = mapping;
    program->file_size = size;
    sx_code code = finish_open(cx, program, options != NULL ? options : &defaults);
    if (code != SX_OK) {
        sxr_close(program);
        return code;
    }
    *out = program;
    return SX_OK;
}

sx_code sxr_open_bytes(sx_ctx *cx, sx_span bytes, const sxr_options *options, sxr_program **program)
{
    if (bytes.len == 0) {
        return SX_FAIL(cx, SX_CORRUPT, "not a module: 0 bytes");
    }
    void *copy = mmap(NULL, bytes.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for a module of %zu bytes", bytes.len);
    }
    memcpy(copy, bytes.ptr, bytes.len);
    return open_mapping(cx, copy, bytes.len, options, program);
}

sx_code sxr_open_file(sx_ctx *cx, const char *path, const sxr_options *options,
                      sxr_program **program)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* waits for no FIFO */
    if (fd < 0) {
        return SX_FAIL(cx, errno == ENOENT ? SX_INPUT : SX_SYSTEM, "%s: %s", path, strerror(errno));
    }
    struct stat status;
    void *mapping = MAP_FAILED;
    sx_code code = SX_OK;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        code = SX_FAIL(cx, SX_INPUT, "%s: not a regular file", path);
    } else if (status.st_size <= 0) {
        code = SX_FAIL(cx, SX_CORRUPT, "%s: not a module: 0 bytes", path);
    } else {
        mapping = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        if (mapping == MAP_FAILED) {
            code = SX_FAIL(cx, SX_SYSTEM, "%s: mapping %lld bytes: %s", path,
                           (long long)status.st_size, strerror(errno));
        }
    }
    (void)close(fd);
    return code != SX_OK ? code
                         : open_mapping(cx, mapping, (size_t)status.st_size, options, program);
}

void sxr_close(sxr_program *program)
{
    if (program == NULL) {
        return;
    }
    sxr_pool_free(program->pool);
    if (program->code != NULL) {
        (void)munmap(program->code, program->code_size);
    }
    if (program->memory != NULL) {
        (void)munmap(program->memory, program->memory_size);
    }
    (void)munmap(program->file, program->file_size);
    free(program->tensor);
    free(program);
}

/* ---- binding ---- */

bool sxr_runs_here(const sxr_program *program)
{
    return program->runs_here;
}

const sx_target *sxr_target(const sxr_program *program)
{
    return program->target;
}

sx_span sxr_bytes(const sxr_program *program)
{
    SX_ASSERT(program != NULL && program->file != NULL);
    return (sx_span){program->file, program->file_size};
}

const sx_module *sxr_module(const sxr_program *program)
{
    return &program->module;
}

uint32_t sxr_threads(const sxr_program *program)
{
    return sxr_pool_threads(program->pool);
}

uint32_t sxr_find(const sxr_program *program, sx_module_place place, sx_span name)
{
    const sx_module *module = &program->module;
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == (uint32_t)place &&
            sx_span_equal(sx_module_string(module, module->tensor[i].name), name)) {
            return (uint32_t)i;
        }
    }
    return UINT32_MAX;
}

sx_code sxr_bind(sx_ctx *cx, sxr_program *program, uint32_t index, void *memory, uint64_t size)
{
    const sx_module *module = &program->module;
    SX_ASSERT(index < module->tensor_count);
    const sx_module_tensor *tensor = &module->tensor[index];
    sx_span name = sx_module_string(module, tensor->name);
    if (tensor->place != SX_TENSOR_INPUT && tensor->place != SX_TENSOR_OUTPUT &&
        tensor->place != SX_TENSOR_WEIGHT) {
        return SX_FAIL(cx, SX_INPUT, "tensor %.*s is internal", (int)name.len,
                       (const char *)name.ptr);
    }
    if (size != tensor->size || memory == NULL) {
        return SX_FAIL(cx, SX_INPUT, "tensor %.*s: %llu bytes given, it has %llu", (int)name.len,
                       (const char *)name.ptr, (unsigned long long)size,
                       (unsigned long long)tensor->size);
    }
    program->tensor[index] = memory;
    if (tensor->place == SX_TENSOR_WEIGHT) {
        program->prologue_done = false;
    }
    return SX_OK;
}

void *sxr_memory(const sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(tensor < program->module.tensor_count);
    return program->tensor[tensor];
}

/* ---- running ---- */

typedef struct {
    sxr_program *program;
    const sx_module_kernel *kernel;
    void *const *buffer;
} grid_task;

static int64_t part_points(const sx_module_part *part)
{
    return part->grid[0] * part->grid[1] * part->grid[2];
}

/* Points [first, last) of all parts laid end to end; the last grid dimension runs fastest. */
static void run_points(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const grid_task *task = self;
    sxr_program *program = task->program;
    void *workspace = program->workspace_stride == 0
                          ? NULL
                          : program->workspace + program->workspace_stride * thread;
    int64_t base = 0;
    for (uint32_t p = 0; p < task->kernel->part_count; p++) {
        const sx_module_part *part = &program->module.part[task->kernel->part_first + p];
        int64_t points = part_points(part);
        int64_t begin = sx_max_i64(first - base, 0);
        int64_t end = sx_min_i64(last - base, points);
        kernel_entry entry;
        void *address = program->code + part->entry;
        memcpy(&entry, &address, sizeof(entry)); /* object to function pointer, as POSIX allows */
        for (int64_t i = begin; i < end; i++) {
            int64_t index[3] = {i / (part->grid[1] * part->grid[2]),
                                i / part->grid[2] % part->grid[1], i % part->grid[2]};
            entry(task->buffer, index, workspace);
        }
        base += points;
    }
}

void sxr_run_launch(sxr_program *program, uint32_t index, void *const *buffer)
{
    SX_ASSERT(index < program->module.launch_count && program->runs_here);
    const sx_module_launch *launch = &program->module.launch[index];
    grid_task task = {program, &program->module.kernel[launch->kernel], buffer};
    int64_t points = 0;
    for (uint32_t p = 0; p < task.kernel->part_count; p++) {
        points += part_points(&program->module.part[task.kernel->part_first + p]);
    }
    uint32_t mxcsr = sxr_mxcsr_get();
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT);
    sxr_pool_run(program->pool, run_points, &task, points);
    sxr_mxcsr_set(mxcsr);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void run_launches(sxr_program *program, uint32_t prologue, uint64_t *launch_ns)
{
    const sx_module *module = &program->module;
    for (uint32_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        if (launch->prologue != prologue) {
            continue;
        }
        void *buffer[65];
        for (uint32_t k = 0; k < launch->arg_count; k++) {
            buffer[k] = program->tensor[module->arg[launch->arg_first + k]];
        }
        uint64_t start = launch_ns != NULL ? now_ns() : 0;
        sxr_run_launch(program, i, buffer);
        if (launch_ns != NULL) {
            launch_ns[i] = now_ns() - start;
        }
    }
}

sx_code sxr_run(sx_ctx *cx, sxr_program *program, uint64_t *launch_ns)
{
    const sx_module *module = &program->module;
    if (!program->runs_here) {
        return refuse_target(cx, program->target);
    }
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        if (program->tensor[i] == NULL && module->tensor[i].size > 0) {
            sx_span name = sx_module_string(module, module->tensor[i].name);
            return SX_FAIL(cx, SX_INPUT, "tensor %.*s is not bound", (int)name.len,
                           (const char *)name.ptr);
        }
    }
    if (!program->prologue_done) {
        run_launches(program, 1, launch_ns);
        program->prologue_done = true;
    }
    run_launches(program, 0, launch_ns);
    return SX_OK;
}
