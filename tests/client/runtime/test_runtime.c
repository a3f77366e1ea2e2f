#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "client/runtime/cpu.h"
#include "client/runtime/pages.h"
#include "client/runtime/pool.h"
#include "client/runtime/runtime.h"
#include "core/ir/ir.h"
#include "tests/lib/gen_module.h"

typedef struct {
    uint8_t *hit;
    uint32_t threads;
} cover;

static void mark(void *self, uint32_t thread, int64_t first, int64_t last)
{
    cover *c = self;
    ck_assert_uint_lt(thread, c->threads);
    for (int64_t i = first; i < last; i++) {
        c->hit[i]++;
    }
}

START_TEST(test_pool_covers_every_point_once)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    static uint8_t hit[3000];
    for (uint32_t threads = 1; threads <= 5; threads++) {
        sxr_pool *pool;
        ck_sx_ok(&cx, sxr_pool_new(&cx, threads, &pool));
        for (int64_t points = 0; points < 300; points += 1 + points / 20) {
            memset(hit, 0, sizeof(hit));
            cover c = {hit, threads};
            sxr_pool_run(pool, mark, &c, points);
            for (int64_t i = 0; i < 3000; i++) {
                ck_assert_uint_eq(hit[i], i < points ? 1 : 0);
            }
        }
        sxr_pool_free(pool);
    }
    sxr_pool *none;
    ck_sx_fails(&cx, sxr_pool_new(&cx, 0, &none), SX_LIMIT, "0 threads");
    sx_ctx_fini(&cx);
}
END_TEST

typedef struct {
    cover cover;
    int64_t points;
    uint64_t whole_ns, chunk_ns; /* how long a call takes, by the clock */
    _Atomic uint32_t calls;
} slow;

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void mark_slowly(void *self, uint32_t thread, int64_t first, int64_t last)
{
    slow *s = self;
    uint64_t until = now_ns() + (last - first == s->points ? s->whole_ns : s->chunk_ns);
    s->calls++;
    mark(&s->cover, thread, first, last);
    while (now_ns() < until) {
    }
}

/* A launch whose chunks take longer than the whole is run by the caller alone, once that is known; one that all
 * threads need long for never is. Every time each point is run once. */
