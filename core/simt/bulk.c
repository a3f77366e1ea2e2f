/* bulk.c - the copy engine: bulk and tensor copies between global and shared memory.
 *
 * A copy into shared memory is written by the actor of its mbarrier: whoever has waited for the phase that it
 * completes has seen it. A copy out of shared memory is read by the actor of its thread, until that waits for the
 * group. Copies end at once; with `lazy` as late as the program allows, and until then the destination of a load
 * holds a poison.
 *
 * Boxes of tensors lie in shared memory densely, innermost dimension first, but for the swizzle: bits 4 to 6 of
 * each address are exchanged by the bits 7 to 9 that the mode takes.
 */
#include <string.h>

#include "core/simt/machine.h"

#define POISON 0xa5
#define BULK_ALIGN 16
#define TENSOR_ALIGN 128
#define UNKNOWN_EPOCH UINT32_MAX /* of a copy under way: nobody has seen it */

/* ---- what is copied ---- */
typedef struct {
    uint64_t address;             /* of the first element in global memory, where it is no tensor */
    const sx_ptx_tensor_map *map; /* NULL: bytes */
    uint64_t tensor;              /* its address */
    int32_t at[SX_PTX_TENSOR_RANK_MAX];
    uint32_t bytes;
} source;

uint32_t sx_ptx_swizzled(uint32_t width, uint32_t address)
{
    uint32_t chunks = width == 0 ? 0 : width / 16 - 1;
    return address ^ ((address >> 7 & chunks) << 4);
}

static uint32_t box_bytes(const sx_ptx_tensor_map *map)
{
    uint64_t bytes = map->element_bytes;
    for (uint32_t d = 0; d < map->rank; d++) {
        bytes *= map->box[d];
    }
    return (uint32_t)bytes;
}

/* The part of the innermost row `row` of the box that is inside the tensor: its address, begin and length. */
static uint64_t row_of(const source *from, uint32_t row, uint32_t *begin, uint32_t *bytes)
{
    const sx_ptx_tensor_map *map = from->map;
    uint64_t address = from->tensor;
    bool inside = true;
    for (uint32_t d = 1; d < map->rank; d++) {
        int64_t index = (int64_t)from->at[d] + row % map->box[d];
        row /= map->box[d];
        inside = inside && index >= 0 && (uint64_t)index < map->dims[d];
        address += inside ? (uint64_t)index * map->strides[d] : 0;
    }
    int64_t first = from->at[0], last = first + map->box[0], most = (int64_t)map->dims[0];
    int64_t low = first < 0 ? 0 : first, high = last < most ? last : most;
    bool some = inside && low < high;
    *begin = some ? (uint32_t)(low - first) * map->element_bytes : 0;
    *bytes = some ? (uint32_t)(high - low) * map->element_bytes : 0;
    return some ? address + (uint64_t)low * map->element_bytes : 0;
}

/* NaN of the element in every place, or zero. */
static void fill(const sx_ptx_tensor_map *map, uint8_t *bytes, uint32_t count)
{
    memset(bytes, 0, count);
    for (uint32_t i = 0; map->nan_fill && i + map->element_bytes <= count;
         i += map->element_bytes) {
        memcpy(bytes + i, &map->nan_bits, map->element_bytes);
    }
}

static sx_code move(const sx_ptx_step *s, uint32_t lane, uint64_t address, uint32_t count,
                    uint8_t *bytes, bool store)
{
    sx_ptx_spot place;
    sx_ptx_access access = store ? SX_PTX_IS_STORE : SX_PTX_IS_LOAD;
    if (count == 0) {
        return SX_OK;
    }
    SX_TRY(sx_ptx_locate_run(s->m, s->w, lane, s->insn, SX_PTX_SPACE_GLOBAL, address, count, access,
                             &place));
    SX_TRY(sx_ptx_touch(s->m, s->w, lane, s->insn, &place, count, access));
    memcpy(store ? place.bytes : bytes, store ? bytes : place.bytes, count);
    return SX_OK;
}

