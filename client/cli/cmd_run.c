/* cmd_run.c - run: executes a module on given or seeded tensors, writes outputs, compares with the program as sent. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/cmd_module.h"
#include "client/cli/cmd_run_ranks.h"
#include "client/cli/npy.h"
#include "client/cli/state_file.h"
#include "client/cli/table.h"
#include "client/record.h"
#include "client/verify/verify.h"

typedef struct {
    sxc_cli *cli;
    sxr_program *program;
    const sx_module *module;
    uint64_t seed;
    sxr_draws *draws; /* NULL: nothing was drawn */
    double best_ns, median_ns, first_ns;
    uint32_t graphs; /* how often a graph of the run is launched; 0: not at all */
    uint32_t runs;   /* how often the module runs; the first one with the prologue */
    bool stepped;    /* so many are wanted, for what they leave */
    sxc_npy *file;   /* [tensor] what its file holds; bytes.ptr NULL: not read yet */
    uint8_t **given; /* [tensor] an input that runs overwrite, as it was given; NULL: none */
    double graph_best_ns, graph_median_ns;
    double load_ns, runs_ns, check_ns; /* what the user waited for */
    uint64_t check_fuel;               /* when the check began */
    size_t check_bytes;                /* memory that the check may take; 0: as usual */
    uint64_t *launch_ns;               /* of the fastest run */
    sx_module_check check;
    bool checked;
    sxc_record record;
} session;

static sx_span name_of(const session *s, uint32_t tensor)
{
    return sx_module_string(s->module, s->module->tensor[tensor].name);
}

/* The file given for a tensor with NAME=FILE, or NULL; an unknown name is found by check_names. */
static const char *file_for(const sxc_values *values, sx_span name)
{
    for (uint32_t i = 0; i < values->count; i++) {
        const char *equals = strchr(values->value[i], '=');
        if (equals != NULL && sx_span_equal((sx_span){(const uint8_t *)values->value[i],
                                                      (size_t)(equals - values->value[i])},
                                            name)) {
            return equals + 1;
        }
    }
    return NULL;
}

static sx_code check_names(session *s, sxc_option option, sx_module_place place)
{
    const sxc_values *values = &s->cli->option[option];
    for (uint32_t i = 0; i < values->count; i++) {
        const char *equals = strchr(values->value[i], '=');
        size_t length = equals != NULL ? (size_t)(equals - values->value[i]) : 0;
        sx_span name = {(const uint8_t *)values->value[i], length};
        const char *wrong = NULL;
        if (equals == NULL || equals[1] == '\0') {
            wrong = "not of the form NAME=FILE.npy";
        } else if (sxr_find(s->program, place, name) == UINT32_MAX) {
            wrong = "the module has none of that name";
        } else if (file_for(values, name) != equals + 1) {
            wrong = "a second file for the same name";
        }
        if (wrong != NULL) {
            return SX_FAIL(s->cli->cx, SX_USAGE, "--%s %.80s: %s", sxc_options[option].name,
                           values->value[i], wrong);
        }
    }
    return SX_OK;
}

/* Reads a file once, for its extents and then for its elements. */
static sx_code read_tensor(session *s, uint32_t index, const char *path)
{
    return s->file[index].bytes.ptr == NULL ? sxc_npy_read(s->cli->cx, path, &s->file[index])
                                            : SX_OK;
}

static sx_code load_tensor(session *s, uint32_t index, const char *path, void *memory)
{
    const sx_module_tensor *tensor = &s->module->tensor[index];
    SX_TRY(read_tensor(s, index, path));
    sxc_npy array = s->file[index];
    SX_TRY(sxc_npy_as(s->cli->cx, path, (sx_dtype)tensor->dtype, &array));
    bool same = array.type.dtype == tensor->dtype && array.type.rank == tensor->rank;
    for (uint32_t d = 0; same && d < tensor->rank; d++) {
        same = array.type.dim[d].scale == sxr_shape(s->program, index)[d];
    }
    if (!same) {
        sx_buf text;
        sx_buf_init(&text, 4096);
        sx_type_print(&array.type, NULL, 0, &text);
        sx_buf_put_text(&text, ", the module has ");
        sx_type want = {.dtype = (sx_dtype)tensor->dtype, .rank = tensor->rank};
        for (uint32_t d = 0; d < tensor->rank; d++) {
            want.dim[d] = sx_dim_of(sxr_shape(s->program, index)[d]);
        }
        sx_type_print(&want, NULL, 0, &text);
        sx_span name = name_of(s, index);
        sx_code code = SX_FAIL(s->cli->cx, SX_INPUT, "tensor %.*s: %s is %.*s", (int)name.len,
                               (const char *)name.ptr, path, (int)text.len, (const char *)text.ptr);
        sx_buf_fini(&text);
        return code;
    }
    memcpy(memory, array.bytes.ptr, array.bytes.len);
    return SX_OK;
}

