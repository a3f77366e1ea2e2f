/* tile_ring.c - stages that the copy engine fills and four warps together multiply: barriers and the loops of both
 * roles. */
#include <string.h>

#include "core/nvidia/tile_inside.h"

#define BARRIER_BYTES 16 /* of a stage: full, then empty */
#define EMPTY 8          /* from the full barrier of a stage to its empty one */
#define WARPGROUP 128

static const sx_ptx_arg sink = {.kind = SX_PTX_ARG_SINK};

/* Where a role is in the ring. */
typedef struct {
    sx_ptx_arg slot;    /* bytes from stage 0 to its stage */
    sx_ptx_arg barrier; /* the address of the full barrier of its stage */
    sx_ptx_arg parity;  /* what it waits for there */
} place;

static sx_ptx_arg number(sx_nvidia_block *k, int64_t value)
{
    sx_ptx_arg d = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), d, sx_ptx_imm(value));
    return d;
}

static sx_ptx_arg plus(sx_nvidia_block *k, sx_ptx_arg x, int64_t more)
{
    sx_ptx_arg d = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), d, x, sx_ptx_imm(more));
    return d;
}

static place first_place(sx_nvidia_block *k, uint32_t parity)
{
    const sx_ring *ring = &k->tile->ring;
    place p = {.slot = number(k, 0)};
    p.barrier = plus(k, k->memory, sx_ring_full_barrier(ring, 0));
    p.parity = number(k, parity);
    return p;
}

/* To the next stage; behind the last one is the first again, in the next phase of its barriers. */
static void next_place(sx_nvidia_block *k, const place *p)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_ring *ring = &k->tile->ring;
    uint32_t bytes = sx_ring_stage_bytes(ring);
    sx_ptx_arg over = sx_ptx_register(b, SX_PTX_PRED);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), p->slot, p->slot, sx_ptx_imm(bytes));
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), p->barrier, p->barrier,
               sx_ptx_imm(BARRIER_BYTES));
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_GE, SX_PTX_TYPE_U32), over, p->slot,
               sx_ptx_imm((int64_t)bytes * ring->depth));
    sx_ptx_guard(b, over);
    SX_PTX_PUT(b, SUB, SX_PTX_M(SX_PTX_TYPE_U32), p->barrier, p->barrier,
               sx_ptx_imm((int64_t)BARRIER_BYTES * ring->depth));
    sx_ptx_guard(b, over);
    SX_PTX_PUT(b, XOR, SX_PTX_M(SX_PTX_TYPE_B32), p->parity, p->parity, sx_ptx_imm(1));
    SX_PTX_PUT(b, SELP, SX_PTX_M(SX_PTX_TYPE_B32), p->slot, sx_ptx_imm(0), p->slot, over);
}

static bool in_cluster(const sx_nvidia_block *k)
{
    return k->l.b.kernel->cluster.x != 0;
}

/* Until the barrier `offset` bytes behind the place's has passed its phase. Other blocks of a cluster free stages. */
static void wait_for(sx_nvidia_block *k, const place *p, uint32_t offset)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg again = sx_ptx_label(b);
    sx_ptx_arg passed = sx_ptx_register(b, SX_PTX_PRED);
    sx_ptx_place(b, again);
    if (in_cluster(k) && offset == EMPTY) {
        SX_PTX_PUT(b, MBARRIER_TRY_PARITY,
                   SX_PTX_M(SX_PTX_ORDER_ACQUIRE, SX_PTX_SCOPE_CLUSTER, SX_PTX_SPACE_SHARED_CTA),
                   passed, sx_ptx_at(p->barrier, offset), p->parity);
    } else {
        SX_PTX_PUT(b, MBARRIER_TRY_PARITY, SX_PTX_M(SX_PTX_SPACE_SHARED_CTA), passed,
                   sx_ptx_at(p->barrier, offset), p->parity);
    }
    sx_ptx_guard(b, sx_ptx_not(passed));
    SX_PTX_PUT(b, BRA, SX_PTX_M(0), again);
}

