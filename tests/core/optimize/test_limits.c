/* Limits that hold: bytes are never exceeded while rounds run, whatever binds leaves a valid graph that a
 * later call can finish, and programs built to explode stop, keep the best program so far, and say why. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/optimize/optimize.h"
#include "tests/lib/terms.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const sx_eg_limits roomy = {.rounds = 1000,
                                   .nodes = SX_EG_NODES_MAX,
                                   .matches = UINT32_MAX,
                                   .fuel = UINT64_C(1) << 40,
                                   .bytes = SIZE_MAX,
                                   .check = true};

static size_t most_bytes, polls;
static bool watch(void *self)
{
    (void)self;
    polls++;
    most_bytes = cx.arena.used_bytes > most_bytes ? cx.arena.used_bytes : most_bytes;
    return false;
}

/* Caps from next to nothing to enough, in both matchers, with an analysis and without. */
START_TEST(test_bytes_are_held)
{
    bool stamps = (_i & 1) != 0;
    bool folds = (_i & 2) != 0;
    uint32_t stopped = 0;
    for (size_t cap = 12000; cap < 2000000; cap += cap / 6) {
        sx_ctx_fini(&cx);
        setup();
        sx_terms t;
        sx_eg_ruleset set;
        sx_eg_run run;
        sx_eg_limits limits = roomy;
        ck_sx_ok(&cx, sx_terms_init(&cx, &t, folds));
        ck_sx_ok(&cx, sx_terms_add_sum(&t, 7));
        ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &t.language, sx_terms_sum_rules, 3));
        size_t start = cx.arena.used_bytes;
        limits.bytes = cap;
        limits.stamps = stamps;
        most_bytes = 0;
        cx.cancelled = watch;
        sx_code code = sx_eg_saturate(&cx, &t.eg, &set, &limits, &run);
        cx.cancelled = NULL;
        ck_assert_msg(code == SX_OK, "cap %zu: %s", cap, cx.error.text);
        ck_assert_msg(most_bytes <= start + cap && cx.arena.used_bytes <= start + cap,
                      "cap %zu: %zu bytes", cap, most_bytes - start);
        ck_assert_uint_eq(cx.arena.limit_bytes, (size_t)1 << 30); /* put back */
        ck_sx_ok(&cx, sx_eg_check(&cx, &t.eg));
        stopped += run.stop == SX_STOP_BYTES ? 1 : 0;
        ck_assert(run.stop == SX_STOP_BYTES || run.stop == SX_STOP_SATURATED);
        limits.bytes = SIZE_MAX;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
        ck_assert_int_eq(run.stop, SX_STOP_SATURATED);
        ck_assert_uint_eq(t.eg.live_count, 1939);
        ck_assert_uint_eq(t.eg.class_count, 127);
    }
    ck_assert_uint_gt(stopped, 5);
    ck_assert_uint_gt(polls, 0);
}
END_TEST

/* Drops the log of changes at poll number `drop_at`, as the engine does where it finds no memory for it. */
static sx_eg *watched;
static size_t drop_at;
static bool drop_log(void *self)
{
    (void)self;
    if (polls++ == drop_at) {
        watched->changed_count = 0;
        watched->changed_lost++;
        watched->old_count = 0;
    }
    return false;
}

/* Wherever in a round the log is lost, the rounds end with the same graphs: the rules that came before look
 * again as well. */
START_TEST(test_a_lost_log_loses_nothing)
{
    size_t most = 1;
    for (drop_at = 0; drop_at < most; drop_at += 1 + most / 60) {
        sx_ctx_fini(&cx);
        setup();
        sx_terms t;
        sx_eg_ruleset set;
        sx_eg_run run;
        sx_eg_limits limits = roomy;
        limits.rounds = 8;
        ck_sx_ok(&cx, sx_terms_init(&cx, &t, false));
        ck_sx_ok(&cx, sx_terms_add_micro(&t));
        ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &t.language, sx_terms_micro_rules, 24));
        watched = &t.eg;
        polls = 0;
        cx.cancelled = drop_log;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
        cx.cancelled = NULL;
        most = polls;
        ck_assert_msg(t.eg.live_count == 8113 && t.eg.class_count == 3576,
                      "lost at %zu: %u nodes, %u classes", drop_at, t.eg.live_count,
                      t.eg.class_count);
    }
    ck_assert_uint_gt(most, 200);
}
END_TEST

