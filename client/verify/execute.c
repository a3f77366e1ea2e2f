#include "client/verify/execute.h"

#include <stdlib.h>
#include <string.h>

#include "client/verify/cover.h"
#include "client/verify/emulation.h"

#define WALKED 3 /* points that a block walks over, about */

/* Runs points of all parts laid end to end, from `first` on. */
static sx_code emulate_points(const sxv_emulation *e, int64_t first, int64_t count)
{
    sxv_pieces pieces = {.count = 0};
    SX_TRY(sxv_pieces_add(e, first, count, &pieces));
    return sxv_pieces_run(e, &pieces);
}

/* The ends of a grid whose points are clusters of points that run together, `cluster` of them along each index. */
typedef struct {
    int64_t grid[3], index[SXV_ENDS_MAX][3];
    int64_t cluster[3];
    uint32_t count;
} sxv_ends;

sx_code sxr_execute(sxr_executor *executor, uint32_t launch, void *const *buffer)
{
    bool kernel = sx_module_kernel_of(sxr_module(executor->program), launch) != NULL;
    if (executor->emulator == NULL || !kernel) {
        sxr_run_launch(executor->program, launch, buffer);
        return SX_OK;
    }
    sxv_emulation e;
    sxv_emulation_init(&e, executor, launch, buffer);
    return emulate_points(&e, 0, e.points);
}

/* ---- some points ---- */
#define ENDS_BYTES ((size_t)256 << 20) /* for what blocks at the ends store, side by side */

/* Blocks at the ends of a grid that run side by side: how each ran, and a byte for each byte of the result. */
typedef struct {
    sx_emulated_path path[SXV_ENDS_MAX];
    uint8_t *stored;
    uint32_t count;
} ends_batch;

/* The first point of the cluster at an end. */
static int64_t point_of(const sxv_ends *ends, uint32_t end)
{
    const int64_t *at = ends->index[end], *c = ends->cluster;
    int64_t point = at[0] * c[0];
    point = point * ends->grid[1] * c[1] + at[1] * c[1];
    return point * ends->grid[2] * c[2] + at[2] * c[2];
}

/* Runs as many of them as the batch has, from `first` on. */
static sx_code emulate_batch(sxv_emulation *e, const sxv_ends *ends, uint32_t first,
                             const ends_batch *room, sxv_cover *cover, uint8_t *touched)
{
    sx_ctx *cx = e->executor->cx;
    ends_batch batch = *room;
    sxv_pieces pieces = {.count = 0};
    size_t bytes = (size_t)e->buffer[e->buffer_count - 1].size;
    memset(batch.stored, 0, batch.count * bytes);
    for (uint32_t i = 0; i < batch.count && first + i < ends->count; i++) {
        SX_TRY(sxv_pieces_add(e, point_of(ends, first + i), 1, &pieces));
        SX_ASSERT(pieces.count == i + 1);
        batch.path[i] = (sx_emulated_path){.affine = false};
        pieces.piece[i].path = &batch.path[i];
        pieces.piece[i].touched = batch.stored + i * bytes;
    }
    SX_TRY(sxv_pieces_run(e, &pieces));
    for (uint32_t i = 0; i < pieces.count; i++) {
        SX_TRY(sxv_cover_add(cx, cover, ends->index[first + i], &batch.path[i],
                             batch.stored + i * bytes, touched));
    }
    return SX_OK;
}

/* Runs the blocks at the ends of the grid of a block program, as many side by side as there are threads and memory. */
static sx_code emulate_ends(sxv_emulation *e, const sxv_ends *ends, sxv_cover *cover,
                            uint8_t *touched)
{
    size_t bytes = (size_t)e->buffer[e->buffer_count - 1].size;
    uint64_t most = ENDS_BYTES / bytes;
    ends_batch batch = {.count = e->executor->threads};
    SX_ASSERT(ends->count <= SXV_ENDS_MAX && e->kernel->result_count == 1 && bytes > 0);
    batch.count = batch.count < ends->count ? batch.count : ends->count;
    batch.count = batch.count <= most ? batch.count : most > 0 ? (uint32_t)most : 1;
    batch.stored = malloc(batch.count * bytes);
    if (batch.stored == NULL) {
        return SX_FAIL(e->executor->cx, SX_NOMEM, "no memory for %u results of %zu bytes",
                       batch.count, bytes);
    }
    sx_code code = SX_OK;
    for (uint32_t first = 0; code == SX_OK && first < ends->count; first += batch.count) {
        code = emulate_batch(e, ends, first, &batch, cover, touched);
    }
    free(batch.stored);
    return code;
}

