#include "core/tile/fragment.h"

typedef struct {
    sx_mma_kind kind;
    sx_operand operand;
    uint32_t k;
    uint32_t bytes;
    const char *text;
} row;

static const row rows[] = {
#define SX_FRAGMENT(kind, operand, k, bytes, text) \
    {SX_##kind, SX_OPERAND_##operand, k, bytes, text},
#include "core/tile/fragments.def"
#undef SX_FRAGMENT
};

const char *sx_mma_kind_name(sx_mma_kind kind)
{
    static const char *const name[SX_MMA_KIND_COUNT] = {"mma.sync", "wgmma"};
    SX_ASSERT(kind < SX_MMA_KIND_COUNT);
    return name[kind];
}

sx_code sx_wgmma_check_n(sx_ctx *cx, sx_dtype element, uint32_t n)
{
    bool integer = sx_dtype_class_of(element) == SX_CLASS_INT;
    if (n == 0 || n > 256 || n % 8 != 0 || (integer && n > 32 && n % 16 != 0)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "wgmma: n is %u for %s; it is a multiple of %s up to 256", n,
                       sx_dtype_name(element), integer ? "16 (or 8, 24)" : "8");
    }
    SX_ASSERT(n / 8 <= 32);
    return SX_OK;
}

/* The table holds texts, so that what people read is what is used. */
static sx_code parse_row(sx_ctx *cx, const row *found, uint32_t n, sx_layout *fragment)
{
    SX_TRY(sx_layout_parse(cx, sx_span_of(found->text), fragment));
    if (found->kind == SX_WGMMA && found->operand == SX_OPERAND_C && n > 8) {
        fragment->mode[fragment->mode_count++] =
            (sx_layout_mode){.home = SX_HOME_REGISTER, .extent = (uint16_t)(n / 8), .column = 8};
    }
    return sx_layout_check(cx, fragment);
}

sx_code sx_fragment_find(sx_ctx *cx, sx_mma_kind kind, sx_operand operand, sx_dtype element,
                         uint32_t n, uint32_t k, sx_layout *fragment)
{
    SX_ASSERT(kind < SX_MMA_KIND_COUNT && operand <= SX_OPERAND_C);
    uint32_t bytes = sx_dtype_bytes(element);
    bool typed = sx_dtype_class_of(element) == SX_CLASS_FLOAT || bytes == 1;
    typed &= sx_dtype_class_of(element) != SX_CLASS_BOOL;
    const row *found = NULL;
    bool form = false; /* A and B have the same forms, and C goes with them */
    for (uint32_t i = 0; typed && i < SX_COUNT(rows); i++) {
        bool same = rows[i].kind == kind;
        form |= same && rows[i].k == k && rows[i].bytes == bytes;
        if (same && rows[i].operand == operand &&
            (rows[i].k == 0 || (rows[i].k == k && rows[i].bytes == bytes))) {
            found = &rows[i];
        }
    }
    if (found == NULL || !form) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "%s: no registers hold operand %c of k%u with elements %s",
                       sx_mma_kind_name(kind), "abc"[operand], k, sx_dtype_name(element));
    }
    if (kind == SX_WGMMA) {
        SX_TRY(sx_wgmma_check_n(cx, element, n));
    }
    return parse_row(cx, found, n, fragment);
}

sx_layout sx_matrix_fragment(uint32_t element_bytes, bool transposed)
{
    SX_ASSERT(element_bytes == 2 || (!transposed && (element_bytes == 1 || element_bytes == 4)));
    sx_layout out = {.side_bits = {3, 0}, .bits = {0, 5, 0, 0}};
    uint32_t count = 0;
    for (uint32_t bytes = element_bytes; bytes < 16; bytes *= 2) {
        out.bits[SX_HOME_REGISTER] = (uint8_t)(out.bits[SX_HOME_REGISTER] + (bytes < 4 ? 1 : 0));
        out.column[count++] = SX_AT(0, bytes / element_bytes);
        out.side_bits[SX_SIDE_COLUMN]++;
    }
    for (uint32_t r = 1; r < 8; r *= 2) {
        out.column[count++] = SX_AT(r, 0);
    }
    SX_ASSERT(count == sx_layout_input_bits(&out));
    return transposed ? sx_layout_transpose(&out) : out;
}

/* The rows whose addresses the lanes give: of the matrix (bits 0 to 2) and which matrix (bits 3 and 4). */
static void set_rows(const sx_layout *layout, const sx_quotient *quotient, sx_matrix_move *move)
{
    uint32_t registers = quotient->repeats.bits[SX_HOME_REGISTER],
             chosen = registers < 2 ? registers : 2;
    sx_layout out = *layout;
    uint32_t count = 0, lane[5] = {SX_AT(1, 0), SX_AT(2, 0), SX_AT(4, 0), 0, 0};
    for (uint32_t i = 0; i < registers; i++) {
        uint32_t at = layout->column[quotient->repeat_bit[i]];
        if (i < chosen) {
            move->matrix_bit[i] = quotient->repeat_bit[i];
            lane[3 + i] = at;
        } else {
            out.column[count++] = at;
        }
    }
    out.bits[SX_HOME_REGISTER] = (uint8_t)count;
    for (uint32_t i = 0; i < 5; i++) {
        out.column[count++] = lane[i];
    }
    uint32_t rest = sx_layout_first(layout, SX_HOME_WARP), bits = sx_layout_input_bits(layout);
    while (rest < bits) {
        out.column[count++] = layout->column[rest++];
    }
    SX_ASSERT(count == sx_layout_input_bits(&out));
    move->matrices = 1U << chosen;
    move->rows = out;
}

bool sx_matrix_move_find(const sx_layout *layout, uint32_t element_bytes, sx_matrix_move *move)
{
    SX_ASSERT(element_bytes > 0);
    if (element_bytes > 4 || layout->bits[SX_HOME_LANE] != 5) {
        return false;
    }
    sx_layout whole = sx_layout_normal(layout);
    for (uint32_t transposed = 0; transposed < (element_bytes == 2 ? 2U : 1U); transposed++) {
        sx_layout atom = sx_matrix_fragment(element_bytes, transposed != 0);
        sx_quotient quotient;
        if (sx_layout_divide(&whole, &atom, &quotient)) {
            *move = (sx_matrix_move){.transposed = transposed != 0};
            set_rows(&whole, &quotient, move);
            return true;
        }
    }
    return false;
}
