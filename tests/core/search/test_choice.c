/* What is dropped by a bound, or left for later, changes no choice: the search against one that prices every schedule,
 * on the contractions of tests/data/shapes and on random ones. */
#include "tests/core/loop/nodes.h"

#include <stdio.h>

#include "core/search/search.h"
#include "core/target/target.h"
#include "tests/lib/block_sweep.h"

typedef struct {
    sx_dtype dtype;
    int64_t b, m, n, k;
    bool turned; /* the right factor stands as [n, k] */
} shape;

static const sx_device *device_of(sx_ctx *cx, const char *name)
{
    const sx_device *device;
    ck_sx_ok(cx, sx_device_find(cx, sx_span_of(name), &device));
    return device;
}

static node product(sx_ctx *cx, const shape *s)
{
    sx_type x[2] = {TYPE(s->dtype, s->b, s->m, s->k), s->turned ? TYPE(s->dtype, s->b, s->n, s->k)
                                                                : TYPE(s->dtype, s->b, s->k, s->n)};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {s->turned ? 2 : 1}};
    return lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

static void text_of(const sx_search_result *found, uint32_t i, char text[SX_SCHEDULE_TEXT_MAX + 1])
{
    sx_buf buf;
    sx_buf_init(&buf, SX_SCHEDULE_TEXT_MAX + 1);
    sx_schedule_print(&found->best[i].schedule, &buf);
    (void)snprintf(text, SX_SCHEDULE_TEXT_MAX + 1, "%.*s", (int)buf.len, (const char *)buf.ptr);
    sx_buf_fini(&buf);
}

/* The candidates of both from the first to the last of `some`, with their prices. */
static void check_equal(const shape *s, const char *device, const sx_search_result *some,
                        const sx_search_result *all)
{
    char text[2][SX_SCHEDULE_TEXT_MAX + 1];
    ck_assert_uint_ge(all->best_count, some->best_count);
    ck_assert_uint_eq(all->matrix_count, some->matrix_count);
    for (uint32_t i = 0; i < some->best_count; i++) {
        text_of(some, i, text[0]);
        text_of(all, i, text[1]);
        ck_assert_msg(strcmp(text[0], text[1]) == 0 &&
                          some->best[i].cost_ns == all->best[i].cost_ns,
                      "%s: %s %lld of %lld x %lld x %lld: candidate %u is %s, not %s", device,
                      sx_dtype_name(s->dtype), (long long)s->b, (long long)s->m, (long long)s->n,
                      (long long)s->k, i, text[0], text[1]);
    }
}

/* A stage of the ring more must be better by half a percent, or more of them are not tried, though they may let a core
 * hold fewer, larger blocks that gain again. On products drawn here the cheapest block of the whole space, counted
 * without the search, was cheaper by up to 4.2 %. No bound lies above a price. */
#define STAGES_LEFT 0.05

static void check_whole_space(const shape *s, const sx_analysis *a, const sx_device *device,
                              const sx_search_result *found)
{
    const sx_target *target = sx_target_find(NULL, device->target);
    sx_test_sweep sweep;
    if (found->matrix_count > 0) {
        sx_test_sweep_blocks(
            device, a, sx_search_matrix(a, target->matrix, sx_search_matrices(device, target)),
            SX_SIDES_BOTH, &sweep);
    } else if (device->block_threads > 0 && s->dtype == SX_F32) { /* or the loop IR */
        sx_test_sweep_blocks(device, a, NULL, SX_SIDES_PLAIN, &sweep);
    } else {
        return;
    }
    ck_assert_msg(
        sweep.least_ns >= (1 - STAGES_LEFT) * found->best[0].cost_ns && sweep.bound_worst <= 1,
        "%s: %s %lld of %lld x %lld x %lld: %.1f ns, %.1f in %llu, bounds %.9f", device->name,
        sx_dtype_name(s->dtype), (long long)s->b, (long long)s->m, (long long)s->n, (long long)s->k,
        found->best[0].cost_ns, sweep.least_ns, (unsigned long long)sweep.count, sweep.bound_worst);
}

