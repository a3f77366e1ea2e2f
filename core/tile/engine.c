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

sx_code sx_tile_boxes_of(sx_ctx *cx, const sx_tile *tile, uint32_t which, sx_tile_boxes *boxes)
{
    const sx_tile_operand *o = &tile->operand[which];
    const sx_tile_view *v = &o->view;
    int64_t bytes = sx_dtype_bytes(v->element);
    int64_t inner = o->sum_inner ? v->sum_extent : v->side_extent;
    int64_t outer = o->sum_inner ? v->side_extent : v->sum_extent;
    uint64_t dims[SX_TENSOR_RANK_MAX] = {(uint64_t)inner, (uint64_t)outer};
    uint64_t strides[SX_TENSOR_RANK_MAX] = {(uint64_t)bytes};
    uint32_t rank = 2;
    SX_ASSERT(which <= SX_TILE_RIGHT && tile->ring.slot_count == 2);
    bool beside = inner == 1 || (o->sum_inner ? v->sum_stride : v->side_stride) == 1;
    if (!beside || v->offset * bytes % 16 != 0) {
        return refuse(cx, "elements that do not lie side by side from a multiple of 16 bytes on");
    }
    bool fits = stride_of(outer, o->sum_inner ? v->side_stride : v->sum_stride, bytes,
                          inner * bytes, &strides[1]);
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
    return sx_slot_tensor_map(cx, &tile->ring.slot[which], v->element, rank, dims, strides,
                              SX_FILL_ZERO, &boxes->map);
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
