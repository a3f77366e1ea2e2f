/* bench_attention.c - attention in steps, found to be one kernel, against the same program compiled without
 * the rule `online` and against another engine, in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "tests/bench/bench.h"
#include "tests/bench/run.h"
#include "tests/lib/attention_text.h"
#include "tests/lib/compiled.h"

#define HEADS 2 /* of the text; its batch makes the others */

typedef struct {
    const char *name;
    sx_attention_kind kind;
    int64_t batch, sequence, width;
    const char *target;
} problem;

static sxr_program *open_program(sx_ctx *cx, const problem *p, const char *disabled,
                                 uint32_t threads)
{
    sx_buf text, module;
    sx_buf_init(&text, 1 << 16);
    sx_buf_init(&module, (size_t)64 << 20);
    sx_attention_text(p->kind, p->sequence, p->sequence, p->width, &text);
    sx_test_request request = {.text = (const char *)text.ptr,
                               .target = p->target,
                               .batch = p->batch,
                               .disabled = disabled};
    sxr_program *program = NULL;
    sx_code code = sx_test_compile(cx, &request, &module);
    code = code == SX_OK ? sx_bench_open(cx, sx_buf_span(&module), threads, &program) : code;
    if (code != SX_OK) {
        sxr_close(program);
        program = NULL;
    }
    sx_buf_fini(&text);
    sx_buf_fini(&module);
    return program;
}

static void put_rows(const sx_bench_options *options, const problem *p, double *sample[3],
                     const char *peer)
{
    double ours = sx_bench_median(sample[0], options->rounds) / 1e3;
    double steps = sx_bench_median(sample[1], options->rounds) / 1e3;
    double theirs = sx_bench_median(sample[2], options->rounds) / 1e3;
    sx_bench_put(options, &(sx_bench_row){"attention", p->name, "run", ours, "us",
                                          "ours without the rule", steps});
    if (peer != NULL) {
        sx_bench_put(options,
                     &(sx_bench_row){"attention", p->name, "run", ours, "us", peer, theirs});
    }
}

static int measure(const sx_bench_options *options, const problem *p)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)4 << 30);
    sxr_program *one = open_program(&cx, p, "", options->threads);
    sxr_program *steps = open_program(&cx, p, "online", options->threads);
    if (one == NULL || steps == NULL) {
        (void)fprintf(stderr, "symplex-bench: %s\n", cx.error.text);
        return sx_code_exit(cx.error.code);
    }
    sx_bench_peer other = {0};
    const int64_t argument[] = {HEADS * p->batch, p->sequence, p->width,
                                p->kind == SX_ATTENTION_CAUSAL, sxr_threads(one)};
    bool has_peer =
        sx_bench_peer_start_script(&other, "peer_attention.py", argument, SX_COUNT(argument));
    double *sample[3];
    for (uint32_t k = 0; k < SX_COUNT(sample); k++) {
        sample[k] = calloc(options->rounds, sizeof(double));
        SX_ASSERT(sample[k] != NULL);
    }
    for (uint32_t round = 0; round < options->rounds; round++) {
        sample[0][round] = sx_bench_least_ns(&cx, one);
        sample[1][round] = sx_bench_least_ns(&cx, steps);
        sample[2][round] = has_peer ? sx_bench_peer_least_ns(&other) : 0;
    }
    put_rows(options, p, sample, has_peer ? other.name : NULL);
    for (uint32_t k = 0; k < SX_COUNT(sample); k++) {
        free(sample[k]);
    }
    sx_bench_peer_stop(&other);
    sxr_close(one);
    sxr_close(steps);
    sx_ctx_fini(&cx);
    return 0;
}

int sx_bench_attention(const sx_bench_options *options)
{
    static const problem problems[] = {
        {"scaled-1024", SX_ATTENTION_SCALED, 4, 1024, 64, "x86-64-v4"},
        {"causal-1024", SX_ATTENTION_CAUSAL, 4, 1024, 64, "x86-64-v4"},
        {"masked-1024", SX_ATTENTION_MASKED, 4, 1024, 64, "x86-64-v4"},
        {"scaled-1024-avx2", SX_ATTENTION_SCALED, 4, 1024, 64, "x86-64-v3"},
        {"scaled-128", SX_ATTENTION_SCALED, 16, 128, 64, "x86-64-v4"},
    };
    for (uint32_t i = 0; i < SX_COUNT(problems); i++) {
        const sx_machine *target = sx_machine_find(NULL, problems[i].target);
        if (!sx_bench_wants(options, problems[i].name) || !sxr_cpu_executes(target)) {
            continue;
        }
        int status = measure(options, &problems[i]);
        if (status != 0) {
            return status;
        }
    }
    return sx_bench_recompute(options);
}
