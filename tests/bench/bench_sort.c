/* bench_sort.c - rows in order and their indices, beside NumPy, which gets the same rows in the same rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/symplex.h"
#include "tests/bench/bench.h"
#include "tests/bench/peer.h"

#define ROUNDS_MAX 1000u
#define RUNS 5u /* of a round; the least counts */
#define CX_BYTES ((size_t)1 << 30)

typedef struct {
    const char *name;
    int64_t rows, length, count;
    bool indices;
} problem;
static const problem problems[] = {
    {"values-64x4096", 64, 4096, 4096, false},  {"indices-64x4096", 64, 4096, 4096, true},
    {"values-1024x256", 1024, 256, 256, false}, {"indices-1024x256", 1024, 256, 256, true},
    {"values-4x65536", 4, 65536, 65536, false}, {"top-64-of-64x4096", 64, 4096, 64, false},
};

static symplex_module *open_module(const problem *p, uint32_t threads, symplex_error *error)
{
    char text[1024];
    symplex_options options = {.daemon = SYMPLEX_DAEMON_NEVER};
    symplex_client *client = NULL;
    symplex_module *module = NULL;
    void *bytes = NULL;
    size_t size;
    int n = snprintf(text, sizeof(text),
                     "sx 1\ngraph \"sort\" {\n%%x = parameter {name = \"x\", weight = 0} : "
                     "f32[%lld, %lld]\n%%v, %%i = sort(%%x) {axis = 1, direction = %s, count = "
                     "%lld} : f32[%lld, %lld], i64[%lld, %lld]\nreturn %%%s as \"y\"\n}\n",
                     (long long)p->rows, (long long)p->length, p->count < p->length ? "gt" : "lt",
                     (long long)p->count, (long long)p->rows, (long long)p->count,
                     (long long)p->rows, (long long)p->count, p->indices ? "i" : "v");
    SX_ASSERT(n > 0 && (size_t)n < sizeof(text));
    symplex_program program = {.bytes = text, .size = (size_t)n};
    if (symplex_open(&options, &client, error) == SYMPLEX_OK &&
        symplex_compile(client, &program, &bytes, &size, NULL, error) == SYMPLEX_OK) {
        (void)symplex_module_open(bytes, size, threads, &module, error);
    }
    symplex_free(bytes);
    symplex_close(client);
    return module;
}

static bool bind(symplex_module *module, symplex_role role, const char *name, void *memory,
                 size_t bytes, symplex_error *error)
{
    size_t index = symplex_module_find(module, role, name);
    return index != SYMPLEX_NO_TENSOR &&
           symplex_module_bind(module, index, memory, bytes, error) == SYMPLEX_OK;
}

static double least_ns(symplex_module *module, symplex_error *error)
{
    double least = -1;
    for (uint32_t k = 0; k < RUNS; k++) {
        uint64_t start = sx_bench_now_ns();
        if (symplex_module_run(module, error) != SYMPLEX_OK) {
            return -1;
        }
        double ns = (double)(sx_bench_now_ns() - start);
        least = least < 0 || ns < least ? ns : least;
    }
    return least;
}

static bool is_measured(const sx_bench_options *options, const problem *p, symplex_module *module,
                        symplex_error *error)
{
    static double ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
    sx_bench_peer peer;
    const uint32_t rounds = options->rounds < ROUNDS_MAX ? options->rounds : ROUNDS_MAX;
    const int64_t argument[] = {p->rows, p->length, p->count, p->indices, options->threads};
    const bool has_peer =
        sx_bench_peer_start_script(&peer, "peer_sort.py", argument, SX_COUNT(argument));
    bool good = least_ns(module, error) >= 0;
    for (uint32_t r = 0; r < rounds && good; r++) {
        ours[r] = least_ns(module, error) / 1e3;
        theirs[r] = -1;
        for (uint32_t k = 0; k < RUNS && has_peer; k++) {
            double us = sx_bench_peer_run_ns(&peer) / 1e3;
            theirs[r] = theirs[r] < 0 || us < theirs[r] ? us : theirs[r];
        }
        good = ours[r] >= 0;
    }
    if (good) {
        sx_bench_put(options,
                     &(sx_bench_row){"sort", p->name, "time", sx_bench_median(ours, rounds), "us",
                                     has_peer ? peer.name : NULL,
                                     has_peer ? sx_bench_median(theirs, rounds) : 0});
    }
    sx_bench_peer_stop(&peer);
    return good;
}

static bool run_case(const sx_bench_options *options, const problem *p)
{
    symplex_error error = {0};
    const size_t in = (size_t)(p->rows * p->length), out = (size_t)(p->rows * p->count);
    float *x = malloc(in * sizeof(*x));
    void *y = malloc(out * 8);
    uint32_t state = 12345;
    for (size_t k = 0; k < in && x != NULL; k++) {
        state = state * 1664525u + 1013904223u;
        x[k] = (float)(state >> 8) / 16777216.0f;
    }
    symplex_module *module = open_module(p, options->threads, &error);
    bool good = x != NULL && y != NULL && module != NULL &&
                bind(module, SYMPLEX_INPUT_TENSOR, "x", x, in * sizeof(*x), &error) &&
                bind(module, SYMPLEX_OUTPUT_TENSOR, "y", y, out * (p->indices ? 8 : 4), &error) &&
                is_measured(options, p, module, &error);
    if (!good) {
        (void)fprintf(stderr, "symplex-bench sort: %s: %s\n", p->name, error.text);
    }
    symplex_module_close(module);
    free(x);
    free(y);
    return good;
}

int sx_bench_sort(const sx_bench_options *options)
{
    bool good = true;
    for (uint32_t k = 0; k < SX_COUNT(problems) && good; k++) {
        good = !sx_bench_wants(options, problems[k].name) || run_case(options, &problems[k]);
    }
    return good ? 0 : 1;
}
