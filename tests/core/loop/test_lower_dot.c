/* Contractions: against the interpreter (exactly, on small integers), every plan and both lane counts with the
 * same bits, rows with the same bits whatever the number of rows. */
#include "tests/core/loop/nodes.h"

static const test_tiles plans[] = {
    {.lanes = 16, .block_m = 14, .block_nv = 2, .tile_m = 28, .tile_n = 64, .unroll_k = 4},
    {.lanes = 8, .block_m = 6, .block_nv = 2, .tile_m = 12, .tile_n = 16, .unroll_k = 2},
    {.lanes = 16, .block_m = 8, .block_nv = 3, .tile_m = 1, .unroll_k = 1, .packed_b = true},
    {.lanes = 8, .block_m = 4, .block_nv = 2, .tile_m = 1000, .unroll_k = 4, .packed_b = true},
    {.lanes = 16, .block_m = 1, .block_nv = 8, .tile_m = 3, .tile_n = 1, .unroll_k = 8},
    {.lanes = 8, .block_m = 1, .block_nv = 1},
    {.lanes = 16, .block_m = 12, .block_nv = 2, .tile_n = 32, .unroll_k = 3, .packed_b = true},
    {.lanes = 32, .block_m = 5, .block_nv = 2, .tile_m = 12, .tile_n = 64, .packed_b = true},
};

static bool packable(const node *n, sx_ctx *cx)
{
    const sx_analysis *a = analysis_of(cx, n);
    return a->lhs != a->rhs;
}

