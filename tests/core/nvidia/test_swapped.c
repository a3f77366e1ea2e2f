/* Products from their other side: columns stand where rows do, so that few rows do not pay for an instruction of 16 or
 * 64. The bits and the numerics plan are those of the plain form, in every layout, behind every epilogue, for every
 * number of rows. */
#include "core/search/search.h"
#include "tests/core/nvidia/tiles.h"

#define MMA(k, m, n, steps_, wm, wn, stages)                                                      \
    {                                                                                             \
        .matrix_rows = 16, .matrix_columns = 8, .matrix_steps = (k), .rows = (m), .columns = (n), \
        .steps = (steps_), .warp_rows = (wm), .warp_columns = (wn), .depth = (stages)             \
    }
#define WGMMA(n_, m, n, steps_, stages)                                             \
    {                                                                               \
        .matrix_rows = 64, .matrix_columns = (n_), .matrix_steps = 16, .rows = (m), \
        .columns = (n), .steps = (steps_), .warp_rows = 64, .warp_columns = (n_),   \
        .depth = (stages)                                                           \
    }

/* The plain form of an instruction, and others from the other side. */
static const struct {
    sx_dtype dtype;
    uint32_t level;
    bool widened;
    sx_block_tiles plain, other[2];
} families[] = {
    {SX_BF16,
     80,
     false,
     MMA(16, 32, 32, 32, 16, 16, 3),
     {MMA(16, 16, 8, 16, 16, 8, 2), MMA(16, 64, 16, 32, 32, 16, 3)}},
    {SX_F16,
     80,
     false,
     MMA(16, 16, 32, 16, 16, 32, 2),
     {MMA(16, 32, 8, 32, 16, 8, 4), MMA(16, 32, 32, 64, 32, 16, 2)}},
    {SX_F32,
     80,
     false,
     MMA(8, 32, 32, 16, 16, 16, 3),
     {MMA(8, 16, 16, 8, 16, 16, 2), MMA(8, 64, 8, 32, 32, 8, 2)}},
    {SX_I8,
     80,
     true,
     MMA(32, 32, 32, 32, 16, 16, 3),
     {MMA(32, 16, 16, 32, 16, 16, 2), MMA(32, 64, 16, 64, 32, 16, 2)}},
    {SX_BF16,
     90,
     false,
     WGMMA(64, 64, 64, 32, 3),
     {WGMMA(8, 64, 8, 64, 4), WGMMA(16, 128, 16, 32, 3)}},
    {SX_F16,
     90,
     false,
     WGMMA(32, 128, 32, 64, 2),
     {WGMMA(32, 64, 32, 16, 2), WGMMA(64, 64, 64, 64, 3)}},
};

static const sx_target *target_of(uint32_t level)
{
    return level == 90 ? &sx_target_sm_90 : &sx_target_sm_80;
}

