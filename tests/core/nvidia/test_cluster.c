/* Contractions by clusters of two blocks, of which each fetches half of the factor that they share for both: the bits
 * of the same blocks without clusters, in every order, copies early and late, also where clusters walk over the tiles;
 * what is fetched; what is refused; each instruction with which blocks wait for each other left out; and what the
 * assembler makes of them. */
#include "tests/core/nvidia/tiles.h"

#include "client/assemble/assemble.h"

#define ROUNDS 2 /* of each schedule */

#define BLOCKS(block_rows, block_columns, block_steps, rows_of_four, columns_of_four, stages, \
               slots)                                                                         \
    {                                                                                         \
        .matrix_rows = 64, .matrix_columns = (columns_of_four), .matrix_steps = 16,           \
        .rows = (block_rows), .columns = (block_columns), .steps = (block_steps),             \
        .warp_rows = (rows_of_four), .warp_columns = (columns_of_four), .depth = (stages),    \
        .stores = (slots)                                                                     \
    }
static const sx_block_tiles plans[] = {
    BLOCKS(64, 64, 64, 64, 64, 2, 0),   BLOCKS(128, 64, 32, 64, 64, 3, 0),
    BLOCKS(64, 128, 64, 64, 64, 4, 1),  BLOCKS(128, 128, 64, 64, 128, 3, 2),
    BLOCKS(128, 32, 64, 128, 32, 3, 0), BLOCKS(64, 256, 64, 64, 256, 2, 1),
    BLOCKS(128, 16, 128, 64, 16, 2, 1),
};

/* The same schedule in clusters along the columns or the rows. */
static sx_block_tiles clustered(sx_block_tiles plan, bool along_rows)
{
    plan.cluster_rows = along_rows ? SX_BLOCK_CLUSTER : 0;
    plan.cluster_columns = along_rows ? 0 : SX_BLOCK_CLUSTER;
    return plan;
}

