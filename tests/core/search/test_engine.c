/* Which contractions the copy engine and groups of warps (wgmma) compute: a choice that no number of rows and no batch
 * changes; and their schedules, which all lower. */
#include "core/search/search.h"
#include "core/target/target.h"
#include "tests/core/nvidia/tiles.h"

#define ROUNDS 60

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const sx_matrix_instruction *instruction_of(const sx_analysis *a)
{
    return sx_search_matrix(a, sx_target_sm_90.matrix, sx_target_sm_90.matrix_count);
}

static bool by_engine(const tiles_case *c)
{
    node n = tiles_node(&cx, c);
    const sx_matrix_instruction *matrix = instruction_of(analysis_of(&cx, &n));
    ck_assert(matrix != NULL && matrix->factor == c->dtype);
    return matrix->warps > 1;
}

static const sx_device *device_of_h100(void)
{
    const sx_device *device;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("h100"), &device));
    return device;
}

/* The engine needs rows of 16 bytes: of the sum on the left, of the sum or of the columns on the right. */
static const struct {
    int64_t n, k;
    bool left_turned, right_turned, engine;
} layouts[] = {
    {24, 40, false, false, true},  {24, 40, false, true, true},    {23, 40, false, true, true},
    {23, 40, false, false, false}, {24, 41, false, false, false},  {24, 44, false, true, false},
    {24, 40, true, false, true},   {24, 41, true, false, true},    {1, 40, false, true, true},
    {1, 40, false, false, false},  {24, 8192, false, false, true}, {24, 8128, false, false, true}};

START_TEST(test_a_choice_without_rows)
{
    static const int64_t rows[] = {1, 2, 8, 16, 63, 64, 65, 200, 4096};
    for (uint32_t i = 0; i < SX_COUNT(layouts); i++) {
        for (uint32_t r = 0; r < SX_COUNT(rows); r++) {
            for (int64_t b = 1; b <= 3; b++) {
                tiles_case c = {.dtype = r % 2 == 0 ? SX_BF16 : SX_F16,
                                .b = b,
                                .m = rows[r],
                                .n = layouts[i].n,
                                .k = layouts[i].k,
                                .left_turned = layouts[i].left_turned,
                                .right_turned = layouts[i].right_turned,
                                .after = r % 3};
                bool engine = layouts[i].engine && c.after != 2; /* tanh divides */
                ck_assert_msg(by_engine(&c) == engine, "layout %u: %lld batches of %lld rows", i,
                              (long long)b, (long long)rows[r]);
            }
        }
    }
}
END_TEST

/* Other GPUs have no such instruction, and f32 is multiplied in f32. */
START_TEST(test_where_there_is_none)
{
    tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 64, .n = 64, .k = 64};
    node n = tiles_node(&cx, &c);
    const sx_target *old = &sx_target_sm_80;
    const sx_matrix_instruction *matrix =
        sx_search_matrix(analysis_of(&cx, &n), old->matrix, old->matrix_count);
    ck_assert(matrix != NULL && matrix->warps == 1);
    c.dtype = SX_F32;
    node wide = tiles_node(&cx, &c);
    ck_assert_ptr_null(instruction_of(analysis_of(&cx, &wide)));
}
END_TEST

static tiles_case random_case(sx_rng *rng)
{
    tiles_case c = {.dtype = sx_rng_below(rng, 2) == 0 ? SX_BF16 : SX_F16,
                    .b = 1 + (int64_t)sx_rng_below(rng, 3),
                    .m = 1 + (int64_t)sx_rng_below(rng, UINT64_C(1) << sx_rng_below(rng, 13)),
                    .n = 1 + (int64_t)sx_rng_below(rng, UINT64_C(1) << sx_rng_below(rng, 13)),
                    .k = 8 * (2 + (int64_t)sx_rng_below(rng, UINT64_C(1) << sx_rng_below(rng, 9))),
                    .right_turned = sx_rng_below(rng, 2) != 0,
                    .after = (uint32_t)sx_rng_below(rng, 4)};
    c.n = c.right_turned ? c.n : (c.n + 7) / 8 * 8;
    c.after = c.right_turned ? c.after : c.after % 3; /* the last columns are those of the right */
    c.after = c.after == 2 ? 0 : c.after;             /* it divides */
    return c;
}

