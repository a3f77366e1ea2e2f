/* tile_group.c - elements of a thread that lie side by side: what is read and written of them in one access.
 *
 * The program of an element runs for each of them in turn. Its loads and its store that go along the columns are made
 * once for all, in words of 32 bits or elements of 64. Tensors begin at multiples of 64 bytes. */
#include <string.h>

#include "core/nvidia/tile_inside.h"

#define ACCESS_BYTES_MAX 16

static uint32_t bytes_of(const sx_nvidia_lowering *l, const sx_item *item)
{
    return sx_mem_bytes(item->mem, l->kernel->lane_bytes);
}

/* Does the access of one element move by `step` bytes from a column to the next, and begin at multiples of `unit`? */
static bool runs(const sx_nvidia_lowering *l, const sx_item *item, int64_t step, int64_t unit)
{
    const sx_addr *addr = &l->part->addr[item->addr];
    bool fits = addr->index_reg == SX_NO_REG && addr->coef[SX_TILE_VAR_COLUMN] == step;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX && step != 0; v++) {
        fits = fits && (v == SX_TILE_VAR_COLUMN || addr->coef[v] % unit == 0);
    }
    return fits && (step == 0 || addr->offset % unit == 0);
}

/* Whole words, or one element of less, that one vector access has. */
static bool is_wide_enough(const sx_nvidia_lowering *l, const sx_item *item, uint32_t width)
{
    uint32_t all = width * bytes_of(l, item);
    bool lane = l->kernel->lane_bytes == 4 || item->mem == SX_MEM_LANE;
    return lane && all <= ACCESS_BYTES_MAX && all >= 4;
}

static bool is_along(const sx_nvidia_lowering *l, const sx_item *item, uint32_t width)
{
    uint32_t bytes = bytes_of(l, item);
    return is_wide_enough(l, item, width) && runs(l, item, bytes, (int64_t)width * bytes);
}

uint32_t sx_nvidia_group_width(const sx_nvidia_lowering *l, const sx_layout *held, int64_t columns)
{
    uint32_t width = sx_layout_vector(held);
    width = width > SX_NVIDIA_GROUP_MAX ? SX_NVIDIA_GROUP_MAX : width;
    for (; width > 1; width /= 2) {
        bool fits = columns % width == 0;
        for (uint32_t i = 0; i < l->part->item_count && fits; i++) {
            const sx_item *item = &l->part->item[i];
            fits = item->op != SX_LOP_STORE || is_along(l, item, width);
        }
        if (fits) {
            return width;
        }
    }
    return 1;
}

/* ---- accesses ---- */
/* The words, or the elements of 64 bits, of an access. */
static uint32_t word_count(const sx_nvidia_lowering *l, const sx_item *item)
{
    uint32_t bytes = bytes_of(l, item);
    return bytes == 8 ? l->group->width : l->group->width * bytes / 4;
}

static sx_ptx_modifiers access_of(const sx_nvidia_lowering *l, const sx_item *item)
{
    uint32_t count = word_count(l, item);
    uint16_t vector = count == 4 ? SX_PTX_VECTOR_V4 : count == 2 ? SX_PTX_VECTOR_V2 : 0;
    uint16_t type = bytes_of(l, item) == 8 ? SX_PTX_TYPE_B64 : SX_PTX_TYPE_B32;
    return SX_PTX_M(SX_PTX_SPACE_GLOBAL, vector, type);
}

static void guard(sx_nvidia_lowering *l)
{
    if (l->partial[1].kind != SX_PTX_ARG_NONE) {
        sx_ptx_guard(&l->b, l->partial[1]);
    }
}

/* The address of the group's first element. */
static sx_ptx_arg first_address(sx_nvidia_lowering *l, uint32_t index)
{
    int64_t shift = l->shift[SX_TILE_VAR_COLUMN];
    l->shift[SX_TILE_VAR_COLUMN] = shift - l->group->element;
    sx_ptx_arg address = sx_nvidia_address(l, index);
    l->shift[SX_TILE_VAR_COLUMN] = shift;
    return address;
}

static void load_words(sx_nvidia_lowering *l, uint32_t index, sx_ptx_arg *word)
{
    const sx_item *item = &l->part->item[index];
    uint32_t count = word_count(l, item);
    bool wide = bytes_of(l, item) == 8;
    sx_ptx_arg address = first_address(l, index);
    for (uint32_t w = 0; w < count; w++) {
        word[w] = sx_ptx_register(&l->b, wide ? SX_PTX_B64 : SX_PTX_B32);
        if (l->partial[1].kind != SX_PTX_ARG_NONE) {
            SX_PTX_PUT(&l->b, MOV, SX_PTX_M(wide ? SX_PTX_TYPE_B64 : SX_PTX_TYPE_B32), word[w],
                       sx_ptx_imm(0));
        }
    }
    sx_ptx_arg all = count == 1 ? word[0] : sx_ptx_vector(&l->b, word, count);
    guard(l);
    SX_PTX_PUT(&l->b, LD, access_of(l, item), all, address);
}

