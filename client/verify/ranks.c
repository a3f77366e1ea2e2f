#include "client/verify/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/ranks.h"
#include "client/verify/verify.h"
#include "client/verify/rounded.h"
#include "core/eval/eval.h"
#include "core/ir/effect.h"

/* Of a program that keeps state: on what it begins with, and then each on what the one before left. */
#define RUNS 3u
/* Every rank has a program of its own, with all its memory. */
#define RANKS_MAX 256u

/* ---- the interpreter beside it ---- */

typedef struct {
    sx_ctx *cx;
    sxr_program *const *program; /* [ranks] */
    const sx_graph *graph;       /* with its mesh, bound */
    uint32_t ranks, parameters;
} mesh;

/* The text for the extents of the first rank, which are those of all. */
static sx_code mesh_graph(sx_ctx *cx, const sxr_program *program, sx_span text, sx_graph **bound)
{
    const sx_module *module = sxr_module(program);
    sx_graph *graph;
    sx_binding binding[SX_SYMBOLS_MAX];
    SX_ASSERT(module->symbol_count <= SX_SYMBOLS_MAX); /* sxv_bound_graph has seen it */
    SX_TRY(sx_graph_parse(cx, text, &graph));
    for (uint32_t i = 0; i < module->symbol_count; i++) {
        binding[i] =
            (sx_binding){sx_module_string(module, module->symbol[i].name), sxr_extent(program, i)};
    }
    return sx_graph_bind(cx, graph, binding, (uint32_t)module->symbol_count, bound);
}

