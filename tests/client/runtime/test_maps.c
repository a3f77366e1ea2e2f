/* Modules whose block programs have the copy engine of a GPU read tensors: on the CUDA driver of the tests, which
 * encodes maps by rules of its own, and in the interpreter, both from the records of the module. */
#include "tests/client/cuda/fake_driver.h"

#include <string.h>

#include "client/runtime/runtime.h"
#include "client/verify/execute.h"
#include "tests/lib/gen_boxes.h"

static sx_ctx cx;
static char folder[256];
static sx_gen_module_tables tables;
static float x[SX_GEN_BOXES_X_ELEMENTS], y[SX_GEN_BOXES_Y_ELEMENTS], w = 3;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
    sx_test_mkdtemp(folder);
    sx_gen_boxes_make(&tables);
    for (uint32_t i = 0; i < SX_COUNT(x); i++) {
        x[i] = (float)(i + 1);
    }
}

static void teardown(void)
{
    sx_test_rmtree(folder);
    sx_ctx_fini(&cx);
}

static sx_code open_boxes(sxr_program **program)
{
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module_encode(&cx, &tables, &bytes);
    sx_code code = sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, program);
    sx_buf_fini(&bytes);
    memset(y, 0, sizeof(y));
    return code;
}

static void bind_boxes(sxr_program *program)
{
    ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BOXES_X, x, sizeof(x)));
    ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BOXES_W, &w, sizeof(w)));
    ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BOXES_Y, y, sizeof(y)));
}

static sx_code run_on_gpu(void)
{
    sxr_program *program = NULL;
    SX_TRY(open_boxes(&program));
    bind_boxes(program);
    sx_code code = sxr_run(&cx, program, NULL);
    sxr_close(program);
    return code;
}

/* By the interpreter, as verification runs it. */
static sx_code run_emulated(void)
{
    sxr_program *program = NULL;
    sxr_executor executor;
    void *buffer[] = {x, &w, y};
    SX_TRY(open_boxes(&program));
    bind_boxes(program);
    sx_code code = sxr_executor_emulate(&cx, NULL, program, &executor);
    code = code == SX_OK ? sxr_execute(&executor, 0, buffer) : code;
    sxr_executor_fini(&executor);
    sxr_close(program);
    return code;
}

static uint32_t wrong_elements(void)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < SX_COUNT(y); i++) {
        wrong += y[i] != sx_gen_boxes_expected(x, w, i) ? 1 : 0;
    }
    return wrong;
}

START_TEST(test_what_the_engine_reads)
{
    fake_driver(folder, "fake", "");
    ck_sx_ok(&cx, run_on_gpu());
    ck_assert_uint_eq(wrong_elements(), 0);
    ck_sx_ok(&cx, run_emulated());
    ck_assert_uint_eq(wrong_elements(), 0);
}
END_TEST

/* ---- planted faults ---- */

/* Each is a map that may be, of the wrong tensor: both must see it in the same way. */
#define M tables.map[0]
#define WRONG_MAPS(FAULT)                      \
    FAULT(stride, M.stride[1] += 16)           \
    FAULT(dim, M.dim[0] -= 1)                  \
    FAULT(rows, M.dim[1] -= 1)                 \
    FAULT(box_rows, M.box[1] = 7)              \
    FAULT(box_columns, M.box[0] = 28)          \
    FAULT(narrow_swizzle, M.swizzle_bytes = 0) \
    FAULT(offset, M.offset -= 16)
#define FAULT(name, statement)     \
    static void wrong_##name(void) \
    {                              \
        statement;                 \
    }
WRONG_MAPS(FAULT)
#undef FAULT
static const struct {
    const char *name;
    void (*make)(void);
} wrong_map[] = {
#define FAULT(name, statement) {#name, wrong_##name},
    WRONG_MAPS(FAULT)
#undef FAULT
};

