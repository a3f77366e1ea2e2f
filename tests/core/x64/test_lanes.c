/* Loads, stores and instructions of both widths of lanes as machine code: every type in memory in every form and
 * count of lanes, every instruction on special values, with the bits of the interpreter. */
#include "tests/core/x64/machine.h"

#include "core/base/rng.h"

typedef struct {
    uint32_t lanes, lane_bytes;
} shape;
static const shape shapes[] = {{8, 4}, {16, 4}, {4, 8}, {8, 8}};

typedef struct {
    bool wide;
    uint64_t seed;
} drawn;

/* Random bits, every third lane a special float: zeros, infinities, NaN, subnormals, halves between two. */
static void draw(void *self, uint32_t k, uint8_t *bytes, size_t size)
{
    const drawn *d = self;
    static const double special[] = {0.0,          -0.0,      1,        -1.5,      65504,
                                     65519.9,      65520,     1e30,     -1e300,    0x1p-24,
                                     0x1p-25,      0x1.8p-25, 0x1p-126, -0x1p-149, 0x1p-150,
                                     2147483648.0, 0.5,       3.5,      0x1p-1060, 0x1.000001p0};
    sx_rng rng = {d->seed + k};
    size_t step = d->wide ? 8 : 4;
    for (size_t i = 0; i + step <= size; i += step) {
        uint64_t word = sx_rng_next(&rng);
        double value = sx_rng_below(&rng, 20) == 0 ? (double)INFINITY
                       : sx_rng_below(&rng, 20) == 0
                           ? (double)NAN
                           : special[sx_rng_below(&rng, SX_COUNT(special))];
        float narrow = (float)value;
        if (i / step % 3 == 0) {
            memcpy(&word, &value, 8);
            uint32_t low;
            memcpy(&low, &narrow, 4);
            word = d->wide ? word : low;
        }
        memcpy(bytes + i, &word, step);
    }
}

/* Doubles are compared as such: any NaN equals any NaN. */
static void check(sx_ctx *cx, const sx_kernel *kernel, uint64_t seed)
{
    drawn d = {kernel->lane_bytes == 8, seed};
    sx_x64_kernel code;
    ck_sx_ok(cx, machine_check(cx, kernel, &code, draw, &d));
    ck_assert_uint_eq(code.level,
                      sx_kernel_vector_bytes(kernel) == 64 ? SX_X64_AVX512 : SX_X64_AVX2);
}

static sx_kernel *begin(sx_ctx *cx, sx_loop_builder *b, const shape *s, int64_t in, int64_t out)
{
    sx_kernel *kernel;
    ck_sx_ok(cx, sx_kernel_make(cx, "lanes", s->lanes, s->lane_bytes, &kernel));
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_IN, in);
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, out);
    sx_loop_begin_part(b, cx, kernel, 1, 1, 1);
    return kernel;
}

/* NaN canonical, so that words compare: the interpreter and the processor may differ in which one it is. */
static uint32_t canonical(sx_loop_builder *b, uint32_t x)
{
    bool wide = b->kernel->lane_bytes == 8;
    uint32_t nan = sx_loop_bits(b, wide ? UINT64_C(0x7FF8000000000000) : 0x7FC00000);
    uint32_t number = sx_loop_op(b, SX_LOP_CMP, SX_NO_REG, NULL, x, x, SX_NO_REG, SX_EQ, 0);
    return sx_loop_op(b, SX_LOP_BLEND, SX_NO_REG, NULL, number, x, nan, 0, 0);
}

/* Each count of lanes from and to exactly as many bytes as it needs, at the end of a page. */
static void one_access(const shape *s, sx_lop op, sx_mem mem, uint32_t n, int64_t stride)
{
    sx_ctx cx;
    sx_loop_builder b;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    int64_t size = sx_mem_bytes(mem, s->lane_bytes);
    bool stores = op == SX_LOP_STORE;
    int64_t whole = (int64_t)s->lanes * s->lane_bytes;
    int64_t reach = op == SX_LOP_LOADB   ? size
                    : op == SX_LOP_LOADS ? stride * (n - 1) + size
                                         : n * size;
    sx_kernel *kernel = begin(&cx, &b, s, stores ? whole : reach, stores ? reach : whole);
    sx_addr from = {.buffer = 0, .index_reg = SX_NO_REG};
    sx_addr to = {.buffer = 1, .index_reg = SX_NO_REG};
    uint32_t x = stores
                     ? sx_loop_access(&b, SX_LOP_LOAD, SX_MEM_LANE, &from, SX_NO_REG, s->lanes, 0)
                     : sx_loop_access(&b, op, mem, &from, SX_NO_REG, n, stride);
    x = mem == SX_MEM_HALF ? canonical(&b, x) : x;
    (void)sx_loop_access(&b, SX_LOP_STORE, stores ? mem : SX_MEM_LANE, &to, x,
                         stores ? n : s->lanes, 0);
    ck_sx_ok(&cx, sx_loop_end_part(&b));
    check(&cx, kernel, sx_test_seed() + n);
    sx_ctx_fini(&cx);
}