/* A stop at any number of nodes or amount of fuel: valid, and going on ends where one run does. */
START_TEST(test_any_stop_goes_on)
{
    for (uint32_t i = 1; i < 40; i++) {
        sx_terms t;
        sx_eg_ruleset set;
        sx_eg_run run;
        sx_eg_limits limits = roomy;
        ck_sx_ok(&cx, sx_terms_init(&cx, &t, false));
        ck_sx_ok(&cx, sx_terms_add_sum(&t, 6));
        ck_sx_ok(&cx, sx_eg_ruleset_init(&cx, &set, &t.language, sx_terms_sum_rules, 3));
        uint32_t stops = 0;
        do {
            limits.nodes = _i == 0 ? t.eg.node_count + i : SX_EG_NODES_MAX;
            limits.fuel = _i == 1 ? i * 40 : UINT64_C(1) << 40;
            limits.matches = _i == 2 ? i : UINT32_MAX;
            ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
            stops++;
        } while (run.stop != SX_STOP_SATURATED && stops < 3000 && (_i != 1 || stops < 60));
        limits = roomy;
        ck_sx_ok(&cx, sx_eg_saturate(&cx, &t.eg, &set, &limits, &run));
        ck_assert_uint_eq(t.eg.live_count, 729 - 128 + 1 + 6);
        ck_assert_uint_eq(t.eg.class_count, 63);
    }
}
END_TEST

static void optimize(const sx_buf *text, const sx_eg_limits *limits, sx_eg_stop stop)
{
    const sx_device *device;
    sx_graph *in, *out;
    sx_optimize_report report;
    sx_optimize_options options = sx_optimize_defaults();
    options.limits = *limits;
    options.whole = true;
    options.with_proof = false;
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(text), &in));
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_sx_ok(&cx, sx_graph_check(&cx, out));
    ck_assert_double_le(report.cost_after_ns, report.cost_before_ns * (1 + 1e-9));
    ck_assert_msg(report.stop == stop, "stop %s instead of %s, %u nodes",
                  sx_eg_stop_name(report.stop), sx_eg_stop_name(stop), report.nodes);
}

/* Each limit in turn on a program: the run stops for that reason, and what comes out is a program no dearer
 * than the input. */
static void stop_by_each(const sx_buf *text)
{
    sx_eg_limits limits = sx_optimize_defaults().limits;
    limits.nodes = 700;
    optimize(text, &limits, SX_STOP_NODES);
    limits = sx_optimize_defaults().limits;
    limits.bytes = 120000;
    optimize(text, &limits, SX_STOP_BYTES);
    limits = sx_optimize_defaults().limits;
    limits.fuel = 3000;
    optimize(text, &limits, SX_STOP_FUEL);
    limits = sx_optimize_defaults().limits;
    limits.rounds = 1;
    optimize(text, &limits, SX_STOP_ROUNDS);
}

/* A chain of N additions has 3^N partial sums. */
START_TEST(test_long_chain)
{
    sx_buf text;
    unsigned last = 120;
    sx_buf_init(&text, 1 << 20);
    sx_buf_put_span(&text, sx_span_of("sx 1\ngraph \"chain\" {\n"));
    for (unsigned i = 0; i < 120; i++) {
        sx_buf_print(&text, "  %%%u = parameter {name = \"p%u\", weight = 0} : f32[8, 8]\n", i, i);
    }
    for (unsigned i = 0; i < 119; i++, last++) {
        sx_buf_print(&text, "  %%%u = add(%%%u, %%%u) : f32[8, 8]\n", last, i == 0 ? 0 : last - 1,
                     i + 1);
    }
    sx_buf_print(&text, "  return %%%u as \"y\"\n}\n", last - 1);
    stop_by_each(&text);
    sx_buf_fini(&text);
}
END_TEST

