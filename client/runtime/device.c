/* device.c - a program on a GPU: which one, the memory there, copies to and from it, a run. */
#include <stdlib.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "client/runtime/device_inside.h"

/* Workspaces of all warps of a launch: they are as many as fit, and run more points each. */
#define WORKSPACE_BYTES_MAX (UINT64_C(256) << 20)
#define BLOCKS_MAX 64u /* of workspaces, for each multiprocessor */
#define ALIGN 256u     /* of each tensor, as the driver aligns memory */

/* ---- which GPU ---- */

static bool is_gpu(const sx_machine *machine)
{
    return machine != NULL && strcmp(machine->family, sx_arch_name(SX_ARCH_NVIDIA)) == 0;
}

bool sxr_device_wanted(const sx_module *module, const sx_machine *machine)
{
    bool ptx = module->info->arch == SX_ARCH_NVIDIA && is_gpu(machine);
    for (uint64_t k = 0; ptx && k < module->kernel_count; k++) {
        ptx = module->kernel[k].arch != SX_ARCH_NVIDIA || module->kernel[k].form == SX_FORM_PTX;
    }
    return ptx;
}

sx_code sxr_device_find(sx_ctx *cx, const sx_module *module, uint32_t *capability)
{
    sxg_info info;
    SX_ASSERT(module->info->arch == SX_ARCH_NVIDIA && capability != NULL);
    sx_code code = sxg_find(cx, module->info->level, &info);
    if (code == SX_OK) {
        *capability = info.capability;
        return SX_OK;
    }
    if (code == SX_ABSENT) { /* of a GPU, not of what the caller asked for */
        cx->error.code = SX_UNIMPLEMENTED;
    }
    return sx_fail_in(cx, "module is for %s",
                      sx_level_name(module->info->arch, module->info->level));
}

bool sxr_machine_executes(const sx_machine *machine)
{
    sx_ctx cx;
    sxg_info info;
    if (!is_gpu(machine)) {
        return sxr_cpu_executes(machine);
    }
    sx_ctx_init(&cx, 1 << 16);
    bool there = sxg_find(&cx, machine->level, &info) == SX_OK;
    sx_ctx_fini(&cx);
    return there;
}

const char *sxr_gpu(const sxr_program *program)
{
    return program->device != NULL ? sxg_info_of(program->device->gpu)->name : NULL;
}

sxg_gpu *sxr_gpu_of(const sxr_program *program)
{
    return program->device != NULL ? program->device->gpu : NULL;
}

int sxr_gpu_ordinal(const sxr_program *program)
{
    return program->device != NULL ? sxg_info_of(program->device->gpu)->ordinal : -1;
}

/* ---- memory ---- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Places of tensors within their areas; the bytes of those that a caller binds. */
static uint64_t place_tensors(sxr_program *program)
{
    const sx_module *module = &program->module;
    uint64_t persistent = aligned(module->info->arena_bytes);
    uint64_t state = persistent + aligned(module->info->persistent_bytes);
    uint64_t bound = 0;
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        uint64_t *at = &program->device->at[i];
        switch ((sx_module_place)tensor->place) {
        case SX_TENSOR_TEMPORARY: *at = tensor->offset; break;
        case SX_TENSOR_PERSISTENT: *at = persistent + tensor->offset; break;
        case SX_TENSOR_STATE: *at = state + tensor->offset; break;
        case SX_TENSOR_CONSTANT: *at = tensor->offset; break;
        case SX_TENSOR_WEIGHT:
        case SX_TENSOR_INPUT:
        case SX_TENSOR_OUTPUT:
            *at = bound;
            bound += tensor->alias == SX_MODULE_NONE ? aligned(tensor->size) : 0;
            break;
        case SX_TENSOR_PLACE_COUNT: SX_UNREACHABLE();
        }
    }
    return bound;
}

