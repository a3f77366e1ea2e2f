/* Verification catches what it is there for: entries exchanged, code damaged, arguments exchanged, a program
 * that says something else than the code does; and it lets right modules pass. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/verify/verify.h"
#include "client/verify/whole.h"
#include "tests/lib/compiled.h"

/* Three kernels: two maps of one size (their grids are equal) and a contraction. */
static const char program_text[] =
    "sx 1\ngraph \"g\" () {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[24, 40]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[40, 40]\n"
    "%y = parameter {name = \"y\", weight = 0} : f32[24, 40]\n"
    "%a = tanh(%x) : f32[24, 40]\n"
    "%b = exponential(%y) : f32[24, 40]\n" /* of another tensor, so that each has a kernel */
    "%d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[24, 40]\n"
    "return %a as \"a\", %b as \"b\", %d as \"d\"\n}\n";

typedef struct {
    sx_ctx cx;
    sx_buf bytes;
    void *copy;
    sx_module module;
    sx_module_part part[64];
    sx_module_kernel kernel[16];
    uint32_t arg[64];
    uint8_t *code;
} fixture;

static void fixture_make(fixture *f)
{
    sx_ctx_init(&f->cx, SX_ARENA_DEFAULT);
    sx_buf_init(&f->bytes, (size_t)1 << 26);
    sx_test_request request = {.text = program_text, .target = "x86-64-v3"};
    ck_sx_ok(&f->cx, sx_test_compile(&f->cx, &request, &f->bytes));
    size_t size = (f->bytes.len + 63) & ~(size_t)63;
    f->copy = aligned_alloc(64, size);
    ck_assert_ptr_nonnull(f->copy);
    memcpy(f->copy, f->bytes.ptr, f->bytes.len);
    ck_sx_ok(&f->cx, sx_module_decode(&f->cx, (sx_span){f->copy, f->bytes.len}, true, &f->module));
    const sx_module *m = &f->module;
    ck_assert_uint_le(m->part_count, SX_COUNT(f->part));
    ck_assert_uint_le(m->kernel_count, SX_COUNT(f->kernel));
    ck_assert_uint_le(m->arg_count, SX_COUNT(f->arg));
    memcpy(f->part, m->part, m->part_count * sizeof(*m->part));
    memcpy(f->kernel, m->kernel, m->kernel_count * sizeof(*m->kernel));
    memcpy(f->arg, m->arg, m->arg_count * sizeof(*m->arg));
    f->code = sx_alloc(&f->cx, (size_t)m->code_count);
    ck_assert_ptr_nonnull(f->code);
    memcpy(f->code, m->code, (size_t)m->code_count);
}

static void fixture_fini(fixture *f)
{
    free(f->copy);
    sx_buf_fini(&f->bytes);
    sx_ctx_fini(&f->cx);
}

/* One verification; its records in `check`, of which there are four: three kernels and the program. Where the
 * program is compared it is tried on all magnitudes before. */
static sx_code verify_by(fixture *f, sx_ctx *cx, const sxr_verify_options *options,
                         sx_module_check check[4])
{
    sx_image image;
    sx_image_init(&image);
    sx_code code = sxr_verify(cx, sx_buf_span(&f->bytes), options, &image);
    uint64_t checks = image.check.len / sizeof(sx_module_check);
    bool in_part = options->emulated_max > 0; /* says one thing more: there is no proxy */
    ck_assert(code != SX_OK || checks == (options->program_flops < 0 ? 4 : in_part ? 6 : 5));
    if (code == SX_OK) {
        memcpy(check, image.check.ptr + (checks - 4) * sizeof(*check), 4 * sizeof(*check));
    }
    sx_image_fini(&image);
    return code;
}

