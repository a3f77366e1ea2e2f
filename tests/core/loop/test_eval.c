/* Random kernels over every instruction: the interpreter and compiled C agree to the bit; text reads back. */
#include "tests/core/loop/harness.h"

#define IN_LANES 1024
#define OUT_LANES 8192
#define KERNELS 15

static const uint32_t lane_counts[] = {16, 8, 16, 8, 32};

typedef struct {
    sx_loop_builder b;
    sx_rng *rng;
    uint32_t lanes;
    uint32_t f[64], i[64], m[16],
        s[16]; /* registers holding floats, integers, masks, bounded offsets */
    uint32_t fn, in, mn, sn;
    uint32_t stored;
    bool used[SX_LOP_COUNT];
} maker;

static uint32_t below(maker *g, uint32_t n)
{
    return (uint32_t)sx_rng_below(g->rng, n);
}

static void push(uint32_t *list, uint32_t *count, uint32_t size, maker *g, uint32_t reg)
{
    if (*count < size) {
        list[(*count)++] = reg;
    } else {
        list[below(g, size)] = reg;
    }
}

/* An address in buffer 0 (floats), 1 (integers) or 2 (bytes) with `room` bytes behind it, using variables and
 * offsets. */
static sx_addr address(maker *g, uint32_t buffer, uint32_t room)
{
    sx_addr a = {.buffer = buffer, .index_reg = SX_NO_REG};
    a.offset = 4 * (int64_t)below(g, 16);
    a.coef[0] = 4 * (int64_t)below(g, 20);
    a.coef[1] = -4 * (int64_t)below(g, 3);
    a.offset += 2 * 4 * 3;
    if (g->b.open_count > 0) {
        a.coef[3] = 4 * (int64_t)below(g, 9);
    }
    if (below(g, 3) == 0 && g->sn > 0) {
        a.index_reg = g->s[below(g, g->sn)];
    }
    ck_assert_uint_le(room, 1024);
    return a;
}

static uint32_t op(maker *g, sx_lop o, const sx_addr *a, uint32_t x, uint32_t y, uint32_t z,
                   uint32_t imm, int64_t imm2)
{
    g->used[o] = true;
    return sx_loop_op(&g->b, o, SX_NO_REG, a, x, y, z, imm, imm2);
}

static void random_memory(maker *g, sx_lop o)
{
    uint32_t n = 1 + below(g, g->lanes);
    bool bytes = o == SX_LOP_LOAD && below(g, 3) == 0;
    uint32_t buffer = bytes ? 2 : below(g, 2);
    sx_addr a = address(g, buffer, 64);
    uint32_t r = op(g, o, &a, SX_NO_REG, SX_NO_REG, SX_NO_REG, n,
                    o == SX_LOP_LOADS ? 4 * (int64_t)below(g, 12) : 0);
    if (bytes) {
        static const sx_mem mems[] = {SX_MEM_U8, SX_MEM_I8, SX_MEM_U16, SX_MEM_I16};
        g->b.part->item[g->b.part->item_count - 1].mem = mems[below(g, SX_COUNT(mems))];
    }
    if (buffer == 0) {
        push(g->f, &g->fn, 64, g, r);
    } else {
        push(g->i, &g->in, 64, g, r);
    }
}

static void random_scalar(maker *g, sx_lop o)
{
    sx_addr a = address(g, 1, 8);
    a.index_reg = SX_NO_REG;
    uint32_t r;
    if (o == SX_LOP_SVAR) {
        r = op(g, o, NULL, SX_NO_REG, SX_NO_REG, SX_NO_REG, below(g, 3 + g->b.open_count), 0);
    } else {
        r = op(g, o, &a, SX_NO_REG, SX_NO_REG, SX_NO_REG, 0, 0);
    }
    r = op(g, SX_LOP_SWRAP, NULL, r, SX_NO_REG, SX_NO_REG, 0, 1 + below(g, 50));
    r = op(g, SX_LOP_SOFF, NULL, r, SX_NO_REG, SX_NO_REG, 0, (int64_t)below(g, 40) - 20);
    if (g->sn > 0) {
        r = op(g, SX_LOP_SADD, NULL, r, g->s[below(g, g->sn)], SX_NO_REG, 0, 0);
    }
    r = op(g, SX_LOP_SCLAMP, NULL, r, SX_NO_REG, SX_NO_REG, 0, 1 + below(g, 20));
    r = op(g, SX_LOP_SMUL, NULL, r, SX_NO_REG, SX_NO_REG, 0, 4 * (int64_t)below(g, 5));
    push(g->s, &g->sn, 16, g, r);
    push(g->i, &g->in, 64, g, op(g, SX_LOP_S2V, NULL, r, SX_NO_REG, SX_NO_REG, 0, 0));
}

