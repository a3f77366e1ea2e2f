/* Rows of what was measured: text that reads back, later rows in place of earlier ones, the fastest of a kernel, and
 * lines that are none. */
#include "core/search/correction.h"
#include "tests/core/loop/nodes.h"

#define PLAN "grid(m/64) loop(m, n/32) register(n/16) lane(n)"
#define OTHER "grid(m/32) loop(m, n/32) register(n/16) lane(n)"
static const char text[] =
    SX_MEASURED_HEAD "\n"
                     "here h100 00000000000000ff 1200 77 15 2026-11-24 tried " PLAN "\n"
                     "here h100 00000000000000ff 900 77 15 2026-11-24 best " OTHER "\n"
                     "here a100 00000000000000ff 5 77 15 2026-11-24 best " PLAN "\n"
                     "there h100 0123456789abcdef 7 77 3 2026-01-02 best " PLAN "\n"
                     "here h100 0123456789abcdef 9 77 3 2026-01-02 tried " PLAN "\n";

static sx_measured parsed(sx_ctx *cx, const char *of)
{
    sx_measured m;
    sx_code code = sx_measured_parse(cx, sx_span_of(of), &m);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    return m;
}

START_TEST(test_round_trip)
{
    sx_ctx cx;
    sx_buf again;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf_init(&again, 1 << 16);
    sx_measured m = parsed(&cx, text);
    ck_assert_uint_eq(m.count, 5);
    sx_measured_print(&m, &again);
    ck_assert_uint_eq(again.len, strlen(text));
    ck_assert_mem_eq(again.ptr, text, again.len);
    ck_assert_uint_eq(parsed(&cx, "").count, 0);
    sx_buf_fini(&again);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_find)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_measured m = parsed(&cx, text);
    ck_assert_ptr_null(sx_measured_find(&m, "h200", 0xff));
    ck_assert_ptr_null(sx_measured_find(&m, "h100", 0xfe));
    ck_assert_double_eq(sx_measured_find(&m, "h100", 0xff)->ns, 900);
    ck_assert_double_eq(sx_measured_find(&m, "a100", 0xff)->ns, 5);
    sx_measured_row slower = *sx_measured_find(&m, "h100", 0xff);
    slower.ns = 3000; /* the same schedule, measured again */
    slower.best = false;
    ck_sx_ok(&cx, sx_measured_put(&cx, &m, &slower));
    ck_assert_uint_eq(m.count, 5);
    ck_assert_ptr_null(sx_measured_find(&m, "h100", 0xff));
    slower = m.row[0];
    slower.best = true; /* not the fastest: the verdict counts */
    ck_sx_ok(&cx, sx_measured_put(&cx, &m, &slower));
    slower.schedule = m.row[1].schedule;
    slower.ns = 4000;
    ck_sx_ok(&cx, sx_measured_put(&cx, &m, &slower)); /* one is best at a time */
    ck_assert_uint_eq(m.count, 5);
    ck_assert_double_eq(sx_measured_find(&m, "h100", 0xff)->ns, 4000);
    ck_assert(!m.row[0].best);
    sx_ctx_fini(&cx);
}
END_TEST

