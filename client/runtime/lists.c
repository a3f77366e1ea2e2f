/* lists.c - runs the launches of a variant, loops among them, in the way of the program. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/runtime/device.h"
#include "client/runtime/pages.h"
#include "client/runtime/ranks.h"

#define STOP_ASKED_NS UINT64_C(20000000)

/* A tensor that all variants share is made once. */
static sx_code run_prologue(sx_ctx *cx, sxr_program *program, uint32_t index, uint64_t *ns)
{
    const sx_module *module = &program->module;
    const sx_module_launch *launch = &module->launch[index];
    bool shared = sx_module_shares_result(module, launch);
    uint32_t result = shared ? module->arg[launch->arg_first + launch->arg_count - 1] : 0;
    if (!shared || !program->made[result]) {
        SX_TRY(program->way->launch(cx, program, index, ns));
        program->made[result] = shared || program->made[result];
    }
    return SX_OK;
}

static sx_code count_round(sx_ctx *cx, sxr_program *program, const sxr_loop_place *at)
{
    const sx_module_launch *loop = &program->module.launch[at->loop];
    if (loop->arg_count == 1) {
        return program->way->count_round(cx, program, program->module.arg[loop->arg_first],
                                         at->round);
    }
    return SX_OK;
}

static bool has_body(const sx_module_launch *launch)
{
    return launch->kind == SX_LAUNCH_LOOP || launch->kind == SX_LAUNCH_BRANCH ||
           launch->kind == SX_LAUNCH_WHILE;
}

/* At the end of a range of what is open around launch `i`: what comes next. SXR_WALK_LAUNCH: nothing ends here, or the
 * walk is elsewhere now. */
static sxr_walk_event close_range(const sxr_program *program, sxr_walk *walk, uint32_t i,
                                  bool *moved)
{
    sxr_loop_place *inner = &walk->open[walk->depth - 1];
    const sx_module_launch *outer = &program->module.launch[inner->loop];
    uint32_t base = program->module.variant[program->variant].launch_first;
    uint32_t begin = inner->loop + 1, middle = begin + outer->first, end = begin + outer->body;
    SX_ASSERT(i >= begin && i <= end && base <= begin);
    *moved = false;
    if (outer->kind == SX_LAUNCH_WHILE && i == middle && !inner->truth) {
        return SXR_WALK_ASK;
    }
    if (outer->kind == SX_LAUNCH_BRANCH && i == middle && inner->truth) {
        *moved = true;
        walk->at = end - base;
        walk->depth--;
        return SXR_WALK_LAUNCH;
    }
    if (i != end) {
        return SXR_WALK_LAUNCH;
    }
    *moved = true;
    inner->round++;
    bool again = outer->kind == SX_LAUNCH_WHILE ||
                 (outer->kind == SX_LAUNCH_LOOP && inner->round < program->rounds[inner->loop]);
    inner->truth = false;
    walk->at = again ? begin - base : walk->at;
    walk->depth -= again ? 0 : 1;
    return again && outer->kind == SX_LAUNCH_LOOP ? SXR_WALK_ROUND : SXR_WALK_LAUNCH;
}

/* Where a range ends, what is around it decides what is next. */
sxr_walk_event sxr_walk_next(sxr_program *program, uint32_t prologue, sxr_walk *walk,
                             uint32_t *index)
{
    const sx_module *module = &program->module;
    const sx_module_variant *variant = &module->variant[program->variant];
    while (walk->at < variant->launch_count || walk->depth > 0) {
        uint32_t i = variant->launch_first + walk->at;
        bool moved = false;
        if (walk->depth > 0) {
            *index = walk->open[walk->depth - 1].loop;
            sxr_walk_event event = close_range(program, walk, i, &moved);
            if (event != SXR_WALK_LAUNCH) {
                return event;
            }
        }
        if (moved) {
            continue;
        }
        const sx_module_launch *launch = &module->launch[i];
        *index = i;
        walk->at += launch->prologue != prologue ? 1 + launch->body : 1;
        if (launch->prologue != prologue) {
            continue;
        }
        if (has_body(launch)) {
            SX_ASSERT(walk->depth < SX_MODULE_LOOPS_MAX);
            walk->open[walk->depth++] = (sxr_loop_place){.loop = i};
            if (launch->kind == SX_LAUNCH_WHILE) {
                continue;
            }
            return launch->kind == SX_LAUNCH_LOOP ? SXR_WALK_ROUND : SXR_WALK_ASK;
        }
        if (launch->kind == SX_LAUNCH_SLICE || launch->kind == SX_LAUNCH_ROW) {
            SX_ASSERT(walk->depth > 0);
            program->round = walk->open[walk->depth - 1].round;
        }
        return SXR_WALK_LAUNCH;
    }
    return SXR_WALK_END;
}

