/* bench_search.c - the lanes of a long search, step after step in this process: what more fuel brings on
 * programs of several kinds.
 *
 * A row for each step: the lane's best and its bound, fuel and seconds since the lane began (processor time of
 * one thread), nodes, why the step ended. `new`: the step found a program better than the lane's steps before
 * it; its certificate is checked, outside the seconds. Then for each program the best of all lanes beside what
 * lane 0 finds in its first step: the usual search, where the fuel of a step suffices for that. Symbols of
 * built-in programs have values; those of a file have none.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/core.h"
#include "tests/bench/bench.h"
#include "tests/lib/gen_transformer.h"

#define STEPS 4u
#define STEP_FUEL UINT64_C(400000000)
#define STATE_BYTES_MAX ((size_t)256 << 20)
#define MODULE_BYTES_MAX ((size_t)64 << 20)
#define CX_BYTES ((size_t)1 << 30)
#define ALIGNMENT 64u

/* ---- programs ---- */

/* x0 w0 + x1 w1 + x2 w0 + .. + x5 w1: whoever opens sums that others read needs two products. */
static void print_products(sx_buf *text)
{
    enum { COUNT = 6, WEIGHTS = 2 };
    sx_buf_put_text(text, "sx 1\ngraph \"products\" {\n");
    for (uint32_t i = 0; i < COUNT; i++) {
        sx_buf_print(text, "  %%x%u = parameter {name = \"x%u\", weight = 0} : f32[8, 64]\n", i, i);
    }
    for (uint32_t i = 0; i < WEIGHTS; i++) {
        sx_buf_print(text, "  %%w%u = parameter {name = \"w%u\", weight = 1} : f32[64, 64]\n", i,
                     i);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        sx_buf_print(text, "  %%d%u = dot_general(%%x%u, %%w%u) ", i, i, i % WEIGHTS);
        sx_buf_put_text(text, "{lhs_contract = [1], rhs_contract = [0]} : f32[8, 64]\n");
    }
    for (uint32_t i = 1; i < COUNT; i++) {
        sx_buf_print(text, "  %%s%u = add(%%%s%u, %%d%u) : f32[8, 64]\n", i, i == 1 ? "d" : "s",
                     i - 1, i);
    }
    sx_buf_print(text, "  return %%s%u as \"y\"\n}\n", COUNT - 1);
}

/* 18 matrices multiplied from the left: all ways to put the parentheses. */
static void print_chain(sx_buf *text)
{
    static const uint32_t dim[] = {64, 16,  16,  16, 64,  32, 64, 64,  32, 16,
                                   32, 128, 128, 64, 256, 16, 48, 128, 32};
    uint32_t count = SX_COUNT(dim) - 1;
    sx_buf_put_text(text, "sx 1\ngraph \"chain\" {\n");
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_print(text, "  %%a%u = parameter {name = \"a%u\", weight = 0} : f32[%u, %u]\n", i, i,
                     dim[i], dim[i + 1]);
    }
    for (uint32_t i = 1; i < count; i++) {
        sx_buf_print(text, "  %%m%u = dot_general(%%%s%u, %%a%u) ", i, i == 1 ? "a" : "m", i - 1,
                     i);
        sx_buf_print(text, "{lhs_contract = [1], rhs_contract = [0]} : f32[%u, %u]\n", dim[0],
                     dim[i + 1]);
    }
    sx_buf_print(text, "  return %%m%u as \"r\"\n}\n", count - 1);
}

#define IMAGE "f32[batch, 16, 14, 14]"

static void print_convolution(sx_buf *text, uint32_t block, uint32_t window)
{
    uint32_t around = window / 2;
    sx_buf_print(text,
                 "  %%w%u_%u = parameter {name = \"w%u_%u\", weight = 1} : f32[16, 16, %u, %u]\n",
                 window, block, window, block, window, window);
    for (uint32_t i = 0; i < 4; i++) {
        static const char *const part[] = {"scale", "bias", "mean", "variance"};
        sx_buf_print(text, "  %%%s%u_%u = parameter {name = \"%s%u_%u\", weight = 1} : f32[16]\n",
                     part[i], window, block, part[i], window, block);
    }
    sx_buf_print(text,
                 "  %%c%u_%u = convolution(%%y%u, %%w%u_%u) {stride = [1, 1], low = [%u, %u], "
                 "high = [%u, %u], dilation = [1, 1], groups = 1} : " IMAGE "\n",
                 window, block, block, window, block, around, around, around, around);
    sx_buf_print(text,
                 "  %%n%u_%u = batch_norm(%%c%u_%u, %%scale%u_%u, %%bias%u_%u, %%mean%u_%u, "
                 "%%variance%u_%u) {axis = 1, eps = 0.001} : " IMAGE "\n",
                 window, block, window, block, window, block, window, block, window, block, window,
                 block);
}

