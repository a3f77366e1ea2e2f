/* semantic.c - programs that equal stored ones: where their e-graphs are kept, meeting one, taking over its
 * extraction and its module. */
#include <string.h>

#include "core/optimize/export.h"
#include "core/optimize/fragments.h"
#include "core/store/pair.h"
#include "core/store/wiring.h"
#include "core/pipeline.h"
#include "core/rules/key.h"

/* ---- options of level 1 ---- */

/* "a,b": names of rules, one span each. */
static sx_code split_names(sx_ctx *cx, sx_span text, const sx_span **names, uint32_t *count)
{
    sx_span *name = SX_NEW_ARRAY(cx, sx_span, text.len / 2 + 1);
    if (name == NULL) {
        return cx->error.code;
    }
    *count = 0;
    size_t first = 0;
    for (size_t i = 0; i <= text.len && text.len > 0; i++) {
        if (i == text.len || text.ptr[i] == ',') {
            if (i > first) {
                name[(*count)++] = (sx_span){text.ptr + first, i - first};
            }
            first = i + 1;
        }
    }
    *names = name;
    return SX_OK;
}

/* What gives the numbers in an e-graph their meaning, and its extraction its worth. */
static sx_code rules_of(sx_ctx *cx, const sx_core_request *request, sx_key *key)
{
    sx_buf options;
    sx_span device;
    sx_key rules = sx_rules_key();
    SX_TRY(sx_core_key_device(cx, request, &device));
    sx_buf_init(&options, 4096 + request->disabled_rules.len + request->objective.len);
    sx_core_key_options(request, &options);
    const sx_span part[] = {{rules.byte, sizeof(rules.byte)},
                            sx_buf_span(&options),
                            device,
                            sx_span_of(sx_core_toolchain())};
    *key = sx_key_of("e-graph rules", part, SX_COUNT(part));
    sx_buf_fini(&options);
    return SX_OK;
}

sx_code sx_semantic_options(sx_ctx *cx, const sx_core_request *request,
                            sx_optimize_options *options)
{
    *options = sx_optimize_defaults();
    options->allow_reassociating = !request->no_reassociate;
    options->allow_approximate = request->allow_approximate;
    options->range_any = request->range_any;
    options->unfused = request->unfused;
    if (request->unfused && sx_span_is(request->objective, "pareto")) {
        return SX_FAIL(cx, SX_INPUT, "objective \"pareto\" is about kernels: not with unfused");
    }
    if (request->objective.len > 0 && !sx_span_is(request->objective, "pareto")) {
        SX_TRY(sx_objective_find(cx, request->objective, &options->objective));
    }
    SX_TRY(rules_of(cx, request, &options->snapshot_rules));
    return split_names(cx, request->disabled_rules, &options->disabled, &options->disabled_count);
}

/* ---- where e-graphs are kept ---- */

static sx_code place_of(sx_ctx *cx, const sx_core_request *request, const sx_piece *piece,
                        sx_core_place *place)
{
    bool known;
    uint64_t value, shape;
    SX_TRY(sx_library_value(cx, piece->program, SX_CORE_VALUE_STEPS, &known, &value));
    SX_TRY(sx_pair_shape(cx, piece->program, &shape));
    sx_key rules;
    SX_TRY(rules_of(cx, request, &rules));
    sx_buf types;
    sx_buf_init(&types, SX_TEXT_BYTES_MAX);
    sx_code code = sx_library_family(cx, piece->program, &types);
    if (code == SX_OK) {
        const sx_span part[] = {{rules.byte, sizeof(rules.byte)},
                                sx_buf_span(&types),
                                {(const uint8_t *)&value, known ? sizeof(value) : 0}};
        place->part = piece->key;
        place->family = sx_key_of("e-graph", part, SX_COUNT(part));
        const sx_span more[] = {{place->family.byte, SX_KEY_BYTES},
                                {(const uint8_t *)&shape, known ? 0 : sizeof(shape)}};
        place->likes = sx_key_of("e-graph likes", more, SX_COUNT(more));
    }
    sx_buf_fini(&types);
    return code;
}

/* The largest not taken yet, of equals the first; 0: none is left. */
static uint32_t largest_piece(const sx_pieces *pieces, const bool *taken)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < pieces->count; i++) {
        bool larger = best == 0 || pieces->piece[i].node_count > pieces->piece[best].node_count;
        best = !taken[i] && larger ? i : best;
    }
    return best;
}

