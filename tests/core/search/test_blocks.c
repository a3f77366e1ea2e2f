/* Block schedules of contractions: each one that is found is a schedule, fits the laws and limits of its device, and
 * costs what the model says; none of the whole space is cheaper; a table of shapes with what is chosen for them. */
#include "tests/core/loop/nodes.h"

#include "core/search/search.h"
#include "tests/lib/block_sweep.h"

static const sx_matrix_instruction bf16 = {.name = "mma.m16n8k16.bf16",
                                           .factor = SX_BF16,
                                           .sum = SX_F32,
                                           .rows = 16,
                                           .columns = 8,
                                           .steps = 16,
                                           .numerics = "test"};
static const sx_matrix_instruction i8 = {.name = "mma.m16n8k32.s8",
                                         .factor = SX_I8,
                                         .sum = SX_I32,
                                         .rows = 16,
                                         .columns = 8,
                                         .steps = 32,
                                         .numerics = "test"};
static const char *const devices[] = {"a100", "h100", "h200", "b200", "rtx3090", "rtx4090"};
/* What is multiplied, and by what. */
static const struct {
    sx_dtype dtype;
    const sx_matrix_instruction *matrix;
} classes[] = {{SX_BF16, &bf16}, {SX_F32, NULL}, {SX_F64, NULL}, {SX_I8, &i8}};
#define TRIALS 60

static const sx_device *device_of(sx_ctx *cx, const char *name)
{
    const sx_device *device;
    ck_sx_ok(cx, sx_device_find(cx, sx_span_of(name), &device));
    return device;
}

/* batch x [m, k] x [k, n], the right one as it is or transposed. */
typedef struct {
    sx_dtype dtype;
    int64_t b, m, n, k;
    bool turned;
} shape;

static const sx_analysis *product(sx_ctx *cx, shape s)
{
    sx_type x[2] = {TYPE(s.dtype, s.b, s.m, s.k), TYPE(s.dtype, s.b, s.k, s.n)};
    if (s.turned) {
        x[1] = TYPE(s.dtype, s.b, s.n, s.k);
    }
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {s.turned ? 2 : 1}};
    node *n = SX_NEW(cx, node);
    ck_assert_ptr_nonnull(n);
    *n = lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    return analysis_of(cx, n);
}

static int64_t extent(sx_rng *rng, uint32_t bits)
{
    return (int64_t)(1 + sx_rng_below(rng, UINT64_C(1) << sx_rng_below(rng, bits + 1)));
}

static shape random_shape(sx_rng *rng, sx_dtype dtype)
{
    return (shape){.dtype = dtype,
                   .b = extent(rng, 4),
                   .m = extent(rng, 13),
                   .n = extent(rng, 13),
                   .k = extent(rng, 13),
                   .turned = sx_rng_below(rng, 2) != 0};
}

static sx_search_result search(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                               const sx_matrix_instruction *matrix)
{
    sx_search_result result;
    ck_sx_ok(cx, sx_search_block(cx, a, device, matrix, SX_SIDES_PLAIN, SX_SEARCH_KEEP, &result));
    ck_assert_msg(result.best_count > 0, "no candidates of %lld x %lld x %lld x %lld",
                  (long long)a->extent[0], (long long)a->extent[1], (long long)a->extent[2],
                  (long long)a->extent[3]);
    return result;
}