static uint64_t dropped; /* by bounds, of all that were compared */

static void compare(const shape *s, const char *name, uint32_t keep)
{
    sx_ctx cx;
    sx_search_result first, whole, all;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    cx.fuel = UINT64_MAX;
    node n = product(&cx, s);
    const sx_analysis *a = analysis_of(&cx, &n);
    const sx_device *device = device_of(&cx, name);
    ck_sx_ok(&cx, sx_search_first(&cx, a, device, false, keep, &first));
    ck_sx_ok(&cx, sx_search_kernel(&cx, a, device, false, keep, &whole));
    ck_sx_ok(&cx, sx_search_exhaustive(&cx, a, device, false, keep, &all));
    check_equal(s, name, &first, &all);
    check_equal(s, name, &first, &whole);
    check_whole_space(s, a, device, &first);
    ck_assert(first.more == (first.best_count < keep && (first.matrix_count > 0 || first.dearer)));
    ck_assert(!first.dearer || (device->block_threads > 0 && first.matrix_count == 0));
    for (uint32_t i = 1; first.dearer && i < whole.best_count; i++) {
        ck_assert(whole.best[i - 1].cost_ns <= whole.best[i].cost_ns);
        ck_assert(!sx_schedule_equal(&whole.best[i - 1].schedule, &whole.best[i].schedule));
    }
    ck_assert(!whole.more && whole.best_count >= first.best_count);
    ck_assert_uint_le(all.dropped_bound, first.dropped_bound);
    dropped += first.dropped_bound - all.dropped_bound;
    sx_ctx_fini(&cx);
}

/* The lines "NAME gemm:MxNxK TYPE nt|nn ORIGIN". */
START_TEST(test_shapes_of_models)
{
    static const char *const gpus[] = {"h100", "a100", "rtx4090"};
    char line[512], layout[8];
    uint32_t count = 0;
    FILE *file = fopen(SX_SOURCE_DIR "/tests/data/shapes/gpu.txt", "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        long long m, n, k;
        if (sscanf(line, "%*s gemm:%lldx%lldx%lld bf16 %7s", &m, &n, &k, layout) == 4) {
            shape s = {SX_BF16, 1, m, n, k, strcmp(layout, "nt") == 0};
            compare(&s, gpus[count % SX_COUNT(gpus)], SX_SEARCH_KEEP);
            compare(&s, "h100", 1);
            s.dtype = SX_F32;
            compare(&s, gpus[count % SX_COUNT(gpus)], SX_SEARCH_KEEP);
            count++;
        }
    }
    (void)fclose(file);
    ck_assert_uint_ge(count, 60);
    ck_assert_uint_gt(dropped, 0);
}
END_TEST

START_TEST(test_random_products)
{
    static const char *const devices[] = {"h100", "a100", "x86-64-v4"};
    static const sx_dtype types[] = {SX_BF16, SX_F16, SX_F32, SX_F64};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < (SX_SANITIZED ? 20u : 100u); i++) {
        shape s = {.dtype = types[i % SX_COUNT(types)],
                   .b = 1 + (int64_t)sx_rng_below(&rng, 5),
                   .m = 1 + (int64_t)sx_rng_below(&rng, UINT64_C(1) << sx_rng_below(&rng, 13)),
                   .n = 1 + (int64_t)sx_rng_below(&rng, UINT64_C(1) << sx_rng_below(&rng, 13)),
                   .k = 1 + (int64_t)sx_rng_below(&rng, UINT64_C(1) << sx_rng_below(&rng, 15)),
                   .turned = sx_rng_below(&rng, 2) != 0};
        compare(&s, devices[sx_rng_below(&rng, SX_COUNT(devices))],
                1 + (uint32_t)sx_rng_below(&rng, SX_SEARCH_KEEP));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.search.choice");
    TCase *tests = tcase_create("choice");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, test_shapes_of_models);
    tcase_add_test(tests, test_random_products);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