static size_t bytes_of(const sx_type *type)
{
    return (size_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
}

/* What rank r read of a parameter: what a run overwrites is remembered. */
static sx_code parameter_of(const mesh *m, uint32_t r, uint32_t node, sx_span *raw)
{
    const sx_graph *graph = m->graph;
    const sx_attr *attr = sx_graph_attr(graph, &graph->node[node]);
    bool state = sx_graph_role(graph, node) == SX_KEEP_STATE;
    sx_module_place place = state          ? SX_TENSOR_STATE
                            : attr->weight ? SX_TENSOR_WEIGHT
                                           : SX_TENSOR_INPUT;
    uint32_t tensor = sxr_find(m->program[r], place, attr->name);
    if (tensor == UINT32_MAX ||
        sxr_size(m->program[r], tensor) != bytes_of(&graph->node[node].type)) {
        return SX_FAIL(m->cx, SX_CORRUPT, "module: parameter %.*s of the program has no tensor",
                       (int)attr->name.len, (const char *)attr->name.ptr);
    }
    const void *before = sxr_remembered(m->program[r], tensor);
    raw->ptr = before != NULL ? before : sxr_memory(m->program[r], tensor);
    raw->len = bytes_of(&graph->node[node].type);
    SX_ASSERT(raw->ptr != NULL);
    return SX_OK;
}

/* Results of all ranks in one mode, in memory of `own`. */
static sx_code evaluate(const mesh *m, sx_ctx *own, sx_eval_mode mode, sx_tensor *result)
{
    const sx_graph *graph = m->graph;
    const sx_graph **each = SX_NEW_ARRAY(own, const sx_graph *, m->ranks);
    sx_tensor *argument = SX_NEW_ARRAY(own, sx_tensor, (size_t)m->ranks * m->parameters + 1);
    if (each == NULL || argument == NULL) {
        return own->error.code;
    }
    for (uint32_t r = 0; r < m->ranks; r++) {
        uint32_t taken = 0;
        each[r] = graph;
        for (uint32_t n = 0; n < graph->node_count; n++) {
            sx_span raw;
            if (graph->node[n].op != SX_OP_PARAMETER) {
                continue;
            }
            sx_tensor *to = &argument[(size_t)r * m->parameters + taken++];
            SX_TRY(parameter_of(m, r, n, &raw));
            SX_TRY(sx_tensor_unpack(own, &graph->node[n].type, mode, raw, to));
        }
    }
    return sx_graph_eval_mesh(own, each, m->ranks, mode, argument, m->parameters, result,
                              graph->output_count);
}

/* The elements that the run of rank r gave an output. */
static const void *output_of(const mesh *m, uint32_t r, uint32_t k)
{
    const sx_graph *graph = m->graph;
    uint32_t into = sx_graph_into(graph, k);
    bool state = into != SX_NOWHERE && sx_graph_role(graph, into) == SX_KEEP_STATE;
    sx_span name = state ? sx_graph_attr(graph, &graph->node[into])->name : graph->output[k].name;
    uint32_t tensor = sxr_find(m->program[r], state ? SX_TENSOR_STATE : SX_TENSOR_OUTPUT, name);
    bool fits = tensor != UINT32_MAX && sxr_size(m->program[r], tensor) ==
                                            bytes_of(&graph->node[graph->output[k].node.i].type);
    return fits ? sxr_memory(m->program[r], tensor) : NULL;
}

static sx_code compare_results(const mesh *m, const sx_tensor *exact, const sx_tensor *typed,
                               sxv_whole *whole)
{
    const double *precise;
    bool unknown;
    bool tf32 = sxv_module_rounds(m->cx, sxr_module(m->program[0]));
    SX_TRY(sxv_precise_bounds(m->cx, m->graph, tf32, &precise));
    for (uint32_t r = 0; r < m->ranks; r++) {
        for (uint32_t k = 0; k < m->graph->output_count; k++) {
            const sx_output *output = &m->graph->output[k];
            size_t at = (size_t)r * m->graph->output_count + k;
            const sxv_pair pair = {.type = &exact[at].type,
                                   .exact = exact[at].data,
                                   .typed = typed[at].data,
                                   .tf32 = tf32};
            const void *memory = output_of(m, r, k);
            if (memory == NULL) {
                return SX_FAIL(m->cx, SX_CORRUPT,
                               "module: output %.*s of the program has no tensor",
                               (int)output->name.len, (const char *)output->name.ptr);
            }
            sx_code code = sxv_whole_take(m->cx, &pair, memory, output->name,
                                          precise[output->node.i], false, NULL, whole, &unknown);
            if (code != SX_OK) {
                return sx_fail_in(m->cx, "rank %u", r);
            }
        }
    }
    return SX_OK;
}

/* The outputs of all ranks as they are now. The interpreter's memory is given back. */
static sx_code compare(const mesh *m, size_t bytes, sxv_whole *whole)
{
    sx_ctx own;
    sx_ctx_init(&own, bytes > 0 ? bytes : SXR_REFERENCE_BYTES);
    own.fuel = UINT64_MAX / 2; /* bounded by operations and memory */
    own.cancelled = m->cx->cancelled;
    own.cancelled_self = m->cx->cancelled_self;
    size_t count = (size_t)m->ranks * m->graph->output_count;
    sx_tensor *exact = SX_NEW_ARRAY(&own, sx_tensor, count + 1);
    sx_tensor *typed = SX_NEW_ARRAY(&own, sx_tensor, count + 1);
    mesh in = *m;
    in.cx = &own;
    sx_code code = exact != NULL && typed != NULL ? SX_OK : own.error.code;
    code = code == SX_OK ? evaluate(&in, &own, SX_EVAL_F64, exact) : code;
    code = code == SX_OK ? evaluate(&in, &own, SX_EVAL_TYPED, typed) : code;
    code = code == SX_OK ? compare_results(&in, exact, typed, whole) : code;
    if (code != SX_OK) {
        m->cx->error = own.error;
        m->cx->error.code = code == SX_NOMEM ? SX_LIMIT : code;
    }
    sx_ctx_fini(&own);
    return m->cx->error.code;
}

static mesh mesh_of(sx_ctx *cx, sxr_program *const *program, const sx_graph *graph)
{
    mesh m = {cx, program, graph, sx_module_ranks(sxr_module(program[0])), 0};
    for (uint32_t n = 0; n < graph->node_count; n++) {
        m.parameters += graph->node[n].op == SX_OP_PARAMETER ? 1 : 0;
    }
    return m;
}

sx_code sxr_check_ranks(sx_ctx *cx, sxr_program *const *program, size_t reference_bytes,
                        sx_module_check *check)
{
    const sx_module *module = sxr_module(program[0]);
    sx_span text = {(const uint8_t *)module->program, (size_t)module->program_count};
    sx_graph *graph;
    sxv_whole whole = {0};
    *check = (sx_module_check){.passed = 1};
    SX_TRY(mesh_graph(cx, program[0], text, &graph));
    const mesh m = mesh_of(cx, program, graph);
    sx_code code = compare(&m, reference_bytes, &whole);
    check->points = whole.points;
    check->error = whole.error;
    check->tolerance = whole.bound;
    if (code == SX_OK && sxv_whole_says_nothing(&whole)) {
        code = SX_FAIL(cx, SX_INPUT,
                       "nothing was compared: on these inputs all %llu elements of the outputs are "
                       "NaN in the program as sent",
                       (unsigned long long)whole.points);
    }
    check->passed = code == SX_OK ? 1 : 0;
    return code;
}

/* ---- all ranks in one thread ---- */

typedef struct {
    sxr_program *program;
    sxr_executor executor;
    sxr_walk walk;
    uint32_t launch; /* a collective that it has come to */
    bool ended;
    uint8_t *memory; /* inputs, outputs and weights */
} rank;

static void arguments_of(const rank *k, uint32_t index, void *buffer[SX_MODULE_ARGS_MAX])
{
    const sx_module *module = sxr_module(k->program);
    const sx_module_launch *launch = &module->launch[index];
    for (uint32_t a = 0; a < launch->arg_count; a++) {
        buffer[a] = sxr_memory(k->program, module->arg[launch->arg_first + a]);
    }
}

/* Up to the next collective, or to the end. */
static sx_code go_on(sx_ctx *cx, rank *k, uint32_t prologue)
{
    const sx_module *module = sxr_module(k->program);
    void *buffer[SX_MODULE_ARGS_MAX];
    sxr_walk_event event;
    while ((event = sxr_walk_next(k->program, prologue, &k->walk, &k->launch)) != SXR_WALK_END) {
        const sx_module_launch *launch = &module->launch[k->launch];
        arguments_of(k, k->launch, buffer);
        if (event == SXR_WALK_ASK) {
            const uint8_t *truth = buffer[0];
            SX_TRY(sxr_walk_answer(cx, k->program, &k->walk, *truth != 0));
        } else if (event == SXR_WALK_ROUND) {
            if (launch->arg_count == 1) {
                memcpy(buffer[0], &k->walk.open[k->walk.depth - 1].round, 8);
            }
        } else if (launch->kind == SX_LAUNCH_COLLECTIVE) {
            return SX_OK;
        } else {
            SX_TRY(sxr_execute(&k->executor, k->launch, buffer));
        }
    }
    k->ended = true;
    return SX_OK;
}

/* All ranks have come to a collective: those that take part in each exchange. */
static sx_code exchange(sx_ctx *cx, const rank *ranks, uint32_t count, sxr_exchange *wants,
                        const void **from)
{
    void *buffer[SX_MODULE_ARGS_MAX];
    for (uint32_t r = 0; r < count; r++) {
        arguments_of(&ranks[r], ranks[r].launch, buffer);
        SX_TRY(sxr_exchange_of(cx, ranks[r].program, r, ranks[r].launch, buffer, &wants[r]));
    }
    for (uint32_t r = 0; r < count; r++) {
        const sxr_exchange *x = &wants[r];
        for (uint32_t k = 0; k < x->count; k++) {
            uint32_t other = x->first + k * x->stride;
            SX_TRY(sxr_exchange_agree(cx, x, r, &wants[other], other));
            from[k] = wants[other].from;
        }
        sxr_exchange_run(x, from);
    }
    return SX_OK;
}

static sx_code run_phase(sx_ctx *cx, rank *ranks, uint32_t count, uint32_t prologue)
{
    sxr_exchange *wants = SX_NEW_ARRAY(cx, sxr_exchange, count);
    const void **from = SX_NEW_ARRAY(cx, const void *, count);
    if (wants == NULL || from == NULL) {
        return cx->error.code;
    }
    for (uint32_t r = 0; r < count; r++) {
        ranks[r].walk = (sxr_walk){0};
        ranks[r].ended = false;
    }
    for (;;) { /* as long as programs are */
        uint32_t ended = 0, waits = 0;
        for (uint32_t r = 0; r < count; r++) {
            SX_TRY(go_on(cx, &ranks[r], prologue));
            ended += ranks[r].ended ? 1 : 0;
            waits = ranks[r].ended ? waits : r;
        }
        if (ended == count) {
            return SX_OK;
        }
        if (SX_NEVER(ended > 0)) {
            return SX_FAIL(cx, SX_INTERNAL, "rank %u waits in launch %u, others have ended", waits,
                           ranks[waits].launch);
        }
        SX_TRY(exchange(cx, ranks, count, wants, from));
    }
}

/* ---- verification ---- */

static size_t memory_size(const sxr_program *program)
{
    const sx_module *module = sxr_module(program);
    size_t bytes = 0;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        bytes += ((size_t)sxr_size(program, i) + 63) & ~(size_t)63;
    }
    return bytes + 64;
}

