/* pipeline.c - the compiler, stage by stage; the first file to read. Each stage is fed by the one before it:
 *   parse -> check -> canon -> optimise (e-graph, symbolic extents) -> bind extents -> kernels (search,
 *   lowering, proof, machine code) -> places -> tables. */
#include "core/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "core/proof/certificate.h"
#include "core/ir/settle.h"
#include "core/ir/check.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"
#include "core/pareto.h"
#include "core/search/search.h"

/* ---- front: text to an optimised static graph ---- */

/* `origins` NULL: nobody asks where the nodes come from. */
static sx_code read_program(sx_ctx *cx, sx_span text, sx_graph **canonical, sx_origins **origins)
{
    uint32_t stage = sx_stage_begin(cx, "parse");
    sx_graph *graph;
    SX_TRY(origins != NULL ? sx_graph_parse_named(cx, text, &graph)
                           : sx_graph_parse(cx, text, &graph));
    SX_TRY(sx_graph_check(cx, graph));
    if (origins != NULL) {
        SX_TRY(sx_graph_canon_origins(cx, graph, canonical, origins));
    } else {
        SX_TRY(sx_graph_canon(cx, graph, canonical));
    }
    (*canonical)->name = graph->name; /* for people: the key does not know it */
    sx_stage_end(cx, stage, "done", (*canonical)->node_count);
    return SX_OK;
}

static bool wants_front(const sx_core_request *request)
{
    return sx_span_is(request->objective, "pareto");
}

/* Only code serves intervals. */
static sx_code refuse_intervals(sx_ctx *cx, const sx_core_request *request)
{
    if (request->interval_count == 0) {
        return SX_OK;
    }
    const sx_interval *first = &request->interval[0];
    return SX_FAIL(cx, SX_INPUT,
                   "symbol \"%s\" has the interval %lld..%lld: compile makes code for it, optimize "
                   "takes values",
                   sx_short_name(first->name).text, (long long)first->low, (long long)first->high);
}

/* The cheapest equal program; *meeting says whether a stored one answered. */
/* Kernels of which no schedule could be proven: the program is extracted again without them. */
#define REFUSED_MAX 8u
typedef struct {
    const sx_attr *attr[REFUSED_MAX];
    uint32_t count;
} refused_kernels;

static sx_code optimise(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                        const sx_graph *graph, bool certify, const refused_kernels *refused,
                        sx_graph **better, sx_optimize_report *report, sx_meeting *meeting)
{
    sx_optimize_options options;
    SX_TRY(sx_semantic_options(cx, request, &options));
    options.with_certificate = certify;
    options.refused = refused->attr;
    options.refused_count = refused->count;
    SX_TRY(sx_semantic_find(cx, request, graph, device, &options, better, report));
    if (*better == NULL) {
        uint32_t stage = sx_stage_begin(cx, "saturate");
        SX_TRY(sx_optimize(cx, graph, device, &options, better, report));
        SX_TRY(sx_graph_check(cx, *better));
        sx_stage_end(cx, stage, sx_eg_stop_name(report->stop), report->nodes - report->met_nodes);
    }
    return sx_semantic_end(cx, request, &options, report, *better, meeting);
}

/* ---- tensors of leaves ---- */

/* An earlier variant has the same constant: the elements at `offset` are not needed. */
static bool share_constant(const sx_pipe *pipe, const sx_type *type, uint64_t offset,
                           uint32_t *index)
{
    const sx_buf *data = &pipe->image->constants;
    bool same = false;
    for (uint32_t i = 0; pipe->variant > 0 && i < pipe->tensor_count && !same; i++) {
        const sx_module_tensor *other = &pipe->tensor[i].record;
        same = other->place == SX_TENSOR_CONSTANT && other->dtype == (uint32_t)type->dtype &&
               other->rank == type->rank && other->size == data->len - offset &&
               memcmp(data->ptr + other->offset, data->ptr + offset, (size_t)other->size) == 0;
        for (uint32_t d = 0; same && d < type->rank; d++) {
            same = other->dim[d] == type->dim[d].scale;
        }
        *index = i;
    }
    return same;
}

/* A constant's elements: one element given fills the tensor. */
static sx_code put_constant(sx_ctx *cx, sx_pipe *pipe, const sx_node *node, const sx_attr *attr,
                            sx_node_id id)
{
    int64_t elements = sx_tensor_elements(&node->type);
    uint32_t element = sx_dtype_bytes(node->type.dtype);
    if (elements > SX_PIPE_CONSTANT_BYTES_MAX / element) {
        return SX_FAIL(cx, SX_LIMIT, "constant %%%u: %lld elements, at most %lld", id.i,
                       (long long)elements, (long long)(SX_PIPE_CONSTANT_BYTES_MAX / element));
    }
    sx_buf *data = &pipe->image->constants;
    sx_buf_pad(data, 64);
    uint64_t offset = data->len;
    bool splat = attr->data.len == element;
    for (int64_t i = 0; splat && i < elements; i++) {
        sx_buf_put_span(data, attr->data);
    }
    if (!splat) {
        sx_buf_put_span(data, attr->data);
    }
    SX_TRY(sx_buf_check(cx, data, "constants"));
    if (share_constant(pipe, &node->type, offset, &pipe->tensor_of[id.i])) {
        data->len = offset;
        return SX_OK;
    }
    SX_TRY(sx_pipe_add_tensor(cx, pipe, SX_SPAN_LITERAL("constant"), &node->type,
                              data->len - offset, SX_TENSOR_CONSTANT, &pipe->tensor_of[id.i]));
    sx_pipe_tensor *tensor = &pipe->tensor[pipe->tensor_of[id.i]];
    tensor->record.offset = offset;
    tensor->constant = true;
    return SX_OK;
}