/* Between global memory and `bytes`, which are the box without its swizzle. */
static sx_code move_all(const sx_ptx_step *s, uint32_t lane, const source *from, uint8_t *bytes,
                        bool store)
{
    if (from->map == NULL) {
        return move(s, lane, from->address, from->bytes, bytes, store);
    }
    uint32_t row_bytes = from->map->box[0] * from->map->element_bytes;
    for (uint32_t row = 0; row < from->bytes / row_bytes; row++) {
        uint32_t begin, count;
        uint64_t address = row_of(from, row, &begin, &count);
        uint8_t *to = bytes + (size_t)row * row_bytes;
        if (!store) {
            fill(from->map, to, row_bytes);
        }
        SX_TRY(move(s, lane, address, count, to + begin, store));
    }
    return SX_OK;
}

/* ---- tensor maps ---- */
static sx_code find_map(const sx_ptx_step *s, uint32_t lane, uint32_t nth, source *from)
{
    sx_ptx_machine *m = s->m;
    uint64_t offset = sx_ptx_address(s, nth, lane) - SX_PTX_WINDOW_PARAM;
    for (uint32_t i = 0; i < m->kernel->parameter_count; i++) {
        if (m->launch->argument[i].map != NULL && m->parameter_offset[i] == offset) {
            from->map = m->launch->argument[i].map;
            from->tensor = m->area[from->map->region - 1].address + from->map->offset;
            return SX_OK;
        }
    }
    return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                       "no tensor map lies at address 0x%llx: it is no generic address of a "
                       "parameter that is one",
                       (unsigned long long)sx_ptx_address(s, nth, lane));
}

static sx_code find_source(const sx_ptx_step *s, uint32_t lane, bool store, source *from)
{
    const sx_ptx_insn *insn = &s->m->kernel->insn[s->insn];
    uint32_t global = store ? 0 : 1;
    *from = (source){.map = NULL};
    if (sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TENSOR, 0) == SX_PTX_NO_MODIFIER) {
        from->address = sx_ptx_address(s, global, lane);
        from->bytes = (uint32_t)sx_ptx_operand_word(s, 0)->lane[lane];
        if (from->bytes == 0 || from->bytes % BULK_ALIGN != 0 || from->address % BULK_ALIGN != 0) {
            return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                               "copies %u bytes at address 0x%llx, which 16 must divide",
                               from->bytes, (unsigned long long)from->address);
        }
        return SX_OK;
    }
    SX_TRY(find_map(s, lane, global, from));
    from->bytes = box_bytes(from->map);
    uint32_t rank = sx_ptx_counted(insn);
    if (rank != from->map->rank) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "%u coordinates of a tensor of rank %u", rank, from->map->rank);
    }
    for (uint32_t d = 0; d < rank; d++) {
        from->at[d] = (int32_t)(uint32_t)sx_ptx_operand_word(s, d)->lane[lane];
    }
    return SX_OK;
}

/* ---- shared memory ---- */
static sx_code find_shared(const sx_ptx_step *s, uint32_t lane, uint32_t nth, const source *from,
                           bool store, uint32_t *offset)
{
    sx_ptx_spot place;
    uint64_t address = sx_ptx_address(s, nth, lane);
    uint32_t align = from->map == NULL ? BULK_ALIGN : TENSOR_ALIGN;
    if (address % align != 0) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "copies %s shared memory at address 0x%llx, which %u does not divide",
                           store ? "from" : "to", (unsigned long long)address, align);
    }
    SX_TRY(sx_ptx_locate_run(s->m, s->w, lane, s->insn,
                             store ? SX_PTX_SPACE_SHARED : SX_PTX_SPACE_SHARED_CLUSTER, address,
                             from->bytes, store ? SX_PTX_IS_LOAD : SX_PTX_IS_STORE, &place));
    *offset = (uint32_t)place.offset;
    return SX_OK;
}

