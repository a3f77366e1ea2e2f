/* cmd_run_ranks.c - run, of a module that several ranks run together: all of them in this process, each on a thread. */
#include "client/cli/cmd_run_ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/cmd_module.h"
#include "client/cli/npy.h"
#include "client/cli/ranks.h"
#include "client/runtime/ranks.h"
#include "client/verify/verify.h"

/* Ranks are threads with memory of their own. */
#define RANKS_MAX 256u
/* How long a rank waits for another one in a collective. */
#define WAIT_MS UINT64_C(600000)

typedef struct {
    struct run_of_ranks *all;
    uint32_t number;
    sxr_program *program;
    sx_ctx cx;
    sx_code code;
    double *sample; /* [runs] ns of each run */
    pthread_t thread;
    bool started;
} one_rank;

typedef struct run_of_ranks {
    sxc_cli *cli;
    const sxc_ranks_run *how;
    const sx_module *module;
    sxr_group *group;
    one_rank *rank;
    sxr_program **program; /* [ranks] */
    uint32_t ranks;
    sxr_draws *draws;
    double best_ns, median_ns, first_ns, check_ns;
    sx_module_check check;
    bool checked;
} run_of_ranks;

/* ---- tensors ---- */

static sx_code bind_tensor(run_of_ranks *s, uint32_t r, uint32_t index)
{
    sx_ctx *cx = s->cli->cx;
    sxr_program *program = s->program[r];
    const sx_module_tensor *tensor = &s->module->tensor[index];
    bool weight = tensor->place == SX_TENSOR_WEIGHT, output = tensor->place == SX_TENSOR_OUTPUT;
    bool in_place = output && sxr_alias(program, index) != SX_MODULE_NONE;
    if ((!weight && !output && tensor->place != SX_TENSOR_INPUT) || in_place) {
        return SX_OK;
    }
    bool found = false;
    sxc_source_of_rank source;
    const sxc_values *values = &s->cli->option[weight ? SXC_WEIGHT : SXC_INPUT];
    if (!output) {
        SX_TRY(sxc_rank_source(cx, s->module, values, index, r, &found, &source));
    }
    if (weight && !found && sxr_memory(program, index) != NULL) {
        return SX_OK; /* the file carries it */
    }
    sx_span name = sx_module_string(s->module, tensor->name);
    if (!output && !found && !sxc_given(s->cli, SXC_RANDOM)) {
        sx_hint(cx, "Give it with --%s, or fill what is missing with --random SEED.",
                weight ? "weight" : "input");
        return SX_FAIL(cx, SX_USAGE, "%s %.*s of rank %u is not given", weight ? "weight" : "input",
                       (int)name.len, (const char *)name.ptr, r);
    }
    uint64_t size = sxr_size(program, index);
    void *memory = sx_alloc(cx, (size_t)size);
    if (memory == NULL) {
        return cx->error.code;
    }
    if (found) {
        SX_TRY(sxc_rank_load(cx, program, index, &source, memory));
    } else if (!output) { /* each rank has elements of its own */
        sxr_draws_fill(s->draws, index, s->how->seed + UINT64_C(0x9E3779B97F4A7C15) * r, memory);
    }
    return sxr_bind(cx, program, index, memory, size);
}

static sx_code bind_all(run_of_ranks *s)
{
    sx_ctx *cx = s->cli->cx;
    SX_TRY(sxc_rank_names(cx, s->program[0], "input", &s->cli->option[SXC_INPUT], SX_TENSOR_INPUT));
    SX_TRY(
        sxc_rank_names(cx, s->program[0], "weight", &s->cli->option[SXC_WEIGHT], SX_TENSOR_WEIGHT));
    if (sxc_given(s->cli, SXC_RANDOM)) {
        SX_TRY(sxr_draws_make(cx, s->program[0], &s->draws));
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        for (uint32_t i = 0; i < s->module->tensor_count; i++) {
            SX_TRY(bind_tensor(s, r, i));
        }
    }
    return SX_OK;
}

