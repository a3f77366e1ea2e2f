/* bench_compile.c - cold latency of the compiler, each network three times: as it is compiled and verified as
 * well, by stage, in this process, where neither a daemon nor a cache takes part; and as a client waits for it,
 * from a daemon that was just started and has nothing stored. */
#include <stdio.h>
#include <stdlib.h>

#include "client/runtime/cpu.h"
#include "client/symplex.h"
#include "client/verify/team.h"
#include "client/verify/verify.h"
#include "tests/bench/bench.h"
#include "tests/bench/networks.h"
#include "tests/bench/server.h"

#define ROUNDS_MAX 256u
#define CX_BYTES ((size_t)8 << 30)
#define MODULE_BYTES_MAX ((size_t)1 << 30)

typedef struct {
    double total[ROUNDS_MAX], stage[SX_STAGE_MAX][ROUNDS_MAX];
    const char *name[SX_STAGE_MAX];
    uint32_t rounds, stages;
} figures;

static uint64_t clock_ns(void *self)
{
    (void)self;
    return sx_bench_now_ns();
}

/* Compiles, and with `verified` verifies as daemon and client do. */
static sx_code compile(sx_ctx *cx, const sx_bench_options *options, const sx_core_request *request,
                       bool verified)
{
    sx_code code;
    if (verified) {
        sx_buf module;
        sx_buf_init(&module, MODULE_BYTES_MAX);
        sxr_verify_options verify = SXR_VERIFY_DEFAULT;
        verify.threads = options->threads;
        code = sxr_compile_verified(cx, request, &verify, &module);
        sx_buf_fini(&module);
    } else {
        sx_image image;
        sxv_team team;
        sx_image_init(&image);
        sxv_team_init(&team, options->threads);
        cx->team = &team.team;
        code = sx_core_compile(cx, request, &image);
        cx->team = NULL;
        sxv_team_fini(&team);
        sx_image_fini(&image);
    }
    return code;
}

static sx_code measure_round(sx_ctx *cx, const sx_bench_options *options,
                             const sx_bench_network *network, int64_t batch, bool verified,
                             figures *f)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_code code = sx_bench_network_text(cx, network, &text);
    sx_binding binding = {SX_SPAN_LITERAL("batch"), batch};
    sx_core_request request = {.ir = sx_buf_span(&text),
                               .target = SX_SPAN_LITERAL("x86-64-v4"),
                               .binding = &binding,
                               .binding_count = 1};
    cx->now_ns = clock_ns;
    uint64_t start = sx_bench_now_ns();
    code = code == SX_OK ? compile(cx, options, &request, verified) : code;
    f->total[f->rounds] = (double)(sx_bench_now_ns() - start) / 1e6;
    f->stages = cx->stage_count;
    for (uint32_t s = 0; s < f->stages; s++) {
        f->name[s] = cx->stage[s].name;
        f->stage[s][f->rounds] = (double)cx->stage[s].elapsed_ns / 1e6;
    }
    f->rounds++;
    sx_buf_fini(&text);
    return code;
}

static int measure(const sx_bench_options *options, const char *name, int64_t batch, bool verified)
{
    static figures f;
    char label[64];
    uint32_t rounds = options->rounds < ROUNDS_MAX ? options->rounds : ROUNDS_MAX;
    (void)snprintf(label, sizeof(label), "%s-batch%lld%s", name, (long long)batch,
                   verified ? "-verified" : "");
    /* Code that cannot run here is emulated in part: that takes another time. */
    if (!sx_bench_wants(options, label) || (verified && !sxr_cpu_executes(&sx_machine_x86_64_v4))) {
        return 0;
    }
    const sx_bench_network *network = sx_bench_network_find(name);
    SX_ASSERT(network != NULL);
    for (f.rounds = 0; f.rounds < rounds;) {
        sx_ctx cx;
        sx_ctx_init(&cx, CX_BYTES);
        sx_code code = measure_round(&cx, options, network, batch, verified, &f);
        if (code != SX_OK) {
            (void)fprintf(stderr, "symplex-bench: %s: %s\n", label, cx.error.text);
        }
        sx_ctx_fini(&cx);
        if (code != SX_OK) {
            return sx_code_exit(code);
        }
    }
    sx_bench_put(options, &(sx_bench_row){"compile", label, "total",
                                          sx_bench_median(f.total, rounds), "ms", NULL, 0});
    for (uint32_t s = 0; s < f.stages; s++) {
        double median = sx_bench_median(f.stage[s], rounds);
        sx_bench_put(options, &(sx_bench_row){"compile", label, f.name[s], median, "ms", NULL, 0});
    }
    return 0;
}

