/* Contractions of f32 whose factors are rounded to tf32: only for devices that allow it by name, in every layout, with
 * the bits of a plan that is written down here once more, and an error below the bound that follows from it. */
#include "core/search/search.h"
#include "tests/core/nvidia/tiles.h"

#include "client/assemble/assemble.h"

#define UNIT 0x1p-11 /* of tf32: a factor is off by this, relative to itself, at most */

static const sx_block_tiles plans[] = {
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 8,
     .rows = 16,
     .columns = 16,
     .steps = 8,
     .warp_rows = 16,
     .warp_columns = 16,
     .depth = 2},
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 8,
     .rows = 64,
     .columns = 32,
     .steps = 16,
     .warp_rows = 32,
     .warp_columns = 16,
     .depth = 3},
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 8,
     .rows = 32,
     .columns = 64,
     .steps = 32,
     .warp_rows = 16,
     .warp_columns = 64,
     .depth = 4},
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 8,
     .rows = 128,
     .columns = 8,
     .steps = 8,
     .warp_rows = 64,
     .warp_columns = 8,
     .depth = 2},
};

static sx_kernel *lower(sx_ctx *cx, const node *n, const sx_block_tiles *plan)
{
    sx_kernel *kernel;
    sx_code code = tiles_lower(cx, &sx_target_sm_80, n, *plan, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    return kernel;
}

static int64_t extent(sx_rng *rng, int64_t block)
{
    static const int64_t some[] = {1, 3, 4, 8, 12, 16, 20, 29, 32, 48};
    return sx_rng_below(rng, 3) == 0 ? block * (1 + (int64_t)sx_rng_below(rng, 2))
                                     : some[sx_rng_below(rng, SX_COUNT(some))];
}

/* Small integers, which tf32 has: the bits of the loop IR, under another numerics plan. */
START_TEST(test_exact)
{
    static const uint32_t epilogues[] = {0, 1, 2, 3, 5};
    static const test_tiles vectors = {
        .lanes = 16, .block_m = 4, .block_nv = 2, .tile_m = 16, .tile_n = 64, .unroll_k = 2};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 8; round++) {
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
        node n = tiles_node(&cx, &c);
        sx_kernel *other;
        tiles_fill(&cx, &n, &rng, true);
        uint8_t *want = run_node(&cx, &n, &vectors, run_eval, NULL, &other);
        sx_kernel *kernel = lower(&cx, &n, plan);
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

/* The nearest number with 11 bits of significand, of two the one further from 0. */
static double rounded(double x)
{
    int exponent;
    double part = frexp(x, &exponent); /* 0.5 <= |part| < 1 */
    return ldexp(round(ldexp(part, 11)), exponent - 11);
}

/* Element (row, column) of a factor as it lies: [m, k] and [k, n], or turned. */
static double factor_at(const node *n, uint32_t which, bool turned, int64_t row, int64_t column)
{
    const sx_type *type = &n->input[which];
    int64_t width = type->dim[2].scale;
    size_t at = (size_t)(turned ? column * width + row : row * width + column);
    return sx_num_decode(SX_F32, sx_num_load(SX_F32, n->raw[which], at));
}

/* Groups of 8 products of rounded factors in ascending order, the sum rounded after each; beside it the exact sum and
 * that of the magnitudes. */
static float fold(const node *n, const tiles_case *c, int64_t row, int64_t column, double *exact,
                  double *magnitude)
{
    float sum = 0;
    long double real = 0, all = 0;
    for (int64_t g = 0; g < c->k; g += 8) {
        long double group = (long double)sum;
        for (int64_t i = g; i < c->k && i < g + 8; i++) {
            double x = factor_at(n, 0, c->left_turned, row, i);
            double y = factor_at(n, 1, c->right_turned, i, column);
            real += (long double)x * (long double)y;
            all += fabsl((long double)x * (long double)y);
            group += (long double)rounded(x) * (long double)rounded(y);
        }
        sum = (float)group;
    }
    *exact = (double)real;
    *magnitude = (double)all;
    return sum;
}

/* Random numbers with all bits of f32, in every layout: the bits of the fold under every schedule. A product of rounded
 * factors is off by 2 u + u^2 of itself at most, and each group rounds a sum that is not above (1 + u)^2 times the
 * magnitudes: half a unit in the last place of f32. Products in f32 would be far below that bound. */
START_TEST(test_fold)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = {.dtype = SX_F32,
                    .b = 1,
                    .m = 19,
                    .k = 75,
                    .n = 24,
                    .left_turned = _i & 1,
                    .right_turned = _i >> 1 & 1};
    node n = tiles_node(&cx, &c);
    double most = 0;
    uint64_t numerics = 0;
    tiles_fill(&cx, &n, &rng, false);
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        sx_kernel *kernel = lower(&cx, &n, &plans[p]);
        ck_assert(numerics == 0 || numerics == kernel->numerics);
        numerics = kernel->numerics;
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        ck_sx_ok(&cx,
                 tiles_run(&cx, kernel, tiles_module(&cx, kernel, 80), &n, 1, true, out, NULL));
        for (int64_t i = 0; i < c.m * c.n; i++) {
            double exact, magnitude;
            float want = fold(&n, &c, i / c.n, i % c.n, &exact, &magnitude), got;
            memcpy(&got, out + 4 * i, 4);
            ck_assert_msg(memcmp(&got, &want, 4) == 0, "element %lld is %.9g, the plan has %.9g",
                          (long long)i, (double)got, (double)want);
            double groups = ceil((double)c.k / 8);
            double grown = (1 + UNIT) * (1 + UNIT) * magnitude;
            double bound = (2 * UNIT + UNIT * UNIT) * magnitude + groups * 0x1p-24 * grown;
            ck_assert_double_le(fabs((double)got - exact), bound);
            most = fmax(most, fabs((double)got - exact) / magnitude);
        }
    }
    ck_assert_double_gt(most,
                        0x1p-16); /* it is no product of f32, which is within k units of 2^-24 */
    sx_ctx_fini(&cx);
}
END_TEST

