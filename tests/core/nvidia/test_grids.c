/* Grids with more blocks than a launch has along y and z: which block computes what, far beyond block 65535. */
#include "tests/core/nvidia/tiles.h"

#include "core/base/grid.h"

/* A product, a schedule of it, and the grid that follows from both. */
typedef struct {
    tiles_case c;
    sx_block_tiles plan;
    int64_t grid[3];
} grid_case;

#define PLAN                                                                                   \
    {                                                                                          \
        .matrix_rows = 16, .matrix_columns = 8, .matrix_steps = 16, .rows = 16, .columns = 16, \
        .steps = 16, .warp_rows = 16, .warp_columns = 16, .depth = 2,                          \
    }

static const grid_case cases[] = {
    /* many matrices of one block, and of several */
    {{.dtype = SX_BF16, .b = 70000, .m = 4, .k = 8, .n = 8}, PLAN, {70000, 1, 1}},
    {{.dtype = SX_BF16, .b = 65537, .m = 33, .k = 2, .n = 17}, PLAN, {65537, 3, 2}},
    /* many blocks of rows; so many matrices that a launch has them along z */
    {{.dtype = SX_BF16, .b = 1, .m = 16 * 65536 + 5, .k = 3, .n = 17}, PLAN, {1, 65537, 2}},
    {{.dtype = SX_BF16, .b = 2, .m = 16 * 65536 + 5, .k = 3, .n = 5}, PLAN, {2, 65537, 1}},
    {{.dtype = SX_BF16, .b = 65535, .m = 17, .k = 8, .n = 2}, PLAN, {65535, 2, 1}},
};

/* The bytes of the result at the point, from the arguments by a loop over k. */
static void expect(const grid_case *g, const node *n, const int64_t point[3], uint8_t *out)
{
    const tiles_case *c = &g->c;
    for (int64_t row = 16 * point[1]; row < sx_min_i64(c->m, 16 * point[1] + 16); row++) {
        for (int64_t column = 16 * point[2]; column < sx_min_i64(c->n, 16 * point[2] + 16);
             column++) {
            double sum = 0;
            for (int64_t k = 0; k < c->k; k++) {
                size_t left = (size_t)((point[0] * c->m + row) * c->k + k);
                size_t right = (size_t)((point[0] * c->k + k) * c->n + column);
                sum += sx_num_decode(SX_BF16, sx_num_load(SX_BF16, n->raw[0], left)) *
                       sx_num_decode(SX_BF16, sx_num_load(SX_BF16, n->raw[1], right));
            }
            size_t at = (size_t)((point[0] * c->m + row) * c->n + column);
            sx_num_store(SX_BF16, out, at, sx_num_encode(SX_BF16, sum));
        }
    }
}

/* Integers from -2 to 2, drawn by eights. */
static void fill(sx_ctx *cx, node *n, sx_rng *rng)
{
    uint16_t number[5];
    for (uint32_t i = 0; i < 5; i++) {
        number[i] = (uint16_t)sx_num_encode(SX_BF16, (double)i - 2);
    }
    for (uint32_t k = 0; k < n->count; k++) {
        n->raw[k] = exact_buffer(cx, bytes_of(&n->input[k]));
        for (int64_t i = 0; i < sx_tensor_elements(&n->input[k]); i += 8) {
            uint64_t bits = sx_rng_next(rng);
            for (int64_t e = i; e < sx_min_i64(i + 8, sx_tensor_elements(&n->input[k])); e++) {
                memcpy(n->raw[k] + 2 * e, &number[(bits & 0xff) % 5], 2);
                bits >>= 8;
            }
        }
    }
}

