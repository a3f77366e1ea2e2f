/* tile_math.c - the products of a stage: fused multiply-adds of threads, or matrix instructions of warps. */
#include "core/nvidia/tile_inside.h"
#include "core/tile/fragment.h"

#define VECTOR_BYTES_MAX 16

static uint32_t element_bytes(const sx_nvidia_block *k, uint32_t which)
{
    return sx_dtype_bytes(k->tile->operand[which].view.element);
}

/* The register that holds this index along the side and this step of the group. */
static uint32_t register_of(const sx_tile_operand *o, uint32_t side, uint32_t step)
{
    sx_place place = {{0}};
    uint32_t at = o->sum_inner ? SX_AT(side, step) : SX_AT(step, side);
    bool found = sx_layout_find(&o->held, at, SX_HOMES_THREAD, &place);
    SX_ASSERT(found);
    return place.of[SX_HOME_REGISTER];
}

static sx_side sum_side(const sx_tile_operand *o)
{
    return o->sum_inner ? SX_SIDE_COLUMN : SX_SIDE_ROW;
}

/* Registers of the two factors, of 32 bits or as large as an element. */
static sx_code make_factors(sx_nvidia_block *k)
{
    for (uint32_t which = 0; which < 2; which++) {
        const sx_tile_operand *o = &k->tile->operand[which];
        uint32_t bytes = element_bytes(k, which);
        uint32_t count = sx_layout_count(&o->held, SX_HOME_REGISTER);
        count = bytes < 4 ? count * bytes / 4 : count;
        k->factor[which] = SX_NEW_ARRAY(k->l.cx, sx_ptx_arg, count);
        if (k->factor[which] == NULL) {
            return k->l.cx->error.code;
        }
        for (uint32_t i = 0; i < count; i++) {
            k->factor[which][i] = sx_ptx_register(&k->l.b, bytes == 8 ? SX_PTX_B64 : SX_PTX_B32);
        }
    }
    return SX_OK;
}

static sx_code make_totals(sx_nvidia_block *k)
{
    uint32_t count = sx_layout_count(&k->tile->held, SX_HOME_REGISTER);
    SX_ASSERT(k->tile->matrix != NULL && k->tile->matrix->sum == SX_F32);
    k->total = SX_NEW_ARRAY(k->l.cx, sx_ptx_arg, count);
    if (k->total == NULL) {
        return k->l.cx->error.code;
    }
    for (uint32_t r = 0; r < count; r++) {
        k->total[r] = sx_ptx_register(&k->l.b, SX_PTX_B32);
        SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), k->total[r], sx_ptx_imm(0));
    }
    return SX_OK;
}

sx_code sx_nvidia_make_sums(sx_nvidia_block *k)
{
    bool wide = k->l.kernel->lane_bytes == 8;
    uint32_t count = sx_layout_count(&k->tile->held, SX_HOME_REGISTER);
    k->sum = SX_NEW_ARRAY(k->l.cx, sx_ptx_arg, count);
    if (k->sum == NULL) {
        return k->l.cx->error.code;
    }
    for (uint32_t r = 0; r < count; r++) {
        k->sum[r] = sx_ptx_register(&k->l.b, wide ? SX_PTX_B64 : SX_PTX_B32);
        SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(wide ? SX_PTX_TYPE_B64 : SX_PTX_TYPE_B32), k->sum[r],
                   sx_ptx_imm(0));
    }
    return k->tile->slice != 0 ? make_totals(k) : SX_OK;
}

void sx_nvidia_end_slice(sx_nvidia_block *k)
{
    uint32_t count = sx_layout_count(&k->tile->held, SX_HOME_REGISTER);
    SX_ASSERT(k->total != NULL);
    for (uint32_t r = 0; r < count; r++) {
        SX_PTX_PUT(&k->l.b, ADD_F32, SX_PTX_M(SX_PTX_ROUND_RN), k->total[r], k->total[r],
                   k->sum[r]);
        SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), k->sum[r], sx_ptx_imm(0));
    }
}

