/* bench_torch.c - torch.compile with symplex as its back end against its default, Inductor, each in a process of its
 * own that takes turns with the other: what a call of a tiny function costs, and models of tests/frameworks. It needs
 * what deploy/install-deps.sh frameworks installs; Inductor calls the system's C++ compiler. */
#include "tests/bench/bench.h"

#include <stdio.h>

#include "tests/bench/peer.h"

#define ROUNDS_DEFAULT 9
#define ROUNDS_MAX 1000

typedef struct {
    const char *name;
    uint32_t calls; /* of one answer, as peer_torch.py has it */
} torch_case;
static const torch_case cases[] = {{"call", 2000}, {"block", 4}, {"resnet", 4}, {"bert", 2},
                                   {"gpt2", 2},    {"llama", 4}, {"vit", 2},    {"unet", 4}};

static bool start(sx_bench_peer *peer, const char *backend, const char *name, uint32_t threads)
{
    char script[] = SX_SOURCE_DIR "/tests/bench/peer_torch.py";
    char python[] = SX_SOURCE_DIR "/tests/tools/frameworks.sh";
    char folder[] = SX_BINARY_DIR "/python";
    char words[3][32];
    (void)snprintf(words[0], sizeof(words[0]), "%s", backend);
    (void)snprintf(words[1], sizeof(words[1]), "%s", name);
    (void)snprintf(words[2], sizeof(words[2]), "%u", threads);
    return sx_bench_peer_start(
        peer, (char *[]){python, script, words[0], words[1], words[2], folder, NULL});
}

static int measure(const sx_bench_options *options, const torch_case *c, uint32_t rounds)
{
    static const char *const backend[2] = {"symplex", "inductor"};
    uint32_t threads = options->threads > 0 ? options->threads : 1;
    sx_bench_peer peer[2];
    double sample[2][ROUNDS_MAX];
    bool good = true;
    for (int side = 0; side < 2; side++) {
        good = start(&peer[side], backend[side], c->name, threads) && good;
    }
    for (uint32_t r = 0; good && r < rounds; r++) {
        for (int side = 0; good && side < 2; side++) {
            sample[side][r] = sx_bench_peer_run_ns(&peer[side]) / c->calls / 1e3;
            good = sample[side][r] > 0;
        }
    }
    if (good) {
        sx_bench_put(options, &(sx_bench_row){.bench = "torch",
                                              .case_name = c->name,
                                              .metric = "run",
                                              .value = sx_bench_median(sample[0], rounds),
                                              .unit = "us",
                                              .peer = peer[1].name,
                                              .peer_value = sx_bench_median(sample[1], rounds)});
    } else {
        (void)fprintf(stderr, "symplex-bench torch: case %s does not run\n", c->name);
    }
    sx_bench_peer_stop(
        &peer[1]); /* it was started later, and holds the other's end of the pipe open */
    sx_bench_peer_stop(&peer[0]);
    return good ? 0 : 1;
}

int sx_bench_torch(const sx_bench_options *options)
{
    uint32_t rounds = options->rounds > 0 ? options->rounds : ROUNDS_DEFAULT;
    int status = 0;
    for (uint32_t i = 0; i < SX_COUNT(cases) && status == 0; i++) {
        status = sx_bench_wants(options, cases[i].name)
                     ? measure(options, &cases[i], rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX)
                     : 0;
    }
    return status;
}
