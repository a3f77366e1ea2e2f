/* cmd_determinism.c - determinism: the evidence that a module keeps the numerics contract. */
#include <pthread.h>
#include <string.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/cmd_module.h"
#include "client/runtime/ranks.h"
#include "client/verify/determinism.h"

#define SEED_USUAL 1
#define THREADS_MANY 7 /* beside one and as many as there are */

/* One run of the whole module: by so many threads, or by a GPU. */
typedef struct {
    uint32_t threads;
    const char *gpu;
    bool differs;
} whole_run;
#define RUNS_MAX 4
#define RANKS_MAX 256u
#define RANK_BYTES ((size_t)64 << 20)
/* How long a rank waits for another one in a collective. */
#define WAIT_MS UINT64_C(600000)

/* What the ranks of a mesh run together: each on a thread. Others have one rank. */
typedef struct {
    sxr_program *program;
    sx_ctx cx;
    sx_code code;
    pthread_t thread;
} one_rank;

typedef struct {
    sxc_cli *cli;
    sxc_module_file file;
    uint64_t seed, fuel;
    uint32_t ranks;
    sx_buf rows;
    whole_run run[RUNS_MAX];
    uint32_t run_count;
    /* Why the whole was not run; empty: it was. */
    char not_run[160];
    /* Of the first run, one after the other; and what the first difference is. */
    uint8_t *outputs;
    char difference[200];
} session;

static const sxr_kernel_evidence *row_of(const session *s, uint32_t i)
{
    return (const sxr_kernel_evidence *)(const void *)s->rows.ptr + i;
}

static uint32_t row_count(const session *s)
{
    return (uint32_t)(s->rows.len / sizeof(sxr_kernel_evidence));
}

/* ---- the whole module, several times ---- */

/* Extents of the first value of each symbol; random inputs, weights where the file has none, memory for outputs. */
static sx_code bind(session *s, sxr_program *program, uint64_t seed)
{
    sx_ctx *cx = s->cli->cx;
    const sx_module *module = sxr_module(program);
    sxr_draws *draws;
    for (uint32_t i = 0; i < module->symbol_count; i++) {
        SX_TRY(sxr_set_extent(cx, program, sx_module_string(module, module->symbol[i].name),
                              sx_module_symbol_low(module, i)));
    }
    SX_TRY(sxr_draws_make(cx, program, &draws));
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        bool output = module->tensor[i].place == SX_TENSOR_OUTPUT;
        bool bound = output || module->tensor[i].place == SX_TENSOR_INPUT ||
                     module->tensor[i].place == SX_TENSOR_WEIGHT;
        if (!bound || sxr_memory(program, i) != NULL) {
            continue;
        }
        uint64_t size = sxr_size(program, i);
        void *memory = sx_alloc(cx, (size_t)size);
        SX_TRY(memory != NULL ? SX_OK : cx->error.code);
        if (!output) {
            sxr_draws_fill(draws, i, seed, memory);
        }
        SX_TRY(sxr_bind(cx, program, i, memory, size));
    }
    return SX_OK;
}

/* The output of a rank against the first run, whose bytes are at `was`. */
static void compare_output(session *s, const sxr_program *program, uint32_t rank, uint32_t index,
                           const uint8_t *was, whole_run *run)
{
    const sx_module *module = sxr_module(program);
    const sx_module_tensor *tensor = &module->tensor[index];
    const uint8_t *memory = sxr_memory(program, index);
    if (run->differs || memcmp(was, memory, (size_t)sxr_size(program, index)) == 0) {
        return;
    }
    size_t byte = 0;
    char of_rank[24] = "";
    sx_span name = sx_module_string(module, tensor->name);
    while (memory[byte] == was[byte]) {
        byte++;
    }
    if (sx_module_ranks(module) > 1) {
        (void)snprintf(of_rank, sizeof(of_rank), " of rank %u", rank);
    }
    run->differs = true;
    (void)snprintf(s->difference, sizeof(s->difference),
                   "output %.*s%s, element %zu: other bits with %u threads than in the first run",
                   (int)name.len, (const char *)name.ptr, of_rank, byte / tensor->element_bytes,
                   run->threads);
}

