#include "client/verify/emulation.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "client/runtime/maps.h"
#include "client/runtime/pool.h"

#define PIECES \
    32 /* of the points of a launch, about: enough for threads that are not equally fast */
#define WALKED 3 /* points that a block walks over, about */

/* What a thread has to itself. */
struct sxv_emulating {
    sx_ctx cx;
    bool made; /* cx is */
    sx_emulator *emulator;
    uint8_t *workspace;
    uint64_t spent;  /* fuel */
    uint32_t failed; /* the piece whose error is in cx */
};

/* ---- executors ---- */
static sx_code make_emulating(const sxr_executor *x, sx_ctx *cx, struct sxv_emulating *own)
{
    const sx_module *module = sxr_module(x->program);
    uint32_t *entry = SX_NEW_ARRAY(cx, uint32_t, (size_t)module->part_count + 1);
    own->workspace = SX_NEW_ARRAY(cx, uint8_t, (size_t)module->info->workspace_bytes + 1);
    if (entry == NULL || own->workspace == NULL) {
        return cx->error.code;
    }
    for (uint64_t i = 0; i < module->part_count; i++) {
        entry[i] = (uint32_t)module->part[i].entry; /* opening the module has checked it */
    }
    return x->target->emulator_make(cx, x->target,
                                    (sx_span){module->code, (size_t)module->code_count}, entry,
                                    (uint32_t)module->part_count, &own->emulator);
}

/* The emulator of a thread, which is made when the thread first has something to do. */
static sx_code emulating_of(const sxr_executor *x, uint32_t thread, struct sxv_emulating **found)
{
    struct sxv_emulating *own = &x->emulating[thread];
    SX_ASSERT(thread < x->threads);
    *found = own;
    if (!own->made) {
        sx_ctx_init_task(&own->cx, x->cx);
        own->made = true;
    }
    return own->emulator != NULL ? SX_OK : make_emulating(x, &own->cx, own);
}

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
    *executor = (sxr_executor){.cx = cx,
                               .program = program,
                               .target = sx_target_of(targets, sxr_machine(program)),
                               .threads = sxr_pool_threads(sxr_pool_of(program))};
    SX_ASSERT(executor->target != NULL);
    executor->emulating = calloc(executor->threads, sizeof(*executor->emulating));
    if (executor->emulating == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %u emulators", executor->threads);
    }
    struct sxv_emulating *own;
    sx_code code = emulating_of(executor, 0, &own);
    if (code != SX_OK) {
        cx->error = own->cx.error;
        sxr_executor_fini(executor);
    }
    executor->emulator = code == SX_OK ? own->emulator : NULL;
    return code;
}

void sxr_executor_fini(sxr_executor *executor)
{
    for (uint32_t i = 0; executor->emulating != NULL && i < executor->threads; i++) {
        if (executor->emulating[i].made) {
            sx_ctx_fini(&executor->emulating[i].cx);
        }
    }
    free(executor->emulating);
    executor->emulating = NULL;
}

uint64_t sxv_emulated(const sxr_executor *executor)
{
    uint64_t run = 0;
    for (uint32_t i = 0; i < executor->threads; i++) {
        const sx_emulator *emulator = executor->emulating[i].emulator;
        run += emulator != NULL ? executor->target->emulated(emulator) : 0;
    }
    return run;
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

/* ---- a launch ---- */
void sxv_emulation_init(sxv_emulation *e, sxr_executor *executor, uint32_t index,
                        void *const *buffer)
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
    e->points = 0;
    e->only = SX_MODULE_NONE;
    e->walks = false;
    memset(e->cluster, 0, sizeof(e->cluster));
    for (uint32_t p = 0; p < e->kernel->part_count; p++) {
        const sx_module_part *part = sxr_part(executor->program, e->kernel->part_first + p);
        int64_t points = part->grid[0] * part->grid[1] * part->grid[2];
        if (points > 0) { /* the others are for other extents */
            e->only = e->points == 0 ? e->kernel->part_first + p : SX_MODULE_NONE;
            e->walks = e->walks || part->walkers > 0;
        }
        e->points += points;
    }
}