/* Blocks relu(norm(3 x 3) + norm(1 x 1) + x) of 16 channels. */
static void print_residual(sx_buf *text)
{
    enum { BLOCKS = 3 };
    sx_buf_put_text(text, "sx 1\ngraph \"residual\" (batch in [1, 64]) {\n"
                          "  %y0 = parameter {name = \"x\", weight = 0} : " IMAGE "\n");
    for (uint32_t b = 0; b < BLOCKS; b++) {
        print_convolution(text, b, 3);
        print_convolution(text, b, 1);
        sx_buf_print(text, "  %%s%u = add(%%n3_%u, %%n1_%u) : " IMAGE "\n", b, b, b);
        sx_buf_print(text, "  %%t%u = add(%%s%u, %%y%u) : " IMAGE "\n", b, b, b);
        sx_buf_print(text, "  %%y%u = relu(%%t%u) : " IMAGE "\n", b + 1, b);
    }
    sx_buf_print(text, "  return %%y%u as \"y\"\n}\n", (uint32_t)BLOCKS);
}

static void print_decoder(sx_buf *text)
{
    sx_transformer shape = sx_transformer_default(1);
    sx_transformer_print(&shape, text);
}

typedef struct {
    const char *name;
    void (*print)(sx_buf *text);
    int64_t batch; /* 0: it has no symbol */
} program;
static const program programs[] = {
    {"products", print_products, 0},
    {"chain", print_chain, 0},
    {"residual", print_residual, 8},
    {"decoder", print_decoder, 8},
};

static int read_program(const char *path, sx_buf *text)
{
    uint8_t chunk[65536];
    size_t got;
    FILE *file = strpbrk(path, "\"\\\n|") == NULL ? fopen(path, "rb") : NULL; /* it names rows */
    if (file == NULL) {
        (void)fprintf(stderr, "symplex-bench: %s is neither a built-in program nor a file\n", path);
        return sx_code_exit(SX_INPUT);
    }
    while ((got = fread(chunk, 1, sizeof(chunk), file)) > 0) {
        sx_buf_put(text, chunk, got);
    }
    bool failed = ferror(file) != 0 || text->code != SX_OK;
    (void)fclose(file);
    if (failed) {
        (void)fprintf(stderr, "symplex-bench: %s: cannot be read, or more than %zu bytes\n", path,
                      text->limit);
        return sx_code_exit(SX_INPUT);
    }
    return 0;
}

/* ---- steps ---- */

typedef struct {
    const sx_bench_options *options;
    const char *name;
    sx_core_request request;
    uint32_t steps, lane;
    uint64_t fuel;              /* of a step */
    sx_buf *from, *to, *module; /* states before and after a step */
    sx_core_step_result result;
    double seconds;     /* of the lane */
    double all_seconds; /* of all lanes; likewise: */
    uint64_t all_fuel;
    double usual, best; /* objectives */
} searcher;

static double cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static sx_span aligned(sx_ctx *cx, const sx_buf *bytes)
{
    uint8_t *copy = bytes->len == 0 ? NULL : sx_alloc(cx, bytes->len + ALIGNMENT);
    if (copy == NULL) {
        return (sx_span){NULL, 0};
    }
    copy += (ALIGNMENT - (uintptr_t)copy % ALIGNMENT) % ALIGNMENT;
    memcpy(copy, bytes->ptr, bytes->len);
    return (sx_span){copy, bytes->len};
}

static sx_code check_proof(sx_ctx *cx, const sx_buf *bytes)
{
    sx_module module;
    sx_core_proof proof;
    sx_span copy = aligned(cx, bytes);
    SX_TRY(sx_module_decode(cx, copy, true, &module));
    sx_span text = {(const uint8_t *)module.proof, (size_t)module.proof_count};
    cx->fuel = SX_FUEL_DEFAULT;
    return sx_core_prove(cx, text, &proof);
}

static void put_step(const searcher *s)
{
    const sx_core_step_result *r = &s->result;
    const char *lane = sx_core_long_lane_name(&s->request, s->lane);
    bool better = s->module->len > 0;
    if (s->options->json) {
        printf("{\"schema\": \"symplex-bench 1\", \"bench\": \"search\", \"case\": \"%s\", "
               "\"lane\": \"%s\", \"step\": %u, \"objective\": %.12g, \"bound\": %.12g, "
               "\"fuel\": %llu, \"nodes\": %llu, \"seconds\": %.3f, \"stop\": \"%s\", \"new\": %s, "
               "\"done\": %s}\n",
               s->name, lane, r->step, r->objective, r->bound, (unsigned long long)r->fuel,
               (unsigned long long)r->nodes, s->seconds, r->stop, better ? "true" : "false",
               r->done ? "true" : "false");
    } else {
        printf("| %s | %s | %u | %.6g | %.6g | %.1f | %llu | %.2f | %s | %s | %s |\n", s->name,
               lane, r->step, r->objective, r->bound, (double)r->fuel / 1e6,
               (unsigned long long)r->nodes, s->seconds, r->stop, better ? "yes" : "",
               r->done ? "yes" : "");
    }
    (void)fflush(stdout);
}

