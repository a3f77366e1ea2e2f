#include "client/verify/trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/verify/moved.h"
#include "core/search/search.h"
#include "core/kernel/online_blocks.h"
#include "core/kernel/online_pieces.h"

#define BLOB_MAX ((size_t)64 << 20)
#define CHUNKS 7u    /* in which the points of a grid are run */
#define POSITION 3   /* elements along the dimension at another position */
#define OTHERS_MAX 4 /* numerics plans beside that of the base */
#define TRY_LANES 32 /* an estimate of instructions must not depend on the machine */
#define BOX_BYTES_MAX (INT64_C(1) << 30) /* what the longer arguments of a box may take */

/* Part of the iteration space: `extent` elements from `start` on. */
typedef struct {
    int64_t start[SX_RANK_MAX], extent[SX_RANK_MAX];
} box;

/* The node of a box. */
typedef struct {
    sx_attr fused;
    sx_body body;
    sx_type input[SX_FUSED_ARGS_MAX];
    const void *argument[SX_FUSED_ARGS_MAX];
    sx_analysis analysis;
    box where;
} piece;

/* ---- the node of a box ---- */

static uint32_t rank_of(const sxv_subject *s)
{
    return s->fused->type.rank;
}

static bool is_reduced(const sxv_subject *s, uint32_t d)
{
    return (s->fused->body->axes >> d & 1) != 0;
}

static box box_of(const sxv_subject *s)
{
    box b = {{0}, {0}};
    for (uint32_t d = 0; d < rank_of(s); d++) {
        b.extent[d] = s->fused->type.dim[d].scale;
    }
    return b;
}

/* Elements of argument k from its first to the last that the box reads. */
static int64_t argument_need(const sxv_subject *s, uint32_t k, const box *b)
{
    const sx_access *access = &s->fused->body->access[k];
    int64_t need = access->offset.scale + 1;
    for (uint32_t d = 0; d < rank_of(s); d++) {
        SX_ASSERT(sx_dim_is_constant(access->stride[d]));
        need += access->stride[d].scale * (b->start[d] + b->extent[d] - 1);
    }
    return need;
}

/* As many elements as the box reads of an argument; where it has fewer, it goes on with its own from the first. */
static sx_code make_argument(sx_ctx *cx, const sxv_subject *s, uint32_t k, piece *p)
{
    sx_access *access = &p->body.access[k];
    size_t bytes = sx_dtype_bytes(s->input[k].dtype);
    int64_t have = sx_tensor_elements(&s->input[k]), need = argument_need(s, k, &p->where);
    for (uint32_t d = 0; d < rank_of(s); d++) {
        access->offset.scale += access->stride[d].scale * p->where.start[d];
    }
    p->input[k] = (sx_type){.dtype = s->input[k].dtype, .rank = 1, .dim = {sx_dim_of(need)}};
    p->argument[k] = s->argument[k];
    if (need <= have) {
        return SX_OK;
    }
    uint8_t *longer = sx_alloc(cx, (size_t)need * bytes);
    if (longer == NULL) {
        return cx->error.code;
    }
    for (int64_t at = 0; at < need; at += have) {
        memcpy(longer + (size_t)at * bytes, s->argument[k],
               (size_t)sx_min_i64(have, need - at) * bytes);
    }
    p->argument[k] = longer;
    return SX_OK;
}

/* The element of a copied factor at these indices, along the dimensions that it varies with. */
static int64_t element_at(const sx_access *access, const int64_t *index, uint32_t rank)
{
    int64_t at = access->offset.scale;
    for (uint32_t d = 0; d < rank; d++) {
        at += index[d] * access->stride[d].scale;
    }
    return at;
}

/* As the pipeline does: rows that lie side by side where the copy engine cannot read them are copied. Here every step
 * of the sum gets a place of its own for all rows, so that a box may have more of them than the argument. */
static sx_code copy_rows(sx_ctx *cx, const sxv_subject *s, piece *p)
{
    uint32_t argument, rank = rank_of(s), row = 0;
    int64_t unit = sx_search_copies_rows(&p->analysis, s->target->matrix,
                                         sx_search_matrices(s->device, s->target));
    int64_t index[SX_RANK_MAX] = {0};
    if (unit == 0) {
        return SX_OK;
    }
    (void)sx_rows_beside(&p->analysis, &argument);
    sx_access *access = &p->body.access[argument], old = *access;
    size_t bytes = sx_dtype_bytes(p->input[argument].dtype);
    for (uint32_t d = 0; d < rank; d++) {
        row = !is_reduced(s, d) && old.stride[d].scale == 1 ? d : row;
    }
    int64_t all = sx_ceil_div_i64(p->where.extent[row], unit) * unit;
    for (uint32_t d = 0; d < rank; d++) {
        if (d != row && old.stride[d].scale != 0) {
            access->stride[d].scale = all;
            all *= p->where.extent[d];
        }
    }
    access->offset.scale = 0;
    uint8_t *copy = sx_alloc(cx, (size_t)all * bytes);
    if (copy == NULL) {
        return cx->error.code;
    }
    for (bool more = true; more;) {
        const uint8_t *from = p->argument[argument];
        memcpy(copy + (size_t)element_at(access, index, rank) * bytes,
               from + (size_t)element_at(&old, index, rank) * bytes, bytes);
        more = false;
        for (uint32_t d = 0; d < rank && !more; d++) {
            more = old.stride[d].scale != 0 && index[d] + 1 < p->where.extent[d];
            index[d] = more ? index[d] + 1 : 0;
        }
    }
    p->argument[argument] = copy;
    p->input[argument].dim[0] = sx_dim_of(all);
    return sx_analysis_make(cx, &p->fused, p->input, s->input_count, &p->analysis);
}