/* The same as on a processor without the instructions: emulated wholly or in part, it comes to the same. */
static void verify_emulated(fixture *f, const sxr_verify_options *options, sx_code code,
                            const sx_module_check executed[4])
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_module_check check[4];
    ck_assert_int_eq(setenv("SYMPLEX_ISA_MAX", "none", 1), 0);
    ck_assert_msg(verify_by(f, &cx, options, check) == code, "%s", cx.error.text);
    for (uint32_t i = 0; i < 4 && code == SX_OK; i++) {
        ck_assert_uint_eq(executed[i].emulated, 0);
        ck_assert_uint_eq(check[i].emulated, check[i].passed);
        check[i].emulated = 0;
        ck_assert_mem_eq(&check[i], &executed[i], sizeof(check[i]));
    }
    sxr_verify_options some = *options;
    some.emulated_max = 1;
    sx_ctx_reset_error(&cx);
    if (options->program_flops < 0) {
        ck_assert_msg(verify_by(f, &cx, &some, check) == code, "%s", cx.error.text);
    } else if (code == SX_OK) { /* the outputs are in part random: the program is not compared */
        ck_sx_ok(&cx, verify_by(f, &cx, &some, check));
        ck_assert(check[1].passed == 1 && check[1].emulated == 1);
        ck_assert(check[2].passed == 0 && check[3].passed == 0);
    }
    ck_assert_int_eq(unsetenv("SYMPLEX_ISA_MAX"), 0);
    sx_ctx_fini(&cx);
}

/* Encodes the changed tables and verifies them; `program_flops` as in the options of verification. */
static sx_code verify(fixture *f, double program_flops)
{
    f->module.part = f->part;
    f->module.kernel = f->kernel;
    f->module.arg = f->arg;
    f->module.code = f->code;
    sx_buf_clear(&f->bytes);
    ck_sx_ok(&f->cx, sx_module_encode(&f->cx, &f->module, &f->bytes));
    sxr_verify_options options = {.seed = 5, .program_flops = program_flops};
    sx_module_check check[4];
    sx_code code = verify_by(f, &f->cx, &options, check);
    verify_emulated(f, &options, code, check);
    return code;
}

static uint32_t kernel_of(const fixture *f, const char *what)
{
    for (uint32_t k = 0; k < f->module.kernel_count; k++) {
        if (sx_span_is(sx_module_string(&f->module, f->kernel[k].what), what)) {
            return k;
        }
    }
    ck_abort_msg("no kernel %s", what);
    return 0;
}

START_TEST(test_right_module)
{
    static fixture f;
    fixture_make(&f);
    ck_sx_ok(&f.cx, verify(&f, -1));
    ck_sx_ok(&f.cx, verify(&f, 1e12));
    fixture_fini(&f);
}
END_TEST

START_TEST(test_entries_exchanged)
{
    static fixture f;
    fixture_make(&f);
    sx_module_part *a = &f.part[f.kernel[kernel_of(&f, "tanh")].part_first];
    sx_module_part *b = &f.part[f.kernel[kernel_of(&f, "exponential")].part_first];
    ck_assert_mem_eq(a->grid, b->grid,
                     sizeof(a->grid)); /* or the exchange would leave the buffers */
    sx_module_kernel *x = &f.kernel[kernel_of(&f, "tanh")];
    sx_module_kernel *y = &f.kernel[kernel_of(&f, "exponential")];
    const sx_module_kernel before = *x;
    const uint64_t entry = a->entry;
    a->entry = b->entry;
    b->entry = entry;
    x->code_offset = y->code_offset;
    x->code_size = y->code_size;
    y->code_offset = before.code_offset;
    y->code_size = before.code_size;
    ck_sx_fails(&f.cx, verify(&f, -1), SX_INTERNAL, "the interpreter has");
    fixture_fini(&f);
}
END_TEST

/* A kernel that returns at once leaves its result as it was. */
START_TEST(test_code_damaged)
{
    static fixture f;
    fixture_make(&f);
    for (uint32_t p = 0; p < f.kernel[kernel_of(&f, "dot")].part_count; p++) {
        f.code[f.part[f.kernel[kernel_of(&f, "dot")].part_first + p].entry] = 0xC3;
    }
    ck_sx_fails(&f.cx, verify(&f, -1), SX_INTERNAL, "kernel dot_");
    fixture_fini(&f);
}
END_TEST

