#include "core/search/correction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N SX_CORRECTION_FEATURES
#define RIDGE 10.0     /* of features with a deviation of 1 */
#define CONSTANT 1e-12 /* of the square of a feature: rounding alone */

/* ---- features ---- */
/* Rows, columns, depth; in the grid (blocks of clusters, too), in loops, inside of them. */
static int place_of(const sx_level *level)
{
    int axis = level->axis == SX_ROLE_ROW      ? 0
               : level->axis == SX_ROLE_COLUMN ? 1
               : level->axis == SX_ROLE_SUM    ? 2
                                               : -1;
    bool grid = level->bind == SX_BIND_GRID || level->bind == SX_BIND_CLUSTER;
    int kind = grid ? 0 : level->bind == SX_BIND_LOOP ? 1 : 2;
    return axis < 0 ? -1 : 3 * kind + axis;
}

static void features_of(const sx_schedule *schedule, double feature[N])
{
    memset(feature, 0, N * sizeof(*feature));
    for (uint32_t i = 0; i < schedule->level_count; i++) {
        int place = place_of(&schedule->level[i]);
        if (place >= 0) { /* steps fall: the last one is the smallest */
            feature[place] = log2((double)schedule->level[i].step);
            feature[N / 2 + place] = feature[place] * feature[place];
        }
    }
}

double sx_correction_factor(const sx_correction *c, const sx_schedule *schedule)
{
    double feature[N], sum = 0;
    features_of(schedule, feature);
    for (uint32_t i = 0; i < N; i++) {
        sum += c->weight[i] * feature[i];
    }
    return exp(sum < -20 ? -20 : sum > 20 ? 20 : sum);
}

/* ---- fit ---- */
/* Rows of one kernel after the other. */
typedef struct {
    const sx_measured_row **row;
    uint32_t count;
} selection;

static int by_kernel(const void *left, const void *right)
{
    const sx_measured_row *a = *(const sx_measured_row *const *)left;
    const sx_measured_row *b = *(const sx_measured_row *const *)right;
    if (a->kernel != b->kernel) {
        return a->kernel < b->kernel ? -1 : 1;
    }
    return a < b ? -1 : a > b; /* as they stand */
}

static sx_code select_rows(sx_ctx *cx, const sx_measured *rows, const char *machine,
                           const char *device, selection *s)
{
    *s = (selection){SX_NEW_ARRAY(cx, const sx_measured_row *, (size_t)rows->count + 1), 0};
    if (s->row == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < rows->count; i++) {
        const sx_measured_row *row = &rows->row[i];
        if (strcmp(row->machine, machine) == 0 && strcmp(row->device, device) == 0) {
            s->row[s->count++] = row;
        }
    }
    qsort(s->row, s->count, sizeof(*s->row), by_kernel);
    return SX_OK;
}

/* How many rows from `first` on are of one kernel. */
static uint32_t same_kernel(const selection *s, uint32_t first)
{
    uint32_t n = 1;
    while (first + n < s->count && s->row[first + n]->kernel == s->row[first]->kernel) {
        n++;
    }
    return n;
}

/* The normal equations: sums of products of features, and of them with the logarithm of measured over predicted. */
typedef struct {
    double product[N][N], with[N];
    uint32_t kernels, rows;
} equations;

static void add_kernel(equations *e, const sx_measured_row *const *row, uint32_t n)
{
    double mean[N] = {0}, feature[N], mean_log = 0;
    for (uint32_t i = 0; i < n; i++) {
        features_of(&row[i]->schedule, feature);
        for (uint32_t k = 0; k < N; k++) {
            mean[k] += feature[k] / n;
        }
        mean_log += log(row[i]->ns / row[i]->predicted_ns) / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        double off = log(row[i]->ns / row[i]->predicted_ns) - mean_log;
        features_of(&row[i]->schedule, feature);
        for (uint32_t k = 0; k < N; k++) {
            feature[k] -= mean[k];
        }
        for (uint32_t k = 0; k < N; k++) {
            e->with[k] += feature[k] * off;
            for (uint32_t l = 0; l < N; l++) {
                e->product[k][l] += feature[k] * feature[l];
            }
        }
    }
    e->kernels++;
    e->rows += n;
}

/* Solves (X^T X + RIDGE D) w = X^T y, where D has the variances of the features: Gauss without exchanges, which a
 * positive definite matrix does not need. A feature that never differs has no weight. */