/* All that are kept are of the instruction and no cheaper than the floor; each is lowered, and has the same plan. */
START_TEST(test_each_lowers)
{
    sx_rng rng = {sx_test_seed()};
    const sx_device *device;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("h100"), &device));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        sx_ctx own;
        sx_search_result result;
        uint64_t numerics = 0;
        sx_ctx_init(&own, SX_ARENA_DEFAULT);
        tiles_case c = random_case(&rng);
        node n = tiles_node(&own, &c);
        const sx_analysis *a = analysis_of(&own, &n);
        ck_sx_ok(&own, sx_search_kernel(&own, a, device, false, SX_SEARCH_KEEP, &result));
        ck_assert_uint_ge(result.matrix_count, 1);
        for (uint32_t i = 0; i < result.matrix_count; i++) {
            sx_block_tiles t;
            sx_kernel *kernel;
            const sx_schedule *s = &result.best[i].schedule;
            const sx_lowering what = {
                .kind = SX_LOWER_FUSED, .name = "k", .schedule = s, .analysis = a};
            ck_assert(sx_block_tiles_of(s, &t) && sx_block_by_engine(&t));
            ck_assert(result.best[i].cost_ns >= result.floor_ns);
            sx_code code = sx_target_lower(&own, &sx_target_sm_90, &what, &kernel);
            ck_assert_msg(code == SX_OK, "%lld x %lld x %lld turned %d: %s", (long long)c.m,
                          (long long)c.k, (long long)c.n, c.right_turned, own.error.text);
            ck_assert(numerics == 0 || numerics == kernel->numerics);
            numerics = kernel->numerics;
            ck_assert_double_eq(result.best[i].cost_ns, sx_cost_schedule(device, a, s, false));
        }
        sx_ctx_fini(&own);
    }
}
END_TEST

/* Where blocks have many columns, results whose rows the copy engine can store are. Of few columns threads are faster,
 * all others must be stored by them, and slices of blocks apart are. */
static const struct {
    int64_t m, n, k;
    uint32_t after;
    bool right_turned, stored;
} stores[] = {{4096, 4096, 2048, 0, false, true}, {4096, 4096, 2048, 1, true, true},
              {17, 4096, 512, 0, false, true},    {300, 264, 304, 4, false, true},
              {300, 263, 304, 0, true, false},    {300, 2, 304, 4, true, false},
              {1, 264, 304, 0, false, false},     {16, 512, 8192, 0, false, false}};

START_TEST(test_stores)
{
    const sx_device *device;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("h100"), &device));
    tiles_case c = {.dtype = SX_BF16,
                    .b = 1,
                    .m = stores[_i].m,
                    .n = stores[_i].n,
                    .k = stores[_i].k,
                    .after = stores[_i].after,
                    .right_turned = stores[_i].right_turned};
    node n = tiles_node(&cx, &c);
    const sx_analysis *a = analysis_of(&cx, &n);
    sx_search_result found;
    sx_block_tiles t;
    ck_sx_ok(&cx, sx_search_block(&cx, a, device, instruction_of(a), SX_SIDES_PLAIN, SX_SEARCH_KEEP,
                                  &found));
    ck_assert(sx_block_tiles_of(&found.best[0].schedule, &t));
    ck_assert_msg((t.stores > 0) == stores[_i].stored, "%u slots, slices apart %d", t.stores,
                  t.apart);
    sx_block_problem problem;
    sx_analysis of_blocks;
    sx_analysis_of_blocks(a, &of_blocks);
    sx_block_problem_of(device, &of_blocks, &problem);
    if (t.stores >
        0) { /* what slots cost is priced: one waits where two do not, and both take room */
        double own = sx_cost_block(&problem, &t), room = sx_block_shared_bytes(&problem, &t);
        t.stores = 0;
        ck_assert_double_gt(room, sx_block_shared_bytes(&problem, &t));
        ck_assert_double_lt(own, sx_cost_block(&problem, &t));
    }
}
END_TEST

/* Rows are visited together where the second level does not hold the right factor, and share it: less comes from
 * memory. Nothing is gained where it does, and several matrices are as they were. */