/* The place of byte `i` of the box that begins at `offset`. A swizzle may lead below or behind a box that is not
 * aligned to the pattern. */
static uint64_t byte_of(const source *from, uint32_t offset, uint32_t i)
{
    uint32_t width = from->map == NULL ? 0 : from->map->swizzle_bytes;
    return sx_ptx_swizzled(width, SX_PTX_SHARED_FIRST + offset + i) - SX_PTX_SHARED_FIRST;
}

static sx_code check_places(const sx_ptx_step *s, uint32_t lane, const source *from,
                            uint32_t offset)
{
    uint64_t end = offset - sx_ptx_byte_of(s->m, offset) + s->m->shared_bytes;
    for (uint32_t i = 0; i < from->bytes; i += BULK_ALIGN) {
        if (byte_of(from, offset, i) + BULK_ALIGN > end) {
            return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                               "the swizzle leads outside of shared memory");
        }
    }
    return SX_OK;
}

/* ---- loads ---- */
static sx_code land_load(sx_ptx_machine *m, sx_ptx_bulk *c)
{
    sx_ptx_mbarrier *b = &m->mbarrier[c->barrier];
    const sx_ptx_warp *w = &m->warp[c->warp];
    if (!b->valid) {
        return sx_ptx_stop(m, w, c->lane, c->insn, SX_MISMATCH,
                           "the mbarrier at byte %u is not valid any more when the copy arrives",
                           sx_ptx_byte_of(m, b->offset));
    }
    if (b->offset / m->shared_stride != w->block) {
        b->far_epoch = b->phase + 1;
        b->far_insn = c->insn;
        b->far_warp = c->warp;
        b->far_lane = c->lane;
    }
    sx_ptx_stamp stamp = sx_ptx_actor_stamp(m, b->actor, b->phase + 1, c->insn);
    for (uint32_t i = 0; i < c->bytes; i += 1U << m->cell_shift) {
        uint32_t at =
            sx_ptx_swizzled(c->swizzle, SX_PTX_SHARED_FIRST + c->shared + i) - SX_PTX_SHARED_FIRST;
        memcpy(m->shared + at, c->data + i, (size_t)1 << m->cell_shift);
        m->cell[at >> m->cell_shift].write = stamp;
    }
    c->busy = false;
    m->bulk_busy--;
    return sx_ptx_mbarrier_bytes(m, w, c->lane, c->insn, b, -(int64_t)c->bytes);
}

/* A record with room for the bytes. */
static sx_code make_bulk(sx_ptx_machine *m, uint32_t bytes, sx_ptx_bulk **made)
{
    uint32_t i = 0;
    while (i < m->bulk_count && (m->bulk[i].busy || m->bulk[i].capacity < bytes)) {
        i++;
    }
    if (i == m->bulk_count) {
        SX_TRY(sx_grow(m->cx, (void **)&m->bulk, &m->bulk_capacity, m->bulk_count + 1,
                       sizeof *m->bulk));
        m->bulk_count++;
        m->bulk[i] = (sx_ptx_bulk){.capacity = bytes};
        m->bulk[i].data = SX_NEW_ARRAY(m->cx, uint8_t, bytes + 1U);
        if (m->bulk[i].data == NULL) {
            return m->cx->error.code;
        }
    }
    *made = &m->bulk[i];
    return SX_OK;
}

static sx_code write_cell(const sx_ptx_step *s, uint32_t lane, uint64_t at,
                          const sx_ptx_stamp *stamp)
{
    sx_ptx_cell *cell = &s->m->cell[at >> s->m->cell_shift];
    sx_ptx_stamp before = cell->write;
    SX_TRY(sx_ptx_engine_writes(s->m, s->w, lane, s->insn, at));
    if (!sx_ptx_is_fenced(s->m, s->w, lane, &before)) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "the copy engine writes byte %u of shared memory, which a thread "
                           "wrote, and no fence.proxy.async lies between",
                           sx_ptx_byte_of(s->m, at));
    }
    cell->write = *stamp;
    cell->known = true;
    return SX_OK;
}