void sxv_emulation_watch(sxv_emulation *e, uint8_t *touched)
{
    size_t offset[SX_MODULE_RESULTS_MAX];
    uint32_t results = e->kernel->result_count;
    (void)sxr_results_room(e->executor, e->launch, offset);
    for (uint32_t r = 0; r < results; r++) {
        e->buffer[e->buffer_count - results + r].touched =
            touched != NULL ? touched + offset[r] : NULL;
    }
}

/* ---- pieces ---- */
bool sxv_runs_alone(const sxv_emulation *e)
{
    const sx_module_part *part = sxr_part(e->executor->program, e->kernel->part_first);
    const uint32_t *c = e->cluster;
    return part->threads == 0 || (uint64_t)c[0] * c[1] * c[2] == 1;
}

static sx_code add_piece(sx_ctx *cx, const sxv_piece *piece, sxv_pieces *pieces)
{
    void *array = pieces->piece;
    if (pieces->count == pieces->capacity) {
        SX_TRY(sx_grow(cx, &array, &pieces->capacity, pieces->count + 1, sizeof(*piece)));
        pieces->piece = array;
    }
    pieces->piece[pieces->count++] = *piece;
    return SX_OK;
}

/* How many points of a part, or blocks that walk over them, are a piece where `count` are run. Points that run together
 * belong to one. */
static int64_t piece_points(const sxv_emulation *e, const sx_module_part *part, int64_t count)
{
    int64_t least = 1, each = sx_ceil_div_i64(count, PIECES);
    if (part->threads > 0) {
        const uint32_t *c = e->cluster;
        least = c[0] > 1   ? c[0] * part->grid[1] * part->grid[2]
                : c[1] > 1 ? c[1] * part->grid[2]
                : c[2] > 0 ? c[2]
                           : count;
    }
    return sx_ceil_div_i64(each, least) * least;
}

static sx_code add_range(const sxv_emulation *e, sxv_piece all, int64_t each, sxv_pieces *pieces)
{
    int64_t end = all.first + all.count;
    for (int64_t first = all.first; first < end; first += each) {
        all.first = first;
        all.count = sx_min_i64(each, end - first);
        SX_TRY(add_piece(e->executor->cx, &all, pieces));
    }
    return SX_OK;
}

sx_code sxv_pieces_add(const sxv_emulation *e, int64_t first, int64_t count, sxv_pieces *pieces)
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
        sxv_piece all = {.part = next, .first = first, .count = here};
        if (part->walkers > 0 && here == points) { /* few enough that they walk, also over few */
            all.walkers = sx_min_i64(part->walkers, sx_ceil_div_i64(points, WALKED));
            all.count = all.walkers;
        } else {
            all.walkers = part->walkers > 0 ? points : 0;
        }
        SX_TRY(add_range(e, all, piece_points(e, part, all.count), pieces));
        count -= here;
        first += here;
    }
    return SX_OK;
}

/* ---- running ---- */
typedef struct {
    const sxv_emulation *e;
    const sxv_pieces *pieces;
    _Atomic uint32_t failed; /* the first piece that is known to fail; the count of pieces: none */
} running;