/* Addresses instead of places. */
static void add_bases(sxr_program *program)
{
    const sx_module *module = &program->module;
    const struct sxr_device *d = program->device;
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        sx_module_place place = (sx_module_place)module->tensor[i].place;
        bool kept = place == SX_TENSOR_TEMPORARY || place == SX_TENSOR_PERSISTENT ||
                    place == SX_TENSOR_STATE;
        d->at[i] += kept ? d->kept : place == SX_TENSOR_CONSTANT ? d->constants : d->bound;
    }
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        uint32_t alias = module->tensor[i].alias;
        d->at[i] = alias != SX_MODULE_NONE ? d->at[alias] : d->at[i];
        d->own[i] = d->at[i];
    }
}

static sx_code alloc_some(sx_ctx *cx, struct sxr_device *d, const char *what, uint64_t bytes,
                          uint64_t *at)
{
    return bytes == 0 ? SX_OK : sxg_alloc(cx, d->gpu, what, bytes, at);
}

static sx_code alloc_memory(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = &program->module;
    const sx_module_info *info = module->info;
    struct sxr_device *d = program->device;
    uint64_t bound = place_tensors(program);
    uint64_t kept =
        aligned(info->arena_bytes) + aligned(info->persistent_bytes) + aligned(info->state_bytes);
    SX_TRY(alloc_some(cx, d, "temporaries and state", kept, &d->kept));
    SX_TRY(alloc_some(cx, d, "constants", module->constants_count, &d->constants));
    SX_TRY(alloc_some(cx, d, "weights, inputs and outputs", bound, &d->bound));
    if (info->workspace_bytes > 0) {
        uint64_t most = (uint64_t)sxg_info_of(d->gpu)->processors * BLOCKS_MAX * SXR_WARPS;
        uint64_t warps =
            sxr_least(WORKSPACE_BYTES_MAX / info->workspace_bytes, most) / SXR_WARPS * SXR_WARPS;
        d->workspace_warps = warps > 0 ? warps : SXR_WARPS;
        SX_TRY(alloc_some(cx, d, "workspaces", d->workspace_warps * info->workspace_bytes,
                          &d->workspace));
    }
    add_bases(program);
    return sxg_upload(cx, d->gpu, d->constants, module->constants, module->constants_count);
}

sx_code sxr_device_open(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = &program->module;
    struct sxr_device *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %zu bytes", sizeof(*d));
    }
    program->device = d;
    program->way = &sxr_way_gpu;
    d->at = calloc((size_t)module->tensor_count + 1, sizeof(*d->at));
    d->own = calloc((size_t)module->tensor_count + 1, sizeof(*d->own));
    d->lent = calloc((size_t)module->tensor_count + 1, sizeof(*d->lent));
    d->stale = calloc((size_t)module->tensor_count + 1, sizeof(*d->stale));
    d->part = calloc((size_t)module->part_count + 1, sizeof(*d->part));
    d->code = calloc((size_t)module->kernel_count + 1, sizeof(*d->code));
    if (d->at == NULL || d->own == NULL || d->lent == NULL || d->stale == NULL || d->part == NULL ||
        d->code == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for the records of a GPU");
    }
    SX_TRY(sxg_open(cx, module->info->level, &d->gpu));
    SX_TRY(sxg_enter(cx, d->gpu));
    sx_code code = alloc_memory(cx, program);
    sxg_leave(d->gpu);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        uint32_t place = module->tensor[i].place;
        d->stale[i] = place == SX_TENSOR_WEIGHT || place == SX_TENSOR_STATE;
    }
    return code;
}