sx_code sxr_walk_answer(sx_ctx *cx, const sxr_program *program, sxr_walk *walk, bool truth)
{
    SX_ASSERT(walk->depth > 0);
    sxr_loop_place *inner = &walk->open[walk->depth - 1];
    const sx_module_launch *outer = &program->module.launch[inner->loop];
    uint32_t base = program->module.variant[program->variant].launch_first;
    uint32_t begin = inner->loop + 1, middle = begin + outer->first, end = begin + outer->body;
    inner->truth = truth;
    if (outer->kind == SX_LAUNCH_BRANCH) {
        walk->at = (truth ? begin : middle) - base;
        return SX_OK;
    }
    SX_ASSERT(outer->kind == SX_LAUNCH_WHILE && base + walk->at == middle);
    if (truth && inner->round == outer->value) {
        return SX_FAIL(cx, SX_LIMIT,
                       "while: the condition is true after %llu rounds (launch %u of the module)",
                       (unsigned long long)inner->round, inner->loop);
    }
    walk->at = (truth ? middle : end) - base;
    walk->depth -= truth ? 0 : 1;
    return SX_OK;
}

bool sxr_walk_is_last(const sxr_program *program, const sxr_walk *walk)
{
    bool last = true;
    SX_ASSERT(walk->depth <= SX_MODULE_LOOPS_MAX);
    for (uint32_t d = 0; d < walk->depth; d++) {
        const sx_module_launch *outer = &program->module.launch[walk->open[d].loop];
        last = last && outer->kind != SX_LAUNCH_WHILE &&
               (outer->kind == SX_LAUNCH_BRANCH ||
                walk->open[d].round + 1 == program->rounds[walk->open[d].loop]);
    }
    return last;
}

void sxr_watch(sxr_program *program, int (*stop)(void *self), void *self)
{
    program->stop = stop;
    program->stop_self = self;
}

/* After a round. `next_ns` is when the next question is due, 0 in the first round. */
static sx_code ask_to_stop(sx_ctx *cx, const sxr_program *program, uint64_t *next_ns)
{
    struct timespec now;
    if (program->stop == NULL) {
        return SX_OK;
    }
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    bool asks = *next_ns != 0 && now_ns >= *next_ns;
    *next_ns = *next_ns == 0 || asks ? now_ns + STOP_ASKED_NS : *next_ns;
    return asks && program->stop(program->stop_self) != 0
               ? SX_FAIL(cx, SX_CANCELLED, "the run was given up by the caller")
               : SX_OK;
}

static sx_code answer(sx_ctx *cx, sxr_program *program, uint32_t index, sxr_walk *walk)
{
    const sx_module *module = &program->module;
    bool truth;
    SX_TRY(program->way->ask(cx, program, module->arg[module->launch[index].arg_first], &truth));
    return sxr_walk_answer(cx, program, walk, truth);
}

/* Launches of the variant, of the prologue or of the run. */
static sx_code run_launches(sx_ctx *cx, sxr_program *program, uint32_t prologue,
                            uint64_t *launch_ns)
{
    sxr_walk walk = {0};
    uint32_t i;
    uint64_t next_ns = 0;
    sxr_walk_event event;
    while ((event = sxr_walk_next(program, prologue, &walk, &i)) != SXR_WALK_END) {
        if (event != SXR_WALK_LAUNCH) {
            SX_TRY(ask_to_stop(cx, program, &next_ns));
        }
        if (event == SXR_WALK_ROUND) {
            SX_TRY(count_round(cx, program, &walk.open[walk.depth - 1]));
            continue;
        }
        if (event == SXR_WALK_ASK) {
            SX_TRY(answer(cx, program, i, &walk));
            continue;
        }
        uint64_t *ns = launch_ns != NULL ? &launch_ns[i] : NULL;
        SX_TRY(prologue == 1 ? run_prologue(cx, program, i, ns)
                             : program->way->launch(cx, program, i, ns));
    }
    return SX_OK;
}