static sx_kernel *lowered(sx_ctx *cx, const grid_case *g, const node *n)
{
    sx_kernel *kernel;
    sx_code code = tiles_lower(cx, &sx_target_sm_80, n, g->plan, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    for (uint32_t d = 0; d < 3; d++) {
        ck_assert_int_eq(kernel->part[0].grid[d], g->grid[d]);
    }
    return kernel;
}

/* Some blocks: those around the ends of what y and z have, and others; each writes its own elements and no other. */
START_TEST(test_blocks_know_their_place)
{
    const grid_case *g = &cases[_i];
    int64_t all = g->grid[0] * g->grid[1] * g->grid[2], last = -1;
    int64_t some[] = {0, 1, 65534, 65535, 65536, 65537, 131070, 131074, all - 2, all - 1};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 30);
    node n = tiles_node(&cx, &g->c);
    fill(&cx, &n, &rng);
    sx_kernel *kernel = lowered(&cx, g, &n);
    sx_ptx_module *module = tiles_module(&cx, kernel, 80);
    uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
    uint8_t *want = exact_buffer(&cx, bytes_of(&n.result));
    for (uint32_t i = 0; i < 60; i++) {
        int64_t at = i < SX_COUNT(some) ? some[i] : (int64_t)sx_rng_below(&rng, (uint64_t)all);
        const int64_t point[3] = {at / (g->grid[1] * g->grid[2]), at / g->grid[2] % g->grid[1],
                                  at % g->grid[2]};
        launches l;
        if (at >= all) {
            continue;
        }
        tiles_begin(&l, kernel, module, &n, out);
        for (uint32_t k = 0; k < l.launch.region_count; k++) { /* notes on each byte take long */
            l.region[k].unwatched = l.region[k].initialised = true;
        }
        l.launch.first_block = (uint64_t)at;
        l.launch.block_count = 1;
        sx_code code = launch_run(&cx, &l, 0, true);
        ck_assert_msg(code == SX_OK, "block %lld: %s", (long long)at, cx.error.text);
        expect(g, &n, point, want);
        last = at;
    }
    ck_assert_int_ge(last, 0);
    int64_t differs = 0, bytes = bytes_of(&n.result);
    while (differs < bytes && out[differs] == want[differs]) {
        differs++;
    }
    ck_assert_msg(differs == bytes, "byte %lld of the result differs", (long long)differs);
    sx_ctx_fini(&cx);
}
END_TEST

/* The rule by itself: every block of a launch is a point of its own, and all fit. */
START_TEST(test_rule)
{
    static const struct {
        int64_t grid[3];
        bool fits;
        uint32_t blocks[3];
    } row[] = {{{1, 1, 1}, true, {1, 1, 1}},
               {{65535, 65535, 7}, true, {7, 65535, 65535}},
               {{65536, 1, 1}, true, {65536, 1, 1}},
               {{1, 65536, 3}, true, {3 * 65536, 1, 1}},
               {{2, 65536, 16383}, true, {2147352576, 1, 1}},
               {{2, 65536, 16384}, false, {0, 0, 0}},
               {{1, 1, INT32_MAX}, true, {INT32_MAX, 1, 1}},
               {{1, 1, INT64_C(1) << 31}, false, {0, 0, 0}},
               {{INT64_MAX, 2, 2}, false, {0, 0, 0}},
               {{0, 1, 1}, false, {0, 0, 0}}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        uint32_t blocks[3] = {0, 0, 0};
        ck_assert(sx_grid_fits(row[i].grid) == row[i].fits);
        if (row[i].fits) {
            sx_grid_launched(row[i].grid, blocks);
        }
        for (uint32_t d = 0; d < 3; d++) {
            ck_assert_uint_eq(blocks[d], row[i].blocks[d]);
        }
    }
}
END_TEST

/* Blocks that no launch has are refused, not cut off. */
START_TEST(test_too_many_blocks)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = {.dtype = SX_BF16, .b = 65536, .m = INT64_C(16) * 32769, .k = 8, .n = 2};
    node n = tiles_node(&cx, &c);
    sx_kernel *kernel;
    ck_sx_fails(&cx, tiles_lower(&cx, &sx_target_sm_80, &n, cases[0].plan, &kernel), SX_LIMIT,
                "65536 x 32769 x 1 blocks, more than a launch has");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grids");
    TCase *tcase = tcase_create("grids");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_blocks_know_their_place, 0, (int)SX_COUNT(cases));
    tcase_add_test(tcase, test_rule);
    tcase_add_test(tcase, test_too_many_blocks);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
