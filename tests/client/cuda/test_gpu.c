/* The GPU runtime on a driver of the test's own (fake/driver.c), which also ends the process where anything is
 * left behind: what is found and refused, memory, code, times, and errors by injected failures. */
#include "client/cuda/cuda.h"

#include <string.h>

#include "tests/client/cuda/fake_driver.h"

static sx_ctx cx;
static char folder[256];
static sxg_gpu *gpu;
static const sxg_dim one = {1, 1, 1}, warp = {32, 1, 1};

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 24);
    sx_test_mkdtemp(folder);
}

static void teardown(void)
{
    sxg_close(gpu);
    gpu = NULL;
    sx_test_rmtree(folder);
    sx_ctx_fini(&cx);
}

static void enter(const char *settings)
{
    fake_driver(folder, "fake", settings);
    ck_sx_ok(&cx, sxg_open(&cx, 80, &gpu));
    ck_sx_ok(&cx, sxg_enter(&cx, gpu));
}

/* ---- which driver, which GPU ---- */

START_TEST(test_the_first_gpu_that_is_enough)
{
    sxg_info info;
    fake_driver(folder, "fake", "version=12040 capability=80 gpus=3");
    ck_sx_ok(&cx, sxg_find(&cx, 80, &info));
    ck_assert(info.ordinal == 0 && info.capability == 80 && info.driver == 12040);
    ck_assert_uint_eq(info.processors, 2);
    ck_assert_str_eq(info.name, "Fake 0");
    ck_sx_ok(&cx, sxg_find(&cx, 81, &info));
    ck_assert(info.ordinal == 1 && info.capability == 81);
    ck_sx_fails(&cx, sxg_find(&cx, 90, &info), SX_UNIMPLEMENTED,
                "compute capability 9.0 is needed, GPU 1 (Fake 1) has 8.1");
    ck_sx_fails(&cx, sxg_open(&cx, 120, &gpu), SX_UNIMPLEMENTED, "12.0 is needed");
}
END_TEST

