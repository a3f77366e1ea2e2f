/* compile_and_run.c - compiles a model, runs it, and uses nothing but client/symplex.h.
 *
 *     symplex-example tests/models/mlp.onnx
 *
 * The model is the multi-layer perceptron of tests/models: x f32[batch, 784] to y f32[batch, 10], which ends
 * in a softmax; so every row of y adds up to 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/symplex.h"

#define BATCH 4

static int fail(const char *what, const symplex_error *error)
{
    fprintf(stderr, "%s: %s (%s)\n", what, error->text, error->name);
    if (error->hint[0] != '\0') {
        fprintf(stderr, "%s\n", error->hint);
    }
    return EXIT_FAILURE;
}

static void say(void *self, const char *text)
{
    (void)self;
    fprintf(stderr, "symplex: %s\n", text);
}

/* Memory for every input and output; the module carries its weights. Returns the outputs of tensor `y`. */
static float *bind_all(symplex_module *module, float **memory, size_t most, symplex_error *error)
{
    float *y = NULL;
    for (size_t i = 0; i < symplex_module_tensor_count(module); i++) {
        symplex_tensor tensor;
        if (symplex_module_tensor(module, i, &tensor, error) != SYMPLEX_OK || i >= most) {
            return NULL;
        }
        if (tensor.role == SYMPLEX_WEIGHT_TENSOR) {
            continue;
        }
        memory[i] = malloc(tensor.size);
        if (memory[i] == NULL ||
            symplex_module_bind(module, i, memory[i], tensor.size, error) != SYMPLEX_OK) {
            return NULL;
        }
        for (size_t k = 0; tensor.role == SYMPLEX_INPUT_TENSOR && k < tensor.size / 4; k++) {
            memory[i][k] = (float)(k * 37 % 101) / 101.0F;
        }
        printf("%-6s %s %s[%lld, %lld]\n", tensor.role == SYMPLEX_INPUT_TENSOR ? "input" : "output",
               tensor.name, tensor.dtype_name, (long long)tensor.shape[0],
               (long long)tensor.shape[1]);
        y = tensor.role == SYMPLEX_OUTPUT_TENSOR ? memory[i] : y;
    }
    return y;
}

static int run(symplex_module *module)
{
    symplex_error error = {.code = SYMPLEX_OK, .name = "OK", .text = "no memory"};
    symplex_check check;
    float *memory[64] = {NULL};
    int status = EXIT_SUCCESS;
    const float *y = bind_all(module, memory, 64, &error);
    if (y == NULL) {
        status = fail("bind", &error);
    } else if (symplex_module_run(module, &error) != SYMPLEX_OK) {
        status = fail("run", &error);
    } else if (symplex_module_check(module, &check, &error) != SYMPLEX_OK) {
        status = fail("check", &error);
    }
    for (int row = 0; status == EXIT_SUCCESS && row < BATCH; row++) {
        double sum = 0;
        for (int column = 0; column < 10; column++) {
            sum += (double)y[row * 10 + column];
        }
        printf("row %d  sum %.6f\n", row, sum);
        status = fabs(sum - 1.0) < 1e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    for (int i = 0; i < 64; i++) {
        free(memory[i]);
    }
    return status;
}

int main(int argc, char **argv)
{
    symplex_error error;
    symplex_client *client;
    symplex_module *module;
    symplex_compiled made;
    void *bytes;
    size_t size;
    symplex_options options = {.message = say};
    symplex_dim batch = {"batch", BATCH};
    symplex_program program = {
        .path = argc > 1 ? argv[1] : "tests/models/mlp.onnx", .dims = &batch, .dim_count = 1};
    if (symplex_open(&options, &client, &error) != SYMPLEX_OK) {
        return fail("open", &error);
    }
    if (symplex_compile(client, &program, &bytes, &size, &made, &error) != SYMPLEX_OK) {
        symplex_close(client);
        return fail("compile", &error);
    }
    symplex_close(client);
    printf("module %zu bytes, key %.12s, from %s\n", size, made.key, made.tier);
    symplex_code opened = symplex_module_open(bytes, size, 0, &module, &error);
    symplex_free(bytes);
    if (opened != SYMPLEX_OK) {
        return fail("load", &error);
    }
    int status = run(module);
    symplex_module_close(module);
    return status;
}
