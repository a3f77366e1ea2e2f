/* move.c - moves: every place of the result is one element of an input.
 *
 * concatenate and gather walk rows of words (4 bytes where all rows have whole ones, else elements); reverse
 * and pad walk elements. A record must lie in one piece, or inside or outside of the operand, as a
 * whole: what is cut is cut by the program. */
#include <string.h>

#include "core/judge/prove.h"

typedef struct {
    sx_judge *j;
    sx_op op;
    const sx_attr *attr;
    const sx_type *input;
    uint32_t input_count;
    const sx_type *result;
    sx_places p;
    int64_t unit; /* bytes of a word */
    sx_mem mem;   /* of a word, of which every bit is kept */
    int64_t row;  /* words of a row of the result (concatenate), of a picked row (gather) */
    int64_t piece[SX_LOOP_BUFFERS_MAX]; /* concatenate: words of a row of each input */
} move;

static int64_t product(const sx_type *type, uint32_t first, uint32_t end)
{
    int64_t p = 1;
    for (uint32_t d = first; d < end; d++) {
        p *= type->dim[d].scale;
    }
    return p;
}

static void put_place(sx_places *p, int64_t stride, int64_t extent, uint32_t dim)
{
    if (extent > 1) {
        p->stride[p->count] = stride;
        p->extent[p->count] = extent;
        p->dim[p->count++] = dim;
    }
}

/* The number of a place, or the constant 0 where there is one. */
static sx_lin number_of(const move *m, const sx_final *f, uint32_t dim)
{
    for (uint32_t k = 0; k < m->p.count; k++) {
        if (m->p.dim[k] == dim) {
            return f->digit[k];
        }
    }
    sx_lin zero;
    sx_lin_init(&zero, 0);
    return zero;
}

/* ---- rows of words ---- */
enum { PLACE_WORD, PLACE_ROW, PLACE_BEFORE };

static void concatenate_places(move *m)
{
    uint32_t axis = (uint32_t)m->attr->axis;
    int64_t bytes = sx_dtype_bytes(m->result->dtype);
    m->row = product(m->result, axis, m->result->rank) * bytes / m->unit;
    for (uint32_t k = 0; k < m->input_count; k++) {
        m->piece[k] = product(&m->input[k], axis, m->input[k].rank) * bytes / m->unit;
    }
    put_place(&m->p, m->unit, m->row, PLACE_WORD);
    put_place(&m->p, m->unit * m->row, product(m->result, 0, axis), PLACE_ROW);
}

static uint32_t concatenate_value(void *self, const sx_final *f)
{
    const move *m = self;
    sx_algebra *g = &m->j->algebra;
    sx_lin word = number_of(m, f, PLACE_WORD);
    sx_lin row = number_of(m, f, PLACE_ROW);
    int64_t low, high;
    int64_t first = 0;
    if (!sx_lin_range(g, &word, &low, &high)) {
        return 0;
    }
    for (uint32_t k = 0; k < m->input_count; first += m->piece[k++]) {
        if (low < first || high >= first + m->piece[k]) {
            continue;
        }
        sx_lin from;
        sx_lin_init(&from, -first * m->unit);
        sx_lin_add_lin(g, &from, &word, m->unit);
        sx_lin_add_lin(g, &from, &row, m->unit * m->piece[k]);
        return sx_term_element(g, k, (uint8_t)m->mem, sx_form_put(g, &from), 0);
    }
    return sx_refuse(g, "a store over two pieces");
}

static void gather_places(move *m)
{
    uint32_t axis = (uint32_t)m->attr->axis;
    int64_t bytes = sx_dtype_bytes(m->result->dtype);
    int64_t picks = product(&m->input[1], 0, m->input[1].rank);
    m->row = product(&m->input[0], axis + 1, m->input[0].rank) * bytes / m->unit;
    put_place(&m->p, m->unit, m->row, PLACE_WORD);
    put_place(&m->p, m->unit * m->row, picks, PLACE_ROW);
    put_place(&m->p, m->unit * m->row * picks, product(&m->input[0], 0, axis), PLACE_BEFORE);
}