/* Jumps where the number of the thread does not compare so. */
static void part_threads(sx_nvidia_block *k, uint16_t compare, uint32_t with, sx_ptx_arg label)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg others = sx_ptx_register(b, SX_PTX_PRED);
    SX_PTX_PUT(b, SETP, SX_PTX_M(compare, SX_PTX_TYPE_U32), others, k->thread, sx_ptx_imm(with));
    sx_ptx_guard(b, others);
    SX_PTX_PUT(b, BRA, SX_PTX_M(0), label);
}

/* ---- clusters ---- */
static void find_ranks(sx_nvidia_block *k)
{
    k->rank = sx_nvidia_special(&k->l, SX_PTX_SPECIAL_CLUSTER_CTARANK);
    k->other_rank = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, XOR, SX_PTX_M(SX_PTX_TYPE_B32), k->other_rank, k->rank, sx_ptx_imm(1));
}

/* What the thread has done, other blocks of the cluster may see behind their wait. */
static void arrive_at_cluster(sx_nvidia_block *k)
{
    sx_ptx_put(&k->l.b, SX_PTX_OP_CLUSTER_ARRIVE,
               SX_PTX_M(SX_PTX_ORDER_RELEASE, SX_PTX_ALIGNED_ALIGNED), NULL, 0);
}

static void wait_for_cluster(sx_nvidia_block *k)
{
    sx_ptx_put(&k->l.b, SX_PTX_OP_CLUSTER_WAIT,
               SX_PTX_M(SX_PTX_ORDER_ACQUIRE, SX_PTX_ALIGNED_ALIGNED), NULL, 0);
}

void sx_nvidia_part_from_cluster(sx_nvidia_block *k)
{
    if (in_cluster(k)) {
        arrive_at_cluster(k);
    }
}

/* The warp that loads has ended by itself: who has ended counts as arrived. */
void sx_nvidia_leave_cluster(sx_nvidia_block *k)
{
    if (in_cluster(k)) {
        wait_for_cluster(k);
    }
}

/* Barriers are ready for all threads and the copy engine, of all blocks of a cluster. */
static void make_barriers(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_ring *ring = &k->tile->ring;
    const sx_ptx_block *cluster = &b->kernel->cluster;
    uint32_t blocks = in_cluster(k) ? cluster->x * cluster->y * cluster->z : 1;
    sx_ptx_arg made = sx_ptx_label(b);
    part_threads(k, SX_PTX_COMPARE_NE, 0, made);
    for (uint32_t s = 0; s < ring->depth; s++) {
        SX_PTX_PUT(b, MBARRIER_INIT, SX_PTX_M(SX_PTX_SPACE_SHARED_CTA),
                   sx_ptx_at(k->memory, sx_ring_full_barrier(ring, s)),
                   sx_ptx_imm(ring->full_arrivals));
        SX_PTX_PUT(b, MBARRIER_INIT, SX_PTX_M(SX_PTX_SPACE_SHARED_CTA),
                   sx_ptx_at(k->memory, sx_ring_empty_barrier(ring, s)),
                   sx_ptx_imm((int64_t)ring->empty_arrivals * blocks));
    }
    sx_ptx_put(b, SX_PTX_OP_FENCE_MBARRIER, SX_PTX_M(0), NULL, 0);
    sx_ptx_place(b, made);
    if (blocks > 1) {
        SX_ASSERT(blocks == SX_BLOCK_CLUSTER);
        arrive_at_cluster(k);
        wait_for_cluster(k);
        find_ranks(k);
    } else {
        SX_PTX_PUT(b, BAR_SYNC, SX_PTX_M(0), sx_ptx_imm(0));
    }
}

