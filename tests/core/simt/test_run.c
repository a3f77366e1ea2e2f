/* The interpreter of PTX: kernels that nvcc made (tests/data/ptx/kernels.cu) give what scalar code gives, under
 * every order of warps and blocks, and early or late copies. */
#include <math.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "tests/core/simt/launches.h"

#define KERNELS SX_SOURCE_DIR "/tests/data/ptx/kernels.ptx"

static sx_ctx cx;
static sx_ptx_module *module;
static launches l;
static sx_rng rng;

/* Orders that each kernel is run in: by number, and by seeds; copies early and late. */
static const struct {
    uint64_t seed;
    bool lazy;
} order[] = {{0, false}, {0, true}, {1, false}, {2, true}, {77, true}};

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
    const char *made = getenv("SX_PTX_KERNELS"); // of test_run_nvcc.py
    module = launch_module(&cx, made != NULL ? made : KERNELS);
    rng.state = 5;
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Small integers: sums of their products are exact, in any order. */
static float small(void)
{
    return (float)(int32_t)sx_rng_below(&rng, 9) - 4.0F;
}

START_TEST(test_vector_add)
{
    enum { N = 1000 };
    float a[N], b[N], c[N];
    for (int i = 0; i < N; i++) {
        a[i] = small();
        b[i] = sx_rng_f32(&rng);
    }
    launch_begin(&l, module, "vector_add", (sx_ptx_dim){8, 1, 1}, (sx_ptx_dim){128, 1, 1});
    launch_in(&l, "a", a, sizeof a);
    launch_in(&l, "b", b, sizeof b);
    launch_out(&l, "c", c, sizeof c);
    launch_number(&l, N);
    memset(c, 0xff, sizeof c);
    ck_sx_ok(&cx, launch_run(&cx, &l, order[_i].seed, order[_i].lazy));
    for (int i = 0; i < N; i++) {
        ck_assert(c[i] == a[i] + b[i]);
    }
    const sx_ptx_statistics *s = &l.outcome.statistics;
    ck_assert_uint_eq(s->global_read_bytes, 2 * sizeof a);
    ck_assert_uint_eq(s->global_written_bytes, sizeof c);
    ck_assert_uint_eq(s->global_sectors, 3 * N / 8);
    ck_assert_uint_eq(s->op[SX_PTX_OP_ADD_F32], 32);
    ck_assert_uint_eq(s->divergent, 1);
}
END_TEST

START_TEST(test_softmax)
{
    enum { ROWS = 3, COLUMNS = 150 };
    float x[ROWS * COLUMNS], y[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        x[i] = 4 * sx_rng_f32(&rng);
    }
    launch_begin(&l, module, "softmax", (sx_ptx_dim){ROWS, 1, 1}, (sx_ptx_dim){96, 1, 1});
    launch_in(&l, "x", x, sizeof x);
    launch_out(&l, "y", y, sizeof y);
    launch_number(&l, COLUMNS);
    l.launch.dynamic_shared_bytes = COLUMNS * sizeof(float);
    ck_sx_ok(&cx, launch_run(&cx, &l, order[_i].seed, order[_i].lazy));
    for (int r = 0; r < ROWS; r++) {
        double most = (double)x[r * COLUMNS], sum = 0;
        for (int i = 0; i < COLUMNS; i++) {
            most = fmax(most, (double)x[r * COLUMNS + i]);
        }
        for (int i = 0; i < COLUMNS; i++) {
            sum += exp((double)x[r * COLUMNS + i] - most);
        }
        for (int i = 0; i < COLUMNS; i++) {
            /* ex2.approx: 2 ulp and that of its argument, below 16 in size; the sum of 150; the division. */
            double want = exp((double)x[r * COLUMNS + i] - most) / sum;
            ck_assert_double_le(fabs((double)y[r * COLUMNS + i] - want),
                                want * 200 * ldexp(1, -24));
        }
    }
    ck_assert_uint_eq(l.outcome.statistics.barriers, ROWS * 3);
}
END_TEST

START_TEST(test_histogram)
{
    enum { N = 2000 };
    uint32_t x[N], bins[64] = {0}, want[64] = {0};
    for (int i = 0; i < N; i++) {
        x[i] = (uint32_t)sx_rng_next(&rng);
        want[x[i] % 64]++;
    }
    launch_begin(&l, module, "histogram", (sx_ptx_dim){3, 1, 1}, (sx_ptx_dim){128, 1, 1});
    launch_in(&l, "x", x, sizeof x);
    launch_out(&l, "bins", bins, sizeof bins);
    launch_number(&l, N);
    l.region[1].initialised = true;
    ck_sx_ok(&cx, launch_run(&cx, &l, order[_i].seed, order[_i].lazy));
    ck_assert_int_eq(memcmp(bins, want, sizeof bins), 0);
}
END_TEST