static sx_code bind_tensor(session *s, uint32_t index)
{
    const sx_module_tensor *tensor = &s->module->tensor[index];
    bool weight = tensor->place == SX_TENSOR_WEIGHT, output = tensor->place == SX_TENSOR_OUTPUT;
    bool in_place = output && sxr_alias(s->program, index) != SX_MODULE_NONE; /* of an input */
    if ((!weight && !output && tensor->place != SX_TENSOR_INPUT) || in_place) {
        return SX_OK;
    }
    const char *path =
        output ? NULL
               : file_for(&s->cli->option[weight ? SXC_WEIGHT : SXC_INPUT], name_of(s, index));
    if (weight && path == NULL && sxr_memory(s->program, index) != NULL) {
        return SX_OK; /* the file carries it */
    }
    sx_span name = name_of(s, index);
    if (!output && path == NULL && !sxc_given(s->cli, SXC_RANDOM)) {
        sx_hint(s->cli->cx, "Give it with --%s, or fill what is missing with --random SEED.",
                weight ? "weight" : "input");
        return SX_FAIL(s->cli->cx, SX_USAGE, "%s %.*s is not given", weight ? "weight" : "input",
                       (int)name.len, (const char *)name.ptr);
    }
    uint64_t size = sxr_size(s->program, index);
    void *memory = sx_alloc(s->cli->cx, (size_t)size);
    if (memory == NULL) {
        return s->cli->cx->error.code;
    }
    if (path != NULL) {
        SX_TRY(load_tensor(s, index, path, memory));
    } else if (!output) {
        if (s->draws == NULL) {
            SX_TRY(sxr_draws_make(s->cli->cx, s->program, &s->draws));
        }
        sxr_draws_fill(s->draws, index, s->seed, memory);
    }
    return sxr_bind(s->cli->cx, s->program, index, memory, size);
}

static double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Inputs in whose memory outputs lie are kept, and given again before each run. */
static sx_code keep_given(session *s)
{
    s->given = SX_NEW_ARRAY(s->cli->cx, uint8_t *, (size_t)s->module->tensor_count + 1);
    if (s->given == NULL) {
        return s->cli->cx->error.code;
    }
    for (uint32_t i = 0; i < s->module->tensor_count; i++) {
        uint32_t input = s->module->tensor[i].alias;
        if (input != SX_MODULE_NONE) {
            size_t size = (size_t)sxr_size(s->program, input);
            s->given[input] = sx_alloc(s->cli->cx, size);
            if (s->given[input] == NULL) {
                return s->cli->cx->error.code;
            }
            memcpy(s->given[input], sxr_memory(s->program, input), size);
        }
    }
    return SX_OK;
}

static sx_code prepare_run(session *s, bool last)
{
    for (uint32_t i = 0; i < s->module->tensor_count; i++) {
        if (s->given[i] != NULL) {
            memcpy(sxr_memory(s->program, i), s->given[i], (size_t)sxr_size(s->program, i));
        }
    }
    bool compared = last && sxc_given(s->cli, SXC_CHECK);
    return compared ? sxr_remember(s->cli->cx, s->program) : SX_OK;
}

