/* Weights that a module leaves in the file of its model (symplex_compile_open): the bits are those of a module that
 * carries them, the file may change, and where they are needed again they are read again or their absence is named. */
#include "client/symplex.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/rng.h"
#include "tests/client/api.h"
#include "tests/lib/test.h"

#define MLP SX_SOURCE_DIR "/tests/models/mlp.onnx"
#define TARGET "x86-64-v3" /* runs wherever modules run */
#define BATCH 64
#define LAUNCHES_MAX 64
#define LARGEST "fc0.weight"
#define LARGEST_COUNT (784 * 512)

static char folder[256], path[300];
static symplex_client *client;
static float x[BATCH * 784], other[LARGEST_COUNT];

/* A model of our own to change. */
static void setup(void)
{
    symplex_options options = {.daemon = SYMPLEX_DAEMON_NEVER};
    sx_rng rng = {sx_test_seed()};
    sx_buf model;
    ck_ok(symplex_open(&options, &client, &error));
    sx_test_mkdtemp(folder);
    (void)snprintf(path, sizeof(path), "%s/mlp.onnx", folder);
    sx_buf_init(&model, (size_t)4 << 20);
    sx_test_read_file(MLP, &model);
    FILE *copy = fopen(path, "wb");
    ck_assert_ptr_nonnull(copy);
    ck_assert_uint_eq(fwrite(model.ptr, 1, model.len, copy), model.len);
    ck_assert_int_eq(fclose(copy), 0);
    sx_buf_fini(&model);
    for (size_t i = 0; i < SX_COUNT(x); i++) {
        x[i] = sx_rng_f32(&rng);
    }
    for (size_t i = 0; i < SX_COUNT(other); i++) {
        other[i] = sx_rng_f32(&rng) / 16;
    }
}

static void teardown(void)
{
    symplex_close(client);
    sx_test_rmtree(folder);
}

static symplex_program program_of(symplex_dim *dim)
{
    *dim = (symplex_dim){"batch", BATCH};
    return (symplex_program){.path = path, .target = TARGET, .dims = dim, .dim_count = 1};
}

static symplex_module *open_model(void)
{
    symplex_dim dim;
    symplex_program program = program_of(&dim);
    symplex_module *module;
    ck_ok(symplex_compile_open(client, &program, 1, &module, NULL, &error));
    return module;
}

/* The same module with its weights in the file of it. */
static symplex_module *open_whole(void)
{
    symplex_dim dim;
    symplex_program program = program_of(&dim);
    symplex_module *module;
    void *bytes;
    size_t size;
    ck_ok(symplex_compile(client, &program, &bytes, &size, NULL, &error));
    ck_ok(symplex_module_open(bytes, size, 1, &module, &error));
    symplex_free(bytes);
    return module;
}

static size_t find(const symplex_module *module, symplex_role role, const char *name)
{
    size_t index = symplex_module_find(module, role, name);
    ck_assert_msg(index != SYMPLEX_NO_TENSOR, "tensor %s is not there", name);
    return index;
}

static void bind(symplex_module *module, float *y)
{
    ck_ok(
        symplex_module_bind(module, find(module, SYMPLEX_INPUT_TENSOR, "x"), x, sizeof(x), &error));
    ck_ok(symplex_module_bind(module, find(module, SYMPLEX_OUTPUT_TENSOR, "y"), y,
                              BATCH * 10 * sizeof(*y), &error));
}

static void run(symplex_module *module, float *y)
{
    memset(y, 0xff, BATCH * 10 * sizeof(*y));
    bind(module, y);
    ck_ok(symplex_module_run(module, &error));
}

static void bind_largest(symplex_module *module)
{
    size_t index = find(module, SYMPLEX_WEIGHT_TENSOR, LARGEST);
    ck_ok(symplex_module_bind(module, index, other, sizeof(other), &error));
}

/* Bits of the model with the other weight, and before that of the model. */
static void expect(float *model, float *changed)
{
    symplex_module *module = open_whole();
    run(module, model);
    bind_largest(module);
    run(module, changed);
    ck_assert_mem_ne(model, changed, BATCH * 10 * sizeof(*model));
    symplex_module_close(module);
}

/* Work on weights is there to be done, and the model's largest weight is for it alone. */
static void check_left(const symplex_module *module)
{
    size_t once = 0;
    ck_assert_int_eq(
        symplex_module_weight_packed(module, find(module, SYMPLEX_WEIGHT_TENSOR, LARGEST)), 1);
    for (size_t i = 0; i < symplex_module_launch_count(module); i++) {
        symplex_launch launch;
        ck_ok(symplex_module_launch(module, i, &launch, &error));
        once += launch.once != 0;
    }
    ck_assert_uint_ge(once, 2); /* so that a change of one weight needs another one again */
}

