/* random_kernel.h - random kernels over every instruction of the loop IR, and inputs with special values among them. */
#ifndef SX_TESTS_CORE_X64_RANDOM_KERNEL_H
#define SX_TESTS_CORE_X64_RANDOM_KERNEL_H
#include "tests/core/x64/machine.h"

#include "core/base/rng.h"

#define BYTES 8192

typedef struct {
    sx_loop_builder b;
    sx_rng rng;
    uint32_t lanes;
    int64_t extent[SX_LOOP_VARS_MAX]; /* of variables in scope */
    uint32_t f[48], i[16], m[12];     /* registers of floats, integers, masks */
    uint32_t s[4];                    /* and of bounded byte offsets */
    uint32_t fn, in, mn, sn;
    uint32_t fs, is, ms; /* how many of each at most */
    bool used[SX_LOP_COUNT];
    bool rich; /* in constants */
} maker;

static uint32_t below(maker *g, uint32_t n)
{
    return (uint32_t)sx_rng_below(&g->rng, n);
}

static uint32_t any_lanes(maker *g)
{
    return below(g, 3) == 0 ? g->lanes : 1 + below(g, g->lanes);
}

/* An address with `low` bytes before and `room` behind it, over some of the variables in scope. */
static sx_addr address(maker *g, uint32_t buffer, int64_t low, int64_t room, int64_t unit)
{
    sx_addr a = {.buffer = buffer, .index_reg = SX_NO_REG};
    int64_t minimum = 0;
    int64_t maximum = 0;
    for (uint32_t v = 0; v < 3 + g->b.open_count; v++) {
        if (below(g, 2) == 0) {
            a.coef[v] = unit * ((int64_t)below(g, 21) - (below(g, 4) == 0 ? 10 : 0));
            int64_t reach = a.coef[v] * (g->extent[v] - 1);
            minimum += reach < 0 ? reach : 0;
            maximum += reach > 0 ? reach : 0;
        }
    }
    if (g->sn > 0 && below(g, 4) == 0) {
        a.index_reg = g->s[below(g, g->sn)];
        maximum += 128; /* see bounded() */
    }
    int64_t slack = BYTES - room - maximum + minimum - low;
    ck_assert_int_ge(slack, 0);
    a.offset = low - minimum + (below(g, 4) == 0 ? slack : (int64_t)below(g, (uint32_t)slack + 1));
    a.offset -= (a.offset - low + minimum) % unit;
    return a;
}

static uint32_t op(maker *g, sx_lop lop, uint32_t dst, const sx_addr *addr, uint32_t x, uint32_t y,
                   uint32_t z, uint32_t imm, int64_t imm2)
{
    g->used[lop] = true;
    return sx_loop_op(&g->b, lop, dst, addr, x, y, z, imm, imm2);
}

/* Puts a fresh register into a pool, or reuses one of it as destination. */
static uint32_t destination(maker *g, uint32_t *pool, uint32_t count, uint32_t size)
{
    return count == size || (count > 0 && below(g, 3) == 0) ? pool[below(g, count)] : SX_NO_REG;
}

static void record(uint32_t *pool, uint32_t *count, uint32_t dst, uint32_t made)
{
    if (dst == SX_NO_REG) {
        pool[(*count)++] = made;
    }
}

/* A register, sometimes a fresh constant: in rich kernels there are more constants than registers. */
static uint32_t pick_f(maker *g)
{
    if (below(g, g->rich ? 3 : 12) == 0) {
        float value = (float)below(g, 200) * 0.0625f - 3.0f;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        return op(g, SX_LOP_SET, SX_NO_REG, NULL, 0, 0, 0, bits, 0);
    }
    return g->f[below(g, g->fn)];
}

static uint32_t pick_i(maker *g)
{
    if (g->rich && below(g, 3) == 0) {
        return op(g, SX_LOP_IOTA, SX_NO_REG, NULL, 0, 0, 0, below(g, 50), 0);
    }
    return g->i[below(g, g->in)];
}

