/* sx-device - modules for the shapes of a list, on the GPU of this machine: whether they are right, and how fast they
 * are beside cuBLAS, cuBLASLt and whatever peer.py has measured.
 *
 * usage: sx-device --shapes FILE --modules FOLDER [--shape PREFIX] [--check] [--all] [--seconds N] [--peers FILE]
 *                  [--json FILE]
 *
 *   --check    no times       --all   every result is compared, not some
 *   --seconds  of timing, for all shapes together (120)
 *   --peers    lines of peer.py: SHAPE, PEER, microseconds or "skipped", the reason
 *
 * Exit status 1: a result is wrong, or other bits came from another run or another number of rows. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/source.h"
#include "tests/device/trial.h"

#define OTHERS_MAX 1024u
#define NAMES_MAX 16u

typedef struct {
    char shape[48], name[24], reason[96];
    double us; /* 0: skipped */
} other;

typedef struct {
    const char *shapes, *modules, *prefix, *peers, *json;
    sx_trial_options trial;
    double seconds;
    sx_bench_shape shape[SX_BENCH_SHAPES_MAX];
    sx_trial_row row[SX_BENCH_SHAPES_MAX];
    bool ran[SX_BENCH_SHAPES_MAX], broken[SX_BENCH_SHAPES_MAX];
    uint32_t count, failures;
    other other[OTHERS_MAX];
    uint32_t other_count;
    FILE *out;
    char device[128];
    uint32_t driver;
} report;

static report r; /* too large for a stack */

/* ---- peers measured by another program ---- */

static sx_code read_peers(sx_ctx *cx)
{
    char line[256], us[24];
    FILE *file = fopen(r.peers, "r");
    if (file == NULL) {
        return SX_FAIL(cx, SX_INPUT, "%s cannot be read", r.peers);
    }
    while (fgets(line, sizeof(line), file) != NULL && r.other_count < OTHERS_MAX) {
        other *o = &r.other[r.other_count];
        *o = (other){.us = 0};
        if (sscanf(line, "%47s %23s %23s %95[^\n]", o->shape, o->name, us, o->reason) >= 3) {
            o->us = strcmp(us, "skipped") == 0 ? 0 : strtod(us, NULL);
            r.other_count++;
        }
    }
    (void)fclose(file);
    return SX_OK;
}

/* ---- one table of all peers ---- */

/* Peer `index` of a shape: its name and time; false: no more. */
static bool peer_at(uint32_t shape, uint32_t index, const char **name, double *us, const char **why)
{
    if (index < SX_PEER_COUNT) {
        *name = sx_peer_name((sx_peer_kind)index);
        *us = r.row[shape].peer_us[index];
        *why = r.row[shape].peer_without[index];
        return true;
    }
    for (uint32_t i = 0, n = SX_PEER_COUNT; i < r.other_count; i++) {
        if (strcmp(r.other[i].shape, r.shape[shape].name) == 0 && n++ == index) {
            *name = r.other[i].name;
            *us = r.other[i].us;
            *why = r.other[i].reason;
            return true;
        }
    }
    return false;
}

static const char *word(sx_trial_verdict verdict)
{
    return verdict == SX_TRIAL_PASSED ? "yes" : verdict == SX_TRIAL_FAILED ? "NO" : "-";
}

static void put_row(sx_ctx *cx, uint32_t i)
{
    const sx_trial_row *row = &r.row[i];
    sx_bench_work work = {0};
    const char *name, *why;
    double us;
    (void)sx_bench_shape_work(cx, &r.shape[i], &work);
    printf("| %s | %s | %s | %s | %s | ", r.shape[i].name,
           r.broken[i] ? "FAILED" : word(row->right), word(row->exact), word(row->again),
           word(row->rows));
    if (row->ours_us > 0) {
        printf("%.2f | %.2f | %.1f | %.0f |", row->ours_us, row->predicted_us,
               work.flops / row->ours_us / 1e6, work.bytes / row->ours_us / 1e3);
    } else {
        printf("- | %.2f | - | - |", row->predicted_us);
    }
    for (uint32_t p = 0; peer_at(i, p, &name, &us, &why); p++) {
        if (us > 0 && row->ours_us > 0) {
            printf(" %s %.2f (%.3f)", name, us, us / row->ours_us);
        }
    }
    printf(" |\n");
}

static void json_text(const char *text)
{
    (void)fputc('"', r.out);
    for (const char *p = text; *p != '\0'; p++) {
        (void)fputc(*p == '"' || *p == '\\' || (unsigned char)*p < ' ' ? '\'' : *p, r.out);
    }
    (void)fputc('"', r.out);
}