static sx_kernel *lower(sx_ctx *cx, const node *n, const sx_block_tiles *plan)
{
    sx_kernel *kernel;
    sx_code code = tiles_lower(cx, &sx_target_sm_90, n, *plan, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    return kernel;
}

/* An even number of blocks of this size, the last one mostly not whole. */
static int64_t extent(sx_rng *rng, int64_t block)
{
    int64_t pairs = 1 + (int64_t)sx_rng_below(rng, 2), cut = (int64_t)sx_rng_below(rng, 2);
    int64_t all = 2 * pairs * block - cut * (1 + (int64_t)sx_rng_below(rng, (uint64_t)block - 8));
    return (all + 7) / 8 * 8; /* copies need rows of 16 bytes */
}

static tiles_case case_of(sx_rng *rng, const sx_block_tiles *plan, uint32_t round)
{
    static const int64_t sums[] = {8, 16, 40, 72, 136, 264};
    return (tiles_case){.dtype = round % 3 == 0 ? SX_F16 : SX_BF16,
                        .b = 1 + (int64_t)sx_rng_below(rng, 2),
                        .m = extent(rng, plan->rows),
                        .n = extent(rng, plan->columns),
                        .k = sums[sx_rng_below(rng, SX_COUNT(sums))],
                        .left_turned = sx_rng_below(rng, 2) != 0,
                        .right_turned = round & 1,
                        .after = (uint32_t)sx_rng_below(rng, 3)};
}

START_TEST(test_same_bits)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    const sx_block_tiles *plan = &plans[_i / 2];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        tiles_case c = case_of(&rng, plan, round + (uint32_t)sx_rng_below(&rng, 6));
        node n = tiles_node(&cx, &c);
        tiles_fill(&cx, &n, &rng, false);
        uint32_t bytes = (uint32_t)bytes_of(&n.result);
        uint8_t *want = exact_buffer(&cx, bytes), *got = exact_buffer(&cx, bytes);
        sx_block_tiles with = clustered(*plan, _i % 2 != 0);
        sx_kernel *alone = lower(&cx, &n, plan), *kernel = lower(&cx, &n, &with);
        sx_ptx_statistics before, after;
        ck_assert_uint_eq(kernel->numerics, alone->numerics);
        ck_sx_ok(&cx,
                 tiles_run(&cx, alone, tiles_module(&cx, alone, 90), &n, 0, true, want, &before));
        sx_ptx_module *module = tiles_module(&cx, kernel, 90);
        for (uint32_t lazy = 0; lazy < 2; lazy++) {
            memset(got, 0xCC, bytes);
            sx_code code =
                tiles_run(&cx, kernel, module, &n, sx_rng_next(&rng), lazy != 0, got, &after);
            ck_assert_msg(code == SX_OK, "%lld x %lld x %lld x %lld: %s", (long long)c.b,
                          (long long)c.m, (long long)c.k, (long long)c.n, cx.error.text);
            ck_assert_msg(memcmp(got, want, bytes) == 0,
                          "%lld batches %lld x %lld x %lld turned %d %d after %u: other bits",
                          (long long)c.b, (long long)c.m, (long long)c.k, (long long)c.n,
                          c.left_turned, c.right_turned, c.after);
        }
        ck_assert_uint_lt(after.global_read_bytes, before.global_read_bytes);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Clusters that walk: the bits of blocks for each tile, whatever the number of clusters: one, fewer than pairs of tiles
 * so that some have a pair more than others, and more. Copies end early and late. Four tiles of a block or more, of one
 * stage or several, with a last one that is whole or not: parities go on from one tile to the next. */
START_TEST(test_walk)
{
    static const int64_t sums[] = {16, 72, 136};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    const sx_block_tiles *plan = &plans[_i / 2];
    bool along_rows = _i % 2 != 0;
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = case_of(&rng, plan, (uint32_t)_i);
    c.b = along_rows ? 1 : c.b; /* of one matrix rows are visited together */
    c.m = (plan->rows * (along_rows ? 4 : 2) - 1) / 8 * 8;
    c.n = (plan->columns * (along_rows ? 2 : 4) - 1) / 8 * 8;
    c.k = sums[sx_rng_below(&rng, SX_COUNT(sums))];
    node n = tiles_node(&cx, &c);
    tiles_fill(&cx, &n, &rng, false);
    uint32_t bytes = (uint32_t)bytes_of(&n.result);
    uint8_t *want = exact_buffer(&cx, bytes), *got = exact_buffer(&cx, bytes);
    sx_kernel *alone = lower(&cx, &n, plan);
    uint32_t tiles = 8 * (uint32_t)c.b;
    sx_ptx_statistics dealt, before, after;
    ck_sx_ok(&cx, tiles_run(&cx, alone, tiles_module(&cx, alone, 90), &n, 0, true, want, &before));
    sx_block_tiles with = clustered(*plan, along_rows);
    with.raster = along_rows ? 2 : 0;
    sx_kernel *kernel = lower(&cx, &n, &with);
    ck_sx_ok(&cx, tiles_run(&cx, kernel, tiles_module(&cx, kernel, 90), &n, 0, true, got, &dealt));
    const uint32_t blocks[] = {2, 6, 2, tiles + 2};
    for (uint32_t i = 0; i < SX_COUNT(blocks); i++) {
        with.walkers = blocks[i];
        kernel = lower(&cx, &n, &with);
        memset(got, 0xCC, bytes);
        ck_assert_uint_eq(kernel->numerics, alone->numerics);
        sx_code code = tiles_run(&cx, kernel, tiles_module(&cx, kernel, 90), &n, sx_rng_next(&rng),
                                 i % 2 != 0, got, &after);
        ck_assert_msg(code == SX_OK, "%u tiles by %u blocks: %s", tiles, blocks[i], cx.error.text);
        ck_assert_msg(memcmp(got, want, bytes) == 0, "%u tiles by %u blocks: other bits", tiles,
                      blocks[i]);
        ck_assert_uint_eq(after.global_read_bytes, dealt.global_read_bytes);
        ck_assert_uint_lt(after.global_read_bytes, before.global_read_bytes);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Of the factor that two blocks share each byte is fetched once, of the other one as often as before. */
START_TEST(test_fetched)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_rng rng = {sx_test_seed()};
    tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 256, .k = 192, .n = 512};
    node n = tiles_node(&cx, &c);
    tiles_fill(&cx, &n, &rng, true);
    uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
    const uint64_t row_blocks = 2, column_blocks = 4; /* of 128 each */
    const uint64_t left = 256 * 192 * 2, right = 192 * 512 * 2;
    for (uint32_t form = 0; form < 3; form++) {
        sx_block_tiles plan = form == 0 ? plans[3] : clustered(plans[3], form == 2);
        sx_ptx_statistics statistics;
        sx_kernel *kernel = lower(&cx, &n, &plan);
        ck_sx_ok(&cx, tiles_run(&cx, kernel, tiles_module(&cx, kernel, 90), &n, 3, true, out,
                                &statistics));
        ck_assert_uint_eq(statistics.global_read_bytes,
                          left * column_blocks / (form == 1 ? 2 : 1) +
                              right * row_blocks / (form == 2 ? 2 : 1));
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Rows that are visited together, in clusters along either side; slices; and the other side of the product. */
START_TEST(test_forms)
{
    static const struct {
        int64_t m, n;
        uint32_t raster;
        bool swapped;
    } form[] = {{512, 256, 4, false}, {256, 128, 0, true}, {256, 256, 2, false}};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < 2 * SX_COUNT(form); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        tiles_case c = {.dtype = SX_BF16, .b = 1, .m = form[i / 2].m, .k = 72, .n = form[i / 2].n};
        node n = tiles_node(&cx, &c);
        tiles_fill(&cx, &n, &rng, false);
        uint32_t bytes = (uint32_t)bytes_of(&n.result);
        uint8_t *want = exact_buffer(&cx, bytes), *got = exact_buffer(&cx, bytes);
        sx_block_tiles plan = plans[0];
        plan.raster = form[i / 2].raster;
        plan.swapped = form[i / 2].swapped;
        sx_block_tiles with = clustered(plan, i % 2 != 0), again;
        sx_schedule s;
        sx_schedule_block(&with, &s); /* its text reads back */
        sx_buf text;
        sx_buf_init(&text, SX_SCHEDULE_TEXT_MAX);
        sx_schedule_print(&s, &text);
        ck_sx_ok(&cx, sx_schedule_parse(&cx, sx_buf_span(&text), &s));
        ck_assert(sx_block_tiles_of(&s, &again));
        ck_assert_uint_eq(again.cluster_rows, with.cluster_rows);
        ck_assert_uint_eq(again.cluster_columns, with.cluster_columns);
        ck_assert_uint_eq(again.raster, with.raster);
        ck_assert_int_eq(again.rows, with.rows);
        sx_buf_fini(&text);
        sx_kernel *alone = lower(&cx, &n, &plan), *kernel = lower(&cx, &n, &with);
        ck_sx_ok(&cx, tiles_run(&cx, alone, tiles_module(&cx, alone, 90), &n, 0, true, want, NULL));
        ck_sx_ok(&cx, tiles_run(&cx, kernel, tiles_module(&cx, kernel, 90), &n, 7 + i, i % 2 == 0,
                                got, NULL));
        ck_assert_int_eq(memcmp(got, want, bytes), 0);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* ---- what does not fit ---- */
static const struct {
    tiles_case c;
    sx_block_tiles plan;
    uint32_t rows, columns;
    sx_code code;
    const char *text;
} refused[] = {
    {{.dtype = SX_BF16, .b = 1, .m = 64, .k = 64, .n = 192},
     BLOCKS(64, 64, 64, 64, 64, 2, 0),
     0,
     2,
     SX_UNIMPLEMENTED,
     "clusters that do not divide them"},
    {{.dtype = SX_BF16, .b = 1, .m = 192, .k = 64, .n = 192},
     BLOCKS(64, 64, 64, 64, 64, 2, 0),
     2,
     0,
     SX_UNIMPLEMENTED,
     "clusters that do not divide them"},
    {{.dtype = SX_BF16, .b = 1, .m = 128, .k = 64, .n = 128},
     BLOCKS(64, 64, 64, 64, 64, 2, 0),
     2,
     2,
     SX_UNIMPLEMENTED,
     "these clusters"},
    {{.dtype = SX_BF16, .b = 1, .m = 128, .k = 64, .n = 256},
     BLOCKS(64, 64, 64, 64, 64, 2, 0),
     0,
     4,
     SX_UNIMPLEMENTED,
     "a schedule of another form"},
    {{.dtype = SX_BF16, .b = 70000, .m = 64, .k = 8, .n = 16},
     BLOCKS(64, 8, 32, 64, 8, 2, 0),
     0,
     2,
     SX_UNIMPLEMENTED,
     "clusters that do not divide them"},
    {{.dtype = SX_BF16, .b = 1, .m = 128, .k = 64, .n = 16, .right_turned = true},
     BLOCKS(64, 8, 64, 64, 8, 2, 0),
     2,
     0,
     SX_UNIMPLEMENTED,
     "in equal parts"},
    {{.dtype = SX_BF16, .b = 1, .m = 64, .k = 64, .n = 32},
     {.matrix_rows = 16,
      .matrix_columns = 8,
      .matrix_steps = 16,
      .rows = 16,
      .columns = 16,
      .steps = 16,
      .warp_rows = 16,
      .warp_columns = 8,
      .depth = 3},
     0,
     2,
     SX_UNIMPLEMENTED,
     "these clusters"},
};

START_TEST(test_refused)
{
    sx_ctx cx;
    sx_kernel *kernel;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = tiles_node(&cx, &refused[_i].c);
    sx_block_tiles plan = refused[_i].plan;
    plan.cluster_rows = refused[_i].rows;
    plan.cluster_columns = refused[_i].columns;
    ck_sx_fails(&cx, tiles_lower(&cx, &sx_target_sm_90, &n, plan, &kernel), refused[_i].code,
                refused[_i].text);
    sx_ctx_fini(&cx);
}
END_TEST

/* Half of a cluster walks; or its blocks, one below the other, do not follow each other in the order of the walk. */
START_TEST(test_refused_walks)
{
    static const struct {
        bool along_rows;
        uint32_t walkers, raster;
        sx_code code;
    } row[] = {{false, 3, 0, SX_UNIMPLEMENTED},
               {true, 4, 0, SX_UNIMPLEMENTED},
               {false, 4, 2, SX_UNIMPLEMENTED},
               {true, 1, 2, SX_UNIMPLEMENTED},
               {false, 4, 0, SX_OK},
               {true, 4, 2, SX_OK}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sx_ctx cx;
        sx_kernel *kernel;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 256, .k = 64, .n = 256};
        node n = tiles_node(&cx, &c);
        sx_block_tiles plan = clustered(plans[0], row[i].along_rows);
        plan.walkers = row[i].walkers;
        plan.raster = row[i].raster;
        sx_code code = tiles_lower(&cx, &sx_target_sm_90, &n, plan, &kernel);
        ck_assert_msg(code == row[i].code, "row %u: %s", i, cx.error.text);
        ck_assert(code == SX_OK || strstr(cx.error.text, "clusters that walk, by half") != NULL);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Programs that the check refuses. */
START_TEST(test_planted)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 192, .k = 64, .n = 256, .right_turned = true};
    node n = tiles_node(&cx, &c);
    sx_block_tiles plan = clustered(plans[0], false);
    sx_kernel *kernel = lower(&cx, &n, &plan);
    sx_tile *tile = kernel->part[0].tile;
    ck_sx_ok(&cx, sx_tile_check(&cx, kernel, &kernel->part[0]));
    static const struct {
        uint32_t rows, columns;
        const char *text;
    } row[] = {{2, 0, "clusters of two that divide the grid"}, /* three rows of blocks */
               {0, 4, "clusters of two that divide the grid"},
               {2, 2, "clusters of two that divide the grid"},
               {0, 0, "boxes of the view"}}; /* half of the rows, and nobody brings the others */
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        tile->cluster_rows = row[i].rows;
        tile->cluster_columns = row[i].columns;
        ck_sx_fails(&cx, sx_tile_check(&cx, kernel, &kernel->part[0]), SX_INPUT, row[i].text);
    }
    tile->cluster_rows = 0;
    tile->cluster_columns = 2;
    tile->operand[0].boxes.map.box[1] *= 2; /* as without a cluster */
    ck_sx_fails(&cx, sx_tile_check(&cx, kernel, &kernel->part[0]), SX_INPUT, "boxes of the view");
    tile->operand[0].boxes.map.box[1] /= 2;
    tile->walkers = 6;
    ck_sx_ok(&cx, sx_tile_check(&cx, kernel, &kernel->part[0]));
    tile->walkers = 5; /* half of a cluster */
    ck_sx_fails(&cx, sx_tile_check(&cx, kernel, &kernel->part[0]), SX_INPUT,
                "whole clusters of blocks that follow each other and walk");
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- instructions left out ---- */
static bool waits(uint16_t op)
{
    static const sx_ptx_op ops[] = {SX_PTX_OP_MBARRIER_INIT,       SX_PTX_OP_FENCE_MBARRIER,
                                    SX_PTX_OP_CLUSTER_ARRIVE,      SX_PTX_OP_CLUSTER_WAIT,
                                    SX_PTX_OP_MBARRIER_TRY_PARITY, SX_PTX_OP_MBARRIER_ARRIVE,
                                    SX_PTX_OP_MBARRIER_ARRIVE_FAR, SX_PTX_OP_MBARRIER_ARRIVE_TX,
                                    SX_PTX_OP_CP_TENSOR_LOAD,      SX_PTX_OP_MAPA,
                                    SX_PTX_OP_WGMMA_WAIT,          SX_PTX_OP_WGMMA_COMMIT};
    for (uint32_t i = 0; i < SX_COUNT(ops); i++) {
        if (ops[i] == op) {
            return true;
        }
    }
    return false;
}

/* Runs of the kernel as it is now: is one of them stopped, or has other bits? */
static bool is_killed(const sx_kernel *kernel, const sx_ptx_module *module, const node *n,
                      uint64_t instructions, const uint8_t *want, uint8_t *got, size_t bytes)
{
    bool killed = false;
    for (uint64_t run = 0; run < 6 && !killed; run++) {
        memset(got, 0xCC, bytes);
        sx_ctx inner;
        sx_ctx_init(&inner, (size_t)1 << 28);
        killed = tiles_run_within(&inner, kernel, module, n, run, run % 2 != 0, got,
                                  4 * instructions, NULL) != SX_OK ||
                 memcmp(got, want, bytes) != 0;
        sx_ctx_fini(&inner);
    }
    return killed;
}

/* A pair of blocks for a pair of tiles, of which nobody misses: that the last two stages are freed, in either block,
 * and that one of them is settled before, since nobody waits for them any more. And a pair that walks over three pairs
 * of tiles, where the next tile waits for all of that. */
static const struct {
    int64_t n;
    uint32_t walkers, survivors, unmissed;
} deletions[] = {{56, 0, 5, 2}, {184, 2, 0, 0}};

START_TEST(test_deletions)
{
    static const sx_block_tiles plan = BLOCKS(64, 32, 16, 64, 32, 2, 0);
    tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 40, .k = 72, .n = deletions[_i].n};
    sx_rng rng = {sx_test_seed()};
    uint32_t survivors = 0, mutants = 0;
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = tiles_node(&cx, &c);
    tiles_fill(&cx, &n, &rng, false);
    sx_block_tiles with = clustered(plan, false);
    with.walkers = deletions[_i].walkers;
    sx_kernel *kernel = lower(&cx, &n, &with);
    sx_ptx_module *module = tiles_module(&cx, kernel, 90);
    sx_ptx_kernel *k = &module->kernel[0];
    sx_ptx_statistics statistics;
    uint32_t bytes = (uint32_t)bytes_of(&n.result);
    uint8_t *want = exact_buffer(&cx, bytes), *got = exact_buffer(&cx, bytes);
    ck_sx_ok(&cx, tiles_run_within(&cx, kernel, module, &n, 0, false, want, 0, &statistics));
    for (uint32_t i = 0; i < k->insn_count; i++) {
        sx_ptx_insn whole = k->insn[i];
        if (!waits(whole.op)) {
            continue;
        }
        k->insn[i] =
            (sx_ptx_insn){.op = SX_PTX_OP_FENCE, .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA}};
        bool killed = is_killed(kernel, module, &n, statistics.thread_insns, want, got, bytes);
        if (!killed && getenv("SX_SHOW") != NULL) {
            (void)fprintf(stderr, "nobody misses %s, instruction %u of %u\n",
                          sx_ptx_row_of((sx_ptx_op)whole.op)->text, i, k->insn_count);
        }
        survivors += killed ? 0 : 1;
        mutants++;
        k->insn[i] = whole;
    }
    ck_assert_uint_eq(survivors, deletions[_i].survivors);
    ck_assert_uint_ge(mutants, 20);
    /* Parities that do not change, and barriers that count the arrivals of one block alone. */
    for (uint32_t i = 0; i < k->insn_count; i++) {
        sx_ptx_insn whole = k->insn[i];
        bool parity = whole.op == SX_PTX_OP_XOR, counts = whole.op == SX_PTX_OP_MBARRIER_INIT;
        sx_ptx_arg *number = &k->arg[whole.arg + (parity ? 2 : 1)], before = *number;
        if ((!parity && !counts) || number->kind != SX_PTX_ARG_IMMEDIATE ||
            (parity && before.value != 1)) {
            continue;
        }
        number->value = parity ? 0 : before.value / 2;
        ck_assert_msg((counts && before.value == 1) ||
                          is_killed(kernel, module, &n, statistics.thread_insns, want, got, bytes),
                      "nobody misses instruction %u of %u", i, k->insn_count);
        *number = before;
    }
    /* The scopes of arrivals at the other block, but for the last two, and of waits for them. */
    uint32_t scopes = 0, unmissed = 0;
    for (uint32_t i = 0; i < k->insn_count; i++) {
        sx_ptx_insn whole = k->insn[i];
        for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX; s++) {
            if (whole.modifier[s] == SX_PTX_SCOPE_CLUSTER && whole.op != SX_PTX_OP_CLUSTER_WAIT &&
                whole.op != SX_PTX_OP_CLUSTER_ARRIVE && whole.op != SX_PTX_OP_FENCE_MBARRIER) {
                k->insn[i].modifier[s] = SX_PTX_SCOPE_CTA;
                bool killed =
                    is_killed(kernel, module, &n, statistics.thread_insns, want, got, bytes);
                unmissed += killed ? 0 : 1;
                k->insn[i] = whole;
                scopes++;
            }
        }
    }
    ck_assert_uint_ge(scopes, 4);
    ck_assert_uint_eq(unmissed, deletions[_i].unmissed);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- through the table of targets ---- */
/* Any range of points runs the clusters that it touches, and whoever asks for paths learns what a cluster is. */
START_TEST(test_target)
{
    const sx_target *target = &sx_target_sm_90;
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = {.dtype = SX_BF16, .b = 2, .m = 256, .k = 40, .n = 256};
    node n = tiles_node(&cx, &c);
    tiles_fill(&cx, &n, &rng, false);
    const sx_analysis *a = analysis_of(&cx, &n);
    bool walks = _i == 2;
    sx_block_tiles tiles = clustered(plans[0], _i == 1);
    tiles.walkers = walks ? 4 : 0;
    tiles.left = a->lhs;
    tiles.right = a->rhs;
    sx_schedule s;
    sx_schedule_block(&tiles, &s);
    sx_lowering what = {.kind = SX_LOWER_FUSED, .name = "block", .analysis = a, .schedule = &s};
    sx_kernel *kernel;
    ck_sx_ok(&cx, sx_target_lower(&cx, target, &what, &kernel));
    sx_target_code code;
    sx_emulator *emulator;
    sx_buf blob;
    sx_buf_init(&blob, (size_t)1 << 24);
    ck_sx_ok(&cx, target->emit(&cx, target, kernel, false, &blob, &code));
    ck_sx_ok(&cx, target->emulator_make(&cx, target, sx_buf_span(&blob), code.entry,
                                        code.entry_count, &emulator));
    uint32_t bytes = (uint32_t)bytes_of(&n.result);
    uint8_t *whole = exact_buffer(&cx, bytes), *out = exact_buffer(&cx, bytes);
    sx_region region[3] = {
        {.name = "left", .memory = n.raw[0], .size = (uint64_t)bytes_of(&n.input[0])},
        {.name = "right", .memory = n.raw[1], .size = (uint64_t)bytes_of(&n.input[1])},
        {.name = "out", .memory = whole, .size = bytes, .writable = true}};
    const int64_t *grid = kernel->part[0].grid;
    int64_t points = grid[0] * grid[1] * grid[2];
    sx_emulation run = {.entry = code.entry[0],
                        .grid = {grid[0], grid[1], grid[2]},
                        .count = walks ? 5 : points,
                        .buffer = region,
                        .buffer_count = 3,
                        .threads = code.block[0].threads,
                        .shared_bytes = code.block[0].shared_bytes,
                        .walkers = walks ? 5 : 0, /* the third cluster is filled */
                        .maps = &code.maps[0]};
    ck_assert_int_eq(points, 2 * 4 * 4);
    ck_sx_ok(&cx, target->emulate(&cx, emulator, &run));
    region[2].memory = out;
    run.walkers = walks ? (uint32_t)points : 0;
    sx_emulated_path path = {.path = 0};
    for (int64_t first = 0; first < points; first += 5) { /* ranges that cut clusters */
        run.first = first;
        run.count = sx_min_i64(5, points - first);
        run.path = &path;
        ck_sx_ok(&cx, target->emulate(&cx, emulator, &run));
        ck_assert_uint_eq(path.cluster[0], 1);
        ck_assert_uint_eq(path.cluster[1], _i == 1 ? 2 : 1);
        ck_assert_uint_eq(path.cluster[2], _i == 1 ? 1 : 2);
        ck_assert(path.affine);
    }
    ck_assert_int_eq(memcmp(out, whole, bytes), 0);
    run.grid[0] = walks ? 1 : 2;
    run.grid[1] = walks ? 1 : 4;
    run.walkers = walks ? 3 : 0;
    run.grid[_i == 1 ? 1 : 2] = 3; /* planted: a launch whose blocks are no whole clusters */
    run.first = 0;
    run.count = 1;
    ck_sx_fails(&cx, target->emulate(&cx, emulator, &run), SX_INPUT, "do not divide the grid");
    sx_buf_fini(&blob);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- assembling ---- */
START_TEST(test_assembled)
{
    static const sxa_tool tools[] = {SXA_PTXAS, SXA_NVJITLINK};
    static const sx_block_tiles plan = BLOCKS(128, 256, 64, 64, 256, 4, 2);
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 4096, .k = 2048, .n = 4096, .after = 1};
    node n = tiles_node(&cx, &c);
    sx_block_tiles with = clustered(plan, _i != 0);
    with.raster = _i == 2 ? 2 : 0;
    with.walkers = _i == 2 ? 132 : 0;
    sx_kernel *kernel = lower(&cx, &n, &with);
    sx_buf text;
    sx_buf_init(&text, (size_t)8 << 20);
    sx_ptx_print(tiles_module(&cx, kernel, 90), &text);
    for (uint32_t t = 0; t < SX_COUNT(tools); t++) {
        sxa_result result;
        sxa_options options = {.with = tools[t]};
        sx_code code = sxa_assemble(&cx, sx_buf_span(&text), "sm_90a", &options, &result);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        ck_sx_ok(&cx, sxa_refuse(&cx, &result));
        const sx_cubin_kernel *k = &result.record->kernel[0];
        ck_assert_uint_eq(k->spill_count + k->stack_bytes, 0);
        ck_assert_uint_eq(k->cluster.x, _i == 1 ? 1 : 2);
        ck_assert_uint_eq(k->cluster.y, _i == 1 ? 2 : 1);
        ck_assert_uint_eq(k->cluster.z, 1);
        ck_assert_uint_le(k->registers, 168);
    }
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster");
    TCase *tcase = tcase_create("cluster");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_same_bits, 0, 2 * (int)SX_COUNT(plans));
    tcase_add_loop_test(tcase, test_walk, 0, 2 * (int)SX_COUNT(plans));
    tcase_add_test(tcase, test_fetched);
    tcase_add_test(tcase, test_forms);
    tcase_add_loop_test(tcase, test_refused, 0, (int)SX_COUNT(refused));
    tcase_add_test(tcase, test_refused_walks);
    tcase_add_test(tcase, test_planted);
    tcase_add_loop_test(tcase, test_deletions, 0, (int)SX_COUNT(deletions));
    tcase_add_loop_test(tcase, test_target, 0, 3);
    tcase_add_loop_test(tcase, test_assembled, 0, 3);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
