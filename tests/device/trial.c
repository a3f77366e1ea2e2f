#include "tests/device/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETS_MAX 64u
#define INPUTS_MAX 4u
#define CHECKED_MOST 96    /* results of a large shape */
#define LAUNCHES_LEAST 10u /* of a graph that is timed */
#define ROUNDS_MAX 41u
#define L2_CACHE_SIZE 38 /* CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE */

typedef struct {
    sx_session *s;
    const sx_trial_options *options;
    const sx_bench_shape *shape;
    sx_trial_row *row;
    sx_judged judged;
    symplex_module *module;
    uint32_t inputs, sets;
    size_t tensor[INPUTS_MAX + 1]; /* the last one is the result */
    uint64_t size[INPUTS_MAX + 1], stride[INPUTS_MAX + 1], at[INPUTS_MAX + 1];
    sx_dtype dtype[INPUTS_MAX + 1];
    uint8_t *first, *again; /* results on the host */
} trial;

sx_code sx_session_open(sx_ctx *cx, sx_session *s)
{
    int l2 = 0;
    *s = (sx_session){.cx = cx};
    SX_TRY(sxg_open(cx, 80, &s->gpu));
    SX_TRY(sxg_enter(cx, s->gpu));
    if (s->gpu->driver.device_attribute(&l2, L2_CACHE_SIZE, sxg_info_of(s->gpu)->ordinal) == 0) {
        s->l2_bytes = l2;
    }
    sx_code code = sxg_alloc(cx, s->gpu, "workspace", SX_PEER_WORKSPACE, &s->workspace);
    for (uint32_t p = 0; code == SX_OK && p < SX_PEER_COUNT; p++) {
        code = sx_peer_open(cx, (sx_peer_kind)p, s->gpu->own, s->workspace, &s->peer[p]);
        if (code == SX_ABSENT || code == SX_SYSTEM) {
            (void)snprintf(s->without[p], sizeof(s->without[p]), "%.199s", cx->error.text);
            sx_ctx_reset_error(cx);
            s->peer[p] = NULL;
            code = SX_OK;
        }
    }
    sxg_leave(s->gpu);
    return code;
}

void sx_session_close(sx_session *s)
{
    if (s->gpu != NULL && sxg_enter(s->cx, s->gpu) == SX_OK) {
        for (uint32_t p = 0; p < SX_PEER_COUNT; p++) {
            sx_peer_close(s->peer[p]);
        }
        sxg_free(s->gpu, s->workspace);
        sxg_leave(s->gpu);
    }
    sxg_close(s->gpu);
    for (uint32_t i = 0; i < SX_COUNT(s->data); i++) {
        free(s->data[i]);
    }
    free(s->before);
}

/* ---- memory ---- */

static sx_code told(sx_ctx *cx, symplex_code code, const symplex_error *error)
{
    return code == SYMPLEX_OK ? SX_OK : SX_FAIL(cx, SX_SYSTEM, "%.400s", error->text);
}

static sx_code find_tensors(trial *t)
{
    sx_ctx *cx = t->s->cx;
    symplex_tensor tensor;
    symplex_error error;
    const char *name;
    for (t->inputs = 0; (name = sx_judged_input(&t->judged, t->inputs)) != NULL; t->inputs++) {
        t->tensor[t->inputs] = symplex_module_find(t->module, SYMPLEX_INPUT_TENSOR, name);
    }
    t->tensor[t->inputs] = symplex_module_find(t->module, SYMPLEX_OUTPUT_TENSOR, "out");
    for (uint32_t i = 0; i <= t->inputs; i++) {
        SX_TRY(told(cx, symplex_module_tensor(t->module, t->tensor[i], &tensor, &error), &error));
        t->size[i] = tensor.size;
        t->stride[i] = (tensor.size + 255) / 256 * 256;
        t->dtype[i] = tensor.dtype == SYMPLEX_F32    ? SX_F32
                      : tensor.dtype == SYMPLEX_BF16 ? SX_BF16
                                                     : SX_F16;
    }
    uint64_t element = t->judged.result == SX_F32 ? 4 : 2;
    uint64_t wanted = (uint64_t)sx_judged_results(&t->judged) * element;
    if (t->dtype[t->inputs] != t->judged.result || t->size[t->inputs] != wanted) {
        return SX_FAIL(cx, SX_INPUT, "shape %s: the module is of another type or shape",
                       t->shape->name);
    }
    return SX_OK;
}

