/* check.c - parts with tiles are well formed. */
#include <string.h>

#include "core/base/grid.h"
#include "core/tile/fragment.h"
#include "core/tile/online.h"
#include "core/tile/unfold.h"

static sx_code fail(sx_ctx *cx, const sx_kernel *kernel, const char *what, int64_t value)
{
    return SX_FAIL(cx, SX_INPUT, "kernel %s: tile: %s, it is %lld", kernel->name, what,
                   (long long)value);
}

/* ---- the element's program ---- */
/* What has a meaning for each thread's element alone. */
static sx_code check_map(sx_ctx *cx, const sx_kernel *kernel, const sx_part *map)
{
    for (uint32_t i = 0; i < map->item_count; i++) {
        const sx_item *item = &map->item[i];
        if (item->kind != SX_ITEM_OP) {
            return fail(cx, kernel, "a loop in the program of an element, item", i);
        }
        switch (item->op) {
        case SX_LOP_LOAD:
        case SX_LOP_LOADS:
        case SX_LOP_STORES:
        case SX_LOP_SWAP:
        case SX_LOP_BCAST0:
        case SX_LOP_IOTA:
            return fail(cx, kernel, "the program of an element asks for its neighbours, item", i);
        case SX_LOP_STORE:
            if (item->imm != 1) {
                return fail(cx, kernel, "a store of one element", item->imm);
            }
            break;
        default: break;
        }
    }
    return SX_OK;
}

/* ---- layouts ---- */
static sx_code check_held(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    const sx_layout *held = &tile->held;
    SX_TRY(sx_layout_check(cx, held));
    bool whole = sx_layout_side(held, SX_SIDE_ROW) == tile->block_rows &&
                 sx_layout_side(held, SX_SIDE_COLUMN) == tile->block_columns &&
                 held->mode_count == 0 && sx_layout_count(held, SX_HOME_LANE) == 32 &&
                 sx_layout_count(held, SX_HOME_WARP) == tile->role[1].warps &&
                 sx_layout_count(held, SX_HOME_RANK) == 1;
    if (!whole || !sx_layout_covers(held) || !sx_layout_unique(held)) {
        return fail(cx, kernel, "the sums of a block are held once each, threads", tile->threads);
    }
    return SX_OK;
}

/* The index along the side that a place of a factor holds. */
static uint32_t side_of(const sx_tile_operand *o, const sx_place *place)
{
    uint32_t at = sx_layout_apply(&o->held, place);
    return o->sum_inner ? sx_at_row(at) : sx_at_column(at);
}

/* Whether every thread finds the rows and columns of its sums among what it holds of the factors, all threads in the
 * same registers: then its first register differs from those of thread 0 by the same amount as its sums do. */
static bool meets(const sx_tile *tile, uint32_t which)
{
    const sx_tile_operand *o = &tile->operand[which];
    uint32_t first = sx_layout_first(&tile->held, SX_HOME_LANE);
    uint32_t bits = (uint32_t)tile->held.bits[SX_HOME_LANE] + tile->held.bits[SX_HOME_WARP];
    if (tile->matrix != NULL) {
        return true; /* lanes by the fragments, see check_fragments */
    }
    for (uint32_t i = 0; i < bits; i++) {
        sx_place place = {{0}};
        place.of[i < 5 ? SX_HOME_LANE : SX_HOME_WARP] = 1U << (i < 5 ? i : i - 5);
        uint32_t at = tile->held.column[first + i];
        uint32_t own = which == SX_TILE_LEFT ? sx_at_row(at) : sx_at_column(at);
        if (side_of(o, &place) != own) {
            return false;
        }
    }
    for (uint32_t r = 0; r < sx_layout_count(&tile->held, SX_HOME_REGISTER); r++) {
        uint32_t at = sx_layout_apply(&tile->held, &(sx_place){{r}});
        uint32_t own = which == SX_TILE_LEFT ? sx_at_row(at) : sx_at_column(at);
        sx_place found = {{0}};
        uint32_t want = o->sum_inner ? SX_AT(own, 0) : SX_AT(0, own);
        if (!sx_layout_find(&o->held, want, SX_HOMES_THREAD, &found)) {
            return false;
        }
    }
    return true;
}

