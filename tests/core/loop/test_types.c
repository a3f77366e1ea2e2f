/* Every element type in every kind of kernel: conversions between all pairs and arithmetic with the bits of the
 * interpreter, as machine code for every instruction set and by the emulator of loop programs. */
#include "tests/core/loop/nodes.h"
#include "tests/core/x64/machine.h"

#include "core/ir/num.h"

static const sx_dtype dtypes[] = {SX_F64, SX_F32, SX_BF16, SX_F16, SX_F8E4M3, SX_F8E5M2,
                                  SX_I64, SX_I32, SX_I16,  SX_I8,  SX_U8,     SX_BOOL};
#define TYPES SX_COUNT(dtypes)

static bool is_real(sx_dtype dtype)
{
    return sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
}

/* Elements: all bit patterns of a narrow type in some order; of a wide one special and random values. */
static uint64_t element(sx_dtype dtype, sx_rng *rng, uint64_t i)
{
    static const double reals[] = {0.0,
                                   -0.0,
                                   0.5,
                                   -0.5,
                                   1.5,
                                   2.5,
                                   -3.7,
                                   65504,
                                   65519,
                                   65520,
                                   -65536,
                                   448,
                                   464,
                                   465,
                                   57344,
                                   61440,
                                   1e-7,
                                   0x1p-24,
                                   0x1p-25,
                                   0x1.8p-25,
                                   0x1p-133,
                                   0x1p-134,
                                   2147483647.0,
                                   2147483648.0,
                                   -2147483648.0,
                                   4294967296.0,
                                   9223372036854775807.0,
                                   -9223372036854775808.0,
                                   1e300,
                                   -1e-300,
                                   0x1.010101p3,
                                   0x1.008p0,
                                   0x1.018p0,
                                   127.5,
                                   128,
                                   -128.9,
                                   255.9,
                                   256};
    static const int64_t wholes[] = {0,
                                     1,
                                     -1,
                                     127,
                                     128,
                                     -128,
                                     -129,
                                     255,
                                     256,
                                     65504,
                                     65519,
                                     65520,
                                     16777216,
                                     16777217,
                                     16777219,
                                     -16777217,
                                     33685505,
                                     33685504,
                                     INT32_MAX,
                                     INT32_MIN,
                                     (INT64_C(1) << 53) + 1,
                                     INT64_MAX,
                                     INT64_MIN,
                                     (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1,
                                     INT64_C(1) << 62};
    if (dtype == SX_BOOL) {
        return i % 3 == 1;
    }
    if (sx_dtype_bytes(dtype) < 4) {
        return 31 * i & ((UINT64_C(1) << (8 * sx_dtype_bytes(dtype))) - 1);
    }
    uint64_t random = sx_rng_next(rng);
    if (!is_real(dtype)) {
        uint64_t value = i < SX_COUNT(wholes) ? (uint64_t)wholes[i] : random >> (i % 60);
        return sx_num_int_encode(dtype, (int64_t)value);
    }
    if (i < SX_COUNT(reals)) {
        return sx_num_encode(dtype, reals[i]);
    }
    if (i % 16 < 3) {
        return sx_num_encode(dtype, i % 16 == 0 ? (double)NAN : i % 16 == 1 ? HUGE_VAL : -HUGE_VAL);
    }
    double small = ldexp((double)(int64_t)random, -63 + (int)(i % 40) - 20);
    return i % 2 == 0 ? sx_num_encode(dtype, small) : random >> (64 - 8 * sx_dtype_bytes(dtype));
}

static void fill(sx_ctx *cx, node *n, sx_rng *rng)
{
    for (uint32_t k = 0; k < n->count; k++) {
        sx_dtype dtype = n->input[k].dtype;
        int64_t elements = sx_tensor_elements(&n->input[k]);
        n->raw[k] = sx_alloc(cx, bytes_of(&n->input[k]) + 8);
        ck_assert_ptr_nonnull(n->raw[k]);
        for (int64_t i = 0; i < elements; i++) { /* the second operand in another order */
            uint64_t at = k == 0 ? (uint64_t)i : (uint64_t)i * 7 + (uint64_t)i / 256;
            sx_num_store(dtype, n->raw[k], (size_t)i, element(dtype, rng, at));
        }
    }
}

/* The interpreter's bytes, every operation rounded to its type. */
static sx_buf typed_bytes(sx_ctx *cx, const node *n)
{
    sx_tensor in[SX_FUSED_ARGS_MAX];
    sx_tensor out;
    sx_buf raw;
    for (uint32_t k = 0; k < n->count; k++) {
        ck_sx_ok(cx, sx_tensor_unpack(cx, &n->input[k], SX_EVAL_TYPED,
                                      (sx_span){n->raw[k], bytes_of(&n->input[k])}, &in[k]));
    }
    ck_sx_ok(cx, sx_node_eval(cx, SX_OP_FUSED, &n->fused, SX_EVAL_TYPED, in, n->count, &n->result,
                              &out));
    sx_buf_init(&raw, (size_t)1 << 24);
    ck_sx_ok(cx, sx_tensor_pack(cx, &out, &raw));
    return raw;
}

/* Machine code between guard pages, where a processor has such vectors, against the interpreter of loop programs,
 * which then leaves its result. */
static void run_both(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer, void *self)
{
    sx_x64_kernel code;
    void *copy[SX_LOOP_BUFFERS_MAX];
    (void)self;
    memcpy(copy, buffer, sizeof(void *) * kernel->buffer_count);
    if (sx_kernel_vector_bytes(kernel) <= 64) {
        ck_sx_ok(cx,
                 machine_check_by(sx_x64_emit_spilling, cx, kernel, &code, machine_copy_in, copy));
    }
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, buffer));
}