static void check_node(sx_ctx *cx, node *n, sx_rng *rng, double tolerance, const char *what)
{
    fill_inputs(cx, n, rng, tolerance == 0);
    sx_tensor exact = oracle(cx, n);
    void *bits = NULL;
    uint64_t numerics = 0;
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        if (plans[p].packed_b && !packable(n, cx)) {
            continue;
        }
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

static sx_attr dot_attr(uint32_t batch, uint32_t lhs_contract, uint32_t rhs_contract)
{
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    for (uint32_t d = 0; d < batch; d++) {
        attr.lhs_batch.v[attr.lhs_batch.count++] = d;
        attr.rhs_batch.v[attr.rhs_batch.count++] = d;
    }
    attr.lhs_contract = (sx_ints){1, {lhs_contract}};
    attr.rhs_contract = (sx_ints){1, {rhs_contract}};
    return attr;
}

static node matmul(sx_ctx *cx, int64_t m, int64_t k, int64_t n)
{
    sx_type x[2] = {TYPE(SX_F32, m, k), TYPE(SX_F32, k, n)};
    sx_attr attr = dot_attr(0, 1, 0);
    return lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

static int64_t extent(sx_rng *rng)
{
    static const int64_t primes[] = {1, 2, 5, 13, 16, 29, 32, 61, 64, 67};
    return sx_rng_below(rng, 2) == 0 ? primes[sx_rng_below(rng, SX_COUNT(primes))]
                                     : 1 + (int64_t)sx_rng_below(rng, 70);
}

START_TEST(test_matmul)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 16; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        node n = matmul(&cx, extent(&rng), extent(&rng), extent(&rng));
        check_node(&cx, &n, &rng, 0, "matmul");
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_transposed_and_batched)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 14; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        int64_t b = 1 + (int64_t)sx_rng_below(&rng, 4);
        int64_t m = 1 + (int64_t)sx_rng_below(&rng, 20);
        int64_t k = 1 + (int64_t)sx_rng_below(&rng, 20);
        int64_t n = 1 + (int64_t)sx_rng_below(&rng, 40);
        bool lhs_t = round % 2 != 0;
        bool rhs_t = round / 2 % 2 != 0;
        sx_type x[2];
        x[0] = lhs_t ? TYPE(SX_F32, b, k, m) : TYPE(SX_F32, b, m, k);
        x[1] = rhs_t ? TYPE(SX_F32, b, n, k) : TYPE(SX_F32, b, k, n);
        sx_attr attr = dot_attr(1, lhs_t ? 1 : 2, rhs_t ? 2 : 1);
        node d = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
        if (round % 3 == 1) { // the result transposed: the arguments change sides
            sx_attr perm = {.present = SX_A(perm), .perm = {3, {0, 2, 1}}};
            node t = lift(&cx, SX_OP_TRANSPOSE, &perm, &d.result, 1);
            d = inlined(&cx, &t, 0, &d);
            const sx_analysis *a = analysis_of(&cx, &d);
            ck_assert(a->swapped || m == 1);
            ck_assert_int_eq(a->extent[SX_ROLE_SUM], k);
        } else if (round % 3 == 2) { // heads split: [b, m, n] as [m, b, n]
            sx_attr perm = {.present = SX_A(perm), .perm = {3, {1, 0, 2}}};
            node t = lift(&cx, SX_OP_TRANSPOSE, &perm, &d.result, 1);
            d = inlined(&cx, &t, 0, &d);
        }
        check_node(&cx, &d, &rng, 0, "batched");
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Free dimensions that do not merge, a contraction over two, and a batch across the lanes. */
START_TEST(test_many_dimensions)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 6; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        node n;
        if (round % 3 == 0) {
            sx_type x[2] = {TYPE(SX_F32, 5, 3, 7, 4), TYPE(SX_F32, 4, 2, 3, 9)};
            sx_attr attr = dot_attr(0, 0, 0);
            attr.lhs_contract = (sx_ints){2, {1, 3}};
            attr.rhs_contract = (sx_ints){2, {2, 0}};
            n = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
        } else if (round % 3 == 1) {
            sx_type x[2] = {TYPE(SX_F32, 3, 11, 19), TYPE(SX_F32, 11, 19)};
            sx_attr attr = dot_attr(0, 1, 0);
            attr.lhs_batch = (sx_ints){1, {2}};
            attr.rhs_batch = (sx_ints){1, {1}};
            n = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
            sx_attr perm = {.present = SX_A(perm), .perm = {2, {1, 0}}};
            node t = lift(&cx, SX_OP_TRANSPOSE, &perm, &n.result, 1);
            n = inlined(&cx, &t, 0, &n);
        } else { // a vector times a matrix, and no free dimension at all
            sx_type x[2] = {TYPE(SX_F32, 37), TYPE(SX_F32, 37)};
            sx_attr attr = dot_attr(0, 0, 0);
            n = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
            check_node(&cx, &n, &rng, 0, "inner product");
            x[1] = TYPE(SX_F32, 53, 37);
            attr = dot_attr(0, 0, 1);
            n = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
        }
        check_node(&cx, &n, &rng, 0, "many dimensions");
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_epilogues)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 12; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        int64_t m = extent(&rng);
        int64_t n = extent(&rng);
        node d = matmul(&cx, m, 1 + (int64_t)sx_rng_below(&rng, 30), n);
        d = with_tensor(&cx, SX_OP_ADD, &d, TYPE(SX_F32, n)); // bias
        double tolerance = 0;
        switch (round % 4) {
        case 0: d = unary(&cx, SX_OP_RELU, &d); break;
        case 1:
            d = unary(&cx, SX_OP_GELU, &d);
            tolerance = 2e-5;
            break;
        case 2: // residual, then a mask as the result
            d = with_tensor(&cx, SX_OP_ADD, &d, TYPE(SX_F32, m, n));
            d = with_tensor(&cx, SX_OP_MULTIPLY, &d, (sx_type){.dtype = SX_F32});
            break;
        default: {
            d = unary(&cx, SX_OP_TANH, &d);
            sx_attr less = {.present = SX_A(direction), .direction = SX_LT};
            sx_type both[2] = {d.result, d.result};
            node c = lift(&cx, SX_OP_COMPARE, &less, both, 2);
            d = inlined(&cx, &c, 0, &d);
            tolerance = 1e-9; // no ties among random inputs
            break;
        }
        }
        check_node(&cx, &d, &rng, tolerance, "epilogue");
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Rows 0 .. m-1 of a kernel for m rows have the bits they have among 64 rows, for every pair of plans. */
START_TEST(test_batch_invariance)
{
    sx_rng rng = {sx_test_seed()};
    static const int64_t rows[] = {64, 1, 3, 8};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    float *whole = NULL;
    node big = {.count = 0};
    uint64_t numerics = 0;
    for (uint32_t r = 0; r < SX_COUNT(rows); r++) {
        node n = matmul(&cx, rows[r], 93, 45);
        n = with_tensor(&cx, SX_OP_ADD, &n, TYPE(SX_F32, 45));
        n = unary(&cx, SX_OP_GELU_TANH, &n);
        if (r == 0) {
            fill_inputs(&cx, &n, &rng, false);
            big = n;
        }
        for (uint32_t k = 0; k < n.count; k++) {
            n.raw[k] = big.raw[k];
        }
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            sx_kernel *kernel;
            float *out = run_node(&cx, &n, &plans[p], run_eval, NULL, &kernel);
            whole = whole == NULL ? out : whole;
            numerics = numerics == 0 ? kernel->numerics : numerics;
            ck_assert_mem_eq(out, whole, (size_t)rows[r] * 45 * 4);
            ck_assert_uint_eq(kernel->numerics, numerics);
        }
    }
    node other = matmul(&cx, 8, 94, 45);
    sx_kernel *kernel;
    ck_sx_ok(&cx, lower_node(&cx, "k", &other, &plans[0], &kernel));
    ck_assert_uint_ne(kernel->numerics, numerics);
    sx_ctx_fini(&cx);
}
END_TEST

