/* optimized.h - what tests of whole programs share: optimise one, with a rule left out if wanted, and compare
 * it to what it was. */
#ifndef SX_TESTS_CORE_OPTIMIZE_OPTIMIZED_H
#define SX_TESTS_CORE_OPTIMIZE_OPTIMIZED_H
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/proof/certificate.h"
#include "core/egraph/multi.h"
#include "core/optimize/optimize.h"
#include "tests/core/rules/instances_merge.h"
#include "tests/core/rules/values.h"

static sx_ctx cx;
static const sx_device *device;
static sx_optimize_report report;

static inline void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
}

static inline void teardown(void)
{
    sx_ctx_fini(&cx);
}

static inline sx_graph *parse(const char *text)
{
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    return graph;
}

/* `rule`: one name, or two with a comma between; NULL: none. */
static inline sx_graph *optimize_without(const sx_graph *in, const char *rule)
{
    sx_graph *out;
    sx_optimize_options options = sx_optimize_defaults();
    sx_span disabled[2] = {sx_span_of(rule != NULL ? rule : "")};
    const char *comma = rule != NULL ? strchr(rule, ',') : NULL;
    if (comma != NULL) {
        disabled[0].len = (size_t)(comma - rule);
        disabled[1] = sx_span_of(comma + 1);
    }
    options.disabled = disabled;
    options.disabled_count = rule == NULL ? 0 : comma == NULL ? 1 : 2;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_sx_ok(&cx, sx_graph_check(&cx, out));
    return out;
}

static inline sx_graph *optimize(const sx_graph *in)
{
    return optimize_without(in, NULL);
}

static inline uint32_t count_contractions(const sx_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        count += node->op == SX_OP_DOT_GENERAL ||
                         (node->op == SX_OP_FUSED &&
                          sx_body_kernel_kind(sx_graph_attr(graph, node)->body) == SX_KERNEL_DOT)
                     ? 1
                     : 0;
    }
    return count;
}

static inline const sx_graph *bound_to(const sx_graph *graph, int64_t extent)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_graph *bound;
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        binding[i] = (sx_binding){graph->symbol[i].name, extent};
    }
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, binding, graph->symbol_count, &bound));
    return bound;
}

/* Greatest deviation of two programs of one interface on random arguments. */
static inline double differ(const sx_graph *a, const sx_graph *b, sx_eval_mode mode, uint64_t seed)
{
    const sx_graph *graph[2] = {bound_to(a, 3), bound_to(b, 3)};
    sx_tensor *result[2];
    for (uint32_t i = 0; i < 2; i++) {
        sx_tensor *argument;
        uint32_t count;
        sx_rng rng = {seed};
        ck_sx_ok(&cx, random_arguments(&cx, &rng, graph[i], mode, FILL_PLAIN, &argument, &count));
        result[i] = SX_NEW_ARRAY(&cx, sx_tensor, a->output_count);
        ck_sx_ok(&cx,
                 sx_graph_eval(&cx, graph[i], mode, argument, count, result[i], a->output_count));
    }
    double worst = 0;
    for (uint32_t k = 0; k < a->output_count; k++) {
        double gap = deviation(&result[0][k], &result[1][k], mode);
        worst = gap > worst ? gap : worst;
    }
    return worst;
}
#endif