/* ---- the role that multiplies ---- */
/* The descriptor of an operand's part at (mn, step) of the slot that begins at `slot`. */
static sx_ptx_arg descriptor(sx_nvidia_block *k, uint32_t which, sx_ptx_arg slot, uint32_t mn,
                             uint32_t step)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_wgmma_operand *o = &k->operand[which];
    sx_ptx_arg wide = sx_ptx_register(b, SX_PTX_B64);
    sx_ptx_arg d = sx_ptx_register(b, SX_PTX_B64);
    sx_ptx_arg at = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, SHR, SX_PTX_M(SX_PTX_TYPE_U32), at, plus(k, slot, sx_wgmma_offset(o, mn, step)),
               sx_ptx_imm(4));
    SX_PTX_PUT(b, CVT, SX_PTX_M(SX_PTX_TYPE_U64, SX_PTX_TYPE_U32), wide, at);
    SX_PTX_PUT(b, OR, SX_PTX_M(SX_PTX_TYPE_B64), d, wide, sx_ptx_imm((int64_t)o->bits));
    return d;
}

static uint16_t shape_of(const sx_matrix_instruction *m)
{
    switch (m->columns) {
    case 8: return SX_PTX_WARPGROUP_K16_N8;
    case 16: return SX_PTX_WARPGROUP_K16_N16;
    case 32: return SX_PTX_WARPGROUP_K16_N32;
    case 64: return SX_PTX_WARPGROUP_K16_N64;
    case 128: return SX_PTX_WARPGROUP_K16_N128;
    case 256: return SX_PTX_WARPGROUP_K16_N256;
    default: return 0;
    }
}

sx_ptx_op sx_nvidia_warpgroup_op(const sx_matrix_instruction *m)
{
    bool shape =
        m->warps == 4 && m->rows == 64 && m->steps == 16 && m->sum == SX_F32 && shape_of(m) != 0;
    return shape && m->factor == SX_BF16  ? SX_PTX_OP_WGMMA_BF16
           : shape && m->factor == SX_F16 ? SX_PTX_OP_WGMMA_F16
                                          : SX_PTX_OP_COUNT;
}

/* Begins the products of one instruction, for the sums of the thread from number `slice` times as many on. */
static void multiply_slice(sx_nvidia_block *k, const sx_ptx_arg *slot, uint32_t slice,
                           uint32_t step)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_matrix_instruction *m = k->tile->matrix;
    uint32_t own = m->rows * m->columns / WARPGROUP;
    uint32_t at = sx_layout_apply(&k->tile->held, &(sx_place){{slice * own}});
    sx_ptx_arg left = descriptor(k, SX_TILE_LEFT, slot[0], sx_at_row(at), step);
    sx_ptx_arg right = descriptor(k, SX_TILE_RIGHT, slot[1], sx_at_column(at), step);
    sx_ptx_arg arg[] = {sx_ptx_vector(b, &k->sum[slice * own], own),
                        left,
                        right,
                        sx_ptx_imm(1), /* adds to the sums */
                        sx_ptx_imm(1), /* neither factor is negated */
                        sx_ptx_imm(1),
                        sx_ptx_imm(k->operand[0].major == SX_MAJOR_MN),
                        sx_ptx_imm(k->operand[1].major == SX_MAJOR_MN)};
    sx_ptx_put(b, sx_nvidia_warpgroup_op(m), SX_PTX_M(shape_of(m)), arg, SX_COUNT(arg));
}

/* Begins `steps` steps of the stage. */
static void multiply_stage(sx_nvidia_block *k, const place *p, uint32_t steps)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    uint32_t own = tile->matrix->rows * tile->matrix->columns / WARPGROUP;
    uint32_t slices = sx_layout_count(&tile->held, SX_HOME_REGISTER) / own;
    sx_ptx_arg slot[2];
    for (uint32_t i = 0; i < 2; i++) {
        slot[i] = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), slot[i], k->own_slot[i], p->slot);
    }
    sx_ptx_put(b, SX_PTX_OP_WGMMA_FENCE, SX_PTX_M(0), NULL, 0);
    for (uint32_t step = 0; step < steps; step += tile->matrix->steps) {
        for (uint32_t slice = 0; slice < slices; slice++) {
            multiply_slice(k, slot, slice, step);
        }
    }
    sx_ptx_put(b, SX_PTX_OP_WGMMA_COMMIT, SX_PTX_M(0), NULL, 0);
}

