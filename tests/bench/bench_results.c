/* bench_results.c - kernels with several results: programs that one kernel computes, against programs with one result
 * each. In the same rounds; both move the memory of the same tensors, and the results of the second way have to be the
 * bits of the first. A step of AdamW on a million parameters; and rows with what is known of them: a norm with its
 * statistics, a maximum with its index, a residual sum with its norm, log_softmax with the loss. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/symplex.h"

#define STEPS 5 /* of one round and way */
#define ROUNDS_DEFAULT 15
#define ROUNDS_MAX 1000
#define PARTS_MAX 3 /* programs with one result each */
#define TENSORS_MAX 8

typedef struct {
    const char *name;
    size_t elements, element_bytes;
} tensor;
typedef struct {
    const char *bench, *case_name, *peer;
    const char *whole, *part[PARTS_MAX];
    tensor tensor[TENSORS_MAX];
} problem;

#define MILLION 1048576
#define T " : f32[1048576]\n"
#define IN(name) "%" name " = parameter {name = \"" name "\", weight = 0}" T
#define FILL(name, value) "%" name " = constant {data = " value "}" T
#define FIRST         \
    FILL("b1", "0.9") \
    FILL("c1", "0.1") \
    "%m0 = multiply(%b1, %m)" T "%m1 = multiply(%c1, %g)" T "%m2 = add(%m0, %m1)" T
#define SECOND                                                                          \
    FILL("b2", "0.999")                                                                 \
    FILL("c2", "0.001")                                                                 \
    "%gg = multiply(%g, %g)" T "%v0 = multiply(%b2, %v)" T "%v1 = multiply(%c2, %gg)" T \
    "%v2 = add(%v0, %v1)" T
#define THIRD                                                                               \
    FILL("eps", "1e-8")                                                                     \
    FILL("rate", "0.01")                                                                    \
    FILL("decay", "0.0001")                                                                 \
    "%q = sqrt(%v2)" T "%re = add(%q, %eps)" T "%d = divide(%m2, %re)" T                    \
    "%s = multiply(%rate, %d)" T "%wd = multiply(%decay, %w)" T "%w1 = subtract(%w, %wd)" T \
    "%w2 = subtract(%w1, %s)" T
#define BEGIN "sx 1\ngraph \"adamw\" {\n" IN("g")

static const problem adamw = {
    "adamw",
    "million",
    "a kernel for each of the three results",
    BEGIN IN("w") IN("m") IN("v") FIRST SECOND THIRD
    "return %w2 as \"w2\", %m2 as \"m2\", %v2 as \"v2\"\n}\n",
    {BEGIN IN("m") FIRST "return %m2 as \"m2\"\n}\n",
     BEGIN IN("v") SECOND "return %v2 as \"v2\"\n}\n",
     "sx 1\ngraph \"adamw\" {\n" IN("w") IN("m2") IN("v2") THIRD "return %w2 as \"w2\"\n}\n"},
    {{"g", MILLION, 4},
     {"w", MILLION, 4},
     {"m", MILLION, 4},
     {"v", MILLION, 4},
     {"w2", MILLION, 4},
     {"m2", MILLION, 4},
     {"v2", MILLION, 4}},
};

/* ---- rows: 4,096 of 1,024 ---- */
#define ROWS 4096
#define LENGTH 1024
#define X " : f32[4096, 1024]\n"
#define R " : f32[4096]\n"
#define IX " : i32[4096, 1024]\n"
#define INPUT(name) "%" name " = parameter {name = \"" name "\", weight = 0}" X
#define ROW_INPUT(name) "%" name " = parameter {name = \"" name "\", weight = 0}" R
#define REPEATED(name, of) "%" name " = broadcast_in_dim(%" of ") {dims = [0]}" X
#define GRAPH(nodes, outputs) "sx 1\ngraph \"rows\" {\n" nodes "return " outputs "\n}\n"
#define MEAN                                                                        \
    "%n = constant {data = 1024}" R "%s = reduce(%x) {dims = [1], reducer = add}" R \
    "%mean = divide(%s, %n)" R
#define CENTRED REPEATED("mb", "mean") "%c = subtract(%x, %mb)" X
#define DEVIATION                                                                                \
    "%cc = multiply(%c, %c)" X "%ss = reduce(%cc) {dims = [1], reducer = add}" R                 \
    "%k = constant {data = 1024}" R "%var = divide(%ss, %k)" R "%eps = constant {data = 1e-5}" R \
    "%ve = add(%var, %eps)" R "%rstd = rsqrt(%ve)" R
