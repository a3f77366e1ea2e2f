/* loop.c - programs of the loop IR as PTX: control and addresses; instructions are in loop_ops.c.
 *
 * Addresses that differ only by a constant share a pointer. A loop over a variable that a pointer depends on has
 * a pointer of its own, which its end advances: no product is left in a loop. */
#include "core/nvidia/loop.h"

#include <stdio.h>
#include <string.h>

#include "core/nvidia/loop_inside.h"

#define SHARED_ALIGN 16
#define BLOCKS_MAX 65535 /* of a grid, along all dimensions but the first */

/* ---- pointers ---- */
/* Bytes from a lane to the next. */
static int64_t lane_step(const sx_nvidia_lowering *l, const sx_item *item)
{
    switch (item->op) {
    case SX_LOP_LOAD:
    case SX_LOP_STORE: return sx_mem_bytes(item->mem, l->kernel->lane_bytes);
    case SX_LOP_LOADS:
    case SX_LOP_STORES: return item->imm2;
    default: return 0;
    }
}

static bool same_pointer(const sx_nvidia_pointer *a, const sx_nvidia_pointer *b)
{
    return a->buffer == b->buffer && a->step == b->step &&
           memcmp(a->coef, b->coef, sizeof(a->coef)) == 0;
}

static bool has_address(const sx_item *item)
{
    return item->kind == SX_ITEM_OP && item->op != SX_LOP_PREFETCH &&
           sx_lop_info_of(item->op)->operands[0] == 'A';
}

/* Which pointer each item uses; pointers as many as there are different ones. */
sx_code sx_nvidia_find_pointers(sx_nvidia_lowering *l)
{
    const sx_part *part = l->part;
    l->pointer = SX_NEW_ARRAY(l->cx, sx_nvidia_pointer, part->addr_count + 1);
    l->pointer_of = SX_NEW_ARRAY(l->cx, uint32_t, part->item_count + 1);
    if (l->pointer == NULL || l->pointer_of == NULL) {
        return l->cx->error.code;
    }
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        if (!has_address(item)) {
            continue;
        }
        const sx_addr *addr = &part->addr[item->addr];
        sx_nvidia_pointer made = {.buffer = addr->buffer, .step = lane_step(l, item)};
        memcpy(made.coef, addr->coef, sizeof(made.coef));
        uint32_t p = 0;
        while (p < l->pointer_count && !same_pointer(&l->pointer[p], &made)) {
            p++;
        }
        SX_ASSERT(p <= part->addr_count);
        if (p == l->pointer_count) {
            l->pointer[l->pointer_count++] = made;
        }
        l->pointer_of[i] = p;
    }
    return SX_OK;
}

/* d += value */
static void advance(sx_nvidia_lowering *l, sx_ptx_arg d, int64_t value)
{
    SX_PTX_PUT(&l->b, ADD, SX_PTX_M(SX_PTX_TYPE_S64), d, d, sx_ptx_imm(value));
}

/* Where the pointers stand at this point of the grid, with all loops at 0. */
static void start_pointers(sx_nvidia_lowering *l)
{
    for (uint32_t p = 0; p < l->pointer_count; p++) {
        sx_nvidia_pointer *pointer = &l->pointer[p];
        pointer->at = sx_ptx_register(&l->b, SX_PTX_B64);
        SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B64), pointer->at, l->buffer[pointer->buffer]);
        for (uint32_t v = 0; v < 3; v++) {
            if (pointer->coef[v] != 0 && l->part->grid[v] > 1) {
                SX_PTX_PUT(&l->b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S64), pointer->at,
                           l->variable[v], sx_ptx_imm(pointer->coef[v]), pointer->at);
            }
        }
        if (pointer->step != 0) {
            SX_PTX_PUT(&l->b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S64), pointer->at,
                       l->lane_wide, sx_ptx_imm(pointer->step), pointer->at);
        }
    }
}