static sx_code make_piece(sx_ctx *cx, const sxv_subject *s, const box *where, piece *p)
{
    p->fused = *s->fused;
    sx_body_copy(&p->body, s->fused->body);
    p->fused.body = &p->body;
    p->where = *where;
    for (uint32_t d = 0; d < rank_of(s); d++) {
        SX_ASSERT(where->extent[d] > 0 && where->start[d] >= 0);
        p->fused.type.dim[d] = sx_dim_of(where->extent[d]);
    }
    for (uint32_t k = 0; k < s->input_count; k++) {
        SX_TRY(make_argument(cx, s, k, p));
    }
    SX_TRY(sx_analysis_make(cx, &p->fused, p->input, s->input_count, &p->analysis));
    return copy_rows(cx, s, p);
}

/* ---- its kernel ---- */

static sx_code lower(sx_ctx *cx, const sxv_subject *s, const piece *p, const sx_schedule *schedule,
                     sx_lowering_kind kind, sx_kernel **kernel)
{
    const sx_lowering what = {
        .kind = kind, .name = "trial", .schedule = schedule, .analysis = &p->analysis};
    return sx_target_lower(cx, s->target, &what, kernel);
}

/* Points of one part, in pieces whose order follows from `order`; 0: ascending, all at once. */
static sx_code run_part(sx_ctx *cx, const sx_target *target, sx_emulator *emulator,
                        sx_emulation *what, uint64_t order)
{
    int64_t points = what->grid[0] * what->grid[1] * what->grid[2];
    sx_rng rng = {order};
    uint32_t at[CHUNKS];
    for (uint32_t i = 0; i < CHUNKS; i++) {
        uint32_t k = (uint32_t)sx_rng_below(&rng, i + 1);
        at[i] = at[k];
        at[k] = i;
    }
    if (what->walkers > 0) { /* any number of blocks */
        points = order == 0 ? sx_min_i64(what->walkers, points)
                            : 1 + (int64_t)sx_rng_below(&rng, (uint64_t)points);
        what->walkers = (uint32_t)points;
    }
    what->count = points;
    if (order == 0) {
        return target->emulate(cx, emulator, what);
    }
    for (uint32_t i = 0; i < CHUNKS; i++) {
        what->first = points * at[i] / CHUNKS;
        what->count = points * (at[i] + 1) / CHUNKS - what->first;
        SX_TRY(what->count > 0 ? target->emulate(cx, emulator, what) : SX_OK);
    }
    return SX_OK;
}

/* Emits the kernel and runs it by the emulator; buffers as the kernel has them, without the workspace. */
static sx_code run_kernel(sx_ctx *cx, const sx_target *target, const sx_kernel *kernel,
                          void *const *buffer, uint64_t order, uint64_t *instructions)
{
    sx_buf blob;
    sx_target_code code;
    sx_region region[SX_LOOP_BUFFERS_MAX];
    sx_emulator *emulator = NULL;
    uint32_t count = kernel->buffer_count;
    bool works = kernel->buffer[count - 1].role == SX_BUFFER_WORKSPACE;
    SX_ASSERT(count >= 1 && count <= SX_LOOP_BUFFERS_MAX);
    for (uint32_t k = 0; k < count; k++) {
        size_t size = (size_t)kernel->buffer[k].size;
        bool own = works && k + 1 == count;
        region[k] = (sx_region){.name = "a buffer",
                                .memory = own ? sx_alloc(cx, size + 64) : buffer[k],
                                .size = size,
                                .writable = kernel->buffer[k].role != SX_BUFFER_IN};
        if (region[k].memory == NULL) {
            return cx->error.code;
        }
    }
    sx_buf_init(&blob, BLOB_MAX);
    sx_code status = sx_kernel_check(cx, kernel);
    status = status == SX_OK ? target->emit(cx, target, kernel, true, &blob, &code) : status;
    status = status == SX_OK ? target->emulator_make(cx, target, sx_buf_span(&blob), code.entry,
                                                     code.entry_count, &emulator)
                             : status;
    for (uint32_t p = 0; status == SX_OK && p < kernel->part_count; p++) {
        const int64_t *grid = kernel->part[p].grid;
        sx_emulation what = {.entry = code.entry[p],
                             .grid = {grid[0], grid[1], grid[2]},
                             .buffer = region,
                             .buffer_count = count - (works ? 1 : 0),
                             .workspace = works ? &region[count - 1] : NULL,
                             .threads = code.block[p].threads,
                             .shared_bytes = code.block[p].shared_bytes,
                             .walkers = code.block[p].walkers,
                             .maps = &code.maps[p]};
        status = run_part(cx, target, emulator, &what, order);
    }
    *instructions += status == SX_OK ? target->emulated(emulator) : 0;
    sx_buf_fini(&blob);
    return status;
}

/* ---- pieces of keys ---- */

/* The kernel of a node under the schedule, if it is one of online sums by blocks as `blocks` says; else under the first
 * one that is found and can be had. */