START_TEST(test_short_launches_run_alone)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    static const struct {
        int64_t points;
        uint64_t whole_ns, chunk_ns;
        bool alone;
    } row[] = {{64, 0, 2000, true}, {2, 2000000, 1000000, false}, {64, 1600000, 20000, false}};
    for (uint32_t r = 0; r < sizeof(row) / sizeof(row[0]); r++) {
        sxr_pool *pool;
        ck_sx_ok(&cx, sxr_pool_new(&cx, 3, &pool));
        sxr_pool_habit habit = {0};
        uint32_t calls = 0;
        for (uint32_t round = 0; round < 20; round++) {
            uint8_t hit[64] = {0};
            slow s = {{hit, 3}, row[r].points, row[r].whole_ns, row[r].chunk_ns, 0};
            sxr_pool_repeat(pool, &habit, mark_slowly, &s, row[r].points);
            for (int64_t i = 0; i < 64; i++) {
                ck_assert_uint_eq(hit[i], i < row[r].points ? 1 : 0);
            }
            calls = s.calls;
        }
        ck_assert_msg((calls == 1) == row[r].alone, "row %u: %u calls in the last round", r, calls);
        sxr_pool_free(pool);
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_run_touches_every_grid_point)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module(&cx, &bytes);
    sxr_options options = {.threads = 3};
    sxr_program *program;
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), &options, &program));
    float x[4] = {0}, y[SX_GEN_POINTS] = {0};
    ck_sx_fails(&cx, sxr_run(&cx, program, NULL), SX_INPUT, "tensor x is not bound");
    uint32_t input = sxr_find(program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("x"));
    uint32_t output = sxr_find(program, SX_TENSOR_OUTPUT, SX_SPAN_LITERAL("y"));
    ck_sx_fails(&cx, sxr_bind(&cx, program, input, x, 15), SX_INPUT, "15 bytes given, it has 16");
    ck_sx_ok(&cx, sxr_bind(&cx, program, input, x, sizeof(x)));
    ck_sx_ok(&cx, sxr_bind(&cx, program, output, y, sizeof(y)));
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT | 0x8040); /* flush to zero: the runtime must give it back */
    for (uint32_t round = 1; round <= 3; round++) {
        ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
        for (uint32_t i = 0; i < SX_GEN_POINTS; i++) {
            ck_assert_uint_eq((uint32_t)y[i], round);
        }
    }
    ck_assert_uint_eq(sxr_mxcsr_get() & 0x8040u, 0x8040u);
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT);
    sxr_close(program);
    ck_sx_fails(&cx, sxr_open_bytes(&cx, SX_SPAN_LITERAL("garbage"), NULL, &program), SX_CORRUPT,
                "not a module");
    ck_sx_fails(&cx, sxr_open_file(&cx, "/nonexistent.sxm", NULL, &program), SX_INPUT,
                "nonexistent");
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* Checksums are right, but the code holds what no kernel of ours does: it must not be mapped executable. */
START_TEST(test_foreign_code_is_refused)
{
    static const uint8_t foreign[][4] = {{0x0f, 0x05, 0xc3, 0xc3} /* syscall */,
                                         {0xff, 0xe0, 0xc3, 0xc3} /* jmp *rax */,
                                         {0xcd, 0x80, 0xc3, 0xc3} /* int 0x80 */,
                                         {0xeb, 0x7f, 0xc3, 0xc3} /* jump off the blob */};
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_gen_module_tables tables;
    sx_gen_module_make(&tables);
    memcpy(tables.code, foreign[_i], sizeof(foreign[_i]));
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module_encode(&cx, &tables, &bytes);
    sxr_program *program;
    sx_code code = sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &program);
    ck_assert_msg(code == SX_CORRUPT, "case %d: %s", _i, cx.error.text);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- everything that the format can say, on the rich module of gen_module.h ---- */

typedef struct {
    sx_ctx cx;
    sx_gen_module_tables tables;
    sxr_program *program;
    float x[64], y[64], d[4];
} rich;

static sx_code open_tables(rich *r)
{
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module_encode(&r->cx, &r->tables, &bytes);
    sxr_options options = {.threads = 2};
    sx_code code = sxr_open_bytes(&r->cx, sx_buf_span(&bytes), &options, &r->program);
    sx_buf_fini(&bytes);
    return code;
}

static void begin(rich *r)
{
    sx_ctx_init(&r->cx, 1 << 24);
    sx_gen_module_make_rich(&r->tables);
    for (uint32_t i = 0; i < 64; i++) {
        r->x[i] = (float)i;
        r->y[i] = -1;
    }
    memset(r->d, 0, sizeof(r->d));
}

static void end(rich *r)
{
    sxr_close(r->program);
    sx_ctx_fini(&r->cx);
}

/* Gives n a value and binds what follows it. */
static void choose(rich *r, int64_t n)
{
    ck_sx_ok(&r->cx, sxr_set_extent(&r->cx, r->program, SX_SPAN_LITERAL("n"), n));
    ck_sx_ok(&r->cx, sxr_bind(&r->cx, r->program, SX_GEN_X, r->x, 4 * (uint64_t)n));
    ck_sx_ok(&r->cx, sxr_bind(&r->cx, r->program, SX_GEN_Y, r->y, 4 * (uint64_t)n));
}

static float state_of(rich *r)
{
    float value = -1;
    ck_sx_ok(&r->cx, sxr_state_read(&r->cx, r->program, SX_GEN_S, &value, 4));
    return value;
}

static void expect_y(const rich *r, uint32_t n, float first, float step)
{
    for (uint32_t i = 0; i < 64; i++) {
        float want = i < n ? first + step * (float)i : -1.0F;
        ck_assert_msg(r->y[i] == want, "y[%u] = %g, not %g", i, (double)r->y[i], (double)want);
    }
}

