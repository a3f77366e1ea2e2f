/* Slices of k that different blocks make, and the launch that adds them up: the bits of one block that makes them one
 * after another, among any number of rows; both kernels are proven, and the price chooses them where rows are few. */
#include "core/judge/judge.h"
#include "core/search/search.h"
#include "tests/core/nvidia/tiles.h"

#define LEAST 64 /* steps of a slice */

static const sx_block_tiles plans[] = {
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 16,
     .rows = 16,
     .columns = 16,
     .steps = 32,
     .warp_rows = 16,
     .warp_columns = 8,
     .depth = 3},
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 16,
     .rows = 32,
     .columns = 32,
     .steps = 64,
     .warp_rows = 32,
     .warp_columns = 16,
     .depth = 2},
};

/* The same by groups of warps and the copy engine. */
static const sx_block_tiles engine_plans[] = {
    {.matrix_rows = 64,
     .matrix_columns = 32,
     .matrix_steps = 16,
     .rows = 64,
     .columns = 32,
     .steps = 16,
     .warp_rows = 64,
     .warp_columns = 32,
     .depth = 3},
    {.matrix_rows = 64,
     .matrix_columns = 64,
     .matrix_steps = 16,
     .rows = 128,
     .columns = 64,
     .steps = 64,
     .warp_rows = 64,
     .warp_columns = 64,
     .depth = 2},
};

#define MATRICES 16
typedef struct {
    sx_ctx cx;
    sx_matrix_instruction matrix[MATRICES];
    sx_target target;
    sx_tile_unit unit;
    bool engine;
} setting;

static void setup(setting *s, bool engine)
{
    sx_ctx_init(&s->cx, SX_ARENA_DEFAULT);
    s->engine = engine;
    s->target = engine ? sx_target_sm_90 : sx_target_sm_80;
    ck_assert_uint_le(s->target.matrix_count, MATRICES);
    for (uint32_t i = 0; i < s->target.matrix_count; i++) {
        s->matrix[i] = s->target.matrix[i];
        s->matrix[i].slice_least = LEAST;
    }
    s->target.matrix = s->matrix;
    s->unit = tiles_unit(&s->target);
}

static sx_ptx_module *module_of(setting *s, const sx_kernel *kernel)
{
    ck_assert(kernel->part[0].tile->by_engine == s->engine);
    return tiles_module(&s->cx, kernel, s->target.machine->level);
}

static sx_schedule sliced(const sx_analysis *a, sx_block_tiles plan, int64_t slice, bool apart)
{
    sx_schedule s;
    plan.left = a->lhs;
    plan.right = a->rhs;
    plan.slice = slice;
    plan.apart = apart;
    sx_schedule_block(&plan, &s);
    return s;
}

static void prove(sx_ctx *cx, const sx_attr *fused, const sx_type *input, uint32_t count,
                  const sx_kernel *kernel, bool right)
{
    sx_judge *judge;
    sx_verdict verdict;
    const sx_judge_facts facts = {0};
    ck_sx_ok(cx, sx_judge_make(cx, &judge));
    ck_sx_ok(cx, sx_judge_kernel(judge, fused, input, count, &facts, kernel, &verdict));
    ck_assert_msg(verdict.proven == right, "%s", verdict.text);
}