static sx_code lower_either(sx_ctx *cx, const sxv_subject *s, const sx_analysis *a, bool blocks,
                            const sx_schedule *schedule, sx_kernel **kernel)
{
    sx_search_result search;
    sx_online_blocks form;
    sx_lowering what = {
        .kind = SX_LOWER_FUSED, .name = "trial", .schedule = schedule, .analysis = a};
    if (schedule != NULL && sx_online_blocks_of(schedule, &form) == blocks) {
        return sx_target_lower(cx, s->target, &what, kernel);
    }
    SX_TRY(sx_search_kernel(cx, a, s->device, false, SX_SEARCH_KEEP, &search));
    for (uint32_t c = 0; c < search.best_count; c++) {
        what.schedule = &search.best[c].schedule;
        sx_code code = sx_target_lower(cx, s->target, &what, kernel);
        if (code != SX_LIMIT && code != SX_UNIMPLEMENTED) {
            return code;
        }
        sx_ctx_reset_error(cx);
    }
    return SX_FAIL(cx, SX_COMPILE, "none of %u candidates is usable", search.best_count);
}

/* Both launches of an online sum in pieces of keys. The schedule is that of one of them. */
typedef struct {
    sx_online_pieces nodes;
    sx_kernel *sums, *combine;
} launches;

static sx_code lower_pieces(sx_ctx *cx, const sxv_subject *s, const piece *p, int64_t keys,
                            const sx_schedule *schedule, launches **both)
{
    launches *l = *both = SX_NEW(cx, launches);
    if (l == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_online_pieces_make(cx, &p->analysis, keys, &l->nodes));
    SX_TRY(lower_either(cx, s, &l->nodes.partial_analysis, true, schedule, &l->sums));
    return lower_either(cx, s, &l->nodes.combine_analysis, false, schedule, &l->combine);
}

/* As run_piece. */
static sx_code run_pieces(sx_ctx *cx, const sxv_subject *s, const piece *p, int64_t keys,
                          const sx_schedule *schedule, uint64_t order, uint64_t *numerics,
                          uint8_t **bits, uint64_t *instructions)
{
    launches *l;
    void *sums[SX_LOOP_BUFFERS_MAX] = {NULL}, *buffer[SX_LOOP_BUFFERS_MAX] = {NULL};
    SX_TRY(lower_pieces(cx, s, p, keys, schedule, &l));
    uint32_t count = l->nodes.argument_count;
    for (uint32_t k = 0; k < count; k++) {
        sums[k] = (void *)(uintptr_t)p->argument[l->nodes.argument[k]];
    }
    for (uint32_t k = 0; k < SX_PIECE_RESULTS; k++) {
        sums[count + k] = sx_alloc(cx, (size_t)l->sums->buffer[count + k].size);
        if (sums[count + k] == NULL) {
            return cx->error.code;
        }
    }
    SX_TRY(run_kernel(cx, s->target, l->sums, sums, order, instructions));
    for (uint32_t k = 0; k < s->input_count; k++) {
        buffer[k] = (void *)(uintptr_t)p->argument[k];
    }
    buffer[p->analysis.value] = sums[count + SX_PIECE_SUM];
    buffer[p->analysis.rhs] = sums[count + SX_PIECE_STATISTIC];
    size_t size = (size_t)l->combine->buffer[s->input_count].size;
    *bits = sx_alloc(cx, size);
    if (*bits == NULL) {
        return cx->error.code;
    }
    memset(*bits, 0x5a, size);
    buffer[s->input_count] = *bits;
    *numerics = l->combine->numerics;
    return run_kernel(cx, s->target, l->combine, buffer, order, instructions);
}

/* The elements of a box under a schedule, in cx's arena; panels are packed by the kernel that does so. */
static sx_code run_piece(sx_ctx *cx, const sxv_subject *s, const piece *p,
                         const sx_schedule *schedule, uint64_t order, uint64_t *numerics,
                         uint8_t **bits, uint64_t *instructions)
{
    sx_kernel *kernel, *pack;
    void *buffer[SX_LOOP_BUFFERS_MAX] = {NULL};
    int64_t keys = sx_search_piece(&p->analysis, s->device);
    if (keys != 0) {
        return run_pieces(cx, s, p, keys, schedule, order, numerics, bits, instructions);
    }
    SX_TRY(lower(cx, s, p, schedule, SX_LOWER_FUSED, &kernel));
    *numerics = kernel->numerics;
    for (uint32_t k = 0; k < s->input_count; k++) {
        buffer[k] = (void *)(uintptr_t)p->argument[k]; /* it is only read */
    }
    sx_block_tiles tiles;
    if (sx_block_tiles_of(schedule, &tiles) && tiles.apart) {
        uint32_t left = p->analysis.lhs;
        SX_TRY(lower(cx, s, p, schedule, SX_LOWER_PACK, &pack));
        void *three[3] = {buffer[left], buffer[p->analysis.rhs],
                          sx_alloc(cx, (size_t)pack->buffer[2].size)};
        SX_TRY(three[2] != NULL ? run_kernel(cx, s->target, pack, three, order, instructions)
                                : cx->error.code);
        buffer[left] = three[2];
    }
    uint32_t rhs = p->analysis.rhs;
    const sx_stage_place *stage =
        p->analysis.kind == SX_KERNEL_DOT ? sx_schedule_stage(schedule, rhs) : NULL;
    if (stage != NULL && stage->space == SX_SPACE_MEMORY) {
        SX_TRY(lower(cx, s, p, schedule, SX_LOWER_PACK, &pack));
        void *two[2] = {buffer[rhs], sx_alloc(cx, (size_t)pack->buffer[1].size)};
        SX_TRY(two[1] != NULL ? run_kernel(cx, s->target, pack, two, order, instructions)
                              : cx->error.code);
        buffer[rhs] = two[1];
    }
    SX_ASSERT(kernel->buffer[s->input_count].role == SX_BUFFER_OUT);
    *bits = sx_alloc(cx, (size_t)kernel->buffer[s->input_count].size);
    if (*bits == NULL) {
        return cx->error.code;
    }
    memset(*bits, 0x5a, (size_t)kernel->buffer[s->input_count].size);
    buffer[s->input_count] = *bits;
    return run_kernel(cx, s->target, kernel, buffer, order, instructions);
}

