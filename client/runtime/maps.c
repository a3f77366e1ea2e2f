#include "client/runtime/maps.h"

#include <string.h>

#include "core/ir/ir.h"

#define GRID_RANK 3u /* numbers of a part that are its grid */

_Static_assert(SX_MODULE_MAPS_MAX == SX_MAPS_MAX && SX_MODULE_MAP_RANK_MAX == SX_MAP_RANK_MAX &&
                   SX_MODULE_MAP_RANK_MAX == SXG_MAP_RANK_MAX,
               "maps of all parts and ranks");

/* The dimensions of a map where the part has these numbers, those of its grid apart. */
static void put_dims(const sx_module_map *map, const int64_t *number, uint64_t *dim)
{
    for (uint32_t d = 0; d < SX_MODULE_MAP_RANK_MAX; d++) {
        uint32_t which = map->dim_number[d];
        SX_ASSERT(which == 0 ||
                  (which >= GRID_RANK && number != NULL)); /* the module was checked */
        dim[d] = which == 0 ? map->dim[d] : (uint64_t)number[which - GRID_RANK];
    }
}

void sxr_maps_of(const sx_module *module, uint32_t part, const int64_t *number,
                 sx_machine_maps *maps)
{
    const sx_module_map *row = sx_module_maps_of(module, part, &maps->count);
    SX_ASSERT(maps->count <= SX_MAPS_MAX); /* the module was checked */
    for (uint32_t i = 0; i < maps->count; i++) {
        maps->map[i] = (sx_machine_map){.buffer = row[i].arg,
                                        .offset = row[i].offset,
                                        .dtype = (uint8_t)row[i].dtype,
                                        .rank = (uint8_t)row[i].rank,
                                        .element_bytes = (uint8_t)row[i].element_bytes,
                                        .swizzle_bytes = (uint8_t)row[i].swizzle_bytes,
                                        .promoted_bytes = (uint16_t)row[i].promoted_bytes};
        put_dims(&row[i], number, maps->map[i].dims);
        memcpy(maps->map[i].strides, row[i].stride, sizeof(row[i].stride));
        memcpy(maps->map[i].box, row[i].box, sizeof(row[i].box));
    }
}

/* Elements are copied bit by bit: what the driver has no name for goes by its size. */
static sxg_element element_of(const sx_module_map *map)
{
    switch (map->dtype) {
    case SX_F64: return SXG_F64;
    case SX_F32: return SXG_F32;
    case SX_BF16: return SXG_BF16;
    case SX_F16: return SXG_F16;
    default: break;
    }
    return map->element_bytes == 1   ? SXG_U8
           : map->element_bytes == 2 ? SXG_U16
           : map->element_bytes == 4 ? SXG_U32
                                     : SXG_U64;
}

void sxr_map_at(const sx_module_map *map, const int64_t *number, uint64_t argument, sxg_map *at)
{
    *at = (sxg_map){.at = argument + map->offset,
                    .element = element_of(map),
                    .rank = map->rank,
                    .swizzle_bytes = map->swizzle_bytes,
                    .promoted_bytes = map->promoted_bytes};
    put_dims(map, number, at->dim);
    memcpy(at->stride, map->stride, sizeof(map->stride));
    memcpy(at->box, map->box, sizeof(map->box));
}
