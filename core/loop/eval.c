/* eval.c - runs a kernel: the bit oracle of the machine back ends.
 *
 * Each part is decoded once (operands become pointers, addresses sparse lists of terms) and then run at every
 * grid point. Float instructions are single IEEE operations; fma is fmaf, one rounding. Fuel: one per executed
 * instruction, taken before a grid point runs, so that a kernel never runs longer than its budget. The
 * workspace is filled with a pattern before every grid point: a kernel that carries values from one point to
 * the next is seen. */
#include "core/ir/num.h"
#include "core/loop/loop.h"

#include <math.h>
#include <string.h>

/* The lanes of the kernel are used, the others hold anything. */
typedef union {
    float f[SX_LOOP_LANES_MAX];
    uint32_t u[SX_LOOP_LANES_MAX];
    int32_t i[SX_LOOP_LANES_MAX];
    double f64[SX_LOOP_LANES_MAX]; /* lanes of 8 bytes */
    uint64_t u64[SX_LOOP_LANES_MAX];
} vector;
_Static_assert(SX_LOOP_LANES_MAX <= 32, "a mask has 32 bits");

typedef struct {
    int64_t *variable;
    int64_t coef;
} term;
typedef struct {
    sx_item_kind kind;
    sx_lop op;
    sx_mem mem;
    uint32_t imm;
    int64_t imm2;
    vector *d, *a, *b, *c;  /* vector operands */
    uint32_t *md, *ma, *mb; /* masks: one bit per lane */
    int64_t *sd, *sa, *sb;  /* integers */
    uintptr_t base;         /* buffer + offset */
    const int64_t *index;   /* index register, or NULL */
    uint32_t term_first, term_count;
    int64_t *variable; /* LOOP, END */
    int64_t trip;
    uint32_t jump; /* END: first item of the body */
} step;

typedef struct {
    sx_ctx *cx;
    const sx_kernel *kernel;
    void *const *buffer;
    uint32_t lanes;
    bool wide; /* lanes of 8 bytes */
    step *step;
    uint32_t step_count;
    term *term;
    vector *vector;
    uint32_t *mask;
    int64_t *scalar;
    int64_t variable[SX_LOOP_VARS_MAX];
} machine;

static void decode_operands(machine *m, const sx_item *item, step *s)
{
    uint32_t operand = 0;
    vector **v[] = {&s->a, &s->b, &s->c};
    uint32_t **k[] = {&s->ma, &s->mb};
    uint32_t vectors = 0;
    uint32_t masks = 0;
    uint32_t integers = 0;
    int64_t **i[] = {&s->sa, &s->sb};
    const sx_lop_info *info = sx_lop_info_of(item->op);
    for (const char *p = info->operands; *p != '\0'; p++) {
        switch (*p) {
        case 'v': *v[vectors++] = &m->vector[item->src[operand++]]; break;
        case 'm': *k[masks++] = &m->mask[item->src[operand++]]; break;
        case 's': *i[integers++] = &m->scalar[item->src[operand++]]; break;
        default: break;
        }
    }
    switch (info->result) {
    case 'v': s->d = &m->vector[item->dst]; break;
    case 'm': s->md = &m->mask[item->dst]; break;
    case 's': s->sd = &m->scalar[item->dst]; break;
    default: break;
    }
}

static void decode_address(machine *m, const sx_addr *addr, step *s, uint32_t *terms)
{
    s->base = (uintptr_t)m->buffer[addr->buffer] + (uintptr_t)addr->offset;
    s->index = addr->index_reg == SX_NO_REG ? NULL : &m->scalar[addr->index_reg];
    s->term_first = *terms;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        if (addr->coef[v] != 0) {
            m->term[(*terms)++] = (term){&m->variable[v], addr->coef[v]};
        }
    }
    s->term_count = *terms - s->term_first;
}