static sx_code run_piece(const sxv_emulation *e, struct sxv_emulating *own, const sxv_piece *piece)
{
    const sxr_executor *x = e->executor;
    const sx_module *module = sxr_module(x->program);
    const sx_module_part *part = sxr_part(x->program, piece->part);
    sx_region buffer[SX_REGIONS_MAX];
    sx_machine_maps maps;
    uint32_t numbers;
    memcpy(buffer, e->buffer, e->buffer_count * sizeof(buffer[0]));
    if (piece->touched != NULL) {
        SX_ASSERT(e->kernel->result_count == 1);
        buffer[e->buffer_count - 1].touched = piece->touched;
    }
    const sx_region workspace = {.name = "the workspace",
                                 .memory = own->workspace,
                                 .size = module->info->workspace_bytes,
                                 .writable = true};
    const int64_t *number = sxr_part_numbers(x->program, piece->part, &numbers);
    sxr_maps_of(module, piece->part, number, &maps);
    const sx_emulation what = {.entry = (uint32_t)part->entry,
                               .grid = {part->grid[0], part->grid[1], part->grid[2]},
                               .first = piece->first,
                               .count = piece->count,
                               .buffer = buffer,
                               .buffer_count = e->buffer_count,
                               .workspace = &workspace,
                               .threads = part->threads,
                               .shared_bytes = part->shared_bytes,
                               .walkers = (uint32_t)piece->walkers,
                               .maps = &maps,
                               .path = piece->path,
                               .number = number,
                               .number_count = numbers};
    uint32_t mxcsr = sxr_mxcsr_get();
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT);
    sx_code code = x->target->emulate(&own->cx, own->emulator, &what);
    sxr_mxcsr_set(mxcsr);
    return code;
}

/* A task of the pool. Pieces behind one that failed need not run: those before it decide what is said. */
static void run_pieces(void *self, uint32_t thread, int64_t first, int64_t last)
{
    running *r = self;
    const sxr_executor *x = r->e->executor;
    struct sxv_emulating *own;
    for (uint32_t i = (uint32_t)first; i < (uint32_t)last && i < atomic_load(&r->failed); i++) {
        sx_code code = emulating_of(x, thread, &own);
        own->cx.fuel = x->cx->fuel; /* as much for each: what they have spent is added up later */
        own->cx.progress = thread == 0 ? x->cx->progress : NULL;
        own->cx.progress_self = x->cx->progress_self;
        code = code == SX_OK ? run_piece(r->e, own, &r->pieces->piece[i]) : code;
        own->spent += x->cx->fuel - own->cx.fuel;
        if (code == SX_OK) {
            continue;
        }
        own->failed = i;
        uint32_t before = atomic_load(&r->failed);
        while (i < before && !atomic_compare_exchange_weak(&r->failed, &before, i)) {
        }
        return;
    }
}

/* The error of the first piece that failed. */
static sx_code failure_of(const sxv_emulation *e, uint32_t piece)
{
    sxr_executor *x = e->executor;
    for (uint32_t i = 0; i < x->threads; i++) {
        struct sxv_emulating *own = &x->emulating[i];
        if (own->cx.error.code != SX_OK && own->failed == piece) {
            x->cx->error = own->cx.error;
        }
        sx_ctx_reset_error(&own->cx);
    }
    SX_ASSERT(x->cx->error.code != SX_OK);
    if (x->cx->error.code == SX_INPUT) { /* the code is our own */
        sx_span name = sx_module_string(sxr_module(x->program), e->kernel->name);
        x->cx->error.code = SX_INTERNAL;
        return sx_fail_in(x->cx, "kernel %.*s", (int)name.len, (const char *)name.ptr);
    }
    return x->cx->error.code;
}

sx_code sxv_pieces_run(const sxv_emulation *e, const sxv_pieces *pieces)
{
    sxr_executor *x = e->executor;
    running r = {.e = e, .pieces = pieces};
    uint64_t spent = 0;
    atomic_init(&r.failed, pieces->count);
    if (pieces->in_turn) {
        run_pieces(&r, 0, 0, pieces->count);
    } else {
        sxr_pool_run(sxr_pool_of(x->program), run_pieces, &r, pieces->count);
    }
    for (uint32_t i = 0; i < x->threads; i++) {
        spent += x->emulating[i].spent;
        x->emulating[i].spent = 0;
    }
    uint32_t failed = atomic_load(&r.failed);
    return failed < pieces->count ? failure_of(e, failed) : sx_spend(x->cx, spent);
}