static sx_code put_parameter(sx_ctx *cx, sx_pipe *pipe, const sx_node *node, const sx_attr *attr,
                             sx_node_id id)
{
    const sx_type *symbolic = &sx_graph_node(pipe->better, id)->type;
    if (sx_graph_role(pipe->graph, id.i) == SX_KEEP_STATE) {
        return sx_pipe_put_state(cx, pipe, id);
    }
    SX_TRY(sx_pipe_add_shared(cx, pipe, attr->name, &node->type, symbolic,
                              attr->weight ? SX_TENSOR_WEIGHT : SX_TENSOR_INPUT,
                              &pipe->tensor_of[id.i]));
    sx_pipe_tensor *tensor = &pipe->tensor[pipe->tensor_of[id.i]];
    tensor->constant = attr->weight != 0;
    if (attr->weight) {
        tensor->record.offset = UINT64_MAX;
    }
    return SX_OK;
}

/* ---- back: nodes to kernels ---- */

/* The output whose value this tensor becomes directly, or UINT32_MAX; not one that goes into a parameter. */
static uint32_t output_of_node(const sx_pipe *pipe, sx_node_id id)
{
    const sx_graph *graph = pipe->graph;
    for (uint32_t k = 0; k < graph->output_count; k++) {
        sx_node_id root = graph->output[k].node;
        if (sx_graph_into(graph, k) != SX_NOWHERE) {
            continue;
        }
        while (sx_graph_node(graph, root)->op == SX_OP_RESHAPE) {
            root = sx_graph_input(graph, sx_graph_node(graph, root), 0);
        }
        if (root.i == id.i) {
            return k;
        }
    }
    return UINT32_MAX;
}

sx_code sx_pipe_add_output(sx_ctx *cx, sx_pipe *pipe, uint32_t output, uint32_t *index)
{
    const sx_output *its = &pipe->graph->output[output];
    const sx_type *type = &sx_graph_node(pipe->graph, its->node)->type;
    const sx_type *symbolic = &sx_graph_node(pipe->better, pipe->better->output[output].node)->type;
    return sx_pipe_add_shared(cx, pipe, its->name, type, symbolic, SX_TENSOR_OUTPUT, index);
}