sx_ptx_arg sx_nvidia_address(sx_nvidia_lowering *l, uint32_t index)
{
    const sx_item *item = &l->part->item[index];
    const sx_addr *addr = &l->part->addr[item->addr];
    sx_ptx_arg at = l->pointer[l->pointer_of[index]].at;
    int64_t offset = addr->offset;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        offset += addr->coef[v] * l->shift[v];
    }
    bool far = offset > INT32_MAX || offset < INT32_MIN;
    if (addr->index_reg != SX_NO_REG || far) {
        sx_ptx_arg sum = sx_ptx_register(&l->b, SX_PTX_B64);
        sx_ptx_arg more =
            addr->index_reg != SX_NO_REG ? l->scalar[addr->index_reg] : sx_ptx_imm(offset);
        SX_PTX_PUT(&l->b, ADD, SX_PTX_M(SX_PTX_TYPE_S64), sum, at, more);
        if (addr->index_reg != SX_NO_REG && far) {
            advance(l, sum, offset);
        }
        at = sum;
    }
    return sx_ptx_at(at, far ? 0 : offset);
}

/* ---- loops ---- */
/* Does an item of the loop's body use this pointer? */
static bool used_within(const sx_nvidia_lowering *l, uint32_t first, uint32_t pointer)
{
    uint32_t depth = 1;
    for (uint32_t i = first + 1; depth > 0; i++) {
        const sx_item *item = &l->part->item[i];
        depth += item->kind == SX_ITEM_LOOP;
        depth -= item->kind == SX_ITEM_END;
        if (has_address(item) && l->pointer_of[i] == pointer) {
            return true;
        }
    }
    return false;
}

/* All threads of the block are here, and see what the others wrote. */
static void put_block_barrier(sx_nvidia_lowering *l)
{
    SX_PTX_PUT(&l->b, BAR_SYNC, SX_PTX_M(0), sx_ptx_imm(0));
}

/* Each warp has the iteration of its number, if there is one. */
static void open_warps(sx_nvidia_lowering *l, uint32_t index, sx_nvidia_open *open)
{
    const sx_item *item = &l->part->item[index];
    sx_ptx_arg wide = sx_nvidia_widened(l, l->warp);
    SX_ASSERT(item->trip <= l->part->warps);
    l->variable[item->dst] = l->warp;
    put_block_barrier(l);
    for (uint32_t p = 0; p < l->pointer_count; p++) {
        sx_nvidia_pointer *pointer = &l->pointer[p];
        open->outer[p] = pointer->at;
        if (pointer->coef[item->dst] != 0 && used_within(l, index, p)) {
            pointer->at = sx_ptx_register(&l->b, SX_PTX_B64);
            SX_PTX_PUT(&l->b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S64), pointer->at, wide,
                       sx_ptx_imm(pointer->coef[item->dst]), open->outer[p]);
        }
    }
    if (item->trip < l->part->warps) {
        sx_ptx_arg none = sx_ptx_register(&l->b, SX_PTX_PRED);
        SX_PTX_PUT(&l->b, SETP, SX_PTX_M(SX_PTX_COMPARE_GE, SX_PTX_TYPE_U32), none, l->warp,
                   sx_ptx_imm(item->trip));
        sx_ptx_guard(&l->b, none);
        SX_PTX_PUT(&l->b, BRA, SX_PTX_M(0), open->label);
    }
}

static void close_warps(sx_nvidia_lowering *l, const sx_nvidia_open *open)
{
    for (uint32_t p = 0; p < l->pointer_count; p++) {
        l->pointer[p].at = open->outer[p];
    }
    sx_ptx_place(&l->b, open->label);
    put_block_barrier(l);
}

