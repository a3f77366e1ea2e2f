/* wgmma.c - products of matrices by a warpgroup, four warps: D = A B + D, 64 rows, asynchronous.
 *
 * Warp i of the four holds rows 16 i to 16 i + 15 of A (in registers) and of D. Operands in shared memory are found
 * by descriptors: bits 0 to 13 the address, 16 to 29 the leading offset, 32 to 45 the stride offset, all in units of
 * 16 bytes, 49 to 51 the base offset, 62 to 63 the swizzle (0: none, 1: 128 bytes, 2: 64, 3: 32). With W the width of
 * the swizzle, or 16 bytes without one, a byte b of row r of a matrix whose rows lie along K is at
 *     address + r / 8 * stride + r mod 8 * W + b                              with a swizzle,
 *     address + r / 8 * stride + r mod 8 * 16 + b / 16 * leading + b mod 16   without;
 * a transposed one, with r along K and b along M or N, is at
 *     address + b / W * leading + r / 8 * stride + r mod 8 * W + b mod W      with a swizzle,
 *     address + b / 16 * stride + r / 8 * leading + r mod 8 * 16 + b mod 16   without;
 * then the bits of the swizzle are exchanged, on the whole address.
 *
 * Registers of a product under way may not be touched by others, nor A written, until its group is waited for. Those
 * that were written since the last wgmma.fence are not ordered before a product.
 */
#include <string.h>

#include "core/simt/machine.h"

#define WARPS 4
#define ROWS 64
#define ROWS_OF_WARP 16
#define K_BYTES 32 /* of one instruction, for every type */
#define READING 0x8000U

typedef struct {
    const sx_ptx_insn *insn;
    uint32_t columns, depth, bytes; /* N, K, of an element */
    bool in_registers;              /* A */
    bool transposed[2];             /* A, B */
    sx_ptx_modifier type[2];
    bool integers, saturates;
    bool negated[2];
} shape;

static int64_t constant_of(const sx_ptx_machine *m, const sx_ptx_insn *insn, uint32_t index)
{
    return index < insn->arg_count ? m->kernel->arg[insn->arg + index].value : 0;
}

static shape shape_of(const sx_ptx_machine *m, uint32_t at)
{
    const sx_ptx_insn *insn = &m->kernel->insn[at];
    sx_ptx_modifier result = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, 0);
    shape s = {.insn = insn, .columns = 2 * sx_ptx_counted(insn)};
    for (uint32_t i = 0; i < 2; i++) {
        s.type[i] = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, 1 + i);
        s.negated[i] = constant_of(m, insn, 4 + i) == -1;
    }
    s.bytes = sx_ptx_modifier_of(s.type[0])->value;
    s.depth = K_BYTES / s.bytes;
    s.integers = result == SX_PTX_TYPE_S32;
    s.saturates = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_SAT, 0) != 0;
    s.in_registers = m->kernel->arg[insn->arg + 1].kind == SX_PTX_ARG_VECTOR;
    s.transposed[0] = !s.in_registers && constant_of(m, insn, 6) != 0;
    s.transposed[1] = constant_of(m, insn, s.in_registers ? 6 : 7) != 0;
    return s;
}

/* ---- descriptors ---- */
typedef struct {
    uint32_t address, leading, stride, width; /* bytes; width 0: no swizzle */
} descriptor;

static sx_code read_descriptor(const sx_ptx_step *s, uint64_t bits, descriptor *d)
{
    static const uint8_t widths[] = {0, 128, 64, 32};
    d->address = (uint32_t)(bits & 0x3FFF) << 4;
    d->leading = (uint32_t)(bits >> 16 & 0x3FFF) << 4;
    d->stride = (uint32_t)(bits >> 32 & 0x3FFF) << 4;
    d->width = widths[bits >> 62];
    return (bits >> 49 & 7) == 0
               ? SX_OK
               : sx_ptx_stop(s->m, s->w, 0, s->insn, SX_UNIMPLEMENTED,
                             "descriptor 0x%llx has a base offset, which is not interpreted",
                             (unsigned long long)bits);
}

