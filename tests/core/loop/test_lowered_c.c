/* Lowered kernels as compiled C: the interpreter of the loop IR and the C back end agree to the bit. */
#include "tests/core/loop/nodes.h"

#define CASES_MAX 64
typedef struct {
    sx_kernel *kernel;
    void *buffer[SX_LOOP_BUFFERS_MAX];
    uint8_t *expected[SX_LOOP_BUFFERS_MAX]; /* of output buffers */
} one_case;
typedef struct {
    harness h;
    one_case list[CASES_MAX];
    uint32_t count;
} collection;

/* Runs the interpreter and keeps kernel, buffers and results for the compiled run. */
static void collect(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer, void *self)
{
    collection *all = self;
    ck_assert_uint_lt(all->count, CASES_MAX);
    one_case *c = &all->list[all->count];
    c->kernel = sx_alloc(cx, sizeof(*kernel));
    *c->kernel = *kernel;
    (void)snprintf(c->kernel->name, sizeof(c->kernel->name), "k%u", all->count++);
    memcpy(c->buffer, buffer, kernel->buffer_count * sizeof(buffer[0]));
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, buffer));
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        if (kernel->buffer[k].role == SX_BUFFER_OUT) {
            c->expected[k] = sx_alloc(cx, (size_t)kernel->buffer[k].size);
            memcpy(c->expected[k], buffer[k], (size_t)kernel->buffer[k].size);
        }
    }
    harness_add(&all->h, cx, c->kernel);
}

static void run_compiled(collection *all)
{
    harness_build(&all->h, "-O2");
    for (uint32_t i = 0; i < all->count; i++) {
        one_case *c = &all->list[i];
        for (uint32_t k = 0; k < c->kernel->buffer_count; k++) {
            if (c->expected[k] != NULL) {
                memset(c->buffer[k], 0x5A, (size_t)c->kernel->buffer[k].size);
            }
        }
        harness_run(&all->h, c->kernel, c->buffer);
        for (uint32_t k = 0; k < c->kernel->buffer_count; k++) {
            ck_assert_msg(c->expected[k] == NULL || memcmp(c->buffer[k], c->expected[k],
                                                           (size_t)c->kernel->buffer[k].size) == 0,
                          "kernel %u: buffer %u has other bits", i, k);
        }
    }
}

static node dot_node(sx_ctx *cx, int64_t m, int64_t k, int64_t n, sx_op function)
{
    sx_type x[2] = {TYPE(SX_F32, m, k), TYPE(SX_F32, k, n)};
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    node d = lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    d = with_tensor(cx, SX_OP_ADD, &d, TYPE(SX_F32, n));
    return unary(cx, function, &d);
}

static node row_node(sx_ctx *cx, sx_op op, int64_t rows, int64_t length, int64_t axis)
{
    sx_type x[3] = {TYPE(SX_F32, rows, length), TYPE(SX_F32, length), TYPE(SX_F32, length)};
    sx_attr attr = {.present = SX_A(axis), .axis = axis, .eps = 1e-5};
    attr.present |= op == SX_OP_LAYER_NORM ? SX_A(eps) : 0;
    return lift(cx, op, &attr, x, op == SX_OP_LAYER_NORM ? 3 : 1);
}

START_TEST(test_bits)
{
    static const test_tiles plans[] = {
        {.lanes = 16, .block_m = 14, .block_nv = 2, .tile_m = 28, .tile_n = 64, .unroll_k = 4},
        {.lanes = 8, .block_m = 6, .block_nv = 2, .tile_m = 5, .unroll_k = 2, .packed_b = true},
        {.lanes = 32, .tile_m = 5},
    };
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    static collection all;
    harness_init(&all.h);
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        node list[] = {
            dot_node(&cx, 31, 37, 51, SX_OP_RELU),      dot_node(&cx, 17, 20, 67, SX_OP_GELU_TANH),
            dot_node(&cx, 1, 64, 5, SX_OP_LOG),         row_node(&cx, SX_OP_SOFTMAX, 5, 139, 1),
            row_node(&cx, SX_OP_SOFTMAX, 9, 21, 0),     row_node(&cx, SX_OP_LAYER_NORM, 3, 100, 1),
            row_node(&cx, SX_OP_LOG_SOFTMAX, 2, 16, 1),
        };
        uint32_t first =
            plans[p].lanes == 32 ? 3 : 0; /* gcc takes long for blocks of such vectors */
        for (uint32_t k = first; k < SX_COUNT(list); k++) {
            fill_inputs(&cx, &list[k], &rng, false);
            (void)run_node(&cx, &list[k], &plans[p], collect, &all, NULL);
        }
    }
    run_compiled(&all);
    harness_fini(&all.h);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.lowered_c");
    TCase *cases = tcase_create("lowered_c");
    tcase_add_test(cases, test_bits);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