START_TEST(test_raster)
{
    static const struct {
        int64_t b, m, n, k;
        bool together;
    } some[] = {{1, 16384, 16384, 1024, true},
                {1, 4096, 2048, 1024, false},
                {2, 16384, 16384, 1024, false}};
    sx_device alone = *device_of_h100();
    const sx_device *device = &alone;
    sx_search_result found;
    sx_block_tiles t;
    sx_block_problem problem;
    sx_analysis of_blocks;
    alone.cluster_blocks = 1; /* clusters along the rows walk two rows of blocks together */
    tiles_case c = {
        .dtype = SX_BF16, .b = some[_i].b, .m = some[_i].m, .n = some[_i].n, .k = some[_i].k};
    node n = tiles_node(&cx, &c);
    const sx_analysis *a = analysis_of(&cx, &n);
    ck_sx_ok(&cx, sx_search_block(&cx, a, device, instruction_of(a), SX_SIDES_PLAIN, SX_SEARCH_KEEP,
                                  &found));
    ck_assert(sx_block_tiles_of(&found.best[0].schedule, &t));
    ck_assert_msg((t.raster > 0) == some[_i].together, "%u rows together", t.raster);
    if (t.raster > 0) {
        sx_analysis_of_blocks(a, &of_blocks);
        sx_block_problem_of(device, &of_blocks, &problem);
        double own = sx_cost_block(&problem, &t);
        ck_assert_double_eq(own, found.best[0].cost_ns);
        t.raster = 0;
        ck_assert_double_lt(own, sx_cost_block(&problem, &t));
    }
}
END_TEST

/* One block for each core walks where there are more tiles than cores, and what a block does once is paid once. With as
 * many tiles as cores both ways cost the same; fewer blocks than cores cost more. */
START_TEST(test_walk)
{
    static const struct {
        int64_t b, m, n, k;
        bool walks;
    } some[] = {{1, 4096, 4096, 2048, true}, {1, 16384, 16384, 1024, true},
                {3, 2048, 2048, 512, true},  {1, 1536, 2816, 1024, false},
                {1, 256, 512, 2048, false},  {1, 16, 4096, 4096, false}};
    sx_device alone = *device_of_h100();
    const sx_device *device = &alone;
    sx_search_result found;
    sx_block_tiles t;
    sx_block_problem problem;
    sx_analysis of_blocks;
    alone.cluster_blocks = 1; /* which would cost less */
    tiles_case c = {
        .dtype = SX_BF16, .b = some[_i].b, .m = some[_i].m, .n = some[_i].n, .k = some[_i].k};
    node n = tiles_node(&cx, &c);
    sx_analysis steady = *analysis_of(&cx, &n);
    const sx_analysis *a = &steady;
    ck_sx_ok(&cx, sx_search_block(&cx, a, device, instruction_of(a), SX_SIDES_PLAIN, SX_SEARCH_KEEP,
                                  &found));
    ck_assert(sx_block_tiles_of(&found.best[0].schedule, &t));
    ck_assert_uint_eq(t.walkers, some[_i].walks ? 132 : 0);
    sx_analysis_of_blocks(a, &of_blocks);
    sx_block_problem_of(device, &of_blocks, &problem);
    double own = sx_cost_block(&problem, &t);
    ck_assert_double_eq(own, found.best[0].cost_ns);
    ck_assert_double_ge(own, found.floor_ns);
    if (some[_i].walks) {
        sx_block_tiles dealt = t, half = t;
        dealt.walkers = 0;
        half.walkers = 66;
        ck_assert_uint_eq(sx_block_walkers(&problem, &t), 132);
        ck_assert_double_lt(own, sx_cost_block(&problem, &dealt));
        ck_assert_double_gt(sx_cost_block(&problem, &half), 1.5 * own);
    } else if (some[_i].m == 1536) {
        ck_assert(t.rows == 128 && t.columns == 256); /* 132 tiles */
        t.walkers = 132;
        ck_assert_double_eq(own, sx_cost_block(&problem, &t));
    }
    steady.steady = true; /* one text for an interval of extents */
    ck_sx_ok(&cx, sx_search_block(&cx, a, device, instruction_of(a), SX_SIDES_PLAIN, SX_SEARCH_KEEP,
                                  &found));
    for (uint32_t i = 0; i < found.best_count; i++) {
        ck_assert_uint_eq(found.best[i].schedule.blocks, 0);
    }
}
END_TEST

