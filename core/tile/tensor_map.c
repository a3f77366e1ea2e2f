#include "core/tile/tensor_map.h"

static sx_code check_dim(sx_ctx *cx, const sx_tensor_map *map, uint32_t i)
{
    if (map->dims[i] == 0 || map->dims[i] > UINT64_C(1) << 32) {
        return SX_FAIL(cx, SX_INPUT, "tensor map: dims[%u] is %llu, from 1 to 2^32", i,
                       (unsigned long long)map->dims[i]);
    }
    if (i > 0 && (map->strides[i] % 16 != 0 || map->strides[i] >= UINT64_C(1) << 40 ||
                  map->strides[i] == 0)) {
        return SX_FAIL(cx, SX_INPUT, "tensor map: strides[%u] is %llu, a multiple of 16 below 2^40",
                       i, (unsigned long long)map->strides[i]);
    }
    if (map->box[i] == 0 || map->box[i] > SX_BOX_MAX) {
        return SX_FAIL(cx, SX_INPUT, "tensor map: box[%u] is %u, from 1 to %u", i, map->box[i],
                       SX_BOX_MAX);
    }
    if (map->element_strides[i] == 0 || map->element_strides[i] > 8 ||
        (i == 0 && map->element_strides[i] != 1)) {
        return SX_FAIL(cx, SX_INPUT, "tensor map: element_strides[%u] is %u, %s", i,
                       map->element_strides[i], i == 0 ? "which is 1" : "from 1 to 8");
    }
    return SX_OK;
}

sx_code sx_tensor_map_check(sx_ctx *cx, const sx_tensor_map *map)
{
    SX_ASSERT(map->swizzle < SX_SWIZZLE_COUNT);
    uint32_t bytes = sx_dtype_bytes(map->element);
    if (map->rank == 0 || map->rank > SX_TENSOR_RANK_MAX) {
        return SX_FAIL(cx, SX_INPUT, "tensor map: rank is %u, from 1 to %d", map->rank,
                       SX_TENSOR_RANK_MAX);
    }
    if (map->strides[0] != bytes) {
        return SX_FAIL(cx, SX_INPUT, "tensor map: strides[0] is %llu, elements have %u bytes",
                       (unsigned long long)map->strides[0], bytes);
    }
    for (uint32_t i = 0; i < map->rank; i++) {
        SX_TRY(check_dim(cx, map, i));
    }
    uint32_t inner = map->box[0] * bytes, width = sx_swizzle_bytes(map->swizzle);
    if (inner % 16 != 0) {
        return SX_FAIL(cx, SX_INPUT,
                       "tensor map: box[0] is %u of %u bytes each, a multiple of 16 bytes",
                       map->box[0], bytes);
    }
    if (map->swizzle != SX_SWIZZLE_NONE && inner > width) {
        return SX_FAIL(cx, SX_INPUT,
                       "tensor map: box[0] is %u bytes, at most the %u of the swizzle", inner,
                       width);
    }
    if (map->fill == SX_FILL_NAN &&
        (sx_dtype_class_of(map->element) != SX_CLASS_FLOAT || bytes < 2)) {
        return SX_FAIL(cx, SX_INPUT, "tensor map: fill is NaN, which elements %s do not have here",
                       sx_dtype_name(map->element));
    }
    return SX_OK;
}

sx_code sx_tensor_map_check_address(sx_ctx *cx, uint64_t address)
{
    SX_ASSERT(cx != NULL);
    if (address % 16 != 0) {
        return SX_FAIL(cx, SX_INPUT, "tensor map: address is %llx, a multiple of 16",
                       (unsigned long long)address);
    }
    return SX_OK;
}

uint32_t sx_tensor_map_box_bytes(const sx_tensor_map *map)
{
    uint64_t bytes = sx_dtype_bytes(map->element);
    SX_ASSERT(map->rank > 0 && map->rank <= SX_TENSOR_RANK_MAX);
    for (uint32_t i = 0; i < map->rank; i++) {
        bytes *= (map->box[i] + map->element_strides[i] - 1) / map->element_strides[i];
    }
    SX_ASSERT(bytes <= UINT32_MAX);
    return (uint32_t)bytes;
}