/* Compares the outputs of all ranks with those of the first run, or keeps them as such. */
static sx_code compare(session *s, const one_rank *rank, uint32_t ranks, whole_run *run)
{
    const sx_module *module = sxr_module(rank[0].program);
    size_t at = 0, bytes = 0;
    bool first = s->outputs == NULL;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        bool output = module->tensor[i].place == SX_TENSOR_OUTPUT;
        bytes += output ? (size_t)sxr_size(rank[0].program, i) : 0;
    }
    s->outputs = first ? sx_alloc(s->cli->cx, bytes * ranks + 1) : s->outputs;
    SX_TRY(s->outputs != NULL ? SX_OK : s->cli->cx->error.code);
    for (uint32_t k = 0; k < ranks * module->tensor_count; k++) {
        const sxr_program *program = rank[k / module->tensor_count].program;
        uint32_t i = (uint32_t)(k % module->tensor_count);
        if (module->tensor[i].place != SX_TENSOR_OUTPUT) {
            continue;
        }
        if (first) {
            memcpy(s->outputs + at, sxr_memory(program, i), (size_t)sxr_size(program, i));
        } else {
            compare_output(s, program, (uint32_t)(k / module->tensor_count), i, s->outputs + at,
                           run);
        }
        at += (size_t)sxr_size(program, i);
    }
    return SX_OK;
}

static void *rank_thread(void *self)
{
    one_rank *own = self;
    own->code = sxr_run(&own->cx, own->program, NULL);
    return NULL;
}

/* All ranks at once, each on a thread. */
static sx_code run_together(sx_ctx *cx, one_rank *rank, uint32_t ranks, sxr_group *group)
{
    sx_code code = SX_OK;
    uint32_t started = 0;
    for (uint32_t r = 0; r < ranks && code == SX_OK; r++) {
        code = sxr_join(cx, rank[r].program, sxr_group_communicator(group, r));
    }
    while (code == SX_OK && started < ranks) {
        if (pthread_create(&rank[started].thread, NULL, rank_thread, &rank[started]) == 0) {
            started++;
            continue;
        }
        code = SX_FAIL(cx, SX_SYSTEM, "rank %u: no thread can be started", started);
        const sxr_communicator *c = sxr_group_communicator(group, started);
        c->abort(c->self, &cx->error); /* nobody waits for it */
    }
    for (uint32_t r = 0; r < started; r++) {
        (void)pthread_join(rank[r].thread, NULL);
        if (code == SX_OK && rank[r].code != SX_OK) {
            code = rank[r].code;
            cx->error = rank[r].cx.error;
        }
    }
    return code;
}

static sx_code open_and_run(session *s, uint32_t threads, one_rank *rank, uint32_t ranks)
{
    sx_ctx *cx = s->cli->cx;
    sxr_options options = {.threads = threads};
    sxr_group *group = NULL;
    for (uint32_t r = 0; r < ranks; r++) {
        SX_TRY(sxr_open_file(cx, s->cli->argument[0], &options, &rank[r].program));
        SX_TRY(bind(s, rank[r].program, s->seed + UINT64_C(0x9E3779B97F4A7C15) * r));
    }
    if (ranks == 1) {
        return sxr_run(cx, rank[0].program, NULL);
    }
    SX_TRY(sxr_group_new(cx, ranks, WAIT_MS, &group));
    sx_code code = run_together(cx, rank, ranks, group);
    sxr_group_free(group);
    return code;
}

static sx_code run_whole(session *s, uint32_t threads, uint32_t ranks)
{
    sx_ctx *cx = s->cli->cx;
    one_rank *rank = SX_NEW_ARRAY(cx, one_rank, ranks);
    SX_TRY(rank != NULL ? SX_OK : cx->error.code);
    for (uint32_t r = 0; r < ranks; r++) {
        sx_ctx_init(&rank[r].cx, RANK_BYTES);
    }
    sx_code code = open_and_run(s, threads, rank, ranks);
    if (code == SX_OK) {
        whole_run *run = &s->run[s->run_count++];
        *run = (whole_run){.threads = sxr_threads(rank[0].program)};
        if (sxr_gpu(rank[0].program) != NULL) {
            run->gpu = sx_alloc_text(cx, sx_span_of(sxr_gpu(rank[0].program)));
        }
        code = compare(s, rank, ranks, run);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        sxr_close(rank[r].program);
        sx_ctx_fini(&rank[r].cx);
    }
    return code;
}