static sx_code bind_rank(sx_ctx *cx, rank *k, const sxr_draws *draws, uint32_t r, uint64_t seed)
{
    const sx_module *module = sxr_module(k->program);
    uint8_t *next = (uint8_t *)(((uintptr_t)k->memory + 63) & ~(uintptr_t)63);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        bool output = tensor->place == SX_TENSOR_OUTPUT;
        bool in_place = output && sxr_alias(k->program, i) != SX_MODULE_NONE;
        if ((!output && tensor->place != SX_TENSOR_INPUT && tensor->place != SX_TENSOR_WEIGHT) ||
            in_place) {
            continue;
        }
        size_t size = (size_t)sxr_size(k->program, i);
        memset(next, 0x5a, size);
        if (!output) { /* weights are those of this rank */
            sxr_draws_fill(draws, i, seed + UINT64_C(0x9E3779B97F4A7C15) * (r * 1021u + i), next);
        }
        SX_TRY(sxr_bind(cx, k->program, i, next, size));
        next += (size + 63) & ~(size_t)63;
    }
    return SX_OK;
}

static sx_code open_rank(sxv_verifier *v, const sxr_verify_options *options, rank *k)
{
    sxr_options open = {.threads = 1, .any_level = true};
    const sx_module *module = v->module;
    sx_machines machines;
    const sx_targets *targets = options->targets != NULL ? options->targets : sx_targets_all();
    const sx_machine **machine = SX_NEW_ARRAY(v->cx, const sx_machine *, targets->count);
    SX_TRY(machine != NULL ? SX_OK : v->cx->error.code);
    for (uint32_t i = 0; i < targets->count; i++) {
        machine[i] = targets->row[i]->machine;
    }
    machines = (sx_machines){machine, targets->count};
    open.machines = &machines;
    SX_TRY(sxr_open_bytes(v->cx, sxr_bytes(v->program), &open, &k->program));
    SX_TRY(sxr_choose_machine(v->cx, k->program, v->level));
    for (uint32_t i = 0; i < module->symbol_count; i++) {
        sx_span name = sx_module_string(module, module->symbol[i].name);
        SX_TRY(sxr_set_extent(v->cx, k->program, name, sxr_extent(v->program, i)));
    }
    SX_TRY(sxr_executor_make(v->cx, options->targets, k->program, &k->executor));
    k->memory = malloc(memory_size(k->program));
    return k->memory != NULL ? SX_OK : SX_FAIL(v->cx, SX_NOMEM, "no memory for a rank");
}

