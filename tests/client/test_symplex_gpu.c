/* The public library with memory and streams of the caller, on the CUDA driver of the tests. */
#include "client/symplex.h"

#include "tests/client/api.h"
#include "tests/client/cuda/fake_driver.h"
#include "tests/lib/gen_block.h"

#define POINTS 24
#define ELEMENTS (POINTS * SX_GEN_BLOCK_THREADS)
static const int64_t grid[3] = {2, 3, 4};

static char folder[256];
static symplex_module *module;
static float x[ELEMENTS], y[ELEMENTS];

static void setup(void)
{
    sx_ctx cx;
    sx_buf bytes;
    sx_gen_module_tables tables;
    sx_ctx_init(&cx, (size_t)16 << 20);
    sx_test_mkdtemp(folder);
    fake_driver(folder, "fake", "");
    sx_buf_init(&bytes, (size_t)1 << 20);
    sx_gen_block_make(grid, 4096, &tables);
    sx_gen_module_encode(&cx, &tables, &bytes);
    ck_ok(symplex_module_open(bytes.ptr, bytes.len, 1, &module, &error));
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        x[i] = (float)i;
        y[i] = -1;
    }
}

static void teardown(void)
{
    symplex_module_close(module);
    sx_test_rmtree(folder);
}

static size_t find(symplex_role role, const char *name)
{
    size_t index = symplex_module_find(module, role, name);
    ck_assert(index != SYMPLEX_NO_TENSOR);
    return index;
}

START_TEST(test_a_graph_of_runs)
{
    fake_user u;
    symplex_module_info info;
    symplex_tensor tensor;
    size_t in = find(SYMPLEX_INPUT_TENSOR, "x"), out = find(SYMPLEX_OUTPUT_TENSOR, "y");
    fake_user_begin(&u);
    uint64_t at = fake_user_memory(&u, x, sizeof(x)), to = fake_user_memory(&u, y, sizeof(y));
    symplex_module_describe(module, &info);
    ck_assert_int_eq(info.gpu, 0);
    ck_assert_str_eq(info.gpu_name, "Fake 0");
    ck_ok(symplex_module_bind_device(module, in, at, sizeof(x), &error));
    ck_ok(symplex_module_bind_device(module, out, to, sizeof(y), &error));
    ck_ok(symplex_module_tensor(module, in, &tensor, &error));
    ck_assert_int_eq(tensor.bound, 1);
    ck_ok(symplex_module_prepare(module, &error));
    fake_user_capture(&u);
    ck_ok(symplex_module_enqueue(module, u.stream, &error));
    fake_user_captured(&u);
    for (uint32_t run = 0; run < 3; run++) { /* the graph reads what is there when it is launched */
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            x[i] = (float)(i + 1000 * run);
        }
        ck_assert(u.upload(at, x, sizeof(x), u.stream) == 0 && u.launch(u.graph, u.stream) == 0 &&
                  u.download(y, to, sizeof(y), u.stream) == 0);
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            ck_assert(y[i] == sx_gen_block_expected(grid, x, 1, i));
        }
    }
    ck_fails(symplex_module_check(module, NULL, &error), SYMPLEX_INPUT,
             "tensor x is not bound to memory of the host");
    fake_user_end(&u);
}
END_TEST

START_TEST(test_refusals)
{
    fake_user u;
    size_t in = find(SYMPLEX_INPUT_TENSOR, "x"), out = find(SYMPLEX_OUTPUT_TENSOR, "y");
    fake_user_begin(&u);
    uint64_t at = fake_user_memory(&u, x, sizeof(x)), to = fake_user_memory(&u, y, sizeof(y));
    ck_fails(symplex_module_bind_device(module, in, at + 16, sizeof(x), &error), SYMPLEX_INPUT,
             "tensor x: 0x");
    ck_assert(strstr(error.text, "is not a multiple of 64") != NULL && error.hint[0] != '\0');
    ck_fails(symplex_module_bind_device(module, in, at, 4, &error), SYMPLEX_INPUT,
             "tensor x: 4 bytes given");
    ck_fails(symplex_module_bind_device(module, 99, at, 4, &error), SYMPLEX_USAGE, "no tensor");
    ck_fails(symplex_module_bind_device(NULL, in, at, 4, &error), SYMPLEX_USAGE, "no tensor");
    ck_fails(symplex_module_enqueue(module, u.stream, &error), SYMPLEX_INPUT, "x is not bound");
    ck_ok(symplex_module_bind_device(module, in, at, sizeof(x), &error));
    ck_ok(symplex_module_bind(module, out, y, sizeof(y), &error));
    ck_fails(symplex_module_enqueue(module, u.stream, &error), SYMPLEX_USAGE, "not prepared");
    ck_ok(symplex_module_prepare(module, &error));
    ck_fails(symplex_module_enqueue(module, u.stream, &error), SYMPLEX_INPUT,
             "tensor y is not bound to memory of the GPU");
    ck_ok(symplex_module_run(module, &error)); /* one of each kind: y is copied back */
    ck_assert(y[5] == sx_gen_block_expected(grid, x, 1, 5));
    ck_ok(symplex_module_bind_device(module, out, to, sizeof(y), &error));
    ck_ok(symplex_module_enqueue(module, NULL, &error));
    ck_fails(symplex_module_prepare(NULL, &error), SYMPLEX_USAGE, "no module");
    ck_fails(symplex_module_enqueue(NULL, NULL, &error), SYMPLEX_USAGE, "no module");
    fake_user_end(&u);
}
END_TEST