/* The results of two launches exchanged: every kernel is right for itself, the outputs of the program are not. */
START_TEST(test_outputs_exchanged)
{
    static fixture f;
    fixture_make(&f);
    uint32_t *result[2];
    const char *const what[] = {"tanh", "exponential"};
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t l = 0; l < f.module.launch_count; l++) {
            const sx_module_launch *launch = &f.module.launch[l];
            if (launch->kernel == kernel_of(&f, what[i])) {
                result[i] = &f.arg[launch->arg_first + launch->arg_count - 1];
            }
        }
    }
    uint32_t tensor = *result[0];
    *result[0] = *result[1];
    *result[1] = tensor;
    ck_sx_fails(&f.cx, verify(&f, 1e12), SX_INTERNAL, "output a");
    fixture_fini(&f);
}
END_TEST

/* The program as it came says something else than what was compiled. */
START_TEST(test_other_program)
{
    static fixture f;
    fixture_make(&f);
    char *text = sx_alloc_text(
        &f.cx, (sx_span){(const uint8_t *)f.module.program, (size_t)f.module.program_count});
    ck_assert_ptr_nonnull(text);
    char *at = strstr(text, "tanh");
    ck_assert_ptr_nonnull(at);
    memcpy(at, "sine", 4);
    f.module.program = text;
    ck_sx_fails(&f.cx, verify(&f, 1e12), SX_INTERNAL, "output a");
    fixture_fini(&f);
}
END_TEST

/* A right module with one wrong result: sxr_check_program names it. */
START_TEST(test_output_altered)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_test_request request = {.text = program_text, .target = "x86-64-v3"};
    sxr_program *program = sx_test_run(&cx, &request, 1);
    uint32_t index = sxr_find(program, SX_TENSOR_OUTPUT, sx_span_of("d"));
    float *d = sxr_memory(program, index);
    d[17] += 0.01F;
    sx_module_check check;
    ck_sx_fails(&cx, sxr_check_program(&cx, program, 0, &check), SX_MISMATCH,
                "output d: element 17");
    ck_assert_uint_eq(check.passed, 0);
    sxr_close(program);
    sx_ctx_fini(&cx);
}
END_TEST

/* Numbers that leave the range of f32 on the way do not make a right module wrong, and wrong code behind them
 * is still found. */
START_TEST(test_overflow)
{
    static const char text[] =
        "sx 1\ngraph \"g\" () {\n"
        "%x = parameter {name = \"x\", weight = 0} : f32[48, 48]\n"
        "%c = constant {data = 1e12} : f32[48, 48]\n"
        "%a = multiply(%x, %c) : f32[48, 48]\n"
        "%b = dot_general(%a, %a) {lhs_contract = [1], rhs_contract = [0]} : f32[48, 48]\n"
        "%d = dot_general(%b, %b) {lhs_contract = [1], rhs_contract = [0]} : f32[48, 48]\n"
        "%e = dot_general(%d, %a) {lhs_contract = [1], rhs_contract = [0]} : f32[48, 48]\n"
        "return %e as \"e\"\n}\n";
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    sx_test_request request = {.text = text, .target = "x86-64-v3"};
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    void *copy = aligned_alloc(64, (bytes.len + 63) & ~(size_t)63);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes.ptr, bytes.len);
    sx_module module;
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
    sx_image image;
    sx_image_init(&image);
    sxr_verify_options options = {.seed = 5, .program_flops = 1e12};
    ck_sx_ok(&cx, sxr_verify(&cx, sx_buf_span(&bytes), &options, &image));
    const sx_module_check *check = (const void *)image.check.ptr;
    size_t count = image.check.len / sizeof(*check);
    ck_assert_uint_ge(count, 4);
    for (size_t i = 1; i < count; i++) {
        ck_assert_uint_eq(check[i].passed, SX_CHECK_PASSED);
    }
    ck_assert_uint_eq(check[count - 1].points, 48 * 48); /* by class: infinities and NaN */
    sx_image_fini(&image);
    /* the last contraction reads infinities: damaged, it is refused */
    const sx_module_kernel *last = &module.kernel[module.kernel_count - 1];
    uint8_t *code = sx_alloc(&cx, (size_t)module.code_count);
    ck_assert_ptr_nonnull(code);
    memcpy(code, module.code, (size_t)module.code_count);
    for (uint32_t p = 0; p < last->part_count; p++) {
        code[module.part[last->part_first + p].entry] = 0xC3;
    }
    module.code = code;
    sx_buf_clear(&bytes);
    ck_sx_ok(&cx, sx_module_encode(&cx, &module, &bytes));
    sx_image_init(&image);
    for (uint32_t emulated = 0; emulated < 2; emulated++) {
        ck_assert_int_eq(emulated ? setenv("SYMPLEX_ISA_MAX", "none", 1) : 0, 0);
        ck_sx_fails(&cx, sxr_verify(&cx, sx_buf_span(&bytes), &options, &image), SX_INTERNAL,
                    "kernel ");
    }
    ck_assert_int_eq(unsetenv("SYMPLEX_ISA_MAX"), 0);
    sx_image_fini(&image);
    free(copy);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

