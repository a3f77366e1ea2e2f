/* The compiler with an assembler: here a function that makes cubins with records as the test wants them, so that no
 * CUDA toolkit is needed. What is refused, what is tried next, what stands in the module and in its key. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "client/runtime/runtime.h"
#include "core/core.h"
#include "tests/lib/gen_cubin.h"

static sx_ctx cx;

/* An assembler whose records are those of `record`, but for the first `refusals` texts, which get `refused`. */
typedef struct {
    sx_gen_cubin_record record, refused;
    sx_code code; /* of the refusals: SX_OK, and the compiler has to look at the record */
    uint32_t refusals, texts;
    char last[16];    /* target */
    const char *word; /* texts with it are refused, and no others; NULL: as above */
} fake;

static sx_code assemble(void *self, sx_ctx *c, sx_span text, const char *target, sx_span *code)
{
    fake *f = self;
    sx_buf bytes;
    bool refuses = f->texts++ < f->refusals;
    if (f->word != NULL) {
        refuses = memmem(text.ptr, text.len, f->word, strlen(f->word)) != NULL;
    }
    (void)snprintf(f->last, sizeof(f->last), "%s", target);
    if (refuses && f->code != SX_OK) {
        return SX_FAIL(c, f->code, "the assembler of the test refuses text %u", f->texts);
    }
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_cubin(text, refuses ? &f->refused : &f->record, &bytes);
    uint8_t *copy = sx_alloc(c, bytes.len);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes.ptr, bytes.len);
    *code = (sx_span){copy, bytes.len};
    sx_buf_fini(&bytes);
    return SX_OK;
}

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    cx.fuel = SX_FUEL_DEFAULT;
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const char text[] =
    "sx 1\n"
    "graph \"g\" {\n"
    "  %x = parameter {name = \"x\", weight = 0} : f32[64, 96]\n"
    "  %w = parameter {name = \"w\", weight = 1} : f32[96, 128]\n"
    "  %y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[64, 128]\n"
    "  return %y as \"y\"\n"
    "}\n";

/* The assembler of the test, or none. */
static sx_core_request request_for(const char *target, sx_assembler *assembler)
{
    return (sx_core_request){.ir = sx_span_of(text),
                             .target = sx_span_of(target),
                             .assembler = sx_span_of(assembler != NULL ? "fake 1.0" : ""),
                             .assemble = assembler};
}

static sx_code compile(const sx_core_request *request, sx_buf *bytes)
{
    sx_image image;
    sx_image_init(&image);
    sx_buf_init(bytes, (size_t)1 << 28);
    sx_code code = sx_core_compile(&cx, request, &image);
    code = code == SX_OK ? sx_image_encode(&cx, &image, bytes) : code;
    sx_image_fini(&image);
    return code;
}

/* Opened as a loader opens it, which compares each row with its cubin. */
static sxr_program *compile_and_open(fake *f, const char *target, sx_buf *bytes)
{
    sx_assembler assembler = {.self = f, .assemble = assemble};
    sx_core_request request = request_for(target, f != NULL ? &assembler : NULL);
    const sxr_options options = {.threads = 1, .any_level = true};
    sxr_program *program = NULL;
    ck_sx_ok(&cx, compile(&request, bytes));
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(bytes), &options, &program));
    return program;
}

START_TEST(test_each_part_has_its_record)
{
    fake f = {.record = {.arch = 90, .registers = 40}};
    sx_buf bytes;
    sxr_program *program = compile_and_open(&f, "h100", &bytes);
    const sx_module *module = sxr_module(program);
    ck_assert_str_eq(f.last, "sm_90");
    ck_assert_uint_ge(module->cubin_count, 1);
    ck_assert_uint_eq(module->cubin_count, module->part_count);
    for (uint32_t p = 0; p < module->part_count; p++) {
        const sx_module_cubin *row = sx_module_cubin_of(module, p, 90);
        ck_assert_ptr_nonnull(row);
        ck_assert_uint_eq(row->registers, 40);
        ck_assert_uint_ge(row->parameter_bytes, 24);
        ck_assert(sx_span_is(sx_module_string(module, row->toolchain), "fake 1.0"));
        ck_assert_int_eq(module->kernel[row->kernel].form, SX_FORM_PTX);
    }
    sxr_close(program);
    sx_buf_fini(&bytes);
}
END_TEST