static void settle(sx_nvidia_block *k, uint32_t back)
{
    SX_PTX_PUT(&k->l.b, WGMMA_WAIT, SX_PTX_M(0), sx_ptx_imm(back));
}

/* One thread of each four warps says that they are done with the stage of this barrier, to all blocks of a cluster. */
static void release(sx_nvidia_block *k, sx_ptx_arg barrier, sx_ptx_arg predicate)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_guard(b, predicate);
    SX_PTX_PUT(b, MBARRIER_ARRIVE, SX_PTX_M(SX_PTX_SPACE_SHARED_CTA), sink,
               sx_ptx_at(barrier, EMPTY));
    if (in_cluster(k)) {
        sx_ptx_arg other = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, MAPA, SX_PTX_M(SX_PTX_SPACE_SHARED_CLUSTER, SX_PTX_TYPE_U32), other, barrier,
                   k->other_rank);
        sx_ptx_guard(b, predicate);
        SX_PTX_PUT(b, MBARRIER_ARRIVE_FAR, SX_PTX_M(SX_PTX_ORDER_RELEASE, SX_PTX_SCOPE_CLUSTER),
                   sink, sx_ptx_at(other, EMPTY));
    }
}

/* Where the rows (or columns) of the thread's four warps begin in the slots of stage 0. */
static void own_slots(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    const sx_layout *held = &tile->held;
    uint32_t bits = held->bits[SX_HOME_WARP] - 2U; // those of the four warps are the instruction's
    uint32_t first = sx_layout_first(held, SX_HOME_WARP) + 2;
    for (uint32_t which = 0; which < 2; which++) {
        uint32_t column[SX_LAYOUT_BITS_MAX] = {0};
        for (uint32_t i = 0; i < bits; i++) {
            uint32_t at = held->column[first + i];
            uint32_t mn = which == SX_TILE_LEFT ? sx_at_row(at) : sx_at_column(at);
            column[7 + i] = mn == 0 ? 0 : sx_wgmma_offset(&k->operand[which], mn, 0);
        }
        uint32_t slot = sx_ring_slot_offset(&tile->ring, 0, which) - tile->ring.offset;
        k->own_slot[which] = plus(k, k->shared, slot);
        if (bits > 0) {
            SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), k->own_slot[which], k->own_slot[which],
                       sx_nvidia_of_thread(k, column, 7 + bits, false));
        }
    }
}

/* Steps of k in the last stage, in whole instructions. */
static uint32_t rest_steps(const sx_tile *tile)
{
    uint32_t rest = (uint32_t)(tile->sum % tile->block_steps), group = tile->matrix->steps;
    return (rest + group - 1) / group * group;
}

sx_ptx_arg sx_nvidia_find_speaker(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg own = sx_ptx_register(b, SX_PTX_B32);
    sx_ptx_arg d = sx_ptx_register(b, SX_PTX_PRED);
    SX_PTX_PUT(b, AND, SX_PTX_M(SX_PTX_TYPE_B32), own, k->thread, sx_ptx_imm(WARPGROUP - 1));
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_EQ, SX_PTX_TYPE_U32), d, own, sx_ptx_imm(0));
    return d;
}

/* A slice is settled, and added to the totals; then `end` stages will be done at the end of the next one. */
static void put_slice_end(sx_nvidia_block *k, sx_ptx_arg end)
{
    settle(k, 0);
    sx_nvidia_end_slice(k);
    SX_PTX_PUT(&k->l.b, ADD, SX_PTX_M(SX_PTX_TYPE_S32), end, end,
               sx_ptx_imm(k->tile->slice / k->tile->block_steps));
}