static sx_code open_loop(sx_nvidia_lowering *l, uint32_t index)
{
    const sx_item *item = &l->part->item[index];
    SX_ASSERT(item->dst >= 3 && item->dst < SX_LOOP_VARS_MAX);
    sx_nvidia_open *open = &l->open[l->open_count++];
    *open = (sx_nvidia_open){.item = index, .label = sx_ptx_label(&l->b)};
    open->outer = SX_NEW_ARRAY(l->cx, sx_ptx_arg, l->pointer_count + 1);
    if (open->outer == NULL) {
        return l->cx->error.code;
    }
    if (item->warps) {
        open_warps(l, index, open);
        return l->b.code;
    }
    l->variable[item->dst] = sx_ptx_register(&l->b, SX_PTX_B32);
    SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), l->variable[item->dst], sx_ptx_imm(0));
    for (uint32_t p = 0; p < l->pointer_count; p++) {
        sx_nvidia_pointer *pointer = &l->pointer[p];
        open->outer[p] = pointer->at;
        if (pointer->coef[item->dst] != 0 && used_within(l, index, p)) {
            pointer->at = sx_ptx_register(&l->b, SX_PTX_B64);
            SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B64), pointer->at, open->outer[p]);
        }
    }
    sx_ptx_place(&l->b, open->label);
    return l->b.code;
}

static void close_loop(sx_nvidia_lowering *l)
{
    SX_ASSERT(l->open_count > 0);
    const sx_nvidia_open *open = &l->open[--l->open_count];
    const sx_item *item = &l->part->item[open->item];
    if (item->warps) {
        close_warps(l, open);
        return;
    }
    for (uint32_t p = 0; p < l->pointer_count; p++) {
        sx_nvidia_pointer *pointer = &l->pointer[p];
        if (pointer->at.id != open->outer[p].id) {
            advance(l, pointer->at, pointer->coef[item->dst]);
        }
        pointer->at = open->outer[p];
    }
    sx_ptx_arg counter = l->variable[item->dst];
    sx_ptx_arg more = sx_ptx_register(&l->b, SX_PTX_PRED);
    SX_PTX_PUT(&l->b, ADD, SX_PTX_M(SX_PTX_TYPE_S32), counter, counter, sx_ptx_imm(1));
    SX_PTX_PUT(&l->b, SETP, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_TYPE_S32), more, counter,
               sx_ptx_imm(item->trip));
    sx_ptx_guard(&l->b, more);
    SX_PTX_PUT(&l->b, BRA, SX_PTX_M(0), open->label);
}

/* ---- entries ---- */
void sx_nvidia_read_buffers(sx_nvidia_lowering *l)
{
    for (uint32_t k = 0; k < l->kernel->buffer_count; k++) {
        if (l->in_shared[k]) {
            continue;
        }
        char name[32];
        (void)snprintf(name, sizeof(name), "buffer_%u", k);
        sx_ptx_arg parameter = sx_ptx_parameter(&l->b, name, SX_PTX_TYPE_U64);
        l->buffer[k] = sx_ptx_register(&l->b, SX_PTX_B64);
        SX_PTX_PUT(&l->b, LD, SX_PTX_M(SX_PTX_SPACE_PARAM, SX_PTX_TYPE_U64), l->buffer[k],
                   sx_ptx_at(parameter, 0));
        SX_PTX_PUT(&l->b, CVTA, SX_PTX_M(SX_PTX_TO_TO, SX_PTX_SPACE_GLOBAL), l->buffer[k],
                   l->buffer[k]);
    }
}

/* The points that the launch runs. */
static void read_points(sx_nvidia_lowering *l, sx_ptx_arg *first, sx_ptx_arg *count)
{
    sx_ptx_arg *const number[] = {first, count};
    for (uint32_t i = 0; i < 2; i++) {
        sx_ptx_arg parameter = sx_ptx_parameter(&l->b, i == 0 ? "first" : "count", SX_PTX_TYPE_U32);
        *number[i] = sx_ptx_register(&l->b, SX_PTX_B32);
        SX_PTX_PUT(&l->b, LD, SX_PTX_M(SX_PTX_SPACE_PARAM, SX_PTX_TYPE_U32), *number[i],
                   sx_ptx_at(parameter, 0));
    }
}

sx_ptx_arg sx_nvidia_special(sx_nvidia_lowering *l, sx_ptx_special which)
{
    sx_ptx_arg d = sx_ptx_register(&l->b, SX_PTX_B32);
    SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_U32), d, sx_ptx_special_register(which));
    return d;
}