sx_code sx_pipe_result(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor,
                       uint32_t *result)
{
    const sx_type *type = &sx_graph_node(pipe->graph, id)->type;
    uint64_t size = (uint64_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    uint32_t output = output_tensor != NULL ? output_of_node(pipe, id) : UINT32_MAX;
    if (output == UINT32_MAX) {
        return sx_pipe_add_tensor(cx, pipe, SX_SPAN_LITERAL(""), type, size, SX_TENSOR_TEMPORARY,
                                  result);
    }
    SX_TRY(sx_pipe_add_output(cx, pipe, output, result));
    output_tensor[output] = *result;
    return SX_OK;
}

/* Is the node the same for all values that the variant serves? It is for those that are looked at. */
static bool is_same_for_all(const sx_pipe *pipe, sx_node_id id)
{
    const sx_node *node = sx_graph_node(pipe->graph, id);
    uint32_t count = pipe->steady != NULL && !pipe->inside ? pipe->steady->count : 0;
    bool same = true;
    for (uint32_t k = 0; k < count && same; k++) {
        const sx_graph *graph = pipe->steady->graph[k];
        const sx_node *there = sx_graph_node(graph, id);
        same = sx_type_equal(&node->type, &there->type) &&
               sx_attr_equal(sx_graph_attr(pipe->graph, node), sx_graph_attr(graph, there));
    }
    return same;
}

/* Where the value of a node goes: an output, a new version that is to be written in place (*version), the prologue's
 * tensors, or a temporary. */
static sx_code place_result(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor,
                            uint32_t *version, uint32_t *result)
{
    const sx_graph *graph = pipe->graph;
    const sx_node *node = sx_graph_node(graph, id);
    uint64_t size = (uint64_t)sx_tensor_elements(&node->type) * sx_dtype_bytes(node->type.dtype);
    bool constant = true;
    for (uint32_t k = 0; k < node->input_count; k++) {
        constant =
            constant && pipe->tensor[pipe->tensor_of[sx_graph_input(graph, node, k).i]].constant;
    }
    constant = constant && is_same_for_all(pipe, id); /* or each run makes it */
    uint32_t output = output_tensor != NULL ? output_of_node(pipe, id) : UINT32_MAX;
    *version = output == UINT32_MAX && !constant ? sx_pipe_version_of(pipe, id) : SX_NOWHERE;
    sx_module_place place = constant ? SX_TENSOR_PERSISTENT : SX_TENSOR_TEMPORARY;
    if (output != UINT32_MAX && !constant) {
        SX_TRY(sx_pipe_add_output(cx, pipe, output, result));
        output_tensor[output] = *result;
    } else if (*version != SX_NOWHERE) {
        SX_TRY(sx_pipe_target(cx, pipe, *version, result));
    } else {
        SX_TRY(sx_pipe_add_tensor(cx, pipe, SX_SPAN_LITERAL(""), &node->type, size, place, result));
    }
    pipe->tensor[*result].constant = constant;
    pipe->tensor_of[id.i] = *result;
    return SX_OK;
}

static sx_code compile_node(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor)
{
    uint32_t version, result;
    SX_TRY(place_result(cx, pipe, id, output_tensor, &version, &result));
    SX_TRY(sx_pipe_kernel(cx, pipe, id, result));
    return version != SX_NOWHERE ? sx_pipe_settle(cx, pipe, id, version) : SX_OK;
}

/* All nodes of a group when the first of them comes. */
static sx_code compile_group(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_group *group,
                             uint32_t *output_tensor)
{
    uint32_t version[SX_FUSED_RESULTS_MAX], result[SX_FUSED_RESULTS_MAX];
    bool made;
    if (pipe->tensor_of[group->node[0]] != UINT32_MAX) { /* with the first of them */
        return SX_OK;
    }
    for (uint32_t k = 0; k < group->count; k++) {
        sx_node_id id = {group->node[k]};
        SX_TRY(place_result(cx, pipe, id, output_tensor, &version[k], &result[k]));
    }
    SX_TRY(sx_pipe_joint_kernel(cx, pipe, group, result, &made));
    for (uint32_t k = 0; k < group->count; k++) {
        sx_node_id id = {group->node[k]};
        if (made && version[k] != SX_NOWHERE) {
            pipe->version[version[k]].written = true;
        }
        SX_TRY(made ? SX_OK : sx_pipe_kernel(cx, pipe, id, result[k]));
        SX_TRY(!made && version[k] != SX_NOWHERE ? sx_pipe_settle(cx, pipe, id, version[k])
                                                 : SX_OK);
    }
    return SX_OK;
}

/* Outputs that no kernel wrote in place: parameters, constants, prologue results and repeated outputs are copied. */
static sx_code copy_outputs(sx_ctx *cx, sx_pipe *pipe, const uint32_t *output_tensor)
{
    const sx_graph *graph = pipe->graph;
    for (uint32_t k = 0; k < graph->output_count; k++) {
        if (output_tensor[k] != UINT32_MAX || sx_graph_into(graph, k) != SX_NOWHERE) {
            continue;
        }
        const sx_type *type = &sx_graph_node(graph, graph->output[k].node)->type;
        uint32_t to;
        SX_TRY(sx_pipe_add_output(cx, pipe, k, &to));
        SX_TRY(sx_pipe_copy(cx, pipe, pipe->tensor_of[graph->output[k].node.i], to, type));
    }
    return SX_OK;
}

sx_code sx_pipe_node(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor)
{
    const sx_graph *graph = pipe->graph;
    const sx_node *node = sx_graph_node(graph, id);
    const sx_attr *attr = sx_graph_attr(graph, node);
    switch (node->op) {
    case SX_OP_PARAMETER: return put_parameter(cx, pipe, node, attr, id);
    case SX_OP_CONSTANT: return put_constant(cx, pipe, node, attr, id);
    case SX_OP_RESHAPE:
        pipe->tensor_of[id.i] = pipe->tensor_of[sx_graph_input(graph, node, 0).i];
        return SX_OK;
    case SX_OP_SCAN:
    case SX_OP_WHILE:
    case SX_OP_COND: return sx_pipe_region(cx, pipe, id, output_tensor);
    default: break;
    }
    if (sx_op_info_of(node->op)->op_class == SX_OPCLASS_COLLECTIVE) {
        return sx_pipe_collective(cx, pipe, id, output_tensor);
    }
    const sx_pipe_group *group = sx_pipe_group_of(pipe, id);
    return group != NULL ? compile_group(cx, pipe, group, output_tensor)
                         : compile_node(cx, pipe, id, output_tensor);
}

static sx_code compile_nodes(sx_ctx *cx, sx_pipe *pipe)
{
    const sx_graph *graph = pipe->graph;
    uint32_t *output_tensor = SX_NEW_ARRAY(cx, uint32_t, graph->output_count + 1);
    pipe->tensor_of = SX_NEW_ARRAY(cx, uint32_t, graph->node_count + 1);
    if (output_tensor == NULL || pipe->tensor_of == NULL) {
        return cx->error.code;
    }
    memset(output_tensor, 0xff, (graph->output_count + 1) * sizeof(*output_tensor));
    memset(pipe->tensor_of, 0xff, (graph->node_count + 1) * sizeof(*pipe->tensor_of));
    SX_TRY(sx_pipe_plan_updates(cx, pipe));
    SX_TRY(sx_pipe_plan_groups(cx, pipe));
    for (uint32_t k = 0; k < graph->node_count; k++) {
        uint32_t i = pipe->order != NULL ? pipe->order[k] : k;
        if (cx->progress != NULL) {
            cx->progress(cx->progress_self, "kernels", k, graph->node_count);
        }
        sx_code code = sx_pipe_node(cx, pipe, (sx_node_id){i}, output_tensor);
        if (code != SX_OK) {
            pipe->unproven_node = pipe->unproven ? i : UINT32_MAX;
            SX_TRY(sx_pipe_refuse(cx, pipe, (sx_node_id){i}, code));
        }
    }
    SX_TRY(sx_refusals_end(cx, &pipe->refusals));
    SX_TRY(copy_outputs(cx, pipe, output_tensor));
    return sx_pipe_update(cx, pipe); /* behind everything that reads old versions */
}

static sx_code compile_variant(sx_ctx *cx, sx_pipe *pipe, uint32_t v, sx_binding *binding)
{
    sx_graph *bound;
    pipe->variant = v;
    pipe->machine = sx_pipe_variant_machine(pipe->variants, v);
    pipe->device = pipe->machine->device;
    pipe->target = pipe->machine->target;
    pipe->launch_first = pipe->launch_count;
    pipe->flops = pipe->cost_ns = pipe->floor_ns = 0;
    pipe->copied_bytes = 0;
    pipe->made_count = 0;
    pipe->made_map = (sx_idmap){0};
    pipe->loop_count = pipe->loop_depth = 0;
    pipe->rounds = 1;
    pipe->inside = false;
    pipe->binding = binding;
    sx_pipe_variant_binding(pipe->variants, v, binding);
    SX_TRY(sx_graph_bind(cx, pipe->better, binding, pipe->variants->symbol_count, &bound));
    SX_ASSERT(bound->node_count == pipe->better->node_count);
    pipe->graph = bound;
    SX_TRY(sx_pipe_steady_make(cx, pipe));
    return compile_nodes(cx, pipe);
}

/* Tables of a pipe that are not in the arena. */
static void pipe_init(sx_pipe *pipe)
{
    sx_buf_init(&pipe->hoisted, pipe->image->launch.limit);
    sx_buf_init(&pipe->part_extent, pipe->image->extent.limit);
}
static void pipe_fini(sx_pipe *pipe)
{
    sx_buf_fini(&pipe->hoisted);
    sx_buf_fini(&pipe->part_extent);
}

/* *does: what is asked for can be compiled, at a price that is fair (sx_pipe_is_cheap). */
static sx_code compile_all(sx_ctx *cx, sx_pipe *pipe, bool *does)
{
    sx_binding *binding = SX_NEW_ARRAY(cx, sx_binding, pipe->variants->symbol_count + 1);
    sx_code code = binding == NULL ? cx->error.code : sx_judge_make(cx, &pipe->judge);
    *does = code == SX_OK;
    for (uint32_t v = 0; v < pipe->variants->count && code == SX_OK && *does; v++) {
        code = compile_variant(cx, pipe, v, binding);
        *does = code == SX_OK && (pipe->memory->any_price || sx_pipe_is_cheap(pipe->steady));
    }
    return code;
}

static sx_code compile_trial(sx_ctx *cx, const sx_pipe *like, const sx_pipe_variants *one,
                             bool pricing, bool *does, bool *unsteady)
{
    sx_image image;
    sx_pipe pipe = *like;
    sx_image_init(&image);
    image.info = like->image->info;
    pipe.image = &image;
    pipe.variants = one;
    pipe.pricing = pricing;
    pipe.memory->kernel_count = pricing ? 0 : pipe.memory->kernel_count;
    pipe.memory->kernel_done = 0;
    pipe_init(&pipe);
    sx_code code = compile_all(cx, &pipe, does);
    pipe_fini(&pipe);
    sx_image_fini(&image);
    *unsteady = code == SX_COMPILE && pipe.unsteady;
    if (*unsteady) {
        (void)snprintf(pipe.memory->why, sizeof(pipe.memory->why), "%.250s", cx->error.text);
        sx_ctx_reset_error(cx);
        return SX_OK;
    }
    return code;
}

/* Compiles variants into an image of their own, only to see whether one serves all of its interval, and well. */
static sx_code try_variants(sx_ctx *cx, void *self, const sx_pipe_variants *one, bool *does,
                            bool *unsteady)
{
    sx_arena outer = cx->arena;
    sx_arena_init(&cx->arena, outer.limit_bytes - outer.used_bytes);
    sx_code code = compile_trial(cx, self, one, true, does, unsteady); /* which takes little time */
    if (code == SX_OK && *does) {
        code = compile_trial(cx, self, one, false, does, unsteady);
    }
    sx_arena_fini(&cx->arena);
    cx->arena = outer;
    return code;
}

/* One variant after the other; what they have in common is kept once. */
static sx_code compile_variants(sx_ctx *cx, sx_pipe *pipe)
{
    sx_pipe_variants variants;
    uint32_t stage = sx_stage_begin(cx, "kernels");
    const sx_pipe_trial trial = {pipe, pipe->memory->why, &pipe->memory->any_price, try_variants};
    SX_TRY(sx_pipe_cut(cx, pipe->variants, &trial, &variants));
    pipe->variants = &variants;
    sx_binding *binding = SX_NEW_ARRAY(cx, sx_binding, variants.symbol_count + 1);
    if (binding == NULL) {
        return cx->error.code;
    }
    for (uint32_t v = 0; v < variants.count; v++) {
        SX_TRY(compile_variant(cx, pipe, v, binding));
        SX_TRY(sx_pipe_place(cx, pipe));
    }
    sx_stage_end(cx, stage, "done", pipe->kernel_count);
    if (pipe->better->effects != NULL) { /* bytes that a run copies */
        stage = sx_stage_begin(cx, "state");
        sx_stage_end(cx, stage, pipe->copied_bytes > 0 ? "bytes copied" : "in place",
                     pipe->copied_bytes);
    }
    stage = sx_stage_begin(cx, "places");
    SX_TRY(sx_pipe_share_results(cx, pipe));
    SX_TRY(sx_pipe_place_persistent(cx, pipe));
    SX_TRY(sx_pipe_place_state(cx, pipe));
    SX_TRY(sx_pipe_put_tensors(cx, pipe));
    sx_stage_end(cx, stage, "done", pipe->tensor_count);
    return SX_OK;
}

/* ---- report ---- */

/* "relu, fuse-epilogue": the rules of one step of the proof. */
static sx_module_text put_rules(sx_image *image, const sx_proof *proof, const sx_proof_step *step)
{
    sx_module_text text = {(uint32_t)image->strings.len, 0};
    for (uint32_t k = 0; k < step->rule_count; k++) {
        sx_buf_print(&image->strings, "%s%s", k > 0 ? ", " : "",
                     sx_rule_name(proof->rule[step->rule_first + k]));
    }
    text.size = (uint32_t)(image->strings.len - text.offset);
    return text;
}

static uint32_t count_operations(const sx_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        count += graph->node[i].input_count > 0 ? 1 : 0;
    }
    return count;
}