/* The number that bits are, as far as a test may tell them: any NaN is one. */
static bool same_element(sx_dtype dtype, uint64_t a, uint64_t b)
{
    return a == b ||
           (is_real(dtype) && isnan(sx_num_decode(dtype, a)) && isnan(sx_num_decode(dtype, b)));
}

/* Functions lose results below the normal numbers. */
static bool both_tiny(sx_dtype dtype, uint64_t a, uint64_t b)
{
    double normal = dtype == SX_F64                       ? 0x1p-1022
                    : dtype == SX_F32 || dtype == SX_BF16 ? 0x1p-126
                                                          : 0;
    return fabs(sx_num_decode(dtype, a)) <= normal && fabs(sx_num_decode(dtype, b)) <= normal;
}

static bool machine_packs; /* contractions read packed panels */

/* Runs the node with vectors of the set and with 32 lanes, and finds each element equal (error 0), or within `ulps`
 * units of the last place; all of them give the same bits under the same numerics plan. */
static void expect(sx_ctx *cx, node *n, double ulps, const char *what)
{
    machine_dtype = is_real(n->result.dtype) ? n->result.dtype : SX_F32;
    sx_buf bytes = typed_bytes(cx, n);
    const uint8_t *first = NULL;
    uint64_t numerics = 0;
    for (uint32_t vector = 32; vector <= 128; vector *= 2) {
        sx_kernel *kernel;
        test_tiles tiles = {.lanes = vector / 4, .tile_m = 8, .tile_n = 64, .block_m = 3};
        tiles.block_nv = vector / 32;
        tiles.unroll_k = 2;
        tiles.packed_b = machine_packs;
        const uint8_t *got = run_node(cx, n, &tiles, run_both, NULL, &kernel);
        first = first != NULL ? first : got;
        numerics = numerics != 0 ? numerics : kernel->numerics;
        ck_assert_msg(kernel->numerics == numerics, "%s: another numerics plan", what);
        for (size_t i = 0; i < (size_t)sx_tensor_elements(&n->result); i++) {
            uint64_t a = sx_num_load(n->result.dtype, got, i);
            uint64_t b = sx_num_load(n->result.dtype, bytes.ptr, i);
            bool ok = same_element(n->result.dtype, a, b);
            ck_assert_msg(same_element(n->result.dtype, a, sx_num_load(n->result.dtype, first, i)),
                          "%s, vectors of %u bytes: element %zu has other bits", what, vector, i);
            if (!ok && ulps > 0) { /* bits of floats of one sign are ordered as they are */
                ok = (a > b ? a - b : b - a) <= (uint64_t)ulps || both_tiny(n->result.dtype, a, b);
            }
            ck_assert_msg(ok,
                          "%s, vectors of %u bytes: element %zu of %s is %#llx, expected %#llx; "
                          "operands %#llx %#llx",
                          what, vector, i, sx_dtype_name(n->result.dtype), (unsigned long long)a,
                          (unsigned long long)b,
                          (unsigned long long)sx_num_load(n->input[0].dtype, n->raw[0], i),
                          n->count > 1
                              ? (unsigned long long)sx_num_load(n->input[1].dtype, n->raw[1], i)
                              : 0);
        }
    }
    sx_buf_fini(&bytes);
}