static void json_row(uint32_t i)
{
    const sx_trial_row *row = &r.row[i];
    const char *name, *why;
    double us;
    (void)fprintf(r.out, "{\"schema\": \"symplex-device 1\", \"device\": ");
    json_text(r.device);
    (void)fprintf(r.out,
                  ", \"driver\": %u, \"shape\": \"%s\", \"failed\": %s, \"right\": \"%s\", "
                  "\"exact\": \"%s\", \"again\": \"%s\", \"rows\": \"%s\", \"results\": %llu, "
                  "\"us\": %.6g, \"predicted_us\": %.6g, \"why\": ",
                  r.driver, r.shape[i].name, r.broken[i] ? "true" : "false", word(row->right),
                  word(row->exact), word(row->again), word(row->rows),
                  (unsigned long long)row->results, row->ours_us, row->predicted_us);
    json_text(row->why);
    (void)fprintf(r.out, ", \"peers\": [");
    for (uint32_t p = 0; peer_at(i, p, &name, &us, &why); p++) {
        (void)fprintf(r.out, "%s{\"name\": \"%s\", ", p > 0 ? ", " : "", name);
        if (us > 0) {
            (void)fprintf(r.out, "\"us\": %.6g, \"ratio\": %.6g}", us,
                          row->ours_us > 0 ? us / row->ours_us : 0);
        } else {
            (void)fprintf(r.out, "\"skipped\": ");
            json_text(why);
            (void)fputc('}', r.out);
        }
    }
    (void)fprintf(r.out, "]}\n");
}

/* ---- ratios ---- */

static const char *const groups[] = {"the suite", "1 row",          "2 to 64 rows",
                                     "more rows", "softmax, norms", "attention"};

static bool is_in(uint32_t shape, uint32_t group)
{
    double rows = 0;
    bool product = sscanf(r.shape[shape].operation, "gemm:%lf", &rows) == 1;
    switch (group) {
    case 0: return r.count > SX_BENCH_SUITE_COUNT && shape < SX_BENCH_SUITE_COUNT;
    case 1: return product && rows == 1;
    case 2: return product && rows > 1 && rows <= 64;
    case 3: return product && rows > 64;
    case 4: return !product && strncmp(r.shape[shape].operation, "attention", 9) != 0;
    default: return strncmp(r.shape[shape].operation, "attention", 9) == 0;
    }
}

/* Names of all peers that were measured or skipped. */
static uint32_t peer_names(const char **names)
{
    uint32_t count = 0;
    const char *name, *why;
    double us;
    for (uint32_t i = 0; i < r.count; i++) {
        for (uint32_t p = 0; r.ran[i] && peer_at(i, p, &name, &us, &why); p++) {
            uint32_t k = 0;
            while (k < count && strcmp(names[k], name) != 0) {
                k++;
            }
            if (k == count && count < NAMES_MAX) {
                names[count++] = name;
            }
        }
    }
    return count;
}

static void put_ratios(void)
{
    const char *names[NAMES_MAX], *name, *why;
    uint32_t count = peer_names(names);
    double us;
    printf("\ntimes of peers over ours, geometric mean (least), of so many shapes; skipped is not "
           "passed\n\n"
           "| peer | group | ratio | least | shapes | skipped |\n|---|---|---|---|---|---|\n");
    for (uint32_t k = 0; k < count; k++) {
        for (uint32_t g = 0; g < SX_COUNT(groups); g++) {
            double sum = 0, least = HUGE_VAL;
            uint32_t measured = 0, skipped = 0;
            for (uint32_t i = 0; i < r.count; i++) {
                for (uint32_t p = 0; r.ran[i] && is_in(i, g) && peer_at(i, p, &name, &us, &why);
                     p++) {
                    bool mine = strcmp(name, names[k]) == 0;
                    bool both = mine && us > 0 && r.row[i].ours_us > 0;
                    sum += both ? log(us / r.row[i].ours_us) : 0;
                    least = both ? fmin(least, us / r.row[i].ours_us) : least;
                    measured += both;
                    skipped += mine && !both;
                }
            }
            if (measured > 0) {
                printf("| %s | %s | %.3f | %.3f | %u | %u |\n", names[k], groups[g],
                       exp(sum / measured), least, measured, skipped);
            } else if (skipped > 0) {
                printf("| %s | %s | - | - | 0 | %u |\n", names[k], groups[g], skipped);
            }
        }
    }
}

/* ---- the whole ---- */