/* What was worked on once for all equal layers; its rewrites follow. */
static void put_part(sx_image *image, const sx_core_library *library,
                     const sx_optimize_report *report, uint32_t index)
{
    const sx_optimize_part *part = &report->part[index];
    sx_buf *strings = &image->strings;
    sx_module_rewrite record = {.rule = sx_module_put_text(strings, SX_SPAN_LITERAL("part"))};
    record.before.offset = (uint32_t)strings->len;
    sx_buf_print(strings, "part %u of %u, used %llu times: %u operations", index + 1,
                 report->part_count, (unsigned long long)part->use_count,
                 count_operations(part->program));
    record.before.size = (uint32_t)strings->len - record.before.offset;
    record.after.offset = (uint32_t)strings->len;
    sx_buf_print(strings, "%u operations", count_operations(part->better));
    if (part->roll == NULL) {
        sx_buf_print(strings, ", %u nodes in %u classes, %s", part->nodes, part->classes,
                     part->meeting != NULL ? "not saturated here" : sx_eg_stop_name(part->stop));
    } else {
        sx_buf_print(strings, ", put together from %u parts", part->roll->part_count);
    }
    if (part->meeting != NULL) {
        char key[SX_KEY_TEXT_SIZE];
        sx_key_print(&library->candidate[part->which].key, key);
        sx_buf_print(strings, ", met stored %s by ", key);
        sx_buf_put_span(strings, part->meeting->rules.len > 0 ? part->meeting->rules
                                                              : SX_SPAN_LITERAL("the same terms"));
    }
    record.after.size = (uint32_t)strings->len - record.after.offset;
    sx_buf_put(&image->rewrite, &record, sizeof(record));
}

