/* block_engine.c - do the boxes of the copy engine bring what a stage of a tile program is to hold?
 *
 * A map names an element by an index along each of its dimensions: base + the sum of index * stride, or zero where an
 * index is outside. Its first two dimensions must be k and the side of the view, the others those of the batch along
 * which the view moves. Boxes fill the slot from its begin, panel by panel, with the swizzle of the slot, and the
 * barrier waits for all of their bytes. The blocks of a cluster bring equal parts of the boxes of a factor that they
 * share: all blocks of one read the same rows or columns of it, since they lie along the other side. */
#include "core/judge/prove.h"

#include "core/tile/program.h"

#define STRIDE_MAX (UINT64_C(1) << 40)

/* Does dimension `d` go over `extent` indices, each `stride` elements behind the one before? */
static bool goes_over(const sx_tile_operand *o, uint32_t d, int64_t extent, int64_t stride)
{
    const sx_tensor_map *map = &o->boxes.map;
    int64_t bytes;
    if (map->dims[d] != (uint64_t)extent || extent > INT64_C(1) << 32 ||
        map->element_strides[d] != 1) {
        return false;
    }
    if (extent == 1 && d > 0) { /* never taken */
        return map->strides[d] % 16 == 0 && map->strides[d] > 0 && map->strides[d] < STRIDE_MAX;
    }
    return stride > 0 && sx_mul_i64(stride, sx_dtype_bytes(o->view.element), &bytes) &&
           map->strides[d] == (uint64_t)bytes && map->strides[d] < STRIDE_MAX &&
           (d == 0 || bytes % 16 == 0);
}

/* Every dimension of the batch along which the view moves is one of the map's, and no other. */
static bool goes_over_batch(const sx_tile *t, const sx_tile_operand *o)
{
    uint32_t seen = 0, moving = 0;
    for (uint32_t i = 2; i < o->boxes.map.rank; i++) {
        uint32_t d = o->boxes.batch[i - 2];
        if (d >= t->batch_count || (seen >> d & 1U) != 0 ||
            !goes_over(o, i, t->batch[d], o->view.batch_stride[d])) {
            return false;
        }
        seen |= 1U << d;
    }
    for (uint32_t d = 0; d < t->batch_count; d++) {
        moving |= t->batch[d] > 1 && o->view.batch_stride[d] != 0 ? 1U << d : 0U;
    }
    return (moving & ~seen) == 0;
}

/* Boxes of one panel's width, as many rows as divide the slot, each at a place where the swizzle begins anew. */
static bool fills(const sx_slot *s, const sx_tensor_map *map, uint32_t bytes)
{
    bool ok = map->swizzle == s->swizzle && s->pitch == s->panel_bytes &&
              map->box[0] * bytes == s->panel_bytes && map->box[0] >= 1 && map->box[0] <= 256 &&
              map->box[1] >= 1 && map->box[1] <= 256 && s->rows % map->box[1] == 0 &&
              (s->swizzle == SX_SWIZZLE_NONE || s->panel_bytes == sx_swizzle_bytes(s->swizzle));
    uint32_t unit = sx_swizzle_align(s->swizzle);
    bool cut = s->panels > 1 || s->rows != map->box[1];
    ok = ok && (!cut || map->box[1] * s->pitch % unit == 0);
    for (uint32_t d = 2; ok && d < map->rank; d++) {
        ok = map->box[d] == 1;
    }
    return ok;
}

/* The same boxes as those that emission cuts the slot into (sx_box_at). */
static bool cut_alike(sx_ctx *cx, const sx_slot *s, const sx_tile_operand *o, uint32_t parts)
{
    sx_boxes boxes;
    return sx_slot_boxes_shared(cx, s, o->view.element, parts, &boxes) == SX_OK &&
           boxes.down * boxes.across % parts == 0 && boxes.columns == o->boxes.map.box[0] &&
           boxes.rows == o->boxes.map.box[1];
}

bool sx_prove_boxes(sx_judge *j, const sx_tile *t, uint32_t k)
{
    static const char *const name[2] = {"left", "right"};
    const sx_tile_operand *o = &t->operand[k];
    const sx_tile_view *v = &o->view;
    const sx_tensor_map *map = &o->boxes.map;
    uint32_t bytes = sx_dtype_bytes(v->element);
    bool inner = o->sum_inner;
    int64_t beside = inner ? v->sum_extent : v->side_extent; /* one has no next */
    bool ok = map->rank >= 2 && map->rank <= SX_TENSOR_RANK_MAX && map->element == v->element &&
              map->fill == SX_FILL_ZERO && v->offset % (16 / bytes) == 0 && v->offset >= 0 &&
              (beside == 1 || (inner ? v->sum_stride : v->side_stride) == 1) &&
              goes_over(o, 0, beside, 1) &&
              goes_over(o, 1, inner ? v->side_extent : v->sum_extent,
                        inner ? v->side_stride : v->sum_stride);
    if (!ok || !goes_over_batch(t, o)) {
        (void)sx_refuse(&j->algebra, "the map of the %s argument is not that of its view", name[k]);
        return false;
    }
    if (!fills(&t->ring.slot[k], map, bytes) ||
        !cut_alike(j->cx, &t->ring.slot[k], o, sx_tile_sharers(t, k))) {
        sx_ctx_reset_error(j->cx);
        (void)sx_refuse(&j->algebra, "boxes of the %s argument do not fill its slot", name[k]);
        return false;
    }
    return true;
}
