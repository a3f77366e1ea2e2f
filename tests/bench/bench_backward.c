/* bench_backward.c - a block of a network with the gradients for all its weights, against JAX and PyTorch, in turns. */
#include <stdio.h>
#include <stdlib.h>

#include "client/runtime/cpu.h"
#include "tests/bench/bench.h"
#include "tests/bench/networks.h"
#include "tests/bench/run.h"
#include "tests/lib/compiled.h"

typedef struct {
    const char *name;
    const char *text;
} block;
/* 8 x 128 tokens of 256, 4 heads of 64, 1024 in the middle. */
static const char encoder[] =
    "sx 1 graph \"encoder\" {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[8, 128, 256]\n"
    "%n1 = parameter {name = \"n1\", weight = 1} : f32[256]\n"
    "%b1 = parameter {name = \"b1\", weight = 1} : f32[256]\n"
    "%n2 = parameter {name = \"n2\", weight = 1} : f32[256]\n"
    "%b2 = parameter {name = \"b2\", weight = 1} : f32[256]\n"
    "%wq = parameter {name = \"q\", weight = 1} : f32[256, 4, 64]\n"
    "%wk = parameter {name = \"k\", weight = 1} : f32[256, 4, 64]\n"
    "%wv = parameter {name = \"v\", weight = 1} : f32[256, 4, 64]\n"
    "%wo = parameter {name = \"o\", weight = 1} : f32[4, 64, 256]\n"
    "%w1 = parameter {name = \"w1\", weight = 1} : f32[256, 1024]\n"
    "%w2 = parameter {name = \"w2\", weight = 1} : f32[1024, 256]\n"
    "%0 = layer_norm(%x, %n1, %b1) {axis = 2, eps = 1e-05} : f32[8, 128, 256]\n"
    "%1 = dot_general(%0, %wq) {lhs_contract = [2], rhs_contract = [0]} : f32[8, 128, 4, 64]\n"
    "%2 = dot_general(%0, %wk) {lhs_contract = [2], rhs_contract = [0]} : f32[8, 128, 4, 64]\n"
    "%3 = dot_general(%0, %wv) {lhs_contract = [2], rhs_contract = [0]} : f32[8, 128, 4, 64]\n"
    "%4 = transpose(%1) {perm = [0, 2, 1, 3]} : f32[8, 4, 128, 64]\n"
    "%5 = transpose(%2) {perm = [0, 2, 1, 3]} : f32[8, 4, 128, 64]\n"
    "%6 = transpose(%3) {perm = [0, 2, 1, 3]} : f32[8, 4, 128, 64]\n"
    "%7 = attention(%4, %5, %6) {scale = 0.125} : f32[8, 4, 128, 64]\n"
    "%8 = dot_general(%7, %wo) {lhs_contract = [1, 3], rhs_contract = [0, 1]} : f32[8, 128, 256]\n"
    "%9 = add(%x, %8) : f32[8, 128, 256]\n"
    "%10 = layer_norm(%9, %n2, %b2) {axis = 2, eps = 1e-05} : f32[8, 128, 256]\n"
    "%11 = dot_general(%10, %w1) {lhs_contract = [2], rhs_contract = [0]} : f32[8, 128, 1024]\n"
    "%12 = gelu_tanh(%11) : f32[8, 128, 1024]\n"
    "%13 = dot_general(%12, %w2) {lhs_contract = [2], rhs_contract = [0]} : f32[8, 128, 256]\n"
    "%14 = add(%9, %13) : f32[8, 128, 256]\n"
    "return %14 as \"y\" }\n";
/* The basic block of ResNet-18 on 8 images of 28 x 28 with 64 channels, its norms in training. */
#define CONVOLVE                                                                        \
    "{stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], groups = 1} : f" \
    "32[8, 64, 28, 28]\n"
static const char resnet[] =
    "sx 1 graph \"resnet\" {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[8, 64, 28, 28]\n"
    "%m1 = parameter {name = \"mean1\", weight = 0} : f32[64]\n"
    "%v1 = parameter {name = \"variance1\", weight = 0} : f32[64]\n"
    "%m2 = parameter {name = \"mean2\", weight = 0} : f32[64]\n"
    "%v2 = parameter {name = \"variance2\", weight = 0} : f32[64]\n"
    "%w1 = parameter {name = \"w1\", weight = 1} : f32[64, 64, 3, 3]\n"
    "%n1 = parameter {name = \"n1\", weight = 1} : f32[64]\n"
    "%b1 = parameter {name = \"b1\", weight = 1} : f32[64]\n"
    "%w2 = parameter {name = \"w2\", weight = 1} : f32[64, 64, 3, 3]\n"
    "%n2 = parameter {name = \"n2\", weight = 1} : f32[64]\n"
    "%b2 = parameter {name = \"b2\", weight = 1} : f32[64]\n"
    "%q1 = multiply(%v1, %v1) : f32[64]\n"
    "%q2 = multiply(%v2, %v2) : f32[64]\n"
    "%0 = convolution(%x, %w1) " CONVOLVE
    "%1 = batch_norm(%0, %n1, %b1, %m1, %q1) {axis = 1, eps = 1e-05} : f32[8, 64, 28, 28]\n"
    "%2 = relu(%1) : f32[8, 64, 28, 28]\n"
    "%3 = convolution(%2, %w2) " CONVOLVE
    "%4 = batch_norm(%3, %n2, %b2, %m2, %q2) {axis = 1, eps = 1e-05} : f32[8, 64, 28, 28]\n"
    "%5 = add(%4, %x) : f32[8, 64, 28, 28]\n"
    "%6 = relu(%5) : f32[8, 64, 28, 28]\n"
    "return %6 as \"y\" }\n";
