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
        sx_buf_print(out, "%s%llu%s", map->dim_number[d] != 0 ? "up to " : "",
                     (unsigned long long)map->dim[d], d > 0 ? " x " : "");
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
        sxc_json_open(json, "dim_numbers",
                      '['); /* of the part, by dimension; 0: it is as it stands */
        for (uint32_t d = 0; d < map[i].rank; d++) {
            sxc_json_int(json, NULL, map[i].dim_number[d]);
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

void sxc_json_cases(const sx_module *module, uint32_t part, sx_buf *json)
{
    uint32_t count;
    const sx_module_case *row = sx_module_cases_of(module, part, &count);
    sxc_json_open(json, "cases", '[');
    for (uint32_t i = 0; i < count; i++) {
        sxc_json_open(json, NULL, '{');
        sxc_json_int(json, "group", row[i].group);
        sxc_json_text(json, "symbol", sx_module_string(module, module->symbol[row[i].symbol].name));
        sxc_json_text(json, "other",
                      row[i].other == SX_MODULE_NONE
                          ? sx_span_of("")
                          : sx_module_string(module, module->symbol[row[i].other].name));
        sxc_json_int(json, "low", row[i].low);
        sxc_json_int(json, "high", row[i].high);
        sxc_json_int(json, "modulus", row[i].modulus);
        sxc_json_int(json, "remainder", row[i].remainder);
        sxc_json_int(json, "first", row[i].slot);
        sxc_json_open(json, "numbers", '[');
        for (uint32_t k = 0; k < row[i].number_count; k++) {
            const sx_module_number *number = &module->number[row[i].number_first + k];
            sxc_json_open(json, NULL, '[');
            sxc_json_int(json, NULL, number->scale);
            sxc_json_int(json, NULL, number->offset);
            sxc_json_close(json, ']');
        }
        sxc_json_close(json, ']');
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
}