static sx_code execute(session *s)
{
    double *sample = SX_NEW_ARRAY(s->cli->cx, double, (size_t)s->runs + 1);
    uint64_t *launch_ns = SX_NEW_ARRAY(s->cli->cx, uint64_t, (size_t)s->module->launch_count + 1);
    s->launch_ns = SX_NEW_ARRAY(s->cli->cx, uint64_t, (size_t)s->module->launch_count + 1);
    if (sample == NULL || launch_ns == NULL || s->launch_ns == NULL) {
        return s->cli->cx->error.code;
    }
    SX_TRY(keep_given(s));
    for (uint32_t i = 0; i < s->runs; i++) {
        SX_TRY(prepare_run(s, i + 1 == s->runs));
        double start = now_ns();
        SX_TRY(sxr_run(s->cli->cx, s->program, i == 0 ? s->launch_ns : launch_ns));
        sample[i] = now_ns() - start;
        bool better = i <= 1 || sample[i] < s->best_ns; /* the first one has the prologue */
        s->best_ns = better ? sample[i] : s->best_ns;
        for (uint64_t k = 0; i > 0 && better && k < s->module->launch_count; k++) {
            s->launch_ns[k] = s->module->launch[k].prologue ? s->launch_ns[k] : launch_ns[k];
        }
    }
    s->first_ns = s->runs > 0 ? sample[0] : 0;
    if (s->runs > 1) { /* the first one, with the prologue, is told by itself */
        qsort(sample + 1, s->runs - 1, sizeof(*sample), compare_doubles);
    }
    s->median_ns = s->runs > 1 ? sample[1 + (s->runs - 1) / 2] : s->first_ns;
    return SX_OK;
}

/* --graph: the same run as a graph on the GPU. */
static sx_code execute_graph(session *s)
{
    uint64_t *ns = SX_NEW_ARRAY(s->cli->cx, uint64_t, s->graphs);
    double *sample = SX_NEW_ARRAY(s->cli->cx, double, s->graphs);
    if (ns == NULL || sample == NULL) {
        return s->cli->cx->error.code;
    }
    SX_TRY(sxr_time_graph(s->cli->cx, s->program, s->graphs, ns));
    for (uint32_t i = 0; i < s->graphs; i++) {
        sample[i] = (double)ns[i];
    }
    qsort(sample, s->graphs, sizeof(*sample), compare_doubles);
    s->graph_best_ns = sample[0];
    s->graph_median_ns = sample[s->graphs / 2];
    return SX_OK;
}

/* Makes the folder of the outputs, before anything runs. `made`: it was not there. */
static sx_code make_folder(sx_ctx *cx, const char *folder, bool *made)
{
    struct stat status;
    *made = mkdir(folder, 0777) == 0;
    if (!*made && errno != EEXIST) {
        return SX_FAIL(cx, SX_INPUT, "%s: cannot be made: %s", folder, strerror(errno));
    }
    if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode)) {
        return SX_FAIL(cx, SX_INPUT, "%s: is no folder", folder);
    }
    if (access(folder, W_OK | X_OK) != 0) {
        return SX_FAIL(cx, SX_INPUT, "%s: cannot be written: %s", folder, strerror(errno));
    }
    return SX_OK;
}

static sx_code write_outputs(session *s, const char *folder)
{
    for (uint32_t i = 0; i < s->module->tensor_count; i++) {
        const sx_module_tensor *tensor = &s->module->tensor[i];
        if (tensor->place != SX_TENSOR_OUTPUT) {
            continue;
        }
        char path[4096], name[256];
        sx_span text = name_of(s, i);
        (void)snprintf(name, sizeof(name), "%.*s", (int)sx_min_i64((int64_t)text.len, 255),
                       (const char *)text.ptr);
        for (char *p = name; *p != '\0'; p++) {
            *p = *p == '/' ? '_' : *p;
        }
        if (snprintf(path, sizeof(path), "%s/%s.npy", folder, name) >= (int)sizeof(path)) {
            return SX_FAIL(s->cli->cx, SX_USAGE, "output path longer than %zu bytes", sizeof(path));
        }
        sx_type type = {.dtype = (sx_dtype)tensor->dtype, .rank = tensor->rank};
        for (uint32_t d = 0; d < tensor->rank; d++) {
            type.dim[d] = sx_dim_of(sxr_shape(s->program, i)[d]);
        }
        sx_buf file;
        sx_buf_init(&file, (size_t)16 << 30);
        sx_code code = sxc_npy_print(
            s->cli->cx, &type,
            (sx_span){sxr_memory(s->program, i), (size_t)sxr_size(s->program, i)}, &file);
        code = code == SX_OK ? sxc_write_file(s->cli->cx, path, sx_buf_span(&file)) : code;
        sx_buf_fini(&file);
        SX_TRY(code);
    }
    return SX_OK;
}

/* ---- report ---- */

/* How much of the work of a variant, which is that of the highest extents it serves, a run of these does: grids follow
 * the symbols in proportion. */