/* Streams of two users of the GPU, and the module's own. */
START_TEST(test_streams_in_order)
{
    fake_user u, v;
    int (*waits)(void *, void *, int);
    size_t in = find(SYMPLEX_INPUT_TENSOR, "x"), out = find(SYMPLEX_OUTPUT_TENSOR, "y");
    fake_user_begin(&u);
    fake_user_begin(&v);
    fake_find("fakeWaits", &waits);
    uint64_t at = fake_user_memory(&u, x, sizeof(x)), to = 0;
    ck_ok(symplex_module_device_alloc(module, sizeof(y), &to, &error));
    ck_ok(symplex_module_bind_device(module, in, at, sizeof(x), &error));
    ck_ok(symplex_module_bind_device(module, out, to, sizeof(y), &error));
    ck_ok(symplex_module_follow(module, v.stream, &error)); /* nothing is marked */
    ck_ok(symplex_module_order(module, u.stream, u.stream, &error));
    ck_ok(symplex_module_prepare(module, &error));
    ck_assert_int_eq(waits(v.stream, u.stream, 0), 0);
    ck_assert_int_eq(waits(u.stream, u.stream, 0), 0);
    ck_ok(symplex_module_enqueue(module, u.stream, &error));
    ck_ok(symplex_module_mark(module, u.stream, &error));
    ck_ok(symplex_module_follow(module, v.stream, &error));
    ck_assert_int_eq(waits(v.stream, u.stream, 0), 1);
    ck_ok(symplex_module_order(module, v.stream, u.stream, &error));
    ck_assert_int_eq(waits(u.stream, v.stream, 0), 1);
    fake_user_capture(&u); /* a graph is marked by whoever launches it */
    ck_ok(symplex_module_follow(module, u.stream, &error));
    ck_ok(symplex_module_enqueue(module, u.stream, &error));
    ck_ok(symplex_module_mark(module, u.stream, &error));
    fake_user_captured(&u);
    ck_assert_int_eq(waits(u.stream, u.stream, 1), 0);
    ck_ok(symplex_module_device_read(module, to, y, sizeof(y), &error));
    ck_assert(y[5] == sx_gen_block_expected(grid, x, 1, 5));
    ck_ok(symplex_module_run(module, &error)); /* on a stream of its own, which follows too */
    ck_ok(symplex_module_device_free(module, to, &error));
    ck_ok(symplex_module_device_free(module, 0, &error));
    ck_fails(symplex_module_device_read(module, to, y, 4, &error), SYMPLEX_INPUT, "no address");
    ck_fails(symplex_module_device_alloc(module, (size_t)1 << 40, &to, &error), SYMPLEX_NOMEM,
             "memory of the caller");
    ck_fails(symplex_module_mark(NULL, NULL, &error), SYMPLEX_USAGE, "no module");
    fake_user_end(&v);
    fake_user_end(&u);
}
END_TEST

/* What the driver calls a GPU, and the row of the table that it is. */
START_TEST(test_which_gpu)
{
    static const struct {
        const char *settings, *target;
    } known[] = {
        {"name=NVIDIA_H100_80GB_HBM3 capability=90", "h100"},
        {"name=NVIDIA_H200 capability=90", "h200"},
        {"name=NVIDIA_A100-SXM4-40GB capability=80", "a100"},
        {"name=NVIDIA_GeForce_RTX_4090 capability=89", "rtx4090"},
        {"name=NVIDIA_RTX_A1000 capability=86", ""},      /* an A100 in its name alone */
        {"name=NVIDIA_H1000 capability=90", ""},          /* another number */
        {"name=NVIDIA_H100_80GB_HBM3 capability=89", ""}, /* not what an H100 is */
    };
    symplex_gpu_info info;
    for (size_t i = 0; i < SX_COUNT(known); i++) {
        ck_assert_int_eq(setenv("SX_FAKE_CUDA", known[i].settings, 1), 0);
        ck_ok(symplex_gpu_describe(0, &info, &error));
        ck_assert_msg(strcmp(info.target, known[i].target) == 0, "%s: %s", info.name, info.target);
        ck_assert(info.gpu == 0 && strchr(info.name, '_') == NULL && info.capability >= 80);
    }
    ck_fails(symplex_gpu_describe(3, &info, &error), SYMPLEX_ABSENT, "there is no GPU 3");
    ck_fails(symplex_gpu_describe(-1, &info, &error), SYMPLEX_ABSENT, "there is no GPU -1");
    ck_fails(symplex_gpu_describe(0, NULL, &error), SYMPLEX_USAGE, "no place");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("symplex gpu");
    TCase *tcase = tcase_create("symplex gpu");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_a_graph_of_runs);
    tcase_add_test(tcase, test_refusals);
    tcase_add_test(tcase, test_streams_in_order);
    tcase_add_test(tcase, test_which_gpu);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