static sx_code decode(machine *m, const sx_part *part)
{
    sx_ctx *cx = m->cx;
    m->step_count = part->item_count;
    m->step = SX_NEW_ARRAY(cx, step, part->item_count + 1);
    m->term = SX_NEW_ARRAY(cx, term, (size_t)part->item_count * SX_LOOP_VARS_MAX + 1);
    m->vector = SX_NEW_ARRAY(cx, vector, part->vector_count + 1);
    m->mask = SX_NEW_ARRAY(cx, uint32_t, part->mask_count + 1);
    m->scalar = SX_NEW_ARRAY(cx, int64_t, part->scalar_count + 1);
    if (cx->error.code != SX_OK) {
        return cx->error.code;
    }
    uint32_t open[SX_LOOP_VARS_MAX];
    uint32_t depth = 0;
    uint32_t terms = 0;
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        step *s = &m->step[i];
        s->kind = item->kind;
        s->op = item->op;
        s->mem = item->mem;
        s->imm = item->imm;
        s->imm2 = item->imm2;
        s->variable = item->kind == SX_ITEM_OP ? NULL : &m->variable[item->dst];
        s->trip = item->trip;
        if (item->kind == SX_ITEM_LOOP) {
            open[depth++] = i;
        } else if (item->kind == SX_ITEM_END) {
            s->jump = open[--depth] + 1;
            s->trip = part->item[open[depth]].trip;
        } else {
            decode_operands(m, item, s);
            if (sx_lop_info_of(item->op)->operands[0] == 'A') {
                decode_address(m, &part->addr[item->addr], s, &terms);
            }
        }
    }
    return SX_OK;
}

static uint8_t *address_of(const machine *m, const step *s)
{
    int64_t sum = s->index != NULL ? *s->index : 0;
    const term *t = &m->term[s->term_first];
    for (uint32_t k = 0; k < s->term_count; k++) {
        sum += t[k].coef * *t[k].variable;
    }
    return (uint8_t *)(s->base + (uintptr_t)sum); // sx_kernel_check proved it inside the buffer
}

static void put_lane(const machine *m, vector *v, uint32_t lane, uint64_t bits)
{
    if (m->wide) {
        v->u64[lane] = bits;
    } else {
        v->u[lane] = (uint32_t)bits;
    }
}

static uint64_t double_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t float_bits(double value)
{
    return (uint32_t)sx_num_encode(SX_F32, value);
}