/* Whatever happens to the file: runs have what opening made of it, and so has another handle, also after the first is
 * closed. */
START_TEST(the_file_may_change)
{
    static float model[BATCH * 10], changed[BATCH * 10], y[BATCH * 10];
    expect(model, changed);
    symplex_module *module = open_model(), *another;
    check_left(module);
    ck_assert_int_eq(truncate(path, 0), 0);
    run(module, y);
    ck_assert_mem_eq(y, model, sizeof(y));
    ck_ok(symplex_module_share(module, &another, &error));
    symplex_module_close(module);
    run(another, y);
    ck_assert_mem_eq(y, model, sizeof(y));
    symplex_module_close(another);
}
END_TEST

/* Another weight is bound: the rest is read again from the file, which may have lost its name. Handles that are shared
 * then begin with the weights of the model. */
START_TEST(weights_come_again)
{
    static float model[BATCH * 10], changed[BATCH * 10], y[BATCH * 10];
    symplex_check check;
    expect(model, changed);
    symplex_module *module = open_model(), *early, *late;
    ck_ok(symplex_module_share(module, &early, &error));
    ck_assert_int_eq(unlink(path), 0);
    bind_largest(module);
    run(module, y);
    ck_assert_mem_eq(y, changed, sizeof(y));
    ck_ok(symplex_module_check(module, &check, &error));
    ck_assert_int_eq(check.passed, 1);
    ck_ok(symplex_module_share(module, &late, &error));
    symplex_module_close(module);
    run(late, y);
    ck_assert_mem_eq(y, model, sizeof(y));
    ck_ok(symplex_module_check(late, &check, &error));
    ck_assert_int_eq(check.passed, 1);
    run(early, y);
    ck_assert_mem_eq(y, model, sizeof(y));
    bind_largest(early);
    run(early, y);
    ck_assert_mem_eq(y, changed, sizeof(y));
    symplex_module_close(early);
    symplex_module_close(late);
}
END_TEST

/* A file that was changed is not read again: the run says so, and goes on where all weights are bound. */
START_TEST(a_changed_file_is_named)
{
    static float y[BATCH * 10], want[BATCH * 10], zeros[LARGEST_COUNT];
    symplex_module *module = open_model(), *whole = open_whole();
    ck_assert_int_eq(truncate(path, 100), 0);
    bind(module, y);
    ck_fails(symplex_module_check(module, NULL, &error), SYMPLEX_INPUT, "was changed since");
    ck_ok(symplex_module_run(module, &error));
    bind_largest(module);
    ck_fails(symplex_module_run(module, &error), SYMPLEX_INPUT, "was changed since");
    for (size_t i = 0; i < symplex_module_tensor_count(module); i++) {
        symplex_tensor tensor;
        ck_ok(symplex_module_tensor(module, i, &tensor, &error));
        if (tensor.role == SYMPLEX_WEIGHT_TENSOR && strcmp(tensor.name, LARGEST) != 0) {
            ck_assert_int_eq(tensor.bound, 1); /* it is known, though not in memory */
            ck_ok(symplex_module_bind(module, i, zeros, tensor.size, &error));
            ck_ok(symplex_module_bind(whole, i, zeros, tensor.size, &error));
        }
    }
    bind_largest(whole);
    run(whole, want);
    run(module, y);
    ck_assert_mem_eq(y, want, sizeof(y));
    symplex_module_close(module);
    symplex_module_close(whole);
}
END_TEST

/* The times of what opening did are those of the first run, once. */
START_TEST(opening_counts_for_the_first_run)
{
    static float y[BATCH * 10];
    uint64_t ns[LAUNCHES_MAX];
    for (int kind = 0; kind < 3; kind++) {
        symplex_module *module = open_model();
        size_t count = symplex_module_launch_count(module);
        ck_assert_uint_le(count, LAUNCHES_MAX);
        bind(module, y);
        if (kind == 1) {
            ck_ok(symplex_module_run(module, &error)); /* nobody asked */
        }
        if (kind == 2) {
            bind_largest(module);
        }
        for (int round = 0; round < 2; round++) {
            ck_ok(symplex_module_run_timed(module, ns, count, &error));
            for (size_t i = 0; i < count; i++) {
                symplex_launch launch;
                ck_ok(symplex_module_launch(module, i, &launch, &error));
                ck_assert_msg((ns[i] > 0) == (launch.once == 0 || (round == 0 && kind != 1)),
                              "kind %d, round %d, launch %zu: %llu ns", kind, round, i,
                              (unsigned long long)ns[i]);
            }
        }
        symplex_module_close(module);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("symplex_left");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, the_file_may_change);
    tcase_add_test(all, weights_come_again);
    tcase_add_test(all, a_changed_file_is_named);
    tcase_add_test(all, opening_counts_for_the_first_run);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
