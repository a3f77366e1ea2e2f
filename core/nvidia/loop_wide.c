/* loop_wide.c - accesses of several elements side by side.
 *
 * Where items that follow each other load (or store) elements of each lane that lie side by side, one instruction moves
 * them all: up to 16 bytes in each thread, so that a warp asks for whole lines and few instructions keep many bytes in
 * flight. Buffers begin at multiples of 64 bytes (SXR_DEVICE_ALIGN), so an address is aligned where the offset and what
 * each variable and lane adds to it are. Others take the narrower way, of which an access of one element is the end. */
#include "core/nvidia/loop.h"
#include "core/nvidia/loop_inside.h"

#define ACCESS_BYTES_MAX 16u
#define WORDS_MAX 4u

/* Accesses that one instruction does. */
typedef struct {
    const sx_item *first;
    bool load;
    uint32_t bytes;   /* of the access */
    uint32_t element; /* bytes of an element */
    uint32_t count;   /* of elements */
} wide_access;

static bool is_access(const sx_item *item)
{
    return item->kind == SX_ITEM_OP && (item->op == SX_LOP_LOADS || item->op == SX_LOP_STORES) &&
           item->imm == SX_NVIDIA_LANES;
}

/* Is a register of the loop IR a multiple of `bytes`? Gathers read at a row number times the bytes of a row. */
static bool is_multiple(const sx_nvidia_lowering *l, uint32_t reg, int64_t bytes)
{
    bool multiple = false;
    for (uint32_t i = 0; i < l->part->item_count; i++) {
        const sx_item *item = &l->part->item[i];
        bool scalar = item->kind == SX_ITEM_OP && sx_lop_info_of(item->op)->result == 's';
        if (scalar && item->dst == reg) {
            if (item->op != SX_LOP_SMUL || item->imm2 % bytes != 0) {
                return false;
            }
            multiple = true;
        }
    }
    return multiple;
}

/* Is the address of an item a multiple of `bytes` at every point, in every lane? */
static bool is_aligned(const sx_nvidia_lowering *l, const sx_item *item, int64_t bytes)
{
    const sx_addr *a = &l->part->addr[item->addr];
    bool aligned = (a->index_reg == SX_NO_REG || is_multiple(l, a->index_reg, bytes)) &&
                   a->offset % bytes == 0 && item->imm2 % bytes == 0;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        aligned = aligned && a->coef[v] % bytes == 0;
    }
    return aligned;
}

/* Items from `index` on whose elements lie side by side, `most` at most. */
static uint32_t neighbours(const sx_nvidia_lowering *l, uint32_t index, uint32_t most)
{
    const sx_part *part = l->part;
    const sx_item *first = &part->item[index];
    int64_t size = sx_mem_bytes(first->mem, l->kernel->lane_bytes);
    uint32_t n = 1;
    while (n < most && index + n < part->item_count) {
        const sx_item *item = &part->item[index + n];
        if (!is_access(item) || item->op != first->op || item->mem != first->mem ||
            l->pointer_of[index + n] != l->pointer_of[index] ||
            part->addr[item->addr].index_reg != part->addr[first->addr].index_reg ||
            part->addr[item->addr].offset != part->addr[first->addr].offset + n * size) {
            break;
        }
        n++;
    }
    return n;
}

static bool find_access(const sx_nvidia_lowering *l, uint32_t index, wide_access *w)
{
    const sx_item *first = &l->part->item[index];
    if (l->by_element || !is_access(first) ||
        l->shared_by_lanes[l->part->addr[first->addr].buffer]) {
        return false;
    }
    uint32_t size = sx_mem_bytes(first->mem, l->kernel->lane_bytes);
    uint32_t bytes = neighbours(l, index, ACCESS_BYTES_MAX / size) * size;
    uint32_t width = ACCESS_BYTES_MAX;
    while (width > bytes || width > first->imm2 || !is_aligned(l, first, width)) {
        width /= 2;
        if (width <= size || width < 4) {
            return false;
        }
    }
    *w = (wide_access){first, first->op == SX_LOP_LOADS, width, size, width / size};
    return size >= 4 || l->kernel->lane_bytes == 4;
}

