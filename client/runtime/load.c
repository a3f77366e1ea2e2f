/* load.c - opening a module: its checks, its code made executable, its memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/runtime/cpu.h"
#include "client/runtime/cubin.h"
#include "client/runtime/device.h"
#include "client/runtime/pages.h"
#include "client/runtime/program.h"
#include "client/runtime/ranks.h"
#include "core/ir/ir.h"

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

/* Every entry leads through instructions of the kernel's machine only: a check of forms before anything is made
 * executable. */
static sx_code check_kernel_code(sx_ctx *cx, const sx_machines *machines, const sx_module *module,
                                 uint64_t index)
{
    const sx_module_kernel *kernel = &module->kernel[index];
    const sx_machine *machine;
    SX_TRY(
        sx_machine_of_module(cx, machines, sx_level_name(kernel->arch, kernel->level), &machine));
    uint32_t *entry = SX_NEW_ARRAY(cx, uint32_t, kernel->part_count);
    sx_machine_block *block = SX_NEW_ARRAY(cx, sx_machine_block, kernel->part_count);
    if (entry == NULL || block == NULL) {
        return cx->error.code;
    }
    if (kernel->code_size > UINT32_MAX) {
        return SX_FAIL(cx, SX_CORRUPT, "module kernel %llu: %llu bytes of code, at most %u",
                       (unsigned long long)index, (unsigned long long)kernel->code_size,
                       UINT32_MAX);
    }
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const sx_module_part *part = &module->part[kernel->part_first + p];
        entry[p] = (uint32_t)(part->entry - kernel->code_offset);
        block[p] = (sx_machine_block){
            .threads = part->threads, .shared_bytes = part->shared_bytes, .walkers = part->walkers};
        memcpy(block[p].grid, part->grid, sizeof(block[p].grid));
        (void)sx_module_maps_of(module, kernel->part_first + p, &block[p].maps);
        block[p].numbers = sx_module_part_numbers(module, kernel->part_first + p);
    }
    sx_span bytes = {module->code + kernel->code_offset, (size_t)kernel->code_size};
    sx_code code = machine->check(cx, machine, bytes, entry, block, kernel->part_count);
    if (code == SX_INPUT) { /* the bytes come from a file or a wire, not from the caller */
        cx->error.code = SX_CORRUPT;
        return sx_fail_in(cx, "module kernel %llu", (unsigned long long)index);
    }
    return code;
}

sx_code sxr_check_code(sx_ctx *cx, const sx_machines *machines, const sx_module *module)
{
    for (uint64_t i = 0; i < module->kernel_count; i++) {
        if (module->kernel[i].arch == module->info->arch) { /* of others nothing is executed here */
            SX_TRY(check_kernel_code(cx, machines, module, i));
        }
    }
    return sxr_check_cubins(cx, module);
}

/* ---- memory ---- */

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + 4095) & ~(uint64_t)4095;
}

/* A place in the memory of the program; NULL where it needs none. */
static uint8_t *memory_at(const sxr_program *program, uint64_t offset)
{
    return program->memory != NULL ? program->memory + offset : NULL;
}

/* Where tensors of this place begin; NULL: in memory of the caller. */
static uint8_t *base_of(const sxr_program *program, const sx_module_tensor *tensor)
{
    const sx_module *module = &program->module;
    uint64_t persistent = whole_pages(module->info->arena_bytes);
    uint64_t state = persistent + whole_pages(module->info->persistent_bytes);
    switch ((sx_module_place)tensor->place) {
    case SX_TENSOR_TEMPORARY: return program->memory;
    case SX_TENSOR_PERSISTENT: return memory_at(program, persistent);
    case SX_TENSOR_STATE: return memory_at(program, state);
    case SX_TENSOR_CONSTANT:
        return program->file + ((const uint8_t *)module->constants - program->file);
    case SX_TENSOR_WEIGHT:
        return tensor->offset == UINT64_MAX
                   ? NULL
                   : program->file + ((const uint8_t *)module->weights - program->file);
    case SX_TENSOR_INPUT:
    case SX_TENSOR_OUTPUT: return NULL;
    case SX_TENSOR_PLACE_COUNT: break;
    }
    SX_UNREACHABLE();
}