START_TEST(test_variants_run_by_their_guards)
{
    rich r;
    begin(&r);
    ck_sx_ok(&r.cx, open_tables(&r));
    ck_assert_uint_eq(sxr_variant(r.program), SX_MODULE_NONE);
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_D, r.d, sizeof(r.d)));
    ck_sx_fails(&r.cx, sxr_run(&r.cx, r.program, NULL), SX_INPUT,
                "extent n has no value; the module serves 1 to 8, 16 to 64 step 16");
    ck_sx_fails(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_X, r.x, 256), SX_INPUT, "has no value");
    choose(&r, 48); /* a multiple of 4: variant 0 */
    ck_assert_uint_eq(sxr_variant(r.program), 0);
    ck_assert_uint_eq(sxr_size(r.program, SX_GEN_Y), 192);
    ck_assert_int_eq(sxr_shape(r.program, SX_GEN_Y)[0], 48);
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    expect_y(&r, 48, 4,
             0); /* filled with 1, copied, and three times w added: n points of the grid */
    memset(r.y, 0, sizeof(r.y));
    for (uint32_t i = 0; i < 64; i++) {
        r.y[i] = -1;
    }
    choose(&r, 7); /* variant 1 */
    ck_assert_uint_eq(sxr_variant(r.program), 1);
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    expect_y(&r, 7, 0, 1); /* a copy of x, of its 7 elements alone */
    choose(&r, 8);
    ck_assert_uint_eq(sxr_variant(r.program), 0); /* both serve: the first */
    ck_sx_fails(&r.cx, sxr_set_extent(&r.cx, r.program, SX_SPAN_LITERAL("n"), 9), SX_INPUT,
                "extent n has 9; the module serves 1 to 8");
    ck_sx_fails(&r.cx, sxr_set_extent(&r.cx, r.program, SX_SPAN_LITERAL("m"), 9), SX_INPUT,
                "no symbol of that name");
    ck_assert_int_eq(sxr_extent(r.program, 0), 8);
    ck_sx_ok(&r.cx, sxr_set_extent(&r.cx, r.program, SX_SPAN_LITERAL("n"), 4));
    ck_sx_fails(&r.cx, sxr_run(&r.cx, r.program, NULL), SX_INPUT, "tensor x is not bound");
    ck_sx_fails(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_X, r.x, 32), SX_INPUT,
                "32 bytes given, it has 16");
    end(&r);
}
END_TEST

/* Cases in place of the extents of a part: the first one that holds gives the grid; where none does, there are no
 * points. */
START_TEST(test_cases_give_grids)
{
    static const int64_t value[] = {4, 8, 16, 32, 48, 64};
    static const uint32_t points[] = {4, 8, 2, 64, 0, 64};
    rich r;
    begin(&r);
    r.tables.extents = 2;
    const sx_module_case cases[] = {{0, 0, 0, 3, 0, SX_MODULE_NONE, 0, 2, 8, 2, 0},
                                    {0, 0, 0, 3, 0, SX_MODULE_NONE, 3, 16, 16, 3, 1},
                                    {0, 0, 0, 3, 0, SX_MODULE_NONE, 6, 32, 64, 32, 0},
                                    {0, 0, 0, 3, 0, SX_MODULE_NONE, 9, 1, 32, 1, 0}};
    const sx_module_number number[] = {{0, 2},  {0, 2},  {2, 0},    {0, 3}, {0, 3}, {3, -42},
                                       {0, 32}, {0, 32}, {0, 2048}, {0, 1}, {0, 1}, {0, 5}};
    memcpy(r.tables.cases, cases, sizeof(cases));
    memcpy(r.tables.number, number, sizeof(number));
    r.tables.case_count = SX_COUNT(cases);
    r.tables.numbers = SX_COUNT(number);
    ck_sx_ok(&r.cx, open_tables(&r));
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_D, r.d, sizeof(r.d)));
    for (uint32_t k = 0; k < SX_COUNT(value); k++) {
        uint32_t numbers = 1;
        choose(&r, value[k]);
        (void)sxr_part_numbers(r.program, 0, &numbers);
        ck_assert_uint_eq(numbers, 0); /* behind the grid */
        ck_assert_int_eq(sxr_part(r.program, 0)->grid[2], points[k]);
        ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
        for (uint32_t i = 0; i < (uint32_t)value[k]; i++) {
            ck_assert_msg(r.y[i] == (i < points[k] ? 4.0F : 1.0F), "n %d: y[%u] = %g",
                          (int)value[k], i, (double)r.y[i]);
        }
    }
    end(&r);
}
END_TEST

