#include "core/tile/descriptor.h"

#define CORE_ROWS 8U                      /* a core matrix is 8 rows of 16 bytes */
#define FIELD_BYTES_MAX ((1U << 18) - 16) /* 14 bits of 16 bytes */

static sx_code check_type(sx_ctx *cx, sx_dtype element, sx_major major)
{
    sx_dtype_class kind = sx_dtype_class_of(element);
    uint32_t bytes = sx_dtype_bytes(element);
    if (bytes > 4 || kind == SX_CLASS_BOOL || (kind == SX_CLASS_INT && bytes != 1)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "wgmma: no operand has elements %s",
                       sx_dtype_name(element));
    }
    if (major == SX_MAJOR_MN && bytes != 2) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "wgmma: operands of %s are K-major; others have 2 bytes",
                       sx_dtype_name(element));
    }
    return SX_OK;
}

static sx_code check_slot(sx_ctx *cx, const sx_slot *slot, sx_major major)
{
    uint32_t width =
        sx_swizzle_bytes(slot->swizzle); // 16 where nothing is exchanged: core matrices
    if (slot->panel_bytes != width || slot->pitch != width) {
        return SX_FAIL(cx, SX_INPUT,
                       "wgmma operand: panel_bytes is %u and pitch %u, both %u for this swizzle",
                       slot->panel_bytes, slot->pitch, width);
    }
    if (slot->rows % CORE_ROWS != 0) {
        return SX_FAIL(cx, SX_INPUT, "wgmma operand: rows is %u, a multiple of %u", slot->rows,
                       CORE_ROWS);
    }
    if (major == SX_MAJOR_K && sx_slot_row_bytes(slot) % 32 != 0) {
        return SX_FAIL(cx, SX_INPUT, "wgmma operand: k has %u bytes, a multiple of 32",
                       sx_slot_row_bytes(slot));
    }
    if (major == SX_MAJOR_MN && slot->rows % 16 != 0) {
        return SX_FAIL(cx, SX_INPUT, "wgmma operand: k is %u, a multiple of 16", slot->rows);
    }
    if (sx_slot_panel_stride(slot) > FIELD_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "wgmma operand: panels of %u bytes, at most %u",
                       sx_slot_panel_stride(slot), FIELD_BYTES_MAX);
    }
    return SX_OK;
}

/* The two offsets. Between panels it is a panel, between groups of 8 rows it is 8 rows; which of the two is called
 * leading depends on major and swizzle. */
static void set_offsets(const sx_slot *slot, sx_major major, sx_wgmma_operand *out)
{
    uint32_t panel = sx_slot_panel_stride(slot), rows = CORE_ROWS * slot->pitch;
    if (slot->swizzle == SX_SWIZZLE_NONE) {
        out->leading = major == SX_MAJOR_K ? panel : rows;
        out->stride = major == SX_MAJOR_K ? rows : panel;
    } else {
        out->leading =
            major == SX_MAJOR_K ? 16 : panel; // not read where k lies within one swizzled row
        out->stride = rows;
    }
}

sx_code sx_wgmma_operand_make(sx_ctx *cx, const sx_slot *slot, sx_dtype element, sx_major major,
                              sx_wgmma_operand *operand)
{
    static const uint64_t mode[SX_SWIZZLE_COUNT] = {0, 3, 2, 1};
    SX_TRY(check_type(cx, element, major));
    SX_TRY(check_slot(cx, slot, major));
    uint32_t bytes = sx_dtype_bytes(element), along = sx_slot_row_bytes(slot) / bytes;
    sx_wgmma_operand out = {
        .major = major, .element_bytes = bytes, .k_unit = 32 / bytes, .slot = *slot};
    out.mn = major == SX_MAJOR_K ? slot->rows : along;
    out.k = major == SX_MAJOR_K ? along : slot->rows;
    out.mn_unit = major == SX_MAJOR_K ? CORE_ROWS : slot->panel_bytes / bytes;
    set_offsets(slot, major, &out);
    SX_ASSERT(out.leading <= FIELD_BYTES_MAX && out.stride <= FIELD_BYTES_MAX);
    out.bits = (uint64_t)(out.leading >> 4) << 16 | (uint64_t)(out.stride >> 4) << 32 |
               mode[slot->swizzle] << 62;
    *operand = out;
    return SX_OK;
}

uint32_t sx_wgmma_offset(const sx_wgmma_operand *operand, uint32_t mn, uint32_t k)
{
    SX_ASSERT(mn < operand->mn && k < operand->k);
    SX_ASSERT(mn % operand->mn_unit == 0 && k % operand->k_unit == 0);
    const sx_slot *slot = &operand->slot;
    uint32_t row = operand->major == SX_MAJOR_K ? mn : k;
    uint32_t byte = (operand->major == SX_MAJOR_K ? k : mn) * operand->element_bytes;
    /* The instruction exchanges bits itself: rows are multiples of 8, so that the pattern begins where it looks. */
    return byte / slot->panel_bytes * sx_slot_panel_stride(slot) + row * slot->pitch +
           byte % slot->panel_bytes;
}

uint64_t sx_wgmma_descriptor(const sx_wgmma_operand *operand, uint32_t address)
{
    SX_ASSERT(address % 16 == 0 && address < 1U << 18);
    return operand->bits | address >> 4;
}
