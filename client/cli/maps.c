#include "client/cli/maps.h"

#include "client/cli/cli.h"
#include "core/ir/ir.h"

static const char *element_name(const sx_module_map *map)
{
    return map->dtype < SX_DTYPE_COUNT ? sx_dtype_name((sx_dtype)map->dtype) : "unknown";
}

static void put_map(const sx_module_map *map, sx_buf *out)
{
    sx_buf_print(out, "  copies     argument %u: %s ", map->arg, element_name(map));
    for (uint32_t d = map->rank; d-- > 0;) {
        sx_buf_print(out, "%llu%s", (unsigned long long)map->dim[d], d > 0 ? " x " : "");
    }
    sx_buf_put_text(out, " in boxes of ");
    for (uint32_t d = map->rank; d-- > 0;) {
        sx_buf_print(out, "%u%s", map->box[d], d > 0 ? " x " : "");
    }
    if (map->swizzle_bytes > 0) {
        sx_buf_print(out, ", swizzled by %u bytes", map->swizzle_bytes);
    }
    sx_buf_put_u8(out, '\n');
}

void sxc_put_maps(const sx_module *module, const sx_module_kernel *kernel, sx_buf *out)
{
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        uint32_t count;
        const sx_module_map *map = sx_module_maps_of(module, kernel->part_first + p, &count);
        for (uint32_t i = 0; i < count; i++) {
            put_map(&map[i], out);
        }
    }
}

void sxc_json_maps(const sx_module *module, uint32_t part, sx_buf *json)
{
    uint32_t count;
    const sx_module_map *map = sx_module_maps_of(module, part, &count);
    sxc_json_open(json, "maps", '[');
    for (uint32_t i = 0; i < count; i++) {
        sxc_json_open(json, NULL, '{');
        sxc_json_int(json, "argument", map[i].arg);
        sxc_json_text(json, "element", sx_span_of(element_name(&map[i])));
        sxc_json_int(json, "offset", (int64_t)map[i].offset);
        sxc_json_open(json, "dims", '[');
        for (uint32_t d = 0; d < map[i].rank; d++) {
            sxc_json_int(json, NULL, (int64_t)map[i].dim[d]);
        }
        sxc_json_close(json, ']');
        sxc_json_open(json, "stride_bytes", '[');
        for (uint32_t d = 0; d < map[i].rank; d++) {
            sxc_json_int(json, NULL, (int64_t)map[i].stride[d]);
        }
        sxc_json_close(json, ']');
        sxc_json_open(json, "box", '[');
        for (uint32_t d = 0; d < map[i].rank; d++) {
            sxc_json_int(json, NULL, map[i].box[d]);
        }
        sxc_json_close(json, ']');
        sxc_json_int(json, "swizzle_bytes", map[i].swizzle_bytes);
        sxc_json_int(json, "promoted_bytes", map[i].promoted_bytes);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
}
