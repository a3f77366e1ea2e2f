#include "client/verify/determinism.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/verify/proxy.h"
#include "client/verify/trial.h"
#include "client/verify/verifier.h"
#include "core/fuse/fuse.h"
#include "core/kernel/online_blocks.h"
#include "core/search/search.h"

#define INSTRUCTIONS UINT64_C(2000000)
#define SCHEDULES 8

static const int64_t extents[] = {1, 2, 3, 31, 64, 65, 4096};

typedef struct {
    sx_buf *rows;
    uint64_t instructions_max, seed;
    const sx_targets *targets;
    /* Emulates the code that the processor runs, too. */
    sxr_executor emulating;
    /* Of the launch at hand: what its own code made, which bytes of that are there (NULL: all), and the same once
     * more. */
    uint8_t *bits, *touched, *again, *touched_again;
    size_t bytes;
    sxr_kernel_evidence *row;
} visitor;

/* ---- the numerics plan in words ---- */

static void describe_row(const sx_analysis *a, const char *rounding, char *text, size_t size)
{
    long long length = (long long)a->extent[SX_ROLE_SUM];
    sx_row_pieces cut = {.count = 1};
    char pieces[96] = "";
    if ((a->reduced & (a->reduced - 1)) == 0) {
        cut = sx_row_cut(length, a->lane_bytes);
    }
    if (cut.count > 1) {
        (void)snprintf(pieces, sizeof(pieces), " in %lld pieces of %lld, added in ascending order",
                       (long long)cut.count, (long long)cut.length);
    }
    if (!a->along) {
        (void)snprintf(text, size, "%s of %lld in ascending order for each row%s; %u bytes (%s)",
                       cut.count > 1 ? "chains" : "one chain", length, pieces, a->lane_bytes,
                       rounding);
        return;
    }
    (void)snprintf(text, size,
                   "rows of %lld%s: four accumulators of %d virtual lanes in turn, added in pairs, "
                   "lanes folded by halves (%s)",
                   length, pieces, SX_ROW_BYTES / (int)a->lane_bytes, rounding);
}

static void describe_nested(const sx_analysis *a, const sx_schedule *s, const char *rounding,
                            char *text, size_t size)
{
    sx_online_blocks blocks;
    long long k = (long long)a->extent[SX_ROLE_SUM], inner = (long long)a->extent[SX_ROLE_INNER];
    if (sx_online_blocks_of(s, &blocks)) {
        (void)snprintf(text, size,
                       "one chain of %lld products from 0, of factors made of chains of %lld and "
                       "rounded to %s, in ascending groups of %u by a matrix instruction",
                       k, inner, sx_dtype_name(a->input[blocks.value].dtype), blocks.matrix_steps);
        return;
    }
    (void)snprintf(text, size,
                   "one chain of %lld fused multiply-adds in ascending order from 0, of factors "
                   "made of such chains of %lld, rounded once to %s (%s)",
                   k, inner, sx_dtype_name(a->result.dtype), rounding);
}

