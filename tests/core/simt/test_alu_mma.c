/* Products of matrices: fragments by the figures of the manual, element by element, sums in wide integers. */
#include <math.h>

#include "core/ir/num.h"
#include "tests/core/simt/alu_insn.h"

__extension__ typedef __int128 s128;

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- the figures ---- */
typedef struct {
    uint32_t row, column;
} place;

/* Where element i of lane lies, g and t being its group and its place in the group. */
static place a_16_k8(uint32_t g, uint32_t t, uint32_t i)
{
    return (place){i < 2 ? g : g + 8, 2 * t + (i & 1)};
}
static place b_16_k8(uint32_t g, uint32_t t, uint32_t i)
{
    return (place){2 * t + i, g};
}
static place a_16_k16(uint32_t g, uint32_t t, uint32_t i)
{
    bool upper = (i < 2) || (i >= 4 && i < 6);
    return (place){upper ? g : g + 8, i < 4 ? 2 * t + (i & 1) : 2 * t + (i & 1) + 8};
}
static place b_16_k16(uint32_t g, uint32_t t, uint32_t i)
{
    return (place){i < 2 ? 2 * t + (i & 1) : 2 * t + (i & 1) + 8, g};
}
static place a_tf32_k8(uint32_t g, uint32_t t, uint32_t i)
{
    return (place){i == 0 || i == 2 ? g : g + 8, i == 0 || i == 1 ? t : t + 4};
}
static place b_tf32_k8(uint32_t g, uint32_t t, uint32_t i)
{
    return (place){i == 0 ? t : t + 4, g};
}
static place a_8_k16(uint32_t g, uint32_t t, uint32_t i)
{
    return (place){i < 4 ? g : g + 8, 4 * t + (i & 3)};
}
static place b_8_k16(uint32_t g, uint32_t t, uint32_t i)
{
    return (place){4 * t + i, g};
}
static place a_8_k32(uint32_t g, uint32_t t, uint32_t i)
{
    bool upper = i < 4 || (i >= 8 && i < 12);
    return (place){upper ? g : g + 8, i < 8 ? 4 * t + (i & 3) : 4 * t + (i & 3) + 16};
}
static place b_8_k32(uint32_t g, uint32_t t, uint32_t i)
{
    return (place){i < 4 ? 4 * t + (i & 3) : 4 * t + (i & 3) + 16, g};
}
static place c_any(uint32_t g, uint32_t t, uint32_t i)
{
    return (place){i < 2 ? g : g + 8, 2 * t + (i & 1)};
}

typedef place (*figure)(uint32_t g, uint32_t t, uint32_t i);
typedef struct {
    const char *types; /* behind the shape */
    uint32_t depth, bits;
    figure a, b;
    sx_dtype a_dtype, b_dtype;
} shape;

static const shape table[] = {
    {"f32.f16.f16.f32", 8, 16, a_16_k8, b_16_k8, SX_F16, SX_F16},
    {"f32.bf16.bf16.f32", 8, 16, a_16_k8, b_16_k8, SX_BF16, SX_BF16},
    {"f32.f16.f16.f32", 16, 16, a_16_k16, b_16_k16, SX_F16, SX_F16},
    {"f32.bf16.bf16.f32", 16, 16, a_16_k16, b_16_k16, SX_BF16, SX_BF16},
    {"f32.tf32.tf32.f32", 8, 32, a_tf32_k8, b_tf32_k8, SX_F32, SX_F32},
    {"f32.e4m3.e5m2.f32", 32, 8, a_8_k32, b_8_k32, SX_F8E4M3, SX_F8E5M2},
    {"f32.e5m2.e4m3.f32", 32, 8, a_8_k32, b_8_k32, SX_F8E5M2, SX_F8E4M3},
    {"s32.s8.u8.s32", 16, 8, a_8_k16, b_8_k16, SX_I8, SX_U8},
    {"s32.u8.s8.s32", 32, 8, a_8_k32, b_8_k32, SX_U8, SX_I8},
    {"s32.s8.s8.s32", 32, 8, a_8_k32, b_8_k32, SX_I8, SX_I8},
    {"s32.u8.u8.s32", 16, 8, a_8_k16, b_8_k16, SX_U8, SX_U8},
};

/* Bits of elements. */
typedef struct {
    uint64_t a[16][32], b[32][8], c[16][8], d[16][8];
} matrices;