/* Indices below 0 count from the end; what is still outside is clamped. */
static uint32_t gather_value(void *self, const sx_final *f)
{
    const move *m = self;
    sx_algebra *g = &m->j->algebra;
    sx_lin word = number_of(m, f, PLACE_WORD);
    sx_lin pick = number_of(m, f, PLACE_ROW);
    sx_lin before = number_of(m, f, PLACE_BEFORE);
    int64_t extent = m->input[0].dim[m->attr->axis].scale;
    int64_t index_bytes = sx_dtype_bytes(m->input[1].dtype);
    sx_lin at;
    sx_lin_init(&at, 0);
    sx_lin_add_lin(g, &at, &pick, index_bytes);
    uint32_t index =
        sx_term_element(g, 1, (uint8_t)(SX_WIDTH_SIGNED + 8 * index_bytes), sx_form_put(g, &at), 0);
    index = sx_term_op_imm2(g, SX_LOP_SWRAP, extent, index);
    index = sx_term_op_imm2(g, SX_LOP_SCLAMP, extent, index);
    index = sx_term_op_imm2(g, SX_LOP_SMUL, m->unit * m->row, index);
    sx_lin from;
    sx_lin_init(&from, 0);
    sx_lin_add_lin(g, &from, &word, m->unit);
    sx_lin_add_lin(g, &from, &before, extent * m->row * m->unit);
    return sx_term_element(g, 0, (uint8_t)m->mem, sx_form_put(g, &from), index);
}

/* ---- elements ---- */
static uint32_t element_value(const move *m, uint32_t input, const sx_lin *element)
{
    sx_algebra *g = &m->j->algebra;
    sx_lin from;
    sx_lin_init(&from, 0);
    sx_lin_add_lin(g, &from, element, m->unit);
    return sx_term_element(g, input, (uint8_t)m->mem, sx_form_put(g, &from), 0);
}

static bool is_reversed(const move *m, uint32_t d)
{
    for (uint32_t k = 0; k < m->attr->dims.count; k++) {
        if (m->attr->dims.v[k] == d) {
            return true;
        }
    }
    return false;
}

/* Neighbours that run the same way are one place. */
static void reverse_places(move *m)
{
    int64_t stride = m->unit;
    for (uint32_t d = m->result->rank; d > 0;) {
        uint32_t last = d - 1;
        int64_t extent = 1;
        bool reversed = is_reversed(m, last);
        while (d > 0 && (is_reversed(m, d - 1) == reversed || m->result->dim[d - 1].scale == 1)) {
            extent *= m->result->dim[--d].scale;
        }
        put_place(&m->p, stride, extent, 2 * last + reversed);
        stride *= extent;
    }
}

static uint32_t reverse_value(void *self, const sx_final *f)
{
    const move *m = self;
    sx_algebra *g = &m->j->algebra;
    sx_lin element;
    sx_lin_init(&element, 0);
    for (uint32_t k = 0; k < m->p.count; k++) {
        int64_t stride = m->p.stride[k] / m->unit;
        bool reversed = m->p.dim[k] % 2 != 0;
        sx_lin_add_lin(g, &element, &f->digit[k], reversed ? -stride : stride);
        sx_lin_add_constant(g, &element, reversed ? (m->p.extent[k] - 1) * stride : 0);
    }
    return element_value(m, 0, &element);
}

static void pad_places(move *m)
{
    int64_t stride = m->unit;
    for (uint32_t d = m->result->rank; d-- > 0;) {
        put_place(&m->p, stride, m->result->dim[d].scale, d);
        stride *= m->result->dim[d].scale;
    }
}

typedef enum { PAD_INSIDE, PAD_OUTSIDE, PAD_UNKNOWN } pad_place;

/* Where along dimension `d` the number `at` lies; inside, it becomes the number in the operand. */
static pad_place place_in_operand(const move *m, uint32_t d, sx_lin *at)
{
    sx_algebra *g = &m->j->algebra;
    int64_t step = m->attr->interior.v[d] + 1;
    int64_t last = (m->input[0].dim[d].scale - 1) * step;
    int64_t low, high;
    sx_lin_add_constant(g, at, -m->attr->low.v[d]);
    if (!sx_lin_range(g, at, &low, &high)) {
        return PAD_UNKNOWN;
    }
    if (high < 0 || low > last) {
        return PAD_OUTSIDE;
    }
    sx_lin whole;
    sx_lin_init(&whole, 0);
    sx_lin rest;
    sx_lin_init(&rest, 0);
    int64_t quotient = at->constant / step - (at->constant % step < 0);
    whole.constant = quotient;
    rest.constant = at->constant - quotient * step;
    for (uint64_t left = at->vars; left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        bool multiple = at->coef[v] % step == 0;
        sx_lin_add(g, multiple ? &whole : &rest, v, multiple ? at->coef[v] / step : at->coef[v]);
    }
    int64_t from, to;
    if (!sx_lin_range(g, &rest, &from, &to)) {
        return PAD_UNKNOWN;
    }
    if (from > 0 && to < step) {
        return PAD_OUTSIDE; /* between two elements, or beyond them all */
    }
    if (from != 0 || to != 0 || low < 0 || high > last) {
        return PAD_UNKNOWN;
    }
    *at = whole;
    return PAD_INSIDE;
}