/* The PTX of a kernel does not depend on whether it is assembled. */
START_TEST(test_the_text_is_the_same)
{
    fake f = {.record = {.arch = 80, .registers = 40}};
    sx_buf with, without;
    sxr_program *a = compile_and_open(&f, "a100", &with);
    sxr_program *b = compile_and_open(NULL, "a100", &without);
    const sx_module *x = sxr_module(a), *y = sxr_module(b);
    ck_assert_uint_eq(y->cubin_count, 0);
    ck_assert_uint_eq(x->kernel_count, y->kernel_count);
    for (uint64_t k = 0; k < x->kernel_count; k++) {
        ck_assert_str_eq((const char *)x->code + x->part[x->kernel[k].part_first].entry,
                         (const char *)y->code + y->part[y->kernel[k].part_first].entry);
    }
    sxr_close(a);
    sxr_close(b);
    sx_buf_fini(&with);
    sx_buf_fini(&without);
}
END_TEST

/* What must not be run: the next schedule is taken, and its text is another. */
static const struct {
    fake f;
    const char *says;
} refusals[] = {
    {{.code = SX_LIMIT}, "the assembler of the test refuses"},
    {{.refused = {.arch = 80, .registers = 255, .spills = 3}}, "3 spills, with 255 registers"},
    {{.refused = {.arch = 80, .registers = 60, .stack_bytes = 48}},
     "48 bytes of local memory in each thread"},
    {{.refused = {.arch = 80, .registers = 60, .shared_bytes = 200000}},
     "200000 bytes of shared memory and 0 at the launch"},
};

START_TEST(test_the_next_candidate_is_taken)
{
    fake f = refusals[_i].f, all = f;
    sx_buf bytes, plain;
    f.record = (sx_gen_cubin_record){.arch = 80, .registers = 40};
    f.refusals = 1;
    sxr_program *a = compile_and_open(&f, "a100", &bytes);
    sxr_program *b = compile_and_open(NULL, "a100", &plain);
    const sx_module *x = sxr_module(a), *y = sxr_module(b);
    ck_assert_uint_eq(f.texts, x->kernel_count + 1);
    ck_assert_uint_eq(x->cubin_count, x->part_count);
    ck_assert_int_ne(
        strcmp((const char *)x->code + x->part[0].entry, (const char *)y->code + y->part[0].entry),
        0);
    sxr_close(a);
    sxr_close(b);
    sx_buf_fini(&bytes);
    sx_buf_fini(&plain);
    /* And where none is left, the last reason is told. */
    all.refusals = UINT32_MAX;
    sx_assembler assembler = {.self = &all, .assemble = assemble};
    sx_core_request request = request_for("a100", &assembler);
    ck_sx_fails(&cx, compile(&request, &bytes), SX_COMPILE, refusals[_i].says);
    ck_assert_uint_ge(all.texts, 2);
    sx_buf_fini(&bytes);
}
END_TEST

/* Products of bf16: which instruction multiplies belongs to the numerics plan. */
static const char narrow[] =
    "sx 1\n"
    "graph \"g\" {\n"
    "  %x = parameter {name = \"x\", weight = 0} : bf16[512, 256]\n"
    "  %w = parameter {name = \"w\", weight = 1} : bf16[256, 512]\n"
    "  %y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : bf16[512, 512]\n"
    "  return %y as \"y\"\n"
    "}\n";

static const struct {
    const char *target, *word;
} plans[] = {{"a100", "mma.sync"}, {"h100", "wgmma.mma_async"}};

/* The plan of the one kernel, and its text. */
static uint64_t plan_of(const sx_buf *bytes, const char *word)
{
    const sxr_options options = {.threads = 1, .any_level = true};
    sxr_program *program = NULL;
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(bytes), &options, &program));
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(module->kernel_count, 1);
    ck_assert_ptr_nonnull(strstr((const char *)module->code + module->part[0].entry, word));
    uint64_t numerics = module->kernel[0].numerics;
    sxr_close(program);
    return numerics;
}

/* Whatever number of texts an assembler refuses, what it takes in the end has the plan of the node; where it takes
 * nothing, there is no module. So bits never depend on the machine that compiled. */
START_TEST(test_the_plan_stays)
{
    const char *word = plans[_i].word;
    uint64_t numerics = 0;
    uint32_t refused = 0, taken = 0;
    for (; refused < 100; refused += SX_SANITIZED ? 7 : 1) { /* ten times slower there */
        fake f = {.code = SX_LIMIT,
                  .record = {.arch = _i == 0 ? 80 : 90, .registers = 40},
                  .refusals = refused};
        sx_assembler assembler = {.self = &f, .assemble = assemble};
        sx_core_request request = request_for(plans[_i].target, &assembler);
        sx_buf bytes;
        teardown(); /* each compile has a context of its own */
        setup();
        request.ir = sx_span_of(narrow);
        sx_code code = compile(&request, &bytes);
        if (code != SX_OK) {
            ck_assert_int_eq(code, SX_COMPILE);
            ck_assert_ptr_nonnull(strstr(cx.error.text, "schedules of its numerics plan"));
            ck_assert_ptr_nonnull(strstr(cx.error.text, "the assembler of the test refuses"));
            sx_ctx_reset_error(&cx);
            sx_buf_fini(&bytes);
            break;
        }
        uint64_t plan = plan_of(&bytes, word);
        ck_assert(numerics == 0 || plan == numerics);
        numerics = plan;
        taken++;
        sx_buf_fini(&bytes);
    }
    ck_assert_uint_ge(taken,
                      SX_SANITIZED ? 1 : 6); /* smaller blocks behind the four that are kept */
    ck_assert_uint_lt(refused, 100);
}
END_TEST

