/* kernels.c - one node of the optimised program becomes machine code and a launch. */
#include "core/fuse/fuse.h"
#include "core/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/search/search.h"

/* What is known of a kernel when its machine code has been made. */
typedef struct {
    const sx_kernel *kernel;
    const sx_pipe_emitted *code;
    sx_module_kernel record;
    const uint32_t *arg; /* tensor numbers */
    uint32_t arg_count;
    uint32_t result_count; /* the last of them */
    const uint32_t *other; /* nodes of all results but the first; NULL: there is one */
    bool constant;         /* runs in the prologue */
    /* What its grids follow; NULL: nothing. Or its cases; NULL: none. */
    const int64_t (*follows)[3];
    const sx_pipe_cases *cases;
} finished;

/* A node for which machine code exists: nodes like it are launches of the same kernel. */
struct sx_pipe_made {
    uint32_t node;
    /* which inputs the prologue makes: decides where a packed one goes */
    bool constant[SX_INPUTS_MAX];
    uint32_t kernel;
    uint32_t pack;       /* kernel that packs an input, or UINT32_MAX */
    uint32_t pack_input; /* the input it packs, in whose place the result is read, */
    uint32_t pack_other; /* another one that it reads, or UINT32_MAX, */
    uint64_t pack_bytes; /* and the size of the result */
    bool once;           /* each element of the result is stored one time in all */
    uint32_t rows;       /* kernel before both that copies an input's rows apart, or UINT32_MAX, */
    uint32_t rows_input; /* the input, which it reads */
    uint32_t rows_count; /* so many times, */
    sx_type rows_result; /* and what it gives */
    sx_pipe_pieces pieces;
};

/* Makes machine code of code that is text, where the request names an assembler. */
static sx_code assemble(sx_ctx *cx, const sx_pipe *pipe, const sx_kernel *kernel,
                        sx_pipe_emitted *code)
{
    uint32_t entry[SX_PARTS_MAX];
    code->machine_code = (sx_span){NULL, 0};
    if (pipe->assembler == NULL || pipe->target->assemble == NULL) {
        return SX_OK;
    }
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        entry[p] = code->entries.entry[p] - (uint32_t)code->offset;
    }
    const sx_assembling what = {.blob = {pipe->image->code.ptr + code->offset, (size_t)code->size},
                                .entry = entry,
                                .block = code->entries.block,
                                .entry_count = kernel->part_count,
                                .device = pipe->device,
                                .assembler = pipe->assembler};
    return pipe->target->assemble(cx, &what, &code->machine_code, code->record);
}

/* Checks a kernel and appends its code; nothing is appended on failure. */
static sx_code emit(sx_ctx *cx, sx_pipe *pipe, const sx_kernel *kernel, bool spills,
                    sx_pipe_plan *plan, sx_pipe_emitted *code)
{
    size_t before = pipe->image->code.len;
    SX_TRY(sx_kernel_check(cx, kernel));
    sx_code status =
        pipe->target->emit(cx, pipe->target, kernel, spills, &pipe->image->code, &code->entries);
    SX_ASSERT(status != SX_OK || code->entries.entry_count == kernel->part_count);
    code->offset = before;
    code->size = pipe->image->code.len - before;
    if (status == SX_OK) {
        status = assemble(cx, pipe, kernel, code);
        plan->known = true;
        plan->numerics = kernel->numerics;
        plan->refused += status == SX_LIMIT ? 1 : 0;
    }
    if (status != SX_OK) {
        pipe->image->code.len = before;
    }
    return status;
}

void sx_pipe_launch(sx_pipe *pipe, uint32_t index, const uint32_t *arg, uint32_t arg_count,
                    bool constant)
{
    sx_image *image = pipe->image;
    sx_module_kernel record;
    sx_module_launch made = {.kind = SX_LAUNCH_KERNEL,
                             .kernel = index,
                             .arg_first = (uint32_t)(image->arg.len / sizeof(uint32_t)),
                             .arg_count = arg_count,
                             .prologue = constant ? 1 : 0};
    SX_ASSERT(index < pipe->kernel_count);
    pipe->kernel_last = index;
    memcpy(&record, image->kernel.ptr + index * sizeof(record), sizeof(record));
    for (uint32_t k = 0; k < arg_count; k++) {
        sx_buf_put(&image->arg, &arg[k], sizeof(uint32_t));
        if (!constant) {
            sx_pipe_use_tensor(pipe, arg[k]);
        }
    }
    if (constant && pipe->loop_depth > 0) { /* it runs before the loop, and stands behind it */
        sx_buf_put(&pipe->hoisted, &made, sizeof(made));
        return;
    }
    sx_buf_put(&image->launch, &made, sizeof(made));
    if (!constant) {
        pipe->flops += pipe->rounds * record.flops;
        pipe->cost_ns += pipe->rounds * record.cost_ns;
        pipe->floor_ns += pipe->rounds * record.floor_ns;
    }
    pipe->launch_count++;
}

/* Appends the machine code that was made of a kernel's text, with a row for each part. */
static void put_machine_code(sx_pipe *pipe, const sx_module_kernel *kernel,
                             const sx_pipe_emitted *code)
{
    sx_image *image = pipe->image;
    sx_buf_pad(&image->code, 64);
    sx_module_cubin row = {.kernel = pipe->kernel_count,
                           .level = kernel->level,
                           .offset = image->code.len,
                           .size = code->machine_code.len};
    sx_buf_put_span(&image->code, code->machine_code);
    if (pipe->toolchain.size == 0) {
        pipe->toolchain = sx_module_put_text(&image->strings, pipe->assembler_name);
    }
    row.toolchain = pipe->toolchain;
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const sx_target_record *record = &code->record[p];
        row.part = kernel->part_first + p;
        row.registers = record->registers;
        row.local_bytes = record->local_bytes;
        row.spills = record->spills;
        row.barriers = record->barriers;
        row.parameter_bytes = record->parameter_bytes;
        row.shared_bytes = record->shared_bytes;
        sx_buf_put(&image->cubin, &row, sizeof(row));
    }
}

