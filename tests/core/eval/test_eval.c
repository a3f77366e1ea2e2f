/* The interpreter: scalar operations against hand-computed tables, moving and combining operations against
 * index loops. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/ir/num.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

#define P UINT64_C(2147483647)
#define N ((double)NAN)
#define INF HUGE_VAL

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- scalars ---- */
typedef union {
    double f;
    int64_t i;
    uint64_t u;
} cell;

static cell scalar(sx_op op, const sx_attr *attr, sx_eval_mode mode, sx_dtype dtype, cell x, cell y)
{
    sx_tensor input[2] = {{{.dtype = dtype}, &x}, {{.dtype = dtype}, &y}};
    sx_tensor made = sx_test_eval(&cx, op, attr, mode, input, sx_op_info_of(op)->input_max);
    return *(cell *)made.data;
}

typedef struct {
    sx_op op;
    sx_dtype dtype;
    double x, y, expected;
} float_row;

static const float_row float_rows[] = {
    {SX_OP_NEGATE, SX_F32, 1.5, 0, -1.5},
    {SX_OP_ABS, SX_F32, -1.5, 0, 1.5},
    {SX_OP_EXP, SX_F32, 1, 0, 2.71828174591064453125},
    {SX_OP_EXP, SX_F32, -INF, 0, 0},
    {SX_OP_LOG, SX_F32, 2, 0, 0.693147182464599609375},
    {SX_OP_LOG, SX_F32, 0, 0, -INF},
    {SX_OP_SQRT, SX_F32, 2, 0, 1.41421353816986083984375},
    {SX_OP_SQRT, SX_F32, -1, 0, N},
    {SX_OP_RSQRT, SX_F32, 4, 0, 0.5},
    {SX_OP_TANH, SX_F32, INF, 0, 1},
    {SX_OP_ERF, SX_F64, 1, 0, 0.84270079294971489},
    {SX_OP_LOGISTIC, SX_F64, 0, 0, 0.5},
    {SX_OP_LOGISTIC, SX_F64, -1000, 0, 0},
    {SX_OP_SIN, SX_F64, 1, 0, 0.8414709848078965},
    {SX_OP_COS, SX_F64, 1, 0, 0.54030230586813977},
    {SX_OP_FLOOR, SX_F32, -1.5, 0, -2},
    {SX_OP_CEIL, SX_F32, -1.5, 0, -1},
    {SX_OP_ROUND, SX_F32, 2.5, 0, 2},
    {SX_OP_ROUND, SX_F32, 3.5, 0, 4},
    {SX_OP_ROUND, SX_F32, -0.5, 0, -0.0},
    {SX_OP_SIGN, SX_F32, -3, 0, -1},
    {SX_OP_SIGN, SX_F32, 0, 0, 0},
    {SX_OP_SIGN, SX_F32, N, 0, N},
    {SX_OP_ADD, SX_F32, 16777216, 1, 16777216},
    {SX_OP_ADD, SX_F64, 16777216, 1, 16777217},
    {SX_OP_ADD, SX_BF16, 256, 1, 256},
    {SX_OP_ADD, SX_BF16, 256, 3, 260},
    {SX_OP_SUBTRACT, SX_F32, 1, 3, -2},
    {SX_OP_MULTIPLY, SX_F8E4M3, 30, 30, 448},
    {SX_OP_MULTIPLY, SX_F16, 300, 300, INF},
    {SX_OP_DIVIDE, SX_F32, 1, 3, 0.3333333432674407958984375},
    {SX_OP_DIVIDE, SX_F32, 1, 0, INF},
    {SX_OP_POWER, SX_F32, 2, 10, 1024},
    {SX_OP_REMAINDER, SX_F32, -7, 3, -1},
    {SX_OP_REMAINDER, SX_F32, 7, -3, 1},
    {SX_OP_MAXIMUM, SX_F32, 1, 2, 2},
    {SX_OP_MAXIMUM, SX_F32, 1, N, N},
    {SX_OP_MAXIMUM, SX_F32, N, 1, N},
    {SX_OP_MAXIMUM, SX_F32, 0, -0.0, -0.0},
    {SX_OP_MINIMUM, SX_F32, 1, 2, 1},
    {SX_OP_MINIMUM, SX_F32, N, 1, N},
    {SX_OP_RELU, SX_F32, N, 0, N},
    {SX_OP_RELU, SX_F32, -2, 0, 0},
};