START_TEST(test_wrong_maps_are_seen)
{
    float other[SX_COUNT(y)];
    fake_driver(folder, "fake", "");
    wrong_map[_i].make();
    tables.map[0].dim[1] -= strcmp(wrong_map[_i].name, "stride") == 0 ? 2 : 0; /* it must fit */
    sx_code gpu = run_on_gpu();
    ck_assert_msg(gpu != SX_OK || wrong_elements() > 0, "%s", wrong_map[_i].name);
    memcpy(other, y, sizeof(y));
    sx_ctx_reset_error(&cx);
    sx_code emulated = run_emulated();
    ck_assert_msg((gpu == SX_OK) == (emulated == SX_OK), "%s: %s and %s", wrong_map[_i].name,
                  sx_code_name(gpu), sx_code_name(emulated));
    if (gpu == SX_OK) {
        ck_assert_mem_eq(other, y, sizeof(y));
    }
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    const char *driver, *settings;
    sx_code code;
    const char *says;
} refused[] = {
    {"11", "", SX_UNIMPLEMENTED, "kernel 0, argument 0: the driver or GPU 0 (Fake 0) has no maps"},
    {"fake", "fail=cuTensorMapEncodeTiled:1:1", SX_SYSTEM,
     "kernel 0, argument 0: encoding what the copy engine reads: CUDA error 1"},
};

START_TEST(test_drivers_that_encode_nothing)
{
    fake_driver(folder, refused[_i].driver, refused[_i].settings);
    ck_sx_fails(&cx, run_on_gpu(), refused[_i].code, refused[_i].says);
}
END_TEST

/* Code for a GPU of exactly one kind says so; every other GPU refuses it before anything is launched. */
static void make_exact(char *text, size_t size)
{
    const char *word = "sm_90\n";
    const char *from = (const char *)tables.text.ptr;
    const char *at = strstr(from, word);
    ck_assert(at != NULL && tables.text.len < size);
    size_t head = (size_t)(at - from) + strlen("sm_90");
    memcpy(text, from, head);
    text[head] = 'a';
    memcpy(text + head + 1, from + head, tables.text.len - head);
    tables.text = (sx_span){(const uint8_t *)text, tables.text.len + 1};
    tables.part[0].entry++;
    tables.kernel[0].code_size++;
}

START_TEST(test_code_for_one_kind_of_gpu)
{
    static char text[8192];
    make_exact(text, sizeof(text));
    fake_driver(folder, "fake", "capability=90");
    ck_sx_ok(&cx, run_on_gpu());
    ck_assert_uint_eq(wrong_elements(), 0);
    fake_driver(folder, "fake", "capability=100");
    ck_sx_fails(&cx, run_on_gpu(), SX_UNIMPLEMENTED,
                "code for sm_90a, which GPUs of capability 9.0 alone execute; GPU 0 (Fake 0) has "
                "10.0");
}
END_TEST

START_TEST(test_entries_take_the_maps_of_the_module)
{
    sxr_program *program = NULL;
    fake_driver(folder, "fake", "");
    tables.maps = 0;
    ck_sx_fails(&cx, open_boxes(&program), SX_CORRUPT,
                "1 parameters of 128 bytes behind its buffers, launched with 0 maps");
    tables.maps = 2;
    tables.map[1] = tables.map[0];
    ck_sx_fails(&cx, open_boxes(&program), SX_CORRUPT,
                "1 parameters of 128 bytes behind its buffers, launched with 2 maps");
}
END_TEST

/* Memory of the caller on the GPU is aligned for the engine, or refused by name. */
START_TEST(test_memory_that_is_not_aligned)
{
    sxr_program *program = NULL;
    fake_user user;
    fake_driver(folder, "fake", "");
    ck_sx_ok(&cx, open_boxes(&program));
    bind_boxes(program);
    fake_user_begin(&user);
    uint64_t at = fake_user_memory(&user, x, sizeof(x));
    ck_sx_fails(&cx, sxr_bind_device(&cx, program, SX_GEN_BOXES_X, at + 8, sizeof(x)), SX_INPUT,
                "tensor x: 0x");
    ck_sx_ok(&cx, sxr_bind_device(&cx, program, SX_GEN_BOXES_X, at, sizeof(x)));
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    ck_assert_uint_eq(wrong_elements(), 0);
    fake_user_end(&user);
    sxr_close(program);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("maps");
    TCase *cases = tcase_create("maps");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_what_the_engine_reads);
    tcase_add_loop_test(cases, test_wrong_maps_are_seen, 0, SX_COUNT(wrong_map));
    tcase_add_loop_test(cases, test_drivers_that_encode_nothing, 0, SX_COUNT(refused));
    tcase_add_test(cases, test_code_for_one_kind_of_gpu);
    tcase_add_test(cases, test_entries_take_the_maps_of_the_module);
    tcase_add_test(cases, test_memory_that_is_not_aligned);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