static double share_of(const session *s, const sx_module_variant *variant)
{
    double share = 1;
    for (uint32_t k = 0; k < s->module->symbol_count; k++) {
        int64_t high = sx_module_symbol_high(s->module, k);
        for (uint32_t i = 0; i < variant->guard_count; i++) {
            const sx_module_guard *guard = &s->module->guard[variant->guard_first + i];
            bool its = guard->subject == k && guard->kind != SX_GUARD_MACHINE;
            high = its && guard->kind == SX_GUARD_EQUAL ? guard->low : high;
            high = its && guard->kind == SX_GUARD_RANGE ? guard->high : high;
        }
        SX_ASSERT(high > 0);
        share *= (double)sxr_extent(s->program, k) / (double)high;
    }
    return share;
}

/* The variant that ran; of a module without any, none of its launches. */
static sx_module_variant variant_of(const session *s)
{
    uint32_t variant = sxr_variant(s->program);
    sx_module_variant ran = {.flops = s->module->info->flops};
    if (variant < s->module->variant_count) {
        ran = s->module->variant[variant];
        ran.flops *= share_of(s, &ran);
    }
    return ran;
}

/* "variant": its name, and "extents": the value of each symbol. */
static void json_variant(const session *s, const sx_module_variant *ran, sx_buf *json)
{
    const sx_module *module = s->module;
    sxc_json_text(json, "variant", sx_module_string(module, ran->name));
    sxc_json_open(json, "extents", '{');
    for (uint32_t i = 0; i < module->symbol_count; i++) {
        sxc_json_item(json);
        sx_json_text(json, sx_module_string(module, module->symbol[i].name));
        sx_buf_print(json, ":%lld", (long long)sxr_extent(s->program, i));
    }
    sxc_json_close(json, '}');
}

static sx_code report_json(session *s)
{
    sx_buf json;
    sx_module_variant ran = variant_of(s);
    sx_buf_init(&json, (size_t)16 << 20);
    sxc_json_begin(&json, "run");
    json_variant(s, &ran, &json);
    sxc_json_int(&json, "threads", sxr_threads(s->program));
    if (sxr_gpu(s->program) != NULL) {
        sxc_json_text(&json, "gpu", sx_span_of(sxr_gpu(s->program)));
    }
    sxc_json_int(&json, "runs", s->runs);
    if (s->runs > 0) {
        sxc_json_real(&json, "first_ns", s->first_ns);
        sxc_json_real(&json, "best_ns", s->best_ns);
        sxc_json_real(&json, "median_ns", s->median_ns);
        sxc_json_real(&json, "gflops", ran.flops / s->best_ns);
    }
    if (s->graphs > 0) {
        sxc_json_open(&json, "graph", '{');
        sxc_json_int(&json, "launches", s->graphs);
        sxc_json_real(&json, "best_ns", s->graph_best_ns);
        sxc_json_real(&json, "median_ns", s->graph_median_ns);
        sxc_json_close(&json, '}');
    }
    sxc_json_real(&json, "load_ns", s->load_ns);
    sxc_json_real(&json, "runs_ns", s->runs_ns);
    sxc_json_real(&json, "waited_ns", (double)(sxc_now_us() - s->cli->start_us) * 1e3);
    sx_code code =
        s->runs > 0 ? sxc_json_times(s->cli->cx, s->module, &ran, s->launch_ns, &json) : SX_OK;
    sxc_json_text(&json, "record", sx_span_of(sxc_record_name(&s->record)));
    sxc_json_text(&json, "record_key", sx_span_of(s->record.key));
    if (s->checked) {
        sxc_json_open(&json, "check", '{');
        sxc_json_bool(&json, "passed", s->check.passed != 0);
        sxc_json_int(&json, "elements", (int64_t)s->check.points);
        sxc_json_real(&json, "error", s->check.error);
        sxc_json_real(&json, "tolerance", s->check.tolerance);
        sxc_json_real(&json, "ns", s->check_ns);
        sxc_json_close(&json, '}');
    }
    sxc_json_end(&json);
    code = code == SX_OK ? sxc_put(s->cli, &json) : code;
    sx_buf_fini(&json);
    return code;
}

/* "steps    64 runs, each on the state that the one before left: 3 tensors, 9 KiB" */
static void put_steps(const session *s, sx_buf *out)
{
    char bytes[32];
    uint64_t size = 0;
    for (uint32_t i = 0; i < s->module->tensor_count; i++) {
        bool state = s->module->tensor[i].place == SX_TENSOR_STATE;
        size += state ? sxr_size(s->program, i) : 0;
    }
    sxc_human_bytes((double)size, bytes);
    sx_buf_print(out,
                 "steps    %u runs, each on the state that the one before left: %u tensors, %s\n",
                 s->runs, sxc_state_count(s->module), bytes);
}

