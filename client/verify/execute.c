#include "client/verify/execute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "client/runtime/maps.h"
#include "client/verify/cover.h"

sx_code sxr_executor_make(sx_ctx *cx, const sx_targets *targets, sxr_program *program,
                          sxr_executor *executor)
{
    *executor = (sxr_executor){.cx = cx, .program = program};
    bool here = sxr_runs_here(program) || sxr_module(program)->code_count == 0;
    return here ? SX_OK : sxr_executor_emulate(cx, targets, program, executor);
}

sx_code sxr_executor_emulate(sx_ctx *cx, const sx_targets *targets, sxr_program *program,
                             sxr_executor *executor)
{
    const sx_module *module = sxr_module(program);
    *executor = (sxr_executor){.cx = cx, .program = program};
    uint32_t *entry = SX_NEW_ARRAY(cx, uint32_t, (size_t)module->part_count + 1);
    executor->workspace = SX_NEW_ARRAY(cx, uint8_t, (size_t)module->info->workspace_bytes + 1);
    if (entry == NULL || executor->workspace == NULL) {
        return cx->error.code;
    }
    for (uint64_t i = 0; i < module->part_count; i++) {
        entry[i] = (uint32_t)module->part[i].entry; /* opening the module has checked it */
    }
    const sx_target *target = sx_target_of(targets, sxr_machine(program));
    SX_ASSERT(target != NULL);
    executor->target = target;
    return target->emulator_make(cx, target, (sx_span){module->code, (size_t)module->code_count},
                                 entry, (uint32_t)module->part_count, &executor->emulator);
}

/* The ends of a grid whose points are clusters of points that run together, `cluster` of them along each index. */
typedef struct {
    int64_t grid[3], index[SXV_ENDS_MAX][3];
    int64_t cluster[3];
    uint32_t count;
} sxv_ends;

typedef struct {
    sxr_executor *executor;
    const sx_module_kernel *kernel;
    uint32_t launch, buffer_count;
    sx_region buffer[SX_REGIONS_MAX], workspace;
    char name[SX_REGIONS_MAX][32];
    int64_t points;         /* of all parts */
    bool walks;             /* blocks walk over them */
    sx_emulated_path *path; /* NULL: not wanted */
} emulation;

static void prepare(emulation *e, sxr_executor *executor, uint32_t index, void *const *buffer)
{
    const sx_module *module = sxr_module(executor->program);
    const sx_module_launch *launch = &module->launch[index];
    SX_ASSERT(launch->arg_count > 0 && launch->arg_count <= SX_REGIONS_MAX);
    e->executor = executor;
    e->launch = index;
    e->kernel = &module->kernel[launch->kernel];
    e->buffer_count = launch->arg_count;
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        uint32_t tensor = module->arg[launch->arg_first + k];
        (void)snprintf(e->name[k], sizeof(e->name[k]), "tensor %u", tensor);
        e->buffer[k] = (sx_region){.name = e->name[k],
                                   .memory = buffer[k],
                                   .size = sxr_size(executor->program, tensor),
                                   .writable = k + e->kernel->result_count >= launch->arg_count};
    }
    e->workspace = (sx_region){.name = "the workspace",
                               .memory = executor->workspace,
                               .size = module->info->workspace_bytes,
                               .writable = true};
    e->points = 0;
    e->walks = false;
    e->path = NULL;
    for (uint32_t p = 0; p < e->kernel->part_count; p++) {
        const sx_module_part *part = sxr_part(executor->program, e->kernel->part_first + p);
        e->points += part->grid[0] * part->grid[1] * part->grid[2];
        e->walks = e->walks || part->walkers > 0;
    }
}

size_t sxr_results_room(const sxr_executor *executor, uint32_t index,
                        size_t offset[SX_MODULE_RESULTS_MAX])
{
    const sx_module *module = sxr_module(executor->program);
    const sx_module_launch *launch = &module->launch[index];
    uint32_t results = sx_module_results(module, launch);
    size_t end = 0;
    SX_ASSERT(results > 0 && results <= SX_MODULE_RESULTS_MAX);
    for (uint32_t r = 0; r < results; r++) {
        uint32_t tensor = module->arg[launch->arg_first + launch->arg_count - results + r];
        offset[r] = end;
        end += ((size_t)module->tensor[tensor].size + 63) & ~(size_t)63;
    }
    return end;
}

