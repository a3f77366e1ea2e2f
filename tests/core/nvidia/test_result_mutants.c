/* Kernels with several results: decode attention, whose blocks give the sums and the statistics of their pieces of the
 * keys, and rows, whose warps give what is reduced beside what is made of it. Each is changed at one instruction, as in
 * test_tile_mutants. */
#include "core/search/search.h"
#include "tests/core/simt/mutants.h"
#include "tests/core/nvidia/pieces.h"
#include "tests/lib/unit.h"

#define RUNS 3
#define RESULTS_MAX 4

static uint8_t *want[RESULTS_MAX], *got[RESULTS_MAX];
static size_t bytes[RESULTS_MAX];
static uint32_t results;

/* Does a run of the kernel fail, or give other bits? */
static bool differs(sx_code (*run)(sx_ctx *, uint64_t, bool))
{
    bool other = false;
    for (uint64_t order = 0; order < RUNS && !other; order++) {
        sx_ctx inner;
        sx_ctx_init(&inner, (size_t)1 << 28);
        for (uint32_t k = 0; k < results; k++) {
            memset(got[k], 0xcc, bytes[k]);
        }
        other = run(&inner, order, order != 1) != SX_OK;
        for (uint32_t k = 0; k < results && !other; k++) {
            other = memcmp(got[k], want[k], bytes[k]) != 0;
        }
        sx_ctx_fini(&inner);
    }
    return other;
}

static void keep_results(sx_ctx *cx)
{
    for (uint32_t k = 0; k < results; k++) {
        want[k] = exact_buffer(cx, (int64_t)bytes[k]);
        memcpy(want[k], got[k], bytes[k]);
    }
}

/* ---- decode attention ---- */
static pieces_setting pieces;
static const sx_kernel *kernel;
static sx_ptx_module *module;
static uint64_t most; /* instructions of the whole kernel */

static sx_code run_pieces(sx_ctx *cx, uint64_t seed, bool lazy)
{
    launches l;
    uint32_t last = pieces.sums.count + SX_PIECE_STATISTIC;
    tiles_begin(&l, kernel, module, &pieces.sums, got[SX_PIECE_SUM]);
    launch_out(&l, "statistics", got[SX_PIECE_STATISTIC], (size_t)kernel->buffer[last].size);
    l.launch.instructions_max = most;
    sx_code code = launch_run(cx, &l, seed, lazy);
    most = most == 0 ? 2 * l.outcome.statistics.thread_insns : most;
    return code;
}

static bool pieces_killed(void *self)
{
    (void)self;
    return differs(run_pieces);
}

/* One block has all rows of a head, so that the number of its block of rows is 0, and there is one batch. */
static const mutants_same same_pieces[] = {
    {"without", "add.u32", 4, "what is added is 0: the block of rows, or the piece of one warp"},
    {"exchange", "add.u32", 1, "what is added is 0: the block of rows"},
    {"immediate", "mul.lo.u32", 1, "of the number of the block of rows, which is 0"},
    {"without", "add.s64", 1, "a pointer to keys behind the last of a piece"},
    {"immediate", "add.s64", 1, "a pointer to keys behind the last of a piece"},
    {"immediate", "bar.sync", 2, "another barrier with the same threads"},
    {"exchange", "bra", 2, "a stage is begun once more, or what stands behind is, to the same end"},
    {"immediate", "shfl.sync.bfly", 2, "a maximum of four lanes: 1 and 3 reach as many as 1 and 2"},
    {"immediate", "setp.gt.s32", 5, "no thread's columns begin so near to the edge"},
    {"without", "and.pred", 2, "rows that the instruction has and the block does not, or none"},
};

START_TEST(test_pieces)
{
    static const online_case c = {.dtype = SX_BF16,
                                  .batch = 1,
                                  .heads = 2,
                                  .rows = 12, /* of two of the instruction's halves */
                                  .keys = 1024,
                                  .d = 16,
                                  .columns = 16};
    sx_rng rng = {7};
    pieces_setup(&pieces, &c, &rng);
    kernel = pieces_sums_of(&pieces, 16, 2);
    module = tiles_module(&pieces.cx, kernel, 80);
    pieces_make_room(&pieces, kernel, got);
    results = SX_PIECE_RESULTS;
    for (uint32_t k = 0; k < results; k++) {
        bytes[k] = (size_t)kernel->buffer[pieces.sums.count + k].size;
    }
    ck_sx_ok(&pieces.cx, run_pieces(&pieces.cx, 0, false));
    keep_results(&pieces.cx);
    mutants m = {.cx = &pieces.cx,
                 .module = module,
                 .is_killed = pieces_killed,
                 .same = same_pieces,
                 .same_count = SX_COUNT(same_pieces),
                 .end = module->kernel[0].insn_count - 1,
                 .share = 40};
    mutants_run(&m);
    ck_assert_uint_gt(m.tried, m.all ? 1000 : 20);
    sx_ctx_fini(&pieces.cx);
}
END_TEST