START_TEST(test_conversions)
{
    sx_dtype from = dtypes[_i % (int)TYPES];
    sx_rng rng = {sx_test_seed()};
    for (uint32_t t = 0; t < TYPES; t++) {
        bool narrows = sx_dtype_bytes(dtypes[t]) == 2 || dtypes[t] == SX_F8E4M3;
        bool whole =
            sx_dtype_bytes(from) == 2 && (narrows || dtypes[t] == SX_F32 || dtypes[t] == SX_I8);
        int64_t count = whole ? 65536 + 13 : 700 + 13; /* all of a narrow type */
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 28);
        char what[64];
        sx_attr attr = {.present = SX_A(type), .type = TYPE(dtypes[t], count)};
        sx_type x = TYPE(from, count);
        node n = lift(&cx, SX_OP_CONVERT, &attr, &x, 1);
        (void)snprintf(what, sizeof(what), "%s to %s", sx_dtype_name(from),
                       sx_dtype_name(dtypes[t]));
        fill(&cx, &n, &rng);
        expect(&cx, &n, 0, what);
        sx_ctx_fini(&cx);
    }
}
END_TEST

static bool is_shift(sx_op op)
{
    return op == SX_OP_SHIFT_LEFT || op == SX_OP_SHIFT_RIGHT_ARITHMETIC ||
           op == SX_OP_SHIFT_RIGHT_LOGICAL;
}

/* Numbers of places around those that there are, in every third element. */
static void fill_for_shifts(node *n)
{
    sx_dtype dtype = n->input[1].dtype;
    int64_t elements = sx_tensor_elements(&n->input[1]);
    for (int64_t i = 0; i < elements; i += 3) {
        sx_num_store(dtype, n->raw[1], (size_t)i, sx_num_int_encode(dtype, i / 3 % 72 - 4));
    }
}

static bool takes(sx_op op, sx_dtype dtype)
{
    if (op == SX_OP_RANDOM_BITS) {
        return dtype == SX_I64;
    }
    if (dtype == SX_BOOL) {
        return op == SX_OP_AND || op == SX_OP_OR || op == SX_OP_XOR || op == SX_OP_NOT;
    }
    bool bits =
        op == SX_OP_AND || op == SX_OP_OR || op == SX_OP_XOR || op == SX_OP_NOT || is_shift(op);
    if (is_real(dtype)) {
        return !bits && op != SX_OP_POWER; /* a function, whose error is stated */
    }
    bool whole = op == SX_OP_FLOOR || op == SX_OP_CEIL || op == SX_OP_ROUND;
    return !whole && op != SX_OP_SQRT && op != SX_OP_RSQRT;
}

/* The largest quotients: of numbers next to the largest by the smallest ones. */
static void fill_for_quotients(node *n)
{
    sx_dtype dtype = n->input[0].dtype;
    uint64_t beyond = sx_num_encode(dtype, HUGE_VAL);
    for (uint64_t i = 0; i < 64; i++) {
        sx_num_store(dtype, n->raw[0], (size_t)(3 * i), beyond - 1 - i % 32);
        sx_num_store(dtype, n->raw[1], (size_t)(3 * i), 1 + i % 16);
    }
}