#define CENTRED(type)                                                                            \
    "%s = reduce(%b) {dims = [0, 1], reducer = add} : " type                                     \
    "[]\n%n = constant {data = 30} : " type "[]\n"                                               \
    "%m = divide(%s, %n) : " type "[]\n%w = broadcast_in_dim(%m) {dims = []} : " type "[6, 5]\n" \
    "%d = subtract(%b, %w) : " type "[6, 5]\n"                                                   \
    "%y = reduce(%d) {dims = [0, 1], reducer = add} : " type "[]\n"
#define SHARES(type)                                                                       \
    "%e = exponential(%b) : " type "[6, 5]\n"                                              \
    "%s = reduce(%e) {dims = [1], reducer = add} : " type "[6]\n"                          \
    "%w = broadcast_in_dim(%s) {dims = [0]} : " type "[6, 5]\n%p = divide(%e, %w) : " type \
    "[6, 5]\n"                                                                             \
    "%t = reduce(%p) {dims = [1], reducer = add} : " type "[6]\n"                          \
    "%one = constant {data = 1} : " type "[6]\n%y = subtract(%t, %one) : " type "[6]\n"

/* Programs that leave the range of their type, or whose results are all rounding, are right as they are. */
static const char *const rounded[] = {
    "%y = exponential(%a) : f32[6, 5]\n", /* 1e30 and more: infinity */
    ("%b = multiply(%a, %a) : f32[6, 5]\n%c = multiply(%b, %b) : f32[6, 5]\n"
     "%y = divide(%c, %c) : f32[6, 5]\n"),                             /* infinity / infinity */
    "%b = negate(%a) : f32[6, 5]\n%y = exponential(%b) : f32[6, 5]\n", /* 0 or less than any f32 */
    "%b = add(%x, %a) : f32[6, 5]\n%y = subtract(%b, %a) : f32[6, 5]\n", /* nothing of x is left */
    "%b = log(%x) : f32[6, 5]\n%y = reduce(%b) {dims = [1], reducer = minimum} : f32[6]\n",
    /* f64: what is left of 1e6 when 1 is added to it and taken away again, as a norm does */
    ("%b = convert(%x) : f64[6, 5]\n%s = constant {data = 1e-7} : f64[6, 5]\n"
     "%c = multiply(%b, %s) : f64[6, 5]\n%t = tanh(%b) : f64[6, 5]\n%d = multiply(%t, %t) : f64[6, "
     "5]\n"
     "%one = constant {data = 1} : f64[6, 5]\n%e = add(%c, %one) : f64[6, 5]\n"
     "%f = divide(%e, %d) : f64[6, 5]\n%g = multiply(%f, %d) : f64[6, 5]\n"
     "%y = subtract(%g, %one) : f64[6, 5]\n"),
    /* what is left of sums that cancel is rounding alone: of centred numbers, of shares of 1 */
    ("%b = convert(%x) : f64[6, 5]\n" CENTRED("f64")),
    ("%b = abs(%x) : f32[6, 5]\n" CENTRED("f32")),
    ("%b = convert(%x) : f64[6, 5]\n" SHARES("f64")),
    ("%b = abs(%x) : f32[6, 5]\n" SHARES("f32")),
};