/* Sums and factors are whole fragments of the instruction, and their warps step over the same rows and columns. */
static sx_code check_fragments(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    const sx_matrix_instruction *m = tile->matrix;
    sx_layout atom;
    sx_quotient quotient;
    SX_TRY(sx_fragment_find(cx, SX_MMA_SYNC, SX_OPERAND_C, m->factor, m->columns, m->steps, &atom));
    bool fits = sx_layout_divide(&tile->held, &atom, &quotient);
    for (uint32_t i = 0; i < 2 && fits; i++) {
        const sx_tile_operand *o = &tile->operand[i];
        bool turned = (i == SX_TILE_LEFT) != o->sum_inner;
        SX_TRY(sx_fragment_find(cx, SX_MMA_SYNC, i == SX_TILE_LEFT ? SX_OPERAND_A : SX_OPERAND_B,
                                m->factor, m->columns, m->steps, &atom));
        atom = turned ? sx_layout_transpose(&atom) : atom;
        fits = o->group == m->steps && o->view.element == m->factor &&
               sx_layout_divide(&o->held, &atom, &quotient);
        for (uint32_t b = 0; b < tile->held.bits[SX_HOME_WARP] && fits; b++) {
            uint32_t at = tile->held.column[sx_layout_first(&tile->held, SX_HOME_WARP) + b];
            uint32_t own = i == SX_TILE_LEFT ? sx_at_row(at) : sx_at_column(at);
            fits = side_of(o, &(sx_place){{0, 0, 1U << b, 0}}) == own;
        }
    }
    return fits ? SX_OK : fail(cx, kernel, "whole fragments of the instruction, steps", m->steps);
}

/* Every four warps hold the results of whole instructions, in the order of their registers, and warps follow each
 * other: so all threads of four warps begin at the same row and column but for what the fragment says. */
static sx_code check_warpgroups(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    const sx_matrix_instruction *m = tile->matrix;
    sx_layout atom;
    sx_quotient quotient;
    SX_TRY(sx_fragment_find(cx, SX_WGMMA, SX_OPERAND_C, m->factor, m->columns, m->steps, &atom));
    atom = sx_layout_normal(&atom);
    bool fits = m->warps == 4 && tile->role[1].first_warp == 0 && tile->role[1].warps % 4 == 0 &&
                sx_layout_divide(&tile->held, &atom, &quotient) &&
                tile->block_steps % m->steps == 0;
    for (uint32_t i = 0; i < atom.bits[SX_HOME_REGISTER] && fits; i++) {
        fits = quotient.atom_bit[i] == i;
    }
    for (uint32_t i = 0; i < 2 && fits; i++) {
        fits = tile->operand[i].view.element == m->factor;
    }
    return fits ? SX_OK : fail(cx, kernel, "whole products of four warps, warps", m->warps);
}

static bool same_map(const sx_tensor_map *x, const sx_tensor_map *y)
{
    bool same = x->element == y->element && x->rank == y->rank && x->swizzle == y->swizzle &&
                x->fill == y->fill;
    for (uint32_t d = 0; d < x->rank && same; d++) {
        same = x->dims[d] == y->dims[d] && x->strides[d] == y->strides[d] &&
               x->box[d] == y->box[d] && x->element_strides[d] == y->element_strides[d];
    }
    return same;
}