static bool has_cluster(const sx_search_candidate *candidate)
{
    sx_block_tiles t;
    ck_assert(sx_block_tiles_of(&candidate->schedule, &t));
    return t.cluster_rows + t.cluster_columns > 0;
}

static uint32_t count_clusters(const sx_analysis *a, const sx_device *device)
{
    sx_search_result found;
    uint32_t count = 0;
    ck_sx_ok(&cx, sx_search_block(&cx, a, device, instruction_of(a), SX_SIDES_PLAIN, SX_SEARCH_KEEP,
                                  &found));
    for (uint32_t i = 0; i < found.best_count; i++) {
        count += has_cluster(&found.best[i]) ? 1 : 0;
    }
    return count;
}

/* Clusters walk where both are of use: for less than the same blocks that walk alone, or clusters for each pair of
 * tiles. Along the rows of one matrix two of them are visited together for that. Each pays the latency between its
 * blocks where it begins, where it ends and at each tile between, as far as results do not hide it. */
START_TEST(test_clusters_walk)
{
    static const struct {
        int64_t b, m, n, k;
        bool rows, walks;
    } some[] = {{1, 4096, 4096, 4096, true, true},
                {1, 4096, 3072, 768, true, true},
                {1, 12608, 4096, 1024, false, true},
                {4, 2048, 4096, 1024, false, true},
                {1, 512, 4096, 4096, false, false}};
    sx_device device = *device_of_h100();
    sx_search_result found;
    sx_block_tiles t;
    sx_block_problem problem;
    sx_analysis of_blocks;
    tiles_case c = {
        .dtype = SX_BF16, .b = some[_i].b, .m = some[_i].m, .n = some[_i].n, .k = some[_i].k};
    node n = tiles_node(&cx, &c);
    const sx_analysis *a = analysis_of(&cx, &n);
    ck_sx_ok(&cx, sx_search_block(&cx, a, &device, instruction_of(a), SX_SIDES_PLAIN,
                                  SX_SEARCH_KEEP, &found));
    ck_assert(sx_block_tiles_of(&found.best[0].schedule, &t));
    ck_assert_int_eq(t.walkers > 0 && has_cluster(&found.best[0]), some[_i].walks);
    sx_analysis_of_blocks(a, &of_blocks);
    sx_block_problem_of(&device, &of_blocks, &problem);
    double own = sx_cost_block(&problem, &t);
    ck_assert_double_eq(own, found.best[0].cost_ns);
    if (!some[_i].walks) {
        return;
    }
    ck_assert_uint_eq(t.walkers, 132);
    ck_assert_int_eq(t.cluster_rows > 0, some[_i].rows);
    ck_assert_int_eq(t.raster > 0, some[_i].rows);
    ck_assert_uint_eq(sx_block_walkers(&problem, &t), 132);
    sx_block_tiles dealt = t, alone = t, across = t;
    dealt.walkers = 0;
    ck_assert_double_lt(own, sx_cost_block(&problem, &dealt));
    alone.cluster_rows = alone.cluster_columns = 0;
    ck_assert_double_lt(own, sx_cost_block(&problem, &alone));
    across.raster = some[_i].rows ? 0 : 2; /* blocks of a cluster do not follow each other */
    ck_assert_uint_eq(sx_block_walkers(&problem, &across), 0);
    int64_t tiles =
        some[_i].b * sx_ceil_div_i64(some[_i].m, t.rows) * sx_ceil_div_i64(some[_i].n, t.columns);
    double each = (double)sx_ceil_div_i64(tiles, 132);
    problem.sum = (double)(t.steps * (t.depth - 1)); /* all stages are on their way at once */
    own = sx_cost_block(&problem, &t);
    device.cluster_latency += 10000000; /* longer than any results */
    double far = (sx_cost_block(&problem, &t) - own) * device.ghz / ((each + 1) * 1e7);
    ck_assert_msg(far > 0.99 && far < 1.01, "%g", far);
}
END_TEST

/* Two blocks that share a factor read it once from the second level: taken where that is what a stage waits for, and
 * where pairs of blocks divide the grid. What a cluster costs is in its price: with a faster second level it is more
 * than that of the blocks alone. */
