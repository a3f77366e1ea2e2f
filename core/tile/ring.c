#include "core/tile/ring.h"

sx_code sx_ring_add(sx_ctx *cx, sx_ring *ring, const sx_slot *slot, const sx_dtype *element)
{
    SX_ASSERT(slot->bytes % SX_SLOT_UNIT == 0);
    if (ring->slot_count == SX_RING_SLOTS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "ring: more than %d slots in a stage", SX_RING_SLOTS_MAX);
    }
    if (element != NULL) {
        sx_boxes boxes;
        SX_TRY(sx_slot_boxes(cx, slot, *element, &boxes));
        ring->tx_bytes += boxes.down * boxes.across * boxes.bytes;
    }
    ring->slot[ring->slot_count++] = *slot;
    return SX_OK;
}

uint32_t sx_ring_stage_bytes(const sx_ring *ring)
{
    uint32_t bytes = 0;
    SX_ASSERT(ring->slot_count <= SX_RING_SLOTS_MAX);
    for (uint32_t i = 0; i < ring->slot_count; i++) {
        bytes += ring->slot[i].bytes;
    }
    return bytes;
}

sx_code sx_smem_place(sx_ctx *cx, sx_ring *ring, uint32_t rings, const sx_slot *slab,
                      uint32_t slabs, uint32_t *slab_offset, uint32_t *bytes)
{
    SX_ASSERT(rings <= SX_RINGS_MAX);
    uint64_t at = 0;
    for (uint32_t i = 0; i < rings; i++) {
        if (ring[i].depth == 0 || ring[i].depth > SX_RING_DEPTH_MAX) {
            return SX_FAIL(cx, SX_INPUT, "ring %u: depth is %u, from 1 to %d", i, ring[i].depth,
                           SX_RING_DEPTH_MAX);
        }
        ring[i].barriers = (uint32_t)at;
        at += UINT64_C(16) * ring[i].depth;
    }
    at = (at + SX_SLOT_UNIT - 1) / SX_SLOT_UNIT * SX_SLOT_UNIT;
    SX_ASSERT(SX_SLOT_UNIT % sx_swizzle_align(SX_SWIZZLE_128) == 0);
    for (uint32_t i = 0; i < rings; i++) {
        ring[i].offset = (uint32_t)at;
        at += (uint64_t)sx_ring_stage_bytes(&ring[i]) * ring[i].depth;
    }
    for (uint32_t i = 0; i < slabs; i++) {
        slab_offset[i] = (uint32_t)at;
        at += slab[i].bytes;
    }
    if (at > SX_SMEM_BYTES_MAX) {
        uint64_t other = rings == 1 ? at - (uint64_t)sx_ring_stage_bytes(ring) * ring->depth : 0;
        uint32_t fits = rings == 1 && other < SX_SMEM_BYTES_MAX
                            ? sx_ring_depth_that_fits(ring, (uint32_t)other)
                            : 0;
        return SX_FAIL(cx, SX_LIMIT, "shared memory: %llu bytes, at most %u; a depth of %u fits",
                       (unsigned long long)at, SX_SMEM_BYTES_MAX, fits);
    }
    *bytes = (uint32_t)at;
    return SX_OK;
}

uint32_t sx_ring_depth_that_fits(const sx_ring *ring, uint32_t other_bytes)
{
    uint32_t stage = sx_ring_stage_bytes(ring);
    SX_ASSERT(stage > 0);
    uint32_t depth =
        other_bytes > SX_SMEM_BYTES_MAX ? 0 : (SX_SMEM_BYTES_MAX - other_bytes) / stage;
    return depth < SX_RING_DEPTH_MAX ? depth : SX_RING_DEPTH_MAX;
}

uint32_t sx_ring_slot_offset(const sx_ring *ring, uint32_t stage, uint32_t slot)
{
    SX_ASSERT(stage < ring->depth && slot < ring->slot_count);
    uint32_t at = ring->offset + stage * sx_ring_stage_bytes(ring);
    for (uint32_t i = 0; i < slot; i++) {
        at += ring->slot[i].bytes;
    }
    SX_ASSERT(at % SX_SLOT_UNIT == 0);
    return at;
}

uint32_t sx_ring_full_barrier(const sx_ring *ring, uint32_t stage)
{
    SX_ASSERT(stage < ring->depth);
    return ring->barriers + 16 * stage;
}

uint32_t sx_ring_empty_barrier(const sx_ring *ring, uint32_t stage)
{
    SX_ASSERT(stage < ring->depth);
    return ring->barriers + 16 * stage + 8;
}

uint32_t sx_ring_full_parity(const sx_ring *ring, uint32_t number)
{
    SX_ASSERT(ring->depth > 0);
    return number / ring->depth % 2;
}

uint32_t sx_ring_empty_parity(const sx_ring *ring, uint32_t number)
{
    SX_ASSERT(ring->depth > 0);
    return (number / ring->depth + 1) %
           2; // of the phase before: the consumers' release of the use before
}
