/* module_map.c - what the copy engine of a GPU reads at the entries of block programs: all that the driver would refuse
 * when it encodes a map, or the engine would do without a word ("CUDA Driver API", cuTensorMapEncodeTiled). */
#include "protocol/module_check.h"

#define U(value) ((unsigned long long)(value))
#define BAD(cx, index, format, ...) \
    SX_FAIL((cx), SX_CORRUPT, "module map %llu: " format, U(index), __VA_ARGS__)

#define LEVEL_LEAST 90u /* compute capability 9.0 has a copy engine */
#define DIM_MAX (UINT64_C(1) << 32)
#define STRIDE_MAX (UINT64_C(1) << 40) /* and this itself is too much */
#define BOX_MAX 256u
#define GRID_RANK 3u /* numbers of a part that are its grid */

static sx_code check_owner(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    const sx_module_map *map = &module->map[index];
    const sx_module_kernel *kernel =
        map->kernel < module->kernel_count ? &module->kernel[map->kernel] : NULL;
    if (kernel == NULL || kernel->form != SX_FORM_PTX || map->part < kernel->part_first ||
        map->part - kernel->part_first >= kernel->part_count) {
        return BAD(cx, index, "of kernel %u, part %u", map->kernel, map->part);
    }
    if (module->part[map->part].threads == 0 || kernel->level < LEVEL_LEAST) {
        return BAD(cx, index,
                   "of part %u: %u threads, on level %u; blocks from level %u on have it",
                   map->part, module->part[map->part].threads, kernel->level, LEVEL_LEAST);
    }
    if (map->arg >= kernel->arg_count) {
        return BAD(cx, index, "argument %u, kernel %u has %u", map->arg, map->kernel,
                   kernel->arg_count);
    }
    uint32_t before = 0;
    while (before < index && module->map[index - 1 - before].part == map->part) {
        before++;
    }
    if (before >= SX_MODULE_MAPS_MAX || (index > 0 && module->map[index - 1].part > map->part)) {
        return BAD(cx, index, "part %u, behind part %u and %u maps of its own, at most %u",
                   map->part, module->map[index - 1].part, before, SX_MODULE_MAPS_MAX);
    }
    return SX_OK;
}

static sx_code check_dimension(sx_ctx *cx, const sx_module_map *map, uint64_t index, uint32_t d)
{
    if (d >= map->rank) {
        bool empty =
            map->dim[d] == 0 && map->stride[d] == 0 && map->box[d] == 0 && map->dim_number[d] == 0;
        return empty ? SX_OK : BAD(cx, index, "dimension %u of %u is not empty", d, map->rank);
    }
    if (map->dim[d] == 0 || map->dim[d] > DIM_MAX) {
        return BAD(cx, index, "dim[%u] is %llu, from 1 to 2^32", d, U(map->dim[d]));
    }
    if (d == 0 ? map->stride[d] != map->element_bytes
               : map->stride[d] == 0 || map->stride[d] % SX_MODULE_MAP_ALIGN != 0 ||
                     map->stride[d] >= STRIDE_MAX) {
        return BAD(cx, index, "stride[%u] is %llu, %s", d, U(map->stride[d]),
                   d == 0 ? "the bytes of an element" : "a multiple of 16 below 2^40");
    }
    if (map->box[d] == 0 || map->box[d] > BOX_MAX) {
        return BAD(cx, index, "box[%u] is %u, from 1 to %u", d, map->box[d], BOX_MAX);
    }
    return SX_OK;
}

static bool is_one_of(uint32_t value, uint32_t a, uint32_t b, uint32_t c)
{
    return value == 0 || value == a || value == b || value == c;
}

static sx_code check_box(sx_ctx *cx, const sx_module_map *map, uint64_t index)
{
    uint32_t inner = map->box[0] * map->element_bytes;
    uint64_t bytes = map->element_bytes;
    for (uint32_t d = 0; d < map->rank; d++) {
        bytes *= map->box[d]; /* at most 2^43 */
    }
    if (inner % SX_MODULE_MAP_ALIGN != 0 || bytes > SX_MODULE_SHARED_BYTES_MAX) {
        return BAD(cx, index, "box of %llu bytes in rows of %u: rows are multiples of 16, all %u",
                   U(bytes), inner, SX_MODULE_SHARED_BYTES_MAX);
    }
    if (!is_one_of(map->swizzle_bytes, 32, 64, 128) ||
        (map->swizzle_bytes != 0 && inner > map->swizzle_bytes)) {
        return BAD(cx, index, "box[0] of %u bytes, swizzle of %u: 0, 32, 64 or 128 and no less",
                   inner, map->swizzle_bytes);
    }
    if (!is_one_of(map->promoted_bytes, 64, 128, 256)) {
        return BAD(cx, index, "promotion to %u bytes (0, 64, 128 or 256)", map->promoted_bytes);
    }
    return SX_OK;
}