/* Rows of other machines are left out; new rows of a kernel take its verdict away. */
START_TEST(test_machines)
{
    sx_ctx cx;
    sx_span here;
    const char *ignored;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_measured_here(&cx, sx_span_of(text), "there", &here, &ignored));
    const char *there =
        SX_MEASURED_HEAD "\nthere h100 0123456789abcdef 7 77 3 2026-01-02 best " PLAN "\n";
    ck_assert_uint_eq(here.len, strlen(there));
    ck_assert_mem_eq(here.ptr, there, here.len);
    ck_sx_ok(&cx, sx_measured_here(&cx, sx_span_of(text), "nowhere", &here, &ignored));
    ck_assert_uint_eq(here.len, 0);
    ck_sx_fails(&cx, sx_measured_here(&cx, sx_span_of("x"), "here", &here, &ignored), SX_INPUT,
                "line 1");
    sx_measured m = parsed(&cx, text);
    sx_measured rows = parsed(&cx, SX_MEASURED_HEAD
                              "\nhere h100 00000000000000ff 30 77 3 2026-11-25 tried " PLAN "\n"
                              "here h100 0123456789abcdef 8 77 3 2026-11-25 best " OTHER "\n");
    ck_sx_ok(&cx, sx_measured_merge(&cx, &m, &rows));
    ck_assert_uint_eq(m.count, 6);
    ck_assert_ptr_null(sx_measured_find(&m, "h100", 0xff));
    ck_assert_double_eq(sx_measured_find(&m, "a100", 0xff)->ns, 5);
    ck_assert_double_eq(m.row[0].ns, 30);
    ck_assert_msg(m.row[3].best && m.row[5].best, "the row of another machine stays as it is");
    sx_ctx_fini(&cx);
}
END_TEST

static const struct {
    const char *line, *said;
} wrong[] = {
    {"symplex measured 2\n", "line 1: 'symplex measured 3' wanted"},
    {SX_MEASURED_HEAD "\n\n", "line 2: a machine"},
    {SX_MEASURED_HEAD "\nhere\n", "line 2: a device"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000ff 1 77 1 2026-11-24 " PLAN, "'best' or 'tried'"},
    {SX_MEASURED_HEAD "\nh h100 ff 1 77 1 2026-11-24 best " PLAN, "line 2: a kernel of 16"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000fg 1 77 1 2026-11-24 best " PLAN,
     "line 2: a kernel of 16"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000ff 0 77 1 2026-11-24 " PLAN, "nanoseconds"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000ff -1 77 1 2026-11-24 " PLAN, "nanoseconds"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000ff 99999999999999999999 77 1 2026-11-24 best " PLAN,
     "nanoseconds"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000ff 1 0 1 2026-11-24 best " PLAN, "of the model"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000ff 1 77 0 2026-11-24 best " PLAN, "number of runs"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000ff 1 77 1 today " PLAN, "a date"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000ff 1 77 1 2026-11-24 best grid(", "schedule"},
    {SX_MEASURED_HEAD "\nh h100 00000000000000ff 1 77 1 2026-11-24 best", "schedule"},
};

START_TEST(test_wrong)
{
    sx_ctx cx;
    sx_measured m;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_fails(&cx, sx_measured_parse(&cx, sx_span_of(wrong[_i].line), &m), SX_INPUT,
                wrong[_i].said);
    sx_ctx_fini(&cx);
}
END_TEST

/* Another extent, type or program is another kernel; another name of the node is not. */
START_TEST(test_kernel)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_type x = TYPE(SX_F32, 8, 64), wide = TYPE(SX_F32, 8, 128), narrow = TYPE(SX_BF16, 8, 64);
    sx_attr none = {.present = 0};
    node n[] = {lift(&cx, SX_OP_EXP, &none, &x, 1), lift(&cx, SX_OP_EXP, &none, &x, 1),
                lift(&cx, SX_OP_EXP, &none, &wide, 1), lift(&cx, SX_OP_EXP, &none, &narrow, 1),
                lift(&cx, SX_OP_NEGATE, &none, &x, 1)};
    uint64_t first = sx_measured_kernel(analysis_of(&cx, &n[0]), false);
    for (uint32_t i = 1; i < SX_COUNT(n); i++) {
        ck_assert((sx_measured_kernel(analysis_of(&cx, &n[i]), false) == first) == (i == 1));
    }
    ck_assert(sx_measured_kernel(analysis_of(&cx, &n[0]), true) != first);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.search.measured");
    TCase *tcase = tcase_create("measured");
    tcase_add_test(tcase, test_round_trip);
    tcase_add_test(tcase, test_find);
    tcase_add_test(tcase, test_machines);
    tcase_add_loop_test(tcase, test_wrong, 0, (int)SX_COUNT(wrong));
    tcase_add_test(tcase, test_kernel);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
