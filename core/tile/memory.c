#include "core/tile/memory.h"

uint32_t sx_swizzle_bytes(sx_swizzle swizzle)
{
    SX_ASSERT(swizzle < SX_SWIZZLE_COUNT);
    return 16U << swizzle;
}

uint32_t sx_swizzle_align(sx_swizzle swizzle)
{
    SX_ASSERT(swizzle < SX_SWIZZLE_COUNT);
    return 128U
           << swizzle; // of 8 lines of 128 bytes the swizzle of 128 uses all, that of 64 four, that of 32 two
}

uint32_t sx_swizzle_apply(sx_swizzle swizzle, uint32_t address)
{
    SX_ASSERT(swizzle < SX_SWIZZLE_COUNT);
    return address ^ (address >> 7 & ((1U << swizzle) - 1U)) << 4;
}

uint32_t sx_slot_row_bytes(const sx_slot *slot)
{
    SX_ASSERT(slot->panels > 0);
    return slot->panels * slot->panel_bytes;
}

uint32_t sx_slot_panel_stride(const sx_slot *slot)
{
    SX_ASSERT(slot->rows > 0);
    return slot->rows * slot->pitch;
}

sx_code sx_slot_make(sx_ctx *cx, uint32_t rows, uint32_t row_bytes, uint32_t panel_bytes,
                     uint32_t pitch, sx_swizzle swizzle, sx_slot *slot)
{
    SX_ASSERT(swizzle < SX_SWIZZLE_COUNT);
    if (rows == 0 || rows > SX_LAYOUT_SIDE_MAX) {
        return SX_FAIL(cx, SX_INPUT, "slot: rows is %u, from 1 to %d", rows, SX_LAYOUT_SIDE_MAX);
    }
    if (panel_bytes == 0 || panel_bytes % 16 != 0 || panel_bytes > SX_SMEM_BYTES_MAX) {
        return SX_FAIL(cx, SX_INPUT, "slot: panel_bytes is %u, a multiple of 16 up to %u",
                       panel_bytes, SX_SMEM_BYTES_MAX);
    }
    if (row_bytes == 0 || row_bytes % panel_bytes != 0 || row_bytes > SX_SMEM_BYTES_MAX) {
        return SX_FAIL(cx, SX_INPUT, "slot: row_bytes is %u, a multiple of the panel's %u up to %u",
                       row_bytes, panel_bytes, SX_SMEM_BYTES_MAX);
    }
    if (pitch < panel_bytes || pitch % 16 != 0 || pitch > SX_SMEM_BYTES_MAX) {
        return SX_FAIL(cx, SX_INPUT, "slot: pitch is %u, a multiple of 16 from %u to %u", pitch,
                       panel_bytes, SX_SMEM_BYTES_MAX);
    }
    sx_slot out = {.rows = rows,
                   .panels = row_bytes / panel_bytes,
                   .panel_bytes = panel_bytes,
                   .pitch = pitch,
                   .swizzle = swizzle,
                   .align = sx_swizzle_align(swizzle)};
    uint64_t stride = (uint64_t)rows * pitch, bytes = stride * out.panels;
    if (swizzle != SX_SWIZZLE_NONE && out.panels > 1 && stride % out.align != 0) {
        return SX_FAIL(cx, SX_INPUT, "slot: panels of %llu bytes, a multiple of %u where swizzled",
                       (unsigned long long)stride, out.align);
    }
    if (bytes > SX_SMEM_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "slot: bytes is %llu, at most %u", (unsigned long long)bytes,
                       SX_SMEM_BYTES_MAX);
    }
    out.bytes = (uint32_t)((bytes + SX_SLOT_UNIT - 1) / SX_SLOT_UNIT * SX_SLOT_UNIT);
    SX_ASSERT(out.bytes >= rows * row_bytes);
    *slot = out;
    return SX_OK;
}

sx_code sx_slot_check_base(sx_ctx *cx, const sx_slot *slot, uint32_t base)
{
    SX_ASSERT(slot->align > 0);
    if (base % slot->align != 0) {
        return SX_FAIL(cx, SX_INPUT, "slot: base is %u, a multiple of %u", base, slot->align);
    }
    if (base > SX_SMEM_BYTES_MAX || slot->bytes > SX_SMEM_BYTES_MAX - base) {
        return SX_FAIL(cx, SX_LIMIT, "slot: base is %u and bytes %u, together at most %u", base,
                       slot->bytes, SX_SMEM_BYTES_MAX);
    }
    return SX_OK;
}

void sx_slot_print(const sx_slot *slot, sx_buf *out)
{
    SX_ASSERT(slot->swizzle < SX_SWIZZLE_COUNT);
    sx_buf_print(out, "slot %u rows of %u x %u bytes pitch %u swizzle ", slot->rows, slot->panels,
                 slot->panel_bytes, slot->pitch);
    if (slot->swizzle == SX_SWIZZLE_NONE) {
        sx_buf_put_text(out, "none");
    } else {
        sx_buf_print(out, "%u", sx_swizzle_bytes(slot->swizzle));
    }
}

uint32_t sx_slot_address(const sx_slot *slot, uint32_t base, uint32_t row, uint32_t byte)
{
    SX_ASSERT(base % slot->align == 0);
    SX_ASSERT(row < slot->rows && byte < slot->panels * slot->panel_bytes);
    uint32_t panel = byte / slot->panel_bytes;
    uint32_t plain =
        base + panel * sx_slot_panel_stride(slot) + row * slot->pitch + byte % slot->panel_bytes;
    return sx_swizzle_apply(slot->swizzle, plain);
}

bool sx_slot_find(const sx_slot *slot, uint32_t base, uint32_t address, uint32_t *row,
                  uint32_t *byte)
{
    SX_ASSERT(base % slot->align == 0);
    if (address < base || address - base >= slot->bytes) {
        return false;
    }
    uint32_t offset = sx_swizzle_apply(slot->swizzle, address) - base;
    uint32_t stride = sx_slot_panel_stride(slot), panel = offset / stride;
    uint32_t rest = offset % stride % slot->pitch;
    if (panel >= slot->panels || rest >= slot->panel_bytes) {
        return false;
    }
    *row = offset % stride / slot->pitch;
    *byte = panel * slot->panel_bytes + rest;
    SX_ASSERT(sx_slot_address(slot, base, *row, *byte) == address);
    return true;
}

static bool power_of_two(uint32_t x)
{
    return __builtin_popcount(x) == 1;
}

bool sx_slot_linear(const sx_slot *slot, sx_linear *map)
{
    SX_ASSERT(slot->rows > 0 && slot->panels > 0);
    if (!power_of_two(slot->rows) || !power_of_two(slot->panels) ||
        !power_of_two(slot->panel_bytes) || !power_of_two(slot->pitch)) {
        return false;
    }
    uint32_t bytes = (uint32_t)__builtin_ctz(sx_slot_row_bytes(slot));
    uint32_t rows = (uint32_t)__builtin_ctz(slot->rows);
    if (bytes + rows > SX_LINEAR_INPUTS_MAX) {
        return false;
    }
    *map = (sx_linear){.input_bits = (uint8_t)(bytes + rows), .output_bits = 32};
    for (uint32_t i = 0; i < bytes; i++) {
        map->column[i] = sx_slot_address(slot, 0, 0, 1U << i);
    }
    for (uint32_t i = 0; i < rows; i++) {
        map->column[bytes + i] = sx_slot_address(slot, 0, 1U << i, 0);
    }
    return true;
}
