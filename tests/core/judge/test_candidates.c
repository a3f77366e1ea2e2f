/* Right kernels are proven: every candidate that the search may choose, for both lane counts, of nodes of
 * every kind. */
#include "tests/core/judge/try.h"

#include "core/search/search.h"
#include "tests/lib/net.h"

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};

static void expect_candidates(sx_ctx *cx, sx_judge *judge, const node *n, const char *what)
{
    for (uint32_t t = 0; t < SX_COUNT(targets); t++) {
        const sx_device *device;
        sx_search_result result;
        ck_sx_ok(cx, sx_device_find(cx, sx_span_of(targets[t]), &device));
        ck_sx_ok(cx,
                 sx_search_kernel(cx, analysis_of(cx, n), device, true, SX_SEARCH_KEEP, &result));
        for (uint32_t c = 0; c < result.best_count; c++) {
            expect_proven(cx, judge, n, &result.best[c].schedule, what);
        }
    }
}

START_TEST(test_map)
{
    sx_ctx cx;
    sx_judge *judge;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    static const int64_t shape[][3] = {
        {30, 7, 20}, {1, 1, 1}, {4, 4, 64}, {3, 5, 7}, {64, 64, 100}};
    for (uint32_t k = 0; k < SX_COUNT(shape); k++) {
        node n = map_node(&cx, shape[k][0], shape[k][1], shape[k][2]);
        expect_candidates(&cx, judge, &n, "map");
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_dot)
{
    sx_ctx cx;
    sx_judge *judge;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    static const int64_t shape[][3] = {
        {64, 64, 64}, {1, 7, 9}, {33, 17, 100}, {128, 768, 200}, {5, 1, 3}};
    for (uint32_t k = 0; k < SX_COUNT(shape); k++) {
        node n = dot_node(&cx, shape[k][0], shape[k][1], shape[k][2], SX_OP_RELU);
        expect_candidates(&cx, judge, &n, "dot relu");
        n = dot_node(&cx, shape[k][0], shape[k][1], shape[k][2], SX_OP_GELU);
        expect_candidates(&cx, judge, &n, "dot gelu");
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_row)
{
    sx_ctx cx;
    sx_judge *judge;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    static const int64_t shape[][2] = {{64, 64}, {1, 7}, {33, 170}, {128, 768}, {5, 1}, {3, 129}};
    for (uint32_t k = 0; k < SX_COUNT(shape); k++) {
        for (int64_t axis = 0; axis < 2; axis++) {
            node n = row_node(&cx, SX_OP_SOFTMAX, shape[k][0], shape[k][1], axis);
            expect_candidates(&cx, judge, &n, axis == 1 ? "softmax" : "softmax across");
        }
        node n = row_node(&cx, SX_OP_LAYER_NORM, shape[k][0], shape[k][1], 1);
        expect_candidates(&cx, judge, &n, "layer norm");
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_attention)
{
    sx_ctx cx;
    sx_judge *judge;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    static const int64_t extent[][5] = {
        {3, 40, 100, 21, 9}, {1, 1, 1, 1, 1}, {2, 128, 128, 64, 64}, {2, 17, 300, 24, 33}};
    for (uint32_t k = 0; k < SX_COUNT(extent); k++) {
        for (uint32_t inside = 0; inside < 2; inside++) {
            node n = attention_node(&cx, inside == 1, extent[k]);
            expect_candidates(&cx, judge, &n, "attention");
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

static sx_code expect_node(sx_ctx *cx, const sx_attr *fused, const sx_type *input, uint32_t count,
                           void *self)
{
    node n = {.fused = *fused, .count = count};
    memcpy(n.input, input, count * sizeof(input[0]));
    expect_candidates(cx, self, &n, "node of a network");
    return SX_OK;
}

START_TEST(test_networks)
{
    static const char *const models[] = {"mlp", "encoder", "cnn"};
    sx_ctx cx;
    sx_judge *judge;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    ck_sx_ok(&cx, sx_test_each_fused(&cx, models[_i], "x86-64-v4", 8, expect_node, judge));
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/candidates");
    TCase *cases = tcase_create("judge");
    tcase_add_test(cases, test_map);
    tcase_add_test(cases, test_dot);
    tcase_add_test(cases, test_row);
    tcase_add_test(cases, test_attention);
    tcase_add_loop_test(cases, test_networks, 0, 3);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
