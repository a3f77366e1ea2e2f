/* tiles.h - contractions and tile programs for them, written by hand: what threads hold and what roles do stands here
 * as text, not as any lowering would find it. */
#ifndef SX_TESTS_CORE_JUDGE_TILES_H
#define SX_TESTS_CORE_JUDGE_TILES_H
#include "tests/core/judge/try.h"

#include <string.h>

#include "core/tile/program.h"

/* A contraction of batches of [m, k] or [k, m] by [k, n] or [n, k], with or without a bias and relu behind it. */
typedef struct {
    const char *what;
    sx_dtype dtype;
    int64_t batch, m, n, k;
    bool left_turned, right_turned, epilogue;
    /* By matrix instructions. */
    bool matrix;
    /* A role of a warp of its own loads. */
    bool loader;
    uint32_t depth;
} tile_case;

static const sx_matrix_instruction tile_mma = {.name = "mma.m16n8k16.bf16",
                                               .factor = SX_BF16,
                                               .sum = SX_F32,
                                               .rows = 16,
                                               .columns = 8,
                                               .steps = 16,
                                               .numerics = "test"};

/* Inputs: bias if there is one, left, right. */
SX_UNUSED static node tile_node(sx_ctx *cx, const tile_case *c)
{
    sx_type x[2] = {TYPE(c->dtype, c->batch, c->m, c->k), TYPE(c->dtype, c->batch, c->k, c->n)};
    if (c->left_turned) {
        x[0] = TYPE(c->dtype, c->batch, c->k, c->m);
    }
    if (c->right_turned) {
        x[1] = TYPE(c->dtype, c->batch, c->n, c->k);
    }
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {c->left_turned ? 1 : 2}};
    attr.rhs_contract = (sx_ints){1, {c->right_turned ? 2 : 1}};
    node n = lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    if (c->epilogue) {
        n = with_tensor(cx, SX_OP_ADD, &n, TYPE(c->dtype, c->n));
        n = unary(cx, SX_OP_RELU, &n);
    }
    return n;
}

SX_UNUSED static sx_layout tile_layout(sx_ctx *cx, const char *text)
{
    sx_layout layout;
    ck_sx_ok(cx, sx_layout_parse(cx, sx_span_of(text), &layout));
    return layout;
}

/* Copies side by side in lanes, then in warps, then one after the other; 0 where there are more threads than copies. */
SX_UNUSED static sx_layout tile_copied(uint32_t rows, uint32_t columns, uint32_t vector,
                                       uint32_t warp_bits)
{
    sx_layout layout = {
        .side_bits = {(uint8_t)__builtin_ctz(rows), (uint8_t)__builtin_ctz(columns)}};
    uint32_t place[SX_LAYOUT_BITS_MAX], places = 0, count = 0, threads = 5 + warp_bits;
    for (uint32_t c = 1; c < columns; c *= 2) {
        place[places++] = SX_AT(0, c);
    }
    for (uint32_t r = 1; r < rows; r *= 2) {
        place[places++] = SX_AT(r, 0);
    }
    uint32_t own = (uint32_t)__builtin_ctz(vector);
    memcpy(layout.column, place, own * sizeof(place[0]));
    count = own;
    for (uint32_t i = own + threads; i < places; i++) {
        layout.column[count++] = place[i];
    }
    layout.bits[SX_HOME_REGISTER] = (uint8_t)count;
    for (uint32_t i = 0; i < threads; i++) {
        layout.column[count++] = own + i < places ? place[own + i] : 0;
    }
    layout.bits[SX_HOME_LANE] = 5;
    layout.bits[SX_HOME_WARP] = (uint8_t)warp_bits;
    return layout;
}

SX_UNUSED static void tile_operand(sx_ctx *cx, const tile_case *c, uint32_t k, sx_tile *t)
{
    bool left = k == SX_TILE_LEFT;
    bool turned = left ? c->left_turned : c->right_turned;
    sx_tile_operand *o = &t->operand[k];
    int64_t side = left ? c->m : c->n;
    o->sum_inner = left ? !turned : turned;
    o->view = (sx_tile_view){.buffer = (c->epilogue ? 1U : 0U) + k,
                             .element = c->dtype,
                             .side_stride = o->sum_inner ? c->k : 1,
                             .sum_stride = o->sum_inner ? 1 : side,
                             .side_extent = side,
                             .sum_extent = c->k};
    o->view.batch_stride[0] = side * c->k;
    uint32_t element = (uint32_t)sx_dtype_bytes(c->dtype);
    uint32_t whole = left ? t->block_rows : t->block_columns;
    int64_t other = (o->sum_inner ? c->k : side) * element;
    o->copy_bytes = element;
    for (uint32_t bytes = 16; bytes >= 4 && o->copy_bytes == element; bytes /= 2) {
        o->copy_bytes = other % bytes == 0 ? bytes : element;
    }
    o->group = c->matrix ? 16 : left ? 4 : 1;
    const char *text = c->matrix ? (left ? "tile 32x16 reg c1 r8 c8 lane c2 c4 r1 r2 r4 warp r16"
                                         : "tile 16x16 reg r1 r8 c8 lane r2 r4 c1 c2 c4 warp 0")
                       : left    ? "tile 32x4 reg c1 c2 r1 r2 lane 0 0 0 r4 r8 warp r16"
                                 : "tile 1x32 reg c1 c2 lane c4 c8 c16 0 0 warp 0";
    o->held = tile_layout(cx, text);
    if (turned) { // of the rows and columns of the slot
        o->held = sx_layout_transpose(&o->held);
    }
    sx_slot slot;
    uint32_t rows = o->sum_inner ? whole : t->block_steps;
    uint32_t row = (o->sum_inner ? t->block_steps : whole) * element;
    o->copied = tile_copied(rows, row / element, o->copy_bytes / element, c->loader ? 0 : 1);
    ck_sx_ok(cx, sx_slot_make(cx, rows, row, row, row + 16, SX_SWIZZLE_NONE, &slot));
    ck_sx_ok(cx, sx_ring_add(cx, &t->ring, &slot, NULL));
}