/* Nothing ran, so that there are no times. */
static sx_code report_nothing(session *s)
{
    sx_buf out;
    sx_buf_init(&out, (size_t)1 << 20);
    put_steps(s, &out);
    sx_code code = sxc_put(s->cli, &out);
    sx_buf_fini(&out);
    return code;
}

static sx_code report(session *s)
{
    if (s->cli->json) {
        return report_json(s);
    }
    if (s->runs == 0) {
        return report_nothing(s);
    }
    char best[32], median[32], first[32], waited[32], load[32], runs[32], check[32];
    sxc_human_ns(s->best_ns, best);
    sxc_human_ns(s->median_ns, median);
    sxc_human_ns(s->first_ns, first);
    sxc_human_ns((double)(sxc_now_us() - s->cli->start_us) * 1e3, waited);
    sxc_human_ns(s->load_ns, load);
    sxc_human_ns(s->runs_ns, runs);
    sxc_human_ns(s->check_ns, check);
    sx_buf out;
    sx_module_variant ran = variant_of(s);
    const char *gpu = sxr_gpu(s->program);
    char by[160];
    if (gpu != NULL) {
        (void)snprintf(by, sizeof(by), "%s", gpu);
    } else {
        (void)snprintf(by, sizeof(by), "%u threads", sxr_threads(s->program));
    }
    sx_buf_init(&out, (size_t)64 << 20);
    if (s->module->variant_count > 1) {
        sx_buf_put_text(&out, "variant  ");
        sxc_put_plain(&out, sx_module_string(s->module, ran.name));
        sx_buf_put_u8(&out, '\n');
    }
    sx_buf_print(&out,
                 "run      best %s, median %s, first %s (with the prologue), %s, %.1f GFLOP/s\n",
                 best, median, first, by, ran.flops / s->best_ns);
    if (s->graphs > 0) {
        sxc_human_ns(s->graph_best_ns, best);
        sxc_human_ns(s->graph_median_ns, median);
        sx_buf_print(&out, "graph    best %s, median %s of %u launches on the GPU, %.1f GFLOP/s\n",
                     best, median, s->graphs, ran.flops / s->graph_median_ns);
    }
    if (s->stepped) {
        put_steps(s, &out);
    }
    sx_buf_put_text(&out, "record   ");
    sxc_record_print(&s->record, &out);
    sx_buf_put_u8(&out, '\n');
    if (s->checked) {
        sx_buf_print(&out,
                     "check    %s: %llu elements against the program as sent, largest "
                     "error %.2e "
                     "(allowed %.0e)\n",
                     s->check.passed ? "passed" : "FAILED", (unsigned long long)s->check.points,
                     s->check.error, s->check.tolerance);
    }
    sx_buf_print(&out, "waited   %s: load %s, runs %s%s%s\n", waited, load, runs,
                 s->checked ? ", check " : "", s->checked ? check : "");
    sx_code code =
        sxc_put_times(s->cli->cx, s->module, &ran, s->launch_ns, sxc_given(s->cli, SXC_ALL), &out);
    code = code == SX_OK ? sxc_put(s->cli, &out) : code;
    sx_buf_fini(&out);
    return code;
}

/* Asked by the reference between its steps: shows how far it is, and never stops it. */
static bool show_check(void *self)
{
    session *s = self;
    if (sxc_progress_due(&s->cli->progress)) {
        double done = (double)(s->check_fuel - s->cli->cx->fuel);
        sxc_progress_show(&s->cli->progress, "checking: %.0f million operations done again",
                          done / 1e6);
    }
    return false;
}

static sx_code check(session *s)
{
    sx_ctx *cx = s->cli->cx;
    double start = now_ns();
    s->check_fuel = cx->fuel;
    cx->cancelled = show_check;
    cx->cancelled_self = s;
    sxc_progress_begin(&s->cli->progress);
    sx_code code = sxr_check_program(cx, s->program, s->check_bytes, &s->check);
    sxc_progress_end(&s->cli->progress);
    if (code == SX_LIMIT && cx->error.hint[0] == '\0') {
        sx_hint(cx, "--verify-memory SIZE lets the comparison take more.");
    }
    cx->cancelled = NULL;
    s->check_ns = now_ns() - start;
    s->checked = code == SX_OK || code == SX_MISMATCH;
    return code;
}