sx_code sx_nvidia_begin_math(sx_nvidia_block *k)
{
    const sx_matrix_instruction *m = k->tile->matrix;
    for (uint32_t which = 0; which < 2; which++) {
        const sx_tile_operand *o = &k->tile->operand[which];
        const sx_layout *layout = &o->held;
        if (m != NULL) {
            bool moves = sx_matrix_move_find(&o->held, element_bytes(k, which), &k->move[which]);
            if (!moves && element_bytes(k, which) == 2) {
                return SX_FAIL(k->l.cx, SX_UNIMPLEMENTED,
                               "kernel %s: ldmatrix does not load this factor", k->l.kernel->name);
            }
            layout = moves ? &k->move[which].rows : &o->held;
        }
        sx_nvidia_place(k, which, layout, element_bytes(k, which), sum_side(o), o->group,
                        k->tile->block_steps / o->group, &k->read[which]);
    }
    SX_TRY(make_factors(k));
    return sx_nvidia_make_sums(k);
}

/* ---- fused multiply-adds ---- */
/* What the thread holds of the group that begins at this step, in vectors as wide as layout and memory allow. */
static void load_vectors(sx_nvidia_block *k, uint32_t which, uint32_t step)
{
    const sx_tile_operand *o = &k->tile->operand[which];
    uint32_t bytes = element_bytes(k, which);
    uint32_t count = sx_layout_count(&o->held, SX_HOME_REGISTER);
    uint32_t vector = sx_layout_vector(&o->held);
    uint16_t type = bytes == 8 ? SX_PTX_TYPE_B64 : SX_PTX_TYPE_B32;
    vector = vector * bytes > VECTOR_BYTES_MAX ? VECTOR_BYTES_MAX / bytes : vector;
    for (uint32_t r = 0; r < count; r += vector) {
        uint32_t at = sx_layout_apply(&o->held, &(sx_place){{r}});
        uint32_t row = sx_at_row(at) + (o->sum_inner ? 0 : step);
        uint32_t column = sx_at_column(at) + (o->sum_inner ? step : 0);
        sx_ptx_arg from = sx_nvidia_element(&k->read[which], row, column);
        sx_ptx_arg to = vector == 1 ? k->factor[which][r]
                                    : sx_ptx_vector(&k->l.b, &k->factor[which][r], vector);
        uint16_t width = vector == 4 ? SX_PTX_VECTOR_V4 : vector == 2 ? SX_PTX_VECTOR_V2 : 0;
        SX_PTX_PUT(&k->l.b, LD, SX_PTX_M(SX_PTX_SPACE_SHARED, width, type), to, from);
    }
}

static void multiply_by_threads(sx_nvidia_block *k, uint32_t steps)
{
    const sx_tile_operand *o = k->tile->operand;
    uint32_t count = sx_layout_count(&k->tile->held, SX_HOME_REGISTER);
    sx_ptx_op fma = k->l.kernel->lane_bytes == 8 ? SX_PTX_OP_FMA_F64 : SX_PTX_OP_FMA_F32;
    for (uint32_t step = 0; step < steps; step++) {
        for (uint32_t which = 0; which < 2; which++) {
            if (step % o[which].group == 0) {
                load_vectors(k, which, step);
            }
        }
        for (uint32_t r = 0; r < count; r++) {
            uint32_t at = sx_layout_apply(&k->tile->held, &(sx_place){{r}});
            uint32_t left = register_of(&o[0], sx_at_row(at), step % o[0].group);
            uint32_t right = register_of(&o[1], sx_at_column(at), step % o[1].group);
            const sx_ptx_arg arg[] = {k->sum[r], k->factor[0][left], k->factor[1][right],
                                      k->sum[r]};
            sx_ptx_put(&k->l.b, fma, SX_PTX_M(SX_PTX_ROUND_RN), arg, SX_COUNT(arg));
        }
    }
}

/* ---- matrix instructions ---- */
/* The first register bits of a layout enumerate a fragment's elements of one 32-bit register; the bits of `taken` say
 * which matrix of one instruction; those left count the instructions. */