/* ---- a branch and a while, on the choices of gen_module.h ---- */

static void open_choices(rich *r, uint8_t *p)
{
    ck_sx_ok(&r->cx, open_tables(r));
    ck_sx_ok(&r->cx, sxr_bind(&r->cx, r->program, SX_GEN_CHOICE_P, p, 1));
    ck_sx_ok(&r->cx, sxr_bind(&r->cx, r->program, SX_GEN_CHOICE_Y, r->y, 16));
}

/* Which launches run, one after the other, as the numbers of the launches and `?` where one is asked. */
static const char *way_of(rich *r, bool truth, uint32_t asks, char text[64])
{
    sxr_walk walk = {0};
    sxr_walk_event event;
    uint32_t i, used = 0;
    while ((event = sxr_walk_next(r->program, 0, &walk, &i)) != SXR_WALK_END && used < 60) {
        text[used++] = (char)('0' + i);
        if (event == SXR_WALK_ASK) {
            text[used++] = '?';
            ck_sx_ok(&r->cx, sxr_walk_answer(&r->cx, r->program, &walk, truth && asks > 0));
            asks -= asks > 0 ? 1 : 0;
        } else {
            ck_assert_int_eq(event, SXR_WALK_LAUNCH);
            ck_assert_int_eq(sxr_walk_is_last(r->program, &walk), i < 7);
        }
    }
    text[used] = 0;
    return text;
}

START_TEST(test_branch_and_while)
{
    rich r;
    char text[64];
    uint8_t p = 1;
    begin(&r);
    sx_gen_module_make_choices(&r.tables);
    open_choices(&r, &p);
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    expect_y(&r, 4, 5, 0);
    p = 0;
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    expect_y(&r, 4, 4, 0);
    ck_assert_str_eq(way_of(&r, false, 0, text), "01?34576?");
    ck_assert_str_eq(way_of(&r, true, 1, text), "01?2576?");
    ck_assert_str_eq(way_of(&r, true, 4, text), "01?2576?8976?8976?8976?");
    end(&r);
    /* as many rounds as it may have, and one more */
    begin(&r);
    sx_gen_module_make_choices(&r.tables);
    r.tables.launch[9].value = 1;
    p = 1;
    open_choices(&r, &p);
    ck_sx_fails(&r.cx, sxr_run(&r.cx, r.program, NULL), SX_LIMIT,
                "while: the condition is true after 3 rounds (launch 6 of the module)");
    p = 0;
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    expect_y(&r, 4, 4, 0);
    end(&r);
}
END_TEST

static int count_questions(void *self)
{
    uint32_t *left = self;
    *left -= *left > 0 ? 1 : 0;
    return *left == 0;
}

/* A while that goes on for ever, and a caller that gives up when it is asked for the third time. */
START_TEST(test_run_is_given_up)
{
    rich r;
    uint8_t p = 1;
    uint32_t left = 3;
    begin(&r);
    sx_gen_module_make_choices(&r.tables);
    r.tables.launch[9].value = 1;
    r.tables.launch[6].value = INT64_C(1) << 31;
    open_choices(&r, &p);
    sxr_watch(r.program, count_questions, &left);
    ck_sx_fails(&r.cx, sxr_run(&r.cx, r.program, NULL), SX_CANCELLED,
                "the run was given up by the caller");
    ck_assert_uint_eq(left, 0);
    p = 0; /* a short run is not asked */
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    expect_y(&r, 4, 4, 0);
    end(&r);
}
END_TEST