/* The one symbol without a value in the rows of a dimension, which are a sum, gets that which makes it `extent`; where
 * there are more, its square is one of them, or no value does, nothing is set. */
static sx_code solve_extent(session *s, const sx_module_extent *row, uint64_t count, int64_t extent,
                            bool *changed)
{
    uint32_t open = SX_MODULE_NONE;
    int64_t each = 0; /* what a unit of its value adds */
    bool one = true;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t symbol[] = {row[i].symbol, row[i].other};
        uint32_t its = SX_MODULE_NONE;
        int64_t product = row[i].scale; /* at most the extent of the highest values */
        for (uint32_t k = 0; k < SX_COUNT(symbol); k++) {
            int64_t value = symbol[k] == SX_MODULE_NONE ? 1 : sxr_extent(s->program, symbol[k]);
            if (value == 0) {
                one = one && its == SX_MODULE_NONE && (open == SX_MODULE_NONE || open == symbol[k]);
                its = open = symbol[k];
            }
            product *= value == 0 ? 1 : value;
        }
        each += its != SX_MODULE_NONE ? product : 0;
        extent -= its != SX_MODULE_NONE ? 0 : product;
    }
    if (!one || open == SX_MODULE_NONE || extent <= 0 || extent % each != 0) {
        return SX_OK; /* a file that does not fit is refused when it is loaded */
    }
    *changed = true;
    return sxr_set_extent(s->cli->cx, s->program,
                          sx_module_string(s->module, s->module->symbol[open].name), extent / each);
}

/* Symbols that --dim does not tell are what the files of inputs make them. */
static sx_code set_extents_of_inputs(session *s, bool *changed)
{
    const sx_module *module = s->module;
    for (uint64_t i = 0, next; i < module->extent_count; i = next) {
        const sx_module_extent *row = &module->extent[i];
        for (next = i + 1;
             next < module->extent_count && row->what == row[next - i].what &&
             row->index == row[next - i].index && row->dimension == row[next - i].dimension;
             next++) {
        }
        if (row->what != SX_EXTENT_TENSOR || module->tensor[row->index].place != SX_TENSOR_INPUT) {
            continue;
        }
        const char *path = file_for(&s->cli->option[SXC_INPUT], name_of(s, row->index));
        if (path == NULL) {
            continue;
        }
        SX_TRY(read_tensor(s, row->index, path));
        const sx_type *type = &s->file[row->index].type;
        if (row->dimension < type->rank) {
            SX_TRY(solve_extent(s, row, next - i, type->dim[row->dimension].scale, changed));
        }
    }
    return SX_OK;
}

/* --dim, or the extents of the inputs, choose the variant of a module with several. */
static sx_code set_extents(session *s)
{
    const sx_binding *binding;
    uint32_t count;
    SX_TRY(sxc_read_dims(s->cli, &binding, &count));
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(sxr_set_extent(s->cli->cx, s->program, binding[i].name, binding[i].value));
    }
    for (bool changed = true; changed;) {
        changed = false;
        SX_TRY(set_extents_of_inputs(s, &changed));
    }
    for (uint32_t i = 0; i < s->module->symbol_count; i++) {
        if (sxr_extent(s->program, i) == 0) {
            sx_span name = sx_module_string(s->module, s->module->symbol[i].name);
            sx_buf values;
            sx_buf_init(&values, 200);
            sx_module_symbol_print(s->module, i, &values);
            sx_hint(s->cli->cx, "The module serves %.*s.", (int)values.len,
                    (const char *)values.ptr);
            sx_buf_fini(&values);
            return SX_FAIL(s->cli->cx, SX_USAGE, "dimension %.*s has no value: --dim %.*s=N",
                           (int)name.len, (const char *)name.ptr, (int)name.len,
                           (const char *)name.ptr);
        }
    }
    return SX_OK;
}

