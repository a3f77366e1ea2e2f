#include "core/grad/grad.h"

#include <string.h>

#include "core/grad/sweep.h"
#include "core/ir/check.h"
#include "core/ir/effect.h"
#include "core/ir/origin.h"
#include "core/ir/plain.h"
#include "core/ir/shard.h"

/* One differentiation. */
typedef struct {
    sx_sweep s;
    const sx_graph *from;
    const sx_grad_request *request;
    sx_gradient *made;
    uint32_t output; /* of `from` */
    sx_node_id *wrt; /* [wrt_count] parameters of `from` */
    uint32_t wrt_count;
} task;

/* ---- what is asked for ---- */

static sx_code find_output(task *t)
{
    sx_span name = t->request->output;
    if (name.len == 0 && t->from->output_count != 1) {
        sx_short first = sx_short_name(t->from->output_count > 0 ? t->from->output[0].name : name);
        sx_hint(t->s.cx, "--of NAME of the client says it; the first output is \"%s\".",
                first.text);
        return SX_FAIL(t->s.cx, SX_INPUT,
                       "the program has %u outputs: which one is differentiated?",
                       t->from->output_count);
    }
    for (t->output = 0; t->output < t->from->output_count; t->output++) {
        if (name.len == 0 || sx_span_equal(t->from->output[t->output].name, name)) {
            break;
        }
    }
    if (t->output == t->from->output_count) {
        return SX_FAIL(t->s.cx, SX_INPUT, "output \"%.*s\": the program has none of this name",
                       (int)name.len, (const char *)name.ptr);
    }
    const sx_output *output = &t->from->output[t->output];
    const sx_type *type = &sx_graph_node(t->from, output->node)->type;
    if (!sx_is_float(type)) {
        return SX_FAIL(t->s.cx, SX_INPUT, "output \"%.*s\" is %s: gradients are of floats",
                       (int)output->name.len, (const char *)output->name.ptr,
                       sx_dtype_name(type->dtype));
    }
    return SX_OK;
}

static bool is_named(const task *t, uint32_t node)
{
    for (uint32_t i = 0; i < t->wrt_count; i++) {
        if (t->wrt[i].i == node) {
            return true;
        }
    }
    return false;
}

static sx_code find_parameter(task *t, sx_span name)
{
    for (uint32_t n = 0; n < t->from->node_count; n++) {
        const sx_node *node = &t->from->node[n];
        if (node->op != SX_OP_PARAMETER ||
            !sx_span_equal(sx_graph_attr(t->from, node)->name, name)) {
            continue;
        }
        if (!sx_is_float(&node->type)) {
            return SX_FAIL(t->s.cx, SX_INPUT, "parameter \"%.*s\" is %s: gradients are of floats",
                           (int)name.len, (const char *)name.ptr, sx_dtype_name(node->type.dtype));
        }
        if (is_named(t, n)) {
            return SX_FAIL(t->s.cx, SX_INPUT, "parameter \"%.*s\" is named twice", (int)name.len,
                           (const char *)name.ptr);
        }
        t->wrt[t->wrt_count++].i = n;
        return SX_OK;
    }
    return SX_FAIL(t->s.cx, SX_INPUT, "parameter \"%.*s\": the program has none of this name",
                   (int)name.len, (const char *)name.ptr);
}

static sx_code find_parameters(task *t)
{
    sx_ctx *cx = t->s.cx;
    uint32_t room = t->request->wrt_count + t->from->node_count;
    t->wrt = SX_NEW_ARRAY(cx, sx_node_id, room);
    t->made->skipped = SX_NEW_ARRAY(cx, sx_span, t->from->node_count);
    t->made->zero = SX_NEW_ARRAY(cx, sx_span, room);
    if (t->wrt == NULL || t->made->skipped == NULL || t->made->zero == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < t->request->wrt_count; i++) {
        SX_TRY(find_parameter(t, t->request->wrt[i]));
    }
    for (uint32_t n = 0; t->request->weights && n < t->from->node_count; n++) {
        const sx_node *node = &t->from->node[n];
        const sx_attr *attr = sx_graph_attr(t->from, node);
        if (node->op != SX_OP_PARAMETER || attr->weight == 0 || is_named(t, n)) {
            continue;
        }
        if (sx_is_float(&node->type)) {
            t->wrt[t->wrt_count++].i = n;
        } else {
            t->made->skipped[t->made->skipped_count++] = attr->name;
        }
    }
    if (t->wrt_count == 0) {
        return SX_FAIL(cx, SX_INPUT,
                       t->request->weights ? "the program has no weights of floats"
                                           : "no parameter is named");
    }
    return SX_OK;
}

/* The cotangent of the output: one for a scalar, else a parameter behind all others. */
static sx_code begin(task *t)
{
    sx_sweep *s = &t->s;
    const sx_output *output = &t->from->output[t->output];
    const sx_type type = sx_graph_node(t->from, output->node)->type;
    const sx_node_id value = s->image[output->node.i];
    if (type.rank == 0) {
        sx_put_cotangent(s, value, sx_step_constant(s, &type, 1));
        return s->code;
    }
    sx_buf name;
    sx_buf_init(&name, 2 * SX_NAME_MAX);
    sx_buf_print(&name, "cotangent(%.*s)", (int)output->name.len, (const char *)output->name.ptr);
    char *kept = sx_alloc_text(s->cx, sx_buf_span(&name));
    sx_buf_fini(&name);
    if (kept == NULL) {
        return s->cx->error.code;
    }
    sx_node_id parameter;
    SX_TRY(sx_build_parameter(s->cx, s->graph, kept, false, &type, &parameter));
    sx_put_cotangent(s, value, parameter);
    t->made->cotangent = sx_span_of(kept);
    return s->code;
}