/* Appends what the copy engine reads and stores at the entries of a kernel, whose parts are the next ones. Of a
 * dimension that follows extents there stands the largest that it can be. */
static void put_maps(sx_pipe *pipe, const sx_module_kernel *kernel, const sx_machine_maps *maps,
                     const sx_pipe_cases *cases)
{
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        for (uint32_t i = 0; i < maps[p].count; i++) {
            sx_module_map row = sx_pipe_map(&maps[p].map[i]);
            for (uint32_t d = 0; d < row.rank; d++) {
                SX_ASSERT(row.dim_number[d] == 0 || cases != NULL);
                row.dim[d] = row.dim_number[d] == 0
                                 ? row.dim[d]
                                 : (uint64_t)sx_pipe_largest(cases, p, row.dim_number[d]);
            }
            row.kernel = pipe->kernel_count;
            row.part = kernel->part_first + p;
            SX_ASSERT(row.arg < kernel->arg_count);
            sx_buf_put(&pipe->image->map, &row, sizeof(row));
        }
    }
}

static bool has_cases(const finished *done)
{
    return done->cases != NULL && done->cases->count > 0;
}

/* The parts of a kernel, with the largest grids that they have. */
static void fill_parts(const sx_pipe *pipe, const finished *done, const int64_t (*follows)[3],
                       sx_module_part *part)
{
    const sx_kernel *kernel = done->kernel;
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        part[p].entry = done->code->entries.entry[p];
        memcpy(part[p].grid, kernel->part[p].grid, sizeof(part[p].grid));
        part[p].threads = done->code->entries.block[p].threads;
        part[p].shared_bytes = done->code->entries.block[p].shared_bytes;
        part[p].walkers = done->code->entries.block[p].walkers;
        for (uint32_t d = 0; d < 3; d++) {
            part[p].grid[d] =
                follows[p][d] > 0 ? follows[p][d] * pipe->steady->most : part[p].grid[d];
        }
        for (uint32_t d = 0; has_cases(done) && d < 3; d++) {
            part[p].grid[d] = sx_pipe_largest(done->cases, p, d);
        }
    }
}

/* The nodes of the results. */
static void put_nodes(const finished *done, sx_module_kernel *record)
{
    SX_ASSERT(done->result_count > 0 && done->result_count <= SX_MODULE_RESULTS_MAX);
    record->result_count = done->result_count;
    for (uint32_t k = 0; k + 1 < SX_MODULE_RESULTS_MAX; k++) {
        record->other[k] = k + 1 < done->result_count ? done->other[k] : SX_MODULE_NONE;
    }
}

/* Appends parts, kernel and launch; the launch alone where an earlier variant has the kernel. */
static sx_code append(sx_ctx *cx, sx_pipe *pipe, const finished *done)
{
    sx_image *image = pipe->image;
    const sx_kernel *kernel = done->kernel;
    uint32_t buffers = kernel->buffer_count;
    if (buffers > 0 && kernel->buffer[buffers - 1].role == SX_BUFFER_WORKSPACE) {
        uint64_t size = (uint64_t)kernel->buffer[--buffers].size;
        image->info.workspace_bytes =
            size > image->info.workspace_bytes ? size : image->info.workspace_bytes;
    }
    SX_ASSERT(buffers == done->arg_count);
    sx_module_kernel record = done->record;
    record.node = pipe->inside ? SX_MODULE_NONE : record.node; /* OPTIMIZED has no such line */
    record.numerics = kernel->numerics;
    record.part_first = (uint32_t)(image->part.len / sizeof(sx_module_part));
    record.part_count = kernel->part_count;
    record.form = sx_form_first(pipe->machine->arch);
    record.arch = pipe->machine->arch;
    record.level = pipe->machine->level;
    record.arg_count = done->arg_count;
    uint32_t first = done->arg_count - done->result_count;
    SX_ASSERT(done->result_count <= done->arg_count);
    put_nodes(done, &record);
    record.code_offset = done->code->offset;
    record.code_size = done->code->size;
    record.flops = kernel->flops;
    record.bytes = kernel->bytes;
    sx_module_part *part = SX_NEW_ARRAY(cx, sx_module_part, kernel->part_count);
    if (part == NULL) {
        return cx->error.code;
    }
    static const sx_pipe_follows nothing;
    const int64_t(*follows)[3] = done->follows != NULL ? done->follows : nothing;
    fill_parts(pipe, done, follows, part);
    for (uint32_t k = 0; k < done->arg_count; k++) {
        SX_ASSERT((uint64_t)kernel->buffer[k].size <= pipe->tensor[done->arg[k]].record.size);
        SX_ASSERT((kernel->buffer[k].role == SX_BUFFER_OUT) == (k >= first));
    }
    uint32_t index = SX_MODULE_NONE;
    SX_TRY(has_cases(done) ? sx_pipe_put_cases(cx, pipe, done->cases, record.part_first)
                           : sx_pipe_share_kernel(cx, pipe, &record, part, follows,
                                                  done->code->entries.maps, &index));
    if (index != SX_MODULE_NONE) {
        sx_pipe_launch(pipe, index, done->arg, done->arg_count, done->constant);
        return SX_OK;
    }
    if (done->code->machine_code.len > 0) {
        put_machine_code(pipe, &record, done->code);
    }
    put_maps(pipe, &record, done->code->entries.maps, done->cases);
    record.name = sx_module_put_text(&image->strings, sx_span_of(kernel->name));
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        sx_pipe_put_follows(pipe, record.part_first + p, follows[p]);
    }
    sx_buf_put(&image->part, part, kernel->part_count * sizeof(*part));
    sx_buf_put(&image->kernel, &record, sizeof(record));
    pipe->kernel_count++;
    SX_TRY(sx_buf_check(cx, &image->kernel, "kernels"));
    sx_pipe_launch(pipe, pipe->kernel_count - 1, done->arg, done->arg_count, done->constant);
    return SX_OK;
}

