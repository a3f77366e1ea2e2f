/* device_code.c - the code of a program on a GPU: loaded by the driver, launched over grids. */
#include <string.h>

#include "client/runtime/cubin.h"
#include "client/runtime/device_inside.h"
#include "client/runtime/maps.h"
#include "core/base/grid.h"
#include "core/nvidia/code.h"

/* Is the kernel of the text one for these buffers, and so many numbers behind all else? A vector program may have a
 * workspace, and takes the points; a block program takes maps. */
static bool fits(const sx_ptx_kernel *found, uint32_t buffers, uint32_t maps, uint32_t numbers,
                 bool block)
{
    uint32_t least = buffers + numbers + (block ? maps : 2), most = least + (block ? 0 : 1);
    return found != NULL && found->parameter_count >= least && found->parameter_count <= most;
}

static sx_code load_part(sx_ctx *cx, sxr_program *program, const sx_module_kernel *kernel,
                         uint32_t index, const sx_ptx_module *ptx, sx_span blob, void *code)
{
    struct sxr_device *d = program->device;
    const sx_module_part *part = &program->module.part[index];
    sx_nvidia_code at;
    char name[128];
    bool block = part->threads > 0;
    uint64_t entry = part->entry - kernel->code_offset;
    SX_TRY(sx_nvidia_code_at(cx, blob, (uint32_t)entry, &at));
    const sx_ptx_kernel *found = sx_nvidia_find_kernel(ptx, at.name);
    uint32_t maps, numbers = sx_module_part_numbers(&program->module, index);
    (void)sx_module_maps_of(&program->module, index, &maps);
    if (!fits(found, kernel->arg_count, maps, numbers, block) || at.name.len >= sizeof(name)) {
        return SX_FAIL(cx, SX_CORRUPT, "PTX at %llu: not an entry for %u buffers",
                       (unsigned long long)entry, kernel->arg_count);
    }
    memcpy(name, at.name.ptr, at.name.len);
    name[at.name.len] = '\0';
    d->part[index].workspace = !block && found->parameter_count > kernel->arg_count + 2 + numbers;
    uint32_t threads = block ? part->threads : SXR_WARPS * SXR_LANES;
    return sxg_function_find(cx, d->gpu, code, name, threads, part->shared_bytes,
                             &d->part[index].function);
}

static sx_code load_kernel(sx_ctx *cx, sxr_program *program, uint32_t index)
{
    const sx_module *module = &program->module;
    const sx_module_kernel *kernel = &module->kernel[index];
    struct sxr_device *d = program->device;
    sx_span blob = {module->code + kernel->code_offset, (size_t)kernel->code_size};
    sx_nvidia_code first;
    sx_ptx_module *ptx;
    uint64_t entry = module->part[kernel->part_first].entry - kernel->code_offset;
    SX_TRY(sx_nvidia_code_at(cx, blob, (uint32_t)entry, &first));
    SX_TRY(sx_ptx_parse(cx, first.text, &ptx));
    const sxg_info *gpu = sxg_info_of(d->gpu);
    if (ptx->feature != 0 && ptx->target != gpu->capability) {
        return SX_FAIL(
            cx, SX_UNIMPLEMENTED,
            "code for sm_%u%c, which GPUs of capability %u.%u alone execute; GPU %d (%s) has "
            "%u.%u",
            ptx->target, ptx->feature, ptx->target / 10, ptx->target % 10, gpu->ordinal, gpu->name,
            gpu->capability / 10, gpu->capability % 10);
    }
    sx_span cubin = sxr_cubin_for(module, index, gpu->capability, gpu->driver);
    SX_TRY(cubin.len > 0 ? sxg_load_cubin(cx, d->gpu, cubin, &d->code[index])
                         : sxg_load(cx, d->gpu, first.text, &d->code[index]));
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        SX_TRY(load_part(cx, program, kernel, kernel->part_first + p, ptx, blob, d->code[index]));
    }
    return SX_OK;
}

sx_code sxr_device_load(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = &program->module;
    const sx_module_variant *variant = &module->variant[program->variant];
    for (uint32_t i = 0; i < variant->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[variant->launch_first + i];
        if (launch->kind == SX_LAUNCH_KERNEL && program->device->code[launch->kernel] == NULL) {
            sx_code code = load_kernel(cx, program, launch->kernel);
            if (code != SX_OK) {
                sxg_unload(program->device->gpu, program->device->code[launch->kernel]);
                program->device->code[launch->kernel] = NULL;
                return sx_fail_in(cx, "kernel %u", launch->kernel);
            }
        }
    }
    return SX_OK;
}

/* ---- launches ---- */