START_TEST(test_no_driver_and_no_gpu)
{
    sxg_info info;
    fake_driver(folder, "fake", "gpus=0");
    ck_sx_fails(&cx, sxg_find(&cx, 80, &info), SX_ABSENT, "finds no GPU");
    fake_driver(folder, "fake", "fail=cuInit:1:999");
    ck_sx_fails(&cx, sxg_find(&cx, 80, &info), SX_SYSTEM,
                "CUDA error 999, unknown: the driver has no name for it");
    fake_driver(folder, "old", "");
    ck_sx_fails(&cx, sxg_find(&cx, 80, &info), SX_UNIMPLEMENTED,
                "no function cuOccupancyMaxActiveBlocksPerMultiprocessor");
    ck_assert(setenv("SYMPLEX_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1) == 0);
    ck_sx_fails(&cx, sxg_find(&cx, 80, &info), SX_ABSENT, "no such file");
    ck_assert(setenv("SYMPLEX_CUDA_DRIVER", "libcuda.so.1", 1) == 0);
    ck_sx_fails(&cx, sxg_find(&cx, 80, &info), SX_ABSENT, "not a whole path");
}
END_TEST

/* A library that others could exchange would run with the rights of this user. */
START_TEST(test_a_driver_of_strangers_is_not_loaded)
{
    sxg_info info;
    fake_driver(folder, "fake", "");
    ck_assert(chmod(getenv("SYMPLEX_CUDA_DRIVER"), 0666) == 0);
    ck_sx_fails(&cx, sxg_find(&cx, 80, &info), SX_DENIED, "mode 0666");
    fake_driver(folder, "fake", "");
    ck_assert(chmod(folder, 0777) == 0);
    ck_sx_fails(&cx, sxg_find(&cx, 80, &info), SX_DENIED, "others may");
    ck_assert(chmod(folder, 0700) == 0);
    ck_sx_ok(&cx, sxg_find(&cx, 80, &info));
}
END_TEST

/* ---- memory and time ---- */

START_TEST(test_memory)
{
    uint8_t bytes[1000], back[1000];
    uint64_t a = 0, b = 0, ns = 0;
    enter("");
    for (uint32_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 7);
    }
    ck_sx_ok(&cx, sxg_alloc(&cx, gpu, "a", sizeof(bytes), &a));
    ck_sx_ok(&cx, sxg_alloc(&cx, gpu, "b", sizeof(bytes), &b));
    ck_sx_ok(&cx, sxg_time_begin(&cx, gpu));
    ck_sx_ok(&cx, sxg_upload(&cx, gpu, a, bytes, sizeof(bytes)));
    ck_sx_ok(&cx, sxg_copy(&cx, gpu, b, a, sizeof(bytes)));
    ck_sx_ok(&cx, sxg_copy(&cx, gpu, b, b, sizeof(bytes))); /* onto itself: nothing to do */
    ck_sx_ok(&cx, sxg_download(&cx, gpu, back, b, sizeof(bytes)));
    ck_sx_ok(&cx, sxg_time_end(&cx, gpu, &ns));
    ck_sx_ok(&cx, sxg_sync(&cx, gpu));
    ck_assert_mem_eq(back, bytes, sizeof(bytes));
    ck_assert_uint_ge(ns, 1999);
    ck_assert_uint_le(ns, 2001);
    for (uint32_t size = 1; size <= 8; size *= 2) {
        uint64_t element = UINT64_C(0x1122334455667788);
        ck_sx_ok(&cx, sxg_upload(&cx, gpu, a, bytes, sizeof(bytes)));
        ck_sx_ok(&cx, sxg_fill(&cx, gpu, a + 16, 200, element, size));
        ck_sx_ok(&cx, sxg_download(&cx, gpu, back, a, sizeof(bytes)));
        ck_sx_ok(&cx, sxg_sync(&cx, gpu));
        for (uint32_t i = 0; i < sizeof(bytes); i++) {
            bool inside = i >= 16 && i < 216;
            uint8_t filled = (uint8_t)(element >> (8 * (i % size)));
            ck_assert_uint_eq(back[i], inside ? filled : bytes[i]);
        }
    }
    ck_sx_ok(&cx, sxg_fill(&cx, gpu, a, 0, 0, 8));
    sxg_free(gpu, a);
    sxg_free(gpu, b);
    sxg_free(gpu, 0);
    sxg_leave(gpu);
}
END_TEST

START_TEST(test_out_of_memory)
{
    uint64_t a = 0, b = 0;
    enter("memory=10000");
    ck_sx_ok(&cx, sxg_alloc(&cx, gpu, "weights", 4000, &a));
    ck_sx_fails(&cx, sxg_alloc(&cx, gpu, "temporaries", 7000, &b), SX_NOMEM,
                "7000 bytes wanted for temporaries, 6000 of 10000 bytes are free");
    ck_assert_uint_eq(b, 0);
    ck_sx_ok(&cx, sxg_alloc(&cx, gpu, "temporaries", 6000, &b)); /* the GPU is still of use */
    sxg_free(gpu, a);
    sxg_free(gpu, b);
    sxg_leave(gpu);
}
END_TEST

/* ---- code ---- */

static sx_span text_of(const char *name, sx_buf *file)
{
    char path[512];
    sx_buf_init(file, (size_t)1 << 20);
    (void)snprintf(path, sizeof(path), SX_SOURCE_DIR "/tests/data/ptx/%s.ptx", name);
    sx_test_read_file(path, file);
    sx_buf_put_u8(file, 0);
    return (sx_span){file->ptr, file->len - 1};
}

/* As the compiler writes it: without the comment before it. */
static sx_span plain(sx_buf *file)
{
    sx_span text = text_of("plain", file);
    const char *head = strstr((const char *)text.ptr, ".version ");
    ck_assert_ptr_nonnull(head);
    return (sx_span){(const uint8_t *)head, text.len - (size_t)(head - (const char *)text.ptr)};
}

START_TEST(test_code)
{
    sx_buf file;
    void *module = NULL;
    sxg_function function;
    sx_span text = plain(&file);
    enter("capability=80");
    ck_sx_ok(&cx, sxg_load(&cx, gpu, text, &module));
    ck_sx_ok(&cx, sxg_function_find(&cx, gpu, module, "plain", 128, 0, &function));
    ck_assert_uint_eq(function.blocks_max, 4);
    ck_sx_fails(&cx, sxg_function_find(&cx, gpu, module, "absent", 128, 0, &function), SX_SYSTEM,
                "absent: CUDA error 500");
    ck_sx_fails(&cx, sxg_function_find(&cx, gpu, module, "plain", 128, 232449, &function), SX_LIMIT,
                "plain: a block asks for 232449 bytes of shared memory, GPU 0 (Fake 0) has 232448");
    ck_sx_ok(&cx, sxg_function_find(&cx, gpu, module, "plain", 128, 232448, &function));
    ck_assert_uint_eq(function.shared_bytes, 232448);
    sxg_unload(gpu, module);
    sxg_unload(gpu, NULL);
    sxg_leave(gpu);
    sx_buf_fini(&file);
}
END_TEST

/* y[i] = s y[i] by the first `n` threads; then where there is no such memory, as who waits for it learns. */
START_TEST(test_launch)
{
    sx_buf file;
    void *module = NULL;
    sxg_function function;
    uint64_t y = 0, nowhere = 16;
    uint32_t n = 20;
    float s = 3, bytes[32], back[32];
    void *parameter[] = {&y, &n, &s};
    enter("");
    ck_sx_ok(&cx, sxg_load(&cx, gpu, plain(&file), &module));
    ck_sx_ok(&cx, sxg_function_find(&cx, gpu, module, "plain", 32, 0, &function));
    for (uint32_t i = 0; i < 32; i++) {
        bytes[i] = (float)i;
    }
    ck_sx_ok(&cx, sxg_alloc(&cx, gpu, "y", sizeof(bytes), &y));
    ck_sx_ok(&cx, sxg_upload(&cx, gpu, y, bytes, sizeof(bytes)));
    ck_sx_ok(&cx, sxg_launch(&cx, gpu, &function, one, warp, parameter));
    ck_sx_ok(&cx, sxg_download(&cx, gpu, back, y, sizeof(back)));
    ck_sx_ok(&cx, sxg_sync(&cx, gpu));
    for (uint32_t i = 0; i < 32; i++) {
        ck_assert(back[i] == (i < n ? s * bytes[i] : bytes[i]));
    }
    parameter[0] = &nowhere;
    ck_sx_ok(&cx, sxg_launch(&cx, gpu, &function, one, warp, parameter));
    ck_sx_fails(&cx, sxg_sync(&cx, gpu), SX_SYSTEM, "CUDA error 700, CUDA_ERROR_ILLEGAL_ADDRESS");
    sxg_unload(gpu, module);
    sxg_free(gpu, y);
    sxg_leave(gpu);
    sx_buf_fini(&file);
}
END_TEST

/* A kernel that leaves its memory is a GPU that is lost when somebody waits for it. */
START_TEST(test_launch_out_of_bounds)
{
    sx_buf file;
    void *module = NULL;
    sxg_function function;
    uint64_t y = 0;
    uint32_t n = 32;
    float s = 3;
    void *parameter[] = {&y, &n, &s};
    enter("");
    ck_sx_ok(&cx, sxg_load(&cx, gpu, plain(&file), &module));
    ck_sx_ok(&cx, sxg_function_find(&cx, gpu, module, "plain", 32, 0, &function));
    ck_sx_ok(&cx, sxg_alloc(&cx, gpu, "y", 31 * sizeof(s), &y));
    ck_sx_ok(&cx, sxg_launch(&cx, gpu, &function, one, warp, parameter));
    ck_sx_fails(&cx, sxg_sync(&cx, gpu), SX_SYSTEM, "is lost: work on the GPU: CUDA error 700");
    sxg_unload(gpu, module);
    sxg_free(gpu, y);
    sxg_leave(gpu);
    sx_buf_fini(&file);
}
END_TEST

static const struct {
    const char *text, *settings;
    sx_code code;
    const char *says;
} refused[] = {
    {".version 8.6\n.target sm_80\n.address_size 64\n", "version=12060", SX_UNIMPLEMENTED,
     "PTX 8.6 needs a driver of CUDA 12.7, this one is of CUDA 12.6"},
    {".version 9.0\n.target sm_80\n.address_size 64\n", "version=12090", SX_UNIMPLEMENTED,
     "PTX 9.0 needs a driver of CUDA 13.0, this one is of CUDA 12.9"},
    {".version 7.4\n.target sm_80\n.address_size 64\n", "version=11030", SX_UNIMPLEMENTED,
     "PTX 7.4 needs a driver of CUDA 11.4, this one is of CUDA 11.3"},
    {".version 7.0\n.target sm_80\n.address_size 64\nnonsense\n", "", SX_COMPILE,
     "the CUDA driver refuses the code (error 218): ptxas fatal: "},
    {".version 7.8\n.target sm_90\n.address_size 64\n", "capability=80", SX_COMPILE,
     "code for sm_90"},
    {".version 7.0\n.target sm_80\n.address_size 64\n", "fail=cuModuleLoadDataEx:1:2", SX_SYSTEM,
     "loading code on the GPU: CUDA error 2"},
    {"\177ELF", "", SX_CORRUPT, "not PTX text"},
};

START_TEST(test_code_that_is_refused)
{
    void *module = NULL;
    enter(refused[_i].settings);
    ck_sx_fails(&cx, sxg_load(&cx, gpu, sx_span_of(refused[_i].text), &module), refused[_i].code,
                refused[_i].says);
    ck_assert_ptr_null(module);
    sxg_leave(gpu);
}
END_TEST

/* ---- failures ---- */

/* Each function that starting a GPU calls fails once: an error that names it or says what was tried; what was
 * started before is given back, or the driver ends the process. */
START_TEST(test_each_call_of_the_start_fails)
{
    static const char *const name[] = {
        "cuInit:1",         "cuDriverGetVersion:1",   "cuDeviceGetCount:1",
        "cuDeviceGet:1",    "cuDeviceGet:2",          "cuDeviceGetName:1",
        "cuStreamCreate:1", "cuDeviceGetAttribute:1", "cuDeviceGetAttribute:2",
        "cuEventCreate:1",  "cuDeviceGetAttribute:3", "cuDevicePrimaryCtxRetain:1",
        "cuEventCreate:2",  "cuCtxPushCurrent_v2:1"};
    for (uint32_t i = 0; i < SX_COUNT(name); i++) {
        char settings[128];
        (void)snprintf(settings, sizeof(settings), "fail=%s:304", name[i]);
        fake_driver(folder, "fake", settings);
        ck_sx_fails(&cx, sxg_open(&cx, 80, &gpu), SX_SYSTEM, "CUDA error 304");
        ck_assert_ptr_null(gpu);
    }
    fake_driver(folder, "fake", "");
    ck_sx_ok(&cx, sxg_open(&cx, 80, &gpu));
}
END_TEST

static const char lost_text[] = "GPU 0 (Fake 0) is lost: work on the GPU: CUDA error 719, "
                                "CUDA_ERROR_LAUNCH_FAILED";

START_TEST(test_a_lost_gpu_stays_lost)
{
    uint64_t a = 0;
    uint8_t bytes[16] = {0};
    enter("fail=cuStreamSynchronize:2:719");
    ck_sx_ok(&cx, sxg_alloc(&cx, gpu, "a", sizeof(bytes), &a));
    ck_sx_ok(&cx, sxg_sync(&cx, gpu));
    ck_sx_fails(&cx, sxg_sync(&cx, gpu), SX_SYSTEM, lost_text);
    ck_sx_fails(&cx, sxg_upload(&cx, gpu, a, bytes, sizeof(bytes)), SX_SYSTEM, lost_text);
    sxg_leave(gpu);
    ck_sx_fails(&cx, sxg_enter(&cx, gpu), SX_SYSTEM, lost_text);
    sxg_free(gpu, a); /* what the driver answers to that is of no use to anybody */
}
END_TEST

/* Errors of one call alone leave the GPU as it was. */
START_TEST(test_an_error_that_does_not_last)
{
    uint64_t a = 0;
    uint8_t bytes[16] = {0};
    enter("fail=cuMemcpyHtoDAsync_v2:1:701");
    ck_sx_ok(&cx, sxg_alloc(&cx, gpu, "a", sizeof(bytes), &a));
    ck_sx_fails(&cx, sxg_upload(&cx, gpu, a, bytes, sizeof(bytes)), SX_SYSTEM,
                "copying to the GPU: CUDA error 701");
    ck_sx_ok(&cx, sxg_upload(&cx, gpu, a, bytes, sizeof(bytes)));
    sxg_free(gpu, a);
    sxg_leave(gpu);
    ck_sx_ok(&cx, sxg_enter(&cx, gpu));
    sxg_leave(gpu);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu");
    TCase *tcase = tcase_create("gpu");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_the_first_gpu_that_is_enough);
    tcase_add_test(tcase, test_no_driver_and_no_gpu);
    tcase_add_test(tcase, test_a_driver_of_strangers_is_not_loaded);
    tcase_add_test(tcase, test_memory);
    tcase_add_test(tcase, test_out_of_memory);
    tcase_add_test(tcase, test_code);
    tcase_add_test(tcase, test_launch);
    tcase_add_test(tcase, test_launch_out_of_bounds);
    tcase_add_loop_test(tcase, test_code_that_is_refused, 0, (int)SX_COUNT(refused));
    tcase_add_test(tcase, test_each_call_of_the_start_fails);
    tcase_add_test(tcase, test_a_lost_gpu_stays_lost);
    tcase_add_test(tcase, test_an_error_that_does_not_last);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