/* A dimension that follows extents is a number of the part, which stays within what stands in the map. */
static sx_code check_numbers(sx_ctx *cx, const sx_module *module, uint64_t index, uint32_t d)
{
    const sx_module_map *map = &module->map[index];
    uint32_t count, wanted = map->dim_number[d];
    const sx_module_case *row = sx_module_cases_of(module, map->part, &count);
    bool found = wanted == 0;
    for (uint32_t i = 0; wanted != 0 && i < count; i++) {
        if (wanted < GRID_RANK || wanted < row[i].slot ||
            wanted - row[i].slot >= row[i].number_count) {
            continue;
        }
        int64_t low = sx_module_number_of(module, &row[i], wanted - row[i].slot, row[i].low);
        int64_t high = sx_module_number_of(module, &row[i], wanted - row[i].slot, row[i].high);
        found = true;
        if (sx_min_i64(low, high) < 1 || (uint64_t)sx_max_i64(low, high) > map->dim[d]) {
            return BAD(cx, index, "dim[%u] is %lld to %lld by its cases, from 1 to %llu", d,
                       (long long)low, (long long)high, U(map->dim[d]));
        }
    }
    return found ? SX_OK
                 : BAD(cx, index, "dim[%u] is number %u of part %u, whose cases have none", d,
                       wanted, map->part);
}

sx_code sx_module_check_map(sx_ctx *cx, const sx_module *module, uint64_t index)
{
    SX_ASSERT(index < module->map_count);
    const sx_module_map *map = &module->map[index];
    SX_TRY(check_owner(cx, module, index));
    uint32_t bytes = map->element_bytes;
    if ((bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) || map->rank == 0 ||
        map->rank > SX_MODULE_MAP_RANK_MAX || map->offset % SX_MODULE_MAP_ALIGN != 0) {
        return BAD(cx, index, "elements of %u bytes, rank %u, from byte %llu on, a multiple of %u",
                   bytes, map->rank, U(map->offset), SX_MODULE_MAP_ALIGN);
    }
    for (uint32_t d = 0; d < SX_MODULE_MAP_RANK_MAX; d++) {
        SX_TRY(check_dimension(cx, map, index, d));
        SX_TRY(check_numbers(cx, module, index, d));
    }
    return check_box(cx, map, index);
}

/* Bytes from the first element that the engine may read to the end of the last one; 0: more than any tensor has. */
static uint64_t span_of(const sx_module_map *map)
{
    uint64_t bytes = map->element_bytes;
    for (uint32_t d = 0; d < map->rank; d++) {
        uint64_t steps = map->dim[d] - 1;
        if (steps > SX_MODULE_BYTES_MAX / map->stride[d]) {
            return 0;
        }
        bytes += steps * map->stride[d]; /* each at most 2^36 */
    }
    return bytes;
}

/* Is the part for some extents alone, those that its maps are of? */
static bool has_cases(const sx_module *module, uint32_t part)
{
    uint32_t count;
    (void)sx_module_cases_of(module, part, &count);
    return count > 0;
}

sx_code sx_module_check_mapped(sx_ctx *cx, const sx_module *module, uint64_t launch)
{
    const sx_module_launch *l = &module->launch[launch];
    const sx_module_kernel *kernel = &module->kernel[l->kernel];
    SX_ASSERT(l->kind == SX_LAUNCH_KERNEL && l->arg_count == kernel->arg_count);
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        uint32_t count;
        const sx_module_map *map = sx_module_maps_of(module, kernel->part_first + p, &count);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t tensor = module->arg[l->arg_first + map[i].arg];
            const sx_module_tensor *t = &module->tensor[tensor];
            uint64_t span = span_of(&map[i]);
            if (t->dtype != map[i].dtype || t->element_bytes != map[i].element_bytes || span == 0 ||
                map[i].offset > t->size || span > t->size - map[i].offset ||
                (sx_module_follows_symbol(module, tensor) && !has_cases(module, map[i].part))) {
                return BAD(
                    cx, map - module->map + i,
                    "%llu bytes from %llu on of element type %u, launch %llu gives tensor %u "
                    "of %llu and type %u",
                    U(span), U(map[i].offset), map[i].dtype, U(launch), tensor, U(t->size),
                    t->dtype);
            }
        }
    }
    return SX_OK;
}

const sx_module_map *sx_module_maps_of(const sx_module *module, uint32_t part, uint32_t *count)
{
    uint64_t low = 0, high = module->map_count;
    SX_ASSERT(count != NULL && part < SX_MODULE_NONE);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        bool before = module->map[middle].part < part;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    *count = 0;
    while (low + *count < module->map_count && module->map[low + *count].part == part) {
        (*count)++;
    }
    return module->map + low;
}