static sx_code map_memory(sx_ctx *cx, sxr_program *program)
{
    const sx_module_info *info = program->module.info;
    uint64_t threads = sxr_pool_threads(program->pool);
    uint64_t areas = whole_pages(info->arena_bytes) + whole_pages(info->persistent_bytes) +
                     whole_pages(info->state_bytes);
    program->workspace_stride = whole_pages(info->workspace_bytes);
    uint64_t total = areas + program->workspace_stride * threads;
    if (total > 0) {
        program->memory = sxr_pages_kept((size_t)total);
        if (program->memory == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "module needs %llu bytes of memory: %s",
                           (unsigned long long)total, strerror(errno));
        }
        program->memory_size = (size_t)total;
        program->workspace = program->memory + areas;
    }
    return SX_OK;
}

static void find_packed(sxr_program *program)
{
    const sx_module *module = &program->module;
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        for (uint32_t k = 0; launch->prologue != 0 && k < launch->arg_count; k++) {
            program->packed[module->arg[launch->arg_first + k]] = true;
        }
    }
}

static void place_all(sxr_program *program)
{
    for (uint64_t i = 0; i < program->module.tensor_count; i++) {
        const sx_module_tensor *tensor = &program->module.tensor[i];
        uint8_t *base = base_of(program, tensor);
        if (base == NULL && tensor->place == SX_TENSOR_STATE && tensor->size == 0) {
            base = (uint8_t *)program; /* nothing is read or written there */
        }
        program->tensor[i] = base == NULL ? NULL : base + tensor->offset;
        program->aliased = program->aliased || tensor->alias != SX_MODULE_NONE;
    }
    sxr_place_weights(program);
}

/* An array of the program with an element for each record of a table; never of 0 bytes. */
static sx_code make_array(sx_ctx *cx, uint64_t count, size_t size, void *array)
{
    void *memory = calloc((size_t)count + 1, size);
    if (memory == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %llu records", (unsigned long long)count);
    }
    memcpy(array, &memory, sizeof(memory));
    return SX_OK;
}

static sx_code make_arrays(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = &program->module;
    SX_TRY(make_array(cx, module->tensor_count, sizeof(*program->tensor), &program->tensor));
    SX_TRY(make_array(cx, module->variant_count, sizeof(bool), &program->prologue_done));
    SX_TRY(make_array(cx, module->tensor_count, sizeof(bool), &program->made));
    SX_TRY(make_array(cx, module->tensor_count, sizeof(bool), &program->packed));
    SX_TRY(make_array(cx, module->symbol_count, sizeof(*program->value), &program->value));
    SX_TRY(make_array(cx, module->tensor_count, sizeof(*program->bytes), &program->bytes));
    SX_TRY(make_array(cx, module->tensor_count, sizeof(*program->dim), &program->dim));
    SX_TRY(make_array(cx, module->part_count, sizeof(*program->part), &program->part));
    SX_TRY(make_array(cx, module->part_count, sizeof(uint32_t), &program->part_case));
    SX_TRY(make_array(cx, module->number_count, sizeof(int64_t), &program->number));
    SX_TRY(make_array(cx, module->launch_count, sizeof(*program->habit), &program->habit));
    return make_array(cx, module->launch_count, sizeof(*program->rounds), &program->rounds);
}

/* ---- what this machine and this runtime can run ---- */

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

sx_code sxr_refuse_machine(sx_ctx *cx, const sx_module *module)
{
    const sx_machine *here = sxr_cpu_machine();
    const char *wanted = sx_level_name(module->info->arch, module->info->level);
    const sx_machine *machine = sx_machine_find(NULL, wanted);
    const char *form = module->kernel_count > 0 ? sx_form_name(module->kernel[0].form) : "no code";
    sx_code code =
        SX_FAIL(cx, SX_UNIMPLEMENTED, "module is for %s (%s), this processor executes %s", wanted,
                form, here != NULL ? here->name : "no target");
    sx_hint(cx,
            "Compile with --target native, or run it on a machine with %s (%s). `doctor` shows "
            "what this machine has.",
            wanted, machine != NULL ? machine->text : sx_arch_name(module->info->arch));
    return code;
}

sx_code sxr_join(sx_ctx *cx, sxr_program *program, const sxr_communicator *communicator)
{
    uint32_t ranks = sx_module_ranks(&program->module);
    SX_ASSERT(communicator != NULL);
    if (communicator->rank_count != ranks || communicator->rank >= ranks) {
        return SX_FAIL(cx, SX_INPUT, "communicator of rank %u of %u, %u ranks run the module",
                       communicator->rank, communicator->rank_count, ranks);
    }
    program->communicator = communicator;
    return SX_OK;
}

