/* Blocks whose factors the copy engine brings and wgmma multiplies: what is lowered is proven, and what is planted in
 * its numbers is refused with its reason. */
#include "tests/core/nvidia/tiles.h"

#include "tests/lib/unit.h"

static sx_block_tiles random_tiles(sx_rng *rng)
{
    static const uint32_t columns[] = {16, 32, 64, 128, 256};
    sx_block_tiles t = {.matrix_rows = 64,
                        .matrix_columns = columns[sx_rng_below(rng, SX_COUNT(columns))],
                        .matrix_steps = 16,
                        .steps = INT64_C(16) << sx_rng_below(rng, 3),
                        .warp_rows = INT64_C(64) << sx_rng_below(rng, 2),
                        .depth = 2 + (uint32_t)sx_rng_below(rng, 4),
                        .walkers = (uint32_t)sx_rng_below(rng, 3)};
    bool across = sx_rng_below(rng, 2) != 0, two = sx_rng_below(rng, 2) != 0;
    t.warp_columns = t.matrix_columns;
    t.rows = t.warp_rows << (two && !across ? 1 : 0);
    t.columns = t.warp_columns << (two && across ? 1 : 0);
    if (sx_rng_below(rng, 3) == 0) {
        bool rows = sx_rng_below(rng, 2) != 0;
        t.cluster_rows = rows ? SX_BLOCK_CLUSTER : 0;
        t.cluster_columns = rows ? 0 : SX_BLOCK_CLUSTER;
        t.raster = rows && t.walkers > 0 ? 2 : 0;
    }
    return t;
}

static tiles_case random_case(sx_rng *rng)
{
    static const int64_t extents[] = {1, 8, 40, 64, 72, 200, 1000};
#define EXTENT extents[sx_rng_below(rng, SX_COUNT(extents))]
    return (tiles_case){.dtype = sx_rng_below(rng, 2) == 0 ? SX_BF16 : SX_F16,
                        .b = 1 + (int64_t)sx_rng_below(rng, 3),
                        .m = EXTENT,
                        .k = EXTENT,
                        .n = EXTENT,
                        .left_turned = sx_rng_below(rng, 2) != 0,
                        .right_turned = sx_rng_below(rng, 2) != 0,
                        .after = (uint32_t)sx_rng_below(rng, 4)};
#undef EXTENT
}

static sx_verdict verdict_of(sx_ctx *cx, sx_judge *judge, const node *n, const sx_kernel *kernel)
{
    sx_judge_facts facts = {0};
    sx_verdict verdict;
    ck_sx_ok(cx, sx_judge_kernel(judge, &n->fused, n->input, n->count, &facts, kernel, &verdict));
    return verdict;
}

START_TEST(test_proven)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t lowered = 0, clusters = 0, walking = 0;
    for (uint32_t round = 0; round < 90 || ((clusters < 2 || walking < 2) && round < 2000);
         round++) {
        sx_ctx cx;
        sx_judge *judge;
        sx_kernel *kernel;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
        tiles_case c = random_case(&rng);
        node n = tiles_node(&cx, &c);
        sx_code code = tiles_lower(&cx, &sx_target_sm_90, &n, random_tiles(&rng), &kernel);
        if (code == SX_OK) {
            sx_verdict verdict = verdict_of(&cx, judge, &n, kernel);
            ck_assert_msg(verdict.proven, "%s", verdict.text);
            ck_assert(kernel->part[0].tile->by_engine);
            const sx_tile *tile = kernel->part[0].tile;
            bool cluster = tile->cluster_rows + tile->cluster_columns > 0;
            clusters += cluster ? 1 : 0;
            walking += cluster && tile->walkers > 0 ? 1 : 0;
            lowered++;
        } else {
            ck_assert_msg(code == SX_UNIMPLEMENTED || code == SX_LIMIT, "%s", cx.error.text);
        }
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_ge(lowered, 8);
    ck_assert_uint_ge(clusters, 2);
    ck_assert_uint_ge(walking, 2);
}
END_TEST

/* ---- planted faults ---- */
#define FAULT(name, change)                 \
    static void plant_##name(sx_tile *tile) \
    {                                       \
        change;                             \
    }