/* ---- rows ---- */
/* Maximum, softmax and the logarithm of the sum; a norm of a sum that is stored too; and columns. */
static const struct {
    const char *text;
    uint32_t share;
} rows[] = {
    {"sx 1 graph \"g\" { %0 = parameter {name = \"x\", weight = 0} : f32[29, 150] "
     "%1 = fused(%0) {type = f32[29, 150], body = {args = [[150, 1]], axes = [1], code = [arg 0, "
     "reduce maximum 0]}} : f32[29] "
     "%2 = fused(%0, %1) {type = f32[29, 150], body = {args = [[150, 1], [1, 0]], axes = [1], code "
     "= [arg 0, arg 1, subtract 0 1, exponential 2, reduce add 3, divide 3 4]}} : f32[29, 150] "
     "%3 = fused(%0, %1) {type = f32[29, 150], body = {args = [[150, 1], [1, 0]], axes = [1], code "
     "= [arg 0, arg 1, subtract 0 1, exponential 2, reduce add 3, log 4, add 5 1]}} : f32[29] "
     "return %1 as \"a\", %2 as \"b\", %3 as \"c\" }",
     4},
    {"sx 1 graph \"g\" { %0 = parameter {name = \"x\", weight = 0} : f32[29, 150] %1 = parameter "
     "{name = \"y\", weight = 0} : f32[29, 150] "
     "%2 = fused(%0, %1) {type = f32[29, 150], body = {args = [[150, 1], [150, 1]], code = [arg 0, "
     "arg 1, add 0 1]}} : f32[29, 150] "
     "%3 = fused(%2) {type = bf16[29, 150], body = {args = [[150, 1]], axes = [1], code = [arg 0 : "
     "f32, multiply 0 0 : f32, reduce add 1 : f32, rsqrt 2 : f32, multiply 0 3 : f32, convert "
     "4]}} : bf16[29, 150] "
     "%4 = fused(%2) {type = f32[29, 150], body = {args = [[150, 1]], axes = [1], code = [arg 0, "
     "multiply 0 0, reduce add 1]}} : f32[29] "
     "return %2 as \"a\", %3 as \"b\", %4 as \"c\" }",
     4},
    {"sx 1 graph \"g\" { %0 = parameter {name = \"x\", weight = 0} : f32[70, 64] "
     "%1 = fused(%0) {type = f32[70, 64], body = {args = [[64, 1]], axes = [0], code = [arg 0, "
     "reduce add 0, imm 70, divide 1 2]}} : f32[64] "
     "%2 = fused(%0, %1) {type = f32[70, 64], body = {args = [[64, 1], [0, 1]], code = [arg 0, "
     "arg 1, subtract 0 1]}} : f32[70, 64] "
     "return %1 as \"a\", %2 as \"b\" }",
     1},
};

typedef struct {
    sx_ctx cx;
    sx_join join;
    sx_analysis analysis;
    sx_type input[SX_FUSED_ARGS_MAX];
    uint8_t *raw[SX_FUSED_ARGS_MAX];
    uint32_t inputs;
} row_setting;
static row_setting row;

static sx_code run_rows(sx_ctx *cx, uint64_t seed, bool lazy)
{
    launches l;
    const int64_t *grid = kernel->part[0].grid;
    uint32_t points = (uint32_t)(grid[0] * grid[1] * grid[2]);
    launch_begin(&l, module, module->kernel[0].name,
                 (sx_ptx_dim){points > 3 ? points / 2 : points, 1, 1}, (sx_ptx_dim){32, 1, 1});
    for (uint32_t k = 0; k < row.inputs; k++) {
        launch_in(&l, "argument", row.raw[k], bytes_of(&row.input[k]));
    }
    for (uint32_t k = 0; k < results; k++) {
        launch_out(&l, "result", got[k], bytes[k]);
    }
    launch_number(&l, 0); /* points: from the first on, all */
    launch_number(&l, points);
    l.launch.instructions_max = most;
    sx_code code = launch_run(cx, &l, seed, lazy);
    most = most == 0 ? 2 * l.outcome.statistics.thread_insns : most;
    return code;
}

static bool rows_killed(void *self)
{
    (void)self;
    return differs(run_rows);
}