/* The program of a fused node in one line: "dot add relu". */
static sx_module_text describe(sx_pipe *pipe, const sx_body *body)
{
    sx_buf line;
    sx_buf_init(&line, 4096);
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *instr = &body->instr[i];
        const char *word = NULL;
        switch (instr->kind) {
        case SX_BODY_APPLY: word = sx_op_info_of(instr->op)->name; break;
        case SX_BODY_REDUCE: word = "reduce"; break;
        case SX_BODY_DOT: word = "dot"; break;
        case SX_BODY_ONLINE: word = "online"; break;
        case SX_BODY_INDEX: word = "index"; break;
        case SX_BODY_ARG:
        case SX_BODY_IMM: break;
        }
        if (word != NULL) {
            sx_buf_print(&line, "%s%s", line.len > 0 ? " " : "", word);
        }
    }
    if (line.len == 0) {
        sx_buf_put_text(&line, "copy");
    }
    sx_module_text text = sx_module_put_text(&pipe->image->strings, sx_buf_span(&line));
    sx_buf_fini(&line);
    return text;
}

/* A tensor of the subject's own, made of one input or two (`other` UINT32_MAX: one). */
static sx_code add_tensor(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s, const char *word,
                          const sx_type *type, uint32_t input, uint32_t other, uint32_t *made)
{
    char name[64];
    uint64_t bytes = (uint64_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    (void)snprintf(name, sizeof(name), "%s_%u", word, s->node);
    bool constant = pipe->tensor[s->tensor[input]].constant &&
                    (other == UINT32_MAX || pipe->tensor[s->tensor[other]].constant);
    SX_TRY(sx_pipe_add_tensor(cx, pipe, sx_span_of(name), type, bytes,
                              constant ? SX_TENSOR_PERSISTENT : SX_TENSOR_TEMPORARY, made));
    pipe->tensor[*made].constant = constant;
    return SX_OK;
}

/* The tensor that a packed argument, or sums of slices of two, go to; it takes the place of `input`. */
static sx_code add_packed(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s, uint32_t input,
                          uint32_t other, uint64_t bytes, uint32_t *packed)
{
    sx_type type = {.dtype = SX_F32, .rank = 1, .dim = {sx_dim_of((int64_t)(bytes / 4))}};
    return add_tensor(cx, pipe, s, other == UINT32_MAX ? "pack" : "slices", &type, input, other,
                      packed);
}

/* Slices of k are made by different blocks, in a launch of its own before the one that adds them up. */
static bool has_slices_apart(const sx_schedule *schedule)
{
    sx_block_tiles tiles;
    return sx_block_tiles_of(schedule, &tiles) && tiles.apart;
}

/* The launch before that of a contraction: it packs the right argument, or makes sums of slices. */
static sx_code pack(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s, const sx_pipe_choice *c,
                    uint32_t *packed)
{
    const sx_schedule *schedule = &c->candidate->schedule;
    bool slices = has_slices_apart(schedule);
    uint32_t rhs = s->analysis->rhs;
    uint32_t input = slices ? s->analysis->lhs : rhs, other = slices ? rhs : UINT32_MAX;
    uint32_t count = slices ? 2 : 1;
    char name[64];
    (void)snprintf(name, sizeof(name), "%s_%u", slices ? "slices" : "pack", s->node);
    const sx_lowering what = {
        .kind = SX_LOWER_PACK, .name = name, .schedule = schedule, .analysis = s->analysis};
    sx_kernel *kernel = c->packing; /* of a variant for an interval: for all values */
    SX_TRY(kernel == NULL ? sx_target_lower(cx, pipe->target, &what, &kernel) : SX_OK);
    uint64_t bytes = (uint64_t)kernel->buffer[count].size; /* for the highest values */
    SX_ASSERT(kernel->buffer_count == count + 1 && kernel->buffer[count].role == SX_BUFFER_OUT);
    sx_pipe_emitted code;
    sx_pipe_plan own = {.refused = 0};
    SX_TRY(emit(cx, pipe, kernel, false, &own, &code));
    SX_TRY(add_packed(cx, pipe, s, input, other, bytes, packed));
    bool constant = pipe->tensor[*packed].constant;
    uint32_t arg[3] = {s->tensor[input], slices ? s->tensor[other] : *packed, *packed};
    double floor_ns = sx_device_move_ns(pipe->device, kernel->bytes);
    double cost_ns = sx_cost_pack(pipe->device, s->analysis, schedule);
    finished done = {.kernel = kernel,
                     .code = &code,
                     .arg = arg,
                     .arg_count = count + 1,
                     .result_count = 1,
                     .constant = constant,
                     .cases = c->packing != NULL ? &c->packing_cases : NULL};
    done.record = (sx_module_kernel){
        .kind = SX_MODULE_PACK,
        .node = s->node,
        .candidates = 1,
        .cost_ns = cost_ns > floor_ns ? cost_ns : floor_ns,
        .floor_ns = floor_ns,
        .what = sx_module_put_text(&pipe->image->strings,
                                   sx_span_of(slices ? "sum slices" : "pack panels"))};
    SX_TRY(append(cx, pipe, &done));
    s->tensor[input] = *packed;
    s->made->pack = pipe->kernel_last;
    s->made->pack_input = input;
    s->made->pack_other = other;
    s->made->pack_bytes = bytes;
    return SX_OK;
}

/* The same for slices that different blocks make: both kernels are those of the nodes that the contraction is written
 * as (sx_slices_make). */
static sx_code judge_slices(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                            const sx_schedule *schedule, const sx_kernel *kernel,
                            sx_verdict *verdict)
{
    const sx_judge_facts facts = {0};
    const sx_lowering what = {
        .kind = SX_LOWER_PACK, .name = "slices", .schedule = schedule, .analysis = s->analysis};
    sx_block_tiles tiles;
    sx_kernel *partial;
    sx_verdict sums;
    sx_slices *slices = SX_NEW(cx, sx_slices);
    bool of_blocks = sx_block_tiles_of(schedule, &tiles);
    SX_ASSERT(of_blocks && tiles.apart);
    if (slices == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_slices_make(cx, s->analysis, tiles.slice, slices));
    SX_TRY(sx_judge_kernel(pipe->judge, &slices->combine, slices->combine_input, s->count, &facts,
                           kernel, verdict));
    if (!verdict->proven) {
        return SX_OK;
    }
    SX_TRY(sx_target_lower(cx, pipe->target, &what, &partial));
    SX_TRY(sx_judge_kernel(pipe->judge, &slices->partial, slices->partial_input, 2, &facts, partial,
                           &sums));
    verdict->proven = sums.proven;
    sx_verdict whole = *verdict;
    (void)snprintf(verdict->text, sizeof(verdict->text), "slices: %.110s; sum: %.110s", sums.text,
                   whole.text);
    return SX_OK;
}

sx_code sx_pipe_judge(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                      const sx_schedule *schedule, const sx_kernel *kernel, sx_verdict *verdict)
{
    const sx_analysis *a = s->analysis;
    sx_judge_facts facts = sx_judge_facts_of(schedule, a->kind);
    if (has_slices_apart(schedule)) {
        return judge_slices(cx, pipe, s, schedule, kernel, verdict);
    }
    if (a->statistic != NULL) {
        return sx_judge_pieces(pipe->judge, a->fused, a->statistic, s->type, s->count, &facts,
                               kernel, verdict);
    }
    if (s->join != NULL) {
        const sx_attr *member[SX_FUSED_RESULTS_MAX];
        for (uint32_t k = 0; k < s->join->count; k++) {
            member[k] = &s->join->member[k];
        }
        return sx_judge_results(pipe->judge, member, s->join->count, s->type, s->count, kernel,
                                verdict);
    }
    SX_TRY(sx_judge_kernel(pipe->judge, a->fused, s->type, s->count, &facts, kernel, verdict));
    if (!verdict->proven || facts.panel == 0) {
        return SX_OK;
    }
    const sx_lowering what = {
        .kind = SX_LOWER_PACK, .name = "pack", .schedule = schedule, .analysis = a};
    sx_kernel *panels;
    sx_verdict packing;
    SX_TRY(sx_target_lower(cx, pipe->target, &what, &panels));
    SX_TRY(sx_judge_pack(pipe->judge, a->fused, s->type, s->count, &facts, panels, &packing));
    if (!packing.proven) {
        verdict->proven = false;
        (void)snprintf(verdict->text, sizeof(verdict->text), "panels: %.200s", packing.text);
    }
    return SX_OK;
}

/* Blocks of threads compute it, through shared memory. */
static bool is_of_blocks(const sx_schedule *schedule)
{
    return schedule->stage_count > 0 && schedule->stage[0].space == SX_SPACE_SHARED;
}

bool sx_pipe_packs(const sx_schedule *schedule)
{
    return has_slices_apart(schedule) ||
           (schedule->stage_count > 0 && schedule->stage[0].space == SX_SPACE_MEMORY);
}

/* Tries one candidate; SX_OK with *accepted false where a guard refuses it (the reason is in the verdict). Blocks need
 * not take every kernel, as there are candidates without them. */
static sx_code try_schedule(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s, bool spills,
                            sx_pipe_choice *c, bool *accepted)
{
    const sx_schedule *schedule = &c->candidate->schedule;
    *accepted = false;
    const sx_lowering what = {
        .kind = SX_LOWER_FUSED, .name = s->name, .schedule = schedule, .analysis = s->analysis};
    sx_code status = sx_target_lower(cx, pipe->target, &what, &c->kernel);
    if (status == SX_OK && c->plan.known && c->kernel->numerics != c->plan.numerics) {
        return SX_OK; /* it would have other bits */
    }
    status =
        status == SX_OK ? sx_pipe_judge(cx, pipe, s, schedule, c->kernel, &c->verdict) : status;
    if (status == SX_OK && !c->verdict.proven) {
        return SX_OK;
    }
    c->proven = c->proven || status == SX_OK;
    if (status == SX_OK && s->probe != NULL && !pipe->pricing) {
        bool serves;
        SX_TRY(pipe->steady->cases ? sx_pipe_make_cases(cx, pipe, s, c, &serves)
                                   : sx_pipe_judge_probes(cx, pipe, s, c, &serves));
        if (!serves) {
            return SX_OK;
        }
    }
    status = status == SX_OK ? emit(cx, pipe, c->kernel, spills, &c->plan, &c->code) : status;
    if (status == SX_OK && sx_pipe_packs(schedule)) {
        uint32_t packed;
        status = pack(cx, pipe, s, c, &packed);
        pipe->image->code.len = status == SX_OK ? pipe->image->code.len : c->code.offset;
        c->plan.refused += status == SX_LIMIT ? 1 : 0;
    }
    bool other = status == SX_UNIMPLEMENTED && is_of_blocks(schedule);
    if (status == SX_LIMIT ||
        other) { /* too many registers, or no kernel of blocks: the next candidate */
        (void)snprintf(c->verdict.text, sizeof(c->verdict.text), "%.200s", cx->error.text);
        sx_ctx_reset_error(cx);
        return SX_OK;
    }
    *accepted = status == SX_OK;
    return status;
}

#define CASES_CANDIDATES_MAX 3u

/* The candidates that were found, best first. */
static sx_code try_all(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s, bool spills,
                       uint32_t first, sx_pipe_choice *c, bool *accepted)
{
    uint32_t end = c->search.best_count;
    *accepted = false;
    if (s->probe != NULL && pipe->steady->cases) { /* each of them is lowered for every value */
        end = end < first + CASES_CANDIDATES_MAX ? end : first + CASES_CANDIDATES_MAX;
    }
    for (uint32_t i = first; i < end && !*accepted; i++) {
        c->candidate = &c->search.best[i];
        SX_TRY(try_schedule(cx, pipe, s, spills, c, accepted));
        if (!*accepted && c->slower[0] == '\0' && is_of_blocks(&c->candidate->schedule)) {
            (void)snprintf(c->slower, sizeof(c->slower), "%s", c->verdict.text);
        }
    }
    return SX_OK;
}

/* Looks for a candidate that can be had. Where an assembler has refused some, smaller ones of their plan are left; then
 * those of the loop IR, if they have that plan or if no block could be emitted at all, which the node alone decides. */
sx_code sx_pipe_choose(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s, sx_pipe_choice *c)
{
    const sx_analysis *a = s->analysis;
    bool found;
    *c = (sx_pipe_choice){.verdict = {.text = "no candidate"}};
    c->rhs_constant = a->kind == SX_KERNEL_DOT && pipe->tensor[s->tensor[a->rhs]].constant;
    bool others = s->probe != NULL || pipe->measured.count > 0 || pipe->correction.kernels > 0;
    uint32_t keep = others ? SX_SEARCH_KEEP : 1; /* the cheapest one mostly will do */
    SX_TRY(sx_search_first(cx, a, pipe->device, c->rhs_constant, keep, &c->search));
    SX_TRY(s->probe == NULL ? SX_OK : sx_pipe_choose_steady(cx, pipe, s, c));
    SX_TRY(sx_pipe_prefer_measured(cx, pipe, s, c));
    SX_TRY(try_all(cx, pipe, s, false, 0, c, &found));
    if (!found && keep == 1) {
        SX_TRY(sx_search_first(cx, a, pipe->device, c->rhs_constant, SX_SEARCH_KEEP, &c->search));
        SX_TRY(try_all(cx, pipe, s, false, 1, c, &found));
    }
    while (!found && c->plan.refused > 0 && c->search.matrix_count > 0) {
        SX_TRY(sx_search_smaller(cx, a, pipe->device, &c->search));
        SX_TRY(try_all(cx, pipe, s, false, 0, c, &found));
    }
    if (!found && c->search.more) {
        uint32_t blocks = c->search.best_count;
        SX_TRY(sx_search_rest(cx, a, pipe->device, c->rhs_constant, &c->search));
        SX_TRY(try_all(cx, pipe, s, false, blocks, c, &found));
    }
    bool cases = s->probe != NULL && pipe->steady->cases;
    if (!found && c->plan.refused == 0 && !cases) { /* none fits its registers: the last resort */
        SX_TRY(try_all(cx, pipe, s, true, 0, c, &found));
    }
    if (found) {
        pipe->memory->kernel_count += cases && pipe->pricing ? 1 : 0;
        pipe->memory->kernel_done += cases && !pipe->pricing ? 1 : 0;
        return SX_OK;
    }
    if (s->probe != NULL) {
        return sx_pipe_unsteady(cx, pipe, s->name,
                                cases && pipe->memory->no_cases[0] != '\0'
                                    ? pipe->memory->no_cases
                                    : "no schedule is proven for all of it");
    }
    pipe->unproven = !c->proven;
    return c->plan.refused > 0
               ? SX_FAIL(cx, SX_COMPILE,
                         "kernel %s: the assembler takes none of the %u schedules of its numerics "
                         "plan; last: %s",
                         s->name, c->plan.refused, c->verdict.text)
               : SX_FAIL(cx, SX_COMPILE, "kernel %s: none of %u candidates is usable; last: %s",
                         s->name, c->search.best_count, c->verdict.text);
}

sx_code sx_pipe_finish_fused(sx_ctx *cx, sx_pipe *pipe, sx_pipe_subject *s, const uint32_t *result,
                             const sx_pipe_choice *c)
{
    const sx_analysis *a = s->analysis;
    if (c->cases.count > 0 && pipe->tensor[result[0]].constant) {
        return sx_pipe_unsteady(cx, pipe, s->name, "the prologue makes it once");
    }
    const sx_schedule *schedule = &c->candidate->schedule;
    bool slices = has_slices_apart(schedule), once = c->rhs_constant && !slices;
    double floor_ns =
        slices ? sx_device_move_ns(pipe->device, c->kernel->bytes) : c->search.floor_ns;
    double packing_ns = /* of its own launch */
        sx_pipe_packs(schedule) && !once ? sx_cost_pack(pipe->device, a, schedule) : 0;
    sx_buf plan;
    sx_buf_init(&plan, 1024);
    sx_schedule_print(schedule, &plan);
    if (c->code.entries.spill_count > 0) {
        sx_buf_print(&plan, ", %u vectors on the stack", c->code.entries.spill_count);
    }
    if (c->measured != NULL && c->candidate == &c->search.best[0]) {
        sx_buf_print(&plan, ", measured %.1f us on %s", c->measured->ns / 1e3, c->measured->date);
    }
    if (c->corrected && c->candidate == &c->search.best[0]) {
        sx_buf_put_text(&plan, ", by corrected prices");
    }
    if (c->slower[0] != '\0' && !is_of_blocks(schedule)) {
        sx_buf_print(&plan, ", not in blocks: %.120s", c->slower);
    }
    finished done = {.kernel = c->kernel,
                     .code = &c->code,
                     .constant = pipe->tensor[result[0]].constant,
                     .follows = s->probe != NULL && !pipe->steady->cases
                                    ? (const int64_t(*)[3])c->follows
                                    : NULL,
                     .cases = s->probe != NULL && pipe->steady->cases ? &c->cases : NULL};
    memcpy(s->tensor + s->count, result, a->result_count * sizeof(*result));
    done.arg = s->tensor;
    done.arg_count = s->count + a->result_count;
    done.result_count = a->result_count;
    done.other = s->other;
    done.record = (sx_module_kernel){.what = describe(pipe, a->body),
                                     .kind = s->kind,
                                     .candidates = c->search.considered,
                                     .node = s->node,
                                     .cost_ns = fmax(c->candidate->cost_ns - packing_ns, floor_ns),
                                     .floor_ns = floor_ns};
    sx_buf *strings = &pipe->image->strings;
    done.record.plan = sx_module_put_text(strings, sx_buf_span(&plan));
    done.record.verdict = sx_module_put_text(strings, sx_span_of(c->verdict.text));
    sx_buf_fini(&plan);
    SX_ASSERT(done.record.cost_ns >= done.record.floor_ns);
    if (s->made != NULL) {
        s->made->once = c->verdict.once;
    }
    return append(cx, pipe, &done);
}

static bool is_move(sx_op op)
{
    sx_op_class of = sx_op_info_of(op)->op_class;
    return of == SX_OPCLASS_CONCAT || of == SX_OPCLASS_GATHER || of == SX_OPCLASS_MOVE ||
           of == SX_OPCLASS_SCATTER || of == SX_OPCLASS_SORT || of == SX_OPCLASS_DYNAMIC;
}

/* In a variant for an interval: the kernel becomes one for all of it. Copies of outputs and the like are of no node
 * whose extents could be asked for. */
static sx_code cases_of_copy(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                             const sx_schedule *schedule, sx_kernel **kernel,
                             const sx_pipe_cases **cases)
{
    sx_pipe_choice *c = SX_NEW(cx, sx_pipe_choice);
    sx_search_candidate *candidate = SX_NEW(cx, sx_search_candidate);
    bool serves = false;
    if (c == NULL || candidate == NULL) {
        return cx->error.code;
    }
    candidate->schedule = *schedule;
    c->candidate = candidate;
    c->kernel = *kernel;
    c->rhs_constant = true;
    SX_TRY(s->moves && pipe->steady->cases ? sx_pipe_make_cases(cx, pipe, s, c, &serves) : SX_OK);
    if (!serves) {
        bool tried = s->moves && pipe->steady->cases;
        return sx_pipe_unsteady(cx, pipe, s->name,
                                tried ? pipe->memory->no_cases : "it moves tensors");
    }
    *kernel = c->kernel;
    *cases = &c->cases;
    return SX_OK;
}

/* Operations of is_move and plain copies: there is nothing to choose. */
static sx_code compile_copy(sx_ctx *cx, sx_pipe *pipe, sx_pipe_subject *s, sx_op op,
                            const sx_attr *attr, const sx_type *type, uint32_t result)
{
    sx_schedule schedule;
    const sx_pipe_cases *cases = NULL;
    double flops;
    sx_pipe_schedule_move(pipe, s, op, attr, type, &schedule, &flops);
    sx_kernel *kernel;
    const sx_lowering move = {.kind = SX_LOWER_MOVE,
                              .name = s->name,
                              .schedule = &schedule,
                              .op = op,
                              .attr = attr,
                              .input = s->type,
                              .input_count = s->count,
                              .result = type};
    SX_TRY(sx_target_lower(cx, pipe->target, &move, &kernel));
    sx_verdict verdict;
    SX_TRY(sx_judge_move(pipe->judge, op, attr, s->type, s->count, type, kernel, &verdict));
    if (!verdict.proven) {
        return SX_FAIL(cx, SX_COMPILE, "kernel %s: %s", s->name, verdict.text);
    }
    if (pipe->steady != NULL && !pipe->tensor[result].constant) {
        SX_TRY(cases_of_copy(cx, pipe, s, &schedule, &kernel, &cases));
    }
    sx_pipe_emitted code;
    sx_pipe_plan own = {.refused = 0};
    SX_TRY(emit(cx, pipe, kernel, false, &own, &code));
    if (s->made != NULL) { /* NULL: no node, but an output that is copied */
        s->made->once = verdict.once;
    }
    s->tensor[s->count] = result;
    double floor_ns = sx_device_move_ns(pipe->device, kernel->bytes);
    double busy_ns = sx_device_compute_ns(pipe->device, SX_F32, false, flops);
    finished done = {.kernel = kernel,
                     .code = &code,
                     .arg = s->tensor,
                     .arg_count = s->count + 1,
                     .result_count = 1,
                     .constant = pipe->tensor[result].constant,
                     .cases = cases};
    bool plain = op == SX_OP_CONCATENATE && s->count == 1;
    const char *what = plain ? "copy" : sx_op_info_of(op)->name;
    done.record = (sx_module_kernel){
        .kind = s->kind,
        .node = s->node,
        .candidates = 1,
        .cost_ns = fmax(floor_ns, busy_ns) + pipe->device->launch_ns,
        .floor_ns = floor_ns,
    };
    done.record.what = sx_module_put_text(&pipe->image->strings, sx_span_of(what));
    done.record.verdict = sx_module_put_text(&pipe->image->strings, sx_span_of(verdict.text));
    return append(cx, pipe, &done);
}

/* ---- rows apart ---- */
/* A copy of an argument whose rows the copy engine can read, where it cannot read those of the argument; then the
 * subject is the contraction of the copy. */
static sx_code copy_rows(sx_ctx *cx, sx_pipe *pipe, sx_pipe_subject *s, sx_type *type,
                         sx_analysis *a)
{
    int64_t unit = sx_search_copies_rows(a, pipe->target->matrix,
                                         sx_search_matrices(pipe->device, pipe->target));
    if (unit != 0 && pipe->steady != NULL) {
        return sx_pipe_unsteady(cx, pipe, s->name, "it copies rows apart for the copy engine");
    }
    sx_rows_copy *copy = unit == 0 ? NULL : SX_NEW(cx, sx_rows_copy);
    uint32_t tensor[SX_ROWS_UNIT_MAX + 1];
    if (unit == 0 || copy == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_rows_apart(cx, a, unit, copy));
    uint32_t input = copy->argument, packed;
    for (uint32_t i = 0; i < copy->count; i++) {
        tensor[i] = s->tensor[input];
    }
    const sx_attr attr = {.axis = 1};
    sx_pipe_subject moved = {.type = copy->input,
                             .tensor = tensor,
                             .count = copy->count,
                             .node = s->node,
                             .kind = SX_MODULE_PACK};
    (void)snprintf(moved.name, sizeof(moved.name), "rows_%u", s->node);
    SX_TRY(add_tensor(cx, pipe, s, "rows", &copy->result, input, UINT32_MAX, &packed));
    SX_TRY(compile_copy(cx, pipe, &moved, SX_OP_CONCATENATE, &attr, &copy->result, packed));
    s->made->rows = pipe->kernel_last;
    s->made->rows_input = input;
    s->made->rows_count = copy->count;
    s->made->rows_result = copy->result;
    s->tensor[input] = packed;
    type[input] = copy->result;
    return sx_analysis_make(cx, &copy->fused, type, s->count, a);
}

/* Its launch for another node. */
static sx_code copy_rows_again(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_made *made,
                               const sx_pipe_subject *s)
{
    uint32_t arg[SX_ROWS_UNIT_MAX + 1], packed;
    if (made->rows == UINT32_MAX) {
        return SX_OK;
    }
    SX_TRY(
        add_tensor(cx, pipe, s, "rows", &made->rows_result, made->rows_input, UINT32_MAX, &packed));
    for (uint32_t i = 0; i < made->rows_count; i++) {
        arg[i] = s->tensor[made->rows_input];
    }
    arg[made->rows_count] = packed;
    sx_pipe_launch(pipe, made->rows, arg, made->rows_count + 1, pipe->tensor[packed].constant);
    s->tensor[made->rows_input] = packed;
    return SX_OK;
}

/* ---- equal nodes: one kernel, a launch for each ---- */

static bool same_in(const sx_graph *graph, const sx_pipe_made *a, const sx_pipe_made *b)
{
    const sx_node *x = &graph->node[a->node];
    const sx_node *y = &graph->node[b->node];
    bool same = x->op == y->op && x->attr.i == y->attr.i && x->input_count == y->input_count;
    for (uint32_t k = 0; same && k < x->input_count; k++) {
        same = a->constant[k] == b->constant[k] &&
               sx_type_equal(&graph->node[sx_graph_input(graph, x, k).i].type,
                             &graph->node[sx_graph_input(graph, y, k).i].type);
    }
    return same;
}

/* Where extents follow a symbol they may be the same for one value alone. */
static bool same_kernel(const void *self, uint32_t id, const void *probe)
{
    const sx_pipe *pipe = self;
    bool same = same_in(pipe->graph, &pipe->made[id], probe);
    for (uint32_t k = 0; pipe->steady != NULL && k < pipe->steady->count && same; k++) {
        same = same_in(pipe->steady->graph[k], &pipe->made[id], probe);
    }
    return same;
}

/* The launches of a kernel that is there for tensors of this node. */
static sx_code launch_again(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_made *made,
                            const sx_pipe_subject *s, uint32_t result)
{
    SX_TRY(copy_rows_again(cx, pipe, made, s));
    SX_TRY(sx_pipe_make_pieces_again(cx, pipe, &made->pieces, s));
    if (made->pack != UINT32_MAX) {
        uint32_t packed;
        SX_TRY(
            add_packed(cx, pipe, s, made->pack_input, made->pack_other, made->pack_bytes, &packed));
        bool two = made->pack_other != UINT32_MAX;
        uint32_t arg[3] = {s->tensor[made->pack_input], two ? s->tensor[made->pack_other] : packed,
                           packed};
        sx_pipe_launch(pipe, made->pack, arg, two ? 3 : 2, pipe->tensor[packed].constant);
        s->tensor[made->pack_input] = packed;
    }
    s->tensor[s->count] = result;
    sx_pipe_launch(pipe, made->kernel, s->tensor, s->count + 1, pipe->tensor[result].constant);
    return SX_OK;
}

/* The fused node that is compiled. Level 1 leaves an operation as it is where its access cannot be written over
 * symbols, for example a slice that begins at 3 * batch + 1. All extents are numbers here. */
sx_code sx_pipe_lift(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s, const sx_node *node,
                     sx_attr *fused)
{
    const sx_attr *attr = sx_graph_attr(pipe->graph, node);
    SX_ASSERT(!is_move(node->op));
    sx_code code = sx_fused_lift(cx, node->op, attr, s->type, s->count, &node->type, fused);
    if (code == SX_UNIMPLEMENTED) {
        sx_ctx_reset_error(cx);
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "node %%%u: no code generator for %s", s->node,
                       sx_op_info_of(node->op)->name);
    }
    return code;
}

