/* Weights that are bound once, through the public library: the same bits as inputs give, work on them that is done
 * once and again when they change, and several handles on one module, also at the same time. */
#include "client/symplex.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "tests/client/api.h"
#include "tests/lib/test.h"

#define TARGET "x86-64-v3" /* runs wherever modules run */
#define ROWS 5
#define DEPTH 48
#define COLUMNS 72
#define LAUNCHES_MAX 64
#define RUNS 300

/* y = x w + b, and what of it is weights. */
static const char program_text[] =
    "sx 1\n"
    "graph \"layer\" {\n"
    "    %%0 = parameter {name = \"x\", weight = 0} : f32[5, 48]\n"
    "    %%1 = parameter {name = \"w\", weight = %d} : f32[72, 48]\n"
    "    %%2 = parameter {name = \"b\", weight = %d} : f32[5, 72]\n"
    "    %%3 = dot_general(%%0, %%1) {lhs_contract = [1], rhs_contract = [1]} : f32[5, 72]\n"
    "    %%4 = add(%%3, %%2) : f32[5, 72]\n"
    "    return %%4 as \"y\"\n"
    "}\n";

typedef struct {
    float x[ROWS * DEPTH], w[COLUMNS * DEPTH], b[ROWS * COLUMNS];
} values;

static void draw(values *v, sx_rng *rng)
{
    float *all = v->x;
    _Static_assert(sizeof(*v) == sizeof(v->x) + sizeof(v->w) + sizeof(v->b), "one after the other");
    for (size_t i = 0; i < sizeof(*v) / sizeof(float); i++) {
        all[i] = sx_rng_f32(rng);
    }
}

static symplex_module *open_layer(int weights, uint32_t threads)
{
    char text[sizeof(program_text) + 16];
    symplex_options options = {.daemon = SYMPLEX_DAEMON_NEVER};
    symplex_client *client = NULL;
    symplex_module *module = NULL;
    void *bytes = NULL;
    size_t size = 0;
    (void)snprintf(text, sizeof(text), program_text, weights, weights);
    symplex_program program = {
        .bytes = text, .size = strlen(text), .target = TARGET, .flags = SYMPLEX_EXACT};
    ck_ok(symplex_open(&options, &client, &error));
    ck_ok(symplex_compile(client, &program, &bytes, &size, NULL, &error));
    ck_ok(symplex_module_open(bytes, size, threads, &module, &error));
    symplex_free(bytes);
    symplex_close(client);
    return module;
}

static size_t find(const symplex_module *module, symplex_role role, const char *name)
{
    size_t index = symplex_module_find(module, role, name);
    ck_assert_msg(index != SYMPLEX_NO_TENSOR, "tensor %s is not there", name);
    return index;
}

/* Binds both weights with these versions; how many were bound. */
static size_t bind_weights(symplex_module *module, const values *v, uint64_t of_w, uint64_t of_b)
{
    size_t changed = 99;
    symplex_weight weights[] = {
        {find(module, SYMPLEX_WEIGHT_TENSOR, "w"), v->w, sizeof(v->w), of_w},
        {find(module, SYMPLEX_WEIGHT_TENSOR, "b"), v->b, sizeof(v->b), of_b}};
    ck_ok(symplex_module_bind_weights(module, weights, 2, &changed, &error));
    return changed;
}

static void run(symplex_module *module, values *v, float y[ROWS * COLUMNS])
{
    symplex_memory memory[] = {
        {find(module, SYMPLEX_INPUT_TENSOR, "x"), v->x, sizeof(v->x)},
        {find(module, SYMPLEX_OUTPUT_TENSOR, "y"), y, ROWS * COLUMNS * sizeof(float)}};
    ck_ok(symplex_module_call(module, NULL, 0, memory, 2, &error));
}

