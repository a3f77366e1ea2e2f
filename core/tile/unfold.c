#include "core/tile/unfold.h"

#include "core/tile/online.h"

#define NONE SX_NO_REG

typedef struct {
    sx_ctx *cx;
    const sx_tile *tile;
    sx_loop_builder b;
} unfolding;

static sx_code check_extent(sx_ctx *cx, const char *what, int64_t extent)
{
    return extent >= 1 && extent <= SX_EXTENT_MAX
               ? SX_OK
               : SX_FAIL(cx, SX_INPUT, "tile: %lld %s", (long long)extent, what);
}

/* Elements of the views as lanes of the kernel, both floats or both integers. */
static sx_code check_elements(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    sx_dtype_class of[2];
    for (uint32_t k = 0; k < 2; k++) {
        const sx_tile_view *view = &tile->operand[k].view;
        if (view->buffer >= kernel->buffer_count || view->element >= SX_DTYPE_COUNT) {
            return SX_FAIL(cx, SX_INPUT, "tile: argument %u is buffer %u of %u", k, view->buffer,
                           kernel->buffer_count);
        }
        of[k] = sx_dtype_class_of(view->element);
        sx_mem mem = sx_loop_mem(view->element, kernel->lane_bytes);
        if (sx_mem_bytes(mem, kernel->lane_bytes) != sx_dtype_bytes(view->element)) {
            return SX_FAIL(cx, SX_INPUT, "tile: elements %s in lanes of %u bytes",
                           sx_dtype_name(view->element), kernel->lane_bytes);
        }
    }
    if (of[0] != of[1] || of[0] == SX_CLASS_BOOL) {
        return SX_FAIL(cx, SX_INPUT, "tile: products of %s and %s",
                       sx_dtype_name(tile->operand[0].view.element),
                       sx_dtype_name(tile->operand[1].view.element));
    }
    return SX_OK;
}

static sx_code check_tile(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    SX_TRY(check_extent(cx, "rows", tile->rows));
    SX_TRY(check_extent(cx, "columns", tile->columns));
    SX_TRY(check_extent(cx, "steps of k", tile->sum));
    _Static_assert(SX_TILE_VAR_BATCH + SX_RANK_MAX < SX_LOOP_VARS_MAX, "a loop over k is left");
    if (tile->batch_count > SX_RANK_MAX) {
        return SX_FAIL(cx, SX_INPUT, "tile: %u dimensions of the batch", tile->batch_count);
    }
    for (uint32_t k = 0; k < tile->batch_count; k++) {
        SX_TRY(check_extent(cx, "matrices", tile->batch[k]));
    }
    if (tile->map.vector_count == 0) {
        return SX_FAIL(cx, SX_INPUT, "tile: no register holds the sum");
    }
    if (tile->online != NULL) {
        SX_TRY(check_extent(cx, "queries", tile->online->query->rows));
    }
    return check_elements(cx, kernel, tile);
}

/* The element of an operand at the row or column, the step of k and the batch, as a lane's value. */
static uint32_t load_factor(unfolding *u, uint32_t operand, uint32_t step)
{
    const sx_tile_view *view = &u->tile->operand[operand].view;
    int64_t bytes = sx_dtype_bytes(view->element);
    sx_addr a = {.buffer = view->buffer, .index_reg = NONE};
    uint32_t side = operand == SX_TILE_LEFT ? SX_TILE_VAR_ROW : SX_TILE_VAR_COLUMN;
    bool ok = sx_mul_i64(view->offset, bytes, &a.offset) &&
              sx_mul_i64(view->side_stride, bytes, &a.coef[side]) &&
              sx_mul_i64(view->sum_stride, bytes, &a.coef[step]);
    for (uint32_t k = 0; k < u->tile->batch_count; k++) {
        ok = ok && sx_mul_i64(view->batch_stride[k], bytes, &a.coef[SX_TILE_VAR_BATCH + k]);
    }
    if (!ok && u->b.code == SX_OK) {
        u->b.code = SX_FAIL(u->cx, SX_LIMIT, "tile: strides of argument %u overflow", operand);
    }
    sx_mem mem = sx_loop_mem(view->element, u->b.kernel->lane_bytes);
    uint32_t raw = sx_loop_access(&u->b, SX_LOP_LOADB, mem, &a, NONE, 0, 0);
    return sx_loop_decode(&u->b, view->element, raw);
}