START_TEST(float_table)
{
    for (uint32_t k = 0; k < SX_COUNT(float_rows); k++) {
        const float_row *r = &float_rows[k];
        cell found = scalar(r->op, &(sx_attr){0}, SX_EVAL_TYPED, r->dtype, (cell){.f = r->x},
                            (cell){.f = r->y});
        bool same = isnan(r->expected)
                        ? isnan(found.f)
                        : found.f == r->expected && signbit(found.f) == signbit(r->expected);
        ck_assert_msg(same, "%s(%g, %g) of %s is %.17g, expected %.17g", sx_op_info_of(r->op)->name,
                      r->x, r->y, sx_dtype_name(r->dtype), found.f, r->expected);
    }
}
END_TEST

typedef struct {
    sx_op op;
    sx_dtype dtype;
    int64_t x, y, expected;
} int_row;

static const int_row int_rows[] = {
    {SX_OP_NEGATE, SX_I8, -128, 0, -128},
    {SX_OP_NEGATE, SX_U8, 1, 0, 255},
    {SX_OP_ABS, SX_I32, INT32_MIN, 0, INT32_MIN},
    {SX_OP_ABS, SX_I8, -5, 0, 5},
    {SX_OP_SIGN, SX_I64, -9, 0, -1},
    {SX_OP_NOT, SX_I8, 5, 0, -6},
    {SX_OP_NOT, SX_U8, 5, 0, 250},
    {SX_OP_NOT, SX_BOOL, 1, 0, 0},
    {SX_OP_ADD, SX_I8, 127, 1, -128},
    {SX_OP_ADD, SX_I16, 32767, 1, -32768},
    {SX_OP_NEGATE, SX_I16, -32768, 0, -32768},
    {SX_OP_DIVIDE, SX_I16, -32768, -1, -32768},
    {SX_OP_ADD, SX_U8, 255, 1, 0},
    {SX_OP_ADD, SX_I64, INT64_MAX, 1, INT64_MIN},
    {SX_OP_ADD, SX_BOOL, 1, 1, 1},
    {SX_OP_SUBTRACT, SX_U8, 1, 2, 255},
    {SX_OP_MULTIPLY, SX_I32, 65536, 65536, 0},
    {SX_OP_MULTIPLY, SX_BOOL, 1, 0, 0},
    {SX_OP_DIVIDE, SX_I32, -7, 2, -3},
    {SX_OP_DIVIDE, SX_I32, 7, 0, -1},
    {SX_OP_DIVIDE, SX_U8, 7, 0, 255},
    {SX_OP_DIVIDE, SX_I32, INT32_MIN, -1, INT32_MIN},
    {SX_OP_DIVIDE, SX_I64, INT64_MIN, -1, INT64_MIN},
    {SX_OP_REMAINDER, SX_I32, -7, 2, -1},
    {SX_OP_REMAINDER, SX_I32, 7, 0, 7},
    {SX_OP_REMAINDER, SX_I64, INT64_MIN, -1, 0},
    {SX_OP_POWER, SX_I32, 3, 4, 81},
    {SX_OP_POWER, SX_I32, 2, 32, 0},
    {SX_OP_POWER, SX_I32, -1, -3, -1},
    {SX_OP_POWER, SX_I32, 2, -1, 0},
    {SX_OP_MAXIMUM, SX_U8, 200, 100, 200},
    {SX_OP_MINIMUM, SX_I8, -100, 100, -100},
    {SX_OP_AND, SX_I32, 12, 10, 8},
    {SX_OP_OR, SX_I32, 12, 10, 14},
    {SX_OP_XOR, SX_I32, 12, 10, 6},
    {SX_OP_XOR, SX_BOOL, 1, 1, 0},
    {SX_OP_RELU, SX_I32, -4, 0, 0},
};