START_TEST(test_transpose)
{
    enum { ROWS = 45, COLUMNS = 70 };
    float x[ROWS * COLUMNS], y[COLUMNS * ROWS];
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        x[i] = (float)i;
    }
    launch_begin(&l, module, "transpose", (sx_ptx_dim){3, 2, 1}, (sx_ptx_dim){32, 8, 1});
    launch_in(&l, "x", x, sizeof x);
    launch_out(&l, "y", y, sizeof y);
    launch_number(&l, ROWS);
    launch_number(&l, COLUMNS);
    ck_sx_ok(&cx, launch_run(&cx, &l, order[_i].seed, order[_i].lazy));
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            ck_assert(y[c * ROWS + r] == x[r * COLUMNS + c]);
        }
    }
    /* The pitch of 33 keeps banks apart. */
    ck_assert_uint_eq(l.outcome.statistics.shared_passes, l.outcome.statistics.shared_passes_least);
}
END_TEST

enum { M = 32, N = 48, K = 64 };

static void check_matmul(const float *a, const float *b, const float *c, bool b_by_columns)
{
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++) {
                sum += a[i * K + k] * (b_by_columns ? b[j * K + k] : b[k * N + j]);
            }
            ck_assert(c[i * N + j] == sum);
        }
    }
}

START_TEST(test_matmul)
{
    float a[M * K], b[K * N], c[M * N];
    bool async = _i >= (int)SX_COUNT(order);
    int at = _i % (int)SX_COUNT(order);
    for (int i = 0; i < M * K; i++) {
        a[i] = small();
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = small();
    }
    launch_begin(&l, module, async ? "matmul_async" : "matmul", (sx_ptx_dim){N / 16, M / 16, 1},
                 (sx_ptx_dim){16, 16, 1});
    launch_in(&l, "a", a, sizeof a);
    launch_in(&l, "b", b, sizeof b);
    launch_out(&l, "c", c, sizeof c);
    if (!async) {
        launch_number(&l, M);
    }
    launch_number(&l, N);
    launch_number(&l, K);
    ck_sx_ok(&cx, launch_run(&cx, &l, order[at].seed, order[at].lazy));
    check_matmul(a, b, c, false);
}
END_TEST

/* Small integers as f16. */
static uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value == 0
               ? 0
               : (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)(((bits >> 23 & 255) - 112) << 10) |
                     (uint16_t)(bits >> 13 & 1023);
}

START_TEST(test_matmul_mma)
{
    float a[M * K], b[K * N], c[M * N];
    uint16_t half_a[M * K], half_b[K * N];
    for (int i = 0; i < M * K; i++) {
        a[i] = small();
        half_a[i] = half_of(a[i]);
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = small();
        half_b[i] = half_of(b[i]);
    }
    launch_begin(&l, module, "matmul_mma", (sx_ptx_dim){N / 8, M / 16, 1}, (sx_ptx_dim){32, 1, 1});
    launch_in(&l, "a", half_a, sizeof half_a);
    launch_in(&l, "b", half_b, sizeof half_b);
    launch_out(&l, "c", c, sizeof c);
    launch_number(&l, N);
    launch_number(&l, K);
    ck_sx_ok(&cx, launch_run(&cx, &l, order[_i].seed, order[_i].lazy));
    check_matmul(a, b, c, true);
}
END_TEST

/* Numbers next to small integers, to which tf32 rounds them from both sides. */
START_TEST(test_matmul_tf32)
{
    float a[M * K], b[K * N], c[M * N], near_a[M * K], near_b[K * N];
    for (int i = 0; i < M * K; i++) {
        a[i] = small();
        near_a[i] = a[i] * (1 + (float)(i % 3 - 1) * 0x1p-13F);
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = small();
        near_b[i] = b[i] * (1 + (float)(i % 5 - 2) * 0x1p-14F);
    }
    launch_begin(&l, module, "matmul_tf32", (sx_ptx_dim){N / 8, M / 16, 1}, (sx_ptx_dim){32, 1, 1});
    launch_in(&l, "a", near_a, sizeof near_a);
    launch_in(&l, "b", near_b, sizeof near_b);
    launch_out(&l, "c", c, sizeof c);
    launch_number(&l, N);
    launch_number(&l, K);
    ck_sx_ok(&cx, launch_run(&cx, &l, order[_i].seed, order[_i].lazy));
    check_matmul(a, b, c, true);
}
END_TEST

START_TEST(test_collatz)
{
    enum { COUNT = 100 };
    uint32_t x[COUNT], steps[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        x[i] = i + 1;
    }
    launch_begin(&l, module, "collatz", (sx_ptx_dim){2, 1, 1}, (sx_ptx_dim){64, 1, 1});
    launch_in(&l, "x", x, sizeof x);
    launch_out(&l, "steps", steps, sizeof steps);
    launch_number(&l, COUNT);
    ck_sx_ok(&cx, launch_run(&cx, &l, order[_i].seed, order[_i].lazy));
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t count = 0;
        for (uint32_t v = x[i]; v != 1; v = v % 2 == 0 ? v / 2 : 3 * v + 1) {
            count++;
        }
        ck_assert_uint_eq(steps[i], count);
    }
    ck_assert_uint_gt(l.outcome.statistics.divergent, 20);
}
END_TEST