/* The pieces of a program as it was read, or is read here. */
static sx_code find_pieces(sx_ctx *cx, const sx_core_request *request,
                           const sx_core_program *program, sx_pieces *pieces)
{
    sx_core_program own;
    if (program == NULL) {
        SX_TRY(sx_core_read(cx, request, &own));
        program = &own;
    }
    if (program->canonical->sharding == NULL && program->canonical->effects == NULL) {
        SX_TRY(sx_pieces_cut(cx, program->canonical, pieces));
        pieces->piece[0].key = program->digest;
        return SX_OK;
    }
    sx_graph here = *program->canonical;
    sx_graph *canonical;
    here.sharding = NULL; /* no part of what it computes */
    here.effects = NULL;
    SX_TRY(sx_graph_canon(cx, &here, &canonical));
    return sx_pieces_find(cx, canonical, pieces);
}

sx_code sx_core_places(sx_ctx *cx, const sx_core_request *request, const sx_core_program *program,
                       sx_core_place *place, uint32_t *count)
{
    sx_pieces pieces;
    SX_TRY(find_pieces(cx, request, program, &pieces));
    bool *taken = SX_NEW_ARRAY(cx, bool, (size_t)pieces.count + 1);
    if (taken == NULL) {
        return cx->error.code;
    }
    *count = 0;
    for (uint32_t next = 0; *count < SX_CORE_PLACES_MAX && (*count == 0 || next != 0);) {
        SX_TRY(place_of(cx, request, &pieces.piece[next], &place[(*count)++]));
        taken[next] = true;
        next = largest_piece(&pieces, taken);
    }
    return SX_OK;
}

sx_key sx_core_entry(const sx_key *family, uint32_t way)
{
    uint8_t number = (uint8_t)way;
    const sx_span part[] = {{family->byte, SX_KEY_BYTES}, {&number, 1}};
    SX_ASSERT(way < SX_CORE_WAYS);
    return sx_key_of("e-graph place", part, SX_COUNT(part));
}

static sx_code read_info(sx_ctx *cx, sx_span egraph, const sx_key *rules, sx_library_info *info)
{
    sx_wiring wiring;
    if (!sx_wiring_is(egraph)) {
        return sx_library_peek(cx, egraph, rules, info);
    }
    SX_TRY(sx_wiring_open(cx, egraph, rules, &wiring));
    *info = wiring.header.info;
    return SX_OK;
}

sx_code sx_core_egraph_program(sx_ctx *cx, sx_span egraph, sx_key *program)
{
    sx_key rules;
    sx_library_info info;
    SX_TRY(sx_wiring_is(egraph) ? sx_wiring_rules(cx, egraph, &rules)
                                : sx_snapshot_rules(cx, egraph, &rules));
    SX_TRY(read_info(cx, egraph, &rules, &info));
    *program = info.program;
    return SX_OK;
}

sx_code sx_core_wiring(sx_ctx *cx, sx_span egraph, sx_core_wired **part, uint32_t *count)
{
    sx_key rules;
    sx_wiring wiring;
    *count = 0;
    if (!sx_wiring_is(egraph)) {
        return SX_OK;
    }
    SX_TRY(sx_wiring_rules(cx, egraph, &rules));
    SX_TRY(sx_wiring_open(cx, egraph, &rules, &wiring));
    *part = SX_NEW_ARRAY(cx, sx_core_wired, (size_t)wiring.header.part_count + 1);
    if (*part == NULL) {
        return cx->error.code;
    }
    for (uint32_t p = 0; p < wiring.header.part_count; p++) {
        (*part)[p].program = wiring.part[p].program;
        (*part)[p].family = wiring.part[p].family;
    }
    for (uint32_t u = 0; u < wiring.header.use_count; u++) {
        (*part)[wiring.word[wiring.use_first[u]]].use_count++;
    }
    *count = wiring.header.part_count;
    return SX_OK;
}

sx_code sx_core_twin(sx_ctx *cx, const sx_core_request *request, sx_span egraph, sx_key *key)
{
    sx_key rules;
    sx_library_info info;
    sx_span part[SX_PART_COUNT];
    SX_TRY(rules_of(cx, request, &rules));
    SX_TRY(read_info(cx, egraph, &rules, &info));
    return sx_core_key_of_program(cx, &info.program, request, key, part);
}

