/* Lowered kernels as machine code between guard pages: the bits of the interpreter, and every kernel fits the
 * registers. */
#include "tests/core/loop/nodes.h"
#include "tests/core/x64/machine.h"

/* Machine code against the interpreter, then the interpreter on the caller's buffers. */
static void run_machine(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer, void *self)
{
    sx_x64_kernel code;
    void *copy[SX_LOOP_BUFFERS_MAX];
    (void)self;
    memcpy(copy, buffer, sizeof(void *) * kernel->buffer_count);
    ck_sx_ok(cx, machine_check(cx, kernel, &code, machine_copy_in, copy));
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, buffer));
}

static void check(sx_ctx *cx, node *n, sx_rng *rng, const test_tiles *plan)
{
    fill_inputs(cx, n, rng, false);
    (void)run_node(cx, n, plan, run_machine, NULL, NULL);
}

START_TEST(test_maps)
{
    static const sx_op ops[] = {
        SX_OP_NEGATE, SX_OP_ABS,  SX_OP_EXP,  SX_OP_LOG,  SX_OP_SQRT,      SX_OP_RSQRT, SX_OP_TANH,
        SX_OP_ERF,    SX_OP_SIN,  SX_OP_COS,  SX_OP_SIGN, SX_OP_LOGISTIC,  SX_OP_FLOOR, SX_OP_CEIL,
        SX_OP_ROUND,  SX_OP_RELU, SX_OP_GELU, SX_OP_SILU, SX_OP_GELU_TANH,
    };
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 2 * SX_COUNT(ops); k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        test_tiles plan = {.lanes = k % 2 == 0 ? 16 : 8, .tile_m = 2, .tile_n = 32};
        sx_attr attr = {.present = SX_A(perm), .perm = {2, {1, 0}}};
        sx_type x = TYPE(SX_F32, 37 + k, 5);
        node n = lift(&cx, SX_OP_TRANSPOSE, &attr, &x, 1);
        n = unary(&cx, ops[k / 2], &n);
        n = with_tensor(&cx, SX_OP_MULTIPLY, &n, TYPE(SX_F32, 37 + k));
        check(&cx, &n, &rng, &plan);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Squares turned in registers, with rests of rows and columns. */
START_TEST(test_turned_maps)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 12; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        test_tiles plan = {.lanes = k % 2 == 0 ? 16 : 8, .tile_m = 16 << k % 3};
        int64_t rows = 16 + (int64_t)sx_rng_below(&rng, 40);
        int64_t columns = 16 + (int64_t)sx_rng_below(&rng, 40);
        sx_attr attr = {.present = SX_A(perm), .perm = {2, {1, 0}}};
        sx_type x = TYPE(SX_F32, columns, rows);
        node n = lift(&cx, SX_OP_TRANSPOSE, &attr, &x, 1);
        n = with_tensor(&cx, SX_OP_ADD, &n, TYPE(SX_F32, columns));
        n = k % 4 < 2 ? unary(&cx, SX_OP_GELU, &n) : n;
        n = with_tensor(&cx, SX_OP_MULTIPLY, &n, TYPE(SX_F32, rows, columns));
        check(&cx, &n, &rng, &plan);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_rows)
{
    static const sx_op ops[] = {SX_OP_SOFTMAX, SX_OP_LAYER_NORM, SX_OP_RMS_NORM, SX_OP_LOG_SOFTMAX};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 48; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        test_tiles plan = {.lanes = k % 2 == 0 ? 16 : 8, .tile_m = 2, .tile_n = 32};
        sx_op op = ops[k / 2 % 4];
        int64_t length =
            k < 24 ? 64 + (int64_t)sx_rng_below(&rng, 90) : 1 + (int64_t)sx_rng_below(&rng, 70);
        sx_type x[3] = {TYPE(SX_F32, 3, length), TYPE(SX_F32, length), TYPE(SX_F32, length)};
        bool norm = op == SX_OP_LAYER_NORM || op == SX_OP_RMS_NORM;
        sx_attr attr = {.present = SX_A(axis), .axis = norm ? 1 : k / 8 % 2, .eps = 1e-5};
        attr.present |= norm ? SX_A(eps) : 0;
        node n = lift(&cx, op, &attr, x, op == SX_OP_LAYER_NORM ? 3 : norm ? 2 : 1);
        if (k % 5 == 0) {
            n = unary(&cx, SX_OP_GELU, &n);
        }
        check(&cx, &n, &rng, &plan);
        sx_ctx_fini(&cx);
    }
}
END_TEST

typedef struct {
    uint32_t lanes, block_m, block_nv;
} block;
static const block blocks[] = {{16, 14, 2}, {16, 12, 2}, {16, 9, 3}, {16, 8, 3}, {16, 5, 5},
                               {16, 6, 4},  {16, 8, 2},  {16, 1, 8}, {16, 4, 6}, {8, 6, 2},
                               {8, 4, 2},   {8, 1, 7},   {8, 12, 1}, {8, 3, 3}};

