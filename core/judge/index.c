/* index.c - moves whose places are operands: scatter, dynamic_slice, dynamic_update_slice.
 *
 * Stores go to known places. What a place holds is written down here from the operation alone: the element at a base
 * that is the sum of clamped starts; a choice between two elements, by whether clamping a distance changes it; or a run
 * over all indices, in order, whose step leaves the value as it is unless the index names the row of the place. */
#include <string.h>

#include "core/judge/prove.h"

typedef struct {
    /* Of x and of the box (the result of a slice, an update); the operand that is the start, or 0: it is always 0. */
    int64_t extent, box;
    uint32_t start;
    /* Bytes from one index to the next in both. */
    int64_t stride, box_stride;
} axis;

typedef struct {
    sx_judge *j;
    sx_op op;
    const sx_attr *attr;
    const sx_type *input;
    uint32_t input_count;
    const sx_type *result;
    sx_places p;
    int64_t unit;
    sx_mem mem;
    /* Neighbours without a start are one; the last one has none, and is the row. */
    axis axis[SX_RANK_MAX + 1];
    uint32_t count;
} indexed;

static void put_place(indexed *m, int64_t stride, int64_t extent, uint32_t dim)
{
    if (extent > 1) {
        m->p.stride[m->p.count] = stride;
        m->p.extent[m->p.count] = extent;
        m->p.dim[m->p.count++] = dim;
    }
}

/* The number of a place along a dimension, or the constant 0 where there is one. */
static sx_lin number_of(const indexed *m, const sx_final *f, uint32_t dim)
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

/* An integer that operand `k` has at a byte. */
static uint32_t integer_at(indexed *m, uint32_t k, const sx_lin *byte)
{
    sx_algebra *g = &m->j->algebra;
    uint32_t width = SX_WIDTH_SIGNED + 8 * sx_dtype_bytes(m->input[k].dtype);
    return sx_term_element(g, k, (uint8_t)width, sx_form_put(g, byte), 0);
}

static uint32_t clamped_start(indexed *m, const axis *a)
{
    sx_lin zero;
    sx_lin_init(&zero, 0);
    uint32_t start = integer_at(m, a->start, &zero);
    return sx_term_op_imm2(&m->j->algebra, SX_LOP_SCLAMP, a->extent - a->box + 1, start);
}

static uint32_t added(indexed *m, uint32_t x, uint32_t y)
{
    return x == 0 ? y : sx_term_op(&m->j->algebra, SX_LOP_SADD, 0, x, y, 0);
}

/* ---- dynamic slices and updates ---- */
static void find_axes(indexed *m, const sx_type *box, uint32_t first)
{
    const sx_type *x = &m->input[0];
    const sx_ints *dims = &m->attr->dims;
    uint32_t next = 0;
    m->count = 0;
    for (uint32_t d = 0; d < x->rank; d++) {
        axis a = {.extent = x->dim[d].scale, .box = box->dim[d].scale};
        bool named = next < dims->count && dims->v[next] == (int64_t)d;
        a.start = named && a.box < a.extent ? first + next : 0;
        next += named;
        bool joins = m->count > 0 && m->axis[m->count - 1].start == 0 && a.start == 0;
        if (joins) {
            m->axis[m->count - 1].extent *= a.extent;
            m->axis[m->count - 1].box *= a.box;
        } else if (a.extent > 1) {
            m->axis[m->count++] = a;
        }
    }
    if (m->count == 0 || m->axis[m->count - 1].start != 0) {
        m->axis[m->count++] = (axis){.extent = 1, .box = 1};
    }
    int64_t bytes = sx_dtype_bytes(m->result->dtype);
    int64_t stride = bytes, box_stride = bytes;
    for (uint32_t k = m->count; k-- > 0;) {
        m->axis[k].stride = stride;
        m->axis[k].box_stride = box_stride;
        stride *= m->axis[k].extent;
        box_stride *= m->axis[k].box;
    }
    axis *row = &m->axis[m->count - 1];
    if (row->extent * bytes % 4 == 0) {
        m->unit = 4;
        row->extent = row->box = row->extent * bytes / 4;
        row->stride = row->box_stride = 4;
    }
}

/* The last axis that has a start and the row lie in one piece, in x too. */
static void slice_places(indexed *m)
{
    axis *row = &m->axis[m->count - 1];
    axis *last = m->count > 1 ? row - 1 : row;
    if (last != row) {
        last->stride = row->stride;
        put_place(m, row->stride, last->box * row->box, m->count - 2);
        m->count--;
    } else {
        put_place(m, row->stride, row->box, 0);
    }
    for (uint32_t k = m->count - 1; k-- > 0;) {
        put_place(m, m->axis[k].box_stride, m->axis[k].box, k);
    }
}

