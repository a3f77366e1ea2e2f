/* Schedules as values: text that reads back, what is refused and how it is named. */
#include "tests/core/loop/nodes.h"
#include "tests/lib/unit.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static void check_text(const sx_schedule *s, const char *want)
{
    sx_buf text;
    sx_buf_init(&text, SX_SCHEDULE_TEXT_MAX);
    sx_schedule_print(s, &text);
    ck_sx_ok(&cx, sx_buf_check(&cx, &text, "schedule"));
    sx_schedule back;
    ck_sx_ok(&cx, sx_schedule_parse(&cx, sx_buf_span(&text), &back));
    ck_assert(sx_schedule_equal(s, &back));
    ck_assert_uint_eq(sx_schedule_hash(s), sx_schedule_hash(&back));
    if (want != NULL) {
        ck_assert_msg(sx_span_is(sx_buf_span(&text), want), "%.*s", (int)text.len,
                      (const char *)text.ptr);
    }
    sx_buf_fini(&text);
}

START_TEST(test_skeletons)
{
    sx_schedule s;
    sx_schedule_contraction(&(sx_contraction_tiles){.lanes = 16,
                                                    .block_rows = 14,
                                                    .block_vectors = 2,
                                                    .tile_rows = 112,
                                                    .tile_columns = 256,
                                                    .unroll = 4,
                                                    .panels = 1},
                            &s);
    check_text(&s, "grid(b, m/112, n/256) loop(n/32, m/14, k/4) register(k, m, n/16) lane(n) "
                   "stage(arg1: memory)");
    ck_assert_uint_eq(sx_schedule_lanes(&s), 16);
    ck_assert_int_eq(sx_schedule_step(&s, SX_ROLE_ROW, SX_BIND_GRID, 0), 112);
    ck_assert_int_eq(sx_schedule_step(&s, SX_ROLE_ROW, SX_BIND_LOOP, 0), 14);
    ck_assert_int_eq(sx_schedule_step(&s, SX_ROLE_ROW, SX_BIND_LOOP, 1), 0);
    ck_assert_ptr_nonnull(sx_schedule_stage(&s, 1));
    ck_assert_ptr_null(sx_schedule_stage(&s, 0));
    sx_schedule_online(&(sx_online_tiles){.lanes = 8, .strip = 6, .vectors = 2, .keys = 72}, &s);
    check_text(&s, "grid(b, m/16) loop(k/72, k/6, n/6, d) register(k, n, m/8) lane(m)");
    ck_assert_uint_eq(sx_schedule_lanes(&s), 8);
    ck_assert_int_eq(sx_schedule_step(&s, SX_ROLE_SUM, SX_BIND_LOOP, 1), 6);
    sx_schedule_map(8, 3, 4096, 2, &s);
    check_text(&s, "grid(m/3, n/4096) loop(m, n/16) register(n/8) lane(n)");
    ck_assert_uint_eq(sx_schedule_width(&s), 1);
    sx_schedule_map_wide(32, 4, 3, 4096, 2, &s);
    check_text(&s, "grid(m/3, n/4096) loop(m, n/256) register(n/128) lane(n/4) register(n)");
    ck_assert_uint_eq(sx_schedule_lanes(&s), 32);
    ck_assert_uint_eq(sx_schedule_width(&s), 4);
    sx_schedule_row_wide(5, 8, &s);
    check_text(&s, "grid(m/5) loop(m, k/512) register(k/64) lane(k/2) register(k)");
    ck_assert_uint_eq(sx_schedule_lanes(&s), 32);
    sx_schedule_row(16, 4, true, 5, 1, &s);
    check_text(&s, "grid(m/5) loop(m, k/64) register(k/16) lane(k)");
    sx_schedule_row(8, 4, false, 5, 100, &s);
    check_text(&s, "grid(m/5, n/100) loop(m, n/8, k) register(n/8) lane(n)");
    sx_schedule_row_line(16, &s);
    check_text(&s, "grid(m/5, n/100) loop(m, n/8, k/16) register(k, n/8) lane(n)");
}
END_TEST

