/* Nested contractions by matrix instructions, executed in the interpreter of PTX: bits where the answer is exact, the
 * error of what is rounded where it is not, and the same bits of a row under every schedule and beside any other rows. */
#include "tests/core/nvidia/nested.h"

#include "client/assemble/assemble.h"

static const struct {
    int64_t rows, keys;
    uint32_t depth;
} plans[] = {{16, 16, 2}, {64, 32, 2}, {32, 64, 3}, {128, 16, 4}};

static uint8_t *run(sx_ctx *cx, const node *n, const sx_kernel *kernel, uint64_t seed, bool lazy)
{
    sx_ptx_module *module = tiles_module(cx, kernel, 80);
    uint8_t *out = exact_buffer(cx, bytes_of(&n->result));
    sx_code code = tiles_run(cx, kernel, module, n, seed, lazy, out, NULL);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    return out;
}

static nested_case random_case(sx_rng *rng, uint32_t round)
{
    static const int64_t sides[] = {5, 8, 16, 24, 33};
    nested_case c = {.dtype = round % 2 == 0 ? "bf16" : "f16",
                     .batch = 1 + round % 2,
                     .heads = 2,
                     .rows = 2 + (int64_t)sx_rng_below(rng, 70),
                     .keys = 2 + (int64_t)sx_rng_below(rng, 90),
                     .d = sides[sx_rng_below(rng, SX_COUNT(sides))],
                     .columns = sides[sx_rng_below(rng, SX_COUNT(sides))],
                     .two = round % 3 != 0,
                     .grouped = round % 4 == 1,
                     .keys_turned = round % 5 == 4,
                     .along_keys = round % 2 != 0,
                     .value_turned = round % 3 == 2};
    return c;
}

START_TEST(test_exact)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 6; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        nested_case c = random_case(&rng, round);
        node n = nested_exact_node(&cx, &c);
        sx_kernel *kernel;
        nested_fill_exact(&cx, &n, &c, &rng);
        sx_code code = nested_lower(&cx, &sx_target_sm_80, &n, plans[_i].rows, plans[_i].keys,
                                    plans[_i].depth, &kernel);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        const float *out =
            (const float *)(const void *)run(&cx, &n, kernel, sx_rng_next(&rng), round % 2 != 0);
        double *x = SX_NEW_ARRAY(&cx, double, (size_t)c.keys);
        ck_assert_ptr_nonnull(x);
        for (int64_t i = 0; i < sx_tensor_elements(&n.result); i++) {
            int64_t row = i / c.columns;
            double want = nested_exact(&n, &c, row / c.rows, row % c.rows, i % c.columns, x);
            ck_assert_msg(
                (double)out[i] == want,
                "round %u: %lld rows, %lld keys, %lld x %lld: element %lld is %g, exact %g", round,
                (long long)c.rows, (long long)c.keys, (long long)c.d, (long long)c.columns,
                (long long)i, (double)out[i], want);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nested");
    TCase *tcase = tcase_create("nested");
    tcase_set_timeout(tcase, 60); /* assembling on a busy machine */
    tcase_add_loop_test(tcase, test_exact, 0, (int)SX_COUNT(plans));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
