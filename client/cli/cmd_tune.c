/* cmd_tune.c - tune: what the kernels of a program take here under each schedule that the search offers, kept for later
 * compilations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/cmd_module.h"
#include "client/cli/measured.h"
#include "client/cli/program.h"
#include "client/record.h"
#include "client/runtime/runtime.h"
#include "client/tune/tune.h"
#include "client/verify/verify.h"

#define RUNS_USUAL 24
#define RUNS_MAX 1000
#define SEED 1

/* A module that takes part, and what its runs took. */
typedef struct {
    sx_buf bytes;
    sxr_program *program;
    sxt_kernel *kernel;
    uint32_t kernel_count;
    double *ns; /* [runs][kernels of the module]; and [runs] of the whole run */
    double *whole;
} entrant;

/* The best of a kernel beside that of the model, for the table. */
typedef struct {
    uint64_t kernel;
    uint32_t number;
    double model_ns, best_ns;
    uint32_t tried;
    sx_schedule best;
    bool moved;
} outcome;

typedef struct {
    sxc_cli *cli;
    sx_core_request request;
    sxc_compile_options options;
    sxc_source source;
    const sx_device *device;
    uint32_t runs;
    char date[SX_MEASURED_DATE + 1];
    entrant *entrant;
    uint32_t entrants;
    outcome *row;
    uint32_t rows;
    sx_measured found;
    double model_ns, tuned_ns; /* of whole runs, in turns */
} session;

/* ---- modules ---- */
static sx_code compile(session *s, const sx_measured *measured, entrant *e)
{
    sx_ctx *cx = s->cli->cx;
    sxc_compile_info info;
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 20);
    sx_buf_init(&e->bytes, (size_t)2 << 30);
    sx_measured_print(measured, &text);
    sx_core_request request = s->request;
    request.measured = measured->count > 0 ? sx_buf_span(&text) : (sx_span){NULL, 0};
    sx_code code = sx_buf_check(cx, &text, "measured rows");
    code =
        code == SX_OK ? sxc_compile(cx, &s->source, &request, &s->options, &e->bytes, &info) : code;
    sxc_progress_end(&s->cli->progress);
    sx_buf_fini(&text);
    return code;
}

static sx_code bind(session *s, sxr_program *program)
{
    sx_ctx *cx = s->cli->cx;
    const sx_module *module = sxr_module(program);
    sxr_draws *draws;
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
            sxr_draws_fill(draws, i, SEED, memory);
        }
        SX_TRY(sxr_bind(cx, program, i, memory, size));
    }
    return SX_OK;
}

/* Compiles under these rows and gets ready to run. */
static sx_code enter(session *s, const sx_measured *measured)
{
    sx_ctx *cx = s->cli->cx;
    entrant *e = &s->entrant[s->entrants++];
    const sxr_options options = {.threads = 0};
    SX_TRY(compile(s, measured, e));
    SX_TRY(sxr_open_bytes(cx, sx_buf_span(&e->bytes), &options, &e->program));
    const sx_module *module = sxr_module(e->program);
    if (!sxr_runs_here(e->program)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "tune: nothing here runs code for %s",
                       sxr_machine(e->program)->name);
    }
    SX_TRY(bind(s, e->program));
    SX_TRY(sxt_kernels(cx, module, &e->kernel, &e->kernel_count));
    e->ns = SX_NEW_ARRAY(cx, double, s->runs *(module->kernel_count + 1));
    e->whole = SX_NEW_ARRAY(cx, double, s->runs);
    return e->ns != NULL && e->whole != NULL ? SX_OK : cx->error.code;
}

static void leave(entrant *e)
{
    sxr_close(e->program);
    sx_buf_fini(&e->bytes);
    *e = (entrant){.program = NULL};
}

/* ---- times ---- */
static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The lower quartile of every `step`-th of `count` numbers: what else the machine does makes runs slower, never
 * faster. */
static sx_code quartile(sx_ctx *cx, const double *number, uint32_t count, uint64_t step, double *of)
{
    double *sorted = SX_NEW_ARRAY(cx, double, count);
    if (sorted == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = number[i * step];
    }
    qsort(sorted, count, sizeof(*sorted), compare_doubles);
    *of = sorted[count / 4];
    return SX_OK;
}

