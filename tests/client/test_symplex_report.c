/* What the public library tells of a module: its report, its launches, their times; and what is made small. */
#include "client/symplex.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/lib/test.h"

#define MLP SX_SOURCE_DIR "/tests/models/mlp.onnx"
#define TARGET "x86-64-v3"
#define ROWS 3
#define LAUNCHES_MAX 64

static symplex_error error;

static symplex_code compile(const symplex_dim *dims, size_t count, const char *objective,
                            symplex_compiled *info, symplex_module **module)
{
    symplex_options options = {.daemon = SYMPLEX_DAEMON_NEVER};
    symplex_program program = {
        .path = MLP, .target = TARGET, .dims = dims, .dim_count = count, .objective = objective};
    symplex_client *client = NULL;
    void *bytes = NULL;
    size_t size = 0;
    symplex_code code = symplex_open(&options, &client, &error);
    ck_assert_int_eq(code, SYMPLEX_OK);
    code = symplex_compile(client, &program, &bytes, &size, info, &error);
    symplex_close(client);
    if (code == SYMPLEX_OK) {
        code = symplex_module_open(bytes, size, 1, module, &error);
    }
    symplex_free(bytes);
    return code;
}

static symplex_module *open_mlp(void)
{
    symplex_dim dim = {"batch", ROWS};
    symplex_module *module = NULL;
    symplex_code code = compile(&dim, 1, NULL, NULL, &module);
    ck_assert_msg(code == SYMPLEX_OK, "%s", error.text);
    return module;
}

static void bind_floats(symplex_module *module, symplex_role role, const char *name, float *memory,
                        size_t count)
{
    size_t index = symplex_module_find(module, role, name);
    ck_assert_int_eq(symplex_module_bind(module, index, memory, count * sizeof(float), &error),
                     SYMPLEX_OK);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* The times of the launches of one run lie one after the other inside of it; what is done once is done once. */
START_TEST(launches_are_timed)
{
    static float x[ROWS * 784], y[ROWS * 10], again[ROWS * 10];
    symplex_module *module = open_mlp();
    uint64_t ns[LAUNCHES_MAX];
    size_t count = symplex_module_launch_count(module), once = 0, kernels = 0;
    ck_assert(count > 0 && count <= LAUNCHES_MAX);
    for (size_t i = 0; i < SX_COUNT(x); i++) {
        x[i] = (float)(i * 37 % 101) / 101.0F;
    }
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, SX_COUNT(x));
    bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", y, SX_COUNT(y));
    for (int run = 0; run < 2; run++) {
        uint64_t sum = 0, start = now_ns();
        memset(ns, 0xff, sizeof(ns));
        ck_assert_int_eq(symplex_module_run_timed(module, ns, count, &error), SYMPLEX_OK);
        uint64_t took = now_ns() - start;
        for (size_t i = 0; i < count; i++) {
            symplex_launch launch;
            ck_assert_int_eq(symplex_module_launch(module, i, &launch, &error), SYMPLEX_OK);
            ck_assert(launch.kind[0] != '\0');
            ck_assert_msg(run == 0 || !launch.once || ns[i] == 0, "%s again", launch.kernel);
            ck_assert_msg(launch.once || ns[i] > 0, "%s took no time", launch.kernel);
            ck_assert(launch.estimate_ns >= launch.floor_ns && launch.floor_ns >= 0);
            once += run == 0 && launch.once ? 1 : 0;
            kernels += run == 0 && launch.kernel[0] != '\0' ? 1 : 0;
            sum += ns[i];
        }
        ck_assert_msg(sum > 0 && sum <= took, "%llu ns of launches in a run of %llu",
                      (unsigned long long)sum, (unsigned long long)took);
    }
    ck_assert(once < count && kernels > 0);
    bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", again, SX_COUNT(again));
    ck_assert_int_eq(symplex_module_run(module, &error), SYMPLEX_OK);
    ck_assert(y[0] > 0 && memcmp(y, again, sizeof(y)) == 0);
    symplex_module_close(module);
}
END_TEST

START_TEST(wrong_questions_are_refused)
{
    symplex_module *module = open_mlp();
    symplex_launch launch;
    uint64_t ns[LAUNCHES_MAX];
    size_t count = symplex_module_launch_count(module), size;
    char *json;
    ck_assert_int_eq(symplex_module_launch(module, count, &launch, &error), SYMPLEX_USAGE);
    ck_assert_int_eq(symplex_module_launch(NULL, 0, &launch, &error), SYMPLEX_USAGE);
    ck_assert_int_eq(symplex_module_launch(module, 0, NULL, &error), SYMPLEX_USAGE);
    ck_assert_int_eq(symplex_module_run_timed(module, ns, count + 1, &error), SYMPLEX_USAGE);
    ck_assert(strstr(error.text, "one time for each launch") != NULL);
    ck_assert_int_eq(symplex_module_run_timed(module, NULL, count, &error), SYMPLEX_USAGE);
    ck_assert_int_eq(symplex_module_run_timed(module, ns, count, &error), SYMPLEX_INPUT);
    ck_assert(strstr(error.text, "tensor x is not bound") != NULL);
    ck_assert_int_eq(symplex_module_report(NULL, &json, &size, &error), SYMPLEX_USAGE);
    ck_assert_int_eq(symplex_module_report(module, NULL, &size, &error), SYMPLEX_USAGE);
    symplex_module_close(module);
}
END_TEST