/* `pieces`: of how many keys, where an online sum is made in pieces; else 0. */
static void describe(const sx_analysis *a, const sx_schedule *s, const sx_target *target,
                     int64_t pieces, char *text, size_t size)
{
    sx_block_tiles tiles;
    sx_online_blocks online;
    sx_role sum = SX_ROLE_SUM;
    long long k = (long long)a->extent[sum];
    const char *rounding = target->vectors.numerics;
    switch (a->kind) {
    case SX_KERNEL_MAP:
        (void)snprintf(text, size, "element by element, each operation rounded (%s)", rounding);
        return;
    case SX_KERNEL_DOT:
        if (sx_block_tiles_of(s, &tiles) && tiles.matrix_steps > 0) {
            bool rounds =
                a->input[a->lhs].dtype == SX_F32; /* a matrix instruction has no other f32 */
            int used = snprintf(text, size,
                                "%lld products%s in ascending groups of %u by a matrix instruction "
                                "of %ux%ux%u",
                                k, rounds ? " of factors rounded to tf32" : "", tiles.matrix_steps,
                                tiles.matrix_rows, tiles.matrix_columns, tiles.matrix_steps);
            if (tiles.slice != 0 && used > 0 && (size_t)used < size) {
                (void)snprintf(text + used, size - (size_t)used,
                               ", in slices of %lld that are added in ascending order",
                               (long long)tiles.slice);
            }
            return;
        }
        (void)snprintf(text, size,
                       "one chain of %lld fused multiply-adds in ascending order from 0, rounded "
                       "once to %s (%s)",
                       k, sx_dtype_name(a->result.dtype), rounding);
        return;
    case SX_KERNEL_NESTED: describe_nested(a, s, rounding, text, size); return;
    case SX_KERNEL_ROW: describe_row(a, rounding, text, size); return;
    case SX_KERNEL_ONLINE:
        if (pieces != 0) {
            (void)snprintf(text, size,
                           "%lld keys in pieces of %lld, weighted by the sums of their weights "
                           "and added in ascending order (%s)",
                           k, (long long)pieces, rounding);
            return;
        }
        if (sx_online_blocks_of(s, &online)) {
            (void)snprintf(
                text, size,
                "%lld keys in stages of %lld, rescaled at each; scores of %lld, and weights "
                "rounded to %s, in groups of %u by a matrix instruction",
                k, (long long)online.keys, (long long)a->extent[SX_ROLE_INNER],
                sx_dtype_name(a->input[online.value].dtype), online.matrix_steps);
            return;
        }
        (void)snprintf(text, size,
                       "%lld keys in ascending blocks of %lld, maximum and sum rescaled at the end "
                       "of each; scores are chains of %lld (%s)",
                       k, (long long)sx_schedule_step(s, sum, SX_BIND_LOOP, 0),
                       (long long)a->extent[SX_ROLE_INNER], rounding);
        return;
    }
}

/* ---- the own code of a kernel ---- */

static void differ(sxr_kernel_evidence *row, const char *what, int64_t element)
{
    row->differs = true;
    (void)snprintf(row->difference, sizeof(row->difference), "%s: element %lld has other bits",
                   what, (long long)element);
}

static sx_code make_room(sxv_verifier *v, visitor *me, size_t bytes)
{
    uint8_t **room[] = {&me->bits, &me->touched, &me->again, &me->touched_again};
    for (uint32_t i = 0; bytes > me->bytes && i < SX_COUNT(room); i++) {
        free(*room[i]);
        *room[i] = malloc(bytes);
        if (*room[i] == NULL) {
            me->bytes = 0;
            return SX_FAIL(v->cx, SX_NOMEM, "no memory for a result of %zu bytes", bytes);
        }
    }
    me->bytes = bytes > me->bytes ? bytes : me->bytes;
    return SX_OK;
}

/* Where the results of a launch lie in the memory for all of them. */
typedef struct {
    uint32_t first, count; /* arguments of the launch */
    size_t offset[SX_MODULE_RESULTS_MAX], bytes;
} results;

static results results_of(const sxv_verifier *v, uint32_t index)
{
    const sx_module_launch *launch = &v->module->launch[index];
    results r = {.count = sx_module_results(v->module, launch)};
    SX_ASSERT(r.count > 0 && r.count <= launch->arg_count);
    r.first = launch->arg_count - r.count;
    r.bytes = sxr_results_room(&v->executor, index, r.offset);
    return r;
}

/* Compares what was made again with what was made first, where it is there. */
static void compare_again(sxv_verifier *v, visitor *me, uint32_t index, const char *what,
                          const uint8_t *touched)
{
    const sx_module_launch *launch = &v->module->launch[index];
    results r = results_of(v, index);
    for (uint32_t k = 0; k < r.count && !me->row->differs; k++) {
        uint32_t tensor = v->module->arg[launch->arg_first + r.first + k];
        const sx_module_tensor *record = &v->module->tensor[tensor];
        int64_t elements = (int64_t)(sxr_size(v->program, tensor) / record->element_bytes);
        int64_t other = sxv_first_difference(
            (sx_dtype)record->dtype, me->again + r.offset[k], me->bits + r.offset[k],
            touched != NULL ? touched + r.offset[k] : NULL, elements);
        if (other >= 0) {
            differ(me->row, what, other);
        }
    }
}