/* Blocks of threads compute it. They need not take every kernel. */
static bool is_of_blocks(const sx_schedule *schedule)
{
    return schedule->stage_count > 0 && schedule->stage[0].space == SX_SPACE_SHARED;
}

/* As the pipeline does: the cheapest candidate that is usable. */
static sx_code run_best(sx_ctx *cx, const sxv_subject *s, const piece *p, uint64_t order,
                        uint64_t *numerics, uint8_t **bits, uint64_t *instructions)
{
    sx_search_result search;
    SX_TRY(sx_search_kernel(cx, &p->analysis, s->device, s->rhs_constant, SX_SEARCH_KEEP, &search));
    for (uint32_t c = 0; c < search.best_count; c++) {
        sx_code code =
            run_piece(cx, s, p, &search.best[c].schedule, order, numerics, bits, instructions);
        bool other = code == SX_UNIMPLEMENTED && is_of_blocks(&search.best[c].schedule);
        if (code != SX_LIMIT && !other) {
            return code;
        }
        sx_ctx_reset_error(cx);
    }
    return SX_FAIL(cx, SX_COMPILE, "none of %u candidates is usable", search.best_count);
}

sx_code sxv_numerics_of(sx_ctx *cx, const sxv_subject *s, const sx_schedule *schedule,
                        uint64_t *numerics)
{
    sx_kernel *kernel;
    box whole = box_of(s);
    piece *p = SX_NEW(cx, piece);
    if (p == NULL) {
        return cx->error.code;
    }
    SX_TRY(make_piece(cx, s, &whole, p));
    int64_t keys = sx_search_piece(&p->analysis, s->device);
    if (keys != 0) {
        launches *both;
        SX_TRY(lower_pieces(cx, s, p, keys, schedule, &both));
        *numerics = both->combine->numerics;
        return SX_OK;
    }
    SX_TRY(lower(cx, s, p, schedule, SX_LOWER_FUSED, &kernel));
    *numerics = kernel->numerics;
    return SX_OK;
}

sx_code sxv_base_make(sx_ctx *cx, const sxv_subject *s, sxv_base *base)
{
    uint64_t instructions = 0;
    uint8_t *bits = NULL;
    box whole = box_of(s);
    piece *p = SX_NEW(cx, piece);
    if (p == NULL) {
        return cx->error.code;
    }
    *base = (sxv_base){.numerics = 0};
    SX_TRY(make_piece(cx, s, &whole, p));
    SX_TRY(run_best(cx, s, p, 0, &base->numerics, &bits, &instructions));
    base->bits = bits;
    return SX_OK;
}

/* ---- comparing ---- */

static bool same_element(sx_dtype dtype, const uint8_t *a, int64_t i, const uint8_t *b, int64_t k)
{
    size_t bytes = sx_dtype_bytes(dtype);
    return memcmp(a + (size_t)i * bytes, b + (size_t)k * bytes, bytes) == 0 ||
           (sx_dtype_class_of(dtype) == SX_CLASS_FLOAT && isnan(sxv_element(dtype, a, i)) &&
            isnan(sxv_element(dtype, b, k)));
}

int64_t sxv_first_difference(sx_dtype dtype, const uint8_t *a, const uint8_t *b,
                             const uint8_t *touched, int64_t count)
{
    size_t bytes = sx_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++) {
        bool there = touched == NULL || touched[(size_t)i * bytes] != 0;
        if (there && !same_element(dtype, a, i, b, i)) {
            return i;
        }
    }
    return -1;
}

/* The bits of an element as a number. */
static unsigned long long bits_of(sx_dtype dtype, const uint8_t *memory, int64_t element)
{
    uint64_t bits = 0;
    size_t bytes = sx_dtype_bytes(dtype);
    for (size_t b = bytes; b > 0; b--) {
        bits = bits << 8 | memory[(size_t)element * bytes + b - 1];
    }
    return bits;
}

/* Where in the base element `i` of the piece is; -1: nowhere. */
static int64_t place_of(const sxv_subject *s, const piece *p, int64_t i)
{
    int64_t place = 0, stride = 1;
    for (uint32_t d = rank_of(s); d-- > 0;) {
        int64_t there = s->fused->type.dim[d].scale;
        if (!p->analysis.full && is_reduced(s, d)) {
            continue;
        }
        int64_t at = p->where.start[d] + i % p->where.extent[d];
        i /= p->where.extent[d];
        if (at >= there) {
            return -1;
        }
        place += at * stride;
        stride *= there;
    }
    return place;
}