static sx_code write_output(const run_of_ranks *s, uint32_t r, uint32_t index, const char *folder)
{
    char path[4096], name[256];
    const sx_module_tensor *tensor = &s->module->tensor[index];
    sx_span text = sx_module_string(s->module, tensor->name);
    (void)snprintf(name, sizeof(name), "%.*s", (int)sx_min_i64((int64_t)text.len, 255),
                   (const char *)text.ptr);
    for (char *p = name; *p != '\0'; p++) {
        *p = *p == '/' ? '_' : *p;
    }
    if (snprintf(path, sizeof(path), "%s/%s@%u.npy", folder, name, r) >= (int)sizeof(path)) {
        return SX_FAIL(s->cli->cx, SX_USAGE, "output path longer than %zu bytes", sizeof(path));
    }
    sx_type type = {.dtype = (sx_dtype)tensor->dtype, .rank = tensor->rank};
    for (uint32_t d = 0; d < tensor->rank; d++) {
        type.dim[d] = sx_dim_of(sxr_shape(s->program[r], index)[d]);
    }
    sx_buf file;
    sx_buf_init(&file, (size_t)16 << 30);
    sx_span bytes = {sxr_memory(s->program[r], index), (size_t)sxr_size(s->program[r], index)};
    sx_code code = sxc_npy_print(s->cli->cx, &type, bytes, &file);
    code = code == SX_OK ? sxc_write_file(s->cli->cx, path, sx_buf_span(&file)) : code;
    sx_buf_fini(&file);
    return code;
}

static sx_code write_outputs(const run_of_ranks *s, const char *folder)
{
    (void)mkdir(folder, 0777); /* writing says what is wrong with it */
    for (uint32_t r = 0; r < s->ranks; r++) {
        for (uint32_t i = 0; i < s->module->tensor_count; i++) {
            if (s->module->tensor[i].place == SX_TENSOR_OUTPUT) {
                SX_TRY(write_output(s, r, i, folder));
            }
        }
    }
    return SX_OK;
}

/* ---- running ---- */

static sx_code run_rank(one_rank *own)
{
    const run_of_ranks *s = own->all;
    bool compared = sxc_given(s->cli, SXC_CHECK);
    for (uint32_t i = 0; i < s->how->runs; i++) {
        if (compared && i + 1 == s->how->runs) {
            SX_TRY(sxr_remember(&own->cx, own->program));
        }
        double start = (double)sxc_now_us();
        SX_TRY(sxr_run(&own->cx, own->program, NULL));
        own->sample[i] = ((double)sxc_now_us() - start) * 1e3;
    }
    return SX_OK;
}