static uint32_t slice_value(void *self, const sx_final *f)
{
    indexed *m = self;
    sx_algebra *g = &m->j->algebra;
    uint32_t base = 0;
    sx_lin from;
    sx_lin_init(&from, 0);
    for (uint32_t k = 0; k < m->count; k++) {
        const axis *a = &m->axis[k];
        sx_lin at = number_of(m, f, k);
        sx_lin_add_lin(g, &from, &at, a->stride);
        if (a->start != 0) { /* of the one that lies in the row, rows of the others behind it */
            int64_t step = k + 1 == m->count ? a->box_stride : a->stride;
            base = added(m, base, sx_term_op_imm2(g, SX_LOP_SMUL, step, clamped_start(m, a)));
        }
    }
    return sx_term_element(g, 0, (uint8_t)m->mem, sx_form_put(g, &from), base);
}

static void update_places(indexed *m)
{
    for (uint32_t k = m->count; k-- > 0;) {
        put_place(m, m->axis[k].stride, m->axis[k].extent, k);
    }
}

static uint32_t update_value(void *self, const sx_final *f)
{
    indexed *m = self;
    sx_algebra *g = &m->j->algebra;
    uint32_t base = 0, inside = 0;
    sx_lin x, update;
    sx_lin_init(&x, 0);
    sx_lin_init(&update, 0);
    for (uint32_t k = 0; k < m->count; k++) {
        const axis *a = &m->axis[k];
        sx_lin at = number_of(m, f, k);
        sx_lin_add_lin(g, &x, &at, a->stride);
        if (a->start == 0) {
            sx_lin_add_lin(g, &update, &at, a->box_stride);
            continue;
        }
        uint32_t back = sx_term_op_imm2(g, SX_LOP_SMUL, -1, clamped_start(m, a));
        uint32_t far = added(m, sx_term_scalar(g, sx_form_put(g, &at)), back);
        uint32_t near = sx_term_op_imm2(g, SX_LOP_SCLAMP, a->box, far);
        uint32_t wanted = sx_term_op(g, SX_LOP_S2V, 0, far, 0, 0);
        uint32_t had = sx_term_op(g, SX_LOP_S2V, 0, near, 0, 0);
        uint32_t same = sx_term_op(g, SX_LOP_ICMP, SX_EQ, wanted, had, 0);
        inside = inside == 0 ? same : sx_term_op(g, SX_LOP_MAND, 0, inside, same, 0);
        base = added(m, base, sx_term_op_imm2(g, SX_LOP_SMUL, a->box_stride, near));
    }
    uint8_t mem = (uint8_t)m->mem;
    uint32_t taken = sx_term_element(g, 1, mem, sx_form_put(g, &update), base);
    uint32_t kept = sx_term_element(g, 0, mem, sx_form_put(g, &x), 0);
    return inside == 0 ? taken : sx_term_op(g, SX_LOP_BLEND, 0, inside, taken, kept);
}

/* ---- scatter ---- */
enum { PLACE_INNER, PLACE_ROW, PLACE_BEFORE };
#define PICK_VAR 3u /* no variable of the program is left in what is compared */

static int64_t product(const sx_type *type, uint32_t first, uint32_t end)
{
    int64_t p = 1;
    for (uint32_t d = first; d < end; d++) {
        p *= type->dim[d].scale;
    }
    return p;
}

static void scatter_places(indexed *m)
{
    const sx_type *x = &m->input[0];
    uint32_t axis_ = (uint32_t)m->attr->axis;
    int64_t inner = product(x, axis_ + 1, x->rank);
    int64_t extent = x->dim[axis_].scale;
    put_place(m, m->unit, inner, PLACE_INNER);
    put_place(m, m->unit * inner, extent, PLACE_ROW);
    put_place(m, m->unit * inner * extent, product(x, 0, axis_), PLACE_BEFORE);
}

static uint32_t element_of(indexed *m, uint32_t operand, const sx_lin *byte)
{
    bool keeps = m->attr->reducer == SX_REPLACE || m->result->dtype == SX_BOOL;
    sx_algebra *g = &m->j->algebra;
    uint32_t raw = sx_term_element(g, operand, (uint8_t)m->mem, sx_form_put(g, byte), 0);
    return keeps ? raw : sx_reference_decode(&m->j->reference, m->result->dtype, raw);
}

/* One more than the row that an index names: 0 and beyond the last are none. */
static uint32_t named_row(indexed *m, int64_t extent)
{
    sx_algebra *g = &m->j->algebra;
    sx_lin at;
    sx_lin_init(&at, 0);
    sx_lin_add(g, &at, PICK_VAR, sx_dtype_bytes(m->input[1].dtype));
    uint32_t s = sx_term_op_imm2(g, SX_LOP_SWRAP, extent, integer_at(m, 1, &at));
    s = sx_term_op_imm2(g, SX_LOP_SOFF, 1, s);
    return sx_term_op(g, SX_LOP_S2V, 0, sx_term_op_imm2(g, SX_LOP_SCLAMP, extent + 2, s), 0, 0);
}