void sxr_device_close(sxr_program *program)
{
    struct sxr_device *d = program->device;
    if (d == NULL) {
        return;
    }
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 12);
    /* What a lost GPU held is gone; giving it back is asked for all the same. */
    bool entered = d->gpu != NULL && sxg_enter(&cx, d->gpu) == SX_OK;
    if (entered && sxg_follow_own(&cx, d->gpu) == SX_OK) { /* runs that were marked use its code */
        (void)sxg_sync(&cx, d->gpu);
    }
    for (uint64_t k = 0; d->gpu != NULL && d->code != NULL && k < program->module.kernel_count;
         k++) {
        sxg_unload(d->gpu, d->code[k]);
    }
    const uint64_t area[] = {d->kept, d->constants, d->bound, d->workspace};
    for (uint32_t i = 0; i < SX_COUNT(area); i++) {
        sxg_free(d->gpu, area[i]);
    }
    if (entered) {
        sxg_leave(d->gpu);
    }
    sx_ctx_fini(&cx);
    sxg_close(d->gpu);
    free(d->at);
    free(d->own);
    free(d->lent);
    free(d->stale);
    free(d->part);
    free(d->code);
    free(d);
    program->device = NULL;
}

/* ---- a run ---- */

/* Makes the GPU current, and its own stream wait for runs on streams of the caller that were marked. */
static sx_code enter(sx_ctx *cx, const sxr_program *program)
{
    sxg_gpu *gpu = program->device->gpu;
    SX_TRY(sxg_enter(cx, gpu));
    sx_code code = sxg_follow_own(cx, gpu);
    if (code != SX_OK) {
        sxg_leave(gpu);
    }
    return code;
}

static sx_code upload_state(sx_ctx *cx, sxr_program *program, uint32_t index)
{
    const sx_module_tensor *tensor = &program->module.tensor[index];
    struct sxr_device *d = program->device;
    if (tensor->initial == UINT64_MAX) {
        return sxg_fill(cx, d->gpu, d->at[index], tensor->size, 0, 1);
    }
    return sxg_upload(cx, d->gpu, d->at[index], program->module.constants + tensor->initial,
                      tensor->size);
}

/* What all runs use: weights and state, where they are not there yet. */
static sx_code upload_kept(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = &program->module;
    struct sxr_device *d = program->device;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (!d->stale[i]) {
            continue;
        }
        if (module->tensor[i].place == SX_TENSOR_STATE) {
            SX_TRY(upload_state(cx, program, i));
        } else {
            SX_ASSERT(module->tensor[i].place == SX_TENSOR_WEIGHT && !d->lent[i]);
            SX_TRY(sxg_upload(cx, d->gpu, d->at[i], program->tensor[i], program->bytes[i]));
        }
        d->stale[i] = false;
    }
    return SX_OK;
}

/* Inputs of this run, and outputs, too: a kernel may add to what is there, or leave some of it as it was. */
static sx_code upload(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = &program->module;
    struct sxr_device *d = program->device;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        uint32_t place = module->tensor[i].place;
        bool own = place == SX_TENSOR_OUTPUT && module->tensor[i].alias == SX_MODULE_NONE;
        if ((place == SX_TENSOR_INPUT || own) && !d->lent[i]) {
            SX_TRY(sxg_upload(cx, d->gpu, d->at[i], program->tensor[i], program->bytes[i]));
        }
    }
    return SX_OK;
}

static sx_code download(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = &program->module;
    struct sxr_device *d = program->device;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == SX_TENSOR_OUTPUT && !d->lent[i]) {
            SX_TRY(sxg_download(cx, d->gpu, program->tensor[i], d->at[i], program->bytes[i]));
        }
    }
    return SX_OK;
}

static sx_code begin(sx_ctx *cx, sxr_program *program)
{
    SX_TRY(enter(cx, program));
    sx_code code = sxr_device_load(cx, program);
    code = code == SX_OK ? upload_kept(cx, program) : code;
    code = code == SX_OK ? upload(cx, program) : code;
    if (code != SX_OK) {
        sxg_leave(program->device->gpu);
    }
    return code;
}