START_TEST(test_rounding)
{
    char text[1024];
    (void)snprintf(
        text, sizeof(text),
        "sx 1\ngraph \"g\" () {\n"
        "%%x = parameter {name = \"x\", weight = 0} : f32[6, 5]\n"
        "%%k = constant {data = 1e15} : f32[6, 5]\n%%a = multiply(%%x, %%k) : f32[6, 5]\n"
        "%sreturn %%y as \"y\"\n}\n",
        rounded[_i]);
    sx_core_request request = {.ir = sx_span_of(text), .target = sx_span_of("x86-64-v3")};
    for (uint64_t seed = 3; seed <= 10; seed++) { /* that of 10 leaves nothing by chance */
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sxr_verify_options options = {.seed = seed, .program_flops = 1e9};
        sx_buf module;
        sx_buf_init(&module, (size_t)1 << 26);
        ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &options, &module));
        sx_buf_fini(&module);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* Whole numbers, of which floor would make others if a unit were missing. No rounding excuses a program that adds
 * another number, nor two kernels that are exchanged. */
#define WHOLE_NUMBERS(number)                                                                \
    "sx 1\ngraph \"g\" () {\n%x = parameter {name = \"x\", weight = 0} : f32[48, 48]\n"      \
    "%t = parameter {name = \"t\", weight = 0} : f32[48, 48]\n%s = sign(%x) : f32[48, 48]\n" \
    "%u = sign(%t) : f32[48, 48]\n"                                                          \
    "%d = dot_general(%s, %s) {lhs_contract = [1], rhs_contract = [0]} : f32[48, 48]\n"      \
    "%e = dot_general(%s, %u) {lhs_contract = [1], rhs_contract = [0]} : f32[48, 48]\n"      \
    "%f = floor(%d) : f32[48, 48]\n%g = floor(%e) : f32[48, 48]\n"                           \
    "%one = constant {data = " number "} : f32[48, 48]\n%y = add(%f, %one) : f32[48, 48]\n"  \
    "%nine = constant {data = 9} : f32[48, 48]\n%z = add(%g, %nine) : f32[48, 48]\n"         \
    "return %y as \"y\", %z as \"z\"\n}\n"

static void swap(uint64_t *a, uint64_t *b)
{
    uint64_t was = *a;
    *a = *b;
    *b = was;
}

START_TEST(test_jumps)
{
    static const char text[] = WHOLE_NUMBERS("1"), other[] = WHOLE_NUMBERS("2");
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    sx_test_request request = {.text = text, .target = "x86-64-v3"};
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    sx_image image;
    sx_image_init(&image);
    sxr_verify_options options = {.seed = 5, .program_flops = 1e12, .program = sx_span_of(other)};
    ck_sx_fails(&cx, sxr_verify(&cx, sx_buf_span(&bytes), &options, &image), SX_INTERNAL,
                "output y: ");
    options.program = sx_span_of(text);
    ck_sx_ok(&cx, sxr_verify(&cx, sx_buf_span(&bytes), &options, &image));
    void *copy = aligned_alloc(64, (bytes.len + 63) & ~(size_t)63);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes.ptr, bytes.len);
    sx_module module;
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
    sx_module_kernel *kernel = SX_NEW_ARRAY(&cx, sx_module_kernel, (size_t)module.kernel_count);
    sx_module_part *part = SX_NEW_ARRAY(&cx, sx_module_part, (size_t)module.part_count);
    ck_assert(kernel != NULL && part != NULL);
    memcpy(kernel, module.kernel, (size_t)module.kernel_count * sizeof(*kernel));
    memcpy(part, module.part, (size_t)module.part_count * sizeof(*part));
    sx_module_kernel *dot[2] = {NULL, NULL};
    for (uint32_t i = 0, found = 0; i < module.kernel_count && found < 2; i++) {
        sx_span name = sx_module_string(&module, kernel[i].name);
        if (name.len > 4 && memcmp(name.ptr, "dot_", 4) == 0) {
            dot[found++] = &kernel[i];
        }
    }
    ck_assert(dot[0] != NULL && dot[1] != NULL && dot[0]->part_count == dot[1]->part_count);
    for (uint32_t p = 0; p < dot[0]->part_count; p++) {
        swap(&part[dot[0]->part_first + p].entry, &part[dot[1]->part_first + p].entry);
    }
    swap(&dot[0]->code_offset, &dot[1]->code_offset);
    swap(&dot[0]->code_size, &dot[1]->code_size);
    module.kernel = kernel;
    module.part = part;
    sx_buf_clear(&bytes);
    ck_sx_ok(&cx, sx_module_encode(&cx, &module, &bytes));
    ck_sx_fails(&cx, sxr_verify(&cx, sx_buf_span(&bytes), &options, &image), SX_INTERNAL,
                "kernel dot_");
    free(copy);
    sx_image_fini(&image);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* x / (a b) is x / a / b as long as a b stays in range: right on numbers near one, and a warning on those of
 * all magnitudes. */
