/* tile_place.c - where threads find the elements of a tile, from its layout and its slot. */
#include "core/nvidia/tile_inside.h"

static uint32_t column_at(const sx_layout *layout, uint32_t bit)
{
    return layout->column[sx_layout_first(layout, SX_HOME_LANE) + bit];
}

static uint32_t thread_bits(const sx_layout *layout)
{
    return (uint32_t)layout->bits[SX_HOME_LANE] + layout->bits[SX_HOME_WARP];
}

/* How many bits from `first` on can be taken as one number that is multiplied by the first column. */
static uint32_t run_of(const uint32_t *column, uint32_t first, uint32_t count, bool exclusive)
{
    uint32_t n = 1;
    uint32_t all = column[first];
    while (first + n < count && column[first + n] == column[first] << n &&
           (!exclusive || (all & column[first + n]) == 0)) {
        all |= column[first + n];
        n++;
    }
    return n;
}

sx_ptx_arg sx_nvidia_of_thread(sx_nvidia_block *k, const uint32_t *column, uint32_t count,
                               bool exclusive)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg sum = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), sum, sx_ptx_imm(0));
    for (uint32_t i = 0, n; i < count; i += n) {
        n = run_of(column, i, count, exclusive);
        if (column[i] == 0) {
            continue;
        }
        sx_ptx_arg bits = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, SHR, SX_PTX_M(SX_PTX_TYPE_U32), bits, k->thread, sx_ptx_imm(i));
        if (1U << (i + n) < k->tile->threads) {
            SX_PTX_PUT(b, AND, SX_PTX_M(SX_PTX_TYPE_B32), bits, bits, sx_ptx_imm((1 << n) - 1));
        }
        if (exclusive) {
            SX_PTX_PUT(b, MUL, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S32), bits, bits,
                       sx_ptx_imm(column[i]));
            SX_PTX_PUT(b, XOR, SX_PTX_M(SX_PTX_TYPE_B32), sum, sum, bits);
        } else {
            SX_PTX_PUT(b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S32), sum, bits,
                       sx_ptx_imm(column[i]), sum);
        }
    }
    return sum;
}

sx_ptx_arg sx_nvidia_side(sx_nvidia_block *k, const sx_layout *layout, sx_side side)
{
    uint32_t column[SX_LAYOUT_BITS_MAX];
    for (uint32_t i = 0; i < thread_bits(layout); i++) {
        uint32_t at = column_at(layout, i);
        column[i] = side == SX_SIDE_ROW ? sx_at_row(at) : sx_at_column(at);
    }
    return sx_nvidia_of_thread(k, column, thread_bits(layout), false);
}

/* Relative to the slot, which is aligned to its pattern. */
static uint32_t address_of(const sx_nvidia_places *p, uint32_t row, uint32_t column)
{
    return sx_slot_address(p->slot, 0, row, column * p->element);
}

static void add_key(sx_nvidia_block *k, sx_nvidia_places *p, sx_ptx_arg own, uint32_t key)
{
    sx_ptx_builder *b = &k->l.b;
    for (uint32_t i = 0; i < p->count; i++) {
        if (p->key[i] == key) {
            return;
        }
    }
    SX_ASSERT(p->count < SX_NVIDIA_KEYS_MAX);
    sx_ptx_arg made = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, XOR, SX_PTX_M(SX_PTX_TYPE_B32), made, own, sx_ptx_imm(key));
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), made, made, k->shared);
    p->key[p->count] = key;
    p->fixed[p->count] = made;
    p->at[p->count++] = sx_ptx_register(b, SX_PTX_B32);
}

void sx_nvidia_place(sx_nvidia_block *k, uint32_t slot, const sx_layout *layout,
                     uint32_t element_bytes, sx_side along, uint32_t step, uint32_t steps,
                     sx_nvidia_places *p)
{
    const sx_ring *ring = &k->tile->ring;
    sx_linear map;
    uint32_t column[SX_LAYOUT_BITS_MAX];
    bool linear = sx_slot_linear(&ring->slot[slot], &map);
    uint32_t offset = sx_ring_slot_offset(ring, 0, slot) - ring->offset;
    *p = (sx_nvidia_places){.slot = &ring->slot[slot], .element = element_bytes};
    SX_ASSERT(linear || ring->slot[slot].swizzle == SX_SWIZZLE_NONE);
    for (uint32_t i = 0; i < thread_bits(layout); i++) {
        uint32_t at = column_at(layout, i);
        column[i] = address_of(p, sx_at_row(at), sx_at_column(at));
        p->mask |= linear ? column[i] : 0;
    }
    sx_ptx_arg own = sx_nvidia_of_thread(k, column, thread_bits(layout), linear);
    for (uint32_t s = 0; s < steps; s++) {
        for (uint32_t r = 0; r < sx_layout_count(layout, SX_HOME_REGISTER); r++) {
            uint32_t at = sx_layout_apply(layout, &(sx_place){{r}});
            uint32_t row = sx_at_row(at) + (along == SX_SIDE_ROW ? s * step : 0);
            uint32_t side = sx_at_column(at) + (along == SX_SIDE_COLUMN ? s * step : 0);
            add_key(k, p, own, address_of(p, row, side) & p->mask);
        }
    }
    for (uint32_t i = 0; i < p->count && offset != 0; i++) {
        SX_PTX_PUT(&k->l.b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), p->fixed[i], p->fixed[i],
                   sx_ptx_imm(offset));
    }
}

void sx_nvidia_move(sx_nvidia_block *k, sx_nvidia_places *p, sx_ptx_arg stage)
{
    for (uint32_t i = 0; i < p->count; i++) {
        SX_PTX_PUT(&k->l.b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), p->at[i], p->fixed[i], stage);
    }
}

sx_ptx_arg sx_nvidia_element(const sx_nvidia_places *p, uint32_t row, uint32_t column)
{
    uint32_t address = address_of(p, row, column);
    uint32_t i = 0;
    while (i < p->count && p->key[i] != (address & p->mask)) {
        i++;
    }
    SX_ASSERT(i < p->count);
    return sx_ptx_at(p->at[i], address & ~p->mask);
}
