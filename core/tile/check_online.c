/* check_online.c - programs of online sums and nested contractions are well formed. */
#include "core/tile/online.h"

#include <string.h>

#include "core/tile/unfold.h"

static sx_code fail(sx_ctx *cx, const sx_kernel *kernel, const char *what, int64_t value)
{
    return SX_FAIL(cx, SX_INPUT, "kernel %s: online tile: %s, it is %lld", kernel->name, what,
                   (long long)value);
}

static sx_code check_grid(sx_ctx *cx, const sx_kernel *kernel, const sx_part *part)
{
    const sx_tile *tile = part->tile, *query = tile->online->query;
    const sx_tile *second = tile->online->second;
    int64_t batch = 1;
    bool same = query->batch_count == tile->batch_count && query->threads == tile->threads &&
                query->sum == tile->rows && query->block_steps == tile->block_rows &&
                query->matrix == tile->matrix && tile->batch_count <= SX_RANK_MAX;
    for (uint32_t d = 0; same && d < tile->batch_count; d++) {
        same = query->batch[d] == tile->batch[d] && tile->batch[d] >= 1 &&
               sx_mul_i64(batch, tile->batch[d], &batch);
    }
    if (second != NULL) {
        same = same && tile->online->nested && second->rows == query->rows &&
               second->block_rows == query->block_rows && second->sum == query->sum &&
               second->block_steps == query->block_steps && second->threads == query->threads &&
               second->matrix == query->matrix && second->batch_count == query->batch_count &&
               memcmp(second->batch, query->batch, sizeof(query->batch)) == 0;
    }
    if (!same || tile->matrix == NULL) {
        return fail(cx, kernel, "queries that fit to their keys, steps", query->block_steps);
    }
    bool whole = tile->block_rows >= tile->rows && tile->block_columns >= tile->columns &&
                 tile->block_steps >= tile->matrix->steps && query->rows >= 1 && tile->rows >= 1 &&
                 tile->columns >= 1 && tile->sum >= 1 && query->rows <= INT32_MAX &&
                 tile->sum <= INT32_MAX &&
                 query->block_rows == tile->matrix->rows * tile->threads / 32;
    if (!whole || part->grid[0] != batch ||
        part->grid[1] != sx_ceil_div_i64(query->rows, query->block_rows) || part->grid[2] != 1) {
        return fail(cx, kernel, "a block that has whole heads, columns", tile->block_columns);
    }
    const sx_tile_online *online = tile->online;
    bool near = online->ahead >= -SX_HORIZON_MAX && online->ahead <= SX_HORIZON_MAX &&
                query->rows <= SX_HORIZON_MAX && tile->sum <= SX_HORIZON_MAX;
    if (online->nested && (online->has_horizon || online->statistic != NULL)) {
        return fail(cx, kernel, "a nested contraction of all keys with one result, ahead",
                    online->ahead);
    }
    if (online->has_horizon && (!near || (tile->block_steps & (tile->block_steps - 1)) != 0)) {
        return fail(cx, kernel, "a horizon of 29 bits over stages of a power of two, ahead",
                    online->ahead);
    }
    return SX_OK;
}

/* Layouts are those that the sides of the block give. */
static sx_code check_layouts(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    sx_tile_online_layout all;
    SX_TRY(sx_tile_online_layouts(cx, tile, &all));
    bool same = sx_layout_equal(&all.scores, &tile->online->held) &&
                sx_layout_equal(&all.sums, &tile->held);
    for (uint32_t i = 0; i < sx_tile_operands(tile); i++) {
        const sx_tile_operand *o = &tile->operand[i];
        same =
            same && sx_layout_equal(&all.operand[i], &o->held) && o->group == tile->matrix->steps;
    }
    for (uint32_t i = 0; i < sx_tile_products(tile); i++) {
        const sx_tile_operand *o = &sx_tile_query(tile, i)->operand[SX_TILE_LEFT];
        same = same && sx_layout_equal(&all.query[i], &o->held) && o->group == tile->matrix->steps;
    }
    return same ? SX_OK
                : fail(cx, kernel, "fragments of the instruction, steps", tile->matrix->steps);
}