/* An assembler that knows no matrix instruction: refused by name, not made by lanes with other bits. */
START_TEST(test_no_other_plan)
{
    fake f = {.code = SX_LIMIT, .record = {.arch = 80, .registers = 40}, .word = plans[_i].word};
    sx_assembler assembler = {.self = &f, .assemble = assemble};
    sx_core_request request = request_for(plans[_i].target, &assembler);
    sx_buf bytes;
    request.ir = sx_span_of(narrow);
    ck_sx_fails(&cx, compile(&request, &bytes), SX_COMPILE, "schedules of its numerics plan");
    sx_buf_fini(&bytes);
}
END_TEST

/* Failures of the assembler itself are no reason to try another schedule. */
START_TEST(test_failures_of_the_assembler)
{
    static const sx_code failure[] = {SX_WORKER, SX_TIMEOUT, SX_SYSTEM};
    for (uint32_t i = 0; i < SX_COUNT(failure); i++) {
        fake f = {.code = failure[i], .refusals = 1};
        sx_assembler assembler = {.self = &f, .assemble = assemble};
        sx_core_request request = request_for("a100", &assembler);
        sx_buf bytes;
        ck_sx_fails(&cx, compile(&request, &bytes), failure[i], "refuses text 1");
        ck_assert_uint_eq(f.texts, 1);
        sx_buf_fini(&bytes);
    }
}
END_TEST

START_TEST(test_a_kernel_that_is_left_out)
{
    fake f = {.record = {.arch = 80, .registers = 40, .left_out = "dot_2_p0"}};
    sx_assembler assembler = {.self = &f, .assemble = assemble};
    sx_core_request request = request_for("a100", &assembler);
    sx_buf bytes;
    ck_sx_fails(&cx, compile(&request, &bytes), SX_COMPILE, "left kernel dot_2_p0 out");
    sx_buf_fini(&bytes);
}
END_TEST

START_TEST(test_an_assembler_that_is_not_here)
{
    sx_core_request request = request_for("a100", NULL);
    sx_buf bytes;
    request.assembler = SX_SPAN_LITERAL("nvJitLink 99.0");
    ck_sx_fails(&cx, compile(&request, &bytes), SX_ABSENT, "assembler nvJitLink 99.0 is not here");
    sx_buf_fini(&bytes);
}
END_TEST

START_TEST(test_the_name_is_part_of_the_key)
{
    static const char *const name[] = {"", "nvJitLink 13.0.88", "nvJitLink 13.0.89"};
    sx_key key[SX_COUNT(name)];
    for (uint32_t i = 0; i < SX_COUNT(name); i++) {
        sx_core_request request = request_for("a100", NULL);
        sx_span part[SX_PART_COUNT];
        request.assembler = sx_span_of(name[i]);
        ck_sx_ok(&cx, sx_core_key(&cx, &request, &key[i], part));
        for (uint32_t k = 0; k < i; k++) {
            ck_assert_mem_ne(key[i].byte, key[k].byte, SX_KEY_BYTES);
        }
    }
}
END_TEST

START_TEST(test_which_targets_are_assembled)
{
    static const struct {
        const char *target;
        bool text;
    } row[] = {{"h100", true},       {"a100,h100", true}, {"x86-64-v3", false},
               {"x86-64-v4", false}, {"nothing", false},  {"", false}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sx_core_request request = request_for(row[i].target, NULL);
        ck_assert_msg(sx_core_assembles(&request) == row[i].text, "%s", row[i].target);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.assembler");
    TCase *cases = tcase_create("assembler");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_each_part_has_its_record);
    tcase_add_test(cases, test_the_text_is_the_same);
    tcase_add_loop_test(cases, test_the_next_candidate_is_taken, 0, (int)SX_COUNT(refusals));
    tcase_add_loop_test(cases, test_the_plan_stays, 0, (int)SX_COUNT(plans));
    tcase_add_loop_test(cases, test_no_other_plan, 0, (int)SX_COUNT(plans));
    tcase_add_test(cases, test_failures_of_the_assembler);
    tcase_add_test(cases, test_a_kernel_that_is_left_out);
    tcase_add_test(cases, test_an_assembler_that_is_not_here);
    tcase_add_test(cases, test_the_name_is_part_of_the_key);
    tcase_add_test(cases, test_which_targets_are_assembled);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