/* Ranges without launches: nothing is done in one way, a condition that nothing computes, no step. */
START_TEST(test_empty_ranges)
{
    static const struct {
        uint32_t branch_first, while_first;
        float yes, no;
    } row[] = {{0, 1, 4, 5}, {3, 1, 7, 2}, {1, 0, 4, 3}, {1, 3, 4, 5}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        rich r;
        uint8_t p = 1;
        begin(&r);
        sx_gen_module_make_choices(&r.tables);
        r.tables.launch[1].first = row[i].branch_first;
        r.tables.launch[6].first = row[i].while_first;
        open_choices(&r, &p);
        ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
        expect_y(&r, 4, row[i].yes, 0);
        p = 0;
        ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
        expect_y(&r, 4, row[i].no, 0);
        end(&r);
    }
}
END_TEST

START_TEST(test_state_persists_and_can_be_set)
{
    rich r;
    begin(&r);
    ck_sx_ok(&r.cx, open_tables(&r));
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_D, r.d, sizeof(r.d)));
    ck_assert(state_of(&r) == 5.0F);
    choose(&r, 16);
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    ck_assert(state_of(&r) == 11.0F); /* two rounds in each of three */
    choose(&r, 3);
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    ck_assert(state_of(&r) == 15.0F); /* all variants share it; the prologue gave 2 */
    float value = 100;
    ck_sx_ok(&r.cx, sxr_state_write(&r.cx, r.program, SX_GEN_S, &value, 4));
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    ck_assert(state_of(&r) == 102.0F);
    sxr_state_reset(r.program);
    ck_assert(state_of(&r) == 5.0F);
    ck_sx_fails(&r.cx, sxr_state_read(&r.cx, r.program, SX_GEN_X, &value, 4), SX_USAGE,
                "tensor x: it is not state");
    ck_sx_fails(&r.cx, sxr_state_read(&r.cx, r.program, SX_GEN_S, NULL, 4), SX_USAGE,
                "tensor s: no memory is given");
    ck_sx_fails(&r.cx, sxr_state_write(&r.cx, r.program, SX_GEN_S, &value, 3), SX_INPUT,
                "state s: 3 bytes given, it has 4");
    ck_sx_fails(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_S, &value, 4), SX_INPUT, "is internal");
    end(&r);
    begin(&r); /* without a first value it is zeros */
    r.tables.tensor[SX_GEN_S].initial = UINT64_MAX;
    ck_sx_ok(&r.cx, open_tables(&r));
    ck_assert(state_of(&r) == 0.0F);
    end(&r);
}
END_TEST

/* What two variants share is made by the one that runs first, and anew when a weight is bound. */
START_TEST(test_shared_results_are_made_once)
{
    rich r;
    sx_ctx_init(&r.cx, 1 << 24);
    sx_gen_module_make_shared(&r.tables);
    ck_sx_ok(&r.cx, open_tables(&r));
    float x[2] = {0}, weight = 1;
    for (uint32_t round = 1; round <= 4; round++) { /* each run of the launch q += w shows in q */
        int64_t n = 1 + round % 2;
        uint64_t ns[4] = {7, 7, 7, 7};
        float y[2] = {0, 0};
        ck_sx_ok(&r.cx, sxr_set_extent(&r.cx, r.program, SX_SPAN_LITERAL("n"), n));
        ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_SHARED_X, x, 4 * (uint64_t)n));
        ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_SHARED_Y, y, 4 * (uint64_t)n));
        if (round == 3) {
            ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_SHARED_W, &weight, 4));
        }
        ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, ns));
        ck_assert_uint_eq(sxr_variant(r.program), (uint32_t)n - 1);
        ck_assert_msg(y[n - 1] == (round < 3 ? 1.0F : 2.0F), "round %u: %g", round,
                      (double)y[n - 1]);
        ck_assert((ns[2 * (n - 1)] > 0) == (round % 2 == 1)); /* was the prologue's launch run? */
    }
    end(&r);
}
END_TEST