/* Once more in the same way where the processor runs it, and in the other order by the emulator. */
static sx_code run_again(sxv_verifier *v, visitor *me, uint32_t index, void **buffer,
                         const uint8_t *touched)
{
    const sx_module_launch *launch = &v->module->launch[index];
    results r = results_of(v, index);
    bool native = v->executor.emulator == NULL;
    for (uint32_t k = 0; k < r.count; k++) {
        buffer[r.first + k] = me->again + r.offset[k];
    }
    if (native) {
        memset(me->again, 0x5a, r.bytes);
        SX_TRY(sxr_execute(&v->executor, index, buffer));
        compare_again(v, me, index, "run again", NULL);
        if (me->row->differs) {
            return SX_OK;
        }
    }
    memset(me->touched_again, 0, r.bytes);
    sxr_executor *executor = native ? &me->emulating : &v->executor;
    SX_TRY(sxr_execute_backwards(executor, index, buffer, me->instructions_max / 4,
                                 me->touched_again));
    for (uint32_t k = 0; k < r.count; k++) {
        uint32_t tensor = v->module->arg[launch->arg_first + r.first + k];
        size_t end = r.offset[k] + (size_t)sxr_size(v->program, tensor);
        for (size_t i = r.offset[k]; i < end; i++) {
            me->touched_again[i] &= touched != NULL ? touched[i] : 1;
            me->row->partly = me->row->partly || me->touched_again[i] == 0;
        }
    }
    compare_again(v, me, index, "from the last point of the grid to the first", me->touched_again);
    return SX_OK;
}

/* ---- its node ---- */

/* The schedule that the module says: a text that may be followed by ", 3 vectors on the stack". */
static sx_code schedule_of(sxv_verifier *v, const sx_module_kernel *kernel, sx_schedule *s)
{
    sx_span text = sx_module_string(v->module, kernel->plan);
    while (text.len > 0 && text.ptr[text.len - 1] != ')') {
        text.len--;
    }
    return sx_schedule_parse(v->cx, text, s);
}

/* The schedule that the kernel of a node would have alone: lanes of a kernel with several results may be wider. */
static sx_code own_schedule(sxv_verifier *v, const sxv_subject *s, const sx_analysis *a,
                            sx_schedule *schedule)
{
    sx_search_result *search = SX_NEW(v->cx, sx_search_result);
    SX_TRY(search != NULL ? sx_search_first(v->cx, a, s->device, false, 1, search)
                          : v->cx->error.code);
    if (SX_NEVER(search->best_count == 0)) { /* it was priced when the nodes were joined */
        return SX_FAIL(v->cx, SX_INTERNAL, "a result has no kernel of its own");
    }
    *schedule = search->best[0].schedule;
    return SX_OK;
}

/* A result of the launch and the node that it is, over the arguments of the launch: `input` of them, of these types.
 * Of one of several results (`alone` false) the kernel that its node would have alone gives the bits. */
typedef struct {
    const sx_attr *fused;
    const sx_type *type;
    uint32_t input_count;
    size_t at; /* in the memory of all results */
    bool alone;
} made_of;

static sx_code find_device(sxv_verifier *v, sxv_subject *s)
{
    if (sx_device_find(v->cx, sxv_target_of(v->program), &s->device) != SX_OK) { /* the user's */
        sx_ctx_reset_error(v->cx);
        SX_TRY(sx_device_find(v->cx, sx_span_of(s->target->machine->name), &s->device));
    }
    return SX_OK;
}

