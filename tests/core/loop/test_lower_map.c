/* Maps: against the interpreter, over shapes, views and plans; all lane counts give the same bits. */
#include "tests/core/loop/nodes.h"

static const test_tiles plans[] = {
    {.lanes = 16, .tile_m = 1, .tile_n = 0},
    {.lanes = 8, .tile_m = 1, .tile_n = 0},
    {.lanes = 16, .tile_m = 5, .tile_n = 40},
    {.lanes = 8, .tile_m = 1000, .tile_n = 7},
    {.lanes = 16, .tile_m = 1000000, .tile_n = 1000000},
    {.lanes = 32, .tile_m = 2, .tile_n = 100},
};

static void check_node(sx_ctx *cx, node *n, sx_rng *rng, double tolerance, const char *what)
{
    fill_inputs(cx, n, rng, tolerance == 0);
    sx_tensor exact = oracle(cx, n);
    sx_kernel *first = NULL;
    void *bits = NULL;
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        sx_kernel *kernel;
        void *out = run_node(cx, n, &plans[p], run_eval, NULL, &kernel);
        compare_result(n, out, &exact, tolerance, what);
        if (first != NULL) {
            ck_assert_mem_eq(out, bits, bytes_of(&n->result));
            ck_assert_uint_eq(kernel->numerics, first->numerics);
        }
        first = kernel;
        bits = out;
    }
}

static int64_t extent(sx_rng *rng)
{
    static const int64_t primes[] = {1, 2, 3, 7, 16, 31, 64, 67};
    return sx_rng_below(rng, 3) == 0 ? primes[sx_rng_below(rng, SX_COUNT(primes))]
                                     : 1 + (int64_t)sx_rng_below(rng, 40);
}

START_TEST(test_shapes_and_views)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 60; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr none = {.present = 0};
        int64_t a = extent(&rng);
        int64_t b = extent(&rng);
        int64_t c = extent(&rng);
        sx_type x = TYPE(SX_F32, a, b, c);
        node n;
        switch (round % 6) {
        case 0: // broadcast of a row, and of a scalar
            n = lift(&cx, SX_OP_NEGATE, &none, &x, 1);
            n = with_tensor(&cx, SX_OP_ADD, &n, TYPE(SX_F32, c));
            n = with_tensor(&cx, SX_OP_MULTIPLY, &n, (sx_type){.dtype = SX_F32});
            break;
        case 1: { // transposed
            sx_attr attr = {.present = SX_A(perm), .perm = {3, {2, 0, 1}}};
            n = lift(&cx, SX_OP_TRANSPOSE, &attr, &x, 1);
            n = unary(&cx, SX_OP_ABS, &n);
            break;
        }
        case 2: { // every second element of a slice
            sx_attr attr = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
            attr.start = (sx_ints){3, {a / 2, 0, c / 3}};
            attr.limit = (sx_ints){3, {a, b, c}};
            attr.stride = (sx_ints){3, {1, 1, 2}};
            n = lift(&cx, SX_OP_SLICE, &attr, &x, 1);
            n = with_tensor(&cx, SX_OP_MAXIMUM, &n, (sx_type){.dtype = SX_F32});
            break;
        }
        case 3: { // iota and comparison: a mask
            sx_attr attr = {.present = SX_A(axis) | SX_A(type), .axis = round % 3};
            attr.type = x;
            n = lift(&cx, SX_OP_IOTA, &attr, NULL, 0);
            sx_attr less = {.present = SX_A(direction), .direction = SX_LT};
            sx_type both[2] = {x, x};
            node m = lift(&cx, SX_OP_COMPARE, &less, both, 2);
            n = inlined(&cx, &m, 1, &n);
            break;
        }
        case 4: { // select by a broadcast bool
            sx_type three[3] = {x, x, x};
            three[0].dtype = SX_BOOL;
            n = lift(&cx, SX_OP_SELECT, &none, three, 3);
            sx_attr attr = {.present = SX_A(dims) | SX_A(type), .dims = {2, {0, 1}}};
            attr.type = three[0];
            sx_type narrow = TYPE(SX_BOOL, a, b);
            node view = lift(&cx, SX_OP_BROADCAST, &attr, &narrow, 1);
            n = inlined(&cx, &n, 0, &view);
            break;
        }
        default: { // a bool tensor, transposed, negated
            x.dtype = SX_BOOL;
            sx_attr attr = {.present = SX_A(perm), .perm = {3, {0, 2, 1}}};
            n = lift(&cx, SX_OP_TRANSPOSE, &attr, &x, 1);
            n = unary(&cx, SX_OP_NOT, &n);
            break;
        }
        }
        check_node(&cx, &n, &rng, 0, "view");
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_functions)
{
    static const sx_op ops[] = {SX_OP_EXP,       SX_OP_TANH, SX_OP_GELU,     SX_OP_SILU, SX_OP_SIN,
                                SX_OP_GELU_TANH, SX_OP_RELU, SX_OP_LOGISTIC, SX_OP_ERF};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < SX_COUNT(ops); k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr none = {.present = 0};
        sx_type x = TYPE(SX_F32, extent(&rng), 33);
        node n = lift(&cx, ops[k], &none, &x, 1);
        check_node(&cx, &n, &rng, 1e-6, sx_op_info_of(ops[k])->name);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_integers)
{
    static const sx_op ops[] = {SX_OP_ADD, SX_OP_SUBTRACT, SX_OP_MAXIMUM, SX_OP_MINIMUM,
                                SX_OP_AND, SX_OP_OR,       SX_OP_XOR};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < SX_COUNT(ops) + SX_DIRECTION_COUNT + 3; k++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_attr attr = {.present = 0};
        sx_type x[2] = {TYPE(SX_I32, 19, 5), TYPE(SX_I32, 19, 5)};
        node n;
        if (k < SX_COUNT(ops)) {
            n = lift(&cx, ops[k], &attr, x, 2);
        } else if (k < SX_COUNT(ops) + SX_DIRECTION_COUNT) {
            attr.present = SX_A(direction);
            attr.direction = (sx_direction)(k - SX_COUNT(ops));
            n = lift(&cx, SX_OP_COMPARE, &attr, x, 2);
        } else {
            static const sx_dtype to[] = {SX_F32, SX_I32, SX_BOOL};
            attr.present = SX_A(type);
            attr.type = x[0];
            attr.type.dtype = to[k % 3];
            x[0].dtype = k % 3 == 1 ? SX_F32 : SX_I32;
            n = lift(&cx, SX_OP_CONVERT, &attr, x, 1);
        }
        check_node(&cx, &n, &rng, 0, "integers");
        sx_ctx_fini(&cx);
    }
}
END_TEST

