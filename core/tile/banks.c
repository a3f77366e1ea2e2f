/* Bank conflicts of accesses to slots: proven by ranks where addresses are linear, counted where they are padded. */
#include "core/tile/memory.h"

#define BANK_BITS 0x7cU       /* of a byte address: which of the 32 banks */
#define WORD_BITS 0xfffffffcU /* which word */

uint32_t sx_bank_conflict(const uint32_t *column, uint32_t count)
{
    uint32_t words = sx_linear_rank_of(column, count, WORD_BITS);
    uint32_t banks = sx_linear_rank_of(column, count, BANK_BITS);
    SX_ASSERT(banks <= words && banks <= 5);
    return 1U << (words - banks);
}

/* Lanes that are served together. */
static uint32_t phase_lanes(const sx_smem_access *access)
{
    return access->vector_bytes <= 4 ? 32 : 128 / access->vector_bytes;
}

/* Register bits within one vector. */
static uint32_t vector_bits(const sx_smem_access *access)
{
    uint32_t elements = access->vector_bytes / access->element_bytes;
    return access->matrix ? 0 : (uint32_t)__builtin_ctz(elements);
}

static sx_code check_access(sx_ctx *cx, const sx_slot *slot, const sx_smem_access *access)
{
    uint32_t vector = access->vector_bytes, element = access->element_bytes;
    SX_ASSERT(element > 0 && __builtin_popcount(element) == 1);
    if (__builtin_popcount(vector) != 1 || vector < element || vector > 16 ||
        (access->matrix && vector != 16)) {
        return SX_FAIL(cx, SX_INPUT,
                       "shared access: vector_bytes is %u with elements of %u; a power of "
                       "two up to 16, of matrices 16",
                       vector, element);
    }
    uint32_t held = access->matrix ? vector : sx_layout_vector(&access->layout) * element;
    if (held < vector) {
        return SX_FAIL(cx, SX_INPUT,
                       "shared access: vector_bytes is %u, the layout holds %u together", vector,
                       held);
    }
    uint32_t rows = sx_layout_side(&access->layout, SX_SIDE_ROW);
    uint32_t columns = sx_layout_side(&access->layout, SX_SIDE_COLUMN);
    if (rows > slot->rows || columns * element > sx_slot_row_bytes(slot)) {
        return SX_FAIL(cx, SX_INPUT, "shared access: %u rows of %u bytes in a slot with %u of %u",
                       rows, columns * element, slot->rows, sx_slot_row_bytes(slot));
    }
    return SX_OK;
}

/* How often each lane accesses, all warps and blocks together. */
static uint64_t instructions(const sx_smem_access *access)
{
    uint64_t registers = sx_layout_count(&access->layout, SX_HOME_REGISTER) >> vector_bits(access);
    return registers * sx_layout_count(&access->layout, SX_HOME_WARP) *
           sx_layout_count(&access->layout, SX_HOME_RANK);
}

/* Different words in the fullest bank. */
static uint32_t fullest(const uint32_t *address, uint32_t count)
{
    uint32_t in_bank[32] = {0}, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool again = false;
        for (uint32_t j = 0; j < i && !again; j++) {
            again = ((address[i] ^ address[j]) & WORD_BITS) == 0;
        }
        uint32_t bank = address[i] / 4 % 32;
        in_bank[bank] += again ? 0 : 1;
        most = in_bank[bank] > most ? in_bank[bank] : most;
    }
    return most;
}

/* Wavefronts of one instruction: `place` gives registers, warp and rank. */
static void count_instruction(const sx_slot *slot, const sx_smem_access *access, sx_place place,
                              sx_wavefronts *waves)
{
    uint32_t lanes = phase_lanes(access), words = (access->vector_bytes + 3) / 4, address[32];
    uint32_t all = sx_layout_count(&access->layout, SX_HOME_LANE);
    for (uint32_t first = 0; first < all; first += lanes) {
        uint32_t count = 0;
        for (uint32_t lane = first; lane < first + lanes && lane < all; lane++) {
            place.of[SX_HOME_LANE] = lane;
            uint32_t at = sx_layout_apply(&access->layout, &place);
            uint32_t start =
                sx_slot_address(slot, 0, sx_at_row(at), sx_at_column(at) * access->element_bytes);
            for (uint32_t word = 0; word < words; word++) {
                address[count++] = start + word * 4; // vectors lie within a chunk of 16 bytes
            }
        }
        uint32_t waves_here = fullest(address, count);
        waves->worst = waves_here > waves->worst ? waves_here : waves->worst;
        waves->total += waves_here;
        waves->phases++;
    }
}

sx_code sx_slot_count_wavefronts(sx_ctx *cx, const sx_slot *slot, const sx_smem_access *access,
                                 sx_wavefronts *waves)
{
    SX_TRY(check_access(cx, slot, access));
    const sx_layout *layout = &access->layout;
    uint32_t step = 1U << vector_bits(access);
    *waves = (sx_wavefronts){.worst = 0};
    for (uint32_t rank = 0; rank < sx_layout_count(layout, SX_HOME_RANK); rank++) {
        for (uint32_t warp = 0; warp < sx_layout_count(layout, SX_HOME_WARP); warp++) {
            for (uint32_t r = 0; r < sx_layout_count(layout, SX_HOME_REGISTER); r += step) {
                count_instruction(slot, access, (sx_place){{r, 0, warp, rank}}, waves);
            }
        }
    }
    SX_ASSERT(waves->total >= waves->phases);
    return SX_OK;
}