/* The lane of an element in memory. */
static uint64_t extended(const machine *m, sx_mem mem, const uint8_t *p)
{
    uint64_t whole;
    uint32_t word;
    uint16_t half;
    switch (mem) {
    case SX_MEM_LANE:
        if (m->wide) {
            memcpy(&whole, p, 8);
            return whole;
        }
        memcpy(&word, p, 4);
        return word;
    case SX_MEM_HALF:
        if (m->wide) {
            memcpy(&word, p, 4);
            return double_bits(sx_num_decode(SX_F32, word));
        }
        memcpy(&half, p, 2);
        return float_bits(sx_num_decode(SX_F16, half));
    case SX_MEM_I32: memcpy(&word, p, 4); return (uint64_t)(int64_t)(int32_t)word;
    case SX_MEM_I16: memcpy(&half, p, 2); return (uint64_t)(int64_t)(int16_t)half;
    case SX_MEM_U16: memcpy(&half, p, 2); return half;
    case SX_MEM_I8: return (uint64_t)(int64_t)(int8_t)*p;
    case SX_MEM_U8: return *p;
    case SX_MEM_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* The element of a lane; its low bytes count. */
static uint64_t narrowed(const machine *m, sx_mem mem, uint64_t lane)
{
    if (mem != SX_MEM_HALF) {
        return lane;
    }
    return m->wide ? float_bits(double_of(lane))
                   : sx_num_encode(SX_F16, sx_num_decode(SX_F32, lane));
}

static void run_memory(machine *m, const step *s)
{
    if (s->op == SX_LOP_PREFETCH) {
        return;
    }
    uint8_t *p = address_of(m, s);
    uint32_t n = s->imm;
    uint32_t size = sx_mem_bytes(s->mem, m->wide ? 8 : 4);
    int32_t narrow;
    switch (s->op) {
    case SX_LOP_LOAD:
    case SX_LOP_LOADS:
        memset(s->d, 0, sizeof(*s->d));
        if (s->op == SX_LOP_LOAD && s->mem == SX_MEM_LANE) {
            memcpy(s->d, p, (size_t)n * size);
            break;
        }
        for (uint32_t i = 0; i < n; i++) {
            int64_t at = s->op == SX_LOP_LOAD ? size : s->imm2;
            put_lane(m, s->d, i, extended(m, s->mem, p + (int64_t)i * at));
        }
        break;
    case SX_LOP_LOADB:
        for (uint32_t i = 0; i < m->lanes; i++) {
            put_lane(m, s->d, i, extended(m, s->mem, p));
        }
        break;
    case SX_LOP_STORE:
        if (s->mem == SX_MEM_LANE) {
            memcpy(p, s->a, (size_t)n * size);
            break;
        }
        for (uint32_t i = 0; i < n; i++) {
            uint64_t bits = narrowed(m, s->mem, m->wide ? s->a->u64[i] : s->a->u[i]);
            memcpy(p + (size_t)i * size, &bits, size);
        }
        break;
    case SX_LOP_STORES:
        for (uint32_t i = 0; i < n; i++) {
            uint64_t bits = narrowed(m, s->mem, m->wide ? s->a->u64[i] : s->a->u[i]);
            memcpy(p + (int64_t)i * s->imm2, &bits, size);
        }
        break;
    case SX_LOP_SLOAD32:
        memcpy(&narrow, p, 4);
        *s->sd = narrow;
        break;
    default: memcpy(s->sd, p, 8); break;
    }
}

static bool compare_floats(double x, double y, uint32_t direction)
{
    switch ((sx_direction)direction) {
    case SX_EQ: return x == y;
    case SX_NE: return !(x == y);
    case SX_LT: return x < y;
    case SX_LE: return x <= y;
    case SX_GT: return x > y;
    case SX_GE: return x >= y;
    case SX_DIRECTION_COUNT: break;
    }
    SX_UNREACHABLE();
}

static bool compare_ints(int64_t x, int64_t y, uint32_t direction)
{
    return direction == SX_EQ ? x == y : x > y;
}

static void run_mask(machine *m, const step *s)
{
    uint32_t all = UINT32_MAX >> (32 - m->lanes);
    uint32_t bits = 0;
    switch (s->op) {
    case SX_LOP_CMP:
        for (uint32_t i = 0; i < m->lanes; i++) {
            double x = m->wide ? s->a->f64[i] : (double)s->a->f[i];
            double y = m->wide ? s->b->f64[i] : (double)s->b->f[i];
            bits |= (uint32_t)compare_floats(x, y, s->imm) << i;
        }
        break;
    case SX_LOP_ICMP:
        for (uint32_t i = 0; i < m->lanes; i++) {
            int64_t x = m->wide ? (int64_t)s->a->u64[i] : s->a->i[i];
            int64_t y = m->wide ? (int64_t)s->b->u64[i] : s->b->i[i];
            bits |= (uint32_t)compare_ints(x, y, s->imm) << i;
        }
        break;
    case SX_LOP_MAND: bits = *s->ma & *s->mb; break;
    case SX_LOP_MOR: bits = *s->ma | *s->mb; break;
    case SX_LOP_MXOR: bits = *s->ma ^ *s->mb; break;
    default: bits = ~*s->ma; break;
    }
    *s->md = bits & all;
}

static void run_scalar(machine *m, const step *s)
{
    switch (s->op) {
    case SX_LOP_SVAR: *s->sd = m->variable[s->imm]; break;
    case SX_LOP_SWRAP: *s->sd = *s->sa < 0 ? *s->sa + s->imm2 : *s->sa; break;
    case SX_LOP_SCLAMP: {
        int64_t high = s->imm2 - 1;
        *s->sd = *s->sa < 0 ? 0 : *s->sa > high ? high : *s->sa;
        break;
    }
    case SX_LOP_SADD: *s->sd = (int64_t)((uint64_t)*s->sa + (uint64_t)*s->sb); break;
    case SX_LOP_SOFF: *s->sd = (int64_t)((uint64_t)*s->sa + (uint64_t)s->imm2); break;
    default: *s->sd = (int64_t)((uint64_t)*s->sa * (uint64_t)s->imm2); break;
    }
}

static float round_to(float x, uint32_t mode)
{
    switch (mode) {
    case 0: return rintf(x);
    case 1: return floorf(x);
    case 2: return ceilf(x);
    default: return truncf(x);
    }
}

static int32_t to_int(float x)
{
    return x >= -2147483648.0f && x < 2147483648.0f ? (int32_t)x : INT32_MIN;
}

#define EACH(expression)                      \
    for (uint32_t i = 0; i < m->lanes; i++) { \
        expression;                           \
    }                                         \
    break

static void run_float(const machine *m, const step *s)
{
    float *d = s->d->f;
    const float *a = s->a->f;
    const float *b = s->b != NULL ? s->b->f : NULL;
    const float *c = s->c != NULL ? s->c->f : NULL;
    switch (s->op) {
    case SX_LOP_ADD: EACH(d[i] = a[i] + b[i]);
    case SX_LOP_SUB: EACH(d[i] = a[i] - b[i]);
    case SX_LOP_MUL: EACH(d[i] = a[i] * b[i]);
    case SX_LOP_DIV: EACH(d[i] = a[i] / b[i]);
    case SX_LOP_MAX: EACH(d[i] = a[i] > b[i] ? a[i] : b[i]);
    case SX_LOP_MIN: EACH(d[i] = a[i] < b[i] ? a[i] : b[i]);
    case SX_LOP_SQRT: EACH(d[i] = sqrtf(a[i]));
    case SX_LOP_FMA: EACH(d[i] = fmaf(a[i], b[i], c[i]));
    case SX_LOP_FNMA: EACH(d[i] = fmaf(-a[i], b[i], c[i]));
    default: EACH(d[i] = round_to(a[i], s->imm));
    }
}

static uint32_t half_of(uint32_t bits)
{
    return float_bits(sx_num_round(SX_F16, sx_num_decode(SX_F32, bits)));
}

static double round_wide(double x, uint32_t mode)
{
    switch (mode) {
    case 0: return rint(x);
    case 1: return floor(x);
    case 2: return ceil(x);
    default: return trunc(x);
    }
}

static void run_float_wide(const machine *m, const step *s)
{
    double *d = s->d->f64;
    const double *a = s->a->f64;
    const double *b = s->b != NULL ? s->b->f64 : NULL;
    const double *c = s->c != NULL ? s->c->f64 : NULL;
    switch (s->op) {
    case SX_LOP_ADD: EACH(d[i] = a[i] + b[i]);
    case SX_LOP_SUB: EACH(d[i] = a[i] - b[i]);
    case SX_LOP_MUL: EACH(d[i] = a[i] * b[i]);
    case SX_LOP_DIV: EACH(d[i] = a[i] / b[i]);
    case SX_LOP_MAX: EACH(d[i] = a[i] > b[i] ? a[i] : b[i]);
    case SX_LOP_MIN: EACH(d[i] = a[i] < b[i] ? a[i] : b[i]);
    case SX_LOP_SQRT: EACH(d[i] = sqrt(a[i]));
    case SX_LOP_FMA: EACH(d[i] = fma(a[i], b[i], c[i]));
    case SX_LOP_FNMA: EACH(d[i] = fma(-a[i], b[i], c[i]));
    default: EACH(d[i] = round_wide(a[i], s->imm));
    }
}

static void run_bits_wide(const machine *m, const step *s)
{
    uint64_t *d = s->d->u64;
    const uint64_t *a = s->a != NULL ? s->a->u64 : NULL;
    const uint64_t *b = s->b != NULL ? s->b->u64 : NULL;
    const uint64_t low = UINT32_MAX;
    vector old;
    switch (s->op) {
    case SX_LOP_SET: EACH(d[i] = (uint64_t)s->imm2 << 32 | s->imm);
    case SX_LOP_MOV: EACH(d[i] = a[i]);
    case SX_LOP_AND: EACH(d[i] = a[i] & b[i]);
    case SX_LOP_OR: EACH(d[i] = a[i] | b[i]);
    case SX_LOP_XOR: EACH(d[i] = a[i] ^ b[i]);
    case SX_LOP_IADD: EACH(d[i] = a[i] + b[i]);
    case SX_LOP_ISUB: EACH(d[i] = a[i] - b[i]);
    case SX_LOP_IMUL: EACH(d[i] = (a[i] & low) * (b[i] & low));
    case SX_LOP_SHL: EACH(d[i] = a[i] << s->imm);
    case SX_LOP_SHR: EACH(d[i] = a[i] >> s->imm);
    case SX_LOP_SHLV: EACH(d[i] = b[i] < 64 ? a[i] << b[i] : 0);
    case SX_LOP_SHRV: EACH(d[i] = b[i] < 64 ? a[i] >> b[i] : 0);
    case SX_LOP_HALVE: EACH(d[i] = double_bits(sx_num_round(SX_F32, double_of(a[i]))));
    case SX_LOP_BLEND: EACH(d[i] = (*s->ma >> i & 1) != 0 ? a[i] : b[i]);
    case SX_LOP_SWAP: old = *s->a; EACH(d[i] = old.u64[(i ^ s->imm) % m->lanes]);
    case SX_LOP_BCAST0: old = *s->a; EACH(d[i] = old.u64[0]);
    case SX_LOP_IOTA: EACH(d[i] = i + s->imm);
    default: EACH(d[i] = (uint64_t)*s->sa);
    }
}

static uint32_t arithmetic_right(uint32_t x, uint32_t places)
{
    return x >> places | (x >> 31 != 0 && places > 0 ? UINT32_MAX << (32 - places) : 0);
}

static void run_bits(const machine *m, const step *s)
{
    uint32_t *d = s->d->u;
    const uint32_t *a = s->a != NULL ? s->a->u : NULL;
    const uint32_t *b = s->b != NULL ? s->b->u : NULL;
    vector old;
    switch (s->op) {
    case SX_LOP_SET: EACH(d[i] = s->imm);
    case SX_LOP_MOV: EACH(d[i] = a[i]);
    case SX_LOP_AND: EACH(d[i] = a[i] & b[i]);
    case SX_LOP_OR: EACH(d[i] = a[i] | b[i]);
    case SX_LOP_XOR: EACH(d[i] = a[i] ^ b[i]);
    case SX_LOP_IMUL: EACH(d[i] = a[i] * b[i]);
    case SX_LOP_HALVE: EACH(d[i] = half_of(a[i]));
    case SX_LOP_IADD: EACH(d[i] = a[i] + b[i]);
    case SX_LOP_ISUB: EACH(d[i] = a[i] - b[i]);
    case SX_LOP_SHL: EACH(d[i] = a[i] << s->imm);
    case SX_LOP_SHR: EACH(d[i] = a[i] >> s->imm);
    case SX_LOP_SAR: EACH(d[i] = arithmetic_right(a[i], s->imm));
    case SX_LOP_SHLV: EACH(d[i] = b[i] < 32 ? a[i] << b[i] : 0);
    case SX_LOP_SHRV: EACH(d[i] = b[i] < 32 ? a[i] >> b[i] : 0);
    case SX_LOP_SARV: EACH(d[i] = arithmetic_right(a[i], b[i] < 31 ? b[i] : 31));
    case SX_LOP_F2I: EACH(s->d->i[i] = to_int(s->a->f[i]));
    case SX_LOP_I2F: EACH(s->d->f[i] = (float)s->a->i[i]);
    case SX_LOP_BLEND: EACH(d[i] = (*s->ma >> i & 1) != 0 ? a[i] : b[i]);
    case SX_LOP_SWAP: old = *s->a; EACH(d[i] = old.u[(i ^ s->imm) % m->lanes]);
    case SX_LOP_BCAST0: old = *s->a; EACH(d[i] = old.u[0]);
    case SX_LOP_IOTA: EACH(d[i] = i + s->imm);
    default: EACH(d[i] = (uint32_t)*s->sa);
    }
}

static void run_op(machine *m, const step *s)
{
    if (s->op <= SX_LOP_PREFETCH && s->op >= SX_LOP_LOAD) {
        run_memory(m, s);
    } else if (s->op >= SX_LOP_ADD && s->op <= SX_LOP_ROUND) {
        (m->wide ? run_float_wide : run_float)(m, s);
    } else if (s->op >= SX_LOP_CMP && s->op <= SX_LOP_MNOT) {
        run_mask(m, s);
    } else if (s->op == SX_LOP_SLOAD32 || s->op == SX_LOP_SLOAD64) {
        run_memory(m, s);
    } else if (s->op >= SX_LOP_SVAR && s->op <= SX_LOP_SMUL) {
        run_scalar(m, s);
    } else {
        (m->wide ? run_bits_wide : run_bits)(m, s);
    }
}

static void run_point(machine *m)
{
    const sx_kernel *kernel = m->kernel;
    const sx_loop_buffer *last =
        &kernel->buffer[kernel->buffer_count > 0 ? kernel->buffer_count - 1 : 0];
    if (last->role == SX_BUFFER_WORKSPACE && last->size > 0) {
        memset(m->buffer[kernel->buffer_count - 1], 0xA7, (size_t)last->size);
    }
    for (uint32_t pc = 0; pc < m->step_count;) {
        const step *s = &m->step[pc];
        switch (s->kind) {
        case SX_ITEM_OP:
            run_op(m, s);
            pc++;
            break;
        case SX_ITEM_LOOP:
            *s->variable = 0;
            pc++;
            break;
        case SX_ITEM_END:
            *s->variable += 1;
            pc = *s->variable < s->trip ? s->jump : pc + 1;
            break;
        }
    }
}

/* Instructions executed at one grid point; saturates. */
static uint64_t point_cost(const sx_part *part)
{
    int64_t cost = 0;
    int64_t factor[SX_LOOP_VARS_MAX + 1] = {1};
    uint32_t depth = 0;
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        if (item->kind == SX_ITEM_LOOP) {
            if (!sx_mul_i64(factor[depth], item->trip, &factor[depth + 1])) {
                return UINT64_MAX;
            }
            depth++;
        } else if (item->kind == SX_ITEM_END) {
            depth--;
        }
        if (!sx_add_i64(cost, factor[depth], &cost)) {
            return UINT64_MAX;
        }
    }
    return (uint64_t)cost;
}

static sx_code run_part(machine *m, const sx_part *part)
{
    SX_TRY(decode(m, part));
    uint64_t cost = point_cost(part);
    for (int64_t i = 0; i < part->grid[0]; i++) {
        for (int64_t j = 0; j < part->grid[1]; j++) {
            for (int64_t k = 0; k < part->grid[2]; k++) {
                SX_TRY(sx_spend(m->cx, cost));
                m->variable[0] = i;
                m->variable[1] = j;
                m->variable[2] = k;
                run_point(m);
            }
        }
    }
    return SX_OK;
}

static machine machine_of(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer)
{
    SX_ASSERT(kernel->lanes >= 1 && kernel->lanes <= SX_LOOP_LANES_MAX);
    return (machine){.cx = cx,
                     .kernel = kernel,
                     .buffer = buffer,
                     .lanes = kernel->lanes,
                     .wide = kernel->lane_bytes == 8};
}

sx_code sx_kernel_eval_point(sx_ctx *cx, const sx_kernel *kernel, uint32_t part,
                             const int64_t index[3], void *const *buffer)
{
    SX_ASSERT(part < kernel->part_count);
    SX_TRY(sx_kernel_check(cx, kernel));
    const sx_part *p = &kernel->part[part];
    machine m = machine_of(cx, kernel, buffer);
    SX_TRY(decode(&m, p));
    SX_TRY(sx_spend(cx, point_cost(p)));
    for (uint32_t d = 0; d < 3; d++) {
        SX_ASSERT(index[d] >= 0 && index[d] < p->grid[d]);
        m.variable[d] = index[d];
    }
    run_point(&m);
    return SX_OK;
}

sx_code sx_kernel_eval(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer)
{
    SX_TRY(sx_kernel_check(cx, kernel));
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        machine m = machine_of(cx, kernel, buffer);
        SX_TRY(run_part(&m, &kernel->part[p]));
    }
    return SX_OK;
}