static sx_code check_operand(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile,
                             uint32_t which)
{
    const sx_tile_operand *o = &tile->operand[which];
    const sx_tile_view *v = &o->view;
    const sx_slot *slot = &tile->ring.slot[which];
    uint32_t element = sx_dtype_bytes(v->element);
    uint32_t side = which == SX_TILE_RIGHT ? tile->block_columns : tile->block_rows;
    uint32_t rows = o->sum_inner ? side : tile->block_steps;
    uint32_t width = o->sum_inner ? tile->block_steps : side;
    int64_t inner = o->sum_inner ? v->sum_stride : v->side_stride;
    int64_t outer = o->sum_inner ? v->side_stride : v->sum_stride;
    int64_t unit = sx_max_i64(1, o->copy_bytes / element);
    bool aligned = unit == 1 || (inner == 1 && outer % unit == 0 && v->offset % unit == 0);
    for (uint32_t d = 0; d < tile->batch_count; d++) {
        aligned = aligned && (unit == 1 || v->batch_stride[d] % unit == 0);
    }
    bool engine = o->copy_bytes == 16 || o->copy_bytes == 8 || o->copy_bytes == 4;
    SX_TRY(sx_layout_check(cx, &o->copied));
    if (!aligned || (!engine && o->copy_bytes != element)) {
        return fail(cx, kernel, "copies that are aligned wherever they begin, bytes",
                    o->copy_bytes);
    }
    if (v->element != tile->matrix->factor || v->buffer >= kernel->buffer_count ||
        v->side_extent != (which == SX_TILE_RIGHT ? tile->columns : tile->rows) ||
        v->sum_extent != tile->sum) {
        return fail(cx, kernel, "a view of the matrix, buffer", v->buffer);
    }
    if (slot->rows != rows || sx_slot_row_bytes(slot) != width * element ||
        sx_layout_side(&o->copied, SX_SIDE_ROW) != rows ||
        sx_layout_side(&o->copied, SX_SIDE_COLUMN) != width || !sx_layout_covers(&o->copied) ||
        o->copied.mode_count != 0 ||
        sx_layout_count(&o->copied, SX_HOME_WARP) * 32 != tile->threads ||
        sx_layout_replica_bits(&o->copied, SX_HOME_REGISTER) != 0 ||
        sx_layout_vector(&o->copied) * element < o->copy_bytes) {
        return fail(cx, kernel, "copies of the whole tile to its slot, bytes of one",
                    o->copy_bytes);
    }
    return SX_OK;
}

/* Slots of queries lie beside the ring and each other. */
static sx_code check_query_slot(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile,
                                uint32_t product)
{
    const sx_ring *ring = &tile->ring, *own = &sx_tile_query(tile, product)->ring;
    uint64_t begin = own->offset, end = begin + sx_ring_stage_bytes(own);
    uint64_t first = ring->offset;
    uint64_t last = first + (uint64_t)sx_ring_stage_bytes(ring) * ring->depth;
    bool apart = end <= first || begin >= last;
    if (product > 0) {
        const sx_ring *other = &tile->online->query->ring;
        uint64_t behind = other->offset + (uint64_t)sx_ring_stage_bytes(other);
        apart = apart && (end <= other->offset || begin >= behind);
    }
    if (own->slot_count != 1 || own->depth != 1 || !apart || end > tile->shared_bytes) {
        return fail(cx, kernel, "queries beside the ring, from byte", own->offset);
    }
    return sx_slot_check_base(cx, &own->slot[0], own->offset);
}

/* A value leaves memory as it is. */
static sx_code check_value(sx_ctx *cx, const sx_kernel *kernel, const sx_tile_value *value)
{
    for (uint32_t i = 0; i < value->part.item_count; i++) {
        if (value->part.item[i].op == SX_LOP_STORE) {
            return fail(cx, kernel, "a store in a program of scores, item", i);
        }
    }
    return value->result < value->part.vector_count
               ? SX_OK
               : fail(cx, kernel, "a register of the result", value->result);
}

sx_code sx_tile_check_online(sx_ctx *cx, const sx_kernel *kernel, const sx_part *part)
{
    const sx_tile *tile = part->tile;
    sx_kernel *unfolded;
    SX_ASSERT(tile->online != NULL && tile->online->query != NULL);
    SX_TRY(check_grid(cx, kernel, part));
    SX_TRY(check_layouts(cx, kernel, tile));
    for (uint32_t i = 0; i < sx_tile_products(tile); i++) {
        SX_TRY(check_operand(cx, kernel, sx_tile_query(tile, i), SX_TILE_LEFT));
        SX_TRY(check_query_slot(cx, kernel, tile, i));
    }
    for (uint32_t i = 0; i < sx_tile_operands(tile); i++) {
        SX_TRY(check_operand(cx, kernel, tile, i));
    }
    SX_TRY(check_value(cx, kernel, &tile->online->scores[0]));
    SX_TRY(tile->online->nested ? SX_OK : check_value(cx, kernel, &tile->online->power));
    if (tile->sum % tile->block_steps != 0) {
        SX_TRY(check_value(cx, kernel, &tile->online->scores[1]));
    }
    if (tile->map.vector_count < sx_tile_sums(tile)) {
        return fail(cx, kernel, "registers of the sums", tile->map.vector_count);
    }
    const sx_part *statistic = tile->online->statistic;
    if (statistic != NULL && statistic->vector_count < SX_TILE_ONLINE_SUMS) {
        return fail(cx, kernel, "registers of the sums of rows", statistic->vector_count);
    }
    SX_TRY(sx_tile_unfold(cx, kernel, &unfolded));
    return sx_kernel_check(cx, unfolded);
}