START_TEST(test_arithmetic)
{
    static const sx_op ops[] = {SX_OP_ADD,
                                SX_OP_SUBTRACT,
                                SX_OP_MULTIPLY,
                                SX_OP_DIVIDE,
                                SX_OP_MAXIMUM,
                                SX_OP_MINIMUM,
                                SX_OP_AND,
                                SX_OP_OR,
                                SX_OP_XOR,
                                SX_OP_REMAINDER,
                                SX_OP_NOT,
                                SX_OP_NEGATE,
                                SX_OP_ABS,
                                SX_OP_SIGN,
                                SX_OP_FLOOR,
                                SX_OP_CEIL,
                                SX_OP_ROUND,
                                SX_OP_SQRT,
                                SX_OP_RSQRT,
                                SX_OP_RELU,
                                SX_OP_POWER,
                                SX_OP_RANDOM_BITS,
                                SX_OP_SHIFT_LEFT,
                                SX_OP_SHIFT_RIGHT_ARITHMETIC,
                                SX_OP_SHIFT_RIGHT_LOGICAL};
    sx_dtype dtype = dtypes[_i % (int)TYPES];
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < SX_COUNT(ops); k++) {
        const sx_op_info *info = sx_op_info_of(ops[k]);
        if (!takes(ops[k], dtype) || (ops[k] == SX_OP_RELU && !is_real(dtype))) {
            continue;
        }
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 28);
        char what[64];
        sx_attr none = {.present = 0};
        sx_type x[2] = {TYPE(dtype, 3, 701), TYPE(dtype, 3, 701)};
        node n = lift(&cx, ops[k], &none, x, info->input_max);
        (void)snprintf(what, sizeof(what), "%s of %s", info->name, sx_dtype_name(dtype));
        fill(&cx, &n, &rng);
        if (ops[k] == SX_OP_REMAINDER && is_real(dtype)) {
            fill_for_quotients(&n);
        }
        if (is_shift(ops[k])) {
            fill_for_shifts(&n);
        }
        expect(&cx, &n, 0, what);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Comparisons in every direction choose between two values; strided and broadcast operands. */