/* Notes in `touched` what the points store; NULL: nowhere. */
static void watch(emulation *e, uint8_t *touched)
{
    size_t offset[SX_MODULE_RESULTS_MAX];
    uint32_t results = e->kernel->result_count;
    (void)sxr_results_room(e->executor, e->launch, offset);
    for (uint32_t r = 0; r < results; r++) {
        e->buffer[e->buffer_count - results + r].touched =
            touched != NULL ? touched + offset[r] : NULL;
    }
}

#define WALKED 3 /* points that a block walks over, about */

/* Runs blocks of a part: `walkers` as in sx_emulation. */
static sx_code emulate_blocks(const emulation *e, uint32_t index, int64_t walkers, int64_t first,
                              int64_t count)
{
    sxr_executor *x = e->executor;
    const sx_module *module = sxr_module(x->program);
    const sx_module_part *part = sxr_part(x->program, index);
    sx_machine_maps maps;
    uint32_t numbers;
    sxr_maps_of(module, index, &maps);
    const int64_t *number = sxr_part_numbers(x->program, index, &numbers);
    const sx_emulation what = {.entry = (uint32_t)part->entry,
                               .grid = {part->grid[0], part->grid[1], part->grid[2]},
                               .first = first,
                               .count = count,
                               .buffer = e->buffer,
                               .buffer_count = e->buffer_count,
                               .workspace = &e->workspace,
                               .threads = part->threads,
                               .shared_bytes = part->shared_bytes,
                               .walkers = (uint32_t)walkers,
                               .maps = &maps,
                               .path = e->path,
                               .number = number,
                               .number_count = numbers};
    uint32_t mxcsr = sxr_mxcsr_get();
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT);
    sx_code code = x->target->emulate(x->cx, x->emulator, &what);
    sxr_mxcsr_set(mxcsr);
    if (code == SX_INPUT) { /* the code is our own */
        sx_span name = sx_module_string(module, e->kernel->name);
        x->cx->error.code = SX_INTERNAL;
        return sx_fail_in(x->cx, "kernel %.*s", (int)name.len, (const char *)name.ptr);
    }
    return code;
}

/* How many blocks walk where all points are to be run: few enough that they walk, also over few points. */
static int64_t walkers_of_all(const sx_module_part *part, int64_t points)
{
    return sx_min_i64(part->walkers, sx_ceil_div_i64(points, WALKED));
}

/* Points of all parts laid end to end, from `first` on. Blocks that could walk do where they are all that there are. */
static sx_code emulate_points(const emulation *e, int64_t first, int64_t count)
{
    uint32_t next = e->kernel->part_first;
    while (count > 0) {
        const sx_module_part *part = sxr_part(e->executor->program, next);
        int64_t points = part->grid[0] * part->grid[1] * part->grid[2];
        if (first >= points) {
            first -= points;
            next++;
            continue;
        }
        int64_t here = sx_min_i64(count, points - first);
        if (part->walkers > 0 && here == points) {
            int64_t walkers = walkers_of_all(part, points);
            SX_TRY(emulate_blocks(e, next, walkers, 0, walkers));
        } else {
            SX_TRY(emulate_blocks(e, next, part->walkers > 0 ? points : 0, first, here));
        }
        count -= here;
        first += here;
    }
    return SX_OK;
}

sx_code sxr_execute(sxr_executor *executor, uint32_t launch, void *const *buffer)
{
    bool kernel = sx_module_kernel_of(sxr_module(executor->program), launch) != NULL;
    if (executor->emulator == NULL || !kernel) {
        sxr_run_launch(executor->program, launch, buffer);
        return SX_OK;
    }
    emulation e;
    prepare(&e, executor, launch, buffer);
    return emulate_points(&e, 0, e.points);
}

/* ---- some points ---- */
/* Runs the blocks at the ends of the grid of a block program. */
static sx_code emulate_ends(emulation *e, const sxv_ends *ends, sxv_cover *cover, uint8_t *touched)
{
    sx_ctx *cx = e->executor->cx;
    SX_ASSERT(ends->count <= SXV_ENDS_MAX && e->kernel->result_count == 1);
    for (uint32_t i = 0; i < ends->count; i++) {
        const int64_t *at = ends->index[i];
        sx_emulated_path took = {.affine = false};
        e->path = &took;
        watch(e, sxv_cover_begin(cover));
        int64_t point = at[0] * ends->cluster[0]; /* the first of the cluster */
        point = point * ends->grid[1] * ends->cluster[1] + at[1] * ends->cluster[1];
        point = point * ends->grid[2] * ends->cluster[2] + at[2] * ends->cluster[2];
        sx_code code = emulate_points(e, point, 1);
        e->path = NULL;
        watch(e, touched);
        SX_TRY(code);
        SX_TRY(sxv_cover_add(cx, cover, at, &took, touched));
    }
    return SX_OK;
}