START_TEST(test_accesses)
{
    const shape *s = &shapes[_i % (int)SX_COUNT(shapes)];
    for (uint32_t m = 0; m < SX_MEM_COUNT; m++) {
        sx_mem mem = (sx_mem)m;
        int64_t size = sx_mem_bytes(mem, s->lane_bytes);
        if (size == 0) {
            continue;
        }
        for (uint32_t n = 1; n <= s->lanes; n++) {
            one_access(s, SX_LOP_LOAD, mem, n, 0);
            one_access(s, SX_LOP_STORE, mem, n, 0);
            one_access(s, SX_LOP_LOADS, mem, n, 3 * size);
        }
        one_access(s, SX_LOP_LOADB, mem, 0, 0);
    }
}
END_TEST

/* Every instruction on pairs of vectors, with operands in registers, constants and memory. */
static uint32_t apply(sx_loop_builder *b, sx_lop op, const uint32_t x[3], uint32_t imm)
{
    const sx_lop_info *info = sx_lop_info_of(op);
    if (op == SX_LOP_SHLV || op == SX_LOP_SHRV || op == SX_LOP_SARV) { /* not all places far away */
        uint32_t low = sx_loop_bits(b, 127);
        uint32_t places = sx_loop_op(b, SX_LOP_AND, SX_NO_REG, NULL, x[1], low, SX_NO_REG, 0, 0);
        return sx_loop_op(b, op, SX_NO_REG, NULL, x[0], places, SX_NO_REG, 0, 0);
    }
    if (info->result != 'm') {
        uint32_t count = 0;
        for (const char *p = info->operands; *p != '\0'; p++) {
            count += *p == 'v';
        }
        return sx_loop_op(b, op, SX_NO_REG, NULL, x[0], count > 1 ? x[1] : SX_NO_REG,
                          count > 2 ? x[2] : SX_NO_REG, imm, 0);
    }
    uint32_t mask = sx_loop_op(b, op, SX_NO_REG, NULL, x[0], x[1], SX_NO_REG, imm, 0);
    uint32_t not_mask =
        sx_loop_op(b, SX_LOP_MNOT, SX_NO_REG, NULL, mask, SX_NO_REG, SX_NO_REG, 0, 0);
    uint32_t first = sx_loop_op(b, SX_LOP_BLEND, SX_NO_REG, NULL, mask, x[0], x[1], 0, 0);
    uint32_t other = sx_loop_op(b, SX_LOP_BLEND, SX_NO_REG, NULL, not_mask, x[2], first, 0, 0);
    return sx_loop_op(b, SX_LOP_XOR, SX_NO_REG, NULL, first, other, SX_NO_REG, 0, 0);
}

static bool has(const shape *s, sx_lop op, uint32_t imm)
{
    bool narrow_alone =
        op == SX_LOP_SAR || op == SX_LOP_SARV || op == SX_LOP_F2I || op == SX_LOP_I2F;
    switch ((int)op) {
    case SX_LOP_ROUND: return imm < 4;
    case SX_LOP_CMP: return imm < SX_DIRECTION_COUNT;
    case SX_LOP_ICMP: return imm == SX_EQ || imm == SX_GT;
    case SX_LOP_SWAP: return imm > 0 && imm < s->lanes && (imm & (imm - 1)) == 0;
    case SX_LOP_SHL:
    case SX_LOP_SHR: return imm % 7 == 1 && imm < 8 * s->lane_bytes;
    case SX_LOP_SAR: return s->lane_bytes == 4 && imm % 7 == 1 && imm < 32;
    default: return imm == 0 && !(narrow_alone && s->lane_bytes == 8);
    }
}