static void solve(equations *e, double weight[N])
{
    for (uint32_t k = 0; k < N; k++) {
        bool differs = e->product[k][k] > CONSTANT * e->rows;
        for (uint32_t l = 0; l < N && !differs; l++) {
            e->product[k][l] = e->product[l][k] = 0;
        }
        e->with[k] = differs ? e->with[k] : 0;
        e->product[k][k] += differs ? RIDGE * e->product[k][k] / e->rows : 1;
    }
    for (uint32_t k = 0; k < N; k++) {
        for (uint32_t i = k + 1; i < N; i++) {
            double factor = e->product[i][k] / e->product[k][k];
            for (uint32_t l = k; l < N; l++) {
                e->product[i][l] -= factor * e->product[k][l];
            }
            e->with[i] -= factor * e->with[k];
        }
    }
    for (uint32_t k = N; k-- > 0;) {
        weight[k] = e->with[k];
        for (uint32_t l = k + 1; l < N; l++) {
            weight[k] -= e->product[k][l] * weight[l];
        }
        weight[k] /= e->product[k][k];
    }
}

static sx_code fit(sx_ctx *cx, const selection *s, uint64_t without, sx_correction *c)
{
    equations e = {.kernels = 0};
    for (uint32_t i = 0, n; i < s->count; i += n) {
        n = same_kernel(s, i);
        if (n > 1 && s->row[i]->kernel != without) {
            add_kernel(&e, &s->row[i], n);
        }
    }
    if (e.kernels + (without != 0 ? 1 : 0) < SX_CORRECTION_KERNELS_MIN) {
        sx_code code = SX_FAIL(cx, SX_INPUT,
                               "correction: %u kernels of this target with two or more measured "
                               "schedules, %d are needed",
                               e.kernels, SX_CORRECTION_KERNELS_MIN);
        sx_hint(cx, "Measure more models or operations with tune first.");
        return code;
    }
    c->kernels = e.kernels;
    c->rows = e.rows;
    solve(&e, c->weight);
    return SX_OK;
}

sx_code sx_correction_fit(sx_ctx *cx, const sx_measured *rows, const char *machine,
                          const char *device, uint64_t without, sx_correction *c)
{
    selection s;
    *c = (sx_correction){.kernels = 0};
    SX_ASSERT(strlen(machine) < sizeof(c->machine) && strlen(device) < sizeof(c->device));
    SX_TRY(select_rows(cx, rows, machine, device, &s));
    memcpy(c->machine, machine, strlen(machine));
    memcpy(c->device, device, strlen(device));
    return fit(cx, &s, without, c);
}

/* ---- how good it is ---- */
/* The fastest of the kernel over the one whose predicted time, corrected or not, is the smallest. */
static double quality(const sx_measured_row *const *row, uint32_t n, const sx_correction *c)
{
    double fastest = row[0]->ns, first = (double)INFINITY, chosen = 0;
    for (uint32_t i = 0; i < n; i++) {
        double said =
            row[i]->predicted_ns * (c != NULL ? sx_correction_factor(c, &row[i]->schedule) : 1);
        chosen = said < first ? row[i]->ns : chosen;
        first = said < first ? said : first;
        fastest = row[i]->ns < fastest ? row[i]->ns : fastest;
    }
    return fastest / chosen;
}

sx_code sx_correction_judge(sx_ctx *cx, const sx_measured *rows, const char *machine,
                            const char *device, sx_correction_score *score)
{
    selection s;
    *score = (sx_correction_score){.model_worst = 1, .corrected_worst = 1};
    SX_TRY(select_rows(cx, rows, machine, device, &s));
    for (uint32_t i = 0, n; i < s.count; i += n) {
        sx_correction c = {.kernels = 0};
        n = same_kernel(&s, i);
        if (n == 1) {
            continue;
        }
        SX_TRY(fit(cx, &s, s.row[i]->kernel, &c));
        double model = quality(&s.row[i], n, NULL), corrected = quality(&s.row[i], n, &c);
        score->kernels++;
        score->model += log(model);
        score->corrected += log(corrected);
        score->model_worst = fmin(score->model_worst, model);
        score->corrected_worst = fmin(score->corrected_worst, corrected);
    }
    score->model = exp(score->model / (score->kernels > 0 ? score->kernels : 1));
    score->corrected = exp(score->corrected / (score->kernels > 0 ? score->kernels : 1));
    return SX_OK;
}

