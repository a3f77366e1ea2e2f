/* pareto.c - programs of which no other is better in both estimated time and peak memory.
 *
 * The extraction is repeated with a growing price on each byte that a result keeps, from nothing up to a price
 * that leaves time as a tie-breaker only (weighted sums find the convex part of the front; Ehrgott,
 * Multicriteria Optimization, 2005, chapter 3). What each program really needs is then found by placing its
 * temporaries, and dominated programs are dropped.
 */
#include "core/pareto.h"

#include "core/ir/check.h"
#include "core/ir/effect.h"
#include "core/pipeline.h"
#include "core/plan/peak.h"
#include "core/search/search.h"

#define FIRST_PRICE (1.0 / 16) /* of a byte, in the time it takes to move it */
#define PRICE_FACTOR 4.0

double sx_pareto_price(const sx_device *device, uint32_t index)
{
    double price = FIRST_PRICE * sx_device_move_ns(device, 1);
    for (uint32_t i = 1; i < index; i++) {
        price *= PRICE_FACTOR;
    }
    return index == 0 ? 0 : price;
}

static bool dominates(const sx_module_point *a, const sx_module_point *b)
{
    return a->time_ns <= b->time_ns && a->peak_bytes <= b->peak_bytes;
}

sx_code sx_pareto_measure(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                          const sx_graph *graph, sx_module_point *point)
{
    sx_graph *bound;
    *point = (sx_module_point){.time_ns = 0};
    SX_TRY(sx_graph_bind(cx, graph, request->binding, request->binding_count, &bound));
    sx_cost sum;
    SX_TRY(sx_price_program(cx, device, bound, &sum));
    point->time_ns = sum.cost_ns;
    point->energy_nj = sum.energy_nj;
    return sx_plan_peak(cx, bound, &point->peak_bytes);
}

static sx_code print_program(sx_ctx *cx, const sx_graph *graph, sx_buf *text)
{
    SX_TRY(sx_graph_print(cx, graph, text));
    return sx_buf_check(cx, text, "program");
}

/* One search, in memory of its own: what the request has left. */
static sx_code search(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                      const sx_optimize_options *base, double price, sx_module_point *point,
                      sx_buf *text)
{
    sx_ctx scratch;
    sx_graph *graph, *canonical, *better;
    sx_optimize_report report;
    sx_optimize_options options = *base;
    sx_ctx_init(&scratch, cx->arena.limit_bytes - cx->arena.used_bytes);
    scratch.fuel = cx->fuel;
    scratch.cancelled = cx->cancelled;
    scratch.cancelled_self = cx->cancelled_self;
    options.objective = (sx_objective){.time = 1, .memory = price};
    options.with_proof = false;
    options.with_certificate = false;
    sx_code code = sx_graph_parse(&scratch, request->ir, &graph);
    code = code == SX_OK ? sx_graph_canon(&scratch, graph, &canonical) : code;
    if (code == SX_OK) {
        canonical->name = graph->name;
    }
    sx_graph here = code == SX_OK ? *canonical : (sx_graph){.effects = NULL};
    here.effects = NULL;
    code = code == SX_OK ? sx_optimize(&scratch, &here, device, &options, &better, &report) : code;
    code = code == SX_OK ? sx_effects_restore(&scratch, canonical, better) : code;
    code = code == SX_OK ? sx_pareto_measure(&scratch, request, device, better, point) : code;
    code = code == SX_OK ? print_program(&scratch, better, text) : code;
    if (code != SX_OK) {
        sx_hint(cx, "%s", scratch.error.hint);
        code = SX_FAIL(cx, code, "%s", scratch.error.text);
    }
    cx->fuel = scratch.fuel;
    sx_ctx_fini(&scratch);
    return code;
}

uint32_t sx_pareto_keep(sx_module_point *point, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) { /* insertion by time, then memory, equal ones in order */
        sx_module_point p = point[i];
        uint32_t at = i;
        while (at > 0 &&
               (point[at - 1].time_ns > p.time_ns ||
                (point[at - 1].time_ns == p.time_ns && point[at - 1].peak_bytes > p.peak_bytes))) {
            point[at] = point[at - 1];
            at--;
        }
        point[at] = p;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || !dominates(&point[kept - 1], &point[i])) {
            point[kept++] = point[i];
        }
    }
    return kept;
}

sx_code sx_core_pareto(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                       sx_image *image)
{
    sx_optimize_options options;
    SX_TRY(sx_semantic_options(cx, request, &options));
    sx_module_point point[SX_PARETO_PRICES];
    sx_buf text[SX_PARETO_PRICES];
    uint32_t count = 0;
    sx_code code = SX_OK;
    for (; count < SX_PARETO_PRICES && code == SX_OK; count++) {
        if (cx->progress != NULL) {
            cx->progress(cx->progress_self, "pareto", count, SX_PARETO_PRICES);
        }
        sx_buf_init(&text[count], SX_TEXT_BYTES_MAX);
        code = search(cx, request, device, &options, sx_pareto_price(device, count), &point[count],
                      &text[count]);
        point[count].program.offset = count;
    }
    uint32_t kept = code == SX_OK ? sx_pareto_keep(point, count) : 0;
    for (uint32_t i = 0; i < kept; i++) {
        sx_span program = sx_buf_span(&text[point[i].program.offset]);
        point[i].program = sx_module_put_text(&image->strings, program);
    }
    sx_buf_put(&image->point, point, kept * sizeof(point[0]));
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_fini(&text[i]);
    }
    return code;
}