START_TEST(test_choices)
{
    sx_dtype dtype = dtypes[_i % (int)TYPES];
    sx_rng rng = {sx_test_seed()};
    for (uint32_t how = 0; how < SX_DIRECTION_COUNT; how++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 28);
        char what[64];
        sx_attr turn = {.present = SX_A(perm), .perm = {2, {1, 0}}};
        sx_attr compare = {.present = SX_A(direction), .direction = (sx_direction)how};
        sx_attr none = {.present = 0};
        sx_type x = TYPE(dtype, 70, 11);
        sx_type both[2] = {TYPE(dtype, 11, 70), TYPE(dtype, 11, 70)};
        node turned = lift(&cx, SX_OP_TRANSPOSE, &turn, &x, 1);
        node m = lift(&cx, SX_OP_COMPARE, &compare, both, 2);
        m = inlined(&cx, &m, 0, &turned);
        sx_type three[3] = {TYPE(SX_BOOL, 11, 70), both[0], both[0]};
        node n = lift(&cx, SX_OP_SELECT, &none, three, 3);
        n = inlined(&cx, &n, 0, &m);
        n = with_tensor(&cx, dtype == SX_BOOL ? SX_OP_XOR : SX_OP_MAXIMUM, &n, TYPE(dtype, 70));
        (void)snprintf(what, sizeof(what), "comparison %u of %s", how, sx_dtype_name(dtype));
        fill(&cx, &n, &rng);
        expect(&cx, &n, 0, what);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Indices and constants as every type. */
START_TEST(test_indices)
{
    sx_dtype dtype = dtypes[_i % (int)TYPES];
    sx_ctx cx;
    sx_rng rng = {sx_test_seed()};
    if (dtype == SX_BOOL) {
        return;
    }
    sx_ctx_init(&cx, (size_t)1 << 28);
    sx_attr iota = {.present = SX_A(axis) | SX_A(type), .axis = 1, .type = TYPE(dtype, 5, 300)};
    sx_attr none = {.present = 0};
    sx_type both[2] = {iota.type, iota.type};
    node index = lift(&cx, SX_OP_IOTA, &iota, NULL, 0);
    node n = lift(&cx, SX_OP_ADD, &none, both, 2);
    n = inlined(&cx, &n, 0, &index);
    fill(&cx, &n, &rng);
    expect(&cx, &n, 0, "index");
    sx_ctx_fini(&cx);
}
END_TEST

/* Floats of one sign that a sum of some hundred of them does not take out of the type; integers of all sizes. */
static void fill_for_sums(sx_ctx *cx, node *n, sx_rng *rng)
{
    fill(cx, n, rng);
    for (uint32_t k = 0; k < n->count; k++) {
        sx_dtype dtype = n->input[k].dtype;
        for (int64_t i = 0; i < sx_tensor_elements(&n->input[k]) && is_real(dtype); i++) {
            double value = 0.25 + fabs((double)sx_rng_f32(rng));
            sx_num_store(dtype, n->raw[k], (size_t)i, sx_num_encode(dtype, value));
        }
    }
}

/* Sums in another order than the interpreter's: one rounding of a narrow type, as many units as terms of a wide one. */
static double ulps_of_sum(sx_dtype dtype, int64_t terms)
{
    return !is_real(dtype) ? 0 : sx_dtype_bytes(dtype) < 4 ? 1 : (double)terms;
}

START_TEST(test_reductions)
{
    sx_dtype dtype = dtypes[_i % (int)TYPES];
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 2 * SX_REDUCER_COUNT; k++) {
        sx_reducer reducer = (sx_reducer)(k / 2);
        bool order = reducer == SX_MAX || reducer == SX_MIN;
        if (dtype == SX_BOOL && order) {
            continue;
        }
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 28);
        char what[64];
        bool product = reducer == SX_PRODUCT && is_real(dtype); /* of few: it stays in the type */
        int64_t length = product ? 5 : 197;
        sx_type x = k % 2 == 0 ? TYPE(dtype, 7, length) : TYPE(dtype, length, 37);
        sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .reducer = reducer};
        attr.dims = (sx_ints){1, {k % 2 == 0 ? 1 : 0}};
        node n = lift(&cx, SX_OP_REDUCE, &attr, &x, 1);
        (void)snprintf(what, sizeof(what), "reduction %u of %s", k, sx_dtype_name(dtype));
        fill_for_sums(&cx, &n, &rng);
        expect(&cx, &n, order ? 0 : ulps_of_sum(dtype, length), what);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Softmax and a norm, which keep what several passes need. */
START_TEST(test_rows)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t t = 0; t < 6; t++) {
        for (uint32_t k = 0; k < 3; k++) {
            sx_ctx cx;
            sx_ctx_init(&cx, (size_t)1 << 28);
            char what[64];
            sx_attr attr = {.present = SX_A(axis), .axis = k == 1 ? 0 : 1, .eps = 1e-5};
            attr.present |= k == 2 ? SX_A(eps) : 0;
            sx_type x[2] = {TYPE(dtypes[t], 6, 150), TYPE(dtypes[t], 150)};
            node n = lift(&cx, k == 2 ? SX_OP_RMS_NORM : SX_OP_SOFTMAX, &attr, x, k == 2 ? 2 : 1);
            (void)snprintf(what, sizeof(what), "row %u of %s", k, sx_dtype_name(dtypes[t]));
            fill_for_sums(&cx, &n, &rng);
            expect(&cx, &n, sx_dtype_bytes(dtypes[t]) < 4 ? 1 : 200, what);
            sx_ctx_fini(&cx);
        }
    }
}
END_TEST