START_TEST(test_instructions)
{
    static const sx_lop ops[] = {
        SX_LOP_MOV,  SX_LOP_ADD,  SX_LOP_SUB,    SX_LOP_MUL,  SX_LOP_DIV,   SX_LOP_MAX,
        SX_LOP_MIN,  SX_LOP_SQRT, SX_LOP_FMA,    SX_LOP_FNMA, SX_LOP_ROUND, SX_LOP_AND,
        SX_LOP_OR,   SX_LOP_XOR,  SX_LOP_IADD,   SX_LOP_ISUB, SX_LOP_IMUL,  SX_LOP_SHL,
        SX_LOP_SHR,  SX_LOP_SAR,  SX_LOP_F2I,    SX_LOP_I2F,  SX_LOP_HALVE, SX_LOP_CMP,
        SX_LOP_ICMP, SX_LOP_SWAP, SX_LOP_BCAST0, SX_LOP_SHLV, SX_LOP_SHRV,  SX_LOP_SARV};
    const shape *s = &shapes[_i % (int)SX_COUNT(shapes)];
    int64_t vector = (int64_t)s->lanes * s->lane_bytes;
    for (uint32_t k = 0; k < SX_COUNT(ops); k++) {
        for (uint32_t imm = 0; imm < 64; imm++) {
            if (!has(s, ops[k], imm)) {
                continue;
            }
            sx_ctx cx;
            sx_loop_builder b;
            sx_ctx_init(&cx, SX_ARENA_DEFAULT);
            sx_kernel *kernel = begin(&cx, &b, s, 16 * vector, 16 * vector);
            uint32_t third =
                sx_loop_bits(&b, s->lane_bytes == 8 ? UINT64_C(0xC004000000000001) : 0xC0200001);
            for (uint32_t i = 0; i < 16; i++) {
                sx_addr from = {.buffer = 0, .offset = i * vector, .index_reg = SX_NO_REG};
                uint32_t x =
                    sx_loop_access(&b, SX_LOP_LOAD, SX_MEM_LANE, &from, SX_NO_REG, s->lanes, 0);
                from.offset = (i * 7 + 3) % 16 * vector;
                uint32_t y = i % 4 == 3
                                 ? third
                                 : sx_loop_access(&b, i % 4 == 2 ? SX_LOP_LOADB : SX_LOP_LOAD,
                                                  SX_MEM_LANE, &from, SX_NO_REG, s->lanes, 0);
                uint32_t r = apply(&b, ops[k], (uint32_t[]){x, y, third}, imm);
                sx_addr to = {.buffer = 1, .offset = i * vector, .index_reg = SX_NO_REG};
                (void)sx_loop_access(&b, SX_LOP_STORE, SX_MEM_LANE, &to, canonical(&b, r), s->lanes,
                                     0);
            }
            ck_sx_ok(&cx, sx_loop_end_part(&b));
            check(&cx, kernel, sx_test_seed() + imm);
            sx_ctx_fini(&cx);
        }
    }
}
END_TEST

/* The text of a kernel with wide lanes and narrow elements reads back. */
START_TEST(test_text)
{
    static const char text[] =
        "kernel \"t\" lanes 4 wide numerics 0x0000000000000000 flops 0 bytes 0 {\n"
        "  buffer in 32\n"
        "  buffer out 32\n"
        "  part 1 1 1 registers 3 0 0 {\n"
        "    x0 = load.i8 b0[0], 3\n"
        "    x1 = set 0x4338000000000000\n"
        "    x2 = iadd x0, x1\n"
        "    store.half b1[0], x2, 4\n"
        "  }\n"
        "}\n";
    sx_ctx cx;
    sx_kernel *kernel;
    sx_buf again;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&again, 1 << 16);
    ck_sx_ok(&cx, sx_kernel_parse(&cx, sx_span_of(text), &kernel));
    ck_assert_uint_eq(kernel->lane_bytes, 8);
    ck_sx_ok(&cx, sx_kernel_print(&cx, kernel, &again));
    ck_assert(sx_span_is(sx_buf_span(&again), text));
    sx_buf_fini(&again);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("x64.lanes");
    TCase *tcase = tcase_create("lanes");
    tcase_add_loop_test(tcase, test_accesses, 0, SX_COUNT(shapes));
    tcase_add_loop_test(tcase, test_instructions, 0, SX_COUNT(shapes));
    tcase_add_test(tcase, test_text);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
