/* share.c - what the variants of a module have in common is kept once: kernels of equal code, and what equal
 * launches of their prologues make of the same weights and constants (packed weights above all). */
#include "core/pipeline.h"

#include <string.h>

/* ---- kernels ---- */

/* A kernel that has just been emitted, beside those that are in the module. */
typedef struct {
    const sx_pipe *pipe;
    const sx_module_kernel *record;
    const sx_module_part *part; /* [record->part_count], what their grids follow, */
    const int64_t (*follows)[3];
    const sx_machine_maps *maps; /* and what the copy engine reads at each */
} newcomer;

static const sx_module_kernel *kernel_at(const sx_pipe *pipe, uint32_t index)
{
    SX_ASSERT(index < pipe->kernel_count);
    return (const sx_module_kernel *)(const void *)pipe->image->kernel.ptr + index;
}

static const sx_module_part *parts_of(const sx_pipe *pipe, const sx_module_kernel *kernel)
{
    return (const sx_module_part *)(const void *)pipe->image->part.ptr + kernel->part_first;
}

/* The bytes from the first entry on: what stands before it is padding. */
static sx_span code_of(const sx_pipe *pipe, const sx_module_kernel *kernel,
                       const sx_module_part *part)
{
    uint64_t end = kernel->code_offset + kernel->code_size;
    SX_ASSERT(part->entry >= kernel->code_offset && part->entry < end);
    return (sx_span){pipe->image->code.ptr + part->entry, (size_t)(end - part->entry)};
}

sx_module_map sx_pipe_map(const sx_machine_map *map)
{
    _Static_assert(SX_MODULE_MAP_RANK_MAX == SX_MAP_RANK_MAX && SX_MODULE_MAPS_MAX == SX_MAPS_MAX,
                   "modules have room for all maps");
    sx_module_map row = {.arg = map->buffer,
                         .dtype = map->dtype,
                         .element_bytes = map->element_bytes,
                         .rank = map->rank,
                         .swizzle_bytes = map->swizzle_bytes,
                         .promoted_bytes = map->promoted_bytes,
                         .offset = map->offset};
    memcpy(row.dim, map->dims, sizeof(row.dim));
    memcpy(row.stride, map->strides, sizeof(row.stride));
    memcpy(row.box, map->box, sizeof(row.box));
    for (uint32_t d = 0; d < SX_MODULE_MAP_RANK_MAX; d++) { /* the grid comes first */
        row.dim_number[d] = map->dim_number[d] != 0 ? 3 + map->dim_number[d] - 1 : 0;
    }
    return row;
}

/* The text does not say what is copied, only by which parameter: maps of other extents make other kernels. */
static bool same_maps(const sx_pipe *pipe, uint32_t kernel, uint32_t part,
                      const sx_machine_maps *maps)
{
    const sx_module_map *row = (const sx_module_map *)(const void *)pipe->image->map.ptr;
    uint64_t count = pipe->image->map.len / sizeof(*row);
    uint32_t found = 0;
    bool same = true;
    for (uint64_t i = 0; same && i < count; i++) {
        if (row[i].part != part) {
            continue;
        }
        sx_module_map wanted = {.kernel = 0};
        if (found < maps->count) {
            wanted = sx_pipe_map(&maps->map[found]);
        }
        wanted.kernel = kernel;
        wanted.part = part;
        same = found < maps->count && memcmp(&row[i], &wanted, sizeof(wanted)) == 0;
        found++;
    }
    return same && found == maps->count;
}

static bool same_follows(const sx_pipe *pipe, uint32_t part, const int64_t follows[3])
{
    int64_t its[3];
    sx_pipe_follows_of(pipe, part, its);
    return memcmp(its, follows, sizeof(its)) == 0;
}

/* Kernels with cases are nobody's but their own: they stand in one variant. */
static bool has_cases(const sx_pipe *pipe, const sx_module_kernel *kernel)
{
    const sx_module_case *row = (const sx_module_case *)(const void *)pipe->image->cases.ptr;
    size_t count = pipe->image->cases.len / sizeof(*row);
    bool found = false;
    for (size_t i = 0; i < count && !found; i++) {
        found = row[i].part >= kernel->part_first &&
                row[i].part - kernel->part_first < kernel->part_count;
    }
    return found;
}

/* They do the same, and are the same to those who read the report. */
static bool same_kernel(const void *self, uint32_t id, const void *probe)
{
    const newcomer *n = probe;
    const sx_pipe *pipe = self;
    const sx_module_kernel *a = kernel_at(pipe, id), *b = n->record;
    bool same = a->node == b->node && a->kind == b->kind && a->numerics == b->numerics &&
                a->form == b->form && a->arch == b->arch && a->level == b->level &&
                a->arg_count == b->arg_count && a->result_count == b->result_count &&
                memcmp(a->other, b->other, sizeof(a->other)) == 0 &&
                a->part_count == b->part_count && !has_cases(pipe, a);
    const sx_module_part *p = parts_of(pipe, a);
    for (uint32_t k = 0; same && k < b->part_count; k++) {
        same = p[k].entry - p->entry == n->part[k].entry - n->part->entry &&
               memcmp(p[k].grid, n->part[k].grid, sizeof(p->grid)) == 0 &&
               p[k].threads == n->part[k].threads && p[k].shared_bytes == n->part[k].shared_bytes &&
               p[k].walkers == n->part[k].walkers &&
               same_follows(pipe, a->part_first + k, n->follows[k]) &&
               same_maps(pipe, id, a->part_first + k, &n->maps[k]);
    }
    return same && sx_span_equal(code_of(pipe, a, p), code_of(pipe, b, n->part));
}