static void compare(const sxv_subject *s, const sxv_base *base, const piece *p, const uint8_t *bits,
                    const char *what, sxv_evidence *evidence)
{
    sx_dtype dtype = p->analysis.result.dtype;
    size_t bytes = sx_dtype_bytes(dtype);
    int64_t elements = sx_tensor_elements(&p->analysis.result);
    for (int64_t i = 0; i < elements && !evidence->differs; i++) {
        int64_t place = place_of(s, p, i);
        if (place < 0 || (base->touched != NULL && base->touched[(size_t)place * bytes] == 0)) {
            continue;
        }
        evidence->elements++;
        if (!same_element(dtype, bits, i, base->bits, place)) {
            evidence->differs = true;
            (void)snprintf(evidence->difference, sizeof(evidence->difference),
                           "%s: element %lld is 0x%0*llx, it was 0x%0*llx (%.9g, it was %.9g)",
                           what, (long long)place, (int)bytes * 2, bits_of(dtype, bits, i),
                           (int)bytes * 2, bits_of(dtype, base->bits, place),
                           sxv_element(dtype, bits, i), sxv_element(dtype, base->bits, place));
        }
    }
}

/* ---- trials ---- */

typedef struct {
    const sxv_subject *s;
    const sxv_base *base;
    const sxv_trials *trials;
    sxv_evidence *evidence;
    sx_rng rng;
    /* Plans beside that of the base that schedules have, and what their kernels made of the same box. */
    struct {
        uint64_t numerics;
        uint8_t *bits;
    } other[OTHERS_MAX];
    uint32_t other_count;
    /* After so many instructions the present kind of trial ends: each has a share. */
    uint64_t until;
} state;

/* Instructions that a box takes, about. */
static double estimate(const sxv_subject *s, const box *b)
{
    const sx_body *body = s->fused->body;
    bool dot = sx_body_kernel_kind(body) == SX_KERNEL_DOT;
    double kept = 1, summed = 1, weight = 2;
    for (uint32_t d = 0; d < rank_of(s); d++) {
        *(is_reduced(s, d) ? &summed : &kept) *= (double)b->extent[d];
    }
    for (uint32_t i = 0; i < body->instr_count; i++) {
        weight += body->instr[i].kind == SX_BODY_APPLY ? sx_op_weight(body->instr[i].op) : 1;
    }
    return (dot ? kept * (2 * summed + weight) : kept * summed * weight) / TRY_LANES;
}

/* Bytes of what arguments are made longer by. */
static int64_t longer_bytes(const sxv_subject *s, const box *b)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k < s->input_count; k++) {
        int64_t need = argument_need(s, k, b);
        bool longer = need > sx_tensor_elements(&s->input[k]);
        bytes += longer ? need * (int64_t)sx_dtype_bytes(s->input[k].dtype) : 0;
    }
    return bytes;
}

/* Makes the other dimensions smaller, the longest first; false: the box still takes too many instructions or bytes. */
static bool fit(const state *t, uint32_t keep, box *b)
{
    const sxv_subject *s = t->s;
    uint32_t longest = 0;
    while (longest != SX_RANK_MAX && estimate(s, b) > (double)t->trials->trial_wish) {
        longest = SX_RANK_MAX;
        for (uint32_t d = 0; d < rank_of(s); d++) {
            bool may = d != keep && !is_reduced(s, d) && b->extent[d] > 1;
            bool longer = longest == SX_RANK_MAX || b->extent[d] > b->extent[longest];
            longest = may && longer ? d : longest;
        }
        if (longest != SX_RANK_MAX) {
            b->extent[longest] = (b->extent[longest] + 1) / 2;
        }
    }
    return estimate(s, b) <= (double)t->trials->trial_max && longer_bytes(s, b) <= BOX_BYTES_MAX;
}

/* Schedules of another plan than that of the base have the same bits as each other. Their box is always the same. */
static sx_code compare_others(sx_ctx *cx, state *t, const piece *p, uint64_t numerics,
                              const uint8_t *bits, const char *what)
{
    sx_dtype dtype = p->analysis.result.dtype;
    int64_t elements = sx_tensor_elements(&p->analysis.result);
    size_t bytes = (size_t)elements * sx_dtype_bytes(dtype);
    for (uint32_t i = 0; i < t->other_count; i++) {
        if (t->other[i].numerics == numerics) {
            int64_t at = sxv_first_difference(dtype, bits, t->other[i].bits, NULL, elements);
            t->evidence->elements += (uint64_t)elements;
            if (at >= 0) {
                t->evidence->differs = true;
                (void)snprintf(t->evidence->difference, sizeof(t->evidence->difference),
                               "%s: element %lld is not that of another kernel of plan %016llx",
                               what, (long long)at, (unsigned long long)numerics);
            }
            return SX_OK;
        }
    }
    if (t->other_count == OTHERS_MAX) {
        return SX_OK;
    }
    uint8_t *copy = sx_alloc(cx, bytes);
    SX_TRY(copy != NULL ? SX_OK : cx->error.code);
    memcpy(copy, bits, bytes);
    t->other[t->other_count].numerics = numerics;
    t->other[t->other_count++].bits = copy;
    return SX_OK;
}

/* Runs the piece under a schedule of the whole. Results of fewer columns may be none that a copy engine can store,
 * fewer rows none that are visited together, and clusters may divide neither: then threads store them, rows follow each
 * other, and blocks are alone. */
static sx_code run_under(sx_ctx *cx, state *t, const piece *p, const sx_schedule *schedule,
                         uint64_t order, uint64_t *numerics, uint8_t **bits)
{
    uint64_t *instructions = &t->evidence->instructions;
    sx_block_tiles tiles;
    sx_code code = run_piece(cx, t->s, p, schedule, order, numerics, bits, instructions);
    if (code != SX_UNIMPLEMENTED || !sx_block_tiles_of(schedule, &tiles) ||
        tiles.stores + tiles.raster + tiles.walkers + tiles.cluster_rows + tiles.cluster_columns ==
            0) {
        return code;
    }
    sx_ctx_reset_error(cx);
    sx_schedule plain;
    tiles.stores = tiles.raster = tiles.walkers = 0;
    tiles.cluster_rows = tiles.cluster_columns = 0;
    sx_schedule_block(&tiles, &plain);
    return run_piece(cx, t->s, p, &plain, order, numerics, bits, instructions);
}