/* What the copy engine brings, and where instructions find it, are those of view and slot. */
static sx_code check_boxes(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile, uint32_t which)
{
    sx_tile_boxes boxes;
    sx_wgmma_operand descriptor;
    const sx_tile_operand *o = &tile->operand[which];
    const sx_slot *slot = &tile->ring.slot[which];
    uint32_t side = which == SX_TILE_LEFT ? tile->block_rows : tile->block_columns;
    uint32_t width = o->sum_inner ? tile->block_steps : side;
    if (slot->rows != (o->sum_inner ? side : tile->block_steps) ||
        sx_slot_row_bytes(slot) != width * sx_dtype_bytes(o->view.element)) {
        return fail(cx, kernel, "a slot as large as the tile, rows", slot->rows);
    }
    SX_TRY(sx_tile_boxes_of(cx, tile, which, &boxes));
    SX_TRY(sx_tile_descriptor_of(cx, tile, which, &descriptor));
    bool same = same_map(&boxes.map, &o->boxes.map) &&
                memcmp(boxes.batch, o->boxes.batch, sizeof(boxes.batch)) == 0;
    return same ? SX_OK : fail(cx, kernel, "boxes of the view, argument", which);
}

/* What the copy engine stores is what the map stores, from slots that lie behind the ring. */
static sx_code check_store(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    const sx_tile_store *s = &tile->store;
    sx_tile_store own;
    if (s->depth == 0) {
        return SX_OK;
    }
    if (!tile->by_engine || s->depth > SX_BLOCK_STORES_MAX) {
        return fail(cx, kernel, "slots of the copy engine for the result, slots", s->depth);
    }
    SX_TRY(sx_tile_store_of(cx, tile, s->view.element, &own));
    const sx_tile_view *x = &own.view, *y = &s->view;
    bool same = x->buffer == y->buffer && x->offset == y->offset && x->offset >= 0 &&
                same_map(&own.boxes.map, &s->boxes.map) &&
                memcmp(own.boxes.batch, s->boxes.batch, sizeof(own.boxes.batch)) == 0 &&
                memcmp(&own.slot, &s->slot, sizeof(own.slot)) == 0;
    for (uint32_t i = 0; i < tile->map.item_count && same; i++) {
        const sx_item *item = &tile->map.item[i];
        same = item->op != SX_LOP_STORE ||
               sx_mem_bytes(item->mem, kernel->lane_bytes) == sx_dtype_bytes(s->view.element);
    }
    if (!same || x->buffer >= kernel->buffer_count) {
        return fail(cx, kernel, "a result that the copy engine stores, buffer", y->buffer);
    }
    uint64_t begin = tile->ring.offset;
    begin += (uint64_t)sx_ring_stage_bytes(&tile->ring) * tile->ring.depth;
    uint64_t bytes = (uint64_t)s->slot.bytes * s->depth * sx_tile_groups(tile);
    SX_TRY(sx_slot_check_base(cx, &s->slot, s->offset));
    return s->offset >= begin && s->offset + bytes <= tile->shared_bytes
               ? SX_OK
               : fail(cx, kernel, "slots of the result behind the ring, from", s->offset);
}

static sx_code check_operand(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile,
                             uint32_t which)
{
    const sx_tile_operand *o = &tile->operand[which];
    const sx_slot *slot = &tile->ring.slot[which];
    uint32_t element = sx_dtype_bytes(o->view.element);
    uint32_t side = which == SX_TILE_LEFT ? tile->block_rows : tile->block_columns;
    uint32_t rows = o->sum_inner ? side : tile->block_steps;
    uint32_t width = o->sum_inner ? tile->block_steps : side;
    SX_TRY(sx_layout_check(cx, &o->held));
    SX_TRY(sx_layout_check(cx, &o->copied));
    if (slot->rows != rows || sx_slot_row_bytes(slot) != width * element) {
        return fail(cx, kernel, "a slot as large as the tile, rows", slot->rows);
    }
    if (sx_layout_side(&o->copied, SX_SIDE_ROW) != rows ||
        sx_layout_side(&o->copied, SX_SIDE_COLUMN) != width || !sx_layout_covers(&o->copied) ||
        o->copied.mode_count != 0 ||
        sx_layout_count(&o->copied, SX_HOME_WARP) * 32 != tile->threads ||
        sx_layout_replica_bits(&o->copied, SX_HOME_REGISTER) != 0 ||
        sx_layout_vector(&o->copied) * element < o->copy_bytes) {
        return fail(cx, kernel, "copies of the whole tile, bytes of one", o->copy_bytes);
    }
    if (o->group == 0 || tile->block_steps % o->group != 0 || o->held.mode_count != 0 ||
        sx_layout_side(&o->held, o->sum_inner ? SX_SIDE_ROW : SX_SIDE_COLUMN) != side ||
        sx_layout_side(&o->held, o->sum_inner ? SX_SIDE_COLUMN : SX_SIDE_ROW) != o->group ||
        !sx_layout_covers(&o->held) || !meets(tile, which)) {
        return fail(cx, kernel, "factors that threads hold for their sums, group", o->group);
    }
    return SX_OK;
}