START_TEST(test_output_in_place_of_an_input)
{
    rich r;
    begin(&r);
    ck_sx_ok(&r.cx, open_tables(&r));
    choose(&r, 4);
    float other[4] = {0};
    ck_assert_uint_eq(sxr_alias(r.program, SX_GEN_Z), SX_GEN_D);
    ck_assert_uint_eq(sxr_alias(r.program, SX_GEN_Y), SX_MODULE_NONE);
    ck_sx_fails(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_Z, other, sizeof(other)), SX_INPUT,
                "output z lies in the memory of input d: bind that");
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_D, r.d, sizeof(r.d)));
    ck_assert_ptr_eq(sxr_memory(r.program, SX_GEN_Z), r.d);
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_Z, r.d, sizeof(r.d)));
    for (uint32_t run = 1; run <= 3; run++) {
        ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
        ck_assert(r.d[0] == (float)run && r.d[3] == (float)run);
    }
    end(&r);
}
END_TEST

/* The counter of a loop, a loop that follows a symbol, a fill of each width, and the times of launches. */
START_TEST(test_loops_count_and_follow_symbols)
{
    rich r;
    begin(&r);
    sx_gen_module_tables *t = &r.tables;
    t->launch[2].value = 16; /* the outer loop goes n / 4 times, rounded up: 16 at most */
    t->extent[3] = (sx_module_extent){SX_EXTENT_LOOP, 2, 0, 0, 1, 4, SX_MODULE_NONE};
    t->extents = 4;
    ck_sx_ok(&r.cx, open_tables(&r));
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_D, r.d, sizeof(r.d)));
    choose(&r, 32);
    uint64_t ns[16] = {0};
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, ns));
    expect_y(&r, 32, 1 + 8, 0);
    int64_t counter;
    memcpy(&counter, sxr_memory(r.program, SX_GEN_ROUND), sizeof(counter));
    ck_assert_int_eq(counter, 7);
    ck_assert(state_of(&r) == 5 + 16);
    ck_assert(ns[0] > 0 && ns[3] > 0 && ns[5] > 0 && ns[2] == 0 && ns[8] == 0);
    end(&r);
}
END_TEST

START_TEST(test_fills_of_each_width)
{
    rich r;
    begin(&r);
    for (uint32_t bytes = 1; bytes <= 8; bytes *= 2) {
        const uint64_t value = UINT64_C(0x1122334455667788) & (~UINT64_C(0) >> (64 - 8 * bytes));
        sx_gen_module_tables *t = &r.tables;
        sx_gen_module_make_rich(t);
        t->tensor[SX_GEN_T].element_bytes = bytes;
        t->tensor[SX_GEN_T].dtype = bytes == 8   ? SX_I64
                                    : bytes == 4 ? SX_I32
                                    : bytes == 2 ? SX_F16
                                                 : SX_U8;
        t->tensor[SX_GEN_T].dim[0] = 256 / bytes;
        t->launch[0].value = value;
        t->launch[1] = t->launch[0];
        ck_sx_ok(&r.cx, open_tables(&r));
        ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_D, r.d, sizeof(r.d)));
        choose(&r, 16);
        ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
        const uint8_t *filled = sxr_memory(r.program, SX_GEN_T);
        for (uint32_t i = 0; i < 256; i++) {
            ck_assert_uint_eq(filled[i], (uint8_t)(value >> (8 * (i % bytes))));
        }
        sxr_close(r.program);
    }
    sx_ctx_fini(&r.cx);
}
END_TEST

#define LARGE \
    ((int64_t)100003) /* elements: more than a thread moves at a time, and not a multiple */