/* The registers of an access: of the elements, or of the words that hold them. */
static void put_access(sx_nvidia_lowering *l, uint32_t index, const wide_access *w,
                       const sx_ptx_arg *part)
{
    uint32_t piece = w->element == 8 ? 8 : 4;
    uint32_t count = w->bytes / piece;
    uint16_t type = piece == 8 ? SX_PTX_TYPE_B64 : SX_PTX_TYPE_B32;
    uint16_t vector = count == 4 ? SX_PTX_VECTOR_V4 : count == 2 ? SX_PTX_VECTOR_V2 : 0;
    uint16_t space = sx_nvidia_space(l, &l->part->item[index]);
    sx_ptx_arg address = sx_nvidia_address(l, index);
    sx_ptx_arg all = count == 1 ? part[0] : sx_ptx_vector(&l->b, part, count);
    if (w->load) {
        SX_PTX_PUT(&l->b, LD, SX_PTX_M(space, vector, type), all, address);
    } else {
        SX_PTX_PUT(&l->b, ST, SX_PTX_M(space, vector, type), address, all);
    }
}

/* ---- elements of words ---- */
/* Of a word with two: the types of its halves and of the registers of lanes. */
static void take_halves(sx_nvidia_lowering *l, const wide_access *w, sx_ptx_arg word, uint32_t at)
{
    sx_ptx_arg half = sx_ptx_registers(&l->b, SX_PTX_B16, 2);
    SX_PTX_PUT(&l->b, MOV_UNPACK, SX_PTX_M(SX_PTX_TYPE_B32), half, word);
    for (uint32_t k = 0; k < 2; k++) {
        sx_mem mem = w->first->mem;
        sx_ptx_arg d = l->vector[w->first[at + k].dst];
        sx_ptx_arg h = sx_ptx_element(&l->b, half, k);
        uint16_t to = mem == SX_MEM_HALF  ? SX_PTX_TYPE_F32
                      : mem == SX_MEM_U16 ? SX_PTX_TYPE_U32
                                          : SX_PTX_TYPE_S32;
        uint16_t from = mem == SX_MEM_HALF  ? SX_PTX_TYPE_F16
                        : mem == SX_MEM_U16 ? SX_PTX_TYPE_U16
                                            : SX_PTX_TYPE_S16;
        SX_PTX_PUT(&l->b, CVT, SX_PTX_M(to, from), d, h);
    }
}

static void take_bytes(sx_nvidia_lowering *l, const wide_access *w, sx_ptx_arg word, uint32_t at)
{
    uint16_t type = w->first->mem == SX_MEM_U8 ? SX_PTX_TYPE_U32 : SX_PTX_TYPE_S32;
    for (uint32_t k = 0; k < 4; k++) {
        SX_PTX_PUT(&l->b, BFE, SX_PTX_M(type), l->vector[w->first[at + k].dst], word,
                   sx_ptx_imm(8 * k), sx_ptx_imm(8));
    }
}

static sx_ptx_arg pack_halves(sx_nvidia_lowering *l, const wide_access *w, uint32_t at)
{
    sx_ptx_arg half[2];
    for (uint32_t k = 0; k < 2; k++) {
        sx_ptx_arg value = l->vector[w->first[at + k].src[0]];
        half[k] = sx_ptx_register(&l->b, SX_PTX_B16);
        if (w->first->mem == SX_MEM_HALF) {
            SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_ROUND_RN, SX_PTX_TYPE_F16, SX_PTX_TYPE_F32),
                       half[k], value);
        } else {
            SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_TYPE_U16, SX_PTX_TYPE_U32), half[k], value);
        }
    }
    sx_ptx_arg word = sx_ptx_register(&l->b, SX_PTX_B32);
    SX_PTX_PUT(&l->b, MOV_PACK, SX_PTX_M(SX_PTX_TYPE_B32), word, sx_ptx_vector(&l->b, half, 2));
    return word;
}