/* The ranks of the blocks that a load goes to, as bits: those of its mask, or the one that has the destination. */
static sx_code destinations(const sx_ptx_step *s, uint32_t lane, const source *from,
                            uint32_t offset, uint32_t *ranks)
{
    sx_ptx_machine *m = s->m;
    uint32_t all = (1U << m->block_count) - 1;
    *ranks = 1U << offset / m->shared_stride;
    if (sx_ptx_insn_modifier(&m->kernel->insn[s->insn], SX_PTX_CLASS_MULTICAST, 0) == 0) {
        return SX_OK;
    }
    uint32_t index = from->map == NULL ? 1 : from->map->rank; // behind the bytes or coordinates
    *ranks = (uint32_t)sx_ptx_operand_word(s, index)->lane[lane] & UINT16_MAX;
    return *ranks != 0 && (*ranks & ~all) == 0
               ? SX_OK
               : sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                             "copies to the blocks 0x%x, the cluster has 0x%x", *ranks, all);
}

/* What of the box is outside of the tensor belongs to the path of the block. */
static void note_outside(sx_ptx_machine *m, const source *from)
{
    const sx_ptx_tensor_map *map = from->map;
    for (uint32_t d = 0; map != NULL && d < map->rank; d++) {
        int64_t box = map->box[d];
        int64_t before = -(int64_t)from->at[d], behind = box - before - (int64_t)map->dims[d];
        sx_ptx_note_outside(m, (uint32_t)sx_min_i64(sx_max_i64(before, 0), box),
                            (uint32_t)sx_min_i64(sx_max_i64(behind, 0), box));
    }
}

static sx_code make_box(sx_ptx_machine *m, uint32_t bytes)
{
    if (m->box_capacity < bytes) {
        m->box_capacity = bytes;
        m->box = SX_NEW_ARRAY(m->cx, uint8_t, bytes);
    }
    return m->box == NULL ? m->cx->error.code : SX_OK;
}

/* The load of one block: the box that was read goes to byte `offset` of the shared memory of the cluster. */
static sx_code begin_load_of(const sx_ptx_step *s, uint32_t lane, const source *from,
                             uint32_t offset, const sx_ptx_mbarrier *b)
{
    sx_ptx_machine *m = s->m;
    sx_ptx_bulk *c;
    if (b->fence.thread == 0 || !sx_ptx_comes_before(m, &b->fence, s->w, lane)) {
        return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                           "the copy engine does not see the initialisation of the mbarrier at "
                           "byte %u: no fence.mbarrier_init or fence.proxy.async lies between",
                           sx_ptx_byte_of(m, b->offset));
    }
    SX_TRY(check_places(s, lane, from, offset));
    SX_TRY(make_bulk(m, from->bytes, &c));
    memcpy(c->data, m->box, from->bytes);
    sx_ptx_stamp stamp = sx_ptx_actor_stamp(m, b->actor, UNKNOWN_EPOCH, s->insn);
    for (uint32_t i = 0; i < from->bytes; i += 1U << m->cell_shift) {
        uint64_t at = byte_of(from, offset, i);
        SX_TRY(write_cell(s, lane, at, &stamp));
        memset(m->shared + at, POISON, (size_t)1 << m->cell_shift);
    }
    c->busy = c->load = true;
    c->insn = s->insn;
    c->warp = s->w->index;
    c->lane = lane;
    c->shared = offset;
    c->swizzle = from->map == NULL ? 0 : from->map->swizzle_bytes;
    c->bytes = from->bytes;
    c->barrier = (uint32_t)(b - m->mbarrier);
    m->bulk_busy++;
    return m->launch->lazy ? SX_OK : land_load(m, c);
}