/* What the program gives whose parameters are all inputs. */
static void run_inputs(symplex_module *module, values *v, float y[ROWS * COLUMNS])
{
    symplex_memory memory[] = {
        {find(module, SYMPLEX_INPUT_TENSOR, "x"), v->x, sizeof(v->x)},
        {find(module, SYMPLEX_INPUT_TENSOR, "w"), v->w, sizeof(v->w)},
        {find(module, SYMPLEX_INPUT_TENSOR, "b"), v->b, sizeof(v->b)},
        {find(module, SYMPLEX_OUTPUT_TENSOR, "y"), y, ROWS * COLUMNS * sizeof(float)}};
    ck_ok(symplex_module_call(module, NULL, 0, memory, 4, &error));
}

static void ck_same(const float *a, const float *b)
{
    ck_assert_int_eq(memcmp(a, b, ROWS * COLUMNS * sizeof(float)), 0);
}

/* How many launches of work on weights alone the next run does. */
static size_t once_in_next_run(symplex_module *module)
{
    uint64_t ns[LAUNCHES_MAX];
    size_t count = symplex_module_launch_count(module), done = 0;
    ck_assert_uint_le(count, LAUNCHES_MAX);
    memset(ns, 0, sizeof(ns));
    ck_ok(symplex_module_run_timed(module, ns, count, &error));
    for (size_t i = 0; i < count; i++) {
        symplex_launch launch;
        ck_ok(symplex_module_launch(module, i, &launch, &error));
        done += launch.once && ns[i] > 0;
    }
    return done;
}

START_TEST(bound_weights_give_the_bits_of_inputs)
{
    static values v;
    static float y[ROWS * COLUMNS], want[ROWS * COLUMNS];
    uint64_t seed = sx_test_seed();
    sx_rng rng = {seed};
    symplex_module *bound = open_layer(1, 2), *free_ones = open_layer(0, 2);
    for (uint32_t round = 0; round < 4; round++) {
        draw(&v, &rng);
        ck_assert_uint_eq(bind_weights(bound, &v, round, round), 2);
        run(bound, &v, y);
        run_inputs(free_ones, &v, want);
        ck_same(y, want);
    }
    symplex_module_close(bound);
    symplex_module_close(free_ones);
}
END_TEST

/* The work is done once, and again where memory or version of a weight that it reads is another one. */
START_TEST(work_on_weights_is_done_once)
{
    static values v, other;
    static float y[ROWS * COLUMNS], before[ROWS * COLUMNS], want[ROWS * COLUMNS];
    uint64_t seed = sx_test_seed();
    sx_rng rng = {seed};
    symplex_module *bound = open_layer(1, 1), *free_ones = open_layer(0, 1);
    size_t w = find(bound, SYMPLEX_WEIGHT_TENSOR, "w"), b = find(bound, SYMPLEX_WEIGHT_TENSOR, "b");
    ck_assert_int_eq(symplex_module_weight_packed(bound, w), 1);
    ck_assert_int_eq(symplex_module_weight_packed(bound, b), 0);
    ck_assert_int_eq(symplex_module_weight_packed(bound, SYMPLEX_NO_TENSOR), 0);
    draw(&v, &rng);
    ck_assert_uint_eq(bind_weights(bound, &v, 0, 0), 2);
    run(bound, &v, before);
    ck_assert_uint_eq(bind_weights(bound, &v, 0, 0), 0);
    ck_assert_uint_eq(once_in_next_run(bound), 0);

    v.w[0] += 1; /* its version says that nothing changed, so it is not read again */
    ck_assert_uint_eq(bind_weights(bound, &v, 0, 0), 0);
    run(bound, &v, y);
    ck_same(y, before);
    ck_assert_uint_eq(bind_weights(bound, &v, 1, 0), 1);
    ck_assert_uint_ge(once_in_next_run(bound), 1);
    run_inputs(free_ones, &v, want);
    run(bound, &v, y);
    ck_same(y, want);

    v.b[0] += 1; /* it is read where it lies */
    run_inputs(free_ones, &v, want);
    run(bound, &v, y);
    ck_same(y, want);
    ck_assert_uint_eq(bind_weights(bound, &v, 1, 1), 1);
    ck_assert_uint_eq(once_in_next_run(bound), 0);

    other = v; /* other memory, the same versions */
    other.w[7] -= 2;
    ck_assert_uint_eq(bind_weights(bound, &other, 1, 1), 2);
    run_inputs(free_ones, &other, want);
    run(bound, &other, y);
    ck_same(y, want);

    ck_ok(symplex_module_bind(bound, w, other.w, sizeof(other.w), &error)); /* of no version */
    ck_assert_uint_eq(bind_weights(bound, &other, 1, 1), 1);
    symplex_module_close(bound);
    symplex_module_close(free_ones);
}
END_TEST