static void random_mask(maker *g, sx_lop o)
{
    uint32_t r;
    if (o == SX_LOP_CMP) {
        r = op(g, o, NULL, g->f[below(g, g->fn)], g->f[below(g, g->fn)], SX_NO_REG,
               below(g, SX_DIRECTION_COUNT), 0);
    } else if (o == SX_LOP_ICMP) {
        r = op(g, o, NULL, g->i[below(g, g->in)], g->i[below(g, g->in)], SX_NO_REG,
               below(g, 2) ? SX_EQ : SX_GT, 0);
    } else {
        r = op(g, o, NULL, g->m[below(g, g->mn)],
               o == SX_LOP_MNOT ? SX_NO_REG : g->m[below(g, g->mn)], SX_NO_REG, 0, 0);
    }
    push(g->m, &g->mn, 16, g, r);
}

static void random_vector(maker *g, sx_lop o)
{
    uint32_t x = g->f[below(g, g->fn)];
    uint32_t y = g->f[below(g, g->fn)];
    uint32_t z = g->f[below(g, g->fn)];
    uint32_t i = g->i[below(g, g->in)];
    uint32_t j = g->i[below(g, g->in)];
    const char *operands = sx_lop_info_of(o)->operands;
    bool integer = (o >= SX_LOP_AND && o <= SX_LOP_SARV) || o == SX_LOP_IOTA || o == SX_LOP_F2I;
    uint32_t imm = o == SX_LOP_ROUND  ? below(g, 4)
                   : o == SX_LOP_SWAP ? 1u << below(g, (uint32_t)__builtin_ctz(g->lanes))
                   : o == SX_LOP_IOTA ? below(g, 100)
                   : o == SX_LOP_SET  ? 0x3f800000u + below(g, 1u << 24)
                                      : below(g, 32);
    uint32_t r;
    if (o == SX_LOP_BLEND) {
        r = op(g, o, NULL, g->m[below(g, g->mn)], x, y, 0, 0);
    } else if (o == SX_LOP_F2I || !integer) {
        r = op(g, o, NULL, o == SX_LOP_I2F ? i : x, strlen(operands) > 1 ? y : SX_NO_REG, z, imm,
               0);
    } else {
        r = op(g, o, NULL, i, j, SX_NO_REG, imm, 0);
    }
    if (integer) {
        push(g->i, &g->in, 64, g, r);
    } else {
        push(g->f, &g->fn, 64, g, r);
    }
}

static void random_op(maker *g)
{
    sx_lop o = (sx_lop)below(g, SX_LOP_COUNT);
    if (o == SX_LOP_STORE || o == SX_LOP_STORES || o == SX_LOP_PREFETCH ||
        (o >= SX_LOP_SWRAP && o <= SX_LOP_S2V)) {
        return; // made elsewhere
    }
    char result = sx_lop_info_of(o)->result;
    if (sx_lop_info_of(o)->operands[0] == 'A' && result == 'v') {
        random_memory(g, o);
    } else if (result == 's') {
        random_scalar(g, o);
    } else if (result == 'm') {
        random_mask(g, o);
    } else {
        random_vector(g, o);
    }
}

