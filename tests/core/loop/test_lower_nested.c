/* Contractions of contractions: against the interpreter, every plan with the same bits, rows with the same bits whatever
 * stands beside them, narrow factors, sums over the heads of a group, and machine code against the loop interpreter. The
 * judge proves every kernel that is run. */
#include "tests/core/loop/nested.h"
#include "tests/core/x64/machine.h"

/* Keys of a block (tile_n) are no part of the numerics plan. */
static const test_tiles plans[] = {
    {.lanes = 16, .block_m = 12, .block_nv = 2, .tile_m = 1, .tile_n = 24},
    {.lanes = 8, .block_m = 6, .block_nv = 2, .tile_m = 1, .tile_n = 36},
    {.lanes = 16, .block_m = 6, .block_nv = 4, .tile_m = 1, .tile_n = 6},
    {.lanes = 8, .block_m = 1, .block_nv = 1, .tile_m = 1, .tile_n = 5},
    {.lanes = 16, .block_m = 24, .block_nv = 1, .tile_m = 3, .tile_n = 72},
    {.lanes = 32, .block_m = 6, .block_nv = 2, .tile_m = 1, .tile_n = 12},
};

static nested_shape random_shape(sx_rng *rng, uint32_t round)
{
    static const sx_dtype dtypes[] = {SX_F32, SX_F32, SX_BF16, SX_F16};
    nested_shape s = {
        .extent = {1 + (int64_t)sx_rng_below(rng, 2), 1 + (int64_t)sx_rng_below(rng, 40),
                   1 + (int64_t)sx_rng_below(rng, 20),
                   round % 3 == 0 ? 1 + (int64_t)sx_rng_below(rng, 3) : 1,
                   1 + (int64_t)sx_rng_below(rng, 50), 1 + (int64_t)sx_rng_below(rng, 12),
                   round % 5 == 0 ? 1 + (int64_t)sx_rng_below(rng, 3) : 1},
        .products = 1 + round % 2,
        .causal = round % 4 == 1,
        .mask = round % 7 == 2,
        .by_key = sx_rng_below(rng, 2) != 0,
        .scaled = round % 3 == 1};
    for (uint32_t k = 0; k < SX_COUNT(s.dtype); k++) {
        s.dtype[k] = round % 2 == 0 ? SX_F32 : dtypes[sx_rng_below(rng, SX_COUNT(dtypes))];
    }
    for (uint32_t k = 0; k < N_DIMS; k++) {
        s.order[k] = k;
    }
    for (uint32_t k = N_DIMS; round % 3 != 1 && k > 1; k--) {
        uint32_t other = (uint32_t)sx_rng_below(rng, k), d = s.order[k - 1];
        s.order[k - 1] = s.order[other];
        s.order[other] = d;
    }
    s.layout = round % 4 == 3 ? 0 : 1 + sx_rng_below(rng, 1 << 30);
    return s;
}

/* Scores and their counterparts lie between -1 and 1, so a weight is at most e^2 * 2 < 15 and so is an addend; each of the
 * roundings on the way to a sum (two chains of `inner`, about 32 of the program, one chain over the keys) moves it by
 * 2^-24 of that. */
static double tolerance_of(const nested_shape *s)
{
    double keys = (double)(s->extent[N_KEY] * s->extent[N_AROUND]);
    double inner = (double)(s->extent[N_INNER] * s->extent[N_INNER2]);
    return (2 * inner + 32 + keys) * 15 * keys * 0x1p-24;
}

static void check_node(sx_ctx *cx, const node *n, const nested_shape *s, const char *what)
{
    sx_tensor exact = oracle(cx, n);
    void *bits = NULL;
    uint64_t numerics = 0;
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        sx_kernel *kernel;
        void *out = run_node(cx, n, &plans[p], run_eval, NULL, &kernel);
        compare_result(n, out, &exact, tolerance_of(s), what);
        ck_assert_msg(bits == NULL || memcmp(out, bits, bytes_of(&n->result)) == 0,
                      "%s: plan %u has other bits", what, p);
        ck_assert(bits == NULL || kernel->numerics == numerics);
        numerics = kernel->numerics;
        bits = out;
    }
}

static void describe(const nested_shape *s, uint32_t round, char what[160])
{
    int used = snprintf(what, 160, "round %u, %u products:", round, s->products);
    for (uint32_t k = 0; k < N_DIMS; k++) {
        uint32_t d = s->order[k];
        used += snprintf(what + used, 160 - (size_t)used, " %c%lld", "brnakij"[d],
                         (long long)s -> extent[d]);
    }
}

START_TEST(test_against_interpreter)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 24; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        nested_shape s = random_shape(&rng, round);
        char what[160];
        describe(&s, round, what);
        node n = nested_node(&cx, &s);
        nested_fill(&cx, &n, &rng);
        check_node(&cx, &n, &s, what);
        sx_ctx_fini(&cx);
    }
}
END_TEST

static void copy_in(void *self, uint32_t k, uint8_t *bytes, size_t size)
{
    void *const *buffer = self;
    memcpy(bytes, buffer[k], size);
}

static void run_machine(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer, void *self)
{
    sx_x64_kernel code;
    void *copy[SX_LOOP_BUFFERS_MAX];
    (void)self;
    memcpy(copy, buffer, sizeof(void *) * kernel->buffer_count);
    if (sx_kernel_vector_bytes(kernel) <= 64) { /* x86-64 has no wider ones */
        ck_sx_ok(cx, machine_check(cx, kernel, &code, copy_in, copy));
    }
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, buffer));
}

START_TEST(test_machine_code)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 20; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        nested_shape s = random_shape(&rng, round);
        node n = nested_node(&cx, &s);
        nested_fill(&cx, &n, &rng);
        (void)run_node(&cx, &n, &plans[round % SX_COUNT(plans)], run_machine, NULL, NULL);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.loop.lower_nested");
    TCase *cases = tcase_create("nested");
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_against_interpreter);
    tcase_add_test(cases, test_machine_code);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