/* So many sets of tensors that what one launch leaves in the second level is gone when the set comes again. */
static sx_code make_room(trial *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i <= t->inputs; i++) {
        bytes += t->stride[i];
    }
    uint64_t sets = 3 * (uint64_t)t->s->l2_bytes / bytes + 1;
    t->sets = sets < 2 || t->options->check_only ? 2 : sets > SETS_MAX ? SETS_MAX : (uint32_t)sets;
    for (uint32_t i = 0; i <= t->inputs; i++) {
        SX_TRY(sxg_alloc(t->s->cx, t->s->gpu, "tensors", t->stride[i] * t->sets, &t->at[i]));
    }
    t->first = malloc(t->size[t->inputs]);
    t->again = malloc(t->size[t->inputs]);
    return t->first != NULL && t->again != NULL
               ? SX_OK
               : SX_FAIL(t->s->cx, SX_NOMEM, "no memory for results");
}

/* Fills input `index` of a set from its table. */
static sx_code fill(trial *t, uint32_t index, uint32_t set, bool exact)
{
    sx_session *s = t->s;
    if (s->data[index] == NULL && (s->data[index] = malloc(sizeof(sx_data))) == NULL) {
        return SX_FAIL(s->cx, SX_NOMEM, "no memory for elements");
    }
    sx_data *data = s->data[index];
    uint64_t to = t->at[index] + set * t->stride[index], left = t->size[index];
    if (set == 0 && !sx_data_make(data, t->dtype[index], index + 1, exact)) {
        return SX_FAIL(s->cx, SX_UNIMPLEMENTED, "no elements of this type");
    }
    uint64_t period = (uint64_t)SX_DATA_PERIOD * data->bytes;
    while (left > 0) {
        uint64_t bytes = left < period ? left : period;
        SX_TRY(sxg_upload(s->cx, s->gpu, to, data->bits, bytes));
        to += bytes;
        left -= bytes;
    }
    return SX_OK;
}

static sx_code fill_all(trial *t, uint32_t sets, bool exact)
{
    for (uint32_t set = 0; set < sets; set++) {
        for (uint32_t i = 0; i < t->inputs; i++) {
            SX_TRY(fill(t, i, set, exact));
        }
    }
    return sxg_sync(t->s->cx, t->s->gpu);
}

/* ---- running ---- */

static sx_code bind(trial *t, uint32_t set)
{
    symplex_error error;
    for (uint32_t i = 0; i <= t->inputs; i++) {
        SX_TRY(told(t->s->cx,
                    symplex_module_bind_device(t->module, t->tensor[i],
                                               t->at[i] + set * t->stride[i], t->size[i], &error),
                    &error));
    }
    return SX_OK;
}

/* Puts a run on the stream: of the module where `peer` is SX_PEER_COUNT. */
static sx_code enqueue(trial *t, uint32_t peer, uint32_t plan, uint32_t set)
{
    sx_session *s = t->s;
    symplex_error error;
    if (peer < SX_PEER_COUNT) {
        return sx_peer_enqueue(s->cx, s->peer[peer], plan, t->at[0] + set * t->stride[0],
                               t->at[1] + set * t->stride[1],
                               t->at[t->inputs] + set * t->stride[t->inputs]);
    }
    SX_TRY(bind(t, set));
    return told(s->cx, symplex_module_enqueue(t->module, s->gpu->own, &error), &error);
}