#define BYTES_0_0 0x40    /* the lowest byte of the first word, then that of the second */
#define HALVES_0_0 0x5410 /* the low halves of both */

static sx_ptx_arg pack_bytes(sx_nvidia_lowering *l, const wide_access *w, uint32_t at)
{
    sx_ptx_arg pair[2];
    for (uint32_t k = 0; k < 2; k++) {
        pair[k] = sx_ptx_register(&l->b, SX_PTX_B32);
        SX_PTX_PUT(&l->b, PRMT, SX_PTX_M(SX_PTX_TYPE_B32), pair[k],
                   l->vector[w->first[at + 2 * k].src[0]],
                   l->vector[w->first[at + 2 * k + 1].src[0]], sx_ptx_imm(BYTES_0_0));
    }
    sx_ptx_arg word = sx_ptx_register(&l->b, SX_PTX_B32);
    SX_PTX_PUT(&l->b, PRMT, SX_PTX_M(SX_PTX_TYPE_B32), word, pair[0], pair[1],
               sx_ptx_imm(HALVES_0_0));
    return word;
}

/* ---- elements that fill a register each ---- */
/* The register of element k while it lies as in memory. */
static sx_ptx_arg held(sx_nvidia_lowering *l, const wide_access *w, uint32_t k)
{
    const sx_item *item = &w->first[k];
    bool as_it_is = item->mem == SX_MEM_LANE;
    return !as_it_is ? sx_ptx_register(&l->b, SX_PTX_B32)
           : w->load ? l->vector[item->dst]
                     : l->vector[item->src[0]];
}

/* Between a lane of 8 bytes and an element of 4. */
static void put_convert(sx_nvidia_lowering *l, const wide_access *w, uint32_t k, sx_ptx_arg word)
{
    const sx_item *item = &w->first[k];
    if (item->mem == SX_MEM_LANE) {
        return;
    }
    bool real = item->mem == SX_MEM_HALF;
    if (w->load) {
        SX_PTX_PUT(&l->b, CVT,
                   real ? SX_PTX_M(SX_PTX_TYPE_F64, SX_PTX_TYPE_F32)
                        : SX_PTX_M(SX_PTX_TYPE_S64, SX_PTX_TYPE_S32),
                   l->vector[item->dst], word);
    } else {
        SX_PTX_PUT(&l->b, CVT,
                   real ? SX_PTX_M(SX_PTX_ROUND_RN, SX_PTX_TYPE_F32, SX_PTX_TYPE_F64)
                        : SX_PTX_M(SX_PTX_TYPE_U32, SX_PTX_TYPE_U64),
                   word, l->vector[item->src[0]]);
    }
}

uint32_t sx_nvidia_wide(sx_nvidia_lowering *l, uint32_t index)
{
    wide_access w;
    sx_ptx_arg part[WORDS_MAX];
    SX_ASSERT(index < l->part->item_count);
    if (!find_access(l, index, &w)) {
        return 0;
    }
    uint32_t per_part = w.element < 4 ? 4 / w.element : 1;
    uint32_t parts = w.count / per_part;
    SX_ASSERT(parts >= 1 && parts <= WORDS_MAX);
    for (uint32_t k = 0; k < parts; k++) {
        bool words = per_part > 1;
        part[k] = !words          ? held(l, &w, k)
                  : w.load        ? sx_ptx_register(&l->b, SX_PTX_B32)
                  : per_part == 2 ? pack_halves(l, &w, 2 * k)
                                  : pack_bytes(l, &w, 4 * k);
        if (!words && !w.load) {
            put_convert(l, &w, k, part[k]);
        }
    }
    put_access(l, index, &w, part);
    for (uint32_t k = 0; w.load && k < parts; k++) {
        if (per_part == 1) {
            put_convert(l, &w, k, part[k]);
        } else {
            (per_part == 2 ? take_halves : take_bytes)(l, &w, part[k], per_part * k);
        }
    }
    return w.count;
}
