/* bench_encoder.c - the encoder block, one run at batch 8 and others, against another engine in the same run:
 * the two take turns, each running alone, with the same number of threads. */
#include <stdio.h>
#include <stdlib.h>

#include "client/runtime/cpu.h"
#include "tests/bench/bench.h"
#include "tests/bench/peer.h"
#include "tests/lib/model.h"

#define WARM_RUNS 3u
#define RUNS_PER_ROUND 5u

/* Least time of a few runs: what the engine can do when nobody else holds the core. */
static double our_run_ns(sx_ctx *cx, sxr_program *program, uint64_t *launch_ns, double *best_launch)
{
    double best = 1e18;
    uint64_t launches = sxr_module(program)->launch_count;
    for (uint32_t i = 0; i < RUNS_PER_ROUND; i++) {
        uint64_t start = sx_bench_now_ns();
        if (sxr_run(cx, program, NULL) != SX_OK) {
            return -1;
        }
        double elapsed = (double)(sx_bench_now_ns() - start);
        best = elapsed < best ? elapsed : best;
    }
    (void)sxr_run(cx, program, launch_ns);
    for (uint64_t k = 0; k < launches; k++) {
        double ns = (double)launch_ns[k];
        best_launch[k] = best_launch[k] == 0 || ns < best_launch[k] ? ns : best_launch[k];
    }
    return best;
}

static void put_kernels(const sx_bench_options *options, const char *name, const sx_module *module,
                        const double *best_launch)
{
    for (uint64_t k = 0; k < module->launch_count; k++) {
        const sx_module_kernel *kernel = &module->kernel[module->launch[k].kernel];
        if (module->launch[k].prologue) {
            continue;
        }
        char text[64];
        (void)snprintf(text, sizeof(text), "%.*s", (int)kernel->name.size,
                       module->strings + kernel->name.offset);
        sx_bench_put(options,
                     &(sx_bench_row){"encoder", name, text, best_launch[k] / 1e3, "us",
                                     "floor, operands in memory",
                                     kernel->floor_ns > 0 ? kernel->floor_ns / 1e3 : 1e-3});
    }
}

static int measure(const sx_bench_options *options, const char *name, int64_t batch,
                   const char *target)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)2 << 30);
    sx_buf module;
    sx_buf_init(&module, (size_t)1 << 30);
    sxr_program *program = NULL;
    sxr_options open = {.threads = options->threads};
    sx_code code = sx_test_model_compile(&cx, "encoder", target, batch, &module);
    code = code == SX_OK ? sxr_open_bytes(&cx, sx_buf_span(&module), &open, &program) : code;
    code = code == SX_OK ? sx_test_model_bind(&cx, "encoder", program, 7) : code;
    for (uint32_t i = 0; code == SX_OK && i < WARM_RUNS; i++) {
        code = sxr_run(&cx, program, NULL);
    }
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench: %s\n", cx.error.text);
        return sx_code_exit(code);
    }
    sx_bench_peer other = {0};
    char batch_text[32], threads_text[32];
    (void)snprintf(batch_text, sizeof(batch_text), "%lld", (long long)batch);
    (void)snprintf(threads_text, sizeof(threads_text), "%u", sxr_threads(program));
    char script[] = SX_SOURCE_DIR "/tests/bench/peer_encoder.py";
    char onnx[] = SX_SOURCE_DIR "/tests/models/encoder.onnx";
    char python[] = SX_SOURCE_DIR "/tests/tools/python.sh";
    char *argument[] = {python, script, onnx, batch_text, threads_text, NULL};
    bool has_peer = sx_bench_peer_start(&other, argument);
    double *ours = calloc(options->rounds, sizeof(double)),
           *theirs = calloc(options->rounds, sizeof(double));
    uint64_t *launch_ns = calloc(sxr_module(program)->launch_count, sizeof(uint64_t));
    double *best_launch = calloc(sxr_module(program)->launch_count, sizeof(double));
    SX_ASSERT(ours != NULL && theirs != NULL && launch_ns != NULL && best_launch != NULL);
    for (uint32_t round = 0; round < options->rounds; round++) {
        ours[round] = our_run_ns(&cx, program, launch_ns, best_launch);
        theirs[round] = 1e18;
        for (uint32_t i = 0; has_peer && i < RUNS_PER_ROUND; i++) {
            double ns = sx_bench_peer_run_ns(&other);
            theirs[round] = ns < theirs[round] ? ns : theirs[round];
        }
    }
    double mine = sx_bench_median(ours, options->rounds) / 1e3;
    double flops = sxr_module(program)->info->flops;
    sx_bench_put(options,
                 &(sx_bench_row){"encoder", name, "run", mine, "us", has_peer ? other.name : NULL,
                                 has_peer ? sx_bench_median(theirs, options->rounds) / 1e3 : 0});
    sx_bench_put(options,
                 &(sx_bench_row){"encoder", name, "rate", flops / mine / 1e3, "GFLOP/s", NULL, 0});
    sx_bench_put(options, &(sx_bench_row){"encoder", name, "estimate", mine, "us", "our model",
                                          sxr_module(program)->info->cost_ns / 1e3});
    put_kernels(options, name, sxr_module(program), best_launch);
    sx_bench_peer_stop(&other);
    free(ours), free(theirs), free(launch_ns), free(best_launch);
    sxr_close(program);
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
    return 0;
}

int sx_bench_encoder(const sx_bench_options *options)
{
    static const struct {
        const char *name;
        int64_t batch;
        const char *target;
    } cases[] = {{"batch8", 8, "x86-64-v4"},
                 {"batch8-avx2", 8, "x86-64-v3"},
                 {"batch1", 1, "x86-64-v4"},
                 {"batch1-avx2", 1, "x86-64-v3"},
                 {"batch64", 64, "x86-64-v4"}};
    for (uint32_t i = 0; i < SX_COUNT(cases); i++) {
        const sx_machine *target = sx_machine_find(NULL, cases[i].target);
        if (!sx_bench_wants(options, cases[i].name) || !sxr_cpu_executes(target)) {
            continue;
        }
        int status = measure(options, cases[i].name, cases[i].batch, cases[i].target);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}