/* The result by slices of different blocks: the first launch in the interpreter of PTX, the second by the loop IR. */
static uint8_t *run_apart(setting *s, const node *n, const sx_analysis *a,
                          const sx_schedule *schedule, uint64_t seed, uint64_t *numerics)
{
    sx_ctx *cx = &s->cx;
    sx_kernel *partial, *combine;
    sx_code code = sx_tile_lower_slices(cx, &s->unit, "slices", a, schedule, &partial);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    code = sx_tile_lower_combine(cx, &s->unit, "sum", a, schedule, &combine);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    sx_slices *nodes = SX_NEW(cx, sx_slices);
    sx_block_tiles tiles;
    ck_assert(nodes != NULL && sx_block_tiles_of(schedule, &tiles) && tiles.apart);
    ck_sx_ok(cx, sx_slices_make(cx, a, tiles.slice, nodes));
    prove(cx, &nodes->partial, nodes->partial_input, 2, partial, true);
    prove(cx, &nodes->combine, nodes->combine_input, n->count, combine, true);
    node sums = {.fused = nodes->partial, .count = 2, .result = nodes->partial_analysis.result};
    const uint32_t factor[2] = {a->lhs, a->rhs};
    for (uint32_t i = 0; i < 2; i++) {
        sums.input[i] = n->input[factor[i]];
        sums.raw[i] = n->raw[factor[i]];
    }
    uint8_t *between = exact_buffer(cx, bytes_of(&sums.result));
    ck_assert_int_eq(partial->buffer[2].size, bytes_of(&sums.result));
    ck_sx_ok(cx, tiles_run(cx, partial, module_of(s, partial), &sums, seed, true, between, NULL));
    void *buffer[SX_LOOP_BUFFERS_MAX];
    for (uint32_t k = 0; k < n->count; k++) {
        buffer[k] = k == a->lhs ? between : n->raw[k];
    }
    uint8_t *out = exact_buffer(cx, bytes_of(&n->result));
    buffer[n->count] = out;
    ck_sx_ok(cx, sx_kernel_eval(cx, combine, buffer));
    *numerics = combine->numerics;
    return out;
}

static uint8_t *run_in_turn(setting *s, const node *n, const sx_analysis *a,
                            const sx_schedule *schedule, uint64_t seed, uint64_t *numerics)
{
    sx_kernel *kernel;
    sx_code code = sx_tile_lower_dot(&s->cx, &s->unit, "block", a, schedule, &kernel);
    ck_assert_msg(code == SX_OK, "%s", s->cx.error.text);
    prove(&s->cx, &n->fused, n->input, n->count, kernel, true);
    uint8_t *out = exact_buffer(&s->cx, bytes_of(&n->result));
    ck_sx_ok(&s->cx, tiles_run(&s->cx, kernel, module_of(s, kernel), n, seed, true, out, NULL));
    *numerics = kernel->numerics;
    return out;
}

/* Random numbers, all layouts, batches and what may stand behind the sum. */
START_TEST(test_same_bits)
{
    static const int64_t sums[] = {256, 320, 448};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    bool engine = (_i & 4) != 0;
    for (uint32_t round = 0; round < 4; round++) {
        setting s;
        setup(&s, engine);
        tiles_case c = {.dtype = round % 2 == 0 ? SX_BF16 : SX_F16,
                        .b = 1 + (int64_t)sx_rng_below(&rng, 2),
                        .m = 2 + (int64_t)sx_rng_below(&rng, 40),
                        .n = 2 + (int64_t)sx_rng_below(&rng, 40),
                        .k = sums[sx_rng_below(&rng, SX_COUNT(sums))],
                        .left_turned = (_i & 1) != 0,
                        .right_turned = (_i & 2) != 0,
                        .after = round};
        c.m = engine && c.left_turned ? (c.m + 7) / 8 * 8 : c.m; /* rows of 16 bytes */
        c.n = engine && !c.right_turned ? (c.n + 7) / 8 * 8 : c.n;
        node n = tiles_node(&s.cx, &c);
        tiles_fill(&s.cx, &n, &rng, false);
        const sx_analysis *a = analysis_of(&s.cx, &n);
        int64_t slice = sx_matrix_slice(&s.matrix[0], c.k);
        const sx_block_tiles *plan = &(engine ? engine_plans : plans)[round / 2];
        sx_schedule apart = sliced(a, *plan, slice, true);
        sx_schedule in_turn = sliced(a, *plan, slice, false);
        uint64_t one, two;
        ck_assert(sx_slices_apart(a));
        uint8_t *want = run_in_turn(&s, &n, a, &in_turn, sx_rng_next(&rng), &one);
        uint8_t *got = run_apart(&s, &n, a, &apart, sx_rng_next(&rng), &two);
        ck_assert_uint_eq(one, two);
        ck_assert_msg(memcmp(got, want, bytes_of(&n.result)) == 0,
                      "%lld batches %lld x %lld x %lld turned %d %d after %u: other bits",
                      (long long)c.b, (long long)c.m, (long long)c.k, (long long)c.n, c.left_turned,
                      c.right_turned, c.after);
        sx_ctx_fini(&s.cx);
    }
}
END_TEST

