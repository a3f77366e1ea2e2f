/* Map, row and move kernels on devices whose lanes are threads, with a code generator and without: no price lies
 * below its floor, and a large kernel takes about the time that its bytes take, a small one that of some launches. */
#include "core/fuse/fuse.h"
#include "tests/lib/test.h"

#include "core/search/search.h"
#include "tests/lib/unit.h"

static sx_type shape(sx_dtype dtype, uint32_t rank, int64_t a, int64_t b)
{
    sx_type type = {.dtype = dtype, .rank = rank};
    type.dim[0] = sx_dim_of(a);
    type.dim[1] = sx_dim_of(b);
    return type;
}

typedef struct {
    const char *what;
    sx_op op;
    sx_dtype dtype;
    double reads, writes; /* times the bytes of the first input, by hand */
    double most;          /* of a large one, in times of its bytes */
} kernel_case;
static const kernel_case cases[] = {
    {"map of f32", SX_OP_NEGATE, SX_F32, 1, 1, 1.1},
    {"map of f64", SX_OP_ABS, SX_F64, 1, 1, 1.1},
    {"map of bf16", SX_OP_ADD, SX_BF16, 2, 1, 1.1},
    {"map of i64", SX_OP_MULTIPLY, SX_I64, 2, 1, 1.1},
    {"exp of f32", SX_OP_EXP, SX_F32, 1, 1, 1.1},
    {"row sums of f32", SX_OP_REDUCE, SX_F32, 1, 0, 1.1},
    {"row sums of f64", SX_OP_REDUCE, SX_F64, 1, 0, 1.1},
    {"softmax of f32", SX_OP_SOFTMAX, SX_F32, 1, 1, 1.1},
    {"reverse of f32", SX_OP_REVERSE, SX_F32, 1, 1, 1.1},
    {"concatenate of i8", SX_OP_CONCATENATE, SX_I8, 2, 2, 1.1},
};

static sx_cost price(sx_ctx *cx, const sx_device *device, const kernel_case *c, int64_t rows,
                     int64_t columns)
{
    sx_attr attr = {.present = sx_op_info_of(c->op)->attrs, .reducer = SX_SUM};
    sx_type input[2] = {shape(c->dtype, 2, rows, columns), shape(c->dtype, 2, rows, columns)};
    attr.dims = (sx_ints){1, {1}};
    attr.axis = 1;
    bool two = c->op == SX_OP_ADD || c->op == SX_OP_MULTIPLY || c->op == SX_OP_CONCATENATE;
    sx_type result;
    sx_cost cost;
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, c->op, &attr, input, two ? 2 : 1, &result));
    sx_price_subject subject = {
        .op = c->op, .attr = &attr, .input = input, .input_count = two ? 2 : 1, .result = &result};
    ck_sx_ok(cx, sx_price_node(cx, device, NULL, 0, &subject, &cost));
    return cost;
}

static void check_device(sx_ctx *cx, const sx_device *device)
{
    for (uint32_t k = 0; k < SX_COUNT(cases); k++) {
        const kernel_case *c = &cases[k];
        double moved = (c->reads + c->writes) * sx_dtype_bytes(c->dtype);
        double last = 0;
        for (int64_t rows = 1; rows <= 1 << 18; rows *= 8) {
            sx_cost cost = price(cx, device, c, rows, 4096);
            double bytes = moved * 4096.0 * (double)rows;
            double move = bytes / device->memory_bytes_per_ns;
            ck_assert_msg(cost.cost_ns >= cost.floor_ns && cost.floor_ns > 0, "%s, %s of %lld rows",
                          device->name, c->what, (long long)rows);
            ck_assert_msg(cost.cost_ns >= device->launch_ns && cost.cost_ns >= 0.99 * move,
                          "%s, %s of %lld rows: %g ns, its bytes %g", device->name, c->what,
                          (long long)rows, cost.cost_ns, move);
            ck_assert_msg(cost.cost_ns >= last, "%s, %s: more rows take less", device->name,
                          c->what);
            last = cost.cost_ns;
            bool summed = c->op == SX_OP_REDUCE || c->op == SX_OP_SOFTMAX; /* a row: one warp */
            if (rows == 1 && !summed) {
                /* 4096 elements are 32 points of four vectors at least: each waits for memory once. */
                double wait = device->memory_latency / device->ghz;
                ck_assert_msg(cost.cost_ns <= device->launch_ns + 2 * wait + move,
                              "%s, a small %s: %g ns, a launch %g, its bytes %g", device->name,
                              c->what, cost.cost_ns, device->launch_ns, move);
            }
            if (rows == 1 << 18) { /* gigabytes: their way from memory and back */
                ck_assert_msg(cost.cost_ns <= c->most * move + device->launch_ns,
                              "%s, a large %s: %g ns, its bytes %g", device->name, c->what,
                              cost.cost_ns, move);
            }
        }
    }
}