static uint32_t register_at(const sx_matrix_move *move, uint32_t per_word, uint32_t instruction,
                            uint32_t matrix)
{
    uint32_t taken = per_word - 1, at = 0;
    for (uint32_t j = 0; 1U << j < move->matrices; j++) {
        taken |= 1U << move->matrix_bit[j];
        at |= (matrix >> j & 1) << move->matrix_bit[j];
    }
    for (uint32_t bit = 0; instruction != 0; bit++) {
        if ((taken >> bit & 1) == 0) {
            at |= (instruction & 1) << bit;
            instruction >>= 1;
        }
    }
    return at / per_word;
}

/* Elements that lie apart along k, which ldmatrix does not turn: each is loaded; four bytes make a register. */
static void load_elements(sx_nvidia_block *k, uint32_t which, uint32_t step)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile_operand *o = &k->tile->operand[which];
    uint32_t count = sx_layout_count(&o->held, SX_HOME_REGISTER);
    SX_ASSERT(!o->sum_inner);
    if (element_bytes(k, which) == 4) {
        for (uint32_t r = 0; r < count; r++) {
            uint32_t at = sx_layout_apply(&o->held, &(sx_place){{r}});
            SX_PTX_PUT(b, LD, SX_PTX_M(SX_PTX_SPACE_SHARED, SX_PTX_TYPE_B32), k->factor[which][r],
                       sx_nvidia_element(&k->read[which], sx_at_row(at) + step, sx_at_column(at)));
        }
        return;
    }
    SX_ASSERT(element_bytes(k, which) == 1 && count % 4 == 0);
    for (uint32_t r = 0; r < count; r++) {
        uint32_t at = sx_layout_apply(&o->held, &(sx_place){{r}});
        sx_ptx_arg word = k->factor[which][r / 4];
        sx_ptx_arg byte = r % 4 == 0 ? word : sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, LD, SX_PTX_M(SX_PTX_SPACE_SHARED, SX_PTX_TYPE_U8), byte,
                   sx_nvidia_element(&k->read[which], sx_at_row(at) + step, sx_at_column(at)));
        if (r % 4 != 0) {
            SX_PTX_PUT(b, SHL, SX_PTX_M(SX_PTX_TYPE_B32), byte, byte, sx_ptx_imm(8 * (r % 4)));
            SX_PTX_PUT(b, OR, SX_PTX_M(SX_PTX_TYPE_B32), word, word, byte);
        }
    }
}

uint32_t sx_nvidia_load_matrix(sx_nvidia_block *k, const sx_nvidia_words *load,
                               uint32_t instruction, uint32_t row, uint32_t column,
                               uint32_t taken[4])
{
    static const uint16_t counts[] = {
        [1] = SX_PTX_COUNT_X1, [2] = SX_PTX_COUNT_X2, [4] = SX_PTX_COUNT_X4};
    const sx_matrix_move *move = load->move;
    sx_ptx_arg word[4];
    uint32_t at = sx_layout_apply(&move->rows, &(sx_place){{instruction}});
    for (uint32_t m = 0; m < move->matrices; m++) {
        taken[m] = register_at(move, 4 / load->places->element, instruction, m);
        word[m] = load->word[taken[m]];
    }
    sx_ptx_arg from =
        sx_nvidia_element(load->places, sx_at_row(at) + row, sx_at_column(at) + column);
    SX_PTX_PUT(&k->l.b, LDMATRIX,
               SX_PTX_M(counts[move->matrices], move->transposed ? SX_PTX_TRANS_TRANS : 0,
                        SX_PTX_SPACE_SHARED),
               sx_ptx_vector(&k->l.b, word, move->matrices), from);
    return move->matrices;
}

static void load_moved(sx_nvidia_block *k, uint32_t which, uint32_t step)
{
    const sx_tile_operand *o = &k->tile->operand[which];
    sx_nvidia_words load = {&k->read[which], &k->move[which], k->factor[which]};
    uint32_t taken[4];
    uint32_t count = sx_layout_count(&load.move->rows, SX_HOME_REGISTER);
    for (uint32_t i = 0; i < count; i++) {
        (void)sx_nvidia_load_matrix(k, &load, i, o->sum_inner ? 0 : step, o->sum_inner ? step : 0,
                                    taken);
    }
}

