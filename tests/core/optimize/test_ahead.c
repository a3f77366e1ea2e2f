/* Parts that are worked on side by side: whatever the number of threads and the order in which they come, the result is
 * that of no threads: program, certificate, stored e-graphs, report, fuel and memory; under limits that bind as well,
 * and where memory ends or the request is cancelled. */
#include "tests/lib/test.h"

#include <stdatomic.h>

#include "client/verify/team.h"
#include "core/grad/grad.h"
#include "core/optimize/optimize.h"
#include "core/store/pieces.h"
#include "tests/lib/gen_stack.h"
#include "tests/lib/gen_transformer.h"

#define STACKS 3u
#define STACK_FUEL 60000u /* of extraction */
#define PLACES_MAX 16u

static sx_ctx cx; /* of the programs; each way of working has one of its own */
static const sx_device *device;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* All of what came of a program. */
typedef struct {
    sx_code code;
    sx_error error;
    sx_optimize_report report;
    sx_buf text, certificate, kept;
    uint64_t fuel;
    size_t bytes;
} outcome;

/* How a program is worked on. */
typedef struct {
    sx_span in; /* text, so that each run has a program of its own */
    sx_optimize_options options;
    size_t memory;
    bool (*cancelled)(void *self);
} job;

static void work_on(const job *j, const sx_team *team, outcome *o)
{
    sx_ctx own;
    sx_graph *in, *out = NULL;
    sx_optimize_place place[PLACES_MAX];
    sx_optimize_kept kept[PLACES_MAX];
    sx_optimize_keeper keeper = {.place = place, .kept = kept, .bytes_max = (size_t)64 << 20};
    sx_optimize_options options = j->options;
    sx_pieces pieces;
    sx_ctx_init(&own, (size_t)1 << 30);
    sx_buf_init(&o->text, (size_t)1 << 24);
    sx_buf_init(&o->certificate, (size_t)256 << 20);
    sx_buf_init(&o->kept, (size_t)256 << 20);
    keeper.bytes = &o->kept;
    ck_sx_ok(&own, sx_graph_parse(&own, j->in, &in));
    if (options.keeper != NULL) { /* every other piece */
        ck_sx_ok(&own, sx_pieces_find(&own, in, &pieces));
        for (uint32_t i = 0; i < pieces.count && keeper.place_count < PLACES_MAX; i += 2) {
            place[keeper.place_count++].part = pieces.piece[i].key;
        }
        options.keeper = &keeper;
    }
    own.arena.limit_bytes = own.arena.used_bytes + j->memory;
    own.team = team;
    own.cancelled = j->cancelled;
    o->code = sx_optimize(&own, in, device, &options, &out, &o->report);
    o->error = own.error;
    o->fuel = own.fuel;
    o->bytes = own.arena.used_bytes;
    own.arena.limit_bytes = (size_t)2 << 30;
    own.cancelled = NULL;
    if (o->code == SX_OK) {
        ck_sx_ok(&own, sx_graph_print(&own, out, &o->text));
        ck_sx_ok(&own, sx_optimize_certificate(&own, &o->report, &o->certificate));
    }
    sx_ctx_fini(&own);
}

static void fini(outcome *o)
{
    sx_buf_fini(&o->text);
    sx_buf_fini(&o->certificate);
    sx_buf_fini(&o->kept);
}