/* Runs the box and compares it. `schedule` NULL: the one that is chosen for it, whose plan must be that of the base. */
static sx_code try_box(sx_ctx *outer, state *t, const box *b, const sx_schedule *schedule,
                       const char *what, uint32_t *counter)
{
    uint64_t numerics = 0;
    uint8_t *bits = NULL;
    sxv_evidence *e = t->evidence;
    sx_ctx cx = *outer; /* with memory of its own, which is given back */
    sx_arena_init(&cx.arena, outer->arena.limit_bytes);
    piece *p = SX_NEW(&cx, piece);
    sx_code code = p != NULL ? make_piece(&cx, t->s, b, p) : cx.error.code;
    uint64_t order = sx_rng_next(&t->rng) | 1;
    if (code == SX_OK && schedule != NULL) {
        code = run_under(&cx, t, p, schedule, order, &numerics, &bits);
    } else if (code == SX_OK) {
        code = run_best(&cx, t->s, p, order, &numerics, &bits, &e->instructions);
    }
    if (code == SX_OK && numerics == t->base->numerics) {
        (*counter)++;
        compare(t->s, t->base, p, bits, what, e);
    } else if (code == SX_OK && schedule == NULL) {
        e->differs = true;
        (void)snprintf(e->difference, sizeof(e->difference),
                       "%s: numerics plan %016llx is chosen, it was %016llx", what,
                       (unsigned long long)numerics, (unsigned long long)t->base->numerics);
    } else if (code == SX_OK) {
        e->other_plans++;
        code = compare_others(outer, t, p, numerics, bits, what);
    }
    sx_arena_fini(&cx.arena);
    outer->fuel = cx.fuel;
    if (schedule != NULL && (code == SX_LIMIT || code == SX_UNIMPLEMENTED)) {
        return SX_OK; /* not one that a kernel can have */
    }
    if (code != SX_OK) {
        outer->error = cx.error;
    }
    return code;
}

static bool may_go_on(const state *t)
{
    return !t->evidence->differs && t->evidence->instructions < t->until;
}

static char letter_of(const sxv_subject *s, const piece *whole, uint32_t d)
{
    SX_ASSERT(d < rank_of(s));
    return sx_role_letter(whole->analysis.space_role[d]);
}

/* "m=1,2,3 n=1" */
static void note(sxv_evidence *e, char letter, int64_t extent, bool first)
{
    size_t used = strlen(e->tried);
    char text[32];
    int size = first ? snprintf(text, sizeof(text), "%s%c=%lld", used > 0 ? " " : "", letter,
                                (long long)extent)
                     : snprintf(text, sizeof(text), ",%lld", (long long)extent);
    if (used + (size_t)size < sizeof(e->tried)) {
        memcpy(e->tried + used, text, (size_t)size + 1);
    }
}

static bool has_index(const sxv_subject *s, uint32_t d)
{
    const sx_body *body = s->fused->body;
    bool found = false;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        found = found || (body->instr[i].kind == SX_BODY_INDEX && body->instr[i].x == d);
    }
    return found;
}

/* Along a dimension that no argument varies with, a kernel would write the same element again. */
static bool varies(const sxv_subject *s, uint32_t d)
{
    bool found = has_index(s, d);
    for (uint32_t k = 0; k < s->input_count; k++) {
        found = found || s->fused->body->access[k].stride[d].scale != 0;
    }
    return found;
}

static sx_code try_extents(sx_ctx *cx, state *t, const piece *whole, uint32_t d)
{
    char letter = letter_of(t->s, whole, d);
    bool first = true;
    if (!varies(t->s, d)) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < t->trials->extent_count; i++) {
        box b = box_of(t->s);
        char what[64];
        uint32_t before = t->evidence->extents;
        b.extent[d] = t->trials->extent[i];
        (void)snprintf(what, sizeof(what), "with %c = %lld", letter, (long long)b.extent[d]);
        if (!may_go_on(t) || !fit(t, d, &b)) {
            t->evidence->left_out++;
            continue;
        }
        SX_TRY(try_box(cx, t, &b, NULL, what, &t->evidence->extents));
        if (t->evidence->extents > before) {
            note(t->evidence, letter, b.extent[d], first);
            first = false;
        }
    }
    return SX_OK;
}

/* Positions of a dimension that leave the kernel its layout: where the copy engine reads a factor whose columns lie
 * side by side, other columns than those at multiples of 16 bytes would be a factor that it cannot read, and another
 * plan. */
static int64_t position_unit(const sxv_subject *s, const piece *whole, uint32_t d)
{
    const sx_analysis *a = &whole->analysis;
    const sx_matrix_instruction *matrix =
        a->kind == SX_KERNEL_DOT
            ? sx_search_matrix(a, s->target->matrix, sx_search_matrices(s->device, s->target))
            : NULL;
    bool beside = matrix != NULL && matrix->warps > 1 &&
                  (a->body->access[a->lhs].stride[d].scale == 1 ||
                   a->body->access[a->rhs].stride[d].scale == 1);
    return beside ? 16 / sx_dtype_bytes(matrix->factor) : 1;
}

