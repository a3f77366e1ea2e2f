/* memory.c - loads, stores, prefetches and conversions of addresses. */
#include <string.h>

#include "core/simt/machine.h"

#define BANKS 32
#define BANK_BYTES 4
#define SECTOR_BYTES 32

sx_ptx_word *sx_ptx_result(const sx_ptx_step *s, uint32_t index)
{
    SX_ASSERT(index < s->u->result_count);
    uint32_t word = s->m->word[s->u->word + index];
    s->w->known[word] |= s->active;
    if (s->w->changed != NULL) {
        s->w->changed[word] = 1;
    }
    return &s->w->file[word];
}

const sx_ptx_word *sx_ptx_operand_word(const sx_ptx_step *s, uint32_t index)
{
    SX_ASSERT(index < s->u->operand_count);
    uint32_t word = s->m->word[s->u->word + s->u->result_count + index];
    return (word & SX_PTX_CONSTANT) != 0 ? &s->m->constant[word & ~SX_PTX_CONSTANT]
                                         : &s->w->file[word];
}

uint64_t sx_ptx_address(const sx_ptx_step *s, uint32_t nth, uint32_t lane)
{
    uint32_t word = s->u->address[nth];
    const sx_ptx_word *base = (word & SX_PTX_CONSTANT) != 0
                                  ? &s->m->constant[word & ~SX_PTX_CONSTANT]
                                  : &s->w->file[word];
    return base->lane[lane] + (uint64_t)s->u->offset[nth];
}

/* ---- what accesses cost ---- */
/* The most words of one bank among those that `count` lanes access from `first` on: each lane `words` of them, of as
 * many banks, a power of two whose multiple the first one is. So such banks are looked at once. */
static uint32_t passes_of(const uint64_t *offset, uint32_t lanes, uint32_t first, uint32_t count,
                          uint32_t words)
{
    uint64_t word[BANKS][SX_PTX_LANES]; /* of each bank, in_bank of them */
    uint32_t in_bank[BANKS] = {0}, most = 0, shift = (uint32_t)__builtin_ctz(words * BANK_BYTES);
    for (uint32_t lane = first; lane < first + count; lane++) {
        uint64_t at = offset[lane] >> shift;
        uint32_t bank = (uint32_t)at & (BANKS / words - 1), n = in_bank[bank], i = 0;
        if ((lanes >> lane & 1) == 0) {
            continue;
        }
        while (i < n && word[bank][i] != at) {
            i++;
        }
        if (i == n) {
            SX_ASSERT(n < SX_PTX_LANES);
            word[bank][n] = at;
            in_bank[bank] = ++n;
            most = n > most ? n : most;
        }
    }
    return most;
}

void sx_ptx_count_passes(sx_ptx_machine *m, const uint64_t *offset, uint32_t lanes, uint32_t size)
{
    uint32_t words = (size + BANK_BYTES - 1) / BANK_BYTES;
    uint32_t at_once = SX_PTX_LANES / words;
    SX_ASSERT(words > 0 && words <= 4 && (words & (words - 1)) == 0);
    for (uint32_t first = 0; first < SX_PTX_LANES; first += at_once) {
        uint32_t passes = passes_of(offset, lanes, first, at_once, words);
        m->outcome->statistics.shared_passes += passes;
        m->outcome->statistics.shared_passes_least += passes > 0;
    }
}

static void count_sectors(sx_ptx_machine *m, const uint64_t *offset, uint32_t lanes)
{
    uint64_t sector[SX_PTX_LANES];
    uint32_t found = 0;
    for (uint32_t lane = 0; lanes != 0 && lane < SX_PTX_LANES; lane++) {
        uint64_t at = offset[lane] / SECTOR_BYTES;
        uint32_t i = found;
        while (i > 0 && sector[i - 1] != at) {
            i--;
        }
        if ((lanes >> lane & 1) != 0 && i == 0) {
            sector[found++] = at;
        }
    }
    m->outcome->statistics.global_sectors += found;
}

/* ---- loads and stores ---- */
static uint64_t extended(uint64_t value, uint32_t bytes, uint32_t result_bytes)
{
    uint32_t unused = 64 - 8 * bytes;
    uint64_t wide = (uint64_t)((int64_t)(value << unused) >> unused);
    return result_bytes >= 8 ? wide : wide & ((UINT64_C(1) << 8 * result_bytes) - 1);
}

/* The registers that an access loads into or stores from. */
#define ELEMENTS_MAX 16
typedef struct {
    sx_ptx_word *to[ELEMENTS_MAX];
    const sx_ptx_word *from[ELEMENTS_MAX];
} elements;

static void find_elements(const sx_ptx_step *s, elements *e)
{
    SX_ASSERT(s->u->elements <= ELEMENTS_MAX);
    for (uint32_t i = 0; i < s->u->elements; i++) {
        if (s->u->handler == SX_PTX_RUN_LD) {
            e->to[i] = sx_ptx_result(s, i);
        } else {
            e->from[i] = sx_ptx_operand_word(s, i);
        }
    }
}

static inline uint64_t read_element(const uint8_t *bytes, uint32_t count)
{
    uint64_t value = 0;
    uint32_t word;
    if (count == sizeof word) { // most are
        memcpy(&word, bytes, sizeof word);
        return word;
    }
    memcpy(&value, bytes, count);
    return value;
}

static inline void write_element(uint8_t *bytes, uint64_t value, uint32_t count)
{
    uint32_t word = (uint32_t)value;
    if (count == sizeof word) {
        memcpy(bytes, &word, sizeof word);
    } else {
        memcpy(bytes, &value, count);
    }
}