static void check_same(const outcome *a, const outcome *b, const char *what, uint32_t number)
{
    ck_assert_msg(a->code == b->code, "%s %u: %s, alone %s", what, number, sx_code_name(b->code),
                  sx_code_name(a->code));
    if (a->code != SX_OK) {
        ck_assert_str_eq(a->error.text, b->error.text);
        ck_assert_int_eq(a->error.line, b->error.line);
        return;
    }
    ck_assert_msg(sx_span_equal(sx_buf_span(&a->text), sx_buf_span(&b->text)), "%s %u: program",
                  what, number);
    ck_assert_msg(sx_span_equal(sx_buf_span(&a->certificate), sx_buf_span(&b->certificate)),
                  "%s %u: certificate", what, number);
    ck_assert_msg(sx_span_equal(sx_buf_span(&a->kept), sx_buf_span(&b->kept)), "%s %u: e-graphs",
                  what, number);
    ck_assert_msg(a->fuel == b->fuel && a->bytes == b->bytes, "%s %u: %zu bytes, alone %zu", what,
                  number, b->bytes, a->bytes);
    const sx_optimize_report *r = &a->report, *s = &b->report;
    ck_assert_uint_eq(r->nodes, s->nodes);
    ck_assert_uint_eq(r->fuel, s->fuel);
    ck_assert_uint_eq(r->extract_fuel, s->extract_fuel);
    ck_assert_uint_eq(r->part_count, s->part_count);
    ck_assert_int_eq(r->stop, s->stop);
    ck_assert_mem_eq(r->match_count, s->match_count, sizeof(r->match_count));
    ck_assert_mem_eq(r->union_count, s->union_count, sizeof(r->union_count));
    ck_assert_mem_eq(&r->cost_after_ns, &s->cost_after_ns, sizeof(double));
}

/* ---- teams ---- */

static _Atomic uint32_t tasks; /* that teams were given */

static void run_backwards(void *self, void (*task)(void *of, uint32_t index), void *of,
                          uint32_t count)
{
    (void)self;
    tasks += count;
    while (count > 0) {
        task(of, --count);
    }
}

static void no_lock(void *self)
{
    (void)self;
}

/* One thread after all, and the last task first: what a lucky order hides. */
static const sx_team backwards = {
    .threads = 2, .run = run_backwards, .lock = no_lock, .unlock = no_lock};

static void check_teams(const job *j, const uint32_t *threads, uint32_t count, const char *what)
{
    outcome alone, other;
    work_on(j, NULL, &alone);
    work_on(j, &backwards, &other);
    check_same(&alone, &other, what, 0);
    fini(&other);
    for (uint32_t i = 0; i < count; i++) {
        sxv_team team;
        sxv_team_init(&team, threads[i]);
        work_on(j, &team.team, &other);
        check_same(&alone, &other, what, threads[i]);
        fini(&other);
        sxv_team_fini(&team);
    }
    fini(&alone);
}

/* ---- programs ---- */

static const sx_graph *make_transformer(uint32_t layers, bool gradients)
{
    sx_graph *graph;
    sx_gradient made;
    sx_transformer shape = sx_transformer_default(layers);
    shape.front = SX_TRANSFORMER_VALUES;
    shape.hidden = 64;
    shape.ffn = 128;
    shape.seq = 32;
    shape.layer_norm = true;
    shape.glu = false;
    ck_sx_ok(&cx, sx_transformer_make(&cx, &shape, &graph));
    if (!gradients) {
        return graph;
    }
    ck_sx_ok(&cx, sx_grad_make(&cx, graph, &(sx_grad_request){.weights = true}, &made));
    return made.graph;
}

static job job_of(const sx_graph *in)
{
    static sx_optimize_keeper wanted;
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 24);
    ck_sx_ok(&cx, sx_graph_print(&cx, in, &text));
    job j = {.options = sx_optimize_defaults(), .memory = (size_t)1 << 30};
    j.in = sx_span_of(sx_alloc_text(&cx, sx_buf_span(&text)));
    sx_buf_fini(&text);
    j.options.with_certificate = true;
    j.options.keeper = &wanted;
    return j;
}

/* ---- tests ---- */

START_TEST(test_layers_with_gradients)
{
    const uint32_t threads[] = {1, 4};
    const job j = job_of(make_transformer(6, true));
    tasks = 0;
    check_teams(&j, threads, SX_COUNT(threads), "gradients");
    ck_assert_uint_ge(
        tasks, 4); /* the parts: the layers at the ends, those between, forward and backward */
}
END_TEST

START_TEST(test_stacks)
{
    uint64_t seed = sx_test_seed();
    const uint32_t threads[] = {3};
    tasks = 0;
    for (uint32_t i = 0; i < STACKS || (tasks == 0 && i < 20 * STACKS); i++) {
        sx_rng rng = {seed + i};
        job j = job_of(sx_gen_stack(&cx, &rng));
        j.options.extract_fuel = STACK_FUEL;
        check_teams(&j, threads, SX_COUNT(threads), "stack");
    }
    ck_assert_uint_gt(tasks, 0);
}
END_TEST