/* Some elements in the middle of the dimension as if they were the first ones. */
static sx_code try_position(sx_ctx *cx, state *t, const piece *whole, uint32_t d)
{
    box b = box_of(t->s);
    char what[64];
    int64_t unit = position_unit(t->s, whole, d), places = (b.extent[d] - 1) / unit;
    if (places < 1 || has_index(t->s, d) || !may_go_on(t)) {
        return SX_OK;
    }
    b.start[d] = unit * (1 + (int64_t)sx_rng_below(&t->rng, (uint64_t)places));
    b.extent[d] = sx_min_i64(POSITION, b.extent[d] - b.start[d]);
    (void)snprintf(what, sizeof(what), "from %c = %lld on", letter_of(t->s, whole, d),
                   (long long)b.start[d]);
    if (!fit(t, d, &b)) {
        t->evidence->left_out++;
        return SX_OK;
    }
    return try_box(cx, t, &b, NULL, what, &t->evidence->positions);
}

/* 2^first .. 2^last */
static int64_t draw_power(sx_rng *rng, uint32_t first, uint32_t last)
{
    return INT64_C(1) << (first + (uint32_t)sx_rng_below(rng, last - first + 1));
}

/* Tiles of a block of threads, with the instruction that the type asks for. */
static void draw_block(state *t, const sx_analysis *a, sx_schedule *s)
{
    const sx_target *target = t->s->target;
    const sx_matrix_instruction *matrix =
        sx_search_matrix(a, target->matrix, sx_search_matrices(t->s->device, target));
    sx_block_tiles tiles = {.left = a->lhs, .right = a->rhs};
    tiles.warp_rows = draw_power(&t->rng, 4, 5);
    tiles.warp_columns = draw_power(&t->rng, 3, 5);
    tiles.steps = draw_power(&t->rng, 3, 5);
    tiles.depth = 2 + (uint32_t)sx_rng_below(&t->rng, 3);
    if (matrix != NULL) {
        bool sliced = sx_matrix_slice(matrix, a->extent[SX_ROLE_SUM]) != 0; /* totals take room */
        matrix += sx_rng_below(&t->rng, sliced ? (matrix->more + 1) / 2 + 1 : matrix->more + 1);
        tiles.matrix_rows = matrix->rows;
        tiles.matrix_columns = matrix->columns;
        if (matrix->warps > 1) {
            tiles.warp_rows = matrix->rows;
            tiles.warp_columns = matrix->columns;
            tiles.stores = (uint32_t)sx_rng_below(&t->rng, SX_BLOCK_STORES_MAX + 1);
            tiles.walkers = (uint32_t)sx_rng_below(&t->rng, 4);
        }
        tiles.matrix_steps = matrix->steps;
        tiles.steps = sx_max_i64(tiles.steps, matrix->steps);
        tiles.slice = sx_matrix_slice(matrix, a->extent[SX_ROLE_SUM]);
        tiles.apart = tiles.slice != 0 && sx_slices_apart(a) && sx_rng_below(&t->rng, 2) != 0;
        tiles.stores = tiles.apart ? 0 : tiles.stores;
        tiles.walkers = tiles.apart ? 0 : tiles.walkers;
        tiles.raster = tiles.apart ? 0 : 2 * (uint32_t)sx_rng_below(&t->rng, 2);
        if (matrix->warps > 1 && !tiles.apart && (tiles.walkers == 0 || tiles.walkers == 2)) {
            bool along_rows = tiles.walkers > 0 ? tiles.raster > 0 : sx_rng_below(&t->rng, 2) != 0;
            tiles.cluster_rows = along_rows ? SX_BLOCK_CLUSTER : 0;
            tiles.cluster_columns = along_rows ? 0 : SX_BLOCK_CLUSTER;
        }
    } else {
        tiles.thread_rows = (uint32_t)draw_power(&t->rng, 0, 2);
        tiles.thread_columns = (uint32_t)draw_power(&t->rng, 0, 2);
        tiles.warp_rows = 4 * (int64_t)tiles.thread_rows;
        tiles.warp_columns = 8 * (int64_t)tiles.thread_columns;
    }
    if (matrix != NULL && a->lhs != a->rhs && sx_rng_below(&t->rng, 3) == 0) {
        tiles.swapped = true;
        tiles.left = a->rhs;
        tiles.right = a->lhs;
    }
    tiles.rows = tiles.warp_rows * draw_power(&t->rng, 0, 1);
    tiles.columns = tiles.warp_columns * draw_power(&t->rng, 0, 1);
    sx_schedule_block(&tiles, s);
}

static void draw_online_blocks(sx_rng *rng, sx_online_blocks *blocks)
{
    blocks->rows = 16 << sx_rng_below(rng, 3);
    blocks->depth = 2 + (uint32_t)sx_rng_below(rng, 2);
}

