/* The search: no estimate below the roofline floor, costs that grow with the problem, the same ranking for the
 * same problem, plans that fit the registers, and a candidate that runs right for every shape however odd. */
#include "tests/core/loop/nodes.h"

#include "core/search/search.h"
#include "tests/lib/compiled.h"

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
/* Devices whose points are warps beside them. */
static const char *const devices[] = {"x86-64-v3", "x86-64-v4", "a100", "h200", "rtx4090"};
#define SHAPES 200

static const sx_device *device_of(sx_ctx *cx, uint32_t i)
{
    const sx_device *device;
    ck_sx_ok(cx, sx_device_find(cx, sx_span_of(devices[i]), &device));
    return device;
}

static node dot_node(sx_ctx *cx, int64_t m, int64_t k, int64_t n)
{
    sx_type x[2] = {TYPE(SX_F32, m, k), TYPE(SX_F32, k, n)};
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    return lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

static node rows_node(sx_ctx *cx, bool row, int64_t a, int64_t b)
{
    sx_type x = TYPE(SX_F32, a, b);
    sx_attr attr = {.present = row ? SX_A(axis) : 0, .axis = row ? 1 : 0};
    return lift(cx, row ? SX_OP_SOFTMAX : SX_OP_TANH, &attr, &x, 1);
}

static sx_search_result search(sx_ctx *cx, const node *n, const sx_device *device, bool constant)
{
    sx_search_result result;
    ck_sx_ok(cx,
             sx_search_kernel(cx, analysis_of(cx, n), device, constant, SX_SEARCH_KEEP, &result));
    return result;
}

static int64_t extent(sx_rng *rng, uint32_t bits)
{
    return (int64_t)(1 + sx_rng_below(rng, UINT64_C(1) << sx_rng_below(rng, bits + 1)));
}

static node random_node(sx_ctx *cx, sx_rng *rng)
{
    uint64_t kind = sx_rng_below(rng, 4);
    if (kind < 2) {
        return dot_node(cx, extent(rng, 12), extent(rng, 12), extent(rng, 12));
    }
    return rows_node(cx, kind == 2, extent(rng, 12), extent(rng, 12));
}

static void check_result(sx_ctx *cx, const node *n, const sx_device *device,
                         const sx_search_result *result)
{
    ck_assert(result->best_count >= 1 && result->best_count <= SX_SEARCH_KEEP);
    ck_assert(result->floor_ns > 0);
    double last = result->floor_ns;
    for (uint32_t i = 0; i < result->best_count; i++) {
        const sx_search_candidate *c = &result->best[i];
        ck_assert_msg(c->cost_ns >= last, "candidate %u: %g ns after %g", i, c->cost_ns, last);
        last = c->cost_ns;
        ck_sx_ok(cx, sx_schedule_check(cx, &c->schedule, analysis_of(cx, n)));
        sx_block_tiles tiles; /* what blocks say is the business of test_blocks.c */
        if (sx_block_tiles_of(&c->schedule, &tiles)) {
            continue;
        }
        ck_assert_uint_eq(sx_schedule_lanes(&c->schedule), device->lanes);
        if (sx_body_kernel_kind(n->fused.body) == SX_KERNEL_DOT) {
            int64_t rows = sx_schedule_step(&c->schedule, SX_ROLE_ROW, SX_BIND_LOOP, 0);
            int64_t vectors =
                sx_schedule_step(&c->schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0) / device->lanes;
            ck_assert_int_le(rows * vectors + vectors + 2, device->registers);
        }
    }
    uint32_t kept = result->considered - result->dropped_roofline - result->dropped_alignment -
                    result->dropped_resources;
    ck_assert_uint_ge(kept, result->best_count);
}

START_TEST(test_floor)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < SHAPES; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        const sx_device *device = device_of(&cx, i % SX_COUNT(devices));
        node n = random_node(&cx, &rng);
        sx_search_result a = search(&cx, &n, device, i % 3 == 0);
        sx_search_result b = search(&cx, &n, device, i % 3 == 0);
        check_result(&cx, &n, device, &a);
        ck_assert_uint_eq(a.best_count, b.best_count);
        ck_assert_uint_eq(a.considered, b.considered);
        for (uint32_t c = 0; c < a.best_count; c++) {
            sx_buf text[2];
            for (uint32_t k = 0; k < 2; k++) {
                const sx_search_candidate *p = k == 0 ? &a.best[c] : &b.best[c];
                sx_buf_init(&text[k], 4096);
                sx_schedule_print(&p->schedule, &text[k]);
                sx_buf_print(&text[k], " %a", p->cost_ns);
            }
            ck_assert(sx_span_equal(sx_buf_span(&text[0]), sx_buf_span(&text[1])));
            sx_buf_fini(&text[0]);
            sx_buf_fini(&text[1]);
        }
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Twice the work in any direction never costs less. */
START_TEST(test_doubling)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < SHAPES; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        const sx_device *device = device_of(&cx, i % SX_COUNT(devices));
        int64_t e[3] = {extent(&rng, 11), extent(&rng, 11), extent(&rng, 11)};
        bool dot = i % 4 != 0, row = i % 8 == 0;
        node before = dot ? dot_node(&cx, e[0], e[1], e[2]) : rows_node(&cx, row, e[0], e[1]);
        double small = search(&cx, &before, device, true).best[0].cost_ns;
        uint32_t d = (uint32_t)sx_rng_below(&rng, dot ? 3 : 2);
        e[d] *= 2;
        node after = dot ? dot_node(&cx, e[0], e[1], e[2]) : rows_node(&cx, row, e[0], e[1]);
        double large = search(&cx, &after, device, true).best[0].cost_ns;
        ck_assert_msg(large >= small * (1 - 1e-9),
                      "%s: %lld x %lld x %lld with extent %u doubled costs %.1f ns, before %.1f",
                      dot ? "dot" : "rows", (long long)e[0], (long long)e[1], (long long)e[2], d,
                      large, small);
        sx_ctx_fini(&cx);
    }
}
END_TEST