sx_ptx_arg sx_nvidia_widened(sx_nvidia_lowering *l, sx_ptx_arg x)
{
    sx_ptx_arg d = sx_ptx_register(&l->b, SX_PTX_B64);
    SX_PTX_PUT(&l->b, CVT, SX_PTX_M(SX_PTX_TYPE_U64, SX_PTX_TYPE_U32), d, x);
    return d;
}

/* The indices of a point, the last one fastest. */
static void split_point(sx_nvidia_lowering *l, sx_ptx_arg point)
{
    for (uint32_t v = 3; v-- > 0;) {
        sx_ptx_arg index = point;
        if (v > 0 && l->part->grid[v] > 1) {
            sx_ptx_arg extent = sx_ptx_imm(l->part->grid[v]);
            sx_ptx_arg rest = sx_ptx_register(&l->b, SX_PTX_B32);
            index = sx_ptx_register(&l->b, SX_PTX_B32);
            SX_PTX_PUT(&l->b, REM, SX_PTX_M(SX_PTX_TYPE_U32), index, point, extent);
            SX_PTX_PUT(&l->b, DIV, SX_PTX_M(SX_PTX_TYPE_U32), rest, point, extent);
            point = rest;
        } else if (v > 0) {
            index = sx_ptx_register(&l->b, SX_PTX_B32);
            SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), index, sx_ptx_imm(0));
        }
        l->variable[v] = sx_nvidia_widened(l, index);
    }
}

static sx_code lower_items(sx_nvidia_lowering *l)
{
    for (uint32_t i = 0; i < l->part->item_count && l->b.code == SX_OK; i++) {
        switch (l->part->item[i].kind) {
        case SX_ITEM_LOOP: SX_TRY(open_loop(l, i)); break;
        case SX_ITEM_END: close_loop(l); break;
        case SX_ITEM_OP: {
            uint32_t together = sx_nvidia_wide(l, i);
            if (together == 0) {
                sx_nvidia_op(l, i);
            } else {
                i += together - 1;
            }
            break;
        }
        }
    }
    return l->b.code;
}

/* The bytes of the workspace that belong to the warp. */
static void place_workspace(sx_nvidia_lowering *l, sx_ptx_arg warp)
{
    const sx_kernel *k = l->kernel;
    uint32_t last = k->buffer_count - 1;
    if (k->buffer_count > 0 && k->buffer[last].role == SX_BUFFER_WORKSPACE) {
        SX_PTX_PUT(&l->b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S64), l->buffer[last],
                   sx_nvidia_widened(l, warp), sx_ptx_imm(k->buffer[last].size), l->buffer[last]);
    }
}

/* The predicates of partial vectors, made once. */
static void make_partial(sx_nvidia_lowering *l)
{
    for (uint32_t i = 0; i < l->part->item_count; i++) {
        const sx_item *item = &l->part->item[i];
        bool access = has_address(item) && (item->op == SX_LOP_LOAD || item->op == SX_LOP_LOADS ||
                                            item->op == SX_LOP_STORE || item->op == SX_LOP_STORES);
        if (access && item->imm < SX_NVIDIA_LANES &&
            l->partial[item->imm].kind == SX_PTX_ARG_NONE) {
            l->partial[item->imm] = sx_ptx_register(&l->b, SX_PTX_PRED);
            SX_PTX_PUT(&l->b, SETP, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_TYPE_U32),
                       l->partial[item->imm], l->lane, sx_ptx_imm(item->imm));
        }
    }
}