static const block blocks[] = {{"encoder", encoder}, {"resnet", resnet}};

/* The module of the block with its gradients. */
static sx_code compile(sx_ctx *cx, const block *b, sx_buf *module)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_buf_put_text(&text, b->text);
    sx_code code = sx_bench_add_gradients(cx, &text);
    sx_buf_put_u8(&text, 0);
    sx_test_request request = {
        .text = (const char *)text.ptr,
        .target = sxr_cpu_executes(sx_machine_find(NULL, "x86-64-v4")) ? "x86-64-v4" : "x86-64-v3",
        .disabled = ""};
    code = code == SX_OK ? sx_test_compile(cx, &request, module) : code;
    sx_buf_fini(&text);
    return code;
}

/* Who else computes it, and in whose Python. */
static const struct {
    const char *engine, *python;
} others[] = {{"jax", "python.sh"}, {"torch", "frameworks.sh"}, {"inductor", "frameworks.sh"}};

static bool start_other(sx_bench_peer *other, uint32_t which, const char *name, uint32_t threads)
{
    char script[] = SX_SOURCE_DIR "/tests/bench/peer_backward.py";
    char python[256], count[16], block_name[16], engine[16];
    (void)snprintf(python, sizeof(python), SX_SOURCE_DIR "/tests/tools/%s", others[which].python);
    (void)snprintf(count, sizeof(count), "%u", threads);
    (void)snprintf(block_name, sizeof(block_name), "%s", name);
    (void)snprintf(engine, sizeof(engine), "%s", others[which].engine);
    return sx_bench_peer_start(other, (char *[]){python, script, block_name, count, engine, NULL});
}

/* Rows beside all that gave times; 1 if another was started and failed. */
static int measure_turns(sx_ctx *cx, const sx_bench_options *options, const char *name,
                         sxr_program *program)
{
    sx_bench_peer other[SX_COUNT(others)] = {0};
    bool has[SX_COUNT(others)];
    for (uint32_t k = 0; k < SX_COUNT(others); k++) {
        has[k] = start_other(&other[k], k, name, sxr_threads(program));
    }
    double *sample = calloc((size_t)options->rounds * (1 + SX_COUNT(others)), sizeof(double));
    SX_ASSERT(sample != NULL);
    for (uint32_t round = 0; round < options->rounds; round++) {
        sample[round] = sx_bench_least_ns(cx, program);
        for (uint32_t k = 0; k < SX_COUNT(others); k++) {
            sample[(k + 1) * options->rounds + round] =
                has[k] ? sx_bench_peer_least_ns(&other[k]) : 0;
        }
    }
    double ours = sx_bench_median(sample, options->rounds) / 1e6;
    bool any = false;
    int status = 0;
    for (uint32_t k = 0; k < SX_COUNT(others); k++) {
        double theirs = sx_bench_median(sample + (k + 1) * options->rounds, options->rounds) / 1e6;
        if (has[k] && !other[k].failed) {
            sx_bench_put(options, &(sx_bench_row){"backward", name, "run", ours, "ms",
                                                  other[k].name, theirs});
            any = true;
        }
        status |= has[k] && other[k].failed;
        sx_bench_peer_stop(&other[k]);
    }
    if (!any) {
        sx_bench_put(options, &(sx_bench_row){"backward", name, "run", ours, "ms", NULL, 0});
    }
    free(sample);
    return status;
}

static int measure(const sx_bench_options *options, const block *b)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)4 << 30);
    sx_buf module;
    sx_buf_init(&module, (size_t)256 << 20);
    sxr_program *program = NULL;
    sx_code code = compile(&cx, b, &module);
    code =
        code == SX_OK ? sx_bench_open(&cx, sx_buf_span(&module), options->threads, &program) : code;
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench: %s\n", cx.error.text);
        return sx_code_exit(code);
    }
    int status = measure_turns(&cx, options, b->name, program);
    sxr_close(program);
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
    return status;
}

int sx_bench_backward(const sx_bench_options *options)
{
    int status = 0;
    for (uint32_t i = 0; i < SX_COUNT(blocks); i++) {
        status |= sx_bench_wants(options, blocks[i].name) ? measure(options, &blocks[i]) : 0;
    }
    return status;
}