/* Do the blocks, or clusters of blocks, at the ends stand for all? */
static sx_code cover_by_ends(emulation *e, const uint32_t cluster[3], uint8_t *touched,
                             sxr_emulated *emulated)
{
    sx_ctx *cx = e->executor->cx;
    const sx_module *module = sxr_module(e->executor->program);
    const int64_t *grid = module->part[e->kernel->part_first].grid;
    sxv_ends ends = {.count = 0};
    sxv_cover *cover = NULL;
    for (uint32_t d = 0; d < 3; d++) {
        ends.cluster[d] = cluster[d] > 1 ? cluster[d] : 1;
        ends.grid[d] = grid[d] / ends.cluster[d];
    }
    ends.count = sxv_cover_ends(ends.grid, ends.index);
    size_t bytes = (size_t)e->buffer[e->buffer_count - 1].size;
    sx_code code = sxv_cover_make(cx, ends.grid, bytes, &cover);
    code = code == SX_OK ? emulate_ends(e, &ends, cover, touched) : code;
    emulated->covers = code == SX_OK && sxv_cover_holds(cover, &emulated->partition);
    emulated->ran = ends.count * ends.cluster[0] * ends.cluster[1] * ends.cluster[2];
    if (cover != NULL) {
        sxv_cover_fini(cover);
    }
    return code;
}

/* The last point, and those that run together with it; `affordable`: how many of their price the instructions pay for.
 * `took` says what a cluster is; NULL: points run by themselves. */
static sx_code emulate_last(emulation *e, uint64_t instructions_max, uint8_t *touched,
                            sx_emulated_path *took, uint64_t *affordable)
{
    sxr_executor *x = e->executor;
    watch(e, touched);
    uint64_t before = x->target->emulated(x->emulator);
    e->path = took;
    sx_code code = emulate_points(e, e->points - 1, 1);
    e->path = NULL;
    SX_TRY(code);
    uint64_t each = x->target->emulated(x->emulator) - before;
    for (uint32_t d = 0; took != NULL && d < 3; d++) {
        each /= took->cluster[d] > 1 ? took->cluster[d] : 1;
    }
    *affordable = instructions_max / (each > 0 ? each : 1);
    return SX_OK;
}

/* Of the points but the last, so many, or all. */
static sx_code emulate_evenly(const emulation *e, int64_t count)
{
    int64_t rest = e->points - 1;
    if (count >= rest) {
        return rest > 0 ? emulate_points(e, 0, e->walks ? e->points : rest) : SX_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        SX_TRY(emulate_points(e, (int64_t)((double)i / (double)count * (double)rest), 1));
    }
    return SX_OK;
}

/* Bytes of a result, and which of them were stored. */
typedef struct {
    uint8_t *bytes, *stored;
} result_copy;

/* Runs points one by one, then the block that walks over them, and notes what each way stored. */
static sx_code emulate_both(emulation *e, int64_t walkers, int64_t block, result_copy *alone,
                            uint8_t *walked)
{
    sx_region *result = &e->buffer[e->buffer_count - 1];
    uint8_t *touched = result->touched;
    sx_code code = SX_OK;
    result->touched = alone->stored;
    for (int64_t i = block; code == SX_OK && i < e->points; i += walkers) {
        code = emulate_points(e, i, 1);
    }
    if (code == SX_OK) {
        memcpy(alone->bytes, result->memory, (size_t)result->size);
        result->touched = walked;
        code = emulate_blocks(e, e->kernel->part_first, walkers, block, 1);
    }
    result->touched = touched;
    for (uint64_t i = 0; touched != NULL && i < result->size; i++) {
        touched[i] |= alone->stored[i] | walked[i];
    }
    return code;
}

/* What a block leaves behind when it goes on to its next point must not show, and it must go on. Runs a block that
 * walks over the last point and some before it, each of which is run alone, too: it must store the same bytes. */