/* The address of byte `b` of line `r`: lines are rows along K, or, transposed, along M or N. */
static uint32_t address_of(const descriptor *d, bool transposed, uint32_t r, uint32_t b)
{
    uint32_t w = d->width == 0 ? 16 : d->width, at = d->address;
    if (transposed) {
        at += b / w * (d->width == 0 ? d->stride : d->leading) +
              r / 8 * (d->width == 0 ? d->leading : d->stride) + r % 8 * w + b % w;
    } else {
        at += r / 8 * d->stride + r % 8 * w + (d->width == 0 ? b / 16 * d->leading + b % 16 : b);
    }
    return sx_ptx_swizzled(d->width, at);
}

/* A line of a matrix whose lines are along K must end within its pattern. */
static sx_code check_descriptor(const sx_ptx_step *s, const descriptor *d, bool transposed)
{
    bool crosses = !transposed && d->width != 0 && d->address % d->width + K_BYTES > d->width;
    return crosses ? sx_ptx_stop(s->m, s->w, 0, s->insn, SX_MISMATCH,
                                 "the matrix at address %u goes over the end of its rows of %u "
                                 "bytes",
                                 d->address, d->width)
                   : SX_OK;
}

/* Checks and notes the reading of a matrix of `mn` rows; the four warps must have seen its bytes. */
static sx_code read_matrix(const sx_ptx_step *s, const descriptor *d, bool transposed, uint32_t mn,
                           const shape *of, const sx_ptx_stamp *stamp)
{
    sx_ptx_machine *m = s->m;
    uint32_t lines = transposed ? of->depth : mn;
    uint32_t bytes = transposed ? mn * of->bytes : K_BYTES;
    uint64_t base = sx_ptx_shared_base(m, s->w->block);
    sx_ptx_stamp checked = {.thread = 0};
    SX_TRY(check_descriptor(s, d, transposed));
    for (uint32_t i = 0; i < lines * bytes; i += 1U << m->cell_shift) { // pieces of 16 are dense
        uint32_t address = address_of(d, transposed, i / bytes, i % bytes);
        uint64_t at = base + address - SX_PTX_SHARED_FIRST;
        sx_ptx_cell *cell = &m->cell[at >> m->cell_shift];
        if (address < SX_PTX_SHARED_FIRST || at >= base + m->shared_bytes) {
            return sx_ptx_stop(m, s->w, 0, s->insn, SX_MISMATCH,
                               "the matrix has a byte at address %u, outside of shared memory",
                               address);
        }
        const sx_ptx_stamp *write = &cell->write;
        bool again = cell->known && (cell->flight | cell->barrier) == 0 &&
                     write->thread == checked.thread && write->warp_epoch == checked.warp_epoch &&
                     write->lane_epoch == checked.lane_epoch;
        for (uint32_t k = 0; !again && k < WARPS * SX_PTX_LANES; k++) {
            const sx_ptx_warp *w = &m->warp[s->w->index / WARPS * WARPS + k / SX_PTX_LANES];
            uint32_t lane = k % SX_PTX_LANES;
            SX_TRY(sx_ptx_engine_reads(m, w, lane, s->insn, at, NULL));
            if (!sx_ptx_is_fenced(m, w, lane, write)) {
                return sx_ptx_stop(m, w, lane, s->insn, SX_MISMATCH,
                                   "reads byte %llu of shared memory, which a thread wrote, and "
                                   "no fence.proxy.async lies between",
                                   (unsigned long long)(at - base));
            }
        }
        checked = *write;
        sx_ptx_note_read(m, cell, stamp, s->w, 0);
    }
    return SX_OK;
}

/* ---- elements ---- */
#define PIECE 16 /* bytes that lie one behind the other under every descriptor */

/* The index of element (mn, k) among the lines of A or B. */
static uint32_t index_of(uint32_t which, uint32_t mn, uint32_t k)
{
    return which == 0 ? 32 * mn + k : 256 * (mn / 8) + 8 * k + mn % 8;
}