static void make_float(maker *g)
{
    static const float values[] = {0.0f, 1.0f, -0.5f, 3.25f, 1e-30f, -7.5f, 1e20f, 0.1f};
    uint32_t dst = destination(g, g->f, g->fn, g->fs);
    uint32_t made = 0;
    uint32_t kind = g->fn == 0 ? below(g, 4) : below(g, 20);
    uint32_t n = any_lanes(g);
    sx_addr a;
    float value = values[below(g, SX_COUNT(values))];
    uint32_t bits;
    memcpy(&bits, &value, 4);
    switch (kind) {
    case 0: made = op(g, SX_LOP_SET, dst, NULL, 0, 0, 0, bits, 0); break;
    case 1:
        a = address(g, below(g, 4) == 0 ? 5 : 0, 0, 4 * n, 4);
        made = op(g, SX_LOP_LOAD, dst, &a, 0, 0, 0, n, 0);
        break;
    case 2:
        a = address(g, 0, 0, 4, 4);
        made = op(g, SX_LOP_LOADB, dst, &a, 0, 0, 0, 0, 0);
        break;
    case 3: {
        int64_t stride = 4 * ((int64_t)below(g, 40) - 12);
        int64_t reach = stride * ((int64_t)n - 1);
        a = address(g, 0, reach < 0 ? -reach : 0, (reach > 0 ? reach : 0) + 4, 4);
        made = op(g, SX_LOP_LOADS, dst, &a, 0, 0, 0, n, stride);
        break;
    }
    case 4:
    case 5:
    case 6:
        made = op(g, (sx_lop)(SX_LOP_ADD + below(g, 6)), dst, NULL, pick_f(g), pick_f(g), 0, 0, 0);
        break;
    case 7: made = op(g, SX_LOP_SQRT, dst, NULL, pick_f(g), 0, 0, 0, 0); break;
    case 8:
    case 9:
    case 10: made = op(g, SX_LOP_FMA, dst, NULL, pick_f(g), pick_f(g), pick_f(g), 0, 0); break;
    case 11: made = op(g, SX_LOP_FNMA, dst, NULL, pick_f(g), pick_f(g), pick_f(g), 0, 0); break;
    case 12: {
        uint32_t how = below(g, 5);
        made =
            op(g, how == 4 ? SX_LOP_HALVE : SX_LOP_ROUND, dst, NULL, pick_f(g), 0, 0, how % 4, 0);
        break;
    }
    case 13:
        if (g->mn > 0) {
            made =
                op(g, SX_LOP_BLEND, dst, NULL, g->m[below(g, g->mn)], pick_f(g), pick_f(g), 0, 0);
            break;
        }
        made = op(g, SX_LOP_MOV, dst, NULL, pick_f(g), 0, 0, 0, 0);
        break;
    case 14: made = op(g, SX_LOP_MOV, dst, NULL, pick_f(g), 0, 0, 0, 0); break;
    case 15:
        made = op(g, SX_LOP_SWAP, dst, NULL, pick_f(g), 0, 0, 1U << below(g, g->lanes == 8 ? 3 : 4),
                  0);
        break;
    case 16: made = op(g, SX_LOP_BCAST0, dst, NULL, pick_f(g), 0, 0, 0, 0); break;
    case 17:
    case 18:
        if (g->in > 0) {
            made = op(g, SX_LOP_I2F, dst, NULL, pick_i(g), 0, 0, 0, 0);
            break;
        }
        made = op(g, SX_LOP_MUL, dst, NULL, pick_f(g), pick_f(g), 0, 0, 0);
        break;
    default: { /* sign taken away */
        uint32_t m = op(g, SX_LOP_SET, SX_NO_REG, NULL, 0, 0, 0, 0x7FFFFFFF, 0);
        made = op(g, SX_LOP_AND, dst, NULL, pick_f(g), m, 0, 0, 0);
        break;
    }
    }
    record(g->f, &g->fn, dst, made);
}

static void make_int(maker *g)
{
    uint32_t dst = destination(g, g->i, g->in, g->is);
    uint32_t made = 0;
    uint32_t n = any_lanes(g);
    sx_addr a;
    switch (g->in == 0 ? below(g, 4) : below(g, 10)) {
    case 0: made = op(g, SX_LOP_SET, dst, NULL, 0, 0, 0, below(g, 1000) - 500, 0); break;
    case 1: made = op(g, SX_LOP_IOTA, dst, NULL, 0, 0, 0, below(g, 100), 0); break;
    case 2:
        a = address(g, 1, 0, 4 * n, 4);
        made = op(g, SX_LOP_LOAD, dst, &a, 0, 0, 0, n, 0);
        break;
    case 3:
        a = address(g, 2, 0, n, 1);
        made = op(g, SX_LOP_LOAD, dst, &a, 0, 0, 0, n, 0);
        g->b.part->item[g->b.part->item_count - 1].mem = SX_MEM_U8;
        break;
    case 4:
    case 5:
        made = op(g, (sx_lop)(SX_LOP_AND + below(g, 6)), dst, NULL, pick_i(g), pick_i(g), 0, 0, 0);
        break;
    case 6:
        made =
            op(g, (sx_lop)(SX_LOP_SHL + below(g, 3)), dst, NULL, pick_i(g), 0, 0, below(g, 32), 0);
        break;
    case 7:
        made = op(g, (sx_lop)(SX_LOP_SHLV + below(g, 3)), dst, NULL, pick_i(g), pick_i(g), 0, 0, 0);
        break;
    case 8:
        if (g->sn > 0) {
            made = op(g, SX_LOP_S2V, dst, NULL, g->s[below(g, g->sn)], 0, 0, 0, 0);
            break;
        }
        made = op(g, SX_LOP_MOV, dst, NULL, pick_i(g), 0, 0, 0, 0);
        break;
    default:
        made = g->fn > 0 ? op(g, SX_LOP_F2I, dst, NULL, pick_f(g), 0, 0, 0, 0)
                         : op(g, SX_LOP_MOV, dst, NULL, pick_i(g), 0, 0, 0, 0);
        break;
    }
    record(g->i, &g->in, dst, made);
}