static sx_code compile_subject(sx_ctx *cx, sx_pipe *pipe, sx_pipe_subject *s, sx_type *type,
                               const sx_node *node, uint32_t result)
{
    static const char *const prefix[] = {[SX_KERNEL_MAP] = "map",
                                         [SX_KERNEL_ROW] = "row",
                                         [SX_KERNEL_DOT] = "dot",
                                         [SX_KERNEL_ONLINE] = "online",
                                         [SX_KERNEL_NESTED] = "nested"};
    static const sx_module_kernel_kind kind[] = {[SX_KERNEL_MAP] = SX_MODULE_MAP,
                                                 [SX_KERNEL_ROW] = SX_MODULE_ROW,
                                                 [SX_KERNEL_DOT] = SX_MODULE_CONTRACTION,
                                                 [SX_KERNEL_ONLINE] = SX_MODULE_ONLINE,
                                                 [SX_KERNEL_NESTED] = SX_MODULE_NESTED};
    if (is_move(node->op)) {
        (void)snprintf(s->name, sizeof(s->name), "%s_%u", sx_op_info_of(node->op)->name, s->node);
        s->kind = SX_MODULE_COPY;
        s->moves = true;
        return compile_copy(cx, pipe, s, node->op, sx_graph_attr(pipe->graph, node), &node->type,
                            result);
    }
    sx_attr *fused = SX_NEW(cx, sx_attr);
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    if (fused == NULL || a == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_pipe_lift(cx, pipe, s, node, fused));
    SX_TRY(sx_analysis_make(cx, fused, s->type, s->count, a));
    sx_kernel_kind kernel_kind = a->kind; /* that of the node, also where pieces come before it */
    (void)snprintf(s->name, sizeof(s->name), "%s_%u", prefix[kernel_kind], s->node);
    SX_TRY(copy_rows(cx, pipe, s, type, a));
    SX_TRY(sx_pipe_make_pieces(cx, pipe, s, type, a, &s->made->pieces));
    s->analysis = a;
    s->kind = kind[kernel_kind];
    SX_TRY(pipe->steady == NULL ? SX_OK : sx_pipe_analyse_probes(cx, pipe, s));
    sx_pipe_choice *c = SX_NEW(cx, sx_pipe_choice);
    SX_TRY(c != NULL ? sx_pipe_choose(cx, pipe, s, c) : cx->error.code);
    return sx_pipe_finish_fused(cx, pipe, s, &result, c);
}