/* Adds the products of all steps of k to register 0, which is 0. */
static void add_products(unfolding *u)
{
    sx_loop_builder *b = &u->b;
    sx_dtype element = u->tile->operand[SX_TILE_LEFT].view.element;
    (void)sx_loop_op(b, SX_LOP_SET, 0, NULL, NONE, NONE, NONE, 0, 0);
    uint32_t step = sx_loop_open(b, u->tile->sum);
    uint32_t left = load_factor(u, SX_TILE_LEFT, step);
    uint32_t right = load_factor(u, SX_TILE_RIGHT, step);
    if (sx_dtype_class_of(element) == SX_CLASS_FLOAT) {
        (void)sx_loop_op(b, SX_LOP_FMA, 0, NULL, left, right, 0, 0, 0);
    } else {
        sx_loop_step product = {.op = SX_OP_MULTIPLY, .from = SX_I64, .to = SX_I64};
        uint32_t x = element == SX_I64
                         ? sx_loop_typed(b, &product, left, right, NONE)
                         : sx_loop_op(b, SX_LOP_IMUL, NONE, NULL, left, right, NONE, 0, 0);
        (void)sx_loop_op(b, SX_LOP_IADD, 0, NULL, 0, x, NONE, 0, 0);
    }
    sx_loop_close(b);
}

/* The instructions of `map`: its variables are those of the loops that are open. */
static sx_code append_map(unfolding *u)
{
    const sx_part *map = &u->tile->map;
    sx_loop_builder *b = &u->b;
    for (uint32_t i = 0; i < map->item_count && b->code == SX_OK; i++) {
        const sx_item *item = &map->item[i];
        if (item->kind != SX_ITEM_OP || item->op >= SX_LOP_COUNT) {
            return SX_FAIL(u->cx, SX_INPUT, "tile: item %u of the map is no instruction", i);
        }
        bool memory = sx_lop_info_of(item->op)->operands[0] == 'A';
        if (memory && item->addr >= map->addr_count) {
            return SX_FAIL(u->cx, SX_INPUT, "tile: item %u of the map has address %u of %u", i,
                           item->addr, map->addr_count);
        }
        const sx_addr *address = memory ? &map->addr[item->addr] : NULL;
        (void)sx_loop_op(b, item->op, item->dst, address, item->src[0], item->src[1], item->src[2],
                         item->imm, item->imm2);
        if (b->code == SX_OK) {
            b->part->item[b->part->item_count - 1].mem = item->mem;
        }
    }
    return b->code;
}

static sx_code unfold_part(sx_ctx *cx, const sx_tile *tile, sx_kernel *kernel)
{
    unfolding u = {.cx = cx, .tile = tile};
    sx_loop_begin_part(&u.b, cx, kernel, 1, 1, 1);
    SX_TRY(u.b.code);
    u.b.part->vector_count = tile->map.vector_count;
    u.b.part->mask_count = tile->map.mask_count;
    u.b.part->scalar_count = tile->map.scalar_count;
    uint32_t row = sx_loop_open(&u.b, tile->rows);
    uint32_t column = sx_loop_open(&u.b, tile->columns);
    SX_ASSERT(u.b.code != SX_OK || (row == SX_TILE_VAR_ROW && column == SX_TILE_VAR_COLUMN));
    for (uint32_t k = 0; k < tile->batch_count; k++) {
        (void)sx_loop_open(&u.b, tile->batch[k]);
    }
    add_products(&u);
    SX_TRY(append_map(&u));
    for (uint32_t k = 0; k < 2 + tile->batch_count; k++) {
        sx_loop_close(&u.b);
    }
    return sx_loop_end_part(&u.b);
}

sx_code sx_tile_unfold(sx_ctx *cx, const sx_kernel *kernel, sx_kernel **unfolded)
{
    sx_kernel *out;
    SX_ASSERT(kernel->part_count <= SX_PARTS_MAX && kernel->buffer_count <= SX_LOOP_BUFFERS_MAX);
    SX_TRY(sx_kernel_make(cx, kernel->name, kernel->lanes, kernel->lane_bytes, &out));
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        (void)sx_kernel_add_buffer(out, kernel->buffer[k].role, kernel->buffer[k].size);
    }
    out->numerics = kernel->numerics;
    out->flops = kernel->flops;
    out->bytes = kernel->bytes;
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const sx_tile *tile = kernel->part[p].tile;
        if (tile == NULL) {
            out->part[out->part_count++] = kernel->part[p];
            continue;
        }
        SX_TRY(check_tile(cx, kernel, tile));
        SX_TRY(tile->online != NULL ? sx_tile_unfold_online(cx, tile, out)
                                    : unfold_part(cx, tile, out));
    }
    SX_ASSERT(out->part_count >= kernel->part_count);
    *unfolded = out;
    return SX_OK;
}