static void put_rewrites(sx_image *image, const sx_core_library *library,
                         const sx_optimize_report *report)
{
    for (uint32_t p = 0; p < report->part_count; p++) {
        const sx_proof *proof = report->part[p].proof;
        if (report->part_count > 1) {
            put_part(image, library, report, p);
        }
        for (uint32_t i = 0; proof != NULL && i < proof->step_count; i++) {
            const sx_proof_step *step = &proof->step[i];
            sx_module_rewrite record = {.rule = put_rules(image, proof, step)};
            record.before = sx_module_put_text(&image->strings, step->before);
            record.after = sx_module_put_text(&image->strings, step->after);
            sx_buf_put(&image->rewrite, &record, sizeof(record));
        }
    }
}

/* Why the search ended, and whether it had to be made twice. */
static sx_module_text put_stop(sx_buf *strings, const sx_optimize_report *report, uint32_t refused)
{
    sx_module_text text = sx_module_put_text(strings, sx_span_of(sx_eg_stop_name(report->stop)));
    if (refused > 0) {
        char more[80];
        (void)snprintf(more, sizeof(more), "; extracted again without %u kernel%s not proven",
                       refused, refused == 1 ? "" : "s");
        text.size += sx_module_put_text(strings, sx_span_of(more)).size;
    }
    if (report->searched_again) {
        text.size += sx_module_put_text(strings, SX_SPAN_LITERAL("; searched again as a whole, its "
                                                                 "parts came out dearer"))
                         .size;
    }
    return text;
}

static void put_search(sx_image *image, const sx_optimize_report *report, uint32_t refused)
{
    sx_module_text stop = put_stop(&image->strings, report, refused);
    sx_module_text unproved = sx_module_put_text(&image->strings, sx_span_of(report->unproved));
    sx_module_search record = {.stop = stop,
                               .unproved = unproved,
                               .rounds = report->rounds,
                               .nodes = report->nodes,
                               .classes = report->classes,
                               .fuel = report->fuel,
                               .proven = report->proven ? 1 : 0,
                               .input_cost_ns = report->cost_before_ns,
                               .cost_ns = report->cost_after_ns,
                               .bound_ns = report->bound_ns};
    for (uint32_t p = 0; p < report->part_count; p++) {
        const sx_optimize_part *part = &report->part[p];
        bool searched = part->roll == NULL && part->use_count > 0; /* the others are put together */
        record.parts += searched ? 1 : 0;
        record.uses += searched ? part->use_count : 0;
    }
    sx_buf_put(&image->search, &record, sizeof(record));
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        if (report->match_count[r] == 0) {
            continue;
        }
        sx_module_rule rule = {.matches = report->match_count[r], .unions = report->union_count[r]};
        rule.name = sx_module_put_text(&image->strings, sx_span_of(sx_rule_name(r)));
        rule.rule_class = sx_module_put_text(&image->strings, sx_span_of(sx_rule_class_text(r)));
        sx_buf_put(&image->rule, &rule, sizeof(rule));
    }
}

static void put_stages(sx_ctx *cx, sx_image *image)
{
    for (uint32_t i = 0; i < cx->stage_count; i++) {
        const sx_stage *stage = &cx->stage[i];
        sx_module_stage record = {.items = stage->items, .fuel = stage->fuel};
        record.name = sx_module_put_text(&image->strings, sx_span_of(stage->name));
        record.stop = sx_module_put_text(&image->strings, sx_span_of(stage->stop));
        sx_buf_put(&image->stage, &record, sizeof(record));
    }
}