/* A row has the same bits in a product of any number of rows. */
START_TEST(test_rows)
{
    static const int64_t rows[] = {1, 7, 16, 33, 64, 130};
    sx_rng rng = {sx_test_seed()};
    tiles_case c = {.dtype = SX_F32, .b = 1, .m = rows[SX_COUNT(rows) - 1], .k = 96, .n = 40};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node all = tiles_node(&cx, &c);
    uint8_t *want = NULL;
    tiles_fill(&cx, &all, &rng, false);
    for (uint32_t r = SX_COUNT(rows); r-- > 0;) {
        c.m = rows[r];
        node n = tiles_node(&cx, &c);
        n.raw[0] = all.raw[0];
        n.raw[1] = all.raw[1];
        sx_kernel *kernel = lower(&cx, &n, &plans[r % SX_COUNT(plans)]);
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        ck_sx_ok(&cx,
                 tiles_run(&cx, kernel, tiles_module(&cx, kernel, 80), &n, 1, false, out, NULL));
        want = want == NULL ? out : want;
        ck_assert_msg(memcmp(out, want, bytes_of(&n.result)) == 0, "%lld rows: other bits",
                      (long long)c.m);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- who is allowed it ---- */
static const sx_device *device(sx_ctx *cx, const char *name)
{
    const sx_device *found;
    ck_sx_ok(cx, sx_device_find(cx, sx_span_of(name), &found));
    return found;
}

/* By name alone: a device without it never rounds factors of f32, the other one does so whatever the rows are. */
START_TEST(test_allowed)
{
    static const char *const names[] = {"a100", "h100", "h200", "b200", "rtx3090", "rtx4090"};
    static const int64_t rows[] = {1, 16, 300};
    for (uint32_t i = 0; i < SX_COUNT(names); i++) {
        char with[40];
        (void)snprintf(with, sizeof(with), "%s+tf32", names[i]);
        for (uint32_t r = 0; r < SX_COUNT(rows); r++) {
            sx_ctx cx;
            sx_ctx_init(&cx, SX_ARENA_DEFAULT);
            tiles_case c = {.dtype = SX_F32, .b = 1, .m = rows[r], .k = 64, .n = 96};
            node n = tiles_node(&cx, &c);
            const sx_analysis *a = analysis_of(&cx, &n);
            sx_search_result plain, tf32;
            sx_block_tiles t;
            ck_sx_ok(&cx, sx_search_kernel(&cx, a, device(&cx, names[i]), false, 4, &plain));
            ck_sx_ok(&cx, sx_search_kernel(&cx, a, device(&cx, with), false, 4, &tf32));
            ck_assert_uint_eq(plain.matrix_count, 0);
            ck_assert_uint_gt(tf32.matrix_count, 0);
            ck_assert(sx_block_tiles_of(&tf32.best[0].schedule, &t));
            ck_assert_uint_eq(t.matrix_steps, 8);
            ck_assert_str_eq(device(&cx, with)->name, with);
            sx_ctx_fini(&cx);
        }
    }
}
END_TEST

START_TEST(test_refused)
{
    const sx_device *found;
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_fails(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4+tf32"), &found),
                SX_UNIMPLEMENTED, "x86-64-v4 has no tensor cores");
    ck_sx_fails(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("nothing+tf32"), &found), SX_INPUT,
                "'nothing+tf32' is unknown");
    ck_sx_fails(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("+tf32"), &found), SX_INPUT, "unknown");
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- assembled ---- */
START_TEST(test_assembled)
{
    static const sx_block_tiles large = {.matrix_rows = 16,
                                         .matrix_columns = 8,
                                         .matrix_steps = 8,
                                         .rows = 128,
                                         .columns = 128,
                                         .steps = 16,
                                         .warp_rows = 64,
                                         .warp_columns = 32,
                                         .depth = 3};
    static const char *const targets[] = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"};
    tiles_case c = {.dtype = SX_F32,
                    .b = 1,
                    .m = 500,
                    .k = 300,
                    .n = 264,
                    .left_turned = _i & 1,
                    .right_turned = _i >> 1 & 1,
                    .after = 1};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = tiles_node(&cx, &c);
    sx_ptx_module *module = tiles_module(&cx, lower(&cx, &n, &large), 80);
    sx_buf text;
    sx_buf_init(&text, (size_t)8 << 20);
    sx_ptx_print(module, &text);
    for (uint32_t t = 0; t < SX_COUNT(targets); t++) {
        sxa_result result;
        sxa_options options = {.with = SXA_PTXAS};
        sx_code code = sxa_assemble(&cx, sx_buf_span(&text), targets[t], &options, &result);
        ck_assert_msg(code == SX_OK, "%s: %s", targets[t], cx.error.text);
        for (uint32_t i = 0; i < result.record->kernel_count; i++) {
            const sx_cubin_kernel *k = &result.record->kernel[i];
            ck_assert_uint_eq(k->spill_count + k->stack_bytes, 0);
        }
    }
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tf32");
    TCase *tcase = tcase_create("tf32");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_exact, 0, 2 * (int)SX_COUNT(plans));
    tcase_add_loop_test(tcase, test_fold, 0, 4);
    tcase_add_test(tcase, test_rows);
    tcase_add_test(tcase, test_allowed);
    tcase_add_test(tcase, test_refused);
    tcase_add_loop_test(tcase, test_assembled, 0, 4);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