/* One kernel for all nodes of the program that are fused. */
static void join_rows(const char *text)
{
    sx_graph *graph;
    uint32_t member[RESULTS_MAX], count = 0;
    sx_dtype dtype[RESULTS_MAX];
    bool ok;
    ck_sx_ok(&row.cx, sx_graph_parse(&row.cx, sx_span_of(text), &graph));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_FUSED) {
            ck_assert_uint_lt(count, RESULTS_MAX);
            member[count++] = n;
        }
    }
    ck_sx_ok(&row.cx, sx_fused_join_nodes(&row.cx, graph, member, count, &row.join, &ok));
    ck_assert(ok);
    sx_rng rng = {7};
    row.inputs = row.join.whole.body->arg_count;
    for (uint32_t k = 0; k < row.inputs; k++) {
        row.input[k] = graph->node[row.join.tensor[k]].type;
        row.raw[k] = sx_alloc(&row.cx, bytes_of(&row.input[k]));
        for (int64_t i = 0; i < sx_tensor_elements(&row.input[k]); i++) {
            float x = sx_rng_f32(&rng);
            memcpy(row.raw[k] + 4 * i, &x, sizeof(x));
        }
    }
    results = count;
    for (uint32_t k = 0; k < count; k++) {
        dtype[k] = row.join.member[k].type.dtype;
        bytes[k] = bytes_of(&graph->node[member[k]].type);
        got[k] = exact_buffer(&row.cx, (int64_t)bytes[k]);
    }
    ck_sx_ok(&row.cx, sx_analysis_of_results(&row.cx, &row.join.whole, row.input, row.inputs,
                                             row.join.root, dtype, count, &row.analysis));
}

#define LANES "all lanes hold what the shuffle hands on"
#define EXECUTED "what stands behind is executed before it is left out, to the same end"
#define POINTS "there are no more rows than this"
static const mutants_same same_rows[SX_COUNT(rows)][6] = {
    {{"exchange", "bra", 1, EXECUTED},
     {"immediate", "rem.u32", 1, POINTS},
     {"without", "mad.lo.s64", 2, "the statistic of a row is stored by lane 0"},
     {"immediate", "mad.lo.s64", 2, "the statistic of a row is stored by lane 0"},
     {"immediate", "shfl.sync.bfly", 8, "a maximum: these distances reach all lanes, too"},
     {"immediate", "shfl.sync.idx", 4, LANES}},
    {{"exchange", "bra", 1, EXECUTED},
     {"immediate", "rem.u32", 1, POINTS},
     {"without", "mad.lo.s64", 1, "the statistic of a row is stored by lane 0"},
     {"immediate", "mad.lo.s64", 1, "the statistic of a row is stored by lane 0"},
     {"immediate", "shfl.sync.idx", 2, LANES}},
    {{"exchange", "bra", 2, EXECUTED},
     {"immediate", "rem.u32", 1, POINTS},
     {"exchange", "st.global.b32", 1, "the load behind it is of the argument, another tensor"},
     {"without", "bra.uni", 1, "each warp has one point"}},
};

START_TEST(test_rows)
{
    const sx_target *target = &sx_target_sm_80;
    const sx_device *device;
    sx_search_result found;
    sx_kernel *made;
    sx_target_code code;
    sx_buf text;
    sx_ctx_init(&row.cx, (size_t)1 << 29);
    sx_buf_init(&text, (size_t)1 << 24);
    join_rows(rows[_i].text);
    ck_sx_ok(&row.cx, sx_device_find(&row.cx, sx_span_of("a100"), &device));
    ck_sx_ok(&row.cx, sx_search_kernel(&row.cx, &row.analysis, device, false, 1, &found));
    sx_lowering what = {.kind = SX_LOWER_FUSED,
                        .name = "rows",
                        .analysis = &row.analysis,
                        .schedule = &found.best[0].schedule};
    ck_sx_ok(&row.cx, sx_target_lower(&row.cx, target, &what, &made));
    kernel = made;
    ck_assert_uint_eq(kernel->part_count, 1);
    ck_sx_ok(&row.cx, target->emit(&row.cx, target, kernel, false, &text, &code));
    ck_sx_ok(&row.cx, sx_ptx_parse(&row.cx, sx_span_of((const char *)text.ptr), &module));
    ck_sx_ok(&row.cx, run_rows(&row.cx, 0, false));
    keep_results(&row.cx);
    mutants m = {.cx = &row.cx,
                 .module = module,
                 .is_killed = rows_killed,
                 .same = same_rows[_i],
                 .same_count = SX_COUNT(same_rows[_i]),
                 .end = module->kernel[0].insn_count - 1,
                 .share = rows[_i].share};
    mutants_run(&m);
    ck_assert_uint_gt(m.tried, m.all ? 100 : 5);
    sx_buf_fini(&text);
    sx_ctx_fini(&row.cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("result mutants");
    TCase *tcase = tcase_create("pieces");
    tcase_set_timeout(tcase, 3600); /* all of them, by hand */
    tcase_add_test(tcase, test_pieces);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("rows");
    tcase_set_timeout(tcase, 3600);
    tcase_add_loop_test(tcase, test_rows, 0, (int)SX_COUNT(rows));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