/* What the trials of another result add to the row. */
static void add_evidence(sxr_kernel_evidence *row, const sxv_evidence *e)
{
    row->extents += e->extents;
    row->positions += e->positions;
    row->schedules += e->schedules;
    row->other_plans += e->other_plans;
    row->left_out += e->left_out;
    row->elements += e->elements;
    row->differs = row->differs || e->differs;
    memcpy(row->tried, e->tried, sizeof(row->tried));
    memcpy(row->difference, e->difference, sizeof(row->difference));
}

static sx_code try_result(sxv_verifier *v, visitor *me, const sx_module_launch *launch,
                          const made_of *made, const uint8_t *touched)
{
    const void *argument[SX_INPUTS_MAX];
    sx_analysis *a = SX_NEW(v->cx, sx_analysis);
    const sx_module_kernel *kernel = &v->module->kernel[launch->kernel];
    sx_schedule schedule;
    sxv_evidence e;
    uint64_t numerics;
    sxv_subject s = {.target = sx_target_of(me->targets, sxr_machine(v->program)),
                     .fused = made->fused,
                     .input = made->type,
                     .input_count = made->input_count,
                     .argument = argument};
    SX_TRY(find_device(v, &s));
    for (uint32_t k = 0; k < made->input_count; k++) {
        argument[k] = sxv_memory(v, sxv_unpacked(v->module, v->module->arg[launch->arg_first + k]));
    }
    SX_TRY(a != NULL ? SX_OK : v->cx->error.code);
    SX_TRY(sx_analysis_make(v->cx, made->fused, made->type, made->input_count, a));
    SX_TRY(made->alone ? schedule_of(v, kernel, &schedule) : own_schedule(v, &s, a, &schedule));
    describe(a, &schedule, s.target, sx_search_piece(a, s.device), me->row->plan,
             sizeof(me->row->plan));
    if (a->kind == SX_KERNEL_DOT) {
        uint32_t place =
            v->module->tensor[sxv_unpacked(v->module, v->module->arg[launch->arg_first + a->rhs])]
                .place;
        s.rhs_constant = place == SX_TENSOR_WEIGHT || place == SX_TENSOR_PERSISTENT;
    }
    SX_TRY(sxv_numerics_of(v->cx, &s, &schedule, &numerics));
    if (made->alone && numerics != kernel->numerics) {
        me->row->differs = true;
        (void)snprintf(me->row->difference, sizeof(me->row->difference),
                       "the kernel of its schedule has numerics plan %016llx",
                       (unsigned long long)numerics);
        return SX_OK;
    }
    sxv_base base = {.numerics = numerics, .bits = me->bits + made->at, .touched = touched};
    sxv_trials trials = {.extent = extents,
                         .extent_count = SX_COUNT(extents),
                         .schedules = SCHEDULES,
                         .seed = me->seed,
                         .trial_wish = me->instructions_max / 64 + 1,
                         .trial_max = me->instructions_max / 4 + 1,
                         .total_max = me->instructions_max};
    SX_TRY(sxv_try(v->cx, &s, &base, &trials, &e));
    add_evidence(me->row, &e);
    return SX_OK;
}

static sx_code try_node(sxv_verifier *v, visitor *me, const sx_module_launch *launch,
                        const sx_node *node, const uint8_t *touched)
{
    sx_attr fused;
    sx_type type[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < node->input_count; k++) {
        type[k] = sx_graph_node(v->graph, sx_graph_input(v->graph, node, k))->type;
    }
    SX_TRY(sx_fused_lift(v->cx, node->op, sx_graph_attr(v->graph, node), type, node->input_count,
                         &node->type, &fused));
    const made_of made = {&fused, type, node->input_count, 0, true};
    return try_result(v, me, launch, &made, touched);
}