/* ---- memory ---- */
static sx_code check_view(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile, uint32_t which)
{
    const sx_tile_operand *o = &tile->operand[which];
    const sx_tile_view *v = &o->view;
    int64_t element = sx_dtype_bytes(v->element);
    int64_t inner = o->sum_inner ? v->sum_stride : v->side_stride;
    int64_t outer = o->sum_inner ? v->side_stride : v->sum_stride;
    int64_t unit = sx_max_i64(1, o->copy_bytes / element);
    bool aligned = unit == 1 || (inner == 1 && outer % unit == 0 && v->offset % unit == 0);
    for (uint32_t d = 0; d < tile->batch_count; d++) {
        aligned = aligned && (unit == 1 || v->batch_stride[d] % unit == 0);
    }
    bool engine = o->copy_bytes == 16 || o->copy_bytes == 8 || o->copy_bytes == 4;
    engine = engine || (tile->by_engine && o->copy_bytes == 0);
    if (!aligned || (!engine && o->copy_bytes != element)) {
        return fail(cx, kernel, "copies that are aligned wherever they begin, bytes",
                    o->copy_bytes);
    }
    if (v->side_extent != (which == SX_TILE_LEFT ? tile->rows : tile->columns) ||
        v->sum_extent != tile->sum || v->buffer >= kernel->buffer_count) {
        return fail(cx, kernel, "a view of the matrix, buffer", v->buffer);
    }
    return SX_OK;
}

bool sx_tile_grid(const sx_tile *tile, int64_t grid[3])
{
    int64_t batch = 1, rows = sx_ceil_div_i64(tile->rows, tile->block_rows);
    for (uint32_t d = 0; d < tile->batch_count; d++) {
        batch *= tile->batch[d]; /* within SX_SPACE_MAX: the view was checked */
    }
    grid[0] = batch;
    grid[1] = rows;
    grid[2] = sx_ceil_div_i64(tile->columns, tile->block_columns);
    if (tile->raster == 0) {
        return true;
    }
    grid[0] = rows / tile->raster;
    grid[1] = grid[2];
    grid[2] = tile->raster;
    return batch == 1 && rows % tile->raster == 0 && !sx_grid_is_folded(grid);
}

bool sx_tile_cluster(const sx_tile *tile, const int64_t grid[3], uint32_t cluster[3])
{
    uint32_t rows = sx_tile_sharers(tile, SX_TILE_RIGHT);
    uint32_t columns = sx_tile_sharers(tile, SX_TILE_LEFT);
    cluster[0] = 1;
    cluster[1] = tile->raster == 0 ? rows : columns;
    cluster[2] = tile->raster == 0 ? columns : rows;
    return (rows == 1 && columns == 1) ||
           (grid[1] % cluster[1] == 0 && grid[2] % cluster[2] == 0 && !sx_grid_is_folded(grid));
}

bool sx_tile_cluster_walks(const sx_tile *tile, const uint32_t cluster[3])
{
    uint32_t blocks = cluster[0] * cluster[1] * cluster[2];
    return tile->walkers == 0 || (cluster[2] == blocks && tile->walkers % blocks == 0);
}