static sx_code end(sx_ctx *cx, sxr_program *program, sx_code code)
{
    sxg_gpu *gpu = program->device->gpu;
    code = code == SX_OK ? download(cx, program) : code;
    code = code == SX_OK ? sxg_sync(cx, gpu) : code;
    sxg_leave(gpu);
    return code;
}

static sx_code run_launch(sx_ctx *cx, sxr_program *program, uint32_t index)
{
    const sx_module *module = &program->module;
    const sx_module_launch *launch = &module->launch[index];
    const struct sxr_device *d = program->device;
    const uint32_t *arg = &module->arg[launch->arg_first];
    switch ((sx_module_launch_kind)launch->kind) {
    case SX_LAUNCH_KERNEL: {
        const sx_module_kernel *kernel = &module->kernel[launch->kernel];
        for (uint32_t p = 0; p < kernel->part_count; p++) {
            SX_TRY(sxr_device_run_part(cx, program, launch, kernel->part_first + p));
        }
        return SX_OK;
    }
    case SX_LAUNCH_COPY:
        return sxg_copy(cx, d->gpu, d->at[arg[1]], d->at[arg[0]], program->bytes[arg[1]]);
    case SX_LAUNCH_FILL:
        return sxg_fill(cx, d->gpu, d->at[arg[0]], program->bytes[arg[0]], launch->value,
                        module->tensor[arg[0]].element_bytes);
    case SX_LAUNCH_SLICE:
        return sxg_copy(cx, d->gpu, d->at[arg[1]],
                        d->at[arg[0]] + program->round * program->bytes[arg[1]],
                        program->bytes[arg[1]]);
    case SX_LAUNCH_ROW:
        return sxg_copy(cx, d->gpu, d->at[arg[1]] + program->round * program->bytes[arg[0]],
                        d->at[arg[0]], program->bytes[arg[0]]);
    case SX_LAUNCH_LOOP: /* the walk goes through them */
    case SX_LAUNCH_BRANCH:
    case SX_LAUNCH_WHILE:
    case SX_LAUNCH_COLLECTIVE: /* refused when the module was opened */
    case SX_LAUNCH_HOST:
    case SX_LAUNCH_KIND_COUNT: break;
    }
    SX_UNREACHABLE();
}

static sx_code launch_timed(sx_ctx *cx, sxr_program *program, uint32_t index, uint64_t *ns)
{
    sxg_gpu *gpu = program->device->gpu;
    uint64_t taken = 0;
    SX_TRY(ns != NULL ? sxg_time_begin(cx, gpu) : SX_OK);
    SX_TRY(run_launch(cx, program, index));
    if (ns != NULL) {
        SX_TRY(sxg_time_end(cx, gpu, &taken));
        *ns += taken;
    }
    return SX_OK;
}

/* The host waits for what was launched before. */
static sx_code ask(sx_ctx *cx, sxr_program *program, uint32_t tensor, bool *truth)
{
    const struct sxr_device *d = program->device;
    uint8_t byte = 0;
    SX_TRY(sxg_download(cx, d->gpu, &byte, d->at[tensor], sizeof(byte)));
    SX_TRY(sxg_sync(cx, d->gpu));
    *truth = byte != 0;
    return SX_OK;
}

static sx_code count_round(sx_ctx *cx, sxr_program *program, uint32_t tensor, uint64_t round)
{
    const struct sxr_device *d = program->device;
    return sxg_fill(cx, d->gpu, d->at[tensor], sizeof(round), round, sizeof(round));
}

const sxr_way sxr_way_gpu = {
    .begin = begin, .launch = launch_timed, .count_round = count_round, .ask = ask, .end = end};

/* ---- a run in parts: what comes before, and launches on a stream of the caller ---- */

sx_code sxr_device_prepare_begin(sx_ctx *cx, sxr_program *program)
{
    SX_TRY(enter(cx, program));
    sx_code code = sxr_device_load(cx, program);
    code = code == SX_OK ? upload_kept(cx, program) : code;
    if (code != SX_OK) {
        sxg_leave(program->device->gpu);
    }
    return code;
}