static void make_mask(maker *g)
{
    uint32_t dst = destination(g, g->m, g->mn, g->ms);
    uint32_t made = 0;
    switch (g->mn == 0 ? below(g, 2) : below(g, 4)) {
    case 0:
        if (g->in > 0) {
            made = op(g, SX_LOP_ICMP, dst, NULL, pick_i(g), pick_i(g), 0,
                      below(g, 2) == 0 ? SX_EQ : SX_GT, 0);
            break;
        }
        made = op(g, SX_LOP_CMP, dst, NULL, pick_f(g), pick_f(g), 0, SX_NE, 0);
        break;
    case 1:
        made =
            op(g, SX_LOP_CMP, dst, NULL, pick_f(g), pick_f(g), 0, below(g, SX_DIRECTION_COUNT), 0);
        break;
    case 2: made = op(g, SX_LOP_MNOT, dst, NULL, g->m[below(g, g->mn)], 0, 0, 0, 0); break;
    default:
        made = op(g, (sx_lop)(SX_LOP_MAND + below(g, 3)), dst, NULL, g->m[below(g, g->mn)],
                  g->m[below(g, g->mn)], 0, 0, 0);
        break;
    }
    record(g->m, &g->mn, dst, made);
}

/* A byte offset in [0, 124], a multiple of 4. Kept registers are written once, so that their bound holds in
 * loops too. */
static void make_scalar(maker *g)
{
    uint32_t s;
    sx_addr a;
    switch (below(g, 3)) {
    case 0:
        a = address(g, 1, 0, 4, 4);
        s = op(g, SX_LOP_SLOAD32, SX_NO_REG, &a, 0, 0, 0, 0, 0);
        break;
    case 1:
        a = address(g, 1, 0, 8, 4);
        s = op(g, SX_LOP_SLOAD64, SX_NO_REG, &a, 0, 0, 0, 0, 0);
        break;
    default:
        s = op(g, SX_LOP_SVAR, SX_NO_REG, NULL, 0, 0, 0, below(g, 3 + g->b.open_count), 0);
        break;
    }
    s = op(g, SX_LOP_SWRAP, SX_NO_REG, NULL, s, 0, 0, 0, (int64_t)below(g, 2000));
    s = op(g, SX_LOP_SOFF, SX_NO_REG, NULL, s, 0, 0, 0, (int64_t)below(g, 40) - 20);
    if (g->sn > 0) {
        s = op(g, SX_LOP_SADD, SX_NO_REG, NULL, s, g->s[below(g, g->sn)], 0, 0, 0);
    }
    s = op(g, SX_LOP_SCLAMP, SX_NO_REG, NULL, s, 0, 0, 0, 1 + (int64_t)below(g, 32));
    s = op(g, SX_LOP_SMUL, SX_NO_REG, NULL, s, 0, 0, 0, 4);
    g->s[g->sn < SX_COUNT(g->s) ? g->sn++ : below(g, SX_COUNT(g->s))] = s;
}