/* Runs all ranks, and compares each run. */
static sx_code run_ranks(sxv_verifier *v, const mesh *m, rank *ranks, sxv_whole *whole)
{
    uint32_t runs = m->graph->effects != NULL ? RUNS : 1;
    SX_TRY(run_phase(v->cx, ranks, m->ranks, 1));
    for (uint32_t i = 0; i < runs; i++) {
        for (uint32_t r = 0; r < m->ranks; r++) {
            SX_TRY(sxr_remember(v->cx, ranks[r].program));
        }
        SX_TRY(run_phase(v->cx, ranks, m->ranks, 0));
        SX_TRY(compare(m, v->reference_bytes, whole));
    }
    return SX_OK;
}

static sx_code verify_all(sxv_verifier *v, const sxr_verify_options *options, const sx_graph *graph,
                          rank *ranks, uint32_t count, sxv_whole *whole)
{
    sxr_draws *draws;
    sxr_program **program = SX_NEW_ARRAY(v->cx, sxr_program *, count);
    SX_TRY(program != NULL ? SX_OK : v->cx->error.code);
    for (uint32_t r = 0; r < count; r++) {
        SX_TRY(open_rank(v, options, &ranks[r]));
        program[r] = ranks[r].program;
    }
    SX_TRY(sxr_draws_make(v->cx, program[0], &draws));
    for (uint32_t r = 0; r < count; r++) {
        SX_TRY(bind_rank(v->cx, &ranks[r], draws, r, options->seed));
    }
    const mesh m = mesh_of(v->cx, program, graph);
    return run_ranks(v, &m, ranks, whole);
}