/* ---- meeting ---- */

_Static_assert(SX_CORE_CANDIDATES_MAX <= SX_FRAGMENTS_STORED_MAX, "every candidate can be tried");

/* Where this compilation leaves its e-graphs. */
static sx_code make_keeper(sx_ctx *cx, sx_core_library *library, sx_optimize_options *options)
{
    sx_optimize_keeper *keeper = SX_NEW(cx, sx_optimize_keeper);
    sx_optimize_place *place = SX_NEW_ARRAY(cx, sx_optimize_place, SX_CORE_PLACES_MAX);
    sx_optimize_kept *kept = SX_NEW_ARRAY(cx, sx_optimize_kept, SX_CORE_PLACES_MAX);
    if (keeper == NULL || place == NULL || kept == NULL) {
        return cx->error.code;
    }
    SX_ASSERT(library->place_count <= SX_CORE_PLACES_MAX);
    for (uint32_t i = 0; i < library->place_count; i++) {
        place[i] = (sx_optimize_place){library->place[i].part, library->place[i].family};
    }
    *keeper = (sx_optimize_keeper){.place = place,
                                   .place_count = library->place_count,
                                   .bytes_max = library->egraph_bytes,
                                   .bytes = library->egraph,
                                   .kept = kept};
    sx_buf_clear(library->egraph);
    options->keeper = keeper;
    return SX_OK;
}

sx_code sx_semantic_find(sx_ctx *cx, const sx_core_request *request, const sx_graph *graph,
                         const sx_device *device, sx_optimize_options *options, sx_graph **better,
                         sx_optimize_report *report)
{
    sx_core_library *library = request->library;
    *better = NULL;
    if (library == NULL || request->unfused) { /* extractions are stored as kernels */
        return SX_OK;
    }
    SX_TRY(library->egraph != NULL ? make_keeper(cx, library, options) : SX_OK);
    if (library->candidate_count == 0) {
        return SX_OK;
    }
    SX_ASSERT(library->candidate_count <= SX_CORE_CANDIDATES_MAX);
    sx_stored_part stored[SX_CORE_CANDIDATES_MAX];
    sx_fragments *fragments = SX_NEW(cx, sx_fragments);
    if (fragments == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < library->candidate_count; i++) {
        stored[i] = (sx_stored_part){library->candidate[i].part, library->candidate[i].egraph};
    }
    uint32_t stage = sx_stage_begin(cx, "meet");
    SX_TRY(sx_fragments_find(cx, graph, options, stored, library->candidate_count, fragments));
    library->refused = fragments->refused;
    library->why = fragments->why;
    options->fragments = fragments;
    if (fragments->left_count == 0) { /* nothing has to be saturated */
        SX_TRY(sx_optimize(cx, graph, device, options, better, report));
        SX_TRY(sx_graph_check(cx, *better));
    }
    sx_stage_end(cx, stage,
                 fragments->of[0].met         ? "met"
                 : fragments->left_count == 0 ? "parts met"
                                              : "not met",
                 fragments->inserted);
    return SX_OK;
}

sx_code sx_semantic_end(sx_ctx *cx, const sx_core_request *request,
                        const sx_optimize_options *options, const sx_optimize_report *report,
                        sx_graph *better, sx_meeting *meeting)
{
    sx_core_library *library = request->library;
    const sx_optimize_keeper *keeper = options->keeper;
    const sx_optimize_part *whole = &report->part[report->part_count - 1];
    *meeting = (sx_meeting){0};
    if (library == NULL) {
        return SX_OK;
    }
    library->parts_met = report->met_count;
    library->kept_count = keeper != NULL ? keeper->kept_count : 0;
    for (uint32_t i = 0; i < library->kept_count; i++) {
        const sx_optimize_kept *kept = &keeper->kept[i];
        library->kept[i] = (sx_core_kept){kept->part, kept->offset, kept->size};
    }
    if (whole->meeting != NULL) {
        *meeting = *whole->meeting;
        meeting->better = better;
        library->met = true;
        library->which = whole->which;
        library->rules = meeting->rules;
    }
    return keeper != NULL ? sx_buf_check(cx, keeper->bytes, "e-graphs") : SX_OK;
}