sx_code sxr_device_prepare_end(sx_ctx *cx, sxr_program *program, sx_code code)
{
    sxg_gpu *gpu = program->device->gpu;
    code = code == SX_OK ? sxg_sync(cx, gpu) : code;
    sxg_leave(gpu);
    return code;
}

sx_code sxr_device_check_prepared(sx_ctx *cx, const sxr_program *program)
{
    const sx_module *module = &program->module;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        sx_span name = sx_module_string(module, module->tensor[i].name);
        if (program->device->stale[i]) {
            return SX_FAIL(cx, SX_USAGE,
                           "the module is not prepared: tensor %.*s is not on the GPU",
                           (int)sx_min_i64((int64_t)name.len, 200), (const char *)name.ptr);
        }
    }
    if (!program->prologue_done[program->variant]) {
        return SX_FAIL(cx, SX_USAGE,
                       "the module is not prepared: its weights were bound, or its "
                       "extents chosen, after that");
    }
    return SX_OK;
}

sx_code sxr_device_check_enqueue(sx_ctx *cx, const sxr_program *program)
{
    const sx_module *module = &program->module;
    SX_TRY(sxr_device_check_prepared(cx, program));
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        uint32_t place = module->tensor[i].place;
        sx_span name = sx_module_string(module, module->tensor[i].name);
        bool each_run = place == SX_TENSOR_INPUT || place == SX_TENSOR_OUTPUT;
        if (each_run && !program->device->lent[i] && module->tensor[i].size > 0) {
            return SX_FAIL(cx, SX_INPUT, "tensor %.*s is not bound to memory of the GPU",
                           (int)sx_min_i64((int64_t)name.len, 200), (const char *)name.ptr);
        }
    }
    return SX_OK;
}

sx_code sxr_device_enter(sx_ctx *cx, sxr_program *program, void *stream)
{
    return sxg_enter_stream(cx, program->device->gpu, stream);
}

void sxr_device_leave(sxr_program *program)
{
    sxg_leave(program->device->gpu);
}

sx_code sxr_device_graph_begin(sx_ctx *cx, sxr_program *program)
{
    sxg_gpu *gpu = program->device->gpu;
    SX_TRY(sxg_enter(cx, gpu));
    sx_code code = sxg_graph_begin(cx, gpu);
    if (code != SX_OK) {
        sxg_leave(gpu);
    }
    return code;
}

sx_code sxr_device_graph_end(sx_ctx *cx, sxr_program *program, sx_code code, void **graph)
{
    return sxg_graph_end(cx, program->device->gpu, code, graph);
}

/* One launch, and the time that the GPU needs for it. */
static sx_code time_graph(sx_ctx *cx, sxg_gpu *gpu, void *graph, uint64_t *ns)
{
    SX_TRY(sxg_time_begin(cx, gpu));
    SX_TRY(sxg_graph_launch(cx, gpu, graph));
    return sxg_time_end(cx, gpu, ns);
}

sx_code sxr_device_graph_time(sx_ctx *cx, sxr_program *program, sx_code code, void *graph,
                              uint32_t count, uint64_t *ns)
{
    sxg_gpu *gpu = program->device->gpu;
    uint64_t first;
    code = code == SX_OK ? time_graph(cx, gpu, graph, &first) : code; /* uploads the graph */
    for (uint32_t i = 0; code == SX_OK && i < count; i++) {
        code = time_graph(cx, gpu, graph, &ns[i]);
    }
    sxg_graph_free(gpu, graph);
    sxg_leave(gpu);
    return code;
}

/* ---- binding and state ---- */