static sx_code check_launch(sx_ctx *cx, const sxr_program *program, uint32_t index)
{
    const sx_module *module = &program->module;
    const sx_module_launch *launch = &module->launch[index];
    sx_span name = sx_module_string(module, launch->name);
    switch ((sx_module_launch_kind)launch->kind) {
    case SX_LAUNCH_HOST:
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "launch %u is a host call, %.*s: this runtime calls no functions", index,
                       (int)name.len, (const char *)name.ptr);
    case SX_LAUNCH_KERNEL:
        /* Kernels of other architectures stand in variants that no machine of ours fits. */
        SX_ASSERT(module->kernel[launch->kernel].arch == module->info->arch);
        return SX_OK;
    case SX_LAUNCH_COLLECTIVE:
        if (program->device != NULL || sxr_device_wanted(module, program->made_for)) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "launch %u is a %s: not on a GPU yet", index,
                           sx_module_launch_name(launch->kind));
        }
        return SX_OK;
    case SX_LAUNCH_COPY:
    case SX_LAUNCH_FILL:
    case SX_LAUNCH_SLICE:
    case SX_LAUNCH_ROW:
    case SX_LAUNCH_BRANCH:
    case SX_LAUNCH_WHILE:
    case SX_LAUNCH_LOOP: return SX_OK;
    case SX_LAUNCH_KIND_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* Of every variant that may run here, every launch; of the others, none. */
static sx_code check_launches(sx_ctx *cx, const sxr_program *program)
{
    const sx_module *module = &program->module;
    for (uint32_t v = 0; v < module->variant_count; v++) {
        const sx_module_variant *variant = &module->variant[v];
        bool may = sx_module_machine_fits(module, v, &program->machine);
        for (uint32_t i = 0; may && i < variant->launch_count; i++) {
            SX_TRY(check_launch(cx, program, variant->launch_first + i));
        }
    }
    return SX_OK;
}

/* A machine runs the code of all lower levels of its family. */
static sx_code check_machine(sx_ctx *cx, sxr_program *program, bool any_level)
{
    const sx_module *module = &program->module;
    const sx_module_info *info = module->info;
    const sx_machine *here = sxr_cpu_machine();
    uint32_t arch, level;
    if (here != NULL && sx_level_find(here->name, &arch, &level)) {
        program->machine.level[arch] = program->here.level[arch] = level;
    }
    program->made_for = sx_machine_find(program->machines, sx_level_name(info->arch, info->level));
    if (!any_level && sxr_device_wanted(module, program->made_for)) {
        uint32_t *of_gpu = &program->machine.level[info->arch];
        SX_TRY(sxr_device_find(cx, module, of_gpu));
        program->here.level[info->arch] = *of_gpu;
    }
    program->runs_here = program->machine.level[info->arch] >= info->level;
    if (!program->runs_here && (!any_level || program->made_for == NULL)) {
        return sxr_refuse_machine(cx, module);
    }
    if (!program->runs_here) {
        program->machine.level[info->arch] = info->level;
    }
    return check_launches(cx, program);
}

sx_code sxr_choose_machine(sx_ctx *cx, sxr_program *program, uint32_t level)
{
    const sx_module_info *info = program->module.info;
    const char *name = sx_level_name(info->arch, level);
    const sx_machine *machine = name != NULL ? sx_machine_find(program->machines, name) : NULL;
    if (level < info->level || machine == NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "module is for %s, not for %s",
                       sx_level_name(info->arch, info->level), name != NULL ? name : "unknown");
    }
    program->made_for = machine;
    program->machine.level[info->arch] = level;
    sxr_extents_follow(program);
    return SX_OK;
}

static bool on_gpu(const sxr_program *program)
{
    return program->runs_here && program->module.info->arch == SX_ARCH_NVIDIA;
}

/* What each program has for itself, also where it shares the rest. */
static sx_code make_own(sx_ctx *cx, sxr_program *program)
{
    SX_TRY(make_arrays(cx, program));
    SX_TRY(on_gpu(program) ? sxr_device_open(cx, program) : map_memory(cx, program));
    place_all(program);
    find_packed(program);
    sxr_state_reset(program);
    sxr_extents_init(program);
    return SX_OK;
}