static void put_report(sx_ctx *cx, const sx_core_request *request, sx_image *image,
                       const sx_optimize_report *report, uint32_t refused)
{
    put_search(image, report, refused);
    if (request->library != NULL && request->library->met) {
        sx_semantic_report(request->library, image);
    }
    put_rewrites(image, request->library, report);
    put_stages(cx, image);
}

/* The names of the devices, the least one first. */
static sx_module_text put_target(sx_image *image, const sx_pipe_variants *variants)
{
    sx_module_text text = {.offset = (uint32_t)image->strings.len};
    for (uint32_t m = variants->machine_count; m-- > 0;) {
        sx_buf_print(&image->strings, "%s%s", m + 1 < variants->machine_count ? "," : "",
                     variants->machine[m].device->name);
    }
    text.size = (uint32_t)image->strings.len - text.offset;
    return text;
}

static sx_code put_info(sx_ctx *cx, sx_image *image, const sx_core_request *request,
                        const sx_graph *graph)
{
    sx_pipe_variants variants;
    SX_TRY(sx_pipe_variants_make(cx, request, &variants));
    sx_key key, program;
    sx_span part[SX_PART_COUNT];
    sx_graph unnamed = *graph;
    unnamed.name = (sx_span){0}; /* that of a person, which read_program put back */
    SX_TRY(sx_graph_key_canonical(cx, &unnamed, &program));
    SX_TRY(sx_core_key_of_program(cx, &program, request, &key, part));
    memcpy(image->info.key, key.byte, sizeof(key.byte));
    image->info.name = sx_module_put_text(&image->strings, graph->name);
    image->info.target = put_target(image, &variants);
    image->info.toolchain = sx_module_put_text(&image->strings, sx_span_of(sx_core_toolchain()));
    const sx_pipe_machine *least = &variants.machine[variants.machine_count - 1];
    image->info.arch = least->arch;
    image->info.level = least->level;
    sx_pipe_put_symbols(&variants, image);
    return SX_OK;
}

/* The program as it came, with the user's names for its nodes. */
static sx_code print_named(sx_ctx *cx, const sx_graph *graph, sx_origins *origins, sx_buf *text)
{
    sx_graph named = *graph;
    named.origins = origins;
    return sx_graph_print(cx, &named, text);
}

/* The program for the extents of each variant; *first is that of the first. */
static sx_code bind_each(sx_ctx *cx, const sx_graph *graph, const sx_pipe_variants *variants,
                         sx_graph **first)
{
    sx_binding *binding = SX_NEW_ARRAY(cx, sx_binding, variants->symbol_count + 1);
    if (binding == NULL) {
        return cx->error.code;
    }
    for (uint32_t v = variants->count / variants->machine_count; v-- > 0;) {
        sx_pipe_variant_binding(variants, v, binding);
        SX_TRY(sx_graph_bind(cx, graph, binding, variants->symbol_count, first));
    }
    return SX_OK;
}

/* A program that is being compiled. */
typedef struct {
    const sx_core_request *request;
    const sx_device *device; /* by whose prices level 1 chooses: the best one */
    const sx_graph *graph;   /* canonical, with placements */
    sx_origins *origins;
    sx_pipe_variants variants;
    sx_graph *bound; /* for the extents of the first variant */
    refused_kernels refused;
    bool again; /* one more kernel is refused: the program is to be extracted without it */
    bool plain; /* bodies stay as they are, because a kernel in one could not be proven */
    bool ranks; /* the program of each rank of a mesh: it has collectives */
} compilation;

/* Where no candidate of a fused kernel was proven, the program is tried without that kernel; not where it was
 * refused before, which says that nothing else computes what it does. */
static void refuse_kernel(compilation *c, const sx_pipe *pipe)
{
    const sx_node *node = &pipe->better->node[pipe->unproven_node];
    const sx_attr *attr = sx_graph_attr(pipe->better, node);
    if (sx_op_info_of(node->op)->op_class == SX_OPCLASS_REGION) {
        c->again = !c->plain;
        c->plain = true;
        return;
    }
    bool known = node->op != SX_OP_FUSED || c->refused.count == REFUSED_MAX;
    for (uint32_t i = 0; i < c->refused.count && !known; i++) {
        known = sx_type_equal(&attr->type, &c->refused.attr[i]->type) &&
                sx_body_equal(attr->body, c->refused.attr[i]->body);
    }
    if (!known) {
        c->refused.attr[c->refused.count++] = attr;
        c->again = true;
    }
}