/* ---- several handles ---- */

typedef struct {
    symplex_module *module;
    values v;
    float want[ROWS * COLUMNS];
    uint32_t wrong;
    pthread_t thread;
} user;

static void *run_often(void *argument)
{
    user *u = argument;
    float y[ROWS * COLUMNS];
    for (uint32_t i = 0; i < RUNS; i++) {
        symplex_error mine;
        symplex_memory memory[] = {
            {symplex_module_find(u->module, SYMPLEX_INPUT_TENSOR, "x"), u->v.x, sizeof(u->v.x)},
            {symplex_module_find(u->module, SYMPLEX_OUTPUT_TENSOR, "y"), y, sizeof(y)}};
        memset(y, 0, sizeof(y));
        u->wrong += symplex_module_call(u->module, NULL, 0, memory, 2, &mine) != SYMPLEX_OK ||
                    memcmp(y, u->want, sizeof(y)) != 0;
    }
    return NULL;
}

START_TEST(handles_have_weights_of_their_own_and_run_together)
{
    static user users[3];
    uint64_t seed = sx_test_seed();
    sx_rng rng = {seed};
    symplex_module *free_ones = open_layer(0, 1);
    users[0].module = open_layer(1, 3);
    ck_ok(symplex_module_share(users[0].module, &users[1].module, &error));
    ck_ok(symplex_module_share(users[1].module, &users[2].module, &error));
    for (size_t i = 0; i < SX_COUNT(users); i++) {
        draw(&users[i].v, &rng);
        run_inputs(free_ones, &users[i].v, users[i].want);
        ck_assert_uint_eq(bind_weights(users[i].module, &users[i].v, 0, 0), 2);
    }
    for (size_t i = 0; i < SX_COUNT(users); i++) {
        ck_assert_int_eq(pthread_create(&users[i].thread, NULL, run_often, &users[i]), 0);
    }
    for (size_t i = 0; i < SX_COUNT(users); i++) {
        ck_assert_int_eq(pthread_join(users[i].thread, NULL), 0);
        ck_assert_uint_eq(users[i].wrong, 0);
    }
    symplex_module_close(users[0].module); /* what they share is there until the last one ends */
    symplex_module_close(users[2].module);
    float y[ROWS * COLUMNS];
    run(users[1].module, &users[1].v, y);
    ck_same(y, users[1].want);
    symplex_module_close(users[1].module);
    symplex_module_close(free_ones);
}
END_TEST

/* Calls after the first have a short way. It takes other memory each time; what is wrong is named by the long one, and
 * nothing is run then. */