/* Contractions, packed and not, of rows that are contiguous along the columns or along the sum, with a bias. */
START_TEST(test_contractions)
{
    sx_dtype dtype = dtypes[_i % (int)TYPES];
    sx_rng rng = {sx_test_seed()};
    if (dtype == SX_BOOL) {
        return;
    }
    for (uint32_t k = 0; k < 4; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 28);
        char what[64];
        bool turned = k / 2 != 0;
        sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                                   SX_A(rhs_contract)};
        attr.lhs_contract = (sx_ints){1, {1}};
        attr.rhs_contract = (sx_ints){1, {turned ? 1 : 0}};
        sx_type x[2] = {TYPE(dtype, 9, 35), turned ? TYPE(dtype, 41, 35) : TYPE(dtype, 35, 41)};
        node n = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
        n = with_tensor(&cx, SX_OP_ADD, &n, TYPE(dtype, 41));
        machine_packs = k % 2 != 0;
        (void)snprintf(what, sizeof(what), "contraction %u of %s", k, sx_dtype_name(dtype));
        fill_for_sums(&cx, &n, &rng);
        expect(&cx, &n, ulps_of_sum(dtype, 2 * 35), what);
        machine_packs = false;
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* A move by bytes: what the result must hold, element by element of the first input (or the second, the scalar
 * of a pad). */
static void expect_move(sx_ctx *cx, sx_op op, const sx_attr *attr, node *n, const sx_kernel *kernel)
{
    sx_tensor in[2];
    sx_tensor out;
    sx_buf raw;
    sx_judge *judge;
    sx_verdict verdict;
    void *buffer[3] = {n->raw[0], n->raw[1], NULL};
    uint8_t *got = buffer[n->count] = exact_buffer(cx, bytes_of(&n->result));
    ck_sx_ok(cx, sx_judge_make(cx, &judge));
    ck_sx_ok(cx, sx_judge_move(judge, op, attr, n->input, n->count, &n->result, kernel, &verdict));
    ck_assert_msg(verdict.proven, "%s of %s: %s", sx_op_info_of(op)->name,
                  sx_dtype_name(n->result.dtype), verdict.text);
    run_both(cx, kernel, buffer, NULL);
    for (uint32_t k = 0; k < n->count; k++) {
        ck_sx_ok(cx, sx_tensor_unpack(cx, &n->input[k], SX_EVAL_TYPED,
                                      (sx_span){n->raw[k], bytes_of(&n->input[k])}, &in[k]));
    }
    ck_sx_ok(cx, sx_node_eval(cx, op, attr, SX_EVAL_TYPED, in, n->count, &n->result, &out));
    sx_buf_init(&raw, (size_t)1 << 24);
    ck_sx_ok(cx, sx_tensor_pack(cx, &out, &raw));
    for (size_t i = 0; i < (size_t)sx_tensor_elements(&n->result); i++) {
        ck_assert_msg(same_element(n->result.dtype, sx_num_load(n->result.dtype, got, i),
                                   sx_num_load(n->result.dtype, raw.ptr, i)),
                      "%s of %s: element %zu", sx_op_info_of(op)->name,
                      sx_dtype_name(n->result.dtype), i);
    }
    for (uint32_t i = 0; i < 16; i++) {
        ck_assert_uint_eq(got[bytes_of(&n->result) + i], 0xCC);
    }
    sx_buf_fini(&raw);
}

