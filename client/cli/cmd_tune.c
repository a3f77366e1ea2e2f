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
#include "client/runtime/cpu.h"
#include "client/runtime/runtime.h"
#include "client/tune/paired.h"
#include "client/tune/tune.h"
#include "client/verify/verify.h"

#define RUNS_USUAL 24
#define RUNS_MAX 1000
#define PAIRS_EACH 2 /* of runs that decide for each run that only proposes */
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
    double model_ns, best_ns, predicted_ns; /* predicted of the best */
    double ratio; /* the smallest of those of pairs, where all schedules took turns */
    uint32_t tried;
    sx_schedule best;
    bool moved;             /* another schedule than that of the model seemed faster */
    sxt_comparison compare; /* moved: in turns with that of the model alone */
    bool certain;
} outcome;

typedef struct {
    sxc_cli *cli;
    sx_core_request request;
    sxc_compile_options options;
    sxc_source source;
    const sx_device *device;
    uint32_t runs, threads;
    char machine[SX_MEASURED_MACHINE_MAX];
    char date[SX_MEASURED_DATE + 1];
    entrant *entrant;
    uint32_t entrants;
    outcome *row;
    uint32_t rows;
    sx_measured found;
    sxc_measured_place place;
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
    code = code == SX_OK
               ? sxc_compile_until(s->cli, &s->source, &request, &s->options, &e->bytes, &info)
               : code;
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
    const sxr_options options = {.threads = s->threads};
    SX_TRY(compile(s, measured, e));
    SX_TRY(sxr_open_bytes(cx, sx_buf_span(&e->bytes), &options, &e->program));
    const sx_module *module = sxr_module(e->program);
    if (!sxr_runs_here(e->program)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "tune: nothing here runs code for %s",
                       sxr_machine(e->program)->name);
    }
    SX_TRY(bind(s, e->program));
    SX_TRY(sxt_kernels(cx, module, &e->kernel, &e->kernel_count));
    e->ns = SX_NEW_ARRAY(cx, double, s->runs *PAIRS_EACH *(module->kernel_count + 1));
    e->whole = SX_NEW_ARRAY(cx, double, (size_t)s->runs *PAIRS_EACH);
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

/* One run; `at` RUNS_MAX * PAIRS_EACH: it is not timed. A whole run is all its launches: on a GPU no copies of inputs
 * and outputs. */
static sx_code run_once(session *s, entrant *e, uint64_t *launch_ns, uint32_t at)
{
    const sx_module *module = sxr_module(e->program);
    memset(launch_ns, 0, (size_t)module->launch_count * sizeof(*launch_ns));
    SX_TRY(sxr_run(s->cli->cx, e->program, launch_ns));
    if (at >= RUNS_MAX * PAIRS_EACH) {
        return SX_OK;
    }
    e->whole[at] = 0;
    for (uint64_t i = 0; i < module->launch_count; i++) {
        e->whole[at] += module->launch[i].prologue ? 0 : (double)launch_ns[i];
    }
    sxt_add_times(module, launch_ns, e->ns + at * module->kernel_count);
    return SX_OK;
}

/* All entrants take turns, forwards and backwards, each with a run that is not timed first: threads of the one before
 * have gone to sleep then. */
static sx_code race(session *s, uint32_t runs)
{
    uint64_t launches = 0;
    for (uint32_t i = 0; i < s->entrants; i++) {
        const sx_module *module = sxr_module(s->entrant[i].program);
        launches = module->launch_count > launches ? module->launch_count : launches;
        memset(s->entrant[i].ns, 0, runs * module->kernel_count * sizeof(double));
    }
    uint64_t *launch_ns = SX_NEW_ARRAY(s->cli->cx, uint64_t, launches + 1);
    SX_TRY(launch_ns != NULL ? SX_OK : s->cli->cx->error.code);
    for (uint32_t run = 0; run < runs; run++) {
        for (uint32_t i = 0; i < s->entrants; i++) {
            entrant *e = &s->entrant[run % 2 == 0 ? i : s->entrants - 1 - i];
            SX_TRY(run_once(s, e, launch_ns, RUNS_MAX * PAIRS_EACH));
            SX_TRY(run_once(s, e, launch_ns, run));
        }
    }
    return SX_OK;
}

/* ---- candidates ---- */
static void sign(const session *s, sx_measured_row *row)
{
    (void)snprintf(row->machine, sizeof(row->machine), "%s", s->machine);
    (void)snprintf(row->device, sizeof(row->device), "%s", s->device->name);
    memcpy(row->date, s->date, sizeof(row->date));
}

