/* Contractions of contractions: against the interpreter, every plan with the same bits, rows with the same bits
 * whatever stands beside them, narrow factors, sums over the heads of a group, and machine code against the loop
 * interpreter. The judge proves every kernel that is run. */
#include "tests/core/loop/nested.h"
#include "tests/core/x64/machine.h"

/* Keys of a block (tile_n) are no part of the numerics plan. Where a vector register has 8 lanes there are 14 to take,
 * one of them for a factor of two bytes that is widened. */
static const test_tiles plans[] = {
    {.lanes = 16, .block_m = 12, .block_nv = 2, .tile_m = 1, .tile_n = 24},
    {.lanes = 8, .block_m = 5, .block_nv = 2, .tile_m = 1, .tile_n = 35},
    {.lanes = 16, .block_m = 6, .block_nv = 4, .tile_m = 1, .tile_n = 6},
    {.lanes = 8, .block_m = 1, .block_nv = 1, .tile_m = 1, .tile_n = 5},
    {.lanes = 16, .block_m = 24, .block_nv = 1, .tile_m = 3, .tile_n = 72},
    {.lanes = 32, .block_m = 6, .block_nv = 2, .tile_m = 1, .tile_n = 12},
};

/* Inside of another sum the judge does not see that a last key by itself, which decides a comparison of positions, goes
 * on with the others: the search takes no such blocks. */
static bool leaves_one_key(int64_t keys)
{
    bool leaves = false;
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        leaves = leaves || (keys > plans[p].tile_n && keys % plans[p].tile_n == 1);
    }
    return leaves;
}

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
    while (s.causal && s.extent[N_AROUND] > 1 && leaves_one_key(s.extent[N_KEY])) {
        s.extent[N_KEY]++;
    }
    s.layout = round % 4 == 3 ? 0 : 1 + sx_rng_below(rng, 1 << 30);
    return s;
}

/* Scores and their counterparts lie between -1 and 1, so a weight is at most e^2 * 2 < 15 and so is an addend; each of
 * the roundings on the way to a sum (two chains of `inner`, about 32 of the program, one chain over the keys) moves it
 * by 2^-24 of that. */
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

/* Factors of two bytes are widened where they are read: the bits of the kernel that is given them widened. */
START_TEST(test_narrow)
{
    static const sx_dtype narrow[] = {SX_BF16, SX_F16};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 10; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        nested_shape s = nested_gradient(2, 19, 41, 12, round % 2 != 0), own = s;
        uint32_t which = round % SX_COUNT(s.dtype);
        own.dtype[which] = narrow[round / SX_COUNT(s.dtype)];
        node wide = nested_node(&cx, &s), n = nested_node(&cx, &own);
        ck_assert_uint_eq(n.count, wide.count);
        nested_fill(&cx, &n, &rng);
        for (uint32_t k = 0; k < n.count; k++) {
            wide.raw[k] = n.raw[k];
            if (n.input[k].dtype == SX_F32) {
                continue;
            }
            wide.raw[k] = exact_buffer(&cx, bytes_of(&wide.input[k]));
            for (int64_t i = 0; i < sx_tensor_elements(&n.input[k]); i++) {
                uint64_t bits = 0;
                memcpy(&bits, n.raw[k] + 2 * i, 2);
                float value = (float)sx_num_decode(n.input[k].dtype, bits);
                memcpy(wide.raw[k] + 4 * i, &value, 4);
            }
        }
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            void *want = run_node(&cx, &wide, &plans[p], run_eval, NULL, NULL);
            void *got = run_node(&cx, &n, &plans[p], run_eval, NULL, NULL);
            ck_assert_int_eq(memcmp(want, got, bytes_of(&n.result)), 0);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Weights that are rounded to bf16 on the way are other weights. */
START_TEST(test_rounded_weights)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    nested_shape s = nested_gradient(1, 9, 30, 4, false), plain = s;
    s.narrow_weight = true;
    s.dtype[4] = SX_BF16;
    plain.dtype[4] = SX_BF16;
    node n = nested_node(&cx, &s), other = nested_node(&cx, &plain);
    nested_fill(&cx, &n, &rng);
    memcpy(other.raw, n.raw, sizeof(n.raw));
    sx_tensor exact = oracle(&cx, &n);
    const void *bits = NULL;
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        const void *out = run_node(&cx, &n, &plans[p], run_eval, NULL, NULL);
        /* a weight moves by 2^-9 of at most 15, 30 of them */
        compare_result(&n, out, &exact, 15 * 30 * 0x1p-9, "rounded");
        ck_assert(bits == NULL || memcmp(out, bits, bytes_of(&n.result)) == 0);
        bits = out;
    }
    const void *unrounded = run_node(&cx, &other, &plans[0], run_eval, NULL, NULL);
    ck_assert_int_ne(memcmp(bits, unrounded, bytes_of(&n.result)), 0);
    sx_ctx_fini(&cx);
}
END_TEST

