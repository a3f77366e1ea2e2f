#include "tests/bench/run.h"

#include "tests/bench/bench.h"
#include "tests/lib/compiled.h"

#define WARM_RUNS 3u

sx_code sx_bench_open(sx_ctx *cx, sx_span bytes, uint32_t threads, sxr_program **program)
{
    sxr_options open = {.threads = threads};
    SX_TRY(sxr_open_bytes(cx, bytes, &open, program));
    const sx_module *module = sxr_module(*program);
    for (uint32_t t = 0; t < module->tensor_count; t++) {
        uint32_t place = module->tensor[t].place;
        if (place != SX_TENSOR_INPUT && place != SX_TENSOR_OUTPUT && place != SX_TENSOR_WEIGHT) {
            continue;
        }
        uint64_t size = module->tensor[t].size;
        void *memory = sx_alloc(cx, (size_t)size);
        if (memory == NULL) {
            return cx->error.code;
        }
        sx_test_fill(module, t, SX_FILL_SMOOTH, memory);
        float *element = memory;
        for (uint64_t i = 0; place == SX_TENSOR_WEIGHT && i < size / sizeof(float); i++) {
            element[i] /= 16;
        }
        SX_TRY(sxr_bind(cx, *program, t, memory, size));
    }
    for (uint32_t i = 0; i < WARM_RUNS; i++) {
        SX_TRY(sxr_run(cx, *program, NULL));
    }
    return SX_OK;
}

double sx_bench_least_ns(sx_ctx *cx, sxr_program *program)
{
    double best = 1e18;
    for (uint32_t i = 0; i < SX_BENCH_RUNS_PER_ROUND; i++) {
        uint64_t start = sx_bench_now_ns();
        if (sxr_run(cx, program, NULL) != SX_OK) {
            return -1;
        }
        double elapsed = (double)(sx_bench_now_ns() - start);
        best = elapsed < best ? elapsed : best;
    }
    return best;
}

double sx_bench_peer_least_ns(sx_bench_peer *peer)
{
    double best = 1e18;
    for (uint32_t i = 0; i < SX_BENCH_RUNS_PER_ROUND; i++) {
        double elapsed = sx_bench_peer_run_ns(peer);
        best = elapsed < best ? elapsed : best;
    }
    return best;
}
