/* Contractions by blocks of threads, executed in the interpreter of PTX: fused multiply-adds give the bits of the loop
 * IR under every schedule, at every edge, however late copies arrive. */
#include "tests/core/nvidia/tiles.h"

#include "client/assemble/assemble.h"

static const sx_block_tiles plans[] = {
    {.rows = 16,
     .columns = 16,
     .steps = 8,
     .warp_rows = 16,
     .warp_columns = 16,
     .thread_rows = 2,
     .thread_columns = 4,
     .depth = 2},
    {.rows = 32,
     .columns = 64,
     .steps = 8,
     .warp_rows = 16,
     .warp_columns = 32,
     .thread_rows = 4,
     .thread_columns = 4,
     .depth = 3},
    {.rows = 64,
     .columns = 32,
     .steps = 16,
     .warp_rows = 32,
     .warp_columns = 32,
     .thread_rows = 8,
     .thread_columns = 4,
     .depth = 4},
    {.rows = 8,
     .columns = 32,
     .steps = 4,
     .warp_rows = 8,
     .warp_columns = 32,
     .thread_rows = 8,
     .thread_columns = 1,
     .depth = 5},
};

/* `tiny`: all products are negative and vanish, so that no sum, -0, may meet a zero that fills a tile. */
static void check_case(sx_ctx *cx, const tiles_case *c, const sx_block_tiles *plan, sx_rng *rng,
                       bool tiny)
{
    static const test_tiles vectors = {
        .lanes = 16, .block_m = 4, .block_nv = 2, .tile_m = 16, .tile_n = 64, .unroll_k = 2};
    node n = tiles_node(cx, c);
    sx_kernel *kernel, *other;
    tiles_fill(cx, &n, rng, false);
    for (uint32_t k = 0; k < n.count && tiny; k++) {
        float *x = (float *)(void *)n.raw[k];
        for (int64_t i = 0; i < sx_tensor_elements(&n.input[k]); i++) {
            x[i] = k == 0 ? -1e-30F : 1e-30F;
        }
    }
    uint8_t *want = run_node(cx, &n, &vectors, run_eval, NULL, &other);
    sx_code code = tiles_lower(cx, &sx_target_sm_80, &n, *plan, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    ck_assert_uint_eq(kernel->numerics, other->numerics);
    sx_ptx_module *module = tiles_module(cx, kernel, 80);
    for (uint32_t lazy = 0; lazy < 2; lazy++) {
        uint8_t *out = exact_buffer(cx, bytes_of(&n.result));
        code = tiles_run(cx, kernel, module, &n, sx_rng_next(rng), lazy != 0, out, NULL);
        if (code != SX_OK) {
            sx_buf text;
            sx_buf_init(&text, 1 << 24);
            (void)sx_tile_print(cx, &kernel->part[0], &text);
            sx_ptx_print(module, &text);
            sx_buf_put(&text, "", 1);
            (void)fprintf(stderr, "%s\n", getenv("SX_SHOW") ? (const char *)text.ptr : "");
            sx_buf_fini(&text);
        }
        ck_assert_msg(code == SX_OK, "%lld x %lld x %lld: %s", (long long)c->m, (long long)c->k,
                      (long long)c->n, cx->error.text);
        ck_assert_msg(memcmp(out, want, bytes_of(&n.result)) == 0,
                      "%lld batches %lld x %lld x %lld turned %d %d after %u: other bits",
                      (long long)c->b, (long long)c->m, (long long)c->k, (long long)c->n,
                      c->left_turned, c->right_turned, c->after);
    }
}

static int64_t extent(sx_rng *rng, int64_t block)
{
    static const int64_t some[] = {1, 3, 4, 8, 12, 16, 20, 29, 32, 48};
    return sx_rng_below(rng, 3) == 0 ? block * (1 + (int64_t)sx_rng_below(rng, 2))
                                     : some[sx_rng_below(rng, SX_COUNT(some))];
}

/* Of tiles_case: those that need no other type. */
static const uint32_t epilogues[] = {0, 1, 2, 3, 5};

START_TEST(test_fma)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 12; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        const sx_block_tiles *plan = &plans[_i % (int)SX_COUNT(plans)];
        tiles_case c = {.dtype = SX_F32,
                        .b = 1 + (int64_t)sx_rng_below(&rng, 2),
                        .m = extent(&rng, plan->rows),
                        .n = extent(&rng, plan->columns),
                        .k = extent(&rng, plan->steps),
                        .left_turned = round & 1,
                        .right_turned = round >> 1 & 1,
                        .after = epilogues[sx_rng_below(&rng, SX_COUNT(epilogues))]};
        bool tiny = round % 4 == 3;
        c.k = tiny ? plan->steps + 1 : c.k;
        check_case(&cx, &c, plan, &rng, tiny);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* ---- matrix instructions ---- */
static const sx_block_tiles matrices[] = {
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 16,
     .rows = 16,
     .columns = 16,
     .steps = 16,
     .warp_rows = 16,
     .warp_columns = 16,
     .depth = 2},
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 16,
     .rows = 64,
     .columns = 32,
     .steps = 32,
     .warp_rows = 32,
     .warp_columns = 16,
     .depth = 3},
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 16,
     .rows = 32,
     .columns = 64,
     .steps = 64,
     .warp_rows = 16,
     .warp_columns = 64,
     .depth = 4},
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 16,
     .rows = 32,
     .columns = 8,
     .steps = 16,
     .warp_rows = 32,
     .warp_columns = 8,
     .depth = 3},
};