/* One matrix in or out of its registers. */
static void fill(sx_ptx_word *word, uint32_t words, uint32_t bits, figure at,
                 const uint64_t *matrix, uint32_t stride)
{
    uint32_t per = 32 / bits;
    memset(word, 0, words * sizeof(*word));
    for (uint32_t lane = 0; lane < 32; lane++) {
        for (uint32_t i = 0; i < words * per; i++) {
            place p = at(lane / 4, lane % 4, i);
            word[i / per].lane[lane] |= matrix[p.row * stride + p.column] << (bits * (i % per));
        }
    }
}

static sx_ptx_alu insn_of(const shape *s, const char *sat)
{
    char insn[256], operand[3][64];
    uint32_t count[3] = {16 * s->depth * s->bits / 1024, 8 * s->depth * s->bits / 1024, 4};
    for (uint32_t m = 0; m < 3; m++) {
        char *p = operand[m];
        size_t n = 0;
        for (uint32_t k = 0; k < count[m]; k++) {
            n += (size_t)snprintf(&p[n], sizeof(operand[m]) - n, "%s%%r%u", k == 0 ? "{" : ", ",
                                  k + 4 * m);
        }
        (void)snprintf(&p[n], sizeof(operand[m]) - n, "}");
    }
    (void)snprintf(
        insn, sizeof(insn),
        "mma.sync.aligned.m16n8k%u.row.col%s.%s {%%r12, %%r13, %%r14, %%r15}, %s, %s, %s", s->depth,
        sat, s->types, operand[0], operand[1], operand[2]);
    return alu_insn(&cx, insn);
}

static void multiply(const shape *s, const char *sat, matrices *m)
{
    alu_words w;
    memset(&w, 0, sizeof(w));
    sx_ptx_alu alu = insn_of(s, sat);
    uint32_t a = 16 * s->depth * s->bits / 1024, b = a / 2;
    ck_assert_uint_eq(alu.operand_count, a + b + 4);
    ck_assert_uint_eq(alu.result_count, 4);
    fill(&w.operand[0], a, s->bits, s->a, &m->a[0][0], 32);
    fill(&w.operand[a], b, s->bits, s->b, &m->b[0][0], 8);
    fill(&w.operand[a + b], 4, 32, c_any, &m->c[0][0], 8);
    alu_run(&alu, &w, UINT32_MAX);
    for (uint32_t lane = 0; lane < 32; lane++) {
        for (uint32_t i = 0; i < 4; i++) {
            place p = c_any(lane / 4, lane % 4, i);
            m->d[p.row][p.column] = w.result[i].lane[lane];
        }
    }
}

/* Whole bytes of all values, else numbers that every type has. */
static int64_t random_element(sx_rng *rng, sx_dtype dtype)
{
    bool byte = dtype == SX_I8 || dtype == SX_U8;
    int64_t value = (int64_t)sx_rng_below(rng, byte ? 256 : 9);
    return dtype == SX_U8 ? value : value - (byte ? 128 : 4);
}

static uint64_t encoded(sx_dtype dtype, int64_t value)
{
    return dtype == SX_I8 || dtype == SX_U8 ? sx_num_int_encode(dtype, value)
                                            : sx_num_encode(dtype, (double)value);
}

/* Small whole numbers have one right result, whatever the order of the sums. */
START_TEST(test_fragments)
{
    const shape *s = &table[_i];
    sx_rng rng = {sx_test_seed()};
    bool whole = s->a_dtype == SX_I8 || s->a_dtype == SX_U8;
    int64_t a[16][32], b[32][8], c[16][8];
    for (uint32_t trial = 0; trial < 20; trial++) {
        matrices m;
        for (uint32_t k = 0; k < s->depth; k++) {
            for (uint32_t i = 0; i < 16; i++) {
                a[i][k] = random_element(&rng, s->a_dtype);
                m.a[i][k] = encoded(s->a_dtype, a[i][k]);
            }
            for (uint32_t j = 0; j < 8; j++) {
                b[k][j] = random_element(&rng, s->b_dtype);
                m.b[k][j] = encoded(s->b_dtype, b[k][j]);
            }
        }
        for (uint32_t i = 0; i < 16; i++) {
            for (uint32_t j = 0; j < 8; j++) {
                c[i][j] = (int64_t)sx_rng_below(&rng, 2001) - 1000;
                m.c[i][j] = whole ? (uint32_t)c[i][j] : sx_num_encode(SX_F32, (double)c[i][j]);
            }
        }
        multiply(s, "", &m);
        for (uint32_t i = 0; i < 16; i++) {
            for (uint32_t j = 0; j < 8; j++) {
                int64_t sum = c[i][j];
                for (uint32_t k = 0; k < s->depth; k++) {
                    sum += a[i][k] * b[k][j];
                }
                uint64_t want = whole ? (uint32_t)sum : sx_num_encode(SX_F32, (double)sum);
                ck_assert_msg(m.d[i][j] == want, "%s: row %u, column %u", s->types, i, j);
            }
        }
    }
}
END_TEST