/* SX_OK with `again` where another round is needed; the image is then of no use. */
static sx_code compile_round(sx_ctx *cx, compilation *c, sx_image *image)
{
    const sx_core_request *request = c->request;
    sx_graph *better;
    sx_optimize_report report;
    sx_meeting meeting;
    sx_graph here = *c->graph;
    here.sharding = NULL; /* one device holds everything */
    here.effects = NULL;  /* versions of a state are values */
    c->again = false;
    sx_graph *before = &here;
    here.origins = c->ranks ? c->origins : NULL;
    if (!c->ranks) {
        const sx_graph *settled;
        SX_TRY(sx_graph_settle(cx, &here, &settled));
        here = *settled;
    }
    SX_TRY(c->ranks ? sx_pipe_lead(cx, &here, &before) : SX_OK);
    SX_TRY(
        optimise(cx, request, c->device, before, false, &c->refused, &better, &report, &meeting));
    SX_TRY(sx_effects_restore(cx, c->graph, better));
    SX_TRY(c->ranks ? SX_OK : sx_pipe_mesh(cx, request, c->device, c->graph, NULL, image));
    sx_pipe_put_axes(c->graph, image);
    bool done = false;
    SX_TRY(put_info(cx, image, request, c->graph));
    if (c->variants.count == 1 && request->interval_count == 0) {
        SX_TRY(sx_semantic_reuse(cx, request, c->graph, &meeting, image, &done));
    }
    sx_cost as_it_came;
    SX_TRY(sx_price_program(cx, c->device, c->bound, &as_it_came));
    image->info.input_cost_ns = as_it_came.cost_ns;
    if (done) {
        put_search(image, &report, 0);
        put_stages(cx, image);
        sx_buf_clear(&image->program);
        SX_TRY(print_named(cx, c->graph, c->origins, &image->program));
        return sx_buf_check(cx, &image->strings, "module strings");
    }
    SX_TRY(c->plain ? SX_OK : sx_pipe_bodies(cx, request, c->device, &better));
    sx_pipe pipe = {.variants = &c->variants,
                    .program = c->ranks ? before : c->graph,
                    .better = better,
                    .origins = c->ranks ? before->origins : c->origins,
                    .unproven_node = UINT32_MAX,
                    .assembler = request->assembler.len > 0 ? request->assemble : NULL,
                    .assembler_name = request->assembler,
                    .image = image};
    SX_TRY(sx_measured_parse(cx, request->measured, &pipe.measured));
    SX_TRY(sx_correction_parse(cx, pipe.measured.correction, &pipe.correction));
    SX_TRY(sx_judge_make(cx, &pipe.judge));
    pipe_init(&pipe);
    sx_pipe_memory memory = {.last = NULL};
    sx_arena_init(&memory.arena, cx->arena.limit_bytes - cx->arena.used_bytes);
    pipe.memory = &memory;
    sx_code code = compile_variants(cx, &pipe);
    sx_arena_fini(&memory.arena);
    pipe_fini(&pipe);
    if (code == SX_COMPILE && pipe.unproven_node != UINT32_MAX) {
        refuse_kernel(c, &pipe);
    }
    if (code != SX_OK) {
        return c->again ? SX_OK : code;
    }
    SX_TRY(print_named(cx, c->graph, c->origins, &image->program));
    sx_graph shown = *better;
    shown.sharding = c->ranks ? c->graph->sharding : better->sharding; /* the mesh of collectives */
    SX_TRY(sx_graph_print(cx, &shown, &image->optimized));
    put_report(cx, request, image, &report, c->refused.count);
    return sx_buf_check(cx, &image->strings, "module strings");
}

sx_code sx_core_compile(sx_ctx *cx, const sx_core_request *request, sx_image *image)
{
    compilation c = {.request = request};
    sx_graph *graph;
    SX_TRY(sx_pipe_variants_make(cx, request, &c.variants));
    c.device = c.variants.machine[0].device;
    SX_TRY(read_program(cx, request->ir, &graph, &c.origins));
    c.graph = graph;
    sx_core_request own = *request;
    sx_collective first;
    c.ranks = sx_collective_find(graph, &first);
    if (c.ranks) { /* equal programs of stored ones may be of another mesh */
        own.library = NULL;
        c.request = &own;
    }
    SX_TRY(sx_pipe_check_intervals(cx, request, graph));
    sx_graph here = *graph;
    here.sharding = NULL;
    SX_TRY(bind_each(cx, &here, &c.variants, &c.bound)); /* refuse early */
    if (wants_front(request)) {
        return SX_FAIL(cx, SX_INPUT,
                       "objective \"pareto\" gives several programs: optimize, not compile");
    }
    if (request->unfused) {
        return SX_FAIL(cx, SX_INPUT,
                       "unfused gives operations, not kernels: optimize, not compile");
    }
    if (request->assembler.len > 0 && request->assemble == NULL) {
        return SX_FAIL(cx, SX_ABSENT, "assembler %.*s is not here",
                       (int)sx_min_i64((int64_t)request->assembler.len, 60),
                       (const char *)request->assembler.ptr);
    }
    uint32_t stages = cx->stage_count;
    SX_TRY(compile_round(cx, &c, image));
    while (c.again) { /* REFUSED_MAX times at most */
        sx_core_request alone = *c.request;
        alone.library = NULL; /* what is stored was made with that kernel */
        c.request = &alone;
        sx_ctx_reset_error(cx);
        cx->stage_count = stages;
        sx_image_fini(image);
        sx_image_init(image);
        SX_TRY(compile_round(cx, &c, image));
    }
    return SX_OK;
}

/* The module of level 1: certificate, programs, report. */
static sx_code put_optimized(sx_ctx *cx, const sx_core_request *request, const sx_graph *graph,
                             const sx_graph *better, const sx_optimize_report *report,
                             sx_image *image)
{
    SX_TRY(sx_optimize_certificate(cx, report, &image->proof));
    SX_TRY(put_info(cx, image, request, graph));
    image->info.input_cost_ns = report->cost_before_ns;
    image->info.cost_ns = report->cost_after_ns;
    SX_TRY(sx_graph_print(cx, graph, &image->program));
    SX_TRY(sx_graph_print(cx, better, &image->optimized));
    put_report(cx, request, image, report, 0);
    return sx_buf_check(cx, &image->strings, "module strings");
}