/* Element `e` of words that hold all, extended to 32 bits. */
static void take(sx_nvidia_lowering *l, sx_mem mem, const sx_ptx_arg *word, uint32_t bytes,
                 uint32_t e, sx_ptx_arg d)
{
    sx_ptx_builder *b = &l->b;
    bool is_signed = mem == SX_MEM_I16 || mem == SX_MEM_I8;
    uint32_t at = e * bytes % 4 * 8, bits = bytes * 8;
    sx_ptx_arg from = word[e * bytes / 4];
    if (is_signed && at + bits < 32) {
        SX_PTX_PUT(b, SHL, SX_PTX_M(SX_PTX_TYPE_B32), d, from, sx_ptx_imm(32 - at - bits));
        from = d;
    }
    if (is_signed) {
        SX_PTX_PUT(b, SHR, SX_PTX_M(SX_PTX_TYPE_S32), d, from, sx_ptx_imm(32 - bits));
    } else if (at == 0) {
        SX_PTX_PUT(b, AND, SX_PTX_M(SX_PTX_TYPE_B32), d, from, sx_ptx_imm((1 << bits) - 1));
    } else {
        SX_PTX_PUT(b, SHR, SX_PTX_M(SX_PTX_TYPE_U32), d, from, sx_ptx_imm(at));
        if (at + bits < 32) {
            SX_PTX_PUT(b, AND, SX_PTX_M(SX_PTX_TYPE_B32), d, d, sx_ptx_imm((1 << bits) - 1));
        }
    }
}

static void take_half(sx_nvidia_lowering *l, const sx_ptx_arg *word, uint32_t e, sx_ptx_arg d)
{
    sx_ptx_arg halves = sx_ptx_registers(&l->b, SX_PTX_B16, 2);
    SX_PTX_PUT(&l->b, MOV_UNPACK, SX_PTX_M(SX_PTX_TYPE_B32), halves, word[e / 2]);
    SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_TYPE_F32, SX_PTX_TYPE_F16), d,
               sx_ptx_element(&l->b, halves, e % 2));
}

bool sx_nvidia_load_group(sx_nvidia_lowering *l, uint32_t index)
{
    const sx_item *item = &l->part->item[index];
    if (l->group == NULL || !is_along(l, item, l->group->width)) {
        return false;
    }
    sx_ptx_arg d = l->vector[item->dst];
    sx_ptx_arg *word = l->group->word[index];
    uint32_t bytes = bytes_of(l, item), e = l->group->element;
    if (e == 0) {
        load_words(l, index, word);
    }
    if (item->mem == SX_MEM_HALF) {
        take_half(l, word, e, d);
    } else if (bytes >= 4) {
        SX_PTX_PUT(&l->b, MOV, SX_PTX_M(bytes == 8 ? SX_PTX_TYPE_B64 : SX_PTX_TYPE_B32), d,
                   word[e]);
    } else {
        take(l, item->mem, word, bytes, e, d);
    }
    return true;
}

/* ---- the store ---- */
/* Keeps the value, as its register may get another one, in the low bits of a word. */
static void keep(sx_nvidia_lowering *l, const sx_item *item, sx_ptx_arg value)
{
    sx_ptx_builder *b = &l->b;
    uint32_t bytes = bytes_of(l, item), e = l->group->element;
    sx_ptx_arg *kept = &l->group->stored[e];
    if (item->mem == SX_MEM_HALF) {
        *kept = sx_ptx_register(b, SX_PTX_B16);
        SX_PTX_PUT(b, CVT, SX_PTX_M(SX_PTX_ROUND_RN, SX_PTX_TYPE_F16, SX_PTX_TYPE_F32), *kept,
                   value);
        return;
    }
    *kept = sx_ptx_register(b, bytes == 8 ? SX_PTX_B64 : SX_PTX_B32);
    if (bytes >= 4) {
        SX_PTX_PUT(b, MOV, SX_PTX_M(bytes == 8 ? SX_PTX_TYPE_B64 : SX_PTX_TYPE_B32), *kept, value);
        return;
    }
    SX_PTX_PUT(b, AND, SX_PTX_M(SX_PTX_TYPE_B32), *kept, value, sx_ptx_imm((1 << 8 * bytes) - 1));
    if (e * bytes % 4 != 0) {
        SX_PTX_PUT(b, SHL, SX_PTX_M(SX_PTX_TYPE_B32), *kept, *kept, sx_ptx_imm(e * bytes % 4 * 8));
    }
}

/* The words of all elements. */
static void make_words(sx_nvidia_lowering *l, const sx_item *item, sx_ptx_arg *word)
{
    sx_ptx_builder *b = &l->b;
    sx_ptx_arg *kept = l->group->stored;
    uint32_t count = word_count(l, item), each = l->group->width / count;
    for (uint32_t w = 0; w < count; w++) {
        word[w] = kept[w * each];
        if (item->mem == SX_MEM_HALF) {
            word[w] = sx_ptx_register(b, SX_PTX_B32);
            SX_PTX_PUT(b, MOV_PACK, SX_PTX_M(SX_PTX_TYPE_B32), word[w],
                       sx_ptx_vector(b, &kept[w * each], 2));
            continue;
        }
        for (uint32_t e = 1; e < each; e++) {
            SX_PTX_PUT(b, OR, SX_PTX_M(SX_PTX_TYPE_B32), word[w], word[w], kept[w * each + e]);
        }
    }
}

bool sx_nvidia_store_group(sx_nvidia_lowering *l, uint32_t index)
{
    const sx_item *item = &l->part->item[index];
    sx_ptx_arg word[SX_NVIDIA_GROUP_MAX];
    if (l->group == NULL) {
        return false;
    }
    SX_ASSERT(is_along(l, item, l->group->width));
    keep(l, item, l->vector[item->src[0]]);
    if (l->group->element + 1 < l->group->width) {
        return true;
    }
    make_words(l, item, word);
    uint32_t count = word_count(l, item);
    if (l->group->keeps) {
        memcpy(l->group->kept, word, count * sizeof(*word));
        l->group->kept_count = count;
        return true;
    }
    sx_ptx_arg address = first_address(l, index);
    sx_ptx_arg all = count == 1 ? word[0] : sx_ptx_vector(&l->b, word, count);
    guard(l);
    SX_PTX_PUT(&l->b, ST, access_of(l, item), address, all);
    return true;
}