#define QUOTIENTS(body)                                         \
    "sx 1\ngraph \"g\" () {\n"                                  \
    "%x = parameter {name = \"x\", weight = 0} : f32[24, 40]\n" \
    "%a = parameter {name = \"a\", weight = 0} : f32[24, 40]\n" \
    "%b = parameter {name = \"b\", weight = 0} : f32[24, 40]\n" \
    "%d = multiply(%a, %b) : f32[24, 40]\n" body "return %y as \"y\", %d as \"d\"\n}\n"
static const char one_quotient[] = QUOTIENTS("%y = divide(%x, %d) : f32[24, 40]\n");
static const char two_quotients[] = QUOTIENTS("%q = divide(%x, %a) : f32[24, 40]\n"
                                              "%y = divide(%q, %b) : f32[24, 40]\n");

START_TEST(test_range)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    sx_test_request request = {.text = one_quotient, .target = "x86-64-v3"};
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    for (uint32_t i = 0; i < 2; i++) {
        sx_image image;
        sx_image_init(&image);
        sxr_verify_options options = SXR_VERIFY_DEFAULT;
        options.program = sx_span_of(i == 0 ? one_quotient : two_quotients);
        ck_sx_ok(&cx, sxr_verify(&cx, sx_buf_span(&bytes), &options, &image));
        const sx_module_check *check = (const void *)image.check.ptr;
        size_t count = image.check.len / sizeof(*check);
        ck_assert_uint_eq(check[0].passed, i == 0 ? SX_CHECK_PASSED : SX_CHECK_IMPRECISE);
        ck_assert_uint_eq(check[count - 1].passed, SX_CHECK_PASSED);
        sx_image_fini(&image);
    }
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* x / 49 * 49 - x is zero: all of it is rounding, in doubles as in f32, and no rewriting is to blame if the module does
 * the same with 47. */
#define NOTHING(number)                                         \
    "sx 1\ngraph \"g\" () {\n"                                  \
    "%x = parameter {name = \"x\", weight = 0} : f32[24, 40]\n" \
    "%c = constant {data = " number "} : f32[24, 40]\n"         \
    "%q = divide(%x, %c) : f32[24, 40]\n"                       \
    "%m = multiply(%q, %c) : f32[24, 40]\n"                     \
    "%y = subtract(%m, %x) : f32[24, 40]\n"                     \
    "return %y as \"y\"\n}\n"

START_TEST(test_zero_but_for_rounding)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 26);
    sx_test_request request = {.text = NOTHING("47"), .target = "x86-64-v3"};
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &bytes));
    sx_image image;
    sx_image_init(&image);
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    options.program = sx_span_of(NOTHING("49"));
    ck_sx_ok(&cx, sxr_verify(&cx, sx_buf_span(&bytes), &options, &image));
    const sx_module_check *check = (const void *)image.check.ptr;
    size_t last = image.check.len / sizeof(*check) - 1; /* on numbers near one */
    ck_assert_uint_eq(check[last].points, 24 * 40);
    ck_assert_uint_eq(check[last].passed, SX_CHECK_PASSED);
    ck_assert_double_gt(check[last].error, 1e-4);
    sx_image_fini(&image);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* A narrow type rounds its results: that is no imprecision. By hand: x w rounds once, + b and gelu or
 * + once more each. Nothing is added for f32, nor for a convert to f32 that comes behind. */