/* A row has the same bits alone and among others, whatever the batch. */
START_TEST(test_rows_alone)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 2; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        nested_shape s = nested_gradient(3, 37, 55, 9, round != 0);
        node all = nested_node(&cx, &s);
        nested_fill(&cx, &all, &rng);
        const uint8_t *whole = run_node(&cx, &all, &plans[0], run_eval, NULL, NULL);
        for (int64_t r = 0; r < s.extent[N_ROW]; r += 9) {
            nested_shape one = s;
            int64_t b = r % 3, rows = one.extent[N_ROW] = 1 + r % 2;
            one.extent[N_BATCH] = 1;
            node n = nested_node(&cx, &one);
            for (uint32_t k = 0; k < n.count; k++) { /* rows of the batch r % 3, from r on */
                bool by_row = n.input[k].dim[1].scale != all.input[k].dim[1].scale;
                int64_t matrix = sx_tensor_elements(&all.input[k]) / s.extent[N_BATCH];
                n.raw[k] = all.raw[k] + 4 * b * matrix;
                n.raw[k] += by_row ? 4 * r * matrix / s.extent[N_ROW] : 0;
            }
            const uint8_t *want = whole + 4 * (b * s.extent[N_ROW] + r) * s.extent[N_COLUMN];
            for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
                const uint8_t *out = run_node(&cx, &n, &plans[p], run_eval, NULL, NULL);
                size_t size = (size_t)(4 * rows * s.extent[N_COLUMN]);
                ck_assert_uint_eq(size, bytes_of(&n.result));
                ck_assert_int_eq(memcmp(out, want, size), 0);
            }
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Over the heads of a group the sum goes on where it was: two dimensions, of which the inner one is cut in blocks. */
START_TEST(test_groups)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    nested_shape s = nested_gradient(2, 21, 28, 7, true);
    s.extent[N_AROUND] = 3;
    s.causal = true; /* so that heads and keys are not one dimension */
    node n = nested_node(&cx, &s);
    nested_fill(&cx, &n, &rng);
    const sx_analysis *a = analysis_of(&cx, &n);
    ck_assert_int_eq(a->extent[SX_ROLE_SUM], 3 * 28);
    ck_assert_int_eq(a->view.extent[a->keys], 28);
    check_node(&cx, &n, &s, "groups");
    sx_ctx_fini(&cx);
}
END_TEST

static const char *refusal_of(sx_ctx *cx, const nested_shape *s)
{
    node n = nested_node(cx, s);
    return analysis_of(cx, &n)->refusal;
}

/* What has no form says so. */
START_TEST(test_refusals)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_kernel *kernel;
    nested_shape s = nested_gradient(1, 4, 4, 4, false);
    node n = nested_node(&cx, &s);
    test_tiles wide = {.lanes = 8, .block_m = 12, .block_nv = 2, .tile_n = 24};
    ck_sx_fails(&cx, lower_node(&cx, "node", &n, &wide, &kernel), SX_LIMIT, "registers");
    ck_assert_ptr_null(refusal_of(&cx, &s));
    n = nested_node(&cx, &s);
    sx_body body = {0};
    sx_body_copy(&body, n.fused.body);
    uint32_t query = body.instr[body.instr[analysis_of(&cx, &n)->dot].x].x;
    body.access[query].stride[N_KEY] = sx_dim_of(1); /* within the batch of one */
    body.access[query].stride[N_ROW] = sx_dim_of(0);
    body.access[query].stride[N_INNER] = sx_dim_of(4);
    n.fused.body = &body;
    ck_assert_str_eq(analysis_of(&cx, &n)->refusal,
                     "both operands of the scores run along the keys");
    ck_sx_fails(&cx, lower_node(&cx, "node", &n, &plans[0], &kernel), SX_UNIMPLEMENTED, "scores");
    sx_ctx_fini(&cx);
}
END_TEST