/* With one thread twice, with as many as there are, and with more. */
static sx_code run_all(session *s)
{
    const uint32_t threads[RUNS_MAX] = {1, 1, 0, THREADS_MANY};
    if (s->ranks > RANKS_MAX) {
        (void)snprintf(s->not_run, sizeof(s->not_run), "%u ranks, at most %u run in one process",
                       s->ranks, RANKS_MAX);
        return SX_OK;
    }
    for (uint32_t i = 0; i < RUNS_MAX; i++) {
        sx_code code = run_whole(s, threads[i], s->ranks);
        if (code == SX_UNIMPLEMENTED) { /* no such processor or GPU here */
            (void)snprintf(s->not_run, sizeof(s->not_run), "%.150s", s->cli->cx->error.text);
            sx_ctx_reset_error(s->cli->cx);
            return SX_OK;
        }
        SX_TRY(code);
    }
    return SX_OK;
}

/* ---- the report ---- */

static void put_kernel(const sxr_kernel_evidence *row, sx_buf *out)
{
    sx_buf_print(out, "\nkernel %u  %s  numerics %016llx  %s\n", row->kernel, row->name,
                 (unsigned long long)row->numerics, row->differs ? "OTHER BITS" : "equal bits");
    sx_buf_print(out, "    plan   %s\n", row->plan);
    const char *part = row->partly ? ", a part of it" : "";
    if (row->emulated) {
        sx_buf_print(out, "    own    emulated twice%s, the second time from the end of the grid\n",
                     part);
    } else {
        sx_buf_print(out, "    own    executed twice, then emulated from the end of the grid%s\n",
                     part);
    }
    if (row->extents + row->positions + row->schedules > 0) {
        sx_buf_print(out,
                     "    again  %u other schedules, %u other positions, %u extents: %s; %llu "
                     "elements; %u left out\n",
                     row->schedules, row->positions, row->extents, row->tried,
                     (unsigned long long)row->elements, row->left_out);
    }
    if (row->other_plans > 0) {
        sx_buf_print(out, "    beside %u schedules whose kernels have another numerics plan\n",
                     row->other_plans);
    }
    if (row->differs) {
        sx_buf_print(out, "    BUT    %s\n", row->difference);
    }
}

static void put_text(const session *s, sx_buf *out)
{
    uint32_t differ = 0;
    char waited[32];
    for (uint32_t i = 0; i < row_count(s); i++) {
        differ += row_of(s, i)->differs ? 1 : 0;
    }
    sxc_human_ns((double)(sxc_now_us() - s->cli->start_us) * 1e3, waited);
    sx_buf_print(out, "kernels    %u, of which %u give other bits\n", row_count(s), differ);
    sx_buf_put_text(out, "module     ");
    for (uint32_t i = 0; i < s->run_count; i++) {
        const whole_run *run = &s->run[i];
        if (run->gpu != NULL) {
            sx_buf_print(out, "%s%s", i > 0 ? ", " : "run by ", run->gpu);
        } else {
            if (i == 0 && s->ranks > 1) {
                sx_buf_print(out, "%u ranks, each ", s->ranks);
            }
            sx_buf_print(out, "%s%u", i > 0 ? ", " : "run with threads: ", run->threads);
        }
        sx_buf_put_text(out, run->differs ? " (OTHER BITS)" : "");
    }
    sx_buf_print(out, "%s%s\n", s->run_count == 0 ? "not run: " : "", s->not_run);
    if (s->difference[0] != '\0') {
        sx_buf_print(out, "           %s\n", s->difference);
    }
    sx_buf_print(out, "seed       %llu\nwaited     %s\n", (unsigned long long)s->seed, waited);
    for (uint32_t i = 0; i < row_count(s); i++) {
        put_kernel(row_of(s, i), out);
    }
}