static uint32_t scatter_value(void *self, const sx_final *f)
{
    indexed *m = self;
    sx_algebra *g = &m->j->algebra;
    sx_reference *r = &m->j->reference;
    const sx_type *x = &m->input[0];
    sx_dtype dtype = m->result->dtype;
    int64_t inner = product(x, (uint32_t)m->attr->axis + 1, x->rank);
    int64_t extent = x->dim[m->attr->axis].scale;
    int64_t picks = product(&m->input[1], 0, m->input[1].rank);
    sx_lin before = number_of(m, f, PLACE_BEFORE);
    sx_lin row = number_of(m, f, PLACE_ROW);
    sx_lin column = number_of(m, f, PLACE_INNER);
    sx_lin from, update;
    sx_lin_init(&from, 0);
    sx_lin_add_lin(g, &from, &column, m->unit);
    update = from;
    sx_lin_add_lin(g, &from, &row, m->unit * inner);
    sx_lin_add_lin(g, &from, &before, m->unit * inner * extent);
    sx_lin_add(g, &update, PICK_VAR, m->unit * inner);
    sx_lin_add_lin(g, &update, &before, m->unit * inner * picks);
    sx_lin_add_constant(g, &row, 1);
    uint32_t first = element_of(m, 0, &from);
    uint32_t hole = sx_reference_hole(r);
    uint32_t sum = element_of(m, 2, &update);
    if (m->attr->reducer != SX_REPLACE) {
        sum = sx_reference_combine(r, m->attr->reducer, dtype, hole, sum);
    }
    uint32_t named = named_row(m, extent);
    uint32_t own = sx_term_int(g, sx_form_put(g, &row));
    uint32_t names = sx_term_op(g, SX_LOP_ICMP, SX_EQ, named, own, 0);
    uint32_t next = sx_term_op(g, SX_LOP_BLEND, 0, names, sum, hole);
    uint32_t value = sx_term_close(g, first, hole, next, PICK_VAR, picks);
    if (m->attr->reducer == SX_REPLACE || dtype == SX_BOOL) {
        return value;
    }
    return sx_reference_encode(r, dtype, sx_reference_closed(r, dtype, value));
}

/* ---- ---- */
static bool is_static(const indexed *m)
{
    sx_dim elements;
    bool ok = sx_type_is_static(m->result) && sx_type_elements(m->result, &elements);
    for (uint32_t k = 0; ok && k < m->input_count; k++) {
        ok = sx_type_is_static(&m->input[k]) && sx_type_elements(&m->input[k], &elements);
    }
    return ok;
}

sx_code sx_judge_indexed(sx_judge *j, sx_op op, const sx_attr *attr, const sx_type *input,
                         uint32_t input_count, const sx_type *result, const sx_kernel *kernel,
                         sx_verdict *verdict)
{
    indexed m = {.j = j, .op = op, .attr = attr, .input = input, .input_count = input_count};
    sx_algebra *g = &j->algebra;
    int64_t size[SX_LOOP_BUFFERS_MAX];
    sx_prove_value expected;
    SX_TRY(sx_prove_begin(j, kernel, verdict));
    m.result = result;
    m.unit = sx_dtype_bytes(result->dtype);
    j->reference.g = g;
    if (!is_static(&m)) {
        return SX_FAIL(j->cx, SX_INPUT, "%s: shape is symbolic or too large",
                       sx_op_info_of(op)->name);
    }
    for (uint32_t k = 0; k <= input_count; k++) {
        const sx_type *type = k < input_count ? &input[k] : result;
        size[k] = sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    }
    if (op == SX_OP_SCATTER) {
        scatter_places(&m), expected = scatter_value;
        m.mem = sx_loop_mem(result->dtype, kernel->lane_bytes);
    } else {
        bool slices = op == SX_OP_DYNAMIC_SLICE;
        SX_ASSERT(slices || op == SX_OP_DYNAMIC_UPDATE_SLICE);
        find_axes(&m, slices ? result : &input[1], slices ? 1 : 2);
        slices ? slice_places(&m) : update_places(&m);
        expected = slices ? slice_value : update_value;
        m.mem = m.unit == 4 ? SX_MEM_LANE : m.unit == 2 ? SX_MEM_U16 : SX_MEM_U8;
    }
    if (m.unit > kernel->lane_bytes || (op != SX_OP_SCATTER && kernel->lane_bytes == 8)) {
        (void)sx_refuse(g, "words of %lld bytes in lanes of %u", (long long)m.unit,
                        kernel->lane_bytes);
    }
    if (sx_prove_buffers(g, kernel, input_count, 1, size)) {
        SX_TRY(sx_prove_stores(j, kernel, input_count, &m.p));
    }
    sx_prove_values(j, expected, &m);
    return sx_prove_finish(j, &m.p, m.mem, verdict);
}