/* The whole stages. Afterwards the products of the last one are under way, or in the totals; `before` is its
 * barrier. */
static void put_whole_stages(sx_nvidia_block *k, const place *p, sx_ptx_arg before,
                             sx_ptx_arg speaks, int64_t whole)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    sx_ptx_arg done = number(k, 0), end = sx_ptx_imm(whole);
    sx_ptx_arg more = sx_ptx_register(b, SX_PTX_PRED), frees = sx_ptx_register(b, SX_PTX_PRED);
    sx_ptx_arg again = sx_ptx_label(b);
    if (tile->slice != 0) {
        end = number(k, tile->slice / tile->block_steps);
    }
    sx_ptx_place(b, again);
    wait_for(k, p, 0);
    multiply_stage(k, p, tile->block_steps);
    settle(k, 1);
    SX_PTX_PUT(b, SETP_JOIN, SX_PTX_M(SX_PTX_COMPARE_NE, SX_PTX_JOIN_AND, SX_PTX_TYPE_S32), frees,
               done, sx_ptx_imm(0), speaks);
    release(k, before, frees);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), before, p->barrier);
    next_place(k, p);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S32), done, done, sx_ptx_imm(1));
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_TYPE_S32), more, done, end);
    sx_ptx_guard(b, more);
    SX_PTX_PUT(b, BRA, SX_PTX_M(0), again);
    if (tile->slice != 0) {
        put_slice_end(k, end);
        SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_TYPE_S32), more, done,
                   sx_ptx_imm(whole));
        sx_ptx_guard(b, more);
        SX_PTX_PUT(b, BRA, SX_PTX_M(0), again);
    }
}

static sx_code put_math(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    int64_t whole = tile->sum / tile->block_steps;
    place p = first_place(k, sx_ring_full_parity(&tile->ring, 0));
    sx_ptx_arg before = plus(k, p.barrier, 0);
    sx_ptx_arg speaks = sx_nvidia_find_speaker(k);
    own_slots(k);
    if (tile->walkers > 0) { /* the ring goes on, sums begin again */
        sx_nvidia_begin_walk(k);
        SX_TRY(sx_nvidia_make_sums(k));
    }
    if (whole > 0) {
        put_whole_stages(k, &p, before, speaks, whole);
    }
    if (rest_steps(tile) > 0) {
        wait_for(k, &p, 0);
        multiply_stage(k, &p, rest_steps(tile));
        settle(k, 1);
        if (whole > 0) {
            release(k, before, speaks);
        }
        SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), before, p.barrier);
        if (tile->walkers > 0) {
            next_place(k, &p);
        }
    }
    if (tile->slice == 0) { /* the end of a slice has settled it */
        settle(k, 0);
    }
    release(k, before, speaks);
    if (tile->walkers == 0) { /* the results may be made before the others come here */
        sx_nvidia_part_from_cluster(k);
    }
    return k->l.b.code;
}

sx_code sx_nvidia_ring(sx_nvidia_block *k, sx_ptx_arg *loading)
{
    const sx_tile *tile = k->tile;
    for (uint32_t i = 0; i < 2; i++) {
        SX_TRY(sx_tile_descriptor_of(k->l.cx, tile, i, &k->operand[i]));
    }
    *loading = sx_ptx_label(&k->l.b);
    make_barriers(k);
    part_threads(k, SX_PTX_COMPARE_GE, 32 * tile->role[1].warps, *loading);
    SX_TRY(tile->walkers > 0 ? SX_OK : sx_nvidia_make_sums(k));
    return put_math(k);
}