void sx_semantic_report(const sx_core_library *library, sx_image *image)
{
    char key[SX_KEY_TEXT_SIZE];
    sx_buf *strings = &image->strings;
    SX_ASSERT(library->met);
    sx_key_print(&library->candidate[library->which].key, key);
    sx_span rules = library->rules.len > 0 ? library->rules : SX_SPAN_LITERAL("same terms");
    sx_module_rewrite record = {.rule = sx_module_put_text(strings, rules)};
    record.before = sx_module_put_text(strings, SX_SPAN_LITERAL("this program"));
    record.after.offset = (uint32_t)strings->len;
    sx_buf_print(strings, "stored program %s%s", key, library->reused ? ", its module" : "");
    record.after.size = (uint32_t)strings->len - record.after.offset;
    sx_buf_put(&image->rewrite, &record, sizeof(record));
}

/* ---- the module of the stored program under other names ---- */

typedef struct {
    sx_ctx *cx;
    const sx_module *module;
    const sx_graph *graph;
    const sx_meeting *meeting;
    const sx_graph *stored; /* OPTIMIZED of the module */
    sx_image *image;
    uint32_t strings; /* where the strings of the module begin in the image's */
    uint32_t *number; /* new number of each tensor */
    sx_module_text *name;
} reuser;

static sx_module_text moved(const reuser *r, sx_module_text text)
{
    return (sx_module_text){text.offset + r->strings, text.size};
}

/* The text of `graph` into `text`. */
static sx_code print_graph(sx_ctx *cx, const sx_graph *graph, sx_buf *text)
{
    SX_TRY(sx_graph_print(cx, graph, text));
    return sx_buf_check(cx, text, "program");
}

static sx_code print_canonical(sx_ctx *cx, const sx_graph *graph, sx_buf *text)
{
    sx_graph *canonical;
    SX_TRY(sx_graph_canon(cx, graph, &canonical));
    return print_graph(cx, canonical, text);
}

/* The same nodes, in whatever order: what was put together from parts need not be in the order of the stored
 * program. */
static sx_code same_nodes(sx_ctx *cx, const sx_graph *a, const sx_graph *b, size_t limit,
                          bool *same)
{
    sx_buf x, y;
    sx_buf_init(&x, limit);
    sx_buf_init(&y, limit);
    sx_code code = print_canonical(cx, a, &x);
    code = code == SX_OK ? print_canonical(cx, b, &y) : code;
    *same = code == SX_OK && sx_span_equal(sx_buf_span(&x), sx_buf_span(&y));
    sx_buf_fini(&x);
    sx_buf_fini(&y);
    return code;
}

/* Is the program that the module was compiled from the extraction that was certified? Its text goes into the image. */
static sx_code same_program(reuser *r, bool *same)
{
    sx_graph *stored, *renamed;
    sx_span text = {(const uint8_t *)r->module->optimized, (size_t)r->module->optimized_count};
    SX_TRY(sx_graph_parse(r->cx, text, &stored));
    *same = false;
    if (stored->output_count != r->graph->output_count) {
        return SX_OK;
    }
    SX_TRY(sx_graph_rename(r->cx, stored, r->graph, r->meeting->parameter_of, r->meeting->output_of,
                           &renamed));
    r->stored = stored;
    SX_TRY(same_nodes(r->cx, renamed, r->meeting->better, r->image->optimized.limit, same));
    return *same ? print_graph(r->cx, renamed, &r->image->optimized) : SX_OK;
}

/* The k-th tensor of the parameters takes the k-th parameter of the program. *fits false: there are not as many. */
static bool number_parameters(reuser *r)
{
    const sx_module *module = r->module;
    uint32_t count = 0;
    uint32_t *at = SX_NEW_ARRAY(r->cx, uint32_t, (size_t)module->tensor_count + 1);
    if (at == NULL) {
        return false;
    }
    for (uint32_t t = 0; t < module->tensor_count; t++) {
        r->number[t] = t;
        bool parameter = module->tensor[t].place == SX_TENSOR_INPUT ||
                         module->tensor[t].place == SX_TENSOR_WEIGHT;
        if (parameter) {
            at[count++] = t;
        }
    }
    uint32_t k = 0;
    for (uint32_t i = 0; i < r->graph->node_count; i++) {
        const sx_node *node = &r->graph->node[i];
        if (node->op != SX_OP_PARAMETER) {
            continue;
        }
        if (k == count || r->meeting->parameter_of[k] >= count) {
            return false;
        }
        uint32_t from = at[r->meeting->parameter_of[k]];
        r->number[from] = at[k];
        r->name[from] = sx_module_put_text(&r->image->strings, sx_graph_attr(r->graph, node)->name);
        k++;
    }
    return k == count;
}