/* Operand `which` of `mn` rows or columns, from shared memory. */
static void put_matrix(sx_ptx_machine *m, const sx_ptx_warp *w, const descriptor *d,
                       const shape *of, uint32_t which, uint32_t mn)
{
    const uint8_t *shared = m->shared + sx_ptx_shared_base(m, w->block);
    bool transposed = of->transposed[which];
    uint32_t lines = transposed ? of->depth : mn;
    uint32_t bytes = transposed ? mn * of->bytes : K_BYTES;
    for (uint32_t r = 0; r < lines; r++) {
        for (uint32_t b = 0; b < bytes; b += PIECE) {
            uint32_t along = b / of->bytes, address = address_of(d, transposed, r, b);
            uint32_t i = transposed ? along : r, k = transposed ? r : along;
            uint32_t first = index_of(which, i, k);
            uint32_t next = transposed ? index_of(which, i + 1, k) : index_of(which, i, k + 1);
            const sx_ptx_line_run put = {&m->lines[which], first, next - first, PIECE / of->bytes};
            sx_ptx_line_put(&put, of->type[which], shared + (address - SX_PTX_SHARED_FIRST),
                            of->negated[which]);
        }
    }
}

/* Element (row, k) of A in the registers of the warps: register r, element j of lane 4 g + t is row g + 8 (r mod 2),
 * column e t + j + 4 e (r / 2), where a register has e elements. */
static uint64_t bits_of_registers(const sx_ptx_step *s, const shape *of, uint32_t row, uint32_t k)
{
    uint32_t e = 4 / of->bytes, r = k / (4 * e) * 2 + row / 8 % 2;
    uint32_t lane = row % 8 * 4 + k / e % 4, j = k % e, bits = 8 * of->bytes;
    const sx_ptx_warp *w = &s->m->warp[s->w->index / WARPS * WARPS + row / ROWS_OF_WARP];
    uint32_t word = s->m->word[s->u->word + s->u->result_count + r];
    return w->file[word].lane[lane] >> (bits * j) & ((UINT64_C(1) << bits) - 1);
}

/* ---- the product ---- */
static void product_of_row(const sx_ptx_step *s, const shape *of, uint32_t row, bool adds)
{
    sx_ptx_machine *m = s->m;
    sx_ptx_warp *w = &m->warp[s->w->index / WARPS * WARPS + row / ROWS_OF_WARP];
    const uint32_t *word = m->word + s->u->word;
    const sx_ptx_line_product p = {&m->lines[0], &m->lines[1], of->depth, of->integers,
                                   of->saturates};
    for (uint32_t first = 0; first < of->columns; first += 8) {
        uint64_t c[8], d[8];
        for (uint32_t n = 0; n < 8; n++) { // register 4 (n / 8) + 2 (row / 8 mod 2) + n mod 2
            uint32_t r = first / 2 + row / 8 % 2 * 2 + n % 2, lane = row % 8 * 4 + n / 2;
            c[n] = adds ? w->file[word[r]].lane[lane] : 0;
        }
        sx_ptx_line_multiply(&p, row, first, c, d);
        for (uint32_t n = 0; n < 8; n++) {
            uint32_t r = first / 2 + row / 8 % 2 * 2 + n % 2, lane = row % 8 * 4 + n / 2;
            w->file[word[r]].lane[lane] = d[n];
        }
    }
}