static sx_code emulate_walk(emulation *e, int64_t *ran)
{
    sx_ctx *cx = e->executor->cx;
    SX_ASSERT(e->walks && e->kernel->part_count == 1 && e->kernel->result_count == 1);
    int64_t walkers = sx_ceil_div_i64(e->points, WALKED), block = (e->points - 1) % walkers;
    const sx_region *result = &e->buffer[e->buffer_count - 1];
    size_t bytes = (size_t)result->size;
    result_copy alone = {malloc(bytes), calloc(bytes, 1)};
    uint8_t *walked = calloc(bytes, 1);
    bool there = alone.bytes != NULL && alone.stored != NULL && walked != NULL;
    sx_code code = there ? emulate_both(e, walkers, block, &alone, walked)
                         : SX_FAIL(cx, SX_NOMEM, "no memory for a result of %zu bytes", bytes);
    bool same = code != SX_OK || (memcmp(alone.bytes, result->memory, bytes) == 0 &&
                                  memcmp(alone.stored, walked, bytes) == 0);
    free(alone.bytes);
    free(alone.stored);
    free(walked);
    *ran += 2 * sx_ceil_div_i64(e->points - block, walkers);
    if (!same) {
        sx_span name = sx_module_string(sxr_module(e->executor->program), e->kernel->name);
        return SX_FAIL(cx, SX_INTERNAL,
                       "kernel %.*s: block %lld of %lld that walk over its points stores otherwise "
                       "than at each of them alone",
                       (int)name.len, (const char *)name.ptr, (long long)block, (long long)walkers);
    }
    return code;
}

sx_code sxr_execute_some(sxr_executor *executor, uint32_t launch, void *const *buffer,
                         uint64_t instructions_max, uint8_t *touched, bool *whole)
{
    SX_ASSERT(executor->emulator != NULL);
    emulation e;
    uint64_t affordable;
    prepare(&e, executor, launch, buffer);
    SX_TRY(emulate_last(&e, instructions_max, touched, NULL, &affordable));
    *whole = (uint64_t)(e.points - 1) <= affordable;
    int64_t ran = 0;
    SX_TRY(!*whole && e.walks ? emulate_walk(&e, &ran) : SX_OK);
    return emulate_evenly(&e, *whole ? e.points : sx_max_i64((int64_t)affordable, 1));
}

sx_code sxr_execute_covering(sxr_executor *executor, uint32_t launch, void *const *buffer,
                             uint64_t instructions_max, uint8_t *touched, sxr_emulated *emulated)
{
    SX_ASSERT(executor->emulator != NULL && touched != NULL);
    emulation e;
    uint64_t affordable;
    prepare(&e, executor, launch, buffer);
    bool blocks = e.kernel->part_count == 1 && e.kernel->result_count == 1 &&
                  sxr_module(executor->program)->part[e.kernel->part_first].threads > 0;
    sx_emulated_path took = {.affine = false};
    SX_TRY(emulate_last(&e, instructions_max, touched, blocks ? &took : NULL, &affordable));
    int64_t points = e.points;
    bool whole = (uint64_t)(points - 1) <= affordable;
    *emulated = (sxr_emulated){.points = points, .ran = points, .whole = whole, .blocks = blocks};
    if (!whole && emulated->blocks) {
        SX_TRY(cover_by_ends(&e, took.cluster, touched, emulated));
        SX_TRY(e.walks ? emulate_walk(&e, &emulated->ran) : SX_OK);
    }
    if (emulated->covers) {
        return SX_OK;
    }
    int64_t count = sx_max_i64((int64_t)affordable, 1);
    emulated->ran =
        whole ? points : sx_min_i64((emulated->blocks ? emulated->ran : 1) + count, points);
    return emulate_evenly(&e, whole ? points : count);
}

sx_code sxr_execute_backwards(sxr_executor *executor, uint32_t launch, void *const *buffer,
                              uint64_t instructions_max, uint8_t *touched)
{
    SX_ASSERT(executor->emulator != NULL && touched != NULL);
    emulation e;
    prepare(&e, executor, launch, buffer);
    watch(&e, touched);
    uint64_t before = executor->target->emulated(executor->emulator), ran = 0;
    int64_t piece = 1; /* grows as long as pieces are cheap */
    for (int64_t end = e.points; end > 0 && ran < instructions_max; end -= piece) {
        piece = sx_min_i64(ran < instructions_max / 16 ? 2 * piece : piece, end);
        SX_TRY(emulate_points(&e, end - piece, piece));
        ran = executor->target->emulated(executor->emulator) - before;
    }
    return SX_OK;
}