/* ---- the role that loads ---- */
/* A factor on its way: its map, and where the next box begins in each dimension of it. */
typedef struct {
    sx_ptx_arg map;
    sx_ptx_arg at[SX_TENSOR_RANK_MAX];
    uint32_t sum; /* the dimension that is k */
    /* Of a factor that the blocks of a cluster share: how far the boxes of this block lie behind the first ones, in the
     * slot and along both dimensions; and the blocks, as bits. NONE: it is not shared, or they do not move so. */
    sx_ptx_arg moved_bytes, moved[2], blocks;
} engine_copy;

/* The rank of the block times a number; NONE: 0. */
static sx_ptx_arg by_rank(sx_nvidia_block *k, uint32_t each)
{
    sx_ptx_arg d = {0};
    if (each > 0) {
        d = sx_ptx_register(&k->l.b, SX_PTX_B32);
        SX_PTX_PUT(&k->l.b, MUL, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_U32), d, k->rank,
                   sx_ptx_imm(each));
    }
    return d;
}

static sx_boxes boxes_of(sx_nvidia_block *k, uint32_t which)
{
    const sx_tile *tile = k->tile;
    sx_boxes boxes;
    sx_code code = sx_slot_boxes_shared(k->l.cx, &tile->ring.slot[which],
                                        tile->operand[which].boxes.map.element,
                                        sx_tile_sharers(tile, which), &boxes);
    SX_ASSERT(code == SX_OK); /* the check has made them */
    return boxes;
}

/* Parts are equal, and the boxes of one lie like those of the other. */
static void begin_shared(sx_nvidia_block *k, uint32_t which, engine_copy *c)
{
    uint32_t parts = sx_tile_sharers(k->tile, which);
    const sx_boxes boxes = boxes_of(k, which);
    const sx_slot *slot = &k->tile->ring.slot[which];
    if (parts == 1) {
        return;
    }
    sx_box_start second = sx_box_at(slot, &boxes, boxes.down * boxes.across / parts);
    c->moved_bytes = by_rank(k, second.offset);
    c->moved[0] = by_rank(k, second.column);
    c->moved[1] = by_rank(k, second.row);
    c->blocks = sx_ptx_register(&k->l.b, SX_PTX_B16);
    SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(SX_PTX_TYPE_B16), c->blocks, sx_ptx_imm((1 << parts) - 1));
}

/* Generic addresses of the maps, and where the first boxes of the block begin. */
static engine_copy begin_copy(sx_nvidia_block *k, uint32_t which)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile_operand *o = &k->tile->operand[which];
    sx_ptx_arg parameter = sx_ptx_register(b, SX_PTX_B64);
    engine_copy c = {.map = sx_ptx_register(b, SX_PTX_B64), .sum = o->sum_inner ? 0 : 1};
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B64), parameter, k->map[which]);
    SX_PTX_PUT(b, CVTA, SX_PTX_M(SX_PTX_SPACE_PARAM, SX_PTX_TYPE_U64), c.map, parameter);
    c.at[c.sum] = number(k, 0);
    c.at[1 - c.sum] = k->first[which];
    for (uint32_t d = 2; d < o->boxes.map.rank; d++) {
        c.at[d] = k->batch[o->boxes.batch[d - 2]];
    }
    begin_shared(k, which, &c);
    return c;
}

/* The sum of both; NONE counts as 0. */
static sx_ptx_arg moved(sx_nvidia_block *k, sx_ptx_arg x, sx_ptx_arg by)
{
    sx_ptx_arg d = x;
    if (by.kind != SX_PTX_ARG_NONE) {
        d = sx_ptx_register(&k->l.b, SX_PTX_B32);
        SX_PTX_PUT(&k->l.b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), d, x, by);
    }
    return d;
}

