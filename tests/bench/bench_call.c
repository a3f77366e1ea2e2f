/* bench_call.c - what a run of a tiny module costs a caller of the library: all memory in one call, against a call for
 * each tensor and one for the run, in the same rounds. The kernel is a softmax of 4 rows of 8, some tens of
 * nanoseconds, so that the figures are those of the calls. The case "python" is the same from Python, with a new NumPy
 * array for each result, against the one call in C; "jit" and "jit-dict" through a traced function. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "client/symplex.h"
#include "tests/bench/peer.h"

#define CALLS 20000 /* of one round and way */
#define ROUNDS_DEFAULT 15
#define ROUNDS_MAX 1000

static const char text[] = "sx 1\n"
                           "graph \"softmax\" {\n"
                           "    %x = parameter {name = \"x\", weight = 0} : f32[4, 8]\n"
                           "    %y = softmax(%x) {axis = 1} : f32[4, 8]\n"
                           "    return %y as \"y\"\n"
                           "}\n";

static symplex_module *open_module(uint32_t threads, symplex_error *error)
{
    symplex_options options = {.daemon = SYMPLEX_DAEMON_NEVER};
    symplex_program program = {.bytes = text, .size = sizeof(text) - 1};
    symplex_client *client = NULL;
    symplex_module *module = NULL;
    void *bytes = NULL;
    size_t size;
    if (symplex_open(&options, &client, error) == SYMPLEX_OK &&
        symplex_compile(client, &program, &bytes, &size, NULL, error) == SYMPLEX_OK) {
        (void)symplex_module_open(bytes, size, threads, &module, error);
    }
    symplex_free(bytes);
    symplex_close(client);
    return module;
}

/* Nanoseconds of a call, of so many one after the other; negative: one failed. */
static double time_calls(symplex_module *module, const symplex_memory *memory, size_t count,
                         bool together, symplex_error *error)
{
    bool good = true;
    uint64_t start = sx_bench_now_ns();
    for (uint32_t i = 0; i < CALLS; i++) {
        if (together) {
            good &= symplex_module_call(module, NULL, 0, memory, count, error) == SYMPLEX_OK;
            continue;
        }
        for (size_t k = 0; k < count; k++) {
            const symplex_memory *m = &memory[k];
            good &= symplex_module_bind(module, m->index, m->memory, m->size, error) == SYMPLEX_OK;
        }
        good &= symplex_module_run(module, error) == SYMPLEX_OK;
    }
    return good ? (double)(sx_bench_now_ns() - start) / CALLS : -1;
}

/* The module with memory for one call; NULL with a message. */
static symplex_module *prepare(uint32_t threads, float x[32], float y[32], symplex_memory memory[2])
{
    symplex_error error = {.text = ""};
    symplex_module *module = open_module(threads, &error);
    if (module == NULL) {
        (void)fprintf(stderr, "symplex-bench call: %s\n", error.text);
        return NULL;
    }
    memory[0] = (symplex_memory){symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "x"), x,
                                 32 * sizeof(float)};
    memory[1] = (symplex_memory){symplex_module_find(module, SYMPLEX_OUTPUT_TENSOR, "y"), y,
                                 32 * sizeof(float)};
    return module;
}

static int bench_ways(const sx_bench_options *options, uint32_t rounds)
{
    static const char case_name[] = "softmax-4x8";
    static float x[32], y[32];
    double sample[2][ROUNDS_MAX];
    symplex_memory memory[2];
    symplex_error error = {.text = ""};
    if (!sx_bench_wants(options, case_name)) {
        return 0;
    }
    symplex_module *module = prepare(options->threads, x, y, memory);
    bool good = module != NULL;
    for (uint32_t r = 0; good && r < rounds; r++) {
        for (uint32_t way = 0; way < 2; way++) {
            sample[way][r] = time_calls(module, memory, 2, way == 0, &error);
            good = good && sample[way][r] >= 0;
        }
    }
    symplex_module_close(module);
    if (!good || y[0] != 0.125F) { /* of equal elements */
        (void)fprintf(stderr, "symplex-bench call: %s\n", error.text);
        return 1;
    }
    sx_bench_row row = {.bench = "call",
                        .case_name = case_name,
                        .metric = "run",
                        .value = sx_bench_median(sample[0], rounds),
                        .unit = "ns",
                        .peer = "a call for each tensor and one for the run",
                        .peer_value = sx_bench_median(sample[1], rounds)};
    sx_bench_put(options, &row);
    return 0;
}

/* `called`: what call_python.py calls. */
static int bench_python(const sx_bench_options *options, uint32_t rounds, const char *case_name,
                        char *called)
{
    static float x[32], y[32];
    char script[] = SX_SOURCE_DIR "/tests/bench/call_python.py";
    char python[] = SX_SOURCE_DIR "/tests/tools/python.sh";
    char folder[] = SX_BINARY_DIR "/python";
    char *argument[] = {python, script, folder, called, NULL};
    double sample[2][ROUNDS_MAX];
    symplex_memory memory[2];
    symplex_error error = {.text = ""};
    sx_bench_peer peer;
    if (!sx_bench_wants(options, case_name)) {
        return 0;
    }
    symplex_module *module = prepare(1, x, y, memory);
    bool started = sx_bench_peer_start(&peer, argument), good = module != NULL && started;
    for (uint32_t r = 0; good && r < rounds; r++) {
        sample[0][r] = sx_bench_peer_run_ns(&peer) / CALLS;
        sample[1][r] = time_calls(module, memory, 2, true, &error);
        good = sample[0][r] > 0 && sample[1][r] >= 0;
    }
    sx_bench_peer_stop(&peer);
    symplex_module_close(module);
    if (!good) {
        (void)fprintf(stderr, "symplex-bench call: the package for Python does not run: %s\n",
                      error.text);
        return 1;
    }
    sx_bench_row row = {.bench = "call",
                        .case_name = case_name,
                        .metric = "run",
                        .value = sx_bench_median(sample[0], rounds),
                        .unit = "ns",
                        .peer = "the same by the C library",
                        .peer_value = sx_bench_median(sample[1], rounds)};
    sx_bench_put(options, &row);
    return 0;
}

int sx_bench_call(const sx_bench_options *options)
{
    uint32_t rounds = options->rounds > 0 ? options->rounds : ROUNDS_DEFAULT;
    rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    int status = bench_ways(options, rounds);
    static char module[] = "module", jit[] = "jit", dict[] = "jit-dict";
    status = status != 0 ? status : bench_python(options, rounds, "python", module);
    status = status != 0 ? status : bench_python(options, rounds, "jit", jit);
    return status != 0 ? status : bench_python(options, rounds, "jit-dict", dict);
}