/* The same product as a part of that of a warpgroup. */
static void check_lines(const matrices *m, const shape *s)
{
    static sx_ptx_lines lines[2];
    sx_ptx_modifier type = s->a_dtype == SX_F16 ? SX_PTX_TYPE_F16 : SX_PTX_TYPE_BF16;
    sx_ptx_lines_begin(&lines[0], 32);
    sx_ptx_lines_begin(&lines[1], 256);
    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t k = 0; k < s->depth; k++) {
            const sx_ptx_line_run of_a = {&lines[0], 32 * i + k, 1, 1};
            const sx_ptx_line_run of_b = {&lines[1], 8 * k + i % 8, 1, 1};
            sx_ptx_line_put(&of_a, type, (const uint8_t *)&m->a[i][k], false);
            sx_ptx_line_put(&of_b, type, (const uint8_t *)&m->b[k][i % 8], false);
        }
    }
    const sx_ptx_line_product p = {&lines[0], &lines[1], s->depth, false, false};
    for (uint32_t i = 0; i < 16; i++) {
        uint64_t d[8];
        sx_ptx_line_multiply(&p, i, 0, m->c[i], d);
        ck_assert_mem_eq(d, m->d[i], sizeof(d));
    }
}

/* A number of f16 with an exponent field from `low` on. */
static uint64_t number_within(sx_rng *rng, uint32_t low, uint32_t count)
{
    uint64_t exponent = low + sx_rng_below(rng, count);
    return exponent << 10 | (sx_rng_next(rng) & 0x83FF);
}

/* Numbers of f16 of all sizes, and of a few: the sum is one of integers times 2^-48, rounded once. */
START_TEST(test_sums_are_rounded_once)
{
    const shape *s = &table[2];
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(200); trial++) {
        matrices m;
        memset(&m, 0, sizeof(m));
        uint32_t low = (uint32_t)sx_rng_below(&rng, 31);
        uint32_t count = 1 + (uint32_t)sx_rng_below(&rng, 31 - low);
        for (uint32_t k = 0; k < 16; k++) {
            for (uint32_t i = 0; i < 16; i++) {
                m.a[i][k] = number_within(&rng, low, count);
                m.b[k][i % 8] = number_within(&rng, low, count);
            }
        }
        for (uint32_t i = 0; i < 16; i++) {
            for (uint32_t j = 0; j < 8; j++) {
                m.c[i][j] = ((uint64_t)(103 + sx_rng_below(&rng, 60)) << 23) |
                            (sx_rng_next(&rng) & 0x807FFFFF);
            }
        }
        multiply(s, "", &m);
        for (uint32_t i = 0; i < 16; i++) {
            for (uint32_t j = 0; j < 8; j++) {
                double c = ldexp(sx_num_decode(SX_F32, m.c[i][j]), 48);
                double upper = trunc(c * 0x1p-40);
                s128 sum =
                    (s128)(int64_t)upper * ((s128)1 << 40) + (s128)(int64_t)(c - upper * 0x1p40);
                for (uint32_t k = 0; k < 16; k++) {
                    double x = ldexp(sx_num_decode(SX_F16, m.a[i][k]), 24);
                    double y = ldexp(sx_num_decode(SX_F16, m.b[k][j]), 24);
                    sum += (s128)(int64_t)x * (int64_t)y;
                }
                float want = ldexpf((float)sum, -48);
                ck_assert_uint_eq(m.d[i][j], sx_num_encode(SX_F32, (double)want));
            }
        }
        check_lines(&m, s);
    }
}
END_TEST

/* What cancels exactly leaves the rest exactly, however large it was. */
START_TEST(test_large_terms_cancel)
{
    static const uint32_t row[] = {1, 3, 4}; /* bf16 and tf32 */
    const shape *s = &table[row[_i]];
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < sx_test_trials(100); trial++) {
        matrices m;
        memset(&m, 0, sizeof(m));
        double c = (double)((int64_t)sx_rng_below(&rng, 1 << 20) - (1 << 19)) * 0x1p-140;
        double whole = c;
        for (uint32_t k = 0; k < s->depth; k += 2) {
            double size =
                ldexp((double)(1 + sx_rng_below(&rng, 127)), (int)sx_rng_below(&rng, 120));
            double small = (double)sx_rng_below(&rng, 4) * 0x1p-130;
            bool cancels = k + 2 < s->depth;
            whole += cancels ? 0.0 : 3.0 * small;
            m.a[5][k] = sx_num_encode(s->a_dtype, cancels ? size : small);
            m.a[5][k + 1] = sx_num_encode(s->a_dtype, cancels ? -size : small);
            m.b[k][6] = sx_num_encode(s->b_dtype, cancels ? size : 1.0);
            m.b[k + 1][6] = sx_num_encode(s->b_dtype, cancels ? size : 2.0);
        }
        m.c[5][6] = sx_num_encode(SX_F32, c);
        multiply(s, "", &m);
        ck_assert_uint_eq(m.d[5][6], sx_num_encode(SX_F32, whole));
    }
}
END_TEST