START_TEST(int_table)
{
    for (uint32_t k = 0; k < SX_COUNT(int_rows); k++) {
        const int_row *r = &int_rows[k];
        cell found = scalar(r->op, &(sx_attr){0}, SX_EVAL_F64, r->dtype, (cell){.i = r->x},
                            (cell){.i = r->y});
        ck_assert_msg(found.i == r->expected, "%s(%lld, %lld) of %s is %lld, expected %lld",
                      sx_op_info_of(r->op)->name, (long long)r->x, (long long)r->y,
                      sx_dtype_name(r->dtype), (long long)found.i, (long long)r->expected);
    }
}
END_TEST

/* Philox4x32-10 as section 4.3 of the paper has it: a network of multiplications; known answers of Random123. */
static void philox(uint32_t c[4], uint32_t key0, uint32_t key1)
{
    for (uint32_t round = 0; round < 10; round++) {
        uint32_t k0 = key0 + round * 0x9E3779B9u, k1 = key1 + round * 0xBB67AE85u;
        uint32_t left[2] = {(uint32_t)((uint64_t)c[0] * 0xD2511F53u >> 32), c[0] * 0xD2511F53u};
        uint32_t right[2] = {(uint32_t)((uint64_t)c[2] * 0xCD9E8D57u >> 32), c[2] * 0xCD9E8D57u};
        uint32_t next[4] = {right[0] ^ c[1] ^ k0, right[1], left[0] ^ c[3] ^ k1, left[1]};
        memcpy(c, next, sizeof(next));
    }
}

START_TEST(random_bits)
{
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } known[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {UINT32_MAX, UINT32_MAX},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < SX_COUNT(known); i++) {
        uint32_t c[4];
        memcpy(c, known[i].counter, sizeof(c));
        philox(c, known[i].key[0], known[i].key[1]);
        ck_assert_mem_eq(c, known[i].expected, sizeof(c));
    }
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t counter = i < 4 ? i - UINT64_C(2) : sx_rng_next(&rng);
        uint64_t key = i < 8 ? 0 : sx_rng_next(&rng);
        uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32)};
        philox(c, (uint32_t)key, (uint32_t)(key >> 32));
        cell found = scalar(SX_OP_RANDOM_BITS, &(sx_attr){0}, SX_EVAL_TYPED, SX_I64,
                            (cell){.i = (int64_t)counter}, (cell){.i = (int64_t)key});
        ck_assert_uint_eq((uint64_t)found.i, c[0] | (uint64_t)c[1] << 32);
    }
}
END_TEST

/* Place by place: a bit comes from `places` below or above it, or is what comes in. */
static int64_t shifted(sx_op op, sx_dtype dtype, int64_t x, int64_t places)
{
    int bits = 8 * (int)sx_dtype_bytes(dtype);
    bool far = places < 0 || places >= bits;
    uint64_t made = 0;
    for (int k = 0; k < 64; k++) {
        int own = k < bits ? k : bits - 1; /* above: copies of the highest bit */
        int64_t from = far ? 64 : op == SX_OP_SHIFT_LEFT ? own - places : own + places;
        bool inside = from >= 0 && from < bits;
        bool comes = op == SX_OP_SHIFT_RIGHT_ARITHMETIC && ((uint64_t)x >> (bits - 1) & 1) != 0;
        bool set = inside ? ((uint64_t)x >> from & 1) != 0 : comes;
        made |= (uint64_t)(k >= bits && dtype == SX_U8 ? 0 : set) << k;
    }
    return (int64_t)made;
}

START_TEST(shifts)
{
    static const sx_op ops[] = {SX_OP_SHIFT_LEFT, SX_OP_SHIFT_RIGHT_ARITHMETIC,
                                SX_OP_SHIFT_RIGHT_LOGICAL};
    static const sx_dtype dtypes[] = {SX_I8, SX_U8, SX_I16, SX_I32, SX_I64};
    static const int64_t far[] = {-1, -64, -128, 32, 63, 64, 65, 127};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < SX_COUNT(dtypes) * SX_COUNT(ops) * 200; i++) {
        sx_dtype dtype = dtypes[i % SX_COUNT(dtypes)];
        sx_op op = ops[i / SX_COUNT(dtypes) % SX_COUNT(ops)];
        uint32_t turn = i / (uint32_t)(SX_COUNT(dtypes) * SX_COUNT(ops));
        int64_t x = sx_num_int_decode(dtype, sx_rng_next(&rng));
        x = turn % 8 == 0 ? sx_num_int_min(dtype) : turn % 8 == 1 ? -(dtype != SX_U8) : x;
        int64_t places = turn % 4 == 3 ? far[turn / 4 % SX_COUNT(far)] : turn % 70;
        places = dtype == SX_U8 && places < 0 ? 256 + places : places;
        cell found =
            scalar(op, &(sx_attr){0}, SX_EVAL_TYPED, dtype, (cell){.i = x}, (cell){.i = places});
        ck_assert_msg(found.i == shifted(op, dtype, x, places), "%s of %s: %lld by %lld is %lld",
                      sx_op_info_of(op)->name, sx_dtype_name(dtype), (long long)x,
                      (long long)places, (long long)found.i);
    }
}
END_TEST