/* The addresses of a phase, as columns of its lanes. All phases have the same, because registers, warps and modes only
 * add constants by exclusive or; and the words of one vector differ in bits that no lane changes, so that they add as
 * much to the rank of words as to that of banks. */
static uint32_t phase_columns(const sx_linear *map, const sx_slot *slot,
                              const sx_smem_access *access, uint32_t *column)
{
    uint32_t count = 0, lanes = phase_lanes(access), bytes = sx_slot_row_bytes(slot);
    uint32_t first = sx_layout_first(&access->layout, SX_HOME_LANE);
    for (uint32_t i = 0; i < access->layout.bits[SX_HOME_LANE] && 1U << i < lanes; i++) {
        uint32_t at = access->layout.column[first + i];
        uint32_t input = sx_at_row(at) * bytes + sx_at_column(at) * access->element_bytes;
        column[count++] = sx_linear_apply(map, input);
    }
    return count;
}

sx_code sx_slot_wavefronts(sx_ctx *cx, const sx_slot *slot, const sx_smem_access *access,
                           sx_wavefronts *waves)
{
    sx_linear map;
    uint32_t column[8];
    SX_TRY(check_access(cx, slot, access));
    if (!sx_slot_linear(slot, &map)) {
        return sx_slot_count_wavefronts(cx, slot, access, waves);
    }
    uint32_t lanes = sx_layout_count(&access->layout, SX_HOME_LANE), together = phase_lanes(access);
    uint32_t count = phase_columns(&map, slot, access, column);
    SX_ASSERT(count <= SX_COUNT(column));
    uint64_t phases = instructions(access) * (lanes > together ? lanes / together : 1);
    uint32_t worst = sx_bank_conflict(column, count);
    *waves =
        (sx_wavefronts){.worst = worst, .total = phases * worst, .phases = phases, .proven = true};
    return SX_OK;
}

/* ---- choice ---- */

typedef struct {
    uint32_t panel_bytes, pitch;
    sx_swizzle swizzle;
} candidate;

#define CANDIDATES_MAX 16

/* In the order in which equal ones are preferred. `dense`: the copy engine or wgmma takes part. */
static uint32_t list_candidates(uint32_t row_bytes, bool dense, candidate *list)
{
    uint32_t count = 0;
    for (uint32_t swizzle = SX_SWIZZLE_128; swizzle >= SX_SWIZZLE_32; swizzle--) {
        uint32_t width = sx_swizzle_bytes((sx_swizzle)swizzle);
        if (row_bytes % width == 0) {
            list[count++] = (candidate){width, width, (sx_swizzle)swizzle};
        }
    }
    if (!dense && row_bytes > 128 && row_bytes % 128 == 0) {
        list[count++] = (candidate){row_bytes, row_bytes, SX_SWIZZLE_128};
    }
    list[count++] = (candidate){row_bytes, row_bytes, SX_SWIZZLE_NONE};
    for (uint32_t pad = 16; !dense && pad < 128; pad += 16) {
        list[count++] = (candidate){row_bytes, row_bytes + pad, SX_SWIZZLE_NONE};
    }
    SX_ASSERT(count <= CANDIDATES_MAX);
    return count;
}

/* Wavefronts of writer and reader, those that are threads. */
static sx_code price(sx_ctx *cx, const sx_slot *slot, const sx_smem_access *writer,
                     const sx_smem_access *reader, uint64_t *total)
{
    sx_wavefronts waves;
    *total = 0;
    if (writer != NULL) {
        SX_TRY(sx_slot_wavefronts(cx, slot, writer, &waves));
        *total += waves.total;
    }
    if (reader != NULL) {
        SX_TRY(sx_slot_wavefronts(cx, slot, reader, &waves));
        *total += waves.total;
    }
    return SX_OK;
}

sx_code sx_slot_choose(sx_ctx *cx, uint32_t rows, uint32_t row_bytes, const sx_smem_access *writer,
                       const sx_smem_access *reader, sx_slot *slot)
{
    candidate list[CANDIDATES_MAX];
    uint64_t best = UINT64_MAX;
    uint32_t count = list_candidates(row_bytes, writer == NULL || reader == NULL, list);
    for (uint32_t i = 0; i < count; i++) {
        sx_slot made;
        uint64_t total;
        bool padded = list[i].pitch != list[i].panel_bytes;
        uint64_t stride = (uint64_t)rows * list[i].pitch;
        bool aligned = stride % sx_swizzle_align(list[i].swizzle) == 0;
        uint64_t bytes = stride * (row_bytes / list[i].panel_bytes);
        if ((list[i].swizzle != SX_SWIZZLE_NONE && !aligned) ||
            (padded && bytes > SX_SMEM_BYTES_MAX)) {
            continue;
        }
        SX_TRY(sx_slot_make(cx, rows, row_bytes, list[i].panel_bytes, list[i].pitch,
                            list[i].swizzle, &made));
        SX_TRY(price(cx, &made, writer, reader, &total));
        if (total < best) {
            best = total;
            *slot = made;
        }
    }
    SX_ASSERT(best != UINT64_MAX);
    return SX_OK;
}