/* Each of several results: its bits are those of its node alone. */
static sx_code try_nodes(sxv_verifier *v, visitor *me, uint32_t index, const uint8_t *touched)
{
    const sx_module_launch *launch = &v->module->launch[index];
    const sx_module_kernel *kernel = &v->module->kernel[launch->kernel];
    uint32_t member[SX_MODULE_RESULTS_MAX] = {kernel->node};
    sx_type type[SX_FUSED_ARGS_MAX];
    results r = results_of(v, index);
    sx_join *join = SX_NEW(v->cx, sx_join);
    bool ok = true;
    for (uint32_t k = 1; k < r.count; k++) {
        member[k] = kernel->other[k - 1];
        ok = ok && member[k] < v->graph->node_count;
    }
    SX_TRY(join == NULL ? v->cx->error.code
           : ok         ? sx_fused_join_nodes(v->cx, v->graph, member, r.count, join, &ok)
                        : SX_OK);
    if (!ok) {
        return SX_FAIL(v->cx, SX_CORRUPT, "kernel %u: its nodes do not share a kernel",
                       launch->kernel);
    }
    uint32_t inputs = join->whole.body->arg_count;
    for (uint32_t k = 0; k < inputs; k++) {
        type[k] = sx_graph_node(v->graph, (sx_node_id){join->tensor[k]})->type;
    }
    for (uint32_t k = 0; k < r.count && !me->row->differs; k++) {
        const made_of made = {&join->member[k], type, inputs, r.offset[k], false};
        SX_TRY(try_result(v, me, launch, &made, touched != NULL ? touched + r.offset[k] : NULL));
    }
    return SX_OK;
}

/* ---- a launch ---- */

/* Runs the launch beside its results' memory, which may be that of an operand. */
static sx_code run_beside(sxv_verifier *v, visitor *me, uint32_t index, const uint8_t **touched)
{
    const sx_module_launch *launch = &v->module->launch[index];
    results r = results_of(v, index);
    void *buffer[SX_MODULE_ARGS_MAX];
    bool whole = true;
    SX_TRY(make_room(v, me, r.bytes));
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        uint32_t tensor = v->module->arg[launch->arg_first + k];
        buffer[k] = k < r.first ? sxv_memory(v, tensor) : me->bits + r.offset[k - r.first];
        if (k >= r.first) {
            sxr_fill_random(&v->module->tensor[tensor], buffer[k], me->seed);
        }
    }
    memset(me->touched, 0, r.bytes);
    SX_TRY(v->executor.emulator == NULL
               ? sxr_execute(&v->executor, index, buffer)
               : sxr_execute_some(&v->executor, index, buffer, me->instructions_max, me->touched,
                                  &whole));
    *touched = whole ? NULL : me->touched;
    return run_again(v, me, index, buffer, *touched);
}

/* Tries the kernel of a launch. */
static sx_code look_at(sxv_verifier *v, visitor *me, uint32_t index)
{
    const sx_module_launch *launch = &v->module->launch[index];
    const sx_module_kernel *kernel = &v->module->kernel[launch->kernel];
    results r = results_of(v, index);
    const uint8_t *touched;
    SX_TRY(run_beside(v, me, index, &touched));
    const sx_node *node = kernel->node < v->graph->node_count
                              ? sx_graph_node(v->graph, (sx_node_id){kernel->node})
                              : NULL;
    bool moves = kernel->kind == SX_MODULE_PACK || kernel->kind == SX_MODULE_COPY;
    const uint32_t *arg = v->module->arg + launch->arg_first;
    bool sums = kernel->kind == SX_MODULE_PACK && launch->arg_count == 3 && arg[0] != arg[1];
    if (kernel->kind == SX_MODULE_PACK && kernel->result_count > 1) {
        (void)snprintf(me->row->plan, sizeof(me->row->plan),
                       "sums of pieces of keys, for the kernel behind, which is tried with them");
    } else if (sums) {
        (void)snprintf(me->row->plan, sizeof(me->row->plan),
                       "sums of slices, for the kernel behind, which is tried with them");
    } else if (moves) {
        bool scatters = node != NULL && node->op == SX_OP_SCATTER;
        (void)snprintf(me->row->plan, sizeof(me->row->plan), "%s",
                       scatters ? "updates of a place one after the other, in the order of indices"
                                : "moves elements, rounds nothing");
    } else if (node == NULL) {
        (void)snprintf(
            me->row->plan, sizeof(me->row->plan),
            "of a body inside the program: neither other rows nor other plans are tried");
    } else if (!me->row->differs) {
        SX_TRY(r.count > 1 ? try_nodes(v, me, index, touched)
                           : try_node(v, me, launch, node, touched));
    }
    for (uint32_t k = 0; k < r.count; k++) {
        uint32_t tensor = v->module->arg[launch->arg_first + r.first + k];
        memcpy(sxv_memory(v, tensor), me->bits + r.offset[k], (size_t)sxr_size(v->program, tensor));
    }
    return SX_OK;
}