static uint8_t *run(sx_ctx *cx, const node *n, uint32_t level, const sx_block_tiles *plan,
                    uint64_t *numerics)
{
    sx_kernel *kernel;
    sx_code code = tiles_lower(cx, target_of(level), n, *plan, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    uint8_t *out = exact_buffer(cx, bytes_of(&n->result));
    code = tiles_run(cx, kernel, tiles_module(cx, kernel, level), n, 1, true, out, NULL);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    *numerics = kernel->numerics;
    return out;
}

START_TEST(test_same_bits)
{
    static const int64_t rows[] = {1, 8, 16, 24, 40, 64};
    static const uint32_t epilogues[] = {0, 1, 2, 3, 5};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < SX_COUNT(rows); round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        uint64_t plan, other;
        bool engine = families[_i].level == 90;
        tiles_case c = {.dtype = families[_i].dtype,
                        .b = 1 + (int64_t)sx_rng_below(&rng, 2),
                        .m = rows[round],
                        .n = engine ? 72 : 1 + (int64_t)sx_rng_below(&rng, 90),
                        .k = engine ? 88 : 1 + (int64_t)sx_rng_below(&rng, 90),
                        .left_turned = rows[round] % 8 == 0 && sx_rng_below(&rng, 2) != 0,
                        .right_turned = round & 1,
                        .after = epilogues[sx_rng_below(&rng, SX_COUNT(epilogues))],
                        .widened = families[_i].widened};
        node n = tiles_node(&cx, &c);
        tiles_fill(&cx, &n, &rng, false);
        uint8_t *want = run(&cx, &n, families[_i].level, &families[_i].plain, &plan);
        for (uint32_t p = 0; p < 2; p++) {
            sx_block_tiles swapped = families[_i].other[p];
            swapped.swapped = true;
            uint8_t *got = run(&cx, &n, families[_i].level, &swapped, &other);
            ck_assert_uint_eq(plan, other);
            ck_assert_msg(memcmp(got, want, bytes_of(&n.result)) == 0,
                          "%lld batches %lld x %lld x %lld turned %d %d after %u: other bits",
                          (long long)c.b, (long long)c.m, (long long)c.k, (long long)c.n,
                          c.left_turned, c.right_turned, c.after);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Text reads back, and says which side is which. */
START_TEST(test_text)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    for (uint32_t f = 0; f < SX_COUNT(families); f++) {
        sx_block_tiles t = families[f].other[0], back;
        sx_schedule s, again;
        sx_buf text;
        t.swapped = true;
        t.left = 1;
        t.right = 0;
        sx_buf_init(&text, SX_SCHEDULE_TEXT_MAX);
        sx_schedule_block(&t, &s);
        sx_schedule_print(&s, &text);
        ck_sx_ok(&cx, sx_schedule_parse(&cx, sx_buf_span(&text), &again));
        ck_assert(sx_schedule_equal(&s, &again) && sx_block_tiles_of(&again, &back));
        ck_assert(back.swapped && back.rows == t.rows && back.columns == t.columns &&
                  back.matrix_rows == t.matrix_rows && back.left == 1);
        sx_buf_fini(&text);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* The best schedule from one side, or from both. */
static double best(sx_ctx *cx, const node *n, const char *device, sx_search_sides sides,
                   bool *swapped)
{
    const sx_device *d;
    const sx_analysis *a = analysis_of(cx, n);
    sx_search_result result;
    sx_block_tiles t;
    ck_sx_ok(cx, sx_device_find(cx, sx_span_of(device), &d));
    const sx_target *target = sx_target_find(NULL, d->target);
    const sx_matrix_instruction *matrix =
        sx_search_matrix(a, target->matrix, sx_search_matrices(d, target));
    ck_sx_ok(cx, sx_search_block(cx, a, d, matrix, sides, 1, &result));
    *swapped =
        result.best_count > 0 && sx_block_tiles_of(&result.best[0].schedule, &t) && t.swapped;
    return result.best_count > 0 ? result.best[0].cost_ns : 0;
}

/* The cheaper side is taken; there is none but the plain one for more than 64 rows. */
START_TEST(test_choice)
{
    static const char *const devices[] = {"a100", "h100", "rtx4090", "h200+tf32"};
    static const int64_t rows[] = {1, 8, 16, 32, 64, 65, 300};
    uint32_t taken = 0;
    for (uint32_t d = 0; d < SX_COUNT(devices); d++) {
        for (uint32_t r = 0; r < SX_COUNT(rows); r++) {
            sx_ctx cx;
            bool swapped, unused;
            sx_ctx_init(&cx, SX_ARENA_DEFAULT);
            tiles_case c = {
                .dtype = d == 3 ? SX_F32 : SX_BF16, .b = 1, .m = rows[r], .k = 4096, .n = 14336};
            node n = tiles_node(&cx, &c);
            double plain = best(&cx, &n, devices[d], SX_SIDES_PLAIN, &unused);
            double other = best(&cx, &n, devices[d], SX_SIDES_SWAPPED, &unused);
            double both = best(&cx, &n, devices[d], SX_SIDES_BOTH, &swapped);
            ck_assert((other > 0) == (rows[r] <= 64));
            ck_assert_double_eq(both, other > 0 && other < plain ? other : plain);
            ck_assert(swapped == (other > 0 && other < plain));
            taken += swapped ? 1 : 0;
            sx_ctx_fini(&cx);
        }
    }
    ck_assert_uint_ge(taken, 4); /* of 20 that could be */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("swapped");
    TCase *tcase = tcase_create("swapped");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_same_bits, 0, (int)SX_COUNT(families));
    tcase_add_test(tcase, test_text);
    tcase_add_test(tcase, test_choice);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