START_TEST(test_special_sums)
{
    const struct {
        uint64_t a[2], b[2], c, want; /* of bf16, and f32 */
    } row[] = {
        {{0x7F80, 0}, {0, 0}, 0, 0x7FFFFFFF},                /* infinity times 0 */
        {{0x7F80, 0x7F80}, {0x3F80, 0xBF80}, 0, 0x7FFFFFFF}, /* infinity - infinity */
        {{0x7F80, 0}, {0x3F80, 0}, 0x3F800000, 0x7F800000},  /* infinity stays */
        {{0x3F80, 0}, {0x3F80, 0}, 0xFF800000, 0xFF800000},
        {{0x7FC1, 0}, {0x3F80, 0}, 0, 0x7FFFFFFF},                    /* NaN */
        {{0x7F7F, 0x7F7F}, {0x7F7F, 0x3F80}, 0, 0x7F800000},          /* too large */
        {{0x7F00, 0x7F00}, {0x3F80, 0x3F80}, 0xFF000000, 0x7F000000}, /* only on the way */
        {{0x0001, 0}, {0x3F80, 0}, 0x00000001, 0x00010001},           /* subnormal */
        {{0x3F80, 0x3380}, {0x3F80, 0x3F80}, 0, 0x3F800000},          /* a tie: 1 + 2^-24 */
        {{0x3F80, 0x3380}, {0x3F80, 0x3F80}, 0x00000001, 0x3F800001}, /* just above it */
    };
    matrices m;
    memset(&m, 0, sizeof(m));
    for (uint32_t k = 0; k < 2; k++) {
        m.a[9][3 + k] = row[_i].a[k];
        m.b[3 + k][2] = row[_i].b[k];
    }
    m.c[9][2] = row[_i].c;
    multiply(&table[3], "", &m);
    ck_assert_uint_eq(m.d[9][2], row[_i].want);
    check_lines(&m, &table[3]);
}
END_TEST

START_TEST(test_integers_wrap_or_saturate)
{
    matrices m;
    memset(&m, 0, sizeof(m));
    for (uint32_t k = 0; k < 32; k++) {
        m.a[0][k] = m.a[1][k] = 0x80; /* -128 */
        m.b[k][0] = 0x80;
        m.b[k][1] = 0x7F;
    }
    m.c[0][0] = 0x7FFFFFFF;
    m.c[1][1] = 0x80000000;
    multiply(&table[9], "", &m);
    ck_assert_uint_eq(m.d[0][0], 0x7FFFFFFFU + 32U * 128 * 128);
    ck_assert_uint_eq(m.d[1][1], 0x80000000U - 32U * 128 * 127);
    multiply(&table[9], ".satfinite", &m);
    ck_assert_uint_eq(m.d[0][0], 0x7FFFFFFF);
    ck_assert_uint_eq(m.d[1][1], 0x80000000);
    ck_assert_uint_eq(m.d[1][0], 32U * 128 * 128);
}
END_TEST

/* The 13 low bits of tf32 operands do not count. */
START_TEST(test_low_bits_of_tf32)
{
    matrices m;
    memset(&m, 0, sizeof(m));
    m.a[2][1] = 0x3F801FFF;
    m.b[1][3] = 0x40001FFF;
    multiply(&table[4], "", &m);
    ck_assert_uint_eq(m.d[2][3], 0x40000000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("alu_mma");
    TCase *tcase = tcase_create("alu_mma");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_fragments, 0, (int)SX_COUNT(table));
    tcase_add_test(tcase, test_sums_are_rounded_once);
    tcase_add_loop_test(tcase, test_large_terms_cancel, 0, 3);
    tcase_add_loop_test(tcase, test_special_sums, 0, 10);
    tcase_add_test(tcase, test_integers_wrap_or_saturate);
    tcase_add_test(tcase, test_low_bits_of_tf32);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