START_TEST(test_moves)
{
    sx_dtype dtype = dtypes[_i % (int)TYPES];
    sx_rng rng = {sx_test_seed()};
    machine_dtype = is_real(dtype) ? dtype : SX_F32;
    for (uint32_t k = 0; k < 6; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 28);
        sx_kernel *kernel;
        int64_t odd =
            k % 2 == 0 ? 37 : 40; /* rows of bytes that are no whole words, and that are */
        uint32_t lanes = 8u << k % 3;
        test_tiles tiles = {.lanes = lanes, .tile_m = 2, .tile_n = 64};
        test_tiles elements = tiles;
        elements.lanes = sx_vector_unit_lanes(sx_test_unit_of(lanes), sx_move_lane_bytes(dtype));
        sx_attr attr = {.present = SX_A(axis), .axis = 1};
        node n = {.count = 2, .input = {TYPE(dtype, 3, odd), TYPE(dtype, 3, odd + 4)}};
        n.result = TYPE(dtype, 3, 2 * odd + 4);
        fill(&cx, &n, &rng);
        ck_sx_ok(&cx, sx_lower_concatenate(&cx, "c", &attr, n.input, 2, &n.result,
                                           move_schedule(&cx, &tiles), &kernel));
        expect_move(&cx, SX_OP_CONCATENATE, &attr, &n, kernel);
        n = (node){.count = 2, .input = {TYPE(dtype, 5, odd), TYPE(k < 3 ? SX_I64 : SX_I32, 7)}};
        n.result = TYPE(dtype, 7, odd);
        attr.axis = 0;
        fill(&cx, &n, &rng);
        for (int64_t i = 0; i < 7; i++) { /* a negative one counts from the end */
            sx_num_store(n.input[1].dtype, n.raw[1], (size_t)i,
                         sx_num_int_encode(n.input[1].dtype, i % 5 - (i == 3 ? 5 : 0)));
        }
        ck_sx_ok(&cx, sx_lower_gather(&cx, "g", &attr, n.input, 2, &n.result,
                                      move_schedule(&cx, &tiles), &kernel));
        expect_move(&cx, SX_OP_GATHER, &attr, &n, kernel);
        sx_attr turn = {.present = SX_A(dims), .dims = {1, {1}}};
        n = (node){.count = 1, .input = {TYPE(dtype, 3, odd)}, .result = TYPE(dtype, 3, odd)};
        fill(&cx, &n, &rng);
        ck_sx_ok(&cx, sx_lower_reverse(&cx, "r", &turn, n.input, &n.result,
                                       move_schedule(&cx, &elements), &kernel));
        expect_move(&cx, SX_OP_REVERSE, &turn, &n, kernel);
        sx_attr pad = {.present = SX_A(low) | SX_A(high) | SX_A(interior)};
        pad.low = (sx_ints){2, {1, 2}};
        pad.high = (sx_ints){2, {0, 3}};
        pad.interior = (sx_ints){2, {0, k % 2}};
        n = (node){.count = 2, .input = {TYPE(dtype, 3, odd), (sx_type){.dtype = dtype}}};
        n.result = TYPE(dtype, 4, odd + (odd - 1) * (k % 2) + 5);
        fill(&cx, &n, &rng);
        ck_sx_ok(&cx, sx_lower_pad(&cx, "p", &pad, n.input, &n.result,
                                   move_schedule(&cx, &elements), &kernel));
        expect_move(&cx, SX_OP_PAD, &pad, &n, kernel);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Functions of f64, whose error math_wide.c states, and of narrow floats: one of theirs at most. */
START_TEST(test_functions)
{
    static const struct {
        sx_op op;
        double ulps;
    } rows[] = {
        {SX_OP_EXP, 2}, {SX_OP_LOG, 2}, {SX_OP_TANH, 4}, {SX_OP_LOGISTIC, 4}, {SX_OP_ERF, 3}};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t t = 0; t < 6; t++) {
        for (uint32_t k = 0; k < SX_COUNT(rows); k++) {
            sx_ctx cx;
            sx_ctx_init(&cx, (size_t)1 << 28);
            char what[64];
            sx_attr none = {.present = 0};
            sx_type x = TYPE(dtypes[t], 3001);
            node n = lift(&cx, rows[k].op, &none, &x, 1);
            (void)snprintf(what, sizeof(what), "%s of %s", sx_op_info_of(rows[k].op)->name,
                           sx_dtype_name(dtypes[t]));
            fill(&cx, &n, &rng);
            expect(&cx, &n, dtypes[t] == SX_F64 ? rows[k].ulps : dtypes[t] == SX_F32 ? 8 : 1, what);
            sx_ctx_fini(&cx);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.types");
    TCase *cases = tcase_create("types");
    tcase_set_timeout(cases, 400);
    tcase_add_loop_test(cases, test_conversions, 0, (int)TYPES);
    tcase_add_loop_test(cases, test_arithmetic, 0, (int)TYPES);
    tcase_add_loop_test(cases, test_choices, 0, (int)TYPES);
    tcase_add_loop_test(cases, test_indices, 0, (int)TYPES);
    tcase_add_loop_test(cases, test_moves, 0, (int)TYPES);
    tcase_add_loop_test(cases, test_reductions, 0, (int)TYPES);
    tcase_add_loop_test(cases, test_contractions, 0, (int)TYPES);
    tcase_add_test(cases, test_rows);
    tcase_add_test(cases, test_functions);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