START_TEST(test_prices)
{
    sx_ctx cx;
    uint32_t devices = 0;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        if (sx_device_at(i)->block_threads != 0) {
            ck_assert_ptr_nonnull(sx_device_at(i)->target);
            check_device(&cx, sx_device_at(i));
            devices++;
        }
    }
    ck_assert_uint_ge(devices, 5);
    const sx_device warp = sx_test_warp_device(&cx);
    check_device(&cx, &warp);
    sx_ctx_fini(&cx);
}
END_TEST

/* A device whose lanes are threads is full when all its warps run. A warp that is alone waits for memory at each turn
 * of its loop, and many wait no longer; a large kernel is cut in about as many points as run at once, or more. */
START_TEST(test_few_warps)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const sx_device warp = sx_test_warp_device(&cx);
    double at_once = sx_device_points(&warp);
    ck_assert_double_eq(at_once, 132.0 * 64);
    const kernel_case *sums = &cases[5];
    ck_assert_int_eq(sums->op, SX_OP_REDUCE);
    sx_cost one = price(&cx, &warp, sums, 1, 4096);
    sx_cost ten = price(&cx, &warp, sums, 10, 4096);
    sx_cost full = price(&cx, &warp, sums, 132 * 64, 4096);
    /* Lanes have two elements side by side, and 16 loads stand in front of what is made of them. */
    double turns = 4096.0 / (16 * 32);
    double waits = turns * warp.memory_latency / warp.ghz;
    ck_assert_double_ge(one.cost_ns - warp.launch_ns, waits); /* and lanes are folded once */
    ck_assert_double_eq_tol(one.cost_ns - warp.launch_ns, waits, 0.1 * waits);
    ck_assert_double_eq_tol(ten.cost_ns, one.cost_ns, 1e-9 * one.cost_ns);
    double moves = 4.0 * 4096 * at_once / warp.memory_bytes_per_ns;
    ck_assert_double_ge(full.cost_ns - warp.launch_ns, moves);
    ck_assert_double_eq_tol(full.cost_ns - warp.launch_ns, moves, 0.05 * moves);
    for (uint32_t k = 0; k < 5; k++) { /* the maps */
        sx_attr none = {.present = 0};
        sx_attr fused;
        sx_type x[2] = {shape(cases[k].dtype, 2, 4096, 4096), shape(cases[k].dtype, 2, 4096, 4096)};
        uint32_t count = cases[k].reads > 1 ? 2 : 1;
        sx_analysis *a = SX_NEW(&cx, sx_analysis);
        sx_search_result found;
        ck_sx_ok(&cx, sx_fused_lift(&cx, cases[k].op, &none, x, count, &x[0], &fused));
        ck_sx_ok(&cx, sx_analysis_make(&cx, &fused, x, count, a));
        ck_sx_ok(&cx, sx_search_kernel(&cx, a, &warp, false, 1, &found));
        const sx_schedule *s = &found.best[0].schedule;
        int64_t rows = sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_GRID, 0);
        int64_t columns = sx_schedule_step(s, SX_ROLE_COLUMN, SX_BIND_GRID, 0);
        double points = 4096.0 * 4096.0 / (double)(rows * columns);
        ck_assert_uint_eq(sx_schedule_lanes(s), 32);
        ck_assert_msg(points >= 0.9 * at_once, "%s: %g points", cases[k].what, points);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* The analysis of softmax over rows, and what it takes under a schedule. */
