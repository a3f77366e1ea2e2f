/* Kernels with reductions: against the interpreter, over axes, shapes and plans; all lane counts give the
 * same bits, and a row has the same bits whatever the number of rows. */
#include "tests/core/loop/nodes.h"

static const test_tiles plans[] = {
    {.lanes = 16, .tile_m = 1},
    {.lanes = 8, .tile_m = 1},
    {.lanes = 8, .tile_m = 7, .tile_n = 3},
    {.lanes = 16, .tile_m = 1000000, .tile_n = 20},
    {.lanes = 32, .tile_m = 3, .tile_n = 40},
};

static void check_node(sx_ctx *cx, node *n, sx_rng *rng, double tolerance, const char *what)
{
    fill_inputs(cx, n, rng, tolerance == 0);
    sx_tensor exact = oracle(cx, n);
    void *bits = NULL;
    uint64_t numerics = 0;
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        sx_kernel *kernel;
        void *out = run_node(cx, n, &plans[p], run_eval, NULL, &kernel);
        compare_result(n, out, &exact, tolerance, what);
        ck_assert_msg(bits == NULL || memcmp(out, bits, bytes_of(&n->result)) == 0,
                      "%s: plan %u has other bits", what, p);
        ck_assert(bits == NULL || kernel->numerics == numerics);
        numerics = kernel->numerics;
        bits = out;
    }
}

static int64_t extent(sx_rng *rng)
{
    static const int64_t some[] = {1, 2, 15, 16, 17, 63, 64, 65, 128, 131, 257};
    return sx_rng_below(rng, 2) == 0 ? some[sx_rng_below(rng, SX_COUNT(some))]
                                     : 1 + (int64_t)sx_rng_below(rng, 70);
}

START_TEST(test_reductions)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 40; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_type x = TYPE(SX_F32, 1 + (int64_t)sx_rng_below(&rng, 9), extent(&rng),
                         1 + (int64_t)sx_rng_below(&rng, 40));
        if (round % 2 == 0) {
            x = TYPE(SX_F32, 1 + (int64_t)sx_rng_below(&rng, 9), 1 + (int64_t)sx_rng_below(&rng, 5),
                     extent(&rng));
        }
        uint32_t axes = 1 + (uint32_t)sx_rng_below(&rng, 7);
        sx_attr attr = {.present = SX_A(dims) | SX_A(reducer)};
        for (uint32_t d = 0; d < 3; d++) {
            if ((axes >> d & 1) != 0) {
                attr.dims.v[attr.dims.count++] = d;
            }
        }
        attr.reducer = (sx_reducer)(round % 4);
        if (attr.reducer != SX_PRODUCT && round % 3 == 0) {
            x.dtype = SX_I32;
        }
        node n = lift(&cx, SX_OP_REDUCE, &attr, &x, 1);
        check_node(&cx, &n, &rng, attr.reducer == SX_PRODUCT ? 1e-5 : 0, "reduce");
        sx_ctx_fini(&cx);
    }
}
END_TEST

static node norm(sx_ctx *cx, sx_op op, const sx_type *x, uint32_t axis)
{
    sx_attr attr = {.present = SX_A(axis), .axis = axis, .eps = 1e-5};
    sx_type input[3] = {*x};
    uint32_t count = 1;
    if (op == SX_OP_LAYER_NORM || op == SX_OP_RMS_NORM) {
        attr.present |= SX_A(eps);
        count = op == SX_OP_LAYER_NORM ? 3 : 2;
        input[1] = (sx_type){.dtype = SX_F32};
        for (uint32_t d = axis; d < x->rank; d++) {
            input[1].dim[input[1].rank++] = x->dim[d];
        }
        input[2] = input[1];
    }
    return lift(cx, op, &attr, input, count);
}