static void move_elements(const sx_ptx_step *s, const elements *e, uint32_t lane, uint8_t *bytes)
{
    const sx_ptx_micro *u = s->u;
    for (uint32_t i = 0; i < u->elements; i++, bytes += u->element_bytes) {
        if (u->handler == SX_PTX_RUN_LD) {
            uint64_t value = read_element(bytes, u->element_bytes);
            e->to[i]->lane[lane] =
                u->extends ? extended(value, u->element_bytes, u->result_bytes) : value;
        } else {
            write_element(bytes, e->from[i]->lane[lane], u->element_bytes);
        }
    }
}

/* All lanes in shared memory: addresses, then what is known of the bytes, then the bytes. */
static sx_code access_shared(const sx_ptx_step *s, uint32_t size, sx_ptx_access access)
{
    uint64_t offset[SX_PTX_LANES] = {0}, base = sx_ptx_shared_base(s->m, s->w->block);
    elements e;
    for (uint32_t left = s->active; left != 0; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        uint64_t address = sx_ptx_address(s, 0, lane);
        bool within = address >= SX_PTX_SHARED_FIRST &&
                      address - SX_PTX_SHARED_FIRST <= s->m->shared_bytes &&
                      s->m->shared_bytes - (address - SX_PTX_SHARED_FIRST) >= size;
        if (!within || (address & (size - 1)) != 0) {
            sx_ptx_spot place;
            SX_TRY(sx_ptx_locate(s->m, s->w, lane, s->insn, s->u->space, address, size, access,
                                 &place));
        }
        offset[lane] = base + address - SX_PTX_SHARED_FIRST;
    }
    SX_TRY(sx_ptx_touch_lanes(s, offset, size, access));
    find_elements(s, &e);
    for (uint32_t left = s->active; left != 0; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        move_elements(s, &e, lane, s->m->shared + offset[lane]);
    }
    sx_ptx_count_passes(s->m, offset, s->active, size);
    return SX_OK;
}

static sx_code load_or_store(const sx_ptx_step *s)
{
    const sx_ptx_micro *u = s->u;
    uint32_t size = (uint32_t)u->element_bytes * u->elements;
    sx_ptx_access access = u->handler == SX_PTX_RUN_LD ? SX_PTX_IS_LOAD : SX_PTX_IS_STORE;
    uint64_t shared[SX_PTX_LANES] = {0}, global[SX_PTX_LANES] = {0};
    elements e;
    if (u->space == SX_PTX_SPACE_SHARED) {
        return access_shared(s, size, access);
    }
    find_elements(s, &e);
    uint32_t shared_lanes = 0, global_lanes = 0;
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        sx_ptx_spot place;
        if ((s->active >> lane & 1) == 0) {
            continue;
        }
        uint64_t address = sx_ptx_address(s, 0, lane);
        SX_TRY(sx_ptx_locate(s->m, s->w, lane, s->insn, u->space, address, size, access, &place));
        SX_TRY(sx_ptx_touch(s->m, s->w, lane, s->insn, &place, size, access));
        move_elements(s, &e, lane, place.bytes);
        if (place.space == SX_PTX_SPACE_SHARED) {
            shared[lane] = place.offset;
            shared_lanes |= 1U << lane;
        } else if (place.space == SX_PTX_SPACE_GLOBAL) {
            global[lane] = address;
            global_lanes |= 1U << lane;
        }
    }
    if (shared_lanes != 0) {
        sx_ptx_count_passes(s->m, shared, shared_lanes, size);
    }
    count_sectors(s->m, global, global_lanes);
    return SX_OK;
}

/* A prefetch changes nothing; its address must be one. */
static sx_code prefetch(const sx_ptx_step *s)
{
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        sx_ptx_spot place;
        if ((s->active >> lane & 1) != 0) {
            SX_TRY(sx_ptx_locate(s->m, s->w, lane, s->insn, s->u->space, sx_ptx_address(s, 0, lane),
                                 1, SX_PTX_IS_LOAD, &place));
        }
    }
    return SX_OK;
}

static sx_code convert_address(const sx_ptx_step *s)
{
    bool to = sx_ptx_insn_modifier(&s->m->kernel->insn[s->insn], SX_PTX_CLASS_TO, 0) != 0;
    uint64_t window = 0;
    switch (s->u->space) {
    case SX_PTX_SPACE_SHARED:
    case SX_PTX_SPACE_SHARED_CLUSTER: window = SX_PTX_WINDOW_SHARED; break;
    case SX_PTX_SPACE_LOCAL: window = SX_PTX_WINDOW_LOCAL; break;
    case SX_PTX_SPACE_CONST: window = SX_PTX_WINDOW_CONST; break;
    case SX_PTX_SPACE_PARAM: window = SX_PTX_WINDOW_PARAM; break;
    case SX_PTX_SPACE_GLOBAL: break;
    default: {
        char name[SX_PTX_INSN_TEXT_MAX];
        return SX_FAIL(s->m->cx, SX_UNIMPLEMENTED,
                       "kernel %s, %s: addresses of this memory are not interpreted",
                       s->m->kernel->name, sx_ptx_insn_name(s->m, s->insn, name));
    }
    }
    const sx_ptx_word *from = sx_ptx_operand_word(s, 0);
    sx_ptx_word *result = sx_ptx_result(s, 0);
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        if ((s->active >> lane & 1) != 0) {
            result->lane[lane] = to ? from->lane[lane] - window : from->lane[lane] + window;
        }
    }
    return SX_OK;
}

sx_code sx_ptx_run_memory(const sx_ptx_step *s)
{
    switch (s->u->handler) {
    case SX_PTX_RUN_LD:
    case SX_PTX_RUN_ST: return load_or_store(s);
    case SX_PTX_RUN_PREFETCH: return prefetch(s);
    case SX_PTX_RUN_CVTA: return convert_address(s);
    default: SX_UNREACHABLE();
    }
}