/* Starts the copies of all boxes of a slot, or of the block's part of them. */
static void copy_boxes(sx_nvidia_block *k, uint32_t which, const engine_copy *c, const place *p,
                       sx_ptx_arg stage)
{
    static const uint16_t dims[] = {
        0, 0, SX_PTX_DIM_D2, SX_PTX_DIM_D3, SX_PTX_DIM_D4, SX_PTX_DIM_D5};
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    const sx_slot *slot = &tile->ring.slot[which];
    const sx_tensor_map *map = &tile->operand[which].boxes.map;
    uint32_t offset = sx_ring_slot_offset(&tile->ring, 0, which) - tile->ring.offset;
    const sx_boxes boxes = boxes_of(k, which);
    sx_ptx_arg first[SX_TENSOR_RANK_MAX];
    memcpy(first, c->at, sizeof(first));
    first[0] = moved(k, first[0], c->moved[0]);
    first[1] = moved(k, first[1], c->moved[1]);
    stage = moved(k, stage, c->moved_bytes);
    for (uint32_t i = 0; i < boxes.down * boxes.across / sx_tile_sharers(tile, which); i++) {
        sx_box_start start = sx_box_at(slot, &boxes, i);
        sx_ptx_arg at[SX_TENSOR_RANK_MAX];
        memcpy(at, first, sizeof(at));
        at[0] = start.column > 0 ? plus(k, at[0], start.column) : at[0];
        at[1] = start.row > 0 ? plus(k, at[1], start.row) : at[1];
        sx_ptx_arg to = sx_ptx_at(stage, offset + start.offset), from = sx_ptx_at(c->map, 0);
        sx_ptx_arg coordinates = sx_ptx_coordinates(b, at, map->rank);
        if (c->blocks.kind != SX_PTX_ARG_NONE) {
            SX_PTX_PUT(b, CP_TENSOR_LOAD, SX_PTX_M(dims[map->rank], SX_PTX_MULTICAST_MULTICAST), to,
                       from, coordinates, sx_ptx_at(p->barrier, 0), c->blocks);
        } else {
            SX_PTX_PUT(b, CP_TENSOR_LOAD, SX_PTX_M(dims[map->rank]), to, from, coordinates,
                       sx_ptx_at(p->barrier, 0));
        }
    }
}

void sx_nvidia_load(sx_nvidia_block *k, sx_ptx_arg loading)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    sx_ptx_arg end = sx_ptx_label(b), again = sx_ptx_label(b);
    engine_copy copy[2];
    sx_ptx_place(b, loading);
    part_threads(k, SX_PTX_COMPARE_NE, 32 * tile->role[0].first_warp, end);
    place p = first_place(k, sx_ring_empty_parity(&tile->ring, 0));
    sx_ptx_arg stage = sx_ptx_register(b, SX_PTX_B32), more = sx_ptx_register(b, SX_PTX_PRED);
    if (tile->walkers > 0) {
        sx_nvidia_begin_walk(k);
    }
    for (uint32_t i = 0; i < 2; i++) {
        copy[i] = begin_copy(k, i);
    }
    sx_ptx_place(b, again);
    wait_for(k, &p, EMPTY);
    SX_PTX_PUT(b, MBARRIER_ARRIVE_TX, SX_PTX_M(SX_PTX_SPACE_SHARED_CTA), sink,
               sx_ptx_at(p.barrier, 0), sx_ptx_imm(tile->ring.tx_bytes));
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), stage, k->shared, p.slot);
    for (uint32_t i = 0; i < 2; i++) {
        sx_ptx_arg sum = copy[i].at[copy[i].sum];
        copy_boxes(k, i, &copy[i], &p, stage);
        SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), sum, sum, sx_ptx_imm(tile->block_steps));
    }
    next_place(k, &p);
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_TYPE_U32), more, copy[0].at[copy[0].sum],
               sx_ptx_imm(tile->sum));
    sx_ptx_guard(b, more);
    SX_PTX_PUT(b, BRA, SX_PTX_M(0), again);
    if (tile->walkers > 0) {
        sx_nvidia_end_walk(k);
    }
    sx_ptx_place(b, end);
    sx_ptx_put(b, SX_PTX_OP_RET, SX_PTX_M(0), NULL, 0);
}