static sx_kernel *lower_matrices(sx_ctx *cx, const node *n, const sx_block_tiles *plan)
{
    sx_kernel *kernel;
    sx_code code = tiles_lower(cx, &sx_target_sm_80, n, *plan, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    return kernel;
}

/* Small integers, whose sums are exact: the bits of the loop IR whatever is fused behind the sum. */
START_TEST(test_matrix)
{
    static const test_tiles vectors = {
        .lanes = 16, .block_m = 4, .block_nv = 2, .tile_m = 16, .tile_n = 64, .unroll_k = 2};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 12; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        const sx_block_tiles *plan = &matrices[_i % (int)SX_COUNT(matrices)];
        tiles_case c = {.dtype = round % 2 == 0 ? SX_BF16 : SX_F16,
                        .b = 1 + (int64_t)sx_rng_below(&rng, 2),
                        .m = 1 + extent(&rng, plan->rows),
                        .n = 1 + extent(&rng, plan->columns),
                        .k = extent(&rng, plan->steps),
                        .left_turned = round >> 1 & 1,
                        .right_turned = round >> 2 & 1,
                        .after = epilogues[sx_rng_below(&rng, SX_COUNT(epilogues))]};
        bool even = sx_rng_below(&rng, 2) != 0;
        c.m -= even && c.m > 2 ? 1 : 0;
        c.n -= even && c.n > 2 ? 1 : 0;
        node n = tiles_node(&cx, &c);
        sx_kernel *other;
        tiles_fill(&cx, &n, &rng, true);
        uint8_t *want = run_node(&cx, &n, &vectors, run_eval, NULL, &other);
        sx_kernel *kernel = lower_matrices(&cx, &n, plan);
        ck_assert_uint_ne(kernel->numerics, other->numerics);
        sx_ptx_module *module = tiles_module(&cx, kernel, 80);
        for (uint32_t lazy = 0; lazy < 2; lazy++) {
            uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
            sx_code code =
                tiles_run(&cx, kernel, module, &n, sx_rng_next(&rng), lazy != 0, out, NULL);
            ck_assert_msg(code == SX_OK, "%lld x %lld x %lld: %s", (long long)c.m, (long long)c.k,
                          (long long)c.n, cx.error.text);
            ck_assert_msg(memcmp(out, want, bytes_of(&n.result)) == 0,
                          "%lld batches %lld x %lld x %lld turned %d %d after %u: other bits",
                          (long long)c.b, (long long)c.m, (long long)c.k, (long long)c.n,
                          c.left_turned, c.right_turned, c.after);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* ---- elements that widen ---- */
static const sx_block_tiles *bytes_plan(int which)
{
    static const sx_block_tiles plan[] = {{.matrix_rows = 16,
                                           .matrix_columns = 8,
                                           .matrix_steps = 32,
                                           .rows = 32,
                                           .columns = 32,
                                           .steps = 32,
                                           .warp_rows = 16,
                                           .warp_columns = 16,
                                           .depth = 3},
                                          {.matrix_rows = 16,
                                           .matrix_columns = 8,
                                           .matrix_steps = 32,
                                           .rows = 64,
                                           .columns = 32,
                                           .steps = 128,
                                           .warp_rows = 32,
                                           .warp_columns = 32,
                                           .depth = 2}};
    return &plan[which % 2];
}

/* Any bytes, in every layout: the sums of a loop over k, which shares nothing with the compiler. */
START_TEST(test_bytes)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 8; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        const sx_block_tiles *plan = bytes_plan(_i / 2);
        tiles_case c = {.dtype = _i % 2 == 0 ? SX_I8 : SX_U8,
                        .b = 1,
                        .m = 1 + extent(&rng, plan->rows),
                        .n = 1 + extent(&rng, plan->columns),
                        .k = round == 7 ? 64 : extent(&rng, plan->steps),
                        .left_turned = round & 1,
                        .right_turned = round >> 1 & 1,
                        .widened = true};
        c.m = round >= 4 ? sx_ceil_div_i64(c.m, 16) * 16 : c.m;
        c.n = round >= 4 ? sx_ceil_div_i64(c.n, 16) * 16 : c.n;
        node n = tiles_node(&cx, &c);
        tiles_fill(&cx, &n, &rng, false);
        sx_kernel *kernel = lower_matrices(&cx, &n, plan);
        ck_assert_ptr_nonnull(kernel->part[0].tile->matrix);
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        ck_sx_ok(&cx, tiles_run(&cx, kernel, tiles_module(&cx, kernel, 80), &n, sx_rng_next(&rng),
                                true, out, NULL));
        for (int64_t i = 0; i < c.m * c.n; i++) {
            int32_t want = 0, got;
            for (int64_t k = 0; k < c.k; k++) {
                int64_t row = i / c.n, column = i % c.n;
                uint8_t x = n.raw[0][c.left_turned ? k * c.m + row : row * c.k + k];
                uint8_t y = n.raw[1][c.right_turned ? column * c.k + k : k * c.n + column];
                want += c.dtype == SX_U8 ? x * y : (int8_t)x * (int8_t)y;
            }
            memcpy(&got, out + 4 * i, 4);
            ck_assert_msg(got == want, "element %lld of %lld x %lld x %lld is %d, not %d",
                          (long long)i, (long long)c.m, (long long)c.k, (long long)c.n, got, want);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Sums of another type than their factors: small numbers, whose sums are exact, and what is fused behind them. Sums of
 * integers have the numerics of lanes, those of floats one of their own. */
START_TEST(test_widened)
{
    static const sx_dtype dtypes[] = {SX_BF16, SX_F16, SX_I8, SX_U8};
    static const test_tiles vectors = {
        .lanes = 16, .block_m = 4, .block_nv = 2, .tile_m = 16, .tile_n = 64, .unroll_k = 2};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 10; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        bool real = _i % 4 < 2;
        const sx_block_tiles *plan = real ? &matrices[round % 4] : bytes_plan((int)round);
        tiles_case c = {.dtype = dtypes[_i % 4],
                        .b = 1 + (int64_t)sx_rng_below(&rng, 2),
                        .m = 1 + extent(&rng, plan->rows),
                        .n = 1 + extent(&rng, plan->columns),
                        .k = extent(&rng, plan->steps),
                        .left_turned = round & 1,
                        .right_turned = round >> 1 & 1,
                        .after = round % 6,
                        .widened = true};
        node n = tiles_node(&cx, &c);
        sx_kernel *other;
        tiles_fill(&cx, &n, &rng, true);
        uint8_t *want = run_node(&cx, &n, &vectors, run_eval, NULL, &other);
        sx_kernel *kernel = lower_matrices(&cx, &n, plan);
        ck_assert(real == (kernel->numerics != other->numerics));
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        ck_sx_ok(&cx, tiles_run(&cx, kernel, tiles_module(&cx, kernel, 80), &n, sx_rng_next(&rng),
                                round % 2 != 0, out, NULL));
        ck_assert_msg(memcmp(out, want, bytes_of(&n.result)) == 0,
                      "%s: %lld batches %lld x %lld x %lld turned %d %d after %u: other bits",
                      sx_dtype_name(c.dtype), (long long)c.b, (long long)c.m, (long long)c.k,
                      (long long)c.n, c.left_turned, c.right_turned, c.after);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* ---- stores ---- */
/* How many stores of each width to global memory a thread makes: of 1, 2 and 4 registers. */
static void count_stores(const sx_ptx_module *module, uint32_t count[3])
{
    sx_buf text;
    sx_buf_init(&text, 1 << 24);
    sx_ptx_print(module, &text);
    sx_buf_put(&text, "", 1);
    memset(count, 0, 3 * sizeof(count[0]));
    for (const char *at = (const char *)text.ptr; (at = strstr(at, "st.global")) != NULL; at++) {
        bool two = memcmp(at + 9, ".v2", 3) == 0, four = memcmp(at + 9, ".v4", 3) == 0;
        count[four ? 2 : two ? 1 : 0]++;
    }
    sx_buf_fini(&text);
}

/* Results that lie side by side in a thread are stored together wherever the address of each group is a multiple of its
 * size and no edge cuts one: what a store writes is seen by the interpreter in the other tests. */
START_TEST(test_stores)
{
    static const struct {
        tiles_case c;
        const sx_block_tiles *plan;
        uint32_t count[3];
    } row[] = {
        /* 64 threads of 32 x 16: 16 results each, in pairs of 4 and 8 bytes */
        {{.dtype = SX_BF16, .b = 1, .m = 33, .k = 16, .n = 34}, &matrices[1], {8, 0, 0}},
        {{.dtype = SX_BF16, .b = 1, .m = 33, .k = 16, .n = 34, .widened = true},
         &matrices[1],
         {0, 8, 0}},
        {{.dtype = SX_BF16, .b = 2, .m = 33, .k = 16, .n = 34, .after = 2},
         &matrices[1],
         {8, 0, 0}},
        /* rows of 33 elements do not begin at a multiple of two */
        {{.dtype = SX_BF16, .b = 1, .m = 33, .k = 16, .n = 33}, &matrices[1], {16, 0, 0}},
        /* a turned result has the arguments exchanged */
        {{.dtype = SX_BF16, .b = 1, .m = 32, .k = 16, .n = 32, .after = 3},
         &matrices[1],
         {8, 0, 0}},
        /* 2 x 4 results of each thread */
        {{.dtype = SX_F32, .b = 1, .m = 17, .k = 16, .n = 20}, &plans[0], {0, 0, 2}},
        {{.dtype = SX_F32, .b = 1, .m = 17, .k = 16, .n = 22, .after = 1}, &plans[0], {0, 4, 0}},
        {{.dtype = SX_F32, .b = 1, .m = 17, .k = 16, .n = 21}, &plans[0], {8, 0, 0}},
        {{.dtype = SX_F64, .b = 1, .m = 17, .k = 16, .n = 22}, &plans[0], {0, 4, 0}},
        /* of one row, which begins where it may, the last group is not whole */
        {{.dtype = SX_F32, .b = 1, .m = 1, .k = 16, .n = 21}, &plans[0], {8, 0, 0}},
    };
    sx_ctx cx;
    sx_kernel *kernel;
    uint32_t count[3];
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = tiles_node(&cx, &row[_i].c);
    ck_sx_ok(&cx, tiles_lower(&cx, &sx_target_sm_80, &n, *row[_i].plan, &kernel));
    count_stores(tiles_module(&cx, kernel, 80), count);
    for (uint32_t k = 0; k < 3; k++) {
        ck_assert_msg(count[k] == row[_i].count[k], "%u stores of %u registers, not %u", count[k],
                      1U << k, row[_i].count[k]);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Random numbers: the bits of the fold, the same under every schedule, and near to the exact sum: each group adds an
 * error of half a unit in the last place of a sum below k, and the result one of its own type. */
START_TEST(test_fold)
{
    static const int64_t rows = 19, columns = 24, sum = 75;
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = {.dtype = _i == 0 ? SX_BF16 : SX_F16, .b = 1, .m = rows, .k = sum, .n = columns};
    node n = tiles_node(&cx, &c);
    uint64_t numerics = 0;
    double unit = _i == 0 ? ldexp(1.0, -8) : ldexp(1.0, -11);
    tiles_fill(&cx, &n, &rng, false);
    sx_tensor exact = oracle(&cx, &n);
    for (uint32_t p = 0; p < SX_COUNT(matrices); p++) {
        sx_kernel *kernel = lower_matrices(&cx, &n, &matrices[p]);
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        ck_assert(numerics == 0 || numerics == kernel->numerics);
        numerics = kernel->numerics;
        ck_sx_ok(&cx,
                 tiles_run(&cx, kernel, tiles_module(&cx, kernel, 80), &n, 1, true, out, NULL));
        for (int64_t i = 0; i < rows * columns; i++) {
            float fold = tiles_folded(&n, sum, i / columns, i % columns, columns);
            uint64_t got = sx_num_load(c.dtype, out, (size_t)i);
            ck_assert_uint_eq(got, sx_num_encode(c.dtype, (double)fold));
            double value = sx_num_decode(c.dtype, got), want = ((const double *)exact.data)[i];
            double sums = ceil((double)sum / 16) * (double)sum * ldexp(1.0, -24);
            ck_assert_msg(fabs(value - want) <= sums + unit * (fabs(want) + sums),
                          "element %lld is %g, exact %g", (long long)i, value, want);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- slices ---- */
#define LEAST 64 /* steps of a slice */

static sx_target sliced_target(sx_matrix_instruction matrix[2])
{
    sx_target target = sx_target_sm_80;
    ck_assert_uint_ge(target.matrix_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        matrix[i] = target.matrix[i];
        matrix[i].slice_least = LEAST;
    }
    target.matrix = matrix;
    target.matrix_count = 2;
    return target;
}

/* How many slices a sum has, by the rule of the plan in other words: the first number, from the most on, into which
 * the units can be dealt. */
START_TEST(test_slice_rule)
{
    static const int64_t want[][3] = {
        /* least, sum, slice */
        {0, 1 << 20, 0},     {2048, 4096, 0},      {2048, 8128, 0},     {2048, 8192, 2048},
        {2048, 14336, 2048}, {2048, 28672, 3584},  {2048, 11008, 2752}, {2048, 16384, 2048},
        {2048, 8191, 0},     {2048, 8256, 2752},   {2048, 8200, 0},     {64, 256, 64},
        {64, 320, 64},       {64, 1 << 20, 131072}};
    for (uint32_t i = 0; i < SX_COUNT(want); i++) {
        sx_matrix_instruction m = {.slice_least = (uint32_t)want[i][0]};
        ck_assert_int_eq(sx_matrix_slice(&m, want[i][1]), want[i][2]);
    }
    sx_matrix_instruction m = {.slice_least = LEAST};
    for (int64_t sum = 1; sum < 5000; sum++) {
        int64_t slice = sx_matrix_slice(&m, sum), slices = slice > 0 ? sum / slice : 1;
        ck_assert(slice == 0 || (slice * slices == sum && slice >= LEAST && slice % 64 == 0));
        for (int64_t more = slices + 1; more <= 8 && sum >= 4 * LEAST; more++) {
            ck_assert(sum % (64 * more) != 0 || sum / more < LEAST);
        }
    }
}
END_TEST

/* One row of the product by the plan: each slice folded from 0, and the slices added from 0. */
static float added(const node *n, int64_t k, int64_t slice, int64_t row, int64_t column,
                   int64_t columns)
{
    float total = 0;
    for (int64_t first = 0; first < k; first += slice) {
        float sum = 0;
        for (int64_t g = first; g < first + slice; g += 16) {
            long double exact = (long double)sum;
            for (int64_t i = g; i < g + 16; i++) {
                sx_dtype dtype = n->input[0].dtype;
                double x =
                    sx_num_decode(dtype, sx_num_load(dtype, n->raw[0], (size_t)(row * k + i)));
                double y = sx_num_decode(
                    dtype, sx_num_load(dtype, n->raw[1], (size_t)(i * columns + column)));
                exact += (long double)x * (long double)y;
            }
            sum = (float)exact;
        }
        total += sum;
    }
    return total;
}

/* Random numbers, or products that vanish below 0: the bits of the plan, the same under every schedule. */
START_TEST(test_slices)
{
    static const int64_t rows = 19, columns = 24, sums[] = {256, 320, 448, 1024};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_matrix_instruction matrix[2];
    const sx_target target = sliced_target(matrix);
    tiles_case c = {.dtype = _i % 2 == 0 ? SX_BF16 : SX_F16,
                    .b = 1,
                    .m = rows,
                    .k = sums[(uint32_t)_i % SX_COUNT(sums)],
                    .n = columns};
    node n = tiles_node(&cx, &c);
    uint64_t numerics = 0;
    int64_t slice = sx_matrix_slice(&matrix[0], c.k);
    ck_assert_int_gt(slice, 0);
    tiles_fill(&cx, &n, &rng, false);
    for (uint32_t f = 0; _i == 2 && f < 2; f++) { /* bf16 whose products vanish */
        const uint16_t tiny = f == 0 ? 0x9000 : 0x1000;
        for (int64_t i = 0; i < sx_tensor_elements(&n.input[f]); i++) {
            memcpy(n.raw[f] + 2 * i, &tiny, sizeof(tiny));
        }
    }
    for (uint32_t p = 0; p < SX_COUNT(matrices); p++) {
        sx_kernel *kernel;
        sx_block_tiles plan = matrices[p];
        ck_sx_fails(&cx, tiles_lower(&cx, &target, &n, plan, &kernel), SX_UNIMPLEMENTED,
                    "other slices");
        plan.slice = slice;
        sx_code code = tiles_lower(&cx, &target, &n, plan, &kernel);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        ck_assert(numerics == 0 || numerics == kernel->numerics);
        numerics = kernel->numerics;
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        ck_sx_ok(&cx,
                 tiles_run(&cx, kernel, tiles_module(&cx, kernel, 80), &n, 1, true, out, NULL));
        for (int64_t i = 0; i < rows * columns; i++) {
            float want = added(&n, c.k, slice, i / columns, i % columns, columns);
            uint64_t got = sx_num_load(c.dtype, out, (size_t)i);
            ck_assert_msg(got == sx_num_encode(c.dtype, (double)want), "plan %u, element %lld", p,
                          (long long)i);
        }
    }
    sx_kernel *whole = lower_matrices(&cx, &n, &matrices[0]); /* in one chain: another plan */
    ck_assert_uint_ne(whole->numerics, numerics);
    sx_ctx_fini(&cx);
}
END_TEST

/* A row has the same bits among however many rows it stands, under the tiles that suit each. */
START_TEST(test_every_height)
{
    static const int64_t heights[] = {256, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 128, 255};
    static const int64_t columns = 16, sum = 256;
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_matrix_instruction matrix[2];
    const sx_target target = sliced_target(matrix);
    uint8_t *all = NULL, *factor[2];
    for (uint32_t h = 0; h < SX_COUNT(heights); h++) {
        tiles_case c = {.dtype = SX_BF16, .b = 1, .m = heights[h], .k = sum, .n = columns};
        node n = tiles_node(&cx, &c);
        if (h == 0) {
            tiles_fill(&cx, &n, &rng, false);
            memcpy(factor, n.raw, sizeof(factor));
        }
        memcpy(n.raw, factor, sizeof(factor)); /* the first rows of the same */
        for (uint32_t p = h % 2; p < SX_COUNT(matrices); p += 2) {
            sx_kernel *kernel;
            sx_block_tiles plan = matrices[p];
            plan.slice = sx_matrix_slice(&matrix[0], sum);
            sx_code code = tiles_lower(&cx, &target, &n, plan, &kernel);
            if (code == SX_UNIMPLEMENTED && c.m == 1) {
                sx_ctx_reset_error(&cx);
                continue;
            }
            ck_assert_msg(code == SX_OK, "%s", cx.error.text);
            uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
            ck_sx_ok(&cx,
                     tiles_run(&cx, kernel, tiles_module(&cx, kernel, 80), &n, h, true, out, NULL));
            all = all == NULL ? out : all;
            ck_assert_msg(memcmp(out, all, bytes_of(&n.result)) == 0, "%lld rows, plan %u",
                          (long long)c.m, p);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Tiles of the size that GPUs want: they fit in the registers of a thread and no assembler spills. */
static const struct {
    tiles_case c;
    sx_block_tiles plan;
} large[] = {
    {{.dtype = SX_F32, .b = 2, .m = 500, .k = 300, .n = 260, .after = 1},
     {.rows = 128,
      .columns = 128,
      .steps = 16,
      .warp_rows = 32,
      .warp_columns = 64,
      .thread_rows = 8,
      .thread_columns = 8,
      .depth = 3}},
    {{.dtype = SX_F32, .b = 1, .m = 512, .k = 512, .n = 512, .right_turned = true, .after = 2},
     {.rows = 128,
      .columns = 128,
      .steps = 16,
      .warp_rows = 64,
      .warp_columns = 32,
      .thread_rows = 8,
      .thread_columns = 8,
      .depth = 4}},
    {{.dtype = SX_F64, .b = 1, .m = 130, .k = 70, .n = 65, .left_turned = true},
     {.rows = 64,
      .columns = 64,
      .steps = 8,
      .warp_rows = 32,
      .warp_columns = 16,
      .thread_rows = 4,
      .thread_columns = 4,
      .depth = 3}},
    {{.dtype = SX_BF16, .b = 1, .m = 500, .k = 300, .n = 264, .after = 1},
     {.matrix_rows = 16,
      .matrix_columns = 8,
      .matrix_steps = 16,
      .rows = 128,
      .columns = 128,
      .steps = 32,
      .warp_rows = 64,
      .warp_columns = 32,
      .depth = 4}},
    {{.dtype = SX_F16,
      .b = 1,
      .m = 512,
      .k = 512,
      .n = 512,
      .left_turned = true,
      .right_turned = true,
      .after = 2},
     {.matrix_rows = 16,
      .matrix_columns = 8,
      .matrix_steps = 16,
      .rows = 128,
      .columns = 256,
      .steps = 32,
      .warp_rows = 64,
      .warp_columns = 64,
      .depth = 3}},
    {{.dtype = SX_BF16, .b = 1, .m = 512, .k = 512, .n = 512, .left_turned = true, .widened = true},
     {.matrix_rows = 16,
      .matrix_columns = 8,
      .matrix_steps = 16,
      .rows = 128,
      .columns = 128,
      .steps = 32,
      .warp_rows = 64,
      .warp_columns = 32,
      .depth = 4}},
    {{.dtype = SX_I8,
      .b = 1,
      .m = 512,
      .k = 512,
      .n = 512,
      .right_turned = true,
      .after = 4,
      .widened = true},
     {.matrix_rows = 16,
      .matrix_columns = 8,
      .matrix_steps = 32,
      .rows = 128,
      .columns = 128,
      .steps = 64,
      .warp_rows = 64,
      .warp_columns = 32,
      .depth = 4}},
    {{.dtype = SX_U8, .b = 1, .m = 512, .k = 512, .n = 512, .after = 4, .widened = true},
     {.matrix_rows = 16,
      .matrix_columns = 8,
      .matrix_steps = 32,
      .rows = 128,
      .columns = 128,
      .steps = 64,
      .warp_rows = 64,
      .warp_columns = 32,
      .depth = 4}},
};

static void assemble(sx_ctx *cx, const sx_ptx_module *module, const char *target)
{
    sx_buf text;
    sxa_result result;
    sxa_options options = {.with = SXA_PTXAS}; /* nvJitLink 13.0 takes more registers for sm_80 */
    sx_buf_init(&text, (size_t)8 << 20);
    sx_ptx_print(module, &text);
    sx_code code = sxa_assemble(cx, sx_buf_span(&text), target, &options, &result);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    for (uint32_t i = 0; i < result.record->kernel_count; i++) {
        const sx_cubin_kernel *k = &result.record->kernel[i];
        if (getenv("SX_SHOW") != NULL) {
            (void)fprintf(stderr, "%s: %u registers, code %llu\n", target, k->registers,
                          (unsigned long long)k->code_bytes);
        }
        ck_assert_uint_eq(k->spill_count + k->stack_bytes, 0);
    }
    sx_buf_fini(&text);
}

/* Does a plan of another's kernel take them through the table of targets, and an assembler its text? */
START_TEST(test_large)
{
    static const char *const names[] = {"sm_80", "sm_90"};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = tiles_node(&cx, &large[_i].c);
    const sx_analysis *a = analysis_of(&cx, &n);
    sx_block_tiles tiles = large[_i].plan;
    tiles.left = a->lhs;
    tiles.right = a->rhs;
    sx_schedule s;
    sx_schedule_block(&tiles, &s);
    sx_lowering what = {.kind = SX_LOWER_FUSED, .name = "block", .analysis = a, .schedule = &s};
    for (uint32_t t = 0; t < SX_COUNT(names); t++) {
        const sx_target *target = sx_target_find(NULL, names[t]);
        sx_kernel *kernel;
        sx_code code = sx_target_lower(&cx, target, &what, &kernel);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        ck_sx_ok(&cx, sx_tile_check(&cx, kernel, &kernel->part[0]));
        assemble(&cx, tiles_module(&cx, kernel, target->machine->level), names[t]);
    }
    sx_kernel *none;
    ck_sx_fails(&cx, sx_target_lower(&cx, sx_target_find(NULL, "x86-64-v3"), &what, &none),
                SX_UNIMPLEMENTED, "nothing to bind warp to");
    sx_ctx_fini(&cx);
}
END_TEST

/* Totals beside the sums: half the tile of a warp, and still no spills. */
START_TEST(test_sliced_registers)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_matrix_instruction matrix[2];
    const sx_target target = sliced_target(matrix);
    tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 500, .k = 448, .n = 264, .after = 1};
    node n = tiles_node(&cx, &c);
    sx_block_tiles plan = {.matrix_rows = 16,
                           .matrix_columns = 8,
                           .matrix_steps = 16,
                           .rows = 128,
                           .columns = 128,
                           .steps = 32,
                           .slice = 64,
                           .warp_rows = 32,
                           .warp_columns = 64,
                           .depth = 4};
    sx_kernel *kernel;
    sx_code code = tiles_lower(&cx, &target, &n, plan, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    assemble(&cx, tiles_module(&cx, kernel, 80), _i == 0 ? "sm_80" : "sm_90");
    plan.warp_rows = plan.warp_columns = 64;
    plan.columns = 256;
    plan.warp_columns = 128;
    ck_sx_fails(&cx, tiles_lower(&cx, &target, &n, plan, &kernel), SX_LIMIT, "registers");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tile");
    TCase *tcase = tcase_create("tile");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_fma, 0, 2 * (int)SX_COUNT(plans));
    tcase_add_loop_test(tcase, test_matrix, 0, 2 * (int)SX_COUNT(matrices));
    tcase_add_loop_test(tcase, test_bytes, 0, 4);
    tcase_add_loop_test(tcase, test_stores, 0, 10);
    tcase_add_loop_test(tcase, test_widened, 0, 4);
    tcase_add_loop_test(tcase, test_fold, 0, 2);
    tcase_add_test(tcase, test_slice_rule);
    tcase_add_loop_test(tcase, test_slices, 0, 4);
    tcase_add_test(tcase, test_every_height);
    tcase_add_loop_test(tcase, test_sliced_registers, 0, 2);
    tcase_add_loop_test(tcase, test_large, 0, (int)SX_COUNT(large));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