/* Where the values of the parameters lie. */
typedef struct {
    sxg_encoded_map map[SX_MODULE_MAPS_MAX];
    uint64_t pointer[SX_MODULE_ARGS_MAX + 1];
    uint32_t first, count;
    int64_t number[SX_MODULE_NUMBERS_MAX];
    void *parameter[SX_MODULE_ARGS_MAX + 3 + SX_MODULE_NUMBERS_MAX];
    uint32_t n;
} parameters;

static void give(parameters *p, void *value)
{
    SX_ASSERT(p->n < SX_COUNT(p->parameter));
    p->parameter[p->n++] = value;
}

static void give_buffers(const sxr_program *program, const sx_module_launch *launch, parameters *p)
{
    p->n = 0;
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        p->pointer[k] = program->device->at[program->module.arg[launch->arg_first + k]];
        give(p, &p->pointer[k]);
    }
}

/* Behind the buffers: what the copy engine reads, where it lies in this launch. */
static sx_code give_maps(sx_ctx *cx, sxr_program *program, const sx_module_launch *launch,
                         uint32_t part, parameters *p)
{
    uint32_t count, numbers;
    const sx_module_map *map = sx_module_maps_of(&program->module, part, &count);
    const int64_t *number = sxr_part_numbers(program, part, &numbers);
    SX_ASSERT(count <= SX_COUNT(p->map) && p->n == launch->arg_count);
    for (uint32_t i = 0; i < count; i++) {
        sxg_map at;
        sxr_map_at(&map[i], number, p->pointer[map[i].arg], &at);
        if (sxg_map_encode(cx, program->device->gpu, &at, &p->map[i]) != SX_OK) {
            return sx_fail_in(cx, "kernel %u, argument %u", launch->kernel, map[i].arg);
        }
        give(p, &p->map[i]);
    }
    return SX_OK;
}

/* Last of all: the numbers that follow the extents of this run. */
static void give_numbers(const sxr_program *program, uint32_t part, parameters *p)
{
    uint32_t count;
    const int64_t *number = sxr_part_numbers(program, part, &count);
    SX_ASSERT(count <= SX_COUNT(p->number));
    for (uint32_t k = 0; k < count; k++) {
        p->number[k] = number[k];
        give(p, &p->number[k]);
    }
}

/* A block for each point, or those that walk over them. */
static sx_code run_blocks(sx_ctx *cx, sxr_program *program, const sx_module_launch *launch,
                          uint32_t index)
{
    const sx_module_part *part = &program->part[index];
    parameters p;
    uint32_t blocks[3];
    sx_grid_launched_by(part->grid, part->walkers, blocks);
    const sxg_dim grid = {blocks[0], blocks[1], blocks[2]};
    const sxg_dim block = {part->threads, 1, 1};
    give_buffers(program, launch, &p);
    SX_TRY(give_maps(cx, program, launch, index, &p));
    give_numbers(program, index, &p);
    return sxg_launch(cx, program->device->gpu, &program->device->part[index].function, grid, block,
                      p.parameter);
}

/* The points spread over the warps of as many blocks as the GPU holds at once. */
static sx_code run_points(sx_ctx *cx, sxr_program *program, const sx_module_launch *launch,
                          uint32_t index, uint64_t points)
{
    const struct sxr_device *d = program->device;
    const sxr_entry *entry = &d->part[index];
    parameters p = {.count = (uint32_t)points};
    if (points > UINT64_C(1) << 31) {
        return SX_FAIL(cx, SX_LIMIT, "kernel %u: a grid of %llu points, at most 2^31",
                       launch->kernel, (unsigned long long)points);
    }
    uint64_t blocks = sxr_least((points + SXR_WARPS - 1) / SXR_WARPS, entry->function.blocks_max);
    give_buffers(program, launch, &p);
    if (entry->workspace) {
        SX_ASSERT(d->workspace != 0);
        p.pointer[launch->arg_count] = d->workspace;
        give(&p, &p.pointer[launch->arg_count]);
        blocks = sxr_least(blocks, d->workspace_warps / SXR_WARPS);
    }
    give(&p, &p.first);
    give(&p, &p.count);
    give_numbers(program, index, &p);
    return sxg_launch(cx, d->gpu, &entry->function, (sxg_dim){(uint32_t)blocks, 1, 1},
                      (sxg_dim){SXR_LANES, SXR_WARPS, 1}, p.parameter);
}

sx_code sxr_device_run_part(sx_ctx *cx, sxr_program *program, const sx_module_launch *launch,
                            uint32_t index)
{
    const sx_module_part *part = &program->part[index];
    uint64_t points = (uint64_t)(part->grid[0] * part->grid[1] * part->grid[2]);
    SX_ASSERT(program->device->part[index].function.handle != NULL);
    if (points == 0) {
        return SX_OK;
    }
    return part->threads > 0 ? run_blocks(cx, program, launch, index)
                             : run_points(cx, program, launch, index, points);
}