/* To all its blocks: destination and mbarrier lie at the same places in each, and the copies arrive one by one. */
static sx_code begin_load(const sx_ptx_step *s, uint32_t lane)
{
    sx_ptx_machine *m = s->m;
    source from;
    sx_ptx_mbarrier *b;
    uint64_t barrier;
    uint32_t offset, ranks;
    char text[SX_PTX_SHARED_TEXT_MAX];
    SX_TRY(find_source(s, lane, false, &from));
    if (m->follows) {
        note_outside(m, &from);
    }
    SX_TRY(find_shared(s, lane, 0, &from, false, &offset));
    SX_TRY(destinations(s, lane, &from, offset, &ranks));
    SX_TRY(sx_ptx_mbarrier_locate(s, lane, 2, &barrier));
    if (barrier / m->shared_stride != offset / m->shared_stride) {
        return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                           "the copy goes to %s, its mbarrier lies in another block",
                           sx_ptx_shared_name(m, s->w, offset, text));
    }
    SX_TRY(make_box(m, from.bytes));
    SX_TRY(move_all(s, lane, &from, m->box, false));
    for (; ranks != 0; ranks &= ranks - 1) {
        uint32_t rank = (uint32_t)__builtin_ctz(ranks);
        uint64_t base = sx_ptx_shared_base(m, rank);
        if (rank != s->w->block) {
            SX_TRY(sx_ptx_cluster_access(m, s->w, lane, s->insn, rank));
        }
        SX_TRY(sx_ptx_mbarrier_at(s, lane, base + sx_ptx_byte_of(m, barrier), &b));
        SX_TRY(begin_load_of(s, lane, &from, (uint32_t)base + sx_ptx_byte_of(m, offset), b));
    }
    return SX_OK;
}

sx_code sx_ptx_bulk_land_one(sx_ptx_machine *m, bool *landed)
{
    uint32_t first = m->launch->seed == 0 || m->bulk_count == 0
                         ? 0
                         : (uint32_t)sx_rng_below(&m->rng, m->bulk_count);
    *landed = false;
    for (uint32_t i = 0; i < m->bulk_count && m->bulk_busy > 0; i++) {
        sx_ptx_bulk *c = &m->bulk[(first + i) % m->bulk_count];
        if (c->busy && c->load) {
            *landed = true;
            return land_load(m, c);
        }
    }
    return SX_OK;
}

/* ---- stores ---- */
static sx_code land_store(const sx_ptx_step *s, uint32_t lane, const source *to, uint32_t offset,
                          uint8_t *bytes)
{
    for (uint32_t i = 0; i < to->bytes; i++) {
        bytes[i] = s->m->shared[byte_of(to, offset, i)];
    }
    return move_all(s, lane, to, bytes, true);
}

static sx_code read_cell(const sx_ptx_step *s, uint32_t lane, uint64_t at,
                         const sx_ptx_stamp *stamp)
{
    sx_ptx_stamp write = s->m->cell[at >> s->m->cell_shift].write;
    SX_TRY(sx_ptx_engine_reads(s->m, s->w, lane, s->insn, at, stamp));
    return sx_ptx_is_fenced(s->m, s->w, lane, &write)
               ? SX_OK
               : sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                             "the copy engine reads byte %u of shared memory, which a thread "
                             "wrote, and no fence.proxy.async lies between",
                             sx_ptx_byte_of(s->m, at));
}