/* ---- text ---- */
void sx_correction_print(const sx_correction *c, sx_buf *text)
{
    size_t begin = text->len;
    sx_buf_print(text, SX_CORRECTION_HEAD "\n%s %s %u %u\n", c->machine, c->device, c->kernels,
                 c->rows);
    for (uint32_t i = 0; i < N; i++) {
        sx_buf_print(text, "%s%.17g", i > 0 ? " " : "", c->weight[i]);
    }
    sx_buf_put_text(text, "\n");
    sx_span said = {text->ptr + begin, text->len - begin};
    sx_buf_print(text, "hash %016llx\n", (unsigned long long)sx_hash64(said, 0));
}

#define TAIL 22 /* bytes of its last line */
static sx_code no_correction(sx_ctx *cx)
{
    return SX_FAIL(cx, SX_INPUT, "correction: '" SX_CORRECTION_HEAD "' and three lines wanted");
}

sx_code sx_correction_parse(sx_ctx *cx, sx_span text, sx_correction *c)
{
    static const char head[] = SX_CORRECTION_HEAD "\n";
    char copy[SX_CORRECTION_TEXT_MAX + 1], tail[TAIL + 1], *at, *end;
    int used = 0;
    *c = (sx_correction){.kernels = 0};
    if (text.len == 0) {
        return SX_OK;
    }
    if (text.len > SX_CORRECTION_TEXT_MAX || text.len < sizeof(head) - 1 ||
        memcmp(text.ptr, head, sizeof(head) - 1) != 0) {
        return no_correction(cx);
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    if (text.len < sizeof(head) + TAIL || memcmp(copy + text.len - TAIL, "hash ", 5) != 0) {
        return no_correction(cx);
    }
    const char *last = copy + text.len - TAIL - 1; /* the end of the weights */
    uint64_t hash = sx_hash64((sx_span){text.ptr, text.len - TAIL}, 0);
    (void)snprintf(tail, sizeof(tail), "hash %016llx\n", (unsigned long long)hash);
    if (memcmp(last + 1, tail, TAIL) != 0) {
        return SX_FAIL(cx, SX_CORRUPT, "correction: the hash is another one: it is damaged");
    }
    if (sscanf(copy + sizeof(head) - 1, "%63s %47s %u %u\n%n", c->machine, c->device, &c->kernels,
               &c->rows, &used) != 4) {
        return no_correction(cx);
    }
    at = copy + sizeof(head) - 1 + used;
    for (uint32_t i = 0; i < N; i++, at = end) {
        c->weight[i] = strtod(at, &end);
        if (end == at || !isfinite(c->weight[i])) {
            return no_correction(cx);
        }
    }
    return at == last ? SX_OK : no_correction(cx);
}

/* ---- with rows ---- */
/* Leaves a correction out that is of no use on this machine. */
static sx_code check_correction(sx_ctx *cx, const char *machine, sx_span *text,
                                const char **ignored)
{
    sx_correction c;
    sx_code code = sx_correction_parse(cx, *text, &c);
    if (code != SX_OK) {
        *ignored = sx_alloc_text(cx, sx_span_of(cx->error.text));
        sx_ctx_reset_error(cx);
    }
    if (code != SX_OK || strcmp(c.machine, machine) != 0) {
        *text = (sx_span){NULL, 0};
    }
    return code == SX_OK || *ignored != NULL ? SX_OK : SX_NOMEM;
}

sx_code sx_measured_here(sx_ctx *cx, sx_span text, const char *machine, sx_span *here,
                         const char **ignored)
{
    sx_measured m;
    *ignored = NULL;
    uint32_t kept = 0;
    sx_buf out;
    *here = (sx_span){NULL, 0};
    SX_TRY(sx_measured_parse(cx, text, &m));
    for (uint32_t i = 0; i < m.count; i++) {
        if (strcmp(m.row[i].machine, machine) == 0) {
            m.row[kept++] = m.row[i];
        }
    }
    m.count = kept;
    SX_TRY(check_correction(cx, machine, &m.correction, ignored));
    if (kept == 0 && m.correction.len == 0) {
        return SX_OK;
    }
    sx_buf_init(&out, SX_MEASURED_TEXT_MAX);
    sx_measured_print(&m, &out);
    sx_code code = sx_buf_check(cx, &out, "measured rows");
    const char *copy = code == SX_OK ? sx_alloc_text(cx, sx_buf_span(&out)) : NULL;
    *here = (sx_span){(const uint8_t *)copy, copy != NULL ? out.len : 0};
    sx_buf_fini(&out);
    return copy != NULL ? SX_OK : cx->error.code;
}