/* What the sweep is about: the nodes that the output is and the parameters are. */
static sx_code choose(task *t)
{
    bool *wrt = SX_NEW_ARRAY(t->s.cx, bool, t->from->node_count);
    t->s.reached = SX_NEW_ARRAY(t->s.cx, bool, t->from->node_count);
    if (wrt == NULL || t->s.reached == NULL) {
        return t->s.cx->error.code;
    }
    for (uint32_t k = 0; k < t->wrt_count; k++) {
        wrt[t->wrt[k].i] = true;
    }
    t->s.wrt = wrt;
    t->s.reached[t->from->output[t->output].node.i] = true;
    return SX_OK;
}

/* ---- the result ---- */

static bool is_output(const sx_graph *graph, sx_span name)
{
    for (uint32_t k = 0; k < graph->output_count; k++) {
        if (sx_span_equal(graph->output[k].name, name)) {
            return true;
        }
    }
    return false;
}

static sx_code add_gradient(task *t, sx_span parameter, sx_node_id node)
{
    sx_span of = t->from->output[t->output].name;
    sx_buf name;
    sx_buf_init(&name, 4 * SX_NAME_MAX);
    sx_buf_print(&name, "grad(%.*s)", (int)parameter.len, (const char *)parameter.ptr);
    if (is_output(t->s.graph, sx_buf_span(&name))) {
        sx_buf_clear(&name);
        sx_buf_print(&name, "grad(%.*s, %.*s)", (int)of.len, (const char *)of.ptr,
                     (int)parameter.len, (const char *)parameter.ptr);
    }
    sx_code code = sx_graph_add_output(t->s.cx, t->s.graph, sx_buf_span(&name), node);
    sx_buf_fini(&name);
    return code;
}

static sx_code add_outputs(task *t)
{
    const sx_graph *from = t->from;
    for (uint32_t k = 0; k < from->output_count; k++) {
        sx_node_id node = t->s.image[from->output[k].node.i];
        SX_TRY(sx_graph_add_output(t->s.cx, t->s.graph, from->output[k].name, node));
    }
    for (uint32_t k = 0; k < t->wrt_count; k++) {
        const sx_node *parameter = sx_graph_node(from, t->wrt[k]);
        sx_span name = sx_graph_attr(from, parameter)->name;
        sx_node_id gradient = {t->s.cotangent[t->s.image[t->wrt[k].i].i]};
        if (gradient.i == SX_GRAD_NONE) {
            gradient = sx_step_constant(&t->s, &parameter->type, 0);
            SX_TRY(t->s.code);
            t->made->zero[t->made->zero_count++] = name;
        }
        SX_TRY(add_gradient(t, name, gradient));
    }
    return SX_OK;
}

/* Where nodes of the model became what: only names of the user's own are kept. */
static sx_code keep_origins(task *t)
{
    for (uint32_t n = 0; n < t->s.source_count; n++) {
        const sx_origin *origin = sx_origin_find(t->from->origins, t->s.source[n]);
        if (origin != NULL && origin->opset > 0) {
            SX_TRY(sx_graph_set_origin(t->s.cx, t->s.graph, n, origin));
        }
    }
    return SX_OK;
}

/* State stays state: the outputs of the program have their old numbers. */
static sx_code keep_effects(task *t)
{
    uint32_t *image = SX_NEW_ARRAY(t->s.cx, uint32_t, t->from->node_count);
    if (image == NULL) {
        return t->s.cx->error.code;
    }
    for (uint32_t n = 0; n < t->from->node_count; n++) {
        image[n] = t->s.image[n].i;
    }
    return sx_effects_copy(t->s.cx, t->from, image, t->s.graph);
}

static sx_code finish(task *t)
{
    sx_graph *canonical;
    sx_origins *origins;
    SX_TRY(sx_drop_unread(t->s.cx, t->s.graph));
    SX_TRY(keep_origins(t));
    SX_TRY(keep_effects(t));
    SX_TRY(sx_graph_canon_origins(t->s.cx, t->s.graph, &canonical, &origins));
    canonical->name = t->from->name;
    canonical->origins = origins;
    SX_TRY(sx_graph_check(t->s.cx, canonical));
    t->made->graph = canonical;
    return SX_OK;
}

sx_code sx_grad_make(sx_ctx *cx, const sx_graph *graph, const sx_grad_request *request,
                     sx_gradient *gradient)
{
    SX_ASSERT(request->wrt_count == 0 || request->wrt != NULL);
    *gradient = (sx_gradient){.graph = NULL};
    const sx_sharding *mesh = graph->sharding;
    if (mesh != NULL && (mesh->parameter_count > 0 || mesh->output_count > 0)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "gradient of a program with placements");
    }
    SX_TRY(sx_graph_plain(cx, graph, &graph));
    task t = {.s = {.cx = cx, .from = graph}, .from = graph, .request = request, .made = gradient};
    SX_TRY(find_output(&t));
    SX_TRY(find_parameters(&t));
    SX_TRY(choose(&t));
    SX_TRY(sx_sweep_forward(&t.s));
    SX_TRY(
        sx_sharding_copy(cx, graph, NULL, t.s.graph)); /* a mesh, whose ranks have a program each */
    SX_TRY(begin(&t));
    SX_TRY(sx_sweep_back(&t.s));
    SX_TRY(add_outputs(&t));
    SX_TRY(finish(&t));
    SX_ASSERT(gradient->graph->output_count == graph->output_count + t.wrt_count);
    return SX_OK;
}
