/* bench_recompute.c - attention with the gradients of its inputs: by recomputation (nested contractions, as the
 * objective `memory` takes them) against the program that stores its scores, in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "core/grad/grad.h"
#include "tests/bench/bench.h"
#include "tests/bench/run.h"
#include "tests/lib/compiled.h"

#define HEADS 4
#define WIDTH 64

typedef struct {
    const char *name;
    long long sequence;
    bool causal;
    const char *target;
} problem;

static const problem problems[] = {
    {"backward-256", 256, false, "x86-64-v4"},
    {"backward-1024", 1024, false, "x86-64-v4"},
    {"backward-2048", 2048, false, "x86-64-v4"},
    {"backward-causal-1024", 1024, true, "x86-64-v4"},
    {"backward-1024-avx2", 1024, false, "x86-64-v3"},
};

/* The text of attention with the gradients of queries, keys and values. */
static sx_code print_gradients(sx_ctx *cx, const problem *p, sx_buf *text)
{
    const sx_span wrt[] = {SX_SPAN_LITERAL("q"), SX_SPAN_LITERAL("k"), SX_SPAN_LITERAL("v")};
    sx_graph *graph;
    sx_gradient made;
    sx_buf forward;
    sx_buf_init(&forward, 1 << 16);
    sx_buf_put_text(&forward, "sx 1\ngraph \"backward\" {\n");
    for (uint32_t k = 0; k < SX_COUNT(wrt); k++) {
        sx_buf_print(&forward, "%%%c = parameter {name = \"%c\", weight = 0} : f32[%d, %lld, %d]\n",
                     "qkv"[k], "qkv"[k], HEADS, p -> sequence, WIDTH);
    }
    if (p->causal) {
        char scores[48];
        (void)snprintf(scores, sizeof(scores), "[%d, %lld, %lld]", HEADS, p->sequence, p->sequence);
        sx_buf_print(&forward, "%%i = iota {axis = 1} : i32%s\n%%j = iota {axis = 2} : i32%s\n",
                     scores, scores);
        sx_buf_print(&forward, "%%sees = compare(%%i, %%j) {direction = ge} : bool%s\n", scores);
        sx_buf_print(&forward, "%%low = constant {data = -inf} : f32%s\n", scores);
        sx_buf_print(&forward, "%%zero = constant {data = 0} : f32%s\n", scores);
        sx_buf_print(&forward, "%%mask = select(%%sees, %%zero, %%low) : f32%s\n", scores);
    }
    sx_buf_print(&forward, "%%y = attention(%%q, %%k, %%v%s) {scale = 0.125} : f32[%d, %lld, %d]\n",
                 p->causal ? ", %mask" : "", HEADS, p->sequence, WIDTH);
    sx_buf_put_text(&forward, "return %y as \"y\" }\n");
    sx_code code = sx_graph_parse(cx, sx_buf_span(&forward), &graph);
    if (code == SX_OK) {
        code = sx_grad_make(cx, graph, &(sx_grad_request){.wrt = wrt, .wrt_count = SX_COUNT(wrt)},
                            &made);
    }
    code = code == SX_OK ? sx_graph_print(cx, made.graph, text) : code;
    sx_buf_put_u8(text, 0);
    sx_buf_fini(&forward);
    return code;
}

static sxr_program *open_program(sx_ctx *cx, const problem *p, bool recomputed, uint32_t threads)
{
    sx_buf text, module;
    sxr_program *program = NULL;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_buf_init(&module, (size_t)64 << 20);
    sx_code code = print_gradients(cx, p, &text);
    sx_test_request request = {.text = (const char *)text.ptr,
                               .target = p->target,
                               .objective = recomputed ? "memory" : "time",
                               .disabled = recomputed ? "" : "fuse-nested"};
    code = code == SX_OK ? sx_test_compile(cx, &request, &module) : code;
    code = code == SX_OK ? sx_bench_open(cx, sx_buf_span(&module), threads, &program) : code;
    if (code == SX_OK &&
        (sx_test_kernels(sxr_module(program), SX_MODULE_NESTED) > 0) != recomputed) {
        code =
            SX_FAIL(cx, SX_INTERNAL, "%s: %s nested kernels", p->name, recomputed ? "no" : "has");
    }
    if (code != SX_OK) {
        sxr_close(program);
        program = NULL;
    }
    sx_buf_fini(&text);
    sx_buf_fini(&module);
    return program;
}

/* Mebibytes of the temporaries of a run. */
static double temporaries(const sxr_program *program)
{
    return (double)sxr_module(program)->info->arena_bytes / (1 << 20);
}

static int measure(const sx_bench_options *options, const problem *p)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)4 << 30);
    sxr_program *again = open_program(&cx, p, true, options->threads);
    sxr_program *stored = again != NULL ? open_program(&cx, p, false, options->threads) : NULL;
    double *sample[2] = {calloc(options->rounds, sizeof(double)),
                         calloc(options->rounds, sizeof(double))};
    int status = 0;
    if (stored == NULL || sample[0] == NULL || sample[1] == NULL) {
        (void)fprintf(stderr, "symplex-bench: %s\n", cx.error.text);
        status = sx_code_exit(stored == NULL ? cx.error.code : SX_NOMEM);
    }
    for (uint32_t round = 0; status == 0 && round < options->rounds; round++) {
        sample[0][round] = sx_bench_least_ns(&cx, again);
        sample[1][round] = sx_bench_least_ns(&cx, stored);
    }
    if (status == 0) {
        const char *peer = "scores stored";
        double ours = sx_bench_median(sample[0], options->rounds) / 1e3;
        double theirs = sx_bench_median(sample[1], options->rounds) / 1e3;
        sx_bench_put(options,
                     &(sx_bench_row){"attention", p->name, "run", ours, "us", peer, theirs});
        sx_bench_put(options,
                     &(sx_bench_row){"attention", p->name, "temporaries", temporaries(again), "MiB",
                                     peer, temporaries(stored)});
    }
    free(sample[0]);
    free(sample[1]);
    sxr_close(again);
    sxr_close(stored);
    sx_ctx_fini(&cx);
    return status;
}

int sx_bench_recompute(const sx_bench_options *options)
{
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
    return 0;
}
