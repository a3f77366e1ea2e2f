/* tile_copy.c - tiles of both factors from their matrices into the ring. */
#include "core/nvidia/tile_inside.h"

/* Elements of one copy. */
static uint32_t width_of(const sx_tile_operand *o)
{
    return o->copy_bytes / sx_dtype_bytes(o->view.element);
}

static bool side_has_edge(const sx_nvidia_block *k, uint32_t which)
{
    uint32_t block = which == SX_TILE_RIGHT ? k->tile->block_columns : k->tile->block_rows;
    return k->tile->operand[which].view.side_extent % block != 0;
}

static bool sum_has_edge(const sx_nvidia_block *k)
{
    return k->tile->sum % k->tile->block_steps != 0;
}

/* extent - first - own */
static sx_ptx_arg rest_of(sx_nvidia_block *k, int64_t extent, sx_ptx_arg own)
{
    sx_ptx_arg rest = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, SUB, SX_PTX_M(SX_PTX_TYPE_S32), rest, sx_ptx_imm(extent), own);
    return rest;
}

/* at += index * stride elements, of 32 bits without sign. */
static void add_scaled(sx_nvidia_block *k, sx_ptx_arg at, sx_ptx_arg index, int64_t bytes)
{
    if (bytes != 0) {
        SX_PTX_PUT(&k->l.b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S64), at,
                   sx_nvidia_widened(&k->l, index), sx_ptx_imm(bytes), at);
    }
}

void sx_nvidia_begin_copy(sx_nvidia_block *k, uint32_t which)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile_operand *o = &k->tile->operand[which];
    const sx_tile_view *v = &o->view;
    sx_nvidia_copy *c = &k->copy[which];
    int64_t bytes = sx_dtype_bytes(v->element);
    sx_nvidia_place(k, which, &o->copied, (uint32_t)bytes, SX_SIDE_ROW, 0, 1, &c->places);
    sx_ptx_arg side = sx_nvidia_side(k, &o->copied, o->sum_inner ? SX_SIDE_ROW : SX_SIDE_COLUMN);
    sx_ptx_arg sum = sx_nvidia_side(k, &o->copied, o->sum_inner ? SX_SIDE_COLUMN : SX_SIDE_ROW);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), side, side, k->first[which]);
    c->from = sx_ptx_register(b, SX_PTX_B64);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S64), c->from, k->l.buffer[v->buffer],
               sx_ptx_imm(v->offset * bytes));
    add_scaled(k, c->from, side, v->side_stride * bytes);
    add_scaled(k, c->from, sum, v->sum_stride * bytes);
    for (uint32_t d = 0; d < k->tile->batch_count; d++) {
        add_scaled(k, c->from, k->batch[d], v->batch_stride[d] * bytes);
    }
    if (side_has_edge(k, which)) {
        c->side_rest = rest_of(k, v->side_extent, side);
    }
    if (sum_has_edge(k)) {
        c->sum_rest = rest_of(k, v->sum_extent, sum);
    }
    uint32_t surplus = 0; /* bits of the thread's number that repeat what others copy */
    for (uint32_t i = 0; 1U << i < k->tile->threads; i++) {
        uint32_t first = sx_layout_first(&o->copied, SX_HOME_LANE);
        surplus |= o->copied.column[first + i] == 0 ? 1U << i : 0;
    }
    if (surplus != 0) {
        sx_ptx_arg repeats = sx_ptx_register(b, SX_PTX_B32);
        c->takes_part = sx_ptx_register(b, SX_PTX_PRED);
        SX_PTX_PUT(b, AND, SX_PTX_M(SX_PTX_TYPE_B32), repeats, k->thread, sx_ptx_imm(surplus));
        SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_EQ, SX_PTX_TYPE_U32), c->takes_part, repeats,
                   sx_ptx_imm(0));
    }
}

void sx_nvidia_begin_copies(sx_nvidia_block *k)
{
    for (uint32_t which = 0; which < sx_tile_operands(k->tile); which++) {
        sx_nvidia_begin_copy(k, which);
    }
}

/* ---- one copy ---- */
/* How many bytes of the copy lie in the matrix, as a register; NONE: all. `outer` and `inner` are the elements that are
 * left of the matrix across and along the copy, NONE where none can be missing. */
static sx_ptx_arg bytes_of(sx_nvidia_block *k, const sx_tile_operand *o, sx_ptx_arg outer,
                           sx_ptx_arg inner, uint32_t across, uint32_t along)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg size = {0};
    int64_t element = sx_dtype_bytes(o->view.element);
    if (inner.kind != SX_PTX_ARG_NONE) {
        size = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, SUB, SX_PTX_M(SX_PTX_TYPE_S32), size, inner, sx_ptx_imm(along));
        SX_PTX_PUT(b, MAX, SX_PTX_M(SX_PTX_TYPE_S32), size, size, sx_ptx_imm(0));
        SX_PTX_PUT(b, MIN, SX_PTX_M(SX_PTX_TYPE_S32), size, size, sx_ptx_imm(width_of(o)));
        SX_PTX_PUT(b, MUL, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S32), size, size,
                   sx_ptx_imm(element));
    }
    if (outer.kind != SX_PTX_ARG_NONE) {
        sx_ptx_arg inside = sx_ptx_register(b, SX_PTX_PRED);
        sx_ptx_arg whole = size.kind != SX_PTX_ARG_NONE ? size : sx_ptx_imm(o->copy_bytes);
        size = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_GT, SX_PTX_TYPE_S32), inside, outer,
                   sx_ptx_imm(across));
        SX_PTX_PUT(b, SELP, SX_PTX_M(SX_PTX_TYPE_B32), size, whole, sx_ptx_imm(0), inside);
    }
    return size;
}