static void exchange(uint32_t *x, uint32_t *y)
{
    uint32_t old = *x;
    *x = *y;
    *y = old;
}
FAULT(bytes, tile->ring.tx_bytes += 16)
FAULT(arrivals, tile->ring.empty_arrivals = 1)
FAULT(settle, tile->role[1].item[4].back = 2)
FAULT(release, tile->role[1].item[5].back = 0)
FAULT(unsettled, tile->role[1].item[7].back = 1)
FAULT(rows, tile->operand[0].boxes.map.dims[1]--)
FAULT(steps, tile->operand[0].boxes.map.dims[0] += 8)
FAULT(strides, tile->operand[1].boxes.map.strides[1] += 16)
FAULT(matrices, tile->operand[1].boxes.map.strides[2] -= 16)
FAULT(skipped, tile->operand[0].boxes.map.element_strides[1] = 2)
FAULT(fill, tile->operand[0].boxes.map.fill = SX_FILL_NAN)
FAULT(swizzle, tile->operand[1].boxes.map.swizzle = SX_SWIZZLE_64)
FAULT(box, tile->operand[1].boxes.map.box[1] /= 2)
FAULT(batch, tile->operand[0].boxes.batch[0] = 1)
FAULT(unmoved, tile->operand[0].boxes.map.rank = 2)
FAULT(registers, exchange(&tile->held.column[0], &tile->held.column[2]))
FAULT(warps, exchange(&tile->held.column[sx_layout_first(&tile->held, SX_HOME_WARP)],
                      &tile->held.column[sx_layout_first(&tile->held, SX_HOME_WARP) + 2]))
FAULT(barriers, tile->ring.barriers = tile->ring.offset)
FAULT(first, tile->role[1].first_warp = 1; tile->role[0].first_warp = 0)
FAULT(halves, tile->cluster_columns = 2)
FAULT(grid, tile->cluster_rows = 3)
FAULT(threads, tile->by_engine = false; tile->ring.tx_bytes = 0)
FAULT(walkers, tile->by_engine = false; tile->walkers = 2)
FAULT(half, tile->cluster_columns = 2; tile->walkers = 3)
FAULT(below, tile->cluster_rows = 2; tile->walkers = 4)
static const struct {
    const char *what;
    void (*plant)(sx_tile *tile);
    const char *text;
} faults[] = {
    {"more bytes than the boxes have", plant_bytes, "bytes of the copy engine"},
    {"one of two groups of warps frees a stage for both", plant_arrivals, "role"},
    {"two products may be under way", plant_settle, "while it is read"},
    {"a stage is freed while it is read", plant_release, "while it is read"},
    {"sums are used before the last products are in them", plant_unsettled, "role math"},
    {"a row less, which would be zeros", plant_rows, "not that of its view"},
    {"steps of k beyond the end, which are the next row", plant_steps, "not that of its view"},
    {"rows that lie further apart", plant_strides, "not that of its view"},
    {"matrices that lie closer", plant_matrices, "not that of its view"},
    {"every second row", plant_skipped, "not that of its view"},
    {"NaN beyond the edge", plant_fill, "not that of its view"},
    {"another swizzle than the slot's", plant_swizzle, "do not fill its slot"},
    {"boxes of half the rows", plant_box, "do not fill its slot"},
    {"boxes of another dimension of the batch", plant_batch, "not that of its view"},
    {"the same matrix for all of the batch", plant_unmoved, "not that of its view"},
    {"registers in another order", plant_registers, "sums of whole instructions"},
    {"warps in another order", plant_warps, "sums of whole instructions"},
    {"barriers where the tiles lie", plant_barriers, "apart from their barriers"},
    {"four warps that are none of the hardware's", plant_first, "role math"},
    {"whole boxes for both blocks of a cluster", plant_halves, "do not fill its slot"},
    {"clusters that leave a row of blocks", plant_grid, "clusters of 3 x 1 blocks do not divide"},
    {"threads would have to copy", plant_threads, "between copy engine and threads"},
    {"they would have to walk", plant_walkers, "2 blocks walk over a grid without a copy engine"},
    {"half of a cluster walks", plant_half, "3 blocks walk in clusters of 0 x 2 that do not stay"},
    {"its blocks have other places in the walk", plant_below,
     "4 blocks walk in clusters of 2 x 0 that do not stay"},
};

START_TEST(test_planted)
{
    static const tiles_case c = {.dtype = SX_BF16, .b = 2, .m = 200, .k = 128, .n = 136};
    static const sx_block_tiles plan = {.matrix_rows = 64,
                                        .matrix_columns = 128,
                                        .matrix_steps = 16,
                                        .rows = 128,
                                        .columns = 128,
                                        .steps = 64,
                                        .warp_rows = 64,
                                        .warp_columns = 128,
                                        .depth = 4};
    sx_ctx cx;
    sx_judge *judge;
    sx_kernel *kernel;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    node n = tiles_node(&cx, &c);
    ck_sx_ok(&cx, tiles_lower(&cx, &sx_target_sm_90, &n, plan, &kernel));
    ck_assert(verdict_of(&cx, judge, &n, kernel).proven);
    faults[_i].plant(kernel->part[0].tile);
    sx_verdict verdict = verdict_of(&cx, judge, &n, kernel);
    ck_assert_msg(!verdict.proven && strstr(verdict.text, faults[_i].text) != NULL,
                  "%s: %s, not \"%s\"", faults[_i].what, verdict.text, faults[_i].text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tile engine");
    TCase *tcase = tcase_create("engine");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_proven);
    tcase_add_loop_test(tcase, test_planted, 0, (int)SX_COUNT(faults));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
