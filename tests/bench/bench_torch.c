/* bench_torch.c - frameworks with symplex as their compiler against their own: torch.compile against Inductor,
 * symplex.jax.jit against jax.jit; each in a process of its own that takes turns with the other. What a call of a tiny
 * function costs, models, and the first calls of models of tests/frameworks, each in a new process, with empty caches
 * or with filled ones. PyTorch is what deploy/install-deps.sh frameworks installs; Inductor calls the system's C++
 * compiler. `first` is such a first call without a framework, its module at a daemon: of a traced function beside
 * jax.jit with JAX's own cache, and of an ONNX model beside a session of onnxruntime. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/peer.h"
#include "tests/bench/server.h"

#define ROUNDS_DEFAULT 9
#define ROUNDS_MAX 1000

typedef struct {
    const char *name;
    uint32_t calls; /* of one answer, as the script has it */
    const char *metric;
    uint32_t rounds;  /* 0: as always */
    const char *peer; /* NULL: the compiler of the framework */
} framework_case;
typedef struct {
    const char *name; /* of the bench */
    char *python, *script;
    const char *own; /* compiler of the framework */
} framework;

static const framework_case torch_cases[] = {
    {"call", 2000, "run", 0, NULL}, {"block", 4, "run", 0, NULL}, {"resnet", 4, "run", 0, NULL},
    {"bert", 2, "run", 0, NULL},    {"gpt2", 2, "run", 0, NULL},  {"llama", 4, "run", 0, NULL},
    {"vit", 2, "run", 0, NULL},     {"unet", 4, "run", 0, NULL}};
/* A case of each for each model, "cold-bert". `bound` is symplex with parameters bound once beside itself with
 * parameters as arguments of each call; `dynamo` is what symplex adds to Dynamo's own time in a warm first call, beside
 * that time. */
static const framework_case torch_kinds[] = {
    {"infer", 1, "run", 0, NULL},       {"bound", 1, "run", 0, "unbound"},
    {"train", 1, "run", 0, NULL},       {"cold", 1, "first-call", 1, NULL},
    {"warm", 1, "first-call", 3, NULL}, {"dynamo", 1, "added", 3, "dynamo"}};
static const char *const torch_models[] = {"resnet50", "vit",  "bert", "gpt2",
                                           "llama",    "lstm", "unet"};
/* `floor` is `call` beside a custom call that does nothing, instead of jax.jit. */
static const framework_case jax_cases[] = {
    {"call", 2000, "run", 0, NULL}, {"floor", 2000, "run", 0, "nothing"},
    {"block", 4, "run", 0, NULL},   {"bert", 2, "run", 0, NULL},
    {"gpt2", 2, "run", 0, NULL},    {"resnet", 4, "run", 0, NULL},
    {"bits", 4, "run", 0, NULL},    {"dropout", 4, "run", 0, NULL}};
static const framework_case first_cases[] = {{"jit", 1, "first-call", 0, "jax"},
                                             {"onnx", 1, "first-call", 0, "onnxruntime"}};

static bool start(sx_bench_peer *peer, const framework *f, const char *compiler, const char *name,
                  uint32_t threads)
{
    char folder[] = SX_BINARY_DIR "/python";
    char words[3][32];
    (void)snprintf(words[0], sizeof(words[0]), "%s", compiler);
    (void)snprintf(words[1], sizeof(words[1]), "%s", name);
    (void)snprintf(words[2], sizeof(words[2]), "%u", threads);
    return sx_bench_peer_start(
        peer, (char *[]){f->python, f->script, words[0], words[1], words[2], folder, NULL});
}

static int measure(const sx_bench_options *options, const framework *f, const framework_case *c,
                   uint32_t rounds)
{
    const char *const compiler[2] = {"symplex", c->peer != NULL ? c->peer : f->own};
    uint32_t threads = options->threads > 0 ? options->threads : 1;
    sx_bench_peer peer[2];
    double sample[2][ROUNDS_MAX];
    bool good = true;
    for (int side = 0; side < 2; side++) {
        good = start(&peer[side], f, compiler[side], c->name, threads) && good;
    }
    for (uint32_t r = 0; good && r < rounds; r++) {
        for (int side = 0; good && side < 2; side++) {
            sample[side][r] = sx_bench_peer_run_ns(&peer[side]) / c->calls / 1e3;
            good = sample[side][r] > 0;
        }
    }
    if (good) {
        sx_bench_put(options, &(sx_bench_row){.bench = f->name,
                                              .case_name = c->name,
                                              .metric = c->metric,
                                              .value = sx_bench_median(sample[0], rounds),
                                              .unit = "us",
                                              .peer = peer[1].name,
                                              .peer_value = sx_bench_median(sample[1], rounds)});
    } else {
        (void)fprintf(stderr, "symplex-bench %s: case %s does not run\n", f->name, c->name);
    }
    sx_bench_peer_stop(
        &peer[1]); /* it was started later, and holds the other's end of the pipe open */
    sx_bench_peer_stop(&peer[0]);
    return good ? 0 : 1;
}

static int measure_wanted(const sx_bench_options *options, const framework *f,
                          const framework_case *c)
{
    uint32_t usual = c->rounds > 0 ? c->rounds : ROUNDS_DEFAULT;
    uint32_t rounds = options->rounds > 0 ? options->rounds : usual;
    return sx_bench_wants(options, c->name)
               ? measure(options, f, c, rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX)
               : 0;
}

int sx_bench_torch(const sx_bench_options *options)
{
    static char script[] = SX_SOURCE_DIR "/tests/bench/peer_torch.py";
    static char python[] = SX_SOURCE_DIR "/tests/tools/frameworks.sh";
    const framework torch = {"torch", python, script, "inductor"};
    int status = 0;
    for (uint32_t i = 0; i < SX_COUNT(torch_cases); i++) {
        status |= measure_wanted(options, &torch, &torch_cases[i]);
    }
    for (uint32_t i = 0; i < SX_COUNT(torch_kinds); i++) {
        for (uint32_t m = 0; m < SX_COUNT(torch_models); m++) {
            char name[64];
            framework_case c = torch_kinds[i];
            (void)snprintf(name, sizeof(name), "%s-%s", c.name, torch_models[m]);
            c.name = name;
            status |= measure_wanted(options, &torch, &c);
        }
    }
    return status;
}

int sx_bench_jax(const sx_bench_options *options)
{
    static char script[] = SX_SOURCE_DIR "/tests/bench/peer_jax.py";
    static char python[] = SX_SOURCE_DIR "/tests/tools/python.sh";
    const framework jax = {"jax", python, script, "xla"};
    int status = 0;
    for (uint32_t i = 0; i < SX_COUNT(jax_cases); i++) {
        status |= measure_wanted(options, &jax, &jax_cases[i]);
    }
    return status;
}

int sx_bench_first(const sx_bench_options *options)
{
    static char script[] = SX_SOURCE_DIR "/tests/bench/peer_first.py";
    static char python[] = SX_SOURCE_DIR "/tests/tools/python.sh";
    const framework first = {"first", python, script, NULL};
    sx_bench_server server;
    if (!sx_bench_wants(options, first_cases[0].name) &&
        !sx_bench_wants(options, first_cases[1].name)) {
        return 0;
    }
    if (!sx_bench_server_start("first", "symplexd", &server)) {
        return 1;
    }
    int status = setenv("SYMPLEX_SOCKET", server.socket, 1);
    for (uint32_t i = 0; status == 0 && i < SX_COUNT(first_cases); i++) {
        status |= measure_wanted(options, &first, &first_cases[i]);
    }
    sx_bench_server_stop(&server);
    return status;
}