/* By hand: the limits of compute capabilities 8.0 to 12.0, and the registers of sums and fragments. */
static void check_tiles(const sx_device *device, const sx_analysis *a, const sx_block_tiles *t)
{
    int64_t warps = t->rows / t->warp_rows * (t->columns / t->warp_columns);
    int64_t bytes = sx_dtype_bytes(a->input[a->lhs].dtype);
    int64_t shared = t->depth * t->steps * (t->rows + t->columns) * bytes;
    int64_t words = bytes == 8 ? 2 : 1, sums, fragments;
    ck_assert_int_eq(t->rows % t->warp_rows + t->columns % t->warp_columns, 0);
    ck_assert_int_ge(warps, 1);
    ck_assert_int_le(warps, 8);
    ck_assert_int_le(shared, (int64_t)device->shared_block_bytes);
    ck_assert_uint_ge(t->depth, 2);
    ck_assert_uint_le(t->depth, SX_BLOCK_DEPTH_MAX);
    if (t->matrix_rows != 0) {
        ck_assert_int_eq(t->warp_rows % t->matrix_rows + t->warp_columns % t->matrix_columns +
                             t->steps % t->matrix_steps,
                         0);
        sums = t->warp_rows * t->warp_columns / 32;
        fragments = (t->warp_rows + t->warp_columns) / 4;
    } else {
        ck_assert_int_eq(t->warp_rows / t->thread_rows * (t->warp_columns / t->thread_columns), 32);
        sums = words * t->thread_rows * t->thread_columns;
        fragments = words * (t->thread_rows + t->thread_columns);
    }
    ck_assert_int_le(sums + fragments, 240);
    ck_assert_int_le((sums + fragments) * warps * 32, device->register_file);
}

static void check_result(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                         const sx_search_result *result)
{
    double last = result->floor_ns + device->launch_ns;
    for (uint32_t i = 0; i < result->best_count; i++) {
        const sx_search_candidate *c = &result->best[i];
        sx_block_tiles tiles;
        sx_block_problem problem;
        ck_assert_msg(c->cost_ns >= last, "candidate %u: %g ns after %g", i, c->cost_ns, last);
        last = c->cost_ns;
        ck_sx_ok(cx, sx_schedule_check(cx, &c->schedule, a));
        ck_assert(sx_block_tiles_of(&c->schedule, &tiles));
        ck_assert_uint_eq(tiles.left, a->lhs);
        ck_assert_uint_eq(tiles.right, a->rhs);
        check_tiles(device, a, &tiles);
        sx_block_problem_of(device, a, &problem);
        ck_assert_uint_ge(sx_block_resident(&problem, &tiles), 1);
        ck_assert_double_eq(c->cost_ns, sx_cost_schedule(device, a, &c->schedule, false));
        ck_assert_double_ge(c->cost_ns, sx_cost_block_least(&problem, &tiles) * (1 - 1e-9));
    }
    uint32_t dropped = result->dropped_bound + result->dropped_roofline +
                       result->dropped_alignment + result->dropped_resources;
    ck_assert_uint_ge(result->considered, dropped + result->best_count);
}