/* Computes a product that was begun. */
static sx_code compute(sx_ptx_machine *m, const sx_ptx_product *p)
{
    const sx_ptx_step s = {.m = m,
                           .w = &m->warp[p->group * WARPS],
                           .u = &m->micro[p->insn],
                           .insn = p->insn,
                           .active = SX_PTX_ALL};
    shape of = shape_of(m, p->insn);
    descriptor a = {0}, b;
    if (m->lines == NULL) {
        m->lines = SX_NEW_ARRAY(m->cx, sx_ptx_lines, 2);
        if (m->lines == NULL) {
            return m->cx->error.code;
        }
    }
    SX_TRY(read_descriptor(&s, p->b, &b));
    if (!of.in_registers) {
        SX_TRY(read_descriptor(&s, p->a, &a));
    }
    sx_ptx_lines_begin(&m->lines[0], 32);
    sx_ptx_lines_begin(&m->lines[1], 256);
    for (uint32_t i = 0; of.in_registers && i < ROWS * of.depth; i++) {
        uint32_t row = i / of.depth, k = i % of.depth;
        uint64_t bits = bits_of_registers(&s, &of, row, k);
        const sx_ptx_line_run put = {&m->lines[0], index_of(0, row, k), 1, 1};
        sx_ptx_line_put(&put, of.type[0], (const uint8_t *)&bits, of.negated[0]);
    }
    if (!of.in_registers) {
        put_matrix(m, s.w, &a, &of, 0, ROWS);
    }
    put_matrix(m, s.w, &b, &of, 1, of.columns);
    for (uint32_t row = 0; row < ROWS; row++) {
        product_of_row(&s, &of, row, p->adds);
    }
    m->outcome->statistics.group_products += ROWS / 16 * (of.columns / 8);
    return SX_OK;
}

/* ---- registers ---- */
static sx_code check_registers(const sx_ptx_step *s, const sx_ptx_warp *w, const shape *of,
                               bool adds)
{
    sx_ptx_machine *m = s->m;
    uint32_t results = s->u->result_count, from_a = of->in_registers ? 4 : 0;
    const uint32_t *word = m->word + s->u->word;
    for (uint32_t i = 0; i < results + from_a; i++) {
        const char *what = i < results ? "accumulator" : "operand";
        uint32_t at = word[i];
        bool constant = (at & SX_PTX_CONSTANT) != 0;
        if (!constant && w->changed[at] != 0) {
            return sx_ptx_stop(m, w, 0, s->insn, SX_MISMATCH,
                               "%s %u was written after the last wgmma.fence", what,
                               i < results ? i : i - results);
        }
        if (!constant && (i >= results || adds) && w->known[at] != SX_PTX_ALL) {
            return sx_ptx_stop(m, w, (uint32_t)__builtin_ctz(~w->known[at]), s->insn, SX_MISMATCH,
                               "%s %u was never written", what, i < results ? i : i - results);
        }
        /* Products of one shape on the same accumulators follow each other in order. */
        uint32_t lock = constant ? 0 : w->lock[at];
        bool same = i < results && (lock & READING) == 0 && w->lock_insn[at] != 0 &&
                    m->kernel->insn[w->lock_insn[at] - 1].op == of->insn->op &&
                    memcmp(m->kernel->insn[w->lock_insn[at] - 1].modifier, of->insn->modifier,
                           sizeof of->insn->modifier) == 0;
        bool reads = i >= results && (lock & READING) != 0;
        if (lock != 0 && !same && !reads) {
            return sx_ptx_stop(m, w, 0, s->insn, SX_MISMATCH,
                               "%s %u belongs to another product that is under way", what,
                               i < results ? i : i - results);
        }
    }
    return SX_OK;
}

static void lock_registers(const sx_ptx_step *s, sx_ptx_warp *w, const shape *of)
{
    uint32_t results = s->u->result_count, from_a = of->in_registers ? 4 : 0;
    const uint32_t *word = s->m->word + s->u->word;
    for (uint32_t i = 0; i < results + from_a; i++) {
        if ((word[i] & SX_PTX_CONSTANT) == 0) {
            w->lock[word[i]] = (uint16_t)(w->product_group | (i < results ? 0 : READING));
            w->lock_insn[word[i]] = s->insn + 1;
            w->known[word[i]] = i < results ? SX_PTX_ALL : w->known[word[i]];
        }
    }
}