static const char row_name[] = "program as sent, all outputs of all ranks";

static void add_absent(sxv_verifier *v, const char *why)
{
    char text[320];
    (void)snprintf(text, sizeof(text), "%s: %.250s", row_name, why);
    sxv_add_check(v, text, SX_CHECK_ABSENT, 0, 0, 0);
}

/* What can be evaluated; `why` is empty then. */
static void may_compare(const sxv_verifier *v, const sx_graph *graph, uint32_t count, char why[160])
{
    double flops = sxv_reference_flops(graph) * count, cells = 0;
    double most = v->flops_max < 0 ? 0 : SXV_RANKS_FLOPS;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        cells += (double)sx_tensor_elements(&graph->node[n].type);
    }
    double bytes = 2.0 * 8 * cells * count;
    double room = (double)(v->reference_bytes > 0 ? v->reference_bytes : SXR_REFERENCE_BYTES);
    why[0] = '\0';
    if (count > RANKS_MAX) {
        (void)snprintf(why, 160, "%u ranks, at most %u are evaluated", count, RANKS_MAX);
    } else if (flops > most) {
        (void)snprintf(why, 160, "%.3g operations of %u ranks, the interpreter does at most %.3g",
                       flops, count, most);
    } else if (bytes > room) {
        (void)snprintf(why, 160, "%.3g bytes of tensors of %u ranks, at most %.3g", bytes, count,
                       room);
    }
}

static void close_ranks(rank *ranks, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++) {
        sxr_executor_fini(&ranks[r].executor);
        sxr_close(ranks[r].program);
        free(ranks[r].memory);
    }
}

sx_code sxv_verify_ranks(sxv_verifier *v, const sxr_verify_options *options, sx_span sent)
{
    uint32_t count = sx_module_ranks(v->module);
    sx_graph *graph;
    sxv_whole whole = {0};
    char why[160];
    SX_TRY(mesh_graph(v->cx, v->program, sent, &graph));
    may_compare(v, graph, count, why);
    if (why[0] != '\0') {
        add_absent(v, why);
        return SX_OK;
    }
    rank *ranks = SX_NEW_ARRAY(v->cx, rank, count);
    SX_TRY(ranks != NULL ? SX_OK : v->cx->error.code);
    sx_code code = verify_all(v, options, graph, ranks, count, &whole);
    close_ranks(ranks, count);
    if (code == SX_LIMIT || code == SX_NOMEM) {
        add_absent(v, v->cx->error.text);
        sx_ctx_reset_error(v->cx);
        return SX_OK;
    }
    SX_TRY(code);
    if (sxv_whole_says_nothing(&whole)) {
        add_absent(v, "every element is NaN on random inputs");
        return SX_OK;
    }
    char text[160];
    (void)snprintf(text, sizeof(text), "%s (%u)%s", row_name, count,
                   graph->effects != NULL ? " and what they leave, over 3 runs" : "");
    sxv_add_check(v, text, whole.imprecise ? SX_CHECK_IMPRECISE : SX_CHECK_PASSED, whole.points,
                  whole.error, whole.bound);
    return SX_OK;
}