/* One chain of fused multiply-adds over ascending k from +0: the definition, element by element. */
START_TEST(test_chain)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = matmul(&cx, 9, 211, 35);
    fill_inputs(&cx, &n, &rng, false);
    const float *a = (const float *)(const void *)n.raw[0];
    const float *b = (const float *)(const void *)n.raw[1];
    const float *out = run_node(&cx, &n, &plans[0], run_eval, NULL, NULL);
    for (uint32_t i = 0; i < 9; i++) {
        for (uint32_t j = 0; j < 35; j++) {
            float sum = 0;
            for (uint32_t k = 0; k < 211; k++) {
                sum = fmaf(a[i * 211 + k], b[k * 35 + j], sum);
            }
            ck_assert_mem_eq(&sum, &out[i * 35 + j], 4);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Panels hold [outer][panel][k][column] with zeros beyond the last column, read along n or along k. */
START_TEST(test_panels)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 12; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        bool turned = round % 2 != 0;
        int64_t k = extent(&rng);
        int64_t n = 2 + extent(&rng);
        sx_type x[2] = {TYPE(SX_F32, 3, 4, k), TYPE(SX_F32, 3, k, n)};
        x[1] = turned ? TYPE(SX_F32, 3, n, k) : x[1];
        sx_attr attr = dot_attr(1, 2, turned ? 2 : 1);
        node d = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
        fill_inputs(&cx, &d, &rng, false);
        test_tiles plan = {
            .lanes = round % 4 < 2 ? 16 : 8, .block_m = 4, .block_nv = 1 + round % 3};
        int64_t width = (int64_t)plan.lanes * plan.block_nv;
        int64_t panels = (n + width - 1) / width;
        sx_kernel *pack;
        int64_t size;
        ck_sx_ok(&cx, pack_node(&cx, &d, &plan, &pack, &size));
        ck_assert_int_eq(size, 3 * panels * k * width * 4);
        void *buffer[2] = {d.raw[1], exact_buffer(&cx, size)};
        ck_sx_ok(&cx, sx_kernel_eval(&cx, pack, buffer));
        const float *got = buffer[1];
        const float *in = buffer[0];
        for (int64_t i = 0; i < size / 4; i++) {
            int64_t column = i / (k * width) % panels * width + i % width;
            int64_t row = i / width % k;
            int64_t batch = i / (panels * k * width);
            float want = column >= n ? 0.0f
                         : turned    ? in[(batch * n + column) * k + row]
                                     : in[(batch * k + row) * n + column];
            ck_assert_mem_eq(&got[i], &want, 4);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_strips_are_even)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = matmul(&cx, 128, 8, 32);
    test_tiles plan = plans[0];
    plan.tile_m = 1;
    sx_kernel *kernel;
    ck_sx_ok(&cx, lower_node(&cx, "k", &n, &plan, &kernel));
    ck_assert_uint_eq(kernel->part_count, 2); // 8 strips of 13 rows and 2 of 12
    ck_assert_int_eq(kernel->part[0].grid[1], 8);
    ck_assert_int_eq(kernel->part[1].grid[1], 2);
    ck_assert_double_eq(kernel->flops, 2.0 * 128 * 8 * 32);
    plan.block_m = 15;
    ck_sx_fails(&cx, lower_node(&cx, "k", &n, &plan, &kernel), SX_LIMIT, "15 rows x 32 columns");
    sx_ctx_fini(&cx);
}
END_TEST

/* Each line of a panel that is too large for the first level of the caches is asked for once, 4096 bytes before it is
 * read; nothing is asked for where the panel is small, or where columns are read in place. */
START_TEST(test_far_panels_are_asked_for)
{
    static const struct {
        int64_t k;
        uint32_t lanes;
        bool packed;
        uint32_t asked, of; /* lines, of so many vectors */
    } row[] = {
        {512, 16, true, 1, 1}, {512, 8, true, 1, 2}, {64, 16, true, 0, 1}, {512, 16, false, 0, 1}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        node n = matmul(&cx, 28, row[i].k, 64);
        test_tiles plan = {.lanes = row[i].lanes,
                           .block_m = 4,
                           .block_nv = 2,
                           .tile_m = 28,
                           .unroll_k = 4,
                           .packed_b = row[i].packed};
        sx_kernel *kernel;
        ck_sx_ok(&cx, lower_node(&cx, "k", &n, &plan, &kernel));
        const sx_part *part = &kernel->part[0];
        uint32_t asked = 0, read = 0;
        for (uint32_t j = 0; j < part->item_count; j++) {
            const sx_item *item = &part->item[j];
            read += item->kind == SX_ITEM_OP && item->op == SX_LOP_LOAD &&
                    part->addr[item->addr].buffer == 1;
            if (item->kind == SX_ITEM_OP && item->op == SX_LOP_PREFETCH) {
                const sx_item *load = &part->item[j + 1];
                sx_addr ahead = part->addr[load->addr];
                ahead.offset += 4096;
                ck_assert_int_eq(load->op, SX_LOP_LOAD);
                ck_assert_mem_eq(&ahead, &part->addr[item->addr], sizeof(ahead));
                asked++;
            }
        }
        ck_assert_uint_gt(read, 0);
        ck_assert_uint_eq(asked * row[i].of, read * row[i].asked);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.dot");
    TCase *cases = tcase_create("dot");
    tcase_add_test(cases, test_matmul);
    tcase_add_test(cases, test_transposed_and_batched);
    tcase_add_test(cases, test_many_dimensions);
    tcase_add_test(cases, test_epilogues);
    tcase_add_test(cases, test_batch_invariance);
    tcase_add_test(cases, test_chain);
    tcase_add_test(cases, test_panels);
    tcase_add_test(cases, test_strips_are_even);
    tcase_add_test(cases, test_far_panels_are_asked_for);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