static void json_kernel(const sxr_kernel_evidence *row, sx_buf *json)
{
    char numerics[20];
    (void)snprintf(numerics, sizeof(numerics), "%016llx", (unsigned long long)row->numerics);
    sxc_json_open(json, NULL, '{');
    sxc_json_int(json, "kernel", row->kernel);
    sxc_json_text(json, "name", sx_span_of(row->name));
    sxc_json_int(json, "variant", row->variant);
    sxc_json_text(json, "numerics", sx_span_of(numerics));
    sxc_json_text(json, "plan", sx_span_of(row->plan));
    sxc_json_bool(json, "equal", !row->differs);
    sxc_json_text(json, "difference", sx_span_of(row->difference));
    sxc_json_bool(json, "emulated", row->emulated);
    sxc_json_bool(json, "partly", row->partly);
    sxc_json_int(json, "schedules", row->schedules);
    sxc_json_int(json, "positions", row->positions);
    sxc_json_int(json, "extents", row->extents);
    sxc_json_text(json, "tried", sx_span_of(row->tried));
    sxc_json_int(json, "other_plans", row->other_plans);
    sxc_json_int(json, "left_out", row->left_out);
    sxc_json_int(json, "elements", (int64_t)row->elements);
    sxc_json_close(json, '}');
}

static void put_json(const session *s, sx_buf *json)
{
    sxc_json_begin(json, "determinism");
    sxc_json_int(json, "seed", (int64_t)s->seed);
    sxc_json_int(json, "ranks", s->ranks);
    sxc_json_open(json, "kernels", '[');
    for (uint32_t i = 0; i < row_count(s); i++) {
        json_kernel(row_of(s, i), json);
    }
    sxc_json_close(json, ']');
    sxc_json_open(json, "runs", '[');
    for (uint32_t i = 0; i < s->run_count; i++) {
        sxc_json_open(json, NULL, '{');
        sxc_json_int(json, "threads", s->run[i].threads);
        sxc_json_text(json, "gpu", sx_span_of(s->run[i].gpu != NULL ? s->run[i].gpu : ""));
        sxc_json_bool(json, "equal", !s->run[i].differs);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_text(json, "not_run", sx_span_of(s->not_run));
    sxc_json_int(json, "waited_us", (int64_t)(sxc_now_us() - s->cli->start_us));
    sxc_json_end(json);
}

/* ---- the command ---- */

static sx_code gather(session *s)
{
    sxc_worker worker = sxc_own_worker;
    sx_span bytes = {s->file.mapping, s->file.size};
    worker.progress = sxc_show_stage;
    worker.self = &s->cli->progress;
    sxc_progress_begin(&s->cli->progress);
    sx_code code = sxc_determinism_here(s->cli->cx, bytes, s->seed, s->fuel, &worker, &s->rows);
    sxc_progress_end(&s->cli->progress);
    SX_TRY(code);
    if (s->rows.len % sizeof(sxr_kernel_evidence) != 0) {
        return SX_FAIL(s->cli->cx, SX_WORKER, "the compile process said %zu bytes", s->rows.len);
    }
    sx_module module;
    SX_TRY(sx_module_decode(s->cli->cx, bytes, false, &module));
    s->ranks = sx_module_ranks(&module);
    return run_all(s);
}

/* SX_MISMATCH with the first difference, of kernels before that of whole runs. */
static sx_code verdict(const session *s)
{
    for (uint32_t i = 0; i < row_count(s); i++) {
        const sxr_kernel_evidence *row = row_of(s, i);
        if (row->differs) {
            return SX_FAIL(s->cli->cx, SX_MISMATCH, "kernel %s: %.200s", row->name,
                           row->difference);
        }
    }
    return s->difference[0] == '\0' ? SX_OK : SX_FAIL(s->cli->cx, SX_MISMATCH, "%s", s->difference);
}

sx_code sxc_cmd_determinism(sxc_cli *cli)
{
    session s = {.cli = cli};
    int64_t seed, fuel;
    SX_TRY(sxc_number(cli, SXC_RANDOM, 0, INT64_MAX, SEED_USUAL, &seed));
    SX_TRY(sxc_number(cli, SXC_FUEL, 1000, INT64_MAX / 4, 0, &fuel));
    s.seed = (uint64_t)seed;
    s.fuel = (uint64_t)fuel;
    SX_TRY(sxc_module_file_open(cli->cx, cli->argument[0], true, &s.file));
    sx_buf out;
    sx_buf_init(&out, (size_t)64 << 20);
    sx_buf_init(&s.rows, (size_t)64 << 20);
    sx_code code = gather(&s);
    if (code == SX_OK) {
        (cli->json ? put_json : put_text)(&s, &out);
        code = sxc_put(cli, &out);
        code = code == SX_OK ? verdict(&s) : code;
    }
    sx_buf_fini(&s.rows);
    sx_buf_fini(&out);
    sxc_module_file_close(&s.file);
    return code;
}
