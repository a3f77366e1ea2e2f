/* access.c - addresses become places; may a thread access them? */
#include "core/simt/machine.h"

#include <string.h>

static const char *access_name(sx_ptx_access access)
{
    switch (access) {
    case SX_PTX_IS_LOAD: return "reads";
    case SX_PTX_IS_STORE: return "writes";
    case SX_PTX_IS_ATOMIC: return "updates";
    }
    SX_UNREACHABLE();
}

/* What a fault needs to be told. */
typedef struct {
    sx_ptx_machine *m;
    const sx_ptx_warp *w;
    uint32_t lane, insn;
    uint64_t address;
    uint32_t size;
    sx_ptx_access access;
} request;

/* ---- one span of bytes, at addresses from `first` on ---- */
static sx_code check_span(const request *r, const char *what, uint64_t first, uint64_t bytes)
{
    if (r->address >= first && r->address - first <= bytes &&
        bytes - (r->address - first) >= r->size) {
        return SX_OK;
    }
    bool before = r->address < first;
    uint64_t away = before ? first - r->address : r->address + r->size - first - bytes;
    return sx_ptx_stop(
        r->m, r->w, r->lane, r->insn, SX_MISMATCH,
        "%s %u bytes at address 0x%llx of %s, which has %llu bytes from 0x%llx on: %llu bytes %s",
        access_name(r->access), r->size, (unsigned long long)r->address, what,
        (unsigned long long)bytes, (unsigned long long)first, (unsigned long long)away,
        before ? "before its begin" : "behind its end");
}

static sx_code locate_read_only(const request *r, const char *what, uint64_t first, uint8_t *bytes,
                                uint64_t count, sx_ptx_spot *place)
{
    SX_TRY(check_span(r, what, first, count));
    if (r->access != SX_PTX_IS_LOAD) {
        return sx_ptx_stop(r->m, r->w, r->lane, r->insn, SX_MISMATCH, "%s %s",
                           access_name(r->access), what);
    }
    place->offset = r->address - first;
    place->bytes = bytes + place->offset;
    return SX_OK;
}

/* ---- global memory ---- */
static bool holds(const sx_ptx_area *area, uint64_t address, uint32_t size)
{
    return address >= area->address && address - area->address <= area->of->size &&
           area->of->size - (address - area->address) >= size;
}

static uint64_t distance(const sx_ptx_area *area, uint64_t address, uint32_t size)
{
    if (address < area->address) {
        return area->address - address;
    }
    uint64_t end = area->address + area->of->size;
    return address + size > end ? address + size - end : 0;
}

static sx_code outside(const request *r)
{
    const sx_ptx_area *nearest = NULL;
    for (uint32_t i = 0; i < r->m->area_count; i++) {
        const sx_ptx_area *area = &r->m->area[i];
        if (nearest == NULL ||
            distance(area, r->address, r->size) < distance(nearest, r->address, r->size)) {
            nearest = area;
        }
    }
    if (nearest == NULL || distance(nearest, r->address, r->size) > SX_PTX_GLOBAL_GAP) {
        return sx_ptx_stop(r->m, r->w, r->lane, r->insn, SX_MISMATCH,
                           "%s %u bytes of global memory at address 0x%llx, far from all buffers",
                           access_name(r->access), r->size, (unsigned long long)r->address);
    }
    return check_span(r, nearest->of->name, nearest->address, nearest->of->size);
}

static sx_code locate_global(const request *r, sx_ptx_spot *place)
{
    sx_ptx_machine *m = r->m;
    if (m->area_last >= m->area_count || !holds(&m->area[m->area_last], r->address, r->size)) {
        m->area_last = 0;
        while (m->area_last < m->area_count &&
               !holds(&m->area[m->area_last], r->address, r->size)) {
            m->area_last++;
        }
        if (m->area_last == m->area_count) {
            return outside(r);
        }
    }
    sx_ptx_area *area = &m->area[m->area_last];
    if (r->access != SX_PTX_IS_LOAD && !area->of->writable) {
        return sx_ptx_stop(m, r->w, r->lane, r->insn, SX_MISMATCH, "%s %s, which is read-only",
                           access_name(r->access), area->of->name);
    }
    place->area = area;
    place->offset = r->address - area->address;
    place->bytes = area->of->bytes + place->offset;
    return SX_OK;
}

/* ---- shared memory ---- */
static sx_code locate_shared(const request *r, uint32_t rank, sx_ptx_spot *place)
{
    SX_TRY(check_span(r, "shared memory", SX_PTX_SHARED_FIRST, r->m->shared_bytes));
    place->offset = sx_ptx_shared_base(r->m, rank) + r->address - SX_PTX_SHARED_FIRST;
    place->bytes = r->m->shared + place->offset;
    return SX_OK;
}