/* Rows that ask for offer number `offer` of each kernel. */
static sx_code offer_rows(session *s, const entrant *base, uint32_t offer, sx_measured *rows,
                          bool *any)
{
    *rows = (sx_measured){.count = 0};
    *any = false;
    for (uint32_t k = 0; k < base->kernel_count; k++) {
        const sxt_kernel *kernel = &base->kernel[k];
        sx_measured_row row = {.kernel = kernel->kernel, .runs = 1, .ns = 1, .predicted_ns = 1};
        if (offer >= kernel->offered_count ||
            sx_schedule_equal(&kernel->offered[offer], &kernel->own)) {
            continue;
        }
        row.best = true;
        row.schedule = kernel->offered[offer];
        sign(s, &row);
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

static const sxt_kernel *kernel_of(const entrant *e, uint64_t kernel)
{
    for (uint32_t k = 0; k < e->kernel_count; k++) {
        if (e->kernel[k].kernel == kernel) {
            return &e->kernel[k];
        }
    }
    return NULL;
}

/* Kernel k of an entrant against that of the model, run by run. */
static sx_code compare(session *s, const entrant *e, const sxt_kernel *kernel, uint32_t runs,
                       sxt_comparison *c)
{
    const entrant *model = &s->entrant[0];
    const sxt_kernel *other = kernel_of(model, kernel->kernel);
    SX_ASSERT(other != NULL);
    return sxt_compare(s->cli->cx, e->ns + kernel->number, sxr_module(e->program)->kernel_count,
                       model->ns + other->number, sxr_module(model->program)->kernel_count, runs,
                       c);
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
        row.predicted_ns = kernel->own_ns;
        sign(s, &row);
        if (of == NULL && model) {
            s->row[s->rows++] = (outcome){.kernel = kernel->kernel,
                                          .number = kernel->number,
                                          .model_ns = row.ns,
                                          .best_ns = row.ns,
                                          .ratio = 1,
                                          .tried = 1,
                                          .best = kernel->own};
        } else if (of == NULL ||
                   sx_schedule_equal(&row.schedule,
                                     &kernel_of(&s->entrant[0], kernel->kernel)->own)) {
            continue; /* the model's own, which the first entrant has */
        } else {
            sxt_comparison c;
            SX_TRY(compare(s, e, kernel, s->runs, &c));
            of->tried++;
            if (c.ratio < of->ratio) {
                of->moved = true;
                of->best = row.schedule;
                of->best_ns = row.ns;
                of->predicted_ns = row.predicted_ns;
                of->ratio = c.ratio;
            }
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
    SX_TRY(race(s, s->runs));
    for (uint32_t i = 0; i < s->entrants; i++) {
        SX_TRY(take_times(s, &s->entrant[i], i == 0));
    }
    while (s->entrants > 1) {
        leave(&s->entrant[--s->entrants]);
    }
    return SX_OK;
}

/* Rows of what is to change: of all that seemed faster, or of those where that is certain. */
static sx_code change_rows(session *s, bool certain, sx_measured *rows)
{
    *rows = (sx_measured){.count = 0};
    for (uint32_t i = 0; i < s->rows; i++) {
        const outcome *o = &s->row[i];
        sx_measured_row row = {
            .kernel = o->kernel, .runs = s->runs, .ns = o->best_ns, .best = true};
        row.schedule = o->best;
        row.predicted_ns = o->predicted_ns;
        sign(s, &row);
        SX_TRY(o->moved && (o->certain || !certain) ? sx_measured_put(s->cli->cx, rows, &row)
                                                    : SX_OK);
    }
    return SX_OK;
}

/* The module of these rows runs in turns with that of the model. */
static sx_code against_model(session *s, const sx_measured *rows, sxt_comparison *whole)
{
    if (s->entrants > 1) {
        leave(&s->entrant[--s->entrants]);
    }
    SX_TRY(enter(s, rows));
    SX_TRY(race(s, s->runs * PAIRS_EACH));
    SX_TRY(quartile(s->cli->cx, s->entrant[0].whole, s->runs * PAIRS_EACH, 1, &s->model_ns));
    SX_TRY(quartile(s->cli->cx, s->entrant[1].whole, s->runs * PAIRS_EACH, 1, &s->tuned_ns));
    return sxt_compare(s->cli->cx, s->entrant[1].whole, 1, s->entrant[0].whole, 1,
                       s->runs * PAIRS_EACH, whole);
}

/* What seemed faster among many runs once more against that of the model: which of it certainly is, and is the whole
 * not slower with it? *kept: so it is, and s->found says so. */
static sx_code confirm(session *s, bool *kept)
{
    sx_measured rows;
    sxt_comparison whole;
    *kept = false;
    SX_TRY(change_rows(s, false, &rows));
    if (rows.count == 0) {
        return quartile(s->cli->cx, s->entrant[0].whole, s->runs, 1, &s->model_ns);
    }
    SX_TRY(against_model(s, &rows, &whole));
    const entrant *tuned = &s->entrant[1];
    uint32_t certain = 0;
    for (uint32_t i = 0; i < s->rows; i++) {
        outcome *o = &s->row[i];
        const sxt_kernel *kernel = kernel_of(tuned, o->kernel);
        if (o->moved && kernel != NULL && sx_schedule_equal(&kernel->own, &o->best)) {
            SX_TRY(compare(s, tuned, kernel, s->runs * PAIRS_EACH, &o->compare));
            o->certain = o->compare.chance <= SXT_CHANCE_MAX;
            certain += o->certain ? 1 : 0;
        }
    }
    if (certain == 0) {
        return SX_OK;
    }
    SX_TRY(change_rows(s, true, &rows));
    SX_TRY(certain < s->rows ? against_model(s, &rows, &whole) : SX_OK);
    *kept = whole.ratio <= 1 && s->threads == 0; /* compile is for all threads */
    for (uint32_t i = 0; i < rows.count && *kept; i++) {
        SX_TRY(sx_measured_put(s->cli->cx, &s->found, &rows.row[i]));
    }
    return SX_OK;
}

/* ---- what is said ---- */
static void put_text(const session *s, bool kept, sx_buf *out)
{
    sxc_table table;
    sxc_table_init(&table, s->cli->cx, ">KERNEL|>MODEL US|>BEST US|>RATIO|>WINS|>TRIED|SCHEDULE");
    for (uint32_t i = 0; i < s->rows; i++) {
        const outcome *o = &s->row[i];
        sx_buf text;
        sx_buf_init(&text, SX_SCHEDULE_TEXT_MAX + 1);
        sx_schedule_print(&o->best, &text);
        sxc_table_put(&table, "%u", o->number);
        sxc_table_put(&table, "%.1f", o->model_ns / 1e3);
        sxc_table_put(&table, "%.1f", o->best_ns / 1e3);
        sxc_table_put(&table, "%.2f", o->compare.pairs > 0 ? o->compare.ratio : o->ratio);
        sxc_table_put(&table, "%u/%u", o->compare.wins, o->compare.pairs);
        sxc_table_put(&table, "%u", o->tried);
        sxc_table_put_span(&table, o->certain ? sx_buf_span(&text)
                                              : SX_SPAN_LITERAL("as the model has it"));
        sx_buf_fini(&text);
    }
    (void)sxc_table_print(&table, out);
    sx_buf_print(out, "run of the whole: %.1f us by the model", s->model_ns / 1e3);
    if (s->tuned_ns > 0) {
        sx_buf_print(out, ", %.1f us by what was measured (%.2f)", s->tuned_ns / 1e3,
                     s->tuned_ns / s->model_ns);
    }
    sx_buf_put_text(out, "\n");
    sx_buf_print(out, "%u times are kept in %s; ", s->found.count, s->place.name);
    if (kept) {
        sx_buf_print(out, "compile uses the schedules above on %s of this machine (%s)\n",
                     s->device->name, s->machine);
    } else {
        sx_buf_put_text(out, "nothing changes: no other schedule was certainly faster\n");
    }
}

static void put_json(const session *s, bool kept, sx_buf *json)
{
    sxc_json_begin(json, "tune");
    sxc_json_text(json, "machine", sx_span_of(s->machine));
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
        sxc_json_int(json, "wins", o->compare.wins);
        sxc_json_int(json, "pairs", o->compare.pairs);
        sxc_json_bool(json, "certain", o->certain);
        sxc_json_text(json, "schedule", sx_buf_span(&text));
        sxc_json_close(json, '}');
        sx_buf_fini(&text);
    }
    sxc_json_close(json, ']');
    sxc_json_int(json, "model_run_ns", (int64_t)s->model_ns);
    sxc_json_int(json, "tuned_run_ns", (int64_t)s->tuned_ns);
    sxc_json_bool(json, "kept", kept);
    sxc_json_int(json, "rows", s->found.count);
    sxc_json_text(json, "place", sx_span_of(s->place.name));
    sxc_json_bool(json, "daemon", s->place.daemon != NULL);
    sxc_json_end(json);
}

/* ---- the whole ---- */
static uint64_t now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* What is measured is one program: each of its symbols has one value. */
static sx_code check_extents(session *s)
{
    const sx_core_request *request = &s->request;
    sx_span twice = request->interval_count > 0 ? request->interval[0].name : (sx_span){NULL, 0};
    for (uint32_t i = 0; i < request->binding_count && twice.ptr == NULL; i++) {
        for (uint32_t k = 0; k < i && twice.ptr == NULL; k++) {
            if (sx_span_equal(request->binding[i].name, request->binding[k].name)) {
                twice = request->binding[i].name;
            }
        }
    }
    return twice.ptr == NULL
               ? SX_OK
               : SX_FAIL(s->cli->cx, SX_USAGE,
                         "--dim %.*s: tune measures one value of it, only compile takes several",
                         (int)sx_min_i64((int64_t)twice.len, 60), (const char *)twice.ptr);
}

static sx_code begin(session *s)
{
    sx_ctx *cx = s->cli->cx;
    int64_t runs, threads;
    time_t now = time(NULL);
    struct tm parts;
    SX_TRY(sxc_number(s->cli, SXC_REPEAT, 3, RUNS_MAX, RUNS_USUAL, &runs));
    SX_TRY(sxc_number(s->cli, SXC_THREADS, 1, SXC_TUNE_THREADS_MAX, 0, &threads));
    s->runs = (uint32_t)runs;
    s->threads = (uint32_t)threads;
    sxc_measured_threads(s->machine, s->threads);
    SX_TRY(sxc_read_request(s->cli, &s->request, &s->options));
    SX_TRY(check_extents(s));
    s->options.daemon = SXC_MODE_NEVER; /* what is tried is nobody else's */
    s->request.measured = (sx_span){NULL, 0};
    s->entrant = SX_NEW_ARRAY(cx, entrant, SX_SEARCH_KEEP + 2);
    SX_TRY(s->entrant != NULL ? SX_OK : cx->error.code);
    if (gmtime_r(&now, &parts) == NULL ||
        strftime(s->date, sizeof(s->date), "%Y-%m-%d", &parts) != SX_MEASURED_DATE) {
        return SX_FAIL(cx, SX_SYSTEM, "tune: no date");
    }
    SX_TRY(sxc_program_load(s->cli, &s->source));
    SX_TRY(sxc_program_generalise(s->cli, &s->source, &s->request));
    const sx_target *target;
    sx_core_request asked = s->request;
    asked.target = sxc_target(asked.target);
    return sx_core_device(cx, &asked, &s->device, &target);
}

/* The daemon has a module of the model's schedules, if it has one: it is made again. */
static sx_code make_again(session *s)
{
    sxc_compile_info info;
    sx_buf module;
    sxc_compile_options options = s->options;
    options.daemon = SXC_MODE_ONLY;
    options.refresh = true;
    sx_buf_init(&module, (size_t)2 << 30);
    sx_code code = sxc_compile_until(s->cli, &s->source, &s->request, &options, &module, &info);
    sx_buf_fini(&module);
    return code;
}

static sx_code tune(session *s)
{
    sx_buf out;
    uint64_t begun = now_us();
    SX_TRY(begin(s));
    SX_TRY(s->place.daemon == NULL ? sxc_check_output(s->cli->cx, s->place.name) : SX_OK);
    SX_TRY(try_offers(s));
    bool kept;
    SX_TRY(confirm(s, &kept));
    SX_TRY(sxc_measured_add(s->cli->cx, &s->place, s->machine, &s->found, now_us() - begun));
    SX_TRY(kept && s->place.daemon != NULL ? make_again(s) : SX_OK);
    const char *output = sxc_value(s->cli, SXC_OUTPUT);
    SX_TRY(output == NULL
               ? SX_OK
               : sxc_write_file(s->cli->cx, output, sx_buf_span(&s->entrant[kept ? 1 : 0].bytes)));
    sx_buf_init(&out, (size_t)16 << 20);
    (s->cli->json ? put_json : put_text)(s, kept, &out);
    sx_code code = sxc_put(s->cli, &out);
    sx_buf_fini(&out);
    return code;
}

sx_code sxc_cmd_tune(sxc_cli *cli)
{
    session s = {.cli = cli};
    sxr_identity(s.machine);
    sx_code code = sxc_measured_open(cli, s.machine, &s.place);
    code = code == SX_OK ? tune(&s) : code;
    sxc_progress_end(&cli->progress);
    for (uint32_t i = 0; i < s.entrants; i++) {
        leave(&s.entrant[i]);
    }
    sxc_source_fini(&s.source);
    sxc_measured_close(&s.place);
    return code;
}