START_TEST(test_large_copies_and_fills_are_whole)
{
    rich r;
    begin(&r);
    sx_gen_module_tables *t = &r.tables;
    sx_gen_module_make(t); /* y filled, then copied over by x */
    for (uint32_t i = 0; i < 3; i += 2) {
        t->tensor[i].dim[0] = LARGE;
        t->tensor[i].size = 4 * (uint64_t)LARGE;
    }
    t->launch[0].kind = SX_LAUNCH_FILL;
    t->launch[0].kernel = SX_MODULE_NONE;
    t->launch[0].arg_count = 1;
    t->launch[0].value = 0x01020304;
    t->arg[0] = 2;
    ck_sx_ok(&r.cx, open_tables(&r));
    uint32_t *x = sx_alloc(&r.cx, 4 * (size_t)LARGE), *y = sx_alloc(&r.cx, 4 * (size_t)LARGE);
    ck_assert(x != NULL && y != NULL);
    for (int64_t i = 0; i < LARGE; i++) {
        x[i] = (uint32_t)i * 7;
    }
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, 0, x, 4 * (uint64_t)LARGE));
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, 2, y, 4 * (uint64_t)LARGE));
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    for (int64_t i = 0; i < LARGE; i++) {
        ck_assert_uint_eq(y[i], 0x01020304);
    }
    sxr_close(r.program);
    t->launch[0].kind = SX_LAUNCH_COPY;
    t->launch[0].arg_count = 2;
    t->launch[0].value = 0;
    t->arg[0] = 0;
    t->arg[1] = 2;
    ck_sx_ok(&r.cx, open_tables(&r));
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, 0, x, 4 * (uint64_t)LARGE));
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, 2, y, 4 * (uint64_t)LARGE));
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    ck_assert_int_eq(memcmp(x, y, 4 * (size_t)LARGE), 0);
    end(&r);
}
END_TEST

/* What the format knows and this runtime does not run, in a variant that would run here. */
START_TEST(test_unknown_launches_are_refused_by_name)
{
    rich r;
    begin(&r);
    r.tables.launch[0] = (sx_module_launch){.kind = SX_LAUNCH_HOST,
                                            .kernel = SX_MODULE_NONE,
                                            .arg_count = 1,
                                            .value = 1,
                                            .name = {11, 1}};
    ck_sx_fails(&r.cx, open_tables(&r), SX_UNIMPLEMENTED, "launch 0 is a host call, b");
    sx_ctx_fini(&r.cx);
}
END_TEST

/* A variant for another machine is passed over; a module for another machine is refused with both names. */
START_TEST(test_machines)
{
    rich r;
    begin(&r);
    sx_gen_module_tables *t = &r.tables;
    t->guard[1] = (sx_module_guard){SX_GUARD_MACHINE, SX_ARCH_NVIDIA, 90, 0};
    t->guard[2].high = 64; /* variant 1 serves all */
    t->kernel[3] = t->kernel[0];
    t->kernel[3].form = SX_FORM_PTX;
    t->kernel[3].arch = SX_ARCH_NVIDIA;
    t->kernel[3].level = 80;
    t->kernels = 4;
    t->launch[3].kernel = 3;
    ck_sx_ok(&r.cx, open_tables(&r));
    ck_sx_ok(&r.cx, sxr_bind(&r.cx, r.program, SX_GEN_D, r.d, sizeof(r.d)));
    choose(&r, 48);
    ck_assert_uint_eq(sxr_variant(r.program), 1);
    ck_sx_ok(&r.cx, sxr_run(&r.cx, r.program, NULL));
    expect_y(&r, 48, 0, 1);
    sxr_close(r.program);
    sx_gen_module_make(t);
    t->info.arch = SX_ARCH_NVIDIA;
    t->info.level = 90;
    t->kernel[0].form = SX_FORM_CUBIN;
    t->kernel[0].arch = SX_ARCH_NVIDIA;
    t->kernel[0].level = 90;
    ck_sx_fails(&r.cx, open_tables(&r), SX_UNIMPLEMENTED,
                "module is for sm_90 (cubin), this processor executes x86-64-v");
    sx_ctx_fini(&r.cx);
}
END_TEST

/* Memory that is kept begins at a huge page, is zero and can be written to its end; nothing else of the address space
 * is touched when it goes. */