START_TEST(test_clusters)
{
    static const struct {
        int64_t b, m, n, k;
        bool clusters;
    } some[] = {{1, 4096, 4096, 4096, true},  {1, 512, 4096, 4096, true},
                {4, 1024, 1024, 1024, true},  {1, 64, 8192, 4096, true},
                {1, 4096, 4096, 16384, true}, {1, 192, 8, 4096, false},
                {5, 64, 8, 4096, false}};
    sx_device device = *device_of_h100();
    sx_search_result found;
    sx_block_tiles t;
    sx_block_problem problem;
    sx_analysis of_blocks;
    tiles_case c = {
        .dtype = SX_BF16, .b = some[_i].b, .m = some[_i].m, .n = some[_i].n, .k = some[_i].k};
    node n = tiles_node(&cx, &c);
    sx_analysis a = *analysis_of(&cx, &n);
    ck_sx_ok(&cx, sx_search_block(&cx, &a, &device, instruction_of(&a), SX_SIDES_PLAIN,
                                  SX_SEARCH_KEEP, &found));
    ck_assert_int_eq(has_cluster(&found.best[0]), some[_i].clusters);
    ck_assert(sx_block_tiles_of(&found.best[0].schedule, &t));
    sx_analysis_of_blocks(&a, &of_blocks);
    sx_block_problem_of(&device, &of_blocks, &problem);
    double own = sx_cost_block(&problem, &t);
    ck_assert_double_eq(own, found.best[0].cost_ns);
    if (!some[_i].clusters) {
        return;
    }
    ck_assert(sx_block_has_cluster(&problem, &t) && own > found.floor_ns);
    sx_block_tiles alone = t;
    alone.cluster_rows = alone.cluster_columns = 0;
    ck_assert_double_lt(own, sx_cost_block(&problem, &alone));
    device.cluster_latency *= 4; /* of the word of the other block */
    ck_assert_double_lt(own, sx_cost_block(&problem, &t));
    device.cluster_latency = 0; /* not known: by way of the second level */
    double unknown = sx_cost_block(&problem, &t);
    device.cluster_latency = device.l2_latency;
    ck_assert_double_eq(unknown, sx_cost_block(&problem, &t));
    device.l2_bytes_per_ns *= 1e4;
    ck_assert_double_gt(sx_cost_block(&problem, &t), sx_cost_block(&problem, &alone));
    ck_assert_uint_eq(count_clusters(&a, &device), 0);
    device = *device_of_h100();
    device.cluster_blocks = 1;
    ck_assert_uint_eq(count_clusters(&a, &device), 0);
    device = *device_of_h100();
    device.cores = 131; /* without pairs */
    ck_assert_uint_eq(count_clusters(&a, &device), 0);
    a.steady = true;
    ck_assert_uint_eq(count_clusters(&a, device_of_h100()), 0);
}
END_TEST

/* Tensor cores set the price of large products: less than warps alone could give, no less than the share says. */
START_TEST(test_large_products)
{
    const sx_device *device;
    sx_search_result groups, warps;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("h100"), &device));
    tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 8192, .n = 8192, .k = 4096};
    node n = tiles_node(&cx, &c);
    const sx_analysis *a = analysis_of(&cx, &n);
    ck_sx_ok(&cx, sx_search_block(&cx, a, device, instruction_of(a), SX_SIDES_PLAIN, SX_SEARCH_KEEP,
                                  &groups));
    ck_sx_ok(&cx, sx_search_block(&cx, a, device, sx_target_sm_90.matrix, SX_SIDES_PLAIN,
                                  SX_SEARCH_KEEP, &warps));
    ck_assert_msg(groups.best[0].cost_ns < 0.9 * warps.best[0].cost_ns, "%.0f ns, %.0f by warps",
                  groups.best[0].cost_ns, warps.best[0].cost_ns);
    ck_assert(groups.best[0].cost_ns > groups.floor_ns / device->group_share);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.search.engine");
    TCase *cases = tcase_create("engine");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_a_choice_without_rows);
    tcase_add_test(cases, test_where_there_is_none);
    tcase_add_test(cases, test_each_lowers);
    tcase_add_test(cases, test_large_products);
    tcase_add_loop_test(cases, test_raster, 0, 3);
    tcase_add_loop_test(cases, test_walk, 0, 6);
    tcase_add_loop_test(cases, test_clusters, 0, 7);
    tcase_add_loop_test(cases, test_clusters_walk, 0, 5);
    tcase_add_loop_test(cases, test_stores, 0, (int)SX_COUNT(stores));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