/* Stores one register where no other grid point or store writes. */
static void store(maker *g, uint32_t reg, uint32_t buffer)
{
    if (g->stored >= 40) {
        return;
    }
    uint32_t n = 1 + below(g, g->lanes);
    sx_addr a = {.buffer = buffer, .index_reg = SX_NO_REG};
    int64_t size = buffer == 5 ? 1 : 4;
    a.offset = size * g->lanes * g->stored++;
    a.coef[0] = size * g->lanes * 40 * 3;
    a.coef[1] = size * g->lanes * 40;
    sx_mem mem = buffer == 5 ? SX_MEM_U8 : SX_MEM_LANE;
    bool apart = n <= g->lanes / 2 && below(g, 2) == 0; /* every other place */
    g->used[apart ? SX_LOP_STORES : SX_LOP_STORE] = true;
    (void)sx_loop_access(&g->b, apart ? SX_LOP_STORES : SX_LOP_STORE, mem, &a, reg, n,
                         apart ? 2 * size : 0);
}

static sx_kernel *random_kernel(sx_ctx *cx, sx_rng *rng, const char *name, uint32_t lanes,
                                bool used[SX_LOP_COUNT])
{
    sx_kernel *kernel;
    ck_sx_ok(cx, sx_kernel_make(cx, name, lanes, 4, &kernel));
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, IN_LANES * 4);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, IN_LANES * 4);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, IN_LANES * 4);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, OUT_LANES * 4);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, OUT_LANES * 4);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, OUT_LANES);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_WORKSPACE, 256);
    maker g = {.rng = rng, .lanes = lanes};
    sx_loop_begin_part(&g.b, cx, kernel, 2, 3, 1);
    random_memory(&g, SX_LOP_LOADB);
    push(g.f, &g.fn, 64, &g, sx_loop_set(&g.b, 1.5f));
    push(g.i, &g.in, 64, &g, op(&g, SX_LOP_IOTA, NULL, SX_NO_REG, SX_NO_REG, SX_NO_REG, 3, 0));
    random_mask(&g, SX_LOP_CMP);
    sx_addr work = {.buffer = 6, .offset = 64, .index_reg = SX_NO_REG};
    (void)op(&g, SX_LOP_STORE, &work, g.f[0], SX_NO_REG, SX_NO_REG, lanes, 0);
    for (uint32_t k = 0; k < 40; k++) {
        random_op(&g);
    }
    (void)sx_loop_open(&g.b, 5);
    (void)op(&g, SX_LOP_PREFETCH, &work, SX_NO_REG, SX_NO_REG, SX_NO_REG, 0, 0);
    for (uint32_t k = 0; k < 20; k++) {
        random_op(&g);
    }
    uint32_t sum = g.f[below(&g, g.fn)]; // carried around the loop
    uint32_t again = op(&g, SX_LOP_LOAD, &work, SX_NO_REG, SX_NO_REG, SX_NO_REG, lanes, 0);
    (void)sx_loop_op(&g.b, SX_LOP_FMA, sum, NULL, sum, again, sum, 0, 0);
    sx_loop_close(&g.b);
    for (uint32_t k = 0; k < 24; k++) {
        store(&g, g.f[below(&g, g.fn)], 3);
    }
    for (uint32_t k = 0; k < 12; k++) {
        store(&g, g.i[below(&g, g.in)], k % 3 == 0 ? 5 : 4);
    }
    store(&g, sum, 3);
    ck_sx_ok(cx, sx_loop_end_part(&g.b));
    for (uint32_t k = 0; k < SX_LOP_COUNT; k++) {
        used[k] = used[k] || g.used[k];
    }
    return kernel;
}

typedef struct {
    uint8_t in[3][IN_LANES * 4];
    uint8_t out[2][OUT_LANES * 4];
    uint8_t bytes[OUT_LANES];
    uint8_t work[256];
} memory;

static void fill(memory *m, sx_rng *rng)
{
    static const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, 1e-42f, 3e38f, 2147483648.0f};
    memset(m, 0, sizeof(*m));
    for (uint32_t k = 0; k < IN_LANES; k++) {
        float f = sx_rng_f32(rng) * (sx_rng_below(rng, 2) ? 1.0f : 1000.0f);
        if (sx_rng_below(rng, 8) == 0) {
            f = special[sx_rng_below(rng, SX_COUNT(special))];
        }
        if (sx_rng_below(rng, 32) == 0) {
            f = NAN;
        }
        memcpy(&m->in[0][4 * k], &f, 4);
        uint32_t u = (uint32_t)sx_rng_next(rng);
        memcpy(&m->in[1][4 * k], &u, 4);
        memcpy(&m->in[2][4 * k], &u, 4);
    }
}