/* A schedule of the forms that are searched, with other numbers; keys per block are those of the plan. */
static void draw_schedule(state *t, const sx_analysis *a, const sx_schedule *usual, sx_schedule *s)
{
    sx_rng *rng = &t->rng;
    uint32_t lanes = sx_vector_unit_lanes(&t->s->target->vectors, a->lane_bytes);
    int64_t rows = 1 + (int64_t)sx_rng_below(rng, 70);
    int64_t columns = (int64_t)lanes * (1 + (int64_t)sx_rng_below(rng, 4));
    sx_contraction_tiles dot = {.lanes = lanes, .panels = UINT32_MAX};
    dot.block_rows = 1 + (uint32_t)sx_rng_below(rng, 14);
    dot.block_vectors = 1 + (uint32_t)sx_rng_below(rng, 4);
    dot.unroll = 1 + (uint32_t)sx_rng_below(rng, 4);
    sx_online_tiles online = {.lanes = lanes};
    online.strip = 1 + (uint32_t)sx_rng_below(rng, 24);
    online.vectors = 1 + (uint32_t)sx_rng_below(rng, 4);
    sx_online_blocks blocks;
    switch (a->kind) {
    case SX_KERNEL_MAP:
        if (t->s->target->vectors.threads && sx_rng_below(rng, 2) == 0) {
            uint32_t width = 2u << sx_rng_below(rng, 3);
            sx_schedule_map_wide(lanes, width, rows, columns, 1, s);
        } else {
            sx_schedule_map(lanes, rows, columns, 1u << sx_rng_below(rng, 3), s);
        }
        return;
    case SX_KERNEL_ROW: sx_schedule_row(lanes, a->lane_bytes, a->along, rows, columns, s); return;
    case SX_KERNEL_DOT:
        if ((t->s->target->spaces >> SX_SPACE_SHARED & 1) != 0 && sx_rng_below(rng, 3) > 0) {
            draw_block(t, a, s);
            return;
        }
        dot.unroll = (uint32_t)sx_min_i64(dot.unroll, a->extent[SX_ROLE_SUM]);
        dot.tile_rows = sx_max_i64(rows, dot.block_rows);
        dot.tile_columns = (1 + (int64_t)sx_rng_below(rng, 3)) * lanes * dot.block_vectors;
        dot.panels = a->rhs_packable && (!a->rhs_direct || rows % 2 == 0) ? a->rhs : UINT32_MAX;
        sx_schedule_contraction(&dot, s);
        return;
    case SX_KERNEL_ONLINE:
        if (sx_online_blocks_of(usual, &blocks)) {
            draw_online_blocks(rng, &blocks);
            sx_schedule_online_blocks(&blocks, s);
            return;
        }
        online.keys = sx_schedule_step(usual, SX_ROLE_SUM, SX_BIND_LOOP, 0);
        while (online.keys % online.strip != 0) {
            online.strip--;
        }
        sx_schedule_online(&online, s);
        return;
    case SX_KERNEL_NESTED: /* blocks of keys are no part of its plan; none leaves a last key alone */
        if (sx_online_blocks_of(usual, &blocks)) {
            draw_online_blocks(rng, &blocks);
            sx_schedule_online_blocks(&blocks, s);
            return;
        }
        online.keys = online.strip * (1 + (int64_t)sx_rng_below(rng, 8));
        int64_t keys = a->keys == SX_NO_DIM ? 1 : a->view.extent[a->keys];
        while (keys > online.keys && keys % online.keys == 1) {
            online.keys += online.strip;
        }
        sx_schedule_online(&online, s);
        return;
    }
}

static sx_code try_schedules(sx_ctx *cx, state *t, const piece *whole)
{
    sx_search_result search;
    SX_TRY(sx_search_kernel(cx, &whole->analysis, t->s->device, t->s->rhs_constant, SX_SEARCH_KEEP,
                            &search));
    for (uint32_t i = 0; i < t->trials->schedules && may_go_on(t); i++) {
        sx_schedule schedule = {.level_count = 0};
        box b = box_of(t->s);
        sx_buf text;
        char what[SXV_EVIDENCE_TEXT / 2];
        if (!fit(t, SX_RANK_MAX, &b)) {
            t->evidence->left_out++;
            return SX_OK;
        }
        if (i % 2 == 0 && i / 2 < search.best_count) {
            schedule = search.best[i / 2].schedule; /* as it would run elsewhere */
        } else {
            draw_schedule(t, &whole->analysis, &search.best[0].schedule, &schedule);
        }
        sx_buf_init(&text, SX_SCHEDULE_TEXT_MAX + 1);
        sx_schedule_print(&schedule, &text);
        (void)snprintf(what, sizeof(what), "under %.*s", (int)text.len, (const char *)text.ptr);
        sx_buf_fini(&text);
        SX_TRY(try_box(cx, t, &b, &schedule, what, &t->evidence->schedules));
    }
    return SX_OK;
}

sx_code sxv_try(sx_ctx *cx, const sxv_subject *s, const sxv_base *base, const sxv_trials *trials,
                sxv_evidence *evidence)
{
    box all = box_of(s);
    piece *whole = SX_NEW(cx, piece);
    state t = {.s = s,
               .base = base,
               .trials = trials,
               .evidence = evidence,
               .rng = {trials->seed},
               .until = trials->total_max / 3};
    uint32_t kept = 0, done = 0;
    SX_ASSERT(base->bits != NULL && trials->trial_max >= trials->trial_wish);
    *evidence = (sxv_evidence){.differs = false};
    SX_TRY(whole != NULL ? make_piece(cx, s, &all, whole) : cx->error.code);
    SX_TRY(try_schedules(cx, &t, whole));
    for (uint32_t d = 0; d < rank_of(s); d++) {
        kept += is_reduced(s, d) ? 0 : 1;
    }
    for (uint32_t d = 0; d < rank_of(s); d++) {
        if (!is_reduced(s, d)) {
            t.until = (trials->total_max + 2 * trials->total_max * ++done / kept) / 3;
            SX_TRY(try_position(cx, &t, whole, d));
            SX_TRY(try_extents(cx, &t, whole, d));
        }
    }
    return SX_OK;
}
