/* cmd_determinism.c - determinism: the evidence that a module keeps the numerics contract. */
#include <string.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/cmd_module.h"
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

typedef struct {
    sxc_cli *cli;
    sxc_module_file file;
    uint64_t seed, fuel;
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
static sx_code bind(session *s, sxr_program *program)
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
            sxr_draws_fill(draws, i, s->seed, memory);
        }
        SX_TRY(sxr_bind(cx, program, i, memory, size));
    }
    return SX_OK;
}

/* Compares the outputs with those of the first run, or keeps them as such. */
static sx_code compare(session *s, const sxr_program *program, whole_run *run)
{
    const sx_module *module = sxr_module(program);
    size_t at = 0, bytes = 0;
    bool first = s->outputs == NULL;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        bytes += module->tensor[i].place == SX_TENSOR_OUTPUT ? (size_t)sxr_size(program, i) : 0;
    }
    s->outputs = first ? sx_alloc(s->cli->cx, bytes + 1) : s->outputs;
    SX_TRY(s->outputs != NULL ? SX_OK : s->cli->cx->error.code);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        size_t size = (size_t)sxr_size(program, i);
        if (tensor->place != SX_TENSOR_OUTPUT) {
            continue;
        }
        const uint8_t *memory = sxr_memory(program, i);
        if (first) {
            memcpy(s->outputs + at, memory, size);
        } else if (memcmp(s->outputs + at, memory, size) != 0 && !run->differs) {
            size_t byte = 0;
            sx_span name = sx_module_string(module, tensor->name);
            while (memory[byte] == s->outputs[at + byte]) {
                byte++;
            }
            run->differs = true;
            (void)snprintf(s->difference, sizeof(s->difference),
                           "output %.*s, element %zu: other bits with %u threads than in the first "
                           "run",
                           (int)name.len, (const char *)name.ptr, byte / tensor->element_bytes,
                           run->threads);
        }
        at += size;
    }
    return SX_OK;
}

static sx_code run_whole(session *s, uint32_t threads)
{
    sxr_program *program;
    sxr_options options = {.threads = threads};
    SX_TRY(sxr_open_file(s->cli->cx, s->cli->argument[0], &options, &program));
    sx_code code = bind(s, program);
    code = code == SX_OK ? sxr_run(s->cli->cx, program, NULL) : code;
    if (code == SX_OK) {
        whole_run *run = &s->run[s->run_count++];
        *run = (whole_run){.threads = sxr_threads(program)};
        if (sxr_gpu(program) != NULL) {
            sx_span name = sx_span_of(sxr_gpu(program));
            run->gpu = sx_alloc_text(s->cli->cx, name);
        }
        code = compare(s, program, run);
    }
    sxr_close(program);
    return code;
}

/* With one thread twice, with as many as there are, and with more. */
static sx_code run_all(session *s)
{
    const uint32_t threads[RUNS_MAX] = {1, 1, 0, THREADS_MANY};
    for (uint32_t i = 0; i < RUNS_MAX; i++) {
        sx_code code = run_whole(s, threads[i]);
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
