/* Right kernels are proven: every candidate that the search may choose, for every lane count, of nodes of
 * every kind. */
#include "core/fuse/fuse.h"
#include "tests/core/judge/try.h"
#include "tests/core/loop/nested.h"

#include "core/search/search.h"
#include "tests/lib/net.h"

static const char *const targets[] = {"x86-64-v3", "x86-64-v4", "warp"};

static void expect_candidates(sx_ctx *cx, sx_judge *judge, const node *n, const char *what)
{
    for (uint32_t t = 0; t < SX_COUNT(targets); t++) {
        const sx_device warp = sx_test_warp_device(cx);
        const sx_device *device = &warp;
        sx_search_result result;
        if (strcmp(targets[t], warp.target) != 0) {
            ck_sx_ok(cx, sx_device_find(cx, sx_span_of(targets[t]), &device));
        }
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

/* Gradients of attention: 73, 145 and 361 keys would leave one behind the usual blocks, 65 leave one behind strips. */
START_TEST(test_nested)
{
    sx_ctx cx;
    sx_judge *judge;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    static const int64_t extent[][5] = {{3, 40, 100, 21, 1}, {1, 1, 1, 1, 1},
                                        {2, 128, 73, 24, 2}, {2, 17, 145, 24, 3},
                                        {1, 70, 361, 9, 2},  {1, 65, 65, 16, 2}};
    for (uint32_t k = 0; k < SX_COUNT(extent); k++) {
        for (uint32_t round = 0; round < 4; round++) {
            const int64_t *e = extent[k];
            nested_shape s = nested_gradient(e[0], e[1], e[2], e[3], round % 2 != 0);
            s.extent[N_AROUND] = e[4];
            s.causal = round > 1;
            s.products = 1 + (k + round) % 2;
            node n = nested_node(&cx, &s);
            expect_candidates(&cx, judge, &n, "gradient of attention");
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* The node with its argument `a` as a slice of a larger tensor, every `stride`-th of the last dimension. */
static node sliced(sx_ctx *cx, const node *reader, uint32_t a, int64_t stride)
{
    node n = *reader;
    const sx_type *through = &reader->input[a];
    sx_attr attr = {.present = sx_op_info_of(SX_OP_SLICE)->attrs};
    sx_type whole = *through;
    bool ok;
    for (uint32_t d = 0; d < through->rank; d++) {
        int64_t step = d + 1 == through->rank ? stride : 1;
        int64_t limit = 2 + (through->dim[d].scale - 1) * step + 1;
        attr.start.v[d] = 2;
        attr.limit.v[d] = limit;
        attr.stride.v[d] = step;
        whole.dim[d] = sx_dim_of(limit + 3);
    }
    attr.start.count = attr.limit.count = attr.stride.count = through->rank;
    ck_sx_ok(cx, sx_fused_absorb_view(cx, &reader->fused, a, SX_OP_SLICE, &attr, &whole, through,
                                      &n.fused, &ok));
    ck_assert(ok);
    n.input[a] = whole;
    return n;
}

/* Each argument in turn is read one element later than the node says. */
static void refuse_an_element_off(sx_ctx *cx, sx_judge *judge, const node *n, const char *what)
{
    const sx_device *device;
    sx_search_result result;
    for (uint32_t a = 0; a < n->count; a++) {
        node off = *n;
        sx_body *body = SX_NEW(cx, sx_body);
        ck_assert_ptr_nonnull(body);
        sx_body_copy(body, n->fused.body);
        body->access[a].offset.scale++;
        off.fused.body = body;
        const sx_analysis *an = analysis_of(cx, &off);
        ck_sx_ok(cx, sx_device_find(cx, sx_span_of(targets[a % 2]), &device));
        ck_sx_ok(cx, sx_search_kernel(cx, an, device, true, 1, &result));
        sx_kernel *kernel;
        sx_verdict verdict;
        const sx_schedule *schedule = &result.best[0].schedule;
        sx_judge_facts facts = sx_judge_facts_of(schedule, an->kind);
        ck_sx_ok(cx, sx_lower_fused(cx, sx_test_unit(schedule), "node", an, schedule, &kernel));
        ck_sx_ok(cx,
                 sx_judge_kernel(judge, &n->fused, n->input, n->count, &facts, kernel, &verdict));
        if (facts.panel > 0 && a == facts.argument && verdict.proven) { /* the pack reads it */
            int64_t size;
            ck_sx_ok(cx, sx_lower_pack(cx, "pack", an, schedule, &kernel, &size));
            ck_sx_ok(cx,
                     sx_judge_pack(judge, &n->fused, n->input, n->count, &facts, kernel, &verdict));
        }
        ck_assert_msg(!verdict.proven, "%s: argument %u is read one element later", what, a);
    }
}

/* Slices read by a map, row kernels, a contraction, an online sum and a nested contraction. */
START_TEST(test_slices)
{
    sx_ctx cx;
    sx_judge *judge;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
    static const int64_t extent[] = {2, 40, 100, 21, 9};
    nested_shape gradient = nested_gradient(2, 40, 80, 9, true);
    gradient.extent[N_AROUND] = 2;
    for (int64_t stride = 1; stride < 4; stride++) {
        node nodes[] = {map_node(&cx, 5, 7, 40),
                        row_node(&cx, SX_OP_SOFTMAX, 9, 70, 1),
                        row_node(&cx, SX_OP_SOFTMAX, 9, 70, 0),
                        dot_node(&cx, 33, 17, 50, SX_OP_RELU),
                        attention_node(&cx, true, extent),
                        nested_node(&cx, &gradient)};
        for (uint32_t k = 0; k < SX_COUNT(nodes); k++) {
            node n = nodes[k];
            for (uint32_t a = 0; a < n.count; a++) {
                n = sliced(&cx, &n, a, stride);
            }
            expect_candidates(&cx, judge, &n, "slice");
            refuse_an_element_off(&cx, judge, &n, "slice");
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
    tcase_add_test(cases, test_nested);
    tcase_add_test(cases, test_slices);
    tcase_add_loop_test(cases, test_networks, 0, 3);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