static cell converted(sx_dtype from, sx_dtype to, cell x)
{
    sx_attr attr = {.present = SX_A(type), .type = {.dtype = to}};
    return scalar(SX_OP_CONVERT, &attr, SX_EVAL_TYPED, from, x, x);
}

START_TEST(conversions)
{
    ck_assert_int_eq(converted(SX_F32, SX_I8, (cell){.f = -1.9}).i, -1);
    ck_assert_int_eq(converted(SX_F32, SX_I8, (cell){.f = 1000}).i, 127);
    ck_assert_int_eq(converted(SX_F32, SX_U8, (cell){.f = -3}).i, 0);
    ck_assert_int_eq(converted(SX_F32, SX_I32, (cell){.f = N}).i, 0);
    ck_assert_int_eq(converted(SX_F64, SX_I64, (cell){.f = 1e300}).i, INT64_MAX);
    ck_assert_int_eq(converted(SX_F64, SX_I64, (cell){.f = -INF}).i, INT64_MIN);
    ck_assert_int_eq(converted(SX_F64, SX_BOOL, (cell){.f = 0.5}).i, 1);
    ck_assert_int_eq(converted(SX_F32, SX_I16, (cell){.f = 1e6}).i, 32767);
    ck_assert_int_eq(converted(SX_F32, SX_I16, (cell){.f = -INF}).i, -32768);
    ck_assert_int_eq(converted(SX_I32, SX_I8, (cell){.i = 300}).i, 44);
    ck_assert_int_eq(converted(SX_I32, SX_I16, (cell){.i = 70000}).i, 4464);
    ck_assert_int_eq(converted(SX_I64, SX_BOOL, (cell){.i = 256}).i, 1);
    ck_assert_int_eq(converted(SX_BOOL, SX_I32, (cell){.i = 1}).i, 1);
    ck_assert(converted(SX_F64, SX_F32, (cell){.f = 0.1}).f == (double)0.1f);
    ck_assert(converted(SX_F32, SX_BF16, (cell){.f = 257}).f == 256);
    ck_assert(converted(SX_F32, SX_F8E5M2, (cell){.f = INF}).f == 57344);
    /* i64 -> f32 in one rounding: 2^60 + 2^36 + 1 lies above the middle of two floats, as a double it would be
     * the middle */
    int64_t trap = (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1;
    ck_assert(converted(SX_I64, SX_F32, (cell){.i = trap}).f == (double)(float)trap);
    ck_assert(converted(SX_I64, SX_F32, (cell){.i = trap}).f == 0x1.000002p60);
    ck_assert(converted(SX_I64, SX_F32, (cell){.i = -trap}).f == -0x1.000002p60);
    ck_assert(converted(SX_I64, SX_F32, (cell){.i = INT64_MIN}).f == -0x1p63);
}
END_TEST

START_TEST(comparisons)
{
    static const double values[] = {-1, 0, 2, N};
    for (sx_direction d = 0; d < SX_DIRECTION_COUNT; d++) {
        sx_attr attr = {.present = SX_A(direction), .direction = d};
        for (uint32_t i = 0; i < 4; i++) {
            for (uint32_t j = 0; j < 4; j++) {
                double x = values[i];
                double y = values[j];
                bool expected[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
                cell found = scalar(SX_OP_COMPARE, &attr, SX_EVAL_F64, SX_F32, (cell){.f = x},
                                    (cell){.f = y});
                ck_assert_int_eq(found.i, expected[d]);
            }
        }
    }
    cell pick[3] = {{.i = 1}, {.f = 5}, {.f = 7}};
    sx_tensor input[3] = {{{.dtype = SX_BOOL}, &pick[0]},
                          {{.dtype = SX_F32}, &pick[1]},
                          {{.dtype = SX_F32}, &pick[2]}};
    ck_assert(
        *(double *)sx_test_eval(&cx, SX_OP_SELECT, &(sx_attr){0}, SX_EVAL_F64, input, 3).data == 5);
    pick[0].i = 0;
    ck_assert(
        *(double *)sx_test_eval(&cx, SX_OP_SELECT, &(sx_attr){0}, SX_EVAL_F64, input, 3).data == 7);
}
END_TEST

/* ---- the field ---- */
static uint64_t mod(sx_op op, uint64_t x, uint64_t y)
{
    return scalar(op, &(sx_attr){0}, SX_EVAL_MODP, SX_F32, (cell){.u = x}, (cell){.u = y}).u;
}

static uint64_t modp_constant(float value)
{
    sx_attr attr = {.present = SX_A(data) | SX_A(type), .type = {.dtype = SX_F32}};
    attr.data = (sx_span){(const uint8_t *)&value, 4};
    return *(uint64_t *)sx_test_eval(&cx, SX_OP_CONSTANT, &attr, SX_EVAL_MODP, NULL, 0).data;
}

START_TEST(field_laws)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 300; k++) {
        uint64_t a = sx_rng_below(&rng, P);
        uint64_t b = 1 + sx_rng_below(&rng, P - 1);
        ck_assert_uint_eq(mod(SX_OP_ADD, a, b), (a + b) % P);
        ck_assert_uint_eq(mod(SX_OP_SUBTRACT, a, b), (a + P - b) % P);
        ck_assert_uint_eq(mod(SX_OP_MULTIPLY, a, b), a * b % P);
        ck_assert_uint_eq(mod(SX_OP_MULTIPLY, mod(SX_OP_DIVIDE, a, b), b), a);
        ck_assert_uint_eq(mod(SX_OP_NEGATE, a, 0), (P - a) % P);
        ck_assert_uint_eq(mod(SX_OP_MAXIMUM, a, b),
                          mod(SX_OP_NEGATE,
                              mod(SX_OP_MINIMUM, mod(SX_OP_NEGATE, a, 0), mod(SX_OP_NEGATE, b, 0)),
                              0));
        ck_assert_uint_eq(mod(SX_OP_MAXIMUM, a, mod(SX_OP_NEGATE, a, 0)), mod(SX_OP_ABS, a, 0));
        ck_assert_uint_eq(mod(SX_OP_TANH, mod(SX_OP_NEGATE, a, 0), 0),
                          mod(SX_OP_NEGATE, mod(SX_OP_TANH, a, 0), 0));
        ck_assert_uint_eq(mod(SX_OP_RSQRT, b, 0), mod(SX_OP_DIVIDE, 1, mod(SX_OP_SQRT, b, 0)));
        uint64_t minus = mod(SX_OP_NEGATE, a, 0);
        ck_assert_uint_eq(mod(SX_OP_LOGISTIC, a, 0),
                          mod(SX_OP_DIVIDE, 1, mod(SX_OP_ADD, 1, mod(SX_OP_EXP, minus, 0))));
        ck_assert_uint_eq(mod(SX_OP_CEIL, a, 0), mod(SX_OP_NEGATE, mod(SX_OP_FLOOR, minus, 0), 0));
        ck_assert_uint_eq(mod(SX_OP_COS, a, 0), mod(SX_OP_COS, minus, 0));
        ck_assert_uint_eq(mod(SX_OP_MULTIPLY, mod(SX_OP_SIGN, a, 0), mod(SX_OP_ABS, a, 0)), a);
        ck_assert_uint_ne(mod(SX_OP_EXP, a, 0), mod(SX_OP_LOG, a, 0));
        ck_assert_uint_lt(mod(SX_OP_POWER, a, b), P);
    }
    ck_assert_uint_eq(mod(SX_OP_MULTIPLY, modp_constant(0.5f), 2), 1);
    ck_assert_uint_eq(mod(SX_OP_ADD, modp_constant(-3), 3), 0);
    ck_assert_uint_eq(mod(SX_OP_MULTIPLY, modp_constant(0.375f), 8), 3);
    ck_assert_uint_eq(modp_constant(0x1p31f), 1);
    ck_assert_uint_eq(mod(SX_OP_ADD, modp_constant(HUGE_VALF), modp_constant(-HUGE_VALF)), 0);
}
END_TEST

