/* print.c - tile programs as text for people. */
#include "core/tile/online.h"

static const char *const op_names[] = {[SX_TILE_ACQUIRE] = "acquire",
                                       [SX_TILE_FETCH] = "fetch",
                                       [SX_TILE_PUBLISH] = "publish",
                                       [SX_TILE_FILL] = "fill",
                                       [SX_TILE_WAIT] = "wait",
                                       [SX_TILE_MULTIPLY] = "multiply",
                                       [SX_TILE_SETTLE] = "settle",
                                       [SX_TILE_RELEASE] = "release",
                                       [SX_TILE_MAP] = "map",
                                       [SX_TILE_LOOP] = "loop {",
                                       [SX_TILE_END] = "}"};
static const char *const operand_names[] = {"left", "right", "second"};

/* `boxes 64 x 128 of 4096 x 512 strides 2 8192`, innermost first. */
static void print_boxes(const sx_tensor_map *map, sx_buf *text)
{
    sx_buf_put_text(text, "boxes");
    for (uint32_t d = 0; d < map->rank; d++) {
        sx_buf_print(text, "%s %u", d > 0 ? " x" : "", map->box[d]);
    }
    for (uint32_t d = 0; d < map->rank; d++) {
        sx_buf_print(text, "%s %llu", d > 0 ? " x" : " of", (unsigned long long)map->dims[d]);
    }
    sx_buf_put_text(text, " strides");
    for (uint32_t d = 0; d < map->rank; d++) {
        sx_buf_print(text, " %llu", (unsigned long long)map->strides[d]);
    }
    sx_buf_put_text(text, ", ");
}

static void print_operand(const sx_tile *tile, uint32_t which, sx_buf *text)
{
    const sx_tile_operand *o = &tile->operand[which];
    const sx_tile_view *v = &o->view;
    sx_buf_print(text, "  %s buffer %u %s offset %lld strides side %lld sum %lld batch",
                 operand_names[which], v->buffer, sx_dtype_name(v->element), (long long)v->offset,
                 (long long)v->side_stride, (long long)v->sum_stride);
    for (uint32_t d = 0; d < tile->batch_count; d++) {
        sx_buf_print(text, " %lld", (long long)v->batch_stride[d]);
    }
    sx_buf_print(text, "\n    %s inner, ", o->sum_inner ? "sum" : "side");
    if (tile->by_engine) {
        print_boxes(&o->boxes.map, text);
        sx_slot_print(&tile->ring.slot[which], text);
        sx_buf_put_text(text, "\n");
        return;
    }
    sx_buf_print(text, "copies of %u bytes, ", o->copy_bytes);
    sx_slot_print(&tile->ring.slot[which], text);
    sx_buf_put_text(text, "\n    copied ");
    sx_layout_print(&o->copied, text);
    sx_buf_print(text, "\n    held %u steps ", o->group);
    sx_layout_print(&o->held, text);
    sx_buf_put_text(text, "\n");
}

sx_code sx_tile_print(sx_ctx *cx, const sx_part *part, sx_buf *text)
{
    const sx_tile *tile = part->tile;
    SX_ASSERT(tile != NULL);
    sx_buf_print(text, "tile grid %lld %lld %lld threads %u shared %u\n", (long long)part->grid[0],
                 (long long)part->grid[1], (long long)part->grid[2], tile->threads,
                 tile->shared_bytes);
    sx_buf_print(text, "  rows %lld columns %lld sum %lld in blocks of %u x %u x %u by %s\n",
                 (long long)tile->rows, (long long)tile->columns, (long long)tile->sum,
                 tile->block_rows, tile->block_columns, tile->block_steps,
                 tile->matrix != NULL ? tile->matrix->name : "fma");
    if (tile->walkers != 0) {
        sx_buf_print(text, "  %u blocks walk over the grid\n", tile->walkers);
    }
    if (tile->raster != 0) {
        sx_buf_print(text, "  %u rows of blocks together\n", tile->raster);
    }
    if (tile->cluster_rows > 1 || tile->cluster_columns > 1) {
        sx_buf_print(text, "  clusters of %u blocks along the %s\n",
                     tile->cluster_rows > 1 ? tile->cluster_rows : tile->cluster_columns,
                     tile->cluster_rows > 1 ? "rows" : "columns");
    }
    if (tile->slice != 0) {
        sx_buf_print(text, "  slices of %lld\n", (long long)tile->slice);
    }
    for (uint32_t i = 0; i < sx_tile_operands(tile); i++) {
        print_operand(tile, i, text);
    }
    sx_buf_print(text, "  ring of %u stages from %u\n  sums ", tile->ring.depth, tile->ring.offset);
    sx_layout_print(&tile->held, text);
    for (uint32_t r = 0; r < tile->role_count; r++) {
        const sx_tile_role *role = &tile->role[r];
        sx_buf_print(text, "\n  role %s warps %u to %u:", role->name, role->first_warp,
                     role->first_warp + role->warps - 1);
        for (uint32_t i = 0; i < role->item_count; i++) {
            const sx_tile_item *item = &role->item[i];
            sx_buf_print(text, " %s", op_names[item->op]);
            if (item->op == SX_TILE_FETCH) {
                sx_buf_print(text, " %s", operand_names[item->operand]);
            } else if (item->op == SX_TILE_RELEASE || item->op == SX_TILE_SETTLE) {
                sx_buf_print(text, " %u", item->back);
            }
        }
    }
    sx_buf_print(text, "\n  map of %u items\n", tile->map.item_count);
    if (tile->store.depth > 0) {
        sx_buf_print(text, "  stores buffer %u from %u slots of each group at %u, ",
                     tile->store.view.buffer, tile->store.depth, tile->store.offset);
        print_boxes(&tile->store.boxes.map, text);
        sx_slot_print(&tile->store.slot, text);
        sx_buf_put_text(text, "\n");
    }
    return sx_buf_check(cx, text, "tile text");
}