START_TEST(later_calls_are_checked)
{
    static values v[2];
    static float y[2][ROWS * COLUMNS], want[2][ROWS * COLUMNS], before[ROWS * COLUMNS];
    sx_rng rng = {sx_test_seed()};
    symplex_module *module = open_layer(0, 1);
    for (int i = 0; i < 2; i++) {
        symplex_module *fresh = open_layer(0, 1);
        draw(&v[i], &rng);
        run_inputs(fresh, &v[i], want[i]);
        symplex_module_close(fresh);
    }
    for (int round = 0; round < 6; round++) {
        int i = round % 2;
        memset(y, 0, sizeof(y));
        run_inputs(module, &v[i], y[i]);
        ck_same(y[i], want[i]);
        ck_assert_int_eq(error.code, SYMPLEX_OK);
        symplex_memory memory[] = {
            {find(module, SYMPLEX_INPUT_TENSOR, "x"), v[1 - i].x, sizeof(v[0].x)},
            {find(module, SYMPLEX_INPUT_TENSOR, "w"), v[1 - i].w, sizeof(v[0].w) - 4}};
        memcpy(before, y[i], sizeof(before));
        ck_fails(symplex_module_call(module, NULL, 0, memory, 2, &error), SYMPLEX_INPUT,
                 "tensor w: 13820 bytes given, it has 13824");
        memory[1].memory = NULL;
        ck_fails(symplex_module_call(module, NULL, 0, memory, 2, &error), SYMPLEX_INPUT,
                 "tensor w");
        memory[1].index = SYMPLEX_NO_TENSOR;
        ck_fails(symplex_module_call(module, NULL, 0, memory, 2, &error), SYMPLEX_USAGE,
                 "no tensor");
        ck_same(y[i], before);
    }
    symplex_module_close(module);
}
END_TEST

START_TEST(wrong_weights_are_named)
{
    static values v;
    static float y[ROWS * COLUMNS];
    symplex_module *module = open_layer(1, 1), *another = module;
    size_t w = find(module, SYMPLEX_WEIGHT_TENSOR, "w"),
           b = find(module, SYMPLEX_WEIGHT_TENSOR, "b");
    size_t x = find(module, SYMPLEX_INPUT_TENSOR, "x"),
           out = find(module, SYMPLEX_OUTPUT_TENSOR, "y");
    symplex_weight wrong_size[] = {{b, v.b, sizeof(v.b), 0}, {w, v.w, 12, 0}};
    symplex_weight no_memory = {w, NULL, sizeof(v.w), 0}, input = {x, v.x, sizeof(v.x), 0},
                   nothing = {SYMPLEX_NO_TENSOR, v.x, 4, 0};
    ck_fails(symplex_module_bind_weights(module, wrong_size, 2, NULL, &error), SYMPLEX_INPUT,
             "weight w: 12 bytes given, it has 13824");
    symplex_tensor tensor;
    ck_ok(symplex_module_tensor(module, b, &tensor, &error));
    ck_assert_int_eq(tensor.bound, 0); /* none of them */
    ck_fails(symplex_module_bind_weights(module, &no_memory, 1, NULL, &error), SYMPLEX_INPUT,
             "weight w: 13824 bytes given without memory");
    ck_fails(symplex_module_bind_weights(module, &input, 1, NULL, &error), SYMPLEX_USAGE,
             "tensor x is no weight");
    ck_fails(symplex_module_bind_weights(module, &nothing, 1, NULL, &error), SYMPLEX_USAGE,
             "is no weight");
    ck_fails(symplex_module_bind_weights(module, NULL, 1, NULL, &error), SYMPLEX_USAGE, "needed");
    ck_fails(symplex_module_bind_weights(NULL, &input, 1, NULL, &error), SYMPLEX_USAGE, "needed");
    ck_fails(symplex_module_share(NULL, &another, &error), SYMPLEX_USAGE, "needed");
    ck_fails(symplex_module_share(module, NULL, &error), SYMPLEX_USAGE, "needed");
    ck_ok(symplex_module_bind(module, x, v.x, sizeof(v.x), &error));
    ck_ok(symplex_module_bind(module, out, y, sizeof(y), &error));
    ck_fails(symplex_module_run(module, &error), SYMPLEX_INPUT, "is not bound");
    symplex_module_close(module);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("symplex_weights");
    TCase *all = tcase_create("all");
    tcase_add_test(all, bound_weights_give_the_bits_of_inputs);
    tcase_add_test(all, work_on_weights_is_done_once);
    tcase_add_test(all, handles_have_weights_of_their_own_and_run_together);
    tcase_add_test(all, later_calls_are_checked);
    tcase_add_test(all, wrong_weights_are_named);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