/* What other ranks would give is drawn: for the kernels behind it any elements are as good. The place is 0. */
static void draw_collective(sxv_verifier *v, uint32_t index, uint64_t seed)
{
    const sx_module_launch *launch = &v->module->launch[index];
    uint32_t result = v->module->arg[launch->arg_first + launch->arg_count - 1];
    void *memory = sxv_memory(v, result);
    if (launch->value == SX_COLLECTIVE_AXIS_INDEX) {
        memset(memory, 0, (size_t)sxr_size(v->program, result));
    } else {
        sxr_fill_random(&v->module->tensor[result], memory, seed + index);
    }
}

static sx_code visit(sxv_verifier *v, uint32_t index)
{
    visitor *me = v->visit.self;
    const sx_module_kernel *kernel = sx_module_kernel_of(v->module, index);
    const sx_module_launch *launch = &v->module->launch[index];
    uint32_t number = launch->kernel;
    if (kernel != NULL && v->seen[number] && v->executor.emulator != NULL) {
        /* for later kernels any elements are as good as those that are computed in long */
        for (uint32_t k = launch->arg_count - kernel->result_count; k < launch->arg_count; k++) {
            uint32_t result = v->module->arg[launch->arg_first + k];
            sxr_fill_random(&v->module->tensor[result], sxv_memory(v, result), me->seed + index);
        }
        return SX_OK;
    }
    if (launch->kind == SX_LAUNCH_COLLECTIVE) {
        draw_collective(v, index, me->seed);
        return SX_OK;
    }
    if (kernel == NULL || v->seen[number]) {
        return sxv_run_launch(v, index);
    }
    v->seen[number] = true;
    if (v->executor.emulator == NULL && me->emulating.program != v->program) {
        sxr_executor_fini(&me->emulating);
        SX_TRY(sxr_executor_emulate(v->cx, me->targets, v->program, &me->emulating));
    }
    sx_span name = sx_module_string(v->module, kernel->name);
    sxr_kernel_evidence row = {
        .kernel = number, .variant = v->variant, .numerics = kernel->numerics};
    (void)snprintf(row.name, sizeof(row.name), "%.*s", (int)name.len, (const char *)name.ptr);
    row.emulated = v->executor.emulator != NULL;
    me->row = &row;
    if (v->cx->progress != NULL) {
        v->cx->progress(v->cx->progress_self, "kernel", number + 1, v->module->kernel_count);
    }
    SX_TRY(look_at(v, me, index));
    sx_buf_put(me->rows, &row, sizeof(row));
    return sx_buf_check(v->cx, me->rows, "evidence");
}

sx_code sxr_determinism(sx_ctx *cx, sx_span module, const sxr_verify_options *options,
                        uint64_t instructions_max, sx_buf *rows)
{
    visitor me = {.rows = rows,
                  .seed = options->seed,
                  .targets = options->targets != NULL ? options->targets : sx_targets_all(),
                  .instructions_max = instructions_max > 0 ? instructions_max : INSTRUCTIONS};
    sx_code code = sxv_visit_launches(cx, module, options, (sxv_visit){visit, &me});
    sxr_executor_fini(&me.emulating);
    free(me.bits);
    free(me.touched);
    free(me.again);
    free(me.touched_again);
    return code;
}