/* Launches are those of the variant that was chosen. */
START_TEST(a_variant_has_its_launches)
{
    symplex_dim dims[] = {{"batch", 1}, {"batch", 4}};
    symplex_module *module = NULL;
    symplex_launch launch;
    ck_assert_int_eq(compile(dims, 2, NULL, NULL, &module), SYMPLEX_OK);
    ck_assert_uint_eq(symplex_module_launch_count(module), 0);
    ck_assert_int_eq(symplex_module_launch(module, 0, &launch, &error), SYMPLEX_USAGE);
    for (size_t v = 0; v < 2; v++) {
        double flops = 0;
        symplex_module_info info;
        ck_assert_int_eq(symplex_module_choose(module, &dims[v], 1, &error), SYMPLEX_OK);
        for (size_t i = 0; i < symplex_module_launch_count(module); i++) {
            ck_assert_int_eq(symplex_module_launch(module, i, &launch, &error), SYMPLEX_OK);
            flops += launch.once ? 0 : launch.flops;
        }
        symplex_module_describe(module, &info);
        ck_assert_msg(flops > 0 && flops == info.flops, "%g operations, the variant says %g", flops,
                      info.flops);
    }
    symplex_module_close(module);
}
END_TEST

/* x is f32[batch, 784], y is f32[batch, 10]. */
START_TEST(axes_follow_symbols)
{
    symplex_dim dims[] = {{"batch", 1}, {"batch", 4}};
    symplex_module *module = NULL;
    symplex_axis axis;
    ck_assert_int_eq(compile(dims, 2, NULL, NULL, &module), SYMPLEX_OK);
    size_t in = symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "x");
    size_t out = symplex_module_find(module, SYMPLEX_OUTPUT_TENSOR, "y");
    ck_assert_int_eq(symplex_module_axis(module, in, 0, &axis, &error), SYMPLEX_OK);
    ck_assert(axis.symbol == 0 && axis.scale == 1);
    ck_assert_int_eq(symplex_module_axis(module, out, 0, &axis, &error), SYMPLEX_OK);
    ck_assert(axis.symbol == 0 && axis.scale == 1);
    ck_assert_int_eq(symplex_module_axis(module, in, 1, &axis, &error), SYMPLEX_OK);
    ck_assert(axis.symbol == SYMPLEX_NO_TENSOR && axis.scale == 0);
    ck_assert_int_eq(symplex_module_axis(module, in, 2, &axis, &error), SYMPLEX_USAGE);
    ck_assert_int_eq(symplex_module_axis(module, SYMPLEX_NO_TENSOR, 0, &axis, &error),
                     SYMPLEX_USAGE);
    symplex_module_close(module);
}
END_TEST

START_TEST(the_report_is_json)
{
    static const char *const part[] = {"{\"schema\":\"report/1\"", "\"search\":{", "\"rules\":[",
                                       "\"stages\":[{\"name\":\"", "\"rewrites\":["};
    symplex_module *module = open_mlp();
    char *json = NULL;
    size_t size = 0;
    ck_assert_int_eq(symplex_module_report(module, &json, &size, &error), SYMPLEX_OK);
    ck_assert_uint_eq(size, strlen(json));
    for (size_t i = 0; i < SX_COUNT(part); i++) {
        ck_assert_msg(strstr(json, part[i]) != NULL, "no %s in %.200s", part[i], json);
    }
    ck_assert(json[size - 1] == '}');
    symplex_free(json);
    symplex_module_close(module);
}
END_TEST

/* Another objective is another request; the default is time. */
START_TEST(objectives_are_told_apart)
{
    static const char *const objective[] = {NULL, "time", "memory", "energy"};
    symplex_compiled info[SX_COUNT(objective)];
    symplex_dim dim = {"batch", ROWS};
    symplex_module *module = NULL;
    for (size_t i = 0; i < SX_COUNT(objective); i++) {
        symplex_code code = compile(&dim, 1, objective[i], &info[i], &module);
        ck_assert_msg(code == SYMPLEX_OK, "%s", error.text);
        symplex_module_close(module);
    }
    ck_assert_str_eq(info[0].key, info[1].key);
    ck_assert_str_ne(info[0].key, info[2].key);
    ck_assert_str_ne(info[2].key, info[3].key);
    ck_assert_int_ne(compile(&dim, 1, "beauty", NULL, &module), SYMPLEX_OK);
    ck_assert_msg(strstr(error.text, "beauty") != NULL, "%s", error.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("symplex_report");
    TCase *all = tcase_create("all");
    tcase_add_test(all, launches_are_timed);
    tcase_add_test(all, wrong_questions_are_refused);
    tcase_add_test(all, a_variant_has_its_launches);
    tcase_add_test(all, axes_follow_symbols);
    tcase_add_test(all, the_report_is_json);
    tcase_add_test(all, objectives_are_told_apart);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