/* A pair of blocks whose copy engines fetch for both. */
static sx_code check_cluster(sx_ctx *cx, const sx_kernel *kernel, const sx_part *part)
{
    const sx_tile *tile = part->tile;
    uint32_t blocks = sx_tile_sharers(tile, SX_TILE_LEFT) * sx_tile_sharers(tile, SX_TILE_RIGHT);
    uint32_t cluster[3];
    bool fits = blocks == 1 || (blocks == SX_BLOCK_CLUSTER && tile->by_engine &&
                                tile->online == NULL && sx_tile_cluster(tile, part->grid, cluster));
    if (!fits) {
        return fail(cx, kernel, "clusters of two that divide the grid, blocks", blocks);
    }
    return blocks == 1 || sx_tile_cluster_walks(tile, cluster)
               ? SX_OK
               : fail(cx, kernel,
                      "whole clusters of blocks that follow each other and walk, blocks",
                      tile->walkers);
}

static sx_code check_grid(sx_ctx *cx, const sx_kernel *kernel, const sx_part *part)
{
    const sx_tile *tile = part->tile;
    int64_t batch = 1;
    bool inside = tile->batch_count <= SX_RANK_MAX && tile->rows >= 1 && tile->columns >= 1 &&
                  tile->sum >= 1 && tile->block_rows >= 1 && tile->block_columns >= 1 &&
                  tile->block_steps >= 1 && tile->rows <= INT32_MAX && tile->columns <= INT32_MAX &&
                  tile->sum <= INT32_MAX;
    for (uint32_t d = 0; inside && d < tile->batch_count; d++) {
        inside = tile->batch[d] >= 1 && sx_mul_i64(batch, tile->batch[d], &batch);
    }
    int64_t grid[3], points;
    if (!inside || !sx_tile_grid(tile, grid) || memcmp(grid, part->grid, sizeof(grid)) != 0) {
        return fail(cx, kernel, "a grid that covers rows, columns and batch, columns of the grid",
                    part->grid[2]);
    }
    bool walks = tile->by_engine && tile->online == NULL && sx_grid_can_walk(grid, &points);
    if (tile->walkers > 0 && !walks) {
        return fail(cx, kernel, "blocks that a copy engine lets walk over the grid", tile->walkers);
    }
    return SX_OK;
}

/* Slices are whole stages, and all of them equal. */
static sx_code check_slices(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    bool fits =
        tile->slice == 0 || (tile->matrix != NULL && tile->slice > 0 && tile->slice < tile->sum &&
                             tile->slice % tile->block_steps == 0 && tile->sum % tile->slice == 0);
    return fits ? SX_OK : fail(cx, kernel, "equal slices of whole stages, steps", tile->slice);
}

/* ---- roles ---- */
/* An item as a step of its role on the ring; false: it is none. Multiplications that threads do are done when their
 * item is; others are under way until they are settled. */
static bool step_of(const sx_tile_item *item, bool engine, sx_step *step)
{
    *step = (sx_step){.back = (uint8_t)item->back};
    switch (item->op) {
    case SX_TILE_ACQUIRE: step->op = SX_STEP_ACQUIRE; return true;
    case SX_TILE_PUBLISH: step->op = SX_STEP_PUBLISH; return true;
    case SX_TILE_WAIT: step->op = SX_STEP_WAIT; return true;
    case SX_TILE_RELEASE: step->op = SX_STEP_RELEASE; return true;
    case SX_TILE_MULTIPLY: step->op = SX_STEP_READ; return engine;
    case SX_TILE_SETTLE: step->op = SX_STEP_SETTLE; return true;
    case SX_TILE_FETCH:
    case SX_TILE_FILL:
    case SX_TILE_MAP:
    case SX_TILE_LOOP:
    case SX_TILE_END: break;
    }
    return false;
}

/* Tiles are copied between acquiring and publishing, multiplied between waiting and releasing, and the sums are 0
 * before and mapped after, when all products have been added. */