static void run_all(sx_ctx *cx, sx_session *s)
{
    printf("| shape | right | exact | again | rows | us | predicted us | TFLOP/s | GB/s | peers: "
           "us (over ours) |\n"
           "|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < r.count; i++) {
        char path[4096];
        if (r.prefix != NULL && strncmp(r.shape[i].name, r.prefix, strlen(r.prefix)) != 0) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/%s.sxm", r.modules, r.shape[i].name);
        sx_code code = sx_trial_run(s, &r.trial, &r.shape[i], path, &r.row[i]);
        r.ran[i] = true;
        r.broken[i] = code != SX_OK;
        if (code != SX_OK) {
            (void)snprintf(r.row[i].why, sizeof(r.row[i].why), "%.230s", cx->error.text);
            sx_ctx_reset_error(cx);
        }
        const sx_trial_row *row = &r.row[i];
        bool failed = r.broken[i] || row->right == SX_TRIAL_FAILED ||
                      row->exact == SX_TRIAL_FAILED || row->again == SX_TRIAL_FAILED ||
                      row->rows == SX_TRIAL_FAILED;
        r.failures += failed;
        put_row(cx, i);
        if (failed) {
            (void)fprintf(stderr, "%s: %s\n", r.shape[i].name, row->why);
        }
        if (r.out != NULL) {
            json_row(i);
        }
        (void)fflush(stdout);
    }
}

static sx_code run(sx_ctx *cx)
{
    sx_session s;
    SX_TRY(sx_bench_shapes_read(cx, r.shapes, r.shape, &r.count));
    SX_TRY(r.peers != NULL ? read_peers(cx) : SX_OK);
    r.trial.seconds = r.count > 0 ? r.seconds / r.count : 0;
    sx_code code = sx_session_open(cx, &s);
    if (code == SX_OK) {
        const sxg_info *info = sxg_info_of(s.gpu);
        int khz = 0;
        (void)s.gpu->driver.device_attribute(&khz, 13,
                                             info->ordinal); /* CLOCK_RATE, of the cores */
        (void)snprintf(r.device, sizeof(r.device), "%s", info->name);
        r.driver = info->driver;
        printf("device: %s, %u multiprocessors, clock up to %d MHz, L2 %lld KiB, driver of CUDA "
               "%u.%u\n",
               info->name, info->processors, khz / 1000, (long long)s.l2_bytes / 1024,
               info->driver / 1000, info->driver % 1000 / 10);
        for (uint32_t p = 0; p < SX_PEER_COUNT && !r.trial.check_only; p++) {
            printf("%s: %s\n", sx_peer_name((sx_peer_kind)p),
                   s.peer[p] != NULL ? "measured" : s.without[p]);
        }
        printf("\n");
        run_all(cx, &s);
    }
    sx_session_close(&s);
    return code;
}

static void read_options(int argc, char **argv)
{
    static const struct option longs[] = {{"shapes", required_argument, NULL, 's'},
                                          {"modules", required_argument, NULL, 'm'},
                                          {"shape", required_argument, NULL, 'p'},
                                          {"check", no_argument, NULL, 'c'},
                                          {"all", no_argument, NULL, 'a'},
                                          {"seconds", required_argument, NULL, 'n'},
                                          {"peers", required_argument, NULL, 'o'},
                                          {"json", required_argument, NULL, 'j'},
                                          {NULL, 0, NULL, 0}};
    int choice;
    r.seconds = 120;
    while ((choice = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (choice) {
        case 's': r.shapes = optarg; break;
        case 'm': r.modules = optarg; break;
        case 'p': r.prefix = optarg; break;
        case 'c': r.trial.check_only = true; break;
        case 'a': r.trial.all_results = true; break;
        case 'n': r.seconds = strtod(optarg, NULL); break;
        case 'o': r.peers = optarg; break;
        case 'j': r.json = optarg; break;
        default: exit(2);
        }
    }
    if (r.shapes == NULL || r.modules == NULL || optind != argc) {
        (void)fprintf(stderr,
                      "usage: sx-device --shapes FILE --modules FOLDER [--shape PREFIX] [--check] "
                      "[--all] [--seconds N] [--peers FILE] [--json FILE]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    sx_ctx cx;
    uint32_t ran = 0;
    read_options(argc, argv);
    if (r.json != NULL && (r.out = fopen(r.json, "w")) == NULL) {
        (void)fprintf(stderr, "sx-device: %s cannot be written\n", r.json);
        return 2;
    }
    sx_ctx_init(&cx, (size_t)1 << 30);
    cx.fuel = UINT64_MAX;
    sx_code code = run(&cx);
    if (code != SX_OK) {
        (void)fprintf(stderr, "sx-device: %s\n", cx.error.text);
    }
    for (uint32_t i = 0; i < r.count; i++) {
        ran += r.ran[i];
    }
    if (code == SX_OK && !r.trial.check_only) {
        put_ratios();
    }
    if (code == SX_OK) {
        printf("\n%u shapes ran, %u failed\n", ran, r.failures);
    }
    sx_ctx_fini(&cx);
    if (r.out != NULL) {
        (void)fclose(r.out);
    }
    return code != SX_OK ? sx_code_exit(code) : r.failures > 0 || ran == 0;
}