/* ---- index loops ---- */
static void split(const sx_type *type, int64_t flat, int64_t index[SX_RANK_MAX])
{
    for (uint32_t d = type->rank; d-- > 0;) {
        index[d] = flat % type->dim[d].scale;
        flat /= type->dim[d].scale;
    }
}

static int64_t join(const sx_type *type, const int64_t index[SX_RANK_MAX])
{
    int64_t flat = 0;
    for (uint32_t d = 0; d < type->rank; d++) {
        ck_assert(index[d] >= 0 && index[d] < type->dim[d].scale);
        flat = flat * type->dim[d].scale + index[d];
    }
    return flat;
}

/* Where element `out` of a moved tensor comes from: operand k, index `in`. */
static uint32_t origin(const sx_test_op *t, const sx_tensor *input, const int64_t *out, int64_t *in)
{
    const sx_attr *attr = &t->attr;
    uint32_t rank = t->input[0].rank;
    for (uint32_t d = 0; d < rank; d++) {
        if (t->op == SX_OP_TRANSPOSE) {
            in[attr->perm.v[d]] = out[d];
        } else if (t->op == SX_OP_BROADCAST) {
            in[d] = t->input[0].dim[d].scale == 1 ? 0 : out[attr->dims.v[d]];
        } else if (t->op == SX_OP_SLICE) {
            in[d] = attr->start.v[d] + out[d] * attr->stride.v[d];
        } else {
            in[d] = out[d];
        }
    }
    uint32_t k = 0;
    if (t->op == SX_OP_RESHAPE) {
        split(&t->input[0], join(&t->result, out), in);
    } else if (t->op == SX_OP_CONCATENATE) {
        while (in[attr->axis] >= t->input[k].dim[attr->axis].scale) {
            in[attr->axis] -= t->input[k++].dim[attr->axis].scale;
        }
    } else if (t->op == SX_OP_GATHER) {
        uint32_t index_rank = t->input[1].rank;
        int64_t pick = ((const int64_t *)input[1].data)[join(&t->input[1], out + attr->axis)];
        int64_t extent = t->input[0].dim[attr->axis].scale;
        pick = pick < 0 ? pick + extent : pick;
        pick = pick < 0 ? 0 : pick >= extent ? extent - 1 : pick;
        for (uint32_t d = 0; d < rank; d++) {
            in[d] = d < (uint32_t)attr->axis    ? out[d]
                    : d == (uint32_t)attr->axis ? pick
                                                : out[d + index_rank - 1];
        }
    }
    return k;
}