static const sx_block_tiles blocks[] = {
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 16,
     .rows = 128,
     .columns = 128,
     .steps = 32,
     .warp_rows = 64,
     .warp_columns = 32,
     .depth = 3,
     .left = 1,
     .right = 0},
    {.rows = 128,
     .columns = 64,
     .steps = 16,
     .warp_rows = 32,
     .warp_columns = 64,
     .thread_rows = 8,
     .thread_columns = 8,
     .depth = 4,
     .left = 2,
     .right = 2},
    {.matrix_rows = 16,
     .matrix_columns = 8,
     .matrix_steps = 16,
     .rows = 16,
     .columns = 64,
     .steps = 64,
     .slice = 2048,
     .warp_rows = 16,
     .warp_columns = 64,
     .depth = 8,
     .left = 0,
     .right = 1},
    {.matrix_rows = 64,
     .matrix_columns = 256,
     .matrix_steps = 16,
     .rows = 128,
     .columns = 256,
     .steps = 64,
     .warp_rows = 64,
     .warp_columns = 256,
     .depth = 4,
     .left = 0,
     .right = 1,
     .stores = 2,
     .raster = 8},
    {.matrix_rows = 64,
     .matrix_columns = 128,
     .matrix_steps = 16,
     .rows = 128,
     .columns = 128,
     .steps = 64,
     .warp_rows = 64,
     .warp_columns = 128,
     .depth = 4,
     .left = 0,
     .right = 1,
     .walkers = 264},
};

/* Number by number: what lies between the members has no value. */
static void check_tiles(const sx_block_tiles *a, const sx_block_tiles *b)
{
    ck_assert_uint_eq(a->matrix_rows, b->matrix_rows);
    ck_assert_uint_eq(a->matrix_columns, b->matrix_columns);
    ck_assert_uint_eq(a->matrix_steps, b->matrix_steps);
    ck_assert_int_eq(a->rows, b->rows);
    ck_assert_int_eq(a->columns, b->columns);
    ck_assert_int_eq(a->steps, b->steps);
    ck_assert_int_eq(a->slice, b->slice);
    ck_assert_int_eq(a->apart, b->apart);
    ck_assert_int_eq(a->warp_rows, b->warp_rows);
    ck_assert_int_eq(a->warp_columns, b->warp_columns);
    ck_assert_uint_eq(a->thread_rows, b->thread_rows);
    ck_assert_uint_eq(a->thread_columns, b->thread_columns);
    ck_assert_uint_eq(a->depth, b->depth);
    ck_assert_uint_eq(a->left, b->left);
    ck_assert_uint_eq(a->right, b->right);
    ck_assert_uint_eq(a->stores, b->stores);
    ck_assert_uint_eq(a->raster, b->raster);
    ck_assert_uint_eq(a->walkers, b->walkers);
}