/* State that is asked for is that of a number of runs; and what nobody runs cannot be compared. */
static sx_code check_steps(session *s)
{
    const sxc_cli *cli = s->cli;
    if (sxc_given(cli, SXC_STATE_OUT) && !s->stepped) {
        return SX_FAIL(cli->cx, SX_USAGE, "--state-out: the state behind how many runs? --steps N");
    }
    if (s->stepped && (sxc_given(cli, SXC_REPEAT) || s->graphs > 0)) {
        return SX_FAIL(cli->cx, SX_USAGE, "--steps and --%s: both say how often it runs",
                       s->graphs > 0 ? "graph" : "repeat");
    }
    if (s->runs == 0 && sxc_given(cli, SXC_CHECK)) {
        return SX_FAIL(cli->cx, SX_USAGE,
                       "--steps 0 and --check: nothing runs that can be compared");
    }
    const char *path = sxc_value(cli, SXC_STATE_OUT);
    return path != NULL ? sxc_check_output(cli->cx, path) : SX_OK;
}

static sx_code work(session *s)
{
    SX_TRY(check_steps(s));
    SX_TRY(check_names(s, SXC_INPUT, SX_TENSOR_INPUT));
    SX_TRY(check_names(s, SXC_WEIGHT, SX_TENSOR_WEIGHT));
    s->file = SX_NEW_ARRAY(s->cli->cx, sxc_npy, (size_t)s->module->tensor_count + 1);
    if (s->file == NULL) {
        return s->cli->cx->error.code;
    }
    SX_TRY(set_extents(s));
    for (uint32_t i = 0; i < s->module->tensor_count; i++) {
        SX_TRY(bind_tensor(s, i));
    }
    const char *before = sxc_value(s->cli, SXC_STATE_IN),
               *behind = sxc_value(s->cli, SXC_STATE_OUT);
    SX_TRY(before != NULL ? sxc_state_load(s->cli->cx, s->program, before) : SX_OK);
    const char *folder = s->runs > 0 ? sxc_value(s->cli, SXC_OUTPUT) : NULL;
    bool made = false;
    SX_TRY(folder != NULL ? make_folder(s->cli->cx, folder, &made) : SX_OK);
    double start = now_ns();
    s->load_ns = (double)(sxc_now_us() - s->cli->start_us) * 1e3;
    sx_code code = execute(s);
    code = code == SX_OK && s->graphs > 0 ? execute_graph(s) : code;
    if (code != SX_OK && made) {
        (void)rmdir(folder);
    }
    SX_TRY(code);
    s->runs_ns = now_ns() - start;
    SX_TRY(folder != NULL ? write_outputs(s, folder) : SX_OK);
    SX_TRY(behind != NULL ? sxc_state_save(s->cli->cx, s->program, behind) : SX_OK);
    sx_code compared = SX_OK;
    if (sxc_given(s->cli, SXC_CHECK)) {
        compared = check(s);
    }
    sx_code reported = compared == SX_OK || compared == SX_MISMATCH ? report(s) : SX_OK;
    return compared != SX_OK ? compared : reported;
}

sx_code sxc_cmd_run(sxc_cli *cli)
{
    int64_t repeat, steps, threads, seed, graphs;
    SX_TRY(sxc_number(cli, SXC_REPEAT, 1, 1000000, 5, &repeat));
    SX_TRY(sxc_number(cli, SXC_STEPS, 0, 100000000, 0, &steps));
    SX_TRY(sxc_number(cli, SXC_GRAPH, 1, 1000000, 0, &graphs));
    SX_TRY(sxc_number(cli, SXC_THREADS, 1, 256, 0, &threads));
    SX_TRY(sxc_number(cli, SXC_RANDOM, 0, INT64_MAX, 0, &seed));
    uint64_t check_bytes;
    SX_TRY(sxc_read_amount(cli, SXC_VERIFY_MEMORY, 1024, &check_bytes));
    session s = {.cli = cli,
                 .seed = (uint64_t)seed,
                 .check_bytes = (size_t)check_bytes,
                 .graphs = (uint32_t)graphs,
                 .stepped = sxc_given(cli, SXC_STEPS)};
    s.runs = s.stepped ? (uint32_t)steps : (uint32_t)repeat + 1;
    sxr_options options = {.threads = (uint32_t)threads};
    SX_TRY(sxr_open_file(cli->cx, cli->argument[0], &options, &s.program));
    s.module = sxr_module(s.program);
    sx_code code = sxc_record_read(cli->cx, s.module, sxc_value(cli, SXC_SOCKET), &s.record);
    if (code == SX_OK && sx_module_ranks(s.module) > 1) {
        const sxc_ranks_run ranks = {s.seed, s.runs, s.check_bytes, &s.record};
        code = sxc_run_ranks(cli, s.program, &ranks);
    } else if (code == SX_OK) {
        code = work(&s);
    }
    sxr_close(s.program);
    return code;
}