START_TEST(moving)
{
    sx_rng rng = {sx_test_seed()};
    static const sx_op ops[] = {SX_OP_RESHAPE, SX_OP_TRANSPOSE,   SX_OP_BROADCAST,
                                SX_OP_SLICE,   SX_OP_CONCATENATE, SX_OP_GATHER};
    for (uint32_t k = 0; k < 6 * 100; k++) {
        sx_test_op t;
        sx_tensor input[4];
        sx_test_op_make(&cx, &rng, ops[k % 6], &t);
        for (uint32_t i = 0; i < t.input_count; i++) {
            sx_test_tensor(&cx, &rng, SX_EVAL_F64, &t.input[i], &input[i]);
        }
        sx_tensor y = sx_test_eval(&cx, t.op, &t.attr, SX_EVAL_F64, input, t.input_count);
        for (int64_t at = 0; at < sx_tensor_elements(&t.result); at++) {
            int64_t out[SX_RANK_MAX] = {0};
            int64_t in[SX_RANK_MAX] = {0};
            split(&t.result, at, out);
            uint32_t from = origin(&t, input, out, in);
            const uint64_t *x = input[from].data;
            ck_assert_msg(((uint64_t *)y.data)[at] == x[join(&t.input[from], in)],
                          "%s: element %lld", sx_op_info_of(t.op)->name, (long long)at);
        }
    }
}
END_TEST