/* What a client waits for the module from a daemon with an empty cache: compiled and verified there. */
static bool ask(const sx_bench_server *server, sx_span text, int64_t batch, double *waited_ms)
{
    symplex_options options = {.socket = server->socket, .daemon = SYMPLEX_DAEMON_ONLY};
    symplex_dim dim = {"batch", batch};
    symplex_program program = {
        .bytes = text.ptr, .size = text.len, .target = "x86-64-v4", .dims = &dim, .dim_count = 1};
    symplex_client *client = NULL;
    symplex_error error = {0};
    void *bytes = NULL;
    size_t size = 0;
    uint64_t start = sx_bench_now_ns();
    symplex_code code = symplex_open(&options, &client, &error);
    if (code == SYMPLEX_OK) {
        code = symplex_compile(client, &program, &bytes, &size, NULL, &error);
    }
    *waited_ms = (double)(sx_bench_now_ns() - start) / 1e6;
    if (code != SYMPLEX_OK) {
        (void)fprintf(stderr, "symplex-bench: %s\n", error.text);
    }
    symplex_free(bytes);
    symplex_close(client);
    return code == SYMPLEX_OK;
}

static int measure_daemon(const sx_bench_options *options, const char *name, int64_t batch)
{
    static double waited[ROUNDS_MAX];
    char label[64];
    uint32_t rounds = options->rounds < ROUNDS_MAX ? options->rounds : ROUNDS_MAX;
    (void)snprintf(label, sizeof(label), "%s-batch%lld-daemon", name, (long long)batch);
    if (!sx_bench_wants(options, label) || !sxr_cpu_executes(&sx_machine_x86_64_v4)) {
        return 0;
    }
    sx_ctx cx;
    sx_buf text;
    sx_ctx_init(&cx, CX_BYTES);
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    bool done = sx_bench_network_text(&cx, sx_bench_network_find(name), &text) == SX_OK;
    for (uint32_t i = 0; done && i < rounds; i++) {
        sx_bench_server server;
        done = sx_bench_server_start("compile", "symplexd", &server);
        if (done) {
            done = ask(&server, sx_buf_span(&text), batch, &waited[i]);
            sx_bench_server_stop(&server);
        }
    }
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
    if (!done) {
        return EXIT_FAILURE;
    }
    sx_bench_put(options, &(sx_bench_row){"compile", label, "waited",
                                          sx_bench_median(waited, rounds), "ms", NULL, 0});
    return 0;
}

int sx_bench_compile(const sx_bench_options *options)
{
    static const struct {
        const char *network;
        int64_t batch;
    } cases[] = {{"mlp", 8},
                 {"encoder", 8},
                 {"encoder", 64},
                 {"encoder12", 8},
                 {"encoder_gradients", 8},
                 {"encoder12_gradients", 8},
                 {"encoder24_gradients", 8},
                 {"encoder12_step", 8},
                 {"resnet50", 1},
                 {"vit_b_16", 1},
                 {"gpt2_4", 1}};
    int status = 0;
    sxv_keep_memory(); /* as a worker of the daemon */
    for (uint32_t i = 0; i < 2 * SX_COUNT(cases) && status == 0; i++) {
        status = measure(options, cases[i / 2].network, cases[i / 2].batch, i % 2 == 1);
        if (status == 0 && i % 2 == 1) {
            status = measure_daemon(options, cases[i / 2].network, cases[i / 2].batch);
        }
    }
    return status;
}