sx_code sx_core_optimize(sx_ctx *cx, const sx_core_request *request, sx_image *image)
{
    const sx_device *device;
    const sx_target *target;
    sx_graph *graph, *better;
    sx_optimize_report report;
    const refused_kernels none = {.count = 0};
    sx_meeting meeting;
    SX_TRY(refuse_intervals(cx, request));
    SX_TRY(sx_core_device(cx, request, &device, &target));
    SX_TRY(read_program(cx, request->ir, &graph, NULL));
    SX_TRY(sx_pipe_refuse_ranks(cx, graph));
    sx_core_request own = *request;
    if (graph->sharding != NULL) { /* collectives stand between operations, not inside kernels */
        if (wants_front(request)) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "objective \"pareto\" of a program on a mesh");
        }
        own.unfused = true;
    }
    sx_graph here = *graph;
    here.effects = NULL;
    SX_TRY(optimise(cx, &own, device, &here, true, &none, &better, &report, &meeting));
    SX_TRY(sx_sharding_restore(cx, graph, better));
    SX_TRY(sx_effects_restore(cx, graph, better));
    SX_TRY(sx_pipe_mesh(cx, request, device, graph, better, image));
    if (wants_front(request)) {
        SX_TRY(sx_core_pareto(cx, request, device, image));
    }
    return put_optimized(cx, request, graph, better, &report, image);
}

sx_code sx_pipe_search(sx_ctx *cx, const sx_core_request *request,
                       const sx_optimize_options *options, sx_pipe_found *found, sx_image *image)
{
    sx_graph *graph, *better;
    const sx_target *target;
    SX_TRY(refuse_intervals(cx, request));
    SX_TRY(sx_core_device(cx, request, &found->device, &target));
    SX_TRY(read_program(cx, request->ir, &graph, NULL));
    SX_TRY(sx_pipe_refuse_ranks(cx, graph));
    uint32_t stage = sx_stage_begin(cx, "saturate");
    sx_graph here = *graph;
    here.effects = NULL;
    SX_TRY(sx_optimize(cx, &here, found->device, options, &better, &found->report));
    SX_TRY(sx_sharding_restore(cx, graph, better));
    SX_TRY(sx_effects_restore(cx, graph, better));
    SX_TRY(sx_graph_check(cx, better));
    sx_stage_end(cx, stage, sx_eg_stop_name(found->report.stop), found->report.nodes);
    found->better = better;
    return put_optimized(cx, request, graph, better, &found->report, image);
}

typedef struct {
    sx_idmap map; /* by text: each program once */
    const sx_program **program;
    uint32_t count, capacity;
} met_bodies;

static bool same_body(const void *self, uint32_t id, const void *probe)
{
    const met_bodies *met = self;
    return sx_span_equal(met->program[id]->text, ((const sx_program *)probe)->text);
}

/* Depth is bounded by SX_PROGRAM_DEPTH_MAX. */
static sx_code count_bodies(sx_ctx *cx, const sx_graph *graph, met_bodies *met,
                            sx_core_proof *proof)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        sx_attr attr = *sx_graph_attr(graph, &graph->node[n]);
        const sx_program **field[SX_ATTR_PROGRAMS_MAX];
        uint32_t count = sx_attr_programs(&attr, field);
        for (uint32_t k = 0; k < count; k++) {
            const sx_program *program = *field[k];
            uint64_t hash = sx_hash64(program->text, 0);
            if (sx_idmap_find(&met->map, hash, same_body, met, program) != SX_IDMAP_NONE) {
                continue;
            }
            void *array = met->program;
            SX_TRY(sx_grow(cx, &array, &met->capacity, met->count + 1, sizeof(*met->program)));
            met->program = array;
            met->program[met->count] = program;
            SX_TRY(sx_idmap_put(cx, &met->map, hash, met->count++));
            for (uint32_t i = 0; i < program->graph->node_count; i++) {
                proof->body_node_count += program->graph->node[i].input_count > 0 ? 1 : 0;
            }
            SX_TRY(count_bodies(cx, program->graph, met, proof));
        }
    }
    proof->body_count = met->count;
    return SX_OK;
}

sx_code sx_core_prove(sx_ctx *cx, sx_span text, sx_core_proof *proof)
{
    sx_certificate certificate;
    SX_TRY(sx_certificate_check(cx, text, &certificate));
    *proof = (sx_core_proof){.input = certificate.input,
                             .output = certificate.output,
                             .part_count = certificate.part_count,
                             .step_count = certificate.step_count,
                             .term_count = certificate.term_count,
                             .step_evaluated = certificate.evaluation.step_evaluated,
                             .output_count = certificate.evaluation.output_count,
                             .output_evaluated = certificate.evaluation.output_evaluated,
                             .worst = certificate.evaluation.worst,
                             .allowed = certificate.evaluation.allowed};
    met_bodies met = {0};
    SX_TRY(count_bodies(cx, proof->input, &met, proof));
    proof->rule = SX_NEW_ARRAY(cx, sx_core_steps, SX_RULE_COUNT);
    if (proof->rule == NULL) {
        return cx->error.code;
    }
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        if (certificate.rule_count[r] > 0) {
            proof->rule[proof->rule_count++] =
                (sx_core_steps){sx_rule_name(r), sx_rule_class_text(r), certificate.rule_count[r]};
        }
    }
    return SX_OK;
}

sx_code sx_core_optimize_module(sx_ctx *cx, const sx_core_request *request, sx_buf *bytes)
{
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_optimize(cx, request, &image);
    code = code == SX_OK ? sx_image_encode(cx, &image, bytes) : code;
    sx_image_fini(&image);
    return code;
}