/* The value of an operand, which all threads of the warpgroup must give alike. */
static sx_code uniform(const sx_ptx_step *s, uint32_t index, const char *what, uint64_t *value)
{
    sx_ptx_machine *m = s->m;
    uint32_t at = m->word[s->u->word + s->u->result_count + index];
    if ((at & SX_PTX_CONSTANT) != 0) {
        *value = m->constant[at & ~SX_PTX_CONSTANT].lane[0];
        return SX_OK;
    }
    for (uint32_t k = 0; k < WARPS * SX_PTX_LANES; k++) {
        const sx_ptx_warp *w = &m->warp[s->w->index / WARPS * WARPS + k / SX_PTX_LANES];
        uint64_t given = w->file[at].lane[k % SX_PTX_LANES];
        if ((w->known[at] >> k % SX_PTX_LANES & 1) == 0) {
            return sx_ptx_stop(m, w, k % SX_PTX_LANES, s->insn, SX_MISMATCH, "%s was never written",
                               what);
        }
        if (k > 0 && given != *value) {
            return sx_ptx_stop(m, w, k % SX_PTX_LANES, s->insn, SX_MISMATCH,
                               "%s is 0x%llx, and 0x%llx in the first thread of the warpgroup",
                               what, (unsigned long long)given, (unsigned long long)*value);
        }
        *value = given;
    }
    return SX_OK;
}

/* All four warps are here. */
static sx_code begin(const sx_ptx_step *s)
{
    sx_ptx_machine *m = s->m;
    shape of = shape_of(m, s->insn);
    uint32_t from_a = of.in_registers ? 4 : 1;
    sx_ptx_product p = {.insn = s->insn, .group = s->w->index / WARPS};
    uint64_t adds;
    descriptor d;
    if (!of.in_registers) {
        SX_TRY(uniform(s, 0, "the descriptor of A", &p.a));
    }
    SX_TRY(uniform(s, from_a, "the descriptor of B", &p.b));
    SX_TRY(uniform(s, from_a + 1, "the predicate of D", &adds));
    p.adds = (adds & 1) != 0;
    sx_ptx_warp *first = &m->warp[p.group * WARPS];
    if (first->product_actor == 0) {
        uint32_t actor;
        SX_TRY(sx_ptx_actor_make(m, SX_PTX_ACTOR_PRODUCTS, p.group, &actor));
        for (uint32_t i = 0; i < WARPS; i++) {
            first[i].product_actor = 1 + actor;
        }
    }
    p.number = first->product_group;
    for (uint32_t i = 0; i < WARPS; i++) {
        if (first[i].product_group != p.number) {
            return sx_ptx_stop(m, &first[i], 0, s->insn, SX_MISMATCH,
                               "the warps of the warpgroup have committed different numbers of "
                               "groups");
        }
        SX_TRY(check_registers(s, &first[i], &of, p.adds));
    }
    sx_ptx_stamp stamp = sx_ptx_actor_stamp(m, first->product_actor - 1, p.number, s->insn);
    if (!of.in_registers) {
        SX_TRY(read_descriptor(s, p.a, &d));
        SX_TRY(read_matrix(s, &d, of.transposed[0], ROWS, &of, &stamp));
    }
    SX_TRY(read_descriptor(s, p.b, &d));
    SX_TRY(read_matrix(s, &d, of.transposed[1], of.columns, &of, &stamp));
    for (uint32_t i = 0; i < WARPS; i++) {
        lock_registers(s, &first[i], &of);
    }
    if (!m->launch->lazy) {
        return compute(m, &p);
    }
    SX_TRY(sx_grow(m->cx, (void **)&m->product, &m->product_capacity, m->product_count + 1,
                   sizeof *m->product));
    m->product[m->product_count++] = p;
    return SX_OK;
}