static void guard_copy(sx_nvidia_block *k, const sx_nvidia_copy *c)
{
    if (c->takes_part.kind != SX_PTX_ARG_NONE) {
        sx_ptx_guard(&k->l.b, c->takes_part);
    }
}

/* An element that is too narrow to be copied by itself. */
static void copy_by_register(sx_nvidia_block *k, const sx_nvidia_copy *c, uint32_t bytes,
                             sx_ptx_arg to, sx_ptx_arg from, sx_ptx_arg size)
{
    sx_ptx_builder *b = &k->l.b;
    uint16_t type = bytes == 2 ? SX_PTX_TYPE_U16 : SX_PTX_TYPE_U8;
    sx_ptx_arg held = sx_ptx_register(b, SX_PTX_B32);
    sx_ptx_arg takes = c->takes_part;
    if (size.kind != SX_PTX_ARG_NONE) {
        sx_ptx_arg inside = sx_ptx_register(b, SX_PTX_PRED);
        SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_GT, SX_PTX_TYPE_S32), inside, size,
                   sx_ptx_imm(0));
        if (takes.kind != SX_PTX_ARG_NONE) {
            SX_PTX_PUT(b, AND, SX_PTX_M(SX_PTX_TYPE_PRED), inside, inside, takes);
        }
        takes = inside;
    }
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), held, sx_ptx_imm(0));
    if (takes.kind != SX_PTX_ARG_NONE) {
        sx_ptx_guard(b, takes);
    }
    SX_PTX_PUT(b, LD, SX_PTX_M(SX_PTX_SPACE_GLOBAL, type), held, from);
    guard_copy(k, c);
    SX_PTX_PUT(b, ST, SX_PTX_M(SX_PTX_SPACE_SHARED, type), to, held);
}

static void put_copy(sx_nvidia_block *k, uint32_t which, uint32_t at, bool whole)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile_operand *o = &k->tile->operand[which];
    sx_nvidia_copy *c = &k->copy[which];
    uint32_t row = sx_at_row(at), column = sx_at_column(at);
    uint32_t side = o->sum_inner ? row : column, sum = o->sum_inner ? column : row;
    int64_t offset = ((int64_t)side * o->view.side_stride + (int64_t)sum * o->view.sum_stride) *
                     sx_dtype_bytes(o->view.element);
    sx_ptx_arg sum_rest = whole ? (sx_ptx_arg){0} : c->sum_rest;
    sx_ptx_arg size = bytes_of(k, o, o->sum_inner ? c->side_rest : sum_rest,
                               o->sum_inner ? sum_rest : c->side_rest, row, column);
    sx_ptx_arg to = sx_nvidia_element(&c->places, row, column);
    sx_ptx_arg from = c->from;
    if (offset > INT32_MAX) {
        from = sx_ptx_register(b, SX_PTX_B64);
        SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S64), from, c->from, sx_ptx_imm(offset));
        offset = 0;
    }
    from = sx_ptx_at(from, offset);
    if (o->copy_bytes < 4) {
        copy_by_register(k, c, o->copy_bytes, to, from, size);
        return;
    }
    sx_ptx_modifiers m =
        SX_PTX_M(o->copy_bytes == 16 ? SX_PTX_CACHE_CG : SX_PTX_CACHE_CA, SX_PTX_SPACE_SHARED);
    guard_copy(k, c);
    if (size.kind != SX_PTX_ARG_NONE) {
        SX_PTX_PUT(b, CP_ASYNC, m, to, from, sx_ptx_imm(o->copy_bytes), size);
    } else {
        SX_PTX_PUT(b, CP_ASYNC, m, to, from, sx_ptx_imm(o->copy_bytes));
    }
}

void sx_nvidia_fetch_one(sx_nvidia_block *k, uint32_t which, sx_ptx_arg stage, bool whole)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile_operand *o = &k->tile->operand[which];
    sx_nvidia_copy *c = &k->copy[which];
    sx_nvidia_move(k, &c->places, stage);
    uint32_t count = sx_layout_count(&o->copied, SX_HOME_REGISTER);
    for (uint32_t r = 0; r < count; r += width_of(o)) {
        put_copy(k, which, sx_layout_apply(&o->copied, &(sx_place){{r}}), whole);
    }
    int64_t stride = o->view.sum_stride * sx_dtype_bytes(o->view.element);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S64), c->from, c->from,
               sx_ptx_imm(stride * k->tile->block_steps));
    if (c->sum_rest.kind != SX_PTX_ARG_NONE) {
        SX_PTX_PUT(b, SUB, SX_PTX_M(SX_PTX_TYPE_S32), c->sum_rest, c->sum_rest,
                   sx_ptx_imm(k->tile->block_steps));
    }
}

void sx_nvidia_fetch(sx_nvidia_block *k, bool whole)
{
    for (uint32_t which = 0; which < sx_tile_operands(k->tile); which++) {
        sx_nvidia_fetch_one(k, which, k->written, whole);
    }
}
