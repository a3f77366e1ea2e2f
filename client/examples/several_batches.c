/* several_batches.c - one module that serves several batch sizes; uses nothing but client/symplex.h.
 *
 *     symplex-example-batches tests/models/mlp.onnx
 *
 * The model is the multi-layer perceptron of tests/models: x f32[batch, 784] to y f32[batch, 10]. A row of y
 * does not depend on the batch that it is computed in, to the last bit: the program checks that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/symplex.h"

#define BATCH_MAX 16
#define COLUMNS 784
#define CLASSES 10

static int fail(const char *what, const symplex_error *error)
{
    fprintf(stderr, "%s: %s (%s)\n", what, error->text, error->name);
    return EXIT_FAILURE;
}

/* One module with a variant for each of three values of batch. */
static symplex_code compile(const char *path, symplex_module **module, symplex_error *error)
{
    static const symplex_dim dims[] = {{"batch", 1}, {"batch", 4}, {"batch", BATCH_MAX}};
    symplex_program program = {.path = path, .dims = dims, .dim_count = 3};
    symplex_client *client;
    void *bytes = NULL;
    size_t size = 0;
    symplex_code code = symplex_open(NULL, &client, error);
    if (code == SYMPLEX_OK) {
        code = symplex_compile(client, &program, &bytes, &size, NULL, error);
        symplex_close(client);
    }
    if (code == SYMPLEX_OK) {
        code = symplex_module_open(bytes, size, 0, module, error);
        symplex_free(bytes);
    }
    return code;
}

/* Runs the module for one batch size; x and y have room for the largest. */
static symplex_code run(symplex_module *module, int64_t batch, float *x, float *y,
                        symplex_error *error)
{
    symplex_dim dim = {"batch", batch};
    symplex_tensor input, output;
    size_t in = symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "x");
    size_t out = symplex_module_find(module, SYMPLEX_OUTPUT_TENSOR, "y");
    symplex_code code = symplex_module_choose(module, &dim, 1, error);
    code = code == SYMPLEX_OK ? symplex_module_tensor(module, in, &input, error) : code;
    code = code == SYMPLEX_OK ? symplex_module_tensor(module, out, &output, error) : code;
    if (code == SYMPLEX_OK && (input.size > sizeof(float) * BATCH_MAX * COLUMNS ||
                               output.size > sizeof(float) * BATCH_MAX * CLASSES)) {
        error->name = "USAGE";
        code = error->code = SYMPLEX_USAGE; /* another model: its tensors have no room in x and y */
        (void)snprintf(error->text, sizeof(error->text),
                       "x of %zu bytes and y of %zu, at most %zu and %zu", input.size, output.size,
                       sizeof(float) * BATCH_MAX * COLUMNS, sizeof(float) * BATCH_MAX * CLASSES);
    }
    code = code == SYMPLEX_OK ? symplex_module_bind(module, in, x, input.size, error) : code;
    code = code == SYMPLEX_OK ? symplex_module_bind(module, out, y, output.size, error) : code;
    code = code == SYMPLEX_OK ? symplex_module_run(module, error) : code;
    if (code == SYMPLEX_OK) {
        symplex_module_info info;
        symplex_module_describe(module, &info);
        printf("%-9s x f32[%lld, %lld], %zu bytes; y f32[%lld, %lld], %zu bytes\n", info.variant,
               (long long)input.shape[0], (long long)input.shape[1], input.size,
               (long long)output.shape[0], (long long)output.shape[1], output.size);
    }
    return code;
}

/* Every batch size that the module serves, and one that it does not. */
static int run_all(symplex_module *module)
{
    static float x[BATCH_MAX * COLUMNS], y[BATCH_MAX * CLASSES];
    float first[CLASSES] = {0};
    symplex_error error;
    symplex_symbol batch;
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++) {
        x[i] = (float)(i * 37 % 101) / 101.0F;
    }
    if (symplex_module_symbol(module, 0, &batch, &error) != SYMPLEX_OK) {
        return fail("symbol", &error);
    }
    for (size_t r = 0; r < batch.range_count; r++) {
        const symplex_range *range = &batch.range[r];
        for (int64_t value = range->low; value <= range->high; value += range->step) {
            if (run(module, value, x, y, &error) != SYMPLEX_OK) {
                return fail("run", &error);
            }
            if (r > 0 && memcmp(first, y, sizeof(first)) != 0) {
                fprintf(stderr, "row 0 depends on the batch\n");
                return EXIT_FAILURE;
            }
            memcpy(first, y, sizeof(first));
        }
    }
    if (run(module, 7, x, y, &error) != SYMPLEX_INPUT) {
        fprintf(stderr, "batch=7 ran\n");
        return EXIT_FAILURE;
    }
    printf("refused   %s\n", error.text);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    symplex_error error;
    symplex_module *module;
    if (compile(argc > 1 ? argv[1] : "tests/models/mlp.onnx", &module, &error) != SYMPLEX_OK) {
        return fail("compile", &error);
    }
    int status = run_all(module);
    symplex_module_close(module);
    return status;
}