START_TEST(test_pages_that_are_kept)
{
    static const size_t sizes[] = {1, 4096, 2097151, 2097152, 2097153, 9000000};
    for (size_t i = 0; i < SX_COUNT(sizes); i++) {
        uint8_t *memory = sxr_pages_kept(sizes[i]), *beside = sxr_pages(4096);
        ck_assert(memory != NULL && beside != NULL);
        ck_assert(sizes[i] < 2097152 || (uintptr_t)memory % 2097152 == 0);
        ck_assert(memory[0] == 0 && memory[sizes[i] - 1] == 0 && memory[sizes[i] / 2] == 0);
        memset(memory, 0xa5, sizes[i]);
        sxr_pages_touch(memory, sizes[i]); /* what is there stays */
        ck_assert(memory[0] == 0xa5 && memory[sizes[i] - 1] == 0xa5);
        sxr_pages_free(memory, sizes[i]);
        ck_assert_uint_eq(beside[0], 0);
        sxr_pages_free(beside, 4096);
    }
}
END_TEST

/* Kilobytes of huge pages in the mapping that begins at `memory` or around it, as the system counts them. */
static long huge_kilobytes(const void *memory)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long from, to;
    long found = -1;
    bool inside = false;
    ck_assert_ptr_nonnull(file);
    while (found < 0 && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            inside = from <= (uintptr_t)memory && (uintptr_t)memory < to;
        } else if (inside) {
            (void)sscanf(line, "AnonHugePages: %ld", &found);
        }
    }
    (void)fclose(file);
    return found;
}

/* Where the system gives memory in huge pages is as it says itself; what is there stays. */
START_TEST(test_pages_that_are_huge)
{
    static const size_t sizes[] = {4096, 2097151, 2097152, 9000000};
    for (size_t i = 0; i < SX_COUNT(sizes); i++) {
        for (int allowed = 0; allowed < 2; allowed++) {
            uint8_t *memory = sxr_pages_kept(sizes[i]);
            ck_assert_ptr_nonnull(memory);
            if (allowed == 0) {
                ck_assert_int_eq(madvise(memory, sizes[i], MADV_NOHUGEPAGE), 0);
            }
            memory[0] = 0xa5;
            size_t huge = sxr_pages_huge(memory, sizes[i]);
            ck_assert(memory[0] == 0xa5 && memory[sizes[i] - 1] == 0);
            ck_assert_uint_eq(huge, huge_kilobytes(memory) > 0 ? sizes[i] / 2097152 * 2097152 : 0);
            ck_assert(huge == 0 || allowed == 1);
            sxr_pages_free(memory, sizes[i]);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client.runtime");
    TCase *cases = tcase_create("runtime");
    tcase_add_test(cases, test_pool_covers_every_point_once);
    tcase_add_test(cases, test_short_launches_run_alone);
    tcase_add_test(cases, test_run_touches_every_grid_point);
    tcase_add_loop_test(cases, test_foreign_code_is_refused, 0, 4);
    tcase_add_test(cases, test_variants_run_by_their_guards);
    tcase_add_test(cases, test_cases_give_grids);
    tcase_add_test(cases, test_state_persists_and_can_be_set);
    tcase_add_test(cases, test_branch_and_while);
    tcase_add_test(cases, test_run_is_given_up);
    tcase_add_test(cases, test_empty_ranges);
    tcase_add_test(cases, test_output_in_place_of_an_input);
    tcase_add_test(cases, test_shared_results_are_made_once);
    tcase_add_test(cases, test_loops_count_and_follow_symbols);
    tcase_add_test(cases, test_fills_of_each_width);
    tcase_add_test(cases, test_large_copies_and_fills_are_whole);
    tcase_add_test(cases, test_unknown_launches_are_refused_by_name);
    tcase_add_test(cases, test_machines);
    tcase_add_test(cases, test_pages_that_are_kept);
    tcase_add_test(cases, test_pages_that_are_huge);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