/* N contractions of one input: 2^N sets of them could be merged. */
START_TEST(test_many_equal_contractions)
{
    sx_buf text;
    unsigned last = 121;
    sx_buf_init(&text, 1 << 20);
    sx_buf_put_span(&text, sx_span_of("sx 1\ngraph \"fan\" {\n"));
    for (unsigned i = 0; i <= 60; i++) {
        sx_buf_print(&text, "  %%%u = parameter {name = \"p%u\", weight = %u} : f32[8, 8]\n", i, i,
                     i > 0 ? 1u : 0u);
    }
    for (unsigned i = 0; i < 60; i++) {
        sx_buf_print(
            &text,
            "  %%%u = dot_general(%%0, %%%u) {lhs_contract = [1], rhs_contract = [0]} : f32[8, "
            "8]\n",
            61 + i, 1 + i);
    }
    for (unsigned i = 0; i < 59; i++, last++) {
        sx_buf_print(&text, "  %%%u = multiply(%%%u, %%%u) : f32[8, 8]\n", last,
                     i == 0 ? 61 : last - 1, 62 + i);
    }
    sx_buf_print(&text, "  return %%%u as \"y\"\n}\n", last - 1);
    stop_by_each(&text);
    sx_buf_fini(&text);
}
END_TEST

/* Convolutions of one channel each, and a sort, have no kernel as they stand. Whatever binds, the answer has none. */
START_TEST(test_operations_get_kernels)
{
    sx_buf text;
    sx_graph *in, *out;
    const sx_device *device;
    sx_buf_init(&text, 1 << 20);
    sx_buf_put_span(&text, sx_span_of("sx 1\ngraph \"channels\" {\n  %x = parameter {name = "
                                      "\"x\", weight = 0} : f32[1, 16, 12, 12]\n"));
    for (unsigned i = 0; i < 8; i++) {
        sx_buf_print(&text, "  %%w%u = parameter {name = \"w%u\", weight = 1} : f32[16, 1, 3, 3]\n",
                     i, i);
        for (unsigned k = 0; k < 4; k++) {
            sx_buf_print(&text,
                         "  %%b%u_%u = parameter {name = \"b%u_%u\", weight = 1} : f32[16]\n", i, k,
                         i, k);
        }
    }
    for (unsigned i = 0; i < 8; i++) {
        sx_buf_print(&text, "  %%c%u = convolution(%%%c", i, i > 0 ? 'y' : 'x');
        if (i > 0) {
            sx_buf_print(&text, "%u", i - 1);
        }
        sx_buf_print(
            &text,
            ", %%w%u) {stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], "
            "groups = 16} : f32[1, 16, 12, 12]\n"
            "  %%n%u = batch_norm(%%c%u, %%b%u_0, %%b%u_1, %%b%u_2, %%b%u_3) {axis = 1, eps "
            "= 1e-05} : f32[1, 16, 12, 12]\n"
            "  %%y%u = relu(%%n%u) : f32[1, 16, 12, 12]\n",
            i, i, i, i, i, i, i, i, i);
    }
    sx_buf_put_span(&text, sx_span_of("  %z = sort(%y7) {axis = 3, direction = gt, count = 4} : "
                                      "f32[1, 16, 12, 4]\n  return %z as \"z\"\n}\n"));
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &in));
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
    for (uint32_t nodes = 150; nodes < 20000; nodes += nodes / 2) {
        sx_optimize_options options = sx_optimize_defaults();
        sx_optimize_report report;
        options.whole = true;
        options.limits.nodes = nodes;
        ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
        for (uint32_t n = 0; n < out->node_count; n++) {
            sx_op op = out->node[n].op;
            ck_assert_msg(op != SX_OP_CONVOLUTION && op != SX_OP_SORT, "limit of %u nodes: %%%u",
                          nodes, n);
        }
    }
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.optimize.limits");
    TCase *cases = tcase_create("limits");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_bytes_are_held, 0, 4);
    tcase_add_test(cases, test_a_lost_log_loses_nothing);
    tcase_add_loop_test(cases, test_any_stop_goes_on, 0, 3);
    tcase_add_test(cases, test_long_chain);
    tcase_add_test(cases, test_many_equal_contractions);
    tcase_add_test(cases, test_operations_get_kernels);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