/* The sum as an element of the result, and what follows it. */
SX_UNUSED static void tile_map(sx_ctx *cx, const tile_case *c, sx_tile *t)
{
    sx_kernel *scratch;
    sx_loop_builder b;
    uint32_t none = SX_NO_REG, bytes = (uint32_t)sx_dtype_bytes(c->dtype);
    sx_mem mem = sx_loop_mem(c->dtype, 4);
    ck_sx_ok(cx, sx_kernel_make(cx, "map", 32, 4, &scratch));
    sx_loop_begin_part(&b, cx, scratch, 1, 1, 1);
    uint32_t x = sx_loop_vector(&b);
    sx_loop_step close = sx_loop_close_step(c->dtype, 4);
    x = sx_loop_typed(&b, &close, x, none, none);
    if (c->epilogue) {
        sx_addr bias = {.buffer = 0, .index_reg = none};
        bias.coef[SX_TILE_VAR_COLUMN] = bytes;
        uint32_t y = sx_loop_access(&b, SX_LOP_LOADB, mem, &bias, none, 0, 0);
        y = sx_loop_decode(&b, c->dtype, y);
        sx_loop_step add = {.op = SX_OP_ADD, .from = c->dtype, .to = c->dtype};
        sx_loop_step relu = {.op = SX_OP_RELU, .from = c->dtype, .to = c->dtype};
        x = sx_loop_typed(&b, &add, x, y, none);
        x = sx_loop_typed(&b, &relu, x, none, none);
    }
    sx_addr out = {.buffer = c->epilogue ? 3 : 2, .index_reg = none};
    out.coef[SX_TILE_VAR_ROW] = bytes * c->n;
    out.coef[SX_TILE_VAR_COLUMN] = bytes;
    out.coef[SX_TILE_VAR_BATCH] = bytes * c->m * c->n;
    x = sx_loop_encode(&b, c->dtype, x);
    (void)sx_loop_access(&b, SX_LOP_STORE, mem, &out, x, 1, 0);
    ck_sx_ok(cx, sx_loop_end_part(&b));
    t->map = *b.part;
}

SX_UNUSED static void tile_roles(const tile_case *c, sx_tile *t)
{
    static const sx_tile_item load[] = {{.op = SX_TILE_LOOP},
                                        {.op = SX_TILE_ACQUIRE},
                                        {.op = SX_TILE_FETCH, .operand = SX_TILE_LEFT},
                                        {.op = SX_TILE_FETCH, .operand = SX_TILE_RIGHT},
                                        {.op = SX_TILE_PUBLISH},
                                        {.op = SX_TILE_END}};
    static const sx_tile_item compute[] = {{.op = SX_TILE_FILL},    {.op = SX_TILE_LOOP},
                                           {.op = SX_TILE_WAIT},    {.op = SX_TILE_MULTIPLY},
                                           {.op = SX_TILE_RELEASE}, {.op = SX_TILE_END},
                                           {.op = SX_TILE_MAP}};
    t->role_count = 2;
    t->role[0] = (sx_tile_role){.name = "load",
                                .first_warp = c->loader ? 2 : 0,
                                .warps = c->loader ? 1 : 2,
                                .item_count = SX_COUNT(load)};
    t->role[1] = (sx_tile_role){.name = "compute", .warps = 2, .item_count = SX_COUNT(compute)};
    memcpy(t->role[0].item, load, sizeof(load));
    memcpy(t->role[1].item, compute, sizeof(compute));
}

SX_UNUSED static sx_kernel *tile_kernel(sx_ctx *cx, const tile_case *c, const node *n)
{
    sx_kernel *kernel;
    sx_tile *t = SX_NEW(cx, sx_tile);
    ck_assert_ptr_nonnull(t);
    ck_sx_ok(cx, sx_kernel_make(cx, "tile", 32, 4, &kernel));
    for (uint32_t k = 0; k < n->count; k++) {
        (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, bytes_of(&n->input[k]));
    }
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, bytes_of(&n->result));
    t->threads = c->loader ? 96 : 64;
    t->rows = c->m;
    t->columns = c->n;
    t->sum = c->k;
    t->batch[0] = c->batch;
    t->batch_count = 1;
    t->block_rows = 32;
    t->block_columns = c->matrix ? 16 : 32;
    t->block_steps = c->matrix ? 32 : 8;
    t->matrix = c->matrix ? &tile_mma : NULL;
    t->held =
        tile_layout(cx, c->matrix ? "tile 32x16 reg c1 r8 c8 lane c2 c4 r1 r2 r4 warp r16"
                                  : "tile 32x32 reg c1 c2 r1 r2 lane c4 c8 c16 r4 r8 warp r16");
    t->ring = (sx_ring){.depth = c->depth, .full_arrivals = 1, .empty_arrivals = 1};
    tile_operand(cx, c, SX_TILE_LEFT, t);
    tile_operand(cx, c, SX_TILE_RIGHT, t);
    ck_sx_ok(cx, sx_smem_place(cx, &t->ring, 1, NULL, 0, NULL, &t->shared_bytes));
    tile_map(cx, c, t);
    tile_roles(c, t);
    kernel->part[kernel->part_count++] = (sx_part){
        .grid = {c->batch, sx_ceil_div_i64(c->m, 32), sx_ceil_div_i64(c->n, t->block_columns)},
        .tile = t,
        .var_count = 3};
    return kernel;
}
#endif