/* Every pair of elements that the definition pairs up, by searching all of them. */
static bool pairs_up(const sx_test_op *t, const int64_t *out, const int64_t *left,
                     const int64_t *right)
{
    const sx_attr *attr = &t->attr;
    uint32_t at = 0;
    uint32_t used[2] = {0, 0};
    for (uint32_t k = 0; k < attr->lhs_batch.count; k++, at++) {
        if (left[attr->lhs_batch.v[k]] != out[at] || right[attr->rhs_batch.v[k]] != out[at]) {
            return false;
        }
        used[0] |= 1u << attr->lhs_batch.v[k];
        used[1] |= 1u << attr->rhs_batch.v[k];
    }
    for (uint32_t k = 0; k < attr->lhs_contract.count; k++) {
        if (left[attr->lhs_contract.v[k]] != right[attr->rhs_contract.v[k]]) {
            return false;
        }
        used[0] |= 1u << attr->lhs_contract.v[k];
        used[1] |= 1u << attr->rhs_contract.v[k];
    }
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t d = 0; d < t->input[side].rank; d++) {
            const int64_t *index = side == 0 ? left : right;
            if ((used[side] & 1u << d) == 0 && index[d] != out[at++]) {
                return false;
            }
        }
    }
    return true;
}

START_TEST(contracting)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 60; k++) {
        sx_test_op t;
        sx_tensor input[2];
        do {
            sx_test_op_make(&cx, &rng, SX_OP_DOT_GENERAL, &t);
        } while (sx_tensor_elements(&t.input[0]) > 40 || sx_tensor_elements(&t.input[1]) > 40);
        for (uint32_t i = 0; i < 2; i++) {
            sx_test_tensor(&cx, &rng, SX_EVAL_MODP, &t.input[i], &input[i]);
        }
        sx_tensor y = sx_test_eval(&cx, t.op, &t.attr, SX_EVAL_MODP, input, 2);
        for (int64_t at = 0; at < sx_tensor_elements(&t.result); at++) {
            int64_t out[SX_RANK_MAX];
            uint64_t sum = 0;
            split(&t.result, at, out);
            for (int64_t i = 0; i < sx_tensor_elements(&t.input[0]); i++) {
                for (int64_t j = 0; j < sx_tensor_elements(&t.input[1]); j++) {
                    int64_t left[SX_RANK_MAX];
                    int64_t right[SX_RANK_MAX];
                    split(&t.input[0], i, left);
                    split(&t.input[1], j, right);
                    if (pairs_up(&t, out, left, right)) {
                        sum = (sum +
                               ((uint64_t *)input[0].data)[i] * ((uint64_t *)input[1].data)[j]) %
                              P;
                    }
                }
            }
            ck_assert_uint_eq(((uint64_t *)y.data)[at], sum);
        }
    }
}
END_TEST

/* A matrix product in each mode: doubles in order, a chain of fused multiply-adds in f32 rounded once,
 * wrapping integers. */
START_TEST(contraction_arithmetic)
{
    enum { M = 5, L = 37, C = 19 };
    sx_rng rng = {sx_test_seed()};
    static const sx_dtype dtypes[] = {SX_F32, SX_F64, SX_BF16, SX_I8};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    for (uint32_t k = 0; k < 8; k++) {
        sx_dtype dtype = dtypes[k / 2];
        sx_eval_mode mode = k % 2 == 0 ? SX_EVAL_TYPED : SX_EVAL_F64;
        sx_type type[2] = {{dtype, 2, {{M, SX_NO_SYMBOL}, {L, SX_NO_SYMBOL}}},
                           {dtype, 2, {{L, SX_NO_SYMBOL}, {C, SX_NO_SYMBOL}}}};
        sx_tensor x[2];
        sx_test_tensor(&cx, &rng, mode, &type[0], &x[0]);
        sx_test_tensor(&cx, &rng, mode, &type[1], &x[1]);
        sx_tensor y = sx_test_eval(&cx, SX_OP_DOT_GENERAL, &attr, mode, x, 2);
        for (uint32_t at = 0; at < M * C; at++) {
            cell sum = {.i = 0};
            float narrow = 0;
            for (uint32_t l = 0; l < L; l++) {
                cell a = ((cell *)x[0].data)[at / C * L + l];
                cell b = ((cell *)x[1].data)[l * C + at % C];
                if (dtype == SX_I8) {
                    sum.i = (int8_t)(sum.i + a.i * b.i);
                } else if (mode == SX_EVAL_F64) {
                    sum.f += a.f * b.f;
                } else if (dtype == SX_F64) {
                    sum.f = fma(a.f, b.f, sum.f);
                } else {
                    narrow = fmaf((float)a.f, (float)b.f, narrow);
                    sum.f = sx_round(dtype, (double)narrow);
                }
            }
            ck_assert_int_eq(((cell *)y.data)[at].i, sum.i);
        }
    }
}
END_TEST