sx_code sx_slot_boxes(sx_ctx *cx, const sx_slot *slot, sx_dtype element, sx_boxes *boxes)
{
    uint32_t bytes = sx_dtype_bytes(element), width = sx_swizzle_bytes(slot->swizzle);
    SX_ASSERT(slot->rows > 0 && slot->panels > 0);
    if (slot->pitch != slot->panel_bytes) {
        return SX_FAIL(cx, SX_INPUT,
                       "boxes of a slot: pitch is %u, panel_bytes %u; the engine leaves no gaps",
                       slot->pitch, slot->panel_bytes);
    }
    if (slot->swizzle != SX_SWIZZLE_NONE && slot->panel_bytes != width) {
        return SX_FAIL(cx, SX_INPUT, "boxes of a slot: panel_bytes is %u, the swizzle is %u wide",
                       slot->panel_bytes, width);
    }
    if (slot->panel_bytes / bytes > SX_BOX_MAX) {
        return SX_FAIL(cx, SX_INPUT, "boxes of a slot: panels of %u elements, at most %u",
                       slot->panel_bytes / bytes, SX_BOX_MAX);
    }
    uint32_t rows = slot->rows < SX_BOX_MAX ? slot->rows : SX_BOX_MAX;
    while (rows > 0 && (slot->rows % rows != 0 ||
                        (rows != slot->rows && rows * slot->pitch % slot->align != 0))) {
        rows--;
    }
    if (rows == 0) {
        return SX_FAIL(cx, SX_INPUT,
                       "boxes of a slot: rows is %u, without a divisor up to %u that ends at "
                       "a multiple of %u bytes",
                       slot->rows, SX_BOX_MAX, slot->align);
    }
    if (slot->panels > 1 && sx_slot_panel_stride(slot) % slot->align != 0) {
        return SX_FAIL(cx, SX_INPUT, "boxes of a slot: panels of %u bytes, a multiple of %u",
                       sx_slot_panel_stride(slot), slot->align);
    }
    *boxes = (sx_boxes){.columns = slot->panel_bytes / bytes,
                        .rows = rows,
                        .down = slot->rows / rows,
                        .across = slot->panels,
                        .bytes = rows * slot->panel_bytes};
    return SX_OK;
}

sx_code sx_slot_boxes_shared(sx_ctx *cx, const sx_slot *slot, sx_dtype element, uint32_t parts,
                             sx_boxes *boxes)
{
    SX_ASSERT(parts > 0);
    SX_TRY(sx_slot_boxes(cx, slot, element, boxes));
    if (boxes->across % parts == 0 || (boxes->across == 1 && boxes->down % parts == 0)) {
        return SX_OK;
    }
    uint32_t rows = slot->rows / parts;
    if (boxes->across != 1 || slot->rows % parts != 0 || rows * slot->pitch % slot->align != 0 ||
        rows > SX_BOX_MAX) {
        return SX_FAIL(cx, SX_INPUT, "boxes of a slot: rows is %u, panels %u: no %u equal parts",
                       slot->rows, slot->panels, parts);
    }
    boxes->rows = rows;
    boxes->down = parts;
    boxes->bytes = rows * slot->panel_bytes;
    return SX_OK;
}

sx_box_start sx_box_at(const sx_slot *slot, const sx_boxes *boxes, uint32_t index)
{
    SX_ASSERT(index < boxes->down * boxes->across);
    uint32_t row = index % boxes->down * boxes->rows, panel = index / boxes->down;
    uint32_t offset = panel * sx_slot_panel_stride(slot) + row * slot->pitch;
    SX_ASSERT(offset % slot->align == 0);
    return (sx_box_start){.row = row, .column = panel * boxes->columns, .offset = offset};
}

sx_code sx_slot_tensor_map(sx_ctx *cx, const sx_slot *slot, sx_dtype element, uint32_t rank,
                           const uint64_t *dims, const uint64_t *strides, sx_fill fill,
                           sx_tensor_map *map)
{
    SX_ASSERT(rank >= 2 && rank <= SX_TENSOR_RANK_MAX);
    sx_boxes boxes;
    SX_TRY(sx_slot_boxes(cx, slot, element, &boxes));
    *map = (sx_tensor_map){
        .element = element, .rank = (uint8_t)rank, .swizzle = slot->swizzle, .fill = fill};
    for (uint32_t i = 0; i < rank; i++) {
        map->dims[i] = dims[i];
        map->strides[i] = strides[i];
        map->box[i] = i == 0 ? boxes.columns : i == 1 ? boxes.rows : 1;
        map->element_strides[i] = 1;
    }
    SX_TRY(sx_tensor_map_check(cx, map));
    SX_ASSERT(sx_tensor_map_box_bytes(map) == boxes.bytes);
    return SX_OK;
}