/* The same seed executes the same instructions in the same order. */
START_TEST(test_equal_seeds)
{
    uint32_t x[64], steps[64];
    sx_ptx_statistics first[3];
    for (uint32_t i = 0; i < 64; i++) {
        x[i] = 27 + i;
    }
    for (uint32_t run = 0; run < 3; run++) {
        launch_begin(&l, module, "collatz", (sx_ptx_dim){1, 1, 1}, (sx_ptx_dim){64, 1, 1});
        launch_in(&l, "x", x, sizeof x);
        launch_out(&l, "steps", steps, sizeof steps);
        launch_number(&l, 64);
        ck_sx_ok(&cx, launch_run(&cx, &l, run < 2 ? 9 : 10, false));
        first[run] = l.outcome.statistics;
    }
    ck_assert_int_eq(memcmp(&first[0], &first[1], sizeof first[0]), 0);
    ck_assert_uint_ne(first[0].warp_insns, first[2].warp_insns);
}
END_TEST

/* Some blocks of a grid, whatever their order: those and no others. */
START_TEST(test_some_blocks)
{
    uint32_t x[640], steps[640];
    for (uint32_t i = 0; i < 640; i++) {
        x[i] = 1 + i;
        steps[i] = 1000;
    }
    launch_begin(&l, module, "collatz", (sx_ptx_dim){10, 1, 1}, (sx_ptx_dim){64, 1, 1});
    launch_in(&l, "x", x, sizeof x);
    launch_buffer(&l, "steps", steps, sizeof steps, true);
    launch_number(&l, 640);
    l.launch.first_block = 3;
    l.launch.block_count = 4;
    ck_sx_ok(&cx, launch_run(&cx, &l, (uint64_t)_i, false));
    for (uint32_t i = 0; i < 640; i++) {
        ck_assert_msg((steps[i] == 1000) == (i < 3 * 64 || i >= 7 * 64), "element %u", i);
    }
    l.launch.first_block = 9;
    l.launch.block_count = 0; /* all that are left */
    ck_sx_ok(&cx, launch_run(&cx, &l, (uint64_t)_i, false));
    ck_assert(steps[9 * 64 - 1] == 1000 && steps[9 * 64] < 1000 && steps[639] < 1000);
    l.launch.block_count = 2;
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_INPUT,
                "blocks 9 and 2 more, the grid has 10");
    l.launch.first_block = 10;
    l.launch.block_count = 0;
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_INPUT, "blocks 10 and 0 more");
}
END_TEST

/* ---- launches that do not fit ---- */
START_TEST(test_wrong_launches)
{
    float x[64] = {0}, y[64];
    sx_ptx_dim one = {1, 1, 1};
    launch_begin(&l, module, "nobody", one, one);
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_ABSENT, "nobody");
    launch_begin(&l, module, "softmax", one, one);
    launch_in(&l, "x", x, sizeof x);
    launch_out(&l, "y", y, sizeof y);
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_INPUT, "takes 3 arguments, 2 are given");
    l.launch.dynamic_shared_bytes = (163 << 10) - 128; // 128 bytes are static
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_INPUT, "takes 3 arguments");
    l.launch.dynamic_shared_bytes++;
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_LIMIT, "166913 bytes of shared memory");
    l.launch.dynamic_shared_bytes = UINT64_MAX;
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_LIMIT, "bytes of shared memory");
    l.launch.dynamic_shared_bytes = 0;
    l.launch.block = (sx_ptx_dim){32, 33, 1};
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_LIMIT, "more than 1024 threads");
    l.launch.block = one;
    l.launch.grid = (sx_ptx_dim){1, 65536, 1};
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_LIMIT, "at most");
    l.launch.grid = (sx_ptx_dim){1, 1, 0};
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_INPUT, "at least 1");
    l.launch.grid = one;
    launch_number(&l, 1);
    l.argument[2].value.len = 3;
    ck_sx_fails(&cx, launch_run(&cx, &l, 0, false), SX_INPUT, "the argument has 3");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ptx run");
    TCase *tests = tcase_create("run");
    tcase_add_checked_fixture(tests, setup, teardown);
    int orders = (int)SX_COUNT(order);
    tcase_add_loop_test(tests, test_vector_add, 0, orders);
    tcase_add_loop_test(tests, test_softmax, 0, orders);
    tcase_add_loop_test(tests, test_histogram, 0, orders);
    tcase_add_loop_test(tests, test_transpose, 0, orders);
    tcase_add_loop_test(tests, test_matmul, 0, 2 * orders);
    tcase_add_loop_test(tests, test_matmul_mma, 0, orders);
    tcase_add_loop_test(tests, test_matmul_tf32, 0, orders);
    tcase_add_loop_test(tests, test_collatz, 0, orders);
    tcase_add_test(tests, test_equal_seeds);
    tcase_add_loop_test(tests, test_some_blocks, 0, 4);
    tcase_add_test(tests, test_wrong_launches);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