/* Runs on the first set, whose result is wiped before. */
static sx_code run_once(trial *t, uint32_t peer, uint8_t *result)
{
    sx_session *s = t->s;
    uint64_t bytes = t->size[t->inputs];
    uint32_t element = t->judged.result == SX_F32 ? 4 : 2;
    SX_TRY(
        sxg_fill(s->cx, s->gpu, t->at[t->inputs], bytes, UINT64_MAX, element)); /* not a number */
    SX_TRY(enqueue(t, peer, 0, 0));
    SX_TRY(sxg_download(s->cx, s->gpu, result, t->at[t->inputs], bytes));
    return sxg_sync(s->cx, s->gpu);
}

/* ---- judging ---- */

static sx_trial_verdict fail(trial *t, const char *format, const char *who, int64_t index,
                             double got, double wanted)
{
    if (t->row->why[0] == '\0') {
        (void)snprintf(t->row->why, sizeof(t->row->why), "%s: result %lld is %.9g, %s %.9g", who,
                       (long long)index, got, format, wanted);
    }
    return SX_TRIAL_FAILED;
}

/* Compares results with the reference: all, or the corners and some in between. */
static sx_trial_verdict compare(trial *t, const char *who, const uint8_t *result, bool exact)
{
    const sx_judged *j = &t->judged;
    const sx_data *input[INPUTS_MAX] = {t->s->data[0], t->s->data[1], t->s->data[2], t->s->data[3]};
    int64_t count = sx_judged_results(j), row = j->kind == SX_JUDGE_ATTENTION ? j->x[3] : j->x[1];
    int64_t checked = t->options->all_results || count < CHECKED_MOST ? count : CHECKED_MOST;
    const int64_t corner[] = {0, row - 1, count - row, count - 1};
    uint32_t bytes = j->result == SX_F32 ? 4 : 2;
    for (int64_t i = 0; i < checked; i++) {
        uint64_t mixed = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
        int64_t index = checked == count ? i
                        : i < 4          ? corner[i]
                                         : (int64_t)(mixed % (uint64_t)count);
        double value, bound, got = sx_data_decode(j->result, result + index * bytes);
        sx_judged_at(j, input, index, &value, &bound);
        t->row->results++;
        if (exact && got != sx_data_round(j->result, value)) {
            return fail(t, "exactly", who, index, got, sx_data_round(j->result, value));
        }
        if (!(fabs(got - value) <= bound)) {
            return fail(t, "wanted", who, index, got, value);
        }
    }
    return SX_TRIAL_PASSED;
}

/* Is this the operation of the shape before with another number of rows? */
static bool has_rows_of_before(const trial *t)
{
    const sx_judged *a = &t->s->before_judged, *b = &t->judged;
    return t->s->before_exists && b->kind == a->kind && b->kind != SX_JUDGE_ATTENTION &&
           !a->left_turned && !b->left_turned && a->right_turned == b->right_turned &&
           a->result == b->result && a->x[1] == b->x[1] && a->x[2] == b->x[2];
}

static sx_trial_verdict compare_rows(trial *t)
{
    size_t bytes = t->size[t->inputs];
    bytes = bytes < t->s->before_bytes ? bytes : t->s->before_bytes;
    if (!has_rows_of_before(t)) {
        return SX_TRIAL_NOT_ASKED;
    }
    if (memcmp(t->s->before, t->first, bytes) != 0) {
        return fail(t, "rows of the shape before differ", "determinism", 0, 0, 0);
    }
    return SX_TRIAL_PASSED;
}

static sx_code check(trial *t)
{
    symplex_error error;
    SX_TRY(bind(t, 0));
    SX_TRY(told(t->s->cx, symplex_module_prepare(t->module, &error), &error));
    if (t->judged.kind == SX_JUDGE_PRODUCT) {
        SX_TRY(fill_all(t, 1, true));
        SX_TRY(run_once(t, SX_PEER_COUNT, t->first));
        t->row->exact = compare(t, "symplex", t->first, true);
    }
    SX_TRY(fill_all(t, t->sets, false));
    SX_TRY(run_once(t, SX_PEER_COUNT, t->first));
    t->row->right = compare(t, "symplex", t->first, false);
    t->row->rows = compare_rows(t);
    return SX_OK;
}

