/* Lowered operations as machine code: every kind of kernel, many plans, both instruction sets, against the
 * interpreter of the loop IR bit for bit, between guard pages. */
#include "tests/core/loop/nodes.h"
#include "tests/core/x64/machine.h"

static const test_tiles plans[] = {
    {.lanes = 16, .block_m = 14, .block_nv = 2, .tile_m = 28, .tile_n = 64, .unroll_k = 4},
    {.lanes = 8, .block_m = 6, .block_nv = 2, .tile_m = 12, .tile_n = 16, .unroll_k = 2},
    {.lanes = 16, .block_m = 8, .block_nv = 3, .tile_m = 1, .unroll_k = 1, .packed_b = true},
    {.lanes = 8, .block_m = 5, .block_nv = 2, .tile_m = 1000, .unroll_k = 4, .packed_b = true},
    {.lanes = 16, .block_m = 6, .block_nv = 4, .tile_m = 3, .tile_n = 1, .unroll_k = 8},
    {.lanes = 8, .block_m = 4, .block_nv = 2, .tile_m = 7, .tile_n = 9, .unroll_k = 1},
    {.lanes = 16, .block_m = 1, .block_nv = 8, .tile_m = 5, .tile_n = 40, .unroll_k = 2},
    {.lanes = 8, .block_m = 1, .block_nv = 6, .unroll_k = 2},
};

/* Values by the type of each argument; buffers that are no argument start as a pattern. */
static void node_input(void *self, uint32_t k, uint8_t *bytes, size_t size)
{
    const node *n = self;
    sx_rng rng = {k + 1};
    for (size_t i = 0; i + 4 <= size; i += 4) {
        float f = sx_rng_f32(&rng);
        uint32_t word = 0xCCCCCCCC;
        if (k < n->count && n->input[k].dtype == SX_F32) {
            memcpy(&word, &f, 4);
        } else if (k < n->count && n->input[k].dtype == SX_I32) {
            word = (uint32_t)sx_rng_below(&rng, 9) - 4;
        } else if (k < n->count && n->input[k].dtype == SX_I64) { /* indices, some out of range */
            word = i % 8 == 0 ? (uint32_t)sx_rng_below(&rng, 12) : 0;
        } else if (k < n->count) {
            word = (uint32_t)sx_rng_next(&rng) & 0x01010101;
        }
        memcpy(bytes + i, &word, 4);
    }
    for (size_t i = size / 4 * 4; i < size; i++) {
        bytes[i] = 1;
    }
}