static void buffers(memory *m, void *list[7])
{
    void *all[7] = {m->in[0], m->in[1], m->in[2], m->out[0], m->out[1], m->bytes, m->work};
    memcpy(list, all, sizeof(all));
}

static memory memory_a, memory_b;

START_TEST(test_eval_is_compiled_c)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    harness h;
    harness_init(&h);
    bool used[SX_LOP_COUNT] = {false};
    sx_kernel *kernel[KERNELS];
    for (uint32_t k = 0; k < KERNELS; k++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "random_%u", k);
        kernel[k] = random_kernel(&cx, &rng, name, lane_counts[k % 5], used);
        harness_add(&h, &cx, kernel[k]);
    }
    for (uint32_t k = 0; k < SX_LOP_COUNT; k++) {
        ck_assert_msg(used[k] || k == SX_LOP_SET, "%s is not covered",
                      sx_lop_info_of((sx_lop)k)->name);
    }
    harness_build(&h, _i == 0 ? "-O1" : "-O2");
    for (uint32_t k = 0; k < KERNELS; k++) {
        void *list[7];
        fill(&memory_a, &rng);
        memory_b = memory_a;
        buffers(&memory_a, list);
        ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel[k], list));
        buffers(&memory_b, list);
        harness_run(&h, kernel[k], list);
        for (uint32_t i = 0; i < OUT_LANES; i++) {
            ck_assert_msg(harness_same(&memory_a.out[0][4 * i], &memory_b.out[0][4 * i]),
                          "kernel %u: float %u: 0x%08x, in C 0x%08x", k, i,
                          ((const uint32_t *)(const void *)memory_a.out[0])[i],
                          ((const uint32_t *)(const void *)memory_b.out[0])[i]);
        }
        ck_assert_mem_eq(memory_a.out[1], memory_b.out[1], sizeof(memory_a.out[1]));
        ck_assert_mem_eq(memory_a.bytes, memory_b.bytes, sizeof(memory_a.bytes));
    }
    harness_fini(&h);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_text_reads_back)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    for (uint32_t k = 0; k < 20; k++) {
        bool used[SX_LOP_COUNT] = {false};
        sx_kernel *kernel = random_kernel(&cx, &rng, "text", lane_counts[k % 5], used);
        kernel->flops = 1e9 / 3;
        kernel->bytes = 12345;
        kernel->numerics = sx_rng_next(&rng);
        sx_buf first, second;
        sx_buf_init(&first, 1 << 24);
        sx_buf_init(&second, 1 << 24);
        ck_sx_ok(&cx, sx_kernel_print(&cx, kernel, &first));
        sx_kernel *again;
        ck_sx_ok(&cx, sx_kernel_parse(&cx, sx_buf_span(&first), &again));
        ck_sx_ok(&cx, sx_kernel_check(&cx, again));
        ck_sx_ok(&cx, sx_kernel_print(&cx, again, &second));
        ck_assert(sx_span_equal(sx_buf_span(&first), sx_buf_span(&second)));
        ck_assert_uint_eq(again->numerics, kernel->numerics);
        void *list[7];
        fill(&memory_a, &rng);
        memory_b = memory_a;
        buffers(&memory_a, list);
        ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel, list));
        buffers(&memory_b, list);
        ck_sx_ok(&cx, sx_kernel_eval(&cx, again, list));
        ck_assert_mem_eq(&memory_a.out, &memory_b.out, sizeof(memory_a.out));
        /* every truncation and many single-byte changes: an error or a kernel, never a crash */
        for (uint32_t t = 0; t < 200; t++) {
            sx_ctx small;
            sx_ctx_init(&small, 1 << 24);
            sx_span cut = sx_buf_span(&first);
            cut.len = (size_t)sx_rng_below(&rng, cut.len - 2); // the last two are "}\n"
            ck_assert_int_ne(sx_kernel_parse(&small, cut, &again), SX_OK);
            sx_ctx_reset_error(&small);
            uint8_t *at = &first.ptr[sx_rng_below(&rng, first.len)];
            uint8_t old = *at;
            *at = (uint8_t)(32 + sx_rng_below(&rng, 95));
            if (sx_kernel_parse(&small, sx_buf_span(&first), &again) == SX_OK) {
                (void)sx_kernel_check(&small, again);
            }
            *at = old;
            sx_ctx_fini(&small);
        }
        sx_buf_fini(&first);
        sx_buf_fini(&second);
    }
    sx_ctx_fini(&cx);
}
END_TEST