/* A row has the same bits among any number of rows, whoever makes the slices. */
START_TEST(test_every_height)
{
    const sx_block_tiles *some = _i == 0 ? plans : engine_plans;
    static const int64_t heights[] = {256, 2, 3, 5, 8, 13, 16, 17, 32, 40, 64, 65, 128, 200, 255};
    sx_rng rng = {sx_test_seed()};
    setting s;
    setup(&s, _i != 0);
    uint8_t *all = NULL, *factor[2];
    for (uint32_t h = 0; h < SX_COUNT(heights); h++) {
        tiles_case c = {.dtype = SX_BF16, .b = 1, .m = heights[h], .k = 256, .n = 16};
        node n = tiles_node(&s.cx, &c);
        if (h == 0) {
            tiles_fill(&s.cx, &n, &rng, false);
            memcpy(factor, n.raw, sizeof(factor));
        }
        memcpy(n.raw, factor, sizeof(factor)); /* the first rows of the same */
        const sx_analysis *a = analysis_of(&s.cx, &n);
        int64_t slice = sx_matrix_slice(&s.matrix[0], c.k);
        bool apart = h == 0 || c.m <= 64 || h % 2 == 0;
        sx_schedule schedule = sliced(a, some[h % SX_COUNT(plans)], slice, apart);
        uint64_t numerics;
        uint8_t *out = (apart ? run_apart : run_in_turn)(&s, &n, a, &schedule, h, &numerics);
        all = all == NULL ? out : all;
        ck_assert_msg(memcmp(out, all, bytes_of(&n.result)) == 0, "%lld rows", (long long)c.m);
    }
    sx_ctx_fini(&s.cx);
}
END_TEST

/* A batch of single products, which the loop IR has across its lanes, and of single rows and columns. */
START_TEST(test_single_rows)
{
    static const int64_t sides[][2] = {{1, 1}, {1, 20}, {20, 1}};
    sx_rng rng = {sx_test_seed()};
    setting s;
    setup(&s, false);
    tiles_case c = {
        .dtype = SX_BF16, .b = 5, .m = sides[_i][0], .k = 256, .n = sides[_i][1], .after = 2};
    node n = tiles_node(&s.cx, &c);
    tiles_fill(&s.cx, &n, &rng, false);
    const sx_analysis *a = analysis_of(&s.cx, &n);
    int64_t slice = sx_matrix_slice(&s.matrix[0], c.k);
    sx_schedule apart = sliced(a, plans[0], slice, true);
    sx_schedule in_turn = sliced(a, plans[0], slice, false);
    uint64_t one, two;
    ck_assert(sx_slices_apart(a));
    uint8_t *want = run_in_turn(&s, &n, a, &in_turn, 1, &one);
    uint8_t *got = run_apart(&s, &n, a, &apart, 2, &two);
    ck_assert_uint_eq(one, two);
    ck_assert_mem_eq(got, want, bytes_of(&n.result));
    sx_ctx_fini(&s.cx);
}
END_TEST

/* Slices that are not those of the plan are not lowered; the judge refuses sums of slices of another length and a sum
 * that leaves one out. */
START_TEST(test_refused)
{
    setting s;
    setup(&s, false);
    tiles_case c = {.dtype = SX_BF16, .b = 1, .m = 20, .k = 512, .n = 24};
    node n = tiles_node(&s.cx, &c);
    const sx_analysis *a = analysis_of(&s.cx, &n);
    sx_kernel *partial, *combine, *other;
    int64_t slice = sx_matrix_slice(&s.matrix[0], c.k);
    ck_assert_int_eq(slice, 64);
    sx_schedule wrong = sliced(a, plans[0], 128, true);
    sx_schedule right = sliced(a, plans[0], slice, true);
    ck_sx_fails(&s.cx, sx_tile_lower_slices(&s.cx, &s.unit, "s", a, &wrong, &other),
                SX_UNIMPLEMENTED, "not those of the numerics plan");
    ck_sx_fails(&s.cx, sx_tile_lower_combine(&s.cx, &s.unit, "s", a, &wrong, &other),
                SX_UNIMPLEMENTED, "not those of the numerics plan");
    ck_sx_fails(&s.cx, sx_tile_lower_dot(&s.cx, &s.unit, "s", a, &right, &other), SX_UNIMPLEMENTED,
                "other slices");
    ck_sx_ok(&s.cx, sx_tile_lower_slices(&s.cx, &s.unit, "slices", a, &right, &partial));
    ck_sx_ok(&s.cx, sx_tile_lower_combine(&s.cx, &s.unit, "sum", a, &right, &combine));
    sx_slices *longer = SX_NEW(&s.cx, sx_slices);
    ck_assert_ptr_nonnull(longer);
    ck_sx_ok(&s.cx, sx_slices_make(&s.cx, a, 128, longer));
    prove(&s.cx, &longer->partial, longer->partial_input, 2, partial, false);
    ck_sx_ok(&s.cx, sx_slices_make(&s.cx, a, slice, longer));
    longer->combine.type.dim[0] = sx_dim_of(7);
    prove(&s.cx, &longer->combine, longer->combine_input, n.count, combine, false);
    sx_ctx_fini(&s.cx);
}
END_TEST