static const int64_t odd[][3] = {{1, 1, 1},    {1, 1, 37},   {1, 64, 1},   {13, 1, 1},
                                 {1, 97, 101}, {97, 1, 101}, {97, 101, 1}, {2, 3, 5},
                                 {31, 37, 41}, {127, 7, 3},  {16, 16, 16}, {15, 17, 33}};

START_TEST(test_odd_shapes)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const int64_t *e = odd[_i];
    node n = dot_node(&cx, e[0], e[1], e[2]);
    for (uint32_t t = 0; t < 2; t++) {
        const sx_device *device = device_of(&cx, t);
        sx_search_result result = search(&cx, &n, device, false);
        check_result(&cx, &n, device, &result);
        if (!sx_test_can_run(targets[t])) {
            continue;
        }
        char text[1024];
        (void)snprintf(text, sizeof(text),
                       "sx 1\ngraph \"g\" () {\n"
                       "%%a = parameter {name = \"a\", weight = 0} : f32[%lld, %lld]\n"
                       "%%b = parameter {name = \"b\", weight = %u} : f32[%lld, %lld]\n"
                       "%%d = dot_general(%%a, %%b) {lhs_contract = [1], rhs_contract = [0]} : "
                       "f32[%lld, %lld]\n"
                       "%%s = softmax(%%d) {axis = 1} : f32[%lld, %lld]\n"
                       "%%y = tanh(%%s) : f32[%lld, %lld]\n"
                       "return %%d as \"d\", %%s as \"s\", %%y as \"y\"\n}\n",
                       (long long)e[0], (long long)e[1], t, (long long)e[1], (long long)e[2],
                       (long long)e[0], (long long)e[2], (long long)e[0], (long long)e[2],
                       (long long)e[0], (long long)e[2]);
        sx_test_request request = {.text = text, .target = targets[t]};
        sxr_close(sx_test_run(&cx, &request, 2));
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_no_code_generator)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    node n = dot_node(&cx, 4, 4, 4);
    sx_device device = *sx_device_at(0);
    sx_search_result result;
    device.name = "abacus";
    device.target = NULL;
    ck_sx_fails(&cx,
                sx_search_kernel(&cx, analysis_of(&cx, &n), &device, true, SX_SEARCH_KEEP, &result),
                SX_UNIMPLEMENTED, "abacus");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.search");
    TCase *cases = tcase_create("search");
    tcase_add_test(cases, test_floor);
    tcase_add_test(cases, test_doubling);
    tcase_add_loop_test(cases, test_odd_shapes, 0, (int)SX_COUNT(odd));
    tcase_add_test(cases, test_no_code_generator);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