static uint32_t pad_value(void *self, const sx_final *f)
{
    const move *m = self;
    sx_algebra *g = &m->j->algebra;
    sx_lin element;
    sx_lin_init(&element, 0);
    int64_t stride = 1;
    bool known = true;
    for (uint32_t d = m->result->rank; d-- > 0;) {
        sx_lin at = number_of(m, f, d);
        pad_place place = place_in_operand(m, d, &at);
        if (place == PAD_OUTSIDE) {
            sx_lin scalar;
            sx_lin_init(&scalar, 0);
            return element_value(m, 1, &scalar);
        }
        known = known && place == PAD_INSIDE;
        sx_lin_add_lin(g, &element, &at, stride);
        stride *= m->input[0].dim[d].scale;
    }
    return known ? element_value(m, 0, &element) : sx_refuse(g, "a store inside and outside");
}

/* ---- ---- */
static bool is_static(const move *m)
{
    sx_dim elements;
    bool ok = sx_type_is_static(m->result) && sx_type_elements(m->result, &elements);
    for (uint32_t k = 0; ok && k < m->input_count; k++) {
        ok = sx_type_is_static(&m->input[k]) && sx_type_elements(&m->input[k], &elements);
    }
    return ok;
}

/* Are the rows that are copied multiples of 4 bytes? */
static bool rows_have_words(const move *m)
{
    uint32_t axis = (uint32_t)m->attr->axis;
    int64_t bytes = sx_dtype_bytes(m->result->dtype);
    if (m->op == SX_OP_GATHER) {
        return bytes * product(&m->input[0], axis + 1, m->input[0].rank) % 4 == 0;
    }
    bool ok = true;
    for (uint32_t k = 0; k < m->input_count; k++) {
        ok = ok && bytes * product(&m->input[k], axis, m->input[k].rank) % 4 == 0;
    }
    return ok;
}

sx_code sx_judge_move(sx_judge *j, sx_op op, const sx_attr *attr, const sx_type *input,
                      uint32_t input_count, const sx_type *result, const sx_kernel *kernel,
                      sx_verdict *verdict)
{
    sx_op_class of = sx_op_info_of(op)->op_class;
    if (of == SX_OPCLASS_SCATTER || of == SX_OPCLASS_DYNAMIC) {
        return sx_judge_indexed(j, op, attr, input, input_count, result, kernel, verdict);
    }
    if (of == SX_OPCLASS_SORT) {
        return sx_judge_sort(j, attr, input, result, kernel, verdict);
    }
    move m = {.j = j, .op = op, .attr = attr, .input = input, .input_count = input_count};
    sx_algebra *g = &j->algebra;
    int64_t size[SX_LOOP_BUFFERS_MAX];
    int64_t bytes = sx_dtype_bytes(result->dtype);
    sx_prove_value expected = NULL;
    SX_TRY(sx_prove_begin(j, kernel, verdict));
    m.result = result;
    if (!is_static(&m)) {
        return SX_FAIL(j->cx, SX_INPUT, "%s: shape is symbolic or too large",
                       sx_op_info_of(op)->name);
    }
    bool words = op == SX_OP_CONCATENATE || op == SX_OP_GATHER;
    m.unit = bytes;
    if (words && (bytes % 4 == 0 || rows_have_words(&m))) {
        m.unit = 4;
    }
    m.mem = m.unit == kernel->lane_bytes ? SX_MEM_LANE : m.unit == 2 ? SX_MEM_U16 : SX_MEM_U8;
    if (m.unit > kernel->lane_bytes || (m.unit == 4 && kernel->lane_bytes == 8)) {
        (void)sx_refuse(g, "words of %lld bytes in lanes of %u", (long long)m.unit,
                        kernel->lane_bytes);
    }
    for (uint32_t k = 0; k < input_count; k++) {
        size[k] = sx_tensor_elements(&input[k]) * sx_dtype_bytes(input[k].dtype);
    }
    size[input_count] = sx_tensor_elements(result) * bytes;
    switch ((int)op) {
    case SX_OP_CONCATENATE: concatenate_places(&m), expected = concatenate_value; break;
    case SX_OP_GATHER: gather_places(&m), expected = gather_value; break;
    case SX_OP_REVERSE: reverse_places(&m), expected = reverse_value; break;
    case SX_OP_PAD: pad_places(&m), expected = pad_value; break;
    default: return SX_FAIL(j->cx, SX_INPUT, "%s is no move", sx_op_info_of(op)->name);
    }
    if (sx_prove_buffers(g, kernel, input_count, 1, size)) {
        SX_TRY(sx_prove_stores(j, kernel, input_count, &m.p));
    }
    sx_prove_values(j, expected, &m);
    return sx_prove_finish(j, &m.p, m.mem, verdict);
}