/* Blocks of a GPU: the numbers come back from the schedule, and other schedules have none. */
START_TEST(test_blocks)
{
    static const char *const text[] = {
        "grid(b, m/128, n/128) loop(k/32) warp(m/64, n/32) matrix(m/16, n/8, k/16) "
        "stage(arg1: shared x3, arg0: shared x3)",
        "grid(b, m/128, n/64) loop(k/16) warp(m/32, n/64) lane(m/8, n/8) register(m, n, k) "
        "stage(arg2: shared x4)",
        "grid(b, m/16, n/64) loop(k/2048, k/64) warp(m/16, n/64) matrix(m/16, n/8, k/16) "
        "stage(arg0: shared x8, arg1: shared x8)",
        "grid(b, m/1024, n/256, m/128) loop(k/64) warp(m/64, n/256) matrix(m/64, n/256, k/16) "
        "stage(arg0: shared x4, arg1: shared x4, result: shared x2)",
        "grid(b, m/128, n/128) loop(k/64) warp(m/64, n/128) matrix(m/64, n/128, k/16) "
        "stage(arg0: shared x4, arg1: shared x4) blocks(264)"};
    sx_schedule s;
    sx_block_tiles back;
    for (uint32_t i = 0; i < SX_COUNT(blocks); i++) {
        sx_schedule_block(&blocks[i], &s);
        check_text(&s, text[i]);
        ck_assert(sx_block_tiles_of(&s, &back));
        check_tiles(&back, &blocks[i]);
        s.level[3].bind = SX_BIND_REGISTER;
        ck_assert(!sx_block_tiles_of(&s, &back));
    }
    static const char *const others[] = {
        "grid(b, m/112, n/256) loop(n/32, m/14, k/4) register(k, m, n/16) lane(n)",
        "grid(m/128) matrix(m/16) stage(arg0: shared)",
        "grid(b, m/128, n/128) loop(k/32) warp(m/64, n/32) matrix(m/16, n/8, k/16) "
        "stage(arg1: shared x3, arg0: memory x3)",
        "grid(b, m/128, n/128) loop(k/32) warp(m/64, n/32) matrix(m/16, n/8, k/16) "
        "stage(arg1: shared x3, arg0: shared x2)",
        "grid(b, m/128, n/128) loop(k/32) warp(m/64, n/32) matrix(m/16, n/8, k/16) "
        "stage(result: shared x2)",
        "grid(b, m/128, n/128) loop(k/32) warp(m/64, n/32) matrix(m/16, n/8, k/16) "
        "stage(arg1: shared x3, result: memory, arg0: shared x3)",
        ""};
    for (uint32_t i = 0; i < SX_COUNT(others); i++) {
        ck_sx_ok(&cx, sx_schedule_parse(&cx, sx_span_of(others[i]), &s));
        ck_assert_msg(!sx_block_tiles_of(&s, &back), "%s", others[i]);
    }
}
END_TEST

/* Every schedule that passes the check prints text that reads back to it, and another one has another hash. */
START_TEST(test_random)
{
    sx_rng rng = {sx_test_seed()};
    sx_schedule last = {.level_count = 0};
    uint64_t last_hash = sx_schedule_hash(&last);
    uint32_t passed = 0;
    for (uint32_t round = 0; round < 5000; round++) {
        sx_schedule s = {.level_count = (uint32_t)sx_rng_below(&rng, 10)};
        int64_t step[SX_ROLE_COUNT] = {1024, 1024, 1024, 1024, 1024};
        for (uint32_t i = 0; i < s.level_count; i++) {
            sx_role axis = (sx_role)sx_rng_below(&rng, SX_ROLE_COUNT);
            step[axis] = sx_rng_below(&rng, 3) == 0 ? 1 : 1 + step[axis] / 2;
            s.level[i] = (sx_level){axis, (sx_bind)sx_rng_below(&rng, SX_BIND_COUNT), step[axis]};
        }
        s.stage_count = (uint32_t)sx_rng_below(&rng, 3);
        for (uint32_t i = 0; i < s.stage_count; i++) {
            s.stage[i] = (sx_stage_place){i, (sx_space)sx_rng_below(&rng, SX_SPACE_COUNT),
                                          1 + (uint32_t)sx_rng_below(&rng, 4)};
        }
        if (sx_schedule_check(&cx, &s, NULL) != SX_OK) {
            sx_ctx_reset_error(&cx);
            continue;
        }
        passed++;
        check_text(&s, NULL);
        ck_assert(sx_schedule_equal(&s, &last) == (sx_schedule_hash(&s) == last_hash));
        last = s;
        last_hash = sx_schedule_hash(&s);
    }
    ck_assert_uint_gt(passed, 100);
}
END_TEST