START_TEST(test_contractions)
{
    static const sx_op functions[] = {SX_OP_RELU,   SX_OP_GELU, SX_OP_TANH,
                                      SX_OP_NEGATE, SX_OP_SIGN, SX_OP_GELU_TANH};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 4 * SX_COUNT(blocks); k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        const block *bl = &blocks[k / 4];
        test_tiles plan = {.lanes = bl->lanes, .block_m = bl->block_m, .block_nv = bl->block_nv};
        plan.packed_b = k % 2 != 0;
        plan.unroll_k = 1 + k % 5;
        plan.tile_m = 2 * bl->block_m;
        plan.tile_n = bl->lanes * bl->block_nv;
        int64_t m = 1 + (int64_t)sx_rng_below(&rng, 40);
        int64_t n = 1 + (int64_t)sx_rng_below(&rng, 150);
        int64_t depth = 1 + (int64_t)sx_rng_below(&rng, 40);
        bool turned = k % 4 == 3;
        sx_type x[2] = {TYPE(SX_F32, m, depth), TYPE(SX_F32, depth, n)};
        x[1] = turned ? TYPE(SX_F32, n, depth) : x[1];
        sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                                   SX_A(rhs_contract)};
        attr.lhs_contract = (sx_ints){1, {1}};
        attr.rhs_contract = (sx_ints){1, {turned ? 1 : 0}};
        node d = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
        d = with_tensor(&cx, SX_OP_ADD, &d, TYPE(SX_F32, n));
        d = unary(&cx, functions[sx_rng_below(&rng, SX_COUNT(functions))], &d);
        if (k % 3 == 0) {
            d = with_tensor(&cx, SX_OP_ADD, &d, TYPE(SX_F32, m, n));
        }
        check(&cx, &d, &rng, &plan);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Long programs behind (and, inlined, before) every kind of kernel: none may run out of registers. */
START_TEST(test_long_programs)
{
    static const sx_op unaries[] = {SX_OP_EXP,  SX_OP_TANH, SX_OP_GELU, SX_OP_NEGATE, SX_OP_ABS,
                                    SX_OP_RELU, SX_OP_SILU, SX_OP_SIN,  SX_OP_SIGN,   SX_OP_LOG};
    static const sx_op binaries[] = {SX_OP_ADD, SX_OP_MULTIPLY, SX_OP_MAXIMUM, SX_OP_DIVIDE,
                                     SX_OP_POWER};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 60; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        bool wide = k % 2 == 0;
        test_tiles plan = {.lanes = wide ? 16 : 8,
                           .block_m = wide ? 14 : 6,
                           .block_nv = 2,
                           .tile_m = 14,
                           .unroll_k = 2};
        sx_type x[2] = {TYPE(SX_F32, 15, 70), TYPE(SX_F32, 70, 70)};
        sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                                   SX_A(rhs_contract)};
        attr.lhs_contract = (sx_ints){1, {1}};
        attr.rhs_contract = (sx_ints){1, {0}};
        sx_attr along = {.present = SX_A(axis), .axis = 1};
        sx_attr none = {.present = 0};
        bool dot = k % 3 == 0;
        node n = dot          ? lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2)
                 : k % 3 == 1 ? lift(&cx, SX_OP_SOFTMAX, &along, x, 1)
                              : lift(&cx, SX_OP_ABS, &none, x, 1);
        uint32_t length = 2 + (uint32_t)sx_rng_below(&rng, 7);
        for (uint32_t i = 0; i < length; i++) {
            if (sx_rng_below(&rng, 2) == 0) {
                n = unary(&cx, unaries[sx_rng_below(&rng, SX_COUNT(unaries))], &n);
            } else {
                sx_type y = sx_rng_below(&rng, 2) == 0 ? TYPE(SX_F32, 70) : TYPE(SX_F32, 15, 70);
                n = with_tensor(&cx, binaries[sx_rng_below(&rng, SX_COUNT(binaries))], &n, y);
            }
        }
        if (k % 6 == 2) { // the chain as the producer of a softmax
            node s = lift(&cx, SX_OP_SOFTMAX, &along, x, 1);
            n = inlined(&cx, &s, 0, &n);
        }
        check(&cx, &n, &rng, &plan);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_moves)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 8; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        test_tiles plan = {.lanes = k % 2 == 0 ? 16 : 8, .tile_m = 3, .tile_n = 40};
        sx_attr attr = {.present = SX_A(axis), .axis = 1};
        sx_type x[2] = {TYPE(SX_F32, 5, 11 + k), TYPE(SX_F32, 5, 70)};
        sx_type result = TYPE(SX_F32, 5, 81 + k);
        node n = {.count = 2, .input = {x[0], x[1]}, .result = result};
        fill_inputs(&cx, &n, &rng, false);
        sx_kernel *kernel;
        ck_sx_ok(&cx, sx_lower_concatenate(&cx, "c", &attr, x, 2, &result,
                                           move_schedule(&cx, &plan), &kernel));
        void *buffer[3] = {n.raw[0], n.raw[1], exact_buffer(&cx, bytes_of(&result))};
        run_machine(&cx, kernel, buffer, NULL);
        x[1] = TYPE(SX_I32, 9);
        n = (node){.count = 2, .input = {x[0], x[1]}};
        fill_inputs(&cx, &n, &rng, true);
        attr.axis = k / 2 % 2;
        result = attr.axis == 0 ? TYPE(SX_F32, 9, 11 + k) : TYPE(SX_F32, 5, 9);
        ck_sx_ok(&cx, sx_lower_gather(&cx, "g", &attr, x, 2, &result, move_schedule(&cx, &plan),
                                      &kernel));
        void *three[3] = {n.raw[0], n.raw[1], exact_buffer(&cx, bytes_of(&result))};
        run_machine(&cx, kernel, three, NULL);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.lowered_x64");
    TCase *cases = tcase_create("lowered_x64");
    tcase_add_test(cases, test_maps);
    tcase_add_test(cases, test_turned_maps);
    tcase_add_test(cases, test_rows);
    tcase_add_test(cases, test_contractions);
    tcase_add_test(cases, test_long_programs);
    tcase_add_test(cases, test_moves);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