static void make_store(maker *g)
{
    uint32_t n = any_lanes(g);
    sx_addr a;
    switch (below(g, 6)) {
    case 0:
        if (g->in > 0) {
            a = address(g, 4, 0, n, 1);
            (void)sx_loop_access(&g->b, SX_LOP_STORE, SX_MEM_U8, &a, pick_i(g), n, 0);
            break;
        }
        a = address(g, 0, 0, 4, 4);
        (void)op(g, SX_LOP_PREFETCH, 0, &a, 0, 0, 0, 0, 0);
        break;
    case 1:
        a = address(g, 5, 0, 4 * n, 4);
        (void)op(g, SX_LOP_STORE, 0, &a, pick_f(g), 0, 0, n, 0);
        break;
    case 2:
        if (g->in > 0) {
            a = address(g, 6, 0, 4 * n, 4);
            (void)op(g, SX_LOP_STORE, 0, &a, pick_i(g), 0, 0, n, 0);
            break;
        }
        a = address(g, 0, 0, 4, 4);
        (void)op(g, SX_LOP_PREFETCH, 0, &a, 0, 0, 0, 0, 0);
        break;
    default:
        a = address(g, 3, 0, 4 * n, 4);
        (void)op(g, SX_LOP_STORE, 0, &a, pick_f(g), 0, 0, n, 0);
        break;
    }
}

static void make_block(maker *g, uint32_t depth)
{
    uint32_t count = 2 + below(g, g->fs > 12 && depth < 2 ? 40 : 14);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t kind = below(g, 16);
        if (kind < 8 || g->fn == 0) {
            make_float(g);
        } else if (kind < 10) {
            make_int(g);
        } else if (kind < 11) {
            make_mask(g);
        } else if (kind < 12) {
            make_scalar(g);
        } else if (kind < 14) {
            make_store(g);
        } else if (depth < 3) {
            int64_t trip = 1 + (int64_t)below(g, 4);
            uint32_t v = sx_loop_open(&g->b, trip);
            g->extent[v] = trip;
            uint32_t before[4] = {g->fn, g->in, g->mn, g->sn};
            make_block(g, depth + 1);
            sx_loop_close(&g->b);
            if (below(g, 2) == 0) { /* sometimes nothing that was made inside is used behind */
                g->fn = before[0];
                g->in = before[1];
                g->mn = before[2];
            }
            g->sn = before[3] < g->sn ? before[3] : g->sn;
        }
    }
    make_float(g);
    make_store(g);
}

SX_UNUSED static sx_kernel *make_kernel(maker *g, sx_ctx *cx, uint32_t lanes, uint32_t number)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "random_%u", number);
    sx_kernel *kernel;
    ck_sx_ok(cx, sx_kernel_make(cx, name, lanes, 4, &kernel));
    static const sx_buffer_role roles[] = {SX_BUFFER_IN,  SX_BUFFER_IN,  SX_BUFFER_IN,
                                           SX_BUFFER_OUT, SX_BUFFER_OUT, SX_BUFFER_OUT,
                                           SX_BUFFER_OUT};
    for (uint32_t k = 0; k < SX_COUNT(roles); k++) {
        (void)sx_kernel_add_buffer(kernel, roles[k], BYTES);
    }
    g->lanes = lanes;
    g->rich = below(g, 2) == 0;
    bool crowded = below(g, 4) == 0; /* more values alive than registers */
    g->fs = crowded ? 48 : 12;
    g->is = crowded ? 16 : 6;
    g->ms = crowded ? 12 : 4;
    uint32_t parts = 1 + below(g, 2);
    for (uint32_t p = 0; p < parts; p++) {
        for (uint32_t v = 0; v < 3; v++) {
            g->extent[v] = 1 + (int64_t)below(g, 3);
        }
        g->fn = g->in = g->mn = g->sn = 0;
        sx_loop_begin_part(&g->b, cx, kernel, g->extent[0], g->extent[1], g->extent[2]);
        make_block(g, 0);
        ck_sx_ok(cx, sx_loop_end_part(&g->b));
    }
    ck_sx_ok(cx, sx_kernel_check(cx, kernel));
    return kernel;
}

/* Floats with special values among them, small and large integers, bytes. */
SX_UNUSED static void random_input(void *self, uint32_t k, uint8_t *bytes, size_t size)
{
    static const uint32_t special[] = {0,          0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001,
                                       0x00000001, 0x007FFFFF, 0x3F800000, 0xCF000000, 0x4F000000};
    uint64_t *seed = self;
    sx_rng rng = {*seed + k};
    for (size_t i = 0; i + 4 <= size; i += 4) {
        uint64_t draw = sx_rng_next(&rng);
        float value = sx_rng_f32(&rng) * 16;
        uint32_t word = (uint32_t)draw;
        if (k == 0 || k == 3 || k == 5) {
            memcpy(&word, &value, 4);
            word = draw >> 58 == 0 ? special[draw % SX_COUNT(special)] : word;
        } else if (draw >> 63 == 0) {
            word %= 64;
        }
        memcpy(bytes + i, &word, 4);
    }
}
#endif
