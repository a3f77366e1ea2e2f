/* Contractions by blocks with the copy engine and wgmma, executed in the interpreter of PTX: exact sums for every
 * layout and edge, the bits of the fold under every schedule, copies and products early and late; and what the
 * assemblers of the toolkit make of them. */
#include "tests/core/nvidia/tiles.h"

#include "client/assemble/assemble.h"

#define ROUNDS 4 /* of each schedule */

#define WGMMA(block_rows, block_columns, block_steps, rows_of_four, columns_of_four, stages) \
    {                                                                                        \
        .matrix_rows = 64, .matrix_columns = (columns_of_four), .matrix_steps = 16,          \
        .rows = (block_rows), .columns = (block_columns), .steps = (block_steps),            \
        .warp_rows = (rows_of_four), .warp_columns = (columns_of_four), .depth = (stages)    \
    }
#define SLICED(block_rows, block_columns, block_steps, rows_of_four, columns_of_four, stages) \
    {                                                                                         \
        .matrix_rows = 64, .matrix_columns = (columns_of_four), .matrix_steps = 16,           \
        .rows = (block_rows), .columns = (block_columns), .steps = (block_steps),             \
        .warp_rows = (rows_of_four), .warp_columns = (columns_of_four), .depth = (stages),    \
        .slice = 2048                                                                         \
    }
/* The result goes through slots of shared memory, from which the copy engine stores it. */
#define STORED(block_rows, block_columns, block_steps, rows_of_four, columns_of_four, stages, \
               slots)                                                                         \
    {                                                                                         \
        .matrix_rows = 64, .matrix_columns = (columns_of_four), .matrix_steps = 16,           \
        .rows = (block_rows), .columns = (block_columns), .steps = (block_steps),             \
        .warp_rows = (rows_of_four), .warp_columns = (columns_of_four), .depth = (stages),    \
        .stores = (slots)                                                                     \
    }
/* So many blocks walk over the tiles. */
#define WALKS(block_rows, block_columns, block_steps, rows_of_four, columns_of_four, stages, \
              slots, blocks)                                                                 \
    {                                                                                        \
        .matrix_rows = 64, .matrix_columns = (columns_of_four), .matrix_steps = 16,          \
        .rows = (block_rows), .columns = (block_columns), .steps = (block_steps),            \
        .warp_rows = (rows_of_four), .warp_columns = (columns_of_four), .depth = (stages),   \
        .stores = (slots), .walkers = (blocks)                                               \
    }
static const sx_block_tiles plans[] = {
    WGMMA(64, 64, 64, 64, 64, 2),         WGMMA(128, 64, 32, 64, 64, 3),
    WGMMA(64, 128, 64, 64, 64, 4),        WGMMA(128, 128, 64, 64, 128, 4),
    WGMMA(128, 32, 16, 128, 32, 3),       WGMMA(64, 256, 64, 64, 256, 2),
    STORED(64, 64, 64, 64, 64, 2, 1),     STORED(128, 128, 64, 64, 128, 3, 1),
    STORED(64, 128, 64, 64, 64, 2, 2),    STORED(128, 32, 16, 128, 32, 3, 2),
    STORED(64, 256, 64, 64, 256, 2, 2),   STORED(64, 8, 32, 64, 8, 2, 2),
    STORED(128, 128, 64, 128, 128, 2, 2), STORED(128, 16, 32, 64, 16, 2, 1),
};

static int64_t extent(sx_rng *rng, int64_t block)
{
    static const int64_t some[] = {1, 3, 8, 12, 29, 40, 65, 72};
    return sx_rng_below(rng, 3) == 0 ? block * (1 + (int64_t)sx_rng_below(rng, 2))
                                     : some[sx_rng_below(rng, SX_COUNT(some))];
}

/* Rows of both arguments are multiples of 16 bytes, as the copy engine needs them. */
static tiles_case case_of(sx_rng *rng, const sx_block_tiles *plan, uint32_t round)
{
    tiles_case c = {.dtype = round % 2 == 0 ? SX_BF16 : SX_F16,
                    .b = 1 + (int64_t)sx_rng_below(rng, 2),
                    .m = extent(rng, plan->rows),
                    .n = extent(rng, plan->columns),
                    .k = extent(rng, plan->steps),
                    .left_turned = round >> 1 & 1,
                    .right_turned = round >> 2 & 1,
                    .after = (uint32_t)sx_rng_below(rng, 4)};
    c.m = c.left_turned ? (c.m + 7) / 8 * 8 : 1 + c.m;
    c.n = c.right_turned ? 1 + c.n : (c.n + 7) / 8 * 8;
    c.k = c.left_turned && !c.right_turned ? c.k : (c.k + 7) / 8 * 8;
    if (plan->stores > 0) { /* rows of the result are multiples of 16 bytes, and rows are rows */
        c.n = (c.n + 7) / 8 * 8;
        c.after = c.after == 3 ? 4 : c.after;
    }
    return c;
}