static void load_matrices(sx_nvidia_block *k, uint32_t which, uint32_t step)
{
    const sx_layout *held = &k->tile->operand[which].held;
    if (k->move[which].matrices == 0) {
        load_elements(k, which, step);
    } else {
        load_moved(k, which, step);
    }
    if (k->tile->matrix->factor != SX_F32) {
        return;
    }
    for (uint32_t r = 0; r < sx_layout_count(held, SX_HOME_REGISTER);
         r++) { /* to the nearest tf32 */
        SX_PTX_PUT(&k->l.b, CVT_TF32, SX_PTX_M(0), k->factor[which][r], k->factor[which][r]);
    }
}

sx_ptx_op sx_nvidia_matrix_op(const sx_matrix_instruction *m)
{
    bool whole = m->rows == 16 && m->columns == 8;
    bool shape = whole && m->steps == 16 && m->sum == SX_F32;
    bool tf32 = whole && m->steps == 8 && m->sum == SX_F32 && m->factor == SX_F32;
    bool bytes =
        whole && m->steps == 32 && m->sum == SX_I32 && (m->factor == SX_I8 || m->factor == SX_U8);
    return shape && m->factor == SX_BF16  ? SX_PTX_OP_MMA_BF16_K16
           : shape && m->factor == SX_F16 ? SX_PTX_OP_MMA_F16_K16
           : tf32                         ? SX_PTX_OP_MMA_TF32_K8
           : bytes                        ? SX_PTX_OP_MMA_INT8_K32
                                          : SX_PTX_OP_COUNT;
}

static sx_ptx_modifiers matrix_modifiers(const sx_matrix_instruction *m)
{
    return m->factor == SX_I8   ? SX_PTX_M(SX_PTX_TYPE_S8, SX_PTX_TYPE_S8)
           : m->factor == SX_U8 ? SX_PTX_M(SX_PTX_TYPE_U8, SX_PTX_TYPE_U8)
                                : SX_PTX_M(0);
}

static void multiply_by_matrices(sx_nvidia_block *k, uint32_t steps)
{
    const sx_tile_operand *o = k->tile->operand;
    const sx_matrix_instruction *m = k->tile->matrix;
    uint32_t per_word = 4 / element_bytes(k, 0);
    uint32_t own = m->rows * m->columns / 32;
    const uint32_t words[] = {m->rows * m->steps / 32 / per_word,
                              m->columns * m->steps / 32 / per_word};
    uint32_t count = sx_layout_count(&k->tile->held, SX_HOME_REGISTER);
    for (uint32_t step = 0; step < steps; step += m->steps) {
        load_matrices(k, SX_TILE_LEFT, step);
        load_matrices(k, SX_TILE_RIGHT, step);
        for (uint32_t r = 0; r < count; r += own) {
            uint32_t at = sx_layout_apply(&k->tile->held, &(sx_place){{r}});
            uint32_t left = register_of(&o[0], sx_at_row(at), 0) / per_word;
            uint32_t right = register_of(&o[1], sx_at_column(at), 0) / per_word;
            sx_ptx_arg sum = sx_ptx_vector(&k->l.b, &k->sum[r], own);
            sx_ptx_arg lhs = sx_ptx_vector(&k->l.b, &k->factor[0][left], words[0]);
            sx_ptx_arg rhs = sx_ptx_vector(&k->l.b, &k->factor[1][right], words[1]);
            const sx_ptx_arg arg[] = {sum, lhs, rhs, sum};
            sx_ptx_put(&k->l.b, sx_nvidia_matrix_op(m), matrix_modifiers(m), arg, SX_COUNT(arg));
        }
    }
}

void sx_nvidia_multiply(sx_nvidia_block *k, uint32_t steps)
{
    for (uint32_t which = 0; which < 2; which++) {
        sx_nvidia_move(k, &k->read[which], k->reading);
    }
    if (k->tile->matrix != NULL) {
        multiply_by_matrices(k, steps);
    } else {
        multiply_by_threads(k, steps);
    }
}