/* Lowers with every plan; the register blocks above must all be candidates. */
static void check_node(sx_ctx *cx, node *n, const char *what)
{
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        test_tiles plan = plans[p];
        sx_kernel *kernel;
        sx_x64_kernel code;
        if (sx_body_kernel_kind(n->fused.body) == SX_KERNEL_DOT && plan.packed_b) {
            const sx_analysis *a = analysis_of(cx, n);
            if (a->lhs == a->rhs) {
                continue;
            }
            int64_t size;
            ck_sx_ok(cx, pack_node(cx, n, &plan, &kernel, &size));
            node argument = {.input = {n->input[a->rhs]}, .count = 1};
            ck_sx_ok(cx, machine_check(cx, kernel, &code, node_input, &argument));
        }
        ck_sx_ok(cx, lower_node(cx, what, n, &plan, &kernel));
        ck_sx_ok(cx, machine_check(cx, kernel, &code, node_input, n));
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

static int64_t extent(sx_rng *rng)
{
    static const int64_t primes[] = {1, 2, 5, 13, 16, 29, 32, 61, 64, 67};
    return primes[sx_rng_below(rng, SX_COUNT(primes))];
}

START_TEST(contractions)
{
    static const sx_op epilogues[] = {SX_OP_RELU, SX_OP_GELU, SX_OP_GELU_TANH, SX_OP_SILU,
                                      SX_OP_TANH};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 12; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        int64_t m = extent(&rng);
        int64_t n = extent(&rng);
        int64_t k = extent(&rng);
        sx_type x[2] = {TYPE(SX_F32, m, k), TYPE(SX_F32, k, n)};
        sx_attr attr = dot_attr(0, 1, 0);
        node d = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
        char what[64];
        (void)snprintf(what, sizeof(what), "dot");
        if (round % 2 == 0) {
            d = with_tensor(&cx, SX_OP_ADD, &d, TYPE(SX_F32, n));
            d = unary(&cx, epilogues[round / 2 % SX_COUNT(epilogues)], &d);
            d = with_tensor(&cx, SX_OP_ADD, &d, TYPE(SX_F32, m, n));
            (void)snprintf(what, sizeof(what), "dot_%s",
                           sx_op_info_of(epilogues[round / 2 % SX_COUNT(epilogues)])->name);
        }
        check_node(&cx, &d, what);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(batched_and_transposed)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 8; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        int64_t b = 1 + (int64_t)sx_rng_below(&rng, 3);
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
        if (round >= 4) {
            sx_attr perm = {.present = SX_A(perm), .perm = {3, {1, 0, 2}}};
            node t = lift(&cx, SX_OP_TRANSPOSE, &perm, &d.result, 1);
            d = inlined(&cx, &t, 0, &d);
        }
        check_node(&cx, &d, "batched");
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(maps)
{
    static const sx_op ops[] = {SX_OP_EXP, SX_OP_LOG,       SX_OP_TANH, SX_OP_GELU,     SX_OP_SILU,
                                SX_OP_SIN, SX_OP_GELU_TANH, SX_OP_RELU, SX_OP_LOGISTIC, SX_OP_ERF};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < SX_COUNT(ops); k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr none = {.present = 0};
        int64_t b = extent(&rng);
        sx_type x = TYPE(SX_F32, extent(&rng), b);
        node n = lift(&cx, ops[k], &none, &x, 1);
        n = with_tensor(&cx, SX_OP_MULTIPLY, &n, TYPE(SX_F32, b));
        check_node(&cx, &n, sx_op_info_of(ops[k])->name);
        sx_attr perm = {.present = SX_A(perm), .perm = {2, {1, 0}}};
        node t = lift(&cx, SX_OP_TRANSPOSE, &perm, &n.result, 1);
        n = inlined(&cx, &t, 0, &n);
        check_node(&cx, &n, sx_op_info_of(ops[k])->name);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(masks_and_integers)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 6; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr less = {.present = SX_A(direction), .direction = (sx_direction)round};
        sx_attr none = {.present = 0};
        int64_t a = extent(&rng);
        int64_t b = extent(&rng);
        sx_type both[2] = {TYPE(SX_I32, a, b), TYPE(SX_I32, a, b)};
        node n = lift(&cx, SX_OP_COMPARE, &less, both, 2);
        n = unary(&cx, SX_OP_NOT, &n);
        check_node(&cx, &n, "compare");
        sx_type three[3] = {TYPE(SX_BOOL, a, b), TYPE(SX_F32, a, b), TYPE(SX_F32, a, b)};
        n = lift(&cx, SX_OP_SELECT, &none, three, 3);
        check_node(&cx, &n, "select");
        n = lift(&cx, SX_OP_MAXIMUM, &none, both, 2);
        check_node(&cx, &n, "maximum");
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

START_TEST(rows)
{
    static const sx_op ops[] = {SX_OP_SOFTMAX, SX_OP_LAYER_NORM, SX_OP_RMS_NORM, SX_OP_LOG_SOFTMAX};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 16; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_op op = ops[round % 4];
        sx_type x = TYPE(SX_F32, 3, extent(&rng), extent(&rng));
        node n = norm(&cx, op, &x, 2);
        if (round % 5 == 0) {
            n = unary(&cx, SX_OP_GELU, &n);
        }
        check_node(&cx, &n, sx_op_info_of(op)->name);
        n = norm(&cx, op, &x, 1);
        check_node(&cx, &n, sx_op_info_of(op)->name);
        sx_attr attr = {.present = SX_A(dims) | SX_A(reducer)};
        attr.dims = (sx_ints){1, {round % 3}};
        attr.reducer = (sx_reducer)(round % 4);
        n = lift(&cx, SX_OP_REDUCE, &attr, &x, 1);
        check_node(&cx, &n, "reduce");
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(moves)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 12; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr attr = {.present = SX_A(axis), .axis = round % 3};
        int64_t size[3] = {1 + (int64_t)sx_rng_below(&rng, 9), 1 + (int64_t)sx_rng_below(&rng, 9),
                           extent(&rng)};
        node n = {.count = 2};
        n.input[0] = type_of(round % 4 == 3 ? SX_BOOL : SX_F32, 3, size);
        n.input[1] = n.input[0];
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, SX_OP_CONCATENATE, &attr, n.input, 2, &n.result));
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            sx_kernel *kernel;
            sx_x64_kernel code;
            ck_sx_ok(&cx, sx_lower_concatenate(&cx, "concatenate", &attr, n.input, 2, &n.result,
                                               move_schedule(&cx, &plans[p]), &kernel));
            ck_sx_ok(&cx, machine_check(&cx, kernel, &code, node_input, &n));
        }
        n.input[0].dtype = SX_F32;
        n.input[1] = TYPE(round % 2 == 0 ? SX_I32 : SX_I64, 5, 3);
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, SX_OP_GATHER, &attr, n.input, 2, &n.result));
        for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
            sx_kernel *kernel;
            sx_x64_kernel code;
            ck_sx_ok(&cx, sx_lower_gather(&cx, "gather", &attr, n.input, 2, &n.result,
                                          move_schedule(&cx, &plans[p]), &kernel));
            ck_sx_ok(&cx, machine_check(&cx, kernel, &code, node_input, &n));
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(pads_and_reversals)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 24; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr attr = {.low = {3, {1, 0, 2}}, .high = {3, {0, 2, 1}}, .dims = {2, {0, 2}}};
        attr.interior = (sx_ints){3, {0, round % 2, round / 2 % 2}};
        int64_t size[3] = {1 + (int64_t)sx_rng_below(&rng, 4), 1 + (int64_t)sx_rng_below(&rng, 9),
                           extent(&rng)};
        node n = {.count = 2};
        n.input[0] = type_of(round % 4 == 3 ? SX_BOOL : SX_F32, 3, size);
        n.input[1] = (sx_type){.dtype = n.input[0].dtype};
        for (uint32_t p = 0; p < 2 * SX_COUNT(plans); p++) {
            sx_kernel *kernel;
            sx_x64_kernel code;
            const test_tiles *plan = &plans[p / 2];
            sx_op op = p % 2 == 0 ? SX_OP_PAD : SX_OP_REVERSE;
            n.count = p % 2 == 0 ? 2 : 1;
            attr.present = sx_op_info_of(op)->attrs;
            ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, op, &attr, n.input, n.count, &n.result));
            ck_sx_ok(&cx, op == SX_OP_PAD
                              ? sx_lower_pad(&cx, "pad", &attr, n.input, &n.result,
                                             move_schedule(&cx, plan), &kernel)
                              : sx_lower_reverse(&cx, "reverse", &attr, n.input, &n.result,
                                                 move_schedule(&cx, plan), &kernel));
            ck_sx_ok(&cx, machine_check(&cx, kernel, &code, node_input, &n));
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("x64.kernels");
    TCase *tcase = tcase_create("kernels");
    tcase_set_timeout(tcase, 400);
    tcase_add_test(tcase, contractions);
    tcase_add_test(tcase, batched_and_transposed);
    tcase_add_test(tcase, maps);
    tcase_add_test(tcase, rows);
    tcase_add_test(tcase, moves);
    tcase_add_test(tcase, pads_and_reversals);
    tcase_add_test(tcase, masks_and_integers);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