static sx_code begin_store(const sx_ptx_step *s, uint32_t lane)
{
    sx_ptx_machine *m = s->m;
    sx_ptx_warp *w = s->w;
    source to;
    sx_ptx_bulk *c;
    uint32_t offset;
    SX_TRY(find_source(s, lane, true, &to));
    if (m->follows) {
        note_outside(m, &to);
    }
    SX_TRY(find_shared(s, lane, 1, &to, true, &offset));
    SX_TRY(check_places(s, lane, &to, offset));
    sx_ptx_bulk_groups *g = &w->bulk[lane];
    if (g->open == 0) {
        SX_TRY(
            sx_ptx_actor_make(m, SX_PTX_ACTOR_STORES, w->index * SX_PTX_LANES + lane, &g->actor));
        g->open = 1;
    }
    sx_ptx_stamp stamp = sx_ptx_actor_stamp(m, g->actor, g->open, s->insn);
    for (uint32_t i = 0; i < to.bytes; i += 1U << m->cell_shift) {
        SX_TRY(read_cell(s, lane, byte_of(&to, offset, i), &stamp));
    }
    g->last = g->open;
    SX_TRY(make_bulk(m, to.bytes, &c));
    if (!m->launch->lazy) {
        return land_store(s, lane, &to, offset, c->data);
    }
    c->busy = true;
    c->load = false;
    c->insn = s->insn;
    c->warp = w->index;
    c->lane = lane;
    c->shared = offset;
    c->group = g->open;
    c->address = to.address;
    c->tensor = to.tensor;
    c->map = to.map;
    memcpy(c->at, to.at, sizeof c->at);
    c->bytes = to.bytes;
    m->bulk_busy++;
    return SX_OK;
}

/* The stores of the lane in groups up to `last` have read their bytes, and written them. */
static sx_code wait_for(const sx_ptx_step *s, uint32_t lane, uint32_t last)
{
    sx_ptx_machine *m = s->m;
    sx_ptx_bulk_groups *g = &s->w->bulk[lane];
    for (uint32_t i = 0; i < m->bulk_count && m->bulk_busy > 0; i++) {
        sx_ptx_bulk *c = &m->bulk[i];
        if (c->busy && !c->load && c->warp == s->w->index && c->lane == lane && c->group <= last) {
            sx_ptx_step begun = *s;
            source to = {c->address, c->map, c->tensor, {0}, c->bytes};
            memcpy(to.at, c->at, sizeof to.at);
            begun.insn = c->insn;
            SX_TRY(land_store(&begun, lane, &to, c->shared, c->data));
            c->busy = false;
            m->bulk_busy--;
        }
    }
    if (g->open != 0) {
        uint32_t *seen = &s->w->clock[lane].seen[sx_ptx_actor_word(m, g->actor)];
        *seen = last > *seen ? last : *seen;
        g->waited = last > g->waited ? last : g->waited;
    }
    return SX_OK;
}

sx_code sx_ptx_bulk_check_end(const sx_ptx_step *s)
{
    for (uint32_t left = s->active; left != 0; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        const sx_ptx_bulk_groups *g = &s->w->bulk[lane];
        if (g->last > g->waited) {
            return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                               "ends while a bulk copy of its shared memory is under way: it did "
                               "not wait for group %u",
                               g->last);
        }
    }
    return SX_OK;
}

sx_code sx_ptx_run_bulk(const sx_ptx_step *s)
{
    const sx_ptx_insn *insn = &s->m->kernel->insn[s->insn];
    bool load = insn->op == SX_PTX_OP_CP_BULK_LOAD || insn->op == SX_PTX_OP_CP_TENSOR_LOAD;
    for (uint32_t left = s->active; left != 0; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        sx_ptx_bulk_groups *g = &s->w->bulk[lane];
        if (s->u->handler == SX_PTX_RUN_PREFETCH_MAP) {
            source from;
            SX_TRY(find_map(s, lane, 0, &from));
        } else if (s->u->handler == SX_PTX_RUN_BULK) {
            SX_TRY(load ? begin_load(s, lane) : begin_store(s, lane));
        } else if (insn->op == SX_PTX_OP_CP_BULK_COMMIT) {
            g->open += g->open != 0; // groups count from the first store on; empty ones end at once
        } else {
            uint32_t pending = (uint32_t)sx_ptx_operand_word(s, 0)->lane[lane];
            SX_TRY(wait_for(s, lane, pending + 1 < g->open ? g->open - 1 - pending : 0));
        }
    }
    return SX_OK;
}