/* ---- timing ---- */

static sx_code make_graph(trial *t, uint32_t peer, uint32_t plan, uint32_t launches, void **graph)
{
    sx_session *s = t->s;
    SX_TRY(sxg_graph_begin(s->cx, s->gpu));
    sx_code code = SX_OK;
    for (uint32_t i = 0; code == SX_OK && i < launches; i++) {
        code = enqueue(t, peer, plan, i % t->sets);
    }
    return sxg_graph_end(s->cx, s->gpu, code, graph);
}

static sx_code time_graph(sx_session *s, void *graph, uint32_t launches, double *us)
{
    uint64_t ns;
    SX_TRY(sxg_time_begin(s->cx, s->gpu));
    SX_TRY(sxg_graph_launch(s->cx, s->gpu, graph));
    SX_TRY(sxg_time_end(s->cx, s->gpu, &ns));
    *us = (double)ns / 1e3 / launches;
    return SX_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Who runs: the module and its peers, each as a graph of as many launches. */
typedef struct {
    void *graph[SX_PEER_COUNT + 1];
    double us[SX_PEER_COUNT + 1][ROUNDS_MAX];
    uint32_t launches;
} race;

/* The fastest plan of a peer, by one launch of each graph after one that warms it up; a plan that fails is left out. */
static sx_code pick_plan(trial *t, race *r, uint32_t peer)
{
    sx_session *s = t->s;
    uint32_t plans = 0;
    double least = 0;
    SX_TRY(sx_peer_prepare(s->cx, s->peer[peer], &t->judged, &plans));
    for (uint32_t p = 0; p < plans; p++) {
        void *graph = NULL;
        double us = 0;
        sx_code code = enqueue(t, peer, p, 0);
        code = code == SX_OK ? make_graph(t, peer, p, r->launches, &graph) : code;
        code = code == SX_OK ? time_graph(s, graph, r->launches, &us) : code;
        code = code == SX_OK ? time_graph(s, graph, r->launches, &us) : code;
        if (code != SX_OK && p + 1 == plans && r->graph[peer] == NULL) {
            return code;
        }
        bool better = code == SX_OK && (r->graph[peer] == NULL || us < least);
        if (code != SX_OK) {
            sx_ctx_reset_error(s->cx);
        }
        sxg_graph_free(s->gpu, better ? r->graph[peer] : graph);
        r->graph[peer] = better ? graph : r->graph[peer];
        least = better ? us : least;
    }
    return SX_OK;
}

/* A peer that cannot do it is left out, with the reason; one whose result is wrong is asked wrongly here. */
static sx_code enter_peer(trial *t, race *r, uint32_t peer)
{
    sx_session *s = t->s;
    char *without = t->row->peer_without[peer];
    if (s->peer[peer] == NULL) {
        (void)snprintf(without, 200, "%s", s->without[peer]);
        return SX_OK;
    }
    sx_code code = pick_plan(t, r, peer);
    code = code == SX_OK ? run_once(t, peer, t->again) : code;
    if (code != SX_OK) {
        (void)snprintf(without, 200, "%.199s", s->cx->error.text);
        sx_ctx_reset_error(s->cx);
        return SX_OK;
    }
    if (compare(t, sx_peer_name((sx_peer_kind)peer), t->again, false) == SX_TRIAL_FAILED) {
        t->row->right = SX_TRIAL_FAILED;
    }
    return SX_OK;
}

static sx_code run_race(trial *t, race *r)
{
    sx_session *s = t->s;
    uint32_t rounds = ROUNDS_MAX;
    double spent = 0;
    for (uint32_t w = 0; w <= SX_PEER_COUNT; w++) { /* warm */
        SX_TRY(r->graph[w] != NULL ? time_graph(s, r->graph[w], r->launches, &r->us[w][0]) : SX_OK);
    }
    for (uint32_t n = 0; n < rounds; n++) {
        for (uint32_t w = 0; w <= SX_PEER_COUNT; w++) {
            if (r->graph[w] != NULL) {
                SX_TRY(time_graph(s, r->graph[w], r->launches, &r->us[w][n]));
                spent += r->us[w][n] * r->launches / 1e6;
            }
        }
        rounds = spent > t->options->seconds && n + 1 < rounds && n >= 4 ? n + 1 : rounds;
    }
    for (uint32_t w = 0; w <= SX_PEER_COUNT; w++) {
        qsort(r->us[w], rounds, sizeof(r->us[w][0]), compare_doubles);
        double median = r->graph[w] != NULL ? r->us[w][rounds / 2] : 0;
        *(w < SX_PEER_COUNT ? &t->row->peer_us[w] : &t->row->ours_us) = median;
    }
    return SX_OK;
}

static sx_code measure(trial *t)
{
    race r = {.launches = t->sets > LAUNCHES_LEAST ? t->sets : LAUNCHES_LEAST / t->sets * t->sets};
    sx_code code = SX_OK;
    for (uint32_t p = 0; code == SX_OK && p < SX_PEER_COUNT; p++) {
        if (t->judged.kind == SX_JUDGE_PRODUCT) {
            code = enter_peer(t, &r, p);
        } else {
            (void)snprintf(t->row->peer_without[p], 200, "products alone");
        }
    }
    code =
        code == SX_OK ? make_graph(t, SX_PEER_COUNT, 0, r.launches, &r.graph[SX_PEER_COUNT]) : code;
    code = code == SX_OK ? run_race(t, &r) : code;
    for (uint32_t w = 0; w <= SX_PEER_COUNT; w++) {
        sxg_graph_free(t->s->gpu, r.graph[w]);
    }
    return code;
}

/* ---- the whole ---- */

static sx_code run(trial *t)
{
    SX_TRY(find_tensors(t));
    SX_TRY(make_room(t));
    SX_TRY(check(t));
    if (!t->options->check_only) {
        SX_TRY(measure(t));
    }
    SX_TRY(run_once(t, SX_PEER_COUNT, t->again));
    bool same = memcmp(t->first, t->again, t->size[t->inputs]) == 0;
    t->row->again = same ? SX_TRIAL_PASSED : fail(t, "another run differs", "determinism", 0, 0, 0);
    return SX_OK;
}

sx_code sx_trial_run(sx_session *s, const sx_trial_options *options, const sx_bench_shape *shape,
                     const char *path, sx_trial_row *row)
{
    symplex_error error;
    symplex_module_info info;
    trial t = {.s = s, .options = options, .shape = shape, .row = row};
    *row = (sx_trial_row){0};
    SX_TRY(sx_judged_read(s->cx, shape, &t.judged));
    SX_TRY(told(s->cx, symplex_module_open_file(path, 1, &t.module, &error), &error));
    symplex_module_describe(t.module, &info);
    row->predicted_us = info.estimate_ns / 1e3;
    sx_code code = info.gpu >= 0 ? sxg_enter(s->cx, s->gpu)
                                 : SX_FAIL(s->cx, SX_INPUT, "%s is for no GPU", path);
    if (code == SX_OK) {
        code = run(&t);
        (void)s->gpu->driver.stream_sync(s->gpu->own);
        for (uint32_t i = 0; i <= t.inputs; i++) {
            sxg_free(s->gpu, t.at[i]);
        }
        sxg_leave(s->gpu);
    }
    symplex_module_close(t.module);
    free(t.again);
    free(s->before);
    s->before = t.first;
    s->before_bytes = t.size[t.inputs];
    s->before_judged = t.judged;
    s->before_exists = code == SX_OK;
    return code;
}