static sx_code run_step(sx_ctx *cx, searcher *s)
{
    sx_core_step step = {
        .request = &s->request, .lane = s->lane, .fuel = s->fuel, .state = aligned(cx, s->from)};
    SX_TRY(cx->error.code);
    sx_buf_clear(s->to);
    sx_buf_clear(s->module);
    s->result = (sx_core_step_result){.state = s->to, .module = s->module};
    double start = cpu_seconds();
    SX_TRY(sx_core_long_step(cx, &step, &s->result));
    s->seconds += cpu_seconds() - start;
    put_step(s);
    return s->module->len > 0 ? check_proof(cx, s->module) : SX_OK;
}

static sx_code run_lane(searcher *s)
{
    sx_code code = SX_OK;
    bool done = false;
    s->seconds = 0;
    sx_buf_clear(s->from);
    for (uint32_t i = 0; i < s->steps && !done && code == SX_OK; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, CX_BYTES);
        code = run_step(&cx, s);
        if (code != SX_OK) {
            (void)fprintf(stderr, "symplex-bench: search: %s, lane %u, step %u: %s\n", s->name,
                          s->lane, i + 1, cx.error.text);
        }
        sx_ctx_fini(&cx);
        done = s->result.done;
        if (s->lane == 0 && i == 0) {
            s->usual = s->result.objective;
            s->best = s->usual;
        }
        s->best = s->result.objective < s->best ? s->result.objective : s->best;
        sx_buf *swapped = s->from;
        s->from = s->to;
        s->to = swapped;
    }
    s->all_seconds += s->seconds;
    s->all_fuel += s->result.fuel;
    return code;
}

static sx_code run_lanes(searcher *s)
{
    uint32_t count = 0;
    sx_ctx cx;
    sx_ctx_init(&cx, CX_BYTES);
    sx_code code = sx_core_long_lanes(&cx, &s->request, &count);
    sx_ctx_fini(&cx);
    for (s->lane = 0; s->lane < count && code == SX_OK; s->lane++) {
        code = run_lane(s);
    }
    return code;
}

static int run_program(const sx_bench_options *options, const char *name, const sx_buf *text,
                       int64_t batch)
{
    sx_buf state[2], module;
    sx_binding binding = {SX_SPAN_LITERAL("batch"), batch};
    searcher s = {.options = options,
                  .name = name,
                  .request = {.ir = sx_buf_span(text), .target = SX_SPAN_LITERAL("x86-64-v3")},
                  .steps = options->steps > 0 ? options->steps : STEPS,
                  .fuel = options->fuel > 0 ? options->fuel : STEP_FUEL,
                  .from = &state[0],
                  .to = &state[1],
                  .module = &module};
    if (batch > 0) {
        s.request.binding = &binding;
        s.request.binding_count = 1;
    }
    sx_buf_init(&state[0], STATE_BYTES_MAX);
    sx_buf_init(&state[1], STATE_BYTES_MAX);
    sx_buf_init(&module, MODULE_BYTES_MAX);
    sx_code code = run_lanes(&s);
    if (code == SX_OK) {
        const sx_bench_row rows[] = {
            {"search", name, "objective", s.best, "ns", "first step of lane 0", s.usual},
            {"search", name, "fuel", (double)s.all_fuel, "", NULL, 0},
            {"search", name, "seconds", s.all_seconds, "s", NULL, 0},
        };
        for (uint32_t i = 0; i < SX_COUNT(rows); i++) {
            sx_bench_put(options, &rows[i]);
        }
    }
    sx_buf_fini(&state[0]);
    sx_buf_fini(&state[1]);
    sx_buf_fini(&module);
    return sx_code_exit(code);
}

int sx_bench_search(const sx_bench_options *options)
{
    const char *wanted = options->program;
    bool built_in = false;
    int status = 0;
    sx_buf text;
    if (!options->json && !options->list) {
        printf("| program | lane | step | objective | bound | fuel, M | nodes | s | stop | new | "
               "done |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    }
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    for (uint32_t i = 0; i < SX_COUNT(programs) && status == 0; i++) {
        const program *p = &programs[i];
        bool named = wanted != NULL && strcmp(wanted, p->name) == 0;
        built_in = built_in || named;
        if (wanted != NULL ? named : sx_bench_wants(options, p->name)) {
            sx_buf_clear(&text);
            p->print(&text);
            status = run_program(options, p->name, &text, p->batch);
        }
    }
    if (wanted != NULL && !built_in && status == 0) {
        sx_buf_clear(&text);
        status = read_program(wanted, &text);
        status = status == 0 ? run_program(options, wanted, &text, 0) : status;
    }
    sx_buf_fini(&text);
    return status;
}