START_TEST(test_narrow_results_are_precise)
{
    static const struct {
        const char *type, *last;
        double bound;
    } rows[] = {
        {"f32", "%g = gelu(%s) : f32[24, 16]\n", 1e-4},
        {"bf16", "%g = gelu(%s) : bf16[24, 16]\n", 1e-4 + 4 * 0x1p-8 * 1.7320508075688772},
        {"f16", "%g = add(%s, %s) : f16[24, 16]\n", 1e-4 + 4 * 0x1p-11 * 1.7320508075688772},
        {"bf16", "%g = convert(%s) : f32[24, 16]\n", 1e-4 + 4 * 0x1p-8 * 1.4142135623730951},
    };
    for (uint32_t r = 0; r < SX_COUNT(rows); r++) {
        sx_ctx cx;
        sx_graph *graph;
        const double *bound;
        char text[1024];
        const char *t = rows[r].type;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        (void)snprintf(text, sizeof(text),
                       "sx 1\ngraph \"g\" () {\n"
                       "%%x = parameter {name = \"x\", weight = 0} : %s[24, 40]\n"
                       "%%w = parameter {name = \"w\", weight = 1} : %s[40, 16]\n"
                       "%%b = parameter {name = \"b\", weight = 1} : %s[24, 16]\n"
                       "%%d = dot_general(%%x, %%w) {lhs_contract = [1], "
                       "rhs_contract = [0]} : %s[24, 16]\n"
                       "%%s = add(%%d, %%b) : %s[24, 16]\n"
                       "%sreturn %%g as \"g\"\n}\n",
                       t, t, t, t, t, rows[r].last);
        ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
        ck_sx_ok(&cx, sxv_precise_bounds(&cx, graph, false, &bound));
        double got = bound[graph->output[0].node.i];
        ck_assert_msg(fabs(got - rows[r].bound) < 1e-12, "%s: %g, by hand %g", t, got,
                      rows[r].bound);
        sx_buf module;
        sx_image image;
        sx_buf_init(&module, (size_t)1 << 26);
        sx_test_request request = {.text = text, .target = "x86-64-v3"};
        ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
        sxr_verify_options options = SXR_VERIFY_DEFAULT;
        options.program = sx_span_of(text);
        for (options.seed = 1; options.seed <= 8; options.seed++) {
            sx_image_init(&image);
            cx.stage_count = 0;
            ck_sx_ok(&cx, sxr_verify(&cx, sx_buf_span(&module), &options, &image));
            const sx_module_check *whole =
                (const void *)(image.check.ptr + image.check.len - sizeof(*whole));
            ck_assert_msg(whole->passed == SX_CHECK_PASSED && whole->points == 24 * 16,
                          "%s: seed %llu: %u, error %g", t, (unsigned long long)options.seed,
                          whole->passed, whole->error);
            sx_image_fini(&image);
        }
        sx_buf_fini(&module);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verify.verify");
    TCase *cases = tcase_create("verify");
    tcase_add_test(cases, test_right_module);
    tcase_add_test(cases, test_entries_exchanged);
    tcase_add_test(cases, test_code_damaged);
    tcase_add_test(cases, test_outputs_exchanged);
    tcase_add_test(cases, test_other_program);
    tcase_add_test(cases, test_output_altered);
    tcase_add_test(cases, test_overflow);
    tcase_add_test(cases, test_jumps);
    tcase_add_test(cases, test_range);
    tcase_add_test(cases, test_zero_but_for_rounding);
    tcase_add_test(cases, test_narrow_results_are_precise);
    tcase_add_loop_test(cases, test_rounding, 0, (int)SX_COUNT(rounded));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