/* Limits of the whole that are used up by the first parts, somewhere in a part, or never. */
START_TEST(test_limits_that_bind)
{
    static const struct {
        uint32_t nodes;
        uint64_t fuel;
        size_t bytes;
        bool fair;
    } limits[] = {{900, UINT64_MAX, SIZE_MAX, false},      {2500, UINT64_MAX, SIZE_MAX, false},
                  {4000, UINT64_MAX, SIZE_MAX, true},      {UINT32_MAX, 60000, SIZE_MAX, false},
                  {UINT32_MAX, 300000, SIZE_MAX, false},   {UINT32_MAX, UINT64_MAX, 3000000, false},
                  {UINT32_MAX, UINT64_MAX, 9000000, false}};
    const uint32_t threads[] = {2};
    job j = job_of(make_transformer(3, true));
    j.options.extract_fuel = STACK_FUEL;
    j.options.with_certificate = false;
    for (uint32_t i = 0; i < SX_COUNT(limits); i++) {
        const sx_optimize_options defaults = sx_optimize_defaults();
        sx_eg_limits *l = &j.options.limits;
        l->nodes =
            limits[i].nodes < defaults.limits.nodes ? limits[i].nodes : defaults.limits.nodes;
        l->fuel = limits[i].fuel < defaults.limits.fuel ? limits[i].fuel : defaults.limits.fuel;
        l->bytes =
            limits[i].bytes < defaults.limits.bytes ? limits[i].bytes : defaults.limits.bytes;
        j.options.fair = limits[i].fair;
        check_teams(&j, threads, SX_COUNT(threads), "limits");
    }
}
END_TEST

/* Wherever memory ends, it ends with the same words. */
START_TEST(test_memory_ends)
{
    const uint32_t threads[] = {2};
    job j = job_of(make_transformer(3, true));
    outcome alone;
    j.options.extract_fuel = STACK_FUEL;
    j.options.with_certificate = false;
    work_on(&j, NULL, &alone);
    ck_assert_int_eq(alone.code, SX_OK);
    size_t most = alone.bytes;
    fini(&alone);
    for (uint32_t i = 1; i < 5; i++) {
        j.memory = most / 5 * i;
        check_teams(&j, threads, SX_COUNT(threads), "memory");
    }
}
END_TEST

static _Atomic uint64_t polls;
static uint64_t polls_at; /* the request is cancelled from then on */

static bool cancel_later(void *self)
{
    (void)self;
    return ++polls >= polls_at;
}

/* Cancelled anywhere, it ends as cancelled, whoever saw it first. */
START_TEST(test_cancelled_in_the_middle)
{
    job j = job_of(make_transformer(3, true));
    sxv_team team;
    sxv_team_init(&team, 4);
    const sx_team *teams[] = {NULL, &backwards, &team.team};
    j.options.extract_fuel = STACK_FUEL;
    j.options.with_certificate = false;
    j.cancelled = cancel_later;
    for (uint32_t t = 0; t < SX_COUNT(teams); t++) {
        outcome o;
        polls = 0;
        polls_at = UINT64_MAX;
        work_on(&j, teams[t], &o);
        ck_assert_int_eq(o.code, SX_OK);
        fini(&o);
        uint64_t most = polls;
        ck_assert_uint_gt(most, 100);
        for (uint32_t i = 0; i < 5; i++) {
            polls = 0;
            polls_at = 1 + most / 6 * i;
            work_on(&j, teams[t], &o);
            ck_assert_msg(o.code == SX_CANCELLED, "poll %llu of %llu: %s",
                          (unsigned long long)polls_at, (unsigned long long)most,
                          sx_code_name(o.code));
            ck_assert_uint_eq(o.text.len, 0);
            fini(&o);
        }
    }
    sxv_team_fini(&team);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.optimize.ahead");
    TCase *tcase = tcase_create("ahead");
    tcase_set_timeout(tcase, 400);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_layers_with_gradients);
    tcase_add_test(tcase, test_stacks);
    tcase_add_test(tcase, test_limits_that_bind);
    tcase_add_test(tcase, test_memory_ends);
    tcase_add_test(tcase, test_cancelled_in_the_middle);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