START_TEST(test_each_is_sound)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < TRIALS; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        uint32_t c = i % SX_COUNT(classes);
        const sx_device *device = device_of(&cx, devices[i % SX_COUNT(devices)]);
        const sx_analysis *a = product(&cx, random_shape(&rng, classes[c].dtype));
        sx_search_result one = search(&cx, a, device, classes[c].matrix);
        sx_search_result two = search(&cx, a, device, classes[c].matrix);
        check_result(&cx, a, device, &one);
        ck_assert_uint_eq(one.best_count, two.best_count);
        ck_assert_uint_eq(one.considered, two.considered);
        for (uint32_t k = 0; k < one.best_count; k++) {
            ck_assert(sx_schedule_equal(&one.best[k].schedule, &two.best[k].schedule));
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Twice the work in any direction never costs less under the same tiles, nor under those that are found, but for the
 * 0.5 % by which another stage of the ring must be better. (Twice an odd extent may cost less: more elements are copied
 * at once then.) */
START_TEST(test_doubling)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < TRIALS; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        uint32_t c = i % SX_COUNT(classes);
        const sx_device *device = device_of(&cx, devices[i % SX_COUNT(devices)]);
        shape s = random_shape(&rng, classes[c].dtype);
        s = (shape){s.dtype, s.b, 16 * s.m, 16 * s.n, 16 * s.k, s.turned};
        shape d = s;
        int64_t *const which[] = {&d.b, &d.m, &d.n, &d.k};
        *which[sx_rng_below(&rng, 4)] *= 2;
        sx_search_result before = search(&cx, product(&cx, s), device, classes[c].matrix);
        sx_search_result after = search(&cx, product(&cx, d), device, classes[c].matrix);
        bool both = before.best_count > 0 && after.best_count > 0;
        double small = both ? before.best[0].cost_ns : 0;
        double large = both ? after.best[0].cost_ns : 0;
        for (uint32_t k = 0; both && k < before.best_count; k++) {
            const sx_schedule *same = &before.best[k].schedule;
            double more = sx_cost_schedule(device, product(&cx, d), same, false);
            ck_assert_double_ge(more, before.best[k].cost_ns * (1 - 1e-9));
        }
        ck_assert_msg(
            large >= 0.99 * small,
            "%s: %lld x %lld x %lld x %lld after %lld x %lld x %lld x %lld costs %.1f ns, "
            "before %.1f",
            device->name, (long long)d.b, (long long)d.m, (long long)d.n, (long long)d.k,
            (long long)s.b, (long long)s.m, (long long)s.n, (long long)s.k, large, small);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* ---- the whole space, without prunes ---- */

/* What phases and bounds leave out is no better: the cheapest of all tiles costs as much as what was found, but for
 * depths between those of the space. Tiles of which half is outside of the problem are none of it. */
static void check_nothing_is_cheaper(uint64_t seed)
{
    sx_rng rng = {seed};
    for (uint32_t i = 0; i < 24; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        uint32_t c = i % SX_COUNT(classes);
        const sx_matrix_instruction *matrix = classes[c].matrix;
        const sx_device *device = device_of(&cx, devices[i % SX_COUNT(devices)]);
        shape of = random_shape(&rng, classes[c].dtype);
        const sx_analysis *a = product(&cx, of);
        sx_search_result found = search(&cx, a, device, matrix);
        sx_test_sweep s;
        sx_test_sweep_blocks(device, a, matrix, SX_SIDES_PLAIN, &s);
        ck_assert_msg(s.bound_worst <= 1,
                      "%s: %lld x %lld x %lld x %lld: a bound is %.9f of a price", device->name,
                      (long long)of.b, (long long)of.m, (long long)of.n, (long long)of.k,
                      s.bound_worst);
        ck_assert_msg(
            found.best[0].cost_ns <= 1.05 * s.least_ns,
            "%s: %lld x %lld x %lld x %lld: %.0f ns, but %lld x %lld x %lld x %u, warps of "
            "%lld x %lld take %.0f",
            device->name, (long long)of.b, (long long)of.m, (long long)of.n, (long long)of.k,
            found.best[0].cost_ns, (long long)s.best.rows, (long long)s.best.columns,
            (long long)s.best.steps, s.best.depth, (long long)s.best.warp_rows,
            (long long)s.best.warp_columns, s.least_ns);
        sx_ctx_fini(&cx);
    }
}

START_TEST(test_nothing_is_cheaper)
{
    /* The first had small warps that a phase dropped, the second extents of 1, whose strides count. */
    check_nothing_is_cheaper(UINT64_C(4050867042712843995));
    check_nothing_is_cheaper(UINT64_C(6699249016088145993));
    check_nothing_is_cheaper(sx_test_seed());
}
END_TEST

/* ---- prices and laws by hand ---- */

static double best_ns(sx_ctx *cx, const char *device, uint32_t class, shape s)
{
    sx_search_result found =
        search(cx, product(cx, s), device_of(cx, device), classes[class].matrix);
    return found.best[0].cost_ns;
}

/* A large product is nearly as fast as mma.sync on its device, and never faster; one of few rows takes about as long
 * as its weights from memory; a batch of small ones is not slower than one by one. */
START_TEST(test_prices)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    static const struct {
        const char *device;
        uint32_t of;
        /* Operations in a nanosecond: the data sheet's times what the instruction reaches, or those of lanes. */
        double most;
    } large[] = {
        {"h100", 0, 989400 * 0.62}, {"a100", 0, 312000 * 0.95}, {"rtx4090", 0, 165200 * 0.95},
        {"h100", 1, 66900},         {"a100", 1, 19500},         {"rtx4090", 1, 82600}};
    for (uint32_t i = 0; i < SX_COUNT(large); i++) {
        shape s = {classes[large[i].of].dtype, 1, 8192, 8192, 8192, false};
        double rate = 2.0 * 8192 * 8192 * 8192 / best_ns(&cx, large[i].device, large[i].of, s);
        ck_assert_msg(rate > 0.75 * large[i].most && rate < 1.001 * large[i].most,
                      "%s: %g operations in a nanosecond of %g", large[i].device, rate,
                      large[i].most);
    }
    shape skinny = {SX_BF16, 1, 16, 8192, 8192, true};
    double weights = 2.0 * 8192 * 8192 / device_of(&cx, "h200")->memory_bytes_per_ns;
    double ns = best_ns(&cx, "h200", 0, skinny) - device_of(&cx, "h200")->launch_ns;
    ck_assert_msg(ns > weights && ns < 1.25 * weights, "%g ns, weights take %g", ns, weights);
    double one = best_ns(&cx, "h200", 0, (shape){SX_BF16, 1, 128, 128, 64, true});
    double many = best_ns(&cx, "h200", 0, (shape){SX_BF16, 64, 128, 128, 64, true});
    ck_assert_double_lt(many, 2 * one);
    sx_ctx_fini(&cx);
}
END_TEST