static double price_softmax(sx_ctx *cx, const sx_device *device, int64_t rows, int64_t length,
                            const sx_schedule *s, sx_search_result *found, double *bytes)
{
    sx_attr attr = {.present = SX_A(axis), .axis = 1};
    sx_attr fused;
    sx_type x = shape(SX_F32, 2, rows, length);
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    ck_sx_ok(cx, sx_fused_lift(cx, SX_OP_SOFTMAX, &attr, &x, 1, &x, &fused));
    ck_sx_ok(cx, sx_analysis_make(cx, &fused, &x, 1, a));
    ck_assert_uint_eq(a->passes.passes, 3);
    ck_assert_uint_eq(a->passes.reductions, 2);
    ck_assert_double_eq(a->passes.bytes_again, 2.0 * 4 * (double)(rows * length));
    *bytes = 4.0 * (double)(rows * length);
    if (found != NULL) {
        ck_sx_ok(cx, sx_search_kernel(cx, a, device, false, 1, found));
        return found->best[0].cost_ns;
    }
    return sx_cost_schedule(device, a, s, false);
}

/* Softmax walks its rows three times. Rows that registers hold are read once; others come from memory again where the
 * second level does not hold those that are worked at, and else from there, as fast as the cores that have rows. */
START_TEST(test_read_again)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const sx_device warp = sx_test_warp_device(&cx);
    sx_search_result found;
    sx_schedule s;
    double bytes;
    double ns = price_softmax(&cx, &warp, 1 << 18, 2048, NULL, &found, &bytes);
    double moves = 2 * bytes / warp.memory_bytes_per_ns;
    ck_assert_double_le(ns, 1.05 * moves + warp.launch_ns);
    sx_schedule_row_wide(1, 8, &s); /* in lines of a loop: nothing is held */
    ns = price_softmax(&cx, &warp, 1 << 18, 2048, &s, NULL, &bytes);
    ck_assert_double_ge(ns, 2 * moves); /* three reads and a write, not one of each */
    /* A block for each of a few rows of a megabyte: all of them stay in the second level. */
    ns = price_softmax(&cx, &warp, 16, 1 << 18, NULL, &found, &bytes);
    ck_assert_int_gt(sx_schedule_step(&found.best[0].schedule, SX_ROLE_SUM, SX_BIND_WARP, 0), 0);
    ck_assert_double_ge(ns, 4 * bytes / (16 * warp.l2_bytes_per_ns));
    double one = price_softmax(&cx, &warp, 16, 1 << 18, &s, NULL, &bytes);
    ck_assert_double_ge(one, 5 * ns);
    sx_ctx_fini(&cx);
}
END_TEST

/* The cheapest of a product of i32, which has no blocks of threads, is the one of the whole space, although register
 * blocks that cost the same are priced once. */
START_TEST(test_products)
{
    static const char *const devices[] = {"a100", "h100", "generic-sm80"};
    static const int64_t extents[][3] = {{512, 768, 3072}, {100, 64, 300}, {37, 500, 130},
                                         {200, 96, 1000},  {61, 33, 770},  {4096, 256, 4096},
                                         {9000, 64, 3000}, {17, 300, 40},  {49, 64, 8000}};
    for (uint32_t k = 0; k < SX_COUNT(extents); k++) {
        sx_ctx cx;
        sx_attr fused;
        sx_analysis a;
        sx_type result;
        const sx_device *device;
        sx_search_result first, all;
        const int64_t *e = extents[k];
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        cx.fuel = UINT64_MAX;
        sx_type x[2] = {shape(SX_I32, 2, e[0], e[1]), shape(SX_I32, 2, e[1], e[2])};
        sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
        attr.lhs_contract = (sx_ints){1, {1}};
        attr.rhs_contract = (sx_ints){1, {0}};
        ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(devices[_i]), &device));
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, SX_OP_DOT_GENERAL, &attr, x, 2, &result));
        ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2, &result, &fused));
        ck_sx_ok(&cx, sx_analysis_make(&cx, &fused, x, 2, &a));
        ck_sx_ok(&cx, sx_search_first(&cx, &a, device, false, 1, &first));
        ck_sx_ok(&cx, sx_search_exhaustive(&cx, &a, device, false, 1, &all));
        ck_assert_msg(first.best[0].cost_ns <= all.best[0].cost_ns, "%s, %u: %g ns, not %g",
                      devices[_i], k, first.best[0].cost_ns, all.best[0].cost_ns);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("search/threads");
    TCase *tcase = tcase_create("threads");
    tcase_add_test(tcase, test_prices);
    tcase_add_test(tcase, test_few_warps);
    tcase_add_test(tcase, test_read_again);
    tcase_add_loop_test(tcase, test_products, 0, 3);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
