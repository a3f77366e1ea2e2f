#include "core/search/search.h"

#include <math.h>

#include "core/search/space.h"

/* Map and row kernels take about this many bytes per grid point: long enough to hide the call, short enough to balance. */
#define POINT_BYTES 32768.0
#define POINT_NS 20.0

static void keep(sx_search_result *result, const sx_lower_plan *plan, double cost_ns)
{
    uint32_t at = result->best_count;
    while (at > 0 && result->best[at - 1].cost_ns > cost_ns) {
        at--;
    }
    if (at == SX_SEARCH_KEEP) {
        return;
    }
    uint32_t last = result->best_count < SX_SEARCH_KEEP ? result->best_count++ : SX_SEARCH_KEEP - 1;
    for (uint32_t i = last; i > at; i--) {
        result->best[i] = result->best[i - 1];
    }
    result->best[at] = (sx_search_candidate){*plan, cost_ns};
}

typedef struct {
    sx_ctx *cx;
    const sx_search_problem *problem;
    sx_search_result *result;
} dot_visit;

static sx_code visit_dot(void *self, const sx_lower_plan *plan)
{
    dot_visit *visit = self;
    SX_TRY(sx_spend(visit->cx, 1));
    visit->result->considered++;
    switch (sx_dot_sieve(visit->problem, plan)) {
    case SX_PHASE_ROOFLINE: visit->result->dropped_roofline++; break;
    case SX_PHASE_ALIGNMENT: visit->result->dropped_alignment++; break;
    case SX_PHASE_RESOURCES: visit->result->dropped_resources++; break;
    case SX_PHASE_KEPT: keep(visit->result, plan, sx_dot_price(visit->problem, plan)); break;
    }
    return SX_OK;
}

static sx_code visit_online(void *self, const sx_lower_plan *plan)
{
    dot_visit *visit = self;
    SX_TRY(sx_spend(visit->cx, 1));
    visit->result->considered++;
    switch (sx_online_sieve(visit->problem, plan)) {
    case SX_PHASE_ROOFLINE: visit->result->dropped_roofline++; break;
    case SX_PHASE_ALIGNMENT: visit->result->dropped_alignment++; break;
    case SX_PHASE_RESOURCES: visit->result->dropped_resources++; break;
    case SX_PHASE_KEPT: keep(visit->result, plan, sx_online_price(visit->problem, plan)); break;
    }
    return SX_OK;
}

/* Elementwise and row kernels are bound by memory: rows per grid point are chosen so that points are neither tiny nor few. */
static sx_code search_rows(sx_ctx *cx, const sx_search_problem *problem, sx_search_result *result)
{
    const sx_device *device = problem->device;
    double work = fmax(sx_device_compute_ns(device, problem->flops),
                       sx_device_move_ns(device, problem->bytes));
    double row_bytes = problem->bytes / (double)problem->rows;
    for (int64_t rows = 1;; rows *= 2) {
        SX_TRY(sx_spend(cx, 1));
        result->considered++;
        bool last = rows >= problem->rows;
        double points = ceil((double)problem->rows / (double)rows);
        double imbalance = ceil(points / device->cores) * device->cores / points;
        double point_bytes = row_bytes * (double)rows;
        if (rows > 1 && point_bytes > device->l2_bytes / 2 && points < 4.0 * device->cores) {
            result->dropped_resources++;
        } else if (!last && point_bytes < POINT_BYTES / 32 && points > 64.0 * device->cores) {
            result->dropped_alignment++; /* the call would cost as much as the work */
        } else {
            sx_lower_plan plan = {
                .lanes = device->lanes, .block_m = 1, .block_nv = 1, .tile_m = rows, .unroll_k = 1};
            plan.tile_n = problem->kind == SX_KERNEL_MAP ? 16384 : 0;
            double calls = ceil(points / device->cores) * POINT_NS;
            keep(result, &plan,
                 fmax(work * imbalance + calls, problem->floor_ns) + device->launch_ns);
        }
        if (last) {
            return SX_OK;
        }
    }
}

static sx_code describe(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                        uint32_t input_count, const sx_device *device, bool rhs_constant,
                        sx_search_problem *problem)
{
    *problem =
        (sx_search_problem){.device = device, .rhs_constant = rhs_constant, .rows = 1, .inner = 1};
    problem->kind = sx_body_kernel_kind(fused->body);
    sx_type result;
    SX_TRY(sx_fused_infer(cx, fused, input, input_count, &result));
    sx_cost cost;
    SX_TRY(
        sx_cost_node(cx, device, NULL, 0, SX_OP_FUSED, fused, input, input_count, &result, &cost));
    problem->flops = cost.flops;
    problem->bytes = cost.bytes;
    problem->floor_ns = cost.floor_ns;
    if (problem->kind == SX_KERNEL_DOT) {
        return sx_dot_shape_of(cx, fused, input, input_count, &problem->dot);
    }
    if (problem->kind == SX_KERNEL_ONLINE) {
        return sx_online_shape_of(cx, fused, input, input_count, &problem->online);
    }
    for (uint32_t d = 0; d < fused->type.rank; d++) {
        bool inner = d + 1 == fused->type.rank || (fused->body->axes >> d & 1) != 0;
        int64_t *extent = inner ? &problem->inner : &problem->rows;
        *extent *= fused->type.dim[d].scale; /* within SX_ELEMENTS_MAX: the type was checked */
    }
    return SX_OK;
}

sx_code sx_search_fused(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                        uint32_t input_count, const sx_device *device, bool rhs_constant,
                        sx_search_result *result)
{
    *result = (sx_search_result){0};
    if (device->isa == 0) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "target %s: no code generator", device->name);
    }
    sx_search_problem problem;
    SX_TRY(describe(cx, fused, input, input_count, device, rhs_constant, &problem));
    result->floor_ns = problem.floor_ns;
    if (problem.kind == SX_KERNEL_DOT) {
        dot_visit visit = {cx, &problem, result};
        SX_TRY(sx_dot_space(&problem, visit_dot, &visit));
    } else if (problem.kind == SX_KERNEL_ONLINE) {
        dot_visit visit = {cx, &problem, result};
        SX_TRY(sx_online_space(&problem, visit_online, &visit));
    } else {
        SX_TRY(search_rows(cx, &problem, result));
    }
    SX_ASSERT(result->best_count > 0);
    SX_ASSERT(result->best[0].cost_ns >= result->floor_ns);
    return SX_OK;
}

void sx_search_plan_print(const sx_lower_plan *plan, sx_kernel_kind kind, sx_buf *text)
{
    if (kind == SX_KERNEL_DOT) {
        sx_buf_print(text, "block %ux%u, tile %lldx%lld, unroll %u, %s", plan->block_m,
                     plan->block_nv * plan->lanes, (long long)plan->tile_m, (long long)plan->tile_n,
                     plan->unroll_k, plan->packed_b ? "packed" : "direct");
    } else if (kind == SX_KERNEL_ONLINE) {
        sx_buf_print(text, "%u rows, strips of %u, %lld keys per block",
                     plan->block_nv * plan->lanes, plan->block_m, (long long)plan->tile_n);
    } else {
        sx_buf_print(text, "%u lanes, %lld rows per point", plan->lanes, (long long)plan->tile_m);
    }
}