/* Instructions of one kind in the kernel. */
static uint32_t count_of(const sx_ptx_module *module, sx_ptx_op op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < module->kernel[0].insn_count; i++) {
        count += module->kernel[0].insn[i].op == op;
    }
    return count;
}

static sx_kernel *lower(sx_ctx *cx, const node *n, const sx_block_tiles *plan)
{
    sx_kernel *kernel;
    sx_code code = tiles_lower(cx, &sx_target_sm_90, n, *plan, &kernel);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    ck_assert(kernel->part[0].tile->by_engine);
    return kernel;
}

static void show(sx_ctx *cx, const sx_kernel *kernel, const sx_ptx_module *module)
{
    sx_buf text;
    sx_buf_init(&text, 1 << 24);
    (void)sx_tile_print(cx, &kernel->part[0], &text);
    sx_ptx_print(module, &text);
    sx_buf_put(&text, "", 1);
    (void)fprintf(stderr, "%s\n", getenv("SX_SHOW") ? (const char *)text.ptr : "");
    sx_buf_fini(&text);
}

/* Small integers, whose sums are exact: the bits of the loop IR whatever is fused behind the sum. */
START_TEST(test_exact)
{
    static const test_tiles vectors = {
        .lanes = 16, .block_m = 4, .block_nv = 2, .tile_m = 16, .tile_n = 64, .unroll_k = 2};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        const sx_block_tiles *plan = &plans[_i];
        tiles_case c = case_of(&rng, plan, round + 4 * (uint32_t)sx_rng_below(&rng, 2));
        node n = tiles_node(&cx, &c);
        sx_kernel *other;
        tiles_fill(&cx, &n, &rng, true);
        uint8_t *want = run_node(&cx, &n, &vectors, run_eval, NULL, &other);
        sx_kernel *kernel = lower(&cx, &n, plan);
        ck_assert_uint_ne(kernel->numerics, other->numerics);
        sx_ptx_module *module = tiles_module(&cx, kernel, 90);
        uint32_t stored = plan->stores > 0 ? SX_PTX_OP_CP_TENSOR_STORE : SX_PTX_OP_ST;
        ck_assert_uint_gt(count_of(module, (sx_ptx_op)stored), 0);
        for (uint32_t lazy = 0; lazy < 2; lazy++) {
            uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
            sx_code code =
                tiles_run(&cx, kernel, module, &n, sx_rng_next(&rng), lazy != 0, out, NULL);
            if (code != SX_OK) {
                show(&cx, kernel, module);
            }
            ck_assert_msg(code == SX_OK, "%lld x %lld x %lld: %s", (long long)c.m, (long long)c.k,
                          (long long)c.n, cx.error.text);
            ck_assert_msg(memcmp(out, want, bytes_of(&n.result)) == 0,
                          "%lld batches %lld x %lld x %lld turned %d %d after %u: other bits",
                          (long long)c.b, (long long)c.m, (long long)c.k, (long long)c.n,
                          c.left_turned, c.right_turned, c.after);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Rings that are never full, full once, and in later phases of their barriers; last stages that are not whole. */
START_TEST(test_phases)
{
    static const int64_t sums[] = {8, 16, 40, 48, 64, 80, 128, 136, 264};
    static const sx_block_tiles plan = WGMMA(128, 16, 16, 64, 16, 4);
    static const test_tiles vectors = {
        .lanes = 16, .block_m = 4, .block_nv = 2, .tile_m = 16, .tile_n = 64, .unroll_k = 2};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < SX_COUNT(sums); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 100, .k = sums[i], .n = 16};
        node n = tiles_node(&cx, &c);
        sx_kernel *other;
        tiles_fill(&cx, &n, &rng, true);
        uint8_t *want = run_node(&cx, &n, &vectors, run_eval, NULL, &other);
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        sx_kernel *kernel = lower(&cx, &n, &plan);
        sx_ptx_module *module = tiles_module(&cx, kernel, 90);
        for (uint32_t lazy = 0; lazy < 2; lazy++) {
            sx_code code =
                tiles_run(&cx, kernel, module, &n, sx_rng_next(&rng), lazy != 0, out, NULL);
            ck_assert_msg(code == SX_OK, "%lld steps: %s", (long long)sums[i], cx.error.text);
            ck_assert_msg(memcmp(out, want, bytes_of(&n.result)) == 0, "%lld steps: other bits",
                          (long long)sums[i]);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Random numbers: the bits of the fold, the same under every schedule, and near to the exact sum: each group adds an
 * error of half a unit in the last place of a sum below k, and the result one of its own type. */
START_TEST(test_fold)
{
    static const int64_t rows = 19, columns = 24, sum = 88;
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = {.dtype = _i == 0 ? SX_BF16 : SX_F16, .b = 1, .m = rows, .k = sum, .n = columns};
    node n = tiles_node(&cx, &c);
    uint64_t numerics = 0;
    double unit = _i == 0 ? ldexp(1.0, -8) : ldexp(1.0, -11);
    tiles_fill(&cx, &n, &rng, false);
    sx_tensor exact = oracle(&cx, &n);
    for (uint32_t p = 0; p < SX_COUNT(plans); p++) {
        sx_kernel *kernel = lower(&cx, &n, &plans[p]);
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        ck_assert(numerics == 0 || numerics == kernel->numerics);
        numerics = kernel->numerics;
        ck_sx_ok(&cx,
                 tiles_run(&cx, kernel, tiles_module(&cx, kernel, 90), &n, 1, true, out, NULL));
        for (int64_t i = 0; i < rows * columns; i++) {
            float fold = tiles_folded(&n, sum, i / columns, i % columns, columns);
            uint64_t got = sx_num_load(c.dtype, out, (size_t)i);
            ck_assert_uint_eq(got, sx_num_encode(c.dtype, (double)fold));
            double value = sx_num_decode(c.dtype, got), want = ((const double *)exact.data)[i];
            double sums = ceil((double)sum / 16) * (double)sum * ldexp(1.0, -24);
            ck_assert_msg(fabs(value - want) <= sums + unit * (fabs(want) + sums),
                          "element %lld is %g, exact %g", (long long)i, value, want);
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* Rows of blocks that are visited together: the bits of the same block schedule without, for rows that are no whole
 * number of blocks. Refused where rows of blocks are left, and for several matrices. */
START_TEST(test_raster)
{
    static const struct {
        int64_t b, rows;
        uint32_t raster;
        bool fits;
    } some[] = {{1, 250, 2, true}, {1, 250, 4, true}, {1, 130, 2, false}, {2, 250, 2, false}};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < SX_COUNT(some); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        tiles_case c = {
            .dtype = SX_BF16, .b = some[i].b, .m = some[i].rows, .k = 72, .n = 136, .after = 1};
        node n = tiles_node(&cx, &c);
        tiles_fill(&cx, &n, &rng, false);
        sx_block_tiles plan = plans[6];
        uint8_t *want = exact_buffer(&cx, bytes_of(&n.result));
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        sx_kernel *kernel = lower(&cx, &n, &plan), *raster;
        sx_ptx_module *module = tiles_module(&cx, kernel, 90);
        ck_sx_ok(&cx, tiles_run(&cx, kernel, module, &n, 1, true, want, NULL));
        plan.raster = some[i].raster;
        if (!some[i].fits) {
            ck_sx_fails(&cx, tiles_lower(&cx, &sx_target_sm_90, &n, plan, &raster),
                        SX_UNIMPLEMENTED, "visited together");
            sx_ctx_fini(&cx);
            continue;
        }
        raster = lower(&cx, &n, &plan);
        ck_assert_uint_eq(raster->numerics, kernel->numerics);
        ck_assert_int_eq(raster->part[0].grid[2], some[i].raster);
        ck_assert_int_eq(raster->part[0].grid[1], 3);
        module = tiles_module(&cx, raster, 90);
        ck_sx_ok(&cx, tiles_run(&cx, raster, module, &n, 2, false, out, NULL));
        ck_assert_int_eq(memcmp(out, want, bytes_of(&n.result)), 0);
        raster->part[0].tile->raster = 1; /* planted: blocks of other rows */
        ck_sx_fails(&cx, sx_tile_check(&cx, raster, &raster->part[0]), SX_INPUT,
                    "a grid that covers");
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Sums that are cut in slices of 64 steps. */
static sx_target sliced_target(sx_matrix_instruction *matrix)
{
    sx_target target = sx_target_sm_90;
    memcpy(matrix, target.matrix, target.matrix_count * sizeof(*matrix));
    for (uint32_t i = 0; i < target.matrix_count; i++) {
        matrix[i].slice_least = 64;
    }
    target.matrix = matrix;
    return target;
}

/* ---- blocks that walk over the tiles ---- */
/* Of every form the bits of the same schedule whose tiles are blocks, whatever the number of blocks: one, fewer than
 * tiles so that some have a tile more than others, one less, as many, and more than tiles. */
START_TEST(test_walk)
{
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < ROUNDS / 2; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_block_tiles plan = plans[_i];
        tiles_case c = case_of(&rng, &plan, (uint32_t)sx_rng_below(&rng, 8));
        c.m = c.left_turned ? c.m : c.m + plan.rows * (int64_t)sx_rng_below(&rng, 3);
        node n = tiles_node(&cx, &c);
        tiles_fill(&cx, &n, &rng, false);
        int64_t bytes = bytes_of(&n.result);
        uint8_t *want = exact_buffer(&cx, bytes);
        sx_kernel *kernel = lower(&cx, &n, &plan);
        const int64_t *grid = kernel->part[0].grid;
        uint32_t tiles = (uint32_t)(grid[0] * grid[1] * grid[2]);
        ck_sx_ok(&cx,
                 tiles_run(&cx, kernel, tiles_module(&cx, kernel, 90), &n, 1, true, want, NULL));
        const uint32_t blocks[] = {1, 2, tiles > 1 ? tiles - 1 : 1, tiles, tiles + 1};
        for (uint32_t i = 0; i < SX_COUNT(blocks); i++) {
            plan.walkers = blocks[i];
            plan.raster = c.b == 1 && grid[1] % 2 == 0 ? 2 * (i % 2) : 0;
            sx_kernel *walks = lower(&cx, &n, &plan);
            sx_ptx_module *module = tiles_module(&cx, walks, 90);
            uint8_t *out = exact_buffer(&cx, bytes);
            ck_assert_uint_eq(walks->numerics, kernel->numerics);
            sx_code code =
                tiles_run(&cx, walks, module, &n, sx_rng_next(&rng), (i & 1) != 0, out, NULL);
            if (code != SX_OK) {
                show(&cx, walks, module);
            }
            ck_assert_msg(code == SX_OK, "%u tiles by %u blocks: %s", tiles, blocks[i],
                          cx.error.text);
            ck_assert_msg(memcmp(out, want, (size_t)bytes) == 0,
                          "%u tiles by %u blocks: other bits", tiles, blocks[i]);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Slices of a sum, whose totals begin again at each tile. */
START_TEST(test_walk_slices)
{
    static const sx_block_tiles plan = WALKS(64, 64, 16, 64, 64, 3, 1, 0);
    sx_rng rng = {sx_test_seed()};
    sx_matrix_instruction matrix[16];
    sx_target target = sliced_target(matrix);
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = {.dtype = SX_BF16, .b = 2, .m = 130, .k = 256, .n = 72};
    node n = tiles_node(&cx, &c);
    tiles_fill(&cx, &n, &rng, false);
    uint8_t *want = exact_buffer(&cx, bytes_of(&n.result));
    for (uint32_t blocks = 0; blocks < 5; blocks += 2) {
        sx_block_tiles walks = plan;
        sx_kernel *kernel;
        uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
        walks.slice = 64;
        walks.walkers = blocks;
        ck_sx_ok(&cx, tiles_lower(&cx, &target, &n, walks, &kernel));
        ck_sx_ok(&cx, tiles_run(&cx, kernel, tiles_module(&cx, kernel, 90), &n, blocks, true,
                                blocks == 0 ? want : out, NULL));
        ck_assert(blocks == 0 || memcmp(out, want, bytes_of(&n.result)) == 0);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- through the table of targets ---- */
/* The target's own way: lowered, emitted, interpreted from its bytes, where offset and batch are in the maps. */
START_TEST(test_target)
{
    static const test_tiles vectors = {
        .lanes = 16, .block_m = 4, .block_nv = 2, .tile_m = 16, .tile_n = 64, .unroll_k = 2};
    const sx_target *target = &sx_target_sm_90;
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    tiles_case c = {.dtype = SX_F16, .b = 3, .m = 70, .k = 40, .n = 72, .right_turned = true};
    node n = tiles_node(&cx, &c);
    sx_kernel *other, *kernel;
    tiles_fill(&cx, &n, &rng, true);
    uint8_t *want = run_node(&cx, &n, &vectors, run_eval, NULL, &other);
    const sx_analysis *a = analysis_of(&cx, &n);
    sx_block_tiles tiles = plans[0];
    tiles.stores = (uint32_t)_i;
    tiles.left = a->lhs;
    tiles.right = a->rhs;
    sx_schedule s;
    sx_schedule_block(&tiles, &s);
    sx_lowering what = {.kind = SX_LOWER_FUSED, .name = "block", .analysis = a, .schedule = &s};
    ck_sx_ok(&cx, sx_target_lower(&cx, target, &what, &kernel));
    sx_target_code code;
    sx_emulator *emulator;
    sx_buf blob;
    sx_buf_init(&blob, (size_t)1 << 24);
    ck_sx_ok(&cx, target->emit(&cx, target, kernel, false, &blob, &code));
    ck_assert_uint_eq(code.maps[0].count, 2 + tiles.stores);
    ck_sx_ok(&cx, target->emulator_make(&cx, target, sx_buf_span(&blob), code.entry,
                                        code.entry_count, &emulator));
    uint8_t *out = exact_buffer(&cx, bytes_of(&n.result));
    sx_region region[3] = {
        {.name = "left", .memory = n.raw[0], .size = (uint64_t)bytes_of(&n.input[0])},
        {.name = "right", .memory = n.raw[1], .size = (uint64_t)bytes_of(&n.input[1])},
        {.name = "out", .memory = out, .size = (uint64_t)bytes_of(&n.result), .writable = true}};
    const int64_t *grid = kernel->part[0].grid;
    sx_emulation run = {.entry = code.entry[0],
                        .grid = {grid[0], grid[1], grid[2]},
                        .count = grid[0] * grid[1] * grid[2],
                        .buffer = region,
                        .buffer_count = 3,
                        .threads = code.block[0].threads,
                        .shared_bytes = code.block[0].shared_bytes,
                        .maps = &code.maps[0]};
    ck_sx_ok(&cx, target->emulate(&cx, emulator, &run));
    ck_assert_int_eq(memcmp(out, want, bytes_of(&n.result)), 0);
    run.maps = NULL; /* planted: a launch that knows nothing of them */
    ck_sx_fails(&cx, target->emulate(&cx, emulator, &run), SX_INPUT,
                tiles.stores > 0 ? "6 buffers, it is given 3" : "5 buffers, it is given 3");
    sx_buf_fini(&blob);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- what does not fit ---- */
static const struct {
    tiles_case c;
    sx_block_tiles plan;
    sx_code code;
    const char *text;
} refused[] = {
    {{.dtype = SX_BF16, .b = 1, .m = 64, .k = 60, .n = 64},
     WGMMA(64, 64, 64, 64, 64, 2),
     SX_UNIMPLEMENTED,
     "no multiples of 16 bytes apart"},
    {{.dtype = SX_BF16, .b = 1, .m = 64, .k = 64, .n = 63},
     WGMMA(64, 64, 64, 64, 64, 2),
     SX_UNIMPLEMENTED,
     "no multiples of 16 bytes apart"},
    {{.dtype = SX_BF16, .b = 1, .m = 64, .k = 64, .n = 64},
     WGMMA(64, 64, 64, 64, 32, 2),
     SX_UNIMPLEMENTED,
     "cut by 64"},
    {{.dtype = SX_BF16, .b = 1, .m = 256, .k = 64, .n = 256},
     WGMMA(128, 256, 64, 128, 256, 2),
     SX_LIMIT,
     "registers"},
    {{.dtype = SX_BF16, .b = 1, .m = 256, .k = 64, .n = 256},
     WGMMA(128, 256, 64, 64, 256, 5),
     SX_LIMIT,
     "shared memory"},
    {{.dtype = SX_F32, .b = 1, .m = 64, .k = 64, .n = 64},
     WGMMA(64, 64, 64, 64, 64, 2),
     SX_UNIMPLEMENTED,
     "this matrix instruction"},
    {{.dtype = SX_BF16, .b = 1, .m = 64, .k = 64, .n = 63, .right_turned = true},
     STORED(64, 64, 64, 64, 64, 2, 1),
     SX_UNIMPLEMENTED,
     "results whose rows are no multiples of 16 bytes"},
    {{.dtype = SX_BF16, .b = 1, .m = 64, .k = 64, .n = 64},
     STORED(64, 64, 64, 64, 64, 2, 3),
     SX_UNIMPLEMENTED,
     "results through these slots"},
    {{.dtype = SX_BF16, .b = 1, .m = 64, .k = 64, .n = 64},
     {.matrix_rows = 16,
      .matrix_columns = 8,
      .matrix_steps = 16,
      .rows = 64,
      .columns = 64,
      .steps = 32,
      .warp_rows = 32,
      .warp_columns = 32,
      .depth = 3,
      .walkers = 132},
     SX_UNIMPLEMENTED,
     "no blocks for several tiles in turn, without a copy engine"},
};

START_TEST(test_refused)
{
    sx_ctx cx;
    sx_kernel *kernel;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = tiles_node(&cx, &refused[_i].c);
    ck_sx_fails(&cx, tiles_lower(&cx, &sx_target_sm_90, &n, refused[_i].plan, &kernel),
                refused[_i].code, refused[_i].text);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- planted faults ---- */
typedef struct {
    const char *what;
    void (*plant)(sx_tile *tile);
    const char *text;
} planted;

#define FAULT(name, change)                 \
    static void plant_##name(sx_tile *tile) \
    {                                       \
        change;                             \
    }
FAULT(bytes, tile->ring.tx_bytes -= 2048)
FAULT(arrivals, tile->ring.empty_arrivals = 1)
FAULT(settle, tile->role[1].item[4].back = 2)
FAULT(release, tile->role[1].item[5].back = 0)
FAULT(unsettled, tile->role[1].item[7].back = 1)
FAULT(dims, tile->operand[0].boxes.map.dims[1]++)
FAULT(strides, tile->operand[1].boxes.map.strides[1] += 16)
FAULT(swizzle, tile->operand[1].boxes.map.swizzle = SX_SWIZZLE_64)
FAULT(batch, tile->operand[0].boxes.batch[0] = 1)
FAULT(columns, tile->held.column[0] ^= tile->held.column[2];
      tile->held.column[2] ^= tile->held.column[0]; tile->held.column[0] ^= tile->held.column[2])
FAULT(barriers, tile->ring.barriers = tile->ring.offset)
FAULT(loader, tile->role[0].first_warp = 0)
FAULT(slots, tile->store.offset -= 1024)
FAULT(beyond, tile->store.depth = 2)
FAULT(result, tile->store.view.buffer = 0)
FAULT(result_dims, tile->store.boxes.map.dims[0]++)
FAULT(result_rows, tile->store.boxes.map.strides[1] *= 2)
FAULT(result_batch, tile->store.boxes.batch[0] = 1)
FAULT(result_slot, tile->store.slot.swizzle = SX_SWIZZLE_64)
static const planted faults[] = {
    {"fewer bytes than the boxes have", plant_bytes, "bytes of all boxes"},
    {"one of two groups of warps frees a stage for both", plant_arrivals, "role"},
    {"two products may be under way", plant_settle, "while it is read"},
    {"a stage is freed while it is read", plant_release, "while it is read"},
    {"sums are used before the last products are in them", plant_unsettled, "role math"},
    {"a matrix with one more row", plant_dims, "boxes of the view"},
    {"rows that lie further apart", plant_strides, "boxes of the view"},
    {"another swizzle than the slot's", plant_swizzle, "boxes of the view"},
    {"boxes of another matrix of the batch", plant_batch, "boxes of the view"},
    {"registers in another order than the instruction's", plant_columns, "products of four warps"},
    {"barriers where the tiles lie", plant_barriers, "shared memory that holds the ring"},
    {"the loading warp multiplies, too", plant_loader, "all but one that loads"},
    {"results lie where a stage lies", plant_slots, "slots of the result behind the ring"},
    {"more slots than there is room for", plant_beyond, "slots of the result behind the ring"},
    {"the copy engine stores an argument", plant_result, "a result that the copy engine stores"},
    {"a result with one more column", plant_result_dims, "a result that the copy engine stores"},
    {"rows of the result apart", plant_result_rows, "a result that the copy engine stores"},
    {"another result of the batch", plant_result_batch, "a result that the copy engine stores"},
    {"another swizzle of the result", plant_result_slot, "a result that the copy engine stores"},
};

START_TEST(test_planted)
{
    static const tiles_case c = {.dtype = SX_BF16, .b = 2, .m = 200, .k = 128, .n = 136};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = tiles_node(&cx, &c);
    sx_block_tiles plan = plans[3];
    plan.stores = 1;
    sx_kernel *kernel = lower(&cx, &n, &plan);
    ck_sx_ok(&cx, sx_tile_check(&cx, kernel, &kernel->part[0]));
    faults[_i].plant(kernel->part[0].tile);
    sx_code code = sx_tile_check(&cx, kernel, &kernel->part[0]);
    ck_assert_msg(code == SX_INPUT && strstr(cx.error.text, faults[_i].text) != NULL,
                  "%s: %d %s, not \"%s\"", faults[_i].what, (int)code, cx.error.text,
                  faults[_i].text);
    sx_ctx_fini(&cx);
}
END_TEST

/* Everything with which roles and engines wait for each other is needed: without it, some order or delay of copies and
 * products gives another result or a fault. */
static bool waits(uint16_t op)
{
    static const sx_ptx_op ops[] = {SX_PTX_OP_MBARRIER_INIT,   SX_PTX_OP_FENCE_MBARRIER,
                                    SX_PTX_OP_BAR_SYNC,        SX_PTX_OP_MBARRIER_TRY_PARITY,
                                    SX_PTX_OP_MBARRIER_ARRIVE, SX_PTX_OP_MBARRIER_ARRIVE_TX,
                                    SX_PTX_OP_CP_TENSOR_LOAD,  SX_PTX_OP_WGMMA_FENCE,
                                    SX_PTX_OP_WGMMA_COMMIT,    SX_PTX_OP_WGMMA_WAIT,
                                    SX_PTX_OP_WGMMA_BF16,      SX_PTX_OP_FENCE_PROXY,
                                    SX_PTX_OP_STMATRIX,        SX_PTX_OP_CP_BULK_COMMIT,
                                    SX_PTX_OP_CP_TENSOR_STORE, SX_PTX_OP_CP_BULK_WAIT};
    for (uint32_t i = 0; i < SX_COUNT(ops); i++) {
        if (ops[i] == op) {
            return true;
        }
    }
    return false;
}

/* How many of them nobody misses. The last two stages are freed, and one of them is settled before, though nobody waits
 * for them any more; no thread writes sums between the products of the last stage and those before, so that they need
 * no fence. A loop that settles a slice at its end has neither of the last two. */
static const struct {
    tiles_case c;
    sx_block_tiles plan;
    int64_t slice;
    uint32_t survivors, mutants;
} deletions[] = {
    {{.dtype = SX_BF16, .b = 1, .m = 40, .k = 72, .n = 24}, WGMMA(64, 32, 16, 64, 32, 2), 0, 4, 18},
    {{.dtype = SX_BF16, .b = 1, .m = 40, .k = 256, .n = 24},
     WGMMA(64, 32, 16, 64, 32, 2),
     64,
     1,
     14},
    /* Four slots of 64 columns are stored through two: the third one waits for the first. Of the last one three
     * matrices lie behind the last column. */
    {{.dtype = SX_BF16, .b = 1, .m = 40, .k = 72, .n = 200},
     STORED(64, 256, 16, 64, 256, 2, 2),
     0,
     7,
     50},
    /* Two groups of warps, of which each waits for itself. */
    {{.dtype = SX_BF16, .b = 1, .m = 100, .k = 72, .n = 128},
     STORED(128, 128, 16, 64, 128, 2, 1),
     0,
     4,
     40},
    /* Blocks that walk over three, four and two tiles: the last stages of a tile are waited for in the next one, and so
     * are the slots of the result. The fence of the last stage is all that is left. */
    {{.dtype = SX_BF16, .b = 1, .m = 150, .k = 72, .n = 24},
     WALKS(64, 32, 16, 64, 32, 2, 0, 1),
     0,
     1,
     18},
    {{.dtype = SX_BF16, .b = 1, .m = 150, .k = 56, .n = 128},
     WALKS(128, 64, 16, 64, 64, 3, 1, 2),
     0,
     1,
     32},
    {{.dtype = SX_BF16, .b = 1, .m = 40, .k = 256, .n = 256},
     WALKS(64, 128, 16, 64, 128, 2, 2, 1),
     64,
     0,
     40},
};

START_TEST(test_deletions)
{
    const tiles_case c = deletions[_i].c;
    sx_block_tiles plan = deletions[_i].plan;
    sx_matrix_instruction matrix[16];
    sx_target target = sliced_target(matrix);
    sx_rng rng = {sx_test_seed()};
    uint32_t survivors = 0, mutants = 0;
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = tiles_node(&cx, &c);
    tiles_fill(&cx, &n, &rng, false);
    sx_kernel *kernel;
    plan.slice = deletions[_i].slice;
    ck_sx_ok(&cx,
             tiles_lower(&cx, plan.slice != 0 ? &target : &sx_target_sm_90, &n, plan, &kernel));
    sx_ptx_module *module = tiles_module(&cx, kernel, 90);
    sx_ptx_kernel *k = &module->kernel[0];
    sx_ptx_statistics statistics;
    uint32_t bytes = bytes_of(&n.result);
    uint8_t *want = exact_buffer(&cx, bytes), *got = exact_buffer(&cx, bytes);
    ck_sx_ok(&cx, tiles_run_within(&cx, kernel, module, &n, 0, false, want, 0, &statistics));
    for (uint32_t i = 0; i < k->insn_count; i++) {
        sx_ptx_insn whole = k->insn[i];
        bool killed = false;
        if (!waits(whole.op)) {
            continue;
        }
        k->insn[i] =
            (sx_ptx_insn){.op = SX_PTX_OP_FENCE, .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA}};
        for (uint64_t run = 0; run < 6 && !killed; run++) {
            memset(got, 0xCC, bytes);
            sx_ctx inner;
            sx_ctx_init(&inner, (size_t)1 << 28);
            killed = tiles_run_within(&inner, kernel, module, &n, run, run % 2 != 0, got,
                                      4 * statistics.thread_insns, NULL) != SX_OK ||
                     memcmp(got, want, bytes) != 0;
            sx_ctx_fini(&inner);
        }
        if (!killed && getenv("SX_SHOW") != NULL) {
            (void)fprintf(stderr, "nobody misses %s, instruction %u of %u\n",
                          sx_ptx_row_of((sx_ptx_op)whole.op)->text, i, k->insn_count);
        }
        survivors += killed ? 0 : 1;
        mutants++;
        k->insn[i] = whole;
    }
    ck_assert_uint_eq(survivors, deletions[_i].survivors);
    ck_assert_uint_ge(mutants, deletions[_i].mutants);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- assembling ---- */
static const struct {
    tiles_case c;
    sx_block_tiles plan;
    /* A division is fused behind the sum: a call for nvJitLink, which then lets products wait. */
    bool calls;
    /* The law of such kernels: the sums of a thread and 26; what is fused may take more. */
    uint32_t registers;
} large[] = {
    {{.dtype = SX_BF16, .b = 1, .m = 4096, .k = 2048, .n = 4096},
     WGMMA(128, 128, 64, 64, 128, 4),
     false,
     96},
    {{.dtype = SX_BF16, .b = 1, .m = 4096, .k = 2048, .n = 4096, .right_turned = true, .after = 1},
     WGMMA(128, 128, 64, 64, 128, 4),
     false,
     90},
    {{.dtype = SX_F16, .b = 3, .m = 500, .k = 304, .n = 264, .after = 2},
     WGMMA(128, 128, 64, 64, 128, 4),
     true,
     90},
    {{.dtype = SX_BF16, .b = 1, .m = 4096, .k = 2048, .n = 4096, .left_turned = true, .after = 1},
     WGMMA(128, 256, 64, 64, 256, 4),
     false,
     154},
    {{.dtype = SX_BF16, .b = 1, .m = 17, .k = 2048, .n = 4096, .after = 1},
     WGMMA(64, 32, 64, 64, 32, 8),
     false,
     42},
    /* By the copy engine: no thread has an address of its results. */
    {{.dtype = SX_BF16, .b = 1, .m = 4096, .k = 2048, .n = 4096},
     STORED(128, 128, 64, 64, 128, 4, 2),
     false,
     90},
    {{.dtype = SX_BF16, .b = 1, .m = 4096, .k = 2048, .n = 4096, .after = 1},
     STORED(128, 256, 64, 64, 256, 4, 2),
     false,
     154},
    {{.dtype = SX_F16, .b = 3, .m = 500, .k = 304, .n = 264, .after = 4},
     STORED(128, 128, 64, 64, 128, 4, 1),
     false,
     90},
    /* Blocks that walk over the tiles. */
    {{.dtype = SX_BF16, .b = 1, .m = 4096, .k = 2048, .n = 4096},
     WALKS(128, 128, 64, 64, 128, 4, 2, 132),
     false,
     90},
    {{.dtype = SX_BF16, .b = 1, .m = 4096, .k = 2048, .n = 4096, .after = 1},
     WALKS(128, 256, 64, 64, 256, 4, 2, 132),
     false,
     154},
    {{.dtype = SX_F16, .b = 3, .m = 500, .k = 304, .n = 264, .after = 4},
     WALKS(128, 128, 64, 64, 128, 4, 0, 108),
     false,
     96},
    /* Four slices of 2048 steps: the totals beside the sums. */
    {{.dtype = SX_BF16, .b = 1, .m = 4096, .k = 8192, .n = 4096, .after = 1},
     SLICED(128, 128, 64, 64, 128, 4),
     false,
     154},
};

/* Both assemblers: no spills, no products that wait for each other. */
START_TEST(test_large)
{
    static const sxa_tool tools[] = {SXA_PTXAS, SXA_NVJITLINK};
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = tiles_node(&cx, &large[_i].c);
    sx_kernel *kernel = lower(&cx, &n, &large[_i].plan);
    sx_ptx_module *module = tiles_module(&cx, kernel, 90);
    sx_buf text;
    sx_buf_init(&text, (size_t)8 << 20);
    sx_ptx_print(module, &text);
    for (uint32_t t = 0; t < (large[_i].calls ? 1 : SX_COUNT(tools)); t++) {
        sxa_result result;
        sxa_options options = {.with = tools[t]};
        sx_code code = sxa_assemble(&cx, sx_buf_span(&text), "sm_90a", &options, &result);
        ck_assert_msg(code == SX_OK, "%s", cx.error.text);
        ck_sx_ok(&cx, sxa_refuse(&cx, &result));
        ck_assert_uint_eq(result.record->kernel_count, 1);
        const sx_cubin_kernel *k = &result.record->kernel[0];
        if (getenv("SX_SHOW") != NULL) {
            (void)fprintf(stderr, "%u: %u registers, code %llu\n", t, k->registers,
                          (unsigned long long)k->code_bytes);
        }
        ck_assert_uint_eq(k->spill_count + k->stack_bytes, 0);
        ck_assert_uint_le(k->registers, large[_i].registers + 16);
    }
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hopper");
    TCase *tcase = tcase_create("hopper");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_exact, 0, (int)SX_COUNT(plans));
    tcase_add_test(tcase, test_phases);
    tcase_add_test(tcase, test_raster);
    tcase_add_loop_test(tcase, test_walk, 0, (int)SX_COUNT(plans));
    tcase_add_test(tcase, test_walk_slices);
    tcase_add_loop_test(tcase, test_target, 0, 2);
    tcase_add_loop_test(tcase, test_fold, 0, 2);
    tcase_add_loop_test(tcase, test_refused, 0, (int)SX_COUNT(refused));
    tcase_add_loop_test(tcase, test_planted, 0, (int)SX_COUNT(faults));
    tcase_add_loop_test(tcase, test_deletions, 0, (int)SX_COUNT(deletions));
    tcase_add_loop_test(tcase, test_large, 0, (int)SX_COUNT(large));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