#define NORM REPEATED("rb", "rstd") "%y = multiply(%c, %rb)" X
#define LARGEST "%max = reduce(%x) {dims = [1], reducer = maximum}" R
#define INDEX                                                      \
    REPEATED("mb", "max")                                          \
    "%i = iota {axis = 1}" IX "%far = constant {data = 1024}" IX   \
    "%is = compare(%x, %mb) {direction = eq} : bool[4096, 1024]\n" \
    "%at = select(%is, %i, %far)" IX                               \
    "%index = reduce(%at) {dims = [1], reducer = minimum} : i32[4096]\n"
#define SUM "%h = add(%x, %t)" X
#define ROOT_MEAN                            \
    "%g = constant {data = 1} : f32[1024]\n" \
    "%y = rms_norm(%h, %g) {axis = 1, eps = 1e-5}" X
#define LOGARITHM "%y = log_softmax(%x) {axis = 1}" X
#define LOSS                                                                   \
    "%p = multiply(%t, %y)" X "%ps = reduce(%p) {dims = [1], reducer = add}" R \
    "%loss = negate(%ps)" R
#define WHOLE_ROWS(name)              \
    {                                 \
        name, (size_t)ROWS *LENGTH, 4 \
    }
#define ONE_EACH(name) \
    {                  \
        name, ROWS, 4  \
    }

static const problem rows[] = {
    {"rows",
     "norm",
     "a kernel for mean, deviation and norm each",
     GRAPH(INPUT("x") MEAN CENTRED DEVIATION NORM,
           "%y as \"y\", %mean as \"mean\", %rstd as \"rstd\""),
     {GRAPH(INPUT("x") MEAN, "%mean as \"mean\""),
      GRAPH(INPUT("x") ROW_INPUT("mean") CENTRED DEVIATION, "%rstd as \"rstd\""),
      GRAPH(INPUT("x") ROW_INPUT("mean") ROW_INPUT("rstd") CENTRED NORM, "%y as \"y\"")},
     {WHOLE_ROWS("x"), WHOLE_ROWS("y"), ONE_EACH("mean"), ONE_EACH("rstd")}},
    {"rows",
     "index",
     "a kernel for maximum and index each",
     GRAPH(INPUT("x") LARGEST INDEX, "%max as \"max\", %index as \"index\""),
     {GRAPH(INPUT("x") LARGEST, "%max as \"max\""),
      GRAPH(INPUT("x") ROW_INPUT("max") INDEX, "%index as \"index\"")},
     {WHOLE_ROWS("x"), ONE_EACH("max"), ONE_EACH("index")}},
    {"rows",
     "residual",
     "a kernel for sum and norm each",
     GRAPH(INPUT("x") INPUT("t") SUM ROOT_MEAN, "%h as \"h\", %y as \"y\""),
     {GRAPH(INPUT("x") INPUT("t") SUM, "%h as \"h\""), GRAPH(INPUT("h") ROOT_MEAN, "%y as \"y\"")},
     {WHOLE_ROWS("x"), WHOLE_ROWS("t"), WHOLE_ROWS("h"), WHOLE_ROWS("y")}},
    {"rows",
     "loss",
     "a kernel for log_softmax and loss each",
     GRAPH(INPUT("x") INPUT("t") LOGARITHM LOSS, "%y as \"y\", %loss as \"loss\""),
     {GRAPH(INPUT("x") LOGARITHM, "%y as \"y\""),
      GRAPH(INPUT("t") INPUT("y") LOSS, "%loss as \"loss\"")},
     {WHOLE_ROWS("x"), WHOLE_ROWS("t"), WHOLE_ROWS("y"), ONE_EACH("loss")}},
};

/* ---- measuring ---- */

typedef struct {
    const problem *p;
    symplex_module *module[1 + PARTS_MAX];
    uint32_t modules;
    uint8_t *memory[TENSORS_MAX], *first[TENSORS_MAX]; /* results of the first way */
    uint32_t tensors;
    symplex_error error;
} running;

static size_t bytes_of(const running *r, uint32_t t)
{
    return r->p->tensor[t].elements * r->p->tensor[t].element_bytes;
}

static symplex_module *open_module(const char *program_text, uint32_t threads, symplex_error *error)
{
    symplex_options options = {.daemon = SYMPLEX_DAEMON_NEVER};
    symplex_program program = {.bytes = program_text, .size = strlen(program_text)};
    symplex_client *client = NULL;
    symplex_module *module = NULL;
    void *bytes = NULL;
    size_t size;
    if (symplex_open(&options, &client, error) == SYMPLEX_OK &&
        symplex_compile(client, &program, &bytes, &size, NULL, error) == SYMPLEX_OK) {
        (void)symplex_module_open(bytes, size, threads, &module, error);
    }
    symplex_free(bytes);
    symplex_close(client);
    return module;
}