/* One run; `at` RUNS_MAX: it is not timed. A whole run is all its launches: on a GPU no copies of inputs and outputs.
 * */
static sx_code run_once(session *s, entrant *e, uint64_t *launch_ns, uint32_t at)
{
    const sx_module *module = sxr_module(e->program);
    memset(launch_ns, 0, (size_t)module->launch_count * sizeof(*launch_ns));
    SX_TRY(sxr_run(s->cli->cx, e->program, launch_ns));
    if (at >= s->runs) {
        return SX_OK;
    }
    e->whole[at] = 0;
    for (uint64_t i = 0; i < module->launch_count; i++) {
        e->whole[at] += module->launch[i].prologue ? 0 : (double)launch_ns[i];
    }
    sxt_add_times(module, launch_ns, e->ns + at * module->kernel_count);
    return SX_OK;
}

/* All entrants take turns, each with a run that is not timed first: threads of the one before have gone to sleep
 * then. */
static sx_code race(session *s)
{
    uint64_t launches = 0;
    for (uint32_t i = 0; i < s->entrants; i++) {
        const sx_module *module = sxr_module(s->entrant[i].program);
        launches = module->launch_count > launches ? module->launch_count : launches;
        memset(s->entrant[i].ns, 0, s->runs * module->kernel_count * sizeof(double));
    }
    uint64_t *launch_ns = SX_NEW_ARRAY(s->cli->cx, uint64_t, launches + 1);
    SX_TRY(launch_ns != NULL ? SX_OK : s->cli->cx->error.code);
    for (uint32_t run = 0; run < s->runs; run++) {
        for (uint32_t i = 0; i < s->entrants; i++) {
            SX_TRY(run_once(s, &s->entrant[i], launch_ns, RUNS_MAX));
            SX_TRY(run_once(s, &s->entrant[i], launch_ns, run));
        }
    }
    return SX_OK;
}

/* ---- candidates ---- */
/* Rows that ask for offer number `offer` of each kernel. */
static sx_code offer_rows(session *s, const entrant *base, uint32_t offer, sx_measured *rows,
                          bool *any)
{
    *rows = (sx_measured){.count = 0};
    *any = false;
    for (uint32_t k = 0; k < base->kernel_count; k++) {
        const sxt_kernel *kernel = &base->kernel[k];
        sx_measured_row row = {.kernel = kernel->kernel, .runs = 1, .ns = 1};
        if (offer >= kernel->offered_count ||
            sx_schedule_equal(&kernel->offered[offer], &kernel->own)) {
            continue;
        }
        (void)snprintf(row.device, sizeof(row.device), "%s", s->device->name);
        memcpy(row.date, s->date, sizeof(row.date));
        row.schedule = kernel->offered[offer];
        SX_TRY(sx_measured_put(s->cli->cx, rows, &row));
        *any = true;
    }
    return SX_OK;
}

static outcome *outcome_of(session *s, uint64_t kernel)
{
    for (uint32_t i = 0; i < s->rows; i++) {
        if (s->row[i].kernel == kernel) {
            return &s->row[i];
        }
    }
    return NULL;
}

/* What the kernels of an entrant took: rows, and the best so far. The first one is that of the model. */
static sx_code take_times(session *s, const entrant *e, bool model)
{
    uint64_t kernels = sxr_module(e->program)->kernel_count;
    for (uint32_t k = 0; k < e->kernel_count; k++) {
        const sxt_kernel *kernel = &e->kernel[k];
        sx_measured_row row = {.kernel = kernel->kernel, .runs = s->runs};
        outcome *of = outcome_of(s, kernel->kernel);
        SX_TRY(quartile(s->cli->cx, e->ns + kernel->number, s->runs, kernels, &row.ns));
        row.ns = row.ns < 1 ? 1 : row.ns;
        row.schedule = kernel->own;
        (void)snprintf(row.device, sizeof(row.device), "%s", s->device->name);
        memcpy(row.date, s->date, sizeof(row.date));
        if (of == NULL && model) {
            s->row[s->rows++] = (outcome){.kernel = kernel->kernel,
                                          .number = kernel->number,
                                          .model_ns = row.ns,
                                          .best_ns = row.ns,
                                          .tried = 1,
                                          .best = kernel->own};
        } else if (of == NULL || sx_schedule_equal(&row.schedule, &e[0].kernel[k].offered[0])) {
            continue; /* the model's own, which the first entrant has */
        } else {
            of->tried++;
            of->moved = of->moved || row.ns < of->best_ns;
            of->best = row.ns < of->best_ns ? row.schedule : of->best;
            of->best_ns = row.ns < of->best_ns ? row.ns : of->best_ns;
        }
        SX_TRY(sx_measured_put(s->cli->cx, &s->found, &row));
    }
    return SX_OK;
}