static double number(const uint8_t *bytes, bool wide, uint32_t i)
{
    float f;
    double d;
    memcpy(&f, bytes + (wide ? 0 : 4 * i), 4);
    memcpy(&d, bytes + (wide ? 8 * i : 0), 8);
    return wide ? d : (double)f;
}

/* One point by itself gives what the whole grid gives, with lanes of both widths and 32 of them too. */
START_TEST(test_points_one_by_one)
{
    static const uint32_t lanes[] = {8, 16, 32, 4, 8, 32}; /* the last three are of 8 bytes */
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    for (uint32_t k = 0; k < SX_COUNT(lanes); k++) {
        char text[512];
        sx_kernel *kernel;
        uint8_t in[512] = {0}, whole[512], points[512];
        uint32_t n = lanes[k], bytes = n * (k < 3 ? 4 : 8);
        (void)snprintf(text, sizeof(text),
                       "kernel \"p\" lanes %u%s numerics 0x0 flops 0 bytes 0 { buffer in 512\n"
                       "buffer out 512 part 2 1 1 registers 4 2 0 { x0 = load b0[0 + %u*v0], %u\n"
                       "x1 = swap x0, %u x2 = add x0, x1 m0 = cmp x0, x1, 2 m1 = mnot m0\n"
                       "x3 = blend m1, x2, x0 store b1[0 + %u*v0], x3, %u } }",
                       n, k < 3 ? "" : " wide", bytes, n, n / 2, bytes, n);
        /* no NaN; what one point orders so, the other orders else */
        for (uint32_t i = 0; i < bytes; i++) {
            in[i] = (uint8_t)(i * 37 % 61);
            in[bytes + i] = (uint8_t)(60 - in[i]);
        }
        memset(whole, 0, sizeof(whole));
        memset(points, 0, sizeof(points));
        ck_sx_ok(&cx, sx_kernel_parse(&cx, sx_span_of(text), &kernel));
        ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel, (void *[]){in, whole}));
        for (int64_t p = 2; p-- > 0;) {
            const int64_t index[3] = {p, 0, 0};
            ck_sx_ok(&cx, sx_kernel_eval_point(&cx, kernel, 0, index, (void *[]){in, points}));
        }
        ck_assert_mem_eq(whole, points, sizeof(whole));
        for (uint32_t i = 0; i < 2 * n; i++) { /* the lesser of two as it is, of others the sum */
            double x = number(in, k >= 3, i), y = number(in, k >= 3, i ^ n / 2);
            double sum = k >= 3 ? x + y : (double)(float)(x + y);
            ck_assert_double_eq(number(whole, k >= 3, i), x < y ? x : sum);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_eval_spends_fuel)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_kernel *kernel;
    sx_span text = SX_SPAN_LITERAL(
        "kernel \"long\" lanes 8 numerics 0x0 flops 0 bytes 0 { buffer out 32\n"
        "part 1 1 1 registers 1 0 0 { loop v3 1000000 { loop v4 1000000 { loop v5 1000000 {\n"
        "x0 = set 0x3f800000 } } } store b0[0], x0, 8 } }");
    ck_sx_ok(&cx, sx_kernel_parse(&cx, text, &kernel));
    float out[8];
    void *list[] = {out};
    ck_sx_fails(&cx, sx_kernel_eval(&cx, kernel, list), SX_QUOTA, "fuel");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.eval");
    TCase *cases = tcase_create("eval");
    tcase_add_loop_test(cases, test_eval_is_compiled_c, 0, 2);
    tcase_add_test(cases, test_text_reads_back);
    tcase_add_test(cases, test_points_one_by_one);
    tcase_add_test(cases, test_eval_spends_fuel);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