/* A block works at each point: its place in the grid is the point, and the workspace is its shared memory. */
static sx_code lower_block(sx_nvidia_lowering *l)
{
    static const sx_ptx_special index[] = {SX_PTX_SPECIAL_CTAID_Z, SX_PTX_SPECIAL_CTAID_Y,
                                           SX_PTX_SPECIAL_CTAID_X};
    uint32_t last = l->kernel->buffer_count - 1;
    bool works = l->kernel->buffer[last].role == SX_BUFFER_WORKSPACE;
    l->b.kernel->required = (sx_ptx_block){l->part->warps * SX_NVIDIA_LANES, 1, 1};
    l->in_shared[last] = works;
    sx_nvidia_read_buffers(l);
    if (works) {
        sx_ptx_arg memory = sx_ptx_shared_dynamic(&l->b, "block_shared", SHARED_ALIGN);
        sx_ptx_arg at = sx_ptx_register(&l->b, SX_PTX_B32);
        SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_U32), at, memory);
        l->buffer[last] = sx_nvidia_widened(l, at);
    }
    sx_ptx_arg thread = sx_nvidia_special(l, SX_PTX_SPECIAL_TID_X);
    l->lane = sx_ptx_register(&l->b, SX_PTX_B32);
    l->warp = sx_ptx_register(&l->b, SX_PTX_B32);
    SX_PTX_PUT(&l->b, AND, SX_PTX_M(SX_PTX_TYPE_B32), l->lane, thread,
               sx_ptx_imm(SX_NVIDIA_LANES - 1));
    SX_PTX_PUT(&l->b, SHR, SX_PTX_M(SX_PTX_TYPE_U32), l->warp, thread, sx_ptx_imm(5));
    l->lane_wide = sx_nvidia_widened(l, l->lane);
    for (uint32_t v = 0; v < 3; v++) {
        l->variable[v] = sx_nvidia_widened(l, sx_nvidia_special(l, index[v]));
    }
    make_partial(l);
    SX_TRY(l->b.code);
    start_pointers(l);
    SX_TRY(lower_items(l));
    sx_ptx_put(&l->b, SX_PTX_OP_RET, SX_PTX_M(0), NULL, 0);
    return sx_ptx_end(&l->b);
}

static sx_code lower_part(sx_nvidia_lowering *l)
{
    sx_ptx_arg first;
    sx_ptx_arg count;
    sx_nvidia_read_buffers(l);
    read_points(l, &first, &count);
    SX_TRY(l->b.code);
    sx_ptx_arg warp = sx_ptx_register(&l->b, SX_PTX_B32);
    sx_ptx_arg warps = sx_ptx_register(&l->b, SX_PTX_B32);
    sx_ptx_arg rows = sx_nvidia_special(l, SX_PTX_SPECIAL_NTID_Y);
    sx_ptx_arg over = sx_ptx_register(&l->b, SX_PTX_PRED);
    sx_ptx_arg next = sx_ptx_label(&l->b);
    sx_ptx_arg done = sx_ptx_label(&l->b);
    sx_ptx_arg point = sx_ptx_register(&l->b, SX_PTX_B32);
    l->lane = sx_nvidia_special(l, SX_PTX_SPECIAL_TID_X);
    l->lane_wide = sx_nvidia_widened(l, l->lane);
    sx_ptx_arg block = sx_nvidia_special(l, SX_PTX_SPECIAL_CTAID_X);
    sx_ptx_arg row = sx_nvidia_special(l, SX_PTX_SPECIAL_TID_Y);
    SX_PTX_PUT(&l->b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_U32), warp, block, rows, row);
    SX_PTX_PUT(&l->b, MUL, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_U32), warps,
               sx_nvidia_special(l, SX_PTX_SPECIAL_NCTAID_X), rows);
    place_workspace(l, warp);
    make_partial(l);
    sx_ptx_place(&l->b, next);
    SX_PTX_PUT(&l->b, SETP, SX_PTX_M(SX_PTX_COMPARE_GE, SX_PTX_TYPE_U32), over, warp, count);
    sx_ptx_guard(&l->b, over);
    SX_PTX_PUT(&l->b, BRA, SX_PTX_M(0), done);
    SX_PTX_PUT(&l->b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), point, first, warp);
    split_point(l, point);
    start_pointers(l);
    SX_TRY(lower_items(l));
    SX_PTX_PUT(&l->b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), warp, warp, warps);
    SX_PTX_PUT(&l->b, BRA, SX_PTX_M(SX_PTX_UNIFORM_UNI), next);
    sx_ptx_place(&l->b, done);
    sx_ptx_put(&l->b, SX_PTX_OP_RET, SX_PTX_M(0), NULL, 0);
    return sx_ptx_end(&l->b);
}