/* Outputs keep their tensors: one to one, or the module does not serve. */
static bool name_outputs(reuser *r)
{
    const sx_module *module = r->module;
    for (uint32_t i = 0; i < r->graph->output_count; i++) {
        sx_span stored = r->stored->output[r->meeting->output_of[i]].name;
        uint32_t t = 0;
        while (t < module->tensor_count &&
               (module->tensor[t].place != SX_TENSOR_OUTPUT || r->name[t].size > 0 ||
                !sx_span_equal(sx_module_string(module, module->tensor[t].name), stored))) {
            t++;
        }
        if (t == module->tensor_count) {
            return false;
        }
        r->name[t] = sx_module_put_text(&r->image->strings, r->graph->output[i].name);
    }
    return true;
}

static sx_code put_tables(reuser *r)
{
    const sx_module *module = r->module;
    sx_image *image = r->image;
    sx_module_tensor *tensor =
        (void *)sx_buf_room(&image->tensor, (size_t)module->tensor_count * sizeof(*tensor));
    SX_TRY(sx_buf_check(r->cx, &image->tensor, "tensors"));
    for (uint32_t t = 0; t < module->tensor_count; t++) {
        sx_module_tensor *to = &tensor[r->number[t]];
        *to = module->tensor[t];
        to->name = r->name[t].size > 0 ? r->name[t] : moved(r, to->name);
    }
    for (uint32_t k = 0; k < module->kernel_count; k++) {
        sx_module_kernel kernel = module->kernel[k];
        kernel.name = moved(r, kernel.name);
        kernel.what = moved(r, kernel.what);
        kernel.plan = moved(r, kernel.plan);
        kernel.verdict = moved(r, kernel.verdict);
        sx_buf_put(&image->kernel, &kernel, sizeof(kernel));
    }
    for (uint32_t i = 0; i < module->arg_count; i++) {
        sx_buf_put_u32(&image->arg, r->number[module->arg[i]]);
    }
    for (uint32_t i = 0; i < module->rewrite_count; i++) {
        const sx_module_rewrite *row = &module->rewrite[i];
        sx_module_rewrite rewrite = {moved(r, row->rule), moved(r, row->before),
                                     moved(r, row->after)};
        sx_buf_put(&image->rewrite, &rewrite, sizeof(rewrite));
    }
    for (uint64_t i = 0; i < module->cubin_count; i++) {
        sx_module_cubin cubin = module->cubin[i];
        cubin.toolchain = moved(r, cubin.toolchain);
        sx_buf_put(&image->cubin, &cubin, sizeof(cubin));
    }
    sx_buf_put(&image->part, module->part, (size_t)module->part_count * sizeof(*module->part));
    sx_buf_put(&image->launch, module->launch,
               (size_t)module->launch_count * sizeof(*module->launch));
    sx_buf_put(&image->code, module->code, (size_t)module->code_count);
    sx_buf_put(&image->constants, module->constants, (size_t)module->constants_count);
    sx_buf_put(&image->variant, module->variant,
               (size_t)module->variant_count * sizeof(*module->variant));
    const sx_module_info *info = module->info;
    image->info.arena_bytes = info->arena_bytes;
    image->info.persistent_bytes = info->persistent_bytes;
    image->info.workspace_bytes = info->workspace_bytes;
    image->info.flops = info->flops;
    image->info.cost_ns = info->cost_ns;
    image->info.floor_ns = info->floor_ns;
    return SX_OK;
}