static sx_code check_role(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile,
                          const sx_tile_role *role, sx_step *step, sx_role_steps *steps)
{
    bool engine = tile->by_engine;
    uint32_t operands = sx_tile_operands(tile);
    bool inside = false, acquired = false, filled = false, looped = false, settled = !engine;
    uint32_t count = 0, body = 0, fetched = 0, multiplied = 0;
    int32_t waited = 0;
    for (uint32_t i = 0; i < role->item_count; i++) {
        const sx_tile_item *item = &role->item[i];
        bool right = true;
        switch (item->op) {
        case SX_TILE_LOOP:
            right = !looped && !inside && count == 0;
            inside = true;
            break;
        case SX_TILE_END:
            right = inside && !acquired;
            inside = false;
            looped = true;
            body = count;
            break;
        case SX_TILE_ACQUIRE:
            right = inside && !acquired;
            acquired = true;
            break;
        case SX_TILE_FETCH:
            right = acquired && item->operand < operands && (fetched >> item->operand & 1) == 0;
            fetched |= 1U << item->operand;
            break;
        case SX_TILE_PUBLISH:
            right = acquired && fetched == (1U << operands) - 1;
            acquired = false;
            break;
        case SX_TILE_FILL:
            right = !inside && !looped;
            filled = true;
            break;
        case SX_TILE_WAIT:
            right = inside;
            waited++;
            break;
        case SX_TILE_RELEASE: waited -= item->back == 0; break;
        case SX_TILE_SETTLE:
            right = engine && multiplied == 1;
            settled = item->back == 0 && !inside;
            break;
        case SX_TILE_MULTIPLY:
            right = inside && filled && waited > 0;
            multiplied++;
            break;
        case SX_TILE_MAP: right = looped && multiplied == 1 && settled; break;
        }
        if (!right) {
            return SX_FAIL(cx, SX_INPUT, "kernel %s: tile: role %s: item %u is out of place",
                           kernel->name, role->name, i);
        }
        count += step_of(item, engine, &step[count]) ? 1 : 0;
    }
    if (inside || !looped || (multiplied != 0) == (fetched != 0)) {
        return fail(cx, kernel, "a role that loads or multiplies, items", role->item_count);
    }
    *steps = (sx_role_steps){role->name, step, body, step + body, count - body};
    return SX_OK;
}

/* Warps of their own for each role, or the same for both; several of four warps where these free stages. */
static sx_code check_crew(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    const sx_tile_role *load = &tile->role[0], *math = &tile->role[1];
    bool apart = load->first_warp == math->warps && load->warps == 1 && math->first_warp == 0 &&
                 (load->warps + math->warps) * 32 == tile->threads;
    bool same = load->first_warp == 0 && math->first_warp == 0 && load->warps == math->warps &&
                math->warps * 32 == tile->threads;
    if (tile->by_engine ? !apart : !same) {
        return fail(cx, kernel, "roles of all warps, or of all but one that loads, warps",
                    load->warps);
    }
    return SX_OK;
}

static sx_code check_roles(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    sx_step step[2][SX_TILE_ITEMS_MAX];
    sx_role_steps steps[SX_ROLES_MAX];
    uint32_t groups = tile->by_engine ? tile->role[1].warps / 4 : 1;
    if (tile->role_count != 2 || groups == 0 || groups >= SX_ROLES_MAX) {
        return fail(cx, kernel, "a role that loads and one that multiplies, roles",
                    tile->role_count);
    }
    for (uint32_t i = 0; i < tile->role_count; i++) {
        const sx_tile_role *role = &tile->role[i];
        if (role->item_count > SX_TILE_ITEMS_MAX || role->item_count == 0 || role->warps == 0 ||
            (role->first_warp + role->warps) * 32 > tile->threads) {
            return fail(cx, kernel, "a role of warps of the block, warps", role->warps);
        }
        SX_TRY(check_role(cx, kernel, tile, role, step[i], &steps[i]));
    }
    if (tile->role[1].item[tile->role[1].item_count - 1].op != SX_TILE_MAP) {
        return fail(cx, kernel, "the second role stores, items", tile->role[1].item_count);
    }
    SX_TRY(check_crew(cx, kernel, tile));
    for (uint32_t i = 1; i < groups; i++) { /* each four warps free stages by themselves */
        steps[1 + i] = steps[1];
    }
    return sx_rings_check(cx, &tile->ring, 1, steps, 1 + groups);
}

