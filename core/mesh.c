/* mesh.c - how a program runs on its mesh, into the module: the plan of the optimised program beside that of
 * the input; and the program that each device runs, as text. */
#include "core/shard/local.h"
#include "core/ir/check.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"
#include "core/pipeline.h"

#define PLAN_FUEL UINT64_C(50000000) /* of each axis */
#define TEXT_MAX ((size_t)1 << 16)

static sx_module_text put_text(sx_image *image, sx_buf *text)
{
    sx_module_text put = sx_module_put_text(&image->strings, sx_buf_span(text));
    sx_buf_clear(text);
    return put;
}

/* "dp = 4, tp = 8" */
static sx_module_text put_mesh(sx_image *image, const sx_sharding *sharding, sx_buf *text)
{
    for (uint32_t a = 0; a < sharding->axis_count; a++) {
        sx_buf_put_text(text, a > 0 ? ", " : "");
        sx_symbol_print(sharding->axis[a].name, text);
        sx_buf_print(text, " = %lld", (long long)sharding->axis[a].size);
    }
    return put_text(image, text);
}

static void put_step(sx_image *image, const sx_graph *graph, const sx_plan_step *step, sx_buf *text)
{
    const sx_sharding *sharding = graph->sharding;
    sx_module_step record = {.sent_bytes = step->bytes,
                             .ns = step->ns,
                             .local_bytes = (uint64_t)sx_cost_bytes(NULL, 0, &step->local)};
    sx_buf_print(text, "%%%u", step->node);
    record.value = put_text(image, text);
    if (step->kind == SX_PLAN_COMPUTE) {
        sx_buf_put_text(text, sx_op_info_of(graph->node[step->node].op)->name);
        record.what = put_text(image, text);
    } else {
        sx_buf_put_text(text, sx_plan_kind_name(step->kind));
        record.what = put_text(image, text);
        sx_symbol_print(sharding->axis[step->axis].name, text);
        record.axis = put_text(image, text);
        sx_place_print(step->from, text);
        record.from = put_text(image, text);
        sx_place_print(step->to, text);
        record.to = put_text(image, text);
    }
    sx_places_print(sharding, &step->places, text);
    record.places = put_text(image, text);
    sx_type_print(&step->local, NULL, 0, text);
    record.local = put_text(image, text);
    sx_buf_put(&image->step, &record, sizeof(record));
}

/* The program for the extents of the request, where it gives any. */
static sx_code plan(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                    const sx_graph *graph, const sx_graph **planned, sx_plan **made)
{
    *planned = graph;
    if (request->binding_count > 0) {
        sx_graph *bound;
        SX_TRY(sx_graph_bind(cx, graph, request->binding, request->binding_count, &bound));
        *planned = bound;
    }
    return sx_plan_make(cx, *planned, device, PLAN_FUEL, made);
}

sx_code sx_pipe_mesh(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                     const sx_graph *input, const sx_graph *better, sx_image *image)
{
    if (input->sharding == NULL) {
        return SX_OK;
    }
    sx_buf text;
    sx_buf_init(&text, TEXT_MAX);
    sx_module_sharding record = {.mesh = put_mesh(image, input->sharding, &text)};
    sx_code code = SX_OK;
    if (better != NULL) {
        const sx_graph *graph;
        sx_plan *before, *after;
        code = plan(cx, request, device, input, &graph, &before);
        code = code == SX_OK ? plan(cx, request, device, better, &graph, &after) : code;
        for (uint32_t i = 0; code == SX_OK && i < after->step_count; i++) {
            put_step(image, graph, &after->step[i], &text);
        }
        if (code == SX_OK) {
            record.planned = 1;
            record.proven = after->proven ? 1 : 0;
            record.collectives = after->collective_count;
            record.input_collectives = before->collective_count;
            record.collective_bytes = after->collective_bytes;
            record.input_collective_bytes = before->collective_bytes;
            record.collective_ns = after->collective_ns;
            record.input_collective_ns = before->collective_ns;
            record.compute_ns = after->compute_ns;
            record.input_compute_ns = before->compute_ns;
        }
    }
    sx_buf_put(&image->sharding, &record, sizeof(record));
    sx_buf_fini(&text);
    return code;
}

/* Has the program whole tensors on a mesh, so that there is something to divide? */
static sx_code refuse_undivided(sx_ctx *cx, const sx_graph *graph)
{
    sx_collective first;
    if (graph->sharding == NULL) {
        sx_hint(cx, "Write mesh (NAME = DEVICES) behind its name, and how parameters lie on it.");
        return SX_FAIL(cx, SX_INPUT, "program \"%s\" has no mesh", sx_short_name(graph->name).text);
    }
    if (sx_collective_find(graph, &first)) {
        return SX_FAIL(cx, SX_INPUT,
                       "node %%%u is %s: with collectives it is the program of each device already",
                       first.node, sx_op_info_of(first.op)->name);
    }
    return SX_OK;
}

sx_code sx_core_local(sx_ctx *cx, const sx_core_request *request, sx_buf *text)
{
    const sx_device *device;
    const sx_target *target;
    sx_graph *graph, *bound, *canonical, *local;
    sx_plan *made;
    SX_TRY(sx_core_device(cx, request, &device, &target));
    SX_TRY(sx_graph_parse(cx, request->ir, &graph));
    SX_TRY(sx_graph_check(cx, graph));
    SX_TRY(refuse_undivided(cx, graph));
    SX_TRY(sx_graph_bind(cx, graph, request->binding, request->binding_count, &bound));
    SX_TRY(sx_graph_canon(cx, bound, &canonical));
    canonical->name = graph->name; /* for people */
    SX_ASSERT(canonical->sharding != NULL && canonical->symbol_count == 0);
    SX_TRY(sx_plan_make(cx, canonical, device, PLAN_FUEL, &made));
    SX_TRY(sx_plan_local(cx, canonical, made, &local));
    return sx_graph_print(cx, local, text);
}