sx_code sx_pipe_share_kernel(sx_ctx *cx, sx_pipe *pipe, const sx_module_kernel *record,
                             const sx_module_part *part, const sx_pipe_follows follows,
                             const sx_machine_maps *maps, uint32_t *index)
{
    SX_ASSERT(record->part_count > 0);
    newcomer n = {pipe, record, part, follows, maps};
    uint64_t hash = sx_hash64(code_of(pipe, record, part), record->node);
    *index = sx_idmap_find(&pipe->code_map, hash, same_kernel, pipe, &n);
    if (*index == SX_IDMAP_NONE) {
        *index = SX_MODULE_NONE;
        return sx_idmap_put(cx, &pipe->code_map, hash, pipe->kernel_count);
    }
    if (record->code_offset + record->code_size == pipe->image->code.len) {
        pipe->image->code.len = (size_t)record->code_offset;
    }
    return SX_OK;
}

/* ---- results of prologues ---- */

typedef struct {
    sx_pipe *pipe;
    sx_module_launch *launch; /* all of the image */
    uint32_t *arg;
    uint32_t *stands_for; /* [tensor_count] the tensor that is kept in its place */
} sharing;

static bool same_launch(const void *self, uint32_t id, const void *probe)
{
    const sharing *s = self;
    const sx_module_launch *a = &s->launch[id], *b = probe;
    bool same = a->kernel == b->kernel && a->arg_count == b->arg_count;
    for (uint32_t k = 0; same && k + 1 < a->arg_count; k++) { /* the last one is the result */
        same = s->arg[a->arg_first + k] == s->arg[b->arg_first + k];
    }
    return same;
}

/* The result of this launch of a prologue is that of an earlier variant's launch, if there is one of the same
 * kernel on the same tensors. Their arguments stand for themselves by now. */
static sx_code share_result(sx_ctx *cx, sharing *s, sx_idmap *map, uint32_t index)
{
    const sx_module_launch *launch = &s->launch[index];
    SX_ASSERT(launch->kind == SX_LAUNCH_KERNEL && launch->arg_count > 0);
    uint32_t *arg = s->arg + launch->arg_first;
    uint32_t last = launch->arg_count - 1;
    uint64_t hash = sx_hash64((sx_span){(const uint8_t *)arg, last * sizeof(*arg)}, launch->kernel);
    uint32_t twin = sx_idmap_find(map, hash, same_launch, s, launch);
    if (twin == SX_IDMAP_NONE) {
        return sx_idmap_put(cx, map, hash, index);
    }
    uint32_t kept = s->arg[s->launch[twin].arg_first + last];
    sx_module_tensor *to = &s->pipe->tensor[kept].record;
    const sx_module_tensor *from = &s->pipe->tensor[arg[last]].record;
    SX_ASSERT(to->place == SX_TENSOR_PERSISTENT && from->place == SX_TENSOR_PERSISTENT);
    SX_ASSERT(to->size == from->size);
    if (to->variant != from->variant) { /* two of one variant are left as they are */
        to->variant = SX_MODULE_NONE;
        s->stands_for[arg[last]] = kept;
        arg[last] = kept;
    }
    return SX_OK;
}

/* Takes the tensors out that others stand for, and numbers the rest anew. */
static void close_ranks(sharing *s)
{
    sx_pipe *pipe = s->pipe;
    uint32_t count = 0;
    for (uint32_t i = 0; i < pipe->tensor_count; i++) {
        if (s->stands_for[i] == i) {
            pipe->tensor[count] = pipe->tensor[i];
            s->stands_for[i] = count++;
        } else {
            s->stands_for[i] =
                s->stands_for[s->stands_for[i]]; /* an earlier one: it has its number */
        }
    }
    pipe->tensor_count = count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *alias = &pipe->tensor[i].record.alias;
        *alias = *alias != SX_MODULE_NONE ? s->stands_for[*alias] : SX_MODULE_NONE;
    }
    for (size_t i = 0; i < pipe->image->arg.len / sizeof(uint32_t); i++) {
        s->arg[i] = s->stands_for[s->arg[i]];
    }
}

sx_code sx_pipe_share_results(sx_ctx *cx, sx_pipe *pipe)
{
    sharing s = {.pipe = pipe,
                 .launch = (sx_module_launch *)(void *)pipe->image->launch.ptr,
                 .arg = (uint32_t *)(void *)pipe->image->arg.ptr,
                 .stands_for = SX_NEW_ARRAY(cx, uint32_t, pipe->tensor_count + 1)};
    sx_idmap map = {0};
    if (s.stands_for == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < pipe->tensor_count; i++) {
        s.stands_for[i] = i;
    }
    for (uint32_t i = 0; i < pipe->launch_count; i++) {
        for (uint32_t k = 0; k < s.launch[i].arg_count; k++) {
            uint32_t *arg = &s.arg[s.launch[i].arg_first + k];
            *arg = s.stands_for[*arg];
        }
        if (s.launch[i].prologue == 1) {
            SX_TRY(share_result(cx, &s, &map, i));
        }
    }
    close_ranks(&s);
    return SX_OK;
}