/* Virtual registers of the part, by number. */
sx_code sx_nvidia_make_registers(sx_nvidia_lowering *l)
{
    const sx_part *part = l->part;
    sx_ptx_register_class lane = l->kernel->lane_bytes == 8 ? SX_PTX_B64 : SX_PTX_B32;
    const struct {
        sx_ptx_arg **of;
        uint32_t count;
        sx_ptx_register_class class_of;
    } file[] = {{&l->vector, part->vector_count, lane},
                {&l->mask, part->mask_count, SX_PTX_PRED},
                {&l->scalar, part->scalar_count, SX_PTX_B64}};
    for (uint32_t f = 0; f < SX_COUNT(file); f++) {
        *file[f].of = SX_NEW_ARRAY(l->cx, sx_ptx_arg, file[f].count + 1);
        if (*file[f].of == NULL) {
            return l->cx->error.code;
        }
        for (uint32_t r = 0; r < file[f].count; r++) {
            (*file[f].of)[r] = sx_ptx_register(&l->b, file[f].class_of);
        }
    }
    return l->b.code;
}

/* Is memory that the part writes read in it, too? Then other lanes may read what a lane wrote. */
static bool reads_back(const sx_part *part, uint32_t buffer)
{
    bool loads = false;
    bool stores = false;
    for (uint32_t i = 0; i < part->item_count; i++) {
        if (has_address(&part->item[i]) && part->addr[part->item[i].addr].buffer == buffer) {
            bool store = sx_lop_info_of(part->item[i].op)->result == '-';
            stores = stores || store;
            loads = loads || !store;
        }
    }
    return loads && stores;
}

sx_code sx_nvidia_of_loop(sx_ctx *cx, const sx_kernel *kernel, uint32_t index,
                          sx_ptx_module *module)
{
    SX_ASSERT(cx != NULL && module != NULL && kernel->lanes == SX_NVIDIA_LANES);
    const sx_part *part = &kernel->part[index];
    char name[80];
    int64_t points;
    SX_ASSERT(part->tile == NULL);
    (void)snprintf(name, sizeof(name), "%s_p%u", kernel->name, index);
    if (part->warps > 0 && (part->grid[0] > BLOCKS_MAX || part->grid[1] > BLOCKS_MAX)) {
        return SX_FAIL(cx, SX_LIMIT, "kernel %s: a grid of %lld x %lld blocks, at most %d each",
                       kernel->name, (long long)part->grid[0], (long long)part->grid[1],
                       BLOCKS_MAX);
    }
    if (!sx_mul_i64(part->grid[0], part->grid[1], &points) ||
        !sx_mul_i64(points, part->grid[2], &points) || points > SX_NVIDIA_POINTS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "kernel %s: a grid of more than %lld points", kernel->name,
                       (long long)SX_NVIDIA_POINTS_MAX);
    }
    sx_nvidia_lowering *l = SX_NEW(cx, sx_nvidia_lowering);
    if (l == NULL) {
        return cx->error.code;
    }
    l->cx = cx;
    l->kernel = kernel;
    l->part = part;
    bool block = part->warps > 0;
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        l->shared_by_lanes[k] = reads_back(part, k);
    }
    sx_ptx_begin(&l->b, cx, module, name);
    SX_TRY(l->b.code);
    if (!block) {
        l->b.kernel->maximum = (sx_ptx_block){SX_NVIDIA_LANES, SX_NVIDIA_WARPS, 1};
    }
    SX_TRY(sx_nvidia_make_registers(l));
    SX_TRY(sx_nvidia_find_pointers(l));
    return block ? lower_block(l) : lower_part(l);
}