static sx_code reuse(reuser *r, bool *done)
{
    const sx_module *module = r->module;
    bool same;
    r->number = SX_NEW_ARRAY(r->cx, uint32_t, (size_t)module->tensor_count + 1);
    r->name = SX_NEW_ARRAY(r->cx, sx_module_text, (size_t)module->tensor_count + 1);
    if (r->number == NULL || r->name == NULL) {
        return r->cx->error.code;
    }
    SX_TRY(same_program(r, &same));
    *done = same && number_parameters(r) && name_outputs(r);
    if (!*done) {
        sx_buf_clear(&r->image->optimized);
        return SX_OK;
    }
    r->strings = (uint32_t)r->image->strings.len;
    sx_buf_put(&r->image->strings, module->strings, (size_t)module->strings_count);
    SX_TRY(sx_graph_print(r->cx, r->graph, &r->image->program));
    return put_tables(r);
}

/* Runs of the module leave nothing behind: neither state nor what they write over inputs. */
static bool is_pure(const sx_module *module)
{
    bool pure = module->info->state_bytes == 0;
    for (uint64_t t = 0; t < module->tensor_count; t++) {
        pure = pure && module->tensor[t].alias == SX_MODULE_NONE;
    }
    return pure;
}

sx_code sx_semantic_reuse(sx_ctx *cx, const sx_core_request *request, const sx_graph *graph,
                          const sx_meeting *meeting, sx_image *image, bool *done)
{
    sx_core_library *library = request->library;
    sx_module module = {0};
    *done = false;
    if (!meeting->met || graph->effects != NULL ||
        library->candidate[library->which].module.len == 0) {
        return SX_OK;
    }
    uint32_t stage = sx_stage_begin(cx, "reuse");
    sx_span bytes = library->candidate[library->which].module;
    sx_code code = sx_module_decode(cx, bytes, true, &module);
    if (code == SX_OK && module.weights_count == 0 && module.variant_count == 1 &&
        is_pure(&module)) {
        reuser r = {
            .cx = cx, .module = &module, .graph = graph, .meeting = meeting, .image = image};
        library->reused = true;
        sx_semantic_report(library, image);
        code = reuse(&r, done);
        library->reused = *done;
        if (!*done) {
            sx_buf_clear(&image->rewrite);
        }
    }
    if (code == SX_CORRUPT || code == SX_INPUT) { /* no module of ours: it is compiled instead */
        sx_ctx_reset_error(cx);
        *done = false;
        code = SX_OK;
    }
    sx_stage_end(cx, stage, *done ? "done" : "no module", module.kernel_count);
    return code;
}

/* ---- e-graphs to look at ---- */

sx_code sx_core_egraph(sx_ctx *cx, const sx_core_request *request, sx_buf *snapshot)
{
    const sx_device *device;
    const sx_target *machine;
    sx_graph *graph, *canonical, *better;
    sx_optimize_options options;
    sx_optimize_report report;
    SX_TRY(sx_core_device(cx, request, &device, &machine));
    SX_TRY(sx_graph_parse(cx, request->ir, &graph));
    graph->sharding = NULL; /* kernels are those of one device */
    graph->effects = NULL;  /* versions of a state are values */
    SX_TRY(sx_graph_canon(cx, graph, &canonical));
    SX_TRY(sx_semantic_options(cx, request, &options));
    options.whole = true;
    options.snapshot = snapshot;
    SX_TRY(sx_optimize(cx, canonical, device, &options, &better, &report));
    return snapshot->len > 0
               ? SX_OK
               : SX_FAIL(cx, SX_LIMIT, "e-graph of more than %zu bytes", snapshot->limit);
}

sx_code sx_core_egraph_print(sx_ctx *cx, sx_span snapshot, sx_span target, sx_core_form form,
                             sx_buf *out)
{
    static sx_code (*const print[])(sx_ctx *, const sx_library_graph *, const uint64_t *,
                                    sx_buf *) = {[SX_CORE_JSON] = sx_export_json,
                                                 [SX_CORE_DOT] = sx_export_dot,
                                                 [SX_CORE_SVG] = sx_export_svg};
    const sx_device *device;
    sx_key rules;
    uint64_t *cost;
    const sx_objective time = {.time = 1};
    sx_library_graph *graph = SX_NEW(cx, sx_library_graph);
    if (graph == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_device_find(cx, target, &device));
    SX_TRY(sx_snapshot_rules(cx, snapshot, &rules));
    SX_TRY(sx_library_load(cx, snapshot, &rules, SX_LIBRARY_ALL, graph));
    SX_TRY(sx_optimize_node_costs(cx, &graph->t, device, &time, &cost));
    return print[form](cx, graph, cost, out);
}