/* All weights, and unless `weights_alone` all inputs and outputs; others have memory from the start. */
static sx_code check_bound(sx_ctx *cx, const sxr_program *program, bool weights_alone)
{
    const sx_module *module = &program->module;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        uint32_t place = module->tensor[i].place;
        bool each_run = place == SX_TENSOR_INPUT || place == SX_TENSOR_OUTPUT;
        bool asked = place == SX_TENSOR_WEIGHT || (each_run && !weights_alone);
        if (asked && !sxr_bound(program, i) && module->tensor[i].size > 0) {
            sx_span name = sx_module_string(module, module->tensor[i].name);
            return SX_FAIL(cx, SX_INPUT, "tensor %.*s is not bound", (int)name.len,
                           (const char *)name.ptr);
        }
    }
    return SX_OK;
}

static sx_code run_prologue_once(sx_ctx *cx, sxr_program *program, uint64_t *launch_ns)
{
    bool *done = &program->prologue_done[program->variant];
    if (!*done) {
        SX_TRY(sxr_weights_again(cx, program));
        SX_TRY(run_launches(cx, program, 1, launch_ns));
        *done = true;
    }
    return SX_OK;
}

/* What the first run of a module of fixed extents writes, all of it, gets its small pages at once. */
static void touch_memory(sxr_program *program)
{
    if (!program->touched && program->memory != NULL && program->module.symbol_count == 0) {
        size_t size = (size_t)(program->workspace - program->memory);
        size_t huge = sxr_pages_huge(program->memory, program->memory_size);
        sxr_pages_touch(program->memory + huge, size > huge ? size - huge : 0);
    }
    program->touched = true;
}

sx_code sxr_run_opening(sx_ctx *cx, sxr_program *program)
{
    size_t count = (size_t)program->module.launch_count;
    program->opening_ns = calloc(count + 1, sizeof(*program->opening_ns));
    if (program->opening_ns == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %zu launches", count);
    }
    touch_memory(program);
    SX_TRY(run_prologue_once(cx, program, program->opening_ns));
    program->as_opened = true;
    return SX_OK;
}

/* What opening has done counts for the first run; NULL: nobody asks. */
static void tell_opening(sxr_program *program, uint64_t *launch_ns)
{
    for (uint64_t i = 0; launch_ns != NULL && i < program->module.launch_count; i++) {
        launch_ns[i] = program->as_opened ? program->opening_ns[i] : 0;
    }
    free(program->opening_ns);
    program->opening_ns = NULL;
}

/* The prologue where it has not run for these weights, then the rest. */
static sx_code run_variant(sx_ctx *cx, sxr_program *program, uint64_t *launch_ns)
{
    touch_memory(program);
    SX_TRY(run_prologue_once(cx, program, launch_ns));
    return run_launches(cx, program, 0, launch_ns);
}

/* Nothing in the variant has a body, is a piece of one, or needs another rank, and nothing changes with a symbol. */
static bool is_usual(const sxr_program *program)
{
    const sx_module *module = &program->module;
    const sx_module_variant *variant = &module->variant[program->variant];
    bool usual =
        program->device == NULL && module->symbol_count == 0 && sx_module_ranks(module) <= 1;
    for (uint32_t i = 0; i < variant->launch_count; i++) {
        uint32_t kind = module->launch[variant->launch_first + i].kind;
        usual =
            usual && (kind == SX_LAUNCH_KERNEL || kind == SX_LAUNCH_COPY || kind == SX_LAUNCH_FILL);
    }
    return usual;
}