static const struct {
    const char *text, *error;
} bad[] = {
    {"grid(m/8) loop(m/16, m)", "m/16 stands inside m/8"},
    {"grid(m/8)", "nothing walks the pieces m/8"},
    {"grid(m/64) matrix(m/16) loop(m/8, m)", "m/8 stands inside m/1"},
    {"grid(m/0)", "a step is 1 to"},
    {"grid(m/99999999999999999999)", "a number beyond"},
    {"grid(q)", "column 6: expected an axis"},
    {"grid(m/)", "column 8: expected a number"},
    {"grid m", "column 6: expected '('"},
    {"grid(m", "column 7: expected ')'"},
    {"block(m)", "column 1: expected grid, cluster"},
    {"grid(m) stage(arg1: disk)", "column 21: expected memory or shared"},
    {"stage(arg1: memory, arg1: shared)", "stages 0 and 1 are of the same tensor"},
    {"stage(arg1: memory x0)", "stage 0 is 0 deep"},
    {"stage(arg99: memory)", "argument 99"},
    {"stage(1: memory)", "column 7: expected arg"},
    {"grid(m) blocks(0)", "column 17: 0 blocks, once 1 to 65535 allowed"},
    {"grid(m) blocks(65536)", "65536 blocks"},
    {"grid(m) blocks(2) blocks(2)", "2 blocks, once"},
    {"grid(m) blocks(n)", "expected a number"},
};

START_TEST(test_bad_text)
{
    sx_schedule s;
    ck_sx_fails(&cx, sx_schedule_parse(&cx, sx_span_of(bad[_i].text), &s), SX_INPUT, bad[_i].error);
}
END_TEST

static node matmul(int64_t m, int64_t k, int64_t n)
{
    sx_type x[2] = {TYPE(SX_F32, m, k), TYPE(SX_F32, k, n)};
    sx_attr attr = {.present =
                        SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract),
                    .lhs_contract = {1, {1}},
                    .rhs_contract = {1, {0}}};
    return lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

/* A schedule that is one, but not of this kernel, or not of a form that is lowered. */
START_TEST(test_misfits)
{
    static const struct {
        const char *text, *error;
        sx_code code;
    } misfit[] = {
        {"grid(m) lane(k)", "nothing walks axis n of 20 elements", SX_INPUT},
        {"grid(m, n, d) lane(k)", "the kernel has no axis d", SX_INPUT},
        {"grid(m, n) loop(k) stage(arg7: memory)", "stages argument 7 of a kernel with 2",
         SX_INPUT},
        {"grid(m, n/16) loop(k) lane(n)", "of the form grid(m, n) loop(k) lane(n), only grid(b",
         SX_UNIMPLEMENTED},
        {"warp(m, n/16) loop(k) lane(n)", "of the form warp(m, n)", SX_UNIMPLEMENTED},
    };
    node n = matmul(8, 30, 20);
    const sx_analysis *a = analysis_of(&cx, &n);
    for (uint32_t i = 0; i < SX_COUNT(misfit); i++) {
        sx_schedule s;
        sx_kernel *kernel;
        ck_sx_ok(&cx, sx_schedule_parse(&cx, sx_span_of(misfit[i].text), &s));
        ck_sx_fails(&cx, sx_lower_fused(&cx, sx_test_unit(&s), "dot_7", a, &s, &kernel),
                    misfit[i].code, misfit[i].error);
        sx_ctx_reset_error(&cx);
    }
}
END_TEST

/* The numbers that belong to the numerics plan are no choice. */
START_TEST(test_numerics_is_no_choice)
{
    sx_type x = TYPE(SX_F32, 4, 200);
    sx_attr attr = {.present = SX_A(axis), .axis = 1};
    node n = lift(&cx, SX_OP_SOFTMAX, &attr, &x, 1);
    sx_schedule s;
    sx_kernel *kernel;
    const char *text = "grid(m) loop(m, k/32) register(k/8) lane(k)";
    ck_sx_ok(&cx, sx_schedule_parse(&cx, sx_span_of(text), &s));
    ck_sx_fails(&cx,
                sx_lower_fused(&cx, sx_test_unit(&s), "row_1", analysis_of(&cx, &n), &s, &kernel),
                SX_INPUT, "loop(k/32): the numerics plan has k/64");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernel.schedule");
    TCase *cases = tcase_create("schedule");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_skeletons);
    tcase_add_test(cases, test_blocks);
    tcase_add_test(cases, test_random);
    tcase_add_loop_test(cases, test_bad_text, 0, (int)SX_COUNT(bad));
    tcase_add_test(cases, test_misfits);
    tcase_add_test(cases, test_numerics_is_no_choice);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
