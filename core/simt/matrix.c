/* matrix.c - matrices of 8 x 8 elements of 16 bits between shared memory and the registers of a warp.
 *
 * Lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i, 16 bytes each. Of every matrix lane t holds
 * the elements 2 (t % 4) and 2 (t % 4) + 1 of row t / 4, or of column t / 4 where it is transposed.
 */
#include <string.h>

#include "core/simt/machine.h"

#define ROWS 8
#define ROW_BYTES 16

/* The element that a lane holds in its lower or upper half. */
static uint32_t element_of(uint32_t lane, uint32_t half, bool transposed)
{
    uint32_t row = lane / 4, column = lane % 4 * 2 + half;
    return transposed ? column * ROWS + row : row * ROWS + column;
}

static sx_code rows_of(const sx_ptx_step *s, uint32_t matrix, sx_ptx_access access,
                       uint8_t *row[ROWS])
{
    uint64_t offset[SX_PTX_LANES] = {0};
    for (uint32_t i = 0; i < ROWS; i++) {
        sx_ptx_spot place;
        uint32_t lane = matrix * ROWS + i;
        uint16_t space = s->u->space; // generic, or shared
        SX_TRY(sx_ptx_locate(s->m, s->w, lane, s->insn, space, sx_ptx_address(s, 0, lane),
                             ROW_BYTES, access, &place));
        if (place.space != SX_PTX_SPACE_SHARED) {
            return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                               "the row does not lie in shared memory");
        }
        SX_TRY(sx_ptx_touch(s->m, s->w, lane, s->insn, &place, ROW_BYTES, access));
        row[i] = place.bytes;
        offset[i] = place.offset;
    }
    sx_ptx_count_passes(s->m, offset, (1U << ROWS) - 1, ROW_BYTES);
    return SX_OK;
}

sx_code sx_ptx_run_matrix(const sx_ptx_step *s)
{
    const sx_ptx_insn *insn = &s->m->kernel->insn[s->insn];
    bool load = s->u->handler == SX_PTX_RUN_LDMATRIX;
    bool transposed = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TRANS, 0) != 0;
    uint32_t count = load ? s->u->result_count : s->u->operand_count;
    sx_ptx_word loaded[4];
    SX_ASSERT(s->active == SX_PTX_ALL && count <= 4);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *row[ROWS];
        SX_TRY(rows_of(s, i, load ? SX_PTX_IS_LOAD : SX_PTX_IS_STORE, row));
        for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
            uint64_t word = 0;
            for (uint32_t half = 0; half < 2; half++) {
                uint32_t element = element_of(lane, half, transposed);
                uint8_t *at = row[element / ROWS] + element % ROWS * 2;
                uint16_t bits;
                if (load) {
                    memcpy(&bits, at, sizeof bits);
                    word |= (uint64_t)bits << 16 * half;
                } else {
                    bits = (uint16_t)(sx_ptx_operand_word(s, i)->lane[lane] >> 16 * half);
                    memcpy(at, &bits, sizeof bits);
                }
            }
            loaded[i].lane[lane] = word;
        }
    }
    /* The register of the addresses may be among the results. */
    for (uint32_t i = 0; load && i < count; i++) {
        *sx_ptx_result(s, i) = loaded[i];
    }
    return SX_OK;
}