static sx_code try_offers(session *s)
{
    const sx_measured none = {.count = 0};
    SX_TRY(enter(s, &none));
    s->row = SX_NEW_ARRAY(s->cli->cx, outcome, s->entrant[0].kernel_count + 1);
    SX_TRY(s->row != NULL ? SX_OK : s->cli->cx->error.code);
    for (uint32_t offer = 0; offer < SX_SEARCH_KEEP; offer++) {
        sx_measured rows;
        bool any;
        SX_TRY(offer_rows(s, &s->entrant[0], offer, &rows, &any));
        SX_TRY(any ? enter(s, &rows) : SX_OK);
    }
    SX_TRY(race(s));
    for (uint32_t i = 0; i < s->entrants; i++) {
        SX_TRY(take_times(s, &s->entrant[i], i == 0));
    }
    while (s->entrants > 1) {
        leave(&s->entrant[--s->entrants]);
    }
    return SX_OK;
}

/* The module of the fastest rows against that of the model, in turns; *kept: it is the faster one. */
static sx_code confirm(session *s, bool *kept)
{
    *kept = false;
    for (uint32_t i = 0; i < s->rows; i++) {
        *kept = *kept || s->row[i].moved;
    }
    if (!*kept) {
        return quartile(s->cli->cx, s->entrant[0].whole, s->runs, 1, &s->model_ns);
    }
    SX_TRY(enter(s, &s->found));
    SX_TRY(race(s));
    SX_TRY(quartile(s->cli->cx, s->entrant[0].whole, s->runs, 1, &s->model_ns));
    SX_TRY(quartile(s->cli->cx, s->entrant[1].whole, s->runs, 1, &s->tuned_ns));
    *kept = s->tuned_ns <= s->model_ns;
    return SX_OK;
}

/* ---- what is said ---- */
static void put_text(const session *s, bool kept, const char *path, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, s->cli->cx, ">KERNEL|>MODEL US|>BEST US|>RATIO|>TRIED|SCHEDULE");
    for (uint32_t i = 0; i < s->rows; i++) {
        const outcome *o = &s->row[i];
        sx_buf text;
        sx_buf_init(&text, SX_SCHEDULE_TEXT_MAX + 1);
        sx_schedule_print(&o->best, &text);
        sxc_table_put(&table, "%u", o->number);
        sxc_table_put(&table, "%.1f", o->model_ns / 1e3);
        sxc_table_put(&table, "%.1f", o->best_ns / 1e3);
        sxc_table_put(&table, "%.2f", o->best_ns / o->model_ns);
        sxc_table_put(&table, "%u", o->tried);
        sxc_table_put_span(&table,
                           o->moved ? sx_buf_span(&text) : SX_SPAN_LITERAL("as the model has it"));
        sx_buf_fini(&text);
    }
    (void)sxc_table_print(&table, out);
    sx_buf_print(out, "run of the whole: %.1f us by the model", s->model_ns / 1e3);
    if (s->tuned_ns > 0) {
        sx_buf_print(out, ", %.1f us by what was measured (%.2f)", s->tuned_ns / 1e3,
                     s->tuned_ns / s->model_ns);
    }
    sx_buf_put_text(out, "\n");
    if (kept) {
        sx_buf_print(out, "kept in %s: compile uses it on %s\n", path, s->device->name);
    } else {
        sx_buf_put_text(out, "nothing is kept: the model's choice was not slower\n");
    }
}