static sx_code run(sx_ctx *cx, sxr_program *program, uint64_t *launch_ns)
{
    const sx_module *module = &program->module;
    if (!sxr_runs_here(program)) {
        return sxr_refuse_machine(cx, module);
    }
    if (module->variant_count == 0) {
        return SX_OK;
    }
    if (sx_module_ranks(module) > 1 && program->communicator == NULL) {
        return SX_FAIL(cx, SX_USAGE, "%u ranks run the module together: no communicator was given",
                       sx_module_ranks(module));
    }
    SX_TRY(sxr_extents_check(cx, program));
    SX_TRY(check_bound(cx, program, false));
    SX_TRY(sxr_check_apart(cx, program));
    const sx_module_variant *variant = &module->variant[program->variant];
    bool done = program->prologue_done[program->variant];
    if (program->opening_ns != NULL) {
        tell_opening(program, launch_ns);
    }
    for (uint32_t i = 0; launch_ns != NULL && i < variant->launch_count; i++) {
        uint32_t index = variant->launch_first + i;
        launch_ns[index] = done && module->launch[index].prologue != 0 ? launch_ns[index] : 0;
    }
    const sxr_way *way = program->way;
    SX_TRY(way->begin != NULL ? way->begin(cx, program) : SX_OK);
    sx_code code = run_variant(cx, program, launch_ns);
    program->usual = code == SX_OK && (program->usual || is_usual(program));
    return way->end != NULL ? way->end(cx, program, code) : code;
}

/* Other ranks do not wait for one that failed, wherever. */
sx_code sxr_run(sx_ctx *cx, sxr_program *program, uint64_t *launch_ns)
{
    const sxr_communicator *c = program->communicator;
    if (launch_ns == NULL && sxr_run_usual(program)) {
        return SX_OK;
    }
    sx_code code = run(cx, program, launch_ns);
    if (code != SX_OK && c != NULL && c->abort != NULL) {
        c->abort(c->self, &cx->error);
    }
    return code;
}

/* ---- on a stream of the caller ---- */

static sx_code check_gpu(sx_ctx *cx, const sxr_program *program)
{
    if (program->device == NULL) {
        return SX_FAIL(cx, SX_USAGE, "the module runs on the processor, which has no streams");
    }
    return sxr_extents_check(cx, program);
}

/* How a branch or while goes on the host learns by waiting, which it cannot do for a stream of somebody else's or a
 * graph. */
static sx_code refuse_asking(sx_ctx *cx, const sxr_program *program)
{
    const sx_module *module = &program->module;
    const sx_module_variant *variant = &module->variant[program->variant];
    for (uint32_t i = 0; i < variant->launch_count; i++) {
        uint32_t index = variant->launch_first + i, kind = module->launch[index].kind;
        if (kind == SX_LAUNCH_BRANCH || kind == SX_LAUNCH_WHILE) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "launch %u is a %s: the host waits for what it asks, which it cannot on "
                           "a stream of the caller or in a graph; a run can",
                           index, sx_module_launch_name(kind));
        }
    }
    return SX_OK;
}

sx_code sxr_prepare(sx_ctx *cx, sxr_program *program)
{
    SX_TRY(check_gpu(cx, program));
    SX_TRY(check_bound(cx, program, true));
    SX_ASSERT(program->variant != SX_MODULE_NONE); /* code of a GPU is in a variant */
    SX_TRY(sxr_device_prepare_begin(cx, program));
    return sxr_device_prepare_end(cx, program, run_prologue_once(cx, program, NULL));
}

sx_code sxr_enqueue(sx_ctx *cx, sxr_program *program, void *stream)
{
    SX_TRY(check_gpu(cx, program));
    SX_TRY(check_bound(cx, program, false));
    SX_TRY(sxr_check_apart(cx, program));
    SX_TRY(refuse_asking(cx, program));
    SX_TRY(sxr_device_check_enqueue(cx, program));
    SX_TRY(sxr_device_enter(cx, program, stream));
    sx_code code = run_launches(cx, program, 0, NULL);
    sxr_device_leave(program);
    return code;
}

sx_code sxr_time_graph(sx_ctx *cx, sxr_program *program, uint32_t count, uint64_t *ns)
{
    void *graph = NULL;
    SX_TRY(check_gpu(cx, program));
    SX_TRY(check_bound(cx, program, false));
    SX_TRY(sxr_check_apart(cx, program));
    SX_TRY(refuse_asking(cx, program));
    SX_TRY(sxr_device_check_prepared(cx, program));
    SX_TRY(sxr_device_graph_begin(cx, program));
    sx_code code = sxr_device_graph_end(cx, program, run_launches(cx, program, 0, NULL), &graph);
    return sxr_device_graph_time(cx, program, code, graph, count, ns);
}