START_TEST(reducing)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 200; k++) {
        sx_test_op t;
        sx_tensor x;
        do {
            sx_test_op_make(&cx, &rng, SX_OP_REDUCE, &t);
        } while (sx_dtype_class_of(t.input[0].dtype) != SX_CLASS_FLOAT);
        sx_test_tensor(&cx, &rng, SX_EVAL_POW2, &t.input[0], &x);
        sx_tensor y = sx_test_eval(&cx, t.op, &t.attr, SX_EVAL_POW2, &x, 1);
        static const double neutral[] = {0, 1, -INF, INF};
        for (int64_t at = 0; at < sx_tensor_elements(&t.result); at++) {
            int64_t out[SX_RANK_MAX];
            double sum = neutral[t.attr.reducer];
            split(&t.result, at, out);
            for (int64_t i = 0; i < sx_tensor_elements(&t.input[0]); i++) {
                int64_t in[SX_RANK_MAX];
                uint32_t next = 0;
                bool belongs = true;
                split(&t.input[0], i, in);
                for (uint32_t d = 0; d < t.input[0].rank; d++) {
                    bool reduced = false;
                    for (uint32_t r = 0; r < t.attr.dims.count; r++) {
                        reduced = reduced || t.attr.dims.v[r] == d;
                    }
                    belongs = belongs && (reduced || in[d] == out[next++]);
                }
                double v = ((double *)x.data)[i];
                double combined[] = {sum + v, sum * v, fmax(sum, v), fmin(sum, v)};
                sum = belongs ? combined[t.attr.reducer] : sum;
            }
            ck_assert(((double *)y.data)[at] == sum);
        }
    }
}
END_TEST

START_TEST(leaves)
{
    sx_attr iota = {.present = SX_A(axis) | SX_A(type), .axis = 1};
    iota.type = (sx_type){SX_I8, 2, {{2, SX_NO_SYMBOL}, {300, SX_NO_SYMBOL}}};
    sx_tensor y = sx_test_eval(&cx, SX_OP_IOTA, &iota, SX_EVAL_F64, NULL, 0);
    ck_assert_int_eq(((int64_t *)y.data)[300 + 299], 299 - 256);
    ck_assert_int_eq(((int64_t *)y.data)[300], 0);
    static const uint8_t raw[] = {0x00, 0x3C, 0x00, 0xC0}; // 1 and -2 as f16
    sx_attr constant = {.present = SX_A(data) | SX_A(type), .data = {raw, 4}};
    constant.type = (sx_type){SX_F16, 1, {{2, SX_NO_SYMBOL}}};
    y = sx_test_eval(&cx, SX_OP_CONSTANT, &constant, SX_EVAL_F64, NULL, 0);
    ck_assert(((double *)y.data)[0] == 1 && ((double *)y.data)[1] == -2);
    constant.data.len = 2;
    y = sx_test_eval(&cx, SX_OP_CONSTANT, &constant, SX_EVAL_F64, NULL, 0);
    ck_assert(((double *)y.data)[0] == 1 && ((double *)y.data)[1] == 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("eval");
    TCase *tcase = tcase_create("eval");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, float_table);
    tcase_add_test(tcase, int_table);
    tcase_add_test(tcase, random_bits);
    tcase_add_test(tcase, shifts);
    tcase_add_test(tcase, conversions);
    tcase_add_test(tcase, comparisons);
    tcase_add_test(tcase, field_laws);
    tcase_add_test(tcase, moving);
    tcase_add_test(tcase, contracting);
    tcase_add_test(tcase, contraction_arithmetic);
    tcase_add_test(tcase, reducing);
    tcase_add_test(tcase, leaves);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
