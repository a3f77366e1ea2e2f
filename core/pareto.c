/* pareto.c - programs of which no other is better in both estimated time and peak memory.
 *
 * The extraction is repeated with a growing price on each byte that a result keeps, from nothing up to a price that leaves time as a tie-breaker only
 * (weighted sums find the convex part of the front; Ehrgott, Multicriteria Optimization, 2005, chapter 3). What each program really needs
 * is then found by placing its temporaries, and dominated programs are dropped.
 */
#include "core/pareto.h"

#include "core/ir/check.h"
#include "core/pipeline.h"
#include "core/plan/peak.h"

#define PRICES 12u
#define FIRST_PRICE (1.0 / 16) /* of a byte, in the time it takes to move it */
#define PRICE_FACTOR 4.0

typedef struct {
    sx_buf text;
    double time_ns, energy_nj;
    uint64_t peak_bytes;
} point;

static bool dominates(const point *a, const point *b)
{
    return a->time_ns <= b->time_ns && a->peak_bytes <= b->peak_bytes;
}

/* What one program needs, its extents bound. */
static sx_code measure(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                       const sx_graph *graph, point *p)
{
    sx_graph *bound;
    SX_TRY(sx_graph_bind(cx, graph, request->binding, request->binding_count, &bound));
    for (uint32_t n = 0; n < bound->node_count; n++) {
        const sx_node *node = &bound->node[n];
        sx_type input[SX_INPUTS_MAX];
        sx_cost cost;
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = sx_graph_node(bound, sx_graph_input(bound, node, k))->type;
        }
        SX_TRY(sx_cost_node(cx, device, NULL, 0, node->op, sx_graph_attr(bound, node), input,
                            node->input_count, &node->type, &cost));
        p->time_ns += node->input_count > 0 ? cost.cost_ns : 0;
        p->energy_nj += node->input_count > 0 ? cost.energy_nj : 0;
    }
    SX_TRY(sx_plan_peak(cx, bound, &p->peak_bytes));
    SX_TRY(sx_graph_print(cx, graph, &p->text));
    return sx_buf_check(cx, &p->text, "program");
}

/* One search, in memory of its own. */
static sx_code search(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                      const sx_optimize_options *base, double price, point *p)
{
    sx_ctx scratch;
    sx_graph *graph, *canonical, *better;
    sx_optimize_report report;
    sx_optimize_options options = *base;
    sx_ctx_init(&scratch, cx->arena.limit_bytes);
    scratch.fuel = cx->fuel;
    scratch.cancelled = cx->cancelled;
    scratch.cancelled_self = cx->cancelled_self;
    options.objective = (sx_objective){.time = 1, .memory = price};
    options.with_proof = false;
    options.with_certificate = false;
    sx_code code = sx_graph_parse(&scratch, request->ir, &graph);
    code = code == SX_OK ? sx_graph_canon(&scratch, graph, &canonical) : code;
    code =
        code == SX_OK ? sx_optimize(&scratch, canonical, device, &options, &better, &report) : code;
    code = code == SX_OK ? measure(&scratch, request, device, better, p) : code;
    if (code != SX_OK) {
        sx_hint(cx, "%s", scratch.error.hint);
        code = SX_FAIL(cx, code, "%s", scratch.error.text);
    }
    cx->fuel = scratch.fuel;
    sx_ctx_fini(&scratch);
    return code;
}

/* Keeps the points that no other dominates, fastest first; of equal ones the first found. */
static uint32_t keep_front(point *list, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool beaten = false;
        for (uint32_t k = 0; k < count && !beaten; k++) {
            bool equal = dominates(&list[k], &list[i]) && dominates(&list[i], &list[k]);
            beaten = k != i && dominates(&list[k], &list[i]) && (!equal || k < i);
        }
        if (!beaten) {
            uint32_t at = kept++;
            point p = list[i];
            list[i] = list[at];
            while (at > 0 && list[at - 1].time_ns > p.time_ns) {
                list[at] = list[at - 1];
                at--;
            }
            list[at] = p;
        }
    }
    return kept;
}

sx_code sx_core_pareto(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                       sx_image *image)
{
    sx_optimize_options options;
    SX_TRY(sx_semantic_options(cx, request, &options));
    options.snapshot = NULL;
    point list[PRICES] = {{.time_ns = 0}};
    uint32_t count = 0;
    double price = FIRST_PRICE * sx_device_move_ns(device, 1);
    sx_code code = SX_OK;
    for (; count < PRICES && code == SX_OK; count++) {
        if (cx->progress != NULL) {
            cx->progress(cx->progress_self, "pareto", count, PRICES);
        }
        sx_buf_init(&list[count].text, SX_TEXT_BYTES_MAX);
        code = search(cx, request, device, &options, count == 0 ? 0 : price, &list[count]);
        price *= count == 0 ? 1 : PRICE_FACTOR;
    }
    uint32_t kept = 0;
    if (code == SX_OK) {
        point all[PRICES];
        for (uint32_t i = 0; i < count; i++) {
            all[i] = list[i];
        }
        kept = keep_front(all, count);
        for (uint32_t i = 0; i < kept; i++) {
            sx_module_point record = {
                .program = sx_module_put_text(&image->strings, sx_buf_span(&all[i].text)),
                .time_ns = all[i].time_ns,
                .energy_nj = all[i].energy_nj,
                .peak_bytes = all[i].peak_bytes};
            sx_buf_put(&image->point, &record, sizeof(record));
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_fini(&list[i].text);
    }
    return code;
}
