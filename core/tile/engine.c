/* engine.c - factors that no thread touches: the copy engine writes them into slots, matrix instructions read them. */
#include "core/tile/program.h"

static sx_code refuse(sx_ctx *cx, const char *why)
{
    return SX_FAIL(cx, SX_UNIMPLEMENTED, "no boxes of the copy engine: %s", why);
}

/* The step to the next index in bytes; one that is never taken is any that the engine allows. */
static bool stride_of(int64_t extent, int64_t stride, int64_t bytes, int64_t least, uint64_t *out)
{
    int64_t step = sx_ceil_div_i64(least, 16) * 16;
    if (extent > 1 && (stride <= 0 || !sx_mul_i64(stride, bytes, &step))) {
        return false;
    }
    *out = (uint64_t)step;
    return step % 16 == 0;
}

/* The boxes of a view in a slot whose rows run along k (`sum_inner`) or along the side, for so many blocks. */
static sx_code boxes_of(sx_ctx *cx, const sx_tile *tile, const sx_tile_view *v, bool sum_inner,
                        const sx_slot *slot, uint32_t parts, sx_tile_boxes *boxes)
{
    sx_boxes cut;
    int64_t bytes = sx_dtype_bytes(v->element);
    int64_t inner = sum_inner ? v->sum_extent : v->side_extent;
    int64_t outer = sum_inner ? v->side_extent : v->sum_extent;
    uint64_t dims[SX_TENSOR_RANK_MAX] = {(uint64_t)inner, (uint64_t)outer};
    uint64_t strides[SX_TENSOR_RANK_MAX] = {(uint64_t)bytes};
    uint32_t rank = 2;
    bool beside = inner == 1 || (sum_inner ? v->sum_stride : v->side_stride) == 1;
    if (!beside || v->offset * bytes % 16 != 0) {
        return refuse(cx, "elements that do not lie side by side from a multiple of 16 bytes on");
    }
    bool fits = stride_of(outer, sum_inner ? v->side_stride : v->sum_stride, bytes, inner * bytes,
                          &strides[1]);
    *boxes = (sx_tile_boxes){.batch = {0}};
    for (uint32_t d = 0; d < tile->batch_count && fits; d++) {
        if (tile->batch[d] == 1 || v->batch_stride[d] == 0) {
            continue;
        }
        if (rank == SX_TENSOR_RANK_MAX) {
            return refuse(cx, "a batch of more than three dimensions");
        }
        boxes->batch[rank - 2] = (uint8_t)d;
        dims[rank] = (uint64_t)tile->batch[d];
        fits = stride_of(tile->batch[d], v->batch_stride[d], bytes, 0, &strides[rank++]);
    }
    if (!fits) {
        return refuse(cx, "rows that are no multiples of 16 bytes apart");
    }
    SX_TRY(
        sx_slot_tensor_map(cx, slot, v->element, rank, dims, strides, SX_FILL_ZERO, &boxes->map));
    if (parts == 1) {
        return SX_OK;
    }
    if (sx_slot_boxes_shared(cx, slot, v->element, parts, &cut) != SX_OK) {
        sx_ctx_reset_error(cx);
        return refuse(cx, "a slot that the blocks of a cluster cannot fetch in equal parts");
    }
    boxes->map.box[1] = cut.rows;
    return SX_OK;
}

sx_code sx_tile_boxes_of(sx_ctx *cx, const sx_tile *tile, uint32_t which, sx_tile_boxes *boxes)
{
    const sx_tile_operand *o = &tile->operand[which];
    SX_ASSERT(which <= SX_TILE_RIGHT && tile->ring.slot_count == 2);
    return boxes_of(cx, tile, &o->view, o->sum_inner, &tile->ring.slot[which],
                    sx_tile_sharers(tile, which), boxes);
}

/* ---- results ---- */
uint32_t sx_tile_groups(const sx_tile *tile)
{
    SX_ASSERT(tile->matrix != NULL && tile->role_count == 2);
    return tile->role[1].warps / tile->matrix->warps;
}

