/* bench_compile.c - cold latency of the compiler by stage. */
#include <stdio.h>
#include <string.h>

#include "core/core.h"
#include "tests/bench/bench.h"
#include "tests/lib/model.h"

static uint64_t clock_ns(void *self)
{
    (void)self;
    return sx_bench_now_ns();
}

static int measure(const sx_bench_options *options, const char *model, int64_t batch)
{
    double total[256], stage[SX_STAGE_MAX][256];
    uint32_t rounds = options->rounds < 256 ? options->rounds : 256, stages = 0;
    const char *name[SX_STAGE_MAX] = {NULL};
    char label[64];
    (void)snprintf(label, sizeof(label), "%s-batch%lld", model, (long long)batch);
    if (!sx_bench_wants(options, label)) {
        return 0;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)2 << 30);
        sx_buf text;
        sx_buf_init(&text, SX_TEXT_BYTES_MAX);
        sx_image image;
        sx_image_init(&image);
        sx_code code = sx_test_model_text(&cx, model, &text);
        sx_binding binding = {SX_SPAN_LITERAL("batch"), batch};
        sx_core_request request = {.ir = sx_buf_span(&text),
                                   .target = SX_SPAN_LITERAL("x86-64-v4"),
                                   .binding = &binding,
                                   .binding_count = 1};
        cx.now_ns = clock_ns;
        uint64_t start = sx_bench_now_ns();
        code = code == SX_OK ? sx_core_compile(&cx, &request, &image) : code;
        total[round] = (double)(sx_bench_now_ns() - start) / 1e6;
        if (code != SX_OK) {
            (void)fprintf(stderr, "symplex-bench: %s: %s\n", model, cx.error.text);
            return sx_code_exit(code);
        }
        stages = cx.stage_count;
        for (uint32_t s = 0; s < stages; s++) {
            name[s] = cx.stage[s].name;
            stage[s][round] = (double)cx.stage[s].elapsed_ns / 1e6;
        }
        sx_image_fini(&image);
        sx_buf_fini(&text);
        sx_ctx_fini(&cx);
    }
    sx_bench_put(options, &(sx_bench_row){"compile", label, "total", sx_bench_median(total, rounds),
                                          "ms", NULL, 0});
    for (uint32_t s = 0; s < stages; s++) {
        sx_bench_put(options, &(sx_bench_row){"compile", label, name[s],
                                              sx_bench_median(stage[s], rounds), "ms", NULL, 0});
    }
    return 0;
}

int sx_bench_compile(const sx_bench_options *options)
{
    int status = measure(options, "mlp", 8);
    status = status == 0 ? measure(options, "encoder", 8) : status;
    return status == 0 ? measure(options, "encoder", 64) : status;
}