/* Memory of the tensors that the module has, under their names. */
static bool bind(running *r, symplex_module *module)
{
    static const symplex_role role[] = {SYMPLEX_INPUT_TENSOR, SYMPLEX_OUTPUT_TENSOR};
    bool good = true;
    for (uint32_t k = 0; k < 2 * r->tensors && good; k++) {
        uint32_t t = k / 2;
        size_t index = symplex_module_find(module, role[k % 2], r->p->tensor[t].name);
        good = index == SYMPLEX_NO_TENSOR ||
               symplex_module_bind(module, index, r->memory[t], bytes_of(r, t), &r->error) ==
                   SYMPLEX_OK;
    }
    return good;
}

static bool begin(running *r, uint32_t threads)
{
    bool good = true;
    for (; r->tensors < TENSORS_MAX && r->p->tensor[r->tensors].name != NULL && good;
         r->tensors++) {
        uint32_t t = r->tensors;
        r->memory[t] = malloc(bytes_of(r, t));
        r->first[t] = malloc(bytes_of(r, t));
        good = r->memory[t] != NULL && r->first[t] != NULL;
        for (size_t i = 0; i < bytes_of(r, t) / sizeof(float) && good; i++) {
            float value = 0.25F + (float)(i * 7 % 1024) / 2048;
            memcpy(r->memory[t] + i * sizeof(value), &value, sizeof(value));
        }
    }
    for (uint32_t m = 0; m <= PARTS_MAX && good; m++) {
        const char *text = m == 0 ? r->p->whole : r->p->part[m - 1];
        if (text != NULL) {
            r->module[m] = open_module(text, threads, &r->error);
            good = r->module[m] != NULL && bind(r, r->module[m]);
            r->modules++;
        }
    }
    return good;
}

static void end(running *r)
{
    for (uint32_t m = 0; m <= PARTS_MAX; m++) {
        symplex_module_close(r->module[m]);
    }
    for (uint32_t t = 0; t < TENSORS_MAX; t++) {
        free(r->memory[t]);
        free(r->first[t]);
    }
}

/* Nanoseconds of a step by the modules from `first` to `last`; negative: one failed. */
static double time_steps(running *r, uint32_t first, uint32_t last)
{
    bool good = true;
    uint64_t start = sx_bench_now_ns();
    for (uint32_t i = 0; i < STEPS; i++) {
        for (uint32_t m = first; m <= last; m++) {
            good &= symplex_module_run(r->module[m], &r->error) == SYMPLEX_OK;
        }
    }
    return good ? (double)(sx_bench_now_ns() - start) / STEPS : -1;
}

/* Both ways in turns. */
static bool measure(running *r, uint32_t rounds, double sample[2][ROUNDS_MAX])
{
    bool good = true;
    for (uint32_t k = 0; k < rounds && good; k++) {
        sample[0][k] = time_steps(r, 0, 0);
        for (uint32_t t = 0; t < r->tensors && k == 0; t++) {
            memcpy(r->first[t], r->memory[t], bytes_of(r, t));
        }
        sample[1][k] = time_steps(r, 1, r->modules - 1);
        good = sample[0][k] >= 0 && sample[1][k] >= 0;
        for (uint32_t t = 0; t < r->tensors && k == 0; t++) {
            good = good && memcmp(r->first[t], r->memory[t], bytes_of(r, t)) == 0;
        }
    }
    return good;
}

static int run(const sx_bench_options *options, const problem *p)
{
    static double sample[2][ROUNDS_MAX];
    uint32_t rounds = options->rounds > 0 ? options->rounds : ROUNDS_DEFAULT;
    running r = {.p = p, .error = {.text = ""}};
    if (!sx_bench_wants(options, p->case_name)) {
        return 0;
    }
    rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    bool good = begin(&r, options->threads) && measure(&r, rounds, sample);
    end(&r);
    if (!good) {
        (void)fprintf(stderr, "symplex-bench %s: %s\n", p->bench,
                      r.error.text[0] != '\0' ? r.error.text : "other bits, or no memory");
        return 1;
    }
    sx_bench_row row = {.bench = p->bench,
                        .case_name = p->case_name,
                        .metric = "step",
                        .value = sx_bench_median(sample[0], rounds) / 1e3,
                        .unit = "us",
                        .peer = p->peer,
                        .peer_value = sx_bench_median(sample[1], rounds) / 1e3};
    sx_bench_put(options, &row);
    return 0;
}

int sx_bench_adamw(const sx_bench_options *options)
{
    return run(options, &adamw);
}

int sx_bench_rows(const sx_bench_options *options)
{
    int status = 0;
    for (uint32_t i = 0; i < SX_COUNT(rows) && status == 0; i++) {
        status = run(options, &rows[i]);
    }
    return status;
}