sx_code sx_pipe_kernel(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t result)
{
    const sx_node *node = sx_graph_node(pipe->graph, id);
    sx_type type[SX_INPUTS_MAX];
    uint32_t tensor[SX_INPUTS_MAX + 1];
    sx_pipe_made made = {.node = id.i,
                         .pack = UINT32_MAX,
                         .pack_other = UINT32_MAX,
                         .rows = UINT32_MAX,
                         .pieces = {.kernel = UINT32_MAX}};
    sx_pipe_subject s = {
        .type = type, .tensor = tensor, .count = node->input_count, .node = id.i, .made = &made};
    for (uint32_t k = 0; k < node->input_count; k++) {
        sx_node_id input = sx_graph_input(pipe->graph, node, k);
        type[k] = sx_graph_node(pipe->graph, input)->type;
        tensor[k] = pipe->tensor_of[input.i];
        made.constant[k] = pipe->tensor[tensor[k]].constant;
    }
    sx_span bits = {(const uint8_t *)made.constant, node->input_count * sizeof(bool)};
    uint64_t hash = sx_hash64(bits, (uint64_t)node->op << 32 | node->attr.i);
    uint32_t twin = sx_idmap_find(&pipe->made_map, hash, same_kernel, pipe, &made);
    if (twin != SX_IDMAP_NONE) {
        pipe->stored_once = pipe->made[twin].once;
        return launch_again(cx, pipe, &pipe->made[twin], &s, result);
    }
    SX_TRY(compile_subject(cx, pipe, &s, type, node, result));
    made.kernel = pipe->kernel_last;
    pipe->stored_once = made.once;
    void *array = pipe->made;
    SX_TRY(sx_grow(cx, &array, &pipe->made_capacity, pipe->made_count + 1, sizeof(made)));
    pipe->made = array;
    pipe->made[pipe->made_count] = made;
    return sx_idmap_put(cx, &pipe->made_map, hash, pipe->made_count++);
}

sx_code sx_pipe_copy(sx_ctx *cx, sx_pipe *pipe, uint32_t from, uint32_t to, const sx_type *type)
{
    sx_dim elements;
    if (!sx_type_elements(type, &elements)) {
        return SX_FAIL(cx, SX_LIMIT, "output of more than %lld elements",
                       (long long)SX_ELEMENTS_MAX);
    }
    if (elements.scale == 0) {
        return SX_OK; /* a launch with nothing to do */
    }
    sx_type flat = {.dtype = type->dtype, .rank = 1, .dim = {elements}};
    sx_attr attr = {.axis = 0};
    uint32_t tensor[2] = {from, to};
    sx_pipe_subject s = {
        .type = &flat, .tensor = tensor, .count = 1, .node = UINT32_MAX, .kind = SX_MODULE_COPY};
    (void)snprintf(s.name, sizeof(s.name), "copy_%u", to);
    return compile_copy(cx, pipe, &s, SX_OP_CONCATENATE, &attr, &flat, to);
}