static void *rank_thread(void *self)
{
    one_rank *own = self;
    own->code = run_rank(own);
    return NULL;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* All ranks at once. Where one cannot be started the others do not wait for it. */
static sx_code run_all(run_of_ranks *s)
{
    sx_ctx *cx = s->cli->cx;
    sx_code code = SX_OK;
    for (uint32_t r = 0; r < s->ranks && code == SX_OK; r++) {
        one_rank *own = &s->rank[r];
        own->sample = SX_NEW_ARRAY(cx, double, (size_t)s->how->runs + 1);
        if (own->sample == NULL) {
            code = cx->error.code;
        } else if (pthread_create(&own->thread, NULL, rank_thread, own) != 0) {
            code = SX_FAIL(cx, SX_SYSTEM, "rank %u: no thread can be started", r);
        }
        own->started = code == SX_OK;
        if (code != SX_OK) {
            const sxr_communicator *c = sxr_group_communicator(s->group, r);
            c->abort(c->self, &cx->error);
        }
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (s->rank[r].started) {
            (void)pthread_join(s->rank[r].thread, NULL);
        }
    }
    for (uint32_t r = 0; r < s->ranks && code == SX_OK; r++) {
        code = s->rank[r].code;
        cx->error = code != SX_OK ? s->rank[r].cx.error : cx->error;
    }
    SX_TRY(code);
    uint32_t timed = s->how->runs - 1;
    double *sample = s->rank[0].sample;
    s->first_ns = sample[0];
    qsort(sample + 1, timed, sizeof(*sample), compare_doubles);
    s->best_ns = timed > 0 ? sample[1] : s->first_ns;
    s->median_ns = timed > 0 ? sample[1 + timed / 2] : s->first_ns;
    return SX_OK;
}

/* ---- report ---- */

static void put_mesh(const run_of_ranks *s, sx_buf *out)
{
    for (uint32_t a = 0; a < s->module->axis_count; a++) {
        sx_span name = sx_module_string(s->module, s->module->axis[a].name);
        sx_buf_print(out, "%s%.*s = %llu", a > 0 ? ", " : "", (int)name.len, (const char *)name.ptr,
                     (unsigned long long)s->module->axis[a].size);
    }
}

static void report_json(const run_of_ranks *s, sx_buf *out)
{
    sx_buf mesh;
    sx_buf_init(&mesh, 1024);
    put_mesh(s, &mesh);
    sxc_json_begin(out, "run");
    sxc_json_text(out, "mesh", sx_buf_span(&mesh));
    sxc_json_int(out, "ranks", s->ranks);
    sxc_json_int(out, "threads", sxr_threads(s->program[0]));
    sxc_json_int(out, "runs", s->how->runs);
    sxc_json_real(out, "first_ns", s->first_ns);
    sxc_json_real(out, "best_ns", s->best_ns);
    sxc_json_real(out, "median_ns", s->median_ns);
    sxc_json_text(out, "record", sx_span_of(sxc_record_name(s->how->record)));
    sxc_json_text(out, "record_key", sx_span_of(s->how->record->key));
    if (s->checked) {
        sxc_json_open(out, "check", '{');
        sxc_json_bool(out, "passed", s->check.passed != 0);
        sxc_json_int(out, "elements", (int64_t)s->check.points);
        sxc_json_real(out, "error", s->check.error);
        sxc_json_real(out, "tolerance", s->check.tolerance);
        sxc_json_real(out, "ns", s->check_ns);
        sxc_json_close(out, '}');
    }
    sxc_json_end(out);
    sx_buf_fini(&mesh);
}

static void report_text(const run_of_ranks *s, sx_buf *out)
{
    char best[32], median[32], first[32];
    sxc_human_ns(s->best_ns, best);
    sxc_human_ns(s->median_ns, median);
    sxc_human_ns(s->first_ns, first);
    sx_buf_print(out, "mesh     %u ranks: ", s->ranks);
    put_mesh(s, out);
    sx_buf_print(out,
                 "\nrun      best %s, median %s, first %s (with the prologue), of rank 0; each "
                 "rank has %u thread%s\nrecord   ",
                 best, median, first, sxr_threads(s->program[0]),
                 sxr_threads(s->program[0]) == 1 ? "" : "s");
    sxc_record_print(s->how->record, out);
    sx_buf_put_u8(out, '\n');
    if (s->checked) {
        sx_buf_print(out,
                     "check    %s: %llu elements of all ranks against the program as sent, largest "
                     "error %.2e (allowed %.0e)\n",
                     s->check.passed ? "passed" : "FAILED", (unsigned long long)s->check.points,
                     s->check.error, s->check.tolerance);
    }
}

static sx_code report(const run_of_ranks *s)
{
    sx_buf out;
    sx_buf_init(&out, (size_t)1 << 20);
    if (s->cli->json) {
        report_json(s, &out);
    } else {
        report_text(s, &out);
    }
    sx_code code = sxc_put(s->cli, &out);
    sx_buf_fini(&out);
    return code;
}

/* ---- the command ---- */

static sx_code check_options(const run_of_ranks *s)
{
    static const sxc_option one[] = {SXC_GRAPH, SXC_STATE_IN, SXC_STATE_OUT};
    for (uint32_t i = 0; i < SX_COUNT(one); i++) {
        if (sxc_given(s->cli, one[i])) {
            return SX_FAIL(s->cli->cx, SX_UNIMPLEMENTED, "--%s of a module that %u ranks run",
                           sxc_options[one[i]].name, s->ranks);
        }
    }
    if (s->how->runs == 0) {
        return SX_FAIL(s->cli->cx, SX_USAGE, "--steps 0: nothing runs");
    }
    if (s->ranks > RANKS_MAX) {
        return SX_FAIL(s->cli->cx, SX_LIMIT, "%u ranks, at most %u in one process", s->ranks,
                       RANKS_MAX);
    }
    return SX_OK;
}

/* A program for each rank; the cores are shared. */
static sx_code open_ranks(run_of_ranks *s, uint32_t threads)
{
    sx_ctx *cx = s->cli->cx;
    const sx_binding *binding;
    uint32_t bound;
    SX_TRY(sxc_read_dims(s->cli, &binding, &bound));
    sxr_options options = {.threads = threads / s->ranks > 0 ? threads / s->ranks : 1};
    for (uint32_t r = 0; r < s->ranks; r++) {
        one_rank *own = &s->rank[r];
        *own = (one_rank){.all = s, .number = r};
        sx_ctx_init(&own->cx, (size_t)16 << 30);
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        one_rank *own = &s->rank[r];
        SX_TRY(sxr_open_file(cx, s->cli->argument[0], &options, &own->program));
        s->program[r] = own->program;
        SX_TRY(sxr_join(cx, own->program, sxr_group_communicator(s->group, r)));
        for (uint32_t i = 0; i < bound; i++) {
            SX_TRY(sxr_set_extent(cx, own->program, binding[i].name, binding[i].value));
        }
    }
    return SX_OK;
}

static sx_code work(run_of_ranks *s, uint32_t threads)
{
    sx_ctx *cx = s->cli->cx;
    SX_TRY(open_ranks(s, threads));
    s->module = sxr_module(s->program[0]);
    SX_TRY(bind_all(s));
    SX_TRY(run_all(s));
    const char *folder = sxc_value(s->cli, SXC_OUTPUT);
    SX_TRY(folder != NULL ? write_outputs(s, folder) : SX_OK);
    sx_code compared = SX_OK;
    if (sxc_given(s->cli, SXC_CHECK)) {
        double start = (double)sxc_now_us();
        compared = sxr_check_ranks(cx, s->program, s->how->check_bytes, &s->check);
        s->check_ns = ((double)sxc_now_us() - start) * 1e3;
        s->checked = compared == SX_OK || compared == SX_MISMATCH;
    }
    sx_code reported = compared == SX_OK || compared == SX_MISMATCH ? report(s) : SX_OK;
    return compared != SX_OK ? compared : reported;
}

sx_code sxc_run_ranks(sxc_cli *cli, const sxr_program *first, const sxc_ranks_run *how)
{
    run_of_ranks s = {.cli = cli,
                      .how = how,
                      .module = sxr_module(first),
                      .ranks = sx_module_ranks(sxr_module(first))};
    SX_TRY(check_options(&s));
    s.rank = SX_NEW_ARRAY(cli->cx, one_rank, s.ranks);
    s.program = SX_NEW_ARRAY(cli->cx, sxr_program *, s.ranks);
    if (s.rank == NULL || s.program == NULL) {
        return cli->cx->error.code;
    }
    SX_TRY(sxr_group_new(cli->cx, s.ranks, WAIT_MS, &s.group));
    sx_code code = work(&s, sxr_threads(first));
    for (uint32_t r = 0; r < s.ranks; r++) {
        sxr_close(s.rank[r].program);
        sx_ctx_fini(&s.rank[r].cx);
    }
    sxr_group_free(s.group);
    return code;
}