static bool has_workspace(const sx_kernel *kernel)
{
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        if (kernel->buffer[k].role == SX_BUFFER_WORKSPACE) {
            return true;
        }
    }
    return false;
}

/* An argument that lies along the rows is turned in squares where grid points hold them whole: the bits and the plan of
 * reading it lane by lane, whole squares or not, beside arguments that lie along the columns. */
START_TEST(test_turned)
{
    static const test_tiles turned[] = {{.lanes = 16, .tile_m = 16},
                                        {.lanes = 8, .tile_m = 16},
                                        {.lanes = 8, .tile_m = 24},
                                        {.lanes = 16, .tile_m = 1 << 20},
                                        {.lanes = 16, .tile_m = 16, .tile_n = 16},
                                        {.lanes = 16, .tile_m = 32, .tile_n = 32},
                                        {.lanes = 8, .tile_m = 16, .tile_n = 24}};
    static const test_tiles apart[] = {{.lanes = 16, .tile_m = 5}, {.lanes = 8, .tile_m = 2}};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 24; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        bool batch = round % 3 == 2;
        int64_t rows = 16 + (int64_t)sx_rng_below(&rng, 40);
        int64_t columns = round % 4 == 0 ? 32 : 16 + (int64_t)sx_rng_below(&rng, 40);
        sx_attr attr = {.present = SX_A(perm), .perm = {2, {1, 0}}};
        sx_type x = TYPE(SX_F32, columns, rows), whole = TYPE(SX_F32, rows, columns);
        if (batch) {
            attr.perm = (sx_ints){3, {0, 2, 1}};
            x = TYPE(SX_F32, 3, columns, rows);
            whole = TYPE(SX_F32, 3, rows, columns);
        }
        node n = lift(&cx, SX_OP_TRANSPOSE, &attr, &x, 1);
        n = with_tensor(&cx, SX_OP_ADD, &n, TYPE(SX_F32, columns));
        n = round % 2 == 0 ? unary(&cx, SX_OP_GELU, &n) : n;
        n = with_tensor(&cx, SX_OP_MULTIPLY, &n, whole);
        fill_inputs(&cx, &n, &rng, false);
        sx_kernel *plain;
        void *bits = run_node(&cx, &n, &apart[0], run_eval, NULL, &plain);
        ck_assert(!has_workspace(plain));
        for (uint32_t p = 0; p < SX_COUNT(turned) + 1; p++) {
            const test_tiles *plan = p < SX_COUNT(turned) ? &turned[p] : &apart[1];
            sx_kernel *kernel;
            void *out = run_node(&cx, &n, plan, run_eval, NULL, &kernel);
            ck_assert_mem_eq(out, bits, bytes_of(&n.result));
            ck_assert_uint_eq(kernel->numerics, plain->numerics);
            ck_assert(has_workspace(kernel) == (p < SX_COUNT(turned)));
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.map");
    TCase *cases = tcase_create("map");
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_shapes_and_views);
    tcase_add_test(cases, test_functions);
    tcase_add_test(cases, test_integers);
    tcase_add_test(cases, test_turned);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