/* An address in the shared memory of the block's own, or one that mapa made. */
static sx_code locate_cluster(request *r, sx_ptx_spot *place)
{
    place->space = SX_PTX_SPACE_SHARED;
    if (r->address < SX_PTX_SHARED_OF_RANK) {
        return locate_shared(r, r->w->block, place);
    }
    uint64_t rank = r->address / SX_PTX_SHARED_OF_RANK - 1;
    if (rank >= r->m->block_count) {
        return sx_ptx_stop(r->m, r->w, r->lane, r->insn, SX_MISMATCH,
                           "address 0x%llx is in no block of the cluster, which has %u",
                           (unsigned long long)r->address, r->m->block_count);
    }
    r->address %= SX_PTX_SHARED_OF_RANK;
    SX_TRY(locate_shared(r, (uint32_t)rank, place));
    return rank == r->w->block
               ? SX_OK
               : sx_ptx_cluster_access(r->m, r->w, r->lane, r->insn, (uint32_t)rank);
}

/* ---- all spaces ---- */
static uint16_t space_of(uint16_t space, uint64_t *address)
{
    static const struct {
        uint64_t window;
        uint16_t space;
    } row[] = {{SX_PTX_WINDOW_SHARED, SX_PTX_SPACE_SHARED_CLUSTER},
               {SX_PTX_WINDOW_LOCAL, SX_PTX_SPACE_LOCAL},
               {SX_PTX_WINDOW_CONST, SX_PTX_SPACE_CONST},
               {SX_PTX_WINDOW_PARAM, SX_PTX_SPACE_PARAM}};
    for (uint32_t i = 0; space == 0 && i < SX_COUNT(row); i++) {
        if (*address - row[i].window < SX_PTX_WINDOW_BYTES) {
            *address -= row[i].window;
            return row[i].space;
        }
    }
    return space == 0 ? SX_PTX_SPACE_GLOBAL : space;
}

__attribute__((always_inline)) static inline sx_code
locate(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn, uint16_t space,
       uint64_t address, uint32_t size, sx_ptx_access access, sx_ptx_spot *place)
{
    SX_ASSERT(size > 0 && lane < SX_PTX_LANES);
    *place = (sx_ptx_spot){.space = space_of(space, &address)};
    request r = {m, w, lane, insn, address, size, access};
    switch (place->space) {
    case SX_PTX_SPACE_GLOBAL: return locate_global(&r, place);
    case SX_PTX_SPACE_SHARED: return locate_shared(&r, w->block, place);
    case SX_PTX_SPACE_SHARED_CLUSTER: return locate_cluster(&r, place);
    case SX_PTX_SPACE_LOCAL:
        SX_TRY(check_span(&r, "local memory", SX_PTX_LOCAL_FIRST, m->local_bytes));
        place->offset = (w->index * (uint64_t)SX_PTX_LANES + lane) * m->local_bytes + address -
                        SX_PTX_LOCAL_FIRST;
        place->bytes = m->local + place->offset;
        return SX_OK;
    case SX_PTX_SPACE_PARAM:
        return locate_read_only(&r, "the parameters", 0, m->parameter, m->parameter_bytes, place);
    case SX_PTX_SPACE_CONST:
        return locate_read_only(&r, "constant memory", SX_PTX_CONST_FIRST, m->constants,
                                m->constants_bytes, place);
    default:
        return sx_ptx_stop(m, w, lane, insn, SX_UNIMPLEMENTED, "memory %s is not interpreted",
                           sx_ptx_modifier_of(place->space)->text);
    }
}

sx_code sx_ptx_locate(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                      uint16_t space, uint64_t address, uint32_t size, sx_ptx_access access,
                      sx_ptx_spot *place)
{
    if ((size & (size - 1)) == 0 && address % size != 0) {
        (void)space_of(space, &address);
        return sx_ptx_stop(m, w, lane, insn, SX_MISMATCH,
                           "%s %u bytes at address 0x%llx, which %u does not divide",
                           access_name(access), size, (unsigned long long)address, size);
    }
    return locate(m, w, lane, insn, space, address, size, access, place);
}

sx_code sx_ptx_locate_run(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                          uint16_t space, uint64_t address, uint32_t size, sx_ptx_access access,
                          sx_ptx_spot *place)
{
    return locate(m, w, lane, insn, space, address, size, access, place);
}

/* ---- what is known of the bytes ---- */
static sx_code unwritten(const request *r, const char *what, uint64_t offset)
{
    return sx_ptx_stop(r->m, r->w, r->lane, r->insn, SX_MISMATCH,
                       "reads byte %llu of %s, which nobody wrote", (unsigned long long)offset,
                       what);
}