/* Where a tensor lies from now on, and an output in its place. */
static void move(sxr_program *program, uint32_t tensor, bool lent, uint64_t address)
{
    const sx_module *module = &program->module;
    struct sxr_device *d = program->device;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (i == tensor || module->tensor[i].alias == tensor) {
            d->lent[i] = lent;
            d->at[i] = lent ? address : d->own[i];
        }
    }
}

void sxr_device_bound(sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(tensor < program->module.tensor_count);
    move(program, tensor, false, 0);
    program->device->stale[tensor] = program->module.tensor[tensor].place == SX_TENSOR_WEIGHT;
}

bool sxr_device_has(const sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(tensor < program->module.tensor_count);
    return program->device->lent[tensor];
}

uint64_t sxr_device_address(const sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(program->device != NULL && tensor < program->module.tensor_count);
    return program->device->at[tensor];
}

sx_code sxr_device_bind(sx_ctx *cx, sxr_program *program, uint32_t tensor, uint64_t address)
{
    struct sxr_device *d = program->device;
    uint32_t alias = program->module.tensor[tensor].alias;
    sx_span name = sx_module_string(&program->module, program->module.tensor[tensor].name);
    int shown = (int)sx_min_i64((int64_t)name.len, 200);
    if (address % SXR_DEVICE_ALIGN != 0) {
        sx_hint(cx,
                "Memory as the driver gives it is aligned; a piece out of the middle of it need "
                "not be, and is copied first.");
        return SX_FAIL(cx, SX_INPUT, "tensor %.*s: 0x%llx is not a multiple of %u", shown,
                       (const char *)name.ptr, (unsigned long long)address, SXR_DEVICE_ALIGN);
    }
    if (alias != SX_MODULE_NONE && (!d->lent[alias] || d->at[alias] != address)) {
        sx_span input = sx_module_string(&program->module, program->module.tensor[alias].name);
        return SX_FAIL(cx, SX_INPUT, "output %.*s lies in the memory of input %.*s: bind that",
                       shown, (const char *)name.ptr, (int)sx_min_i64((int64_t)input.len, 200),
                       (const char *)input.ptr);
    }
    if (sxg_check_address(cx, d->gpu, address) != SX_OK) {
        return sx_fail_in(cx, "tensor %.*s", shown, (const char *)name.ptr);
    }
    move(program, tensor, true, address);
    d->stale[tensor] = false;
    return SX_OK;
}

void sxr_device_state_reset(sxr_program *program)
{
    for (uint32_t i = 0; i < program->module.tensor_count; i++) {
        if (program->module.tensor[i].place == SX_TENSOR_STATE) {
            program->device->stale[i] = true;
        }
    }
}

sx_code sxr_device_state_read(sx_ctx *cx, const sxr_program *program, uint32_t tensor, void *memory,
                              uint64_t size)
{
    const struct sxr_device *d = program->device;
    uint64_t initial = program->module.tensor[tensor].initial;
    if (d->stale[tensor] && initial != UINT64_MAX) { /* its first value: no run has seen it yet */
        memcpy(memory, program->module.constants + initial, (size_t)size);
        return SX_OK;
    }
    if (d->stale[tensor]) {
        memset(memory, 0, (size_t)size);
        return SX_OK;
    }
    SX_TRY(enter(cx, program));
    sx_code code = sxg_download(cx, d->gpu, memory, d->at[tensor], size);
    code = code == SX_OK ? sxg_sync(cx, d->gpu) : code;
    sxg_leave(d->gpu);
    return code;
}

sx_code sxr_device_state_write(sx_ctx *cx, sxr_program *program, uint32_t tensor,
                               const void *memory, uint64_t size)
{
    const struct sxr_device *d = program->device;
    SX_TRY(enter(cx, program));
    sx_code code = sxg_upload(cx, d->gpu, d->at[tensor], memory, size);
    code = code == SX_OK ? sxg_sync(cx, d->gpu) : code;
    sxg_leave(d->gpu);
    d->stale[tensor] = code != SX_OK && d->stale[tensor];
    return code;
}