/* The only store of `map` as a view: columns are its side, rows its sum. */
static sx_code result_view(sx_ctx *cx, const sx_tile *tile, sx_dtype element, sx_tile_view *v)
{
    const sx_part *map = &tile->map;
    const sx_item *store = NULL;
    int64_t bytes = sx_dtype_bytes(element);
    uint32_t stores = 0;
    for (uint32_t i = 0; i < map->item_count; i++) {
        bool stored = map->item[i].op == SX_LOP_STORE;
        store = stored ? &map->item[i] : store;
        stores += stored ? 1 : 0;
    }
    if (stores != 1 || map->addr[store->addr].index_reg != SX_NO_REG) {
        return SX_FAIL(cx, SX_INPUT, "tile: %u stores of an element, the copy engine has one",
                       stores);
    }
    const sx_addr *addr = &map->addr[store->addr];
    bool whole = addr->offset % bytes == 0;
    for (uint32_t d = 0; d < SX_LOOP_VARS_MAX; d++) {
        whole = whole && addr->coef[d] % bytes == 0 &&
                (addr->coef[d] == 0 ||
                 (d >= SX_TILE_VAR_ROW && d < SX_TILE_VAR_BATCH + tile->batch_count));
    }
    if (!whole) {
        return SX_FAIL(cx, SX_INPUT, "tile: a result of elements of %lld bytes", (long long)bytes);
    }
    *v = (sx_tile_view){.buffer = addr->buffer,
                        .element = element,
                        .offset = addr->offset / bytes,
                        .side_stride = addr->coef[SX_TILE_VAR_COLUMN] / bytes,
                        .sum_stride = addr->coef[SX_TILE_VAR_ROW] / bytes,
                        .side_extent = tile->columns,
                        .sum_extent = tile->rows};
    for (uint32_t d = 0; d < tile->batch_count; d++) {
        v->batch_stride[d] = addr->coef[SX_TILE_VAR_BATCH + d] / bytes;
    }
    return SX_OK;
}

sx_code sx_tile_store_of(sx_ctx *cx, const sx_tile *tile, sx_dtype element, sx_tile_store *store)
{
    uint32_t bytes = sx_dtype_bytes(element), groups = sx_tile_groups(tile);
    uint32_t most = SX_STORE_ROW_BYTES / bytes, columns = tile->matrix->columns;
    SX_ASSERT(tile->by_engine && groups > 0);
    *store = (sx_tile_store){.depth = tile->store.depth, .offset = tile->store.offset};
    SX_TRY(result_view(cx, tile, element, &store->view));
    if (bytes != 2 && bytes != 4) {
        return refuse(cx, "results of other than 2 or 4 bytes");
    }
    if (tile->columns * bytes % 16 != 0 || store->view.side_stride != 1) {
        return refuse(cx, "results whose rows are no multiples of 16 bytes");
    }
    for (uint32_t d = 0; d < tile->batch_count; d++) { /* two points would store the same */
        if (tile->batch[d] > 1 && store->view.batch_stride[d] == 0) {
            return refuse(cx, "results that are the same for all of a batch");
        }
    }
    columns = columns < most ? columns : most;
    SX_TRY(sx_slot_choose(cx, tile->matrix->rows, columns * bytes, NULL, NULL, &store->slot));
    return boxes_of(cx, tile, &store->view, false, &store->slot, 1, &store->boxes);
}

sx_code sx_tile_descriptor_of(sx_ctx *cx, const sx_tile *tile, uint32_t which,
                              sx_wgmma_operand *operand)
{
    const sx_tile_operand *o = &tile->operand[which];
    SX_ASSERT(which <= SX_TILE_RIGHT && tile->matrix != NULL && tile->ring.slot_count == 2);
    SX_TRY(sx_wgmma_operand_make(cx, &tile->ring.slot[which], o->view.element,
                                 o->sum_inner ? SX_MAJOR_K : SX_MAJOR_MN, operand));
    /* Every instruction begins where the hardware can: warps stand at multiples of what they compute. */
    uint32_t side = which == SX_TILE_LEFT ? tile->matrix->rows : tile->matrix->columns;
    uint32_t all = which == SX_TILE_LEFT ? tile->block_rows : tile->block_columns;
    if ((side != all && side % operand->mn_unit != 0) ||
        tile->matrix->steps % operand->k_unit != 0) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "wgmma: parts of %u in slots that are cut by %u", side,
                       operand->mn_unit);
    }
    return SX_OK;
}