static sx_code finish_open(sx_ctx *cx, sxr_program *program, const sxr_options *options)
{
    SX_TRY(sx_module_decode(cx, (sx_span){program->file, program->file_size},
                            !options->skip_checksums, &program->module));
    program->machines = options->machines;
    program->way = &sxr_way_cpu;
    SX_TRY(check_machine(cx, program, options->any_level));
    SX_TRY(check_types(cx, &program->module));
    SX_TRY(sxr_check_code(cx, program->machines, &program->module));
    if (program->runs_here && !on_gpu(program)) {
        SX_TRY(map_code(cx, program));
    }
    SX_TRY(sxr_pool_new(cx, sxr_pool_usable(options->threads), &program->pool));
    SX_TRY(make_own(cx, program));
    return sxr_take_weights(cx, program, options);
}

/* ---- opening ---- */

static sx_code open_mapping(sx_ctx *cx, SX_TAKE void *mapping, size_t size,
                            const sxr_options *options, sxr_program **out)
{
    static const sxr_options defaults = {0};
    sxr_program *program = calloc(1, sizeof(*program));
    _Atomic uint32_t *users = calloc(1, sizeof(*users));
    if (program == NULL || users == NULL) {
        free(program);
        free(users);
        (void)munmap(mapping, size);
        return SX_FAIL(cx, SX_NOMEM, "no memory for %zu bytes", sizeof(*program));
    }
    atomic_init(users, 1);
    program->users = users;
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
        return SX_FAIL(cx, SX_INPUT, "%s: %s", path, strerror(errno));
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
    SX_TRY(code);
    code = open_mapping(cx, mapping, (size_t)status.st_size, options, program);
    return code == SX_OK ? SX_OK : sx_fail_in(cx, "%s", path);
}

/* What opening has made of weights that nobody has in memory any more; no run changes it. */
static void copy_opening(const sxr_program *from, sxr_program *to)
{
    const sx_module_info *info = from->module.info;
    if (from->as_opened && info->persistent_bytes > 0) {
        uint64_t at = whole_pages(info->arena_bytes);
        sxr_pages_touch(to->memory + at, (size_t)info->persistent_bytes);
        memcpy(to->memory + at, from->memory + at, (size_t)info->persistent_bytes);
    }
    if (from->as_opened) {
        SX_ASSERT(from->variant == to->variant);
        to->prologue_done[to->variant] = to->as_opened = true;
    }
}

sx_code sxr_share(sx_ctx *cx, const sxr_program *program, sxr_program **another)
{
    sxr_program *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %zu bytes", sizeof(*made));
    }
    made->module = program->module;
    made->file = program->file;
    made->file_size = program->file_size;
    made->code = program->code;
    made->code_size = program->code_size;
    made->weights = program->weights;
    made->pool = program->pool;
    made->users = program->users;
    atomic_fetch_add(made->users, 1);
    made->way = &sxr_way_cpu;
    made->machines = program->machines;
    made->made_for = program->made_for;
    made->runs_here = program->runs_here;
    made->here = program->here;
    made->machine = program->machine;
    sx_code code = make_own(cx, made);
    if (code != SX_OK) {
        sxr_close(made);
        return code;
    }
    copy_opening(program, made);
    *another = made;
    return SX_OK;
}

/* What programs share goes with the last of them. */
static void close_shared(sxr_program *program)
{
    if (atomic_fetch_sub(program->users, 1) != 1) {
        return;
    }
    sxr_pool_free(program->pool);
    if (program->code != NULL) {
        (void)munmap(program->code, program->code_size);
    }
    (void)munmap(program->file, program->file_size);
    sxr_weights_free(program->weights);
    free(program->users);
}

void sxr_close(sxr_program *program)
{
    if (program == NULL) {
        return;
    }
    sxr_forget(program);
    sxr_device_close(program);
    close_shared(program);
    sxr_pages_free(program->memory, program->memory_size);
    free(program->tensor);
    free(program->prologue_done);
    free(program->made);
    free(program->packed);
    free(program->value);
    free(program->bytes);
    free(program->dim);
    free(program->part);
    free(program->part_case);
    free(program->number);
    free(program->rounds);
    free(program->habit);
    free(program->opening_ns);
    free(program);
}