sx_code sx_ptx_run_wgmma(const sx_ptx_step *s)
{
    sx_ptx_machine *m = s->m;
    uint32_t group = s->w->index / WARPS;
    if ((group + 1) * WARPS > m->warp_count) {
        return sx_ptx_stop(m, s->w, 0, s->insn, SX_MISMATCH,
                           "warp %u belongs to no warpgroup of four", s->w->index);
    }
    s->w->running = 0;
    s->w->parked = SX_PTX_ALL;
    for (uint32_t i = 0; i < WARPS; i++) {
        const sx_ptx_warp *w = &m->warp[group * WARPS + i];
        if (w->ended != 0 || (w->parked != 0 && w->pc[0] != s->insn)) {
            return sx_ptx_stop(m, s->w, 0, s->insn, SX_MISMATCH,
                               "warp %u of the warpgroup %s: the four never meet", w->index,
                               w->ended != 0 ? "has ended threads" : "is at another wgmma");
        }
        if (w->parked == 0) {
            return SX_OK;
        }
    }
    SX_TRY(begin(s));
    for (uint32_t i = 0; i < WARPS; i++) {
        sx_ptx_warp *w = &m->warp[group * WARPS + i];
        w->running = SX_PTX_ALL;
        w->parked = 0;
        for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
            w->pc[lane]++;
        }
    }
    return SX_OK;
}

/* ---- groups ---- */
static sx_code wait_for(const sx_ptx_step *s, uint32_t last)
{
    sx_ptx_machine *m = s->m;
    sx_ptx_warp *w = s->w;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->product_count; i++) {
        const sx_ptx_product p = m->product[i];
        if (p.group == w->index / WARPS && p.number <= last) {
            SX_TRY(compute(m, &p));
        } else {
            m->product[kept++] = p;
        }
    }
    m->product_count = kept;
    for (uint32_t i = 0; i < m->file_count; i++) {
        w->lock[i] = (w->lock[i] & ~READING) <= last ? 0 : w->lock[i];
    }
    for (uint32_t lane = 0; w->product_actor != 0 && lane < SX_PTX_LANES; lane++) {
        uint32_t *seen = &w->clock[lane].seen[sx_ptx_actor_word(m, w->product_actor - 1)];
        *seen = last > *seen ? last : *seen;
    }
    return SX_OK;
}

sx_code sx_ptx_run_wgmma_group(const sx_ptx_step *s)
{
    switch ((sx_ptx_op)s->m->kernel->insn[s->insn].op) {
    case SX_PTX_OP_WGMMA_FENCE:
        memset(s->w->changed, 0, s->m->file_count * sizeof *s->w->changed);
        return SX_OK;
    case SX_PTX_OP_WGMMA_COMMIT:
        s->w->product_group++;
        return s->w->product_group < READING
                   ? SX_OK
                   : SX_FAIL(s->m->cx, SX_LIMIT, "kernel %s: more than %u groups of wgmma",
                             s->m->kernel->name, READING - 1);
    case SX_PTX_OP_WGMMA_WAIT: {
        uint32_t pending = (uint32_t)sx_ptx_operand_word(s, 0)->lane[0];
        uint32_t open = s->w->product_group; // groups count from 1
        return wait_for(s, pending + 1 < open ? open - 1 - pending : 0);
    }
    default: SX_UNREACHABLE();
    }
}

sx_code sx_ptx_wgmma_check_end(const sx_ptx_step *s)
{
    for (uint32_t i = 0; i < s->m->file_count; i++) {
        if (s->w->lock[i] != 0) {
            return sx_ptx_stop(s->m, s->w, (uint32_t)__builtin_ctz(s->active), s->insn, SX_MISMATCH,
                               "ends while a wgmma is under way");
        }
    }
    return SX_OK;
}

sx_code sx_ptx_check_unlocked(const sx_ptx_step *s)
{
    const sx_ptx_micro *u = s->u;
    const uint32_t *word = s->m->word + u->word;
    for (uint32_t i = 0; i < (uint32_t)u->result_count + u->operand_count; i++) {
        bool constant = (word[i] & SX_PTX_CONSTANT) != 0;
        uint32_t lock = constant ? 0 : s->w->lock[word[i]];
        if (lock != 0 && (i < u->result_count || (lock & READING) == 0)) {
            return sx_ptx_stop(s->m, s->w, (uint32_t)__builtin_ctz(s->active), s->insn, SX_MISMATCH,
                               "%s a register of a wgmma that is under way; wgmma.wait_group "
                               "must come first",
                               i < u->result_count ? "writes" : "reads");
        }
    }
    return SX_OK;
}