START_TEST(test_norms)
{
    static const sx_op ops[] = {SX_OP_SOFTMAX, SX_OP_LAYER_NORM, SX_OP_RMS_NORM, SX_OP_LOG_SOFTMAX};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 32; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_op op = ops[round % 4];
        sx_type x = TYPE(SX_F32, 1 + (int64_t)sx_rng_below(&rng, 4),
                         1 + (int64_t)sx_rng_below(&rng, 30), extent(&rng));
        node n = norm(&cx, op, &x, (uint32_t)sx_rng_below(&rng, round < 16 ? 3 : 2) % 3);
        if (round % 8 < 4) {
            n = norm(&cx, op, &x, 2);
        }
        if (round % 5 == 0) {
            n = unary(&cx, SX_OP_GELU, &n);
        }
        check_node(&cx, &n, &rng, 1e-4, sx_op_info_of(op)->name);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Scores scaled, masked with -inf and normalised: the producers are inlined, masked places are exactly 0. */
START_TEST(test_masked_softmax)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_type x = TYPE(SX_F32, 3, 20, 37);
    sx_attr none = {.present = 0};
    node n = lift(&cx, SX_OP_NEGATE, &none, &x, 1);
    n = with_tensor(&cx, SX_OP_ADD, &n, TYPE(SX_F32, 20, 37));
    node s = norm(&cx, SX_OP_SOFTMAX, &x, 2);
    n = inlined(&cx, &s, 0, &n);
    fill_inputs(&cx, &n, &rng, false);
    float *mask = (float *)(void *)n.raw[0];
    if (sx_tensor_elements(&n.input[0]) != 20 * 37) {
        mask = (float *)(void *)n.raw[1];
    }
    for (uint32_t i = 0; i < 20 * 37; i++) {
        mask[i] = i % 37 > i / 37 ? -INFINITY : 0.0f;
    }
    sx_tensor exact = oracle(&cx, &n);
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        const float *out = run_node(&cx, &n, &plans[p], run_eval, NULL, NULL);
        compare_result(&n, out, &exact, 1e-6, "masked softmax");
        for (uint32_t i = 0; i < 3 * 20 * 37; i++) {
            ck_assert(i % 37 <= i / 37 % 20 || out[i] == 0.0f);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_batch_invariance)
{
    static const int64_t row_counts[] = {64, 1, 3, 8};
    static const sx_op ops[] = {SX_OP_SOFTMAX, SX_OP_LAYER_NORM, SX_OP_RMS_NORM};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t o = 0; o < SX_COUNT(ops); o++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        float *whole = NULL;
        uint64_t numerics = 0;
        node big = {.count = 0};
        for (uint32_t r = 0; r < SX_COUNT(row_counts); r++) {
            sx_type x = TYPE(SX_F32, row_counts[r], 203);
            node n = norm(&cx, ops[o], &x, 1);
            if (r == 0) {
                fill_inputs(&cx, &n, &rng, false);
                big = n;
            }
            memcpy(n.raw, big.raw, sizeof(n.raw));
            for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
                sx_kernel *kernel;
                float *out = run_node(&cx, &n, &plans[p], run_eval, NULL, &kernel);
                whole = whole == NULL ? out : whole;
                numerics = numerics == 0 ? kernel->numerics : numerics;
                ck_assert_mem_eq(out, whole, (size_t)row_counts[r] * 203 * 4);
                ck_assert_uint_eq(kernel->numerics, numerics);
            }
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* The fixed virtual shape, written out: 16 lanes x 4 accumulators, chunk c to accumulator c mod 4, fold by 8,
 * 4, 2, 1. */
START_TEST(test_sum_order)
{
    sx_rng rng = {sx_test_seed()};
    for (int64_t length = 1; length < 300; length += 1 + length / 16) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = {1, {0}}, .reducer = SX_SUM};
        sx_type x = TYPE(SX_F32, length);
        node n = lift(&cx, SX_OP_REDUCE, &attr, &x, 1);
        fill_inputs(&cx, &n, &rng, false);
        float acc[4][16] = {{0}};
        for (int64_t i = 0; i < length; i++) {
            float f;
            memcpy(&f, n.raw[0] + 4 * i, 4);
            acc[i / 16 % 4][i % 16] += f;
        }
        float v[16];
        for (uint32_t i = 0; i < 16; i++) {
            v[i] = (acc[0][i] + acc[1][i]) + (acc[2][i] + acc[3][i]);
        }
        for (uint32_t h = 8; h > 0; h /= 2) {
            for (uint32_t i = 0; i < h; i++) {
                v[i] += v[i + h];
            }
        }
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            const float *out = run_node(&cx, &n, &plans[p], run_eval, NULL, NULL);
            ck_assert_mem_eq(out, v, 4);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.row");
    TCase *cases = tcase_create("row");
    tcase_add_test(cases, test_reductions);
    tcase_add_test(cases, test_norms);
    tcase_add_test(cases, test_masked_softmax);
    tcase_add_test(cases, test_batch_invariance);
    tcase_add_test(cases, test_sum_order);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