static void mutate(sx_rng *rng, const node *n, sx_body *body)
{
    uint32_t i = (uint32_t)sx_rng_below(rng, body->instr_count);
    uint32_t a = (uint32_t)sx_rng_below(rng, body->arg_count);
    uint32_t d = (uint32_t)sx_rng_below(rng, n->fused.type.rank);
    sx_instr *in = &body->instr[i];
    switch (sx_rng_below(rng, 8)) {
    case 0: in->x = (uint32_t)sx_rng_below(rng, body->instr_count); break;
    case 1: in->y = (uint32_t)sx_rng_below(rng, body->instr_count); break;
    case 2: in->kind = (sx_body_kind)sx_rng_below(rng, SX_BODY_ONLINE + 1); break;
    case 3: body->axes ^= 1u << d; break;
    case 4: body->inner ^= 1u << d; break;
    case 5:
    case 6: body->access[a].stride[d] = sx_dim_of((int64_t)sx_rng_below(rng, 3)); break;
    default: in->op = sx_rng_below(rng, 2) == 0 ? SX_OP_ADD : SX_OP_MAXIMUM; break;
    }
}

/* Bodies changed at random: refused, or lowered to what they mean, which the judge proves. */
START_TEST(test_random_bodies)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t accepted = 0, lowered = 0;
    for (uint32_t round = 0; round < 2000; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        nested_shape s = nested_gradient(2, 5, 27, 3, round % 2 != 0);
        s.extent[N_AROUND] = 1 + round % 3 / 2;
        s.products = 1 + round % 2;
        node n = nested_node(&cx, &s);
        sx_body body = {0};
        sx_body_copy(&body, n.fused.body);
        for (uint64_t k = 1 + sx_rng_below(&rng, 2); k > 0; k--) {
            mutate(&rng, &n, &body);
        }
        n.fused.body = &body;
        sx_code code =
            sx_infer_type(&cx, NULL, 0, SX_OP_FUSED, &n.fused, n.input, n.count, &n.result);
        ck_assert(code == SX_OK || code == SX_INPUT || code == SX_UNIMPLEMENTED ||
                  code == SX_LIMIT);
        if (code == SX_OK && sx_body_kernel_kind(&body) == SX_KERNEL_NESTED) {
            sx_kernel *kernel;
            nested_fill(&cx, &n, &rng);
            accepted++;
            code = lower_node(&cx, "node", &n, &plans[1], &kernel);
            ck_assert_msg(code == SX_OK || code == SX_UNIMPLEMENTED, "%s", cx.error.text);
            if (code == SX_OK) {
                sx_tensor exact = oracle(&cx, &n);
                compare_result(&n, run_node(&cx, &n, &plans[1], run_eval, NULL, NULL), &exact, 1e-3,
                               "changed body");
                lowered++;
            }
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_gt(accepted, 50);
    ck_assert_uint_gt(lowered, 30);
}
END_TEST

START_TEST(test_machine_code)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 20; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        nested_shape s = random_shape(&rng, round);
        node n = nested_node(&cx, &s);
        nested_fill(&cx, &n, &rng);
        (void)run_node(&cx, &n, &plans[round % SX_COUNT(plans)], machine_run_both, NULL, NULL);
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
    tcase_add_test(cases, test_narrow);
    tcase_add_test(cases, test_rounded_weights);
    tcase_add_test(cases, test_rows_alone);
    tcase_add_test(cases, test_groups);
    tcase_add_test(cases, test_refusals);
    tcase_add_test(cases, test_random_bodies);
    tcase_add_test(cases, test_machine_code);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