/* Registers that ptxas 13.0 gave kernels with warps of so many rows and columns of m16n8k16, with fragments in one and
 * in two buffers: the law lies above the first, at the second where it is known. */
START_TEST(test_registers)
{
    static const struct {
        int64_t rows, columns;
        uint32_t one, two;
    } measured[] = {{64, 64, 168, 218}, {64, 32, 96, 128}, {32, 32, 62, 0}, {128, 32, 168, 236}};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_block_problem problem;
    const sx_device *a100 = device_of(&cx, "a100");
    sx_block_problem_of(a100, product(&cx, (shape){SX_BF16, 1, 512, 512, 512, true}), &problem);
    sx_block_tiles t = {
        .matrix_rows = 16, .matrix_columns = 8, .matrix_steps = 16, .steps = 32, .depth = 3};
    for (uint32_t i = 0; i < SX_COUNT(measured); i++) {
        t.rows = t.warp_rows = measured[i].rows;
        t.columns = t.warp_columns = measured[i].columns;
        uint32_t law = sx_block_registers(&problem, &t);
        ck_assert_uint_ge(law, measured[i].one);
        ck_assert_uint_ge(law, measured[i].two);
        ck_assert_uint_le(law, measured[i].one + 68);
    }
    t.rows = t.warp_rows = 96; /* 96 x 64: spills */
    t.columns = t.warp_columns = 64;
    ck_assert_uint_gt(sx_block_registers(&problem, &t), a100->registers);
    ck_assert_uint_eq(sx_block_resident(&problem, &t), 0);
    t.rows = t.warp_rows = 64; /* 4 stages of 256 x 64 are 160 KB, of which the A100 has 163 */
    t.rows = 256;
    t.columns = 64;
    t.steps = 64;
    t.depth = 4;
    ck_assert_uint_eq(sx_block_resident(&problem, &t), 1);
    t.depth = 5;
    ck_assert_uint_eq(sx_block_resident(&problem, &t), 0);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- what is chosen ---- */

typedef struct {
    const char *device;
    uint32_t of; /* of classes */
    shape s;
    /* Rows x columns x steps of a block, rows x columns of a warp, of a thread; stages. */
    const char *chosen;
} choice;
static const choice choices[] = {
    {"h100", 0, {SX_BF16, 1, 8192, 8192, 8192, true}, "256x128x64 64x64 0x0 4"},
    {"h100", 0, {SX_BF16, 1, 4096, 4096, 4096, false}, "256x128x64 64x64 0x0 4"},
    {"h100", 0, {SX_BF16, 1, 1024, 1024, 1024, false}, "128x64x64 64x32 0x0 8"},
    {"h100", 0, {SX_BF16, 1, 256, 256, 4096, false}, "32x16x64 32x16 0x0 8"},
    {"h100", 0, {SX_BF16, 1, 64, 14336, 4096, true}, "64x128x64 64x32 0x0 4"},
    {"h100", 0, {SX_BF16, 1, 16, 4096, 4096, true}, "16x32x64 16x32 0x0 8"},
    {"h100", 0, {SX_BF16, 1, 1, 4096, 4096, true}, "16x32x64 16x32 0x0 8"},
    {"h100", 0, {SX_BF16, 96, 512, 512, 64, true}, "256x128x64 64x64 0x0 2"},
    {"a100", 0, {SX_BF16, 1, 4096, 4096, 4096, true}, "128x64x32 64x64 0x0 3"},
    {"rtx4090", 0, {SX_BF16, 1, 4096, 4096, 4096, true}, "256x128x32 64x64 0x0 4"},
    {"h100", 3, {SX_I8, 1, 4096, 4096, 4096, true}, "256x128x128 64x64 0x0 4"},
    {"h100", 1, {SX_F32, 1, 4096, 4096, 4096, false}, "128x128x32 32x64 8x8 4"},
    {"h100", 1, {SX_F32, 1, 1024, 256, 1024, false}, "64x32x32 16x32 4x4 8"},
    {"h100", 1, {SX_F32, 1, 128, 256, 256, false}, "16x16x32 8x16 2x2 8"},
    {"h100", 1, {SX_F32, 1, 4, 4096, 4096, false}, "4x32x32 4x16 1x2 8"},
    {"a100", 2, {SX_F64, 1, 2048, 2048, 2048, false}, "64x32x16 32x32 8x4 3"},
};

/* Large products take large tiles, skinny ones small tiles and many blocks, short sums few stages. */
START_TEST(test_choices)
{
    const choice *c = &choices[_i];
    sx_ctx cx;
    char got[128];
    sx_block_tiles t;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const sx_device *device = device_of(&cx, c->device);
    sx_search_result found = search(&cx, product(&cx, c->s), device, classes[c->of].matrix);
    ck_assert(sx_block_tiles_of(&found.best[0].schedule, &t));
    (void)snprintf(got, sizeof(got), "%lldx%lldx%lld %lldx%lld %ux%u %u", (long long)t.rows,
                   (long long)t.columns, (long long)t.steps, (long long)t.warp_rows,
                   (long long)t.warp_columns, t.thread_rows, t.thread_columns, t.depth);
    ck_assert_msg(strcmp(got, c->chosen) == 0, "%s: %s, %.1f us, floor %.1f", c->device, got,
                  found.best[0].cost_ns / 1000, found.floor_ns / 1000);
    sx_ctx_fini(&cx);
}
END_TEST

/* Two dimensions are summed over. Where the rows lie between them they stay two, which blocks do not take, whatever the
 * number of rows is: with one row alone their strides would let them be one. */
START_TEST(test_sums_around_rows)
{
    for (int64_t rows = 1; rows <= 2; rows++) {
        for (uint32_t between = 0; between < 2; between++) {
            sx_ctx cx;
            sx_ctx_init(&cx, SX_ARENA_DEFAULT);
            const sx_device *device = device_of(&cx, "a100");
            sx_type left = between ? TYPE(SX_BF16, 3, rows, 17) : TYPE(SX_BF16, rows, 3, 17);
            sx_type x[2] = {left, TYPE(SX_BF16, 3, 17, 8)};
            sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
            attr.lhs_contract = between ? (sx_ints){2, {0, 2}} : (sx_ints){2, {1, 2}};
            attr.rhs_contract = (sx_ints){2, {0, 1}};
            node n = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
            const sx_target *target = sx_target_find(NULL, device->target);
            const sx_analysis *a = analysis_of(&cx, &n);
            sx_search_result result;
            ck_sx_ok(&cx, sx_search_block(&cx, a, device,
                                          sx_search_matrix(a, target->matrix, target->matrix_count),
                                          SX_SIDES_PLAIN, SX_SEARCH_KEEP, &result));
            ck_assert_msg((result.best_count == 0) == (between != 0), "%lld rows: %u candidates",
                          (long long)rows, result.best_count);
            sx_ctx_fini(&cx);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.search.blocks");
    TCase *cases = tcase_create("blocks");
    tcase_set_timeout(cases, 30);
    tcase_add_test(cases, test_each_is_sound);
    tcase_add_test(cases, test_doubling);
    tcase_add_test(cases, test_nothing_is_cheaper);
    tcase_add_test(cases, test_prices);
    tcase_add_test(cases, test_registers);
    tcase_add_loop_test(cases, test_choices, 0, (int)SX_COUNT(choices));
    tcase_add_test(cases, test_sums_around_rows);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
