/* bench_adamw.c - a step of AdamW on a million parameters: one program, whose three results one kernel makes, against
 * three programs with one result each. In the same rounds; both move the memory of the same tensors, which is more than
 * the caches hold. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/symplex.h"

#define ELEMENTS 1048576
#define STEPS 5 /* of one round and way */
#define ROUNDS_DEFAULT 15
#define ROUNDS_MAX 1000
#define WAYS 4 /* the whole, then one program for each state */
#define TENSORS 7

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

static const char *const text[WAYS] = {
    BEGIN IN("w") IN("m") IN("v") FIRST SECOND THIRD
    "return %w2 as \"w2\", %m2 as \"m2\", %v2 as \"v2\"\n}\n",
    BEGIN IN("m") FIRST "return %m2 as \"m2\"\n}\n",
    BEGIN IN("v") SECOND "return %v2 as \"v2\"\n}\n",
    "sx 1\ngraph \"adamw\" {\n" IN("w") IN("m2") IN("v2") THIRD "return %w2 as \"w2\"\n}\n",
};
static const char *const name[TENSORS] = {"g", "w", "m", "v", "w2", "m2", "v2"};

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
static bool bind(symplex_module *module, float *const *memory, symplex_error *error)
{
    bool good = true;
    for (uint32_t t = 0; t < 2 * TENSORS && good; t++) {
        symplex_role role = t < TENSORS ? SYMPLEX_INPUT_TENSOR : SYMPLEX_OUTPUT_TENSOR;
        size_t index = symplex_module_find(module, role, name[t % TENSORS]);
        good = index == SYMPLEX_NO_TENSOR ||
               symplex_module_bind(module, index, memory[t % TENSORS], ELEMENTS * sizeof(float),
                                   error) == SYMPLEX_OK;
    }
    return good;
}

/* Nanoseconds of a step by the modules from `first` to `last`; negative: one failed. */
static double time_steps(symplex_module *const *module, uint32_t first, uint32_t last,
                         symplex_error *error)
{
    bool good = true;
    uint64_t start = sx_bench_now_ns();
    for (uint32_t i = 0; i < STEPS; i++) {
        for (uint32_t m = first; m <= last; m++) {
            good &= symplex_module_run(module[m], error) == SYMPLEX_OK;
        }
    }
    return good ? (double)(sx_bench_now_ns() - start) / STEPS : -1;
}

/* Both ways in turns; the results of the second have to be the bits of the first. */
static bool measure(symplex_module *const *module, float *const *memory, uint32_t rounds,
                    double sample[2][ROUNDS_MAX], symplex_error *error)
{
    bool good = true;
    for (uint32_t r = 0; r < rounds && good; r++) {
        sample[0][r] = time_steps(module, 0, 0, error);
        float whole = memory[4][r] + memory[5][r] + memory[6][r];
        sample[1][r] = time_steps(module, 1, WAYS - 1, error);
        float parts = memory[4][r] + memory[5][r] + memory[6][r];
        good = sample[0][r] >= 0 && sample[1][r] >= 0 && memcmp(&whole, &parts, sizeof(whole)) == 0;
    }
    return good;
}

static double sample[2][ROUNDS_MAX];

int sx_bench_adamw(const sx_bench_options *options)
{
    static const char case_name[] = "million";
    uint32_t rounds = options->rounds > 0 ? options->rounds : ROUNDS_DEFAULT;
    symplex_module *module[WAYS] = {NULL};
    float *memory[TENSORS] = {NULL};
    symplex_error error = {.text = ""};
    bool good = true;
    if (!sx_bench_wants(options, case_name)) {
        return 0;
    }
    rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    for (uint32_t t = 0; t < TENSORS && good; t++) {
        memory[t] = malloc(ELEMENTS * sizeof(float));
        good = memory[t] != NULL;
        for (uint32_t i = 0; i < ELEMENTS && good; i++) {
            memory[t][i] = 0.25F + (float)(i % 1024) / 2048;
        }
    }
    for (uint32_t m = 0; m < WAYS && good; m++) {
        module[m] = open_module(text[m], options->threads, &error);
        good = module[m] != NULL && bind(module[m], memory, &error);
    }
    good = good && measure(module, memory, rounds, sample, &error);
    for (uint32_t m = 0; m < WAYS; m++) {
        symplex_module_close(module[m]);
    }
    for (uint32_t t = 0; t < TENSORS; t++) {
        free(memory[t]);
    }
    if (!good) {
        (void)fprintf(stderr, "symplex-bench adamw: %s\n",
                      error.text[0] != '\0' ? error.text : "other bits, or no memory");
        return 1;
    }
    sx_bench_row row = {.bench = "adamw",
                        .case_name = case_name,
                        .metric = "step",
                        .value = sx_bench_median(sample[0], rounds) / 1e3,
                        .unit = "us",
                        .peer = "a kernel for each of the three results",
                        .peer_value = sx_bench_median(sample[1], rounds) / 1e3};
    sx_bench_put(options, &row);
    return 0;
}
