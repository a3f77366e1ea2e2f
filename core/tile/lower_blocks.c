/* lower_blocks.c - parts of programs of blocks that do not depend on what is computed. */
#include <string.h>

#include "core/tile/lower_inside.h"
#include "core/tile/online.h"

void sx_tile_add_buffers(sx_lower *l, const sx_analysis *a)
{
    for (uint32_t k = 0; k < a->input_count; k++) {
        const sx_type *type = &a->input[k];
        l->arg_dtype[k] = type->dtype;
        l->arg_buffer[k] = sx_kernel_add_buffer(
            l->kernel, SX_BUFFER_IN, sx_tensor_elements(type) * sx_dtype_bytes(type->dtype));
    }
    l->out_dtype = a->result.dtype;
    l->out_buffer = sx_kernel_add_buffer(
        l->kernel, SX_BUFFER_OUT, sx_tensor_elements(&a->result) * sx_dtype_bytes(a->result.dtype));
    if (a->statistic != NULL) {
        (void)sx_kernel_add_buffer(l->kernel, SX_BUFFER_OUT,
                                   sx_tensor_elements(&a->statistic_result) *
                                       sx_dtype_bytes(a->statistic_result.dtype));
    }
    l->kernel->flops = a->flops;
    l->kernel->bytes = a->bytes;
}

/* ---- copies ---- */
uint32_t sx_tile_copy_bytes(const sx_tile *tile, const sx_tile_operand *o)
{
    const sx_tile_view *v = &o->view;
    uint32_t element = sx_dtype_bytes(v->element);
    int64_t inner = o->sum_inner ? v->sum_stride : v->side_stride;
    int64_t outer = o->sum_inner ? v->side_stride : v->sum_stride;
    for (uint32_t bytes = SX_TILE_COPY_BYTES_MAX; bytes >= 4 && bytes > element; bytes /= 2) {
        int64_t unit = bytes / element;
        bool fits = inner == 1 && outer % unit == 0 && v->offset % unit == 0;
        for (uint32_t d = 0; d < tile->batch_count; d++) {
            fits = fits && v->batch_stride[d] % unit == 0;
        }
        if (fits) {
            return bytes;
        }
    }
    return element;
}

/* Columns of a layout are added in the order of its homes. */
static void put(sx_layout *layout, sx_home home, uint32_t at)
{
    uint32_t n = sx_layout_input_bits(layout);
    SX_ASSERT(n < SX_LAYOUT_BITS_MAX);
    layout->column[n] = at;
    layout->bits[home]++;
}

sx_code sx_tile_copy_by_threads(sx_ctx *cx, uint32_t warps, sx_tile_operand *o, int64_t rows,
                                int64_t width)
{
    int64_t vector = o->copy_bytes / sx_dtype_bytes(o->view.element);
    uint32_t column[SX_LAYOUT_BITS_MAX];
    uint32_t count = 0, threads = 5 + sx_tile_log2(warps);
    for (int64_t x = vector; x < width; x *= 2) {
        column[count++] = SX_AT(0, x);
    }
    for (int64_t x = 1; x < rows; x *= 2) {
        column[count++] = SX_AT(x, 0);
    }
    sx_layout *c = &o->copied;
    *c = (sx_layout){.side_bits = {(uint8_t)sx_tile_log2(rows), (uint8_t)sx_tile_log2(width)}};
    for (int64_t x = 1; x < vector; x *= 2) {
        put(c, SX_HOME_REGISTER, SX_AT(0, x));
    }
    for (uint32_t i = threads; i < count; i++) {
        put(c, SX_HOME_REGISTER, column[i]);
    }
    for (uint32_t i = 0; i < threads; i++) {
        put(c, i < 5 ? SX_HOME_LANE : SX_HOME_WARP, i < count ? column[i] : 0);
    }
    return sx_layout_check(cx, c);
}

/* ---- roles ---- */
void sx_tile_put_role(sx_tile *tile, const char *name, uint32_t first_warp, uint32_t warps,
                      const sx_tile_item *item, uint32_t count)
{
    SX_ASSERT(tile->role_count < SX_COUNT(tile->role) && count <= SX_TILE_ITEMS_MAX);
    sx_tile_role *role = &tile->role[tile->role_count++];
    *role =
        (sx_tile_role){.name = name, .first_warp = first_warp, .warps = warps, .item_count = count};
    memcpy(role->item, item, count * sizeof(*item));
}

uint32_t sx_tile_operands(const sx_tile *tile)
{
    return tile->online != NULL && tile->online->second != NULL ? 3 : 2;
}

void sx_tile_put_load(sx_tile *tile, uint32_t first_warp, uint32_t warps)
{
    static const sx_tile_item load[] = {{SX_TILE_LOOP, 0, 0},
                                        {SX_TILE_ACQUIRE, 0, 0},
                                        {SX_TILE_FETCH, SX_TILE_LEFT, 0},
                                        {SX_TILE_FETCH, SX_TILE_RIGHT, 0},
                                        {SX_TILE_PUBLISH, 0, 0},
                                        {SX_TILE_END, 0, 0}};
    static const sx_tile_item load_three[] = {{SX_TILE_LOOP, 0, 0},
                                              {SX_TILE_ACQUIRE, 0, 0},
                                              {SX_TILE_FETCH, SX_TILE_LEFT, 0},
                                              {SX_TILE_FETCH, SX_TILE_RIGHT, 0},
                                              {SX_TILE_FETCH, SX_TILE_SECOND, 0},
                                              {SX_TILE_PUBLISH, 0, 0},
                                              {SX_TILE_END, 0, 0}};
    bool three = sx_tile_operands(tile) == 3;
    sx_tile_put_role(tile, "load", first_warp, warps, three ? load_three : load,
                     three ? SX_COUNT(load_three) : SX_COUNT(load));
}

void sx_tile_make_roles(sx_tile *tile)
{
    static const sx_tile_item math[] = {{SX_TILE_FILL, 0, 0},     {SX_TILE_LOOP, 0, 0},
                                        {SX_TILE_WAIT, 0, 0},     {SX_TILE_RELEASE, 0, 1},
                                        {SX_TILE_MULTIPLY, 0, 0}, {SX_TILE_END, 0, 0},
                                        {SX_TILE_RELEASE, 0, 0},  {SX_TILE_MAP, 0, 0}};
    uint32_t warps = tile->threads / 32;
    sx_tile_put_load(tile, 0, warps);
    sx_tile_put_role(tile, "math", 0, warps, math, SX_COUNT(math));
}