/* Do the blocks, or clusters of blocks, at the ends stand for all? */
static sx_code cover_by_ends(sxv_emulation *e, uint8_t *touched, sxr_emulated *emulated)
{
    sx_ctx *cx = e->executor->cx;
    const int64_t *grid = sxr_part(e->executor->program, e->only)->grid;
    sxv_ends ends = {.count = 0};
    sxv_cover *cover = NULL;
    for (uint32_t d = 0; d < 3; d++) {
        ends.cluster[d] = e->cluster[d];
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
 * `took`: how they ran, and how many run together; NULL: points run by themselves. */
static sx_code emulate_last(sxv_emulation *e, uint64_t instructions_max, uint8_t *touched,
                            sx_emulated_path *took, uint64_t *affordable)
{
    sxv_pieces pieces = {.count = 0};
    uint64_t before = sxv_emulated(e->executor);
    sxv_emulation_watch(e, touched);
    SX_TRY(sxv_pieces_add(e, e->points - 1, 1, &pieces));
    SX_ASSERT(pieces.count == 1);
    pieces.piece[0].path = took;
    SX_TRY(sxv_pieces_run(e, &pieces));
    uint64_t each = sxv_emulated(e->executor) - before;
    for (uint32_t d = 0; took != NULL && d < 3; d++) {
        e->cluster[d] = took->cluster[d] > 1 ? took->cluster[d] : 1;
        each /= e->cluster[d];
    }
    *affordable = instructions_max / (each > 0 ? each : 1);
    return SX_OK;
}

/* Of the points but the last, so many, or all. */
static sx_code emulate_evenly(const sxv_emulation *e, int64_t count)
{
    int64_t rest = e->points - 1;
    sxv_pieces pieces = {.in_turn = !sxv_runs_alone(e)};
    if (count >= rest) {
        return rest > 0 ? emulate_points(e, 0, e->walks ? e->points : rest) : SX_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        SX_TRY(sxv_pieces_add(e, (int64_t)((double)i / (double)count * (double)rest), 1, &pieces));
    }
    return sxv_pieces_run(e, &pieces);
}

/* Bytes of a result, and which of them were stored. */
typedef struct {
    uint8_t *bytes, *stored;
} result_copy;

/* Runs points one by one, then the block that walks over them, and notes what each way stored. */
static sx_code emulate_both(sxv_emulation *e, int64_t walkers, int64_t block, result_copy *alone,
                            uint8_t *walked)
{
    sx_region *result = &e->buffer[e->buffer_count - 1];
    uint8_t *touched = result->touched;
    sxv_pieces points = {.in_turn = !sxv_runs_alone(e)};
    sxv_piece walk = {e->only, walkers, block, 1, walked, NULL};
    sx_code code = SX_OK;
    result->touched = alone->stored;
    for (int64_t i = block; code == SX_OK && i < e->points; i += walkers) {
        code = sxv_pieces_add(e, i, 1, &points);
    }
    code = code == SX_OK ? sxv_pieces_run(e, &points) : code;
    if (code == SX_OK) {
        memcpy(alone->bytes, result->memory, (size_t)result->size);
        code = sxv_pieces_run(e, &(sxv_pieces){.piece = &walk, .count = 1});
    }
    result->touched = touched;
    for (uint64_t i = 0; touched != NULL && i < result->size; i++) {
        touched[i] |= alone->stored[i] | walked[i];
    }
    return code;
}

/* What a block leaves behind when it goes on to its next point must not show, and it must go on. Runs a block that
 * walks over the last point and some before it, each of which is run alone, too: it must store the same bytes. */
static sx_code emulate_walk(sxv_emulation *e, int64_t *ran)
{
    sx_ctx *cx = e->executor->cx;
    SX_ASSERT(e->walks && e->only != SX_MODULE_NONE && e->kernel->result_count == 1);
    SX_ASSERT(e->cluster[0] == 1 && e->cluster[1] == 1 && e->cluster[2] >= 1);
    int64_t together = e->cluster[2]; /* walk together */
    int64_t walkers = sx_ceil_div_i64(sx_ceil_div_i64(e->points, WALKED), together) * together;
    int64_t block = (e->points - 1) % walkers;
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
    sxv_emulation e;
    uint64_t affordable;
    sxv_emulation_init(&e, executor, launch, buffer);
    sx_emulated_path took = {.affine = false};
    SX_TRY(emulate_last(&e, instructions_max, touched, e.walks ? &took : NULL, &affordable));
    *whole = (uint64_t)(e.points - 1) <= affordable;
    int64_t ran = 0;
    SX_TRY(!*whole && e.walks ? emulate_walk(&e, &ran) : SX_OK);
    return emulate_evenly(&e, *whole ? e.points : sx_max_i64((int64_t)affordable, 1));
}

sx_code sxr_execute_covering(sxr_executor *executor, uint32_t launch, void *const *buffer,
                             uint64_t result_bytes, uint64_t instructions_max, uint8_t *touched,
                             sxr_emulated *emulated)
{
    SX_ASSERT(executor->emulator != NULL && touched != NULL);
    sxv_emulation e;
    uint64_t affordable;
    sxv_emulation_init(&e, executor, launch, buffer);
    sx_region *last = &e.buffer[e.buffer_count - 1];
    SX_ASSERT(result_bytes <= last->size); /* the largest that it can be */
    last->size = result_bytes;
    bool blocks = e.only != SX_MODULE_NONE && e.kernel->result_count == 1 &&
                  sxr_part(executor->program, e.only)->threads > 0;
    sx_emulated_path took = {.affine = false};
    SX_TRY(emulate_last(&e, instructions_max, touched, blocks ? &took : NULL, &affordable));
    int64_t points = e.points;
    bool whole = (uint64_t)(points - 1) <= affordable;
    *emulated = (sxr_emulated){.points = points, .ran = points, .whole = whole, .blocks = blocks};
    if (!whole && emulated->blocks) {
        SX_TRY(cover_by_ends(&e, touched, emulated));
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
    sxv_emulation e;
    sxv_emulation_init(&e, executor, launch, buffer);
    sxv_emulation_watch(&e, touched);
    uint64_t before = sxv_emulated(executor), ran = 0;
    int64_t piece = 1; /* grows as long as pieces are cheap */
    for (int64_t end = e.points; end > 0 && ran < instructions_max; end -= piece) {
        piece = sx_min_i64(ran < instructions_max / 16 ? 2 * piece : piece, end);
        SX_TRY(emulate_points(&e, end - piece, piece));
        ran = sxv_emulated(executor) - before;
    }
    return SX_OK;
}