static void put_json(const session *s, bool kept, const char *path, sx_buf *json)
{
    sxc_json_begin(json, "tune");
    sxc_json_text(json, "device", sx_span_of(s->device->name));
    sxc_json_int(json, "runs", s->runs);
    sxc_json_open(json, "kernels", '[');
    for (uint32_t i = 0; i < s->rows; i++) {
        const outcome *o = &s->row[i];
        sx_buf text;
        sx_buf_init(&text, SX_SCHEDULE_TEXT_MAX + 1);
        sx_schedule_print(&o->best, &text);
        sxc_json_open(json, NULL, '{');
        char id[20];
        (void)snprintf(id, sizeof(id), "%016llx", (unsigned long long)o->kernel);
        sxc_json_int(json, "kernel", o->number);
        sxc_json_text(json, "measured_as", sx_span_of(id));
        sxc_json_int(json, "model_ns", (int64_t)o->model_ns);
        sxc_json_int(json, "best_ns", (int64_t)o->best_ns);
        sxc_json_int(json, "tried", o->tried);
        sxc_json_bool(json, "moved", o->moved);
        sxc_json_text(json, "schedule", sx_buf_span(&text));
        sxc_json_close(json, '}');
        sx_buf_fini(&text);
    }
    sxc_json_close(json, ']');
    sxc_json_int(json, "model_run_ns", (int64_t)s->model_ns);
    sxc_json_int(json, "tuned_run_ns", (int64_t)s->tuned_ns);
    sxc_json_bool(json, "kept", kept);
    sxc_json_text(json, "file", sx_span_of(kept ? path : ""));
    sxc_json_end(json);
}

/* ---- the whole ---- */
static sx_code begin(session *s)
{
    sx_ctx *cx = s->cli->cx;
    int64_t runs;
    time_t now = time(NULL);
    struct tm parts;
    SX_TRY(sxc_number(s->cli, SXC_REPEAT, 3, RUNS_MAX, RUNS_USUAL, &runs));
    s->runs = (uint32_t)runs;
    SX_TRY(sxc_read_request(s->cli, &s->request, &s->options));
    s->options.daemon = SXC_MODE_NEVER; /* what is tried is nobody else's */
    s->request.measured = (sx_span){NULL, 0};
    s->entrant = SX_NEW_ARRAY(cx, entrant, SX_SEARCH_KEEP + 2);
    SX_TRY(s->entrant != NULL ? SX_OK : cx->error.code);
    if (gmtime_r(&now, &parts) == NULL ||
        strftime(s->date, sizeof(s->date), "%Y-%m-%d", &parts) != SX_MEASURED_DATE) {
        return SX_FAIL(cx, SX_SYSTEM, "tune: no date");
    }
    SX_TRY(sxc_program_load(s->cli, &s->source));
    const sx_target *target;
    sx_core_request asked = s->request;
    asked.target = sxc_target(asked.target);
    return sx_core_device(cx, &asked, &s->device, &target);
}

static sx_code tune(session *s, const char *path)
{
    sx_buf out;
    SX_TRY(begin(s));
    SX_TRY(sxc_check_output(s->cli->cx, path));
    SX_TRY(try_offers(s));
    bool kept;
    SX_TRY(confirm(s, &kept));
    SX_TRY(kept ? sxc_measured_add(s->cli->cx, path, &s->found) : SX_OK);
    const char *output = sxc_value(s->cli, SXC_OUTPUT);
    SX_TRY(output == NULL
               ? SX_OK
               : sxc_write_file(s->cli->cx, output, sx_buf_span(&s->entrant[kept ? 1 : 0].bytes)));
    sx_buf_init(&out, (size_t)16 << 20);
    (s->cli->json ? put_json : put_text)(s, kept, path, &out);
    sx_code code = sxc_put(s->cli, &out);
    sx_buf_fini(&out);
    return code;
}

sx_code sxc_cmd_tune(sxc_cli *cli)
{
    session s = {.cli = cli};
    char path[SXC_MEASURED_PATH_MAX];
    SX_TRY(sxc_measured_path(cli, path));
    sx_code code = tune(&s, path);
    sxc_progress_end(&cli->progress);
    for (uint32_t i = 0; i < s.entrants; i++) {
        leave(&s.entrant[i]);
    }
    sxc_source_fini(&s.source);
    return code;
}