/* Which is chosen: by several blocks where few rows leave cores without work, by one where there are rows enough; and
 * what is chosen costs no more than without. */
START_TEST(test_choice)
{
    const sx_target *target = &sx_target_sm_90;
    static const struct {
        int64_t m, n, k;
        bool apart;
    } shapes[] = {{16, 1024, 8192, true},
                  {2, 512, 16384, true},
                  {64, 1024, 28672, true},
                  {4096, 4096, 8192, false},
                  {16, 1024, 4096, false}};
    const sx_device *device;
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of("h100"), &device));
    for (uint32_t i = 0; i < SX_COUNT(shapes); i++) {
        tiles_case c = {
            .dtype = SX_BF16, .b = 1, .m = shapes[i].m, .n = shapes[i].n, .k = shapes[i].k};
        node n = tiles_node(&cx, &c);
        const sx_analysis *a = analysis_of(&cx, &n);
        sx_matrix_instruction m[MATRICES];
        uint32_t own = 0; /* those of warps, or of groups of warps */
        sx_search_result sliced, whole;
        sx_block_tiles t;
        memcpy(m, target->matrix, target->matrix_count * sizeof(m[0]));
        while (_i != 0 && m[own].warps == 1) {
            own++;
        }
        ck_sx_ok(&cx,
                 sx_search_block(&cx, a, device, &m[own], SX_SIDES_PLAIN, SX_SEARCH_KEEP, &sliced));
        for (uint32_t k = 0; k < target->matrix_count; k++) {
            m[k].slice_least = 0;
        }
        ck_sx_ok(&cx,
                 sx_search_block(&cx, a, device, &m[own], SX_SIDES_PLAIN, SX_SEARCH_KEEP, &whole));
        ck_assert(sx_block_tiles_of(&sliced.best[0].schedule, &t));
        ck_assert_msg(t.apart == shapes[i].apart, "%lld x %lld x %lld: %.0f ns, one chain %.0f",
                      (long long)c.m, (long long)c.n, (long long)c.k, sliced.best[0].cost_ns,
                      whole.best[0].cost_ns);
        ck_assert(!t.apart || sliced.best[0].cost_ns < whole.best[0].cost_ns);
        for (uint32_t k = 0; k < sliced.best_count; k++) {
            const sx_schedule *s = &sliced.best[k].schedule;
            ck_assert_double_eq(sliced.best[k].cost_ns, sx_cost_schedule(device, a, s, false));
            ck_assert(sx_block_tiles_of(s, &t));
            double before = t.apart ? sx_cost_pack(device, a, s) : 0;
            ck_assert(!t.apart || (before > 0 && before < sliced.best[k].cost_ns));
            ck_assert_int_eq(t.slice, sx_matrix_slice(&sx_target_sm_90.matrix[0], c.k));
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slices");
    TCase *tcase = tcase_create("slices");
    tcase_add_loop_test(tcase, test_same_bits, 0, 8);
    tcase_add_loop_test(tcase, test_every_height, 0, 2);
    tcase_add_loop_test(tcase, test_single_rows, 0, 3);
    tcase_add_test(tcase, test_refused);
    tcase_add_loop_test(tcase, test_choice, 0, 2);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