static sx_code check_shared(sx_ctx *cx, const sx_kernel *kernel, const sx_tile *tile)
{
    const sx_ring *ring = &tile->ring;
    uint32_t operands = sx_tile_operands(tile);
    if (ring->slot_count != operands || ring->depth < 2 || ring->depth > SX_RING_DEPTH_MAX) {
        return fail(cx, kernel, "a ring of a slot for each operand and 2 or more stages, stages",
                    ring->depth);
    }
    for (uint32_t i = 0; i < operands; i++) {
        SX_TRY(sx_slot_check_base(cx, &ring->slot[i], sx_ring_slot_offset(ring, 0, i)));
    }
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < 2 && tile->by_engine; i++) {
        const sx_slot *slot = &ring->slot[i];
        bytes += slot->rows * slot->panels * slot->panel_bytes; /* boxes leave no gaps */
    }
    if (ring->tx_bytes != bytes) {
        return fail(cx, kernel, "the bytes of all boxes of a stage", ring->tx_bytes);
    }
    uint64_t end = ring->offset + (uint64_t)sx_ring_stage_bytes(ring) * ring->depth;
    bool apart = ring->barriers % 8 == 0 && ring->barriers + 16 * ring->depth <= ring->offset;
    return apart && end <= tile->shared_bytes && tile->shared_bytes <= SX_SMEM_BYTES_MAX
               ? SX_OK
               : fail(cx, kernel, "shared memory that holds the ring, bytes", tile->shared_bytes);
}

sx_code sx_tile_check(sx_ctx *cx, const sx_kernel *kernel, const sx_part *part)
{
    const sx_tile *tile = part->tile;
    sx_kernel *unfolded;
    SX_ASSERT(tile != NULL && part->item_count == 0);
    if (tile->online == NULL) {
        SX_TRY(check_grid(cx, kernel, part));
    }
    if (tile->threads == 0 || tile->threads % 32 != 0 || tile->threads > 1024) {
        return fail(cx, kernel, "a block of 32 to 1024 threads, whole warps", tile->threads);
    }
    SX_TRY(check_cluster(cx, kernel, part));
    SX_TRY(check_slices(cx, kernel, tile));
    SX_TRY(check_shared(cx, kernel, tile));
    SX_TRY(check_roles(cx, kernel, tile));
    if (tile->online != NULL) {
        SX_TRY(check_map(cx, kernel, &tile->map));
        SX_TRY(check_map(cx, kernel, &tile->online->scores[0].part));
        SX_TRY(check_map(cx, kernel, &tile->online->scores[1].part));
        SX_TRY(check_map(cx, kernel, &tile->online->power.part));
        return sx_tile_check_online(cx, kernel, part);
    }
    SX_TRY(check_held(cx, kernel, tile));
    if (tile->by_engine != (tile->matrix != NULL && tile->matrix->warps > 1)) {
        return fail(cx, kernel, "a copy engine for instructions of several warps, threads",
                    tile->threads);
    }
    if (tile->matrix != NULL) {
        SX_TRY((tile->by_engine ? check_warpgroups : check_fragments)(cx, kernel, tile));
    }
    for (uint32_t i = 0; i < 2; i++) {
        SX_TRY(check_view(cx, kernel, tile, i));
        SX_TRY((tile->by_engine ? check_boxes : check_operand)(cx, kernel, tile, i));
    }
    SX_TRY(check_map(cx, kernel, &tile->map));
    SX_TRY(check_store(cx, kernel, tile));
    SX_TRY(sx_tile_unfold(cx, kernel, &unfolded));
    return sx_kernel_check(cx, unfolded);
}