static sx_code between_blocks(const request *r, const sx_ptx_area *area, uint64_t offset,
                              uint32_t other)
{
    char by[32] = "several blocks";
    if (other != SX_PTX_MANY) {
        uint32_t n = other - 1;
        const sx_ptx_dim *g = &r->m->launch->grid;
        sx_buf text;
        sx_buf_init(&text, sizeof by);
        sx_buf_print(&text, "block (%u,%u,%u)", n % g->x, n / g->x % g->y, n / g->x / g->y);
        for (size_t i = 0; i < text.len && i + 1 < sizeof by; i++) {
            by[i] = (char)text.ptr[i];
            by[i + 1] = 0;
        }
        sx_buf_fini(&text);
    }
    return sx_ptx_stop(r->m, r->w, r->lane, r->insn, SX_MISMATCH,
                       "race: %s byte %llu of %s, which %s accessed; nothing orders blocks",
                       access_name(r->access), (unsigned long long)offset, area->of->name, by);
}

static sx_code touch_global(const request *r, sx_ptx_area *area, uint64_t offset, bool strong,
                            bool constant)
{
    uint32_t me = r->m->block[r->w->block].number + 1;
    bool atomic = strong || r->access == SX_PTX_IS_ATOMIC;
    for (uint64_t i = offset; i < offset + r->size; i++) {
        uint32_t writer = area->writer[i], reader = area->reader[i], updater = area->atomic[i];
        if (r->access != SX_PTX_IS_STORE && (area->mark[i] & SX_PTX_KNOWN) == 0) {
            return unwritten(r, area->of->name, i);
        }
        if (constant && (area->mark[i] & SX_PTX_STORED) != 0) {
            return sx_ptx_stop(r->m, r->w, r->lane, r->insn, SX_MISMATCH,
                               "reads byte %llu of %s as constant, and the kernel writes it",
                               (unsigned long long)i, area->of->name);
        }
        if (writer != 0 && writer != me) {
            return between_blocks(r, area, i, writer);
        }
        if (r->access != SX_PTX_IS_LOAD && reader != 0 && reader != me) {
            return between_blocks(r, area, i, reader);
        }
        if (!atomic && updater != 0 && updater != me) {
            return between_blocks(r, area, i, updater);
        }
        if (r->access != SX_PTX_IS_LOAD && (area->mark[i] & SX_PTX_READ_CONSTANT) != 0) {
            return sx_ptx_stop(r->m, r->w, r->lane, r->insn, SX_MISMATCH,
                               "%s byte %llu of %s, which the kernel reads as constant",
                               access_name(r->access), (unsigned long long)i, area->of->name);
        }
        uint32_t *who = r->access == SX_PTX_IS_LOAD ? &area->reader[i]
                        : atomic                    ? &area->atomic[i]
                                                    : &area->writer[i];
        if (!(atomic && r->access == SX_PTX_IS_LOAD)) {
            *who = *who == 0 || *who == me ? me : SX_PTX_MANY;
        }
        area->mark[i] |= r->access == SX_PTX_IS_LOAD ? (constant ? SX_PTX_READ_CONSTANT : 0)
                                                     : SX_PTX_KNOWN | SX_PTX_STORED;
    }
    return SX_OK;
}

static sx_code touch_local(const request *r, uint64_t offset)
{
    for (uint64_t i = offset; i < offset + r->size; i++) {
        if (r->access == SX_PTX_IS_LOAD && r->m->local_known[i] == 0) {
            return unwritten(r, "local memory", i % r->m->local_bytes);
        }
        r->m->local_known[i] = 1;
    }
    return SX_OK;
}

sx_code sx_ptx_touch(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                     const sx_ptx_spot *place, uint32_t size, sx_ptx_access access)
{
    const sx_ptx_micro *u = &m->micro[insn];
    request r = {m, w, lane, insn, 0, size, access};
    sx_ptx_statistics *s = &m->outcome->statistics;
    SX_ASSERT(place->bytes != NULL);
    switch (place->space) {
    case SX_PTX_SPACE_GLOBAL:
        s->global_read_bytes += access != SX_PTX_IS_STORE ? size : 0;
        s->global_written_bytes += access != SX_PTX_IS_LOAD ? size : 0;
        if (access != SX_PTX_IS_LOAD && place->area->of->touched != NULL) {
            memset(place->area->of->touched + place->offset, 1, size);
        }
        return place->area->mark == NULL
                   ? SX_OK
                   : touch_global(&r, place->area, place->offset, u->strong, u->constant);
    case SX_PTX_SPACE_SHARED:
        return sx_ptx_touch_shared(m, w, lane, insn, place->offset, size, access, u->strong);
    case SX_PTX_SPACE_LOCAL: return touch_local(&r, place->offset);
    default: return SX_OK;
    }
}
